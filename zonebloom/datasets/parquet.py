"""Parquet files as a data set: listing with fingerprints, reading columns for a build and row groups for a scan.

A data set is a folder (hive-partitioned or not), one file, or a list of files. As Spark, pyarrow and DuckDB do, names
that begin with `_` or `.` are skipped in a folder; every other file is a data file, whatever its ending.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import pyarrow as pa
import pyarrow.parquet as pq

from zonebloom import hashing
from zonebloom.errors import ColumnNotFoundError, DataFileError, InvalidArgumentError

__all__ = ["DataFile", "Fingerprint", "ParquetDataset", "absolute_path", "has_column", "open_dataset"]

_BATCH_BYTES = 8 << 20
"""Decoded bytes of a batch: few steps of Python a row, and the kernels still find them in the last cache."""
_MIN_BATCH_ROWS, _MAX_BATCH_ROWS = 1 << 14, 1 << 20
_VALUE_BYTES = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 8}
_TEXT_BYTES = 128
"""What a value of no fixed width is taken to need, so that one such column comes in batches of 65 536 rows."""
_READ_BYTES = 1 << 18
"""Column chunks are read in pieces of this size, not whole: less memory, and faster by a tenth (int64)."""
_DICTIONARY_BYTES_PER_VALUE = 6
"""A string column chunk with a dictionary and at most so many bytes a value is read as indices into it."""


class Fingerprint(NamedTuple):
    """What identifies one version of a data file."""

    size: int
    """Bytes."""
    mtime_ns: int
    """Time of last modification, nanoseconds since 1970."""
    etag: str | None = None
    """The object store's tag."""


@dataclass(frozen=True, slots=True)
class ParquetDataset:
    """Where the Parquet files are.

    - `root` is absolute; paths of files are relative to it, with `/`.
    """

    root: Path
    """Folder that holds all files."""
    layout: str
    """`folder`: every file below the root; `files`: those in `files`."""
    files: tuple[str, ...] = ()
    """The files of the layout `files`."""

    def list(self) -> dict[str, Fingerprint]:
        """The data files there are now, by path in order; those of a list that are gone are left out.

        Raises
        ------
        DataFileError
            The folder itself is gone or cannot be listed.
        """
        if self.layout == "folder":
            return dict(sorted(self._walk("")))
        found = {}
        for path in self.files:
            with contextlib.suppress(FileNotFoundError):
                found[path] = _fingerprint(os.stat(self.root / path))  # noqa: PTH116 - the result is used as is
        return found

    def list_under(self, paths: Sequence[str]) -> dict[str, Fingerprint]:
        """As `list`, but only files that are one of `paths` (relative to the root, with `/`) or in one of them.

        Raises
        ------
        DataFileError
            A folder among them cannot be listed.
        """
        if self.layout != "folder":
            return {
                path: found
                for path, found in self.list().items()
                if any(one in (path, ".") or path.startswith(f"{one}/") for one in paths)
            }
        found: dict[str, Fingerprint] = {}
        for path in paths:
            if path == ".":
                return self.list()
            if any(_is_hidden(name) for name in path.split("/")):
                continue
            if (self.root / path).is_dir():
                found.update(self._walk(f"{path}/"))
            else:
                with contextlib.suppress(FileNotFoundError):
                    found[path] = _fingerprint((self.root / path).stat())
        return dict(sorted(found.items()))

    def _walk(self, folder: str) -> Iterator[tuple[str, Fingerprint]]:
        try:
            for entry in list(os.scandir(self.root / folder)):
                name = entry.name
                if _is_hidden(name):
                    continue
                if not name.isprintable() and "\udc80" <= max(name) <= "\udcff":
                    message = f"names of files and folders must be UTF-8, got {os.fsencode(entry.path)!r}"
                    raise DataFileError(f"{message}; rename it")
                if entry.is_dir():
                    yield from self._walk(f"{folder}{name}/")
                else:
                    with contextlib.suppress(FileNotFoundError):
                        yield folder + name, _fingerprint(entry.stat())
        except OSError as error:
            raise DataFileError(f"{self.root / folder} must be a readable folder, got {error.strerror}") from error

    def absolute(self, path: str) -> str:
        """The absolute path of a data file."""
        return str(self.root / path)

    def open(self, path: str) -> DataFile:
        """The data file at `path`, opened; close it, or use it as a context manager.

        Raises
        ------
        DataFileError
            It is missing, or no whole Parquet file.
        """
        return DataFile(self.root / path)

    def to_json(self, index_root: Path) -> dict[str, Any]:
        """The data set as a version file holds it: the root relative to an index inside it, so that both can move."""
        inside = index_root.parent == self.root
        root = ".." if inside else str(self.root)
        return {"kind": "parquet", "root": root, "layout": self.layout, "files": list(self.files)}

    @classmethod
    def from_json(cls, described: dict[str, Any], index_root: Path) -> ParquetDataset:
        """The data set that a version file describes."""
        root = described["root"]
        folder = index_root.parent if root == ".." else Path(root)
        return cls(folder, described["layout"], tuple(described["files"]))


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _fingerprint(stat: os.stat_result) -> Fingerprint:
    return Fingerprint(stat.st_size, stat.st_mtime_ns)


