"""Explanations: the funnel of a search, and a reason for each part that was not pruned.

Spec: specs/pruning.md#explain
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from zonebloom.bloom.locator_pages import KEY_BITS
from zonebloom.bloom.selection import Kind, RowSelection
from zonebloom.ground.errors import ZoneBloomError
from zonebloom.ground.reasons import Reason, ReasonCode, counted
from zonebloom.ground.rendering import Result, Table, label, plain
from zonebloom.predicates import Equals, IsIn, Predicate
from zonebloom.predicates.sql_writer import as_sql
from zonebloom.search.probe import hashes_of
from zonebloom.search.probed_column import ProbedColumn
from zonebloom.search.query import Query
from zonebloom.search.result import SearchResult
from zonebloom.search.view import View
from zonebloom.storage.manifest import ColumnEntry
from zonebloom.stores.store import Traffic

_LOOKED_AT_ZONES = 64
_SATURATED_FPP = 0.5
_SAMPLED_KEYS = 16
"""Values of a list whose zones are counted."""
_LEAST_MISS = 1e-15
"""Least chance of a miss: the logarithm stays finite for a filter with all bits set."""
_MOST = 0.75
"""Share of the zones from which a search reads nearly everything."""
_CHECKED_ZONES = 64
"""Up to this many kept zones are read, to count the zones with a match."""


@dataclass(frozen=True, slots=True)
class FalseZones(Result):
    """False zones (kept, but without a match) of a condition on one key or a list of keys."""

    expected: float
    """Expected false zones if no zone has a key: from the set bits of some filters, or the pairs of locators."""
    is_located: bool
    """Whether locators were probed, not filters."""
    kept: int
    """Zones that were kept."""
    seen: int | None
    """Kept zones without a match; None if too many zones were kept to read them."""


@dataclass(frozen=True, slots=True)
class Explanation(Result):
    """The kept part of the data set, and why it is not smaller; `str()` is for people."""

    predicate: str
    """The parsed predicate as SQL; a long list is cut."""
    result: SearchResult
    """The search."""
    num_covered: int
    """Files that the index describes in their current version."""
    num_unknown: int
    """New and changed files; a search reads them whole."""
    num_changed: int
    """Changed files among these."""
    num_deleted: int
    """Removed files that the index still describes; a search ignores them."""
    traffic: Traffic = field(default_factory=Traffic)
    """Requests and bytes of object stores; zeros if index and data are local."""
    list_seconds: float = 0.0
    """Time to list the data set, and to read the footers of new files. A remote index is probed meanwhile."""
    search_seconds: float = 0.0
    """Time to probe the filters of a local index."""
    false_zones: FalseZones | None = None
    """Present for one key or a list of keys, if the index covers the current version of every file."""
    table: Mapping[str, Any] = field(default_factory=dict)
    """The searched version of a table: `table_version` or `snapshot_id`."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        search = self.result.to_dict()
        return {
            "predicate": self.predicate,
            **{key: search[key] for key in ("kind", "kept", "total", "num_unreadable")},
            "files": {name: getattr(self, f"num_{name}") for name in ("covered", "unknown", "changed", "deleted")},
            "requests": self.traffic.num_requests,
            "bytes_read": self.traffic.bytes_read,
            "list_seconds": self.list_seconds,
            "search_seconds": self.search_seconds,
            "false_zones": plain(self.false_zones),
            **self.table,
            "reasons": search["reasons"],
        }

    @property
    def headline(self) -> str:
        """The predicate."""
        return self.predicate

    def facts(self) -> Iterator[tuple[str, Any]]:
        """Names and values, for people."""
        yield "answer", self.result.headline
        yield "indexed files", self.num_covered
        yield "read whole", f"{self.num_unknown - self.num_changed:,} new, {counted(self.num_changed, 'changed file')}"
        yield "ignored", counted(self.num_deleted, "deleted file")
        if self.list_seconds:
            times = [f"{seconds * 1e3:,.1f} ms" for seconds in (self.list_seconds, self.search_seconds)]
            yield "time", f"listed in {times[0]}, searched in {times[1]}"
        if self.false_zones is not None:
            seen = "not counted" if self.false_zones.seen is None else f"{self.false_zones.seen:,} seen"
            by = " of the locator" if self.false_zones.is_located else ""
            yield "zones without a match", f"{self.false_zones.expected:,.2g} expected{by}, {seen}"
        if self.traffic.num_requests:
            requests = counted(self.traffic.num_requests, "request")
            yield "traffic", f"{requests} to object stores, {self.traffic.bytes_read:,} bytes read"
        yield from ((label(name), str(value)) for name, value in self.table.items())

    def tables(self) -> Iterator[Table]:
        """The funnel."""
        return self.result.tables()

    def notes(self) -> Iterator[str]:
        """A line for each kind of reason."""
        return self.result.notes()


