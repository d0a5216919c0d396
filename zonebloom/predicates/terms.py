"""Conditions that no filter can evaluate, made of terms.

A **term** gives a value for each row: a column, a literal, a cast, a function of terms. A **condition** is an `Opaque`
predicate over terms. Both are plain data without a schema: two with the same text are equal.

Spec: specs/pruning.md#opaque.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from zonebloom.arrow import python_value
from zonebloom.errors import PredicateError
from zonebloom.predicates.row_filter import Operand, column_operand, compare, compare_operands, is_in, result_type
from zonebloom.predicates.tree import Opaque
from zonebloom.reasons import ReasonCode

if TYPE_CHECKING:
    import pyarrow.compute as pc
else:
    from zonebloom.arrow import compute as pc


_CRASHING_NUMERAL = r"[eE][+-]?0*[1-9][0-9]{2}|\.[0-9]{100}"
"""Numerals on which pyarrow 26 reads beyond a table of powers of ten, and crashes; they are replaced by an error."""
_SHOWN_VALUES = 5

FUNCTIONS = {
    "abs": "abs",
    "coalesce": "coalesce",
    "length": "utf8_length",
    "lower": "utf8_lower",
    "negate": "negate_checked",
    "trim": "utf8_trim",
    "upper": "utf8_upper",
}
"""The functions that the row filter can evaluate, and their kernels."""


class Term(ABC):
    """A value for each row."""

    __slots__ = ()

    @abstractmethod
    def columns(self) -> set[str]:
        """Names of the columns that the term reads."""

    @abstractmethod
    def operand(self, schema: pa.Schema) -> Operand:
        """The term as an expression over a table of `schema`."""

    @abstractmethod
    def __str__(self) -> str:
        """The term as SQL text."""


@dataclass(frozen=True, slots=True)
class ColumnTerm(Term):
    """A column's value."""

    name: str

    def columns(self) -> set[str]:
        """Names of the columns that the term reads."""
        return {self.name}

    def operand(self, schema: pa.Schema) -> Operand:
        """The term as an expression over a table of `schema`."""
        return column_operand(schema, self.name)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class LiteralTerm(Term):
    """The same value in every row."""

    value: Any

    def columns(self) -> set[str]:
        """Names of the columns that the term reads."""
        return set()

    def operand(self, schema: pa.Schema) -> Operand:
        """The term as an expression over a table of `schema`."""
        try:
            scalar = self.value if isinstance(self.value, pa.Scalar) else pa.scalar(self.value)
        except (pa.ArrowException, OverflowError) as error:
            raise PredicateError(f"a literal must be a value that Arrow can hold, got {self.value!r:.80}") from error
        return Operand(str(self), pc.scalar(scalar), scalar.type, schema)

    def __str__(self) -> str:
        value = python_value(self.value) if isinstance(self.value, pa.Scalar) else self.value
        if value is None or isinstance(value, bool):
            return {None: "NULL", True: "TRUE", False: "FALSE"}[value]
        if isinstance(value, str):
            return "'{}'".format(value.replace("'", "''"))
        return f"X'{value.hex()}'" if isinstance(value, bytes) else str(value)


@dataclass(frozen=True, slots=True)
class CastTerm(Term):
    """A term cast to a type; a value that does not convert exactly is an error when it is read."""

    child: Term
    type: pa.DataType

    def columns(self) -> set[str]:
        """Names of the columns that the term reads."""
        return self.child.columns()

    def operand(self, schema: pa.Schema) -> Operand:
        """The term as an expression over a table of `schema`."""
        child = self.child.operand(schema)
        if isinstance(child.type, pa.UuidType) and not isinstance(self.type, pa.UuidType):
            raise PredicateError(f"a UUID must be compared with a UUID's text, uncast, got {self}")
        source = child.expression
        if pa.types.is_decimal(self.type) and (pa.types.is_string(child.type) or pa.types.is_large_string(child.type)):
            source = pc.replace_substring_regex(source, _CRASHING_NUMERAL, "?")
        return _computed(self, source.cast(self.type), schema)

    def __str__(self) -> str:
        return f"CAST({self.child} AS {self.type})"


@dataclass(frozen=True, slots=True)
class CallTerm(Term):
    """One of `FUNCTIONS` of terms."""

    function: str
    arguments: tuple[Term, ...]

    def columns(self) -> set[str]:
        """Names of the columns that the term reads."""
        return set().union(*(argument.columns() for argument in self.arguments))

    def operand(self, schema: pa.Schema) -> Operand:
        """The term as an expression over a table of `schema`."""
        operands = [argument.operand(schema) for argument in self.arguments]
        is_length_of_bytes = self.function == "length" and _is_binary(operands[0].type)
        kernel = getattr(pc, "binary_length" if is_length_of_bytes else FUNCTIONS[self.function])
        options = {"characters": " "} if self.function == "trim" else {}
        return _computed(self, kernel(*(operand.expression for operand in operands), **options), schema)

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(str, self.arguments))})"


def _computed(term: Term, expression: pc.Expression, schema: pa.Schema) -> Operand:
    return Operand(str(term), expression, result_type(expression, schema, str(term)), schema)


def _is_binary(value_type: pa.DataType) -> bool:
    return value_type in (pa.binary(), pa.large_binary(), pa.binary_view()) or pa.types.is_fixed_size_binary(value_type)


