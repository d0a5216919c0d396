"""The columns of a data set as Spark's own Parquet reader has them: names, order, types.

The index has Arrow's types. Footers show whether nanoseconds are Parquet's INT96, and the types that Spark itself wrote
(collations, intervals). Values of folders get Spark's types here: the library infers int32 and text, and Spark also
wider numbers, dates and fractions. A timestamp needs a session's time zone, so it stays a text.

Design: docs/design/spark.md#types, docs/design/spark.md#partition-columns
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import types as spark

from zonebloom.bloom.hashing import selected
from zonebloom.engines.spark.pushdown.metadata import CHAR
from zonebloom.engines.spark.pushdown.types import UnboundError, date_of
from zonebloom.engines.spark.scan.splits import Reading, Split, packed, splits_of
from zonebloom.engines.spark.scan.types import MAX_DIGITS, arrow_type, nullable_type, spark_type
from zonebloom.formats.parquet.file import open_parquet
from zonebloom.ground.cached import cached_property
from zonebloom.ground.errors import DataFileError, InvalidArgumentError, UnsupportedTypeError, Words

if TYPE_CHECKING:
    from zonebloom.bloom.selection import RowSelection
    from zonebloom.search.view import View

_ROW_METADATA = b"org.apache.spark.sql.parquet.row.metadata"
_NUM_FOOTERS = 32
"""Footers read at most to find a column. A column in none of them gets Arrow's type."""
_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_INTEGER = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_HEX = r"0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+"
_DOUBLE = re.compile(rf"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|{_HEX})[fFdD]?")
_INT, _LONG, _DOUBLE_TYPE = spark.IntegerType(), spark.LongType(), spark.DoubleType()
_TEXT, _DATE_TYPE, _VOID = spark.StringType(), spark.DateType(), spark.NullType()
_DIGITS = {"integer": 10, "long": 20}
"""Decimal digits of each integer type."""
_ZONE = ", tz=UTC"
_Footer: TypeAlias = tuple[set[str], frozenset[str], dict[str, spark.StructField]]
"""Columns of a file, its columns of INT96, and its columns as Spark wrote them."""


