"""Zone sets give the rows that row ranges give, whatever the tree, the grids, the changed files and the uncovered rows.

Oracle: the algebra of row ranges (`RowSelection`), which tests/test_selection.py compares with sets of rows.
"""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import zonebloom as zb
from tests.depth import at_depth
from zonebloom.bloom.zones import ZonePositions
from zonebloom.predicates import Predicate, parse_predicate
from zonebloom.search.bind import bind
from zonebloom.search.column_reader import ColumnReader, OpenedSegment
from zonebloom.search.evaluate import ProbedColumn, evaluate
from zonebloom.search.selection import Bounds, RowSelection
from zonebloom.search.zone_bitmap import ZoneGrid, ZoneSet


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
        return RowSelection.from_addresses(firsts[chosen], stops[chosen]) | self.grid.uncovered


class Lake:
    """Fragments of random rows, of which some are not live, and some have no filters of some column."""

    def __init__(self, seed: int, num_fragments: int, num_values: int, gaps: str) -> None:
        self.random = np.random.default_rng(seed)
        self.lengths = {one: int(self.random.integers(1, 90)) for one in range(num_fragments)}
        self.num_values = num_values
        self.live = [one for one in self.lengths if "dead" not in gaps or self.random.random() < 0.7]
        self.universe = self._rows(self.live)
        same = self._segments(gaps)
        self.columns = {name: self._column(name, self._segments(gaps) if "own" in gaps else same) for name in "abc"}

    def _rows(self, fragments) -> RowSelection:
        return RowSelection.from_ranges((one, 0, self.lengths[one]) for one in fragments)

    def _segments(self, gaps: str) -> list[int]:
        order = list(self.lengths) if "order" not in gaps else self.random.permutation(list(self.lengths)).tolist()
        return [one for one in order if "unseen" not in gaps or self.random.random() < 0.8]

    def _column(self, name: str, segments: list[int]) -> ProbedColumn:
        tables = []
        for one in segments:
            builder = zb.ZoneBuilder(pa.int64(), rows_per_zone=ROWS_PER_ZONE[name])
            values = self.random.integers(0, self.num_values, self.lengths[one])
            builder.add(one, pa.array(values, mask=self.random.random(self.lengths[one]) < 0.2))
            tables.append(builder.finish())
        loaded = ColumnReader([OpenedSegment("", table) for table in tables])
        is_live = np.isin(loaded.positions.fragment_ids, self.live)
        uncovered = self.universe - self._rows(one for one in segments if one in self.live)
        grid, places = ZoneGrid.of(loaded.positions, uncovered, None if is_live.all() else is_live)
        return ProbedColumn(name, pa.int64(), loaded, grid, places)

    def shared(self) -> dict[str, ProbedColumn]:
        """The columns with one grid for those whose zones have the same rows, as a view has them."""
        grids = []
        found = {}
        for name, one in self.columns.items():
            grids.append(next((grid for grid in grids if grid.has_rows_of(one.grid)), one.grid))
            found[name] = ProbedColumn(name, one.column_type, one.zones, grids[-1], one.places)
        return found

    def constant_bounds(self, predicate: Predicate) -> Bounds:
        """`part = n` is true in fragments whose id is n modulo 3."""
        table = pa.table({"part": [one % 3 for one in self.live]})
        hits = set(
            table.append_column("id", [self.live]).filter(predicate.to_expression(table.schema))["id"].to_pylist()
        )
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
        st.lists(children, min_size=2, max_size=4).map(zb.And),
        st.lists(children, min_size=2, max_size=4).map(zb.Or),
        children.map(zb.Not),
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
def test_zone_sets_give_the_rows_of_row_ranges(tree, seed, num_fragments, num_values, gaps):
    lake = Lake(seed, num_fragments, num_values, gaps)
    plain = {
        name: RangesColumn(name, one.column_type, one.zones, one.grid, one.places) for name, one in lake.columns.items()
    }
    found, wanted = (evaluate(bind(tree, Searched(lake, columns))) for columns in (lake.shared(), plain))
    assert found == wanted


cuts = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=40)
"""Zones of a fragment: a gap and a length each."""


