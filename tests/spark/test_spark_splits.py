"""Row ranges as they are planned and as tasks read them; most of it without a session."""

from __future__ import annotations

import io
import os
import pickle
from dataclasses import replace
from pathlib import Path

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zonebloom as zb
from tests.depth import at_depth
from tests.spark.odd_lake import ROWS_PER_FILE, ROWS_PER_ZONE, conditions, plan_of, rows_of
from tests.spark.rows import indexed, plain_read, write
from zonebloom.engines.spark.scan.layout import Layout
from zonebloom.engines.spark.scan.splits import Split, narrowing_of, packed
from zonebloom.engines.spark.versions import arrow_of
from zonebloom.errors import DataFileError
from zonebloom.formats.parquet import footer as footers
from zonebloom.formats.parquet.file import DataFile
from zonebloom.stores.fingerprint import Fingerprint


def test_no_condition_loses_a_row_and_many_prune(spark, odd_lake):
    """Oracle: Spark's plain read."""
    texts = conditions(rows_of(plan_of(odd_lake)), at_depth(150), seed=1)
    texts += [f"small IN ({text}, 1.5)" for text in ("FLOAT('NaN')", "0", "FLOAT('-0.0')")]
    flags = (f"({text}) <=> TRUE AS p{number}" for number, text in enumerate(texts))
    answers = arrow_of(plain_read(spark, odd_lake).selectExpr("n", *flags))
    num_pruned = 0
    for number, text in enumerate(texts):
        plan = plan_of(odd_lake, where=text, columns=["n"])
        wanted = answers.filter(answers[f"p{number}"])["n"].to_pylist()
        assert set(wanted) <= set(rows_of(plan)["n"].to_pylist()), text
        num_pruned += plan.num_rows < plan.num_total_rows
    assert num_pruned > len(texts) / 4


def test_a_column_that_a_file_lacks_has_the_value_of_its_folder(tmp_path):
    rows = {"id": [1], "day": pa.array([1], pa.int32())}
    indexed(tmp_path, {"day=1/part": rows, "day=2/part": {"id": [2]}}, ["id", "day"])
    assert sorted(map(tuple, (row.values() for row in rows_of(plan_of(tmp_path)).to_pylist()))) == [(1, 1), (2, 2)]
    assert 2 in rows_of(plan_of(tmp_path, where="day = 2"))["id"].to_pylist()


# --- pruning ----------------------------------------------------------------------------------------------------------


def test_only_candidate_row_ranges_are_read(odd_lake):
    whole = plan_of(odd_lake)
    assert (whole.num_files, whole.num_rows) == (8, 8 * ROWS_PER_FILE)
    key = rows_of(whole)["id"][3].as_py()
    plan = plan_of(odd_lake, where=f"id = {key}")
    assert plan.num_rows == ROWS_PER_FILE + ROWS_PER_ZONE  # the file that is not indexed, and one zone
    assert plan.num_files == 2
    assert plan_of(odd_lake, where=f"id = {key} AND day = 11").num_rows <= ROWS_PER_ZONE


@pytest.mark.parametrize(
    ("where", "num_files"),
    [
        ("day = 9", 4), ("day IN (9, 10)", 6), ("day > 9 AND day <= 10", 2), ("city = 'a/b'", 3), ("city = '100%'", 1),
        ("city IS NULL", 1), ("city IS NOT NULL", 7), ("city <=> NULL", 1), ("city <> 'a/b'", 4),
        ("day NOT IN (9, 10)", 2), ("`city` >= 'x' AND city < 'x z'", 2), ("day = 9 OR day = 10", 6),
        ("day > NULL", 8), ("day = 9 AND rand() > 2", 4), ("day = 1.5", 8), ("day = NULL", 0),
    ],
)  # fmt: skip
def test_partitions_prune(odd_lake, where, num_files):
    assert plan_of(odd_lake, where=where).num_files == num_files


def test_dates_of_partitions_prune(tmp_path):
    indexed(tmp_path, {f"day=2024-0{month}-01/a": {"x": [1]} for month in (1, 2, 3)}, "x")
    for where, num_files in (("day = '2024-02-01'", 1), ("day >= DATE '2024-02-01'", 2), ("day < '2024-2-1'", 3)):
        assert plan_of(tmp_path, where=where).num_files == num_files


