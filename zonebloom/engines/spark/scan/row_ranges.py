"""Reads of row ranges for Spark: by executors, with `mapInArrow` over the rows, or by the driver.

Design: docs/design/spark.md#row-ranges
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from zonebloom.bloom.selection import RowSelection
from zonebloom.engines.spark.executors import pickled, shipped, unpickled
from zonebloom.engines.spark.pushdown.translate import EVERY_ROW
from zonebloom.engines.spark.scan.layout import Layout
from zonebloom.engines.spark.scan.splits import Split, narrowing_of
from zonebloom.engines.spark.scan.types import arrow_schema
from zonebloom.engines.spark.versions import VALUE_BYTES
from zonebloom.predicates import Predicate
from zonebloom.search.result import SearchResult

Function = Callable[[Iterator[pa.RecordBatch]], Iterable[pa.RecordBatch]]
"""What `mapInArrow` takes."""


def read_rows(
    spark: SparkSession,
    layout: Layout,
    rows: RowSelection,
    asked: StructType,
    *,
    function: Function = lambda batches: batches,
    schema: Any = None,
    wanted: Predicate = EVERY_ROW,
    result: SearchResult | None = None,
) -> DataFrame:
    """The columns `asked` of `rows`, read by executors, or `function` over them with its `schema`.

    Rows that are not `wanted` may be missing. The plan names the rows to read, and the zones if a search gave `result`.
    Spark's planner gets an estimate of their bytes.

    Design: docs/design/spark-reads.md#row-range-reads, docs/design/spark-reads.md#estimates
    """
    reading, tasks = layout.tasks(rows, asked)
    sent = [pickled((reading.only(task), task)) for task in tasks]
    narrowing = pickled(narrowing_of(layout.view, wanted))  # keys may be many: once for all tasks
    each = _values_of_a_task(layout, tasks, asked)
    numbers = spark.range(0, len(sent) * each, 1, max(len(sent), 1)).where(f"id % {each} = 0")
    num_files = f"{len(np.unique(rows.fragment_ids)):,} of {len(layout.view.listing):,} files"
    zones = f"{result.kept.zones:,} of {result.total.zones:,} zones, " if result else ""
    label = f"zonebloom: {rows.num_rows:,} of {layout.view.universe.num_rows:,} rows, {zones}{num_files}"
    return numbers.mapInArrow(shipped(mapped_rows, narrowing, sent, each, function, label=label), schema or asked)


def _values_of_a_task(layout: Layout, tasks: Sequence[tuple[Split, ...]], asked: StructType) -> int:
    """Values of a range for each task, so that Spark's planner counts about the task's bytes."""
    num_bytes = sum(split.num_bytes for task in tasks for split in task)
    num_bytes = num_bytes * len(asked) // max(len(layout.view.schema), 1)
    return max(num_bytes // (VALUE_BYTES * max(len(tasks), 1)), 1)


def local_rows(
    layout: Layout, rows: RowSelection, asked: StructType, wanted: Predicate = EVERY_ROW, *, max_bytes: int
) -> pa.Table:
    """The columns `asked` of `rows`, read here as executors do; rows that are not `wanted` may be missing.

    Raises
    ------
    DataFileError
        A file changed since it was listed, or holds dates that Spark would move.
    TooWideError
        The rows have more than `max_bytes`.
    """
    reading, tasks = layout.tasks(rows, asked)
    reading = replace(reading, narrowing=narrowing_of(layout.view, wanted), max_bytes=max_bytes)
    return pa.Table.from_batches((batch for task in tasks for batch in reading.batches(task)), arrow_schema(asked))


# --- on executors -----------------------------------------------------------------------------------------------------


def mapped_rows(
    narrowing: bytes, sent: Sequence[bytes], each: int, function: Function, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """On an executor: the output of `function` over the rows of each task; empty batches are left out."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            reading, task = unpickled(sent[number // each])
            rows = replace(reading, narrowing=unpickled(narrowing)).batches(task)
            yield from (output for output in function(rows) if output.num_rows)
