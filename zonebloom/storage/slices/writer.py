"""`SliceSegmentWriter`: bit rows become a slice segment, body after body, so that a group is never whole in memory.

Arrow's own writer writes the file. Padding in the custom metadata of each record batch makes its rows begin at a
multiple of 4096 bytes. These offsets are computed before the first byte is written, as the head has them.

Spec: specs/slices.md#file
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from zonebloom.bloom.split_block import ROWS_PER_BLOCK
from zonebloom.bloom.zones import ZonePositions
from zonebloom.ground.errors import InvalidArgumentError
from zonebloom.storage.arrow_file import MAGIC
from zonebloom.storage.sealed_rows import seal_rows
from zonebloom.storage.segment import CheckedFile, SegmentEntry, SegmentWriter, runs
from zonebloom.storage.slices.layout import PAGE_BYTES, GroupLayout, encode
from zonebloom.stores.store import Store

if TYPE_CHECKING:
    from numpy.typing import NDArray

KIND = "slices"
_PADDING_KEY = "zonebloom.padding"
_BLOCK_BYTES = 32


def _batch(rows: NDArray[np.uint8], schema: pa.Schema) -> pa.RecordBatch:
    column = pa.Array.from_buffers(schema.field(0).type, len(rows), [None, pa.py_buffer(rows)], null_count=0)
    return pa.RecordBatch.from_arrays([column], schema=schema)


def _message(padding: int) -> dict[str, str]:
    return {_PADDING_KEY: "." * padding}


class SliceSegmentWriter(SegmentWriter):
    """Writes one new slice segment.

    - `layout` has the blocks of each body; `write` takes the bodies in order.
    """

    layout: GroupLayout
    schema: pa.Schema

    def __init__(
        self, store: Store, column: str, zone_schema: pa.Schema, num_blocks: int, positions: ZonePositions
    ) -> None:
        super().__init__(store, column, "slices.arrow")
        self._positions = positions
        self._zone_schema = zone_schema
        self._num_written = 0
        self._plan(GroupLayout.planned(num_blocks, len(positions)))

    def _schema(self, layout: GroupLayout) -> pa.Schema:
        described = self._zone_schema.field("bloom_filter_data").metadata
        field = pa.field("bit_rows", pa.binary(layout.stride), nullable=False, metadata=described)
        return pa.schema([field], {**(self._zone_schema.metadata or {}), **encode(layout, self._positions)})

    def _plan(self, layout: GroupLayout) -> None:
        """Compute the offsets of the bodies, repeatedly: the head has them, and they change its length."""
        while True:
            self.layout, self.schema = layout, self._schema(layout)
            self._paddings: list[int] = []
            file = pa.MockOutputStream()  # counts bytes, and does not touch the pages of `body`
            body = np.empty((layout.blocks_per_body * ROWS_PER_BLOCK, layout.stride), np.uint8)
            writer = pa.ipc.new_file(file, self.schema)
            head_bytes = len(MAGIC) + self.schema.serialize().size
            offsets = []
            for first, stop in layout.bodies():
                batch = _batch(body[: (stop - first) * ROWS_PER_BLOCK], self.schema)
                self._paddings.append(self._padding(batch, file.size() or head_bytes))
                writer.write_batch(batch, custom_metadata=_message(self._paddings[-1]))
                offsets.append(file.size() - batch.num_rows * layout.stride)
            if tuple(offsets) == layout.body_offsets:
                return
            layout = replace(layout, body_offsets=tuple(offsets))

    def _padding(self, batch: pa.RecordBatch, start: int) -> int:
        """Characters of padding with which the rows of `batch`, written at `start`, begin at a multiple of 4096."""
        padding = -(start + self._header_bytes(batch, 0)) % PAGE_BYTES
        while (start + self._header_bytes(batch, padding)) % PAGE_BYTES:
            padding += 1
        return padding

    def _header_bytes(self, batch: pa.RecordBatch, padding: int) -> int:
        file = pa.MockOutputStream()
        with pa.ipc.new_stream(file, self.schema) as writer:
            writer.write_batch(batch, custom_metadata=_message(padding))
            return int(file.size() - len(batch) * self.layout.stride - self.schema.serialize().size)

    def write(self, rows: NDArray[np.uint8]) -> None:
        """Seal and append the rows of the next body. The caller may use their memory again afterwards."""
        if not self._num_written:
            self._sink = CheckedFile(self._open(), bodies=self.layout.body_offsets)
            self._writer = pa.ipc.new_file(pa.PythonFile(self._sink, "w"), self.schema)
        first, stop = self.layout.bodies()[self._num_written]
        wanted = ((stop - first) * ROWS_PER_BLOCK, self.layout.stride)
        if rows.shape != wanted:
            raise InvalidArgumentError(f"body {self._num_written} must have shape {wanted}", got=rows.shape)
        seal_rows(rows, first * ROWS_PER_BLOCK, self._path)
        message = _message(self._paddings[self._num_written])
        self._writer.write_batch(_batch(rows, self.schema), custom_metadata=message)
        self._num_written += 1

    def finish(self) -> SegmentEntry:
        """The segment, whose bodies were all written and whose file is closed."""
        self._writer.close()
        self._sink.end_span()
        self._close()
        return SegmentEntry(
            path=self._path,
            num_zones=len(self._positions),
            filter_bytes=len(self._positions) * self.layout.num_blocks * _BLOCK_BYTES,
            fragments=runs(self._positions.fragment_ids.tolist()),
            spans=tuple(self._sink.spans),
            kind=KIND,
        )
