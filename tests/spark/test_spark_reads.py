"""Every way to read gives the rows of Spark's own plain read, whatever the condition, the types, the names, the files.

Oracle: PySpark 4.3, `spark.read.parquet(path).where(condition)`, listed at the same moment. Lakes are pyarrow's.
"""

from __future__ import annotations

import datetime as dt
import decimal
import os
import re
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import SparkUpgradeException

import zonebloom as zb
from tests.depth import IS_DEEP, at_depth, deep_only, some
from tests.newer import has, need
from tests.spark import cluster
from tests.spark.rows import of_lake, of_plain_read, rows_of_each, shown
from zonebloom.engines.spark.executors import changed_setting
from zonebloom.engines.spark.pushdown.translate import keys_condition
from zonebloom.engines.spark.pushdown.types import CHAR
from zonebloom.engines.spark.scan.readers import escaped, local_frame, url_of
from zonebloom.errors import InvalidArgumentError, PredicateError, StaleIndexError, ZoneBloomError
from zonebloom.search.query import Query
from zonebloom.spark import ZoneBloom

PUSHDOWN = "spark.sql.parquet.filterPushdown"
"""Left on, Spark's own read loses NaN: `x = double('NaN')` is TRUE for Spark, and Parquet's statistics know no NaN."""
WAYS = ("driver", "row_ranges", "files", "plain")
MOMENT = dt.datetime(2026, 3, 29, 1, 30, tzinfo=dt.UTC)  # 02:30 in Berlin, when clocks went forward
ODD = "A b.`c"
INDEXED = [
    "user_id",
    "n",
    "i8",
    "u32",
    "u64",
    "f32",
    "f64",
    "price",
    "day_of",
    "at",
    "local_at",
    "flag",
    "raw",
    ODD,
    "s.x",
]


def make_rows(num_rows: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    numbers = random.integers(0, 40, num_rows)

    def column(values, column_type, nulls=0.1):
        return pa.array(values, column_type, mask=random.random(num_rows) < nulls, from_pandas=False)

    floats = random.choice([1.5, -2.25, np.nan, 0.0, -0.0, np.inf, 3.0], num_rows)
    return pa.table(
        {
            "user_id": column([f"u-{seed}-{n}" if n % 5 else "" for n in range(num_rows)], pa.string()),
            "n": column(numbers * 2**40 + seed, pa.int64()),
            "i8": column(numbers % 100, pa.int8()),
            "u32": column(numbers + 2**32 - 50, pa.uint32()),
            "u64": column(numbers.astype(np.uint64) + np.uint64(2**64 - 50), pa.uint64()),
            "f32": column(floats.astype(np.float32), pa.float32()),
            "f64": column(floats, pa.float64()),
            "price": column([decimal.Decimal(int(n)) / 4 for n in numbers], pa.decimal128(10, 2)),
            "day_of": column([dt.date(2026, 1, 1) + dt.timedelta(int(n)) for n in numbers], pa.date32()),
            "at": column([MOMENT + dt.timedelta(minutes=30 * int(n)) for n in numbers], pa.timestamp("us", "UTC")),
            "local_at": column(
                [MOMENT.replace(tzinfo=None) + dt.timedelta(minutes=30 * int(n)) for n in numbers], pa.timestamp("us")
            ),
            "flag": column(numbers % 2 == 0, pa.bool_()),
            "raw": column([bytes([n]) * 3 for n in numbers.tolist()], pa.binary()),
            ODD: column([f"o'{n}\\" for n in numbers], pa.string()),
            "s": pa.array(
                [{"x": int(n), "y": f"y{n}"} if n % 7 else None for n in numbers],
                pa.struct({"x": pa.int64(), "y": pa.string()}),
            ),
            "tags": pa.array([[int(n), None] for n in numbers], pa.list_(pa.int32())),
        }
    )


def write(root: Path, name: str, table: pa.Table) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=64)


@pytest.fixture(scope="module")
def hard_lake(tmp_path_factory) -> Path:
    """Partitions and folders with odd names; an empty file; a file without a column; and after the build a new file,
    a changed one and a deleted one."""
    root = tmp_path_factory.mktemp("hard") / "a b%20[c]*{d} ü"
    write(root, "day=1/city=São Paulo/p [1].parquet", make_rows(200, 1))
    write(root, "day=1/city=a%2Fb/p*2.parquet", make_rows(150, 2))
    write(root, "day=2/city=__HIVE_DEFAULT_PARTITION__/p 3.parquet", make_rows(100, 3).drop_columns(["flag", "price"]))
    write(root, "day=2/city=x'y/p'4.parquet", make_rows(120, 4))
    write(root, "day=3/city=x/empty.parquet", make_rows(0, 5))
    write(root, "day=3/city=x/changed.parquet", make_rows(90, 6))
    write(root, "day=3/city=x/deleted.parquet", make_rows(90, 7))
    zb.build_index(root, INDEXED, rows_per_zone=32, fpp=0.001)
    write(root, "day=3/city=x/changed.parquet", make_rows(95, 8))
    (root / "day=3/city=x/deleted.parquet").unlink()
    write(root, "day=4/city=new/p.parquet", make_rows(50, 9))
    return root


