"""SQL text as a predicate: the condition that would follow WHERE.

sqlglot parses; this module maps its tree, node by node, and refuses unknown nodes and unknown arguments of nodes. An
argument that is ignored would change the meaning silently: sqlglot stores NOT LIKE as a flag of LIKE.

The dialect is standard SQL with ``==``, ``<=>``, back-quoted names, ``X'…'`` and casts by ``::``. Names keep their
case.

Spec: specs/pruning.md#sql.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, TypeAlias

import sqlglot.errors
from sqlglot import Token, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.tokens import Tokenizer

from zonebloom.errors import PredicateError
from zonebloom.predicates.sql_literals import arrow_type, literal_of
from zonebloom.predicates.sql_nesting import Nesting
from zonebloom.predicates.terms import (
    CallTerm,
    CastTerm,
    ColumnTerm,
    Comparison,
    IsNullTerm,
    Like,
    LiteralTerm,
    Membership,
    Term,
    Truth,
)
from zonebloom.predicates.tree import And, Equals, IsIn, IsNull, Not, Or, Predicate

SUPPORTED = (
    "= == != <> < <= > >= <=> BETWEEN IN LIKE ILIKE IS [NOT] NULL, IS [NOT] DISTINCT FROM, AND OR NOT, CAST, "
    "abs coalesce length lower trim upper, and literals"
)
"""The operators and functions of the language, for error messages."""

_SHOWN = 80


class _Tokenizer(Tokenizer):
    IDENTIFIERS = ['"', "`"]  # noqa: RUF012 -- sqlglot declares it so
    HEX_STRINGS = [("x'", "'"), ("X'", "'")]  # noqa: RUF012 -- sqlglot declares it so


class _Sql(Dialect):
    """Standard SQL with spellings of other engines."""

    Tokenizer = _Tokenizer


def parse_sql(text: str) -> Predicate:
    """The predicate of `text`, a condition as it follows WHERE.

    Raises
    ------
    PredicateError
        The text is no SQL condition, or has a part that neither filters nor the row filter can evaluate; the message
        quotes the part.

    Spec: specs/pruning.md#sql.
    """
    if not text.strip():
        raise PredicateError("a condition must not be empty, got no text")
    try:
        return _sql_predicate(text)
    except PredicateError as error:
        hint = next((advice for pattern, advice in _STUMBLES if pattern.search(_QUOTED.sub("''", text))), None)
        if hint is None:
            raise
        raise PredicateError(f"{str(error).partition('; use ')[0]}; {hint}") from None


_QUOTED = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`")
_STUMBLES = [
    (re.compile(pattern, re.IGNORECASE), advice)
    for pattern, advice in (
        (r"^\s*where\b", "leave the word WHERE away"),
        (r"(?<!')'(?!')", "a quote is not closed"),
        (r"\b[0-9a-f]{8}-[0-9a-f]{4}-", "put the text in single quotes"),
        (r"\b[a-z_]\w*-[a-z_]\w*", 'a name with - goes in double quotes, as "e-mail"'),
        (r"\w\[''\]", "a field of a struct is written device.ip"),
    )
]
"""Common mistakes, as patterns outside of quotes, and what to write instead."""


def _sql_predicate(text: str) -> Predicate:
    try:
        tokens = _Sql().tokenize(text)
        nesting = Nesting(tokens)
        if nesting.is_parsed_whole:
            return _parsed(tokens, text)
        return nesting.predicate(lambda piece: _parsed(piece, text))
    except sqlglot.errors.ParseError as error:
        raise PredicateError(_parse_message(text, error)) from None
    except sqlglot.errors.TokenError:  # its text is about itself
        raise PredicateError(f"a condition must be SQL, got {_shown(text)}") from None
    except sqlglot.errors.SqlglotError as error:
        raise PredicateError(f"a condition must be SQL, got {_shown(text)}; {_one_line(str(error))}") from error
    except RecursionError:
        raise PredicateError(f"a condition must not nest so deeply, got {_shown(text)}") from None


def _parsed(tokens: Sequence[Token], text: str) -> Predicate:
    """The predicate of a piece of `text`."""
    trees = _Sql().parser().parse(list(tokens), text)
    if len(trees) != 1 or trees[0] is None:
        raise sqlglot.errors.SqlglotError(f"it must be one condition, got {len(trees)}")
    return _Translator().predicate(trees[0])


def _parse_message(text: str, error: sqlglot.errors.ParseError) -> str:
    first = error.errors[0] if error.errors else {}
    near = f"{first.get('start_context', '')}{first.get('highlight', '')}{first.get('end_context', '')}"
    column = max(1, first.get("col", 0) - len(first.get("highlight") or "") + 1)
    spot = f" near {first['highlight']!r}" if first.get("highlight") else ""
    return f"a condition must be SQL, got {_shown(near or text)}; it cannot be read{spot} at character {column}"


def _one_line(text: str) -> str:
    return " ".join(re.sub(r"\x1b\[\d*m", "", text).split())


def _shown(text: str) -> str:
    line = _one_line(text)
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"


def _refuse(node: exp.Expr) -> NoReturn:
    raise PredicateError(
        f"a condition must be made of what can be evaluated, got {_shown(node.sql())}; use {SUPPORTED}"
    )


def _only(node: exp.Expr, *names: str) -> None:
    """Refuse a node with other arguments than `names`."""
    for name, value in node.args.items():
        if name not in names and value not in (None, False, []):
            _refuse(node)


_COMPARED: dict[type[exp.Expr], str] = {
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.EQ: "=",
    exp.NEQ: "!=",
}
_CALLED: dict[type[exp.Expr], str] = {
    exp.Abs: "abs",
    exp.Coalesce: "coalesce",
    exp.Length: "length",
    exp.Lower: "lower",
    exp.Neg: "negate",
    exp.Trim: "trim",
    exp.Upper: "upper",
}
_Rule: TypeAlias = "Callable[[_Translator, Any], Predicate]"


class _Translator:
    """sqlglot's tree to ours."""

    def predicate(self, node: exp.Expr) -> Predicate:
        """The condition `node`."""
        node = _bare(node)
        for kind, joint in ((exp.And, And), (exp.Or, Or)):
            if isinstance(node, kind):
                return joint([self.predicate(part) for part in _operands(node, kind)])
        if isinstance(node, exp.Not):
            return ~self.predicate(node.this)
        rule = _RULES.get(type(node))
        return rule(self, node) if rule is not None else self.truth(node)

    def truth(self, node: exp.Expr) -> Predicate:
        """A value as a condition: a boolean column, TRUE, a cast."""
        term = self.term(node)
        return Equals(term.name, True) if isinstance(term, ColumnTerm) else Truth(term)

    def comparison(self, node: exp.Binary) -> Predicate:
        """= != < <= > >=."""
        _only(node, "this", "expression")
        operator, left, right = _COMPARED[type(node)], self.term(node.this), self.term(node.expression)
        if isinstance(left, LiteralTerm) and isinstance(right, ColumnTerm) and operator in ("=", "!="):
            left, right = right, left
        if isinstance(left, ColumnTerm) and isinstance(right, LiteralTerm) and operator in ("=", "!="):
            equal = Equals(left.name, right.value)
            return equal if operator == "=" else Not(equal)
        return Comparison(left, operator, right)

    def null_safe(self, node: exp.NullSafeEQ | exp.NullSafeNEQ) -> Predicate:
        """<=>, IS [NOT] DISTINCT FROM; never NULL."""
        _only(node, "this", "expression")
        left, right = self.term(node.this), self.term(node.expression)
        if isinstance(left, LiteralTerm):
            left, right = right, left
        if not isinstance(left, ColumnTerm) or not isinstance(right, LiteralTerm):
            _refuse(node)
        is_null = right.value is None
        same = IsNull(left.name) if is_null else Equals(left.name, right.value, null_safe=True)
        return same if isinstance(node, exp.NullSafeEQ) else Not(same)

    def is_(self, node: exp.Is) -> Predicate:
        """IS NULL, and IS TRUE / IS FALSE of a column."""
        _only(node, "this", "expression")
        term, right = self.term(node.this), node.expression
        if isinstance(right, exp.Null):
            return IsNull(term.name) if isinstance(term, ColumnTerm) else IsNullTerm(term)
        if isinstance(right, exp.Boolean) and isinstance(term, ColumnTerm):
            return Equals(term.name, bool(right.this), null_safe=True)
        _refuse(node)

    def is_in(self, node: exp.In) -> Predicate:
        """IN of a list of literals."""
        _only(node, "this", "expressions")
        term = self.term(node.this)
        values = [self.literal(value) for value in node.expressions]
        return IsIn(term.name, values) if isinstance(term, ColumnTerm) else Membership(term, values)

    def between(self, node: exp.Between) -> Predicate:
        """BETWEEN: both ends included."""
        _only(node, "this", "low", "high")
        term = self.term(node.this)
        low, high = self.term(node.args["low"]), self.term(node.args["high"])
        return And((Comparison(term, ">=", low), Comparison(term, "<=", high)))

    def like(self, node: exp.Like | exp.ILike | exp.Escape) -> Predicate:
        """[NOT] LIKE and ILIKE with ESCAPE."""
        escape = None
        if isinstance(node, exp.Escape):
            _only(node, "this", "expression")
            escape, node = self.literal(node.expression), node.this
            if not isinstance(node, (exp.Like, exp.ILike)) or not isinstance(escape, str):
                _refuse(node)
        _only(node, "this", "expression", "negate")
        pattern = self.literal(node.expression)
        if pattern is None:
            return Comparison(self.term(node.this), "=", LiteralTerm(None))
        if not isinstance(pattern, str):
            _refuse(node)
        is_like = Like(self.term(node.this), pattern, escape=escape, ignore_case=isinstance(node, exp.ILike))
        return Not(is_like) if node.args.get("negate") else is_like

    def term(self, node: exp.Expr) -> Term:
        """The value `node`."""
        node = _bare(node)
        if (name := _column_name(node)) is not None:
            return ColumnTerm(name)
        is_literal, value = literal_of(node)
        if is_literal:
            return LiteralTerm(value)
        if isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast):
            _only(node, "this", "to", "_type")
            return CastTerm(self.term(node.this), arrow_type(node.to))
        if type(node) in _CALLED:
            _only(node, "this", "expressions")
            arguments = [node.this, *node.expressions]
            return CallTerm(_CALLED[type(node)], tuple(self.term(argument) for argument in arguments))
        _refuse(node)

    def literal(self, node: exp.Expr) -> Any:
        """The constant `node`."""
        is_literal, value = literal_of(_bare(node))
        if not is_literal:
            _refuse(node)
        return value


