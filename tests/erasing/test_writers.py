"""Rows erased from lakes of other writers, hive and flat; the writer's own engine reads the rest.

Writers and oracles: DuckDB 2.0, Polars 2.1, fastparquet.
"""

from __future__ import annotations

import warnings

import duckdb
import fastparquet
import pandas as pd
import polars as pl
import pytest

import zonebloom as zb

ROWS = 6000
GONE = ["u7", "u1007", "u5999"]


def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {"user_id": [f"u{i}" for i in range(ROWS)], "x": range(ROWS), "day": [i % 3 for i in range(ROWS)]}
    )


def by_duckdb(root, *, is_hive) -> None:
    rows = frame()  # noqa: F841 - DuckDB finds it
    options = "partition_by (day)" if is_hive else "per_thread_output true"
    duckdb.sql(f"copy (from rows) to '{root}' (format parquet, {options})")


def by_polars(root, *, is_hive) -> None:
    rows = pl.from_pandas(frame())
    if is_hive:
        rows.write_parquet(root, partition_by="day")
        return
    root.mkdir()
    for number in range(3):
        rows.slice(2000 * number, 2000).write_parquet(root / f"{number}.parquet", row_group_size=500)


def by_fastparquet(root, *, is_hive) -> None:
    options = {"file_scheme": "hive", "row_group_offsets": 1000, **({"partition_on": ["day"]} if is_hive else {})}
    with warnings.catch_warnings(action="ignore"):
        fastparquet.write(str(root), frame(), **options)


def read_by_duckdb(root):
    return duckdb.sql(f"select x from read_parquet('{root}/**/*.parquet')").df()["x"]


def read_by_polars(root):
    return pl.scan_parquet(root).select("x").collect()["x"]


def read_by_fastparquet(root):
    with warnings.catch_warnings(action="ignore"):
        return fastparquet.ParquetFile(str(root)).to_pandas(columns=["x"])["x"]


ENGINES = {
    "duckdb": (by_duckdb, read_by_duckdb),
    "polars": (by_polars, read_by_polars),
    "fastparquet": (by_fastparquet, read_by_fastparquet),
}


@pytest.mark.parametrize("is_hive", [False, True], ids=["flat", "hive"])
@pytest.mark.parametrize(("write", "read"), ENGINES.values(), ids=ENGINES)
def test_the_rest_of_a_lake_is_read_by_the_engine_that_wrote_it(tmp_path, write, read, is_hive):
    root = tmp_path / "lake"
    write(root, is_hive=is_hive)
    zb.build_index(root, "user_id", rows_per_zone=256)
    had_summary = (root / "_metadata").exists()
    done = zb.erase(root, "user_id", GONE, record=tmp_path / "erased.json")
    assert (done.num_rows_erased, done.num_rows_left, done.still_held) == (3, 0, ())
    assert sorted(read(root)) == sorted({*range(ROWS)} - {7, 1007, 5999})
    assert done.removed == (("_metadata",) if had_summary else ())
    assert had_summary == (write is by_fastparquet)
