"""The predicate tree and `col`: what it holds, how it joins, what it refuses."""

from __future__ import annotations

import datetime as dt
import pickle

import numpy as np
import pyarrow as pa
import pytest

from zonebloom.errors import PredicateError
from zonebloom.predicates import And, Equals, IsIn, IsNull, Not, Or, Predicate, col, parse_predicate
from zonebloom.predicates.leaves import Comparison
from zonebloom.predicates.row_filter import to_expression
from zonebloom.predicates.sql_writer import as_sql

A, B, C = Equals("a", 1), IsNull("b"), IsIn("c", [1, 2])
INT8 = pa.int8()


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        *((col("a") < 3, "a < 3"), (col("a") <= 3, "a <= 3"), (col("a") == col("b"), "a = b")),
        *((col("a") < np.float16(65504), "a < 65504.0"), (col("a") > "x'y", "a > 'x''y'")),
        *((col("a.b") >= b"\x0f", "a.b >= X'0f'"), (col("a") < dt.date(2020, 1, 2), "a < '2020-01-02'")),
        (3 < col("a"), "a > 3"),  # noqa: SIM300 -- the mirrored form is the test
    ],
    ids=lambda case: case if isinstance(case, str) else "",
)
def test_ranges_are_comparisons_and_are_written_as_sql(condition, text):
    assert isinstance(condition, Comparison)
    assert as_sql(condition) == text


def test_columns_are_those_of_all_leaves():
    tree = (A & B) | ~C | (col("d.e") < 3) | (col("f") == col("g"))
    assert tree.columns() == {"a", "b", "c", "d.e", "f", "g"}


def test_joints_of_one_kind_are_flat():
    assert (A & B & C).children == And((A, And((B, C)))).children == (A, B, C)
    assert (A | B | C).children == Or((A, Or((B, C)))).children == (A, B, C)
    assert (A & (B | C)).children == (A, Or((B, C)))


def test_not_not_is_nothing():
    assert ~~A is A
    assert Not(A).child is A


def test_trees_are_equal_if_they_say_the_same():
    assert (Equals("a", 1) & ~IsNull("b")) == (A & ~B)
    assert (A & ~B) != (A & B)
    assert (A | B) != (A & B)
    assert And((A,)) != And((A, A))
    assert Equals("a", 1) != Equals("a", True)
    assert Equals("a", 1) != Equals("a", 1.0)
    assert IsIn("a", [1]) != IsIn("a", [True])
    assert IsIn("a", [1, 2]) != IsIn("a", [1])
    assert Equals("a", 1) != Equals("a", 1, null_safe=True)
    assert A != "a = 1"


def test_a_tree_is_immutable_and_pickles():
    with pytest.raises(AttributeError, match="immutable"):
        A.column = "b"
    raw = bytearray(b"x")
    tree = (A & ~B) | C | (col("d") < 3) | (col("e") == raw) | (col("f") == memoryview(raw))
    raw[0] = 0
    assert tree.children[-1] == Equals("f", b"x")
    assert pickle.loads(pickle.dumps(tree)) == tree


def test_repr_shows_the_tree_and_the_first_values():
    assert repr(A & ~IsNull("b")) == "And(Equals('a', 1), Not(IsNull('b')))"
    assert repr(IsIn("c", range(9))) == "IsIn('c', [0, 1, 2, 3, 4, … 9 values])"
    assert repr(IsIn("c", pa.array([1, None]))) == "IsIn('c', [1, None])"


def test_isin_does_not_copy_millions_of_values():
    values = pa.array(np.arange(3_000_000))
    assert IsIn("a", values).values is values


@pytest.mark.parametrize(
    ("make", "told"),
    [
        *((lambda: A and B, r"combined with &, \| and ~"), (lambda: not A, r"combined with &, \| and ~")),
        *((lambda: 1 < (col("a") < 3) < 5, None), (lambda: A & True, "unsupported operand")),
        (lambda: bool(col("a")), "compared with a value"),
        (lambda: col("a") == None, r"use col\('a'\).is_null\(\)"),  # noqa: E711 -- the mistake under test
        (lambda: col("a") != None, r"use col\('a'\).is_not_null\(\)"),  # noqa: E711 -- the mistake under test
        (lambda: col("a") < pa.scalar(None, pa.int64()), "must have a value, got null"),
        *((lambda: col(""), "named by a text"), (lambda: Equals(3, 1), "named by a text")),
        (lambda: Equals("a", [1]), r"must be compared with one value, got a list; use isin\(\)"),
        (lambda: Equals("a", None, null_safe=True), "must have a value"),
        (lambda: col("a").isin("abc"), "an array or a list of values, got 'abc'"),
        (lambda: col("a").isin(3), "an array or a list of values, got 3"),
        (lambda: col("a").isin(np.zeros((2, 2))), r"one column of values, got a ndarray of shape \(2, 2\); choose"),
        *((lambda: And(()), "at least one predicate"), (lambda: Or((A, True)), "must join predicates, got True")),
        (lambda: Not("a"), "must negate a predicate, got 'a'"),
        (lambda: parse_predicate(None), "SQL text or a pyarrow Expression, got a NoneType"),
        (lambda: parse_predicate(3), "SQL text or a pyarrow Expression, got a int"),
    ],
)
def test_mistakes_are_told(make, told):
    with pytest.raises(TypeError if told in (None, "unsupported operand") else PredicateError, match=told):
        make()


@pytest.mark.parametrize(
    ("tree", "wanted"),
    [
        (Equals("a", 1) | B | Equals("a", 2) | Equals("b", 1), IsIn("a", [1, 2]) | B | Equals("b", 1)),
        (C & ~(Equals("a", 1) | Equals("a", 1)), C & ~IsIn("a", [1, 1])),
        (Equals("a", pa.array([1], INT8)[0]) | Equals("a", pa.array([2], INT8)[0]), IsIn("a", pa.array([1, 2], INT8))),
    ],
)
def test_ors_of_equalities_of_one_column_are_one_list(tree, wanted):
    assert parse_predicate(tree) == wanted


@pytest.mark.parametrize(
    "tree",
    [
        A & Equals("a", 2),
        Equals("a", 1) | Equals("a", True),
        Equals("a", 1) | Equals("a", None) | Equals("a", 2, null_safe=True) | B,
        Equals("a", pa.scalar(1, pa.int8())) | Equals("a", pa.scalar(1, pa.int16())),
    ],
)
def test_what_an_or_of_equalities_is_not_stays_as_it_is(tree):
    assert parse_predicate(tree) is tree


def deep(num_levels) -> Predicate:
    tree: Predicate = A
    for i in range(num_levels):
        tree = (tree & (col("a") != -i)) if i % 2 else (tree | Equals("a", i))
    return tree


def test_deep_trees_are_walked_without_recursion():
    tree = deep(999)
    table = pa.table({"a": [1, 2, 5000, None]})
    assert tree.columns() == {"a"}
    assert repr(tree).startswith("Or(And(Or(")
    assert tree == deep(999)
    assert table.filter(to_expression(tree, table.schema))["a"].to_pylist() == [1, 2]
