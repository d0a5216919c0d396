"""`ProbedColumn`: the filters of one column on a view, its zones in order of address, and the rows outside all zones.

Spec: specs/pruning.md#evaluate
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa

from zonebloom.bloom.selection import RowSelection
from zonebloom.ground.cached import cached_property
from zonebloom.ground.reasons import Reason, ReasonCode

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from zonebloom.bloom.addresses import Addresses
    from zonebloom.bloom.zones import ZoneFilters

_SAMPLED_ZONES = 32
"""Filters of a column whose set bits are counted: one millisecond gives the mean fpp within a sixth."""


@dataclass(frozen=True)
class ProbedColumn:
    """The filters of one column, ready to be probed; arrays are not copied, and must not change."""

    name: str
    """Name of the column in the predicate."""
    column_type: pa.DataType | None
    """Type whose bytes were hashed. None if the table does not know the type: each Lance type is then tried."""
    zones: ZoneFilters
    """The zones, in order."""
    firsts: Addresses
    """Address of the first row of each zone of an unchanged file, ascending."""
    ends: Addresses
    """Address after the last row of each."""
    uncovered: RowSelection
    """The rows of the universe without a trusted zone."""
    places: NDArray[np.intp] | None = None
    """For each of `zones`, its place in `firsts`, or -1 if its file has changed; None if the orders are equal."""
    reasons: tuple[Reason, ...] = ()
    """Why rows are uncovered."""

    @classmethod
    def of(
        cls,
        name: str,
        column_type: pa.DataType | None,
        zones: ZoneFilters,
        uncovered: RowSelection,
        *,
        live: NDArray[np.bool_] | None = None,
        reasons: tuple[Reason, ...] = (),
    ) -> Self:
        """The column with the `live` ones of `zones` (all if None), which may be in any order."""
        firsts, lengths = zones.positions.addresses, zones.positions.zone_lengths
        if live is None and bool((firsts[1:] >= firsts[:-1]).all()):
            return cls(name, column_type, zones, firsts, firsts + lengths, uncovered, None, reasons)
        order = np.argsort(firsts, kind="stable")
        if live is not None:
            order = order[live[order]]
        places = np.full(len(firsts), -1, np.intp)
        places[order] = np.arange(len(order))
        return cls(name, column_type, zones, firsts[order], (firsts + lengths)[order], uncovered, places, reasons)

    @cached_property
    def live(self) -> NDArray[np.bool_] | None:
        """For each zone, whether its file is unchanged; None if all are."""
        return None if self.places is None else self.places >= 0

    @cached_property
    def sampled_fpps(self) -> NDArray[np.float64]:
        """The false positive probabilities of some evenly spaced zones, from their set bits."""
        sampled = np.unique(np.linspace(0, max(len(self.zones) - 1, 0), _SAMPLED_ZONES).astype(np.int64))
        return np.array([self.zones.zone_fpp(zone) for zone in sampled[: len(self.zones)].tolist()])

    @property
    def damage(self) -> list[Reason]:
        """Damage that probes have found; the rows of damaged filters are kept."""
        return [Reason(ReasonCode.SEGMENT_CORRUPT, message, column=self.name) for message in self.zones.damage]

    @cached_property
    def _is_disjoint(self) -> bool:
        """Whether each zone has rows, and no two zones share a row."""
        return bool((self.firsts < self.ends).all() and (self.firsts[1:] >= self.ends[:-1]).all())

    def rows_of(self, chosen: NDArray[np.intp]) -> RowSelection:
        """The rows of the zones with these ascending numbers, and all uncovered rows."""
        if self.places is not None:
            chosen = self.places[chosen]
            chosen = np.sort(chosen[chosen >= 0])
        make_selection = RowSelection.from_sorted_addresses if self._is_disjoint else RowSelection.from_addresses
        rows = make_selection(self.firsts[chosen], self.ends[chosen])
        return rows | self.uncovered if len(self.uncovered) else rows
