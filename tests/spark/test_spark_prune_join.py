"""`prune_join`: the keys of the small side choose what is read of the big side, and the join is Spark's.

The oracle is Spark 4.3's join of the same frames, read whole.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from contextlib import nullcontext
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types

import zonebloom
from tests.depth import deep_only, some
from tests.newer import has, need
from tests.spark import cluster
from zonebloom.engines.spark.join.keys import check_pair
from zonebloom.engines.spark.pushdown.types import CHAR
from zonebloom.errors import ColumnNotFoundError, InvalidArgumentError
from zonebloom.spark import ZoneBloom

NUM_FILES = 8
NAN = float("nan")
UTC = dt.UTC
DAY = dt.date(2024, 2, 29)
NOON = dt.datetime(2024, 2, 29, 12, tzinfo=UTC)
TYPES: dict[str, tuple[Any, pa.DataType, str]] = {
    "int": (lambda i: i, pa.int32(), "int"),
    "int and bigint": (lambda i: i, pa.int32(), "bigint"),
    "bigint and int": (lambda i: i, pa.int64(), "int"),
    "text": (lambda i: f"user-{i}", pa.string(), "string"),
    "bytes": (lambda i: b"%016d" % i, pa.binary(16), "binary"),
    "date": (lambda i: DAY + dt.timedelta(days=i), pa.date32(), "date"),
    "timestamp": (lambda i: NOON + dt.timedelta(milliseconds=i), pa.timestamp("ms", "UTC"), "timestamp"),
    "decimal": (lambda i: Decimal(i) / 100, pa.decimal128(12, 2), "decimal(12,2)"),
    "double": (lambda i: i / 8 - 100, pa.float64(), "double"),
}


@pytest.fixture
def lake(tmp_path) -> Path:
    """Eight files; `key` is a number that only one of them has, `day` is that file's, and a tenth of both is null."""
    folder = tmp_path / "lake"
    folder.mkdir()
    for number in range(NUM_FILES):
        pq.write_table(rows(number), folder / f"part-{number}.parquet")
    zonebloom.build_index(folder, ["key", "day"], rows_per_zone=256, fpp=1e-6)
    return folder


def rows(number: int) -> pa.Table:
    keys = [None if i % 10 == 9 else i * NUM_FILES + number for i in range(1000)]
    days = [None if i % 10 == 8 else number for i in range(1000)]
    return pa.table({"key": pa.array(keys, pa.int64()), "day": pa.array(days, pa.int32()), "row": np.arange(1000)})


def shown(frame) -> Counter:
    return Counter(tuple("nan" if isinstance(value, float) and math.isnan(value) else repr(value) for value in row)
                   for row in frame.collect())  # fmt: skip


def small_of(spark, keys: list[int | None], kind: str = "bigint"):
    return spark.createDataFrame([(key, number) for number, key in enumerate(keys)], f"key {kind}, number int")


def plainly(big, small, how: str):
    """What Spark makes of the join."""
    if how.startswith("right_") and how != "right_outer":
        return small.join(big, "key", how.replace("right", "left"))
    return big.join(small, "key", how)


HOW = ["inner", "left_semi", "right", "right_outer", "right_semi", "right_anti"]


def together(frames: list[Any]):
    """The rows of all frames with their numbers, as one frame for one job; columns that a frame lacks are null."""
    tagged = [frame.selectExpr(f"{number} AS asked", "*") for number, frame in enumerate(frames)]
    return reduce(lambda frame, other: frame.unionByName(other, allowMissingColumns=True), tagged)


def test_each_join_is_sparks(any_spark, lake):
    small = small_of(any_spark, [8, 8, 16, 99_999_999, None, 24])
    big = any_spark.read.parquet(str(lake))
    actual = [ZoneBloom(any_spark).prune_join(str(lake), small, "key", how=how) for how in HOW]
    expected = [plainly(big, small, how) for how in HOW]
    assert [frame.columns for frame in actual] == [frame.columns for frame in expected]
    assert shown(together(actual)) == shown(together(expected))


