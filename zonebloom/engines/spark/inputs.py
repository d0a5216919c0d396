"""The files that a DataFrame scans, if it is a plain scan of Parquet files or of a Delta or Iceberg table.

Spec: specs/spark.md#frames
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from zonebloom.engines.spark.pushdown.implied import explained
from zonebloom.errors import IndexNotFoundError, InvalidArgumentError, ZoneBloomError
from zonebloom.formats import Dataset, open_dataset
from zonebloom.formats.detect import has_log_at
from zonebloom.formats.lance import LanceDataset
from zonebloom.formats.table_marks import is_table_folder
from zonebloom.index import Index, open_index

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from zonebloom.search.view import View

__all__ = [
    "check_batch",
    "check_is_read_by_spark",
    "common_folder",
    "data_set_of",
    "files_of",
    "location_of",
    "opened",
    "opened_view",
    "place_of",
    "source_of",
]

_S3 = ("s3a://", "s3n://")
_SCANS = frozenset({"Relation", "RelationV2", "LocalRelation", "LogicalRDD", "SubqueryAlias", "View"})
"""Nodes of the analyzed plan that do not change the rows and columns of the files or the node below."""
_ICEBERG_FILE = "_file"
"""The hidden column of Iceberg's scans with each row's file; `inputFiles` of such a frame is empty."""


def location_of(url: str) -> str:
    """A file as the library names it: `file:/a%20b` and `file:///a%20b` are `/a b`, `s3a://` is `s3://`.

    >>> location_of("file:///lake/day=1/a%20b.parquet")
    '/lake/day=1/a b.parquet'
    >>> location_of("s3a://bucket/x.parquet")
    's3://bucket/x.parquet'
    """
    if url.startswith("file:"):
        path = url.removeprefix("file:")
        return unquote("/" + path.lstrip("/"))
    for scheme in _S3:
        if url.startswith(scheme):
            return "s3://" + unquote(url.removeprefix(scheme))
    return unquote(url) if "://" in url else url


def files_of(frame: DataFrame) -> list[str]:
    """The data files that `frame` scans, as the library names them, in order of path.

    Raises
    ------
    InvalidArgumentError
        It scans no files, or is not a plain scan of one data set.
    """
    check_batch(frame)
    urls = frame.inputFiles()
    problem = _more_than_a_scan(frame)
    if not urls and not problem:
        problem = "one that reads none"
        if _has_files_of_rows(frame):
            urls, problem = [row[0] for row in frame.select(_ICEBERG_FILE).distinct().collect()], ""
    if problem:
        message = f"a DataFrame to index must be a plain scan of files, got {problem}"
        raise InvalidArgumentError(
            f"{message}; write it to Parquet files first, or pass the path of the data set, or the table"
        )
    return sorted({location_of(url) for url in urls})


def _more_than_a_scan(frame: DataFrame) -> str:
    """What `frame` does beyond its scan, by the names in Spark's printed plan; empty if nothing.

    A select, a filter or a limit scans the same files and has `_metadata` too, but has other rows or columns.
    """
    from pyspark.errors import PySparkException  # noqa: PLC0415 - an optional extra

    try:
        whole = explained(frame)
    except PySparkException:  # Spark makes no view of a frame with two columns of one name
        whole = ""
    analyzed = whole.partition("== Analyzed Logical Plan ==\n")[2].partition("\n== Optimized ")[0]
    nodes = [line for line in analyzed.splitlines()[2:] if line]  # the first lines are types, and the SELECT of EXPLAIN
    names = [re.match(r"[\s:+|-]*(\w*)", line)[1] for line in nodes]  # type: ignore[index]  # matches everywhere
    other = next((name for name in names if name not in _SCANS), None if names else "a plan that is not shown")
    return "" if other is None else f"one that is derived by {other}"


def _has_files_of_rows(frame: DataFrame) -> bool:
    """Whether `frame` has Iceberg's hidden column of files."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - an optional extra

    try:
        frame.select(_ICEBERG_FILE).schema  # noqa: B018 - Connect resolves names with the schema
    except PySparkException:
        return False
    return True


def data_set_of(source: Any, storage_options: Mapping[str, str] | None = None) -> Any:
    """The source that the library opens: for a DataFrame its folder, table or files; otherwise `source` itself.

    Raises
    ------
    InvalidArgumentError
        The DataFrame scans no files, or other files than those of its table's current version.
    """
    if not hasattr(source, "inputFiles"):
        return source
    files = files_of(source)
    folder = common_folder(files)
    table = _table_around(folder, storage_options)
    with contextlib.suppress(ZoneBloomError):
        data_set = open_dataset(table or folder, storage_options).pin()
        if {data_set.absolute(path) for path in data_set.list()} == set(files):
            return table or folder
    if table is None:
        return files
    message = f"a DataFrame of a table must scan the files that the table has now, got other files of {table}"
    raise InvalidArgumentError(f"{message}; pass the path, or the DeltaTable or the pyiceberg Table itself")


