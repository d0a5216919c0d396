"""Merging the filters of one level; each refresh and each step of a build adds filters.

Fragments' filters are put into one segment. Filters of the data set are united into one, after they are resized to one
size. A build makes them of one size where that is cheap, as a union of equal sizes loses no precision. Resizing from z
to Z blocks: block j of a filter of z blocks has the hashes with `floor(hash / 2^32 * z) = j`, so each new block is the
OR of all old blocks that may have its hashes.

Spec: specs/levels.md#merging
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from zonebloom.arrow import to_numpy
from zonebloom.bloom.sizing import num_blocks_for
from zonebloom.bloom.split_block import measured_fpp
from zonebloom.errors import CorruptIndexError
from zonebloom.storage.fragments import is_in_runs
from zonebloom.storage.level import LevelEntry
from zonebloom.storage.levels.fill import estimated_values, folded, write_dataset_filter
from zonebloom.storage.levels.probe import DatasetFilter
from zonebloom.storage.locator.merge import merge_locator_level
from zonebloom.storage.segment import SegmentEntry, joined_runs
from zonebloom.storage.stores.store import Store
from zonebloom.storage.zone_segment import ZoneSegment, ZoneSegmentWriter

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST_FPP = 0.05
"""Filters are not united if the union's false positive probability were higher."""


def resized(blocks: NDArray[np.uint32], num_blocks: int) -> NDArray[np.uint32]:
    """A filter of `num_blocks` blocks that contains every value that `blocks` contains.

    Shapes (z, 8) and (num_blocks, 8). A multiple of z keeps the false positive probability; a divisor of z folds.
    """
    shift, size = np.uint64(32), np.uint64(len(blocks))
    edges = -(-(np.arange(num_blocks + 1, dtype=np.uint64) << shift).astype(np.int64) // num_blocks)
    lows, highs = edges[:-1].astype(np.uint64), (edges[1:] - 1).astype(np.uint64)
    firsts = ((lows * size) >> shift).astype(np.int64)
    lasts = ((highs * size) >> shift).astype(np.int64)
    resized_blocks: NDArray[np.uint32] = np.bitwise_or.reduceat(blocks, firsts, axis=0)
    resized_blocks |= blocks[lasts]
    return resized_blocks


def united(filters: Iterable[NDArray[np.uint32]], num_blocks: int) -> tuple[NDArray[np.uint32], float] | None:
    """One filter of `num_blocks` that contains all values of `filters`, and its fpp; None if the fpp exceeds 5 %.

    For filters of that size the union is the filter into which all values were inserted. One filter is in memory at a
    time, and no more are read once the fpp exceeds 5 %.
    """
    blocks, fpp = np.zeros((num_blocks, 8), np.uint32), 0.0
    for one in filters:
        blocks |= one if len(one) == num_blocks else resized(one, num_blocks)
        fpp = float(measured_fpp(blocks[None])[0])
        if fpp > _MOST_FPP:
            return None
    return blocks, fpp


def merge_level(
    store: Store,
    column: str,
    level: LevelEntry,
    live: Collection[int],
    on_written: Callable[[str], object],
    *,
    fpp: float,
) -> tuple[LevelEntry, list[str]]:
    """The level with merged segments, which are written but not committed, and messages of damaged segments.

    If there is nothing to merge, the result is `level` itself. `on_written` gets the path of each new segment; `fpp` is
    the false positive probability that was asked for.
    """
    known = set(live)
    if level.name == "locator":
        return merge_locator_level(store, column, level, known, on_written)
    if level.name == "dataset":
        return _merge_datasets(store, column, level, known, on_written, fpp=fpp)
    return _merge_fragments(store, column, level, known, on_written)


def _ids(segments: Sequence[SegmentEntry], live: set[int]) -> list[int]:
    """The live fragments that the segments cover; runs may be of any length."""
    ids = np.fromiter(live, np.uint64, len(live))
    covered: list[int] = ids[is_in_runs(ids, joined_runs(run for one in segments for run in one.fragments))].tolist()
    return covered


def _merge_datasets(
    store: Store, column: str, level: LevelEntry, live: set[int], on_written: Callable[[str], object], *, fpp: float
) -> tuple[LevelEntry, list[str]]:
    if len(level.segments) < 2:  # noqa: PLR2004 - one alone, or none
        return level, []
    sound: list[SegmentEntry] = []
    damage: list[str] = []

    def sound_ones(make: Callable[[Any], Any], many: Iterable[Any]) -> Iterator[Any]:
        for one in many:
            try:
                yield make(one)
            except CorruptIndexError as error:
                damage.append(str(error))

    def blocks_of(opened: DatasetFilter) -> NDArray[np.uint32]:
        blocks = opened.to_sbbf().blocks
        sound.append(opened.entry)
        return blocks

    opened = list(sound_ones(lambda segment: DatasetFilter(store, segment), level.segments))
    made = united(sound_ones(blocks_of, opened), max((one.num_blocks for one in opened), default=1))
    if made is None or len(sound) < 2:  # noqa: PLR2004 - as above
        return level, damage
    num_values = estimated_values(made[0])
    blocks = folded(made[0], num_blocks_for(num_values, fpp, "exact"))
    new = write_dataset_filter(store, column, blocks, _ids(sound, live))
    on_written(new.path)
    kept = tuple(segment for segment in level.segments if segment not in sound)
    measured = float(measured_fpp(blocks[None])[0])
    return LevelEntry(level.name, num_values, measured, (*kept, new)), damage


def _merge_fragments(
    store: Store, column: str, level: LevelEntry, live: set[int], on_written: Callable[[str], object]
) -> tuple[LevelEntry, list[str]]:
    is_clean = all(segment.num_zones == len(_ids([segment], live)) for segment in level.segments)
    if len(level.segments) < 2 and is_clean:  # noqa: PLR2004 - one alone, or none
        return level, []
    sound, damage = [], []
    for segment in level.segments:
        try:
            opened = ZoneSegment(store, segment)
            tables, bad = opened.zones(keep_mapped=False)
        except CorruptIndexError as error:
            damage.append(str(error))
            continue
        damage += bad
        if not bad:
            sound.append((segment, opened, tables))
    if len(sound) < 2 and all(segment.num_zones == len(_ids([segment], live)) for segment, _, _ in sound):  # noqa: PLR2004
        return level, damage
    wanted = np.fromiter(live, np.uint64, len(live))
    with ZoneSegmentWriter(store, column, sound[0][2].schema) as writer:
        for _, opened, table in sound:
            for batch in table.batches():
                ids = to_numpy(batch.column(0), np.uint64)
                if (is_live := np.isin(ids, wanted)).any():
                    writer.write(batch.filter(pa.array(is_live)))
            opened.release()
        new = writer.finish()
    for segment in new:
        on_written(segment.path)
    gone = [segment for segment, _, _ in sound]
    kept = [segment for segment in level.segments if segment not in gone]
    merged = replace(level, segments=(*kept, *new))
    share = merged.index_bytes / max(level.index_bytes, 1)
    return replace(merged, num_values=round(level.num_values * min(share, 1))), damage
