"""Joins on Spark with an index: the big side is read by the keys of the small one.

The keys of the small side exist in the lake, or 1 % of them, or one: `prune_join`, the index evaluated included, beside
Spark's joins, one of them with Spark's own runtime bloom filter, whose thresholds are lowered until it is used.

    python -m bench.spark_join [--lake-rows 20000000] [--rounds 3]
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
from zonebloom.spark import ZoneBloom

LAKE_FILES = 40
KEYS = 10_000

RUNTIME = {
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "true",
    "spark.sql.optimizer.runtime.bloomFilter.applicationSideScanSizeThreshold": "0",
    "spark.sql.optimizer.runtime.bloomFilter.creationSideThreshold": "10g",
    "spark.sql.optimizer.runtime.bloomFilter.expectedNumItems": "{items}",
    "spark.sql.optimizer.runtime.bloomFilter.numBits": "{bits}",
}
PLAIN = {"spark.sql.optimizer.runtime.bloomFilter.enabled": "false"}
OPTIONS = {
    "spark.driver.memory": "8g",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.optimizer.runtimeFilter.semiJoinReduction.enabled": "false",
    "spark.sql.shuffle.partitions": "8",
}


def main() -> None:
    """A table for each list of keys."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lake-rows", type=int, default=20_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    result = Result("spark_join", "Joins through PySpark, local[2], Parquet in the page cache.", packages=["pyspark"])
    with cluster.running("local[2]", options=OPTIONS) as spark:
        with scratch() as folder:
            _keys(result, spark, folder, asked.lake_rows, asked.rounds)
        result.save()


def _payload(num_rows: int, rng: np.random.Generator) -> dict[str, Any]:
    return {"amount": rng.random(num_rows), "item": rng.integers(0, 1 << 20, num_rows), "page": uuids(num_rows, rng)}


# --- a lake by its keys -----------------------------------------------------------------------------------------------


def _keys(result: Result, spark: Any, folder: Path, num_rows: int, rounds: int) -> None:
    """Unsorted random keys in 40 files; the small side has 10 000."""
    rng = np.random.default_rng(4)
    (folder / "lake").mkdir()
    share = num_rows // LAKE_FILES
    some = []
    for number in range(LAKE_FILES):
        keys = integers(share, rng)
        some.append(keys.slice(0, KEYS // LAKE_FILES))
        table = pa.table({"key": keys.take(pa.array(rng.permutation(share))), **_payload(share, rng)})
        pq.write_table(table, folder / f"lake/{number:02}.parquet", row_group_size=1 << 17, write_page_index=True)
    zonebloom.build_index(folder / "lake", "key", kind="locator")
    present = pa.concat_arrays(some)
    absent = integers(KEYS, rng)
    few = pa.concat_arrays([present.slice(0, KEYS // 100), absent.slice(KEYS // 100)])
    tiny = pa.concat_arrays([present.slice(0, 1), absent.slice(0, 99)])
    for name, keys in [
        ("10 000 keys, 1 % exist", few),
        ("10 000 keys, all exist", present),
        ("100 keys, one exists", tiny),
    ]:
        _keys_of(result, spark, folder, name, keys=keys, rounds=rounds)


def _keys_of(result: Result, spark: Any, folder: Path, name: str, *, keys: pa.Array, rounds: int) -> None:
    pq.write_table(pa.table({"key": keys, "kind": ["order"] * len(keys)}), folder / "small.parquet")
    zb = ZoneBloom(spark)
    lake = str(folder / "lake")
    runtime = {case: text.format(items=len(keys), bits=1 << 20) for case, text in RUNTIME.items()}

    def small() -> Any:
        return spark.read.parquet(str(folder / "small.parquet")).where("kind = 'order'")

    def plain(settings: dict[str, str], broadcast: str) -> Any:
        _set(spark, {**settings, "spark.sql.autoBroadcastJoinThreshold": broadcast})
        return spark.read.parquet(lake).join(small(), "key")

    def pruned() -> Any:
        _set(spark, {**PLAIN, "spark.sql.autoBroadcastJoinThreshold": "10m"})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # that it does not pay
            return zb.prune_join(lake, small(), "key")

    cases: dict[str, Callable[[], Any]] = {
        "sort-merge join": lambda: plain(PLAIN, "-1"),
        "with Spark's runtime filter": lambda: plain(runtime, "-1"),
        "broadcast join": lambda: plain(PLAIN, "10m"),
        "prune_join": pruned,
    }
    assert "might_contain" in _plan(cases["with Spark's runtime filter"]())
    measured = _measured(result, cases, rounds)
    searched = zonebloom.open_index(lake).search(zonebloom.col("key").isin(keys))
    kept, total = searched.kept, searched.total
    note = f"Of {total.files} files {kept.files} and of {total.rows:,} rows {kept.rows:,} are kept."
    rows = [[case, measured.wall(case), measured.ratio(case, "prune_join")] for case in cases]
    result.table(f"{name}, {total.rows:,} rows", ["join", "seconds", "times prune_join's"], rows, note)
    ratio = measured.ratio("broadcast join", "prune_join")["median"]
    result.target(f"prune_join with a locator, against a broadcast join, {name}", ratio, 1, "times", at_most=False)


# --- measuring --------------------------------------------------------------------------------------------------------


def _set(spark: Any, settings: dict[str, str]) -> None:
    for name, value in settings.items():
        spark.conf.set(name, value)


def _plan(frame: Any) -> str:
    from contextlib import redirect_stdout
    from io import StringIO

    with redirect_stdout(StringIO()) as shown:
        frame.explain()
    return shown.getvalue()


def _answer(frame: Any) -> tuple[Any, ...]:
    return tuple(frame.selectExpr("count(*)", "sum(item)", "max(page)").collect()[0])


def _measured(result: Result, cases: dict[str, Callable[[], Any]], rounds: int) -> Rounds:
    """Seconds from making the frames to the answer, which must be the same in each case."""
    expected = {name: _answer(make()) for name, make in cases.items()}
    assert len(set(expected.values())) == 1, expected
    timed = {name: (lambda make=make: _answer(make())) for name, make in cases.items()}
    return result.note_load(interleaved(timed, rounds=rounds))


if __name__ == "__main__":
    main()
