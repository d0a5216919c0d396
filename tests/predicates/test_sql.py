"""SQL text → the expected tree; and each refusal, in one line."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from zonebloom.errors import PredicateError
from zonebloom.predicates import And, Equals, IsIn, IsNull, Not, Or, col, parse_predicate
from zonebloom.predicates.leaves import Like
from zonebloom.predicates.sql_writer import as_sql
from zonebloom.predicates.terms import CastTerm, LiteralTerm

UTC = dt.UTC
x = col("x")


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("x = 1", x == 1),
        ("x == 1", x == 1),
        ("1 = x", x == 1),
        ("(((x))) = (1)", x == 1),
        ("x <> 1", x != 1),
        ("x != 1", x != 1),
        ("NOT x = 1", x != 1),
        ("x <=> 1", Equals("x", 1, null_safe=True)),
        ("1 <=> x", Equals("x", 1, null_safe=True)),
        ("x IS NOT DISTINCT FROM 1", Equals("x", 1, null_safe=True)),
        ("x IS DISTINCT FROM 1", Not(Equals("x", 1, null_safe=True))),
        ("x <=> NULL", IsNull("x")),
        ("x IS DISTINCT FROM NULL", Not(IsNull("x"))),
        ("x = NULL", Equals("x", None)),
        ("x IS NULL", IsNull("x")),
        ("x IS NOT NULL", Not(IsNull("x"))),
        ("x IS TRUE", Equals("x", True, null_safe=True)),
        ("x IS NOT FALSE", Not(Equals("x", False, null_safe=True))),
        ("x", Equals("x", True)),
        ("NOT x", Not(Equals("x", True))),
        ("TRUE", Equals(LiteralTerm(True), True)),
        ("x IN (1, NULL, 1)", IsIn("x", [1, None, 1])),
        ("x NOT IN ('a')", Not(IsIn("x", ["a"]))),
        ("x IN ()", IsIn("x", [])),
        ("x < 1", x < 1),
        ("1 < x", x > 1),
        ("x >= 1", x >= 1),
        ("x BETWEEN 1 AND 2", x.between(1, 2)),
        ("x NOT BETWEEN 1 AND 2", ~x.between(1, 2)),
        ("x = y", x == col("y")),
        ("x LIKE 'a%'", Like("x", "a%")),
        ("x NOT LIKE 'a%'", Not(Like("x", "a%"))),
        ("x ILIKE 'a!%' ESCAPE '!'", Like("x", "a!%", escape="!", ignore_case=True)),
        ("x NOT LIKE 'a!%' ESCAPE '!'", Not(Like("x", "a!%", escape="!"))),
        ("a = 1 AND b = 2 AND c = 3", And((col("a") == 1, col("b") == 2, col("c") == 3))),
        ("a = 1 OR b = 2 AND c = 3", Or((col("a") == 1, And((col("b") == 2, col("c") == 3))))),
        ("(a = 1 OR b = 2) AND c = 3", And((Or((col("a") == 1, col("b") == 2)), col("c") == 3))),
        ("NOT (a = 1 OR b IS NULL)", Not(Or((col("a") == 1, IsNull("b"))))),
        ("x = 1 -- a remark", x == 1),
        ("X = 1", col("X") == 1),
        ('"odd name" = 1', col("odd name") == 1),
        ("`odd name` = 1", col("odd name") == 1),
        ('"a""b" = 1', col('a"b') == 1),
        ("a.b = 1", col("a.b") == 1),
        ("a.b.c.d.e.f = 1", col("a.b.c.d.e.f") == 1),
        ("a.\"b c\" IN ('q')", col("a.b c").isin(["q"])),
        ('"a.b" = 1', col("a.b") == 1),
        ("date = 1 AND key = 2 AND user = 3", And((col("date") == 1, col("key") == 2, col("user") == 3))),
        ("CAST(x AS BIGINT) = 1", Equals(CastTerm("x", pa.int64()), 1)),
        ("x::int = 1", Equals(CastTerm("x", pa.int32()), 1)),
    ],
)
def test_text_means_the_tree(text, tree):
    assert parse_predicate(text) == tree


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("1", 1),
        ("+1", 1),
        ("-1", -1),
        ("- (-1)", 1),
        ("9223372036854775808", 2**63),
        ("1.50", Decimal("1.50")),
        ("-.5", Decimal("-0.5")),
        ("1e3", 1000.0),
        ("1.5E-3", 0.0015),
        ("'it''s'", "it's"),
        ("''", ""),
        ("'a\\nb'", "a\\nb"),
        ("'é %'", "é %"),
        ("TRUE", True),
        ("false", False),
        ("NULL", None),
        ("X'00fF'", b"\x00\xff"),
        ("x''", b""),
        ("DATE '2020-01-31'", dt.date(2020, 1, 31)),
        ("CAST('2020-01-31' AS DATE)", dt.date(2020, 1, 31)),
        ("TIME '01:02:03.5'", dt.time(1, 2, 3, 500_000)),
        ("TIMESTAMP '2020-01-31 01:02:03'", dt.datetime(2020, 1, 31, 1, 2, 3)),  # noqa: DTZ001 -- naive is the point
        ("TIMESTAMP '2020-01-31'", dt.datetime(2020, 1, 31)),  # noqa: DTZ001 -- naive is the point
        ("TIMESTAMP '2020-01-31 01:02:03+02:00'", dt.datetime(2020, 1, 30, 23, 2, 3, tzinfo=UTC)),
        ("TIMESTAMP '2020-01-31T01:02:03Z'", dt.datetime(2020, 1, 31, 1, 2, 3, tzinfo=UTC)),
        ("TIMESTAMPTZ '2020-01-31 01:02:03'", dt.datetime(2020, 1, 31, 1, 2, 3, tzinfo=UTC)),
        ("TIMESTAMP WITH TIME ZONE '2020-01-31'", dt.datetime(2020, 1, 31, tzinfo=UTC)),
        ("CAST('12' AS INT)", 12),
        ("CAST(1 AS VARCHAR)", "1"),
        ("CAST(' a ' AS VARCHAR)", " a "),
        ("' a'::BINARY", b" a"),
        ("CAST(' 12 ' AS INT)", 12),
        ("-1234567890123456789012345678.0123456789", Decimal("-1234567890123456789012345678.0123456789")),
        ("CAST('1.25' AS DECIMAL(5, 2))", Decimal("1.25")),
        pytest.param("9" * 5000, Decimal("9" * 5000), id="5000 digits"),
        ("CAST(0.3 AS DOUBLE)", pa.scalar(0.3)),
        ("CAST(0.1 AS FLOAT)", pa.scalar(0.1, pa.float32())),
        ("CAST(NULL AS INT)", None),
        ("UUID '00000000-0000-0000-0000-000000000001'", "00000000-0000-0000-0000-000000000001"),
    ],
)
def test_literals(literal, value):
    for text in (f"x IN ({literal})", f"x IN ({literal}, {literal})"):
        values = parse_predicate(text).values
        assert values == [value] * len(values)
        assert {type(got) for got in values} == {type(value)}


def test_a_timestamp_keeps_its_nanoseconds():
    value = parse_predicate("x = TIMESTAMP '2020-01-01 00:00:00.123456789'").value
    assert value.type == pa.timestamp("ns")
    assert value.value % 10**9 == 123_456_789


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("CAST(x AS INT) = 1", "CAST(x AS int32) = 1"),
        ("lower(x) = 'a'", "lower(x) = 'a'"),
        ("1 < abs(x)", "abs(x) > 1"),
        ("trim(upper(x)) IN ('A', 'B')", "trim(upper(x)) IN ('A', 'B')"),
        ("length(x) IS NULL", "length(x) IS NULL"),
        ("coalesce(x, y, 1) = 2", "coalesce(x, y, 1) = 2"),
        ("-x = 1", "negate(x) = 1"),
        ("lower(x) LIKE 'a%'", "lower(x) LIKE 'a%'"),
    ],
)
def test_a_function_of_a_column_is_a_term_of_a_leaf(text, shown):
    tree = parse_predicate(text)
    assert as_sql(tree) == shown
    assert "x" in tree.columns()


@pytest.mark.parametrize(
    ("text", "piece"),
    [
        ("x = 1 AND", "near 'AND' at character 7"),
        ("x = ", "x ="),
        ("'a' = 'b", "'a' = 'b"),
        ("select = 1", "select = 1"),
        ("", "the condition is empty"),
        ("  ", "the condition is empty"),
        ("x = 1; y = 2", "as SQL: x = 1; y = 2"),
        ("x = 1 y", "x = 1 AS y cannot be evaluated"),
        ("SELECT * FROM t", r"SELECT \* FROM t cannot"),
        ("x IN (SELECT 1)", r"x IN \(SELECT 1\) cannot"),
        ("x IN (y)", "^y cannot"),
        ("x = ?", r"^\? cannot"),
        ("x + 1 = 2", r"^x \+ 1 cannot"),
        ("y = 1 AND sqrt(x) = 2", r"^SQRT\(x\) cannot be evaluated; use = == != .* CAST"),
        ("TRY_CAST(x AS INT) = 1", "TRY_CAST"),
        ("CAST(x AS VARCHAR(3)) = 'a'", r"cast must be to one of .*, got (VARCHAR|TEXT)\(3\)"),
        ("CAST(x AS JSON) = 'a'", "cast must be to one of .*, got JSON"),
        ("x = DATE 'foo'", r"must convert exactly to date32\[day\], got CAST\('foo' AS DATE\)"),
        ("x = CAST(300 AS TINYINT)", "must convert exactly to int8"),
        ("x = CAST(X'' AS SMALLINT)", r"must convert exactly to int16, got CAST\(X'' AS SMALLINT\)"),
        ("x = 'a' 'b'", "CONCAT"),
        ("(a, b) = (1, 2)", "(a, b)"),
        ("x = INTERVAL '1' DAY", "INTERVAL"),
        ("x LIKE y", "^y cannot"),
        ("x LIKE 'a' ESCAPE 'bc'", "one character, got 'bc'"),
        ("trim(BOTH 'a' FROM x) = 'b'", "TRIM"),
        ("x IS NOT DISTINCT FROM y", "x IS NOT DISTINCT FROM y"),
        ("x = X'0'", "pairs of hex digits"),
        ("abs(" * 3000 + "x" + ")" * 3000 + " = 1", "must not nest so deeply"),
        ("((x = 1)", "a parenthesis is not closed"),
        ("x = 1)", "closed that was not opened"),
        ("x = 1; y = 2", "must be one condition, got 2"),
        ("(" * 30 + "x = 1 AND" + ")" * 30, "cannot be read near"),
        ("(" * 30 + "x = 1" + ")" * 30 + "OR", "a condition is missing"),
        ("(" * 30 + "x = " + ")" * 30, "x ="),
        ("(" * 30 + "x = 1 y = 2" + ")" * 30, "cannot be read near '=' at character 39"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_in_one_line(text, piece):
    with pytest.raises(PredicateError, match=piece) as caught:
        parse_predicate(text)
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_list_of_any_length_is_read():
    values = [f"{i:032x}" for i in range(20_000)]
    assert parse_predicate(f"x IN ({', '.join(map(repr, values))})") == IsIn("x", values)


def test_a_chain_of_any_length_is_read():
    tree = parse_predicate(" OR ".join(f"x = {i}" for i in range(3000)))
    assert tree == IsIn("x", list(range(3000)))


NESTED = [
    ("({} AND y = 1)", lambda inside: inside & (col("y") == 1)),
    ("(z BETWEEN 1 AND (2) OR {})", lambda inside: parse_predicate("z BETWEEN 1 AND 2") | inside),
    ("NOT ({} OR f IN (1, (2)))", lambda inside: ~(inside | IsIn("f", [1, 2]))),
    ("NOT NOT NOT ({})", lambda inside: ~inside),
    ("({})", lambda inside: inside),
    ("(x = 1 AND {} OR NOT (y) IS NULL)", lambda inside: ((x == 1) & inside) | ~IsNull("y")),
]


@pytest.mark.parametrize(("text", "tree"), NESTED)
@pytest.mark.parametrize("levels", [1, 5, 15, 16, 17, 40, 400])
def test_parentheses_of_any_depth_mean_the_same_tree(text, tree, levels):
    condition, wanted = "k = 'a (b' AND x > (y)", parse_predicate("k = 'a (b' AND x > y")
    for _ in range(levels):
        condition, wanted = text.format(condition), tree(wanted)
    assert parse_predicate(condition) == wanted
