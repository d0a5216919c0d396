"""`Store`: the only way in which the index touches bytes.

A store knows paths relative to its root, reads ranges, writes whole objects, and creates an object only if it is
absent, which is all that a commit needs. Nothing is ever overwritten. `LocalStore` keeps objects below a local folder,
`ObjectStore` below a URL; `opening.open_store` finds the one for a location.

Spec: specs/index-format.md#store
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

__all__ = ["SLOW_READ_SECONDS", "Mapping", "NewFile", "Store", "Traffic"]

SLOW_READ_SECONDS = 20e-6
"""A page that takes longer was not in the page cache; its neighbours in the request are not there either."""


@dataclass(slots=True)
class Traffic:
    """What went over the network; zeros for local files."""

    num_requests: int = 0
    """Requests; those that were tried again count once, a listing one for each page."""
    bytes_read: int = 0
    """Bytes of objects that came."""
    bytes_written: int = 0
    """Bytes of objects that were sent."""

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.num_requests + other.num_requests,
            self.bytes_read + other.bytes_read,
            self.bytes_written + other.bytes_written,
        )

    def __sub__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.num_requests - other.num_requests,
            self.bytes_read - other.bytes_read,
            self.bytes_written - other.bytes_written,
        )

    def to_dict(self) -> dict[str, int]:
        """For JSON."""
        return {"requests": self.num_requests, "bytes_read": self.bytes_read, "bytes_written": self.bytes_written}


class Mapping(Protocol):
    """The bytes of an object, for as long as somebody uses `buffer`."""

    @property
    def buffer(self) -> pa.Buffer:
        """All bytes; what can be memory-mapped is read where it is touched."""
        ...

    def need(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Have the ranges `(offset, length)` in `buffer`; of a sparse mapping nothing else is there."""
        ...

    def release(self) -> None:
        """Let go of memory that can be had again."""
        ...


class NewFile(Protocol):
    """An object that is being written, from its beginning to its end."""

    def write(self, data: Any) -> None:
        """Append `data`."""
        ...

    def write_large(self, data: Any) -> None:
        """Append `data`, past the page cache where there is one: gigabytes must not push out what others read."""
        ...

    def flush(self) -> None:
        """Hand over to the system what was written."""
        ...


class Store(Protocol):
    """Objects below one root, none of which is ever overwritten.

    Raises
    ------
    StorageError
        From every method, where the store refuses (no permission, no space, no bucket); the message names the path.
        A missing object is a `FileNotFoundError`, which callers expect and handle.
    """

    @property
    def location(self) -> str:
        """The root, as a user writes it: a path or a URL."""
        ...

    @property
    def is_remote(self) -> bool:
        """Whether a read costs a round trip, so that few and large ones are better."""
        ...

    @property
    def traffic(self) -> Traffic:
        """What went over the network so far."""
        ...

    def size(self, path: str) -> int:
        """Bytes of the object at `path`."""
        ...

    def read(self, path: str) -> bytes:
        """All bytes of the object at `path`."""
        ...

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """For each `(offset, length)` of `ranges`, those bytes of the immutable object at `path`; fewer at its end."""
        ...

    def will_need(self, path: str, ranges: Sequence[tuple[int, int]]) -> None:
        """Start reading the ranges `(offset, length)` of an immutable object, all at once, and do not wait."""
        ...

    def mapping(self, path: str, *, is_sparse: bool = False) -> Mapping:
        """The immutable object at `path` in memory; where `is_sparse`, little of it will be touched, after `need`."""
        ...

    def list(self, folder: str) -> list[str]:
        """Names of the objects in `folder`, in order; empty where there is no such folder."""
        ...

    def files(self, folder: str) -> dict[str, tuple[int, float]]:
        """Bytes and time of last modification (seconds since 1970) of all objects below `folder`, by path."""
        ...

    def prune(self) -> None:
        """Remove folders that hold nothing, and the root if it is one of them."""
        ...

    def writing(self, path: str) -> AbstractContextManager[NewFile]:
        """A new object at `path`, which must be unique; nothing stays there if the block raises."""
        ...

    def create(self, path: str, data: bytes) -> bool:
        """Write `data` at `path` durably and atomically; False, and nothing written, if something is there already.

        No two writers may have the same `data` for one `path`: a store whose answer was lost compares it.
        """
        ...

    def delete(self, path: str) -> None:
        """Remove the object at `path` if it is there."""
        ...
