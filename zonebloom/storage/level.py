"""What the version file says of the filters above the zones.

Spec: specs/levels.md#entry
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zonebloom.storage.segment import SegmentEntry

__all__ = ["LevelEntry"]


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
        """The entry as it stands in a version file."""
        return {
            "name": self.name,
            "num_values": self.num_values,
            "fpp": self.fpp,
            "segments": [segment.to_json() for segment in self.segments],
        }
