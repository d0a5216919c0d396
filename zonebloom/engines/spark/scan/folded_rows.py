"""Rows of the driver as a local relation, which Spark filters while it plans.

Spec: specs/spark.md#driver
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["local_frame"]


def local_frame(spark: SparkSession, table: pa.Table, schema: StructType) -> DataFrame:
    """A frame of `table`, which Spark filters while it plans, without a job.

    The chunks are joined first: Spark 4.3 drops the rows that follow an empty record batch. Spark refuses structs
    and lists without rows, so an empty relation of the schema is made.
    """
    if not table.num_rows:
        return spark.createDataFrame([], schema)
    return spark.createDataFrame(table.combine_chunks(), schema)