@dataclass(frozen=True)
class Layout:
    """One listing of a data set, with Spark's types."""

    view: View

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """Columns with values from paths or from a table's log."""
        return tuple(field.name for field in self.view.partition_fields)

    @cached_property
    def is_hive(self) -> bool:
        """Whether the partition columns are folders; then Spark infers the types from the values."""
        return self.view.dataset.declared is None

    def schema(self, columns: Sequence[str] | None = None) -> spark.StructType:
        """All columns in order, or those named, each nullable.

        Raises
        ------
        ColumnNotFoundError
            There is no such column.
        UnsupportedTypeError
            Spark does not read a column from Parquet.
        """
        fields = selected(self.view.schema, columns, f"the data set {self.view.dataset.location}")
        return spark.StructType(list(map(self._field, fields)))

    @cached_property
    def readable(self) -> spark.StructType:
        """All columns but those that Spark does not read from Parquet."""
        fields = []
        for field in self.view.schema:
            try:
                fields.append(self._field(field))
            except UnsupportedTypeError:
                continue
        return spark.StructType(fields)

    def _field(self, field: pa.Field) -> spark.StructField:
        """The column in Spark's type, with its default for files without the column; Spark pads texts of CHAR(n)."""
        if field.name in self.partition_columns and self.is_hive:
            return spark.StructField(field.name, infer(texts.get(field.name) for texts in self._texts.values()), True)
        is_int96, written = self._described(field)
        read_as = spark_type(field.name, field.type, is_int96=is_int96)
        if self.view.dataset.declared is not None:  # the log has the columns of a table, files may have other names
            char = (field.metadata or {}).get(CHAR.encode())
            return spark.StructField(field.name, read_as, True, char and {CHAR: char.decode()})
        if written is None:
            return spark.StructField(field.name, read_as, True)
        kept = {key: text for key, text in written.metadata.items() if key in ("EXISTS_DEFAULT", CHAR)}
        column_type = _as_written(field.name, written.dataType, read_as, is_int96=is_int96)
        return spark.StructField(field.name, column_type, True, kept)

    @cached_property
    def _texts(self) -> dict[str, dict[str, str | None]]:
        """The partition values of each folder with files, as the folders spell them."""
        folders = dict.fromkeys(path.rpartition("/")[0] for path in self.view.files)
        return {folder: _spelled(f"{folder}/") for folder in folders}

    # --- footers ------------------------------------------------------------------------------------------------------

    def _described(self, field: pa.Field) -> tuple[bool, Any]:
        """Whether the first file with the column holds it as INT96, and the column as Spark wrote it."""
        for path in self._first_paths:
            names, int96, written = self._footer(path)
            if field.name in names:
                return field.name in int96, written.get(field.name)
        return False, None

    @cached_property
    def _first_paths(self) -> list[str]:
        return sorted(self.view.files)[:_NUM_FOOTERS]

    def _footer(self, path: str) -> _Footer:
        """The footer of a file, which is read once; one without columns if it cannot be read."""
        if path not in self._footers:
            try:
                with open_parquet(self.view.dataset, path, self.view.listing[path]) as data:
                    self._footers[path] = set(data.schema.names), data.int96_columns, _written(data.metadata)
            except DataFileError:  # the read of its rows raises the error
                self._footers[path] = set(), frozenset(), {}
        return self._footers[path]

    @cached_property
    def _footers(self) -> dict[str, _Footer]:
        return {}

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
        for asked, own in zip(schema, self.schema(schema.names), strict=True):
            if arrow_type(own.dataType) != arrow_type(asked.dataType):
                raise InvalidArgumentError(
                    f"column {asked.name} must be of type {own.dataType.simpleString()}",
                    got=asked.dataType.simpleString(),
                    do="read the data set again",
                )
        return Reading(self.view.dataset, schema)

    def tasks(self, rows: RowSelection, asked: spark.StructType) -> tuple[Reading, list[tuple[Split, ...]]]:
        """How the columns `asked` are read, and the tasks that read `rows`; raises as `reading` does."""
        splits = splits_of(self.view, rows, lambda path: self.partition_values(path, asked))
        return self.reading(asked), packed(splits)

    def partition_values(self, path: str, schema: spark.StructType) -> dict[str, Any]:
        """Values of the partition columns of `schema`, in its types, without columns that the file itself holds.

        Raises
        ------
        DataFileError
            One does not fit its type.
        """
        types = {field.name: field.dataType for field in schema}
        names = [name for name in self.partition_columns if name in types]
        if not names:  # saves parsing the folders of thousands of files
            return {}
        if self.is_hive:
            texts = self._texts[path.rpartition("/")[0]]
            return {name: typed(texts.get(name), types[name], path) for name in names}
        values = self.view.dataset.partition_values(path, self.view.partition_fields)
        if values is None:
            raise DataFileError(f"the partition values of {path} must fit their types", do=Words.REFRESH)
        return {name: _python(values[name]) for name in names if name in values}


def _python(value: pa.Scalar) -> Any:
    plain = value.as_py()
    return plain.astimezone(dt.UTC) if isinstance(plain, dt.datetime) and plain.tzinfo is not None else plain


def _written(metadata: Any) -> dict[str, spark.StructField]:
    """The columns that Spark wrote into a footer, by name."""
    text = (metadata.metadata or {}).get(_ROW_METADATA)
    if text is None:
        return {}
    try:
        return {field.name: field for field in spark.StructType.fromJson(json.loads(text))}
    except Exception:  # noqa: BLE001 - text of another version of Spark; Parquet's own types apply
        return {}


def _as_written(column: str, written: spark.DataType, read: spark.DataType, *, is_int96: bool) -> spark.DataType:
    """`written` if it is the same type with a collation, or with times beside INT96; refused if only Spark reads it."""
    try:
        nullable = nullable_type(written)
        types = [str(arrow_type(side)) for side in (nullable, read)]
        is_same = len({text.replace(_ZONE, "") if is_int96 else text for text in types}) == 1
    except UnsupportedTypeError as error:
        raise UnsupportedTypeError(
            f"column {column} must be of a type that other readers of Parquet know",
            got=written.simpleString(),
            do="select the other columns",
        ) from error
    return nullable if is_same else read


