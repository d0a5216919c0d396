"""Delete and upsert by keys: the table has the rows that pyiceberg's own gives it, and few files are rewritten.

Oracle: pyiceberg 0.12 (`Table.delete`, `Table.upsert`), on a table of the same rows.
"""

from __future__ import annotations

import json
import struct
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable, Table
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform, TruncateTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

import zonebloom as zb
from tests.depth import some
from tests.iceberg_log import delete_rows
from tests.tables import catalog_in
from zonebloom.engines import iceberg
from zonebloom.errors import (
    ColumnNotFoundError,
    DataFileError,
    InvalidArgumentError,
    MissingDependencyError,
    StorageError,
)

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "day", StringType(), required=False),
    NestedField(3, "text", StringType(), required=False),
)
PARTITIONS = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="day"))


UUIDS = pa.array([bytes([i]) * 16 for i in range(3)], pa.uuid())


def rows(start: int, stop: int, text: str = "old") -> pa.Table:
    ids = list(range(start, stop))
    return pa.table({"id": ids, "day": [f"d{i % 2}" for i in ids], "text": [f"{text} {i}" for i in ids]})


def sorted_rows(table: Table) -> list[dict[str, object]]:
    return sorted(table.scan().to_arrow().to_pylist(), key=str)


def files_of(table: Table) -> set[str]:
    return {task.file.file_path for task in table.scan().plan_files()}


@pytest.fixture(params=["plain", "partitioned"])
def tables(request, catalog: SqlCatalog) -> tuple[Table, Table]:
    """Two tables of the same four files: one for us, one for the oracle."""
    spec = {"partition_spec": PARTITIONS} if request.param == "partitioned" else {}
    both = [catalog.create_table(f"db.{name}", SCHEMA, **spec) for name in ("ours", "theirs")]
    for table in both:
        for start in (0, 100, 200):
            table.append(rows(start, start + 100))
        table.append(pa.table({"id": [None, 7], "day": ["d0", "d1"], "text": ["no id", "seven again"]}))
    return both[0], both[1]


@pytest.fixture
def place(tables, tmp_path: Path) -> Path:
    """An index of filters where the table is partitioned, else of locators."""
    kind = "bloom" if tables[0].spec().fields else "locator"
    zb.build_index(tables[0], "id", index=tmp_path / "index", rows_per_zone=10, kind=kind)
    return tmp_path / "index"


@pytest.mark.parametrize("what", ["delete", "upsert"])
def test_only_files_that_hold_a_key_are_rewritten(tables, place, what):
    ours, theirs = tables
    before, num_snapshots = files_of(ours), len(ours.snapshots())
    if what == "delete":
        done = iceberg.delete(ours, "id", [7, 150, 10**9, None], index=place)
        theirs.delete("id in (7, 150, 1000000000)")
        assert done.num_files == 3
    else:
        new = pa.concat_tables([rows(120, 130, "new"), rows(1000, 1003, "new")])
        done = iceberg.upsert(ours, new.select(["text", "id", "day"]), "id", index=place)
        theirs.upsert(new, join_cols=["id"])
        assert done.num_files <= 2
    assert sorted_rows(ours) == sorted_rows(theirs)
    assert set(done.old_files) == before - files_of(ours)
    assert len(done.old_files) == done.num_files
    assert (done.num_rows_removed, done.num_rows_added) == {"delete": (3, 0), "upsert": (10, 13)}[what]
    assert len(ours.snapshots()) == num_snapshots + 1
    if what == "delete":
        held = [pq.ParquetFile(path.removeprefix("file://")).read(["id"])["id"].to_pylist() for path in done.old_files]
        assert sum(ids.count(7) + ids.count(150) for ids in held) == 3, "the old files hold the rows"
    assert ours.properties == ours.catalog.load_table("db.ours").properties == {}


