"""Rows erased from a Delta table: by a merge, and a vacuum of the old files.

Design: docs/design/erasing.md#tables
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import pyarrow as pa

from zonebloom.erasing.files import PASSES
from zonebloom.erasing.journal import Journal
from zonebloom.erasing.tables import AGAIN, COMMIT_ID, delete_all, unnamed, with_deleted_rows
from zonebloom.formats.delta import PHYSICAL_NAME, UNESCAPED, DeltaDataset, mapping_mode, path_in_table
from zonebloom.formats.hive import NULL_FOLDER
from zonebloom.formats.parquet.file import open_parquet
from zonebloom.formats.table import raise_store_error
from zonebloom.ground.errors import ConcurrentCommitError, DataFileError, InvalidArgumentError, first_line
from zonebloom.index.index import Index
from zonebloom.predicates.sql_writer import quoted
from zonebloom.search.file_values import as_type
from zonebloom.search.view import View

if TYPE_CHECKING:
    from deltalake import DeltaTable, WriterProperties

_BY_ANOTHER_ENGINE = "delete with the engine that writes it, and erase again: the rest is done and recorded"
_LOST_RACE = re.compile(r"concurrent|since last commit", re.IGNORECASE)
"""Messages of deltalake 1.6 for a commit that another one came before: of files, or of columns and properties."""
_ROUNDED = re.compile(r"float|double|decimal\((?:1[6-9]|[23]\d),.*")
"""Types whose bounds exclude rows: deltalake 1.6 logs decimals as doubles, and leaves out infinities and NaN."""
_UTC = re.compile(r"\d+-\d+-\d+T.*Z")
"""A partition's instant as Spark writes it. deltalake 1.6 leaves out T and Z, and Spark reads that in its own zone."""


def erase_from_delta(index: Index, data: DeltaDataset, column: str, values: Any, journal: Journal) -> None:
    """Delete the rows from the table, and remove the files that held them; `journal` has each step.

    Raises
    ------
    InvalidArgumentError
        The column is a field of a struct, or the table is append-only.
    DataFileError
        The table is none that deltalake can write.
    """
    prepare = partial(_merge_of, index, column=column, values=values)
    delete_all(index, column, values, journal, prepare, load=data.table, has_commit=_has_commit)
    _clean_delta(index, data, journal)
    journal.add("holders", list(with_deleted_rows(index.view())))


def _is_misspelt(value: pa.Scalar) -> bool:
    """Whether deltalake 1.6 writes another partition value than it read: -1.25 as -1.-25, which nobody can read."""
    kind = value.type
    plain = value.as_py() if pa.types.is_string(kind) or pa.types.is_decimal(kind) else None
    return plain < 0 if isinstance(plain, Decimal) else plain == NULL_FOLDER


def _has_other_fields(held: pa.DataType, wanted: pa.DataType, *, is_in_map: bool = False) -> bool:
    """Whether a struct in a map that both types have is of other fields."""
    own, others = _inner(held), _inner(wanted)
    if is_in_map and own.keys() != others.keys():
        return True
    is_in_map = is_in_map or pa.types.is_map(held)
    return any(_has_other_fields(own[name], others[name], is_in_map=is_in_map) for name in own.keys() & others.keys())


def _inner(kind: pa.DataType) -> dict[str, pa.DataType]:
    if pa.types.is_map(kind):
        return {"key": kind.key_type, "value": kind.item_type}
    fields = [kind.field(place) for place in range(kind.num_fields)]
    return {field.name if pa.types.is_struct(kind) else "element": field.type for field in fields}


def _changed(table: DeltaTable, view: View, held: Iterable[str]) -> Iterator[str]:
    """Values that deltalake reads and writes differently: of partitions, and paths of the files that it removes.

    Also values that it reads differently from us. deltalake 1.6 finds columns by name in mapping mode id, too, and has
    INT96 in nanoseconds: of the files `held` it would write 9999-12-31 as a day of 1816. It cuts and rounds values that
    are not of the table's types, and takes fields in maps by their places.
    """
    names = [field.name for field in view.schema if field not in view.partition_fields]
    for path in held:
        with open_parquet(view.dataset, path) as file:
            for group, num_rows in enumerate(file.row_group_rows):
                try:
                    read = file.read_rows(group, [0], [num_rows], names, int96_unit="ns")
                    for name in read.column_names:
                        kind = view.schema.field(name).type
                        as_type(read[name], kind, name, path)
                        if _has_other_fields(read[name].type, kind):
                            yield f"column {name} of {path}, whose maps have other fields than the table's"
                except DataFileError as error:
                    yield str(error)
    if mapping_mode(table) == "id":
        yield "columns that files have by their ids"
    for path in view.files:
        values = view.dataset.partition_values(path, view.partition_fields) or {}
        yield from (f"{value} in the column {name}" for name, value in values.items() if _is_misspelt(value))
    if any(pa.types.is_timestamp(field.type) and field.type.tz for field in view.partition_fields):
        texts = (text for part in table.partitions() for text in part.values())
        yield from (f"the partition {text}, an instant of UTC" for text in texts if text and _UTC.fullmatch(text))
    yield from (path for path in _named(table) if quote(unquote(path), safe=UNESCAPED) != path)


def _named(table: DeltaTable) -> list[str]:
    """Paths of the files of the loaded version, as its log has them."""
    paths: list[str] = pa.table(table.get_add_actions())["path"].to_pylist()
    return paths