def test_only_files_that_may_hold_a_key_are_read(spark, lake):
    wanted = [i * NUM_FILES + number for number in (2, 5) for i in range(900) if i % 10 != 9]
    pruned = ZoneBloom(spark).prune_join(str(lake), small_of(spark, wanted), "key", how="left_semi")
    named = {Path(file).name for file in pruned.inputFiles()}
    assert named <= {"part-2.parquet", "part-5.parquet"}
    assert pruned.count() == len(wanted)


def test_each_type_of_key(any_spark, tmp_path):
    types, actual, expected = some(TYPES.items(), 3), [], []
    for place, (of_type, (make, indexed, kind)) in enumerate(types):
        folder = tmp_path / of_type
        folder.mkdir()
        for number in range(4):
            values = [None, *(make(i * 4 + number) for i in range(100))]
            pq.write_table(pa.table({"key": pa.array(values, indexed)}), folder / f"{number}.parquet")
        zonebloom.build_index(folder, "key", rows_per_zone=16)
        small = small_of(any_spark, [None, *(make(i) for i in (1, 9, 301, 9001))], kind)
        pruned = ZoneBloom(any_spark).prune_join(str(folder), small, "key")
        whole = any_spark.read.parquet(str(folder)).join(small, "key")
        for frames, frame in ((actual, pruned), (expected, whole)):
            frames.append(frame.selectExpr(f"{place} AS place", "string(key) AS key", "number"))
    ours, theirs = (shown(reduce(lambda frame, other: frame.unionAll(other), frames)) for frames in (actual, expected))
    assert ours == theirs
    assert Counter(int(row[0]) for row in theirs.elements()) == dict.fromkeys(range(len(types)), 3)


def test_null_safe_joins(spark, lake):
    small = small_of(spark, [8, 16, None, 99_999_999])
    spark.read.parquet(str(lake)).createOrReplaceTempView("big")
    small.createOrReplaceTempView("small")
    condition = "big.key <=> small.key"
    wanted = {
        "inner": f"SELECT big.key, day, row, number FROM big JOIN small ON {condition}",
        "left_semi": f"SELECT * FROM big LEFT SEMI JOIN small ON {condition}",
        "right": f"SELECT day, row, small.key, number FROM big RIGHT JOIN small ON {condition}",
        "right_semi": f"SELECT * FROM small LEFT SEMI JOIN big ON {condition}",
        "right_anti": f"SELECT * FROM small LEFT ANTI JOIN big ON {condition}",
    }
    actual = [ZoneBloom(spark).prune_join(str(lake), small, "key", how=how, null_safe=True) for how in wanted]
    expected = [spark.sql(text) for text in wanted.values()]
    assert [frame.columns for frame in actual] == [frame.columns for frame in expected]
    assert shown(together(actual)) == shown(together(expected))


def test_several_keys_choose_together(any_spark, lake):
    small = any_spark.createDataFrame([(3, 8 * 5 + 3), (4, 8 * 6 + 4), (4, 8 * 7 + 5)], "day int, key bigint")
    zb = ZoneBloom(any_spark)
    joined = zb.prune_join(str(lake), small, ["key", "day"])
    rows = shown(joined)
    assert rows == shown(any_spark.read.parquet(str(lake)).join(small, ["key", "day"]))
    assert rows.total() == 2
    pruned = zb.prune_join(str(lake), small, ["key", "day"], how="left_semi")
    assert pruned.count() < zb.prune_join(str(lake), small, "key", how="left_semi").count()


def test_one_indexed_key_of_two_is_enough(spark, lake):
    small = spark.createDataFrame([(11, 1), (19, 2)], "key bigint, row bigint")
    joined = ZoneBloom(spark).prune_join(str(lake), small, ["key", "row"])
    rows = shown(joined)
    assert rows == shown(spark.read.parquet(str(lake)).join(small, ["key", "row"]))
    assert rows.total() == 2
    with pytest.raises(ColumnNotFoundError, match="row"):
        ZoneBloom(spark).prune_join(str(lake), small, "row")


def test_no_keys_at_all(spark, lake):
    frames = [ZoneBloom(spark).prune_join(str(lake), small_of(spark, keys), "key") for keys in ([], [None])]
    assert together(frames).count() == 0


