"""Every way to read gives the rows of Spark's own plain read, whatever the condition, the types, the names, the files.

Oracle: PySpark 4.3, `spark.read.parquet(path).where(condition)`, listed at the same moment. Lakes are pyarrow's.
"""

from __future__ import annotations

import datetime as dt
import decimal
import os
import re
import threading
import uuid
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyspark
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import SparkUpgradeException
from pyspark.sql import types

import zonebloom as zb
from tests.depth import IS_DEEP, deep_only, some
from tests.fuzz.conditions import spark_literal
from tests.newer import has, need
from tests.spark.cluster import changed
from tests.spark.odd_lake import ODD, odd_rows
from tests.spark.rows import assert_as_plain, indexed, of_lake, of_plain_read, plain_read, rows_of_each, shown, write
from zonebloom.engines.spark.executors import changed_setting
from zonebloom.engines.spark.pushdown.metadata import CHAR
from zonebloom.engines.spark.pushdown.translate import keys_condition
from zonebloom.engines.spark.scan.readers import escaped, local_frame, url_of
from zonebloom.errors import InvalidArgumentError, PredicateError, StaleIndexError, ZoneBloomError
from zonebloom.search.query import Query
from zonebloom.spark import ZoneBloom

PUSHDOWN = "spark.sql.parquet.filterPushdown"
"""Left on, Spark's own read loses NaN and zeros: Parquet's statistics know no NaN, its dictionaries two zeros."""
WAYS = ("driver", "row_ranges", "files", "plain")


def kept(lake, condition, **options):
    return lake.plan(condition, **options).result.kept


def test_an_index_elsewhere_is_of_the_data_that_is_named(any_spark, small_lake, tmp_path):
    """What it does not know is read whole, be it all."""
    index, other = str(tmp_path / "index"), tmp_path / "other"
    zb.build_index(small_lake, "key", index=index, rows_per_zone=50)
    write(other / "p.parquet", {"key": ["k-1-7", *(f"other {n}" for n in range(98)), "k-1-7"]})
    moved, zonebloom = small_lake.rename(tmp_path / "moved"), ZoneBloom(any_spark)
    keys = any_spark.createDataFrame([("k-1-7",)], "key string")
    for source, num_rows, num_kept in ((str(moved), 1, 50), (str(other), 2, 100), ([str(other / "p.parquet")], 2, 100)):
        lake = zonebloom.read(source, index=index)
        frames = [lake.where("key = 'k-1-7'"), zonebloom.prune_join(source, keys, "key", index=index)]
        assert rows_of_each(frames) == [["('k-1-7',)"] * num_rows] * 2, source
        assert zonebloom.explain(source, "key = 'k-1-7'", index=index).plan.result.kept.rows == num_kept, source


# --- conditions -------------------------------------------------------------------------------------------------------

ROW = odd_rows(0, np.random.default_rng(5)).to_pylist()[90]
"""The first row but one of the first file whose time is local in Berlin after clocks went forward."""
BERLIN = ROW["seen"].astimezone(ZoneInfo("Europe/Berlin"))
TEXTS = {name: spark_literal(ROW[name]) for name in ("id", "name", "price", "born", "local", "trace", "tiny", "huge")}
TEXTS |= {
    "odd": spark_literal(ROW[ODD]),
    "seen": spark_literal(ROW["seen"].astimezone(dt.UTC)),
    "berlin": f"{BERLIN:%Y-%m-%d %H:%M:%S}",
    "day": f"{ROW['born']}",
    "short": f"{ROW['born'].year}-{ROW['born'].month}-{ROW['born'].day}",
}
PRUNED = [
    "name = {name}",
    "name = 'u-0'",
    "NAME IN ({name}, 'u1', 'nobody')",
    "{name} = name",
    "name <=> {name}",
    "name = {name} AND 'a' < name",
    "name = {name} AND flag IS NOT TRUE",
    "name = {name} AND name IS DISTINCT FROM NULL",
    "name = NULL",
    "id IN ({id}, 5L, -3)",
    "tiny = {tiny}",
    "tiny = 300",
    "huge = {huge}",
    "small = 1.5",
    "small = 1.5D",
    "small = 0",
    "amount = 0.0",
    "amount = -0.0",
    "amount IN (-2.5, 3)",
    "price = {price}",
    "price = 3",
    "born = {born}",
    "born = '{day}'",
    "born IN ('{day}', '2026-02-01')",
    "seen = {seen}",
    "seen = TIMESTAMP '{berlin}'",
    "local = {local}",
    "trace = {trace}",
    "`o'dd ``na.me``` = {odd}",
    "pair.a = 90",
    "pair.a IS NULL",
    "day = 10",
    "city = 'x y'",
    "city IS NULL",
]
WHOLE = [
    "name <=> NULL",
    "name = ''",
    "name IS NULL",
    "name IS NOT NULL",
    "name NOT IN ({name}, NULL)",
    "lower(name) = {name}",
    "id = {id}.0",
    "id = '{id}'",
    "id BETWEEN 5 AND {id}",
    "tiny = {tiny}.5",
    "amount = double('NaN')",
    "isnan(amount)",
    "price = {price}5",
    "born = '{short}'",
    "seen = '{berlin}'",
    "local = TIMESTAMP '{berlin}'",
    "flag",
    "NOT flag",
    "flag = true",
    "trace = 'aaa'",
    "CASE WHEN tiny = {tiny} AND flag THEN true ELSE false END",
    "array_contains(pair.b, 90)",
]
"""Forms of conditions, each with a value that is there if there is one; the first prune, as few rows have the value."""


def test_each_condition_gives_the_rows_of_a_plain_read(spark, odd_lake):
    """In a time zone with summer time."""
    with changed(spark, "spark.sql.session.timeZone", "Europe/Berlin"):
        lake, plain = ZoneBloom(spark).read(str(odd_lake)), plain_read(spark, odd_lake)
        pruned, whole = ([leaf.format(**TEXTS) for leaf in some(leaves, 4)] for leaves in (PRUNED, WHOLE))
        expected = of_plain_read(plain, ["n >= 0", *pruned, *whole])
        for way, asked in (
            ("auto", list(expected)),
            ("row_ranges", list(expected)[::4]),
            ("files", [condition for condition in expected if not re.search("amount|small", condition)][2::4]),
        ):
            assert of_lake(lake, asked, way) == {condition: expected[condition] for condition in asked}, way
        everything = kept(lake, "true").rows
        assert [leaf for leaf in [*pruned, *whole] if kept(lake, leaf).rows < everything] == pruned
        assert lake.where("name = 'nobody'").schema == plain.schema
        assert [lake.where(pruned[0], method=way).schema for way in WAYS] == [plain.schema] * len(WAYS)


