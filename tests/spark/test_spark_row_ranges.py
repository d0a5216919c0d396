"""Row ranges as frames, and functions over their rows, on a cluster and on Spark Connect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions

import zonebloom as zb
from tests.newer import need
from tests.spark.odd_lake import plan_of, rows_of
from zonebloom.engines.spark.scan import splits as pieces_module
from zonebloom.errors import DataFileError, InvalidArgumentError, StaleIndexError
from zonebloom.spark import ZoneBloom


@pytest.fixture
def small_lake(tmp_path: Path) -> Path:
    for number in range(4):
        rows = pa.table({"x": range(100 * number, 100 * number + 100), "s": [f"s{i}" for i in range(100)]})
        pq.write_table(rows, tmp_path / f"{number}.parquet", row_group_size=50)
    zb.build_index(tmp_path, ["x", "s"], rows_per_zone=10)
    return tmp_path


def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def with_empty_ones(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.slice(0, 0)
        yield batch
        yield batch.slice(0, 0)


def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"num": [sum(batch.num_rows for batch in batches)]})


def xs(frame: Any) -> list[int]:
    return sorted(row["x"] for row in frame.collect())


def test_located_keys_are_those_of_the_library(any_spark, small_lake):
    zb.build_index(small_lake, "x", rows_per_zone=10, kind="locator", overwrite=True)
    more = pa.table({"x": pa.array([5, 1000], pa.int64()), "s": ["a", "b"]})
    pq.write_table(more, small_lake / "unknown.parquet")
    keys = [5, 117, None, 10**9, 399]
    frame = any_spark.createDataFrame([(key,) for key in [*keys, 5]], "key long")
    actual = sorted(map(tuple, ZoneBloom(any_spark).locate(str(small_lake), "x", frame).collect()))
    wanted = []
    for line in zb.open_index(small_lake).locate("x", pa.array(keys, pa.int64())).to_pylist():
        number = line.pop("key_index")
        of_keys = [key for key in keys if key is not None] if number is None else [keys[number]]
        wanted += [(key, *line.values()) for key in of_keys]
    assert actual == sorted(wanted)
    assert [row[1:] for row in actual if row[0] == 117] == [("1.parquet", 1, 10, 20), ("unknown.parquet", 4, 0, 2)]
    for wrong in (frame.withColumn("more", frame.key), frame.withColumnRenamed("key", "path")):
        with pytest.raises(InvalidArgumentError, match="keys must have one column"):
            ZoneBloom(any_spark).locate(str(small_lake), "x", wrong)
    for other in ("double", "timestamp_ntz"):
        wrong = frame.selectExpr(f"CAST(NULL AS {other}) AS key")
        with pytest.raises(InvalidArgumentError, match=f"compares by value with a column of type bigint, got {other}"):
            ZoneBloom(any_spark).locate(str(small_lake), "x", wrong)


def test_keys_with_a_collation_are_refused(any_spark, small_lake):
    """DISTINCT would take `s5` and `S5` for one key, and drop one."""
    need("spark_4")
    zonebloom = ZoneBloom(any_spark)
    keys = any_spark.sql("SELECT CAST(u AS STRING COLLATE UTF8_LCASE) AS s FROM VALUES ('s5'), ('S5') AS t(u)")
    lake = zonebloom.read(str(small_lake))
    for call in (
        lambda: lake.where_in("s", keys),
        lambda: zonebloom.locate(str(small_lake), "s", keys.withColumnRenamed("s", "key")),
    ):
        with pytest.raises(InvalidArgumentError, match=r"must have no collation, .* got string collate UTF8_LCASE"):
            call()
    assert lake.where_in("s", keys.selectExpr("CAST(s AS STRING) AS s")).count() == 4


def test_candidates_are_those_of_the_library(any_spark, odd_lake):
    name = rows_of(plan_of(odd_lake))["name"][7].as_py()
    condition_of = (
        f"name = '{name}'",
        f"name IN ('{name}', 'u2', NULL) AND day >= 9",
        "day = 9",
        "name = 'nobody' OR id = 3",
    )
    for condition in condition_of:
        rows = ZoneBloom(any_spark).search(str(odd_lake), condition).to_arrow()
        text = condition.replace(" AND day >= 9", "")
        wanted = zb.open_index(odd_lake).search(text).to_arrow().to_pylist()
        assert rows.to_pylist() == wanted
        assert rows.column_names == ["path", "fragment_id", "start", "stop"]


def test_a_function_gets_the_candidate_rows_and_no_others(any_spark, small_lake):
    frame = ZoneBloom(any_spark).map_candidates(str(small_lake), "x IN (5, 317)", same, "x long, s string")
    assert xs(frame) == [*range(10), *range(310, 320)]
    column = functions.col("x") == 5
    frame = ZoneBloom(any_spark).map_candidates(str(small_lake), column, same, "s string", columns=["s"])
    assert sorted(row["s"] for row in frame.collect()) == [f"s{number}" for number in range(10)]


def test_row_ranges_may_be_filtered_before_their_rows_are_read(any_spark, small_lake):
    zone_bloom = ZoneBloom(any_spark)
    tables = [zone_bloom.search(str(small_lake), condition).to_arrow() for condition in ("x >= 0", "x = 5")]
    ranges = any_spark.createDataFrame(pa.concat_tables(tables).to_pylist())
    assert ranges.count() == 5
    some = ranges.where("path = '0.parquet' OR path = '2.parquet'")
    assert xs(zone_bloom.map_candidates(str(small_lake), some, same, "x long, s string")) == [
        *range(100),
        *range(200, 300),
    ]
    table = zb.open_index(small_lake).search("s = 's3'").to_arrow()
    mapped = zone_bloom.map_candidates(str(small_lake), table, same, "x long, s string")
    assert xs(mapped) == [number + first for first in (0, 100, 200, 300) for number in range(10)]


def test_empty_batches_of_a_function_lose_no_rows(any_spark, small_lake):
    frame = ZoneBloom(any_spark).map_candidates(str(small_lake), "x >= 0", with_empty_ones, "x long, s string")
    assert xs(frame) == [*range(400)]


def test_a_function_is_called_once_for_each_task_and_tasks_are_packed_by_size(spark, small_lake, monkeypatch):
    mapped = ZoneBloom(spark).map_candidates(small_lake, "x >= 0", counted, "num long")
    assert [row["num"] for row in mapped.collect()] == [400]
    monkeypatch.setattr(pieces_module, "OPEN_BYTES", pieces_module.TASK_BYTES // 2 + 1)
    four = ZoneBloom(spark).map_candidates(small_lake, "x >= 0", counted, "num long")
    assert [row["num"] for row in four.collect()] == [100] * 4


def test_where_nothing_can_match_no_task_reads(any_spark, small_lake):
    zone_bloom = ZoneBloom(any_spark)
    assert zone_bloom.search(str(small_lake), "x = -1").to_arrow().num_rows == 0
    assert zone_bloom.map_candidates(str(small_lake), "x = -1", counted, "num long").collect() == []


def test_ranges_of_files_that_changed_are_refused(spark, small_lake):
    ranges = ZoneBloom(spark).search(small_lake, "x IN (5, 105)").to_arrow()
    fresh = ZoneBloom(spark).map_candidates(small_lake, ranges, same, "x long, s string")
    pq.write_table(pa.table({"x": [7], "s": ["new"]}), small_lake / "1.parquet")
    with pytest.raises(StaleIndexError, match=r"got some of 1\.parquet, which changed"):
        ZoneBloom(spark).map_candidates(small_lake, ranges, same, "x long, s string")
    with pytest.raises(PySparkException, match="must be the one that was listed"):
        fresh.collect()
    again = ZoneBloom(spark).map_candidates(small_lake, "x IN (5, 105)", same, "x long, s string")
    assert xs(again) == [*range(7), 7, 7, 8, 9]


def test_a_file_that_is_not_indexed_is_read_whole_or_not_at_all(spark, small_lake):
    pq.write_table(pa.table({"x": [7, 8], "s": ["new", "newer"]}), small_lake / "9.parquet")
    ranges = ZoneBloom(spark).search(small_lake, "x = -1").to_arrow()
    assert ranges.num_rows == 1
    assert xs(ZoneBloom(spark).map_candidates(small_lake, ranges, same, "x long, s string")) == [7, 8]
    part = ranges.set_column(3, "stop", pa.array([1]))
    with pytest.raises(StaleIndexError):
        ZoneBloom(spark).map_candidates(small_lake, part, same, "x long, s string")
    pq.write_table(pa.table({"x": [7, 8, 9], "s": ["new", "newer", "newest"]}), small_lake / "9.parquet")
    with pytest.raises(StaleIndexError):
        ZoneBloom(spark).map_candidates(small_lake, ranges, same, "x long, s string")


def test_what_is_no_row_range_is_refused(spark, small_lake):
    with pytest.raises(InvalidArgumentError, match="row ranges must have the columns"):
        ZoneBloom(spark).map_candidates(small_lake, pa.table({"path": ["0.parquet"]}), same, "x long")
    beyond = pa.table({"path": ["0.parquet"], "fragment_id": [0], "start": [0], "stop": [101]})
    with pytest.raises(StaleIndexError):
        ZoneBloom(spark).map_candidates(small_lake, beyond, same, "x long")


def test_an_unreadable_file_is_an_error(spark, small_lake):
    (small_lake / "9.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(DataFileError, match=r"9\.parquet"):
        ZoneBloom(spark).map_candidates(small_lake, "x = 5", same, "x long, s string")
