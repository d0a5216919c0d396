"""Thrift's compact protocol, as far as a Parquet footer, a page header and a page index need it.

A struct is read into a dict from field id to value: int, bool, bytes, list or dict. Nothing is looked up in a schema,
so fields that are newer than this module are read like the others, or skipped. Bytes come from files: whatever they
are, a reader ends with a value or with `ThriftError`, and uses memory in proportion to what it reads.

Spec: specs/pages.md#thrift
"""

from __future__ import annotations

import struct
from typing import Any, TypeAlias

__all__ = [
    "BINARY",
    "I32",
    "I64",
    "LIST",
    "STOP",
    "STRUCT",
    "Bytes",
    "ThriftError",
    "find_field",
    "read_int",
    "read_list_header",
    "read_struct",
    "skip",
    "write_fields",
    "write_list",
    "write_struct",
    "written_fields",
    "written_structs",
]

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, _, STRUCT = range(1, 13)
"""Type codes of the compact protocol; 11 is a map, which Parquet has none of."""

STOP = b"\0"
"""The end of a struct."""
MAX_DEPTH = 32
"""Structs and lists in one another; Parquet's own go eight deep."""
_MAX_VARINT_BITS = 63
_LONG_LIST = 15
_MAX_VARINT_BYTE = 0x80

Bytes: TypeAlias = bytes | memoryview
"""What is read; binary fields of a view are views of the same memory."""

Field: TypeAlias = tuple[int, Any]
"""Type code and value, for writing; of a list, the type code and the values of its elements; of raw bytes, `bytes`."""


class ThriftError(Exception):
    """The bytes are no value of the compact protocol."""


