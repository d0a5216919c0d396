"""Finds the data set and the index for a name, a place, a table of Spark's catalog or a DataFrame.

A name is a short form of a place: `users` is the folder `<system path>/users`. An index without a name lies beside its
data. A DataFrame means the files that it scans. It must be a plain scan of Parquet files, or of a Delta or Iceberg
table.

Design: docs/design/spark.md#names, docs/design/spark.md#frames
"""

from __future__ import annotations

import contextlib
import os
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, TypeAlias

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame

from zonebloom.engines.spark.frames import S3, common_folder, location_of, scanned
from zonebloom.engines.spark.pushdown.names import is_sent
from zonebloom.engines.spark.scan.catalog_table import folder_of_table
from zonebloom.engines.spark.scan.seen_files import seen_paths
from zonebloom.formats import Dataset, ParquetDataset, open_dataset
from zonebloom.formats.detect import has_log_at
from zonebloom.formats.identity import are_same
from zonebloom.formats.lance import LanceDataset
from zonebloom.formats.table_folders import table_kind
from zonebloom.ground.errors import DataFileError, IndexNotFoundError, InvalidArgumentError, ZoneBloomError
from zonebloom.index.doors import delete_index, open_index
from zonebloom.index.index import Index
from zonebloom.storage.manifest import list_versions
from zonebloom.stores.open import open_store

_NAME = re.compile(r"[^/\\\0:]+")
_INDEXES = (
    "name string, index string, dataset string, version long, columns array<string>, num_fragments long, "
    "num_rows long, index_bytes long"
)
_COLUMNS = (
    "name string, type string, kind string, rows_per_zone long, fpp double, sizing string, num_zones long, "
    "index_bytes long, bytes_per_row double, segments map<string,int>"
)
Place: TypeAlias = str | os.PathLike[str] | None
"""The place of an index: a folder or URL, a name in the system path, or None for the default beside the data."""
_PATTERN = re.compile(r"[*?\[{]")


