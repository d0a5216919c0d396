"""Short runs of the fuzzers; `python -m tests.fuzz.lakes --seconds 600` is a long one of the first of them."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.depth import IS_DEEP
from tests.formats.page_costs import every_page_pays
from tests.fuzz import index_files, lakes, parsers
from tests.fuzz.children import run
from tests.fuzz.lakes import SOURCES, Case

RUNS: dict[str, tuple[Any, ...]] = {
    "lakes": (1_000_004, 32, 2, Path, lambda folder, seed: lakes.run_case(folder, seed, {"files": SOURCES["files"]})),
    "index_files": (1, 140, 32, index_files.Subject.built, index_files.run_case),
    "parsers": (1_000_000, 1000, 100, parsers.made_lake, parsers.run_case),
}
"""By fuzzer its first seed, how many cases the deep suite has and the other, what a case needs, and what runs it."""


@pytest.mark.parametrize("name", RUNS)
def test_no_promise_is_broken(tmp_path, figure, monkeypatch, name):
    """No row is lost or invented, and what is not understood or damaged is refused by name, without crash or hang."""
    first, count, few, make, run_case = RUNS[name]
    if IS_DEEP:
        ended, findings = run(f"tests.fuzz.{name}", first, count)
        assert not findings, "\n".join(findings)
        figure(f"{name} from seed {first}: {count} cases, 0 findings; {dict(ended) if name == 'lakes' else ''}")
    else:  # in this process, which has loaded everything
        if name == "parsers":
            every_page_pays(monkeypatch.setattr)
        count, subject = few, make(tmp_path)
        ended = Counter(run_case(subject, seed) for seed in range(first, first + count))
    assert sum(ended.values()) == count
    if name == "lakes":  # the next test has the tables
        assert IS_DEEP or ended == {"files: 25 conditions": 2}
    elif name == "parsers":
        assert {"sql: understood", "sql: PredicateError", "expression: refused", "file: read"} <= ended.keys()
    else:
        assert {what.partition(",")[0] for what in ended} == {*index_files.KINDS}
        assert sum(number for what, number in ended.items() if "damaged" in what) > count // 3
        assert any("author: whole" in what for what in ended), "some lies are well formed, and are believed"


def test_a_seed_is_one_mutation(tmp_path):
    subject = index_files.Subject.built(tmp_path)
    for kind in index_files.KINDS:
        files = [index_files.mutated(subject, kind, random.Random(5), is_author=True) for _ in range(2)]
        assert files[0] == files[1]
        assert files[0] != subject.files


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
    lakes.run_case(tmp_path, SEEDS[name], {name: SOURCES[name]}, questions=2, kind=EachChange)
