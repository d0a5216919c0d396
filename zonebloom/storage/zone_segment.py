"""Zone segment: the zones of some fragments of one column, as an immutable Arrow IPC file.

Its spans are the head (magic and schema), each record batch, and the tail (footer), so every byte is checked; a batch
is checked when it is first touched, not when the segment is opened.

Spec: specs/index-format.md#zone-segment
"""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import pyarrow as pa

from zonebloom.bloom.zones import ZoneTable
from zonebloom.errors import CorruptIndexError, InvalidZoneTableError
from zonebloom.storage.segment import CheckedFile, SegmentEntry, Span, checksum, column_folder, runs
from zonebloom.storage.stores.store import Store

__all__ = ["ZoneSegment", "ZoneSegmentWriter"]


class ZoneSegmentWriter:
    """Writes one new zone segment; `entry` describes it once the block ends, and nothing stays if it raises."""

    def __init__(self, store: Store, column: str, schema: pa.Schema) -> None:
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
        self._sink = CheckedFile(self._stack.enter_context(self._store.writing(self._path)))
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

    def __init__(self, store: Store, entry: SegmentEntry) -> None:
        self.entry = entry
        try:
            self._mapping = store.mapping(entry.path)
            self._buffer = self._mapping.buffer
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

    def release(self) -> None:
        """Unmap what was read; it is mapped again when it is needed again."""
        self._mapping.release()

    def zones(self, *, keep_mapped: bool = True) -> tuple[ZoneTable, list[str]]:
        """The zones of all sound batches, and a message for each batch that is not sound.

        Without `keep_mapped` what was checked is unmapped at once, so that a large segment does not fill the memory.

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
            if not keep_mapped:
                self.release()
        try:
            return ZoneTable(batches, self.schema), damage
        except InvalidZoneTableError as error:
            raise CorruptIndexError(f"segment {self.entry.path}: {error}") from error
