"""Row ranges as frames, functions over their rows, and reads of candidate row ranges by executors.

Oracles: the library's search and locate, and Spark's plain read of the same files.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions

import zonebloom as zb
from tests.newer import need
from tests.spark.cluster import changed
from tests.spark.odd_lake import plan_of, rows_of
from tests.spark.rows import plain_read, rows_of_each, shown, write
from zonebloom.engines.spark import candidates
from zonebloom.engines.spark.pushdown.translate import EVERY_ROW
from zonebloom.engines.spark.scan import splits
from zonebloom.engines.spark.scan.layout import Layout
from zonebloom.engines.spark.scan.types import arrow_schema
from zonebloom.errors import DataFileError, InvalidArgumentError, StaleIndexError
from zonebloom.predicates import And, Equals, IsIn, IsNull, Not, Or
from zonebloom.spark import ZoneBloom

SCHEMA = "x long, s string"


def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def with_empty_ones(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.slice(0, 0)
        yield batch
        yield batch.slice(0, 0)


def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"num": [sum(batch.num_rows for batch in batches)]})


def xs(frames: list) -> list[list[int]]:
    """The numbers in the rows of each frame, all by one job."""
    texts = rows_of_each([frame.select("x") for frame in frames])
    return [sorted(int(text[1:-2]) for text in rows) for rows in texts]


def test_located_keys_are_those_of_the_library(any_spark, numbered_lake):
    zb.build_index(numbered_lake, "x", rows_per_zone=10, kind="locator", overwrite=True)
    write(numbered_lake / "unknown.parquet", {"x": [5, 1000], "s": ["a", "b"]})
    keys = [5, 117, None, 10**9, 399]
    frame = any_spark.createDataFrame([(key,) for key in [*keys, 5]], "key long")
    located = ZoneBloom(any_spark).locate(str(numbered_lake), "x", frame.toDF("a.`key"))
    assert located.columns == ["a.`key", "path", "fragment_id", "start", "stop", "fingerprint"]
    actual = sorted(map(tuple, located.collect()))
    wanted = []
    for line in zb.open_index(numbered_lake).locate("x", pa.array(keys, pa.int64())).to_pylist():
        number = line.pop("key_index")
        of_keys = [key for key in keys if key is not None] if number is None else [keys[number]]
        wanted += [(key, *line.values()) for key in of_keys]
    assert actual == sorted(wanted)
    assert [row[1:5] for row in actual if row[0] == 117] == [("1.parquet", 1, 10, 20), ("unknown.parquet", 4, 0, 2)]
    for wrong in (frame.withColumn("more", frame.key), *(frame.toDF(name) for name in ("path", "Start"))):
        with pytest.raises(InvalidArgumentError, match="keys must have one column"):
            ZoneBloom(any_spark).locate(str(numbered_lake), "x", wrong)
    for other in ("double", "timestamp_ntz"):
        wrong = frame.selectExpr(f"CAST(NULL AS {other}) AS key")
        with pytest.raises(InvalidArgumentError, match=f"compares by value with a column of type bigint, got {other}"):
            ZoneBloom(any_spark).locate(str(numbered_lake), "x", wrong)


def test_keys_with_a_collation_are_refused(any_spark, numbered_lake):
    """DISTINCT would take `s5` and `S5` for one key, and drop one."""
    need("spark_4")
    zonebloom = ZoneBloom(any_spark)
    keys = any_spark.sql("SELECT CAST(u AS STRING COLLATE UTF8_LCASE) AS s FROM VALUES ('s5'), ('S5') AS t(u)")
    lake = zonebloom.read(str(numbered_lake))
    for call in (
        lambda: lake.where_in("s", keys),
        lambda: zonebloom.locate(str(numbered_lake), "s", keys.withColumnRenamed("s", "key")),
    ):
        with pytest.raises(InvalidArgumentError, match=r"must have no collation, .* got string collate UTF8_LCASE"):
            call()
    assert lake.where_in("s", keys.selectExpr("CAST(s AS STRING) AS s")).count() == 4


def test_candidates_are_those_of_the_library(any_spark, odd_lake):
    name = rows_of(plan_of(odd_lake))["name"][7].as_py()
    for condition in (f"name IN ('{name}', 'u2', NULL)", "day = 9", "name = 'nobody' OR id = 3"):
        rows = ZoneBloom(any_spark).search(str(odd_lake), condition).to_arrow()
        assert rows.to_pylist() == zb.open_index(odd_lake).search(condition).to_arrow().to_pylist()
        assert rows.column_names == ["path", "fragment_id", "start", "stop", "fingerprint"]


def test_a_function_gets_the_candidate_rows_and_no_others(any_spark, numbered_lake):
    """Of a condition, of a column, and of row ranges that were filtered before their rows are read."""
    zonebloom, root = ZoneBloom(any_spark), str(numbered_lake)
    tables = [zonebloom.search(root, condition).to_arrow() for condition in ("x >= 0", "x = 5")]
    ranges = any_spark.createDataFrame(pa.concat_tables(tables).to_pylist())
    assert ranges.count() == 5
    wanted = (
        "x IN (5, 317)",
        functions.col("x") == 5,
        ranges.where("path = '0.parquet' OR path = '2.parquet'"),
        zb.open_index(numbered_lake).search("s = 's3'").to_arrow(),
        "x = -1",
    )
    assert xs([zonebloom.map_candidates(root, given, with_empty_ones, SCHEMA) for given in wanted]) == [
        [*range(10), *range(310, 320)],
        [*range(10)],
        [*range(100), *range(200, 300)],
        [first + number for first in (0, 100, 200, 300) for number in range(10)],
        [],
    ]
    texts = zonebloom.map_candidates(root, "x = 5", same, "s string", columns=["s"])
    assert shown(texts) == sorted(f"Row(s='s{number}')" for number in range(10))
    assert zonebloom.map_candidates(root, "x = -1", counted, "num long").collect() == []


def test_a_function_is_called_once_for_each_task_and_tasks_are_packed_by_size(spark, numbered_lake, monkeypatch):
    whole = ZoneBloom(spark).map_candidates(numbered_lake, "x >= 0", counted, "num long")
    monkeypatch.setattr(splits, "OPEN_BYTES", splits.TASK_BYTES // 2 + 1)
    four = ZoneBloom(spark).map_candidates(numbered_lake, "x >= 0", counted, "num long")
    assert rows_of_each([whole, four]) == [["(400,)"], ["(100,)"] * 4]


def test_a_function_gets_no_dates_that_spark_moves_by_a_setting(spark, tmp_path):
    write(tmp_path / "a.parquet", {"x": [1], "born": pa.array([dt.date(1500, 1, 1)])})
    zb.build_index(tmp_path, ["x"])
    bloom = ZoneBloom(spark)
    with changed(spark, "spark.sql.parquet.datetimeRebaseModeInRead", "LEGACY"):
        assert spark.read.parquet(str(tmp_path)).first().born == dt.date(1499, 12, 23)
        with pytest.raises(InvalidArgumentError, match="got a setting by which Spark moves dates and times"):
            bloom.map_candidates(str(tmp_path), "x = 1", same, "x long, born date")
        assert bloom.map_candidates(str(tmp_path), "x = 1", same, "x long", columns=["x"]).collect() == [(1,)]


def test_ranges_of_files_that_changed_are_refused(spark, numbered_lake):
    zonebloom = ZoneBloom(spark)
    ranges = zonebloom.search(numbered_lake, "x IN (5, 105)").to_arrow()
    fresh = zonebloom.map_candidates(numbered_lake, ranges, same, SCHEMA)
    write(numbered_lake / "1.parquet", {"x": [7, 8], "s": ["new", "newer"]})
    with pytest.raises(PySparkException, match="must be the one that was listed"):
        fresh.collect()
    unknown = zonebloom.search(numbered_lake, "x = -1").to_arrow()
    by_condition, by_range = (
        zonebloom.map_candidates(numbered_lake, wanted, same, SCHEMA) for wanted in ("x = 5", unknown)
    )
    assert xs([by_condition, by_range]) == [[*range(7), 7, 7, 8, 8, 9], [7, 8]]
    with pytest.raises(StaleIndexError, match=r"got some of 1\.parquet, which changed"):
        zonebloom.map_candidates(numbered_lake, ranges, same, SCHEMA)
    write(numbered_lake / "1.parquet", {"x": [7, 8, 9], "s": ["new", "newer", "newest"]})
    with pytest.raises(StaleIndexError):
        zonebloom.map_candidates(numbered_lake, unknown, same, SCHEMA)
    write(numbered_lake / "1.parquet", {"x": range(100), "s": ["new"] * 100})
    zb.delete_index(numbered_lake)  # the next one numbers files from 0 again
    zb.build_index(numbered_lake, "x")
    with pytest.raises(StaleIndexError):
        zonebloom.map_candidates(numbered_lake, ranges, same, SCHEMA)
    kept = zonebloom.map_candidates(numbered_lake, ranges.slice(0, 1), same, SCHEMA)
    assert xs([kept]) == [[*range(10)]]
    for no_columns in (
        lambda: zonebloom.map_candidates(numbered_lake, ranges.slice(0, 1), same, SCHEMA, columns=[]),
        lambda: zonebloom.read(str(numbered_lake), columns=[]),
    ):
        with pytest.raises(InvalidArgumentError, match="columns must be one or more names, got none"):
            no_columns()
    (numbered_lake / "9.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(DataFileError, match=r"9\.parquet"):
        zonebloom.map_candidates(numbered_lake, "x = 5", same, SCHEMA)


def test_row_ranges_that_are_none_of_the_present_files_are_refused(numbered_lake):
    view = zb.open_index(numbered_lake).view()
    ranges = zb.open_index(numbered_lake).search("x = 5").to_arrow().slice(0, 1)
    with pytest.raises(StaleIndexError, match=r"got some of 0\.parquet, which changed"):
        candidates._given(view, ranges.set_column(3, "stop", pa.array([101])))
    with pytest.raises(InvalidArgumentError, match="row ranges must have the columns"):
        candidates._given(view, pa.table({"path": ["0.parquet"]}))
    for place, given in ((0, [None]), (2, [None]), (3, ["end"]), (2, [0.5])):
        with pytest.raises(InvalidArgumentError, match="without nulls, got"):
            candidates._given(view, ranges.set_column(place, ranges.column_names[place], pa.array(given)))


# --- reads by executors -----------------------------------------------------------------------------------------------

ROWS = 2000


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Four files with one key in seven in common, the last of another type of integers."""
    for number in range(4):
        keys = pa.array(np.arange(ROWS) * 4 + number, pa.int64() if number < 3 else pa.int32())
        names = pa.array([None if i % 50 == 0 else f"n{i % 7}" for i in range(ROWS)])
        columns = {"key": keys, "name": names, "x": np.arange(ROWS)}
        write(tmp_path / f"{number}.parquet", columns, row_group_size=500)
    zb.build_index(tmp_path, ["key", "name"], rows_per_zone=50)
    return tmp_path


