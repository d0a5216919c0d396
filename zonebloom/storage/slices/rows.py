"""An opened slice segment: where its zones lie, and its bit rows, mapped, of which none is believed unchecked.

Spec: specs/slices.md#file
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import xxhash

from zonebloom.bloom.zones import ZonePositions, described_by, parameters_of, zone_schema
from zonebloom.errors import CorruptIndexError, StorageError
from zonebloom.storage.arrow_file import read_head, reading
from zonebloom.storage.segment import SegmentEntry, checksum
from zonebloom.storage.slices.layout import (
    CHECKSUM_BYTES,
    KERNEL_STRIDE,
    ROWS_PER_BLOCK,
    SALTS,
    GroupLayout,
    decode_layout,
    decode_positions,
)
from zonebloom.storage.stores.store import SLOW_READ_SECONDS, Mapping, Store

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["SliceRows"]

_MOST_END_BYTES = 16 << 20
"""Of a head or a tail: ten times the zone runs of 32 704 zones that are a run each."""
_FIRST_ROWS = 16


class SliceRows:
    """The zones of a slice segment and its bit rows; rows are checked when they are first read.

    Raises
    ------
    CorruptIndexError
        The file is missing, has another length, or its head or tail is not as it was written.
    """

    def __init__(self, store: Store, entry: SegmentEntry, *, on_damage: Callable[[str], object] | None = None) -> None:
        self.entry = entry
        self._store = store
        self._on_damage = on_damage
        self.damage: str | None = None
        with reading(f"segment {entry.path}"):
            head_bytes, tail_bytes = entry.spans[0].num_bytes, entry.spans[-1].num_bytes
            if max(head_bytes, tail_bytes) > _MOST_END_BYTES:
                message = f"head and tail of segment {entry.path} must have at most {_MOST_END_BYTES} bytes"
                raise CorruptIndexError(f"{message}, got {head_bytes} and {tail_bytes}")
            tail_start = entry.num_bytes - tail_bytes
            head, tail = store.read_ranges(entry.path, [(0, head_bytes), (tail_start, tail_bytes)])
            size = store.size(entry.path)  # a remote store knows it from the reads
            if size != entry.num_bytes:
                raise CorruptIndexError(f"segment {entry.path} must have {entry.num_bytes} bytes, got {size}")
            self._check_span(0, head)
            self._check_span(len(entry.spans) - 1, tail)
            self._schema = read_head(pa.py_buffer(head))
            self.layout: GroupLayout = decode_layout(self._schema, size, entry.path)
            column, column_type = described_by(self._schema.field(0))
            self.schema: pa.Schema = zone_schema(*parameters_of(self._schema), column=column, column_type=column_type)
            """Schema of the zone table that the segment holds."""

    def _check_span(self, number: int, data: bytes) -> None:
        wanted, found = self.entry.spans[number].checksum, checksum(data)
        if found != wanted:
            raise CorruptIndexError(
                f"span {number} of segment {self.entry.path} must have checksum {wanted}, got {found}"
            )

    def __len__(self) -> int:
        return self.layout.num_zones

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

    # --- damage -------------------------------------------------------------------------------------------------------

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

    def _note(self, error: Exception) -> None:
        """Remember damage; a remote store that cannot be reached says nothing about the segment."""
        if isinstance(error, StorageError) and self._store.is_remote:
            raise error
        is_missing = isinstance(error, FileNotFoundError)
        self.damage = f"segment {self.entry.path} must exist, got no such file" if is_missing else str(error)
        if self._on_damage:
            self._on_damage(self.damage)

    def _reject(self, row: int) -> None:
        raise CorruptIndexError(f"bit row {row} of segment {self.entry.path} must have the checksum that it carries")

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

    def _blocks_of(self, hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
        return ((hashes >> np.uint64(32)) * np.uint64(self.layout.num_blocks)) >> np.uint64(32)

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
            from zonebloom.bloom.kernels import row_checksums  # noqa: PLC0415 - a search of a few keys must not load Numba

            bad = row_checksums.first_bad_row(body, first_row, chosen.astype(np.uint64))
            if bad < len(chosen):
                self._reject(first_row + int(chosen[bad]))
            return
        view, hashed, digest = body.data.cast("B"), stride - CHECKSUM_BYTES, xxhash.xxh3_64_intdigest
        wanted = body.view(np.dtype("<u8"))[chosen, -1].tolist()
        for row, digest_of_row in zip(chosen.tolist(), wanted, strict=True):
            if digest(view[row * stride : row * stride + hashed], first_row + row) != digest_of_row:
                self._reject(first_row + row)
