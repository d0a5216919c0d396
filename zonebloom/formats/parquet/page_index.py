"""`PageMap`: the positions of the pages of one column chunk, and the rows of each page.

The map is made from the file's OffsetIndex. An OffsetIndex that contradicts the footer in any byte is ignored. For a
local file without one, the map is made from the headers of the pages, read one after the other.

Design: docs/design/pages.md#page-map
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from zonebloom.formats.parquet import thrift
from zonebloom.formats.parquet.fields import Chunk, Meta, Page
from zonebloom.formats.parquet.footer import Footer
from zonebloom.formats.parquet.row_groups import column_metadata, is_encrypted
from zonebloom.formats.parquet.thrift import Bytes, ThriftError
from zonebloom.stores.stored_file import StoredFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGES = 0, 2, (0, 3)
"""Values of `Page.TYPE`; data pages are of version 1 or 2."""
DICTIONARY_ENCODINGS = frozenset({2, 8})
"""PLAIN_DICTIONARY and RLE_DICTIONARY: a page has numbers of values on the dictionary page."""
_MAX_INDEX_BYTES = 1 << 24
_COUNT_BYTES = 64
"""Bytes from the beginning of a page's header in which its number of values is."""
_HEADER_BYTES, _MAX_HEADER_BYTES = 1 << 8, 1 << 20
"""Bytes that are read for a header at first, and at most."""
_ROWS_PER_HEADER, _BYTES_PER_HEADER = 2000, 1 << 15
"""Rows that pyarrow decodes, and bytes that a disk reads, in the time of reading one header: about 10 µs."""
_MAX_KEPT = 4096
"""Most maps that are kept for a footer."""


@dataclass(frozen=True, slots=True)
class ChunkMeta:
    """One column chunk as the footer describes it; the chunk is in this file, and is not encrypted."""

    head: bytes
    """Fields 1 to 4 of its ColumnMetaData: physical type, encodings, path and codec."""
    start: int
    """Position of its first page, which may be a dictionary."""
    data_offset: int
    """Position of its first data page."""
    stop: int
    """Position after its last page."""
    num_rows: int
    """Rows of the row group, which equal the values of the chunk, nulls included."""
    encoding_stats: tuple[dict[int, Any], ...]
    index: tuple[int, int] | None
    """Offset and bytes of its OffsetIndex."""


@dataclass(slots=True)
class PageMap:
    """The data pages of one column chunk.

    - Both arrays ascend strictly, and have one element more than there are pages: pages follow each other without gaps,
      and no page is empty.
    - `rows[0]` is 0.
    """

    offsets: NDArray[np.int64]
    """Position of each page's header in the file; last the end of the chunk."""
    rows: NDArray[np.int64]
    """First row of each page within the row group; last the number of rows of the row group."""
    dictionary: tuple[int, int]
    """Offset and bytes of the dictionary page; 0 bytes if there is none."""
    num_dictionary_pages: int
    """The number of first pages that may refer to the dictionary; after it is full, a writer does not use it again."""
    chunk: ChunkMeta
    is_proven: bool = False
    """Whether `prove` has returned True."""

    @property
    def last_header(self) -> tuple[int, int]:
        """Offset and number of the bytes that `prove` takes."""
        offset, stop = self.offsets[-2:].tolist()
        return offset, min(stop - offset, _COUNT_BYTES)

    def prove(self, last_header: bytes) -> bool:
        """Whether the last page has exactly the remaining rows; it does not if an earlier page is miscounted."""
        if _num_values(last_header) == int(self.rows[-1] - self.rows[-2]):
            self.is_proven = True
        return self.is_proven


