"""`SliceRows`: an opened slice file: the positions of its zones, and its bit rows, which are checked before use.

Few rows are read by position and checked each time. Many rows are memory-mapped and checked once.

Spec: specs/slices.md#file
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import xxhash

from zonebloom.bloom.split_block import bits_in_word, block_indexes
from zonebloom.bloom.zones import ZonePositions, described_by, parameters_of, zone_schema
from zonebloom.errors import CorruptIndexError
from zonebloom.storage.arrow_file import read_head, reading
from zonebloom.storage.sealed_rows import CHECKSUM_BYTES, SealedRows
from zonebloom.storage.segment import SegmentEntry
from zonebloom.storage.slices.layout import (
    ROWS_PER_BLOCK,
    WORDS_PER_BLOCK,
    GroupLayout,
    decode_layout,
    decode_positions,
    rows_of_hash,
)
from zonebloom.stores.store import Store

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST_END_BYTES = 16 << 20
"""Most bytes of a head or a tail: ten times the zone runs of 32 704 zones that are a run each."""


class SliceRows:
    """A slice file: the positions of its zones, and its bit rows.

    Raises
    ------
    CorruptIndexError
        The file is missing, has another length, or its head or tail is not as it was written. All methods that read
        rows raise it for damaged rows.
    """

    def __init__(self, store: Store, entry: SegmentEntry) -> None:
        self.entry = entry
        self._store = store
        with reading(f"segment {entry.path}"):
            head_bytes, tail_bytes = entry.spans[0].num_bytes, entry.spans[-1].num_bytes
            if max(head_bytes, tail_bytes) > _MOST_END_BYTES:
                raise CorruptIndexError(
                    f"head and tail of segment {entry.path} must have at most {_MOST_END_BYTES} bytes",
                    got=f"{head_bytes} and {tail_bytes}",
                )
            tail_start = entry.num_bytes - tail_bytes
            head, tail = store.read_ranges(entry.path, [(0, head_bytes), (tail_start, tail_bytes)])
            size = store.size(entry.path)  # a remote store knows it from the reads
            entry.check_size(size)
            entry.check_span(0, head)
            entry.check_span(len(entry.spans) - 1, tail)
            schema = read_head(pa.py_buffer(head))
            self.layout: GroupLayout = decode_layout(schema, size, entry.path)
            places = [
                (self.layout.offset(first * ROWS_PER_BLOCK), (stop - first) * ROWS_PER_BLOCK)
                for first, stop in self.layout.bodies()
            ]
            self.sealed: SealedRows = SealedRows(store, entry, "bit row", self.layout.stride, places)
            """All bit rows."""
            self.positions: ZonePositions = decode_positions(schema, self.layout.num_zones, entry.path)
            """Positions of the zones in the data."""
            column, column_type = described_by(schema.field(0))
            self.schema: pa.Schema = zone_schema(*parameters_of(schema), column=column, column_type=column_type)
            """Schema of the zone table that the segment holds."""

    @property
    def is_remote(self) -> bool:
        """Whether the file is in an object store, where each read takes a round trip."""
        return self._store.is_remote

    # --- few rows, by their positions ---------------------------------------------------------------------------------

    def read(self, hashes: NDArray[np.uint64]) -> Iterator[NDArray[np.uint64]]:
        """For each of few hashes the 8 rows that it selects, checked, as words; `(8, stride / 8 - 1)`.

        A remote store gets one request for all of them.
        """
        numbers = [rows_of_hash(value, self.layout.num_blocks) for value in hashes.tolist()]
        if not self.is_remote:
            for rows in numbers:
                yield self._checked(rows, self._store.read_ranges(self.entry.path, self._ranges_of(rows)))
            return
        ranges = [byte_range for rows in numbers for byte_range in self._ranges_of(rows)]
        blobs = iter(self._store.read_ranges(self.entry.path, ranges))
        for rows in numbers:
            yield self._checked(rows, list(islice(blobs, len(rows))))

    def _ranges_of(self, rows: tuple[int, ...]) -> list[tuple[int, int]]:
        stride = self.layout.stride
        base = self.layout.offset(rows[0]) - rows[0] * stride
        return [(base + row * stride, stride) for row in rows]

    def _checked(self, rows: tuple[int, ...], blobs: list[bytes]) -> NDArray[np.uint64]:
        """Bit rows of one block, checked and without their checksums, as words; `(len(rows), stride / 8 - 1)`."""
        stride = self.layout.stride
        data = b"".join(blobs)
        if len(data) != stride * len(rows):
            raise CorruptIndexError(f"segment {self.entry.path} must have {self.entry.num_bytes} bytes", got="fewer")
        words = np.frombuffer(data, np.dtype("<u8")).reshape(len(rows), stride // 8)
        digest = xxhash.xxh3_64_intdigest
        for row, blob, wanted in zip(rows, blobs, words[:, -1].tolist(), strict=True):
            if digest(blob[:-CHECKSUM_BYTES], row) != wanted:
                self.sealed.reject(row)
        return words[:, :-1]

    # --- many rows, mapped --------------------------------------------------------------------------------------------

    def check_rows_of(self, hashes: NDArray[np.uint64]) -> None:
        """Check the rows that `hashes` select, unless they were checked before."""
        firsts = block_indexes(hashes, self.layout.num_blocks) * np.uint64(ROWS_PER_BLOCK)
        needed = np.zeros(self.layout.num_rows, np.bool_)
        low_halves = hashes.astype(np.uint32)
        for word in range(WORDS_PER_BLOCK):
            needed[firsts + np.uint64(32 * word) + bits_in_word(low_halves, word)] = True
        self.sealed.check(np.flatnonzero(needed))

    def check_blocks(self, num_blocks: int) -> None:
        """Check the rows of the first blocks."""
        self.sealed.check(np.arange(num_blocks * ROWS_PER_BLOCK))

    def check_all(self) -> None:
        """Check every row."""
        self.check_blocks(self.layout.num_blocks)

    def check_file(self) -> None:
        """Check every byte: every row, and Arrow's messages between the bodies."""
        offset = 0
        for number, span in enumerate(self.entry.spans):
            if span.checksum:
                self.entry.check_span(number, self._store.read_ranges(self.entry.path, [(offset, span.num_bytes)])[0])
            offset += span.num_bytes
        self.check_all()
