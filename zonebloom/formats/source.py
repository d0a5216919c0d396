"""`Source`: the bytes of one version of one data file, wherever it is kept.

`LocalSource` is a file of this machine; `object_source.ObjectSource` one in an object store.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from zonebloom.errors import DataFileError
from zonebloom.storage.stores.locations import Url, is_url

__all__ = ["Fingerprint", "LocalSource", "Source", "SourceFile", "fingerprint_of", "kind_of", "open_source"]

_HALF = 1 << 63


class Fingerprint(NamedTuple):
    """What identifies one version of a data file."""

    size: int
    """Bytes."""
    mtime_ns: int
    """Time of last modification, nanoseconds since 1970."""
    etag: str | None = None
    """The object store's tag."""


class Source(Protocol):
    """An opened data file; all reads are of the version that was there when it was opened."""

    @property
    def path(self) -> str:
        """Where it is, for messages."""
        ...

    @property
    def fingerprint(self) -> Fingerprint:
        """Of the version that is being read."""
        ...

    def current_fingerprint(self) -> Fingerprint:
        """Of the file as it is now, as far as the store can tell; another one if the bytes may have changed."""
        ...

    @property
    def is_near(self) -> bool:
        """Whether a request takes microseconds, as of a disk, so that many small ones in turn are well."""
        ...

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """For each `(offset, length)`, those bytes; near ones are fetched together, others at once."""
        ...

    def will_need(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Be ready for reads of the ranges `(offset, length)` in about this order, through `arrow_file`."""
        ...

    def arrow_file(self) -> Any:
        """The whole as a file that pyarrow reads."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


class LocalSource:
    """A file of this machine; stays the same file even when its path is replaced."""

    is_near = True

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
        """Of the opened file as it is now."""
        return fingerprint_of(os.fstat(self._file.fileno()))

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """For each `(offset, length)`, those bytes; fewer at the end of the file."""
        number = self._file.fileno()
        return [os.pread(number, length, offset) for offset, length in ranges]

    def read_into(self, memory: memoryview, ranges: Sequence[tuple[int, int]]) -> int:
        """Fill `memory` with the bytes of all ranges, one after the other; how many there are."""
        number, position = self._file.fileno(), 0
        for offset, length in ranges:
            position += os.preadv(number, [memory[position : position + length]], offset)
        return position

    def will_need(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Nothing: the system reads ahead."""

    def arrow_file(self) -> Any:
        """The opened file."""
        return self._file

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class SourceFile(io.RawIOBase):
    """A source as a Python file with a position of its own; pyarrow hands on what its reads raise."""

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
        """Where the next read begins."""
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


def open_source(location: str, storage_options: Mapping[str, str] | None = None) -> Source:
    """The data file at an absolute path or a URL.

    Raises
    ------
    DataFileError
        There is none.
    """
    if is_url(location):
        from zonebloom.formats.object_source import ObjectSource  # noqa: PLC0415 - local files do without
        from zonebloom.storage.stores.object_client import ObjectClient  # noqa: PLC0415 - as above

        url = Url.parse(location)
        return ObjectSource(ObjectClient(url, storage_options), url.key)
    return LocalSource(Path(location))


_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def kind_of(status: os.stat_result) -> str:
    """What there is where a regular file should be."""
    return _KINDS.get(stat.S_IFMT(status.st_mode), "no file")


def fingerprint_of(status: os.stat_result) -> Fingerprint:
    """The fingerprint of a local file; times beyond 64 bits, from the year 2262 on, begin again at the least."""
    time = status.st_mtime_ns
    return Fingerprint(status.st_size, time if -_HALF <= time < _HALF else (time + _HALF) % (2 * _HALF) - _HALF)
