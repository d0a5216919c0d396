"""Arrow values to 64-bit hashes, and which types have them.

The ladder, from a column to its hashes:

1. ``column_array`` finds a column, or the leaf ``"a.b"`` of a struct, in a batch.
2. ``hash_plan`` says how its type is hashed: ``fixed`` (so many bytes a value), ``variable`` (bytes between offsets)
   or ``hashes`` (dictionaries: each distinct value is hashed once, then gathered).
3. ``fixed_buffers``, ``variable_buffers`` and ``to_hashes`` hand the kernels exactly what the layout needs, and copy
   nothing for types whose Arrow buffer already is the hash input.

The hash is XXH64 with seed 0 of the value's little-endian bytes at the column's own width. Null has no hash. Two
values of one column have equal hash input exactly if they are equal, except floats: ``-0.0`` and each NaN have bytes
of their own, so ``hash_values`` probes both zeros, and zonebloom.literals never lets NaN prune.

Nothing here imports numba before a kernel is needed.

Spec: specs/hashing.md.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from zonebloom.arrays import compute as pc
from zonebloom.errors import ColumnNotFoundError, InvalidArgumentError, UnsupportedTypeError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "FixedBuffers",
    "HashPlan",
    "VariableBuffers",
    "column_array",
    "fixed_buffers",
    "hash_array",
    "hash_plan",
    "hash_values",
    "is_supported",
    "lance_supports",
    "leaf_paths",
    "resolve_column",
    "storage_type",
    "to_hashes",
    "validity_of",
    "variable_buffers",
]

Hashes: TypeAlias = "NDArray[np.uint64]"
Bytes: TypeAlias = "NDArray[np.uint8]"

MAX_VALUES_WITHOUT_KERNELS = 1024
"""Up to here the xxhash package hashes a probe sooner than numba is imported (0.6 s of CPU)."""

NUM_CACHED_DICTIONARIES = 8
"""As many dictionary columns as one build usually reads side by side; each holds one dictionary and its hashes."""


# --- types ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HashPlan:
    """How the values of one Arrow type become hash inputs."""

    layout: Literal["fixed", "variable", "hashes"]
    """``fixed``: use `fixed_buffers`; ``variable``: `variable_buffers`; ``hashes``: `to_hashes` and `validity_of`."""
    width: int | None
    """Bytes of each value's hash input for ``fixed``, else None."""


def storage_type(column_type: pa.DataType) -> pa.DataType:
    """The type whose values are hashed: extension types and run-end encoding taken off, dictionaries left on."""
    while True:
        if isinstance(column_type, pa.BaseExtensionType):
            column_type = column_type.storage_type
        elif pa.types.is_run_end_encoded(column_type):
            column_type = column_type.value_type
        else:
            return column_type


def hash_plan(column_type: pa.DataType) -> HashPlan:
    """How values of `column_type` are hashed; a type without a plan has no defined hash input.

    Raises
    ------
    UnsupportedTypeError
        For null, list, map, struct, union and interval types, ``fixed_size_binary(0)``, and ``arrow.bool8``, whose
        true has 255 encodings.

    Spec: specs/hashing.md#hash_plan
    """
    if isinstance(column_type, pa.Bool8Type):
        raise _unsupported(column_type, "cast the column to bool")
    stored = storage_type(column_type)
    if pa.types.is_dictionary(stored):
        hash_plan(stored.value_type)
        return HashPlan("hashes", None)
    if _is_variable(stored):
        return HashPlan("variable", None)
    if pa.types.is_boolean(stored):
        return HashPlan("fixed", 1)
    if pa.types.is_fixed_size_binary(stored) and stored.byte_width:
        return HashPlan("fixed", stored.byte_width)
    if _is_fixed_primitive(stored):
        return HashPlan("fixed", stored.bit_width // 8)
    if pa.types.is_struct(stored):
        leaves = [path for field in stored for path in _paths(field, field.name)]
        example = f"such as '<column>.{leaves[0]}'" if leaves else "but this one has none"
        raise _unsupported(column_type, f"index a leaf of it, {example}")
    raise _unsupported(column_type, "index a column of values that can be compared by their bytes")


def is_supported(column_type: pa.DataType) -> bool:
    """Whether columns of `column_type` can be indexed, that is, whether `hash_plan` has a plan."""
    try:
        hash_plan(column_type)
    except UnsupportedTypeError:
        return False
    return True


def lance_supports(column_type: pa.DataType) -> bool:
    """Whether Lance builds and queries a bloom filter index on `column_type`; its hashes then equal ours.

    Spec: specs/hashing.md#lance_supports
    """
    types = pa.types
    if types.is_integer(column_type) or types.is_float32(column_type) or types.is_float64(column_type):
        return True
    if types.is_date(column_type) or types.is_time(column_type) or types.is_timestamp(column_type):
        return True
    return column_type in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


def _is_fixed_primitive(stored: pa.DataType) -> bool:
    types = pa.types
    if types.is_integer(stored) or types.is_floating(stored) or types.is_decimal(stored):
        return True
    return bool(
        types.is_date(stored) or types.is_time(stored) or types.is_timestamp(stored) or types.is_duration(stored)
    )


def _is_variable(stored: pa.DataType) -> bool:
    return stored in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()) or _is_view(stored)


