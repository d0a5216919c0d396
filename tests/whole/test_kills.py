"""Writers that are killed at any moment lose nothing: SIGKILL, and whatever was half done stays so.

`ZONEBLOOM_KILLS` sets the number of kills (105 in the deep suite).
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from datetime import timedelta

import zonebloom as zb
from tests.conftest import index_of
from tests.depth import at_depth
from tests.lives import assert_every_row_is_found, write
from zonebloom.errors import IndexExistsError
from zonebloom.indexing.versions import delete_index
from zonebloom.storage.manifest import list_versions, read_version
from zonebloom.stores.local import LocalStore

KILLS = int(os.environ.get("ZONEBLOOM_KILLS") or at_depth(105, 10))
KINDS = ("build", "rebuild", "refresh", "optimize", "vacuum")


def wait_for_a_version(store: LocalStore) -> None:
    started = time.monotonic()
    while not list_versions(store) and time.monotonic() < started + 60:
        time.sleep(0.001)


def test_a_writer_killed_at_any_moment_loses_nothing(tmp_path, zygote, figure):
    """While files come and change, one that builds, refreshes, optimizes or vacuums in a loop is killed."""
    random_ = random.Random(0)
    root = tmp_path / "lake"
    root.mkdir()
    for number in range(6):
        write(root / f"f{number}.parquet", range(1000 * number, 1000 * number + 200))
    zb.build_index(root, "k", rows_per_zone=10, kind="both")
    store, other = LocalStore(index_of(root)), LocalStore(root / "_other")
    survived: Counter[str] = Counter()
    newest = commits = resumed = 0
    for kill in range(KILLS):
        what = KINDS[kill % len(KINDS)]
        write(root / f"n{kill % 5}.parquet", range(50_000 + 100 * kill, 50_050 + 100 * kill), extra=kill + 1)
        child = zygote.fork(what, root)
        if what == "build" and kill % 2:
            wait_for_a_version(other)
        time.sleep(random_.uniform(0.0, 0.02 if what == "build" else 0.1))
        with contextlib.suppress(ProcessLookupError):  # a build that is done ends by itself
            os.kill(child, signal.SIGKILL)
        code = zygote.wait(child)
        assert code == -signal.SIGKILL or (code == 0 and what == "build")
        versions = list_versions(store)
        assert versions[-1] >= newest, "no version goes back"
        commits += versions[-1] - newest
        index = zb.open_index(root)
        assert_every_row_is_found(root, index)
        assert index.refresh(workers=1).unreadable == ()
        newest = index.version
        assert_every_row_is_found(root, index, is_fresh=kill % 5 == 4)
        if what == "build":
            begun = list_versions(other)
            resumed += bool(begun) and read_version(other, begun[-1]).column("k").is_unfinished
            with contextlib.suppress(IndexExistsError):  # it was done
                zb.build_index(root, "k", rows_per_zone=10, index=root / "_other", commit_every=300, workers=1)
            built = zb.open_index(root / "_other")
            assert_every_row_is_found(root, built, is_fresh=True)
            delete_index(other)
        survived[what] += code == -signal.SIGKILL
    index.vacuum(older_than=timedelta(0))
    named = {path for entry in read_version(store, index.version).columns for path in entry.files}
    there = {path.relative_to(index.root).as_posix() for path in (index.root / "columns").rglob("*.*")}
    assert there == named, "what the dead left is gone"
    assert not [path for path in (index.root / "versions").iterdir() if path.name.startswith(".")]
    assert sum(survived.values()) >= KILLS * 0.9
    counts = ", ".join(f"{what} {count}" for what, count in survived.items())
    figure(f"kills survived: {sum(survived.values())} ({counts}); versions of the killed: {commits}; 0 rows lost")
    figure(f"builds that were killed after a step, and went on: {resumed}")