# --- partition columns ------------------------------------------------------------------------------------------------


def values_of(path: str) -> dict[str, str | None]:
    """The `key=value` folders of a relative path; in a value `%` and two digits are one character, as in Spark.

    Keys are named as the library names its columns.

    >>> values_of("day=3/city=a%2Fb/part-0.parquet")
    {'day': '3', 'city': 'a/b'}
    """
    return {key: None if value is None else _decoded(value) for key, value in _spelled(path).items()}


def _spelled(path: str) -> dict[str, str | None]:
    """As `values_of`, with the values as the folders spell them: `%2B5` is no number in Spark."""
    values: dict[str, str | None] = {}
    for folder in path.split("/")[:-1]:
        key, separator, value = folder.partition("=")
        if separator and key:
            values[unquote(key)] = None if value == _NULL_FOLDER else value
    return values


def _decoded(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)


# --- types ------------------------------------------------------------------------------------------------------------


def infer(texts: Iterable[str | None]) -> spark.DataType:
    """The type that Spark infers for spelled values of a partition column; text where it would infer timestamp."""
    types = {_type_of(text) for text in texts} - {_VOID}
    if len(types) <= 1:
        return next(iter(types), _VOID)
    names = {each.typeName() for each in types}
    if names == {"integer", "long"}:
        return _LONG
    if names == {"integer", "double"}:
        return _DOUBLE_TYPE
    if names <= {"integer", "long", "decimal"}:
        return spark.DecimalType(max(_DIGITS.get(each.typeName(), getattr(each, "precision", 0)) for each in types), 0)
    return _TEXT


def _type_of(text: str | None) -> spark.DataType:
    if text is None:
        return _VOID
    if _INTEGER.fullmatch(text):
        number = int(text)
        if -(1 << 31) <= number < 1 << 31:
            return _INT
        if -(1 << 63) <= number < 1 << 63:
            return _LONG
    whole = _whole_number(text)
    if whole is not None:
        return spark.DecimalType(len(str(abs(whole))), 0)
    if _DOUBLE.fullmatch(_trimmed(text)):
        return _DOUBLE_TYPE
    with suppress(UnboundError):
        return _DATE_TYPE if date_of(text) else _TEXT
    return _TEXT


def _whole_number(text: str) -> int | None:
    """A decimal without digits after the point, of at most 38 digits."""
    if not _DECIMAL.fullmatch(text):
        return None
    exponent = decimal.Decimal(text).as_tuple().exponent
    if not isinstance(exponent, int) or not 0 <= exponent <= MAX_DIGITS:
        return None
    number = int(decimal.Decimal(text))
    return number if len(str(abs(number))) <= MAX_DIGITS else None


def _trimmed(text: str) -> str:
    return text.strip("".join(map(chr, range(33))))


def typed(text: str | None, column_type: spark.DataType, path: str) -> Any:
    """A partition value of the file at `path`, as its folder spells it, as a Python value of its type.

    Raises
    ------
    DataFileError
        It does not fit the type.
    """
    if text is None:
        return None
    if isinstance(column_type, spark.StringType):
        return _decoded(text)
    try:
        return _READ_AS[column_type.typeName()](text)
    except (KeyError, ValueError, ArithmeticError) as error:
        raise DataFileError(
            f"the partition folders of {path} must fit type {column_type.simpleString()}",
            got=f"{text!r}",
            do="read the data set again",
        ) from error


def _double(text: str) -> float:
    trimmed = _trimmed(text).rstrip("fFdD")
    return float.fromhex(trimmed) if "x" in trimmed.lower() else float(trimmed)


_READ_AS: dict[str, Callable[[str], Any]] = {
    "integer": int,
    "long": int,
    "decimal": lambda text: decimal.Decimal(int(decimal.Decimal(text))),
    "double": _double,
    "date": dt.date.fromisoformat,
}
