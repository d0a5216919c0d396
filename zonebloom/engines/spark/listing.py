"""Indexes as DataFrames: those of a system path, and the columns of one; and removing one.

Spec: specs/spark.md#names
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from zonebloom.engines.spark.catalog import Catalog
from zonebloom.index import Index
from zonebloom.index import open_index as open_library_index
from zonebloom.maintain.versions import delete_index as delete_files
from zonebloom.storage.stores.open import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["columns_of", "delete_index", "indexes", "open_index"]

_INDEXES = (
    "name string, index string, dataset string, version long, columns array<string>, num_fragments long, "
    "num_rows long, index_bytes long"
)
_COLUMNS = (
    "name string, type string, rows_per_zone long, fpp double, sizing string, num_zones long, index_bytes long, "
    "bytes_per_row double, segments long, levels array<string>"
)


def open_index(
    place: str, storage_options: Mapping[str, str] | None, *, version: int | None = None, dataset: Any = None
) -> Index:
    """The library's index at `place`."""
    return open_library_index(place, version=version, storage_options=storage_options, dataset=dataset)


def delete_index(place: str, storage_options: Mapping[str, str] | None) -> None:
    """Remove the index at `place` with all its versions.

    Raises
    ------
    IndexNotFoundError
        There is none.
    """
    index = open_index(place, storage_options)
    delete_files(open_store(index.info()["index"], storage_options))


def indexes(
    spark: SparkSession, catalog: Catalog, places: Sequence[str], storage_options: Mapping[str, str] | None
) -> DataFrame:
    """One row for each index of the catalog and of `places`."""
    rows = []
    named = _names(catalog, storage_options)
    for name, place in (*named.items(), *((None, place) for place in places)):
        info = open_index(place, storage_options).info()
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
                sum(_bytes(column) for column in columns),
            )
        )
    return _frame(spark, rows, _INDEXES)


def _names(catalog: Catalog, storage_options: Mapping[str, str] | None) -> dict[str, str]:
    if catalog.system_path is None:
        return {}
    found = open_store(catalog.system_path, storage_options).files("")
    names = {path.split("/")[0] for path in found if path.split("/")[1:2] == ["versions"]}
    return {name: f"{catalog.system_path.rstrip('/')}/{name}" for name in sorted(names)}


def _bytes(column: Mapping[str, Any]) -> int:
    return sum((int(level["index_bytes"]) for level in column["levels"]), int(column["index_bytes"]))


def columns_of(spark: SparkSession, index: Index) -> DataFrame:
    """One row for each column of `index`."""
    plain = ("name", "type", "rows_per_zone", "fpp", "sizing", "num_zones", "index_bytes", "bytes_per_row", "segments")
    rows = [
        (*(column[name] for name in plain), [level["name"] for level in column["levels"]])
        for column in index.info()["columns"]
    ]
    return _frame(spark, rows, _COLUMNS)


def _frame(spark: SparkSession, rows: Iterable[tuple[Any, ...]], schema: str) -> DataFrame:
    return spark.createDataFrame(list(rows), schema)
