"""Tables of Spark's catalog that were altered, written back to, or opened by another session.

Oracle: PySpark 4.3, `spark.table(name)` and `spark.read.parquet(path)` in the same session.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import types

import zonebloom
from tests.spark.cluster import changed
from tests.spark.rows import rows_of_each, shown, write
from zonebloom.engines.spark.pushdown.implied import optimized_plan
from zonebloom.engines.spark.pushdown.metadata import altered_column
from zonebloom.engines.spark.pushdown.names import Names
from zonebloom.engines.spark.scan.layout import Layout
from zonebloom.engines.spark.scan.row_ranges import local_rows
from zonebloom.engines.spark.scan.splits import TooWideError
from zonebloom.errors import ColumnNotFoundError, DataFileError, InvalidArgumentError, PredicateError
from zonebloom.spark import ZoneBloom

ROWS, ZONE = 200, 10


def rows(prefix: object = 1) -> dict:
    return {"u": [f"{prefix}-{row}" for row in range(ROWS)], "r": range(ROWS)}


def files_of_days(root: Path, *days: int) -> Path:
    """A folder for each day, whose keys begin with the day."""
    for day in days:
        write(root / f"day={day}/a.parquet", rows(day))
    zonebloom.build_index(root, ["u", "r"], rows_per_zone=ZONE, fpp=1e-5)
    return root


@pytest.fixture
def table(any_spark, request):
    """Runs the DDL of a table, and drops the table at the end."""
    names: list[str] = []

    def created(name: str, columns: str, clause: str, root: Path, *ddl: str) -> Path:
        names.append(name)
        any_spark.sql(f"CREATE TABLE {name} ({columns}) USING parquet {clause} LOCATION '{root}'")
        for text in ddl:
            any_spark.sql(text.format(root=root)).collect()
        return root

    yield created
    for name in names:
        any_spark.sql(f"DROP TABLE {name}")


@pytest.mark.filterwarnings("ignore:prune_join reads the big side whole:RuntimeWarning")
def test_altered_tables_have_the_rows_of_spark(any_spark, table, tmp_path):
    zb = ZoneBloom(any_spark)
    defaults = table("defaults", "u STRING, r BIGINT", "", tmp_path / "defaults")
    write(defaults / "z.parquet", rows("a"))
    any_spark.sql("ALTER TABLE defaults ADD COLUMNS (x INT DEFAULT 42)")
    any_spark.sql(f"INSERT INTO defaults SELECT concat('b-', id), id, CAST(id AS INT) FROM range({ROWS})")
    any_spark.sql("REFRESH TABLE defaults")
    padded = table("padded", "c CHAR(5), r BIGINT", "", tmp_path / "padded")
    any_spark.sql(f"INSERT INTO padded SELECT concat('x', id % 50), id FROM range({ROWS})")
    for root, columns in ((defaults, ["u", "x"]), (padded, ["c", "r"])):
        zonebloom.build_index(root, columns, rows_per_zone=ZONE)
    moved = files_of_days(tmp_path / "moved", 1, 2, 3)
    swap = "ALTER TABLE moved ADD " + " ".join(
        f"PARTITION (day={day}) LOCATION '{{root}}/day={place}'" for day, place in ((1, 2), (2, 1), (3, 3))
    )
    table("moved", "u STRING, r BIGINT, day INT", "PARTITIONED BY (day)", moved, swap)
    table("chosen", "u STRING, r BIGINT", "OPTIONS (recursiveFileLookup 'true')", files_of_days(tmp_path / "c", 1))
    plain = table("plain", "u VARCHAR(9) COMMENT 'key', r BIGINT", "OPTIONS (compression 'zstd')", tmp_path / "plain")
    write(plain / "a.parquet", rows())
    zonebloom.build_index(plain, ["u", "r"], rows_per_zone=ZONE)

    with changed(any_spark, "spark.sql.readSideCharPadding", "false"):
        for texts in (
            ["SELECT u, r, x FROM defaults WHERE x = 42 AND u = 'a-7'", "SELECT u, r, x FROM defaults WHERE u = 'b-7'"],
            ["SELECT c, r FROM padded WHERE c = 'x7' AND r = 7"],
            [
                "SELECT u, r, day FROM moved WHERE u = '1-7'",
                "SELECT u, r, day FROM moved WHERE u = '1-7' AND day = 2",
                "SELECT u, r, day FROM moved WHERE u = '3-7' AND day = 3",
                "SELECT u, r, 0 FROM chosen WHERE u = '1-7'",
                "SELECT u, r, 0 FROM plain WHERE u = '1-7'",
            ],
        ):
            ours = rows_of_each([zb.sql(text) for text in texts])
            assert ours == rows_of_each([any_spark.sql(text) for text in texts])
            assert all(ours)
        assert zb.search("moved", "u = '1-7' AND day = 2").kept.rows == ZONE
        with pytest.raises(InvalidArgumentError, match=r"partition day=1 of .* does not lie in the folder of its name"):
            zb.map_candidates("moved", "u = '1-7' AND day = 2", lambda batches: batches, "u string, r long, day int")
        assert zb.read("moved").prepare("u = '1-7'").method == "plain"
        assert zb.read("moved").prepare("u = '3-7'").method == "driver"
        assert zb.read("plain").prepare("u = '1-7'").plan.result.kept.rows == ZONE
    for name, got in (("defaults", "x with EXISTS_DEFAULT"), ("padded", "column c"), ("chosen", "recursiveFileLookup")):
        with pytest.raises(InvalidArgumentError, match=f"must have the rows of its files, .*{got}"):
            zb.read(name)
    any_spark.sql("REFRESH TABLE padded")
    for call in (zb.read, lambda name: zb.create_index(name, "r")):
        with pytest.raises(InvalidArgumentError, match=r"column c of type char\(5\), which Spark pads; pass"):
            call("padded")
    lake, condition = zb.read(str(defaults)), "x = 42 AND u = 'a-7'"
    frames = [
        lake.where(condition),
        lake.where(condition, method="files"),
        zb.prune_join(str(defaults), any_spark.sql("SELECT 42 AS x"), "x").where("u = 'a-7'"),
    ]
    expected = rows_of_each([any_spark.read.parquet(str(defaults)).where(condition).select("u", "r")])[0]
    assert rows_of_each([frame.select("u", "r") for frame in frames]) == [expected] * 3
    with pytest.raises(PredicateError, match="must be read as it is stored, got the metadata EXISTS_DEFAULT"):
        lake.where_in("x", [42])
    with pytest.raises(InvalidArgumentError, match=r"must read column x as it is stored, got .*EXISTS_DEFAULT"):
        zb.locate(str(defaults), "x", any_spark.sql("SELECT 42 AS key"))
    layout = Layout(zonebloom.open_index(defaults).view())
    with pytest.raises(DataFileError, match="must have column x, for which Spark would give 42"):
        local_rows(layout, layout.view.universe, layout.schema(), max_bytes=1 << 30)


def test_a_lake_of_a_name_has_the_partitions_of_the_table_at_each_query(any_spark, table, tmp_path):
    root = files_of_days(tmp_path / "days", 1, 2, 3)
    add = "ALTER TABLE days ADD PARTITION (day=1) PARTITION (day=2)"
    table("days", "u STRING, r BIGINT, day INT", "PARTITIONED BY (day)", root, add)
    lake = ZoneBloom(any_spark).read("days").select("U")
    condition = "u IN ('1-7', '2-7', '3-7')"
    for ddl, keys in ((None, "12"), ("ADD PARTITION (day=3)", "123"), ("DROP PARTITION (day=1)", "23")):
        if ddl is not None:
            any_spark.sql(f"ALTER TABLE days {ddl}")
        read = lake.prepare(condition)
        assert shown(read.frame) == [f"Row(u='{key}-7')" for key in keys]
        assert read.plan.result.kept.rows == ZONE * len(keys)
    frame = any_spark.table("days")
    for own in (frame.u == "2-7", frame.u.isin("2-7", "9-7") & frame.r.isNotNull()):
        read = ZoneBloom(any_spark).read(frame).prepare(own)
        assert shown(read.frame) == shown(frame.where(own))
        assert read.plan.result.kept.rows == ZONE


def test_a_lake_whose_table_is_altered_is_read_as_spark_reads_it(any_spark, table, tmp_path):
    root = files_of_days(tmp_path / "steps", 1, 2, 3)
    repair = "MSCK REPAIR TABLE steps"
    table("steps", "u STRING, r BIGINT, day INT", "PARTITIONED BY (day)", root, repair)
    zb = ZoneBloom(any_spark)
    lake, condition = zb.read("steps"), "u IN ('1-7', '3-7', 'more')"
    assert lake.prepare(condition).method == "driver"
    (root / "day=2/a.parquet").unlink()  # Spark has listed it: so it is while INSERT OVERWRITE replaces files
    assert lake.prepare(condition).method == "plain"
    drop = "ALTER TABLE steps DROP PARTITION (day={})"
    for ddl, method in (
        ([drop.format(1), drop.format(2)], "driver"),  # one file of an indexed folder
        ([drop.format(3)], "plain"),  # no file
        ([repair, "CACHE TABLE steps"], "plain"),
        (["UNCACHE TABLE steps"], "driver"),
        (["ALTER TABLE steps ADD COLUMNS (x INT DEFAULT 4)"], "plain"),
        (["INSERT OVERWRITE steps VALUES ('more', 7, 4, 1)"], "plain"),
    ):
        for text in ddl:
            any_spark.sql(text)
        plain = any_spark.table("steps")
        read = lake.prepare(condition)
        assert read.method == method, ddl
        frames = [read.frame, lake.where_in("r", [7]), lake.toDF()]
        expected = rows_of_each([plain.where(condition), plain.where("r = 7"), plain])
        assert rows_of_each(frames) == expected, ddl
    with pytest.raises(InvalidArgumentError, match=r"the driver must read what Spark would read, .*EXISTS_DEFAULT"):
        lake.where(condition, method="driver")


def test_a_kept_lake_of_a_table_that_was_emptied_has_no_rows(any_spark, table, tmp_path, monkeypatch):
    monkeypatch.setattr("zonebloom.engines.spark.scan.lake._LOOK_AFTER_SECONDS", -1)
    root = files_of_days(tmp_path / "emptied", 1)
    table("emptied", "u STRING, r BIGINT, day INT", "PARTITIONED BY (day)", root, "MSCK REPAIR TABLE emptied")
    lake = ZoneBloom(any_spark).read("emptied")
    write(root / "day=1/b.parquet", rows(2))
    zonebloom.open_index(root).refresh()  # a version that the lake has not seen
    any_spark.sql("ALTER TABLE emptied DROP PARTITION (day=1)")
    shutil.rmtree(root / "day=1")
    assert lake.where("u = '1-7'").collect() == []


def test_each_call_finds_a_table_and_its_index_by_the_tables_name(any_spark, table, tmp_path):
    """The index lies beside the data, or in the system path under the name of the table."""
    write(table("events", "u STRING, r BIGINT", "", tmp_path / "data") / "a.parquet", rows())
    zb, condition = ZoneBloom(any_spark, system_path=tmp_path / "indexes"), "u = '1-7'"
    keys = any_spark.createDataFrame([("1-7",)], "u string")
    for index, place in ((None, "_data.zonebloom"), ("events", "indexes/events")):
        zb.create_index("events", "u", index=index, rows_per_zone=ZONE)
        assert zb.open_index("events").location == str(tmp_path / place)
        assert zb.create_index("events", "r").columns == ["u", "r"]
        assert zb.refresh_index("events").num_files_kept == 1
        assert zb.restore_index("events", 2) == 2
        zb.optimize_index("events")
        zb.vacuum_index("events")
        assert {row["index"] for row in zb.indexes("events").collect()} == {str(tmp_path / place)}
        assert zb.index("events").count() == 2
        assert zb.search("events", condition).kept.rows == ZONE
        assert zb.explain("events", condition).plan.result.kept.rows == ZONE
        frames = [
            zb.read("events").where(condition),
            zb.prune_join("events", keys, "u"),
            zb.sql(f"SELECT * FROM events WHERE {condition}"),
            zb.map_candidates("events", condition, lambda batches: batches, "u string, r long").where(condition),
        ]
        assert rows_of_each(frames) == [["('1-7', 7)"]] * 4
        assert "Relation [" not in optimized_plan(frames[2]).replace("LocalRelation [", "")
        assert zb.locate("events", "u", keys.toDF("key")).count() == 1
        zb.delete_index("events")
    zonebloom.build_index(files_of_days(tmp_path / "other", 1), "u", index=tmp_path / "indexes/events")
    with pytest.raises(InvalidArgumentError, match=r"called like the table events must be of that table, .*other"):
        zb.refresh_index("events")
    of_table = zb.sql(f"SELECT * FROM events WHERE {condition}")
    assert "Relation spark_catalog.default.events[" in optimized_plan(of_table)
    assert of_table.count() == 1


def test_a_table_is_its_folder_and_a_partition_elsewhere_is_named(any_spark, table, tmp_path):
    root = files_of_days(tmp_path / "lake/here", 1)
    write(tmp_path / "lake/there/a.parquet", rows(2))
    add = f"ALTER TABLE spread ADD PARTITION (day=1) PARTITION (day=2) LOCATION '{tmp_path}/lake/there'"
    table("spread", "u STRING, r BIGINT, day INT", "PARTITIONED BY (day)", root, add)
    zb = ZoneBloom(any_spark)
    for call in (zb.refresh_index, zb.read, lambda name: zb.create_index(name, "u", index=str(tmp_path / "index"))):
        with pytest.raises(InvalidArgumentError, match=r"in its folder .*/here, got partition day=2 in .*/lake/there;"):
            call("spread")
    assert zb.sql("SELECT r FROM spread WHERE u = '2-7'").collect()[0].r == 7


def test_a_partition_in_other_key_value_folders_of_its_table_is_refused(any_spark, table, tmp_path):
    root = files_of_days(tmp_path / "lake", 1, 2)
    table("filed", "u STRING, r BIGINT, day INT", "PARTITIONED BY (day)", root, "MSCK REPAIR TABLE filed")
    zb = ZoneBloom(any_spark)
    lake = zb.read("filed")
    shutil.copytree(root / "day=1", root / "old/day=1")
    any_spark.sql(f"ALTER TABLE filed PARTITION (day=1) SET LOCATION '{root}/old/day=1'")
    with pytest.raises(InvalidArgumentError, match="the files of a table must be read by their paths, too"):
        zb.read("filed")
    assert lake.where("u = '1-7'").count() == 1


def test_folders_of_partitions_are_compared_as_they_are_spelled(any_spark, table, tmp_path):
    """Spark's catalog gives locations without escapes: `day%3D1` is another folder than `day=1`."""
    for folder in ("at=10%3A30", "at=x y"):
        write(tmp_path / f"times/{folder}/a.parquet", rows())
    zonebloom.build_index(tmp_path / "times", ["u"], rows_per_zone=ZONE)
    table(
        "times", "u STRING, r BIGINT, at STRING", "PARTITIONED BY (at)", tmp_path / "times", "MSCK REPAIR TABLE times"
    )
    zb, condition = ZoneBloom(any_spark), "u = '1-7'"
    assert zb.read("times").prepare(condition).method == "driver"
    root = files_of_days(tmp_path / "odd", 1)
    write(root / "day%3D1/a.parquet", rows(2))
    elsewhere = "ALTER TABLE odd ADD PARTITION (day=1) LOCATION '{root}/day%3D1'"
    table("odd", "u STRING, r BIGINT, day INT", "PARTITIONED BY (day)", root, elsewhere)
    for asked in (condition, "u = '2-7'"):
        assert shown(zb.sql(f"SELECT * FROM odd WHERE {asked}")) == shown(any_spark.table("odd").where(asked))


