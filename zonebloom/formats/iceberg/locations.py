"""Locations of Iceberg tables: as paths, below the table, and the newest metadata in a folder."""

from __future__ import annotations

import os
import re
from pathlib import Path

from zonebloom.formats.table_folders import METADATA_SUFFIX
from zonebloom.ground.errors import DataFileError, InvalidArgumentError, first_line
from zonebloom.stores.locations import is_url

_FILE = re.compile(r"\Afile:(//)?(?=/)")
_HADOOP_S3 = re.compile(r"\As3[an]://")
_HADOOP_VERSION = re.compile(r"v(\d+)(\.gz)?\.metadata\.json")


def plain_location(location: str) -> str:
    """A local location as an absolute path without dots, s3a and s3n as s3; locations are not percent-encoded.

    It is the file that pyiceberg opens: without a scheme `..` is cut as text, in a URL the system follows links first.
    """
    path = _FILE.sub("", location)
    if not path or is_url(path):
        return _HADOOP_S3.sub("s3://", path).rstrip("/")
    has_scheme, has_dots = path != location, ".." in path.split("/")
    return os.path.realpath(path) if has_scheme and has_dots else os.path.abspath(path)  # noqa: PTH100 - as pyiceberg


def real_location(location: str) -> str:
    """As `plain_location`; a local path has no links, so that a file has one location."""
    plain = plain_location(location)
    return plain if is_url(plain) else os.path.realpath(plain)


def relative_path(path: str, location: str) -> str:
    """A path relative to the table's location if it is below it; other paths unchanged."""
    plain, root = plain_location(path), plain_location(location)
    return plain[len(root) + 1 :] if plain.startswith(f"{root}/") else plain


def newest_metadata(folder: str) -> str:
    """The newest metadata file in the folder of a table without a catalog.

    Raises
    ------
    DataFileError
        There is no metadata file.
    InvalidArgumentError
        The table has a catalog, and only the catalog knows the current file.
    """
    if is_url(folder):
        raise InvalidArgumentError(
            "an Iceberg table in an object store must be given as a Table or by its metadata file", got=folder
        )
    root = Path(folder) / "metadata"
    try:
        names = sorted(file.name for file in root.iterdir() if file.name.removesuffix(".gz").endswith(METADATA_SUFFIX))
    except OSError as error:
        raise DataFileError(f"{folder} must be the folder of an Iceberg table", got=first_line(error)) from error
    numbered = {int(match[1]): name for name in names if (match := _HADOOP_VERSION.fullmatch(name))}
    if len(numbered) == len(names) and names:
        return str(root / numbered[max(numbered)])
    message = f"{folder} must be a table that no catalog keeps, with metadata files v1{METADATA_SUFFIX} and on"
    raise InvalidArgumentError(
        f"{message}",
        got=next((name for name in names if name not in numbered.values()), "none"),
        do="name it iceberg:CATALOG.NAMESPACE.TABLE, or give the path of the metadata file that is current",
    )
