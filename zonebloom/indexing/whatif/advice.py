"""What a build recommends: a locator for a column whose filters take as many bytes.

The number of values in a zone is estimated from the set bits of some filters; no data is read.

Design: docs/design/whatif.md#advice
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from zonebloom.bloom.locator_pages import KEY_BITS
from zonebloom.bloom.sizing import BLOCK_BYTES, expected_fpp
from zonebloom.rendering import Result, text
from zonebloom.search.view import View

_PAIR_BYTES = 4.2
"""Bytes of a locator for a pair of key and zone; measured: 4.17 with 20 million rows, 4.19 with 200,000."""
_AS_MANY = 1.1
"""Times the bytes of filters that a locator may take: random keys take 1.04, and keys that repeat less."""


@dataclass(frozen=True, slots=True)
class Advice(Result):
    """A locator for a column that has filters: estimated bytes, and mean zones kept for a key that is nowhere."""

    column: str
    """Name of the column."""
    index_bytes: int
    """Bytes of a locator."""
    filter_bytes: int
    """Bytes of the filters."""
    absent_kept: float
    """Zones kept by a locator."""
    filters_kept: float
    """Zones kept by the filters."""

    @property
    def headline(self) -> str:
        """The reason in a sentence."""
        return (
            f"a locator of {self.column} takes about {self.index_bytes / 1e6:.3g} MB, the filters take "
            f"{self.filter_bytes / 1e6:.3g}; an absent key keeps {text(self.absent_kept)} zones for nothing, by the "
            f"filters {text(self.filters_kept)}"
        )


def advice(view: View) -> list[Advice]:
    """A locator for each column of `view` whose filters take as many bytes, and keep more zones for nothing."""
    advised = []
    for entry in view.snapshot.manifest.columns:
        column = view.column(entry.name) if entry.kind == "bloom" else None
        if column is None or not len(column.zones):
            continue
        num_blocks = max(1, entry.index_bytes // (BLOCK_BYTES * entry.num_zones))
        num_values = [_num_values(fpp, num_blocks, entry.rows_per_zone) for fpp in column.sampled_fpps.tolist()]
        num_pairs = sum(num_values) / len(num_values) * entry.num_zones
        num_bytes = round(_PAIR_BYTES * num_pairs)
        if num_bytes <= _AS_MANY * entry.index_bytes:
            kept, kept_now = num_pairs / 2**KEY_BITS, entry.num_zones * float(column.sampled_fpps.mean())
            advised.append(Advice(entry.name, num_bytes, entry.index_bytes, kept, kept_now))
    return advised


def _num_values(fpp: float, num_blocks: int, most: int) -> int:
    """The number of values that give a filter this probability."""
    return bisect_left(range(most), fpp, key=lambda count: expected_fpp(count, num_blocks))