def test_pieces_are_packed_in_order_by_weight():
    none = np.zeros(0, np.int64)
    weights = [5, 5, 20, 1, 1, 30, 2]
    splits = [
        Split(str(place), Fingerprint(0, 0), 0, none, none, {}, weight, weight) for place, weight in enumerate(weights)
    ]
    tasks = packed(splits, task_bytes=10)
    assert [[split.weight for split in task] for task in tasks] == [[5, 5], [20], [1, 1], [30], [2]]
    assert packed([], task_bytes=10) == []


# --- object stores ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows_per_group", "num_groups"), [(40, 2), (400, 1)])
def test_candidate_rows_are_one_request_of_their_file_and_then_one_of_each_row_group(s3, rows_per_group, num_groups):
    """The first read has no footer yet; the second one has."""
    table, sink = pa.table({"x": np.arange(400), "s": [f"s{i}" for i in range(400)]}), io.BytesIO()
    pq.write_table(table, sink, row_group_size=rows_per_group)
    s3.put("lake/one.parquet", sink.getvalue())
    index = zb.build_index(s3.url("lake"), "x", rows_per_zone=10, kind="locator", storage_options=s3.options)
    layout = Layout(index.view())
    reading, tasks = layout.tasks(index.search("x IN (105, 205)").row_ranges, layout.schema())
    reading = replace(reading, narrowing=narrowing_of(layout.view, zb.col("x").isin([105, 205])))
    footers._KEPT.clear()
    for num_requests in (1, num_groups):
        with s3.server.recorded() as requests:
            rows = [row for task in tasks for batch in reading.batches(task) for row in batch.to_pylist()]
        assert rows == [{"x": 105, "s": "s105"}, {"x": 205, "s": "s205"}]
        assert [request.method for request in requests] == ["GET"] * num_requests


# --- files that change ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda file: write(file, {"x": [105, 105], "s": ["a", "b"]}), "must be the one that was listed"),
        (Path.unlink, "must exist"),
    ],
)
def test_a_file_that_changes_after_planning_is_an_error(numbered_lake, change, message):
    plan = plan_of(numbered_lake, where="x = 105")
    change(numbered_lake / "1.parquet")
    with pytest.raises(DataFileError, match=message):
        rows_of(plan)


def test_a_file_that_is_overwritten_in_place_while_it_is_read_gives_no_rows(numbered_lake, monkeypatch):
    plan = plan_of(numbered_lake, where="x = 105")
    read_rows = DataFile.read_rows

    def overwritten(data, *arguments, **options):
        rows = read_rows(data, *arguments, **options)
        os.utime(numbered_lake / "1.parquet", ns=(1, 1))
        return rows

    monkeypatch.setattr(DataFile, "read_rows", overwritten)
    with pytest.raises(DataFileError, match="must not change while it is read"):
        rows_of(plan)


def test_a_task_carries_only_the_files_that_it_reads_of_a_table(tmp_path):
    lake = tmp_path / "table"
    for number in range(40):
        rows = pa.table({"x": range(100 * number, 100 * number + 100), "day": [f"2024-01-{number % 9 + 1:02}"] * 100})
        deltalake.write_deltalake(lake, rows, mode="append", partition_by=["day"])
    zb.build_index(lake, ["x"], rows_per_zone=10)
    deltalake.DeltaTable(lake).delete("x = 303")
    plan = plan_of(lake, where="x IN (303, 505) AND day <= '2024-01-06'")
    assert sorted(rows_of(plan)["x"].to_pylist()) == [*(x for x in range(300, 400) if x != 303), *range(500, 510)]
    (task,) = plan.tasks
    sent = pickle.dumps(plan.reading.only(task))
    assert len(sent) < len(pickle.dumps(plan.reading)) / 4
    assert len(pickle.dumps(task)) < 400 * len(task)
    assert sum(batch.num_rows for batch in pickle.loads(sent).batches(task)) == 109
