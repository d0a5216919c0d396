"""Row ranges as tasks read them, against Spark 4.3's own Parquet reader over the same lake."""

from __future__ import annotations

import datetime as dt
import io
import os
import pickle
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zonebloom as zb
from tests.depth import at_depth
from tests.spark.odd_lake import INDEXED, ROWS_PER_FILE, ROWS_PER_ZONE, UTC, native, plan_of, rows_of
from zonebloom.engines.spark.scan.layout import Layout
from zonebloom.engines.spark.scan.splits import Split, narrowing_of, packed
from zonebloom.engines.spark.versions import arrow_of
from zonebloom.errors import DataFileError
from zonebloom.formats.parquet import footer as footers
from zonebloom.stores.fingerprint import Fingerprint

# --- rows -------------------------------------------------------------------------------------------------------------


def sql(value: Any) -> str:
    """A literal that Spark reads as `value`."""
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return "'{}'".format(value.replace("\\", "\\\\").replace("'", "\\'"))
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, float):
        return f"DOUBLE('{value}')"
    if isinstance(value, dt.datetime):
        kind = "TIMESTAMP_NTZ" if value.tzinfo is None else "TIMESTAMP"
        offset = "" if value.tzinfo is None else "+00:00"
        return f"{kind} '{value.replace(tzinfo=None).isoformat(' ')}{offset}'"
    return f"DATE '{value}'" if isinstance(value, dt.date) else str(value)


def conditions(rows: pa.Table, count: int, seed: int) -> Iterator[str]:
    """Random SQL over the columns of the odd lake, with literals that are there and others."""
    rng = random.Random(seed)
    names = [*INDEXED, "day", "city", "n"]

    def leaf() -> str:
        name = rng.choice(names)
        column = f"`{name.replace('`', '``')}`"
        values = [value.astimezone(UTC) if isinstance(value, dt.datetime) and value.tzinfo else value
                  for value in (rows[name][rng.randrange(len(rows))].as_py() for _ in range(3))]  # fmt: skip
        if rng.random() < 0.1:
            values[0] = None
        kind = rng.choice(["=", "=", "=", "<=>", "IN", "IN", "NOT IN", "<>", "IS NULL", "IS NOT NULL", ">=", "<"])
        if kind.startswith("IS"):
            return f"{column} {kind}"
        if kind.endswith("IN"):
            return f"{column} {kind} ({', '.join(map(sql, values))})"
        return f"{column} {kind} {sql(values[0])}" if rng.random() < 0.9 else f"{sql(values[0])} {kind} {column}"

    for _ in range(count):
        shape = rng.randrange(6)
        first, two, three = leaf(), leaf(), leaf()
        yield (
            first,
            first,
            f"{first} AND {two}",
            f"{first} OR {two}",
            f"NOT ({first}) AND ({two} OR {three})",
            f"({first} OR {two}) AND {three}",
        )[shape]


def test_no_condition_loses_a_row_and_many_prune(spark, odd_lake):
    everything = rows_of(plan_of(odd_lake))
    texts = [*conditions(everything, at_depth(150), seed=1)]
    texts += [f"amount = {text}" for text in ("DOUBLE('NaN')", "0", "0.0", "DOUBLE('-0.0')", "DOUBLE('inf')")]
    texts += [f"small IN ({text}, 1.5)" for text in ("FLOAT('NaN')", "0", "FLOAT('-0.0')")]
    texts += [
        "day = '9'",
        "day >= 10",
        "city < 'b'",
        "city = 'a/b' AND tiny = 7",
        "tiny = 300",
        "huge = 18446744073709551615",
    ]
    frame = native(spark, odd_lake).selectExpr("n", *(f"({text}) <=> TRUE AS p{i}" for i, text in enumerate(texts)))
    answers = arrow_of(frame)
    num_pruned = 0
    for number, text in enumerate(texts):
        plan = plan_of(odd_lake, where=text, columns=["n"])
        wanted = answers.filter(answers[f"p{number}"])["n"].to_pylist()
        assert set(wanted) <= set(rows_of(plan)["n"].to_pylist()), text
        num_pruned += plan.num_rows < plan.num_total_rows
    assert num_pruned > len(texts) / 4


