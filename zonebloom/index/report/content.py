"""The numbers that a report shows, independent of pictures."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from zonebloom.bloom.addresses import MAX_ROWS
from zonebloom.indexing.versions import Version, versions
from zonebloom.search.explain import Explanation
from zonebloom.search.result import SearchResult
from zonebloom.search.status import Status, status
from zonebloom.search.view import View
from zonebloom.storage.manifest import ColumnEntry

if TYPE_CHECKING:
    from numpy.typing import NDArray


class FileState(enum.StrEnum):
    """Whether and how the index covers a file."""

    INDEXED = "indexed"
    NEW = "new"
    CHANGED = "changed"
    UNREADABLE = "unreadable"


class ColumnFilters(NamedTuple):
    """The filters of one column."""

    entry: ColumnEntry
    fpps: NDArray[np.float64]
    """False positive probabilities of some filters, by their bits."""


class MapFiles(NamedTuple):
    """The files of the listing, in its order: the lines of the map."""

    paths: list[str]
    num_rows: NDArray[np.int64]
    """Rows; 0 if the file cannot be read."""
    written_at: NDArray[np.float64]
    """Milliseconds since 1970."""
    states: list[FileState]

    @classmethod
    def of(cls, view: View) -> Self:
        """The files of a view."""
        files = view.files
        unknown = {reason.path: FileState.CHANGED for reason in files.reasons if reason.code == "FILE_CHANGED"}
        unknown |= dict.fromkeys(files.unreadable_paths, FileState.UNREADABLE)
        states = [
            FileState.INDEXED if is_known else unknown.get(path, FileState.NEW)
            for path, is_known in zip(files.table.paths, files.is_known.tolist(), strict=True)
        ]
        num_rows = np.where(files.table.num_rows == MAX_ROWS, 0, files.table.num_rows).astype(np.int64)
        return cls(files.table.paths.tolist(), num_rows, files.table.mtimes / 1e6, states)


class KeptRanges(NamedTuple):
    """The row ranges that a search kept, on the map."""

    files: NDArray[np.int64]
    """Number of the file of each."""
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]

    @classmethod
    def of(cls, result: SearchResult, view: View) -> Self:
        """The ranges that a search kept, without those of files that are gone since.

        Files are matched by path, because a table has its own numbers.
        """
        rows = result.row_ranges
        place_of = {path: place for place, path in enumerate(view.files)}
        ids, numbers = np.unique(rows.fragment_ids, return_inverse=True)
        places = [place_of.get(result.paths[fragment_id], -1) for fragment_id in ids.tolist()]
        files = np.array(places, np.int64)[numbers]
        stops = np.where(rows.stops == MAX_ROWS, 0, rows.stops)
        is_there = files >= 0
        return cls(files[is_there], rows.starts[is_there].astype(np.int64), stops[is_there].astype(np.int64))


@dataclass(frozen=True, slots=True)
class Content:
    """All numbers of a report."""

    status: Status
    """What the index covers."""
    columns: tuple[ColumnFilters, ...]
    """The indexed columns."""
    versions: tuple[Version, ...]
    """The versions that are kept."""
    data_bytes: int
    """Bytes of the data files."""
    rows_per_zone: int
    """Rows in a zone of the first column; 1 if there is no column."""
    files: MapFiles
    """The files."""
    searches: tuple[Explanation, ...]
    """A search for each condition."""
    kept: tuple[KeptRanges, ...]
    """The ranges that each search kept."""

    @classmethod
    def of(cls, view: View, searches: Sequence[Explanation]) -> Self:
        """The numbers of a view, and of searches of it."""
        entries = view.entries
        return cls(
            status=status(view),
            columns=tuple(ColumnFilters(entry, _fpps(view, entry)) for entry in entries),
            versions=tuple(versions(view.snapshot.store)),
            data_bytes=int(view.files.table.sizes.sum()),
            rows_per_zone=entries[0].rows_per_zone if entries else 1,
            files=MapFiles.of(view),
            searches=tuple(searches),
            kept=tuple(KeptRanges.of(search.result, view) for search in searches),
        )


def _fpps(view: View, entry: ColumnEntry) -> NDArray[np.float64]:
    probed = view.column(entry.name)
    return np.zeros(0) if probed is None else probed.sampled_fpps
