"""Rows erased from Delta and Iceberg tables: by the table's own delete, and then the old files.

A delete writes new files, and the rows stay in the old ones. Delta's vacuum removes these. pyiceberg expires snapshots
and removes no file, so the files that only expired snapshots name are removed here.

Design: docs/design/erasing.md#tables
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import pyarrow as pa

from zonebloom.engines.iceberg.rewrite import delete_at
from zonebloom.erasing.files import PASSES, current_rows, held_files
from zonebloom.erasing.journal import Journal
from zonebloom.formats.delta import UNESCAPED, DeltaDataset, mapping_mode, path_in_table
from zonebloom.formats.hive import NULL_FOLDER
from zonebloom.formats.iceberg.dataset import IcebergDataset
from zonebloom.formats.iceberg.errors import explained
from zonebloom.formats.iceberg.locations import plain_location, relative_path
from zonebloom.formats.parquet.file import open_parquet
from zonebloom.formats.table import raise_store_error
from zonebloom.ground.errors import ConcurrentCommitError, DataFileError, InvalidArgumentError, first_line
from zonebloom.index.index import Index
from zonebloom.predicates.sql_writer import quoted
from zonebloom.search.file_values import as_type
from zonebloom.search.view import View
from zonebloom.stores.locations import is_url
from zonebloom.stores.open import open_store

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyiceberg.table import Snapshot, Table


_DELETES = 3 * PASSES
"""Attempts to delete; each is lost if another writer commits meanwhile."""
_FOLDERS = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")
"""Properties of an Iceberg table that name folders of its own files beside its location."""
_OF_DATA = (".parquet", ".orc", ".avro", ".puffin")
"""Endings of files that hold values, their bounds or their hashes."""
_BY_ANOTHER_ENGINE = "delete with the engine that writes it, and erase again: the rest is done and recorded"
_AGAIN = "the rows are deleted, old files hold them: call again when fewer writers are at work"
_LOST_RACE = re.compile(r"concurrent|since last commit", re.IGNORECASE)
"""Messages of deltalake 1.6 for a commit that another one came before: of files, or of columns and properties."""
_UTC = re.compile(r"\d+-\d+-\d+T.*Z")
"""A partition's instant as Spark writes it. deltalake 1.6 leaves out T and Z, and Spark reads that in its own zone."""


def erase_from_table(index: Index, column: str, values: Any, journal: Journal) -> None:
    """Delete the rows from the table, and remove the files that held them; `journal` has each step.

    Raises
    ------
    InvalidArgumentError
        The table has no catalog or shares its files, or the column is a field of a struct.
    DataFileError
        The table is none that deltalake or pyiceberg can write.
    """
    data = index.data
    if isinstance(data, DeltaDataset):
        loaded = data.table()
        delete_rows = partial(_delete_from_delta, loaded, index, column=column, values=values)
        _delete_all(index, column, values, journal, delete_rows, renew=partial(_renew_delta, loaded, data.location))
        _clean_delta(index, data, journal)
    elif isinstance(data, IcebergDataset):
        table = data.table()
        _check_owned(table)
        delete = lambda view, _: delete_at(table, column, values, index, view.dataset)  # noqa: E731 - one argument less
        _delete_all(index, column, values, journal, delete, renew=partial(_renew_iceberg, table))
        _clean_iceberg(table, journal)
        journal.add("holders", list(_naming_paths(table, column)))
    journal.add("holders", list(_with_deleted_rows(index.view())))


def _delete_all(
    index: Index,
    column: str,
    values: Any,
    journal: Journal,
    delete: Callable[[View, Iterable[str]], Any],
    *,
    renew: Callable[[], Any],
) -> None:
    """Delete until no row is found. Before each delete the journal knows the files with rows; none if it was lost.

    `renew` loads the newest version. A delete must change the version of the view, so that it erases the noted rows;
    it is given the paths of the files with rows, too.
    """
    for _ in range(_DELETES):
        renew()
        view, rows = current_rows(index, column, values)
        if not rows:
            break
        journal.add("held", [asdict(file) for file in held_files(view, rows)])
        try:
            delete(view, rows)
        except (ConcurrentCommitError, DataFileError, InvalidArgumentError) as error:
            is_overtaken = isinstance(error, ConcurrentCommitError)  # the next pass plans anew
            if is_overtaken or index.view().dataset == view.dataset:
                journal.add("held", [])  # nothing was deleted: others may move the rows before the next call
            if not is_overtaken:
                raise
        index.refresh()


def _with_deleted_rows(view: View) -> Iterator[str]:
    paths = [path for path in view.files if (rows := view.dataset.deleted_rows(path)) is not None and len(rows)]
    if paths:
        yield (
            f"{len(paths):,} data files, such as {paths[0]}, with rows that were deleted before without a rewrite: "
            "compact them (rewrite_data_files, or OPTIMIZE and REORG ... APPLY (PURGE)) and erase again"
        )


# --- Delta ------------------------------------------------------------------------------------------------------------


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


