"""`TableSnapshot`: one version of a Delta or Iceberg table as a data set; `TableDataset`: the table as it moves on.

A table's log says which files there are, which of their rows are deleted, and what its columns and partitions are. All
of it is taken from one version, so that the listing, the deletes and the schema of a search belong together.

Spec: specs/tables.md
"""

from __future__ import annotations

import os
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from zonebloom.errors import DataFileError, InvalidArgumentError
from zonebloom.formats.dataset import Declared, OpenedFile
from zonebloom.formats.parquet.column_mapping import StoredName
from zonebloom.formats.parquet.file import DataFile
from zonebloom.formats.parquet.footer import Footer
from zonebloom.formats.places import places_of, written_root
from zonebloom.formats.source import LocalSource, Source
from zonebloom.formats.table_marks import TABLE_FOLDERS
from zonebloom.storage.fragments import Fingerprint
from zonebloom.storage.stores.locations import Url, is_url
from zonebloom.storage.stores.store import Traffic

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zonebloom.storage.stores.object_client import ObjectClient

__all__ = ["Opener", "SourceOpener", "TableDataset", "TableFile", "TableSnapshot", "raise_store_error"]


_KEPT_FOOTERS = 64
_OF_STORE = re.compile(r"Error performing|Generic \w+ error: |[Ee]rror getting credentials")
"""What libraries in Rust say where a request failed, and not where a log or a file is bad."""


class TableFile(NamedTuple):
    """A data file as the table's log describes it."""

    fingerprint: Fingerprint
    """Of the log: the bytes under a name never change."""
    location: str
    """Absolute path or URL."""
    values: Mapping[str, pa.Scalar]
    """Columns whose value in all rows the log gives."""
    naming: Callable[[StoredName], str | None] | None = None
    """How its columns are called now; None where as the file calls them."""


Opener = Callable[[str], Source]
"""Opens the file at an absolute path or URL."""


