"""The lake of a path, a table or a frame, and the reader of its files.

Design: docs/design/spark-reads.md#reads, docs/design/spark-reads.md#tables
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from zonebloom.bloom.hashing import names_of
from zonebloom.engines.spark.catalog import Catalog, Place, check_is_read_by_spark
from zonebloom.engines.spark.frames import files_of
from zonebloom.engines.spark.scan.catalog_table import CatalogTable
from zonebloom.engines.spark.scan.lake import Asked, Lake
from zonebloom.engines.spark.scan.layout import Layout
from zonebloom.engines.spark.scan.readers import SparkReader, reader_of
from zonebloom.formats import ParquetDataset, open_dataset
from zonebloom.ground.errors import DataFileError, InvalidArgumentError, UnsupportedTypeError, first_line


def lake_to_search(catalog: Catalog, given: Any, index: Place = None) -> Lake:
    """As `lake_of`, also of a data set with columns that Spark does not read.

    Raises
    ------
    InvalidArgumentError
        Spark may read other files.
    """
    lake = lake_of(catalog, given, index)
    lake.resolve = None  # it is used for this call only
    if lake.reader.other_files is not None:
        raise InvalidArgumentError(
            "Spark must read the files that zonebloom lists", got=lake.reader.other_files, do="reset the setting"
        )
    _leave_out_unread(lake)
    return lake


def _leave_out_unread(lake: Lake) -> None:
    """Give the lake only the columns that Spark reads, if it does not read all."""
    try:
        lake.present()
    except (PySparkException, DataFileError, UnsupportedTypeError):
        lake._full_schema = Layout(lake._index.view()).readable  # noqa: SLF001 - of its package


def lake_of(
    catalog: Catalog, path: Any, index: Place = None, *, method: Asked = "auto", columns: Sequence[str] | None = None
) -> Lake:
    """See `ZoneBloom.read`."""
    spark, (source, place) = catalog.spark, catalog.resolved(path, index)
    first = catalog.opened(source, place)
    data, frame = first.data, source if isinstance(source, DataFrame) else None
    check_is_read_by_spark(data, source)
    table = None if frame is None else CatalogTable.of(frame)
    reader, is_scan = reader_of(spark, data, table), True
    if frame is not None and table is None and isinstance(reader, SparkReader):
        is_scan = reader.is_plain_scan(frame)
        if not is_scan and reader.dataset.layout == "folder":
            reader = SparkReader(spark, cast("ParquetDataset", open_dataset(files_of(frame))))
            is_scan = reader.is_plain_scan(frame)
    lake = Lake(spark, first, reader, method, table, frame)
    if frame is not None:
        _check_frame(frame, lake, is_scan=is_scan)
        name = path if table is None else table.name  # a table's name has its catalog and database
        if isinstance(name, str):
            lake.resolve = lambda: lake_of(catalog, _named_again(spark, name, table), place, method=method)
    if columns is None:
        return lake
    _leave_out_unread(lake)
    return lake.select(names_of(columns))


def _named_again(spark: SparkSession, name: str, table: CatalogTable | None) -> DataFrame:
    """The frame that a view's or table's name has now; raises if a view's name is of a table by now."""
    frame = spark.table(name)
    if table is None and CatalogTable.of(frame) is not None:
        raise InvalidArgumentError(f"{name} must be the view that was read", got="a table", do="read it again")
    return frame


def _check_frame(frame: DataFrame, lake: Lake, *, is_scan: bool) -> None:
    """Refuse a frame with other rows or columns than a read of its files."""
    try:
        schema = lake.full_schema
    except PySparkException as error:  # such as of a partition that lies in other key=value folders
        raise InvalidArgumentError(
            "the files of a table must be read by their paths, too",
            got=first_line(error),
            do="use sql, which prunes the rest",
        ) from error
    if frame.dtypes != [(field.name, field.dataType.simpleString()) for field in schema]:
        raise InvalidArgumentError(
            f"a table to read must have the columns of its files, {schema.simpleString():.200}",
            got=f"{frame.schema.simpleString():.200}",
            do="pass the path of the files, or read files in key=value folders with the option basePath",
        )
    if not is_scan:
        raise InvalidArgumentError(
            "a frame to read must be the plain scan spark.read.parquet(path) of the indexed data, or of files by name",
            got=f"columns {', '.join(frame.columns)[:200]} derived from it or read otherwise",
            do="use read(path).where(condition), and derive from what that gives",
        )
