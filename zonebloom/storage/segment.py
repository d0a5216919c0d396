"""What all segments have in common: their entry in the version file, spans, checksums, and where they lie.

A segment is described by its `SegmentEntry` in the version file, which holds a checksum of each **span** of the file;
the spans tile it. The kinds: `zone_segment` (one filter after another), `slices` (bit rows), `locator` (sorted pairs).

Spec: specs/index-format.md#zone-segment
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import xxhash

from zonebloom.storage.stores.store import NewFile

__all__ = ["CheckedFile", "Runs", "SegmentEntry", "Span", "checksum", "column_folder", "joined_runs", "runs"]

_MAX_NAME = 200
"""Characters; file systems have room for 255."""
Runs = tuple[tuple[int, int], ...]
"""Half-open runs of fragment ids, in order."""


def checksum(data: bytes | memoryview | pa.Buffer) -> str:
    """XXH3-64 of `data` as 16 hexadecimal digits.

    Spec: specs/index-format.md#checksum
    """
    return xxhash.xxh3_64_hexdigest(data)


def column_folder(column: str) -> str:
    """The folder of a column's segments: its name, percent-encoded where a file name could not hold it, cut if long.

    Spec: specs/index-format.md#directory
    """
    name = quote(column, safe=" ").replace(".", "%2E") or "%00"
    return "columns/" + (name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}%{checksum(column.encode())}")


@dataclass(frozen=True, slots=True)
class Span:
    """A checked range of a segment file; the spans of a file follow each other without a gap."""

    num_bytes: int
    """Length in bytes."""
    checksum: str
    """XXH3-64, 16 hexadecimal digits; empty where the bytes carry checksums of their own."""


@dataclass(frozen=True, slots=True)
class SegmentEntry:
    """What the version file says of a segment.

    - Span 0 is the head, the last one the tail; those between depend on the kind.
    """

    path: str
    """Relative to the index directory."""
    num_zones: int
    """Rows of the segment."""
    filter_bytes: int
    """Bytes of all its bitsets."""
    fragments: Runs
    """Half-open ranges of the fragment ids whose zones it holds."""
    spans: tuple[Span, ...]
    """Checksums that tile the file."""
    kind: str = "zones"
    """Layout of the file: `zones`, `slices` or `locator`."""

    @property
    def num_bytes(self) -> int:
        """Size of the file."""
        return sum(span.num_bytes for span in self.spans)

    def to_json(self) -> dict[str, Any]:
        """The entry as it stands in a version file."""
        return {
            "path": self.path,
            "kind": self.kind,
            "num_zones": self.num_zones,
            "filter_bytes": self.filter_bytes,
            "fragments": [list(run) for run in self.fragments],
            "spans": [[span.num_bytes, span.checksum] for span in self.spans],
        }


def runs(ids: Iterable[int]) -> Runs:
    """`ids` as half-open runs in order: {1, 2, 5} gives ((1, 3), (5, 6))."""
    found: list[list[int]] = []
    for value in sorted(set(ids)):
        if found and found[-1][1] == value:
            found[-1][1] = value + 1
        else:
            found.append([value, value + 1])
    return tuple((start, stop) for start, stop in found)


def joined_runs(found: Iterable[tuple[int, int]]) -> Runs:
    """Runs in any order, which may overlap, as runs of the same ids in order.

    >>> joined_runs([(5, 9), (1, 3), (3, 4), (6, 7)])
    ((1, 4), (5, 9))
    """
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(found):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((start, stop))
    return tuple(joined)


class CheckedFile:
    """A file for Arrow's writer that checksums what passes, span by span."""

    closed = False

    def __init__(self, file: NewFile) -> None:
        self._file = file
        self._digest = xxhash.xxh3_64()
        self._num_bytes = 0
        self._position = 0

    def write(self, data: Any) -> int:
        """Append `data`, and add it to the checksum of the span."""
        view = memoryview(data).cast("B")
        self._file.write(view)
        self._digest.update(view)
        self._num_bytes += len(view)
        self._position += len(view)
        return len(view)

    def write_unchecked(self, data: Any) -> int:
        """Append `data`, which is in no span's checksum."""
        view = memoryview(data).cast("B")
        self._file.write_large(view)
        self._position += len(view)
        return len(view)

    def tell(self) -> int:
        """Bytes that passed."""
        return self._position

    def flush(self) -> None:
        """Flush the file beneath."""
        self._file.flush()

    def readable(self) -> bool:
        """Never."""
        return False

    def writable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Never."""
        return False

    def end_span(self) -> Span:
        """The span that ends here; the next one begins."""
        span = Span(self._num_bytes, self._digest.hexdigest())
        self._digest.reset()
        self._num_bytes = 0
        return span
