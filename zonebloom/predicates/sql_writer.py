"""A predicate as SQL text for people: in reasons, errors, explanations and reports.

Long lists are cut, so `parse_predicate` cannot read every text.
"""

from __future__ import annotations

import re
from decimal import Decimal
from numbers import Number
from typing import Any

import numpy as np
import pyarrow as pa

from zonebloom.ground.arrow import python_value
from zonebloom.predicates.leaves import (
    SHOWN_VALUES,
    Comparison,
    Condition,
    Equals,
    IsIn,
    IsNull,
    Like,
    Piece,
    pruned_by,
)
from zonebloom.predicates.sql_equality import SPECIAL
from zonebloom.predicates.terms import CallTerm, CastTerm, Term
from zonebloom.predicates.tree import And, Not, Or, Predicate

_PLAIN_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_QUOTED = SPECIAL | {"array", "list", "map", "nullable", "object", "range", "struct", "table"}
"""Names with another meaning to the parser, if not before ``=`` then before other operators."""
_MAX_PIECE = 200


def as_sql(predicate: Predicate) -> str:
    r"""The predicate as people write it.

    Examples
    --------
    >>> from zonebloom.predicates import col
    >>> as_sql((col("id").isin(range(9)) | col("e-mail").is_null()) & ~(col("day") == "x"))
    '(id IN (0, 1, 2, 3, 4, … 9 values) OR "e-mail" IS NULL) AND NOT (day = \'x\')'
    """
    return predicate.fold(_text, pruned_by)


def _text(node: Predicate, parts: list[str]) -> str:
    if isinstance(node, (And, Or)):
        word = " AND " if isinstance(node, And) else " OR "
        is_joint = (isinstance(child, (And, Or, Condition)) for child in node.children)
        return word.join(f"({part})" if nested else part for part, nested in zip(parts, is_joint, strict=True))
    if isinstance(node, Not):
        return f"NOT ({parts[0]})"
    if isinstance(node, Comparison):
        return f"{term_sql(node.left)} {node.operator} {term_sql(node.right)}"
    if isinstance(node, Piece):
        return f"{node.sql:.{_MAX_PIECE}}: {node.why}" if node.why else node.sql
    if not isinstance(node, (Equals, IsIn, IsNull, Like)):
        return parts[0] if isinstance(node, Condition) else repr(node)
    column = term_sql(node.column)
    if isinstance(node, Equals):
        return f"{column} {'<=>' if node.null_safe else '='} {_literal(node.value)}"
    if isinstance(node, IsIn):
        more = [f"… {len(node.values):,} values"] if len(node.values) > SHOWN_VALUES else []
        return f"{column} IN ({', '.join([*map(_literal, node.values[:SHOWN_VALUES]), *more])})"
    if isinstance(node, Like):
        escape = "" if node.escape is None else f" ESCAPE {_literal(node.escape)}"
        return f"{column} {'ILIKE' if node.ignore_case else 'LIKE'} {_literal(node.pattern)}{escape}"
    return f"{column} IS NULL"


def term_sql(term: Term) -> str:
    """A term as people write it."""
    if isinstance(term, str):
        return sql_name(term)
    if isinstance(term, CastTerm):
        return f"CAST({term_sql(term.child)} AS {term.type})"
    if isinstance(term, CallTerm):
        return f"{term.function}({', '.join(map(term_sql, term.arguments))})"
    return _literal(term.value)


def sql_name(column: str) -> str:
    """The column's name in SQL: in double quotes unless it is a word, or words joined by dots, of no other meaning."""
    is_plain = _PLAIN_NAME.fullmatch(column) and _QUOTED.isdisjoint(column.lower().split("."))
    return column if is_plain else quoted(column)


def quoted(name: str) -> str:
    """A name of SQL in double quotes."""
    return '"{}"'.format(name.replace('"', '""'))


def text_literal(text: str) -> str:
    """A text of SQL in single quotes."""
    return "'{}'".format(text.replace("'", "''"))


def _literal(value: Any) -> str:
    plain = python_value(value) if isinstance(value, pa.Scalar) else value
    if isinstance(plain, np.floating):
        plain = plain.item()  # NumPy shows some digits of 16 bits
    if plain is None or isinstance(plain, bool):
        return {None: "NULL", True: "TRUE", False: "FALSE"}[plain]
    if isinstance(plain, bytes):
        return f"X'{plain.hex()}'"
    if type(plain) is int:  # Python refuses to show the largest
        return str(Decimal(plain))
    return str(plain) if isinstance(plain, Number) else text_literal(str(plain))
