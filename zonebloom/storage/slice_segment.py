"""Slice segment: a group of zones as bit rows; a key reads 8 rows and has the answer for every zone of the group.

All filters of a group have the same number of blocks, and a key asks for the same 8 bits of each. A probe of a few keys
reads just those rows by position, checks each row's own checksum, and ANDs them; many keys go through a kernel over the
memory-mapped file. A damaged row makes the whole group MAY_MATCH, for good, and is told to whoever listens.

Spec: specs/slices.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import xxhash

from zonebloom.arrays import from_numpy
from zonebloom.errors import CorruptIndexError, StorageError
from zonebloom.storage.segment import SegmentEntry, checksum
from zonebloom.storage.slice_layout import (
    CHECKSUM_BYTES,
    KERNEL_STRIDE,
    ROWS_PER_BLOCK,
    SALTS,
    WORDS_PER_BLOCK,
    GroupLayout,
    ZonePositions,
    decode_layout,
    decode_positions,
    rows_of_hash,
)
from zonebloom.storage.store import SLOW_READ_SECONDS, Mapping, Store
from zonebloom.zones import ZoneTable, described_by, parameters_of, zone_schema

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FEW_HASHES", "SliceSegment"]

_MAGIC_BYTES = 8
FEW_HASHES = 256
"""Up to so many hashes positioned reads and NumPy are faster than what Numba takes to start."""
_WINDOW = 64
_FIRST_ROWS = 16
_SAMPLED_BLOCKS = 16
_ZONES_PER_BATCH = 1024
_BATCH_BYTES = 32 << 20


class SliceSegment:
    """An opened slice segment: `may_contain` is certain where it says False; nothing is believed that was not checked.

    - Rows are checked when they are first read. Once a row was found damaged, every zone of the group MAY_MATCH.
    """

    def __init__(self, store: Store, entry: SegmentEntry, *, on_damage: Callable[[str], object] | None = None) -> None:
        self.entry = entry
        self._store = store
        self._on_damage = on_damage
        self.damage: str | None = None
        try:
            head_bytes, tail_bytes = entry.spans[0].num_bytes, entry.spans[-1].num_bytes
            tail_start = entry.num_bytes - tail_bytes
            head, tail = store.read_ranges(entry.path, [(0, head_bytes), (tail_start, tail_bytes)])
            size = store.size(entry.path)  # a remote store knows it from the reads
            if size != entry.num_bytes:
                raise CorruptIndexError(f"segment {entry.path} must have {entry.num_bytes} bytes, got {size}")
        except FileNotFoundError as error:
            raise CorruptIndexError(f"segment {entry.path} must exist, got no such file") from error
        self._check_span(0, head)
        self._check_span(len(entry.spans) - 1, tail)
        try:
            self._schema = pa.ipc.read_schema(pa.py_buffer(head)[_MAGIC_BYTES:])
        except pa.ArrowException as error:
            raise CorruptIndexError(f"segment {entry.path} must be an Arrow IPC file, got {error}") from error
        self.layout: GroupLayout = decode_layout(self._schema, entry.path)
        self.layout.check(size, entry.path)
        self._window: tuple[int, NDArray[np.uint32]] = (-1, np.zeros((0, 1, 8), np.uint32))

    def _check_span(self, number: int, data: bytes) -> None:
        wanted, found = self.entry.spans[number].checksum, checksum(data)
        if found != wanted:
            raise CorruptIndexError(
                f"span {number} of segment {self.entry.path} must have checksum {wanted}, got {found}"
            )

    def __len__(self) -> int:
        return self.layout.num_zones

    @cached_property
    def schema(self) -> pa.Schema:
        """Schema of the zone table that the segment holds."""
        column, column_type = described_by(self._schema.field(0))
        return zone_schema(*parameters_of(self._schema), column=column, column_type=column_type)

    @cached_property
    def positions(self) -> ZonePositions:
        """Where the zones lie in the data."""
        return decode_positions(self._schema, len(self), self.entry.path)

    def read_positions(self) -> None:
        """Read where the zones lie, which is otherwise done when it is first asked for.

        Raises
        ------
        CorruptIndexError
            It cannot be parsed.
        """
        assert len(self.positions) == len(self)

    def verify(self) -> bool:
        """Whether every byte is as it was written; damage is noted."""
        try:
            self._check_headers()
            self.check_all()
        except (CorruptIndexError, StorageError, FileNotFoundError) as error:
            if self.damage is None:
                self._note(error)
        return self.damage is None

    def _check_headers(self) -> None:
        offset = 0
        for number, span in enumerate(self.entry.spans):
            if span.checksum:
                self._check_span(number, self._store.read_ranges(self.entry.path, [(offset, span.num_bytes)])[0])
            offset += span.num_bytes

    @property
    def fragment_ids(self) -> NDArray[np.uint64]:
        """The fragment of each zone."""
        return self.positions.fragment_ids

    @property
    def zone_starts(self) -> NDArray[np.uint64]:
        """Offset of the first row of each zone."""
        return self.positions.zone_starts

    @property
    def zone_lengths(self) -> NDArray[np.uint64]:
        """Rows of each zone."""
        return self.positions.zone_lengths

    @property
    def has_null(self) -> NDArray[np.bool_]:
        """Whether a row of each zone is null."""
        return self.positions.has_null

    # --- probing ------------------------------------------------------------------------------------------------------

    def may_contain(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """For each zone, whether any of `hashes` may be in it; False is certain.

        Cost: 8 rows of at most 4096 bytes for each hash. Spec: specs/slices.md#probe
        """
        if not len(hashes) or not len(self):
            return np.zeros(len(self), np.bool_)
        if self.damage is None:
            try:
                is_few = len(hashes) <= FEW_HASHES
                return self._unpacked(self._few(hashes).view(np.uint8) if is_few else self._many(hashes))
            except (CorruptIndexError, StorageError, FileNotFoundError) as error:
                self._note(error)
        return np.ones(len(self), np.bool_)

    def candidates(self, hashes: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Numbers of the zones that may hold any of `hashes`, ascending: `may_contain`, faster for few hashes."""
        if self.damage is not None or not 0 < len(hashes) <= FEW_HASHES:
            return np.flatnonzero(self.may_contain(hashes))
        try:
            words = self._few(hashes)
        except (CorruptIndexError, StorageError, FileNotFoundError) as error:
            self._note(error)
            return np.arange(len(self))
        filled = words.nonzero()[0]
        if not len(filled):
            return filled
        bits = np.unpackbits(words[filled].view(np.uint8), bitorder="little").nonzero()[0]
        found: NDArray[np.intp] = (filled[bits >> 6] << 6) + (bits & 63)
        return found[found < len(self)]

    def contained(self, hashes: NDArray[np.uint64], live: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
        """For each of `hashes`, whether any zone (in the mask `live`) may contain it; False is certain."""
        if not len(hashes) or not len(self) or (live is not None and not live.any()):
            return np.zeros(len(hashes), np.bool_)
        if self.damage is None:
            try:
                return self._contained(hashes, live)
            except (CorruptIndexError, StorageError, FileNotFoundError) as error:
                self._note(error)
        return np.ones(len(hashes), np.bool_)

    def _note(self, error: Exception) -> None:
        """Remember damage; a remote store that cannot be reached says nothing about the segment."""
        if isinstance(error, StorageError) and self._store.is_remote:
            raise error
        is_missing = isinstance(error, FileNotFoundError)
        self.damage = f"segment {self.entry.path} must exist, got no such file" if is_missing else str(error)
        if self._on_damage:
            self._on_damage(self.damage)

    def _unpacked(self, bits: NDArray[np.uint8]) -> NDArray[np.bool_]:
        return np.unpackbits(bits, count=len(self), bitorder="little").view(np.bool_)

    def _few(self, hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Bits of the zones that may hold any of `hashes`, as words; those past the last zone are 0."""
        found: NDArray[np.uint64] | None = None
        for rows in self._rows_of(hashes):
            matching = np.bitwise_and.reduce(rows, axis=0)
            found = matching if found is None else found | matching
        assert found is not None
        return found

    def _rows_of(self, hashes: NDArray[np.uint64]) -> Iterator[NDArray[np.uint64]]:
        """For each of few hashes the rows that it selects, as `_checked` has them; a remote store is asked once."""
        numbers = [rows_of_hash(value, self.layout.num_blocks) for value in hashes.tolist()]
        if not self._store.is_remote:
            for rows in numbers:
                yield self._checked(rows, self._store.read_ranges(self.entry.path, self._ranges_of(rows)))
            return
        ranges = [one for rows in numbers for one in self._ranges_of(rows)]
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
            raise CorruptIndexError(f"segment {self.entry.path} must have {self.entry.num_bytes} bytes, got fewer")
        words = np.frombuffer(data, np.dtype("<u8")).reshape(len(rows), stride // 8)
        digest = xxhash.xxh3_64_intdigest
        for row, blob, wanted in zip(rows, blobs, words[:, -1].tolist(), strict=True):
            if digest(blob[:-CHECKSUM_BYTES], row) != wanted:
                self._reject(row)
        return words[:, :-1]

    def _reject(self, row: int) -> None:
        raise CorruptIndexError(f"bit row {row} of segment {self.entry.path} must have the checksum that it carries")

    def _many(self, hashes: NDArray[np.uint64]) -> NDArray[np.uint8]:
        from zonebloom.kernels import slices as kernels  # noqa: PLC0415 - a search of a few keys must not load Numba

        found = np.zeros(-(-len(self) // 8), np.uint8)
        hashes = np.unique(hashes)
        self._trust(hashes)
        for rows, _, inside in self._by_body(hashes):
            kernels.probe_rows(rows, inside, num_zones=len(self), out=found)
        return found

    def _by_body(
        self, hashes: NDArray[np.uint64]
    ) -> Iterator[tuple[NDArray[np.uint8], tuple[int, int], NDArray[np.uint64]]]:
        """For each body that ascending hashes ask: its rows, which hashes, and these as for a filter of its blocks."""
        low = hashes & np.uint64(0xFFFFFFFF)
        block = self._blocks_of(hashes)  # ascending too
        for rows, (first, stop) in zip(self._bodies, self.layout.bodies(), strict=True):
            begin, end = np.searchsorted(block, (first, stop)).tolist()
            if begin < end:
                inside = block[begin:end] - np.uint64(first)
                # The least upper half that selects this block of a filter with the blocks of this body only.
                size = np.uint64(stop - first)
                high = ((inside << np.uint64(32)) + size - np.uint64(1)) // size
                yield rows, (begin, end), high << np.uint64(32) | low[begin:end]

    def _blocks_of(self, hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
        return ((hashes >> np.uint64(32)) * np.uint64(self.layout.num_blocks)) >> np.uint64(32)

    def _contained(self, hashes: NDArray[np.uint64], live: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
        bits = np.packbits(np.ones(len(self), np.bool_) if live is None else live, bitorder="little")
        mask = np.zeros(self.layout.stride, np.uint8)  # and none in the row's checksum
        mask[: len(bits)] = bits
        if len(hashes) > FEW_HASHES:
            return self._contained_many(hashes, mask)
        found = np.zeros(len(hashes), np.bool_)
        words = mask[:-CHECKSUM_BYTES].view(np.uint64)
        order = np.argsort(hashes)
        for number, rows in zip(order.tolist(), self._rows_of(hashes[order]), strict=True):
            found[number] = bool((np.bitwise_and.reduce(rows, axis=0) & words).any())
        return found

    def _contained_many(self, hashes: NDArray[np.uint64], mask: NDArray[np.uint8]) -> NDArray[np.bool_]:
        from zonebloom.kernels import slices as kernels  # noqa: PLC0415 - a search of a few keys must not load Numba

        different, place = np.unique(hashes, return_inverse=True)
        self._trust(different)
        found = np.zeros(len(different), np.bool_)
        for rows, (begin, end), inside in self._by_body(different):
            kernels.find_live_zone(rows, inside, live=mask, out=found[begin:end])
        return found[place]

    # --- the mapped file ----------------------------------------------------------------------------------------------

    @cached_property
    def _mapping(self) -> Mapping:
        return self._store.mapping(self.entry.path, is_sparse=True)

    def release(self) -> None:
        """Unmap what was read; it is mapped again when it is needed again."""
        self._mapping.release()

    @cached_property
    def _bodies(self) -> list[NDArray[np.uint8]]:
        """The rows of each body, mapped; to be used only for rows that are trusted."""
        mapped = self._mapping.buffer
        if mapped.size != self.entry.num_bytes:
            message = f"segment {self.entry.path} must have {self.entry.num_bytes} bytes, got {mapped.size}"
            raise CorruptIndexError(message)
        stride = self.layout.stride
        bodies = []
        for offset, (first, stop) in zip(self.layout.body_offsets, self.layout.bodies(), strict=True):
            num_rows = (stop - first) * ROWS_PER_BLOCK
            bodies.append(np.frombuffer(mapped, np.uint8, num_rows * stride, offset).reshape(num_rows, stride))
        return bodies

    @cached_property
    def _is_trusted(self) -> NDArray[np.bool_]:
        return np.zeros(self.layout.num_rows, np.bool_)

    def _trust(self, hashes: NDArray[np.uint64]) -> None:
        """Check the rows that `hashes` select, unless they were checked before."""
        low = hashes & np.uint64(0xFFFFFFFF)
        first = self._blocks_of(hashes) * np.uint64(ROWS_PER_BLOCK)
        needed = np.zeros(self.layout.num_rows, np.bool_)
        for word, salt in enumerate(SALTS):
            bit = ((low * np.uint64(salt)) & np.uint64(0xFFFFFFFF)) >> np.uint64(27)
            needed[first + np.uint64(32 * word) + bit] = True
        self._check_rows(np.flatnonzero(needed & ~self._is_trusted))

    def check_all(self) -> None:
        """Check every row.

        Raises
        ------
        CorruptIndexError
            A row differs from its checksum.
        """
        self._check_rows(np.flatnonzero(~self._is_trusted))

    def _fetch(self, rows: NDArray[np.int64]) -> None:
        """Have the rows, in ascending order, in the map of a remote file, whose bytes do not come by touching them."""
        if not self._store.is_remote or not len(rows):
            return
        is_first = np.diff(rows, prepend=-2) != 1
        pairs = zip(rows[is_first].tolist(), rows[np.roll(is_first, -1)].tolist(), strict=True)
        runs = [(self.layout.offset(first), self.layout.offset(last) + self.layout.stride) for first, last in pairs]
        self._mapping.need([(start, stop - start) for start, stop in runs])

    def _check_rows(self, rows: NDArray[np.int64]) -> None:
        self._fetch(rows)
        rows_per_body = self.layout.blocks_per_body * ROWS_PER_BLOCK
        for number, body in enumerate(self._bodies):
            base = number * rows_per_body
            begin, end = np.searchsorted(rows, (base, base + len(body))).tolist()
            mine = rows[begin:end]
            if len(mine):
                started = perf_counter()
                self._check_rows_of(body, base, mine[:_FIRST_ROWS] - base)
                if perf_counter() - started > _FIRST_ROWS * SLOW_READ_SECONDS:
                    ranges = [(self.layout.offset(row), self.layout.stride) for row in mine[_FIRST_ROWS:].tolist()]
                    self._store.will_need(self.entry.path, ranges)
                self._check_rows_of(body, base, mine[_FIRST_ROWS:] - base)
                self._is_trusted[mine] = True

    def _check_rows_of(self, body: NDArray[np.uint8], first_row: int, chosen: NDArray[np.int64]) -> None:
        stride = self.layout.stride
        if stride >= KERNEL_STRIDE:
            from zonebloom.kernels import row_checksums  # noqa: PLC0415 - a search of a few keys must not load Numba

            bad = row_checksums.first_bad_row(body, first_row, chosen.astype(np.uint64))
            if bad < len(chosen):
                self._reject(first_row + int(chosen[bad]))
            return
        view, hashed, digest = body.data.cast("B"), stride - CHECKSUM_BYTES, xxhash.xxh3_64_intdigest
        wanted = body.view(np.dtype("<u8"))[chosen, -1].tolist()
        for row, digest_of_row in zip(chosen.tolist(), wanted, strict=True):
            if digest(view[row * stride : row * stride + hashed], first_row + row) != digest_of_row:
                self._reject(first_row + row)

    # --- back to filters ----------------------------------------------------------------------------------------------

    def filters(self, first_zone: int, num_zones: int, first_block: int, stop_block: int) -> NDArray[np.uint32]:
        """Blocks `[first_block, stop_block)` of the filters of consecutive zones, shape `(num_zones, blocks, 8)`.

        The rows must have been checked. `first_zone` is a multiple of 8.
        """
        from zonebloom.kernels import slices as kernels  # noqa: PLC0415 - keeps Numba out of plain searches

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
        from zonebloom.kernels import sbbf as kernels  # noqa: PLC0415 - keeps Numba out of plain searches

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
            positions = self.positions[first : first + count]
            columns = [
                from_numpy(positions.fragment_ids, pa.uint64()),
                from_numpy(positions.zone_starts, pa.uint64()),
                from_numpy(positions.zone_lengths, pa.uint64()),
                pa.array(positions.has_null),
                pa.Array.from_buffers(pa.binary(), count, data),
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def to_arrow(self) -> pa.Table:
        """The five columns as an Arrow table; see `batches`."""
        return pa.Table.from_batches(self.batches(), self.schema)

    def zones(self) -> ZoneTable:
        """The zones as a table: the filters that were sliced, bit for bit."""
        return ZoneTable(self.batches(), self.schema)
