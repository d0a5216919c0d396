"""`LocalStore`: objects below a local folder.

Segments are memory-mapped or read by position. A commit is a hard link, which the system makes only if the name is
free, or a rename that does not replace.

Spec: specs/index-format.md#store
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
import sys
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, BinaryIO

from zonebloom.ground.errors import CorruptIndexError, DataFileError, StorageError, Words
from zonebloom.stores.fingerprint import Fingerprint
from zonebloom.stores.local_file import (
    LocalFile,
    LocalMapping,
    NewLocalFile,
    SharedFile,
    fingerprint_of,
    kind_of,
    locked,
    regular_file,
)
from zonebloom.stores.locations import StorageOptions, absolute, is_url
from zonebloom.stores.store import SLOW_READ_SECONDS, Level, Traffic

_MAX_OPEN_FILES = 256
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})
"""Errors of a name that leads to nothing."""
_STAGED = ".zonebloom-staged"
"""The end of the hidden name under which the next content of a data file is written."""
_CACHED_BYTES = 1 << 30
"""Bytes that a store writes through the page cache, so that the first searches find a new index there. Gigabytes would
evict pages that others read, and take up to four times as long as past the cache."""


class LocalStore:
    """Objects below a local folder.

    Raises
    ------
    StorageError
        From every method, if the operating system refuses (no permission, no space); the message names the path.
        A missing object is a `FileNotFoundError`, which callers expect and handle.
    """

    def __init__(self, root: str | Path, options: StorageOptions | None = None) -> None:
        self.root: Path = Path(root)
        self.options = options
        self.is_remote = False
        self.traffic: Traffic = Traffic()
        self._open_files: dict[str, SharedFile] = {}
        self._own_folders: set[str] = set()
        self._num_cached = 0

    def _place(self, path: str) -> Path:
        """The place of the object at `path`; a folder of the index must not be a link, which may lead out of it."""
        folder = path.rpartition("/")[0]
        if folder not in self._own_folders:
            names = folder.split("/")
            folders = map(self.absolute, itertools.accumulate(names, "{}/{}".format))
            if ".." in names or any(map(os.path.islink, folders)):
                raise CorruptIndexError(
                    f"{self.root / folder} must be a folder of the index",
                    got="a link or a path out of it",
                    do="put the folder itself there",
                )
            self._own_folders.add(folder)
        return self.root / path

    def __reduce__(self) -> tuple[Any, ...]:
        return LocalStore, (self.root, self.options)

    def __repr__(self) -> str:
        return f"LocalStore({str(self.root)!r})"

    @property
    def location(self) -> str:
        """The folder."""
        return str(self.root)

    def size(self, path: str) -> int:
        """Bytes of the object at `path`."""
        place = self._place(path)
        with _explained("read", place):
            return place.lstat().st_size

    def read(self, path: str) -> bytes:
        """As `Store.read`."""
        place = self._place(path)
        with _explained("read", place), os.fdopen(regular_file(place), "rb") as file:
            return file.read()

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """As `Store.read_ranges`; the object stays open, so a second call costs a positioned read for each range.

        A disk with a high latency gets all ranges at once.
        """
        with _explained("read", self.absolute(path)):
            file = self._opened(path)
            started = perf_counter()
            blobs = [file.read(offset, length) for offset, length in ranges[:1]]
            if len(ranges) > 1 and perf_counter() - started > SLOW_READ_SECONDS:
                file.will_need(ranges[1:])
            return blobs + [file.read(offset, length) for offset, length in ranges[1:]]

    def will_need(self, path: str, ranges: Sequence[tuple[int, int]]) -> None:
        """As `Store.will_need`."""
        with _explained("read", self.root / path):
            self._opened(path).will_need(ranges)

    def _opened(self, path: str) -> SharedFile:
        file = self._open_files.pop(path, None) or SharedFile(self._place(path))
        self._open_files[path] = file  # last in order, so the first is the least recently used
        if len(self._open_files) > _MAX_OPEN_FILES:
            self._open_files.pop(list(self._open_files)[0], None)  # noqa: RUF015 - other threads change it meanwhile
        return file

    def mapping(self, path: str, sparse_size: int | None = None) -> LocalMapping:
        """The object at `path`, memory-mapped; the system does not read ahead of touched pages if its size is given."""
        place = self._place(path)
        with _explained("read", place), os.fdopen(regular_file(place), "rb") as file:
            return LocalMapping(file.fileno(), is_sparse=sparse_size is not None)

    def list(self, folder: str) -> list[str]:
        """As `Store.list`."""
        place = self._place(f"{folder}/")
        with _explained("list", place):
            try:
                return sorted(entry.name for entry in os.scandir(place) if entry.is_file())
            except (FileNotFoundError, NotADirectoryError):
                return []

    def files(self, folder: str, known_names: Iterable[str] = ()) -> dict[str, Fingerprint]:  # noqa: ARG002 - of no use here
        """As `Store.files`."""
        fingerprints = {}
        with _explained("list", self.root / folder):
            for place, _, names in os.walk(self._place(f"{folder}/") if folder else self.root):
                below = Path(place).relative_to(self.root).as_posix()
                for name in names:
                    whole = os.path.join(place, name)  # noqa: PTH118 - a plain string
                    try:
                        status = os.stat(whole)  # noqa: PTH116 - as above
                    except OSError as error:
                        if error.errno not in _GONE and not os.path.islink(whole):  # noqa: PTH114 - as above
                            raise
                    else:
                        fingerprints[name if below == "." else f"{below}/{name}"] = fingerprint_of(status)
        return dict(sorted(fingerprints.items()))

    def prune(self, folders: Iterable[str]) -> None:
        """Remove the empty ones of `folders` and of those below them, and the root if it is empty."""
        below = (place for folder in folders for place, _, _ in os.walk(self.root / folder, topdown=False))
        for place in (*below, str(self.root)):
            with contextlib.suppress(OSError):
                os.rmdir(place)  # noqa: PTH106 - a plain string

    @contextlib.contextmanager
    def writing(self, path: str) -> Iterator[NewLocalFile]:
        """A new object at `path`, which must be unique; removed if the block raises.

        No fsync: a file torn by a power failure fails its checksum, and its fragments are read as not indexed.
        """
        target = self._place(path)
        with _explained("write", target):
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                with contextlib.closing(NewLocalFile(target, self._is_cached)) as file:
                    yield file
            except BaseException:
                target.unlink(missing_ok=True)
                raise

    def _is_cached(self, num_bytes: int) -> bool:
        self._num_cached += num_bytes
        return self._num_cached <= _CACHED_BYTES

    def create(self, path: str, data: bytes) -> bool:
        """As `Store.create`."""
        target = self._place(path)
        with _explained("write", target):
            target.parent.mkdir(parents=True, exist_ok=True)
            staged = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
            try:
                with staged.open("xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                _place_new(staged, target)
            except FileExistsError:
                return False
            finally:
                staged.unlink(missing_ok=True)
        return True

    def delete(self, path: str) -> None:
        """As `Store.delete`."""
        with _explained("delete", self.root / path):
            self._place(path).unlink(missing_ok=True)

    # --- data files ---------------------------------------------------------------------------------------------------

    def absolute(self, path: str) -> str:
        """The absolute path of a file."""
        return f"{self.root}{os.sep}{path}"

    def relative(self, given: str) -> str | None:
        """As `Store.relative`; `given` may be a `file:` URL."""
        if is_url(given) and is_url(given := absolute(given)):
            return None
        whole = Path(os.path.normpath(self.root / given))
        return whole.relative_to(self.root).as_posix() if whole.is_relative_to(self.root) else None

    def open(self, path: str, listed: Fingerprint | None = None) -> LocalFile:  # noqa: ARG002 - a local file has its own
        """The file at `path` as it is now; a link is followed."""
        return LocalFile(self.absolute(path))

    def stats(self, paths: Iterable[str]) -> dict[str, Fingerprint]:
        """The fingerprints of the files among `paths`; links are followed, special files skipped with a warning."""
        fingerprints = {}
        for path in paths:
            status = self._status(path)
            if status and not stat.S_ISDIR(status.st_mode) and _is_file(self.absolute(path), status):
                fingerprints[path] = fingerprint_of(status)
        return fingerprints

    def _status(self, path: str) -> os.stat_result | None:
        """The status of the file or folder at `path`, links followed; None if the name leads to nothing."""
        try:
            return os.stat(self.absolute(path))  # noqa: PTH116 - a plain string
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise DataFileError(f"{self.absolute(path)} must be readable", got=error.strerror) from error

    @contextlib.contextmanager
    def staging(self, path: str) -> Iterator[BinaryIO]:
        """A hidden file beside the data file, so on its disk; what a killed process left there is removed first."""
        folder = Path(os.path.realpath(self.absolute(path))).parent
        staged = folder / f".{uuid.uuid4().hex}{_STAGED}"
        with _explained("write", staged):
            for left_over in folder.glob(f".*{_STAGED}"):
                left_over.unlink(missing_ok=True)
            try:
                with open(staged, "x+b", opener=_opened_in_private) as file:
                    yield file
            finally:
                staged.unlink(missing_ok=True)

    def replace(self, path: str, staged: BinaryIO, expected: Fingerprint) -> bool:
        """Rename the staged file, with the old one's access rights, to `path`; a link stays, its file is replaced."""
        real = os.path.realpath(self.absolute(path))
        with _explained("write", Path(real)), contextlib.suppress(FileNotFoundError), locked(Path(real)):
            staged.flush()
            status = os.stat(real)  # noqa: PTH116 - a plain string
            _copy_attributes(real, staged.name)
            os.chmod(staged.name, stat.S_IMODE(status.st_mode))  # noqa: PTH101 - as above
            with contextlib.suppress(PermissionError, AttributeError):  # Windows has no owners
                os.chown(staged.name, status.st_uid, status.st_gid)
            os.fsync(staged.fileno())
            staged.close()  # Windows renames no open file
            if fingerprint_of(os.stat(real)) != expected:  # noqa: PTH116 - as above
                return False
            os.replace(staged.name, real)  # noqa: PTH105 - as above
            _sync(os.path.dirname(real))  # noqa: PTH120 - as above
            return True
        return False

    def retains_old(self, path: str) -> bool:
        """Whether the file has another name, by a hard link."""
        status = self._status(path)
        return status is not None and status.st_nlink > 1

    def level(self, folder: str, is_hidden: Callable[[str], bool]) -> Level:
        """The files in `folder` whose names are not hidden, and all folders in it.

        Special files (a FIFO, a device), links to nothing, and links to a folder around the link are skipped with a
        warning; other links are followed.
        """
        files, folders = [], []
        try:
            with os.scandir(f"{self.root}{os.sep}{folder}") as scanned:
                entries = list(scanned)
            for entry in entries:
                name = entry.name
                if is_hidden(name):
                    folders += [name] * _may_be_folder(entry)
                    continue
                _check_name(entry)
                if entry.is_symlink() and not self._leads_on(folder + name):
                    continue
                if entry.is_dir():
                    folders.append(name)
                    continue
                try:  # a context manager would cost as much as the call
                    status = entry.stat()
                except FileNotFoundError:
                    continue
                if stat.S_ISREG(status.st_mode) or _is_file(entry.path, status):
                    files.append((folder + name, fingerprint_of(status)))
        except OSError as error:
            if not (folder and isinstance(error, FileNotFoundError)):  # a folder that is gone has no files
                raise DataFileError(f"{self.root / folder} must be a readable folder", got=error.strerror) from error
        return files, folders

    def may_be_folder(self, path: str) -> bool:
        """Whether `path` is a folder, and not by a link to a folder around it."""
        names = path.split("/")
        is_around = any(self._is_around("/".join(names[:end])) for end in range(1, len(names) + 1))
        status = self._status(path)
        return not is_around and status is not None and stat.S_ISDIR(status.st_mode)

    def _leads_on(self, path: str) -> bool:
        """Whether the link at `path` leads to a file, or to a folder that is not around it; a warning if not."""
        status = self._status(path)
        if status is None:
            _skipped(self.absolute(path), "a link to nothing")
            return False
        if stat.S_ISDIR(status.st_mode) and self._is_around(path):
            _skipped(self.absolute(path), "a link to a folder around it")
            return False
        return True

    def _is_around(self, path: str) -> bool:
        """Whether `path` is a link to one of the folders around it."""
        parents = ["", *itertools.accumulate(path.split("/")[:-1], lambda parent, name: f"{parent}/{name}")]
        status, around = self._status(path), map(self._status, parents)
        return status is not None and any(folder and os.path.samestat(status, folder) for folder in around)


