"""The schema of a footer as it is written: a tree of columns, their fields, and the leaves below.

Design: docs/design/pages.md#footer
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zonebloom.formats.parquet import thrift
from zonebloom.formats.parquet.fields import Element, FileMeta
from zonebloom.formats.parquet.thrift import ThriftError

_REPEATED = 2
_MAPS, _LISTS = (1, 2), (3,)
_MAP_TYPE, _LIST_TYPE = 2, 3
_MAX_LEVELS = 100
"""Most levels of structs and lists in a schema; pyarrow reads about a hundred."""


@dataclass(frozen=True, slots=True)
class StoredField:
    """A column, or a field of a column, as the footer describes it."""

    name: str
    position: int
    """Position of its schema element in the footer."""
    element: Mapping[int, Any]
    """The schema element, by field."""
    schema: tuple[bytes, ...]
    """Its schema elements and those of its fields, as they are written."""
    leaves: range
    """Numbers of its leaves among all column chunks of a row group."""
    has_lists: bool
    """Whether it is or has a list or map, so that its values are not one a row."""
    children: tuple[StoredField, ...]

    @property
    def field_id(self) -> int | None:
        """The field id that the writer gave it."""
        return self.element.get(Element.ID)

    @property
    def is_repeated(self) -> bool:
        """Whether it repeats, as the items of a list do."""
        return self.element.get(Element.REPETITION) == _REPEATED

    @property
    def is_list(self) -> bool:
        """Whether it is a list."""
        return self.element.get(Element.CONVERTED) in _LISTS or _LIST_TYPE in self.element.get(Element.LOGICAL, {})

    @property
    def is_map(self) -> bool:
        """Whether it is a map."""
        return self.element.get(Element.CONVERTED) in _MAPS or _MAP_TYPE in self.element.get(Element.LOGICAL, {})


def read_schema(footer: bytes) -> tuple[StoredField, ...]:
    """The top-level columns of a footer.

    Raises
    ------
    ThriftError
        There is no schema.
    UnicodeDecodeError
        A name is no UTF-8.
    """
    position = thrift.find_field(footer, 0, FileMeta.SCHEMA)
    if position is None:
        raise ThriftError("a footer must have a schema")
    size, _kind, position = thrift.read_list_header(footer, position)
    elements = []
    for _index in range(size):
        element, stop = thrift.read_struct(footer, position)
        elements.append((position, footer[position:stop], element))
        position = stop
    fields: list[StoredField] = []
    number = 1
    while number < size:
        fields.append(_stored_field(elements, number, fields[-1].leaves.stop if fields else 0))
        number += len(fields[-1].schema)
    return tuple(fields)


def root_element(num_columns: int) -> bytes:
    """The first element of a schema, as it is written."""
    name = thrift.BINARY, b"schema"
    return thrift.write_struct({Element.NAME: name, Element.NUM_CHILDREN: (thrift.I32, num_columns)})


def _stored_field(
    elements: list[tuple[int, bytes, dict[int, Any]]], number: int, leaf: int, level: int = 0
) -> StoredField:
    """The field that begins with element `number` of a schema, and whose first leaf is `leaf`."""
    if level > _MAX_LEVELS or number >= len(elements):
        raise ThriftError(f"a schema must be a tree of {len(elements)} elements, at most {_MAX_LEVELS} levels high")
    position, written, element = elements[number]
    name, num_children = element.get(Element.NAME), element.get(Element.NUM_CHILDREN, 0)
    if not isinstance(name, bytes) or not isinstance(num_children, int):
        raise ThriftError("an element of a schema must have a name, and a number of children")
    schema, has_lists, children, stop = [written], element.get(Element.REPETITION) == _REPEATED, [], leaf
    for _index in range(num_children):
        child = _stored_field(elements, number + len(schema), stop, level + 1)
        children.append(child)
        schema += child.schema
        stop = child.leaves.stop
        has_lists = has_lists or child.has_lists
    leaves = range(leaf, stop if num_children else leaf + 1)
    return StoredField(name.decode(), position, element, tuple(schema), leaves, has_lists, tuple(children))
