"""The bloom filters inside one Parquet file, and what they exclude.

`search.parquet_filters` looks values up in them; `search.parquet_blooms` shows them to people.

A filter is used only after all checks passed, since a wrong filter could exclude a value that is there. A filter that
fails a check has the reason in its `problem`.

Spec: specs/parquet-blooms.md
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zonebloom.bloom.physical_values import ParquetSbbf, plain_type
from zonebloom.bloom.sbbf import Sbbf
from zonebloom.bloom.sizing import BLOCK_BYTES, MAX_BLOCKS
from zonebloom.formats.parquet.fields import Chunk, Meta
from zonebloom.formats.parquet.row_groups import column_metadata, is_encrypted
from zonebloom.ground.errors import InvalidArgumentError

if TYPE_CHECKING:
    from zonebloom.formats.parquet.footer import Footer

_MAGIC_BYTES = 4
"""Bytes of a file before its first part."""
_MAX_BYTES = 19 + MAX_BLOCKS * BLOCK_BYTES
"""Bytes of the largest filter, with its header."""


@dataclass(frozen=True, slots=True)
class ChunkFilter:
    """The filter of one column chunk in a file."""

    row_group: int
    """Number of the row group."""
    leaf: int
    """Number of the leaf."""
    filter: ParquetSbbf | None
    """The filter; None if it failed a check."""
    problem: str | None = None
    """The failed check."""


def chunk_filters(
    footer: Footer,
    read_ranges: Callable[[Sequence[tuple[int, int]]], Sequence[bytes]],
    leaf: int,
    groups: Iterable[int] | None = None,
) -> list[ChunkFilter]:
    """The filters of a leaf in the row groups that have one, in order, read together.

    Parameters
    ----------
    read_ranges
        Reads the bytes of each `(offset, length)` of the file.
    groups
        Row groups to read; all by default.

    Raises
    ------
    ThriftError
        The footer differs from what pyarrow reads.

    Spec: specs/parquet-blooms.md#chunk_filters
    """
    column_type = footer.leaves[leaf][1]
    plain = plain_type(column_type, footer.metadata.schema.column(leaf))
    groups = range(footer.metadata.num_row_groups) if groups is None else groups
    places = {group: place for group in groups if (place := _place(footer, group, leaf)) is not None}
    ranges = {group: place for group, place in places.items() if not isinstance(place, str)}
    data = dict(zip(ranges, read_ranges(list(ranges.values())), strict=True)) if ranges else {}
    filters = []
    for group, place in places.items():
        if isinstance(place, str):
            filters.append(ChunkFilter(group, leaf, None, place))
            continue
        try:
            blocks = Sbbf.from_parquet_bytes(data[group]).blocks
        except InvalidArgumentError as error:
            filters.append(ChunkFilter(group, leaf, None, str(error)))
        else:
            filters.append(ChunkFilter(group, leaf, ParquetSbbf(blocks, column_type, plain)))
    return filters


def _place(footer: Footer, group: int, leaf: int) -> tuple[int, int] | str | None:
    """Offset and length of the filter of a column chunk, or why it cannot be used; None if there is no filter."""
    chunk = footer.chunk(group, leaf)
    if is_encrypted(chunk):
        return "its column is encrypted"
    meta = column_metadata(chunk)
    offset, length = meta.get(Meta.BLOOM_OFFSET), meta.get(Meta.BLOOM_LENGTH)
    if offset is None:
        return None
    if chunk.get(Chunk.FILE_PATH):
        return f"it must be in the same file, got {chunk[Chunk.FILE_PATH]!r:.80}"
    if length is None and isinstance(offset, int):  # it ends where another part of the file begins
        ends = footer.part_offsets
        length = ends[min(bisect_right(ends, offset), len(ends) - 1)] - offset
    if (
        isinstance(offset, int)
        and isinstance(length, int)
        and offset >= _MAGIC_BYTES
        and 0 < length <= min(footer.start - offset, _MAX_BYTES)
    ):
        return offset, length
    return f"it must lie before the footer at {footer.start}, got {length!r:.40} bytes at {offset!r:.40}"
