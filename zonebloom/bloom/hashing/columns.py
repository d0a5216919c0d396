"""Columns and leaves of structs by name, in schemas and in batches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from zonebloom.ground.arrow import compute as pc
from zonebloom.ground.errors import ColumnNotFoundError, InvalidArgumentError

_SURROGATE = re.compile("[\ud800-\udfff]")
"""Characters that are not text: Arrow can neither name a column by them nor look them up."""


def names_of(columns: Any) -> list[str]:
    """The names in `columns`: one, or several in any collection.

    Raises
    ------
    InvalidArgumentError
        One of them is no text.
    """
    is_one = isinstance(columns, (str, bytes)) or not isinstance(columns, Iterable)
    names = [name.as_py() if isinstance(name, pa.Scalar) else name for name in ([columns] if is_one else columns)]
    if isinstance(columns, Mapping) or not all(isinstance(name, str) for name in names):
        raise InvalidArgumentError("columns must be one or more names", got=f"{columns!r:.80}")
    return names


def selected(schema: pa.Schema, columns: Any, where: str) -> pa.Schema:
    """The schema of the top-level `columns` of `schema`: one name, or several in any collection; all for None.

    Raises
    ------
    ColumnNotFoundError
        `where`, a data set, has no such column.
    InvalidArgumentError
        One of them is no text.
    """
    names, present = schema.names if columns is None else names_of(columns), set(schema.names)
    for name in names:
        if name not in present:
            raise ColumnNotFoundError.among(name, schema.names, where)
    return pa.schema([schema.field(name) for name in names])


def dotted(path: Sequence[str]) -> str | None:
    """The name of the column or struct leaf at `path`; None if dots or an empty name make it ambiguous."""
    is_plain = len(path) == 1 or not any("." in name for name in path)
    return ".".join(path) if is_plain and all(path) else None


def resolve_column(schema: pa.Schema, name: str) -> pa.Field:
    """The field that `name` means: the column of that name, else the struct leaf at that dotted path.

    The field of a leaf is named by its whole path, and is nullable if the leaf or a parent is.

    Raises
    ------
    ColumnNotFoundError
        If there is no such field; the message offers the nearest columns and leaf paths.
    InvalidArgumentError
        If several columns have the name.

    Spec: specs/hashing.md#column_array
    """
    fields = _fields_on_path(schema, name)
    leaf = fields[-1]
    nullable = any(field.nullable for field in fields)
    return leaf if len(fields) == 1 else pa.field(name, leaf.type, nullable, leaf.metadata)


def column_path(schema: pa.Schema, name: str) -> list[str]:
    """The names from the top of `schema` down to the result of `resolve_column`.

    Raises
    ------
    ColumnNotFoundError, InvalidArgumentError
        As `resolve_column`.
    """
    return [field.name for field in _fields_on_path(schema, name)]


def is_ambiguous(fields: pa.Schema, name: str) -> bool:
    """Whether `name` has several meanings: a column and a field of a struct, or fields of several structs.

    Spec: specs/hashing.md#column_array
    """
    return "." in name and _num_meanings(fields, name) > 1


def _num_meanings(fields: Iterable[pa.Field], name: str) -> int:
    count = 0
    for field in fields:
        count += field.name == name
        if pa.types.is_struct(field.type) and name.startswith(f"{field.name}."):
            count += _num_meanings(field.type, name[len(field.name) + 1 :])
    return count


def column_array(data: pa.RecordBatch | pa.Table, name: str) -> pa.Array | pa.ChunkedArray:
    """The values of column or struct leaf `name`; null if the leaf or one of its parents is null.

    An Array for a RecordBatch, a ChunkedArray for a Table. A top-level column is not copied.

    Raises
    ------
    ColumnNotFoundError, InvalidArgumentError
        As `resolve_column`.

    Spec: specs/hashing.md#column_array
    """
    fields = _fields_on_path(data.schema, name)
    column = data.column(data.schema.get_field_index(fields[0].name))
    for field in fields[1:]:
        child = pc.struct_field(column, [column.type.get_field_index(field.name)])
        if pa.types.is_run_end_encoded(field.type):  # pyarrow 26 cannot give a run-end encoded child its parent's nulls
            child = pc.if_else(pc.is_valid(column), pc.run_end_decode(child), None)
        column = child
    return column


def leaf_paths(schema: pa.Schema) -> list[str]:
    """The dotted paths of all columns and struct leaves that are no structs, in order of the schema."""
    return [path for field in schema for path in paths_below(field, field.name)]


def paths_below(field: pa.Field, path: str) -> Iterator[str]:
    """Paths of the leaves of `field`, whose own path is `path`."""
    if pa.types.is_struct(field.type):
        for child in field.type:
            yield from paths_below(child, f"{path}.{child.name}")
    else:
        yield path


def _fields_on_path(schema: pa.Schema, name: str) -> list[pa.Field]:
    fields = None if _SURROGATE.search(name) else _walk(schema, name)  # Arrow cannot look such a name up
    if fields is None:
        raise ColumnNotFoundError.among(name, [*schema.names, *leaf_paths(schema)], "the data")
    return fields


def _walk(fields: pa.Schema | pa.StructType, name: str) -> list[pa.Field] | None:
    """The fields from one of `fields` down to `name`; the longest name that matches at each level wins.

    Cost: proportional to the dots in `name`, not to the number of `fields`.
    """
    places = fields.get_all_field_indices(name)
    if len(places) > 1:
        raise InvalidArgumentError("a column's name must be unique", got=f"{len(places)} columns named {name!r}")
    if places:
        return [fields.field(places[0])]
    for dot in reversed([i for i, letter in enumerate(name) if letter == "."]):
        for place in fields.get_all_field_indices(name[:dot]):
            parent = fields.field(place)
            rest = _walk(parent.type, name[dot + 1 :]) if pa.types.is_struct(parent.type) else None
            if rest is not None:
                return [parent, *rest]
    return None
