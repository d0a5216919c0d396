"""`ObjectStore`: the index below a URL, in S3 and what speaks it, GCS or Azure.

Ranges are read in parallel, and near ranges together. A commit is a conditional put, which the store accepts only if
the key is free. A mapped object is an unnamed temporary file, which is filled range by range.

Spec: specs/index-format.md#object-stores
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from zonebloom.errors import CorruptIndexError, StorageError
from zonebloom.storage.stores.locations import Url
from zonebloom.storage.stores.object_client import ObjectClient, ObjectFile
from zonebloom.storage.stores.ranges import PART_BYTES, coalesced
from zonebloom.storage.stores.store import Traffic

_FRESH_SECONDS = 1.0
"""Seconds for which the size of an object that was read is used without asking again."""
_PARTS_IN_MEMORY = 16
"""Parts, of at most 8 MiB, that are fetched at once and then written to the temporary file."""
_GRAIN = 4096
"""Bytes of a mapping are fetched in multiples of this."""


class ObjectMapping:
    """An object in an unnamed temporary file, memory-mapped; it has the ranges that `need` fetched.

    - Other bytes of `buffer` are 0: call `need` before a read.
    """

    def __init__(self, client: ObjectClient, key: str, size: int) -> None:
        self._client = client
        self._key = key
        self._size = size
        self._has = np.zeros(-(-size // _GRAIN), np.bool_)
        self._lock = threading.Lock()
        self._mapped: mmap.mmap | None = None
        with _on_disk():
            self._file = tempfile.TemporaryFile(prefix="zonebloom-")  # noqa: SIM115 - closed by `__del__`
            if size:
                os.ftruncate(self._file.fileno(), size)
                self._mapped = mmap.mmap(self._file.fileno(), size, access=mmap.ACCESS_READ)
        self.buffer: pa.Buffer = pa.py_buffer(self._mapped or b"")
        """All bytes; those that were not fetched are 0."""

    def need(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Fetch the missing parts of the ranges `(offset, length)` in parallel, near ranges together."""
        with self._lock:
            missing = []
            for offset, length in ranges:
                first, last = offset // _GRAIN, -(-min(offset + length, self._size) // _GRAIN)
                if first < last and not self._has[first:last].all():
                    start = first * _GRAIN
                    missing.append((start, min(last * _GRAIN, self._size) - start))
            parts = coalesced(missing)
            for first in range(0, len(parts), _PARTS_IN_MEMORY):
                self._fetch(parts[first : first + _PARTS_IN_MEMORY])

    def _fetch(self, parts: Sequence[tuple[int, int]]) -> None:
        for (offset, length), (data, _) in zip(parts, self._client.get_parts(self._key, parts), strict=True):
            if len(data) != length:
                message = f"{self._client.url.root}/{self._key} must have {self._size} bytes, got fewer"
                raise CorruptIndexError(message)
            self.put(offset, data)

    def put(self, offset: int, data: memoryview) -> None:
        """Store fetched bytes: whole multiples of 4096, or up to the end."""
        with _on_disk():  # a write through the map would end the process on a full disk
            os.pwrite(self._file.fileno(), data, offset)
        self._has[offset // _GRAIN : -(-(offset + len(data)) // _GRAIN)] = True

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            self._file.close()

    def release(self) -> None:
        """Unmap the pages that were touched; the temporary file keeps their bytes."""
        if self._mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._mapped.madvise(mmap.MADV_DONTNEED)


class ObjectStore:
    """Objects below a URL; none is ever overwritten.

    Raises
    ------
    StorageError
        From every method, where the store cannot be reached or refuses; the message says what to do. A missing object
        is a `FileNotFoundError`, which callers expect and handle.
    """

    def __init__(self, location: str, storage_options: Mapping[str, str] | None = None) -> None:
        self._url = Url.parse(location)
        self._options = storage_options
        self._client = ObjectClient(self._url, storage_options)
        self._sizes: dict[str, tuple[int, float]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectStore, (self.location, self._options)

    def __repr__(self) -> str:
        return f"ObjectStore({self.location!r})"

    @property
    def location(self) -> str:
        """The URL."""
        return self._url.location

    @property
    def is_remote(self) -> bool:
        """True."""
        return True

    @property
    def traffic(self) -> Traffic:
        """Requests and bytes so far."""
        return self._client.traffic

    def size(self, path: str) -> int:
        """Bytes of the object at `path`; no request if the object was read within the last second."""
        size, seen = self._sizes.get(path, (0, -math.inf))
        return size if time.monotonic() - seen < _FRESH_SECONDS else self._client.head(self._url.key_of(path)).size

    def _saw(self, path: str, size: int) -> None:
        self._sizes[path] = (size, time.monotonic())

    def read(self, path: str) -> bytes:
        """All bytes of the object at `path`."""
        data = self._client.get_whole(self._url.key_of(path))
        self._saw(path, len(data))
        return data

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """For each `(offset, length)` of `ranges`, those bytes of the object at `path`; fewer at its end.

        Cost: one request for ranges less than 256 KiB apart, all requests in parallel.
        """
        blobs, size = self._client.get_ranges(self._url.key_of(path), ranges)
        self._saw(path, size)
        return blobs

    def will_need(self, path: str, ranges: Sequence[tuple[int, int]]) -> None:
        """Do nothing: `read_ranges` and `need` fetch in parallel."""

    def mapping(self, path: str, *, is_sparse: bool = False) -> ObjectMapping:
        """The object at `path` in a temporary file, fetched in parallel parts; with `is_sparse` only by `need`."""
        if is_sparse:
            return ObjectMapping(self._client, self._url.key_of(path), self.size(path))
        first, meta = self._client.get(self._url.key_of(path), 0, PART_BYTES)
        self._saw(path, meta.size)
        mapping = ObjectMapping(self._client, self._url.key_of(path), meta.size)
        mapping.put(0, first)
        mapping.need([(0, meta.size)])
        return mapping

    def list(self, folder: str) -> list[str]:
        """Names of the objects in `folder`, in order; empty where there is no such folder."""
        return [one.key.rsplit("/", 1)[-1] for one in self._client.list_folder(self._url.key_of(folder))[0]]

    def files(self, folder: str) -> dict[str, tuple[int, float]]:
        """Bytes and time of last modification (seconds since 1970) of all objects below `folder`, by path."""
        found = self._client.list_all(self._url.key_of(folder))
        return {self._url.path_of(one.key): (one.size, one.modified.timestamp()) for one in found}

    def prune(self) -> None:
        """Do nothing: there are no folders."""

    @contextlib.contextmanager
    def writing(self, path: str) -> Iterator[ObjectFile]:
        """A new object at `path`, sent while it is written; nothing stays there if the block raises."""
        with self._client.writing(self._url.key_of(path)) as file:
            yield file

    def create(self, path: str, data: bytes) -> bool:
        """Write `data` at `path` atomically; False, and nothing written, if something else is there already.

        Raises
        ------
        StorageError
            The store has no conditional writes, or no answer came and the object was not found afterwards.
        """
        return self._client.create(self._url.key_of(path), data)

    def delete(self, path: str) -> None:
        """Remove the object at `path` if it is there."""
        self._client.delete(self._url.key_of(path))
        self._sizes.pop(path, None)


@contextlib.contextmanager
def _on_disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"a temporary file must be written in {tempfile.gettempdir()}, got {error.strerror or error}"
        raise StorageError(f"{message}; set TMPDIR to a folder with space") from error
