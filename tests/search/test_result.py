"""`TouchedRanges`: counting the zones and row groups that a selection touches."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from zonebloom.bloom.selection import RowSelection
from zonebloom.search.result import TouchedRanges

ZONES = [(fragment, start, start + length) for fragment in range(3) for start, length in ((0, 10), (10, 10), (20, 5))]


@given(
    order=st.permutations(range(len(ZONES))),
    chosen=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 24), st.integers(1, 20)), max_size=8),
)
def test_touched_ranges_are_counted_whatever_their_order(order, chosen):
    rows = RowSelection.from_ranges((fragment, start, start + length) for fragment, start, length in chosen)
    columns = np.array([ZONES[i] for i in order], np.uint64)
    weights = np.array([2**i for i in order], np.uint64)
    touched = [
        i
        for i, (fragment, start, stop) in enumerate(ZONES)
        if any(row.fragment_id == fragment and row.start < stop and row.stop > start for row in rows)
    ]
    counted = TouchedRanges(columns[:, 0], columns[:, 1], columns[:, 2], weights)
    assert counted.touched(rows) == (len(touched), sum(2**i for i in touched))
    assert counted.weight == 2 ** len(ZONES) - 1