def _renew_delta(table: DeltaTable, location: str) -> None:
    with _explained(location):
        table.update_incremental()


def _delete_from_delta(
    table: DeltaTable, index: Index, view: View, held: Iterable[str], *, column: str, values: Any
) -> None:
    """Delete by a merge with the stored values: the log would retain the condition of a delete, with all values."""
    if column not in index.schema.names:
        raise InvalidArgumentError("column must be a top-level column of a Delta table", got=column)
    if (changed := next(_changed(table, view, held), None)) is not None:
        raise DataFileError(
            f"table {index.data.location} must have no column, path or partition that deltalake changes by a rewrite",
            got=changed,
            do=_BY_ANOTHER_ENGINE,
        )
    keys = index.to_table(column=column, values=values, columns=[column]).rename_columns(["key"])
    with _explained(index.data.location):
        merge = table.merge(
            keys.group_by("key").aggregate([]),
            f"target.{quoted(column)} = source.key",
            source_alias="source",
            target_alias="target",
        )
        merge.when_matched_delete().execute()


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
            f"table {data.location} must stay while it is vacuumed", got=f"{PASSES} commits of others", do=_AGAIN
        )
    present = data.store.files("")
    journal.add("removed", [path for paths in journal.all("unnamed") for path in paths if path not in present])
    holders = _unnamed(data.location, present, index.view().files)
    log = f"{data.location}/_delta_log: least and greatest values of old files, until its log retention has passed"
    journal.add("holders", [*holders, log])


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


def _unnamed(location: str, paths: Iterable[str], named: Iterable[str]) -> Iterator[str]:
    """Files of data and of their bounds in a table's folder that its current version does not name."""
    others = [path for path in paths if path.endswith(_OF_DATA) and not path.startswith("_delta_log/")]
    unnamed = sorted(set(others).difference(named))
    yield from (f"{location}/{path}: the table does not name it; remove it if no writer is at work" for path in unnamed)


# --- Iceberg ----------------------------------------------------------------------------------------------------------


def _renew_iceberg(table: Table) -> None:
    with explained("table", table.location()), suppress(NotImplementedError):  # without a catalog a delete is refused
        table.refresh()


def _check_owned(table: Table) -> None:
    """Refuse a table whose files other tables may name, as one that Spark's `snapshot` made."""
    if table.properties.get("gc.enabled", "true").lower() == "false":
        raise InvalidArgumentError(
            f"Iceberg table {table.location()} must own its files, which are removed",
            got="the property gc.enabled = false",
            do="set it to true if no other table names its files",
        )


def _clean_iceberg(table: Table, journal: Journal) -> None:
    """Expire the snapshots of `_nameless`, and remove the files that only they named.

    Raises
    ------
    ConcurrentCommitError
        Other writers moved branches or tags during each attempt; no file was removed.
    """
    location = table.location()
    with explained("table", location, verb="append to"):
        _leave_out_removed(table)
    with explained("the snapshots of", location):
        if not any(_has_expired(table, journal) for _ in range(PASSES)):
            raise ConcurrentCommitError(
                f"branches and tags of {location} must stay while snapshots are expired",
                got=f"{PASSES} commits of others",
                do=_AGAIN,
            )
        table.refresh()
        named: set[str] = set().union(*(_names(table, snapshot, is_live=True) for snapshot in table.snapshots()))
        places = set(map(_place, named))
        unnamed = sorted({path for paths in journal.all("unnamed") for path in paths if _place(path) not in places})
        folders = tuple(f"{_place(folder)}/" for folder in (location, *map(table.properties.get, _FOLDERS)) if folder)
        for path in unnamed:
            if _place(path).startswith(folders):
                folder, _, name = _place(path).rpartition("/")
                if not is_url(folder) and open_store(folder, None).retains_old(name):
                    journal.add("retained", _place(path))
                with suppress(FileNotFoundError):
                    table.io.delete(path)
                journal.add("removed", [path])
    current = table.metadata.current_snapshot_id
    holders = [
        f"{path}: outside of the table's folder, as a file of others that was added; remove it if nobody else reads it"
        for path in unnamed
        if not _place(path).startswith(folders) and table.io.new_input(path).exists()
    ]
    holders += [
        f"{ref.snapshot_ref_type.value} {name} of {location}: snapshot {ref.snapshot_id}; erase from it, or drop it"
        for name, ref in table.metadata.refs.items()
        if ref.snapshot_id != current
    ]
    holders += [
        f"snapshot {number} of {location}, staged by wap.id {name}: publish or expire it, and erase again"
        for number, name in _staged(table).items()
    ]
    if any(manifest.deleted_files_count for snapshot in table.snapshots() for manifest in snapshot.manifests(table.io)):
        holders.append(
            f"{location}/metadata: names of removed files, with least and greatest values; rewrite its manifests, and "
            "erase again"
        )
    plain = plain_location(location)
    if is_url(plain):
        holders.append(f"{location}: files that no snapshot names were not looked for; run remove_orphan_files")
        holders.append(f"{location}: old versions of removed files, if the bucket retains versions")
    else:
        names = {relative_path(path, location) for path in named}
        holders += _unnamed(plain, open_store(plain, None).files(""), names)
    journal.add("holders", holders)


