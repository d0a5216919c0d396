"""Exact comparison, by value, of any number with the values of a column's type.

Design: docs/design/conditions.md#to-expression.
"""

from __future__ import annotations

import decimal
import math
import numbers
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from zonebloom.ground.arrow import from_values, is_number

Number: TypeAlias = int | float | decimal.Decimal
ValueTest: TypeAlias = tuple[str, pa.Array] | bool
"""A test of values: an operator and an array of the one value to compare with, or the outcome for every value."""

ALL_DIGITS = decimal.Context(prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, traps=[])
"""In place of the caller's context, which may round, trap floats, or have few exponents."""
_PAST_ALL_FLOATS = {
    True: {"<": "<", "<=": "<", ">": ">=", ">=": ">="},
    False: {"<": "<=", "<=": "<=", ">": ">", ">=": ">"},
}
"""For finite numbers beyond all doubles, by whether they are positive: each order as an order against infinity."""


def number_test(operator: str, number: Number, column_type: pa.DataType) -> ValueTest:
    """The exact test ``value <operator> number`` for a type that may have a value equal to `number`."""
    equal = equal_number(number, column_type)
    if equal is not None:
        return operator, from_values([equal], column_type)
    if is_nan(number) or operator in ("=", "!="):
        return operator == "!="
    if pa.types.is_floating(column_type):
        double = as_double(number, column_type)
        if not is_bounded(double, number):  # finite, but beyond all floats
            operator = _PAST_ALL_FLOATS[number > 0][operator]
        return operator, from_values([double], pa.float64())
    units, _ = whole_units(number, column_type)

    def value_of(whole: int) -> pa.Array:
        return pa.array([value_of_units(whole, column_type)], column_type)

    return neighbour_test(operator, units, unit_bounds(column_type), value_of)


def neighbour_test(
    operator: str, units: int | decimal.Decimal, bounds: tuple[int, int], value_of: Callable[[int], pa.Array]
) -> ValueTest:
    """The test against a literal between the value of `units` and the next one: no value equals it.

    An order compares with the lower neighbour. Outside `bounds`, those of the type, its outcome is the same for every
    value.
    """
    if operator in ("=", "!="):
        return operator == "!="
    is_below = operator in ("<", "<=")
    low, high = bounds
    if not low <= units < high:
        return is_below == (units >= high)
    return "<=" if is_below else ">", value_of(int(units))


def number_of(value: Any) -> Number | None:
    """The literal as a number; None if it is not a number, or is a boolean."""
    if isinstance(value, pa.Scalar):
        value = value.as_py() if is_number(value.type) else None
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, (numbers.Real, decimal.Decimal)):
        return None
    return value if isinstance(value, (int, float, decimal.Decimal)) else float(value)


def equal_number(number: Number, column_type: pa.DataType) -> Any | None:
    """The value of the type that equals `number`; None if no value does (NaN equals none)."""
    if is_nan(number):
        return None
    if pa.types.is_floating(column_type):
        double = as_double(number, column_type)
        return double if _nearest(double, column_type) == double and is_bounded(double, number) else None
    if is_infinite(number):
        return None
    units, is_whole = whole_units(number, column_type)
    low, high = unit_bounds(column_type)
    return value_of_units(int(units), column_type) if is_whole and low <= units <= high else None


def as_double(number: Number, column_type: pa.DataType) -> float:
    """The double to compare with a floating column instead of `number`.

    For a Decimal, it is the nearest value of the column's type.
    """
    nearest = _nearest(number, column_type if isinstance(number, decimal.Decimal) else pa.float64())
    return nearest if is_bounded(nearest, number) else _nearest(number, pa.float64())


def is_nan(number: Number) -> bool:
    """As `math.isnan`, which fails for large ints and signaling NaN."""
    return number.is_nan() if isinstance(number, decimal.Decimal) else number != number  # noqa: PLR0124 -- NaN alone


def is_infinite(number: Number) -> bool:
    """As `math.isinf`, also for ints beyond the range of float."""
    return number in (math.inf, -math.inf)


def is_bounded(double: float, number: Number) -> bool:
    """Whether `double` is infinite only if `number` is."""
    return math.isinf(double) <= is_infinite(number)


def _nearest(number: Number, column_type: pa.DataType) -> float:
    """The value of a floating type nearest to `number`, infinite beyond its range."""
    try:
        double = float(number)
    except OverflowError:
        double = math.inf if number > 0 else -math.inf
    with np.errstate(over="ignore"):
        return float(column_type.to_pandas_dtype()(double))


def whole_units(number: Number, column_type: pa.DataType) -> tuple[decimal.Decimal, bool]:
    """A finite `number` in units of the type's last digit, rounded down; and whether that is exact.

    Cost: proportional to the digits of `number`, not to its exponent. The result is a Decimal because an `int` would
    have as many digits as the exponent says. Compare it with bounds before you make an `int` of it.
    """
    scale = column_type.scale if pa.types.is_decimal(column_type) else 0
    units = ALL_DIGITS.create_decimal(number).scaleb(scale, ALL_DIGITS)
    whole = units.to_integral_value(decimal.ROUND_FLOOR, ALL_DIGITS)
    return whole, whole == units


def unit_bounds(column_type: pa.DataType) -> tuple[int, int]:
    """The least and greatest value of an integer or decimal type, in units of its last digit."""
    if pa.types.is_decimal(column_type):
        return 1 - 10**column_type.precision, 10**column_type.precision - 1
    info = np.iinfo(column_type.to_pandas_dtype())
    return int(info.min), int(info.max)


def value_of_units(units: int, column_type: pa.DataType) -> Number:
    """The value of an integer or decimal type that is `units` times the unit of its last digit."""
    if not pa.types.is_decimal(column_type):
        return units
    sign, digits = int(units < 0), tuple(map(int, str(abs(units))))
    return decimal.Decimal((sign, digits, -column_type.scale))
