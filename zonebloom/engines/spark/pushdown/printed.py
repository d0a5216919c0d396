"""What a `Column` prints as a predicate: `=(user_id, 'u-1')` on a classic session, `==(user_id, u-1)` on Spark Connect.

As for SQL text this is a guess. Spark compares it with the Column before it is used.

Spec: specs/spark.md#conditions
"""

from __future__ import annotations

import re
from typing import Any

from zonebloom.engines.spark.pushdown.types import Binder, EqualsNull, IsNotNull, Piece, UnboundError
from zonebloom.predicates import And, Equals, IsIn, IsNull, Not, Or, Predicate
from zonebloom.predicates.terms import ColumnTerm, Comparison, LiteralTerm, Truth

__all__ = ["predicate_of_column", "text_of_column"]

_CALL = re.compile(r"(==|=|<=>|<=|>=|<|>|and|or|!|not|isNull|isNotNull|in)\(", re.DOTALL)
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_QUOTED_NAME = re.compile(r"(?:`(?:[^`]|``)*`|\w+)(?:\.(?:`(?:[^`]|``)*`|\w+))*")


def text_of_column(column: Any) -> str:
    """What `column` prints, without the frame around it."""
    return str(column).removeprefix("Column<'").removesuffix("'>")


def predicate_of_column(text: str, binder: Binder) -> Predicate:
    """The predicate of a Column that prints `text`; one `Piece` if it is not understood."""
    try:
        return _of_call(text, binder)
    except RecursionError:
        return Piece(text)


def _of_call(text: str, binder: Binder) -> Predicate:
    found = _CALL.match(text)
    if found is None or not text.endswith(")"):
        return Truth(ColumnTerm(text)) if re.fullmatch(r"[\w.]+", text) else Piece(text)
    called, inner = found[1], text[found.end() : -1]
    arguments = _arguments(inner)
    if called in ("and", "or"):
        return (And if called == "and" else Or)([_of_call(one, binder) for one in arguments])
    if called in ("!", "not"):
        return Not(_of_call(inner, binder))
    if called in ("isNull", "isNotNull"):
        is_null = IsNull(_name(inner))
        return is_null if called == "isNull" else IsNotNull(is_null)
    first, _, rest = inner.partition(", ")
    name = _name(first)
    literal, _, last = inner.rpartition(", ")
    if not binder.has_column(name):
        if called == "in" or not binder.has_column(_name(last)):
            return Piece(text)
        name, rest, called = _name(last), literal, _MIRRORED.get(called, called)
    if called == "in":
        return IsIn(name, [_value(one, name, binder) for one in arguments[1:]])
    value = _value(rest, name, binder)
    if called == "<=>":
        return EqualsNull(name) if value is None else Equals(name, value, null_safe=True)
    return Equals(name, value) if called in ("=", "==") else Comparison(ColumnTerm(name), called, LiteralTerm(value))


def _name(text: str) -> str:
    """Connect prints names as they were written, with backticks; classic sessions print `A b` and `s.x` bare."""
    if "`" in text and _QUOTED_NAME.fullmatch(text):
        pieces = re.findall(r"`((?:[^`]|``)*)`|(\w+)", text)
        return ".".join(quoted.replace("``", "`") or bare for quoted, bare in pieces)
    is_quoted = len(text) > 1 and text[0] == text[-1] == "`"  # a classic session prints a name with a backtick so
    return text[1:-1] if is_quoted else text


def _value(text: str, name: str, binder: Binder) -> Any:
    """A literal, read from its printed form by the column's type."""
    if text == "NULL":
        return None
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
