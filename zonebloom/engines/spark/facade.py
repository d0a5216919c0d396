"""`ZoneBloom`: all that Spark users need, on one object that is bound to a session.

Each method adds the session, the place of the index and the options of the store to its call.

Design: docs/design/spark.md
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession

from zonebloom.bloom.sizing import FPP, ROWS_PER_ZONE, Sizing
from zonebloom.engines.spark.candidates import map_candidates
from zonebloom.engines.spark.catalog import Catalog, Place
from zonebloom.engines.spark.executors import session_of
from zonebloom.engines.spark.explain import Explained
from zonebloom.engines.spark.join.keys import MAX_KEYS
from zonebloom.engines.spark.join.pruned_join import prune_join
from zonebloom.engines.spark.locate import locate
from zonebloom.engines.spark.runner import SparkRunner, optimize_newest
from zonebloom.engines.spark.scan.lake import Asked, Lake
from zonebloom.engines.spark.scan.read import lake_of, lake_to_search
from zonebloom.engines.spark.sql import pruned_sql
from zonebloom.formats.hive import Partitions
from zonebloom.ground.errors import InvalidArgumentError
from zonebloom.index.doors import build_index
from zonebloom.index.index import Index
from zonebloom.indexing.optimize import Optimization
from zonebloom.indexing.plan import Mode, Paths
from zonebloom.indexing.progress import Progress
from zonebloom.indexing.refresh import Refresh
from zonebloom.indexing.versions import Vacuum
from zonebloom.search.explain import explain
from zonebloom.search.result import SearchResult
from zonebloom.storage.options import COMMIT_EVERY, Kind

Source = Any
"""A path, a list of paths, a table of Spark's catalog or an index in the system path by name, or a plain scan."""


