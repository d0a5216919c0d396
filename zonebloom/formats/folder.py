"""`ParquetDataset`: Parquet files below a folder as a data set, on this machine or in an object store.

A data set is a folder (hive-partitioned or not), one file, or a list of files. Names that begin with `_` or `.` are
skipped in a folder, as by Spark and pyarrow. DuckDB and Polars do not skip them. Every other file is a data file. In an
object store also objects of 0 bytes are skipped: some tools mark folders by them.

Spec: specs/index-format.md#object-data
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from zonebloom.formats import hive as partitions
from zonebloom.formats.dataset import DatasetSnapshot
from zonebloom.formats.index_location import is_under, places_of, written_root
from zonebloom.formats.table_folders import (
    LOG_FOLDER,
    TABLE_MARKS,
    check_is_no_part,
    part_of_table,
    table_among_files,
    table_kind,
    table_of_object,
)
from zonebloom.ground.errors import DataFileError, InvalidArgumentError, StorageError
from zonebloom.ground.threads import concurrently
from zonebloom.stores.fingerprint import Fingerprint
from zonebloom.stores.locations import Url, is_url
from zonebloom.stores.open import open_store
from zonebloom.stores.store import Store, Traffic
from zonebloom.stores.stored_file import ByteRange

if TYPE_CHECKING:
    from zonebloom.formats.parquet.file import DataFile

Wanted: TypeAlias = Sequence[Mapping[str, str | None]]
"""Partitions, with values as in names of folders."""


@dataclass(frozen=True)
class ParquetDataset(DatasetSnapshot):
    """Parquet files below a folder; plain files have no versions, so this is its own snapshot."""

    store: Store
    """The store at the root: all files are below it."""
    layout: str
    """`folder`: every file below the root; `file`: the one file in `files`; `files`: the files in `files`."""
    files: tuple[str, ...] = ()
    """The files of the layouts `file` and `files`."""
    as_files: bool = False
    """Whether this is about files and not about their rows: then they may be some of a table's."""

    def pin(self) -> ParquetDataset:
        """Itself: a changed file is detected by its fingerprint."""
        return self

    @property
    def location(self) -> str:
        """The root."""
        return self.store.location

    @property
    def is_remote(self) -> bool:
        """Whether the store is remote."""
        return self.store.is_remote

    @property
    def traffic(self) -> Traffic:
        """The network traffic so far."""
        return self.store.traffic

    def partition_values(self, path: str, fields: Iterable[pa.Field]) -> dict[str, pa.Scalar] | None:
        """The `key=value` folders of `path` in the types of `fields`; None if a value does not convert to its type."""
        return partitions.typed(path, fields)

    def path_values(self, path: str) -> dict[str, str | None]:
        """The `key=value` folders of `path` as texts."""
        return partitions.partition_values(path)

    def list(self, known_names: Iterable[str] = ()) -> dict[str, Fingerprint]:
        """The current data files, by path in order; files of a list that are gone are left out.

        Cost: in an object store one request for each 1000 objects below the root, also for those of an index, at once
        if most of the paths are `known_names`; for a list one request for each file.

        Raises
        ------
        DataFileError
            The folder or the one file itself is gone, or cannot be listed.
        InvalidArgumentError
            Local files lie in the folder of a table, whose log says which rows are deleted.
        StorageError
            The bucket is gone, or cannot be listed.
        """
        self._check_is_no_part()
        if self.layout == "folder":
            return dict(sorted(self._below("", known_names=known_names)))
        listing = self.store.stats(self.files)
        if self.layout == "file" and not listing:
            raise DataFileError(f"data file {self.absolute(self.files[0])} must exist", got="no file of this name")
        return listing

    def _check_is_no_part(self) -> None:
        """Refuse local files in the folder of a table; it may have become one since the index was built."""
        if not (self.as_files or self.is_remote):
            check_is_no_part([self.location] if self.layout == "folder" else map(self.absolute, self.files))

    def check_above(self) -> None:
        """Refuse files in the folder of a table, also in an object store; raises as `list`.

        Cost: four listings for each folder above the root, at once. One that may not be listed is passed over.
        """
        if not self.is_remote:
            self._check_is_no_part()
            return
        inside = [] if self.layout == "folder" else [self.location]
        folders = [*inside, *Url.parse(self.location).folders_above]
        for folder, is_table in zip(folders, concurrently(self._is_table, folders, len(folders)), strict=True):
            if is_table:
                raise part_of_table(self.location, folder)

    def _is_table(self, folder: str) -> bool:
        def names(mark: str) -> Sequence[str]:
            with suppress(StorageError):
                return open_store(f"{folder}/{mark}", self.store.options).list("")
            return ()

        marks = sorted(TABLE_MARKS)
        listings = zip(marks, concurrently(names, marks, len(marks)), strict=True)
        return any(table_of_object(f"/{mark}/{name}") is not None for mark, present in listings for name in present)

    def num_skipped(self) -> int:
        """As `DatasetSnapshot.num_skipped`; 0 for named files."""
        if self.layout != "folder":
            return 0
        skipped = (path for path in self.store.files("") if path.endswith(".parquet"))
        return sum(any(map(is_hidden, path.split("/"))) for path in skipped)

    def list_under(self, paths: Sequence[str]) -> dict[str, Fingerprint]:
        """As `DatasetSnapshot.list_under`."""
        self._check_is_no_part()
        if self.layout != "folder":
            return self.store.stats([path for path in self.files if is_under(path, paths)])
        if "." in paths:
            return self.list()
        listing: dict[str, Fingerprint] = {}
        for path in paths:
            if not any(map(is_hidden, path.split("/"))):
                below = dict(self._below(f"{path}/")) if self.store.may_be_folder(path) else {}
                listing.update(below or self.store.stats([path]))
        return dict(sorted(listing.items()))

    def list_partitions(self, wanted: Wanted) -> dict[str, Fingerprint]:
        """As `DatasetSnapshot.list_partitions`."""
        self._check_is_no_part()
        files = self._below("", wanted) if self.layout == "folder" else self.list().items()
        return dict(sorted((path, fingerprint) for path, fingerprint in files if partitions.agrees(path, wanted)))

    def _below(
        self, folder: str, wanted: Wanted | None = None, known_names: Iterable[str] = ()
    ) -> Iterator[tuple[str, Fingerprint]]:
        """The data files in `folder` and below, in no order; with `wanted` only those that may be of such partitions.

        A store without folders is listed at once, if all files are wanted.
        """
        pending = [folder]
        while pending:
            folder = pending.pop()
            if self.is_remote and (wanted is None or partitions.agrees(folder, wanted)):
                yield from self._listed(folder, known_names)
                continue
            files, folders = self.store.level(folder, is_hidden)
            if self.is_remote:
                files = [file for file in files if file[1].size]
                if LOG_FOLDER in folders:
                    list(self._listed(f"{folder}{LOG_FOLDER}/"))
            elif not TABLE_MARKS.isdisjoint(folders) and table_kind(self.absolute(folder)) is not None:
                raise table_among_files(self.absolute(folder))
            elif folder and os.path.islink(linked := self.absolute(folder.rstrip("/"))):  # noqa: PTH114 - text
                check_is_no_part([linked])
            yield from files
            inner = (f"{folder}{name}/" for name in folders if not is_hidden(name))
            pending += [below for below in inner if wanted is None or partitions.may_hold(below, wanted)]

    def _listed(self, folder: str, known_names: Iterable[str] = ()) -> Iterator[tuple[str, Fingerprint]]:
        """The data files in `folder` and below, by one listing of an object store."""
        for path, fingerprint in self.store.files(folder.rstrip("/"), known_names).items():
            table = table_of_object(path)
            if table is not None:
                raise table_among_files(f"{self.location}/{table}")
            if fingerprint.size and not any(is_hidden(name) for name in path.split("/")):
                yield path, fingerprint

    def absolute(self, path: str) -> str:
        """As `DatasetSnapshot.absolute`."""
        return self.store.absolute(path)

    def open(self, path: str, listed: Fingerprint | None = None, likely: Sequence[ByteRange] = ()) -> DataFile:
        """As `DatasetSnapshot.open`."""
        from zonebloom.formats.parquet.file import DataFile  # noqa: PLC0415 - a plain search opens no file

        return DataFile(self.store.open(path, listed), likely=likely)

    def relative(self, path: str | os.PathLike[str]) -> str:
        """`path`, which is absolute or relative to the root, as a path relative to the root.

        Raises
        ------
        InvalidArgumentError
            The path is outside of the root.
        """
        inside = self.store.relative(os.fspath(path))
        if inside is None:
            raise InvalidArgumentError(f"paths must lie in the data set {self.location}", got=os.fspath(path))
        return inside

    def index_places(self) -> tuple[str, ...]:
        """Beside the folder or the one file, and inside the folder."""
        if self.layout == "folder":
            return places_of(self.location)
        return places_of(self.absolute(self.files[0]))[:1] if self.layout == "file" else ()

    def check_index(self, location: str) -> None:
        """Refuse a folder below the root whose name does not hide it: readers would take the index for data."""
        if self.layout != "folder" or is_url(location) != self.is_remote:
            return
        inside = self.store.relative(location) if self.is_remote else self.inside(location)
        if inside is not None and not any(is_hidden(name) for name in inside.split("/") if name != "."):
            raise InvalidArgumentError(
                "an index inside the data set must be in a folder whose name begins with _ or .", got=location
            )

    def inside(self, path: str) -> str | None:
        """The part of a local path below the root, or below a folder to which a link in the data set leads; else None.

        None also for a list of files, and for an object store.
        """
        if self.layout != "folder" or self.is_remote:
            return None
        folders = {"", *(file.rpartition("/")[0] for file in self.list())}
        places = {self.location, *(os.path.realpath(self.absolute(folder)) for folder in folders)}
        for whole in (os.path.abspath(path), os.path.realpath(path)):  # noqa: PTH100 - text
            for place in sorted(places):
                if f"{whole}/".startswith(f"{place.rstrip('/')}/"):
                    return os.path.relpath(whole, place)
        return None

    def to_json(self, index_location: str) -> dict[str, Any]:
        """The description of the data set in a version file; see `written_root`."""
        root = written_root(self.location, index_location)
        return {"kind": "parquet", "root": root, "layout": self.layout, "files": list(self.files)}


