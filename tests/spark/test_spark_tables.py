"""Delta and Iceberg tables through Spark: built by executors, read as their log has them, whatever was done to them.

Oracles: deltalake 1.6's and pyiceberg 0.12's own readers, and the library's build. Spark itself reads either only with
a JAR, which nothing here needs; deletion vectors and position deletes are committed by hand, after the protocols.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

import zonebloom
from tests.spark.rows import rows_of_each
from tests.tables import Delta, Events, Iceberg, rows
from zonebloom.engines.spark.versions import arrow_of
from zonebloom.errors import InvalidArgumentError
from zonebloom.spark import ZoneBloom

ROWS_PER_ZONE = 256


def numbered(start: int, stop: int) -> pa.Table:
    """`rows`, whose column `part` is 0 or 1."""
    return rows(start, stop, part=pa.array([number % 2 for number in range(start, stop)], pa.int32()))


def key(row: int) -> str:
    return f"user {row * 7919 % 100_003}"


def created(kind: type[Events], folder: Path) -> Events:
    """A table of two files of 3000 rows, or of Delta of two for each `part`; of one file some rows are deleted."""
    table = kind(folder / "é 100%" if kind is Delta else folder)  # pyiceberg decodes no location
    table.create(numbered(0, 1).schema, ["part"] if kind is Delta else [])
    for start in (0, 3000):
        table.append(numbered(start, start + 3000))
    table.hide([0, 7, 500])
    return table


@pytest.fixture(params=[Delta, Iceberg], ids=lambda kind: kind.kind)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Events]:
    """A table of each kind."""
    table = created(request.param, tmp_path)
    yield table
    table.close()


def assert_agrees(lake, table) -> None:
    """All rows, some keys, and a partition, on each way to read."""
    every = sorted(table.rows()["id"].to_pylist())
    asked = [0, 7, 14, 15, 1000, 1002, 4003, 4500, 6100]
    wanted = [value for value in asked if value in every]
    listed = f"u IN ({', '.join(repr(key(value)) for value in asked)})"
    frames = [
        lake.toDF(),
        lake.where("part = 1 AND id < 900"),
        lake.where_in("u", [key(value) for value in asked]),
        *(lake.where(listed, method=method) for method in ("driver", "row_ranges", "plain")),
    ]
    pruned = rows_of_each([frame.selectExpr("id") for frame in frames])
    expected = [every, [id_ for id_ in every if id_ % 2 and id_ < 900], *[wanted] * 4]
    assert pruned == [sorted(f"({number},)" for number in ids) for ids in expected]


# --- build and refresh ------------------------------------------------------------------------------------------------


def test_a_table_is_built_and_refreshed_as_by_the_library(any_spark, table, tmp_path):
    zb = ZoneBloom(any_spark)
    places = built, wanted = tmp_path / "made", tmp_path / "wanted"
    options = {"rows_per_zone": ROWS_PER_ZONE, "kind": "both"}
    zb.create_index(table.source, "u", index=built, **options)
    zonebloom.build_index(table.source, "u", index=wanted, **options)
    table.append(numbered(6000, 7000))
    done = zb.refresh_index(table.source, index=built)
    assert done == zonebloom.open_index(wanted, dataset=table.source).refresh()
    assert done.num_files_added > 0
    ours, theirs = (zb.open_index(table.source, index=place) for place in places)
    assert ours.zone_table("u").to_arrow().equals(theirs.zone_table("u").to_arrow())
    assert ours.to_table("id >= 0")["id"].sort().equals(theirs.to_table("id >= 0")["id"].sort())


def test_a_frame_of_all_files_stands_for_their_table_and_is_not_read(spark, tmp_path):
    table, zb = created(Delta, tmp_path), ZoneBloom(spark)
    files = [str(path) for path in table.root.rglob("*.parquet")]
    whole, part = spark.read.parquet(*files), spark.read.parquet(*files[:1])
    index = zb.create_index(whole, "u", rows_per_zone=ROWS_PER_ZONE)
    assert index.data.location == str(table.root)
    assert zb.refresh_index(whole).num_files_kept == len(files)
    with pytest.raises(InvalidArgumentError, match="must scan the files that the table has now"):
        zb.create_index(part, "id")
    assert whole.count() > table.rows().num_rows, "it has the rows that deletion vectors delete"
    with pytest.raises(InvalidArgumentError, match="must be read by its path, or as a DeltaTable"):
        zb.read(whole)


def test_a_frame_that_names_its_files_as_icebergs_do_stands_for_their_table(spark, tmp_path):
    table = created(Iceberg, tmp_path)
    files = [(task.file.file_path,) for task in table.source.scan().plan_files()]
    frame = spark.createDataFrame(files, "_file string")
    with pytest.raises(InvalidArgumentError, match=r"got other files of .*; pass the path, or the DeltaTable or"):
        ZoneBloom(spark).create_index(frame, "u", index=tmp_path / "made")  # only the catalog knows the version
    metadata = Path(table.source.metadata_location.removeprefix("file://"))
    for path in metadata.parent.glob("*.metadata.json"):
        path.rename(metadata.with_name("v1.metadata.json" if path == metadata else f"{path.name}.old"))
    index = ZoneBloom(spark).create_index(frame, "u", index=tmp_path / "made")
    assert index.num_fragments == 2


# --- reading ----------------------------------------------------------------------------------------------------------


def test_reads_follow_a_table_that_changes(any_spark, table, tmp_path):
    zb = ZoneBloom(any_spark)
    zonebloom.build_index(table.source, "u", index=tmp_path / "index", rows_per_zone=ROWS_PER_ZONE)
    lake = zb.read(table.source, index=tmp_path / "index")
    assert_agrees(lake, table)
    table.hides_by = "puffin" if isinstance(table, Iceberg) else "u"
    table.hide([1, 2, 3])
    assert_agrees(lake, table)
    table.append(numbered(6000, 6500))
    assert_agrees(lake, table)


def test_few_zones_are_read_and_explained(spark, table):
    """The index lies in its place beside the table."""
    zb, condition = ZoneBloom(spark), f"u = '{key(4321)}'"
    zonebloom.build_index(table.source, "u", rows_per_zone=ROWS_PER_ZONE)
    lake = zb.read(table.source)
    read = lake.prepare(condition)
    assert (read.method, read.plan.result.num_zones_kept) == ("driver", 1)
    assert read.plan.result.num_zones > 20
    by_tasks = lake.prepare(condition, method="row_ranges")
    assert by_tasks.frame.rdd.getNumPartitions() == 1
    frames = [by_tasks.frame, lake.where("u = 'nobody'", method="files")]
    assert rows_of_each([frame.select("id") for frame in frames]) == [["(4321,)"], []]
    said = zb.explain(table.source, condition)
    assert "read by: driver" in str(said)
    assert {row.part for row in said.to_df().collect()} >= {"files", "zones", "rows", "bytes", "method"}
    assert str(zb.explain(table.source, "id + 1 = 3"))
    with pytest.raises(AnalysisException, match=r"`prt` cannot be resolved\. Did you mean .*`part`"):
        lake.where("prt = 1")


# --- what cannot be read ----------------------------------------------------------------------------------------------


def test_identity_partitions_of_iceberg_are_read_from_files_and_exclude_files(spark, tmp_path):
    """pyiceberg writes doubles into manifests as floats, so the log's value is not the file's."""
    table = Iceberg(tmp_path)
    rows = numbered(0, 40).append_column("f", pa.array([0.1, 0.2] * 20)).append_column("p", pa.array(["a", "b"] * 20))
    source = table.catalog.create_table("db.parted", schema=rows.schema)
    with source.update_spec() as spec:
        spec.add_identity("f").add_identity("p")
    source.append(rows)
    zb = ZoneBloom(spark)
    zonebloom.build_index(source, ["u", "p"], index=tmp_path / "index", rows_per_zone=ROWS_PER_ZONE)
    for method in ("auto", "row_ranges"):
        lake = zb.read(source, index=tmp_path / "index")
        expected = source.scan().to_arrow().sort_by("id").to_pylist()
        assert arrow_of(lake.where("id >= 0", method=method)).sort_by("id").to_pylist() == expected
        frames = [lake.where(text, method=method).selectExpr("id") for text in ("f = 0.1D", "p = 'b'")]
        assert rows_of_each(frames) == [sorted(f"({number},)" for number in range(first, 40, 2)) for first in (0, 1)]


def test_a_lance_table_is_built_by_executors_and_its_rows_are_refused_by_name(spark, tmp_path):
    """Oracle: the library's build."""
    root = tmp_path / "t.lance"
    lance.write_dataset(numbered(0, 3000), str(root), max_rows_per_file=1000).delete("id < 10")
    zb = ZoneBloom(spark)
    indexed = zb.create_index(str(root), "u", rows_per_zone=ROWS_PER_ZONE, index=str(tmp_path / "made"))
    wanted = zonebloom.build_index(root, "u", rows_per_zone=ROWS_PER_ZONE, index=tmp_path / "wanted")
    assert indexed.zone_table("u").to_arrow().equals(wanted.zone_table("u").to_arrow())
    assert indexed.to_table(zonebloom.col("u") == key(77))["id"].to_pylist() == [77]
    with pytest.raises(InvalidArgumentError, match=r"must be of Parquet files, got the Lance table .*t\.lance"):
        zb.read(str(root), index=str(tmp_path / "made"))
