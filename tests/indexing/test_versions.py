"""Versions are kept until a vacuum, which removes what no version needs and nothing else."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import zonebloom as zb
from tests.lives import write
from zonebloom.errors import ConcurrentCommitError, CorruptIndexError, InvalidArgumentError, UnsupportedFormatError
from zonebloom.indexing import versions
from zonebloom.indexing.versions import vacuum
from zonebloom.storage import manifest
from zonebloom.storage.manifest import list_versions, named_paths, read_version, version_path
from zonebloom.stores.local import LocalStore

NOW = timedelta(0)


@pytest.fixture
def index(tmp_path):
    """Version 1 knows a and b, version 2 only b, version 3 b and c."""
    write(tmp_path / "a.parquet", range(100))
    write(tmp_path / "b.parquet", range(100, 200))
    index = zb.build_index(tmp_path, "k", rows_per_zone=10, workers=1)
    (tmp_path / "a.parquet").unlink()
    index.refresh()
    write(tmp_path / "c.parquet", range(200, 300))
    index.refresh()
    return index


def files_of(index) -> set[str]:
    return {path.relative_to(index.root).as_posix() for path in index.root.rglob("*") if path.is_file()}


def age(index, path: str, days: float) -> None:
    when = time.time() - days * 86400
    os.utime(index.root / path, (when, when))


def test_versions_are_told(index):
    existing = index.versions()
    told = [(version.number, version.operation, version.num_files, version.columns) for version in existing]
    assert told == [(1, "build", 2, ("k",)), (2, "refresh", 1, ("k",)), (3, "refresh", 2, ("k",))]
    assert [version.num_zones for version in existing] == [20, 20, 30]
    assert all(datetime.now(UTC) - version.committed_at < timedelta(minutes=1) for version in existing)
    assert [zb.open_index(index.root, version=version.number).num_fragments for version in existing] == [2, 1, 2]


def test_restore_is_a_new_version_with_the_old_content(index):
    write(Path(index.data.location) / "a.parquet", range(100))
    assert index.restore(1) == index.version == 4
    before, after = (read_version(LocalStore(index.root), number) for number in (1, 4))
    assert (after.columns, after.fragment_lists, after.dropped) == (before.columns, before.fragment_lists, ())
    assert after.next_fragment_id == 3, "ids that were used since are not used again"
    result = index.search("k = 50", strict=False)
    assert result.kept.zones == 1, "the file is as it was"
    assert [str(reason.code) for reason in result.reasons] == ["FILE_NOT_INDEXED"]
    assert index.to_table("k = 250").num_rows == 1
    done = index.refresh()
    assert (done.num_files_added, done.num_files_kept) == (1, 2)
    assert index.restore(index.version) == index.version == 5, "the current one is there already"
    with pytest.raises(InvalidArgumentError, match="no version 9 is kept; versions: 1, 2, 3, 4, 5"):
        index.restore(9)


def test_a_version_that_lost_a_file_is_not_restored(index):
    path = read_version(LocalStore(index.root), 1).columns[0].segments[0].path
    (index.root / path).unlink()
    with pytest.raises(CorruptIndexError, match="all files of version 1 must exist"):
        index.restore(1)
    assert list_versions(LocalStore(index.root)) == [1, 2, 3]


def test_data_files_in_folders_of_the_names_that_an_index_has(tmp_path):
    """They are named in the version, and are no files of the index."""
    for folder in ("columns", "fragments"):
        (tmp_path / "lake" / folder).mkdir(parents=True)
        write(tmp_path / "lake" / folder / "a.parquet", range(100))
    files = sorted((tmp_path / "lake").rglob("*.parquet"))
    index = zb.build_index(files, "k", rows_per_zone=10, index=tmp_path / "index")
    write(files[0], range(100, 200), extra=7)
    index.refresh()
    assert index.restore(1) == 3
    index.vacuum(older_than=NOW)
    assert index.to_table("k = 150").num_rows == 1
    assert index.search("k = 50").kept.rows == 100 + 10


def test_versions_from_the_future_are_not_told(index):
    text = (index.root / version_path(2)).read_text()
    (index.root / version_path(2)).write_text(text.replace('"format_version": 2', '"format_version": 3'))
    assert [version.number for version in index.versions()] == [1, 3]


def test_a_version_file_under_the_number_of_another_is_none(index):
    (index.root / version_path(9)).write_bytes((index.root / version_path(3)).read_bytes())
    with pytest.warns(RuntimeWarning, match=r"0009\.json must hold version 9, got 3"):
        opened = zb.open_index(index.root)
    assert opened.search("k = 150").kept.rows == 200
    with pytest.warns(RuntimeWarning, match="must hold version 9"):
        assert opened.refresh().version == 10
    assert zb.open_index(index.root).search("k = 150").kept.zones == 1


def test_a_restore_beside_a_vacuum_of_all_that_it_knew_says_that_another_commit_came_first(index, meanwhile):
    """Interleavings from seed 50013859."""
    other, store = zb.open_index(index.root), LocalStore(index.root)

    def vacuumed():
        write(Path(index.data.location) / "d.parquet", range(300, 400))
        other.refresh()
        vacuum(store, older_than=NOW, dry_run=False)

    meanwhile(versions, "_readable", vacuumed)
    with pytest.raises(ConcurrentCommitError, match="version 4"):
        versions.restore(store, 2)
    assert list_versions(store) == [4]


def test_vacuum_keeps_what_is_young(index):
    before = files_of(index)
    assert index.vacuum().files == ()
    for version in (1, 2, 3):
        age(index, version_path(version), days=30)
    age(index, version_path(3), days=3)
    done = index.vacuum()
    assert done.versions == (1,), "version 2 was current until 3 days ago"
    assert done.files == (version_path(1),), "and needs all else"
    assert files_of(index) == before - {version_path(1)}


def test_vacuum_removes_what_no_version_names(index):
    wanted = index.search("k = 250").row_ranges
    orphan = "columns/k/00000000-0000-0000-0000-000000000000.zones.arrow"
    staged = "versions/.00000000000000000009.json.0123456789abcdef"
    for path in (orphan, staged):
        (index.root / path).write_bytes(b"12345")
    (index.root / "columns/k/notes.txt").write_text("mine")
    (index.root / "README").write_text("mine")
    before = files_of(index)
    assert index.vacuum(older_than="7d", dry_run=True) == index.vacuum(older_than=7, dry_run=True)
    looked = index.vacuum(older_than=NOW, dry_run=True)
    assert looked.is_dry_run
    assert files_of(index) == before
    done = index.vacuum(older_than=NOW)
    assert (done.versions, done.files, done.num_bytes) == (looked.versions, looked.files, looked.num_bytes)
    assert done.versions == (1, 2)
    assert {orphan, staged} < set(done.files)
    kept = named_paths(LocalStore(index.root), 3)
    rest = {version_path(3), "ids/00000000000000000002", "columns/k/notes.txt", "README"}
    assert files_of(index) == kept | rest
    assert index.search("k = 250").row_ranges == wanted
    assert index.verify(sample=1.0).is_sound
    assert index.vacuum(older_than=NOW).files == ()


def test_of_two_vacuums_at_once_both_end(index, meanwhile):
    """The other one begins and ends just after this one listed the versions."""
    other = zb.open_index(index.root)
    meanwhile(versions, "list_versions", lambda: other.vacuum(older_than=NOW), is_after=True)
    done = index.vacuum(older_than=NOW)
    assert (done.versions, done.num_bytes) == ((), 0), "the other one had removed all"
    assert [version.number for version in index.versions()] == [3]
    assert index.to_table("k = 150").num_rows == 1


def test_a_reader_that_loses_its_segments_reads_more_and_says_so(index):
    begun, idle = (zb.open_index(index.root, version=1) for _ in range(2))
    wanted = begun.search("k = 150").row_ranges.fragment(1)
    index.refresh("full")
    index.vacuum(older_than=NOW)
    assert begun.search("k = 150").row_ranges.fragment(1) == wanted, "what is open stays open"
    with pytest.warns(RuntimeWarning, match="no such file"):
        assert idle.to_table("k = 150").num_rows == 1


def test_a_young_orphan_may_belong_to_a_running_commit(index):
    young = "columns/k/00000000-0000-0000-0000-000000000000.zones.arrow"
    (index.root / young).write_bytes(b"12345")
    age(index, young, days=6.9)
    assert index.vacuum().files == ()
    age(index, young, days=7.1)
    assert index.vacuum().files == (young,)


def test_ids_are_not_used_again_after_a_vacuum(index):
    index.vacuum(older_than=NOW)
    write(Path(index.data.location) / "d.parquet", range(5))
    index.refresh()
    assert sorted(fragment.fragment_id for fragment in index._snapshot.fragments.values()) == [1, 2, 3]


@pytest.mark.filterwarnings("ignore:versions.*everything is read whole:RuntimeWarning")
def test_vacuum_leaves_what_it_does_not_know(index):
    path = index.root / version_path(3)
    whole = path.read_text()
    path.write_text(whole[:100])
    before = files_of(index)
    with pytest.raises(CorruptIndexError, match="current version must be sound"):
        index.vacuum(older_than=NOW)
    path.write_text(whole.replace('"format_version": 2', '"format_version": 3'))
    with pytest.raises(UnsupportedFormatError):
        index.vacuum(older_than=NOW)
    document = json.loads(whole)
    del document["body"]["columns"]
    path.write_text(json.dumps(document | {"checksum": manifest.checksum(manifest._canonical(document["body"]))}))
    with pytest.raises(CorruptIndexError, match="current version must be sound"):
        index.vacuum(older_than=NOW)
    assert files_of(index) == before
    with pytest.raises(InvalidArgumentError, match=r"older_than .* is no time; write 7d, 12h or 30m"):
        index.vacuum(older_than=timedelta(days=-1))
