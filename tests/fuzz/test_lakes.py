"""Short runs of the fuzzer of lakes; `python -m tests.fuzz.lakes --seconds 600` is a long one."""

from __future__ import annotations

from tests.depth import IS_DEEP
from tests.fuzz.children import run
from tests.fuzz.lakes import SOURCES, run_case

LIVES = 60
FIRST = 1_000_004
"""The first of the lives of files, of a Delta, an Iceberg and a Lance table."""
LIVES_FOR_A_CHANGE = {"files": 3, "delta": 1, "iceberg": 1, "lance": 1}


def test_no_life_of_a_lake_loses_or_invents_a_row(tmp_path, figure):
    """What comes out equals a full scan, and a search keeps every row that matches, whatever lake and condition."""
    if not IS_DEEP:  # in this process, which has loaded everything
        for name, count in LIVES_FOR_A_CHANGE.items():
            for seed in range(FIRST, FIRST + count):
                assert run_case(tmp_path, seed, {name: SOURCES[name]}) == f"{name}: 25 conditions"
        return
    ended, findings = run("tests.fuzz.lakes", FIRST, LIVES, options=("--sources", ",".join(SOURCES)))
    assert not findings, "\n".join(findings)
    assert sum(ended.values()) == LIVES
    lives = ", ".join(f"{sum(count for what, count in ended.items() if name in what)} of {name}" for name in SOURCES)
    figure(f"lives of random lakes from seed {FIRST}: {lives}, each with 25 conditions; 0 rows lost or invented")