def test_what_is_read_is_not_overwritten(any_spark, table, tmp_path):
    root = tmp_path / "kept"
    write(root / "a.parquet", rows())
    zonebloom.build_index(root, ["u"], rows_per_zone=ZONE)
    table("kept", "u STRING, r BIGINT", "", root)
    zb, condition = ZoneBloom(any_spark), "u = '1-7'"
    frames = {"sql": zb.sql(f"SELECT * FROM kept WHERE {condition}")}
    for source in ("kept", str(root)):
        lake, scanned = zb.read(source), (lambda batches: batches, "u string, r long")
        for text, way in ((condition, "driver"), ("u = 'no'", "auto"), (condition, "row_ranges")):
            frames[f"{source}: {text} by {way}"] = lake.where(text, method=way)
        frames[f"{source}: function"] = zb.map_candidates(source, condition, *scanned)
    frames["files"] = lake.where(condition, method="files")
    for name, frame in frames.items():
        with pytest.raises(AnalysisException, match="UNSUPPORTED_OVERWRITE"):
            frame.write.insertInto("kept", overwrite=True)
        plan = optimized_plan(frame)
        assert "Union" not in plan, name
        assert "Relation [" not in plan.replace("LocalRelation [", "") or name.startswith("files"), name
    assert pq.read_table(root).num_rows == ROWS


