"""Types and partition columns of row ranges, against Spark 4.3's own Parquet reader over the same files."""

from __future__ import annotations

import datetime as dt
import itertools
from decimal import Decimal
from inspect import signature
from pathlib import Path

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema

import zonebloom as zb
from tests.depth import some
from tests.newer import has
from tests.spark.odd_lake import plan_of, rows_of
from tests.spark.rows import indexed, rows_of_each, write
from zonebloom.engines.spark.executors import pickled
from zonebloom.engines.spark.locate import keys_located
from zonebloom.engines.spark.pushdown.types import Binder, UnboundError
from zonebloom.engines.spark.scan.layout import Layout
from zonebloom.engines.spark.scan.types import arrow_schema
from zonebloom.errors import DataFileError, InvalidArgumentError, UnsupportedTypeError
from zonebloom.spark import ZoneBloom

ZONE = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
"""Of the Arrow types that PySpark makes; before it was an argument, of all."""
TYPES = [
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
    pa.float16(), pa.float32(), pa.float64(), pa.decimal128(5, 2), pa.decimal128(38, 3), pa.decimal32(5, 2),
    pa.decimal64(12, 2), pa.decimal256(20, 2), pa.decimal256(50, 2), pa.date32(), pa.date64(), pa.time32("ms"),
    pa.time64("us"), pa.time64("ns"), pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("ns"),
    pa.timestamp("ms", "UTC"), pa.timestamp("us", "Asia/Tokyo"), pa.timestamp("ns", "UTC"), pa.duration("s"),
    pa.duration("us"), pa.null(), pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(),
    pa.binary(16), pa.binary_view(), pa.uuid(), pa.json_(), pa.dictionary(pa.int32(), pa.string()),
    pa.list_(pa.uint8()), pa.large_list(pa.large_string()), pa.list_(pa.int32(), 2), pa.map_(pa.string(), pa.uint16()),
    pa.struct([("x", pa.uint64()), ("y", pa.list_(pa.timestamp("ms", "UTC")))]),
]  # fmt: skip


def test_every_type_of_arrow_reads_as_spark_reads_it_or_is_refused_by_both(spark, tmp_path):
    refused, tried = [], some(TYPES, 8)
    for number, of in enumerate(tried):
        folder = tmp_path / str(number)
        write(folder / "a.parquet", {"x": [1], "c": pa.nulls(1, of)})
        zb.build_index(folder, ["x"])
        try:
            theirs = spark.read.parquet(str(folder)).schema["c"].dataType
        except (PySparkException, Py4JJavaError):  # before Spark 4 py4j's
            refused.append(of)
            with pytest.raises(UnsupportedTypeError, match="column c must be of a type that Spark reads"):
                plan_of(folder)
            assert rows_of(plan_of(folder, columns=["x"])).num_rows == 1
            continue
        plan = plan_of(folder)
        assert plan.reading.schema["c"].dataType == theirs, of
        assert arrow_schema(plan.reading.schema) == to_arrow_schema(plan.reading.schema, **ZONE)
        assert rows_of(plan).column("c").null_count == 1
    assert pa.uuid() in refused
    assert len(refused) < len(tried) / 2


def test_what_spark_wrote_comes_back_as_spark_reads_it(spark, tmp_path):
    lake = str(tmp_path / "own")
    word = "CAST('A' AS STRING COLLATE UTF8_LCASE)" if has("spark_4") else "'a'"
    spark.sql(
        f"SELECT TIMESTAMP '9999-12-31 00:00:00' AS far, {word} AS word, 1 AS x, "
        "DATE '0001-01-01' AS old, map('k', named_struct('y', array(TIMESTAMP_NTZ '1700-01-01 00:00:00'))) AS deep, "
        "named_struct('far', TIMESTAMP '9999-12-31 00:00:00', 'local', TIMESTAMP_NTZ '1700-01-01 00:00:00') AS both"
    ).write.option("spark.sql.parquet.outputTimestampType", "INT96").parquet(lake)
    zb.build_index(lake, ["x", "word", "far"])
    ours, theirs = ZoneBloom(spark).read(lake), spark.read.parquet(lake)
    assert ours.schema == theirs.schema
    for way in ("driver", "row_ranges"):
        assert ours.where("word = 'a'", method=way).collect() == theirs.collect()
    why = ZoneBloom(spark).explain(lake, "far = TIMESTAMP '2020-01-01 00:00:00+00:00'")
    assert "got timestamp of INT96; write it with" in str(why)