class _Condition(Opaque):
    """An `Opaque` predicate over terms, which are among its fields."""

    __slots__ = ()

    def _terms(self) -> list[Term]:
        return [value for value in self._values() if isinstance(value, Term)]

    @property
    def code(self) -> ReasonCode:
        """CAST_ON_COLUMN if a column is inside a cast or a function, else PREDICATE_NOT_SUPPORTED."""
        is_wrapped = any(term.columns() and not isinstance(term, ColumnTerm) for term in self._terms())
        return ReasonCode.CAST_ON_COLUMN if is_wrapped else ReasonCode.PREDICATE_NOT_SUPPORTED

    def _leaf_columns(self) -> Iterable[str]:
        return set().union(*(term.columns() for term in self._terms()))


_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Comparison(_Condition):
    """``left <operator> right`` for = != < <= > >=; NULL where a side is null."""

    __slots__ = __match_args__ = ("left", "operator", "right")

    left: Term
    operator: str
    right: Term

    def __init__(self, left: Term, operator: str, right: Term) -> None:
        if isinstance(left, LiteralTerm):
            left, operator, right = right, _MIRRORED[operator], left
        self._set(left=left, operator=operator, right=right)

    @property
    def text(self) -> str:
        """The condition as SQL text."""
        return f"{self.left} {self.operator} {self.right}"

    def _expression(self, schema: pa.Schema, parts: list[pc.Expression]) -> pc.Expression:  # noqa: ARG002 -- a leaf
        left = self.left.operand(schema)
        if isinstance(self.right, LiteralTerm):
            return compare(left, self.operator, self.right.value)
        return compare_operands(left, self.operator, self.right.operand(schema), self.text)


class Membership(_Condition):
    """``term IN (values)`` where the term is not a plain column."""

    __slots__ = __match_args__ = ("term", "values")

    term: Term
    values: list[Any]

    def __init__(self, term: Term, values: list[Any]) -> None:
        self._set(term=term, values=values)

    @property
    def text(self) -> str:
        """The condition as SQL text."""
        shown = ", ".join(str(LiteralTerm(value)) for value in self.values[:_SHOWN_VALUES])
        return f"{self.term} IN ({shown}{', …' if len(self.values) > _SHOWN_VALUES else ''})"

    def _expression(self, schema: pa.Schema, parts: list[pc.Expression]) -> pc.Expression:  # noqa: ARG002 -- a leaf
        return is_in(self.term.operand(schema), self.values)


class _OfTerm(_Condition):
    """A condition on one term."""

    __slots__ = __match_args__ = ("term",)

    term: Term

    def __init__(self, term: Term) -> None:
        self._set(term=term)


class IsNullTerm(_OfTerm):
    """``term IS NULL`` where the term is not a plain column."""

    __slots__ = ()

    @property
    def text(self) -> str:
        """The condition as SQL text."""
        return f"{self.term} IS NULL"

    def _expression(self, schema: pa.Schema, parts: list[pc.Expression]) -> pc.Expression:  # noqa: ARG002 -- a leaf
        return self.term.operand(schema).expression.is_null()


class Like(_Condition):
    """``term LIKE pattern``: ``%`` is any text, ``_`` one character; nothing is escaped without `escape`."""

    __slots__ = __match_args__ = ("term", "pattern", "escape", "ignore_case")

    term: Term
    pattern: str
    escape: str | None
    ignore_case: bool

    def __init__(self, term: Term, pattern: str, *, escape: str | None = None, ignore_case: bool = False) -> None:
        if escape is not None and len(escape) != 1:
            raise PredicateError(f"the ESCAPE of LIKE must be one character, got {escape!r}")
        self._set(term=term, pattern=pattern, escape=escape, ignore_case=ignore_case)

    @property
    def text(self) -> str:
        """The condition as SQL text."""
        ending = f" ESCAPE {LiteralTerm(self.escape)}" if self.escape is not None else ""
        return f"{self.term} {'ILIKE' if self.ignore_case else 'LIKE'} {LiteralTerm(self.pattern)}{ending}"

    def _expression(self, schema: pa.Schema, parts: list[pc.Expression]) -> pc.Expression:  # noqa: ARG002 -- a leaf
        text = self.term.operand(schema).expression
        is_like = pc.match_like(text, self._backslashed(), ignore_case=self.ignore_case)
        result_type(is_like, schema, self.text)
        return is_like

    def _backslashed(self) -> str:
        """The pattern with pyarrow's fixed escape, a backslash."""
        letters: list[str] = []
        rest = iter(self.pattern)
        for letter in rest:
            if letter == self.escape:
                escaped = next(rest, None)
                if escaped is None:
                    raise PredicateError(f"a LIKE pattern must not end with its escape, got {self.text}")
                letters.append(f"\\{escaped}" if escaped in "%_\\" else escaped)
            else:
                letters.append("\\\\" if letter == "\\" else letter)
        return "".join(letters)


class Truth(_OfTerm):
    """A boolean term as a condition: TRUE, FALSE and NULL are its values."""

    __slots__ = ()

    @property
    def text(self) -> str:
        """The condition as SQL text."""
        return str(self.term)

    def _expression(self, schema: pa.Schema, parts: list[pc.Expression]) -> pc.Expression:  # noqa: ARG002 -- a leaf
        operand = self.term.operand(schema)
        if pa.types.is_null(operand.type):
            return operand.expression.cast(pa.bool_())
        if not pa.types.is_boolean(operand.type):
            raise PredicateError(f"a condition must be true or false, got {self.text} of type {operand.type}")
        return operand.expression
