"""Comparisons over a table of a schema: each leaf of a predicate as a pyarrow Expression, or as plain kernels.

A leaf becomes an expression with SQL's three-valued semantics, from three parts:

1. the **operand**: a term as an expression of a type that kernels compare. A UUID becomes its bytes, a float16 float32,
   a dictionary its values. Casts and functions become pyarrow's kernels;
2. the **literal in the operand's type**: the same `fit_values` makes the values that filters probe, so the row filter
   never matches a row that the filters exclude;
3. **NULL**: on null rows pyarrow's ``is_in`` gives false and SQL gives NULL. NOT would turn the false into true.

A number or moment that does not fit the operand's type is compared exactly, by value. The column is never cast: pyarrow
26 refuses to compare an int64 column with 1.5 if the column holds a value above 2**24.

Design: docs/design/conditions.md#to-expression.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Callable
from functools import reduce
from string import hexdigits
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from zonebloom.bloom.hashing import is_ambiguous
from zonebloom.ground.arrow import is_bytes, is_number, is_text, python_value, type_name
from zonebloom.ground.errors import PredicateError
from zonebloom.predicates.coerce import fit_each, fit_values
from zonebloom.predicates.coerce.temporal import moment_test
from zonebloom.predicates.exact_numbers import ValueTest, equal_number, number_of, number_test
from zonebloom.predicates.leaves import Comparison, Condition, Equals, IsIn, IsNull, Like, Piece
from zonebloom.predicates.literals import is_null_literal, taken
from zonebloom.predicates.operands import (
    ORDERS,
    Operand,
    checked,
    constant,
    kernel_casts,
    operand_of,
    result_type,
    to_kernel,
    without_decimals_beside_floats,
)
from zonebloom.predicates.sql_writer import as_sql
from zonebloom.predicates.terms import LiteralTerm
from zonebloom.predicates.tree import Predicate

if TYPE_CHECKING:
    import pyarrow.compute as pc
else:
    from zonebloom.ground.arrow import compute as pc

Matcher: TypeAlias = Callable[[pa.Table], pa.ChunkedArray]
"""A table of the schema → for each row: true if it matches, false or null if not."""


# --- leaves -----------------------------------------------------------------------------------------------------------


def leaf_expression(leaf: Predicate, schema: pa.Schema) -> pc.Expression:
    """The expression of a leaf over a table of `schema`.

    Raises
    ------
    PredicateError, ColumnNotFoundError
        As `row_filter.to_expression`.
    """
    if isinstance(leaf, IsIn):
        return _is_in(operand_of(leaf.column, schema), leaf.values, null_safe=leaf.null_safe)
    if isinstance(leaf, Equals):
        operand = operand_of(leaf.column, schema)
        is_equal = _compare(operand, "=", leaf.value)
        return operand.expression.is_valid() & is_equal if leaf.null_safe else is_equal
    if isinstance(leaf, IsNull):  # of a dictionary's values: before 26 pyarrow sees nulls among its indices alone
        return operand_of(leaf.column, schema).expression.is_null()
    if isinstance(leaf, Comparison):
        left = operand_of(leaf.left, schema)
        if isinstance(leaf.right, LiteralTerm):
            return _compare(left, leaf.operator, leaf.right.value)
        left, right = without_decimals_beside_floats([left, operand_of(leaf.right, schema)])
        return checked(ORDERS[leaf.operator](left.expression, right.expression), schema, as_sql(leaf))
    if isinstance(leaf, Like):
        return _like(leaf, schema)
    if isinstance(leaf, Condition):
        return _decided(leaf, schema)
    if not isinstance(leaf, Piece):
        raise PredicateError("a predicate must be one of zonebloom.predicates", got=type(leaf).__name__)
    if leaf.expression is None:
        raise PredicateError(f"only Spark evaluates {as_sql(leaf)}")
    return leaf.expression


def _decided(pair: Condition, schema: pa.Schema) -> pc.Expression:
    type_of_result = result_type(pair.filters, schema, pair.text)
    if not pa.types.is_boolean(type_of_result):
        raise PredicateError("a condition must be true or false", got=f"{pair.text:.200} of type {type_of_result}")
    return pair.filters


def _like(like: Like, schema: pa.Schema) -> pc.Expression:
    text, pattern = operand_of(like.column, schema).expression, _backslashed(like)
    is_kept_double = r"\\" in pattern  # by pyarrow 26, in a%, %a and %a%
    kernel, pattern = (pc.match_substring_regex, _regex(pattern)) if is_kept_double else (pc.match_like, pattern)
    return checked(kernel(text, pattern, ignore_case=like.ignore_case), schema, as_sql(like))


def _backslashed(like: Like) -> str:
    """The pattern with pyarrow's fixed escape, a backslash."""
    letters: list[str] = []
    rest = iter(like.pattern)
    for letter in rest:
        if letter == like.escape:
            escaped = next(rest, None)
            if escaped is None:
                raise PredicateError("a LIKE pattern must not end with its escape", got=as_sql(like))
            letters.append(f"\\{escaped}" if escaped in "%_\\" else escaped)
        else:
            letters.append("\\\\" if letter == "\\" else letter)
    return "".join(letters)


