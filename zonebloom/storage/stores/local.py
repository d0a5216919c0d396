"""`LocalStore`: objects below a local folder.

Segments are memory-mapped or read by position. A commit is a hard link, which the system makes only if the name is
free, or a rename that does not replace.

Spec: specs/index-format.md#store
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow as pa

from zonebloom.errors import CorruptIndexError, StorageError
from zonebloom.storage.stores.store import SLOW_READ_SECONDS, Traffic

_MAX_OPEN_FILES = 256
_LARGE_BYTES = 1 << 20


class _OpenFile:
    """A file descriptor that is closed with its last user, so a thread never closes a file that another reads."""

    __slots__ = ("num_bytes", "number")

    def __init__(self, path: Path) -> None:
        self.number = _regular_file(path)
        self.num_bytes = os.fstat(self.number).st_size
        if hasattr(os, "posix_fadvise"):  # readahead would read up to 512 times the bytes that a probe asks for
            os.posix_fadvise(self.number, 0, 0, os.POSIX_FADV_RANDOM)

    def read(self, offset: int, length: int) -> bytes:
        """Bytes of the file, without allocating memory for bytes past its end."""
        return os.pread(self.number, min(length, max(self.num_bytes - offset, 0)), offset)

    def will_need(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Have the system read ahead, in parallel."""
        if hasattr(os, "posix_fadvise"):
            for offset, length in ranges:
                os.posix_fadvise(self.number, offset, length, os.POSIX_FADV_WILLNEED)

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            os.close(self.number)


def _regular_file(path: Path) -> int:
    """The descriptor of a plain file, opened for reading; a link, a pipe and a device are damage, and never block."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        number = os.open(path, flags)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise _not_a_file(path) from error
        raise
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise _not_a_file(path)
    return number


def _not_a_file(path: Path) -> CorruptIndexError:
    return CorruptIndexError(f"{path} must be a plain file, got a link or a special file; put the file itself there")


class LocalMapping:
    """A memory-mapped file; it stays mapped while `buffer` is used."""

    __slots__ = ("_mapped", "buffer")

    def __init__(self, file_number: int, *, is_sparse: bool) -> None:
        self._mapped: mmap.mmap | None = None
        if os.fstat(file_number).st_size:
            self._mapped = mmap.mmap(file_number, 0, access=mmap.ACCESS_READ)
            if is_sparse and hasattr(mmap, "MADV_RANDOM"):
                self._mapped.madvise(mmap.MADV_RANDOM)
        self.buffer: pa.Buffer = pa.py_buffer(self._mapped or b"")
        """All bytes; only pages that are touched are read."""

    def need(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Do nothing: a page is read when it is touched."""

    def release(self) -> None:
        """Unmap the pages that were touched; the next touch maps them again."""
        if self._mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._mapped.madvise(mmap.MADV_DONTNEED)


