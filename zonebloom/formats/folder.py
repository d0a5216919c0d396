"""Parquet files as a data set: listing with fingerprints, reading columns for a build and row groups for a scan.

A data set is a folder (hive-partitioned or not), one file, or a list of files. As Spark, pyarrow and DuckDB do, names
that begin with `_` or `.` are skipped in a folder; every other file is a data file, whatever its ending. What is no
file (a FIFO, a device, a link to nothing), and a link to a folder around it, is skipped with a warning.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from zonebloom.errors import DataFileError, InvalidArgumentError
from zonebloom.formats import hive as partitions
from zonebloom.formats.dataset import INDEX_FOLDER, DatasetSnapshot
from zonebloom.formats.source import Fingerprint, LocalSource, fingerprint_of, kind_of
from zonebloom.formats.table_marks import TABLE_MARKS, is_table_folder, table_among_files
from zonebloom.storage.stores.store import Traffic

if TYPE_CHECKING:
    from zonebloom.formats.parquet.file import DataFile

__all__ = ["ParquetDataset", "is_hidden"]


@dataclass(frozen=True, slots=True)
class ParquetDataset(DatasetSnapshot):
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
        return self._fingerprints(self.files)

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
            names = path.split("/")
            folders = ["/".join(names[:end]) for end in range(1, len(names) + 1)]
            if any(map(is_hidden, names)) or any(self._is_around(folder) for folder in folders):
                continue
            found.update(self._walk(f"{path}/") if (self.root / path).is_dir() else self._fingerprints([path]))
        return dict(sorted(found.items()))

    def _fingerprints(self, paths: Iterable[str]) -> dict[str, Fingerprint]:
        """Those of `paths` that are files."""
        found = {}
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(self.root / path)  # noqa: PTH116 - the result is used as is
                if _is_file(self.absolute(path), status):
                    found[path] = fingerprint_of(status)
        return found

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
                _check_name(entry)
                if entry.is_symlink() and not self._leads_on(folder + name):
                    continue
                if entry.is_dir():
                    if wanted is None or partitions.may_hold(f"{folder}{name}/", wanted):
                        yield from self._walk(f"{folder}{name}/", wanted)
                    continue
                try:  # a context manager would cost as much as the call
                    status = entry.stat()
                except FileNotFoundError:
                    continue
                if _is_file(entry.path, status):
                    yield folder + name, fingerprint_of(status)
        except OSError as error:
            raise DataFileError(f"{self.root / folder} must be a readable folder, got {error.strerror}") from error

    def _leads_on(self, path: str) -> bool:
        """Whether the link at `path` leads to something that the walk is not inside of; a warning if not."""
        try:
            status = os.stat(self.root / path)  # noqa: PTH116 - for its errors
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise
            _skipped(self.absolute(path), "a link to nothing")
            return False
        if stat.S_ISDIR(status.st_mode) and self._is_around(path):
            _skipped(self.absolute(path), "a link to a folder around it")
            return False
        return True

    def _is_around(self, path: str) -> bool:
        """Whether `path` is one of the folders around it, by way of a link."""
        parents = ["", *itertools.accumulate(path.split("/")[:-1], lambda parent, name: f"{parent}/{name}")]
        with contextlib.suppress(FileNotFoundError):
            return any((self.root / path).samefile(self.root / parent) for parent in parents)
        return False

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

    def default_index(self) -> str | None:
        """`_zonebloom` in the folder, or `_<file>.zonebloom` beside one file."""
        if self.layout == "folder":
            return str(self.root / INDEX_FOLDER)
        return str(self.root / f"_{self.files[0]}.zonebloom") if self.layout == "file" else None

    def check_index(self, location: str) -> None:
        """Refuse a place where the index would be taken for data: a folder of the root that no name hides."""
        root = Path(location)
        if self.layout == "folder" and root.is_relative_to(self.root):
            parts = root.relative_to(self.root).parts
            if not any(is_hidden(part) for part in parts):
                message = "an index inside the data set must be in a folder whose name begins with _ or ."
                raise InvalidArgumentError(f"{message}, got {root}")

    def to_json(self, index_location: str) -> dict[str, Any]:
        """The data set as a version file holds it: the root relative to an index inside it, so that both can move."""
        inside = Path(index_location).parent == self.root
        root = ".." if inside else str(self.root)
        return {"kind": "parquet", "root": root, "layout": self.layout, "files": list(self.files)}

    @classmethod
    def from_json(cls, described: dict[str, Any], index_location: str) -> ParquetDataset:
        """The data set that a version file describes."""
        root = described["root"]
        folder = Path(index_location).parent if root == ".." else Path(root)
        return cls(folder, described["layout"], tuple(described["files"]))


def _check_name(entry: os.DirEntry[str]) -> None:
    if not entry.name.isprintable() and "\udc80" <= max(entry.name) <= "\udcff":
        message = f"names of files and folders must be UTF-8, got {os.fsencode(entry.path)!r}"
        raise DataFileError(f"{message}; rename it")


def _is_file(path: str, status: os.stat_result) -> bool:
    """Whether there is a regular file; a warning if not, for to open anything else may block for ever."""
    if not stat.S_ISREG(status.st_mode):
        _skipped(path, kind_of(status))
        return False
    return True


def _skipped(path: str, kind: str) -> None:
    message = f"what a data set holds must be files and folders, got {path}, {kind}; it is skipped"
    warnings.warn(message, RuntimeWarning, stacklevel=2)


def is_hidden(name: str) -> bool:
    """Whether readers skip files and folders of this name."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)
