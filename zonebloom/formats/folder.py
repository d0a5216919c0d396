"""`ParquetDataset`: Parquet files below a folder as a data set, on this machine or in an object store.

A data set is a folder (hive-partitioned or not), one file, or a list of files. Names that begin with `_` or `.` are
skipped in a folder, as by Spark and pyarrow, but not by DuckDB and Polars. Every other file is a data file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import pyarrow as pa

from zonebloom.errors import InvalidArgumentError
from zonebloom.formats import hive as partitions
from zonebloom.formats.dataset import DatasetSnapshot
from zonebloom.formats.places import places_of, written_root
from zonebloom.formats.source import Source
from zonebloom.storage.fragments import Fingerprint
from zonebloom.storage.stores.locations import is_url
from zonebloom.storage.stores.store import Traffic

if TYPE_CHECKING:
    from zonebloom.formats.parquet.file import DataFile

__all__ = ["Folder", "ParquetDataset", "Wanted", "is_hidden"]

Wanted: TypeAlias = Sequence[Mapping[str, str | None]]
"""Partitions, as folders have their values."""


class Folder(Protocol):
    """Where files lie; paths of files are relative to it, with `/`."""

    @property
    def location(self) -> str:
        """Its absolute path or URL."""
        ...

    @property
    def is_remote(self) -> bool:
        """Whether a request goes over the network."""
        ...

    @property
    def traffic(self) -> Traffic:
        """What went over the network so far."""
        ...

    def walk(self, wanted: Wanted | None) -> Iterable[tuple[str, Fingerprint]]:
        """All data files below it; only those that may be of the partitions `wanted`, where the store has folders."""
        ...

    def paths(self) -> Iterable[str]:
        """All files below it, those that readers skip too."""
        ...

    def below(self, path: str) -> Mapping[str, Fingerprint]:
        """The data file at `path`, or those in the folder there."""
        ...

    def fingerprints(self, paths: Sequence[str]) -> dict[str, Fingerprint]:
        """Those of `paths` that are files."""
        ...

    def absolute(self, path: str) -> str:
        """The absolute path or URL of a file."""
        ...

    def relative(self, given: str) -> str | None:
        """`given`, absolute or relative to the folder, as a path relative to it; None where it lies outside."""
        ...

    def open(self, path: str, listed: Fingerprint | None) -> Source:
        """The file at `path`; see `DatasetSnapshot.open`."""
        ...


@dataclass(frozen=True)
class ParquetDataset(DatasetSnapshot):
    """Parquet files below a folder; they have no versions, so this is its own snapshot."""

    folder: Folder
    """The root, which holds all files."""
    layout: str
    """`folder`: every file below the root; `file`: the one in `files`; `files`: those in `files`."""
    files: tuple[str, ...] = ()
    """The files of the layouts `file` and `files`."""

    def pin(self) -> ParquetDataset:
        """Itself: a file that changes is found by its fingerprint."""
        return self

    @property
    def location(self) -> str:
        """The root."""
        return self.folder.location

    @property
    def is_remote(self) -> bool:
        """As the folder is."""
        return self.folder.is_remote

    @property
    def traffic(self) -> Traffic:
        """What went over the network so far."""
        return self.folder.traffic

    def partition_values(self, path: str, fields: Iterable[pa.Field]) -> dict[str, pa.Scalar] | None:
        """The `key=value` folders of `path` in the types of `fields`; None where one does not fit its type."""
        return partitions.typed(path, fields)

    def path_values(self, path: str) -> dict[str, str | None]:
        """The `key=value` folders of `path` as texts."""
        return partitions.partition_values(path)

    def list(self) -> dict[str, Fingerprint]:
        """The data files there are now, by path in order; those of a list that are gone are left out.

        Cost: in an object store, a request for each 1000 objects below the root, those of an index too; of a list, one
        for each file.

        Raises
        ------
        DataFileError
            The folder itself is gone or cannot be listed.
        StorageError
            The same of a bucket.
        """
        if self.layout == "folder":
            return dict(sorted(self.folder.walk(None)))
        return self.folder.fingerprints(self.files)

    def num_skipped(self) -> int:
        """Parquet files in the folder that are no data, as a name begins with `_` or `.`; some engines read them."""
        if self.layout != "folder":
            return 0
        skipped = (path for path in self.folder.paths() if path.endswith(".parquet"))
        return sum(any(map(is_hidden, path.split("/"))) for path in skipped)

    def list_under(self, paths: Sequence[str]) -> dict[str, Fingerprint]:
        """As `list`, but only files that are one of `paths` (relative to the root, with `/`) or in one of them."""
        if self.layout != "folder":
            return self.folder.fingerprints(
                [path for path in self.files if any(one in (path, ".") or path.startswith(f"{one}/") for one in paths)]
            )
        if "." in paths:
            return self.list()
        found: dict[str, Fingerprint] = {}
        for path in paths:
            if not any(map(is_hidden, path.split("/"))):
                found.update(self.folder.below(path))
        return dict(sorted(found.items()))

    def list_partitions(self, wanted: Wanted) -> dict[str, Fingerprint]:
        """As `list`, but only files in folders that agree with one of `wanted`; no other folder is listed."""
        found = self.folder.walk(wanted) if self.layout == "folder" else self.list().items()
        return dict(sorted((path, one) for path, one in found if partitions.agrees(path, wanted)))

    def absolute(self, path: str) -> str:
        """The absolute path or the URL of a data file."""
        return self.folder.absolute(path)

    def open(self, path: str, listed: Fingerprint | None = None) -> DataFile:
        """The data file at `path`, opened; close it, or use it as a context manager.

        Raises
        ------
        DataFileError
            It is missing, or no whole Parquet file.
        """
        from zonebloom.formats.parquet.file import DataFile  # noqa: PLC0415 - a plain search opens no file

        return DataFile(self.folder.open(path, listed))

    def relative(self, path: str | os.PathLike[str]) -> str:
        """`path`, which is absolute or relative to the root, as a path relative to the root.

        Raises
        ------
        InvalidArgumentError
            It lies outside.
        """
        found = self.folder.relative(os.fspath(path))
        if found is None:
            raise InvalidArgumentError(f"paths must lie in the data set {self.location}, got {os.fspath(path)}")
        return found

    def index_places(self) -> tuple[str, ...]:
        """Beside the folder or the one file, and inside the folder."""
        if self.layout == "folder":
            return places_of(self.location)
        return places_of(self.absolute(self.files[0]))[:1] if self.layout == "file" else ()

    def check_index(self, location: str) -> None:
        """Refuse a place where the index would be taken for data: a folder of the root that no name hides."""
        if self.layout != "folder" or is_url(location) != self.is_remote:
            return
        inside = self.folder.relative(location)
        if inside is not None and not any(is_hidden(name) for name in inside.split("/") if name != "."):
            message = "an index inside the data set must be in a folder whose name begins with _ or ."
            raise InvalidArgumentError(f"{message}, got {location}")

    def to_json(self, index_location: str) -> dict[str, Any]:
        """The data set as a version file holds it; see `written_root`."""
        root = written_root(self.location, index_location)
        return {"kind": "parquet", "root": root, "layout": self.layout, "files": list(self.files)}


def is_hidden(name: str) -> bool:
    """Whether readers skip files and folders of this name."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)
