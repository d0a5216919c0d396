"""Detection of folders of tables: a Delta log, Iceberg's metadata, Lance's manifests, Hudi's timeline.

A table's log has its deleted rows, so the files of a table must not be read as a data set of plain files.

Design: docs/design/tables.md#files
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any

from zonebloom.ground.errors import DataFileError, InvalidArgumentError, Words

LOG_FOLDER = "_delta_log"
"""A folder with this folder is a Delta table, if it has an entry of a log."""
METADATA_SUFFIX = ".metadata.json"
"""Part of the names of Iceberg's metadata files, in the folder `metadata` of a table; old writers append `.gz`."""
METADATA_FOLDER = "metadata"
CATALOG_PREFIX = "iceberg:"
"""Begins the name of an Iceberg table in a catalog of pyiceberg's configuration."""
HUDI_FOLDER = ".hoodie"
VERSIONS_FOLDER = "_versions"
"""A folder with this folder is a Lance table, if it has a manifest."""
MANIFEST_SUFFIX = ".manifest"
BRANCHES_FOLDER = "tree"
"""The folder of a Lance table with a folder for each branch but the main one."""
_LANCE_URL = re.compile(rf".*\.lance(/{BRANCHES_FOLDER}/.+)?/*")
"""The URL of a Lance table or of a branch; at other URLs no manifest is looked for."""
TABLE_MARKS = frozenset({LOG_FOLDER, METADATA_FOLDER, HUDI_FOLDER, VERSIONS_FOLDER})
"""Names of folders whose parent may be a table."""
TABLE_FOLDERS = frozenset({LOG_FOLDER, VERSIONS_FOLDER, "_deletions", "_indices", "_refs", "_transactions"})
"""A table's own folders, whose names would hide an index."""
_LOG_ENTRY = re.compile(r"\d{20}\.(json|checkpoint\..*)")


def is_catalog_name(source: Any) -> bool:
    """Whether `source` names an Iceberg table in a catalog."""
    return isinstance(source, str) and source.startswith(CATALOG_PREFIX)


def is_log_entry(name: str) -> bool:
    """Whether a file of this name in `_delta_log` is an entry of a log."""
    return _LOG_ENTRY.fullmatch(name) is not None


def is_lance_url(url: str) -> bool:
    """Whether a Lance table or a branch of one is at a URL."""
    return _LANCE_URL.fullmatch(url) is not None


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - text
    except OSError as error:
        if isinstance(error, PermissionError) and not folder.endswith(METADATA_FOLDER):  # many a folder has that name
            raise DataFileError(f"{folder} must be a readable folder", got=error.strerror) from error
        return []


def table_kind(folder: str) -> str | None:
    """The kind of the table whose folder a local folder is: `iceberg`, `lance`, `delta` or `hudi`; None if of none.

    Raises
    ------
    DataFileError
        It has the metadata of two kinds, such as those that Delta's UniForm writes: one may be behind the other.
    """
    marks = {
        "iceberg": any(METADATA_SUFFIX in name for name in _names(f"{folder}/{METADATA_FOLDER}")),
        "lance": any(name.endswith(MANIFEST_SUFFIX) for name in _names(f"{folder}/{VERSIONS_FOLDER}")),
        "delta": any(map(is_log_entry, _names(f"{folder}/{LOG_FOLDER}"))),
    }
    kinds = [kind for kind, is_there in marks.items() if is_there]
    if len(kinds) > 1:
        raise DataFileError(
            f"{folder} must be a table of one kind",
            got=" and ".join(kinds),
            do="give the DeltaTable, the LanceDataset, or the Table or metadata file of Iceberg",
        )
    if kinds:
        return kinds[0]
    return "hudi" if os.path.isdir(f"{folder}/{HUDI_FOLDER}") else None  # noqa: PTH112 - text


def check_is_no_part(paths: Iterable[str]) -> None:
    """Refuse local files and folders that lie in the folder of a table, by links too.

    Raises
    ------
    InvalidArgumentError
        One does.
    """
    checked: set[str] = set()
    for path in paths:
        above = path if os.path.islink(path) else os.path.dirname(path)  # noqa: PTH114, PTH120 - text, on a hot path
        while above not in checked:
            checked.add(above)
            if os.path.islink(above):  # noqa: PTH114 - of a link the folders around its target count
                real = os.path.realpath(above)
                above = real if above != path else os.path.dirname(real)  # noqa: PTH120
                continue
            is_marked = any(os.access(f"{above}/{mark}", os.F_OK) for mark in TABLE_MARKS)
            if is_marked and table_kind(above) is not None:
                raise part_of_table(path, above)
            above = os.path.dirname(above)  # noqa: PTH120 - of the root it is the root


def part_of_table(place: str, table: str) -> InvalidArgumentError:
    """The error for a data set that lies in the folder of a table."""
    return InvalidArgumentError(
        "a data set must be a whole table",
        got=f"{place}, a part of the table {table}",
        do="its files alone do not say which rows are deleted",
    )


def advice_if_replaced(folder: str, kind: str) -> str | None:
    """What to do with the index of a table whose local folder is no table of this kind any more."""
    if not os.path.isdir(folder) or table_kind(folder) == kind:  # noqa: PTH112 - text
        return None
    return f"the folder is no {kind.capitalize()} table any more: build with {Words.OVERWRITE} to index what it is now"


def table_among_files(folder: str) -> DataFileError:
    """The error for a table in a data set of plain files, which would ignore the table's deletes."""
    return DataFileError(
        f"folder {folder.rstrip('/')} must be indexed as what it is, a table",
        got="a data set of its files",
        do="build an index of the Delta, Iceberg or Lance table (Hudi's are not read)",
    )


def table_of_object(path: str) -> str | None:
    """The folder of the table to whose log an object belongs; None if it belongs to none."""
    folder, _, name = path.rpartition("/")
    above, _, last = folder.rpartition("/")
    is_log = last == LOG_FOLDER and is_log_entry(name)
    is_log = is_log or (last == VERSIONS_FOLDER and name.endswith(MANIFEST_SUFFIX))
    if is_log or (last == METADATA_FOLDER and METADATA_SUFFIX in name):
        return above
    return path.partition(f"{HUDI_FOLDER}/")[0] if f"/{HUDI_FOLDER}/" in f"/{path}" else None
