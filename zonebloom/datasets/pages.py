"""Reading some rows of a row group by the pages that hold them.

The pages of a column are fetched with its dictionary, put into a Parquet file of that one column in memory, and pyarrow
decodes that: so every type, codec and encoding is as pyarrow reads it. Where a file has no page index, or anything is
not as it promises, there is no cut, and the caller reads the row group.

Spec: specs/pages.md#cut
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from zonebloom.arrays import parquet as pq
from zonebloom.datasets.footers import Footer
from zonebloom.datasets.page_map import DICTIONARY_ENCODINGS, PageMap, page_encoding, page_maps
from zonebloom.datasets.source import Source
from zonebloom.datasets.thrift import I64, LIST, STOP, STRUCT, Field, write_fields, write_list, write_struct

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Cut", "Ranges", "read_cuts"]

Ranges: TypeAlias = "tuple[NDArray[np.int64], NDArray[np.int64]]"
"""Starts and stops of row ranges within a row group: sorted, disjoint, none empty."""

_MAGIC = b"PAR1"
_END = struct.Struct("<I4s")
_ROWS_PER_PAGE, _BYTES_PER_PAGE = 2000, 1 << 15
"""What pyarrow decodes, and what a disk gives, in the time that a page takes here: about 10 µs."""
_PAGES_PER_COLUMN = 4
"""What a cut of a column costs, in pages, beside those that it reads."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Rows of a column, decoded: those of whole pages, in runs."""

    values: pa.ChunkedArray
    first_rows: NDArray[np.int64]
    """First row of each run within the row group."""
    positions: NDArray[np.int64]
    """Where each run begins in `values`."""

    def positions_of(self, starts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where row ranges, each of which lies in one run, begin in `values`."""
        run = np.searchsorted(self.first_rows, starts, side="right") - 1
        found: NDArray[np.int64] = starts - self.first_rows[run] + self.positions[run]
        return found


@dataclass(frozen=True, slots=True)
class _Leaf:
    """The pages of one leaf that are to be read."""

    pages: PageMap
    runs: tuple[tuple[int, int], ...]
    """First page of each run, and the page after its last."""
    spans: tuple[tuple[int, int], ...]
    """Offset and bytes of the dictionary, if it is needed, of each run, and, once, of the last page's header."""

    @property
    def has_dictionary(self) -> bool:
        """Whether the first span is the dictionary."""
        return self.runs[0][0] < self.pages.num_dictionary_pages

    @classmethod
    def of(cls, pages: PageMap, runs: tuple[tuple[int, int], ...]) -> _Leaf:
        """The leaf with what its runs need."""
        dictionary = [pages.dictionary] if runs[0][0] < pages.num_dictionary_pages else []
        offsets = [(int(pages.offsets[first]), int(pages.offsets[stop])) for first, stop in runs]
        last = [] if pages.is_proven else [pages.last_header]
        return cls(pages, runs, (*dictionary, *((first, stop - first) for first, stop in offsets), *last))


@dataclass(frozen=True, slots=True)
class _Plan:
    """The pages of one column that are to be read."""

    number: int
    """Of the column, among those of the top level."""
    leaves: tuple[_Leaf, ...]
    num_rows: int
    """Of the runs, the same for all leaves."""
    num_wanted: int
    """So many of them are decoded: up to the last one that is wanted."""
    first_rows: NDArray[np.int64]
    positions: NDArray[np.int64]


def read_cuts(source: Source, footer: Footer, group: int, ranges: Ranges, names: Sequence[str]) -> dict[str, Cut]:
    """The pages that hold rows of `ranges`, for those top-level columns among `names` of which they can be read alone.

    A column is left out where it has no page index, where that or a page is not as it should be, or where its whole
    chunk costs less. `source` is asked at most twice, for all columns together: for the page indexes that are not known
    yet, and for the pages.

    Spec: specs/pages.md#cut
    """
    plans = _plans(source, footer, group, ranges, names)
    spans = [span for plan in plans for leaf in plan.leaves for span in leaf.spans]
    blobs = iter(source.read_ranges(spans) if spans else [])
    cuts = {}
    for plan in plans:
        fetched = [list(itertools.islice(blobs, len(leaf.spans))) for leaf in plan.leaves]
        cut = _decoded(footer, plan, fetched)
        if cut is not None:
            cuts[footer.schema.field(plan.number).name] = cut
    return cuts


# --- choosing ---------------------------------------------------------------------------------------------------------


def _plans(source: Source, footer: Footer, group: int, ranges: Ranges, names: Sequence[str]) -> list[_Plan]:
    saved_rows = footer.row_group_rows[group] - int((ranges[1] - ranges[0]).sum())
    fields = footer.stored_fields if _may_pay(footer, group, saved_rows) else ()
    numbers = [footer.schema.get_field_index(name) for name in names] if fields else []
    wanted = {number: fields[number] for number in numbers if number >= 0 and not fields[number].is_repeated}
    leaves = [leaf for field in wanted.values() for leaf in field.leaves]
    maps = dict(zip(leaves, page_maps(source, footer, group, leaves, saved_rows), strict=True)) if leaves else {}
    plans = []
    for number, field in wanted.items():
        known = [pages for leaf in field.leaves if (pages := maps[leaf]) is not None]
        if known and len(known) == len(field.leaves):
            plan = _plan(number, known, ranges)
            if _pays(plan):
                plans.append(plan)
    return plans


def _may_pay(footer: Footer, group: int, saved_rows: int) -> bool:
    """Whether it may pay to look for pages at all."""
    if saved_rows > _PAGES_PER_COLUMN * _ROWS_PER_PAGE:
        return True
    return saved_rows > 0 and footer.row_group_bytes[group] > _PAGES_PER_COLUMN * _BYTES_PER_PAGE


def _plan(number: int, maps: list[PageMap], ranges: Ranges) -> _Plan:
    """The pages that hold the rows: of several leaves, those between two rows at which a page of each leaf begins."""
    bounds = reduce(np.intersect1d, (pages.rows for pages in maps))
    lows = np.searchsorted(bounds, ranges[0], side="right") - 1
    highs = np.searchsorted(bounds, ranges[1], side="left")
    is_first = np.ones(len(lows) + 1, np.bool_)
    is_first[1:-1] = lows[1:] > highs[:-1]
    first_rows, stop_rows = bounds[lows[is_first[:-1]]], bounds[highs[is_first[1:]]]
    lengths = stop_rows - first_rows
    leaves = []
    for pages in maps:
        firsts, stops = np.searchsorted(pages.rows, first_rows), np.searchsorted(pages.rows, stop_rows)
        leaves.append(_Leaf.of(pages, tuple(zip(firsts.tolist(), stops.tolist(), strict=True))))
    num_rows = int(lengths.sum())
    num_wanted = num_rows - int(stop_rows[-1] - ranges[1][-1])
    return _Plan(number, tuple(leaves), num_rows, num_wanted, first_rows, lengths.cumsum() - lengths)


def _pays(plan: _Plan) -> bool:
    """Whether pages cost less than the whole column chunks, of which pyarrow needs no Python to read them."""
    num_pages, saved_bytes = _PAGES_PER_COLUMN, 0
    for leaf in plan.leaves:
        num_pages += sum(stop - first for first, stop in leaf.runs)
        saved_bytes += int(leaf.pages.offsets[-1] - leaf.pages.offsets[0]) - sum(size for _offset, size in leaf.spans)
    saved_rows = int(plan.leaves[0].pages.rows[-1]) - plan.num_rows
    return saved_rows > num_pages * _ROWS_PER_PAGE or saved_bytes > num_pages * _BYTES_PER_PAGE


# --- decoding ---------------------------------------------------------------------------------------------------------


def _decoded(footer: Footer, plan: _Plan, fetched: list[list[bytes]]) -> Cut | None:
    """The rows of a plan, for each leaf of which its spans were read; None if anything is not as promised."""
    parts, chunks, position = [_MAGIC], [], len(_MAGIC)
    for leaf, blobs in zip(plan.leaves, fetched, strict=True):
        found = _checked(leaf, blobs)
        if found is None:
            return None
        dictionary, data = found
        chunks.append(_column_chunk(leaf.pages, plan.num_rows, position, len(dictionary), len(data)))
        parts += [dictionary, data]
        position += len(dictionary) + len(data)
    footer_bytes = _footer(footer, plan, chunks, position)
    parts += [footer_bytes, _END.pack(len(footer_bytes), _MAGIC)]
    field = footer.schema.field(plan.number)
    try:
        table = pq.ParquetFile(pa.BufferReader(b"".join(parts)), pre_buffer=False).read_row_group(0, use_threads=False)
    except (pa.ArrowException, OSError):
        return None
    if table.num_rows != plan.num_wanted or table.schema.names != [field.name] or table.column(0).type != field.type:
        return None
    return Cut(table.column(0), plan.first_rows, plan.positions)


def _checked(leaf: _Leaf, blobs: list[bytes]) -> tuple[bytes, bytes] | None:
    """The dictionary page, if one is needed, and the data pages; None if one of them is not as promised."""
    if any(len(blob) != size for blob, (_offset, size) in zip(blobs, leaf.spans, strict=True)):
        return None
    if not leaf.pages.is_proven and not leaf.pages.prove(blobs[-1]):
        return None
    first = int(leaf.has_dictionary)
    dictionary, data = b"".join(blobs[:first]), b"".join(blobs[first : first + len(leaf.runs)])
    uses_dictionary, position = False, 0
    for start, stop in leaf.runs:
        sizes = np.diff(leaf.pages.offsets[start : stop + 1]).tolist()
        for size, num_rows in zip(sizes, np.diff(leaf.pages.rows[start : stop + 1]).tolist(), strict=True):
            encoding = page_encoding(data, position, size, num_rows)
            if encoding is None:
                return None
            uses_dictionary = uses_dictionary or encoding in DICTIONARY_ENCODINGS
            position += size
    if uses_dictionary:
        return (dictionary, data) if dictionary else None
    return b"", data


def _column_chunk(pages: PageMap, num_rows: int, position: int, dictionary_bytes: int, data_bytes: int) -> bytes:
    """Parquet's ColumnChunk for pages that lie at `position`."""
    size = dictionary_bytes + data_bytes
    meta: dict[int, Field] = {5: (I64, num_rows), 6: (I64, size), 7: (I64, size), 9: (I64, position + dictionary_bytes)}
    if dictionary_bytes:
        meta[11] = I64, position
    written = pages.chunk.head + write_fields(meta, after=4) + STOP
    return write_struct({2: (I64, position), 3: (STRUCT, written)})


def _footer(footer: Footer, plan: _Plan, chunks: list[bytes], num_bytes: int) -> bytes:
    """Parquet's FileMetaData of a file of one column and one row group."""
    group = write_struct({1: (LIST, write_list(STRUCT, chunks)), 2: (I64, num_bytes), 3: (I64, plan.num_wanted)})
    body = write_fields({3: (I64, plan.num_wanted), 4: (LIST, write_list(STRUCT, [group]))}, after=2)
    described = footer.described(plan.number)
    return described.head + body + described.tail
