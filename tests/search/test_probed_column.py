"""Zones of a probed column give the rows that row ranges give, whatever tree, changed files and uncovered rows.

Oracle: the algebra of row ranges (`RowSelection`), which tests/bloom/test_selection.py compares with sets of rows.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pyarrow as pa
from hypothesis import example, given, settings, strategies as st

import zonebloom as zb
from tests.depth import at_depth
from tests.storage.test_column_reader import reader_of
from zonebloom.bloom.selection import Bounds, RowSelection
from zonebloom.bloom.zones import ZonePositions
from zonebloom.predicates import And, Not, Or, Predicate, parse_predicate
from zonebloom.predicates.row_filter import to_expression
from zonebloom.search.evaluate import evaluate
from zonebloom.search.probed_column import ProbedColumn


def positions_of(starts, lengths) -> ZonePositions:
    """Zones of fragment 0."""
    numbers = np.array([np.zeros(len(starts)), starts, lengths], np.uint64)
    return ZonePositions(*numbers, np.zeros(len(starts), bool))


ROWS_PER_ZONE = {"a": 2, "b": 2, "c": 3}


class RangesColumn(ProbedColumn):
    """A column whose zones are row ranges at once."""

    def rows_of(self, chosen):
        firsts = self.zones.positions.addresses
        stops = firsts + self.zones.positions.zone_lengths
        if self.live is not None:
            chosen = chosen[self.live[chosen]]
        return RowSelection.from_addresses(firsts[chosen], stops[chosen]) | self.uncovered


class Lake:
    """Fragments of random rows, of which some are not live, and some have no filters of some column."""

    def __init__(self, seed: int, num_fragments: int, num_values: int, gaps: str) -> None:
        self.random = np.random.default_rng(seed)
        self.lengths = {number: int(self.random.integers(1, 90)) for number in range(num_fragments)}
        self.num_values = num_values
        self.live = [length for length in self.lengths if "dead" not in gaps or self.random.random() < 0.7]
        self.universe = self._rows(self.live)
        same = self._segments(gaps)
        self.columns = {name: self._column(name, self._segments(gaps) if "own" in gaps else same) for name in "abc"}

    def _rows(self, fragments) -> RowSelection:
        return RowSelection.from_ranges((fragment, 0, self.lengths[fragment]) for fragment in fragments)

    def _segments(self, gaps: str) -> list[int]:
        order = list(self.lengths) if "order" not in gaps else self.random.permutation(list(self.lengths)).tolist()
        return [number for number in order if "unseen" not in gaps or self.random.random() < 0.8]

    def _column(self, name: str, segments: list[int]) -> ProbedColumn:
        tables = []
        for segment in segments:
            builder = zb.ZoneBuilder(pa.int64(), rows_per_zone=ROWS_PER_ZONE[name])
            values = self.random.integers(0, self.num_values, self.lengths[segment])
            builder.add(segment, pa.array(values, mask=self.random.random(self.lengths[segment]) < 0.2))
            tables.append(builder.finish())
        loaded = reader_of(tables)
        is_live = np.isin(loaded.positions.fragment_ids, self.live)
        uncovered = self.universe - self._rows(segment for segment in segments if segment in self.live)
        live = None if is_live.all() else is_live
        return ProbedColumn.of(name, pa.int64(), loaded, uncovered, live=live)

    def constant_bounds(self, predicate: Predicate) -> Bounds:
        """`part = n` is true in fragments whose id is n modulo 3."""
        table = pa.table({"part": [number % 3 for number in self.live]})
        matching = table.append_column("id", [self.live]).filter(to_expression(predicate, table.schema))
        hits = set(matching["id"].to_pylist())
        return Bounds(self._rows(hits), self._rows(set(self.live) - hits), exact=True)


class Searched:
    """A lake with its columns in one of two forms."""

    constant_columns = frozenset({"part"})

    def __init__(self, lake: Lake, columns: dict[str, ProbedColumn]) -> None:
        self.universe, self.constant_bounds, self.column = lake.universe, lake.constant_bounds, columns.get


values = st.integers(0, 60)
leaves = st.one_of(
    st.builds(zb.Equals, st.sampled_from("abc"), values),
    st.builds(zb.IsIn, st.sampled_from("abc"), st.lists(values, max_size=4)),
    st.builds(zb.IsIn, st.sampled_from("ab"), st.just(list(range(300)))),
    st.builds(zb.IsNull, st.sampled_from("abc")),
    st.builds(zb.Equals, st.just("part"), st.integers(0, 3)),
    st.sampled_from(["a > 3", "a = b", "part = 1 AND part < 2", "part > c"]).map(parse_predicate),
)
trees = st.recursive(
    leaves,
    lambda children: st.one_of(
        st.lists(children, min_size=2, max_size=4).map(And),
        st.lists(children, min_size=2, max_size=4).map(Or),
        children.map(Not),
    ),
    max_leaves=10,
)


@given(
    tree=trees,
    seed=st.integers(0, 2**32),
    num_fragments=st.integers(0, 6),
    num_values=st.sampled_from([1, 4, 60]),
    gaps=st.sets(st.sampled_from(["dead", "unseen", "order", "own"])).map(" ".join),
)
@settings(max_examples=at_depth(400, 40), deadline=None)
def test_zones_give_the_rows_of_row_ranges(tree, seed, num_fragments, num_values, gaps):
    lake = Lake(seed, num_fragments, num_values, gaps)
    plain = {
        name: RangesColumn(name, *(getattr(column, field.name) for field in fields(column)[1:]))
        for name, column in lake.columns.items()
    }
    actual, wanted = (evaluate(tree, Searched(lake, columns), {}) for columns in (lake.columns, plain))
    assert actual == wanted


cuts = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=40)
"""Zones of a fragment: a gap and a length each."""


@example(cuts=[(0, 1), (0, 1)], overlap=True, chosen={0, 1}, uncovered=False)
@given(cuts=cuts, overlap=st.booleans(), chosen=st.sets(st.integers(0, 39)), uncovered=st.booleans())
def test_the_rows_of_zones_are_their_row_ranges_and_what_is_not_covered(cuts, overlap, chosen, uncovered):
    gaps, lengths = np.array(cuts, np.uint64).reshape(-1, 2).T
    starts = np.cumsum(gaps + lengths) - lengths
    if overlap:
        lengths = lengths + np.uint64(3)
    rest = RowSelection.from_ranges([(1, 0, 5)] if uncovered else [])
    positions = positions_of(starts, lengths)
    firsts, ends = positions.addresses, positions.addresses + positions.zone_lengths
    column = ProbedColumn("a", pa.int64(), reader_of([]), firsts, ends, rest)
    numbers = np.array(sorted(key for key in chosen if key < len(cuts)), np.intp)
    assert column.rows_of(numbers) == RowSelection.from_addresses(firsts[numbers], ends[numbers]) | rest
