"""Scanning: files of one column that differ, projections and limits, and what is read.

That a scan equals a full scan, whatever the lake and the condition, is in tests/fuzz/lakes.py.
"""

from __future__ import annotations

import datetime as dt
import math
import struct
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

import zonebloom as zb
from tests.newer import need
from zonebloom.errors import DataFileError, InvalidArgumentError, PredicateError
from zonebloom.search.file_values import as_type
from zonebloom.search.tasks import rows_at

# --- files of one column that differ --------------------------------------------------------------------------------


def write_files(root: Path, *tables: pa.Table) -> None:
    root.mkdir()
    for number, table in enumerate(tables):
        pq.write_table(table, root / f"part-{number}.parquet", row_group_size=3)


@pytest.mark.parametrize(
    ("through", "types"),
    [
        (pa.int64(), (pa.int64(), pa.int32(), pa.int8(), pa.uint16())),
        *((pa.int64(), (pa.int32(), pa.int64())), (pa.int64(), (pa.float64(), pa.float32()))),
        (pa.string(), (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()))),
        (pa.string(), (pa.binary(), pa.large_binary())),
        (pa.timestamp("s"), (pa.timestamp("us"), pa.timestamp("ms"), pa.timestamp("s"))),
        (pa.decimal128(19, 0), (pa.decimal128(10, 2), pa.decimal128(9, 1), pa.decimal128(20, 0))),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_widened_type_loses_no_row(tmp_path, through, types):
    """The same values in types that differ from file to file: each file's rows are found."""
    base = pa.array([1, 5, None, 2, 5, 7, 8]).cast(through)
    arrays = [base.dictionary_encode() if pa.types.is_dictionary(kind) else base.cast(kind) for kind in types]
    write_files(tmp_path / "lake", *(pa.table({"c": array}) for array in arrays))
    index = zb.build_index(tmp_path / "lake", "c", rows_per_zone=2)
    wanted = arrays[0][1].as_py()
    rows = index.to_table(zb.Equals("c", wanted))
    assert rows["c"].to_pylist() == [wanted] * (2 * len(types))
    result = index.search(zb.Equals("c", wanted))
    assert result.num_rows_kept < result.num_rows
    assert index.to_table(zb.IsNull("c")).num_rows == len(types)


def test_a_file_whose_type_does_not_convert_is_kept_and_said(tmp_path):
    write_files(tmp_path / "lake", pa.table({"c": pa.array([1, 2, 3])}), pa.table({"c": ["1", "x", None]}))
    index = zb.build_index(tmp_path / "lake", "c", rows_per_zone=1)
    result = index.search("c = 2")
    assert list(result.row_ranges) == [(0, 1, 2), (1, 0, 3)]
    assert [(reason.code, reason.path) for reason in result.reasons] == [("COLUMN_NOT_INDEXED", "part-1.parquet")]
    with pytest.raises(DataFileError, match=r"column c of .*part-1\.parquet must convert to the data set's type int64"):
        index.to_table("c = 2")


@pytest.mark.parametrize("is_nested", [False, True])
def test_doubles_that_come_to_a_column_of_floats_are_refused_not_rounded(tmp_path, is_nested):
    """Until a refresh, which makes the column one of doubles; rounded, 1e300 was inf, and no row had it."""
    lake = tmp_path / "lake"
    kind = (lambda case: pa.struct([("x", case)])) if is_nested else (lambda case: case)
    values = [{"x": 1e300}, {"x": 0.1}] if is_nested else [1e300, 0.1]
    write_files(lake, pa.table({"c": pa.array(values[:0], kind(pa.float32())), "k": pa.array([], pa.int64())}))
    index = zb.build_index(lake, "k", rows_per_zone=1)
    pq.write_table(pa.table({"c": pa.array(values, kind(pa.float64())), "k": [1, 2]}), lake / "part-1.parquet")
    with pytest.raises(DataFileError, match=r"column c of .*part-1\.parquet must convert .* refresh the index"):
        index.to_table("c.x = 1e300" if is_nested else "c = 1e300")
    with pytest.raises(DataFileError, match="must convert"):
        index.to_table("k = 1")
    index.refresh()
    assert index.to_table("c.x = 1e300" if is_nested else "c = 1e300")["c"].to_pylist() == values[:1]


@pytest.mark.parametrize(
    ("taken", "kept", "cut"),
    [
        (pa.array([dt.date(2020, 1, 1)]), pa.array([dt.datetime(2020, 1, 2)]), pa.array([dt.datetime(2020, 1, 2, 5)])),  # noqa: DTZ001 - local
        (pa.array([True]), pa.array([0]), pa.array([5])),
        (pa.array([Decimal("1.50")]), pa.array([0.25]), pa.array([0.126])),
        (pa.array([1], pa.float16()), pa.array([2]), pa.array([32_767])),
        (pa.array(["a"]), pa.array([dt.date(2020, 1, 2)]), pa.array([2**31 - 1], pa.int32()).view(pa.date32())),
        (pa.array([Decimal(1)], pa.decimal32(9, 0)), pa.array([Decimal(2)]), pa.array([Decimal(2**32 + 1)])),
        (pa.array([Decimal("0.1")], pa.decimal128(38, 38)), pa.array([Decimal("0.2")]), pa.array([Decimal(256)])),
        (pa.array([1.5]), pa.array([Decimal("0.25")]), pa.array([Decimal("1.00000000000000000001")])),
    ],
    ids=lambda value: str(getattr(value, "type", "")),
)
@pytest.mark.parametrize("is_nested", [False, True])
def test_values_that_another_type_would_cut_are_an_error(tmp_path, taken, kept, cut, is_nested):
    """pyarrow casts these without a word, so a row had another value than its file says."""
    if taken.type == pa.decimal32(9, 0):
        need("narrow_decimals_in_files")

    def table(values: pa.Array) -> pa.Table:
        nested = pa.StructArray.from_arrays([values, pa.array([math.nan] * len(values))], ["x", "f"])
        return pa.table({"c": nested if is_nested else values, "k": [1]})

    write_files(tmp_path / "lake", table(taken))
    index = zb.build_index(tmp_path / "lake", "k")
    pq.write_table(table(cut), tmp_path / "lake/part-1.parquet")
    with pytest.raises(DataFileError, match=r"of .*part-1\.parquet must convert to the data set's type"):
        index.to_table("k = 1")
    if not is_nested:  # one NaN is not another, so such a struct is refused too
        pq.write_table(table(kept), tmp_path / "lake/part-1.parquet")
        assert index.to_table("k = 1")["c"][1] == kept.cast(taken.type)[0]


NUMBERS = [
    *(pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64(), pa.decimal32(9, 0), pa.decimal32(5, 2), pa.decimal64(18, 2)),
    *(pa.decimal128(38, 38), pa.decimal128(30, 10), pa.decimal256(76, 0), pa.decimal256(76, 40)),
]


@given(*[st.sampled_from(NUMBERS)] * 2, st.integers(-(2**70), 2**70) | st.integers(-70_000, 70_000))
def test_a_number_is_read_as_the_same_number_or_refused(held, wanted, number):
    if pa.types.is_decimal(held):
        digits = tuple(map(int, str(abs(number) % 10**held.precision)))
        values = pa.array([Decimal((number < 0, digits, -held.scale))], held)
    elif pa.types.is_integer(held):
        values = pa.array([number % 2**held.bit_width], pa.uint64()).view(pa.int64()).cast(held, safe=False)
    else:
        values = pa.array([held.to_pandas_dtype()(number % 60_000 / 8)], held)
    try:
        read = as_type(pa.chunked_array([values]), wanted, "c", "a.parquet")
    except DataFileError:
        return
    assert read.type == wanted
    before, after = Fraction(values[0].as_py()), Fraction(read[0].as_py())
    is_nearest = pa.types.is_decimal(held) and pa.types.is_floating(wanted)  # a float that is printed as the decimal
    assert round(after * 10**held.scale) == before * 10**held.scale if is_nearest else after == before


@pytest.mark.parametrize(
    ("values", "newer"),
    [
        (pa.array([dt.datetime(2020, 1, 1)]), pa.array([1_577_836_800_000])),  # noqa: DTZ001 - local
        (pa.array([1_577_836_800_000]), pa.array([dt.datetime(2020, 1, 1)])),  # noqa: DTZ001 - local
        (pa.array(["a"]), pa.array([b"sixteen letters!"], pa.uuid())),
        (pa.array([Decimal(1)]), pa.array(["1e-9999999"])),
        (pa.array([1], pa.int8()), pa.array(["0xff"])),
        (pa.array([[1]]), pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))),
    ],
    ids=lambda value: str(value.type),
)
def test_types_that_pyarrow_casts_without_their_values_are_an_error(tmp_path, values, newer):
    write_files(tmp_path / "lake", pa.table({"k": [1], "c": values}))
    index = zb.build_index(tmp_path / "lake", "k")
    pq.write_table(pa.table({"k": [1], "c": newer}), tmp_path / "lake/part-1.parquet")
    with pytest.raises(DataFileError, match="must convert to the data set's type"):
        index.to_table("k = 1")


