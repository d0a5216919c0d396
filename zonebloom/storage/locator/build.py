"""Locator segments from the batches of a column, in bounded memory: each pair is sorted, encoded and written once.

A `LocatorBuilder` packs the rows of one worker. All workers of a column fill one `LocatorParts`, which holds their
pairs, cut by the highest bits of the keys into partitions. When its memory is full, it sorts one partition after the
other and writes them as a *part*, a segment of its own.

Spec: specs/locator.md#build
"""

from __future__ import annotations

import threading
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa

from zonebloom.bloom import hashing
from zonebloom.bloom.locator_pages import MAX_ZONES
from zonebloom.bloom.sizing import check_rows_per_zone
from zonebloom.bloom.zones import ZonePositions
from zonebloom.ground.threads import concurrently
from zonebloom.storage.locator.writer import LocatorWriter
from zonebloom.storage.segment import SegmentEntry
from zonebloom.stores.store import Store, delete_all

if TYPE_CHECKING:
    from numpy.typing import NDArray

PART_PAIRS = 3 << 25
"""Pairs of a part at most: 768 MiB, which the columns of a build share."""
_RUN_PAIRS = 1 << 18
"""Pairs that a worker packs before it hands them over: 2 MiB, near its L2 cache."""
_BATCH_ROWS = 1 << 16
_SORTED_PAIRS = 1 << 19
"""Pairs that are sorted together: 4 MiB, which are in a cache when they are encoded."""
_SORTERS = 2
"""Threads that sort, while another one encodes and writes: sorting takes about twice as long."""
_MOST_REPEATED = 4
"""Times the mean: more pairs in a partition are of keys that repeat, so each pair is kept once from then on."""

Zone = tuple[int, int, int, bool]
"""Fragment, first row, number of rows, and whether one of them is null."""


