"""`DataFile`: one opened Parquet file; its shape, columns for a build, row groups for a scan."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import pyarrow as pa

from zonebloom.arrow import from_numpy, without_views
from zonebloom.arrow import parquet as pq
from zonebloom.bloom import hashing
from zonebloom.bloom.addresses import MAX_ROWS
from zonebloom.errors import ColumnNotFoundError, DataFileError
from zonebloom.formats.parquet.footer import Footer, first_line, read_footer
from zonebloom.formats.source import Fingerprint, Source

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["DataFile", "has_column", "places_of"]

_BATCH_BYTES = 8 << 20
"""Decoded bytes of a batch: few steps of Python a row, and the kernels still find them in the last cache."""
_MIN_BATCH_ROWS, _MAX_BATCH_ROWS = 1 << 14, 1 << 20
_VALUE_BYTES = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 8}
_TEXT_BYTES = 128
"""What a value of no fixed width is taken to need, so that one such column comes in batches of 65 536 rows."""
_READ_BYTES = 1 << 18
"""Column chunks are read in pieces of this size, not whole: less memory, and faster by a tenth (int64)."""
_TIME_UNITS = {"ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
"""What Parquet calls the units in which it stores times; pyarrow's seconds are stored as milliseconds."""
_MAX_SLICES = 64
"""More ranges are gathered into one array than are kept as slices of it."""
_DICTIONARY_BYTES_PER_VALUE = 6
"""A string column chunk with a dictionary and at most so many bytes a value is read as indices into it."""
_READ_AS_DICTIONARY = frozenset({"PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY"})
"""Encodings that pyarrow 26 makes a dictionary of; Spark may go on with deltas where a dictionary is full."""


