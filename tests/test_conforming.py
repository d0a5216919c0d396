"""Values become those of the indexed type, or the file is left out; expected values are Python's own."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

import zonebloom as zb
from zonebloom.conforming import conformed

WIDTHS = (pa.decimal32, pa.decimal64, pa.decimal128, pa.decimal256)
INTEGERS = (pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64())
WRAPS = [2**power + more for power in (8, 16, 32, 64) for more in (0, 1, 125)]
"""What a narrower type would take for 0, 1 or 125."""


@st.composite
def decimal_types(draw: st.DrawFn) -> pa.DataType:
    make = draw(st.sampled_from(WIDTHS))
    most = {pa.decimal32: 9, pa.decimal64: 18, pa.decimal128: 38, pa.decimal256: 76}[make]
    precision = draw(st.integers(1, most))
    return make(precision, draw(st.integers(0, precision)))


@settings(deadline=None)
@given(decimal_types(), decimal_types(), st.sampled_from(WRAPS) | st.integers(0, 10**76), st.booleans())
def test_a_decimal_stays_the_same_value_or_is_refused(found, wanted, unscaled, is_negative):
    digits = tuple(map(int, str(unscaled % 10**found.precision)))
    values = pa.array([Decimal((is_negative, digits, -found.scale)), None], found)
    made = conformed(values, wanted)
    assert made is None or (made.type == wanted and made.to_pylist() == values.to_pylist())


@settings(deadline=None)
@given(st.sampled_from(INTEGERS), st.sampled_from(INTEGERS), st.sampled_from(WRAPS) | st.integers(-(2**63), 2**64 - 1))
def test_an_integer_stays_the_same_value_or_is_refused(found, wanted, value):
    low, high = (-(2 ** (found.bit_width - 1)), 2 ** (found.bit_width - 1) - 1)
    low, high = (0, 2**found.bit_width - 1) if pa.types.is_unsigned_integer(found) else (low, high)
    values = pa.array([min(max(value, low), high)], found)
    made = conformed(values, wanted)
    assert made is None or (made.type == wanted and made.to_pylist() == values.to_pylist())


def test_a_decimal_too_large_for_the_index_is_found(tmp_path):
    root = tmp_path / "lake"
    root.mkdir()
    pq.write_table(pa.table({"x": pa.array([Decimal("1.25")], pa.decimal32(5, 2))}), root / "a.parquet")
    index = zb.build_index(root, "x")
    large = Decimal(2**32 + 125).scaleb(-2)  # of which 32 bits are 1.25
    pq.write_table(pa.table({"x": pa.array([large], pa.decimal128(30, 2))}), root / "b.parquet")
    index.refresh()
    found = index.search(zb.Equals("x", large))
    assert found.row_ranges.num_rows == 1
    assert [reason.code for reason in found.reasons] == [zb.ReasonCode.COLUMN_NOT_INDEXED]
