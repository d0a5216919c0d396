"""Who reads the files of a lake: Spark itself, or only the library.

Spark's Parquet reader does not see the deleted rows, mapped column names or partition values in the log of a Delta or
Iceberg table. It opens a store's files with Hadoop's settings and packages, not with `storage_options`. So it reads
none of these files: `RangeReader` does, without a JAR. `SparkReader` has Spark's own scans, whole or of few files.

Design: docs/design/spark-reads.md#reads
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import reduce
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.types import StructField, StructType

from zonebloom.engines.spark.executors import changed_setting, is_connect
from zonebloom.engines.spark.frames import location_of
from zonebloom.engines.spark.pushdown.names import named, unlike
from zonebloom.engines.spark.pushdown.translate import Condition, Keys
from zonebloom.engines.spark.scan.catalog_table import CatalogTable
from zonebloom.engines.spark.scan.layout import Layout
from zonebloom.engines.spark.scan.row_ranges import read_rows
from zonebloom.engines.spark.scan.seen_files import SeenFiles, other_names
from zonebloom.engines.spark.scan.settings import altering_setting
from zonebloom.engines.spark.scan.types import arrow_type
from zonebloom.engines.spark.versions import errors_of_pyspark, frame_of
from zonebloom.formats import ParquetDataset
from zonebloom.ground.arrow import from_numpy
from zonebloom.ground.errors import DataFileError, InvalidArgumentError
from zonebloom.index.index import Index
from zonebloom.index.reader import IndexReader
from zonebloom.search.view import View
from zonebloom.stores.store import Traffic

_GLOB = re.compile(r"([\[\]{}*?\\])")
_LOG_OF_A_STREAM = "_spark_metadata"
"""The folder in which a stream names the files of its finished batches. Spark reads no other file beside it."""
_CHUNK = 32
"""Paths that Spark lists on the driver; for more it starts a job with a task for each path."""
_BROADCAST_BYTES = 16 << 20
"""Keys up to this size are sent to every executor; for more the driver would hold a hash table of them too."""
_LISTING_JOBS = "spark.sql.sources.parallelPartitionDiscovery.threshold"
"""Folders beyond which Spark lists by a job with a task for each; the job takes ten times as long on a local disk."""


def filtered(spark: SparkSession, frame: DataFrame, condition: Condition) -> DataFrame:
    """`frame` filtered by the condition and its keys, by Spark alone."""
    for part in condition.residual:
        frame = frame.where(part)
    for keys in condition.keys:
        frame = _joined(spark, frame, keys)
    return frame


def _joined(spark: SparkSession, frame: DataFrame, keys: Keys) -> DataFrame:
    name = unlike(frame.columns)
    schema = StructType([StructField(name, keys.target.spark)])
    key_frame = local_frame(spark, pa.table({name: keys.values.cast(arrow_type(keys.target.spark))}), schema)
    if keys.values.nbytes <= _BROADCAST_BYTES:
        key_frame = functions.broadcast(key_frame)
    return frame.join(key_frame, named(*keys.target.path) == named(name), "left_semi")


class RangeReader:
    """Only the library reads the files: of a table one version, without its deleted rows."""

    is_native = False
    other_files: str | None = None

    def __init__(self, spark: SparkSession, table: CatalogTable | None = None) -> None:
        self.spark = spark
        self.table = table

    def schema(self, view: View) -> StructType:
        """The columns of the index, in the types of Spark's Parquet reader."""
        return Layout(view).schema()

    def frame(self, view: View, schema: StructType, rows: DataFrame | None = None, **_: bool) -> DataFrame:
        """As `SparkReader.frame`. Spark has a plan of what is read here only for a table of its catalog.

        Raises
        ------
        InvalidArgumentError
            A setting makes Spark read other values or types of `schema`.
        """
        problem = altering_setting(self.spark, view, schema)
        if problem is not None:
            raise InvalidArgumentError(
                "columns of tables and stores must be those that Spark reads by default",
                got=problem,
                do="set the default, or leave the columns out by columns=",
            )
        rows = read_rows(self.spark, Layout(view), view.universe, schema) if rows is None else rows
        return rows if self.table is None else _guarded(rows, self.table.frame)

    def searched(self, index: Index) -> IndexReader:
        """`index` over the files of a table, or over those of a store as Spark sees them."""
        data = index.data
        if not isinstance(data, ParquetDataset):
            return index
        return IndexReader(index._snapshot, SeenFiles(data.store, data.layout, data.files))  # noqa: SLF001 - as below


