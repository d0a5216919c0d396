"""Zone segment: the zones of some fragments of one column, as an immutable Arrow IPC file.

Its spans are the head (magic and schema), each record batch, and the tail (footer), so every byte is checked. A batch
is checked when it is first read, not when the segment is opened.

Spec: specs/index-format.md#zone-segment
"""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

import pyarrow as pa

from zonebloom.bloom.zones import ZONE_FIELDS, ZonePositions, ZoneTable
from zonebloom.ground.errors import CorruptIndexError
from zonebloom.storage.arrow_file import MAGIC, check_columns, read_batch, read_head, reading
from zonebloom.storage.segment import CheckedFile, SegmentEntry, SegmentWriter, runs
from zonebloom.stores.store import Store

_LEAST_SPANS = 2
"""A head and a tail."""
_BATCH_BYTES, _BATCH_ZONES = 4 << 20, 1024
"""A batch of zones that come one by one is written when it has this many bytes or zones."""


class ZoneSegmentWriter(SegmentWriter):
    """Writes one new zone segment, batch by batch."""

    def __init__(self, store: Store, column: str, schema: pa.Schema) -> None:
        super().__init__(store, column, "zones.arrow")
        self.schema = schema
        self._sink: CheckedFile | None = None
        self._fragments: set[int] = set()
        self._num_zones = 0
        self._filter_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append the zones of `batch`; the caller may use its memory again afterwards."""
        if self._sink is None:
            head_bytes = len(MAGIC) + self.schema.serialize().size  # Arrow writes the head with the first batch
            self._sink = CheckedFile(self._open(), starts=[head_bytes])
            self._writer = pa.ipc.new_file(pa.PythonFile(self._sink, "w"), self.schema)
        self._writer.write_batch(batch)
        self._sink.end_span()
        self._fragments.update(batch.column(0).unique().to_pylist())
        self._num_zones += batch.num_rows
        self._filter_bytes += batch.column(4).buffers()[2].size if batch.num_rows else 0

    def finish(self) -> list[SegmentEntry]:
        """The segment, whose file is closed; none if no batch was written."""
        if self._sink is None:
            return []
        self._writer.close()
        self._sink.end_span()
        self._close()
        entry = SegmentEntry(
            path=self._path,
            kind="zones",
            num_zones=self._num_zones,
            filter_bytes=self._filter_bytes,
            fragments=runs(self._fragments),
            spans=tuple(self._sink.spans),
        )
        return [entry]


class Zone(NamedTuple):
    """One row of a zone table."""

    fragment_id: int
    start: int
    num_rows: int
    has_null: bool
    bitset: bytes | memoryview


class ZoneWriter(ZoneSegmentWriter):
    """Writes one new zone segment, zone by zone; the memory of a bitset must not change before `finish`."""

    def __init__(self, store: Store, column: str, schema: pa.Schema) -> None:
        super().__init__(store, column, schema)
        self._pending: list[Zone] = []
        self._pending_bytes = 0

    def add(self, zone: Zone) -> None:
        """Append one zone."""
        self._pending.append(zone)
        self._pending_bytes += len(zone.bitset)
        if self._pending_bytes >= _BATCH_BYTES or len(self._pending) == _BATCH_ZONES:
            self._flush()

    def _flush(self) -> None:
        columns = zip(*self._pending, strict=True)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, self.schema, strict=True)]
        self.write(pa.RecordBatch.from_arrays(arrays, schema=self.schema))
        self._pending.clear()
        self._pending_bytes = 0

    def finish(self) -> list[SegmentEntry]:
        """The segment of all zones, whose file is closed; none if no zone was added."""
        if self._pending:
            self._flush()
        return super().finish()


class ZoneSegment:
    """An opened zone segment; a batch is memory-mapped, and its checksum is verified before it is used."""

    def __init__(self, store: Store, entry: SegmentEntry) -> None:
        self.entry = entry
        with reading(f"segment {entry.path}"):
            self._mapping = store.mapping(entry.path)
            self._buffer = self._mapping.buffer
            if self._buffer.size != entry.num_bytes or len(entry.spans) < _LEAST_SPANS:
                raise CorruptIndexError(
                    f"segment {entry.path} must have {entry.num_bytes} bytes with a head and a tail",
                    got=self._buffer.size,
                )
            self._starts = [0, *accumulate(span.num_bytes for span in entry.spans)]
            self.schema: pa.Schema = read_head(self._checked(0))
            """Schema of the zone table."""
            check_columns(self.schema, pa.schema(ZONE_FIELDS))
            self._checked(len(entry.spans) - 1)

    def _checked(self, number: int) -> pa.Buffer:
        data = self._buffer.slice(self._starts[number], self.entry.spans[number].num_bytes)
        self.entry.check_span(number, data)
        return data

    def __len__(self) -> int:
        """Number of record batches."""
        return len(self.entry.spans) - _LEAST_SPANS

    def batch(self, number: int) -> pa.RecordBatch:
        """Record batch `number`, checked.

        Raises
        ------
        CorruptIndexError
            Its bytes differ from their checksum, or are not zones.
        """
        with reading(f"span {1 + number} of segment {self.entry.path}"):
            batch = read_batch(self._checked(1 + number), self.schema)
            ZonePositions.from_batches([batch]).check()
            return batch

    def release(self) -> None:
        """Unmap the pages that were read; they are mapped again by the next read."""
        self._mapping.release()

    def zones(self, *, keep_mapped: bool = True) -> tuple[ZoneTable, list[str]]:
        """The zones of all undamaged batches, and a message for each damaged batch.

        Without `keep_mapped` each batch is unmapped after its check, so that a large segment does not fill the memory.

        Raises
        ------
        CorruptIndexError
            An undamaged batch breaks an invariant of specs/zones.md.
        """
        batches, damage = [], []
        for number in range(len(self)):
            try:
                batches.append(self.batch(number))
            except CorruptIndexError as error:
                damage.append(str(error))
            if not keep_mapped:
                self.release()
        with reading(f"segment {self.entry.path}"):
            return ZoneTable(batches, self.schema), damage