def is_hidden(name: str) -> bool:
    """Whether readers skip files and folders of this name."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def dataset_at(location: str, storage_options: Mapping[str, str] | None) -> ParquetDataset:
    """The folder or the file at a URL.

    Raises
    ------
    DataFileError
        There is no such object or folder.
    """
    store = open_store(location, storage_options)
    if not Url.parse(location).key or any(store.level("", lambda _name: False)):
        return ParquetDataset(store, "folder")
    folder, _, name = location.rpartition("/")
    store = open_store(folder, storage_options)
    if not store.stats([name]):
        raise DataFileError(f"{location} does not exist", do="a data set is a folder or a Parquet file")
    return ParquetDataset(store, "file", (name,))


def dataset_of_files(locations: Sequence[str], storage_options: Mapping[str, str] | None) -> ParquetDataset:
    """The files at locations: all on this machine, or all in one bucket.

    Raises
    ------
    DataFileError
        One of them does not exist.
    InvalidArgumentError
        They are in different buckets.
    """
    roots = [Url.parse(location).root if is_url(location) else "" for location in locations]
    if len(set(roots)) > 1:
        raise InvalidArgumentError("files of a list must be in one bucket", got=f"{roots[0]} and others")
    paths = [location[len(roots[0]) :] for location in locations]
    common = posixpath.commonpath(map(posixpath.dirname, paths))
    while "=" in posixpath.basename(common):  # a partition that all files share is a column like the others
        common = posixpath.dirname(common)
    store = open_store(f"{roots[0]}{common}", storage_options)
    files = [posixpath.relpath(path, common) for path in paths]
    stats = store.stats(sorted(set(files)))
    missing = [location for location, path in zip(locations, files, strict=True) if path not in stats]
    if missing:
        raise DataFileError(
            "each path of a list must be a file", got=f"{missing[0]}, which is none", do="pass a folder by itself"
        )
    return ParquetDataset(store, "files", tuple(stats))
