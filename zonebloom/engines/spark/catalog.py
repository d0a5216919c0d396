"""Indexes by name (`users` is the folder `<system path>/users`), opened, listed as DataFrames, and removed.

A name is a short form of a place. An index that was built without a name lies beside its data.

Spec: specs/spark.md#names
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zonebloom.engines.spark.inputs import opened, place_of
from zonebloom.index import Index, open_index
from zonebloom.maintain.versions import delete_index
from zonebloom.storage.stores.open import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Catalog", "columns_of"]

_NAME = re.compile(r"[^/\\\0:]+")
_INDEXES = (
    "name string, index string, dataset string, version long, columns array<string>, num_fragments long, "
    "num_rows long, index_bytes long"
)
_COLUMNS = (
    "name string, type string, rows_per_zone long, fpp double, sizing string, num_zones long, index_bytes long, "
    "bytes_per_row double, segments long, levels array<string>"
)


@dataclass(frozen=True, slots=True)
class Catalog:
    """The folder of the indexes with names, and the options of stores."""

    system_path: str | None
    """A folder or URL; None if indexes have no names."""
    storage_options: Mapping[str, str] | None
    """Options of the library's stores."""

    def place(self, index: str | os.PathLike[str] | None) -> str | None:
        """The place of the index that `index`, a name or a place, means; None stays None.

        A name has no slash. Without a system path, or if a folder here has that name, it is a place.
        """
        if index is None:
            return None
        text = os.fspath(index)
        if self.system_path is None or not _NAME.fullmatch(text) or os.path.isdir(text):  # noqa: PTH112 - never raises
            return text
        return f"{self.system_path.rstrip('/')}/{text}"

    def place_of(self, source: Any) -> str:
        """The place of the index of `source`: a DataFrame's folder, a name's place, or the path itself."""
        return (self.place(source) if isinstance(source, (str, os.PathLike)) else None) or place_of(source)

    def open(self, source: Any, index: str | os.PathLike[str] | None = None, version: int | None = None) -> Index:
        """The index of `source`, or the one at `index` with `source` as its data set.

        Raises
        ------
        IndexNotFoundError
            There is none.
        """
        place = self.place(index)
        if place is None and isinstance(source, (str, os.PathLike)):
            source = self.place(source)
        return opened(source, place, self.storage_options, version)

    def delete(self, source: Any) -> None:
        """Remove the index of `source` with all its versions.

        Raises
        ------
        IndexNotFoundError
            There is none.
        """
        delete_index(open_store(self.open(self.place_of(source)).info()["index"], self.storage_options))

    def indexes(self, spark: SparkSession, sources: Iterable[Any]) -> DataFrame:
        """One row for each index that has a name, and for each index of `sources`."""
        rows = []
        for name, place in (*self._named(), *((None, self.place_of(source)) for source in sources)):
            info = open_index(place, storage_options=self.storage_options).info()
            columns = info["columns"]
            rows.append(
                (
                    name,
                    info["index"],
                    info["dataset"],
                    info["version"],
                    [column["name"] for column in columns],
                    info["num_fragments"],
                    info["num_rows"],
                    sum(part["index_bytes"] for column in columns for part in (column, *column["levels"])),
                )
            )
        return spark.createDataFrame(rows, _INDEXES)

    def _named(self) -> list[tuple[str | None, str]]:
        if self.system_path is None:
            return []
        found = open_store(self.system_path, self.storage_options).files("")
        names = {path.split("/")[0] for path in found if path.split("/")[1:2] == ["versions"]}
        return [(name, f"{self.system_path.rstrip('/')}/{name}") for name in sorted(names)]


def columns_of(spark: SparkSession, index: Index) -> DataFrame:
    """One row for each column of `index`."""
    plain = ("name", "type", "rows_per_zone", "fpp", "sizing", "num_zones", "index_bytes", "bytes_per_row", "segments")
    rows = [
        (*(column[name] for name in plain), [level["name"] for level in column["levels"]])
        for column in index.info()["columns"]
    ]
    return spark.createDataFrame(rows, _COLUMNS)
