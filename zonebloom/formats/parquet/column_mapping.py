"""Columns under their names in a table, if the data files have other names.

Delta's column mapping and Iceberg's field ids let a column change its name without a rewrite of files. A Parquet footer
has each name once, in its schema. With the table's names there, every reader of the footer sees the table's columns,
also nested ones. Pages and offsets stay as they are. A column that the table has dropped gets a hidden name, since
another column may have its name now.

Spec: specs/tables.md#names
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from zonebloom.errors import DataFileError
from zonebloom.formats.parquet import thrift

__all__ = ["StoredName", "renamed_footer"]

_SCHEMA = 2
_REPETITION, _NAME, _NUM_CHILDREN, _CONVERTED_TYPE, _FIELD_ID, _LOGICAL_TYPE = 3, 4, 5, 6, 9, 10
_REPEATED = 2
_MAPS, _LISTS = (1, 2), (3,)
_MAP_TYPE, _LIST_TYPE = 2, 3
_HIDDEN = "__zonebloom_hidden_"


@dataclass(frozen=True, slots=True)
class StoredName:
    """A column, or a field of a struct, as a data file has it."""

    path: tuple[str, ...]
    """Its names from the top; the items of lists are `element`, those of maps `key` and `value`."""
    field_id: int | None
    """The field id that the writer gave it."""


@dataclass(slots=True)
class _Element:
    """One element of the footer's schema, which is a tree written in prefix order."""

    fields: dict[int, Any]
    start: int
    """Position of its name in the footer: the length, then the bytes."""
    stop: int
    """Position after the name."""
    children: list[_Element] = field(default_factory=list)

    @property
    def name(self) -> str:
        name: bytes = self.fields[_NAME]
        return name.decode()

    @property
    def is_list(self) -> bool:
        return self.fields.get(_CONVERTED_TYPE) in _LISTS or _LIST_TYPE in self.fields.get(_LOGICAL_TYPE, {})

    @property
    def is_map(self) -> bool:
        return self.fields.get(_CONVERTED_TYPE) in _MAPS or _MAP_TYPE in self.fields.get(_LOGICAL_TYPE, {})


def renamed_footer(footer: bytes, name_of: Callable[[StoredName], str | None], location: str) -> bytes:
    """`footer` with the names that `name_of` returns; None hides a column. `footer` itself if no name changes.

    Raises
    ------
    DataFileError
        The footer is damaged, or two of its columns would have one name.
    """
    try:
        root = _schema(footer)
        new: dict[int, tuple[_Element, str]] = {}
        _rename(root, (), name_of, new, location)
    except (thrift.ThriftError, LookupError, TypeError, AttributeError, UnicodeDecodeError) as error:  # or other types
        raise DataFileError(f"data file {location} must have a Parquet schema, got: {error}") from error
    if all(element.name == name for element, name in new.values()):
        return footer
    parts, done = [], 0
    for start in sorted(new):
        element, name = new[start]
        parts += [footer[done:start], _written(name.encode())]
        done = element.stop
    return b"".join([*parts, footer[done:]])


def _written(name: bytes) -> bytes:
    return thrift.write_list(thrift.BINARY, [name])[1:]  # less the list's head


def _schema(footer: bytes) -> _Element:
    position = thrift.find_field(footer, 0, _SCHEMA)
    if position is None:
        raise thrift.ThriftError("a footer must have a schema")
    size, _kind, position = thrift.read_list_header(footer, position)
    flat: list[_Element] = []
    for _index in range(size):
        fields, end = thrift.read_struct(footer, position)
        start = thrift.find_field(footer, position, _NAME)
        if start is None:
            raise thrift.ThriftError("a schema element must have a name")
        stop = thrift.skip(footer, start, thrift.BINARY)
        if footer[start:stop] != _written(fields[_NAME]):  # of two names readers use the last
            raise thrift.ThriftError("a schema element must have one name")
        flat.append(_Element(fields, start, stop))
        position = end
    elements = iter(flat)
    root = next(elements, None)
    if root is None:
        raise thrift.ThriftError("a schema must have a root")
    _adopt(root, elements)
    return root


def _adopt(parent: _Element, elements: Iterator[_Element]) -> None:
    waiting = [(parent, parent.fields.get(_NUM_CHILDREN, 0))]
    while waiting:
        one, missing = waiting.pop()
        if not missing:
            continue
        child = next(elements, None)
        if child is None:
            raise thrift.ThriftError("a schema must have all its elements")
        one.children.append(child)
        waiting += [(one, missing - 1), (child, child.fields.get(_NUM_CHILDREN, 0))]


def _rename(
    parent: _Element,
    path: tuple[str, ...],
    name_of: Callable[[StoredName], str | None],
    new: dict[int, tuple[_Element, str]],
    location: str,
) -> None:
    """Collect the names of the fields of a struct, and of the structs below."""
    taken: set[str] = set()
    hidden: list[_Element] = []
    for child in parent.children:
        here = (*path, child.name)
        name = name_of(StoredName(here, child.fields.get(_FIELD_ID)))
        if name is None:
            hidden.append(child)
            continue
        if name in taken:
            raise DataFileError(f"data file {location} must have each column once, got {name} twice")
        taken.add(name)
        new[child.start] = child, name
        for item, place in _structs(child, here):
            _rename(item, place, name_of, new, location)
    for number, child in enumerate(hidden):
        name = f"{_HIDDEN}{number}"
        while name in taken:
            name += "_"
        taken.add(name)
        new[child.start] = child, name


def _structs(element: _Element, path: tuple[str, ...]) -> Iterator[tuple[_Element, tuple[str, ...]]]:
    """The structs of a column: itself, or the items of its lists and maps, at any depth."""
    if not element.children:
        return
    inner = element.children[0]
    if element.is_map and len(inner.children) > 1:
        yield from _structs(inner.children[0], (*path, "key"))
        yield from _structs(inner.children[1], (*path, "value"))
    elif element.is_list and inner.fields.get(_REPETITION) == _REPEATED:
        is_item = len(inner.children) != 1 or inner.name in ("array", f"{element.name}_tuple")  # lists of two levels
        yield from _structs(inner if is_item else inner.children[0], (*path, "element"))
    else:
        yield element, path
