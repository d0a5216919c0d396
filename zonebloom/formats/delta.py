"""Delta tables: the files of one version of the log, without the rows that deletion vectors took.

`deltalake` reads the log. A path is the newest version at each call; a `DeltaTable` is the version that it has loaded,
until its `update_incremental` is called.

Design: docs/design/tables.md#delta
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import time
from collections.abc import Callable, Container, Iterator, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import xxhash

from zonebloom.formats.dataset import Declared, path_id
from zonebloom.formats.parquet.column_mapping import StoredName
from zonebloom.formats.table import TableDataset, TableFile, TableSnapshot, library, raise_store_error
from zonebloom.formats.table_folders import LOG_FOLDER, advice_if_replaced
from zonebloom.ground.arrow import is_bytes
from zonebloom.ground.errors import DataFileError, InvalidArgumentError, first_line
from zonebloom.stores.fingerprint import Fingerprint
from zonebloom.stores.locations import Url, absolute, is_url, joined
from zonebloom.stores.open import open_store
from zonebloom.stores.store import Store
from zonebloom.stores.stored_file import StoredFile

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from numpy.typing import NDArray

_READ_WITH_VECTORS = frozenset({"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint"})
"""Reader features with which every release of `deltalake` can read deletion vectors."""
_READER_FEATURES = _READ_WITH_VECTORS | {
    *("typeWidening", "typeWidening-preview", "vacuumProtocolCheck"),
    *("variantShredding", "variantShredding-preview", "variantType", "variantType-preview"),
}
"""Reader features that are supported here or in `deltalake`, or that do not affect indexed columns."""
_RETRIES = {"max_retries": "5", "retry_timeout": "10s"}
"""Retries of requests for the log: an unreachable store is an error within seconds."""
_ORNAMENT = re.compile(r"\s*\n\s*(?:\x1b\[\d+m)*(?:↳|\d+:)?(?:\x1b\[\d+m)*\s*")
"""Separators of the parts of a message of deltalake."""
_CHAR = b"__CHAR_VARCHAR_TYPE_STRING"
_MAPPING = "delta.columnMapping"
PHYSICAL_NAME = "delta.columnMapping.physicalName"
"""Key of a column's metadata: its name in the files."""
_NS_OF_MS = 1_000_000
_TIMES = 1 << 63
"""Nanoseconds: times of files are taken modulo this number, as some writers give microseconds for milliseconds."""
_SETTLED_NS = 2_000_000_000
"""Nanoseconds: a local log whose last entry is younger is read again, as a rewritten entry may have the same time."""
UNESCAPED = "/!$&'()+,:;=@"
"""What deltalake 1.6 leaves as it is in a path, beside letters of ASCII, digits and -._~.

With another spelling of a location it finds no deletion vector in an object store.
"""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


class DeltaDataset(TableDataset):
    """A Delta table."""

    def __init__(self, store: Store, *, table: DeltaTable | None = None) -> None:
        super().__init__(store.location)
        self.store = store
        self._table = table

    @classmethod
    def of_table(cls, table: DeltaTable) -> DeltaDataset:
        """The table that a `DeltaTable` has loaded."""
        location = unquote(table.table_uri) if is_url(table.table_uri) else table.table_uri
        return cls(open_store(location, table._storage_options), table=table)  # noqa: SLF001 - it has no public name

    def load(self, last: TableSnapshot | None) -> TableSnapshot:
        """The newest version, or the version that the given `DeltaTable` has loaded."""
        if self._table is not None:
            return self._copied(self._table, last)
        if last is not None and last.seen is not None and last.seen == self._entry(last.identity[2]):
            return last
        started = time.time_ns()
        table = _opened(self.store)
        entry = self._entry(table.version())
        is_settled = entry is not None and (entry.etag is not None or entry.mtime_ns + _SETTLED_NS < started)
        snapshot = _snapshot(table, self.store, _identity(table, entry or started))
        snapshot.seen = entry if is_settled else None
        return snapshot

    def _copied(self, table: DeltaTable, last: TableSnapshot | None) -> TableSnapshot:
        """All that `table` has loaded, copied at once; `last` as long as it has loaded nothing else.

        A log that is cleaned later, or is from a backup now, changes nothing of it.
        """
        while True:  # another thread may update it
            identity = self._loaded(table, last)
            if last is not None and last.identity == identity:
                return last
            try:
                last = _snapshot(table, self.store, identity, is_given=True)
            except DataFileError:
                if self._loaded(table, last) == identity:
                    raise

    def _loaded(self, table: DeltaTable, last: TableSnapshot | None) -> tuple[Any, ...]:
        """The identity of what `table` has loaded; the entry in the log stands for deletion vectors."""
        entry = None
        if "deletionVectors" in (table.protocol().reader_features or ()):
            path = _entry_path(table.version())
            entry = self.store.stats([path]).get(path) or (last and last.identity[-1])
        return _identity(table, _contents(table), entry)

    def forget_object(self) -> None:
        """Load the newest version from now on, also if a `DeltaTable` was given."""
        self._table = None

    def table(self) -> DeltaTable:
        """The loaded table, or the newest version."""
        return _opened(self.store) if self._table is None else self._table

    def _entry(self, version: int) -> Fingerprint | None:
        """The log's entry of a version; None if the log does not end with it."""
        last, following = map(_entry_path, (version, version + 1))
        entries = self.store.stats([last, following])
        return None if following in entries else entries.get(last)


