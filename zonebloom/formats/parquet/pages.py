"""Reading some rows of a row group by the pages that hold them.

The pages of columns are fetched with their dictionaries into one buffer, and pyarrow decodes them by a footer that is
made for them. So every type, codec and encoding is as pyarrow reads it. If a file has no page index, or a page differs
from it, there is no cut, and the caller reads the row group.

Design: docs/design/pages.md#cut
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from zonebloom.formats.parquet import thrift
from zonebloom.formats.parquet.fields import Chunk, FileMeta, Group, Meta
from zonebloom.formats.parquet.footer import Footer, metadata_of
from zonebloom.formats.parquet.page_index import DICTIONARY_ENCODINGS, PageMap, page_encoding, page_maps
from zonebloom.formats.parquet.schema import root_element
from zonebloom.ground.arrow import parquet as pq
from zonebloom.stores.local_file import LocalFile
from zonebloom.stores.stored_file import ByteRange, StoredFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

Ranges: TypeAlias = "tuple[NDArray[np.int64], NDArray[np.int64]]"
"""Starts and stops of row ranges within a row group: sorted, disjoint, none empty."""

_MAGIC = b"PAR1"
_ARROW_SCHEMA = b"ARROW:schema"
_ROWS_PER_PAGE, _BYTES_PER_PAGE = 2000, 1 << 15
"""Rows that pyarrow decodes, and bytes that a disk reads, in the time that a page takes here: about 10 µs."""
_PAGES_PER_COLUMN = 4
"""The fixed cost of a cut of a column, in pages."""
_MAX_DESCRIBED = 256
"""Most sets of columns that are kept for a footer."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Decoded rows of a column: runs of whole pages."""

    values: pa.ChunkedArray
    first_rows: NDArray[np.int64]
    """First row of each run within the row group."""
    positions: NDArray[np.int64]
    """Position of each run in `values`."""

    def positions_of(self, starts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Positions in `values` of the rows `starts`; each must be in a run."""
        run = np.searchsorted(self.first_rows, starts, side="right") - 1
        positions: NDArray[np.int64] = starts - self.first_rows[run] + self.positions[run]
        return positions


@dataclass(frozen=True, slots=True)
class _Leaf:
    """The pages of one leaf to read."""

    pages: PageMap
    runs: tuple[tuple[int, int], ...]
    """First page of each run, and the page after its last."""
    spans: tuple[tuple[int, int], ...]
    """Offset and bytes of the dictionary if it is needed, of each run, and of the last page's header if not proven."""

    @property
    def has_dictionary(self) -> bool:
        """Whether the first span is the dictionary."""
        return self.runs[0][0] < self.pages.num_dictionary_pages

    @classmethod
    def of(cls, pages: PageMap, runs: tuple[tuple[int, int], ...]) -> _Leaf:
        """The leaf with the spans that its runs need."""
        dictionary = [pages.dictionary] if runs[0][0] < pages.num_dictionary_pages else []
        offsets = [(int(pages.offsets[first]), int(pages.offsets[stop])) for first, stop in runs]
        last = [] if pages.is_proven else [pages.last_header]
        return cls(pages, runs, (*dictionary, *((first, stop - first) for first, stop in offsets), *last))


@dataclass(frozen=True, slots=True)
class _Plan:
    """The pages of one column to read."""

    number: int
    """Number of the column among the top-level columns."""
    leaves: tuple[_Leaf, ...]
    num_rows: int
    """Rows of the runs, the same for all leaves."""
    num_wanted: int
    """The rows of the runs that are decoded: up to the last wanted row."""
    first_rows: NDArray[np.int64]
    positions: NDArray[np.int64]


_Fetched: TypeAlias = tuple[_Plan, list[bytes]]
"""A plan, and Parquet's ColumnChunk of each leaf, with the positions of its checked pages in the fetched memory."""


def read_cuts(source: StoredFile, footer: Footer, group: int, ranges: Ranges, names: Sequence[str]) -> dict[str, Cut]:
    """The pages with rows of `ranges`, for those top-level columns among `names` whose pages can be read alone.

    A column is left out if it has no page index, if the page index or a page is damaged, or if its whole chunk costs
    less. There are at most two reads for all columns together: unknown page indexes, and pages.

    Design: docs/design/pages.md#cut
    """
    plans = _plans(source, footer, group, ranges, names)
    if not plans:
        return {}
    sound, fetched = _fetched(source, plans)
    return _decoded(footer, sound, fetched)


def spans_of_cuts(
    source: StoredFile, footer: Footer, group: int, ranges: Ranges, names: Sequence[str]
) -> dict[str, list[ByteRange]]:
    """By column, the offsets and lengths that `read_cuts` reads, if it reads the column by pages."""
    plans = _plans(source, footer, group, ranges, names)
    return {
        footer.schema.field(plan.number).name: [span for leaf in plan.leaves for span in leaf.spans] for plan in plans
    }


# --- choosing ---------------------------------------------------------------------------------------------------------


def _plans(source: StoredFile, footer: Footer, group: int, ranges: Ranges, names: Sequence[str]) -> list[_Plan]:
    saved_rows = footer.row_group_rows[group] - int((ranges[1] - ranges[0]).sum())
    fields = footer.fields if _may_pay(footer, group, saved_rows) else ()
    numbers = [footer.schema.get_field_index(name) for name in names] if fields else []
    wanted = {number: fields[number] for number in numbers if number >= 0 and not fields[number].has_lists}
    leaves = [leaf for field in wanted.values() for leaf in field.leaves]
    maps = dict(zip(leaves, page_maps(source, footer, group, leaves, saved_rows), strict=True)) if leaves else {}
    plans = []
    for number, field in wanted.items():
        page_maps_of_field = [pages for leaf in field.leaves if (pages := maps[leaf]) is not None]
        if page_maps_of_field and len(page_maps_of_field) == len(field.leaves):
            plan = _plan(number, page_maps_of_field, ranges)
            if _pays(plan):
                plans.append(plan)
    return plans


def _may_pay(footer: Footer, group: int, saved_rows: int) -> bool:
    """Whether looking for pages may pay."""
    if saved_rows > _PAGES_PER_COLUMN * _ROWS_PER_PAGE:
        return True
    return saved_rows > 0 and footer.metadata.row_group(group).total_byte_size > _PAGES_PER_COLUMN * _BYTES_PER_PAGE


def _plan(number: int, maps: list[PageMap], ranges: Ranges) -> _Plan:
    """The pages with the rows; for several leaves the pages between rows at which a page of every leaf begins."""
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
    """Whether pages cost less than the whole column chunks, which pyarrow reads without Python code."""
    num_pages, saved_bytes = _PAGES_PER_COLUMN, 0
    for leaf in plan.leaves:
        num_pages += sum(stop - first for first, stop in leaf.runs)
        saved_bytes += int(leaf.pages.offsets[-1] - leaf.pages.offsets[0]) - sum(size for _offset, size in leaf.spans)
    saved_rows = int(plan.leaves[0].pages.rows[-1]) - plan.num_rows
    return saved_rows > num_pages * _ROWS_PER_PAGE or saved_bytes > num_pages * _BYTES_PER_PAGE


# --- reading ----------------------------------------------------------------------------------------------------------


def _fetched(source: StoredFile, plans: Sequence[_Plan]) -> tuple[list[_Fetched], pa.Buffer]:
    """The plans whose pages agree with their page indexes, and the pages of all plans in one buffer."""
    spans = [span for plan in plans for leaf in plan.leaves for span in leaf.spans]
    fetched = _read_together(source, spans)
    memory, position, sound = memoryview(fetched).cast("B"), len(_MAGIC), []
    if len(memory) != position + sum(size for _offset, size in spans):
        return [], fetched
    for plan in plans:
        chunks = []
        for leaf in plan.leaves:
            chunks.append(_checked(leaf, plan.num_rows, memory, position))
            position += sum(size for _offset, size in leaf.spans)
        whole = [chunk for chunk in chunks if chunk is not None]
        if len(whole) == len(chunks):
            sound.append((plan, whole))
    return sound, fetched


def _read_together(source: StoredFile, spans: Sequence[tuple[int, int]]) -> pa.Buffer:
    """The bytes of all spans, one after the other; for a local file in memory that Arrow reuses."""
    if not isinstance(source, LocalFile):
        return pa.py_buffer(b"".join([_MAGIC, *source.read_ranges(spans)]))
    buffer = pa.allocate_buffer(len(_MAGIC) + sum(size for _offset, size in spans))
    memory = memoryview(buffer).cast("B")
    memory[: len(_MAGIC)] = _MAGIC  # to pyarrow a dictionary at position 0 is absent
    return buffer.slice(0, len(_MAGIC) + source.read_into(memory[len(_MAGIC) :], spans))


def _checked(leaf: _Leaf, num_rows: int, memory: memoryview, position: int) -> bytes | None:
    """The ColumnChunk of a leaf with its spans at `position` of `memory`; None if they differ from the page index."""
    sizes = [size for _offset, size in leaf.spans]
    if not leaf.pages.is_proven:
        stop = position + sum(sizes)
        if not leaf.pages.prove(bytes(memory[stop - sizes[-1] : stop])):
            return None
    dictionary = sizes[0] if leaf.has_dictionary else 0
    place, uses_dictionary = position + dictionary, False
    for start, stop in leaf.runs:
        offsets, rows = leaf.pages.offsets[start : stop + 1].tolist(), leaf.pages.rows[start : stop + 1].tolist()
        for offset, end, row, after in zip(offsets, offsets[1:], rows, rows[1:], strict=False):
            encoding = page_encoding(memory, place, end - offset, after - row)
            if encoding is None:
                return None
            uses_dictionary = uses_dictionary or encoding in DICTIONARY_ENCODINGS
            place += end - offset
    if uses_dictionary and not dictionary:
        return None
    used = dictionary if uses_dictionary else 0
    return _column_chunk(leaf.pages, num_rows, position + dictionary - used, used, place - position - dictionary)


# --- decoding ---------------------------------------------------------------------------------------------------------


def _decoded(footer: Footer, sound: Sequence[_Fetched], fetched: pa.Buffer) -> dict[str, Cut]:
    """The rows of the plans from the pages in `fetched`; without plans that pyarrow decodes to other types or rows."""
    cuts = {}
    by_rows: dict[int, list[_Fetched]] = {}
    for plan, chunks in sound:
        by_rows.setdefault(plan.num_wanted, []).append((plan, chunks))
    for num_wanted, together in by_rows.items():
        numbers = tuple(plan.number for plan, _ in together)
        fields = [footer.schema.field(number) for number in numbers]
        try:
            written = _footer(footer, numbers, [chunk for _, chunks in together for chunk in chunks], num_wanted)
            reader = pq.ParquetFile(
                pa.BufferReader(fetched),
                metadata=metadata_of(written),
                pre_buffer=False,
                coerce_int96_timestamp_unit=footer.int96_unit,
            )
            table = _first_rows(reader, num_wanted)
        except (pa.ArrowException, OSError, thrift.ThriftError):
            continue
        is_as_promised = table.num_rows == num_wanted and table.schema.names == [field.name for field in fields]
        if is_as_promised and table.schema.types == [field.type for field in fields]:
            for (plan, _), field, values in zip(together, fields, table.columns, strict=True):
                cuts[field.name] = Cut(values, plan.first_rows, plan.positions)
    return cuts


def _first_rows(reader: pq.ParquetFile, num_rows: int) -> pa.Table:
    """The first `num_rows` rows; later rows are not decoded. Before 26, `read_row_group` decodes whole pages."""
    batches, num_missing = [], num_rows
    for batch in reader.iter_batches(num_rows, use_threads=False):
        batches.append(batch)
        num_missing -= batch.num_rows
        if num_missing <= 0:
            break
    return pa.Table.from_batches(batches, None if batches else reader.schema_arrow)


def _column_chunk(pages: PageMap, num_rows: int, position: int, dictionary_bytes: int, data_bytes: int) -> bytes:
    """Parquet's ColumnChunk for pages at `position`."""
    size = dictionary_bytes + data_bytes
    meta: dict[int, thrift.Field] = {
        Meta.NUM_VALUES: (thrift.I64, num_rows),
        Meta.BYTES: (thrift.I64, size),
        Meta.COMPRESSED_BYTES: (thrift.I64, size),
        Meta.DATA_OFFSET: (thrift.I64, position + dictionary_bytes),
    }
    if dictionary_bytes:
        meta[Meta.DICTIONARY_OFFSET] = thrift.I64, position
    written = pages.chunk.head + thrift.write_fields(meta, after=Meta.CODEC) + thrift.STOP
    return thrift.write_struct({Chunk.FILE_OFFSET: (thrift.I64, position), Chunk.META: (thrift.STRUCT, written)})


def _footer(footer: Footer, numbers: tuple[int, ...], chunks: list[bytes], num_rows: int) -> bytes:
    """Parquet's FileMetaData of a file of some columns and one row group."""
    rows, columns = (thrift.I64, num_rows), thrift.structs(chunks)
    group = thrift.write_struct({Group.COLUMNS: columns, Group.BYTES: (thrift.I64, 0), Group.NUM_ROWS: rows})
    counted = {FileMeta.NUM_ROWS: rows, FileMeta.ROW_GROUPS: thrift.structs([group])}
    body = thrift.write_fields(counted, after=FileMeta.SCHEMA)
    head, tail = _described(footer, numbers)
    return head + body + tail


def _described(footer: Footer, numbers: tuple[int, ...]) -> tuple[bytes, bytes]:
    """Fields of the FileMetaData of a file with only some top-level columns, from which pyarrow reads the same types.

    First the fields before the row groups (format, and a schema of those columns). Then the fields after them (the
    Arrow schema, if the file has one, and the writer).
    """
    described: dict[tuple[int, ...], tuple[bytes, bytes]] = footer.kept["descriptions"]
    if numbers not in described:
        elements = [element for number in numbers for element in footer.fields[number].schema]
        root = root_element(len(numbers))
        tail: dict[int, thrift.Field] = {}
        if _ARROW_SCHEMA in (footer.metadata.metadata or {}):
            arrow = base64.b64encode(pa.schema([footer.schema.field(number) for number in numbers]).serialize())
            pair = thrift.write_struct({1: (thrift.BINARY, _ARROW_SCHEMA), 2: (thrift.BINARY, arrow)})
            tail[5] = thrift.structs([pair])
        if footer.created_by:  # pyarrow reads pages of some old writers differently
            tail[6] = thrift.BINARY, footer.created_by
        head = thrift.write_fields({1: (thrift.I32, 2), 2: thrift.structs([root, *elements])})
        if len(described) == _MAX_DESCRIBED:
            described.clear()
        described[numbers] = head, thrift.write_fields(tail, after=4) + thrift.STOP
    return described[numbers]
