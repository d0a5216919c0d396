"""A lake of 10,000 small files on Spark: the first query of a lake, one key, absent keys, keys of many files.

A query is the whole of it: the listing, the search, the plan and the rows. A first query opens the lake too, which
infers the schema. Some keys stand in several files, so that ways to read can be compared. The answers of all ways are
compared first.

    python -m bench.spark_files [--files 10000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import itertools
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import zonebloom
from bench.data import uuids
from bench.harness import Result, Rounds, interleaved, scratch
from tests.spark import cluster
from zonebloom.formats import open_dataset
from zonebloom.spark import ZoneBloom

ROWS = 64
MANY = (1, 30, 100, 300, 1000)
"""Files with a row of the same key."""
WAYS = ("row_ranges", "files")
LISTING, FIRST, PRESENT, ABSENT = "the listing alone", "first query of a lake", "one key", "an absent key"


def main() -> None:
    """One table of keys, one of ways to read."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    about = f"{asked.files:,} files of {ROWS} rows, local[2], files in the page cache."
    result = Result("spark_files", about, packages=["pyspark"])
    with cluster.running("local[2]", options={"spark.driver.memory": "3g"}) as spark, scratch() as folder:
        keys, planted = _write(folder / "lake", asked.files)
        zonebloom.build_index(folder / "lake", ["key"]).optimize()
        _lookups(result, spark, str(folder / "lake"), keys, asked)
        _ways(result, spark, str(folder / "lake"), planted, asked)
    result.save()


def _write(lake: Path, num_files: int) -> tuple[Iterator[str], dict[int, str]]:
    """The lake; gives keys of one file, and for numbers of files a key of so many."""
    rng = np.random.default_rng(23)
    planted = {count: str(uuid.UUID(bytes=rng.bytes(16))) for count in MANY if count <= num_files}
    lake.mkdir()
    single = []
    for number in range(num_files):
        key = uuids(ROWS, rng).to_pylist()
        single.append(key[-1])
        for place, (count, text) in enumerate(planted.items()):
            if number < count:
                key[place] = text
        pq.write_table(pa.table({"key": key, "amount": rng.random(ROWS)}), lake / f"{number:05}.parquet")
    rng.shuffle(single)
    return itertools.cycle(single), planted


def _lookups(result: Result, spark: Any, place: str, keys: Iterator[str], asked: argparse.Namespace) -> None:
    lake = ZoneBloom(spark).read(place)
    rng = np.random.default_rng(99)

    def absent() -> str:
        return str(uuid.UUID(bytes=rng.bytes(16)))

    def count(asked: Any, key: str) -> int:
        return len(asked.where(f"key = '{key}'").collect())

    cases: dict[str, Callable[[], Any]] = {
        LISTING: lambda: open_dataset(place).list(),
        FIRST: lambda: count(ZoneBloom(spark).read(place), next(keys)),
        PRESENT: lambda: count(lake, next(keys)),
        ABSENT: lambda: count(lake, absent()),
    }
    assert [case() for case in (cases[FIRST], cases[PRESENT], cases[ABSENT])] == [1, 1, 0]
    measured = result.note_load(interleaved(cases, rounds=asked.rounds, warm_up=2))
    rows = [[name, measured.wall(name, 1e-3), measured.cpu(name, 1e-3)] for name in cases]
    result.table(f"One key among {asked.files:,} files", ["query", "ms", "ms of CPU"], rows)
    beyond = _median(measured, FIRST) - _median(measured, LISTING)
    result.target(f"first query of a lake of {asked.files:,} files, beyond the listing", beyond, 1, "s")
    result.target(f"one key among {asked.files:,} files", _median(measured, PRESENT), 0.3, "s")


def _ways(result: Result, spark: Any, place: str, planted: dict[int, str], asked: argparse.Namespace) -> None:
    lake = ZoneBloom(spark).read(place)
    rows = []
    for count, key in planted.items():
        condition = f"key = '{key}'"
        cases = {way: _query(lake, condition, way) for way in ("auto", *WAYS)}
        assert {case() for case in cases.values()} == {count}
        measured = result.note_load(interleaved(cases, rounds=asked.rounds))
        times = {way: measured.wall(way, 1e-3) for way in cases}
        fastest = min(WAYS, key=lambda way: times[way]["median"])
        rows.append([count, *times.values(), fastest, lake.plan(condition).choice.method])
        title = f"the way that is chosen, {count} of {asked.files:,} files, against {fastest}"
        result.target(title, measured.ratio("auto", fastest)["median"], 1.2, "x")
    columns = ["files with the key", *(f"{way}, ms" for way in ("auto", *WAYS)), "faster of the two", "chosen"]
    result.table(f"A key of several files among {asked.files:,}", columns, rows)


def _query(lake: Any, condition: str, way: Any) -> Callable[[], int]:
    return lambda: len(lake.where(condition, method=way).collect())


def _median(measured: Rounds, case: str) -> float:
    return measured.wall(case)["median"]


if __name__ == "__main__":
    main()