def test_a_frame_that_scans_the_data_set(any_spark, lake):
    zb = ZoneBloom(any_spark)
    big = any_spark.read.parquet(str(lake))
    small = small_of(any_spark, [8, 9])
    assert shown(zb.prune_join(big, small, "key")) == shown(big.join(small, "key"))


@deep_only
@pytest.mark.usefixtures("few")
def test_row_ranges_with_dates_that_spark_moves_are_sparks_to_read(spark, tmp_path):
    small, zb = small_of(spark, [0, 5, 1700]), ZoneBloom(spark)
    query = "SELECT id AS key, date'1500-01-01' AS day FROM range(2000)"
    settings = ("parquet.datetimeRebaseModeInWrite", "parquet.datetimeRebaseModeInRead")
    for setting, writes in ((settings[0], True), (settings[1], False), (f"legacy.{settings[1]}", False)):
        folder = tmp_path / setting
        spark.conf.set(f"spark.sql.{setting}", "LEGACY")
        try:
            spark.sql(query).coalesce(1).write.parquet(f"file://{folder}")
            if not writes:  # what Spark did not write is moved as the setting says
                for path in list(folder.glob("part-*.parquet")):
                    pq.write_table(pq.read_table(path).replace_schema_metadata(None), folder / "rows.parquet")
                    path.unlink()
            other = {"key": pa.array(range(9000, 9100), pa.int64()), "day": pa.array([20_000] * 100, pa.date32())}
            pq.write_table(pa.table(other), folder / "without-a-key.parquet")
            zonebloom.build_index(folder, "key", rows_per_zone=64)
            expected = spark.read.parquet(str(folder)).join(small, "key")
            rows = shown(expected)
            assert shown(zb.prune_join(str(folder), small, "key")) == rows
            assert rows.total() == 3
        finally:
            cluster.reset(spark, f"spark.sql.{setting}")


def warned(call, match: str):
    with pytest.warns(RuntimeWarning, match=match) as caught:
        outcome = call()
    assert next(warning.filename for warning in caught if warning.category is RuntimeWarning) == __file__
    return outcome


def test_more_keys_than_the_driver_may_hold(spark, lake):
    small = small_of(spark, [8, 16, 24])
    zb = ZoneBloom(spark)
    joined = warned(
        lambda: zb.prune_join(str(lake), small, "key", max_keys=2), "more than 2 distinct keys; raise max_keys"
    )
    assert shown(joined) == shown(spark.read.parquet(str(lake)).join(small, "key"))


@pytest.mark.usefixtures("few")
def test_keys_that_every_zone_holds(spark, lake):
    """Few rows of every file would still be read by the driver."""
    small, zb = spark.range(0, 8000, 25).withColumnRenamed("id", "key"), ZoneBloom(spark)
    joined = warned(
        lambda: zb.prune_join(str(lake), small, "key"), "8 of 8 files may hold one of 320 keys, 100% of the"
    )
    assert shown(joined) == shown(spark.read.parquet(str(lake)).join(small, "key"))


@pytest.mark.parametrize(("value", "kind", "says"), [
    (NAN, "double", "NaN"),
    (-0.0, "double", "zero"),
    (dt.date(1500, 1, 1), "date", "another calendar"),
    (dt.datetime(1850, 1, 1, tzinfo=UTC), "timestamp", "another calendar"),
])  # fmt: skip
def test_keys_that_the_index_cannot_evaluate(spark, tmp_path, value, kind, says):
    folder = tmp_path / "lake"
    folder.mkdir()
    pq.write_table(pa.table({"key": [value, None], "row": [1, 2]}), folder / "a.parquet")
    zonebloom.build_index(folder, "key")
    small_of(spark, [value], kind).write.parquet(str(tmp_path / "small"))
    small = spark.read.parquet(str(tmp_path / "small"))  # Spark pushes what a filter implies to this scan, too
    zb = ZoneBloom(spark)
    assert warned(lambda: zb.prune_join(str(folder), small, "key", how="left_semi"), says).count() == 1


def test_keys_that_python_does_not_have_are_joined_by_spark(spark, tmp_path):
    small = spark.sql("SELECT DATE '+12000-01-01' AS key")
    small.write.parquet(str(tmp_path / "lake"))
    zonebloom.build_index(tmp_path / "lake", "key")
    zb = ZoneBloom(spark)
    assert warned(lambda: zb.prune_join(str(tmp_path / "lake"), small, "key"), "literal").count() == 1


