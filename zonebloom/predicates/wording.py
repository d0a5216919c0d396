"""A predicate as SQL text for people: what an explanation and a report are headed with.

Long lists are cut, so the text is not always one that `parse_predicate` reads.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pyarrow as pa

from zonebloom.arrow import python_value
from zonebloom.predicates.terms import LiteralTerm
from zonebloom.predicates.tree import And, Equals, IsIn, IsNull, Not, Opaque, Or, Predicate

_PLAIN_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_SHOWN_VALUES = 5


def as_sql(predicate: Predicate) -> str:
    r"""The predicate as people write it.

    Examples
    --------
    >>> from zonebloom.predicates import col
    >>> as_sql((col("id").isin(range(9)) | col("e-mail").is_null()) & ~(col("day") == "x"))
    '(id IN (0, 1, 2, 3, 4, … 9 values) OR "e-mail" IS NULL) AND NOT (day = \'x\')'
    """
    return predicate.fold(_text, lambda node: node.children)


def _text(node: Predicate, parts: list[str]) -> str:
    if isinstance(node, (And, Or)):
        word = " AND " if isinstance(node, And) else " OR "
        is_joint = (isinstance(child, (And, Or)) for child in node.children)
        return word.join(f"({part})" if nested else part for part, nested in zip(parts, is_joint, strict=True))
    if isinstance(node, Not):
        return f"NOT ({parts[0]})"
    if isinstance(node, Equals):
        return f"{sql_name(node.column)} {'<=>' if node.null_safe else '='} {_literal(node.value)}"
    if isinstance(node, IsIn):
        more = [f"… {len(node.values):,} values"] if len(node.values) > _SHOWN_VALUES else []
        return f"{sql_name(node.column)} IN ({', '.join([*map(_literal, node.values[:_SHOWN_VALUES]), *more])})"
    if isinstance(node, IsNull):
        return f"{sql_name(node.column)} IS NULL"
    return node.text if isinstance(node, Opaque) else repr(node)


def sql_name(column: str) -> str:
    """The column's name as SQL has it: in double quotes unless it is a word, or words with dots."""
    return column if _PLAIN_NAME.fullmatch(column) else '"{}"'.format(column.replace('"', '""'))


def _literal(value: Any) -> str:
    plain = python_value(value) if isinstance(value, pa.Scalar) else value
    is_plain = plain is None or isinstance(plain, (bool, int, float, Decimal, str, bytes))
    return str(LiteralTerm(plain if is_plain else str(plain)))
