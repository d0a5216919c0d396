"""Scanning: candidate row ranges → the rows that match, read, sliced and re-checked.

Only row groups with a candidate are opened. No page is read of a row group whose statistics exclude the predicate. In
other row groups the predicate's columns are read first, and other columns only if a row matched. The result equals that
of a full scan with the same predicate.

Design: docs/design/scan.md#scan
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zonebloom.bloom.hashing import selected
from zonebloom.bloom.selection import RowSelection
from zonebloom.formats import OpenedFile
from zonebloom.ground.arrow import taken, to_numpy, without_views
from zonebloom.ground.errors import DataFileError, InvalidArgumentError, PredicateError, Words, first_line
from zonebloom.predicates import Predicate
from zonebloom.predicates.comparisons import Matcher
from zonebloom.predicates.row_filter import matcher_of
from zonebloom.predicates.row_group_bounds import Bound, required
from zonebloom.search.file_values import as_type, filled
from zonebloom.search.tasks import Task, for_each
from zonebloom.search.view import View

if TYPE_CHECKING:
    from numpy.typing import NDArray

_CREDIT_BYTES = 64 << 20
"""Bytes that a scan may read before it is known that their row groups have a match; matches earn more."""
_SPARE_BYTES = 1 << 12
"""Bytes. A result is copied if its buffers exceed twice its own size plus this slack."""


def scan(
    view: View,
    predicate: Predicate | None,
    rows: RowSelection,
    columns: str | Sequence[str] | None,
    limit: int | None,
    *,
    is_plain: bool = False,
) -> pa.RecordBatchReader:
    """The rows among `rows` for which `predicate` is true, in order of path and row; without a predicate all rows.

    With `is_plain` the result has plain types instead of string and binary views.

    Raises
    ------
    ColumnNotFoundError
        One of `columns` does not exist.
    DataFileError
        While reading: a file is unreadable, or changes while it is read.
    PredicateError
        The predicate cannot be evaluated; while reading: it fails on a stored value, such as a cast of bad text.
    """
    if limit is not None and (not isinstance(limit, Integral) or limit < 0):
        raise InvalidArgumentError("limit must be 0 or more rows", got=f"{limit!r}")
    checks = _checks(view, predicate)
    schema_read = view.plain_schema if is_plain else view.schema
    schema = selected(schema_read, columns, f"the data set {view.dataset.location}")
    batches = _limited(_Scan(view, *checks, schema).batches(rows), limit)
    return pa.RecordBatchReader.from_batches(schema, map(_from_zero, batches))


def _checks(view: View, predicate: Predicate | None) -> tuple[Matcher | None, list[Bound], list[str]]:
    """What evaluates `predicate` on rows, what excludes row groups by their statistics, and the columns it reads."""
    if predicate is None:
        return None, [], []
    evaluated = view.plain_schema
    indexed = {entry.name for entry in view.snapshot.manifest.columns}
    elsewhere = {field.name for field in view.partition_fields}
    matched = matcher_of(predicate, evaluated)
    bounds = [bound for bound in required(predicate, evaluated, indexed) if bound.column not in elsewhere]
    return matched, bounds, top_level(view.schema, predicate.columns())


def read_candidates(view: View, rows: RowSelection, names: Sequence[str]) -> Iterator[tuple[Task, pa.Table]]:
    """`names` of all of `rows`, matching or not, row group by row group, in order.

    Raises
    ------
    DataFileError
        A file is unreadable, or changed since the listing.
    """
    plan = _Scan(view, None, [], list(names), pa.schema([]))

    def read(task: Task) -> tuple[Task, pa.Table]:
        with plan.opened(task) as data:
            return task, plan.columns(data, task, names)

    return for_each(read, view, rows)


def top_level(schema: pa.Schema, columns: set[str]) -> list[str]:
    """The top-level columns of `columns` in the order of `schema`; `columns` may contain leaves of structs."""
    columns_read: dict[str, None] = {}
    for name in columns:
        parts = name.split(".")
        heads = [".".join(parts[:end]) for end in range(len(parts), 0, -1)]
        held = [head for head in heads if schema.get_field_index(head) >= 0]
        structs = [head for head in held if pa.types.is_struct(schema.field(head).type)]
        columns_read |= dict.fromkeys(held[:1] + structs or [name])  # an Expression may mean a field of any of them
    return sorted(columns_read, key=schema.get_field_index)  # an Expression may mean a column by its place


def _limited(batches: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    left = limit
    for batch in batches:
        if left is None:
            yield batch
            continue
        if left:
            yield (first := batch.slice(0, min(left, batch.num_rows)))
            left -= first.num_rows
        if not left:
            return


@dataclass(slots=True)
class _Scan:
    """Reads candidate rows and re-checks them."""

    view: View
    matched: Matcher | None
    """True for each matching row of a table of the predicate's columns; None: all match."""
    bounds: list[Bound]
    predicate_columns: list[str]
    schema: pa.Schema
    credit: int = _CREDIT_BYTES
    """Bytes that may still be read before it is known that their row groups have a match."""

    def batches(self, rows: RowSelection) -> Iterator[pa.RecordBatch]:
        """The matching rows, row group by row group; some row groups are read ahead."""
        for batches in for_each(self.read, self.view, rows):
            yield from batches

    def read(self, task: Task) -> list[pa.RecordBatch]:
        """The matching rows of one row group."""
        is_at_once = self.matched is None or self.credit >= task.least_bytes
        if is_at_once:
            self.credit -= task.least_bytes
        with self.opened(task, is_at_once=is_at_once) as data:
            batches = self._matching(data, task, is_at_once=is_at_once)
        if batches:
            self.credit += 2 * task.least_bytes
        return batches

    @contextmanager
    def opened(self, task: Task, *, is_at_once: bool = True) -> Iterator[OpenedFile]:
        """The opened file of the task; an error if it changed since the listing, before or after the block."""
        likely = task.likely(is_at_once=is_at_once) if self.view.dataset.is_remote else ()
        with self.view.dataset.open(task.file.path, task.file.fingerprint, likely) as data:
            if not task.file.is_of(data):
                raise DataFileError(
                    f"data file {task.file.path} must not change during a scan",
                    got="a new version",
                    do="scan again, or refresh the index in mode full",
                )
            yield data
            data.check_unchanged()

    def _matching(self, data: OpenedFile, task: Task, *, is_at_once: bool) -> list[pa.RecordBatch]:
        for bound in self.bounds:
            bounds = data.integer_range(task.group, bound.column, bound.type)
            if bounds is not None and not bound.may_hold(*bounds):
                return []
        if self.matched is None:
            whole = self.columns(data, task, list(dict.fromkeys(self.schema.names)))
            return self._conformed(whole.num_rows, whole)
        rest = [name for name in dict.fromkeys(self.schema.names) if name not in self.predicate_columns]
        further_bytes = 0
        if is_at_once:
            names, most_bytes = (self.predicate_columns, rest), task.least_bytes + max(self.credit, 0)
            num_bytes = data.fetch(task.group, task.starts, task.stops, *names, most_bytes=most_bytes)
            further_bytes = max(num_bytes - task.least_bytes, 0)
            self.credit -= further_bytes
        checked = self.columns(data, task, self.predicate_columns)
        places = self._places(self.matched, checked, task)
        if not len(places):
            return []
        self.credit += 2 * further_bytes
        matching = _compacted(_rows_at(checked, places))
        others = [_compacted(self.columns(data, task.narrowed(places), rest))] if rest else []
        return self._conformed(len(places), matching, *others)

    def _conformed(self, num_rows: int, *tables: pa.Table) -> list[pa.RecordBatch]:
        """The result's columns, in its types; each is in one of `tables`, which have the same rows.

        A table that `take` made has no rows if it has no columns.
        """
        if not len(self.schema):
            return [pa.RecordBatch.from_struct_array(pa.nulls(num_rows, pa.struct([])))]
        columns = {name: table[name] for table in tables for name in table.column_names}
        arrays = [(columns[field.name], field.type) for field in self.schema]
        fitting = [array if array.type == wanted else array.cast(wanted) for array, wanted in arrays]
        batches: list[pa.RecordBatch] = pa.table(fitting, schema=self.schema).to_batches()
        return batches

    def _places(self, matched: Matcher, checked: pa.Table, task: Task) -> NDArray[np.int64]:
        """The places of the rows of `checked` that match."""
        try:
            matches = pc.indices_nonzero(matched(checked))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise PredicateError(
                f"the predicate must hold for every value of {task.file.path}", got=first_line(error)
            ) from error
        return to_numpy(matches, np.uint64).astype(np.int64)

    def columns(self, data: OpenedFile, task: Task, names: Sequence[str]) -> pa.Table:
        """`names` of the task's rows in the data set's types; partition columns and missing columns are filled in."""
        fields = {field.name: field for field in self.view.partition_fields}
        values = self.view.dataset.partition_values(task.file.path, list(fields.values())) if fields else {}
        if values is None:
            wanted = ", ".join(f"{field.name}: {field.type}" for field in fields.values())
            raise DataFileError(f"the partition values of {task.file.path} must fit {wanted}", do=Words.REFRESH)
        stored = [name for name in names if name not in values]
        table = data.read_rows(task.group, task.starts, task.stops, stored)
        folders = self.view.dataset.path_values(task.file.path) if len(table.column_names) < len(stored) else {}
        if not names:
            return pa.Table.from_struct_array(pa.nulls(table.num_rows, pa.struct([])))
        path = task.file.path
        target = pa.schema([pa.field(name, without_views(self.view.schema.field(name).type)) for name in names])
        pairs = zip(filled(table, target, values, folders, path), target, strict=True)
        return pa.table([as_type(column, field.type, field.name, path) for column, field in pairs], names=list(names))


