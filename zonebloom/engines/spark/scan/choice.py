"""Chooses how a query is read, and checks whether the library's rows might differ from Spark's.

If the rows might differ, Spark reads whole files by its own reader.

Design: docs/design/spark-reads.md#choice
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from zonebloom.engines.spark.executors import is_connect, setting
from zonebloom.engines.spark.pushdown.calendars import has_times, is_moving
from zonebloom.engines.spark.pushdown.metadata import altered_column, has_maps
from zonebloom.engines.spark.pushdown.names import misread
from zonebloom.engines.spark.pushdown.translate import NOT_OF_COLUMNS, Condition
from zonebloom.engines.spark.pushdown.types import Binder
from zonebloom.engines.spark.scan.layout import Layout
from zonebloom.engines.spark.scan.types import nullable_type
from zonebloom.ground.errors import ColumnNotFoundError, DataFileError, InvalidArgumentError, UnsupportedTypeError
from zonebloom.search.view import View

Method: TypeAlias = Literal["driver", "row_ranges", "files", "plain"]

DRIVER_FILES = 256
"""Files that the driver opens, at about 1 ms each (`bench/spark_files.py`, two cores); a job starts in 0.1 s.

A file of a table or a store takes some requests, so the driver opens a quarter of them.
"""
DRIVER_ROWS = 1 << 20
"""Rows that the driver checks: it was the fastest up to 4 million on two cores (`bench/spark_choice.py`)."""
DRIVER_BYTES = 512 << 20
"""Compressed bytes of row groups that the driver may have to read."""
MOST_FILES = 1024
"""Files at most that Spark gets by name: it looks up each, in 2 ms (`bench/spark_files.py`, two cores)."""
DRIVER_ROW_BYTES = 64 << 20
"""Bytes of rows, in Arrow, that the driver holds. Spark's heap, of 1 GiB by default, needs some times as much."""
TOO_WIDE = f"more than {DRIVER_ROW_BYTES:,} bytes"
MAPS_ANEW = "a column with maps, which Spark Connect makes anew"
"""Of two entries with one key it keeps one or raises an error, and -0.0 as a key becomes 0.0."""
BY_ID = "Spark finds columns by their ids, and the index by their names"


@dataclass(frozen=True, slots=True)
class Kept:
    """Files, rows and bytes that the index retains."""

    files: int
    of_files: int
    rows: int
    of_rows: int
    bytes: int
    """Compressed bytes of the row groups, all columns: an upper bound of what the driver reads."""
    is_local: bool
    """Whether the columns of a row determine the condition."""
    obstacle: str | None
    """The reason why the library's rows might differ from Spark's."""
    lack: Callable[[], str | None]
    """Returns the reason why executors cannot read; called only if executors would read."""
    is_native: bool = True
    """Whether Spark's own reader gives these rows; otherwise only the library reads the files."""
    driver_lack: str | None = None
    """The reason why the driver cannot hand these rows to Spark as they are."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A way to read, and why."""

    method: Method
    why: str


def choose(kept: Kept, asked: Literal["auto"] | Method) -> Choice:
    """The way to read what is kept.

    Raises
    ------
    InvalidArgumentError
        `asked` is the driver or row ranges, and the rows might differ from Spark's. Or only Spark's own reader can
        evaluate the condition, but it cannot read the files.

    Design: docs/design/spark-reads.md#choice
    """
    if not kept.is_local and not kept.is_native:
        raise InvalidArgumentError(
            "a condition on a table, or on files in a store, must be determined by its columns",
            got="one that is not",
            do="leave out what depends on how a row is read, and names that are no columns",
        )
    if kept.is_local and not kept.files and asked != "plain":
        return Choice("driver", "no row can match, so nothing is read")
    if asked == "driver" and kept.obstacle is not None:
        raise InvalidArgumentError(
            "the driver must read what Spark would read", got=kept.obstacle, do="use method auto"
        )
    if asked == "driver" and kept.driver_lack is not None:
        raise InvalidArgumentError(
            "the driver must be able to hand the rows to Spark", got=kept.driver_lack, do="use method auto"
        )
    if asked == "row_ranges" and kept.is_native and (obstacle := kept.obstacle or kept.lack()) is not None:
        raise InvalidArgumentError("executors must read what Spark would read", got=obstacle, do="use method auto")
    if not kept.is_local:
        return Choice("plain", str(kept.obstacle))
    if asked == "files" and not kept.is_native:
        return Choice("row_ranges", "Spark itself does not read these files")
    return _chosen(kept) if asked == "auto" else Choice(asked, "it was asked for")


def _chosen(kept: Kept) -> Choice:
    shown = f"{kept.files:,} of {kept.of_files:,} files"
    most = DRIVER_FILES if kept.is_native else DRIVER_FILES // 4
    is_little = kept.files <= most and kept.rows <= DRIVER_ROWS and kept.bytes <= DRIVER_BYTES
    if kept.obstacle is None and kept.driver_lack is None and is_little:
        return Choice("driver", f"the driver reads {kept.rows:,} rows of {shown} before a job would start")
    is_part = kept.rows * 2 <= kept.of_rows and kept.obstacle is None
    if not kept.is_native or (is_part and kept.lack() is None):
        return Choice("row_ranges", f"executors read {kept.rows:,} of {kept.of_rows:,} rows, of {shown}")
    limits = "" if kept.obstacle is None else f"; Spark must read them: {kept.obstacle}"
    if kept.files >= kept.of_files:
        return Choice("plain", f"every file may match{limits}")
    if kept.files <= MOST_FILES:
        return Choice("files", f"{shown} may match{limits}")
    return Choice("plain", f"{shown} may match, more than {MOST_FILES:,}{limits}")


def lack_of_driver(spark: SparkSession, schema: StructType) -> str | None:
    """The reason why the driver cannot hand rows of `schema` to Spark as they are; None if it can."""
    return MAPS_ANEW if is_connect(spark) and has_maps(schema) else None


# --- rows that only Spark's reader gives ------------------------------------------------------------------------------


def obstacle_of_rows(
    condition: Condition, schema: StructType, view: View, binder: Binder, paths: tuple[str, ...], *, spark: SparkSession
) -> str | None:
    """The reason why the library's rows of `paths` might differ from Spark's; None if they cannot.

    Parameters
    ----------
    schema
        The columns to read, as Spark's plain read has them.
    """
    if not condition.is_local:
        return NOT_OF_COLUMNS
    if not paths:
        return None
    if setting(spark, "spark.sql.files.ignoreCorruptFiles") == "TRUE":
        return "Spark skips files that it cannot read"
    try:
        if altered := altered_column(schema):
            return f"Spark may alter column {altered}"
        own_schema = Layout(view).schema(schema.names)
        pairs = (
            (field, nullable_type(field.dataType), nullable_type(its.dataType))
            for field, its in zip(schema, own_schema, strict=True)
        )
        other = next((field.name for field, spark_type, its in pairs if spark_type != its), None)
        if other is not None:
            return f"column {other} has another type in Spark than in the library"
        if has_times(schema) and is_moving(spark, view, paths):
            return "Spark moves old dates to another calendar"
        return misread(view, binder.names, paths)
    except (ColumnNotFoundError, DataFileError, UnsupportedTypeError) as error:
        return str(error)
