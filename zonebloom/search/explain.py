"""Explanations: the funnel of a search, and a reason for each part that was not pruned.

Spec: specs/pruning.md#explain
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from zonebloom.bloom.locator import KEY_BITS
from zonebloom.errors import ZoneBloomError
from zonebloom.predicates import Equals, IsIn, Predicate
from zonebloom.predicates.wording import as_sql
from zonebloom.reasons import Reason, ReasonCode, counted, summed_up, wrapped
from zonebloom.search.result import SearchResult
from zonebloom.search.selection import Kind, RowSelection
from zonebloom.search.view import View
from zonebloom.storage.manifest import ColumnEntry
from zonebloom.storage.stores.store import Traffic

_LOOKED_AT_ZONES = 64
_SATURATED_FPP = 0.5
_CHECKED_ZONES = 64
"""Most kept zones that are read to count those with a match."""


@dataclass(frozen=True, slots=True)
class FalseZones:
    """Zones that were kept though they hold no match, of a condition that is one key or a list of keys."""

    expected: float
    """Of all zones, by the number of keys: from the probability that was asked for, or from the pairs of locators."""
    is_located: bool
    """Whether locators were asked, not filters."""
    kept: int
    """Zones that were kept."""
    seen: int | None
    """Kept zones without a match; None where too many were kept to read them for this."""


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """What a search kept of the whole, and why; `str()` is for people."""

    predicate: str
    """The predicate as it was understood, as SQL; a long list is cut."""
    result: SearchResult
    """The search."""
    num_covered: int
    """Files that the index describes in their current version."""
    num_unknown: int
    """Files that are new or changed: read whole."""
    num_changed: int
    """Of those, files that changed."""
    num_deleted: int
    """Files that the index describes and that are gone: ignored."""
    traffic: Traffic = field(default_factory=Traffic)
    """Requests and bytes of object stores; zeros if index and data are local."""
    list_seconds: float = 0.0
    """Listing the data set, and reading the footers of files that the index does not know."""
    search_seconds: float = 0.0
    """Asking the filters."""
    false_zones: FalseZones | None = None
    """For one key or a list of keys, if the index covers the current version of every file."""
    table: Mapping[str, Any] = field(default_factory=dict)
    """Of a table, which version of it was searched: `table_version` or `snapshot_id`."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        files = {
            "covered": self.num_covered,
            "unknown": self.num_unknown,
            "changed": self.num_changed,
            "deleted": self.num_deleted,
        }
        found = self.result.to_dict()
        return {
            "predicate": self.predicate,
            "kind": found["kind"],
            "kept": found["kept"],
            "total": found["total"],
            "num_unreadable": found["num_unreadable"],
            "files": files,
            "requests": self.traffic.num_requests,
            "bytes_read": self.traffic.bytes_read,
            "list_seconds": self.list_seconds,
            "search_seconds": self.search_seconds,
            "false_zones": None if self.false_zones is None else asdict(self.false_zones),
            **self.table,
            "reasons": found["reasons"],
        }

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """For notebooks."""
        from zonebloom.search.html import facts, funnel, headed, paragraph, reasons_list  # noqa: PLC0415 - only for people

        shown = {
            "indexed files": self.num_covered,
            "new files, read whole": self.num_unknown - self.num_changed,
            "changed files, read whole": self.num_changed,
            "deleted files, ignored": self.num_deleted,
            "listed in": f"{self.list_seconds * 1e3:,.1f} ms",
            "searched in": f"{self.search_seconds * 1e3:,.1f} ms",
        }
        if self.false_zones is not None:
            seen = "not counted" if self.false_zones.seen is None else f"{self.false_zones.seen:,} seen"
            shown["zones without a match"] = f"{self.false_zones.expected:,.2g} expected, {seen}"
        if self.traffic.num_requests:
            shown["asked of object stores"] = (
                f"{counted(self.traffic.num_requests, 'request')}, {self.traffic.bytes_read:,} bytes"
            )
        shown |= {name.replace("_", " "): value for name, value in self.table.items()}
        answer = paragraph(f"{self.result.kind}: {self.result.kind.meaning}")
        return headed(self.predicate, answer, funnel(self.result), facts(shown), reasons_list(self.result.reasons))

    def __str__(self) -> str:
        kept, total = self.result.kept.to_dict(), self.result.total.to_dict()
        lines = [f"{self.predicate}", f"  answer: {self.result.kind} ({self.result.kind.meaning})"]
        for name in ("files", "zones", "rows", "bytes"):
            share = f"{kept[name] / total[name]:.4%}" if total[name] else "-"
            lines.append(f"  {name:<6} {kept[name]:>16,} of {total[name]:>16,}  ({share})")
        if self.result.kept.unreadable:
            unreadable = counted(self.result.kept.unreadable, "file")
            lines.append(f"  and the rows of {unreadable} that cannot be read: how many is unknown")
        lines += [
            f"  index covers {counted(self.num_covered, 'file')}; ignored: {counted(self.num_deleted, 'deleted file')}",
            f"  read whole: {self.num_unknown - self.num_changed:,} new, {counted(self.num_changed, 'changed file')}",
            f"  listed in {self.list_seconds * 1e3:,.1f} ms, searched in {self.search_seconds * 1e3:,.1f} ms",
        ]
        if self.false_zones is not None:
            seen = "not counted" if self.false_zones.seen is None else f"{self.false_zones.seen:,} seen"
            by = " of the locator" if self.false_zones.is_located else ""
            lines.append(f"  zones without a match: {self.false_zones.expected:,.2g} expected{by}, {seen}")
        if self.traffic.num_requests:
            requests = counted(self.traffic.num_requests, "request")
            lines.append(f"  {requests} to object stores, {self.traffic.bytes_read:,} bytes read")
        lines += [f"  {name.replace('_', ' ')} {value}" for name, value in self.table.items()]
        lines += [f"  {line}" for line in summed_up(self.result.reasons)]
        return "\n".join(wrapped(lines))


