"""RowSelection against Python sets of row addresses; Bounds against brute force over all three-valued tables."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st

from zonebloom.bloom.addresses import MAX_FRAGMENT_ID, MAX_ROWS
from zonebloom.bloom.selection import Bounds, Kind, RowRange, RowSelection
from zonebloom.errors import InvalidArgumentError

ranges = st.lists(
    st.tuples(st.sampled_from([0, 1, 2, MAX_FRAGMENT_ID]), st.integers(0, 12), st.integers(0, 6)).map(
        lambda r: (r[0], r[1], r[1] + r[2])
    ),
    max_size=12,
)


def rows_of(selection) -> set[tuple[int, int]]:
    return {(r.fragment_id, row) for r in selection for row in range(r.start, r.stop)}


def rows_of_ranges(given_ranges) -> set[tuple[int, int]]:
    return {(fragment_id, row) for fragment_id, start, stop in given_ranges for row in range(start, stop)}


def assert_canonical(selection) -> None:
    """Sorted, disjoint, non-empty, non-adjacent inside a fragment."""
    listed = list(selection)
    assert all(r.start < r.stop for r in listed)
    for left, right in itertools.pairwise(listed):
        assert (left.fragment_id, left.stop) < (right.fragment_id, right.start)


@given(ranges)
def test_a_selection_is_canonical_and_holds_exactly_its_ranges(given_ranges):
    selection = RowSelection.from_ranges(given_ranges)
    assert_canonical(selection)
    assert rows_of(selection) == rows_of_ranges(given_ranges)
    assert selection.num_rows == len(rows_of_ranges(given_ranges))
    assert len(selection) == len(list(selection))


@given(ranges, ranges)
def test_set_operations_are_those_of_python_sets(left, right):
    a, b = RowSelection.from_ranges(left), RowSelection.from_ranges(right)
    rows_a, rows_b = rows_of_ranges(left), rows_of_ranges(right)
    for got, wanted in ((a & b, rows_a & rows_b), (a | b, rows_a | rows_b), (a - b, rows_a - rows_b)):
        assert_canonical(got)
        assert rows_of(got) == wanted
    assert a.issubset(b) == (rows_a <= rows_b)
    assert (a == b) == (rows_a == rows_b)


@given(ranges)
def test_contains_is_membership(given_ranges):
    selection = RowSelection.from_ranges(given_ranges)
    asked = [(f, row) for f in (0, 1, 2, 3, MAX_FRAGMENT_ID) for row in range(20)]
    addresses = np.array([f << 32 | row for f, row in asked], np.uint64)
    assert selection.contains(addresses).tolist() == [pair in rows_of_ranges(given_ranges) for pair in asked]


@given(ranges, st.sampled_from([0, 1, 2, 3, MAX_FRAGMENT_ID]))
def test_fragment_gives_the_rows_of_one_fragment(given_ranges, fragment_id):
    part = RowSelection.from_ranges(given_ranges).fragment(fragment_id)
    assert rows_of(part) == {pair for pair in rows_of_ranges(given_ranges) if pair[0] == fragment_id}


def test_ranges_never_merge_across_fragments():
    selection = RowSelection.from_ranges([(0, 0, MAX_ROWS), (1, 0, MAX_ROWS)])
    assert list(selection) == [RowRange(0, 0, MAX_ROWS), RowRange(1, 0, MAX_ROWS)]
    assert selection.num_rows == 2 * MAX_ROWS


def test_the_last_row_of_the_last_fragment_is_a_row():
    last = RowSelection.from_ranges([(MAX_FRAGMENT_ID, 0, MAX_ROWS)])
    most = RowSelection.from_ranges([(MAX_FRAGMENT_ID, 0, MAX_ROWS - 1)])
    assert list(last - most) == [RowRange(MAX_FRAGMENT_ID, MAX_ROWS - 1, MAX_ROWS)]


def test_a_selection_cannot_be_changed_through_its_arguments():
    fragment_ids, starts, stops = np.zeros(1, np.uint64), np.zeros(1, np.uint64), np.ones(1, np.uint64)
    selection = RowSelection.from_arrays(fragment_ids, starts, stops)
    stops[0] = 99
    assert selection.num_rows == 1


def test_no_row_is_the_empty_selection():
    empty = RowSelection.empty()
    assert not len(empty)
    assert empty.num_rows == 0
    assert RowSelection.from_ranges([]) == empty == RowSelection.from_ranges([(0, 3, 3)])
    assert not empty.contains(np.array([0], np.uint64)).any()
    assert repr(empty) == "<RowSelection 0 rows in 0 ranges: >"


ranges_of = RowSelection.from_arrays


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: ranges_of([MAX_FRAGMENT_ID + 1], [0], [1]), rf"fragment_ids must be in 0..{MAX_FRAGMENT_ID}, got \d"),
        (lambda: ranges_of([0], [0], [MAX_ROWS + 1]), f"stops must be in 0..{MAX_ROWS}, got {MAX_ROWS + 1}"),
        (lambda: ranges_of([0], [-1], [1]), "starts must be in 0.."),
        (lambda: ranges_of([0], [2**70], [1]), "starts must be in 0.."),
        (lambda: ranges_of([0], [2], [1]), r"start <= stop, got \[2, 1\) of fragment 0"),
        (lambda: ranges_of([0, 1], [0], [1]), "one length, got 2, 1 and 1"),
        (lambda: ranges_of([0.5], [0], [1]), "1-d array of integers"),
        (lambda: ranges_of([0, 1], [0, None], [1, 1]), "starts must be a 1-d array of integers"),
        (lambda: ranges_of([0, 1], [0, 0], [2**70, None]), "stops must be a 1-d array of integers"),
        (lambda: ranges_of([[0]], [[0]], [[1]]), "1-d array of integers"),
        (lambda: RowSelection.from_ranges([(0, 1)]), r"must be \(fragment_id, start, stop\), got \(0, 1\)"),
        (lambda: RowSelection.from_ranges([None]), r"must be \(fragment_id, start, stop\), got None"),
        (lambda: RowSelection.empty().contains([0.5]), "must be unsigned integers, got dtype float64"),
        (lambda: RowSelection.empty().fragment(-1), "fragment_id must be in"),
    ],
)
def test_what_is_no_row_range_no_address_and_no_fragment_is_refused(call, told):
    with pytest.raises(InvalidArgumentError, match=told):
        call()


def test_a_selection_is_made_by_its_constructors():
    with pytest.raises(TypeError, match="must be made by"):
        RowSelection()


# --- Bounds -----------------------------------------------------------------------------------------------------------

NUM_ROWS = 9
UNIVERSE = RowSelection.from_ranges([(0, 0, NUM_ROWS)])
PAIRS = list(itertools.product((True, False, None), repeat=2))
"""One row for each pair of outcomes of two predicates."""


def select(rows) -> RowSelection:
    return RowSelection.from_ranges((0, row, row + 1) for row in rows)


def bounds_of(outcomes, extra_true=(), extra_false=(), *, exact=False) -> Bounds:
    true_rows = {i for i, outcome in enumerate(outcomes) if outcome is True} | set(extra_true)
    false_rows = {i for i, outcome in enumerate(outcomes) if outcome is False} | set(extra_false)
    return Bounds(select(true_rows), select(false_rows), exact=exact)


def sql_not(a):
    return None if a is None else not a


def sql_and(a, b):
    return False if a is False or b is False else None if a is None or b is None else True


def sql_or(a, b):
    return sql_not(sql_and(sql_not(a), sql_not(b)))


def assert_sound(bounds, outcomes) -> None:
    for row, outcome in enumerate(outcomes):
        address = np.array([row], np.uint64)
        assert outcome is not True or bounds.true_rows.contains(address)[0]
        assert outcome is not False or bounds.false_rows.contains(address)[0]


LEFT, RIGHT = zip(*PAIRS, strict=True)
slack = st.sets(st.integers(0, NUM_ROWS - 1))


@given(slack, slack, slack, slack)
def test_bounds_are_sound_for_every_three_valued_table(true_a, false_a, true_b, false_b):
    a, b = bounds_of(LEFT, true_a, false_a), bounds_of(RIGHT, true_b, false_b)
    assert_sound(~a, list(map(sql_not, LEFT)))
    assert_sound(a & b, list(map(sql_and, LEFT, RIGHT)))
    assert_sound(a | b, list(map(sql_or, LEFT, RIGHT)))
    assert_sound(~(a & ~b) | a, [sql_or(sql_not(sql_and(x, sql_not(y))), x) for x, y in PAIRS])


def test_exact_bounds_stay_exact():
    a, b = bounds_of(LEFT, exact=True), bounds_of(RIGHT, exact=True)
    assert ~a == bounds_of(list(map(sql_not, LEFT)), exact=True)
    assert a & b == bounds_of(list(map(sql_and, LEFT, RIGHT)), exact=True)
    assert a | b == bounds_of(list(map(sql_or, LEFT, RIGHT)), exact=True)
    assert not (a & Bounds.unknown(UNIVERSE)).exact


@given(slack)
def test_not_atmost_is_atleast(rows):
    inside = select(rows)
    negated = ~Bounds.at_most(inside, UNIVERSE)
    assert (negated.true_rows, negated.false_rows, negated.exact) == (UNIVERSE, inside, False)
    assert ~negated == Bounds.at_most(inside, UNIVERSE)
    if rows != set(range(NUM_ROWS)):
        assert Bounds.at_most(inside, UNIVERSE).kind(UNIVERSE) is Kind.AT_MOST
        assert negated.kind(UNIVERSE) is Kind.AT_LEAST
