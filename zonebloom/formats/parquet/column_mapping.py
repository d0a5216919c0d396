"""Columns under their names in a table, if the data files have other names.

Delta's column mapping and Iceberg's field ids let a column change its name without a rewrite of files. A Parquet footer
has each name once, in its schema. With the table's names there, every reader of the footer sees the table's columns,
also nested ones. Pages and offsets stay as they are. A column that the table has dropped gets a hidden name, since
another column may have its name now.

Design: docs/design/tables.md#names
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from zonebloom.formats.parquet import thrift
from zonebloom.formats.parquet.fields import Element
from zonebloom.formats.parquet.schema import StoredField
from zonebloom.ground.errors import DataFileError

_HIDDEN = "__zonebloom_hidden_"


@dataclass(frozen=True, slots=True)
class StoredName:
    """A column, or a field of a struct, as a data file has it."""

    path: tuple[str, ...]
    """Its names from the top; the items of lists are `element`, those of maps `key` and `value`."""
    field_id: int | None
    """The field id that the writer gave it."""
    has_file_ids: bool = True
    """Whether all columns, fields, items, keys and values of the file have field ids."""


def renamed_footer(
    footer: bytes, fields: Sequence[StoredField], name_of: Callable[[StoredName], str | None], location: str
) -> bytes:
    """`footer`, whose columns are `fields`, with the names that `name_of` returns; None hides a column.

    `footer` itself if no name changes.

    Raises
    ------
    DataFileError
        The footer is damaged, `name_of` raises a LookupError, or two columns would have one name.
    """
    new: dict[int, tuple[StoredField, str]] = {}
    parts, done = [], 0
    try:
        has_ids = not any(map(_lacks_ids, fields))
        _rename(fields, (), lambda stored: name_of(replace(stored, has_file_ids=has_ids)), new, location)
        if all(field.name == name for field, name in new.values()):
            return footer
        for position in sorted(new):
            field, name = new[position]
            element = thrift.fields_of(field.schema[0]) | {Element.NAME: (thrift.BINARY, name.encode())}
            parts += [footer[done:position], thrift.write_struct(element)]
            done = position + len(field.schema[0])
    except (thrift.ThriftError, LookupError, TypeError, AttributeError) as error:  # or other types
        raise DataFileError(f"data file {location} must have the columns of its table", got=error) from error
    return b"".join([*parts, footer[done:]])


def _lacks_ids(field: StoredField) -> bool:
    """Whether a column or a part of it has no field id; the repeated group of a list or map needs none."""
    inner = field.children
    if field.is_list or field.is_map:
        inner = inner[0].children or inner
    return field.field_id is None or any(map(_lacks_ids, inner))


def _rename(
    fields: Sequence[StoredField],
    path: tuple[str, ...],
    name_of: Callable[[StoredName], str | None],
    new: dict[int, tuple[StoredField, str]],
    location: str,
) -> None:
    """Collect the names of the fields of a struct, and of the structs below."""
    taken: dict[str, str] = {}
    hidden: list[StoredField] = []
    for child in fields:
        here = (*path, child.name)
        name = name_of(StoredName(here, child.field_id))
        if name is None:
            hidden.append(child)
            continue
        if name in taken:
            raise DataFileError(
                f"data file {location} must have each column of its table once",
                got=f"{taken[name]} and {child.name}, both for {name}",
                do="correct the names that the table has for them, such as schema.name-mapping.default",
            )
        taken[name] = child.name
        new[child.position] = child, name
        for item, place in _structs(child, here):
            _rename(item.children, place, name_of, new, location)
    for number, child in enumerate(hidden):
        name = f"{_HIDDEN}{number}"
        while name in taken:
            name += "_"
        taken[name] = child.name
        new[child.position] = child, name


def _structs(element: StoredField, path: tuple[str, ...]) -> Iterator[tuple[StoredField, tuple[str, ...]]]:
    """The structs of a column: itself, or the items of its lists and maps, at any depth."""
    if not element.children:
        return
    inner = element.children[0]
    if element.is_map and len(inner.children) > 1:
        yield from _structs(inner.children[0], (*path, "key"))
        yield from _structs(inner.children[1], (*path, "value"))
    elif element.is_list and inner.is_repeated:
        is_item = len(inner.children) != 1 or inner.name in ("array", f"{element.name}_tuple")  # lists of two levels
        yield from _structs(inner if is_item else inner.children[0], (*path, "element"))
    else:
        yield element, path
