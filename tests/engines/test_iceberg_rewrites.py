"""Delete and upsert by keys: the table has the rows that pyiceberg's own gives it, and few files are rewritten.

Oracle: pyiceberg 0.12 (`Table.delete`, `Table.upsert`), on a table of the same rows.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, FloatType, LongType, NestedField, StringType, UUIDType

import zonebloom as zb
from tests.iceberg_log import commit_deletes, position_deletes
from zonebloom.engines import iceberg
from zonebloom.errors import ColumnNotFoundError, ConcurrentCommitError, InvalidArgumentError

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
    made = [catalog.create_table(f"db.{name}", SCHEMA, **spec) for name in ("ours", "theirs")]
    for table in made:
        for start in (0, 100, 200):
            table.append(rows(start, start + 100))
        table.append(pa.table({"id": [None, 7], "day": ["d0", "d1"], "text": ["no id", "seven again"]}))
    return made[0], made[1]


@pytest.fixture
def place(tables, tmp_path: Path) -> Path:
    """An index of filters where the table is partitioned, else of locators."""
    has_filters = bool(tables[0].spec().fields)
    zb.build_index(tables[0], "id", index=tmp_path / "index", rows_per_zone=10, filters=has_filters)
    return tmp_path / "index"


def test_delete_rewrites_the_files_that_hold_a_key(tables, place):
    ours, theirs = tables
    before, num_snapshots = files_of(ours), len(ours.snapshots())
    done = iceberg.delete(ours, "id", [7, 150, 10**9, None], index=place)
    theirs.delete("id in (7, 150, 1000000000)")
    assert sorted_rows(ours) == sorted_rows(theirs)
    assert len(before - files_of(ours)) == done.num_files == 3
    assert (done.num_rows_removed, done.num_rows_added) == (3, 0)
    assert len(ours.snapshots()) == num_snapshots + 1


def test_upsert_replaces_rows_and_adds_others(tables, place):
    ours, theirs = tables
    before, num_snapshots = files_of(ours), len(ours.snapshots())
    new = pa.concat_tables([rows(120, 130, "new"), rows(1000, 1003, "new")])
    done = iceberg.upsert(ours, new.select(["text", "id", "day"]), "id", index=place)
    theirs.upsert(new, join_cols=["id"])
    assert sorted_rows(ours) == sorted_rows(theirs)
    assert len(before - files_of(ours)) == done.num_files <= 2
    assert (done.num_rows_removed, done.num_rows_added) == (10, 13)
    assert len(ours.snapshots()) == num_snapshots + 1


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


CHANGES = {
    "delete": lambda table, place: iceberg.delete(table, "id", [7], index=place),
    "upsert": lambda table, place: iceberg.upsert(table, rows(7, 8, "new"), "id", index=place),
}


@pytest.mark.parametrize("change", list(CHANGES))
def test_a_commit_that_another_writer_made_meanwhile_is_a_conflict_and_loses_nothing(tables, place, change):
    ours, _ = tables
    late = ours.catalog.load_table("db.ours")
    ours.append(rows(500, 510))
    root = Path(ours.location().removeprefix("file://"))
    expected, files = sorted_rows(ours), set(root.rglob("*.parquet"))
    with pytest.raises(ConcurrentCommitError, match="nothing was changed"):
        CHANGES[change](late, place)
    assert sorted_rows(ours.refresh()) == expected
    assert set(root.rglob("*.parquet")) == files


def test_rows_that_a_table_deleted_do_not_come_back(tmp_path, tables, place):
    ours, _ = tables
    [path] = [task.file.file_path for task in ours.scan(row_filter="id = 250 and day = 'd0'").plan_files()]
    live = len(sorted_rows(ours))
    position_deletes(tmp_path / "deletes.parquet", {path: [0, 1]})
    partition = Record("d0") if ours.spec().fields else None
    commit_deletes(ours, tmp_path / "deletes.parquet", DataFileContent.POSITION_DELETES, partition=partition)
    ours.refresh()
    assert len(sorted_rows(ours)) == live - 2
    done = iceberg.delete(ours, "id", [250], index=place)
    assert done.num_files == 1
    assert len(sorted_rows(ours)) == live - 3


ALIKE = {
    "long": (LongType(), pa.array([1, 2]), pa.array(["1"]), pa.array(["1", "01"])),
    "double": (DoubleType(), pa.array([0.0, 2.0]), pa.array([-0.0]), pa.array([0.0, -0.0])),
    "float": (FloatType(), pa.array([0.1, 2.0], pa.float32()), pa.array([0.1]), pa.array([0.1, 0.1 + 1e-12])),
    "uuid": (UUIDType(), UUIDS, UUIDS[1:2], pa.chunked_array([UUIDS[1:2], UUIDS[1:2]])),
}


@pytest.mark.parametrize("kind", list(ALIKE))
def test_keys_of_an_upsert_are_compared_as_the_table_has_them(catalog, tmp_path, kind):
    column_type, stored, key, twice = ALIKE[kind]
    table = catalog.create_table("db.alike", Schema(NestedField(1, "k", column_type, required=False)))
    table.append(pa.table({"k": stored.storage if kind == "uuid" else stored}))
    zb.build_index(table, "k", index=tmp_path / "index")
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
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            iceberg.upsert(ours, wrong, "id", index=place)
    with pytest.raises(ColumnNotFoundError, match="text"):
        iceberg.delete(ours, "text", ["old 7"], index=place)
    assert files_of(ours) == before
