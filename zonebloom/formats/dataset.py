"""`Dataset`: a data set as a user names it; `DatasetSnapshot`: its files at one moment, listed and read.

`folder.ParquetDataset` lists folders and files; `delta`, `iceberg` and `lance` are tables, whose logs list the files.
An `OpenedFile` reads one of the files: `parquet.file.DataFile`, or a fragment of a Lance table.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import pyarrow as pa

from zonebloom.bloom.hashing import column_path
from zonebloom.ground.errors import ColumnNotFoundError
from zonebloom.stores.fingerprint import Fingerprint
from zonebloom.stores.store import Located, Traffic
from zonebloom.stores.stored_file import ByteRange

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, slots=True)
class Declared:
    """A table as its log describes it; plain files have no description."""

    schema: pa.Schema
    """The columns in the table's order, with those of partitions; a column that a file does not have is null there."""
    partition_columns: tuple[str, ...]
    """Columns whose values come from the log, not from the files."""
    column_ids: Mapping[str, str]
    """By column and leaf of a struct, all that says which values of a file it has; empty if that is the name alone."""
    state: Mapping[str, Any]
    """The version of the table, for JSON and for people."""
    constant_columns: tuple[str, ...] = ()
    """Columns that the files have, and for which the log has one value for all rows of a file, at least for some."""


def column_id(name: str, declared: Declared | None) -> str:
    """What a column is below its name: its id, empty if the table has no such column; without ids its path.

    If this id and the file's fingerprint stay the same, the zones of the column stay right. Nothing else in a table's
    description may change the values of a file.

    Design: docs/design/tables.md#column-ids
    """
    if declared is None:
        return name
    if declared.column_ids:
        return declared.column_ids.get(name, "")
    try:
        path = column_path(declared.schema, name)
    except ColumnNotFoundError:
        return ""
    return path_id(path)


def path_id(path: Sequence[str]) -> str:
    """The id of the column at `path`. A name with a dot is quoted: column ``a.b`` is not the leaf ``b`` of ``a``."""
    return ".".join("`{}`".format(part.replace("`", "``")) if {".", "`"} & set(part) else part for part in path)


class OpenedFile(Protocol):
    """One opened data file: its shape, columns for a build, row ranges for a scan."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    @property
    def fingerprint(self) -> Fingerprint:
        """Size, time and tag of the version that is open."""

    def check_unchanged(self) -> None:
        """Raise `DataFileError` if the file was written to since it was opened."""

    @property
    def num_rows(self) -> int:
        """Rows of the file, deleted ones included."""

    @property
    def row_group_rows(self) -> tuple[int, ...]:
        """Rows of each row group; a row group is what one step of a scan reads."""

    @property
    def row_group_bytes(self) -> tuple[int, ...]:
        """Compressed bytes of each row group."""

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema as the reader gives it, without metadata."""

    @property
    def named_schema(self) -> pa.Schema:
        """`schema` without the columns that hold two fields of one name."""

    def column_batches(self, columns: Sequence[str], start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Rows `[start, stop)` of `columns` (leaves of structs have dots), in order; a file may have only some.

        Raises
        ------
        DataFileError
            They cannot be read.
        """

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
        """Fetch what `read_rows` reads of `columns`, and at once that of `more`; nothing if a round more costs less.

        Returns the bytes of `more`, at most `most_bytes`; 0 if nothing is fetched.
        """

    def read_rows(self, group: int, starts: ArrayLike, stops: ArrayLike, columns: Sequence[str]) -> pa.Table:
        """The rows `[starts[i], stops[i])` of one row group, in order, of top-level `columns` in the file.

        Raises
        ------
        DataFileError
            They cannot be read.
        """

    def integer_range(self, group: int, column: str, wanted: pa.DataType) -> tuple[int, int] | None:
        """Bounds of a column's values in a row group, as integers that `wanted` stores them as; None if unknown."""


class Dataset(Protocol):
    """The location of data files; `pin` gives the files of one moment."""

    @property
    def location(self) -> str:
        """Folder, URL or table that holds all files, as a user writes it."""

    @property
    def traffic(self) -> Traffic:
        """The network traffic so far."""

    def pin(self) -> DatasetSnapshot:
        """The data set as it is now; for a table one version, with its listing, deletes and columns.

        Raises
        ------
        DataFileError
            The table is gone, or has a part that cannot be read.
        """


class DatasetSnapshot(Located, Protocol):
    """Data files that can be listed and opened; paths of files are relative to `location`, with `/`."""

    @property
    def declared(self) -> Declared | None:
        """The description of a table; None for plain files."""
        return None

    def partition_values(self, path: str, fields: Iterable[pa.Field]) -> dict[str, pa.Scalar] | None:
        """The partition values of a file, in the types of `fields`; None if a value does not convert to its type.

        A field without a value here is in the file itself, or null.
        """

    def path_values(self, path: str) -> Mapping[str, Any]:
        """Values of columns that the file at `path` may not have: texts from folders, Arrow scalars from a log.

        If the file has the column, its own values count.
        """

    def list(self, known_names: Iterable[str] = ()) -> dict[str, Fingerprint]:
        """The current data files, by path in order.

        Parameters
        ----------
        known_names
            Paths that most of the files probably have: a folder of an object store is then listed in parts at once.

        Raises
        ------
        DataFileError
            The data set itself is gone or cannot be listed.
        """

    def num_skipped(self) -> int:
        """The number of Parquet files in the folder that are skipped, since a name begins with `_` or `.`.

        Some engines read them.
        """

    def list_under(self, paths: Sequence[str]) -> dict[str, Fingerprint]:
        """As `list`, but only the files at `paths` and in the folders at `paths`; nothing else is listed."""

    def list_partitions(self, wanted: Sequence[Mapping[str, str | None]]) -> dict[str, Fingerprint]:
        """As `list`, but only files in folders that agree with one of `wanted` (see `hive.agrees`).

        Other folders are not listed, if the store has folders.
        """

    def absolute(self, path: str) -> str:
        """The absolute path or the URL of a data file."""

    def open(self, path: str, listed: Fingerprint | None = None, likely: Sequence[ByteRange] = ()) -> OpenedFile:
        """The data file at `path`, opened; close it, or use it as a context manager.

        For an object that was `listed` no new request for the fingerprint is made, and reads are of that version or
        fail. A local file is opened as it is now.

        Parameters
        ----------
        likely
            Offsets and lengths of bytes that will probably be read: they are fetched with the footer.

        Raises
        ------
        DataFileError
            The file is missing, or no whole data file.
        """

    def own_number(self, path: str) -> int | None:  # noqa: ARG002 - tables override it
        """The table's own number of the fragment at `path`; None if fragments have no numbers."""
        return None

    def deleted_rows(self, path: str) -> NDArray[np.int64] | None:  # noqa: ARG002 - tables override it
        """Offsets of the rows of a file that its table deleted without rewriting the file, in order; None if none.

        Zones still have these rows, and a scan leaves them out.
        """
        return None

    def relative(self, path: str | os.PathLike[str]) -> str:
        """`path`, which is absolute or relative to the data set, as a path relative to it.

        Raises
        ------
        InvalidArgumentError
            The path is outside of the data set.
        """

    def index_places(self) -> tuple[str, ...]:
        """Possible locations of the index, the default first; empty if the caller must name one."""

    def check_index(self, location: str) -> None:
        """Refuse a location at which readers would take the index for data.

        Raises
        ------
        InvalidArgumentError
            The location is in the data set, and its name does not hide it.
        """

    def to_json(self, index_location: str) -> dict[str, Any]:
        """The description of the data set in a version file."""
