"""`prune_join`: the keys of the small side choose what is read of the big side, and the join is Spark's.

The oracle is Spark 4.3's join of the same frames, read whole.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types

import zonebloom
from tests.depth import deep_only, some
from tests.newer import has
from tests.spark.cluster import changed
from tests.spark.rows import indexed, plain_read, rows_of_each, shown, write
from zonebloom.engines.spark.join.keys import check_pair
from zonebloom.engines.spark.pushdown.metadata import CHAR
from zonebloom.errors import ColumnNotFoundError, InvalidArgumentError
from zonebloom.spark import ZoneBloom

NUM_FILES = 8
DAY = dt.date(2024, 2, 29)
NOON = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
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
    files = {}
    for number in range(NUM_FILES):
        keys = [None if i % 10 == 9 else i * NUM_FILES + number for i in range(1000)]
        days = pa.array([None if i % 10 == 8 else number for i in range(1000)], pa.int32())
        files[f"part-{number}"] = {"key": keys, "day": days, "row": np.arange(1000)}
    indexed(tmp_path / "lake", files, ["key", "day"], rows_per_zone=256, fpp=1e-6)
    return tmp_path / "lake"


def small_of(spark, keys: list[int | None], kind: str = "bigint"):
    return spark.createDataFrame([(key, number) for number, key in enumerate(keys)], f"key {kind}, number int")


def plainly(big, small, on="key", how="inner"):
    """What Spark makes of the join."""
    if how in ("right_semi", "right_anti"):
        return small.join(big, on, how.replace("right", "left"))
    return big.join(small, on, how)


def together(frames: list[Any]):
    """The rows of all frames with their numbers, as one frame for one job; missing columns are null."""
    tagged = [frame.selectExpr(f"{number} AS asked", "*") for number, frame in enumerate(frames)]
    return reduce(lambda frame, other: frame.unionByName(other, allowMissingColumns=True), tagged)


def test_each_join_is_sparks(any_spark, lake):
    """Also without keys, of a frame, and by several keys, of which one is indexed at least."""
    zb, big = ZoneBloom(any_spark), plain_read(any_spark, lake)
    small = small_of(any_spark, [8, 8, 16, 99_999_999, None, 24])
    of_three = any_spark.createDataFrame([(3, 43, 5), (4, 52, 0), (4, 61, 7)], "day int, key bigint, row bigint")
    joins = [(small, "key", how) for how in ("inner", "left_semi", "right", "right_outer", "right_semi", "right_anti")]
    joins += [(small_of(any_spark, keys), "key", "inner") for keys in ([], [None])]
    joins += [(of_three.select(on), on, "inner") for on in (["key", "day"], ["key", "row"], ["key", "day", "row"])]
    actual = [zb.prune_join(str(lake), frame, on, how=how) for frame, on, how in joins]
    expected = [plainly(big, *join) for join in joins]
    assert [frame.columns for frame in actual] == [frame.columns for frame in expected]
    rows = shown(together([*actual, zb.prune_join(big, small, "key")]))
    assert rows == shown(together([*expected, plainly(big, small)]))
    assert [sum(f"asked={number}," in row for row in rows) for number in range(6, 11)] == [0, 0, 2, 2, 1]


def test_only_files_that_may_hold_a_key_are_read(spark, lake):
    wanted = [i * NUM_FILES + number for number in (2, 5) for i in range(900) if i % 10 != 9]
    pruned = ZoneBloom(spark).prune_join(str(lake), small_of(spark, wanted), "key", how="left_semi")
    named = {Path(file).name for file in pruned.inputFiles()}
    assert named <= {"part-2.parquet", "part-5.parquet"}
    assert pruned.count() == len(wanted)


def test_each_type_of_key(any_spark, tmp_path):
    types, actual, expected = some(TYPES.items(), 3), [], []
    for of_type, (make, stored, kind) in types:
        folder = tmp_path / of_type
        for number in range(4):
            values = [None, *(make(i * 4 + number) for i in range(100))]
            write(folder / f"{number}.parquet", {"key": pa.array(values, stored)})
        zonebloom.build_index(folder, "key", rows_per_zone=16)
        small = small_of(any_spark, [None, *(make(i) for i in (1, 9, 301, 9001))], kind)
        pruned = ZoneBloom(any_spark).prune_join(str(folder), small, "key")
        whole = plain_read(any_spark, folder).join(small, "key")
        for frames, frame in ((actual, pruned), (expected, whole)):
            frames.append(frame.selectExpr("string(key) AS key", "number"))
    rows = rows_of_each(actual)
    assert rows == rows_of_each(expected)
    assert list(map(len, rows)) == [3] * len(types)


def test_null_safe_joins(spark, lake):
    small = small_of(spark, [8, 16, None, 99_999_999])
    plain_read(spark, lake).createOrReplaceTempView("big")
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


@deep_only
@pytest.mark.usefixtures("few")
def test_row_ranges_with_dates_that_spark_moves_are_sparks_to_read(spark, tmp_path):
    small, zb = small_of(spark, [0, 5, 1700]), ZoneBloom(spark)
    query = "SELECT id AS key, date'1500-01-01' AS day FROM range(2000)"
    settings = ("parquet.datetimeRebaseModeInWrite", "parquet.datetimeRebaseModeInRead")
    for setting, writes in ((settings[0], True), (settings[1], False), (f"legacy.{settings[1]}", False)):
        folder = tmp_path / setting
        with changed(spark, f"spark.sql.{setting}", "LEGACY"):
            spark.sql(query).coalesce(1).write.parquet(f"file://{folder}")
            if not writes:  # what Spark did not write is moved as the setting says
                for path in list(folder.glob("part-*.parquet")):
                    write(folder / "rows.parquet", pq.read_table(path).replace_schema_metadata(None))
                    path.unlink()
            other = {"key": pa.array(range(9000, 9100), pa.int64()), "day": pa.array([20_000] * 100, pa.date32())}
            write(folder / "without-a-key.parquet", other)
            zonebloom.build_index(folder, "key", rows_per_zone=64)
            rows = shown(plain_read(spark, folder).join(small, "key"))
            assert shown(zb.prune_join(str(folder), small, "key")) == rows
            assert len(rows) == 3


def warned(call, match: str):
    with pytest.warns(RuntimeWarning, match=match) as caught:
        outcome = call()
    assert next(warning.filename for warning in caught if warning.category is RuntimeWarning) == __file__
    return outcome


@pytest.mark.usefixtures("few")
def test_a_join_that_skips_nothing_is_sparks_and_warns(spark, lake):
    """Few rows of every file would still be read by the driver."""
    three, many = small_of(spark, [8, 16, 24]), spark.range(0, 8000, 25).withColumnRenamed("id", "key")
    zb, plain = ZoneBloom(spark), plain_read(spark, lake)
    joined = [
        warned(lambda: zb.prune_join(str(lake), three, "key", max_keys=2), "than 2 distinct keys; raise max_keys"),
        warned(lambda: zb.prune_join(str(lake), many, "key"), "8 of 8 files may hold one of 320 keys, 100% of the"),
    ]
    assert shown(together(joined)) == shown(together([plainly(plain, three), plainly(plain, many)]))


def test_keys_that_the_index_cannot_evaluate(spark, tmp_path):
    joined = []
    for number, (value, kind, says) in enumerate(
        [
            ("DOUBLE('NaN')", "double", "NaN"),
            ("-0.0D", "double", "zero"),
            ("DATE '1500-01-01'", "date", "another calendar"),
            ("TIMESTAMP '1850-01-01 00:00:00Z'", "timestamp", "another calendar"),
            ("DATE '+12000-01-01'", "date", "literal"),  # Python does not have it
        ]
    ):
        big, small = tmp_path / f"big {number}", tmp_path / f"small {number}"
        with changed(spark, "spark.sql.parquet.int96RebaseModeInWrite", "CORRECTED"):  # Spark 3.5 raises by default
            spark.sql(f"SELECT {value} AS key UNION ALL SELECT CAST(NULL AS {kind})").write.parquet(str(big))
            spark.sql(f"SELECT {value} AS key").write.parquet(str(small))
        zonebloom.build_index(big, "key")
        keys = plain_read(spark, small)  # Spark pushes what a filter implies to this scan, too
        frame = warned(partial(ZoneBloom(spark).prune_join, str(big), keys, "key", how="left_semi"), says)
        joined.append(frame.selectExpr("1"))
    assert rows_of_each(joined) == [["(1,)"]] * 5


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
    char, varchar = (
        types.StructField("a", types.StringType(), True, {CHAR: text}) for text in ("char(5)", "varchar(5)")
    )
    check_pair(varchar, types.StructField("a", types.StringType()))
    with pytest.raises(InvalidArgumentError, match=r"got char\(5\)"):
        check_pair(char, types.StructField("a", types.StringType()))


def test_what_cannot_be_joined_is_refused(spark, lake, tmp_path):
    indexed(tmp_path / "structs", {"0": {"s": [{"a": 1}]}}, "s.a")
    zb, small, numbers = ZoneBloom(spark), small_of(spark, ["8"], "string"), spark.range(3)
    join, path = partial(zb.prune_join, str(lake)), str(tmp_path / "structs")
    for error, message, ask in (
        (InvalidArgumentError, "with a column of type bigint, got string; cast it", lambda: join(small, "key")),
        (ColumnNotFoundError, "the small side", lambda: join(small.withColumnRenamed("key", "k"), "key")),
        (ColumnNotFoundError, "row", lambda: join(numbers.withColumnRenamed("id", "row"), "row")),
        (ColumnNotFoundError, "the big side", lambda: zb.prune_join(path, numbers.toDF("s.a"), "s.a")),
        (InvalidArgumentError, "columns must be one or more names", lambda: zb.read(path, columns=3)),
        (InvalidArgumentError, "a data set must be a path, a table or a DataFrame", lambda: zb.search(small.key, "1")),
        (InvalidArgumentError, "keys must be a DataFrame or values", lambda: zb.read(path).where_in("key", small.key)),
        *(
            (InvalidArgumentError, f"system_path must be .*got {place!r}", partial(ZoneBloom, spark, system_path=place))
            for place in (3, "")
        ),
        *(
            (InvalidArgumentError, "max_keys must be an int from 0", partial(join, small, "key", max_keys=most))
            for most in (-1, 2**31 - 1, 1.5)
        ),
        (
            InvalidArgumentError,
            "function must take an iterator",
            lambda: zb.map_candidates(path, "s.a = 1", None, "a int"),
        ),
        *(
            (InvalidArgumentError, "on must be one or more different names", partial(join, small, on))
            for on in ([], ["key", "key"], 5, [5])
        ),
        *(
            (InvalidArgumentError, f"how must be inner.*got {how!r}", partial(join, small, "key", how=how))
            for how in ("left", "left_outer", "full", "outer", "left_anti", "anti", "cross", "sideways", None)
        ),
    ):
        with pytest.raises(error, match=message):
            ask()


@pytest.mark.parametrize("key", ["key", *(["${spark.app.name}.`a"] if has("spark_4") else [])])
def test_a_column_may_have_any_name_beside_those_of_keys(spark, tmp_path, key):
    """Spark would replace a variable in a text."""
    rows = {name: range(100) for name in (key, "__zonebloom_key", "key__zonebloom")}
    indexed(tmp_path, {"0": rows}, key, rows_per_zone=10)
    zb, small = ZoneBloom(spark), spark.range(7, 8).withColumnRenamed("id", key)
    joined = [zb.prune_join(str(tmp_path), small, key, null_safe=is_safe) for is_safe in (True, False)]
    assert rows_of_each([*joined, zb.read(str(tmp_path)).where_in(key, [7])]) == [["(7, 7, 7)"]] * 3
