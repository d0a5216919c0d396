"""`DescribedFile`: one opened Parquet file as its footer describes it: rows, columns, bounds and bloom filters."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from zonebloom.bloom import hashing
from zonebloom.bloom.addresses import MAX_ROWS
from zonebloom.formats.parquet.fields import Meta
from zonebloom.formats.parquet.footer import Footer, read_footer
from zonebloom.formats.parquet.row_groups import column_metadata, is_encrypted
from zonebloom.formats.parquet.statistics import bounds_of, null_count, unpacking
from zonebloom.formats.parquet.thrift import ThriftError
from zonebloom.ground.arrow import parquet as pq
from zonebloom.ground.cached import cached_property
from zonebloom.ground.errors import DataFileError, first_line
from zonebloom.stores.fingerprint import Fingerprint
from zonebloom.stores.stored_file import ByteRange, StoredFile

if TYPE_CHECKING:
    from zonebloom.formats.parquet.bloom import ChunkFilter
    from zonebloom.formats.parquet.column_mapping import StoredName


class DescribedFile:
    """One opened Parquet file; its description is of the version that was opened."""

    def __init__(
        self,
        source: StoredFile,
        naming: Callable[[StoredName], str | None] | None = None,
        logged: Fingerprint | None = None,
        likely: Sequence[ByteRange] = (),
        nanoseconds: frozenset[str] | None = None,
    ) -> None:
        self._sound_times: set[tuple[int, str]] = set()  # row groups and columns of INT96 that have not wrapped
        self.fingerprint: Fingerprint = logged or source.fingerprint
        """The fingerprint of the version that is read; for a file of a table the log's."""
        self._source = source
        self._path = source.path
        try:
            self.footer: Footer = read_footer(source, likely, logged, naming)
            self.metadata: pq.FileMetaData = self.footer.metadata
            """The footer as pyarrow reads it."""
            self.schema: pa.Schema = self.footer.schema
            """The Arrow schema as the reader gives it (with extension types such as UUID), without metadata."""
            self.num_rows: int = self.metadata.num_rows
            self.row_group_rows: tuple[int, ...] = self.footer.row_group_rows
            self._int96_unit = self.footer.int96_unit
            if nanoseconds is not None:  # columns that a table has so; they end in the year 2262
                self._int96_unit = "ns" if nanoseconds and nanoseconds & self.int96_columns else "us"
            self._check_rows()
        except DataFileError:
            source.close()
            raise

    def _check_rows(self) -> None:
        in_groups = self.footer.num_rows_of_groups
        if in_groups != self.num_rows or not 0 <= in_groups <= MAX_ROWS:
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
    def row_group_bytes(self) -> tuple[int, ...]:
        """Compressed bytes of each row group.

        Raises
        ------
        DataFileError
            The footer has an impossible size for a column chunk.
        """
        with self._decoding():
            return self.footer.row_group_bytes

    @cached_property
    def int96_columns(self) -> frozenset[str]:
        """Top-level columns with times as INT96."""
        leaves = self.metadata.schema
        fields = self.footer.fields
        return frozenset(
            field.name for field in fields if any(leaves.column(leaf).physical_type == "INT96" for leaf in field.leaves)
        )

    @property
    def named_schema(self) -> pa.Schema:
        """`schema` without the columns that have two fields of one name.

        Design: docs/design/scan.md#names
        """
        repeated = self.footer.repeated_names
        return pa.schema([field for field in self.schema if repeated.get(field.name, field.name) == field.name])

    def _check_names(self, columns: Sequence[str]) -> None:
        """Raise if the file has one of `columns`, or a field of it, twice.

        Design: docs/design/scan.md#names
        """
        for name, path in self.footer.repeated_names.items():
            if any(column == name or column.startswith(f"{name}.") for column in columns):
                raise DataFileError(f"data file {self._path} must have each column once", got=f"{path} twice")

    def _leaves(self, columns: Sequence[str]) -> list[int]:
        """The leaves of columns and fields of structs that the file has."""
        leaves_read: set[int] = set()
        for column in columns:
            below, leaves = self.footer.fields, range(0)
            for name in hashing.column_path(self.schema, column):
                field = next(child for child in below if child.name == name)
                below, leaves = field.children, field.leaves
            leaves_read.update(leaves)
        return sorted(leaves_read)

    def _leaf(self, column: str) -> int | None:
        """The leaf of a top-level column without fields; None if there are several, or none."""
        fields = [field for field in self.footer.fields if field.name == column]
        return fields[0].leaves[0] if len(fields) == 1 and not fields[0].children else None

    def _chunks(self, groups: Sequence[int], leaves: Sequence[int]) -> list[ByteRange]:
        """Offsets and lengths of column chunks."""
        metas = [self._meta(group, leaf) for group in groups for leaf in leaves]
        starts = [meta.get(Meta.DICTIONARY_OFFSET) or meta[Meta.DATA_OFFSET] for meta in metas]
        return [(start, meta[Meta.COMPRESSED_BYTES]) for start, meta in zip(starts, metas, strict=True)]

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
            return any(is_encrypted(self.footer.chunk(*pair)) for pair in pairs)
        return False

    def column_ranges(self, column: str) -> list[tuple[Any, Any] | None]:
        """Bounds of the values of `column` in each row group with rows, as `pa.array` takes them for its type.

        None if the footer has no bounds, or the type is not a number, date, time or text.
        """
        leaves = self._leaves([column])
        own = hashing.storage_type(hashing.resolve_column(self.schema, column).type) if leaves else None
        unpacked = unpacking(own, self.metadata.schema.column(leaves[0])) if len(leaves) == 1 else None
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
        ranges: dict[tuple[int, str, pa.DataType], tuple[int, int] | None] = self.footer.kept["integer ranges"]
        if (group, column, wanted) not in ranges:
            ranges[group, column, wanted] = self._integer_range(group, column, wanted)
        return ranges[group, column, wanted]

    def _integer_range(self, group: int, column: str, wanted: pa.DataType) -> tuple[int, int] | None:
        leaf = self._leaf(column)
        if leaf is None:
            return None
        own, described = self.schema.field(column).type, self.metadata.schema.column(leaf)
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
    def leaves(self) -> tuple[tuple[str, pa.DataType], ...]:
        """Path and type of each leaf, by its number; the type is null inside of lists and maps."""
        return self.footer.leaves

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
            return chunk_filters(self.footer, partial(self.footer.read_ranges, self._source), leaf, groups)

    def num_nulls(self, group: int, leaf: int) -> int | None:
        """Rows of a row group in which a leaf is null; None if the footer does not have the number."""
        if not self.metadata.schema.column(leaf).max_definition_level:
            return 0
        with self._decoding():
            return null_count(self._meta(group, leaf))

    def _meta(self, group: int, leaf: int) -> dict[int, Any]:
        """The ColumnMetaData of a chunk, by field."""
        return column_metadata(self.footer.chunk(group, leaf))
