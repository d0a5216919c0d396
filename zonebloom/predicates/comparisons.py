"""Comparisons with SQL's three-valued semantics, made from pyarrow's kernels.

A comparison of a value with literals becomes an expression here, from three parts:

1. the **operand**, of a type that kernels compare (`operands`);
2. the **literal in the column's type**: the same `fit_values` makes the values that filters probe, so the row filter
   never matches a row that the filters exclude;
3. **NULL**: on null rows pyarrow's ``is_in`` gives false and SQL gives NULL. NOT would turn the false into true.

A number that does not fit its column's type is compared exactly, by value. The column is never cast: pyarrow 26 refuses
to compare an int64 column with 1.5 if the column holds a value above 2**24.

Design: docs/design/conditions.md#to-expression.
"""

from __future__ import annotations

import decimal
import operator as operators
from collections.abc import Callable
from string import hexdigits
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from zonebloom.ground.arrow import is_bytes, is_number, is_text, python_value, to_kernel, type_name
from zonebloom.ground.errors import PredicateError
from zonebloom.predicates.coerce import fit_each, fit_values
from zonebloom.predicates.coerce.temporal import moment_of, ticks_below
from zonebloom.predicates.exact_numbers import (
    Number,
    as_double,
    equal_number,
    is_bounded,
    is_infinite,
    is_nan,
    number_of,
    unit_bounds,
    value_of_units,
    whole_units,
)
from zonebloom.predicates.literals import is_null_literal, taken
from zonebloom.predicates.operands import Operand, constant, result_type

if TYPE_CHECKING:
    import pyarrow.compute as pc
else:
    from zonebloom.ground.arrow import compute as pc

_PAST_ALL_FLOATS = {
    True: {"<": "<", "<=": "<", ">": ">=", ">=": ">="},
    False: {"<": "<=", "<=": "<=", ">": ">", ">=": ">"},
}
"""For finite numbers beyond all doubles, by whether they are positive: each order as an order against infinity."""
_ORDERS = {
    "=": operators.eq,
    "!=": operators.ne,
    "<": operators.lt,
    "<=": operators.le,
    ">": operators.gt,
    ">=": operators.ge,
}


# --- comparisons ------------------------------------------------------------------------------------------------------


def compare(operand: Operand, operator: str, value: Any) -> pc.Expression:
    """``operand <operator> value`` for the operators = != < <= > >=; NULL in null rows, and for a null value.

    Raises
    ------
    PredicateError
        The value's type cannot be compared with the operand's.
    """
    fit = fit_values([value], operand.type)
    if fit.reason is None and len(fit.values):
        return _ORDERS[operator](operand.expression, pc.scalar(to_kernel(fit.values)[0]))
    if is_null_literal(value):
        return constant(None)
    if pa.types.is_null(operand.type):
        return operand.always(None)
    number = number_of(value)
    if number is not None and is_number(operand.type):
        return _compare_number(operand, operator, number)
    if fit.reason is None and operator in ("=", "!="):
        return operand.always(operator == "!=")
    return _compare_as_pyarrow(operand, operator, value)


def compare_operands(left: Operand, operator: str, right: Operand, text: str) -> pc.Expression:
    """The comparison of two operands row by row; pyarrow promotes their types.

    Raises
    ------
    PredicateError
        pyarrow does not compare the two types.
    """
    expression = _ORDERS[operator](left.expression, right.expression)
    result_type(expression, left.schema, text)
    return expression


def is_in(operand: Operand, values: pa.Array | list[Any], *, null_safe: bool = False) -> pc.Expression:
    """``operand IN (values)`` as `IsIn` promises."""
    num_nulls = values.null_count if isinstance(values, pa.Array) else sum(map(is_null_literal, values))
    if not len(values) or (null_safe and num_nulls == len(values)):
        return constant(False)
    if pa.types.is_null(operand.type):
        return constant(False) if null_safe else operand.always(None)
    is_listed = operand.expression.isin(_value_set(operand, values))
    if null_safe:
        return is_listed
    if num_nulls:
        return pc.if_else(is_listed, constant(True), constant(None))
    return pc.if_else(operand.expression.is_valid(), is_listed, constant(None))


def _value_set(operand: Operand, values: pa.Array | list[Any]) -> pa.Array:
    """The values that can equal a value of the operand, in its kernel type. One zero adds the other."""
    fit = fit_values(values, operand.type)
    return with_both_zeros(to_kernel(fit.values if fit.reason is None else _comparable(operand, values)))


def with_both_zeros(values: pa.Array) -> pa.Array:
    """`values` with both zeros if one zero is among them: ``is_in`` compares floats by bits."""
    if pa.types.is_floating(values.type) and pc.any(pc.equal(values, 0)).as_py():
        return pa.concat_arrays([values, pa.array([0.0, -0.0], values.type)])
    return values


def _comparable(operand: Operand, values: pa.Array | list[Any]) -> pa.Array:
    """The values that a row can equal, each converted by itself.

    No row equals a value that does not convert. But if `=` is not defined for the value's type, this is an error.
    pyarrow 26 does not convert here: it casts the values of ``is_in`` to the column's type, so that 1 is in [True], and
    a day is in a list of its hours.
    """
    fit = fit_each(values, operand.type)
    equal: list[Any] = []
    compared: set[Any] = set()
    for value in taken(values, fit.misfits):
        number = number_of(value)
        if number is not None and is_number(operand.type):
            equal.append(equal_number(number, operand.type))
            continue
        kind = type(value), str(getattr(value, "type", None)), getattr(value, "tzinfo", None) is None
        if kind not in compared:
            _compare_as_pyarrow(operand, "=", value)
            compared.add(kind)
    return pa.concat_arrays([fit.values, pa.array(equal, fit.values.type).drop_null()]) if equal else fit.values


