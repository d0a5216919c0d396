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


SAME = Equals("x", 1, null_safe=True)
MEANINGS = [
    (x == 1, "x = 1", "x == 1", "1 = x", "(((x))) = (1)", "x = 1 -- a remark"),
    (x != 1, "x <> 1", "x != 1", "NOT x = 1"),
    *((SAME, "x <=> 1", "1 <=> x", "x IS NOT DISTINCT FROM 1"), (Not(SAME), "x IS DISTINCT FROM 1")),
    *((IsNull("x"), "x IS NULL", "x <=> NULL"), (Not(IsNull("x")), "x IS NOT NULL", "x IS DISTINCT FROM NULL")),
    *((Equals("x", None), "x = NULL"), (Equals("x", True), "x"), (Not(Equals("x", True)), "NOT x")),
    (Equals("x", True, null_safe=True), "x IS TRUE"),
    (Not(Equals("x", False, null_safe=True)), "x IS NOT FALSE"),
    (Equals(LiteralTerm(True), True), "TRUE"),
    *((IsIn("x", [1, None, 1]), "x IN (1, NULL, 1)"), (Not(IsIn("x", ["a"])), "x NOT IN ('a')")),
    *((IsIn("x", []), "x IN ()"), (x < 1, "x < 1"), (x > 1, "1 < x"), (x >= 1, "x >= 1"), (x == col("y"), "x = y")),
    *((x.between(1, 2), "x BETWEEN 1 AND 2"), (~x.between(1, 2), "x NOT BETWEEN 1 AND 2")),
    *((Like("x", "a%"), "x LIKE 'a%'"), (Not(Like("x", "a%")), "x NOT LIKE 'a%'")),
    (Like("x", "a!%", escape="!", ignore_case=True), "x ILIKE 'a!%' ESCAPE '!'"),
    (Not(Like("x", "a!%", escape="!")), "x NOT LIKE 'a!%' ESCAPE '!'"),
    (And((col("a") == 1, col("b") == 2, col("c") == 3)), "a = 1 AND b = 2 AND c = 3"),
    (Or((col("a") == 1, And((col("b") == 2, col("c") == 3)))), "a = 1 OR b = 2 AND c = 3"),
    (And((Or((col("a") == 1, col("b") == 2)), col("c") == 3)), "(a = 1 OR b = 2) AND c = 3"),
    (Not(Or((col("a") == 1, IsNull("b")))), "NOT (a = 1 OR b IS NULL)"),
    *((col("X") == 1, "X = 1"), (col("odd name") == 1, '"odd name" = 1', "`odd name` = 1")),
    *((col('a"b') == 1, '"a""b" = 1'), (col("a.b") == 1, "a.b = 1", '"a.b" = 1')),
    *((col("a.b.c.d.e.f") == 1, "a.b.c.d.e.f = 1"), (col("a.b c").isin(["q"]), "a.\"b c\" IN ('q')")),
    (And((col("date") == 1, col("key") == 2, col("user") == 3)), "date = 1 AND key = 2 AND user = 3"),
    *((col("comment").isin(["a"]), "comment IN ('a')"), (col("set") < 1, "set < 1"), (IsNull("show"), "show IS NULL")),
    (Equals(CastTerm("x", pa.int64()), 1), "CAST(x AS BIGINT) = 1"),
    (Equals(CastTerm("x", pa.int32()), 1), "x::int = 1"),
]


@pytest.mark.parametrize("meaning", MEANINGS, ids=lambda meaning: meaning[1])
def test_text_means_the_tree(meaning):
    tree, *texts = meaning
    for text in texts:
        assert parse_predicate(text) == tree, text


DAY, MOMENT = dt.datetime(2020, 1, 31), dt.datetime(2020, 1, 31, 1, 2, 3)  # noqa: DTZ001 -- naive is the point
LITERALS = [
    *((1, "1", "+1", "- (-1)"), (-1, "-1"), (12, "CAST('12' AS INT)", "CAST(' 12 ' AS INT)")),
    *((2**63, "9223372036854775808"), (1000.0, "1e3"), (0.0015, "1.5E-3"), (True, "TRUE"), (False, "false")),
    *((Decimal("1.50"), "1.50"), (Decimal("-0.5"), "-.5"), (Decimal("1.25"), "CAST('1.25' AS DECIMAL(5, 2))")),
    (Decimal("1.00"), "CAST(1 AS DECIMAL(9, 2))", "1::DECIMAL(3, 2)"),
    *((Decimal(text), text) for text in ("-1234567890123456789012345678.0123456789", "9" * 5000)),
    *((pa.scalar(0.3), "CAST(0.3 AS DOUBLE)"), (pa.scalar(0.1, pa.float32()), "CAST(0.1 AS FLOAT)")),
    *(("it's", "'it''s'"), ("", "''"), ("a\\nb", "'a\\nb'"), ("é %", "'é %'"), (None, "NULL", "CAST(NULL AS INT)")),
    *((b"\x00\xff", "X'00fF'"), (b"", "x''"), (b" a", "' a'::BINARY")),
    *(("1", "CAST(1 AS VARCHAR)"), (" a ", "CAST(' a ' AS VARCHAR)")),
    (f"{0:08}-0000-0000-0000-{1:012}", "UUID '00000000-0000-0000-0000-000000000001'"),
    (DAY.date(), "DATE '2020-01-31'", "CAST('2020-01-31' AS DATE)"),
    *((dt.time(1, 2, 3, 500_000), "TIME '01:02:03.5'"), (DAY, "TIMESTAMP '2020-01-31'")),
    (MOMENT, "TIMESTAMP '2020-01-31 01:02:03'"),
    (dt.datetime(2020, 1, 30, 23, 2, 3, tzinfo=UTC), "TIMESTAMP '2020-01-31 01:02:03+02:00'"),
    (MOMENT.replace(tzinfo=UTC), "TIMESTAMP '2020-01-31T01:02:03Z'", "TIMESTAMPTZ '2020-01-31 01:02:03'"),
    (DAY.replace(tzinfo=UTC), "TIMESTAMP WITH TIME ZONE '2020-01-31'"),
]


