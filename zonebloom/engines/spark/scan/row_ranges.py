"""Candidate row ranges for Spark: as a DataFrame, and as input of a user's function.

`candidates` is a search. Its row ranges can be counted, joined or filtered like any frame. `map_candidates` takes such
a frame, or a condition, and runs `mapInArrow` over the rows of the candidates: no task opens a file that cannot match.

Spec: specs/spark.md#row-ranges
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from zonebloom.engines.spark.executors import pickled, shipped, unpickled
from zonebloom.engines.spark.pushdown.translate import EVERY_ROW, understand
from zonebloom.engines.spark.pushdown.types import Binder
from zonebloom.engines.spark.scan.schema import Layout
from zonebloom.engines.spark.scan.splits import Split, narrowing_of
from zonebloom.engines.spark.scan.types import arrow_schema
from zonebloom.errors import InvalidArgumentError, StaleIndexError
from zonebloom.predicates import Predicate
from zonebloom.search.selection import RowSelection

if TYPE_CHECKING:
    from zonebloom.engines.spark.catalog import Catalog, Place
    from zonebloom.search.result import SearchResult
    from zonebloom.search.view import View

Function = Callable[[Iterator[pa.RecordBatch]], Iterable[pa.RecordBatch]]
"""What `mapInArrow` takes."""

_SCHEMA = "path string, fragment_id long, start long, stop long"
_VALUE_BYTES = 8
"""Bytes that Spark's planner counts for a value of a range, and for the output of `mapInArrow` over it."""
_NAMES = ("path", "fragment_id", "start", "stop")


def candidates(catalog: Catalog, path: Any, condition: str | Column | Predicate, index: Place = None) -> DataFrame:
    """One row for each row range that may match: path (relative to the data set), fragment_id, start, stop.

    The search runs now, on the driver. The ranges are those of the present files.

    Spec: specs/spark.md#row-ranges
    """
    layout = Layout(catalog.view(path, index))
    rows = _searched(catalog.spark, layout, condition).row_ranges
    paths = [layout.view.paths[one] for one in rows.fragment_ids.tolist()]
    numbers = [pa.array(one.astype(np.int64)) for one in (rows.fragment_ids, rows.starts, rows.stops)]
    table = pa.table([pa.array(paths, pa.string()), *numbers], names=list(_NAMES))
    return catalog.spark.createDataFrame(table, _SCHEMA)


