"""A lake as a table: tables of the catalog, frames, columns, and queries whose scans are pruned as Spark proves.

Oracle: PySpark 4.3, the same query over the same files by `spark.sql`.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import zonebloom
from tests.depth import some
from tests.newer import has
from tests.spark.cluster import changed
from tests.spark.rows import rows_of_each, shown, write
from zonebloom.engines.spark import frames as scanned, sql as queries
from zonebloom.engines.spark.pushdown import implied
from zonebloom.engines.spark.pushdown.implied import explained, implies, opaque
from zonebloom.errors import ColumnNotFoundError, InvalidArgumentError
from zonebloom.spark import ZoneBloom

ROWS, ZONE = 2000, 50


def rows_of(number: int) -> dict:
    return {"u": [f"{number}-{row}" for row in range(ROWS)], "r": np.arange(ROWS)}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files with INT96 times, as Spark writes them by default, in folders of dates."""
    folder = tmp_path_factory.mktemp("sql") / "events"
    for number, day in enumerate(("2024-01-01", "2024-01-02")):
        times = [dt.datetime(2020, 1, 1) + dt.timedelta(seconds=row) for row in range(ROWS)]  # noqa: DTZ001 - as INT96
        rows = {**rows_of(number), "at": times, "pad": ["x" * 50] * ROWS}
        write(folder / f"day={day}/a.parquet", rows, use_deprecated_int96_timestamps=True)
    zonebloom.build_index(folder, ["u", "r"], rows_per_zone=ZONE, fpp=1e-5)
    return folder


# --- conditions -------------------------------------------------------------------------------------------------------


@pytest.mark.deep
def test_several_conditions_all_hold(any_spark, root):
    from pyspark.sql import functions as f

    lake, is_it = ZoneBloom(any_spark).read(str(root)), f.col("u") == "0-7"
    several = lake.where("r > 5", is_it, zonebloom.col("r") == 7)
    assert shown(several) == shown(any_spark.read.parquet(str(root)).where(is_it))
    assert lake.prepare("r > 5", is_it).plan.result.kept.rows <= ZONE
    with pytest.raises(TypeError, match="a condition must be given, got none"):
        lake.where()


@pytest.mark.deep
def test_a_condition_is_implied_only_where_spark_proves_it(any_spark, root):
    from pyspark.sql import functions as f

    base = opaque(any_spark, any_spark.read.parquet(str(root)).schema)
    u, r = f.col("u"), f.col("r")
    other = u == "a"
    assert implies(base, other & (r > 5) & (f.upper(u) == "A"), other)
    for given in (u == "b", other | (r > 5), ~other, r > 5, u == "a) AND (u = a", u.isNull(), f.lower(u) == "a"):
        assert not implies(base, given, other), str(given)


def test_a_condition_that_prunes_nothing_is_warned_of_once(spark, root):
    lake = ZoneBloom(spark).read(str(root))
    with pytest.warns(RuntimeWarning, match=r"must compare indexed columns .* got lower\(u\) = 'x'") as caught:
        _ = [lake.where("lower(u) = 'x'"), lake.where("lower(u) = 'y'")]
    assert [warning.filename for warning in caught if warning.category is RuntimeWarning] == [__file__]


# --- columns and sizes ------------------------------------------------------------------------------------------------


def test_columns_that_are_asked_for_are_all_that_is_read(any_spark, root):
    zb, condition = ZoneBloom(any_spark), "u = '1-7'"
    plain = any_spark.read.parquet(str(root))
    lake = zb.read(str(root)).select("day", "at")
    assert lake.columns == zb.read(str(root), columns=["day", "at"]).columns == ["day", "at"]
    methods = ("auto", "driver", "row_ranges", "files", "plain")
    frames = [lake.prepare(condition, method=method).frame for method in methods]
    assert [frame.columns for frame in frames] == [["day", "at"]] * 5
    whole = [frame.where("at < TIMESTAMP '2020-01-01 00:00:09'") for frame in (plain.select("day", "at"), lake.toDF())]
    expected, *rows, theirs, ours = rows_of_each([plain.where(condition).select("day", "at"), *frames, *whole])
    assert rows == [expected] * 5
    assert ours == theirs
    read = lake.prepare(condition)
    assert read.method == "driver"
    assert lake._read_schema(read.plan.condition).names == ["u", "at", "day"]
    with pytest.raises(ColumnNotFoundError, match="nothing"):
        lake.select("nothing")