def leaving(root: Path, wanted) -> pa.Table:
    """The rows that leave an executor which reads all rows of all files."""
    layout = Layout(zb.open_index(root).view())
    reading, tasks = layout.tasks(layout.view.universe, layout.schema())
    reading = replace(reading, narrowing=splits.narrowing_of(layout.view, wanted))
    batches = [batch for task in tasks for batch in reading.batches(task)]
    return pa.Table.from_batches(batches, arrow_schema(reading.schema))


def test_only_rows_that_match_leave_an_executor(lake):
    (lake / "3.parquet").unlink()
    for wanted, expected in [
        (Equals("key", 8), [8]),
        (IsIn("key", [8, 9, 4001, -5, None]), [8, 9, 4001]),
        (And([Or([Equals("key", 8), IsIn("key", [12, 16])]), Equals("name", "n3")]), [12]),
        (
            And([IsIn("key", range(40)), Not(IsNull("name"))]),
            [k for k in range(40) if k % 4 < 3],
        ),  # Spark does the rest
        (IsIn("key", []), []),
    ]:
        actual = sorted(leaving(lake, wanted)["key"].to_pylist())
        assert actual == expected, wanted


def test_what_cannot_be_checked_on_its_own_columns_leaves_whole(lake):
    everything = 4 * ROWS
    for wanted in (EVERY_ROW, Not(Equals("key", 8)), IsNull("name"), Or([Equals("key", 8), IsNull("name")])):
        assert leaving(lake, wanted).num_rows == everything, wanted