class ZoneBloom:
    """Zone bloom indexes on Spark: build, refresh, read, join.

    Parameters
    ----------
    spark
        A session, classic or Spark Connect; by default the active one, else a new one.
    system_path
        Folder or URL of indexes with names: `index="users"` means `<system_path>/users`.
    storage_options
        Options of the library's stores, on the driver and on executors.

    Raises
    ------
    MissingDependencyError
        PySpark 3.5, pandas or Java is missing.
    """

    def __init__(
        self,
        spark: SparkSession | None = None,
        *,
        system_path: str | os.PathLike[str] | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        self.spark: SparkSession = session_of(spark)
        self.storage_options = storage_options
        place = None if system_path is None else _path_of(system_path)
        self._catalog = Catalog(self.spark, place, storage_options)

    def __repr__(self) -> str:
        return f"<ZoneBloom on Spark {self.spark.version}>"

    # --- the life of an index ---------------------------------------------------------------------------------------

    def create_index(
        self,
        source: Source,
        columns: str | Sequence[str],
        *,
        kind: Kind = "bloom",
        rows_per_zone: int = ROWS_PER_ZONE,
        fpp: float = FPP,
        sizing: Sizing = "power_of_two",
        index: Place = None,
        overwrite: bool = False,
        optimize: bool = True,
        commit_every: int = COMMIT_EVERY,
        max_index_bytes: int | None = None,
        tasks: int | None = None,
        progress: bool | Callable[[Progress], None] = False,
    ) -> Index:
        """An index over `columns` of `source`, built by the executors, committed and opened.

        The zones are those that `zonebloom.build_index` makes, byte for byte. Executors read the files, and write
        segments straight to the index. No filter passes the driver.

        Parameters
        ----------
        source
            A path, a list of paths, a table (`deltalake.DeltaTable`, `pyiceberg.table.Table`), or a DataFrame that is a
            plain scan of files, of a Delta or an Iceberg table too.
        kind, rows_per_zone, fpp, sizing, overwrite, optimize, commit_every
            As for `zonebloom.build_index`. A build that dies retains its commits, and the same call continues there.
        index
            Place of the index, by default beside the data; or a name in the system path.
        max_index_bytes
            Refuse to build, before any data is read, if the estimated size of the index is larger.
        tasks
            Number of Spark tasks; by default one to three for each core, more for large data sets.
        progress
            True for a bar on stderr, or a function that takes `Progress`; rows count when their task is done.

        Raises
        ------
        ColumnNotFoundError, UnsupportedTypeError, InvalidArgumentError, IndexExistsError
            Before anything is written.
        DataFileError
            No file can be read. If only some cannot be read, a warning names them, and searches retain them whole.
        MissingDependencyError
            The executors have no zonebloom, or another version than the driver.

        Design: docs/design/spark.md#build
        """
        data_set, place = self._catalog.to_build(source, index)
        return build_index(
            data_set,
            columns,
            kind=kind,
            rows_per_zone=rows_per_zone,
            fpp=fpp,
            sizing=sizing,
            overwrite=overwrite,
            optimize=optimize,
            commit_every=commit_every,
            progress=progress,
            runner=SparkRunner(self.spark, num_tasks=tasks, max_index_bytes=max_index_bytes),
            index=place,
            storage_options=self.storage_options,
        )

    def refresh_index(
        self,
        source: Source,
        mode: Mode = "incremental",
        *,
        paths: Paths | None = None,
        partitions: Partitions | None = None,
        kind: Kind | None = None,
        rows_per_zone: int | None = None,
        fpp: float | None = None,
        sizing: Sizing | None = None,
        check: bool = False,
        commit_every: int | None = None,
        index: Place = None,
        tasks: int | None = None,
        progress: bool | Callable[[Progress], None] = False,
    ) -> Refresh:
        """Bring an index in line with its data set: executors build new and changed files, the driver commits.

        Parameters
        ----------
        source
            The data set as for `create_index`, or the place or name of the index.
        mode, paths, partitions, kind, rows_per_zone, fpp, sizing, check, commit_every
            As for `zonebloom.Index.refresh`.
        index
            Place or name of the index, if `source` is the data set (for example a table of a catalog).
        tasks, progress
            As for `create_index`.

        Design: docs/design/spark.md#build
        """
        return self.open_index(source, index=index).refresh(
            mode,
            paths=paths,
            partitions=partitions,
            kind=kind,
            rows_per_zone=rows_per_zone,
            fpp=fpp,
            sizing=sizing,
            check=check,
            commit_every=commit_every,
            progress=progress,
            runner=SparkRunner(self.spark, num_tasks=tasks),
        )

    def optimize_index(self, source: Source) -> Optimization:
        """Merge the segments of an index into few slice segments, in one task and about 100 MiB of memory.

        Design: docs/design/spark.md#build
        """
        return SparkRunner(self.spark).run(optimize_newest, self.open_index(source).store)

    def vacuum_index(
        self, source: Source, *, older_than: timedelta = timedelta(days=7), dry_run: bool = False
    ) -> Vacuum:
        """Remove old versions, and files that no version needs, for example of tasks that were killed or ran twice."""
        return self.open_index(source).vacuum(older_than=older_than, dry_run=dry_run)

    def delete_index(self, source: Source) -> None:
        """Remove an index with all its versions, also broken ones if `source` is a place, a path or a name of an index.

        The data files stay.
        """
        self._catalog.delete(source)

    def restore_index(self, source: Source, version: int) -> int:
        """Make the content of an older version current, as a new version; give the new number."""
        return self.open_index(source).restore(version)

    def open_index(self, source: Source, *, index: Place = None, version: int | None = None) -> Index:
        """Open the index of a data set's path, a place, a name, or a DataFrame that scans the files.

        Parameters
        ----------
        index
            Place or name of the index, if `source` is the data set.
        version
            An older version; by default the current one.

        Raises
        ------
        IndexNotFoundError
            There is none.
        """
        return self._catalog.open(source, index, version)

    def indexes(self, *sources: Source) -> DataFrame:
        """One row for each index of the system path and of `sources`: name, place, data set, columns, rows, bytes.

        An index of the system path that cannot be opened has only its name and place, and a warning says why.
        """
        return self._catalog.indexes(sources)

    def index(self, source: Source) -> DataFrame:
        """One row for each column of an index: parameters, zones, bytes, segments."""
        return self._catalog.columns(self.open_index(source))

    # --- reading ----------------------------------------------------------------------------------------------------

    def read(
        self, path: Source, *, index: Place = None, method: Asked = "auto", columns: Sequence[str] | None = None
    ) -> Lake:
        """The data set or table at `path`. Its `.where(condition)` reads only rows that may match.

        The schema is that of `spark.read.parquet(path)` at this moment; files are listed for each query. One `Lake`
        serves any number of queries and threads, and retains the open index. The driver or executors read tables
        (without their deleted rows) and files in a store. Their schema has the columns of the index.

        Parameters
        ----------
        path
            A path, a table, a frame that is a plain scan, or the name of a table of Spark's catalog, `db.events`, or of
            an index in the system path.
        index
            The place of the index, if it is not beside the data. Files of `path` that are not in it are read whole.
        method
            `auto` chooses for each query; `driver`, `row_ranges`, `files` and `plain` force one way.
        columns
            Columns of the rows, in order; all by default. Spark need not read the types of the others.

        Raises
        ------
        IndexNotFoundError
            There is no index.
        InvalidArgumentError
            The data set is a Lance table, or a frame has other rows or columns than its files.
        ColumnNotFoundError
            There is no such column.

        Design: docs/design/spark-reads.md#reads
        """
        return lake_of(self._catalog, path, index, method=method, columns=columns)

    def sql(self, text: str, args: Any = None, **lakes: Lake | DataFrame) -> DataFrame:
        """`spark.sql(text, args)`, but scans of indexed tables read only rows that can match.

        Spark proves that the skipped rows cannot match. Without a proof the query runs unchanged. A table is indexed
        if its index lies beside its files, or in the system path under the table's name.

        Parameters
        ----------
        args
            Values of the text's parameters, as for `spark.sql`.
        lakes
            Lakes and frames for fields such as `{events}` in the text.

        Design: docs/design/spark-reads.md#sql
        """
        return pruned_sql(self._catalog, text, args, **lakes)

    def explain(
        self, source: Source, condition: str | Column, *, index: Place = None, method: Asked | None = None
    ) -> Explained:
        """The funnel of a read, from files to bytes, and coded reasons for the parts that are kept.

        Parameters
        ----------
        source
            As for `read`, or a lake.
        method
            As for `read`; by default that of `source`, if `read` made it.

        Raises
        ------
        InvalidArgumentError
            `method` cannot read this.

        Design: docs/design/spark.md#explain
        """
        lake = source if isinstance(source, Lake) else lake_of(self._catalog, source, index)
        plan = lake.plan(condition, method=method)
        return Explained(self.spark, plan, explain(plan.query))

    def search(self, source: Source, condition: str | Column, *, index: Place = None) -> SearchResult:
        """The row ranges that may match, as from `Index.search`. Spark proves that the other rows cannot match.

        `to_arrow()` has the ranges as a table, with paths relative to the data set, for `map_candidates`.

        Design: docs/design/spark.md#row-ranges
        """
        return lake_to_search(self._catalog, source, index).query(condition).result

    def locate(self, path: Source, column: str, keys: DataFrame, *, index: Place = None) -> DataFrame:
        """One row for each key and row range that may hold it: the key, and the columns of ranges.

        Each executor searches the index for its own keys; the driver gets no key. A key that is certainly in no file
        has no row. With a [locator](../../specs/locator.md) almost every range holds its key.

        Parameters
        ----------
        keys
            One column; each distinct value is searched once.

        Raises
        ------
        InvalidArgumentError
            `keys` has several columns, is a stream or has a collation, or its column has the name of a column of the
            result. Spark does not compare the types by value, or reads other values than those that are stored.
        ColumnNotFoundError
            The column is not indexed.

        Design: docs/design/spark.md#locate
        """
        return locate(lake_to_search(self._catalog, path, index), column, keys)

    def map_candidates(
        self,
        path: Source,
        wanted: str | Column | DataFrame | pa.Table,
        function: Callable[[Iterator[pa.RecordBatch]], Iterable[pa.RecordBatch]],
        schema: Any,
        *,
        columns: Sequence[str] | None = None,
        index: Place = None,
    ) -> DataFrame:
        """`function` over the rows of candidate row ranges, as `mapInArrow` runs it over a whole frame.

        A task gives the function all rows of its ranges, in order of path and row. Not all of them match. The files are
        those that Spark's plain read reads.

        Parameters
        ----------
        wanted
            A condition, or all or some of the row ranges of `search` or `locate`, as a table or a frame.
        function
            Takes an iterator of record batches in Spark's types, and gives one in `schema`; called once a task.
        schema
            Schema of the function's output, as for `mapInArrow`.
        columns
            Columns that the function needs; all by default.

        Raises
        ------
        StaleIndexError
            A file of the row ranges changed.
        InvalidArgumentError
            `wanted` has no row ranges.

        Design: docs/design/spark.md#row-ranges
        """
        return map_candidates(lake_to_search(self._catalog, path, index), wanted, function, schema, columns)

    # --- joining ----------------------------------------------------------------------------------------------------

    def prune_join(
        self,
        big: Source,
        small: DataFrame,
        on: str | Sequence[str],
        *,
        how: str = "inner",
        null_safe: bool = False,
        index: Place = None,
        max_keys: int = MAX_KEYS,
    ) -> DataFrame:
        """`big.join(small, on, how)` that reads only files and rows of `big` that may hold a key of `small`.

        `small` runs twice: for its keys and for the join. Both runs must give the same rows, so cache a frame that is
        random or changes. This call lists the files, so use the result soon.

        Parameters
        ----------
        on
            Columns that both sides have. All indexed columns among them together choose the files.
        how
            `inner`, `left_semi` and `right_outer` as in `big.join(small, …)`; or `right_semi` and `right_anti`, for the
            rows of `small` with or without a partner in `big`.
        null_safe
            Join by `<=>`: null equals null.
        max_keys
            Distinct keys at most. With more, or if every file may hold a key, Spark's own join runs, with a warning.

        Raises
        ------
        InvalidArgumentError
            The join needs rows of `big` without a partner, or Spark does not compare the types by value.
        ColumnNotFoundError
            None of `on` is indexed.

        Design: docs/design/spark.md#prune-join
        """
        return prune_join(lake_of(self._catalog, big, index), small, on, how, max_keys, null_safe=null_safe)


def _path_of(system_path: object) -> str:
    path = os.fspath(system_path) if isinstance(system_path, (str, os.PathLike)) else None
    if not path:
        raise InvalidArgumentError("system_path must be the path of a folder", got=f"{system_path!r:.80}")
    return path
