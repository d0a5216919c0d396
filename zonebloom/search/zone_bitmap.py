"""Sets of zones, which are sets of rows: combined zone by zone, and made row ranges once, when these are asked for.

- A **grid** is zones that do not overlap, in order of address, and the rows that none of them describes.
- A **zone set** is some zones of a grid, with all rows that the grid does not cover.

AND and OR of two sets over one grid look at zones only: as bitmaps, or where few zones are set as sorted numbers. With
any other selection a zone set combines as the row ranges that it stands for. The rows are the same either way.

Spec: specs/pruning.md#zone-sets
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from zonebloom.search.selection import Bounds, RowSelection

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from zonebloom.bloom.addresses import Addresses
    from zonebloom.bloom.zones import ZonePositions

_ZONES_OF_ONE_NUMBER = 16
"""One zone number in a list costs as much as 16 zones of a bitmap, so sparser sets are lists (131 072 zones: 8000)."""


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
        """The grid of the `live` zones (all if None), and for each zone, in any order, its number there; -1 if none.

        The numbers are None where each zone has the number that it had.
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
        """Whether each zone has rows, and no two zones share a row; only then AND of zones is AND of their rows."""
        return bool((self.firsts < self.ends).all() and (self.firsts[1:] >= self.ends[:-1]).all())

    def has_rows_of(self, other: ZoneGrid) -> bool:
        """Whether zone i has the same rows in both, for each i, and the same rows are uncovered."""
        return (
            np.array_equal(self.firsts, other.firsts)
            and np.array_equal(self.ends, other.ends)
            and self.uncovered == other.uncovered
        )

    def rows_of(self, numbers: NDArray[np.intp]) -> RowSelection:
        """The rows of these ascending zones, and all uncovered rows; a `ZoneSet` if zones can be combined."""
        if not len(self):
            return self.uncovered
        found = ZoneSet.of(self, numbers)
        return found if self.is_disjoint else found.to_ranges()


class ZoneSet(RowSelection):
    """Some zones of a grid and its uncovered rows: a selection whose row ranges are made on demand.

    - Two sets over one `ZoneGrid` (the same object) combine without a look at rows.
    """

    __slots__ = ("_mask", "_numbers", "grid")

    grid: ZoneGrid
    _numbers: NDArray[np.intp] | None
    _mask: NDArray[np.bool_] | None

    @classmethod
    def of(cls, grid: ZoneGrid, numbers: NDArray[np.intp] | None = None, mask: NDArray[np.bool_] | None = None) -> Self:
        """The zones with these ascending numbers, or the zones in `mask`."""
        self = object.__new__(cls)
        self.grid, self._numbers, self._mask = grid, numbers, mask
        return self

    @property
    def numbers(self) -> NDArray[np.intp]:
        """The zones of the set, ascending."""
        if self._numbers is None:
            self._numbers = self.mask.nonzero()[0]
        return self._numbers

    @property
    def mask(self) -> NDArray[np.bool_]:
        """For each zone of the grid, whether it is in the set."""
        if self._mask is None:
            self._mask = np.zeros(len(self.grid), np.bool_)
            self._mask[self.numbers] = True
        return self._mask

    @property
    def _is_sparse(self) -> bool:
        return self._numbers is not None and len(self._numbers) * _ZONES_OF_ONE_NUMBER <= len(self.grid)

    def to_ranges(self) -> RowSelection:
        """The same rows without the zones."""
        grid, numbers = self.grid, self.numbers
        made = RowSelection.from_sorted_addresses if grid.is_disjoint else RowSelection.from_addresses
        found = made(grid.firsts[numbers], grid.ends[numbers])
        return found | grid.uncovered if len(grid.uncovered) else found

    def __getattr__(self, name: str) -> Any:
        """Fill the slots of the row ranges, as Python comes here while they are empty."""
        if name not in RowSelection.__slots__:
            raise AttributeError(f"a ZoneSet must be asked for what it has, got {name}")
        found = self.to_ranges()
        self._firsts, self._ends = found._firsts, found._ends  # noqa: SLF001 - of this class's base
        return getattr(self, name)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as row ranges: the grid is as large as the index."""
        return RowSelection.from_addresses, (self._firsts, self._ends)

    def __and__(self, other: RowSelection) -> RowSelection:
        """The rows in both."""
        if not isinstance(other, ZoneSet) or other.grid is not self.grid:
            return super().__and__(other)
        if self._is_sparse or other._is_sparse:
            few, many = (self, other) if self._is_sparse else (other, self)
            return ZoneSet.of(self.grid, few.numbers[many.mask[few.numbers]])
        return ZoneSet.of(self.grid, mask=self.mask & other.mask)

    def __or__(self, other: RowSelection) -> RowSelection:
        """The rows in either."""
        if not isinstance(other, ZoneSet) or other.grid is not self.grid:
            return super().__or__(other)
        if self._is_sparse and other._is_sparse:
            added = other.numbers[~self.mask[other.numbers]]
            return ZoneSet.of(self.grid, np.sort(np.concatenate((self.numbers, added))))
        return ZoneSet.of(self.grid, mask=self.mask | other.mask)


def joined(joint: Callable[[Bounds, Bounds], Bounds], branches: Iterable[Bounds]) -> Bounds:
    """All of `branches` joined by `and_` or `or_`; branches over one grid are joined first, as zones."""
    of_grid: dict[ZoneGrid | None, Bounds] = {}
    for one in branches:
        rows = one.true_rows
        grid = rows.grid if isinstance(rows, ZoneSet) else None
        of_grid[grid] = joint(of_grid[grid], one) if grid in of_grid else one
    return reduce(joint, of_grid.values())