def _opened_in_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _copy_attributes(source: str, target: str) -> None:
    """Copy extended attributes, as who else may read a file, as far as system and file system have and allow them."""
    with contextlib.suppress(OSError, AttributeError):
        for name in os.listxattr(source):
            with contextlib.suppress(OSError):
                os.setxattr(target, name, os.getxattr(source, name))


def _sync(folder: str) -> None:
    """Make the names in a folder durable, if the system can open folders: Windows cannot."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _place_new(staged: Path, target: Path) -> None:
    """Give the file `staged` the name `target`, atomically; a FileExistsError if the name is taken.

    By a hard link. File systems without hard links (exFAT, many FUSE mounts) need a rename that does not replace.

    Spec: specs/index-format.md#store
    """
    try:
        os.link(staged, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        number = _renamed(staged, target)
        if number == errno.EEXIST:
            raise FileExistsError(number, os.strerror(number), str(target)) from None
        if number:
            raise StorageError(
                f"cannot write {target}: the file system must make hard links, or rename without replacing",
                got=error.strerror,
                do=f"keep the index elsewhere with {Words.INDEX}",
            ) from error


_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
_AT_FDCWD, _RENAME_NOREPLACE = -100, 1
"""Arguments of Linux's renameat2(2): paths are relative to the process; EEXIST if the new name is taken."""


