"""What a build recommends: a locator for a column whose filters take as many bytes, or filters that take much fewer.

The number of values in a zone is estimated from the set bits of some filters; no data is read.

Design: docs/design/whatif.md#advice
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Literal

from zonebloom.bloom.locator_pages import KEY_BITS
from zonebloom.bloom.sizing import BLOCK_BYTES, Sizing, expected_fpp, num_blocks_for
from zonebloom.ground.rendering import Result, text
from zonebloom.indexing.whatif.forecast import MUCH_SMALLER, build_options
from zonebloom.search.view import View

_PAIR_BYTES = 4.2
"""Bytes of a locator for a pair of key and zone; measured: 4.17 with 20 million rows, 4.19 with 200,000."""
_AS_MANY = 1.1
"""Times the bytes of filters that a locator may take: random keys take 1.04, and keys that repeat less. Smaller filters
must save as much."""


@dataclass(frozen=True, slots=True)
class Advice(Result):
    """A better way to build a column that has filters: estimated bytes, and zones kept for a key that is nowhere."""

    column: str
    """Name of the column."""
    kind: Literal["bloom", "locator"]
    """The kind to build."""
    sizing: Sizing | None
    """How large a filter is; None for a locator."""
    fpp: float | None
    """As requested, of filters; None for a locator."""
    rows_per_zone: int
    """As the column has."""
    index_bytes: int
    """Bytes of the way that is recommended."""
    filter_bytes: int
    """Bytes of the filters that were built."""
    absent_kept: float
    """Zones kept by the way that is recommended."""
    filters_kept: float
    """Zones kept by the filters that were built."""

    @property
    def build_options(self) -> list[str]:
        """Options of the command that builds the column so."""
        return build_options(self.kind, self.sizing, self.fpp, self.rows_per_zone)

    @property
    def headline(self) -> str:
        """The reason in a sentence."""
        taken = f"{self.index_bytes / 1e6:.3g} MB, the present filters take {self.filter_bytes / 1e6:.3g}"
        what = "a locator takes" if self.kind == "locator" else "filters by their distinct values take"
        kept, kept_now = text(self.absent_kept), text(self.filters_kept)
        return f"{self.column}: {what} about {taken}; an absent key keeps {kept} zones for nothing, now {kept_now}"


def advice(view: View) -> list[Advice]:
    """A better way for each column of `view` with filters, if there is one.

    It is a locator that takes hardly more bytes, and keeps hardly a zone for nothing. Filters by their distinct values
    are better if they take at most a third of a locator's bytes, as `whatif` recommends.
    """
    advised = []
    for entry in view.entries:
        column = view.column(entry.name) if entry.kind == "bloom" else None
        if column is None or not len(column.zones):
            continue
        num_blocks = max(1, entry.index_bytes // (BLOCK_BYTES * entry.num_zones))
        num_values = [_num_values(fpp, num_blocks, entry.rows_per_zone) for fpp in column.sampled_fpps.tolist()]
        per_sample = entry.num_zones / len(num_values)
        kept_now = entry.num_zones * float(column.sampled_fpps.mean())
        locator_bytes = round(_PAIR_BYTES * per_sample * sum(num_values))
        sizes = [num_blocks_for(count, entry.fpp, "adaptive") for count in num_values]
        adaptive_bytes = round(BLOCK_BYTES * per_sample * sum(sizes))
        if adaptive_bytes <= MUCH_SMALLER * locator_bytes:
            way: tuple[Literal["bloom", "locator"], Sizing | None, float | None] = ("bloom", "adaptive", entry.fpp)
            num_bytes, most = adaptive_bytes, entry.index_bytes / _AS_MANY
            kept = per_sample * sum(map(expected_fpp, num_values, sizes))
        else:
            way, num_bytes, most = ("locator", None, None), locator_bytes, entry.index_bytes * _AS_MANY
            kept = per_sample * sum(num_values) / 2**KEY_BITS
        if num_bytes <= most:
            advised.append(Advice(entry.name, *way, entry.rows_per_zone, num_bytes, entry.index_bytes, kept, kept_now))
    return advised


def _num_values(fpp: float, num_blocks: int, most: int) -> int:
    """The number of values that give a filter this probability."""
    return bisect_left(range(most), fpp, key=lambda count: expected_fpp(count, num_blocks))
