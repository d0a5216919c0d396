"""Literals and trees at their limits are answered, or refused by name, in a child process of limited time.

Oracle: Python's exact comparison of the literal with each value; for floating columns, of the float nearest to it.
"""

from __future__ import annotations

import textwrap

from tests.child import run_python
from tests.depth import at_depth

SECONDS = 100
"""A limit that no idle machine comes near: what it ends would take hours, or all memory."""
PRELUDE = """
import operator
from decimal import Decimal
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
import zonebloom as zb
from zonebloom.errors import InvalidArgumentError, PredicateError
from zonebloom.predicates import And, Equals, IsIn, Not, Or, col, parse_predicate
from zonebloom.predicates.row_filter import to_expression
"""


def in_child(code: str, *arguments: object) -> None:
    """Run `code` in a process of its own, which must end in time and without an error."""
    run_python(PRELUDE + textwrap.dedent(code), *arguments, seconds=SECONDS)


def test_an_exponent_of_any_size_is_compared_exactly(tmp_path):
    code = """
    import sys
    import pyarrow.parquet as pq
    [folder] = sys.argv[1:]
    D = Decimal
    table = pa.table({
        "i": pa.array([-1, 0, 1, None]),
        "u": pa.array([0, 1, 255, None], pa.uint8()),
        "f": [-1.5, 0.0, float("inf"), None],
        "g": pa.array([-1.5, 0.0, float("inf"), None], pa.float32()),
        "d": pa.array([D("-1.50"), D(0), D("9999999.99"), None], pa.decimal128(9, 2)),
    })
    pq.write_table(table, folder + "/a.parquet")
    index = zb.build_index(folder, list("iufgd"))
    for name in "iufgd":
        rows = [value for value in table[name].to_pylist() if value is not None]
        for exponent in (9_999_999, 999_999_999):
            for text in (f"1e{exponent}", f"-1e{exponent}", f"1e-{exponent}", f"-1e-{exponent}", f"0e-{exponent}"):
                number = D(text)
                # a decimal that no double reaches is still finite, and below infinity
                as_float = float(text) if -1 < number < 1 else number
                equal = as_float if name in "fg" else number
                for order in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge):
                    predicate = order(col(name), number)
                    kept = index.search(predicate).num_rows_kept
                    found = index.to_table(predicate)[name].to_pylist()
                    assert found == [value for value in rows if order(value, equal)], (text, order)
                    assert kept >= len(found)
                for values in ([number], [number, 1], [number, D("0.5"), D(-1)]):
                    found = index.to_table(IsIn(name, values))[name].to_pylist()
                    assert found == [value for value in rows if value == equal or value in values], (text, values)
                assert index.to_table(f"{name} = {text}")[name].to_pylist() == [v for v in rows if v == float(text)]
                assert index.exists(name, [number], exact=True).to_pylist() == [equal in rows], text
    """
    in_child(code, tmp_path)


def test_a_text_of_any_exponent_is_cast_to_a_decimal_or_refused():
    in_child("""
    long = "0." + "0" * 90 + "1"
    for text in ("1e-9999999", "1e9999999", "1e-99999999999999999999", "1e-50", long, "nan", "1_0", "x"):
        with pytest.raises(PredicateError, match="must convert exactly"):
            parse_predicate(f"d = CAST('{text}' AS DECIMAL(38, 2))")
    for text in ("1.5", " +1.50 ", "15e-1", ".15e1", "0.00015E+4", "1.5" + "0" * 90):
        assert parse_predicate(f"d = CAST('{text}' AS DECIMAL(38, 2))").value == Decimal("1.50")
    """)


def test_a_column_of_numerals_of_any_exponent_is_cast_to_a_decimal_or_refused():
    in_child("""
    expression = to_expression(parse_predicate("CAST(s AS DECIMAL(38, 2)) = 1.5"), pa.schema({"s": pa.string()}))
    good = ds.dataset(pa.table({"s": ["1.5", "15e-1", "0.00015E+04", "2", None]}))
    assert good.to_table(columns={"x": expression})["x"].to_pylist() == [True, True, True, False, None]
    for text in ("1e-9999999", "1e9999999", "0." + "0" * 10_000_000 + "1"):
        with pytest.raises(pa.ArrowInvalid):
            ds.dataset(pa.table({"s": ["1.5", text]})).to_table(columns={"x": expression})
    """)


def test_a_long_chain_of_conditions_takes_linear_time():
    """Quadratic, or on the stack, each step of it would take minutes or end the process."""
    in_child(
        """
        import functools, sys
        schema = pa.schema({"o": pa.int64()})
        num, num_expressions = map(int, sys.argv[1:])
        chains = [" OR ".join(f"o > {i + 5}" for i in range(num // 5))]
        for field, length in ((pc.field("o"), num_expressions), (col("o"), num)):
            chains.append(functools.reduce(operator.or_, [field > i + 5 for i in range(length)]))
        for chain in chains:
            expression = to_expression(parse_predicate(chain), schema)
            table = pa.table({"o": [1, 6, None]})
            assert ds.dataset(table).to_table(columns={"x": expression})["x"].to_pylist() == [False, True, None]
        """,
        at_depth(60_000, 5000),
        at_depth(20_000, 5000),
    )


def test_a_thousand_levels_are_evaluated_and_more_are_refused_by_name(tmp_path):
    in_child(
        """
        import functools, sys
        import pyarrow.parquet as pq
        folder, many = sys.argv[1], int(sys.argv[2])
        pq.write_table(pa.table({"k": range(2000), "o": range(2000)}), folder + "/a.parquet")
        index = zb.build_index(folder, "k", rows_per_zone=100)

        def in_sql(levels):
            parts = [f" AND o < 1000)" if i % 2 else f" OR o = {i})" for i in range(levels)]
            return "(" * levels + "k = 7" + "".join(parts)

        def nested(field, levels):
            condition = field("k") == 7
            for i in range(levels):
                condition = condition & (field("o") < 1000) if i % 2 else condition | (field("o") == i)
            return condition

        for made in (in_sql, functools.partial(nested, pc.field), functools.partial(nested, col)):
            found = index.to_table(made(1000))["k"].to_pylist()
            assert found == sorted({7, *range(0, 1000, 2)})
            for levels, ask in ((1001, index.to_table), (many, index.search)):
                with pytest.raises(PredicateError, match="at most 1000 levels deep"):
                    ask(made(levels))
        negated = functools.reduce(lambda condition, _: ~condition, range(many), pc.field("k") == 7)
        with pytest.raises(PredicateError, match=f"at most 1000 levels deep, got {many}"):
            index.search(negated)
        """,
        tmp_path,
        at_depth(50_000, 2000),
    )
