"""Indexes by name, as Hyperspace has them: `users` is the folder `<system path>/users`.

A name is only a shorter way to write a place; an index that was built without one lies beside its data.

Spec: specs/spark.md#names
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from zonebloom.errors import InvalidArgumentError

__all__ = ["BFIndexConfig", "Catalog"]

_NAME = re.compile(r"[^/\\\0:]+")


@dataclass(frozen=True, slots=True)
class BFIndexConfig:
    """What `createIndex` makes: Hyperspace's configuration of a bloom filter index, by its names there."""

    indexName: str  # noqa: N815 - Hyperspace's name
    """Name of the index: its folder in the system path."""
    indexedColumns: tuple[str, ...] | list[str]  # noqa: N815 - Hyperspace's name
    """Columns to index."""
    expectedNumItems: int = 8192  # noqa: N815 - Hyperspace's name
    """Rows of a zone, each of which has a filter for so many different values."""
    fpp: float = 0.00057
    """False positive probability of a filter."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """The folder that holds the indexes which have names."""

    system_path: str | None
    """A folder or URL; None where indexes are known by their places only."""

    def place(self, index: str | os.PathLike[str] | None) -> str | None:
        """Where the index lies that `index`, a name or a place, means; None stays None.

        A name has no slash; where there is no system path, or something of that name is a folder here, it is a place.
        """
        if index is None:
            return None
        text = os.fspath(index)
        if self.system_path is None or not _NAME.fullmatch(text) or os.path.isdir(text):  # noqa: PTH112 - never raises
            return text
        return f"{self.system_path.rstrip('/')}/{text}"

    def place_of_name(self, name: str) -> str | None:
        """Where the index `name` is made; None, which is beside its data, where there is no system path.

        Raises
        ------
        InvalidArgumentError
            It cannot be the name of a folder.
        """
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name in (".", ".."):
            raise InvalidArgumentError(f"the name of an index must be the name of a folder, got {name!r}")
        return None if self.system_path is None else f"{self.system_path.rstrip('/')}/{name}"
