"""`Footer`: the metadata of one version of a Parquet file, parsed once and cached.

pyarrow parses the footer, gives the types, and decodes pages. Metadata of column chunks is read from the footer's bytes
here: for a damaged or encrypted chunk pyarrow 26 ends the process by a C++ exception.

Design: docs/design/pages.md#footer
"""

from __future__ import annotations

import contextlib
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, Literal, Self

import pyarrow as pa

from zonebloom.formats.lru_cache import LruCache
from zonebloom.formats.parquet import thrift
from zonebloom.formats.parquet.column_mapping import StoredName, renamed_footer
from zonebloom.formats.parquet.row_groups import RowGroups, part_offsets
from zonebloom.formats.parquet.schema import StoredField, read_schema
from zonebloom.formats.parquet.thrift import ThriftError
from zonebloom.ground.arrow import parquet as pq
from zonebloom.ground.cached import cached_property
from zonebloom.ground.errors import DataFileError, first_line
from zonebloom.stores.fingerprint import Fingerprint
from zonebloom.stores.stored_file import ByteRange, StoredFile

_TAIL_BYTES = 1 << 16
"""Bytes that are read from the end at first: they have most footers, and the page index of small files."""
_END = struct.Struct("<I4s")
_MAGIC = b"PAR1"
_BY_SPARK = {b"org.apache.spark.version", b"org.apache.spark.sql.parquet.row.metadata"}
"""What Spark notes in a footer; before 3.0 only the second."""


