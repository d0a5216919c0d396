"""Reading some rows of a row group by the pages that hold them.

The pages of a column, with its dictionary, get a footer of their own, and pyarrow decodes by that: so every type, codec
and encoding is as pyarrow reads it. Of a file on a disk they stay where they are, if they follow each other; else they
are fetched into memory. Where a file has no page index, or anything is not as it promises, there is no cut, and the
caller reads the row group.

Spec: specs/pages.md#cut
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from zonebloom.arrays import parquet as pq
from zonebloom.datasets.footers import Footer
from zonebloom.datasets.page_map import DICTIONARY_ENCODINGS, PageMap, page_encoding, page_encoding_at, page_maps
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

    @property
    def is_in_place(self) -> bool:
        """Whether all bytes that are needed follow each other in the file: one run, and the dictionary before it."""
        return len(self.runs) == 1 and (not self.has_dictionary or self.runs[0][0] == 0)

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


@dataclass(frozen=True, slots=True)
class _Found:
    """A plan whose pages are as promised."""

    plan: _Plan
    chunks: list[bytes]
    """Parquet's ColumnChunk of each leaf, with the places of its pages in the file that pyarrow is to read."""


def read_cuts(source: Source, footer: Footer, group: int, ranges: Ranges, names: Sequence[str]) -> dict[str, Cut]:
    """The pages that hold rows of `ranges`, for those top-level columns among `names` of which they can be read alone.

    A column is left out where it has no page index, where that or a page is not as it should be, or where its whole
    chunk costs less. `source` is asked at most twice, for all columns together: for the page indexes that are not known
    yet, and for the pages. Pages of a near file that follow each other are decoded from where they are.

    Spec: specs/pages.md#cut
    """
    plans = _plans(source, footer, group, ranges, names)
    near = [plan for plan in plans if source.is_near and all(leaf.is_in_place for leaf in plan.leaves)]
    cuts = {}
    if near:
        found = [one for plan in near if (one := _in_place(source, plan)) is not None]
        cuts = _decoded(footer, found, source.arrow_file())
    if len(near) < len(plans):
        found, fetched = _fetched(source, [plan for plan in plans if plan not in near])
        cuts |= _decoded(footer, found, pa.BufferReader(fetched))
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


# --- reading ----------------------------------------------------------------------------------------------------------


def _in_place(source: Source, plan: _Plan) -> _Found | None:
    """The pages of a plan where they are, of which the headers alone are read; None if one is not as promised."""
    chunks = []
    for leaf in plan.leaves:
        pages, (first, stop) = leaf.pages, leaf.runs[0]
        if not pages.is_proven and not pages.prove(source.read_ranges([pages.last_header])[0]):
            return None
        offsets, rows = pages.offsets[first : stop + 1].tolist(), pages.rows[first : stop + 1].tolist()
        encodings = [
            page_encoding_at(source, offset, end, last - row)
            for offset, end, row, last in zip(offsets, offsets[1:], rows, rows[1:], strict=False)
        ]
        dictionary = pages.dictionary[1] if leaf.has_dictionary else 0
        if None in encodings or (not dictionary and not DICTIONARY_ENCODINGS.isdisjoint(encodings)):
            return None
        chunks.append(
            _column_chunk(pages, plan.num_rows, offsets[0] - dictionary, dictionary, offsets[-1] - offsets[0])
        )
    return _Found(plan, chunks)


def _fetched(source: Source, plans: Sequence[_Plan]) -> tuple[list[_Found], bytes]:
    """The pages of those plans that are as promised, in one piece of memory."""
    blobs = iter(source.read_ranges([span for plan in plans for leaf in plan.leaves for span in leaf.spans]))
    parts, position, found = [_MAGIC], len(_MAGIC), []
    for plan in plans:
        read = [list(itertools.islice(blobs, len(leaf.spans))) for leaf in plan.leaves]
        checked = [_checked(leaf, own) for leaf, own in zip(plan.leaves, read, strict=True)]
        chunks = []
        for leaf, one in zip(plan.leaves, checked, strict=True):
            if one is None:
                break
            dictionary_bytes, data_bytes = len(one[0]), sum(map(len, one[1]))
            chunks.append(_column_chunk(leaf.pages, plan.num_rows, position, dictionary_bytes, data_bytes))
            parts += [one[0], *one[1]]
            position += dictionary_bytes + data_bytes
        else:
            found.append(_Found(plan, chunks))
    return found, b"".join(parts)