@pytest.mark.deep
def test_columns_and_predicates_are_understood(any_spark, odd_lake):
    from pyspark.sql import functions as f

    lake, plain = ZoneBloom(any_spark).read(str(odd_lake)), plain_read(any_spark, odd_lake)
    name, u, column, always = ROW["name"], f.col("name"), zb.col("name"), f.udf(lambda _: True, "boolean")
    pruned = [
        u == name,
        (u == name) & (f.col("day") == 9),
        u.isin(name, "u1"),
        u.isNull() & (f.col("n") == 5) & (f.col("id") == 3),
        f.col("price") == ROW["price"],
        f.col("born") == ROW["born"],
        f.col("seen") == ROW["seen"],
        f.col("pair.a") == 90,
        f.col("`o'dd ``na.me```") == ROW[ODD],
        f.expr(f"name = '{name}' AND flag"),
        u.eqNullSafe(name),
        (u == name) & f.col("n").between(0, 10**9),
        (u == name) & (f.upper(u) == name.upper()),
        (u == name) & (f.coalesce(u, f.lit("x")) == name) & u.like("u%"),
        (u == name) & always("city"),
        f.lit(name) == u,
        u.isin(name, *(f"no {number}" for number in range(80))) & always("city"),
    ]
    whole = [
        f.lower("name") == name,
        ~(u == name),
        u == f.col("city"),
        f.upper(u) == name,
        (u == name) | always("city"),
    ]
    predicates = [
        (column == name, f"name = '{name}'"),
        ((column == name) | (column == "no") & column.is_null(), f"name = '{name}' OR name = 'no' AND name IS NULL"),
        (column.isin([name, "o'\\"]) & ~(zb.col("n") == 5), f"name = '{name}' AND NOT n = 5"),
        *((zb.col(of) == ROW[of], f"{of} = {spark_literal(ROW[of])}") for of in ("local", "huge", "trace")),
        (zb.col("seen") == ROW["seen"], f"seen = {TEXTS['seen']}"),
        (zb.col("pair.a") == 90, "pair.a = 90"),
        (zb.col(ODD) == ROW[ODD], f"`o'dd ``na.me``` = {TEXTS['odd']}"),
    ]
    everything = kept(lake, "true").rows
    pairs = [*((condition, condition) for condition in whole + pruned), *predicates]
    reads = [lake.prepare(ours) for ours, _ in pairs]
    actual = rows_of_each([read.frame for read in reads])
    expected = rows_of_each([plain.where(theirs) for _, theirs in pairs])
    for number, (read, rows, wanted) in enumerate(zip(reads, actual, expected, strict=True)):
        assert rows == wanted, str(pairs[number])
        assert (read.plan.result.kept.rows == everything) is (number < len(whole)), str(pairs[number])


def test_integers_of_64_bits_are_evaluated(any_spark, tmp_path):
    numbers = [2**63 - 1, -(2**63 - 1), 4109125379036153425, -4109125379036153425, -(2**63)]
    indexed(tmp_path, {number: {"n": [number]} for number in numbers}, "n")
    comparisons = [f"n {text}" for n in [*numbers, 2**63] for text in (f"= {n}", f"IN ({n}, 4109125379036153425)")]
    assert_as_plain(any_spark, tmp_path, comparisons, "auto")
    lake = ZoneBloom(any_spark).read(str(tmp_path))
    assert all(kept(lake, f"n = {number}").files == 1 for number in numbers[:4])


@deep_only
def test_a_text_that_looks_like_a_column_is_one_or_the_other(any_spark, tmp_path):
    """Columns print texts and names alike on Connect: Spark says which was meant."""
    from pyspark.sql import functions as f

    rows = {"a": ["b", "x"], "b": ["q", "x"]}, {"a": ["z", "z) OR =(a, x"], "b": ["z", "y"]}
    indexed(tmp_path, dict(enumerate(rows)), ["a", "b"])
    a = f.col("a")
    asked = [a == "b", a == f.col("b"), a == "z) OR =(a, x", (a == "z") | (a == "x, y"), a.isin("b, x", "z")]
    assert_as_plain(any_spark, tmp_path, asked, *WAYS)


SETTINGS = [
    ("spark.sql.parser.escapedStringLiterals", "true", r"a = 'x\n'"),
    ("spark.sql.parser.escapedStringLiterals", "false", r"a = 'x\n'"),
    ("spark.sql.legacy.consecutiveStringLiterals.enabled", "true", "a = 'it''s'"),
    ("spark.sql.legacy.consecutiveStringLiterals.enabled", "false", "a = 'it''s'"),
    ("spark.sql.ansi.doubleQuotedIdentifiers", "true", 'a = "b"'),
    ("spark.sql.ansi.doubleQuotedIdentifiers", "false", 'a = "b"'),
    ("spark.sql.caseSensitive", "true", "a = 'b'"),
    ("spark.sql.ansi.enabled", "false", "a = 1"),
    ("spark.sql.ansi.enabled", "false", "a IN ('b', 1)"),
    ("spark.sql.ansi.enabled", "true", "a = 'b' /* AND a = 'x' */"),
    ("spark.sql.ansi.enabled", "true", "a = 'b' -- AND a = 'x'"),
    *([("spark.sql.ansi.enabled", "true", "a = 'b' COLLATE UTF8_LCASE")] if has("spark_4") else []),
    ("spark.sql.ansi.enabled", "true", "a = 'i' 't''s'"),
    ("spark.sql.ansi.enabled", "true", "a = r'x\\n'"),
    ("spark.sql.ansi.enabled", "true", "a || '' = 'b' AND a = 'b'"),
    ("spark.sql.ansi.enabled", "true", "a BETWEEN 'a' AND 'b' AND a = 'b'"),
]


