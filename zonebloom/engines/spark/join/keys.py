"""Keys of joins: the pairs of types that Spark compares by value, and the distinct keys of a caller.

Spark's join converts other pairs of types by settings. An index of the unconverted bytes would lose rows, so these
pairs are refused by name.

Design: docs/design/spark.md#join-keys
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import DecimalType, StructField

from zonebloom.engines.spark.frames import check_batch
from zonebloom.engines.spark.pushdown.metadata import CHAR
from zonebloom.engines.spark.pushdown.names import named, resolves
from zonebloom.engines.spark.scan.types import MAX_DIGITS
from zonebloom.engines.spark.versions import arrow_of
from zonebloom.ground.errors import ColumnNotFoundError, InvalidArgumentError
from zonebloom.predicates import IsIn

MAX_KEYS: Final = 1_000_000
"""Distinct keys that the driver collects at most: 8 to 60 MB."""
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
"""Digits of the decimal to which Spark casts an integer, if it compares it with a decimal."""
_SAME = frozenset({"boolean", "string", "binary", "date", "timestamp", "timestamp_ntz"})


def check_pair(key: StructField, column: StructField) -> None:
    """Refuse a key unless Spark compares it by value with a column of the lake, without a conversion by settings.

    Raises
    ------
    InvalidArgumentError
        Spark does not compare the types by value.

    Design: docs/design/spark.md#join-keys
    """
    names = [_name(key), _name(column)]
    decimals = [_decimal(key), _decimal(column)]
    if None not in decimals:
        whole = max(decimal.precision - decimal.scale for decimal in decimals)
        is_by_value = whole + max(decimal.scale for decimal in decimals) <= MAX_DIGITS
    else:
        is_by_value = (names[0] == names[1] and names[0] in _SAME) or set(names) <= {"float", "double"}
    if not is_by_value:
        raise InvalidArgumentError(
            f"key {key.name} must be of a type that Spark compares by value with a column of type {names[1]}",
            got=names[0],
            do="cast it, or join without pruning",
        )


def _name(field: StructField) -> str:
    """The type; VARCHAR(n) is text, and CHAR(n), which Spark pads, is not."""
    name = str((field.metadata or {}).get(CHAR, field.dataType.simpleString()))
    return "string" if name.startswith("varchar(") else name


def _decimal(field: StructField) -> Any:
    """The decimal type that has the values of a column of integers or decimals; None for other types."""
    digits = _DIGITS.get(field.dataType.simpleString())
    return DecimalType(digits, 0) if digits else field.dataType if isinstance(field.dataType, DecimalType) else None


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

    Design: docs/design/spark-reads.md#keys
    """
    if isinstance(keys, Column):
        raise InvalidArgumentError(
            "keys must be a DataFrame or values", got=f"{keys!r:.80}", do="select it from its frame"
        )
    if isinstance(keys, DataFrame):
        names = keys.columns
        name = names[0] if len(names) == 1 else column
        if not resolves(keys, name):
            raise ColumnNotFoundError.among(column, names, "the frame of keys")
        wanted = distinct(keys.select(named(name)).where(named(name).isNotNull())).limit(MAX_KEYS + 1)
        values = arrow_of(wanted).column(0).combine_chunks()
    else:
        values = IsIn(column, keys).values
    if len(values) > MAX_KEYS:
        raise InvalidArgumentError(f"keys must be at most {MAX_KEYS:,}", got="more", do="use prune_join")
    return values
