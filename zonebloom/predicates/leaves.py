"""The leaves of predicate trees: conditions on terms, pieces that only an engine evaluates, and pairs.

No leaf says whether filters evaluate it: `search.evaluate` tests whether its term is a plain column.

Spec: specs/pruning.md#predicates.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from zonebloom.ground.arrow import python_value
from zonebloom.ground.errors import PredicateError
from zonebloom.ground.reasons import ReasonCode
from zonebloom.predicates.literals import collected, is_null_literal, single
from zonebloom.predicates.terms import LiteralTerm, Term, columns_of
from zonebloom.predicates.tree import Predicate

if TYPE_CHECKING:
    import pyarrow.compute as pc

SHOWN_VALUES = 5
"""Number of values of a list in its text."""


def check_name(column: Any) -> Any:
    """`column` itself: a term, or a column's name, which must be a text that is not empty."""
    if not (column if isinstance(column, str) else isinstance(column, Term)):
        raise PredicateError("a column must be named by a text that is not empty", got=f"{column!r}")
    return column


class OfTerms(Predicate):
    """A condition on terms."""

    __slots__ = ()

    @property
    @abstractmethod
    def terms(self) -> tuple[Term, ...]:
        """The terms that the condition compares."""

    @property
    def own_columns(self) -> Iterable[str]:
        """The columns that the terms read."""
        return set().union(*map(columns_of, self.terms))


class _OfColumn(OfTerms):
    """A condition on one column or one term."""

    __slots__ = ("column",)
    __match_args__: ClassVar[tuple[str, ...]] = ("column",)

    column: Term

    @property
    def terms(self) -> tuple[Term, ...]:
        """The one term."""
        return (self.column,)


class Equals(_OfColumn):
    """``column = value``: TRUE in rows that equal `value`, NULL in null rows; a null `value` makes every row NULL.

    `value` is a Python, NumPy or Arrow scalar. With `null_safe` the result for a null row is FALSE instead of NULL,
    like that of ``<=>``. Then `value` must not be null (use `IsNull`).
    """

    __slots__ = ("null_safe", "value")
    __match_args__: ClassVar[tuple[str, ...]] = ("column", "value", "null_safe")

    value: Any
    null_safe: bool

    def __init__(self, column: Term, value: Any, *, null_safe: bool = False) -> None:
        check_name(column)
        value = single(value)
        if null_safe and is_null_literal(value):
            raise PredicateError(
                f"a null-safe comparison of {column} must have a value", got="null", do="use is_null()"
            )
        self._set(column=column, value=value, null_safe=null_safe)

    def _shown(self, parts: list[str]) -> str:  # noqa: ARG002 -- a leaf
        return f"Equals({self.column!r}, {_shown(self.value)}{', null_safe=True' if self.null_safe else ''})"


def _shown(value: Any) -> str:
    return repr(python_value(value) if isinstance(value, pa.Scalar) else value)


class IsIn(_OfColumn):
    """``column IN (values)``: TRUE in the rows whose value equals one of `values`.

    As in SQL, the result is NULL in null rows. If a value is null, every result that is not TRUE is NULL. Duplicates
    change nothing. Without values the result is FALSE in every row. With `null_safe` the result is FALSE instead of
    NULL, and a null among the values changes nothing.

    `values` is any collection, of any length: a list, a set, a generator, a NumPy or Arrow array, a series of pandas or
    Polars. Missing values of pandas are null, and so is NaN in a pandas series. Arrow arrays are not copied.
    """

    __slots__ = ("null_safe", "values")
    __match_args__: ClassVar[tuple[str, ...]] = ("column", "values", "null_safe")

    values: pa.Array | list[Any]
    null_safe: bool

    def __init__(self, column: Term, values: Any, *, null_safe: bool = False) -> None:
        self._set(column=check_name(column), values=collected(values), null_safe=null_safe)

    def _key(self) -> tuple[Any, ...]:
        return *super()._key(), None if isinstance(self.values, pa.Array) else [type(value) for value in self.values]

    def _shown(self, parts: list[str]) -> str:  # noqa: ARG002 -- a leaf
        head = self.values[:SHOWN_VALUES]
        shown = list(map(_shown, head))
        more = [f"… {len(self.values)} values"] if len(self.values) > SHOWN_VALUES else []
        values = ", ".join(shown + more)
        return f"IsIn({self.column!r}, [{values}]{', null_safe=True' if self.null_safe else ''})"


