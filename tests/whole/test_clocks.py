"""A clock that goes back, or was ahead: what was written before has times in the future, and no row is lost for it.

`ahead` gives files the times that a clock leaves which was a day ahead when they were written.
"""

from __future__ import annotations

import os
import shutil
import time
from datetime import timedelta
from pathlib import Path

import lance
import pytest
from deltalake import write_deltalake

import zonebloom as zb
from tests import tables
from tests.lives import assert_every_row_is_found, lake_of, write
from zonebloom.formats.parquet import footer
from zonebloom.indexing.versions import vacuum
from zonebloom.storage.manifest import list_versions
from zonebloom.stores.local import LocalStore

DAY = 86_400
NOW = timedelta(0)


def ahead(place: Path, seconds: float = DAY) -> None:
    """Date all files in `place`, or one file, by a clock that is so far ahead of ours, or behind it."""
    when = time.time() + seconds
    for path in [place, *(place.rglob("*") if place.is_dir() else ())]:
        os.utime(path, (when, when))


@pytest.fixture
def index(tmp_path: Path) -> zb.Index:
    """An index of two files, in version 1."""
    return zb.build_index(lake_of(tmp_path, range(100), range(100, 200)), ["k", "s"], rows_per_zone=5, workers=1)


def root_of(index: zb.Index) -> Path:
    return Path(index.data.location)


def test_versions_follow_each_other_whatever_their_times(index):
    root = root_of(index)
    ahead(index.root)
    for number in range(2, 6):
        write(root / f"f{number}.parquet", range(100 * number, 100 * number + 50))
        index.refresh()
        ahead(index.root / f"versions/{number:020d}.json", -number * DAY)
        assert zb.open_index(root).version == index.version == number
        assert_every_row_is_found(root, zb.open_index(root), is_fresh=True)
    assert str(index.status())


def test_a_vacuum_takes_what_is_dated_in_the_future_for_young(index):
    root, store = root_of(index), LocalStore(index.root)
    ahead(index.root)
    write(root / "f2.parquet", range(200, 300))
    index.refresh()  # with the clock set right again
    ahead(index.root / f"versions/{2:020d}.json")
    write(root / "f3.parquet", range(300, 400))
    index.refresh()
    index.optimize()
    vacuumed = vacuum(store, older_than=NOW, dry_run=False)
    assert vacuumed.versions == (2, 3), "version 2 follows 1 tomorrow"
    assert list_versions(store) == [1, 4]
    assert_every_row_is_found(root, zb.open_index(root), is_fresh=True)
    assert zb.open_index(root, version=1).to_table("k = 7").num_rows == 1
    ahead(index.root, -DAY)
    assert vacuum(store, older_than=NOW, dry_run=False).versions == (1,)
    assert_every_row_is_found(root, zb.open_index(root), is_fresh=True)


def test_a_vacuum_of_a_clock_that_jumped_ahead_loses_versions_and_no_row(index):
    """All looks old to it: also what a running commit has written, which a refresh makes again."""
    root, writer = root_of(index), zb.open_index(index.root)
    write(root / "f2.parquet", range(200, 300))
    writer.refresh()
    ahead(index.root, -8 * DAY)
    assert index.vacuum().versions == (1,)
    assert_every_row_is_found(root, index)
    for opened in (index, writer):
        opened.refresh()
        assert_every_row_is_found(root, opened, is_fresh=True)


def test_the_footer_of_a_file_from_the_future_is_read_again_each_time(index):
    path = root_of(index) / "f1.parquet"
    ahead(path)
    footer._KEPT.clear()
    assert index.to_table("k IN (7, 107)").num_rows == 2
    assert len(footer._KEPT._values) == 1, "that of the other file"


def test_a_table_that_a_clock_ahead_of_ours_wrote_is_read_at_its_newest_version(tmp_path):
    delta, of_lance = tmp_path / "delta", tmp_path / "t.lance"
    for root, append in (
        (delta, lambda start: write_deltalake(delta, tables.rows(start, start + 40), mode="append")),
        (of_lance, lambda start: lance.write_dataset(tables.rows(start, start + 40), str(of_lance), mode="append")),
    ):
        append(0)
        ahead(root)
        index = zb.build_index(root, "u", rows_per_zone=tables.ROWS_PER_ZONE)
        for number, seconds in enumerate((2 * DAY, 0, -DAY, -DAY, DAY), 1):
            append(40 * number)
            ahead(root, seconds)
            assert index.to_table("id IS NOT NULL").num_rows == 40 * (number + 1)
        index.refresh()
        assert index.search(tables.user(200)).num_zones_kept == 1
        shutil.rmtree(root)
        for number in range(6):
            append(1000 + 40 * number)
        ahead(root)
        assert min(index.to_table("id IS NOT NULL")["id"].to_pylist()) == 1000