class SparkReader:
    """Spark reads Parquet files of this machine, or a table of its catalog with such files."""

    is_native = True

    def __init__(self, spark: SparkSession, dataset: ParquetDataset, table: CatalogTable | None = None) -> None:
        self.spark = spark
        self.dataset = dataset
        self.table = table
        self._whole: tuple[DataFrame, StructType] | None = None

    def frame(
        self, view: View, schema: StructType, rows: DataFrame | None = None, *, is_shown: bool = False
    ) -> DataFrame:
        """The frame that a user gets of `rows` of the files, or of all rows with the columns of `schema`.

        Its plan names what is read, so that Spark refuses to overwrite that, and no cached frame is read for it.

        Parameters
        ----------
        is_shown
            Whether `sql` and `read` must know the frame for the plain read. If that is cached, they do not.
        """
        if rows is not None:
            with suppress(PySparkException, DataFileError):
                return _guarded(rows, self._listed(view.listing)[0] if self.table is None else self.table.frame)
            return rows
        if self.table is not None:
            return self.table.frame
        frame = self.plain(view.listing, schema, options={} if is_shown else _uncached())
        if is_shown and (frame.storageLevel.useMemory or frame.storageLevel.useDisk):
            return self.frame(view, schema)
        return _ordered(frame, schema)

    @property
    def other_files(self) -> str | None:
        """The reason why Spark may read other files than these; None if it does not."""
        return other_names(self.spark)

    @property
    def location(self) -> str:
        """As `Dataset.location`."""
        return self.dataset.location

    @property
    def traffic(self) -> Traffic:
        """As `Dataset.traffic`."""
        return self.dataset.traffic

    def pin(self) -> SeenFiles:
        """The files as Spark sees them. Only Spark reads the log of a stream."""
        data, logged = self.dataset, None
        if data.layout == "folder" and Path(data.location, _LOG_OF_A_STREAM).is_dir():
            frame = self.plain((), StructType()) if self.table is None else self.table.frame
            logged = frozenset(map(location_of, frame.inputFiles()))
        return SeenFiles(data.store, data.layout, data.files, logged=logged)

    def searched(self, index: Index) -> IndexReader:
        """`index` over the files as Spark sees them."""
        return IndexReader(index._snapshot, self)  # noqa: SLF001 - the same version, opened once

    def _listed(self, listing: Iterable[str]) -> tuple[DataFrame, StructType]:
        """Spark's plain read and its schema, listed once for a lake, on the driver, without a job for its folders.

        Connect lists the files of a frame anew for each use, so there it has no columns that Spark would infer.
        """
        if self._whole is None:
            with changed_setting(self.spark, _LISTING_JOBS, str(2**31 - 1)):
                whole = self.plain(listing)
                schema = whole.schema
                self._whole = self.plain(listing, StructType()) if is_connect(self.spark) else whole, schema
        return self._whole

    def is_plain_scan(self, frame: DataFrame) -> bool:
        """Whether `frame` is Spark's plain read of just this data set; Spark compares the two."""
        listing = self.dataset.list()
        _, schema = self._listed(listing)
        if frame.schema != schema:  # `sameSemantics` does not see renamed columns
            return False
        spellings = [(scheme, end) for scheme in ("file://", "", "file:") for end in ("", "/")]
        bases = [{"basePath": scheme + self.location + end} for scheme, end in spellings]
        with changed_setting(self.spark, _LISTING_JOBS, str(2**31 - 1)):
            return any(
                frame.sameSemantics(self.plain(listing, columns, scheme=scheme, end=end, options=options))
                for options in ([{}, *bases] if self.dataset.layout == "files" else [{}])
                for scheme, end in spellings
                for columns in (schema, None)
            )

    def plain(
        self,
        listing: Iterable[str],
        schema: StructType | None = None,
        *,
        scheme: str = "file://",
        end: str = "",
        options: Mapping[str, str] = MappingProxyType({}),
    ) -> DataFrame:
        """The read that a user would write. With a schema Spark infers none, which saves a job.

        Parameters
        ----------
        scheme
            The start of a path of this machine: `/lake`, `file:/lake` and `file:///lake` are different to Spark.
        end
            The end of the path of a folder: `/lake/` is another one to Spark, too.
        options
            More options of the read.

        Raises
        ------
        DataFileError
            The data set is a list of files, and all of them are gone.
        """
        if self.dataset.layout == "folder":
            return self._scan([_spelled(url_of(self.dataset.location), scheme) + end], schema, options)
        files = [_spelled(url_of(self.dataset.absolute(path)), scheme) for path in listing]
        if not files:
            raise DataFileError(f"a file of the data set {self.dataset.location} must be there", got="none")
        has_keys = self.dataset.layout == "files" and any("=" in path for path in listing)
        return self._scan(files, schema, {**self._base, **options} if has_keys else options)

    def _scan(self, paths: Iterable[str], schema: StructType | None, options: Mapping[str, str]) -> DataFrame:
        """Spark's scan of some paths; with a schema Spark infers none."""
        reader = self.spark.read.options(**options)
        with errors_of_pyspark():
            return (reader if schema is None else reader.schema(schema)).parquet(*paths)

    @property
    def _base(self) -> dict[str, str]:
        return {"basePath": url_of(self.dataset.location)}

    def schema(self, view: View) -> StructType:
        """The schema of the plain read.

        Design: docs/design/spark-reads.md#schema
        """
        return self._listed(view.listing)[1]

    def files(self, paths: tuple[str, ...], schema: StructType) -> DataFrame:
        """The rows of some files, by Spark itself: scans of few files each, which Spark lists without a job."""
        options = {**self._base, **_uncached()}
        chunks = [paths[first : first + _CHUNK] for first in range(0, len(paths), _CHUNK)]
        frames = [_ordered(self._scan(map(self._path, chunk), schema, options), schema) for chunk in chunks]
        return reduce(DataFrame.unionAll, frames)

    def _path(self, path: str) -> str:
        return escaped(url_of(self.dataset.absolute(path)))


