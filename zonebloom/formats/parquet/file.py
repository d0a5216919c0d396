"""`DataFile`: the rows of one opened Parquet file: columns for a build, row ranges for a scan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from zonebloom.bloom import hashing
from zonebloom.formats.parquet.described_file import DescribedFile
from zonebloom.formats.parquet.fields import Meta
from zonebloom.ground.arrow import parquet as pq, taken, without_views
from zonebloom.ground.errors import ColumnNotFoundError, DataFileError, InvalidArgumentError, first_line
from zonebloom.stores.fingerprint import Fingerprint
from zonebloom.stores.ranges import coalesced
from zonebloom.stores.store import ROUND_BYTES
from zonebloom.stores.stored_file import ByteRange

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from zonebloom.formats.dataset import DatasetSnapshot
    from zonebloom.formats.parquet.pages import Ranges

_BATCH_BYTES = 8 << 20
"""Decoded bytes of a batch: large enough for little Python work a row, small enough for the last cache."""
_MIN_BATCH_ROWS, _MAX_BATCH_ROWS = 1 << 14, 1 << 20
_VALUE_BYTES = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 8}
_TEXT_BYTES = 128
"""Assumed bytes of a value without a fixed width: one such column is read in batches of 65 536 rows."""
_MAX_SLICES = 64
"""Most ranges that are kept as slices of an array; more are gathered into a new array."""
_DICTIONARY_BYTES_PER_VALUE = 6
"""A string column chunk with a dictionary and at most 6 bytes a value is read as indices into the dictionary."""
_READ_AS_DICTIONARY = frozenset({0, 2, 3, 4, 8})
"""Encodings that pyarrow 26 can read as a dictionary: PLAIN, PLAIN_DICTIONARY, RLE, BIT_PACKED, RLE_DICTIONARY. Spark
may write deltas after a dictionary is full."""


class DataFile(DescribedFile):
    """The rows of one opened Parquet file; all reads are of the version that was opened."""

    def column_batches(self, columns: Sequence[str], start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Rows `[start, stop)` of `columns` (leaves of structs have dots), in order, in batches of about 8 MiB.

        A column that the file does not have is left out. Strings that the file stores with a small dictionary are
        dictionary arrays.

        Raises
        ------
        DataFileError
            A page cannot be decoded, or there are fewer rows than the footer says.
        """
        self._check_names(columns)
        groups, position = self._groups_of(start, stop)
        present = [column for column in columns if has_column(self.schema, column)]
        if not groups or not present:
            for first in range(start, stop, _MAX_BATCH_ROWS):
                yield pa.RecordBatch.from_struct_array(pa.nulls(min(_MAX_BATCH_ROWS, stop - first), pa.struct([])))
            return
        with self._decoding(present):
            for batch in self._decoded(present, groups, stop - position):
                first, last = max(start - position, 0), min(stop - position, batch.num_rows)
                if first < last:
                    yield batch.slice(first, last - first)
                position += batch.num_rows
                if position >= stop:
                    break

    def _decoded(self, columns: list[str], groups: list[int], num_rows: int) -> Iterator[pa.RecordBatch]:
        """At least the first `num_rows` rows of row groups; few more if the last group is wanted in part."""
        leaves = self._leaves(columns)
        alone = [leaf for name in columns if (leaf := self._leaf(name)) is not None]
        dictionaries = [leaf for leaf in alone if self._is_dictionary(leaf)]
        self._will_need(groups, leaves)
        reader = self._reader(dictionaries, self._int96_unit)
        row_bytes = sum(4 if leaf in dictionaries else self._value_bytes(leaf) for leaf in leaves)
        batch_rows = max(_MIN_BATCH_ROWS, min(_BATCH_BYTES // row_bytes, _MAX_BATCH_ROWS))
        rows_before_last = sum(self.row_group_rows[number] for number in groups[:-1])
        is_nested = any(self.schema.get_field_index(column) < 0 for column in columns)
        whole = [[number] for number in groups[:-1]] if is_nested else [groups[:-1]]  # pyarrow 26 joins no nested text
        for run, rows in (
            *((run, batch_rows) for run in whole),
            (groups[-1:], min(batch_rows, num_rows - rows_before_last)),
        ):
            held = 0
            for batch in reader.iter_batches(rows, run, leaves, use_threads=False) if run else ():
                held += batch.num_rows
                if self._int96_unit == "ns":
                    self._check_times(batch, run)
                yield batch
            self._check_held(held, run)

    def _check_held(self, held: int, groups: Sequence[int]) -> None:
        """Raise if pages have fewer values than the footer says; pyarrow 26 gives no error."""
        rows = sum(self.row_group_rows[number] for number in groups)
        if held != rows:
            numbers = ", ".join(map(str, groups))
            raise DataFileError(f"row group {numbers} of data file {self._path} must hold {rows} rows", got=held)

    def _value_bytes(self, leaf: int) -> int:
        described = self.metadata.schema.column(leaf)
        if described.physical_type == "FIXED_LEN_BYTE_ARRAY":
            return max(int(described.length), 1)
        return _VALUE_BYTES.get(described.physical_type, _TEXT_BYTES)

    def fetch(
        self,
        group: int,
        starts: ArrayLike,
        stops: ArrayLike,
        columns: Sequence[str],
        more: Sequence[str],
        *,
        most_bytes: int,
    ) -> int:
        """As `OpenedFile.fetch`; a file on a disk is not fetched.

        Raises
        ------
        DataFileError
            The footer is damaged.

        Design: docs/design/scan.md#rounds
        """
        if not self._source.is_remote:
            return 0
        ranges = np.asarray(starts, np.int64), np.asarray(stops, np.int64)
        spans = self._spans(group, ranges, [*columns, *more])
        extra = coalesced([span for name, parts in spans.items() if name not in columns for span in parts])
        lengths = [length for _, length in extra]
        if max(lengths, default=0) > ROUND_BYTES or sum(lengths) > most_bytes:
            return 0
        self._source.will_need([span for parts in spans.values() for span in parts])
        return sum(lengths)

    def _spans(self, group: int, ranges: Ranges, columns: Sequence[str]) -> dict[str, list[ByteRange]]:
        """By column, the offsets and lengths of what `read_rows` reads; unknown page indexes are read together."""
        from zonebloom.formats.parquet.pages import spans_of_cuts  # noqa: PLC0415 - a search does without

        present = [column for column in dict.fromkeys(columns) if self.schema.get_field_index(column) >= 0]
        with self._decoding(present):
            cuts = spans_of_cuts(self._source, self.footer, group, ranges, present) if present else {}
            return {name: cuts.get(name) or self._chunks([group], self._leaves([name])) for name in present}

    def read_rows(
        self,
        group: int,
        starts: ArrayLike,
        stops: ArrayLike,
        columns: Sequence[str],
        *,
        int96_unit: Literal["ns", "us"] | None = None,
    ) -> pa.Table:
        """The rows `[starts[i], stops[i])` of one row group, in order, of top-level `columns`.

        Columns with a page index are read by pages, the others by whole chunks. A column that the file does not have is
        left out. Views are returned as plain text or bytes, since pyarrow 26 has no kernels that filter or take them.

        Parameters
        ----------
        starts, stops
            Row offsets within the row group: sorted, disjoint, not empty.
        int96_unit
            The unit of times in INT96; nanoseconds overflow beyond the years 1677 to 2262. By default that of the file.

        Raises
        ------
        DataFileError
            A page cannot be decoded, or the file has a column twice.

        Design: docs/design/pages.md#cut
        """
        from zonebloom.formats.parquet.pages import read_cuts  # noqa: PLC0415 - a search does without

        self._check_names(columns)
        int96_unit = int96_unit or self._int96_unit
        ranges = np.asarray(starts, np.int64), np.asarray(stops, np.int64)
        lengths = ranges[1] - ranges[0]
        present = [column for column in dict.fromkeys(columns) if self.schema.get_field_index(column) >= 0]
        if not present:
            return pa.Table.from_struct_array(pa.nulls(int(lengths.sum()), pa.struct([])))
        whole_only = self.int96_columns if int96_unit != self.footer.int96_unit else frozenset()
        is_whole = len(lengths) == 1 and lengths[0] == self.row_group_rows[group]
        alone = [] if is_whole else [name for name in present if name not in whole_only]
        cuts = read_cuts(self._source, self.footer, group, ranges, alone) if alone else {}
        others = [name for name in present if name not in cuts]
        whole = self._read_row_group(group, others, int96_unit) if others else None
        columns_read = []
        for name in present:
            if whole is None or name in cuts:
                values, positions = cuts[name].values, cuts[name].positions_of(ranges[0])
            else:
                values, positions = whole[name], ranges[0]
            plain = without_views(values.type)
            columns_read.append(_at(values if plain == values.type else values.cast(plain), positions, lengths))
        fields = [
            self.schema.field(name).with_type(column.type) for name, column in zip(present, columns_read, strict=True)
        ]
        table = pa.table(columns_read, schema=pa.schema(fields))
        if int96_unit == "ns":
            self._check_times(table, [group])
        return table

    def _check_times(self, read: pa.Table | pa.RecordBatch, groups: Sequence[int]) -> None:
        """Raise if nanoseconds of INT96 have wrapped: they end in the year 2262, and pyarrow 26 gives no error.

        So they are read again, in microseconds, once for each row group.
        """
        for name in self.int96_columns.intersection(read.schema.names):
            others = [number for number in groups if (number, name) not in self._sound_times]
            if not others:
                continue
            with self._decoding([name]):
                micros = self._reader([], "us").read_row_groups(others, self._leaves([name]), use_threads=False)
            try:
                micros.column(0).cast(self._reader([]).schema_arrow.field(name).type)
            except pa.ArrowInvalid as error:
                raise DataFileError(
                    f"times of INT96 in column {name} of data file {self._path} must lie from 1677 to 2262",
                    got=first_line(error),
                    do="write them as TIMESTAMP_MICROS",
                ) from error
            self._sound_times.update((number, name) for number in others)

    def _read_row_group(self, number: int, columns: Sequence[str], int96_unit: str) -> pa.Table:
        leaves = self._leaves(columns)
        with self._decoding(columns):
            self._will_need([number], leaves)
            reader = self._reader([], int96_unit=int96_unit)
            table = reader.read_row_group(number, leaves, use_threads=False)
        self._check_held(table.num_rows, [number])
        return table

    def _will_need(self, groups: Sequence[int], leaves: Sequence[int]) -> None:
        """Start fetching the column chunks of a remote source, all at once."""
        if self._source.is_remote:
            self._source.will_need(self._chunks(groups, leaves))

    def _reader(self, dictionaries: list[int], int96_unit: str = "ns") -> Any:
        """A reader that takes numbers of leaves: to pyarrow a name with a dot may mean several leaves.

        It reads whole chunks. In pieces of 256 KiB numbers are built faster by 3 to 8 %, but a damaged page may then
        take 2 GiB of memory, however small the file.
        """
        return pq.ParquetFile(
            self._source.arrow_file(),
            metadata=self.metadata,
            read_dictionary=dictionaries,
            pre_buffer=False,
            coerce_int96_timestamp_unit=int96_unit,
        ).reader

    def _groups_of(self, start: int, stop: int) -> tuple[list[int], int]:
        groups: list[int] = []
        first_row = position = 0
        for number, rows in enumerate(self.row_group_rows):
            if position < stop and position + rows > start:
                first_row = first_row if groups else position
                groups.append(number)
            position += rows
        return groups, first_row

    def _is_dictionary(self, leaf: int) -> bool:
        """Whether pyarrow gives the dictionary of a column as it is, and that is worth it.

        DuckDB has '' for each label of an ENUM without rows; pyarrow 26 drops repeated values, and keeps their indices.
        """
        if self.metadata.schema.column(leaf).physical_type != "BYTE_ARRAY":
            return False
        if self.footer.created_by.startswith(b"DuckDB"):
            return False
        for group in range(len(self.row_group_rows)):
            meta = self._meta(group, leaf)
            if Meta.DICTIONARY_OFFSET not in meta or not _READ_AS_DICTIONARY.issuperset(meta[Meta.ENCODINGS]):
                return False
            if meta[Meta.BYTES] > _DICTIONARY_BYTES_PER_VALUE * max(meta[Meta.NUM_VALUES], 1):
                return False
        return True


def open_parquet(
    dataset: DatasetSnapshot, path: str, listed: Fingerprint | None = None, likely: Sequence[ByteRange] = ()
) -> DataFile:
    """As `DatasetSnapshot.open`, for what only Parquet files have.

    Raises
    ------
    DataFileError
        It is missing, or no whole Parquet file.
    """
    file = dataset.open(path, listed, likely)
    if not isinstance(file, DataFile):
        raise DataFileError(
            "data files must be Parquet here",
            got=f"{dataset.absolute(path)} of a Lance table",
            do="search or scan its index",
        )
    return file


def _at(values: pa.ChunkedArray, positions: NDArray[np.int64], lengths: NDArray[np.int64]) -> pa.ChunkedArray:
    """The values at `[positions[i], positions[i] + lengths[i])`."""
    if len(positions) == 1:
        return values.slice(int(positions[0]), int(lengths[0]))
    if len(positions) <= _MAX_SLICES:
        pairs = zip(positions.tolist(), lengths.tolist(), strict=True)
        chunks = [chunk for position, length in pairs for chunk in values.slice(position, length).chunks]
        return pa.chunked_array(chunks, values.type)
    return taken(values, places_of(positions, lengths))


def places_of(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers of all ranges `[starts[i], starts[i] + lengths[i])`."""
    shifts = starts - (np.cumsum(lengths) - lengths)
    places: NDArray[np.int64] = np.arange(int(lengths.sum()), dtype=np.int64) + np.repeat(shifts, lengths)
    return places


def has_column(schema: pa.Schema, column: str) -> bool:
    """Whether `schema` has the column or struct leaf `column`, once or several times."""
    try:
        hashing.resolve_column(schema, column)
    except ColumnNotFoundError:
        return False
    except InvalidArgumentError:  # there are several
        return True
    return True
