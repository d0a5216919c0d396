"""Arrow without slow imports: arrays to NumPy and back without pandas, and modules that load on first use.

`pa.array`, `pa.scalar` and `to_numpy` import pandas if it is installed. The import takes longer than a search (measured
2026-11-21: 0.1 s of 0.3 s for a whole `zonebloom search`). The functions here do not import pandas, and share memory.
`compute` and `parquet` load the pyarrow modules of those names on first use. They take 30 ms, and a search for one key
does not need them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import numpy as np
import pyarrow as pa

from zonebloom.ground.errors import InvalidArgumentError, first_line

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST_TEXT_BYTES = 1 << 31
_Item = TypeVar("_Item", np.int64, np.uint64)


class _Lazy:
    """A module that is loaded on first use."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        self.__dict__[name] = getattr(import_module(self._name), name)
        return self.__dict__[name]


if TYPE_CHECKING:
    from pyarrow import (
        compute as compute,  # noqa: PLC0414 - for others
        parquet as parquet,  # noqa: PLC0414 - for others
    )
else:
    compute = _Lazy("pyarrow.compute")
    parquet = _Lazy("pyarrow.parquet")


def is_text(arrow_type: pa.DataType) -> bool:
    """Whether `arrow_type` is one of Arrow's types of text."""
    return arrow_type in (pa.string(), pa.large_string(), pa.string_view())


def is_bytes(arrow_type: pa.DataType) -> bool:
    """Whether `arrow_type` is one of Arrow's types of bytes, of any or of one length."""
    return arrow_type in (pa.binary(), pa.large_binary(), pa.binary_view()) or pa.types.is_fixed_size_binary(arrow_type)


def is_number(arrow_type: pa.DataType) -> bool:
    """Whether `arrow_type` is one of integers, floats or decimals."""
    return any(is_it(arrow_type) for is_it in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal))


def type_name(arrow_type: pa.DataType) -> str:
    """The name of `arrow_type` for people."""
    return "uuid" if isinstance(arrow_type, pa.UuidType) else str(arrow_type)


def to_numpy(array: pa.Array, dtype: type[np.generic]) -> NDArray[Any]:
    """The values of a primitive or boolean array without nulls, as `dtype` of the same width."""
    _, values = array.buffers()
    if values is None or not len(array):
        return np.zeros(0, dtype)
    if pa.types.is_boolean(array.type):
        bits = np.frombuffer(values, np.uint8)
        return np.unpackbits(bits, bitorder="little")[array.offset : array.offset + len(array)].astype(np.bool_)
    return np.frombuffer(values, dtype)[array.offset : array.offset + len(array)]


def taken(column: pa.ChunkedArray, places: NDArray[np.int64]) -> pa.ChunkedArray:
    """The values at `places`, which ascend. pyarrow 26 joins the chunks for it, and fails beyond 2 GiB of texts."""
    if column.nbytes < _MOST_TEXT_BYTES:
        return column.take(from_numpy(places, pa.int64()))
    stops = np.cumsum([0, *map(len, column.chunks)])
    cuts = np.searchsorted(places, stops)
    parts = zip(column.chunks, stops[:-1], cuts[:-1], cuts[1:], strict=True)
    chunks = [chunk.take(from_numpy(places[cut:end] - stop, pa.int64())) for chunk, stop, cut, end in parts]
    return pa.chunked_array(chunks, column.type)


def chunks_of(values: Any) -> list[pa.Array]:
    """`values` as Arrow arrays, at least one: those of Arrow as they are, others as pyarrow reads them.

    Raises
    ------
    InvalidArgumentError
        pyarrow does not read them.
    """
    if isinstance(values, pa.ChunkedArray):
        return values.chunks or [pa.nulls(0, values.type)]
    try:
        return [values if isinstance(values, pa.Array) else pa.array(values)]
    except (pa.ArrowException, TypeError, ValueError) as error:
        got = f"{type(values).__name__}: {first_line(error)}"
        raise InvalidArgumentError("values must be an array or a list that pyarrow reads", got=got) from error


def distinct(values: NDArray[_Item]) -> NDArray[_Item]:
    """The distinct values, in order. NumPy's `unique` hashes integers since 2.3, and takes 4 to 14 times as long."""
    ascending = np.sort(values)
    is_first = np.ones(len(ascending), np.bool_)
    is_first[1:] = ascending[1:] != ascending[:-1]
    return ascending[is_first]


