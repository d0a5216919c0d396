"""`ColumnReader`: the trusted zones of a column; the cheapest sound segment that covers a zone answers for it.

A column has segments of three kinds. A locator reads two pages for a key, a slice segment 8 rows for each group of
zones, a zone segment one block for each zone. So locators are probed first. Filters that a locator covers are not
opened. If a segment is damaged, other segments answer for its zones. If no other segment covers a zone, it MAY_MATCH.

Spec: specs/pruning.md#coverage
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from zonebloom.bloom.selection import RowSelection
from zonebloom.bloom.zones import CANNOT_MATCH, MAY_MATCH, ZoneFilters, ZonePositions, ZonesOfEach
from zonebloom.ground.errors import InvalidArgumentError
from zonebloom.ground.reasons import Reason, ReasonCode
from zonebloom.ground.threads import concurrently
from zonebloom.storage.segment import SegmentEntry, covered_by, joined_runs
from zonebloom.storage.slices.reader import FEW_HASHES

if TYPE_CHECKING:
    from numpy.typing import NDArray

_COST = {"locator": 0, "slices": 1, "zones": 2}
"""Order of preference among segments that cover the same zone."""
SEGMENTS_AT_ONCE = 64
"""Segments of a remote index that are probed at once: each answer takes a round trip. A build leaves at most 16
locators; each refresh that finds new files adds one."""
_FEW_ZONES = 1024
"""Up to this many zone numbers, sorting is faster than a mask of all zones."""
_Answer = TypeVar("_Answer")


class OpenedSegment(NamedTuple):
    """A segment of a column, as far as it could be opened."""

    entry: SegmentEntry
    """Its description in the version file."""
    filters: ZoneFilters | None
    """Its undamaged zones; None if it cannot be opened."""
    lost: tuple[Reason, ...] = ()
    """Why some of its zones could not be opened."""

    @property
    def is_damaged(self) -> bool:
        """Whether a part of it is known to differ from its checksum."""
        was_met = self.filters is not None and bool(self.filters.damage)
        return was_met or any(reason.code == ReasonCode.SEGMENT_CORRUPT for reason in self.lost)

    @property
    def is_sound(self) -> bool:
        """Whether all of it could be opened, and no probe found damage."""
        return not self.damage

    @property
    def damage(self) -> tuple[str, ...]:
        """Messages of all that is damaged or cannot be opened."""
        return (*(reason.message for reason in self.lost), *(() if self.filters is None else self.filters.damage))


class _Part(NamedTuple):
    """One segment, and the zones for which it answers."""

    filters: ZoneFilters
    places: NDArray[np.intp]
    """For each zone of the segment, its number in the column; -1 if another segment answers for it."""
    is_whole: bool
    """Whether it answers for all its zones."""

    def numbers(self, zones: NDArray[np.intp]) -> NDArray[np.intp]:
        """The numbers in the column of those given zones of the segment for which it answers."""
        numbers = self.places[zones]
        return numbers if self.is_whole else numbers[numbers >= 0]

    def mask(self, live: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
        """The zones of the segment that are in the mask `live` of the column; None for all."""
        if live is None:
            return None if self.is_whole else self.places >= 0
        return live[self.places] if self.is_whole else live[self.places] & (self.places >= 0)


class _Shares(NamedTuple):
    """The segments, and the zones for which each answers."""

    parts: tuple[_Part, ...]
    silent: NDArray[np.intp]
    """The zones that no sound segment covers: they MAY_MATCH."""
    is_plain: bool
    """Whether one segment answers for all zones, and numbers them as the column does."""


class ColumnReader(ZoneFilters):
    """The trusted zones of a column over all its segments, in order of address; each zone once.

    Parameters
    ----------
    entries
        The segments of the column.
    opened
        Opens segments, all at once.
    """

    def __init__(
        self,
        entries: Sequence[SegmentEntry],
        opened: Callable[[Sequence[SegmentEntry]], Sequence[OpenedSegment]],
        *,
        is_remote: bool = False,
    ) -> None:
        self._opener = opened
        self._workers = SEGMENTS_AT_ONCE if is_remote else 0
        self.segments: list[OpenedSegment] = []
        """The segments opened so far."""
        self._unopened = list(entries)
        self._open([entry for entry in entries if entry.kind == "locator"])
        covered = covered_by(segment.entry for segment in self.segments if segment.is_sound)
        self._open([entry for entry in self._unopened if joined_runs((*covered, *entry.fragments)) != covered])
        filters = self.filters
        self._positions, places = _united([part.positions for part in filters])
        self._places = list(zip(filters, places, strict=True))
        self._shares = self._shared_out()
        self.covered: RowSelection = RowSelection.of_zones(self._positions)
        """The rows of the zones."""

    def _open(self, entries: Sequence[SegmentEntry]) -> None:
        if entries:
            opened = [*self.segments, *self._opener(entries)]
            self.segments = sorted(opened, key=lambda segment: _COST.get(segment.entry.kind, 0))
            self._unopened = [entry for entry in self._unopened if entry not in entries]

    def open_all(self) -> None:
        """Open the segments that no search has needed so far."""
        self._open(self._unopened)
        placed = [filters for filters, _ in self._places]
        added = [filters for filters in self.filters if all(filters is not other for other in placed)]
        self._places += [(filters, self._places_of(filters.positions)) for filters in added]

    def _places_of(self, positions: ZonePositions) -> NDArray[np.intp]:
        """The number in the column of each zone; -1 if the column has no such zone."""
        if not len(self):
            return np.full(len(positions), -1)
        places = np.minimum(self._positions.addresses.searchsorted(positions.addresses), len(self) - 1)
        united = self._positions[places]
        is_same = (united.addresses == positions.addresses) & (united.zone_lengths == positions.zone_lengths)
        return np.where(is_same, places, -1)

    @property
    def filters(self) -> list[ZoneFilters]:
        """The filters of open segments, the cheapest first."""
        return [segment.filters for segment in self.segments if segment.filters is not None]

    @property
    def lost(self) -> list[Reason]:
        """Why some segments, or zones of them, could not be opened."""
        return [reason for segment in self.segments for reason in segment.lost]

    @property
    def positions(self) -> ZonePositions:
        """Positions of the zones in the data."""
        return self._positions

    @property
    def damage(self) -> tuple[str, ...]:
        """Messages of damage that probes have found."""
        return tuple(message for filters in self.filters for message in filters.damage)

    @property
    def damaged_segments(self) -> frozenset[str]:
        """Paths of the segments that were found to be damaged so far."""
        return frozenset(segment.entry.path for segment in self.segments if segment.is_damaged)

    def is_spared(self, segment: OpenedSegment) -> bool:
        """Whether sound segments cover all files of a damaged segment; then the damage keeps no row."""
        sound = [*self._unopened, *(segment.entry for segment in self.segments if segment.is_sound)]
        return covered_by([*sound, segment.entry]) == covered_by(sound)

    # --- who answers --------------------------------------------------------------------------------------------------

    def _shared_out(self) -> _Shares:
        """Each zone assigned to the cheapest segment that covers it and is not known to be damaged."""
        is_free = np.ones(len(self), np.bool_)
        parts = []
        for filters, places in self._places:
            if filters.damage or not len(places):
                continue
            is_mine = is_free[places] & (places >= 0)
            if is_mine.any():
                is_whole = bool(is_mine.all())
                parts.append(_Part(filters, places if is_whole else np.where(is_mine, places, -1), is_whole))
                is_free[places[is_mine]] = False
        is_plain = len(parts) == 1 and bool(np.array_equal(parts[0].places, np.arange(len(self))))
        return _Shares(tuple(parts), is_free.nonzero()[0], is_plain)

    def _is_answered(self, shares: _Shares) -> bool:
        """Whether no probed segment is damaged; if one is, other segments answer from now on."""
        if not any(part.filters.damage for part in shares.parts):
            return True
        self.open_all()
        self._shares = self._shared_out()
        return False

    def _asked(self, ask: Callable[[_Part], _Answer], *, is_slow: bool = False) -> tuple[_Shares, Sequence[_Answer]]:
        """The segments with their zones, and the answer of each; repeated until no probed segment is damaged."""
        while True:
            shares = self._shares
            answers = list(concurrently(ask, shares.parts, self._workers or 2 * is_slow))
            if self._is_answered(shares):
                return shares, answers

    def candidates(self, hashes: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Numbers of the zones that MAY_MATCH any of `hashes`, ascending; two threads probe many hashes."""
        shares = self._shares
        if shares.is_plain:  # the way below costs a tenth of a search for one key
            answer = shares.parts[0].filters.candidates(hashes)
            if self._is_answered(shares):
                return answer
        is_many = len(hashes) > FEW_HASHES
        is_slow = is_many and any(part.filters.is_worth_thread(len(hashes)) for part in self._shares.parts)
        shares, answers = self._asked(lambda part: part.filters.candidates(hashes), is_slow=is_slow)
        if shares.is_plain:
            return answers[0]
        numbers = (part.numbers(zones) for part, zones in zip(shares.parts, answers, strict=True))
        zones = np.concatenate([shares.silent, *numbers])
        if len(zones) <= _FEW_ZONES:
            zones.sort()
            return zones
        is_found = np.zeros(len(self), np.bool_)
        is_found[zones] = True
        return is_found.nonzero()[0]

    def zones_of_each(self, hashes: NDArray[np.uint64]) -> ZonesOfEach:
        """For each of `hashes` the zones that MAY_MATCH it: indexes of hashes, and numbers of zones."""
        shares, answers = self._asked(lambda part: part.filters.zones_of_each(hashes))
        if shares.is_plain:
            return answers[0]
        keys = [np.repeat(np.arange(len(hashes)), len(shares.silent))]
        zones = [np.tile(shares.silent, len(hashes))]
        for part, (found_keys, found_zones) in zip(shares.parts, answers, strict=True):
            places = part.places[found_zones]
            keys.append(found_keys if part.is_whole else found_keys[places >= 0])
            zones.append(part.numbers(found_zones))
        return np.concatenate(keys), np.concatenate(zones)

    def contained(self, hashes: NDArray[np.uint64], live: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
        """For each of `hashes`, whether any (live) zone MAY_MATCH it."""
        while True:
            shares = self._shares
            if len(shares.silent) and (live is None or live[shares.silent].any()):
                return np.full(len(hashes), MAY_MATCH)
            is_contained = np.full(len(hashes), CANNOT_MATCH)
            if self._workers:
                contained = partial(_contained, hashes, live)
                for answer in concurrently(contained, shares.parts, self._workers):
                    is_contained |= answer
            else:
                pending = np.arange(len(hashes))
                for part in shares.parts:
                    is_contained[pending] = _contained(hashes[pending], live, part)
                    pending = pending[~is_contained[pending]]
            if self._is_answered(shares):
                return is_contained

    def zone_fpp(self, zone: int) -> float:
        """The false positive probability of one zone, by the segment that answers for it."""
        for part in self._shares.parts:
            for place in np.flatnonzero(part.places == zone).tolist():
                return part.filters.zone_fpp(place)
        if zone < len(self):
            return 1.0
        raise InvalidArgumentError(f"zone must be below {len(self)}", got=zone)

    def verify(self) -> bool:
        """Whether all bytes of all segments match their checksums; damage is recorded."""
        self.open_all()
        are_sound = [filters.verify() for filters in self.filters]
        return not self.lost and all(are_sound)


def _contained(hashes: NDArray[np.uint64], live: NDArray[np.bool_] | None, part: _Part) -> NDArray[np.bool_]:
    """For each of `hashes`, whether any (live) zone of a segment MAY_MATCH it."""
    return part.filters.contained(hashes, part.mask(live))


def _united(parts: Sequence[ZonePositions]) -> tuple[ZonePositions, list[NDArray[np.intp]]]:
    """The zones of all parts in order of address, each once; and for each part the numbers of its zones there."""
    whole = parts[0] if len(parts) == 1 else ZonePositions.concatenated(parts)
    addresses = whole.addresses
    numbers = np.arange(len(whole))
    if not bool((addresses[1:] > addresses[:-1]).all()):
        order = np.argsort(addresses, kind="stable")
        firsts, lengths = addresses[order], whole.zone_lengths[order]
        is_new = np.ones(len(order), np.bool_)
        is_new[1:] = (firsts[1:] != firsts[:-1]) | (lengths[1:] != lengths[:-1])
        numbers[order] = np.cumsum(is_new) - 1
        whole = whole[order[is_new]]
    ends = np.cumsum([0, *map(len, parts)]).tolist()
    return whole, [numbers[first:end] for first, end in pairwise(ends)]
