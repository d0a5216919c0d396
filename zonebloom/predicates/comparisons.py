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
import operator as operators
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, reduce
from string import hexdigits
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from zonebloom.bloom.hashing import column_path, resolve_column
from zonebloom.ground.arrow import (
    from_values,
    is_bytes,
    is_number,
    is_text,
    python_value,
    rowless,
    type_name,
    unwrapped,
)
from zonebloom.ground.errors import PredicateError, first_line
from zonebloom.predicates.coerce import fit_each, fit_values
from zonebloom.predicates.coerce.temporal import moment_test
from zonebloom.predicates.exact_numbers import ValueTest, equal_number, number_of, number_test
from zonebloom.predicates.leaves import Comparison, Condition, Equals, IsIn, IsNull, Like, Piece
from zonebloom.predicates.literals import is_null_literal, taken
from zonebloom.predicates.sql_writer import as_sql, term_sql
from zonebloom.predicates.terms import CastTerm, LiteralTerm, Term
from zonebloom.predicates.tree import Predicate

if TYPE_CHECKING:
    import pyarrow.compute as pc
else:
    from zonebloom.ground.arrow import compute as pc

_CRASHING_NUMERAL = r"[eE][+-]?0*[1-9][0-9]{2}|\.[0-9]{100}"
"""Numerals for which pyarrow 26 reads beyond its table of powers of ten and crashes. They raise an error instead."""
_MOST_DIGITS = 76
_KERNELS = {
    "abs": "abs_checked",
    "coalesce": "coalesce",
    "length": "utf8_length",
    "lower": "utf8_lower",
    "negate": "negate_checked",
    "trim": "utf8_trim",
    "upper": "utf8_upper",
}
"""The functions of a `CallTerm`."""
_ORDERS = {
    "=": operators.eq,
    "!=": operators.ne,
    "<": operators.lt,
    "<=": operators.le,
    ">": operators.gt,
    ">=": operators.ge,
}
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
        return _is_in(_operand_of(leaf.column, schema), leaf.values, null_safe=leaf.null_safe)
    if isinstance(leaf, Equals):
        operand = _operand_of(leaf.column, schema)
        is_equal = _compare(operand, "=", leaf.value)
        return operand.expression.is_valid() & is_equal if leaf.null_safe else is_equal
    if isinstance(leaf, IsNull):  # of a dictionary's values: before 26 pyarrow sees nulls among its indices alone
        return _operand_of(leaf.column, schema).expression.is_null()
    if isinstance(leaf, Comparison):
        left = _operand_of(leaf.left, schema)
        if isinstance(leaf.right, LiteralTerm):
            return _compare(left, leaf.operator, leaf.right.value)
        return _checked(
            _ORDERS[leaf.operator](left.expression, _operand_of(leaf.right, schema).expression), schema, as_sql(leaf)
        )
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
    type_of_result = _result_type(pair.filters, schema, pair.text)
    if not pa.types.is_boolean(type_of_result):
        raise PredicateError("a condition must be true or false", got=f"{pair.text:.200} of type {type_of_result}")
    return pair.filters


def _like(like: Like, schema: pa.Schema) -> pc.Expression:
    text, pattern = _operand_of(like.column, schema).expression, _backslashed(like)
    is_kept_double = r"\\" in pattern  # by pyarrow 26, in a%, %a and %a%
    kernel, pattern = (pc.match_substring_regex, _regex(pattern)) if is_kept_double else (pc.match_like, pattern)
    return _checked(kernel(text, pattern, ignore_case=like.ignore_case), schema, as_sql(like))


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
    """The plain kernels of an equality or IN list; None if it is not of a column, or if a literal does not convert."""
    name = leaf.column
    if not isinstance(name, str) or schema.get_field_index(name) < 0:
        return None
    column_type = schema.field(name).type
    fit = fit_values([leaf.value] if isinstance(leaf, Equals) else leaf.values, column_type)
    if fit.reason is not None or pa.types.is_null(column_type):
        return None
    values, casts = to_kernel(fit.values), _kernel_casts(column_type)
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
        return _constant(None)
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