def absolute_path(path: str | os.PathLike[str]) -> Path:
    """`path` from the root of the file system, links left alone.

    Raises
    ------
    InvalidArgumentError
        No file can have that path.
    """
    text = os.fspath(path)
    if not isinstance(text, str) or "\0" in text:
        raise InvalidArgumentError(f"a path must be a text without NUL, got {text!r}")
    return Path(os.path.abspath(text))  # noqa: PTH100 - resolve() would follow links out of the root


def open_dataset(source: Any) -> ParquetDataset:
    """The data set that `source` names: a folder, a Parquet file, a list of files, or a `pyarrow.dataset.Dataset`.

    Raises
    ------
    DataFileError
        Nothing is there.
    InvalidArgumentError
        `source` is something else, or its files are not local Parquet files.
    """
    if isinstance(source, (str, os.PathLike)):
        path = absolute_path(source)
        if os.path.isdir(path):  # noqa: PTH112 - never raises, where Path does for a name that is too long
            return ParquetDataset(path, "folder")
        if os.path.exists(path):  # noqa: PTH110 - as above
            return ParquetDataset(path.parent, "files", (path.name,))
        raise DataFileError(f"a data set must be a folder or a Parquet file, got {path}, which does not exist")
    if isinstance(source, (list, tuple)) and source and all(isinstance(one, (str, os.PathLike)) for one in source):
        return _of_files([os.path.abspath(os.fspath(one)) for one in source])  # noqa: PTH100 - as above
    files = getattr(source, "files", None)
    if files is not None and getattr(source, "format", None) is not None:
        return _of_pyarrow(source)
    message = f"a data set must be a path, a list of paths or a pyarrow FileSystemDataset, got {type(source).__name__}"
    raise InvalidArgumentError(message)


def _of_files(paths: Sequence[str]) -> ParquetDataset:
    missing = [path for path in paths if not os.path.isfile(path)]  # noqa: PTH113 - plain strings
    if missing:
        raise DataFileError(f"each path of a list must be a file, got {missing[0]}, which is none")
    root = Path(os.path.commonpath([os.path.dirname(path) for path in paths]))  # noqa: PTH120 - plain strings
    while "=" in root.name:  # a partition that all files share is a column like the others
        root = root.parent
    return ParquetDataset(root, "files", tuple(sorted({Path(path).relative_to(root).as_posix() for path in paths})))


def _of_pyarrow(dataset: Any) -> ParquetDataset:
    if dataset.format.default_extname != "parquet":
        raise InvalidArgumentError(f"a pyarrow Dataset must be of Parquet files, got {dataset.format.default_extname}")
    if dataset.filesystem.type_name != "local":
        message = f"a pyarrow Dataset must be on the local file system, got {dataset.filesystem.type_name}"
        raise InvalidArgumentError(message)
    if not dataset.files:
        raise DataFileError("a data set must have at least one file, got a pyarrow Dataset with none")
    return _of_files([os.path.abspath(path) for path in dataset.files])  # noqa: PTH100 - plain strings