def test_joins_that_need_all_of_the_big_side_are_refused(spark, lake):
    for how in ("left", "left_outer", "full", "outer", "left_anti", "anti", "cross", "sideways", None):
        with pytest.raises(InvalidArgumentError, match=f"how must be inner.*got {how!r}"):
            ZoneBloom(spark).prune_join(str(lake), small_of(spark, [1]), "key", how=how)


REFUSED = [
    (types.StringType(), types.LongType()),
    (types.LongType(), types.StringType()),
    (types.LongType(), types.DoubleType()),
    (types.DoubleType(), types.LongType()),
    (types.DateType(), types.TimestampNTZType()),
    (types.TimestampType(), types.TimestampNTZType()),
    (types.TimestampNTZType(), types.TimestampType()),
    (types.DecimalType(38, 20), types.DecimalType(30, 2)),
    (types.DecimalType(38, 20), types.LongType()),
    (types.CharType(5), types.StringType()),
    (types.StringType(), types.BinaryType()),
    (types.ArrayType(types.LongType()), types.ArrayType(types.LongType())),
]


if has("spark_4"):
    REFUSED += [(types.StringType("UTF8_LCASE"), types.StringType(text)) for text in ("UTF8_LCASE", "UTF8_BINARY")]
if hasattr(types, "TimeType"):
    REFUSED += [(types.TimeType(6), types.TimeType(6))]


@pytest.mark.parametrize(("key", "column"), REFUSED)
def test_types_that_spark_converts_are_refused(key, column):
    with pytest.raises(InvalidArgumentError, match="key a must be of a type that Spark compares by value"):
        check_pair(types.StructField("a", key), types.StructField("a", column))


def test_text_that_spark_pads_is_refused_by_name():
    for declared in ("char(5)", "varchar(5)"):
        key = types.StructField("a", types.StringType(), True, {CHAR: declared})
        with pytest.raises(InvalidArgumentError, match=r"got char\(5\)") if declared[0] == "c" else nullcontext():
            check_pair(key, types.StructField("a", types.StringType()))


def test_a_key_of_another_type_or_name_is_refused(spark, lake):
    zb, small = ZoneBloom(spark), small_of(spark, ["8"], "string")
    with pytest.raises(InvalidArgumentError, match="with a column of type bigint, got string; cast it"):
        zb.prune_join(str(lake), small, "key")
    with pytest.raises(ColumnNotFoundError, match="the small side"):
        zb.prune_join(str(lake), small.withColumnRenamed("key", "k"), "key")


def test_a_name_with_a_variable_of_spark_is_only_a_name(spark, tmp_path):
    need("spark_4")
    name = "${spark.app.name}.`a"
    for number in range(2):
        pq.write_table(pa.table({name: range(number * 100, number * 100 + 100)}), tmp_path / f"{number}.parquet")
    zonebloom.build_index(tmp_path, name, rows_per_zone=10)
    small = spark.range(7, 8).withColumnRenamed("id", name)
    assert shown(ZoneBloom(spark).prune_join(str(tmp_path), small, name)).total() == 1


def test_a_column_may_have_any_name_beside_those_of_keys(spark, tmp_path):
    names = ("key", "__zonebloom_key", "key__zonebloom")
    pq.write_table(pa.table({name: range(100) for name in names}), tmp_path / "0.parquet")
    zonebloom.build_index(tmp_path, "key", rows_per_zone=10)
    zb, small = ZoneBloom(spark), spark.range(7, 8).withColumnRenamed("id", "key")
    joined = zb.prune_join(str(tmp_path), small, "key", null_safe=True)
    expected = spark.read.parquet(str(tmp_path)).where("key = 7")
    assert shown(joined) == shown(zb.read(str(tmp_path)).where_in("key", [7])) == shown(expected)


def test_bad_names_are_refused(spark, lake):
    for on in ([], ["key", "key"], 5, [5]):
        with pytest.raises(InvalidArgumentError, match="on must be one or more different names"):
            ZoneBloom(spark).prune_join(str(lake), small_of(spark, [1]), on)
