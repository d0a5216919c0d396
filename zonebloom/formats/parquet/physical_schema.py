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
from zonebloom.formats.parquet.schema import StoredField
from zonebloom.formats.parquet.thrift import Field

_TYPE, _LENGTH, _NAME, _NUM_CHILDREN, _CONVERTED, _SCALE, _PRECISION, _LOGICAL = 1, 2, 4, 5, 6, 7, 8, 10
"""Fields of SchemaElement."""
_INT32, _INT64, _INT96, _FIXED = 1, 2, 3, 7
"""Physical types."""
_INT96_BYTES = 12
_DECIMAL, _UINT_32, _UINT_64, _INTERVAL = 5, 13, 14, 21
_UNSIGNED = range(11, 15)
"""Converted types."""
_LOGICAL_DECIMAL, _LOGICAL_INTEGER, _LOGICAL_FLOAT16 = 5, 10, 15
_UNORDERED = (16, 17, 18)
"""Logical types whose values have no order: variant, geometry, geography."""
OF_UINT_32: dict[int, Field] = {_CONVERTED: (thrift.I32, _UINT_32)}
"""The order of unsigned integers of 32 bits, which pyarrow stores in 64 bits if it writes version 1.0."""
_MAX_DECIMAL_BYTES = 32


def physical_schema(columns: Sequence[StoredField]) -> list[bytes]:
    """The schema elements of a file with these columns, under names without dots."""
    counter = itertools.count()
    root = {_NAME: (thrift.BINARY, b"s"), _NUM_CHILDREN: (thrift.I32, len(columns))}
    return [thrift.write_struct(root), *(element for field in columns for element in _elements(field, counter))]


def leaves_of(field: StoredField) -> Iterator[StoredField]:
    """The leaves of a column, in order."""
    if not field.children:
        yield field
    for child in field.children:
        yield from leaves_of(child)


def _elements(field: StoredField, counter: Iterator[int]) -> Iterator[bytes]:
    """The schema elements of a column and its fields, without names and without logical types but for their order."""
    written, _stop = thrift.written_fields(field.schema[0], 0)
    kept = {number: value for number, value in written.items() if number <= _NUM_CHILDREN}
    kept[_NAME] = (thrift.BINARY, b"f%d" % next(counter))
    if field.element.get(_TYPE) != _FIXED:
        kept.pop(_LENGTH, None)
    if field.element.get(_TYPE) == _INT96:
        kept |= {_TYPE: (thrift.I32, _FIXED), _LENGTH: (thrift.I32, _INT96_BYTES)}
    yield thrift.write_struct(dict(sorted((kept | (order_of(field.element) or {})).items())))
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
    physical, converted, logical = element.get(_TYPE), element.get(_CONVERTED), element.get(_LOGICAL, {})
    if physical == _INT96 or converted == _INTERVAL or not logical.keys().isdisjoint(_UNORDERED):
        return None
    if converted in _UNSIGNED or logical.get(_LOGICAL_INTEGER, {}).get(2) is False:
        return OF_UINT_32 if physical == _INT32 else {_CONVERTED: (thrift.I32, _UINT_64)}
    if _LOGICAL_FLOAT16 in logical:
        return {_LOGICAL: (thrift.STRUCT, thrift.write_struct({_LOGICAL_FLOAT16: (thrift.STRUCT, thrift.STOP)}))}
    if (converted != _DECIMAL and _LOGICAL_DECIMAL not in logical) or physical in (_INT32, _INT64):
        return {}
    if physical != _FIXED or element[_LENGTH] > _MAX_DECIMAL_BYTES:
        return None
    digits = len(str(2 ** (8 * element[_LENGTH] - 1))) - 1  # the most digits that always fit
    return {field: (thrift.I32, value) for field, value in ((_CONVERTED, _DECIMAL), (_SCALE, 0), (_PRECISION, digits))}
