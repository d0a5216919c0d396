"""Lance tables: the fragments of one version, read by pylance, without the rows that were deleted.

The files of the data set are Lance's fragments. Path `fragments/0000000017` is the fragment 17, and row offsets are
Lance's physical ones: deleted rows count. A path means the newest version at each call; a `lance.LanceDataset` for
the version that it has loaded.

Design: docs/design/tables.md#lance
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from zonebloom.bloom import hashing
from zonebloom.formats.dataset import Declared
from zonebloom.formats.index_location import root_of
from zonebloom.formats.lance_manifest import branch_of, manifest_of
from zonebloom.formats.parquet.file import has_column, places_of
from zonebloom.formats.table import TableDataset, TableFile, TableSnapshot, library, raise_store_error
from zonebloom.formats.table_folders import BRANCHES_FOLDER, VERSIONS_FOLDER, advice_if_replaced
from zonebloom.ground.arrow import plain_array, to_numpy
from zonebloom.ground.cached import cached_property
from zonebloom.ground.errors import DataFileError, InvalidArgumentError, first_line
from zonebloom.stores.fingerprint import Fingerprint
from zonebloom.stores.local_file import LocalFile
from zonebloom.stores.locations import absolute, is_url
from zonebloom.stores.stored_file import ByteRange

if TYPE_CHECKING:
    from lance import LanceDataset as LanceTable, LanceFragment
    from numpy.typing import ArrayLike, NDArray

_FOLDER = "fragments/"
_GROUP_ROWS = 1 << 17
"""Rows that one step of a scan reads; fragments have no row groups."""
_BATCH_ROWS = 1 << 16
_TAKEN_ROWS = 256
"""Rows a range, on average, up to which rows are taken by number: 2 µs each, and a range 0.5 ms (pylance 14)."""
_BLOBS: dict[str, Any] = {"blob_handling": "all_binary"}
"""Options of a scan that gives blobs as bytes, in each format; by default it gives their places."""
_MUTABLE = ("deletion_file", "row_id_meta", "created_at_version_meta", "last_updated_at_version_meta")
"""Fields of a fragment's metadata that may change while its rows keep their addresses."""
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
"""Names of fields that Lance finds in a path with dots."""
_IN_RUST = re.compile(r",? \S+\.rs:\d+:\d+")
"""Where Lance's own code raised an error."""
_WAITS, _WAIT_S = 2000, 0.01
"""Attempts to copy a `LanceDataset`, and seconds between them."""
_SETTLED_NS = 2_000_000_000
"""A table whose last commit is younger is read again: the next commit may leave the same time."""


class LanceDataset(TableDataset):
    """A Lance table, as it is at each call."""

    def __init__(
        self, location: str, storage_options: Mapping[str, str] | None = None, *, table: LanceTable | None = None
    ) -> None:
        super().__init__(absolute(location).rstrip("/"))
        if is_url(self.location) and set("#?") & set(self.location):
            raise InvalidArgumentError(
                "the URL of a Lance table must have no # and no ?",
                got=self.location,
                do="Lance cuts the URL there and would write over other objects",
            )
        self.storage_options: dict[str, str] = dict(storage_options or {})
        self._table = table

    @classmethod
    def of_table(cls, table: LanceTable) -> LanceDataset:
        """The version that a `lance.LanceDataset` has loaded.

        Its location is the folder of its branch, however it was opened: Lance opens that folder as the branch.
        """
        still = _unmoved(table)
        branch, location = branch_of(still), still.uri.rstrip("/")
        if branch is not None and not location.endswith(f"/{BRANCHES_FOLDER}/{branch}"):
            location = f"{location}/{BRANCHES_FOLDER}/{branch}"
        return cls(location, still.latest_storage_options(), table=table)

    @classmethod
    def from_json(
        cls, described: Mapping[str, Any], index_location: str, storage_options: Mapping[str, str] | None = None
    ) -> LanceDataset:
        """The table that a version file describes, as it is now."""
        return cls(root_of(described["root"], index_location.rstrip("/")), storage_options)

    def load(self, last: TableSnapshot | None) -> TableSnapshot:
        """The newest version, or the version that the given table has loaded; `last` if nothing changed."""
        if self._table is not None:
            table = _unmoved(self._table)
            manifest = manifest_of(table)  # a table that was made anew, or a branch, may have the same version
            if last is not None and manifest == last.seen:
                return last
            table._default_scan_options = None  # noqa: SLF001 - they leave rows out, or order them otherwise
            snapshot = _snapshot(table, self.location)
            snapshot.seen = manifest
            return snapshot
        stamp = self._stamp_now()
        if last is not None and stamp is not None and stamp == last.seen:
            return last
        started = time.time_ns()
        with explained(self.location, "the Lance table "):
            opened = lance_library().dataset(self.location, storage_options=self.storage_options or None)
        snapshot = _snapshot(opened, self.location)
        current = last if last is not None and last.identity == snapshot.identity else snapshot
        current.seen = stamp if stamp is not None and stamp[0] + _SETTLED_NS < started else None
        return current

    def _stamp_now(self) -> tuple[int, int] | None:
        """A stamp of a local table that changes with each commit; None for remote tables, or if it cannot be read."""
        if is_url(self.location):
            return None
        try:
            status = os.stat(f"{self.location}/{VERSIONS_FOLDER}")  # noqa: PTH116 - called at each search
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino


