"""Rows erased from an Iceberg table: by a rewrite of its files; old snapshots are expired, and their files removed.

Design: docs/design/erasing.md#tables
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from zonebloom.engines.iceberg.commits import has_landed, is_lost_race, with_noted_outputs
from zonebloom.engines.iceberg.rewrite import Rewrite, check_has_catalog, delete_at
from zonebloom.erasing.files import PASSES
from zonebloom.erasing.journal import Journal
from zonebloom.erasing.tables import AGAIN, COMMIT_ID, delete_all, unnamed, with_deleted_rows
from zonebloom.formats.iceberg.dataset import IcebergDataset
from zonebloom.formats.iceberg.errors import explained
from zonebloom.formats.iceberg.locations import plain_location, real_location
from zonebloom.ground.errors import ConcurrentCommitError, InvalidArgumentError
from zonebloom.index.index import Index
from zonebloom.search.view import View
from zonebloom.stores.locations import is_url
from zonebloom.stores.open import open_store

if TYPE_CHECKING:
    from pyiceberg.table import Snapshot, Table

_FOLDERS = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")
"""Properties of an Iceberg table that name folders of its own files beside its location."""
_NAME_MAPPING = "schema.name-mapping.default"


def erase_from_iceberg(index: Index, data: IcebergDataset, column: str, values: Any, journal: Journal) -> None:
    """Delete the rows from the table, and remove the files that held them; `journal` has each step.

    Raises
    ------
    InvalidArgumentError
        The table has no catalog, shares its files, or is loaded without its old snapshots.
    DataFileError
        The table is none that pyiceberg can write.
    """
    given = data.table()
    _check_owned(given)
    _check_loaded_whole(given)

    def prepare(table: Table, view: View, _held: Iterable[str]) -> Callable[[str], Rewrite]:
        return lambda commit_id: delete_at(
            table, column, values, index, version=view.dataset, summary={COMMIT_ID: commit_id}
        )

    delete_all(index, column, values, journal, prepare, load=data.table, has_commit=_has_commit)
    table = data.table()
    _clean_iceberg(table, journal)
    journal.add("holders", list(_naming_paths(table, column)))
    journal.add("holders", list(with_deleted_rows(index.view())))


def _has_commit(table: Table, commit_id: str) -> bool:
    summaries = (snapshot.summary for snapshot in table.snapshots())
    return any(summary is not None and summary.get(COMMIT_ID) == commit_id for summary in summaries)


def _check_owned(table: Table) -> None:
    """Refuse a table that no catalog has, and one whose files others may name, as one that Spark's `snapshot` made."""
    check_has_catalog(table)
    if table.properties.get("gc.enabled", "true").lower() == "false":
        raise InvalidArgumentError(
            f"Iceberg table {table.location()} must own its files, which are removed",
            got="the property gc.enabled = false",
            do="set it to true if no other table names its files",
        )


def _check_loaded_whole(table: Table) -> None:
    """Refuse a table whose catalog leaves out snapshots: those would stay, with the erased rows."""
    from pyiceberg.serializers import FromInputFile  # noqa: PLC0415 - an extra

    with explained("the metadata of", table.location()):
        written = FromInputFile.table_metadata(table.io.new_input(table.metadata_location))
    num_missing = len(_ids(written.snapshots) - _ids(table.snapshots()))
    if num_missing:
        raise InvalidArgumentError(
            f"Iceberg table {table.location()} must be loaded with all snapshots to be erased from",
            got=f"{num_missing} fewer than its metadata file has",
            do="load it by a catalog that gives all: REST catalogs do with snapshot-loading-mode = all",
        )


def _ids(snapshots: Iterable[Snapshot]) -> set[int]:
    return {snapshot.snapshot_id for snapshot in snapshots}


def _clean_iceberg(table: Table, journal: Journal) -> None:
    """Expire the snapshots of `_nameless`, and remove the files that only they named.

    Raises
    ------
    ConcurrentCommitError
        Other writers moved branches or tags during each attempt; no file was removed.
    """
    location = table.location()
    with explained("table", location, verb="append to"):
        any(_has_left_out_removed(table) for _ in range(PASSES))  # else the manifests stay, and are told
    with explained("the snapshots of", location):
        if not any(_has_expired(table, journal) for _ in range(PASSES)):
            raise ConcurrentCommitError(
                f"branches and tags of {location} must stay while snapshots are expired",
                got=f"{PASSES} commits of others",
                do=AGAIN,
            )
        table.refresh()
        named: set[str] = set().union(*(_names(table, snapshot, is_live=True) for snapshot in table.snapshots()))
        places = set(map(real_location, named))
        former = sorted(
            {path for paths in journal.all("unnamed") for path in paths if real_location(path) not in places}
        )
        folders = tuple(f"{folder}/" for folder in _folders(table))
        others = {path: why for path in former if (why := _owner(path, table, folders)) is not None}
        for path in (path for path in former if path not in others):
            folder, _, name = plain_location(path).rpartition("/")
            if not is_url(folder) and open_store(folder, None).retains_old(name):
                journal.add("retained", plain_location(path))
            with suppress(FileNotFoundError):
                table.io.delete(path)
            journal.add("removed", [path])
    kept = {path: why for path, why in others.items() if table.io.new_input(path).exists()}
    holders = [
        f"{path}: {why}, as a file of others that was added; remove it if nobody else reads it"
        for path, why in kept.items()
    ]
    journal.add("holders", [*holders, *_old_snapshots(table), *_unnamed(table, {*named, *kept})])


