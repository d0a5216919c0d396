"""Reads of candidate row ranges by executors: what they read, which rows leave them, and when that way is chosen.

Oracle: Spark's plain read of the same files.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zonebloom as zb
from tests.newer import need
from tests.spark.rows import shown
from zonebloom.engines.spark.pushdown.translate import EVERY_ROW
from zonebloom.engines.spark.scan.layout import Layout
from zonebloom.engines.spark.scan.splits import narrowing_of, packed, splits_of
from zonebloom.engines.spark.scan.types import arrow_schema
from zonebloom.predicates import And, Equals, IsIn, IsNull, Not, Or
from zonebloom.spark import ZoneBloom

ROWS = 2000


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Four files with one key in seven in common, the last of another type of integers."""
    for number in range(4):
        keys = pa.array(np.arange(ROWS) * 4 + number, pa.int64() if number < 3 else pa.int32())
        names = pa.array([None if i % 50 == 0 else f"n{i % 7}" for i in range(ROWS)])
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"key": keys, "name": names, "x": np.arange(ROWS)}), path, row_group_size=500)
    zb.build_index(tmp_path, ["key", "name"], rows_per_zone=50)
    return tmp_path


def leaving(root: Path, wanted) -> pa.Table:
    """The rows that leave an executor which reads all rows of all files."""
    view = zb.open_index(root).view()
    layout = Layout(view)
    schema = layout.schema()
    reading = layout.reading(schema)
    reading = type(reading)(reading.dataset, reading.schema, narrowing=narrowing_of(view, wanted))
    tasks = packed(splits_of(view, view.universe, lambda path: layout.partition_values(path, schema)))
    batches = [batch for task in tasks for batch in reading.batches(task)]
    return pa.Table.from_batches(batches, arrow_schema(schema))


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
    pq.write_table(pa.table({"name": ["n1"] * 7}), lake / "4.parquet")
    rows = leaving(lake, Equals("key", 9))
    assert rows.num_rows == 1 + ROWS + 7
    assert rows["key"].to_pylist().count(9) == 1


def test_row_ranges_are_read_where_they_are_few_in_every_file(any_spark, lake, few):
    need("spark_4")
    opened = ZoneBloom(any_spark).read(str(lake))
    plain = any_spark.read.parquet(str(lake))
    keys = [4, 401, 802, 1203]
    read = opened.prepare(zb.col("key").isin(keys))
    assert (read.method, read.plan.result.kept.files) == ("row_ranges", 4)
    assert read.plan.result.kept.rows <= 8 * 50
    assert shown(read.frame) == shown(plain.where("key IN (4, 401, 802, 1203)"))
    assert read.frame.schema == plain.schema
    assert not read.frame.inputFiles()
    assert shown(opened.where_in("key", keys)) == shown(plain.where("key IN (4, 401, 802, 1203)"))
    assert opened.prepare("name = 'n3'").method == "plain"
    assert "executors read" in str(ZoneBloom(any_spark).explain(str(lake), "key = 401"))


def test_keys_beyond_the_session_s_limit_of_a_task_travel_once(spark, lake):
    keys = range(0, 200_000, 2)
    opened = ZoneBloom(spark).read(str(lake))
    assert opened.where_in("key", keys, method="row_ranges").count() == 2 * ROWS
