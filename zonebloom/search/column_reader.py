"""`ColumnReader`: the trusted zones of a column, over all its segments.

Spec: specs/pruning.md#coverage
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from zonebloom.bloom.zones import CANNOT_MATCH, ZoneFilters, ZonePositions, ZonesOfEach
from zonebloom.errors import InvalidArgumentError
from zonebloom.reasons import Reason, ReasonCode
from zonebloom.search.selection import RowSelection
from zonebloom.storage.slices.reader import FEW_HASHES

if TYPE_CHECKING:
    from numpy.typing import NDArray

_AT_ONCE = 8
"""Segments of a remote index that are asked at once, as each answer takes a round trip."""
_Asked = TypeVar("_Asked")
_Answer = TypeVar("_Answer")


def answers(
    ask: Callable[[_Asked], _Answer], many: Sequence[_Asked], *, is_remote: bool, is_slow: bool = False
) -> Iterable[_Answer]:
    """What `ask` gives for each, in order; at once where an answer waits for a store or takes long."""
    if not (is_remote or is_slow) or len(many) < 2:  # noqa: PLR2004 - one needs no threads
        return map(ask, many)
    with ThreadPoolExecutor(_AT_ONCE if is_remote else 2) as pool:
        return list(pool.map(ask, many))


class OpenedSegment(NamedTuple):
    """A segment of a column, as far as it could be opened."""

    path: str
    """Its file in the index."""
    filters: ZoneFilters | None
    """Its undamaged zones; None if it cannot be opened."""
    lost: tuple[Reason, ...] = ()
    """Why some of its zones could not be opened; their rows are uncovered."""

    @property
    def is_damaged(self) -> bool:
        """Whether a part of it is known to differ from its checksum."""
        was_met = self.filters is not None and bool(self.filters.damage)
        return was_met or any(reason.code == ReasonCode.SEGMENT_CORRUPT for reason in self.lost)


class ColumnReader(ZoneFilters):
    """The trusted zones of a column over all its segments, in the order of the segments."""

    def __init__(self, segments: Sequence[OpenedSegment], *, is_remote: bool = False) -> None:
        self.segments = segments
        self.filters = [segment.filters for segment in segments if segment.filters is not None]
        """What could be opened of the segments."""
        self.lost = [reason for segment in segments for reason in segment.lost]
        """Why some zones could not be opened; their rows are uncovered."""
        self._is_remote = is_remote
        self._positions = ZonePositions.concatenated([one.positions for one in self.filters])
        self.covered = RowSelection.of_zones(self._positions)
        """The rows of the zones."""

    @property
    def positions(self) -> ZonePositions:
        """Where the zones lie in the data."""
        return self._positions

    @property
    def damage(self) -> tuple[str, ...]:
        """Messages of damage that probes have found."""
        return tuple(message for one in self.filters for message in one.damage)

    def _parts(self, mask: NDArray[np.bool_] | None) -> Iterator[tuple[ZoneFilters, NDArray[np.bool_] | None]]:
        """Each segment with its part of `mask`."""
        first = 0
        for one in self.filters:
            yield one, None if mask is None else mask[first : first + len(one)]
            first += len(one)

    def may_contain(self, hashes: NDArray[np.uint64], wanted: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
        """For each zone (in the mask `wanted`), whether it MAY_MATCH any of `hashes`; two threads probe many hashes.

        A segment none of whose zones is `wanted` is not probed.
        """

        def probed(part: tuple[ZoneFilters, NDArray[np.bool_] | None]) -> NDArray[np.bool_]:
            filters, mine = part
            if mine is not None and not mine.any():
                return np.full(len(filters), CANNOT_MATCH)
            return filters.may_contain(hashes, mine)

        is_slow = any(one.is_worth_thread(len(hashes)) for one in self.filters)
        parts = list(answers(probed, list(self._parts(wanted)), is_remote=self._is_remote, is_slow=is_slow))
        return np.concatenate(parts) if parts else np.zeros(0, np.bool_)

    def candidates(self, hashes: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Numbers of the zones that MAY_MATCH any of `hashes`, ascending."""
        if len(hashes) > FEW_HASHES:
            return np.flatnonzero(self.may_contain(hashes))
        if len(self.filters) == 1:
            return self.filters[0].candidates(hashes)
        first, parts = 0, []
        found_in = answers(lambda one: one.candidates(hashes), self.filters, is_remote=self._is_remote)
        for one, found in zip(self.filters, found_in, strict=True):
            if len(found):
                parts.append(found + first)
            first += len(one)
        return np.concatenate(parts) if parts else np.zeros(0, np.intp)

    def zones_of_each(self, hashes: NDArray[np.uint64]) -> ZonesOfEach:
        """For each of `hashes` the zones that MAY_MATCH it: indexes of hashes, and numbers of zones."""
        first, keys, zones = 0, [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        found_in = answers(lambda one: one.zones_of_each(hashes), self.filters, is_remote=self._is_remote)
        for one, (found_keys, found_zones) in zip(self.filters, found_in, strict=True):
            keys.append(found_keys)
            zones.append(found_zones + first)
            first += len(one)
        return np.concatenate(keys), np.concatenate(zones)

    def contained(self, hashes: NDArray[np.uint64], live: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
        """For each of `hashes`, whether any (live) zone MAY_MATCH it."""
        found = np.full(len(hashes), CANNOT_MATCH)
        pending = np.arange(len(hashes))
        for one, mine in self._parts(live):
            found[pending] = one.contained(hashes[pending], mine)
            pending = pending[~found[pending]]
        return found

    def zone_fpp(self, zone: int) -> float:
        """The false positive probability of one filter, from its bits."""
        for one in self.filters:
            if zone < len(one):
                return one.zone_fpp(zone)
            zone -= len(one)
        raise InvalidArgumentError(f"zone must be below {len(self)}, got {zone + len(self)}")

    def verify(self) -> bool:
        """Whether all segments are as they were written; damage is noted."""
        are_sound = [one.verify() for one in self.filters]
        return not self.lost and all(are_sound)
