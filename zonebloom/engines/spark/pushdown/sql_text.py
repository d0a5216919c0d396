"""Spark's SQL text as a predicate: a guess, made by sqlglot's dialect of Spark.

Comparisons of a column with a literal become leaves; AND, OR and NOT join them. Everything else is a `Piece` of text
that only Spark evaluates. Spark's grammar changes and depends on settings. So `translate` lets Spark compare the guess
with the text before the guess is used. A wrong guess prunes nothing.

Design: docs/design/spark-reads.md#conditions
"""

from __future__ import annotations

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
    IsTrue,
    Piece,
    SqlDecimal,
    UnboundError,
    date_of,
)
from zonebloom.ground.errors import PredicateError
from zonebloom.ground.reasons import ReasonCode
from zonebloom.predicates import Equals, IsIn, IsNull, Not, Predicate
from zonebloom.predicates.leaves import Comparison
from zonebloom.predicates.sql import SqlReader, column_name
from zonebloom.predicates.terms import LiteralTerm, Term

COMPARED_LITERALS = 64
"""Literals of a list that Spark compares. Of a longer list Spark gets only the first; the others must have its form."""
_SETTINGS = re.compile(r'--|/\*|\$\{|["\\]')
"""Comments, variables, double quotes and escapes: their meaning depends on Spark's version and settings."""
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
_LIST_TOKENS = (TokenType.STRING, TokenType.NUMBER, TokenType.DASH, TokenType.COMMA)


def _typed_literal(generator: Generator, node: exp.Cast) -> str:
    """`5L` and `DATE '2026-01-31'` in Spark's spelling; sqlglot reads them as casts."""
    kind = node.to.this
    if isinstance(node.this, exp.Literal) and kind in _SUFFIXES:
        return f"{node.this.this}{_SUFFIXES[kind][0]}"
    if isinstance(node.this, exp.Literal) and type(node) is exp.Cast and kind in _WRITTEN:
        return f"{_WRITTEN[kind]} {generator.sql(node.this)}"
    return f"CAST({generator.sql(node.this)} AS {generator.sql(node.to)})"


class _Sql(Spark):
    """Spark's SQL, with calls and literals unchanged."""

    class Tokenizer(Spark.Tokenizer):
        """Reads `'it''s'` as Spark 4 does by default."""

        STRING_ESCAPES = ["'", '"', "\\"]  # noqa: RUF012 - sqlglot declares it so

    class Parser(Spark.Parser):  # type: ignore[misc, valid-type]  # sqlglot's metaclass makes it
        """Knows no functions, so it changes none."""

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
    except (PredicateError, SqlglotError, RecursionError):
        pass
    return Piece(text.strip())


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
        if not is_plain or _SETTINGS.search(listed):
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


class _Reader(SqlReader):
    """sqlglot's tree to ours. Any part that is not a comparison of a column with a literal is a `Piece`."""

    def __init__(self, binder: Binder) -> None:
        self._binder = binder

    def negation(self, node: exp.Not) -> Predicate:
        """NOT of a condition; Spark does not remove NOT NOT."""
        child = self.predicate(node.this)
        is_one = isinstance(node.this, exp.Is) and isinstance(child, IsNull)
        return IsNotNull(child) if is_one else Not(child)

    def leaf(self, node: exp.Expr) -> Predicate:
        """A comparison of a column with a literal, or a `Piece`."""
        try:
            read = super().leaf(node)
        except (PredicateError, UnboundError, ValueError, OverflowError, decimal.InvalidOperation):
            read = None
        compared = read.child if isinstance(read, Not) else read
        if isinstance(compared, Comparison) and isinstance(compared.right, LiteralTerm):
            column: Term | None = compared.left
        else:
            column = compared.column if isinstance(compared, (Equals, IsIn, IsNull)) else None
        if read is not None and isinstance(column, str):
            return read
        return Piece(node.sql(dialect=_DIALECT, normalize_functions=False, comments=False))

    def truth(self, term: Term) -> Predicate:
        """A column alone."""
        return IsTrue(term)

    def like(self, node: exp.Expr) -> Predicate:
        """A pattern, which only Spark evaluates."""
        raise PredicateError("only Spark evaluates it", got=node.sql())

    def equals_null(self, term: Term) -> Predicate:
        """<=> NULL, which Spark distinguishes from IS NULL."""
        return EqualsNull(term)

    def term(self, node: exp.Expr, level: int = 0) -> Term:  # noqa: ARG002 - none around it
        """A column or a literal."""
        name = column_name(node)
        return LiteralTerm(self.literal(node)) if name is None else name

    def literal(self, node: exp.Expr) -> Any:
        """A literal as a Python value, or as a NumPy value if its type is written."""
        if isinstance(node, exp.Neg):
            value = self.literal(node.this)
            kind: Any = type(value)
            if kind is bool or not isinstance(value, (int, float, decimal.Decimal, np.number)):
                raise PredicateError("only Spark evaluates it")
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
        raise PredicateError("only Spark evaluates it")

    def _typed(self, node: exp.Cast) -> Any:
        """A literal whose type is written."""
        kind, text = node.to.this, node.this.this
        if kind in _SUFFIXES:
            return _SUFFIXES[kind][1](text)
        if isinstance(node, exp.TryCast) or kind not in _WRITTEN:
            raise PredicateError("only Spark evaluates it")
        is_date = kind is _TYPE.DATE
        return date_of(text) if is_date else self._binder.moment(text, is_local=kind is _TYPE.TIMESTAMPNTZ)


def _number(text: str) -> int | float | decimal.Decimal:
    if text.isascii() and text.isdecimal():
        return int(text)
    return float(text) if "e" in text.lower() else SqlDecimal(text)