def _table_around(folder: str, storage_options: Mapping[str, str] | None) -> str | None:
    """The folder of the table that `folder` belongs to. Its files do not say which rows are deleted."""
    scheme, separator, path = folder.rpartition("://")
    for above in (path, *map(str, PurePosixPath(path).parents)):
        if not separator and is_table_folder(above):
            return above
        if separator and above != "." and has_log_at(f"{scheme}://{above}", storage_options):
            return f"{scheme}://{above}"
    return None


def source_of(spark: SparkSession, given: Any) -> Any:
    """A frame of the table of Spark's catalog that `given` names; otherwise `given` itself.

    A text is a path if it has a slash, or if a file or folder has that name.
    """
    if not isinstance(given, str) or "/" in given or os.path.exists(given):  # noqa: PTH110 - never raises
        return given
    from pyspark.errors import PySparkException  # noqa: PLC0415 - an optional extra

    with contextlib.suppress(PySparkException):  # a text that is not a name
        return spark.table(given) if spark.catalog.tableExists(given) else given
    return given


def check_batch(frame: Any) -> None:
    """Refuse a streaming frame, whose rows are still to come.

    Raises
    ------
    InvalidArgumentError
        It is one.
    """
    if getattr(frame, "isStreaming", False):
        message = "a DataFrame must be a batch, got a stream"
        raise InvalidArgumentError(f"{message}; call this in foreachBatch, with the frame of each batch")


def place_of(source: Any) -> str:
    """The default place of the index of `source`: the path itself, or the folder or file of a DataFrame.

    Raises
    ------
    InvalidArgumentError
        `source` has no default place.
    """
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source)
    if hasattr(source, "inputFiles"):
        files = files_of(source)
        table = _table_around(common_folder(files), None) if "://" not in files[0] else None
        return table or (files[0] if len(files) == 1 else common_folder(files))
    dataset = open_dataset(source).pin()
    if not dataset.index_places():
        raise InvalidArgumentError(f"the index of a {type(source).__name__} must be named by index=, got none")
    return dataset.location


def opened(
    source: Any,
    index: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    version: int | None = None,
) -> Index:
    """The index of `source`, a path, a frame or a table; or the one at `index`, with `source` as its data set.

    Raises
    ------
    IndexNotFoundError
        There is none.
    InvalidArgumentError
        A frame is not a plain scan, or `source` has no default place and `index` is not given.
    """
    if isinstance(source, (str, os.PathLike)):
        source = re.sub(r"^s3[an]://", "s3://", os.fspath(source))
    if index is None and isinstance(source, str):
        return open_index(source, version=version, storage_options=storage_options)
    dataset = data_set_of(source, storage_options)
    options: dict[str, Any] = {"version": version, "storage_options": storage_options, "dataset": dataset}
    if index is None and hasattr(source, "inputFiles") and isinstance(dataset, str):  # such as a folder of one file
        with contextlib.suppress(IndexNotFoundError):
            return open_index(dataset, **options)
    return open_index(place_of(source) if index is None else index, **options)


def opened_view(source: Any, index: str | None, storage_options: Mapping[str, str] | None) -> View:
    """The index of `source`, as `opened` finds it, with the present data set.

    Raises
    ------
    IndexNotFoundError
        There is none.
    InvalidArgumentError
        As `opened` and `check_is_read_by_spark` say.
    """
    found = opened(source, index, storage_options)
    check_is_read_by_spark(found.data)
    return found.view()


def common_folder(paths: Sequence[str]) -> str:
    """The folder or URL that holds all of `paths`, above their `key=value` folders.

    >>> common_folder(["s3://bucket/lake/day=1/a.parquet", "s3://bucket/lake/day=1/b.parquet"])
    's3://bucket/lake'
    """
    scheme, separator, _ = paths[0].rpartition("://")
    plain = ["/" + path.removeprefix(scheme + separator).lstrip("/") for path in paths]
    folder = posixpath.commonpath([posixpath.dirname(path) for path in plain])
    while "=" in posixpath.basename(folder):
        folder = posixpath.dirname(folder)
    return scheme + separator + folder.lstrip("/") if separator else folder


def check_is_read_by_spark(dataset: Dataset) -> None:
    """Refuse a Lance table: Spark builds its index, but reads no rows of it through zonebloom.

    Raises
    ------
    InvalidArgumentError
        It is one.
    """
    if isinstance(dataset, LanceDataset):
        message = f"a data set that Spark reads must be of Parquet files, got the Lance table {dataset.location}"
        raise InvalidArgumentError(
            f"{message}; read it by open_index(path).to_table(...), or export its index to Lance for Lance's connector"
        )
