"""The data source `format("zonebloom")` against Spark's own Parquet reader: one key, and whole scans, where it loses.

A query is timed from `load` on, so that opening the index, listing the files and planning are in it. Keys are present,
or absent within the range of each file. Answers are compared first. Whole scans are what the source is not for.

    python -m bench.spark_source [--rows 500000] [--files 40] [--rounds 7]
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import zonebloom
from bench.data import integers, uuids
from bench.harness import Result, Rounds, interleaved, scratch
from tests.spark import cluster
from zonebloom.spark import register
from zonebloom.spark.source import Options, ZoneBloomReader, ZoneBloomSource

PLAIN, OURS = "spark.read.parquet", "format('zonebloom')"


def main() -> None:
    """Both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=7)
    asked = parser.parse_args()
    about = "The data source on Spark, local[2], Parquet with a page index in the page cache."
    result = Result("spark_source", about, packages=["pyspark"])
    with cluster.running("local[2]", options={"spark.driver.memory": "4g"}) as spark, scratch() as folder:
        register(spark)
        present = _write(folder / "lake", asked.rows, asked.files)
        zonebloom.build_index(folder / "lake", ["id", "trace"])
        _keys(result, spark, folder / "lake", present, asked.rounds)
        _scans(result, spark, folder / "lake", asked.rounds)
    result.save()


def _write(lake: Path, num_rows: int, num_files: int) -> dict[str, str]:
    """The lake, and for each column a condition that one row meets."""
    rng = np.random.default_rng(11)
    lake.mkdir()
    for number in range(num_files):
        columns = {
            "id": integers(num_rows, rng),
            "trace": uuids(num_rows, rng),
            "amount": pa.array(rng.random(num_rows)),
        }
        columns["item"] = pa.array(rng.integers(0, 1 << 20, num_rows))
        pq.write_table(pa.table(columns), lake / f"{number:04}.parquet", write_page_index=True)
    place = num_rows // 2
    return {"id": f"id = {columns['id'][place]}", "trace": f"trace = '{columns['trace'][place]}'"}


def _frame(spark: Any, way: str, lake: Path, where: str | None = None) -> Any:
    if way == PLAIN:
        frame = spark.read.parquet(str(lake))
    else:
        reader = spark.read.format("zonebloom")
        frame = (reader if where is None else reader.option("where", where)).load(str(lake))
    return frame if where is None else frame.where(where)


def _keys(result: Result, spark: Any, lake: Path, present: dict[str, str], rounds: int) -> None:
    conditions = {f"present {name}": condition for name, condition in present.items()}
    conditions |= {"absent id": "id = 1", "absent trace": "trace = '7f000000-0000-4000-8000-000000000000'"}
    rows = []
    for name, condition in conditions.items():
        expected = _frame(spark, PLAIN, lake, condition).collect()
        assert _frame(spark, OURS, lake, condition).collect() == expected
        assert len(expected) == name.startswith("present")
        options = {"path": str(lake), "where": condition}
        plan = ZoneBloomReader(Options.of(options), ZoneBloomSource(options).schema()).plan()
        cases = {way: _query(spark, way, lake, condition) for way in (PLAIN, OURS)}
        measured = _measured(result, cases, rounds)
        times = measured.ratio(PLAIN, OURS)
        rows.append([name, measured.wall(PLAIN), measured.wall(OURS), times, plan.num_files, plan.num_rows])
        result.target(f"data source, {name}, against plain", times["median"], 1.0, "times", at_most=False)
    columns = ["key", f"{PLAIN}, s", f"{OURS}, s", "times faster", "files read", "rows read"]
    result.table("One key, from load to rows", columns, rows)


def _query(spark: Any, way: str, lake: Path, condition: str) -> Callable[[], Any]:
    return lambda: _frame(spark, way, lake, condition).collect()


def _scans(result: Result, spark: Any, lake: Path, rounds: int) -> None:
    queries = {
        "four columns": "sum(hash(id, trace, amount, item)) AS x",
        "one column": "sum(amount) AS x",
        "count(*)": "count(*) AS x",
    }
    rows = []
    for name, query in queries.items():
        cases = {way: _scan(spark, way, lake, query) for way in (PLAIN, OURS)}
        found = [case()[0]["x"] for case in cases.values()]
        assert np.isclose(*map(float, found))
        measured = _measured(result, cases, rounds)
        rows.append([name, measured.wall(PLAIN), measured.wall(OURS), measured.ratio(OURS, PLAIN)])
    columns = ["whole scan", f"{PLAIN}, s", f"{OURS}, s", "times slower"]
    note = "Spark asks a Python data source for all columns, and each row goes through Python: use its own reader."
    result.table("Whole scans", columns, rows, note)


def _scan(spark: Any, way: str, lake: Path, query: str) -> Callable[[], Any]:
    return lambda: _frame(spark, way, lake).selectExpr(query).collect()


def _measured(result: Result, cases: dict[str, Callable[[], Any]], rounds: int) -> Rounds:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return result.note_load(interleaved(cases, rounds=rounds))


if __name__ == "__main__":
    main()
