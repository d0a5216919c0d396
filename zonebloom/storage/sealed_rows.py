"""`SealedRows`: the rows of one size of a segment file: the bit rows of slices, the pages of a locator.

The last 8 bytes of a row are the checksum of the others, seeded with the path of the file and the number of the row:
a row of another file, or of another place, fails it. Few rows are read by position and checked each time. Many rows are
memory-mapped and checked once, before their first use. Once a row was found damaged, nothing of the file is believed,
and `damage` has the message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from time import perf_counter
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

import numpy as np
import xxhash

from zonebloom.bloom import kernels_in_numpy
from zonebloom.bloom.numba_loading import kernels_to_read
from zonebloom.ground.cached import cached_property
from zonebloom.ground.errors import CorruptIndexError, StorageError
from zonebloom.storage.segment import SegmentEntry
from zonebloom.stores.store import SLOW_READ_SECONDS, Mapping, Store

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHECKSUM_BYTES: Final = 8
"""XXH3-64, at the end of a row."""
KERNEL_STRIDE: Final = 256
"""Least bytes of a row whose checksum the kernel computes; shorter rows take another form of XXH3."""
_FIRST_ROWS = 16
"""Rows that are read before the rest; if they take long, the system gets the advice to read the rest ahead."""


_Answer = TypeVar("_Answer")
_digest = xxhash.xxh3_64_intdigest


def first_seed(path: str) -> int:
    """The seed of row 0 of a segment; those of its other rows follow.

    Spec: specs/slices.md#row-checksum
    """
    return _digest(path.encode()) >> 1


def seal_rows(rows: NDArray[np.uint8], first_row: int, path: str) -> None:
    """Write the checksum of each row of segment `path` into its last 8 bytes; `rows` has shape `(num_rows, stride)`.

    Spec: specs/slices.md#row-checksum
    """
    num_rows, stride = rows.shape
    first = first_seed(path) + first_row
    if stride >= KERNEL_STRIDE:
        from zonebloom.bloom.kernels import row_checksums  # noqa: PLC0415 - Numba is loaded by the first rows, not by import

        row_checksums.seal_rows(rows, first)
        return
    view = rows.data.cast("B")
    hashed = stride - CHECKSUM_BYTES
    rows.view(np.dtype("<u8"))[:, -1] = [
        _digest(view[start : start + hashed], seed)
        for seed, start in enumerate(range(0, num_rows * stride, stride), first)
    ]


class SealedRows:
    """The rows of `stride` bytes in `places`: the offset in the file and the number of rows of each body.

    In layouts of `version` 1 the checksums do not know the path.
    """

    def __init__(
        self,
        store: Store,
        entry: SegmentEntry,
        name: str,
        stride: int,
        places: Sequence[tuple[int, int]],
        *,
        version: int,
    ) -> None:
        self._store = store
        self._entry = entry
        self._name = name
        self._stride = stride
        self._places = places
        self._first_seed = first_seed(entry.path) if version > 1 else 0
        self.damage: tuple[str, ...] = ()
        """The first damage that `sound` detected."""

    def sound(self, read: Callable[[], _Answer]) -> _Answer | None:
        """The result of `read`; None if a row is damaged, now or before.

        An error of a remote store is raised: it is no damage of the segment.
        """
        if not self.damage:
            try:
                return read()
            except (CorruptIndexError, StorageError, FileNotFoundError) as error:
                if isinstance(error, StorageError) and self._store.is_remote:
                    raise
                is_missing = isinstance(error, FileNotFoundError)
                path = self._entry.path
                self.damage = (f"segment {path} must exist, got no such file" if is_missing else str(error),)
        return None

    # --- few rows, by their positions ---------------------------------------------------------------------------------

    def read(self, ranges: Sequence[tuple[int, int]], numbers: Sequence[int]) -> list[bytes]:
        """The rows with these numbers, which are in these ranges of the file, checked.

        Raises
        ------
        CorruptIndexError
            A row differs from its checksum, or the file has become shorter.
        """
        rows = self._store.read_ranges(self._entry.path, ranges)
        if len(rows) < len(numbers):
            stride = self._stride
            rows = [blob[at : at + stride] for blob in rows for at in range(0, len(blob), stride)]
        if len(rows) != len(numbers):  # a row that is cut fails its checksum
            raise CorruptIndexError(f"segment {self._entry.path} must have {self._entry.num_bytes} bytes", got="fewer")
        seeds = (self._first_seed + number for number in numbers)
        for number, row, seed in zip(numbers, rows, seeds, strict=True):
            if _digest(row[:-CHECKSUM_BYTES], seed) != int.from_bytes(row[-CHECKSUM_BYTES:], "little"):
                self.reject(number)
        return rows

    # --- many rows, mapped --------------------------------------------------------------------------------------------

    @cached_property
    def _mapping(self) -> Mapping:
        return self._store.mapping(self._entry.path, self._entry.num_bytes)

    def release(self) -> None:
        """Unmap what was read; it is mapped again when it is needed again."""
        self._mapping.release()

    @cached_property
    def bodies(self) -> list[NDArray[np.uint8]]:
        """The rows of each body, mapped; to be used only for rows that were checked."""
        mapped, stride = self._mapping.buffer, self._stride
        self._entry.check_size(mapped.size)
        return [
            np.frombuffer(mapped, np.uint8, num_rows * stride, offset).reshape(num_rows, stride)
            for offset, num_rows in self._places
        ]

    @cached_property
    def _is_trusted(self) -> NDArray[np.bool_]:
        return np.zeros(sum(num_rows for _, num_rows in self._places), np.bool_)

    def check(self, rows: NDArray[np.int64], *, again: bool = False) -> None:
        """Check the rows with these ascending numbers, those that were checked before only if `again`.

        Raises
        ------
        CorruptIndexError
            A row differs from its checksum.
        """
        rows = rows if again else rows[~self._is_trusted[rows]]
        firsts = list(accumulate((num_rows for _, num_rows in self._places), initial=0))
        cuts = np.split(rows, np.searchsorted(rows, firsts[1:-1]))
        parts = [
            (place, first, cut - first) for (place, _), first, cut in zip(self._places, firsts, cuts, strict=False)
        ]
        if self._store.is_remote:
            self._mapping.need([part for place, _, inside in parts for part in self._ranges(place, inside)])
        for body, (place, first, inside) in zip(self.bodies, parts, strict=True):
            started = perf_counter()
            self.check_in(body, first, inside[:_FIRST_ROWS])
            is_slow = perf_counter() - started > _FIRST_ROWS * SLOW_READ_SECONDS  # from a disk
            if is_slow and not self._store.is_remote:
                self._store.will_need(self._entry.path, self._ranges(place, inside[_FIRST_ROWS:]))
            self.check_in(body, first, inside[_FIRST_ROWS:])
        self._is_trusted[rows] = True

    def _ranges(self, place: int, inside: NDArray[np.int64]) -> list[tuple[int, int]]:
        """Offset and length of each run of consecutive rows among `inside`; the body begins at `place`."""
        is_first = np.diff(inside, prepend=-2) != 1
        runs = zip(inside[is_first].tolist(), inside[np.roll(is_first, -1)].tolist(), strict=True)
        return [(place + begin * self._stride, (end + 1 - begin) * self._stride) for begin, end in runs]

    def check_in(self, body: NDArray[np.uint8], first: int, inside: NDArray[np.int64]) -> None:
        """Check the rows at the places `inside` of `body`; the row at place 0 has the number `first`."""
        if not len(inside):
            return
        kernels = kernels_to_read("row_checksums") if self._stride >= KERNEL_STRIDE else kernels_in_numpy
        bad = kernels.first_bad_row(body, self._first_seed + first, inside.astype(np.uint64))
        if bad < len(inside):
            self.reject(first + int(inside[bad]))

    def reject(self, row: int) -> NoReturn:
        """Raise the error for a row that differs from its checksum."""
        raise CorruptIndexError(
            f"{self._name} {row} of segment {self._entry.path} must have the checksum that it carries"
        )