def plain_read(spark, root):
    return spark.read.parquet(escaped(url_of(str(root))))


def kept(lake, condition, **options):
    return lake.plan(condition, **options).result.kept


# --- which data set ---------------------------------------------------------------------------------------------------


def test_an_index_elsewhere_is_of_the_data_that_is_named(any_spark, tmp_path):
    """What it does not know is read whole, be it all."""
    for name in ("a", "b"):
        write(tmp_path / name, "p.parquet", make_rows(100, ord(name)))
    index = str(tmp_path / "index")
    zb.build_index(tmp_path / "a", "user_id", index=index, rows_per_zone=8)
    spark_side = ZoneBloom(any_spark)
    moved = str((tmp_path / "a").rename(tmp_path / "moved"))
    for path, user in ((moved, "u-97-3"), (str(tmp_path / "b"), "u-98-3"), (str(tmp_path / "b"), "u-97-3")):
        expected = shown(plain_read(any_spark, path).where(f"user_id = '{user}'"))
        lake = spark_side.read(path, index=index)
        assert shown(lake.where(f"user_id = '{user}'")) == expected, (path, user)
        keys = any_spark.createDataFrame([(user,)], "user_id string")
        assert spark_side.prune_join(path, keys, "user_id", index=index).count() == len(expected), (path, user)
        kept = spark_side.explain(path, f"user_id = '{user}'", index=index).plan.result.kept
        assert kept.rows == (8 if path == moved else 100), path
    files = [str(tmp_path / "b/p.parquet")]
    assert spark_side.read(files, index=index).where("user_id = 'u-98-3'").count() == 1


# --- conditions -------------------------------------------------------------------------------------------------------

LEAVES = [
    "user_id = 'u-1-{a}'",
    "user_id = 'u-{s}-{a}'",
    "USER_ID IN ('u-1-{a}', 'u-{s}-{b}', 'nobody')",
    "'u-{s}-{a}' = user_id",
    "user_id <=> 'u-{s}-{a}'",
    "user_id <=> NULL",
    "user_id = 'u-1-{a}' AND 'a' < user_id",
    "user_id = 'u-1-{a}' AND flag IS NOT TRUE",
    "user_id = 'u-1-{a}' AND user_id IS DISTINCT FROM NULL",
    "user_id = ''",
    "user_id IS NULL",
    "user_id IS NOT NULL",
    "user_id != 'u-1-1'",
    "user_id NOT IN ('u-1-1', NULL)",
    "user_id = NULL",
    "lower(user_id) = 'u-{s}-{a}'",
    "n = {big}",
    "n IN ({big}, 5L, -3)",
    "n = {big}.0",
    "n BETWEEN 5 AND {big}",
    "n = '{big}'",
    "i8 = {a}",
    "i8 = 300",
    "i8 = {a}.5",
    "u32 = {u32}",
    "u64 = {u64}",
    "f32 = 1.5",
    "f32 = 1.5D",
    "f32 = 0",
    "f64 = 0.0",
    "f64 = -0.0",
    "f64 IN (-2.25, 3)",
    "f64 = double('NaN')",
    "isnan(f64)",
    "price = {a}.25",
    "price = {a}",
    "price = {a}.255",
    "day_of = DATE '2026-01-{d:02}'",
    "day_of = '2026-01-{d:02}'",
    "day_of = '2026-1-{d}'",
    "day_of IN ('2026-01-{d:02}', '2026-02-01')",
    "at = TIMESTAMP '2026-03-29 0{h}:30:00'",
    "at = TIMESTAMP '2026-03-29 0{h}:30:00+00:00'",
    "at = '2026-03-29 0{h}:30:00'",
    "local_at = TIMESTAMP_NTZ '2026-03-29 0{h}:30:00'",
    "local_at = TIMESTAMP '2026-03-29 0{h}:30:00'",
    "flag",
    "NOT flag",
    "flag = true",
    "raw = X'{x}{x}{x}'",
    "raw = 'aaa'",
    "`A b.``c` = 'o\\'{a}\\\\'",
    "`A b.``c` = 'o''{a}\\\\'",
    "s.x = {a}",
    "s.x IS NULL",
    "s.y = 'y{a}'",
    "day = {p}",
    "city = 'x'",
    "city = 'a/b'",
    "city = 'São Paulo'",
    "city IS NULL",
    "CASE WHEN i8 = {a} AND flag THEN true ELSE false END",
    "array_contains(tags, {a})",
]


def test_each_leaf_gives_the_rows_of_a_plain_read(spark, hard_lake):
    """Each form once, with a value that is there where there is one, in a time zone with summer time.

    Conditions of several forms are those of test_spark_splits.py.
    """
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        check_each_leaf(spark, hard_lake)
    finally:
        spark.conf.unset("spark.sql.session.timeZone")


