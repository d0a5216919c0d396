"""Iceberg tables: the files of one snapshot, without the rows that position deletes took.

`pyiceberg` reads metadata and manifests, and its FileIO opens data files in object stores.

- A `Table` is the metadata that it has loaded, until its `refresh` is called.
- The path of a metadata file is that metadata.
- `iceberg:CATALOG.NAMESPACE.TABLE` is the table as its catalog has it now.
- The folder of a table without a catalog is the newest metadata in it.
- An index of a catalog's table, opened without the table, asks the catalog of that name in pyiceberg's configuration.

Design: docs/design/tables.md#iceberg
"""

from __future__ import annotations

import contextlib
import re
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from zonebloom.bloom.addresses import MAX_ROWS
from zonebloom.formats.dataset import Declared
from zonebloom.formats.parquet.column_mapping import StoredName
from zonebloom.formats.table import TableDataset, TableFile, TableSnapshot, library
from zonebloom.formats.table_folders import METADATA_SUFFIX
from zonebloom.ground.arrow import distinct, from_values
from zonebloom.ground.arrow import parquet as pq
from zonebloom.ground.errors import (
    DataFileError,
    InvalidArgumentError,
    MissingDependencyError,
    StorageError,
    Words,
    ZoneBloomError,
    first_line,
)
from zonebloom.ground.threads import concurrently
from zonebloom.stores.fingerprint import Fingerprint
from zonebloom.stores.local_file import LocalFile
from zonebloom.stores.locations import is_url
from zonebloom.stores.ranges import coalesced, cut
from zonebloom.stores.store import ROUND_BYTES
from zonebloom.stores.stored_file import SeekableFile, StoredFile

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile as LoggedFile
    from pyiceberg.manifest import ManifestEntry
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table

_FILE = re.compile(r"file:(//)?(?=/)")
_WORD = 4
"""Bytes of the size before a deletion vector, and of the CRC-32 behind it."""
_CLIENTS = ("botocore.", "aiohttp.", "google.", "gcsfs.", "azure.", "sqlalchemy.", "thrift.")
"""Modules whose exceptions a FileIO or a catalog raises for an unreachable store; they are no OSError."""
_UNFIT = (
    *(ValueError, TypeError, NotImplementedError, LookupError, AttributeError, OverflowError),
    *(EOFError, SystemError, zlib.error),
)
"""Errors of pyiceberg for metadata, files, types and values that it cannot parse or write."""
_UNREACHABLE = re.compile(r"NETWORK_CONNECTION|could not connect|connection refused|timed? ?out", re.IGNORECASE)
_HELD_BYTES = 2 * ROUND_BYTES
"""Bytes of a file that are kept for later reads: a small row group, and the footer."""
_REQUESTS = 8
"""Ranges of a file that are requested at once."""
_HADOOP_VERSION = re.compile(r"v(\d+)(\.gz)?\.metadata\.json")


