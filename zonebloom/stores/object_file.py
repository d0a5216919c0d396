"""`ObjectFile`: one version of a data file in an object store, read in few requests and ahead of the decoder.

A read is conditional on the version's tag (`If-Match`), so reads never mix two versions of an overwritten file.

Spec: specs/index-format.md#object-data
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import pyarrow as pa

from zonebloom.ground.errors import DataFileError
from zonebloom.stores.fingerprint import Fingerprint
from zonebloom.stores.object_client import ObjectClient, Part, Version
from zonebloom.stores.object_errors import ChangedObjectError
from zonebloom.stores.ranges import coalesced, cut
from zonebloom.stores.stored_file import SeekableFile

_AHEAD_BYTES = 32 << 20
"""Bytes that are fetched while others are decoded."""
_KEPT_BYTES = 96 << 20
"""Most fetched bytes that are kept; a reader of many columns side by side uses several parts in turn."""


class ObjectFile:
    """A file in an object store; opening a listed file makes no request.

    Parameters
    ----------
    known
        The file's fingerprint from a listing, or its size from the log of a table, without a tag and with time 0.

    Raises
    ------
    DataFileError
        From every read: the file is gone, or is no longer the version that was opened.
    StorageError
        The store cannot be reached or refuses.
    """

    is_remote = True
    changed_ns = 0

    def __init__(self, client: ObjectClient, key: str, fingerprint: Fingerprint | None = None) -> None:
        self._client = client
        self._key = key
        self.path: str = f"{client.url.root}/{key}"
        self._ahead: _Ahead | None = None
        if fingerprint is None:
            with self._explained():
                fingerprint = client.head(key)
        self.fingerprint = fingerprint
        self._version = Version(fingerprint)

    def current_fingerprint(self) -> Fingerprint:
        """The fingerprint of the opened version: reads are of this version, or fail."""
        return self.fingerprint

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of each `(offset, length)`; near ranges in one request, all requests in parallel."""
        whole = [(offset, max(0, min(length, self.fingerprint.size - offset))) for offset, length in ranges]
        if not any(length for _, length in whole):
            return [b""] * len(whole)
        ahead = self._ahead
        missing = [part for part in whole if part[1] and not (ahead and ahead.has(*part))]
        with self._explained():
            blobs = self._client.get_ranges(self._key, missing, self._version) if missing else []
            fetched = dict(zip(missing, blobs, strict=True))
            return [
                fetched[part] if part in fetched else cut(ahead.read(*part), *part) if ahead and part[1] else b""
                for part in whole
            ]

    def will_need(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Start fetching the ranges `(offset, length)` for the reader, who reads them in about this order."""
        if self._ahead is None or not all(self._ahead.has(*part) for part in ranges):
            self._ahead = _Ahead(self._client, self._key, self._version, coalesced(ranges))

    def read(self, offset: int, length: int) -> bytes:
        """Bytes `[offset, offset + length)`, fewer at the end."""
        return self.read_ranges([(offset, length)])[0]

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except ChangedObjectError as error:
            raise DataFileError(
                f"data file {self.path} must not change while it is read", got="a write", do="run again"
            ) from error
        except FileNotFoundError as error:
            raise DataFileError(f"data file {self.path} must exist", got="no such file") from error

    def arrow_file(self) -> Any:
        """The whole file for pyarrow, with its own position."""
        return pa.PythonFile(SeekableFile(self.fingerprint.size, self.read), mode="r")

    def close(self) -> None:
        """Free the fetched parts."""
        self._ahead = None


class _Ahead:
    """Parts of a file that are fetched before they are read; the least recently read are dropped."""

    def __init__(self, client: ObjectClient, key: str, version: Version, parts: Sequence[tuple[int, int]]) -> None:
        self._client = client
        self._key = key
        self._version = version
        self._parts = parts
        self._started: OrderedDict[int, Future[Part]] = OrderedDict()
        self._lock = threading.Lock()
        self._start_from(0)

    def _covering(self, offset: int, length: int) -> list[int]:
        return [number for number, (at, size) in enumerate(self._parts) if at < offset + length and at + size > offset]

    def has(self, offset: int, length: int) -> bool:
        """Whether all bytes of the range are in parts."""
        covering = self._covering(offset, length)
        return sum(
            min(at + size, offset + length) - max(at, offset)
            for at, size in (self._parts[number] for number in covering)
        ) == length and bool(covering)

    def read(self, offset: int, length: int) -> list[tuple[int, memoryview]]:
        """The parts that cover the range, with their offsets."""
        wanted = self._covering(offset, length)
        with self._lock:
            futures = [self._start(number) for number in wanted]
            for number in wanted:
                self._started.move_to_end(number)
            self._start_from(wanted[-1] + 1)
            held = sum(self._parts[number][1] for number in self._started)
            most = max(_KEPT_BYTES, _AHEAD_BYTES + sum(self._parts[number][1] for number in wanted))
            while held > most:
                held -= self._parts[self._started.popitem(last=False)[0]][1]
        return [(self._parts[number][0], future.result()[0]) for number, future in zip(wanted, futures, strict=True)]

    def _start_from(self, first: int) -> None:
        left = _AHEAD_BYTES
        for number in range(first, len(self._parts)):
            left -= self._parts[number][1]
            if left < 0:
                break
            self._start(number)

    def _start(self, number: int) -> Future[Part]:
        if number not in self._started:
            self._started[number] = self._client.start(self._key, *self._parts[number], self._version)
        return self._started[number]