def check_each_leaf(spark, hard_lake):
    lake, plain = ZoneBloom(spark).read(str(hard_lake)), plain_read(spark, hard_lake)
    values = {"a": 8, "b": 11, "s": 2, "d": 9, "h": 8, "p": 2, "x": "08", "big": 8 * 2**40 + 2}
    leaves = some(LEAVES, each=6)
    leaf_of = {leaf.format(**values, u32=8 + 2**32 - 50, u64=8 + 2**64 - 50): leaf for leaf in leaves}
    expected = of_plain_read(plain, list(leaf_of))
    for way in ("auto", "row_ranges", "files"):
        asked = [value for value in expected if way == "auto" or "NaN" not in value]  # see PUSHDOWN
        asked = asked if way == "auto" else some(asked, 3)
        rows = of_lake(lake, asked, way)
        for condition in asked:
            assert rows[condition] == expected[condition], (condition, way)
    everything = kept(lake, "true").rows
    pruned = {leaf for condition, leaf in leaf_of.items() if kept(lake, condition).rows < everything}
    must_prune = [
        leaf
        for leaf in leaves
        if re.match(
            r"(?i)user_id (=|<=>|in|is null)|'u-|n (=|in) .?\{|i8 = (\{a\}|300)$|u32|u64|price = \{a\}(.25)?$", leaf
        )
        and not leaf.startswith(("n = {big}.0", "n = '", "user_id = ''"))
    ]
    assert set(must_prune) - pruned == set()
    assert not pruned & {
        "lower(user_id) = 'u-{s}-{a}'",
        "n = '{big}'",
        "f64 = double('NaN')",
        "raw = 'aaa'",
        "s.y = 'y{a}'",
    }


# --- columns and predicates -------------------------------------------------------------------------------------------


def test_columns_and_predicates_are_understood(any_spark, hard_lake):
    from pyspark.sql import functions as f

    lake, plain = ZoneBloom(any_spark).read(str(hard_lake)), plain_read(any_spark, hard_lake)
    everything = kept(lake, "true").rows
    quoted = f.col("`A b.``c`")
    conditions = [
        f.col("user_id") == "u-1-3",
        (f.col("user_id") == "u-1-3") & (f.col("day") == 1),
        f.col("user_id").isin("u-1-3", "u-2-4"),
        f.col("user_id").isNull() & (f.col("n") == 3 * 2**40 + 1),
        f.col("price") == decimal.Decimal("2.25"),
        f.col("day_of") == dt.date(2026, 1, 9),
        f.col("at") == MOMENT + dt.timedelta(minutes=240),
        f.col("s.x") == 8,
        quoted == "o'8\\",
        f.expr("user_id = 'u-1-3' AND flag"),
        f.col("user_id").eqNullSafe("u-1-3"),
    ]
    for condition in some(conditions, 3):
        assert kept(lake, condition).rows < everything, str(condition)
    whole = [f.lower("user_id") == "u-1-3", ~(f.col("user_id") == "u-1-3"), f.col("user_id") == f.col("city")]
    for condition in whole:
        assert kept(lake, condition).rows == everything
    column = zb.col("user_id")
    predicates = [
        (column == "u-1-3", "user_id = 'u-1-3'"),
        ((column == "u-1-3") | column.is_null(), "user_id = 'u-1-3' OR user_id IS NULL"),
        (column.isin(["u-1-3", "o'\\"]) & ~(zb.col("n") == 5), "user_id = 'u-1-3' AND NOT n = 5"),
        (zb.col("at") == MOMENT, "at = TIMESTAMP '2026-03-29 01:30:00+00:00'"),
        (zb.col("local_at") == MOMENT.replace(tzinfo=None, hour=4), "local_at = TIMESTAMP_NTZ '2026-03-29 04:30:00'"),
        (zb.col("u64") == 2**64 - 42, f"u64 = {2**64 - 42}"),
        (zb.col("raw") == b"\x08\x08\x08", "raw = X'080808'"),
        (zb.col("s.x") == 8, "s.x = 8"),
        (zb.col(ODD) == "o'8\\", "`A b.``c` = 'o\\'8\\\\'"),
    ]
    for predicate, text in predicates:
        assert kept(lake, predicate).rows < everything, text
    pairs = [*((condition, condition) for condition in conditions + whole), *predicates]
    pruned = rows_of_each([lake.where(ours) for ours, _ in pairs])
    expected = rows_of_each([plain.where(theirs) for _, theirs in pairs])
    for (ours, _), rows, wanted in zip(pairs, pruned, expected, strict=True):
        assert rows == wanted, str(ours)


def test_integers_of_64_bits_are_evaluated(any_spark, tmp_path):
    numbers = [2**63 - 1, -(2**63 - 1), 4109125379036153425, -4109125379036153425, -(2**63)]
    for number in numbers:
        write(tmp_path, f"{number}.parquet", pa.table({"n": [number]}))
    zb.build_index(tmp_path, ["n"])
    lake, plain = ZoneBloom(any_spark).read(str(tmp_path)), plain_read(any_spark, tmp_path)
    asked = [
        f"n {comparison}" for n in [*numbers, 2**63] for comparison in (f"= {n}", f"IN ({n}, 4109125379036153426)")
    ]
    assert of_lake(lake, asked, "auto") == of_plain_read(plain, asked)
    assert all(kept(lake, f"n = {number}").files == 1 for number in numbers[:4])


