"""Terms: a value for each row.

A **term** is a column (given by its name), a literal, or a cast or a call of terms. Terms are plain data without a
schema: two terms with the same parts are equal.

Spec: specs/pruning.md#opaque.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class LiteralTerm:
    """The same value in every row."""

    value: Any


@dataclass(frozen=True, slots=True)
class CastTerm:
    """A term cast to a type. Reading a value that does not convert exactly raises an error."""

    child: Term
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class CallTerm:
    """A function of terms: abs, coalesce, length, lower, negate, trim or upper."""

    function: str
    arguments: tuple[Term, ...]


Term: TypeAlias = str | LiteralTerm | CastTerm | CallTerm
"""The name of a column, or a value computed from columns and literals."""


def columns_of(term: Term) -> set[str]:
    """Names of the columns that a term reads."""
    if isinstance(term, str):
        return {term}
    if isinstance(term, CastTerm):
        return columns_of(term.child)
    return set().union(*map(columns_of, term.arguments)) if isinstance(term, CallTerm) else set()
