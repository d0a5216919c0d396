"""Which data set and which index a caller means: names, places, tables of Spark's catalog, and DataFrames.

`users` is the folder `<system path>/users`. A name is a short form of a place; an index that was built without a name
lies beside its data. A DataFrame stands for the files that it scans, if it is a plain scan of Parquet files or of a
Delta or Iceberg table.

Spec: specs/spark.md#names, specs/spark.md#frames
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, TypeAlias
from urllib.parse import unquote

from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame

from zonebloom.engines.spark.pushdown.implied import explained
from zonebloom.engines.spark.scan.source import FORMAT, stored_in
from zonebloom.errors import IndexNotFoundError, InvalidArgumentError, ZoneBloomError
from zonebloom.formats import Dataset, open_dataset
from zonebloom.formats.detect import has_log_at
from zonebloom.formats.lance import LanceDataset
from zonebloom.formats.table_marks import is_table_folder
from zonebloom.index import Index, open_index
from zonebloom.maintain.versions import delete_index
from zonebloom.search.view import View
from zonebloom.storage.stores.open import open_store

_NAME = re.compile(r"[^/\\\0:]+")
_INDEXES = (
    "name string, index string, dataset string, version long, columns array<string>, num_fragments long, "
    "num_rows long, index_bytes long"
)
_COLUMNS = (
    "name string, type string, rows_per_zone long, fpp double, sizing string, num_zones long, index_bytes long, "
    "bytes_per_row double, segments long, levels array<string>"
)
Place: TypeAlias = str | os.PathLike[str] | None
"""The place of an index: a folder or URL, a name in the system path, or None for the default beside the data."""
_S3 = ("s3a://", "s3n://")
_SCANS = frozenset({"Relation", "RelationV2", "LocalRelation", "LogicalRDD", "SubqueryAlias", "View"})
"""Nodes of the analyzed plan that do not change the rows and columns of the files or the node below."""
_ICEBERG_FILE = "_file"
"""The hidden column of Iceberg's scans with each row's file; `inputFiles` of such a frame is empty."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """A session, the folder of the indexes with names, and the options of stores."""

    spark: Any
    """The session; None in a process without one, where nothing has a name in Spark."""
    system_path: str | None = None
    """A folder or URL; None if indexes have no names."""
    storage_options: Mapping[str, str] | None = None
    """Options of the library's stores."""

    def place(self, index: Place) -> str | None:
        """The place of the index that `index`, a name or a place, means; None stays None.

        A name has no slash. Without a system path, or if a folder here has that name, it is a place.
        """
        if index is None:
            return None
        text = os.fspath(index)
        if self.system_path is None or not _NAME.fullmatch(text) or os.path.isdir(text):  # noqa: PTH112 - never raises
            return text
        return f"{self.system_path.rstrip('/')}/{text}"

    def source(self, given: Any) -> Any:
        """A frame of the table of Spark's catalog that `given` names; otherwise `given` itself.

        A text is a path if it has a slash, or if a file or folder has that name.
        """
        if self.spark is None or not isinstance(given, str) or "/" in given or os.path.exists(given):  # noqa: PTH110 - never raises
            return given
        with contextlib.suppress(PySparkException):  # a text that is not a name
            if self.spark.catalog.tableExists(given):
                return self.spark.table(given)
        return given

    def _named(self, given: Any) -> Any:
        """The place of the index that `given` names in the system path; otherwise as `source`."""
        place = self.place(given) if isinstance(given, (str, os.PathLike)) else given
        return self.source(given) if place == given else place

    def data_set(self, given: Any) -> Any:
        """What the library opens for `given`: the folder, table or files of a DataFrame or table; else `given` itself.

        Raises
        ------
        InvalidArgumentError
            A DataFrame scans no files, or other files than those of its table's current version.
        """
        source = self._named(given)
        return self._data_set_of(source) if hasattr(source, "inputFiles") else given

    def _data_set_of(self, frame: DataFrame) -> Any:
        if stored := place_of_table(frame):
            return stored.get("path") or self.opened(None, stored["index"]).data
        files = _files_of(frame)
        folder = common_folder(files)
        table = _table_around(folder, self.storage_options)
        with contextlib.suppress(ZoneBloomError):
            data_set = open_dataset(table or folder, self.storage_options).pin()
            if {data_set.absolute(path) for path in data_set.list()} == set(files):
                return table or folder
        if table is None:
            return files
        message = f"a DataFrame of a table must scan the files that the table has now, got other files of {table}"
        raise InvalidArgumentError(f"{message}; pass the path, or the DeltaTable or the pyiceberg Table itself")

    def open(self, given: Any, index: Place = None, version: int | None = None) -> Index:
        """The index of `given`, a path, name, frame or table; or the one at `index`, with `given` as its data set.

        Raises
        ------
        IndexNotFoundError
            There is none.
        InvalidArgumentError
            A frame is not a plain scan, or `given` has no default place and `index` is not given.
        """
        return self.opened(self._named(given) if index is None else self.source(given), index, version)

    def opened(self, source: Any, index: Place = None, version: int | None = None) -> Index:
        """As `open`, but a text is a path."""
        if isinstance(source, (str, os.PathLike)):
            source = re.sub(r"^s3[an]://", "s3://", os.fspath(source))
        options: dict[str, Any] = {"version": version, "storage_options": self.storage_options}
        if index is None and isinstance(source, str):
            return open_index(source, **options)
        is_frame = hasattr(source, "inputFiles")
        if is_frame and (stored := place_of_table(source)):
            return self.opened(stored.get("path"), index or stored.get("index"), version)
        options["dataset"] = dataset = self._data_set_of(source) if is_frame else source
        if index is None and is_frame and isinstance(dataset, str):  # such as a folder of one file
            with contextlib.suppress(IndexNotFoundError):
                return open_index(dataset, **options)
        return open_index(self.place(index) or place_of(source), **options)

    def view(self, given: Any, index: Place = None) -> View:
        """The index of `given`, as `open` finds it, with the present data set.

        Raises
        ------
        IndexNotFoundError
            There is none.
        InvalidArgumentError
            As `open` and `check_is_read_by_spark` say.
        """
        found = self.open(given, index)
        check_is_read_by_spark(found.data)
        return found.view()

    def has_index(self, frame: DataFrame) -> bool:
        """Whether an index lies beside the files of `frame`; Spark is not asked what `frame` does with them."""
        if place_of_table(frame):
            return True
        files = sorted(map(location_of, frame.inputFiles()))
        if not files:
            return _has_files_of_rows(frame)
        folder = common_folder(files)
        for place in dict.fromkeys((folder, files[0], _table_around(folder, self.storage_options) or folder)):
            with contextlib.suppress(ZoneBloomError):
                open_index(place, storage_options=self.storage_options)
                return True
        return False

    def delete(self, given: Any) -> None:
        """Remove the index of `given` with all its versions.

        Raises
        ------
        IndexNotFoundError
            There is none.
        """
        delete_index(self.open(given).store)

    def indexes(self, given: Iterable[Any]) -> DataFrame:
        """One row for each index that has a name, and for each index of `given`."""
        found = [(name, self.opened(place)) for name, place in self._places()]
        rows = []
        for name, index in (*found, *((None, self.open(one)) for one in given)):
            info = index.info()
            columns = info["columns"]
            num_bytes = sum(part["index_bytes"] for column in columns for part in (column, *column["levels"]))
            shown = [info[one] for one in ("index", "dataset", "version")]
            counts = [info[one] for one in ("num_fragments", "num_rows")]
            rows.append((name, *shown, [column["name"] for column in columns], *counts, num_bytes))
        return self.spark.createDataFrame(rows, _INDEXES)

    def _places(self) -> list[tuple[str, str]]:
        if self.system_path is None:
            return []
        found = open_store(self.system_path, self.storage_options).files("")
        names = {path.split("/")[0] for path in found if path.split("/")[1:2] == ["versions"]}
        return [(name, f"{self.system_path.rstrip('/')}/{name}") for name in sorted(names)]

    def columns(self, index: Index) -> DataFrame:
        """One row for each column of `index`."""
        plain = (
            *("name", "type", "rows_per_zone", "fpp", "sizing"),
            *("num_zones", "index_bytes", "bytes_per_row", "segments"),
        )
        rows = [
            (*(column[name] for name in plain), [level["name"] for level in column["levels"]])
            for column in index.info()["columns"]
        ]
        return self.spark.createDataFrame(rows, _COLUMNS)


