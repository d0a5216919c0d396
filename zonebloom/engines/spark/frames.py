"""Frames as data sets: the files that a plain scan of Parquet files, or of a table, reads.

Design: docs/design/spark.md#frames
"""

from __future__ import annotations

import contextlib
import posixpath
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from zonebloom.engines.spark.pushdown.implied import explained, logical_plans
from zonebloom.engines.spark.pushdown.metadata import CHAR
from zonebloom.engines.spark.pushdown.names import resolves
from zonebloom.engines.spark.versions import logger_of_errors
from zonebloom.ground.errors import InvalidArgumentError

S3 = re.compile("^s3[an]://")
"""Hadoop's names of S3's scheme."""
_SCANS = frozenset({"Relation", "RelationV2", "LocalRelation", "LogicalRDD", "SubqueryAlias", "View"})
"""Nodes of the analyzed plan that change neither rows nor columns."""
_ICEBERG_FILE = "_file"
"""The hidden column of Iceberg's scans that has each row's file. `inputFiles` of such a frame is empty."""


def location_of(url: str, *, is_escaped: bool = True) -> str:
    """The library's name of a file: `file:/a%20b` and `file:///a%20b` are `/a b`, `s3a://` is `s3://`.

    Spark's catalog gives locations without escapes.

    >>> location_of("file:///lake/day=1/a%20b.parquet")
    '/lake/day=1/a b.parquet'
    >>> location_of("s3a://bucket/x.parquet")
    's3://bucket/x.parquet'
    """
    if url.startswith("file:"):
        path = "/" + url.removeprefix("file:").lstrip("/")
    else:
        path, is_escaped = S3.sub("s3://", url), is_escaped and "://" in url
    return unquote(path) if is_escaped else path


def table_of(frame: DataFrame) -> str | None:
    """The name of the catalog's table that `frame` scans; None if it scans files by path."""
    return _table_in(explained(frame))


def _table_in(whole: str) -> str | None:
    relation = re.search(r"^[\s:+|-]*Relation ([^\[\n]+)\[.*\] parquet$", whole, re.MULTILINE)
    return relation[1] if relation else None


def files_of(frame: DataFrame) -> list[str]:
    """The files of `scanned`."""
    return scanned(frame)[0]


def scanned(frame: DataFrame) -> tuple[list[str], str | None]:
    """The data files that `frame` scans, by the library's names, in order of path; and its table, as `table_of`.

    Raises
    ------
    InvalidArgumentError
        It scans no files, or is not a plain scan of one data set.
    """
    check_batch(frame)
    urls = frame.inputFiles()
    whole = ""
    with contextlib.suppress(PySparkException):  # Spark makes no view of a frame with two columns of one name
        whole = explained(frame)
    other = _other_node(whole)
    kinds = {field.name: str(field.metadata.get(CHAR, "")) for field in frame.schema}
    padded = next((f"column {name} of type {kind}" for name, kind in kinds.items() if kind.startswith("char(")), None)
    if other and padded:
        raise InvalidArgumentError(
            "the texts of a DataFrame to index must be those of its files",
            got=f"{padded}, which Spark pads",
            do="pass the path of the files",
        )
    problem = f"one that is derived by {other}" if other else ""
    if not urls and not problem:
        problem = "one that reads none: an empty table, a cached one, or rows in memory"
        if _has_files_of_rows(frame):
            urls, problem = [row[0] for row in frame.select(_ICEBERG_FILE).distinct().collect()], ""
    if problem:
        raise InvalidArgumentError(
            "a DataFrame to index must be a plain scan of files",
            got=problem,
            do="write it to Parquet files first, or pass the path of the data set, or the table",
        )
    return sorted({location_of(url) for url in urls}), _table_in(whole)


def _other_node(whole: str) -> str:
    """The first node of a frame's printed plan that is not a scan; empty if there is none.

    A select, a filter or a limit scans the same files, and has `_metadata` too, but other rows or columns.
    """
    lines = logical_plans(whole)[1].splitlines()[5:]  # the first lines are types, and the nodes of `explained`
    names = [re.sub(r"^[\s:+|-]*(\w*).*", r"\1", line, flags=re.DOTALL) for line in lines if line]
    return next((name for name in names if name not in _SCANS), "" if names else "a plan that is not shown")


def _has_files_of_rows(frame: DataFrame) -> bool:
    """Whether `frame` has Iceberg's hidden column of files."""
    logger = logger_of_errors()  # it prints 5 KB for each column that is not there
    was_disabled, logger.disabled = logger.disabled, True
    try:
        return resolves(frame, _ICEBERG_FILE)
    finally:
        logger.disabled = was_disabled


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


def check_batch(frame: Any) -> None:
    """Refuse what is no frame of Spark, and a streaming frame, because more rows will arrive.

    Raises
    ------
    InvalidArgumentError
        `frame` is streaming, or something else.
    """
    if not isinstance(frame, DataFrame):
        raise InvalidArgumentError("a DataFrame of Spark must be given", got=type(frame).__name__)
    if frame.isStreaming:
        raise InvalidArgumentError(
            "a DataFrame must be a batch", got="a stream", do="call this in foreachBatch, with the frame of each batch"
        )