class IcebergDataset(TableDataset):
    """An Iceberg table."""

    def __init__(
        self,
        location: str,
        *,
        table: Table | None = None,
        metadata: str | None = None,
        catalog: str | None = None,
        name: Sequence[str] = (),
    ) -> None:
        super().__init__(location)
        self._table = table
        self._metadata = metadata
        self._catalog = catalog
        self._name = list(name)

    @classmethod
    def of_table(cls, table: Table) -> IcebergDataset:
        """The table that a `pyiceberg.table.Table` has loaded."""
        from pyiceberg.table import StaticTable  # noqa: PLC0415 - an extra; the caller has it

        location = plain_location(table.location())
        if isinstance(table, StaticTable):
            return cls(location, table=table, metadata=plain_location(table.metadata_location))
        return cls(location, table=table, catalog=table.catalog.name, name=table.name())

    @classmethod
    def of_name(cls, name: str) -> IcebergDataset:
        """The table of a name such as ``catalog.namespace.table``, by pyiceberg's configuration."""
        catalog, *names = name.split(".")
        if len(names) < 2 or not all(names):  # noqa: PLR2004 - a namespace and a table
            raise InvalidArgumentError("a table is named iceberg:CATALOG.NAMESPACE.TABLE", got=name)
        return cls.of_table(cls("", catalog=catalog, name=names).table())

    @classmethod
    def of_path(cls, path: str) -> IcebergDataset:
        """The table of a metadata file, or of a folder."""
        return cls(path, metadata=path)

    @classmethod
    def from_json(cls, described: Mapping[str, Any]) -> IcebergDataset:
        """The table that a version file describes, as it is now."""
        settings = {key: described[key] for key in ("metadata", "catalog", "name")}
        return cls(described["root"], **settings)

    def load(self, last: TableSnapshot | None) -> TableSnapshot:
        """The current snapshot of the loaded metadata, or of the newest metadata in the folder or the catalog."""
        table = self.table()
        if last is not None and last.identity == _identity(table):
            return last
        described = {"metadata": self._metadata, "catalog": self._catalog, "name": self._name}
        return _snapshot(table, {"kind": "iceberg", **described})

    def table(self) -> Table:
        """The loaded table, or the one of the newest metadata in the folder or the catalog."""
        return self._table if self._table is not None else self._found()

    def _found(self) -> Table:
        if self._catalog is not None:
            return self._of_catalog(self._catalog)
        location = self._metadata or self.location
        if not location.endswith(METADATA_SUFFIX):
            location = _newest_metadata(location)
        static_table = pyiceberg_tables().StaticTable
        with explained("Iceberg metadata", location):
            table: Table = static_table.from_metadata(location)
        return table

    def _of_catalog(self, catalog: str) -> Table:
        pyiceberg_tables()
        from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - an extra
        from pyiceberg.exceptions import NoSuchTableError, RESTError  # noqa: PLC0415 - an extra

        name = ".".join(self._name)
        try:
            return load_catalog(catalog).load_table(tuple(self._name))
        except NoSuchTableError as error:
            raise DataFileError(f"table {name} must be in catalog {catalog}", got="none") from error
        except Exception as error:  # catalogs' clients raise errors of any class
            if isinstance(error, (OSError, RESTError)) or type(error).__module__.startswith(_CLIENTS):
                raise StorageError(
                    f"cannot read table {name} of catalog {catalog}: {first_line(error)}",
                    do="check that the catalog is up",
                ) from error
            message = f"pyiceberg's configuration has no catalog {catalog} for table {name}: {first_line(error)}"
            raise InvalidArgumentError(message, do=Words.CATALOG) from error


def pyiceberg_tables() -> Any:
    """The module `pyiceberg.table`.

    Raises
    ------
    MissingDependencyError
        pyiceberg is not installed.
    """
    return library("pyiceberg.table", "pyiceberg", "Iceberg")


@contextlib.contextmanager
def explained(what: str, location: str, *, verb: str = "read") -> Iterator[None]:
    """Raise errors of pyiceberg in the block, which reads `what` at `location`, as errors of zonebloom.

    Raises
    ------
    DataFileError
        The file is missing, or pyiceberg cannot do with it what `verb` says.
    StorageError
        The store or the catalog cannot be reached or refuses.
    MissingDependencyError
        pyiceberg asks for a package that is not installed.
    """
    from pyiceberg.exceptions import NoSuchTableError, NotInstalledError, RESTError  # noqa: PLC0415 - an extra

    try:
        yield
    except ZoneBloomError:
        raise
    except (FileNotFoundError, NoSuchTableError) as error:
        raise DataFileError(f"{what} {location} must exist", got=first_line(error)) from error
    except NotInstalledError as error:
        raise MissingDependencyError(
            f"what pyiceberg needs to {verb} {what} {location} must be installed", got=first_line(error)
        ) from error
    except Exception as error:
        if isinstance(error, (OSError, RESTError)) or type(error).__module__.startswith(_CLIENTS):
            why = "no answer; check the endpoint and the network: " if _UNREACHABLE.search(str(error)) else ""
            raise StorageError(f"cannot {verb} {what} {location}: {why}{first_line(error)[:300]}") from error
        if isinstance(error, _UNFIT) or type(error).__module__.startswith("pyiceberg."):
            raise DataFileError(
                f"{what} {location} must be one that pyiceberg can {verb}", got=first_line(error)
            ) from error
        raise