def test_types_that_only_spark_knows_are_refused(spark, tmp_path):
    lake = str(tmp_path / "own")
    spark.sql("SELECT 1 AS x, INTERVAL '1' DAY AS span").write.parquet(lake)
    zb.build_index(lake, ["x"])
    with pytest.raises(UnsupportedTypeError, match="column span must be of a type that other readers"):
        plan_of(Path(lake))
    assert rows_of(plan_of(Path(lake), columns=["x"])).to_pydict() == {"x": [1]}


PARTITIONS = [
    ["1", "2"], ["1", "3000000000"], ["1", "99999999999999999999"], ["1e3", "7"], ["1.5", "2"], ["3000000000", "1.5"],
    ["2024-01-01", "2024-12-31"], ["2024-01-01", "x"], ["2024-1-1"], ["2024-02-30"], ["01", "+5", "-0"], ["٣"],
    ["NaN", "1.0"], ["1d", "2f"], ["true"], ["0x10"], ["1_0"], [" 7"], ["__HIVE_DEFAULT_PARTITION__", "3"],
    ["__HIVE_DEFAULT_PARTITION__"], ["S%C3%A3o", "São"], ["100%", "%zz"], ["99999999999999999999", "1.0"], ["-5", "1."],
    ["0x1p3", "-0X.8p1d"],
]  # fmt: skip


def test_partition_columns_are_typed_and_read_as_spark_does(spark, tmp_path):
    for number, values in enumerate(some(PARTITIONS, 3)):
        lake = tmp_path / str(number)
        indexed(lake, {f"p={value}/a": {"x": [1]} for value in values}, "x")
        theirs = spark.read.parquet(str(lake))
        plan = plan_of(lake)
        assert plan.reading.schema["p"].dataType == theirs.schema["p"].dataType, values
        parts = rows_of(plan)["p"].to_pylist()
        assert sorted(map(repr, parts)) == sorted(repr(row["p"]) for row in theirs.collect()), values


def test_a_partition_that_only_a_time_zone_can_read_is_a_text(tmp_path):
    indexed(tmp_path, {f"at={value}/a": {"x": [1]} for value in ("2024-01-01 10%3A00%3A00", "2024-01-01")}, "x")
    assert sorted(rows_of(plan_of(tmp_path))["at"].to_pylist()) == ["2024-01-01", "2024-01-01 10:00:00"]


def test_rows_of_the_old_calendar_are_refused_and_others_are_read(tmp_path):
    for name, born in (("old", dt.date(1500, 1, 1)), ("new", dt.date(1990, 1, 1))):
        deep = [[{"at": dt.datetime.fromisoformat(f"{born}T00:00:00")}]]
        rows = pa.table({"x": [1], "born": pa.array([born]), "deep": pa.array(deep)})
        metadata = {"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyDateTime": ""}
        for number, marks in enumerate(({}, metadata, {"org.apache.spark.version": "2.4.8"})):
            folder = tmp_path / f"{name}{number}"
            write(folder / "a.parquet", rows.replace_schema_metadata(marks))
            zb.build_index(folder, ["x"])
            if name == "old" and number:
                for columns in (["born"], ["deep"], ["x", "born"]):
                    with pytest.raises(DataFileError, match="in the calendar of Spark 2"):
                        rows_of(plan_of(folder, columns=columns))
            else:
                assert rows_of(plan_of(folder))["born"].to_pylist() == [born]
            assert rows_of(plan_of(folder, columns=["x"])).num_rows == 1


def test_a_key_of_the_old_calendar_may_be_in_any_row(tmp_path):
    """Spark 2 stored the days of these keys by other numbers."""
    days = [dt.date(1500, 1, 1 + day) for day in range(9)] + [dt.date(2000, 1, 1)]
    view = indexed(tmp_path, {"a": {"born": days}}, "born", rows_per_zone=2).view()
    sent = pickled((view.snapshot.store, 1, view.dataset, dict(view.listing)))
    keys = pa.record_batch({"key": [dt.date(1499, 1, 1), dt.date(2000, 1, 1), None, dt.date(1500, 1, 3)]})
    lines = pa.Table.from_batches(keys_located(sent, "born", [keys])).drop_columns(
        ["path", "fragment_id", "fingerprint"]
    )
    assert sorted(tuple(row.values()) for row in lines.to_pylist()) == [
        (dt.date(1499, 1, 1), 0, 10),
        (dt.date(1500, 1, 3), 0, 10),
        (dt.date(2000, 1, 1), 8, 10),
    ]


def test_a_timestamp_that_python_does_not_have_is_no_literal(tmp_path):
    write(tmp_path / "a.parquet", {"at": pa.array([0], pa.timestamp("us", "UTC"))})
    layout = Layout(zb.build_index(tmp_path, ["at"]).view())
    binder = Binder(layout.readable, layout.view)
    for text in ("0000-01-01 00:00:00", "0001-01-01 00:00:00", "2024-02-30 00:00:00"):
        with pytest.raises(UnboundError, match="a timestamp must be one that Python has"):
            binder.printed(text, binder.target(("at",)))


