"""Why rows that the library reads might differ from Spark's rows.

If there is a reason, Spark reads whole files by its own reader.

Spec: specs/spark.md#driver
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zonebloom.engines.spark.pushdown.calendars import is_moving
from zonebloom.engines.spark.pushdown.names import misread
from zonebloom.engines.spark.pushdown.translate import NOT_OF_COLUMNS, Condition
from zonebloom.engines.spark.scan.schema import Layout
from zonebloom.errors import ColumnNotFoundError, DataFileError, UnsupportedTypeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType, StructType

    from zonebloom.engines.spark.pushdown.types import Binder
    from zonebloom.search.view import View

__all__ = ["BY_ID", "obstacle_of_rows"]

BY_ID = "Spark finds columns by their ids, and the index by their names"


def obstacle_of_rows(
    condition: Condition, schema: StructType, view: View, binder: Binder, paths: tuple[str, ...], *, spark: SparkSession
) -> str | None:
    """Why the library's rows of `paths` might differ from Spark's; None if they cannot.

    Parameters
    ----------
    schema
        The columns to read, as Spark's plain read has them.
    """
    if not condition.is_local:
        return NOT_OF_COLUMNS
    if not paths:
        return None
    try:
        made = Layout(view).schema(schema.names)
        other = next((one.name for one, its in zip(schema, made, strict=True) if one != its), None)
        if other is not None:
            return f"column {other} has another type in Spark than in the library"
        if has_times(schema) and is_moving(spark, view, paths):
            return "Spark moves old dates to another calendar"
        return misread(view, binder.names, paths)
    except (ColumnNotFoundError, DataFileError, UnsupportedTypeError) as error:
        return str(error)


def has_times(of: DataType) -> bool:
    """Whether a type is or contains a date or a timestamp."""
    inner = [one.dataType for one in of] if hasattr(of, "fields") else []
    inner += [getattr(of, name) for name in ("elementType", "keyType", "valueType") if hasattr(of, name)]
    return of.typeName() in ("date", "timestamp", "timestamp_ntz") or any(map(has_times, inner))
