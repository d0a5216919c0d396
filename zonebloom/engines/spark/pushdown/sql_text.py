"""Spark's SQL text as a predicate: a guess, made by sqlglot's dialect of Spark.

Comparisons of a column with a literal become leaves; AND, OR and NOT join them. Everything else is a `Piece` of text
that only Spark evaluates. Spark's grammar changes and depends on settings, so `translate` has Spark compare the guess
with the text before it is used. A wrong guess prunes nothing. Without a session, `is_fixed` finds texts and literals
that mean the same under every setting.

Spec: specs/spark.md#conditions
"""

from __future__ import annotations

import datetime as dt
import decimal
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.generator import Generator
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]  # sqlglot gives them there

from zonebloom.engines.spark.pushdown.types import (
    Binder,
    EqualsNull,
    IsNotNull,
    Piece,
    SqlDecimal,
    UnboundError,
    date_of,
)
from zonebloom.predicates import And, Equals, IsIn, IsNull, Not, Or, Predicate
from zonebloom.predicates.terms import ColumnTerm, Comparison, LiteralTerm, Truth
from zonebloom.reasons import ReasonCode

COMPARED_LITERALS = 64
"""Literals of a list that Spark compares. Of a longer list Spark gets the first; the others must read alike."""
_SETTINGS = re.compile(r'--|/\*|\$\{|["\\]')
"""Comments, variables, double quotes and escapes: how Spark reads them depends on its version and its settings."""
_FUNCTIONS = frozenset(
    {"user", "current_user", "session_user", "current_date", "current_time", "current_timestamp", "localtime"}
)
"""Names that are functions without brackets if Spark reserves keywords."""
_MAX_BIGINT = 2**63 - 1
"""The largest bigint; a larger number is a decimal to Spark."""
_TYPE = exp.DataType.Type
_SUFFIXES: dict[Any, tuple[str, Callable[[str], Any]]] = {
    _TYPE.BIGINT: ("L", np.int64),
    _TYPE.SMALLINT: ("S", np.int16),
    _TYPE.TINYINT: ("Y", np.int8),
    _TYPE.FLOAT: ("F", np.float32),
    _TYPE.DOUBLE: ("D", float),
    _TYPE.DECIMAL: ("BD", SqlDecimal),
}
"""Types of number literals: how Spark writes them, and values that keep the type."""
_WRITTEN = {
    _TYPE.DATE: "DATE",
    _TYPE.TIMESTAMPTZ: "TIMESTAMP",
    _TYPE.TIMESTAMPLTZ: "TIMESTAMP_LTZ",
    _TYPE.TIMESTAMPNTZ: "TIMESTAMP_NTZ",
}
_ORDERS: dict[type[exp.Expr], str] = {exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_LIST_TOKENS = (TokenType.STRING, TokenType.NUMBER, TokenType.DASH, TokenType.COMMA)


def _typed_literal(generator: Generator, node: exp.Cast) -> str:
    """`5L` and `DATE '2026-01-31'`, which sqlglot reads as casts, as Spark writes them."""
    kind = node.to.this
    if isinstance(node.this, exp.Literal) and kind in _SUFFIXES:
        return f"{node.this.this}{_SUFFIXES[kind][0]}"
    if isinstance(node.this, exp.Literal) and type(node) is exp.Cast and kind in _WRITTEN:
        return f"{_WRITTEN[kind]} {generator.sql(node.this)}"
    return f"CAST({generator.sql(node.this)} AS {generator.sql(node.to)})"


class _Sql(Spark):
    """Spark's SQL, in which calls and literals stay as they are written."""

    class Tokenizer(Spark.Tokenizer):
        """Reads `'it''s'` as Spark 4 does by default."""

        STRING_ESCAPES = ["'", '"', "\\"]  # noqa: RUF012 - sqlglot declares it so

    class Parser(Spark.Parser):  # type: ignore[misc, valid-type]  # sqlglot's metaclass makes it
        """Has no functions, so it changes none."""

        FUNCTIONS: dict[str, Any] = {}  # noqa: RUF012 - sqlglot declares it so

    class Generator(Spark.Generator):  # type: ignore[misc, valid-type]  # as above
        """Writes pieces unchanged."""

        TRANSFORMS = {  # noqa: RUF012 - sqlglot declares it so
            **Spark.Generator.TRANSFORMS,
            exp.Cast: _typed_literal,
            exp.TryCast: _typed_literal,
        }


_DIALECT = _Sql()


def predicate_of_text(text: str, binder: Binder) -> Predicate:
    """The predicate of `text`, a condition of Spark's, as sqlglot reads it; one `Piece` if sqlglot cannot read it."""
    try:
        trees = _DIALECT.parse_into(exp.Condition, text)
        if len(trees) == 1 and trees[0] is not None:
            return _Reader(binder).predicate(trees[0])
    except (SqlglotError, RecursionError):
        pass
    return Piece(text.strip())


def reads_alike(text: str) -> bool:
    """Whether nothing in `text` but its literals depends on settings of Spark."""
    return not _SETTINGS.search(text)


def is_fixed(leaf: Predicate) -> bool:
    """Whether a comparison, in a text that reads alike, means the same under every setting of Spark."""
    if isinstance(leaf, Comparison):
        values = [getattr(leaf.right, "value", decimal.Decimal())]
    else:
        values = list(leaf.values) if isinstance(leaf, IsIn) else [getattr(leaf, "value", None)]
    return all(map(_is_fixed, values)) and not any(isinstance(name, _Called) for name in leaf.columns())


def _is_fixed(value: Any) -> bool:
    """Whether a literal is not a decimal, double, timestamp, or text with a quote (which has two spellings)."""
    if isinstance(value, (int, np.integer)):
        return abs(int(value)) <= _MAX_BIGINT
    return value is None or type(value) in (bytes, dt.date) or (type(value) is str and "'" not in value)


def shortened(text: str) -> str:
    """`text` with each list of more than 64 literals cut to the first literal.

    Raises
    ------
    UnboundError
        A list holds literals that depend on settings.
    """
    tokens = _DIALECT.tokenize(text)
    kept, last = "", 0
    for first, end in _long_lists(tokens):
        comma = next(token for token in tokens[first:end] if token.token_type is TokenType.COMMA)
        listed = text[tokens[first].start : tokens[end].start]
        is_plain = all(token.token_type in _LIST_TOKENS and "'" not in token.text for token in tokens[first:end])
        if not is_plain or not reads_alike(listed):
            message = "its list is too long and holds literals with escapes"
            raise UnboundError(ReasonCode.PREDICATE_NOT_SUPPORTED, message)
        kept, last = kept + text[last : comma.start], tokens[end].start
    return kept + text[last:]


def _long_lists(tokens: list[Token]) -> Iterator[tuple[int, int]]:
    """The places of the first literal, and of the bracket at the end, of each long list."""
    for place, token in enumerate(tokens[:-2]):
        if token.token_type is TokenType.IN and tokens[place + 1].token_type is TokenType.L_PAREN:
            kinds = [token.token_type for token in tokens[place + 2 :]]
            size = kinds.index(TokenType.R_PAREN) if TokenType.R_PAREN in kinds else 0
            if kinds[:size].count(TokenType.COMMA) >= COMPARED_LITERALS:
                yield place + 2, place + 2 + size


class _Called(str):
    """A name without quotes that Spark may read as a function."""

    __slots__ = ()


class _NoLiteralError(Exception):
    """A node is not a literal that is read here."""


class _Reader:
    """sqlglot's tree to ours."""

    def __init__(self, binder: Binder) -> None:
        self._binder = binder

    def predicate(self, node: exp.Expr) -> Predicate:
        """The condition `node`."""
        if isinstance(node, exp.Paren):
            return self.predicate(node.this)
        if isinstance(node, (exp.And, exp.Or)):
            parts = [self.predicate(part) for part in node.flatten(unnest=False)]
            return And(parts) if isinstance(node, exp.And) else Or(parts)
        if isinstance(node, exp.Not):
            child = self.predicate(node.this)
            is_one = isinstance(node.this, exp.Is) and isinstance(child, IsNull)
            return IsNotNull(child) if is_one else Not(child)
        try:
            found = self._leaf(node)
        except (_NoLiteralError, UnboundError, ValueError, OverflowError, decimal.InvalidOperation):
            found = None
        return Piece(node.sql(dialect=_DIALECT, normalize_functions=False, comments=False)) if found is None else found

    def _leaf(self, node: exp.Expr) -> Predicate | None:
        name = _name(node)
        if name is not None:
            return Truth(ColumnTerm(name))
        left, right = node.args.get("this"), node.args.get("expression")
        if isinstance(node, (exp.EQ, exp.NEQ, exp.NullSafeEQ)) and _name(left) is None:
            left, right = right, left
        name = _name(left)
        if name is None:
            return None
        if isinstance(node, exp.Is):
            return IsNull(name) if isinstance(right, exp.Null) else None
        if isinstance(node, exp.In):
            is_list = node.expressions and not any(node.args.get(one) for one in ("query", "unnest", "field"))
            return IsIn(name, [self._value(one) for one in node.expressions]) if is_list else None
        if type(node) in _ORDERS:
            return Comparison(ColumnTerm(name), _ORDERS[type(node)], LiteralTerm(self._value(right)))
        if isinstance(node, (exp.EQ, exp.NEQ)):
            equals = Equals(name, self._value(right))
            return equals if isinstance(node, exp.EQ) else Not(equals)
        if isinstance(node, exp.NullSafeEQ):
            value = self._value(right)
            return EqualsNull(name) if value is None else Equals(name, value, null_safe=True)
        return None

    def _value(self, node: exp.Expr | None) -> Any:
        """A literal as a Python value, or as a NumPy value if its type is written."""
        if isinstance(node, exp.Neg):
            value = self._value(node.this)
            kind: Any = type(value)
            if kind is bool or not isinstance(value, (int, float, decimal.Decimal, np.number)):
                raise _NoLiteralError
            return kind(-value)
        if isinstance(node, exp.Null):
            return None
        if isinstance(node, exp.Boolean):
            return bool(node.this)
        if isinstance(node, exp.HexString):
            return bytes.fromhex(node.this)
        if isinstance(node, exp.Literal):
            return node.this if node.is_string else _number(node.this)
        if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal):
            return self._typed(node)
        raise _NoLiteralError

    def _typed(self, node: exp.Cast) -> Any:
        """A literal whose type is written."""
        kind, text = node.to.this, node.this.this
        if kind in _SUFFIXES:
            return _SUFFIXES[kind][1](text)
        if isinstance(node, exp.TryCast) or kind not in _WRITTEN:
            raise _NoLiteralError
        is_date = kind is _TYPE.DATE
        return date_of(text) if is_date else self._binder.moment(text, is_local=kind is _TYPE.TIMESTAMPNTZ)


def _name(node: exp.Expr | None) -> str | None:
    """The dotted name of a column, or of a leaf of a struct."""
    if not isinstance(node, exp.Column) or not all(isinstance(part, exp.Identifier) for part in node.parts):
        return None
    name = ".".join(part.name for part in node.parts)
    return _Called(name) if name.lower() in _FUNCTIONS and not node.this.quoted else name


def _number(text: str) -> int | float | decimal.Decimal:
    if text.isdecimal():
        return int(text)
    return float(text) if "e" in text.lower() else SqlDecimal(text)
