"""`TableSnapshot`: one version of a Delta or Iceberg table as a data set; `TableDataset`: the table with its versions.

A table's log has the files, the deleted rows, the columns and the partitions. All are read from one version, so that
the listing, the deletes and the schema of a search belong together.

Design: docs/design/tables.md
"""

from __future__ import annotations

import os
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from zonebloom.formats.dataset import Declared, OpenedFile
from zonebloom.formats.index_location import is_under, places_of, written_root
from zonebloom.formats.parquet.column_mapping import StoredName
from zonebloom.formats.parquet.file import DataFile
from zonebloom.formats.table_folders import TABLE_FOLDERS
from zonebloom.ground.cached import cached_property
from zonebloom.ground.errors import DataFileError, InvalidArgumentError, MissingDependencyError
from zonebloom.stores.fingerprint import Fingerprint
from zonebloom.stores.locations import Url, absolute, is_url
from zonebloom.stores.store import Store, Traffic
from zonebloom.stores.stored_file import ByteRange, StoredFile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_OF_STORE = re.compile(r"Error performing|Generic \w+ error: |[Ee]rror getting credentials")
"""Messages of libraries in Rust for a failed request; a damaged log or file has other messages."""
_READING_DELETES = threading.Lock()
"""Held while deleted rows are read, so that threads which read files of one table read its deletes once."""


class TableFile(NamedTuple):
    """A data file as the table's log describes it."""

    fingerprint: Fingerprint
    """The fingerprint from the log: the bytes under a name never change."""
    location: str
    """Absolute path or URL."""
    values: Mapping[str, pa.Scalar]
    """Values from the log, for columns with one value in all rows."""
    naming: Callable[[StoredName], str | None] | None = None
    """The table's name of a stored column; None if the names are those of the file."""
    unsure: frozenset[str] = frozenset()
    """Columns of `values` for which the file itself may have other values."""


Opener = Callable[[str, int], StoredFile]
"""Opens the file at an absolute path or URL that has this size by the table's log."""


