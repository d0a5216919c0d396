"""Optimizing: zone segments and small slice groups become full groups, so a search reads few rows of each.

Zones with the same filter size, in order of fragment and start, are cut into groups. A group is made body by body: a
body has a few blocks of all filters. These blocks are gathered from the memory-mapped sources, 512 zones at a time, and
sliced into the bit rows of the body. A body is written while the next one is made, so memory is two bodies.

Spec: specs/slices.md#optimize
"""

from __future__ import annotations

import mmap
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from zonebloom.bloom.split_block import ROWS_PER_BLOCK
from zonebloom.bloom.zones import BlockFilters, ZonePositions, zone_schema
from zonebloom.ground.errors import CorruptIndexError
from zonebloom.ground.reasons import counted
from zonebloom.ground.rendering import Result
from zonebloom.ground.threads import concurrently
from zonebloom.storage.commit import commit_change
from zonebloom.storage.fragments import is_in_runs, read_fragments
from zonebloom.storage.locator.merge import merge_all
from zonebloom.storage.manifest import ColumnEntry, Manifest
from zonebloom.storage.segment import SegmentEntry, count_zones
from zonebloom.storage.slices.layout import FULL_GROUP, cut_into_groups
from zonebloom.storage.slices.reader import SliceSegment
from zonebloom.storage.slices.writer import SliceSegmentWriter
from zonebloom.storage.snapshot import load_trusted
from zonebloom.storage.transaction import Change
from zonebloom.storage.zone_segment import Zone, ZoneSegment, ZoneWriter
from zonebloom.stores.store import Store, undoing

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TILE = 512
"""Zones that the kernel slices at once."""
_WORKERS = 2
MOST_LOCATORS = 16
"""Locators of a column that a build leaves: a key reads a page of each, and all of them are read at once."""


@dataclass(frozen=True, slots=True)
class OptimizedColumn(Result):
    """The outcome for one column."""

    name: str
    """The column."""
    num_zones_rewritten: int
    """Zones in new segments."""
    num_zones_dropped: int
    """Zones of dropped fragments that were removed from the segments."""
    num_segments_before: int
    """Segments before."""
    num_segments: int
    """Segments now."""
    index_bytes_before: int
    """Bytes on disk before."""
    index_bytes: int
    """Bytes on disk now."""
    damage: tuple[str, ...]
    """Messages of damaged segments, which are unchanged."""


@dataclass(frozen=True, slots=True)
class Optimization(Result):
    """The outcome of `Index.optimize`."""

    version: int
    """The current version after the call."""
    columns: tuple[OptimizedColumn, ...]
    """The columns with rewritten segments; empty if there was nothing to do."""
    num_files_dropped: int
    """Removed files whose paths the index had, and has no longer."""

    @property
    def headline(self) -> str:
        """The outcome in a sentence."""
        if self.columns:
            return f"optimized {counted(len(self.columns), 'column')}"
        return f"dropped {counted(self.num_files_dropped, 'file')}" if self.num_files_dropped else "nothing to do"


def optimize(store: Store, manifest: Manifest) -> Optimization:
    """Merge the segments of the current version `manifest`, and commit the next version; the filters do not change.

    Its fragment lists have no dropped fragments.

    Raises
    ------
    CorruptIndexError
        A fragment list is damaged, so the dropped fragments are unknown.
    ConcurrentCommitError
        Another commit came first, and changed the same segments; nothing was changed.

    Spec: specs/slices.md#optimize
    """
    return _optimize(store, manifest, frozenset(), most_locators=0)


