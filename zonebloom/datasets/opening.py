"""Finding the data set that a user or a version file names.

Spec: specs/index-format.md#versions
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zonebloom.datasets.dataset import Dataset
from zonebloom.datasets.parquet import ParquetDataset, absolute_path
from zonebloom.errors import DataFileError, InvalidArgumentError

__all__ = ["dataset_from_json", "open_dataset"]


def dataset_from_json(described: dict[str, Any], index_location: str) -> Dataset:
    """The data set that a version file describes."""
    return ParquetDataset.from_json(described, index_location)


def open_dataset(source: Any) -> ParquetDataset:
    """The data set that `source` names: a folder, a Parquet file, a list of files, or a `pyarrow.dataset.Dataset`.

    Raises
    ------
    DataFileError
        Nothing is there.
    InvalidArgumentError
        `source` is something else, or its files are not local Parquet files.
    """
    if isinstance(source, (str, os.PathLike)):
        path = absolute_path(source)
        if os.path.isdir(path):  # noqa: PTH112 - never raises, where Path does for a name that is too long
            return ParquetDataset(path, "folder")
        if os.path.exists(path):  # noqa: PTH110 - as above
            return ParquetDataset(path.parent, "file", (path.name,))
        raise DataFileError(f"a data set must be a folder or a Parquet file, got {path}, which does not exist")
    if isinstance(source, (list, tuple)) and source and all(isinstance(one, (str, os.PathLike)) for one in source):
        return _of_files([os.path.abspath(os.fspath(one)) for one in source])  # noqa: PTH100 - as above
    files = getattr(source, "files", None)
    if files is not None and getattr(source, "format", None) is not None:
        return _of_pyarrow(source)
    message = f"a data set must be a path, a list of paths or a pyarrow FileSystemDataset, got {type(source).__name__}"
    raise InvalidArgumentError(message)


def _of_files(paths: Sequence[str]) -> ParquetDataset:
    missing = [path for path in paths if not os.path.isfile(path)]  # noqa: PTH113 - plain strings
    if missing:
        raise DataFileError(f"each path of a list must be a file, got {missing[0]}, which is none")
    root = Path(os.path.commonpath([os.path.dirname(path) for path in paths]))  # noqa: PTH120 - plain strings
    while "=" in root.name:  # a partition that all files share is a column like the others
        root = root.parent
    return ParquetDataset(root, "files", tuple(sorted({Path(path).relative_to(root).as_posix() for path in paths})))


def _of_pyarrow(dataset: Any) -> ParquetDataset:
    if dataset.format.default_extname != "parquet":
        raise InvalidArgumentError(f"a pyarrow Dataset must be of Parquet files, got {dataset.format.default_extname}")
    if dataset.filesystem.type_name != "local":
        message = f"a pyarrow Dataset must be on the local file system, got {dataset.filesystem.type_name}"
        raise InvalidArgumentError(message)
    if not dataset.files:
        raise DataFileError("a data set must have at least one file, got a pyarrow Dataset with none")
    return _of_files([os.path.abspath(path) for path in dataset.files])  # noqa: PTH100 - plain strings