# --- operands ---------------------------------------------------------------------------------------------------------


@cache
def _constant(outcome: bool | None) -> pc.Expression:  # noqa: FBT001 -- an outcome, not an option
    """`outcome` in every row, made without pandas."""
    return pc.scalar(pa.nulls(1, pa.bool_())[0] if outcome is None else from_values([outcome], pa.bool_())[0])


@dataclass(frozen=True, slots=True)
class Operand:
    """One side of a comparison: a column, or a value that is computed from columns."""

    text: str
    """SQL text of the operand, for messages."""
    expression: pc.Expression
    """Its values, of type `_kernel_type(type)`."""
    type: pa.DataType
    """The type that literals are converted to; for a dictionary its value type."""
    schema: pa.Schema
    """Schema of the table."""

    def tested(self, test: ValueTest) -> pc.Expression:
        """The outcomes of `test` for the operand's values, NULL in null rows."""
        if isinstance(test, bool):
            return self.always(test)
        operator, value = test
        return _ORDERS[operator](self.expression, pc.scalar(to_kernel(value)[0]))

    def always(self, outcome: bool | None) -> pc.Expression:  # noqa: FBT001 -- an outcome, not an option
        """`outcome` in every row where the operand is not null, NULL in the others."""
        return pc.if_else(self.expression.is_valid(), _constant(outcome), _constant(None))


def _operand_of(term: Term, schema: pa.Schema) -> Operand:
    """A term as an expression over a table of `schema`."""
    if isinstance(term, str):
        return _column_operand(schema, term)
    if isinstance(term, LiteralTerm):
        try:
            scalar = term.value if isinstance(term.value, pa.Scalar) else pa.scalar(term.value)
        except (pa.ArrowException, OverflowError) as error:
            raise PredicateError("a literal must be a value that Arrow can hold", got=f"{term.value!r:.80}") from error
        return Operand(term_sql(term), pc.scalar(scalar), scalar.type, schema)
    if isinstance(term, CastTerm):
        expression = _cast(term, _operand_of(term.child, schema))
    else:
        operands = _arguments(term.arguments, schema)
        is_length_of_bytes = term.function == "length" and is_bytes(operands[0].type)
        kernel = getattr(pc, "binary_length" if is_length_of_bytes else _KERNELS[term.function])
        options = {"characters": " "} if term.function == "trim" else {}
        expression = kernel(*(operand.expression for operand in operands), **options)
    text = term_sql(term)
    return Operand(text, expression, _result_type(expression, schema, text), schema)


def _arguments(terms: tuple[Term, ...], schema: pa.Schema) -> list[Operand]:
    """The arguments of a call. Beside decimals pyarrow takes no null type and no integer literal, 21 no others."""
    operands = [_operand_of(term, schema) for term in terms]
    if len(terms) == 1 or not any(pa.types.is_decimal(operand.type) for operand in operands):
        return operands
    typed = [
        _operand_of(LiteralTerm(decimal.Decimal(term.value)), schema)
        if isinstance(term, LiteralTerm) and pa.types.is_integer(operand.type)
        else operand
        for term, operand in zip(terms, operands, strict=True)
        if not pa.types.is_null(operand.type)
    ]
    decimals = [pa.schema([("", operand.type)]) for operand in typed if pa.types.is_decimal(operand.type)]
    try:
        common = pa.unify_schemas(decimals, promote_options="permissive").field(0).type
    except pa.ArrowException:  # no type has their digits: the call refuses them
        return typed
    return [
        replace(operand, expression=operand.expression.cast(common)) if pa.types.is_decimal(operand.type) else operand
        for operand in typed
    ]


