"""The rule that chooses how a query is read, and why rows that the library reads might differ from Spark's.

If they might differ, Spark reads whole files by its own reader.

Spec: specs/spark.md#choice
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructType

from zonebloom.engines.spark.pushdown.calendars import is_moving
from zonebloom.engines.spark.pushdown.names import misread
from zonebloom.engines.spark.pushdown.translate import NOT_OF_COLUMNS, Condition
from zonebloom.engines.spark.pushdown.types import Binder
from zonebloom.engines.spark.scan.schema import Layout
from zonebloom.errors import ColumnNotFoundError, DataFileError, InvalidArgumentError, UnsupportedTypeError
from zonebloom.search.view import View

Method: TypeAlias = Literal["driver", "row_ranges", "candidates", "plain"]

DRIVER_ROWS = 1 << 18
DRIVER_FILES = 256
"""Files that the driver opens, at about 1 ms each (`bench/spark_files.py`, two cores); a job starts in 0.1 s."""
DRIVER_FILES_OF_STORES = 64
"""The same for tables and files in an object store: each file takes some requests, and the driver waits for them."""
DRIVER_BYTES = 512 << 20
CANDIDATE_FILES = 1024
"""Files that Spark is given by name: it looks for each; 512 of 2000 took 0.9 s (`bench/spark_choice.py`, two cores)."""
ROW_RANGES_PAY = 8
"""Read only the row ranges when they hold at most 1/8 of the rows of the candidate files."""
NARROWED_PAY = 2
"""The same for 1/2, if executors drop rows that do not match before they read other columns."""
SMALL_FILES = 32
"""Files that Spark lists in one scan. Of more files, if small, row ranges are faster (`bench/spark_files.py`)."""
SMALL_FILE_BYTES = 1 << 20
BY_ID = "Spark finds columns by their ids, and the index by their names"


@dataclass(frozen=True, slots=True)
class Kept:
    """Files, rows and bytes that the index retains."""

    files: int
    of_files: int
    rows: int
    rows_of_files: int
    """All rows of the files that may match."""
    is_narrowed: bool
    """Whether executors can check a part of the condition."""
    bytes: int
    """Compressed bytes of the row groups, all columns: an upper bound of what the driver reads."""
    of_bytes: int
    is_local: bool
    """Whether the columns of a row determine the condition."""
    obstacle: str | None
    """Why rows that the library reads might differ from Spark's."""
    lack: Callable[[], str | None]
    """Gives why executors cannot read; called only if executors would read."""


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
        `asked` is the driver or row ranges, whose rows might differ from Spark's.

    Spec: specs/spark.md#choice
    """
    if asked == "driver" and kept.obstacle is not None:
        raise InvalidArgumentError(f"the driver must read what Spark would read, got: {kept.obstacle}; use method auto")
    if asked == "row_ranges" and (obstacle := kept.obstacle or kept.lack()) is not None:
        raise InvalidArgumentError(f"executors must read what Spark would read, got: {obstacle}; use method auto")
    if not kept.is_local:
        return Choice("plain", str(kept.obstacle))
    if asked in ("auto", "candidates") and not kept.files:
        return Choice("driver", "no row can match, so nothing is read")
    if asked != "auto":
        return Choice(asked, "it was asked for")
    return _chosen(kept)


def _chosen(kept: Kept) -> Choice:
    is_little = kept.rows <= DRIVER_ROWS and kept.files <= DRIVER_FILES and kept.bytes <= DRIVER_BYTES
    if kept.obstacle is None and is_little:
        return Choice("driver", f"the driver reads {kept.rows:,} rows of {kept.files} files before a job would start")
    limits = "" if kept.obstacle is None else f"; Spark must read them: {kept.obstacle}"
    part = NARROWED_PAY if kept.is_narrowed else ROW_RANGES_PAY
    is_part = 0 < kept.rows * part <= kept.rows_of_files
    is_part |= kept.files > CANDIDATE_FILES and kept.bytes * ROW_RANGES_PAY <= kept.of_bytes
    is_part |= kept.files > SMALL_FILES and kept.bytes <= kept.files * SMALL_FILE_BYTES
    if is_part and kept.obstacle is None and kept.lack() is None:
        shown = f"{kept.rows:,} of the {kept.rows_of_files:,} rows of {kept.files} files"
        return Choice("row_ranges", f"executors read {shown}")
    if kept.files >= kept.of_files:
        return Choice("plain", f"every file may match{limits}")
    if kept.files <= CANDIDATE_FILES:
        return Choice("candidates", f"{kept.files} of {kept.of_files} files may match{limits}")
    return Choice("plain", f"{kept.files} of {kept.of_files} files may match, more than {CANDIDATE_FILES}{limits}")


# --- what only Spark reads right --------------------------------------------------------------------------------------


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