def finish(store: Store, columns: Sequence[str], *, is_merged: bool) -> None:
    """End a build of several steps: merge filters, and locators if they are many, and mark `columns` as finished.

    It starts from the current version, so a second call changes nothing.

    Raises
    ------
    CorruptIndexError, ConcurrentCommitError
        As `optimize`. The columns then stay unfinished, and the same build call resumes.

    Design: docs/design/refresh.md#steps
    """
    manifest = load_trusted(store)[0].manifest
    if is_merged:
        _optimize(store, manifest, frozenset(columns), most_locators=MOST_LOCATORS)
        return
    entries = [entry for entry in manifest.columns if entry.name in columns and entry.is_unfinished]
    if entries:
        finished = [replace(entry, is_unfinished=False) for entry in entries]
        commit_change(store, manifest, Change.between("build", entries, finished))


def _optimize(store: Store, manifest: Manifest, finished: frozenset[str], *, most_locators: int) -> Optimization:
    ids = [read_fragments(store, entry).fragment_ids for entry in manifest.fragment_lists]
    listed = np.concatenate([np.zeros(0, np.uint64), *ids])
    is_gone = is_in_runs(listed, manifest.dropped)
    live, num_gone = set(listed[~is_gone].tolist()), int(is_gone.sum())
    columns, done = [], []
    with undoing(store) as written:
        for entry in manifest.columns:
            column, outcome = optimize_column(store, entry, live, written.append, most_locators=most_locators)
            if column is not entry:
                done.append(outcome)
            columns.append(replace(column, is_unfinished=column.is_unfinished and entry.name not in finished))
    if columns == list(manifest.columns) and not num_gone:
        return Optimization(manifest.version, (), 0)
    change = replace(Change.between("optimize", manifest.columns, columns), is_cleaning=True)
    following = commit_change(store, manifest, change)
    return Optimization(following.version, tuple(done), num_gone)


def optimize_column(
    store: Store, entry: ColumnEntry, live: set[int], on_written: Callable[[str], object], *, most_locators: int = 0
) -> tuple[ColumnEntry, OptimizedColumn]:
    """Merge and write a column's segments without a commit; returns the new column and the outcome.

    If there is nothing to do, the column is `entry` itself. `on_written` gets the path of each new segment. Up to
    `most_locators` locators stay as they are.
    """
    damage: list[str] = []
    sources = []
    locators: Sequence[SegmentEntry] = [segment for segment in entry.segments if segment.kind == "locator"]
    blocks = [segment for segment in entry.segments if segment.kind != "locator"]
    for segment in blocks:
        try:
            sources.append(_open(store, segment, live))
        except CorruptIndexError as error:
            damage.append(str(error))
    chosen = _chosen(sources, damage, is_remote=store.is_remote)
    merged_locators = locators
    if len(locators) > most_locators:
        merged_locators, bad = merge_all(store, entry.name, locators, live, on_written)
        damage += bad
    kept = [segment for segment in (*blocks, *merged_locators) if all(segment is not source.entry for source in chosen)]
    new: list[SegmentEntry] = []
    for group in _groups(chosen, is_remote=store.is_remote):
        write = _write_zones if group.num_blocks == 0 else _write_slices
        new.append(write(store, entry, group))
        on_written(new[-1].path)
        for source in chosen:
            source.release()
    is_changed = chosen or merged_locators is not locators
    changed = replace(entry, segments=(*kept, *new)) if is_changed else entry
    written = [segment for segment in changed.segments if segment not in entry.segments]
    replaced = [segment for segment in entry.segments if segment not in changed.segments]
    rewritten = count_zones(written)
    outcome = OptimizedColumn(
        entry.name,
        rewritten,
        count_zones(replaced) - rewritten,
        len(entry.segments),
        len(changed.segments),
        entry.index_bytes,
        changed.index_bytes,
        tuple(damage),
    )
    return changed, outcome


# --- where filters come from ------------------------------------------------------------------------------------------