def _old_snapshots(table: Table) -> Iterator[str]:
    """Snapshots beside the current one, and names of removed files in manifests, with least and greatest values."""
    location, current = table.location(), table.metadata.current_snapshot_id
    for name, ref in table.metadata.refs.items():
        if ref.snapshot_id != current:
            kind = ref.snapshot_ref_type.value
            yield f"{kind} {name} of {location}: snapshot {ref.snapshot_id}; erase from it, or drop it"
    for number, name in _staged(table).items():
        yield f"snapshot {number} of {location}, staged by wap.id {name}: publish or expire it, and erase again"
    manifests = (manifest for snapshot in table.snapshots() for manifest in snapshot.manifests(table.io))
    if any(manifest.deleted_files_count != 0 for manifest in manifests):  # format 1: a null counts as some
        yield (
            f"{location}/metadata: names of removed files, with least and greatest values; rewrite its manifests, and "
            "erase again"
        )


def _unnamed(table: Table, named: set[str]) -> Iterator[str]:
    """Files in the folders of the table that are not `named`; earlier erasures may have kept them."""
    for folder in _folders(table):
        if is_url(folder):
            yield f"{folder}: files that no snapshot names were not looked for; run remove_orphan_files"
            yield f"{folder}: old versions of removed files, if the bucket retains versions"
        else:
            places = set(map(real_location, named))
            paths = open_store(folder, None).files("")
            yield from unnamed(folder, (path for path in paths if real_location(f"{folder}/{path}") not in places), ())


def _folders(table: Table) -> list[str]:
    """The folder of the table, and those that its properties name."""
    named = (table.location(), *map(table.properties.get, _FOLDERS))
    return list(dict.fromkeys(plain_location(folder) for folder in named if folder))


def _naming_paths(table: Table, column: str) -> Iterator[str]:
    """Paths, and summaries in old metadata files, that name values or their beginnings."""
    parts = [part for spec in table.specs().values() for part in spec.fields]
    naming = [part.source_id for part in parts if str(part.transform).startswith(("identity", "truncate"))]
    if column in map(table.schema().find_column_name, naming):
        names = f"folders, names of files and summaries of old snapshots in {table.location()}, this record too"
        yield f"{names}: the table has partitions by {column}"


def _has_left_out_removed(table: Table) -> bool:
    """Append nothing: the next snapshot has no manifest that only lists removed files, with their least values.

    False if other writers committed first.
    """
    table.refresh()
    current = table.current_snapshot()
    manifests = current.manifests(table.io) if current is not None and table.metadata.format_version in (1, 2) else []
    if all(manifest.has_added_files() or manifest.has_existing_files() for manifest in manifests):
        return True
    noted, outputs = with_noted_outputs(table)
    append = noted.transaction().update_snapshot().fast_append()
    return has_landed(noted, append.snapshot_id, append._commit(), outputs)  # noqa: SLF001 - as `delete_at` commits


def _has_expired(table: Table, journal: Journal) -> bool:
    """Expire the snapshots of `_nameless`; False if others changed branches or tags meanwhile.

    An expiry removes a branch or tag together with its snapshot. To read the names of files takes long, so the
    snapshots are compared again after it, and the commit succeeds only if all branches and tags are as they were.
    """
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
    except Exception as error:
        if not is_lost_race(error, table, expiry._updates):  # noqa: SLF001 - as above
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


def _owner(path: str, table: Table, folders: tuple[str, ...]) -> str | None:
    """Why a file may be of another table; None if it is not. The mark of added files is a mapping of names."""
    if not plain_location(path).startswith(folders):
        return "outside of the table's folder"
    is_mapped = _NAME_MAPPING in table.properties
    return "of a table with a name mapping" if is_mapped and path.endswith(".parquet") else None


def _names(table: Table, snapshot: Snapshot, *, is_live: bool = False) -> set[str]:
    """Locations of the files that a snapshot names; the live ones are those that it reads."""
    statistics = (*table.metadata.statistics, *table.metadata.partition_statistics)  # with hashes of values
    names = {file.statistics_path for file in statistics if file.snapshot_id == snapshot.snapshot_id}
    names.add(snapshot.manifest_list)
    for manifest in snapshot.manifests(table.io):
        entries = manifest.fetch_manifest_entry(table.io, discard_deleted=is_live)
        names |= {manifest.manifest_path, *(entry.data_file.file_path for entry in entries)}
    return names
