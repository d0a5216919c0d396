"""The lake of a path, a table or a frame, and the reader of its files.

Design: docs/design/spark-reads.md#reads, docs/design/spark-reads.md#tables
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from zonebloom.engines.spark.catalog import Catalog, Place, check_is_read_by_spark
from zonebloom.engines.spark.pushdown.implied import explained
from zonebloom.engines.spark.scan.catalog_table import CatalogTable
from zonebloom.engines.spark.scan.lake import Asked, Lake
from zonebloom.engines.spark.scan.layout import Layout
from zonebloom.engines.spark.scan.readers import RangeReader, Reader, SparkReader
from zonebloom.errors import InvalidArgumentError
from zonebloom.formats import ParquetDataset
from zonebloom.index.index import Index

_FILES_BY_PATH = "InMemoryFileIndex"
"""The listing that a plan names if it reads files by their paths, without the log of a table."""


def layout_of(catalog: Catalog, given: Any, index: Place = None) -> tuple[Layout, CatalogTable | None]:
    """The listing of a path, a table or a frame, with its index, and the table of Spark's catalog, if it is one.

    Raises
    ------
    InvalidArgumentError
        Spark may read other rows of a table of its catalog than of its files.
    """
    source = catalog.named(given) if index is None else catalog.source(given)
    table = CatalogTable.of(source) if hasattr(source, "inputFiles") else None
    return Layout(catalog.view(source, index)), table


def lake_of(
    catalog: Catalog, path: Any, index: Place = None, *, method: Asked = "auto", columns: Sequence[str] | None = None
) -> Lake:
    """See `ZoneBloom.read`."""
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
    lake = Lake(spark, first, reader, reopen, method, table, frame)
    if frame is not None:
        _check_frame(frame, lake.full_schema, reader, data)
        if table is not None:
            lake.resolve = lambda: lake_of(catalog, spark.table(table.name), index, method=method)
    return lake if columns is None else lake.select([columns] if isinstance(columns, str) else list(columns))


def _check_frame(frame: DataFrame, schema: StructType, reader: Reader, data: Any) -> None:
    """Refuse a frame with other rows or columns than a read of its files."""
    if not isinstance(data, ParquetDataset) and _FILES_BY_PATH in explained(frame):
        raise InvalidArgumentError(
            "a frame of a table must be the table's own read, which leaves out deleted rows",
            got=f"a scan of the Parquet files of {data.location}",
            do="use read(path) with the path of the table",
        )
    if frame.dtypes != [(field.name, field.dataType.simpleString()) for field in schema]:
        raise InvalidArgumentError(
            f"a table to read must have the columns of its files, {schema.simpleString():.200}",
            got=f"{frame.schema.simpleString():.200}",
            do="pass the path of the files",
        )
    if isinstance(reader, SparkReader) and reader.table is None:
        reader.check_plain_scan(frame, schema)
