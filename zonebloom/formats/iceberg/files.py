"""Data files, read through the FileIO of a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from zonebloom.formats.iceberg.errors import explained
from zonebloom.ground.threads import concurrently
from zonebloom.stores.fingerprint import Fingerprint
from zonebloom.stores.local_file import LocalFile
from zonebloom.stores.locations import StorageOptions, is_url
from zonebloom.stores.options import plain_option
from zonebloom.stores.ranges import coalesced, cut
from zonebloom.stores.store import ROUND_BYTES
from zonebloom.stores.stored_file import SeekableFile, StoredFile

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

_HELD_BYTES = 2 * ROUND_BYTES
"""Bytes of a file that are kept for later reads: a small row group, and the footer."""
_REQUESTS = 8
"""Ranges of a file that are requested at once."""
_PROPERTIES = {
    **dict.fromkeys(("region", "default_region"), "s3.region"),
    **dict.fromkeys(("endpoint", "endpoint_url"), "s3.endpoint"),
    **dict.fromkeys(("session_token", "token"), "s3.session-token"),
    "access_key_id": "s3.access-key-id",
    "secret_access_key": "s3.secret-access-key",
    "skip_signature": "s3.anonymous",
    "virtual_hosted_style_request": "s3.force-virtual-addressing",
}
"""pyiceberg's names of storage options."""


def io_properties(options: StorageOptions | None) -> dict[str, str]:
    """The properties of a FileIO that reads S3 by storage options; it needs no others of them."""
    pairs = ((_PROPERTIES.get(plain_option("s3", name)), value) for name, value in (options or {}).items())
    return {name: value for name, value in pairs if name is not None}


class _FileIOSource:
    """A file that is read through the table's FileIO, with the credentials of its catalog; `size` is the manifest's."""

    is_remote = True
    changed_ns = 0

    def __init__(self, io: FileIO, location: str, size: int) -> None:
        self.path = location
        self.fingerprint = Fingerprint(size, 0)
        with explained("data file", location):
            file = io.new_input(location).open(seekable=True)
        self._file = file if isinstance(file, pa.NativeFile) else pa.PythonFile(file, "r")
        self._held: list[tuple[int, memoryview]] = []

    def current_fingerprint(self) -> Fingerprint:
        """The same: files of a table never change."""
        return self.fingerprint

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """As `StoredFile.read_ranges`."""
        return list(concurrently(lambda part: self._read(*part), ranges, _REQUESTS))

    def _read(self, offset: int, length: int) -> bytes:
        held = cut(self._held, offset, length)
        if len(held) == length:
            return held
        with explained("data file", self.path):
            data: bytes = self._file.read_at(length, offset)
        return data

    def will_need(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Read near ranges `(offset, length)` together, if they are few bytes: the FileIO cannot read ahead."""
        parts = coalesced(ranges)
        is_held = all(len(cut(self._held, *part)) == part[1] for part in parts)
        if not is_held and sum(length for _, length in parts) <= _HELD_BYTES:
            blobs = self.read_ranges(parts)
            self._held = [(offset, memoryview(blob)) for (offset, _), blob in zip(parts, blobs, strict=True)]

    def arrow_file(self) -> Any:
        """The opened file, with its own position."""
        return pa.PythonFile(SeekableFile(self.fingerprint.size, self._read), mode="r")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def opened(io: FileIO, location: str, size: int) -> StoredFile:
    """A data file of `size` bytes: a local one as any other, one in a store through the FileIO."""
    return _FileIOSource(io, location, size) if is_url(location) else LocalFile(Path(location))
