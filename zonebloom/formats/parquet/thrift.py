"""Thrift's compact protocol, as far as a Parquet footer, a page header and a page index need it.

A struct is read into a dict from field id to value: int, bool, bytes, list or dict. There is no schema, so unknown
fields are read or skipped like the others. Bytes come from files: for any bytes a reader returns a value or raises
`ThriftError`, and its memory is in proportion to the bytes that it reads.

Design: docs/design/pages.md#thrift
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, _MAP, STRUCT = range(1, 13)
"""Type codes of the compact protocol; 11 is a map, which Parquet does not use."""

STOP = b"\0"
"""The end of a struct."""
MAX_DEPTH = 32
"""Most levels of structs and lists in each other; Parquet's own have eight."""
_MAX_VARINT_BITS = 63
_LONG_LIST = 15
_MAX_VARINT_BYTE = 0x80

Bytes: TypeAlias = bytes | memoryview
"""Bytes to read; binary fields of a view are views of the same memory."""

Field: TypeAlias = tuple[int, Any]
"""Type code and value, for writing; the value may be `bytes` that are written already."""

P = ParamSpec("P")
T = TypeVar("T")


class ThriftError(Exception):
    """The bytes are not a value of the compact protocol."""


def _within(what: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A reader for which an index past the end of the bytes is a `ThriftError` about `what`."""

    def decorated(read: Callable[P, T]) -> Callable[P, T]:
        @wraps(read)
        def checked(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return read(*args, **kwargs)
            except IndexError as error:
                raise ThriftError(f"{what} must end before its bytes do") from error

        return checked

    return decorated


def read_varint(data: Bytes, position: int) -> tuple[int, int]:
    """An unsigned integer, seven bits a byte, as Thrift and protobuf write it; and the position after it."""
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


def _zigzag(data: Bytes, position: int) -> tuple[int, int]:
    number, position = read_varint(data, position)
    return (number >> 1) ^ -(number & 1), position


@_within("a struct")
def read_struct(data: Bytes, position: int = 0) -> tuple[dict[int, Any], int]:
    """The struct at `position`, and the position after it.

    Raises
    ------
    ThriftError
        There is no struct.
    """
    return _struct(data, position, 0)


@_within("a value")
def skip(data: Bytes, position: int, kind: int) -> int:
    """The position after the value of type `kind` at `position`, in a third of the time of reading it.

    Raises
    ------
    ThriftError
        There is no such value.
    """
    return _skip(data, position, kind, 0)


@_within("a struct")
def find_field(data: Bytes, position: int, wanted: int) -> int | None:
    """The position of the value of field `wanted` of the struct at `position`, whose fields ascend; None if absent.

    Raises
    ------
    ThriftError
        There is no struct.
    """
    field = 0
    while head := data[position]:
        position += 1
        if head >> 4:
            field += head >> 4
        else:
            field, position = _zigzag(data, position)
        if field >= wanted:
            return position if field == wanted else None
        if head & 15 not in (TRUE, FALSE):
            position = _skip(data, position, head & 15, 0)
    return None


@_within("an integer")
def read_int(data: Bytes, position: int) -> int:
    """The integer at `position`.

    Raises
    ------
    ThriftError
        There is no integer.
    """
    return _zigzag(data, position)[0]


@_within("a list")
def read_list_header(data: Bytes, position: int) -> tuple[int, int, int]:
    """Number and type code of the elements of the list at `position`, and the position of the first element.

    Raises
    ------
    ThriftError
        There is no list.
    """
    return _list_header(data, position)


@_within("a struct")
def written_fields(data: Bytes, position: int) -> tuple[dict[int, Field], int]:
    """The fields of the struct at `position` as they are written, for `write_struct`, and the position after it.

    Raises
    ------
    ThriftError
        There is no struct, or it has a field twice or with a negative number.
    """
    fields: dict[int, Field] = {}
    field = 0
    while head := data[position]:
        position += 1
        kind = head & 15
        if head >> 4:
            field += head >> 4
        else:
            field, position = _zigzag(data, position)
        if field in fields or field < 0:
            raise ThriftError(f"a struct must have each field once, with a number of 0 or more, got {field}")
        if kind in (TRUE, FALSE):
            fields[field] = (kind, b"")
        elif kind == BINARY:
            value, position = _value(data, position, kind, 0)
            fields[field] = (kind, bytes(value))
        else:
            start, position = position, _skip(data, position, kind, 0)
            fields[field] = (kind, bytes(data[start:position]))
    return fields, position + 1


def written_structs(data: Bytes) -> list[bytes]:
    """The elements of a list of structs, as they are written.

    Raises
    ------
    ThriftError
        There is no such list.
    """
    size, _kind, position = read_list_header(data, 0)
    structs = []
    for _index in range(size):
        start, position = position, skip(data, position, STRUCT)
        structs.append(bytes(data[start:position]))
    return structs


def fields_of(written: bytes) -> dict[int, Field]:
    """As `written_fields`, of a struct alone."""
    return written_fields(written, 0)[0]


def structs_of(fields: dict[int, Field], field: int) -> list[bytes]:
    """The structs in a list of `written_fields`; none if it is not there."""
    return written_structs(fields[field][1]) if field in fields else []


def number_of(fields: dict[int, Field], field: int) -> int:
    """The number in one of `written_fields`; 0 if it is not there."""
    value = fields.get(field, (I64, 0))[1]
    return value if isinstance(value, int) else read_int(value, 0)


def _deeper(depth: int) -> int:
    if depth >= MAX_DEPTH:
        raise ThriftError(f"structs and lists must be nested at most {MAX_DEPTH} deep")
    return depth + 1


def _list_header(data: Bytes, position: int) -> tuple[int, int, int]:
    head = data[position]
    size, kind = head >> 4, head & 15
    position += 1
    if size == _LONG_LIST:
        size, position = read_varint(data, position)
    if size > len(data) - position:  # each element has a byte at least
        raise ThriftError(f"a list must end before its bytes do, got {size} elements")
    return size, kind, position


def _struct(data: Bytes, position: int, depth: int) -> tuple[dict[int, Any], int]:
    fields: dict[int, Any] = {}
    field = 0
    while True:
        head = data[position]
        position += 1
        if not head:
            return fields, position
        kind = head & 15
        if head >> 4:
            field += head >> 4
        else:
            field, position = _zigzag(data, position)
        if kind in (TRUE, FALSE):
            fields[field] = kind == TRUE
        else:
            fields[field], position = _value(data, position, kind, depth)


def _value(data: Bytes, position: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (I64, I32, I16):
        number, position = read_varint(data, position)  # in place: most values of a footer are integers
        return (number >> 1) ^ -(number & 1), position
    if kind == BINARY:
        size, position = read_varint(data, position)
        if size > len(data) - position:
            raise ThriftError(f"bytes must end before the data do, got {size}")
        return data[position : position + size], position + size
    if kind == STRUCT:
        return _struct(data, position, _deeper(depth))
    if kind in (LIST, SET):
        return _list(data, position, _deeper(depth))
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
    size, kind, position = _list_header(data, position)
    values = []
    for _index in range(size):
        value, position = _value(data, position, kind, depth)
        values.append(value)
    return values, position


def _skip(data: Bytes, position: int, kind: int, depth: int) -> int:
    if kind == STRUCT:
        return _skip_struct(data, position, _deeper(depth))
    if kind in (I64, I32, I16):
        while data[position] >= _MAX_VARINT_BYTE:
            position += 1
        return position + 1
    if kind in (LIST, SET):
        depth = _deeper(depth)
        size, kind, position = _list_header(data, position)
        for _index in range(size):
            position = _skip(data, position, kind, depth)
        return position
    return _value(data, position, kind, depth)[1]


def _skip_struct(data: Bytes, position: int, depth: int) -> int:
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
            _number, position = read_varint(data, position)
        if kind == BINARY:
            size, position = read_varint(data, position)
            position += size
        elif kind not in (TRUE, FALSE):
            position = _skip(data, position, kind, depth)


# --- writing ----------------------------------------------------------------------------------------------------------


def write_struct(fields: dict[int, Field]) -> bytes:
    """The struct of `fields`, from field id to type code and value.

    A value of another type than `BINARY` may be `bytes` that are written already, such as those between two positions.
    """
    return write_fields(dict(sorted(fields.items()))) + STOP


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
    out = bytearray([min(len(values), _LONG_LIST) << 4 | kind])
    if len(values) >= _LONG_LIST:
        _write_varint(out, len(values))
    for value in values:
        _write(out, kind, value)
    return bytes(out)


def structs(written: list[bytes]) -> Field:
    """The list of structs that are written already, as the value of a field."""
    return LIST, write_list(STRUCT, written)


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
