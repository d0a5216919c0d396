"""The main job on files that zonebloom did not write.

Oracles and writers: DuckDB 2.0 (UUID logical type, hive folders with percent-encoding), Polars 2.1 (page index,
categoricals); answers are compared with `pyarrow.dataset`.
"""

from __future__ import annotations

import uuid

import duckdb
import numpy as np
import polars as pl
import pyarrow.dataset as pads
import pytest

import zonebloom as zb

ROWS = 30_000


@pytest.fixture(scope="module")
def duckdb_lake(tmp_path_factory):
    folder = tmp_path_factory.mktemp("duckdb") / "lake"
    duckdb.sql("select setseed(0.5)")
    duckdb.sql(
        f"""copy (
            select uuid() as u, range as i, (random() * 1e9)::bigint as k,
                case when range % 3 = 0 then null else 'n' || (range % 1000) end as n,
                timestamp '2024-01-01' + interval (range) second as ts,
                (range % 100)::decimal(9, 2) as dec, range % 5 as "we ird"
            from range({ROWS})
        ) to '{folder}' (format parquet, partition_by ("we ird"))"""
    )
    return folder


@pytest.fixture(scope="module")
def duckdb_index(duckdb_lake):
    return zb.build_index(duckdb_lake, ["u", "k", "n", "ts", "dec"], rows_per_zone=1000)


def test_every_type_that_duckdb_writes_is_found_and_pruned(duckdb_lake, duckdb_index):
    everything = pads.dataset(duckdb_lake, partitioning="hive").to_table()
    row = everything.slice(ROWS // 2, 1).to_pylist()[0]
    for name in ("u", "k", "ts"):
        value = uuid.UUID(bytes=row[name]) if name == "u" else row[name]
        result = duckdb_index.search(zb.col(name) == value)
        assert not result.reasons
        assert 1 <= result.num_zones_kept <= 2
        assert row["i"] in duckdb_index.to_table(zb.col(name) == value)["i"].to_pylist()


@pytest.mark.parametrize(
    ("where", "truth"),
    [
        ('dec = 7.00 AND "we ird" = 2', lambda t: [i for i in t["i"] if i % 100 == 7 and i % 5 == 2]),
        ('n IS NULL AND "we ird" IN (1, 2)', lambda t: [i for i in t["i"] if i % 3 == 0 and i % 5 in (1, 2)]),
        ("n = 'n7' OR n = 'n8'", lambda t: [i for i in t["i"] if i % 3 and i % 1000 in (7, 8)]),
        ("ts = '2024-01-01 01:00:00'", lambda _: [3600]),
        ('"we ird" > 3', lambda t: [i for i in t["i"] if i % 5 > 3]),
    ],
)
def test_scan_of_files_from_duckdb_equals_the_truth(duckdb_index, where, truth):
    expected = truth({"i": range(ROWS)})
    assert sorted(duckdb_index.to_table(where)["i"].to_pylist()) == expected
    assert duckdb_index.search(where).num_rows_kept < ROWS


def test_files_from_polars_are_found_and_pruned(tmp_path):
    frame = pl.DataFrame(
        {
            "k": np.random.default_rng(0).integers(0, 1 << 40, ROWS),
            "s": [f"k{i}" for i in range(ROWS)],
            "c": pl.Series(["a", "b"] * (ROWS // 2), dtype=pl.Categorical),
        }
    )
    frame.write_parquet(tmp_path / "p.parquet", row_group_size=7000)
    index = zb.build_index(tmp_path / "p.parquet", ["k", "s", "c"], rows_per_zone=1000)
    result = index.search("s = 'k777'")
    assert result.num_zones_kept == 1
    assert index.to_table("s = 'k777'", columns=["s"]).to_pylist() == [{"s": "k777"}]
    assert index.to_table(zb.col("k") == int(frame["k"][4321])).num_rows == 1
    assert index.to_table("c = 'a'").num_rows == ROWS // 2
    assert index.search("c = 'zz'").num_rows_kept == 0