def test_a_column_that_a_file_lacks_has_the_value_of_its_folder(tmp_path):
    for day, held in ((1, {"id": [1], "day": pa.array([1], pa.int32())}), (2, {"id": [2]})):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(pa.table(held), tmp_path / f"day={day}" / "part.parquet")
    zb.build_index(tmp_path, ["id", "day"])
    assert sorted(map(tuple, (row.values() for row in rows_of(plan_of(tmp_path)).to_pylist()))) == [(1, 1), (2, 2)]
    assert 2 in rows_of(plan_of(tmp_path, where="day = 2"))["id"].to_pylist()


def test_all_columns_come_back_as_spark_reads_them(spark, odd_lake):
    read = rows_of(plan_of(odd_lake)).sort_by("n")
    names = [f"`{name.replace('`', '``')}`" for name in read.column_names]
    wanted = arrow_of(native(spark, odd_lake).selectExpr(*names).orderBy("n"))
    assert read.num_rows == 8 * ROWS_PER_FILE
    for name in read.column_names:
        if name not in ("amount", "small"):
            assert read[name].equals(wanted[name]), name
    for name in ("amount", "small"):
        assert list(map(repr, read[name].to_pylist())) == list(map(repr, wanted[name].to_pylist()))


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
    for day in ("2024-01-01", "2024-02-01", "2024-03-01"):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(pa.table({"x": [1]}), tmp_path / f"day={day}" / "a.parquet")
    zb.build_index(tmp_path, ["x"])
    for where, num_files in (("day = '2024-02-01'", 1), ("day >= DATE '2024-02-01'", 2), ("day < '2024-2-1'", 3)):
        assert plan_of(tmp_path, where=where).num_files == num_files


def test_tasks_are_few_and_small(odd_lake):
    plan = plan_of(odd_lake, where="name = 'u7'")
    assert len(plan.tasks) == 1
    sent = pickle.dumps((plan.reading, plan.tasks[0]))
    assert len(sent) < 5000 + 400 * len(plan.splits)


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


@pytest.fixture
def small_lake(tmp_path) -> Path:
    for number in range(3):
        rows = pa.table({"x": np.arange(100) + 100 * number, "s": [f"s{number}-{i}" for i in range(100)]})
        pq.write_table(rows, tmp_path / f"{number}.parquet", row_group_size=40)
    zb.build_index(tmp_path, ["x", "s"], rows_per_zone=10)
    return tmp_path


def test_a_file_that_changes_after_planning_is_an_error(small_lake):
    plan = plan_of(small_lake, where="x = 105")
    pq.write_table(pa.table({"x": [105, 105], "s": ["a", "b"]}), small_lake / "1.parquet")
    with pytest.raises(DataFileError, match="must be the one that was listed"):
        rows_of(plan)


def test_a_file_that_vanishes_is_an_error(small_lake):
    plan = plan_of(small_lake)
    (small_lake / "1.parquet").unlink()
    with pytest.raises(DataFileError, match="must exist"):
        rows_of(plan)


def test_a_file_that_is_overwritten_in_place_while_it_is_read_gives_no_rows(small_lake, monkeypatch):
    from zonebloom.formats.parquet.file import DataFile

    plan = plan_of(small_lake, where="x = 105")
    read_rows = DataFile.read_rows

    def overwritten(data, *arguments, **options):
        rows = read_rows(data, *arguments, **options)
        os.utime(small_lake / "1.parquet", ns=(1, 1))
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
    whole, sent = len(pickle.dumps(plan.reading)), len(pickle.dumps(plan.reading.only(plan.tasks[0])))
    assert sent < whole / 4
    reading = pickle.loads(pickle.dumps(plan.reading.only(plan.tasks[0])))
    assert sum(batch.num_rows for batch in reading.batches(plan.tasks[0])) == 109
