"""The positions of a row group's column chunks in a footer's bytes, and their sizes in the file.

A chunk's description has no length, so all descriptions before a chunk are skipped to find it. Most are written alike:
a regular expression skips them in 3 µs each (Python 3.11). The others are skipped as structs, in 15 µs each.

Design: docs/design/pages.md#row-groups
"""

from __future__ import annotations

import re
import threading
from array import array
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from zonebloom.formats.parquet import thrift
from zonebloom.formats.parquet.fields import Chunk, FileMeta, Group, Meta
from zonebloom.formats.parquet.thrift import Field, ThriftError

_MAX_TEXT_BYTES, _MAX_ELEMENTS = 40, 8
"""Longer texts (statistics) and lists are left to the general reader: each length is a branch of the expression."""


class RowGroups:
    """The row groups of a footer. They have no length, so a row group is found by skipping those before it."""

    def __init__(self, footer: bytes) -> None:
        self._footer = footer
        self._lock = threading.Lock()
        self._passed: list[array[int]] = []
        self._position: int | None = None
        """Position of the first row group that was not skipped."""

    def __getitem__(self, number: int) -> Sequence[int]:
        """The positions of the descriptions of all column chunks of a row group.

        Raises
        ------
        ThriftError
            There is no such row group.
        """
        with self._lock:
            if self._position is None:
                groups = thrift.find_field(self._footer, 0, FileMeta.ROW_GROUPS)
                if groups is None:
                    raise ThriftError("a footer must have row groups")
                self._position = thrift.read_list_header(self._footer, groups)[2]
            while len(self._passed) <= number:
                positions, self._position = _chunk_positions(self._footer, self._position)
                self._passed.append(positions)
            return self._passed[number]

    def num_bytes(self, number: int, file_bytes: int) -> int:
        """Compressed bytes of all chunks of a row group; an encrypted chunk whose size is not readable counts 0.

        Raises
        ------
        ThriftError
            A chunk has more bytes than the file, or a negative number.
        """
        num_bytes, match = 0, _alike().match
        for position in self[number]:
            alike = match(self._footer, position)
            size = thrift.read_int(alike[1], 0) if alike is not None else _compressed_bytes(self._footer, position)
            if not 0 <= size <= file_bytes:
                raise ThriftError(f"a column chunk must lie in the {file_bytes} bytes of its file, got {size} bytes")
            num_bytes += size
        return num_bytes


def _chunk_positions(footer: bytes, position: int) -> tuple[array[int], int]:
    """The positions of the chunks of the row group whose struct begins at `position`, and the position after it."""
    columns = thrift.find_field(footer, position, Group.COLUMNS)
    if columns is None:
        raise ThriftError("a row group must have columns")
    num_chunks, _kind, position = thrift.read_list_header(footer, columns)
    positions, match = array("q"), _alike().match
    for _index in range(num_chunks):
        positions.append(position)
        alike = match(footer, position)
        position = alike.end() if alike is not None else thrift.skip(footer, position, thrift.STRUCT)
    return positions, thrift.skip(footer, position, thrift.STRUCT)  # the fields after the columns


def _compressed_bytes(footer: bytes, position: int) -> int:
    chunk, _stop = thrift.read_struct(footer, position)
    if is_encrypted(chunk) and Chunk.META not in chunk:
        return 0
    return int(column_metadata(chunk)[Meta.COMPRESSED_BYTES])


def is_encrypted(chunk: dict[int, Any]) -> bool:
    """Whether the struct ColumnChunk describes an encrypted chunk."""
    return any(field in chunk for field in Chunk.ENCRYPTION)


def plain_fields(footer: bytes) -> dict[int, Field]:
    """The fields of a footer as they are written.

    Raises
    ------
    ThriftError
        It is signed, or damaged.
    """
    fields = thrift.fields_of(footer)
    if FileMeta.ENCRYPTION in fields:
        raise ThriftError("a footer that is signed, whose file is encrypted")
    return fields


def plain_chunk(written: bytes) -> dict[int, Field]:
    """The fields of a ColumnChunk as they are written.

    Raises
    ------
    ThriftError
        It is encrypted, in another file, or damaged.
    """
    fields = thrift.fields_of(written)
    if fields.keys() & {Chunk.FILE_PATH, *Chunk.ENCRYPTION}:
        raise ThriftError("a column chunk that is encrypted or in another file")
    return fields


def column_metadata(chunk: dict[int, Any]) -> dict[int, Any]:
    """The struct ColumnMetaData of a ColumnChunk, whose required fields have the right types.

    Raises
    ------
    ThriftError
        The struct or a required field is missing.
    """
    meta = chunk.get(Chunk.META)
    numbers = (Meta.NUM_VALUES, Meta.BYTES, Meta.COMPRESSED_BYTES, Meta.DATA_OFFSET)
    if not isinstance(meta, dict) or not all(isinstance(meta.get(field), int) for field in numbers):
        raise ThriftError("a column chunk must have its metadata in the footer")
    encodings = meta.get(Meta.ENCODINGS)
    if not isinstance(encodings, list) or not all(isinstance(encoding, int) for encoding in encodings):
        raise ThriftError("a column chunk must have a list of encodings")
    if not isinstance(meta.get(Meta.DICTIONARY_OFFSET, 0), int):
        raise ThriftError("the dictionary page of a column chunk must have an offset")
    return meta


def part_offsets(chunk: dict[int, Any]) -> list[int]:
    """The positions of pages, page indexes and the bloom filter of a ColumnChunk, as far as it has them."""
    meta = chunk.get(Chunk.META)
    offsets = [chunk.get(field) for field in (Chunk.OFFSET_INDEX, Chunk.COLUMN_INDEX)]
    if isinstance(meta, dict):
        offsets += [meta.get(field) for field in (Meta.DATA_OFFSET, Meta.DICTIONARY_OFFSET, Meta.BLOOM_OFFSET)]
    return [offset for offset in offsets if isinstance(offset, int)]


@cache
def _alike() -> re.Pattern[bytes]:
    """An unencrypted ColumnChunk as most writers write it; group 1 is its compressed size.

    Fields 1 to 7 of its ColumnMetaData, which are required, follow each other. The rest are numbers, flags, short
    texts, and structs and lists of them. The first byte of a field has its type, so there is one way to match.
    """
    number = rb"[\x80-\xff]{0,9}+[\x00-\x7f]"
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
    chunk = rb"%s%s(?:%s|%s|%s)*\x00(?:%s)*\x00" % (start, required, a_number, struct, counts, a_number)
    return re.compile(chunk, re.DOTALL)


def _heads(*kinds: int) -> bytes:
    """The first bytes of fields of one of `kinds` whose number is 1 to 15 more than that of the field before."""
    return b"[%s]" % b"".join(rb"\x%02x" % (step << 4 | kind) for step in range(1, 16) for kind in kinds)


def _counted(element: bytes, counts: Iterable[int], kind: int) -> bytes:
    """A count, and that many of `element`; the count is a length, or the head of a list of elements of `kind`."""
    return b"(?:%s)" % b"|".join(
        rb"\x%02x(?:%s){%d}" % (count << 4 | kind if kind else count, element, count) for count in counts
    )
