"""Pruned reads: `read` for a path, a table or a frame, `prune` for a frame that is a plain scan.

Spec: specs/spark.md#reads
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from zonebloom.engines.spark.inputs import check_batch, check_is_read_by_spark, opened, place_of, source_of
from zonebloom.engines.spark.pushdown.types import Piece
from zonebloom.engines.spark.scan.table import Asked, Lake, Plan, PrunedRead
from zonebloom.errors import InvalidArgumentError
from zonebloom.formats import ParquetDataset
from zonebloom.formats.table import TableDataset

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
    source = source_of(spark, path)

    def reopened() -> Index:
        return opened(source, index, storage_options)

    lake = _lake(spark, reopened, method, columns)
    if hasattr(source, "inputFiles") and list(map(_typed, source.schema)) != list(map(_typed, lake.full_schema)):
        message = f"a table to read must have the columns of its files, {lake.full_schema.simpleString():.200}"
        raise InvalidArgumentError(f"{message}, got {source.schema.simpleString():.200}; pass the path of the files")
    return lake


def _typed(field: Any) -> tuple[str, str]:
    return field.name, field.dataType.simpleString()


def lake_of_scan(
    spark: SparkSession, frame: DataFrame, *, index: str | None, storage_options: Mapping[str, str] | None
) -> Lake:
    """The data set that `frame` scans, if it is a plain scan.

    Raises
    ------
    IndexNotFoundError
        There is no index.
    InvalidArgumentError
        `frame` is not a plain scan.
    """
    place = place_of(frame) if index is None else index
    lake = _lake(spark, lambda: opened(place, None, storage_options), "auto", None)
    lake.check_plain_scan(frame)
    return lake


def _lake(spark: SparkSession, reopen: Any, method: Asked, columns: Sequence[str] | None) -> Lake:
    """The lake of an index."""
    first = reopen()
    check_is_read_by_spark(first.data)
    if isinstance(first.data, ParquetDataset) and not first.data.is_remote:
        return Lake(spark, first, first.data, reopen, method=method, columns=columns)
    if isinstance(first.data, (ParquetDataset, TableDataset)):
        from zonebloom.engines.spark.scan.row_range_table import ForeignLake  # noqa: PLC0415 - only for those

        return ForeignLake(spark, first, reopen, method=method, columns=columns)
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
    lake = lake_of_scan(spark, frame, index=index, storage_options=storage_options)
    plan = lake.plan(condition, template=frame)
    if isinstance(plan.condition.predicate, Piece):  # its columns may be those of `frame`
        return plan.condition.filtered(frame)
    return lake.by(plan).frame
