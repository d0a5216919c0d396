"""Pruned reads: `read` for a path, `prune` for a frame that is a plain scan.

Spec: specs/spark.md#reads
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from zonebloom.datasets import ParquetDataset
from zonebloom.errors import InvalidArgumentError
from zonebloom.spark.frames import common_folder, files_of
from zonebloom.spark.lake import Asked, Lake, Plan, PrunedRead
from zonebloom.spark.listing import open_index

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["Asked", "Lake", "Plan", "PrunedRead", "place_of", "prune", "read"]


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
    any number of queries and threads, and keeps the index open.

    Parameters
    ----------
    path
        The data set, as `build_index` was given it.
    index
        The place of the index, if it is not beside the data.
    storage_options
        For the library's stores.
    method
        `auto` chooses for each query; `driver`, `candidates`, `exclusion` and `plain` force one way.

    Raises
    ------
    IndexNotFoundError
        There is no index.
    InvalidArgumentError
        The index is of other data, or of a table format that Spark's Parquet reader does not read.

    Spec: specs/spark.md#reads
    """
    place = index if index is not None else path
    if not isinstance(place, str) and not hasattr(place, "__fspath__"):
        raise InvalidArgumentError(f"an index of a list of files must be named by index=, got {place!r:.80}")
    opened = open_index(str(place), storage_options)
    if not isinstance(opened.dataset, ParquetDataset):
        kind = type(opened.dataset).__name__
        message = f"the data set must be Parquet files, got {kind}"
        raise InvalidArgumentError(f'{message}; read it with spark.read.format("zonebloom")')
    return Lake(spark, opened, opened.dataset, lambda: open_index(str(place), storage_options), method)


def prune(
    spark: SparkSession,
    frame: DataFrame,
    condition: str | Column,
    *,
    index: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """`frame` where `condition`, without the files that cannot match; `frame` must be a plain scan of the data set.

    A plain scan is what `spark.read.parquet(path)` gives, and nothing more: Spark itself compares the two. A frame
    keeps the listing that it was made with, so prune it and use it: of a file that is overwritten after this call,
    rows may be missing. `read(...).where(...)` lists afresh, and has faster ways.

    Raises
    ------
    InvalidArgumentError
        `frame` is anything else: it has other columns, a filter, a join, options.

    Spec: specs/spark.md#prune
    """
    lake = read(spark, place_of(frame), index=index, storage_options=storage_options)
    lake.check_plain_scan(frame)
    plan = lake.plan(condition, method="exclusion", template=frame)
    return lake.excluded(frame, plan)


def place_of(frame: DataFrame) -> str:
    """The folder of the files that `frame` scans, or its one file."""
    files = files_of(frame)
    return files[0] if len(files) == 1 else common_folder(files)
