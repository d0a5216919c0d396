"""The comparisons of Spark that filters can evaluate, and the values to probe.

Spark may cast one side of a comparison, by types and settings. The filters have the bytes of the files. So filters
evaluate a leaf only if its pair of types is listed below, and Spark compares its literal exactly. Any other leaf
retains every zone, with a reason.

Design: docs/design/spark-reads.md#binding
"""

from __future__ import annotations

import datetime as dt
import decimal
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import types
from pyspark.sql.types import DataType, StructField, StructType

from zonebloom.bloom.hashing import resolve_column
from zonebloom.engines.spark.pushdown.calendars import FIRST_DATE, SURE_TIME
from zonebloom.engines.spark.pushdown.metadata import altering_metadata
from zonebloom.engines.spark.pushdown.names import Names
from zonebloom.engines.spark.scan.types import MAX_DIGITS
from zonebloom.ground.arrow import is_text, unwrapped
from zonebloom.ground.reasons import Reason, ReasonCode
from zonebloom.predicates import Equals, IsNull, Not, leaves
from zonebloom.predicates.terms import Term

if TYPE_CHECKING:
    from zonebloom.search.view import View

_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,6})?)( ?(?:Z|[+-]\d\d:\d\d))?", re.ASCII)
_PRINTED_MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?", re.ASCII)
_EXACT_INTEGERS = {"float": 2**24, "double": 2**53}
_BIGINT_DIGITS = 20


class UnboundError(Exception):
    """A leaf that the filters do not evaluate; never leaves this package."""

    def __init__(self, code: ReasonCode, message: str) -> None:
        super().__init__(message)
        self.reason: Reason = Reason(code, message)


def _unfit(message: str) -> UnboundError:
    return UnboundError(ReasonCode.TYPE_MISMATCH, message)


class Piece(leaves.Piece):
    """A piece of a condition that only Spark evaluates."""

    __slots__ = ()

    def __init__(
        self, sql: str, why: str = "only Spark evaluates it", code: ReasonCode = ReasonCode.PREDICATE_NOT_SUPPORTED
    ) -> None:
        super().__init__(sql, why, code)


class IsNotNull(Not):
    """IS NOT NULL, which Spark has as an expression of its own."""

    __slots__ = ()


class IsTrue(Equals):
    """A boolean column alone, which Spark distinguishes from `= TRUE`."""

    __slots__ = ()

    def __init__(self, column: Term) -> None:
        super().__init__(column, True)


class SqlDecimal(decimal.Decimal):
    """A decimal literal of SQL, with the precision of its digits; on Spark Connect `lit` gives another type."""


class EqualsNull(IsNull):
    """`<=> NULL`, which Spark distinguishes from IS NULL."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Target:
    """A column that a leaf names, as Spark and the index have it."""

    path: tuple[str, ...]
    """Its name in Spark, in parts."""
    name: str
    """Its name in the index."""
    spark: DataType
    arrow: pa.DataType
    kind: str
    """Kind of the pair of types. For each kind, Spark compares the values that the index has hashed."""
    is_ordered: bool
    """Whether the index has the values in Spark's order, as for a partition column."""


