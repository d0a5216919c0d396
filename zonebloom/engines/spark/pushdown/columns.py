"""Translates Columns to predicates, and predicates to Columns.

A `Column` prints `=(user_id, 'u-1')` on a classic session, `==(user_id, u-1)` on Spark Connect, and `(user_id = u-1)`
before Spark 4. Its predicate is a guess, like that of SQL text. Spark compares the guess with the Column before it is
used.

Design: docs/design/spark-reads.md#conditions
"""

from __future__ import annotations

import decimal
import re
from functools import reduce
from operator import and_, ge, gt, le, lt, or_
from typing import Any, cast

from pyspark.sql import Column, functions

from zonebloom.engines.spark.pushdown.implied import parts_of
from zonebloom.engines.spark.pushdown.names import named
from zonebloom.engines.spark.pushdown.types import (
    Binder,
    EqualsNull,
    IsNotNull,
    IsTrue,
    Piece,
    UnboundError,
    python_literal,
    text_of,
)
from zonebloom.engines.spark.scan.types import MAX_DIGITS
from zonebloom.engines.spark.versions import IS_BEFORE_4
from zonebloom.ground.errors import PredicateError
from zonebloom.predicates import And, Equals, IsIn, IsNull, Not, Or, Predicate
from zonebloom.predicates.leaves import Comparison
from zonebloom.predicates.terms import LiteralTerm

MAX_LITERALS = 1000
"""Longer IN lists become a join with a local relation: a plan with 5000 literals takes seconds."""
_INEXACT = [decimal.Inexact, decimal.InvalidOperation, decimal.Overflow]
_EXACT = decimal.Context(prec=MAX_DIGITS, Emin=-1, Emax=MAX_DIGITS - 1, traps=_INEXACT)
"""The decimals of Spark."""
_CALL = re.compile(r"(==|=|<=>|<=|>=|<|>|and|or|!|not|isNull|isNotNull|in)\(", re.DOTALL)
_INFIX = re.compile(r"\((.+?) (=|<=>|<=|>=|<|>|IN|IS NULL|IS NOT NULL)(?: (.*))?\)", re.DOTALL)
_PREFIX = {"IS NULL": "isNull", "IS NOT NULL": "isNotNull"}
_TYPED = re.compile(r"(?:DATE|TIMESTAMP|TIMESTAMP_NTZ) (?='.*'$)", re.DOTALL)
_FIELD = re.compile(r"\['(\w+)'\]")
"""`['id']` in `device['id']`."""
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_QUOTED_NAME = re.compile(r"(?:`(?:[^`]|``)*`|\w+)(?:\.(?:`(?:[^`]|``)*`|\w+))*")


def column_of(predicate: Predicate, binder: Binder) -> Column:
    """`predicate` as a Column, which names columns by their names.

    Raises
    ------
    PredicateError
        A part of it has no form in Spark.
    """
    return predicate.fold(lambda node, children: _column(node, children, binder))


def _column(node: Predicate, children: list[Column], binder: Binder) -> Column:  # noqa: C901 - one case a kind of node
    if isinstance(node, Piece):
        return functions.expr(node.sql)
    if isinstance(node, IsNotNull):
        return _named(next(iter(node.columns())), binder).isNotNull()
    if isinstance(node, Not):
        return ~children[0]
    if isinstance(node, (And, Or)):
        return reduce(and_ if isinstance(node, And) else or_, children)
    if isinstance(node, (Equals, IsIn, IsNull)) and isinstance(node.column, str):
        column = _named(node.column, binder)
        if isinstance(node, IsTrue):
            return column
        if isinstance(node, IsNull):
            return column.eqNullSafe(None) if isinstance(node, EqualsNull) else column.isNull()
        if isinstance(node, Equals):
            return column.eqNullSafe(_lit(node.value)) if node.null_safe else column == _lit(node.value)
        if len(node.values) <= MAX_LITERALS and not node.null_safe:
            return column.isin(*[_lit(value) for value in node.values])
    if isinstance(node, Comparison) and isinstance(node.left, str) and isinstance(node.right, LiteralTerm):
        compare = {"<": lt, "<=": le, ">": gt, ">=": ge}.get(node.operator)
        if compare is not None:
            return cast("Column", compare(_named(node.left, binder), _lit(node.right.value)))
    raise PredicateError(
        "a predicate for Spark must be made of =, <, >, IN and IS NULL of columns and literals",
        got=f"{node!r:.200}",
        do="write the condition as SQL text, and long lists as the only or an AND-ed condition",
    )


def _named(name: str, binder: Binder) -> Column:
    return named(*binder.path(name))


def _lit(value: Any) -> Column:
    """`value` as a literal of Spark.

    Raises
    ------
    PredicateError
        Spark has no such value.
    """
    try:
        value = python_literal(value) if hasattr(value, "as_py") else value
        text = text_of(value)
        if text is None and hasattr(value, "dtype"):
            value = value.item()
            text = text_of(value)
        if isinstance(value, str):
            value.encode()  # py4j logs what it cannot send
        if isinstance(value, decimal.Decimal):
            _EXACT.create_decimal(value)
        return functions.lit(value) if text is None else functions.expr(text)
    except UnboundError as error:
        raise PredicateError(str(error)) from error
    except Exception as error:  # Py4J and Spark have errors of many kinds for what `lit` does not take
        raise PredicateError("a literal must be one that Spark has", got=f"{value!r:.100}") from error