def _compare_as_pyarrow(operand: Operand, operator: str, value: Any) -> pc.Expression:
    """The comparison that pyarrow defines for two types, such as a date and a timestamp."""
    try:
        scalar = value if isinstance(value, pa.Scalar) else pa.scalar(value)
        _check_types(operand, scalar)
        if _are_moments(operand.type, scalar.type):
            return _compare_moment(operand, operator, scalar)
        expression = _ORDERS[operator](operand.expression, pc.scalar(scalar))
        result_type(expression, operand.schema, operand.text)
    except (pa.ArrowException, PredicateError, TypeError, ValueError, OverflowError) as error:
        raise _mismatch(operand, value) from error
    return expression


def _check_types(operand: Operand, literal: pa.Scalar) -> None:
    """Refuse comparisons that pyarrow allows and SQL does not.

    These are a UUID or bytes with a text that did not convert, and an instant with a local time.
    """
    types = operand.type, literal.type
    has_zone = [pa.types.is_timestamp(side) and side.tz is not None for side in types]
    spells_bytes = is_bytes(operand.type) and is_text(literal.type)
    if isinstance(operand.type, pa.UuidType) or spells_bytes or has_zone[0] != has_zone[1]:
        raise _mismatch(operand, literal)


def _are_moments(*types: pa.DataType) -> bool:
    """Whether values of two types are ticks of one clock: both moments or days, both times of day, both spans."""
    kinds = (lambda side: pa.types.is_timestamp(side) or pa.types.is_date(side), pa.types.is_time, pa.types.is_duration)
    return any(all(map(is_kind, types)) for is_kind in kinds)


def _compare_moment(operand: Operand, operator: str, moment: pa.Scalar) -> pc.Expression:
    """An exact comparison with a moment that the operand's type cannot hold: pyarrow 26 would cast the column."""
    if operator in ("=", "!="):
        return operand.always(operator == "!=")
    ticks, low, high = ticks_below(moment, operand.type)
    return _compare_above(operand, operator, ticks, (low, high), moment_of)


def _mismatch(operand: Operand, value: Any) -> PredicateError:
    shown = python_value(value) if isinstance(value, pa.Scalar) else value
    if isinstance(shown, str) and is_bytes(operand.type):
        width = f"{operand.type.byte_width} " if pa.types.is_fixed_size_binary(operand.type) else ""
        start = shown[:4] if set(shown) <= set(hexdigits) else "4a6f"
        as_text = "" if width else f"; those of the text CAST('{start}…' AS BINARY)"
        return PredicateError(
            f"column {operand.text} holds {width}bytes",
            got=f"a text of {len(shown)} characters",
            do=f"bytes are written X'{start}…'{as_text}",
        )
    if type(shown) is int:  # Python refuses to show the largest
        shown = decimal.Decimal(shown)
    advice = ""
    if pa.types.is_timestamp(operand.type) and operand.type.tz is not None:
        advice = "; write an instant with its offset, as 2020-01-31T00:00:00Z"
    elif isinstance(shown, bool):
        advice = f"; compare the column with a value, as in {operand.text} = …"
    elif not isinstance(shown, str) and (isinstance(operand.type, pa.UuidType) or is_text(operand.type)):
        advice = f"; write it as text, '{shown!s:.80}'"
    text = f"the text {shown!r:.80}" if isinstance(shown, str) else f"{shown!s:.80}"
    return PredicateError(f"column {operand.text} holds {type_name(operand.type)}", got=f"{text}{advice}")


# --- numbers, by value ------------------------------------------------------------------------------------------------


def _compare_number(operand: Operand, operator: str, number: Number) -> pc.Expression:
    """An exact comparison with a number that the operand's type cannot hold."""
    if is_nan(number):
        return operand.always(operator == "!=")
    if pa.types.is_floating(operand.type):
        double = as_double(number, operand.type)
        if not is_bounded(double, number):  # finite, but beyond all floats
            if operator in ("=", "!="):
                return operand.always(operator == "!=")
            operator = _PAST_ALL_FLOATS[number > 0][operator]
        return _ORDERS[operator](operand.expression, pc.scalar(pa.scalar(double, pa.float64())))
    equal = equal_number(number, operand.type)
    if equal is not None:
        scalar = to_kernel(pa.array([equal], operand.type))[0]
        return _ORDERS[operator](operand.expression, pc.scalar(scalar))
    if operator in ("=", "!="):
        return operand.always(operator == "!=")
    return _compare_between(operand, operator, number)


def _compare_between(operand: Operand, operator: str, number: Number) -> pc.Expression:
    """An order against a number between two neighbouring values of a type."""
    if is_infinite(number):
        return operand.always((operator in ("<", "<=")) == (number > 0))
    units, _ = whole_units(number, operand.type)
    return _compare_above(operand, operator, units, unit_bounds(operand.type), _number_array)


def _number_array(units: int, column_type: pa.DataType) -> pa.Array:
    return pa.array([value_of_units(units, column_type)], column_type)


def _compare_above(
    operand: Operand,
    operator: str,
    units: int | decimal.Decimal,
    bounds: tuple[int, int],
    value_of: Callable[[int, pa.DataType], pa.Array],
) -> pc.Expression:
    """An order against a literal between the value of `units` and the next one: it is compared as the lower neighbour.

    Outside the type's range the outcome is the same in every row.
    """
    is_below = operator in ("<", "<=")
    low, high = bounds
    if not low <= units < high:
        return operand.always(is_below == (units >= high))
    neighbour = to_kernel(value_of(int(units), operand.type))[0]
    return _ORDERS["<=" if is_below else ">"](operand.expression, pc.scalar(neighbour))