@deep_only
def test_a_text_that_looks_like_a_column_is_one_or_the_other(any_spark, tmp_path):
    """Columns print texts and names alike on Connect: Spark says which was meant."""
    from pyspark.sql import functions as f

    write(tmp_path, "a.parquet", pa.table({"a": ["b", "x"], "b": ["q", "x"]}))
    write(tmp_path, "b.parquet", pa.table({"a": ["z", "z) OR =(a, x"], "b": ["z", "y"]}))
    zb.build_index(tmp_path, ["a", "b"])
    lake, plain = ZoneBloom(any_spark).read(str(tmp_path)), plain_read(any_spark, tmp_path)
    asked = [
        f.col("a") == "b",
        f.col("a") == f.col("b"),
        f.col("a") == "z) OR =(a, x",
        (f.col("a") == "z") | (f.col("a") == "x, y"),
        f.col("a").isin("b, x", "z"),
    ]
    expected = rows_of_each([plain.where(value) for value in asked])
    for way in WAYS:
        assert rows_of_each([lake.where(value, method=way) for value in asked]) == expected, way


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


@deep_only
def test_settings_of_the_parser_lose_no_row(spark, tmp_path):
    values = ["b", "it's", "its", "x\n", "x\\n", "1", "01", "B", "n", "x", "is", "xn"]
    for number, literal in enumerate(values):
        write(tmp_path, f"{number}.parquet", pa.table({"a": [literal], "b": [literal if number % 2 else "b"]}))
    zb.build_index(tmp_path, ["a", "b"])
    lake, plain = ZoneBloom(spark).read(str(tmp_path)), plain_read(spark, tmp_path)
    for number, (setting, value, condition) in enumerate(SETTINGS):
        spark.conf.set(setting, value)
        try:
            ways = [way for way in WAYS[:3] if way != WAYS[number % 3]]
            expected, *actual = rows_of_each(
                [plain.where(condition), *(lake.where(condition, method=way) for way in ways)]
            )
        finally:
            spark.conf.unset(setting)
        for way, rows in zip(ways, actual, strict=True):
            assert rows == expected, (setting, value, condition, way)


def test_a_column_whose_name_may_be_a_function_loses_no_row(spark, tmp_path):
    me = spark.sql("SELECT current_user()").collect()[0][0]
    write(tmp_path, "a.parquet", pa.table({"user": ["a", "b"]}))
    write(tmp_path, "b.parquet", pa.table({"user": [me, "c"]}))
    zb.build_index(tmp_path, ["user"])
    lake, plain = ZoneBloom(spark).read(str(tmp_path)), plain_read(spark, tmp_path)
    for reserved in ("true", "false"):
        spark.conf.set("spark.sql.ansi.enforceReservedKeywords", reserved)
        try:
            asked = [f"user = '{me}'", f"`user` = '{me}'", f"user IN ('{me}', 'x')"]
            assert of_lake(lake, asked, "auto") == of_plain_read(plain, asked), reserved
        finally:
            spark.conf.unset("spark.sql.ansi.enforceReservedKeywords")
    assert kept(lake, "`user` = 'a'").files == 1


@deep_only
def test_nan_as_a_literal_is_found_on_each_way(any_spark, tmp_path):
    """To Spark NaN equals NaN, to Arrow it equals nothing."""
    from pyspark.sql import functions as f

    nan = float("nan")
    for number, values in enumerate([[1.5, 2.0], [nan, 3.0]]):
        write(tmp_path, f"{number}.parquet", pa.table({"f": values, "g": pa.array(values, pa.float32())}))
    zb.build_index(tmp_path, ["f", "g"])
    any_spark.conf.set(PUSHDOWN, "false")
    try:
        lake = ZoneBloom(any_spark).read(str(tmp_path))
        asked = [
            (f.col("f") == nan, 1),
            (f.col("g") == nan, 1),
            (f.col("f").eqNullSafe(nan), 1),
            (f.col("f").isin(nan, 1.5), 2),
            (~(f.col("f") == nan), 3),
            (zb.col("f") == nan, 1),
            (zb.col("f").isin([nan, 1.5]), 2),
            (~zb.col("f").isin([nan]), 3),
        ]
        for way in WAYS:
            on_way = asked if way == "driver" else asked[::3]
            pruned = rows_of_each([lake.where(condition, method=way) for condition, _ in on_way])
            assert [len(rows) for rows in pruned] == [count for _, count in on_way], way
    finally:
        any_spark.conf.unset(PUSHDOWN)


def test_collated_and_padded_columns_are_kept_whole(spark, tmp_path):
    need("spark_4")
    root = tmp_path / "lake"
    frame = spark.sql("SELECT 'a' COLLATE UTF8_LCASE AS c, 'a    ' AS p").withMetadata("p", {CHAR: "char(5)"})
    frame.write.parquet(url_of(str(root)))
    zb.build_index(root, ["c", "p"])
    lake, plain = ZoneBloom(spark).read(str(root)), plain_read(spark, root)
    asked = ["c = 'A'", "p = 'a'", "p = 'a    '"]
    rows = of_lake(lake, asked, "auto")
    assert rows == of_plain_read(plain, asked)
    assert [len(rows[condition]) for condition in asked] == [1, 1, 1]
    assert [ZoneBloom(spark).search(str(root), condition).kept.rows for condition in asked] == [1, 1, 1]


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_lake(tmp_path) -> Path:
    root = tmp_path / "small"
    for number in range(6):
        write(root, f"part-{number}.parquet", pa.table({"key": [f"k-{number}-{n}" for n in range(200)]}))
    zb.build_index(root, ["key"], rows_per_zone=50)
    return root


