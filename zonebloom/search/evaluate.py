"""Evaluation of a bound predicate: the rows that may match, and the reasons for rows that were not excluded.

Each step gives `Bounds`: the rows where its part of the predicate can be TRUE, and the rows where it can be FALSE. The
bounds of a leaf that no filter can evaluate are all rows, so no row is lost. A zone is excluded only if its filter says
CANNOT_MATCH, which is a proof.

Spec: specs/pruning.md#evaluate
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from zonebloom.ground.reasons import Reason, ReasonCode
from zonebloom.predicates.selection import Bounds, RowSelection
from zonebloom.search.zone_grid import ZoneGrid

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from zonebloom.bloom.zones import ZoneFilters
    from zonebloom.predicates import Predicate

_SAMPLED_ZONES = 32
"""Filters of a column whose set bits are counted: one millisecond gives the mean fpp within a sixth."""


@dataclass(frozen=True)
class ProbedColumn:
    """The filters of one column, ready to be probed."""

    name: str
    """Name of the column in the predicate."""
    column_type: pa.DataType | None
    """Type whose bytes were hashed. None if the table does not know the type: each Lance type is then tried."""
    zones: ZoneFilters
    """The zones, in order."""
    grid: ZoneGrid
    """The zones of unchanged files, and the rows of the universe without a trusted zone."""
    places: NDArray[np.intp] | None = None
    """For each of `zones`, its number in `grid`, or -1 if its file has changed; None if the orders are equal."""
    reasons: tuple[Reason, ...] = ()
    """Why rows are uncovered."""

    @cached_property
    def live(self) -> NDArray[np.bool_] | None:
        """For each zone, whether it is in `grid`; None if all are."""
        return None if self.places is None else self.places >= 0

    @cached_property
    def sampled_fpps(self) -> NDArray[np.float64]:
        """The false positive probabilities of some evenly spaced zones, from their set bits."""
        sampled = np.unique(np.linspace(0, max(len(self.zones) - 1, 0), _SAMPLED_ZONES).astype(np.int64))
        return np.array([self.zones.zone_fpp(zone) for zone in sampled[: len(self.zones)].tolist()])

    @property
    def damage(self) -> Iterable[Reason]:
        """Damage that probes have found; the rows of damaged filters are kept."""
        return (Reason(ReasonCode.SEGMENT_CORRUPT, message, column=self.name) for message in self.zones.damage)

    def rows_of(self, chosen: NDArray[np.intp]) -> RowSelection:
        """The rows of the zones with these ascending numbers, and all uncovered rows."""
        if self.places is not None:
            chosen = self.places[chosen]
            chosen = np.sort(chosen[chosen >= 0])
        return self.grid.rows_of(chosen)


class Decided(NamedTuple):
    """A part whose bounds are known without filters."""

    bounds: Bounds


class Undecided(NamedTuple):
    """A leaf that no filter can evaluate."""

    leaf: Predicate
    reasons: tuple[Reason, ...]


class InZones(NamedTuple):
    """A leaf that is TRUE only in some zones of its column."""

    column: ProbedColumn
    numbers: NDArray[np.intp]
    """Of the zones, ascending."""


class Joined(NamedTuple):
    """AND or OR of the parts before it."""

    joint: Callable[[Bounds, Bounds], Bounds]
    """`and_` or `or_`."""
    num_parts: int


class Negated(NamedTuple):
    """NOT of the part before it."""

    predicate: Predicate
    """The negation itself, for the column in the reason."""


Step: TypeAlias = Decided | Undecided | InZones | Joined | Negated


class BoundPredicate(NamedTuple):
    """A predicate whose columns are opened and whose leaves are probed."""

    universe: RowSelection
    """All rows."""
    steps: tuple[Step, ...]
    """In postfix order: parts before the step that joins them."""


def evaluate(bound: BoundPredicate) -> tuple[Bounds, tuple[Reason, ...]]:
    """The rows where the predicate can be TRUE, the rows where it can be FALSE, and why other rows were not excluded.

    The reasons include damage of the probed filters, found now or before.

    Spec: specs/pruning.md#evaluate
    """
    reasons: dict[Reason, None] = {}  # there may be one for each file: a list would take quadratic time
    done: list[Bounds] = []
    for step in bound.steps:
        first = len(done) - (step.num_parts if isinstance(step, Joined) else isinstance(step, Negated))
        bounds, why = _evaluated(step, done[first:], bound.universe)
        done[first:] = [bounds]
        reasons.update(dict.fromkeys(why))
    (bounds,) = done
    return bounds, tuple(reasons)


def _evaluated(step: Step, parts: list[Bounds], universe: RowSelection) -> tuple[Bounds, Iterable[Reason]]:
    """The bounds of `step`, from the bounds of its parts, and why it does not exclude more rows."""
    if isinstance(step, Decided):
        return step.bounds, ()
    if isinstance(step, Undecided):
        return Bounds.unknown(universe), step.reasons
    if isinstance(step, Joined):
        return reduce(step.joint, parts), _reasons_of_or(parts, universe) if step.joint is or_ else ()
    if isinstance(step, Negated):
        return ~parts[0], _reasons_of_not(parts[0], step.predicate, universe)
    column = step.column
    return Bounds.at_most(column.rows_of(step.numbers), universe), (*column.reasons, *column.damage)


def _reasons_of_or(branches: list[Bounds], universe: RowSelection) -> Iterable[Reason]:
    if len({branch.is_true_bounded for branch in branches}) > 1 and len(universe):
        message = "no filter can evaluate one side of an OR, so the other side prunes nothing"
        yield Reason(ReasonCode.OR_WITH_UNINDEXED_BRANCH, message)


def _reasons_of_not(part: Bounds, negation: Predicate, universe: RowSelection) -> Iterable[Reason]:
    if not part.is_false_bounded and len(universe):
        message = "a filter proves absence only, so it cannot evaluate a negated condition"
        yield Reason(ReasonCode.NEGATED_PREDICATE, message, column=min(negation.columns(), default=None))
