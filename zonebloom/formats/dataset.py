"""`Dataset`: what is indexed, as a user names it; `DatasetSnapshot`: its files at one moment, listed and read.

`folder.ParquetDataset` lists folders and files; `delta`, `iceberg` and `lance` are tables, whose logs say what is in
them. An `OpenedFile` reads one of the files: `parquet.file.DataFile`, or a fragment of a Lance table.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

import pyarrow as pa

from zonebloom.storage.fragments import Fingerprint
from zonebloom.storage.stores.store import Traffic

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

__all__ = ["Dataset", "DatasetSnapshot", "Declared", "OpenedFile"]


@dataclass(frozen=True, slots=True)
class Declared:
    """What the log of a table says of it; plain files say nothing."""

    schema: pa.Schema
    """The columns in the table's order, those of partitions too; what a file lacks of them is null."""
    partition_columns: tuple[str, ...]
    """Columns whose values the log gives, whatever the files hold."""
    column_ids: Mapping[str, str]
    """By column, and by leaf of a struct, what stays when the name changes; empty where the name is all there is."""
    state: Mapping[str, Any]
    """Which version of the table this is, for JSON and for people."""
    constant_columns: tuple[str, ...] = ()
    """Columns of which the log gives the one value in all rows of a file, for some files at least; files hold them."""


class OpenedFile(Protocol):
    """One opened data file: its shape, columns for a build, row ranges for a scan."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    @property
    def fingerprint(self) -> Fingerprint:
        """Of the version that is being read."""
        ...

    def check_unchanged(self) -> None:
        """Raise `DataFileError` if the file was written to since it was opened."""
        ...

    @property
    def num_rows(self) -> int:
        """Rows of the file, deleted ones included."""
        ...

    @property
    def row_group_rows(self) -> tuple[int, ...]:
        """Rows of each row group; a row group is what one step of a scan reads."""
        ...

    @property
    def row_group_bytes(self) -> tuple[int, ...]:
        """Compressed bytes of each row group."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema as the reader gives it, without metadata."""
        ...

    @property
    def named_schema(self) -> pa.Schema:
        """`schema` without the columns that hold two fields of one name."""
        ...

    def column_batches(self, columns: Sequence[str], start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Rows `[start, stop)` of `columns` (leaves of structs have dots), in order; the file may lack some columns.

        Raises
        ------
        DataFileError
            They cannot be read.
        """
        ...

    def read_rows(self, group: int, starts: ArrayLike, stops: ArrayLike, columns: Sequence[str]) -> pa.Table:
        """The rows `[starts[i], stops[i])` of one row group, in order, of top-level `columns`; the file may lack some.

        Raises
        ------
        DataFileError
            They cannot be read.
        """
        ...

    def integer_range(self, group: int, column: str, wanted: pa.DataType) -> tuple[int, int] | None:
        """Bounds of a column's values in a row group, as integers that `wanted` stores them as; None where unknown."""
        ...


class Dataset(Protocol):
    """Where data files are; `pin` says which ones."""

    @property
    def location(self) -> str:
        """Folder, URL or table that holds all files, as a user writes it."""
        ...

    @property
    def traffic(self) -> Traffic:
        """What went over the network so far."""
        ...

    def pin(self) -> DatasetSnapshot:
        """The data set as it is now: of a table one version, whose listing, deletes and columns belong together.

        Raises
        ------
        DataFileError
            The table is gone, or has something that cannot be read.
        """
        ...


class DatasetSnapshot(Protocol):
    """Data files that can be listed and opened; paths of files are relative to `location`, with `/`."""

    @property
    def location(self) -> str:
        """As that of the data set."""
        ...

    @property
    def is_remote(self) -> bool:
        """Whether a request for a file goes over the network."""
        ...

    @property
    def traffic(self) -> Traffic:
        """What went over the network so far."""
        ...

    def declared(self) -> Declared | None:
        """What a table says of itself; None where only the files know."""
        return None

    def partition_values(self, path: str, fields: Iterable[pa.Field]) -> dict[str, pa.Scalar] | None:
        """The partition values of a file, in the types of `fields`; None where one does not fit its type.

        A field that is left out is in the file itself, or null.
        """
        ...

    def path_values(self, path: str) -> Mapping[str, Any]:
        """The values of columns that the file at `path` may not hold: folders give texts, a log gives Arrow's scalars.

        The file's own column comes first.
        """
        ...

    def list(self) -> dict[str, Fingerprint]:
        """The data files there are now, by path in order.

        Raises
        ------
        DataFileError
            The data set itself is gone or cannot be listed.
        """
        ...

    def num_skipped(self) -> int:
        """Parquet files in the folder that are no data, as a name begins with `_` or `.`; some engines read them."""
        ...

    def list_under(self, paths: Sequence[str]) -> dict[str, Fingerprint]:
        """As `list`, but only files that are one of `paths` or in one of them; nothing else is listed."""
        ...

    def list_partitions(self, wanted: Sequence[Mapping[str, str | None]]) -> dict[str, Fingerprint]:
        """As `list`, but only files in folders that agree with one of `wanted` (see `hive.agrees`).

        Folders that do not are not listed, where the store has folders.
        """
        ...

    def absolute(self, path: str) -> str:
        """The absolute path or the URL of a data file."""
        ...

    def open(self, path: str, listed: Fingerprint | None = None) -> OpenedFile:
        """The data file at `path`, opened; close it, or use it as a context manager.

        Of a file that was `listed`, an object store is not asked again for its fingerprint. Its bytes are those of that
        version, or reading them fails. A local file is as it is now.

        Raises
        ------
        DataFileError
            It is missing, or no whole data file.
        """
        ...

    def own_number(self, path: str) -> int | None:  # noqa: ARG002 - tables override it
        """What the table itself numbers the fragment at `path`, where fragments have numbers; else None."""
        return None

    def deleted_rows(self, path: str) -> NDArray[np.int64] | None:  # noqa: ARG002 - tables override it
        """Offsets of the rows of a file that its table deleted without rewriting it, in order; None where none are.

        They stay in the zones, and a scan leaves them out.
        """
        return None

    def relative(self, path: str | os.PathLike[str]) -> str:
        """`path`, which is absolute or relative to the data set, as a path relative to it.

        Raises
        ------
        InvalidArgumentError
            It lies outside.
        """
        ...

    def index_places(self) -> tuple[str, ...]:
        """Where the index may be if nobody says, the default first; none if somebody must say."""
        ...

    def check_index(self, location: str) -> None:
        """Refuse a place where the index would be taken for data.

        Raises
        ------
        InvalidArgumentError
            It is one.
        """
        ...

    def to_json(self, index_location: str) -> dict[str, Any]:
        """The data set as a version file holds it."""
        ...
