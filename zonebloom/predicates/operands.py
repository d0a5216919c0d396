"""Operands: one side of a comparison, a term as an expression of a type that pyarrow's kernels compare.

A UUID becomes its bytes, a float16 float32, a dictionary its values. Casts and functions become kernels. The arguments
of one get one type: an Expression of coalesce reads times of another unit as if they were of its own.

Design: docs/design/conditions.md#to-expression.
"""

from __future__ import annotations

import decimal
import operator as operators
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa

from zonebloom.bloom.hashing import column_path, is_ambiguous, resolve_column
from zonebloom.ground.arrow import from_values, is_bytes, is_text, rowless, unwrapped
from zonebloom.ground.errors import PredicateError, first_line
from zonebloom.predicates.exact_numbers import ValueTest
from zonebloom.predicates.sql_writer import term_sql
from zonebloom.predicates.terms import CastTerm, LiteralTerm, Term

if TYPE_CHECKING:
    import pyarrow.compute as pc
else:
    from zonebloom.ground.arrow import compute as pc

_CRASHING_NUMERAL = r"[eE][+-]?0*[1-9][0-9]{2}|\.[0-9]{100}"
"""Numerals for which pyarrow 26 reads beyond its table of powers of ten and crashes. They raise an error instead."""
_MOST_DIGITS = 76
_MOST_PLACES = 6
"""With more decimal places pyarrow may write a decimal with an exponent, as 5.00E-7."""
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
ORDERS = {
    "=": operators.eq,
    "!=": operators.ne,
    "<": operators.lt,
    "<=": operators.le,
    ">": operators.gt,
    ">=": operators.ge,
}


@cache
def constant(outcome: bool | None) -> pc.Expression:  # noqa: FBT001 -- an outcome, not an option
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
        return ORDERS[operator](self.expression, pc.scalar(to_kernel(value)[0]))

    def always(self, outcome: bool | None) -> pc.Expression:  # noqa: FBT001 -- an outcome, not an option
        """`outcome` in every row where the operand is not null, NULL in the others."""
        return pc.if_else(self.expression.is_valid(), constant(outcome), constant(None))


def operand_of(term: Term, schema: pa.Schema) -> Operand:
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
        expression = _cast(term, operand_of(term.child, schema))
    else:
        operands = _arguments(term.arguments, schema)
        is_length_of_bytes = term.function == "length" and is_bytes(operands[0].type)
        kernel = getattr(pc, "binary_length" if is_length_of_bytes else _KERNELS[term.function])
        options = {"characters": " "} if term.function == "trim" else {}
        expression = kernel(*(operand.expression for operand in operands), **options)
    text = term_sql(term)
    return Operand(text, expression, result_type(expression, schema, text), schema)


def _arguments(terms: tuple[Term, ...], schema: pa.Schema) -> list[Operand]:
    """The arguments of a call. Beside decimals pyarrow takes no null type and no integer literal, 21 no others."""
    operands = without_decimals_beside_floats([operand_of(term, schema) for term in terms])
    if len(terms) == 1 or not any(map(_is_scaled, operands)):
        return operands
    has_decimals = any(pa.types.is_decimal(operand.type) for operand in operands)
    typed = [
        operand_of(LiteralTerm(decimal.Decimal(term.value)), schema)
        if has_decimals and isinstance(term, LiteralTerm) and pa.types.is_integer(operand.type)
        else operand
        for term, operand in zip(terms, operands, strict=True)
        if not pa.types.is_null(operand.type)
    ]
    common = _common_type([operand.type for operand in typed if _is_scaled(operand)])
    if common is None:
        return typed
    return [
        replace(operand, expression=operand.expression.cast(common)) if _is_scaled(operand) else operand
        for operand in typed
    ]


def without_decimals_beside_floats(operands: list[Operand]) -> list[Operand]:
    """`operands` with decimals as the nearest floats, if some are floats."""
    floats = [operand.type for operand in operands if pa.types.is_floating(operand.type)]
    if not floats:
        return operands
    wanted = _kernel_type(max(floats, key=lambda kind: kind.bit_width))
    return [
        replace(operand, expression=_as_float(operand, wanted), type=wanted)
        if pa.types.is_decimal(operand.type)
        else operand
        for operand in operands
    ]