def test_files_that_the_index_does_not_know_are_read(tables, place):
    ours, theirs = tables
    for table in tables:
        table.append(rows(40, 60, "later"))
    iceberg.delete(ours, "id", [45], index=place)
    theirs.delete("id = 45")
    assert sorted_rows(ours) == sorted_rows(theirs)
    index = zb.open_index(place, dataset=ours)
    index.refresh()
    assert index.exists("id", [45, 46]).to_pylist() == [False, True]
    done = iceberg.delete(ours, "id", [45, 47], index=index)
    theirs.delete("id = 47")
    assert sorted_rows(ours) == sorted_rows(theirs)
    assert done.num_rows_removed == 2


def test_nothing_to_do_makes_no_snapshot(tables, place):
    ours, _ = tables
    before = ours.snapshots()
    done = iceberg.delete(ours, "id", [10**9, None], index=place)
    assert done == iceberg.Rewrite(0, 0, 0, 0)
    assert ours.snapshots() == before
    late = ours.catalog.load_table("db.ours")
    ours.append(rows(500, 510))
    iceberg.delete(late, "id", [10**9], index=place)
    assert late.metadata_location == ours.metadata_location


def test_rows_that_a_table_deleted_do_not_come_back(tmp_path, tables, place):
    ours, _ = tables
    [path] = [task.file.file_path for task in ours.scan(row_filter="id = 250 and day = 'd0'").plan_files()]
    live = len(sorted_rows(ours))
    partition = Record("d0") if ours.spec().fields else None
    delete_rows(ours, tmp_path / "deletes.parquet", {path: [0, 1]}, partition=partition)
    ours.refresh()
    assert len(sorted_rows(ours)) == live - 2
    done = iceberg.delete(ours, "id", [250], index=place)
    assert done.num_files == 1
    assert len(sorted_rows(ours)) == live - 3


def indexed(catalog: SqlCatalog, index: Path, columns: dict[str, Any], partition: Transform | None = None) -> Table:
    """A table of these columns, with an index of the first; only what comes later is in partitions by `v`."""
    rows = pa.table(columns)
    table = catalog.create_table("db.t", rows.schema)
    table.append(rows)
    if partition:
        table.update_spec().add_field("v", partition).commit()
    zb.build_index(table, rows.column_names[0], index=index)
    return table


ALIKE = {
    "long": (pa.array([1, 2]), pa.array(["1"]), pa.array(["1", "01"])),
    "double": (pa.array([0.0, 2.0]), pa.array([-0.0]), pa.array([0.0, -0.0])),
    "float": (pa.array([0.1, 2.0], pa.float32()), pa.array([0.1]), pa.array([0.1, 0.1 + 1e-12])),
    "uuid": (UUIDS, UUIDS[1:2], pa.chunked_array([UUIDS[1:2], UUIDS[1:2]])),
}


@pytest.mark.parametrize("kind", list(ALIKE))
def test_keys_of_an_upsert_are_compared_as_the_table_has_them(catalog, tmp_path, kind):
    stored, key, twice = ALIKE[kind]
    table = indexed(catalog, tmp_path / "index", {"k": stored})
    done = iceberg.upsert(table, pa.table({"k": key}), "k", index=tmp_path / "index")
    assert (done.num_rows_removed, done.num_rows_added) == (1, 1)
    assert set(table.scan().to_arrow()["k"].to_pylist()) == set(stored.to_pylist())
    with pytest.raises(InvalidArgumentError, match="each k of rows must occur once, got 2 rows of 1"):
        iceberg.upsert(table, pa.table({"k": twice}), "k", index=tmp_path / "index")


