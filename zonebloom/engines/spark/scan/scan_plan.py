"""Spark's own scans of a data set of Parquet files: whole, or of few files.

Spec: specs/spark.md#reads
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from zonebloom.engines.spark.paths import are_folders_keys, escaped, is_visible, url_of
from zonebloom.engines.spark.pushdown.translate import Condition, Keys
from zonebloom.engines.spark.scan.folded_rows import local_frame
from zonebloom.engines.spark.scan.types import arrow_type
from zonebloom.errors import DataFileError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from zonebloom.formats import ParquetDataset

__all__ = ["Scans", "filtered"]

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
    from pyspark.sql import functions, types  # noqa: PLC0415 - an optional extra

    schema = types.StructType([types.StructField(_KEY, keys.target.spark)])
    known = local_frame(spark, pa.table({_KEY: keys.values.cast(arrow_type(keys.target.spark))}), schema)
    column = functions.col(".".join(f"`{name.replace('`', '``')}`" for name in keys.target.path))
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
            The data set is a list of files, none of which is there.
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