def _as_float(operand: Operand, wanted: pa.DataType) -> pc.Expression:
    """Decimals as the nearest floats, by their texts: pyarrow 26 has 99.99000000000001 for 99.99."""
    return operand.expression.cast(pa.string()).cast(wanted)


def _is_scaled(operand: Operand) -> bool:
    """Whether the numbers that Arrow stores for the operand's type have a unit or a scale."""
    return bool(pa.types.is_decimal(operand.type) or pa.types.is_temporal(operand.type))


def _common_type(kinds: list[pa.DataType]) -> pa.DataType | None:
    """The type of decimals, or of times, that has all values of `kinds`; None if none has.

    Raises
    ------
    PredicateError
        Some are instants, and others are times of no zone.
    """
    stamps = [kind for kind in kinds if pa.types.is_timestamp(kind)]
    if len({kind.tz is None for kind in stamps}) > 1:
        raise PredicateError(
            "the times of one call must all have a zone, or none",
            got=" and ".join(map(str, stamps)),
            do="cast some: CAST(… AS TIMESTAMP) has no zone, CAST(… AS TIMESTAMPTZ) has",
        )
    of_one_zone = [pa.timestamp(kind.unit, kind.tz and "UTC") for kind in stamps] or kinds
    try:
        fields = [pa.schema([("", kind)]) for kind in of_one_zone]
        return pa.unify_schemas(fields, promote_options="permissive").field(0).type
    except pa.ArrowException:  # the call refuses them
        return None


def _cast(term: CastTerm, child: Operand) -> pc.Expression:
    if isinstance(child.type, pa.UuidType) and not isinstance(term.type, pa.UuidType):
        raise PredicateError("a UUID must be compared with a UUID's text, uncast", got=term_sql(term))
    if pa.types.is_decimal(child.type) and is_text(term.type) and not 0 <= child.type.scale <= _MOST_PLACES:
        raise PredicateError(
            f"a decimal that is cast to text must have at most {_MOST_PLACES} decimal places",
            got=f"{term_sql(term)}, of type {child.type}",
            do="compare the decimal itself",
        )
    source = child.expression
    if pa.types.is_decimal(child.type) and pa.types.is_floating(term.type):
        return _as_float(child, term.type)
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
    """Column or struct leaf `name` of a table of `schema`; a name of several of them is refused."""
    if is_ambiguous(schema, name):
        path = ", ".join(map(repr, name.split(".")))
        raise PredicateError(
            "a condition must name columns by names of their own",
            got=f"{name!r}, which several columns or fields have",
            do=f"use pyarrow.compute.field({name!r}) for the column, or field({path}) for the field of a struct",
        )
    column_type = resolve_column(schema, name).type
    expression = pc.field(*column_path(schema, name))
    for wanted in kernel_casts(column_type):
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


def kernel_casts(column_type: pa.DataType) -> list[pa.DataType]:
    """The types to which values of a column are cast, one after the other, to have `_kernel_type`."""
    casts = []
    while pa.types.is_dictionary(column_type):
        column_type = column_type.value_type
        casts.append(column_type)
    wanted = _kernel_type(column_type)
    return casts if wanted == column_type else [*casts, wanted]


def result_type(expression: pc.Expression, schema: pa.Schema, text: str) -> pa.DataType:
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


def checked(expression: pc.Expression, schema: pa.Schema, text: str) -> pc.Expression:
    """`expression` itself, for which `result_type` raises no error."""
    result_type(expression, schema, text)
    return expression


def projected(schema: pa.Schema, columns: dict[str, pc.Expression]) -> pa.Schema:
    """The schema of expressions over a table of `schema`."""
    import pyarrow.dataset as pads  # noqa: PLC0415 -- slow, and only needed if kernels are in doubt

    return pads.dataset(rowless(schema)).scanner(columns=columns).projected_schema
