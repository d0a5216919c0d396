"""Conditions that no filter can judge, made of terms: what is computed for each row, compared with what.

A **term** gives a value for each row: a column, a literal, a cast, a function of terms. A **condition** is an `Opaque`
predicate over terms. Both are plain data: two that read the same are equal, and meet a schema only in
`Predicate.to_expression`.

Spec: specs/pruning.md#opaque.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from zonebloom.arrow import python_value
from zonebloom.errors import PredicateError
from zonebloom.predicates.tree import Opaque
from zonebloom.reasons import ReasonCode

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from zonebloom.predicates.row_filter import Operand

__all__ = [
    "FUNCTIONS",
    "CallTerm",
    "CastTerm",
    "ColumnTerm",
    "Comparison",
    "IsNullTerm",
    "Like",
    "LiteralTerm",
    "Membership",
    "Term",
    "Truth",
]


_CRASHING_NUMERAL = r"[eE][+-]?0*[1-9][0-9]{2}|\.[0-9]{100}"
"""What makes pyarrow 26 read beyond a table of powers of ten, and crash: made a text that is no number, an error."""


def _functions() -> dict[str, Callable[..., pc.Expression]]:
    import pyarrow.compute as pc  # noqa: PLC0415 -- slow to import

    return {
        "abs": pc.abs,
        "coalesce": pc.coalesce,
        "length": pc.utf8_length,
        "lower": pc.utf8_lower,
        "negate": pc.negate_checked,
        "trim": lambda text: pc.utf8_trim(text, characters=" "),
        "upper": pc.utf8_upper,
    }


FUNCTIONS = frozenset({"abs", "coalesce", "length", "lower", "negate", "trim", "upper"})
"""The functions that a re-check can evaluate."""


class Term(ABC):
    """A value for each row."""

    __slots__ = ()

    @abstractmethod
    def columns(self) -> set[str]:
        """The columns it reads."""

    @abstractmethod
    def operand(self, schema: pa.Schema) -> Operand:
        """It as an expression over a table of `schema`."""

    @abstractmethod
    def __str__(self) -> str:
        """It as people write it."""


@dataclass(frozen=True, slots=True)
class ColumnTerm(Term):
    """A column's value."""

    name: str

    def columns(self) -> set[str]:
        """The columns it reads."""
        return {self.name}

    def operand(self, schema: pa.Schema) -> Operand:
        """It as an expression over a table of `schema`."""
        from zonebloom.predicates.row_filter import column_operand  # noqa: PLC0415 -- imports pyarrow.compute

        return column_operand(schema, self.name)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class LiteralTerm(Term):
    """The same value in every row."""

    value: Any

    def columns(self) -> set[str]:
        """The columns it reads."""
        return set()

    def operand(self, schema: pa.Schema) -> Operand:
        """It as an expression over a table of `schema`."""
        import pyarrow.compute as pc  # noqa: PLC0415 -- slow to import

        from zonebloom.predicates.row_filter import Operand  # noqa: PLC0415 -- imports pyarrow.compute

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
        """The columns it reads."""
        return self.child.columns()

    def operand(self, schema: pa.Schema) -> Operand:
        """It as an expression over a table of `schema`."""
        from zonebloom.predicates.row_filter import Operand, result_type  # noqa: PLC0415 -- imports pyarrow.compute

        child = self.child.operand(schema)
        if isinstance(child.type, pa.UuidType) and not isinstance(self.type, pa.UuidType):
            raise PredicateError(f"a UUID must be compared with a UUID's text, uncast, got {self}")
        source = child.expression
        if pa.types.is_decimal(self.type) and (pa.types.is_string(child.type) or pa.types.is_large_string(child.type)):
            import pyarrow.compute as pc  # noqa: PLC0415 -- slow to import

            source = pc.replace_substring_regex(source, _CRASHING_NUMERAL, "?")
        expression = source.cast(self.type)
        return Operand(str(self), expression, result_type(expression, schema, str(self)), schema)

    def __str__(self) -> str:
        return f"CAST({self.child} AS {self.type})"


@dataclass(frozen=True, slots=True)
class CallTerm(Term):
    """One of `FUNCTIONS` of terms."""

    function: str
    arguments: tuple[Term, ...]

    def columns(self) -> set[str]:
        """The columns it reads."""
        return set().union(*(argument.columns() for argument in self.arguments))

    def operand(self, schema: pa.Schema) -> Operand:
        """It as an expression over a table of `schema`."""
        from zonebloom.predicates.row_filter import Operand, result_type  # noqa: PLC0415 -- imports pyarrow.compute

        operands = [argument.operand(schema) for argument in self.arguments]
        call = _functions()[self.function]
        if self.function == "length" and _is_binary(operands[0].type):
            import pyarrow.compute as pc  # noqa: PLC0415 -- slow to import

            call = pc.binary_length
        expression = call(*(operand.expression for operand in operands))
        return Operand(str(self), expression, result_type(expression, schema, str(self)), schema)

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(str, self.arguments))})"


def _is_binary(value_type: pa.DataType) -> bool:
    return value_type in (pa.binary(), pa.large_binary(), pa.binary_view()) or pa.types.is_fixed_size_binary(value_type)


class _Condition(Opaque):
    """An `Opaque` predicate over terms, whose fields are its slots."""

    __slots__ = ()

    @abstractmethod
    def _terms(self) -> tuple[Term, ...]:
        """The terms that it compares."""

    @property
    def code(self) -> ReasonCode:
        """CAST_ON_COLUMN where a column stands inside a cast or function, else PREDICATE_NOT_SUPPORTED."""
        is_wrapped = any(term.columns() and not isinstance(term, ColumnTerm) for term in self._terms())
        return ReasonCode.CAST_ON_COLUMN if is_wrapped else ReasonCode.PREDICATE_NOT_SUPPORTED

    def _leaf_columns(self) -> Iterable[str]:
        return set().union(*(term.columns() for term in self._terms()))


