"""Settings of Spark that change values or types of its plain read; where the library reads, they must be the defaults.

Design: docs/design/spark.md#partition-columns
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zonebloom.engines.spark.executors import setting
from zonebloom.engines.spark.pushdown.calendars import has_times, is_moving_by_setting
from zonebloom.engines.spark.pushdown.metadata import nested_types
from zonebloom.formats import ParquetDataset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from zonebloom.search.view import View

_DEFAULTS = {
    "binary": ("spark.sql.parquet.binaryAsString", "FALSE"),
    "timestamp_ntz": ("spark.sql.parquet.inferTimestampNTZ.enabled", "TRUE"),
}
"""By type of a column of Parquet files, the setting that gives it another type, and its default."""
_OF_FOLDERS = ("spark.sql.sources.partitionColumnTypeInference.enabled", "TRUE")


def altering_setting(spark: SparkSession, view: View, schema: StructType) -> str | None:
    """A setting by which Spark would read columns of `schema` otherwise than by default; None if there is none."""
    if has_times(schema) and is_moving_by_setting(spark):
        return "a setting by which Spark moves dates and times"
    if not isinstance(view.dataset, ParquetDataset):
        return None
    kinds = {inner.typeName() for inner in nested_types(schema)}
    defaults = [default for kind, default in _DEFAULTS.items() if kind in kinds]
    if any(field.name in schema.names for field in view.partition_fields):
        defaults.append(_OF_FOLDERS)
    return next((f"another value of {name}" for name, value in defaults if setting(spark, name) != value), None)
