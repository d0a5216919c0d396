"""Explanations: the funnel of a search, and a reason for each part that was not pruned.

Spec: specs/pruning.md#explain
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zonebloom.coverage import View
from zonebloom.predicates import Predicate
from zonebloom.pruning import SearchResult

__all__ = ["Explanation", "explain"]

_SHOWN_REASONS = 20


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
    num_deleted: int
    """Files that the index describes and that are gone: ignored."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        files = {"covered": self.num_covered, "unknown": self.num_unknown, "deleted": self.num_deleted}
        found = self.result.to_dict()
        return {
            "predicate": self.predicate,
            "kind": found["kind"],
            "kept": found["kept"],
            "total": found["total"],
            "files": files,
            "reasons": found["reasons"],
        }

    def __str__(self) -> str:
        kept, total = self.result.kept.to_dict(), self.result.total.to_dict()
        lines = [f"{self.predicate}", f"  answer: {self.result.kind}"]
        for name in ("files", "zones", "rows", "bytes"):
            share = f"{kept[name] / total[name]:.4%}" if total[name] else "-"
            lines.append(f"  {name:<6} {kept[name]:>16,} of {total[name]:>16,}  ({share})")
        lines.append(
            f"  index covers {self.num_covered:,} files; {self.num_unknown:,} new or changed are read whole; "
            f"{self.num_deleted:,} deleted are ignored"
        )
        reasons = self.result.reasons
        for reason in reasons[:_SHOWN_REASONS]:
            where = " ".join(part for part in (reason.column, reason.path) if part)
            lines.append(f"  {reason.code}{f' ({where})' if where else ''}: {reason.message}")
        if len(reasons) > _SHOWN_REASONS:
            lines.append(f"  … and {len(reasons) - _SHOWN_REASONS:,} more reasons (all of them in JSON)")
        return "\n".join(lines)


def explain(view: View, predicate: Predicate, result: SearchResult) -> Explanation:
    """The explanation of `result`, which `view` gave for `predicate`."""
    num_covered = len(view.files) - view.num_unknown
    return Explanation(str(predicate), result, num_covered, view.num_unknown, view.num_deleted)
