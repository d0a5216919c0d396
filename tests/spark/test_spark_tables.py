"""Delta and Iceberg tables through Spark: built by executors, read as their log has them, whatever was done to them.

Oracles: deltalake 1.6's and pyiceberg 0.12's own readers, and the library's build. Spark itself reads either only with
a JAR, which nothing here needs; deletion vectors and position deletes are committed by hand, after the protocols.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFileContent

import zonebloom
from tests import delta_log
from tests.iceberg_log import commit_deletes, position_deletes, puffin
from tests.spark.rows import rows_of_each
from zonebloom.engines.spark.versions import arrow_of
from zonebloom.errors import InvalidArgumentError
from zonebloom.spark import ZoneBloom

ROWS_PER_ZONE = 256


def numbered(start: int, stop: int) -> pa.Table:
    """Rows with an `id` of their own, whose key is a text of it; partition `part` is 0 or 1."""
    ids = range(start, stop)
    keys = [f"key {number * 7919 % 100_003}" for number in ids]
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "key": keys, "part": pa.array([number % 2 for number in ids], pa.int32())}
    )


def key(row: int) -> str:
    return f"key {row * 7919 % 100_003}"


class Delta:
    """A partitioned table of three versions with deletion vectors in some files, and columns mapped to other names."""

    def __init__(self, folder: Path) -> None:
        self.root = self.source = folder / "table é 100%"
        self.index = None
        write_deltalake(self.root, numbered(0, 3000), partition_by=["part"], name="t")
        write_deltalake(self.root, numbered(3000, 6000), mode="append")
        add = delta_log.actions(self.root, "add")
        features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
        delta_log.commit(self.root, {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}})
        for action in add[:2]:
            delta_log.delete_rows(self.root, action, [0, 7, 500])

    def append(self, rows: pa.Table) -> None:
        write_deltalake(self.root, rows, mode="append")

    def delete_more(self) -> None:
        add = delta_log.actions(self.root, "add")[-1]
        delta_log.delete_rows(self.root, add, [1, 2, 3])

    def rows(self) -> pa.Table:
        """As deltalake's engine reads it."""
        from deltalake import QueryBuilder

        live = QueryBuilder().register("t", DeltaTable(self.root)).execute("SELECT id, key, part FROM t")
        return pa.table(live.read_all())


class Iceberg:
    """A partitioned table of an SQL catalog with position deletes."""

    def __init__(self, folder: Path) -> None:
        self.catalog = SqlCatalog("here", uri=f"sqlite:///{folder}/catalog.db", warehouse=(folder / "w").as_uri())
        self.catalog.create_namespace("db")
        self.folder, self.index = folder, folder / "index"
        self.source = self.catalog.create_table("db.t", schema=numbered(0, 1).schema)
        for start in (0, 2000, 4000):
            self.source.append(numbered(start, start + 2000))
        self.number = 0
        self._delete([0, 7, 500], first=0)

    def _delete(self, positions: list[int], first: int) -> None:
        self.number += 1
        files = [task.file.file_path for task in self.source.scan().plan_files()]
        name = f"deletes-{self.number}.{'puffin' if self.number % 2 == 0 else 'parquet'}"
        write = puffin if name.endswith("puffin") else position_deletes
        write(self.folder / name, {files[first]: positions})
        commit_deletes(self.source, self.folder / name, DataFileContent.POSITION_DELETES)
        self.source.refresh()

    def append(self, rows: pa.Table) -> None:
        self.source.append(rows)

    def delete_more(self) -> None:
        self._delete([1, 2, 3], first=1)

    def rows(self) -> pa.Table:
        """As pyiceberg reads it."""
        return self.source.scan().to_arrow()


