"""The bloom filters inside Parquet files: one filter, a table of filters, and what they exclude.

The ladder: `chunk_filters` reads and checks the filters of one leaf; `Probe` looks values up in them, for searches of
files without an index; `parquet_bloom` and `parquet_blooms` are for people.

A filter is used only after all checks passed, since a wrong filter could exclude a value that is there. A filter that
fails a check has the reason in its `problem`.

Spec: specs/parquet-blooms.md
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from zonebloom.bloom.hashing import hash_values
from zonebloom.bloom.parquet import ParquetSbbf, plain_type, plain_values
from zonebloom.bloom.sbbf import Sbbf
from zonebloom.bloom.sizing import BLOCK_BYTES, MAX_BLOCKS, expected_fpp
from zonebloom.errors import ColumnNotFoundError, DataFileError, InvalidArgumentError
from zonebloom.formats.detect import open_dataset
from zonebloom.formats.parquet.file import open_parquet
from zonebloom.formats.parquet.row_groups import BLOOM_LENGTH, BLOOM_OFFSET, FILE_PATH, column_metadata, is_encrypted
from zonebloom.predicates.coerce import fit_values

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from zonebloom.formats.parquet.file import DataFile
    from zonebloom.formats.parquet.footer import Footer

_MAGIC_BYTES = 4
"""Bytes of a file before its first part."""
_MAX_BYTES = 19 + MAX_BLOCKS * BLOCK_BYTES
"""Bytes of the largest filter, with its header."""

_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("row_group", pa.int32(), nullable=False),
        pa.field("column", pa.string(), nullable=False),
        pa.field("type", pa.string(), nullable=False),
        pa.field("num_bytes", pa.int64()),
        pa.field("num_blocks", pa.int64()),
        pa.field("expected_ndv", pa.float64()),
        pa.field("expected_fpp", pa.float64()),
        pa.field("fpp", pa.float64()),
        pa.field("problem", pa.string()),
    ]
)


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
    found = []
    for group, place in places.items():
        if isinstance(place, str):
            found.append(ChunkFilter(group, leaf, None, place))
            continue
        try:
            blocks = Sbbf.from_parquet_bytes(data[group]).blocks
        except InvalidArgumentError as error:
            found.append(ChunkFilter(group, leaf, None, str(error)))
        else:
            found.append(ChunkFilter(group, leaf, ParquetSbbf(blocks, column_type, plain)))
    return found


def _place(footer: Footer, group: int, leaf: int) -> tuple[int, int] | str | None:
    """Offset and length of the filter of a column chunk, or why it cannot be used; None if there is no filter."""
    chunk = footer.chunk(group, leaf)
    if is_encrypted(chunk):
        return "its column is encrypted"
    meta = column_metadata(chunk)
    offset, length = meta.get(BLOOM_OFFSET), meta.get(BLOOM_LENGTH)
    if offset is None:
        return None
    if chunk.get(FILE_PATH):
        return f"it must be in the same file, got {chunk[FILE_PATH]!r:.80}"
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


class Probe:
    """Values that are looked up in many filters; they are converted and hashed once for each type of a column."""

    def __init__(self, values: Any) -> None:
        self._values = values
        self._hashes: dict[tuple[Any, Any], NDArray[np.uint64] | None] = {}

    def is_excluded(self, own: ParquetSbbf) -> bool | None:
        """Whether no value is in the column chunk, for certain; None where the filter cannot tell of these values.

        Spec: specs/parquet-blooms.md#use
        """
        key = (own.column_type, own.plain_type)
        if key not in self._hashes:
            self._hashes[key] = self._hashes_of(own)
        hashes = self._hashes[key]
        return None if hashes is None else not own.check_hashes(hashes).any()

    def _hashes_of(self, own: ParquetSbbf) -> NDArray[np.uint64] | None:
        if own.plain_type is None:
            return None
        fit = fit_values(self._values, own.column_type)
        if fit.reason is not None:
            return None
        try:
            return np.asarray(hash_values(plain_values(fit.values, own.plain_type)), np.uint64)
        except pa.ArrowInvalid:  # a time between two units of the file
            return None


def parquet_bloom(
    source: Any, row_group: int, column: str, *, storage_options: Mapping[str, str] | None = None
) -> ParquetSbbf | None:
    """The bloom filter that a Parquet file has of one column chunk; None where it has none.

    Its `check` hashes values as Parquet does, by the physical type of the column, and finds a zero by either zero.

    Parameters
    ----------
    source
        One file: a path or a URL.
    row_group
        Number of the row group.
    column
        Name of the column; a leaf of a struct is written `a.b`.

    Raises
    ------
    ColumnNotFoundError, InvalidArgumentError
        There is no such column or row group, or there are several files.
    DataFileError
        The file is no whole Parquet file, or what it has there is not proved to be a filter.

    Examples
    --------
    >>> import tempfile, pyarrow as pa, pyarrow.parquet as pq
    >>> path = f"{tempfile.mkdtemp()}/a.parquet"
    >>> pq.write_table(pa.table({"id": [1, 2]}), path, bloom_filter_options={"id": {"ndv": 2, "fpp": 1e-6}})
    >>> parquet_bloom(path, 0, "id").check(pa.array([2, 3])).to_pylist()
    [True, False]

    Spec: specs/parquet-blooms.md#parquet_bloom
    """
    dataset = open_dataset(source, storage_options).pin()
    listing = dataset.list()
    if len(listing) != 1:
        raise InvalidArgumentError(f"a filter must be asked of one file, got {len(listing)} in {dataset.location}")
    ((path, listed),) = listing.items()
    with open_parquet(dataset, path, listed) as file:
        leaf, num_groups = file.leaf_of(column), len(file.row_group_rows)
        if leaf is None:
            raise ColumnNotFoundError.among(column, [name for name, _type in file.leaves], f"{path}, once")
        if not 0 <= row_group < num_groups:
            raise InvalidArgumentError(f"row_group must be one of the {num_groups} of the file, got {row_group}")
        found = file.own_filters(leaf, [row_group])
    if found and found[0].filter is None:
        message = f"the filter of column {column} in row group {row_group} of {path} cannot be used"
        raise DataFileError(f"{message}: {found[0].problem}")
    return found[0].filter if found else None


def parquet_blooms(
    source: Any,
    *,
    column: str | None = None,
    value: Any = None,
    storage_options: Mapping[str, str] | None = None,
) -> pa.Table:
    """The bloom filters in the Parquet files of `source`: one row for each column chunk that has one.

    Only footers and filters are read. A filter that cannot be used has its `problem`, and no numbers.

    Parameters
    ----------
    source
        As for `build_index`: a folder, a file, a list of files or a table; paths or URLs.
    column
        The one column to look at; by default all. A leaf of a struct is written `a.b`.
    value
        A value to look up in `column`. Then the last field, `excluded`, is true where it certainly is not, false where
        it may be, and null where the filter cannot tell.

    Returns
    -------
    pyarrow.Table
        `path`, `row_group`, `column`, `type` (Parquet's physical one), `num_bytes` and `num_blocks` of the bitset,
        `expected_ndv` (the distinct values that would set as many bits), `expected_fpp` (the probability that such a
        number gives a filter of that size), `fpp` (the exact one, by the bits that are set), `problem`.

    Raises
    ------
    ColumnNotFoundError
        No file has the column.
    DataFileError
        A file cannot be read.

    Spec: specs/parquet-blooms.md#parquet_blooms
    """
    if value is not None and column is None:
        raise InvalidArgumentError(f"a value must come with the column to look it up in, got {value!r} alone")
    dataset = open_dataset(source, storage_options).pin()
    probe = None if value is None else Probe(value)
    rows: list[dict[str, Any]] = []
    known: set[str] = set()
    for path, listed in dataset.list().items():
        with open_parquet(dataset, path, listed) as file:
            known.update(name for name, _type in file.leaves)
            for leaf, (name, _type) in enumerate(file.leaves):
                own = file.own_filters(leaf) if column in (None, name) else []
                rows += [{"path": path, **_row(file, name, one), "excluded": _excluded(probe, one)} for one in own]
    if not known:
        raise DataFileError(f"a data set must have at least one file, got none in {dataset.location}")
    if column is not None and column not in known:
        raise ColumnNotFoundError.among(column, known, dataset.location)
    schema = _SCHEMA if probe is None else _SCHEMA.append(pa.field("excluded", pa.bool_()))
    return pa.Table.from_pylist(rows, schema)


def _row(file: DataFile, name: str, one: ChunkFilter) -> dict[str, Any]:
    physical = file.metadata.schema.column(one.leaf).physical_type
    row = {"row_group": one.row_group, "column": name, "type": physical, "problem": one.problem}
    if one.filter is None:
        return row
    ndv = one.filter.expected_ndv()
    return row | {
        "num_bytes": one.filter.num_bytes,
        "num_blocks": one.filter.num_blocks,
        "expected_ndv": ndv,
        "expected_fpp": expected_fpp(round(ndv), one.filter.num_blocks),
        "fpp": one.filter.fpp(),
    }


def _excluded(probe: Probe | None, one: ChunkFilter) -> bool | None:
    return None if probe is None or one.filter is None else probe.is_excluded(one.filter)
