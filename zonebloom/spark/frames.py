"""Which files a DataFrame scans, where it is nothing but a scan of Parquet files.

Spec: specs/spark.md#frames
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

from zonebloom.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["files_of", "location_of"]

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
        It scans no files.
    """
    found = sorted({location_of(url) for url in frame.inputFiles()})
    if not found:
        message = "a DataFrame to index must be a plain scan of files, got one that reads none"
        raise InvalidArgumentError(f"{message}; write it to Parquet files first, or pass the path of the data set")
    return found


def common_folder(paths: Sequence[str]) -> str:
    """The folder that holds all of `paths`, above their `key=value` folders."""
    folder = os.path.commonpath([os.path.dirname(path) for path in paths])  # noqa: PTH120 - plain strings, or URLs
    while "=" in os.path.basename(folder):  # noqa: PTH119 - as above
        folder = os.path.dirname(folder)  # noqa: PTH120 - as above
    return folder
