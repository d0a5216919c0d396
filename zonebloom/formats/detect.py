"""Finding the data set that a user or a version file names.

Spec: specs/index-format.md#versions
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from zonebloom.formats.dataset import Dataset
from zonebloom.formats.folder import ParquetDataset, dataset_at, dataset_of_files
from zonebloom.formats.hive import is_int32, partition_values, with_keys
from zonebloom.formats.index_location import root_of
from zonebloom.formats.table_folders import (
    CATALOG_PREFIX,
    LOG_FOLDER,
    METADATA_SUFFIX,
    is_catalog_name,
    is_lance_url,
    is_log_entry,
    table_kind,
)
from zonebloom.ground.arrow import schema_without_views, unwrapped
from zonebloom.ground.errors import DataFileError, InvalidArgumentError, UnsupportedFormatError
from zonebloom.stores.local import LocalStore
from zonebloom.stores.locations import absolute, check_options, is_url, joined
from zonebloom.stores.open import open_store
from zonebloom.stores.store import Store


def dataset_from_json(described: dict[str, Any], index: Store) -> Dataset:
    """The data set that a version file of the index in the store `index` describes, opened with its options."""
    kind = described["kind"]
    if kind == "iceberg":
        from zonebloom.formats.iceberg.dataset import IcebergDataset  # noqa: PLC0415 - only for tables

        return IcebergDataset.from_json(described, index.options)
    if kind == "lance":
        from zonebloom.formats.lance import LanceDataset  # noqa: PLC0415 - only for tables

        return LanceDataset.from_json(described, index.location, index.options)
    if kind not in ("parquet", "delta"):
        raise UnsupportedFormatError.newer(
            "the data set of an index must be of kind parquet, delta, iceberg or lance", kind
        )
    store = open_store(root_of(described["root"], index.location), index.options)
    if kind == "delta":
        from zonebloom.formats.delta import DeltaDataset  # noqa: PLC0415 - only for tables

        return DeltaDataset(store)
    return ParquetDataset(store, described["layout"], tuple(described["files"]))


def open_dataset(source: Any, storage_options: Mapping[str, str] | None = None, *, as_files: bool = False) -> Dataset:
    """The data set that `source` names: a folder, a file, a list of files, a `pyarrow.dataset.Dataset`, or a table.

    `as_files` is for what concerns files and not their rows: then local files may be some of a table's.

    Folders and files may be local paths or URLs; a list must not mix them. A table is a folder with a log, the metadata
    file of an Iceberg table, `iceberg:CATALOG.NAMESPACE.TABLE`, a URL that ends with `.lance`, a
    `deltalake.DeltaTable`, a `pyiceberg.table.Table` or a `lance.LanceDataset`.

    Raises
    ------
    DataFileError
        There is no file or folder.
    InvalidArgumentError
        `source` is of another type, a part of a table, a list that has a file twice, or a Dataset with a filter or of
        other files than local Parquet files.
    MissingDependencyError
        `source` is a table, and the library that reads its log is not installed.
    StorageError
        The store of a URL cannot be reached or refuses.
    """
    check_options(storage_options)
    if is_catalog_name(source):
        from zonebloom.formats.iceberg.dataset import IcebergDataset  # noqa: PLC0415 - only for tables

        return IcebergDataset.of_name(source.removeprefix(CATALOG_PREFIX))
    if isinstance(source, (str, os.PathLike)):
        return _at(absolute(source), storage_options, as_files=as_files)
    if isinstance(source, (list, tuple)) and source and all(isinstance(path, (str, os.PathLike)) for path in source):
        return _of_files([absolute(path) for path in source], storage_options, as_files=as_files)
    table = _table_of(source)
    if table is not None:
        return table
    files = getattr(source, "files", None)
    if files is not None and getattr(source, "format", None) is not None:
        return _of_pyarrow(source, as_files=as_files)
    raise InvalidArgumentError(
        "a data set must be a path, a list of at least one path, a table or a pyarrow FileSystemDataset",
        got=f"{source!r:.80}" if isinstance(source, (list, tuple)) else type(source).__name__,
    )


def _at(location: str, storage_options: Mapping[str, str] | None, *, as_files: bool) -> Dataset:
    kind = None if is_url(location) else table_kind(location)
    if location.endswith(METADATA_SUFFIX) or kind == "iceberg":
        from zonebloom.formats.iceberg.dataset import IcebergDataset  # noqa: PLC0415 - only for tables

        return IcebergDataset.of_path(location, storage_options)
    if kind == "lance" or (is_url(location) and is_lance_url(location)):
        from zonebloom.formats.lance import LanceDataset  # noqa: PLC0415 - only for tables

        return LanceDataset(location, storage_options)
    if kind == "delta" or (is_url(location) and has_log_at(location, storage_options)):
        from zonebloom.formats.delta import DeltaDataset  # noqa: PLC0415 - only for tables

        return DeltaDataset(open_store(location, storage_options))
    if is_url(location):
        return dataset_at(location, storage_options)
    path = Path(location)
    if os.path.isdir(path):  # noqa: PTH112 - never raises; Path does for a name that is too long
        return ParquetDataset(LocalStore(path), "folder", as_files=as_files)
    if os.path.isfile(path):  # noqa: PTH113 - as above
        return ParquetDataset(LocalStore(path.parent), "file", (path.name,), as_files=as_files)
    state = "is neither a folder nor a file" if os.path.exists(path) else "does not exist"  # noqa: PTH110 - as above
    hint = "; give the folder: globs are not read" if set(location) & set("*?[") else ""
    raise DataFileError(f"{path} {state}{hint}")


def has_log_at(url: str, storage_options: Mapping[str, str] | None) -> bool:
    """Whether a folder of an object store is a Delta table."""
    return any(map(is_log_entry, open_store(joined(url, LOG_FOLDER), storage_options).list("")))


def _table_of(source: Any) -> Dataset | None:
    """The data set of an object of deltalake, pyiceberg or pylance; None for other objects."""
    modules = {base.__module__.partition(".")[0] for base in type(source).__mro__}
    if "deltalake" in modules and hasattr(source, "table_uri"):
        from zonebloom.formats.delta import DeltaDataset  # noqa: PLC0415 - only for tables

        return DeltaDataset.of_table(source)
    if "pyiceberg" in modules and hasattr(source, "metadata_location"):
        from zonebloom.formats.iceberg.dataset import IcebergDataset  # noqa: PLC0415 - only for tables

        return IcebergDataset.of_table(source)
    if "lance" in modules and hasattr(type(source), "latest_version"):
        from zonebloom.formats.lance import LanceDataset  # noqa: PLC0415 - only for tables

        return LanceDataset.of_table(source)
    return None


def _of_files(locations: Sequence[str], storage_options: Mapping[str, str] | None, *, as_files: bool) -> ParquetDataset:
    if len(set(locations)) < len(locations):
        twice = next(location for location in locations if locations.count(location) > 1)
        raise InvalidArgumentError("a data set must list each file once", got=f"{twice} twice")
    if len(set(map(is_url, locations))) > 1:
        raise InvalidArgumentError("files of a list must all be local or all be URLs", got="some of each")
    return replace(dataset_of_files(locations, storage_options), as_files=as_files)


def _is_cut(fragment: Any) -> bool:
    """Whether a fragment of a pyarrow Dataset has only some row groups of its file; those of `Index.dataset` have all.

    Cost: pyarrow reads the footer.
    """
    try:
        return hasattr(fragment, "subset") and bool(fragment.num_row_groups < fragment.metadata.num_row_groups)
    except (pa.ArrowException, OSError):  # a build skips an unreadable file
        return False


def _stored(fragment: Any) -> pa.Schema:
    """The columns in the file of a fragment. Cost: pyarrow reads the footer."""
    try:
        return fragment.physical_schema
    except (pa.ArrowException, OSError):  # a build skips an unreadable file
        return pa.schema([])


def _check_partitions(dataset: Any) -> None:
    from pyarrow.dataset import get_partition_keys  # noqa: PLC0415 - the caller has loaded it

    for fragment in dataset.get_fragments():
        folders, partition = partition_values(fragment.path), get_partition_keys(fragment.partition_expression)
        for key in partition.keys() & set(_stored(fragment).names) if partition else ():
            raise InvalidArgumentError(
                "a pyarrow Dataset must have each column in its files or in its partitions",
                got=f"{key} in both, in {fragment.path}",
                do="give the folder: values of files count there",
            )
        for key, value in partition.items():
            text = folders.get(key, "")
            spelled = None if text is None else int(text) if is_int32(text) else text
            if spelled != value and (value is None or text != str(value)):
                raise InvalidArgumentError(
                    "a pyarrow Dataset must have no partitions but those of key=value folders",
                    got=f"{key} = {value!r} for {fragment.path}",
                    do="write the files to such folders",
                )


def _check_schema(dataset: Any, files: Sequence[str]) -> None:
    """Check that files and folders have the columns of the Dataset in its types, and the first file has no others."""
    from zonebloom.formats.schema_evolution import unified  # noqa: PLC0415 - a plain search does without

    schemas = [_stored(fragment) for fragment in dataset.get_fragments()]
    held, _ = with_keys(unified(list(dict.fromkeys(schemas))), files)
    types = {field.name: unwrapped(field.type) for field in schema_without_views(held)}
    wrong = [field for field in schema_without_views(dataset.schema) if types.get(field.name) != unwrapped(field.type)]
    left_out = sorted({*schemas[0].names} - {*dataset.schema.names})
    if wrong or left_out:
        own = f"{wrong[0].name}: {wrong[0].type}" if wrong else f"one without {left_out[0]}"
        raise InvalidArgumentError(
            "a pyarrow Dataset must have the schema of its files and folders, which an index has",
            got=f"{own}, where they have {types.get(wrong[0].name, 'none') if wrong else 'it'}",
            do="give the folder or the list of files, and cast or select what to_table returns",
        )


def _of_pyarrow(dataset: Any, *, as_files: bool) -> ParquetDataset:
    if dataset._scan_options:  # noqa: SLF001 - pyarrow says nowhere else that a Dataset is filtered
        raise InvalidArgumentError(
            "a pyarrow Dataset must have no filter, since an index is of whole files",
            got="a filtered one",
            do="give the Dataset itself, and the filter to each search",
        )
    if dataset.format.default_extname != "parquet":
        raise InvalidArgumentError("a pyarrow Dataset must be of Parquet files", got=dataset.format.default_extname)
    if dataset.filesystem.type_name != "local":
        raise InvalidArgumentError(
            "a pyarrow Dataset must be on the local file system",
            got=dataset.filesystem.type_name,
            do="give the URL of the folder, or a list of URLs, and storage_options",
        )
    unit = dataset.format.read_options.coerce_int96_timestamp_unit
    if unit != "ns":
        raise InvalidArgumentError("a pyarrow Dataset must read times of INT96 as they are", got=f"in {unit}")
    _check_partitions(dataset)
    if any(map(_is_cut, dataset.get_fragments())):
        raise InvalidArgumentError(
            "a pyarrow Dataset must be of whole files, since an index is",
            got="some row groups of a file",
            do="give the files",
        )
    if not dataset.files:
        raise DataFileError("a data set must have at least one file", got="a pyarrow Dataset with none")
    paths = [os.path.abspath(path) for path in dataset.files]  # noqa: PTH100 - plain strings
    named = _of_files(paths, None, as_files=as_files)
    _check_schema(dataset, named.files)
    return named
