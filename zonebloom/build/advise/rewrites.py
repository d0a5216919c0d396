"""What a match reads of the same rows, as they are and as a writer could leave them: written in memory, and read.

Spec: specs/whatif.md#writer
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from zonebloom.formats.parquet.file import DataFile
from zonebloom.formats.source import SourceFile
from zonebloom.storage.fragments import Fingerprint

_REPEATS = 4
"""A column is written with a dictionary where a value comes so often, or more."""
_READS = 3
"""Reads of a measurement. The shortest one is reported: other work of the machine makes the others longer."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One way to write some rows, and what it costs to read the zones that hold one key."""

    name: str
    """What the writer does."""
    bytes_per_match: int
    """Bytes that were read, of all columns."""
    seconds_per_match: float
    """Least time of a few reads, from memory and on one thread."""


def measured_rewrites(rows: pa.Table, column: str, rows_per_zone: int) -> tuple[Rewrite, ...]:
    """What a match of the key in the middle of `rows` reads: as they are, and in three other ways of writing them."""
    key = rows[column][len(rows) // 2]
    paged = {"write_page_index": True, "max_rows_per_page": rows_per_zone, "use_dictionary": _repeated(rows)}
    try:
        in_order = rows.sort_by(column)
    except pa.ArrowException:  # a type without an order
        in_order = None
    ways: list[tuple[str, pa.Table | None, dict[str, Any]]] = [
        ("as they are", rows, {}),
        ("row groups a fourth as large", rows, {"row_group_size": -(-len(rows) // 4)}),
        (f"page index, pages of {rows_per_zone:,} rows, ids plain", rows, paged),
        (f"the same, sorted by {column}", in_order, paged),
    ]
    return tuple(
        _measured(name, _Written(table, options), _ranges(table[column], key, rows_per_zone))
        for name, table, options in ways
        if table is not None
    )


def _repeated(rows: pa.Table) -> list[str]:
    """Columns whose values repeat; of others a page needs the dictionary of the row group, a megabyte and more."""
    found = []
    for name in rows.column_names:
        try:
            num_distinct = pc.count_distinct(rows[name]).as_py()
        except pa.ArrowNotImplementedError:  # a nested type
            continue
        if num_distinct * _REPEATS < len(rows):
            found.append(name)
    return found


def _ranges(values: pa.ChunkedArray, key: pa.Scalar, rows_per_zone: int) -> list[tuple[int, int]]:
    """The zones that hold the key."""
    is_equal = pc.fill_null(pc.equal(values, key), False) if key.is_valid else pc.is_null(values)
    zones = np.unique(np.flatnonzero(is_equal.to_numpy()) // rows_per_zone).tolist()
    return [(zone * rows_per_zone, min((zone + 1) * rows_per_zone, len(values))) for zone in zones]


def _measured(name: str, written: _Written, ranges: Sequence[tuple[int, int]]) -> Rewrite:
    seconds = []
    with DataFile(written) as file:
        for _ in range(_READS):
            written.num_bytes_read = 0
            started = time.perf_counter()
            for group, starts, stops in _in_groups(file.row_group_rows, ranges):
                file.read_rows(group, starts, stops, file.schema.names)
            seconds.append(time.perf_counter() - started)
    return Rewrite(name, written.num_bytes_read, min(seconds))


def _in_groups(
    row_group_rows: Sequence[int], ranges: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, list[int], list[int]]]:
    """The parts of row ranges in each row group, by its own row offsets."""
    first = 0
    for group, rows in enumerate(row_group_rows):
        parts = [(max(start - first, 0), min(stop - first, rows)) for start, stop in ranges]
        parts = [(start, stop) for start, stop in parts if start < stop]
        if parts:
            yield group, [start for start, _ in parts], [stop for _, stop in parts]
        first += rows


class _Written:
    """A Parquet file in memory, as a source that counts what is read of it."""

    path = "rows in memory"
    is_remote = False

    def __init__(self, rows: pa.Table, options: dict[str, Any]) -> None:
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, **{"row_group_size": len(rows), **options})
        self._data = sink.getvalue()
        self.fingerprint = Fingerprint(self._data.size, 0)
        self.num_bytes_read = 0

    def current_fingerprint(self) -> Fingerprint:
        return self.fingerprint

    def _read(self, offset: int, length: int) -> bytes:
        data: bytes = self._data[offset : offset + length].to_pybytes()
        self.num_bytes_read += len(data)
        return data

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self._read(*one) for one in ranges]

    def will_need(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Nothing: all is in memory."""

    def arrow_file(self) -> Any:
        return SourceFile(self._data.size, self._read)

    def close(self) -> None:
        """Nothing: memory is freed with the last name of it."""
