"""Scanning: candidate row ranges → the rows that match, read, sliced and re-checked.

Only row groups that hold a candidate are opened. Of each, the predicate's columns are read first; the other columns
only where a row matched. What comes out equals a full scan with the same predicate.

Spec: specs/pruning.md#scan
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zonebloom.coverage import View
from zonebloom.datasets import DataFile, partitions
from zonebloom.errors import ColumnNotFoundError, DataFileError, InvalidArgumentError, PredicateError
from zonebloom.files import File
from zonebloom.predicates import Predicate
from zonebloom.selection import RowSelection

__all__ = ["Scan", "scan"]

_ROW = "__zonebloom_row"


def scan(
    view: View, predicate: Predicate, rows: RowSelection, columns: Sequence[str] | None, limit: int | None
) -> pa.RecordBatchReader:
    """The rows among `rows` for which `predicate` is true, in order of path and row.

    Raises
    ------
    ColumnNotFoundError
        One of `columns` does not exist.
    DataFileError
        While reading: a file is unreadable, or changes while it is read.
    PredicateError
        The predicate cannot be evaluated; while reading: not on a value that is there, such as a cast of bad text.
    """
    if limit is not None and (not isinstance(limit, int) or limit < 0):
        raise InvalidArgumentError(f"limit must be 0 or more rows, got {limit!r}")
    if isinstance(columns, str):
        raise InvalidArgumentError(f"columns must be a list of names, got {columns!r}")
    names = list(view.schema.names) if columns is None else list(columns)
    for name in names:
        if view.schema.get_field_index(name) < 0:
            raise ColumnNotFoundError.among(name, view.schema.names, f"the data set {view.dataset.location}")
    schema = pa.schema([view.schema.field(name) for name in names])
    evaluated = pa.schema([field.with_type(_evaluable(field.type)) for field in view.schema])
    plan = Scan(view, predicate.to_expression(evaluated), _top_level(view.schema, predicate.columns()), schema)
    return pa.RecordBatchReader.from_batches(schema, _limited(plan.batches(rows), limit))


def _evaluable(column_type: pa.DataType) -> pa.DataType:
    """Pyarrow 26 has no kernels that filter or take views: they are read as plain text, and become views at the end."""
    if pa.types.is_string_view(column_type):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary_view(column_type) else column_type


def _top_level(schema: pa.Schema, columns: set[str]) -> list[str]:
    """The columns of `schema` that hold `columns`, some of which are leaves of structs."""
    found: dict[str, None] = {}
    for name in sorted(columns):
        parts = name.split(".")
        heads = [".".join(parts[:end]) for end in range(len(parts), 0, -1)]
        found[next((head for head in heads if schema.get_field_index(head) >= 0), name)] = None
    return list(found)


def _limited(batches: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    left = limit
    for batch in batches:
        if left is None:
            yield batch
            continue
        if left:
            yield batch.slice(0, left)
            left -= min(left, batch.num_rows)
        if not left:
            return


@dataclass(frozen=True, slots=True)
class Task:
    """The candidate ranges in one row group; offsets within the group."""

    file: File
    group: int
    first_row: int
    starts: tuple[int, ...]
    stops: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scan:
    """Reads candidate rows and re-checks them."""

    view: View
    expression: pc.Expression
    predicate_columns: list[str]
    schema: pa.Schema

    def batches(self, rows: RowSelection) -> Iterator[pa.RecordBatch]:
        """The matching rows, row group by row group, a few of which are read ahead."""
        workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        pool = ThreadPoolExecutor(workers, thread_name_prefix="zonebloom-scan")
        pending: deque[Future[list[pa.RecordBatch]]] = deque()
        try:
            for task in self.tasks(rows):
                pending.append(pool.submit(self.read, task))
                if len(pending) > workers:
                    yield from pending.popleft().result()
            while pending:
                yield from pending.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def tasks(self, rows: RowSelection) -> Iterator[Task]:
        """The row groups with candidates, in order of path."""
        for file in sorted(self.view.files.of_fragments(rows.fragment_ids), key=lambda one: one.path):
            ranges = rows.fragment(file.fragment_id)
            if not file.is_known:
                file = _reopened(self.view, file)  # noqa: PLW2901 - the same file with its shape of this moment
            yield from _tasks_of(file, ranges)

    def read(self, task: Task) -> list[pa.RecordBatch]:
        """The matching rows of one row group."""
        with self.view.dataset.open(task.file.path) as data:
            if data.fingerprint != task.file.fingerprint:
                message = f"data file {task.file.path} must not change during a scan, got a new version; scan again"
                raise DataFileError(message)
            found = self._matching(data, task)
            data.check_unchanged()
        return found

    def _matching(self, data: DataFile, task: Task) -> list[pa.RecordBatch]:
        checked = self._columns(data, task, self.predicate_columns)
        row_numbers = pa.array(np.arange(checked.num_rows, dtype=np.int64))
        checked = checked.append_column(_ROW, row_numbers)
        ranges = zip(task.starts, task.stops, strict=True)
        candidates = pa.concat_tables([checked.slice(start, stop - start) for start, stop in ranges])
        try:
            matching = candidates.filter(self.expression)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            message = f"the predicate must hold for every value of {task.file.path}, got: {str(error).splitlines()[0]}"
            raise PredicateError(message) from error
        if not matching.num_rows:
            return []
        rest = [name for name in self.schema.names if name not in self.predicate_columns]
        others = self._columns(data, task, rest).take(matching[_ROW]) if rest else None
        arrays = []
        for field in self.schema:
            source = others if others is not None and field.name in rest else matching
            arrays.append(
                source[field.name].cast(field.type) if source[field.name].type != field.type else source[field.name]
            )
        if not arrays:
            return [pa.RecordBatch.from_struct_array(pa.nulls(matching.num_rows, pa.struct([])))]
        batches: list[pa.RecordBatch] = pa.table(arrays, schema=self.schema).to_batches()
        return batches

    def _columns(self, data: DataFile, task: Task, names: Sequence[str]) -> pa.Table:
        """`names` of one row group with the types of the data set; partition columns and missing ones filled in."""
        num_rows = data.row_group_rows[task.group]
        fields = {field.name: field for field in self.view.partition_fields}
        stored = [name for name in names if name not in fields]
        table = data.read_row_group(task.group, stored)
        values = partitions.typed(task.file.path, list(fields.values())) if fields else {}
        if values is None:
            wanted = ", ".join(f"{field.name}: {field.type}" for field in fields.values())
            message = f"the partition folders of {task.file.path} must fit {wanted}"
            raise DataFileError(f"{message}; refresh the index")
        arrays = []
        for name in names:
            wanted = _evaluable(self.view.schema.field(name).type)
            if name in fields:
                arrays.append(pa.chunked_array([pa.repeat(values[name], num_rows)], wanted))
            elif table.schema.get_field_index(name) < 0:
                arrays.append(pa.chunked_array([pa.nulls(num_rows, wanted)], wanted))
            else:
                arrays.append(_as_type(table[name], wanted, name, task.file.path))
        if not arrays:
            return pa.Table.from_struct_array(pa.nulls(num_rows, pa.struct([])))
        return pa.table(arrays, names=list(names))


def _as_type(column: pa.ChunkedArray, wanted: pa.DataType, name: str, path: str) -> pa.ChunkedArray:
    if column.type == wanted:
        return column
    try:
        return column.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        message = f"column {name} of {path} must convert to the data set's type {wanted}, got {column.type}: {error}"
        raise DataFileError(message) from error


def _reopened(view: View, file: File) -> File:
    with view.dataset.open(file.path) as data:
        return File(
            file.path,
            file.fragment_id,
            data.num_rows,
            data.fingerprint,
            data.row_group_rows,
            data.row_group_bytes,
            is_known=False,
        )


def _tasks_of(file: File, ranges: RowSelection) -> Iterator[Task]:
    starts, stops = ranges.starts.astype(np.int64), ranges.stops.astype(np.int64)
    if not file.is_known:
        starts, stops = np.zeros(1, np.int64), np.array([file.num_rows])
    position = 0
    for group, rows in enumerate(file.row_group_rows):
        low = int(np.searchsorted(stops, position, side="right"))
        top = int(np.searchsorted(starts, position + rows, side="left"))
        if rows and low < top:
            first = np.maximum(starts[low:top] - position, 0)
            last = np.minimum(stops[low:top] - position, rows)
            yield Task(file, group, position, tuple(first.tolist()), tuple(last.tolist()))
        position += rows