def _checked(leaf: _Leaf, blobs: list[bytes]) -> tuple[bytes, list[bytes]] | None:
    """The dictionary page, if one is needed, and the runs of data pages; None if one of them is not as promised."""
    if any(len(blob) != size for blob, (_offset, size) in zip(blobs, leaf.spans, strict=True)):
        return None
    if not leaf.pages.is_proven and not leaf.pages.prove(blobs[-1]):
        return None
    first = int(leaf.has_dictionary)
    runs = blobs[first : first + len(leaf.runs)]
    uses_dictionary = False
    for data, (start, stop) in zip(runs, leaf.runs, strict=True):
        sizes, position = np.diff(leaf.pages.offsets[start : stop + 1]).tolist(), 0
        for size, num_rows in zip(sizes, np.diff(leaf.pages.rows[start : stop + 1]).tolist(), strict=True):
            encoding = page_encoding(data, position, size, num_rows)
            if encoding is None:
                return None
            uses_dictionary = uses_dictionary or encoding in DICTIONARY_ENCODINGS
            position += size
    if uses_dictionary:
        return (blobs[0], runs) if first else None
    return b"", runs


# --- decoding ---------------------------------------------------------------------------------------------------------


def _decoded(footer: Footer, found: Sequence[_Found], file: Any) -> dict[str, Cut]:
    """The rows of plans whose pages are in `file`; without those that pyarrow does not decode as it is to."""
    cuts = {}
    by_rows: dict[int, list[_Found]] = {}
    for one in found:
        by_rows.setdefault(one.plan.num_wanted, []).append(one)
    for num_wanted, together in by_rows.items():
        numbers = tuple(one.plan.number for one in together)
        written = _footer(footer, numbers, [chunk for one in together for chunk in one.chunks], num_wanted)
        fields = [footer.schema.field(number) for number in numbers]
        try:
            metadata = pq.read_metadata(pa.BufferReader(_MAGIC + written + _END.pack(len(written), _MAGIC)))
            reader = pq.ParquetFile(file, metadata=metadata, pre_buffer=False)
            table = reader.read_row_group(0, use_threads=False)
        except (pa.ArrowException, OSError):
            continue
        is_as_promised = table.num_rows == num_wanted and table.schema.names == [field.name for field in fields]
        if is_as_promised and table.schema.types == [field.type for field in fields]:
            for one, values in zip(together, table.columns, strict=True):
                cuts[footer.schema.field(one.plan.number).name] = Cut(values, one.plan.first_rows, one.plan.positions)
    return cuts


def _column_chunk(pages: PageMap, num_rows: int, position: int, dictionary_bytes: int, data_bytes: int) -> bytes:
    """Parquet's ColumnChunk for pages that lie at `position`."""
    size = dictionary_bytes + data_bytes
    meta: dict[int, Field] = {5: (I64, num_rows), 6: (I64, size), 7: (I64, size), 9: (I64, position + dictionary_bytes)}
    if dictionary_bytes:
        meta[11] = I64, position
    written = pages.chunk.head + write_fields(meta, after=4) + STOP
    return write_struct({2: (I64, position), 3: (STRUCT, written)})


def _footer(footer: Footer, numbers: tuple[int, ...], chunks: list[bytes], num_rows: int) -> bytes:
    """Parquet's FileMetaData of a file of some columns and one row group."""
    group = write_struct({1: (LIST, write_list(STRUCT, chunks)), 2: (I64, 0), 3: (I64, num_rows)})
    body = write_fields({3: (I64, num_rows), 4: (LIST, write_list(STRUCT, [group]))}, after=2)
    described = footer.described(numbers)
    return described.head + body + described.tail