@pytest.mark.parametrize("meaning", LITERALS, ids=lambda meaning: meaning[1][:40])
def test_literals(meaning):
    value, *literals = meaning
    for literal in literals:
        for text in (f"x IN ({literal})", f"x IN ({literal}, {literal})"):
            values = parse_predicate(text).values
            assert values == [value] * len(values), literal
            assert {type(parsed) for parsed in values} == {type(value)}, literal


def test_a_timestamp_keeps_its_nanoseconds():
    value = parse_predicate("x = TIMESTAMP '2020-01-01 00:00:00.123456789'").value
    assert value.type == pa.timestamp("ns")
    assert value.value % 10**9 == 123_456_789


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        *(("CAST(x AS INT) = 1", "CAST(x AS int32) = 1"), ("1 < abs(x)", "abs(x) > 1"), ("-x = 1", "negate(x) = 1")),
        *((text, text) for text in ("lower(x) = 'a'", "trim(upper(x)) IN ('A', 'B')", "length(x) IS NULL")),
        *((text, text) for text in ("coalesce(x, y, 1) = 2", "lower(x) LIKE 'a%'")),
    ],
)
def test_a_function_of_a_column_is_a_term_of_a_leaf(text, shown):
    tree = parse_predicate(text)
    assert as_sql(tree) == shown
    assert "x" in tree.columns()


DEEP = "(" * 30 + "{}" + ")" * 30


@pytest.mark.parametrize(
    ("piece", "text"),
    [
        *(("near 'AND' at character 7", "x = 1 AND"), ("x =", "x = "), ("'a' = 'b", "'a' = 'b")),
        *(("select = 1", "select = 1"), ("the condition is empty", ""), ("the condition is empty", "  ")),
        *(("as SQL: x = 1; y = 2", "x = 1; y = 2"), ("must be one condition, got 2", "x = 1; y = 2")),
        *(("near 'y' at character 7", "x = 1 y"), ("near 'SELECT' at character 1", "SELECT * FROM t")),
        *((r"x IN \(SELECT 1\) cannot", "x IN (SELECT 1)"), ("^y cannot", "x IN (y)"), ("^y cannot", "x LIKE y")),
        *((r"^\? cannot", "x = ?"), (r"^x \+ 1 cannot", "x + 1 = 2"), ("TRY_CAST", "TRY_CAST(x AS INT) = 1")),
        (r"^SQRT\(x\) cannot be evaluated; use = == != .* CAST", "y = 1 AND sqrt(x) = 2"),
        (r"cast must be to one of .*, got (VARCHAR|TEXT)\(3\)", "CAST(x AS VARCHAR(3)) = 'a'"),
        ("cast must be to one of .*, got JSON", "CAST(x AS JSON) = 'a'"),
        (r"must convert exactly to date32\[day\], got CAST\('foo' AS DATE\)", "x = DATE 'foo'"),
        ("must convert exactly to int8", "x = CAST(300 AS TINYINT)"),
        (r"must convert exactly to int16, got CAST\(X'' AS SMALLINT\)", "x = CAST(X'' AS SMALLINT)"),
        *(("CONCAT", "x = 'a' 'b'"), ("(a, b)", "(a, b) = (1, 2)"), ("INTERVAL", "x = INTERVAL '1' DAY")),
        *(("one character, got 'bc'", "x LIKE 'a' ESCAPE 'bc'"), ("TRIM", "trim(BOTH 'a' FROM x) = 'b'")),
        *(("x IS NOT DISTINCT FROM y", "x IS NOT DISTINCT FROM y"), ("pairs of hex digits", "x = X'0'")),
        *(("levels of functions and casts", "abs(" * n + "x" + ")" * n + " = 1") for n in (41, 3000)),
        *((r"near '\)' at character 8", "((x = 1)"), ("cannot be read near", "x = 1)")),
        *(("cannot be read near", DEEP.format("x = 1 AND")), ("x =", DEEP.format("x = "))),
        ("cannot be read near '=' at character 39", DEEP.format("x = 1 y = 2")),
        ("cannot be read", DEEP.format("x = 1") + "OR"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_in_one_line(piece, text):
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