class Binder:
    """Columns and literals of one data set at present.

    Parameters
    ----------
    schema
        Schema of Spark's plain read.
    zone_of
        The session's instant for a timestamp's text without an offset; None if it is not known.
    resolves
        Whether Spark finds one column or leaf at a path that is spelled in another case.
    may_move
        Whether partition columns may have other values than the folders say.
    """

    def __init__(
        self,
        schema: StructType,
        view: View,
        zone_of: Callable[[str], dt.datetime | None] = lambda _: None,
        resolves: Callable[..., bool] = lambda *_: True,
        *,
        may_move: bool = False,
    ) -> None:
        self._schema = schema
        self._arrow = view.schema
        self._partitions = frozenset(field.name for field in view.partition_fields)
        self._zone_of = zone_of
        self._resolves = resolves
        self._may_move = may_move
        self.names: Names = Names(view)

    def path(self, name: str) -> tuple[str, ...]:
        """The parts of a dotted name: a column of exactly that name, or the path of a leaf of a struct."""
        return (name,) if all(self._fields([name])) else tuple(name.split("."))

    def has_column(self, name: str) -> bool:
        """Whether Spark has a column, or a leaf of a struct, of that dotted name."""
        return all(self._fields(self.path(name)))

    def _fields(self, path: Sequence[str]) -> Iterator[list[StructField]]:
        """For each part of `path` the fields of that name, in any case."""
        held: Any = self._schema
        for part in path:
            fields = [field for field in getattr(held, "fields", ()) if field.name.lower() == part.lower()]
            yield fields
            held = fields[0].dataType if fields else None

    def target(self, path: Sequence[str]) -> Target:
        """The column that Spark means by `path`.

        Raises
        ------
        UnboundError
            Spark and the index may mean different columns, or their types do not compare.
        """
        named = list(self._fields(path))
        if any(len(fields) != 1 for fields in named):
            shown = ".".join(path)
            raise UnboundError(ReasonCode.PREDICATE_NOT_SUPPORTED, f"{shown} must name one column of the data set")
        fields = [field for (field,) in named]
        spelled, held = [field.name for field in fields], fields[-1].dataType
        if spelled != list(path) and not self._resolves(*path):
            message = f"{'.'.join(path)} must be a column, and names are case-sensitive"
            raise UnboundError(ReasonCode.PREDICATE_NOT_SUPPORTED, message)
        name = ".".join(spelled)
        is_dotted = len(spelled) > 1 and any("." in part for part in spelled)
        if is_dotted or not self.names.is_same(name):
            message = f"column {name} must be the same for Spark and the index, got names that they read differently"
            raise UnboundError(ReasonCode.PREDICATE_NOT_SUPPORTED, message)
        if altering := next(filter(None, (altering_metadata(field.metadata) for field in fields)), None):
            raise _unfit(f"column {name} must be read as it is stored, got the metadata {altering}")
        if name in self._partitions and self._may_move:
            raise _unfit(f"column {name} must have the values of folders, and partitions of a table may lie elsewhere")
        arrow = resolve_column(self._arrow, name).type
        kind = _pair(held, arrow) or (_pair_of_folder(held) if name in self.names.canonical else None)
        if kind is None:
            stored = f"got {held.simpleString()} of {_INT96 if _is_int96(held, arrow) else arrow}"
            raise _unfit(f"column {name} must be compared as it is stored, {stored}")
        is_ordered = name in self._partitions and kind in ("text", "integer", "date", "folder date")
        return Target(tuple(spelled), name, held, arrow, kind, is_ordered)

    def fitted(self, value: Any, target: Target) -> Any:
        """The value that Spark compares with the column `target` for `value`; None is NULL.

        Raises
        ------
        UnboundError
            Spark casts the column, or casts the literal by a rule that depends on settings.
        """
        if isinstance(value, (pa.Scalar, np.generic)):
            value = _python(value)
        if value is None:
            return None
        value = decimal.Decimal(value) if isinstance(value, SqlDecimal) else value
        fitted = _FITS[target.kind](value, target)
        if fitted is None:
            raise _unfit(f"Spark does not compare {target.spark.simpleString()} with {value!r:.80} as it is")
        return fitted

    def moment(self, text: str, *, is_local: bool) -> dt.datetime:
        """The timestamp that a literal's text means, with a zone or, if it `is_local`, without.

        Raises
        ------
        UnboundError
            `text` has another form, or only the session knows its zone.
        """
        match = _MOMENT.fullmatch(text)
        if match is None:
            raise _unfit(f"a timestamp must be written as 2026-01-31 12:00:00, got {text}")
        try:
            moment = dt.datetime.fromisoformat(match[1] + (match[2] or "").strip())
        except ValueError as error:
            raise _unfit(f"a timestamp must exist, got {text}") from error
        if is_local:
            return moment.replace(tzinfo=None)
        instant = moment if moment.tzinfo is not None else self._zone_of(match[1])
        if instant is None:
            raise _unfit(f"a timestamp must have an offset, or the session a known time zone, got {text}")
        return instant

    def printed(self, text: str, target: Target) -> Any:
        """A literal, read from its printed form by the kind of the column `target`.

        Raises
        ------
        UnboundError
            It is not a literal of that kind.
        """
        if target.kind in ("text", "bytes"):
            return text
        if target.kind == "bool":
            return {"true": True, "false": False}.get(text.lower(), text)
        if target.kind == "date":
            return date_of(text)
        if target.kind == "instant":
            if not _PRINTED_MOMENT.fullmatch(text):
                raise _unfit(f"a timestamp must be printed with its date and time, got {text}")
            try:
                return dt.datetime.fromisoformat(text).astimezone(dt.UTC)
            except (ValueError, OverflowError) as error:
                raise _unfit(f"a timestamp must be one that Python has, got {text}") from error
        try:
            if re.fullmatch(r"-?[0-9]+L?", text):
                return int(text.rstrip("L"))
            return float(text) if target.kind == "float" else decimal.Decimal(text)
        except (ValueError, decimal.InvalidOperation):
            return text


