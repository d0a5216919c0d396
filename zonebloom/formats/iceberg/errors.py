"""Errors of pyiceberg as errors of zonebloom, also the one that it is not installed."""

from __future__ import annotations

import contextlib
import re
import zlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from zonebloom.formats.table import library
from zonebloom.ground.errors import DataFileError, MissingDependencyError, StorageError, ZoneBloomError, first_line

_CLIENTS = ("botocore.", "aiohttp.", "google.", "gcsfs.", "azure.", "sqlalchemy.", "thrift.")
"""Modules whose exceptions a FileIO or a catalog raises for an unreachable store; they are no OSError."""
_UNFIT = (
    *(ValueError, TypeError, NotImplementedError, LookupError, AttributeError, OverflowError),
    *(EOFError, SystemError, zlib.error, pa.ArrowException),
)
"""Errors of pyiceberg for metadata, files, types and values that it cannot parse or write."""
_UNREACHABLE = re.compile(r"NETWORK_CONNECTION|could not connect|connection refused|timed? ?out", re.IGNORECASE)


def pyiceberg_tables() -> Any:
    """The module `pyiceberg.table`.

    Raises
    ------
    MissingDependencyError
        pyiceberg is not installed.
    """
    return library("pyiceberg.table", "pyiceberg", "Iceberg")


def is_of_store(error: Exception) -> bool:
    """True if a FileIO or a catalog raises `error` because its store or service does not answer, or refuses."""
    from pyiceberg.exceptions import RESTError  # noqa: PLC0415 - an extra

    return isinstance(error, (OSError, RESTError)) or type(error).__module__.startswith(_CLIENTS)


@contextlib.contextmanager
def explained(what: str, location: str, *, verb: str = "read") -> Iterator[None]:
    """Raise errors of pyiceberg in the block, which reads `what` at `location`, as errors of zonebloom.

    Raises
    ------
    DataFileError
        The file is missing, or pyiceberg cannot do with it what `verb` says.
    StorageError
        The store or the catalog cannot be reached or refuses.
    MissingDependencyError
        pyiceberg asks for a package that is not installed.
    """
    from pyiceberg.exceptions import NoSuchTableError, NotInstalledError  # noqa: PLC0415 - an extra

    try:
        yield
    except ZoneBloomError:
        raise
    except (FileNotFoundError, NoSuchTableError) as error:
        raise DataFileError(f"{what} {location} must exist", got=first_line(error)) from error
    except NotInstalledError as error:
        raise MissingDependencyError(
            f"what pyiceberg needs to {verb} {what} {location} must be installed", got=first_line(error)
        ) from error
    except Exception as error:
        if is_of_store(error):
            why = "no answer; check the endpoint and the network: " if _UNREACHABLE.search(str(error)) else ""
            raise StorageError(f"cannot {verb} {what} {location}: {why}{first_line(error)[:300]}") from error
        if isinstance(error, _UNFIT) or type(error).__module__.startswith("pyiceberg."):
            raise DataFileError(
                f"{what} {location} must be one that pyiceberg can {verb}", got=first_line(error)
            ) from error
        raise
