"""Least and greatest value of a column chunk, and its number of nulls, from its ColumnMetaData.

Design: docs/design/scan.md#statistics
"""

from __future__ import annotations

import json
import struct
from typing import Any

import pyarrow as pa

from zonebloom.formats.parquet.fields import Meta
from zonebloom.ground.arrow import parquet as pq

_MIN_MAX, _OLD_MIN_MAX, _NULL_COUNT = (6, 5), (2, 1), 3
"""Fields of Statistics. The old fields have the order of signed bytes, which is right for numbers only."""
_TIME_UNITS = {"ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
"""Parquet's names of units of time; pyarrow stores seconds as milliseconds."""
_TEXTS = ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_FORMATS = {"INT32": "<i", "INT64": "<q", "FLOAT": "<f", "DOUBLE": "<d"}


def unpacking(own: pa.DataType, leaf: pq.ColumnSchema) -> str | None:
    """The `struct` format of a bound of a leaf as a value of `own`; empty for bytes; None if it is not usable."""
    t = pa.types
    if t.is_timestamp(own) and json.loads(leaf.logical_type.to_json()).get("timeUnit") != _TIME_UNITS.get(own.unit):
        return None
    if t.is_decimal(own) or t.is_float16(own) or t.is_boolean(own) or (t.is_time(own) and own.unit == "s"):
        return None
    if leaf.physical_type in _TEXTS:
        return ""
    code = _FORMATS.get(leaf.physical_type)
    return code.upper() if code is not None and t.is_unsigned_integer(own) else code


def bounds_of(meta: dict[int, Any], unpacked: str) -> tuple[Any, Any] | None:
    """Least and greatest value of a chunk; None if its statistics do not have both in the right width."""
    statistics = meta.get(Meta.STATISTICS)
    if not isinstance(statistics, dict):
        return None
    for fields in (_MIN_MAX, _OLD_MIN_MAX) if unpacked else (_MIN_MAX,):
        least, greatest = (statistics.get(field) for field in fields)
        if not (isinstance(least, bytes) and isinstance(greatest, bytes)):
            continue
        if not unpacked:
            return least, greatest
        if len(least) == len(greatest) == struct.calcsize(unpacked):
            return struct.unpack(unpacked, least)[0], struct.unpack(unpacked, greatest)[0]
    return None


def null_count(meta: dict[int, Any]) -> int | None:
    """The number of nulls of a chunk; None if its statistics do not have it."""
    statistics = meta.get(Meta.STATISTICS)
    count = statistics.get(_NULL_COUNT) if isinstance(statistics, dict) else None
    return count if isinstance(count, int) and count >= 0 else None
