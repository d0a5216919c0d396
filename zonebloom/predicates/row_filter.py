"""pyarrow Expressions with SQL's three-valued semantics, over the kernels that pyarrow has for a type.

A leaf of a predicate and a column's type make an expression here, from three parts:

1. the **operand**: the column as an expression of a type that kernels compare (a UUID as its bytes, a float16 as
   float32, a dictionary as its values);
2. the **literal in the column's type**, by the same `fit_values` that makes the values to probe, so the row filter
   never matches a row that the filters exclude;
3. **NULL**: pyarrow's ``is_in`` gives false on null rows where SQL gives NULL, which NOT would turn into true.

Numbers that do not fit their column's type are compared by value, exactly, never by a cast of the column: pyarrow 26
refuses to compare an int64 column with 1.5 if it holds anything above 2**24.

Spec: specs/pruning.md#to-expression.
"""

from __future__ import annotations

import operator as operators
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from zonebloom.arrow import from_values, is_text, python_value, type_name
from zonebloom.bloom.hashing import column_path, resolve_column
from zonebloom.errors import PredicateError, first_line
from zonebloom.predicates.coerce import fit_values
from zonebloom.predicates.numbers import (
    Number,
    as_double,
    equal_number,
    is_bounded,
    is_infinite,
    is_nan,
    is_number,
    number_of,
    numbers_of,
    unit_bounds,
    value_of_units,
    whole_units,
)
from zonebloom.predicates.tree import Equals, IsIn, Predicate, is_null_literal

if TYPE_CHECKING:
    import pyarrow.compute as pc
else:
    from zonebloom.arrow import compute as pc

_PAST_ALL_FLOATS = {
    True: {"<": "<", "<=": "<", ">": ">=", ">=": ">="},
    False: {"<": "<=", "<=": "<=", ">": ">", ">=": ">"},
}
"""By whether a finite number that no double reaches is positive: each order, written against the infinity of its
sign."""
_ORDERS = {
    "=": operators.eq,
    "!=": operators.ne,
    "<": operators.lt,
    "<=": operators.le,
    ">": operators.gt,
    ">=": operators.ge,
}


@cache
def _constant(outcome: bool | None) -> pc.Expression:  # noqa: FBT001 -- an outcome, not an option
    """`outcome` in every row, made without pandas."""
    return pc.scalar(pa.nulls(1, pa.bool_())[0] if outcome is None else from_values([outcome], pa.bool_())[0])


@dataclass(frozen=True, slots=True)
class Operand:
    """One side of a comparison: a column, or a value that is computed from columns."""

    text: str
    """The operand as SQL text, for messages."""
    expression: pc.Expression
    """Its values, of type `kernel_type(type)`."""
    type: pa.DataType
    """The type that literals are converted to; for a dictionary its value type."""
    schema: pa.Schema
    """Schema of the table."""

    def always(self, outcome: bool | None) -> pc.Expression:  # noqa: FBT001 -- an outcome, not an option
        """`outcome` in every row where the operand is not null, NULL in the others."""
        return pc.if_else(self.expression.is_valid(), _constant(outcome), _constant(None))


# --- operands ---------------------------------------------------------------------------------------------------------


def column_operand(schema: pa.Schema, name: str) -> Operand:
    """Column or struct leaf `name` of a table of `schema`."""
    column_type = resolve_column(schema, name).type
    expression = pc.field(*column_path(schema, name))
    while pa.types.is_dictionary(column_type):
        column_type = column_type.value_type
        expression = expression.cast(column_type)
    target = kernel_type(column_type)
    if target != column_type:
        expression = expression.cast(target)
    while isinstance(column_type, pa.BaseExtensionType) and not isinstance(column_type, pa.UuidType):
        column_type = column_type.storage_type
    return Operand(name, expression, column_type, schema)


def kernel_type(column_type: pa.DataType) -> pa.DataType:
    """The type with the same values in the same order for which pyarrow 26 has both comparisons and ``is_in``."""
    if isinstance(column_type, pa.BaseExtensionType):
        return kernel_type(column_type.storage_type)
    if column_type == pa.string_view():
        return pa.string()
    if column_type == pa.binary_view():
        return pa.binary()
    if column_type == pa.float16():
        return pa.float32()
    if pa.types.is_decimal32(column_type) or pa.types.is_decimal64(column_type):
        return pa.decimal128(column_type.precision, column_type.scale)
    if pa.types.is_null(column_type):
        return pa.int8()
    return column_type


