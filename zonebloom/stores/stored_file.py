"""`StoredFile`: one version of one data file, opened; `SeekableFile`: its bytes as a Python file.

`local_file.LocalFile` is a file of this machine; `object_file.ObjectFile` is one in an object store.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from zonebloom.stores.fingerprint import Fingerprint

ByteRange: TypeAlias = tuple[int, int]
"""Offset and length in a file."""


class StoredFile(Protocol):
    """An opened data file; all reads are of the version that was opened."""

    @property
    def path(self) -> str:
        """Path or URL, for messages."""

    @property
    def fingerprint(self) -> Fingerprint:
        """The fingerprint of the opened version."""

    @property
    def changed_ns(self) -> int:
        """When a local file was last changed, by the clock of its system, which no program sets back; else 0."""

    def current_fingerprint(self) -> Fingerprint:
        """The fingerprint of the file now, as far as the store has it; different if the bytes may have changed."""

    @property
    def is_remote(self) -> bool:
        """Whether each read is a request over the network."""

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of each `(offset, length)`; near ranges are fetched together, others in parallel."""

    def will_need(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Prepare reads of the ranges `(offset, length)` in about this order: a remote file starts to fetch them."""

    def arrow_file(self) -> Any:
        """The whole file for pyarrow."""

    def close(self) -> None:
        """Close the file."""


class SeekableFile(io.RawIOBase):
    """Ranges of bytes as a Python file with its own position; pyarrow passes on the errors of its reads."""

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
