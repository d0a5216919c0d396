"""Zone segment: the zones of some fragments of one column, as an immutable Arrow IPC file.

A segment is described by its `SegmentEntry` in the version file, which holds a checksum of each **span** of the file:
the head (magic and schema), each record batch, the tail (footer). The spans tile the file, so every byte is checked; a
batch is checked when it is first touched, not when the segment is opened.

Spec: specs/index-format.md#zone-segment
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, BinaryIO, Self
from urllib.parse import quote

import pyarrow as pa
import xxhash

from zonebloom.errors import CorruptIndexError, InvalidZoneTableError
from zonebloom.storage.store import LocalStore
from zonebloom.zones import ZoneTable

__all__ = ["SegmentEntry", "ZoneSegment", "ZoneSegmentWriter", "checksum", "column_folder"]

KIND = "zones"


def checksum(data: bytes | memoryview | pa.Buffer) -> str:
    """XXH3-64 of `data` as 16 hexadecimal digits.

    Spec: specs/index-format.md#checksum
    """
    return xxhash.xxh3_64_hexdigest(data)


def column_folder(column: str) -> str:
    """The folder of a column's segments: its name, percent-encoded where a file name could not hold it."""
    return "columns/" + (quote(column, safe=" ").replace(".", "%2E") or "%00")


@dataclass(frozen=True, slots=True)
class Span:
    """A checked range of a segment file; the spans of a file follow each other without a gap."""

    num_bytes: int
    """Length in bytes."""
    checksum: str
    """XXH3-64, 16 hexadecimal digits."""


@dataclass(frozen=True, slots=True)
class SegmentEntry:
    """What the version file says of a segment.

    - Span 0 is the head, the last one the tail, those between are the record batches in order.
    """

    path: str
    """Relative to the index directory."""
    num_zones: int
    """Rows of the segment."""
    filter_bytes: int
    """Bytes of all its bitsets."""
    fragments: tuple[tuple[int, int], ...]
    """Half-open ranges of the fragment ids whose zones it holds."""
    spans: tuple[Span, ...]
    """Checksums that tile the file."""
    kind: str = KIND
    """Layout of the file."""

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

    @classmethod
    def from_json(cls, entry: dict[str, Any]) -> SegmentEntry:
        """The entry that a version file holds."""
        return cls(
            path=str(entry["path"]),
            kind=str(entry["kind"]),
            num_zones=int(entry["num_zones"]),
            filter_bytes=int(entry["filter_bytes"]),
            fragments=tuple((int(start), int(stop)) for start, stop in entry["fragments"]),
            spans=tuple(Span(int(size), str(digest)) for size, digest in entry["spans"]),
        )


def runs(ids: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """`ids` as half-open runs in order: {1, 2, 5} gives ((1, 3), (5, 6))."""
    found: list[list[int]] = []
    for value in sorted(set(ids)):
        if found and found[-1][1] == value:
            found[-1][1] = value + 1
        else:
            found.append([value, value + 1])
    return tuple((start, stop) for start, stop in found)


class _CheckedFile:
    """A file for Arrow's writer that checksums what passes, span by span."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = xxhash.xxh3_64()
        self._num_bytes = 0
        self._position = 0

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._file.write(view)
        self._digest.update(view)
        self._num_bytes += len(view)
        self._position += len(view)
        return len(view)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        self._file.flush()

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def end_span(self) -> Span:
        span = Span(self._num_bytes, self._digest.hexdigest())
        self._digest.reset()
        self._num_bytes = 0
        return span


class ZoneSegmentWriter:
    """Writes one new zone segment; `entry` describes it once the block ends, and nothing stays if it raises."""

    def __init__(self, store: LocalStore, column: str, schema: pa.Schema) -> None:
        self._path = f"{column_folder(column)}/{uuid.uuid4()}.zones.arrow"
        self._store = store
        self._schema = schema
        self._stack = ExitStack()
        self._spans: list[Span] = []
        self._fragments: set[int] = set()
        self._num_zones = 0
        self._filter_bytes = 0
        self.entry: SegmentEntry | None = None

    def __enter__(self) -> Self:
        self._sink = _CheckedFile(self._stack.enter_context(self._store.writing(self._path)))
        self._writer = pa.ipc.new_file(pa.PythonFile(self._sink, "w"), self._schema)
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        """Append the zones of `batch`; the caller may use its memory again afterwards."""
        if not self._spans:
            self._spans.append(self._sink.end_span())
        self._writer.write_batch(batch)
        self._spans.append(self._sink.end_span())
        self._fragments.update(batch.column(0).unique().to_pylist())
        self._num_zones += batch.num_rows
        self._filter_bytes += batch.column(4).buffers()[2].size if batch.num_rows else 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self._stack.__exit__(kind, error, traceback)
            return
        with self._stack:
            if not self._spans:
                self._spans.append(self._sink.end_span())
            self._writer.close()
            self._spans.append(self._sink.end_span())
        self.entry = SegmentEntry(
            path=self._path,
            num_zones=self._num_zones,
            filter_bytes=self._filter_bytes,
            fragments=runs(self._fragments),
            spans=tuple(self._spans),
        )


class ZoneSegment:
    """An opened zone segment; its batches are memory-mapped and trusted only once their checksum was seen to hold."""

    def __init__(self, store: LocalStore, entry: SegmentEntry) -> None:
        self.entry = entry
        try:
            self._buffer = store.map(entry.path)
        except FileNotFoundError as error:
            raise CorruptIndexError(f"segment {entry.path} must exist, got no such file") from error
        if self._buffer.size != entry.num_bytes:
            message = f"segment {entry.path} must have {entry.num_bytes} bytes, got {self._buffer.size}"
            raise CorruptIndexError(message)
        self._starts = [0]
        for span in entry.spans:
            self._starts.append(self._starts[-1] + span.num_bytes)
        self._check(0)
        self._check(len(entry.spans) - 1)
        try:
            self._reader = pa.ipc.open_file(self._buffer)
        except (pa.ArrowInvalid, OSError) as error:
            raise CorruptIndexError(f"segment {entry.path} must be an Arrow IPC file, got {error}") from error

    def _check(self, number: int) -> None:
        span = self.entry.spans[number]
        found = checksum(self._buffer.slice(self._starts[number], span.num_bytes))
        if found != span.checksum:
            message = f"span {number} of segment {self.entry.path} must have checksum {span.checksum}, got {found}"
            raise CorruptIndexError(message)

    def __len__(self) -> int:
        """Number of record batches."""
        return len(self.entry.spans) - 2

    @property
    def schema(self) -> pa.Schema:
        """Schema of the zone table."""
        return self._reader.schema

    def batch(self, number: int) -> pa.RecordBatch:
        """Record batch `number`, checked.

        Raises
        ------
        CorruptIndexError
            Its bytes differ from their checksum.
        """
        self._check(1 + number)
        return self._reader.get_batch(number)

    def zones(self) -> tuple[ZoneTable, list[str]]:
        """The zones of all sound batches, and a message for each batch that is not sound.

        Raises
        ------
        CorruptIndexError
            A sound batch holds no zones in the sense of specs/zones.md.
        """
        batches, damage = [], []
        for number in range(len(self)):
            try:
                batches.append(self.batch(number))
            except CorruptIndexError as error:
                damage.append(str(error))
        try:
            return ZoneTable(batches, self.schema), damage
        except InvalidZoneTableError as error:
            raise CorruptIndexError(f"segment {self.entry.path}: {error}") from error
