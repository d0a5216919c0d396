"""The data source `format("zonebloom")` against Spark's own Parquet reader: one key, and whole scans, where it loses.

A query is timed from `load`, or from the SQL view on, so that opening the index, listing the files and planning are in
it. Keys are present, or absent within the range of each file. The peers are a plain read, and the same rows with
Parquet's own bloom filters. Answers are compared first. Files opened are counted by the system (`bench.traffic`), as
are bytes, those between Spark and Python among them. Whole scans are what the source is not for.

    python -m bench.spark_source [--rows 500000] [--files 40] [--rounds 5]
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
from bench.harness import Result, interleaved, scratch
from bench.traffic import traffic
from tests.spark import cluster
from zonebloom.spark import register

PLAIN, NATIVE = "spark.read.parquet", "Parquet's bloom filters"
OURS, SQL = "format('zonebloom')", "SQL view using zonebloom"
FPP = 0.001
"""Of Parquet's filters."""


def main() -> None:
    """Both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    about = "The data source on Spark, local[2], Parquet with a page index in the page cache."
    result = Result("spark_source", about, packages=["pyspark"])
    with cluster.running("local[2]", options={"spark.driver.memory": "4g"}) as spark, scratch() as folder:
        register(spark)
        present = _write(folder, asked.rows, asked.files)
        zonebloom.build_index(folder / "plain", ["id", "trace"])
        _keys(result, spark, folder, present, asked.rounds)
        _scans(result, spark, folder / "plain", max(2, asked.rounds // 3))
    result.save()


def _write(folder: Path, num_rows: int, num_files: int) -> dict[str, str]:
    """Both lakes, and for each column a condition that one row meets."""
    rng = np.random.default_rng(11)
    filters = {name: {"ndv": num_rows, "fpp": FPP} for name in ("id", "trace")}
    for name in ("plain", "native"):
        (folder / name).mkdir()
    for number in range(num_files):
        columns = {
            "id": integers(num_rows, rng),
            "trace": uuids(num_rows, rng),
            "amount": pa.array(rng.random(num_rows)),
        }
        columns["item"] = pa.array(rng.integers(0, 1 << 20, num_rows))
        table, path = pa.table(columns), f"{number:04}.parquet"
        pq.write_table(table, folder / "plain" / path, write_page_index=True)
        pq.write_table(table, folder / "native" / path, write_page_index=True, bloom_filter_options=filters)
    place = num_rows // 2
    return {"id": f"id = {columns['id'][place]}", "trace": f"trace = '{columns['trace'][place]}'"}


def _query(spark: Any, way: str, folder: Path, where: str) -> Callable[[], list[Any]]:
    """The rows where `where`; each call is the whole query."""
    if way == SQL:
        options = f"path '{folder / 'plain'}', where \"{where}\""

        def by_sql() -> list[Any]:
            spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW lake USING zonebloom OPTIONS ({options})")
            found: list[Any] = spark.sql(f"SELECT * FROM lake WHERE {where}").collect()
            return found

        return by_sql
    if way == OURS:
        source, place = spark.read.format("zonebloom").option("where", where), folder / "plain"
        return lambda: source.load(str(place)).where(where).collect()
    place = folder / ("native" if way == NATIVE else "plain")
    return lambda: spark.read.parquet(str(place)).where(where).collect()


def _keys(result: Result, spark: Any, folder: Path, present: dict[str, str], rounds: int) -> None:
    conditions = {f"present {name}": condition for name, condition in present.items()}
    conditions |= {"absent id": "id = 1", "absent trace": "trace = '7f000000-0000-4000-8000-000000000000'"}
    rows = []
    for name, condition in conditions.items():
        cases = {way: _query(spark, way, folder, condition) for way in (PLAIN, NATIVE, OURS, SQL)}
        answers = {way: case() for way, case in cases.items()}
        assert all(answer == answers[PLAIN] for answer in answers.values())
        assert len(answers[PLAIN]) == name.startswith("present")
        measured = result.note_load(interleaved(cases, rounds=rounds))
        for way, case in cases.items():
            read_by_it = traffic(case, folder / ("native" if way == NATIVE else "plain"))
            times = [measured.ratio(one, way) for one in (PLAIN, NATIVE)]
            megabytes = round(read_by_it.num_bytes / 1e6, 1)
            rows.append([name, way, measured.wall(way, 1e-3), *times, read_by_it.files, megabytes])
        times = measured.ratio(PLAIN, OURS)
        result.target(f"data source, {name}, against plain", times["median"], 1.0, "times", at_most=False)
    columns = ["key", "query", "ms", "times faster than plain", "than Parquet's filters", "files opened", "MB read"]
    result.table("One key, from load to rows", columns, rows)


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
        with warnings.catch_warnings():  # the source says that it reads every row
            warnings.simplefilter("ignore")
            measured = result.note_load(interleaved(cases, rounds=rounds, warm_up=0))
        rows.append([name, measured.wall(PLAIN), measured.wall(OURS), measured.ratio(OURS, PLAIN)])
    columns = ["whole scan", f"{PLAIN}, s", f"{OURS}, s", "times slower"]
    note = "Spark asks a Python data source for all columns, and each row goes through Python: use its own reader."
    result.table("Whole scans", columns, rows, note)


def _scan(spark: Any, way: str, lake: Path, query: str) -> Callable[[], Any]:
    source = spark.read.format("zonebloom" if way == OURS else "parquet")
    return lambda: source.load(str(lake)).selectExpr(query).collect()


if __name__ == "__main__":
    main()
