"""The old calendar: Spark 2 wrote dates before 1582 as Julian, and marked its files in the footer.

Spark's own reader converts such values to the new calendar. The library and the index have the written bytes. A file
without such values is read like any other.

Design: docs/design/spark.md#source-tasks
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from zonebloom.engines.spark.executors import setting
from zonebloom.engines.spark.pushdown.metadata import nested_types
from zonebloom.formats.parquet.file import open_parquet
from zonebloom.ground.arrow import compute as pc
from zonebloom.ground.errors import DataFileError

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

    from zonebloom.search.view import View

_VERSION = b"org.apache.spark.version"
_MARKS = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_NEW = (3, 1)
"""The first version of Spark that marks files in the old calendar."""
_NUM_FOOTERS = 32
FIRST_DATE: Final = dt.date(1582, 10, 15)
"""In a file of an old writer Spark moves dates before this one to another calendar. A moved date stays before it."""
FIRST_TIME: Final = dt.datetime(1900, 1, 1)  # noqa: DTZ001 - in UTC
"""Spark moves timestamps before this one."""
SURE_TIME: Final = dt.datetime(1901, 1, 1)  # noqa: DTZ001 - in any zone
"""Spark moved no timestamp from here on, in any time zone: a year after `FIRST_TIME`."""


def is_old_writer(metadata: FileMetaData, *, unmarked: bool = False) -> bool:
    """Whether the footer marks dates and times as written in the old calendar; `unmarked` if Spark did not write it."""
    pairs = metadata.metadata or {}
    version = pairs.get(_VERSION)
    if version is None:
        return unmarked
    if any(mark in pairs for mark in _MARKS):
        return True
    numbers = version.decode("utf-8", "replace").split(".")[:2]
    return not all(number.isdecimal() for number in numbers) or tuple(map(int, numbers)) < _NEW


def check_calendar(table: pa.Table, path: str) -> None:
    """Refuse rows of the file at `path`, from an old writer, if Spark would move a date or time in them.

    Raises
    ------
    DataFileError
        Spark would move a value.
    """
    for name in table.column_names:
        if has_old(table[name], FIRST_TIME):
            raise DataFileError(
                f"column {name} of {path} must have no dates before 1582-10-15 and no times before 1900",
                got="some in the calendar of Spark 2",
                do="read it with spark.read.parquet, or write it again",
            )


def is_moving(spark: SparkSession, view: View, paths: Sequence[str]) -> bool:
    """Whether Spark may move or refuse old dates and times.

    It moves by a setting, or if an old writer wrote one of the first `paths`. With EXCEPTION, the default before
    Spark 4, it refuses them in files that other writers wrote.

    For the files that were not checked, a task refuses rows that Spark would move.
    """
    if is_moving_by_setting(spark):
        return True
    for path in paths[:_NUM_FOOTERS]:
        with open_parquet(view.dataset, path, view.listing[path]) as data:
            if is_old_writer(data.metadata, unmarked="EXCEPTION" in _modes(spark)):
                return True
    return False


def has_times(of: DataType) -> bool:
    """Whether a type, or one within it, is of dates or timestamps."""
    return any(inner.typeName() in ("date", "timestamp", "timestamp_ntz") for inner in nested_types(of))


def is_moving_by_setting(spark: SparkSession) -> bool:
    """Whether a setting makes Spark move dates and times of files without a mark."""
    is_converting = setting(spark, "spark.sql.parquet.int96TimestampConversion") == "TRUE"
    return is_converting or not _modes(spark) <= {"CORRECTED", "EXCEPTION"}


def _modes(spark: SparkSession) -> set[str]:
    return {setting(spark, f"spark.sql.parquet.{kind}RebaseModeInRead") for kind in ("datetime", "int96")}


def are_old(values: Any, first_time: dt.datetime = SURE_TIME) -> Any:
    """For each date whether it is before `FIRST_DATE`, for each timestamp whether it is before `first_time`."""
    is_date = pa.types.is_date(values.type)
    bound = pa.scalar(FIRST_DATE if is_date else first_time, pa.date32() if is_date else pa.timestamp("us"))
    return pc.less(values, bound.cast(values.type))


def has_old(column: pa.ChunkedArray, first_time: dt.datetime = SURE_TIME) -> bool:
    """Whether `column` has a date before `FIRST_DATE`, or a timestamp before `first_time`, at any depth."""
    of = column.type
    if pa.types.is_date(of) or pa.types.is_timestamp(of):
        return bool(are_old(pc.min(column), first_time).as_py())
    if pa.types.is_struct(of):
        return any(has_old(pc.struct_field(column, [number]), first_time) for number in range(of.num_fields))
    if pa.types.is_map(of):
        keys = pa.chunked_array([chunk.keys for chunk in column.chunks], of.key_type)
        items = pa.chunked_array([chunk.items for chunk in column.chunks], of.item_type)
        return has_old(keys, first_time) or has_old(items, first_time)
    is_list = pa.types.is_list(of) or pa.types.is_large_list(of)
    return is_list and has_old(pc.list_flatten(column), first_time)