@pytest.fixture(params=["delta", "iceberg"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Delta | Iceberg]:
    """A table of each kind."""
    chosen = Delta(tmp_path) if request.param == "delta" else Iceberg(tmp_path)
    yield chosen
    if isinstance(chosen, Iceberg):
        chosen.catalog.close()


def assert_agrees(lake, table) -> None:
    """All rows, some keys, and a partition, on each way to read."""
    rows = table.rows()
    every = sorted(rows["id"].to_pylist())
    asked = [0, 14, 15, 1000, 1002, 4003, 4500, 6100]
    wanted = [value for value in asked if value in every]
    odd = rows.select(["id", "part"]).filter(pc.and_(pc.equal(rows["part"], 1), pc.less(rows["id"], 900)))
    listed = f"key IN ({', '.join(repr(key(value)) for value in asked)})"
    frames = [
        lake.toDF(),
        lake.where("part = 1 AND id < 900"),
        lake.where_in("key", [key(value) for value in asked]),
        *(lake.where(listed, method=method) for method in ("driver", "row_ranges", "plain")),
    ]
    pruned = rows_of_each([frame.selectExpr("id") for frame in frames])
    expected = [every, sorted(odd["id"].to_pylist()), *[wanted] * 4]
    assert pruned == [sorted(f"({number},)" for number in ids) for ids in expected]


# --- build and refresh ------------------------------------------------------------------------------------------------


def test_a_table_is_built_and_refreshed_as_by_the_library(any_spark, table, tmp_path):
    zb = ZoneBloom(any_spark)
    places = built, wanted = tmp_path / "made", tmp_path / "wanted"
    options = {"rows_per_zone": ROWS_PER_ZONE, "kind": "both"}
    zb.create_index(table.source, "key", index=built, **options)
    zonebloom.build_index(table.source, "key", index=wanted, **options)
    table.append(numbered(6000, 7000))
    done = zb.refresh_index(table.source, index=built)
    assert done == zonebloom.open_index(wanted, dataset=table.source).refresh()
    assert done.num_files_added > 0
    ours, theirs = (zb.open_index(table.source, index=place) for place in places)
    assert ours.zone_table("key").to_arrow().equals(theirs.zone_table("key").to_arrow())
    assert ours.to_table("id >= 0")["id"].sort().equals(theirs.to_table("id >= 0")["id"].sort())


def test_a_frame_of_all_files_stands_for_their_table_and_is_not_read(spark, tmp_path):
    table, zb = Delta(tmp_path), ZoneBloom(spark)
    files = [str(path) for path in table.root.rglob("*.parquet")]
    whole, part = spark.read.parquet(*files), spark.read.parquet(*files[:1])
    index = zb.create_index(whole, "key", rows_per_zone=ROWS_PER_ZONE)
    assert index.data.location == str(table.root)
    assert zb.refresh_index(whole).num_files_kept == len(files)
    with pytest.raises(InvalidArgumentError, match="must scan the files that the table has now"):
        zb.create_index(part, "id")
    assert whole.count() > table.rows().num_rows, "it has the rows that deletion vectors delete"
    with pytest.raises(InvalidArgumentError, match="must be read by its path, or as a DeltaTable"):
        zb.read(whole)


def test_a_frame_that_names_its_files_as_icebergs_do_stands_for_their_table(spark, tmp_path):
    table = Iceberg(tmp_path)
    files = [(task.file.file_path,) for task in table.source.scan().plan_files()]
    frame = spark.createDataFrame(files, "_file string")
    with pytest.raises(InvalidArgumentError, match=r"got other files of .*; pass the path, or the DeltaTable or"):
        ZoneBloom(spark).create_index(frame, "key", index=tmp_path / "made")  # only the catalog knows the version
    metadata = Path(table.source.metadata_location.removeprefix("file://"))
    for path in metadata.parent.glob("*.metadata.json"):
        path.rename(metadata.with_name("v1.metadata.json" if path == metadata else f"{path.name}.old"))
    index = ZoneBloom(spark).create_index(frame, "key", index=tmp_path / "made")
    assert index.num_fragments == 3


# --- reading ----------------------------------------------------------------------------------------------------------


def test_reads_follow_a_table_that_changes(any_spark, table):
    zb = ZoneBloom(any_spark)
    zonebloom.build_index(table.source, "key", index=table.index, rows_per_zone=ROWS_PER_ZONE)
    lake = zb.read(table.source, index=table.index)
    assert_agrees(lake, table)
    table.delete_more()
    assert_agrees(lake, table)
    table.append(numbered(6000, 6500))
    assert_agrees(lake, table)


def test_few_zones_are_read_and_explained(spark, table):
    """The index lies in its place beside the table."""
    zb, condition = ZoneBloom(spark), f"key = '{key(4321)}'"
    zonebloom.build_index(table.source, "key", rows_per_zone=ROWS_PER_ZONE)
    lake = zb.read(table.source)
    read = lake.prepare(condition)
    assert (read.method, read.plan.result.num_zones_kept) == ("driver", 1)
    assert read.plan.result.num_zones > 20
    by_tasks = lake.prepare(condition, method="row_ranges")
    assert by_tasks.frame.rdd.getNumPartitions() == 1
    frames = [by_tasks.frame, lake.where("key = 'nobody'", method="files")]
    assert rows_of_each([frame.select("id") for frame in frames]) == [["(4321,)"], []]
    said = zb.explain(table.source, condition)
    assert "read by: driver" in str(said)
    assert {row.part for row in said.to_df().collect()} >= {"files", "zones", "rows", "bytes", "method"}
    assert str(zb.explain(table.source, "id + 1 = 3"))


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
    zonebloom.build_index(source, ["key", "p"], index=table.index, rows_per_zone=ROWS_PER_ZONE)
    for method in ("auto", "row_ranges"):
        lake = zb.read(source, index=table.index)
        expected = source.scan().to_arrow().sort_by("id").to_pylist()
        assert arrow_of(lake.where("id >= 0", method=method)).sort_by("id").to_pylist() == expected
        frames = [lake.where(text, method=method).selectExpr("id") for text in ("f = 0.1D", "p = 'b'")]
        assert rows_of_each(frames) == [sorted(f"({number},)" for number in range(first, 40, 2)) for first in (0, 1)]


def test_a_lance_table_is_built_by_executors_and_its_rows_are_refused_by_name(spark, tmp_path):
    """Oracle: the library's build."""
    root = tmp_path / "t.lance"
    lance.write_dataset(numbered(0, 3000), str(root), max_rows_per_file=1000).delete("id < 10")
    zb = ZoneBloom(spark)
    indexed = zb.create_index(str(root), "key", rows_per_zone=ROWS_PER_ZONE, index=str(tmp_path / "made"))
    wanted = zonebloom.build_index(root, "key", rows_per_zone=ROWS_PER_ZONE, index=tmp_path / "wanted")
    assert indexed.zone_table("key").to_arrow().equals(wanted.zone_table("key").to_arrow())
    assert indexed.to_table(zonebloom.col("key") == key(77))["id"].to_pylist() == [77]
    with pytest.raises(InvalidArgumentError, match=r"must be of Parquet files, got the Lance table .*t\.lance"):
        zb.read(str(root), index=str(tmp_path / "made"))
