"""Spark's own scans of a data set of Parquet files: whole, or of few files; and its names for files.

Spec: specs/spark.md#reads
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.types import StructField, StructType

from zonebloom.engines.spark.pushdown.names import backquoted
from zonebloom.engines.spark.pushdown.translate import Condition, Keys
from zonebloom.engines.spark.scan.types import arrow_type
from zonebloom.errors import DataFileError
from zonebloom.formats import ParquetDataset

_GLOB = re.compile(r"([\[\]{}*?\\])")
_UNFINISHED = "._COPYING_"
_CHUNK = 32
"""Paths that Spark lists on the driver; for more it starts a job with a task for each path."""
_KEY = "__zonebloom_key"


def filtered(spark: SparkSession, frame: DataFrame, condition: Condition) -> DataFrame:
    """`frame` filtered by the condition and its keys, by Spark alone."""
    frame = condition.filtered(frame)
    for keys in condition.keys:
        frame = _joined(spark, frame, keys)
    return frame


def _joined(spark: SparkSession, frame: DataFrame, keys: Keys) -> DataFrame:
    schema = StructType([StructField(_KEY, keys.target.spark)])
    known = local_frame(spark, pa.table({_KEY: keys.values.cast(arrow_type(keys.target.spark))}), schema)
    column = functions.col(backquoted(*keys.target.path))
    return frame.join(functions.broadcast(known), column == functions.col(_KEY), "left_semi")


class Scans:
    """Scans of one data set, whose files are those of a listing."""

    def __init__(self, spark: SparkSession, dataset: ParquetDataset) -> None:
        self.spark = spark
        self.dataset = dataset

    def plain(
        self, listing: Mapping[str, Any], schema: StructType | None = None, *, scheme: str = "file://"
    ) -> DataFrame:
        """The read that a user would write. With a schema Spark infers none, which saves a job.

        Parameters
        ----------
        scheme
            The start of a path of this machine: `/lake`, `file:/lake` and `file:///lake` are different to Spark.

        Raises
        ------
        DataFileError
            The data set is a list of files, and all of them are gone.
        """
        reader = self.spark.read if schema is None else self.spark.read.schema(schema)
        if self.dataset.layout == "folder":
            return reader.parquet(_spelled(url_of(self.dataset.location), scheme))
        if self.dataset.layout == "files":
            reader = reader.option("basePath", url_of(self.dataset.location))
        files = [_spelled(url_of(self.dataset.absolute(path)), scheme) for path in listing]
        if not files:
            raise DataFileError(f"a file of the data set {self.dataset.location} must be there, got none")
        return reader.parquet(*files)

    def schema(self, listing: Mapping[str, Any]) -> StructType:
        """The schema of the plain read. If a few files of a folder give it, Spark does not list the others.

        Spec: specs/spark.md#schema
        """
        few = self._that_give_the_schema(listing)
        if few is None:
            return self.plain(listing).schema
        reader = self.spark.read.option("basePath", url_of(self.dataset.location))
        return reader.parquet(*map(self._path, few)).schema

    def _that_give_the_schema(self, listing: Mapping[str, Any]) -> list[str] | None:
        """The first file, which has the columns, and one of each folder, whose keys are columns; None if all count."""
        is_merged = self.spark.conf.get("spark.sql.parquet.mergeSchema", "false") != "false"
        if self.dataset.layout != "folder" or is_merged or any(Path(self.dataset.location).rglob("_*metadata*")):
            return None
        ordered = sorted(filter(self.is_seen(listing), listing), key=lambda path: path.encode("utf-16-be"))
        few = {path.rpartition("/")[0]: path for path in reversed(ordered)}
        return list(few.values()) if 0 < len(few) <= _CHUNK < len(listing) else None

    def is_seen(self, listing: Mapping[str, Any]) -> Callable[[str], bool]:
        """Tells whether Spark's plain read reads a file of the listing."""
        is_keyed, is_listed = are_folders_keys(listing), self.dataset.layout != "folder"
        return partial(is_visible, is_keyed=is_keyed, is_listed=is_listed)

    def candidates(self, paths: tuple[str, ...], schema: StructType, condition: Condition) -> DataFrame:
        """The rows of some files where `condition`.

        They come in scans of few files each, which Spark lists without a job. A union has no `_metadata`, so each scan
        is filtered alone.
        """
        reader = self.spark.read.schema(schema).option("basePath", url_of(self.dataset.location))
        chunks = [paths[first : first + _CHUNK] for first in range(0, len(paths), _CHUNK)]
        frames = [condition.filtered(reader.parquet(*map(self._path, chunk))) for chunk in chunks]
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.unionAll(frame)
        return filtered(self.spark, whole, replace(condition, residual=()))

    def _path(self, path: str) -> str:
        return escaped(url_of(self.dataset.absolute(path)))


def _spelled(url: str, scheme: str) -> str:
    return scheme + escaped(url).removeprefix("file://") if url.startswith("file://") else escaped(url)


def local_frame(spark: SparkSession, table: pa.Table, schema: StructType) -> DataFrame:
    """A frame of `table`, which Spark filters while it plans, without a job.

    The chunks are joined first: Spark 4.3 drops the rows that follow an empty record batch. Spark refuses structs
    and lists without rows, so an empty relation of the schema is made.
    """
    if not table.num_rows:
        return spark.createDataFrame([], schema)
    return spark.createDataFrame(table.combine_chunks(), schema)


# --- names of files ---------------------------------------------------------------------------------------------------


def url_of(location: str) -> str:
    """Spark's URL of a folder or file, without escapes: `/a b` is `file:///a b`, `s3://` is `s3a://`.

    >>> url_of("/lake/a b"), url_of("s3://bucket/lake")
    ('file:///lake/a b', 's3a://bucket/lake')
    """
    if location.startswith("s3://"):
        return f"s3a://{location.removeprefix('s3://')}"
    return location if "://" in location else f"file://{location}"


def escaped(url: str) -> str:
    r"""`url` with its pattern characters escaped, so that Spark reads one path.

    >>> print(escaped("file:///a[b]*"))
    file:///a\[b\]\*
    """
    return _GLOB.sub(r"\\\1", url)


def are_folders_keys(paths: Iterable[str]) -> bool:
    """Whether some of the files, named relative to the root, are in `key=value` folders."""
    return any("=" in folder for folder in {path.rpartition("/")[0] for path in paths})


def is_visible(path: str, *, is_keyed: bool, is_listed: bool) -> bool:
    """Whether Spark's plain read of the root reads the file.

    If some files lie in `key=value` folders, Spark skips files outside of them. Otherwise it skips files in any folder.
    It also skips files that Hadoop is still copying.

    Parameters
    ----------
    path
        Relative to the root.
    is_keyed
        Whether some file of the data set is in a `key=value` folder.
    is_listed
        Whether the data set is a list of files, which Spark gets by name.
    """
    if path.endswith(_UNFINISHED):
        return False
    folder = path.rpartition("/")[0]
    return "=" in folder if is_keyed else is_listed or not folder
