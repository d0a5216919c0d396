"""A predicate and zones give the rows that may match, with the reasons for what could not be pruned.

The evaluator walks a predicate once. Each leaf gives `Bounds`: the rows where it can be TRUE and those where it can
be FALSE. A leaf that no filter can judge gives everything, so its answer never loses a row. A zone is dropped only by
proof:

- CANNOT_MATCH: every probed hash misses at least one bit of the zone's filter.
- MAY_MATCH: anything else.

Spec: specs/pruning.md#evaluate
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from operator import and_, or_
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from zonebloom.arrow import from_numpy
from zonebloom.bloom import hashing
from zonebloom.errors import PredicateError
from zonebloom.predicates import And, Equals, IsIn, IsNull, Not, Opaque, Or, Predicate, parse_predicate
from zonebloom.predicates.coerce import fit_values, plain_hash
from zonebloom.reasons import Reason, ReasonCode
from zonebloom.search.selection import Bounds, Kind, RowSelection
from zonebloom.search.zone_bitmap import ZoneGrid, joined

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Counts", "Evaluator", "ProbedColumn", "SearchResult", "TouchedRanges", "Zones", "search_zones"]


class Zones(Protocol):
    """What the evaluator asks of the zones of a column; arrays have one element a zone, in order of address."""

    fragment_ids: NDArray[np.uint64]
    zone_starts: NDArray[np.uint64]
    zone_lengths: NDArray[np.uint64]
    has_null: NDArray[np.bool_]

    def may_contain(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """For each zone, whether any of `hashes` may be in it."""

    def candidates(self, hashes: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Numbers of the zones that may hold any of `hashes`, ascending."""

    def contained(self, hashes: NDArray[np.uint64], live: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
        """For each hash, whether any (live) zone may contain it."""

    def zone_fpp(self, zone: int) -> float:
        """The exact false positive probability of one filter."""


class TouchedRanges:
    """Consecutive row ranges (zones, row groups) with a weight each, to count those that a selection touches.

    The ranges are disjoint and may come in any order. Cost of a question: a binary search for each selected range.
    """

    def __init__(self, fragment_ids: Any, starts: Any, stops: Any, weights: NDArray[np.uint64] | None = None) -> None:
        high = np.asarray(fragment_ids, np.uint64) << np.uint64(32)
        first = high + np.asarray(starts, np.uint64)
        order = np.argsort(first, kind="stable")
        self._first = first[order]
        self._end = (high + np.asarray(stops, np.uint64))[order]
        self._total = np.zeros(len(order) + 1, np.uint64)
        if weights is not None:
            np.cumsum(weights[order], out=self._total[1:])

    def __len__(self) -> int:
        return len(self._first)

    @property
    def weight(self) -> int:
        """Sum of all weights."""
        return int(self._total[-1])

    def touched(self, rows: RowSelection) -> tuple[int, int]:
        """Number and weight of the ranges that hold at least one of `rows`."""
        if not len(rows) or not len(self):
            return 0, 0
        high = rows.fragment_ids << np.uint64(32)
        low = np.searchsorted(self._end, high + rows.starts, side="right")
        top = np.searchsorted(self._first, high + rows.stops, side="left")
        low[1:] = np.maximum(low[1:], np.maximum.accumulate(top)[:-1])
        top = np.maximum(top, low)
        return int((top - low).sum()), int((self._total[top] - self._total[low]).sum())


@dataclass(frozen=True, slots=True)
class Counts:
    """How much of something."""

    files: int
    """Data files."""
    zones: int
    """Zones of the index; rows that no zone describes have none."""
    rows: int
    """Rows."""
    bytes: int
    """Compressed bytes of the row groups concerned, all columns."""
    unreadable: int = 0
    """Files that cannot be read; how many rows they have is unknown, and `rows` counts none of them."""

    def to_dict(self) -> dict[str, int]:
        """For JSON."""
        return {"files": self.files, "zones": self.zones, "rows": self.rows, "bytes": self.bytes}


@dataclass(frozen=True)
class SearchResult:
    """Rows that may match; the rest certainly do not.

    - `row_ranges` holds every row for which the predicate is true, whatever `kind` says.
    """

    kind: Kind
    """`exact`: just the rows that match. `at_most`: those and perhaps others. `at_least`: nothing could be pruned."""
    row_ranges: RowSelection
    """Rows that must be read."""
    reasons: tuple[Reason, ...]
    """Why parts were not pruned."""
    paths: Mapping[int, str] = field(repr=False, default_factory=dict)
    """Path of each fragment, relative to the data set's root."""
    universe: RowSelection = field(repr=False, default_factory=RowSelection.empty)
    """All rows of the data set as it is now."""
    zones: TouchedRanges | None = field(repr=False, default=None)
    """The zones that the counts refer to."""
    row_groups: TouchedRanges | None = field(repr=False, default=None)
    """The row groups, weighted by bytes."""

    unreadable: frozenset[int] = field(repr=False, default=frozenset())
    """Ids of the files that cannot be read; their ranges reach as far as a file can."""

    @cached_property
    def kept(self) -> Counts:
        """What must be read."""
        zones = self.zones.touched(self.row_ranges)[0] if self.zones else 0
        num_bytes = self.row_groups.touched(self.row_ranges)[1] if self.row_groups else 0
        return self._counts(self.row_ranges, zones, num_bytes)

    @cached_property
    def total(self) -> Counts:
        """What there is."""
        num_bytes = self.row_groups.weight if self.row_groups else 0
        return self._counts(self.universe, len(self.zones) if self.zones else 0, num_bytes)

    def _counts(self, rows: RowSelection, num_zones: int, num_bytes: int) -> Counts:
        files = set(rows.fragment_ids.tolist())
        unreadable = files & self.unreadable
        unknown_rows = sum(rows.fragment(one).num_rows for one in unreadable)
        return Counts(len(files), num_zones, rows.num_rows - unknown_rows, num_bytes, len(unreadable))

    @property
    def num_zones(self) -> int:
        """Zones of the index."""
        return self.total.zones

    @property
    def num_zones_kept(self) -> int:
        """Zones that must be read."""
        return self.kept.zones

    @property
    def num_rows(self) -> int:
        """Rows of the data set."""
        return self.total.rows

    @property
    def num_rows_kept(self) -> int:
        """Rows that must be read."""
        return self.kept.rows

    @cached_property
    def files(self) -> list[str]:
        """Paths that must be read, relative to the data set's root, in order."""
        touched = set(self.row_ranges.fragment_ids.tolist())
        return sorted(self.paths[one] for one in touched if one in self.paths)

    def to_arrow(self) -> pa.Table:
        """The row ranges as a table `(path, fragment_id, start, stop)`; `path` is null where no data set is known."""
        ids = self.row_ranges.fragment_ids
        columns = {
            "path": pa.array([self.paths.get(one) for one in ids.tolist()], pa.string()),
            "fragment_id": from_numpy(ids, pa.uint64()),
            "start": from_numpy(self.row_ranges.starts, pa.uint64()),
            "stop": from_numpy(self.row_ranges.stops, pa.uint64()),
        }
        return pa.table(columns)

    def to_dict(self) -> dict[str, Any]:
        """The object that `zonebloom search --format json` prints."""
        return {
            "kind": str(self.kind),
            "files": self.files,
            "row_ranges": [{"path": self.paths.get(one.fragment_id), **one._asdict()} for one in self.row_ranges],
            "kept": self.kept.to_dict(),
            "total": self.total.to_dict(),
            "num_unreadable": self.kept.unreadable,
            "reasons": [reason.to_dict() for reason in self.reasons],
        }


@dataclass(frozen=True)
class ProbedColumn:
    """The filters of one column, ready to be probed."""

    name: str
    """As the predicate names it."""
    column_type: pa.DataType | None
    """Type whose bytes were hashed; None where the table does not say: then each of Lance's types is tried."""
    zones: Zones
    """The zones, in order."""
    grid: ZoneGrid
    """The zones of files that are unchanged, and the rows of the universe that no trusted zone describes."""
    places: NDArray[np.intp] | None = None
    """The number in `grid` of each of `zones`, -1 where its file is not as it was; None where they have one order."""
    reasons: tuple[Reason, ...] = ()
    """Why rows are uncovered."""

    @cached_property
    def live(self) -> NDArray[np.bool_] | None:
        """Which zones are in `grid`; None where all are."""
        return None if self.places is None else self.places >= 0

    def rows_of(self, chosen: NDArray[np.intp]) -> RowSelection:
        """The rows of the zones with these numbers, ascending, and those that are uncovered."""
        if self.places is not None:
            chosen = self.places[chosen]
            chosen = np.sort(chosen[chosen >= 0])
        return self.grid.rows_of(chosen)


@dataclass
class Evaluator:
    """Evaluates predicates over one state of a data set.

    Spec: specs/pruning.md#evaluate
    """

    universe: RowSelection
    """All rows."""
    column: Callable[[str], ProbedColumn | None]
    """The filters of a column; None where it has none. Raises for a column that does not exist."""
    partition_columns: frozenset[str] = frozenset()
    """Columns whose values the paths hold."""
    partition_rows: Callable[[Predicate], Bounds] | None = None
    """Exact bounds of a predicate over partition columns only."""
    reasons: dict[Reason, None] = field(default_factory=dict)
    """Filled by `evaluate`; there may be one for each file, so that a list would take quadratic time."""

    def evaluate(self, predicate: Predicate) -> Bounds:
        """The rows where `predicate` can be TRUE and those where it can be FALSE."""
        if (
            self.partition_rows is not None
            and 0 < len(predicate.columns()) <= len(self.partition_columns)
            and (predicate.columns() <= self.partition_columns)
            and all(node.is_evaluable for node in predicate.walk() if isinstance(node, Opaque))
        ):
            found = self.partition_rows(predicate)
            if found.exact or not any(map(self.column, predicate.columns())):
                return found
            return found & self._evaluated(predicate)  # filters say more of files whose value is not known
        return self._evaluated(predicate)

    def _evaluated(self, predicate: Predicate) -> Bounds:
        if isinstance(predicate, And):
            return joined(and_, [self.evaluate(child) for child in predicate.children])
        if isinstance(predicate, Or):
            return self._any_of(predicate)
        if isinstance(predicate, Not):
            return self._negation(predicate)
        if isinstance(predicate, Opaque):
            for name in predicate.columns():
                self.column(name)
            message = f"no filter can judge {predicate.text}"
            return self._kept_whole(Reason(predicate.code, message, column=next(iter(predicate.columns()), None)))
        if isinstance(predicate, (Equals, IsIn, IsNull)):
            return self._leaf(predicate)
        raise PredicateError(f"a predicate must be one of zonebloom.predicates, got {type(predicate).__name__}")

    def _any_of(self, predicate: Or) -> Bounds:
        branches = [self.evaluate(child) for child in predicate.children]
        found = joined(or_, branches)
        # A branch of which nothing is known has the universe itself; one that may match everywhere has an equal set.
        is_unjudged = [branch.true_rows is self.universe for branch in branches]
        if any(is_unjudged) and not all(is_unjudged) and len(self.universe):
            message = "one side of an OR cannot be judged, so the other side prunes nothing"
            self._note(Reason(ReasonCode.OR_WITH_UNINDEXED_BRANCH, message))
        return found

    def _negation(self, predicate: Not) -> Bounds:
        found = ~self.evaluate(predicate.child)
        if found.true_rows == self.universe and len(self.universe):
            message = "a filter proves absence only, so it cannot judge a negated condition"
            columns = predicate.columns()
            self._note(Reason(ReasonCode.NEGATED_PREDICATE, message, column=next(iter(sorted(columns)), None)))
        return found

    def _leaf(self, predicate: Equals | IsIn | IsNull) -> Bounds:
        column = self.column(predicate.column)
        if column is None:
            message = f"column {predicate.column} has no filters; make them by build_index(path, '{predicate.column}')"
            return self._kept_whole(Reason(ReasonCode.COLUMN_NOT_INDEXED, message, column=predicate.column))
        for reason in column.reasons:
            self._note(reason)
        if isinstance(predicate, IsNull):
            return Bounds.at_most(column.rows_of(np.flatnonzero(column.zones.has_null)), self.universe)
        values = predicate.values if isinstance(predicate, IsIn) else predicate.value
        hashes = _hashes_to_probe(values, column.column_type, predicate.column)
        if isinstance(hashes, Reason):
            return self._kept_whole(hashes)
        return Bounds.at_most(column.rows_of(column.zones.candidates(hashes)), self.universe)

    def _kept_whole(self, reason: Reason) -> Bounds:
        self._note(reason)
        return Bounds.unknown(self.universe)

    def _note(self, reason: Reason) -> None:
        self.reasons[reason] = None


def _hashes_to_probe(values: Any, column_type: pa.DataType | None, column: str) -> NDArray[np.uint64] | Reason:
    if column_type is None:
        return _hashes_of_each_form(values, column)
    one = plain_hash(values, column_type)
    if one is not None:
        return np.array((one,), np.uint64)
    fit = fit_values(values, column_type)
    if fit.reason is not None:
        return fit.reason.about(column=column)
    return np.asarray(hashing.hash_values(fit.values), np.uint64)


_LANCE_TYPES = (
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.date32(), pa.date64()),
    *(pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
    *(pa.timestamp(unit, "UTC") for unit in ("s", "ms", "us", "ns")),
)


def _hashes_of_each_form(values: Any, column: str) -> NDArray[np.uint64] | Reason:
    """The hashes of `values` in each of Lance's types that has them; a table without a type can only be Lance's.

    Spec: specs/pruning.md#untyped-zone-table
    """
    if isinstance(values, (pa.Scalar, pa.Array, pa.ChunkedArray)):
        return _hashes_to_probe(values, values.type, column)
    found: set[int] = set()
    fitted = False
    for candidate in _LANCE_TYPES:
        fit = fit_values(values, candidate)
        if fit.reason is not None and fit.reason.code == ReasonCode.NAN_LITERAL:
            return fit.reason.about(column=column)
        if fit.reason is None:
            fitted = True
            found.update(int(one) for one in hashing.hash_values(fit.values))
    if not fitted:
        message = "the zone table does not say its column's type, and no type of Lance's holds the literal"
        return Reason(ReasonCode.TYPE_MISMATCH, message, column=column)
    found.update(_nearest_floats(values))
    return np.array(sorted(found), np.uint64)


def _nearest_floats(values: Any) -> Iterable[int]:
    """Engines may compare a column of floats with the nearest float of a number: probe that as well."""
    given = values if isinstance(values, (list, tuple, set)) else [values]
    floats = []
    for one in given:
        if isinstance(one, (int, float, Decimal)):
            with suppress(OverflowError):
                floats.append(float(one))
    with np.errstate(over="ignore"):
        nearest = [np.array(floats, np.float64), np.array(floats, np.float32)]
    return (int(one) for column in nearest for one in hashing.hash_values(pa.array(column)))


def search_zones(zones: Zones, predicate: Predicate | str | Any) -> SearchResult:
    """Row ranges of `zones` that may match `predicate`, whose one column is the one that the zones describe.

    Raises
    ------
    PredicateError
        The predicate names more than one column.

    Spec: specs/pruning.md#zone-table-search
    """
    tree = parse_predicate(predicate)
    names = tree.columns()
    if len(names) > 1:
        message = f"a zone table describes one column, got a predicate over {', '.join(sorted(names))}; search an index"
        raise PredicateError(message)
    stops = zones.zone_starts + zones.zone_lengths
    universe = RowSelection.from_arrays(zones.fragment_ids, zones.zone_starts, stops)
    column_type = getattr(zones, "column_type", None)
    grid, places = ZoneGrid.of(zones.fragment_ids, zones.zone_starts, zones.zone_lengths, RowSelection.empty())
    evaluator = Evaluator(universe, lambda name: ProbedColumn(name, column_type, zones, grid, places))
    bounds = evaluator.evaluate(tree)
    touched = TouchedRanges(zones.fragment_ids, zones.zone_starts, stops)
    return SearchResult(
        bounds.kind(universe), bounds.true_rows, tuple(evaluator.reasons), universe=universe, zones=touched
    )