def _is_view(stored: pa.DataType) -> bool:
    return stored in (pa.string_view(), pa.binary_view())


def _unsupported(column_type: pa.DataType, advice: str) -> UnsupportedTypeError:
    return UnsupportedTypeError(
        f"an indexed column's type must have a hash input (specs/hashing.md), got {column_type}; {advice}"
    )


# --- columns ----------------------------------------------------------------------------------------------------------


def resolve_column(schema: pa.Schema, name: str) -> pa.Field:
    """The field that `name` means: a column of that very name, else the struct leaf at that dotted path.

    The field of a leaf is named by its whole path, and is nullable if it or a parent is.

    Raises
    ------
    ColumnNotFoundError
        If there is none; the message offers the nearest columns and leaf paths.
    InvalidArgumentError
        If several columns have the name.

    Spec: specs/hashing.md#column_array
    """
    fields = _fields_on_path(schema, name)
    leaf = fields[-1]
    nullable = any(field.nullable for field in fields)
    return leaf if len(fields) == 1 else pa.field(name, leaf.type, nullable, leaf.metadata)


def column_array(data: pa.RecordBatch | pa.Table, name: str) -> pa.Array | pa.ChunkedArray:
    """The values of column or struct leaf `name`, null wherever the leaf or one of its parents is null.

    An Array for a RecordBatch, a ChunkedArray for a Table. A top-level column is not copied.

    Raises
    ------
    ColumnNotFoundError, InvalidArgumentError
        As `resolve_column`.

    Spec: specs/hashing.md#column_array
    """
    fields = _fields_on_path(data.schema, name)
    column = data.column(data.schema.get_field_index(fields[0].name))
    for field in fields[1:]:
        child = pc.struct_field(column, [column.type.get_field_index(field.name)])
        if pa.types.is_run_end_encoded(field.type):  # pyarrow 26 cannot give a run-end encoded child its parent's nulls
            child = pc.if_else(pc.is_valid(column), pc.run_end_decode(child), None)
        column = child
    return column


def leaf_paths(schema: pa.Schema) -> list[str]:
    """The dotted paths of all columns that are no structs, in order of the schema."""
    return [path for field in schema for path in _paths(field, field.name)]


def _paths(field: pa.Field, path: str) -> Iterator[str]:
    if pa.types.is_struct(field.type):
        for child in field.type:
            yield from _paths(child, f"{path}.{child.name}")
    else:
        yield path


def _fields_on_path(schema: pa.Schema, name: str) -> list[pa.Field]:
    fields = _walk(list(schema), name)
    if fields is None:
        raise ColumnNotFoundError.among(name, [*schema.names, *leaf_paths(schema)], "the schema")
    return fields


def _walk(fields: list[pa.Field], name: str) -> list[pa.Field] | None:
    """The fields from one of `fields` down to `name`; the longest name that matches at each level wins."""
    named = [field for field in fields if field.name == name]
    if len(named) > 1:
        raise InvalidArgumentError(f"a column's name must be unique, got {len(named)} columns named {name!r}")
    if named:
        return named
    parents = [field for field in fields if pa.types.is_struct(field.type) and name.startswith(f"{field.name}.")]
    for parent in sorted(parents, key=lambda field: len(field.name), reverse=True):
        rest = _walk(list(parent.type), name[len(parent.name) + 1 :])
        if rest is not None:
            return [parent, *rest]
    return None


# --- buffers ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FixedBuffers:
    """Values of one width, side by side, as the fused kernels take them."""

    data: Bytes
    """Shape (num_rows * width,): the first value's bytes first; bytes of null slots are unspecified."""
    width: int
    """Bytes of each value."""
    validity: Bytes | None
    """Arrow's bitmap, least significant bit first, 1 = valid; None if no row is null."""
    validity_offset: int
    """The bit of `validity` that belongs to row 0."""
    num_rows: int
    """Rows, null ones included."""


