"""`DataFile`: one opened Parquet file; its shape, columns for a build, row groups for a scan."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import pyarrow as pa

from zonebloom.bloom import hashing
from zonebloom.bloom.addresses import MAX_ROWS
from zonebloom.formats.parquet.footer import read_footer
from zonebloom.formats.parquet.row_groups import (
    COMPRESSED_BYTES,
    DATA_OFFSET,
    DICTIONARY_OFFSET,
    ENCODINGS,
    NUM_VALUES,
    UNCOMPRESSED_BYTES,
    column_metadata,
    is_encrypted,
)
from zonebloom.formats.parquet.statistics import bounds_of, null_count, unpacking
from zonebloom.formats.parquet.thrift import ThriftError
from zonebloom.ground.arrow import from_numpy, without_views
from zonebloom.ground.arrow import parquet as pq
from zonebloom.ground.errors import ColumnNotFoundError, DataFileError, InvalidArgumentError, first_line
from zonebloom.stores.fingerprint import Fingerprint
from zonebloom.stores.ranges import coalesced
from zonebloom.stores.store import ROUND_BYTES
from zonebloom.stores.stored_file import ByteRange, StoredFile

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from zonebloom.formats.dataset import DatasetSnapshot
    from zonebloom.formats.parquet.bloom import ChunkFilter
    from zonebloom.formats.parquet.column_mapping import StoredName
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


class DataFile:
    """One opened Parquet file; all reads are of the version that was opened."""

    def __init__(
        self,
        source: StoredFile,
        naming: Callable[[StoredName], str | None] | None = None,
        logged: Fingerprint | None = None,
        likely: Sequence[ByteRange] = (),
        int96_unit: Literal["ns", "us"] = "ns",
    ) -> None:
        self._int96_unit = int96_unit
        self.fingerprint: Fingerprint = logged or source.fingerprint
        """The fingerprint of the version that is read; for a file of a table the log's."""
        self._source = source
        self._path = source.path
        try:
            self._footer = read_footer(source, likely, logged, naming)
            self._metadata = self._footer.metadata
            self._check_rows()
        except DataFileError:
            source.close()
            raise

    def _check_rows(self) -> None:
        in_groups = sum(self.row_group_rows)
        if in_groups != self.num_rows or in_groups > MAX_ROWS or min(self.row_group_rows, default=0) < 0:
            raise DataFileError(
                f"the row groups of data file {self._path} must hold its {self.num_rows} rows, at most {MAX_ROWS}",
                got=in_groups,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._source.close()

    def check_unchanged(self) -> None:
        """As `OpenedFile.check_unchanged`."""
        if self._source.current_fingerprint() != self._source.fingerprint:
            raise DataFileError(
                f"data file {self._path} must not change while it is read", got="a write", do="run again"
            )

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
        """Compressed bytes of each row group.

        Raises
        ------
        DataFileError
            The footer has an impossible size for a column chunk.
        """
        with self._decoding():
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
        """Top-level columns with times as INT96, which pyarrow reads in nanoseconds."""
        leaves = self._metadata.schema
        fields = self._footer.fields
        return frozenset(
            field.name for field in fields if any(leaves.column(leaf).physical_type == "INT96" for leaf in field.leaves)
        )

    @property
    def named_schema(self) -> pa.Schema:
        """`schema` without the columns that have two fields of one name.

        Design: docs/design/scan.md#names
        """
        repeated = self._footer.repeated_names
        return pa.schema([field for field in self.schema if repeated.get(field.name, field.name) == field.name])

    def _check_names(self, columns: Sequence[str]) -> None:
        """Raise if the file has one of `columns`, or a field of it, twice.

        Design: docs/design/scan.md#names
        """
        for name, path in self._footer.repeated_names.items():
            if any(column == name or column.startswith(f"{name}.") for column in columns):
                raise DataFileError(f"data file {self._path} must have each column once", got=f"{path} twice")

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
        reader = self._reader(dictionaries)
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
                yield batch
            self._check_held(held, run)

    def _check_held(self, held: int, groups: Sequence[int]) -> None:
        """Raise if pages have fewer values than the footer says; pyarrow 26 gives no error."""
        rows = sum(self.row_group_rows[number] for number in groups)
        if held != rows:
            numbers = ", ".join(map(str, groups))
            raise DataFileError(f"row group {numbers} of data file {self._path} must hold {rows} rows", got=held)

    def _value_bytes(self, leaf: int) -> int:
        described = self._metadata.schema.column(leaf)
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
            cuts = spans_of_cuts(self._source, self._footer, group, ranges, present) if present else {}
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
        whole_only = self.int96_columns if int96_unit != "ns" else frozenset()
        is_whole = len(lengths) == 1 and lengths[0] == self.row_group_rows[group]
        alone = [] if is_whole else [name for name in present if name not in whole_only]
        cuts = read_cuts(self._source, self._footer, group, ranges, alone) if alone else {}
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
        return pa.table(columns_read, schema=pa.schema(fields))

    def _read_row_group(self, number: int, columns: Sequence[str], int96_unit: str) -> pa.Table:
        leaves = self._leaves(columns)
        with self._decoding(columns):
            self._will_need([number], leaves)
            reader = self._reader([], int96_unit=int96_unit)
            table = reader.read_row_group(number, leaves, use_threads=False)
        self._check_held(table.num_rows, [number])
        return table

    def _leaves(self, columns: Sequence[str]) -> list[int]:
        """The leaves of columns and fields of structs that the file has."""
        leaves_read: set[int] = set()
        for column in columns:
            below, leaves = self._footer.fields, range(0)
            for name in hashing.column_path(self.schema, column):
                field = next(child for child in below if child.name == name)
                below, leaves = field.children, field.leaves
            leaves_read.update(leaves)
        return sorted(leaves_read)

    def _leaf(self, column: str) -> int | None:
        """The leaf of a top-level column without fields; None if there are several, or none."""
        fields = [field for field in self._footer.fields if field.name == column]
        return fields[0].leaves[0] if len(fields) == 1 and not fields[0].children else None

    def _will_need(self, groups: Sequence[int], leaves: Sequence[int]) -> None:
        """Start fetching the column chunks of a remote source, all at once."""
        if self._source.is_remote:
            self._source.will_need(self._chunks(groups, leaves))

    def _chunks(self, groups: Sequence[int], leaves: Sequence[int]) -> list[ByteRange]:
        """Offsets and lengths of column chunks."""
        metas = [self._meta(group, leaf) for group in groups for leaf in leaves]
        return [(meta.get(DICTIONARY_OFFSET) or meta[DATA_OFFSET], meta[COMPRESSED_BYTES]) for meta in metas]

    def _reader(self, dictionaries: list[int], int96_unit: str = "ns") -> Any:
        """A reader that takes numbers of leaves: to pyarrow a name with a dot may mean several leaves.

        It reads whole chunks. In pieces of 256 KiB numbers are built faster by 3 to 8 %, but a damaged page may then
        take 2 GiB of memory, however small the file.
        """
        return pq.ParquetFile(
            self._source.arrow_file(),
            metadata=self._metadata,
            read_dictionary=dictionaries,
            pre_buffer=False,
            coerce_int96_timestamp_unit=int96_unit,
        ).reader

    @contextlib.contextmanager
    def _decoding(self, columns: Sequence[str] = ()) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError, ThriftError) as error:
            encrypted = next((column for column in columns if self._is_encrypted(column)), None)
            message = f"data file {self._path} must decode as Parquet, got: {first_line(error)}"
            if encrypted is not None:
                message = f"column {encrypted} of data file {self._path} must be readable, got one that is encrypted"
            raise DataFileError(message) from error

    def _is_encrypted(self, column: str) -> bool:
        with contextlib.suppress(ThriftError):
            pairs = [(group, leaf) for group in range(len(self.row_group_rows)) for leaf in self._leaves([column])]
            return any(is_encrypted(self._footer.chunk(*pair)) for pair in pairs)
        return False

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
        """Bounds of the values of `column` in each row group with rows, as `pa.array` takes them for its type.

        None if the footer has no bounds, or the type is not a number, date, time or text.
        """
        leaves = self._leaves([column])
        own = hashing.storage_type(hashing.resolve_column(self.schema, column).type) if leaves else None
        unpacked = unpacking(own, self._metadata.schema.column(leaves[0])) if len(leaves) == 1 else None
        groups = [number for number, num_rows in enumerate(self.row_group_rows) if num_rows]
        if unpacked is None:
            return [None] * len(groups)
        with self._decoding([column]):
            return [bounds_of(self._meta(group, leaves[0]), unpacked) for group in groups]

    def integer_range(self, group: int, column: str, wanted: pa.DataType) -> tuple[int, int] | None:
        """Bounds of the values of a top-level column in a row group, as the integers that type `wanted` stores.

        None if the footer has no reliable bounds. The bounds are of the file's own type, which must equal `wanted`, or
        both must be signed integers.

        Design: docs/design/scan.md#statistics
        """
        ranges: dict[tuple[int, str, pa.DataType], tuple[int, int] | None] = self._footer.kept["integer ranges"]
        if (group, column, wanted) not in ranges:
            ranges[group, column, wanted] = self._integer_range(group, column, wanted)
        return ranges[group, column, wanted]

    def _integer_range(self, group: int, column: str, wanted: pa.DataType) -> tuple[int, int] | None:
        leaf = self._leaf(column)
        if leaf is None:
            return None
        own, described = self.schema.field(column).type, self._metadata.schema.column(leaf)
        t = pa.types
        if own != wanted and not (t.is_signed_integer(own) and t.is_signed_integer(wanted)):
            return None
        if not (t.is_signed_integer(own) or t.is_date32(own) or t.is_timestamp(own)):
            return None
        unpacked = unpacking(own, described)
        if unpacked is None or described.physical_type not in ("INT32", "INT64"):
            return None
        with self._decoding([column]):
            return bounds_of(self._meta(group, leaf), unpacked)

    @property
    def footer_start(self) -> int:
        """Position of the footer in the file."""
        return self._footer.start

    @property
    def leaves(self) -> tuple[tuple[str, pa.DataType], ...]:
        """Path and type of each leaf, by its number; the type is null inside of lists and maps."""
        return self._footer.leaves

    def leaf_of(self, column: str) -> int | None:
        """The leaf with the path `column`; None if there is none, or several."""
        numbers = [number for number, (path, _type) in enumerate(self.leaves) if path == column]
        return numbers[0] if len(numbers) == 1 else None

    def own_filters(self, leaf: int, groups: Iterable[int] | None = None) -> list[ChunkFilter]:
        """The file's own bloom filters of a leaf, in order of row groups; nothing else is read.

        Spec: specs/parquet-blooms.md#chunk_filters
        """
        from zonebloom.formats.parquet.bloom import chunk_filters  # noqa: PLC0415 - most files have none

        with self._decoding():
            return chunk_filters(self._footer, partial(self._footer.read_ranges, self._source), leaf, groups)

    def num_nulls(self, group: int, leaf: int) -> int | None:
        """Rows of a row group in which a leaf is null; None if the footer does not have the number."""
        if not self._metadata.schema.column(leaf).max_definition_level:
            return 0
        with self._decoding():
            return null_count(self._meta(group, leaf))

    def _is_dictionary(self, leaf: int) -> bool:
        if self._metadata.schema.column(leaf).physical_type != "BYTE_ARRAY":
            return False
        for group in range(len(self.row_group_rows)):
            meta = self._meta(group, leaf)
            if DICTIONARY_OFFSET not in meta or not _READ_AS_DICTIONARY.issuperset(meta[ENCODINGS]):
                return False
            if meta[UNCOMPRESSED_BYTES] > _DICTIONARY_BYTES_PER_VALUE * max(meta[NUM_VALUES], 1):
                return False
        return True

    def _meta(self, group: int, leaf: int) -> dict[int, Any]:
        """The ColumnMetaData of a chunk, by field."""
        return column_metadata(self._footer.chunk(group, leaf))


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
    return values.take(from_numpy(places_of(positions, lengths), pa.int64()))


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
