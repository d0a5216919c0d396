"""Lookups on Spark with an index, against a plain read and against Parquet's own bloom filters.

The same rows are written twice: plain, and with a Parquet bloom filter for each row group, which Spark uses when it
reads. A query is the whole of it: the listing, the search of the index, the plan and the rows. Each round asks for
another key. Files opened are counted by the system (`bench.traffic`), as are the bytes that this process and Spark's
read, caches included; jobs are Spark's own count.

    python -m bench.spark_lookup [--files 40] [--file-rows 500000] [--key string|long] [--rounds 9] [--keys 10000]
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import zonebloom as zb
from bench.data import integers, uuids
from bench.harness import Result, Rounds, interleaved, scratch
from bench.traffic import Traffic, traffic
from tests.spark import cluster
from zonebloom.spark import ZoneBloom

FPP = 0.001
"""Of Parquet's filters."""
PLAIN, NATIVE, AUTO = "plain read", "Parquet's bloom filters", "zonebloom, its own choice"
WAYS = {AUTO: "auto", "zonebloom, driver": "driver", "zonebloom, row ranges": "row_ranges", "zonebloom, files": "files"}
LOCATED = "zonebloom, its own choice, with a locator"


def main() -> None:
    """One table of lookups and one of an IN list."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--file-rows", type=int, default=500_000)
    parser.add_argument("--key", choices=["string", "long"], default="string")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--keys", type=int, default=10_000)
    asked = parser.parse_args()
    name = f"spark_lookup_{asked.files}_{asked.key}"
    about = f"Lookups through PySpark, local[2]: {asked.files} files of {asked.file_rows:,} rows in the page cache."
    result = Result(name, about, packages=["pyspark"])
    with cluster.running("local[2]", options={"spark.driver.memory": "3g"}) as spark, scratch() as folder:
        keys = _write(folder, asked.files, asked.file_rows, asked.key)
        zb.build_index(folder / "plain", ["key"]).optimize()
        zb.build_index(folder / "plain", ["key"], index=folder / "located", kind="locator")
        bench = Bench(spark, folder)
        _lookups(result, bench, keys, asked)
        _lists(result, bench, keys, asked)
        result.save()


def _write(folder: Path, num_files: int, num_rows: int, kind: str) -> list[Any]:
    """Both lakes; gives some keys of each file."""
    rng = np.random.default_rng(3)
    keys: list[Any] = []
    for name in ("plain", "native"):
        (folder / name).mkdir()
    for number in range(num_files):
        key = uuids(num_rows, rng) if kind == "string" else integers(num_rows, rng)
        amounts = rng.normal(size=num_rows)
        table = pa.table({"key": key, "amount": amounts, "n": rng.integers(0, 1000, num_rows)})
        path = f"part-{number:05}.parquet"
        pq.write_table(table, folder / "plain" / path, write_page_index=True)
        filters = {"key": {"ndv": num_rows, "fpp": FPP}}
        pq.write_table(table, folder / "native" / path, write_page_index=True, bloom_filter_options=filters)
        keys += key.take(pa.array(rng.integers(0, num_rows, 300))).to_pylist()
    rng.shuffle(keys)
    return keys


class Bench:
    """Queries of one session over both lakes."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.plain = str(folder / "plain")
        self.native = str(folder / "native")
        self.lake = ZoneBloom(spark).read(self.plain)
        self.located = ZoneBloom(spark).read(self.plain, index=str(folder / "located"))
        self.groups = itertools.count()

    def cases(self, condition: Callable[[], str], *, is_present: bool) -> dict[str, Callable[[], list[Any]]]:
        """Each way to ask; all give the same rows."""

        def ask(method: str) -> Callable[[], list[Any]]:
            return lambda: self.lake.where(condition(), method=method).collect()

        ways: dict[str, Callable[[], list[Any]]] = {
            PLAIN: lambda: self.spark.read.parquet(self.plain).where(condition()).collect(),
            NATIVE: lambda: self.spark.read.parquet(self.native).where(condition()).collect(),
        }
        return ways | {name: ask(method) for name, method in WAYS.items() if is_present or method == "auto"}

    def seen(self, name: str, case: Callable[[], Any]) -> tuple[int, Traffic]:
        """Spark jobs, and what is read, of one run."""
        group = f"bench-{next(self.groups)}"
        self.spark.sparkContext.setJobGroup(group, group)
        read_by_it = traffic(case, self.folder / ("native" if name == NATIVE else "plain"))
        return len(self.spark.sparkContext.statusTracker().getJobIdsForGroup(group)), read_by_it


def _literal(key: Any) -> str:
    return f"'{key}'" if isinstance(key, str) else str(key)


def _absent(kind: str) -> Iterator[Any]:
    rng = np.random.default_rng(99)
    while True:
        yield from (uuids(64, rng) if kind == "string" else integers(64, rng)).to_pylist()


