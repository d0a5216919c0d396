"""Parquet's own bloom filters and Spark 4.3: its files are read by us, and it leaves out row groups of our copies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import zonebloom as zb
from tests.spark.cluster import changed
from zonebloom.bloom.physical_values import ParquetSbbf

COLUMNS = [
    "id * 7919 % 100003 AS key",
    "concat('user ', id * 7919 % 100003) AS text",
    "cast(id % 100 AS byte) AS tiny",
    "cast(id * 7919 % 10007 AS decimal(9, 2)) AS cash",
    "cast(id * 7919 AS decimal(15, 3)) AS price",
    "cast(id * 7919 AS decimal(30, 3)) AS wide",
    "timestamp_micros(id * 7919) AS at",
    "date_add(date'2020-01-01', cast(id % 1000 AS int)) AS day",
    "cast(id AS double) / 3 AS ratio",
]
NAMES = [column.rpartition(" ")[2] for column in COLUMNS]


def write(spark, folder: Path, **options: object) -> Path:
    blooms = {f"parquet.bloom.filter.enabled#{name}": "true" for name in NAMES}
    blooms |= {"parquet.enable.dictionary": "false"}  # Spark writes no filter where a dictionary has all values
    blooms |= {f"parquet.bloom.filter.expected.ndv#{name}": "4000" for name in NAMES}
    frame = spark.range(0, 4000, 1, 1).selectExpr(*COLUMNS)
    frame.write.options(**blooms, **{key: str(value) for key, value in options.items()}).parquet(str(folder))
    (path,) = folder.glob("*.parquet")
    return path


def rows_scanned(spark, path: object, where: str) -> tuple[list, int]:
    """The keys that match, and the rows that Spark's scan gave, by its own metric."""
    frame = spark.read.parquet(str(path)).where(where).select("key")
    keys = [row.key for row in frame.collect()]
    leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
    return keys, leaves.head().metrics().get("numOutputRows").get().value()


def test_filters_of_spark_are_read_and_equal_ours(spark, tmp_path):
    with changed(spark, "spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS"):
        path = write(spark, tmp_path / "lake")
    rows = pq.ParquetFile(path).read()
    for name in NAMES:
        theirs = zb.parquet_bloom(path, 0, name)
        ours = ParquetSbbf(np.zeros_like(theirs.blocks), theirs.column_type, theirs.plain_type)
        ours.insert(rows[name])
        assert ours == theirs, name
    odd = write(spark, tmp_path / "odd", **{"parquet.bloom.filter.max.bytes": 3000})
    assert {bloom["problem"] is None for bloom in zb.parquet_blooms(odd).to_pylist()} == {False}
    adaptive = write(spark, tmp_path / "adaptive", **{"parquet.bloom.filter.adaptive.enabled": "true"})
    for name in ("key", "text"):
        assert zb.parquet_bloom(adaptive, 0, name).check(rows[name].combine_chunks()).true_count == 4000


def test_spark_leaves_out_row_groups_of_a_copy(spark, tmp_path):
    keys = np.arange(40_000, dtype=np.int64) * 7919 % 100_003
    table = pa.table({"key": keys, "text": [f"user {key}" for key in keys.tolist()]})
    path = tmp_path / "lake" / "a.parquet"
    path.parent.mkdir()
    pq.write_table(table, path, row_group_size=10_000, use_dictionary=False)
    (copy,) = zb.add_parquet_blooms(path, tmp_path / "with", ["key", "text"], fpp=1e-4)
    for where in (f"key = {keys[25_000]}", f"text = 'user {keys[25_000]}'"):
        plain, filtered = (rows_scanned(spark, file, where) for file in (path, copy))
        assert plain[0] == filtered[0] == [keys[25_000]]
        assert plain[1] == 40_000
        assert filtered[1] <= 10_000


def test_spark_finds_every_nan_in_a_copy(spark, tmp_path):
    """To Spark all NaNs are equal, and it looks up Java's; 0.0 / 0.0 is another one in NumPy on x86."""
    double = np.array([0xFFF8000000000000, 0x7FF8000000000001, 0x7FF8000000000000], np.uint64).view(np.float64)
    single = np.array([0xFFC00000, 0x7FC00001, 0x7FC00000], np.uint32).view(np.float32)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"key": double, "single": single}), path, row_group_size=1, use_dictionary=False)
    (copy,) = zb.add_parquet_blooms(path, tmp_path / "with", ["key", "single"], fpp=1e-6)
    for where in ("key = double('NaN')", "single = float('NaN')", "key <=> double('NaN')"):
        assert [len(rows_scanned(spark, file, where)[0]) for file in (path, copy)] == [3, 3]
    assert rows_scanned(spark, copy, "key = 1.0D") == ([], 0)