@dataclass(frozen=True, slots=True)
class Catalog:
    """A session, the folder of the indexes with names, and the options of stores."""

    spark: Any
    system_path: str | None = None
    """A folder or URL; None if indexes have no names."""
    storage_options: Mapping[str, str] | None = None
    """Options of the library's stores."""

    def place(self, index: Place) -> str | None:
        """The place of `index`, which is a name or a place; None stays None.

        A name has no slash. Without a system path, or if a folder has that name, `index` is a place.

        Raises
        ------
        InvalidArgumentError
            It is neither.
        """
        if index is None:
            return None
        if not isinstance(index, (str, os.PathLike)):
            raise InvalidArgumentError("index must be a path or a name", got=f"{index!r:.80}")
        text = os.fspath(index)
        if self.system_path is None or not _NAME.fullmatch(text) or os.path.isdir(text):  # noqa: PTH112 - never raises
            return text
        return f"{self.system_path.rstrip('/')}/{text}"

    def source(self, given: Any) -> Any:
        """A frame of the catalog's table if `given` is its name; otherwise `given` itself.

        A text with a slash is a path, and so is the name of a file or folder.
        """
        if isinstance(given, Column):  # it has each attribute by which a table is known
            raise InvalidArgumentError("a data set must be a path, a table or a DataFrame", got=f"{given!r:.80}")
        if not isinstance(given, str) or _is_path(given):
            return given
        with contextlib.suppress(PySparkException):  # a text that is not a name
            if is_sent(given) and self.spark.catalog.tableExists(given):
                return self.spark.table(given)
        return given

    def index_called(self, name: Any) -> str | None:
        """The place of the index in the system path that has this name; None if there is none."""
        place = self.place(name) if isinstance(name, str) else None
        if place is None or place == name or not list_versions(open_store(place, self.storage_options)):
            return None
        return place

    def resolved(self, given: Any, index: Place = None) -> tuple[Any, str | None]:
        """The data set that `given` names, and the place of its index; None if `opened` finds that by the data set.

        A word is a table of Spark's catalog, an index in the system path, or both: the table and its index. An index
        alone is given by its place, which names its data set too.

        Raises
        ------
        InvalidArgumentError
            The index that has the name of a table is of other data.
        """
        source = self.source(given)
        if index is not None:
            return source, self.place(index)
        place = None if _is_path(given) else self.index_called(given)
        if place is None or source is given:
            return place or source, None
        self.check_called(given, place, open_dataset(self.data_set_of(source)[0], self.storage_options).location)
        return source, place

    def check_called(self, table: str, place: str, location: str) -> None:
        """Raise as `resolved`, unless the index at `place` is of the `location` of the table."""
        of_index = open_index(place, storage_options=self.storage_options).data.location
        if not are_same([of_index], [location]):
            raise InvalidArgumentError(
                f"an index in the system path that is called like the table {table} must be of that table",
                got=f"one of {of_index}",
                do=f"pass index= with the place of the table's index, or {place} for this index",
            )

    def to_build(self, given: Any, index: Place = None) -> tuple[Any, str | None]:
        """As `resolved`, with what the library can open in place of a DataFrame or a name.

        Raises
        ------
        InvalidArgumentError
            A DataFrame scans no files, or other files than those of its table's current version.
        """
        source, place = self.resolved(given, index)
        return self.data_set_of(source)[0] if isinstance(source, DataFrame) else given, place

    def data_set_of(self, frame: DataFrame) -> tuple[Any, str, list[str]]:
        """The data set behind a frame, the folder of its files, and these files.

        The data set is the folder or table with just these files; otherwise the files themselves.
        """
        files, table = scanned(frame)
        folder = common_folder(files) if table is None else folder_of_table(frame, table, files)
        return self._with_files(folder, files), folder, files

    def _with_files(self, folder: str, files: list[str]) -> Any:
        table = _table_around(folder, self.storage_options)
        if table is None and folder == "/":  # no data set is the whole disk
            return files
        others = set(files)
        with contextlib.suppress(ZoneBloomError):
            data_set = open_dataset(table or folder, self.storage_options).pin()
            listing = data_set.list()
            if table is None and set(seen_paths(listing)) == set(seen_paths(map(data_set.relative, files))):
                return folder
            listed = set(map(data_set.absolute, listing))
            if table is not None and listed == others:
                return table
            others -= listed
        if table is None:
            self._check_are_there(sorted(others))
            return files
        raise InvalidArgumentError(
            "a DataFrame of a table must scan the files that the table has now",
            got=f"other files of {table}",
            do="pass the path, or the DeltaTable or the pyiceberg Table itself",
        )

    def _check_are_there(self, files: list[str]) -> None:
        """Explain that Spark listed files earlier that are removed now."""
        try:
            if files:
                open_dataset(files, self.storage_options)
        except DataFileError as error:
            raise DataFileError(
                "a DataFrame to index must scan files that are there",
                got=error.got,
                do="spark.catalog.refreshTable(name), or spark.catalog.refreshByPath(path), lets Spark list them anew",
            ) from error

    def open(self, given: Any, index: Place = None, version: int | None = None) -> Index:
        """The index of `given`, a path, name, frame or table; or the one at `index`, with `given` as its data set.

        Raises
        ------
        IndexNotFoundError
            There is none.
        InvalidArgumentError
            A frame is not a plain scan, or `given` has no default place and `index` is not given.
        """
        return self.opened(*self.resolved(given, index), version)

    def opened(self, source: Any, place: str | None = None, version: int | None = None) -> Index:
        """As `open`, of what `resolved` gives."""
        if isinstance(source, (str, os.PathLike)):
            source = S3.sub("s3://", os.fspath(source))
        options: dict[str, Any] = {"version": version, "storage_options": self.storage_options}
        if place is None and isinstance(source, str):
            try:
                return open_index(source, **options)
            except IndexNotFoundError as error:
                _check_is_there(source, error)
                raise
        options["dataset"] = source
        if isinstance(source, DataFrame):
            options["dataset"], folder, files = self.data_set_of(source)
            dataset = options["dataset"]
            if place is None:  # also of one file in an indexed folder, and of a folder of one indexed file
                with contextlib.suppress(IndexNotFoundError):
                    return open_index(dataset if isinstance(dataset, str) else folder, **options)
                place = files[0] if len(files) == 1 else folder
        elif place is None:
            place = _place_of(source)
        return open_index(str(place), **options)

    def delete(self, given: Any) -> None:
        """Remove the index of `given`; that of a path or a name is not opened, so it may be broken."""
        source, place = self.resolved(given)
        if not isinstance(source, (str, os.PathLike)):
            place = self.opened(source, place).location
        delete_index(place or S3.sub("s3://", os.fspath(source)), storage_options=self.storage_options)

    def has_index(self, frame: DataFrame) -> bool:
        """Whether an index lies beside the files of `frame`. The plan of `frame` is not checked."""
        files = sorted(map(location_of, frame.inputFiles()))
        if not files:  # such as a frame of an Iceberg table
            return False
        folder = common_folder(files)
        for place in dict.fromkeys((folder, files[0], _table_around(folder, self.storage_options) or folder)):
            with contextlib.suppress(ZoneBloomError):
                open_index(place, storage_options=self.storage_options)
                return True
        return False

    def indexes(self, given: Iterable[Any]) -> DataFrame:
        """One row for each index that has a name, and for each index of `given`.

        A named index that cannot be opened has only its name and place, and a warning.
        """
        rows = []
        for name, place in self._places():
            try:
                rows.append((name, *_shown(self.opened(place))))
            except ZoneBloomError as error:
                warnings.warn(f"index {name} at {place} cannot be opened: {error}", RuntimeWarning, stacklevel=3)
                rows.append((name, place, *[None] * 6))
        rows += [(None, *_shown(self.open(source))) for source in given]
        return self.spark.createDataFrame(rows, _INDEXES)

    def _places(self) -> list[tuple[str, str]]:
        if self.system_path is None:
            return []
        paths = open_store(self.system_path, self.storage_options).files("")
        names = {path.split("/")[0] for path in paths if path.split("/")[1:2] == ["versions"]}
        return [(name, f"{self.system_path.rstrip('/')}/{name}") for name in sorted(names)]

    def columns(self, index: Index) -> DataFrame:
        """One row for each column of `index`."""
        names = [part.split()[0] for part in _COLUMNS.split(", ")]
        rows = [tuple(getattr(column, name) for name in names) for column in index.indexed_columns()]
        return self.spark.createDataFrame(rows, _COLUMNS)


