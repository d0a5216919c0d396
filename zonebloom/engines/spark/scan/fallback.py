"""Why rows that are not read by Spark itself might differ from those that it reads.

Where there is a reason, Spark reads: whole files, by its own reader.

Spec: specs/spark.md#driver
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zonebloom.engines.spark.pushdown.calendars import is_moving
from zonebloom.engines.spark.pushdown.names import misread
from zonebloom.engines.spark.pushdown.translate import NOT_OF_COLUMNS, Condition
from zonebloom.engines.spark.scan.folded_rows import local_schema
from zonebloom.engines.spark.scan.schema import Layout
from zonebloom.errors import ColumnNotFoundError, DataFileError, UnsupportedTypeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType, StructType

    from zonebloom.engines.spark.pushdown.translate import Condition
    from zonebloom.engines.spark.pushdown.types import Judge
    from zonebloom.search.view import View

__all__ = ["BY_ID", "obstacle_of_driver", "obstacle_of_ranges"]

BY_ID = "Spark finds columns by their ids, and the index by their names"
_OWN_TYPE = "a column has a type that Spark makes in its own way"


def obstacle_of_driver(
    condition: Condition, schema: StructType, view: View, judge: Judge, paths: tuple[str, ...], *, hidden: bool
) -> str | None:
    """Why the driver's rows of `paths` might differ from Spark's.

    Parameters
    ----------
    schema
        Of Spark's plain read.
    hidden
        Whether Spark skips some files of the listing.
    """
    if not condition.is_local:
        return NOT_OF_COLUMNS
    if not paths:
        return None
    if hidden:
        return "the folder has files that Spark skips"
    if local_schema(schema, view.schema) is None:
        return _OWN_TYPE
    return misread(view, judge.names, paths)


def has_times(of: DataType) -> bool:
    """Whether a type is a date or a timestamp, or has one in it."""
    inner = [one.dataType for one in of] if hasattr(of, "fields") else []
    inner += [getattr(of, name) for name in ("elementType", "keyType", "valueType") if hasattr(of, name)]
    return of.typeName() in ("date", "timestamp", "timestamp_ntz") or any(map(has_times, inner))


def obstacle_of_ranges(
    condition: Condition, schema: StructType, view: View, judge: Judge, paths: tuple[str, ...], *, spark: SparkSession
) -> str | None:
    """Why what executors read of row ranges of `paths` might differ from what Spark reads."""
    if not condition.is_local:
        return NOT_OF_COLUMNS
    try:
        if Layout(view).schema(schema.names) != schema:
            return _OWN_TYPE
        if has_times(schema) and is_moving(spark, view, paths):
            return "Spark moves old dates to another calendar"
        return misread(view, judge.names, paths)
    except (ColumnNotFoundError, DataFileError, UnsupportedTypeError) as error:
        return str(error)
