"""Values become those of the indexed type, or the file is left out; expected values are Python's own."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

import zonebloom as zb
from tests.newer import need
from zonebloom.formats.schema_evolution import conformed, unified

WIDTHS = {pa.decimal32: 9, pa.decimal64: 18, pa.decimal128: 38, pa.decimal256: 76}
"""Most digits of each width of decimals."""
INTEGERS = (pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64())
WRAPS = [2**power + more for power in (8, 16, 32, 64) for more in (0, 1, 125)]
"""What a narrower type would take for 0, 1 or 125."""


@st.composite
def decimal_types(draw: st.DrawFn) -> pa.DataType:
    make = draw(st.sampled_from([*WIDTHS]))
    precision = draw(st.integers(1, WIDTHS[make]))
    return make(precision, draw(st.integers(0, precision)))


def assert_same_or_refused(values: pa.Array, wanted: pa.DataType) -> None:
    converted = conformed(values, wanted)
    assert converted is None or (converted.type == wanted and converted.to_pylist() == values.to_pylist())


@settings(deadline=None)
@given(decimal_types(), decimal_types(), st.sampled_from(WRAPS) | st.integers(0, 10**76), st.booleans())
def test_a_decimal_stays_the_same_value_or_is_refused(stored, wanted, unscaled, is_negative):
    digits = tuple(map(int, str(unscaled % 10**stored.precision)))
    assert_same_or_refused(pa.array([Decimal((is_negative, digits, -stored.scale)), None], stored), wanted)


@settings(deadline=None)
@given(st.sampled_from(INTEGERS), st.sampled_from(INTEGERS), st.sampled_from(WRAPS) | st.integers(-(2**63), 2**64 - 1))
def test_an_integer_stays_the_same_value_or_is_refused(stored, wanted, value):
    is_unsigned = pa.types.is_unsigned_integer(stored)
    low = 0 if is_unsigned else -(2 ** (stored.bit_width - 1))
    values = pa.array([min(max(value, low), low + 2**stored.bit_width - 1)], stored)
    assert_same_or_refused(values, wanted)


D, T = pa.decimal128, pa.timestamp


@pytest.mark.parametrize(
    ("value", "stored", "wanted"),
    [
        *((5, pa.int32(), pa.int64()), (5, pa.int64(), pa.uint8()), (0.1, pa.float32(), pa.float64())),
        *((Decimal("1.50"), D(5, 2), D(9, 3)), (Decimal("1.50"), D(20, 2), pa.decimal32(5, 2))),
        *(("é", pa.string(), pa.large_string()), ("é", pa.string_view(), pa.string())),
        *(("é", pa.dictionary(pa.int8(), pa.string()), pa.large_string()), (b"\xff", pa.binary(), pa.large_binary())),
        *((10**6, T("s"), T("us")), (10**9, T("ns"), T("us")), (10**6, T("us", "UTC"), T("us", "Europe/Paris"))),
    ],
)
def test_what_converts(value, stored, wanted):
    array = pa.array([value, None], stored)
    converted = conformed(array, wanted)
    assert converted.type == wanted
    back = converted.cast(pa.string() if pa.types.is_dictionary(stored) else stored)
    assert back.to_pylist() == array.to_pylist()


@pytest.mark.parametrize(
    ("value", "stored", "wanted"),
    [
        *((300, pa.int64(), pa.int8()), (5, pa.int8(), pa.float64()), (0.5, pa.float64(), pa.float32())),
        *((Decimal("1.500"), D(9, 3), D(5, 2)), (Decimal("999.99"), D(5, 2), D(4, 2))),
        (Decimal(256), D(3, 0), D(38, 38)),
        *(("5", pa.string(), pa.int64()), ("a", pa.string(), pa.binary()), (b"a", pa.binary(), pa.string())),
        *((True, pa.bool_(), pa.int8()), (5, pa.date32(), T("us")), (1, T("ns"), T("us"))),
        *((10**6, T("us"), T("us", "UTC")), (10**6, T("us", "UTC"), T("us"))),
    ],
)
def test_what_does_not_convert(value, stored, wanted):
    assert conformed(pa.array([value, None], stored), wanted) is None


def test_a_decimal_too_large_for_the_index_is_found(tmp_path):
    need("narrow_decimals_in_files")
    pq.write_table(pa.table({"x": pa.array([Decimal("1.25")], pa.decimal32(5, 2))}), tmp_path / "a.parquet")
    index = zb.build_index(tmp_path, "x")
    large = Decimal(2**32 + 125).scaleb(-2)  # of which 32 bits are 1.25
    pq.write_table(pa.table({"x": pa.array([large], pa.decimal128(30, 2))}), tmp_path / "b.parquet")
    index.refresh()
    result = index.search(zb.Equals("x", large))
    assert result.row_ranges.num_rows == 1
    assert [reason.code for reason in result.reasons] == [zb.ReasonCode.COLUMN_NOT_INDEXED]


NARROW, WIDE = pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.string())


@pytest.mark.parametrize(
    "wrapped", [lambda of: of, pa.list_, lambda of: pa.struct({"s": of}), lambda of: pa.map_(pa.string(), of)]
)
@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_a_struct_has_the_fields_of_all_files(wrapped, kind):
    """Fields are added, and the type of another field changes, by one file."""
    files = [wrapped(pa.struct({"f": pa.int32()})), wrapped(pa.struct({"f": kind, "g": pa.string()}))]
    expected = pa.int64() if kind == pa.int64() else pa.int32()
    merged = unified([pa.schema({"x": of}) for of in files])
    assert merged == pa.schema({"x": wrapped(pa.struct({"f": expected, "g": pa.string()}))})


def test_a_list_of_another_kind_loses_no_field(tmp_path):
    """Polars writes large lists."""
    for name, kind, item in (("a", pa.list_, {"f": 1}), ("b", pa.large_list, {"f": 2, "g": 3})):
        pq.write_table(pa.table({"x": pa.array([[item]], kind(pa.infer_type([item])))}), tmp_path / f"{name}.parquet")
    assert zb.open_lake(tmp_path).to_table("x IS NOT NULL")["x"].to_pylist() == [
        [{"f": 1, "g": None}],
        [{"f": 2, "g": 3}],
    ]


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        *(((NARROW, pa.string()), WIDE), ((pa.string(), NARROW), pa.string())),
        *(((NARROW, WIDE), WIDE), ((NARROW, pa.int64()), NARROW)),
    ],
)
def test_files_with_dictionaries_have_one_type_that_holds_the_values_of_all(tmp_path, types, expected):
    many = pa.array([str(number) for number in range(1000)])
    for name, of_type in zip("ab", types, strict=True):
        values = many[:100] if of_type == NARROW else many
        encoded = values.dictionary_encode() if pa.types.is_dictionary(of_type) else values
        pq.write_table(pa.table({"x": encoded.cast(of_type)}), tmp_path / f"{name}.parquet")
    index = zb.build_index(tmp_path, "x", rows_per_zone=100)
    assert index.schema.field("x").type == expected
    if expected != NARROW:
        assert index.search("x = '999'").num_rows_kept < index.search("x >= '0'").num_rows_kept
        assert index.to_table("x = '999'")["x"].to_pylist() == ["999"] * (1 + (NARROW not in types))
        assert index.to_table("x >= '0'").num_rows == 2000 - 900 * (NARROW in types)
