"""What a build waits for, so that a later write shows, and that it believes no file which changes under it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zonebloom as zb
from tests.lives import write
from zonebloom.indexing import fill as building
from zonebloom.indexing.fill import Threads
from zonebloom.storage.locator.build import PART_PAIRS, LocatorParts
from zonebloom.stores import fingerprint

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("age", "fraction", "expected"),
    [
        pytest.param(0, 1, 0.02, id="just written"),
        pytest.param(-3600, 1, 0.02, id="by a clock that is ahead"),
        pytest.param(30, 1, 0.02, id="by a clock that is behind"),
        pytest.param(3, 0, 2.0, id="in whole seconds"),
        pytest.param(3600, 0, 0.0, id="long ago"),
    ],
)
def test_a_build_reads_a_young_file_once_its_time_has_passed(tmp_path, monkeypatch, age, fraction, expected):
    for name in ("a", "b", "c"):
        pq.write_table(pa.table({"k": [1, 2]}), tmp_path / f"{name}.parquet")
        when = (time.time_ns() // SECOND - age) * SECOND + fraction
        os.utime(tmp_path / f"{name}.parquet", ns=(when, when))
    now, slept = [1000.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=sleep, time_ns=time.time_ns)
    for module in (building, fingerprint):
        monkeypatch.setattr(module, "time", clock)  # theirs alone: threads of other tests sleep too
    zb.build_index(tmp_path, "k", workers=1)
    assert sum(slept) == pytest.approx(expected), "once, not once a file"


class MeddledThreads(Threads):
    """Builds as ever, while another process does something: before files are opened, or while they are read."""

    when = "before"
    meddle: Callable[[], None]

    def build(self, plan, fragments):
        if self.when == "before":
            type(self).meddle()
            return super().build(plan, fragments)
        return super().build(replace(plan, on_rows=lambda _: type(self).meddle()), fragments)


def replaced(path: Path) -> None:
    write(path, range(500, 600), extra=9)


def written_to(path: Path) -> None:
    data = path.read_bytes()
    with path.open("r+b") as file:
        file.write(data)


@pytest.mark.parametrize(("when", "change"), [("before", replaced), ("before", written_to), ("while", written_to)])
@pytest.mark.parametrize("is_new", [True, False])
def test_a_file_that_changes_during_a_build_is_left_out(tmp_path, when, change, is_new):
    """Of the same size and shape; whatever of it was read belongs to no version of it that the index may name."""
    for number in range(2):
        write(tmp_path / f"f{number}.parquet", range(number * 100, number * 100 + 100))
    if not is_new:
        zb.build_index(tmp_path, "s", rows_per_zone=10)
    MeddledThreads.when, MeddledThreads.meddle = when, lambda: change(tmp_path / "f0.parquet")
    with pytest.warns(RuntimeWarning, match=r"f0\.parquet must not change"):
        index = zb.build_index(tmp_path, "k", rows_per_zone=10, workers=1, runner=MeddledThreads(1))
    assert list(index._snapshot.fragments) == ["f1.parquet"]
    for key in pq.read_table(tmp_path / "f0.parquet")["k"].to_pylist():
        assert index.search(zb.Equals("k", key)).kept.rows in {100, 110}
    assert index.refresh().num_files_added == 1
    assert index.search("k = 150", strict=True).kept.rows == 10


class FailingThreads(Threads):
    """Builds on two threads, of which one fails once both have read their rows."""

    def build(self, plan, fragments):
        meeting = threading.Barrier(2, timeout=60)

        def fail_in_one(_num_rows: int) -> None:
            if meeting.wait() == 0:
                raise KeyError("a worker fails")

        return super().build(replace(plan, on_rows=fail_in_one), fragments)


def test_a_worker_that_fails_leaves_no_file_of_the_others(tmp_path):
    """No version names the segments of the worker that ended: they would stay until a vacuum."""
    (tmp_path / "lake").mkdir()
    for number in range(2):
        write(tmp_path / "lake" / f"f{number}.parquet", range(number * 100, number * 100 + 100))
    with pytest.raises(KeyError, match="a worker fails"):
        zb.build_index(tmp_path / "lake", "k", rows_per_zone=10, workers=2, runner=FailingThreads(2))
    assert not list(tmp_path.rglob("*.arrow"))


def test_the_locators_of_a_wide_build_share_one_budget(tmp_path, monkeypatch):
    """The pairs that are held do not grow with columns and workers."""
    asked = []

    class Noted(LocatorParts):
        def __init__(self, *arguments, part_pairs, **options):
            asked.append(part_pairs)
            super().__init__(*arguments, part_pairs=part_pairs, **options)

    monkeypatch.setattr(building, "LocatorParts", Noted)
    names = [f"c{number}" for number in range(30)]
    for number in range(2):
        pq.write_table(pa.table({name: range(50) for name in names}), tmp_path / f"{number}.parquet")
    index = zb.build_index(tmp_path, names, rows_per_zone=10, kind="locator", workers=2)
    assert asked == [PART_PAIRS // 30] * 30
    assert index.search("c29 = 7").num_zones_kept == 2
    assert all(column.segments == {"locator": 1} for column in index.indexed_columns()), "all workers fill one part"
