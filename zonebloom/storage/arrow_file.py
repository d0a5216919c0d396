"""The one reader of Arrow IPC in an index: messages of a file become schemas and validated record batches.

A checksum finds accidents, not adversaries. So each batch is validated: it has exactly the columns of its kind of file,
no null in a column without nulls, valid offsets and texts, and a decompressed size in proportion to the file. Messages
are read in the order of the file; the footer is not used.

Spec: specs/index-format.md#arrow
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from zonebloom.ground.errors import CorruptIndexError, StorageError, UnsupportedFormatError

MAGIC = b"ARROW1\0\0"
"""The first bytes of an Arrow IPC file; the messages of a stream follow."""
_MOST_EXPANSION = 1024
"""Decompressed bytes of a batch for each byte of its message; fragment lists have about 10."""
_HEADER, _BUFFERS, _COMPRESSION = 2, 2, 3
"""Positions of fields in Arrow's flatbuffer tables Message and RecordBatch."""


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Parse a file of the index in the block: an error of any class becomes a `CorruptIndexError` about `what`."""
    try:
        yield
    except (CorruptIndexError, StorageError, UnsupportedFormatError):
        raise
    except FileNotFoundError as error:
        raise CorruptIndexError(f"{what} must exist", got="no such file") from error
    except Exception as error:
        cause = next(iter(str(error).splitlines()), "")
        raise CorruptIndexError(f"{what} must be as it was written", got=f"{type(error).__name__}: {cause}") from error


def read_head(head: pa.Buffer) -> pa.Schema:
    """The schema at the head of an Arrow IPC file."""
    if head[: len(MAGIC)].to_pybytes() != MAGIC:
        raise ValueError("an Arrow IPC file must begin with ARROW1")
    return _with_names(pa.ipc.read_schema(head[len(MAGIC) :]))


def read_schema(text: str) -> pa.Schema:
    """The schema of an Arrow IPC message in hexadecimal digits."""
    return _with_names(pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(text))))


def _with_names(schema: pa.Schema) -> pa.Schema:
    """`schema`, after a check that its names are UTF-8 at every depth; pyarrow fails only when a name is used."""
    pending = list(schema)
    while pending:
        field = pending.pop()
        field.name  # noqa: B018 - decodes the name
        pending += [field.type.field(number) for number in range(field.type.num_fields)]
    return schema


def check_columns(schema: pa.Schema, wanted: pa.Schema) -> None:
    """Raise a `ValueError` unless `schema` has exactly the columns of `wanted`; metadata may differ."""
    if not schema.equals(wanted):
        raise ValueError(f"columns must be {_shown(wanted)}; they are {_shown(schema)}")


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def read_batches(data: pa.Buffer, wanted: pa.Schema, *, is_compressed: bool = False) -> list[pa.RecordBatch]:
    """All batches of an Arrow IPC file or stream that has exactly the columns of `wanted`."""
    start = len(MAGIC) if data[: len(MAGIC)].to_pybytes() == MAGIC else 0
    messages = pa.ipc.MessageReader.open_stream(data[start:])
    schema = pa.ipc.read_schema(messages.read_next_message())
    check_columns(schema, wanted)
    return [read_batch(message, schema, is_compressed=is_compressed) for message in messages]


def read_batch(
    message: pa.ipc.Message | pa.Buffer, schema: pa.Schema, *, is_compressed: bool = False
) -> pa.RecordBatch:
    """The record batch of one message, validated; uncompressed buffers are those of the message."""
    if isinstance(message, pa.Buffer):
        message = pa.ipc.read_message(message)
    expanded = _expanded_bytes(message)
    if expanded and (not is_compressed or expanded > _MOST_EXPANSION * (message.body.size + message.metadata.size)):
        raise ValueError(f"a batch of {message.body.size} bytes must not expand to {expanded}")
    batch = pa.ipc.read_record_batch(message, schema)
    batch.validate(full=True)
    for field, column in zip(schema, batch.columns, strict=True):
        if column.null_count and not field.nullable:
            raise ValueError(f"column {field.name} must have no nulls, got {column.null_count}")
    return batch


def _expanded_bytes(message: pa.ipc.Message) -> int:
    """Bytes of a batch's buffers after decompression; 0 if they are not compressed.

    pyarrow has verified the flatbuffer that holds the message; each compressed buffer begins with its size.
    """
    metadata, body = message.metadata.to_pybytes(), message.body  # bytes: CPython frees views in tracebacks wrongly
    (root,) = struct.unpack_from("<I", metadata)
    batch = _field(metadata, root, _HEADER)
    if message.type != "record batch" or not _field(metadata, batch, _COMPRESSION):
        return 0
    buffers = _field(metadata, batch, _BUFFERS)
    (count,) = struct.unpack_from("<I", metadata, buffers)
    places = [struct.unpack_from("<qq", metadata, buffers + 4 + 16 * number) for number in range(count)]
    sizes = [struct.unpack("<q", body[start : start + 8].to_pybytes())[0] for start, length in places if length]
    if sizes and min(sizes) < -1:
        raise ValueError(f"a compressed buffer must say its size, got {min(sizes)}")
    return sum(size for size in sizes if size > 0)


def _field(metadata: bytes, table: int, number: int) -> int:
    """The position that field `number` of a flatbuffer table points to; 0 if the table has no such field."""
    (back,) = struct.unpack_from("<i", metadata, table)
    (size,) = struct.unpack_from("<H", metadata, table - back)
    slot = 4 + 2 * number
    (offset,) = struct.unpack_from("<H", metadata, table - back + slot) if slot < size else (0,)
    return table + offset + struct.unpack_from("<I", metadata, table + offset)[0] if offset else 0