def test_a_batch_may_have_no_limit_of_rows(any_spark, small_lake):
    any_spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "0")
    try:
        assert ZoneBloom(any_spark).read(str(small_lake)).where("key = 'k-1-7'", method="driver").count() == 1
    finally:
        any_spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def test_new_changed_and_deleted_files_give_exact_answers(any_spark, small_lake):
    lakes = [ZoneBloom(any_spark).read(str(small_lake), method=way) for way in ("auto", *WAYS)]
    condition = "key IN ('k-1-7', 'new', 'k-2-5', 'k-3-5')"
    assert list(map(len, rows_of_each([lake.where(condition) for lake in lakes]))) == [3] * len(lakes)
    write(small_lake, "part-9.parquet", pa.table({"key": ["new", "other"]}))
    write(small_lake, "part-2.parquet", pa.table({"key": ["k-1-7", "k-8-8"]}))
    (small_lake / "part-3.parquet").unlink()
    rows = rows_of_each(
        [plain_read(any_spark, small_lake).where(condition), *(lake.where(condition) for lake in lakes)]
    )
    assert len(rows[0]) == 3
    assert rows == [rows[0]] * len(rows)


@pytest.mark.parametrize("way", ["driver", "files"])
def test_files_that_change_between_listing_and_read_lose_no_row(spark, small_lake, way, monkeypatch):
    """The candidate is overwritten, a file that cannot match is too, one comes and one goes after the search."""
    lake = ZoneBloom(spark).read(str(small_lake), method=way)
    lake.where("key = 'k-1-7'").collect()
    searched = lake._planned
    calls = []

    def planned(*arguments, **options):
        plan = searched(*arguments, **options)
        if not calls:
            write(small_lake, "part-1.parquet", pa.table({"key": ["k-1-7", "again"]}))
            write(small_lake, "part-2.parquet", pa.table({"key": ["k-1-7", "x", "y"]}))
            write(small_lake, "part-7.parquet", pa.table({"key": ["k-1-7"]}))
        calls.append(plan)
        return plan

    monkeypatch.setattr(lake, "_planned", planned)
    num_rows = len(shown(lake.where("key = 'k-1-7'")))
    assert num_rows >= {"driver": 3, "files": 1}[way]
    assert len(shown(lake.where("key = 'k-1-7'"))) == 3


def test_a_candidate_that_vanishes_is_listed_anew(spark, small_lake, monkeypatch):
    for way in ("driver", "files"):
        lake = ZoneBloom(spark).read(str(small_lake), method=way)
        searched, gone = lake._planned, small_lake / f"part-{len(way) % 6}.parquet"

        def planned(*arguments, gone=gone, searched=searched, **options):
            plan = searched(*arguments, **options)
            gone.unlink(missing_ok=True)
            return plan

        monkeypatch.setattr(lake, "_planned", planned)
        name = gone.stem.removeprefix("part-")
        assert shown(lake.where(f"key = 'k-{name}-7'")) == []


def test_an_old_frame_reads_files_that_changed_since(spark, small_lake):
    frame = plain_read(spark, small_lake)
    write(small_lake, "part-2.parquet", pa.table({"key": ["k-1-7", "x", "y"]}))
    assert len(shown(ZoneBloom(spark).read(frame).where("key = 'k-1-7'"))) == 2
    zb.open_index(small_lake).refresh()
    frame = plain_read(spark, small_lake)
    write(small_lake, "part-3.parquet", pa.table({"key": ["k-1-7", "x", "y", "z"]}))
    zb.open_index(small_lake).refresh()
    assert len(shown(ZoneBloom(spark).read(frame).where("key = 'k-1-7'"))) == 3


def test_files_that_spark_skips_are_skipped(spark, tmp_path):
    flat, keyed = tmp_path / "flat", tmp_path / "keyed"
    for root in (flat, keyed):
        inner = "day=1/" if root is keyed else ""
        write(root, f"{inner}a.parquet", pa.table({"key": ["a", "x"]}))
        write(root, f"{inner}c.parquet._COPYING_", pa.table({"key": ["c", "x"]}))
    write(flat, "nested/b.parquet", pa.table({"key": ["b", "x"]}))
    write(flat, "none.parquet", pa.table({"key": pa.array([], pa.string())}))
    write(keyed, "d.parquet", pa.table({"key": ["d", "x"]}))
    for root in (flat, keyed):
        zb.build_index(root, ["key"])
        (flat / "void.parquet").touch()
        lake, plain = ZoneBloom(spark).read(str(root)), plain_read(spark, root)
        asked = ["key = 'a'", "key = 'b'", "key = 'c'", "key = 'd'", "key = 'x'"]
        expected = of_plain_read(plain, asked)
        for way in ("auto", "files", "plain"):
            assert of_lake(lake, asked, way) == expected, way


