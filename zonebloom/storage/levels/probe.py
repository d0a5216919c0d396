"""Asking the levels from the top down: the data set's filter, then the fragments', then the zones of what is left.

A level speaks only of the fragments that it was built from, by their ids, which are never used again: for a changed or
new file it says nothing, and what it still knows of a file that is gone only makes it pass more.

Spec: specs/levels.md#evaluate
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from zonebloom.bloom.sbbf import Sbbf, block_indexes
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

__all__ = ["DatasetFilter", "LeveledZones", "open_levels"]

_FEW = 1024
_BLOCK_BYTES = 32


class DatasetFilter:
    """The filter of a data set, memory-mapped; no block is believed before the checksum of its span was seen to hold.

    Raises
    ------
    CorruptIndexError
        The file is missing or has another length.
    """

    def __init__(self, store: Store, entry: SegmentEntry, on_damage: Callable[[str], Any]) -> None:
        self.entry = entry
        self.is_damaged = False
        self._on_damage = on_damage
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

    @property
    def num_blocks(self) -> int:
        """Blocks of the filter."""
        return self._filter.num_blocks

    def covers(self, fragment_ids: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """For each of `fragment_ids`, whether the filter was built from all rows of that fragment."""
        return is_in_runs(fragment_ids, self.entry.fragments)

    def check(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """For each hash, whether it may be in the data set; all may, once the filter turns out damaged."""
        if len(hashes) <= _FEW:
            blocks = block_indexes(hashes, self._filter.num_blocks)
            spans = np.unique(blocks * np.uint64(_BLOCK_BYTES) // np.uint64(SPAN_BYTES)).tolist()
        else:
            spans = range(len(self._is_checked))
        self._check_spans(spans)
        if self.is_damaged:
            return np.ones(len(hashes), np.bool_)
        return self._filter.check_hashes(hashes)

    def is_sound(self) -> bool:
        """Whether the file has its checksums, all of which are checked."""
        self._check_spans(range(len(self._is_checked)))
        return not self.is_damaged

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
            self.is_damaged = True
            self._on_damage(f"segment {self.entry.path} must have {self.entry.num_bytes} bytes, got fewer or none")
        for number in spans:
            if self.is_damaged or self._is_checked[number]:
                continue
            span = self.entry.spans[number]
            found = checksum(self._buffer.slice(number * SPAN_BYTES, span.num_bytes))
            if found == span.checksum:
                self._is_checked[number] = True
            else:
                self.is_damaged = True
                self._on_damage(
                    f"span {number} of segment {self.entry.path} must have checksum {span.checksum}, got {found}"
                )


class _Base(Protocol):
    """The zones beneath, as `LoadedColumn` has them."""

    fragment_ids: NDArray[np.uint64]
    zone_starts: NDArray[np.uint64]
    zone_lengths: NDArray[np.uint64]
    has_null: NDArray[np.bool_]

    def may_contain(self, hashes: NDArray[np.uint64], wanted: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]: ...

    def contained(self, hashes: NDArray[np.uint64], live: NDArray[np.bool_] | None) -> NDArray[np.bool_]: ...

    def zone_fpp(self, zone: int) -> float: ...


class LeveledZones:
    """The zones of a column with the levels above them; answers as the zones do, and never keeps more.

    `probes` counts the pairs of a hash and a filter that were asked, by level.
    """

    def __init__(self, zones: _Base, datasets: Sequence[DatasetFilter], fragments: Sequence[ZoneTable]) -> None:
        self.zones = zones
        self.fragment_ids = zones.fragment_ids
        self.zone_starts = zones.zone_starts
        self.zone_lengths = zones.zone_lengths
        self.has_null = zones.has_null
        self.probes: Counter[str] = Counter()
        self._uncovered = np.ones(len(self), np.bool_)
        self._datasets: list[tuple[DatasetFilter, NDArray[np.bool_]]] = []
        for one in datasets:
            mine = one.covers(self.fragment_ids) & self._uncovered
            self._uncovered &= ~mine
            self._datasets.append((one, mine))
        self._has_uncovered = bool(self._uncovered.any())
        self._fragments = [
            (table, _positions(table.fragment_ids, self.fragment_ids)) for table in fragments if len(table)
        ]

    def __len__(self) -> int:
        return len(self.fragment_ids)

    def verify(self) -> bool:
        """Whether the data set's filters are as they were written; what is not is noted as damage, and not used."""
        damaged = [one for one, _ in self._datasets if not one.is_sound()]
        return not damaged

    def zone_fpp(self, zone: int) -> float:
        """The exact false positive probability of one zone's filter."""
        return self.zones.zone_fpp(zone)

    def may_contain(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """For each zone, whether any of `hashes` may be in it.

        Cost: one block for a hash that is nowhere; else one block a fragment, and the zones of fragments that may hold
        it.
        """
        found = np.zeros(len(self), np.bool_)
        for one, mine in self._datasets:
            self.probes["dataset"] += len(hashes)
            passing = hashes[one.check(hashes)]
            if len(passing):
                found |= self._below(passing, mine)
        if self._has_uncovered:
            found |= self._below(hashes, self._uncovered)
        return found

    def candidates(self, hashes: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Numbers of the zones that may hold any of `hashes`, ascending."""
        return np.flatnonzero(self.may_contain(hashes))

    def _below(self, hashes: NDArray[np.uint64], wanted: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The zones among `wanted` that may contain any of `hashes`, by the fragments' filters and their own."""
        for table, fragment_of_zone in self._fragments:
            self.probes["fragment"] += len(hashes) * len(table)
            may = np.append(table.may_contain(hashes), True)  # the last is for zones of no fragment: -1
            wanted = wanted & may[fragment_of_zone]
        if not wanted.any():
            return wanted
        self.probes["zone"] += len(hashes) * int(wanted.sum())
        return self.zones.may_contain(hashes, wanted) & wanted

    def contained(self, hashes: NDArray[np.uint64], live: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
        """For each of `hashes`, whether any (live) zone may contain it.

        Cost: one block a hash where the data set's filter covers every live fragment; zones are asked only for others.
        """
        found = np.zeros(len(hashes), np.bool_)
        rest = self._uncovered if live is None else self._uncovered & live
        for one, mine in self._datasets:
            if (mine if live is None else mine & live).any():
                self.probes["dataset"] += len(hashes)
                answers = one.check(hashes)
                if one.is_damaged:
                    rest = rest | (mine if live is None else mine & live)
                else:
                    found |= answers
        if rest.any():
            pending = np.flatnonzero(~found)
            self.probes["zone"] += len(pending) * int(rest.sum())
            found[pending] = self.zones.contained(hashes[pending], rest)
        return found


def open_levels(
    store: Store, levels: Sequence[LevelEntry], zones: _Base, on_damage: Callable[[str], Any]
) -> LeveledZones | LocatedZones:
    """`zones` with the levels above them that are sound and known to this version."""
    datasets: list[DatasetFilter] = []
    fragments: list[ZoneTable] = []
    locators: list[LocatorSegment] = []
    for segment in (one for level in levels for one in level.segments):
        try:
            if segment.kind == "sbbf":
                datasets.append(DatasetFilter(store, segment, on_damage))
            elif segment.kind == "locator":
                locators.append(LocatorSegment(store, segment, on_damage=on_damage))
                assert len(locators[-1].positions) == len(locators[-1])
            elif segment.kind == "zones":
                table, damage = ZoneSegment(store, segment).zones()
                fragments.append(table)
                for message in damage:
                    on_damage(message)
        except CorruptIndexError as error:
            on_damage(str(error))
    leveled = LeveledZones(zones, datasets, fragments)
    return LocatedZones(leveled, locators) if locators else leveled


def _positions(known: NDArray[np.uint64], wanted: NDArray[np.uint64]) -> NDArray[np.int64]:
    """For each of `wanted` its position in `known`, in any order; -1 where it is not there."""
    order = np.argsort(known)
    place = np.minimum(np.searchsorted(known[order], wanted), len(known) - 1)
    return np.where(known[order[place]] == wanted, order[place], -1)