def _unmoved(table: LanceTable) -> LanceTable:
    """A copy of `table`, which never moves; a commit through `table` by another thread is waited for.

    Raises
    ------
    DataFileError
        The commit does not end.
    """
    for _ in range(_WAITS):
        with contextlib.suppress(RuntimeError):  # pylance gives no copy meanwhile
            return copy(table)
        time.sleep(_WAIT_S)
    raise DataFileError(
        f"the Lance table {table.uri} must be at rest to be read",
        got=f"a commit of {_WAITS * _WAIT_S:.0f} s by another thread",
        do="give each thread a LanceDataset of its own",
    )


@contextlib.contextmanager
def explained(location: str, what: str = "") -> Iterator[None]:
    """Errors of pylance in the block as ours.

    Raises
    ------
    DataFileError
        `what` of the table, or of its fragment, at `location` cannot be read.
    StorageError
        The store of the table cannot be reached or refuses.
    """
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, RuntimeError, KeyError) as error:
        raise_store_error(location, str(error))
        raise DataFileError(
            f"{what}{location} must be readable by pylance",
            got=_IN_RUST.sub("", first_line(error)),
            do=advice_if_replaced(location, "lance"),
        ) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of Rust, and no Exception
            raise
        raise DataFileError(f"{what}{location} must be readable by pylance", got=first_line(error)) from error


def lance_library() -> Any:
    """The module of pylance; see `library`."""
    return library("lance", "pylance", "Lance")


def fragment_path(fragment_id: int) -> str:
    """The path of a fragment in listings; in order of path fragments are in order of their ids."""
    return f"{_FOLDER}{fragment_id:010d}"


def _snapshot(table: LanceTable, location: str) -> LanceSnapshot:
    """The version that `table` has loaded."""
    with explained(location, "the Lance table "):
        schema = pa.schema([column.remove_metadata() for column in table.scanner(**_BLOBS).projected_schema])
        ids = dict(_field_ids(table.lance_schema.fields(), ""))
        described = {fragment.fragment_id: fragment.metadata.to_json() for fragment in table.get_fragments()}
        version = int(table.version)
    files, deletions = {}, {}
    for number, metadata in sorted(described.items()):
        path = fragment_path(number)
        files[path] = TableFile(_fingerprint(metadata), f"{location}/{path}", {})
        if metadata.get("deletion_file"):
            deletions[path] = json.dumps(metadata["deletion_file"], sort_keys=True)
    contents = repr(([(path, file.fingerprint) for path, file in files.items()], deletions, ids))
    return LanceSnapshot(
        location,
        ("lance", version, hashlib.sha256(contents.encode()).hexdigest()),
        Declared(schema, (), ids, {"table_version": version}),
        files,
        _opened,
        None,
        {"kind": "lance"},
        is_index_inside=True,
        table=table,
        with_deletions=frozenset(deletions),
        storage_options=dict(table.latest_storage_options() or {}),
    )


def _opened(location: str, _size: int) -> LocalFile:
    return LocalFile(location)


def _field_ids(fields: Sequence[Any], parent: str) -> Iterator[tuple[str, str]]:
    """By column, and by leaf of a struct, Lance's field id, which stays when a column is renamed."""
    for lance_field in fields:
        name = f"{parent}{lance_field.name()}"
        yield name, str(lance_field.id())
        yield from _field_ids(lance_field.children(), f"{name}.")


