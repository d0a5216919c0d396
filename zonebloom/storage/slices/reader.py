"""Slice segment: a group of zones as bit rows; a probe of one key reads 8 rows, for all zones of the group.

All filters of a group have the same number of blocks, and a key selects the same 8 bits of each. A probe of few keys
reads these rows by position, verifies the checksum of each row, and ANDs them. Many keys are probed by a kernel over
the memory-mapped file. Once a row was found damaged, every zone of the group is MAY_MATCH, and `damage` has the
message.

`SliceRows` is the opened file; `unsliced` gives filters back; `SliceSegment` probes.

Spec: specs/slices.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa

from zonebloom.bloom.numba_loading import kernels_to_read
from zonebloom.bloom.split_block import block_indexes, measured_fpp
from zonebloom.bloom.zones import CANNOT_MATCH, MAY_MATCH, BlockFilters, ZonePositions, ZonesOfEach
from zonebloom.errors import CorruptIndexError, StorageError
from zonebloom.ground.arrow import distinct
from zonebloom.storage.sealed_rows import CHECKSUM_BYTES
from zonebloom.storage.segment import SegmentEntry
from zonebloom.storage.slices.filters import unsliced, zone_batches
from zonebloom.storage.slices.layout import WORDS_PER_BLOCK, GroupLayout
from zonebloom.storage.slices.rows import SliceRows
from zonebloom.stores.store import Store

if TYPE_CHECKING:
    from numpy.typing import NDArray

FEW_HASHES = 256
"""Most hashes that are probed by positioned reads and NumPy, which is faster than starting Numba."""
_WINDOW = 64
"""Zones whose filters are made at once: filters are mostly read in order."""
_SAMPLED_BLOCKS = 16
_Answer = TypeVar("_Answer")


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
        self._rows = SliceRows(store, entry)
        self.layout: GroupLayout = self._rows.layout
        """Positions of the bit rows in the file."""
        self._damage: tuple[str, ...] = ()
        self._window: tuple[int, NDArray[np.uint32]] = (-1, np.zeros((0, 1, WORDS_PER_BLOCK), np.uint32))
        """The number of the first of 64 zones, and their filters: the last ones that were read."""

    def __len__(self) -> int:
        return self.layout.num_zones

    @property
    def schema(self) -> pa.Schema:
        """Schema of the zone table that the segment holds."""
        return self._rows.schema

    @property
    def positions(self) -> ZonePositions:
        """Positions of the zones in the data."""
        return self._rows.positions

    @property
    def damage(self) -> tuple[str, ...]:
        """The first damage that was found."""
        return self._damage

    def verify(self) -> bool:
        """Whether every byte is as it was written; damage is noted."""
        self._sound(self._rows.check_file)
        return not self._damage

    def release(self) -> None:
        """Unmap the pages that were read; they are mapped again by the next read."""
        self._rows.sealed.release()

    def _sound(self, read: Callable[[], _Answer]) -> _Answer | None:
        """The result of `read`; None if a row is damaged, now or before.

        An error of a remote store is raised: it is no damage of the segment.
        """
        if not self._damage:
            try:
                return read()
            except (CorruptIndexError, StorageError, FileNotFoundError) as error:
                if isinstance(error, StorageError) and self._rows.is_remote:
                    raise
                is_missing = isinstance(error, FileNotFoundError)
                self._damage = (
                    f"segment {self.entry.path} must exist, got no such file" if is_missing else str(error),
                )
        return None

    # --- probing ------------------------------------------------------------------------------------------------------

    def may_contain(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """For each zone, whether it MAY_MATCH any of `hashes`.

        Cost: 8 rows of at most 4096 bytes for each hash. Spec: specs/slices.md#probe
        """
        if not len(hashes) or not len(self):
            return np.full(len(self), CANNOT_MATCH)
        bits = self._sound(lambda: self._few(hashes) if len(hashes) <= FEW_HASHES else self._many(hashes))
        if bits is None:
            return np.full(len(self), MAY_MATCH)
        return np.unpackbits(bits.view(np.uint8), count=len(self), bitorder="little").view(np.bool_)

    def candidates(self, hashes: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Numbers of the zones that MAY_MATCH any of `hashes`, ascending: `may_contain`, faster for few hashes."""
        if not 0 < len(hashes) <= FEW_HASHES:
            return np.flatnonzero(self.may_contain(hashes))
        words = self._sound(lambda: self._few(hashes))
        if words is None:
            return np.arange(len(self))
        filled = words.nonzero()[0]
        if not len(filled):
            return filled
        bits = np.unpackbits(words[filled].view(np.uint8), bitorder="little").nonzero()[0]
        numbers: NDArray[np.intp] = (filled[bits >> 6] << 6) + (bits & 63)
        return numbers[numbers < len(self)]

    def contained(self, hashes: NDArray[np.uint64], live: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
        """For each of `hashes`, whether any zone (in the mask `live`) MAY_MATCH it; False is certain."""
        if not len(hashes) or not len(self) or (live is not None and not live.any()):
            return np.full(len(hashes), CANNOT_MATCH)
        may_match = self._sound(lambda: self._contained(hashes, live))
        return np.full(len(hashes), MAY_MATCH) if may_match is None else may_match

    def zones_of_each(self, hashes: NDArray[np.uint64]) -> ZonesOfEach:
        """For each of `hashes` the zones that MAY_MATCH it.

        Cost: 8 rows of at most 4096 bytes for each hash.
        """
        pairs = self._sound(lambda: self._each(hashes)) if len(hashes) > FEW_HASHES else None
        return super().zones_of_each(hashes) if pairs is None else pairs

    def _each(self, hashes: NDArray[np.uint64]) -> ZonesOfEach:
        kernels = kernels_to_read("slices")
        order = np.argsort(hashes)
        self._rows.check_rows_of(hashes[order])
        keys, zones = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        words = np.zeros(-(-len(self) // 64), np.uint64)
        bits = words.view(np.uint8)[: -(-len(self) // 8)]
        for rows, (begin, end), inside in self._by_body(hashes[order]):
            for key in range(end - begin):
                kernels.probe_rows(rows, inside[key : key + 1], num_zones=len(self), out=bits)
                filled = words.nonzero()[0]
                if not len(filled):
                    continue
                places = np.unpackbits(words[filled].view(np.uint8), bitorder="little").nonzero()[0]
                zones.append((filled[places >> 6] << 6) + (places & 63))
                keys.append(np.full(len(places), order[begin + key]))
                words[filled] = 0
        return np.concatenate(keys), np.concatenate(zones)

    def _few(self, hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Bits of the zones that may hold any of `hashes`, as words; bits past the last zone are 0."""
        matching_any: NDArray[np.uint64] | None = None
        for rows in self._rows.read(hashes):
            matching = np.bitwise_and.reduce(rows, axis=0)
            matching_any = matching if matching_any is None else matching_any | matching
        assert matching_any is not None
        return matching_any

    def _many(self, hashes: NDArray[np.uint64]) -> NDArray[np.uint8]:
        kernels = kernels_to_read("slices")
        bits = np.zeros(-(-len(self) // 8), np.uint8)
        hashes = distinct(hashes)
        self._rows.check_rows_of(hashes)
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
        for rows, (first, stop) in zip(self._rows.sealed.bodies, self.layout.bodies(), strict=True):
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
        for number, rows in zip(order.tolist(), self._rows.read(hashes[order]), strict=True):
            may_match[number] = bool((np.bitwise_and.reduce(rows, axis=0) & words).any())
        return may_match

    def _contained_many(self, hashes: NDArray[np.uint64], mask: NDArray[np.uint8]) -> NDArray[np.bool_]:
        kernels = kernels_to_read("slices")
        different, place = np.unique(hashes, return_inverse=True)
        self._rows.check_rows_of(different)
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
            self._rows.check_all()
            count = min(_WINDOW, len(self) - first)
            window = self._window = (first, unsliced(self._rows, first, count, 0, self.layout.num_blocks))
        blocks: NDArray[np.uint32] = window[1][zone - first]
        return blocks

    def copy_blocks(self, out: NDArray[np.uint32], first_zone: int, first_block: int) -> None:
        """Copy blocks `first_block` and on of the filters of consecutive zones to `out`; `verify` comes first."""
        num_zones, num_blocks, _ = out.shape
        skipped = first_zone % 8
        stop_block = first_block + num_blocks
        out[:] = unsliced(self._rows, first_zone - skipped, skipped + num_zones, first_block, stop_block)[skipped:]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The zones as record batches of a zone table; see `zone_batches`."""
        return zone_batches(self._rows)

    def zone_fpp(self, zone: int) -> float:
        """The false positive probability of a zone's filter, from the bits of its first blocks; 1 if damaged."""
        num_blocks = min(self.layout.num_blocks, 1 if self._rows.is_remote else _SAMPLED_BLOCKS)
        blocks = self._sound(lambda: self._first_blocks(zone, num_blocks))
        if blocks is None:
            return 1.0
        return float(measured_fpp(blocks[None])[0])

    def _first_blocks(self, zone: int, num_blocks: int) -> NDArray[np.uint32]:
        self._rows.check_blocks(num_blocks)
        first = zone // 8 * 8
        filters = unsliced(self._rows, first, min(8, len(self) - first), 0, num_blocks)
        blocks: NDArray[np.uint32] = filters[zone - first]
        return blocks
