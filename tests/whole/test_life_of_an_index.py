"""The life of an index, in any order: files come, change, move and go, the index is refreshed, merged, vacuumed,
restored and damaged, and every answer equals what a dict of the rows says.

`ZONEBLOOM_LIVES` sets the number of lives (120 in the deep suite, of up to 50 steps each).
"""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import zonebloom as zb
from tests.depth import at_depth
from zonebloom.errors import ConcurrentCommitError, CorruptIndexError, InvalidArgumentError
from zonebloom.ground.reasons import ReasonCode
from zonebloom.storage.options import KINDS

LIVES = int(os.environ.get("ZONEBLOOM_LIVES") or at_depth(120, 5))
STEPS = 50

KEYS = st.one_of(st.integers(0, 40), st.none())
ROWS = st.lists(KEYS, max_size=30)
PATHS = st.sampled_from([f"day={day}/f{number}.parquet" for day in (1, 2) for number in range(4)] + ["g", "h", "i"])
PICK = st.integers(0, 999)
SHAPES = st.sampled_from(["plain", "narrow", "without s", "more"])
KIND = st.sampled_from(KINDS)


def text(key: int | None) -> str | None:
    return None if key is None or key % 5 == 0 else f"text {key:04d}"


def chosen(among: list, pick: int):
    return among[pick % len(among)]


