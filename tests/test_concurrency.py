"""Writers that race, and writers that die: whoever lost lands on top of whoever won, and a kill loses nothing.

`ZONEBLOOM_KILLS` sets the number of kills (default 32), `ZONEBLOOM_COMMITS` the commits of each of 8 processes (6).
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zonebloom as zb
from zonebloom.committing import commit_change, reserve_ids
from zonebloom.errors import ConcurrentCommitError
from zonebloom.rebasing import Change, ColumnChange
from zonebloom.storage.local_store import LocalStore
from zonebloom.storage.manifest import list_versions, read_version

KILLS = int(os.environ.get("ZONEBLOOM_KILLS", "32"))
COMMITS = int(os.environ.get("ZONEBLOOM_COMMITS", "6"))
WRITERS = 8
SPAWN = multiprocessing.get_context("spawn")


def write(path: Path, keys, extra: int = 0) -> None:
    """One file, whole from its first moment, with a time that is long past, so that no build waits."""
    staged = path.with_name(f".{path.name}")
    pq.write_table(pa.table({"k": pa.array(keys, pa.int64()), "s": [f"text {key}" for key in keys]}), staged)
    when = 1_700_000_000_000_000_001 + extra
    os.utime(staged, ns=(when, when))
    staged.rename(path)


def rows_of(root: Path) -> list[int]:
    files = sorted(path for path in root.iterdir() if path.suffix == ".parquet")
    return [key for path in files for key in pq.read_table(path)["k"].to_pylist()]


def assert_whole(root: Path, index: zb.Index, keys) -> None:
    """Every row is found, whether or not the index knows its file, and the zones that it has are right."""
    assert index.to_table(zb.IsIn("k", list(keys)))["k"].to_pylist() == rows_of(root)
    assert index.verify(sample=1.0).is_sound


def fragment_ids(index: zb.Index) -> set[int]:
    return {one.fragment_id for one in index._snapshot.fragments.values()}


# --- two writers ------------------------------------------------------------------------------------------------------


@pytest.fixture
def lake(tmp_path):
    root = tmp_path / "lake"
    root.mkdir()
    for number in range(3):
        write(root / f"f{number}.parquet", range(number * 100, number * 100 + 100))
    zb.build_index(root, "k", rows_per_zone=10)
    return root


def change_of_a_refresh(root: Path, monkeypatch, **options) -> Change:
    """What a refresh would commit; it is not committed."""
    held = []
    monkeypatch.setattr("zonebloom.stepping.commit_change", lambda *args: held.append(args[2]) or args[1])
    zb.open_index(root).refresh(**options)
    monkeypatch.undo()
    return held[0]


def test_refreshes_of_different_files_both_land(lake, monkeypatch):
    store, base = LocalStore(lake / "_zonebloom"), read_version(LocalStore(lake / "_zonebloom"), 1)
    write(lake / "a.parquet", range(1000, 1100))
    first = change_of_a_refresh(lake, monkeypatch, paths=["a.parquet"])
    write(lake / "b.parquet", range(2000, 2100))
    zb.open_index(lake).refresh(paths=["b.parquet"])
    assert commit_change(store, base, first).version == 3
    index = zb.open_index(lake)
    assert index.num_fragments == 5
    assert index.search("k = 1050", strict=True).kept.zones == 1
    assert index.search("k = 2050", strict=True).kept.zones == 1
    assert index.refresh().version == 3
    assert_whole(lake, index, rows_of(lake))


def test_the_same_new_file_lands_once(lake, monkeypatch):
    store, base = LocalStore(lake / "_zonebloom"), read_version(LocalStore(lake / "_zonebloom"), 1)
    write(lake / "a.parquet", range(1000, 1100))
    write(lake / "b.parquet", range(2000, 2100))
    both = change_of_a_refresh(lake, monkeypatch)
    zb.open_index(lake).refresh(paths=["a.parquet"])
    following = commit_change(store, base, both)
    index = zb.open_index(lake)
    assert index.version == following.version == 3
    assert len(fragment_ids(index)) == index.num_fragments == 5
    assert index.search("k = 1050", strict=True).kept.zones == 1
    assert_whole(lake, index, rows_of(lake))


def test_a_change_that_is_there_already_makes_no_version(lake, monkeypatch):
    store, base = LocalStore(lake / "_zonebloom"), read_version(LocalStore(lake / "_zonebloom"), 1)
    write(lake / "a.parquet", range(1000, 1100))
    same = change_of_a_refresh(lake, monkeypatch)
    zb.open_index(lake).refresh()
    assert commit_change(store, base, same).version == 2
    assert list_versions(store) == [1, 2]
    assert not any((store.root / path).exists() for path in same.written)


def test_the_same_file_in_two_states_overlaps_and_names_the_winner(lake, monkeypatch):
    store, base = LocalStore(lake / "_zonebloom"), read_version(LocalStore(lake / "_zonebloom"), 1)
    write(lake / "a.parquet", range(1000, 1100))
    old = change_of_a_refresh(lake, monkeypatch)
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

    monkeypatch.setattr("zonebloom.stepping.commit_change", meddled)
    done = index.refresh()
    assert (done.version, done.num_files_added) == (2, 0)
    assert_whole(lake, zb.open_index(lake), rows_of(lake))


def test_optimize_and_refresh_both_land(lake, monkeypatch):
    store, base = LocalStore(lake / "_zonebloom"), read_version(LocalStore(lake / "_zonebloom"), 1)
    for number in range(2):
        write(lake / f"x{number}.parquet", range(5000 + number * 2000, 7000 + number * 2000))
    change = change_of_a_refresh(lake, monkeypatch)
    zb.open_index(lake).refresh(paths=["x0.parquet"])
    assert zb.open_index(lake).optimize().version == 3
    assert commit_change(store, base, change).version == 4
    index = zb.open_index(lake)
    assert index.info()["columns"][0]["kinds"] == {"slices": 1, "zones": 1}
    assert_whole(lake, index, rows_of(lake))


def test_a_new_column_and_a_refresh_both_land(lake, monkeypatch):
    store, base = LocalStore(lake / "_zonebloom"), read_version(LocalStore(lake / "_zonebloom"), 1)
    write(lake / "a.parquet", range(1000, 1100))
    change = change_of_a_refresh(lake, monkeypatch)
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


def test_a_column_that_both_build_overlaps(lake):
    store, base = LocalStore(lake / "_zonebloom"), read_version(LocalStore(lake / "_zonebloom"), 1)
    zb.build_index(lake, "s")
    built = read_version(store, 2).column("s")
    assert built is not None
    with pytest.raises(ConcurrentCommitError, match=r"column s .* version 2 \(build"):
        commit_change(store, base, Change("build", (ColumnChange(built, is_rebuilt=True),)))


def test_reserved_ids_never_meet(tmp_path):
    taken: list[range] = []

    def reserve(number):
        store = LocalStore(tmp_path)
        for count in range(1, 30):
            first = reserve_ids(store, 0, count + number)
            taken.append(range(first, first + count + number))

    threads = [threading.Thread(target=reserve, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids = [one for run in taken for one in run]
    assert len(taken) == 4 * 29
    assert sorted(ids) == list(range(len(ids)))


# --- many processes ---------------------------------------------------------------------------------------------------


def commit_often(root: str, number: int, commits: int) -> None:
    warnings.simplefilter("error")
    index = zb.open_index(root)
    for turn in range(commits):
        name = f"w{number}-{turn}.parquet"
        write(Path(root) / name, range(10_000 * number + 10 * turn, 10_000 * number + 10 * turn + 10))
        done = index.refresh(paths=[name], workers=1)
        assert (done.num_files_added, done.num_files_dropped) == (1, 0)


def test_eight_processes_commit_and_none_is_lost(lake):
    """Each commit adds another file, while a reader holds the first version."""
    reader = zb.open_index(lake)
    before = reader.search("k = 150").row_ranges
    started = time.perf_counter()
    numbers = range(1, WRITERS + 1)
    writers = [SPAWN.Process(target=commit_often, args=(str(lake), number, COMMITS)) for number in numbers]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    elapsed = time.perf_counter() - started
    assert [writer.exitcode for writer in writers] == [0] * WRITERS
    index = zb.open_index(lake)
    assert list_versions(LocalStore(index.root)) == list(range(1, 2 + WRITERS * COMMITS))
    assert index.num_fragments == len(fragment_ids(index)) == 3 + WRITERS * COMMITS
    assert_whole(lake, index, rows_of(lake))
    assert index.search("k = 20005", strict=True).kept.files == 1
    assert reader.version == 1
    assert reader.search("k = 150").row_ranges.fragment(1) == before
    sys.stdout.write(f"{WRITERS * COMMITS} commits of {WRITERS} processes in {elapsed:.1f} s, none lost\n")


def refresh_whole(root: str, number: int) -> None:
    warnings.simplefilter("error")
    for turn in range(3):
        first = 10_000 * number + 10 * turn
        write(Path(root) / f"w{number}-{turn}.parquet", range(first, first + 10))
        zb.open_index(root).refresh(workers=1)


def test_processes_that_see_each_others_files_index_each_once(lake):
    writers = [SPAWN.Process(target=refresh_whole, args=(str(lake), number)) for number in range(1, 5)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 4
    index = zb.open_index(lake)
    assert index.refresh().num_files_added == 0
    assert index.num_fragments == 3 + 12
    assert_whole(lake, index, rows_of(lake))


# --- kills ------------------------------------------------------------------------------------------------------------

CHILD = """
import sys, tempfile
from datetime import timedelta
import zonebloom as zb
import zonebloom.refreshing, zonebloom.retention
root, what, warm = sys.argv[1:]
zb.build_index(warm, ["k", "s"], index=tempfile.mkdtemp() + "/_index", rows_per_zone=10).optimize()
print("ready", flush=True)
sys.stdin.readline()
while True:
    if what == "build":
        zb.build_index(root, "s", rows_per_zone=10, overwrite=True, workers=2)
    index = zb.open_index(root)
    if what == "refresh":
        index.refresh("full", workers=2)
    if what == "optimize":
        index.refresh("full", workers=2)
        index.optimize()
    if what == "vacuum":
        index.refresh("full", workers=2)
        index.vacuum(older_than=timedelta(0))
