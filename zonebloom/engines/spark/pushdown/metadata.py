"""Metadata of Spark's columns that may make it read other values than the files hold.

Design: docs/design/spark-reads.md#binding
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.types import DataType, MapType

CHAR = "__CHAR_VARCHAR_TYPE_STRING"
"""Metadata key of a text column's declared type, CHAR(n) or VARCHAR(n)."""
_READ_AS_STORED = frozenset({"comment", "parquet.field.id", "CURRENT_DEFAULT"})
"""Metadata of a column that changes no value. `CURRENT_DEFAULT` is for writers; ids have a rule of their own."""


def altering_metadata(metadata: Mapping[str, Any]) -> str | None:
    """A metadata key that may make Spark read other values than the stored ones; None if there is none.

    `EXISTS_DEFAULT` gives values to files without the column, CHAR pads values, and unknown metadata may do anything.

    >>> altering_metadata({"comment": "in UTC", "EXISTS_DEFAULT": "42"})
    'EXISTS_DEFAULT'
    """
    for key, value in metadata.items():
        if key not in _READ_AS_STORED and not (key == CHAR and str(value).startswith("varchar(")):
            return key
    return None


def altered_column(of: DataType) -> str | None:
    """A column or inner field of a type with metadata that may alter its values; None if there is none."""
    for inner in nested_types(of):
        for field in getattr(inner, "fields", ()):
            if altering := altering_metadata(field.metadata):
                return f"{field.name} with {altering}"
    return None


def nested_types(of: DataType) -> Iterator[DataType]:
    """A type, and all types within it."""
    yield of
    inner = [field.dataType for field in getattr(of, "fields", ())]
    inner += [getattr(of, name) for name in ("elementType", "keyType", "valueType") if hasattr(of, name)]
    for held in inner:
        yield from nested_types(held)


def has_maps(of: DataType) -> bool:
    """Whether a type is a map, or has one within it."""
    return any(isinstance(inner, MapType) for inner in nested_types(of))