def _renamed(source: Path, target: Path) -> int:
    """The errno of a rename that does not replace; 0 for success."""
    import ctypes  # noqa: PLC0415 - only used without hard links

    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if sys.platform == "linux" else None
    if rename is None:
        return errno.ENOSYS
    failed = rename(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _RENAME_NOREPLACE)
    return ctypes.get_errno() if failed else 0


@contextlib.contextmanager
def _explained(verb: str, path: Path | str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if verb != "write" and isinstance(error, (FileNotFoundError, FileExistsError)):
            raise
        hint = {
            errno.EACCES: f"; grant access; an index can also be elsewhere, by {Words.INDEX}",
            errno.EROFS: f"; an index can be elsewhere, by {Words.INDEX}",
            errno.EMFILE: "; allow more open files (ulimit -n), or build fewer columns at once",
            errno.ENOSPC: "; free some space and run again: nothing was committed",
            errno.EDQUOT: "; free some space and run again: nothing was committed",
        }.get(error.errno or 0, "")
        raise StorageError(f"cannot {verb} {path}: {error.strerror or error}{hint}") from error


def _check_name(entry: os.DirEntry[str]) -> None:
    if not entry.name.isprintable() and any("\udc80" <= character <= "\udcff" for character in entry.name):
        raise DataFileError(
            "names of files and folders must be UTF-8", got=f"{os.fsencode(entry.path)!r}", do="rename it"
        )


def _may_be_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that this user cannot follow
        return True


def _is_file(path: str, status: os.stat_result) -> bool:
    """Whether it is a regular file; a warning if not, since opening a special file may block without end."""
    if not stat.S_ISREG(status.st_mode):
        _skipped(path, kind_of(status))
        return False
    return True


def _skipped(path: str, kind: str) -> None:
    message = f"what a data set holds must be files and folders, got {path}, {kind}; it is skipped"
    warnings.warn(message, RuntimeWarning, stacklevel=2)