def _varint(data: Bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < _MAX_VARINT_BYTE:
            return value, position
        shift += 7
        if shift > _MAX_VARINT_BITS:
            raise ThriftError("an integer must have at most 10 bytes")


def read_struct(data: Bytes, position: int = 0) -> tuple[dict[int, Any], int]:
    """The struct at `position`, and where it ends.

    Raises
    ------
    ThriftError
        There is none.
    """
    try:
        return _struct(data, position, 0)
    except IndexError as error:
        raise ThriftError("a struct must end before its bytes do") from error


def skip(data: Bytes, position: int, kind: int) -> int:
    """Where the value of type `kind` at `position` ends; a third of the time of reading it.

    Raises
    ------
    ThriftError
        There is none.
    """
    try:
        return _skip(data, position, kind, 0)
    except IndexError as error:
        raise ThriftError("a value must end before its bytes do") from error


def find_field(data: Bytes, position: int, wanted: int) -> int | None:
    """Where the value of field `wanted` of the struct at `position` begins; None if it has none, in order of fields.

    Raises
    ------
    ThriftError
        There is no struct.
    """
    field = 0
    try:
        while head := data[position]:
            position += 1
            if head >> 4:
                field += head >> 4
            else:
                number, position = _varint(data, position)
                field = (number >> 1) ^ -(number & 1)
            if field >= wanted:
                return position if field == wanted else None
            if head & 15 not in (TRUE, FALSE):
                position = _skip(data, position, head & 15, 0)
    except IndexError as error:
        raise ThriftError("a struct must end before its bytes do") from error
    return None


def read_int(data: Bytes, position: int) -> int:
    """The integer at `position`.

    Raises
    ------
    ThriftError
        There is none.
    """
    try:
        number, _stop = _varint(data, position)
    except IndexError as error:
        raise ThriftError("an integer must end before its bytes do") from error
    return (number >> 1) ^ -(number & 1)


def read_list_header(data: Bytes, position: int) -> tuple[int, int, int]:
    """Number and type code of the elements of the list at `position`, and where the first begins.

    Raises
    ------
    ThriftError
        There is none.
    """
    try:
        return _list_header(data, position)
    except IndexError as error:
        raise ThriftError("a list must end before its bytes do") from error


def written_fields(data: Bytes, position: int) -> tuple[dict[int, Field], int]:
    """The fields of the struct at `position` as they are written, for `write_struct`, and where it ends.

    Raises
    ------
    ThriftError
        There is no struct, or it has a field twice or with a negative number.
    """
    found: dict[int, Field] = {}
    field = 0
    try:
        while head := data[position]:
            position += 1
            kind = head & 15
            if head >> 4:
                field += head >> 4
            else:
                number, position = _varint(data, position)
                field = (number >> 1) ^ -(number & 1)
            if field in found or field < 0:
                raise ThriftError(f"a struct must have each field once, with a number of 0 or more, got {field}")
            if kind in (TRUE, FALSE):
                found[field] = (kind, b"")
            elif kind == BINARY:
                value, position = _value(data, position, kind, 0)
                found[field] = (kind, bytes(value))
            else:
                start, position = position, _skip(data, position, kind, 0)
                found[field] = (kind, bytes(data[start:position]))
    except IndexError as error:
        raise ThriftError("a struct must end before its bytes do") from error
    return found, position + 1


def written_structs(data: Bytes) -> list[bytes]:
    """The elements of a list of structs, as they are written.

    Raises
    ------
    ThriftError
        There is no such list.
    """
    size, _kind, position = read_list_header(data, 0)
    found = []
    for _index in range(size):
        start, position = position, skip(data, position, STRUCT)
        found.append(bytes(data[start:position]))
    return found


def _list_header(data: Bytes, position: int) -> tuple[int, int, int]:
    head = data[position]
    size, kind = head >> 4, head & 15
    position += 1
    if size == _LONG_LIST:
        size, position = _varint(data, position)
    if size > len(data) - position:  # each element has a byte at least
        raise ThriftError(f"a list must end before its bytes do, got {size} elements")
    return size, kind, position


def _struct(data: Bytes, position: int, depth: int) -> tuple[dict[int, Any], int]:
    if depth > MAX_DEPTH:
        raise ThriftError(f"structs must be nested at most {MAX_DEPTH} deep")
    found: dict[int, Any] = {}
    field = 0
    while True:
        head = data[position]
        position += 1
        if not head:
            return found, position
        kind = head & 15
        if head >> 4:
            field += head >> 4
        else:
            number, position = _varint(data, position)
            field = (number >> 1) ^ -(number & 1)
        if kind in (TRUE, FALSE):
            found[field] = kind == TRUE
        else:
            found[field], position = _value(data, position, kind, depth)


def _value(data: Bytes, position: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (I64, I32, I16):
        number, position = _varint(data, position)
        return (number >> 1) ^ -(number & 1), position
    if kind == BINARY:
        size, position = _varint(data, position)
        if size > len(data) - position:
            raise ThriftError(f"bytes must end before the data do, got {size}")
        return data[position : position + size], position + size
    if kind == STRUCT:
        return _struct(data, position, depth + 1)
    if kind in (LIST, SET):
        return _list(data, position, depth + 1)
    if kind in (TRUE, FALSE):  # as an element of a list
        return data[position] == TRUE, position + 1
    if kind == BYTE:
        return data[position], position + 1
    if kind == DOUBLE:
        if len(data) - position < struct.calcsize("<d"):
            raise ThriftError("a number must end before the data do")
        return struct.unpack_from("<d", data, position)[0], position + 8
    raise ThriftError(f"a type code must be one that Parquet uses, got {kind}")


def _list(data: Bytes, position: int, depth: int) -> tuple[list[Any], int]:
    if depth > MAX_DEPTH:
        raise ThriftError(f"lists must be nested at most {MAX_DEPTH} deep")
    size, kind, position = _list_header(data, position)
    values = []
    for _index in range(size):
        value, position = _value(data, position, kind, depth)
        values.append(value)
    return values, position


def _skip(data: Bytes, position: int, kind: int, depth: int) -> int:
    if kind == STRUCT:
        return _skip_struct(data, position, depth + 1)
    if kind in (I64, I32, I16):
        while data[position] >= _MAX_VARINT_BYTE:
            position += 1
        return position + 1
    if kind in (LIST, SET):
        if depth > MAX_DEPTH:
            raise ThriftError(f"lists must be nested at most {MAX_DEPTH} deep")
        size, kind, position = _list_header(data, position)
        for _index in range(size):
            position = _skip(data, position, kind, depth + 1)
        return position
    return _value(data, position, kind, depth)[1]


def _skip_struct(data: Bytes, position: int, depth: int) -> int:
    if depth > MAX_DEPTH:
        raise ThriftError(f"structs must be nested at most {MAX_DEPTH} deep")
    while True:
        head = data[position]
        position += 1
        kind = head & 15
        if kind in (I64, I32) and head > kind:  # most fields are numbers; this loop is most of the time for a footer
            while data[position] >= _MAX_VARINT_BYTE:
                position += 1
            position += 1
            continue
        if not head:
            return position
        if head == kind:
            _number, position = _varint(data, position)
        if kind == BINARY:
            size, position = _varint(data, position)
            position += size
        elif kind not in (TRUE, FALSE):
            position = _skip(data, position, kind, depth)


# --- writing ----------------------------------------------------------------------------------------------------------


def write_struct(fields: dict[int, Field]) -> bytes:
    """The struct of `fields`, from field id (ascending) to type code and value.

    A value may be `bytes` that are written already, for every type but `BINARY`: as those that `skip` found.
    """
    return write_fields(fields) + STOP


def write_fields(fields: dict[int, Field], after: int = 0) -> bytes:
    """A part of a struct: its `fields`, which follow field `after`; the struct ends with `STOP`."""
    out = bytearray()
    last = after
    for field, (kind, value) in fields.items():
        if 0 < field - last <= _LONG_LIST:
            out.append((field - last) << 4 | kind)
        else:
            out.append(kind)
            _write_varint(out, field << 1)
        last = field
        _write(out, kind, value)
    return bytes(out)


def write_list(kind: int, values: list[Any]) -> bytes:
    """The list of `values` of type `kind`."""
    out = bytearray()
    if len(values) < _LONG_LIST:
        out.append(len(values) << 4 | kind)
    else:
        out.append(_LONG_LIST << 4 | kind)
        _write_varint(out, len(values))
    for value in values:
        _write(out, kind, value)
    return bytes(out)


def _write(out: bytearray, kind: int, value: Any) -> None:
    if kind == BINARY:
        _write_varint(out, len(value))
        out += value
    elif isinstance(value, bytes):
        out += value
    else:
        _write_varint(out, value << 1 if value >= 0 else (-value << 1) - 1)


def _write_varint(out: bytearray, number: int) -> None:
    while number >= _MAX_VARINT_BYTE:
        out.append(number & 0x7F | _MAX_VARINT_BYTE)
        number >>= 7
    out.append(number)
