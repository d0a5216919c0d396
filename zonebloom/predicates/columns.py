"""`col`: the way to write a predicate in Python.

Spec: specs/pruning.md#predicates.
"""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

from zonebloom.ground.errors import PredicateError
from zonebloom.predicates.leaves import Comparison, Equals, IsIn, IsNull, check_name
from zonebloom.predicates.literals import is_null_literal, single
from zonebloom.predicates.terms import LiteralTerm
from zonebloom.predicates.tree import And, Not, Predicate


def col(name: str) -> Column:
    """Column or struct leaf `name`, to compare with a value.

    Examples
    --------
    >>> (col("user_id") == "u-1") & ~col("country").isin(["FR", "DE"]) | col("note.text").is_null()
    Or(And(Equals('user_id', 'u-1'), Not(IsIn('country', ['FR', 'DE']))), IsNull('note.text'))
    """
    return Column(name)


class Column:
    """A column's name, whose comparisons make predicates."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name: str = check_name(name)

    def __repr__(self) -> str:
        return f"col({self.name!r})"

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # == makes a predicate, so a column cannot be a key

    def __bool__(self) -> NoReturn:
        raise PredicateError("a column must be compared with a value", got=f"{self!r} used as true or false")

    def __eq__(self, value: object) -> Predicate:  # type: ignore[override]
        """TRUE in the rows that equal `value` (or the other column's value)."""
        return self._equals("==", value)

    def __ne__(self, value: object) -> Predicate:  # type: ignore[override]
        """TRUE in the rows that are neither null nor equal to `value`."""
        return Not(self._equals("!=", value))

    def __lt__(self, value: Any) -> Predicate:
        return self._compared("<", value)

    def __le__(self, value: Any) -> Predicate:
        return self._compared("<=", value)

    def __gt__(self, value: Any) -> Predicate:
        return self._compared(">", value)

    def __ge__(self, value: Any) -> Predicate:
        return self._compared(">=", value)

    def between(self, low: Any, high: Any) -> Predicate:
        """TRUE in the rows from `low` to `high`, both included."""
        return And((self >= low, self <= high))

    def isin(self, values: Any) -> IsIn:
        """TRUE in the rows that equal one of `values`: any collection, of any length."""
        return IsIn(self.name, values)

    def is_null(self) -> IsNull:
        """TRUE in the null rows, FALSE in the others."""
        return IsNull(self.name)

    def is_not_null(self) -> Predicate:
        """FALSE in the null rows, TRUE in the others."""
        return Not(IsNull(self.name))

    def _equals(self, operator: str, value: Any) -> Predicate:
        if isinstance(value, Column):
            return self._compared("=", value)
        self._refuse_null(operator, value)
        return Equals(self.name, value)

    def _compared(self, operator: str, value: Any) -> Predicate:
        self._refuse_null(operator, value)
        other = value.name if isinstance(value, Column) else LiteralTerm(single(value))
        return Comparison(self.name, operator, other)

    def _refuse_null(self, operator: str, value: Any) -> None:
        if is_null_literal(value):
            verb = "is_not_null()" if operator == "!=" else "is_null()"
            raise PredicateError(f"{self!r} {operator} must have a value", got="null", do=f"use {self!r}.{verb}")
