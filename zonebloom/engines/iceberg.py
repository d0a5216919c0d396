"""Iceberg: delete and upsert by keys, for which only the data files that hold a key are read and rewritten.

pyiceberg writes the files and commits them as one snapshot. It refuses the commit if another writer added or removed
data files meanwhile, unless the table allows that (`write.delete.isolation-level`).

Spec: specs/engines.md#iceberg
"""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from zonebloom.errors import ConcurrentCommitError, InvalidArgumentError, first_line
from zonebloom.formats.iceberg import relative_path
from zonebloom.index import Index, open_index
from zonebloom.predicates import IsIn
from zonebloom.search.exists import comparable, values_array

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Table

__all__ = ["Rewrite", "delete", "upsert"]


_LARGE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
"""Types that pyiceberg takes for the same; it reads a file as the types that it was written with."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """What a delete or an upsert did."""

    num_files: int
    """Data files that held a key, and were rewritten or removed."""
    num_files_read: int
    """Data files that were read: those that the index could not exclude."""
    num_rows_removed: int
    """Rows that had one of the keys."""
    num_rows_added: int
    """Rows of the upsert."""


def delete(table: Table, column: str, keys: Any, *, index: str | os.PathLike[str] | Index | None = None) -> Rewrite:
    """Remove each row of `table` whose `column` equals one of `keys`; every other row stays.

    Parameters
    ----------
    table
        As it has been loaded; it stands for the new snapshot afterwards.
    keys
        An array or a list of values; null and NaN equal nothing.
    index
        The index of the column, or its place; by default it is found beside the table. Files that it does not know are
        read. A refresh makes it know the rewritten files.

    Raises
    ------
    ConcurrentCommitError
        Another writer changed the table meanwhile; nothing was changed.
    ColumnNotFoundError
        The column is not indexed.

    Spec: specs/engines.md#iceberg
    """
    return _rewrite(table, column, values_array(keys), None, index)


def upsert(table: Table, rows: pa.Table, key: str, *, index: str | os.PathLike[str] | Index | None = None) -> Rewrite:
    """Replace each row of `table` that has the key of one of `rows`, and add those of `rows` whose key is new.

    Parameters
    ----------
    table, index
        As for `delete`.
    rows
        The columns of the table; each key occurs once, in the type of the table. A null key and NaN equal none in
        the table.
    key
        A column of the table.

    Raises
    ------
    ConcurrentCommitError
        Another writer changed the table meanwhile; nothing was changed.
    InvalidArgumentError
        `rows` has other columns than the table, values that do not convert to them, or a key twice.

    Spec: specs/engines.md#iceberg
    """
    if not isinstance(rows, pa.Table):
        raise InvalidArgumentError(f"rows must be a pyarrow Table, got {type(rows).__name__}")
    if key not in rows.column_names:
        raise InvalidArgumentError(f"rows must have the column {key}, got {', '.join(rows.column_names) or 'none'}")
    declared = _as_declared(rows, table)  # keys are compared as the table has them: "1" and "01" are one number
    keys = values_array(declared[key]).drop_null()
    if (num_distinct := len(comparable(keys).unique())) < len(keys):
        raise InvalidArgumentError(f"each {key} of rows must occur once, got {len(keys):,} rows of {num_distinct:,}")
    return _rewrite(table, key, keys, declared, index)


def _as_declared(rows: pa.Table, table: Table) -> pa.Table:
    """`rows` in the schema of the table."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow  # noqa: PLC0415 - an extra; the caller has it

    schema = schema_to_pyarrow(table.schema(), include_field_ids=False)
    if sorted(rows.column_names) != sorted(schema.names):
        message = f"rows must have the columns {', '.join(schema.names)} of the table"
        raise InvalidArgumentError(f"{message}, got {', '.join(rows.column_names)}")
    own = {name: rows.schema.field(name).type for name in schema.names}
    schema = pa.schema(
        [one.with_type(own[one.name]) if _LARGE.get(own[one.name]) == one.type else one for one in schema]
    )
    try:
        return rows.select(schema.names).cast(schema)
    except (pa.ArrowException, ValueError) as error:
        raise InvalidArgumentError(f"rows must convert to the types of the table, got: {first_line(error)}") from error


def _rewrite(
    table: Table, column: str, keys: pa.Array, rows: pa.Table | None, index: str | os.PathLike[str] | Index | None
) -> Rewrite:
    """Remove the rows that have a key, and add `rows`, in one snapshot; no snapshot where there is nothing to do."""
    from pyiceberg.exceptions import CommitFailedException, ValidationException  # noqa: PLC0415 - an extra

    wanted = set(_opened(table, index).files_for(column, keys))
    tasks = [one for one in table.scan().plan_files() if relative_path(one.file.file_path, table.location()) in wanted]
    writer = _Writer(table)
    removed: list[DataFile] = []
    num_removed = 0
    try:
        for task in tasks:
            kept, num_matching = _without_keys(table, task, column, keys)
            if num_matching:
                removed.append(task.file)
                num_removed += num_matching
                writer.write(kept)
        if rows is not None:
            writer.write(rows)
    except BaseException:
        writer.discard()
        raise
    try:
        if removed or writer.files:
            with table.transaction() as transaction, transaction.update_snapshot().overwrite() as snapshot:
                for file in removed:
                    snapshot.delete_data_file(file)
                for file in writer.files:
                    snapshot.append_data_file(file)
    except (CommitFailedException, ValidationException) as error:  # others do not say whether it was committed
        writer.discard()
        message = f"table {table.location()} must not be changed by another writer meanwhile, got: {first_line(error)}"
        raise ConcurrentCommitError(f"{message}; nothing was changed: load the table again, and repeat") from error
    return Rewrite(len(removed), len(tasks), num_removed, 0 if rows is None else rows.num_rows)


def _opened(table: Table, index: str | os.PathLike[str] | Index | None) -> Index:
    """The index over the very snapshot that `table` has loaded: one of another snapshot would miss files."""
    place = index.info()["index"] if isinstance(index, Index) else index
    return open_index(table.location() if place is None else place, dataset=table)


def _without_keys(table: Table, task: FileScanTask, column: str, keys: pa.Array) -> tuple[pa.Table, int]:
    """The live rows of a file that have none of `keys`, as the table has them, and how many rows have one."""
    from pyiceberg.expressions import AlwaysTrue  # noqa: PLC0415 - an extra
    from pyiceberg.io.pyarrow import ArrowScan  # noqa: PLC0415 - an extra

    scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    rows = scan.to_table([task])
    has_key = IsIn(column, keys).to_expression(rows.schema)
    kept = rows.filter(~has_key | has_key.is_null())
    return kept, rows.num_rows - kept.num_rows


class _Writer:
    """Writes rows as data files of the table, which no snapshot names yet."""

    def __init__(self, table: Table) -> None:
        self.files: list[DataFile] = []
        self._table = table
        self._uuid = uuid.uuid4()
        self._counter: Iterator[int] = itertools.count()

    def write(self, rows: pa.Table) -> None:
        """Add `rows` as files of the table's target size, split by its partitions."""
        # No public function of pyiceberg 0.12 writes data files without a commit: its own overwrite calls this one.
        from pyiceberg.io.pyarrow import _dataframe_to_data_files  # noqa: PLC0415 - an extra; as above

        if rows.num_rows:
            table = self._table
            self.files += _dataframe_to_data_files(table.metadata, rows, table.io, self._uuid, self._counter)

    def discard(self) -> None:
        """Remove what was written."""
        for file in self.files:
            self._table.io.delete(file.file_path)
