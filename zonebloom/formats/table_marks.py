"""What makes a folder a table: a Delta log, Iceberg's metadata, Lance's manifests, Hudi's timeline.

The files of a table alone do not say which of their rows are there, so they are no data set of plain files.

Spec: specs/tables.md#files
"""

from __future__ import annotations

import os
import re

from zonebloom.errors import DataFileError

__all__ = [
    "LANCE_ENDING",
    "LOG_FOLDER",
    "METADATA_SUFFIX",
    "TABLE_FOLDERS",
    "TABLE_MARKS",
    "VERSIONS_FOLDER",
    "has_log",
    "has_manifests",
    "has_metadata",
    "is_log_entry",
    "is_table_folder",
    "table_among_files",
    "table_of_object",
]

LOG_FOLDER = "_delta_log"
"""What makes a folder a Delta table."""
METADATA_SUFFIX = ".metadata.json"
"""How names of Iceberg's metadata files end; a folder that has some in its folder `metadata` is a table."""


METADATA_FOLDER = "metadata"
HUDI_FOLDER = ".hoodie"
VERSIONS_FOLDER = "_versions"
"""What makes a folder a Lance table."""
MANIFEST_SUFFIX = ".manifest"
LANCE_ENDING = ".lance"
"""How the URL of a Lance table ends; at another one no manifest is looked for."""
TABLE_MARKS = frozenset({LOG_FOLDER, METADATA_FOLDER, HUDI_FOLDER, VERSIONS_FOLDER})
"""Names of folders that may make the folder around them a table."""
TABLE_FOLDERS = frozenset({LOG_FOLDER, VERSIONS_FOLDER, "_deletions", "_indices", "_refs", "_transactions"})
"""Folders of a table's own in it, whose names would hide an index."""
_LOG_ENTRY = re.compile(r"\d{20}\.(json|checkpoint\..*)")


def is_log_entry(name: str) -> bool:
    """Whether a file in `_delta_log` makes that a log."""
    return _LOG_ENTRY.fullmatch(name) is not None


def has_log(folder: str) -> bool:
    """Whether a local folder is that of a Delta table."""
    try:
        return any(map(is_log_entry, os.listdir(f"{folder}/{LOG_FOLDER}")))  # noqa: PTH208 - text
    except OSError:
        return False


def has_manifests(folder: str) -> bool:
    """Whether a local folder is that of a Lance table."""
    try:
        return any(name.endswith(MANIFEST_SUFFIX) for name in os.listdir(f"{folder}/{VERSIONS_FOLDER}"))  # noqa: PTH208 - text
    except OSError:
        return False


def table_among_files(folder: str) -> DataFileError:
    """The error for a table in a data set of plain files: which rows are deleted its files alone do not say."""
    message = f"folder {folder.rstrip('/')} must be indexed as what it is, a table, got a data set of its files"
    return DataFileError(f"{message}; build an index of the Delta, Iceberg or Lance table (Hudi's are not read)")


def is_table_folder(folder: str) -> bool:
    """Whether a local folder is that of a table of any kind."""
    is_hudi = os.path.isdir(f"{folder}/{HUDI_FOLDER}")  # noqa: PTH112 - text
    return is_hudi or has_log(folder) or has_metadata(folder) or has_manifests(folder)


def table_of_object(path: str) -> str | None:
    """The folder of the table that an object belongs to as part of its log; None if it does not."""
    folder, _, name = path.rpartition("/")
    above, _, last = folder.rpartition("/")
    is_log = last == LOG_FOLDER and is_log_entry(name)
    is_log = is_log or (last == VERSIONS_FOLDER and name.endswith(MANIFEST_SUFFIX))
    if is_log or (last == METADATA_FOLDER and name.endswith(METADATA_SUFFIX)):
        return above
    return path.partition(f"{HUDI_FOLDER}/")[0] if f"/{HUDI_FOLDER}/" in f"/{path}" else None


def has_metadata(folder: str) -> bool:
    """Whether a local folder is that of an Iceberg table."""
    try:
        return any(name.endswith(METADATA_SUFFIX) for name in os.listdir(f"{folder}/{METADATA_FOLDER}"))  # noqa: PTH208 - text
    except OSError:
        return False