def python_literal(value: pa.Scalar) -> Any:
    """The Python value of a scalar; of nanoseconds only those that are whole microseconds, as Spark has no others.

    Raises
    ------
    UnboundError
        Python or Spark has no such value.
    """
    try:
        if pa.types.is_timestamp(value.type):  # pandas, which PySpark needs, has nanoseconds
            value = value.cast(pa.timestamp("us", value.type.tz))
        return value.as_py()
    except (pa.ArrowInvalid, ValueError, OverflowError) as error:  # nanoseconds, and years past 9999
        raise _unfit(f"a literal must be one that Spark and Python have, got {value.type}") from error


def _python(value: Any) -> Any:
    if isinstance(value, pa.Scalar):
        return python_literal(value)
    if isinstance(value, (np.datetime64, np.timedelta64)):
        raise _unfit(f"a literal must be one that Spark has, got {value!r}")
    return value.item()


def date_of(text: str) -> dt.date:
    """The date that a literal's text means.

    Raises
    ------
    UnboundError
        It has another form.
    """
    if not _DATE.fullmatch(text):
        raise _unfit(f"a date must be written as 2026-01-31, got {text}")
    try:
        return dt.date.fromisoformat(text)
    except ValueError as error:
        raise _unfit(f"a date must exist, got {text}") from error


# --- pairs of types ---------------------------------------------------------------------------------------------------


_INT96 = "INT96; write it with spark.sql.parquet.outputTimestampType = TIMESTAMP_MICROS"
_BYTES = frozenset({pa.int8()})
_SHORTS = _BYTES | {pa.int16(), pa.uint8()}
_INTEGERS = _SHORTS | {pa.int32(), pa.uint16()}
_LONGS = _INTEGERS | {pa.int64(), pa.uint32()}
"""The Arrow types whose values all fit a type of Spark. Spark cuts wider values: as a byte, 200 is -56."""


def _is_int96(held: DataType, arrow: pa.DataType) -> bool:
    """Whether Spark reads instants where files have times without a zone."""
    return held == types.TimestampType() and pa.types.is_timestamp(arrow) and arrow.tz is None


