"""Files of this machine: read and written at their positions, by several threads at once, and memory-mapped.

Where the system has no such call (Windows), one thread at a time moves the position of the file.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from zonebloom.ground.errors import CorruptIndexError, DataFileError
from zonebloom.stores.fingerprint import Fingerprint
from zonebloom.stores.stored_file import SeekableFile

_LARGE_BYTES = 1 << 20
_HALF = 1 << 63
_PLAIN = sum(getattr(os, flag, 0) for flag in ("O_RDONLY", "O_BINARY", "O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"))
"""No system has all of these."""


class SharedFile:
    """A file descriptor that is closed with its last user, so a thread never closes a file that another reads."""

    __slots__ = ("num_bytes", "number")

    def __init__(self, path: Path) -> None:
        self.number: int = regular_file(path)
        self.num_bytes: int = os.fstat(self.number).st_size
        if hasattr(os, "posix_fadvise"):  # readahead would read up to 512 times the bytes that a probe asks for
            os.posix_fadvise(self.number, 0, 0, os.POSIX_FADV_RANDOM)

    def read(self, offset: int, length: int) -> bytes:
        """Bytes of the file, without allocating memory for bytes past its end."""
        return read_at(self.number, min(length, max(self.num_bytes - offset, 0)), offset)

    def will_need(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Have the system read ahead, in parallel."""
        if hasattr(os, "posix_fadvise"):
            for offset, length in ranges:
                os.posix_fadvise(self.number, offset, length, os.POSIX_FADV_WILLNEED)

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            os.close(self.number)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which nobody else holds meanwhile; without effect on systems that have none."""
    try:
        from fcntl import LOCK_EX, flock  # noqa: PLC0415 - Windows has no such module, and renames no open file
    except ImportError:
        yield
        return
    with path.open("rb") as file:
        with contextlib.suppress(OSError):  # of a file system without locks
            flock(file, LOCK_EX)
        yield


@contextlib.contextmanager
def alone(path: Path) -> Iterator[bool]:
    """Hold the lock of the file at `path`, which is made if there is none; whether no other call holds it."""
    if os.name == "nt":  # which has no such locks, and renames no open file
        yield True
        return
    with path.open("ab") as file:
        yield not is_locked(file)


def is_locked(file: IO[Any]) -> bool:
    """Lock an opened file until it is closed; whether another process has it locked already."""
    try:
        from fcntl import LOCK_EX, LOCK_NB, flock  # noqa: PLC0415 - Windows has no such module

        flock(file, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):  # of a file system without locks
        return False
    return False


def regular_file(path: Path) -> int:
    """The descriptor of a plain file, opened for reading; a link, a pipe and a device are damage, and never block."""
    try:
        number = os.open(path, _PLAIN)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise _not_a_file(path) from error
        raise
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise _not_a_file(path)
    return number


def _not_a_file(path: Path) -> CorruptIndexError:
    return CorruptIndexError(
        f"{path} must be a plain file", got="a link or a special file", do="put the file itself there"
    )


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


class NewLocalFile:
    """A file that is being written, from its beginning to its end.

    Parameters
    ----------
    is_cached
        Whether so many more bytes may go through the page cache.
    """

    def __init__(self, path: Path, is_cached: Callable[[int], bool]) -> None:
        self._path = path
        self._is_cached = is_cached
        self._file = path.open("xb")
        self._direct: int | None = None

    def write(self, data: Any) -> None:
        """Append `data`."""
        self._file.write(data)

    def write_large(self, data: Any) -> None:
        """Append `data`, past the page cache if that is full and it is possible.

        The memory, the position and the length must be multiples of the page; otherwise it is a plain write.
        """
        view = memoryview(data).cast("B")
        if len(view) < _LARGE_BYTES or self._is_cached(len(view)) or not self._write_directly(view):
            self._file.write(view)

    def _write_directly(self, view: memoryview) -> bool:
        start = position = self._file.seek(0, os.SEEK_END)
        try:
            if self._direct is None:
                self._direct = os.open(self._path, os.O_WRONLY | os.O_DIRECT)
            while position < start + len(view):
                position += write_at(self._direct, view[position - start :], position)
        except (AttributeError, OSError) as error:
            if isinstance(error, OSError) and error.errno != errno.EINVAL:
                raise
            self._file.seek(start)
            return False
        self._file.seek(position)
        return True

    def flush(self) -> None:
        """As `NewFile.flush`."""
        self._file.flush()

    def close(self) -> None:
        """End the file."""
        if self._direct is not None:
            os.close(self._direct)
            self._direct = None
        self._file.close()


class LocalFile:
    """A file of this machine; it stays the opened file even if its path is replaced."""

    is_remote = False

    def __init__(self, path: str | Path) -> None:
        self.path: str = str(path)
        try:
            status = os.stat(path)  # noqa: PTH116 - a plain string
            if not stat.S_ISREG(status.st_mode):  # to open a FIFO would block for ever
                raise DataFileError(f"data file {path} must be a regular file", got=kind_of(status))
            self._file = open(path, "rb", buffering=0)  # noqa: SIM115, PTH123 - `close` and `__del__` close it
        except FileNotFoundError as error:
            raise DataFileError(f"data file {path} must exist", got="no such file") from error
        except OSError as error:
            raise DataFileError(f"data file {path} must be readable", got=error) from error
        status = os.fstat(self._file.fileno())
        self.fingerprint: Fingerprint = fingerprint_of(status)
        self.changed_ns: int = status.st_ctime_ns

    def current_fingerprint(self) -> Fingerprint:
        """The fingerprint of the opened file now."""
        return fingerprint_of(os.fstat(self._file.fileno()))

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """As `StoredFile.read_ranges`."""
        number = self._file.fileno()
        return [read_at(number, length, offset) for offset, length in ranges]

    def _read(self, offset: int, length: int) -> bytes:
        return read_at(self._file.fileno(), length, offset)

    def read_into(self, memory: memoryview, ranges: Sequence[tuple[int, int]]) -> int:
        """Fill `memory` with the bytes of all ranges, one after the other; the number of bytes."""
        number, position = self._file.fileno(), 0
        for offset, length in ranges:
            position += read_into(number, memory[position : position + length], offset)
        return position

    def will_need(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Do nothing: the system reads ahead."""

    def arrow_file(self) -> Any:
        """The opened file, with its own position."""
        return pa.PythonFile(SeekableFile(self.fingerprint.size, self._read), mode="r")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # it was never opened
            self.close()