def test_a_name_with_its_table_in_front_is_that_of_spark(spark, tmp_path):
    """In the table `device` the name `device.id` is the column `id`, and in its files the field of a struct."""
    from pyspark.sql import functions as f

    path, bloom = tmp_path / "lake", ZoneBloom(spark)
    path.mkdir()
    pq.write_table(
        pa.table({"id": range(20), "device": [{"id": number + 10} for number in range(20)]}), path / "a.parquet"
    )
    zb.build_index(path, ["id", "device.id"], rows_per_zone=2)
    spark.sql(f"CREATE TABLE device USING parquet LOCATION '{path}'")
    table = spark.table("device")
    try:
        for condition in (
            "device.id = 7",
            f.col("device.id") == 7,
            "default.device.id IN (7)",
            "device.device.id = 17",
        ):
            with pytest.warns(RuntimeWarning, match="every row is read"):
                assert bloom.read("device").where(condition).collect() == table.where("id = 7").collect(), condition
        assert bloom.search("device", "device.id = 7").kept.rows == 20
        assert bloom.search("device", "id = 7").kept.rows == bloom.search(str(path), "device.id = 17").kept.rows == 2
        frame = spark.read.parquet(str(path)).alias("a")
        if has("spark_4"):  # which shows the field as device.id
            assert bloom.read(frame).prepare(frame.device.id == 17).plan.result.kept.rows == 2
        for name, condition in (
            ("device", "device.id = 7"),
            ("a", "a.id = 7 AND rand() < 2"),
            ("device", "device.id = 7 AND rand() < 2"),
            ("a", (frame.id == 7) & (f.rand() < 2)),
            ("a", f.abs(frame.device.id) == 17),
        ):
            with pytest.raises(PredicateError, match=r"must name columns without their frame or its alias, got"):
                bloom.read(frame.alias(name)).where(condition)
        with pytest.raises(PredicateError, match=r"must name columns without their frame or its alias, got"):
            bloom.read(table).where(f.abs(table.id) == 7)
        for condition in ("b.id = 7", "b.id = 7 AND rand() < 2", f.abs("b.id") == 7):
            with pytest.raises(PredicateError, match=r"must name columns without their frame or its alias, got"):
                bloom.read(table.alias("b")).where(condition)
    finally:
        spark.sql("DROP TABLE device")


NO_LITERALS = {
    "nanoseconds": lambda c: c("t") != np.datetime64("2024-03-31T02:20:00.000000001"),
    "UUID": lambda c: c("s") == uuid.UUID(int=1),
    "surrogate": lambda c: c("s") == "\ud800",
    "NaN": lambda c: c("d") == decimal.Decimal("NaN"),
    "digits": lambda c: c("d") == decimal.Decimal("1e-50"),
    "moment": lambda c: c("t") == dt.datetime.max.replace(tzinfo=dt.timezone(dt.timedelta(hours=-14))),
}
LITERALS = {
    "whole microseconds": lambda c: c("t") == np.datetime64("2024-03-31T02:20:00", "ns"),
    "uint64": lambda c: c("u") == np.uint64(2**63 + 7),
    "an early date": lambda c: c("day") > dt.date(999, 1, 1),
    "a view of bytes": lambda c: c("b") == memoryview(b"k"),
}


def test_literals_of_predicates_are_those_of_python_or_an_error(spark, tmp_path):
    """Spark cuts nanoseconds, so `!=` by one lost all rows; for other values its own errors and py4j's came."""
    at, day = dt.datetime(2024, 3, 31, 2, 20), dt.date(2020, 1, 1)  # noqa: DTZ001 - local
    columns = {"t": [at] * 3, "s": ["a"] * 3, "d": [decimal.Decimal("1.00")] * 3, "day": [day] * 3, "b": [b"k"] * 3}
    pq.write_table(
        pa.table(columns | {"u": pa.array([2**63 + 7] * 3, pa.uint64())}),
        tmp_path / "a.parquet",
        coerce_timestamps="us",
    )
    index = zb.build_index(tmp_path, [*columns, "u"])
    lake = ZoneBloom(spark).read(str(tmp_path))
    for name, condition in LITERALS.items():
        assert lake.where(condition(zb.col)).count() == index.to_table(condition(zb.col)).num_rows == 3, name
    for name, condition in NO_LITERALS.items():
        with pytest.raises(PredicateError, match="a literal must be one that Spark"):
            pytest.fail(f"{name}: {lake.where(condition(zb.col))}")
    many = ", ".join(map(str, range(1005)))
    with pytest.warns(RuntimeWarning, match="every row is read"):
        assert lake.where(f"d IN ({many}, 0.071)").count() == 3


@deep_only
def test_settings_of_the_parser_lose_no_row(spark, tmp_path):
    texts = ["b", "it's", "its", "x\n", "x\\n", "1", "01", "B", "n", "x", "is", "xn"]
    rows = ({"a": [text], "b": [text if number % 2 else "b"]} for number, text in enumerate(texts))
    indexed(tmp_path, dict(enumerate(rows)), ["a", "b"])
    lake, plain = ZoneBloom(spark).read(str(tmp_path)), plain_read(spark, tmp_path)
    for number, (setting, value, condition) in enumerate(SETTINGS):
        ways = [way for way in WAYS[:3] if way != WAYS[number % 3]]
        with changed(spark, setting, value):  # some conditions end in a comment, so each is a text of its own
            frames = [plain.where(condition), *(lake.where(condition, method=way) for way in ways)]
            expected, *actual = rows_of_each(frames)
        assert actual == [expected] * 2, (setting, value, condition, ways)


def test_a_column_whose_name_may_be_a_function_loses_no_row(spark, tmp_path):
    me = spark.sql("SELECT current_user()").collect()[0][0]
    indexed(tmp_path, {"a": {"user": ["a", "b"]}, "b": {"user": [me, "c"]}}, "user")
    for reserved in ("true", "false"):
        with changed(spark, "spark.sql.ansi.enforceReservedKeywords", reserved):
            asked = [f"user = '{me}'", f"`user` = '{me}'", f"user IN ('{me}', 'x')"]
            assert_as_plain(spark, tmp_path, asked, "auto")
    assert kept(ZoneBloom(spark).read(str(tmp_path)), "`user` = 'a'").files == 1


