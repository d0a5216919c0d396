"""Spark's own reader over a folder that was just indexed. Oracle: Spark before the build."""

from __future__ import annotations

import pytest

from zonebloom.spark import ZoneBloom


@pytest.mark.parametrize("is_hive", [False, True], ids=["flat", "hive"])
def test_spark_reads_an_indexed_folder_as_before(spark, make_lake, is_hive):
    lake = make_lake((300, 200), partition_by_day=is_hive)
    before = spark.read.parquet(str(lake.root)).count()
    ZoneBloom(spark).create_index(str(lake.root), "user_id")
    assert before == spark.read.parquet(str(lake.root)).count() == 500
