"""SQL literals and type names as Python values and Arrow types.

Design: docs/design/conditions.md#sql.
"""

from __future__ import annotations

import datetime as dt
import decimal
import re
from typing import Any

import pyarrow as pa
from sqlglot import exp

from zonebloom.ground.errors import PredicateError, first_line
from zonebloom.predicates.coerce import value_of

_D = exp.DataType.Type
_TYPES: dict[Any, pa.DataType] = {
    _D.BOOLEAN: pa.bool_(),
    _D.TINYINT: pa.int8(),
    _D.SMALLINT: pa.int16(),
    _D.INT: pa.int32(),
    _D.BIGINT: pa.int64(),
    _D.UTINYINT: pa.uint8(),
    _D.USMALLINT: pa.uint16(),
    _D.UINT: pa.uint32(),
    _D.UBIGINT: pa.uint64(),
    _D.FLOAT: pa.float32(),
    _D.DOUBLE: pa.float64(),
    _D.CHAR: pa.string(),
    _D.VARCHAR: pa.string(),
    _D.TEXT: pa.string(),
    _D.BINARY: pa.binary(),
    _D.VARBINARY: pa.binary(),
    _D.BLOB: pa.binary(),
    _D.DATE: pa.date32(),
    _D.TIME: pa.time64("us"),
    _D.TIMESTAMP: pa.timestamp("us"),
    _D.DATETIME: pa.timestamp("us"),
    _D.TIMESTAMPNTZ: pa.timestamp("us"),
    _D.TIMESTAMPTZ: pa.timestamp("us", "UTC"),
    _D.UUID: pa.uuid(),
}
_OFFSET = re.compile(r"\d\d:\d\d.*(Z|[+-]\d\d(:?\d\d)?)$", re.IGNORECASE)
_DECIMAL_PRECISION, _DECIMAL_SCALE = 18, 3
_MAX_DIGITS = 1000
"""Digits. A longer integer becomes a Decimal: Python refuses to parse an int of more than 4300 digits."""


def arrow_type(node: exp.DataType) -> pa.DataType:
    """The Arrow type of a SQL type name.

    Raises
    ------
    PredicateError
        The type name is unknown here, or its parameters are not allowed.
    """
    if node.this == _D.DECIMAL:
        sizes = [int(part.this.this) for part in node.expressions] or [_DECIMAL_PRECISION, _DECIMAL_SCALE]
        try:
            return pa.decimal128(sizes[0], sizes[1] if len(sizes) > 1 else 0)
        except ValueError as error:
            raise PredicateError("a decimal type must have 1 to 38 digits", got=node.sql()) from error
    if node.this not in _TYPES or node.expressions:
        raise PredicateError(
            "a cast must be to one of BOOLEAN, integers, FLOAT, DOUBLE, DECIMAL(p, s), VARCHAR, BINARY, DATE, TIME, "
            "TIMESTAMP[TZ], UUID",
            got=node.sql(),
        )
    return _TYPES[node.this]


def literal_of(node: exp.Expr) -> tuple[bool, Any]:
    """Whether `node` is a constant, and its value.

    An integer is an int, a number with a point a Decimal, and a number with an exponent a float. X'…' is bytes. A typed
    literal (DATE '…') or a cast of a constant is a Python value of that type, or an Arrow scalar if Python has none.
    """
    if isinstance(node, exp.Literal):
        return True, node.this if node.is_string else _number(node.this)
    if isinstance(node, exp.Null):
        return True, None
    if isinstance(node, exp.Boolean):
        return True, bool(node.this)
    if isinstance(node, exp.Paren):
        return literal_of(node.this)
    if isinstance(node, exp.Neg):
        is_literal, value = literal_of(node.this)
        return is_literal and _is_number(value), _negated(value) if _is_number(value) else None
    if isinstance(node, exp.HexString):
        return True, _bytes(node)
    if isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast):
        is_literal, value = literal_of(node.this)
        return is_literal, _cast(node, value) if is_literal else None
    return False, None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, decimal.Decimal)) and not isinstance(value, bool)


def _negated(number: Any) -> Any:
    """`number` negated, with all digits. The minus operator would round a Decimal to the caller's decimal context."""
    return number.copy_negate() if isinstance(number, decimal.Decimal) else -number


def _number(text: str) -> int | float | decimal.Decimal:
    if re.fullmatch(r"\d+", text) and len(text) <= _MAX_DIGITS:
        return int(text)
    if re.fullmatch(r"\d*\.\d*|\d+", text):
        return decimal.Decimal(text)
    try:
        return float(text)
    except ValueError:
        raise PredicateError("a number must be an integer, a decimal or a float", got=text) from None


def _bytes(node: exp.HexString) -> bytes:
    try:
        return bytes.fromhex(node.this)
    except (ValueError, TypeError):
        raise PredicateError("X'…' must hold pairs of hex digits", got=f"{node.this!r:.80}") from None


def _moment(text: str, target: pa.DataType) -> tuple[str, pa.DataType]:
    """A timestamp's text for pyarrow, and its type: an instant if the text has an offset or `target` has a zone."""
    digits = re.search(r"\.(\d+)", text)
    unit = "ns" if digits is not None and len(digits.group(1)) > 6 else "us"  # noqa: PLR2004 -- digits of us
    has_offset = _OFFSET.search(text) is not None
    is_instant = target.tz is not None or has_offset
    if is_instant and not has_offset:
        text += "Z" if ":" in text else " 00:00:00Z"
    return text, pa.timestamp(unit, "UTC" if is_instant else None)


def _cast(node: exp.Cast, value: Any) -> Any:
    """A constant in a type."""
    target = arrow_type(node.to)
    if value is None:
        return None
    if isinstance(value, str) and target not in (pa.string(), pa.binary()):
        value = value.strip()
        if pa.types.is_timestamp(target):
            value, target = _moment(value, target)
        if isinstance(target, pa.UuidType):
            return value
    try:
        if isinstance(value, str) and pa.types.is_time(target):  # pyarrow 26 has no cast from text to time
            return dt.time.fromisoformat(value)
        if isinstance(value, decimal.Decimal) and pa.types.is_floating(target):
            value = float(value)  # pyarrow 26 makes 0.30000000000000004 of Decimal("0.3")
        if isinstance(value, (str, int, decimal.Decimal)) and pa.types.is_decimal(target):
            return value_of(value, target).as_py()  # pyarrow 26 crashes on 1e-9999999, and refuses 1 for 9 digits
        scalar = (value if isinstance(value, pa.Scalar) else pa.scalar(value)).cast(target)
    except (pa.ArrowException, ArithmeticError, ValueError) as error:
        cause = first_line(error)
        raise PredicateError(
            f"a literal must convert exactly to {target}", got=f"{node.sql('spark')} ({cause})"
        ) from None
    is_wide = pa.types.is_timestamp(target) and target.unit == "ns"
    try:
        return scalar if is_wide or pa.types.is_floating(target) else scalar.as_py()
    except (ValueError, OverflowError):
        return scalar
