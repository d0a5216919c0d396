"""Iceberg: delete and upsert by keys. Only data files that hold a key are rewritten.

A call loads the table anew, plans on the current snapshot, writes the files, and commits them as one snapshot. The
commit succeeds only on that snapshot, schema and partition spec. If another commit changes one of them, the call plans
again.

Design: docs/design/engines.md#iceberg
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from zonebloom.engines.iceberg.commits import Request, has_landed, with_noted_outputs
from zonebloom.engines.iceberg.rows import as_declared
from zonebloom.formats.iceberg.errors import explained, pyiceberg_tables
from zonebloom.formats.iceberg.locations import relative_path
from zonebloom.formats.iceberg.snapshot import planned
from zonebloom.ground.arrow import rowless
from zonebloom.ground.errors import ConcurrentCommitError, DataFileError, InvalidArgumentError
from zonebloom.ground.rendering import Result
from zonebloom.index.doors import opened_in, store_of
from zonebloom.index.index import Index
from zonebloom.predicates import IsIn
from zonebloom.predicates.literals import collected
from zonebloom.predicates.row_filter import to_expression
from zonebloom.search.exists import comparable
from zonebloom.search.locate import files_for
from zonebloom.search.scan import read_candidates

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

    from zonebloom.engines.iceberg.files import DataFileWriter
    from zonebloom.formats import DatasetSnapshot
    from zonebloom.search.view import View

__all__ = ["Rewrite", "delete", "upsert"]

_PLANS = 3
"""Attempts of one call. Each writes its files anew; after three lost races a fourth would hardly win."""
_NEWEST_FORMAT = 2
"""The newest format that is rewritten. Rows of format 3 have ids to retain; pyiceberg 0.12 does not write them."""

_Place = str | os.PathLike[str] | None
_Keys: TypeAlias = "pa.Array | list[Any]"
_Change: TypeAlias = Callable[["Table"], tuple[_Keys, pa.Table | None]]
"""The keys whose rows are removed and the rows that are added, for the table as it is now."""


@dataclass(frozen=True, slots=True)
class Rewrite(Result):
    """The result of a delete or an upsert, in files and rows."""

    num_files: int
    """Data files that held a key; they were rewritten or removed."""
    num_files_read: int
    """Data files that were read because the index could not exclude them."""
    num_rows_removed: int
    """Rows that had one of the keys."""
    num_rows_added: int
    """Rows of the upsert."""
    old_files: tuple[str, ...] = ()
    """Locations of the replaced data files. The removed rows stay in them until the files are deleted."""


def delete(table: Table, column: str, keys: Any, *, index: str | os.PathLike[str] | Index | None = None) -> Rewrite:
    """Remove each row of `table` whose `column` equals one of `keys`; every other row stays.

    The removed rows stay in the old files until snapshots are expired and orphan files are removed.

    Parameters
    ----------
    table
        A table of a catalog. The call loads it anew; afterwards `table` is at the new snapshot.
    keys
        An array or a list of values; null and NaN equal nothing.
    index
        The index of the column, or its place; by default the index beside the table. Files that are not in the index
        are read. Call `refresh` afterwards: this call does not add the new files to the index. An index that needs
        storage options is given as an `Index`, which has them.

    Raises
    ------
    ConcurrentCommitError
        Other writers changed the table during each of three attempts; nothing was changed.
    ColumnNotFoundError
        The column is not indexed.
    InvalidArgumentError
        The table has no catalog, or is of format 3.
    DataFileError
        pyiceberg cannot read or write such a table; nothing was changed.
    StorageError
        A store or the catalog cannot be reached or refuses; the message says whether the table may be changed.
    MissingDependencyError
        pyiceberg is not installed.

    Design: docs/design/engines.md#iceberg
    """
    pyiceberg_tables()
    array = collected(keys)
    return _rewrite(table, column, lambda _table: (array, None), index)


def delete_at(
    table: Table, column: str, keys: Any, index: Index, *, version: DatasetSnapshot, summary: Mapping[str, str]
) -> Rewrite:
    """As `delete`, of the rows of one version of the table; a `ConcurrentCommitError` if it has another one.

    The summary of the new snapshot has the pairs of `summary`, too.
    """
    array = collected(keys)
    return _rewrite(table, column, lambda _table: (array, None), index, version=version, summary=summary)


def upsert(table: Table, rows: pa.Table, key: str, *, index: str | os.PathLike[str] | Index | None = None) -> Rewrite:
    """Replace each row of `table` that has the key of one of `rows`, and add those of `rows` whose key is new.

    Parameters
    ----------
    table, index
        As for `delete`.
    rows
        The columns of the table, structs with the same fields. A value is converted to the table's type only if the
        conversion is exact; floats are rounded, and a decimal becomes the nearest float. Each key occurs once. A null
        key and NaN equal no key of the table.
    key
        A column of the table.

    Raises
    ------
    ConcurrentCommitError, DataFileError, StorageError, MissingDependencyError
        As for `delete`.
    InvalidArgumentError
        `rows` has other columns or fields than the table, values that do not convert, or a key twice; or as for
        `delete`.

    Design: docs/design/engines.md#iceberg
    """
    pyiceberg_tables()
    if not isinstance(rows, pa.Table):
        raise InvalidArgumentError("rows must be a pyarrow Table", got=type(rows).__name__)
    if key not in rows.column_names:
        raise InvalidArgumentError(f"rows must have the column {key}", got=", ".join(rows.column_names) or "none")
    return _rewrite(table, key, lambda current: _keyed(rows, key, current), index)


def _keyed(rows: pa.Table, key: str, table: Table) -> tuple[pa.Array, pa.Table]:
    """The keys of `rows`, and `rows`, both in the table's types: as integers, "1" and "01" are one key."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow  # noqa: PLC0415 - an extra; the caller has it

    declared = as_declared(rows, schema_to_pyarrow(table.schema(), include_field_ids=False))
    keys = declared[key].combine_chunks().drop_null()
    if (num_distinct := len(comparable(keys).unique())) < len(keys):
        raise InvalidArgumentError(f"each {key} of rows must occur once", got=f"{len(keys):,} rows of {num_distinct:,}")
    return keys, declared