def _lookups(result: Result, bench: Bench, keys: list[Any], asked: argparse.Namespace) -> None:
    for is_present in (True, False):
        rotating = itertools.cycle(keys) if is_present else _absent(asked.key)
        current = [next(rotating)]
        cases = bench.cases(lambda: f"key = {_literal(current[0])}", is_present=is_present)  # noqa: B023 - of this turn
        answers = {name: sorted(map(repr, case())) for name, case in cases.items()}
        assert all(answer == answers[PLAIN] for answer in answers.values())
        assert bool(answers[PLAIN]) is is_present

        def another() -> None:
            current[0] = next(rotating)  # noqa: B023 - as above

        measured = interleaved(cases, rounds=asked.rounds, warm_up=2, prepare=dict.fromkeys(cases, another))
        kept = bench.lake.plan(f"key = {_literal(current[0])}").result.kept
        which = "that is there" if is_present else "that is not there"
        title = f"One {asked.key} key {which}, {asked.files} files"
        rows = [_row(name, measured, bench.seen(name, case)) for name, case in cases.items()]
        result.table(title, COLUMNS, rows, f"The index keeps {kept.files} files and {kept.rows:,} rows.")
        _targets(result, measured, bench.seen(AUTO, cases[AUTO])[0], is_present=is_present, asked=asked)
        if is_present:
            result.headline.append(headline(rows, asked.key, asked.files))


COLUMNS = ["query", "ms", "times faster than plain", "than Parquet's filters", "files opened", "MB read", "jobs"]


def headline(rows: list[list[Any]], key: str, num_files: int) -> list[str]:
    """The line of the README, of the rows of a table."""
    plain, native, ours = (next(row[1]["median"] for row in rows if row[0] == name) for name in (PLAIN, NATIVE, AUTO))
    against = f"plain read {plain:,.0f} ms; Parquet's own bloom filters {native:,.0f} ms"
    return [f"Spark: one {key} key among {num_files} files, the whole query", f"{ours:.0f} ms", against]


def _row(name: str, measured: Rounds, seen: tuple[int, Traffic]) -> list[Any]:
    ratios = [measured.ratio(base, name) for base in (PLAIN, NATIVE)]
    num_jobs, read_by_it = seen
    return [name, measured.wall(name, 1e-3), *ratios, read_by_it.files, round(read_by_it.num_bytes / 1e6, 1), num_jobs]


def _targets(result: Result, measured: Rounds, num_jobs: int, *, is_present: bool, asked: argparse.Namespace) -> None:
    if not is_present:
        result.target("jobs for a key that is not there", num_jobs, 0, "jobs")
        return
    plain, native = (measured.ratio(base, AUTO)["median"] for base in (PLAIN, NATIVE))
    where = f"{asked.files} files, {asked.key}"
    result.target(f"lookup against a plain read, {where}", plain, 10, "times", at_most=False)
    result.target(f"lookup against Parquet's bloom filters, {where}", native, 3, "times", at_most=False)
    name = "zonebloom, files"
    ratio = measured.ratio(NATIVE, name)["median"]
    result.target(f"{name}, against Parquet's bloom filters, {where}", ratio, 1, "times", at_most=False)


def _lists(result: Result, bench: Bench, keys: list[Any], asked: argparse.Namespace) -> None:
    """An IN list of which one in a hundred exists: the keys together reach into every file.

    Each key that does not exist keeps a zone in about 28 000 by filters, and hardly any by a locator.
    """
    absent = itertools.islice(_absent(asked.key), asked.keys - asked.keys // 100)
    wanted = [*keys[: asked.keys // 100], *absent]
    frame = bench.spark.createDataFrame(pa.table({"key": wanted}))
    cases: dict[str, Callable[[], Any]] = {
        PLAIN: lambda: bench.spark.read.parquet(bench.plain).join(frame.hint("broadcast"), "key", "left_semi").count(),
        AUTO: lambda: bench.lake.where_in("key", wanted).count(),
        "zonebloom, a frame of keys": lambda: bench.lake.where_in("key", frame).count(),
        LOCATED: lambda: bench.located.where_in("key", wanted).count(),
    }
    answers = {name: case() for name, case in cases.items()}
    assert len(set(answers.values())) == 1
    measured = interleaved(cases, rounds=max(3, asked.rounds // 3))
    plain, less = (lake.plan(zb.col("key").isin(wanted)) for lake in (bench.lake, bench.located))
    rows = [_row_of_list(name, measured, bench.seen(name, case)) for name, case in cases.items()]
    note = (
        f"The index keeps {plain.result.kept.zones} of {plain.result.total.zones} zones, read by {plain.choice.method};"
        f" with a locator {less.result.kept.zones}, read by {less.choice.method}."
    )
    title = f"IN list of {asked.keys:,} {asked.key} keys, 1 % of which exist, {asked.files} files"
    result.table(title, ["query", "ms", "times faster than plain", "files opened", "MB read", "jobs"], rows, note)
    result.headline.append(headline_of_list(rows, title))
    claim = f"IN of {asked.keys:,} with a locator, against filters, {asked.files} files, {asked.key}"
    result.target(claim, measured.ratio(AUTO, LOCATED)["median"], 2, "times", at_most=False)


def headline_of_list(rows: list[list[Any]], title: str) -> list[str]:
    """The line of the README, of the rows of a table."""
    plain, ours, located = (next(row[1]["median"] for row in rows if row[0] == name) for name in (PLAIN, AUTO, LOCATED))
    against = f"{ours:,.0f} ms with filters; a broadcast join {plain:,.0f} ms"
    return [f"Spark: {title}, with a locator", f"{located:,.0f} ms", against]


def _row_of_list(name: str, measured: Rounds, seen: tuple[int, Traffic]) -> list[Any]:
    num_jobs, read_by_it = seen
    mb = round(read_by_it.num_bytes / 1e6, 1)
    return [name, measured.wall(name, 1e-3), measured.ratio(PLAIN, name), read_by_it.files, mb, num_jobs]


if __name__ == "__main__":
    main()
