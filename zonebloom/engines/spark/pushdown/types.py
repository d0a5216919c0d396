"""Which comparisons of Spark's the filters judge, and with which value: where both surely mean the same.

Spark casts either side of a comparison, depending on types and settings; the filters know the bytes that the files
hold. So a leaf is judged only if the column has one of the pairs of types below and the literal a kind that Spark
compares with it exactly. Anything else is kept whole, with a reason.

Spec: specs/spark.md#judging
"""

from __future__ import annotations

import datetime as dt
import decimal
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from zonebloom.bloom.hashing import resolve_column
from zonebloom.engines.spark.pushdown.names import Names
from zonebloom.engines.spark.pushdown.sql_text import Word
from zonebloom.reasons import Reason, ReasonCode

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    from zonebloom.search.view import View

__all__ = ["Judge", "Target", "UnjudgedError", "text_of"]

_CHAR = "__CHAR_VARCHAR_TYPE_STRING"
_FIRST_DATE = dt.date(1582, 10, 15)
"""Before it old writers used another calendar, which Spark converts as it reads."""
_FIRST_YEAR = 1900
"""Before it they wrote timestamps with other offsets of their time zone."""
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,6})?)( ?(?:Z|[+-]\d\d:\d\d))?")
_INTEGER = re.compile(r"(-?\d+)[LlSsYy]?")
_DECIMAL = re.compile(r"(-?(?:\d+\.\d*|\.\d+|\d+(?=[bB]))) ?(?:[bB][dD])?")
_DOUBLE = re.compile(r"(-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[dD]?")
_EXACT_INTEGERS = {"float": 2**24, "double": 2**53}
_MAX_DIGITS = 38
_BIGINT_DIGITS = 20


class UnjudgedError(Exception):
    """A leaf that the filters do not judge; never leaves this package."""

    def __init__(self, code: ReasonCode, message: str) -> None:
        super().__init__(message)
        self.reason = Reason(code, message)


def _unfit(message: str) -> UnjudgedError:
    return UnjudgedError(ReasonCode.TYPE_MISMATCH, message)


@dataclass(frozen=True, slots=True)
class Target:
    """A column that a leaf names, as Spark and the index have it."""

    path: tuple[str, ...]
    """As Spark spells it."""
    name: str
    """As the index does."""
    spark: DataType
    arrow: pa.DataType
    kind: str
    """Of the pair of types; in each, Spark compares the very values that the index has hashed."""


