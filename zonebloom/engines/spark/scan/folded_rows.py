"""Rows that the driver reads itself, as a local relation with just the types of Spark's Parquet reader.

A type for which that is not known to hold sends the read back to Spark.

Spec: specs/spark.md#driver
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from zonebloom.engines.spark.pushdown.calendars import has_old
from zonebloom.engines.spark.scan.types import arrow_type, as_spark, nullable_type, spark_type
from zonebloom.errors import UnsupportedTypeError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["local_frame", "local_schema", "local_table"]


def local_schema(spark: StructType, arrow: pa.Schema) -> pa.Schema | None:
    """The Arrow schema of rows that Spark takes for its own; None if a column's values might then differ."""
    fields = []
    for field in spark.fields:
        if arrow.get_field_index(field.name) < 0:
            return None
        try:
            made = spark_type(field.name, arrow.field(field.name).type)
        except UnsupportedTypeError:
            return None
        if nullable_type(field.dataType) != made:
            return None
        fields.append(pa.field(field.name, arrow_type(made)))
    return pa.schema(fields)


def local_table(rows: pa.Table, schema: pa.Schema) -> pa.Table | None:
    """`rows` in `schema`; None if it holds times that Spark may move to another calendar as it reads."""
    columns = [rows[field.name] for field in schema]
    return None if any(map(has_old, columns)) else as_spark(columns, schema, "the data set")


def local_frame(spark: SparkSession, table: pa.Table, schema: StructType) -> DataFrame:
    """A frame of `table`, which Spark filters as it plans, without a job.

    The chunks are joined first: Spark 4.3 drops the rows that follow an empty record batch. And there must be a row: it
    has no empty structs.
    """
    return spark.createDataFrame(table.combine_chunks(), schema)
