"""pyarrow Expressions: the tree that prunes is sound, and the re-check is the expression itself.

Oracle: pyarrow, which evaluates the expression on every row.
"""

from __future__ import annotations

import datetime as dt
import pickle
from decimal import Decimal
from functools import reduce
from operator import or_

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings, strategies as st

from tests.depth import at_depth
from tests.newer import need
from zonebloom.errors import PredicateError
from zonebloom.ground.reasons import ReasonCode
from zonebloom.predicates import And, Condition, Equals, IsIn, IsNull, Not, Or, arrow_pickle as et, parse_predicate
from zonebloom.predicates.coerce import fit_values
from zonebloom.predicates.leaves import Piece
from zonebloom.predicates.row_filter import to_expression
from zonebloom.predicates.terms import LiteralTerm

f = pc.field
NULL = pa.scalar(None, pa.bool_())


def tree_of(expression):
    predicate = parse_predicate(expression)
    assert isinstance(predicate, Condition)
    return predicate.prunes


def int64(value):
    return pa.scalar(value, pa.int64())


def outcomes(table, expression):
    """TRUE, FALSE or None for each row."""
    return ds.dataset(table).to_table(columns={"outcome": expression})["outcome"].to_pylist()


@pytest.mark.parametrize(
    ("expression", "tree"),
    [
        *((expression, Equals("a", int64(1))) for expression in (f("a") == 1, pc.scalar(1) == f("a"), ~~(f("a") == 1))),
        *((f("a") == int64(None), Equals("a", int64(None))), (f("a") != 1, Not(Equals("a", int64(1))))),
        *((field == 1, Equals("s.x", int64(1))) for field in (f("s", "x"), f("s.x"))),
        (f(("s", "x", "y")) == 1, Equals("s.x.y", int64(1))),
        *((f("a"), Equals("a", True)), (f("a").is_null(), IsNull("a")), (f("a").is_valid(), Not(IsNull("a")))),
        (f("a").isin([1, 2]), IsIn("a", pa.array([1, 2]), null_safe=True)),
        (f("a").isin([1, None]), Or((IsIn("a", pa.array([1]), null_safe=True), IsNull("a")))),
        (pc.is_in(f("a"), value_set=pa.array([1, None]), skip_nulls=True), IsIn("a", pa.array([1]), null_safe=True)),
        (f("a").isin(pa.array([], pa.int8())), IsIn("a", pa.array([], pa.int8()), null_safe=True)),
        ((f("a") == 1) & (f("b") == 2) & ~f("c"), Equals("a", int64(1)) & Equals("b", int64(2)) & ~Equals("c", True)),
        ((f("a") == 1) | (f("b") == 2), Equals("a", int64(1)) | Equals("b", int64(2))),
        ((f("a") == 1) | (f("a") == 2), IsIn("a", pa.array([1, 2]))),
        (pc.if_else(f("b").is_valid(), f("a") == 1, NULL), Equals("a", int64(1))),
        (pc.scalar(True), Equals(LiteralTerm(pa.scalar(True)), True)),
    ],
)
def test_an_expression_prunes_as_its_tree(expression, tree):
    assert tree_of(expression) == tree


@pytest.mark.parametrize(
    ("expression", "columns", "code"),
    [
        (f("a") > 1, {"a"}, ReasonCode.PREDICATE_NOT_SUPPORTED),
        (f("a") == f("b"), {"a", "b"}, ReasonCode.PREDICATE_NOT_SUPPORTED),
        (pc.starts_with(f("a"), "x"), {"a"}, ReasonCode.PREDICATE_NOT_SUPPORTED),
        (f("a").cast(pa.int64()) == 1, {"a"}, ReasonCode.CAST_ON_COLUMN),
        (f("s", "x").cast(pa.int64()).isin([1]), {"s.x"}, ReasonCode.CAST_ON_COLUMN),
        (f("a.b", "x") == 1, {"a.b"}, ReasonCode.PREDICATE_NOT_SUPPORTED),
        (pc.xor(f("a"), f("b")), {"a", "b"}, ReasonCode.PREDICATE_NOT_SUPPORTED),
        (f("a").is_null(nan_is_null=True), {"a"}, ReasonCode.PREDICATE_NOT_SUPPORTED),
        (pc.if_else(f("a"), f("b"), f("c")), {"a", "b", "c"}, ReasonCode.PREDICATE_NOT_SUPPORTED),
    ],
)
def test_what_is_unknown_is_opaque_with_its_own_expression(expression, columns, code):
    tree = tree_of(expression)
    assert isinstance(tree, Piece)
    assert tree.expression.equals(expression)
    assert tree.columns() == columns
    assert tree.code is code
    assert "\n" not in tree.sql


