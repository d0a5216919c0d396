"""Parts that all segments share: the entry in the version file, spans, checksums, paths, and a new file.

A segment is described by its `SegmentEntry` in the version file, which holds a checksum of each **span** of the file;
the spans tile it. The kinds: `zone_segment` (one filter after another), `slices` (bit rows), `locator` (sorted pairs).

Spec: specs/index-format.md#zone-segment
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import quote

import pyarrow as pa
import xxhash

from zonebloom.ground.errors import CorruptIndexError
from zonebloom.storage.arrow_file import reading
from zonebloom.stores.store import NewFile, Store, delete_all

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
    """The folder of a column's segments: the name of the column, percent-encoded and cut if long.

    Spec: specs/index-format.md#directory
    """
    name = quote(column, safe=" ").replace(".", "%2E") or "%00"
    return "columns/" + (name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}%{checksum(column.encode())}")


def new_path(column: str, ending: str) -> str:
    """A unique path for a new file of a column.

    Spec: specs/index-format.md#directory
    """
    return f"{column_folder(column)}/{uuid.uuid4()}.{ending}"


class Span(NamedTuple):
    """A checked range of a segment file; the spans of a file follow each other without a gap."""

    num_bytes: int
    """Length in bytes."""
    checksum: str
    """XXH3-64, 16 hexadecimal digits; empty if the bytes contain their own checksums."""


@dataclass(frozen=True, slots=True)
class SegmentEntry:
    """A segment in the version file.

    - Span 0 is the head, the last span the tail; the spans between depend on the kind.
    """

    path: str
    """Relative to the index directory."""
    kind: str
    """Layout of the file: `zones`, `slices` or `locator`."""
    num_zones: int
    """Rows of the segment."""
    filter_bytes: int
    """Bytes of all its bitsets."""
    fragments: Runs
    """Half-open ranges of the fragment ids whose zones it holds."""
    spans: tuple[Span, ...]
    """Checksums that tile the file."""

    @property
    def num_bytes(self) -> int:
        """Size of the file."""
        return sum(span.num_bytes for span in self.spans)

    def check_size(self, num_bytes: int) -> None:
        """Raise `CorruptIndexError` unless the file has `num_bytes`."""
        if num_bytes != self.num_bytes:
            raise CorruptIndexError(f"segment {self.path} must have {self.num_bytes} bytes", got=num_bytes)

    def check_span(self, number: int, data: bytes | pa.Buffer) -> None:
        """Raise `CorruptIndexError` unless `data` is span `number` of the file."""
        wanted, actual = self.spans[number].checksum, checksum(data)
        if actual != wanted:
            raise CorruptIndexError(f"span {number} of segment {self.path} must have checksum {wanted}", got=actual)

    def read_spans(self, store: Store, numbers: Sequence[int], most_bytes: int) -> list[bytes]:
        """Some spans of the file, the last one among them, each of at most `most_bytes`, checked.

        A byte more is read than the last one has: a file that is longer fails its checksum.

        Raises
        ------
        CorruptIndexError
            The file is missing, has another length, or a span is not as it was written.
        """
        starts = [0, *accumulate(span.num_bytes for span in self.spans)]
        ranges = [(starts[number], self.spans[number].num_bytes) for number in numbers]
        if (most := max(length for _, length in ranges)) > most_bytes:
            raise CorruptIndexError(f"ends of segment {self.path} must have at most {most_bytes} bytes", got=most)
        *others, (offset, length) = ranges
        with reading(f"segment {self.path}"):
            blobs = store.read_ranges(self.path, [*others, (offset, length + 1)])
        for number, blob in zip(numbers, blobs, strict=True):
            self.check_span(number, blob)
        return blobs


def runs(ids: Iterable[int]) -> Runs:
    """`ids` as half-open runs in order: {1, 2, 5} gives ((1, 3), (5, 6))."""
    return joined_runs((value, value + 1) for value in set(ids))


def joined_runs(parts: Iterable[tuple[int, int]]) -> Runs:
    """Disjoint runs in order, with the same ids as `parts`; `parts` may overlap, in any order.

    >>> joined_runs([(5, 9), (1, 3), (3, 4), (6, 7)])
    ((1, 4), (5, 9))
    """
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(parts):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((start, stop))
    return tuple(joined)


def covered_by(segments: Iterable[SegmentEntry]) -> Runs:
    """Runs of the ids of the fragments that have zones in `segments`."""
    return joined_runs(run for segment in segments for run in segment.fragments)


def count_zones(segments: Iterable[SegmentEntry]) -> int:
    """Zones of segments; a zone with both a filter and a locator counts once."""
    numbers = {True: 0, False: 0}
    for segment in segments:
        numbers[segment.kind == "locator"] += segment.num_zones
    return max(numbers.values())


class CheckedFile:
    """A file for Arrow's writer that computes the checksum of each span.

    Parameters
    ----------
    starts
        Positions at which a span begins.
    bodies
        Positions of writes that are a span each, without a checksum, since each of their rows has one.
    """

    closed = False

    def __init__(self, file: NewFile, starts: Collection[int] = (), bodies: Collection[int] = ()) -> None:
        self.spans: list[Span] = []
        """The spans that have ended."""
        self._starts, self._bodies = frozenset(starts), frozenset(bodies)
        self._file = file
        self._digest = xxhash.xxh3_64()
        self._num_bytes = 0
        self._position = 0

    def write(self, data: Any) -> int:
        """Append `data`, and add it to the checksum of the span."""
        if self._position in self._bodies:
            self.end_span()
            size = self.write_unchecked(data)
            self.spans.append(Span(size, ""))
            return size
        if self._position in self._starts:
            self.end_span()
        view = memoryview(data).cast("B")
        self._file.write(view)
        self._digest.update(view)
        self._num_bytes += len(view)
        self._position += len(view)
        return len(view)

    def write_unchecked(self, data: Any) -> int:
        """Append `data`; no span's checksum includes it."""
        view = memoryview(data).cast("B")
        self._file.write_large(view)
        self._position += len(view)
        return len(view)

    def tell(self) -> int:
        """Bytes written."""
        return self._position

    def flush(self) -> None:
        """Flush the file beneath."""
        self._file.flush()

    def end_span(self) -> None:
        """End the current span; the next span begins here."""
        self.spans.append(Span(self._num_bytes, self._digest.hexdigest()))
        self._digest.reset()
        self._num_bytes = 0


class SegmentWriter:
    """One new segment; a context manager that leaves no file behind if the block raises.

    The first bytes create the file, so a segment without zones has no file.
    """

    def __init__(self, store: Store, column: str, ending: str) -> None:
        self._store = store
        self._path = new_path(column, ending)
        self._file = ExitStack()
        self._is_closed = False

    def _open(self) -> NewFile:
        return self._file.enter_context(self._store.writing(self._path))

    def _close(self) -> None:
        self._is_closed = True
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.__exit__(kind, error, traceback)
        if kind is not None and self._is_closed:
            delete_all(self._store, [self._path])