def _pair(spark: DataType, arrow: pa.DataType) -> str | None:
    """The kind of a pair of types, if Spark compares the values that the index has hashed."""
    arrow = unwrapped(arrow, keeps_uuid=True)
    is_integer, is_moment = pa.types.is_integer(arrow), pa.types.is_timestamp(arrow) and arrow.unit in ("ms", "us")
    if isinstance(spark, types.DecimalType):
        if is_integer and (spark.precision, spark.scale) == (_BIGINT_DIGITS, 0):
            return "integer"
        is_same = pa.types.is_decimal(arrow) and (arrow.precision, arrow.scale) == (spark.precision, spark.scale)
        return "decimal" if is_same else None
    is_bytes = arrow in (pa.binary(), pa.large_binary(), pa.binary_view()) or pa.types.is_fixed_size_binary(arrow)
    kinds = {
        types.StringType(): is_text(arrow) and "text",  # another collation is another type
        types.BinaryType(): is_bytes and "bytes",
        types.ByteType(): arrow in _BYTES and "integer",
        types.ShortType(): arrow in _SHORTS and "integer",
        types.IntegerType(): arrow in _INTEGERS and "integer",
        types.LongType(): arrow in _LONGS and "integer",
        types.FloatType(): arrow == pa.float32() and "float",
        types.DoubleType(): arrow == pa.float64() and "float",
        types.BooleanType(): pa.types.is_boolean(arrow) and "bool",
        types.DateType(): arrow == pa.date32() and "date",
        types.TimestampType(): is_moment and arrow.tz is not None and "instant",
        types.TimestampNTZType(): is_moment and arrow.tz is None and "local",
    }
    return kinds.get(spark) or None


def _pair_of_folder(spark: DataType) -> str | None:
    """The kind of a partition column that Spark reads as `spark`. The index has the text of each value."""
    name = spark.simpleString()
    if name == "date":
        return "folder date"
    return "folder integer" if name == "bigint" or (name.startswith("decimal(") and name.endswith(",0)")) else None


def _same(kind: type) -> Callable[[Any, Target], Any]:
    return lambda value, _: value if type(value) is kind else None


def _fit_float(value: Any, target: Target) -> float | None:
    if type(value) is int:
        return float(value) if abs(value) <= _EXACT_INTEGERS[target.spark.simpleString()] else None
    if type(value) not in (float, decimal.Decimal):
        return None
    if value != value:  # noqa: PLR0124 - NaN, which equals itself in Spark and nothing in Arrow
        raise UnboundError(ReasonCode.NAN_LITERAL, "NaN equals NaN of any bits in Spark, and filters know the bits")
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
    return decimal.Decimal(value) if widest <= MAX_DIGITS else None


def _fit_date(value: Any, _: Target) -> dt.date | None:
    if type(value) is str:
        value = date_of(value)
    return value if type(value) is dt.date and value >= FIRST_DATE else None


def _fit_moment(*, has_zone: bool) -> Callable[[Any, Target], dt.datetime | None]:
    def fit(value: Any, _: Target) -> dt.datetime | None:
        if type(value) is not dt.datetime or (value.tzinfo is not None) is not has_zone:
            return None
        return value if value.year >= SURE_TIME.year else None

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
    "folder date": lambda value, target: None if (day := _fit_date(value, target)) is None else day.isoformat(),
    "folder integer": lambda value, _: str(value) if type(value) is int else None,
}
"""Kind of the pair of types → the literal as a value of the column, or None if Spark would cast the column."""


_SUFFIXES = {"int8": "Y", "int16": "S", "int32": "", "int64": "L", "float32": "F"}


def text_of(value: Any) -> str | None:
    """SQL for a value if `lit` would make a literal of another type; else None."""
    if isinstance(value, np.generic) and value.dtype.name in _SUFFIXES and np.isfinite(value):
        return f"{value.item() if value.dtype.kind == 'i' else value}{_SUFFIXES[value.dtype.name]}"
    if isinstance(value, dt.datetime):
        shown = value.replace(tzinfo=None).isoformat(" ")
        if value.tzinfo is None:
            return f"TIMESTAMP_NTZ '{shown}'"
        return f"TIMESTAMP_LTZ '{value.astimezone(dt.UTC).replace(tzinfo=None).isoformat(' ')}+00:00'"
    if type(value) is dt.date:  # `lit` takes none before the year 1000
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"X'{bytes(value).hex()}'"
    is_wide = type(value) is int and not -(2**63) <= value < 2**63
    return f"{decimal.Decimal(value):f}BD" if is_wide or isinstance(value, SqlDecimal) else None
