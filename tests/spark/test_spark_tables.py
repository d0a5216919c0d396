"""Delta tables through Spark: built by executors, read by the data source, as their log has them.

Oracle: deltalake 1.6's own reader. Spark itself reads Delta only with a JAR, which nothing here needs.
"""

from __future__ import annotations

import pytest
from deltalake import DeltaTable, write_deltalake

import zonebloom
from tests.conftest import make_rows
from zonebloom.spark import ZoneBloom


@pytest.fixture
def table(tmp_path):
    """Two files, of which one was rewritten by a delete; and the keys that are gone."""
    root = tmp_path / "table"
    rows = make_rows(2000).select(["user_id", "device_id", "note"])
    write_deltalake(root, rows.slice(0, 1200))
    write_deltalake(root, rows.slice(1200), mode="append")
    gone = rows["user_id"][77].as_py()
    DeltaTable(root).delete(f"user_id = '{gone}'")
    return root, rows["user_id"][1500].as_py(), gone


def test_a_delta_table_is_built_as_the_library_builds_it(any_spark, table, tmp_path):
    root, _, _ = table
    made = ZoneBloom(any_spark).create_index(root, "user_id", index=tmp_path / "made", rows_per_zone=256)
    wanted = zonebloom.build_index(root, "user_id", index=tmp_path / "wanted", rows_per_zone=256)
    assert made.zone_table("user_id").to_arrow().equals(wanted.zone_table("user_id").to_arrow())
    assert made.info()["num_rows"] == 1999


def test_the_data_source_reads_the_rows_of_a_delta_tables_log(any_spark, table):
    root, present, gone = table
    ZoneBloom(any_spark).create_index(root, "user_id", rows_per_zone=256)
    for key, count in ((present, 1), (gone, 0)):
        condition = f"user_id = '{key}'"
        frame = any_spark.read.format("zonebloom").option("where", condition).load(str(root))
        assert frame.where(condition).count() == count
        assert frame.count() <= 256
    assert any_spark.read.format("zonebloom").option("where", "user_id IS NOT NULL").load(str(root)).count() == 1999
