"""What holds for the tables of each kind: the library's own reader says which rows there are.

What only Delta or Iceberg tables have is in `test_delta` and `test_iceberg`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

import zonebloom as zb
from tests.tables import ROWS_PER_ZONE, assert_agrees, plain, rows, user
from zonebloom.errors import DataFileError, StaleIndexError
from zonebloom.reasons import ReasonCode


class DeltaEvents:
    kind, version_key = "delta", "table_version"

    def __init__(self, folder: Path) -> None:
        self.source = folder / "table"

    def append(self, new: pa.Table) -> None:
        write_deltalake(self.source, new, mode="append")

    def delete(self, condition: str) -> None:
        DeltaTable(self.source).delete(condition)

    def overwrite(self, new: pa.Table) -> None:
        write_deltalake(self.source, new, mode="overwrite")

    def undo(self) -> None:
        DeltaTable(self.source).restore(self.version() - 1)

    def rows(self) -> pa.Table:
        return plain(DeltaTable(self.source).scan())

    def files(self) -> list[Path]:
        return [Path(one) for one in DeltaTable(self.source).file_uris()]

    def version(self) -> int:
        return DeltaTable(self.source).version()


class IcebergEvents:
    kind, version_key = "iceberg", "snapshot_id"

    def __init__(self, folder: Path) -> None:
        self._catalog = SqlCatalog("here", uri="sqlite:///:memory:", warehouse=(folder / "warehouse").as_uri())
        self._catalog.create_namespace("db")
        self.source = self._catalog.create_table("db.events", schema=rows(0, 1).schema)
        self.append, self.delete, self.overwrite = self.source.append, self.source.delete, self.source.overwrite

    def undo(self) -> None:
        parent = self.source.current_snapshot().parent_snapshot_id
        self.source.manage_snapshots().rollback_to_snapshot(parent).commit()

    def rows(self) -> pa.Table:
        return self.source.scan().to_arrow()

    def files(self) -> list[Path]:
        return [Path(one.file.file_path.removeprefix("file://")) for one in self.source.scan().plan_files()]

    def version(self) -> int:
        return self.source.current_snapshot().snapshot_id

    def close(self) -> None:
        self._catalog.close()


@pytest.fixture(params=[DeltaEvents, IcebergEvents], ids=["delta", "iceberg"])
def events(request, tmp_path) -> Iterator[DeltaEvents | IcebergEvents]:
    """A table of three files, of 40 rows each."""
    made = request.param(tmp_path)
    for start in (0, 40, 80):
        made.append(rows(start, start + 40))
    yield made
    if isinstance(made, IcebergEvents):
        made.close()


@pytest.fixture
def index(events, tmp_path) -> zb.Index:
    return zb.build_index(events.source, "u", index=tmp_path / "index", rows_per_zone=ROWS_PER_ZONE)


def test_one_zone_is_read(events, index):
    found = index.search(user(50))
    assert (found.num_zones_kept, found.num_zones) == (1, 15)
    assert index.to_table(user(50))["id"].to_pylist() == [50]
    assert_agrees(index, events.rows())
    assert index.verify(sample=1.0).is_sound


def test_appended_files_are_read_whole_until_a_refresh_builds_only_them(events, index):
    events.append(rows(120, 140))
    assert ReasonCode.FILE_NOT_INDEXED in {one.code for one in index.search(user(130)).reasons}
    assert_agrees(index, events.rows())
    with pytest.raises(StaleIndexError):
        index.search(user(130), strict=True)
    done = index.refresh()
    assert (done.num_files_added, done.num_files_kept, done.num_files_dropped) == (1, 3, 0)
    assert index.search(user(130), strict=True).num_rows_kept <= ROWS_PER_ZONE
    assert index.refresh().version == done.version


def test_a_scan_reads_one_version_whatever_is_committed_meanwhile(events, index):
    reader = index.scan("id IS NOT NULL")
    events.delete("id >= 20")
    assert reader.read_all().num_rows == 120
    assert index.to_table("id IS NOT NULL").num_rows == 20


def test_rows_that_were_deleted_or_overwritten_do_not_come_back(events, index):
    events.delete("id >= 20 and id < 90")
    assert index.to_table(user(50)).num_rows == 0
    assert_agrees(index, events.rows())
    assert index.refresh().num_files_dropped == 3
    assert_agrees(index, events.rows())
    events.overwrite(rows(500, 520))
    assert_agrees(index, events.rows())
    events.undo()
    assert_agrees(index, events.rows())
    index.refresh()
    assert index.view().num_unknown == 0
    assert_agrees(index, events.rows())


def test_a_file_that_differs_from_the_log_is_an_error_and_not_an_answer(events, index):
    pq.write_table(rows(0, 41), events.files()[0])
    with pytest.raises(DataFileError, match="bytes that its table's log says"):
        index.to_table("id IS NOT NULL")


def test_the_version_is_recorded_and_shown(events, index):
    first = events.version()
    events.append(rows(120, 130))
    explanation = index.explain(user(1))
    assert explanation.to_dict()[events.version_key] == events.version()
    assert f"{events.version_key.replace('_', ' ')} {events.version()}" in " ".join(str(explanation).split())
    assert (index.info()[events.version_key], index.info()["dataset_kind"]) == (first, events.kind)
    index.refresh()
    assert index.info()[events.version_key] == events.version()
