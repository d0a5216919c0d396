"""Slice segment: a group of zones as bit rows; a key reads 8 rows and has the answer for every zone of the group.

All filters of a group have the same number of blocks, and a key asks for the same 8 bits of each. A probe of a few keys
reads just those rows by position, checks each row's own checksum, and ANDs them; many keys go through a kernel over the
memory-mapped file. A damaged row makes the whole group MAY_MATCH, for good, and is told to whoever listens.

Three floors: `SliceRows`, the opened file; `SliceFilters`, back to filters; `SliceSegment`, probing.

Spec: specs/slices.md
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import xxhash

from zonebloom.errors import CorruptIndexError, StorageError
from zonebloom.storage.slices.filters import SliceFilters
from zonebloom.storage.slices.layout import CHECKSUM_BYTES, rows_of_hash

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FEW_HASHES", "SliceSegment"]

FEW_HASHES = 256
"""Up to so many hashes positioned reads and NumPy are faster than what Numba takes to start."""


class SliceSegment(SliceFilters):
    """An opened slice segment: `may_contain` is certain where it says False; nothing is believed that was not checked.

    - Rows are checked when they are first read. Once a row was found damaged, every zone of the group MAY_MATCH.
    """

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

    def _many(self, hashes: NDArray[np.uint64]) -> NDArray[np.uint8]:
        from zonebloom.bloom.kernels import slices as kernels  # noqa: PLC0415 - a search of a few keys must not load Numba

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
        from zonebloom.bloom.kernels import slices as kernels  # noqa: PLC0415 - a search of a few keys must not load Numba

        different, place = np.unique(hashes, return_inverse=True)
        self._trust(different)
        found = np.zeros(len(different), np.bool_)
        for rows, (begin, end), inside in self._by_body(different):
            kernels.find_live_zone(rows, inside, live=mask, out=found[begin:end])
        return found[place]