def _entry_path(version: int) -> str:
    return f"{LOG_FOLDER}/{version:020d}.json"


def _opened(store: Store, version: int | None = None) -> DeltaTable:
    location = store.location
    if unquote(location) != location or (not is_url(location) and "\\" in location):
        raise InvalidArgumentError(
            "the location of a Delta table must have no backslash, and no % before two hexadecimal digits",
            got=location,
            do="deltalake reads another folder there: move or rename it",
        )
    opened = _library().DeltaTable
    with _explained(location, "the log"):
        if not is_url(location):
            local: DeltaTable = opened(location, version)
            return local
        url = Url.parse(location)
        place = f"{url.root}/{quote(url.key, safe=UNESCAPED)}"
        remote: DeltaTable = opened(place, version, {**_RETRIES, **(store.options or {})})
        return remote


@contextlib.contextmanager
def _explained(location: str, what: str, do: str | None = None) -> Iterator[None]:
    """Raise errors of deltalake in the block as errors of zonebloom.

    Raises
    ------
    DataFileError
        `what` of the table cannot be read.
    StorageError
        The store of the table cannot be reached or refuses.
    """
    try:
        yield
    except (_library().exceptions.DeltaError, pa.ArrowException, OSError, ValueError) as error:
        raise_store_error(location, _ORNAMENT.sub(": ", str(error)))
        do = do or advice_if_replaced(location, "delta")
        raise DataFileError(f"{what} of {location} must be readable", got=first_line(error), do=do) from error


def _library() -> Any:
    return library("deltalake", "deltalake", "Delta")


def _identity(table: DeltaTable, *what: object) -> tuple[Any, ...]:
    """The version and `what` it is, as a log from a backup may go on with other entries of the same numbers."""
    return ("delta", str(table.metadata().id), table.version(), *what)


def _contents(table: DeltaTable) -> str:
    """A digest of the columns and files that `table` has loaded. Cost: 0.3 µs a file."""
    digest = xxhash.xxh3_128(f"{table.schema().to_json()}{table.metadata().configuration}".encode())
    actions = pa.table(table.get_add_actions())
    for column in map(actions.column, ("path", "size_bytes", "modification_time")):  # which have no null
        for buffer in itertools.chain.from_iterable(chunk.buffers() for chunk in column.chunks):
            digest.update(b"" if buffer is None else buffer)
    return digest.hexdigest()


def _snapshot(table: DeltaTable, store: Store, identity: tuple[Any, ...], *, is_given: bool = False) -> TableSnapshot:
    """The version that `table` has loaded; a table that was given may load another later."""
    location = store.location
    features = _reader_features(table, location)
    mode = mapping_mode(table)
    if mode not in ("none", "name", "id"):
        raise DataFileError(f"{_MAPPING}.mode of {location} must be none, name or id", got=mode)
    names = _names(table.schema().to_json(), mode)
    version = identity[2]
    with _explained(location, "the log"):
        arrow = pa.schema(list(map(_with_char, pa.schema(table.schema().to_arrow()))))
        files = _files(table, location, names.name_of)
    declared = Declared(arrow, tuple(table.metadata().partition_columns), names.ids, {"table_version": version})
    deletes = None
    if "deletionVectors" in features:
        deletes = partial(_deleted_rows, table, location, files)
        if is_given or not features <= _READ_WITH_VECTORS:
            rows = deletes()  # deltalake may fail with other features: an error now is better than at the first scan
            deletes = partial(dict, rows)
    return TableSnapshot(
        location,
        identity,
        declared,
        files,
        partial(_open, store),
        deletes,
        {"kind": "delta"},
        is_index_inside=True,
        store=store,
    )


