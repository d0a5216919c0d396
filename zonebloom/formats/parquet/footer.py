"""`Footer`: what one version of a Parquet file says of itself, parsed once and kept for the next who opens it.

pyarrow parses the footer, gives types, and decodes by it. All that concerns a column chunk is read from the footer's
bytes: there pyarrow 26 ends the process by a C++ exception, where the chunk is damaged or encrypted.

Spec: specs/pages.md#footer
"""

from __future__ import annotations

import contextlib
import struct
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, Self

import pyarrow as pa

from zonebloom.arrow import parquet as pq
from zonebloom.errors import DataFileError, first_line
from zonebloom.formats.parquet import thrift
from zonebloom.formats.parquet.column_mapping import StoredName, renamed_footer
from zonebloom.formats.parquet.row_groups import RowGroups, part_offsets
from zonebloom.formats.parquet.thrift import ThriftError
from zonebloom.formats.source import Source
from zonebloom.storage.fragments import Fingerprint

__all__ = ["Footer", "StoredField", "metadata_of", "read_footer"]

_TAIL_BYTES = 1 << 16
"""Read from the end at once: most footers, and of small files the page index as well."""
_END = struct.Struct("<I4s")
_MAGIC = b"PAR1"
_SCHEMA = 2
_REPETITION, _NAME, _NUM_CHILDREN = 3, 4, 5
_REPEATED = 2
_MAX_LEVELS = 100
"""Structs and lists in one another that a schema may have; pyarrow takes no more than some hundred either."""


@dataclass(frozen=True, slots=True)
class StoredField:
    """A column, or a field of one, as the footer describes it."""

    name: str
    schema: tuple[bytes, ...]
    """Its schema elements, as they are written."""
    leaves: range
    """Numbers of its leaves among all column chunks of a row group."""
    is_repeated: bool
    """Whether it holds lists or maps, whose values are more or fewer than rows."""
    children: tuple[StoredField, ...]


class Footer:
    """One version of a file; equal bytes give an equal footer, so threads may share it."""

    def __init__(self, metadata: pq.FileMetaData, raw: bytes, size: int, start: int, tail: bytes = b"") -> None:
        self.metadata = metadata
        self.size = size
        """Bytes of the whole file."""
        self.start = start
        """Where it begins in the file."""
        self._raw = raw
        self._tail = tail
        self._row_groups = RowGroups(raw)

    @classmethod
    def parsed(cls, raw: bytes, size: int, start: int, path: str, tail: bytes = b"") -> Self:
        """The footer with the bytes `raw`, of the file at `path`.

        Raises
        ------
        DataFileError
            It is none.
        """
        with _explained(path):
            found = cls(metadata_of(raw), raw, size, start, tail)
            _ = found.fields  # pyarrow may parse a schema that it makes no columns of
        return found

    def renamed(self, name_of: Callable[[StoredName], str | None], path: str) -> Footer:
        """The footer with the names that `name_of` gives; see `renamed_footer`. Itself where none changes.

        Raises
        ------
        DataFileError
            The footer of the file at `path` is damaged, or two of its columns would have one name.
        """
        raw = renamed_footer(self._raw, name_of, path)
        return self if raw is self._raw else self.parsed(raw, self.size, self.start, path)

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

    @property
    def row_group_bytes(self) -> tuple[int, ...]:
        """Compressed bytes of each row group.

        Raises
        ------
        ThriftError
            A column chunk cannot be read, or has more bytes than the file.
        """
        return tuple(self._row_groups[number].num_bytes(self.size) for number in range(self.metadata.num_row_groups))

    @cached_property
    def fields(self) -> tuple[StoredField, ...]:
        """The top-level columns, in the order of `schema`.

        Raises
        ------
        ThriftError
            They are not as pyarrow reads them.
        """
        position = thrift.find_field(self._raw, 0, _SCHEMA)
        if position is None:
            raise ThriftError("a footer must have a schema")
        size, _kind, position = thrift.read_list_header(self._raw, position)
        elements = []
        for _index in range(size):
            element, stop = thrift.read_struct(self._raw, position)
            elements.append((self._raw[position:stop], element))
            position = stop
        fields: list[StoredField] = []
        number = 1
        while number < size:
            field = _stored_field(elements, number, fields[-1].leaves.stop if fields else 0)
            fields.append(field)
            number += len(field.schema)
        num_leaves = fields[-1].leaves.stop if fields else 0
        if [field.name for field in fields] != self.schema.names or num_leaves != self.metadata.num_columns:
            raise ThriftError("a footer's schema must be the one that pyarrow reads")
        return tuple(fields)

    @cached_property
    def leaves(self) -> tuple[tuple[str, pa.DataType], ...]:
        """Path and type of each leaf, by its number; the type is null inside of lists and maps."""
        pairs = zip(self.fields, self.schema, strict=True)
        return tuple(leaf for stored, field in pairs for leaf in _leaves_of(stored, field.type, stored.name))

    @cached_property
    def part_offsets(self) -> tuple[int, ...]:
        """Where pages, page indexes, bloom filters and the footer begin, in order.

        Raises
        ------
        ThriftError
            As `chunk`.
        """
        chunks = product(range(self.metadata.num_row_groups), range(self.metadata.num_columns))
        return tuple(sorted({self.start, *(offset for pair in chunks for offset in part_offsets(self.chunk(*pair)))}))

    @cached_property
    def repeated_names(self) -> dict[str, str]:
        """By name, top-level columns that are there twice, or have two fields of one name; and the path of those."""
        counts = Counter(field.name for field in self.fields)
        found = {field.name: _repeated_name(field, field.name) for field in self.fields}
        return {name: path for name in counts if (path := name if counts[name] > 1 else found[name])}

    def chunk(self, group: int, leaf: int) -> dict[int, Any]:
        """The column chunk of a row group, as Parquet's struct `ColumnChunk`.

        Raises
        ------
        ThriftError
            The footer is not as pyarrow reads it.
        """
        found = self._row_groups[group]
        if found.num_chunks != self.metadata.num_columns:
            raise ThriftError(f"a row group must have {self.metadata.num_columns} columns, got {found.num_chunks}")
        return found.chunk(leaf)


