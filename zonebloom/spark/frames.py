"""Which files a DataFrame scans, where it is nothing but a scan of Parquet files.

Spec: specs/spark.md#frames
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from zonebloom.datasets import open_dataset
from zonebloom.errors import InvalidArgumentError, ZoneBloomError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["common_folder", "data_set_of", "files_of", "location_of"]

_S3 = ("s3a://", "s3n://")


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
        It scans no files, or does more than scan one data set.
    """
    from pyspark.errors import PySparkException  # noqa: PLC0415 - an optional extra

    urls = frame.inputFiles()
    problem = "" if urls else "one that reads none"
    if urls:
        try:
            frame.select("_metadata.file_path").schema  # noqa: B018 - joins, unions and aggregates have no such column
        except PySparkException as error:
            problem = f"one whose rows are not those of files ({str(error).splitlines()[0]})"
    if problem:
        message = f"a DataFrame to index must be a plain scan of files, got {problem}"
        raise InvalidArgumentError(f"{message}; write it to Parquet files first, or pass the path of the data set")
    return sorted({location_of(url) for url in urls})


def data_set_of(source: Any, storage_options: Mapping[str, str] | None = None) -> Any:
    """What the library opens for `source`: a path or a list of paths as it is; of a DataFrame the folder or the files.

    Raises
    ------
    InvalidArgumentError
        The DataFrame scans no files.
    """
    if not hasattr(source, "inputFiles"):
        return source
    files = files_of(source)
    folder = common_folder(files)
    with contextlib.suppress(ZoneBloomError):
        data_set = open_dataset(folder, storage_options)
        if {data_set.absolute(path) for path in data_set.list()} == set(files):
            return folder
    return files


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
