"""`Source`: the bytes of one version of one data file, on this machine or in an object store.

`LocalSource` is a file of this machine; `object_source.ObjectSource` one in an object store.
"""

from __future__ import annotations

import io
import os
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from zonebloom.errors import DataFileError
from zonebloom.storage.fragments import Fingerprint

_HALF = 1 << 63
_SETTLED_SECONDS = 0.02
"""Seconds between seeing a young file's modification time and reading the file. A later write gets another time."""
_COARSELY_SETTLED_SECONDS = 2.0
"""The same for file systems that keep whole seconds."""
_OLD_NS = 60_000_000_000
"""Nanoseconds: a file older than this is not young, even if the clock of a file server is ahead or behind."""


class Source(Protocol):
    """An opened data file; all reads are of the version that was opened."""

    @property
    def path(self) -> str:
        """Path or URL, for messages."""

    @property
    def fingerprint(self) -> Fingerprint:
        """The fingerprint of the opened version."""

    def current_fingerprint(self) -> Fingerprint:
        """The fingerprint of the file now, as far as the store has it; different if the bytes may have changed."""

    @property
    def is_remote(self) -> bool:
        """Whether each read is a request over the network."""

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of each `(offset, length)`; near ranges are fetched together, others in parallel."""

    def will_need(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Prepare reads of the ranges `(offset, length)` in about this order, through `arrow_file`."""

    def arrow_file(self) -> Any:
        """The whole file for pyarrow."""

    def close(self) -> None:
        """Close the file."""


class LocalSource:
    """A file of this machine; it stays the opened file even if its path is replaced."""

    is_remote = False

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        try:
            status = os.stat(path)  # noqa: PTH116 - a plain string
            if not stat.S_ISREG(status.st_mode):  # to open a FIFO would block for ever
                raise DataFileError(f"data file {path} must be a regular file, got {kind_of(status)}")
            self._file = pa.OSFile(self.path, "rb")
        except FileNotFoundError as error:
            raise DataFileError(f"data file {path} must exist, got no such file") from error
        except OSError as error:
            raise DataFileError(f"data file {path} must be readable, got {error}") from error
        self.fingerprint = self.current_fingerprint()

    def current_fingerprint(self) -> Fingerprint:
        """The fingerprint of the opened file now."""
        return fingerprint_of(os.fstat(self._file.fileno()))

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of each `(offset, length)`; fewer at the end of the file."""
        number = self._file.fileno()
        return [os.pread(number, length, offset) for offset, length in ranges]

    def read_into(self, memory: memoryview, ranges: Sequence[tuple[int, int]]) -> int:
        """Fill `memory` with the bytes of all ranges, one after the other; the number of bytes."""
        number, position = self._file.fileno(), 0
        for offset, length in ranges:
            position += os.preadv(number, [memory[position : position + length]], offset)
        return position

    def will_need(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Do nothing: the system reads ahead."""

    def arrow_file(self) -> Any:
        """The opened file."""
        return self._file

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class SourceFile(io.RawIOBase):
    """A source as a Python file with its own position; pyarrow passes on the errors of its reads."""

    def __init__(self, size: int, read: Callable[[int, int], bytes]) -> None:
        self._size = size
        self._read = read
        self._position = 0

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """The position of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a position."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """The next `size` bytes, fewer at the end."""
        left = max(0, self._size - self._position)
        data = self._read(self._position, left if size is None or size < 0 else size)
        self._position += len(data)
        return data


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


def wait_until_settled(fingerprint: Fingerprint, seen: float) -> None:
    """Wait, if the file is young, until a later write would get another modification time.

    The wait counts from `seen`, when the modification time had been read, not from the modification time itself, which
    may be from another clock.
    """
    has_tag = fingerprint.etag is not None  # a later write gets another tag
    if has_tag or time.time_ns() - fingerprint.mtime_ns > _OLD_NS:
        return
    settled = _SETTLED_SECONDS if fingerprint.mtime_ns % 1_000_000_000 else _COARSELY_SETTLED_SECONDS
    left = seen + settled - time.monotonic()
    if left > 0:
        time.sleep(left)