def _with_char(field: pa.Field) -> pa.Field:
    """The field with no metadata but Spark's type CHAR(n), whose texts Spark pads before it compares them."""
    kept = {key: text for key, text in (field.metadata or {}).items() if key == _CHAR}
    return field.with_metadata(kept) if kept else field.remove_metadata()


def mapping_mode(table: DeltaTable) -> str:
    """How files name the table's columns: `none`, `name` or `id`; the property counts if the protocol has the feature.

    Spec: Delta's protocol, "Column Mapping".
    """
    protocol = table.protocol()
    features = protocol.reader_features
    is_mapped = protocol.min_reader_version > 1 if features is None else "columnMapping" in features
    return str(table.metadata().configuration.get(f"{_MAPPING}.mode", "none")) if is_mapped else "none"


def _open(store: Store, location: str, size: int) -> StoredFile:
    return store.open(location[len(store.location) + 1 :], Fingerprint(size, 0))


def _reader_features(table: DeltaTable, location: str) -> frozenset[str]:
    features = frozenset(table.protocol().reader_features or ())
    strange = sorted(features - _READER_FEATURES)
    if strange:
        raise DataFileError(
            f"the Delta table {location} must ask its readers for known features only",
            got=", ".join(strange),
            do="its files must be read by an engine that knows them",
        )
    return features


def _files(table: DeltaTable, location: str, naming: Callable[[StoredName], str | None]) -> dict[str, TableFile]:
    """The data files of the loaded version, by path in order."""
    actions = pa.table(table.get_add_actions())
    written = actions["path"].to_pylist()
    sizes = actions["size_bytes"].to_pylist()
    written_at = actions["modification_time"].to_pylist()
    parts: list[tuple[str, pa.ChunkedArray]] = []
    if "partition" in actions.column_names:
        struct = actions["partition"].combine_chunks()
        parts = [(field.name, struct.field(field.name)) for field in struct.type]
        if wrong := [field.name for field in struct.type if is_bytes(field.type)]:
            raise DataFileError(
                f"columns by which the Delta table {location} is partitioned must not be of bytes",
                got=", ".join(wrong),
                do="partition it by another column: readers disagree about the bytes that its log writes",
            )
    files = {}
    for row, (encoded, size, at) in enumerate(zip(written, sizes, written_at, strict=True)):
        path = path_in_table(encoded, location)
        values = {name: column[row] for name, column in parts}
        fingerprint = Fingerprint(size, at * _NS_OF_MS % _TIMES)
        files[path] = TableFile(fingerprint, joined(location, path), values, naming)
    if len(files) != len(written):
        raise DataFileError(f"a version of {location} must list each file once", got="some twice")
    return dict(sorted(files.items()))


def path_in_table(encoded: str, location: str) -> str:
    """The path of a file in the folder of its table, from the percent-encoded path in the log.

    Raises
    ------
    DataFileError
        The file is elsewhere: the table is a shallow clone.
    """
    path = unquote(encoded)
    if not _SCHEME.match(encoded):
        whole = _resolved(path if path.startswith("/") else joined(location, path))
    elif encoded[:5].lower() == "file:" or not is_url(encoded):
        whole = absolute(encoded)
    else:
        whole = absolute(_resolved(path))
    if not whole.startswith(f"{location}/"):
        raise DataFileError(
            f"files of the Delta table {location} must lie in its folder",
            got=path,
            do="index the table that it was cloned from",
        )
    return whole[len(location) + 1 :]


