"""Pruned reads: `read` for a path, `prune` for a frame that is a plain scan.

Spec: specs/spark.md#reads
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from zonebloom.engines.spark.inputs import check_is_read_by_spark, place_of
from zonebloom.engines.spark.pushdown.types import Piece
from zonebloom.engines.spark.scan.table import Asked, Lake, Plan, PrunedRead
from zonebloom.errors import InvalidArgumentError
from zonebloom.formats import ParquetDataset
from zonebloom.formats.table import TableDataset
from zonebloom.index import open_index

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from zonebloom.index import Index

__all__ = ["Asked", "Lake", "Plan", "PrunedRead", "lake_of_scan", "prune", "read"]


def read(
    spark: SparkSession,
    path: Any,
    *,
    index: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    method: Asked = "auto",
) -> Lake:
    """The data set at `path`, to be read with `.where(condition)`: what cannot match is not read, and nothing else.

    The schema is that of `spark.read.parquet(path)` at this moment; files are listed for each query. One `Lake` serves
    any number of queries and threads, and keeps the index open. A table, without its deleted rows, and files in a store
    are read by the driver or from candidate row ranges; there the schema has the columns that the index knows.

    Parameters
    ----------
    path
        The data set, as `build_index` was given it; a table of a catalog is read as the object stands for it.
    index
        The place of the index, if it is not beside the data. Files of `path` that it does not know are read whole.
    storage_options
        For the library's stores.
    method
        `auto` chooses for each query; `driver`, `row_ranges`, `candidates` and `plain` force one way.

    Raises
    ------
    IndexNotFoundError
        There is no index.
    InvalidArgumentError
        The data set is neither Parquet files nor a table.

    Spec: specs/spark.md#reads
    """
    if hasattr(path, "inputFiles"):
        message = "a data set to read must be a path or a table, got a DataFrame"
        raise InvalidArgumentError(f"{message}; use prune(frame, condition), or the path")
    if index is None and isinstance(path, (str, os.PathLike)):
        return _lake(spark, os.fspath(path), None, storage_options, method)
    place = place_of(path) if index is None else index
    return _lake(spark, place, path, storage_options, method)  # as it is given: a version of its own maybe, or moved


def lake_of_scan(
    spark: SparkSession, frame: DataFrame, *, index: str | None, storage_options: Mapping[str, str] | None
) -> Lake:
    """The data set that `frame` scans, if it is a plain scan.

    Raises
    ------
    IndexNotFoundError
        There is no index.
    InvalidArgumentError
        `frame` is anything else.
    """
    lake = _lake(spark, place_of(frame) if index is None else index, None, storage_options, "auto")
    lake.check_plain_scan(frame)
    return lake


def _lake(
    spark: SparkSession, place: str, given: Any, storage_options: Mapping[str, str] | None, method: Asked
) -> Lake:
    """The index at `place` with its data set, or with the one that is `given`."""

    def opened() -> Index:
        return open_index(place, storage_options=storage_options, dataset=given)

    first = opened()
    check_is_read_by_spark(first.data)
    if isinstance(first.data, ParquetDataset) and not first.data.is_remote:
        return Lake(spark, first, first.data, opened, method)
    if isinstance(first.data, (ParquetDataset, TableDataset)):
        from zonebloom.engines.spark.scan.row_range_table import ForeignLake  # noqa: PLC0415 - only for those

        return ForeignLake(spark, first, opened, method)
    kind = type(first.data).__name__
    message = f"the data set must be Parquet files, or a table, got {kind}"
    raise InvalidArgumentError(f'{message}; read it with spark.read.format("zonebloom")')


def prune(
    spark: SparkSession,
    frame: DataFrame,
    condition: str | Column,
    *,
    index: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The rows of `frame` where `condition`, as `read` reads them; `frame` must be a plain scan of the data set.

    A plain scan is what `spark.read.parquet(path)` gives, and nothing more: Spark itself compares the two. The data set
    is listed afresh, so name the columns of the result by `col(name)`, not as those of `frame`.

    Raises
    ------
    InvalidArgumentError
        `frame` is anything else: it has other columns, a filter, a join, options.

    Spec: specs/spark.md#prune
    """
    lake = lake_of_scan(spark, frame, index=index, storage_options=storage_options)
    plan = lake.plan(condition, template=frame)
    if isinstance(plan.condition.predicate, Piece):  # and the columns that it names may be those of `frame`
        return plan.condition.filtered(frame)
    return lake.by(plan).frame
