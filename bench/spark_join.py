"""Joins on Spark with an index: rows that cannot join dropped before the shuffle, and the big side read by its keys.

First, a sort-merge join of many probe rows, few of which have a partner: plain; with Spark's own runtime bloom filter,
its thresholds lowered until it is used; with `filter_by_index` in SQL and through Arrow; as a broadcast join; and with
the rows known beforehand, which no filter can beat. All filter the other side by one condition, else Spark builds none.
The time of `filter_by_index` itself is included, as the making of Spark's filter is; that of the index is not.

Second, a join of keys with a lake, of which 1 % exist, or all: `prune_join`, the index evaluated included.

    python -m bench.spark_join [--rows 10000000] [--lake-rows 20000000] [--rounds 5]
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

NUM_FILES = 10
LAKE_FILES = 40
SHARE = 0.02
"""Of the probe rows that have a partner."""
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
    """Both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--lake-rows", type=int, default=20_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    result = Result("spark_join", "Joins through PySpark, local[2], Parquet in the page cache.", packages=["pyspark"])
    with cluster.running("local[2]", options=OPTIONS) as spark:
        for kind in ("int64", "36-char UUID"):
            with scratch() as folder:
                _filters(result, spark, folder, kind, num_rows=asked.rows, rounds=asked.rounds)
            result.save()
        with scratch() as folder:
            _keys(result, spark, folder, asked.lake_rows, min(asked.rounds, 3))
        result.save()


def _made(kind: str, num_rows: int, rng: np.random.Generator) -> pa.Array:
    return integers(num_rows, rng) if kind == "int64" else uuids(num_rows, rng)


# --- rows of the probe side -------------------------------------------------------------------------------------------


def _filters(result: Result, spark: Any, folder: Path, kind: str, *, num_rows: int, rounds: int) -> None:
    """The probe side has `num_rows` rows; the other a tenth, which the index describes."""
    num_other = num_rows // 10
    other = _write_sides(folder, kind, num_rows, num_other)
    began = zonebloom.build_index(other, "key", levels=("zone", "dataset"))
    zb = ZoneBloom(spark)
    bits = 8 * began.dataset_filter("key").num_bytes
    runtime = {name: text.format(items=num_other, bits=bits) for name, text in RUNTIME.items()}

    def joined(settings: dict[str, str], *, way: str | None = None, broadcast: str = "-1") -> Any:
        _set(spark, {**settings, "spark.sql.autoBroadcastJoinThreshold": broadcast})
        lake = spark.read.parquet(str(other)).where("kind = 'order'")
        probe = spark.read.parquet(str(folder / "probe"))
        if way == "known":
            probe = probe.where("has_partner")
        elif way is not None:
            probe = zb.filter_by_index(probe, str(other), "key", path=way)
        return probe.join(lake, "key")

    cases: dict[str, Callable[[], Any]] = {
        "sort-merge join": lambda: joined(PLAIN),
        "with Spark's runtime filter": lambda: joined(runtime),
        "filter_by_index, SQL": lambda: joined(PLAIN, way="sql"),
        "filter_by_index, Arrow": lambda: joined(PLAIN, way="arrow"),
        "broadcast join": lambda: joined(PLAIN, broadcast="10g"),
        "rows known beforehand": lambda: joined(PLAIN, way="known"),
    }
    assert "might_contain" in _plan(cases["with Spark's runtime filter"]())
    assert "might_contain" not in _plan(cases["sort-merge join"]())
    assert "BroadcastHashJoin" in _plan(cases["broadcast join"]())
    measured = _measured(result, cases, rounds)
    plain, native = "sort-merge join", "with Spark's runtime filter"
    rows = [[name, measured.wall(name), measured.ratio(plain, name), measured.ratio(native, name)] for name in cases]
    columns = ["join", "seconds", "times faster than plain", "than the runtime filter"]
    note = (
        f"{SHARE:.0%} of the rows have a partner; the filter has {bits // 8 >> 10:,} KiB. Where the rows are known "
        "beforehand, by a column of booleans, a filter costs nothing: no way before a sort-merge join can be faster."
    )
    result.table(f"{num_rows:,} probe rows with {num_other:,}, {kind}", columns, rows, note)
    sql = "filter_by_index, SQL"
    result.headline.append(headline(num_rows, kind, rows[2]))
    result.target(f"SQL filter before a sort-merge join, {kind}, to plain",
                  measured.ratio(plain, sql)["median"], 2.0, "times", at_most=False)  # fmt: skip
    result.target(f"SQL filter before a sort-merge join, {kind}, to Spark's runtime filter",
                  measured.ratio(native, sql)["median"], 1.4, "times", at_most=False)  # fmt: skip


def headline(num_rows: int, kind: str, row: list[Any]) -> list[str]:
    """The line of the README, of the row of the SQL filter."""
    plain, runtime = (cell["median"] for cell in row[2:4])
    text = f"a plain sort-merge join; {runtime:.2f} x as fast as with Spark's runtime filter"
    return [f"Spark: filter_by_index before a join of {num_rows:,} rows, {kind}", f"{plain:.1f} x faster", text]


def _write_sides(folder: Path, kind: str, num_rows: int, num_other: int) -> Path:
    rng = np.random.default_rng(3)
    (folder / "probe").mkdir()
    (folder / "other").mkdir()
    share = num_rows // NUM_FILES
    shared = _made(kind, int(num_rows * SHARE), rng)
    for number in range(NUM_FILES):
        mine = shared.slice(number * len(shared) // NUM_FILES, len(shared) // NUM_FILES)
        keys = pa.concat_arrays([mine, _made(kind, share - len(mine), rng)])
        order = rng.permutation(share)
        probe = {"key": keys.take(pa.array(order)), "has_partner": order < len(mine), **_payload(share, rng)}
        pq.write_table(pa.table(probe), folder / f"probe/{number}.parquet")
        rest = num_other // NUM_FILES - len(mine)
        keys = pa.concat_arrays([mine, _made(kind, rest, rng)])
        kinds = pa.array(["order"] * len(keys)).dictionary_encode()
        pq.write_table(pa.table({"key": keys, "kind": kinds, "price": rng.random(len(keys))}),
                       folder / f"other/{number}.parquet")  # fmt: skip
    return folder / "other"


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
    zonebloom.build_index(folder / "lake", "key", filters=False)
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
    runtime = {one: text.format(items=len(keys), bits=1 << 20) for one, text in RUNTIME.items()}

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
    found = zonebloom.open_index(lake).search(zonebloom.col("key").isin(keys))
    kept, total = found.kept, found.total
    note = f"Of {total.files} files {kept.files} and of {total.rows:,} rows {kept.rows:,} are kept."
    rows = [[case, measured.wall(case), measured.ratio(case, "prune_join")] for case in cases]
    result.table(f"{name}, {found.total.rows:,} rows", ["join", "seconds", "times prune_join's"], rows, note)
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
