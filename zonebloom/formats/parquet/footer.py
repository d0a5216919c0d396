"""`Footer`: what one version of a Parquet file says of itself, parsed once and kept for the next who opens it.

pyarrow parses the footer, and decodes by it. What pyarrow does not show is where the page index of a column chunk is:
that is found in the footer's bytes, when it is first wanted.

Spec: specs/pages.md#footer
"""

from __future__ import annotations

import base64
import contextlib
import struct
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from zonebloom.arrow import parquet as pq
from zonebloom.errors import DataFileError
from zonebloom.formats.parquet import thrift
from zonebloom.formats.parquet.thrift import ThriftError
from zonebloom.formats.source import Fingerprint, Source

__all__ = ["Described", "Footer", "StoredField", "first_line", "read_footer"]

_TAIL_BYTES = 1 << 16
"""Read from the end at once: most footers, and of small files the page index as well."""
_END = struct.Struct("<I4s")
_MAGIC = b"PAR1"
_MAX_WALKED_BYTES = 1 << 23
"""Python takes 80 ns a byte to find its way through a footer; beyond this, row groups are read whole."""
_ARROW_SCHEMA = b"ARROW:schema"
_SCHEMA, _ROW_GROUPS = 2, 4
_COLUMNS = 1
_REPETITION, _NAME, _NUM_CHILDREN = 3, 4, 5
_REPEATED = 2
_MAX_DESCRIBED = 256
"""Files of some columns that a footer keeps the description of."""


@dataclass(frozen=True, slots=True)
class StoredField:
    """A top-level column as the footer describes it."""

    schema: tuple[bytes, ...]
    """Its schema elements, as they are written."""
    leaves: range
    """Numbers of its leaves among all column chunks of a row group."""
    is_repeated: bool
    """Whether it holds lists or maps, whose values are more or fewer than rows."""


@dataclass(frozen=True, slots=True)
class Described:
    """What a file of some columns of another says of them, as Parquet writes it."""

    head: bytes
    """Of its FileMetaData the fields 1 and 2: format, and schema elements: a root, and those of the columns."""
    tail: bytes
    """The fields 5 and 6, and the end: the Arrow schema, if the file has one, and the writer."""