def plain_location(location: str) -> str:
    """A local location as a path, another unchanged; Iceberg's locations are not percent-encoded."""
    match = _FILE.match(location)
    return (location[match.end() :] if match else location).rstrip("/")


def _newest_metadata(folder: str) -> str:
    """The newest metadata file in the folder of a table without a catalog.

    Raises
    ------
    DataFileError
        There is no metadata file.
    InvalidArgumentError
        The table has a catalog, and only the catalog knows the current file.
    """
    if is_url(folder):
        raise InvalidArgumentError(
            "an Iceberg table in an object store must be given as a Table or by its metadata file", got=folder
        )
    root = Path(folder) / "metadata"
    try:
        names = sorted(file.name for file in root.iterdir() if file.name.endswith(METADATA_SUFFIX))
    except OSError as error:
        raise DataFileError(f"{folder} must be the folder of an Iceberg table", got=first_line(error)) from error
    numbered = {int(match[1]): name for name in names if (match := _HADOOP_VERSION.fullmatch(name))}
    if len(numbered) == len(names) and names:
        return str(root / numbered[max(numbered)])
    message = f"{folder} must be a table that no catalog keeps, with metadata files v1{METADATA_SUFFIX} and on"
    raise InvalidArgumentError(
        f"{message}",
        got=names[-1] if names else "none",
        do="name it iceberg:CATALOG.NAMESPACE.TABLE, or give the path of the metadata file that is current",
    )


def _identity(table: Table) -> tuple[Any, ...]:
    """The identity of the metadata file: each commit and each change of the schema writes a new one."""
    metadata = table.metadata
    state = metadata.current_snapshot_id, metadata.last_updated_ms
    return "iceberg", str(metadata.table_uuid), table.metadata_location, *state


def _snapshot(table: Table, described: Mapping[str, Any]) -> TableSnapshot:
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
    identities = _Identities(table, arrow)
    naming = _Names(table).name_of
    files: dict[str, TableFile] = {}
    for logged in (task.file for task in tasks):
        path, origin = relative_path(logged.file_path, location), origins[logged.file_path]
        files[path] = _file(logged, origin, identities, naming, location)
    if len(files) != len(tasks):
        raise DataFileError(f"a snapshot of {location} must list each file once", got="some twice")
    with_deletes = [task for task in tasks if task.delete_files]
    ids = {name: str(schema.find_field(name).field_id) for name in schema.column_names}
    constant = [field for field in arrow if field.name in identities.columns and not pa.types.is_floating(field.type)]
    state = {"snapshot_id": table.metadata.current_snapshot_id}
    return TableSnapshot(
        location,
        _identity(table),
        Declared(arrow, (), ids, state, tuple(field.name for field in constant)),
        dict(sorted(files.items())),
        partial(_opened, table.io),
        partial(_deleted_rows, table.io, location, with_deletes) if with_deletes else None,
        described,
        is_index_inside=False,
    )


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
    logged: LoggedFile, origin: str, identities: _Identities, naming: Callable[[StoredName], str | None], location: str
) -> TableFile:
    kind = str(logged.file_format).rpartition(".")[2].upper()
    if kind != "PARQUET":
        raise DataFileError(f"data files of {location} must be Parquet", got=f"{kind}: {logged.file_path}")
    fingerprint = Fingerprint(logged.file_size_in_bytes, 0, origin)
    values, unsure = identities.values(logged), identities.unsure(logged)
    return TableFile(fingerprint, plain_location(logged.file_path), values, naming, unsure)


def relative_path(path: str, location: str) -> str:
    """A path relative to the table's location if it is below it; other paths unchanged."""
    plain, root = plain_location(path), plain_location(location)
    return plain[len(root) + 1 :] if plain.startswith(f"{root}/") else plain


def _refuse_defaults(schema: Schema, location: str) -> None:
    for name in schema.column_names:
        field = schema.find_field(name)
        if field.initial_default is not None:
            raise DataFileError(
                f"columns of {location} must be null in files without them",
                got=f"{name} with the initial default {field.initial_default!r}",
            )


# --- files ------------------------------------------------------------------------------------------------------------


