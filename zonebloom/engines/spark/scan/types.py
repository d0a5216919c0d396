"""Types of Arrow and Spark: the types that Spark's Parquet reader gives a file, and batches in these types.

Spark has no unsigned types, no fixed-size binaries and only microseconds, so a column may get a wider type. Types that
Spark cannot read from Parquet are refused by name.

Design: docs/design/spark.md#types
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import types as spark

from zonebloom.ground.arrow import is_text, unwrapped
from zonebloom.ground.casts import converted, rounds_floats, some_leaf
from zonebloom.ground.errors import DataFileError, UnsupportedTypeError

MAX_DIGITS: Final = 38
"""Digits of Spark's widest decimal."""
_UNSIGNED_64 = spark.DecimalType(20, 0)

_PLAIN: list[tuple[Callable[[pa.DataType], bool], spark.DataType]] = [
    (pa.types.is_boolean, spark.BooleanType()),
    (pa.types.is_int8, spark.ByteType()),
    (pa.types.is_int16, spark.ShortType()),
    (pa.types.is_int32, spark.IntegerType()),
    (pa.types.is_int64, spark.LongType()),
    (pa.types.is_uint8, spark.ShortType()),
    (pa.types.is_uint16, spark.IntegerType()),
    (pa.types.is_uint32, spark.LongType()),
    (pa.types.is_uint64, _UNSIGNED_64),
    (pa.types.is_float32, spark.FloatType()),
    (pa.types.is_float64, spark.DoubleType()),
    (pa.types.is_date, spark.DateType()),
    (pa.types.is_duration, spark.LongType()),  # Parquet has no such type: Arrow writes an int64
    (pa.types.is_null, spark.IntegerType()),  # and for null an int32
    (is_text, spark.StringType()),
    (lambda arrow_type: arrow_type in (pa.binary(), pa.large_binary(), pa.binary_view()), spark.BinaryType()),
    (pa.types.is_fixed_size_binary, spark.BinaryType()),
]


def spark_type(column: str, stored: pa.DataType, *, is_int96: bool = False) -> spark.DataType:
    """The type that Spark's Parquet reader gives a column that the library reads as `stored`.

    Parameters
    ----------
    column
        Its name, for the message.
    is_int96
        Whether its times without a zone are Parquet's INT96, which Spark reads as instants.

    Raises
    ------
    UnsupportedTypeError
        Spark's reader refuses the type too.

    Design: docs/design/spark.md#types
    """

    def of(inner: pa.DataType) -> spark.DataType:
        return spark_type(column, inner, is_int96=is_int96)

    types = pa.types
    stored = unwrapped(stored, keeps_uuid=True)
    for is_it, as_spark_type in _PLAIN:
        if is_it(stored):
            return as_spark_type
    if types.is_decimal(stored) and stored.precision <= MAX_DIGITS and stored.scale >= 0:
        return spark.DecimalType(stored.precision, stored.scale)
    if types.is_timestamp(stored) and (stored.unit != "ns" or is_int96):
        is_instant = stored.tz is not None or is_int96
        return spark.TimestampType() if is_instant else spark.TimestampNTZType()
    if types.is_map(stored):
        return spark.MapType(of(stored.key_type), of(stored.item_type), True)
    if types.is_list(stored) or types.is_large_list(stored) or types.is_fixed_size_list(stored):
        return spark.ArrayType(of(stored.value_type), True)
    if types.is_struct(stored):
        return spark.StructType([spark.StructField(field.name, of(field.type), True) for field in stored])
    raise UnsupportedTypeError(
        f"column {column} must be of a type that Spark reads from Parquet", got=stored, do="select the other columns"
    )


def is_same_value(stored: pa.DataType) -> bool:
    """Whether values that are equal in Spark are equal as `stored`. Only then may filters of the stored bytes prune.

    Spark reads nanoseconds as microseconds, so two different stored values may be equal in Spark.
    """
    if pa.types.is_nested(stored):
        return all(is_same_value(stored.field(number).type) for number in range(stored.num_fields))
    return not (pa.types.is_timestamp(stored) and stored.unit == "ns")


_ARROW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
}