"""


def test_a_writer_killed_at_any_moment_loses_nothing(lake, tmp_path):
    """One that builds, refreshes, optimizes or vacuums in a loop is killed, while files come and go."""
    random_ = random.Random(0)
    warm = tmp_path / "warm"
    warm.mkdir()
    write(warm / "f.parquet", range(1000))
    for number in range(3):
        write(lake / f"g{number}.parquet", range(10_000 + 1000 * number, 11_000 + 1000 * number))
    versions = refreshed = 0
    survived = dict.fromkeys(("build", "refresh", "optimize", "vacuum"), 0)
    children = {}
    for kill in range(KILLS):
        what = list(survived)[kill % 4]
        child = children.pop(kill, None) or start_child(lake, what, warm)
        if kill + 1 < KILLS:  # the next one loads its modules meanwhile
            children[kill + 1] = start_child(lake, list(survived)[(kill + 1) % 4], warm)
        write(lake / f"n{kill % 5}.parquet", range(50_000 + 100 * kill, 50_050 + 100 * kill), extra=kill + 1)
        child.stdout.readline()
        child.stdin.write("go\n")
        child.stdin.flush()
        time.sleep(random_.uniform(0.0, 0.25))
        child.send_signal(signal.SIGKILL)
        child.communicate()
        assert child.returncode == -signal.SIGKILL
        index = zb.open_index(lake)
        versions = max(versions, index.version)
        assert index.version == versions, "no version goes back"
        assert_whole(lake, index, rows_of(lake))
        done = index.refresh()
        assert done.unreadable == ()
        assert not index.search("k = 50", strict=True).reasons
        survived[what] += 1
        refreshed += done.version > versions
    index = zb.open_index(lake)
    assert_whole(lake, index, rows_of(lake))
    index.vacuum(older_than=timedelta(0))
    named = {path for entry in read_version(LocalStore(index.root), index.version).columns for path in entry.files}
    there = {path.relative_to(index.root).as_posix() for path in (index.root / "columns").rglob("*.*")}
    assert there == named, "what the dead left is gone"
    assert not [path for path in (index.root / "versions").iterdir() if path.name.startswith(".")]
    commits = versions - refreshed - 1
    sys.stdout.write(f"kills survived: {survived}, commits of those killed: {commits}, rows lost: 0\n")


def start_child(root: Path, what: str, warm: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(root), what, str(warm)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