class Footer:
    """One version of a file; equal bytes give an equal footer, so threads may share it."""

    def __init__(self, metadata: pq.FileMetaData, raw: bytes, size: int, start: int, tail: bytes = b"") -> None:
        self.metadata: pq.FileMetaData = metadata
        self.size = size
        """Bytes of the whole file."""
        self.start = start
        """Position of the footer in the file."""
        self.raw = raw
        """The bytes of Parquet's struct FileMetaData."""
        self.kept: defaultdict[str, dict[Any, Any]] = defaultdict(dict)
        """What its readers keep as long as the footer is kept, by kind: page maps, bounds, parts of smaller footers."""
        self._tail = tail
        self._row_groups = RowGroups(raw)

    @classmethod
    def parsed(cls, raw: bytes, size: int, start: int, path: str, tail: bytes = b"") -> Self:
        """The footer with the bytes `raw`, of the file at `path`.

        Raises
        ------
        DataFileError
            The bytes are no footer.
        """
        with _explained(path):
            footer = cls(metadata_of(raw), raw, size, start, tail)
            _ = footer.fields  # pyarrow may parse a schema for which it has no columns
        return footer

    def renamed(self, name_of: Callable[[StoredName], str | None], path: str) -> Footer:
        """The footer with the names that `name_of` returns; see `renamed_footer`. Itself if no name changes.

        Raises
        ------
        DataFileError
            The footer of the file at `path` is damaged, or two of its columns would have one name.
        """
        raw = renamed_footer(self.raw, self.fields, name_of, path)
        return self if raw is self.raw else self.parsed(raw, self.size, self.start, path, self._tail)

    @property
    def num_bytes(self) -> int:
        """An estimate of its memory: pyarrow's objects take several times the bytes of the footer."""
        return 4096 + 8 * max(len(self.raw), int(self.metadata.serialized_size)) + len(self._tail)

    def read_ranges(self, source: StoredFile, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """As `source.read_ranges`; bytes that were read with the footer and kept are not read again."""
        first = self.size - len(self._tail)
        if self._tail and all(offset >= first for offset, _length in ranges):
            return [self._tail[offset - first : offset - first + length] for offset, length in ranges]
        return source.read_ranges(ranges)

    @cached_property
    def int96_unit(self) -> Literal["ns", "us"]:
        """The unit of times in INT96: microseconds if Spark wrote them, since nanoseconds end in the year 2262."""
        return "us" if _BY_SPARK.intersection(self.metadata.metadata or {}) else "ns"

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema as the reader gives it (with extension types such as UUID), without metadata."""
        nothing, unit = pa.BufferReader(b""), self.int96_unit
        file = pq.ParquetFile(nothing, metadata=self.metadata, coerce_int96_timestamp_unit=unit)
        return file.schema_arrow.remove_metadata()

    @cached_property
    def row_group_rows(self) -> tuple[int, ...]:
        """Rows of each row group."""
        return tuple(self.metadata.row_group(i).num_rows for i in range(self.metadata.num_row_groups))

    @cached_property
    def num_rows_of_groups(self) -> int:
        """Rows of all row groups; -1 if one has a negative number."""
        return sum(self.row_group_rows) if min(self.row_group_rows, default=0) >= 0 else -1

    @property
    def row_group_bytes(self) -> tuple[int, ...]:
        """Compressed bytes of each row group.

        Raises
        ------
        ThriftError
            A column chunk cannot be read, or has more bytes than the file.
        """
        return tuple(self._row_groups.num_bytes(group, self.size) for group in range(self.metadata.num_row_groups))

    @property
    def created_by(self) -> bytes:
        """The name of the writer, in UTF-8 if it is well-formed; empty if there is none."""
        try:
            return (self.metadata.created_by or "").encode()
        except UnicodeDecodeError as error:
            return error.object

    @cached_property
    def fields(self) -> tuple[StoredField, ...]:
        """The top-level columns, in the order of `schema`.

        Raises
        ------
        ThriftError
            They differ from the columns that pyarrow reads.
        """
        fields = read_schema(self.raw)
        num_leaves = fields[-1].leaves.stop if fields else 0
        if [field.name for field in fields] != self.schema.names or num_leaves != self.metadata.num_columns:
            raise ThriftError("a footer's schema must be the one that pyarrow reads")
        return fields

    @cached_property
    def leaves(self) -> tuple[tuple[str, pa.DataType], ...]:
        """Path and type of each leaf, by its number; the type is null inside of lists and maps."""
        pairs = zip(self.fields, self.schema, strict=True)
        return tuple(leaf for stored, field in pairs for leaf in _leaves_of(stored, field.type, stored.name))

    @cached_property
    def part_offsets(self) -> tuple[int, ...]:
        """The positions of pages, page indexes, bloom filters and the footer, in order.

        Raises
        ------
        ThriftError
            As `chunk`.
        """
        chunks = product(range(self.metadata.num_row_groups), range(self.metadata.num_columns))
        return tuple(sorted({self.start, *(offset for pair in chunks for offset in part_offsets(self.chunk(*pair)))}))

    @cached_property
    def repeated_names(self) -> dict[str, str]:
        """Top-level columns that occur twice, or have two fields of one name: their names, and the repeated path."""
        counts = Counter(field.name for field in self.fields)
        paths = {field.name: _repeated_name(field, field.name) for field in self.fields}
        return {name: path for name in counts if (path := name if counts[name] > 1 else paths[name])}

    def chunk(self, group: int, leaf: int) -> dict[int, Any]:
        """The column chunk of a row group, as Parquet's struct `ColumnChunk`.

        Raises
        ------
        ThriftError
            The footer differs from what pyarrow reads.
        """
        positions = self._row_groups[group]
        if len(positions) != self.metadata.num_columns:
            raise ThriftError(f"a row group must have {self.metadata.num_columns} columns, got {len(positions)}")
        return thrift.read_struct(self.raw, positions[leaf])[0]


def _leaves_of(stored: StoredField, column_type: pa.DataType, path: str) -> Iterator[tuple[str, pa.DataType]]:
    if not stored.children:
        yield path, column_type
    is_struct = pa.types.is_struct(column_type) and column_type.num_fields == len(stored.children)
    for place, child in enumerate(stored.children):
        child_type = column_type.field(place).type if is_struct else pa.null()
        yield from _leaves_of(child, child_type, f"{path}.{child.name}")


def _repeated_name(field: StoredField, path: str) -> str:
    """The path of two fields of one name inside `field`; empty if there are none."""
    names: set[str] = set()
    for child in field.children:
        below = f"{path}.{child.name}"
        if child.name in names:
            return below
        names.add(child.name)
        if repeated := _repeated_name(child, below):
            return repeated
    return ""


# --- reading, and keeping ---------------------------------------------------------------------------------------------


_KEPT: LruCache[tuple[Any, ...], Footer] = LruCache(1 << 27, lambda footer: footer.num_bytes)
"""The cache of this process, shared by all indexes: some thousand footers."""
_SETTLED_NS = 2_000_000_000
"""Nanoseconds: the footer of a younger file is not cached: a second write may leave its time and size unchanged."""


def read_footer(
    source: StoredFile,
    likely: Sequence[ByteRange] = (),
    logged: Fingerprint | None = None,
    naming: Callable[[StoredName], str | None] | None = None,
) -> Footer:
    """The footer of an opened file, from the cache if this version was read before; `logged` is that of a table's log.

    If it is not, the bytes `likely`, offsets and lengths, are fetched with it; those at the end of the file are kept.
    With `naming` it has the names of a table.

    Raises
    ------
    DataFileError
        The file is no whole Parquet file, or two of its columns would have one name.

    Design: docs/design/pages.md#footer
    """
    fingerprint = source.fingerprint
    key = (source.path, *fingerprint, source.changed_ns, logged, naming)
    footer = _KEPT.get(key)
    if footer is None:
        if naming is not None:
            plain = read_footer(source, likely, logged)
            if naming in plain.kept["names"]:
                return plain
            footer = plain.renamed(naming, source.path)
            if footer is plain:  # it is kept once, not for each naming
                plain.kept["names"] = {naming: None}
                return plain
        else:
            size = fingerprint.size
            first = max(0, size - _TAIL_BYTES)
            if likely and source.is_remote:
                first = min([first, *(start for start, length in likely if start + length == size)])
                source.will_need([*likely, (first, size - first)])
            footer = _read(source, size, first)
        if fingerprint.etag is not None or fingerprint.mtime_ns + _SETTLED_NS < time.time_ns():
            _KEPT.put(key, footer)
    return footer


def _read(source: StoredFile, size: int, first: int) -> Footer:
    with _explained(source.path):
        tail = _tail(source, size, first)
        if not tail:
            pq.read_metadata(source.arrow_file())  # for its error message
        length, _magic = _END.unpack(tail[-_END.size :] or bytes(_END.size))
    raw = tail[-_END.size - length : -_END.size]
    # reading the page index of a local file again costs less than keeping it
    kept = tail if source.is_remote else b""
    return Footer.parsed(raw, size, size - _END.size - length, source.path, kept)


@contextlib.contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ThriftError, UnicodeDecodeError) as error:
        raise DataFileError(
            f"data file {path} must be a whole Parquet file that pyarrow reads", got=first_line(error)
        ) from error


def _tail(source: StoredFile, size: int, first: int) -> bytes:
    """The file from `first` or before, with the whole footer; empty if the file does not end as a Parquet file."""
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
