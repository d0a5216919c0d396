"""Fragments: the data files that an index describes, in columns; objects are made one by one on request.

A fragment list is one Arrow file, immutable like a segment. `FragmentTable` holds one or several of them in NumPy
arrays, so that a hundred thousand files open, compare with a listing and go through a commit in milliseconds.

Spec: specs/index-format.md#fragments
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, ItemsView, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import pyarrow as pa

from zonebloom.bloom.addresses import MAX_FRAGMENT_ID, MAX_ROWS
from zonebloom.ground.arrow import from_numpy, to_numpy
from zonebloom.ground.cached import cached_property
from zonebloom.ground.errors import CorruptIndexError
from zonebloom.storage.arrow_file import read_batches, reading
from zonebloom.storage.segment import Runs, checksum
from zonebloom.stores.fingerprint import Fingerprint
from zonebloom.stores.store import Store

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from zonebloom.formats import OpenedFile

ABSENT, CHANGED = -1, -2
"""In place of a position: the file has no fragment, or its fragment has another fingerprint."""

_WORTH_COMPRESSING = 256
"""Fragments of a list: a shorter one saves less than the threads cost that Arrow decompresses in, 0.3 ms and more."""
_SCHEMA = pa.schema(
    [
        pa.field("fragment_id", pa.uint64(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("mtime_ns", pa.int64(), nullable=False),
        pa.field("etag", pa.string()),
        pa.field("num_rows", pa.uint64(), nullable=False),
        pa.field("row_group_rows", pa.list_(pa.uint32()), nullable=False),
        pa.field("row_group_bytes", pa.list_(pa.uint64()), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class Fragment:
    """One version of one data file in the index.

    - A fragment id is never used again; a changed file is a new fragment.
    """

    fragment_id: int
    """Unique within the index, for ever."""
    path: str
    """Relative to the root of the data set, with `/`."""
    size: int
    """Fingerprint: bytes of the file."""
    mtime_ns: int
    """Fingerprint: time of last modification."""
    etag: str | None
    """Fingerprint: the object store's tag, if it has one."""
    num_rows: int
    """Rows in the file."""
    row_group_rows: tuple[int, ...]
    """Rows of each row group."""
    row_group_bytes: tuple[int, ...]
    """Compressed bytes of each row group."""

    @classmethod
    def of(cls, fragment_id: int, path: str, file: OpenedFile) -> Self:
        """The fragment of an opened file."""
        return cls(fragment_id, path, *file.fingerprint, file.num_rows, file.row_group_rows, file.row_group_bytes)

    def is_of(self, file: OpenedFile) -> bool:
        """Whether an opened file is this version; one of the same size and time may have other row groups."""
        return file.fingerprint == self.fingerprint and file.row_group_rows == self.row_group_rows

    @property
    def fingerprint(self) -> Fingerprint:
        """Size, time and tag that identify this version of the file."""
        return Fingerprint(self.size, self.mtime_ns, self.etag)


class FragmentListEntry(NamedTuple):
    """A fragment list in the version file."""

    path: str
    """Relative to the index directory."""
    num_fragments: int
    """Rows of the list."""
    num_bytes: int
    """Size of the file."""
    checksum: str
    """XXH3-64 of the file."""


_OF_FRAGMENTS = ("fragment_ids", "paths", "sizes", "mtimes", "etags", "num_rows")
_OF_GROUPS = ("group_rows", "group_bytes")
"""The columns of a `FragmentTable` with one element a fragment, and those with one a row group."""