def explain(view: View, predicate: Predicate, result: SearchResult) -> Explanation:
    """The explanation of `result`, which `view` gave for `predicate`; looks into some of the kept filters as well."""
    num_covered = len(view.files) - view.num_unknown
    saturated = [reason for name in sorted(predicate.columns()) for reason in _saturation(view, name, result)]
    result = replace(result, reasons=(*result.reasons, *saturated))
    table = {} if view.declared is None else view.declared.state
    counts = (num_covered, view.num_unknown, view.files.num_changed, view.num_deleted)
    false_zones = _false_zones(view, predicate, result)
    return Explanation(as_sql(predicate), view.as_numbered(result), *counts, false_zones=false_zones, table=table)


def _false_zones(view: View, predicate: Predicate, result: SearchResult) -> FalseZones | None:
    """Expected and seen numbers of false zones; reads a few kept zones up to their first match."""
    if not isinstance(predicate, (Equals, IsIn)) or view.num_unknown or view.column(predicate.column) is None:
        return None
    entry = view.snapshot.manifest.column(predicate.column)
    num_keys = len(predicate.values) if isinstance(predicate, IsIn) else 1
    if entry is None or result.kind != Kind.AT_MOST or not result.zones:
        return None
    num_pairs = _num_located(view, entry)
    expected = result.num_zones * -math.expm1(num_keys * math.log1p(-entry.fpp))
    if num_pairs is not None:
        expected = num_keys * num_pairs / 2**KEY_BITS
    seen = _num_without_match(view, predicate, result)
    return FalseZones(expected, num_pairs is not None, result.num_zones_kept, seen)


def _num_located(view: View, entry: ColumnEntry) -> int | None:
    """Pairs of a column's locators; None where filters are asked."""
    from zonebloom.storage.locator.reader import LocatorSegment  # noqa: PLC0415 - most columns have filters
    from zonebloom.storage.locator.zones import LocatedZones  # noqa: PLC0415 - as above

    zones = view.snapshot.zones(entry)
    segments = zones.segments if isinstance(zones, LocatedZones) else view.snapshot.column(entry).filters
    counts = [one.layout.num_pairs for one in segments if isinstance(one, LocatorSegment)]
    return sum(counts) if counts else None


def _num_without_match(view: View, predicate: Equals | IsIn, result: SearchResult) -> int | None:
    from zonebloom.search.scan import scan  # noqa: PLC0415 - it loads what reads rows

    column = view.column(predicate.column)
    if column is None or result.num_zones_kept > _CHECKED_ZONES:
        return None
    zones = column.zones.positions
    found = 0
    try:
        for zone in np.flatnonzero(result.row_ranges.contains(zones.addresses)).tolist():
            start, length = int(zones.zone_starts[zone]), int(zones.zone_lengths[zone])
            rows = RowSelection.from_ranges([(int(zones.fragment_ids[zone]), start, start + length)])
            found += not scan(view, predicate, rows, [], 1).read_all().num_rows
    except ZoneBloomError:  # the answer stands without this
        return None
    return found


def _saturation(view: View, column: str, result: SearchResult) -> list[Reason]:
    """A reason if, of a few kept zones, some have filters that let most absent values pass."""
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