def _naming_paths(table: Table, column: str) -> Iterator[str]:
    """Paths that name values, or their beginnings."""
    parts = [part for spec in table.specs().values() for part in spec.fields]
    naming = [part.source_id for part in parts if str(part.transform).startswith(("identity", "truncate"))]
    if column in map(table.schema().find_column_name, naming):
        yield f"folders and names of files in {table.location()}, this record too: the table has partitions by {column}"


def _leave_out_removed(table: Table) -> None:
    """Append nothing: the next snapshot has no manifest that only lists removed files, with their least values.

    If other writers commit first, the manifest may stay.
    """
    from pyiceberg.exceptions import CommitFailedException, ValidationException  # noqa: PLC0415 - an extra

    table.refresh()
    current = table.current_snapshot()
    manifests = current.manifests(table.io) if current is not None and table.metadata.format_version in (1, 2) else []
    if any(not (manifest.has_added_files() or manifest.has_existing_files()) for manifest in manifests):
        with suppress(CommitFailedException, ValidationException), table.transaction() as transaction:
            transaction.update_snapshot().fast_append().commit()


def _has_expired(table: Table, journal: Journal) -> bool:
    """Expire the snapshots of `_nameless`; False if others changed branches or tags meanwhile.

    An expiry removes a branch or tag together with its snapshot. To read the names of files takes long, so the
    snapshots are compared again after it, and the commit succeeds only if all branches and tags are as they were.
    """
    from pyiceberg.exceptions import CommitFailedException  # noqa: PLC0415 - an extra
    from pyiceberg.table.update import AssertRefSnapshotId  # noqa: PLC0415 - an extra

    table.refresh()
    planned = {snapshot.snapshot_id: _names(table, snapshot) for snapshot in _nameless(table)}
    if not planned:
        return True
    journal.add("unnamed", sorted(set().union(*planned.values())))
    table.refresh()
    expired = [snapshot.snapshot_id for snapshot in _nameless(table) if snapshot.snapshot_id in planned]
    expiry = table.maintenance.expire_snapshots().by_ids(expired)
    expiry._requirements = tuple(  # noqa: SLF001 - pyiceberg 0.12 requires nothing
        AssertRefSnapshotId(ref=name, snapshot_id=ref.snapshot_id) for name, ref in table.metadata.refs.items()
    )
    try:
        expiry.commit()
    except (CommitFailedException, ValueError) as error:
        table.refresh()
        if isinstance(error, ValueError) and all(map(table.snapshot_by_id, expired)):
            raise
        return False  # branches or tags moved, or another writer expired some of the snapshots
    return True


def _nameless(table: Table) -> list[Snapshot]:
    """The snapshots that no branch and no tag names, without those that are still to be published."""
    retained = {*_staged(table), *(ref.snapshot_id for ref in table.metadata.refs.values())}
    return [snapshot for snapshot in table.snapshots() if snapshot.snapshot_id not in retained]


def _staged(table: Table) -> dict[int, str]:
    """The `wap.id` of each staged snapshot that no branch has, nor a copy of it."""
    from pyiceberg.table.snapshots import ancestors_of  # noqa: PLC0415 - an extra

    heads = (table.snapshot_by_id(ref.snapshot_id) for ref in table.metadata.refs.values())
    published = {snapshot.snapshot_id for head in heads for snapshot in ancestors_of(head, table.metadata)}
    summaries = {snapshot.snapshot_id: snapshot.summary or {} for snapshot in table.snapshots()}
    copied = {summary.get("published-wap-id") for summary in summaries.values()}
    staged = {number: summary.get("wap.id") for number, summary in summaries.items() if number not in published}
    return {number: name for number, name in staged.items() if name is not None and name not in copied}


def _place(path: str) -> str:
    """The one spelling of a location that snapshots may spell otherwise: a path or a file URL, s3, s3a or s3n."""
    scheme, colon, rest = plain_location(path).partition("://")
    return f"s3://{rest}" if scheme in ("s3a", "s3n") else f"{scheme}{colon}{rest}"


def _names(table: Table, snapshot: Snapshot, *, is_live: bool = False) -> set[str]:
    """Locations of the files that a snapshot names; the live ones are those that it reads."""
    statistics = (*table.metadata.statistics, *table.metadata.partition_statistics)  # with hashes of values
    names = {file.statistics_path for file in statistics if file.snapshot_id == snapshot.snapshot_id}
    names.add(snapshot.manifest_list)
    for manifest in snapshot.manifests(table.io):
        entries = manifest.fetch_manifest_entry(table.io, discard_deleted=is_live)
        names |= {manifest.manifest_path, *(entry.data_file.file_path for entry in entries)}
    return names