class DataFile:
    """One opened Parquet file; all reads go to the version that was there when it was opened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._source = pa.OSFile(str(path), "rb")
        except FileNotFoundError as error:
            raise DataFileError(f"data file {path} must exist, got no such file") from error
        except OSError as error:
            raise DataFileError(f"data file {path} must be readable, got {error}") from error
        try:
            self._fingerprint = _fingerprint(os.fstat(self._source.fileno()))
            self._metadata = pq.read_metadata(self._source)
        except (pa.ArrowException, OSError) as error:
            self._source.close()
            raise DataFileError(f"data file {path} must be a whole Parquet file, got: {_first_line(error)}") from error

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
        return self._fingerprint

    def check_unchanged(self) -> None:
        """Raise `DataFileError` if the file was written to since it was opened."""
        now = _fingerprint(os.fstat(self._source.fileno()))
        if now != self._fingerprint:
            raise DataFileError(f"data file {self._path} must not change while it is read, got a write; run again")

    @property
    def num_rows(self) -> int:
        """Rows of the file."""
        return int(self._metadata.num_rows)

    @cached_property
    def row_group_rows(self) -> tuple[int, ...]:
        """Rows of each row group."""
        return tuple(self._metadata.row_group(i).num_rows for i in range(self._metadata.num_row_groups))

    @cached_property
    def row_group_bytes(self) -> tuple[int, ...]:
        """Compressed bytes of each row group."""
        groups = (self._metadata.row_group(i) for i in range(self._metadata.num_row_groups))
        return tuple(sum(group.column(c).total_compressed_size for c in range(group.num_columns)) for group in groups)

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema as the reader gives it (with extension types such as UUID), without metadata."""
        return self._reader([]).schema_arrow.remove_metadata()

    def column_batches(self, columns: Sequence[str], start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Rows `[start, stop)` of `columns` (leaves of structs have dots), in order, in batches of about 8 MiB.

        A column that the file does not have is left out. Strings that the file holds as a dictionary come as one.

        Raises
        ------
        DataFileError
            A page cannot be decoded.
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
            if run:
                yield from reader.iter_batches(rows, row_groups=run, columns=columns, use_threads=False)

    def _value_bytes(self, column: str) -> int:
        leaf = self._leaves.get(column)
        if leaf is None:
            return _TEXT_BYTES
        described = self._metadata.schema.column(leaf)
        if described.physical_type == "FIXED_LEN_BYTE_ARRAY":
            return max(int(described.length), 1)
        return _VALUE_BYTES.get(described.physical_type, _TEXT_BYTES)

    def read_row_group(self, number: int, columns: Sequence[str]) -> pa.Table:
        """Top-level `columns` of one row group; a column that the file does not have is left out.

        Raises
        ------
        DataFileError
            A page cannot be decoded.
        """
        with self._decoding():
            present = [column for column in columns if self.schema.get_field_index(column) >= 0]
            if not present:
                return pa.Table.from_struct_array(pa.nulls(self.row_group_rows[number], pa.struct([])))
            return self._reader([]).read_row_group(number, columns=present, use_threads=False)

    def _reader(self, dictionaries: list[str], buffer_size: int = 0) -> pq.ParquetFile:
        return pq.ParquetFile(
            self._source,
            metadata=self._metadata,
            read_dictionary=dictionaries,
            buffer_size=buffer_size,
            pre_buffer=False,
        )

    @contextlib.contextmanager
    def _decoding(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            message = f"data file {self._path} must decode as Parquet, got: {_first_line(error)}"
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

    def _is_dictionary(self, column: str) -> bool:
        leaf = self._leaves.get(column)
        if leaf is None or self._metadata.schema.column(leaf).physical_type != "BYTE_ARRAY":
            return False
        for number in range(self._metadata.num_row_groups):
            chunk = self._metadata.row_group(number).column(leaf)
            if not chunk.has_dictionary_page:
                return False
            if chunk.total_uncompressed_size > _DICTIONARY_BYTES_PER_VALUE * max(chunk.num_values, 1):
                return False
        return True

    @cached_property
    def _leaves(self) -> dict[str, int]:
        return {self._metadata.schema.column(i).path: i for i in range(self._metadata.num_columns)}


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


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