def test_only_columns_that_are_read_are_considered(spark, tmp_path):
    """Spark moves dates of the old calendar; what is not read, nobody moves."""
    with changed(spark, "spark.sql.parquet.datetimeRebaseModeInWrite", "LEGACY"):
        spark.sql("SELECT 'a' AS key, 1 AS x, DATE '1500-01-01' AS born").write.parquet(str(tmp_path / "old"))
    zonebloom.build_index(tmp_path / "old", "key")
    lake = ZoneBloom(spark).read(str(tmp_path / "old"))
    assert lake.prepare("key = 'a'").method != "driver"
    assert lake.select("x").prepare("key = 'a'").method == "driver"


def test_spark_is_told_how_large_row_ranges_are(spark, root):
    lake = ZoneBloom(spark).read(str(root))
    sizes = {}
    for condition in ("r < 100000", "u = '0-7'"):
        frame = lake.where(condition, method="row_ranges")
        sizes[condition] = int(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())
        assert frame.rdd.getNumPartitions() == 1
    whole = sum(path.stat().st_size for path in root.rglob("*.parquet"))
    assert whole / 2 < sizes["r < 100000"] < 2 * whole
    assert sizes["u = '0-7'"] < whole / 10
    assert "zonebloom: 50 of 4,000 rows, 1 of 80 zones, 1 of 2 files" in frame._jdf.queryExecution().toString()
    for condition, is_broadcast in (("r < 100000", False), ("u = '0-7'", True)):
        with changed(spark, "spark.sql.autoBroadcastJoinThreshold", sizes["r < 100000"] // 2):
            left, other = (lake.where(condition, method="row_ranges").select("r", name) for name in ("u", "pad"))
            assert ("BroadcastHashJoin" in explained(left.join(other, "r"))) is is_broadcast, condition


def test_keys_of_a_partition_column_are_of_its_type(spark, root):
    lake, day = ZoneBloom(spark).read(str(root)), dt.date(2024, 1, 2)
    for keys in ([day], ["2024-01-02"], spark.createDataFrame([(day,)], "day date")):
        assert lake.where_in("day", keys).where("u = '1-7'").count() == 1
    assert lake.where_in("day", [dt.date(2024, 1, 3)]).count() == 0


# --- tables -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def tables(any_spark, tmp_path):
    """A table `events` of the catalog, beside whose files is an index; a view of two users; and views of the table."""
    folder = tmp_path / "flat"
    for number in range(2):
        write(folder / f"{number}.parquet", rows_of(number))
    zonebloom.build_index(folder, ["u", "r"], rows_per_zone=ZONE, fpp=1e-5)
    any_spark.sql(f"CREATE TABLE events USING parquet LOCATION '{folder}'")
    any_spark.createDataFrame([("0-7", 1), ("1-9", 2)], "u string, k int").createOrReplaceTempView("users")
    any_spark.sql("CREATE VIEW late AS SELECT u, r, CAST(u AS INT) AS n FROM events WHERE r > 5")
    any_spark.sql("CREATE TEMPORARY VIEW mine AS SELECT u, e.r, s.k FROM late e JOIN users s USING (u)")
    any_spark.sql("CREATE TEMPORARY VIEW named (key) AS SELECT u FROM events")
    any_spark.table("events").where("r > 5").createOrReplaceTempView("derived")
    yield folder
    for view in ("mine", "named", "late"):
        any_spark.sql(f"DROP VIEW {view}")
    any_spark.sql("DROP TABLE events")


def test_tables_and_frames_are_taken_wherever_a_path_is(any_spark, tables):
    zb = ZoneBloom(any_spark)
    sources = ("default.events", any_spark.table("events"), str(tables))
    for source in sources:
        assert zb.explain(source, "u = '1-9'").plan.result.kept.rows == ZONE
        assert zb.open_index(source).columns == ["u", "r"]
        assert zb.refresh_index(source).num_files_added == 0
    lakes = [zb.read(source).where("u = '1-9'").select("r") for source in sources]
    joined = [zb.prune_join(source, any_spark.table("users"), "u").select("r") for source in sources]
    assert rows_of_each([*lakes, *joined]) == [["(9,)"]] * 3 + [["(7,)", "(9,)"]] * 3
    assert [zb.search(source, "u = '1-9'").kept.rows for source in sources] == [ZONE] * 3
    write(tables / "2.parquet", {"u": ["1-9"], "r": [5]})
    any_spark.catalog.refreshTable("events")
    assert zb.read("events").where("u = '1-9'").count() == 2


HEADER = r"\n== Physical Plan ==\n"
FORGED = rf"\n== Optimized Logical Plan ==\nFilter (u#0 = 0-7)\n+- MapInArrow zonebloom_scan_0({HEADER}"
"""Texts of SQL with line breaks, as in the plans of Spark."""
PRUNED = {
    "SELECT * FROM events WHERE u = '0-7' AND r > 5": 1,
    "SELECT count(*) AS n FROM default.events WHERE u IN ('0-7', '1-9')": 1,
    "SELECT e.r, s.k FROM events e JOIN users s ON e.u = s.u WHERE s.u = '0-7'": 1,
    "WITH a AS (SELECT u, r FROM events WHERE u = :u) SELECT a.r, b.r AS q FROM a JOIN events b ON a.u = b.u": 2,
    "SELECT r FROM events WHERE u = concat('1', '-', '9') ORDER BY r": 1,
    "SELECT a.u FROM events a, events b WHERE a.u = '0-7' AND b.u = '1-7' AND a.r = b.r": 2,
    "SELECT u FROM events WHERE u = '0-7' UNION ALL SELECT u FROM events WHERE u = '1-9'": 2,
    "SELECT '{' AS brace FROM events WHERE u = '0-7'": 1,
    "SELECT events.r FROM events WHERE events.u = '0-7' OR u = '1-9'": 1,
    "SELECT u, r FROM late WHERE u = '0-7'": 1,
    "SELECT r, k FROM mine WHERE u = '0-7'": 1,
    "SELECT a.r, b.r AS q FROM late a JOIN events b ON a.u = b.u WHERE b.u = '0-7'": 2,
    "WITH a AS (SELECT u, r FROM mine) SELECT r FROM a WHERE u = :u": 1,
    "SELECT key FROM named WHERE key = '0-7'": 0,
    "SELECT r FROM derived WHERE u = '0-7'": 0,
    "SELECT * FROM events WHERE lower(u) = '0-7'": 0,
    rf"SELECT r FROM events WHERE u != '{FORGED}'": 0,
    rf"WITH a AS (SELECT * FROM events) SELECT u FROM a WHERE u = '0-7' UNION ALL SELECT '{HEADER}' FROM a": 0,
    "SELECT * FROM events WHERE u = 'a' OR r > 1998": 0,
    "SELECT u FROM events e WHERE EXISTS (SELECT 1 FROM users s WHERE s.u = e.u)": 0,
    "WITH events AS (SELECT '0-7' AS u) SELECT * FROM events WHERE u = '0-7'": 0,
    "SELECT input_file_name() LIKE '%.parquet' AS f, r FROM events WHERE u = '0-7'": 0,
    "SELECT r FROM (SELECT r, input_file_block_length() AS n FROM events WHERE u = '0-7') WHERE n > 9": 0,
    "SELECT r, _metadata.file_name FROM events WHERE u = '0-7'": 0,
    "SELECT r FROM events WHERE u = concat('0-', second(now()))": 0,
    "SELECT r, rand(11) < 0.5 AS is_small FROM events WHERE u IN ('0-7', '1-9')": 0,
    "SELECT r FROM events WHERE u = date_format(CAST('today' AS DATE), 'yyyy')": 0,
    "SELECT r FROM events WHERE u = date_format(DATE 'today', 'yyyy')": 0,
    "SELECT r FROM events WHERE u = date_format(CAST(concat('to', 'day') AS DATE), 'yyyy')": 0,
    "SELECT r FROM events WHERE u = date_format(try_cast(reverse('yadot') AS TIMESTAMP), 'yyyy')": 0,
    "SELECT r FROM events WHERE u = date_format(try_to_timestamp(concat('to', 'day')), 'yyyy')": 0,
    "SELECT r FROM events WHERE u = date_format(CAST(CASE WHEN true THEN reverse('yadot') END AS TIMESTAMP), 'y')": 0,
    "SELECT r FROM events WHERE u = date_format(CAST(if(true, reverse('yadot'), '') AS TIMESTAMP), 'yyyy')": 0,
    "SELECT r FROM (SELECT * FROM events WHERE u = '0-7') TABLESAMPLE (50 PERCENT) REPEATABLE (5)": 0,
}
"""Queries, and how many of their scans are pruned."""


def test_a_query_has_the_rows_of_spark_and_its_scans_are_pruned(any_spark, tables, monkeypatch):
    zb, scans = ZoneBloom(any_spark), []
    read = queries._read
    monkeypatch.setattr(queries, "_read", lambda *scan: scans.append(scan) or read(*scan))
    for text, pruned in some(PRUNED.items(), each=5):
        scans.clear()
        args = {"u": "0-7"} if ":u" in text else None
        actual, expected = zb.sql(text, args), any_spark.sql(text, args)
        is_described = has("spark_4") or " mine" not in text  # Spark 3.5 gives no text of a temporary view
        assert len(scans) == (pruned if is_described else 0), text
        assert actual.columns == expected.columns
        # Connect of Spark 4.0 loses the parameters of a WITH in a union.
        ours, theirs = map(shown, (actual, expected)) if args else rows_of_each([actual, expected])
        assert ours == theirs, text


def test_a_table_whose_name_java_takes_for_that_of_a_with_is_left_alone():
    other, plain = "WITH `kisi` AS (SELECT 1) SELECT * FROM `k\u0131s\u0131`", "SELECT * FROM `k\u0131s\u0131`"
    assert (queries.references_of(other), len(queries.references_of(plain))) == ([], 1)


def test_a_view_is_read_as_it_was_made(any_spark, tables, tmp_path):
    """In this session its text means something else: by another setting, and by another table of the name."""
    zb = ZoneBloom(any_spark)
    with changed(any_spark, "spark.sql.ansi.enabled", "false"):
        any_spark.sql("CREATE TEMPORARY VIEW lenient AS SELECT u, CAST(u AS INT) AS n FROM events")
    write(tmp_path / "other/a.parquet", {"u": ["0-7"], "r": [99]})
    zonebloom.build_index(tmp_path / "other", "u")
    any_spark.read.parquet(str(tmp_path / "other")).createOrReplaceTempView("events")
    try:
        assert zb.sql("SELECT r FROM events WHERE u = '0-7'").collect()[0].r == 99
        assert zb.sql("SELECT r FROM late WHERE u = '0-7'").collect()[0].r == 7
    finally:
        any_spark.catalog.dropTempView("events")
    assert zb.sql("SELECT n FROM lenient WHERE u = '0-7'").collect()[0].n is None


@pytest.mark.deep
def test_what_is_cached_is_read_and_stays_cached(any_spark, tables):
    zb = ZoneBloom(any_spark)
    text = "WITH a AS (SELECT * FROM events) SELECT r FROM a WHERE u = '0-7'"
    frame = any_spark.sql(text).cache()
    level = frame.storageLevel  # over Connect, Spark 4.0 keeps no frame with WITH
    assert zb.sql(text).collect()[0].r == 7
    assert frame.storageLevel == level
    frame.unpersist()
    any_spark.sql("CACHE TABLE mine")
    (tables / "0.parquet").unlink()
    assert zb.sql("SELECT r FROM mine WHERE u = '0-7'").collect()[0].r == 7
    with pytest.raises(InvalidArgumentError, match="derived by Project"):
        zb.read("mine")
    assert any_spark.catalog.isCached("mine")


@pytest.mark.deep
def test_spark_explains_nothing_where_no_table_is_indexed(any_spark, tables, tmp_path, monkeypatch, capfd):
    asked = []
    for module in (scanned, implied):
        monkeypatch.setattr(module, "explained", lambda frame: asked.append(frame) or explained(frame))
    write(tmp_path / "plain.parquet", {"u": ["0-7"], "k": [3]})
    any_spark.read.parquet(str(tmp_path / "plain.parquet")).createOrReplaceTempView("of_a_file")
    zb = ZoneBloom(any_spark)
    texts = ("SELECT k FROM of_a_file WHERE u = '0-7'", "SELECT k FROM users JOIN of_a_file USING (k)", "SELECT 1")
    rows = rows_of_each([run.sql(text) for run in (zb, any_spark) for text in texts])
    assert rows[:3] == rows[3:]
    assert not asked
    assert "_file" not in capfd.readouterr().err, "PySpark logs what it refuses"
    assert zb.sql("SELECT r FROM events WHERE u = '0-7'").collect()[0].r == 7
    assert len(asked) == 4


@pytest.mark.deep
def test_lakes_are_fields_of_a_query(any_spark, root):
    zb = ZoneBloom(any_spark)
    lake = zb.read(str(root))
    text = "SELECT e.r FROM {events} e, {values} v WHERE e.u = '0-7' AND v.id = {number}"
    [row] = zb.sql(text, events=lake, values=range(2), number=1).collect()  # Spark writes values into the text
    assert row.r == 7
    any_spark.createDataFrame([("0-7", 1), ("1-9", 2)], "u string, k int").createOrReplaceTempView("users")
    for text in (
        "SELECT * FROM {few} NATURAL JOIN users WHERE u = '0-7'",
        "SELECT (SELECT max(r) FROM {few} WHERE u = '0-7') FROM users",
    ):
        few = lake.select("r")  # u is a column of users alone
        assert shown(zb.sql(text, few=few)) == shown(any_spark.sql(text, few=few.toDF()))
    lake.createOrReplaceTempView("lake")
    frame = zb.sql("SELECT r FROM lake WHERE u = '1-8'")
    assert frame.collect()[0].r == 8
    assert "FileScan" not in explained(frame), "the view is pruned"
    assert zb.read(lake.toDF()).where("u = '1-8'").count() == 1


def test_moments_of_a_plan_are_in_the_zone_of_the_session(any_spark, tmp_path):
    moments = [dt.datetime(2020, 1, 1) + dt.timedelta(seconds=row, microseconds=5) for row in range(ROWS)]  # noqa: DTZ001 - for both
    write(tmp_path / "a.parquet", {"at": pa.array(moments, pa.timestamp("us", "UTC")), "local": moments})
    zonebloom.build_index(tmp_path, ["at", "local"], rows_per_zone=ZONE, fpp=1e-5)
    lake = ZoneBloom(any_spark).read(str(tmp_path))
    with changed(any_spark, "spark.sql.session.timeZone", "Asia/Tokyo"):
        for name, moment in (
            ("at", "TIMESTAMP '2020-01-01 09:00:07.000005'"),
            ("local", f"TIMESTAMP_NTZ '{moments[7]}'"),
        ):
            frame = ZoneBloom(any_spark).sql(f"SELECT * FROM {{lake}} WHERE {name} IN ({moment})", lake=lake)
            assert "FileScan" not in explained(frame)
            assert [row.local for row in frame.collect()] == [moments[7]]


def test_what_is_no_query_runs_as_it_is(any_spark, tables):
    zb = ZoneBloom(any_spark)
    zb.sql("CREATE OR REPLACE TEMPORARY VIEW made AS SELECT * FROM events WHERE u = '0-7'")
    assert any_spark.table("made").count() == 1
    with pytest.raises(PySparkException, match="nowhere"):
        zb.sql("SELECT * FROM nowhere").collect()
    for text in (None, "SELECT '\ud800'"):
        with pytest.raises(InvalidArgumentError, match="text must be SQL, in UTF-8, got"):
            zb.sql(text)


def test_a_frame_whose_plan_is_shown_in_part_is_no_plain_scan(spark, root, tmp_path):
    frame = spark.read.parquet(str(root)).where("r > 5")
    for length in (200, 300, 400):  # in the last the analyzed plan begins
        with (
            changed(spark, "spark.sql.maxPlanStringLength", length),
            pytest.raises(InvalidArgumentError, match="must be a plain scan of files"),
        ):
            ZoneBloom(spark).create_index(frame, "u", index=tmp_path / "index")


# --- what cannot work -------------------------------------------------------------------------------------------------


def test_streams_are_read_batch_by_batch(spark, root, tmp_path):
    zb = ZoneBloom(spark)
    (tmp_path / "in").mkdir()
    stream = spark.readStream.schema("u string, k int").json(str(tmp_path / "in"))
    for call in (
        lambda: zb.prune_join(str(root), stream, "u"),
        lambda: zb.read(str(root)).where_in("u", stream),
        lambda: zb.locate(str(root), "u", stream.select("u")),
    ):
        with pytest.raises(InvalidArgumentError, match=r"must be a batch, got a stream; .*foreachBatch"):
            call()
    (tmp_path / "in/a.json").write_text('{"u": "0-7", "k": 1}\n{"u": "no", "k": 2}\n', "utf-8")
    seen = []
    writer = stream.writeStream.foreachBatch(
        lambda batch, _: seen.extend(zb.prune_join(str(root), batch, "u").collect())
    )
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert [(row.u, row.r, row.k) for row in seen] == [("0-7", 7, 1)]