def _regex(pattern: str) -> str:
    """The regular expression of a pattern of `_backslashed`."""
    letters = re.findall(r"\\?.", pattern, re.DOTALL)
    return f"(?s)^{''.join({'%': '.*', '_': '.'}.get(letter) or re.escape(letter[-1]) for letter in letters)}$"


def leaf_matcher(leaf: Equals | IsIn, schema: pa.Schema) -> Matcher | None:
    """The plain kernels of an equality or IN list; None if it is of no column, or if a literal does not convert."""
    name = leaf.column
    if not isinstance(name, str) or schema.get_field_index(name) < 0 or is_ambiguous(schema, name):
        return None
    column_type = schema.field(name).type
    fit = fit_values([leaf.value] if isinstance(leaf, Equals) else leaf.values, column_type)
    if fit.reason is not None or pa.types.is_null(column_type):
        return None
    values, casts = to_kernel(fit.values), kernel_casts(column_type)
    if len(values) == 1:
        value = values[0]
        return lambda table: pc.equal(reduce(pc.cast, casts, table[name]), value)
    listed = _with_both_zeros(values)
    return lambda table: pc.is_in(reduce(pc.cast, casts, table[name]), value_set=listed)


# --- literals ---------------------------------------------------------------------------------------------------------


def _compare(operand: Operand, operator: str, value: Any) -> pc.Expression:
    """``operand <operator> value`` for the operators = != < <= > >=; NULL in null rows, and for a null value.

    Raises
    ------
    PredicateError
        The value's type cannot be compared with the operand's.
    """
    fit = fit_values([value], operand.type)
    if fit.reason is None and len(fit.values):
        return operand.tested((operator, fit.values))
    if is_null_literal(value):
        return constant(None)
    if pa.types.is_null(operand.type):
        return operand.always(None)
    if fit.reason is None and operator in ("=", "!="):
        return operand.always(operator == "!=")
    test = _test(operator, value, operand.type)
    if test is None:
        raise _mismatch(operand, value)
    return operand.tested(test)


def _test(operator: str, value: Any, column_type: pa.DataType) -> ValueTest | None:
    """The exact test of a type's values against a literal that does not fit it; None if they cannot be compared."""
    number = number_of(value)
    if number is not None and is_number(column_type):
        return number_test(operator, number, column_type)
    try:
        scalar = value if isinstance(value, pa.Scalar) else pa.scalar(value)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    if pa.types.is_fixed_size_binary(column_type) and is_bytes(scalar.type):
        return operator, pa.array([scalar.cast(pa.binary())])
    return moment_test(operator, scalar, column_type)


def _is_in(operand: Operand, values: pa.Array | list[Any], *, null_safe: bool = False) -> pc.Expression:
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
    return _with_both_zeros(to_kernel(fit.values if fit.reason is None else _comparable(operand, values)))


def _with_both_zeros(values: pa.Array) -> pa.Array:
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
            if _test("=", value, operand.type) is None:
                raise _mismatch(operand, value)
            compared.add(kind)
    return pa.concat_arrays([fit.values, pa.array(equal, fit.values.type).drop_null()]) if equal else fit.values


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