@deep_only
def test_nan_as_a_literal_is_found_on_each_way(any_spark, tmp_path):
    """To Spark NaN equals NaN, to Arrow it equals nothing."""
    from pyspark.sql import functions as f

    nan = float("nan")
    rows = ({"f": values, "g": pa.array(values, pa.float32())} for values in ([1.5, 2.0], [nan, 3.0]))
    indexed(tmp_path, dict(enumerate(rows)), ["f", "g"])
    theirs, ours = f.col("f"), zb.col("f")
    asked = [theirs == nan, f.col("g") == nan, theirs.eqNullSafe(nan), theirs.isin(nan, 1.5), ~(theirs == nan)]
    asked += [ours == nan, ours.isin([nan, 1.5]), ~ours.isin([nan])]
    counts = [1, 1, 1, 2, 3, 1, 2, 3]
    with changed(any_spark, PUSHDOWN, "false"):
        lake = ZoneBloom(any_spark).read(str(tmp_path))
        for way in WAYS:
            step = 1 if way == "driver" else 3
            pruned = rows_of_each([lake.where(condition, method=way) for condition in asked[::step]])
            assert list(map(len, pruned)) == counts[::step], way


def test_collated_and_padded_columns_are_kept_whole(spark, tmp_path):
    need("spark_4")
    root = tmp_path / "lake"
    frame = spark.sql("SELECT 'a' COLLATE UTF8_LCASE AS c, 'a    ' AS p").withMetadata("p", {CHAR: "char(5)"})
    frame.write.parquet(url_of(str(root)))
    zb.build_index(root, ["c", "p"])
    asked = ["c = 'A'", "p = 'a'", "p = 'a    '"]
    assert [len(rows) for rows in assert_as_plain(spark, root, asked, "auto")] == [1, 1, 1]
    assert [ZoneBloom(spark).search(str(root), condition).kept.rows for condition in asked] == [1, 1, 1]


# --- files ------------------------------------------------------------------------------------------------------------


def test_new_changed_and_deleted_files_give_exact_answers(any_spark, small_lake):
    lakes = [ZoneBloom(any_spark).read(str(small_lake), method=way) for way in ("auto", *WAYS)]
    of_frame = ZoneBloom(any_spark).read(plain_read(any_spark, small_lake))
    condition = "key IN ('k-1-7', 'new', 'k-2-5', 'k-3-5')"
    with changed(any_spark, "spark.sql.execution.arrow.maxRecordsPerBatch", 0):  # no limit
        assert list(map(len, rows_of_each([lake.where(condition) for lake in lakes]))) == [3] * len(lakes)
    write(small_lake / "part-9.parquet", {"key": ["new", "other"]})
    write(small_lake / "part-2.parquet", {"key": ["k-1-7", "k-8-8"]})
    (small_lake / "part-3.parquet").unlink()
    with pytest.raises(StaleIndexError, match=r"part-[29]\.parquet"):
        lakes[0].where(condition, strict=True)
    frames = [plain_read(any_spark, small_lake).where(condition), *(lake.where(condition) for lake in lakes)]
    rows = rows_of_each(frames)
    assert len(rows[0]) == 3
    assert rows == [rows[0]] * len(rows)
    view = lakes[0].plan("key = 'k-1-7'").view
    assert view.num_unknown == 2
    zb.open_index(small_lake).refresh()
    for lake in (lakes[0], of_frame):
        lake._looked = float("-inf")
        assert lake.plan("key = 'k-1-7'").view.num_unknown == 0
        assert rows_of_each([lake.where(condition, strict=True)]) == rows[:1]


@pytest.mark.parametrize("way", ["driver", "files"])
def test_files_that_change_between_listing_and_read_lose_no_row(spark, small_lake, way, monkeypatch):
    """The candidate is overwritten, a file that cannot match is too, one comes and one goes after the search."""
    lake = ZoneBloom(spark).read(str(small_lake), method=way)
    lake.where("key = 'k-1-7'").collect()
    searched, plans = lake._planned, []

    def planned(*arguments, **options):
        plans.append(searched(*arguments, **options))
        if len(plans) == 1:
            write(small_lake / "part-1.parquet", {"key": ["k-1-7", "again"]})
            write(small_lake / "part-2.parquet", {"key": ["k-1-7", "x", "y"]})
            write(small_lake / "part-7.parquet", {"key": ["k-1-7"]})
        (small_lake / "part-0.parquet").unlink(missing_ok=True)
        return plans[-1]

    monkeypatch.setattr(lake, "_planned", planned)
    assert len(shown(lake.where("key = 'k-1-7'"))) >= {"driver": 3, "files": 1}[way]
    assert len(shown(lake.where("key = 'k-1-7'"))) == 3
    write(small_lake / "part-0.parquet", {"key": ["k-0-7"]})
    assert shown(lake.where("key = 'k-0-7'")) == [], "a candidate that vanishes is listed anew"


def test_an_old_frame_reads_files_that_changed_since(spark, small_lake):
    for number in (2, 3):
        frame = plain_read(spark, small_lake)
        write(small_lake / f"part-{number}.parquet", {"key": ["k-1-7", *"xyz"[:number]]})
        if number == 3:
            zb.open_index(small_lake).refresh()
        assert len(shown(ZoneBloom(spark).read(frame).where("key = 'k-1-7'"))) == number


def test_a_cached_frame_of_the_same_files_is_not_read(any_spark, small_lake):
    lake = ZoneBloom(any_spark).read(str(small_lake))
    cached = lake.toDF().cache()
    for part in small_lake.glob("*.parquet"):
        any_spark.read.parquet(f"file://{part}").cache().count()
    assert cached.count() == 1200
    write(small_lake / "part-0.parquet", {"key": ["k-5-7", "k-new"]})
    for way in ("plain", "files", "row_ranges", "driver"):
        assert lake.where("key = 'k-5-7'", method=way).count() == 2, way
        assert lake.where("key = 'k-new'", method=way).count() == 1, way
    assert lake.count() == 1002
    assert cached.count() == 1200


