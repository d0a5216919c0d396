"""Parquet files as a data set: listing with fingerprints, reading columns for a build and row groups for a scan.

A data set is a folder (hive-partitioned or not), one file, or a list of files. Names that begin with `_` or `.` are
skipped in a folder, as by Spark and pyarrow, but not by DuckDB and Polars. Every other file is a data file.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from zonebloom.errors import DataFileError, InvalidArgumentError
from zonebloom.formats import hive as partitions
from zonebloom.formats.places import places_of, root_of, written_root
from zonebloom.formats.source import Fingerprint, LocalSource, fingerprint_of
from zonebloom.formats.table_marks import TABLE_MARKS, is_table_folder, table_among_files
from zonebloom.storage.stores.store import Traffic

if TYPE_CHECKING:
    from zonebloom.formats.parquet.file import DataFile

__all__ = ["ParquetDataset", "is_hidden"]


@dataclass(frozen=True, slots=True)
class ParquetDataset:
    """Where the Parquet files are.

    - `root` is absolute; paths of files are relative to it, with `/`.
    """

    root: Path
    """Folder that holds all files."""
    layout: str
    """`folder`: every file below the root; `file`: the one in `files`; `files`: those in `files`."""
    files: tuple[str, ...] = ()
    """The files of the layouts `file` and `files`."""

    def pin(self) -> ParquetDataset:
        """Itself: plain files have no versions; a file that changes is found by its fingerprint."""
        return self

    def declared(self) -> None:
        """None: only the files know."""

    def partition_values(self, path: str, fields: Iterable[pa.Field]) -> dict[str, pa.Scalar] | None:
        """The `key=value` folders of `path` in the types of `fields`; None where one does not fit its type."""
        return partitions.typed(path, fields)

    def path_values(self, path: str) -> dict[str, str | None]:
        """The `key=value` folders of `path` as texts."""
        return partitions.partition_values(path)

    def list(self) -> dict[str, Fingerprint]:
        """The data files there are now, by path in order; those of a list that are gone are left out.

        Raises
        ------
        DataFileError
            The folder itself is gone or cannot be listed.
        """
        if self.layout == "folder":
            return dict(sorted(self._walk("")))
        found = {}
        for path in self.files:
            with contextlib.suppress(FileNotFoundError):
                found[path] = fingerprint_of(os.stat(self.root / path))  # noqa: PTH116 - the result is used as is
        return found

    def num_skipped(self) -> int:
        """Parquet files in the folder that are no data, as a name begins with `_` or `.`; some engines read them."""
        if self.layout != "folder":
            return 0
        found = 0
        for folder, _, names in os.walk(self.root):
            is_inside = any(map(is_hidden, Path(folder).relative_to(self.root).parts))
            found += sum(name.endswith(".parquet") and (is_inside or is_hidden(name)) for name in names)
        return found

    def list_under(self, paths: Sequence[str]) -> dict[str, Fingerprint]:
        """As `list`, but only files that are one of `paths` (relative to the root, with `/`) or in one of them.

        Raises
        ------
        DataFileError
            A folder among them cannot be listed.
        """
        if self.layout != "folder":
            return {
                path: found
                for path, found in self.list().items()
                if any(one in (path, ".") or path.startswith(f"{one}/") for one in paths)
            }
        found: dict[str, Fingerprint] = {}
        for path in paths:
            if path == ".":
                return self.list()
            if any(is_hidden(name) for name in path.split("/")):
                continue
            if (self.root / path).is_dir():
                found.update(self._walk(f"{path}/"))
            else:
                with contextlib.suppress(FileNotFoundError):
                    found[path] = fingerprint_of((self.root / path).stat())
        return dict(sorted(found.items()))

    def list_partitions(self, wanted: Sequence[Mapping[str, str | None]]) -> dict[str, Fingerprint]:
        """As `list`, but only files in folders that agree with one of `wanted`; no other folder is listed."""
        found = self._walk("", wanted) if self.layout == "folder" else self.list().items()
        return dict(sorted((path, one) for path, one in found if partitions.agrees(path, wanted)))

    def _walk(
        self, folder: str, wanted: Sequence[Mapping[str, str | None]] | None = None
    ) -> Iterator[tuple[str, Fingerprint]]:
        try:
            with os.scandir(f"{self.root}{os.sep}{folder}") as found:
                entries = list(found)
            for entry in entries:
                name = entry.name
                if name in TABLE_MARKS and is_table_folder(str(self.root / folder)):
                    raise table_among_files(str(self.root / folder))
                if is_hidden(name):
                    continue
                if not name.isprintable() and "\udc80" <= max(name) <= "\udcff":
                    message = f"names of files and folders must be UTF-8, got {os.fsencode(entry.path)!r}"
                    raise DataFileError(f"{message}; rename it")
                if entry.is_dir():
                    if wanted is None or partitions.may_hold(f"{folder}{name}/", wanted):
                        yield from self._walk(f"{folder}{name}/", wanted)
                    continue
                try:  # a context manager would cost as much as the call
                    stat = entry.stat()
                except FileNotFoundError:
                    continue
                yield folder + name, fingerprint_of(stat)
        except OSError as error:
            raise DataFileError(f"{self.root / folder} must be a readable folder, got {error.strerror}") from error

    def absolute(self, path: str) -> str:
        """The absolute path of a data file."""
        return str(self.root / path)

    def open(self, path: str) -> DataFile:
        """The data file at `path`, opened; close it, or use it as a context manager.

        Raises
        ------
        DataFileError
            It is missing, or no whole Parquet file.
        """
        from zonebloom.formats.parquet.file import DataFile  # noqa: PLC0415 - a plain search opens no file

        return DataFile(LocalSource(f"{self.root}{os.sep}{path}"))

    def deleted_rows(self, path: str) -> None:
        """None: what a plain file holds is there."""

    @property
    def location(self) -> str:
        """The root."""
        return str(self.root)

    @property
    def traffic(self) -> Traffic:
        """None: the files are of this machine."""
        return Traffic()

    def relative(self, path: str | os.PathLike[str]) -> str:
        """`path`, which is absolute or relative to the root, as a path relative to the root.

        Raises
        ------
        InvalidArgumentError
            It lies outside.
        """
        whole = os.path.normpath(self.root / os.fspath(path))
        if not Path(whole).is_relative_to(self.root):
            raise InvalidArgumentError(f"paths must lie in the data set {self.root}, got {os.fspath(path)}")
        return Path(whole).relative_to(self.root).as_posix()

    def index_places(self) -> tuple[str, ...]:
        """Beside the folder or the one file, and inside the folder."""
        if self.layout == "folder":
            return places_of(str(self.root))
        return places_of(str(self.root / self.files[0]))[:1] if self.layout == "file" else ()

    def check_index(self, location: str) -> None:
        """Refuse a place where the index would be taken for data: a folder of the root that no name hides."""
        root = Path(location)
        if self.layout == "folder" and root.is_relative_to(self.root):
            parts = root.relative_to(self.root).parts
            if not any(is_hidden(part) for part in parts):
                message = "an index inside the data set must be in a folder whose name begins with _ or ."
                raise InvalidArgumentError(f"{message}, got {root}")

    def to_json(self, index_location: str) -> dict[str, Any]:
        """The data set as a version file holds it; see `written_root`."""
        root = written_root(str(self.root), index_location)
        return {"kind": "parquet", "root": root, "layout": self.layout, "files": list(self.files)}

    @classmethod
    def from_json(cls, described: dict[str, Any], index_location: str) -> ParquetDataset:
        """The data set that a version file describes."""
        return cls(Path(root_of(described["root"], index_location)), described["layout"], tuple(described["files"]))


def is_hidden(name: str) -> bool:
    """Whether readers skip files and folders of this name."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)