def _fingerprint(fragment: Mapping[str, Any]) -> Fingerprint:
    """The bytes of a fragment's files, and a digest of all that says which values it holds.

    Lance replaces the values of single columns in place: the fragment keeps its id, and gets other files.
    """
    lasting = {name: value for name, value in fragment.items() if name not in _MUTABLE}
    digest = hashlib.sha256(json.dumps(lasting, sort_keys=True).encode()).hexdigest()[:32]
    return Fingerprint(sum(file.get("file_size_bytes") or 0 for file in fragment["files"]), 0, digest)


@dataclass(eq=False)
class LanceSnapshot(TableSnapshot):
    """One version of a Lance table; its files are fragments."""

    table: LanceTable = field(kw_only=True)
    """pylance's dataset at this version."""
    with_deletions: frozenset[str] = field(kw_only=True)
    """Paths of the fragments that have deleted rows."""
    storage_options: Mapping[str, str] = field(kw_only=True)
    """Options of the table's store."""
    _offsets: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    """Deleted rows of the fragments that were read, by path."""

    def own_number(self, path: str) -> int:
        """Lance's id of the fragment."""
        return int(path.removeprefix(_FOLDER))

    def fragment(self, path: str) -> LanceFragment:
        """The fragment at `path`.

        Raises
        ------
        DataFileError
            The version has none.
        """
        fragment = self.table.get_fragment(self.own_number(path)) if path in self.files else None
        if fragment is None:
            raise DataFileError(f"data file {path} must be of the table's version", got="a path that is not")
        return fragment

    def open(self, path: str, listed: Fingerprint | None = None, likely: Sequence[ByteRange] = ()) -> LanceFile:  # noqa: ARG002
        """The fragment at `path`; its files never change."""
        return LanceFile(self, path, self.fragment(path))

    def deleted_rows(self, path: str) -> NDArray[np.int64] | None:
        """Offsets of the deleted rows of a fragment, in order; None if none are.

        Cost: the row addresses of the fragment, once; 19 ms a million rows.
        """
        if path not in self.with_deletions:
            return None
        offsets = self._offsets.get(path)
        if offsets is None:
            fragment = self.fragment(path)
            with explained(self.absolute(path), "the deleted rows of "):
                live = fragment.scanner(columns=[], with_row_address=True).to_table()["_rowaddr"].combine_chunks()
                is_deleted = np.ones(fragment.physical_rows, np.bool_)
                is_deleted[to_numpy(live, np.uint64) & np.uint64(0xFFFF_FFFF)] = False
            offsets = self._offsets[path] = np.flatnonzero(is_deleted)
        return offsets

    def null_rows(self, path: str, column: str) -> NDArray[np.int64]:
        """Offsets of the rows of a fragment that are not deleted, and in which a top-level column is null, in order."""
        parts, row = [np.zeros(0, np.int64)], 0
        with self.open(path) as file:
            for batch in file.column_batches([column], 0, file.num_rows):
                parts.append(
                    np.flatnonzero(plain_array(batch.column(0)).is_null().to_numpy(zero_copy_only=False)) + row
                )
                row += batch.num_rows
        deleted = self.deleted_rows(path)
        nulls = np.concatenate(parts)
        return nulls if deleted is None else np.setdiff1d(nulls, deleted, assume_unique=True)


