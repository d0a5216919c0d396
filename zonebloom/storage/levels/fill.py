"""Making the filters of fragments and of the data set, beside the zones, in one pass and bounded memory.

A filter's size must follow its number of distinct values, which is known at the end only. Up to four million rows the
hashes are kept, and counted: the filter has exactly the least size. Past that a filter large enough for the rows being
all distinct is filled at once, and folded at the end to the least size that its fill allows.

Spec: specs/levels.md#filling
"""

from __future__ import annotations

import math
import threading
import uuid
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import numpy as np
import pyarrow as pa

from zonebloom.arrow import from_numpy
from zonebloom.bloom import hashing
from zonebloom.bloom.sizing import MAX_BLOCKS, num_blocks_for
from zonebloom.bloom.split_block import fold, measured_fpp
from zonebloom.bloom.zones import zone_schema
from zonebloom.storage.fragments import Fragment
from zonebloom.storage.level import LevelEntry
from zonebloom.storage.segment import SegmentEntry, Span, checksum, column_folder, runs
from zonebloom.storage.stores.store import Store
from zonebloom.storage.zone_segment import ZoneSegmentWriter

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "SPAN_BYTES",
    "USELESS_FPP",
    "Filled",
    "Filling",
    "FragmentRows",
    "LevelBuilder",
    "LevelSink",
    "estimated_values",
    "folded",
    "parts_of_dataset",
    "warn_of_useless",
    "write_dataset_filter",
]

SPAN_BYTES: Final = 1 << 17
"""Of a data set's filter, so much has one checksum, and is read to believe one block of it."""
USELESS_FPP: Final = 0.1
"""A filter that is wrong more often is not kept."""

_FILTER_ROWS = 100_000_000
"""If they are all distinct, a filter of 128 MiB is wrong for 1 % of absent values."""
_KEPT_HASHES = 1 << 22
_FOLDABLE = 5040
"""Sizes that are a multiple of it fold by 60 divisors at least, so the least size is never far."""
_WELL_FOLDABLE = 60
"""The same for a filter of known size, to which it adds little."""
_ALIKE, _ALIKE_BLOCKS = 8, 1 << 17
"""A filter is made as large as another if that is at most so many times its own size, or 4 MiB."""
_WHOLE_FRAGMENT = (1 << 32) - 1
_BATCH_BYTES = 4 << 20
_BATCH_ROWS = 1024


def parts_of_dataset(fragments: Sequence[Fragment]) -> list[list[Fragment]]:
    """`fragments`, in order, in parts of which one filter of the data set each can hold all values."""
    parts: list[list[Fragment]] = [[]]
    num_rows = 0
    for fragment in fragments:
        num_rows += fragment.num_rows
        if parts[-1] and num_rows > _FILTER_ROWS:
            parts.append([])
            num_rows = fragment.num_rows
        parts[-1].append(fragment)
    return parts


@dataclass(frozen=True, slots=True)
class Filled:
    """A finished filter."""

    blocks: NDArray[np.uint32]
    """Shape (num_blocks, 8)."""
    num_values: int
    """Distinct values; an estimate where the hashes were not kept."""
    fpp: float
    """Its false positive probability, counted from its bits."""


