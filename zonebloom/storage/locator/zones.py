"""`LocatedZones`: the zones of a column with locators above their filters; a locator answers wherever there is one.

A locator speaks of its own zones, by fragment and first row. Zones that no sound locator knows are asked as before.

Spec: specs/locator.md#level
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from zonebloom.bloom.zones import ZoneFilters, ZonePositions, ZonesOfEach
from zonebloom.errors import CorruptIndexError
from zonebloom.storage.locator.reader import LocatorSegment

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from zonebloom.storage.levels.probe import LeveledZones

_FEW_ZONES = 1024


class LocatedZones(ZoneFilters):
    """Zones by their locators; a zone that none of them knows, or of a damaged one, by its filter.

    - Zones have the numbers that they have in `zones`.
    """

    def __init__(self, zones: LeveledZones, segments: Sequence[LocatorSegment]) -> None:
        self.zones = zones
        self._unlocated = np.ones(len(self), np.bool_)
        self._located: list[tuple[LocatorSegment, NDArray[np.int64]]] = []
        addresses = self.positions.addresses
        order = np.argsort(addresses, kind="stable")
        for segment in segments:
            places = self._places(segment, addresses, order)
            self._unlocated[places[places >= 0]] = False
            self._located.append((segment, places))

    def _places(
        self, segment: LocatorSegment, addresses: NDArray[np.uint64], order: NDArray[np.intp]
    ) -> NDArray[np.int64]:
        """The number here of each zone of the segment; -1 where the same zone is not there."""
        if not len(self):
            return np.full(len(segment), -1)
        wanted = segment.positions.addresses
        places = order[np.minimum(addresses[order].searchsorted(wanted), len(self) - 1)]
        is_same = (addresses[places] == wanted) & (
            self.positions.zone_lengths[places] == segment.positions.zone_lengths
        )
        return np.where(is_same, places, -1)

    @property
    def positions(self) -> ZonePositions:
        """Where the zones lie in the data."""
        return self.zones.positions

    @property
    def level_damage(self) -> tuple[str, ...]:
        """What was found to be damaged of the levels; no row is kept for it, as the zones beneath are asked."""
        return (*self.zones.level_damage, *(message for one, _ in self._located for message in one.damage))

    @property
    def damage(self) -> tuple[str, ...]:
        """What was found to be damaged of the zones and of the levels."""
        return (*self.zones.damage, *(message for one, _ in self._located for message in one.damage))

    def lookup(self, hashes: NDArray[np.uint64]) -> tuple[ZonesOfEach, NDArray[np.bool_]]:
        """The zones that hold each hash, as the locators say, and the zones of which no sound locator speaks."""
        keys, zones, rest = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], self._unlocated
        for places, found in self._answers(hashes):
            if found is None:
                rest = rest.copy()
                rest[places[places >= 0]] = True
                continue
            numbers = places[found[1]]
            keys.append(found[0][numbers >= 0])
            zones.append(numbers[numbers >= 0])
        return (np.concatenate(keys), np.concatenate(zones)), rest

    def _answers(self, hashes: NDArray[np.uint64]) -> Iterator[tuple[NDArray[np.int64], ZonesOfEach | None]]:
        for segment, places in self._located:
            try:
                yield places, segment.lookup(hashes)
            except CorruptIndexError:  # it was reported where it was found
                yield places, None

    def candidates(self, hashes: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Numbers of the zones that may hold any of `hashes`, ascending."""
        (_, zones), rest = self.lookup(hashes)
        if rest.any():
            others = self.zones.candidates(hashes)
            zones = np.concatenate((zones, others[rest[others]]))
        if len(zones) <= _FEW_ZONES:
            return np.array(sorted(set(zones.tolist())), np.intp)
        is_found = np.zeros(len(self), np.bool_)
        is_found[zones] = True
        return is_found.nonzero()[0]

    def zones_of_each(self, hashes: NDArray[np.uint64]) -> ZonesOfEach:
        """For each of `hashes` the zones that may hold it."""
        (keys, zones), rest = self.lookup(hashes)
        if not rest.any():
            return keys, zones
        other_keys, others = self.zones.zones_of_each(hashes)
        is_mine = rest[others]
        return np.concatenate((keys, other_keys[is_mine])), np.concatenate((zones, others[is_mine]))

    @property
    def segments(self) -> list[LocatorSegment]:
        """The locators."""
        return [segment for segment, _ in self._located]

    def may_contain(self, hashes: NDArray[np.uint64], wanted: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
        """For each zone (in the mask `wanted`), whether any of `hashes` may be in it."""
        found = np.zeros(len(self), np.bool_)
        found[self.candidates(hashes)] = True
        return found if wanted is None else found & wanted

    def contained(self, hashes: NDArray[np.uint64], live: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
        """For each of `hashes`, whether any (live) zone may contain it."""
        (keys, zones), rest = self.lookup(hashes)
        found = np.zeros(len(hashes), np.bool_)
        found[keys if live is None else keys[live[zones]]] = True
        rest = rest if live is None else rest & live
        if rest.any():
            pending = np.flatnonzero(~found)
            found[pending] = self.zones.contained(hashes[pending], rest)
        return found

    def zone_fpp(self, zone: int) -> float:
        """The false positive probability of one zone: its filter's, or 0, as a locator names hardly any by chance."""
        return self.zones.zone_fpp(zone) if self._unlocated[zone] else 0.0

    def verify(self) -> bool:
        """Whether locators and levels are as they were written; what is not is noted as damage, and not used."""
        num_damaged = sum(not segment.verify() for segment, _ in self._located)
        return self.zones.verify() and not num_damaged