@dataclass(frozen=True, eq=False)
class FragmentTable(Mapping[str, Fragment]):
    """Fragments in columns, and a mapping from path to `Fragment`, whose objects are made on request.

    - All columns have one element a fragment, in one order; paths are unique.
    - The row groups of fragment i are `group_offsets[i]` to `group_offsets[i + 1]` of `group_rows` and `group_bytes`.
    """

    fragment_ids: NDArray[np.uint64]
    """Unique within the index, for ever."""
    paths: NDArray[np.object_]
    """Texts, relative to the root of the data set."""
    sizes: NDArray[np.int64]
    """Fingerprint: bytes."""
    mtimes: NDArray[np.int64]
    """Fingerprint: nanoseconds since 1970."""
    etags: NDArray[np.object_]
    """Fingerprint: texts, or None."""
    num_rows: NDArray[np.uint64]
    """Rows."""
    group_offsets: NDArray[np.int64]
    """Where the row groups of each fragment begin, and the end of the last."""
    group_rows: NDArray[np.uint64]
    """Rows of each row group."""
    group_bytes: NDArray[np.uint64]
    """Compressed bytes of each row group."""

    @classmethod
    def of(cls, fragments: Sequence[Fragment]) -> Self:
        """The table of `fragments`, in their order."""
        counts = [len(fragment.row_group_rows) for fragment in fragments]
        return cls(
            np.array([fragment.fragment_id for fragment in fragments], np.uint64),
            _texts([fragment.path for fragment in fragments]),
            np.array([fragment.size for fragment in fragments], np.int64),
            np.array([fragment.mtime_ns for fragment in fragments], np.int64),
            _texts([fragment.etag for fragment in fragments]),
            np.array([fragment.num_rows for fragment in fragments], np.uint64),
            np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int64),
            np.array([rows for fragment in fragments for rows in fragment.row_group_rows], np.uint64),
            np.array([size for fragment in fragments for size in fragment.row_group_bytes], np.uint64),
        )

    @classmethod
    def concatenated(cls, tables: Sequence[FragmentTable]) -> Self:
        """All of `tables`, one after another."""
        if not tables:
            return cls.of([])
        ends = np.cumsum([0, *(len(table.group_rows) for table in tables)])
        offsets = [table.group_offsets[:-1] + end for table, end in zip(tables, ends[:-1], strict=True)]
        columns = {
            name: np.concatenate([getattr(table, name) for table in tables]) for name in (*_OF_FRAGMENTS, *_OF_GROUPS)
        }
        return cls(group_offsets=np.concatenate([*offsets, ends[-1:]]).astype(np.int64), **columns)

    # --- as a mapping -------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.fragment_ids)

    def __iter__(self) -> Iterator[str]:
        return iter(self.paths.tolist())

    def __contains__(self, path: object) -> bool:
        return path in self._position_of

    def __getitem__(self, path: str) -> Fragment:
        return self.at(self._position_of[path])

    def values(self) -> list[Fragment]:  # type: ignore[override] # a list serves as well, and is made once
        """All fragments as objects: 2 µs each."""
        return [self.at(position) for position in range(len(self))]

    def items(self) -> ItemsView[str, Fragment]:
        """Pairs of path and fragment."""
        return dict(zip(self, self.values(), strict=True)).items()

    def position(self, path: str) -> int:
        """The position of the fragment of `path` in the columns; a `KeyError` if there is none."""
        return self._position_of[path]

    def at(self, position: int) -> Fragment:
        """The fragment at a position of the columns."""
        groups = slice(int(self.group_offsets[position]), int(self.group_offsets[position + 1]))
        return Fragment(
            int(self.fragment_ids[position]),
            self.paths[position],
            int(self.sizes[position]),
            int(self.mtimes[position]),
            self.etags[position],
            int(self.num_rows[position]),
            tuple(self.group_rows[groups].tolist()),
            tuple(self.group_bytes[groups].tolist()),
        )

    @cached_property
    def _position_of(self) -> dict[str, int]:
        return dict(zip(self.paths.tolist(), range(len(self)), strict=True))

    # --- parts --------------------------------------------------------------------------------------------------------

    def take(self, positions: NDArray[np.int64]) -> FragmentTable:
        """The fragments at `positions`, in that order."""
        firsts = self.group_offsets[positions]
        counts = self.group_offsets[positions + 1] - firsts
        offsets = np.zeros(len(positions) + 1, np.int64)
        np.cumsum(counts, out=offsets[1:])
        groups = np.repeat(firsts - offsets[:-1], counts) + np.arange(offsets[-1])
        columns = {name: getattr(self, name)[positions] for name in _OF_FRAGMENTS}
        columns |= {name: getattr(self, name)[groups] for name in _OF_GROUPS}
        return FragmentTable(group_offsets=offsets, **columns)

    def where(self, mask: NDArray[np.bool_]) -> FragmentTable:
        """The fragments where `mask` is true; this table itself if all are."""
        return self if mask.all() else self.take(np.flatnonzero(mask))

    def group_ranges(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]:
        """For each row group with rows: its fragment's id, its first row there, the row after its last, its bytes."""
        ends = np.zeros(len(self.group_rows) + 1, np.uint64)
        np.cumsum(self.group_rows, out=ends[1:])
        counts = np.diff(self.group_offsets)
        starts = ends[:-1] - np.repeat(ends[self.group_offsets[:-1]], counts)
        filled = self.group_rows > 0
        ids = np.repeat(self.fragment_ids, counts)[filled]
        return ids, starts[filled], (starts + self.group_rows)[filled], self.group_bytes[filled]

    # --- against a listing --------------------------------------------------------------------------------------------

    def compare(self, listing: Mapping[str, Any]) -> NDArray[np.int64]:
        """For each file of `listing`, in its order, the position of the file's fragment, or `ABSENT`, or `CHANGED`.

        `listing` maps paths to fingerprints. Cost: 0.3 µs a file.
        """
        if not listing:
            return np.zeros(0, np.int64)
        names = list(listing)
        if names == self.paths.tolist():
            positions = np.arange(len(self))
        else:
            find = self._position_of.get
            positions = np.array([find(name, ABSENT) for name in names], np.int64)
        if not len(self):
            return positions
        files = listing.values()
        is_same = self.sizes[positions] == np.fromiter((file[0] for file in files), np.int64, len(files))
        is_same &= self.mtimes[positions] == np.fromiter((file[1] for file in files), np.int64, len(files))
        is_same &= self.etags[positions] == _texts([file[2] for file in files])
        return np.where(is_same | (positions < 0), positions, CHANGED)