def from_numpy(values: NDArray[Any], arrow_type: pa.DataType) -> pa.Array:
    """`values` as an Arrow array without nulls. They must be contiguous and as wide as `arrow_type`."""
    return pa.Array.from_buffers(arrow_type, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def from_values(values: list[Any], arrow_type: pa.DataType) -> pa.Array:
    """Python values as an Arrow array; NaN stays a value. For one value, as in most searches, pandas is not loaded."""
    if isinstance(arrow_type, pa.UuidType):  # pyarrow 23 takes their bytes alone
        values = [value.bytes if isinstance(value, UUID) else value for value in values]
    elif len(values) == 1 and values[0] is not None:
        value = values[0]
        if arrow_type == pa.int64() and -(2**63) <= value < 2**63:
            return from_numpy(np.array([value], np.int64), arrow_type)
        if arrow_type == pa.bool_() and isinstance(value, bool):
            return pa.Array.from_buffers(arrow_type, 1, [None, pa.py_buffer(b"\1" if value else b"\0")])
        if arrow_type == pa.float64():
            return from_numpy(np.array([value], np.float64), arrow_type)
        if arrow_type in (pa.large_string(), pa.large_binary()):
            data = value.encode() if isinstance(value, str) else value
            offsets = np.array([0, len(data)], np.int64)
            return pa.Array.from_buffers(arrow_type, 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return pa.array(values, arrow_type, from_pandas=False)


def from_scalars(scalars: list[pa.Scalar | None], arrow_type: pa.DataType) -> pa.Array:
    """Scalars of a type as an array. Python has no value of some, such as dates after the year 9999."""
    stored = [scalar.value if isinstance(scalar, pa.ExtensionScalar) else scalar for scalar in scalars]  # as above
    return pa.array(stored, arrow_type)


def unwrapped(arrow_type: pa.DataType, *, keeps_uuid: bool = False) -> pa.DataType:
    """The type of one value: without extension types, dictionaries and run-end encoding. Views stay."""
    while True:
        if keeps_uuid and isinstance(arrow_type, pa.UuidType):
            return arrow_type
        if isinstance(arrow_type, pa.BaseExtensionType):
            arrow_type = arrow_type.storage_type
        elif pa.types.is_dictionary(arrow_type) or pa.types.is_run_end_encoded(arrow_type):
            arrow_type = arrow_type.value_type
        else:
            return arrow_type


def plain_array(array: pa.Array, *, keeps_uuid: bool = False) -> pa.Array:
    """The same values without dictionaries, run-end encoding, views and extension types."""
    while True:
        if isinstance(array, pa.DictionaryArray):  # also of views, for example categories of Polars
            array = array.cast(without_views(array.type)).dictionary_decode()
        elif isinstance(array, pa.RunEndEncodedArray):
            array = compute.run_end_decode(array)
        elif isinstance(array, pa.ExtensionArray) and not (keeps_uuid and isinstance(array.type, pa.UuidType)):
            array = array.storage
        elif pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type):  # views have few kernels
            array = array.cast(without_views(array.type))
        else:
            return array


def without_views(arrow_type: pa.DataType) -> pa.DataType:
    """The type of the same values in plain texts and bytes, also within lists, maps, structs and dictionaries.

    pyarrow 26 has no kernels that filter or take views.
    """
    return with_leaves(arrow_type, _without_view)


def _without_view(leaf: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(leaf):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary_view(leaf) else leaf


def with_leaves(arrow_type: pa.DataType, leaf_type: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """The same type with other leaves, also within lists, maps, structs and dictionaries."""
    if pa.types.is_dictionary(arrow_type):
        value_type = with_leaves(arrow_type.value_type, leaf_type)
        return pa.dictionary(arrow_type.index_type, value_type, arrow_type.ordered)
    if not pa.types.is_nested(arrow_type):
        return leaf_type(arrow_type)
    inner = [arrow_type.field(number) for number in range(arrow_type.num_fields)]
    return with_inner(arrow_type, [field.with_type(with_leaves(field.type, leaf_type)) for field in inner])


def with_inner(arrow_type: pa.DataType, inner: list[pa.Field]) -> pa.DataType:
    """The same nested type with other inner fields; that of a list view stays as it is."""
    if inner == [arrow_type.field(number) for number in range(arrow_type.num_fields)]:
        return arrow_type
    if pa.types.is_struct(arrow_type):
        return pa.struct(inner)
    if pa.types.is_map(arrow_type):
        key, item = inner[0].type
        return pa.map_(key.with_nullable(False), item, arrow_type.keys_sorted)
    if pa.types.is_fixed_size_list(arrow_type):
        return pa.list_(inner[0], arrow_type.list_size)
    if pa.types.is_list(arrow_type):
        return pa.list_(inner[0])
    return pa.large_list(inner[0]) if pa.types.is_large_list(arrow_type) else arrow_type


def optional(field: pa.Field) -> pa.Field:
    """The column with nulls allowed at every level; keys of maps never are null."""
    inner = [field.type.field(number) for number in range(field.type.num_fields)]
    return field.with_type(with_inner(field.type, list(map(optional, inner)))).with_nullable(True)


def schema_without_views(schema: pa.Schema) -> pa.Schema:
    """The same columns in the types of `without_views`, without metadata."""
    return pa.schema([field.with_type(without_views(field.type)) for field in schema])


def rowless(schema: pa.Schema) -> pa.Table:
    """A table without rows; `schema.empty_table` fails on a UUID in a struct."""
    return pa.Table.from_batches([], schema)


def python_value(scalar: pa.Scalar) -> Any:
    """The value of `scalar` for people: a Python value, or text if Python has none (times in nanoseconds).

    A text that is no UTF-8 is given as bytes.
    """
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        of = scalar.type
    if pa.types.is_struct(of):
        return {field.name: python_value(scalar[place]) for place, field in enumerate(of)}
    if pa.types.is_nested(of):
        items = ((item[0], item[1]) if pa.types.is_map(of) else item for item in scalar.values)
        return [tuple(map(python_value, item)) if pa.types.is_map(of) else python_value(item) for item in items]
    if is_text(of):
        return scalar.as_buffer().to_pybytes()
    if pa.types.is_duration(of):
        scalar = scalar.cast(pa.int64())
    if pa.types.is_timestamp(of) and of.tz:  # with a zone pyarrow 26 wraps years beyond 32767
        return f"{scalar.cast(pa.timestamp(of.unit)).cast(pa.string()).as_py()}Z"
    return scalar.cast(pa.string()).as_py()
