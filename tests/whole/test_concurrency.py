"""Writers that race: the loser's commit lands on top of the winner's; if both changed the same, one gets an error.

`ZONEBLOOM_COMMITS` sets the commits of each of 8 processes (16 in the deep suite).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

import zonebloom as zb
from tests.conftest import index_of
from tests.depth import IS_DEEP, at_depth
from tests.lives import hundreds, lake_of, rows_of, write
from zonebloom.errors import ConcurrentCommitError, CorruptIndexError, DataFileError, IndexNotFoundError
from zonebloom.indexing.versions import delete_index
from zonebloom.storage.commit import commit_change
from zonebloom.storage.fragments import read_fragments
from zonebloom.storage.manifest import Manifest, list_versions, read_version
from zonebloom.storage.reservation import reserved_ids
from zonebloom.storage.transaction import Change
from zonebloom.stores.local import LocalStore
from zonebloom.stores.open import open_store

COMMITS = int(os.environ.get("ZONEBLOOM_COMMITS") or at_depth(16, 2))
COMMITS_THERE = max(COMMITS // 3, 1)
"""To an object store, whose stand-in takes most of the time."""
WRITERS = 8


def assert_whole(root: Path, index: zb.Index, keys) -> None:
    """Every row is found, whether or not the index knows its file, and the zones that it has are right."""
    assert index.to_table(zb.IsIn("k", list(keys)))["k"].to_pylist() == rows_of(root)
    assert index.verify(sample=1.0).is_sound


def fragment_ids(index: zb.Index) -> set[int]:
    return {fragment.fragment_id for fragment in index._snapshot.fragments.values()}


# --- two writers ------------------------------------------------------------------------------------------------------


@pytest.fixture
def lake(tmp_path):
    root = lake_of(tmp_path, *hundreds(3))
    zb.build_index(root, "k", rows_per_zone=10)
    return root


@pytest.fixture
def store(lake) -> LocalStore:
    """Of the index of the lake."""
    return LocalStore(index_of(lake))


@pytest.fixture
def base(store) -> Manifest:
    """Version 1 of that index."""
    return read_version(store, 1)


def change_of(monkeypatch, work: Callable[[], object], module: str = "apply") -> Change:
    """What `work` would commit by a module of `indexing`; it is not committed."""
    held = []
    monkeypatch.setattr(f"zonebloom.indexing.{module}.commit_change", lambda *args: held.append(args[2]) or args[1])
    work()
    monkeypatch.undo()
    return held[0]


def test_the_same_new_file_lands_once(lake, store, base, monkeypatch):
    write(lake / "a.parquet", range(1000, 1100))
    write(lake / "b.parquet", range(2000, 2100))
    both = change_of(monkeypatch, zb.open_index(lake).refresh)
    zb.open_index(lake).refresh(paths=["a.parquet"])
    following = commit_change(store, base, both)
    index = zb.open_index(lake)
    assert index.version == following.version == 3
    assert len(fragment_ids(index)) == index.num_fragments == 5
    named = {entry.path for version in list_versions(store) for entry in read_version(store, version).fragment_lists}
    assert {f"fragments/{name}" for name in store.list("fragments")} == named, "no list stays of the attempt that lost"
    assert index.search("k = 1050", strict=True).kept.zones == 1
    assert_whole(lake, index, rows_of(lake))


def test_a_change_that_is_there_already_makes_no_version(lake, store, base, monkeypatch):
    write(lake / "a.parquet", range(1000, 1100))
    same = change_of(monkeypatch, zb.open_index(lake).refresh)
    zb.open_index(lake).refresh()
    assert commit_change(store, base, same).version == 2
    assert list_versions(store) == [1, 2]
    assert not any((store.root / path).exists() for path in same.written)


def test_the_same_file_in_two_states_overlaps_and_names_the_winner(lake, store, base, monkeypatch):
    write(lake / "a.parquet", range(1000, 1100))
    old = change_of(monkeypatch, zb.open_index(lake).refresh)
    write(lake / "a.parquet", range(1100, 1200), extra=7)
    zb.open_index(lake).refresh()
    with pytest.raises(ConcurrentCommitError, match=r"file a.parquet .* version 2 \(refresh, committed 2"):
        commit_change(store, base, old)
    assert list_versions(store) == [1, 2]
    assert not any((store.root / path).exists() for path in old.written)


def test_a_refresh_that_overlaps_starts_again_by_itself(lake, monkeypatch):
    """Between its build and its commit another one indexes the file in a later state."""
    write(lake / "a.parquet", range(1000, 1100))
    other, index = zb.open_index(lake), zb.open_index(lake)
    genuine, calls = commit_change, []

    def meddled(store, base, change):
        if not calls:
            calls.append(1)
            write(lake / "a.parquet", range(1100, 1200), extra=7)
            other.refresh()
        return genuine(store, base, change)

    monkeypatch.setattr("zonebloom.indexing.apply.commit_change", meddled)
    done = index.refresh()
    assert (done.version, done.num_files_added) == (2, 0)
    assert_whole(lake, zb.open_index(lake), rows_of(lake))


def test_optimize_and_refresh_both_land(lake, store, base, monkeypatch):
    for number in range(2):
        write(lake / f"x{number}.parquet", range(10_000 + number * 9000, 19_000 + number * 9000))
    change = change_of(monkeypatch, zb.open_index(lake).refresh)
    zb.open_index(lake).refresh(paths=["x0.parquet"])
    assert zb.open_index(lake).optimize().version == 3
    assert commit_change(store, base, change).version == 4
    index = zb.open_index(lake)
    assert index.indexed_columns()[0].segments == {"slices": 1, "zones": 1}
    assert_whole(lake, index, rows_of(lake))


def test_the_same_segments_are_not_merged_twice(lake, store, monkeypatch):
    """Else each of their zones would be there twice."""
    write(lake / "x.parquet", range(5000, 7000))
    zb.open_index(lake).refresh()
    base, merge = read_version(store, 2), change_of(monkeypatch, zb.open_index(lake).optimize, "optimize")
    assert zb.open_index(lake).optimize().version == 3
    num_zones = zb.open_index(lake).indexed_columns()[0].num_zones
    with pytest.raises(ConcurrentCommitError, match=r"segments of column k .* version 3 \(optimize"):
        commit_change(store, base, merge)
    assert list_versions(store) == [1, 2, 3]
    assert zb.open_index(lake).indexed_columns()[0].num_zones == num_zones
    assert not any((store.root / path).exists() for path in merge.written)


def test_a_new_column_and_a_refresh_both_land(lake, store, base, monkeypatch):
    write(lake / "a.parquet", range(1000, 1100))
    change = change_of(monkeypatch, zb.open_index(lake).refresh)
    (lake / "a.parquet").rename(lake / "_aside")
    zb.build_index(lake, "s", rows_per_zone=20)
    (lake / "_aside").rename(lake / "a.parquet")
    assert commit_change(store, base, change).version == 3
    index = zb.open_index(lake)
    assert index.search("s = 'text 1050'").kept.rows == 100, "the new column has not seen the file"
    done = index.refresh()
    assert (done.num_files_added, done.num_zones_added) == (0, 5), "the next refresh builds just that"
    assert index.search("s = 'text 1050'").kept.rows == 20
    assert index.refresh().version == done.version
    assert_whole(lake, index, rows_of(lake))


def test_a_column_that_both_build_overlaps(lake, store, base):
    zb.build_index(lake, "s")
    built = read_version(store, 2).column("s")
    assert built is not None
    with pytest.raises(ConcurrentCommitError, match=r"column s .* version 2 \(build"):
        commit_change(store, base, Change("build", (built,), is_rebuilt=True))


class PausingStore(LocalStore):
    """Lets others do something between looking for a free id and taking it."""

    meanwhile: Callable[[], None] | None = None

    def create(self, path: str, data: bytes) -> bool:
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        return super().create(path, data)


def test_ids_of_a_writer_that_failed_are_not_given_to_two_others(lake):
    store, other = PausingStore(index_of(lake)), LocalStore(index_of(lake))
    taken: list[range] = []

    def fail() -> None:
        with reserved_ids(other, 3, 5), reserved_ids(other, 3, 2) as first:
            taken.append(range(first, first + 2))
            raise KeyboardInterrupt

    def meanwhile() -> None:
        with pytest.raises(KeyboardInterrupt):
            fail()

    store.meanwhile = meanwhile
    with reserved_ids(store, 3, 100) as first:
        taken.append(range(first, first + 100))
    assert not set(taken[0]) & set(taken[1])


@pytest.mark.parametrize("is_gone", [False, True])
def test_an_id_that_is_there_already_overlaps(lake, store, base, is_gone):
    """Else zones of two files would have one id; also if the fragment is gone, whose zones may still lie about."""
    if is_gone:
        (lake / "f0.parquet").unlink()
        zb.open_index(lake).refresh()
    fragment = replace(read_fragments(store, base.fragment_lists[0]).at(0), path="new.parquet")
    assert fragment.fragment_id == 0
    with pytest.raises(ConcurrentCommitError, match=r"fragment id 0 of new\.parquet"):
        commit_change(store, base, Change("refresh", added=(fragment,)))


def test_segments_are_not_merged_without_what_a_restore_made_live_again(lake, store, monkeypatch):
    """The zones of a file that was gone when the merge began, and is not gone in the version that was restored."""
    index = zb.build_index(lake, "k", rows_per_zone=10, overwrite=True, workers=1)  # version 2: one segment
    (lake / "f0.parquet").rename(lake / "_aside")
    index.refresh()
    base, merge = read_version(store, 3), change_of(monkeypatch, index.optimize, "optimize")
    (lake / "_aside").rename(lake / "f0.parquet")
    index.restore(2)
    with pytest.raises(ConcurrentCommitError, match=r"segments of column k .* version 4 \(restore"):
        commit_change(store, base, merge)
    assert zb.open_index(lake).search("k = 50", strict=True).kept.zones == 1


def test_an_index_that_was_deleted_is_not_refreshed(lake, store):
    index = zb.open_index(lake)
    delete_index(store)
    with pytest.raises(IndexNotFoundError, match="build it"):
        index.refresh()
    assert not list_versions(store)


# --- many processes ---------------------------------------------------------------------------------------------------


@pytest.fixture
def run(zygote):
    """`run(root, what, numbers, ...)`: children do `what`, all at once."""

    def together(root: Path, what: str, numbers, **options) -> None:
        children = [zygote.fork(what, root, number=number, **options) for number in numbers]
        assert [zygote.wait(child) for child in children] == [0] * len(children)

    return together


@pytest.mark.parametrize("where", ["local disk", "s3", *(["azure"] if IS_DEEP else [])])
def test_eight_processes_commit_and_none_is_lost(lake, request, run, figure, where):
    """Each commit adds another local file, while a reader holds the first version."""
    place, options, commits = f"{lake}.index", None, COMMITS
    if where != "local disk":
        store = request.getfixturevalue(where)
        place, options, commits = store.url("index"), store.options, COMMITS_THERE
    reader = zb.build_index(lake, "k", rows_per_zone=10, index=place, storage_options=options)
    before = reader.search("k = 150").row_ranges
    run(lake, "commit_often", range(1, WRITERS + 1), commits=commits, index=place, options=options)
    index = zb.open_index(place, storage_options=options)
    assert list_versions(open_store(place, options)) == list(range(1, 2 + WRITERS * commits))
    assert index.num_fragments == len(fragment_ids(index)) == 3 + WRITERS * commits
    assert_whole(lake, index, rows_of(lake))
    assert index.search("k = 20005", strict=True).kept.files == 1
    assert reader.version == 1
    assert reader.search("k = 150").row_ranges.fragment(1) == before
    figure(f"{WRITERS * commits} commits of {WRITERS} processes on {where}, none lost, no version skipped")


# --- a copy that sees several moments ---------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*rows that it describes are read whole", "ignore:.*everything is read whole")
def keys_in(index, predicate):
    """The keys of the rows that match, read again where a file changed meanwhile."""
    while True:
        with contextlib.suppress(DataFileError):
            return index.to_table(predicate)["k"].to_pylist()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_an_index_that_is_copied_while_it_is_written_finds_every_row(tmp_path):
    """The files of a copy are of different moments: some are missing in it, which warns, and others nobody names."""
    root = lake_of(tmp_path, *hundreds(3))
    zb.build_index(root, ["k", "s"], rows_per_zone=10, kind="both", workers=1)
    source, chance, num_opened = index_of(root), random.Random(0), 0
    stopped = threading.Event()

    def write_on() -> None:
        for number in itertools.count():
            if stopped.is_set():
                return
            write(root / "f1.parquet", range(1000 + number, 1100 + number), extra=number + 1)
            index = zb.open_index(root)
            index.refresh(workers=1)
            index.optimize()
            index.vacuum(older_than=timedelta(0))

    with ThreadPoolExecutor(1) as writer:
        done = writer.submit(write_on)
        try:
            for number in range(at_depth(20, 5)):
                copy = tmp_path / f"copy {number}"
                paths = [path for path in source.rglob("*") if path.is_file()]
                for path in chance.sample(paths, len(paths)):
                    target = copy / path.relative_to(source)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with contextlib.suppress(FileNotFoundError):
                        shutil.copyfile(path, target)
                for kept in (range(100), range(200, 300)):
                    try:
                        index = zb.open_index(copy, dataset=root)
                    except (IndexNotFoundError, CorruptIndexError):
                        continue
                    keys = list(kept)
                    assert keys_in(index, zb.IsIn("k", keys)) == keys
                    assert keys_in(index, zb.IsIn("s", [f"text {key}" for key in keys])) == keys
                    num_opened += 1
        finally:
            stopped.set()
        done.result()
    assert num_opened
