"""A Parquet table of Spark's catalog, and whether a read of its files by path gives the same rows.

A table may have options, metadata of columns, and partitions in any folder. zonebloom reads only a table without
options and without such metadata. It reads a partition only if it lies in the folder with its name.

Design: docs/design/spark.md#frames
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from pyspark.errors import PySparkException
from pyspark.sql import functions

from zonebloom.engines.spark.frames import location_of, table_of
from zonebloom.engines.spark.pushdown.metadata import altered_column
from zonebloom.engines.spark.pushdown.names import backquoted, named
from zonebloom.engines.spark.scan.layout import values_of
from zonebloom.engines.spark.versions import described
from zonebloom.ground.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from zonebloom.formats import DatasetSnapshot

_OPTIONS = frozenset({"path", "serialization.format", "compression"})
"""Options of a table that change no rows of a read."""
_MOST_PARTITIONS = 32
"""Partitions at most whose folders are requested from Spark; each takes about 20 ms."""
_PLAIN_VALUE = re.compile(r"[^'\"\\$]*")


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table with the same rows as its files, except for partitions in other folders."""

    frame: DataFrame
    """Spark's own read of the table."""
    name: str
    """Its name, quoted."""
    is_partitioned: bool
    problem: str | None = None
    """The reason why its files do not show its rows now, such as a cache."""

    @classmethod
    def of(cls, frame: DataFrame) -> Self | None:
        """The table that `frame` scans; None if it scans files by their path.

        Raises
        ------
        InvalidArgumentError
            Spark may read other rows of the table than of its files.
        """
        table = table_of(frame)
        if table is None:
            return None
        spark, name = frame.sparkSession, backquoted(*table.split("."))
        try:
            properties = described(spark, name)
            is_whole = frame.sameSemantics(spark.table(name))
        except PySparkException as error:
            raise InvalidArgumentError(
                "a table to read must be described by Spark's catalog",
                got=f"{table}: {_first_line(error)}",
                do="pass the path of the files",
            ) from error
        strange = sorted(set(properties.get("storage_properties", ())) - _OPTIONS)
        altered = altered_column(frame.schema)
        problem = f"the option {strange[0]}" if strange else f"column {altered}" if altered else ""
        if problem or not is_whole:
            raise InvalidArgumentError(
                "a table to read must have the rows of its files, which options and metadata of columns may change",
                got=f"{table} with {problem or 'options of a reader'}",
                do="query it by spark.sql, or pass the path of the files",
            )
        return cls(frame, name, bool(properties.get("partition_columns")))

    def misplaced(self, dataset: DatasetSnapshot, listing: Iterable[str], paths: Iterable[str]) -> str | None:
        """The reason why the table may have other partition values than the folders of `paths`; None if it has not.

        The files of the table are those of `listing`. If there are as many partitions as folders with files, and each
        of `paths` lies in the folder of its partition, no other partition can have that folder.
        """
        if self.problem is not None or not self.is_partitioned:
            return self.problem
        try:
            shown = {row[0] for row in self.frame.sparkSession.sql(f"SHOW PARTITIONS {self.name}").collect()}
            asked = sorted({*map(_folder_of, paths), *(shown - set(map(_folder_of, listing)))})
            if len(asked) > _MOST_PARTITIONS:
                return f"rows of {len(asked)} partitions may match, and Spark is asked for {_MOST_PARTITIONS} folders"
            other = next((folder for folder in asked if self._place_of(folder) != dataset.absolute(folder)), None)
        except PySparkException as error:
            return f"Spark does not say where the partitions of {self.name} lie: {_first_line(error)}"
        return None if other is None else f"partition {other} of {self.name} does not lie in the folder of its name"

    def _place_of(self, folder: str) -> str | None:
        """The folder of the partition that `folder` names; None if its values need escapes in SQL."""
        values = values_of(f"{folder}/")
        if not all(value is None or _PLAIN_VALUE.fullmatch(value) for value in values.values()):
            return None
        literals = {key: "null" if value is None else f"'{value}'" for key, value in values.items()}
        spec = ", ".join(f"{backquoted(key)} = {literal}" for key, literal in literals.items())
        location = described(self.frame.sparkSession, self.name, f"PARTITION ({spec})").get("location")
        return location_of(str(location), is_escaped=False)


def folder_of_table(frame: DataFrame, table: str, files: list[str]) -> str:
    """The folder of `table` of the catalog, of which `frame` scans `files`.

    Raises
    ------
    InvalidArgumentError
        A partition of the table lies outside of it.
    """
    spark, name = frame.sparkSession, backquoted(*table.split("."))
    folder = location_of(str(described(spark, name)["location"]), is_escaped=False).rstrip("/")
    outside = next((file for file in files if not file.startswith(f"{folder}/") and file != folder), None)
    if outside is None:
        return folder
    keys = [named(column.name) for column in spark.catalog.listColumns(name) if column.isPartition]
    url = next(url for url in frame.inputFiles() if location_of(url) == outside)
    is_of_file = functions.col("_metadata.file_path").endswith(url.partition(":")[2].lstrip("/"))
    row = frame.where(is_of_file).select(*keys).first()
    values = ", ".join(f"{key}={value}" for key, value in row.asDict().items()) if row else "without rows"
    raise InvalidArgumentError(
        f"all partitions of {table} must lie in its folder {folder}",
        got=f"partition {values} in {posixpath.dirname(outside)}",
        do="query the table by spark.sql, or pass the path of its files",
    )


def _first_line(error: PySparkException) -> str:
    return str(error).partition("\n")[0]


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0]
