"""A copy of a Parquet file without some of its rows, written as the file was.

Row groups that lose no row are copied as bytes. In the others each leaf is read, cut and written alone: with its codec,
its encoding, its version and checksums of pages, and with statistics, a page index and a bloom filter if it had them.
The footer stays, except row groups and counts: schema, metadata, the writer's name, orders and unknown fields.

pyarrow reads and writes the leaves by a schema without logical types, so that a value is the bytes that it was: INT96,
NaN, nanoseconds and types that pyarrow does not know. A memory of one column chunk is enough.

Design: docs/design/erasing.md#files
"""

from __future__ import annotations

import inspect
import itertools
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zonebloom.bloom.sbbf import Sbbf
from zonebloom.formats.parquet import thrift
from zonebloom.formats.parquet.bloom_writer import stored_hashes
from zonebloom.formats.parquet.fields import Chunk, FileMeta, Group, Meta, Page
from zonebloom.formats.parquet.footer import Footer, metadata_of, read_footer
from zonebloom.formats.parquet.physical_schema import OF_UINT_32, leaves_of, of_repeated, order_of, physical_schema
from zonebloom.formats.parquet.row_groups import plain_chunk, plain_fields
from zonebloom.formats.parquet.thrift import Field, ThriftError
from zonebloom.ground.arrow import parquet as pq, with_leaves
from zonebloom.ground.casts import as_bits
from zonebloom.ground.errors import DataFileError, InvalidArgumentError, first_line
from zonebloom.stores.stored_file import ByteRange, StoredFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MAGIC = b"PAR1"
_CODECS = {0: "none", 1: "snappy", 2: "gzip", 4: "brotli", 5: "lz4", 6: "zstd", 7: "lz4"}
_PLAIN_DICTIONARY, _RLE_DICTIONARY = 2, 8
_ENCODINGS = {5: "DELTA_BINARY_PACKED", 6: "DELTA_LENGTH_BYTE_ARRAY", 7: "DELTA_BYTE_ARRAY", 9: "BYTE_STREAM_SPLIT"}
_MAX_HEADER_BYTES = 1 << 20
_PART_BYTES = 1 << 26
_BY_TYPE = 1
"""The column order of a leaf whose statistics are in the order of its type."""

_Fields = dict[int, Field]


def write_without_rows(source: StoredFile, rows: NDArray[np.int64], out: BinaryIO) -> int:
    """Write to `out` the file `source` without the `rows`, which are numbers in order; return the number of rows left.

    A file that loses all rows has no row groups, and its schema and metadata.

    Raises
    ------
    DataFileError
        The file is damaged, encrypted, or has column chunks in other files; or pyarrow cannot read or write one.

    Design: docs/design/erasing.md#files
    """
    try:
        return _Copy(source, out).write(rows)
    except (ThriftError, pa.ArrowException, LookupError, ValueError, TypeError, OSError) as error:
        if isinstance(error, OSError) and error.errno:  # of the disk; pyarrow's have no number
            raise
        raise DataFileError(
            f"data file {source.path} must be one that can be written without some of its rows", got=first_line(error)
        ) from error


@dataclass(slots=True)
class _Chunk:
    """A column chunk: what its row group says of it, and its parts as bytes."""

    fields: _Fields
    meta: _Fields
    span: ByteRange
    """Offset and length of its pages in the file that they come from."""
    column_index: bytes = b""
    offset_index: bytes = b""
    bloom: bytes = b""

    def number(self, field: int) -> int:
        """The number in a field of the metadata, 0 if there is none."""
        return thrift.number_of(self.meta, field)

    def pages(self) -> list[_Fields]:
        """The places of its pages: position, bytes, and number of the first row; none without a page index."""
        index = thrift.fields_of(self.offset_index) if self.offset_index else {}
        return [thrift.fields_of(page) for page in thrift.structs_of(index, 1)]

    def written(self) -> bytes:
        """The struct ColumnChunk."""
        self.fields[Chunk.META] = (thrift.STRUCT, thrift.write_struct(self.meta))
        return thrift.write_struct(self.fields)