class Filling:
    """One filter while its values come in, from any number of threads.

    Parameters
    ----------
    num_rows
        At most so many values will come.
    fpp
        False positive probability to reach, which 128 MiB may not be enough for.
    like
        Blocks of a filter that this one will be united with: that size is taken if it is enough, and not far too much.
    of_rows
        Rows of all steps, of which this is the first: it leaves as much room for the values of the others.
    """

    def __init__(
        self, num_rows: int, fpp: float, *, like: int = 0, of_rows: int = 0, kept_hashes: int = _KEPT_HASHES
    ) -> None:
        self._fpp = fpp
        self._like = like
        self._share = num_rows / of_rows if of_rows > num_rows else 1.0
        self._lock = threading.Lock()
        self._hashes: list[NDArray[np.uint64]] = []
        self._blocks: NDArray[np.uint32] | None = None
        if num_rows > kept_hashes:
            self._blocks = np.zeros((_foldable_blocks(max(num_rows, of_rows), fpp), 8), np.uint32)

    @classmethod
    def part(cls, num_rows: int, fpp: float, *, all_rows: int, of_rows: int = 0) -> Self:
        """A filling of `num_rows` rows that becomes one with others, of `all_rows` rows, in the fewest bytes."""
        num_blocks = _foldable_blocks(max(all_rows, of_rows), fpp)
        filling = cls(0, fpp)
        if all_rows > _KEPT_HASHES and num_rows * 8 > num_blocks * 32:
            filling._blocks = np.zeros((num_blocks, 8), np.uint32)
        return filling

    def content(self) -> tuple[bool, NDArray[Any]]:
        """Whether the hashes were kept, and they, or the blocks: what `add_content` of another filling takes."""
        if self._blocks is not None:
            return False, self._blocks
        return True, np.concatenate([np.zeros(0, np.uint64), *self._hashes])

    def add_content(self, data: bytes, *, is_hashes: bool) -> None:
        """The content of a part, as bytes."""
        if is_hashes:
            self.add(np.frombuffer(data, np.uint64))
            return
        assert self._blocks is not None
        np.bitwise_or(self._blocks, np.frombuffer(data, np.uint32).reshape(-1, 8), out=self._blocks)

    def add(self, hashes: NDArray[np.uint64]) -> None:
        """Values, by their hashes."""
        from zonebloom.bloom.kernels import sbbf as kernels  # noqa: PLC0415 - Numba is loaded by the first rows

        with self._lock:
            if self._blocks is None:
                self._hashes.append(hashes)
            else:
                kernels.filter_insert(self._blocks, np.ascontiguousarray(hashes))

    def finish(self) -> Filled:
        """The filter at its right size."""
        from zonebloom.bloom.kernels import sbbf as kernels  # noqa: PLC0415 - as above

        if self._blocks is None:
            hashes = np.concatenate([np.zeros(0, np.uint64), *self._hashes])
            self._hashes.clear()
            num_values = kernels.count_distinct(hashes)
            least = self._least(num_values)
            blocks = np.zeros((self._like if self._is_alike(least) else least, 8), np.uint32)
            kernels.filter_insert(blocks, hashes)
        else:
            num_values = estimated_values(self._blocks)
            least = self._least(num_values)
            fits = self._is_alike(least) and not len(self._blocks) % self._like
            blocks = folded(self._blocks, self._like if fits else least)
        return Filled(blocks, num_values, float(measured_fpp(blocks[None])[0]))

    def _least(self, num_values: int) -> int:
        if self._share == 1:
            return num_blocks_for(num_values, self._fpp, "exact")
        return min(_foldable(num_blocks_for(math.ceil(num_values / self._share), self._fpp, "exact")), MAX_BLOCKS)

    def _is_alike(self, least: int) -> bool:
        return least <= self._like <= max(_ALIKE_BLOCKS, _ALIKE * least)


