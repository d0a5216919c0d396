"""`Store`: the only access to files, those of an index and those of data.

A store has paths relative to its root, with `/`. It lists, reads ranges, and writes whole objects. A commit needs one
operation more: to create an object only if it is absent. No object of an index is ever overwritten. An erasure needs
another: to replace a data file only if it is still the version that was read. `LocalStore` has objects below a local
folder, `ObjectStore` below a URL; `open.open_store` chooses between them.

Objects of an index are immutable. A data file may be replaced at any time, so `open` reads one version of it, which its
fingerprint names, or fails.

Spec: specs/index-format.md#store
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from operator import add, sub
from typing import Any, BinaryIO, Protocol, TypeAlias

import pyarrow as pa

from zonebloom.ground.errors import StorageError
from zonebloom.stores.fingerprint import Fingerprint
from zonebloom.stores.locations import StorageOptions
from zonebloom.stores.stored_file import StoredFile

SLOW_READ_SECONDS = 20e-6
"""Seconds: a read that takes longer was not from the page cache, so the next reads will not be either."""

ROUND_BYTES = 2 << 20
"""Bytes that an object store sends in the time in which it answers one request more. S3 answers after about 40 ms, and
then sends 80 MB/s over one connection."""


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
        """Append `data`; gigabytes go past the page cache if there is one, as they would evict what others read."""

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


Level: TypeAlias = tuple[list[tuple[str, Fingerprint]], list[str]]
"""One level of folders: paths and fingerprints of the files in a folder, and the names of the folders in it."""


class Store(Located, Protocol):
    """Files below one root; no object of an index is ever overwritten.

    The storage options are bound to it when its location is opened. A caller that needs another location of one user
    opens it with `options`.

    Raises
    ------
    StorageError
        From every method, if the store refuses (no permission, no space, no bucket); the message names the path.
        A missing object is a `FileNotFoundError`, which callers expect and handle.
    """

    @property
    def options(self) -> StorageOptions | None:
        """The storage options that it was opened with."""

    # --- reading ------------------------------------------------------------------------------------------------------

    def open(self, path: str, listed: Fingerprint | None = None) -> StoredFile:
        """The data file at `path`; an object that was `listed` in that version, without a request.

        Raises
        ------
        DataFileError
            It is missing, or no file.
        """

    def read(self, path: str) -> bytes:
        """All bytes of the object at `path`."""

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """For each `(offset, length)` of `ranges`, those bytes of the immutable object at `path`; fewer at its end."""

    def will_need(self, path: str, ranges: Sequence[tuple[int, int]]) -> None:
        """Start reading the ranges `(offset, length)` of an immutable object, all at once, and do not wait."""

    def mapping(self, path: str, sparse_size: int | None = None) -> Mapping:
        """The immutable object at `path` in memory; only ranges of `need` will be touched if its size is given."""

    # --- what is there ------------------------------------------------------------------------------------------------

    def absolute(self, path: str) -> str:
        """The absolute path or the URL of a file."""

    def relative(self, given: str) -> str | None:
        """`given`, absolute or relative to the root, as a path relative to it; None if it is outside."""

    def size(self, path: str) -> int:
        """Bytes of the object at `path`."""

    def stats(self, paths: Sequence[str]) -> dict[str, Fingerprint]:
        """The fingerprints of the files among `paths`; others are left out."""

    def list(self, folder: str) -> list[str]:
        """Names of the objects in `folder`, in order; empty if there is no such folder."""

    def level(self, folder: str, is_hidden: Callable[[str], bool]) -> Level:
        """The files in the folder `folder` (empty, or with its `/`) whose names are not hidden, and all folders in it.

        Raises
        ------
        DataFileError
            It is no folder, or cannot be read.
        """

    def files(self, folder: str, known_names: Iterable[str] = ()) -> dict[str, Fingerprint]:
        """All objects below `folder`, by path in order; many are listed sooner if most of them are `known_names`."""

    def may_be_folder(self, path: str) -> bool:
        """Whether there may be files below `path`; no request is made."""

    # --- replacing a data file ----------------------------------------------------------------------------------------

    def staging(self, path: str) -> AbstractContextManager[BinaryIO]:
        """A new file for the next content of the data file at `path`; no reader sees it, and it ends with the block."""

    def replace(self, path: str, staged: BinaryIO, expected: Fingerprint) -> bool:
        """Put `staged` at `path` in one step; False, and nothing changed, if the data file is not `expected` any more.

        An object store compares and replaces in one request. A local file is compared just before it is replaced.
        """

    def retains_old(self, path: str) -> bool:
        """Whether the content of the data file stays after it is replaced: as an old version, or under another name."""

    # --- writing ------------------------------------------------------------------------------------------------------

    def prune(self, folders: Iterable[str]) -> None:
        """Remove those of `folders`, and below, that hold nothing, and the root if it holds nothing then."""

    def writing(self, path: str) -> AbstractContextManager[NewFile]:
        """A new object at `path`, which must be unique; nothing stays there if the block raises."""

    def create(self, path: str, data: bytes) -> bool:
        """Write `data` at `path` durably and atomically; False, and nothing written, if something is there already.

        Each writer's `data` must be unique: after a lost response the store reads the object and compares it.
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
