"""`PageMap`: where the pages of one column chunk are, and which rows each of them holds.

It comes from the file's OffsetIndex, which no reader has to trust: what does not fit the footer in every byte is as if
it were not there.

Spec: specs/pages.md#page-map
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from zonebloom.datasets import thrift
from zonebloom.datasets.footers import Footer
from zonebloom.datasets.source import Source
from zonebloom.datasets.thrift import ThriftError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["DICTIONARY_ENCODINGS", "PageMap", "page_encoding", "page_maps"]

_META, _INDEX_OFFSET, _INDEX_LENGTH = 3, 4, 5
_FILE_PATH, _CRYPTO, _ENCRYPTED = 1, 8, 9
_TYPE, _ENCODINGS, _PATH, _CODEC, _NUM_VALUES, _COMPRESSED, _DATA_OFFSET, _DICTIONARY_OFFSET = 1, 2, 3, 4, 5, 7, 9, 11
_ENCODING_STATS = 13
_DATA_PAGE, _DATA_PAGE_V2 = 0, 3
DICTIONARY_ENCODINGS = frozenset({2, 8})
"""PLAIN_DICTIONARY and RLE_DICTIONARY: the values are numbers of others on the dictionary page."""
_MAX_INDEX_BYTES = 1 << 24
_LOCATION = bytes([0x16, 0x15, 0x16, 0x00])
"""How each PageLocation is written: its three fields' heads, between which the numbers are, and its end."""
_CONTINUED = 0x80
"""Bytes of a number from here on are followed by one more."""
_MAX_NUMBER_BYTES = 9
_COUNT_BYTES = 64
"""As far into a page's header as its number of values can be."""
_MAX_KEPT = 4096
"""Maps that a footer keeps."""


@dataclass(slots=True)
class PageMap:
    """The data pages of one column chunk.

    - Pages follow each other without gaps, from `offsets[0]` to the end of the chunk.
    - `first_rows` begins with 0 and ascends; no page is empty.
    """

    offsets: NDArray[np.int64]
    """Where each page begins in the file, its header included."""
    sizes: NDArray[np.int64]
    """Bytes of each page, its header included."""
    first_rows: NDArray[np.int64]
    """First row of each page within the row group."""
    num_rows: int
    """Rows of the row group."""
    dictionary: tuple[int, int]
    """Offset and bytes of the dictionary page; no bytes where there is none."""
    num_dictionary_pages: int
    """So many pages may refer to the dictionary: the first ones, as a writer that gives it up does not come back."""
    physical_type: int
    encodings: tuple[int, ...]
    path: tuple[bytes, ...]
    codec: int
    is_proven: bool = False
    """Whether `prove` was asked, and said so."""

    @property
    def last_header(self) -> tuple[int, int]:
        """Offset and bytes of what `prove` needs."""
        return int(self.offsets[-1]), min(int(self.sizes[-1]), _COUNT_BYTES)

    def prove(self, last_header: bytes) -> bool:
        """Whether the last page has as many rows as are left for it: if one before it were miscounted, it has not."""
        self.is_proven = _num_values(last_header) == self.num_rows - int(self.first_rows[-1])
        return self.is_proven


def page_maps(source: Source, footer: Footer, group: int, leaves: Sequence[int]) -> list[PageMap | None]:
    """Where the pages of leaves of a row group are; None where the file does not say, or contradicts itself.

    What is not known yet is read from the file at once.
    """
    unknown = [leaf for leaf in leaves if (group, leaf) not in footer.page_maps]
    missing = {leaf: found for leaf in unknown if (found := _index_of(footer, group, leaf))}
    ranges = [span for _chunk, span in missing.values()]
    blobs = source.read_ranges(ranges) if ranges else []
    if len(footer.page_maps) + len(leaves) > _MAX_KEPT:
        footer.page_maps.clear()
    num_rows = footer.row_group_rows[group]
    for (leaf, (chunk, span)), blob in zip(missing.items(), blobs, strict=True):
        locations = _locations(blob) if len(blob) == span[1] else None
        footer.page_maps[group, leaf] = None if locations is None else _checked_map(chunk[_META], locations, num_rows)
    return [footer.page_maps.get((group, leaf)) for leaf in leaves]


def _index_of(footer: Footer, group: int, leaf: int) -> tuple[dict[int, Any], tuple[int, int]] | None:
    """The column chunk, and offset and bytes of its OffsetIndex; None where the chunk has none that can be used."""
    try:
        chunk = footer.chunk(group, leaf)
    except ThriftError:
        return None
    offset, length = chunk.get(_INDEX_OFFSET), chunk.get(_INDEX_LENGTH)
    if not isinstance(offset, int) or not isinstance(length, int) or not isinstance(chunk.get(_META), dict):
        return None
    if any(field in chunk for field in (_FILE_PATH, _CRYPTO, _ENCRYPTED)):
        return None
    is_inside = offset > 0 and 0 < length <= _MAX_INDEX_BYTES and offset + length <= footer.size
    return (chunk, (offset, length)) if is_inside else None


