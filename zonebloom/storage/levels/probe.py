"""Probing the levels from the top down: the data set's filter, then the fragments', then the remaining zones.

A level covers only the fragments that it was built from, by their ids, which are never used again. It says nothing
about a changed or new file. Values of a dropped file stay in it, and only make it pass more.

Spec: specs/levels.md#evaluate
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from zonebloom.bloom.sbbf import Sbbf
from zonebloom.bloom.split_block import block_indexes
from zonebloom.bloom.zones import MAY_MATCH, ZoneFilters, ZonePositions, ZonesOfEach
from zonebloom.errors import CorruptIndexError
from zonebloom.storage.arrow_file import reading
from zonebloom.storage.fragments import is_in_runs
from zonebloom.storage.level import LevelEntry
from zonebloom.storage.levels.fill import SPAN_BYTES
from zonebloom.storage.locator.reader import LocatorSegment
from zonebloom.storage.locator.zones import LocatedZones
from zonebloom.storage.segment import SegmentEntry, checksum
from zonebloom.storage.stores.store import Store
from zonebloom.storage.zone_segment import ZoneSegment

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from zonebloom.bloom.zones import ZoneTable

_FEW = 1024
_BLOCK_BYTES = 32


class DatasetFilter:
    """The filter of a data set, memory-mapped; the checksum of a span is verified before one of its blocks is used.

    Raises
    ------
    CorruptIndexError
        The file is missing or has another length.
    """

    def __init__(self, store: Store, entry: SegmentEntry) -> None:
        self._store = store
        self.entry = entry
        self.num_bytes = entry.num_bytes
        """Size of the bitset."""
        self.damage: str | None = None
        """The first damage that was found; then all values may be in the data set."""
        with reading(f"segment {entry.path}"):
            self._mapping = store.mapping(entry.path, is_sparse=True)
            self._buffer = self._mapping.buffer
            num_bytes = self._buffer.size
            wanted = [min(SPAN_BYTES, num_bytes - start) for start in range(0, num_bytes, SPAN_BYTES)]
            if not num_bytes or num_bytes % _BLOCK_BYTES or [span.num_bytes for span in entry.spans] != wanted:
                message = f"segment {entry.path} must have {entry.num_bytes} bytes in spans of {SPAN_BYTES}"
                raise CorruptIndexError(f"{message}, got {num_bytes} bytes")
            self._filter = Sbbf(np.frombuffer(self._buffer, "<u4").reshape(-1, 8))
        self._is_checked = np.zeros(len(entry.spans), np.bool_)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the place alone: another process opens the file."""
        return DatasetFilter, (self._store, self.entry)

    @property
    def num_blocks(self) -> int:
        """Blocks of the filter."""
        return self._filter.num_blocks

    def covers(self, fragment_ids: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """For each of `fragment_ids`, whether the filter was built from all rows of that fragment."""
        return is_in_runs(fragment_ids, self.entry.fragments)

    def check_hashes(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """For each hash, whether it may be in the data set; True for all if the filter is damaged."""
        if len(hashes) <= _FEW:
            blocks = block_indexes(hashes, self._filter.num_blocks)
            spans = np.unique(blocks * np.uint64(_BLOCK_BYTES) // np.uint64(SPAN_BYTES)).tolist()
        else:
            spans = range(len(self._is_checked))
        self._check_spans(spans)
        if self.damage is not None:
            return np.full(len(hashes), MAY_MATCH)
        return self._filter.check_hashes(hashes)

    def is_sound(self) -> bool:
        """Whether all spans have their checksums."""
        self._check_spans(range(len(self._is_checked)))
        return self.damage is None

    def to_sbbf(self) -> Sbbf:
        """A copy in memory.

        Raises
        ------
        CorruptIndexError
            The file differs from its checksums.
        """
        if not self.is_sound():
            raise CorruptIndexError(f"segment {self.entry.path} must be as it was written, got other bytes")
        return Sbbf(self._filter.blocks.copy())

    def _check_spans(self, spans: Sequence[int]) -> None:
        unchecked = [number for number in spans if not self._is_checked[number]]
        try:
            self._mapping.need([(number * SPAN_BYTES, self.entry.spans[number].num_bytes) for number in unchecked])
        except (FileNotFoundError, CorruptIndexError):
            self.damage = f"segment {self.entry.path} must have {self.entry.num_bytes} bytes, got fewer or none"
        for number in spans:
            if self.damage is not None or self._is_checked[number]:
                continue
            span = self.entry.spans[number]
            found = checksum(self._buffer.slice(number * SPAN_BYTES, span.num_bytes))
            if found == span.checksum:
                self._is_checked[number] = True
            else:
                self.damage = (
                    f"span {number} of segment {self.entry.path} must have checksum {span.checksum}, got {found}"
                )


class LeveledZones(ZoneFilters):
    """The zones of a column with the levels above them: at most the zones that the zones alone would give.

    `probes` counts the probed pairs of a hash and a filter, by level.

    Parameters
    ----------
    lost
        Messages of damaged levels, which are not among `datasets` and `fragments`.
    """

    def __init__(
        self,
        zones: ZoneFilters,
        datasets: Sequence[DatasetFilter],
        fragments: Sequence[ZoneTable],
        lost: Sequence[str] = (),
    ) -> None:
        self.zones = zones
        self.probes: Counter[str] = Counter()
        self._lost = tuple(lost)
        self._uncovered = np.ones(len(self), np.bool_)
        self._datasets: list[tuple[DatasetFilter, NDArray[np.bool_]]] = []
        for one in datasets:
            mine = one.covers(self.positions.fragment_ids) & self._uncovered
            self._uncovered &= ~mine
            self._datasets.append((one, mine))
        self._has_uncovered = bool(self._uncovered.any())
        self._fragments = [
            (table, _places(table.positions.fragment_ids, self.positions.fragment_ids))
            for table in fragments
            if len(table)
        ]

    @property
    def positions(self) -> ZonePositions:
        """Where the zones lie in the data."""
        return self.zones.positions

    @property
    def level_damage(self) -> tuple[str, ...]:
        """Damage of the levels; it costs no rows, since the zones are probed instead."""
        return (*self._lost, *(one.damage for one, _ in self._datasets if one.damage is not None))

    @property
    def damage(self) -> tuple[str, ...]:
        """Damage of the zones and of the levels."""
        return (*self.zones.damage, *self.level_damage)

    def verify(self) -> bool:
        """Whether the zones and the data set's filters are as they were written; a damaged filter is not used."""
        are_sound = [one.is_sound() for one, _ in self._datasets]
        return self.zones.verify() and all(are_sound)

    def zone_fpp(self, zone: int) -> float:
        """The exact false positive probability of one zone's filter."""
        return self.zones.zone_fpp(zone)

    def may_contain(self, hashes: NDArray[np.uint64], wanted: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
        """For each zone (in the mask `wanted`), whether it MAY_MATCH any of `hashes`.

        Cost: one block for an absent hash; else one block a fragment, and the zones of the fragments that may hold the
        hash.
        """
        found = np.zeros(len(self), np.bool_)
        for one, mine in self._datasets:
            self.probes["dataset"] += len(hashes)
            passing = hashes[one.check_hashes(hashes)]
            if len(passing):
                found |= self._below(passing, mine if wanted is None else mine & wanted)
        if self._has_uncovered:
            found |= self._below(hashes, self._uncovered if wanted is None else self._uncovered & wanted)
        return found

    def _below(self, hashes: NDArray[np.uint64], wanted: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The zones among `wanted` that may contain any of `hashes`, by the fragments' filters and their own."""
        for table, fragment_of_zone in self._fragments:
            self.probes["fragment"] += len(hashes) * len(table)
            may = np.append(table.may_contain(hashes), True)  # the last is for zones of no fragment: -1
            wanted = wanted & may[fragment_of_zone]
        if not wanted.any():
            return wanted
        self.probes["zone"] += len(hashes) * int(wanted.sum())
        return self.zones.may_contain(hashes, wanted)

    def zones_of_each(self, hashes: NDArray[np.uint64]) -> ZonesOfEach:
        """For each of `hashes` the zones that MAY_MATCH it; those that a data set's filter rules out have none."""
        pending = np.flatnonzero(self._passing_above(hashes))
        keys, zones = self.zones.zones_of_each(hashes[pending])
        return pending[keys], zones

    def _passing_above(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """For each of `hashes`, whether the data set's filters cannot rule it out in all zones."""
        found = np.full(len(hashes), self._has_uncovered)
        for one, _ in self._datasets:
            self.probes["dataset"] += len(hashes)
            found |= one.check_hashes(hashes)
        return found

    def contained(self, hashes: NDArray[np.uint64], live: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
        """For each of `hashes`, whether any (live) zone may contain it.

        Cost: one block a hash if the data set's filter covers every live fragment; else zones are probed for the rest.
        """
        found = np.zeros(len(hashes), np.bool_)
        rest = self._uncovered if live is None else self._uncovered & live
        for one, mine in self._datasets:
            if (mine if live is None else mine & live).any():
                self.probes["dataset"] += len(hashes)
                answers = one.check_hashes(hashes)
                if one.damage is not None:
                    rest = rest | (mine if live is None else mine & live)
                else:
                    found |= answers
        if rest.any():
            pending = np.flatnonzero(~found)
            self.probes["zone"] += len(pending) * int(rest.sum())
            found[pending] = self.zones.contained(hashes[pending], rest)
        return found


def open_levels(store: Store, levels: Sequence[LevelEntry], zones: ZoneFilters) -> LeveledZones | LocatedZones:
    """`zones` with the levels above them that are sound and known to this version."""
    datasets: list[DatasetFilter] = []
    fragments: list[ZoneTable] = []
    locators: list[LocatorSegment] = []
    lost: list[str] = []
    for segment in (one for level in levels for one in level.segments):
        try:
            if segment.kind == "sbbf":
                datasets.append(DatasetFilter(store, segment))
            elif segment.kind == "locator":
                locators.append(LocatorSegment(store, segment))
            elif segment.kind == "zones":
                table, damage = ZoneSegment(store, segment).zones()
                fragments.append(table)
                lost += damage
        except CorruptIndexError as error:
            lost.append(str(error))
    leveled = LeveledZones(zones, datasets, fragments, lost)
    return LocatedZones(leveled, locators) if locators else leveled


def _places(known: NDArray[np.uint64], wanted: NDArray[np.uint64]) -> NDArray[np.int64]:
    """For each of `wanted` its position in `known`, which is in any order; -1 if absent."""
    order = np.argsort(known)
    place = np.minimum(np.searchsorted(known[order], wanted), len(known) - 1)
    return np.where(known[order[place]] == wanted, order[place], -1)