def test_what_cannot_be_written_is_refused_before_anything_is(tables, place):
    ours, _ = tables
    before = files_of(ours)
    twice = pa.concat_tables([rows(1, 3), rows(2, 4)])
    for wrong, message in (
        (rows(1, 3).to_batches()[0], "rows must be a pyarrow Table, got RecordBatch"),
        (rows(1, 3).to_pydict(), "rows must be a pyarrow Table, got dict"),
        (twice, "each id of rows must occur once, got 4 rows of 3"),
        (rows(1, 3).drop_columns("text"), "rows must have the columns id, day, text"),
        (rows(1, 3).drop_columns("id"), "rows must have the column id, got day, text"),
        (rows(1, 3).set_column(1, "day", pa.array([{"a": 1}] * 2)), "rows must convert to the types of the table"),
        (rows(1, 2).set_column(0, "id", pa.array([0.5])), "rows must convert to the types of the table"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            iceberg.upsert(ours, wrong, "id", index=place)
    static = StaticTable.from_metadata(ours.metadata_location)
    for wrong in (static, ours.location(), place):
        with pytest.raises(InvalidArgumentError, match="table must be a pyiceberg Table of a catalog, got"):
            iceberg.delete(wrong, "id", [7], index=place)
    with pytest.raises(InvalidArgumentError, match="table must be a pyiceberg Table, got str"):
        iceberg.table("lake.events", index=place)
    with pytest.raises(ColumnNotFoundError, match="text"):
        iceberg.delete(ours, "text", ["old 7"], index=place)
    assert files_of(ours) == before


def test_a_table_of_format_3_is_refused_before_anything_is_written(tables, place, tmp_path):
    """Written by hand: pyiceberg 0.12 reads it, and writes none."""
    ours, _ = tables
    metadata = json.loads(Path(ours.metadata_location.removeprefix("file://")).read_text())
    metadata |= {"format-version": 3, "next-row-id": 400}
    for snapshot in metadata["snapshots"]:
        snapshot |= {"first-row-id": 0, "added-rows": 100}
    (tmp_path / "v3.metadata.json").write_text(json.dumps(metadata))
    table = ours.catalog.register_table("db.newer", (tmp_path / "v3.metadata.json").as_uri())
    with pytest.raises(InvalidArgumentError, match="must be of format 1 or 2 to be rewritten by keys, got format 3"):
        iceberg.delete(table, "id", [7], index=place)


def test_without_pyiceberg_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyiceberg.table", None)
    for call in (lambda: iceberg.delete("table", "id", [7]), lambda: iceberg.upsert("table", rows(7, 8), "id")):
        with pytest.raises(MissingDependencyError, match=r'pip install "zonebloom\[iceberg\]"'):
            call()


VALUES = {
    "float": (pa.array([0.0, -0.0, float("nan"), 0.1, None] * 2, pa.float32()), IdentityTransform()),
    "uuid": (pa.concat_arrays([UUIDS, pa.nulls(2, pa.uuid())] * 2), IdentityTransform()),
    "bytes": (pa.array([b"", b"\0", b"\xff\0", b"\xff\1", None] * 2), TruncateTransform(1)),
}


@pytest.mark.parametrize("kind", list(VALUES))
def test_rows_of_any_value_of_a_partition_are_written_once(catalog, tmp_path, kind):
    """pyiceberg's own rewrite gives both zeros twice, loses NaN, and fails for UUIDs and pieces of bytes."""
    values, transform = VALUES[kind]
    table = indexed(catalog, tmp_path / "index", {"id": range(10), "v": values}, transform)
    before = table.scan().to_arrow()
    for number, key in enumerate((9, 3)):  # a file without partitions, then one of the partitions
        assert iceberg.delete(table, "id", [key], index=tmp_path / "index").num_files == 1
        gone = [9, 3][: number + 1]
        wanted = sorted(before.filter(~pc.field("id").isin(gone)).to_pylist(), key=str)
        assert str(sorted_rows(table)) == str(wanted)
    iceberg.upsert(table, before.filter(pc.field("id").isin([0, 1, 3, 4, 9])), "id", index=tmp_path / "index")
    assert str(sorted_rows(table)) == str(sorted(before.to_pylist(), key=str))
    if kind == "float":  # pyiceberg 0.12 removes no file of NaN
        with pytest.raises(DataFileError, match="or of NaN to be rewritten, got NaN in partitions by v; use"):
            iceberg.delete(table, "id", [2], index=tmp_path / "index")
        assert str(sorted_rows(table)) == str(sorted(before.to_pylist(), key=str))
    index = zb.open_index(tmp_path / "index", dataset=table)
    index.refresh()
    for value in values.drop_null().to_pylist():
        matching = [row for row in before.to_pylist() if row["v"] == value]
        assert index.to_table(zb.col("v") == value).num_rows == len(matching)


def test_partitions_by_a_double_are_written_but_never_rewritten(catalog, tmp_path):
    """pyiceberg 0.12 reads them as floats, and would write them so for all other files of the manifest."""
    columns = {"id": range(5), "v": [0.0, -0.0, float("nan"), 0.1, 0.2]}
    table = indexed(catalog, tmp_path / "index", columns, IdentityTransform())
    iceberg.delete(table, "id", [4], index=tmp_path / "index")
    [manifest] = [manifest for manifest in table.current_snapshot().manifests(table.io) if manifest.added_files_count]
    assert manifest.partitions[0].upper_bound == struct.pack("<d", 0.1)
    before = sorted_rows(table)
    assert [row["id"] for row in sorted(before, key=lambda row: row["id"])] == [0, 1, 2, 3]
    with pytest.raises(DataFileError, match="a double or of NaN to be rewritten, got partitions by v; use another"):
        iceberg.delete(table, "id", [3], index=tmp_path / "index")
    assert str(sorted_rows(catalog.load_table("db.t"))) == str(before)


def of_times(catalog: SqlCatalog, _folder: Path) -> Table:
    """Partitions that pyiceberg cannot write."""
    columns = pa.table({"id": [1, 2], "v": pa.array([1, 2], pa.time64("us"))})
    table = catalog.create_table("db.t", columns.schema)
    table.append(columns)
    table.update_spec().add_field("v", BucketTransform(4)).commit()
    return table


def of_late_dates(catalog: SqlCatalog, _folder: Path) -> Table:
    """pyiceberg 0.12 counts a file by Python's dates, which end with the year 9999."""
    columns = pa.table({"id": [1, 2], "v": pa.array([0, 3_000_000], pa.date32())})
    table = catalog.create_table("db.t", columns.schema, properties={"write.metadata.metrics.default": "none"})
    table.append(columns)
    table.transaction().set_properties({"write.metadata.metrics.default": "full"}).commit_transaction()
    return table


PAIR, ROW = pa.struct([("q", pa.int64()), ("a b", pa.int64())]), {"q": 1, "a b": 2}
PAIRS = pa.map_(pa.string(), PAIR)
NESTED = {
    "list": (pa.list_(PAIR), [None, [], [None], [ROW]], "element.q"),
    "map": (PAIRS, [None, [], [("k", None)], [("k", ROW)]], "value.q"),
    "lists": (pa.list_(pa.list_(PAIR)), [None, [None], [[]], [[ROW]]], "element.element.q"),
    "map in list": (pa.list_(PAIRS), [None, [None], [[]], [[("k", ROW)]]], "element.value.q"),
    "list in struct": (pa.struct([("s", pa.list_(PAIR))]), [None, {"s": None}, {"s": []}, {"s": [ROW]}], "s.element.q"),
}


@pytest.mark.parametrize("kind", list(NESTED))
def test_nested_values_of_other_rows_and_of_an_upsert_stay_as_they_are(catalog, tmp_path, kind):
    """Oracle: pyarrow. pyiceberg 0.12 makes null lists of structs empty, and renamed fields of lists in lists null."""
    nested, values, path = NESTED[kind]
    schema = pa.schema([("id", pa.int64()), ("v-1", nested)])
    table = catalog.create_table("db.nested", schema)
    pq.write_table(pa.table([range(5), pa.array([*values, None], nested)], schema=schema), tmp_path / "file.parquet")
    table.add_files([str(tmp_path / "file.parquet")])
    table.update_schema().rename_column(f"v-1.{path}", "r").commit()
    zb.build_index(table, "id", index=tmp_path / "index")
    now = None
    for _ in range(2):
        if now is None:
            iceberg.delete(table, "id", [4], index=tmp_path / "index")
        else:
            iceberg.upsert(table, now, "id", index=tmp_path / "index")
        now = zb.open_index(tmp_path / "index", dataset=table).to_table("id IS NOT NULL")
        assert str(now.sort_by("id")["v-1"].to_pylist()) == str(values).replace("'q'", "'r'")
        [file] = files_of(table)
        stored = pq.ParquetFile(file.removeprefix("file://")).read().sort_by("id")
        assert str(stored["v_x2D1"].to_pylist()) == str(values).replace("'q'", "'r'").replace("a b", "a_x20b")
        assert [len(row["v-1"] or ()) for row in table.scan().to_arrow().sort_by("id").to_pylist()] == [
            len(value or ()) for value in values
        ]


def of_one_name(catalog: SqlCatalog, folder: Path) -> Table:
    """Two columns that have one name in files."""
    table = catalog.create_table("db.t", pa.schema([("a b", pa.int64()), ("a_x20b", pa.int64())]))
    pq.write_table(pa.table({"a b": [1, 2], "a_x20b": [10, 20]}), folder / "a.parquet")
    table.add_files([(folder / "a.parquet").as_uri()])
    return table


def without_its_partition(catalog: SqlCatalog, _folder: Path, version: str) -> Table:
    """pyiceberg 0.12 writes no manifest of a spec whose column is gone."""
    table = catalog.create_table("db.t", SCHEMA, partition_spec=PARTITIONS, properties={"format-version": version})
    table.append(rows(0, 10))
    table.update_spec().remove_field("day").commit()
    table.update_schema().delete_column("day").commit()
    return table


GONE = [partial(without_its_partition, version=version) for version in "12"]


@pytest.mark.parametrize("make", [of_times, of_late_dates, of_one_name, *GONE])
def test_what_pyiceberg_cannot_rewrite_is_told_and_nothing_stays(catalog, tmp_path, make):
    table = make(catalog, tmp_path)
    key, num_rows = table.schema().fields[0].name, table.scan().to_arrow().num_rows
    index = zb.build_index(table, key, index=tmp_path / "index")
    root = Path(table.location().removeprefix("file://"))
    before, told = set(root.rglob("*")), "got .*a_x20b" if make is of_one_name else "got "
    with pytest.raises(DataFileError, match=f"must be one that pyiceberg can rewrite, {told}"):
        iceberg.delete(table, key, [1], index=tmp_path / "index")
    assert set(root.rglob("*")) == before
    assert index.to_table(~zb.col(key).is_null()).num_rows == num_rows


@pytest.mark.parametrize("ending", some([".parquet", "-m0.avro", ".metadata.json"], 2))
def test_a_store_that_refuses_a_file_is_told_and_changes_nothing(s3, tmp_path, ending):
    catalog = catalog_in(s3, tmp_path)
    table = catalog.create_table("db.t", SCHEMA)
    table.append(rows(0, 20))
    zb.build_index(table, "id", index=tmp_path / "index")

    def fault(method: str, path: str, _query: str) -> str | None:
        return "deny" if method in ("PUT", "POST") and path.endswith(ending) else None

    def listed() -> set[str]:
        keys = {content["Key"] for content in s3.client.list_objects_v2(Bucket=s3.name)["Contents"]}
        return {key for key in keys if key.endswith(".parquet")}

    before, files = sorted_rows(table), listed()
    with s3.server.misbehaving(fault), pytest.raises(StorageError, match=r"cannot (rewrite|commit to) table"):
        iceberg.delete(table, "id", [7], index=tmp_path / "index")
    assert sorted_rows(catalog.load_table("db.t")) == before
    if ending != ".metadata.json":  # only the catalog knows whether that was written
        assert listed() == files
    assert iceberg.delete(table, "id", [7], index=tmp_path / "index").num_rows_removed == 1
    catalog.close()


def test_an_index_is_opened_with_its_own_storage_options(s3, catalog):
    table = catalog.create_table("db.t", SCHEMA)
    table.append(rows(0, 20))
    index = zb.build_index(table, "id", index=s3.url("index"), storage_options=s3.options)
    assert not list(iceberg.table(table, index=index).scan("id = -1").plan_files())
    assert iceberg.delete(table, "id", [7], index=index).num_rows_removed == 1
    assert iceberg.upsert(table, rows(3, 4, "new"), "id", index=index).num_rows_removed == 1
    assert zb.erase(table, "id", [5], index=index.location, storage_options=s3.options).num_rows_erased == 1
