"""Explanations: the funnel of a search, and a reason for each part that was not pruned.

Spec: specs/pruning.md#explain
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from zonebloom.predicates import Predicate
from zonebloom.reasons import Reason, ReasonCode
from zonebloom.search.result import SearchResult
from zonebloom.search.view import View
from zonebloom.storage.stores.store import Traffic

__all__ = ["Explanation", "explain"]

_SHOWN_REASONS = 20
_LOOKED_AT_ZONES = 64
_SATURATED_FPP = 0.5


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a search kept of how much, and why; `str()` of it is for people."""

    predicate: str
    """The predicate as it was understood."""
    result: SearchResult
    """The search."""
    num_covered: int
    """Files that the index describes as they are."""
    num_unknown: int
    """Files that are new or changed: read whole."""
    num_changed: int
    """Of those, files that changed."""
    num_deleted: int
    """Files that the index describes and that are gone: ignored."""
    traffic: Traffic = field(default_factory=Traffic)
    """What the search asked of object stores; zeros where index and data are local."""
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
            "files": files,
            "requests": self.traffic.num_requests,
            "bytes_read": self.traffic.bytes_read,
            **self.table,
            "reasons": found["reasons"],
        }

    def __str__(self) -> str:
        kept, total = self.result.kept.to_dict(), self.result.total.to_dict()
        lines = [f"{self.predicate}", f"  answer: {self.result.kind}"]
        for name in ("files", "zones", "rows", "bytes"):
            share = f"{kept[name] / total[name]:.4%}" if total[name] else "-"
            lines.append(f"  {name:<6} {kept[name]:>16,} of {total[name]:>16,}  ({share})")
        lines.append(
            f"  index covers {self.num_covered:,} files; {self.num_unknown - self.num_changed:,} new and "
            f"{self.num_changed:,} changed are read whole; "
            f"{self.num_deleted:,} deleted are ignored"
        )
        if self.traffic.num_requests:
            lines.append(
                f"  {self.traffic.num_requests:,} requests to object stores, {self.traffic.bytes_read:,} bytes read"
            )
        lines += [f"  {name.replace('_', ' ')} {value}" for name, value in self.table.items()]
        reasons = self.result.reasons
        for reason in reasons[:_SHOWN_REASONS]:
            where = " ".join(part for part in (reason.column, reason.path) if part)
            lines.append(f"  {reason.code}{f' ({where})' if where else ''}: {reason.message}")
        if len(reasons) > _SHOWN_REASONS:
            lines.append(f"  … and {len(reasons) - _SHOWN_REASONS:,} more reasons (all of them in JSON)")
        return "\n".join(lines)


def explain(view: View, predicate: Predicate, result: SearchResult) -> Explanation:
    """The explanation of `result`, which `view` gave for `predicate`; looks into some of the kept filters as well."""
    num_covered = len(view.files) - view.num_unknown
    saturated = [reason for name in sorted(predicate.columns()) for reason in _saturation(view, name, result)]
    result = replace(result, reasons=(*result.reasons, *saturated))
    table = {} if view.declared is None else view.declared.state
    counts = (num_covered, view.num_unknown, view.files.num_changed, view.num_deleted)
    return Explanation(str(predicate), result, *counts, table=table)


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
        f"{num_saturated} of {len(looked_at)} kept zones that were looked at have filters that pass most "
        "absent values; build with a smaller fpp or rows_per_zone"
    )
    return [Reason(ReasonCode.SATURATED_FILTER, message, column=column)]
