"""The columns of a data set as Spark's own Parquet reader has them: names, order, types.

The index has Arrow's types. A footer has the rest: whether nanoseconds are Parquet's INT96, and the types that Spark
wrote itself (collations, intervals).

Spec: specs/spark.md#types
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import types as spark

from zonebloom.engines.spark.scan import partition_columns
from zonebloom.engines.spark.scan.splits import Reading
from zonebloom.engines.spark.scan.types import arrow_type, nullable_type, spark_type
from zonebloom.errors import ColumnNotFoundError, DataFileError, InvalidArgumentError, UnsupportedTypeError
from zonebloom.formats.parquet.file import open_parquet

if TYPE_CHECKING:
    from zonebloom.search.view import View

__all__ = ["Layout"]

_ROW_METADATA = b"org.apache.spark.sql.parquet.row.metadata"
_NUM_FOOTERS = 32
"""Footers read at most to find a column. A column in none of them gets Arrow's type."""


@dataclass(frozen=True)
class Layout:
    """One listing of a data set, with Spark's types."""

    view: View

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """Columns whose values paths, or a table's log, give."""
        return tuple(field.name for field in self.view.partition_fields)

    @cached_property
    def is_hive(self) -> bool:
        """Whether the partition columns are folders, whose values give Spark the types."""
        return self.view.dataset.declared() is None

    def schema(self, columns: Sequence[str] | None = None) -> spark.StructType:
        """All columns in order, or those named, each nullable.

        Raises
        ------
        ColumnNotFoundError
            There is no such column.
        UnsupportedTypeError
            Spark does not read a column from Parquet.
        """
        schema = self.view.schema
        names = list(schema.names) if columns is None else list(columns)
        for name in names:
            if schema.get_field_index(name) < 0:
                raise ColumnNotFoundError.among(name, schema.names, f"the data set {self.view.dataset.location}")
        return spark.StructType([spark.StructField(name, self._type(schema.field(name)), True) for name in names])

    @cached_property
    def readable(self) -> spark.StructType:
        """All columns but those that Spark does not read from Parquet."""
        fields = []
        for field in self.view.schema:
            try:
                fields.append(spark.StructField(field.name, self._type(field), True))
            except UnsupportedTypeError:
                continue
        return spark.StructType(fields)

    def _type(self, field: pa.Field) -> spark.DataType:
        if field.name in self.partition_columns and self.is_hive:
            return partition_columns.infer(one.get(field.name) for one in self._texts.values())
        is_int96, written = self._described(field)
        found = spark_type(field.name, field.type, is_int96=is_int96)
        return found if written is None else _as_written(field.name, written, found)

    @cached_property
    def _texts(self) -> dict[str, dict[str, str | None]]:
        """The partition values of each folder with files, as texts."""
        folders = dict.fromkeys(path.rpartition("/")[0] for path in self.view.files)
        return {folder: partition_columns.values_of(f"{folder}/") for folder in folders}

    # --- footers ------------------------------------------------------------------------------------------------------

    def _described(self, field: pa.Field) -> tuple[bool, Any]:
        """Whether the first file with the column holds it as INT96, and the type that Spark wrote for it."""
        for names, int96, written in self._footers():
            if field.name in names:
                return field.name in int96, written.get(field.name)
        return False, None

    def _footers(self) -> Iterator[tuple[frozenset[str], frozenset[str], dict[str, Any]]]:
        """For some files in order: columns, INT96 columns, and the types that Spark wrote. Each footer is read once."""
        yield from self._read
        while len(self._read) < _NUM_FOOTERS:
            path = next(self._paths, None)
            if path is None:
                return
            try:
                with open_parquet(self.view.dataset, path, self.view.listing[path]) as data:
                    self._read.append((frozenset(data.schema.names), data.int96_columns, _written(data.metadata)))
            except DataFileError:  # the read of its rows raises the error
                continue
            yield self._read[-1]

    @cached_property
    def _read(self) -> list[tuple[frozenset[str], frozenset[str], dict[str, Any]]]:
        return []

    @cached_property
    def _paths(self) -> Iterator[str]:
        return iter(sorted(self.view.files))

    # --- reading ------------------------------------------------------------------------------------------------------

    def reading(self, schema: spark.StructType) -> Reading:
        """How tasks read columns of `schema`.

        Raises
        ------
        ColumnNotFoundError, UnsupportedTypeError
            As `schema`.
        InvalidArgumentError
            A column of `schema` has another type in the data set.
        """
        for one, known in zip(schema, self.schema(schema.names), strict=True):
            if arrow_type(known.dataType) != arrow_type(one.dataType):
                message = f"column {one.name} must be of type {known.dataType.simpleString()}"
                raise InvalidArgumentError(f"{message}, got {one.dataType.simpleString()}; load the data set again")
        return Reading(self.view.dataset, schema)

    def partition_values(self, path: str, schema: spark.StructType) -> dict[str, Any]:
        """Values of the partition columns of `schema`, in its types, without columns that the file itself holds.

        Raises
        ------
        DataFileError
            One does not fit its type.
        """
        types = {one.name: one.dataType for one in schema}
        names = [name for name in self.partition_columns if name in types]
        if not names:  # the folders of thousands of files
            return {}
        if self.is_hive:
            texts = self._texts[path.rpartition("/")[0]]
            return {name: partition_columns.typed(texts.get(name), types[name], path) for name in names}
        found = self.view.dataset.partition_values(path, self.view.partition_fields)
        if found is None:
            raise DataFileError(f"the partition values of {path} must fit their types; refresh the index")
        return {name: _python(found[name]) for name in names if name in found}


def _python(value: pa.Scalar) -> Any:
    found = value.as_py()
    return found.astimezone(dt.UTC) if isinstance(found, dt.datetime) and found.tzinfo is not None else found


def _written(metadata: Any) -> dict[str, spark.DataType]:
    """The types that Spark wrote into a footer, by column."""
    text = (metadata.metadata or {}).get(_ROW_METADATA)
    if text is None:
        return {}
    try:
        return {one.name: one.dataType for one in spark.StructType.fromJson(json.loads(text))}
    except Exception:  # noqa: BLE001 - text of another version of Spark; Parquet's own types apply
        return {}


def _as_written(column: str, written: spark.DataType, found: spark.DataType) -> spark.DataType:
    """`written` if it is the same type with a collation; refused if only Spark can read it."""
    try:
        nullable = nullable_type(written)
        is_same = arrow_type(nullable) == arrow_type(found)
    except UnsupportedTypeError as error:
        message = f"column {column} must be of a type that other readers of Parquet know, got {written.simpleString()}"
        raise UnsupportedTypeError(f"{message}; name the other columns in the option columns") from error
    return nullable if is_same else found