def _has_commit(table: DeltaTable, commit_id: str) -> bool:
    return any(commit.get(COMMIT_ID) == commit_id for commit in table.history())


def _with_exact_bounds(table: DeltaTable) -> WriterProperties:
    """Statistics for the columns of the top level whose bounds deltalake writes into the log as they are."""
    from deltalake import ColumnProperties, WriterProperties  # noqa: PLC0415 - an extra
    from deltalake.schema import PrimitiveType  # noqa: PLC0415

    exact = [
        field.metadata.get(PHYSICAL_NAME, field.name)
        for field in table.schema().fields
        if isinstance(field.type, PrimitiveType) and not _ROUNDED.fullmatch(field.type.type)
    ]
    return WriterProperties(
        default_column_properties=ColumnProperties(statistics_enabled="NONE"),
        column_properties={name: ColumnProperties(statistics_enabled="PAGE") for name in exact},
    )


def _merge_of(
    index: Index, table: DeltaTable, view: View, held: Iterable[str], *, column: str, values: Any
) -> Callable[[str], None]:
    """A merge that deletes the stored values: the log would retain the condition of a delete, with all values."""
    from deltalake import CommitProperties  # noqa: PLC0415 - an extra

    location = index.data.location
    if column not in index.schema.names:
        raise InvalidArgumentError("column must be a top-level column of a Delta table", got=column)
    if table.metadata().configuration.get("delta.appendOnly", "false").lower() == "true":
        raise InvalidArgumentError(
            f"Delta table {location} must allow deletes", got="delta.appendOnly = true", do="set this property to false"
        )
    if (changed := next(_changed(table, view, held), None)) is not None:
        raise DataFileError(
            f"table {location} must have no column, path or partition that deltalake changes by a rewrite",
            got=changed,
            do=_BY_ANOTHER_ENGINE,
        )
    keys = index.to_table(column=column, values=values, columns=[column]).rename_columns(["key"])

    def merge(commit_id: str) -> None:
        with _explained(location):
            merger = table.merge(
                keys.group_by("key").aggregate([]),
                f"target.{quoted(column)} = source.key",
                source_alias="source",
                target_alias="target",
                writer_properties=_with_exact_bounds(table),
                commit_properties=CommitProperties({COMMIT_ID: commit_id}),
            )
            merger.when_matched_delete().execute()

    return merge


@contextmanager
def _explained(location: str) -> Iterator[None]:
    """Raise errors of deltalake in the block as errors of zonebloom."""
    from deltalake.exceptions import CommitFailedError, DeltaError  # noqa: PLC0415 - an extra

    try:
        yield
    except (DeltaError, pa.ArrowException, OSError) as error:
        raise_store_error(location, str(error))
        if isinstance(error, CommitFailedError) and _LOST_RACE.search(str(error)):
            raise ConcurrentCommitError(f"table {location} must stay as it is during a delete", got=error) from error
        raise DataFileError(
            f"table {location} must be one from which deltalake can delete",
            got=first_line(error),
            do=_BY_ANOTHER_ENGINE,
        ) from error


def _clean_delta(index: Index, data: DeltaDataset, journal: Journal) -> None:
    """Remove the files that the table does not name any more.

    Raises
    ------
    ConcurrentCommitError
        Other writers removed files during each attempt.
    """
    table = data.table()
    if not any(_is_vacuumed(table, data, journal) for _ in range(PASSES)):
        raise ConcurrentCommitError(
            f"table {data.location} must stay while it is vacuumed", got=f"{PASSES} commits of others", do=AGAIN
        )
    present = data.store.files("")
    journal.add("removed", [path for paths in journal.all("unnamed") for path in paths if path not in present])
    journal.add("holders", [*unnamed(data.location, present, index.view().files), _log_of(table, data.location)])


def _log_of(table: DeltaTable, location: str) -> str:
    """What the log holds of former versions, and how long."""
    properties = table.metadata().configuration
    retention = properties.get("delta.logRetentionDuration", "interval 30 days").removeprefix("interval ")
    until = f"until a checkpoint is written after {retention}"
    if properties.get("delta.enableExpiredLogCleanup", "true").lower() == "false":
        until = "as delta.enableExpiredLogCleanup = false"
    held = "conditions of former deletes, updates and overwrites, and least and greatest values of old files"
    return f"{location}/_delta_log: {held}, {until}"


def _is_vacuumed(table: DeltaTable, data: DeltaDataset, journal: Journal) -> bool:
    """Remove the files of former versions; False if another writer removed files from the table meanwhile."""
    present = data.store.files("")  # deltalake 1.6 lists those that earlier vacuums removed, too
    try:
        with _explained(data.location):
            for is_dry_run in (True, False):
                table.update_incremental()  # a vacuum removes files that a version since then has restored
                old = table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=is_dry_run)
                named = {path_in_table(path, data.location) for path in _named(table)} if is_dry_run else set()
                if both := named.intersection(old):
                    raise DataFileError(
                        f"the log of {data.location} must name each file by one path, as a vacuum goes by the paths",
                        got=f"{min(both)}, which was removed by another",
                        do="rewrite it with the engine that writes it, and erase again: the rest is done and recorded",
                    )
                journal.add("unnamed", removed := [path for path in old if path in present])
                for path in filter(data.store.retains_old, removed if is_dry_run else ()):
                    journal.add("retained", data.store.absolute(path))
    except ConcurrentCommitError:
        return False
    return True
