"""`ZoneBuilder`: the batches of a column become zones.

The zones of a fragment do not depend on the batches of its rows: the builder holds the open zone, and a kernel
continues to fill it where the last batch ended.

Spec: specs/zones.md#zone-builder
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from zonebloom.bloom import hashing
from zonebloom.bloom.addresses import MAX_FRAGMENT_ID
from zonebloom.bloom.sizing import (
    BLOCK_BYTES,
    FPP,
    ROWS_PER_ZONE,
    Sizing,
    check_fpp,
    check_rows_per_zone,
    num_blocks_for,
)
from zonebloom.bloom.zones.positions import ZonePositions
from zonebloom.bloom.zones.schema import zone_schema
from zonebloom.bloom.zones.table import MAX_ZONES_PER_BATCH, ZoneTable
from zonebloom.ground.arrow import unwrapped
from zonebloom.ground.errors import InvalidArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_BATCH_BYTES = 4 << 20


class ZoneBuilder:
    """Turns the batches of a column into zones; parameters as of `zonebloom.ZoneBuilder`.

    The zones do not depend on batch boundaries: feeding the same rows in any cut gives the same bytes.

    Spec: specs/zones.md#zone-builder
    """

    def __init__(
        self,
        column_type: pa.DataType,
        *,
        column: str | None = None,
        rows_per_zone: int = ROWS_PER_ZONE,
        fpp: float = FPP,
        sizing: Sizing = "power_of_two",
        sink: Callable[[pa.RecordBatch], None] | None = None,
    ) -> None:
        check_rows_per_zone(rows_per_zone)
        check_fpp(fpp)
        hashing.hash_plan(column_type)
        self._type = column_type
        self._schema = zone_schema(rows_per_zone, fpp, column=column, column_type=column_type)
        self._rows_per_zone = rows_per_zone
        self._kept: list[pa.RecordBatch] = []
        self._sink = sink
        self._positions: list[tuple[int | None, int, int]] = []
        self._filters: _EqualFilters | _AdaptiveFilters
        if sizing == "adaptive":
            self._filters = _AdaptiveFilters(rows_per_zone, fpp)
        else:
            num_blocks = num_blocks_for(rows_per_zone, fpp, sizing)
            self._filters = _EqualFilters(rows_per_zone, num_blocks, reuse_memory=sink is not None)
        self._fragment_id: int | None = None
        self._zone_start = 0
        self._fill = 0

    @property
    def schema(self) -> pa.Schema:
        """Schema of the record batches that the sink receives."""
        return self._schema

    def start_fragment(self, fragment_id: int, *, first_row: int = 0) -> None:
        """Close the open zone and go on at row `first_row` of `fragment_id`, which must begin a zone."""
        if first_row % self._rows_per_zone:
            raise InvalidArgumentError(
                f"first_row must be a multiple of rows_per_zone {self._rows_per_zone}", got=first_row
            )
        if not 0 <= fragment_id <= MAX_FRAGMENT_ID:
            raise InvalidArgumentError(f"fragment_id must be from 0 to {MAX_FRAGMENT_ID}", got=fragment_id)
        self._end_zone()
        self._fragment_id = fragment_id
        self._zone_start = first_row

    def add(self, fragment_id: int, values: pa.Array | pa.ChunkedArray) -> None:
        """The next rows of `fragment_id`; another id than before begins a new fragment at its row 0."""
        if fragment_id != self._fragment_id:
            self.start_fragment(fragment_id)
        for chunk in values.chunks if isinstance(values, pa.ChunkedArray) else [values]:
            if unwrapped(chunk.type) != unwrapped(self._type):
                raise InvalidArgumentError(f"values must be {self._type}", got=chunk.type, do="cast them first")
            self._add_array(chunk)

    def _add_array(self, array: pa.Array) -> None:
        done = 0
        while done < len(array):
            room = (self._filters.capacity - len(self._positions)) * self._rows_per_zone - self._fill
            rows = min(len(array) - done, room)
            self._filters.insert(array.slice(done, rows), len(self._positions), self._fill)
            done += rows
            self._fill += rows
            while self._fill >= self._rows_per_zone:
                self._positions.append((self._fragment_id, self._zone_start, self._rows_per_zone))
                self._zone_start += self._rows_per_zone
                self._fill -= self._rows_per_zone
            if len(self._positions) == self._filters.capacity:
                self._flush()

    def _end_zone(self) -> None:
        if self._fill:
            self._filters.end_zone()
            self._positions.append((self._fragment_id, self._zone_start, self._fill))
            self._fill = 0
        if len(self._positions) == self._filters.capacity:
            self._flush()

    def _flush(self) -> None:
        if not self._positions:
            return
        positions = np.array(self._positions, dtype=np.uint64)
        valid_counts, offsets, bitsets = self._filters.take(len(positions))
        ids, starts, lengths = positions.T
        zones = ZonePositions(ids, starts, lengths, valid_counts < lengths)
        batch = zones.to_batch(offsets, bitsets, self._schema)
        self._positions.clear()
        if self._sink is None:
            self._kept.append(batch)
        else:
            self._sink(batch)

    def close(self) -> None:
        """Close the open zone and hand all that is left to the sink."""
        self._end_zone()
        self._flush()

    def finish(self) -> ZoneTable:
        """The zones of all rows that were added.

        Raises
        ------
        InvalidArgumentError
            The builder has a sink, which holds the zones already.
        """
        if self._sink is not None:
            raise InvalidArgumentError(
                "finish() needs a builder without a sink", got="one with a sink", do="use close()"
            )
        self.close()
        return ZoneTable(self._kept, self._schema)


_KEYS_OF: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "fixed": hashing.fixed_buffers,
    "variable": hashing.variable_buffers,
    "dictionary": hashing.dictionary_hashes,
}
_Taken: TypeAlias = "tuple[NDArray[np.uint64], NDArray[np.int32], NDArray[Any]]"


class _EqualFilters:
    """Filters of one size, filled by the fused kernels from Arrow's buffers, until `capacity` zones are flushed."""

    def __init__(self, rows_per_zone: int, num_blocks: int, *, reuse_memory: bool) -> None:
        zone_bytes = num_blocks * BLOCK_BYTES
        self.capacity = max(1, min(MAX_ZONES_PER_BATCH, MAX_BATCH_BYTES // zone_bytes))
        self._rows_per_zone = rows_per_zone
        self._num_blocks = num_blocks
        self._reuse_memory = reuse_memory
        self._allocate()

    def _allocate(self) -> None:
        self._filters = np.empty((self.capacity, self._num_blocks, 8), np.uint32)
        self._valid_counts = np.zeros(self.capacity, np.uint64)

    def insert(self, array: pa.Array, zone: int, fill: int) -> None:
        """Insert rows; the first one is row `fill` of `zone`."""
        _insert(self._filters[zone:], self._valid_counts[zone:], array, self._rows_per_zone, fill)

    def end_zone(self) -> None:
        """The open zone ends short: nothing to do, as it has the same size."""

    def take(self, num_zones: int) -> _Taken:
        """Valid values of each zone, and the bitsets with their offsets; the next zone is zone 0."""
        offsets = np.arange(num_zones + 1, dtype=np.int32) * np.int32(self._num_blocks * BLOCK_BYTES)
        filters, valid_counts = self._filters, self._valid_counts
        if self._reuse_memory:
            valid_counts = valid_counts.copy()
        else:
            self._allocate()
        return valid_counts[:num_zones], offsets, filters[:num_zones]


class _AdaptiveFilters:
    """Filters sized by the distinct values of each zone, made of the zone's hashes when the zone ends."""

    def __init__(self, rows_per_zone: int, fpp: float) -> None:
        largest = num_blocks_for(rows_per_zone, fpp, "exact") * BLOCK_BYTES
        self.capacity = max(1, min(MAX_ZONES_PER_BATCH, 64 * MAX_BATCH_BYTES // largest))
        self._rows_per_zone = rows_per_zone
        self._fpp = fpp
        self._open: list[NDArray[np.uint64]] = []
        self._num_open_rows = 0
        self._bitsets: list[NDArray[np.uint8]] = []
        self._valid_counts: list[int] = []

    def insert(self, array: pa.Array, zone: int, fill: int) -> None:  # noqa: ARG002 - the open zone is known
        done = 0
        while done < len(array):
            rows = min(len(array) - done, self._rows_per_zone - self._num_open_rows)
            self._open.append(hashing.hash_array(array.slice(done, rows)))
            self._num_open_rows += rows
            done += rows
            if self._num_open_rows == self._rows_per_zone:
                self.end_zone()

    def end_zone(self) -> None:
        from zonebloom.bloom.kernels import sbbf as kernels  # noqa: PLC0415 - Numba is loaded by the first zone, not by import

        hashes = np.concatenate(self._open)
        blocks = np.zeros((num_blocks_for(kernels.count_distinct(hashes), self._fpp, "adaptive"), 8), np.uint32)
        kernels.filter_insert(blocks, hashes)
        self._bitsets.append(blocks.view(np.uint8).reshape(-1))
        self._valid_counts.append(len(hashes))
        self._open.clear()
        self._num_open_rows = 0

    def take(self, num_zones: int) -> _Taken:
        assert len(self._bitsets) == num_zones
        offsets = np.zeros(num_zones + 1, np.int32)
        np.cumsum([len(bitset) for bitset in self._bitsets], out=offsets[1:])
        data = np.concatenate(self._bitsets)
        valid_counts = np.array(self._valid_counts, np.uint64)
        self._bitsets.clear()
        self._valid_counts.clear()
        return valid_counts, offsets, data


def _insert(
    filters: NDArray[np.uint32], valid_counts: NDArray[np.uint64], array: pa.Array, rows_per_zone: int, first_fill: int
) -> None:
    from zonebloom.bloom.kernels import zones as kernels  # noqa: PLC0415 - Numba is loaded by the first rows, not by import

    layout = hashing.hash_plan(array.type).layout
    array = hashing.stored_array(array)  # views are copied here, once
    validity, validity_offset = hashing.validity_of(array)
    kernels.insert_into_zones(
        layout,
        filters,
        valid_counts,
        _KEYS_OF[layout](array),
        validity=validity,
        validity_offset=validity_offset,
        num_rows=len(array),
        rows_per_zone=rows_per_zone,
        first_fill=first_fill,
    )