def _rewrite(
    table: Table,
    column: str,
    change: _Change,
    index: _Place | Index,
    *,
    version: DatasetSnapshot | None = None,
    summary: Mapping[str, str] = MappingProxyType({}),
) -> Rewrite:
    """Remove and add rows in one snapshot; plan again after a lost race, unless the rows must be of a version.

    No change makes no snapshot.
    """
    check_has_catalog(table)
    store = store_of(index, table)
    for _ in range(_PLANS):
        current = _loaded_anew(table)
        view = opened_in(store, current).view()
        if version not in (None, view.dataset):
            break
        done = _attempted(current, column, *change(current), view, summary=summary)
        if done is not None:
            table.metadata, table.metadata_location = current.metadata, current.metadata_location
            table.io, table.config = current.io, current.config
            return done
    raise ConcurrentCommitError(
        f"table {table.location()} must stay as it is while its files are written",
        got=f"{_PLANS} commits of others",
        do="nothing was changed: call again when fewer writers are at work",
    )


def check_has_catalog(table: Table) -> None:
    """Refuse a table that nobody can commit to.

    Raises
    ------
    InvalidArgumentError
        It is no table of a catalog.
    """
    tables = pyiceberg_tables()
    if not isinstance(table, tables.Table) or isinstance(table, tables.StaticTable):
        raise InvalidArgumentError(
            "table must be a pyiceberg Table of a catalog",
            got=type(table).__name__,
            do="load it by the load_table of its catalog",
        )


def _loaded_anew(table: Table) -> Table:
    """The table as its catalog has it now.

    Raises
    ------
    InvalidArgumentError
        The table cannot be rewritten.
    ConcurrentCommitError
        The catalog has another table of that name.
    """
    location = table.location()
    with explained("table", location):
        current: Table = table.catalog.load_table(table.name())
    if current.metadata.table_uuid != table.metadata.table_uuid:
        raise ConcurrentCommitError(
            f"table {location} must be the one that was loaded",
            got="another of its name",
            do="nothing was changed: load the table again",
        )
    if (version := current.metadata.format_version) > _NEWEST_FORMAT:
        raise InvalidArgumentError(
            f"table {location} must be of format 1 or 2 to be rewritten by keys",
            got=f"format {version}",
            do="use the engine that writes the table",
        )
    return current