def page_maps(
    source: StoredFile, footer: Footer, group: int, leaves: Sequence[int], saved_rows: int
) -> list[PageMap | None]:
    """The page maps of leaves of a row group; None for a leaf without a page index, or with a contradictory one.

    Unknown page indexes are read together. For a chunk without one in a local file the headers of its pages are read.
    Their number is limited: reading them costs less than decoding `saved_rows`, and less than reading the chunk.
    """
    cached: dict[tuple[int, int], PageMap | None] = footer.kept["page maps"]
    if len(cached) + len(leaves) > _MAX_KEPT:
        cached.clear()
    unknown = [leaf for leaf in leaves if (group, leaf) not in cached]
    chunks = {leaf: _chunk_meta(footer, group, leaf) for leaf in unknown}
    spans = {leaf: chunk.index for leaf, chunk in chunks.items() if chunk is not None and chunk.index is not None}
    blobs = dict(zip(spans, footer.read_ranges(source, list(spans.values())) if spans else [], strict=True))
    maps = {leaf: cached.get((group, leaf)) for leaf in leaves}
    for leaf, chunk in chunks.items():
        if chunk is not None and chunk.index is not None:
            locations = _locations(blobs[leaf]) if len(blobs[leaf]) == chunk.index[1] else None
            maps[leaf] = None if locations is None else _checked_map(chunk, locations)
        elif chunk is not None and not source.is_remote:
            max_pages = max(saved_rows // _ROWS_PER_HEADER, (chunk.stop - chunk.start) // _BYTES_PER_HEADER)
            maps[leaf] = _walked_map(source, chunk, max_pages)
        cached[group, leaf] = maps[leaf]
    return [maps[leaf] for leaf in leaves]


def _chunk_meta(footer: Footer, group: int, leaf: int) -> ChunkMeta | None:
    """The footer's description of a chunk; None if it is not as pyarrow writes and reads it."""
    try:
        chunk = footer.chunk(group, leaf)
        meta = column_metadata(chunk)
    except ThriftError:
        return None
    if is_encrypted(chunk) or Chunk.FILE_PATH in chunk:
        return None
    physical_type, codec = meta.get(Meta.TYPE), meta.get(Meta.CODEC)
    path, counted = meta.get(Meta.PATH), meta.get(Meta.ENCODING_STATS, [])
    if not (isinstance(physical_type, int) and isinstance(codec, int)):
        return None
    if not (isinstance(path, list) and isinstance(counted, list)):
        return None
    num_values, num_bytes, data_offset = meta[Meta.NUM_VALUES], meta[Meta.COMPRESSED_BYTES], meta[Meta.DATA_OFFSET]
    start = meta[Meta.DICTIONARY_OFFSET] if 0 < meta.get(Meta.DICTIONARY_OFFSET, 0) < data_offset else data_offset
    num_rows = footer.row_group_rows[group]
    if num_values != num_rows or start <= 0 or num_bytes <= 0 or start + num_bytes > footer.size:
        return None
    stats = tuple(page_stats for page_stats in counted if isinstance(page_stats, dict))
    encodings, names = thrift.write_list(thrift.I32, meta[Meta.ENCODINGS]), thrift.write_list(thrift.BINARY, path)
    head: dict[int, thrift.Field] = {Meta.TYPE: (thrift.I32, physical_type), Meta.ENCODINGS: (thrift.LIST, encodings)}
    head |= {Meta.PATH: (thrift.LIST, names), Meta.CODEC: (thrift.I32, codec)}
    index = _index_span(footer, chunk)
    return ChunkMeta(thrift.write_fields(head), start, data_offset, start + num_bytes, num_rows, stats, index)


def _index_span(footer: Footer, chunk: dict[int, Any]) -> tuple[int, int] | None:
    offset, length = chunk.get(Chunk.OFFSET_INDEX), chunk.get(Chunk.OFFSET_INDEX_LENGTH)
    if not isinstance(offset, int) or not isinstance(length, int):
        return None
    is_inside = offset > 0 and 0 < length <= _MAX_INDEX_BYTES and offset + length <= footer.size
    return (offset, length) if is_inside else (0, 0)  # an index out of bounds counts as unreadable, not as absent


def _locations(blob: bytes) -> NDArray[np.int64] | None:
    """Offset, size and first row of each page, shape (pages, 3), of an OffsetIndex; None if it is none."""
    try:
        pages = thrift.read_struct(blob)[0][1]
        locations = np.array([(page[1], page[2], page[3]) for page in pages])
    except (ThriftError, LookupError, TypeError, ValueError):
        return None
    return locations if locations.dtype == np.int64 and (locations >= 0).all() else None


def _checked_map(chunk: ChunkMeta, locations: NDArray[np.int64]) -> PageMap | None:
    """The map, if its pages cover every byte of the chunk exactly once, and every row."""
    sizes = locations[:, 1]
    offsets, rows = np.append(locations[:, 0], chunk.stop), np.append(locations[:, 2], chunk.num_rows)
    first = int(offsets[0])
    is_whole = chunk.data_offset in (first, chunk.start) and chunk.start <= first
    if not (is_whole and (sizes > 0).all() and (np.diff(offsets) == sizes).all()):
        return None
    if rows[0] != 0 or (np.diff(rows) <= 0).any():
        return None
    num_pages = _dictionary_pages(chunk, len(sizes)) if chunk.start < first else 0
    return PageMap(offsets, rows, (chunk.start, first - chunk.start), num_pages, chunk)


def _dictionary_pages(chunk: ChunkMeta, num_pages: int) -> int:
    """The number of data pages that refer to the dictionary; all of them if the encoding statistics are incomplete."""
    data_pages = [stats for stats in chunk.encoding_stats if stats.get(1) in _DATA_PAGES]
    if sum(stats.get(3, 0) for stats in data_pages) != num_pages:
        return num_pages
    return sum(int(stats[3]) for stats in data_pages if stats.get(2) in DICTIONARY_ENCODINGS)


# --- headers of pages -------------------------------------------------------------------------------------------------


def _walked_map(source: StoredFile, chunk: ChunkMeta, max_pages: int) -> PageMap | None:
    """The map from the headers of all pages, read one after the other; None if there are too many or one is wrong.

    Design: docs/design/pages.md#walk
    """
    offsets: list[int] = []
    rows, dictionary, num_dictionary_pages, position = [0], (chunk.start, 0), 0, chunk.start
    while position < chunk.stop:
        page_header = _header_at(source, position, chunk.stop)
        if page_header is None or len(offsets) >= max_pages:
            return None
        header, stop = page_header
        if header.get(Page.TYPE) == _DICTIONARY_PAGE and not offsets:
            dictionary = (chunk.start, stop - chunk.start)
        else:
            page = _data_page(header)
            if page is None or page[0] <= 0:
                return None
            offsets.append(position)
            rows.append(rows[-1] + page[0])
            if page[1] in DICTIONARY_ENCODINGS:
                num_dictionary_pages = len(offsets)
        position = stop
    if position != chunk.stop or rows[-1] != chunk.num_rows or not offsets:
        return None
    places = np.array([*offsets, chunk.stop], np.int64), np.array(rows, np.int64)
    return PageMap(*places, dictionary, num_dictionary_pages, chunk, is_proven=True)


def _header_at(source: StoredFile, position: int, stop: int) -> tuple[dict[int, Any], int] | None:
    """The header of the page at `position`, and the position after the page; None if there is none before `stop`."""
    length = _HEADER_BYTES
    while length <= _MAX_HEADER_BYTES:
        (data,) = source.read_ranges([(position, min(length, stop - position))])
        try:
            header, header_bytes = thrift.read_struct(data)
        except ThriftError:  # it may be longer, with statistics
            length *= 16
            continue
        num_bytes = header.get(Page.COMPRESSED_BYTES)
        if not isinstance(num_bytes, int) or num_bytes < 0:
            return None
        return header, position + header_bytes + num_bytes
    return None


def _data_page(header: dict[int, Any]) -> tuple[int, int] | None:
    """Number of values and encoding of a data page; None if the header is of another page."""
    kind = header.get(Page.TYPE)
    page = header.get(Page.DATA if kind == _DATA_PAGE else Page.DATA_V2) if kind in _DATA_PAGES else None
    if not isinstance(page, dict):
        return None
    num_values, encoding = page.get(1), page.get(2 if kind == _DATA_PAGE else 4)
    return (num_values, encoding) if isinstance(num_values, int) and isinstance(encoding, int) else None


def _num_values(header: bytes) -> int | None:
    """The number of values in the first bytes of a data page's header; None if there is none."""
    try:
        for field in (Page.DATA, Page.DATA_V2):
            page = thrift.find_field(header, 0, field)
            count = None if page is None else thrift.find_field(header, page, 1)
            if count is not None:
                return thrift.read_int(header, count)
    except ThriftError:
        return None
    return None


def page_encoding(data: Bytes, position: int, num_bytes: int, num_rows: int) -> int | None:
    """The encoding of the data page at `position`; None if it is no data page of `num_bytes` and `num_rows`.

    Design: docs/design/pages.md#page-header
    """
    try:
        header, stop = thrift.read_struct(data, position)
    except ThriftError:
        return None
    page = _data_page(header)
    if page is None or page[0] != num_rows or header.get(Page.COMPRESSED_BYTES) != num_bytes - (stop - position):
        return None
    return page[1]
