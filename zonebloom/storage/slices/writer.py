"""`SliceSegmentWriter`: bit rows become a slice segment, body after body, so that a group never lies in memory whole.

The file is written by Arrow's own writer. Each record batch carries padding in its custom metadata, so that its rows
begin at a multiple of 4096 bytes; where they will begin is known before the first byte is written, and stands in the
head.

Spec: specs/slices.md#file
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import xxhash

from zonebloom.bloom.zones import ZonePositions
from zonebloom.errors import InvalidArgumentError
from zonebloom.storage.segment import CheckedFile, SegmentEntry, Span, column_folder, runs
from zonebloom.storage.slices.layout import (
    CHECKSUM_BYTES,
    KERNEL_STRIDE,
    PAGE_BYTES,
    ROWS_PER_BLOCK,
    GroupLayout,
    encode,
)
from zonebloom.storage.stores.store import NewFile, Store

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["SliceSegmentWriter", "seal_rows"]

KIND = "slices"
_PADDING_KEY = "zonebloom.padding"
_BLOCK_BYTES = 32


def seal_rows(rows: NDArray[np.uint8], first_row: int) -> None:
    """Write the checksum of each bit row into its last 8 bytes; `rows` has shape `(num_rows, stride)`.

    Spec: specs/slices.md#row-checksum
    """
    num_rows, stride = rows.shape
    if stride >= KERNEL_STRIDE:
        from zonebloom.bloom.kernels import row_checksums  # noqa: PLC0415 - Numba is loaded by the first rows, not by import

        row_checksums.seal_rows(rows, first_row)
        return
    view = rows.data.cast("B")
    hashed, digest = stride - CHECKSUM_BYTES, xxhash.xxh3_64_intdigest
    found = [
        digest(view[start : start + hashed], seed)
        for seed, start in enumerate(range(0, num_rows * stride, stride), first_row)
    ]
    rows.view(np.dtype("<u8"))[:, -1] = found


class _CountingFile:
    """A file for Arrow's writer that only knows how much was written to it."""

    closed = False

    def __init__(self) -> None:
        self.position = 0

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self.position += size
        return size

    def tell(self) -> int:
        return self.position

    def flush(self) -> None:
        pass

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


class _BodyFile(CheckedFile):
    """Ends a span before and after each body; bodies are not checksummed, as their rows are."""

    def __init__(self, file: NewFile, body_offsets: Sequence[int]) -> None:
        super().__init__(file)
        self._body_offsets = frozenset(body_offsets)
        self.spans: list[Span] = []

    def write(self, data: Any) -> int:
        if self.tell() not in self._body_offsets:
            return super().write(data)
        self.spans.append(self.end_span())
        size = self.write_unchecked(data)
        self.spans.append(Span(size, ""))
        return size


def _batch(rows: NDArray[np.uint8], schema: pa.Schema) -> pa.RecordBatch:
    column = pa.Array.from_buffers(schema.field(0).type, len(rows), [None, pa.py_buffer(rows)], null_count=0)
    return pa.RecordBatch.from_arrays([column], schema=schema)


def _message(padding: int) -> dict[str, str]:
    return {_PADDING_KEY: "." * padding}


class SliceSegmentWriter:
    """Writes one new slice segment; `entry` describes it once the block ends, and nothing stays if it raises.

    - `layout` says which blocks each body has; `write` takes the bodies in order.
    """

    def __init__(
        self, store: Store, column: str, zone_schema: pa.Schema, num_blocks: int, positions: ZonePositions
    ) -> None:
        self._path = f"{column_folder(column)}/{uuid.uuid4()}.slices.arrow"
        self._store = store
        self._positions = positions
        self._zone_schema = zone_schema
        self._stack = ExitStack()
        self._num_written = 0
        self._plan(GroupLayout.planned(num_blocks, len(positions)))
        self.entry: SegmentEntry | None = None

    def _schema(self, layout: GroupLayout) -> pa.Schema:
        described = self._zone_schema.field("bloom_filter_data").metadata
        field = pa.field("bit_rows", pa.binary(layout.stride), nullable=False, metadata=described)
        return pa.schema([field], {**(self._zone_schema.metadata or {}), **encode(layout, self._positions)})

    def _plan(self, layout: GroupLayout) -> None:
        """Find the offsets of the bodies: they stand in the head, whose length they change; so until they agree."""
        while True:
            self.layout, self.schema = layout, self._schema(layout)
            self._paddings: list[int] = []
            file = _CountingFile()
            body = np.empty(
                (layout.blocks_per_body * ROWS_PER_BLOCK, layout.stride), np.uint8
            )  # its pages are not touched
            writer = pa.ipc.new_file(pa.PythonFile(file, "w"), self.schema)
            offsets = []
            for first, stop in layout.bodies():
                batch = _batch(body[: (stop - first) * ROWS_PER_BLOCK], self.schema)
                self._paddings.append(self._padding(batch, file, is_first=first == 0))
                writer.write_batch(batch, custom_metadata=_message(self._paddings[-1]))
                offsets.append(file.position - batch.num_rows * layout.stride)
            if tuple(offsets) == layout.body_offsets:
                return
            layout = replace(layout, body_offsets=tuple(offsets))

    def _padding(self, batch: pa.RecordBatch, file: _CountingFile, *, is_first: bool) -> int:
        """Characters of padding with which the rows of `batch`, written next, begin at a multiple of 4096."""
        base = self._header_bytes(batch, 0)
        head = 8 + self.schema.serialize().size if is_first else 0  # the magic, and the schema's message
        padding = -(file.position + head + base) % PAGE_BYTES
        while self._header_bytes(batch, padding) + file.position + head & (PAGE_BYTES - 1):
            padding += 1
        return padding

    def _header_bytes(self, batch: pa.RecordBatch, padding: int) -> int:
        file = _CountingFile()
        with pa.ipc.new_stream(pa.PythonFile(file, "w"), self.schema) as writer:
            writer.write_batch(batch, custom_metadata=_message(padding))
            body_bytes, schema_bytes = len(batch) * self.layout.stride, int(self.schema.serialize().size)
            return file.position - body_bytes - schema_bytes

    def __enter__(self) -> Self:
        self._sink = _BodyFile(self._stack.enter_context(self._store.writing(self._path)), self.layout.body_offsets)
        self._writer = pa.ipc.new_file(pa.PythonFile(self._sink, "w"), self.schema)
        return self

    def write(self, rows: NDArray[np.uint8]) -> None:
        """Append the next body: its rows, sealed. The caller may use their memory again afterwards."""
        first, stop = self.layout.bodies()[self._num_written]
        wanted = ((stop - first) * ROWS_PER_BLOCK, self.layout.stride)
        if rows.shape != wanted:
            raise InvalidArgumentError(f"body {self._num_written} must have shape {wanted}, got {rows.shape}")
        message = _message(self._paddings[self._num_written])
        self._writer.write_batch(_batch(rows, self.schema), custom_metadata=message)
        self._num_written += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self._stack.__exit__(kind, error, traceback)
            return
        with self._stack:
            self._writer.close()
        self.entry = SegmentEntry(
            path=self._path,
            num_zones=len(self._positions),
            filter_bytes=len(self._positions) * self.layout.num_blocks * _BLOCK_BYTES,
            fragments=runs(self._positions.fragment_ids.tolist()),
            spans=(*self._sink.spans, self._sink.end_span()),
            kind=KIND,
        )