def _texts(values: Collection[Any]) -> NDArray[np.object_]:
    texts = np.empty(len(values), np.object_)
    texts[:] = list(values)
    return texts


def is_in_runs(ids: NDArray[np.uint64], runs: Runs) -> NDArray[np.bool_]:
    """For each id, whether one of the sorted runs has it."""
    starts = np.array([start for start, _ in runs], np.uint64)
    stops = np.array([0, *(stop for _, stop in runs)], np.uint64)
    return np.asarray(ids < stops[np.searchsorted(starts, ids, side="right")])


# --- on disk ----------------------------------------------------------------------------------------------------------


def write_fragments(store: Store, fragments: FragmentTable) -> FragmentListEntry:
    """A new fragment list with `fragments`.

    Spec: specs/index-format.md#fragments
    """
    offsets = from_numpy(fragments.group_offsets.astype(np.int32), pa.int32())
    columns = [
        from_numpy(fragments.fragment_ids, pa.uint64()),
        pa.array(fragments.paths.tolist(), pa.string()),
        from_numpy(fragments.sizes, pa.int64()),
        from_numpy(fragments.mtimes, pa.int64()),
        pa.array(fragments.etags.tolist(), pa.string()),
        from_numpy(fragments.num_rows, pa.uint64()),
        pa.ListArray.from_arrays(offsets, from_numpy(fragments.group_rows.astype(np.uint32), pa.uint32())),
        pa.ListArray.from_arrays(offsets, from_numpy(fragments.group_bytes, pa.uint64())),
    ]
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd" if len(fragments) >= _WORTH_COMPRESSING else None)
    with pa.ipc.new_file(sink, _SCHEMA, options=options) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=_SCHEMA))
    data = sink.getvalue()
    path = f"fragments/{uuid.uuid4()}.arrow"
    with store.writing(path) as file:
        file.write(data)
    return FragmentListEntry(path, len(fragments), data.size, checksum(data))


def read_fragments(store: Store, entry: FragmentListEntry) -> FragmentTable:
    """The fragments of one list, checked.

    Raises
    ------
    CorruptIndexError
        The file is missing, differs from its checksum, or has values that no fragment can have.
    """
    what = f"fragment list {entry.path}"
    with reading(what):
        data = store.mapping(entry.path).buffer
        actual = checksum(data)
        if actual != entry.checksum:
            raise CorruptIndexError(f"{what} must have checksum {entry.checksum}", got=actual)
        batches = read_batches(data, _SCHEMA, is_compressed=True)
        table = FragmentTable.concatenated([_of_batch(batch) for batch in batches])
        if (len(table), data.size) != (entry.num_fragments, entry.num_bytes):
            raise CorruptIndexError(
                f"{what} must have {entry.num_fragments} fragments in {entry.num_bytes} bytes",
                got=f"{len(table)} in {data.size}",
            )
        _check_values(table)
        return table


def _check_values(table: FragmentTable) -> None:
    """Raise a `ValueError` unless the ids ascend and the rows of each file are the sum of its row groups."""
    ids, rows = table.fragment_ids, table.num_rows
    ends = np.concatenate([np.zeros(1, np.uint64), np.cumsum(table.group_rows, dtype=np.uint64)])
    if (ids[1:] <= ids[:-1]).any() or (ids > MAX_FRAGMENT_ID).any():
        raise ValueError(f"fragment ids must ascend and be at most {MAX_FRAGMENT_ID}")
    if (np.diff(ends[table.group_offsets]) != rows).any() or (rows > MAX_ROWS).any():
        raise ValueError(f"each file must have the rows of its row groups, and at most {MAX_ROWS}")


def _of_batch(batch: pa.RecordBatch) -> FragmentTable:
    columns = {name: batch.column(name) for name in _SCHEMA.names}
    rows, sizes = columns["row_group_rows"], columns["row_group_bytes"]
    offsets = to_numpy(rows.offsets, np.int32).astype(np.int64)
    ends = (len(rows.values), len(sizes.values))
    if not rows.offsets.equals(sizes.offsets) or offsets[0] or (offsets[-1], offsets[-1]) != ends:
        raise ValueError("each row group must have one number of rows and one of bytes")
    return FragmentTable(
        to_numpy(columns["fragment_id"], np.uint64),
        _texts(columns["path"].to_pylist()),
        to_numpy(columns["size"], np.int64),
        to_numpy(columns["mtime_ns"], np.int64),
        _texts(columns["etag"].to_pylist()),
        to_numpy(columns["num_rows"], np.uint64),
        offsets,
        to_numpy(rows.values, np.uint32).astype(np.uint64),
        to_numpy(sizes.values, np.uint64),
    )
