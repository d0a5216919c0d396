"""The values of a file's columns in the types of the data set, exactly; and those of columns that a file does not have.

Spec: specs/zones.md#schema-evolution
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from zonebloom.ground.arrow import is_number
from zonebloom.ground.casts import cast_exactly
from zonebloom.ground.errors import DataFileError, Words, first_line
from zonebloom.predicates.coerce import value_of


def filled(
    table: pa.Table, fields: Iterable[pa.Field], values: Mapping[str, Any], folders: Mapping[str, Any], path: str
) -> list[pa.ChunkedArray]:
    """The columns `fields` of the file at `path`: from `table`, or filled in if the file does not have them.

    Parameters
    ----------
    values
        Values of partition columns, as Arrow scalars or as Python values.
    folders
        Values of the file's `key=value` folders, for columns that only other files have; other columns are null.

    Raises
    ------
    DataFileError
        The value of a folder does not convert to the type of its column.
    """
    columns = []
    for field in fields:
        if field.name in values:
            value = values[field.name]
            value = value if isinstance(value, pa.Scalar) else pa.scalar(value, field.type)
            columns.append(pa.chunked_array([pa.repeat(value, table.num_rows)]))
        elif table.schema.get_field_index(field.name) >= 0:
            columns.append(table[field.name])
        elif field.name in folders:
            value = _folder_value(folders[field.name], field.type, field.name, path)
            columns.append(pa.chunked_array([pa.repeat(value, table.num_rows)]))
        else:
            columns.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)]))
    return columns


def as_type(column: pa.ChunkedArray, wanted: pa.DataType, name: str, path: str) -> pa.ChunkedArray:
    """Column `name` of the file at `path` as the type `wanted`, each value as it is.

    Raises
    ------
    DataFileError
        A value does not convert, or would be another one.
    """
    try:
        return cast_exactly(column, wanted)
    except pa.ArrowException as error:
        message = f"column {name} of {path} must convert to the data set's type {wanted}"
        raise DataFileError(message, got=f"{column.type}: {first_line(error)}", do=Words.REFRESH_TYPES) from error


def _folder_value(value: Any, wanted: pa.DataType, name: str, path: str) -> pa.Scalar:
    """The value of a column that is not in a file, from a folder of its path or from the log of its table.

    Spec: specs/pruning.md#partition-columns
    """
    if value is None:
        return pa.scalar(None, wanted)
    try:
        if isinstance(value, str) and is_number(wanted):
            return value_of(value, wanted)
        return (value if isinstance(value, pa.Scalar) else pa.scalar(value, pa.string())).cast(wanted)
    except (ValueError, pa.ArrowNotImplementedError) as error:
        raise DataFileError(
            f"the folder {name}={value} of {path} must be of the type {wanted} that files have", got=error
        ) from error