def _resolved(path: str) -> str:
    """`path` without the parts `.` and `..`, which are those of a URL in the log: they follow no link."""
    if "/." not in path:
        return path
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def _deleted_rows(table: DeltaTable, location: str, files: Container[str]) -> Mapping[str, NDArray[np.int64]]:
    """The deleted rows of those of the `files` that have some, by path; the log is not read again."""
    root = f"{table.table_uri.rstrip('/')}/"
    deleted: dict[str, NDArray[np.int64]] = {}
    do = "in an object store deltalake finds none below such a name: rename it" if _is_escaped(root) else None
    with _explained(location, "the deletion vectors", do):
        for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()):
            for uri, kept in zip(batch["filepath"].to_pylist(), batch["selection_vector"], strict=True):
                path = unquote(uri.removeprefix(root))  # deltalake encodes the path once, though the log may have it so
                if not uri.startswith(root) or path not in files or path in deleted:
                    raise DataFileError(f"deleted rows must be of one file of {location}", got=uri)
                mask = kept.values.to_numpy(zero_copy_only=False)
                deleted[path] = np.flatnonzero(~mask)
    return deleted


def _is_escaped(uri: str) -> bool:
    """Whether deltalake 1.6 looks below another URL for deletion vectors, as it escapes an escape, and `~`, again."""
    return is_url(uri) and not {"%", "~"}.isdisjoint(uri)


# --- column mapping ---------------------------------------------------------------------------------------------------


@lru_cache(16)
def _names(schema: str, mode: str) -> _Names:
    """The same object for the same columns: its footers stay in memory from version to version."""
    return _Names(json.loads(schema), mode)


class _Names:
    """The columns of a table by their names in the files.

    - `ids`: by dotted logical name, the id of the path in the files. Of several columns with a name, `resolve_column`
      means the one with the longest names, which is collected first.
    """

    def __init__(self, schema: Mapping[str, Any], mode: str) -> None:
        self.mode = mode
        self.ids: dict[str, str] = {}
        self._by_path: dict[tuple[str, ...], str] = {}
        self._by_id: dict[int, str] = {}
        self._structs: set[tuple[str, ...]] = set()
        self._collect(schema, (), (), is_item=False)
        self._folded = set(map(_folded, self._by_path))

    def _collect(
        self, struct: Mapping[str, Any], logical: tuple[str, ...], physical: tuple[str, ...], *, is_item: bool
    ) -> None:
        self._structs.add(physical)
        for field in sorted(struct["fields"], key=lambda field: -len(field["name"])):
            metadata = field.get("metadata", {}) if self.mode != "none" else {}
            name, stored = field["name"], metadata.get(PHYSICAL_NAME, field["name"])
            logical_path, stored_path = (*logical, name), (*physical, stored)
            self._by_path[stored_path] = name
            if f"{_MAPPING}.id" in metadata:
                self._by_id[int(metadata[f"{_MAPPING}.id"])] = name
            if not is_item and self.mode != "none":
                self.ids.setdefault(".".join(logical_path), path_id(stored_path))
            for inner, place in _structs(field["type"], ()):
                self._collect(inner, (*logical_path, *place), (*stored_path, *place), is_item=is_item or bool(place))

    def name_of(self, stored: StoredName) -> str | None:
        """The table's name of a stored column; None if the table does not have the column.

        What is no field of a struct of the table keeps its name, such as a part of a variant.

        Raises
        ------
        LookupError
            The column has no field id, or only its case differs from that of a column of the table.
        """
        if self.mode != "id":
            name = self._by_path.get(stored.path)
            if name is None and _folded(stored.path) in self._folded:  # Spark reads it, deltalake has nulls
                raise LookupError(f"{'.'.join(stored.path)}, spelled in another case; rewrite the file by Spark")
            return stored.path[-1] if stored.path[:-1] not in self._structs else name
        if stored.field_id is None:
            raise LookupError(f"no field id of {'.'.join(stored.path)}, which mapping mode id needs")
        return self._by_id.get(stored.field_id)


def _folded(path: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(str.lower, path))


def _structs(kind: Any, place: tuple[str, ...]) -> Iterator[tuple[Mapping[str, Any], tuple[str, ...]]]:
    """The structs of a type: itself, or the items of its lists and maps, at any depth."""
    if not isinstance(kind, dict):
        return
    if kind["type"] == "struct":
        yield kind, place
    elif kind["type"] == "array":
        yield from _structs(kind["elementType"], (*place, "element"))
    elif kind["type"] == "map":
        yield from _structs(kind["keyType"], (*place, "key"))
        yield from _structs(kind["valueType"], (*place, "value"))