def _stored_field(elements: list[tuple[bytes, dict[int, Any]]], number: int, leaf: int, level: int = 0) -> StoredField:
    """The field whose description begins with an element of a schema, and its first leaf."""
    if level > _MAX_LEVELS or number >= len(elements):
        raise ThriftError(f"a schema must be a tree of {len(elements)} elements, at most {_MAX_LEVELS} levels high")
    written, element = elements[number]
    name, num_children = element.get(_NAME), element.get(_NUM_CHILDREN, 0)
    if not isinstance(name, bytes) or not isinstance(num_children, int):
        raise ThriftError("an element of a schema must have a name, and a number of children")
    schema, is_repeated, children, stop = [written], element.get(_REPETITION) == _REPEATED, [], leaf
    for _index in range(num_children):
        child = _stored_field(elements, number + len(schema), stop, level + 1)
        children.append(child)
        schema += child.schema
        stop = child.leaves.stop
        is_repeated = is_repeated or child.is_repeated
    leaves = range(leaf, stop if num_children else leaf + 1)
    return StoredField(name.decode(), tuple(schema), leaves, is_repeated, tuple(children))


def _leaves_of(stored: StoredField, column_type: pa.DataType, path: str) -> Iterator[tuple[str, pa.DataType]]:
    if not stored.children:
        yield path, column_type
    is_struct = pa.types.is_struct(column_type) and column_type.num_fields == len(stored.children)
    for place, child in enumerate(stored.children):
        child_type = column_type.field(place).type if is_struct else pa.null()
        yield from _leaves_of(child, child_type, f"{path}.{child.name}")


def _repeated_name(field: StoredField, path: str) -> str:
    """The path of two fields of one name inside `field`; empty where there are none."""
    names: set[str] = set()
    for child in field.children:
        below = f"{path}.{child.name}"
        if child.name in names:
            return below
        names.add(child.name)
        if found := _repeated_name(child, below):
            return found
    return ""


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
    with _explained(source.path):
        tail = _tail(source, size)
        if not tail:
            pq.read_metadata(source.arrow_file())  # its error says what is wrong
        length, _magic = _END.unpack(tail[-_END.size :] or bytes(_END.size))
    raw = tail[-_END.size - length : -_END.size]
    # of a local file the page index is read sooner than it is kept
    kept = tail if fingerprint.etag is not None else b""
    return Footer.parsed(raw, size, size - _END.size - length, source.path, kept)


@contextlib.contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ThriftError, UnicodeDecodeError) as error:
        raise DataFileError(f"data file {path} must be a whole Parquet file, got: {first_line(error)}") from error


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


def metadata_of(raw: bytes) -> pq.FileMetaData:
    """A footer as pyarrow reads it."""
    return pq.read_metadata(pa.BufferReader(_MAGIC + raw + _END.pack(len(raw), _MAGIC)))
