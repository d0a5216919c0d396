"""SQL text as a predicate: the condition that would follow WHERE.

sqlglot parses. This module maps the tree node by node, and refuses unknown nodes and unknown arguments of nodes. An
ignored argument would silently change the meaning: sqlglot stores NOT LIKE as a flag of LIKE.

The dialect is standard SQL with ``==``, ``<=>``, back-quoted names, ``X'…'`` and casts by ``::``. Names keep their
case.

Design: docs/design/conditions.md#sql.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar, NoReturn

import sqlglot.errors
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.tokens import Tokenizer

from zonebloom.ground.errors import PredicateError
from zonebloom.ground.threads import on_deep_stack
from zonebloom.predicates.leaves import Comparison, Equals, IsIn, IsNull, Like
from zonebloom.predicates.sql_literals import arrow_type, literal_of
from zonebloom.predicates.terms import CallTerm, CastTerm, LiteralTerm, Term
from zonebloom.predicates.tree import MAX_DEPTH, And, Not, Or, Predicate

SUPPORTED = (
    "= == != <> < <= > >= <=> BETWEEN IN LIKE ILIKE IS [NOT] NULL, IS [NOT] DISTINCT FROM, AND OR NOT, CAST, "
    "abs coalesce length lower trim upper, and literals"
)
"""The operators and functions of the language, for error messages."""

_SHOWN = 80
_MAX_CALLS = 40
"""Functions and casts around a column or literal at most: what evaluates them recurses."""
_TOO_DEEP = f"a condition must nest at most {MAX_DEPTH} levels deep, and {_MAX_CALLS} levels of functions and casts"


class _Tokenizer(Tokenizer):
    IDENTIFIERS = ['"', "`"]  # noqa: RUF012 -- sqlglot declares it so
    HEX_STRINGS = [("x'", "'"), ("X'", "'")]  # noqa: RUF012 -- sqlglot declares it so
    COMMANDS: ClassVar[set[Any]] = set()  # a column may be named `show`


class _Sql(Dialect):
    """Standard SQL with spellings of other engines."""

    Tokenizer = _Tokenizer


def parse_sql(text: str) -> Predicate:
    """The predicate of `text`, a condition without WHERE.

    Raises
    ------
    PredicateError
        The text is not an SQL condition, or it has a part that neither filters nor the row filter can evaluate. The
        message quotes the part.

    Design: docs/design/conditions.md#sql.
    """
    if not text.strip():
        raise PredicateError("the condition is empty")
    try:
        return _sql_predicate(text)
    except PredicateError as error:
        bare = _QUOTED.sub("''", text)
        hint = next((advice for pattern, advice in _STUMBLES.items() if re.search(pattern, bare, re.IGNORECASE)), None)
        if hint is None:
            raise
        raise PredicateError(f"{str(error).partition('; use ')[0]}", do=hint) from None


_QUOTED = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`")
_STUMBLES = {
    r"^\s*where\b": "leave the word WHERE away",
    r"(?<!')'(?!')": "a quote is not closed",
    r"\b[0-9a-f]{8}-[0-9a-f]{4}-": "put the text in single quotes",
    r"\b[a-z_]\w*-[a-z_]\w*": 'a name with - goes in double quotes, as "e-mail"',
    r"\w\[''\]": "a field of a struct is written device.ip",
}
"""Patterns of common mistakes outside of quotes, each with the text to write instead."""


def _sql_predicate(text: str) -> Predicate:
    try:
        try:
            return _parsed(text)
        except RecursionError:  # at some 50 levels
            return on_deep_stack(lambda: _parsed(text))
    except sqlglot.errors.ParseError as error:
        raise PredicateError(_parse_message(text, error)) from None
    except sqlglot.errors.TokenError:  # its message is about sqlglot's own state
        raise PredicateError(f"the condition cannot be read as SQL: {_shown(text)}") from None
    except sqlglot.errors.SqlglotError as error:
        raise PredicateError(
            f"the condition cannot be read as SQL: {_shown(text)}", do=_one_line(str(error))
        ) from error
    except RecursionError:
        raise PredicateError(_TOO_DEEP, got=_shown(text)) from None


def _parsed(text: str) -> Predicate:
    trees = _Sql().parse_into(exp.Condition, text)  # a statement would begin with a column `comment`
    if len(trees) != 1 or trees[0] is None:
        raise sqlglot.errors.SqlglotError(f"it must be one condition, got {len(trees)}")
    return SqlReader().predicate(trees[0])


def _parse_message(text: str, error: sqlglot.errors.ParseError) -> str:
    first = error.errors[0] if error.errors else {}
    near = f"{first.get('start_context', '')}{first.get('highlight', '')}{first.get('end_context', '')}"
    column = max(1, first.get("col", 0) - len(first.get("highlight") or "") + 1)
    spot = f" near {first['highlight']!r}" if first.get("highlight") else ""
    return f"the condition cannot be read{spot} at character {column}: {_shown(near or text)}"


def _one_line(text: str) -> str:
    return " ".join(re.sub(r"\x1b\[\d*m", "", text).split())


def _shown(text: str) -> str:
    line = _one_line(text)
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"


def _refuse(node: exp.Expr) -> NoReturn:
    raise PredicateError(f"{_shown(node.sql('spark'))} cannot be evaluated", do=f"use {SUPPORTED}")


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
_RULES: dict[type[exp.Expr], str] = {
    **dict.fromkeys(_COMPARED, "comparison"),
    **dict.fromkeys((exp.NullSafeEQ, exp.NullSafeNEQ), "null_safe"),
    **dict.fromkeys((exp.Like, exp.ILike, exp.Escape), "like"),
    exp.Between: "between",
    exp.In: "is_in",
    exp.Is: "is_",
}
"""Node of sqlglot → the method that reads it."""


class SqlReader:
    """sqlglot's tree to ours. The reader of another dialect overrides the methods in which it differs."""

    def predicate(self, node: exp.Expr) -> Predicate:
        """The condition `node`."""
        node = _bare(node)
        for kind, joint in ((exp.And, And), (exp.Or, Or)):
            if isinstance(node, kind):
                return joint([self.predicate(part) for part in _operands(node, kind)])
        return self.negation(node) if isinstance(node, exp.Not) else self.leaf(node)

    def negation(self, node: exp.Not) -> Predicate:
        """NOT of a condition."""
        return ~self.predicate(node.this)

    def leaf(self, node: exp.Expr) -> Predicate:
        """A condition that joins no others."""
        rule = _RULES.get(type(node))
        leaf: Predicate = self.truth(self.term(node)) if rule is None else getattr(self, rule)(node)
        return leaf

    def truth(self, term: Term) -> Predicate:
        """A value alone."""
        return Equals(term, True)

    def comparison(self, node: exp.Binary) -> Predicate:
        """= != < <= > >=."""
        _only(node, "this", "expression")
        operator, left, right = _COMPARED[type(node)], self.term(node.this), self.term(node.expression)
        if operator not in ("=", "!="):
            return Comparison(left, operator, right)
        if isinstance(left, LiteralTerm):
            left, right = right, left
        if not isinstance(right, LiteralTerm):
            return Comparison(left, operator, right)
        equal = Equals(left, right.value)
        return equal if operator == "=" else Not(equal)

    def null_safe(self, node: exp.NullSafeEQ | exp.NullSafeNEQ) -> Predicate:
        """<=>, IS [NOT] DISTINCT FROM; never NULL."""
        _only(node, "this", "expression")
        left, right = self.term(node.this), self.term(node.expression)
        if isinstance(left, LiteralTerm):
            left, right = right, left
        if not isinstance(right, LiteralTerm):
            _refuse(node)
        same = self.equals_null(left) if right.value is None else Equals(left, right.value, null_safe=True)
        return same if isinstance(node, exp.NullSafeEQ) else Not(same)

    def equals_null(self, term: Term) -> Predicate:
        """<=> NULL."""
        return IsNull(term)

    def is_(self, node: exp.Is) -> Predicate:
        """IS NULL, IS TRUE and IS FALSE."""
        _only(node, "this", "expression")
        if isinstance(node.expression, exp.Null):
            return IsNull(self.term(node.this))
        if not isinstance(node.expression, exp.Boolean):
            _refuse(node)
        return Equals(self.term(node.this), bool(node.expression.this), null_safe=True)

    def is_in(self, node: exp.In) -> Predicate:
        """IN of a list of literals."""
        _only(node, "this", "expressions")
        return IsIn(self.term(node.this), [self.literal(value) for value in node.expressions])

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
            return Equals(self.term(node.this), None)
        if not isinstance(pattern, str):
            _refuse(node)
        is_like = Like(self.term(node.this), pattern, escape=escape, ignore_case=isinstance(node, exp.ILike))
        return Not(is_like) if node.args.get("negate") else is_like

    def term(self, node: exp.Expr, level: int = 0) -> Term:
        """The value `node`, in `level` functions and casts."""
        if level > _MAX_CALLS:
            raise PredicateError(_TOO_DEEP, got=_shown(node.sql("spark")))
        node = _bare(node)
        if (name := column_name(node)) is not None:
            return name
        is_literal, value = literal_of(node)
        if is_literal:
            return LiteralTerm(value)
        if isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast):
            _only(node, "this", "to", "_type")
            return CastTerm(self.term(node.this, level + 1), arrow_type(node.to))
        if type(node) in _CALLED:
            _only(node, "this", "expressions")
            arguments = [node.this, *node.expressions]
            return CallTerm(_CALLED[type(node)], tuple(self.term(argument, level + 1) for argument in arguments))
        _refuse(node)

    def literal(self, node: exp.Expr) -> Any:
        """The constant `node`."""
        is_literal, value = literal_of(_bare(node))
        if not is_literal:
            _refuse(node)
        return value


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


def column_name(node: exp.Expr | None) -> str | None:
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
