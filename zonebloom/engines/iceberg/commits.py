"""Commits to an Iceberg table: whether each has landed, lost a race against other writers, or neither is proved.

Design: docs/design/engines.md#iceberg
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterable
from typing import TYPE_CHECKING, Any

from zonebloom.ground.errors import StorageError, first_line

if TYPE_CHECKING:
    from pyiceberg.table import Table

Request = tuple[tuple[Any, ...], tuple[Any, ...]]
"""Updates of a table, and the requirements of the commit."""


class NotedOutputs:
    """A table's FileIO that records each file it writes: data, manifests and lists of manifests."""

    def __init__(self, io: Any) -> None:
        self._io = io
        self.paths: list[str] = []
        """Locations of the files that were written."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._io, name)

    def new_output(self, location: str) -> Any:
        """As in FileIO, and record `location`."""
        self.paths.append(location)
        return self._io.new_output(location)

    def discard(self) -> None:
        """Remove all files that were written, as far as the store allows."""
        for path in self.paths:
            with contextlib.suppress(Exception):  # never written, or the store is gone
                self._io.delete(path)


def with_noted_outputs(table: Table) -> tuple[Table, NotedOutputs]:
    """The table as it is loaded, and the record of the files that are written by it."""
    outputs = NotedOutputs(table.io)
    return type(table)(
        table.name(), table.metadata, table.metadata_location, outputs, table.catalog, table.config
    ), outputs


def has_landed(table: Table, snapshot_id: int, request: Request, outputs: NotedOutputs) -> bool:
    """Commit a new snapshot; False if another commit came first: then the written files are removed.

    Raises
    ------
    StorageError
        The commit may or may not be in the table.
    """
    former = {snapshot.snapshot_id for snapshot in table.snapshots()}
    try:
        try:
            table._do_commit(*request)  # noqa: SLF001 - public functions of pyiceberg 0.12 rebase
        except Exception as error:  # also if the client sent it twice because an answer was lost
            if not is_lost_race(error, table, request[0]):
                raise
            if table.metadata.snapshot_by_id(snapshot_id) is None and not _is_named(
                table, frozenset(outputs.paths), former
            ):
                outputs.discard()
                return False
    except Exception as error:  # any class of error: none of them proves that nothing was committed
        raise StorageError(
            f"cannot commit to table {table.location()}: {first_line(error)[:300]}",
            do=f"call again unless the table has snapshot {snapshot_id}: its files stay, as the table may name them",
        ) from error
    return True


def is_lost_race(error: Exception, table: Table, updates: Iterable[Any]) -> bool:
    """Whether a commit of `updates` ended in `error` because another one had come first; `table` is loaded anew."""
    from pyiceberg.exceptions import CommitFailedException  # noqa: PLC0415 - an extra

    table.refresh()
    return isinstance(error, CommitFailedException) or any(_is_late(table, update) for update in updates)


def _is_late(table: Table, update: Any) -> bool:
    """Whether every catalog refuses the update by now.

    A new snapshot is refused if its sequence number is not above those of all branches, a removal of snapshots if one
    of them is gone.
    """
    from pyiceberg.table.update import AddSnapshotUpdate, RemoveSnapshotsUpdate  # noqa: PLC0415 - an extra

    if isinstance(update, RemoveSnapshotsUpdate):
        return not all(map(table.snapshot_by_id, update.snapshot_ids))
    if not isinstance(update, AddSnapshotUpdate):
        return False
    number, has_parent = update.snapshot.sequence_number or 0, update.snapshot.parent_snapshot_id is not None
    return has_parent and table.metadata.format_version > 1 and number <= table.metadata.last_sequence_number


def _is_named(table: Table, files: frozenset[str], former: Container[int]) -> bool:
    """Whether snapshots other than the `former` ones name any of `files`.

    The snapshot that wrote them may be expired by now, and a catalog may list only the snapshots of branches and tags.
    """
    snapshots = [snapshot for snapshot in table.snapshots() if snapshot.snapshot_id not in former]
    manifests = [manifest for snapshot in snapshots for manifest in snapshot.manifests(table.io)]
    new = {manifest.manifest_path: manifest for manifest in manifests if manifest.added_snapshot_id not in former}
    entries = (entry for manifest in new.values() for entry in manifest.fetch_manifest_entry(table.io))
    return not files.isdisjoint(new) or any(entry.data_file.file_path in files for entry in entries)