class IsNull(_OfColumn):
    """``column IS NULL``: TRUE or FALSE, never NULL; NaN is no null."""

    __slots__ = ()

    def __init__(self, column: Term) -> None:
        self._set(column=check_name(column))


_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Comparison(OfTerms):
    """``left <operator> right`` for = != < <= > >=; NULL if a side is null."""

    __slots__ = ("left", "operator", "right")
    __match_args__: ClassVar[tuple[str, ...]] = __slots__

    left: Term
    operator: str
    right: Term

    def __init__(self, left: Term, operator: str, right: Term) -> None:
        if isinstance(left, LiteralTerm):
            left, operator, right = right, _MIRRORED[operator], left
        self._set(left=left, operator=operator, right=right)

    @property
    def terms(self) -> tuple[Term, ...]:
        """Both sides."""
        return self.left, self.right


class Like(_OfColumn):
    """``column LIKE pattern``: ``%`` is any text, ``_`` one character; nothing is escaped without `escape`."""

    __slots__ = ("escape", "ignore_case", "pattern")
    __match_args__: ClassVar[tuple[str, ...]] = ("column", "pattern", "escape", "ignore_case")

    pattern: str
    escape: str | None
    ignore_case: bool

    def __init__(self, column: Term, pattern: str, *, escape: str | None = None, ignore_case: bool = False) -> None:
        if escape is not None and len(escape) != 1:
            raise PredicateError("the ESCAPE of LIKE must be one character", got=f"{escape!r}")
        self._set(column=column, pattern=pattern, escape=escape, ignore_case=ignore_case)


class Piece(Predicate):
    """A part of an engine's condition that zonebloom does not interpret: it prunes nothing."""

    __slots__ = ("code", "expression", "own_columns", "sql", "why")

    sql: str
    """The piece, as its engine writes it."""
    why: str
    """Why filters do not evaluate it; may be empty."""
    code: ReasonCode
    own_columns: frozenset[str]
    """The known columns that the piece reads."""
    expression: pc.Expression | None
    """The expression that evaluates the piece on rows; None if only its engine can."""

    def __init__(
        self,
        sql: str,
        why: str = "",
        code: ReasonCode = ReasonCode.PREDICATE_NOT_SUPPORTED,
        columns: Iterable[str] = (),
        expression: pc.Expression | None = None,
    ) -> None:
        self._set(sql=sql, why=why, code=code, own_columns=frozenset(columns), expression=expression)

    def _key(self) -> tuple[Any, ...]:
        return self.sql, self.why, self.code, self.own_columns

    def _shown(self, parts: list[str]) -> str:  # noqa: ARG002 -- a leaf
        return f"{type(self).__name__}({self.sql!r})"


def expression_text(expression: pc.Expression) -> str:
    """The expression as pyarrow prints it, on one line; pyarrow 26 fails on the bytes of a binary_view."""
    try:
        text = str(expression)
    except UnicodeDecodeError as error:
        text = bytes(error.object).decode(errors="backslashreplace")
    return " ".join(text.split())


class Condition(Predicate):
    """A condition of an engine as a pair: a tree that prunes, and the expression itself, which decides on rows.

    `prunes` is sound: its bounds contain every row in which `filters` is TRUE, and every row in which it is FALSE. In a
    tree the pair is a leaf that is evaluated by `filters`; `pruned_by` looks into it.
    """

    __slots__ = ("filters", "own_columns", "prunes", "text")

    prunes: Predicate
    filters: pc.Expression
    text: str
    """`filters` as its engine prints it."""
    own_columns: frozenset[str]
    """The columns that `filters` reads; `prunes` may read fewer."""

    def __init__(self, prunes: Predicate, filters: pc.Expression, columns: Iterable[str]) -> None:
        self._set(prunes=prunes, filters=filters, text=expression_text(filters), own_columns=frozenset(columns))

    def _key(self) -> tuple[Any, ...]:
        return (self.text,)

    def _shown(self, parts: list[str]) -> str:  # noqa: ARG002 -- as the expression
        return f"Condition({self.text})"


def pruned_by(node: Predicate) -> Sequence[Predicate]:
    """The children of a node, for pruning. The only child of a `Condition` is the tree that prunes."""
    return (node.prunes,) if isinstance(node, Condition) else node.children
