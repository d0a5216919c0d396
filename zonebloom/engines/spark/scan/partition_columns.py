"""Partition columns as Spark reads them from paths: their values and their types.

The library has int32 and text. Spark also infers wider numbers, dates and fractions, so folders must get Spark's types
here. A timestamp needs a session's time zone, so it stays a text.

Spec: specs/spark.md#partition-columns
"""

from __future__ import annotations

import datetime as dt
import decimal
import re
from collections.abc import Iterable
from functools import reduce
from typing import Any
from urllib.parse import unquote

from pyspark.sql import types as spark

from zonebloom.errors import DataFileError

__all__ = ["infer", "typed", "values_of"]

_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_INTEGER = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DOUBLE = re.compile(r"([+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))[fFdD]?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_INT, _LONG, _DOUBLE_TYPE = spark.IntegerType(), spark.LongType(), spark.DoubleType()
_TEXT, _DATE_TYPE, _VOID = spark.StringType(), spark.DateType(), spark.NullType()
_DIGITS = {"integer": 10, "long": 20}
"""What an integer needs as a decimal."""
_MAX_DIGITS = 38


def values_of(path: str) -> dict[str, str | None]:
    """The `key=value` folders of a relative path; in a value `%` and two digits are one character, as in Spark.

    Keys are named as the library names its columns.

    >>> values_of("day=3/city=a%2Fb/part-0.parquet")
    {'day': '3', 'city': 'a/b'}
    """
    found: dict[str, str | None] = {}
    for folder in path.split("/")[:-1]:
        key, separator, value = folder.partition("=")
        if separator and key:
            found[unquote(key)] = None if value == _NULL_FOLDER else _decoded(value)
    return found


def _decoded(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)


# --- types ------------------------------------------------------------------------------------------------------------


def infer(texts: Iterable[str | None]) -> spark.DataType:
    """The type that Spark infers for the values of a partition column; text where Spark would infer timestamp."""
    return reduce(_wider, {_type_of(text) for text in texts}, _VOID)


def _type_of(text: str | None) -> spark.DataType:
    if text is None:
        return _VOID
    if _INTEGER.fullmatch(text):
        number = int(text)
        if -(1 << 31) <= number < 1 << 31:
            return _INT
        if -(1 << 63) <= number < 1 << 63:
            return _LONG
    whole = _whole_number(text)
    if whole is not None:
        return spark.DecimalType(len(str(abs(whole))), 0)
    if _DOUBLE.fullmatch(_trimmed(text)):
        return _DOUBLE_TYPE
    return _TEXT if _date(text) is None else _DATE_TYPE


def _whole_number(text: str) -> int | None:
    """A decimal without digits after the point, of at most 38 digits."""
    if not _DECIMAL.fullmatch(text):
        return None
    exponent = decimal.Decimal(text).as_tuple().exponent
    if not isinstance(exponent, int) or not 0 <= exponent <= _MAX_DIGITS:
        return None
    number = int(decimal.Decimal(text))
    return number if len(str(abs(number))) <= _MAX_DIGITS else None


def _trimmed(text: str) -> str:
    return text.strip("".join(map(chr, range(33))))


def _date(text: str) -> dt.date | None:
    if not _DATE.fullmatch(text):
        return None
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        return None


def _wider(left: spark.DataType, right: spark.DataType) -> spark.DataType:
    """The type that holds both; text if Spark has none."""
    if right in (left, _VOID):
        return left
    if left == _VOID:
        return right
    names = {left.typeName(), right.typeName()}
    if names == {"integer", "long"}:
        return _LONG
    if names == {"integer", "double"}:
        return _DOUBLE_TYPE
    if names <= {"integer", "long", "decimal"}:
        digits = [
            one.precision if isinstance(one, spark.DecimalType) else _DIGITS[one.typeName()] for one in (left, right)
        ]
        return spark.DecimalType(max(digits), 0)
    return _TEXT


def typed(text: str | None, column_type: spark.DataType, path: str) -> Any:
    """A partition value of the file at `path` as a Python value of its type.

    Raises
    ------
    DataFileError
        It does not fit the type.
    """
    if text is None:
        return None
    name = "string" if isinstance(column_type, spark.StringType) else column_type.typeName()
    try:
        if name in ("integer", "long"):
            return int(text)
        if name == "decimal":
            return decimal.Decimal(int(decimal.Decimal(text)))
        if name == "double":
            return float(_trimmed(text).rstrip("fFdD") if _trimmed(text)[-1:] in "fFdD" else text)
        if name == "date":
            return dt.date.fromisoformat(text)
        if name == "string":
            return text
    except (ValueError, ArithmeticError):
        pass
    message = f"the partition folders of {path} must fit type {column_type.simpleString()}, got {text!r}"
    raise DataFileError(f"{message}; load the data set again")