def test_a_file_with_another_type_or_without_the_column_leaves_whole(lake):
    write(lake / "4.parquet", {"name": ["n1"] * 7})
    rows = leaving(lake, Equals("key", 9))
    assert rows.num_rows == 1 + ROWS + 7
    assert rows["key"].to_pylist().count(9) == 1


def test_row_ranges_are_read_where_they_are_few_in_every_file(any_spark, lake, few):
    need("spark_4")
    opened, plain = ZoneBloom(any_spark).read(str(lake)), plain_read(any_spark, lake)
    keys = [4, 401, 802, 1203]
    read = opened.prepare(zb.col("key").isin(keys))
    assert (read.method, read.plan.result.kept.files) == ("row_ranges", 4)
    assert read.plan.result.kept.rows <= 8 * 50
    expected, *actual = rows_of_each([plain.where(f"key IN {tuple(keys)}"), read.frame, opened.where_in("key", keys)])
    assert actual == [expected] * 2
    assert read.frame.schema == plain.schema
    assert not read.frame.inputFiles()
    assert opened.prepare("name = 'n3'").method == "plain"
    assert "executors read" in str(ZoneBloom(any_spark).explain(str(lake), "key = 401"))


def test_keys_beyond_the_session_s_limit_of_a_task_travel_once(spark, lake):
    lake_of_keys = ZoneBloom(spark).read(str(lake))
    assert lake_of_keys.where_in("key", range(0, 200_000, 2), method="row_ranges").count() == 2 * ROWS