@dataclass(eq=False)
class TableSnapshot:
    """One immutable version of a table.

    - Paths of `files` below `location` are relative to it; others are absolute.
    """

    location: str
    """Folder or URL of the table."""
    identity: tuple[Any, ...]
    """The table and its version; snapshots with the same identity are equal."""
    declared: Declared
    """Its columns and its version."""
    files: Mapping[str, TableFile]
    """The data files, by path in order."""
    opener: Opener
    """Opens a data file at its location."""
    deletes: Callable[[], Mapping[str, NDArray[np.int64]]] | None
    """Reads the deleted rows of all files, by path; None if no file has any."""
    described: Mapping[str, Any]
    """The entry of the version file from which the table is opened again."""
    is_index_inside: bool
    """Whether the index may be in the folder of the table, and is by default."""
    store: Store | None = None
    """The store at `location`, if `opener` reads from it."""
    seen: object = None
    """What a short look at the table gave when this version was read; while it gives that, the version is current."""
    _deleted: Mapping[str, NDArray[np.int64]] | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableSnapshot) and (self.location, self.identity) == (other.location, other.identity)

    def __hash__(self) -> int:
        return hash((self.location, self.identity))

    @property
    def is_remote(self) -> bool:
        """Whether the table is in an object store."""
        return is_url(self.location)

    @cached_property
    def _listing(self) -> dict[str, Fingerprint]:
        return {path: file.fingerprint for path, file in self.files.items()}

    @property
    def traffic(self) -> Traffic:
        """The traffic of reading data files; the libraries that read logs do not count theirs."""
        return Traffic() if self.store is None else self.store.traffic

    def list(self, known_names: Iterable[str] = ()) -> dict[str, Fingerprint]:  # noqa: ARG002 - the log has them
        """The data files of this version, by path in order; the same dict at each call."""
        return self._listing

    def num_skipped(self) -> int:
        """0: the log lists the files."""
        return 0

    def list_under(self, paths: Sequence[str]) -> dict[str, Fingerprint]:
        """As `DatasetSnapshot.list_under`."""
        return {path: file.fingerprint for path, file in self.files.items() if is_under(path, paths)}

    def list_partitions(self, wanted: Sequence[Mapping[str, str | None]]) -> dict[str, Fingerprint]:
        """Refused: names of a table's folders need not agree with its partitions.

        Raises
        ------
        InvalidArgumentError
            Always.
        """
        raise InvalidArgumentError(
            f"a part of table {self.location} must be named by paths, as its folders need not say its partitions",
            got=f"partitions {list(wanted)}",
        )

    def absolute(self, path: str) -> str:
        """As `DatasetSnapshot.absolute`."""
        return self._file(path).location

    def open(
        self,
        path: str,
        listed: Fingerprint | None = None,  # noqa: ARG002 - the log has it
        likely: Sequence[ByteRange] = (),
    ) -> OpenedFile:
        """The data file at `path`, with the table's names.

        Raises
        ------
        DataFileError
            The file is missing, no whole Parquet file, or differs from the log.
        """
        file = self._file(path)
        source = self.opener(file.location, file.fingerprint.size)
        if source.fingerprint.size != file.fingerprint.size:
            source.close()
            raise DataFileError(
                f"data file {source.path} must have the {file.fingerprint.size} bytes that its table's log says",
                got=source.fingerprint.size,
            )
        return DataFile(source, file.naming, file.fingerprint, likely, self._nanoseconds)

    @cached_property
    def _nanoseconds(self) -> frozenset[str]:
        """The columns in nanoseconds; other times are read in microseconds, also from INT96."""
        return frozenset(field.name for field in self.declared.schema if "[ns" in str(field.type))

    def own_number(self, path: str) -> int | None:  # noqa: ARG002 - Lance overrides it
        """None: files have names."""
        return None

    def deleted_rows(self, path: str) -> NDArray[np.int64] | None:
        """Offsets of the deleted rows of a file, in order; None if there are none.

        Raises
        ------
        DataFileError
            They cannot be read.
        """
        if self.deletes is None:
            return None
        with _READING_DELETES:
            if self._deleted is None:
                self._deleted = self.deletes()
        return self._deleted.get(path)

    def partition_values(self, path: str, fields: Iterable[pa.Field]) -> dict[str, pa.Scalar] | None:
        """The values in the log for `fields`, in their types and if they are sure; None if a value does not convert."""
        file = self._file(path)
        values: dict[str, pa.Scalar] = {}
        for wanted in fields:
            if wanted.name not in file.values or wanted.name in file.unsure:
                continue
            try:
                value = file.values[wanted.name]
                values[wanted.name] = value if value.type == wanted.type else value.cast(wanted.type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                return None
        return values

    def path_values(self, path: str) -> dict[str, pa.Scalar]:
        """The values in the log for columns that only some files have, as in a migrated table."""
        fixed = self.declared.partition_columns
        return {name: value for name, value in self._file(path).values.items() if name not in fixed}

    def relative(self, path: str | os.PathLike[str]) -> str:
        """`path`, absolute, a URL or relative to the table's folder, as in the listing.

        Raises
        ------
        InvalidArgumentError
            The path is outside of the table.
        """
        given = os.fspath(path)
        if given in self.files:
            return given
        given = absolute(given) if given.startswith("file:/") or is_url(given) else given
        root = self.location.rstrip("/")
        if given.startswith(f"{root}/"):
            given = given[len(root) + 1 :]
        whole = os.path.normpath(given)
        if whole.startswith("/") or whole.split("/")[0] == ".." or "://" in given:
            raise InvalidArgumentError(f"paths must lie in the table {self.location}", got=os.fspath(path))
        return whole

    def index_places(self) -> tuple[str, ...]:
        """Beside the table's folder; for a Delta table also inside, where its upkeep does not delete it."""
        return places_of(self.location.rstrip("/"))[: 2 if self.is_index_inside else 1]

    def check_index(self, location: str) -> None:
        """Refuse a place in the table's folder that the table's upkeep would delete.

        Raises
        ------
        InvalidArgumentError
            The location is such a place.
        """
        root = self.location.rstrip("/")
        parts = location[len(root) + 1 :].split("/") if location.startswith(f"{root}/") else []
        if location == root or (parts and (not parts[0].startswith(("_", ".")) or parts[0] in TABLE_FOLDERS)):
            raise InvalidArgumentError(
                "an index inside a table must be in a folder of its own whose name begins with _ or .", got=location
            )

    def to_json(self, index_location: str) -> dict[str, Any]:
        """The description of the table in a version file: how to open it, its columns, its version; no secrets."""
        root = written_root(self.location.rstrip("/"), index_location) if self.is_index_inside else self.location
        return {
            **self.described,
            "root": root,
            "partition_columns": list(self.declared.partition_columns),
            **self.declared.state,
        }

    def _file(self, path: str) -> TableFile:
        try:
            return self.files[path]
        except KeyError as error:
            raise DataFileError(f"data file {path} must be of the table's version", got="a path that is not") from error


class TableDataset(ABC):
    """A table; `pin` gives its current version."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._last: TableSnapshot | None = None

    @abstractmethod
    def load(self, last: TableSnapshot | None) -> TableSnapshot:
        """The current version: `last`, the result of the last call, if it is still current."""

    def pin(self) -> TableSnapshot:
        """The current version.

        Raises
        ------
        DataFileError
            The table is gone, or has a part that cannot be read.
        """
        self._last = self.load(self._last)
        return self._last

    @property
    def traffic(self) -> Traffic:
        """The traffic of reading data files; the libraries that read logs do not count theirs."""
        return Traffic() if self._last is None else self._last.traffic


def library(module: str, package: str, tables: str) -> Any:
    """The module of an optional package that reads such tables.

    Raises
    ------
    MissingDependencyError
        The package is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingDependencyError(
            f"{package} must be installed to read {tables} tables", do=f'pip install "zonebloom[{tables.lower()}]"'
        ) from error


def raise_store_error(location: str, text: str) -> None:
    """Nothing, unless `text` says that a request for the table at `location` failed.

    Raises
    ------
    StorageError
        It does: the store cannot be reached or refuses.
    """
    if is_url(location) and _OF_STORE.search(text):
        from zonebloom.stores.object_errors import explaining  # noqa: PLC0415 - only with object stores

        url = Url.parse(location)
        with explaining(url, "read", url.key):
            raise OSError(text)
