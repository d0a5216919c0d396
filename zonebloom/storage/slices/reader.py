"""Slice segment: a group of zones as bit rows; a probe of one key reads 8 rows, for all zones of the group.

All filters of a group have the same number of blocks, and a key selects the same 8 bits of each. A probe of few keys
reads these rows by position, verifies the checksum of each row, and ANDs them. Many keys are probed by a kernel over
the memory-mapped file. Once a row was found damaged, every zone of the group is MAY_MATCH, and `damage` has the
message.

Spec: specs/slices.md
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from zonebloom.bloom.numba_loading import kernels_to_read
from zonebloom.bloom.split_block import ROWS_PER_BLOCK, bits_in_word, block_indexes, measured_fpp, rows_of_hash
from zonebloom.bloom.zones import (
    CANNOT_MATCH,
    MAY_MATCH,
    BlockFilters,
    ZonePositions,
    ZonesOfEach,
    described_by,
    parameters_of,
    zone_schema,
)
from zonebloom.ground.arrow import distinct
from zonebloom.storage.arrow_file import read_head, reading
from zonebloom.storage.sealed_rows import CHECKSUM_BYTES, SealedRows
from zonebloom.storage.segment import SegmentEntry
from zonebloom.storage.slices.layout import WORDS_PER_BLOCK, GroupLayout, decode_layout, decode_positions
from zonebloom.stores.store import Store

if TYPE_CHECKING:
    from numpy.typing import NDArray

FEW_HASHES = 256
"""Most hashes that are probed by positioned reads and NumPy, which is faster than starting Numba."""
_WINDOW = 64
"""Zones whose filters are made at once: filters are mostly read in order."""
_SAMPLED_BLOCKS = 16
_MOST_END_BYTES = 16 << 20
"""Most bytes of a head or a tail: ten times the zone runs of 32 704 zones that are a run each."""
_ZONES_PER_BATCH = 1024
_BATCH_BYTES = 32 << 20


class SliceSegment(BlockFilters):
    """The zones of a slice file, to be probed.

    - Rows are checked before they are first used. Once a row was found damaged, every zone of the group is MAY_MATCH.

    Raises
    ------
    CorruptIndexError
        The file is missing, has another length, or its head or tail is not as it was written.
    """

    def __init__(self, store: Store, entry: SegmentEntry) -> None:
        self.entry = entry
        self._store = store
        head, _tail = entry.read_spans(store, [0, len(entry.spans) - 1], _MOST_END_BYTES)
        with reading(f"segment {entry.path}"):
            schema = read_head(pa.py_buffer(head))
            self.layout: GroupLayout = decode_layout(schema, entry.num_bytes, entry.path)
            """Positions of the bit rows in the file."""
            self._positions = decode_positions(schema, self.layout.num_zones, entry.path)
            column, column_type = described_by(schema.field(0))
            self._schema = zone_schema(*parameters_of(schema), column=column, column_type=column_type)
        places = [
            (place, (stop - first) * ROWS_PER_BLOCK)
            for place, (first, stop) in zip(self.layout.body_offsets, self.layout.bodies(), strict=True)
        ]
        self._sealed = SealedRows(store, entry, "bit row", self.layout.stride, places, version=self.layout.version)
        self._window: tuple[int, NDArray[np.uint32]] = (-1, np.zeros((0, 1, WORDS_PER_BLOCK), np.uint32))
        """The number of the first of 64 zones, and their filters: the last ones that were read."""

    def __len__(self) -> int:
        return self.layout.num_zones

    @property
    def schema(self) -> pa.Schema:
        """Schema of the zone table that the segment holds."""
        return self._schema

    @property
    def positions(self) -> ZonePositions:
        """Positions of the zones in the data."""
        return self._positions

    @property
    def damage(self) -> tuple[str, ...]:
        """The first damage that was found."""
        return self._sealed.damage

    def verify(self) -> bool:
        """Whether every byte is as it was written: rows, and Arrow's messages between the bodies; damage is noted."""

        def check() -> None:
            offset = 0
            for number, span in enumerate(self.entry.spans):
                if span.checksum:
                    blobs = self._store.read_ranges(self.entry.path, [(offset, span.num_bytes)])
                    self.entry.check_span(number, blobs[0])
                offset += span.num_bytes
            self._check_blocks(self.layout.num_blocks)

        self._sealed.sound(check)
        return not self.damage

    def release(self) -> None:
        """Unmap the pages that were read; they are mapped again by the next read."""
        self._sealed.release()

    # --- rows ---------------------------------------------------------------------------------------------------------

    def _read(self, hashes: NDArray[np.uint64]) -> Iterator[NDArray[np.uint64]]:
        """For each of few hashes the 8 rows that it selects, checked, as words; `(8, stride / 8 - 1)`.

        A remote store gets one request for all of them.
        """
        numbers = [rows_of_hash(value, self.layout.num_blocks) for value in hashes.tolist()]
        if not self._store.is_remote:
            for rows in numbers:
                yield self._words(self._ranges_of(rows), rows)
            return
        ranges = list(chain.from_iterable(map(self._ranges_of, numbers)))
        words = self._words(ranges, list(chain.from_iterable(numbers)))
        yield from words.reshape(len(numbers), WORDS_PER_BLOCK, -1)

    def _words(self, ranges: Sequence[tuple[int, int]], rows: Sequence[int]) -> NDArray[np.uint64]:
        data = b"".join(self._sealed.read(ranges, rows))
        return np.frombuffer(data, "<u8").reshape(len(rows), -1)[:, :-1]

    def _ranges_of(self, rows: tuple[int, ...]) -> list[tuple[int, int]]:
        stride = self.layout.stride
        base = self.layout.offset(rows[0]) - rows[0] * stride
        return [(base + row * stride, stride) for row in rows]

    def _check_rows_of(self, hashes: NDArray[np.uint64]) -> None:
        """Check the rows that `hashes` select, unless they were checked before."""
        firsts = block_indexes(hashes, self.layout.num_blocks) * np.uint64(ROWS_PER_BLOCK)
        needed = np.zeros(self.layout.num_blocks * ROWS_PER_BLOCK, np.bool_)
        low_halves = hashes.astype(np.uint32)
        for word in range(WORDS_PER_BLOCK):
            needed[firsts + np.uint64(32 * word) + bits_in_word(low_halves, word)] = True
        self._sealed.check(np.flatnonzero(needed))

    def _check_blocks(self, num_blocks: int) -> None:
        """Check the rows of the first blocks."""
        self._sealed.check(np.arange(num_blocks * ROWS_PER_BLOCK))

    def _filters(self, first_zone: int, num_zones: int, first_block: int, stop_block: int) -> NDArray[np.uint32]:
        """Blocks `[first_block, stop_block)` of the filters of consecutive zones, shape `(num_zones, blocks, 8)`.

        The rows must have been checked. `first_zone` is a multiple of 8.

        Spec: specs/slices.md#unslice_zones
        """
        kernels = kernels_to_read("slices")
        filters = np.empty((num_zones, stop_block - first_block, WORDS_PER_BLOCK), np.uint32)
        for body, (first, stop) in zip(self._sealed.bodies, self.layout.bodies(), strict=True):
            begin, end = max(first, first_block), min(stop, stop_block)
            if begin < end:
                part = body[(begin - first) * ROWS_PER_BLOCK : (end - first) * ROWS_PER_BLOCK]
                out = filters if end - begin == filters.shape[1] else np.empty((num_zones, end - begin, 8), np.uint32)
                kernels.unslice_zones(part, out, first_zone)
                if out is not filters:
                    filters[:, begin - first_block : end - first_block] = out
        return filters

    # --- probing ------------------------------------------------------------------------------------------------------

    def may_contain(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """For each zone, whether it MAY_MATCH any of `hashes`.

        Cost: 8 rows of at most 4096 bytes for each hash. Spec: specs/slices.md#probe
        """
        if not len(hashes) or not len(self):
            return np.full(len(self), CANNOT_MATCH)
        bits = self._sealed.sound(lambda: self._few(hashes) if len(hashes) <= FEW_HASHES else self._many(hashes))
        if bits is None:
            return np.full(len(self), MAY_MATCH)
        return np.unpackbits(bits.view(np.uint8), count=len(self), bitorder="little").view(np.bool_)

    def candidates(self, hashes: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Numbers of the zones that MAY_MATCH any of `hashes`, ascending: `may_contain`, faster for few hashes."""
        if not 0 < len(hashes) <= FEW_HASHES:
            return np.flatnonzero(self.may_contain(hashes))
        words = self._sealed.sound(lambda: self._few(hashes))
        if words is None:
            return np.arange(len(self))
        numbers = _zones_in(words)
        return numbers[numbers < len(self)]

    def contained(self, hashes: NDArray[np.uint64], live: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
        """For each of `hashes`, whether any zone (in the mask `live`) MAY_MATCH it; False is certain."""
        if not len(hashes) or not len(self) or (live is not None and not live.any()):
            return np.full(len(hashes), CANNOT_MATCH)
        may_match = self._sealed.sound(lambda: self._contained(hashes, live))
        return np.full(len(hashes), MAY_MATCH) if may_match is None else may_match

    def zones_of_each(self, hashes: NDArray[np.uint64]) -> ZonesOfEach:
        """For each of `hashes` the zones that MAY_MATCH it.

        Cost: 8 rows of at most 4096 bytes for each hash.
        """
        pairs = self._sealed.sound(lambda: self._each(hashes)) if len(hashes) > FEW_HASHES else None
        return super().zones_of_each(hashes) if pairs is None else pairs

    def _each(self, hashes: NDArray[np.uint64]) -> ZonesOfEach:
        kernels = kernels_to_read("slices")
        order = np.argsort(hashes)
        self._check_rows_of(hashes[order])
        keys, zones = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        words = np.zeros(-(-len(self) // 64), np.uint64)
        bits = words.view(np.uint8)[: -(-len(self) // 8)]
        for rows, (begin, end), inside in self._by_body(hashes[order]):
            for key in range(end - begin):
                kernels.probe_rows(rows, inside[key : key + 1], num_zones=len(self), out=bits)
                if len(numbers := _zones_in(words)):
                    zones.append(numbers)
                    keys.append(np.full(len(numbers), order[begin + key]))
                    words[numbers >> 6] = 0
        return np.concatenate(keys), np.concatenate(zones)

    def _few(self, hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Bits of the zones that may hold any of `hashes`, as words; bits past the last zone are 0."""
        matching_any: NDArray[np.uint64] | None = None
        for rows in self._read(hashes):
            matching = np.bitwise_and.reduce(rows, axis=0)
            matching_any = matching if matching_any is None else matching_any | matching
        assert matching_any is not None
        return matching_any

    def _many(self, hashes: NDArray[np.uint64]) -> NDArray[np.uint8]:
        kernels = kernels_to_read("slices")
        bits = np.zeros(-(-len(self) // 8), np.uint8)
        hashes = distinct(hashes)
        self._check_rows_of(hashes)
        for rows, _, inside in self._by_body(hashes):
            kernels.probe_rows(rows, inside, num_zones=len(self), out=bits)
        return bits

    def _by_body(
        self, hashes: NDArray[np.uint64]
    ) -> Iterator[tuple[NDArray[np.uint8], tuple[int, int], NDArray[np.uint64]]]:
        """For each body that ascending `hashes` select: its rows, the range of its hashes, and these hashes changed so
        that they select the same blocks in a filter of this body's blocks alone.
        """
        low = hashes & np.uint64(0xFFFFFFFF)
        block = block_indexes(hashes, self.layout.num_blocks)  # ascending too
        for rows, (first, stop) in zip(self._sealed.bodies, self.layout.bodies(), strict=True):
            begin, end = np.searchsorted(block, (first, stop)).tolist()
            if begin < end:
                inside = block[begin:end] - np.uint64(first)
                # The least upper half that selects this block of a filter with the blocks of this body only.
                size = np.uint64(stop - first)
                high = ((inside << np.uint64(32)) + size - np.uint64(1)) // size
                yield rows, (begin, end), high << np.uint64(32) | low[begin:end]

    def _contained(self, hashes: NDArray[np.uint64], live: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
        bits = np.packbits(np.ones(len(self), np.bool_) if live is None else live, bitorder="little")
        mask = np.zeros(self.layout.stride, np.uint8)  # with zeros at the row's checksum
        mask[: len(bits)] = bits
        if len(hashes) > FEW_HASHES:
            return self._contained_many(hashes, mask)
        may_match = np.zeros(len(hashes), np.bool_)
        words = mask[:-CHECKSUM_BYTES].view(np.uint64)
        order = np.argsort(hashes)
        for number, rows in zip(order.tolist(), self._read(hashes[order]), strict=True):
            may_match[number] = bool((np.bitwise_and.reduce(rows, axis=0) & words).any())
        return may_match

    def _contained_many(self, hashes: NDArray[np.uint64], mask: NDArray[np.uint8]) -> NDArray[np.bool_]:
        kernels = kernels_to_read("slices")
        different, place = np.unique(hashes, return_inverse=True)
        self._check_rows_of(different)
        may_match = np.zeros(len(different), np.bool_)
        for rows, (begin, end), inside in self._by_body(different):
            kernels.find_live_zone(rows, inside, live=mask, out=may_match[begin:end])
        return may_match[place]

    # --- back to filters ----------------------------------------------------------------------------------------------

    @property
    def num_blocks(self) -> NDArray[np.int64]:
        """Blocks of each zone's filter: one number."""
        return np.full(len(self), self.layout.num_blocks, np.int64)

    def blocks(self, zone: int) -> NDArray[np.uint32]:
        """The filter of zone number `zone`, shape `(num_blocks, 8)`.

        Raises
        ------
        CorruptIndexError
            A row of the group is damaged.
        """
        first = zone // _WINDOW * _WINDOW
        window = self._window
        if window[0] != first:
            self._check_blocks(self.layout.num_blocks)
            count = min(_WINDOW, len(self) - first)
            window = self._window = (first, self._filters(first, count, 0, self.layout.num_blocks))
        blocks: NDArray[np.uint32] = window[1][zone - first]
        return blocks

    def copy_blocks(self, out: NDArray[np.uint32], first_zone: int, first_block: int) -> None:
        """Copy blocks `first_block` and on of the filters of consecutive zones to `out`; `verify` comes first."""
        num_zones, num_blocks, _ = out.shape
        skipped = first_zone % 8
        stop_block = first_block + num_blocks
        out[:] = self._filters(first_zone - skipped, skipped + num_zones, first_block, stop_block)[skipped:]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The zones as record batches of a zone table, at most 1024 zones and about 32 MiB each.

        Raises
        ------
        CorruptIndexError
            A row is damaged.
        """
        self._check_blocks(self.layout.num_blocks)
        zone_bytes = self.layout.num_blocks * 4 * WORDS_PER_BLOCK
        step = max(8, min(_ZONES_PER_BATCH, _BATCH_BYTES // zone_bytes // 8 * 8))
        for first in range(0, len(self), step):
            count = min(step, len(self) - first)
            filters = self._filters(first, count, 0, self.layout.num_blocks)
            offsets = np.arange(count + 1, dtype=np.int32) * np.int32(zone_bytes)
            yield self.positions[first : first + count].to_batch(offsets, filters, self.schema)

    def zone_fpp(self, zone: int) -> float:
        """The false positive probability of a zone's filter, from the bits of its first blocks; 1 if damaged."""
        num_blocks = min(self.layout.num_blocks, 1 if self._store.is_remote else _SAMPLED_BLOCKS)
        blocks = self._sealed.sound(lambda: self._first_blocks(zone, num_blocks))
        if blocks is None:
            return 1.0
        return float(measured_fpp(blocks[None])[0])

    def _first_blocks(self, zone: int, num_blocks: int) -> NDArray[np.uint32]:
        self._check_blocks(num_blocks)
        first = zone // 8 * 8
        filters = self._filters(first, min(8, len(self) - first), 0, num_blocks)
        blocks: NDArray[np.uint32] = filters[zone - first]
        return blocks


def _zones_in(words: NDArray[np.uint64]) -> NDArray[np.intp]:
    """The zones whose bits are set: bit 0 of the first word is zone 0. Most words are 0."""
    filled = words.nonzero()[0]
    if not len(filled):
        return filled
    bits = np.unpackbits(words[filled].view(np.uint8), bitorder="little").nonzero()[0]
    numbers: NDArray[np.intp] = (filled[bits >> 6] << 6) + (bits & 63)
    return numbers