def test_another_session_of_the_application_has_the_same_rows(spark, tmp_path):
    ZoneBloom(spark)
    other = spark.newSession()
    root = files_of_days(tmp_path / "days", 1)
    lake = ZoneBloom(other).read(str(root))
    lake.createOrReplaceTempView("days")
    assert ZoneBloom(other).sql("SELECT r FROM days WHERE u = '1-7'").collect()[0].r == 7
    assert lake.select(["u", "R"]).where("u = '1-7'").columns == ["u", "r"]
    with pytest.raises(InvalidArgumentError, match="columns must be one or more names"):
        lake.select(lake.toDF().u)
    with pytest.raises(ColumnNotFoundError):
        lake.select("no")


def test_rows_that_are_wider_than_their_files_are_left_to_executors(spark, tmp_path):
    """12,000 rows of 6 KB in a file of some KB: the driver would need 72 MB, and Spark's heap some times as much."""
    num_rows = 12_000
    texts = pa.DictionaryArray.from_arrays(
        [row % 20 for row in range(num_rows)], [f"{key}" * 3000 for key in range(10, 30)]
    )
    write(tmp_path / "wide/a.parquet", {"land": ["DE"] * num_rows, "u": range(num_rows), "text": texts})
    zonebloom.build_index(tmp_path / "wide", ["land", "u"])
    lake = ZoneBloom(spark).read(str(tmp_path / "wide"))
    read = lake.prepare("land = 'DE'")
    assert (read.plan.choice.method, read.frame.count()) == ("plain", num_rows)
    assert lake.prepare("u = 7").method == "driver"
    with pytest.raises(InvalidArgumentError, match="hand the rows to Spark, got more than 67,108,864 bytes"):
        lake.where("land = 'DE'", method="driver")
    layout = Layout(zonebloom.open_index(tmp_path / "wide").view())
    with pytest.raises(TooWideError):
        local_rows(layout, layout.view.universe, layout.schema(["u"]), max_bytes=1000)