class Judge:
    """Columns and literals of one data set as it is now.

    Parameters
    ----------
    schema
        Of Spark's plain read.
    zone_of
        The instant that a timestamp's text without an offset means in the session; None if that is not known.
    """

    def __init__(
        self, schema: StructType, view: View, zone_of: Callable[[str], dt.datetime | None] = lambda _: None
    ) -> None:
        self._schema = schema
        self._arrow = view.schema
        self._zone_of = zone_of
        self.names = Names(view)

    def path(self, name: str) -> tuple[str, ...]:
        """The parts of a dotted name: a column of that very name, else the way to a leaf of a struct."""
        is_column = any(field.name.lower() == name.lower() for field in self._schema.fields)
        return (name,) if is_column else tuple(name.split("."))

    def target(self, path: Sequence[str]) -> Target:
        """The column that Spark means by `path`.

        Raises
        ------
        UnjudgedError
            Spark and the index may mean different columns, or give it types that do not compare.
        """
        held: Any = self._schema
        spelled: list[str] = []
        metadata: dict[str, Any] = {}
        for part in path:
            fields = getattr(held, "fields", ())
            same = [one for one in fields if one.name == part] or [
                one for one in fields if one.name.lower() == part.lower()
            ]
            alike = sum(one.name.lower() == part.lower() for one in fields)
            if len(same) != 1 or alike != 1:
                shown = ".".join(path)
                raise UnjudgedError(ReasonCode.PREDICATE_NOT_SUPPORTED, f"{shown} must name one column of the data set")
            spelled.append(same[0].name)
            held, metadata = same[0].dataType, same[0].metadata
        name = ".".join(spelled)
        is_dotted = len(spelled) > 1 and any("." in one for one in spelled)
        if is_dotted or not self.names.is_same(name):
            message = f"column {name} must be the same for Spark and the index, got names that they read differently"
            raise UnjudgedError(ReasonCode.PREDICATE_NOT_SUPPORTED, message)
        if _CHAR in metadata:
            raise _unfit(f"column {name} must have no padding, got {metadata[_CHAR]}")
        arrow = resolve_column(self._arrow, name).type
        kind = _pair(held, arrow)
        if kind is None:
            stored = f"got {held.simpleString()} of {arrow}"
            raise _unfit(f"column {name} must be compared as it is stored, {stored}")
        return Target(tuple(spelled), name, held, arrow, kind)

    def value(self, word: Word, target: Target) -> Any:
        """The value with which Spark compares the column `target`; None is NULL.

        Raises
        ------
        UnjudgedError
            Spark casts the column, or the literal in a way that depends on settings.
        """
        return self.fitted(self._read(word, target), target)

    def fitted(self, value: Any, target: Target) -> Any:
        """A Python value as `value` gives it."""
        if isinstance(value, (pa.Scalar, np.generic)):
            value = _python(value)
        if value is None:
            return None
        fitted = _FITS[target.kind](value, target)
        if fitted is None:
            raise _unfit(f"Spark does not compare {target.spark.simpleString()} with {value!r:.80} as it is")
        return fitted

    def _read(self, word: Word, target: Target) -> Any:
        if word.kind == "null":
            return None
        if word.kind == "raw":
            return _raw(word.value, target.kind)
        if word.kind == "string":
            return word.value
        if word.kind == "bool":
            return word.value == "TRUE"
        if word.kind == "hex":
            if len(word.value) % 2 == 0:
                raise _unfit(f"X'…' must hold pairs of hex digits, got {word.value}")
            return bytes.fromhex(word.value[2:-1])
        if word.kind == "number":
            return _number(word.value)
        if word.kind == "date":
            return _date(word.value)
        return self._moment(word)

    def _moment(self, word: Word) -> dt.datetime:
        found = _MOMENT.fullmatch(word.value)
        if found is None:
            raise _unfit(f"a timestamp must be written as 2026-01-31 12:00:00, got {word.value}")
        try:
            moment = dt.datetime.fromisoformat(found[1] + (found[2] or "").strip())
        except ValueError as error:
            raise _unfit(f"a timestamp must exist, got {word.value}") from error
        if word.kind == "ntz":
            return moment.replace(tzinfo=None)
        if moment.tzinfo is not None:
            return moment
        known = self._zone_of(found[1])
        if known is None:
            raise _unfit(f"a timestamp must have an offset, or the session a known time zone, got {word.value}")
        return known


def _python(value: Any) -> Any:
    if isinstance(value, pa.Scalar):
        try:
            return value.as_py()
        except ValueError as error:  # nanoseconds
            raise _unfit(f"a literal must be one that Spark has, got {value}") from error
    if isinstance(value, (np.datetime64, np.timedelta64)):
        raise _unfit(f"a literal must be one that Spark has, got {value!r}")
    return value.item()


def _date(text: str) -> dt.date:
    if not _DATE.fullmatch(text):
        raise _unfit(f"a date must be written as 2026-01-31, got {text}")
    try:
        return dt.date.fromisoformat(text)
    except ValueError as error:
        raise _unfit(f"a date must exist, got {text}") from error


def _number(text: str) -> int | float | decimal.Decimal:
    if found := _INTEGER.fullmatch(text):
        return int(found[1])
    if found := _DECIMAL.fullmatch(text):
        return decimal.Decimal(found[1])
    if found := _DOUBLE.fullmatch(text):
        return float(found[1])
    raise _unfit(f"a number must be an integer, a decimal or a double, got {text}")


