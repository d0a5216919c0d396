"""`LocatorBuilder`: the batches of a column become locator segments, part by part in bounded memory.

The parts hold other zones each, and one merge makes them the segment that all zones at once would have made.

Spec: specs/locator.md#build
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa

from zonebloom.bloom import hashing
from zonebloom.bloom.locator_pages import MAX_ZONES
from zonebloom.bloom.zones import ZonePositions
from zonebloom.options import check_rows_per_zone
from zonebloom.storage.locator.writer import LocatorWriter
from zonebloom.storage.segment import SegmentEntry
from zonebloom.stores.store import Store

PART_PAIRS = 1 << 23
"""Pairs of a part at most: 64 MiB, and as much again while they are sorted."""
_LEAST_PART_PAIRS = 1 << 18
"""Pairs of a part at least: 4 MiB with the sorting. Smaller parts would be too many to merge."""
_BUILD_PAIRS = 1 << 24
"""Pairs of all parts that a build fills at once: 256 MiB with the sorting."""
_BATCH_ROWS = 1 << 16


def part_pairs_for(num_builders: int) -> int:
    """Pairs of a part of each of `num_builders` builders, which share the memory of one build.

    Spec: specs/locator.md#build
    """
    return min(max(_BUILD_PAIRS // num_builders, _LEAST_PART_PAIRS), PART_PAIRS)


class LocatorBuilder:
    """Turns the batches of a column into locator segments; `entries` are those that are written.

    A part ends where a zone ends, so every zone is in one part, whole. A context manager: nothing stays if the block
    raises.
    """

    def __init__(self, store: Store, column: str, *, rows_per_zone: int, part_pairs: int = PART_PAIRS) -> None:
        check_rows_per_zone(rows_per_zone)
        self.entries: list[SegmentEntry] = []
        self._store = store
        self._column = column
        self._rows_per_zone = rows_per_zone
        self._part_pairs = part_pairs
        self._pairs, self._scratch = (np.empty(part_pairs + 1, np.uint64) for _ in range(2))
        self._num_pairs = 0
        self._zones: list[tuple[int, int, int, bool]] = []
        self._fragment_id: int | None = None
        self._zone_start = 0
        self._fill = 0
        self._has_null = False

    def start_fragment(self, fragment_id: int, *, first_row: int = 0) -> None:
        """End the open zone and go on at row `first_row` of `fragment_id`, which must begin a zone."""
        self._end_zone(self._fill)
        if self._zones and (fragment_id, first_row) <= self._zones[-1][:2]:
            self._end_part()
        self._fragment_id, self._zone_start = fragment_id, first_row

    def add(self, fragment_id: int, values: pa.Array | pa.ChunkedArray) -> None:
        """The next rows of `fragment_id`; another id than before begins a new fragment at its row 0."""
        if fragment_id != self._fragment_id:
            self.start_fragment(fragment_id)
        for chunk in values.chunks if isinstance(values, pa.ChunkedArray) else [values]:
            done = 0
            while done < len(chunk):
                done += self._add_rows(chunk.slice(done, _BATCH_ROWS))

    def _add_rows(self, array: pa.Array) -> int:
        """Pack the rows of a short array, or those of its first zones if a part ends there; how many they are."""
        from zonebloom.bloom.kernels import pairs as kernels  # noqa: PLC0415 - Numba is loaded by the first rows, not by import

        size = self._rows_per_zone
        if not self._fill and (self._num_pairs + size > self._part_pairs or len(self._zones) == MAX_ZONES):
            self._end_part()
        left = size - self._fill
        room = max(self._part_pairs - self._num_pairs, left)
        if left < len(array):  # a zone ends here: the last one that fits ends the rows
            zones = min((room - left) // size, MAX_ZONES - len(self._zones) - 1)
            array = array.slice(0, min(len(array), left + zones * size))
        self._reserve(len(array))
        has_null = np.zeros(-(-(self._fill + len(array)) // size), np.bool_)
        has_null[0] = self._has_null
        validity, validity_offset = hashing.validity_of(array)
        self._num_pairs += kernels.pack_pairs(
            hashing.to_hashes(array),
            self._pairs[self._num_pairs :],
            has_null,
            validity=validity,
            validity_offset=validity_offset,
            rows_per_zone=size,
            first_fill=self._fill,
            first_zone=len(self._zones),
        )
        self._fill += len(array)
        for is_null in has_null.tolist():
            self._has_null = is_null
            if self._fill >= size:
                self._end_zone(size)
        return len(array)

    def _reserve(self, num_rows: int) -> None:
        """Room for the pairs of `num_rows` rows: a zone that is longer than a part is made shorter, then has more."""
        if self._num_pairs + num_rows < len(self._pairs):
            return
        self._sort()
        needed = 2 * self._num_pairs + num_rows + 1
        if needed > len(self._pairs):
            self._scratch = np.empty(needed, np.uint64)
            self._scratch[: self._num_pairs] = self._pairs[: self._num_pairs]
            self._pairs, self._scratch = self._scratch, np.empty(needed, np.uint64)

    def _sort(self) -> None:
        from zonebloom.bloom.kernels import pairs as kernels  # noqa: PLC0415 - as above

        self._num_pairs = kernels.sort_pairs(self._pairs[: self._num_pairs], self._scratch)

    def _end_zone(self, num_rows: int) -> None:
        if num_rows:
            assert self._fragment_id is not None
            self._zones.append((self._fragment_id, self._zone_start, num_rows, self._has_null))
            self._zone_start += num_rows
            self._fill -= num_rows
            self._has_null = False

    def _end_part(self) -> None:
        """Write what is collected as a segment, if there is any."""
        if not self._zones:
            return
        self._sort()
        ids, starts, lengths, has_null = zip(*self._zones, strict=True)
        positions = ZonePositions(
            np.array(ids, np.uint64), np.array(starts, np.uint64), np.array(lengths, np.uint64), np.array(has_null)
        )
        with LocatorWriter(self._store, self._column, positions) as writer:
            writer.write(self._pairs[: self._num_pairs])
        assert writer.entry is not None
        self.entries.append(writer.entry)
        self._zones.clear()
        self._num_pairs = 0

    def close(self) -> None:
        """End the open zone and write the last part."""
        self._end_zone(self._fill)
        self._end_part()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            for entry in self.entries:
                self._store.delete(entry.path)
            self.entries.clear()
