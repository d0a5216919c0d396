"""A store and a lake in memory, of which every operation may let others go first: what `interleavings` schedules.

`Objects` are what all handles share, with a journal of what was created; `MemoryStore` is one process's handle on them,
as `LocalStore` is on a folder; `MemoryLake` is a data set of tiny files whose rows are known. No operation is a mock of
zonebloom: everything above the store and the data files is the real code.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import pyarrow as pa

from zonebloom.errors import DataFileError, StorageError
from zonebloom.formats.dataset import DatasetSnapshot
from zonebloom.stores.fingerprint import Fingerprint
from zonebloom.stores.store import Traffic

Step = Callable[[str], str]
"""Told what is about to be done, lets others go first; says what fails: "" (nothing), "refused", "lost" or "twice"."""

ROWS_OF_A_FILE = 3
SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])


def undisturbed(_what: str) -> str:
    """The step of who is alone."""
    return ""


# --- the store --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Files:
    """What is in the lake, and what ever was."""

    present: dict[str, int] = field(default_factory=dict)
    """By path, the number of the version that is there."""
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def copied(self) -> Files:
        """The same files; versions that come are numbered on."""
        return Files(dict(self.present), itertools.count(max(self.present.values(), default=0) + 100))

    def write(self, path: str) -> None:
        """A new file, or a new version of one."""
        self.present[path] = next(self.numbers)

    def delete(self, path: str) -> None:
        self.present.pop(path, None)


@dataclass(slots=True)
class Objects:
    """What is in the store, and what ever was created in it."""

    present: dict[str, tuple[bytes, float]] = field(default_factory=dict)
    """By path, the bytes and when they were written."""
    journal: list[tuple[str, bytes, dict[str, int]]] = field(default_factory=list)
    """What was written, in order, and the lake's files at that moment; partial objects are not in it."""
    files: Files = field(default_factory=Files)
    """The lake that is indexed."""

    def copied(self) -> Objects:
        """The same objects, but written long ago, of a lake that goes its own way."""
        objects = {path: (data, 0.0) for path, (data, _) in self.present.items()}
        return Objects(objects, list(self.journal), self.files.copied())


class _Mapping:
    def __init__(self, data: bytes) -> None:
        self.buffer = pa.py_buffer(data)

    def need(self, ranges: Sequence[tuple[int, int]]) -> None: ...

    def release(self) -> None: ...


class _NewFile(io.BytesIO):
    write_large = io.BytesIO.write


class MemoryStore:
    """A handle of one process."""

    is_remote = False
    location = "/memory/index"
    options = None

    def __init__(self, objects: Objects, step: Step = undisturbed) -> None:
        self.objects = objects
        self.step = step
        self.traffic = Traffic()

    def _do(self, verb: str, path: str) -> str:
        fault = self.step(f"{verb} {path}")
        if fault == "refused":
            raise StorageError(f"cannot {verb} {path}: refused")
        return fault

    def _get(self, path: str) -> bytes:
        if path not in self.objects.present:
            raise FileNotFoundError(path)
        return self.objects.present[path][0]

    def _put(self, path: str, data: bytes, *, is_whole: bool = True) -> None:
        self.objects.present[path] = data, time.time()
        if is_whole:
            self.objects.journal.append((path, data, dict(self.objects.files.present)))

    def size(self, path: str) -> int:
        self._do("size", path)
        return len(self._get(path))

    def read(self, path: str) -> bytes:
        self._do("read", path)
        return self._get(path)

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self._do("read", path)
        return [self._get(path)[offset : offset + length] for offset, length in ranges]

    def will_need(self, path: str, ranges: Sequence[tuple[int, int]]) -> None: ...

    def mapping(self, path: str, sparse_size: int | None = None) -> _Mapping:
        self._do("map", path)
        return _Mapping(self._get(path))

    def list(self, folder: str) -> list[str]:
        self._do("list", folder)
        names = (path[len(folder) + 1 :] for path in self.objects.present if path.startswith(f"{folder}/"))
        return sorted(name for name in names if "/" not in name)

    def files(self, folder: str, known_names: Iterable[str] = ()) -> dict[str, Fingerprint]:
        self._do("list", folder)
        entries = sorted(item for item in self.objects.present.items() if item[0].startswith(f"{folder}/"))
        return {path: Fingerprint(len(data), int(at * 1e9)) for path, (data, at) in entries}

    def prune(self, folders: object) -> None: ...

    @contextlib.contextmanager
    def writing(self, path: str) -> Iterator[_NewFile]:
        """As a local folder has it: the object is there, and not whole, while it is written."""
        self._do("begin", path)
        assert path not in self.objects.present
        self._put(path, b"", is_whole=False)
        file = _NewFile()
        try:
            yield file
            self._do("end", path)
        except BaseException:
            self.objects.present.pop(path, None)
            raise
        if path in self.objects.present:  # else a vacuum removed it meanwhile
            self._put(path, file.getvalue())

    def create(self, path: str, data: bytes) -> bool:
        """A lost answer is either an error, or that of a second request, which finds what the first one wrote."""
        fault = self._do("create", path)
        is_new = path not in self.objects.present
        if is_new:
            self._put(path, data)
        if fault == "lost":
            raise StorageError(f"cannot write {path}: no answer")
        return is_new and fault != "twice"

    def delete(self, path: str) -> None:
        self._do("delete", path)
        self.objects.present.pop(path, None)


