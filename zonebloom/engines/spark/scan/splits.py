"""Candidate row ranges as work for executors: cut by row group, packed into few tasks, read in Spark's types.

The driver plans against one listing, and sends paths, fingerprints and row ranges. A task opens its files and reads the
rows. It fails if a file changed since the listing, so it never gives rows of two versions.

A filter retains whole zones, but a rare key needs one row. So some equalities and lists are checked on their own
columns before any other column is read: those that Arrow evaluates like Spark. Other parts of the condition drop no row
here because Spark filters all rows later.

Design: docs/design/spark.md#source-tasks
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark

from zonebloom.engines.spark.pushdown.calendars import check_calendar, is_old_writer
from zonebloom.engines.spark.pushdown.names import respelled
from zonebloom.engines.spark.scan.types import arrow_schema, as_spark
from zonebloom.formats import DatasetSnapshot, ParquetDataset
from zonebloom.formats.parquet.file import DataFile, open_parquet
from zonebloom.formats.table import TableSnapshot
from zonebloom.ground.arrow import to_numpy, without_views
from zonebloom.ground.cached import cached_property
from zonebloom.ground.errors import DataFileError
from zonebloom.ground.threads import concurrently
from zonebloom.predicates import And, Predicate
from zonebloom.predicates.row_filter import plain_matcher
from zonebloom.predicates.tree import conjuncts
from zonebloom.search.file_values import filled
from zonebloom.search.tasks import rows_at, tasks_of
from zonebloom.stores.fingerprint import Fingerprint
from zonebloom.stores.stored_file import ByteRange

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from zonebloom.bloom.selection import RowSelection
    from zonebloom.search.view import View

TASK_BYTES = 64 << 20
"""Compressed bytes that one task reads: a Python task takes about 60 ms before it reads."""
OPEN_BYTES = 1 << 20
"""Bytes that opening a file counts as."""
_PART_BYTES = 8 << 20
"""Bytes of the splits that open a file together, and of columns that are read before it is clear that rows match."""
BATCH_ROWS = 1 << 16
"""Rows of a batch at most."""
_SAMPLE_ROWS = 1024
"""Rows of a row group that are decoded first for the driver, to estimate the bytes of the others."""
_DEFAULT = "EXISTS_DEFAULT"
_AHEAD = 4
"""Row groups that a task reads at once, because each read waits for an object store."""


@dataclass(frozen=True, slots=True)
class Split:
    """The candidate rows of one row group of one file."""

    path: str
    """Path relative to the data set."""
    fingerprint: Fingerprint
    """Fingerprint of the version that was listed."""
    group: int
    """Number of the row group."""
    starts: NDArray[np.int64]
    """First row of each range, within the row group."""
    stops: NDArray[np.int64]
    """End of each range."""
    values: Mapping[str, Any]
    """Values of the partition columns that the file itself does not hold."""
    num_bytes: int
    """Compressed bytes of the rows, with all columns, about."""
    weight: int
    """`num_bytes`, and the bytes that opening the file counts as."""
    likely: tuple[ByteRange, ...] = ()
    """What an object store fetches together with the footer, as `Task.likely`."""

    @property
    def num_rows(self) -> int:
        """Rows of all ranges."""
        return int((self.stops - self.starts).sum())


def splits_of(view: View, rows: RowSelection, values_of: Callable[[str], Mapping[str, Any]]) -> Iterator[Split]:
    """The row groups with `rows`, in order of path, without rows that a table deleted.

    Parameters
    ----------
    values_of
        The partition values of a path.

    Raises
    ------
    DataFileError
        A file that is not in the index cannot be read.
    """
    last: str | None = None
    values: Mapping[str, Any] = {}
    for task in tasks_of(view, rows):
        starts, stops = np.asarray(task.starts, np.int64), np.asarray(task.stops, np.int64)
        share = int((stops - starts).sum()) / task.file.row_group_rows[task.group]
        weight = num_bytes = int(task.file.row_group_bytes[task.group] * share)
        if task.file.path != last:
            last, values = task.file.path, values_of(task.file.path)
            weight += OPEN_BYTES
        file, likely = task.file, tuple(task.likely(is_at_once=True))
        yield Split(file.path, file.fingerprint, task.group, starts, stops, values, num_bytes, weight, likely)


def packed(splits: Iterable[Split], task_bytes: int = TASK_BYTES) -> list[tuple[Split, ...]]:
    """The splits in order, in tasks of about `task_bytes` each."""
    tasks: list[tuple[Split, ...]] = []
    open_task: list[Split] = []
    weight = 0
    for split in splits:
        if open_task and weight + split.weight > task_bytes:
            tasks.append(tuple(open_task))
            open_task, weight = [], 0
        open_task.append(split)
        weight += split.weight
    return [*tasks, tuple(open_task)] if open_task else tasks


@dataclass(frozen=True)
class Reading:
    """How tasks read splits: everything that the driver sends to tasks beside the splits."""

    dataset: DatasetSnapshot
    """Where the files are."""
    schema: spark.StructType
    """The columns, in the types of Spark."""
    narrowing: Narrowing | None = None
    """A predicate that is TRUE in all wanted rows; None gives every row of the splits."""
    max_bytes: int | None = None
    """Bytes of rows at most; with more, the read ends."""

    def only(self, splits: Sequence[Split]) -> Reading:
        """The reading to send with `splits`: its data set has only their files."""
        paths = sorted({split.path for split in splits})
        if isinstance(self.dataset, TableSnapshot):
            files = {path: self.dataset.files[path] for path in paths}
            return replace(self, dataset=replace(self.dataset, files=files, deletes=None, _deleted=None))
        if isinstance(self.dataset, ParquetDataset) and self.dataset.files:
            return replace(self, dataset=replace(self.dataset, files=tuple(paths)))
        return self

    def batches(self, splits: Sequence[Split]) -> Iterator[pa.RecordBatch]:
        """The rows of `splits`, in order, without empty batches.

        Raises
        ------
        DataFileError
            A file is missing, unreadable, or not the one that was listed.
        TooWideError
            The rows have more than `max_bytes`.
        """
        files = [list(of_file) for _, of_file in itertools.groupby(splits, key=lambda split: split.path)]
        parts = [part for file in files for part in packed(file, _PART_BYTES)]  # small splits open their file once
        num_bytes = 0
        for table in concurrently(self._read, parts, _AHEAD, ahead=_AHEAD):
            if table is not None:
                num_bytes += table.nbytes
                if self.max_bytes is not None and num_bytes > self.max_bytes:
                    raise TooWideError
                yield from (batch for batch in table.to_batches(max_chunksize=BATCH_ROWS) if batch.num_rows)

    def _read(self, splits: Sequence[Split]) -> pa.Table | None:
        """The rows of some splits of one file; None if no row is wanted."""
        path, listed = splits[0].path, splits[0].fingerprint
        likely = list({part: None for split in splits for part in split.likely})
        with open_parquet(self.dataset, path, listed, likely) as data:
            if data.fingerprint != listed:
                raise DataFileError(
                    f"data file {self.dataset.absolute(path)} must be the one that was listed",
                    got="a new version",
                    do="run the query again",
                )
            strange = respelled(data.schema, arrow_schema(self.schema))
            if strange is not None:
                raise DataFileError(
                    f"{self.dataset.absolute(path)} must spell its columns as the index does",
                    got=strange,
                    do="write it again, or read the data set with spark.read.parquet",
                )
            wanted = (
                split if self.narrowing is None else self.narrowing.narrowed(data, split, self.schema.names)
                for split in splits
            )
            tables = [self._columns(data, split) for split in wanted if split.num_rows]
            is_old = is_old_writer(data.metadata)
            data.check_unchanged()
        if not tables:
            return None
        table = pa.concat_tables(tables)
        if is_old:
            check_calendar(table, path)
        return table

    def _columns(self, data: Any, split: Split) -> pa.Table:
        target = arrow_schema(self.schema)
        stored = [field.name for field in target if field.name not in split.values]
        if self.max_bytes is not None and _bytes_about(data, split, stored) > self.max_bytes:
            raise TooWideError
        self._check_defaults(data, split)
        table = data.read_rows(split.group, split.starts, split.stops, stored, int96_unit="us")
        columns = filled(table, target, split.values, self.dataset.path_values(split.path), split.path)
        return as_spark(columns, target, split.path)

    def _check_defaults(self, data: DataFile, split: Split) -> None:
        """Refuse a file without a column for which Spark has a default."""
        for field in self.schema:
            has_none = field.name not in data.schema.names and field.name not in split.values
            if has_none and _DEFAULT in field.metadata:
                value = field.metadata[_DEFAULT]
                raise DataFileError(
                    f"data file {split.path} must have column {field.name}, for which Spark would give {value}",
                    got="none",
                    do="write the file again, or leave the column out by columns=",
                )


class TooWideError(Exception):
    """The rows have more bytes than the reader holds; never leaves this package."""


def _bytes_about(data: DataFile, split: Split, columns: Sequence[str]) -> int:
    """An estimate of the bytes of the rows of `split`, from the first rows of their row group.

    Footers do not have the bytes of texts that are stored in dictionaries.
    """
    if split.num_rows <= _SAMPLE_ROWS:
        return 0
    first = sum(data.row_group_rows[: split.group])
    num_rows = min(_SAMPLE_ROWS, data.row_group_rows[split.group])
    num_bytes = sum(
        _decoded_bytes(column)
        for batch in data.column_batches(columns, first, first + num_rows)
        for column in batch.columns
    )
    return num_bytes * split.num_rows // num_rows


def _decoded_bytes(column: pa.Array) -> int:
    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    return int(pc.sum(pc.binary_length(column.dictionary).take(column.indices)).as_py() or 0)


# --- late materialization ---------------------------------------------------------------------------------------------


def narrowing_of(view: View, predicate: Predicate) -> Narrowing | None:
    """The parts of `predicate`, an AND, that plain kernels evaluate on stored columns; None if there are none.

    `predicate`, as Arrow evaluates it, must be TRUE in every wanted row.
    """
    elsewhere = {field.name for field in view.partition_fields}
    stored = [field for field in view.schema if field.name not in elsewhere]
    schema = pa.schema([field.with_type(without_views(field.type)) for field in stored])
    plain = [part for part in conjuncts(predicate) if plain_matcher(part, schema) is not None]
    names = sorted({name for part in plain for name in part.columns()})
    return Narrowing(And(plain), pa.schema([schema.field(name) for name in names])) if plain else None


@dataclass(frozen=True)
class Narrowing:
    """A predicate that is TRUE in all wanted rows, and its columns in the types of the data set."""

    predicate: And
    schema: pa.Schema

    @cached_property
    def _matched(self) -> Any:
        return plain_matcher(self.predicate, self.schema)

    def narrowed(self, data: DataFile, split: Split, columns: Sequence[str]) -> Split:
        """`split` without rows that do not match; unchanged if the file has no such column, or another type.

        An object store is asked for the other `columns` of the rows too, if they are few bytes.
        """
        names = self.schema.names
        if any(name not in data.schema.names or name in data.int96_columns or name in split.values for name in names):
            return split
        data.fetch(split.group, split.starts, split.stops, names, columns, most_bytes=_PART_BYTES)
        table = data.read_rows(split.group, split.starts, split.stops, names).select(names)
        if [field.type for field in table.schema] != [field.type for field in self.schema]:
            return split
        places = to_numpy(pc.indices_nonzero(self._matched(table)), np.uint64).astype(np.int64)
        starts, stops = rows_at(split.starts, split.stops, places)
        return replace(split, starts=starts, stops=stops)
