"""Rows read by pages from files of Spark 4.3, in both versions of the format: those of the row group."""

from __future__ import annotations

from random import Random

import pytest

from tests.test_pages import check_file
from zonebloom.datasets import page_map, pages

COLUMNS = [
    "id",
    "xxhash64(id) AS k",
    "concat('user ', id % 5000) AS text",
    "concat('0000-1111-2222-', xxhash64(id, 1)) AS unique",
    "if(id % 4 = 0, rand(1), NULL) AS half",
    "id % 3 = 0 AS flag",
    "timestamp_micros(id) AS at",
    "cast(id AS decimal(20, 3)) AS wide",
    "cast(id AS decimal(9, 2)) AS price",
    "cast(cast(id AS string) AS binary) AS bytes",
    "struct(id AS x, cast(id % 10 AS string) AS y) AS deep",
    "array(id, id + 1) AS many",
]


WRITERS = {"v1": ("snappy", "TIMESTAMP_MICROS"), "v2": ("zstd", "INT96")}
"""For each version of pages, a codec, and how times are written."""


@pytest.mark.parametrize("version", WRITERS)
def test_files_of_spark_are_read_by_pages(spark, tmp_path, monkeypatch, version):
    codec, times = WRITERS[version]
    for module, name in ((pages, "_ROWS_PER_PAGE"), (pages, "_BYTES_PER_PAGE"), (page_map, "_ROWS_PER_HEADER")):
        monkeypatch.setattr(module, name, 0 if module is pages else 1)
    spark.conf.set("spark.sql.parquet.outputTimestampType", times)
    frame = spark.range(0, 90_000, 1, 1).selectExpr(*COLUMNS)
    options = {"parquet.writer.version": version, "compression": codec}
    frame.write.options(**options).parquet(str(tmp_path / "lake"))
    spark.conf.unset("spark.sql.parquet.outputTimestampType")
    (path,) = (tmp_path / "lake").glob("*.parquet")
    names = {column.rpartition(" ")[2] for column in COLUMNS}
    assert check_file(path, Random(1)) == names - {"many"}
