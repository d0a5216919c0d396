"""`ParquetDataset`: Parquet files below a folder as a data set, on this machine or in an object store.

A data set is a folder (hive-partitioned or not), one file, or a list of files. Names that begin with `_` or `.` are
skipped in a folder, as by Spark and pyarrow. DuckDB and Polars do not skip them. Every other file is a data file.
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
from zonebloom.formats.places import is_under, places_of, written_root
from zonebloom.formats.source import Source
from zonebloom.storage.fragments import Fingerprint
from zonebloom.storage.stores.locations import is_url
from zonebloom.storage.stores.store import Located, Traffic

if TYPE_CHECKING:
    from zonebloom.formats.parquet.file import DataFile

Wanted: TypeAlias = Sequence[Mapping[str, str | None]]
"""Partitions, with values as in names of folders."""


class Folder(Located, Protocol):
    """The folder of a data set; paths of files are relative to it, with `/`."""

    def walk(self, wanted: Wanted | None) -> Iterable[tuple[str, Fingerprint]]:
        """All data files below it; if the store has folders, only files that may be of the partitions `wanted`."""

    def paths(self) -> Iterable[str]:
        """All files below it, also those that readers skip."""

    def below(self, path: str) -> Mapping[str, Fingerprint]:
        """The data file at `path`, or all data files in the folder at `path`."""

    def fingerprints(self, paths: Sequence[str]) -> dict[str, Fingerprint]:
        """The fingerprints of the files among `paths`."""

    def absolute(self, path: str) -> str:
        """The absolute path or URL of a file."""

    def relative(self, given: str) -> str | None:
        """`given`, absolute or relative to the folder, as a path relative to it; None if it is outside."""

    def open(self, path: str, listed: Fingerprint | None) -> Source:
        """The file at `path`; see `DatasetSnapshot.open`."""


@dataclass(frozen=True)
class ParquetDataset(DatasetSnapshot):
    """Parquet files below a folder; plain files have no versions, so this is its own snapshot."""

    folder: Folder
    """The root: all files are below it."""
    layout: str
    """`folder`: every file below the root; `file`: the one file in `files`; `files`: the files in `files`."""
    files: tuple[str, ...] = ()
    """The files of the layouts `file` and `files`."""

    def pin(self) -> ParquetDataset:
        """Itself: a changed file is detected by its fingerprint."""
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
        """The network traffic so far."""
        return self.folder.traffic

    def partition_values(self, path: str, fields: Iterable[pa.Field]) -> dict[str, pa.Scalar] | None:
        """The `key=value` folders of `path` in the types of `fields`; None if a value does not convert to its type."""
        return partitions.typed(path, fields)

    def path_values(self, path: str) -> dict[str, str | None]:
        """The `key=value` folders of `path` as texts."""
        return partitions.partition_values(path)

    def list(self) -> dict[str, Fingerprint]:
        """The current data files, by path in order; files of a list that are gone are left out.

        Cost: in an object store one request for each 1000 objects below the root, also for those of an index; for a
        list one request for each file.

        Raises
        ------
        DataFileError
            The folder itself is gone or cannot be listed.
        StorageError
            The bucket is gone, or cannot be listed.
        """
        if self.layout == "folder":
            return dict(sorted(self.folder.walk(None)))
        return self.folder.fingerprints(self.files)

    def num_skipped(self) -> int:
        """The number of Parquet files in the folder that are skipped, since a name begins with `_` or `.`."""
        if self.layout != "folder":
            return 0
        skipped = (path for path in self.folder.paths() if path.endswith(".parquet"))
        return sum(any(map(is_hidden, path.split("/"))) for path in skipped)

    def list_under(self, paths: Sequence[str]) -> dict[str, Fingerprint]:
        """As `list`, but only the files at `paths` and in the folders at `paths` (relative to the root, with `/`)."""
        if self.layout != "folder":
            return self.folder.fingerprints([path for path in self.files if is_under(path, paths)])
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
            The file is missing, or no whole Parquet file.
        """
        from zonebloom.formats.parquet.file import DataFile  # noqa: PLC0415 - a plain search opens no file

        return DataFile(self.folder.open(path, listed))

    def relative(self, path: str | os.PathLike[str]) -> str:
        """`path`, which is absolute or relative to the root, as a path relative to the root.

        Raises
        ------
        InvalidArgumentError
            The path is outside of the root.
        """
        inside = self.folder.relative(os.fspath(path))
        if inside is None:
            raise InvalidArgumentError(f"paths must lie in the data set {self.location}, got {os.fspath(path)}")
        return inside

    def index_places(self) -> tuple[str, ...]:
        """Beside the folder or the one file, and inside the folder."""
        if self.layout == "folder":
            return places_of(self.location)
        return places_of(self.absolute(self.files[0]))[:1] if self.layout == "file" else ()

    def check_index(self, location: str) -> None:
        """Refuse a folder below the root whose name does not hide it: readers would take the index for data."""
        if self.layout != "folder" or is_url(location) != self.is_remote:
            return
        inside = self.folder.relative(location)
        if inside is not None and not any(is_hidden(name) for name in inside.split("/") if name != "."):
            message = "an index inside the data set must be in a folder whose name begins with _ or ."
            raise InvalidArgumentError(f"{message}, got {location}")

    def to_json(self, index_location: str) -> dict[str, Any]:
        """The description of the data set in a version file; see `written_root`."""
        root = written_root(self.location, index_location)
        return {"kind": "parquet", "root": root, "layout": self.layout, "files": list(self.files)}


def is_hidden(name: str) -> bool:
    """Whether readers skip files and folders of this name."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)
