"""`read`: the lake of a path, a table or a frame, and the reader of its files.

Design: docs/design/spark.md#reads, docs/design/spark.md#tables
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from zonebloom.engines.spark.catalog import Catalog, Place, check_is_read_by_spark
from zonebloom.engines.spark.pushdown.implied import explained
from zonebloom.engines.spark.scan.catalog_table import CatalogTable
from zonebloom.engines.spark.scan.lake import Asked, Lake
from zonebloom.engines.spark.scan.readers import RangeReader, Reader, SparkReader
from zonebloom.errors import InvalidArgumentError
from zonebloom.formats import ParquetDataset
from zonebloom.index import Index

_FILES_BY_PATH = "InMemoryFileIndex"
"""The listing that a plan names if it reads files by their paths, without the log of a table."""


def read(
    spark: SparkSession,
    path: Any,
    *,
    index: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    method: Asked = "auto",
    columns: Sequence[str] | None = None,
) -> Lake:
    """The data set at `path`. Its `.where(condition)` reads only rows that may match.

    The schema is that of `spark.read.parquet(path)` at this moment; files are listed for each query. One `Lake` serves
    any number of queries and threads, and retains the open index. The driver or executors read tables (without their
    deleted rows) and files in a store. Their schema has the columns of the index.

    Parameters
    ----------
    path
        The data set as it was given to `build_index`; a frame that is a plain scan of it; or a table of Spark's
        catalog, such as `db.events`, with its present files.
    index
        The place of the index, if it is not beside the data. Files of `path` that are not in it are read whole.
    storage_options
        Options of the library's stores.
    method
        `auto` chooses for each query; `driver`, `row_ranges`, `files` and `plain` force one way.
    columns
        Columns of the rows, in order; all by default.

    Raises
    ------
    IndexNotFoundError
        There is no index.
    InvalidArgumentError
        The data set is a Lance table, or a frame has other rows or columns than its files.
    ColumnNotFoundError
        There is no such column.

    Design: docs/design/spark.md#reads
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
    spark, source = catalog.spark, catalog.source(path)

    def reopen() -> Index:
        return catalog.opened(source, index)

    first = reopen()
    data = first.data
    check_is_read_by_spark(data)
    frame = source if hasattr(source, "inputFiles") else None
    table = None if frame is None else CatalogTable.of(frame)
    reader: Reader = RangeReader(spark)
    if isinstance(data, ParquetDataset) and not data.is_remote:
        reader = SparkReader(spark, data, table)
    lake = Lake(spark, first, reader, reopen, method=method, columns=columns, table=table, frame=frame)
    if frame is None:
        return lake
    if not isinstance(data, ParquetDataset) and _FILES_BY_PATH in explained(frame):
        raise InvalidArgumentError(
            "a frame of a table must be the table's own read, which leaves out deleted rows",
            got=f"a scan of the Parquet files of {data.location}",
            do="use read(path) with the path of the table",
        )
    if list(map(_typed, frame.schema)) != list(map(_typed, lake.full_schema)):
        raise InvalidArgumentError(
            f"a table to read must have the columns of its files, {lake.full_schema.simpleString():.200}",
            got=f"{frame.schema.simpleString():.200}",
            do="pass the path of the files",
        )
    if table is not None:
        lake.resolve = lambda: lake_of(catalog, spark.table(table.name), index, method=method)
    elif isinstance(reader, SparkReader):
        reader.check_plain_scan(frame, lake.full_schema)
    return lake


def _typed(field: Any) -> tuple[str, str]:
    return field.name, field.dataType.simpleString()
