"""`Store`: the only access of the index to its files.

A store has paths relative to its root, reads ranges, and writes whole objects. A commit needs one operation more: to
create an object only if it is absent. Nothing is ever overwritten. `LocalStore` has objects below a local folder,
`ObjectStore` below a URL; `open.open_store` chooses between them.

Spec: specs/index-format.md#store
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from operator import add, sub
from typing import Any, Protocol

import pyarrow as pa

from zonebloom.errors import StorageError

SLOW_READ_SECONDS = 20e-6
"""Seconds: a read that takes longer was not from the page cache, so the next reads will not be either."""


@dataclass(slots=True)
class Traffic:
    """Network traffic; zeros for local files."""

    num_requests: int = 0
    """Requests; a request and its retries count once, a listing once for each page."""
    bytes_read: int = 0
    """Bytes of objects that were received."""
    bytes_written: int = 0
    """Bytes of objects that were sent."""

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(*map(add, self.to_dict().values(), other.to_dict().values()))

    def __sub__(self, other: Traffic) -> Traffic:
        return Traffic(*map(sub, self.to_dict().values(), other.to_dict().values()))

    def to_dict(self) -> dict[str, int]:
        """The three numbers for JSON, in the order of the fields."""
        return {"requests": self.num_requests, "bytes_read": self.bytes_read, "bytes_written": self.bytes_written}


class Mapping(Protocol):
    """The bytes of an object; they stay valid while `buffer` is used."""

    @property
    def buffer(self) -> pa.Buffer:
        """All bytes; a memory-mapped page is read when it is touched."""

    def need(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Fetch the ranges `(offset, length)` into `buffer`; a sparse mapping has no other bytes."""

    def release(self) -> None:
        """Free memory that can be read again."""


class NewFile(Protocol):
    """An object that is being written, from its beginning to its end."""

    def write(self, data: Any) -> None:
        """Append `data`."""

    def write_large(self, data: Any) -> None:
        """Append `data`, past the page cache if there is one: gigabytes must not evict pages that others read."""

    def flush(self) -> None:
        """Hand buffered bytes over to the system."""


class Located(Protocol):
    """Files at a local path or in an object store."""

    @property
    def location(self) -> str:
        """The root, as a user writes it: a path or a URL."""

    @property
    def is_remote(self) -> bool:
        """Whether a read costs a round trip over the network, so that few and large ones are better."""

    @property
    def traffic(self) -> Traffic:
        """The network traffic so far."""


class Store(Located, Protocol):
    """Objects below one root; no object is ever overwritten.

    Raises
    ------
    StorageError
        From every method, if the store refuses (no permission, no space, no bucket); the message names the path.
        A missing object is a `FileNotFoundError`, which callers expect and handle.
    """

    def size(self, path: str) -> int:
        """Bytes of the object at `path`."""

    def read(self, path: str) -> bytes:
        """All bytes of the object at `path`."""

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """For each `(offset, length)` of `ranges`, those bytes of the immutable object at `path`; fewer at its end."""

    def will_need(self, path: str, ranges: Sequence[tuple[int, int]]) -> None:
        """Start reading the ranges `(offset, length)` of an immutable object, all at once, and do not wait."""

    def mapping(self, path: str, *, is_sparse: bool = False) -> Mapping:
        """The immutable object at `path` in memory; with `is_sparse` only ranges of `need` will be touched."""

    def list(self, folder: str) -> list[str]:
        """Names of the objects in `folder`, in order; empty where there is no such folder."""

    def files(self, folder: str) -> dict[str, tuple[int, float]]:
        """Bytes and time of last modification (seconds since 1970) of all objects below `folder`, by path."""

    def prune(self) -> None:
        """Remove folders that hold nothing, and the root if it is one of them."""

    def writing(self, path: str) -> AbstractContextManager[NewFile]:
        """A new object at `path`, which must be unique; nothing stays there if the block raises."""

    def create(self, path: str, data: bytes) -> bool:
        """Write `data` at `path` durably and atomically; False, and nothing written, if something is there already.

        No two writers may have the same `data` for one `path`: a store whose answer was lost compares it.
        """

    def delete(self, path: str) -> None:
        """Remove the object at `path` if it is there."""


def delete_all(store: Store, paths: Iterable[str]) -> None:
    """Remove the objects at `paths`; an object that the store does not remove stays until a vacuum."""
    for path in paths:
        with suppress(StorageError):
            store.delete(path)


@contextmanager
def undoing(store: Store) -> Iterator[list[str]]:
    """A list of paths; the objects at the paths in it are removed if the block raises."""
    written: list[str] = []
    try:
        yield written
    except BaseException:
        delete_all(store, written)
        raise