def test_files_that_spark_skips_are_skipped(spark, tmp_path):
    flat, keyed = tmp_path / "flat", tmp_path / "keyed"
    for root, inner in ((flat, ""), (keyed, "day=1/")):
        write(root / f"{inner}a.parquet", {"key": ["a", "x"]})
        write(root / f"{inner}c.parquet._COPYING_", {"key": ["c", "x"]})
    write(flat / "none.parquet", {"key": pa.array([], pa.string())})
    for root, files in ((flat, {"nested/b": {"key": ["b", "x"]}}), (keyed, {"d": {"key": ["d", "x"]}})):
        indexed(root, files, "key")
        (flat / "void.parquet").touch()
        assert_as_plain(spark, root, [f"key = '{key}'" for key in "abcdx"], "auto", "files")


def test_names_of_files_that_spark_is_set_to_skip_are_left_to_it(spark, tmp_path):
    indexed(tmp_path, {name: {"key": ["a", name]} for name in ("_a", "tmp", "z")}, "key")
    for skipped in ("^[.]", "^[._]|^tmp", "^[._]"):
        with changed(spark, "spark.sql.files.ignoredPathSegmentRegex", skipped):
            assert_as_plain(spark, tmp_path, ["key = 'a'", "key = '_a'"], "auto", "files")
            if skipped != "^[._]":
                with pytest.raises(InvalidArgumentError, match="Spark must read the files that zonebloom lists"):
                    ZoneBloom(spark).search(str(tmp_path), "key = '_a'")


def test_files_that_spark_is_set_to_skip_if_they_are_damaged_are_left_to_it(spark, numbered_lake):
    """The footer of a file and its time are those of the index; its pages are zeros."""
    lake, path = ZoneBloom(spark).read(str(numbered_lake)), numbered_lake / "1.parquet"
    times, data = path.stat(), bytearray(path.read_bytes())
    data[4:600] = bytes(596)
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with changed(spark, "spark.sql.files.ignoreCorruptFiles", True):
        assert lake.prepare("s = 's7'").method == "plain"
        assert lake.where("s = 's7'").count() == 3
        with pytest.raises(InvalidArgumentError, match="Spark skips files that it cannot read"):
            lake.where("s = 's7'", method="row_ranges")


@deep_only
def test_files_that_the_log_of_a_stream_does_not_name_are_skipped(spark, tmp_path):
    """A stream that is killed leaves files of a batch; its next run writes these rows once more."""
    source, root = tmp_path / "source", tmp_path / "a %20 lake"
    write(source / "a.parquet", {"key": [f"k-{number}" for number in range(300)]})
    stream = spark.readStream.schema("key string").parquet(str(source)).writeStream.trigger(availableNow=True)
    stream.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(root), "parquet").awaitTermination()
    indexed(root, {"left": {"key": ["k-7", "left"]}}, "key", rows_per_zone=64)
    rows = assert_as_plain(spark, root, ["key IN ('k-7', 'left')", "key != 'k-7'"], "auto", *WAYS)
    assert list(map(len, rows)) == [1, 299]
    assert len(ZoneBloom(spark).read(str(root)).plan("key = 'k-7'").paths) == 1


def test_one_file_and_a_list_of_files(spark, tmp_path):
    files = [tmp_path / f"day={n}/p {n}.parquet" for n in range(3)]
    for number, file in enumerate(files):
        write(file, {"key": [f"k-{number}", "x"]})
    zb.build_index(files[0], ["key"])
    single = ZoneBloom(spark).read(str(files[0]))
    zb.build_index(files[:2], ["key"], index=tmp_path / "_index")
    listed = ZoneBloom(spark).read(list(map(str, files[:2])), index=str(tmp_path / "_index"))
    assert (single.columns, listed.columns) == (["key"], ["key", "day"])
    frames = [single.where("key = 'k-0'", method=way).selectExpr("0") for way in WAYS]
    frames += [listed.where("key IN ('k-1', 'k-2')", method=way).select("day") for way in WAYS]
    assert rows_of_each(frames) == [["(0,)"]] * len(WAYS) + [["(1,)"]] * len(WAYS)


def test_many_candidates_are_read_without_a_setting_of_the_session(spark, tmp_path):
    for number in range(70):
        write(tmp_path / f"p-{number:03}.parquet", {"key": [f"k-{number}", f"odd {number % 2}"]})
    zb.build_index(tmp_path, ["key"])
    lake = ZoneBloom(spark).read(str(tmp_path), method="files")
    name = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
    before = spark.conf.get(name)
    assert lake.where("key = 'odd 1'").count() == 35
    assert spark.conf.get(name) == before
    for number in range(70):  # scans of 32 files each: a folder's name is an int in the first, a date in the others
        folder = tmp_path / (f"on={100 + number}" if number < 32 else "on=2026-01-31")
        folder.mkdir(exist_ok=True)
        (tmp_path / f"p-{number:03}.parquet").rename(folder / f"{number % 32:03}-{number}.parquet")
    zb.open_index(tmp_path).refresh("full")
    lake = ZoneBloom(spark).read(str(tmp_path), method="files", columns=["key"])
    assert lake.where("key IN ('odd 0', 'odd 1')").count() == 70


# --- types ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "layout",  # Spark 3.5 and 4.0 fail at files without bytes
    some(["keys", "flat", "beside", "merged", *["empty"] * (pyspark.__version__ >= "4.1"), "summary", "copied"], 2),
)
def test_the_schema_of_many_files_is_that_of_a_plain_read(spark, tmp_path, layout):
    """Of many files few give the schema: Spark takes the first file's columns, and types of keys from all folders."""
    for number in range(40):
        is_keyed = layout in ("keys", "empty") or (layout == "beside" and number)  # Spark skips rows of a file beside
        folder = f"day={'x' if number > 38 else number % 3 + 1}/" if is_keyed else ""
        rows = pa.table({"key": [f"k-{number}"], "n": [number], "more": [1.5]})
        write(tmp_path / f"{folder or 'a'}p-{number:02}.parquet", rows if number else rows.select(["n", "key"]))
    zb.build_index(tmp_path, ["key"])
    if layout == "empty":
        (tmp_path / "day=1/p-00.parquet").write_bytes(b"")
    if layout == "summary":
        pq.write_metadata(pa.schema({"key": pa.string(), "summed": pa.int64()}), tmp_path / "_common_metadata")
    if layout == "copied":
        for folder in ("", "day=1"):  # which is no folder of a partition as long as it has no other file
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / "a.parquet._COPYING_").write_bytes(b"half")
        write(tmp_path / "day=1._COPYING_/p.parquet", {"key": ["k-7"], "n": [1]})
        write(tmp_path / "below/p.parquet", {"key": ["k"], "lower": [1]})
    with changed(spark, "spark.sql.parquet.mergeSchema", layout == "merged"):
        lake, plain = ZoneBloom(spark).read(str(tmp_path)), plain_read(spark, tmp_path)
        assert lake.schema == plain.schema
        assert ("summed" in lake.columns, "more" in lake.columns) == (
            layout == "summary",
            layout in ("merged", "empty"),
        )
        jobs = num_jobs(spark, lambda: ZoneBloom(spark).read(str(tmp_path)).schema)
        assert jobs <= num_jobs(spark, lambda: plain_read(spark, tmp_path).schema)
        assert shown(lake.where("key = 'k-7'")) == shown(plain.where("key = 'k-7'"))


