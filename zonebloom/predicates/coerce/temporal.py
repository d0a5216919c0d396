"""Literals of dates, times, timestamps and durations, and texts of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from zonebloom.ground.arrow import compute as pc
from zonebloom.predicates.coerce.reasons import Part, misfit
from zonebloom.predicates.exact_numbers import ValueTest, neighbour_test

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NS_OF_UNIT = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_NS_OF_DAY = 86_400 * 10**9


def rescale(source: pa.Array, stored: pa.DataType) -> Part:
    """Ticks of the source's unit as ticks of the column's; a zone on one side only is a misfit."""
    if _zone(source.type) != _zone(stored):
        raise misfit(source, stored)
    ticks = source.view(_ticks_type(source.type)).to_numpy().astype(np.int64)
    source_ns = _stored_ns(source.type)
    coarse = ticks % max(1, _tick_ns(stored) // source_ns) != 0
    if coarse.any():
        raise misfit(source, stored, coarse)
    ticks, keep = _in_unit(ticks, source_ns, _tick_ns(stored))
    if pa.types.is_date64(stored):
        ticks, is_within = _in_unit(ticks, _NS_OF_DAY, _NS_OF_UNIT["ms"])
        keep &= is_within
    dtype = np.dtype(f"i{stored.bit_width // 8}")
    keep &= (ticks >= np.iinfo(dtype).min) & (ticks <= np.iinfo(dtype).max)
    return pa.array(ticks[keep].astype(dtype)).view(stored), keep


_CLOCKS = (
    lambda temporal: pa.types.is_timestamp(temporal) or pa.types.is_date(temporal),
    pa.types.is_time,
    pa.types.is_duration,
)
"""Tests of types whose values are ticks of one clock."""


def moment_test(operator: str, moment: pa.Scalar, column_type: pa.DataType) -> ValueTest | None:
    """The exact test ``value <operator> moment`` for a type that has no value equal to `moment`.

    None if they are not ticks of one clock, or if only one side has a zone: pyarrow would compare some of them.
    """
    is_same_clock = any(is_clock(moment.type) and is_clock(column_type) for is_clock in _CLOCKS)
    if not is_same_clock or _zone(moment.type) != _zone(column_type):
        return None
    stored = _ticks_type(column_type)
    ticks = pa.array([moment]).view(_ticks_type(moment.type))[0].as_py()
    below = ticks * _stored_ns(moment.type) // _stored_ns(column_type)
    bits = np.iinfo(stored.to_pandas_dtype())
    bounds = int(bits.min), int(bits.max)
    return neighbour_test(operator, below, bounds, lambda ticks: pa.array([ticks], stored).view(column_type))


def _ticks_type(temporal: pa.DataType) -> pa.DataType:
    return pa.int32() if temporal.bit_width == 32 else pa.int64()  # noqa: PLR2004 - bits


def _stored_ns(temporal: pa.DataType) -> int:
    return _NS_OF_UNIT["ms"] if pa.types.is_date64(temporal) else _tick_ns(temporal)


def _in_unit(ticks: NDArray[np.int64], from_ns: int, to_ns: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """`ticks` in another unit, and whether each is within 64 bits; for a coarser unit they must be multiples of it."""
    if from_ns <= to_ns:
        return ticks // (to_ns // from_ns), np.ones(len(ticks), np.bool_)
    factor = from_ns // to_ns
    limit = np.iinfo(np.int64).max // factor
    is_within = (ticks >= -limit) & (ticks <= limit)
    return np.where(is_within, ticks, 0) * factor, is_within


def _tick_ns(temporal: pa.DataType) -> int:
    return _NS_OF_DAY if pa.types.is_date(temporal) else _NS_OF_UNIT[temporal.unit]


def _zone(temporal: pa.DataType) -> bool:
    return pa.types.is_timestamp(temporal) and temporal.tz is not None


def text_to_date(source: pa.Array, stored: pa.DataType) -> Part:
    """ISO 8601 dates."""
    return source.cast(pa.large_string()).cast(stored), None


def text_to_timestamp(source: pa.Array, stored: pa.DataType) -> Part:
    """ISO 8601; the text must have an offset if the column has a zone, and none if it has none."""
    source = source.cast(pa.large_string())
    try:
        moments = source.cast(pa.timestamp("us", stored.tz))
    except pa.ArrowInvalid:
        moments = source.cast(pa.timestamp("ns", stored.tz))  # from 1677 to 2262 only
    return rescale(moments, stored)


def text_to_time(source: pa.Array, stored: pa.DataType) -> Part:
    """ISO 8601 times of day, from hours and minutes down to nanoseconds, without a zone."""
    source = source.cast(pa.large_string())
    wrong = pc.invert(pc.match_substring_regex(source, r"^\d\d:\d\d")).to_numpy(zero_copy_only=False)
    if wrong.any():
        raise misfit(source, stored, wrong)
    moments = pc.binary_join_element_wise(
        pa.scalar("1970-01-01T", pa.large_string()), source, pa.scalar("", pa.large_string())
    )
    return rescale(moments.cast(pa.timestamp("ns")).view(pa.time64("ns")), stored)
