"""The commonest literals to their hash without Arrow: an int for a column of ints, a text or bytes for one of the same.

A search for one key spends microseconds on its filters; making an Arrow array of one value would cost as much again.

Spec: specs/hashing.md#fit_values
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

import pyarrow as pa
import xxhash

__all__ = ["plain_hash"]

_INTEGERS: Final = {
    of_type.id: (Struct(f"<{code}"), 0 if unsigned else -(1 << bits - 1), 1 << (bits if unsigned else bits - 1))
    for of_type, code, bits, unsigned in (
        (pa.int8(), "b", 8, False),
        (pa.int16(), "h", 16, False),
        (pa.int32(), "i", 32, False),
        (pa.int64(), "q", 64, False),
        (pa.uint8(), "B", 8, True),
        (pa.uint16(), "H", 16, True),
        (pa.uint32(), "I", 32, True),
        (pa.uint64(), "Q", 64, True),
    )
}
"""By type id: how a value is packed, the least value, and the first that is too large."""
_TEXTS: Final = {pa.string().id, pa.large_string().id, pa.string_view().id}
_BYTES: Final = {pa.binary().id, pa.large_binary().id, pa.binary_view().id}


def plain_hash(value: Any, column_type: pa.DataType) -> int | None:
    """The one hash to probe for `value`; None where `fit_values` must decide."""
    of_value = type(value)
    if of_value is int:
        packing = _INTEGERS.get(column_type.id)
        if packing is not None and packing[1] <= value < packing[2]:
            return xxhash.xxh64_intdigest(packing[0].pack(value))
    elif of_value is str:
        if column_type.id in _TEXTS:
            try:
                return xxhash.xxh64_intdigest(value.encode())
            except UnicodeEncodeError:
                return None
    elif of_value is bytes and column_type.id in _BYTES:
        return xxhash.xxh64_intdigest(value)
    return None