_RULES: dict[type[exp.Expr], _Rule] = {
    **dict.fromkeys(_COMPARED, _Translator.comparison),
    **dict.fromkeys((exp.NullSafeEQ, exp.NullSafeNEQ), _Translator.null_safe),
    **dict.fromkeys((exp.Like, exp.ILike, exp.Escape), _Translator.like),
    exp.Between: _Translator.between,
    exp.In: _Translator.is_in,
    exp.Is: _Translator.is_,
}


def _bare(node: exp.Expr) -> exp.Expr:
    """The node without the parentheses around it."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _operands(node: exp.Expr, kind: type[exp.Expr]) -> Iterator[exp.Expr]:
    """The operands of a chain of ANDs or ORs, left to right; sqlglot nests the chain to the left."""
    waiting = [node]
    while waiting:
        part = _bare(waiting.pop())
        if isinstance(part, kind):
            _only(part, "this", "expression")
            waiting.extend((part.expression, part.this))
        else:
            yield part


def _column_name(node: exp.Expr) -> str | None:
    """The dotted name of a column or struct leaf; None for anything else."""
    names: list[str] = []
    while isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        names.append(node.expression.name)
        node = node.this
    if not isinstance(node, exp.Column):
        return None
    parts = node.parts
    if not all(isinstance(part, exp.Identifier) for part in parts):
        return None
    _only(node, "this", "table", "db", "catalog")
    return ".".join([part.name for part in parts] + names[::-1])
