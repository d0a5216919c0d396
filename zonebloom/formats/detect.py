"""Finding the data set that a user or a version file names.

Spec: specs/index-format.md#versions
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zonebloom.errors import DataFileError, InvalidArgumentError, UnsupportedFormatError
from zonebloom.formats.dataset import Dataset
from zonebloom.formats.folder import Folder, ParquetDataset
from zonebloom.formats.local_folder import LocalFolder
from zonebloom.formats.places import root_of
from zonebloom.formats.table_marks import (
    LANCE_ENDING,
    LOG_FOLDER,
    METADATA_SUFFIX,
    has_log,
    has_manifests,
    has_metadata,
    is_log_entry,
    is_table_folder,
)
from zonebloom.storage.stores.locations import Url, absolute, is_url, joined


def dataset_from_json(
    described: dict[str, Any], index_location: str, storage_options: Mapping[str, str] | None = None
) -> Dataset:
    """The data set that a version file describes."""
    kind = described["kind"]
    if kind == "delta":
        from zonebloom.formats.delta import DeltaDataset  # noqa: PLC0415 - only for tables

        return DeltaDataset.from_json(described, index_location, storage_options)
    if kind == "iceberg":
        from zonebloom.formats.iceberg import IcebergDataset  # noqa: PLC0415 - only for tables

        return IcebergDataset.from_json(described)
    if kind == "lance":
        from zonebloom.formats.lance import LanceDataset  # noqa: PLC0415 - only for tables

        return LanceDataset.from_json(described, index_location, storage_options)
    if kind != "parquet":
        message = f"the data set of an index must be of kind parquet, delta, iceberg or lance, got {kind}"
        raise UnsupportedFormatError(f"{message}; a newer zonebloom wrote it: upgrade this one")
    location = root_of(described["root"], index_location)
    folder: Folder = LocalFolder(Path(location))
    if is_url(location):
        from zonebloom.formats.object_folder import ObjectFolder  # noqa: PLC0415 - local files do without

        folder = ObjectFolder(Url.parse(location), storage_options)
    return ParquetDataset(folder, described["layout"], tuple(described["files"]))


def open_dataset(source: Any, storage_options: Mapping[str, str] | None = None) -> Dataset:
    """The data set that `source` names: a folder, a file, a list of files, a `pyarrow.dataset.Dataset`, or a table.

    Folders and files may be local paths or URLs; a list must not mix them. A table is a folder with a log, the metadata
    file of an Iceberg table, a URL that ends with `.lance`, a `deltalake.DeltaTable`, a `pyiceberg.table.Table` or a
    `lance.LanceDataset`.

    Raises
    ------
    DataFileError
        There is no file or folder.
    InvalidArgumentError
        `source` is of another type, a part of a table, or a Dataset of other files than local Parquet files.
    MissingDependencyError
        `source` is a table, and the library that reads its log is not installed.
    StorageError
        The store of a URL cannot be reached or refuses.
    """
    if isinstance(source, (str, os.PathLike)):
        return _at(absolute(source), storage_options)
    if isinstance(source, (list, tuple)) and source and all(isinstance(one, (str, os.PathLike)) for one in source):
        locations = [absolute(one) for one in source]
        if not any(map(is_url, locations)):
            return _of_files(locations)
        if not all(map(is_url, locations)):
            raise InvalidArgumentError("files of a list must all be local or all be URLs, got some of each")
        from zonebloom.formats.object_folder import dataset_of_files  # noqa: PLC0415 - local files do without

        return dataset_of_files(locations, storage_options)
    table = _table_of(source)
    if table is not None:
        return table
    files = getattr(source, "files", None)
    if files is not None and getattr(source, "format", None) is not None:
        return _of_pyarrow(source)
    message = f"a data set must be a path, a list of paths or a pyarrow FileSystemDataset, got {type(source).__name__}"
    raise InvalidArgumentError(message)


def _at(location: str, storage_options: Mapping[str, str] | None) -> Dataset:
    if location.endswith(METADATA_SUFFIX) or (not is_url(location) and has_metadata(location)):
        from zonebloom.formats.iceberg import IcebergDataset  # noqa: PLC0415 - only for tables

        return IcebergDataset.of_path(location)
    if location.rstrip("/").endswith(LANCE_ENDING) if is_url(location) else has_manifests(location):
        from zonebloom.formats.lance import LanceDataset  # noqa: PLC0415 - only for tables

        return LanceDataset(location, storage_options)
    if has_log_at(location, storage_options):
        from zonebloom.formats.delta import DeltaDataset  # noqa: PLC0415 - only for tables

        return DeltaDataset(location, storage_options)
    if is_url(location):
        from zonebloom.formats.object_folder import dataset_at  # noqa: PLC0415 - local files do without

        return dataset_at(location, storage_options)
    path = Path(location)
    if os.path.isdir(path):  # noqa: PTH112 - never raises; Path does for a name that is too long
        for parent in path.parents:
            if is_table_folder(str(parent)):
                message = f"a data set must be a whole table, got {path}, a part of the table {parent}"
                raise InvalidArgumentError(f"{message}; its files alone do not say which rows are deleted")
        return ParquetDataset(LocalFolder(path), "folder")
    if os.path.isfile(path):  # noqa: PTH113 - as above
        return ParquetDataset(LocalFolder(path.parent), "file", (path.name,))
    found = "is neither" if os.path.exists(path) else "does not exist"  # noqa: PTH110 - as above
    hint = "; give the folder: globs are not read" if set(location) & set("*?[") else ""
    raise DataFileError(f"a data set must be a folder or a Parquet file, got {path}, which {found}{hint}")


def has_log_at(location: str, storage_options: Mapping[str, str] | None) -> bool:
    """Whether a folder is a Delta table."""
    log = joined(location, LOG_FOLDER)
    if not is_url(location):
        return has_log(location)
    from zonebloom.storage.stores.object_client import ObjectClient  # noqa: PLC0415 - local files do without

    url = Url.parse(log)
    entries, _folders = ObjectClient(url, storage_options).list_folder(url.key)
    return any(is_log_entry(one.key.rpartition("/")[2]) for one in entries)


def _table_of(source: Any) -> Dataset | None:
    """The data set of an object of deltalake, pyiceberg or pylance; None for other objects."""
    modules = {one.__module__.partition(".")[0] for one in type(source).__mro__}
    if "deltalake" in modules and hasattr(source, "table_uri"):
        from zonebloom.formats.delta import DeltaDataset  # noqa: PLC0415 - only for tables

        return DeltaDataset.of_table(source)
    if "pyiceberg" in modules and hasattr(source, "metadata_location"):
        from zonebloom.formats.iceberg import IcebergDataset  # noqa: PLC0415 - only for tables

        return IcebergDataset.of_table(source)
    if "lance" in modules and hasattr(source, "latest_version"):
        from zonebloom.formats.lance import LanceDataset  # noqa: PLC0415 - only for tables

        return LanceDataset.of_table(source)
    return None


def _of_files(paths: Sequence[str]) -> ParquetDataset:
    missing = [path for path in paths if not os.path.isfile(path)]  # noqa: PTH113 - plain strings
    if missing:
        raise DataFileError(f"each path of a list must be a file, got {missing[0]}, which is none")
    root = Path(os.path.commonpath([os.path.dirname(path) for path in paths]))  # noqa: PTH120 - plain strings
    while "=" in root.name:  # a partition that all files share is a column too
        root = root.parent
    files = sorted({Path(path).relative_to(root).as_posix() for path in paths})
    return ParquetDataset(LocalFolder(root), "files", tuple(files))


def _of_pyarrow(dataset: Any) -> ParquetDataset:
    if dataset.format.default_extname != "parquet":
        raise InvalidArgumentError(f"a pyarrow Dataset must be of Parquet files, got {dataset.format.default_extname}")
    if dataset.filesystem.type_name != "local":
        message = f"a pyarrow Dataset must be on the local file system, got {dataset.filesystem.type_name}"
        raise InvalidArgumentError(f"{message}; give the URL of the folder, or a list of URLs, and storage_options")
    if not dataset.files:
        raise DataFileError("a data set must have at least one file, got a pyarrow Dataset with none")
    return _of_files([os.path.abspath(path) for path in dataset.files])  # noqa: PTH100 - plain strings
