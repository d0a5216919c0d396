"""Merging locators: the same pairs with other zone numbers, so nothing is lost and nothing is hashed again.

All segments are read side by side, in as many chunks each. The pairs of a round of chunks are merged at once: that
costs the same for any number of segments. Chunks are read ahead, and one round is merged while another one is written;
memory is these, however large the segments are. The bytes depend on the zones only, not on how they were cut into
segments.

Spec: specs/locator.md#merge_locators
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from zonebloom.bloom.locator_pages import MAX_PAIRS, MAX_ZONES, WIDE_ZONE_BITS, first_pairs
from zonebloom.bloom.zones import ZonePositions
from zonebloom.ground.errors import CorruptIndexError, InvalidArgumentError
from zonebloom.ground.threads import concurrently
from zonebloom.storage.locator.reader import LocatorSegment
from zonebloom.storage.locator.writer import LocatorWriter
from zonebloom.storage.segment import SegmentEntry
from zonebloom.stores.store import Store

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ROUND_PAGES = 4096
"""Pages of all segments that are merged together: 32 MiB in memory, and twice as much again for what is merged."""
_CHUNK_PAGES = 64
"""Pages of one segment in a round, if there are many segments: a read of fewer costs more than it copies."""
_MOST_ROUND_PAGES = 1 << 15
"""Pages of a round at most, of however many segments: 256 MiB in memory, and twice as much again."""
_READERS, _REMOTE_READERS = 2, 8
_DROPPED = (1 << 32) - 1
_GREATEST = (1 << 64) - 1


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
    positions = ZonePositions.concatenated(
        [segment.positions[chosen] for segment, chosen in zip(segments, live, strict=True)]
    )
    if len(positions) > MAX_ZONES:
        raise InvalidArgumentError(f"a locator must have at most {MAX_ZONES} zones", got=len(positions))
    order = np.lexsort((positions.zone_starts, positions.fragment_ids))
    numbers = np.empty(len(order), np.uint32)
    numbers[order] = np.arange(len(order), dtype=np.uint32)
    streams, first = [], 0
    for segment, chosen in zip(segments, live, strict=True):
        mine = numbers[first : first + int(chosen.sum())]
        if (mine[1:] < mine[:-1]).any():
            raise CorruptIndexError(f"segment {segment.entry.path} must have its zones in order of fragment and start")
        new_numbers = np.full(len(segment), _DROPPED, np.uint32)
        new_numbers[chosen] = mine
        first += len(mine)
        streams.append(_Stream(segment, new_numbers))
    num_pages = sum(segment.layout.num_pages for segment in segments)
    round_pages = min(max(_ROUND_PAGES, _CHUNK_PAGES * len(streams)), _MOST_ROUND_PAGES)
    num_rounds = -(-num_pages // round_pages)
    merged = _merged(streams, num_rounds, _REMOTE_READERS if store.is_remote else _READERS)
    with LocatorWriter(store, column, positions[order]) as writer:
        for pairs in concurrently(lambda _: next(merged), range(num_rounds), 1, ahead=1):
            writer.write(pairs)
    return writer.entry


def merge_all(
    store: Store, column: str, entries: Sequence[SegmentEntry], live: set[int], on_written: Callable[[str], object]
) -> tuple[Sequence[SegmentEntry], list[str]]:
    """One locator of all sound `entries`, written but not committed; and messages about damaged entries, which remain.

    The same `entries` are returned if there is one and all of its fragments are live, or if the zones are too many.

    Spec: specs/locator.md#column
    """
    live_ids = np.fromiter(live, np.uint64, len(live))
    sound: list[LocatorSegment] = []
    damage: list[str] = []
    for entry in entries:
        try:
            sound.append(LocatorSegment(store, entry))
        except CorruptIndexError as error:
            damage.append(str(error))
    chosen = [np.isin(segment.positions.fragment_ids, live_ids) for segment in sound]
    is_one = len(sound) < 2 and all(mask.all() for mask in chosen)  # noqa: PLR2004 - one alone, or none
    if is_one or sum(int(mask.sum()) for mask in chosen) > MAX_ZONES:
        return entries, damage
    try:
        new = merge_locators(store, column, sound, chosen)
    except CorruptIndexError as error:
        return entries, [*damage, str(error)]
    on_written(new.path)
    merged = {segment.entry.path for segment in sound}
    return [*(entry for entry in entries if entry.path not in merged), new], damage


class _Stream:
    """The pairs of one segment in order, with new zone numbers, in chunks of pages."""

    def __init__(self, segment: LocatorSegment, new_numbers: NDArray[np.uint32]) -> None:
        self._segment = segment
        self._new_numbers = new_numbers

    def chunk(self, number: int, num_chunks: int) -> tuple[NDArray[np.uint64], int]:
        """The pairs of one of `num_chunks` chunks, and the least that a pair of a later one can be."""
        from zonebloom.bloom.kernels import locator as kernels  # noqa: PLC0415 - keeps Numba out of plain searches

        segment, layout = self._segment, self._segment.layout
        begin, stop = (layout.num_pages * index // num_chunks for index in (number, number + 1))
        least = _GREATEST
        if stop < layout.num_pages:
            least = int(segment.firsts[stop]) >> layout.zone_bits << WIDE_ZONE_BITS
        pairs = np.empty((stop - begin) * MAX_PAIRS, np.uint64)
        if begin == stop:
            return pairs, least
        pages, num_zones = segment.read_pages(begin, stop), len(segment)
        num_pairs = kernels.decode_pages(pages, num_zones, layout.zone_bits, pairs, self._new_numbers)
        if num_pairs is None or not np.array_equal(first_pairs(pages), segment.firsts[begin:stop]):
            raise CorruptIndexError(
                f"segment {segment.entry.path} must hold ascending pairs of its {num_zones} zones",
                got=f"others from page {begin} on",
            )
        return pairs[:num_pairs], least


def _merged(streams: Sequence[_Stream], num_rounds: int, readers: int) -> Iterator[NDArray[np.uint64]]:
    """The pairs of all streams in order, an array for each round; the memory of the last but one is used again.

    A round takes a chunk of each stream, and merges the pairs below those of all later chunks: nearly all, as keys are
    hashes.
    """
    from zonebloom.bloom.kernels import pairs as kernels  # noqa: PLC0415 - as above

    tasks = ((stream, number) for number in range(num_rounds) for stream in streams)
    chunks = concurrently(lambda task: task[0].chunk(task[1], num_rounds), tasks, readers, ahead=readers)
    memories = [np.zeros(0, np.uint64), np.zeros(0, np.uint64)]
    runs: list[NDArray[np.uint64]] = []
    for number in range(num_rounds):
        read = list(itertools.islice(chunks, len(streams)))
        runs += [pairs for pairs, _ in read]
        bound = np.uint64(min(least for _, least in read))
        is_last = number == num_rounds - 1
        stops = [len(run) if is_last else int(run.searchsorted(bound)) for run in runs]
        memory = memories[number % 2]
        if len(memory) < sum(stops):
            memory = memories[number % 2] = np.empty(sum(stops) * 9 // 8, np.uint64)
        below = [run[:stop] for run, stop in zip(runs, stops, strict=True)]
        yield memory[: kernels.merge_runs(below, memory)]
        runs = [run[stop:] for run, stop in zip(runs, stops, strict=True) if stop < len(run)]