def test_old_dates_that_spark_moves_not_and_int96_are_read_as_spark_reads_them(spark, tmp_path):
    for name, column, options in [
        ("dates", pa.array([dt.date(1500, 1, 1), dt.date(2026, 1, 1)]), {}),
        ("times", pa.array([0, -(5 * 10**15)], pa.timestamp("us", "UTC")), {}),
        ("int96", pa.array([0, 10**15], pa.timestamp("us")), {"use_deprecated_int96_timestamps": True}),
    ]:
        write(tmp_path / name / "p.parquet", {"key": ["a", "a"], "at": column}, **options)
        zb.build_index(tmp_path / name, ["key"])
        assert_as_plain(spark, tmp_path / name, ["key = 'a'"], "auto")
        assert ZoneBloom(spark).read(str(tmp_path / name)).prepare("key = 'a'").method == "driver", name


def test_old_dates_that_spark_is_to_refuse_are_refused(spark, tmp_path):
    write(tmp_path / "p.parquet", {"key": ["a", "b"], "at": [dt.date(1500, 1, 1), dt.date(2026, 1, 1)]})
    zb.build_index(tmp_path, ["key"])
    with changed(spark, "spark.sql.parquet.datetimeRebaseModeInRead", "EXCEPTION"):
        for frame in (plain_read(spark, tmp_path), ZoneBloom(spark).read(str(tmp_path))):
            with pytest.raises((SparkUpgradeException, Py4JJavaError), match="READ_ANCIENT_DATETIME"):  # in 3.5 py4j's
                frame.where("key = 'a'").collect()
        own = str(tmp_path / "own")  # Spark marks its own files, and so reads all their dates
        spark.sql("SELECT 'a' AS key, DATE'1500-01-01' AS at").write.parquet(f"file://{own}")
        zb.build_index(own, ["key"])
        read = ZoneBloom(spark).read(own).prepare("key = 'a'")
        assert (read.method, read.frame.collect()[0].at) == ("driver", dt.date(1500, 1, 1))


def test_lists_of_old_dates_prune_nothing(spark, tmp_path):
    days = {dt.date(1500, 1, 1): 2, dt.date(2026, 1, 1): 1}
    indexed(tmp_path, {day.year: {"at": [day] * 3} for day in days}, "at")
    lake = ZoneBloom(spark).read(str(tmp_path))
    for day, num_files in days.items():
        assert lake.where_in("at", [day]).count() == 3
        view, binder = lake.present()
        condition = keys_condition(("at",), pa.array([day]), binder)
        assert Query(view, condition.predicate).result.kept.files == num_files


@pytest.mark.deep
def test_a_local_relation_keeps_the_rows_after_an_empty_batch(any_spark):
    table = pa.table({"x": pa.chunked_array([[1, 2], pa.array([], pa.int64()), [3]], pa.int64())})
    assert table.column(0).num_chunks == 3
    schema = types.StructType([types.StructField("x", types.LongType())])
    assert local_frame(any_spark, table, schema).count() == 3


@pytest.mark.deep
def test_a_local_relation_may_be_of_a_part_of_maps_with_nulls(any_spark):
    inner = types.MapType(types.StringType(), types.LongType())
    schema = types.StructType([types.StructField("m", types.MapType(types.StringType(), inner))])
    held = [[], None, [("a", None)], [("a", [("b", 1)])]]
    maps = pa.array(held, pa.map_(pa.string(), pa.map_(pa.string(), pa.int64())))
    read = local_frame(any_spark, pa.table({"m": maps}).slice(1), schema).collect()
    assert [row.m for row in read] == [None, {"a": None}, {"a": {"b": 1}}]


# --- jobs, lists, threads ---------------------------------------------------------------------------------------------


def num_jobs(spark, action) -> int:
    name = f"counted-{os.urandom(4).hex()}"
    spark.sparkContext.setJobGroup(name, name)
    action()
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()  # the tracker hears of a job late
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(name))


def test_a_lookup_by_the_driver_needs_no_job(spark, small_lake):
    need("spark_4")
    lake = ZoneBloom(spark).read(str(small_lake))
    assert lake.schema
    present, absent = "key = 'k-1-7'", "key = 'nobody'"
    assert kept(lake, present).zones == 1
    assert kept(lake, absent).files == 0
    assert num_jobs(spark, lambda: lake.where(present).collect()) == 0
    assert num_jobs(spark, lambda: lake.where(absent).collect()) == 0
    assert num_jobs(spark, lambda: plain_read(spark, small_lake).where(absent).collect()) > 0


def test_candidates_are_the_only_files_that_are_opened(spark, small_lake):
    frame = ZoneBloom(spark).read(str(small_lake)).where("key = 'k-1-7'", method="files")
    opened = [row.name for row in frame.selectExpr("input_file_name() AS name").collect()]
    assert [Path(name).stem for name in opened] == ["part-1"]
    with (
        changed(spark, "spark.sql.files.openCostInBytes", 1 << 30),  # a file to each partition
        changed(spark, "spark.sql.files.minPartitionNum", 1),
    ):
        assert plain_read(spark, small_lake).rdd.getNumPartitions() == 6
        assert frame.rdd.getNumPartitions() == 1