@pytest.mark.parametrize(
    ("strict", "older", "newer"),
    [
        (pa.struct([pa.field("a", pa.int8(), nullable=False)]), {"a": 1}, {"a": None}),
        (pa.list_(pa.field("element", pa.int8(), nullable=False)), [1], [None]),
        (pa.list_(pa.field("element", pa.int8(), nullable=False), 1), [1], [None]),
        (pa.map_(pa.string(), pa.field("value", pa.int8(), nullable=False)), [("a", 1)], [("a", None)]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_files_require_inside_of_a_column_may_be_null_in_a_newer_one(tmp_path, strict, older, newer):
    write_files(tmp_path / "lake", pa.table({"k": [1], "c": pa.array([older], strict)}))
    index = zb.build_index(tmp_path / "lake", "k")
    pq.write_table(
        pa.table({"k": [1], "c": pa.array([newer], index.schema.field("c").type)}), tmp_path / "lake/z.parquet"
    )
    assert index.to_table("k = 1")["c"].to_pylist() == [older, newer]


@pytest.mark.parametrize("is_nested", [False, True])
@pytest.mark.parametrize("year", [2262, 9999])
def test_times_of_int96_are_right_or_an_error(tmp_path, is_nested, year):
    """pyarrow 26 reads them in nanoseconds, and 9999-12-31, with which Spark's users mean no end, as a day of 1816."""
    far = dt.datetime(year, 1, 1)  # noqa: DTZ001 - local
    times = pa.array([far, dt.datetime(2020, 1, 1)], pa.timestamp("us"))  # noqa: DTZ001 - local
    nested = pa.StructArray.from_arrays([times], ["t"])
    rows = pa.table({"k": range(2), "c": nested if is_nested else times})
    (tmp_path / "lake").mkdir()
    pq.write_table(rows, tmp_path / "lake/a.parquet", use_deprecated_int96_timestamps=True)
    index = zb.build_index(tmp_path / "lake", "k", rows_per_zone=1)
    if year == 2262:
        assert pd.Timestamp(index.to_table("k = 0").flatten().column(1)[0].as_py()) == far
        return
    for read in (
        lambda: index.to_table("k >= 0"),
        lambda: zb.build_index(tmp_path / "lake", "c.t" if is_nested else "c", index=tmp_path / "index"),
    ):
        with pytest.raises(DataFileError, match=r"times of INT96 in column c of .* must lie from 1677 to 2262"):
            read()


def test_a_time_of_int96_that_wraps_to_whole_microseconds_is_an_error(tmp_path):
    """Hive and Impala write nanoseconds. 2**64 of them end in 616, so a time that ends so becomes a whole one."""
    mark = pa.array([946_684_800 * 10**9 + 123_456_789], pa.int64()).view(pa.timestamp("ns"))
    options = {"use_dictionary": False, "compression": "none", "write_statistics": False, "store_schema": False}
    (tmp_path / "lake").mkdir()
    pq.write_table(
        pa.table({"k": [0], "t": mark}), tmp_path / "lake/a.parquet", use_deprecated_int96_timestamps=True, **options
    )
    written, day = (tmp_path / "lake/a.parquet").read_bytes(), 2_451_545  # of 2000; 300 years later is 109,573 days
    (tmp_path / "lake/a.parquet").write_bytes(
        written.replace(struct.pack("<qi", 123_456_789, day), struct.pack("<qi", 616, day + 109_573))
    )
    with pytest.raises(DataFileError, match="must lie from 1677 to 2262"):
        zb.build_index(tmp_path / "lake", "k").to_table("k = 0")


@pytest.mark.parametrize("is_paged", [False, True])
def test_times_of_int96_that_spark_wrote_have_microseconds_and_all_years(tmp_path, is_paged):
    """A file tells its writer; beside nanoseconds of another file they still are right or an error."""
    size = 40_000 if is_paged else 4
    moments = pa.array([dt.datetime(year, 12, 31) for year in (1, 1582, 2024, 9999)] * (size // 4), pa.timestamp("us"))  # noqa: DTZ001 - local
    table = pa.table({"k": range(size), "t": moments, "s": pa.StructArray.from_arrays([moments], ["t"])})
    path = tmp_path / "lake/a.parquet"
    path.parent.mkdir()
    options = {"data_page_size": 4096, "write_page_index": is_paged, "store_schema": False}
    with pq.ParquetWriter(path, table.schema, use_deprecated_int96_timestamps=True, **options) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"org.apache.spark.version": "3.5.7"})
    index = zb.build_index(tmp_path / "lake", ["k", "t", "s.t"], rows_per_zone=100)
    assert index.schema == table.schema
    assert index.to_table(f"k >= {size - 4}") == table.slice(size - 4)
    for column, condition in (("t", zb.col("t") == dt.datetime(9999, 12, 31)), ("s.t", "s.t = TIMESTAMP '0001-12-31'")):  # noqa: DTZ001 - local
        assert index.to_table(condition)["k"].to_pylist() == list(range(0 if "s" in column else 3, size, 4))
    assert index.to_table(zb.col("t") == dt.datetime(1816, 3, 29)).num_rows == 0  # noqa: DTZ001 - local
    finer = pa.table({"k": [size], "t": pa.array([1], pa.timestamp("ns"))})
    pq.write_table(finer, path.with_name("b.parquet"), store_schema=False)
    mixed = zb.build_index(tmp_path / "lake", "k", index=tmp_path / "index")
    assert mixed.to_table(f"k = {size}", columns=["t"])["t"].type == pa.timestamp("ns")
    with pytest.raises(DataFileError, match=r"column t of .*a.parquet must convert to .* type timestamp\[ns"):
        mixed.to_table("k <= 3")


# --- projection and limit -------------------------------------------------------------------------------------------


def test_a_column_that_is_asked_for_twice_comes_twice(tmp_path):
    write_files(tmp_path / "lake", pa.table({"k": [5], "v": [1]}))
    index = zb.build_index(tmp_path / "lake", "k")
    rows = [index.to_table("k = 5", columns=["v", "v"]), index.dataset().to_table(columns=["v", "v"])]
    assert [[column.to_pylist() for column in table.columns] for table in rows] == [[[1], [1]]] * 2


def test_a_field_of_a_struct_is_not_taken_for_a_column_with_a_dot_in_its_name(tmp_path):
    fields = [None if number % 2 else {"b": {"c": number}} for number in range(100)]
    table = pa.table({"a.b": list(range(100)), "a": fields})
    pq.write_table(table.select(["a.b"]), tmp_path / "x.parquet")
    index = zb.build_index(tmp_path, "a.b", rows_per_zone=10)
    pq.write_table(table, tmp_path / "x.parquet")
    index.refresh()
    assert index.to_table(pc.field("a", "b").is_null())["a.b"].to_pylist() == list(range(1, 100, 2))
    assert index.to_table(pc.field("a.b") == 7)["a.b"].to_pylist() == [7]


def test_a_struct_in_a_struct_is_null_or_not(tmp_path):
    rows = [{"t": {"leaf": 1}}, {"t": {"leaf": None}}, {"t": None}, None]
    pq.write_table(pa.table({"k": range(4), "s": rows}), tmp_path / "x.parquet")
    index = zb.build_index(tmp_path, "k")
    conditions = ("s.t IS NULL", zb.col("s.t").is_null(), pc.field("s", "t").is_null())
    assert [index.to_table(condition)["k"].to_pylist() for condition in conditions] == [[2, 3]] * 3
    assert index.to_table("s.t IS NOT NULL AND k > 0")["k"].to_pylist() == [1]
    with pytest.raises(zb.errors.PredicateError, match=r"column s\.t holds struct<leaf: int64>, got 1"):
        index.search("s.t = 1")


@pytest.mark.parametrize(
    "column",
    [
        *(pa.array([[f"{n}"] for n in range(300)], kind(pa.string_view())) for kind in (pa.list_, pa.large_list)),
        pa.array([[(str(number), b"x")] for number in range(300)], pa.map_(pa.string_view(), pa.binary_view())),
    ],
    ids=lambda column: str(column.type),
)
def test_views_within_other_values_are_read(tmp_path, column):
    """Views, of which pyarrow filters and takes none, are read as plain text and come as what they are."""
    pq.write_table(pa.table({"k": range(300), "v": column}), tmp_path / "x.parquet")
    index = zb.build_index(tmp_path, "k", rows_per_zone=10)
    assert index.search("k = 77").num_rows_kept == 10
    whole = pq.read_table(tmp_path / "x.parquet")
    assert index.to_table("k = 77") == whole.slice(77, 1)
    assert index.to_table("k >= 0") == whole
    assert index.to_table(zb.col("k").isin(list(range(0, 300, 2))))["v"].to_pylist() == column.to_pylist()[::2]


def test_a_cast_that_fails_on_a_folder_is_said(hive_lake):
    (hive_lake.root / "day=x").mkdir()
    pq.write_table(hive_lake.table.select(["user_id"]).slice(0, 1), hive_lake.root / "day=x" / "new.parquet")
    index = zb.build_index(hive_lake.root, ["user_id"])
    with pytest.raises(PredicateError, match=r"the predicate must hold for the folders of every file, got Failed"):
        index.search("CAST(day AS INT) = 3")


@pytest.mark.parametrize("expression", [pc.field("amount"), pc.field("amount") + 1, pc.scalar(1), pc.scalar(None)])
def test_an_expression_that_is_no_condition_is_refused(index, expression):
    with pytest.raises(PredicateError, match=r"a condition must be true or false, got .* of type"):
        index.to_table(expression)


@pytest.fixture
def index(flat_lake) -> zb.Index:
    return zb.build_index(flat_lake.root, ["user_id", "device_id"], rows_per_zone=256)


def test_projection_gives_the_columns_asked_for_in_that_order(flat_lake, index):
    device = flat_lake.table["device_id"][7].as_py()
    whole = flat_lake.expected(pc.equal(flat_lake.table["device_id"], device))
    for columns in (["note"], ["trace", "user_id"], ["device_id"], ["amount", "device_id"], None):
        rows = index.to_table(zb.Equals("device_id", device), columns=columns)
        assert rows.equals(whole.select(columns) if columns else whole) or "amount" in rows.column_names
        assert rows.column_names == (columns or whole.column_names)
        assert rows.num_rows == whole.num_rows
    for name in ("user_id", pa.array(["user_id"]), np.array(["user_id"]), ("user_id",), pd.Index(["user_id"])):
        assert index.to_table("user_id = 'x'", columns=name).column_names == ["user_id"]
    for name in (7, b"user_id", [None], {"user_id": pc.field("amount")}):
        with pytest.raises(InvalidArgumentError, match="columns must be one or more names"):
            index.scan("user_id = 'x'", columns=name)


def test_rows_are_counted_where_neither_the_condition_nor_the_result_has_columns(flat_lake, index):
    expected = flat_lake.expected(pc.equal(flat_lake.table["device_id"], flat_lake.table["device_id"][7])).num_rows
    device = zb.Equals("device_id", flat_lake.table["device_id"][7])
    assert index.to_table(device, columns=[]).num_rows == expected
    assert sum(batch.num_rows for batch in index.scan(device, columns=[])) == expected
    assert index.to_table("true", columns=[]).num_rows == flat_lake.table.num_rows
    assert index.dataset().count_rows(filter=pc.scalar(True)) == flat_lake.table.num_rows
    assert index.to_table("false", columns=[]).num_rows == 0


@pytest.mark.parametrize("limit", [0, 1, np.int64(2), 5, 10_000, 10**30])
def test_limit_stops_early(flat_lake, index, limit):
    device = flat_lake.table["device_id"][7].as_py()
    whole = flat_lake.expected(pc.equal(flat_lake.table["device_id"], device))
    rows = index.to_table(zb.Equals("device_id", device), columns=["user_id"], limit=limit)
    assert rows["user_id"].to_pylist() == whole["user_id"].to_pylist()[:limit]


def test_limit_leaves_later_files_alone(flat_lake, index):
    """One row of the first file is enough, so a damaged last file is no matter."""
    index.view()
    (flat_lake.root / flat_lake.files[-1]).write_bytes(b"damaged")
    assert index.to_table("amount IS NOT NULL", columns=["amount"], limit=1).num_rows == 1


@pytest.mark.parametrize("limit", [-1, 1.5, "1"])
def test_limit_must_be_a_count(index, limit):
    with pytest.raises(InvalidArgumentError, match="limit must be"):
        index.scan("user_id = 'x'", limit=limit)


@pytest.mark.parametrize(
    ("places", "ranges"),
    [([], []), ([0], [(5, 6)]), ([0, 1, 2], [(5, 7), (9, 10)]), ([1, 2, 4], [(6, 7), (9, 10), (11, 12)])],
)
def test_rows_at_places_among_ranges_are_ranges_again(places, ranges):
    starts, stops = rows_at(np.array([5, 9]), np.array([7, 12]), np.array(places, np.int64))
    assert list(zip(starts.tolist(), stops.tolist(), strict=True)) == ranges


def test_structs_in_structs_are_no_part_of_others(tmp_path):
    """arrow-rs 59 panics at a part that does not begin at 0: DataFusion's query fails, deltalake ends the process."""
    rows = pa.table({"id": range(40), "outer": [{"middle": {"inner": row}} for row in range(40)]})
    pq.write_table(rows, tmp_path / "a.parquet")
    batches = [*zb.build_index(tmp_path, "id", rows_per_zone=2).scan("id IN (7, 33)")]
    assert [batch["outer"].offset for batch in batches] == [0] * len(batches)
    assert pa.Table.from_batches(batches) == rows.take([7, 33])