_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Comparison(_Condition):
    """``left <operator> right`` for = != < <= > >=; NULL where a side is null."""

    __slots__ = ("left", "operator", "right")

    left: Term
    operator: str
    right: Term

    def __init__(self, left: Term, operator: str, right: Term) -> None:
        if isinstance(left, LiteralTerm):
            left, operator, right = right, _MIRRORED[operator], left
        self._set(left=left, operator=operator, right=right)

    def _terms(self) -> tuple[Term, ...]:
        return self.left, self.right

    @property
    def text(self) -> str:
        """The condition as people write it."""
        return f"{self.left} {self.operator} {self.right}"

    def _expression(self, schema: pa.Schema, parts: list[pc.Expression]) -> pc.Expression:  # noqa: ARG002 -- a leaf
        from zonebloom.predicates import row_filter as recheck  # noqa: PLC0415 -- imports pyarrow.compute

        left = self.left.operand(schema)
        if isinstance(self.right, LiteralTerm):
            return recheck.compare(left, self.operator, self.right.value)
        return recheck.compare_operands(left, self.operator, self.right.operand(schema), self.text)

    def _key(self) -> tuple[Any, ...]:
        return self.left, self.operator, self.right


class Membership(_Condition):
    """``term IN (values)`` where the term is no plain column."""

    __slots__ = ("term", "values")

    term: Term
    values: list[Any]

    def __init__(self, term: Term, values: list[Any]) -> None:
        self._set(term=term, values=values)

    def _terms(self) -> tuple[Term, ...]:
        return (self.term,)

    @property
    def text(self) -> str:
        """The condition as people write it."""
        shown = ", ".join(str(LiteralTerm(value)) for value in self.values[:5])
        return f"{self.term} IN ({shown}{', …' if len(self.values) > 5 else ''})"  # noqa: PLR2004 -- the number shown

    def _expression(self, schema: pa.Schema, parts: list[pc.Expression]) -> pc.Expression:  # noqa: ARG002 -- a leaf
        from zonebloom.predicates import row_filter as recheck  # noqa: PLC0415 -- imports pyarrow.compute

        return recheck.is_in(self.term.operand(schema), self.values)

    def _key(self) -> tuple[Any, ...]:
        return self.term, self.values


class _OfTerm(_Condition):
    """A condition that one term decides."""

    __slots__ = ("term",)

    term: Term

    def __init__(self, term: Term) -> None:
        self._set(term=term)

    def _terms(self) -> tuple[Term, ...]:
        return (self.term,)

    def _key(self) -> tuple[Any, ...]:
        return (self.term,)


class IsNullTerm(_OfTerm):
    """``term IS NULL`` where the term is no plain column."""

    __slots__ = ()

    @property
    def text(self) -> str:
        """The condition as people write it."""
        return f"{self.term} IS NULL"

    def _expression(self, schema: pa.Schema, parts: list[pc.Expression]) -> pc.Expression:  # noqa: ARG002 -- a leaf
        return self.term.operand(schema).expression.is_null()


class Like(_Condition):
    """``term LIKE pattern``: ``%`` is any text, ``_`` one character; nothing is escaped without `escape`."""

    __slots__ = ("escape", "ignore_case", "pattern", "term")

    term: Term
    pattern: str
    escape: str | None
    ignore_case: bool

    def __init__(self, term: Term, pattern: str, *, escape: str | None = None, ignore_case: bool = False) -> None:
        if escape is not None and len(escape) != 1:
            raise PredicateError(f"the ESCAPE of LIKE must be one character, got {escape!r}")
        self._set(term=term, pattern=pattern, escape=escape, ignore_case=ignore_case)

    def _terms(self) -> tuple[Term, ...]:
        return (self.term,)

    @property
    def text(self) -> str:
        """The condition as people write it."""
        ending = f" ESCAPE {LiteralTerm(self.escape)}" if self.escape is not None else ""
        return f"{self.term} {'ILIKE' if self.ignore_case else 'LIKE'} {LiteralTerm(self.pattern)}{ending}"

    def _expression(self, schema: pa.Schema, parts: list[pc.Expression]) -> pc.Expression:  # noqa: ARG002 -- a leaf
        import pyarrow.compute as pc  # noqa: PLC0415 -- slow to import

        from zonebloom.predicates import row_filter as recheck  # noqa: PLC0415 -- imports pyarrow.compute

        pattern = self._backslashed()
        found = pc.match_like(self.term.operand(schema).expression, pattern, ignore_case=self.ignore_case)
        recheck.result_type(found, schema, self.text)
        return found

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

    def _key(self) -> tuple[Any, ...]:
        return self.term, self.pattern, self.escape, self.ignore_case


class Truth(_OfTerm):
    """A boolean term as a condition: TRUE, FALSE and NULL are its values."""

    __slots__ = ()

    @property
    def text(self) -> str:
        """The condition as people write it."""
        return str(self.term)

    def _expression(self, schema: pa.Schema, parts: list[pc.Expression]) -> pc.Expression:  # noqa: ARG002 -- a leaf
        operand = self.term.operand(schema)
        if pa.types.is_null(operand.type):
            return operand.expression.cast(pa.bool_())
        if not pa.types.is_boolean(operand.type):
            raise PredicateError(f"a condition must be true or false, got {self.text} of type {operand.type}")
        return operand.expression