@pytest.mark.parametrize("way", ["auto", "files", "plain"])
def test_long_lists_get_no_literal_into_the_plan(any_spark, small_lake, way, capsys):
    keys = [f"k-1-{n}" for n in range(100, 3100)]
    lake = ZoneBloom(any_spark).read(str(small_lake), method=way)
    texts = ", ".join(f"'{key}'" for key in keys)
    frame_of_keys = any_spark.createDataFrame([(key,) for key in keys], "key string")
    asked = [
        lambda: lake.where(zb.col("key").isin(keys) & ~(zb.col("key") == "nobody")),
        lambda: lake.where(f"key IN ({texts})"),
        lambda: lake.where(f"key != 'nobody' AND key IN ({texts})"),
        lambda: lake.where_in("key", keys),
        lambda: lake.where_in("KEY", frame_of_keys),
    ]
    frames = [ask() for ask in asked[:: 1 if way == "auto" else 2]]
    for frame in frames:
        capsys.readouterr()
        frame.explain("extended")
        assert len(capsys.readouterr().out) < 20_000
    assert list(map(len, rows_of_each(frames))) == [100] * len(frames)


def test_long_lists_elsewhere_are_refused_or_left_to_spark(spark, small_lake, numbered_lake):
    keys = [f"k-1-{n}" for n in range(2000)]
    lake = ZoneBloom(spark).read(str(small_lake))
    with pytest.raises(PredicateError, match="long lists"):
        lake.where(zb.col("key").isin(keys) | (zb.col("key") == "a"))
    with pytest.raises(PredicateError, match="must fit column key, got"):
        lake.where_in("key", range(5))
    with pytest.raises(PredicateError, match="must fit column x, got texts"):
        ZoneBloom(spark).read(str(numbered_lake)).where(zb.col("x").isin(["7.0", *map(str, range(2000))]))
    assert lake.where(f"NOT key IN ({', '.join(map(repr, keys))})").count() == 1000
    with_escapes = ", ".join(["'k-1-7'", *(rf"'x\{n}'" for n in range(80))])
    read = lake.prepare(f"key IN ({with_escapes}) AND input_file_name() LIKE '%.parquet'")
    assert (read.method, read.frame.count()) == ("plain", 1)


def test_a_null_takes_the_place_of_no_key(any_spark, small_lake, monkeypatch):
    lake = ZoneBloom(any_spark).read(str(small_lake))
    keys = any_spark.createDataFrame([(None,), *((f"k-1-{n}",) for n in range(100, 104))], "key string")
    monkeypatch.setattr("zonebloom.engines.spark.join.keys.MAX_KEYS", 4)
    assert lake.where_in("key", keys).count() == 4
    monkeypatch.setattr("zonebloom.engines.spark.join.keys.MAX_KEYS", 3)
    with pytest.raises(InvalidArgumentError, match="keys must be at most 3, got more"):
        lake.where_in("key", keys)


def test_threads_share_a_lake(spark, small_lake):
    lake = ZoneBloom(spark).read(str(small_lake))
    actual: dict[int, int] = {}

    def ask(number):
        plan = lake.plan(f"key = 'k-{number}-7'")
        actual[number] = (lake.where(f"key = 'k-{number}-7'").count(), plan.paths)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert actual == {number: (1, (f"part-{number}.parquet",)) for number in range(6)}


def test_threads_that_change_a_setting_leave_it_as_it_was(spark):
    name, has_left = "spark.sql.debug.maxToStringFields", threading.Event()

    def meet():
        with changed_setting(spark, name, "8"):
            has_left.wait()

    other = threading.Thread(target=meet)
    with changed_setting(spark, name, "7"):
        other.start()
        other.join(0.1)
    has_left.set()
    other.join()
    assert spark.conf.get(name, None) is None


# --- prune, explain ---------------------------------------------------------------------------------------------------


@pytest.mark.deep
def test_a_frame_that_is_a_plain_scan_is_read(any_spark, small_lake):
    frame = plain_read(any_spark, small_lake)
    lake = ZoneBloom(any_spark).read(frame)
    assert rows_of_each([lake.where("key = 'k-1-7'"), lake.where(frame.key == "k-1-7")]) == [["('k-1-7',)"]] * 2
    assert lake.prepare(frame.key == "k-1-7").plan.result.kept.zones == 1
    assert ZoneBloom(any_spark).read(any_spark.read.parquet(f"{url_of(str(small_lake))}/")).columns == frame.columns
    merged = any_spark.read.option("mergeSchema", "true").parquet(escaped(url_of(str(small_lake))))
    with pytest.raises(InvalidArgumentError, match="plain scan"):
        ZoneBloom(any_spark).read(merged)


def test_explain_says_what_is_read_and_why(any_spark, small_lake):
    lake = ZoneBloom(any_spark).read(str(small_lake))
    told = ZoneBloom(any_spark).explain(lake, "key = 'k-1-7'")
    assert re.search(r"files +1 +6 +16.7%", str(told))
    assert told.to_dict()["method"] == "driver"
    rows = {row.part: row for row in told.to_df().collect()}
    assert (rows["files"].kept, rows["files"].total) == (1, 6)
    assert (rows["zones"].kept, rows["zones"].total) == (1, 24)
    assert rows["method"].code == "driver"
    write(small_lake / "part-9.parquet", {"key": ["new"]})
    reasons = ZoneBloom(any_spark).explain(str(small_lake), "lower(key) = 'k-1-7'").to_df().where("part = 'reason'")
    assert {row.code for row in reasons.collect()} == {"PREDICATE_NOT_SUPPORTED", "FILE_NOT_INDEXED"}
    frame = plain_read(any_spark, small_lake)
    assert "FILE_NOT_INDEXED" in str(ZoneBloom(any_spark).explain(frame, frame.key == "k-1-7"))