def result_type(expression: pc.Expression, schema: pa.Schema, text: str) -> pa.DataType:
    """The type of `expression` over a table of `schema`, which proves that pyarrow has the kernels for it.

    Raises
    ------
    PredicateError
        pyarrow has no kernel; the message quotes `text`.
    """
    import pyarrow.dataset as ds  # noqa: PLC0415 -- slow, and only needed where kernels are in doubt

    try:
        return ds.dataset(schema.empty_table()).scanner(columns={"x": expression}).projected_schema.field("x").type
    except (pa.ArrowException, TypeError) as error:
        cause = first_line(error)
        raise PredicateError(f"a condition must have a pyarrow kernel for its types, got {text} ({cause})") from error


def to_kernel(values: pa.Array) -> pa.Array:
    """Values of a column's type in the type of the column's operand."""
    while isinstance(values, pa.ExtensionArray):
        values = values.storage
    target = kernel_type(values.type)
    return values if target == values.type else values.cast(target)


# --- leaves -----------------------------------------------------------------------------------------------------------


def leaf_expression(leaf: Predicate, schema: pa.Schema) -> pc.Expression:
    """The expression of an `Equals`, `IsIn` or `IsNull` over a table of `schema`."""
    if isinstance(leaf, IsIn):
        return is_in(column_operand(schema, leaf.column), leaf.values, null_safe=leaf.null_safe)
    if isinstance(leaf, Equals):
        operand = column_operand(schema, leaf.column)
        is_equal = compare(operand, "=", leaf.value)
        return operand.expression.is_valid() & is_equal if leaf.null_safe else is_equal
    (name,) = leaf.columns()
    resolve_column(schema, name)
    return pc.field(*column_path(schema, name)).is_null()


def compare(operand: Operand, operator: str, value: Any) -> pc.Expression:
    """``operand <operator> value`` for the operators = != < <= > >=; NULL in null rows, and for a null value.

    Raises
    ------
    PredicateError
        The value's type cannot be compared with the operand's.
    """
    if is_null_literal(value):
        return _constant(None)
    if pa.types.is_null(operand.type):
        return operand.always(None)
    apply = _ORDERS[operator]
    fit = fit_values([value], operand.type)
    if fit.reason is None and len(fit.values):
        return apply(operand.expression, pc.scalar(to_kernel(fit.values)[0]))
    number = number_of(value)
    if number is not None and is_number(operand.type):
        return _compare_number(operand, operator, number)
    if fit.reason is None and operator in ("=", "!="):
        return operand.always(operator == "!=")
    return _compare_as_pyarrow(operand, operator, value)