@deep_only
def test_files_that_the_log_of_a_stream_does_not_name_are_skipped(spark, tmp_path):
    """A stream that is killed leaves files of a batch; its next run writes these rows once more."""
    source, root = tmp_path / "source", tmp_path / "a %20 lake"
    write(source, "a.parquet", pa.table({"key": [f"k-{number}" for number in range(300)]}))
    stream = spark.readStream.schema("key string").parquet(str(source)).writeStream.trigger(availableNow=True)
    stream.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(root), "parquet").awaitTermination()
    write(root, "left.parquet", pa.table({"key": ["k-7", "left"]}))
    zb.build_index(root, ["key"], rows_per_zone=64)
    lake, asked = ZoneBloom(spark).read(str(root)), ["key IN ('k-7', 'left')", "key != 'k-7'"]
    expected = of_plain_read(plain_read(spark, root), asked)
    assert [len(rows) for rows in expected.values()] == [1, 299]
    for way in ("auto", *WAYS):
        assert of_lake(lake, asked, way) == expected, way
    assert len(lake.plan("key = 'k-7'").paths) == 1


def test_one_file_and_a_list_of_files(spark, tmp_path):
    names = [f"day={n}/p {n}.parquet" for n in range(3)]
    for number, name in enumerate(names):
        write(tmp_path, name, pa.table({"key": [f"k-{number}", "x"]}))
    file = tmp_path / names[0]
    zb.build_index(file, ["key"])
    lake = ZoneBloom(spark).read(str(file))
    assert lake.columns == ["key"]
    assert list(map(len, rows_of_each([lake.where("key = 'k-0'", method=way) for way in WAYS]))) == [1] * len(WAYS)
    zb.build_index([tmp_path / name for name in names[:2]], ["key"], index=tmp_path / "_index")
    lake = ZoneBloom(spark).read([str(tmp_path / name) for name in names[:2]], index=str(tmp_path / "_index"))
    assert lake.columns == ["key", "day"]
    frames = [lake.where("key IN ('k-1', 'k-2')", method=way).select("day") for way in WAYS]
    assert rows_of_each(frames) == [["(1,)"]] * len(WAYS)


def test_many_candidates_are_read_without_a_setting_of_the_session(spark, tmp_path):
    for number in range(70):
        write(tmp_path, f"p-{number:03}.parquet", pa.table({"key": [f"k-{number}", f"odd {number % 2}"]}))
    zb.build_index(tmp_path, ["key"])
    lake = ZoneBloom(spark).read(str(tmp_path), method="files")
    name = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
    before = spark.conf.get(name)
    assert lake.where("key = 'odd 1'").count() == 35
    assert spark.conf.get(name) == before


# --- types ------------------------------------------------------------------------------------------------------------


def test_each_way_has_the_schema_of_a_plain_read(any_spark, hard_lake):
    lake, plain = ZoneBloom(any_spark).read(str(hard_lake)), plain_read(any_spark, hard_lake)
    frames = [lake.where("user_id = 'u-1-3'", method=way) for way in WAYS]
    assert [frame.schema for frame in frames] == [plain.schema] * len(WAYS)
    assert list(map(len, rows_of_each(frames))) == [1] * len(WAYS)
    assert lake.where("user_id = 'nobody'").schema == plain.schema


@pytest.mark.parametrize("layout", some(["keys", "flat", "merged", "summary", "copied"], 3))
def test_the_schema_of_many_files_is_that_of_a_plain_read(spark, tmp_path, layout):
    """Of many files few give the schema: Spark takes the first file's columns, and types of keys from all folders."""
    for number in range(40):
        folder = f"day={'x' if number > 38 else number % 3 + 1}/" if layout == "keys" else ""
        rows = pa.table({"key": [f"k-{number}"], "n": [number], "more": [1.5]})
        write(tmp_path, f"{folder}p-{number:02}.parquet", rows if number else rows.select(["n", "key"]))
    zb.build_index(tmp_path, ["key"])
    if layout == "summary":
        pq.write_metadata(pa.schema({"key": pa.string(), "summed": pa.int64()}), tmp_path / "_common_metadata")
    if layout == "copied":
        (tmp_path / "a.parquet._COPYING_").write_bytes(b"half")
        (tmp_path / "below").mkdir()
        write(tmp_path, "below/p.parquet", pa.table({"key": ["k"], "lower": [1]}))
    spark.conf.set("spark.sql.parquet.mergeSchema", str(layout == "merged").lower())
    try:
        lake, plain = ZoneBloom(spark).read(str(tmp_path)), plain_read(spark, tmp_path)
        assert lake.schema == plain.schema
        assert ("summed" in lake.columns, "more" in lake.columns) == (layout == "summary", layout == "merged")
        jobs = num_jobs(spark, lambda: ZoneBloom(spark).read(str(tmp_path)).schema)
        assert jobs <= num_jobs(spark, lambda: plain_read(spark, tmp_path).schema)
        assert shown(lake.where("key = 'k-7'")) == shown(plain.where("key = 'k-7'"))
    finally:
        spark.conf.unset("spark.sql.parquet.mergeSchema")


