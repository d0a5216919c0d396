"""Rows read by pages from files of Spark 4.3, in both versions of the format: those of the row group.

And columns that pyarrow cannot read as a dictionary, though they have one.
"""

from __future__ import annotations

from random import Random

import pyarrow.parquet as pq
import pytest

import zonebloom as zb
from tests.depth import some
from tests.formats.page_costs import every_page_pays
from tests.formats.test_pages import check_file
from tests.spark.cluster import changed

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


@pytest.mark.parametrize("version", some(WRITERS, 2))
def test_files_of_spark_are_read_by_pages(spark, tmp_path, monkeypatch, version):
    codec, times = WRITERS[version]
    every_page_pays(monkeypatch.setattr)
    frame = spark.range(0, 90_000, 1, 1).selectExpr(*COLUMNS)
    options = {"parquet.writer.version": version, "compression": codec}
    with changed(spark, "spark.sql.parquet.outputTimestampType", times):
        frame.write.options(**options).parquet(str(tmp_path / "lake"))
    (path,) = (tmp_path / "lake").glob("*.parquet")
    names = {column.rpartition(" ")[2] for column in COLUMNS}
    assert check_file(path, Random(1)) == names - {"many"}


def test_a_column_that_goes_on_in_deltas_past_its_dictionary_is_indexed(spark, tmp_path):
    """pyarrow makes no dictionary of such pages, small though they are."""
    text = "CASE WHEN id < 10000 THEN CAST(id % 5 AS STRING) ELSE lpad(CAST(id DIV 3 AS STRING), 6, '0') END AS text"
    sizes = {"parquet.writer.version": "PARQUET_2_0", "parquet.dictionary.page.size": 500, "parquet.page.size": 2000}
    spark.range(20_000).selectExpr(text).coalesce(1).write.options(**sizes).parquet(str(tmp_path / "lake"))
    (file,) = (tmp_path / "lake").glob("*.parquet")
    chunk = pq.ParquetFile(file).metadata.row_group(0).column(0)
    assert chunk.has_dictionary_page
    assert "DELTA_BYTE_ARRAY" in chunk.encodings
    index = zb.build_index(tmp_path / "lake", ["text"], rows_per_zone=100)
    assert index.search("text = '006000'").num_rows_kept == 100
    assert index.to_table("text = '006000'").num_rows == 3
    assert index.to_table("text = '3'").num_rows == 2000