class _Source:
    """A segment whose zones may be merged."""

    def __init__(self, entry: SegmentEntry, filters: BlockFilters, live: set[int], release: Callable[[], None]) -> None:
        self.entry = entry
        self.filters = filters
        self.release = release
        self.positions = filters.positions
        live_ids = np.fromiter(live, np.uint64, len(live))
        self.is_live: NDArray[np.bool_] = np.isin(self.positions.fragment_ids, live_ids)
        self.num_blocks = filters.num_blocks

    def __len__(self) -> int:
        return len(self.filters)

    @property
    def is_sliced(self) -> bool:
        return isinstance(self.filters, SliceSegment)


def _open(store: Store, entry: SegmentEntry, live: set[int]) -> _Source:
    if entry.kind == "zones":
        opened = ZoneSegment(store, entry)
        zones, bad = opened.zones(keep_mapped=False)
        if bad:
            raise CorruptIndexError(bad[0])
        return _Source(entry, zones, live, opened.release)
    segment = SliceSegment(store, entry)
    return _Source(entry, segment, live, segment.release)


def _chosen(sources: Sequence[_Source], damage: list[str], *, is_remote: bool) -> list[_Source]:
    """The sources to rewrite; empty if there is nothing to do. All rows of chosen slice groups are checked."""
    zones = [source for source in sources if not source.is_sliced]
    groups = sorted((source for source in sources if source.is_sliced), key=len)
    is_dirty = any(not source.is_live.all() for source in zones)
    chosen = [source for source in groups if not source.is_live.all() and _is_sound(source, damage)]
    sizes: defaultdict[int, int] = defaultdict(int)
    for source in (*zones, *chosen):
        lengths, counts = np.unique(source.num_blocks[source.is_live], return_counts=True)
        for num_blocks, count in zip(lengths.tolist(), counts.tolist(), strict=True):
            sizes[num_blocks] += count
    for source in groups:
        num_blocks = int(source.num_blocks[0]) if len(source) else 0
        is_small = len(source) < min(FULL_GROUP, 2 * sizes[num_blocks])
        if source not in chosen and is_small and _is_sound(source, damage):
            chosen.append(source)
            sizes[num_blocks] += len(source)
    is_sliceable = any(cut_into_groups(count, is_remote=is_remote) for count in sizes.values())
    if chosen or is_dirty or is_sliceable or len(zones) > 1:
        return [*zones, *chosen]
    return []


def _is_sound(source: _Source, damage: list[str]) -> bool:
    is_sound = source.filters.verify()
    damage += source.filters.damage
    return is_sound


# --- which zones go where ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Group:
    """Zones of one new segment, in order of address."""

    num_blocks: int
    """Blocks of each filter; 0 for zones of any size, which are not sliced."""
    sources: Sequence[_Source] = field(repr=False)
    source: NDArray[np.int64] = field(repr=False)
    """For each zone, the number of its source."""
    zone: NDArray[np.int64] = field(repr=False)
    """For each zone, its number in the source."""
    positions: ZonePositions = field(repr=False)

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, chosen: slice) -> _Group:
        return replace(self, source=self.source[chosen], zone=self.zone[chosen], positions=self.positions[chosen])

    def stretches(self) -> Iterator[tuple[int, _Source, int, int]]:
        """Runs of zones that are consecutive in one source: first zone here, source, first zone there, count."""
        is_first = np.ones(len(self), np.bool_)
        is_first[1:] = (np.diff(self.source) != 0) | (np.diff(self.zone) != 1)
        firsts = np.flatnonzero(is_first).tolist()
        for first, stop in zip(firsts, [*firsts[1:], len(self)], strict=True):
            yield first, self.sources[int(self.source[first])], int(self.zone[first]), stop - first