class _FileIOSource:
    """A file that is read through the table's FileIO, with the credentials of its catalog; `size` is the manifest's."""

    is_remote = True

    def __init__(self, io: FileIO, location: str, size: int) -> None:
        self.path = location
        self.fingerprint = Fingerprint(size, 0)
        with explained("data file", location):
            file = io.new_input(location).open(seekable=True)
        self._file = file if isinstance(file, pa.NativeFile) else pa.PythonFile(file, "r")
        self._held: list[tuple[int, memoryview]] = []

    def current_fingerprint(self) -> Fingerprint:
        """The same: files of a table never change."""
        return self.fingerprint

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """As `StoredFile.read_ranges`."""
        return list(concurrently(lambda part: self._read(*part), ranges, _REQUESTS))

    def _read(self, offset: int, length: int) -> bytes:
        held = cut(self._held, offset, length)
        if len(held) == length:
            return held
        with explained("data file", self.path):
            data: bytes = self._file.read_at(length, offset)
        return data

    def will_need(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Read near ranges `(offset, length)` together, if they are few bytes: the FileIO cannot read ahead."""
        parts = coalesced(ranges)
        is_held = all(len(cut(self._held, *part)) == part[1] for part in parts)
        if not is_held and sum(length for _, length in parts) <= _HELD_BYTES:
            blobs = self.read_ranges(parts)
            self._held = [(offset, memoryview(blob)) for (offset, _), blob in zip(parts, blobs, strict=True)]

    def arrow_file(self) -> Any:
        """The opened file, with its own position."""
        return pa.PythonFile(SeekableFile(self.fingerprint.size, self._read), mode="r")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _opened(io: FileIO, location: str, size: int) -> StoredFile:
    return _FileIOSource(io, location, size) if is_url(location) else LocalFile(Path(location))


def _deleted_rows(io: FileIO, location: str, tasks: Iterable[FileScanTask]) -> Mapping[str, NDArray[np.int64]]:
    """The deleted rows of the files that have some, by path; each delete file is read once."""
    read: dict[str, Mapping[str, NDArray[np.int64]]] = {}
    deleted: dict[str, NDArray[np.int64]] = {}
    for task in tasks:
        parts = []
        for deletes in task.delete_files:
            if deletes.file_path not in read:
                read[deletes.file_path] = _positions(io, deletes)
            parts.append(read[deletes.file_path].get(task.file.file_path, np.zeros(0, np.int64)))
        rows = distinct(np.concatenate(parts))
        rows = rows[(rows >= 0) & (rows < MAX_ROWS)]  # others delete nothing, for pyiceberg too
        if len(rows):
            deleted[relative_path(task.file.file_path, location)] = rows
    return deleted


def _positions(io: FileIO, deletes: LoggedFile) -> dict[str, NDArray[np.int64]]:
    """The positions in one delete file, by data file."""
    kind = str(deletes.file_format).rpartition(".")[2].upper()
    if kind not in ("PUFFIN", "PARQUET"):
        raise DataFileError("delete files must be Parquet or Puffin", got=f"{kind}: {deletes.file_path}")
    with explained("delete file", deletes.file_path), io.new_input(deletes.file_path).open() as file:
        payload = file.read()
    try:
        if kind == "PUFFIN":
            return _vectors(payload)
        return _grouped(pq.read_table(pa.BufferReader(payload), columns=["file_path", "pos"]))
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise DataFileError(f"delete file {deletes.file_path} must be readable", got=first_line(error)) from error


def _vectors(payload: bytes) -> dict[str, NDArray[np.int64]]:
    from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file  # noqa: PLC0415 - an extra
    from pyiceberg.table.puffin import PuffinFile  # noqa: PLC0415 - an extra

    puffin = PuffinFile(payload)
    for blob in puffin.footer.blobs:  # pyiceberg 0.12 checks none
        data = puffin.get_blob_payload(blob)
        size = int.from_bytes(data[:_WORD], "big")
        body, checksum = data[_WORD : _WORD + size], data[_WORD + size :]
        if zlib.crc32(body).to_bytes(_WORD, "big") != checksum:
            raise ValueError(f"a vector of {blob.properties.get('referenced-data-file')} with another checksum")
    vectors = deletion_vectors_from_puffin_file(puffin)
    return {vector.referenced_data_file: vector.to_vector().to_numpy().astype(np.int64) for vector in vectors}


def _grouped(table: pa.Table) -> dict[str, NDArray[np.int64]]:
    paths = table["file_path"].combine_chunks().dictionary_encode()
    positions = table["pos"].to_numpy().astype(np.int64)
    codes = paths.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    cuts = np.searchsorted(codes[order], np.arange(len(paths.dictionary) + 1))
    names = paths.dictionary.to_pylist()
    return {name: positions[order[cuts[i] : cuts[i + 1]]] for i, name in enumerate(names)}


# --- columns ----------------------------------------------------------------------------------------------------------


class _Names:
    """Names by field id; for files without ids by the table's name mapping, if it has one."""

    def __init__(self, table: Table) -> None:
        schema = table.schema()
        fields = [schema.find_field(name) for name in schema.column_names]
        self._by_id = {field.field_id: field.name for field in fields}
        self._location = table.location()
        self._by_path: dict[tuple[str, ...], int] | None = None
        mapping = table.name_mapping()
        if mapping is not None:
            self._by_path = dict(_mapped(mapping, ()))

    def name_of(self, stored: StoredName) -> str | None:
        """The table's name of a stored column; None if the table has dropped the column."""
        field_id = stored.field_id
        if field_id is None:
            if self._by_path is None:
                raise DataFileError(
                    f"files of {self._location} must have field ids, or the table a name mapping",
                    got=f"none for {'.'.join(stored.path)}",
                )
            field_id = self._by_path.get(stored.path)
        return None if field_id is None else self._by_id.get(field_id)


def _mapped(fields: Iterable[Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
    for field in fields:
        for name in field.names:
            if field.field_id is not None:
                yield (*path, name), field.field_id
            yield from _mapped(field.fields, (*path, name))


class _Identities:
    """Partitions by a column's own value: the value excludes files, and is used for files without the column.

    If a file has the column, its own values count. Floating-point values exclude nothing: pyiceberg 0.12 reads a
    double in the log as a float, and writes one of both zeros for files with either. Nor does a value whose file has
    another number of nulls: pyiceberg's add_files takes it from bounds, which ignore nulls and may be missing.
    """

    def __init__(self, table: Table, arrow: pa.Schema) -> None:
        from pyiceberg.transforms import IdentityTransform  # noqa: PLC0415 - an extra

        schema = table.schema()
        top = {field.field_id: arrow.field(field.name) for field in schema.fields}
        self._places: dict[int, list[tuple[int, int, pa.Field]]] = {}
        for spec_id, spec in table.specs().items():
            own = [
                (place, part) for place, part in enumerate(spec.fields) if isinstance(part.transform, IdentityTransform)
            ]
            self._places[spec_id] = [
                (place, part.source_id, top[part.source_id]) for place, part in own if part.source_id in top
            ]
        self.columns = {field.name for places in self._places.values() for _place, _id, field in places}

    def values(self, logged: LoggedFile) -> dict[str, pa.Scalar]:
        """The values in the log for a file."""
        return {
            field.name: _scalar(logged.partition[place], field.type)
            for place, _id, field in self._places.get(logged.spec_id or 0, [])
        }

    def unsure(self, logged: LoggedFile) -> frozenset[str]:
        """Columns of `values` with another number of nulls in the file."""
        num_nulls = logged.null_value_counts or {}
        return frozenset(
            field.name
            for place, field_id, field in self._places.get(logged.spec_id or 0, [])
            if num_nulls.get(field_id, 0) != (logged.record_count if logged.partition[place] is None else 0)
        )


def _scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    """A value of Iceberg, such as days or microseconds since 1970, as an Arrow scalar."""
    t = pa.types
    if value is None:
        return pa.scalar(None, kind)
    if t.is_date32(kind):
        return pa.scalar(value, pa.int32()).cast(kind)
    if isinstance(value, int) and (t.is_timestamp(kind) or t.is_time64(kind)):
        return pa.scalar(value, pa.int64()).cast(kind)
    return from_values([value], kind)[0]