def test_old_dates_that_spark_moves_not_and_int96_are_read_as_spark_reads_them(spark, tmp_path):
    for name, column, options in [
        ("dates", pa.array([dt.date(1500, 1, 1), dt.date(2026, 1, 1)]), {}),
        ("times", pa.array([0, -(5 * 10**15)], pa.timestamp("us", "UTC")), {}),
        ("int96", pa.array([0, 10**15], pa.timestamp("us")), {"use_deprecated_int96_timestamps": True}),
    ]:
        root = tmp_path / name
        root.mkdir()
        pq.write_table(pa.table({"key": ["a", "a"], "at": column}), root / "p.parquet", **options)
        zb.build_index(root, ["key"])
        lake, plain = ZoneBloom(spark).read(str(root)), plain_read(spark, root)
        read = lake.prepare("key = 'a'")
        ours, theirs = rows_of_each([read.frame, plain.where("key = 'a'")])
        assert ours == theirs, name
        assert read.method == "driver", name


def test_old_dates_that_spark_is_to_refuse_are_refused(spark, tmp_path):
    table = pa.table({"key": ["a", "b"], "at": [dt.date(1500, 1, 1), dt.date(2026, 1, 1)]})
    pq.write_table(table, tmp_path / "p.parquet")
    zb.build_index(tmp_path, ["key"])
    setting = "spark.sql.parquet.datetimeRebaseModeInRead"
    spark.conf.set(setting, "EXCEPTION")
    try:
        for frame in (plain_read(spark, tmp_path), ZoneBloom(spark).read(str(tmp_path))):
            with pytest.raises((SparkUpgradeException, Py4JJavaError), match="READ_ANCIENT_DATETIME"):  # in 3.5 py4j's
                frame.where("key = 'a'").collect()
        own = str(tmp_path / "own")  # Spark marks its own files, and so reads all their dates
        spark.sql("SELECT 'a' AS key, DATE'1500-01-01' AS at").write.parquet(f"file://{own}")
        zb.build_index(own, ["key"])
        read = ZoneBloom(spark).read(own).prepare("key = 'a'")
        assert (read.method, read.frame.collect()[0].at) == ("driver", dt.date(1500, 1, 1))
    finally:
        cluster.reset(spark, setting)


def test_lists_of_old_dates_prune_nothing(spark, tmp_path):
    for number, day in enumerate([dt.date(1500, 1, 1), dt.date(2026, 1, 1)]):
        pq.write_table(pa.table({"at": pa.array([day] * 3)}), tmp_path / f"{number}.parquet")
    zb.build_index(tmp_path, ["at"])
    lake = ZoneBloom(spark).read(str(tmp_path))
    for day, files in ((dt.date(1500, 1, 1), 2), (dt.date(2026, 1, 1), 1)):
        assert lake.where_in("at", [day]).count() == 3
        view, binder = lake._present()
        condition = keys_condition(("at",), pa.array([day]), binder)
        assert Query(view, condition.predicate).result.kept.files == files


def test_a_local_relation_keeps_the_rows_after_an_empty_batch(any_spark):
    from pyspark.sql.types import LongType, StructField, StructType

    chunks = pa.chunked_array([[1, 2], pa.array([], pa.int64()), [3]], pa.int64())
    table = pa.table({"x": chunks})
    assert table.column(0).num_chunks == 3
    assert local_frame(any_spark, table, StructType([StructField("x", LongType())])).count() == 3


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
    spark.conf.set("spark.sql.files.openCostInBytes", str(1 << 30))  # a file to each partition
    spark.conf.set("spark.sql.files.minPartitionNum", "1")
    try:
        assert plain_read(spark, small_lake).rdd.getNumPartitions() == 6
        assert frame.rdd.getNumPartitions() == 1
    finally:
        spark.conf.unset("spark.sql.files.openCostInBytes")
        spark.conf.unset("spark.sql.files.minPartitionNum")


@pytest.mark.parametrize(("way", "num_keys"), [("auto", 3000), ("files", 3000), ("plain", at_depth(100_000, 20_000))])
def test_long_lists_get_no_literal_into_the_plan(any_spark, small_lake, way, num_keys, capsys):
    keys = [f"k-1-{n}" for n in range(100, 100 + num_keys)]
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
    for frame in [ask() for ask in asked[:: 1 if way == "auto" else 2]]:
        capsys.readouterr()
        frame.explain("extended")
        assert len(capsys.readouterr().out) < 20_000
        assert frame.count() == 100


def test_long_lists_elsewhere_are_refused_or_left_to_spark(spark, small_lake):
    keys = [f"k-1-{n}" for n in range(2000)]
    lake = ZoneBloom(spark).read(str(small_lake))
    with pytest.raises(PredicateError, match="long lists"):
        lake.where(zb.col("key").isin(keys) | (zb.col("key") == "a"))
    with pytest.raises(PredicateError, match="type of column"):
        lake.where_in("key", range(5))
    assert lake.where(f"NOT key IN ({', '.join(map(repr, keys))})").count() == 1000


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


