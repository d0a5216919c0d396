"""The row groups that hold candidate rows: a scan reads one of them in a step.

Design: docs/design/scan.md#scan
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from zonebloom.bloom.selection import RowSelection
from zonebloom.formats.parquet.file import places_of
from zonebloom.ground.threads import Result, concurrently, num_cores
from zonebloom.search.view import View
from zonebloom.storage.fragments import Fragment
from zonebloom.stores.store import ROUND_BYTES
from zonebloom.stores.stored_file import ByteRange

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WAITING_READERS, _MOST_WAITING_READERS = 8, 64
"""Threads that read from an object store; each of them mostly waits. There are more than 8 for small row groups."""
_READ_BYTES = 64 << 20
"""Bytes of the row groups that more than 8 threads read at once."""
_PAGES_START = 4
"""Position of a file's first page, after the magic bytes."""
_SLACK_BYTES = 1 << 14
"""Bytes after the expected end of a row group. Those of Polars end up to 60 bytes a column chunk later."""
_FEW_RANGES, _FEW_ROWS = 16, 1 << 17
"""Up to this many ranges and rows, candidates of local files are read without threads: threads start more slowly."""


@dataclass(frozen=True, slots=True)
class Task:
    """The candidate ranges in one row group; offsets within the group."""

    file: Fragment
    group: int
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]

    @property
    def least_bytes(self) -> int:
        """Bytes that a scan pays for the row group if it reads all columns at once."""
        return min(self.file.row_group_bytes[self.group], ROUND_BYTES)

    def likely(self, *, is_at_once: bool) -> list[ByteRange]:
        """Offsets and lengths of what follows the row groups of the file and, with `is_at_once`, of the task's one.

        They are right if the writer left no gaps. A part that costs more than a round is left out.
        """
        sizes, file_bytes = self.file.row_group_bytes, self.file.fingerprint.size
        stop = min(_PAGES_START + sum(sizes), file_bytes)
        parts = [(stop, file_bytes - stop)] if file_bytes - stop <= ROUND_BYTES else []
        if is_at_once and file_bytes <= ROUND_BYTES:
            parts.append((0, stop))
        elif is_at_once and sizes[self.group] <= ROUND_BYTES:
            parts.append((_PAGES_START + sum(sizes[: self.group]), sizes[self.group] + _SLACK_BYTES))
        return parts

    def narrowed(self, places: NDArray[np.int64]) -> Task:
        """The task restricted to the rows at `places` among its rows."""
        return Task(self.file, self.group, *rows_at(self.starts, self.stops, places))


def for_each(read: Callable[[Task], Result], view: View, rows: RowSelection) -> Iterator[Result]:
    """The results of `read` for the tasks of `tasks_of`, in order; some row groups are read ahead."""
    workers = _num_readers(view, rows)
    return concurrently(read, tasks_of(view, rows), workers, ahead=workers)


def tasks_of(view: View, rows: RowSelection) -> Iterator[Task]:
    """The row groups with rows of `rows` that are not deleted, in order of path."""
    for file in sorted(view.files.of_fragments(rows.fragment_ids), key=lambda file: file.path):
        deleted, ranges = view.dataset.deleted_rows(file.path), rows.fragment(file.fragment_id)
        if view.files.is_unknown(file.path) and ranges.num_rows == file.num_rows:
            with view.dataset.open(file.path, file.fingerprint) as data:
                file = Fragment.of(file.fragment_id, file.path, data)  # noqa: PLW2901 - with its current shape
            ranges = RowSelection.from_ranges([(file.fragment_id, 0, file.num_rows)])
        if deleted is not None and len(deleted):
            ids = np.full(len(deleted), file.fragment_id)
            ranges -= RowSelection.from_arrays(ids, deleted, deleted + 1)
        yield from _of_file(file, ranges)


def _of_file(file: Fragment, ranges: RowSelection) -> Iterator[Task]:
    """The parts of `ranges` in each row group of the file."""
    starts, stops = ranges.starts.astype(np.int64), ranges.stops.astype(np.int64)
    ends = np.cumsum(np.array(file.row_group_rows, np.int64))
    firsts, lasts = np.searchsorted(ends, starts, side="right"), np.searchsorted(ends, stops, side="left")
    pairs = zip(firsts.tolist(), lasts.tolist(), strict=True)
    for group in sorted({group for first, last in pairs for group in range(first, min(last + 1, len(ends)))}):
        rows = file.row_group_rows[group]
        position = int(ends[group]) - rows
        low, top = np.searchsorted(stops, position, side="right"), np.searchsorted(starts, position + rows, side="left")
        if rows and low < top:
            yield Task(
                file, group, np.maximum(starts[low:top] - position, 0), np.minimum(stops[low:top] - position, rows)
            )


def rows_at(
    starts: NDArray[np.int64], stops: NDArray[np.int64], places: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row ranges of the rows at `places` among the rows of some row ranges."""
    rows = places_of(starts, stops - starts)[places]
    is_first = np.diff(rows, prepend=-2) != 1
    is_last = np.diff(rows, append=np.iinfo(np.int64).max) != 1
    return rows[is_first], rows[is_last] + 1


def _num_readers(view: View, rows: RowSelection) -> int:
    """Threads that read `rows`; 0 if the caller's thread reads them."""
    if not view.dataset.is_remote:
        return 0 if len(rows) <= _FEW_RANGES and rows.num_rows <= _FEW_ROWS else num_cores()
    files = view.files.of_fragments(rows.fragment_ids)
    largest = max((size for file in files for size in file.row_group_bytes), default=0)
    return min(max(_READ_BYTES // max(largest, 1), _WAITING_READERS), _MOST_WAITING_READERS)