class LocalFile:
    """A file that is being written, from its beginning to its end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("xb")
        self._direct: int | None = None

    def write(self, data: Any) -> None:
        """Append `data`."""
        self._file.write(data)

    def write_large(self, data: Any) -> None:
        """Append `data`, past the page cache if possible: gigabytes must not evict pages that others read.

        The memory, the position and the length must be multiples of the page; otherwise it is a plain write.
        """
        view = memoryview(data).cast("B")
        if len(view) < _LARGE_BYTES or not self._write_directly(view):
            self._file.write(view)

    def _write_directly(self, view: memoryview) -> bool:
        start = position = self._file.seek(0, os.SEEK_END)
        try:
            if self._direct is None:
                self._direct = os.open(self._path, os.O_WRONLY | os.O_DIRECT)
            while position < start + len(view):
                position += os.pwrite(self._direct, view[position - start :], position)
        except (AttributeError, OSError) as error:
            if isinstance(error, OSError) and error.errno != errno.EINVAL:
                raise
            self._file.seek(start)
            return False
        self._file.seek(position)
        return True

    def flush(self) -> None:
        """Hand buffered bytes over to the system."""
        self._file.flush()

    def close(self) -> None:
        """End the file."""
        if self._direct is not None:
            os.close(self._direct)
            self._direct = None
        self._file.close()


class LocalStore:
    """Objects below a local folder.

    Raises
    ------
    StorageError
        From every method, where the operating system refuses (no permission, no space); the message names the path.
        A missing object is a `FileNotFoundError`, which callers expect and handle.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self.is_remote = False
        self.traffic = Traffic()
        self._open_files: dict[str, _OpenFile] = {}
        self._own_folders: set[str] = set()

    def _place(self, path: str) -> Path:
        """The place of the object at `path`; a folder of the index must not be a link that leads out of it."""
        folder = path.rpartition("/")[0]
        if folder not in self._own_folders:
            place = self.root / folder
            if os.path.realpath(place) != os.path.join(os.path.realpath(self.root), folder).rstrip("/"):  # noqa: PTH118 - plain
                message = f"{place} must be a folder of the index, got a link or a path out of it"
                raise CorruptIndexError(f"{message}; put the folder itself there")
            self._own_folders.add(folder)
        return self.root / path

    def __reduce__(self) -> tuple[Any, ...]:
        return LocalStore, (self.root,)

    def __repr__(self) -> str:
        return f"LocalStore({str(self.root)!r})"

    @property
    def location(self) -> str:
        """The folder."""
        return str(self.root)

    def size(self, path: str) -> int:
        """Bytes of the object at `path`."""
        with _explained("read", self.root / path):
            return self._place(path).lstat().st_size

    def read(self, path: str) -> bytes:
        """All bytes of the object at `path`."""
        with _explained("read", self.root / path), open(_regular_file(self._place(path)), "rb") as file:
            return file.read()

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """For each `(offset, length)` of `ranges`, those bytes of the object at `path`; fewer at its end.

        The object must be immutable: it stays open, so a second call costs one positioned read for each range. A store
        with a high latency reads near ranges together.
        """
        try:
            file = self._opened(path)
            started = perf_counter()
            blobs = [file.read(offset, length) for offset, length in ranges[:1]]
            if len(ranges) > 1 and perf_counter() - started > SLOW_READ_SECONDS:
                file.will_need(ranges[1:])
            blobs += [file.read(offset, length) for offset, length in ranges[1:]]
        except OSError as error:
            with _explained("read", self.root / path):
                raise error from None
        return blobs

    def will_need(self, path: str, ranges: Sequence[tuple[int, int]]) -> None:
        """Start reading the ranges `(offset, length)` of an immutable object, all at once, and do not wait."""
        with _explained("read", self.root / path):
            self._opened(path).will_need(ranges)

    def _opened(self, path: str) -> _OpenFile:
        file = self._open_files.pop(path, None) or _OpenFile(self._place(path))
        self._open_files[path] = file  # last in order, so the first is the least recently used
        if len(self._open_files) > _MAX_OPEN_FILES:
            self._open_files.pop(list(self._open_files)[0], None)  # noqa: RUF015 - other threads change it meanwhile
        return file

    def mapping(self, path: str, *, is_sparse: bool = False) -> LocalMapping:
        """The object at `path`, memory-mapped; with `is_sparse` the system does not read ahead of touched pages."""
        with _explained("read", self.root / path), open(_regular_file(self._place(path)), "rb") as file:
            return LocalMapping(file.fileno(), is_sparse=is_sparse)

    def list(self, folder: str) -> list[str]:
        """Names of the objects in `folder`, in order; empty where there is no such folder."""
        with _explained("list", self.root / folder):
            try:
                return sorted(entry.name for entry in os.scandir(self._place(f"{folder}/")) if entry.is_file())
            except (FileNotFoundError, NotADirectoryError):
                return []

    def files(self, folder: str) -> dict[str, tuple[int, float]]:
        """Bytes and time of last modification (seconds since 1970) of all objects below `folder`, by path."""
        found = {}
        with _explained("list", self.root / folder):
            for place, _, names in os.walk(self._place(f"{folder}/" if folder else "")):
                for name in names:
                    path = Path(place, name)
                    with contextlib.suppress(FileNotFoundError):
                        status = path.stat()
                        found[path.relative_to(self.root).as_posix()] = (status.st_size, status.st_mtime)
        return dict(sorted(found.items()))

    def prune(self) -> None:
        """Remove empty folders, and the root if it is empty."""
        for place, _, _ in os.walk(self.root, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(place)  # noqa: PTH106 - a plain string

    @contextlib.contextmanager
    def writing(self, path: str) -> Iterator[LocalFile]:
        """A new object at `path`, which must be unique; removed if the block raises.

        No fsync: a file torn by a power failure fails its checksum, and its fragments are read as not indexed.
        """
        target = self._place(path)
        with _explained("write", target):
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                with contextlib.closing(LocalFile(target)) as file:
                    yield file
            except BaseException:
                target.unlink(missing_ok=True)
                raise

    def create(self, path: str, data: bytes) -> bool:
        """Write `data` at `path` durably and atomically; False, and nothing written, if something is there already."""
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
        """Remove the object at `path` if it is there."""
        with _explained("delete", self.root / path):
            self._place(path).unlink(missing_ok=True)


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
            message = f"cannot write {target}: the file system must make hard links, or rename without replacing"
            raise StorageError(f"{message}, got {error.strerror}; keep the index elsewhere with index=") from error


_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
_AT_FDCWD, _RENAME_NOREPLACE = -100, 1
"""Arguments of Linux's renameat2(2): paths are relative to the process; EEXIST if the new name is taken."""


def _renamed(source: Path, target: Path) -> int:
    """The errno of a rename that does not replace; 0 for success."""
    import ctypes  # noqa: PLC0415 - only used without hard links

    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return errno.ENOSYS
    failed = rename(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _RENAME_NOREPLACE)
    return ctypes.get_errno() if failed else 0


@contextlib.contextmanager
def _explained(verb: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if verb != "write" and isinstance(error, (FileNotFoundError, FileExistsError)):
            raise
        hint = {
            errno.EACCES: "; grant access, or keep the index elsewhere with index=",
            errno.EROFS: "; keep the index elsewhere with index=",
            errno.EMFILE: "; allow more open files (ulimit -n), or build fewer columns at once",
            errno.ENOSPC: "; free some space and run again: nothing was committed",
            errno.EDQUOT: "; free some space and run again: nothing was committed",
        }.get(error.errno or 0, "")
        raise StorageError(f"cannot {verb} {path}: {error.strerror or error}{hint}") from error
