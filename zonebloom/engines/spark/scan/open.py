"""Pruned reads: `read` for a path, a table or a frame, `prune` for a frame that is a plain scan.

A `ForeignLake` is a Delta or Iceberg table, or Parquet files in an object store, read without a JAR. Spark's Parquet
reader does not see deleted rows, mapped column names or partition values in a log. It opens a store's files with
Hadoop's settings and packages, not with `storage_options`. So it reads none of these files. The driver reads few rows;
tasks read the candidate row ranges. Of a table they read one version, without its deleted rows.

Spec: specs/spark.md#reads, specs/spark.md#tables
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from zonebloom.engines.spark.catalog import (
    Catalog,
    Place,
    check_batch,
    check_is_read_by_spark,
    place_of,
    place_of_table,
    table_of,
)
from zonebloom.engines.spark.pushdown.types import Piece
from zonebloom.engines.spark.scan.choice import DRIVER_FILES_OF_STORES, Choice, Kept, choose
from zonebloom.engines.spark.scan.row_ranges import read_rows
from zonebloom.engines.spark.scan.schema import Layout
from zonebloom.engines.spark.scan.table import Asked, Lake
from zonebloom.errors import InvalidArgumentError
from zonebloom.formats import ParquetDataset
from zonebloom.formats.table import TableDataset
from zonebloom.index import Index
from zonebloom.search.view import View


def read(
    spark: SparkSession,
    path: Any,
    *,
    index: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    method: Asked = "auto",
    columns: Sequence[str] | None = None,
) -> Lake:
    """The data set at `path`, whose `.where(condition)` reads only rows that may match.

    The schema is that of `spark.read.parquet(path)` at this moment; files are listed for each query. One `Lake` serves
    any number of queries and threads, and retains the open index. Tables, without their deleted rows, and files in a
    store are read by the driver or from candidate row ranges. Their schema has the columns of the index.

    Parameters
    ----------
    path
        The data set, as `build_index` was given it; a frame that is a plain scan of it; or a table of Spark's catalog,
        such as `db.events`, with its present files.
    index
        The place of the index, if it is not beside the data. Files of `path` that are not in it are read whole.
    storage_options
        Options of the library's stores.
    method
        `auto` chooses for each query; `driver`, `row_ranges`, `candidates` and `plain` force one way.
    columns
        Columns of the rows, in order; all by default.

    Raises
    ------
    IndexNotFoundError
        There is no index.
    InvalidArgumentError
        The data set is neither Parquet files nor a table, or a frame has other columns than its files.
    ColumnNotFoundError
        There is no such column.

    Spec: specs/spark.md#reads
    """
    return lake_of(Catalog(spark, None, storage_options), path, index, method=method, columns=columns)


def lake_of(
    catalog: Catalog,
    path: Any,
    index: Place = None,
    *,
    method: Asked = "auto",
    columns: Sequence[str] | None = None,
) -> Lake:
    """`read`, with the session and the options of `catalog`."""
    source = catalog.source(path)
    lake = _lake(catalog.spark, lambda: catalog.opened(source, index), method, columns)
    if hasattr(source, "inputFiles") and list(map(_typed, source.schema)) != list(map(_typed, lake.full_schema)):
        message = f"a table to read must have the columns of its files, {lake.full_schema.simpleString():.200}"
        raise InvalidArgumentError(f"{message}, got {source.schema.simpleString():.200}; pass the path of the files")
    if hasattr(source, "inputFiles") and not place_of_table(source) and not isinstance(lake, ForeignLake):
        _check_dates(lake, source)
    return lake


def _check_dates(lake: Lake, frame: DataFrame) -> None:
    """Refuse a frame whose options may move dates; other reads of the files would give other rows.

    Raises
    ------
    InvalidArgumentError
        The table of Spark's catalog has an option such as `datetimeRebaseMode`, or another frame has any option.
    """
    if not re.search("date|timestamp", frame.schema.simpleString()):
        return
    table = table_of(frame)
    if table is None:
        lake.check_plain_scan(frame)
        return
    for described in frame.sparkSession.sql(f"DESCRIBE EXTENDED {table}").collect():
        if described[0] == "Storage Properties" and "rebasemode" in described[1].lower():
            message = "a table to read must have its dates as in its files, got options that move them"
            raise InvalidArgumentError(f"{message}: {described[1]:.200}; query the table by spark.sql")


def _typed(field: Any) -> tuple[str, str]:
    return field.name, field.dataType.simpleString()


def _lake(spark: SparkSession, reopen: Callable[[], Index], method: Asked, columns: Sequence[str] | None) -> Lake:
    """The lake of an index."""
    first = reopen()
    check_is_read_by_spark(first.data)
    if isinstance(first.data, ParquetDataset) and not first.data.is_remote:
        return Lake(spark, first, first.data, reopen, method=method, columns=columns)
    if isinstance(first.data, (ParquetDataset, TableDataset)):
        data = cast("ParquetDataset", first.data)
        return ForeignLake(spark, first, data, reopen, method=method, columns=columns)
    kind = type(first.data).__name__
    message = f"the data set must be Parquet files, or a table, got {kind}"
    raise InvalidArgumentError(f'{message}; read it with spark.read.format("zonebloom")')


def prune(catalog: Catalog, frame: DataFrame, condition: str | Column, index: Place = None) -> DataFrame:
    """The rows of `frame` where `condition`, read as by `read`; `frame` must be a plain scan of the data set.

    A plain scan is what `spark.read.parquet(path)` gives: Spark itself compares the two. The result is a new read, so
    name its columns by `col(name)`, not by `frame`.

    Raises
    ------
    InvalidArgumentError
        `frame` is not a plain scan: it has other columns, a filter, a join or options.

    Spec: specs/spark.md#prune
    """
    check_batch(frame)
    place = catalog.place(index) or place_of(frame)
    lake = _lake(catalog.spark, lambda: catalog.opened(place), "auto", None)
    lake.check_plain_scan(frame)
    plan = lake.plan(condition, template=frame)
    if isinstance(plan.condition.predicate, Piece):  # its columns may be those of `frame`
        return plan.condition.filtered(frame)
    return lake.by(plan).frame


class ForeignLake(Lake):
    """A data set that only the library reads, with its index; `where` reads the candidate row ranges of that moment.

    `candidates` means `row_ranges`.
    """

    def _schema_of(self, view: View) -> StructType:
        """The columns of the index, in the types of Spark's Parquet reader."""
        return Layout(view).schema()

    def _whole(self, view: View, schema: StructType) -> DataFrame:
        return read_rows(self.spark, Layout(view), view.universe, schema)

    def check_plain_scan(self, frame: DataFrame) -> None:
        """Refuse any frame: Spark's own scan cannot be compared with what is read here.

        Raises
        ------
        InvalidArgumentError
            Always.
        """
        names = ", ".join(frame.columns)[:200]
        message = f"a frame to prune must scan Parquet files of this machine, got columns {names} of a table or a store"
        raise InvalidArgumentError(f"{message}; use read(place).where(condition)")

    def _is_seen(self, view: View) -> Callable[[str], bool]:
        return view.listing.__contains__

    def _obstacle(self, *_: Any) -> None:
        """None: there is no other way to read."""

    def _choose(self, kept: Kept, asked: Asked) -> Choice:
        if not kept.is_local:  # only Spark's own reader could evaluate it
            message = "a condition on a table, or on files in a store, must be determined by its columns"
            advice = "leave out what depends on how a row is read, and names that are no columns"
            raise InvalidArgumentError(f"{message}, got one that is not; {advice}")
        if asked in ("driver", "plain"):
            return choose(kept, asked)
        found = choose(kept, "auto")
        if asked == "auto" and found.method == "driver" and kept.files <= DRIVER_FILES_OF_STORES:
            return found
        return Choice("row_ranges", f"executors read {kept.rows:,} rows of {kept.files} of {kept.of_files} files")
