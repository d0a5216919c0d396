"""The bloom filters that Parquet files have of their own: a table of them, and what they exclude.

`parquet_blooms` lists them for people; `Probe` looks values up in them, for searches of files that no index describes.

Spec: specs/parquet-blooms.md
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from zonebloom.bloom.hashing import hash_values
from zonebloom.bloom.parquet import ChunkFilter, ParquetSbbf, plain_values
from zonebloom.bloom.sizing import expected_fpp
from zonebloom.errors import ColumnNotFoundError, DataFileError, InvalidArgumentError
from zonebloom.formats.detect import open_dataset
from zonebloom.predicates.coerce import fit_values

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from zonebloom.formats.parquet.file import DataFile

__all__ = ["Probe", "parquet_blooms"]

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
        with dataset.open(path, listed) as file:
            names = [file.metadata.schema.column(leaf).path for leaf in range(file.metadata.num_columns)]
            known.update(names)
            for name in names if column is None else [column]:
                own = file.own_filters(name)
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
