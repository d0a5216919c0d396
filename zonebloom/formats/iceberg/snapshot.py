"""One version of a table: its data files, their values by partitions, and its columns."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from zonebloom.formats.dataset import Declared
from zonebloom.formats.iceberg.columns import Identities, Names
from zonebloom.formats.iceberg.deleted_rows import deleted_rows
from zonebloom.formats.iceberg.errors import explained, pyiceberg_tables
from zonebloom.formats.iceberg.files import opened
from zonebloom.formats.iceberg.locations import plain_location, relative_path
from zonebloom.formats.parquet.column_mapping import StoredName
from zonebloom.formats.table import TableFile, TableSnapshot
from zonebloom.ground.errors import DataFileError, first_line
from zonebloom.stores.fingerprint import Fingerprint

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile as LoggedFile, ManifestEntry
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table


def identity_of(table: Table) -> tuple[Any, ...]:
    """The identity of the metadata file: each commit and each change of the schema writes a new one."""
    metadata = table.metadata
    state = metadata.current_snapshot_id, metadata.last_updated_ms
    return "iceberg", str(metadata.table_uuid), table.metadata_location, *state


def snapshot_of(table: Table, described: Mapping[str, Any]) -> TableSnapshot:
    """The current version of a loaded table; a version file describes the table by `described`.

    Raises
    ------
    DataFileError
        pyiceberg cannot read the table, a data file is not Parquet, or a column has a default other than null.
    StorageError
        The store cannot be reached or refuses.
    """
    from pyiceberg.io.pyarrow import schema_to_pyarrow  # noqa: PLC0415 - an extra

    schema, location = table.schema(), plain_location(table.location())
    _refuse_defaults(schema, location)
    with explained("the manifests of", location):
        try:
            tasks, origins = planned(table)
            arrow = schema_to_pyarrow(schema, include_field_ids=False)
        except (ValueError, NotImplementedError, TypeError) as error:  # pyiceberg knows no equality deletes
            raise DataFileError(
                f"table {location} must have position deletes and known types only",
                got=first_line(error),
                do="rewrite its data files with the engine that wrote them",
            ) from error
    identities = Identities(table, arrow)
    with explained("the name mapping of", location):
        names = Names(table)
    files: dict[str, TableFile] = {}
    with explained("the data files of", location):
        for logged in (task.file for task in tasks):
            path, origin = relative_path(logged.file_path, location), origins[logged.file_path]
            files[path] = _file(logged, origin, identities, names.name_of, location)
    if len(files) != len(tasks):
        raise DataFileError(f"a snapshot of {location} must list each file once", got="some twice")
    with_deletes = [task for task in tasks if task.delete_files]
    constant = [field for field in arrow if field.name in identities.columns and not pa.types.is_floating(field.type)]
    state = {"snapshot_id": table.metadata.current_snapshot_id}
    return TableSnapshot(
        location,
        identity_of(table),
        Declared(arrow, (), names.ids(), state, tuple(field.name for field in constant)),
        dict(sorted(files.items())),
        partial(opened, table.io),
        partial(deleted_rows, table.io, location, with_deletes) if with_deletes else None,
        described,
        is_index_inside=False,
    )


def renew_access(snapshot: TableSnapshot, table: Table) -> None:
    """Read the files of `snapshot` as `table` does from now on: a catalog may give new credentials with each load."""
    snapshot.opener = partial(opened, table.io)
    if isinstance(snapshot.deletes, partial):
        snapshot.deletes = partial(deleted_rows, table.io, *snapshot.deletes.args[1:])


def planned(table: Table) -> tuple[list[FileScanTask], dict[str, str]]:
    """The data files of the current snapshot, each with its deletes, and the origin of each file by its path.

    The origin is the table, by its UUID and its location, and the snapshot that added the file. The bytes under a name
    are the same as long as the origin is: a table made anew has another UUID, a file that came back under its name
    another snapshot, and below another location a relative path is another file.
    """
    origins: dict[str, str] = {}
    origin = uuid.uuid5(table.metadata.table_uuid, plain_location(table.location()))

    def is_noted(entry: ManifestEntry) -> bool:
        partition = entry.data_file.partition
        values = [partition[place] for place in range(len(partition))]
        if entry.data_file.content and any(value != value for value in values):  # noqa: PLR0124 - NaN
            raise ValueError("deletes in a partition of NaN, which pyiceberg gives to no file")
        origins[entry.data_file.file_path] = f"{origin}:{entry.snapshot_id}"
        return True

    snapshot = table.metadata.current_snapshot()
    manifests = [] if snapshot is None else snapshot.manifests(table.io)
    planner = pyiceberg_tables().ManifestGroupPlanner(table.metadata, table.io)
    return list(planner.plan_files(manifests, is_noted)), origins


def _file(
    logged: LoggedFile, origin: str, identities: Identities, naming: Callable[[StoredName], str | None], location: str
) -> TableFile:
    kind = str(logged.file_format).rpartition(".")[2].upper()
    if kind != "PARQUET":
        raise DataFileError(f"data files of {location} must be Parquet", got=f"{kind}: {logged.file_path}")
    fingerprint = Fingerprint(logged.file_size_in_bytes, 0, origin)
    values, unsure = identities.values(logged), identities.unsure(logged)
    return TableFile(fingerprint, plain_location(logged.file_path), values, naming, unsure)


def _refuse_defaults(schema: Schema, location: str) -> None:
    for name in schema.column_names:
        field = schema.find_field(name)
        if field.initial_default is not None:
            raise DataFileError(
                f"columns of {location} must be null in files without them",
                got=f"{name} with the initial default {field.initial_default!r}",
            )
