"""Candidate row ranges for Spark: the result of a search, and the input of a user's function.

`map_candidates` takes the row ranges of a `search`, or a condition. It runs `mapInArrow` over the candidate rows: no
task opens a file that cannot match.

Design: docs/design/spark.md#row-ranges
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from zonebloom.bloom.selection import RowSelection
from zonebloom.engines.spark.executors import pickled, shipped, unpickled
from zonebloom.engines.spark.pushdown.names import Names
from zonebloom.engines.spark.pushdown.translate import EVERY_ROW
from zonebloom.engines.spark.scan.layout import Layout
from zonebloom.engines.spark.scan.splits import Split, narrowing_of
from zonebloom.engines.spark.scan.types import arrow_schema
from zonebloom.engines.spark.versions import VALUE_BYTES, arrow_of
from zonebloom.ground.errors import InvalidArgumentError, StaleIndexError
from zonebloom.predicates import Predicate
from zonebloom.search.result import SearchResult

if TYPE_CHECKING:
    from zonebloom.engines.spark.scan.catalog_table import CatalogTable
    from zonebloom.search.view import View

Function = Callable[[Iterator[pa.RecordBatch]], Iterable[pa.RecordBatch]]
"""What `mapInArrow` takes."""

_SCHEMA = pa.schema([("path", pa.string()), *((name, pa.int64()) for name in ("fragment_id", "start", "stop"))])


def map_candidates(
    spark: SparkSession,
    layout: Layout,
    table: CatalogTable | None,
    wanted: SearchResult | DataFrame | pa.Table,
    function: Function,
    *,
    schema: Any,
    columns: Sequence[str] | None,
) -> DataFrame:
    """See `ZoneBloom.map_candidates`.

    Parameters
    ----------
    wanted
        The result of a search, or row ranges of a caller.
    """
    result = wanted if isinstance(wanted, SearchResult) else None
    table_of_ranges = arrow_of(wanted) if isinstance(wanted, DataFrame) else wanted
    rows = _given(layout.view, table_of_ranges) if result is None else result.row_ranges
    paths = [layout.view.paths[fragment_id] for fragment_id in np.unique(rows.fragment_ids).tolist()]
    problem = None if table is None else table.misplaced(layout.view.dataset, layout.view.listing, paths)
    if problem is not None:
        raise InvalidArgumentError(
            "partitions must lie in the folders of their names", got=problem, do="pass the path of the files"
        )
    asked = layout.schema(columns)
    shadowed = Names(layout.view).shadowed if layout.is_hive else frozenset()
    if both := next((name for name in asked.names if name.lower() in shadowed), None):
        raise InvalidArgumentError(
            "a column must be in files or in folders, as Spark takes the values of folders",
            got=f"{both} in both",
            do="use read(path).where(condition), or leave the column out by columns=",
        )
    return read_rows(spark, layout, rows, asked, function=function, schema=schema, result=result)


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


def _given(view: View, table: pa.Table) -> RowSelection:
    """The caller's row ranges, which must be those of the present files."""
    problem = next((f"none named {name}" for name in _SCHEMA.names if name not in table.column_names), None)
    if problem is None:
        try:
            table = table.select(_SCHEMA.names).cast(_SCHEMA)
            problem = next((f"a null as {name}" for name in _SCHEMA.names if table[name].null_count), None)
        except pa.ArrowException as error:
            problem = str(error)
    if problem is not None:
        raise InvalidArgumentError(
            f"row ranges must have the columns {', '.join(_SCHEMA.names)}, without nulls",
            got=problem,
            do="take them from search().to_arrow()",
        )
    ids, starts, stops = (table[name].to_numpy() for name in _SCHEMA.names[1:])
    rows = zip(table["path"].to_pylist(), ids.tolist(), starts.tolist(), stops.tolist(), strict=True)
    for path, fragment_id, start, stop in rows:
        file = view.files.get(path)
        num_rows = file.num_rows if file is not None and file.fragment_id == fragment_id else -1
        if stop > num_rows or (view.files.is_unknown(path) and (start, stop) != (0, num_rows)):
            raise StaleIndexError(
                "row ranges must be those of files that did not change",
                got=f"some of {path}, which changed",
                do="call search() again",
            )
    return RowSelection.from_arrays(ids, starts, stops)


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
