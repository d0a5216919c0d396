"""Where the column chunks of a row group are in a footer's bytes, and how large they are in the file.

No chunk says how long its description is, so all descriptions are passed to find one. Most are written alike: those a
regular expression takes at once, in a sixth of the time (2.5 µs of 15, Python 3.11); the others are read as structs.

Spec: specs/pages.md#row-groups
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from zonebloom.formats.parquet import thrift
from zonebloom.formats.parquet.thrift import ThriftError

__all__ = [
    "BLOOM_LENGTH",
    "BLOOM_OFFSET",
    "COMPRESSED_BYTES",
    "DATA_OFFSET",
    "DICTIONARY_OFFSET",
    "ENCODINGS",
    "FILE_PATH",
    "NUM_VALUES",
    "UNCOMPRESSED_BYTES",
    "RowGroup",
    "column_metadata",
    "is_encrypted",
    "part_offsets",
    "walk_row_group",
]

ENCODINGS, NUM_VALUES, UNCOMPRESSED_BYTES, COMPRESSED_BYTES, DATA_OFFSET, DICTIONARY_OFFSET = 2, 5, 6, 7, 9, 11
BLOOM_OFFSET, BLOOM_LENGTH = 14, 15
"""Fields of a ColumnMetaData."""
FILE_PATH, _METADATA, _INDEXES, _ENCRYPTION = 1, 3, (4, 6), (8, 9)
"""Fields of a ColumnChunk; only encrypted ones have the last."""
_COLUMNS = 1
_MAX_TEXT_BYTES, _MAX_ELEMENTS = 40, 8
"""Longer texts (statistics) and lists are left to the general reader: each length is a branch of the expression."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group of a footer."""

    chunks: tuple[int, ...]
    """Where the description of each column chunk begins in the footer."""
    num_bytes: int
    """Compressed bytes of all chunks; those that an encrypted one keeps to itself are not counted."""


def walk_row_group(footer: bytes, position: int, file_bytes: int) -> tuple[RowGroup, int]:
    """The row group whose struct begins at `position`, and where that ends.

    Raises
    ------
    ThriftError
        There is none, or a chunk has more bytes than the file has, or less than none.
    """
    found = thrift.find_field(footer, position, _COLUMNS)
    if found is None:
        raise ThriftError("a row group must have columns")
    num_chunks, _kind, position = thrift.read_list_header(footer, found)
    match = _written_alike().match
    chunks, num_bytes = [], 0
    for _index in range(num_chunks):
        chunks.append(position)
        alike = match(footer, position)
        if alike is not None:
            size, position = thrift.read_int(alike[1], 0), alike.end()
        else:
            chunk, position = thrift.read_struct(footer, position)
            size = _compressed_bytes(chunk)
        if not 0 <= size <= file_bytes:
            raise ThriftError(f"a column chunk must lie in the {file_bytes} bytes of its file, got {size} bytes")
        num_bytes += size
    return RowGroup(tuple(chunks), num_bytes), thrift.skip(footer, position, thrift.STRUCT)  # the fields after columns


def _compressed_bytes(chunk: dict[int, Any]) -> int:
    if is_encrypted(chunk) and _METADATA not in chunk:
        return 0
    return int(column_metadata(chunk)[COMPRESSED_BYTES])


def is_encrypted(chunk: dict[int, Any]) -> bool:
    """Whether the struct ColumnChunk is of an encrypted one."""
    return any(field in chunk for field in _ENCRYPTION)


def column_metadata(chunk: dict[int, Any]) -> dict[int, Any]:
    """The struct ColumnMetaData of a ColumnChunk, with numbers and a list of numbers where it is to have them.

    Raises
    ------
    ThriftError
        It has none, or not all that is required.
    """
    meta = chunk.get(_METADATA)
    numbers = (NUM_VALUES, UNCOMPRESSED_BYTES, COMPRESSED_BYTES, DATA_OFFSET)
    if not isinstance(meta, dict) or not all(isinstance(meta.get(field), int) for field in numbers):
        raise ThriftError("a column chunk must have its metadata in the footer")
    encodings = meta.get(ENCODINGS)
    if not isinstance(encodings, list) or not all(isinstance(one, int) for one in encodings):
        raise ThriftError("a column chunk must have a list of encodings")
    if not isinstance(meta.get(DICTIONARY_OFFSET, 0), int):
        raise ThriftError("the dictionary page of a column chunk must have an offset")
    return meta


def part_offsets(chunk: dict[int, Any]) -> list[int]:
    """Where pages, page indexes and the bloom filter of a ColumnChunk begin, as far as it says."""
    meta = chunk.get(_METADATA)
    found = [chunk.get(field) for field in _INDEXES]
    if isinstance(meta, dict):
        found += [meta.get(field) for field in (DATA_OFFSET, DICTIONARY_OFFSET, BLOOM_OFFSET)]
    return [offset for offset in found if isinstance(offset, int)]


@cache
def _written_alike() -> re.Pattern[bytes]:
    """A ColumnChunk of this file, not encrypted, as writers write it; group 1 is its compressed size.

    Fields 1 to 7 of its ColumnMetaData, which are required, follow each other. The rest are numbers, flags, short
    texts, and structs and lists of them. The first byte of a field tells its kind, so there is one way to match.
    """
    number = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
    text = _counted(rb".", range(_MAX_TEXT_BYTES + 1), 0)
    a_number = _heads(thrift.I16, thrift.I32, thrift.I64) + number
    numbers = _heads(thrift.LIST) + _counted(number, range(_MAX_ELEMENTS), thrift.I64)
    counts = _heads(thrift.LIST) + _counted(rb"(?:%s)*\x00" % a_number, range(_MAX_ELEMENTS), thrift.STRUCT)
    simple = b"|".join([a_number, _heads(thrift.BINARY) + text, _heads(thrift.TRUE, thrift.FALSE), numbers])
    struct = rb"%s(?:%s)*\x00" % (_heads(thrift.STRUCT), simple)
    encodings = _counted(number, range(_MAX_ELEMENTS), thrift.I32)
    path = _counted(text, range(1, 4), thrift.BINARY)
    required = rb"\x15%s\x19%s\x19%s\x15%s\x16%s\x16%s\x16(%s)" % (number, encodings, path, *(number,) * 4)
    start = rb"(?:\x26%s\x1c|\x3c)" % number  # file_offset, which newer writers leave out
    whole = rb"%s%s(?:%s|%s|%s)*\x00(?:%s)*\x00" % (start, required, a_number, struct, counts, a_number)
    return re.compile(whole, re.DOTALL)


def _heads(*kinds: int) -> bytes:
    """The bytes that begin a field of one of `kinds`, whose number is at most 15 more than the last one's."""
    return b"[%s]" % b"".join(rb"\x%02x" % (step << 4 | kind) for step in range(1, 16) for kind in kinds)


def _counted(element: bytes, counts: Iterable[int], kind: int) -> bytes:
    """So many times `element` as the byte before says: a length, or a list's head with the `kind` of its elements."""
    return b"(?:%s)" % b"|".join(
        rb"\x%02x(?:%s){%d}" % (count << 4 | kind if kind else count, element, count) for count in counts
    )