def test_columns_of_months_prune_nothing_beside_functions(spark, tmp_path):
    from pyspark.sql import functions as f

    spark.sql("SELECT 'k' AS u, INTERVAL '1-2' YEAR TO MONTH AS span").write.parquet(str(tmp_path / "spans"))
    zonebloom.build_index(tmp_path / "spans", ["u"])
    frame = ZoneBloom(spark).read(str(tmp_path / "spans")).where((f.col("u") == "k") & (f.length("u") < 2))
    assert frame.count() == 1


def test_digits_of_other_scripts_are_no_numbers_of_folders(tmp_path):
    for value in ("9999999999\u0661", "1"):
        write(tmp_path / f"p={value}/a.parquet", {"x": [1]})
    assert "p" not in Names(zonebloom.build_index(tmp_path, ["x"]).view()).canonical


def test_only_known_metadata_alters_no_values():
    def schema(**metadata: str) -> types.StructType:
        inner = types.StructType([types.StructField("x", types.IntegerType(), True, metadata)])
        return types.StructType([types.StructField("s", types.ArrayType(inner))])

    for name, text in (("comment", "a"), ("CURRENT_DEFAULT", "1"), ("__CHAR_VARCHAR_TYPE_STRING", "varchar(3)")):
        assert altered_column(schema(**{name: text})) is None
    for name, text in (("EXISTS_DEFAULT", "1"), ("__CHAR_VARCHAR_TYPE_STRING", "char(3)"), ("new in Spark 5", "")):
        assert altered_column(schema(**{name: text})) == f"x with {name}"