# --- what a Column prints ---------------------------------------------------------------------------------------------


def text_of_column(column: Any) -> str:
    """What `column` prints, without the frame around it; empty for the first day, at which PySpark's printing fails."""
    try:
        return str(column).removeprefix("Column<'").removesuffix("'>")
    except ValueError:
        return ""


def predicate_of_column(text: str, binder: Binder) -> Predicate:
    """The predicate of a Column that prints `text`; one `Piece` if it is not understood."""
    try:
        return _of_call(prefixed(text) if IS_BEFORE_4 else text, binder)
    except RecursionError:
        return Piece(text)


def prefixed(text: str) -> str:
    """What a Column of Spark 3.5 prints, in the form of later versions.

    >>> prefixed("((a = u-1) AND ((NOT (b IN (1, 2))) OR (c IS NULL)))")
    'and(=(a, u-1), or(!(in(b, 1, 2)), isNull(c)))'
    """
    for joint in (" AND ", " OR "):
        parts = parts_of(text, joint)
        if len(parts) > 1:
            return f"{joint.strip().lower()}({', '.join(map(prefixed, parts))})"
    if text.startswith("(NOT ") and text.endswith(")"):
        return f"!({prefixed(text[5:-1])})"
    match = _INFIX.fullmatch(text)
    if match is None:
        return text
    first, operator, rest = match.groups()
    if operator == "IN":
        return f"in({first}, {rest[1:-1]})"
    return f"{operator}({first}, {rest})" if rest is not None else f"{_PREFIX.get(operator, operator)}({first})"


def _of_call(text: str, binder: Binder) -> Predicate:
    match = _CALL.match(text)
    if match is None or not text.endswith(")"):
        return IsTrue(_name(text, binder)) if re.fullmatch(r"[\w.]+", text) else Piece(text)
    called, inner = match[1], text[match.end() : -1]
    arguments = _arguments(inner)
    if called in ("and", "or"):
        return (And if called == "and" else Or)([_of_call(argument, binder) for argument in arguments])
    if called in ("!", "not"):
        return Not(_of_call(inner, binder))
    if called in ("isNull", "isNotNull"):
        is_null = IsNull(_name(inner, binder))
        return is_null if called == "isNull" else IsNotNull(is_null)
    first, _, rest = inner.partition(", ")
    name = _name(first, binder)
    literal, _, last = inner.rpartition(", ")
    if not binder.has_column(name):
        if called == "in" or not binder.has_column(_name(last, binder)):
            return Piece(text)
        name, rest, called = _name(last, binder), literal, _MIRRORED.get(called, called)
    if called == "in":
        return IsIn(name, [_value(argument, name, binder) for argument in arguments[1:]])
    value = _value(rest, name, binder)
    if called == "<=>":
        return EqualsNull(name) if value is None else Equals(name, value, null_safe=True)
    return Equals(name, value) if called in ("=", "==") else Comparison(name, called, LiteralTerm(value))


def _name(text: str, binder: Binder) -> str:
    """Connect prints names as they were written, with backticks; classic sessions print `A b` and `s.x` bare.

    They print columns of a table's frame with the table's name in front.
    """
    if "`" in text and _QUOTED_NAME.fullmatch(text):
        pieces = re.findall(r"`((?:[^`]|``)*)`|(\w+)", text)
        return ".".join(quoted.replace("``", "`") or bare for quoted, bare in pieces)
    is_quoted = len(text) > 1 and text[0] == text[-1] == "`"  # a classic session prints a name with a backtick so
    name = text[1:-1] if is_quoted else _FIELD.sub(r".\1", text)
    tails = (name.split(".", count)[-1] for count in range(name.count(".") + 1))
    return next(filter(binder.has_column, tails), name)


def _value(text: str, name: str, binder: Binder) -> Any:
    """A literal, read from its printed form by the column's type."""
    if text == "NULL":
        return None
    text = _TYPED.sub("", text)
    is_quoted = len(text) > 1 and text[0] == text[-1] == "'"
    bare = re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL) if is_quoted else text
    try:
        return binder.printed(bare, binder.target(binder.path(name)))
    except UnboundError:
        return bare


def _arguments(text: str) -> list[str]:
    """Cut at commas outside brackets and quotes."""
    pieces, first, depth, is_text, place = [], 0, 0, False, 0
    while place < len(text):
        sign = text[place]
        if is_text and sign == "\\":
            place += 1
        elif sign == "'" and (is_text or text[max(place - 2, 0) : place] in (", ", "")):
            is_text = not is_text
        elif not is_text:
            depth += (sign == "(") - (sign == ")")
            if depth == 0 and text.startswith(", ", place):
                pieces.append(text[first:place])
                first = place + 2
        place += 1
    return [*pieces, text[first:]] if text else []