# --- frames -----------------------------------------------------------------------------------------------------------


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


def table_of(frame: DataFrame) -> str | None:
    """The name of the table of Spark's catalog whose files `frame` scans; None for files by their path."""
    found = re.search(r"^[\s:+|-]*Relation ([^\[\n]+)\[.*\] parquet$", explained(frame), re.MULTILINE)
    return found[1] if found else None


def place_of_table(frame: DataFrame) -> dict[str, str]:
    """Path and index of the table of format zonebloom that `frame` scans; empty for any other frame.

    Its columns have them. Columns of a frame that is derived from it have them too, and those of a copy of its rows.
    """
    stored = stored_in(frame.schema)
    whole = _plan(frame) if stored else ""
    return stored if f"BatchScan {FORMAT}[" in whole and not _other_node(whole) else {}


def _files_of(frame: DataFrame) -> list[str]:
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
    other = _other_node(_plan(frame))
    return f"one that is derived by {other}" if other else ""


def _plan(frame: DataFrame) -> str:
    """The text of EXPLAIN EXTENDED; empty for a frame with two columns of one name, of which Spark makes no view."""
    try:
        return explained(frame)
    except PySparkException:
        return ""


def _other_node(whole: str) -> str:
    """The first node of the analyzed plan that is more than a scan, in the text of EXPLAIN; empty if there is none."""
    analyzed = whole.partition("== Analyzed Logical Plan ==\n")[2].partition("\n== Optimized ")[0]
    nodes = [line for line in analyzed.splitlines()[2:] if line]  # the first lines are types, and the SELECT of EXPLAIN
    names = [re.match(r"[\s:+|-]*(\w*)", line)[1] for line in nodes]  # type: ignore[index]  # matches everywhere
    return next((name for name in names if name not in _SCANS), "" if names else "a plan that is not shown")