def _groups(sources: Sequence[_Source], *, is_remote: bool) -> Iterator[_Group]:
    """The live zones of `sources` in groups of one filter size; the last group has the zones that are not sliced."""
    if not sources:
        return
    positions = ZonePositions.concatenated([source.positions for source in sources])
    source = np.repeat(np.arange(len(sources)), [len(opened) for opened in sources])
    zone = np.concatenate([np.arange(len(opened)) for opened in sources])
    num_blocks = np.concatenate([opened.num_blocks for opened in sources])
    order = np.lexsort((positions.zone_starts, positions.fragment_ids))
    order = order[np.concatenate([opened.is_live for opened in sources])[order]]
    left = np.ones(len(order), np.bool_)
    for size in np.unique(num_blocks[order]).tolist():
        is_mine = num_blocks[order] == size
        mine = order[is_mine]
        first = 0
        for count in cut_into_groups(len(mine), is_remote=is_remote):
            chosen = mine[first : first + count]
            yield _Group(size, sources, source[chosen], zone[chosen], positions[chosen])
            first += count
        left[is_mine] = not first
    rest = order[left]
    if len(rest):
        yield _Group(0, sources, source[rest], zone[rest], positions[rest])


# --- writing ----------------------------------------------------------------------------------------------------------


def _schema(entry: ColumnEntry) -> pa.Schema:
    return zone_schema(entry.rows_per_zone, entry.fpp, column=entry.name, column_type=entry.column_type)


def _write_slices(store: Store, entry: ColumnEntry, group: _Group) -> SegmentEntry:
    with SliceSegmentWriter(store, entry.name, _schema(entry), group.num_blocks, group.positions) as writer:
        layout = writer.layout
        bodies = layout.bodies()
        shape = (layout.blocks_per_body * ROWS_PER_BLOCK, layout.stride)
        buffers = [_zeros(shape) for _ in bodies[:2]]
        tiles = [(first, group[first : first + _TILE]) for first in range(0, len(group), _TILE)]
        shares = [tiles[number::_WORKERS] for number in range(min(_WORKERS, len(tiles)))]

        def sliced(number: int) -> NDArray[np.uint8]:
            first, stop = bodies[number]
            rows = buffers[number % 2][: (stop - first) * ROWS_PER_BLOCK]
            list(concurrently(lambda share: _slice_tiles(share, rows, bodies[number]), shares, _WORKERS))
            return rows

        parts = concurrently(sliced, range(len(bodies)), 1, ahead=1)  # a body is sliced while the last one is written
        for rows in parts:
            writer.write(rows)
        return writer.finish()


def _zeros(shape: tuple[int, int]) -> NDArray[np.uint8]:
    """Zeros aligned to a page, so the store can write them without the page cache."""
    return np.frombuffer(mmap.mmap(-1, shape[0] * shape[1]), np.uint8).reshape(shape)


def _slice_tiles(tiles: Sequence[tuple[int, _Group]], rows: NDArray[np.uint8], blocks: tuple[int, int]) -> None:
    """Slice blocks `blocks` of the zones of `tiles` into their part of `rows`."""
    from zonebloom.bloom.kernels import slices as kernels  # noqa: PLC0415 - keeps Numba out of plain searches

    first_block, stop_block = blocks
    filters = np.empty((_TILE, stop_block - first_block, 8), np.uint32)
    for first_zone, tile in tiles:
        for first, source, zone, count in tile.stretches():
            source.filters.copy_blocks(filters[first : first + count], zone, first_block)
        kernels.slice_zones(filters[: len(tile)], rows, first_zone)


def _write_zones(store: Store, entry: ColumnEntry, group: _Group) -> SegmentEntry:
    """A zone segment for zones whose filter size is too rare for slices."""
    places = zip(group.source.tolist(), group.zone.tolist(), strict=True)
    columns = (column.tolist() for column in group.positions.columns())
    with ZoneWriter(store, entry.name, _schema(entry)) as writer:
        for (source, zone), (fragment_id, start, length, has_null) in zip(
            places, zip(*columns, strict=True), strict=True
        ):
            bitset = group.sources[source].filters.blocks(zone).tobytes()
            writer.add(Zone(fragment_id, start, length, has_null, bitset))
        (segment,) = writer.finish()
        return segment