def _cast(term: CastTerm, child: Operand) -> pc.Expression:
    if isinstance(child.type, pa.UuidType) and not isinstance(term.type, pa.UuidType):
        raise PredicateError("a UUID must be compared with a UUID's text, uncast", got=term_sql(term))
    source = child.expression
    if is_text(child.type) and pa.types.is_integer(term.type):
        source = pc.replace_substring_regex(source, "[xX]", "?")  # 0xff would be -1
    elif pa.types.is_decimal(term.type) and (is_text(child.type) or pa.types.is_integer(child.type)):
        if is_text(child.type):
            source = pc.replace_substring_regex(source, _CRASHING_NUMERAL, "?")
        # 128 bits would wrap texts, and must have as many digits as the type of integers
        source = source.cast(pa.decimal256(_MOST_DIGITS, term.type.scale))
    elif pa.types.is_timestamp(child.type) and child.type.tz and not pa.types.is_timestamp(term.type):
        source = source.cast(pa.timestamp(child.type.unit, "UTC"))
    return source.cast(term.type)


def _column_operand(schema: pa.Schema, name: str) -> Operand:
    """Column or struct leaf `name` of a table of `schema`."""
    column_type = resolve_column(schema, name).type
    expression = pc.field(*column_path(schema, name))
    for wanted in _kernel_casts(column_type):
        expression = expression.cast(wanted)
    return Operand(name, expression, unwrapped(column_type, keeps_uuid=True), schema)


# --- types of kernels -------------------------------------------------------------------------------------------------


def _kernel_type(arrow_type: pa.DataType) -> pa.DataType:
    """A type with the same values in the same order that has comparisons and ``is_in`` in pyarrow 26."""
    stored = unwrapped(arrow_type)
    if stored == pa.string_view():
        return pa.string()
    if stored == pa.binary_view():
        return pa.binary()
    if stored == pa.float16():
        return pa.float32()
    if pa.types.is_decimal(stored) and stored.bit_width < 128:  # noqa: PLR2004 - the common width
        return pa.decimal128(stored.precision, stored.scale)
    return pa.int8() if pa.types.is_null(stored) else stored


def to_kernel(values: pa.Array) -> pa.Array:
    """Values of the type `_kernel_type`; a dictionary is decoded."""
    while isinstance(values, pa.ExtensionArray):
        values = values.storage
    wanted = _kernel_type(values.type)
    return values if values.type == wanted else values.cast(wanted)


def _kernel_casts(column_type: pa.DataType) -> list[pa.DataType]:
    """The types to which values of a column are cast, one after the other, to have `_kernel_type`."""
    casts = []
    while pa.types.is_dictionary(column_type):
        column_type = column_type.value_type
        casts.append(column_type)
    wanted = _kernel_type(column_type)
    return casts if wanted == column_type else [*casts, wanted]


def _result_type(expression: pc.Expression, schema: pa.Schema, text: str) -> pa.DataType:
    """The type of `expression` over a table of `schema`. A result proves that pyarrow has the kernels.

    Raises
    ------
    PredicateError
        pyarrow has no kernel; the message quotes `text`.
    """
    try:
        return projected(schema, {"x": expression}).field("x").type
    except (pa.ArrowException, TypeError) as error:
        cause = first_line(error)
        raise PredicateError("a condition must have a pyarrow kernel for its types", got=f"{text} ({cause})") from error


def _checked(expression: pc.Expression, schema: pa.Schema, text: str) -> pc.Expression:
    """`expression` itself, for which `_result_type` raises no error."""
    _result_type(expression, schema, text)
    return expression


def projected(schema: pa.Schema, columns: dict[str, pc.Expression]) -> pa.Schema:
    """The schema of expressions over a table of `schema`."""
    import pyarrow.dataset as pads  # noqa: PLC0415 -- slow, and only needed if kernels are in doubt

    return pads.dataset(rowless(schema)).scanner(columns=columns).projected_schema
