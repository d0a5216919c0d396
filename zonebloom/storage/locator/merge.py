"""Merging locators: the same pairs with other zone numbers, so nothing is lost and nothing is hashed again.

All segments are read side by side, in slices of the key space; the pairs of a slice are merged two by two, while the
next slice is read. Memory is two slices, however large the segments are. The bytes depend on the zones only, not on how
they were cut into segments.

Spec: specs/locator.md#merge_locators
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from zonebloom.bloom.locator import MAX_PAIRS, MAX_ZONES, WIDE_ZONE_BITS
from zonebloom.bloom.zones import ZonePositions
from zonebloom.errors import CorruptIndexError, InvalidArgumentError
from zonebloom.storage.level import LevelEntry
from zonebloom.storage.locator.layout import locator_level
from zonebloom.storage.locator.reader import LocatorSegment
from zonebloom.storage.locator.writer import LocatorWriter
from zonebloom.storage.segment import SegmentEntry
from zonebloom.storage.stores.store import Store

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["merge_all", "merge_locator_level", "merge_locators"]

_SLICE_PAGES = 512
"""Pages of pairs that are merged together: 4 MiB in memory, and twice that for merging."""
_PAGES_PER_SEGMENT = 16
"""Pages of one segment in a slice: what a segment holds back from slice to slice is one page."""
_DROPPED = (1 << 32) - 1


def merge_locators(
    store: Store, column: str, segments: Sequence[LocatorSegment], live: Sequence[NDArray[np.bool_]]
) -> SegmentEntry:
    """One segment with all pairs of the `live` zones of `segments`; no zone is in two of them.

    Raises
    ------
    CorruptIndexError
        A segment is not as it was written; nothing stays of the new one.
    InvalidArgumentError
        The zones are more than a locator holds.
    """
    mine = [segment.positions[chosen] for segment, chosen in zip(segments, live, strict=True)]
    positions = ZonePositions.concatenated(mine)
    if len(positions) > MAX_ZONES:
        raise InvalidArgumentError(f"a locator must have at most {MAX_ZONES} zones, got {len(positions)}")
    order = np.lexsort((positions.zone_starts, positions.fragment_ids))
    numbers = np.empty(len(order), np.uint32)
    numbers[order] = np.arange(len(order), dtype=np.uint32)
    streams, first = [], 0
    for segment, chosen in zip(segments, live, strict=True):
        new_numbers = np.full(len(segment), _DROPPED, np.uint32)
        new_numbers[chosen] = numbers[first : first + int(chosen.sum())]
        first += int(chosen.sum())
        streams.append(_Stream(segment, new_numbers))
    num_pages = sum(segment.layout.num_pages for segment in segments)
    merger = _Merger()
    with LocatorWriter(store, column, positions[order]) as writer, ThreadPoolExecutor(1) as pool:
        for parts in _ahead(pool, streams, _slices(num_pages, len(streams))):
            writer.write(merger.merged(parts))
    assert writer.entry is not None
    return writer.entry


def merge_all(
    store: Store, column: str, entries: Sequence[SegmentEntry], live: set[int], on_written: Callable[[str], object]
) -> tuple[Sequence[SegmentEntry], list[str]]:
    """The locators `entries` merged to one, which is written but not committed, and what is damaged and stays.

    The same `entries` come back where there is one, and all of its fragments are live, or where the zones are too many.

    Spec: specs/locator.md#level
    """
    known = np.fromiter(live, np.uint64, len(live))
    sound: list[LocatorSegment] = []
    damage: list[str] = []
    for entry in entries:
        try:
            sound.append(LocatorSegment(store, entry))
        except CorruptIndexError as error:
            damage.append(str(error))
    chosen = [np.isin(segment.positions.fragment_ids, known) for segment in sound]
    is_one = len(sound) < 2 and all(one.all() for one in chosen)  # noqa: PLR2004 - one alone, or none
    if is_one or sum(int(one.sum()) for one in chosen) > MAX_ZONES:
        return entries, damage
    try:
        new = merge_locators(store, column, sound, chosen)
    except CorruptIndexError as error:
        return entries, [*damage, str(error)]
    on_written(new.path)
    merged = {segment.entry.path for segment in sound}
    return [*(entry for entry in entries if entry.path not in merged), new], damage


def merge_locator_level(
    store: Store, column: str, level: LevelEntry, live: set[int], on_written: Callable[[str], object]
) -> tuple[LevelEntry, list[str]]:
    """The level with its segments merged, as `merge_all`; the same `level` where there is nothing to do."""
    entries, damage = merge_all(store, column, level.segments, live, on_written)
    if entries is level.segments:
        return level, damage
    return locator_level(entries, LocatorSegment(store, entries[-1]).layout.num_pairs), damage


def _slices(num_pages: int, num_streams: int) -> Iterator[tuple[int, int]]:
    """Bounds of pairs that cut the key space into equal parts, each about as large as a slice should be."""
    bits = (num_pages // max(_SLICE_PAGES, _PAGES_PER_SEGMENT * num_streams)).bit_length()
    width = 1 << (64 - bits)
    for low in range(0, 1 << 64, width):
        yield low, low + width - 1


def _ahead(
    pool: ThreadPoolExecutor, streams: Sequence[_Stream], slices: Iterator[tuple[int, int]]
) -> Iterator[list[NDArray[np.uint64]]]:
    """The pairs of each slice by stream; while one slice is merged, the next is read and decoded."""

    def taken(low: int, high: int) -> list[NDArray[np.uint64]]:
        return [stream.take(low, high) for stream in streams]

    following = pool.submit(taken, *next(slices))
    for bounds in slices:
        current, following = following, pool.submit(taken, *bounds)
        yield current.result()
    yield following.result()


class _Merger:
    """Merges one slice after another in the same memory: new memory would cost as much as the merging."""

    def __init__(self) -> None:
        self._buffers = [np.zeros(0, np.uint64)] * 2

    def merged(self, parts: Sequence[NDArray[np.uint64]]) -> NDArray[np.uint64]:
        """All pairs of the sorted `parts`, in order; valid until the next call."""
        from zonebloom.bloom.kernels import pairs as kernels  # noqa: PLC0415 - keeps Numba out of plain searches

        count = sum(map(len, parts))
        if count > len(self._buffers[0]):
            self._buffers = [np.empty(count + count // 8, np.uint64) for _ in range(2)]
        runs, number = [part for part in parts if len(part)], 0
        while len(runs) > 1:
            runs.sort(key=len)
            pairs = zip(runs[::2], [*runs[1::2], runs[-1][:0]], strict=False)  # an odd one, the longest, moves as it is
            runs, done = [], 0
            for left, right in pairs:
                run = self._buffers[number][done : done + len(left) + len(right)]
                kernels.merge_pairs(left, right, run)
                runs.append(run)
                done += len(run)
            number = 1 - number
        return runs[0] if runs else np.zeros(0, np.uint64)


class _Stream:
    """The pairs of one segment in order, with new zone numbers."""

    def __init__(self, segment: LocatorSegment, new_numbers: NDArray[np.uint32]) -> None:
        self._segment = segment
        self._new_numbers = new_numbers
        self._next_page = 0
        self._held = np.zeros(0, np.uint64)

    def take(self, low: int, high: int) -> NDArray[np.uint64]:
        """The pairs from `low` to `high`, both included; slices are taken in order."""
        layout = self._segment.layout
        begin = self._next_page
        if begin < layout.num_pages:
            bound = high >> WIDE_ZONE_BITS << layout.zone_bits | ((1 << layout.zone_bits) - 1)
            stop = int(self._segment.firsts.searchsorted(np.uint64(bound), "right"))
            if stop > begin:
                self._read(begin, stop)
        cut = int(self._held.searchsorted(np.uint64(high), "right"))
        taken, self._held = self._held[:cut], self._held[cut:]
        if len(taken) and int(taken[0]) < low:
            self._reject(begin)
        return taken

    def _read(self, begin: int, stop: int) -> None:
        from zonebloom.bloom.kernels import locator as kernels  # noqa: PLC0415 - keeps Numba out of plain searches

        segment, held = self._segment, len(self._held)
        pairs = np.empty(held + (stop - begin) * MAX_PAIRS, np.uint64)
        pairs[:held] = self._held
        pages, zone_bits = segment.read_pages(begin, stop), segment.layout.zone_bits
        found = kernels.decode_pages(pages, len(segment), zone_bits, pairs[held:], self._new_numbers)
        if found is None or (held and found and pairs[held] <= pairs[held - 1]):
            self._reject(begin)
        self._held, self._next_page = pairs[: held + (found or 0)], stop

    def _reject(self, page: int) -> None:
        message = f"segment {self._segment.entry.path} must hold ascending pairs of its {len(self._segment)} zones"
        raise CorruptIndexError(f"{message}, got others from page {page} on")
