"""Short runs of the fuzzer of lakes; `python -m tests.fuzz.lakes --seconds 600` is a long one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.depth import IS_DEEP
from tests.fuzz.children import run
from tests.fuzz.lakes import SOURCES, Case, run_case

LIVES = 32
FIRST = 1_000_004
"""The first of the lives of files, of a Delta, an Iceberg and a Lance table."""


def test_no_life_of_a_lake_loses_or_invents_a_row(tmp_path, figure):
    """What comes out equals a full scan, and a search keeps every row that matches, whatever lake and condition."""
    if not IS_DEEP:  # in this process, which has loaded everything; the next test has the tables
        for seed in (FIRST, FIRST + 1):
            assert run_case(tmp_path, seed, {"files": SOURCES["files"]}) == "files: 25 conditions"
        return
    ended, findings = run("tests.fuzz.lakes", FIRST, LIVES, options=("--sources", ",".join(SOURCES)))
    assert not findings, "\n".join(findings)
    assert sum(ended.values()) == LIVES
    lives = ", ".join(f"{sum(count for what, count in ended.items() if name in what)} of {name}" for name in SOURCES)
    figure(f"lives of random lakes from seed {FIRST}: {lives}, each with 25 conditions; 0 rows lost or invented")


class EachChange(Case):
    """Each change that there is of the rows, and some upkeep after it."""

    def events(self) -> Iterator[None]:
        upkeep = itertools.cycle(("refresh", "optimize", "rewrite", "restore", "refresh", "kind", "refresh", "vacuum"))
        for what in dict.fromkeys(self.source.CHANGES):
            assert any(self.source.change(what) for _ in range(20)), self.source.log
            yield
            self.keep(next(upkeep))
            yield
        self.index.refresh(workers=1)
        assert self.index.view().num_unknown == 0
        assert self.index.verify(sample=1.0).is_sound


SEEDS = {"files": 2, "delta": 2, "iceberg": 9, "lance": 8}
"""Of lives in which rows of Iceberg are upserted by keys, and zones are given to Lance."""


@pytest.mark.parametrize("name", SOURCES)
def test_no_change_of_a_lake_loses_or_invents_a_row(tmp_path, name):
    run_case(tmp_path, SEEDS[name], {name: SOURCES[name]}, questions=2, kind=EachChange)