def _foldable_blocks(num_rows: int, fpp: float) -> int:
    return min(_foldable(num_blocks_for(num_rows, fpp, "exact"), _FOLDABLE), MAX_BLOCKS // _FOLDABLE * _FOLDABLE)


def _foldable(num_blocks: int, factor: int = _WELL_FOLDABLE) -> int:
    return -(-num_blocks // factor) * factor


def estimated_values(blocks: NDArray[np.uint32]) -> int:
    """Distinct values of a filter from its fill: each sets one bit in 8 of the words, at random."""
    share = int(np.bitwise_count(blocks).sum(dtype=np.uint64)) / (blocks.size * 32)
    if share >= 1:
        return blocks.size * 32
    return round(math.log1p(-share) / math.log1p(-1 / (32 * len(blocks))))


def folded(blocks: NDArray[np.uint32], least: int) -> NDArray[np.uint32]:
    """`blocks` folded to the least size of at least `least` blocks; as they are where there is none."""
    factor = next(k for k in range(max(len(blocks) // least, 1), 0, -1) if len(blocks) % k == 0)
    return fold(blocks, factor) if factor > 1 else blocks


class _OpenFragment:
    """One fragment of one column while its units come in."""

    def __init__(self, num_rows: int, fpp: float) -> None:
        self.filling = Filling(num_rows, fpp)
        self.rows_done = 0
        self.has_null = False
        self.is_unfit = False


class LevelSink(Protocol):
    """What takes the values of a build, beside the zones."""

    def add(self, column: str, fragment_id: int, values: pa.Array) -> None:
        """Rows of a fragment, in any order."""
        ...

    def end_unit(self, fragment_id: int, num_rows: int, unfit: Iterable[str]) -> None:
        """`num_rows` rows of a fragment came in, but not those of the columns `unfit`."""
        ...


class LevelBuilder:
    """Makes the levels above the zones of one build; a context manager that leaves no file behind if it raises.

    - A fragment is covered by a level only if all of its rows came in, and its column's type fits.
    """

    def __init__(
        self,
        store: Store,
        columns: Mapping[str, pa.DataType],
        levels: Iterable[str],
        fpp: float,
        fragments: Sequence[Fragment],
        *,
        like: Mapping[str, int] | None = None,
        of_rows: int = 0,
    ) -> None:
        self._store = store
        self._fpp = fpp
        self._lock = threading.Lock()
        self._stack = ExitStack()
        self._open: dict[tuple[str, int], _OpenFragment] = {}
        self._num_rows = {fragment.fragment_id: fragment.num_rows for fragment in fragments}
        total = sum(self._num_rows.values())
        self._has_fragments = "fragment" in levels
        sizes = like or {}
        datasets = columns if "dataset" in levels else ()
        self._datasets = {name: Filling(total, fpp, like=sizes.get(name, 0), of_rows=of_rows) for name in datasets}
        self._covered: dict[str, set[int]] = {name: set() for name in columns}
        self._rows: dict[str, FragmentRows] = {}
        if self._has_fragments:
            self._rows = {name: FragmentRows(store, name, of_type, fpp) for name, of_type in columns.items()}

    def __enter__(self) -> Self:
        for rows in self._rows.values():
            self._stack.enter_context(rows.writer)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            for rows in self._rows.values():
                rows.flush()
        self._stack.__exit__(kind, error, traceback)

    def add(self, column: str, fragment_id: int, values: pa.Array) -> None:
        """Rows of a fragment, in any order."""
        hashes = hashing.hash_array(values)
        self.add_hashes(column, fragment_id, hashes, has_null=len(hashes) < len(values))

    def add_hashes(self, column: str, fragment_id: int, hashes: NDArray[np.uint64], *, has_null: bool) -> None:
        """As `add`, for the hashes of the values that are not null."""
        if column in self._datasets:
            self._datasets[column].add(hashes)
        fragment = self._fragment(column, fragment_id)
        fragment.has_null |= has_null
        if self._has_fragments:
            fragment.filling.add(hashes)

    def _fragment(self, column: str, fragment_id: int) -> _OpenFragment:
        with self._lock:
            key = (column, fragment_id)
            if key not in self._open:
                num_rows = self._num_rows[fragment_id] if self._has_fragments else 0
                self._open[key] = _OpenFragment(num_rows, self._fpp)
            return self._open[key]

    def end_unit(self, fragment_id: int, num_rows: int, unfit: Iterable[str]) -> None:
        """`num_rows` rows of a fragment came in, but not those of the columns `unfit`; the last one finishes it."""
        unfit = set(unfit)
        for column in self._covered:
            fragment = self._fragment(column, fragment_id)
            with self._lock:
                fragment.rows_done += num_rows
                fragment.is_unfit |= column in unfit
                is_done = fragment.rows_done == self._num_rows[fragment_id]
                if is_done:
                    del self._open[column, fragment_id]
            if is_done and not fragment.is_unfit:
                filled = fragment.filling.finish() if self._has_fragments else None
                with self._lock:
                    self._covered[column].add(fragment_id)
                    if filled is not None and filled.fpp <= USELESS_FPP:
                        self._rows[column].add(fragment_id, fragment.rows_done, filled, has_null=fragment.has_null)

    def finish(self, failed: Iterable[int]) -> dict[str, tuple[LevelEntry, ...]]:
        """The levels of each column, from the fragments up, once the block ended; none covers `failed` fragments."""
        self._open.clear()
        return {column: tuple(self._entries(column, set(failed))) for column in self._covered}

    def _entries(self, column: str, failed: set[int]) -> Iterable[LevelEntry]:
        if self._has_fragments:
            yield self._rows[column].entry()
        if column in self._datasets:
            filled = self._datasets.pop(column).finish()
            if filled.fpp <= USELESS_FPP:
                segment = write_dataset_filter(self._store, column, filled.blocks, self._covered[column] - failed)
                yield LevelEntry("dataset", filled.num_values, filled.fpp, (segment,))
            else:
                warn_of_useless(column, filled.num_values, filled.fpp)


def warn_of_useless(column: str, num_values: int, fpp: float) -> None:
    """A data set's filter was too small for its values, and is not kept."""
    message = (
        f"a filter of the data set must be of at most 128 MiB, which is too little for the about "
        f"{num_values:,} values of {column} (it would pass {fpp:.0%} of absent ones)"
    )
    warnings.warn(f"{message}; that level is left out", RuntimeWarning, stacklevel=2)


class FragmentRows:
    """The zone table of a column's fragments, written batch by batch; the caller holds a lock."""

    def __init__(self, store: Store, column: str, column_type: pa.DataType, fpp: float) -> None:
        self._schema = zone_schema(_WHOLE_FRAGMENT, fpp, column=column, column_type=column_type)
        self.writer = ZoneSegmentWriter(store, column, self._schema)
        self._pending: list[tuple[int, int, bool, NDArray[np.uint32]]] = []
        self._pending_bytes = 0
        self._num_values = 0
        self._sum_of_fpp = 0.0

    def add(self, fragment_id: int, num_rows: int, filled: Filled, *, has_null: bool) -> None:
        """The filter of one fragment."""
        self._pending.append((fragment_id, num_rows, has_null, filled.blocks))
        self._pending_bytes += filled.blocks.nbytes
        self._num_values += filled.num_values
        self._sum_of_fpp += filled.fpp
        if self._pending_bytes >= _BATCH_BYTES or len(self._pending) == _BATCH_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write what is pending."""
        if not self._pending:
            return
        ids, lengths, has_null, filters = zip(*self._pending, strict=True)
        offsets = np.zeros(len(ids) + 1, np.int32)
        np.cumsum([blocks.nbytes for blocks in filters], out=offsets[1:])
        data = np.concatenate(filters)
        columns: list[Any] = [
            from_numpy(np.array(ids, np.uint64), pa.uint64()),
            from_numpy(np.zeros(len(ids), np.uint64), pa.uint64()),
            from_numpy(np.array(lengths, np.uint64), pa.uint64()),
            pa.array(np.array(has_null, np.bool_)),
            pa.Array.from_buffers(pa.binary(), len(ids), [None, pa.py_buffer(offsets), pa.py_buffer(data)]),
        ]
        self.writer.write(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        self._pending.clear()
        self._pending_bytes = 0

    def entry(self) -> LevelEntry:
        """The level, once the writer was closed."""
        assert self.writer.entry is not None
        mean_fpp = self._sum_of_fpp / max(self.writer.entry.num_zones, 1)
        return LevelEntry("fragment", self._num_values, mean_fpp, (self.writer.entry,))


def write_dataset_filter(
    store: Store, column: str, blocks: NDArray[np.uint32], fragments: Iterable[int]
) -> SegmentEntry:
    """A new segment that is the bitset of `blocks` and nothing else; it describes all rows of `fragments`.

    Spec: specs/levels.md#dataset-filter
    """
    path = f"{column_folder(column)}/{uuid.uuid4()}.sbbf"
    data = memoryview(np.ascontiguousarray(blocks, "<u4").data).cast("B")
    parts = [data[first : first + SPAN_BYTES] for first in range(0, len(data), SPAN_BYTES)]
    with store.writing(path) as file:
        for part in parts:
            file.write(part)
    return SegmentEntry(
        path=path,
        num_zones=1,
        filter_bytes=len(data),
        fragments=runs(fragments),
        spans=tuple(Span(len(part), checksum(part)) for part in parts),
        kind="sbbf",
    )
