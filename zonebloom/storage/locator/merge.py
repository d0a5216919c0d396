"""Merging locators: the same pairs with other zone numbers, so nothing is lost and nothing is hashed again.

All segments are read side by side, in slices of the key space. The pairs of a slice are sorted as one array: that
costs the same for any number of segments. Two slices are sorted while one is written; memory is these three, however
large the segments are. The bytes depend on the zones only, not on how they were cut into segments.

Spec: specs/locator.md#merge_locators
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from zonebloom.bloom.locator import MAX_PAIRS, MAX_ZONES, WIDE_ZONE_BITS, first_pairs
from zonebloom.bloom.zones import ZonePositions
from zonebloom.errors import CorruptIndexError, InvalidArgumentError
from zonebloom.storage.ahead import read_ahead
from zonebloom.storage.level import LevelEntry
from zonebloom.storage.locator.layout import locator_level
from zonebloom.storage.locator.reader import LocatorSegment
from zonebloom.storage.locator.writer import LocatorWriter
from zonebloom.storage.segment import SegmentEntry
from zonebloom.storage.stores.store import Store

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["merge_all", "merge_locator_level", "merge_locators"]

_SLICE_PAGES = 1024
"""Pages of pairs that are sorted together: 8 MiB in memory, and as much again while they are sorted."""
_PAGES_PER_SEGMENT = 32
"""Pages of one segment in a slice: the first and the last of them are decoded twice, and each read costs 0.1 ms."""
_SORTERS = 2
_DROPPED = (1 << 32) - 1

Memory: TypeAlias = "tuple[NDArray[np.uint64], NDArray[np.uint64]]"
"""Room for the pairs of a slice, and for sorting them."""


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
    slices = _Slices(streams, sum(segment.layout.num_pages for segment in segments))
    with LocatorWriter(store, column, positions[order]) as writer:
        for pairs in slices:
            writer.write(pairs)
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


class _Slices:
    """The pairs of all streams in order, in slices of the key space; the next slices are sorted while one is used."""

    def __init__(self, streams: Sequence[_Stream], num_pages: int) -> None:
        self._streams = streams
        self._bits = (num_pages // max(_SLICE_PAGES, _PAGES_PER_SEGMENT * len(streams))).bit_length()
        self._free: SimpleQueue[Memory] = SimpleQueue()

    def __iter__(self) -> Iterator[NDArray[np.uint64]]:
        for _ in range(
            _SORTERS + 1
        ):  # memory that is used again: new memory would cost as much as a third of the sorting
            self._free.put((np.zeros(0, np.uint64), np.zeros(0, np.uint64)))
        for count, memory in read_ahead(self._sorted, range(1 << self._bits), _SORTERS):
            yield memory[0][:count]
            self._free.put(memory)

    def _sorted(self, number: int) -> tuple[int, Memory]:
        """How many pairs the slice has, and the memory that begins with them."""
        from zonebloom.bloom.kernels import pairs as kernels  # noqa: PLC0415 - keeps Numba out of plain searches

        least = number << (64 - self._bits)
        bounds = least, least + (1 << (64 - self._bits)) - 1
        ranges = [stream.pages_of(*bounds) for stream in self._streams]
        room = MAX_PAIRS * sum(stop - begin for begin, stop in ranges)
        memory = self._free.get()
        if len(memory[0]) < room:
            memory = np.empty(room + room // 8, np.uint64), np.empty(room + room // 8, np.uint64)
        count = 0
        for stream, pages in zip(self._streams, ranges, strict=True):
            count += stream.decode(pages, bounds, memory[0][count:])
        return kernels.sort_pairs(memory[0][:count], memory[1], shared_bits=self._bits), memory


class _Stream:
    """The pairs of one segment in order, with new zone numbers."""

    def __init__(self, segment: LocatorSegment, new_numbers: NDArray[np.uint32]) -> None:
        self._segment = segment
        self._new_numbers = new_numbers

    def pages_of(self, least: int, greatest: int) -> tuple[int, int]:
        """The half-open range of the pages that can hold pairs of the keys from `least` to `greatest`."""
        zone_bits, firsts = self._segment.layout.zone_bits, self._segment.firsts
        first = least >> WIDE_ZONE_BITS << zone_bits
        last = (greatest >> WIDE_ZONE_BITS << zone_bits) | ((1 << zone_bits) - 1)
        begin, stop = firsts.searchsorted(np.array([first, last], np.uint64), "right").tolist()
        return max(begin - 1, 0), stop

    def decode(self, pages: tuple[int, int], bounds: tuple[int, int], pairs: NDArray[np.uint64]) -> int:
        """Fill `pairs` with those of `pages` that lie within `bounds`; how many they are."""
        from zonebloom.bloom.kernels import locator as kernels  # noqa: PLC0415 - as above

        segment, (begin, stop), (least, greatest) = self._segment, pages, bounds
        if begin == stop:
            return 0
        read, zone_bits = segment.read_pages(begin, stop), segment.layout.zone_bits
        numbers, num_zones = self._new_numbers, len(segment)
        found = kernels.decode_pages(read, num_zones, zone_bits, pairs, numbers)
        if found is None or not np.array_equal(first_pairs(read), segment.firsts[begin:stop]):
            message = f"segment {segment.entry.path} must hold ascending pairs of its {num_zones} zones"
            raise CorruptIndexError(f"{message}, got others from page {begin} on")
        start = int(pairs[:found].searchsorted(np.uint64(least)))
        end = int(pairs[:found].searchsorted(np.uint64(greatest), "right"))
        if start:  # the first page begins in the slice before
            pairs[: end - start] = pairs[start:end]
        return end - start