@dataclass(frozen=True, slots=True)
class VariableBuffers:
    """Values of their own lengths: row i is ``data[offsets[i]:offsets[i + 1]]``."""

    data: Bytes
    """The whole data buffer, also when the array is a slice of it."""
    offsets: NDArray[np.int32] | NDArray[np.int64]
    """Shape (num_rows + 1,): absolute positions in `data`, never decreasing."""
    validity: Bytes | None
    """Arrow's bitmap, least significant bit first, 1 = valid; None if no row is null."""
    validity_offset: int
    """The bit of `validity` that belongs to row 0."""
    num_rows: int
    """Rows, null ones included."""


def fixed_buffers(array: pa.Array) -> FixedBuffers:
    """The hash inputs of an array whose plan is ``fixed``; views of its buffers (bool: 1 byte a value, copied).

    Spec: specs/hashing.md#fixed_buffers
    """
    width = hash_plan(array.type).width
    if width is None:
        raise InvalidArgumentError(f"the array's hash plan must be fixed, got one of type {array.type}")
    stored = _stored(array)
    start, stop = stored.offset, stored.offset + len(stored)
    raw = _bytes(stored.buffers()[1])
    if pa.types.is_boolean(stored.type):
        data = np.unpackbits(raw, count=stop, bitorder="little")[start:] if len(stored) else raw[:0]
    else:
        data = raw[start * width : stop * width]
    validity, validity_offset = _bitmap(stored)
    return FixedBuffers(data, width, validity, validity_offset, len(stored))


def variable_buffers(array: pa.Array) -> VariableBuffers:
    """The hash inputs of an array whose plan is ``variable``; views of its buffers (string_view types: copied).

    Spec: specs/hashing.md#variable_buffers
    """
    if hash_plan(array.type).layout != "variable":
        raise InvalidArgumentError(f"the array's hash plan must be variable, got one of type {array.type}")
    stored = _stored(array)
    is_large = stored.type in (pa.large_string(), pa.large_binary())
    dtype = np.dtype(np.int64 if is_large else np.int32)
    _, offset_buffer, data_buffer = stored.buffers()
    offsets = np.zeros(1, dtype)
    if len(stored):  # a zero-length array may come without an offset buffer
        raw = _bytes(offset_buffer)[stored.offset * dtype.itemsize :]
        offsets = raw[: (len(stored) + 1) * dtype.itemsize].view(dtype)
    validity, validity_offset = _bitmap(stored)
    return VariableBuffers(_bytes(data_buffer), offsets, validity, validity_offset, len(stored))


def validity_of(array: pa.Array) -> tuple[Bytes | None, int]:
    """The bitmap of an array's rows that have a value, and the bit that belongs to row 0; None if all have one.

    A dictionary's row is null if its index is, or if the dictionary's value there is.

    Spec: specs/hashing.md#validity_of
    """
    stored = _stored(array)
    if isinstance(stored, pa.DictionaryArray) and stored.dictionary.null_count:
        valid = pc.fill_null(pc.take(pc.is_valid(stored.dictionary), stored.indices), False)
        return _bytes(valid.buffers()[1]), valid.offset
    return _bitmap(stored)


def _stored(array: pa.Array) -> pa.Array:
    """The array without extension types, run-end encoding and views; dictionaries stay."""
    while True:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        elif isinstance(array, pa.RunEndEncodedArray):
            array = pc.run_end_decode(array)
        elif _is_view(array.type):
            array = array.cast(pa.large_string() if pa.types.is_string_view(array.type) else pa.large_binary())
        else:
            return array


def _bitmap(stored: pa.Array) -> tuple[Bytes | None, int]:
    if not stored.null_count:
        return None, 0
    return _bytes(stored.buffers()[0]), stored.offset


def _bytes(buffer: pa.Buffer | None) -> Bytes:
    """A read-only view, also of buffers that pyarrow would let be written."""
    view = np.empty(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)
    view.flags.writeable = False
    return view


# --- hashes -----------------------------------------------------------------------------------------------------------