class DataFile:
    """One opened Parquet file; all reads go to the version that was there when it was opened."""

    def __init__(self, source: Source, rename: Callable[[Footer], Footer] | None = None) -> None:
        self._source = source
        self._path = source.path
        try:
            self._footer = read_footer(source)
            if rename is not None:
                self._footer = rename(self._footer)
            self._metadata = self._footer.metadata
            self._check_rows()
        except DataFileError:
            source.close()
            raise

    def _check_rows(self) -> None:
        in_groups = sum(self.row_group_rows)
        if in_groups != self.num_rows or in_groups > MAX_ROWS or min(self.row_group_rows, default=0) < 0:
            message = f"the row groups of data file {self._path} must hold its {self.num_rows} rows, at most {MAX_ROWS}"
            raise DataFileError(f"{message}, got {in_groups}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._source.close()

    @property
    def fingerprint(self) -> Fingerprint:
        """Of the version that is being read."""
        return self._source.fingerprint

    def check_unchanged(self) -> None:
        """Raise `DataFileError` if the file was written to since it was opened."""
        if self._source.current_fingerprint() != self._source.fingerprint:
            raise DataFileError(f"data file {self._path} must not change while it is read, got a write; run again")

    @property
    def num_rows(self) -> int:
        """Rows of the file."""
        return int(self._metadata.num_rows)

    @property
    def row_group_rows(self) -> tuple[int, ...]:
        """Rows of each row group."""
        return self._footer.row_group_rows

    @property
    def row_group_bytes(self) -> tuple[int, ...]:
        """Compressed bytes of each row group."""
        return self._footer.row_group_bytes

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema as the reader gives it (with extension types such as UUID), without metadata."""
        return self._footer.schema

    @property
    def metadata(self) -> pq.FileMetaData:
        """The footer as pyarrow reads it."""
        return self._metadata

    @cached_property
    def int96_columns(self) -> frozenset[str]:
        """Top-level columns that hold times as INT96, which pyarrow reads in nanoseconds."""
        leaves = [self._metadata.schema.column(number) for number in range(self._metadata.num_columns)]
        paths = [leaf.path for leaf in leaves if leaf.physical_type == "INT96"]
        return frozenset(
            name for name in self.schema.names for path in paths if path == name or path.startswith(f"{name}.")
        )

    def column_batches(self, columns: Sequence[str], start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Rows `[start, stop)` of `columns` (leaves of structs have dots), in order, in batches of about 8 MiB.

        A column that the file does not have is left out. Strings that the file holds as a dictionary come as one.

        Raises
        ------
        DataFileError
            A page cannot be decoded, or there are fewer rows than the footer says.
        """
        groups, position = self._groups_of(start, stop)
        present = [column for column in columns if has_column(self.schema, column)]
        if not groups or not present:
            for first in range(start, stop, _MAX_BATCH_ROWS):
                yield pa.RecordBatch.from_struct_array(pa.nulls(min(_MAX_BATCH_ROWS, stop - first), pa.struct([])))
            return
        with self._decoding():
            for batch in self._decoded(present, groups, stop - position):
                first, last = max(start - position, 0), min(stop - position, batch.num_rows)
                if first < last:
                    yield batch.slice(first, last - first)
                position += batch.num_rows
                if position >= stop:
                    break

    def _decoded(self, columns: list[str], groups: list[int], num_rows: int) -> Iterator[pa.RecordBatch]:
        """The first `num_rows` rows of row groups, at least; of the last group hardly more, if it is wanted in part."""
        dictionaries = [
            name for name in columns if self.schema.get_field_index(name) >= 0 and self._is_dictionary(name)
        ]
        self._source.will_need(self._chunk_ranges(groups, columns))
        reader = self._reader(dictionaries, _READ_BYTES)
        row_bytes = sum(4 if column in dictionaries else self._value_bytes(column) for column in columns)
        batch_rows = max(_MIN_BATCH_ROWS, min(_BATCH_BYTES // row_bytes, _MAX_BATCH_ROWS))
        rows_before_last = sum(self.row_group_rows[number] for number in groups[:-1])
        is_nested = any(self.schema.get_field_index(column) < 0 for column in columns)
        whole = [[number] for number in groups[:-1]] if is_nested else [groups[:-1]]  # pyarrow 26 joins no nested text
        for run, rows in (
            *((run, batch_rows) for run in whole),
            (groups[-1:], min(batch_rows, num_rows - rows_before_last)),
        ):
            held = 0
            for batch in reader.iter_batches(rows, row_groups=run, columns=columns, use_threads=False) if run else ():
                held += batch.num_rows
                yield batch
            self._check_held(held, run)

    def _check_held(self, held: int, groups: Sequence[int]) -> None:
        """Raise where pages hold fewer values than the footer says, of which pyarrow 26 says nothing."""
        rows = sum(self.row_group_rows[number] for number in groups)
        if held != rows:
            numbers = ", ".join(map(str, groups))
            raise DataFileError(f"row group {numbers} of data file {self._path} must hold {rows} rows, got {held}")

    def _value_bytes(self, column: str) -> int:
        leaf = self._leaves.get(column)
        if leaf is None:
            return _TEXT_BYTES
        described = self._metadata.schema.column(leaf)
        if described.physical_type == "FIXED_LEN_BYTE_ARRAY":
            return max(int(described.length), 1)
        return _VALUE_BYTES.get(described.physical_type, _TEXT_BYTES)

    def read_rows(
        self,
        group: int,
        starts: ArrayLike,
        stops: ArrayLike,
        columns: Sequence[str],
        *,
        int96_unit: Literal["ns", "us"] = "ns",
    ) -> pa.Table:
        """The rows `[starts[i], stops[i])` of one row group, in order, of top-level `columns`.

        Where the file has a page index, only the pages that hold them are read, and of the other columns whole chunks.
        A column that the file does not have is left out. Views come as plain text or bytes, since pyarrow 26 has no
        kernels that filter or take them.

        Parameters
        ----------
        starts, stops
            Row offsets within the row group: sorted, disjoint, none empty.
        int96_unit
            What times in INT96 are read in; nanoseconds overflow beyond the years 1677 to 2262.

        Raises
        ------
        DataFileError
            A page cannot be decoded.

        Spec: specs/pages.md#cut
        """
        from zonebloom.formats.parquet.pages import read_cuts  # noqa: PLC0415 - a search does without

        ranges = np.asarray(starts, np.int64), np.asarray(stops, np.int64)
        lengths = ranges[1] - ranges[0]
        present = [column for column in dict.fromkeys(columns) if self.schema.get_field_index(column) >= 0]
        if not present:
            return pa.Table.from_struct_array(pa.nulls(int(lengths.sum()), pa.struct([])))
        whole_only = self.int96_columns if int96_unit != "ns" else frozenset()
        is_whole = len(lengths) == 1 and lengths[0] == self.row_group_rows[group]
        alone = [] if is_whole else [name for name in present if name not in whole_only]
        cuts = read_cuts(self._source, self._footer, group, ranges, alone) if alone else {}
        others = [name for name in present if name not in cuts]
        whole = self._read_row_group(group, others, int96_unit) if others else None
        found = []
        for name in present:
            if whole is None or name in cuts:
                values, positions = cuts[name].values, cuts[name].positions_of(ranges[0])
            else:
                values, positions = whole[name], ranges[0]
            plain = without_views(values.type)
            found.append(_at(values if plain == values.type else values.cast(plain), positions, lengths))
        fields = [self.schema.field(name).with_type(one.type) for name, one in zip(present, found, strict=True)]
        return pa.table(found, schema=pa.schema(fields))

    def read_row_group(self, number: int, columns: Sequence[str]) -> pa.Table:
        """Top-level `columns` of one row group, which the file has.

        Raises
        ------
        DataFileError
            A page cannot be decoded, or there are fewer rows than the footer says.
        """
        return self._read_row_group(number, columns, "ns")

    def _read_row_group(self, number: int, columns: Sequence[str], int96_unit: str) -> pa.Table:
        self._source.will_need(self._chunk_ranges([number], columns))
        with self._decoding():
            reader = self._reader([], int96_unit=int96_unit)
            table = reader.read_row_group(number, columns=columns, use_threads=False)
        self._check_held(table.num_rows, [number])
        return table

    def _chunk_ranges(self, groups: Sequence[int], columns: Sequence[str]) -> list[tuple[int, int]]:
        """Offset and length of the column chunks, as the footer has them."""
        leaves = [
            leaf
            for path, leaf in self._leaves.items()
            if any(path == one or path.startswith(f"{one}.") for one in columns)
        ]
        chunks = [self._metadata.row_group(number).column(leaf) for number in groups for leaf in sorted(leaves)]
        return [(one.dictionary_page_offset or one.data_page_offset, one.total_compressed_size) for one in chunks]

    def _reader(self, dictionaries: list[str], buffer_size: int = 0, int96_unit: str = "ns") -> pq.ParquetFile:
        return pq.ParquetFile(
            self._source.arrow_file(),
            metadata=self._metadata,
            read_dictionary=dictionaries,
            buffer_size=buffer_size,
            pre_buffer=False,
            coerce_int96_timestamp_unit=int96_unit,
        )

    @contextlib.contextmanager
    def _decoding(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            message = f"data file {self._path} must decode as Parquet, got: {first_line(error)}"
            raise DataFileError(message) from error

    def _groups_of(self, start: int, stop: int) -> tuple[list[int], int]:
        groups: list[int] = []
        first_row = position = 0
        for number, rows in enumerate(self.row_group_rows):
            if position < stop and position + rows > start:
                first_row = first_row if groups else position
                groups.append(number)
            position += rows
        return groups, first_row

    def column_ranges(self, column: str) -> list[tuple[Any, Any] | None]:
        """The least and greatest value of `column` in each row group that has rows, None where the footer has none."""
        leaf = self._leaves.get(column)
        groups = [self._metadata.row_group(i) for i in range(self._metadata.num_row_groups)]
        found: list[tuple[Any, Any] | None] = []
        for group in groups:
            known = None if leaf is None else group.column(leaf).statistics
            if group.num_rows:
                found.append(_least_and_greatest(known))
        return found

    def integer_range(self, group: int, column: str, wanted: pa.DataType) -> tuple[int, int] | None:
        """Bounds of the values of a top-level column in a row group, as integers that `wanted` stores them as.

        None where the footer does not say, or not for sure: they are of the file's own type, so that must be the same,
        or both signed integers.

        Spec: specs/pruning.md#statistics
        """
        known = self._footer.integer_ranges
        if (group, column, wanted) not in known:
            known[group, column, wanted] = self._integer_range(group, column, wanted)
        return known[group, column, wanted]

    def _integer_range(self, group: int, column: str, wanted: pa.DataType) -> tuple[int, int] | None:
        leaf, number = self._leaves.get(column), self.schema.get_field_index(column)
        if leaf is None or number < 0:
            return None
        own, described = self.schema.field(number).type, self._metadata.schema.column(leaf)
        if own != wanted and not (pa.types.is_signed_integer(own) and pa.types.is_signed_integer(wanted)):
            return None
        if pa.types.is_timestamp(own):
            if json.loads(described.logical_type.to_json()).get("timeUnit") != _TIME_UNITS.get(own.unit):
                return None
        elif not (pa.types.is_signed_integer(own) or pa.types.is_date32(own)):
            return None
        known = self._metadata.row_group(group).column(leaf).statistics
        if described.physical_type not in ("INT32", "INT64") or known is None or not known.has_min_max:
            return None
        return known.min_raw, known.max_raw

    def _is_dictionary(self, column: str) -> bool:
        leaf = self._leaves.get(column)
        if leaf is None or self._metadata.schema.column(leaf).physical_type != "BYTE_ARRAY":
            return False
        for number in range(self._metadata.num_row_groups):
            chunk = self._metadata.row_group(number).column(leaf)
            if not chunk.has_dictionary_page or not _READ_AS_DICTIONARY.issuperset(chunk.encodings):
                return False
            if chunk.total_uncompressed_size > _DICTIONARY_BYTES_PER_VALUE * max(chunk.num_values, 1):
                return False
        return True

    @property
    def _leaves(self) -> dict[str, int]:
        return self._footer.leaves


def _at(values: pa.ChunkedArray, positions: NDArray[np.int64], lengths: NDArray[np.int64]) -> pa.ChunkedArray:
    """The values at `[positions[i], positions[i] + lengths[i])`."""
    if len(positions) == 1:
        return values.slice(int(positions[0]), int(lengths[0]))
    if len(positions) <= _MAX_SLICES:
        pairs = zip(positions.tolist(), lengths.tolist(), strict=True)
        chunks = [chunk for position, length in pairs for chunk in values.slice(position, length).chunks]
        return pa.chunked_array(chunks, values.type)
    return values.take(from_numpy(places_of(positions, lengths), pa.int64()))


def places_of(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """All numbers of the ranges `[starts[i], starts[i] + lengths[i])`."""
    shifts = starts - (np.cumsum(lengths) - lengths)
    places: NDArray[np.int64] = np.arange(int(lengths.sum()), dtype=np.int64) + np.repeat(shifts, lengths)
    return places


def _least_and_greatest(statistics: pq.Statistics | None) -> tuple[Any, Any] | None:
    """None too where Python has no such value: times in nanoseconds, without pandas."""
    if statistics is None or not statistics.has_min_max:
        return None
    try:
        return statistics.min, statistics.max
    except ValueError:
        return None


def has_column(schema: pa.Schema, column: str) -> bool:
    """Whether `schema` has the column or struct leaf `column`."""
    try:
        hashing.resolve_column(schema, column)
    except ColumnNotFoundError:
        return False
    return True