@example(cuts=[(0, 1), (0, 1)], overlap=True, chosen=({0}, {1}, {0}), uncovered=False)
@given(cuts=cuts, overlap=st.booleans(), chosen=st.tuples(*[st.sets(st.integers(0, 39))] * 3), uncovered=st.booleans())
def test_joined_zone_sets_are_joined_row_ranges(cuts, overlap, chosen, uncovered):
    """Sparse and dense sets in all pairs, with a second grid, and where zones share rows."""
    gaps, lengths = np.array(cuts, np.uint64).reshape(-1, 2).T
    starts = np.cumsum(gaps + lengths) - lengths
    if overlap:
        lengths = lengths + np.uint64(3)
    rest = RowSelection.from_ranges([(1, 0, 5)] if uncovered else [])
    grid, other = (ZoneGrid.of(positions_of(starts, lengths), rest)[0] for _ in range(2))
    numbers = [np.array(sorted(one for one in some if one < len(cuts)), np.intp) for some in chosen]
    a, b = (grid.rows_of(one) for one in numbers[:2])
    c = other.rows_of(numbers[2])
    plain_a, plain_b, plain_c = (
        RowSelection.from_addresses(grid.firsts[one], grid.ends[one]) | rest for one in numbers
    )
    assert (a & b) == (plain_a & plain_b)
    assert (a | b) == (plain_a | plain_b)
    assert (a & b | c) == (plain_a & plain_b | plain_c)
    assert ((a | b) & c) == ((plain_a | plain_b) & plain_c)
    assert ((a | b) & b) == plain_b
    assert (a - b) == (plain_a - plain_b)
    again = pickle.loads(pickle.dumps(a | b))
    assert type(again) is RowSelection
    assert again == plain_a | plain_b


def test_what_a_zone_set_lacks_is_named():
    grid, _ = ZoneGrid.of(positions_of([0], [5]), RowSelection.empty())
    with pytest.raises(AttributeError, match="got tail"):
        _ = grid.rows_of(np.array([0])).tail


@pytest.fixture
def index(tmp_path) -> zb.Index:
    """Two columns of 40 zones of 10 rows in two files; `a` has a value a zone, and `b` a value in two neighbours."""
    for name, first in (("x", 0), ("y", 20)):
        zone = np.repeat(np.arange(first, first + 20), 10)
        pq.write_table(pa.table({"a": zone, "b": zone // 2, "c": zone}), tmp_path / f"{name}.parquet")
    return zb.build_index(tmp_path, ["a", "b"], rows_per_zone=10)


def count_of(monkeypatch, searched, predicate) -> tuple[list[tuple[int, int, int]], int]:
    """The row ranges of a search, and how often zones became row ranges for it."""
    made = []
    to_ranges = ZoneSet.to_ranges
    with monkeypatch.context() as patch:
        patch.setattr(ZoneSet, "to_ranges", lambda self: made.append(self) or to_ranges(self))
        return list(searched.search(predicate).row_ranges), len(made)


def test_row_ranges_are_made_once_for_all_leaves_over_one_grid(index, monkeypatch):
    view = index.view()
    assert view.column("a").grid is view.column("b").grid
    assert count_of(monkeypatch, index, "a = 7") == ([(0, 70, 80)], 1)
    assert count_of(monkeypatch, index, "a IN (6, 7, 30) AND b = 3") == ([(0, 60, 80)], 1)
    assert count_of(monkeypatch, index, "(a = 1 OR b = 15) AND a IN (1, 2, 30)") == ([(0, 10, 20), (1, 100, 110)], 1)
    assert count_of(monkeypatch, index, "NOT (NOT a = 7 OR NOT b = 3)") == ([(0, 70, 80)], 1)
    assert count_of(monkeypatch, index, "a IN (7, 8) AND c > 7 AND b = 3") == ([(0, 70, 80)], 1)


def test_columns_share_a_grid_as_far_as_their_rows_are_the_same(index, tmp_path, monkeypatch):
    pq.write_table(pa.table({"a": [99] * 5, "b": [99] * 5, "c": [99] * 5}), tmp_path / "z.parquet")
    assert count_of(monkeypatch, index, "a = 7 AND b = 3") == ([(0, 70, 80), (2, 0, 5)], 1)
    pq.write_table(pa.table({"a": [99] * 6, "b": [99] * 6, "c": [99] * 6}), tmp_path / "x.parquet")
    index.refresh()
    view = index.view()
    assert view.column("a").grid is view.column("b").grid
    assert len(index.search("a = 30 AND b = 15").row_ranges) == 1
    finer = zb.build_index(tmp_path, "c", rows_per_zone=5)
    view = finer.view()
    assert view.column("a").grid is view.column("b").grid is not view.column("c").grid
    found, made = count_of(monkeypatch, finer, "a IN (30, 31) AND c = 31 AND b = 15")
    assert (found, made) == (list(finer.search("c = 31").row_ranges), 2)
