"""`ObjectDataset`: Parquet files below a URL: a folder (hive-partitioned or not), one file, or a list of files.

Names that begin with `_` or `.` are skipped in a folder, as in a local one. So are objects of 0 bytes, with which some
tools mark folders: no reader finds a row in them.

Spec: specs/index-format.md#object-data
"""

from __future__ import annotations

import contextlib
import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from zonebloom.errors import DataFileError, InvalidArgumentError
from zonebloom.formats import hive as partitions
from zonebloom.formats.folder import is_hidden
from zonebloom.formats.object_source import ObjectSource, fingerprint_of
from zonebloom.formats.parquet.file import DataFile
from zonebloom.formats.places import places_of, written_root
from zonebloom.formats.source import Fingerprint
from zonebloom.formats.table_marks import LOG_FOLDER, table_among_files, table_of_object
from zonebloom.storage.stores.locations import Url, absolute, is_url
from zonebloom.storage.stores.object_client import ObjectClient
from zonebloom.storage.stores.store import Traffic

__all__ = ["ObjectDataset"]

_HEADS = 16
"""Files of a list that are asked for at once."""


class ObjectDataset:
    """Where the Parquet files are.

    - Paths of files are relative to the URL `root`, with `/`.
    """

    def __init__(
        self,
        root: Url,
        layout: str,
        files: Sequence[str] = (),
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        self.root = root
        self.layout = layout
        """`folder`: every file below the root; `file`: the one in `files`; `files`: those in `files`."""
        self.files = tuple(files)
        self._options = storage_options
        self._client = ObjectClient(root, storage_options)
        self._known: dict[str, Fingerprint] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectDataset, (self.root, self.layout, self.files, self._options)

    def __repr__(self) -> str:
        return f"ObjectDataset({self.location!r}, {self.layout!r})"

    @classmethod
    def at(cls, location: str, storage_options: Mapping[str, str] | None) -> ObjectDataset:
        """The folder or the file at a URL.

        Raises
        ------
        DataFileError
            Nothing is there.
        """
        url = Url.parse(location)
        client = ObjectClient(url, storage_options)
        if not url.key or any(client.list_folder(url.key)):
            return cls(url, "folder", (), storage_options)
        try:
            client.head(url.key)
        except FileNotFoundError as error:
            message = f"a data set must be a folder or a Parquet file, got {url.location}, which does not exist"
            raise DataFileError(message) from error
        folder, _, name = url.key.rpartition("/")
        return cls(Url(url.scheme, url.bucket, folder), "file", (name,), storage_options)

    @classmethod
    def of_files(cls, locations: Sequence[str], storage_options: Mapping[str, str] | None) -> ObjectDataset:
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
        folder = posixpath.commonpath([posixpath.dirname(f"/{url.key}") for url in urls])
        while "=" in posixpath.basename(folder):  # a partition that all files share is a column like the others
            folder = posixpath.dirname(folder)
        key = folder.strip("/")
        files = sorted({url.key[len(key) + 1 if key else 0 :] for url in urls})
        made = cls(Url(urls[0].scheme, urls[0].bucket, key), "files", files, storage_options)
        missing = [path for path in files if path not in made.list()]
        if missing:
            message = f"each path of a list must be a file, got {made.absolute(missing[0])}, which is none"
            raise DataFileError(message)
        return made

    def pin(self) -> ObjectDataset:
        """Itself: plain files have no versions; a file that changes is found by its fingerprint."""
        return self

    def declared(self) -> None:
        """None: only the files know."""

    def partition_values(self, path: str, fields: Iterable[pa.Field]) -> dict[str, pa.Scalar] | None:
        """The `key=value` folders of `path` in the types of `fields`; None where one does not fit its type."""
        return partitions.typed(path, fields)

    def path_values(self, path: str) -> dict[str, str | None]:
        """The `key=value` folders of `path` as texts."""
        return partitions.partition_values(path)

    @property
    def location(self) -> str:
        """The URL of the root."""
        return self.root.location

    @property
    def traffic(self) -> Traffic:
        """Requests and bytes so far."""
        return self._client.traffic

    def list(self) -> dict[str, Fingerprint]:
        """The data files there are now, by path in order; those of a list that are gone are left out.

        Cost: a request for each 1000 objects below the root, those of an index too; of a list, one for each file.

        Raises
        ------
        StorageError
            The bucket is gone or cannot be listed.
        """
        found = self._below("") if self.layout == "folder" else self._heads(self.files)
        self._known = found
        return dict(found)

    def num_skipped(self) -> int:
        """Parquet files in the folder that are no data, as a name begins with `_` or `.`; some engines read them."""
        if self.layout != "folder":
            return 0
        start = len(self.root.key) + 1 if self.root.key else 0
        paths = (meta.key[start:] for meta in self._client.list_all(self._key("")))
        return sum(path.endswith(".parquet") and any(map(is_hidden, path.split("/"))) for path in paths)

    def list_under(self, paths: Sequence[str]) -> dict[str, Fingerprint]:
        """As `list`, but only files that are one of `paths` (relative to the root, with `/`) or in one of them."""
        if self.layout != "folder":
            files = [
                one for one in self.files if any(path in (one, ".") or one.startswith(f"{path}/") for path in paths)
            ]
            return self._heads(files)
        if "." in paths:
            return self.list()
        found: dict[str, Fingerprint] = {}
        for path in paths:
            if not any(is_hidden(name) for name in path.split("/")):
                below = self._below(path)
                found.update(below or self._heads([path]))
        self._known = {**self._known, **found}
        return dict(sorted(found.items()))

    def _below(self, folder: str) -> dict[str, Fingerprint]:
        start = len(self.root.key) + 1 if self.root.key else 0
        found = {}
        for meta in self._client.list_all(self._key(folder)):
            path = meta.key[start:]
            table = table_of_object(path)
            if table is not None:
                raise table_among_files(f"{self.location}/{table}")
            if meta.size and not any(is_hidden(name) for name in path.split("/")):
                found[path] = fingerprint_of(meta)
        return dict(sorted(found.items()))

    def list_partitions(self, wanted: Sequence[Mapping[str, str | None]]) -> dict[str, Fingerprint]:
        """As `list`, but only files in folders that agree with one of `wanted`; no other folder is listed."""
        found = dict(self._walk("", wanted)) if self.layout == "folder" else self._heads(self.files)
        found = {path: one for path, one in sorted(found.items()) if partitions.agrees(path, wanted)}
        self._known = {**self._known, **found}
        return found

    def _walk(self, folder: str, wanted: Sequence[Mapping[str, str | None]]) -> Iterator[tuple[str, Fingerprint]]:
        """The files of a folder that has some of `wanted` below it, level by level."""
        objects, folders = self._client.list_folder(self._key(folder.rstrip("/")))
        for meta in objects:
            name = meta.key.rsplit("/", 1)[-1]
            if meta.size and not is_hidden(name):
                yield folder + name, fingerprint_of(meta)
        if LOG_FOLDER in folders:
            self._below(f"{folder}{LOG_FOLDER}")
        for name in folders:
            below = f"{folder}{name}/"
            if is_hidden(name) or not partitions.may_hold(below, wanted):
                continue
            if partitions.agrees(below, wanted):
                yield from self._below(below.rstrip("/")).items()
            else:
                yield from self._walk(below, wanted)

    def _heads(self, files: Sequence[str]) -> dict[str, Fingerprint]:
        def head(path: str) -> Fingerprint | None:
            with contextlib.suppress(FileNotFoundError):
                return fingerprint_of(self._client.head(self._key(path)))
            return None

        with ThreadPoolExecutor(_HEADS) as pool:
            found = zip(files, pool.map(head, files), strict=True)
        return {path: one for path, one in found if one is not None}

    def _key(self, path: str) -> str:
        return f"{self.root.key}/{path}" if self.root.key and path else path or self.root.key

    def absolute(self, path: str) -> str:
        """The URL of a data file."""
        return Url(self.root.scheme, self.root.bucket, self._key(path)).location

    def open(self, path: str) -> DataFile:
        """The data file at `path`, opened: the version that was listed last.

        Raises
        ------
        DataFileError
            It is missing, no longer that version, or no whole Parquet file.
        """
        return DataFile(ObjectSource(self._client, self._key(path), self._known.get(path)))

    def deleted_rows(self, path: str) -> None:
        """None: what a plain file holds is there."""

    def relative(self, path: str | os.PathLike[str]) -> str:
        """`path`, which is a URL or relative to the root, as a path relative to the root.

        Raises
        ------
        InvalidArgumentError
            It lies outside.
        """
        given = os.fspath(path)
        key = absolute(given)[len(self.root.root) + 1 :] if is_url(given) else posixpath.normpath(self._key(given))
        is_inside = key == self.root.key or not self.root.key or key.startswith(f"{self.root.key}/")
        if not is_inside or key.split("/")[0] in ("..", "") or (is_url(given) and not self._is_ours(given)):
            raise InvalidArgumentError(f"paths must lie in the data set {self.location}, got {given}")
        return key[len(self.root.key) + 1 if self.root.key else 0 :] or "."

    def _is_ours(self, location: str) -> bool:
        return Url.parse(location).root == self.root.root

    def index_places(self) -> tuple[str, ...]:
        """Beside the folder or the one file, and inside the folder."""
        if self.layout == "folder":
            return places_of(self.location)
        return places_of(self.absolute(self.files[0]))[:1] if self.layout == "file" else ()

    def check_index(self, location: str) -> None:
        """Refuse a place where the index would be taken for data: a folder of the root that no name hides."""
        if self.layout != "folder" or not is_url(location) or not self._is_ours(location):
            return
        key, root = Url.parse(location).key, self.root.key
        inside = key[len(root) + 1 if root else 0 :]
        if (key == root or not root or key.startswith(f"{root}/")) and not any(map(is_hidden, inside.split("/"))):
            message = "an index inside the data set must be in a folder whose name begins with _ or ."
            raise InvalidArgumentError(f"{message}, got {location}")

    def to_json(self, index_location: str) -> dict[str, Any]:
        """The data set as a version file holds it; see `written_root`."""
        root = written_root(self.location, index_location)
        return {"kind": "parquet", "root": root, "layout": self.layout, "files": list(self.files)}
