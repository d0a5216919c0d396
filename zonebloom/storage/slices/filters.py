"""Slices back to filters: the zones of a slice segment as they were before, bit for bit.

Spec: specs/slices.md#unslice_zones
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from zonebloom.bloom.zones import ZoneTable
from zonebloom.errors import CorruptIndexError, StorageError
from zonebloom.storage.slices.layout import ROWS_PER_BLOCK, WORDS_PER_BLOCK
from zonebloom.storage.slices.rows import SliceRows

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["SliceFilters"]

_WINDOW = 64
_SAMPLED_BLOCKS = 16
_ZONES_PER_BATCH = 1024
_BATCH_BYTES = 32 << 20


class SliceFilters(SliceRows):
    """A slice segment as filters again, of single zones and of all."""

    _window: tuple[int, NDArray[np.uint32]] = (-1, np.zeros((0, 1, WORDS_PER_BLOCK), np.uint32))
    """The first of some zones, and their filters: those that were asked for last."""

    def filters(self, first_zone: int, num_zones: int, first_block: int, stop_block: int) -> NDArray[np.uint32]:
        """Blocks `[first_block, stop_block)` of the filters of consecutive zones, shape `(num_zones, blocks, 8)`.

        The rows must have been checked. `first_zone` is a multiple of 8.
        """
        from zonebloom.bloom.kernels import slices as kernels  # noqa: PLC0415 - keeps Numba out of plain searches

        found = np.empty((num_zones, stop_block - first_block, WORDS_PER_BLOCK), np.uint32)
        for rows, (first, stop) in zip(self._bodies, self.layout.bodies(), strict=True):
            begin, end = max(first, first_block), min(stop, stop_block)
            if begin >= end:
                continue
            part = rows[(begin - first) * ROWS_PER_BLOCK : (end - first) * ROWS_PER_BLOCK]
            out = found if end - begin == found.shape[1] else np.empty((num_zones, end - begin, 8), np.uint32)
            kernels.unslice_zones(part, out, first_zone)
            if out is not found:
                found[:, begin - first_block : end - first_block] = out
        return found

    def blocks(self, zone: int) -> NDArray[np.uint32]:
        """The filter of zone number `zone`, shape `(num_blocks, 8)`.

        Raises
        ------
        CorruptIndexError
            A row of the group is damaged.
        """
        first = zone // _WINDOW * _WINDOW
        if self._window[0] != first:
            self.check_all()
            count = min(_WINDOW, len(self) - first)
            self._window = (first, self.filters(first, count, 0, self.layout.num_blocks))
        found: NDArray[np.uint32] = self._window[1][zone - first]
        return found

    def check_zone(self, zone: int, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """For each of `hashes`, whether the filter of zone number `zone` may contain it."""
        from zonebloom.bloom.kernels import sbbf as kernels  # noqa: PLC0415 - keeps Numba out of plain searches

        return kernels.filter_check(self.blocks(zone), hashes)

    def zone_fpp(self, zone: int) -> float:
        """The false positive probability of a zone's filter, from the bits of its first blocks; 1 where damaged."""
        num_blocks = min(self.layout.num_blocks, 1 if self._store.is_remote else _SAMPLED_BLOCKS)
        if self.damage is None:
            try:
                self._check_rows(np.flatnonzero(~self._is_trusted[: num_blocks * ROWS_PER_BLOCK]))
            except (CorruptIndexError, StorageError, FileNotFoundError) as error:
                self._note(error)
        if self.damage is not None:
            return 1.0
        first = zone // 8 * 8
        filters = self.filters(first, min(8, len(self) - first), 0, num_blocks)
        ones = np.bitwise_count(filters[zone - first]).astype(np.float64)
        return float((ones / 32).prod(axis=1).mean())

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The zones as record batches of a zone table, at most 1024 zones and about 32 MiB each.

        Raises
        ------
        CorruptIndexError
            A row is damaged.
        """
        self.check_all()
        zone_bytes = self.layout.num_blocks * 4 * WORDS_PER_BLOCK
        step = max(8, min(_ZONES_PER_BATCH, _BATCH_BYTES // zone_bytes // 8 * 8))
        for first in range(0, len(self), step):
            count = min(step, len(self) - first)
            filters = self.filters(first, count, 0, self.layout.num_blocks)
            offsets = np.arange(count + 1, dtype=np.int32) * np.int32(zone_bytes)
            data = [None, pa.py_buffer(offsets), pa.py_buffer(filters)]
            columns = self.positions[first : first + count].to_arrays()
            bitsets = pa.Array.from_buffers(pa.binary(), count, data)
            yield pa.RecordBatch.from_arrays([*columns, bitsets], schema=self.schema)

    def to_arrow(self) -> pa.Table:
        """The five columns as an Arrow table; see `batches`."""
        return pa.Table.from_batches(self.batches(), self.schema)

    def zones(self) -> ZoneTable:
        """The zones as a table: the filters that were sliced, bit for bit."""
        return ZoneTable(self.batches(), self.schema)
