"""Rows erased from a lake that Spark 4.3 wrote: Spark reads the rest, with its own checksums, times and filters."""

from __future__ import annotations

import pytest

import zonebloom as zb
from tests.depth import some
from tests.spark.cluster import changed

COLUMNS = [
    "concat('user ', id * 7919 % 4001) AS user_id",
    "id AS x",
    "timestamp_seconds(-62135596800 + id * 20000000) AS at",
    "cast(id AS decimal(30, 3)) AS wide",
    "transform(sequence(0, cast(id % 3 AS int)), i -> named_struct('i', i, 's', cast(id AS string))) AS items",
    "map('a', id) AS pairs",
    "id % 2 AS day",
]


V2 = {
    "parquet.writer.version": "v2",
    "parquet.block.size": "60000",
    "parquet.bloom.filter.enabled#user_id": "true",
    "parquet.enable.dictionary": "false",
}


def rows_of(spark, root, where: str = "true") -> list:
    """The rows as Spark reads them; times as text, because Python has none before the year 1."""
    names = ("user_id", "x", "cast(at AS string) AS at", "wide", "items", "pairs", "day")
    return spark.read.parquet(str(root)).where(where).orderBy("x").selectExpr(*names).collect()


@pytest.mark.parametrize(("times", "options"), some([("INT96", {}), ("TIMESTAMP_MICROS", V2)], 2))
def test_spark_reads_the_rest_of_its_lake(spark, tmp_path, times, options):
    root = tmp_path / "lake"
    rows = spark.range(0, 4000, 1, 2).selectExpr(*COLUMNS)
    with (
        changed(spark, "spark.sql.parquet.outputTimestampType", times),
        changed(spark, "spark.sql.parquet.int96RebaseModeInWrite", "CORRECTED"),  # Spark 3.5 raises an error by default
    ):
        rows.write.options(**options).option("compression", "zstd").partitionBy("day").parquet(str(root))
    gone = [f"user {x * 7919 % 4001}" for x in (7, 8, 3999)]
    expected = rows_of(spark, root, f"user_id NOT IN {tuple(gone)}")
    assert len(expected) == 3997
    zb.build_index(root, "user_id", rows_per_zone=256)
    done = zb.erase(root, "user_id", gone, record=tmp_path / "erased.json")
    assert (done.num_rows_erased, done.num_rows_left) == (3, 0)
    assert len(done.removed) == len(done.files) >= 2
    assert all(path.endswith(".crc") for path in done.removed)
    assert rows_of(spark, root) == expected
    assert rows_of(spark, root, f"user_id = '{expected[5].user_id}'") == [expected[5]]
    assert rows_of(spark, root, f"user_id = '{gone[0]}'") == []