def arrow_type(of: spark.DataType) -> pa.DataType:
    """The Arrow type in which Spark takes values of a type, with names and nullability of nested fields.

    Raises
    ------
    UnsupportedTypeError
        Spark reads no Parquet column as this type.
    """
    if isinstance(of, spark.DecimalType):
        return pa.decimal128(of.precision, of.scale)
    if isinstance(of, spark.ArrayType):
        return pa.list_(pa.field("element", arrow_type(of.elementType), of.containsNull))
    if isinstance(of, spark.MapType):
        return pa.map_(arrow_type(of.keyType), pa.field("value", arrow_type(of.valueType), of.valueContainsNull))
    if isinstance(of, spark.StructType):
        return pa.struct([pa.field(field.name, arrow_type(field.dataType), field.nullable) for field in of])
    read_as = _ARROW.get("string" if isinstance(of, spark.StringType) else of.typeName())
    if read_as is None:
        raise UnsupportedTypeError("a column must be of a type that zonebloom reads for Spark", got=of.simpleString())
    return read_as


def nullable_type(of: spark.DataType) -> spark.DataType:
    """The type with nulls at each level, as Spark reads it from files."""
    if isinstance(of, spark.ArrayType):
        return spark.ArrayType(nullable_type(of.elementType), True)
    if isinstance(of, spark.MapType):
        return spark.MapType(nullable_type(of.keyType), nullable_type(of.valueType), True)
    if isinstance(of, spark.StructType):
        return spark.StructType([spark.StructField(field.name, nullable_type(field.dataType), True) for field in of])
    return of


def arrow_schema(schema: spark.StructType) -> pa.Schema:
    """The Arrow schema in which Spark takes rows of `schema`."""
    return pa.schema([pa.field(field.name, arrow_type(field.dataType), field.nullable) for field in schema])


def as_spark(columns: Sequence[pa.ChunkedArray], schema: pa.Schema, path: str) -> pa.Table:
    """`columns`, in order, as a table of `schema`. Values are truncated like in Spark.

    Raises
    ------
    DataFileError
        A column of the file at `path` does not convert.
    """
    cast = []
    for column, field in zip(columns, schema, strict=True):
        try:
            cast.append(_as_type(column, field.type))
        except (pa.ArrowException, ValueError) as error:
            raise DataFileError(
                f"column {field.name} of {path} must convert to {field.type}",
                got=f"{column.type}: {error}",
                do="refresh the index, and read the data set again",
            ) from error
    return pa.Table.from_arrays(cast, schema=schema)


def _as_type(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    if isinstance(column.type, pa.BaseExtensionType):
        storage = [chunk.storage for chunk in column.chunks]
        column = pa.chunked_array(storage, column.type.storage_type)
    if column.type == wanted:
        return column
    if some_leaf(_is_refused, column.type, wanted):
        raise ValueError("Spark's own reader refuses such a file")
    return converted(column, wanted, safe=is_same_value(column.type))


def _is_bytes(arrow_type: pa.DataType) -> bool:
    """Whether Parquet stores the values as bytes. Spark reads texts and bytes as either type."""
    t = pa.types
    kinds = (t.is_string, t.is_large_string, t.is_binary, t.is_large_binary, t.is_fixed_size_binary)
    return any(is_it(arrow_type) for is_it in kinds)


_TAKEN: list[tuple[Callable[[pa.DataType], bool], tuple[Callable[[pa.DataType], bool], ...]]] = [
    (pa.types.is_boolean, (pa.types.is_boolean,)),
    (pa.types.is_date, (pa.types.is_date,)),
    (pa.types.is_timestamp, (pa.types.is_timestamp, pa.types.is_date)),
    (pa.types.is_integer, (pa.types.is_integer, pa.types.is_duration)),
    (pa.types.is_floating, (pa.types.is_floating, pa.types.is_integer)),
    (pa.types.is_decimal, (pa.types.is_decimal, pa.types.is_integer)),
    (_is_bytes, (_is_bytes,)),
]
"""By kind of a column, the kinds of files that Spark's reader takes for it. pyarrow takes times for days, too."""


def _is_refused(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether Spark's reader refuses values of type `stored` for a column of type `wanted`."""
    taken = next((kinds for is_it, kinds in _TAKEN if is_it(wanted)), ())
    is_taken = any(is_it(stored) for is_it in taken) and not rounds_floats(stored, wanted)
    return not (is_taken or pa.types.is_null(stored))