def _attempted(
    table: Table, column: str, keys: _Keys, rows: pa.Table | None, view: View, *, summary: Mapping[str, str]
) -> Rewrite | None:
    """Rewrite `table`, which is then at the new snapshot; None if another commit came first."""
    from zonebloom.engines.iceberg.files import DataFileWriter  # noqa: PLC0415 - needs the extra

    noted, outputs = with_noted_outputs(table)
    location = table.location()
    try:
        files = _tasks(table, column, keys, view)
        with explained("table", location, verb="rewrite"):
            writer = DataFileWriter(noted)
            removed, num_removed = _without_keys(view, files, column, keys, writer)
            if rows is not None:
                writer.write(rows)
            if not (removed or writer.files):
                return Rewrite(0, len(files), 0, 0)
            snapshot_id, request = _request(noted, removed, writer.files, summary)
    except BaseException:
        outputs.discard()
        raise
    if not has_landed(noted, snapshot_id, request, outputs):
        return None
    table.metadata, table.metadata_location = noted.metadata, noted.metadata_location
    old_files = tuple(file.file_path for file in removed)
    return Rewrite(len(removed), len(files), num_removed, 0 if rows is None else rows.num_rows, old_files)


def _tasks(table: Table, column: str, keys: _Keys, view: View) -> dict[str, DataFile]:
    """By path, the data files of the snapshot that `table` has loaded, and `view` too, that may hold a key."""
    wanted = set(files_for(view, column, keys))
    with explained("the manifests of", table.location()):
        tasks, _ = planned(table)
    files = {relative_path(task.file.file_path, table.location()): task.file for task in tasks}
    return {path: file for path, file in files.items() if path in wanted}


def _without_keys(
    view: View, files: dict[str, DataFile], column: str, keys: _Keys, writer: DataFileWriter
) -> tuple[list[DataFile], int]:
    """The files that hold one of `keys`, and their number of rows with a key. Writes their other live rows.

    pyiceberg's own scan gives empty lists for null lists of structs, and nulls for renamed fields of lists in lists.
    """
    removed, num_removed = [], 0
    for path, file in files.items():
        whole = view.universe.fragment(view.files[path].fragment_id)
        parts = [part for _, part in read_candidates(view, whole, view.schema.names)]
        rows = pa.concat_tables(parts) if parts else rowless(view.schema)
        has_key = to_expression(IsIn(column, keys), rows.schema)
        kept = rows.filter(~has_key | has_key.is_null())
        if kept.num_rows < rows.num_rows:
            removed.append(file)
            num_removed += rows.num_rows - kept.num_rows
            writer.write(kept)
    return removed, num_removed


def _check_partitions(table: Table, file: DataFile) -> None:
    """Refuse a file of partitions by doubles, which pyiceberg 0.12 reads as floats, or of NaN, which it cannot remove.

    It would write the rounded values for all other files of the manifest. Exact readers would then lose their rows.
    """
    from pyiceberg.transforms import IdentityTransform  # noqa: PLC0415 - an extra
    from pyiceberg.types import DoubleType  # noqa: PLC0415 - an extra

    for place, field in enumerate(table.specs()[file.spec_id or 0].fields):
        if not isinstance(field.transform, IdentityTransform):
            continue
        is_nan = file.partition[place] != file.partition[place]  # NaN alone differs from itself
        if is_nan or isinstance(table.schema().find_type(field.source_id), DoubleType):
            raise DataFileError(
                f"files of {table.location()} must not be in partitions by a double or of NaN to be rewritten",
                got=f"{'NaN in ' if is_nan else ''}partitions by {field.name}",
                do="use another engine: pyiceberg would round the partition values of other files, and fails for NaN",
            )


def _request(
    table: Table, removed: list[DataFile], added: list[DataFile], summary: Mapping[str, str]
) -> tuple[int, Request]:
    """A snapshot that replaces the files `removed` by `added`, valid only for the loaded state of `table`.

    A transaction of pyiceberg would rebase it on other commits, although its rows were read before these commits.
    """
    from pyiceberg.expressions import AlwaysTrue  # noqa: PLC0415 - an extra
    from pyiceberg.table import update as ice  # noqa: PLC0415 - an extra

    snapshot = table.transaction().update_snapshot(dict(summary)).overwrite()
    snapshot.delete_by_predicate(AlwaysTrue())  # all manifests are read: their summaries round doubles
    for file in removed:
        _check_partitions(table, file)
        snapshot.delete_data_file(file)
    for file in added:
        snapshot.append_data_file(file)
    updates, is_branch_as_read = snapshot._commit()  # noqa: SLF001 - public functions of pyiceberg 0.12 rebase
    is_table_as_read = (
        ice.AssertTableUUID(uuid=table.metadata.table_uuid),
        ice.AssertCurrentSchemaId(current_schema_id=table.metadata.current_schema_id),
        ice.AssertDefaultSpecId(default_spec_id=table.metadata.default_spec_id),
    )
    return snapshot.snapshot_id, (updates, (*is_branch_as_read, *is_table_as_read))