# --- the lake ---------------------------------------------------------------------------------------------------------


class MemoryFile:
    """One version of a data file; its number gives its rows."""

    row_group_rows = (ROWS_OF_A_FILE,)
    row_group_bytes = (100,)
    num_rows = ROWS_OF_A_FILE
    schema = named_schema = SCHEMA

    def __init__(self, number: int, is_current: Callable[[], bool] = lambda: True) -> None:
        self.fingerprint = Fingerprint(100, number)
        self._is_current = is_current

    @property
    def keys(self) -> list[int]:
        first = self.fingerprint.mtime_ns * 10
        return list(range(first, first + ROWS_OF_A_FILE))

    def column_batches(self, names: Sequence[str], start: int, stop: int) -> Iterator[pa.RecordBatch]:
        keys = self.keys[start:stop]
        columns = {"k": pa.array(keys, pa.int64()), "s": pa.array([f"text {key}" for key in keys])}
        yield pa.RecordBatch.from_arrays([columns[name] for name in names], names=list(names))

    def check_unchanged(self) -> None:
        if not self._is_current():
            raise DataFileError("data file must not change during a build")

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


class MemoryLake(DatasetSnapshot):
    """A folder of files as one process sees it; a listing is of one moment."""

    location = "/memory/lake"
    is_remote = False
    traffic = Traffic()

    def __init__(self, files: Files, step: Step = undisturbed) -> None:
        self.files = files
        self.step = step

    def pin(self) -> MemoryLake:
        return self

    def list(self, known_names: Iterable[str] = ()) -> dict[str, Fingerprint]:
        self.step("list the lake")
        return {path: Fingerprint(100, number) for path, number in sorted(self.files.present.items())}

    def list_under(self, paths: Sequence[str]) -> dict[str, Fingerprint]:
        return {path: fingerprint for path, fingerprint in self.list().items() if path in paths}

    def open(self, path: str, listed: Fingerprint | None = None, likely: object = ()) -> MemoryFile:
        self.step(f"open {path}")
        number = self.files.present.get(path)
        if number is None:
            raise DataFileError(f"data file {path} must exist, got no such file")
        return MemoryFile(number, lambda: self.files.present.get(path) == number)

    def relative(self, path: Any) -> str:
        return str(path)

    def path_values(self, path: str) -> Mapping[str, Any]:
        return {}

    def partition_values(self, path: str, fields: Any) -> dict[str, pa.Scalar]:
        return {}

    def to_json(self, index_location: str) -> dict[str, Any]:
        return {"kind": "parquet", "root": self.location, "layout": "folder", "files": [], "partition_columns": []}
