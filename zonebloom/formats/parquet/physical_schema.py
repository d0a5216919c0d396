"""A schema of physical types: what pyarrow must know of a file to copy its values as bytes.

A logical type leaves nothing but the order of its values, by which pyarrow writes statistics.

Design: docs/design/erasing.md#files
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from zonebloom.formats.parquet import thrift
from zonebloom.formats.parquet.fields import Element
from zonebloom.formats.parquet.schema import StoredField, root_element
from zonebloom.formats.parquet.thrift import Field

_INT32, _INT64, _INT96, _FIXED = 1, 2, 3, 7
"""Physical types."""
_INT96_BYTES = 12
_DECIMAL, _UINT_32, _UINT_64, _INTERVAL = 5, 13, 14, 21
_UNSIGNED = range(11, 15)
"""Converted types."""
_LOGICAL_DECIMAL, _LOGICAL_INTEGER, _LOGICAL_FLOAT16 = 5, 10, 15
_UNORDERED = (16, 17, 18)
"""Logical types whose values have no order: variant, geometry, geography."""
OF_UINT_32: dict[int, Field] = {Element.CONVERTED: (thrift.I32, _UINT_32)}
"""The order of unsigned integers of 32 bits, which pyarrow stores in 64 bits if it writes version 1.0."""
_MAX_DECIMAL_BYTES = 32


def physical_schema(columns: Sequence[StoredField]) -> list[bytes]:
    """The schema elements of a file with these columns, under names without dots."""
    counter = itertools.count()
    return [root_element(len(columns)), *(element for field in columns for element in _elements(field, counter))]


def leaves_of(field: StoredField) -> Iterator[StoredField]:
    """The leaves of a column, in order."""
    if not field.children:
        yield field
    for child in field.children:
        yield from leaves_of(child)


def _elements(field: StoredField, counter: Iterator[int]) -> Iterator[bytes]:
    """The schema elements of a column and its fields, without names; of logical types only their order stays."""
    written = thrift.fields_of(field.schema[0])
    kept = {number: value for number, value in written.items() if number <= Element.NUM_CHILDREN}
    kept[Element.NAME] = (thrift.BINARY, b"f%d" % next(counter))
    if field.element.get(Element.TYPE) != _FIXED:
        kept.pop(Element.LENGTH, None)
    if field.element.get(Element.TYPE) == _INT96:
        kept |= {Element.TYPE: (thrift.I32, _FIXED), Element.LENGTH: (thrift.I32, _INT96_BYTES)}
    yield thrift.write_struct(kept | (order_of(field.element) or {}))
    for child in field.children:
        yield from _elements(child, counter)


def of_repeated(column_type: pa.DataType) -> pa.DataType:
    """The type with lists whose items are not null, as repeated fields are; pyarrow forgets it for a leaf alone."""
    if pa.types.is_struct(column_type):
        return pa.struct([field.with_type(of_repeated(field.type)) for field in column_type])
    if pa.types.is_list(column_type):
        return pa.list_(pa.field("item", of_repeated(column_type.value_type), nullable=False))
    return column_type


def order_of(element: Mapping[int, Any]) -> dict[int, Field] | None:
    """The fields of a schema element by which pyarrow orders statistics like its logical type; None if it cannot."""
    physical, converted = element.get(Element.TYPE), element.get(Element.CONVERTED)
    logical = element.get(Element.LOGICAL, {})
    if physical == _INT96 or converted == _INTERVAL or not logical.keys().isdisjoint(_UNORDERED):
        return None
    if converted in _UNSIGNED or logical.get(_LOGICAL_INTEGER, {}).get(2) is False:
        return OF_UINT_32 if physical == _INT32 else {Element.CONVERTED: (thrift.I32, _UINT_64)}
    if _LOGICAL_FLOAT16 in logical:
        return {Element.LOGICAL: (thrift.STRUCT, thrift.write_struct({_LOGICAL_FLOAT16: (thrift.STRUCT, thrift.STOP)}))}
    if (converted != _DECIMAL and _LOGICAL_DECIMAL not in logical) or physical in (_INT32, _INT64):
        return {}
    if physical != _FIXED or element[Element.LENGTH] > _MAX_DECIMAL_BYTES:
        return None
    digits = len(str(2 ** (8 * element[Element.LENGTH] - 1))) - 1  # the most digits that always fit
    numbers = {Element.CONVERTED: _DECIMAL, Element.SCALE: 0, Element.PRECISION: digits}
    return {field: (thrift.I32, number) for field, number in numbers.items()}