class Life(RuleBasedStateMachine):
    num_steps = 0

    def __init__(self):
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="zonebloom-life-"))
        self.files: dict[str, tuple[list[int | None], str]] = {}
        self.clock = self.asked = 0
        self.readers: list[zb.Index] = []
        self.is_damaged = False
        self.is_version_damaged = False
        self.catcher = warnings.catch_warnings()
        self.catcher.__enter__()
        warnings.simplefilter("ignore", RuntimeWarning)  # of what is damaged

    def teardown(self):
        self.catcher.__exit__(None, None, None)
        shutil.rmtree(self.root)

    # --- the data -----------------------------------------------------------------------------------------------------

    def write(self, path: str, keys: list[int | None], shape: str) -> None:
        columns = {"k": pa.array(keys, pa.int32() if shape == "narrow" else pa.int64())}
        if shape != "without s":
            columns["s"] = pa.array([text(key) for key in keys], pa.string())
        if shape == "more":
            columns["extra"] = pa.array([1.5] * len(keys), pa.float64())
        target = self.root / path
        target.parent.mkdir(exist_ok=True)
        options = {"compression": "none", "use_dictionary": False, "write_statistics": False}
        pq.write_table(pa.table(columns), target, row_group_size=11, **options)
        self.clock += 1
        when = 1_700_000_000_000_000_000 + self.clock * 1_000_001  # long settled, so that no build waits
        os.utime(target, ns=(when, when))
        self.files[path] = (keys, shape)

    def expected(self, column: str, value) -> list[tuple]:
        rows = []
        for path, (keys, shape) in sorted(self.files.items()):
            day = int(path[4]) if path.startswith("day=") else None
            for key in keys:
                row = {"k": key, "s": None if shape == "without s" else text(key), "day": day}
                if row[column] == value:
                    rows.append((row["k"], row["s"], row["day"]))
        return rows

    @initialize(keys=st.lists(KEYS, min_size=1, max_size=30), kind=KIND, hive=st.booleans())
    def build(self, keys, kind, hive):
        self.write("day=1/f0.parquet" if hive else "g", keys, "plain")
        self.write("day=2/f0.parquet" if hive else "h", keys[::2], "plain")
        self.index = zb.build_index(self.root, ["k", "s"], rows_per_zone=8, sizing="exact", kind=kind, workers=1)
        self.has_days = hive

    # --- what happens to the data -------------------------------------------------------------------------------------

    @rule(path=PATHS, keys=ROWS, shape=SHAPES)
    def write_file(self, path, keys, shape):
        if path.startswith("day=") == self.has_days:
            self.write(path, keys, shape)

    @rule(pick=PICK)
    @precondition(lambda self: self.files)
    def modify_in_place(self, pick):
        """The same path, the same size."""
        path = chosen(sorted(self.files), pick)
        keys, shape = self.files[path]
        size = (self.root / path).stat().st_size
        shift = 1 + pick % 4  # not by 5: the same texts are null, so the size stays
        if shape == "without s":
            self.write(path, [None if key is None else key + shift for key in keys], shape)
            assert (self.root / path).stat().st_size == size
        else:
            self.write(path, keys[::-1], shape)

    @rule(pick=PICK)
    @precondition(lambda self: self.files)
    def delete(self, pick):
        path = chosen(sorted(self.files), pick)
        (self.root / path).unlink()
        del self.files[path]

    @rule(pick=PICK, to=PATHS)
    @precondition(lambda self: self.files)
    def rename(self, pick, to):
        path = chosen(sorted(self.files), pick)
        if to.startswith("day=") == self.has_days:
            (self.root / to).parent.mkdir(exist_ok=True)
            (self.root / path).rename(self.root / to)
            self.files[to] = self.files.pop(path)

    # --- what happens to the index ------------------------------------------------------------------------------------

    @rule(
        mode=st.sampled_from(["incremental", "incremental", "quick", "full"]),
        check=st.booleans(),
        commit_every=st.sampled_from([15, 10**9]),
    )
    def refresh(self, mode, check, commit_every):
        before = self.index.version
        done = self.index.refresh(mode, check=check, commit_every=commit_every, workers=1)
        assert done.version == self.index.version
        assert done.num_files_kept + done.num_files_added <= len(self.files)
        assert done.unreadable == ()
        if mode != "quick":
            assert done.num_files_kept + done.num_files_added == len(self.files)
            result = self.index.search("k = 1 OR s = 'text 0001'", strict=True)
            reasons = [reason for reason in result.reasons if reason.code != ReasonCode.OR_WITH_UNINDEXED_BRANCH]
            assert not reasons or (self.is_damaged and not check)
            assert self.index.num_fragments == len(self.files)
        if not done.num_files_added and not done.num_files_dropped and not self.is_damaged and mode != "full":
            assert done.version in (before, before + 1)
        if mode == "incremental" and (check or not self.is_damaged):  # else the search just now may have met damage
            again = self.index.refresh(workers=1)
            assert (again.num_files_added, again.num_files_dropped, again.version) == (0, 0, done.version)
        if self.is_version_damaged and self.index.version == self.index.versions()[-1].number:
            self.is_version_damaged = False

    @rule(path=PATHS)
    def refresh_one(self, path):
        self.index.refresh(paths=[path], workers=1)

    @rule(days=st.lists(st.integers(1, 3), min_size=1, max_size=2), form=st.sampled_from([dict, str]))
    @precondition(lambda self: self.has_days)
    def refresh_partitions(self, days, form):
        """Just the files of those days are indexed as they are then."""
        if "day" in self.index.schema.names:
            partitions = [{"day": day} if form is dict else f"day={day}" for day in days]
            try:
                self.index.refresh(partitions=partitions, workers=1)
            except InvalidArgumentError:
                assert not any(int(path[4]) in days for path in self.files)
            files = self.index.view().files
            assert not any(files.is_unknown(path) for path in self.files if int(path[4]) in days)

    @rule(rows_per_zone=st.sampled_from([5, 8, 13]), kind=KIND, fpp=st.sampled_from([0.001, 0.1]))
    def refresh_with_new_parameters(self, rows_per_zone, kind, fpp):
        self.index.refresh("full", rows_per_zone=rows_per_zone, fpp=fpp, kind=kind, workers=1)
        for column in self.index.indexed_columns():
            assert column.rows_per_zone == rows_per_zone
            assert column.kind == kind

    @rule(
        works=st.lists(
            st.sampled_from(["refresh", "one", "optimize", "steps", "vacuum", "restore"]), min_size=2, max_size=4
        )
    )
    def write_at_once(self, works):
        """Some writers, each with the index opened anew, while the one that is open answers."""
        kept = [version.number for version in self.index.versions()]

        def work(what: str) -> None:
            try:
                index = zb.open_index(self.root)
                if what == "refresh":
                    index.refresh(workers=1)
                elif what == "one":
                    index.refresh(paths=[chosen([*self.files, "none"], len(works))], workers=1)
                elif what == "steps":
                    index.refresh(commit_every=10, workers=1)
                elif what == "optimize":
                    index.optimize()
                elif what == "restore":
                    index.restore(kept[0])
                else:
                    index.vacuum(older_than=timedelta(hours=1))
            except (ConcurrentCommitError, CorruptIndexError) as error:
                assert self.is_damaged or isinstance(error, ConcurrentCommitError)  # noqa: PT017 - of one of the kinds

        with ThreadPoolExecutor(len(works)) as pool:
            running = [pool.submit(work, what) for what in works]
            self.check(self.index, "k", self.asked)
            for task in running:
                task.result()
        self.check(self.index, "k", self.asked)
        self.index = zb.open_index(self.root)

    @rule()
    def optimize(self):
        try:
            self.index.optimize()
        except CorruptIndexError:
            assert self.is_damaged

    @rule()
    @precondition(lambda self: self.files)
    def rebuild_a_column(self):
        if any(shape != "without s" for _, shape in self.files.values()):
            self.index = zb.build_index(self.root, "s", rows_per_zone=5, overwrite=True, workers=1)

    @rule(dry_run=st.booleans())
    def vacuum(self, dry_run):
        try:
            gone = self.index.vacuum(older_than=timedelta(0), dry_run=dry_run)
        except CorruptIndexError:
            assert self.is_version_damaged
            return
        folder = self.index.root
        assert gone.num_bytes >= 0
        assert all((folder / path).exists() == dry_run for path in gone.files)
        if not dry_run:
            newest = max(path.stem for path in (folder / "versions").iterdir())
            assert [version.number for version in self.index.versions()] == [int(newest)]

    @rule(pick=PICK)
    def restore(self, pick):
        kept = [version.number for version in self.index.versions()]
        try:
            self.index.restore(chosen(kept, pick))
        except CorruptIndexError:
            assert self.is_damaged

    @rule()
    def reopen(self):
        self.index = zb.open_index(self.root)

    @rule(pick=PICK)
    def keep_a_reader(self, pick):
        kept = [version.number for version in self.index.versions()]
        self.readers = [*self.readers[-2:], zb.open_index(self.root, version=chosen(kept, pick))]

    @rule(pick=PICK, how=st.sampled_from(["flip", "cut", "remove"]))
    def damage(self, pick, how):
        folder = self.index.root
        paths = sorted(path for part in ("columns", "fragments") for path in (folder / part).rglob("*.*"))
        paths.sort(key=lambda path: (path.suffixes, path.stat().st_mtime_ns))  # names are random
        if paths:
            self.is_damaged = True
            spoil(chosen(paths, pick), how)

    @rule(how=st.sampled_from(["flip", "cut"]))
    def damage_the_version(self, how):
        versions = sorted((self.index.root / "versions").glob("*.json"))
        if len(self.index.versions()) > 1:  # the last sound version is what an index is opened by
            self.is_damaged = self.is_version_damaged = True
            spoil(versions[-1], how)
            self.index = zb.open_index(self.root)

    # --- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def every_answer_is_right(self):
        """Asked after each step: another key each time, for the life of an index without questions proves nothing."""
        if not hasattr(self, "index"):
            return
        Life.num_steps += 1
        self.asked = (self.asked + 7) % 45
        self.check(self.index, "k", self.asked)
        there = any(self.asked in keys for keys, _ in self.files.values())
        assert not there or self.index.exists("k", [self.asked]).to_pylist() == [True]

    @rule(key=st.integers(0, 44), use=st.sampled_from(["k", "s", "both", "null"]))
    def ask(self, key, use):
        for index in (self.index, *self.readers):
            if use in ("k", "both"):
                self.check(index, "k", key)
            if use in ("s", "both") and text(key):
                self.check(index, "s", text(key))
            if use == "null":
                assert index.to_table("k IS NULL").num_rows == len(self.expected("k", None))
        wanted = list(range(45))
        answers = self.index.exists("k", wanted).to_pylist()
        there = {key for keys, _ in self.files.values() for key in keys}
        assert all(answers[key] for key in wanted if key in there)
        exact = self.index.exists("k", wanted, exact=True).to_pylist()
        assert exact == [key in there for key in wanted]

    def check(self, index: zb.Index, column: str, value) -> None:
        names = [name for name in ("k", "s", "day") if name in index.schema.names]
        rows = index.to_table(zb.Equals(column, value), columns=names).to_pylist()
        actual = [(row["k"], row.get("s"), row.get("day")) for row in rows]
        assert actual == self.expected(column, value)


def spoil(path: Path, how: str) -> None:
    """Damage a file under a new name, so that whoever has the old one mapped is not torn."""
    data = bytearray(path.read_bytes())
    path.unlink()
    if how == "flip" and data:
        data[len(data) // 2] ^= 0x10
        path.write_bytes(data)
    if how == "cut":
        path.write_bytes(data[: len(data) // 2])


def test_an_index_answers_right_all_its_life(figure):
    Life.num_steps = 0
    run_state_machine_as_test(
        Life,
        settings=settings(
            max_examples=LIVES,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
        ),
    )
    figure(f"steps of {LIVES} lives of an index: {Life.num_steps}, each followed by searches; 0 rows lost")
