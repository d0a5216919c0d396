"""`LoadedColumn`: the trusted zones of a column, over all its segments.

Spec: specs/pruning.md#coverage
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from zonebloom.bloom.zones import ZonePositions, ZoneTable
from zonebloom.errors import InvalidArgumentError
from zonebloom.reasons import Reason
from zonebloom.search.selection import RowSelection
from zonebloom.storage.slices.reader import FEW_HASHES, SliceSegment

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LoadedColumn", "answers"]

_AT_ONCE = 8
"""Segments of a remote index that are asked at once, as each answer takes a round trip."""
_Asked = TypeVar("_Asked")
_Answer = TypeVar("_Answer")


def answers(ask: Callable[[_Asked], _Answer], many: Sequence[_Asked], *, is_remote: bool) -> Iterable[_Answer]:
    """What `ask` gives for each, in order; of a remote index at once."""
    if not is_remote or len(many) < 2:  # noqa: PLR2004 - one needs no threads
        return map(ask, many)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(ask, many))


class LoadedColumn:
    """The trusted zones of a column over all its segments, in the order of the segments."""

    def __init__(
        self, tables: list[ZoneTable | SliceSegment], damage: list[Reason], *, is_remote: bool = False
    ) -> None:
        self.tables = tables
        self._is_remote = is_remote
        self.damage = damage

        self.positions = ZonePositions.concatenated([table.positions for table in tables])
        self.covered = RowSelection.of_zones(self.positions)

    def __len__(self) -> int:
        return len(self.positions)

    def may_contain(self, hashes: NDArray[np.uint64], wanted: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
        """For each zone, whether any of `hashes` may be in it; many hashes are probed by two threads.

        A segment none of whose zones is `wanted` is not probed, and has none that may.
        """

        def probed(table: ZoneTable | SliceSegment, first: int) -> NDArray[np.bool_]:
            if wanted is not None and not wanted[first : first + len(table)].any():
                return np.zeros(len(table), np.bool_)
            return table.may_contain(hashes)

        firsts = [0, *accumulate(map(len, self.tables))][:-1]
        if len(hashes) <= FEW_HASHES or len(self.tables) == 1:
            parts = [probed(table, first) for table, first in zip(self.tables, firsts, strict=True)]
        else:
            with ThreadPoolExecutor(2) as pool:
                parts = list(pool.map(probed, self.tables, firsts))
        return np.concatenate(parts) if parts else np.zeros(0, np.bool_)

    def candidates(self, hashes: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Numbers of the zones that may hold any of `hashes`, ascending."""
        if len(hashes) > FEW_HASHES:
            return np.flatnonzero(self.may_contain(hashes))
        if len(self.tables) == 1:
            return self.tables[0].candidates(hashes)
        first, parts = 0, []
        found_in = answers(lambda table: table.candidates(hashes), self.tables, is_remote=self._is_remote)
        for table, found in zip(self.tables, found_in, strict=True):
            if len(found):
                parts.append(found + first)
            first += len(table)
        return np.concatenate(parts) if parts else np.zeros(0, np.intp)

    def zone_fpp(self, zone: int) -> float:
        """The exact false positive probability of one filter."""
        for table in self.tables:
            if zone < len(table):
                return table.zone_fpp(zone)
            zone -= len(table)
        raise InvalidArgumentError(f"zone must be below {len(self)}, got {zone + len(self)}")

    def contained(self, hashes: NDArray[np.uint64], live: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
        """For each of `hashes`, whether any (live) zone may contain it."""
        found = np.zeros(len(hashes), np.bool_)
        pending = np.arange(len(hashes))
        first = 0
        for table in self.tables:
            mine = None if live is None else live[first : first + len(table)]
            found[pending] = table.contained(hashes[pending], mine)
            pending = pending[~found[pending]]
            first += len(table)
        return found