def test_a_new_version_of_the_index_is_used(spark, small_lake):
    lake = ZoneBloom(spark).read(str(small_lake))
    lake._looked = float("-inf")
    write(small_lake, "part-9.parquet", pa.table({"key": ["new"] * 10}))
    assert lake.plan("key = 'k-1-7'").view.num_unknown == 1
    zb.open_index(small_lake).refresh()
    lake._looked = float("-inf")
    assert lake.plan("key = 'k-1-7'").view.num_unknown == 0


def test_strict_refuses_files_that_the_index_does_not_know(spark, small_lake):
    lake = ZoneBloom(spark).read(str(small_lake))
    assert lake.where("key = 'k-1-7'", strict=True).count() == 1
    write(small_lake, "part-9.parquet", pa.table({"key": ["new"]}))
    with pytest.raises(StaleIndexError, match=r"part-9\.parquet"):
        lake.where("key = 'k-1-7'", strict=True)


# --- prune, explain ---------------------------------------------------------------------------------------------------


def test_prune_takes_a_plain_scan_and_nothing_else(any_spark, small_lake):
    from pyspark.sql import functions as f

    frame = plain_read(any_spark, small_lake)
    lake = ZoneBloom(any_spark).read(frame)
    assert lake.where("key = 'k-1-7'").count() == 1
    assert lake.where(frame.key == "k-1-7").count() == 1
    assert lake.prepare(frame.key == "k-1-7").plan.result.kept.zones == 1
    assert ZoneBloom(any_spark).read(any_spark.read.parquet(f"{url_of(str(small_lake))}/")).columns == frame.columns
    write(small_lake, "part-2.parquet", pa.table({"key": ["k-1-7", "x", "y"]}))
    for derived in [
        frame.where("key > 'a'"),
        frame.select(f.lower("key").alias("key")),
        frame.withColumnRenamed("key", "other"),
        frame.withColumn("key", f.lit("k-1-7")),
        frame.limit(5),
        frame.union(frame),
        any_spark.read.option("mergeSchema", "true").parquet(escaped(url_of(str(small_lake)))),
    ]:
        with pytest.raises(InvalidArgumentError, match="plain scan"):
            ZoneBloom(any_spark).read(derived)


def test_explain_says_what_is_read_and_why(any_spark, small_lake):
    lake = ZoneBloom(any_spark).read(str(small_lake))
    told = ZoneBloom(any_spark).explain(lake, "key = 'k-1-7'")
    assert re.search(r"files +1 +6 +16.7%", str(told))
    assert told.to_dict()["method"] == "driver"
    rows = {row.part: row for row in told.to_df().collect()}
    assert (rows["files"].kept, rows["files"].total) == (1, 6)
    assert (rows["zones"].kept, rows["zones"].total) == (1, 24)
    assert rows["method"].code == "driver"
    write(small_lake, "part-9.parquet", pa.table({"key": ["new"]}))
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
        if number % 5 == 0:
            assert shown(ZoneBloom(any_spark).read(plain).where(condition)) == shown(plain.where(condition))
        for text in ("driver", "row_ranges"):
            with pytest.raises(InvalidArgumentError, match="not determined by the columns of the data set"):
                lake.where(condition, method=text)


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
    for piece in sure:
        assert kept(lake, f"key = 'k-1-7' AND {piece}").zones == 1
        assert lake.where(f"key = 'k-1-7' AND {piece}").count() == 1


@pytest.mark.parametrize("given", [None, True, 7, pc.field("key") == "k-1-7"])
def test_what_is_no_condition_is_refused_as_spark_refuses_it(any_spark, small_lake, given):
    frame, lake, zonebloom = (
        plain_read(any_spark, small_lake),
        ZoneBloom(any_spark).read(str(small_lake)),
        ZoneBloom(any_spark),
    )
    calls = (
        lake.where,
        lambda given: lake.where(given, method="row_ranges"),
        lambda given: ZoneBloom(any_spark).explain(lake, given),
        ZoneBloom(any_spark).read(frame).where,
        lambda given: zonebloom.search(str(small_lake), given),
        lambda given: zonebloom.map_candidates(str(small_lake), given, lambda batches: batches, "key string"),
    )
    with pytest.raises(TypeError):
        frame.where(given)
    for call in calls:
        with pytest.raises(TypeError, match="a condition must be SQL text, a Column, or a predicate"):
            call(given)


def test_a_long_list_with_escapes_is_sparks_alone(spark, small_lake):
    listed = ", ".join(["'k-1-7'", *(rf"'x\{n}'" for n in range(80))])
    condition = f"key IN ({listed}) AND input_file_name() LIKE '%.parquet'"
    read = ZoneBloom(spark).read(str(small_lake)).prepare(condition)
    assert read.method == "plain"
    assert read.frame.count() == 1


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
        ("default.no_such_table", "must be a table of Spark's catalog, a path, .* got default.no_such_table"),
        ("/lake/day=*", r"must name one folder or file, not a pattern, got /lake/day=\*; pass the folder above"),
        (["/tmp"], "each path of a list must be a file, got /tmp, which is none; pass a folder by itself"),
    ],
)
def test_what_names_no_data_set_is_told_what_is_possible(spark, source, message):
    with pytest.raises(ZoneBloomError, match=message):
        ZoneBloom(spark).read(source)
