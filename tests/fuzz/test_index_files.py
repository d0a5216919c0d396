"""A short run of the fuzzer of index files; `python -m tests.fuzz.index_files --seconds 600` is a long one."""

from __future__ import annotations

import random
from collections import Counter

from tests.depth import IS_DEEP
from tests.fuzz.children import run
from tests.fuzz.index_files import KINDS, Subject, mutated, run_case

CASES = 140 if IS_DEEP else 32
FIRST = 1


def test_no_file_of_an_index_crashes_hangs_or_invents_a_row(tmp_path):
    if IS_DEEP:
        ended, findings = run("tests.fuzz.index_files", FIRST, CASES)
        assert not findings, "\n".join(findings)
    else:  # in this process, which has loaded everything
        subject = Subject.made(tmp_path)
        ended = Counter(run_case(subject, seed) for seed in range(FIRST, FIRST + CASES))
    assert sum(ended.values()) == CASES
    assert {kind for kind in KINDS if any(what.startswith(f"{kind},") for what in ended)} == set(KINDS)
    assert sum(number for what, number in ended.items() if "damaged" in what) > CASES // 3
    assert any("author: whole" in what for what in ended), "some lies are well formed, and are believed"


def test_a_seed_is_one_mutation(tmp_path):
    subject = Subject.made(tmp_path)
    for kind in KINDS:
        files = [mutated(subject, kind, random.Random(5), is_author=True) for _ in range(2)]
        assert files[0] == files[1]
        assert files[0] != subject.files
