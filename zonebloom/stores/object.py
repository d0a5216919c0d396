"""`ObjectStore`: index and data below a URL, in S3 and what speaks it, GCS or Azure.

Ranges are read in parallel, and near ranges together. A commit is a conditional put, which the store accepts only if
the key is free. A mapped object is an unnamed temporary file, which is filled range by range.

Spec: specs/index-format.md#object-stores
"""

from __future__ import annotations

import contextlib
import mmap
import os
import posixpath
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from zonebloom.ground.errors import CorruptIndexError, StorageError
from zonebloom.ground.threads import concurrently
from zonebloom.stores.fingerprint import Fingerprint
from zonebloom.stores.local_file import write_at
from zonebloom.stores.locations import StorageOptions, Url, absolute, is_url
from zonebloom.stores.object_client import NewObjectFile, ObjectClient, Part
from zonebloom.stores.object_file import ObjectFile
from zonebloom.stores.ranges import PART_BYTES, coalesced, cut
from zonebloom.stores.store import Level, Traffic

_PARTS_IN_MEMORY = 16
"""Parts, of at most 8 MiB, that are fetched at once and then written to the temporary file."""
_HEADS = 64
"""Objects whose metadata is requested in parallel."""
_MOST_AHEAD = 64
"""Objects with ranges that were fetched ahead."""
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
            batches = np.cumsum([length for _, length in parts]) // (_PARTS_IN_MEMORY * PART_BYTES)
            for number in np.unique(batches).tolist():
                self._fetch([part for part, own in zip(parts, batches.tolist(), strict=True) if own == number])

    def _fetch(self, parts: Sequence[tuple[int, int]]) -> None:
        for (offset, length), (data, _) in zip(parts, self._client.get_parts(self._key, parts), strict=True):
            if len(data) != length:
                raise CorruptIndexError(
                    f"{self._client.url.root}/{self._key} must have {self._size} bytes", got="fewer"
                )
            self.put(offset, data)

    def put(self, offset: int, data: memoryview) -> None:
        """Store fetched bytes: whole multiples of 4096, or up to the end."""
        with _on_disk():  # a write through the map would end the process on a full disk
            write_at(self._file.fileno(), data, offset)
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
        From every method, if the store cannot be reached or refuses; the message says what to do. A missing object
        is a `FileNotFoundError`, which callers expect and handle.
    """

    def __init__(self, location: str, options: StorageOptions | None = None) -> None:
        self._url = Url.parse(location)
        self.options = options
        self._client = ObjectClient(self._url, options)
        self._ahead: dict[str, dict[tuple[int, int], Future[Part]]] = {}
        """By path, the ranges that are fetched ahead."""

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectStore, (self.location, self.options)

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
        """Bytes of the object at `path`."""
        return self._client.head(self._url.key_of(path)).size

    def read(self, path: str) -> bytes:
        """As `Store.read`."""
        return self._client.get_whole(self._url.key_of(path))

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """As `Store.read_ranges`.

        Cost: one request for ranges less than 256 KiB apart, all in parallel; none for what `will_need` fetches.
        """
        ahead = self._ahead.get(path, {})
        if ranges and all(any(map(partial(_covers, wanted), ahead)) for wanted in ranges):
            self._ahead.pop(path, None)  # maybe those of another thread: then that one reads its ranges itself
            pieces = [(offset, part.result()[0]) for (offset, _), part in ahead.items()]
            return [cut(pieces, offset, length) for offset, length in ranges]
        return self._client.get_ranges(self._url.key_of(path), ranges)

    def will_need(self, path: str, ranges: Sequence[tuple[int, int]]) -> None:
        """As `Store.will_need`, for one later call of `read_ranges`."""
        key = self._url.key_of(path)
        self._ahead[path] = {part: self._client.start(key, *part) for part in coalesced(ranges)}
        if len(self._ahead) > _MOST_AHEAD:
            self._ahead.pop(next(iter(self._ahead.copy())), None)

    def mapping(self, path: str, sparse_size: int | None = None) -> ObjectMapping:
        """The object at `path` in a temporary file, fetched in parallel parts; only by `need` if its size is given."""
        if sparse_size is not None:
            return ObjectMapping(self._client, self._url.key_of(path), sparse_size)
        first, (size, *_) = self._client.get(self._url.key_of(path), 0, PART_BYTES)
        mapping = ObjectMapping(self._client, self._url.key_of(path), size)
        mapping.put(0, first)
        mapping.need([(0, size)])
        return mapping

    def list(self, folder: str) -> list[str]:
        """As `Store.list`."""
        return [key.rpartition("/")[2] for key, _ in self._client.list_folder(self._url.key_of(folder))[0]]

    def files(self, folder: str, known_names: Iterable[str] = ()) -> dict[str, Fingerprint]:
        """As `Store.files`.

        Cost: a request for each 1000 objects (5000 on Azure).
        """
        objects = self._client.list_all(self._url.key_of(folder), map(self._url.key_of, known_names))
        return {self._url.path_of(key): fingerprint for key, fingerprint in objects}

    # --- data files ---------------------------------------------------------------------------------------------------

    def absolute(self, path: str) -> str:
        """The URL of a file."""
        return f"{self._url.root}/{self._url.key_of(path)}"

    def relative(self, given: str) -> str | None:
        """`given`, a URL or relative to the root, as a path relative to it; None if it is outside."""
        url = self._url
        if is_url(given) and Url.parse(given).root != url.root:
            return None
        whole = absolute(given)[len(url.root) + 1 :] if is_url(given) else url.key_of(given)
        key = posixpath.normpath(whole) if whole else ""
        is_inside = key == url.key or not url.key or key.startswith(f"{url.key}/")
        if not is_inside or key.split("/")[0] == ".." or key.startswith("/"):
            return None
        return url.path_of(key) or "."

    def open(self, path: str, listed: Fingerprint | None = None) -> ObjectFile:
        """The object at `path`; if it was `listed`, in that version and without a request."""
        return ObjectFile(self._client, self._url.key_of(path), listed)

    def stats(self, paths: Sequence[str]) -> dict[str, Fingerprint]:
        """The fingerprints of the objects among `paths`, requested in parallel."""

        def head(path: str) -> Fingerprint | None:
            with contextlib.suppress(FileNotFoundError):
                return self._client.head(self._url.key_of(path))
            return None

        fingerprints = zip(paths, concurrently(head, paths, _HEADS), strict=True)
        return {path: fingerprint for path, fingerprint in fingerprints if fingerprint is not None}

    @contextlib.contextmanager
    def staging(self, path: str) -> Iterator[BinaryIO]:  # noqa: ARG002 - it is not in the store yet
        """An unnamed temporary file."""
        with _on_disk(), tempfile.TemporaryFile(prefix="zonebloom-") as file:
            yield file

    def replace(self, path: str, staged: BinaryIO, expected: Fingerprint) -> bool:
        """Send the staged file by one conditional request; its bytes are read from the disk while they are sent."""
        staged.flush()
        with mmap.mmap(staged.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return self._client.replace(self._url.key_of(path), data, expected)

    def retains_old(self, path: str) -> bool:
        """Whether the object has a version, which only buckets that retain versions give it."""
        with contextlib.suppress(FileNotFoundError):
            return self._client.has_version(self._url.key_of(path))
        return False

    def level(self, folder: str, is_hidden: Callable[[str], bool]) -> Level:
        """The objects in `folder` whose names are not hidden, and all folders in it."""
        objects, folders = self._client.list_folder(self._url.key_of(folder.rstrip("/")))
        files = [(f"{folder}{key.rpartition('/')[2]}", fingerprint) for key, fingerprint in objects]
        return [file for file in files if not is_hidden(file[0][len(folder) :])], folders

    def may_be_folder(self, path: str) -> bool:  # noqa: ARG002 - it takes a request to know
        """True."""
        return True

    def prune(self, folders: Iterable[str]) -> None:
        """Do nothing: there are no folders."""

    @contextlib.contextmanager
    def writing(self, path: str) -> Iterator[NewObjectFile]:
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
        """As `Store.delete`."""
        self._client.delete(self._url.key_of(path))


def _covers(wanted: tuple[int, int], part: tuple[int, int]) -> bool:
    """Whether the range `part` has all bytes of the range `wanted`."""
    return part[0] <= wanted[0] and sum(wanted) <= sum(part)


@contextlib.contextmanager
def _on_disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"a temporary file must be written in {tempfile.gettempdir()}",
            got=error.strerror or error,
            do="set TMPDIR to a folder with space",
        ) from error
