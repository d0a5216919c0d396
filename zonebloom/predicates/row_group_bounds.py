"""Ranges in which a column's value must lie if a predicate is true. Statistics of a row group may exclude them.

Only columns of signed integers, dates and timestamps are used: all writers agree on their order. Statistics do not
count NaN, so floats are left out. Texts may be cut short, and old writers ordered unsigned integers as signed ones.

Design: docs/design/scan.md#statistics
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Container
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from zonebloom.ground.arrow import to_numpy
from zonebloom.predicates.coerce import fit_values
from zonebloom.predicates.leaves import Comparison, Equals, IsIn
from zonebloom.predicates.terms import LiteralTerm, Term
from zonebloom.predicates.tree import Predicate, conjuncts

_STORED: dict[int, Any] = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}


@dataclass(frozen=True, slots=True)
class Bound:
    """In every matching row, `column` has a value in one of the closed ranges `[lows[i], highs[i]]`.

    - The ranges ascend. Each end is infinite, or an integer: the stored form of a value of `type`.
    """

    column: str
    type: pa.DataType
    lows: list[float]
    highs: list[float]

    def may_hold(self, least: int, greatest: int) -> bool:
        """Whether a value from `least` to `greatest` can be in a range."""
        first = bisect_left(self.highs, least)
        return first < len(self.highs) and self.lows[first] <= greatest


def has_bounds(column_type: pa.DataType) -> bool:
    """Whether values of this type are stored as signed integers of the same order."""
    tests = (pa.types.is_signed_integer, pa.types.is_date32, pa.types.is_timestamp)
    return any(test(column_type) for test in tests)


def required(predicate: Predicate, schema: pa.Schema, indexed: Container[str]) -> list[Bound]:
    """The bounds that hold in every row in which `predicate` is true: one for each part of an AND, or one leaf's.

    Equalities of `indexed` columns are left out because filters evaluate them.
    """
    return [bound for part in conjuncts(predicate) if (bound := _bound(part, schema, indexed)) is not None]


def _bound(leaf: Predicate, schema: pa.Schema, indexed: Container[str]) -> Bound | None:
    name: Term
    if isinstance(leaf, (Equals, IsIn)):
        operator, name, literals = "=", leaf.column, [leaf.value] if isinstance(leaf, Equals) else leaf.values
        if name in indexed:
            return None
    elif isinstance(leaf, Comparison) and isinstance(leaf.right, LiteralTerm):
        operator, name, literals = leaf.operator, leaf.left, [leaf.right.value]
    else:
        return None
    if not isinstance(name, str) or operator == "!=" or schema.get_field_index(name) < 0:
        return None
    column_type = schema.field(name).type
    if not has_bounds(column_type):
        return None
    fit = fit_values(literals, column_type)
    if fit.reason is not None or not len(fit.values):
        return None
    values = sorted(to_numpy(fit.values, _STORED[column_type.bit_width]).tolist())
    lows = {"<": [-math.inf], "<=": [-math.inf], ">": [values[0] + 1]}.get(operator, values)
    highs = {">": [math.inf], ">=": [math.inf], "<": [values[0] - 1]}.get(operator, values)
    return Bound(name, column_type, lows, highs)