_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def kind_of(status: os.stat_result) -> str:
    """The kind of a special file, for messages."""
    return _KINDS.get(stat.S_IFMT(status.st_mode), "no file")


def fingerprint_of(status: os.stat_result) -> Fingerprint:
    """The fingerprint of a local file; times beyond 64 bits, from the year 2262 on, wrap around."""
    mtime = status.st_mtime_ns
    return Fingerprint(status.st_size, mtime if -_HALF <= mtime < _HALF else (mtime + _HALF) % (2 * _HALF) - _HALF)


# --- at a position ----------------------------------------------------------------------------------------------------

_moving = threading.Lock()


def _read_after_seek(number: int, length: int, offset: int, /) -> bytes:
    with _moving:
        os.lseek(number, offset, os.SEEK_SET)
        return os.read(number, length)


def _write_after_seek(number: int, data: bytes | memoryview, offset: int, /) -> int:
    with _moving:
        os.lseek(number, offset, os.SEEK_SET)
        return os.write(number, data)


_read_some: Callable[[int, int, int], bytes] = getattr(os, "pread", _read_after_seek)
"""Linux gives at most 2 GiB less a page by one call; a file system in a network may give fewer bytes than asked for."""
write_at: Callable[[int, bytes | memoryview, int], int] = getattr(os, "pwrite", _write_after_seek)
"""`write_at(number, data, offset)`: the number of bytes written."""


def read_at(number: int, length: int, offset: int) -> bytes:
    """Bytes of the file descriptor `number`; fewer only at the end of the file."""
    data = _read_some(number, length, offset)
    if len(data) == length:
        return data
    parts, left = [data], length - len(data)
    while parts[-1] and left:
        parts.append(_read_some(number, left, offset + length - left))
        left -= len(parts[-1])
    return b"".join(parts)


def read_into(number: int, memory: memoryview, offset: int) -> int:
    """Fill `memory` with bytes of the file descriptor `number`; their number, less only at the end of the file."""
    position = 0
    while position < len(memory) and (more := _read_some_into(number, memory[position:], offset + position)):
        position += more
    return position


def _read_some_into(number: int, memory: memoryview, offset: int) -> int:
    if hasattr(os, "preadv"):
        return os.preadv(number, [memory], offset)
    data = read_at(number, len(memory), offset)
    memory[: len(data)] = data
    return len(data)