class LocatorParts:
    """Holds the pairs of a column and writes them as locator segments, part by part; `entries` are those.

    Several threads may add. A context manager: nothing stays if the block raises.

    Parameters
    ----------
    num_rows
        Rows that will come, so that parts are of about equal size.
    part_pairs
        Pairs of a part at most; a zone that has more is a part.
    """

    def __init__(self, store: Store, column: str, *, num_rows: int = PART_PAIRS, part_pairs: int = PART_PAIRS) -> None:
        self.entries: list[SegmentEntry] = []
        self._store = store
        self._column = column
        num_rows = max(num_rows, 1)
        self._part_pairs = -(-num_rows // -(-num_rows // part_pairs))
        self._lock = threading.Lock()
        self._memory = np.empty(0, np.uint64)
        self._runs: list[tuple[list[Zone], NDArray[np.uint64], NDArray[np.uint32]]] = []
        self._num_pairs = self._num_zones = 0

    def add(self, zones: list[Zone], pairs: NDArray[np.uint64]) -> None:
        """The pairs of `zones`, which number them from 0; the caller may use their memory again afterwards."""
        from zonebloom.bloom.kernels import pairs as kernels  # noqa: PLC0415 - Numba is loaded by the first rows, not by import

        with self._lock:
            if self._num_pairs + len(pairs) > len(self._memory) or self._num_zones + len(zones) > MAX_ZONES:
                self._write()
                if len(pairs) > len(self._memory):
                    self._memory = np.empty(max(self._part_pairs + _RUN_PAIRS, len(pairs)), np.uint64)
            run = self._memory[self._num_pairs : self._num_pairs + len(pairs)]
            bits = kernels.partition_bits_for(self._part_pairs)
            bounds, most = kernels.partition_pairs(pairs, run, bits)
            if most > _MOST_REPEATED * (1 + (len(pairs) >> bits)):
                run = run[: kernels.sort_pairs(pairs, run)]
                bounds, _ = kernels.partition_pairs(pairs[: len(run)], run, bits)
            self._runs.append((zones, run, bounds))
            self._num_pairs += len(run)
            self._num_zones += len(zones)
            if self._num_pairs >= self._part_pairs:
                self._write()

    def _write(self) -> None:
        """Write what is held as a segment, if there is any."""
        from zonebloom.bloom.kernels import pairs as kernels  # noqa: PLC0415 - as above

        if not self._runs:
            return
        zones, runs, bounds = zip(*sorted(self._runs, key=lambda run: run[0][0]), strict=True)
        ids, starts, lengths, has_null = zip(*chain.from_iterable(zones), strict=True)
        positions = ZonePositions(
            np.array(ids, np.uint64), np.array(starts, np.uint64), np.array(lengths, np.uint64), np.array(has_null)
        )
        order = np.argsort(positions.addresses)
        numbers = np.empty(len(order), np.uint32)
        numbers[order] = np.arange(len(order), dtype=np.uint32)
        numbers_of_each = np.split(numbers, np.cumsum([len(run) for run in zones])[:-1])
        num_partitions = len(bounds[0]) - 1
        partitioned = kernels.PartitionedRuns(
            runs, bounds, width=65 - num_partitions.bit_length(), numbers=numbers_of_each
        )
        stops = partitioned.stops
        cuts = sorted({*stops.searchsorted(np.arange(0, stops[-1], _SORTED_PAIRS)).tolist(), num_partitions})
        most = int(np.diff(stops[cuts]).max(initial=0))
        memory = np.empty((_SORTERS + 2, most), np.uint64)  # used in turn; one large array has huge pages

        def merged(number: int) -> NDArray[np.uint64]:
            pairs: NDArray[np.uint64] = memory[number % len(memory)]
            return pairs[: partitioned.merge(cuts[number], cuts[number + 1], pairs)]

        with LocatorWriter(self._store, self._column, positions[order]) as writer:
            for pairs in concurrently(merged, range(len(cuts) - 1), _SORTERS, ahead=_SORTERS):
                writer.write(pairs)
        self.entries.append(writer.entry)
        self._runs.clear()
        self._num_pairs = self._num_zones = 0

    def close(self) -> None:
        """Write the last part."""
        self._write()
        self._memory = np.empty(0, np.uint64)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            delete_all(self._store, [entry.path for entry in self.entries])


class LocatorBuilder:
    """Packs the batches of a column, fragment by fragment, for `parts`; zones reach them whole."""

    def __init__(self, parts: LocatorParts, *, rows_per_zone: int) -> None:
        check_rows_per_zone(rows_per_zone)
        self._parts = parts
        self._rows_per_zone = rows_per_zone
        self._pairs = np.empty(_RUN_PAIRS + 1, np.uint64)
        self._num_pairs = 0
        self._zones: list[Zone] = []
        self._fragment_id: int | None = None
        self._zone_start = 0
        self._fill = 0
        self._has_null = False

    def start_fragment(self, fragment_id: int, *, first_row: int = 0) -> None:
        """End the open zone and go on at row `first_row` of `fragment_id`, which must begin a zone."""
        self._end_zone(self._fill)
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
        """Pack the rows of a short array, or those of the zones for which there is room; how many they are."""
        from zonebloom.bloom.kernels import pairs as kernels  # noqa: PLC0415 - as above

        size = self._rows_per_zone
        if not self._fill and (self._num_pairs + size > _RUN_PAIRS or len(self._zones) == MAX_ZONES):
            self._hand_over()
        left = size - self._fill
        room = max(_RUN_PAIRS - self._num_pairs, left)
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
        """Room for the pairs of `num_rows` rows: a zone that is longer than a run is made shorter, then has more."""
        from zonebloom.bloom.kernels import pairs as kernels  # noqa: PLC0415 - as above

        if self._num_pairs + num_rows < len(self._pairs):
            return
        pairs = self._pairs[: self._num_pairs]
        self._num_pairs = kernels.sort_pairs(pairs, np.empty_like(pairs))
        if 2 * self._num_pairs + num_rows >= len(self._pairs):
            self._pairs = np.empty(2 * self._num_pairs + num_rows + 1, np.uint64)
            self._pairs[: self._num_pairs] = pairs[: self._num_pairs]

    def _end_zone(self, num_rows: int) -> None:
        if num_rows:
            assert self._fragment_id is not None
            self._zones.append((self._fragment_id, self._zone_start, num_rows, self._has_null))
            self._zone_start += num_rows
            self._fill -= num_rows
            self._has_null = False

    def _hand_over(self) -> None:
        if self._zones:
            self._parts.add(self._zones, self._pairs[: self._num_pairs])
            self._zones, self._num_pairs = [], 0

    def close(self) -> None:
        """End the open zone and hand over the last ones."""
        self._end_zone(self._fill)
        self._hand_over()