def compare_operands(left: Operand, operator: str, right: Operand, text: str) -> pc.Expression:
    """Two operands compared row by row, as pyarrow promotes their types.

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
        return _constant(False)
    if pa.types.is_null(operand.type):
        return _constant(False) if null_safe else operand.always(None)
    is_listed = operand.expression.isin(_value_set(operand, values))
    if null_safe:
        return is_listed
    if num_nulls:
        return pc.if_else(is_listed, _constant(True), _constant(None))
    return pc.if_else(operand.expression.is_valid(), is_listed, _constant(None))


def _value_set(operand: Operand, values: pa.Array | list[Any]) -> pa.Array:
    """The values that can equal a value of the operand, in its kernel type; both zeros if one is among them."""
    fit = fit_values(values, operand.type)
    if fit.reason is None:
        fitted = to_kernel(fit.values)
    elif is_number(operand.type) and (listed := numbers_of(values)) is not None:
        exact = [equal for number in listed if (equal := equal_number(number, operand.type)) is not None]
        fitted = to_kernel(pa.array(exact, operand.type))
    else:
        fitted = to_kernel(_comparable(operand, values))
    return with_both_zeros(fitted)


def with_both_zeros(values: pa.Array) -> pa.Array:
    """`values` for ``is_in``, which compares floats by bits: where one zero is among them, so is the other."""
    if pa.types.is_floating(values.type) and pc.any(pc.equal(values, 0)).as_py():
        return pa.concat_arrays([values, pa.array([0.0, -0.0], values.type)])
    return values


def _comparable(operand: Operand, values: pa.Array | list[Any]) -> pa.Array:
    """The values that a row can equal, converted one by one.

    No row equals a value that does not convert, but `=` must be defined for the value's type: otherwise this is an
    error. The conversion is not left to pyarrow 26, which casts the values of ``is_in`` to the column's type: 1 is in
    [True], and a day is in a list of its hours.
    """
    fitting: list[pa.Array] = []
    compared: set[Any] = set()
    for value in values:
        fit = fit_values([value], operand.type)
        if fit.reason is None:
            fitting.append(fit.values)
            continue
        number = number_of(value)
        if number is not None and is_number(operand.type):
            equal = equal_number(number, operand.type)
            fitting += [] if equal is None else [pa.array([equal], fit.values.type)]
            continue
        kind = type(value), getattr(value, "type", None), getattr(value, "tzinfo", None) is None
        if kind not in compared:
            _compare_as_pyarrow(operand, "=", value)
            compared.add(kind)
    return pa.concat_arrays(fitting) if fitting else fit_values([], operand.type).values


def _compare_as_pyarrow(operand: Operand, operator: str, value: Any) -> pc.Expression:
    """The comparison that pyarrow defines for two types, such as a date and a timestamp."""
    try:
        scalar = value if isinstance(value, pa.Scalar) else pa.scalar(value)
        _check_types(operand, scalar.type)
        expression = _ORDERS[operator](operand.expression, pc.scalar(scalar))
        result_type(expression, operand.schema, operand.text)
    except (pa.ArrowException, PredicateError, TypeError, ValueError, OverflowError) as error:
        raise _mismatch(operand, value) from error
    return expression


def _check_types(operand: Operand, literal_type: pa.DataType) -> None:
    """Refuse comparisons that pyarrow makes but SQL does not: a UUID's bytes with a text, an instant with a local
    time.
    """
    has_zone = [pa.types.is_timestamp(one) and one.tz is not None for one in (operand.type, literal_type)]
    if isinstance(operand.type, pa.UuidType) or has_zone[0] != has_zone[1]:
        raise _mismatch(operand, literal_type)


def _mismatch(operand: Operand, value: Any) -> PredicateError:
    shown = python_value(value) if isinstance(value, pa.Scalar) else value
    advice = ""
    if pa.types.is_timestamp(operand.type) and operand.type.tz is not None:
        advice = "; write an instant with its offset, as 2020-01-31T00:00:00Z"
    elif isinstance(shown, bool):
        advice = f"; compare the column with a value, as in {operand.text} = …"
    elif not isinstance(shown, str) and (isinstance(operand.type, pa.UuidType) or is_text(operand.type)):
        advice = "; put text in single quotes"
    text = f"the text {shown!r:.80}" if isinstance(shown, str) else f"{shown!s:.80}"
    return PredicateError(
        f"column {operand.text} of type {type_name(operand.type)} must be compared with a value of that type, "
        f"got {text}{advice}"
    )


# --- numbers, by value ------------------------------------------------------------------------------------------------


def _compare_number(operand: Operand, operator: str, number: Number) -> pc.Expression:
    """An exact comparison with a number that the operand's type cannot hold."""
    if is_nan(number):
        return operand.always(operator == "!=")
    if pa.types.is_floating(operand.type):
        double = as_double(number, operand.type)
        if not is_bounded(double, number):  # beyond all floats, but short of infinity
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
    """An order against a number between two neighbouring values of a type: the same as against the lower neighbour.

    Outside the type's range the outcome is the same in every row.
    """
    is_below = operator in ("<", "<=")
    low, high = unit_bounds(operand.type)
    if is_infinite(number):
        return operand.always(is_below == (number > 0))
    units, _ = whole_units(number, operand.type)
    if not low <= units < high:
        return operand.always(is_below == (units >= high))
    neighbour = to_kernel(pa.array([value_of_units(int(units), operand.type)], operand.type))[0]
    return _ORDERS["<=" if is_below else ">"](operand.expression, pc.scalar(neighbour))