def to_hashes(array: pa.Array) -> Hashes:
    """One hash for each row of any supported type; null rows hold an unspecified hash, see `validity_of`.

    A dictionary's values are hashed once, also when the next arrays share the dictionary.

    Spec: specs/hashing.md#to_hashes
    """
    plan = hash_plan(array.type)
    if plan.layout == "hashes":
        return _dictionary_hashes(_stored(array))
    from zonebloom.kernels import xxh64  # noqa: PLC0415 - numba is imported when a kernel is needed, not before

    if plan.layout == "fixed":
        fixed = fixed_buffers(array)
        return xxh64.hash_fixed(fixed.data, fixed.width)
    variable = variable_buffers(array)
    return xxh64.hash_variable(variable.data, variable.offsets)


def hash_array(array: pa.Array | pa.ChunkedArray) -> Hashes:
    """The hashes of the values that are not null, in order.

    Spec: specs/hashing.md#to_hashes
    """
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    hash_plan(array.type)
    hashes = [_valid_hashes(chunk) for chunk in chunks]
    return np.concatenate(hashes) if hashes else np.empty(0, np.uint64)


def hash_values(array: pa.Array) -> list[int] | Hashes:
    """The hashes to probe for the values of `array`: a value is absent where all of its column's hashes differ.

    Nulls are dropped. A zero of a float type contributes both ``0.0`` and ``-0.0``, which are equal but have other
    bytes. Up to 1024 values numba is not imported and a list of ints is returned. NaN must not be among the values:
    zonebloom.literals.fit_values refuses it.

    Spec: specs/hashing.md#hash_values
    """
    stored = _stored(array)
    if isinstance(stored, pa.DictionaryArray):
        return hash_values(stored.dictionary_decode())
    values = _both_zeros(stored.drop_null())
    if len(values) > MAX_VALUES_WITHOUT_KERNELS:
        return to_hashes(values)
    import xxhash  # noqa: PLC0415 - a build never needs it

    return [xxhash.xxh64_intdigest(value) for value in _hash_inputs(values)]


def _hash_inputs(array: pa.Array) -> Iterator[bytes]:
    """The hash input of each row of an array without nulls."""
    if hash_plan(array.type).layout == "fixed":
        fixed = fixed_buffers(array)
        raw = fixed.data.tobytes()
        return (raw[i : i + fixed.width] for i in range(0, len(raw), fixed.width))
    variable = variable_buffers(array)
    bounds = variable.offsets.tolist()
    return (variable.data[start:stop].tobytes() for start, stop in itertools.pairwise(bounds))


def _both_zeros(values: pa.Array) -> pa.Array:
    if not pa.types.is_floating(values.type):
        return values
    floats: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    if not (floats == 0).any():
        return values
    others = np.array([0.0, -0.0], floats.dtype)
    return pa.array(np.concatenate([floats[floats != 0], others]), values.type)


def _valid_hashes(array: pa.Array) -> Hashes:
    hashes = to_hashes(array)
    validity, offset = validity_of(array)
    if validity is None:
        return hashes
    return hashes[np.unpackbits(validity, count=offset + len(array), bitorder="little")[offset:].view(np.bool_)]


# --- dictionaries -----------------------------------------------------------------------------------------------------

# An entry holds its dictionary, so that the addresses in its key cannot be given to other data while it lives.
_hashed_dictionaries: OrderedDict[tuple[Any, ...], tuple[pa.Array, Hashes]] = OrderedDict()
_hashed_dictionaries_lock = threading.Lock()


def _dictionary_hashes(array: pa.DictionaryArray) -> Hashes:
    if not len(array.dictionary):  # every row is null
        return np.zeros(len(array), np.uint64)
    hashes = _hashes_of_dictionary(array.dictionary)
    indices = array.indices
    if indices.null_count:  # the index of a null row may be anything
        indices = pc.fill_null(indices, 0)
    gathered: Hashes = hashes.take(indices.to_numpy())
    return gathered


def _hashes_of_dictionary(dictionary: pa.Array) -> Hashes:
    buffers = tuple((b.address, b.size) if b is not None else None for b in dictionary.buffers())
    key = (str(dictionary.type), dictionary.offset, len(dictionary), buffers)
    with _hashed_dictionaries_lock:
        known = _hashed_dictionaries.get(key)
        if known is not None:
            _hashed_dictionaries.move_to_end(key)
            return known[1]
    hashes = to_hashes(dictionary)
    with _hashed_dictionaries_lock:
        _hashed_dictionaries[key] = (dictionary, hashes)
        while len(_hashed_dictionaries) > NUM_CACHED_DICTIONARIES:
            _hashed_dictionaries.popitem(last=False)
    return hashes
