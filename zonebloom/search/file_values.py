"""The values of a file's columns in the types of the data set, exactly; and those of columns that a file does not have.

Spec: specs/zones.md#schema-evolution
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from zonebloom.ground.arrow import is_bytes, is_number, is_text, misreads, plain_array, rounds_floats, some_leaf
from zonebloom.ground.errors import DataFileError, Words
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
    if column.type == wanted:
        return column
    message = f"column {name} of {path} must convert to the data set's type {wanted}, got {column.type}"
    for is_wrong, why in ((rounds_floats, ", whose values it would round"), (misreads, "")):
        if some_leaf(is_wrong, column.type, wanted):
            raise DataFileError(f"{message}{why}", do=Words.REFRESH)
    try:
        converted = column.cast(wanted)
        is_same = not some_leaf(is_unchecked, column.type, wanted) or _has_values_of(column, converted)
    except pa.ArrowException as error:
        raise DataFileError(f"{message}: {error}") from error
    if not is_same:
        raise DataFileError(f"{message}, which has not all of its values")
    return converted


def _has_values_of(column: pa.ChunkedArray, converted: pa.ChunkedArray) -> bool:
    """Whether `converted`, cast back, is `column`."""
    if not len(column):
        return True
    before, after = (pa.chunked_array(list(map(plain_array, side.chunks))) for side in (column, converted))
    return bool(after.cast(before.type).equals(before))


def is_unchecked(held: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a safe cast of pyarrow 26 might change values without an error: any from one kind of type to another.

    Of one kind decimals wrap, and times of day are cut.
    """
    t = pa.types
    kinds = (t.is_integer, t.is_floating, is_text, is_bytes, t.is_timestamp)
    is_one_kind = held == wanted or any(is_it(held) and is_it(wanted) for is_it in kinds)
    is_printed_exactly = t.is_floating(held) and is_text(wanted)  # and no NaN equals the NaN that it is read as
    return not (is_one_kind or is_printed_exactly or t.is_null(held) or is_text(held))


def _folder_value(value: Any, wanted: pa.DataType, name: str, path: str) -> pa.Scalar:
    """The value of a column that is not in a file, from a folder of its path or from the log of its table.

    Spec: specs/pruning.md#partition-columns
    """
    try:
        if isinstance(value, str) and is_number(wanted):
            return value_of(value, wanted)
        return (value if isinstance(value, pa.Scalar) else pa.scalar(value, pa.string())).cast(wanted)
    except (ValueError, pa.ArrowNotImplementedError) as error:
        raise DataFileError(
            f"the folder {name}={value} of {path} must be of the type {wanted} that files have", got=error
        ) from error