@pytest.mark.parametrize("value", [float("nan"), 0.0, -0.0, 1e300, float("inf")])
def test_floats_that_is_in_compares_by_bits_are_opaque(value):
    """NaN matches NaN, one zero misses the other, and 1e300 is infinite once cast to float32."""
    for data_type in (pa.float32(), pa.float64()):
        table = pa.table({"a": pa.array([float("nan"), 0.0, -0.0, float("inf"), 1.0, None], data_type)})
        expression = f("a").isin([value])
        assert isinstance(tree_of(expression), Piece)
        assert isinstance(tree_of(f("a").isin(pa.array([value]).dictionary_encode())), Piece)
        again = to_expression(parse_predicate(expression), table.schema)
        assert outcomes(table, again) == outcomes(table, expression)
    assert isinstance(tree_of(f("a").isin(pa.array([32768], pa.float16()))), Piece), "pyarrow finds 32767 of int16"
    days = pa.array([dt.date(2020, 1, 1), dt.date(1, 1, 1)])
    assert isinstance(tree_of(f("a").isin(days)), Piece), "pyarrow finds 2020-01-01 05:00 of timestamp[ns]"
    assert isinstance(tree_of(f("a").isin(days[:1])), IsIn)


def test_an_expression_of_bytes_that_are_no_text_has_a_text():
    expression = f("a") < pa.scalar(b"\xff", pa.binary_view())
    tree = tree_of(expression)
    assert tree.sql == r"(a < \xff)"
    assert repr(parse_predicate(expression)) == r"Condition((a < \xff))"
    assert tree != tree_of(f("a") < pa.scalar(b"\xfe", pa.binary_view()))
    with pytest.raises(PredicateError, match="kernel for its types"):
        to_expression(parse_predicate(expression), pa.schema({"a": pa.binary()}))


def test_a_piece_is_the_expression_of_its_own_literals_and_options():
    expression = (f("a") == 7) & (f("b").isin(["x", "y"]) | (f("c").cast(pa.int8()) > 1)) & (f("s", "t") < 2.5)
    cast, field = (node.expression for node in tree_of(expression).walk() if isinstance(node, Piece))
    assert cast.equals(f("c").cast(pa.int8()) > 1)
    assert field.equals(f("s", "t") < 2.5)


def test_the_recheck_is_the_expression_itself_alone_and_joined():
    table = pa.table({"a": [1, None, 3], "b": ["x", "y", None]})
    expression = f("a").isin([1, None])
    predicate = parse_predicate(expression)
    assert to_expression(predicate, table.schema).equals(expression)
    assert outcomes(table, to_expression(~predicate, table.schema)) == [False, False, True]
    joined = predicate & Equals("b", "y")
    assert table.filter(to_expression(joined, table.schema))["b"].to_pylist() == ["y"]
    assert joined.children[0] is predicate
    assert And((predicate, IsNull("c"))).children == (predicate, IsNull("c"))
    assert joined.columns() == {"a", "b"}


@pytest.mark.parametrize("large", [pa.large_string(), pa.large_binary()])
def test_a_null_of_a_large_type_equals_nothing(large):
    """pyarrow 26 ends the process over such a literal. The other side of the OR shows that the rest is as it was."""
    table = pa.table({"a": pa.array(["x", None]).cast(et._SMALL[large]), "b": [1, 2]})
    predicate = parse_predicate((f("a") == pa.scalar(None, large)) | (f("b") == 2))
    assert table.filter(to_expression(predicate, table.schema))["b"].to_pylist() == [2]


def test_an_expression_pickles():
    predicate = parse_predicate((f("a") == 1) & (f("b") > 2))
    assert pickle.loads(pickle.dumps(predicate)) == predicate
    assert predicate != parse_predicate(f("a") == 1)


def test_a_field_by_position_is_refused():
    with pytest.raises(PredicateError, match=r"must name its columns, got \(FieldPath\(0\) == 1\)"):
        parse_predicate(f(0) == 1)


def test_long_chains_are_taken_apart():
    expression = f("a") > 0
    for i in range(3000):
        expression = expression | (f("a") == i)
    tree = tree_of(expression)
    assert [len(child.values) for child in tree.children if isinstance(child, IsIn)] == [3000]


def test_a_million_values_are_not_copied_one_by_one():
    values = pa.array(np.arange(1_000_000))
    assert tree_of(f("a").isin(values)).values == values


