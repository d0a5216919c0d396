"""The hash of a common literal without Arrow: an int for a column of ints, a text or bytes for a column of the same.

A search for one key spends microseconds on its filters, and an Arrow array of one value would take as long.

Spec: specs/hashing.md#fit_values
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

import pyarrow as pa
import xxhash

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
    """The hash to probe for `value`; None if `fit_values` must convert it."""
    kind, column = type(value), column_type.id
    if kind is int and column in _INTEGERS:
        packing, least, end = _INTEGERS[column]
        return xxhash.xxh64_intdigest(packing.pack(value)) if least <= value < end else None
    if kind is str and column in _TEXTS:
        try:
            return xxhash.xxh64_intdigest(value.encode())
        except UnicodeEncodeError:
            return None
    return xxhash.xxh64_intdigest(value) if kind is bytes and column in _BYTES else None