def _locations(blob: bytes) -> NDArray[np.int64] | None:
    """Offset, size and first row of each page, shape (pages, 3), of an OffsetIndex; None if it is none.

    Each number ends with a byte below 128, as the heads of fields do: so a location is 7 runs of bytes, which NumPy
    finds for all pages together.
    """
    try:
        first = thrift.find_field(blob, 0, 1)
        if first is None:
            return None
        size, kind, first = thrift.read_list_header(blob, first)
    except ThriftError:
        return None
    data = np.frombuffer(blob, np.uint8)[first:]
    ends = np.flatnonzero(data < _CONTINUED)[: 7 * size]
    if kind != thrift.STRUCT or not size or len(ends) != 7 * size:
        return None
    starts = np.concatenate(([0], ends[:-1] + 1))
    firsts, lasts = starts.reshape(-1, 7), ends.reshape(-1, 7)
    heads = lasts[:, ::2]
    if not ((firsts[:, ::2] == heads).all() and (data[heads] == np.frombuffer(_LOCATION, np.uint8)).all()):
        return None
    return _numbers(data, firsts[:, 1::2], lasts[:, 1::2])


def _numbers(data: NDArray[np.uint8], firsts: NDArray[np.int64], lasts: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """The numbers written in `data[firsts .. lasts]`, 7 bits a byte and the sign last; None if one is negative."""
    num_bytes = int((lasts - firsts).max()) + 1
    if num_bytes > _MAX_NUMBER_BYTES:
        return None
    values = np.zeros(firsts.shape, np.int64)
    for index in range(num_bytes):
        places = firsts + index
        bits = data[np.minimum(places, lasts)].astype(np.int64) & 0x7F
        values |= np.where(places <= lasts, bits << (7 * index), 0)
    return None if (values & 1).any() else values >> 1


def _checked_map(meta: dict[int, Any], locations: NDArray[np.int64], num_rows: int) -> PageMap | None:
    """The map, if it tells of every byte of the chunk just once, and of every row."""
    offsets, sizes, first_rows = (np.ascontiguousarray(locations[:, i]) for i in range(3))
    numbers = (_TYPE, _CODEC, _NUM_VALUES, _COMPRESSED, _DATA_OFFSET)
    if not all(isinstance(meta.get(field), int) for field in numbers):
        return None
    path, encodings = meta.get(_PATH), meta.get(_ENCODINGS)
    if not (isinstance(path, list) and isinstance(encodings, list)):
        return None
    start = data_offset = meta[_DATA_OFFSET]
    if isinstance(meta.get(_DICTIONARY_OFFSET), int) and 0 < meta[_DICTIONARY_OFFSET] < data_offset:
        start = meta[_DICTIONARY_OFFSET]
    first, stop = int(offsets[0]), start + meta[_COMPRESSED]
    is_whole = (
        data_offset in (first, start)
        and 0 < start <= first
        and (sizes > 0).all()
        and (offsets[:-1] + sizes[:-1] == offsets[1:]).all()
        and offsets[-1] + sizes[-1] == stop
    )
    is_ascending = first_rows[0] == 0 and (first_rows[:-1] < first_rows[1:]).all() and first_rows[-1] < num_rows
    if not (is_whole and is_ascending and meta[_NUM_VALUES] == num_rows):
        return None
    dictionary = start, first - start
    num_pages = _dictionary_pages(meta, len(offsets)) if dictionary[1] else 0
    described = meta[_TYPE], tuple(encodings), tuple(path), meta[_CODEC]
    return PageMap(offsets, sizes, first_rows, num_rows, dictionary, num_pages, *described)


def _dictionary_pages(meta: dict[int, Any], num_pages: int) -> int:
    """How many data pages refer to the dictionary; all, if they are not counted, or not all of them."""
    counted = meta.get(_ENCODING_STATS)
    if not isinstance(counted, list) or not all(isinstance(one, dict) for one in counted):
        return num_pages
    data_pages = [one for one in counted if one.get(1) in (_DATA_PAGE, _DATA_PAGE_V2)]
    if sum(one.get(3, 0) for one in data_pages) != num_pages:
        return num_pages
    return sum(int(one[3]) for one in data_pages if one.get(2) in DICTIONARY_ENCODINGS)


def _num_values(header: bytes) -> int | None:
    """The number of values that the beginning of a data page's header has; None where there is none."""
    try:
        for field in (5, 8):
            page = thrift.find_field(header, 0, field)
            count = None if page is None else thrift.find_field(header, page, 1)
            if count is not None:
                return thrift.read_int(header, count)
    except ThriftError:
        return None
    return None


def page_encoding(data: bytes, position: int, num_bytes: int, num_rows: int) -> int | None:
    """The encoding of the data page at `position`; None if it is no data page of so many bytes and rows.

    Spec: specs/pages.md#page-header
    """
    try:
        header, stop = thrift.read_struct(data, position)
    except ThriftError:
        return None
    page = header.get(5) if header.get(1) == _DATA_PAGE else header.get(8) if header.get(1) == _DATA_PAGE_V2 else None
    if not isinstance(page, dict) or page.get(1) != num_rows or header.get(3) != num_bytes - (stop - position):
        return None
    encoding = page.get(2 if header[1] == _DATA_PAGE else 4)
    return encoding if isinstance(encoding, int) else None