class LanceFile:
    """A fragment of a Lance table, opened; row offsets are physical."""

    def __init__(self, snapshot: LanceSnapshot, path: str, fragment: LanceFragment) -> None:
        self._snapshot = snapshot
        self._path = path
        self._fragment = fragment
        self._location = snapshot.absolute(path)
        self.fingerprint: Fingerprint = snapshot.files[path].fingerprint
        self.schema: pa.Schema = snapshot.declared.schema
        self.named_schema: pa.Schema = self.schema  # names are there once

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def check_unchanged(self) -> None:
        """Nothing: Lance never writes over a file."""

    @cached_property
    def num_rows(self) -> int:
        """Physical rows, deleted ones included."""
        return int(self._fragment.physical_rows)

    @cached_property
    def row_group_rows(self) -> tuple[int, ...]:
        """Parts of 131 072 rows and the rest."""
        whole, rest = divmod(self.num_rows, _GROUP_ROWS)
        return (*[_GROUP_ROWS] * whole, *([rest] if rest else []))

    @cached_property
    def row_group_bytes(self) -> tuple[int, ...]:
        """Each part's share of the bytes of all files."""
        return tuple(self.fingerprint.size * rows // self.num_rows for rows in self.row_group_rows)

    def integer_range(self, group: int, column: str, wanted: pa.DataType) -> tuple[int, int] | None:  # noqa: ARG002
        """None: Lance has no bounds."""
        return None

    def fetch(self, *_: Any, **__: Any) -> int:
        """Do nothing: Lance fetches what it reads."""
        return 0

    def column_batches(self, columns: Sequence[str], start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Rows `[start, stop)` of `columns` (leaves of structs have dots), in order; deleted ones as they were.

        Raises
        ------
        DataFileError
            They cannot be read.
        """
        names = list(dict.fromkeys(self._readable(column) for column in columns if has_column(self.schema, column)))
        if not names:
            for first in range(start, stop, _BATCH_ROWS):
                yield _without_columns(min(_BATCH_ROWS, stop - first))
            return
        rest = stop - start
        with explained(self._location):
            for batch in self._physical(names, start, rest).to_batches() if rest else ():
                rest -= batch.num_rows
                yield batch.select(names)
        if rest:
            raise DataFileError(
                f"{self._location} must hold {stop - start} rows from {start} on", got=stop - start - rest
            )

    def _physical(self, names: list[str], start: int, num_rows: int) -> Any:
        options = _scan_options(names, start, num_rows)
        if self._path not in self._snapshot.with_deletions:
            return self._fragment.scanner(**options)
        return self._snapshot.table.scanner(
            fragments=[self._fragment], include_deleted_rows=True, with_row_id=True, scan_in_order=True, **options
        )

    def read_rows(self, group: int, starts: ArrayLike, stops: ArrayLike, columns: Sequence[str]) -> pa.Table:
        """The rows `[starts[i], stops[i])` of one part, none of them deleted, in order, of top-level `columns`.

        Raises
        ------
        DataFileError
            They cannot be read.
        """
        first = group * _GROUP_ROWS
        begin, end = np.asarray(starts, np.int64) + first, np.asarray(stops, np.int64) + first
        num_rows = int((end - begin).sum())
        names = [name for name in dict.fromkeys(columns) if self.schema.get_field_index(name) >= 0]
        if not names or not num_rows:
            schema = pa.schema([self.schema.field(name) for name in names])
            return pa.Table.from_batches([], schema) if names else pa.Table.from_batches([_without_columns(num_rows)])
        deleted = self._snapshot.deleted_rows(self._path)
        if deleted is not None:  # pylance counts live rows
            shifts = np.searchsorted(deleted, begin)
            begin, end = begin - shifts, end - shifts
        is_first = np.concatenate([[True], begin[1:] != end[:-1]])
        begin, end = begin[is_first], end[np.concatenate([is_first[1:], [True]])]
        with explained(self._location):
            own = self._snapshot.table.schema  # of a blob of format 2.2 it has another type; pylance 14 cannot take it
            can_be_taken = all(own.field(name).type == self.schema.field(name).type for name in names)
            if can_be_taken and num_rows <= _TAKEN_ROWS * len(begin):
                rows = self._fragment.take(places_of(begin, end - begin).tolist(), columns=names)
            else:
                rows = pa.concat_tables([self._live(names, *pair) for pair in zip(begin, end, strict=True)])
        if rows.num_rows != num_rows:
            raise DataFileError(f"{self._location} must hold {num_rows} requested rows", got=rows.num_rows)
        return rows.select(names)

    def _live(self, names: list[str], start: np.int64, stop: np.int64) -> pa.Table:
        return self._fragment.scanner(**_scan_options(names, int(start), int(stop - start))).to_table().select(names)

    def _readable(self, column: str) -> str:
        """The name by which pylance reads `column`: the leaf itself, or the whole column around it."""
        path = hashing.column_path(self.schema, column)
        is_alone = all(map(_PLAIN_NAME.fullmatch, path)) and self.schema.get_field_index("*") < 0
        return column if is_alone else path[0]


def _scan_options(names: list[str], start: int, num_rows: int) -> dict[str, Any]:
    """Options of a scan that gives top-level columns and leaves; all columns if one is named *, which means all."""
    columns = None if "*" in names else names
    return {"columns": columns, "offset": start, "limit": num_rows, "batch_size": _BATCH_ROWS, **_BLOBS}


def _without_columns(num_rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(pa.nulls(num_rows, pa.struct([])))