class Fake:
    """An expression of another version of pyarrow, by what its pickle holds."""

    def __init__(self, entries, columns=(), *, content=None):
        fields = [pa.field(str(i), column.type) for i, column in enumerate(columns)]
        schema = pa.schema(fields, metadata=pa.KeyValueMetadata(entries))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, schema) as writer:
            writer.write_batch(pa.record_batch(list(columns), schema=schema))
        self.content = sink.getvalue() if content is None else content

    def __reduce__(self):
        return Fake, (self.content,)


@pytest.mark.parametrize(
    "entries",
    [
        *("", "call equal, field_ref a", "call equal, field_ref a, end less", "end equal", "lambda x"),
        *("options 0", "literal 1", "literal x", "field_ref a, field_ref b"),
        *("nested_field_ref 2, field_ref a", "nested_field_ref 0", "nested_field_ref 1, literal 0"),
    ],
)
def test_another_serialized_form_is_refused_not_misread(entries):
    forms = [Fake([entry.split() for entry in entries.split(", ") if entry], columns) for columns in ((), ONE)]
    for fake in (*forms, Fake([], content=b"not an Arrow file")):
        with pytest.raises(et.UnreadableExpressionError):
            et.take_apart(fake)


ONE = (pa.array([1]),)


def test_a_long_chain_of_functions_with_options_is_evaluated():
    """pyarrow 26 ends the process where the options of a call come before its arguments."""
    chain = reduce(or_, [f("i").isin([number, number + 1]) for number in range(0, 300, 3)])
    table = pa.table({"i": range(400)})
    assert table.filter(to_expression(parse_predicate(chain), table.schema)) == table.filter(chain)


# --- soundness: the tree, evaluated as SQL does, never loses a row ----------------------------------------------------

TABLE = pa.table(
    {
        "i": pa.array([0, 1, 2, None, 5, 1, None, 7], pa.int32()),
        "s": ["a", None, "b", "", "a", "c", None, "zz"],
        "f": [0.0, -0.0, float("nan"), None, 1.5, 2.0, float("inf"), None],
        "b": [True, False, None, True, None, False, True, True],
    }
)
leaves = st.one_of(
    st.sampled_from([0, 1, 7, 300, int64(None)]).map(lambda value: f("i") == value),
    st.integers(0, 3).flatmap(lambda value: st.sampled_from([f("i") != value, f("i") > value])),
    st.lists(st.sampled_from(["a", "b", None, ""]), min_size=1).map(lambda v: f("s").isin(pa.array(v, pa.string()))),
    st.builds(
        lambda v, skip: pc.is_in(f("i"), value_set=pa.array(v, pa.int32()), skip_nulls=skip),
        st.lists(st.sampled_from([0, 1, 5, None])),
        st.booleans(),
    ),
    st.builds(lambda v: f("f") == v, st.sampled_from([0.0, -0.0, 1.5, float("nan")])),
    st.builds(lambda v: f("f").isin(pa.array(v, pa.float64())), st.lists(st.sampled_from([0.0, 1.5, float("nan")]))),
    st.sampled_from([f("i"), f("s"), f("f"), f("b")]).map(lambda field: field.is_null()),
    st.just(f("f").is_null(nan_is_null=True)),
    st.sampled_from([f("b"), pc.scalar(True), pc.scalar(NULL), f("s").is_valid()]),
)
expressions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda a, b: a & b, inner, inner),
        st.builds(lambda a, b: a | b, inner, inner),
        st.builds(lambda a: ~a, inner),
        st.builds(lambda c, a: pc.if_else(c, a, NULL), inner, inner),
    ),
    max_leaves=6,
)


def at_most(node):
    """The rows where `node` can be TRUE and where it can be FALSE, as a perfect filter with SQL's semantics says."""
    everything = set(range(TABLE.num_rows))
    if isinstance(node, Condition):
        return at_most(node.prunes)
    if isinstance(node, And):
        parts = [at_most(child) for child in node.children]
        return set.intersection(*(t for t, _ in parts)), set.union(*(w for _, w in parts))
    if isinstance(node, Or):
        parts = [at_most(child) for child in node.children]
        return set.union(*(t for t, _ in parts)), set.intersection(*(w for _, w in parts))
    if isinstance(node, Not):
        return at_most(node.child)[::-1]
    if isinstance(node, Piece):
        return everything, everything
    got = outcomes(TABLE, to_expression(node, TABLE.schema))
    return {i for i, o in enumerate(got) if o is True}, {i for i, o in enumerate(got) if o is False}


