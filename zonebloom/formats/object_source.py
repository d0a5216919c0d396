"""`ObjectSource`: one version of a data file in an object store, read in few requests and ahead of the decoder.

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

from zonebloom.errors import DataFileError
from zonebloom.formats.source import SourceFile
from zonebloom.storage.fragments import Fingerprint
from zonebloom.storage.stores.object_client import ChangedObjectError, ObjectClient, ObjectMeta
from zonebloom.storage.stores.ranges import coalesced, cut

_AHEAD = 4
"""Parts of 8 MiB that are fetched while one is decoded."""
_KEPT_PARTS = 12
"""Most fetched parts that are kept; a reader of many columns side by side uses several of them in turn."""

_Part = Future[tuple[memoryview, ObjectMeta]]


def fingerprint_of(meta: ObjectMeta) -> Fingerprint:
    """The fingerprint of an object; with whole seconds, since listings and reads may round the time differently."""
    return Fingerprint(meta.size, int(meta.modified.timestamp()) * 1_000_000_000, meta.etag)


class ObjectSource:
    """A file in an object store; opening a listed file makes no request.

    Parameters
    ----------
    known
        The file's fingerprint from a listing.

    Raises
    ------
    DataFileError
        From every read: the file is gone, or is no longer the version that was opened.
    StorageError
        The store cannot be reached or refuses.
    """

    is_remote = True

    def __init__(self, client: ObjectClient, key: str, known: Fingerprint | None = None) -> None:
        self._client = client
        self._key = key
        self.path = f"{client.url.root}/{key}"
        self._ahead: _Ahead | None = None
        if known is None:
            with self._explained():
                known = fingerprint_of(client.head(key))
        self.fingerprint = known

    def current_fingerprint(self) -> Fingerprint:
        """The fingerprint of the opened version: reads are of this version, or fail."""
        return self.fingerprint

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of each `(offset, length)`; near ranges in one request, all requests in parallel."""
        whole = [(offset, max(0, min(length, self.fingerprint.size - offset))) for offset, length in ranges]
        parts = coalesced(whole)
        with self._explained():
            found = self._client.get_parts(self._key, parts, self.fingerprint.etag)
        for _, meta in found:
            self._check(meta)
        pieces = [(start, data) for (start, _), (data, _) in zip(parts, found, strict=True)]
        return [cut(pieces, offset, length) for offset, length in whole]

    def will_need(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Fetch the ranges `(offset, length)` ahead of the reader, who reads them in about this order."""
        self._ahead = _Ahead(self._client, self._key, self.fingerprint, coalesced(ranges))

    def read(self, offset: int, length: int) -> bytes:
        """Bytes `[offset, offset + length)`, fewer at the end."""
        length = max(0, min(length, self.fingerprint.size - offset))
        if self._ahead is None or not self._ahead.has(offset, length):
            return self.read_ranges([(offset, length)])[0]
        with self._explained():
            pieces, metas = self._ahead.read(offset, length)
        for meta in metas:
            self._check(meta)
        return cut(pieces, offset, length)

    def _check(self, meta: ObjectMeta) -> None:
        found = fingerprint_of(meta)
        is_same = found[::2] == self.fingerprint[::2] if self.fingerprint.etag else found == self.fingerprint
        if not is_same:
            raise DataFileError(f"data file {self.path} must not change while it is read, got a write; run again")

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except ChangedObjectError as error:
            message = f"data file {self.path} must not change while it is read, got a write; run again"
            raise DataFileError(message) from error
        except FileNotFoundError as error:
            raise DataFileError(f"data file {self.path} must exist, got no such file") from error

    def arrow_file(self) -> Any:
        """The whole file for pyarrow, with its own position."""
        return pa.PythonFile(SourceFile(self.fingerprint.size, self.read), mode="r")

    def close(self) -> None:
        """Free the fetched parts."""
        self._ahead = None


class _Ahead:
    """Parts of a file that are fetched before they are read; the least recently read are dropped."""

    def __init__(
        self, client: ObjectClient, key: str, fingerprint: Fingerprint, parts: Sequence[tuple[int, int]]
    ) -> None:
        self._client = client
        self._key = key
        self._etag = fingerprint.etag
        self._parts = parts
        self._started: OrderedDict[int, _Part] = OrderedDict()
        self._lock = threading.Lock()

    def _covering(self, offset: int, length: int) -> list[int]:
        return [number for number, (at, size) in enumerate(self._parts) if at < offset + length and at + size > offset]

    def has(self, offset: int, length: int) -> bool:
        """Whether all bytes of the range are in parts."""
        covering = self._covering(offset, length)
        return sum(
            min(at + size, offset + length) - max(at, offset) for at, size in (self._parts[one] for one in covering)
        ) == length and bool(covering)

    def read(self, offset: int, length: int) -> tuple[list[tuple[int, memoryview]], list[ObjectMeta]]:
        """The parts that cover the range, with their offsets, and the metadata of their requests."""
        wanted = self._covering(offset, length)
        with self._lock:
            futures = [self._start(number) for number in wanted]
            for number in wanted:
                self._started.move_to_end(number)
            for number in range(wanted[-1] + 1, min(wanted[-1] + 1 + _AHEAD, len(self._parts))):
                self._start(number)
            while len(self._started) > max(_KEPT_PARTS, len(wanted) + _AHEAD):
                self._started.popitem(last=False)
        found = [future.result() for future in futures]
        pieces = [(self._parts[number][0], data) for number, (data, _) in zip(wanted, found, strict=True)]
        return pieces, [meta for _, meta in found]

    def _start(self, number: int) -> _Part:
        if number not in self._started:
            self._started[number] = self._client.start(self._key, *self._parts[number], self._etag)
        return self._started[number]
