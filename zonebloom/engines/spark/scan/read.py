"""The lake of a path, a table or a frame, and the reader of its files.

Design: docs/design/spark-reads.md#reads, docs/design/spark-reads.md#tables
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import StructField, StructType

from zonebloom.bloom.hashing import names_of
from zonebloom.engines.spark.catalog import Catalog, Place, check_is_read_by_spark
from zonebloom.engines.spark.executors import reads_by_id
from zonebloom.engines.spark.pushdown.translate import understand
from zonebloom.engines.spark.pushdown.types import Binder, Piece, UnboundError
from zonebloom.engines.spark.scan.catalog_table import CatalogTable
from zonebloom.engines.spark.scan.choice import BY_ID
from zonebloom.engines.spark.scan.lake import Asked, Lake
from zonebloom.engines.spark.scan.layout import Layout
from zonebloom.engines.spark.scan.readers import Reader, SparkReader, reader_of
from zonebloom.ground.errors import DataFileError, InvalidArgumentError
from zonebloom.index.index import Index
from zonebloom.search.query import Query
from zonebloom.search.result import SearchResult


def layout_of(catalog: Catalog, given: Any, index: Place = None) -> tuple[Layout, Reader]:
    """The listing of a path, a table or a frame, with its index, and the reader of its files.

    Raises
    ------
    InvalidArgumentError
        A frame, or a table of Spark's catalog, may have other rows or columns than its files.
    """
    source = catalog.named(given) if index is None else catalog.source(given)
    is_frame = hasattr(source, "inputFiles")
    table = CatalogTable.of(source) if is_frame else None
    opened = catalog.open(source, index)
    check_is_read_by_spark(opened.data, catalog.source(source))
    view, reader = opened.view(), reader_of(catalog.spark, opened.data, table)
    if is_frame:
        _check_frame(source, reader.schema(view), reader)
    return Layout(view), reader


def searched(layout: Layout, reader: Reader, given: str | Column) -> SearchResult:
    """The row ranges of the listed files that may match. The search runs now, on the driver.

    Design: docs/design/spark.md#row-ranges
    """
    spark, table, (schema, binder) = reader.spark, reader.table, _bound(layout, reader)
    template = spark.createDataFrame([], schema) if table is None else table.frame  # in which names may be qualified
    condition = understand(given, binder, template)
    predicate = Piece(condition.shown, BY_ID) if reads_by_id(spark, schema) else condition.predicate
    return Query(layout.view, predicate, own_filters=False).result


def column_as_stored(layout: Layout, reader: Reader, column: str) -> StructField:
    """The indexed `column` in Spark's type.

    Raises
    ------
    InvalidArgumentError
        Spark may read other values than the index has.
    """
    schema, binder = _bound(layout, reader)
    try:
        target = binder.target(binder.path(column))
        problem = BY_ID if reads_by_id(reader.spark, schema) else None
    except UnboundError as error:
        problem = str(error)
    if problem is not None:
        raise InvalidArgumentError(
            f"Spark must read column {column} as it is stored", got=problem, do="use read(path).where_in(column, keys)"
        )
    return StructField(column, target.spark)


def _bound(layout: Layout, reader: Reader) -> tuple[StructType, Binder]:
    """The columns of Spark's plain read, and their binder."""
    schema = _schema_in_spark(layout, reader)
    return schema, Binder(schema, layout.view, may_move=reader.table is not None and reader.table.is_partitioned)


def _schema_in_spark(layout: Layout, reader: Reader) -> StructType:
    """The columns of Spark's plain read; of files that Spark does not read, those that it knows."""
    if reader.table is not None:
        return reader.table.frame.schema
    if reader.is_native:
        with contextlib.suppress(PySparkException, DataFileError):
            return reader.schema(layout.view)
    return layout.readable


def lake_of(
    catalog: Catalog, path: Any, index: Place = None, *, method: Asked = "auto", columns: Sequence[str] | None = None
) -> Lake:
    """See `ZoneBloom.read`."""
    spark, source = catalog.spark, catalog.source(path)

    def reopen() -> Index:
        return catalog.opened(source, index)

    first = reopen()
    data = first.data
    check_is_read_by_spark(data, source)
    frame = source if hasattr(source, "inputFiles") else None
    table = None if frame is None else CatalogTable.of(frame)
    reader = reader_of(spark, data, table)
    lake = Lake(spark, first, reader, reopen, method, table, frame)
    if frame is not None:
        _check_frame(frame, lake.full_schema, reader)
        if table is not None:
            lake.resolve = lambda: lake_of(catalog, spark.table(table.name), index, method=method)
    return lake if columns is None else lake.select(names_of(columns))


def _check_frame(frame: DataFrame, schema: StructType, reader: Reader) -> None:
    """Refuse a frame with other rows or columns than a read of its files."""
    if frame.dtypes != [(field.name, field.dataType.simpleString()) for field in schema]:
        raise InvalidArgumentError(
            f"a table to read must have the columns of its files, {schema.simpleString():.200}",
            got=f"{frame.schema.simpleString():.200}",
            do="pass the path of the files",
        )
    if isinstance(reader, SparkReader) and reader.table is None:
        reader.check_plain_scan(frame, schema)