@settings(max_examples=at_depth(150), deadline=None)
@given(expressions)
def test_the_tree_holds_every_row_that_is_true_or_false(expression):
    got = outcomes(TABLE, expression)
    can_be_true, can_be_false = at_most(parse_predicate(expression))
    assert {i for i, outcome in enumerate(got) if outcome is True} <= can_be_true
    assert {i for i, outcome in enumerate(got) if outcome is False} <= can_be_false
    assert outcomes(TABLE, to_expression(parse_predicate(expression), TABLE.schema)) == got


# --- soundness: what pyarrow finds equal across types is what a filter is probed with ---------------------------------

NEW_YEAR = dt.datetime(2020, 1, 1)  # noqa: DTZ001 -- local times are cases too
POOL = [
    *((t, [0, 1, -1, 127, -128]) for t in (pa.int8(), pa.int64())),
    *((t, [0, 1, 255]) for t in (pa.uint8(), pa.uint64())),
    (pa.int64(), [2**53, 2**53 + 1, 2**63 - 1]),
    (pa.uint64(), [2**53 + 1, 2**64 - 1]),
    (pa.float32(), [0.0, -0.0, 1.0, 0.1, float("inf"), float("nan"), 2.0**24]),
    (pa.float64(), [0.0, -0.0, 1.0, 0.1, 2.0**53, float("inf"), 1e300, float("nan"), 2.0**63]),
    (pa.decimal128(9, 2), [Decimal("1.00"), Decimal("0.10"), Decimal("-1.00")]),
    (pa.decimal128(20, 5), [Decimal("1.00001"), Decimal("0.10000"), Decimal(1)]),
    (pa.decimal256(40, 0), [Decimal(1), Decimal(2**64)]),
    (pa.decimal128(1, 1), [Decimal("0.3")]),  # to pyarrow 26 it equals the double 0.30000000000000004
    (pa.decimal256(60, 5), [Decimal("0.3"), Decimal(35 * 10**37)]),
    (pa.float64(), [0.3, 0.1 + 0.2]),
    *((pa.float16(), [np.float16("inf"), np.float16(1)]), (pa.uint16(), [1, 65535])),
    *((pa.string(), ["1", "0.1", "2020-01-01", "a", "true", ""]), (pa.string_view(), ["1", "2020-01-01", "a"])),
    *((pa.large_string(), ["1", "a"]), (pa.binary(), [b"1", b"a", b"abcd"]), (pa.binary_view(), [b"1", b"abcd"])),
    *((pa.binary(4), [b"abcd", b"1111"]), (pa.bool_(), [True, False]), (pa.date64(), [dt.date(2020, 1, 1)])),
    (pa.date32(), [dt.date(2020, 1, 1), dt.date(1970, 1, 2)]),
    (pa.timestamp("s"), [NEW_YEAR, NEW_YEAR + dt.timedelta(hours=3)]),
    (pa.timestamp("us"), [NEW_YEAR, NEW_YEAR + dt.timedelta(microseconds=1)]),
    *((pa.timestamp("us", zone), [NEW_YEAR.replace(tzinfo=dt.UTC)]) for zone in ("UTC", "Europe/Paris")),
    *((pa.time32("s"), [dt.time(1)]), (pa.time64("us"), [dt.time(1), dt.time(1, 0, 0, 1)])),
    *((pa.duration("s"), [dt.timedelta(1)]), (pa.duration("us"), [dt.timedelta(1), dt.timedelta(0, 0, 1)])),
]


def probed(expression, column_type):
    """The values that filters are probed with; None if every row is kept."""
    tree = tree_of(expression)
    if isinstance(tree, Piece):
        return None
    fit = fit_values(tree.values if isinstance(tree, IsIn) else tree.value, column_type)
    return None if fit.reason is not None else fit.values.to_pylist()


@pytest.mark.parametrize(("column_type", "rows"), POOL, ids=str)
def test_what_pyarrow_finds_equal_is_probed(column_type, rows):
    if column_type in (pa.string_view(), pa.binary_view()):
        need("views_compared")
    table = pa.table({"c": pa.array(rows, column_type)})
    num_found = 0
    for literal_type, literals in POOL:
        for literal in literals:
            same, listed = pa.scalar(literal, literal_type), pa.array([literal], literal_type)
            for expression in (f("c") == same, f("c").isin(listed)):
                try:
                    actual = outcomes(table, expression)
                except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
                    continue
                probes = probed(expression, column_type)
                matched = [row for row, outcome in zip(table["c"].to_pylist(), actual, strict=True) if outcome]
                assert probes is None or all(row in probes for row in matched), (expression, probes)
                num_found += len(matched)
    assert num_found >= len(rows)