def map_candidates(
    catalog: Catalog,
    path: Any,
    wanted: str | Column | Predicate | DataFrame | pa.Table,
    function: Function,
    schema: Any,
    *,
    index: Place = None,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """`function` over the rows of candidate row ranges, as `mapInArrow` runs it over a whole frame.

    A task gives the function all rows of its ranges, in order of path and row: those that match, and others.

    Parameters
    ----------
    wanted
        A condition; or all or some of the row ranges of `candidates` or `SearchResult.to_arrow`.
    function
        Takes an iterator of record batches in Spark's types, and gives one in `schema`; called once a task.
    schema
        Schema of the function's output, as for `mapInArrow`.
    columns
        Columns that the function needs; all by default.

    Raises
    ------
    StaleIndexError
        A file of the row ranges changed.
    InvalidArgumentError
        `wanted` has no row ranges.

    Spec: specs/spark.md#row-ranges
    """
    layout = Layout(catalog.view(path, index))
    if isinstance(wanted, DataFrame):
        wanted = wanted.toArrow()
    found = None if isinstance(wanted, pa.Table) else _searched(catalog.spark, layout, wanted)
    rows = _given(layout.view, wanted) if found is None else found.row_ranges
    asked = layout.schema(columns)
    return read_rows(catalog.spark, layout, rows, asked, function=function, schema=schema, found=found)


def read_rows(
    spark: SparkSession,
    layout: Layout,
    rows: RowSelection,
    asked: StructType,
    *,
    function: Function = lambda batches: batches,
    schema: Any = None,
    wanted: Predicate = EVERY_ROW,
    found: SearchResult | None = None,
) -> DataFrame:
    """The columns `asked` of `rows`, read by executors, or `function` over them with its `schema`.

    Rows that are not `wanted` may be missing. The plan names the rows that are read, and the zones if a search `found`
    them. Spark's planner gets about their number of bytes.

    Spec: specs/spark.md#row-range-reads, specs/spark.md#estimates
    """
    reading, tasks = layout.tasks(rows, asked)
    sent = [pickled((reading.only(task), task)) for task in tasks]
    narrowing = pickled(narrowing_of(layout.view, wanted))  # keys may be many: once for all tasks
    each = _values_of_a_task(layout, tasks, asked)
    numbers = spark.range(0, len(sent) * each, 1, max(len(sent), 1)).where(f"id % {each} = 0")
    num_files = f"{len(np.unique(rows.fragment_ids)):,} of {len(layout.view.listing):,} files"
    zones = f"{found.kept.zones:,} of {found.total.zones:,} zones, " if found else ""
    label = f"zonebloom: {rows.num_rows:,} of {layout.view.universe.num_rows:,} rows, {zones}{num_files}"
    return numbers.mapInArrow(shipped(mapped_rows, narrowing, sent, each, function, label=label), schema or asked)


def _values_of_a_task(layout: Layout, tasks: Sequence[tuple[Split, ...]], asked: StructType) -> int:
    """Values of a range for each task, so that Spark's planner counts about the task's bytes."""
    num_bytes = sum(split.num_bytes for task in tasks for split in task)
    num_bytes = num_bytes * len(asked) // max(len(layout.view.schema), 1)
    return max(num_bytes // (_VALUE_BYTES * max(len(tasks), 1)), 1)


def local_rows(layout: Layout, rows: RowSelection, asked: StructType, wanted: Predicate = EVERY_ROW) -> pa.Table:
    """The columns `asked` of `rows`, read here as executors do; rows that are not `wanted` may be missing.

    Raises
    ------
    DataFileError
        A file changed since it was listed, or holds dates that Spark would move.
    """
    reading, tasks = layout.tasks(rows, asked)
    reading = replace(reading, narrowing=narrowing_of(layout.view, wanted))
    return pa.Table.from_batches((batch for task in tasks for batch in reading.batches(task)), arrow_schema(asked))


def _given(view: View, table: pa.Table) -> RowSelection:
    """The caller's row ranges, which must be those of the present files."""
    missing = [name for name in _NAMES if name not in table.column_names]
    if missing:
        message = f"row ranges must have the columns {', '.join(_NAMES)}, got none named {missing[0]}"
        raise InvalidArgumentError(f"{message}; take them from candidates()")
    ids, starts, stops = (table[name].to_numpy().astype(np.int64) for name in _NAMES[1:])
    sizes = np.zeros(len(ids), np.int64)
    is_whole_only = np.zeros(len(ids), np.bool_)
    paths = table["path"].to_pylist()
    for place, (path, fragment_id) in enumerate(zip(paths, ids.tolist(), strict=True)):
        file = view.files.get(path)
        if file is None or file.fragment_id != fragment_id:
            raise _stale(path)
        sizes[place], is_whole_only[place] = file.num_rows, not file.is_known
    is_part = (starts > 0) | (stops < sizes)
    for wrong in np.flatnonzero((stops > sizes) | (is_whole_only & is_part)).tolist():
        raise _stale(paths[wrong])
    return RowSelection.from_arrays(ids, starts, stops)


def _stale(path: str) -> StaleIndexError:
    message = f"row ranges must be those of files that did not change, got some of {path}, which changed"
    return StaleIndexError(f"{message}; call candidates() again")


# --- searching --------------------------------------------------------------------------------------------------------


def _searched(spark: SparkSession, layout: Layout, condition: Any) -> SearchResult:
    binder = Binder(layout.readable, layout.view)
    template = spark.createDataFrame([], layout.readable)
    return layout.view.search(understand(condition, binder, template).predicate)


# --- on executors -----------------------------------------------------------------------------------------------------


def rows_of(narrowing: bytes, sent: bytes) -> Iterator[pa.RecordBatch]:
    """On an executor: the rows of a task that `read_rows` packed."""
    reading, task = unpickled(sent)
    found: Iterator[pa.RecordBatch] = replace(reading, narrowing=unpickled(narrowing)).batches(task)
    return found


def mapped_rows(
    narrowing: bytes, sent: Sequence[bytes], each: int, function: Function, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """On an executor: the output of `function` over the rows of each task; empty batches are left out."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from (made for made in function(rows_of(narrowing, sent[number // each])) if made.num_rows)
