"""A short run of the fuzzer of lakes; `python -m tests.fuzz.lakes --seconds 600` is a long one."""

from __future__ import annotations

from tests.depth import IS_DEEP
from tests.fuzz.children import run
from tests.fuzz.lakes import run_case

LIVES = 150
FIRST = 1_000_000


def test_no_life_of_a_lake_loses_or_invents_a_row(tmp_path, figure):
    if not IS_DEEP:  # in this process, which has loaded everything
        assert {run_case(tmp_path, seed) for seed in (FIRST, FIRST + 1)} <= {"flat", "partitioned"}
        return
    ended, findings = run("tests.fuzz.lakes", FIRST, LIVES)
    assert not findings, "\n".join(findings)
    assert sum(ended.values()) == LIVES
    figure(f"lives of random lakes from seed {FIRST}: {LIVES}, each with 25 conditions; 0 rows lost or invented")