def _raw(text: str, kind: str) -> Any:
    """A literal of which only the printed form is known, as the column's kind suggests."""
    if kind in ("text", "bytes"):
        return text
    if kind == "bool":
        return {"true": True, "false": False}.get(text.lower(), text)
    if kind == "date":
        return _date(text)
    if kind == "instant":
        found = re.fullmatch(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(\.\d{1,6})?", text)
        if found is None:
            raise _unfit(f"a timestamp must be printed with its date and time, got {text}")
        return dt.datetime.fromisoformat(found[1] + (found[2] or "")).astimezone(dt.UTC)
    if kind == "float" and not re.fullmatch(r"-?\d+L?", text):
        try:
            return float(text)
        except ValueError:
            return text
    return _number(text)


# --- pairs of types ---------------------------------------------------------------------------------------------------


def _pair(spark: DataType, arrow: pa.DataType) -> str | None:  # noqa: C901, PLR0912 - one case a pair
    """The kind of a pair of types, if Spark compares the very values that the index has hashed."""
    from pyspark.sql import types  # noqa: PLC0415 - an optional extra

    while pa.types.is_dictionary(arrow):
        arrow = arrow.value_type
    is_text = arrow in (pa.string(), pa.large_string(), pa.string_view())
    is_bytes = arrow in (pa.binary(), pa.large_binary(), pa.binary_view()) or pa.types.is_fixed_size_binary(arrow)
    if spark == types.StringType() and is_text:  # another collation is another type
        return "text"
    if isinstance(spark, types.BinaryType) and is_bytes:
        return "bytes"
    if isinstance(spark, (types.ByteType, types.ShortType, types.IntegerType, types.LongType)):
        return "integer" if pa.types.is_integer(arrow) else None
    if isinstance(spark, types.DecimalType):
        if pa.types.is_integer(arrow) and (spark.precision, spark.scale) == (_BIGINT_DIGITS, 0):
            return "integer"
        is_same = pa.types.is_decimal(arrow) and (arrow.precision, arrow.scale) == (spark.precision, spark.scale)
        return "decimal" if is_same else None
    if isinstance(spark, types.FloatType) and arrow == pa.float32():
        return "float"
    if isinstance(spark, types.DoubleType) and arrow == pa.float64():
        return "float"
    if isinstance(spark, types.BooleanType) and pa.types.is_boolean(arrow):
        return "bool"
    if isinstance(spark, types.DateType) and arrow == pa.date32():
        return "date"
    if pa.types.is_timestamp(arrow) and arrow.unit in ("ms", "us"):
        if isinstance(spark, types.TimestampType) and arrow.tz is not None:
            return "instant"
        if isinstance(spark, types.TimestampNTZType) and arrow.tz is None:
            return "local"
    return None


def _same(kind: type) -> Callable[[Any, Target], Any]:
    return lambda value, _: value if type(value) is kind else None


def _fit_float(value: Any, target: Target) -> float | None:
    if type(value) is int:
        return float(value) if abs(value) <= _EXACT_INTEGERS[target.spark.simpleString()] else None
    if type(value) not in (float, decimal.Decimal):
        return None
    if value != value:  # noqa: PLR0124 - NaN, which equals itself in Spark and nothing in Arrow
        raise UnjudgedError(ReasonCode.NAN_LITERAL, "NaN equals NaN of any bits in Spark, and filters know the bits")
    return float(value)


def _fit_decimal(value: Any, target: Target) -> decimal.Decimal | None:
    spark: Any = target.spark
    if type(value) is int:
        digits, scale = max(_BIGINT_DIGITS, len(str(abs(value)))), 0
    elif type(value) is decimal.Decimal and value.is_finite():
        sign_digits, exponent = value.as_tuple().digits, int(value.as_tuple().exponent)
        scale = max(-exponent, 0)
        digits = max(len(sign_digits) + exponent, 0)
    else:
        return None
    widest = max(digits, spark.precision - spark.scale) + max(scale, spark.scale)
    return decimal.Decimal(value) if widest <= _MAX_DIGITS else None


def _fit_date(value: Any, _: Target) -> dt.date | None:
    if type(value) is str:
        value = _date(value)
    return value if type(value) is dt.date and value >= _FIRST_DATE else None


def _fit_moment(*, has_zone: bool) -> Callable[[Any, Target], dt.datetime | None]:
    def fit(value: Any, _: Target) -> dt.datetime | None:
        if type(value) is not dt.datetime or (value.tzinfo is not None) is not has_zone:
            return None
        return value if value.year > _FIRST_YEAR else None

    return fit


_FITS: dict[str, Callable[[Any, Target], Any]] = {
    "text": _same(str),
    "bytes": _same(bytes),
    "integer": _same(int),
    "decimal": _fit_decimal,
    "float": _fit_float,
    "bool": _same(bool),
    "date": _fit_date,
    "instant": _fit_moment(has_zone=True),
    "local": _fit_moment(has_zone=False),
}
"""Kind of the pair of types → the literal as a value of the column, or None where Spark would cast the column."""


def text_of(value: Any) -> str | None:
    """SQL for a value, where `lit` would not give a literal of the type meant; None where it does."""
    if isinstance(value, dt.datetime):
        shown = value.replace(tzinfo=None).isoformat(" ")
        if value.tzinfo is None:
            return f"TIMESTAMP_NTZ '{shown}'"
        return f"TIMESTAMP_LTZ '{value.astimezone(dt.UTC).replace(tzinfo=None).isoformat(' ')}+00:00'"
    if isinstance(value, (bytes, bytearray)):
        return f"X'{bytes(value).hex()}'"
    if type(value) is int and not -(2**63) <= value < 2**63:
        return f"{value}BD"
    return None
