"""A short run of the fuzzer of parsers; `python -m tests.fuzz.parsers --seconds 600` is a long one."""

from __future__ import annotations

from tests.depth import IS_DEEP
from tests.formats.page_costs import every_page_pays
from tests.fuzz.children import run
from tests.fuzz.parsers import made_lake, run_case

CASES = 1000 if IS_DEEP else 100
FIRST = 1_000_000


def test_what_is_not_understood_is_refused_by_name(tmp_path, figure, monkeypatch):
    if not IS_DEEP:  # in this process, which has loaded everything
        every_page_pays(monkeypatch.setattr)
        lake = made_lake(tmp_path)
        ended = {run_case(lake, seed) for seed in range(FIRST, FIRST + CASES)}
        assert {"sql: understood", "sql: PredicateError", "expression: refused", "file: read"} <= ended
        return
    ended, findings = run("tests.fuzz.parsers", FIRST, CASES)
    assert not findings, "\n".join(findings)
    assert sum(ended.values()) == CASES
    figure(f"damaged SQL, Expressions and Parquet files from seed {FIRST}: {CASES}; 0 crashes, hangs or foreign errors")
