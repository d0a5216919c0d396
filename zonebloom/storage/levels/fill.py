"""Making the filters of fragments and of the data set, beside the zones, in one pass and bounded memory.

A filter's size depends on its number of distinct values, which is known only at the end. For up to 4 194 304 rows the
hashes are kept and counted, and the filter has exactly the least size. For more rows a filter that is large enough for
distinct rows is filled at once. At the end it is folded to the least size that its fill allows.

Spec: specs/levels.md#filling
"""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import numpy as np
import pyarrow as pa

from zonebloom.bloom import hashing
from zonebloom.bloom.sizing import MAX_BLOCKS, num_blocks_for
from zonebloom.bloom.split_block import fold, measured_fpp
from zonebloom.bloom.zones import zone_schema
from zonebloom.storage.fragments import Fragment
from zonebloom.storage.level import LevelEntry
from zonebloom.storage.segment import SegmentEntry, Span, checksum, new_path, runs
from zonebloom.storage.stores.store import Store
from zonebloom.storage.zone_segment import Zone, ZoneWriter

if TYPE_CHECKING:
    from numpy.typing import NDArray

SPAN_BYTES: Final = 1 << 17
"""Bytes of a data set's filter that share one checksum; a probe of one block reads and checks that many."""
USELESS_FPP: Final = 0.1
"""False positive probability above which a filter is dropped."""

_FILTER_ROWS = 100_000_000
"""Most rows for one filter of a data set: if all are distinct, 128 MiB give a false positive probability of 1 %."""
_KEPT_HASHES = 1 << 22
"""Most rows whose hashes are kept, 8 bytes each; a filter of more rows is filled at once."""
_FOLDABLE = 5040
"""A size of a multiple of 5040 blocks folds by at least 60 divisors, so one of them is near the least size."""
_WELL_FOLDABLE = 60
"""As `_FOLDABLE`, for a filter of known size: rounding up to a multiple of 60 blocks adds little."""
_ALIKE, _ALIKE_BLOCKS = 8, 1 << 17
"""A new filter takes the size of an existing one if that is at most 8 times its own least size, or at most 4 MiB."""
_WHOLE_FRAGMENT = (1 << 32) - 1
"""Rows of a zone that is a whole fragment."""


def parts_of_dataset(fragments: Sequence[Fragment]) -> list[list[Fragment]]:
    """`fragments`, in order, in parts of at most 100 million rows: each part gets one filter of the data set."""
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
    """Distinct values; an estimate if the hashes were not kept."""
    fpp: float
    """Its false positive probability, computed from its bits."""