def explain(query: Query) -> Explanation:
    """The explanation of a query's result; it also reads some of the kept filters."""
    view, predicate, result = query.view, query.predicate, query.result
    num_covered = len(view.files) - view.num_unknown
    false_zones = _false_zones(view, predicate, result)
    further = [reason for name in sorted(predicate.columns()) for reason in _saturation(view, name, result)]
    if false_zones is not None:
        further += _presence(query, false_zones)
    table = {} if view.declared is None else view.declared.state
    answer = replace(query.numbered, reasons=(*result.reasons, *further))
    counts = (num_covered, view.num_unknown, view.files.num_changed, view.files.num_deleted)
    return Explanation(as_sql(predicate), answer, *counts, false_zones=false_zones, table=table)


def _false_zones(view: View, predicate: Predicate, result: SearchResult) -> FalseZones | None:
    """Expected and actual numbers of false zones; reads a few kept zones up to their first match."""
    if not isinstance(predicate, (Equals, IsIn)) or not isinstance(predicate.column, str) or view.num_unknown:
        return None
    column = view.column(predicate.column)
    entry = view.snapshot.manifest.column(predicate.column)
    num_keys = len(predicate.values) if isinstance(predicate, IsIn) else 1
    if column is None or entry is None or result.kind != Kind.AT_MOST or not result.zones:
        return None
    num_pairs = _num_located(view, entry)
    if num_pairs is None:
        expected = result.num_zones * _chance(column, num_keys)
    else:
        expected = num_keys * num_pairs / 2**KEY_BITS
    seen = _num_without_match(view, column, predicate, result)
    return FalseZones(expected, num_pairs is not None, result.num_zones_kept, seen)


def _chance(column: ProbedColumn, num_keys: int) -> float:
    """The chance that a zone is kept for `num_keys` absent keys, from the set bits of some filters."""
    misses = np.maximum(1 - column.sampled_fpps, _LEAST_MISS)
    return float(-np.expm1(num_keys * np.log(misses)).mean())


def _presence(query: Query, false_zones: FalseZones) -> list[Reason]:
    """A reason if most zones are kept, and most of these hold a value."""
    leaf, result = query.predicate, query.result
    num_false = false_zones.expected if false_zones.seen is None else false_zones.seen
    num_kept, num_zones = result.num_zones_kept, result.num_zones
    if num_zones < 2 or num_kept < _MOST * num_zones or num_false > num_kept / 2:  # noqa: PLR2004 - one zone is no list
        return []
    assert isinstance(leaf, (Equals, IsIn))
    assert isinstance(leaf.column, str)
    column = query.view.column(leaf.column)
    assert column is not None
    hashes = hashes_of(leaf, column.column_type)
    if hashes is None or isinstance(hashes, Reason) or not len(hashes):
        return []
    sampled = hashes[:: -(-len(hashes) // _SAMPLED_KEYS)]
    zones = column.zones.zones_of_each(sampled)[1]
    num_pairs = len(zones) if column.live is None else int(column.live[zones].sum())
    values = f"{counted(len(hashes), 'value')}, each" if len(hashes) > 1 else "the value is"
    message = (
        f"{values} in about {num_pairs / len(sampled):,.3g} of {num_zones:,} zones, so nearly every zone holds one; "
        "an index does not help this search"
    )
    return [Reason(ReasonCode.VALUES_IN_MANY_ZONES, message, column=leaf.column)]


def _num_located(view: View, entry: ColumnEntry) -> int | None:
    """Number of pairs in a column's locators; None if filters are probed."""
    from zonebloom.storage.locator.reader import LocatorSegment  # noqa: PLC0415 - most columns have filters

    segments = view.snapshot.column(entry).filters
    counts = [segment.layout.num_pairs for segment in segments if isinstance(segment, LocatorSegment)]
    return sum(counts) if counts else None


def _num_without_match(view: View, column: ProbedColumn, predicate: Predicate, result: SearchResult) -> int | None:
    from zonebloom.search.scan import scan  # noqa: PLC0415 - it loads what reads rows

    if result.num_zones_kept > _CHECKED_ZONES:
        return None
    zones = column.zones.positions
    num_empty = 0
    try:
        for zone in np.flatnonzero(result.row_ranges.contains(zones.addresses)).tolist():
            start, length = int(zones.zone_starts[zone]), int(zones.zone_lengths[zone])
            rows = RowSelection.from_ranges([(int(zones.fragment_ids[zone]), start, start + length)])
            num_empty += not scan(view, predicate, rows, [], 1).read_all().num_rows
    except ZoneBloomError:  # the answer stands without this
        return None
    return num_empty


def _saturation(view: View, column: str, result: SearchResult) -> list[Reason]:
    """A reason if some of a few kept zones have filters that most absent values pass."""
    probed = view.column(column)
    if probed is None:
        return []
    zones = probed.zones
    firsts = zones.positions.addresses
    kept = np.flatnonzero(result.row_ranges.contains(firsts))
    looked_at = kept[:: max(1, len(kept) // _LOOKED_AT_ZONES)][:_LOOKED_AT_ZONES]
    num_saturated = sum(zones.zone_fpp(zone) > _SATURATED_FPP for zone in looked_at.tolist())
    view.snapshot.warn_of_damage()
    if not num_saturated:
        return []
    message = (
        f"{num_saturated} of {counted(len(looked_at), 'kept zone')} that were looked at have filters that pass most "
        "absent values; build with a smaller fpp or rows_per_zone"
    )
    return [Reason(ReasonCode.SATURATED_FILTER, message, column=column)]
