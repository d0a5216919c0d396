"""Entries of the version file for the filters above the zones.

Spec: specs/levels.md#entry
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from zonebloom.options import LEVELS
from zonebloom.storage.segment import SegmentEntry


@dataclass(frozen=True, slots=True)
class LevelEntry:
    """One level of a column."""

    name: str
    """`fragment`, one filter for each fragment, or `dataset`, one for all fragments of a build."""
    num_values: int
    """Distinct values, summed over the filters."""
    fpp: float
    """Mean false positive probability of the filters, counted from their bits."""
    segments: tuple[SegmentEntry, ...]
    """Where the filters are."""

    @property
    def num_filters(self) -> int:
        """Filters over all segments."""
        return sum(segment.num_zones for segment in self.segments)

    @property
    def index_bytes(self) -> int:
        """Bytes on disk over all segments."""
        return sum(segment.num_bytes for segment in self.segments)

    def to_json(self) -> dict[str, Any]:
        """The entry as JSON of a version file."""
        return {
            "name": self.name,
            "num_values": self.num_values,
            "fpp": self.fpp,
            "segments": [segment.to_json() for segment in self.segments],
        }


def joined_levels(levels: Iterable[LevelEntry]) -> tuple[LevelEntry, ...]:
    """Levels of one column as one of each name, from the fragments up; each filter covers its own fragments only."""
    parts: dict[str, list[LevelEntry]] = {}
    for level in levels:
        parts.setdefault(level.name, []).append(level)
    return tuple(_joined(name, parts[name]) for name in LEVELS if name in parts)


def _joined(name: str, parts: list[LevelEntry]) -> LevelEntry:
    filled = [part for part in parts if part.segments]
    if len(filled) == 1:
        return filled[0]
    sum_of_fpp = sum(part.fpp * part.num_filters for part in filled)
    fpp = sum_of_fpp / max(sum(part.num_filters for part in filled), 1)
    segments = tuple(segment for part in filled for segment in part.segments)
    return LevelEntry(name, sum(part.num_values for part in parts), fpp, segments)
