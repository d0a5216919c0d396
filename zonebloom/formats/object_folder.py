"""`ObjectFolder`: a prefix of an object store, and all the data files below it.

Names that begin with `_` or `.` are skipped, as in a local folder. Objects of 0 bytes are skipped too: some tools mark
folders by them.

Spec: specs/index-format.md#object-data
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from zonebloom.errors import DataFileError, InvalidArgumentError
from zonebloom.formats import hive as partitions
from zonebloom.formats.folder import ParquetDataset, Wanted, is_hidden
from zonebloom.formats.object_source import ObjectSource, fingerprint_of
from zonebloom.formats.table_marks import LOG_FOLDER, table_among_files, table_of_object
from zonebloom.storage.fragments import Fingerprint
from zonebloom.storage.stores.locations import Url, absolute, is_url
from zonebloom.storage.stores.object_client import ObjectClient
from zonebloom.storage.stores.store import Traffic

_HEADS = 16
"""Files of a list whose metadata is requested in parallel."""


class ObjectFolder:
    """A `Folder` of an object store."""

    is_remote = True

    def __init__(self, root: Url, storage_options: Mapping[str, str] | None = None) -> None:
        self.root = root
        self._options = storage_options
        self._client = ObjectClient(root, storage_options)

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectFolder, (self.root, self._options)

    def __repr__(self) -> str:
        return f"ObjectFolder({self.location!r})"

    @property
    def location(self) -> str:
        """Its URL."""
        return self.root.location

    @property
    def traffic(self) -> Traffic:
        """Requests and bytes so far."""
        return self._client.traffic

    def walk(self, wanted: Wanted | None) -> Iterable[tuple[str, Fingerprint]]:
        """All data files below it, or only files that may be of the partitions `wanted`."""
        return self._below("") if wanted is None else self._walk("", wanted)

    def paths(self) -> Iterator[str]:
        """All objects below it, also those that readers skip."""
        return (self.root.path_of(meta.key) for meta in self._client.list_all(self.root.key_of("")))

    def below(self, path: str) -> dict[str, Fingerprint]:
        """The data file at `path`, or all data files in the folder at `path`."""
        return dict(self._below(path)) or self.fingerprints([path])

    def _below(self, folder: str) -> Iterator[tuple[str, Fingerprint]]:
        for meta in self._client.list_all(self.root.key_of(folder)):
            path = self.root.path_of(meta.key)
            table = table_of_object(path)
            if table is not None:
                raise table_among_files(f"{self.location}/{table}")
            if meta.size and not any(is_hidden(name) for name in path.split("/")):
                yield path, fingerprint_of(meta)

    def _walk(self, folder: str, wanted: Wanted) -> Iterator[tuple[str, Fingerprint]]:
        """The files of the partitions `wanted` below a folder, level by level."""
        objects, folders = self._client.list_folder(self.root.key_of(folder.rstrip("/")))
        for meta in objects:
            name = meta.key.rsplit("/", 1)[-1]
            if meta.size and not is_hidden(name):
                yield folder + name, fingerprint_of(meta)
        if LOG_FOLDER in folders:
            list(self._below(f"{folder}{LOG_FOLDER}"))
        for name in folders:
            below = f"{folder}{name}/"
            if is_hidden(name) or not partitions.may_hold(below, wanted):
                continue
            if partitions.agrees(below, wanted):
                yield from self._below(below.rstrip("/"))
            else:
                yield from self._walk(below, wanted)

    def fingerprints(self, paths: Sequence[str]) -> dict[str, Fingerprint]:
        """The fingerprints of the objects among `paths`."""

        def head(path: str) -> Fingerprint | None:
            with contextlib.suppress(FileNotFoundError):
                return fingerprint_of(self._client.head(self.root.key_of(path)))
            return None

        with ThreadPoolExecutor(_HEADS) as pool:
            found = zip(paths, pool.map(head, paths), strict=True)
        return {path: one for path, one in found if one is not None}

    def absolute(self, path: str) -> str:
        """The URL of a file."""
        return Url(self.root.scheme, self.root.bucket, self.root.key_of(path)).location

    def relative(self, given: str) -> str | None:
        """`given`, a URL or relative to the folder, as a path relative to it; None if it is outside."""
        if is_url(given) and Url.parse(given).root != self.root.root:
            return None
        whole = absolute(given)[len(self.root.root) + 1 :] if is_url(given) else self.root.key_of(given)
        key = posixpath.normpath(whole) if whole else ""
        is_inside = key == self.root.key or not self.root.key or key.startswith(f"{self.root.key}/")
        if not is_inside or key.split("/")[0] == ".." or key.startswith("/"):
            return None
        return self.root.path_of(key) or "."

    def open(self, path: str, listed: Fingerprint | None) -> ObjectSource:
        """The object at `path`; if it was `listed`, in that version and without a request."""
        return ObjectSource(self._client, self.root.key_of(path), listed)


def dataset_at(location: str, storage_options: Mapping[str, str] | None) -> ParquetDataset:
    """The folder or the file at a URL.

    Raises
    ------
    DataFileError
        There is no such object or folder.
    """
    url = Url.parse(location)
    client = ObjectClient(url, storage_options)
    if not url.key or any(client.list_folder(url.key)):
        return ParquetDataset(ObjectFolder(url, storage_options), "folder")
    try:
        client.head(url.key)
    except FileNotFoundError as error:
        message = f"a data set must be a folder or a Parquet file, got {url.location}, which does not exist"
        raise DataFileError(message) from error
    folder, _, name = url.key.rpartition("/")
    return ParquetDataset(ObjectFolder(Url(url.scheme, url.bucket, folder), storage_options), "file", (name,))


def dataset_of_files(locations: Sequence[str], storage_options: Mapping[str, str] | None) -> ParquetDataset:
    """The files at URLs of one bucket.

    Raises
    ------
    DataFileError
        One of them does not exist.
    InvalidArgumentError
        They are in different buckets.
    """
    urls = [Url.parse(location) for location in locations]
    if len({url.root for url in urls}) > 1:
        raise InvalidArgumentError(f"files of a list must be in one bucket, got {urls[0].root} and others")
    common = posixpath.commonpath([posixpath.dirname(f"/{url.key}") for url in urls])
    while "=" in posixpath.basename(common):  # a partition that all files share is a column like the others
        common = posixpath.dirname(common)
    root = Url(urls[0].scheme, urls[0].bucket, common.strip("/"))
    files = tuple(sorted({root.path_of(url.key) for url in urls}))
    folder = ObjectFolder(root, storage_options)
    there = folder.fingerprints(files)
    missing = [path for path in files if path not in there]
    if missing:
        raise DataFileError(f"each path of a list must be a file, got {folder.absolute(missing[0])}, which is none")
    return ParquetDataset(folder, "files", files)