def _has_files_of_rows(frame: DataFrame) -> bool:
    """Whether `frame` has Iceberg's hidden column of files."""
    logger = PySparkLogger.getLogger("DataFrameQueryContextLogger")  # it prints 5 KB for each column that is not there
    was_disabled, logger.disabled = logger.disabled, True
    try:
        frame.select(_ICEBERG_FILE).schema  # noqa: B018 - Connect resolves names with the schema
    except PySparkException:
        return False
    finally:
        logger.disabled = was_disabled
    return True


def _table_around(folder: str, storage_options: Mapping[str, str] | None) -> str | None:
    """The folder of the table that `folder` belongs to. Its files do not say which rows are deleted."""
    scheme, separator, path = folder.rpartition("://")
    for above in (path, *map(str, PurePosixPath(path).parents)):
        if not separator and is_table_folder(above):
            return above
        if separator and above != "." and has_log_at(f"{scheme}://{above}", storage_options):
            return f"{scheme}://{above}"
    return None


def place_of(source: Any) -> str:
    """The default place of the index of `source`: the path itself, or the folder or file of a DataFrame.

    Raises
    ------
    InvalidArgumentError
        `source` has no default place.
    """
    if isinstance(source, str):
        return source
    if hasattr(source, "inputFiles"):
        files = _files_of(source)
        table = _table_around(common_folder(files), None) if "://" not in files[0] else None
        return table or (files[0] if len(files) == 1 else common_folder(files))
    dataset = open_dataset(source).pin()
    if not dataset.index_places():
        raise InvalidArgumentError(f"the index of a {type(source).__name__} must be named by index=, got none")
    return dataset.location


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
    """Refuse a streaming frame, whose rows are still to come.

    Raises
    ------
    InvalidArgumentError
        It is one.
    """
    if getattr(frame, "isStreaming", False):
        message = "a DataFrame must be a batch, got a stream"
        raise InvalidArgumentError(f"{message}; call this in foreachBatch, with the frame of each batch")


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