class LoggedSource:
    """A file of a table: it is what the log says as long as its size is, and must not change while it is read."""

    def __init__(self, inner: Source, logged: Fingerprint) -> None:
        self._inner = inner
        self.path = inner.path
        self.fingerprint = logged
        if inner.fingerprint.size != logged.size:
            inner.close()
            message = f"data file {inner.path} must have the {logged.size} bytes that its table's log says"
            raise DataFileError(f"{message}, got {inner.fingerprint.size}")

    @property
    def is_remote(self) -> bool:
        """As the file is."""
        return self._inner.is_remote

    def current_fingerprint(self) -> Fingerprint:
        """The log's, unless the file changed since it was opened."""
        found = self._inner.current_fingerprint()
        return self.fingerprint if found == self._inner.fingerprint else found

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """For each `(offset, length)`, those bytes."""
        return self._inner.read_ranges(ranges)

    def will_need(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Be ready for reads of the ranges `(offset, length)`."""
        self._inner.will_need(ranges)

    def arrow_file(self) -> Any:
        """The whole as a file that pyarrow reads."""
        return self._inner.arrow_file()

    def close(self) -> None:
        """Let go of it."""
        self._inner.close()


class SourceOpener:
    """Opens files of this machine, and those of one bucket with one client, which counts its requests."""

    def __init__(self, storage_options: Mapping[str, str]) -> None:
        self._options = dict(storage_options)
        self._clients: dict[str, ObjectClient] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Without connections, for workers of other processes."""
        return {"_options": self._options, "_clients": {}}

    def __call__(self, location: str) -> Source:
        """The file at an absolute path or URL."""
        if not is_url(location):
            return LocalSource(Path(location))
        from zonebloom.formats.object_source import ObjectSource  # noqa: PLC0415 - only with object stores
        from zonebloom.storage.stores.object_client import ObjectClient  # noqa: PLC0415 - as above

        url = Url.parse(location)
        client = self._clients.setdefault(url.root, ObjectClient(replace(url, key=""), self._options))
        return ObjectSource(client, url.key)

    @property
    def traffic(self) -> Traffic:
        """What was asked of object stores so far."""
        return sum((one.traffic for one in self._clients.values()), Traffic())


@dataclass(eq=False)
class TableSnapshot:
    """One version of a table: nothing of it changes, whatever is committed to the table meanwhile.

    - Paths of `files` are relative to `location` where they lie below it, else absolute.
    """

    location: str
    """Folder or URL of the table."""
    identity: tuple[Any, ...]
    """The table and its version; what has the same is the same."""
    declared_by_table: Declared
    """Its schema, and which version it is."""
    files: Mapping[str, TableFile]
    """The data files, by path in order."""
    opener: Opener
    """Opens a data file."""
    deletes: Callable[[], Mapping[str, NDArray[np.int64]]] | None
    """Reads the deleted rows of all files, by path; None where no file has any."""
    described: Mapping[str, Any]
    """What finds the table again; the version file holds it."""
    is_index_inside: bool
    """Whether the index may be in the folder of the table, and is by default."""
    _deleted: Mapping[str, NDArray[np.int64]] | None = None
    _footers: dict[str, tuple[Footer, Footer]] = field(default_factory=dict)
    """Of the files that were opened last, the footer as it is and as the table names it."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableSnapshot) and (self.location, self.identity) == (other.location, other.identity)

    def __hash__(self) -> int:
        return hash((self.location, self.identity))

    def __getstate__(self) -> dict[str, Any]:
        """Without the lock and the footers, for workers of other processes."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_lock", "_footers")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock(), _footers={})

    def declared(self) -> Declared:
        """What the table says of itself."""
        return self.declared_by_table

    @property
    def is_remote(self) -> bool:
        """Whether the table is in an object store."""
        return is_url(self.location)

    @cached_property
    def _listing(self) -> dict[str, Fingerprint]:
        return {path: one.fingerprint for path, one in self.files.items()}

    @property
    def traffic(self) -> Traffic:
        """What reading data files took; the libraries that read logs do not count."""
        return self.opener.traffic if isinstance(self.opener, SourceOpener) else Traffic()

    def list(self) -> dict[str, Fingerprint]:
        """The data files of this version, by path in order; the same dict at each call."""
        return self._listing

    def num_skipped(self) -> int:
        """0: the log names the files."""
        return 0

    def list_under(self, paths: Sequence[str]) -> dict[str, Fingerprint]:
        """As `list`, but only files that are one of `paths` or in one of them."""
        return {
            path: one.fingerprint
            for path, one in self.files.items()
            if any(given in (path, ".") or path.startswith(f"{given}/") for given in paths)
        }

    def list_partitions(self, wanted: Sequence[Mapping[str, str | None]]) -> dict[str, Fingerprint]:
        """Refused: the folders of a table need not say its partitions.

        Raises
        ------
        InvalidArgumentError
            Always.
        """
        message = f"a part of table {self.location} must be named by paths, as its folders need not say its partitions"
        raise InvalidArgumentError(f"{message}, got partitions {list(wanted)}")

    def absolute(self, path: str) -> str:
        """The absolute path or URL of a data file."""
        return self._file(path).location

    def open(self, path: str, listed: Fingerprint | None = None) -> OpenedFile:  # noqa: ARG002 - the log says it
        """The data file at `path`, with the table's names.

        Raises
        ------
        DataFileError
            It is missing, no whole Parquet file, or not as the log says.
        """
        one = self._file(path)
        source = LoggedSource(self.opener(one.location), one.fingerprint)
        return DataFile(source, None if one.naming is None else partial(self._renamed, one))

    def _renamed(self, file: TableFile, footer: Footer) -> Footer:
        """`footer` with the names that the table gives the columns of `file`; the last ones are kept."""
        naming, key = file.naming, file.location
        if naming is None:
            return footer
        with self._lock:
            known = self._footers.get(key)
        if known is not None and known[0] is footer:
            return known[1]
        found = footer.renamed(naming, key)
        with self._lock:
            self._footers.pop(key, None)
            self._footers[key] = footer, found
            while len(self._footers) > _KEPT_FOOTERS:
                del self._footers[next(iter(self._footers))]
        return found

    def own_number(self, path: str) -> int | None:  # noqa: ARG002 - Lance overrides it
        """None: files have names."""
        return None

    def deleted_rows(self, path: str) -> NDArray[np.int64] | None:
        """Offsets of the deleted rows of a file, in order; None where none are.

        Raises
        ------
        DataFileError
            They cannot be read.
        """
        if self.deletes is None:
            return None
        with self._lock:
            if self._deleted is None:
                self._deleted = self.deletes()
        return self._deleted.get(path)

    def partition_values(self, path: str, fields: Iterable[pa.Field]) -> dict[str, pa.Scalar] | None:
        """The values that the log gives, of `fields`; None where one does not convert."""
        known = self._file(path).values
        found: dict[str, pa.Scalar] = {}
        for one in fields:
            if one.name not in known:
                continue
            try:
                value = known[one.name]
                found[one.name] = value if value.type == one.type else value.cast(one.type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                return None
        return found

    def path_values(self, path: str) -> dict[str, pa.Scalar]:
        """The values of the log for columns that files hold, but not each of them: those of a migrated table."""
        fixed = self.declared_by_table.partition_columns
        return {name: value for name, value in self._file(path).values.items() if name not in fixed}

    def relative(self, path: str | os.PathLike[str]) -> str:
        """`path`, which is absolute or relative to the table's folder, as the listing has it.

        Raises
        ------
        InvalidArgumentError
            It lies outside.
        """
        given = os.fspath(path)
        if given in self.files:
            return given
        root = self.location.rstrip("/")
        if given.startswith(f"{root}/"):
            given = given[len(root) + 1 :]
        whole = os.path.normpath(given)
        if whole.startswith("/") or whole.split("/")[0] == ".." or "://" in given:
            raise InvalidArgumentError(f"paths must lie in the table {self.location}, got {os.fspath(path)}")
        return whole

    def index_places(self) -> tuple[str, ...]:
        """Beside the table's folder, and inside that of a Delta table, whose upkeep leaves it there."""
        return places_of(self.location.rstrip("/"))[: 2 if self.is_index_inside else 1]

    def check_index(self, location: str) -> None:
        """Refuse a place in the table's folder that upkeep of the table would clean up.

        Raises
        ------
        InvalidArgumentError
            It is one.
        """
        root = self.location.rstrip("/")
        parts = location[len(root) + 1 :].split("/") if location.startswith(f"{root}/") else []
        if location == root or (parts and (not parts[0].startswith(("_", ".")) or parts[0] in TABLE_FOLDERS)):
            message = "an index inside a table must be in a folder of its own whose name begins with _ or ."
            raise InvalidArgumentError(f"{message}, got {location}")

    def to_json(self, index_location: str) -> dict[str, Any]:
        """What finds the table again, its columns and its version, as a version file holds it; no secrets."""
        root = written_root(self.location.rstrip("/"), index_location) if self.is_index_inside else self.location
        return {
            **self.described,
            "root": root,
            "partition_columns": list(self.declared_by_table.partition_columns),
            "column_ids": dict(self.declared_by_table.column_ids),
            **self.declared_by_table.state,
        }

    def _file(self, path: str) -> TableFile:
        try:
            return self.files[path]
        except KeyError as error:
            raise DataFileError(f"data file {path} must be of the table's version, got one that is not") from error


class TableDataset(ABC):
    """A table as it is at each call of `pin`, which gives one version of it."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._last: TableSnapshot | None = None

    @abstractmethod
    def load(self, last: TableSnapshot | None) -> TableSnapshot:
        """The current version; `last`, which was that at the last call, where it still is."""

    def pin(self) -> TableSnapshot:
        """The current version.

        Raises
        ------
        DataFileError
            The table is gone, or has something that cannot be read.
        """
        self._last = self.load(self._last)
        return self._last

    @property
    def traffic(self) -> Traffic:
        """What reading data files took; the libraries that read logs do not count."""
        return Traffic() if self._last is None else self._last.traffic


def raise_store_error(location: str, text: str) -> None:
    """Nothing, unless `text` says that a request for the table at `location` failed.

    Raises
    ------
    StorageError
        It does: the store cannot be reached or refuses.
    """
    if is_url(location) and _OF_STORE.search(text):
        from zonebloom.storage.stores.object_client import ObjectClient  # noqa: PLC0415 - only with object stores

        url = Url.parse(location)
        with ObjectClient(url).explaining("read", url.key):
            raise OSError(text)