class _File:
    """A Parquet file, the bytes of whose column chunks can be read."""

    def __init__(self, footer: Footer, read: Callable[[Sequence[ByteRange]], list[bytes]]) -> None:
        self.footer = footer
        self._read = read
        self.fields = plain_fields(footer.raw)
        self.groups = [thrift.fields_of(group) for group in thrift.structs_of(self.fields, FileMeta.ROW_GROUPS)]

    def read(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """The bytes of each range, all of them."""
        parts = self._read(ranges)
        if any(len(part) != length for part, (_offset, length) in zip(parts, ranges, strict=True)):
            raise ThriftError("fewer bytes than its footer names")
        return parts

    def parts_of(self, span: ByteRange) -> Iterator[bytes]:
        """The bytes of a column chunk, which may be larger than memory."""
        start, stop = span[0], sum(span)
        for offset in range(start, stop, _PART_BYTES):
            yield from self.read([(offset, min(_PART_BYTES, stop - offset))])

    def chunks(self, group: int) -> list[_Chunk]:
        """The column chunks of a row group, with page indexes and bloom filters, which are read together."""
        described = list(map(self._described, thrift.structs_of(self.groups[group], Group.COLUMNS)))
        parts = iter(self.read([place for _chunk, places in described for place in places]))
        for chunk, _places in described:
            chunk.column_index, chunk.offset_index, chunk.bloom = itertools.islice(parts, 3)
        return [chunk for chunk, _places in described]

    def _described(self, written: bytes) -> tuple[_Chunk, list[ByteRange]]:
        """A chunk, and the places of its column index, offset index and bloom filter, of 0 bytes if it has none."""
        fields = plain_chunk(written)
        meta = thrift.fields_of(fields[Chunk.META][1])
        data = thrift.number_of(meta, Meta.DATA_OFFSET)
        start = min(offset for offset in (data, thrift.number_of(meta, Meta.DICTIONARY_OFFSET)) if offset > 0)
        stop = self._end_after(data)  # some writers count no page headers
        if stop < start + thrift.number_of(meta, Meta.COMPRESSED_BYTES):
            raise ThriftError("column chunks that overlap")
        bloom = thrift.number_of(meta, Meta.BLOOM_OFFSET)
        bloom_bytes = (thrift.number_of(meta, Meta.BLOOM_LENGTH) or self._end_after(bloom) - bloom) if bloom else 0
        return _Chunk(fields, meta, (start, stop - start)), [
            (thrift.number_of(fields, Chunk.COLUMN_INDEX), thrift.number_of(fields, Chunk.COLUMN_INDEX_LENGTH)),
            (thrift.number_of(fields, Chunk.OFFSET_INDEX), thrift.number_of(fields, Chunk.OFFSET_INDEX_LENGTH)),
            (bloom, bloom_bytes),
        ]

    def _end_after(self, offset: int) -> int:
        ends = self.footer.part_offsets
        return ends[bisect_right(ends, offset)]


class _Copy:
    """The new file, while it is written."""

    def __init__(self, source: StoredFile, out: BinaryIO) -> None:
        self._source, self._out = source, out
        self._old = _File(read_footer(source), source.read_ranges)
        leaves = list(itertools.chain.from_iterable(map(leaves_of, self._old.footer.fields)))
        orders = [thrift.read_struct(order)[0] for order in thrift.structs_of(self._old.fields, FileMeta.COLUMN_ORDERS)]
        self._orders = [
            order_of(leaf.element) if _BY_TYPE in order else None
            for leaf, order in zip(leaves, orders or [{_BY_TYPE: {}}] * len(leaves), strict=True)
        ]
        self._metadata = metadata_of(self._physical_footer())
        self._is_old_arrow = self._old.footer.created_by.startswith(b"parquet-cpp ")
        """Whether Arrow reads pages of version 2 as compressed though they may not be, as it wrote them before 2.0."""
        self._categories: dict[int, pa.Array] = {}
        """By leaf, the ordered categories that a row which stays has, in their order, which is a part of the values."""

    def _physical_footer(self) -> bytes:
        schema = physical_schema(self._old.footer.fields)
        fields = {field: value for field, value in self._old.fields.items() if field != FileMeta.KEY_VALUES}
        return thrift.write_struct(fields | {FileMeta.SCHEMA: thrift.structs(schema)})

    def write(self, rows: NDArray[np.int64]) -> int:
        """Write the whole file."""
        self._out.write(_MAGIC)
        groups: list[tuple[_Fields, list[_Chunk]]] = []
        bounds = np.cumsum([0, *self._old.footer.row_group_rows])
        is_kept = np.ones(bounds[-1], np.bool_)
        is_kept[rows] = False
        for stored, field in zip(self._old.footer.fields, self._old.footer.schema, strict=True):
            if _has_ordered_inside(field.type):
                raise ThriftError(f"ordered categories in {field.name}, whose order a copy would lose")
            if pa.types.is_dictionary(field.type) and field.type.ordered:
                self._categories[stored.leaves.start] = self._categories_of(stored.leaves.start, is_kept)
        for group, (first, stop) in enumerate(itertools.pairwise(bounds.tolist())):
            inside = rows[slice(*np.searchsorted(rows, (first, stop)))] - first
            if len(inside) < stop - first:
                groups.append(self._row_group(group, inside, stop - first))
        for name, index, length in (
            ("column_index", Chunk.COLUMN_INDEX, Chunk.COLUMN_INDEX_LENGTH),
            ("offset_index", Chunk.OFFSET_INDEX, Chunk.OFFSET_INDEX_LENGTH),
        ):
            for chunk in itertools.chain.from_iterable(chunks for _group, chunks in groups):
                _put(self._out, chunk.fields, index, length, getattr(chunk, name))
        written = [
            thrift.write_struct(group_fields | {Group.COLUMNS: thrift.structs([chunk.written() for chunk in chunks])})
            for group_fields, chunks in groups
        ]
        num_rows = sum(thrift.number_of(group_fields, Group.NUM_ROWS) for group_fields, _chunks in groups)
        start = self._out.tell()
        row_groups = thrift.structs(written)
        counted = {FileMeta.NUM_ROWS: _long(num_rows), FileMeta.ROW_GROUPS: row_groups}
        footer = thrift.write_struct(self._old.fields | counted)
        self._out.write(footer + len(footer).to_bytes(4, "little") + _MAGIC)
        copy = Footer.parsed(footer, self._out.tell(), start, self._source.path)
        if not copy.schema.equals(self._old.footer.schema) or num_rows != int(bounds[-1]) - len(rows):
            raise ThriftError(f"another schema or {num_rows} rows when it was read back")
        return num_rows

    def _row_group(self, group: int, rows: NDArray[np.int64], num_rows: int) -> tuple[_Fields, list[_Chunk]]:
        """Write a row group without `rows`; its fields, and its chunks where they are now."""
        fields = dict(self._old.groups[group])
        chunks, is_kept = [], np.ones(num_rows, np.bool_)
        is_kept[rows] = False
        old_chunks = self._old.chunks(group)
        self._source.will_need([old.span for old in old_chunks])
        for leaf, old in enumerate(old_chunks):
            if not len(rows):
                chunks.append(self._placed(old, self._old.parts_of(old.span)))
                continue
            chunks.append(self._placed(*self._cut(group, leaf, old, is_kept)))
        for chunk in chunks:
            _put(self._out, chunk.meta, Meta.BLOOM_OFFSET, Meta.BLOOM_LENGTH, chunk.bloom)
        if Group.FILE_OFFSET in fields:
            offsets = map(chunks[0].number, (Meta.DICTIONARY_OFFSET, Meta.DATA_OFFSET))
            fields[Group.FILE_OFFSET] = _long(min(filter(None, offsets)))
        if len(rows):
            fields[Group.NUM_ROWS] = _long(num_rows - len(rows))
            fields[Group.BYTES] = _long(sum(chunk.number(Meta.BYTES) for chunk in chunks))
            if Group.COMPRESSED_BYTES in fields:
                fields[Group.COMPRESSED_BYTES] = _long(sum(chunk.number(Meta.COMPRESSED_BYTES) for chunk in chunks))
        fields.pop(Group.ORDINAL, None)  # row groups before it may be gone; only encrypted files need the number
        return fields, chunks

    def _placed(self, chunk: _Chunk, pages: Iterable[Any]) -> _Chunk:
        """Write the pages of a chunk, and shift its offsets to the new place."""
        start = self._out.tell()
        shift = start - chunk.span[0]
        for part in pages:
            self._out.write(part)
        for field in (Meta.DATA_OFFSET, Meta.DICTIONARY_OFFSET, Meta.INDEX_OFFSET):
            if chunk.number(field) > 0:
                chunk.meta[field] = _long(chunk.number(field) + shift)
        if thrift.number_of(chunk.fields, Chunk.FILE_OFFSET):
            chunk.fields[Chunk.FILE_OFFSET] = _long(start)
        if chunk.offset_index:
            places = [(page, _long(thrift.number_of(page, 1) + shift)) for page in chunk.pages()]
            shifted = thrift.structs([thrift.write_struct(page | {1: place}) for page, place in places])
            chunk.offset_index = thrift.write_struct(thrift.fields_of(chunk.offset_index) | {1: shifted})
        return chunk

    def _cut(self, group: int, leaf: int, old: _Chunk, is_kept: NDArray[np.bool_]) -> tuple[_Chunk, list[bytes]]:
        """A chunk without the rows that are not kept, written as the old one was; and its pages."""
        values = self._file().reader.read_row_group(group, [leaf], use_threads=False)
        if values.num_rows != len(is_kept):
            raise ThriftError(f"{values.num_rows} rows in row group {group}")
        kept = values.filter(pa.array(is_kept))
        (field,) = kept.schema
        field = field.with_type(of_repeated(field.type))
        kept = pa.table([_retyped(kept.column(0), field.type)], schema=pa.schema([field]))
        sink = pa.BufferOutputStream()
        has_bounds = self._orders[leaf] is not None and not any(map(_has_nan, map(_leaf_values, kept.column(0).chunks)))
        written = _listed(kept, self._categories[leaf]) if leaf in self._categories else kept
        with pq.ParquetWriter(sink, written.schema, **self._settings(old, leaf, has_bounds=has_bounds)) as writer:
            writer.write_table(written, row_group_size=kept.num_rows)
        new_file = _parsed(sink.getvalue(), self._source.path)
        self._check(new_file, sink.getvalue(), kept.column(0))
        if len(new_file.groups) != 1:
            raise ThriftError(f"row group {group} of more rows than pyarrow writes in one")
        (new,) = new_file.chunks(0)
        described, as_read = new_file.footer.metadata.schema.column(0), self._metadata.schema.column(leaf)
        for name in ("physical_type", "length", "max_definition_level", "max_repetition_level"):
            if getattr(described, name) != getattr(as_read, name):
                raise ThriftError(f"a column whose {name} pyarrow changes")
        for field in (Meta.TYPE, Meta.PATH, Meta.KEY_VALUES):
            if field in old.meta:
                new.meta[field] = old.meta[field]
        if Meta.SIZES not in old.meta:
            new.meta.pop(Meta.SIZES, None)
        if old.bloom:
            new.bloom = _filter_like(old.bloom, kept.column(0), described.length)
        pages = new_file.read([new.span])
        if Chunk.FILE_OFFSET in old.fields:
            new.fields.setdefault(Chunk.FILE_OFFSET, old.fields[Chunk.FILE_OFFSET])
        return new, pages

    def _check(self, new: _File, written: pa.Buffer, kept: pa.ChunkedArray) -> None:
        """Read the new chunk back under the name of the old writer, by which readers choose how to read pages."""
        named = {FileMeta.CREATED_BY: (thrift.BINARY, self._old.footer.created_by)}
        metadata = metadata_of(thrift.write_struct(new.fields | named))
        column = pq.ParquetFile(pa.BufferReader(written), metadata=metadata).read(use_threads=False).column(0)
        bits = with_leaves(kept.type, as_bits)
        if not _retyped(kept, bits).equals(_retyped(column, bits)):
            raise ThriftError("other values when they were read back")

    def _file(self, **reading: Any) -> pq.ParquetFile:
        return pq.ParquetFile(self._source.arrow_file(), metadata=self._metadata, pre_buffer=False, **reading)

    def _categories_of(self, leaf: int, is_kept: NDArray[np.bool_]) -> pa.Array:
        """The categories of a leaf that a row which is kept has, in the order in which its dictionaries have them."""
        reader = self._file(read_dictionary=[self._metadata.schema.column(leaf).path]).reader
        categories: dict[bytes, None] = {}
        used: set[bytes | None] = set()
        for group, (first, stop) in enumerate(itertools.pairwise(np.cumsum([0, *self._old.footer.row_group_rows]))):
            column = reader.read_row_group(group, [leaf], use_threads=False).column(0)
            categories |= dict.fromkeys(itertools.chain(*(chunk.dictionary.to_pylist() for chunk in column.chunks)))
            used.update(column.filter(pa.array(is_kept[first:stop])).unique().to_pylist())
        return pa.array([category for category in categories if category in used], pa.binary())

    def _settings(self, old: _Chunk, leaf: int, *, has_bounds: bool) -> dict[str, Any]:
        """Options with which pyarrow writes a chunk like the old one."""
        offset = old.number(Meta.DATA_OFFSET)
        (head,) = self._source.read_ranges([(offset, min(_MAX_HEADER_BYTES, sum(old.span) - offset))])
        header, _stop = thrift.read_struct(head)
        page = header.get(Page.DATA) or header.get(Page.DICTIONARY)
        encoding = header[Page.DATA_V2][4] if page is None else page[2]
        is_listed = Page.DICTIONARY in header or old.number(Meta.DICTIONARY_OFFSET) > 0
        has_dictionary = is_listed or encoding in (_PLAIN_DICTIONARY, _RLE_DICTIONARY)
        firsts = [thrift.number_of(page, 3) for page in old.pages()] if _can_limit_pages() else []
        rows_per_page = max((stop - first for first, stop in itertools.pairwise(firsts)), default=None)
        return {
            **({"max_rows_per_page": rows_per_page} if rows_per_page else {}),
            "compression": _CODECS[old.number(Meta.CODEC)],
            "use_dictionary": has_dictionary,
            "column_encoding": None if has_dictionary else _ENCODINGS.get(encoding),
            "data_page_version": "2.0" if Page.DATA_V2 in header and not self._is_old_arrow else "1.0",
            "write_page_checksum": Page.CHECKSUM in header,
            "version": "1.0" if encoding == _PLAIN_DICTIONARY and self._orders[leaf] != OF_UINT_32 else "2.6",
            "write_statistics": Meta.STATISTICS in old.meta and has_bounds,
            "write_page_index": bool(old.offset_index),
            "store_schema": False,
        }


@cache
def _can_limit_pages() -> bool:
    """Whether this pyarrow can limit the rows of a page; 18.1 cannot, and limits their bytes."""
    return "max_rows_per_page" in inspect.signature(pq.ParquetWriter.__init__).parameters


# --- parts ------------------------------------------------------------------------------------------------------------


def _parsed(written: pa.Buffer, path: str) -> _File:
    """The Parquet file in a buffer."""
    length = int.from_bytes(written[-8:-4].to_pybytes(), "little")
    start = written.size - 8 - length
    footer = Footer.parsed(written[start:-8].to_pybytes(), written.size, start, path)
    return _File(footer, lambda spans: [written[offset : offset + size].to_pybytes() for offset, size in spans])


def _filter_like(old: bytes, values: pa.ChunkedArray, width: int) -> bytes:
    """A bloom filter of the size of `old`, with the values of a leaf; none if `old` is no filter.

    Decimals are stored in `width` bytes.
    """
    try:
        own = Sbbf.with_blocks(Sbbf.from_parquet_bytes(old).num_blocks)
    except InvalidArgumentError:
        return b""
    for array in map(_leaf_values, values.chunks):
        plain = pa.binary(width) if pa.types.is_decimal(array.type) else array.type
        own.insert_hashes(stored_hashes(array, plain))
    return own.to_parquet_bytes()


def _retyped(values: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    """The same memory as a type of the same layout; `cast` refuses a required field below a struct that is null."""
    imported = pa.Array._import_from_c_capsule  # noqa: SLF001 - what is public takes an object with both capsules
    chunks = [imported(wanted.__arrow_c_schema__(), chunk.__arrow_c_array__()[1]) for chunk in values.chunks]
    return pa.chunked_array(chunks, wanted)


def _listed(values: pa.Table, dictionary: pa.Array) -> pa.Table:
    """The same column by places in `dictionary`, which pyarrow writes as it is."""
    chunks = values.column(0).chunks
    listed = [pa.DictionaryArray.from_arrays(pc.index_in(chunk, dictionary), dictionary) for chunk in chunks]
    return pa.table([pa.chunked_array(listed)], schema=pa.schema([values.schema[0].with_type(listed[0].type)]))


def _has_ordered_inside(arrow_type: pa.DataType) -> bool:
    """Whether a struct, list or map has ordered categories; their order is a part of the values."""
    inner = [arrow_type.field(place).type for place in range(arrow_type.num_fields)]
    return any((pa.types.is_dictionary(part) and part.ordered) or _has_ordered_inside(part) for part in inner)


def _leaf_values(array: pa.Array) -> pa.Array:
    """The values of the only leaf of an array."""
    while pa.types.is_nested(array.type):
        array = array.field(0) if pa.types.is_struct(array.type) else array.flatten()
    return array


def _has_nan(values: pa.Array) -> bool:
    """Whether bounds would leave out a value: some readers, as DuckDB of its own files, take them for bounds of all."""
    if not pa.types.is_floating(values.type):
        return False
    return bool(np.isnan(values.drop_null().to_numpy(zero_copy_only=False)).any())


def _put(out: BinaryIO, fields: _Fields, offset: int, length: int, data: Any) -> None:
    """Write a part that `fields` name; without data they name none."""
    fields.pop(offset, None)
    fields.pop(length, None)
    if data:
        fields |= {offset: _long(out.tell()), length: (thrift.I32, len(data))}
        out.write(data)


def _long(number: int) -> Field:
    return thrift.I64, number
