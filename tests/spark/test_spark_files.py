"""Files of Spark 4.3: their filters and pages are read, and rows erased; Spark leaves out row groups of our copies.

Oracles: our own filters, pyarrow's rows of a row group, and Spark's reads.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zonebloom as zb
from tests.depth import some
from tests.formats.page_costs import every_page_pays
from tests.formats.test_pages import check_file
from tests.spark.cluster import changed
from zonebloom.bloom.physical_values import ParquetSbbf

# --- bloom filters ----------------------------------------------------------------------------------------------------

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


# --- pages ------------------------------------------------------------------------------------------------------------

PAGED = [
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
    frame = spark.range(0, 90_000, 1, 1).selectExpr(*PAGED)
    options = {"parquet.writer.version": version, "compression": codec}
    with changed(spark, "spark.sql.parquet.outputTimestampType", times):
        frame.write.options(**options).parquet(str(tmp_path / "lake"))
    (path,) = (tmp_path / "lake").glob("*.parquet")
    names = {column.rpartition(" ")[2] for column in PAGED}
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


# --- erasures ---------------------------------------------------------------------------------------------------------

ERASED = [
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


def rows_left(spark, root, where: str = "true") -> list:
    """The rows as Spark reads them; times as text, because Python has none before the year 1."""
    names = ("user_id", "x", "cast(at AS string) AS at", "wide", "items", "pairs", "day")
    return spark.read.parquet(str(root)).where(where).orderBy("x").selectExpr(*names).collect()


@pytest.mark.parametrize(("times", "options"), some([("INT96", {}), ("TIMESTAMP_MICROS", V2)], 2))
def test_spark_reads_the_rest_of_its_lake(spark, tmp_path, times, options):
    root = tmp_path / "lake"
    rows = spark.range(0, 4000, 1, 2).selectExpr(*ERASED)
    with (
        changed(spark, "spark.sql.parquet.outputTimestampType", times),
        changed(spark, "spark.sql.parquet.int96RebaseModeInWrite", "CORRECTED"),  # Spark 3.5 raises an error by default
    ):
        rows.write.options(**options).option("compression", "zstd").partitionBy("day").parquet(str(root))
    gone = [f"user {x * 7919 % 4001}" for x in (7, 8, 3999)]
    expected = rows_left(spark, root, f"user_id NOT IN {tuple(gone)}")
    assert len(expected) == 3997
    zb.build_index(root, "user_id", rows_per_zone=256)
    done = zb.erase(root, "user_id", gone, record=tmp_path / "erased.json")
    assert (done.num_rows_erased, done.num_rows_left) == (3, 0)
    assert len(done.removed) == len(done.files) >= 2
    assert all(path.endswith(".crc") for path in done.removed)
    assert rows_left(spark, root) == expected
    assert rows_left(spark, root, f"user_id = '{expected[5].user_id}'") == [expected[5]]
    assert rows_left(spark, root, f"user_id = '{gone[0]}'") == []