def _compacted(table: pa.Table) -> pa.Table:
    """The same rows, copied if their buffers hold many other rows: a page has about 20 000 rows."""
    if table.get_total_buffer_size() <= 2 * table.nbytes + _SPARE_BYTES:
        return table
    return _rows_at(table, np.arange(table.num_rows))


def _from_zero(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows. A column that other libraries would misread as a part of a larger one is copied."""
    pairs = [(column, _is_misread(column)) for column in batch.columns]
    if not any(is_misread for _, is_misread in pairs):
        return batch
    columns = [pa.concat_arrays([column]) if is_misread else column for column, is_misread in pairs]
    return pa.record_batch(columns, schema=batch.schema)


def _is_misread(column: pa.Array) -> bool:
    """Whether Polars 2.1 fails, or arrow-rs 59 panics, if `column` is a part of a larger array."""
    if pa.types.is_fixed_size_list(column.type) and column.null_count:
        return True
    return bool(column.offset) and _has_inner_struct(column.type)


def _has_inner_struct(arrow_type: pa.DataType) -> bool:
    """Whether a struct is in a struct or a list of a fixed size, with no other list between."""
    if not (pa.types.is_struct(arrow_type) or pa.types.is_fixed_size_list(arrow_type)):
        return False
    inner = [arrow_type.field(place).type for place in range(arrow_type.num_fields)]
    return any(pa.types.is_struct(child) or _has_inner_struct(child) for child in inner)


def _rows_at(table: pa.Table, places: NDArray[np.int64]) -> pa.Table:
    return pa.table([taken(column, places) for column in table.columns], schema=table.schema)
