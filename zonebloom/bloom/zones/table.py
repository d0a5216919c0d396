"""`ZoneTable`: one filter for each zone of a column, and the zone's rows.

- A **zone** is `rows_per_zone` consecutive rows of one fragment; the last zone of a fragment may be shorter. A zone is
  never in two fragments, and does not depend on the batches of the rows.
- A **zone table** is the five columns `(fragment_id, zone_start, zone_length, has_null, bloom_filter_data)`, one row a
  zone, in order of fragment and start: the schema, the bytes and the metadata of Lance's bloom filter index.

Spec: specs/zones.md#zone-table
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa

from zonebloom.bloom.sizing import BLOCK_BYTES
from zonebloom.bloom.split_block import masks
from zonebloom.bloom.zones.chunk import FilterChunk, is_work_for_kernel
from zonebloom.bloom.zones.filters import BlockFilters, ZonesOfEach
from zonebloom.bloom.zones.positions import ZonePositions
from zonebloom.bloom.zones.schema import ZONE_FIELDS, described_by, parameters_of, zone_schema
from zonebloom.ground.errors import InvalidArgumentError, InvalidZoneTableError

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_ZONES_PER_BATCH = 1024
MAX_MERGED_BYTES = 4 << 20
_NO_ZONES = np.zeros(0, np.bool_)


class ZoneTable(BlockFilters):
    """One filter for each zone of a column, and the zone's rows; immutable.

    - Rows are in order of `(fragment_id, zone_start)`; zones of one fragment do not overlap.
    - Every bitset is a positive multiple of 32 bytes.

    `zonebloom.ZoneTable` adds searches by predicates.
    """

    column: str | None
    column_type: pa.DataType | None
    rows_per_zone: int
    fpp: float

    def __init__(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
        self._batches = [batch for batch in batches if batch.num_rows]
        self._schema = schema
        self.column, self.column_type = described_by(schema.field("bloom_filter_data"))
        self.rows_per_zone, self.fpp = parameters_of(schema)
        self._positions = ZonePositions.from_batches(self._batches)
        self._chunks: list[FilterChunk] = [FilterChunk(batch.column(4)) for batch in self._batches]
        self._firsts = [0, *accumulate(map(len, self._chunks))]

    @classmethod
    def from_arrow(
        cls, table: pa.Table | pa.RecordBatch, *, column: str | None = None, column_type: pa.DataType | None = None
    ) -> Self:
        """`table` as a checked zone table; its rows may be in any order.

        Parameters
        ----------
        table
            The five columns of the Lance schema; others are ignored. `large_binary` and chunks are accepted.
        column, column_type
            Name and type of the column, if the metadata of the table does not have them. Without a type, a literal is
            probed in each of Lance's types.

        Raises
        ------
        InvalidZoneTableError
            A column is missing or has another type or a null, a bitset is empty or no multiple of 32 bytes, a zone is
            empty, or zones overlap.

        Spec: specs/zones.md#zone-table
        """
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        if not isinstance(table, pa.Table):
            raise InvalidArgumentError("a zone table must be a pyarrow Table", got=type(table).__name__)
        arrays = [_checked_column(table, field) for field in ZONE_FIELDS]
        own_column, own_type = described_by(table.schema.field("bloom_filter_data"))
        rows_per_zone, fpp = parameters_of(table.schema)
        schema = zone_schema(rows_per_zone, fpp, column=column or own_column, column_type=column_type or own_type)
        joined = pa.table(arrays, schema=schema)
        zones = cls(_merged(_in_order(joined).to_batches(max_chunksize=MAX_ZONES_PER_BATCH)), schema)
        zones.positions.check()
        zones.positions.check_disjoint()
        return zones

    @property
    def positions(self) -> ZonePositions:
        """The rows of the zones."""
        return self._positions

    def __repr__(self) -> str:
        name = self.column or "?"
        return f"ZoneTable({name}: {self.column_type or 'type unknown'}, {len(self)} zones, {self.filter_bytes} bytes)"

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema: five columns, Lance's metadata."""
        return self._schema

    @property
    def filter_bytes(self) -> int:
        """Bytes of all filters together."""
        return sum(int(chunk.num_blocks.sum()) * BLOCK_BYTES for chunk in self._chunks)

    def blocks(self, zone: int) -> NDArray[np.uint32]:
        """The filter of zone number `zone`, shape `(num_blocks, 8)`, read-only."""
        chunk, number = self._chunk_of(zone)
        return chunk.blocks(number)

    def _chunk_of(self, zone: int) -> tuple[FilterChunk, int]:
        if not 0 <= zone < len(self):
            raise InvalidArgumentError(f"zone must be in [0, {len(self)})", got=zone)
        number = bisect_right(self._firsts, zone) - 1
        return self._chunks[number], zone - self._firsts[number]

    @property
    def num_blocks(self) -> NDArray[np.int64]:
        """Blocks of each zone's filter, shape `(len(self),)`."""
        return np.concatenate([np.zeros(0, np.int64), *(chunk.num_blocks for chunk in self._chunks)])

    def copy_blocks(self, out: NDArray[np.uint32], first_zone: int, first_block: int) -> None:
        """Copy blocks `first_block` and on of the filters of consecutive zones, which have one size, to `out`."""
        done = 0
        while done < len(out):
            chunk, number = self._chunk_of(first_zone + done)
            count = min(len(out) - done, len(chunk) - number)
            chunk.copy_blocks(out[done : done + count], number, first_block)
            done += count

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The record batches of the table, at most 1024 zones each."""
        yield from self._batches

    def candidates(self, hashes: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Numbers of the zones that MAY_MATCH any of `hashes`, ascending; see `may_contain`."""
        return self.may_contain(hashes).nonzero()[0]

    def may_contain(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """For each zone, whether it MAY_MATCH any of `hashes`, uint64, XXH64 seed 0.

        Cost: one block (32 bytes) for each zone and hash; 70 ns without Numba, which is loaded once it is worth it.
        """
        if is_work_for_kernel(len(self) * len(hashes)):
            return np.concatenate([chunk.may_contain_any(hashes) for chunk in self._chunks])
        may_match = np.zeros(len(self), np.bool_)
        for value, mask in zip(hashes.tolist(), masks(hashes), strict=True):
            may_match |= np.concatenate([_NO_ZONES, *(chunk.may_contain(value, mask) for chunk in self._chunks)])
        return may_match

    def contained(self, hashes: NDArray[np.uint64], live: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
        """For each of `hashes`, whether any of the zones (those in the mask `live`) may contain it.

        Cost: 32 bytes for each hash and zone until the first that may contain it.
        """
        may_match = np.zeros(len(hashes), np.bool_)
        pending = np.arange(len(hashes))
        for first, chunk in zip(self._firsts, self._chunks, strict=False):  # which ends with the number of zones
            is_hit = chunk.contained(hashes[pending], None if live is None else live[first : first + len(chunk)])
            may_match[pending[is_hit]] = True
            pending = pending[~is_hit]
        return may_match

    def zones_of_each(self, hashes: NDArray[np.uint64]) -> ZonesOfEach:
        """For each of `hashes` the zones that MAY_MATCH it.

        Cost: 32 bytes for each hash and zone.
        """
        if not is_work_for_kernel(len(self) * len(hashes)):
            return super().zones_of_each(hashes)
        keys_by_zone = [self.check_zone(zone, hashes).nonzero()[0] for zone in range(len(self))]
        zones = np.repeat(np.arange(len(keys_by_zone)), [len(keys) for keys in keys_by_zone])
        return np.concatenate([np.zeros(0, np.int64), *keys_by_zone]), zones

    def measured_fpp(self) -> NDArray[np.float64]:
        """The exact false positive probability of each zone's filter, shape `(len(self),)`."""
        parts = [chunk.measured_fpp() for chunk in self._chunks]
        return np.concatenate(parts) if parts else np.zeros(0)


def _checked_column(table: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    position = table.schema.get_field_index(field.name)
    if position < 0:
        raise InvalidZoneTableError(
            f"a zone table must have the column {field.name} {field.type}", got=", ".join(table.column_names)
        )
    column = table.column(position)
    binary = pa.types.is_binary(field.type) and column.type in (pa.binary(), pa.large_binary(), pa.binary_view())
    if column.type != field.type and not binary:
        raise InvalidZoneTableError(f"column {field.name} must be {field.type}", got=column.type)
    if column.null_count:
        raise InvalidZoneTableError(f"column {field.name} must not hold nulls", got=column.null_count)
    if column.type == field.type:
        return column
    parts = [
        chunk.slice(first, MAX_ZONES_PER_BATCH).cast(field.type)
        for chunk in column.chunks
        for first in range(0, len(chunk), MAX_ZONES_PER_BATCH)
    ]
    return pa.chunked_array(parts, field.type)


def _in_order(table: pa.Table) -> pa.Table:
    """`table` in order of fragment and start; runs in order are not copied, since `take` overflows at 2 GiB."""
    order = np.lexsort((table["zone_start"].to_numpy(), table["fragment_id"].to_numpy()))
    cuts = np.flatnonzero(np.diff(order) != 1) + 1
    if not len(cuts):
        return table
    return pa.concat_tables([table.slice(int(run[0]), len(run)) for run in np.split(order, cuts)])


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)  # which copies


def _merged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Small neighbouring batches as one, so that shuffled rows do not become one batch each."""
    held: list[pa.RecordBatch] = []
    rows = num_bytes = 0
    for batch in batches:
        if held and (rows + batch.num_rows > MAX_ZONES_PER_BATCH or num_bytes + batch.nbytes > MAX_MERGED_BYTES):
            yield _joined(held)
            held, rows, num_bytes = [], 0, 0
        held.append(batch)
        rows += batch.num_rows
        num_bytes += batch.nbytes
    if held:
        yield _joined(held)