def _uncached() -> dict[str, str]:
    """An option that no other read has: Spark gives a cached frame for one with equal files and options."""
    return {"zonebloom.read": uuid4().hex}


def _guarded(rows: DataFrame, read: DataFrame) -> DataFrame:
    """`rows` with what is `read` in the analyzed plan. It costs no job, as the optimizer takes it away."""
    return rows.unionAll(read.where("false").select(*(functions.lit(None) for _ in rows.columns)))


def _ordered(frame: DataFrame, schema: StructType) -> DataFrame:
    """`frame` with its columns in the order of `schema`. Spark puts those of folders last, also if files have them."""
    return frame if frame.columns == schema.names else frame.select(*map(named, schema.names))


def _spelled(url: str, scheme: str) -> str:
    return scheme + escaped(url).removeprefix("file://") if url.startswith("file://") else escaped(url)


def local_frame(spark: SparkSession, table: pa.Table, schema: StructType) -> DataFrame:
    """A frame of `table`, which Spark filters while it plans, without a job.

    The rows are copied into one chunk: Spark 4.3 drops the rows that follow an empty record batch, and PySpark refuses
    maps with nulls that are a part of others. Spark refuses structs and lists without rows, so an empty relation of
    the schema is made.
    """
    if not table.num_rows:
        return spark.createDataFrame([], schema)
    return frame_of(spark, table.take(from_numpy(np.arange(table.num_rows), pa.int64())).combine_chunks(), schema)


Reader: TypeAlias = SparkReader | RangeReader


def reader_of(spark: SparkSession, dataset: Any, table: CatalogTable | None) -> Reader:
    """Spark for Parquet files of this machine, else the library."""
    is_native = isinstance(dataset, ParquetDataset) and not dataset.is_remote
    return SparkReader(spark, dataset, table) if is_native else RangeReader(spark, table)


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
