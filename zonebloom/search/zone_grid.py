"""`ZoneGrid`: the zones of a column in order of address, and the rows outside all zones.

Spec: specs/pruning.md#evaluate
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np

from zonebloom.predicates.selection import RowSelection

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from zonebloom.bloom.addresses import Addresses
    from zonebloom.bloom.zones import ZonePositions


class ZoneGrid:
    """Zones `[firsts[i], ends[i])` in order of address, and the rows of the data set that they do not describe.

    Arrays are not copied, and must not change.
    """

    def __init__(self, firsts: Addresses, ends: Addresses, uncovered: RowSelection) -> None:
        self.firsts = firsts
        self.ends = ends
        self.uncovered = uncovered

    @classmethod
    def of(
        cls,
        positions: ZonePositions,
        uncovered: RowSelection,
        live: NDArray[np.bool_] | None = None,
    ) -> tuple[Self, NDArray[np.intp] | None]:
        """The grid of the `live` zones (all if None), and for each given zone its number in the grid, or -1.

        The given zones may be in any order. The numbers are None if no zone has another number in the grid.
        """
        firsts, lengths = positions.addresses, positions.zone_lengths
        if live is None and bool((firsts[1:] >= firsts[:-1]).all()):
            return cls(firsts, firsts + lengths, uncovered), None
        order = np.argsort(firsts, kind="stable")
        if live is not None:
            order = order[live[order]]
        places = np.full(len(firsts), -1, np.intp)
        places[order] = np.arange(len(order))
        return cls(firsts[order], (firsts + lengths)[order], uncovered), places

    def __len__(self) -> int:
        return len(self.firsts)

    @cached_property
    def is_disjoint(self) -> bool:
        """Whether each zone has rows, and no two zones share a row."""
        return bool((self.firsts < self.ends).all() and (self.firsts[1:] >= self.ends[:-1]).all())

    def rows_of(self, numbers: NDArray[np.intp]) -> RowSelection:
        """The rows of these ascending zones, and all uncovered rows."""
        make_selection = RowSelection.from_sorted_addresses if self.is_disjoint else RowSelection.from_addresses
        rows = make_selection(self.firsts[numbers], self.ends[numbers])
        return rows | self.uncovered if len(self.uncovered) else rows