def test_columns_that_spark_does_not_read_can_be_left_out(any_spark, tmp_path):
    rows = pa.table({"k": ["a", "b"], "at": pa.array([dt.time(1)] * 2), "id": pa.array([b"0" * 16] * 2, pa.uuid())})
    for name in ("at", "id"):
        indexed(tmp_path / name, {"a": rows.select(["k", name])}, "k")
        bloom, root = ZoneBloom(any_spark), str(tmp_path / name)
        for method in ("driver", "row_ranges", "files", "plain"):
            lake = bloom.read(root, columns=["k"], method=method)
            assert rows_of_each([lake.where("k = 'b'"), lake.toDF()]) == [["('b',)"], ["('a',)", "('b',)"]]
        with pytest.raises(UnsupportedTypeError, match=f"column {name} must be of a type that Spark reads"):
            bloom.read(root, columns=["k", name])


OF_OTHER_KINDS = {
    "date": (pa.array([dt.date(2020, 1, 1)]), pa.array([dt.datetime(2020, 1, 2, 5)])),  # noqa: DTZ001 - local
    "boolean": (pa.array([True]), pa.array([5])),
    "decimal": (pa.array([Decimal("1.50")]), pa.array([0.126])),
    "number": (pa.array([1]), pa.array(["007"])),
}
"""A column of a lake, and of a file that came since; pyarrow casts the second to the first, with other values."""


def test_a_new_file_of_another_kind_is_refused_as_spark_refuses_it(spark, tmp_path):
    for kind, (old, new) in some(OF_OTHER_KINDS.items(), 3):
        write(tmp_path / kind / "a.parquet", {"v": old, "k": [1]})
        zb.build_index(tmp_path / kind, "k")
        write(tmp_path / kind / "b.parquet", {"v": new, "k": [1]})
        lake = ZoneBloom(spark).read(str(tmp_path / kind))
        with pytest.raises(Exception, match=r"COLUMN_DATA_TYPE_MISMATCH|column cannot be converted"):
            lake.where("k = 1", method="plain").collect()
        for method in ("driver", "row_ranges") if kind == "date" else ("driver",):  # a job that fails is run four times
            with pytest.raises((DataFileError, PySparkException), match="must convert to"):
                lake.where("k = 1", method=method).collect()
    write(tmp_path / "number/b.parquet", {"v": pa.array([7], pa.int32()), "k": [1]})
    for name, v in (("a", pa.array([Decimal(1)], pa.decimal128(20, 2))), ("b", pa.array([7]))):
        write(tmp_path / f"cents/{name}.parquet", {"v": v, "k": [1]})
    zb.build_index(tmp_path / "cents", "k")
    for kind, method in itertools.product(("number", "cents"), ("plain", "driver", "row_ranges")):
        if method != "plain" or (kind == "number" and has("spark_4")):  # 3.5 widens no integers, 4.3 some to decimals
            rows = ZoneBloom(spark).read(str(tmp_path / kind)).where("k = 1", method=method).collect()
            assert sorted(row.v for row in rows) == [1, 7]


def test_integers_that_spark_cuts_are_not_looked_up(spark, tmp_path):
    """Spark has the type of the first file, and cuts the others' 200 to -56; the index has a type that holds all."""
    rows = {"a": pa.array([1], pa.int8()), "b": pa.array([200, 8], pa.uint8())}
    indexed(tmp_path, {name: {"x": values} for name, values in rows.items()}, "x")
    bloom, plain = ZoneBloom(spark), spark.read.parquet(str(tmp_path))
    keys = spark.createDataFrame([(-56,)], "x tinyint")
    cut = plain.where("x = -56").collect()
    assert len(cut) == 1
    assert bloom.read(str(tmp_path)).where("x = -56").collect() == cut
    with pytest.warns(RuntimeWarning, match="reads the big side whole"):
        assert bloom.prune_join(str(tmp_path), keys, "x").collect() == cut
    assert bloom.search(str(tmp_path), "x = -56").kept.rows == 3
    with pytest.raises(InvalidArgumentError, match="got tinyint of int16"):
        bloom.locate(str(tmp_path), "x", keys)
    narrow = spark.read.schema("x tinyint").parquet(str(tmp_path / "b.parquet"))
    for ask in (bloom.read, lambda frame: bloom.search(frame, "x = -56"), lambda frame: bloom.locate(frame, "x", keys)):
        with pytest.raises(InvalidArgumentError, match="must have the columns of its files"):
            ask(narrow)
