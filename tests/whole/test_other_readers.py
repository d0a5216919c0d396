"""A folder that was just indexed is read by every other reader as before the build.

Oracle: the reader itself, before the build (Polars, DuckDB, pyarrow, pandas, DataFusion).
"""

from __future__ import annotations

from pathlib import Path

import datafusion
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

import zonebloom as zb
from tests.conftest import index_of
from zonebloom.errors import InvalidArgumentError

READERS = {
    "polars scan": lambda root: pl.scan_parquet(root).select(pl.len()).collect().item(),
    "polars scan/": lambda root: pl.scan_parquet(f"{root}/").select(pl.len()).collect().item(),
    "polars read": lambda root: pl.read_parquet(root).height,
    "duckdb folder": lambda root: duckdb.sql(f"select count(*) from read_parquet('{root}')").fetchall()[0][0],
    "duckdb glob": lambda root: duckdb.sql(f"select count(*) from read_parquet('{root}/**/*')").fetchall()[0][0],
    "duckdb glob of Parquet": lambda root: len(duckdb.sql(f"from read_parquet('{root}/**/*.parquet')").fetchall()),
    "pyarrow dataset": lambda root: pads.dataset(root, format="parquet", partitioning="hive").count_rows(),
    "pyarrow table": lambda root: pq.read_table(root).num_rows,
    "pandas": lambda root: len(pd.read_parquet(root)),
    "datafusion": lambda root: datafusion.SessionContext().read_parquet(f"{root}/").count(),
}


@pytest.mark.parametrize("is_hive", [False, True], ids=["flat", "hive"])
def test_every_reader_reads_an_indexed_folder_as_before(make_lake, is_hive):
    lake = make_lake((300, 200), partition_by_day=is_hive)
    before = {name: reader(lake.root) for name, reader in READERS.items()}
    zb.build_index(lake.root, "user_id", rows_per_zone=100)
    assert before == dict.fromkeys(READERS, 500)
    assert {name: reader(lake.root) for name, reader in READERS.items()} == before


def test_an_index_that_is_inside_is_still_found_and_added_to(flat_lake):
    inside = flat_lake.root / "_zonebloom"
    zb.build_index(flat_lake.root, "user_id", index=inside)
    assert zb.build_index(flat_lake.root, "device_id").root == inside
    assert zb.open_index(flat_lake.root).columns == ["user_id", "device_id"]
    assert not index_of(flat_lake.root).exists()


def test_a_link_to_the_folder_finds_its_index(flat_lake, tmp_path):
    zb.build_index(flat_lake.root, "user_id")
    (tmp_path / "link").symlink_to(flat_lake.root)
    assert zb.open_index(tmp_path / "link").root == index_of(flat_lake.root)


def test_the_index_of_one_partition_is_no_data_of_the_whole(make_lake):
    lake = make_lake((300, 200), partition_by_day=True)
    built = zb.build_index(lake.root / "day=1", "user_id")
    assert built.root == lake.root / ".day=1.zonebloom"
    assert zb.open_index(lake.root / "day=1").data.location == str(lake.root / "day=1")
    assert zb.build_index(lake.root, "user_id").num_fragments == len(lake.files)
    assert pads.dataset(lake.root, format="parquet").count_rows() == 500


def test_the_index_of_an_iceberg_table_lies_beside_it(catalog):
    rows = pa.table({"x": pa.array(range(100), pa.int64())})
    table = catalog.create_table("db.t", rows.schema)
    table.append(rows)
    folder = Path(table.location().removeprefix("file://"))
    metadata = table.metadata_location.removeprefix("file://")
    assert zb.build_index(metadata, "x").root == index_of(folder)
    assert zb.open_index(metadata).to_table("x = 7").num_rows == 1
    with pytest.raises(InvalidArgumentError, match="name it iceberg:CATALOG"):  # the file may be an old one
        zb.open_index(folder).to_table("x = 7")
    zb.delete_index(folder)
    assert zb.build_index(table, "x").root == index_of(folder)
