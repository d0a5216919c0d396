"""`parquet_bloom` and `parquet_blooms`: the bloom filters inside Parquet files, for people.

Spec: specs/parquet-blooms.md
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from zonebloom.bloom.physical_values import ParquetSbbf
from zonebloom.bloom.sizing import expected_fpp
from zonebloom.formats.detect import open_dataset
from zonebloom.formats.parquet.bloom import ChunkFilter
from zonebloom.formats.parquet.file import open_parquet
from zonebloom.ground.errors import ColumnNotFoundError, DataFileError, InvalidArgumentError
from zonebloom.search.parquet_filters import OwnProbe

if TYPE_CHECKING:
    from zonebloom.formats.parquet.file import DataFile

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


def parquet_bloom(
    source: Any, row_group: int, column: str, *, storage_options: Mapping[str, str] | None = None
) -> ParquetSbbf | None:
    """The bloom filter that a Parquet file has of one column chunk; None if it has none.

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
    >>> from zonebloom import add_parquet_blooms
    >>> folder = tempfile.mkdtemp()
    >>> pq.write_table(pa.table({"id": [1, 2]}), f"{folder}/a.parquet")
    >>> (copy,) = add_parquet_blooms(f"{folder}/a.parquet", f"{folder}/copies", "id", fpp=1e-6)
    >>> parquet_bloom(copy, 0, "id").check(pa.array([2, 3])).to_pylist()
    [True, False]

    Spec: specs/parquet-blooms.md#parquet_bloom
    """
    dataset = open_dataset(source, storage_options, as_files=True).pin()
    listing = dataset.list()
    if len(listing) != 1:
        raise InvalidArgumentError("a filter must be read from one file", got=f"{len(listing)} in {dataset.location}")
    ((path, listed),) = listing.items()
    with open_parquet(dataset, path, listed) as file:
        leaf, num_groups = file.leaf_of(column), len(file.row_group_rows)
        if leaf is None:
            raise ColumnNotFoundError.among(column, [name for name, _type in file.leaves], f"{path}, once")
        if not 0 <= row_group < num_groups:
            raise InvalidArgumentError(f"row_group must be one of the {num_groups} of the file", got=row_group)
        filters = file.own_filters(leaf, [row_group])
    if filters and filters[0].filter is None:
        raise DataFileError(
            f"the filter of column {column} in row group {row_group} of {path} cannot be used: {filters[0].problem}"
        )
    return filters[0].filter if filters else None


def parquet_blooms(
    source: Any, *, column: str | None = None, value: Any = None, storage_options: Mapping[str, str] | None = None
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
        A value to look up in `column`. Then the last field, `excluded`, is true if the value certainly is not there,
        false if it may be, and null if the filter cannot say.

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
        raise InvalidArgumentError("a value must come with the column to look it up in", got=f"{value!r} alone")
    dataset = open_dataset(source, storage_options, as_files=True).pin()
    probe = None if value is None else OwnProbe(value)
    rows: list[dict[str, Any]] = []
    names: set[str] = set()
    for path, listed in dataset.list().items():
        with open_parquet(dataset, path, listed) as file:
            names.update(name for name, _type in file.leaves)
            for leaf, (name, _type) in enumerate(file.leaves):
                filters = file.own_filters(leaf) if column in (None, name) else []
                rows += [{"path": path, **_row(file, name, own), "excluded": _excluded(probe, own)} for own in filters]
    if not names:
        raise DataFileError("a data set must have at least one file", got=f"none in {dataset.location}")
    if column is not None and column not in names:
        raise ColumnNotFoundError.among(column, names, dataset.location)
    schema = _SCHEMA if probe is None else _SCHEMA.append(pa.field("excluded", pa.bool_()))
    return pa.Table.from_pylist(rows, schema)


def _row(file: DataFile, name: str, chunk: ChunkFilter) -> dict[str, Any]:
    physical = file.metadata.schema.column(chunk.leaf).physical_type
    row = {"row_group": chunk.row_group, "column": name, "type": physical, "problem": chunk.problem}
    if chunk.filter is None:
        return row
    ndv = chunk.filter.expected_ndv()
    return row | {
        "num_bytes": chunk.filter.num_bytes,
        "num_blocks": chunk.filter.num_blocks,
        "expected_ndv": ndv,
        "expected_fpp": expected_fpp(round(ndv), chunk.filter.num_blocks),
        "fpp": chunk.filter.fpp(),
    }


def _excluded(probe: OwnProbe | None, chunk: ChunkFilter) -> bool | None:
    return None if probe is None or chunk.filter is None else probe.is_excluded(chunk.filter)