def _shown(index: Index) -> tuple[Any, ...]:
    """The columns of `_INDEXES` behind the name."""
    num_bytes = sum(column.index_bytes for column in index.indexed_columns())
    counts = index.num_fragments, index.num_rows, num_bytes
    return (index.location, index.data.location, index.version, index.columns, *counts)


def _is_path(given: Any) -> bool:
    """Whether a text is a path: it has a slash, or a file or folder has that name."""
    return isinstance(given, str) and ("/" in given or os.path.exists(given))  # noqa: PTH110 - never raises


# --- what a place holds ----------------------------------------------------------------------------------------------


def _table_around(folder: str, storage_options: Mapping[str, str] | None) -> str | None:
    """The folder of the table that contains `folder`. Data files alone do not show which rows are deleted."""
    scheme, separator, path = folder.rpartition("://")
    for above in (path, *map(str, PurePosixPath(path).parents)):
        if not separator and table_kind(above) is not None:
            return above
        if separator and above != "." and has_log_at(f"{scheme}://{above}", storage_options):
            return f"{scheme}://{above}"
    return None


def _check_is_there(text: str, error: IndexNotFoundError) -> None:
    """Explain that `text` is neither a table nor the path of one data set."""
    if "://" in text or os.path.exists(text):  # noqa: PTH110 - never raises
        return
    if _PATTERN.search(text):
        raise IndexNotFoundError(
            "a path must name one folder or file, not a pattern",
            got=text,
            do="pass the folder above; a condition on partition columns prunes its folders",
        ) from error
    if "/" not in text:
        raise IndexNotFoundError(
            "a text must be a table of Spark's catalog, a path, or the name of an index in the system path",
            got=text,
            do="see spark.catalog.listTables(), or write ./ before a path",
        ) from error


def _place_of(source: Any) -> str:
    """The default place of the index of a table.

    Raises
    ------
    InvalidArgumentError
        `source` has no default place.
    """
    dataset = open_dataset(source).pin()
    if not dataset.index_places():
        raise InvalidArgumentError(f"the index of a {type(source).__name__} must be named by index=", got="none")
    return dataset.location


def check_is_read_by_spark(dataset: Dataset, source: Any) -> None:
    """Refuse what Spark can build an index of, but zonebloom cannot read on Spark with the same rows.

    A frame of a Delta or Iceberg table, made by a JAR, has the rows of one version. Spark does not say which version:
    versions that differ only by deleted rows have the same files and the same printed plan.

    Raises
    ------
    InvalidArgumentError
        `dataset` is a Lance table; or it is a Delta or Iceberg table, and `source` is a frame.
    """
    if isinstance(dataset, LanceDataset):
        raise InvalidArgumentError(
            "a data set that Spark reads must be of Parquet files",
            got=f"the Lance table {dataset.location}",
            do="read it by open_index(path).to_table(...), or export its index to Lance for Lance's connector",
        )
    if isinstance(source, DataFrame) and not isinstance(dataset, ParquetDataset):
        raise InvalidArgumentError(
            "a Delta or Iceberg table must be read by its path, or as a DeltaTable or a pyiceberg Table",
            got="a DataFrame or a name of Spark's, which may be of another version or branch",
            do=f"use read({dataset.location!r})",
        )