class Footer:
    """One version of a file; equal bytes give an equal footer, so threads may share it."""

    def __init__(self, metadata: pq.FileMetaData, raw: bytes, size: int, tail: bytes = b"") -> None:
        self.metadata = metadata
        self.size = size
        """Bytes of the whole file."""
        self._raw = raw
        self._tail = tail
        self._lock = threading.Lock()
        self._groups: list[list[int]] = []
        self._next_group = 0
        self._described: dict[tuple[int, ...], Described] = {}
        self.page_maps: dict[tuple[int, int], Any] = {}
        """Where pages are, by row group and leaf: for `pages`, which fills it."""
        self.integer_ranges: dict[tuple[int, str, Any], tuple[int, int] | None] = {}
        """Least and greatest values, by row group, column and type: for `DataFile`, which fills it."""

    def rewritten(self, rewrite: Callable[[bytes], bytes]) -> Footer:
        """The footer that `rewrite` makes of its bytes; itself where that leaves them.

        Raises
        ------
        DataFileError
            Its bytes are not at hand.
        """
        if not self._raw:
            raise DataFileError("a footer must end its file to be rewritten, got one that does not")
        raw = rewrite(self._raw)
        if raw is self._raw:
            return self
        return Footer(pq.read_metadata(pa.BufferReader(_MAGIC + raw + _END.pack(len(raw), _MAGIC))), raw, self.size)

    @property
    def length(self) -> int:
        """Bytes of the footer; more than its struct has where it is signed, so that columns may be encrypted."""
        return len(self._raw)

    @property
    def num_bytes(self) -> int:
        """About what it needs in memory: pyarrow's objects are some times larger than the bytes that they come from."""
        return 4096 + 8 * max(len(self._raw), int(self.metadata.serialized_size)) + len(self._tail)

    def read_ranges(self, source: Source, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """As `source.read_ranges`; what was read with the footer, and kept, is not read again."""
        first = self.size - len(self._tail)
        if self._tail and all(offset >= first for offset, _length in ranges):
            return [self._tail[offset - first : offset - first + length] for offset, length in ranges]
        return source.read_ranges(ranges)

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema as the reader gives it (with extension types such as UUID), without metadata."""
        return pq.ParquetFile(pa.BufferReader(b""), metadata=self.metadata).schema_arrow.remove_metadata()

    @cached_property
    def row_group_rows(self) -> tuple[int, ...]:
        """Rows of each row group."""
        return tuple(self.metadata.row_group(i).num_rows for i in range(self.metadata.num_row_groups))

    @cached_property
    def row_group_bytes(self) -> tuple[int, ...]:
        """Compressed bytes of each row group."""
        groups = (self.metadata.row_group(i) for i in range(self.metadata.num_row_groups))
        return tuple(sum(group.column(c).total_compressed_size for c in range(group.num_columns)) for group in groups)

    @cached_property
    def leaves(self) -> dict[str, int]:
        """Number of each leaf by its path with dots."""
        return {self.metadata.schema.column(i).path: i for i in range(self.metadata.num_columns)}

    @cached_property
    def stored_fields(self) -> tuple[StoredField, ...]:
        """The top-level columns in order; none where the footer is too large, or not as the schema has it."""
        if not 0 < len(self._raw) <= _MAX_WALKED_BYTES:
            return ()
        with contextlib.suppress(ThriftError, IndexError, TypeError):  # fields that have another type, too
            fields = self._stored_fields()
            if len(fields) == len(self.schema) and sum(len(one.leaves) for one in fields) == self.metadata.num_columns:
                return fields
        return ()

    def _stored_fields(self) -> tuple[StoredField, ...]:
        position = thrift.find_field(self._raw, 0, _SCHEMA)
        if position is None:
            return ()
        size, _kind, position = thrift.read_list_header(self._raw, position)
        elements: list[tuple[bytes, dict[int, Any]]] = []
        for _index in range(size):
            element, stop = thrift.read_struct(self._raw, position)
            elements.append((self._raw[position:stop], element))
            position = stop
        fields, number, leaf = [], 1, 0
        while number < size:
            first, open_children, num_leaves = number, 1, 0
            while open_children:
                children = elements[number][1].get(_NUM_CHILDREN, 0)
                open_children += children - 1
                num_leaves += not children
                number += 1
            of_field = elements[first:number]
            is_repeated = any(element.get(_REPETITION) == _REPEATED for _bytes, element in of_field)
            schema = tuple(written for written, _element in of_field)
            fields.append(StoredField(schema, range(leaf, leaf + num_leaves), is_repeated))
            if of_field[0][1].get(_NAME) != self.schema.field(len(fields) - 1).name.encode():
                return ()
            leaf += num_leaves
        return tuple(fields)

    def described(self, numbers: tuple[int, ...]) -> Described:
        """What a file of some top-level columns alone has to say, for pyarrow to read the same types from it."""
        if numbers not in self._described:
            elements = [element for number in numbers for element in self.stored_fields[number].schema]
            root = thrift.write_struct({_NAME: (thrift.BINARY, b"schema"), _NUM_CHILDREN: (thrift.I32, len(numbers))})
            schema = thrift.write_list(thrift.STRUCT, [root, *elements])
            tail: dict[int, thrift.Field] = {}
            if _ARROW_SCHEMA in (self.metadata.metadata or {}):
                arrow = base64.b64encode(pa.schema([self.schema.field(number) for number in numbers]).serialize())
                pair = thrift.write_struct({1: (thrift.BINARY, _ARROW_SCHEMA), 2: (thrift.BINARY, arrow)})
                tail[5] = thrift.LIST, thrift.write_list(thrift.STRUCT, [pair])
            if self.metadata.created_by:  # pyarrow reads pages of some old writers differently
                tail[6] = thrift.BINARY, str(self.metadata.created_by).encode()
            head = thrift.write_fields({1: (thrift.I32, 2), 2: (thrift.LIST, schema)})
            if len(self._described) == _MAX_DESCRIBED:
                self._described.clear()
            self._described[numbers] = Described(head, thrift.write_fields(tail, after=4) + thrift.STOP)
        return self._described[numbers]

    def chunk(self, group: int, leaf: int) -> dict[int, Any]:
        """The column chunk of a row group, as Parquet's struct `ColumnChunk`.

        Raises
        ------
        ThriftError
            The footer is not as pyarrow reads it.
        """
        try:
            with self._lock:
                while len(self._groups) <= group:
                    self._walk_group()
            return thrift.read_struct(self._raw, self._groups[group][leaf])[0]
        except IndexError as error:
            raise ThriftError(f"a footer must have column chunk {leaf} of row group {group}") from error

    def _walk_group(self) -> None:
        """Find the column chunks of the next row group: the groups follow each other, and none says how long it is."""
        start = self._next_group
        if not self._groups:
            found = thrift.find_field(self._raw, 0, _ROW_GROUPS)
            start = thrift.read_list_header(self._raw, found)[2] if found is not None else len(self._raw)
        found = thrift.find_field(self._raw, start, _COLUMNS)
        if found is None:
            raise ThriftError("a row group must have columns")
        size, _kind, position = thrift.read_list_header(self._raw, found)
        chunks = []
        for _index in range(size):
            chunks.append(position)
            position = thrift.skip(self._raw, position, thrift.STRUCT)
        self._next_group = thrift.skip(self._raw, position, thrift.STRUCT)  # the fields after the columns
        self._groups.append(chunks)


# --- reading, and keeping ---------------------------------------------------------------------------------------------


class _Kept:
    """Footers by path and fingerprint, those not used for longest dropped first."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._footers: OrderedDict[tuple[Any, ...], tuple[Footer, int]] = OrderedDict()
        self._num_bytes = 0

    def get(self, key: tuple[Any, ...]) -> Footer | None:
        with self._lock:
            found = self._footers.get(key)
            if found is None:
                return None
            self._footers.move_to_end(key)
            return found[0]

    def clear(self) -> None:
        with self._lock:
            self._footers.clear()
            self._num_bytes = 0

    def put(self, key: tuple[Any, ...], footer: Footer) -> None:
        size = footer.num_bytes
        with self._lock:
            if key in self._footers or size > self.max_bytes:
                return
            self._footers[key] = footer, size
            self._num_bytes += size
            while self._num_bytes > self.max_bytes:
                self._num_bytes -= self._footers.popitem(last=False)[1][1]


_KEPT = _Kept(max_bytes=1 << 27)
"""Of the process: some thousand footers, as several indexes of one data set share them."""
_SETTLED_NS = 2_000_000_000
"""A file written less than so long ago may be written again without a change of its time or size: it is not kept."""


def read_footer(source: Source) -> Footer:
    """The footer of an opened file, which is read only if nobody did before, with this fingerprint.

    Raises
    ------
    DataFileError
        It is no whole Parquet file.

    Spec: specs/pages.md#footer
    """
    fingerprint = source.fingerprint
    key = (source.path, *fingerprint)
    footer = _KEPT.get(key)
    if footer is None:
        footer = _read(source, fingerprint)
        if fingerprint.etag is not None or fingerprint.mtime_ns + _SETTLED_NS < time.time_ns():
            _KEPT.put(key, footer)
    return footer


def _read(source: Source, fingerprint: Fingerprint) -> Footer:
    size = fingerprint.size
    try:
        tail = _tail(source, size)
        if tail:
            length, _magic = _END.unpack(tail[-_END.size :])
            raw = tail[-_END.size - length : -_END.size]
            metadata = pq.read_metadata(pa.BufferReader(_MAGIC + tail[-_END.size - length :]))
            # of a local file the page index is read sooner than it is kept
            return Footer(metadata, raw, size, tail if fingerprint.etag is not None else b"")
        return Footer(pq.read_metadata(source.arrow_file()), b"", size)  # or, most often, its error
    except (pa.ArrowException, OSError) as error:
        message = f"data file {source.path} must be a whole Parquet file, got: {first_line(error)}"
        raise DataFileError(message) from error


def _tail(source: Source, size: int) -> bytes:
    """The end of the file with the footer in it; nothing if the file does not end as Parquet files do."""
    first = max(0, size - _TAIL_BYTES)
    (tail,) = source.read_ranges([(first, size - first)])
    if len(tail) != size - first or len(tail) < _END.size + len(_MAGIC):
        return b""
    length, magic = _END.unpack(tail[-_END.size :])
    if magic != _MAGIC or not 0 < length <= size - _END.size - len(_MAGIC):
        return b""
    missing = length + _END.size - len(tail)
    if missing > 0:
        (head,) = source.read_ranges([(first - missing, missing)])
        tail = head + tail
    return tail


def first_line(error: BaseException) -> str:
    """What an error of pyarrow says, in one line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