class Filling:
    """One filter while values are added, by any number of threads.

    Parameters
    ----------
    num_rows
        Most values that will be added.
    fpp
        False positive probability to reach; more than 100 million values may miss it, as a filter has at most 128 MiB.
    like
        Blocks of an existing filter that this one will be united with. That size is taken if it is enough and at most 8
        times the least size, or at most 4 MiB.
    of_rows
        Rows of the whole build. The first of several steps sizes its filter for all of them.
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
        """The filling of one writer's `num_rows` rows, which will be united with those of others to `all_rows` rows.

        It keeps hashes or blocks: the smaller of both.
        """
        num_blocks = _foldable_blocks(max(all_rows, of_rows), fpp)
        filling = cls(0, fpp)
        if all_rows > _KEPT_HASHES and num_rows * 8 > num_blocks * 32:
            filling._blocks = np.zeros((num_blocks, 8), np.uint32)
        return filling

    def content(self) -> tuple[bool, NDArray[Any]]:
        """Whether the content is hashes, and the hashes or the blocks, for `add_content` of another filling."""
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
    """Distinct values of a filter, estimated from its set bits: a value sets one random bit in each of 8 words."""
    share = int(np.bitwise_count(blocks).sum(dtype=np.uint64)) / (blocks.size * 32)
    if share >= 1:
        return blocks.size * 32
    return round(math.log1p(-share) / math.log1p(-1 / (32 * len(blocks))))


def folded(blocks: NDArray[np.uint32], least: int) -> NDArray[np.uint32]:
    """`blocks` folded to the least possible size of at least `least` blocks; unchanged if no divisor fits."""
    factor = next(k for k in range(max(len(blocks) // least, 1), 0, -1) if len(blocks) % k == 0)
    return fold(blocks, factor) if factor > 1 else blocks


class _OpenFragment:
    """One fragment of one column while its units are read."""

    def __init__(self, num_rows: int, fpp: float) -> None:
        self.filling = Filling(num_rows, fpp)
        self.rows_done = 0
        self.has_null = False
        self.is_unfit = False


class LevelSink(Protocol):
    """Takes the values of a build, beside the zones."""

    def add(self, column: str, fragment_id: int, values: pa.Array) -> None:
        """Rows of a fragment, in any order."""

    def end_unit(self, fragment_id: int, num_rows: int, unfit: Iterable[str]) -> None:
        """`num_rows` rows of a fragment were added, but not for the columns `unfit`."""


class LevelBuilder:
    """Makes the levels above the zones of one build; a context manager that leaves no file behind if the block raises.

    - A level covers a fragment only if all of its rows were added and its values convert to the column's type.
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
        typed = columns.items() if self._has_fragments else ()
        self._rows = {name: FragmentRows(store, name, of_type, fpp) for name, of_type in typed}
        self._fragment_levels: dict[str, LevelEntry] = {}

    def __enter__(self) -> Self:
        for rows in self._rows.values():
            self._stack.enter_context(rows.writer)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self._fragment_levels = {name: rows.finish() for name, rows in self._rows.items()}
        self._stack.__exit__(kind, error, traceback)

    def add(self, column: str, fragment_id: int, values: pa.Array) -> None:
        """Rows of a fragment, in any order."""
        hashes = hashing.hash_array(values)
        self.add_hashes(column, fragment_id, hashes, has_null=len(hashes) < len(values))

    def add_hashes(self, column: str, fragment_id: int, hashes: NDArray[np.uint64], *, has_null: bool) -> None:
        """As `add`, with the hashes of the values that are not null."""
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
        """`num_rows` rows of a fragment were added, but not for the columns `unfit`; the last call finishes it."""
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
        """The levels of each column, from the fragments up, after the block; none covers a `failed` fragment."""
        self._open.clear()
        return {column: tuple(self._entries(column, set(failed))) for column in self._covered}

    def _entries(self, column: str, failed: set[int]) -> Iterable[LevelEntry]:
        if self._has_fragments:
            yield self._fragment_levels[column]
        if column in self._datasets:
            filled = self._datasets.pop(column).finish()
            if filled.fpp <= USELESS_FPP:
                segment = write_dataset_filter(self._store, column, filled.blocks, self._covered[column] - failed)
                yield LevelEntry("dataset", filled.num_values, filled.fpp, (segment,))
            else:
                warn_of_useless(column, filled.num_values, filled.fpp)


def warn_of_useless(column: str, num_values: int, fpp: float) -> None:
    """Warn that a data set's filter is too small for its values, and is dropped."""
    message = (
        f"a filter of the data set must be of at most 128 MiB, which is too little for the about "
        f"{num_values:,} values of {column} (it would pass {fpp:.0%} of absent ones)"
    )
    warnings.warn(f"{message}; that level is left out", RuntimeWarning, stacklevel=2)


class FragmentRows:
    """The zone table of a column's fragments; the caller holds a lock."""

    def __init__(self, store: Store, column: str, column_type: pa.DataType, fpp: float) -> None:
        self.writer = ZoneWriter(
            store, column, zone_schema(_WHOLE_FRAGMENT, fpp, column=column, column_type=column_type)
        )
        self._num_values = 0
        self._sum_of_fpp = 0.0

    def add(self, fragment_id: int, num_rows: int, filled: Filled, *, has_null: bool) -> None:
        """The filter of one fragment."""
        self.writer.add(Zone(fragment_id, 0, num_rows, has_null, filled.blocks.data.cast("B")))
        self._num_values += filled.num_values
        self._sum_of_fpp += filled.fpp

    def finish(self) -> LevelEntry:
        """The level, whose file is closed; without segments where there is no filter."""
        segments = tuple(self.writer.finish())
        num_filters = sum(segment.num_zones for segment in segments)
        return LevelEntry("fragment", self._num_values, self._sum_of_fpp / max(num_filters, 1), segments)


def write_dataset_filter(
    store: Store, column: str, blocks: NDArray[np.uint32], fragments: Iterable[int]
) -> SegmentEntry:
    """A new segment with only the bitset of `blocks`, which covers all rows of `fragments`.

    Spec: specs/levels.md#dataset-filter
    """
    path = new_path(column, "sbbf")
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
