"""Views of Arrow buffers for the kernels; a buffer that is the hash input is not copied."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from zonebloom.bloom.hashing.types import hash_plan, is_view
from zonebloom.ground.arrow import compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

Bytes: TypeAlias = "NDArray[np.uint8]"


class FixedBuffers(NamedTuple):
    """Values of one width, side by side, as the fused kernels take them."""

    data: Bytes
    """Shape (num_rows * width,): the first value's bytes first; bytes of null slots are unspecified."""
    width: int
    """Bytes of each value."""


class VariableBuffers(NamedTuple):
    """Values of different lengths: row i is ``data[offsets[i]:offsets[i + 1]]``."""

    data: Bytes
    """The whole data buffer, also when the array is a slice of it."""
    offsets: NDArray[np.int32] | NDArray[np.int64]
    """Shape (num_rows + 1,): absolute positions in `data`, never decreasing."""


def fixed_buffers(array: pa.Array) -> FixedBuffers:
    """The hash inputs of an array whose plan is ``fixed``; views of its buffers (bool: 1 byte a value, copied).

    Spec: specs/hashing.md#fixed_buffers
    """
    width = hash_plan(array.type).width
    assert width is not None, array.type
    stored = stored_array(array)
    start, stop = stored.offset, stored.offset + len(stored)
    raw = _bytes(stored.buffers()[1])
    if pa.types.is_boolean(stored.type):
        data = np.unpackbits(raw, count=stop, bitorder="little")[start:] if len(stored) else raw[:0]
    else:
        data = raw[start * width : stop * width]
    return FixedBuffers(data, width)


def variable_buffers(array: pa.Array) -> VariableBuffers:
    """The hash inputs of an array whose plan is ``variable``; views of its buffers (string_view types: copied).

    Spec: specs/hashing.md#variable_buffers
    """
    stored = stored_array(array)
    is_large = stored.type in (pa.large_string(), pa.large_binary())
    dtype = np.dtype(np.int64 if is_large else np.int32)
    _, offset_buffer, data_buffer = stored.buffers()
    offsets = np.zeros(1, dtype)
    if len(stored):  # a zero-length array may come without an offset buffer
        raw = _bytes(offset_buffer)[stored.offset * dtype.itemsize :]
        offsets = raw[: (len(stored) + 1) * dtype.itemsize].view(dtype)
    return VariableBuffers(_bytes(data_buffer), offsets)


def validity_of(array: pa.Array) -> tuple[Bytes | None, int]:
    """The bitmap of an array's rows that have a value, and the bit that belongs to row 0; None if all have one.

    A dictionary's row is null if its index is, or if the dictionary's value there is.

    Spec: specs/hashing.md#validity_of
    """
    stored = stored_array(array)
    if isinstance(stored, pa.DictionaryArray) and stored.dictionary.null_count:
        stored = pc.fill_null(pc.take(pc.is_valid(stored.dictionary), stored.indices), False)
        return _bytes(stored.buffers()[1]), stored.offset
    return (_bytes(stored.buffers()[0]), stored.offset) if stored.null_count else (None, 0)


def stored_array(array: pa.Array) -> pa.Array:
    """The array without extension types, run-end encoding and views; dictionaries stay."""
    while True:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        elif isinstance(array, pa.RunEndEncodedArray):
            array = pc.run_end_decode(array)
        elif is_view(array.type):
            array = array.cast(pa.large_string() if pa.types.is_string_view(array.type) else pa.large_binary())
        else:
            return array


def _bytes(buffer: pa.Buffer | None) -> Bytes:
    """A read-only view, also of mutable buffers."""
    view = np.empty(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)
    view.flags.writeable = False
    return view
