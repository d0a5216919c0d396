"""Random conditions as plain tuples: what is true of a row, and how each entrance spells it.

A condition is `("=", column, value)` with any comparison, `("in", column, values)`, `("null", column)`,
`("not", one)`, `("and", one, other)` or `("or", one, other)`. A column is a tuple of names from the top down.
`truth_of` is SQL's three-valued logic in plain Python; nothing here uses zonebloom but the calls that spell its terms.
"""

from __future__ import annotations

import datetime as dt
import math
import operator
import random
from collections.abc import Callable
from decimal import Decimal
from functools import reduce
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

import zonebloom as zb
from zonebloom.predicates import Predicate

Condition = tuple[Any, ...]
Path = tuple[str, ...]

_COMPARISONS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


# --- what is true -----------------------------------------------------------------------------------------------------


def value_of(row: dict[str, Any], column: Path) -> Any:
    """The value of a column, or of a struct's field, in a row."""
    value: Any = row
    for name in column:
        value = None if value is None else value.get(name)
    return value


def truth_of(condition: Condition, row: dict[str, Any]) -> bool | None:
    """True, False or None."""
    match condition:
        case ("not", part):
            truth = truth_of(part, row)
            return None if truth is None else not truth
        case ("and" | "or" as join, part, other):
            both = {truth_of(part, row), truth_of(other, row)}
            decisive = join == "or"
            return decisive if decisive in both else None if None in both else not decisive
        case ("null", column):
            return value_of(row, column) is None
        case ("in", column, values):
            equal = {truth_of(("=", column, value), row) for value in values}
            return True if True in equal else None if None in equal else False
        case (comparison, column, literal):
            value = value_of(row, column)
            return None if value is None or literal is None else bool(_COMPARISONS[comparison](value, literal))
    raise AssertionError(condition)


def literals_of(condition: Condition) -> list[tuple[Path, Any]]:
    """All literals, each with the column that it is compared with."""
    if condition[0] in ("not", "and", "or"):
        return [literal for part in condition[1:] for literal in literals_of(part)]
    if condition[0] == "null":
        return [(condition[1], None)]
    values = condition[2] if condition[0] == "in" else [condition[2]]
    return [(condition[1], value) for value in values]


# --- making them ------------------------------------------------------------------------------------------------------


def random_condition(chance: random.Random, columns: dict[Path, list[Any]], depth: int = 3) -> Condition:
    """A condition over `columns`, each with the values that it may have."""
    kind = chance.random()
    if depth and kind < 0.45:
        join = chance.choice(("and", "or", "or", "not"))
        parts = [random_condition(chance, columns, depth - 1) for _ in range(1 if join == "not" else 2)]
        return (join, *parts)
    column = chance.choice(list(columns))
    pool = columns[column]
    if kind < 0.55:
        return ("null", column)
    if kind < 0.7:
        values = [chance.choice(pool) for _ in range(chance.choice((1, 2, 5)))]
        return ("in", column, values + [None] * (chance.random() < 0.1))
    comparison = "=" if kind < 0.88 else chance.choice(("!=", "<", "<=", ">", ">="))
    return (comparison, column, chance.choice(pool))


# --- spelling them ----------------------------------------------------------------------------------------------------


def spelled(condition: Condition, leaf: Callable[[Condition], Any]) -> Any:
    """A condition whose parts are negated and joined by ~, & and |, with `leaf` for those of one column."""
    match condition:
        case ("not", part):
            return ~spelled(part, leaf)
        case ("and", part, other):
            return spelled(part, leaf) & spelled(other, leaf)
        case ("or", part, other):
            return spelled(part, leaf) | spelled(other, leaf)
    return leaf(condition)


def as_terms(condition: Condition) -> Predicate:
    """As zonebloom's own terms."""

    def leaf(condition: Condition) -> Predicate:
        kind, name = condition[0], ".".join(condition[1])
        if kind == "null":
            return zb.IsNull(name)
        if kind == "in":
            return zb.IsIn(name, condition[2])
        if kind in ("=", "!="):
            return zb.Equals(name, condition[2]) if kind == "=" else ~zb.Equals(name, condition[2])
        return _COMPARISONS[kind](zb.col(name), condition[2])

    return spelled(condition, leaf)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(value: Any) -> str:
    """A literal of standard SQL."""
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).upper()
        case int():
            return str(value)
        case float():
            return f"{value!r}" if "e" in repr(value) else f"{value!r}e0"
        case Decimal():
            return str(value)
        case str():
            return "'" + value.replace("'", "''") + "'"
        case bytes():
            return f"X'{value.hex()}'"
        case dt.datetime():
            return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
        case dt.date():
            return f"DATE '{value.isoformat()}'"
    raise AssertionError(value)


def spark_quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def spark_literal(value: Any) -> str:
    """A literal of Spark's SQL."""
    match value:
        case float():
            return f"DOUBLE('{value!r}')"
        case str():
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        case dt.datetime() if value.tzinfo is None:
            return f"TIMESTAMP_NTZ '{value.isoformat(sep=' ')}'"
    return literal(value)


STANDARD = (quoted, literal)
SPARK = (spark_quoted, spark_literal)


def as_sql(condition: Condition, dialect: tuple[Callable[[str], str], Callable[[Any], str]] = STANDARD) -> str:
    """As SQL text, for zonebloom, DuckDB and others, or for Spark."""
    name, value = dialect
    match condition:
        case ("not", part):
            return f"NOT ({as_sql(part, dialect)})"
        case ("and" | "or" as join, part, other):
            return f"({as_sql(part, dialect)}) {join.upper()} ({as_sql(other, dialect)})"
        case ("null", column):
            return f"{'.'.join(map(name, column))} IS NULL"
        case ("in", column, values):
            return f"{'.'.join(map(name, column))} IN ({', '.join(map(value, values))})"
        case (comparison, column, literal):
            return f"{'.'.join(map(name, column))} {comparison} {value(literal)}"
    raise AssertionError(condition)


def as_expression(condition: Condition, types: dict[Path, pa.DataType]) -> pc.Expression:
    """As an Expression of pyarrow, with scalars of the columns' types."""

    def leaf(condition: Condition) -> pc.Expression:
        column = condition[1]
        field = pc.field(column[0]) if len(column) == 1 else pc.field(column)
        if condition[0] == "null":
            return field.is_null()
        if condition[0] == "in":  # pyarrow's own is_in is false for nulls
            return reduce(operator.or_, [leaf(("=", column, value)) for value in condition[2]])
        return _COMPARISONS[condition[0]](field, pa.scalar(condition[2], types[column]))

    return spelled(condition, leaf)


def as_polars(condition: Condition) -> pl.Expr:
    """As an expression of Polars."""

    def leaf(condition: Condition) -> pl.Expr:
        column = polars_column(condition[1])
        if condition[0] == "null":
            return column.is_null()
        if condition[0] == "in":
            return reduce(operator.or_, [column == pl.lit(value) for value in condition[2]])
        return _COMPARISONS[condition[0]](column, pl.lit(condition[2]))

    return spelled(condition, leaf)


def polars_column(column: Path) -> pl.Expr:
    named = pl.col(column[0])
    for name in column[1:]:
        named = named.struct.field(name)
    return named


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
