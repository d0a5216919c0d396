"""Rows that the driver reads itself, as a local relation with just the types of Spark's Parquet reader.

A type for which that is not known to hold sends the read back to Spark.

Spec: specs/spark.md#driver
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

__all__ = ["local_frame", "local_schema", "local_table"]

_INTEGERS = {"tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64()}
_FIRST_DATE = dt.date(1582, 10, 15)
_FIRST_MOMENT = dt.datetime(1901, 1, 1, tzinfo=dt.UTC)


def local_schema(spark: StructType, arrow: pa.Schema) -> pa.Schema | None:
    """The Arrow schema of rows that Spark takes for its own; None if a column's values might then differ."""
    fields = []
    for field in spark.fields:
        if arrow.get_field_index(field.name) < 0:
            return None
        column_type = _local_type(field.dataType, arrow.field(field.name).type)
        if column_type is None:
            return None
        fields.append(pa.field(field.name, column_type))
    return pa.schema(fields)


def _local_type(spark: Any, arrow: pa.DataType) -> pa.DataType | None:
    from pyspark.sql import types  # noqa: PLC0415 - an optional extra

    if pa.types.is_dictionary(arrow):
        return _local_type(spark, arrow.value_type)
    if isinstance(spark, types.StructType):
        if not pa.types.is_struct(arrow) or [one.name for one in spark.fields] != [one.name for one in arrow]:
            return None
        inner = [_local_type(one.dataType, arrow.field(one.name).type) for one in spark.fields]
        return None if None in inner else pa.struct(list(zip(spark.names, inner, strict=True)))
    if isinstance(spark, types.ArrayType):
        element = _local_type(spark.elementType, arrow.value_type) if _is_list(arrow) else None
        return None if element is None else pa.list_(element)
    if isinstance(spark, types.MapType):
        if not pa.types.is_map(arrow):
            return None
        key, item = _local_type(spark.keyType, arrow.key_type), _local_type(spark.valueType, arrow.item_type)
        return None if key is None or item is None else pa.map_(key, item)
    return _local_scalar(spark, arrow)


def _is_list(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_list(arrow) or pa.types.is_large_list(arrow))


def _local_scalar(spark: DataType, arrow: pa.DataType) -> pa.DataType | None:
    from pyspark.sql import types  # noqa: PLC0415 - as above

    name = spark.simpleString()
    if pa.types.is_integer(arrow):
        if name == "decimal(20,0)" and arrow == pa.uint64():
            return pa.decimal128(20, 0)
        wanted = _INTEGERS.get(name)
        return wanted if wanted is not None and _holds(wanted, arrow) else None
    if spark == types.StringType():
        return pa.string() if arrow in (pa.string(), pa.large_string(), pa.string_view()) else None
    if isinstance(spark, types.BinaryType):
        is_bytes = arrow in (pa.binary(), pa.large_binary(), pa.binary_view()) or pa.types.is_fixed_size_binary(arrow)
        return pa.binary() if is_bytes else None
    if isinstance(spark, types.DecimalType):
        is_same = pa.types.is_decimal(arrow) and (arrow.precision, arrow.scale) == (spark.precision, spark.scale)
        return pa.decimal128(spark.precision, spark.scale) if is_same else None
    if pa.types.is_timestamp(arrow) and arrow.unit in ("ms", "us"):
        is_instant = arrow.tz is not None
        if isinstance(spark, types.TimestampType if is_instant else types.TimestampNTZType):
            return pa.timestamp("us", "UTC" if is_instant else None)
        return None
    same = {"float": pa.float32(), "double": pa.float64(), "boolean": pa.bool_(), "date": pa.date32()}.get(name)
    return same if same == arrow else None


def _holds(wide: pa.DataType, narrow: pa.DataType) -> bool:
    is_unsigned = pa.types.is_unsigned_integer(narrow)
    return bool(narrow.bit_width < wide.bit_width or (narrow.bit_width == wide.bit_width and not is_unsigned))


def local_table(rows: pa.Table, schema: pa.Schema) -> pa.Table | None:
    """`rows` in `schema`; None if it holds times that Spark may move to another calendar as it reads."""
    arrays = []
    for field in schema:
        column = rows[field.name]
        if any(_is_old(column, kind) for kind in (pa.types.is_date, pa.types.is_timestamp)):
            return None
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        arrays.append(column if column.type == field.type else column.cast(field.type))
    return pa.table(arrays, schema=schema)


def _is_old(column: pa.ChunkedArray, is_kind: Any) -> bool:
    """Whether a date or timestamp is so old that writers of Spark 2 had another calendar; nested ones count as old."""
    if pa.types.is_nested(column.type):
        return bool(_mentions(column.type, is_kind) and column.null_count < len(column))
    if not is_kind(column.type) or column.null_count == len(column):
        return False
    bound = _FIRST_DATE if pa.types.is_date(column.type) else _FIRST_MOMENT
    if pa.types.is_timestamp(column.type) and column.type.tz is None:
        bound = _FIRST_MOMENT.replace(tzinfo=None)
    return bool(pc.less(pc.min(column), pa.scalar(bound, column.type)).as_py())


def _mentions(column_type: pa.DataType, is_kind: Any) -> bool:
    if not pa.types.is_nested(column_type):
        return bool(is_kind(column_type))
    inner = [column_type.field(number).type for number in range(column_type.num_fields)]
    return any(_mentions(one, is_kind) for one in inner)


def local_frame(spark: SparkSession, table: pa.Table, schema: StructType) -> DataFrame:
    """A frame of `table`, which Spark filters as it plans, without a job.

    The chunks are joined first: Spark 4.3 drops the rows that follow an empty record batch. And there must be a row: it
    has no empty structs.
    """
    return spark.createDataFrame(table.combine_chunks(), schema)
