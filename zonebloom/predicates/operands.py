"""Operands: the sides of comparisons as pyarrow expressions, of types that kernels compare.

A column becomes an expression of such a type: a UUID its bytes, a float16 float32, a dictionary its values. Casts and
functions become pyarrow's kernels, and literals scalars.

Design: docs/design/conditions.md#to-expression.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa

from zonebloom.bloom.hashing import column_path, resolve_column
from zonebloom.ground.arrow import from_values, is_bytes, is_text, kernel_type, rowless, unwrapped
from zonebloom.ground.errors import PredicateError, first_line
from zonebloom.predicates.sql_writer import term_sql
from zonebloom.predicates.terms import CastTerm, LiteralTerm, Term

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
    """Its values, of type `kernel_type(type)`."""
    type: pa.DataType
    """The type that literals are converted to; for a dictionary its value type."""
    schema: pa.Schema
    """Schema of the table."""

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
        operands = [operand_of(argument, schema) for argument in term.arguments]
        is_length_of_bytes = term.function == "length" and is_bytes(operands[0].type)
        kernel = getattr(pc, "binary_length" if is_length_of_bytes else _KERNELS[term.function])
        options = {"characters": " "} if term.function == "trim" else {}
        expression = kernel(*(operand.expression for operand in operands), **options)
    text = term_sql(term)
    return Operand(text, expression, result_type(expression, schema, text), schema)


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
    for wanted in kernel_casts(column_type):
        expression = expression.cast(wanted)
    return Operand(name, expression, unwrapped(column_type, keeps_uuid=True), schema)


def kernel_casts(column_type: pa.DataType) -> list[pa.DataType]:
    """The types to which values of a column are cast, one after the other, to have `kernel_type`."""
    casts = []
    while pa.types.is_dictionary(column_type):
        column_type = column_type.value_type
        casts.append(column_type)
    wanted = kernel_type(column_type)
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


def projected(schema: pa.Schema, columns: dict[str, pc.Expression]) -> pa.Schema:
    """The schema of expressions over a table of `schema`."""
    import pyarrow.dataset as pads  # noqa: PLC0415 -- slow, and only needed if kernels are in doubt

    return pads.dataset(rowless(schema)).scanner(columns=columns).projected_schema
