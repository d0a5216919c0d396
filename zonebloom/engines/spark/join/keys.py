"""Keys of joins: the pairs of types that Spark compares by value, and the distinct keys of a caller.

Spark's join converts other pairs of types by settings. An index of the unconverted bytes would lose rows, so these
pairs are refused by name.

Design: docs/design/spark.md#join-keys
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField

from zonebloom.arrow import unwrapped
from zonebloom.bloom.hashing import storage_type
from zonebloom.engines.spark.catalog import check_batch
from zonebloom.engines.spark.pushdown.names import backquoted, resolves
from zonebloom.errors import ColumnNotFoundError, InvalidArgumentError
from zonebloom.predicates import IsIn

MAX_KEYS: Final = 1_000_000
"""Distinct keys that the driver collects at most: 8 to 60 MB."""
_CHAR_VARCHAR = "__CHAR_VARCHAR_TYPE_STRING"
"""Metadata key of a text column's declared type in Spark."""
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_UNITS = ("s", "ms", "us")
_MAX_DIGITS = 38


def check_pair(field: StructField, indexed: pa.DataType) -> None:
    """Refuse a column unless Spark compares it by value with an indexed column of type `indexed`.

    Raises
    ------
    InvalidArgumentError
        Spark does not compare the types by value.

    Design: docs/design/spark.md#join-keys
    """
    if not _is_compared_by_value(field, unwrapped(storage_type(indexed))):
        found = (field.metadata or {}).get(_CHAR_VARCHAR) or field.dataType.simpleString()
        raise InvalidArgumentError(
            f"column {field.name} must be of a type that Spark compares by value with an indexed {indexed}",
            got=found,
            do="cast it, or join without pruning",
        )


def _is_compared_by_value(field: StructField, stored: pa.DataType) -> bool:
    """Whether Spark's join compares the column with values of type `stored` without a conversion by settings."""
    types, name = pa.types, field.dataType.simpleString()
    is_text = stored in (pa.string(), pa.large_string(), pa.string_view())
    is_bytes = stored in (pa.binary(), pa.large_binary(), pa.binary_view()) or types.is_fixed_size_binary(stored)
    is_char = (field.metadata or {}).get(_CHAR_VARCHAR, name).startswith("char(")
    if name == "string" or name.startswith("varchar("):
        return is_text and not is_char
    if types.is_integer(stored):
        return name in _INTEGERS or (name.startswith("decimal(") and name.endswith(",0)"))
    if types.is_timestamp(stored):  # Spark has no nanoseconds
        return name == ("timestamp" if stored.tz else "timestamp_ntz") and stored.unit in _UNITS
    if types.is_decimal(stored):
        return name.startswith("decimal(") and _has_common_decimal(field.dataType, stored)
    return (
        (name == "binary" and is_bytes)
        or (name == "boolean" and types.is_boolean(stored))
        or (name in ("float", "double") and stored in (pa.float32(), pa.float64()))
        or (name == "date" and types.is_date(stored))
    )


def _has_common_decimal(found: Any, stored: Any) -> bool:
    """Whether one decimal type of Spark holds the values of both types, so Spark compares them without rounding."""
    whole = max(found.precision - found.scale, stored.precision - stored.scale)
    return bool(whole + max(found.scale, stored.scale) <= _MAX_DIGITS and stored.scale >= 0)


def column_of(frame: DataFrame, name: str) -> tuple[str, StructField]:
    """SQL for column `name` of `frame`, or for the leaf at that dotted path, and its field.

    Raises
    ------
    InvalidArgumentError
        The name has a part that Spark would replace before it parses the SQL.
    """
    if "${" in name:
        raise InvalidArgumentError(
            "column must have no ${ in its name, which Spark substitutes", got=name, do="rename it"
        )
    is_whole = name in frame.columns
    is_quoted = not is_whole and "`" in name
    parts = [name] if is_whole else name.split(".")
    text = name if is_quoted else backquoted(*parts)
    return text, frame.selectExpr(text).schema[0]


def check_local_times(spark: SparkSession, field: StructField) -> None:
    """Refuse a timestamp without a zone if Spark reads the indexed side as timestamps with one.

    Raises
    ------
    InvalidArgumentError
        The key has no zone, and the session reads such columns with one.
    """
    setting = "spark.sql.parquet.inferTimestampNTZ.enabled"
    if field.dataType.simpleString() == "timestamp_ntz" and spark.conf.get(setting, "true") != "true":
        raise InvalidArgumentError(
            f"{setting} must be true for key {field.name} of type timestamp_ntz",
            got="false",
            do="Spark would shift the values of the indexed side",
        )


def distinct(keys: DataFrame) -> DataFrame:
    """The distinct rows of a frame of keys.

    Raises
    ------
    InvalidArgumentError
        `keys` is a stream, or a column has a collation: Spark takes texts that it finds equal for one key.
    """
    check_batch(keys)
    collated = next((field for field in keys.schema if " collate " in field.dataType.simpleString()), None)
    if collated is not None:
        raise InvalidArgumentError(
            f"key {collated.name} must have no collation, by which different texts are one key",
            got=collated.dataType.simpleString(),
            do=f"CAST({collated.name} AS STRING)",
        )
    return keys.distinct()


def collected(column: str, keys: Any) -> pa.Array:
    """The distinct keys in a frame or any collection, as an Arrow array without nulls.

    Raises
    ------
    ColumnNotFoundError
        A frame of several columns has no column of that name.
    InvalidArgumentError
        There are more than a million.

    Design: docs/design/spark.md#keys
    """
    if hasattr(keys, "toArrow"):
        names = keys.columns
        name = names[0] if len(names) == 1 else column
        if not resolves(keys, name):
            raise ColumnNotFoundError.among(column, names, "the frame of keys")
        wanted = distinct(keys.select(backquoted(name))).limit(MAX_KEYS + 1)
        values = wanted.toArrow().column(0).combine_chunks().drop_null()
    else:
        values = IsIn(column, keys).values
    if len(values) > MAX_KEYS:
        raise InvalidArgumentError(f"keys must be at most {MAX_KEYS:,}", got="more", do="use prune_join")
    return values