def test_a_method_can_be_asked_for_wherever_one_is_chosen(spark, small_lake):
    zonebloom, root, condition = ZoneBloom(spark), str(small_lake), "key = 'k-1-7'"
    frames = []
    for way in WAYS:
        lake = zonebloom.read(root, method=way)
        assert lake.prepare(condition).method == way
        frames.append(lake.where(condition))
        assert zonebloom.explain(lake, condition).to_dict()["method"] == way
        assert zonebloom.explain(root, condition, method=way).to_dict()["method"] == way
        assert zonebloom.read(root).prepare(condition, method=way).method == way
    assert list(map(len, rows_of_each(frames))) == [1] * len(frames)
    for source in (root, zonebloom.read(root, method="plain")):
        assert zonebloom.explain(source, condition, method="auto").to_dict()["method"] == "driver"
    for ask in (zonebloom.read, lambda root, method: zonebloom.explain(root, condition, method=method)):
        with pytest.raises(InvalidArgumentError, match=r"one of auto, driver, row_ranges, .*, got 'fast'"):
            ask(root, method="fast")


BY_READING = [
    "input_file_name() LIKE '%.parquet'",
    "input_file_block_start() = 0",
    "input_file_block_length() > 0",
    "monotonically_increasing_id() % 2 = 1",
    "spark_partition_id() >= 0",
    "rand(7) < 0.6",
    "length(uuid()) = 36",
    *(["where_it_was_read() LIKE '%part-1%'"] if has("spark_4") else []),
    "_metadata.file_block_start = 0",
    "_METADATA.file_path LIKE '%part-1%'",
]


def test_a_condition_that_depends_on_how_a_row_is_read_gives_the_rows_of_a_plain_read(any_spark, small_lake):
    if has("spark_4"):
        any_spark.sql("CREATE TEMPORARY FUNCTION where_it_was_read() RETURNS STRING RETURN input_file_name()")
    plain, lake = plain_read(any_spark, small_lake), ZoneBloom(any_spark).read(str(small_lake))
    for number, piece in enumerate(BY_READING):
        condition = f"key IN ('k-1-6', 'k-1-7', 'k-4-8', 'k-4-9') AND {piece}"
        for text in ("auto", "files", "plain"):
            assert lake.prepare(condition, method=text).method == "plain"
        if IS_DEEP or number % 3 == 0:
            expected = shown(plain.where(condition))
            assert expected, piece
            way = ("auto", "files", "plain")[number // 3 % 3]
            assert shown(lake.where(condition, method=way)) == expected, (piece, way)
        if number % 4 == 0:
            assert shown(ZoneBloom(any_spark).read(plain).where(condition)) == shown(plain.where(condition))
        for text in ("driver", "row_ranges"):
            with pytest.raises(InvalidArgumentError, match="not determined by the columns of the data set"):
                lake.where(condition, method=text)


@pytest.mark.deep
def test_a_function_of_the_users_is_evaluated_on_any_way_if_it_is_deterministic(any_spark, small_lake):
    from pyspark.sql import functions as f

    lake = ZoneBloom(any_spark).read(str(small_lake))
    sure = f.udf(lambda key: key.endswith("-7"), "boolean")
    assert lake.prepare(sure("key")).method == "driver"
    read = lake.prepare((f.col("key") == "k-1-7") & sure.asNondeterministic()("key"))
    assert read.method == "plain"
    assert read.frame.count() == 1


def test_what_columns_determine_is_pruned(any_spark, small_lake):
    lake = ZoneBloom(any_spark).read(str(small_lake))
    any_spark.range(1).selectExpr("'k-1-7' AS key").createOrReplaceTempView("wanted")
    sure = ["current_date() > '2020-01-01'", "EXISTS (SELECT 1 FROM wanted w WHERE w.key = key)", "upper(key) > 'A'"]
    reads = [lake.prepare(f"key = 'k-1-7' AND {piece}") for piece in sure]
    assert [read.plan.result.kept.zones for read in reads] == [1] * 3
    assert rows_of_each([read.frame for read in reads]) == [["('k-1-7',)"]] * 3


@pytest.mark.deep
def test_what_is_no_condition_is_refused_as_spark_refuses_it(any_spark, small_lake):
    root, zonebloom, frame = str(small_lake), ZoneBloom(any_spark), plain_read(any_spark, small_lake)
    lake = zonebloom.read(root)
    calls = (
        lake.where,
        lambda given: lake.where(given, method="row_ranges"),
        lambda given: zonebloom.explain(lake, given),
        zonebloom.read(frame).where,
        lambda given: zonebloom.search(root, given),
        lambda given: zonebloom.map_candidates(root, given, lambda batches: batches, "key string"),
    )
    for given in (None, True, 7, pc.field("key") == "k-1-7"):
        with pytest.raises(TypeError):
            frame.where(given)
        for call in calls:
            with pytest.raises(TypeError, match="a condition must be SQL text, a Column, or a predicate"):
                call(given)
    with pytest.raises(PredicateError, match="a condition must be in UTF-8"):
        lake.where("key = '\ud800'")


def test_a_lake_has_the_methods_of_a_frame(any_spark, small_lake, capsys):
    lake, frame = ZoneBloom(any_spark).read(str(small_lake)), plain_read(any_spark, small_lake)
    assert shown(lake.filter("key = 'k-1-7'")) == shown(frame.filter("key = 'k-1-7'")) != []
    assert (lake.dtypes, lake.columns, lake.count()) == (frame.dtypes, frame.columns, frame.count())
    assert lake.select("KEY").dtypes == frame.select("key").dtypes
    assert shown(lake.join(frame.where("key = 'k-1-7'"), "key", "left_semi")) == shown(frame.where("key = 'k-1-7'"))
    frame.printSchema()
    expected = capsys.readouterr().out
    lake.printSchema()
    assert capsys.readouterr().out == expected
    lake.show(1)
    assert all(f"|{name}" in capsys.readouterr().out.replace(" ", "") for name in lake.columns[:1])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("no_such_table", "must be a table of Spark's catalog, a path, .* got no_such_table; see spark.catalog"),
        ("\ud800", "a path must be a text without NUL and half surrogate pairs, and not empty, got"),
        ("default.no_such_table", "must be a table of Spark's catalog, a path, .* got default.no_such_table"),
        ("/lake/day=*", r"must name one folder or file, not a pattern, got /lake/day=\*; pass the folder above"),
        (["/tmp"], "each path of a list must be a file, got /tmp, which is none; pass a folder by itself"),
    ],
)
def test_what_names_no_data_set_is_told_what_is_possible(spark, source, message):
    with pytest.raises(ZoneBloomError, match=message):
        ZoneBloom(spark).read(source)
