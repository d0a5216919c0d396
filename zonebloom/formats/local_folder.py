"""`LocalFolder`: a folder of this machine, and all the data files below it.

Special files (a FIFO, a device), links to nothing, and links to a folder around the link are skipped with a warning.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from zonebloom.errors import DataFileError
from zonebloom.formats.folder import Wanted, is_hidden
from zonebloom.formats.hive import may_hold
from zonebloom.formats.source import LocalSource, fingerprint_of, kind_of
from zonebloom.formats.table_marks import TABLE_MARKS, is_table_folder, table_among_files
from zonebloom.storage.fragments import Fingerprint
from zonebloom.storage.stores.store import Traffic


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """A `Folder` of this machine."""

    root: Path
    """Its absolute path."""
    is_remote = False

    @property
    def location(self) -> str:
        """Its path."""
        return str(self.root)

    @property
    def traffic(self) -> Traffic:
        """None."""
        return Traffic()

    def walk(self, wanted: Wanted | None) -> Iterator[tuple[str, Fingerprint]]:
        """All data files below it, or only files that may be of the partitions `wanted`."""
        return self._walk("", wanted)

    def paths(self) -> Iterator[str]:
        """All files below it, also those that readers skip."""
        for folder, _, names in os.walk(self.root):
            yield from (Path(folder, name).relative_to(self.root).as_posix() for name in names)

    def below(self, path: str) -> dict[str, Fingerprint]:
        """The data file at `path`, or all data files in the folder at `path`."""
        names = path.split("/")
        if any(self._is_around("/".join(names[:end])) for end in range(1, len(names) + 1)):
            return {}
        return dict(self._walk(f"{path}/", None)) if (self.root / path).is_dir() else self.fingerprints([path])

    def fingerprints(self, paths: Iterable[str]) -> dict[str, Fingerprint]:
        """The fingerprints of the files among `paths`."""
        found = {}
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(self.root / path)  # noqa: PTH116 - the result is used as is
                if _is_file(self.absolute(path), status):
                    found[path] = fingerprint_of(status)
        return found

    def absolute(self, path: str) -> str:
        """The absolute path of a file."""
        return f"{self.root}{os.sep}{path}"

    def relative(self, given: str) -> str | None:
        """`given`, absolute or relative to the folder, as a path relative to it; None if it is outside."""
        whole = Path(os.path.normpath(self.root / given))
        return whole.relative_to(self.root).as_posix() if whole.is_relative_to(self.root) else None

    def open(self, path: str, listed: Fingerprint | None) -> LocalSource:  # noqa: ARG002 - a local file has its own fingerprint
        """The file at `path` as it is now."""
        return LocalSource(self.absolute(path))

    def _walk(self, folder: str, wanted: Wanted | None) -> Iterator[tuple[str, Fingerprint]]:
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
                    if wanted is None or may_hold(f"{folder}{name}/", wanted):
                        yield from self._walk(f"{folder}{name}/", wanted)
                    continue
                try:  # a context manager would cost as much as the call
                    status = entry.stat()
                except FileNotFoundError:
                    continue
                if stat.S_ISREG(status.st_mode) or _is_file(entry.path, status):
                    yield folder + name, fingerprint_of(status)
        except OSError as error:
            raise DataFileError(f"{self.root / folder} must be a readable folder, got {error.strerror}") from error

    def _leads_on(self, path: str) -> bool:
        """Whether the link at `path` leads to a file, or to a folder that is not around it; a warning if not."""
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
        """Whether `path` is a link to one of the folders around it."""
        parents = ["", *itertools.accumulate(path.split("/")[:-1], lambda parent, name: f"{parent}/{name}")]
        with contextlib.suppress(FileNotFoundError):
            return any((self.root / path).samefile(self.root / parent) for parent in parents)
        return False


def _check_name(entry: os.DirEntry[str]) -> None:
    if not entry.name.isprintable() and "\udc80" <= max(entry.name) <= "\udcff":
        message = f"names of files and folders must be UTF-8, got {os.fsencode(entry.path)!r}"
        raise DataFileError(f"{message}; rename it")


def _is_file(path: str, status: os.stat_result) -> bool:
    """Whether it is a regular file; a warning if not, since opening a special file may block for ever."""
    if not stat.S_ISREG(status.st_mode):
        _skipped(path, kind_of(status))
        return False
    return True


def _skipped(path: str, kind: str) -> None:
    message = f"what a data set holds must be files and folders, got {path}, {kind}; it is skipped"
    warnings.warn(message, RuntimeWarning, stacklevel=2)
