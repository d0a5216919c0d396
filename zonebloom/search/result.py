"""`SearchResult`: the rows that a search keeps, and counts of the kept part and of the whole.

Spec: specs/pruning.md#evaluate
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import pyarrow as pa

from zonebloom.bloom.selection import Kind, RowSelection
from zonebloom.ground.arrow import from_numpy
from zonebloom.ground.cached import cached_property
from zonebloom.ground.reasons import Reason, counted, summed_up
from zonebloom.ground.rendering import Result, Table, funnel, plain

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from zonebloom.bloom.zones import ZonePositions
    from zonebloom.storage.fragments import Fragment


class TouchedRanges:
    """Row ranges (zones, row groups) with a weight each, to count the ranges that a selection touches.

    The ranges are disjoint and in any order. A count costs one binary search for each selected range.
    """

    def __init__(self, fragment_ids: Any, starts: Any, stops: Any, weights: NDArray[np.uint64] | None = None) -> None:
        high = np.asarray(fragment_ids, np.uint64) << np.uint64(32)
        first = high + np.asarray(starts, np.uint64)
        order = np.argsort(first, kind="stable")
        self._first = first[order]
        self._end = (high + np.asarray(stops, np.uint64))[order]
        self._total = np.zeros(len(order) + 1, np.uint64)
        if weights is not None:
            np.cumsum(weights[order], out=self._total[1:])

    @classmethod
    def of_zones(cls, zones: ZonePositions) -> Self:
        """The rows of zones, without weights."""
        return cls(zones.fragment_ids, zones.zone_starts, zones.zone_stops)

    def __len__(self) -> int:
        return len(self._first)

    def renumbered(self, numbers: Mapping[int, int]) -> TouchedRanges:
        """The same ranges; fragment `i` becomes `numbers[i]`."""
        ids = renumbered_ids(self._first >> np.uint64(32), numbers)
        starts = self._first & np.uint64(0xFFFF_FFFF)
        weights = np.diff(self._total)
        return TouchedRanges(ids, starts, starts + (self._end - self._first), weights)

    def __repr__(self) -> str:
        return f"<TouchedRanges of {len(self):,} ranges>"

    @property
    def weight(self) -> int:
        """Sum of all weights."""
        return int(self._total[-1])

    def touched(self, rows: RowSelection) -> tuple[int, int]:
        """Number and weight of the ranges that hold at least one of `rows`."""
        if not len(rows) or not len(self):
            return 0, 0
        high = rows.fragment_ids << np.uint64(32)
        low = np.searchsorted(self._end, high + rows.starts, side="right")
        top = np.searchsorted(self._first, high + rows.stops, side="left")
        low[1:] = np.maximum(low[1:], np.maximum.accumulate(top)[:-1])
        top = np.maximum(top, low)
        return int((top - low).sum()), int((self._total[top] - self._total[low]).sum())


class FileRange(NamedTuple):
    """The rows ``[start, stop)`` of one file."""

    path: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of files, zones, rows and bytes."""

    files: int
    """Data files."""
    zones: int
    """Zones of the index; rows outside all zones are not counted here."""
    rows: int
    """Rows."""
    bytes: int
    """Compressed bytes of the row groups concerned, all columns."""
    unreadable: int = 0
    """Files that cannot be read; `rows` does not count their rows, because the number is unknown."""

    def to_dict(self) -> dict[str, int]:
        """For JSON."""
        return {"files": self.files, "zones": self.zones, "rows": self.rows, "bytes": self.bytes}


@dataclass(frozen=True)
class SearchResult(Result):
    """Rows that may match; other rows certainly do not. `for path, start, stop in found` iterates over row ranges.

    - `row_ranges` holds every row for which the predicate is true, for each `kind`.
    """

    kind: Kind
    """`exact`: the matching rows only. `at_most`: these and perhaps others. `at_least`: nothing could be pruned."""
    row_ranges: RowSelection
    """Rows that must be read."""
    reasons: tuple[Reason, ...]
    """Why parts were not pruned."""
    paths: Mapping[int, str] = field(repr=False, default_factory=dict)
    """Path of each fragment, relative to the data set's root."""
    files_by_path: Mapping[str, Fragment] = field(repr=False, default_factory=dict)
    """The searched version of each file."""
    universe: RowSelection = field(repr=False, default_factory=RowSelection.empty)
    """All rows of the current data set."""
    zones: TouchedRanges | None = field(repr=False, default=None)
    """The zones that the counts refer to."""
    row_groups: TouchedRanges | None = field(repr=False, default=None)
    """The row groups, weighted by bytes."""
    unreadable: frozenset[int] = field(repr=False, default=frozenset())
    """Ids of the files that cannot be read; their ranges have the largest possible length."""
    has_addresses: bool = field(repr=False, default=False)
    """Whether the fragment ids are those of a Lance table; Lance finds rows by addresses."""

    def __len__(self) -> int:
        """The number of row ranges."""
        return len(self.row_ranges)

    def __iter__(self) -> Iterator[FileRange]:
        """The row ranges, each with the path of its file; the path is empty if no data set is known."""
        return (FileRange(self.paths.get(rows.fragment_id, ""), rows.start, rows.stop) for rows in self.row_ranges)

    @cached_property
    def kept(self) -> Counts:
        """Counts of the part that must be read."""
        zones = self.zones.touched(self.row_ranges)[0] if self.zones else 0
        num_bytes = self.row_groups.touched(self.row_ranges)[1] if self.row_groups else 0
        return self._counts(self.row_ranges, zones, num_bytes)

    @cached_property
    def total(self) -> Counts:
        """Counts of the whole data set."""
        num_bytes = self.row_groups.weight if self.row_groups else 0
        return self._counts(self.universe, len(self.zones) if self.zones else 0, num_bytes)

    def _counts(self, rows: RowSelection, num_zones: int, num_bytes: int) -> Counts:
        files = set(rows.fragment_ids.tolist())
        unreadable = files & self.unreadable
        unknown_rows = sum(rows.fragment(fragment_id).num_rows for fragment_id in unreadable)
        return Counts(len(files), num_zones, rows.num_rows - unknown_rows, num_bytes, len(unreadable))

    @property
    def num_zones(self) -> int:
        """Zones of the index."""
        return self.total.zones

    @property
    def num_zones_kept(self) -> int:
        """Zones that must be read."""
        return self.kept.zones

    @property
    def num_rows(self) -> int:
        """Rows of the data set."""
        return self.total.rows

    @property
    def num_rows_kept(self) -> int:
        """Rows that must be read."""
        return self.kept.rows

    @cached_property
    def files(self) -> list[str]:
        """Paths that must be read, relative to the data set's root, in order."""
        touched = set(self.row_ranges.fragment_ids.tolist())
        return sorted(self.paths[fragment_id] for fragment_id in touched if fragment_id in self.paths)

    def renumbered(self, numbers: Mapping[int, int]) -> SearchResult:
        """The same answer; fragment `i` becomes `numbers[i]`, the table's own number."""
        return replace(
            self,
            row_ranges=_renumbered_rows(self.row_ranges, numbers),
            paths={numbers[fragment_id]: path for fragment_id, path in self.paths.items()},
            universe=_renumbered_rows(self.universe, numbers),
            zones=self.zones and self.zones.renumbered(numbers),
            row_groups=self.row_groups and self.row_groups.renumbered(numbers),
            unreadable=frozenset(numbers[fragment_id] for fragment_id in self.unreadable),
        )

    @property
    def headline(self) -> str:
        """The answer in a sentence."""
        if not self.row_ranges:
            return f"certainly nowhere: none of {counted(self.num_rows, 'row')} need be read"
        return f"{self.kind}: {self.kind.meaning}"

    def facts(self) -> Iterator[tuple[str, Any]]:
        """The files to read; the numbers are in the table."""
        yield "files", self.files

    def tables(self) -> Iterator[Table]:
        """Kept and total files, zones, rows and bytes."""
        yield funnel(self.kept.to_dict(), self.total.to_dict())

    def notes(self) -> Iterator[str]:
        """Files that cannot be read, and a line for each kind of reason."""
        if self.kept.unreadable:
            unreadable = counted(self.kept.unreadable, "file")
            yield f"and the rows of {unreadable} that cannot be read: how many is unknown"
        yield from summed_up(self.reasons)

    def to_arrow(self) -> pa.Table:
        """The row ranges as a table `(path, fragment_id, start, stop, fingerprint)`.

        `fingerprint` names the searched version of the file. It and `path` are null if no data set is known. For a
        Lance table there are also row addresses `(_rowaddr_start, _rowaddr_stop)`: fragment id and offset in one
        number.
        """
        ids = self.row_ranges.fragment_ids
        paths, fingerprints = named_files(ids, self.paths, self.files_by_path)
        columns = {
            "path": paths,
            "fragment_id": from_numpy(ids, pa.uint64()),
            "start": from_numpy(self.row_ranges.starts, pa.uint64()),
            "stop": from_numpy(self.row_ranges.stops, pa.uint64()),
            "fingerprint": fingerprints,
        }
        if self.has_addresses:
            high = ids << np.uint64(32)
            columns["_rowaddr_start"] = from_numpy(high + self.row_ranges.starts, pa.uint64())
            columns["_rowaddr_stop"] = from_numpy(high + self.row_ranges.stops, pa.uint64())
        return pa.table(columns)

    def to_dict(self) -> dict[str, Any]:
        """The object that `zonebloom search --format json` prints."""
        return {
            "kind": str(self.kind),
            "files": self.files,
            "row_ranges": [{"path": self.paths.get(rows.fragment_id), **rows._asdict()} for rows in self.row_ranges],
            "kept": self.kept.to_dict(),
            "total": self.total.to_dict(),
            "num_unreadable": self.kept.unreadable,
            "reasons": plain(self.reasons),
        }


def named_files(
    ids: NDArray[np.uint64], paths: Mapping[int, str], files: Mapping[str, Fragment]
) -> tuple[pa.Array, pa.Array]:
    """The path and the fingerprint of each of `ids`; null without a path."""
    distinct, places = np.unique(ids, return_inverse=True)
    names = [paths.get(fragment_id) for fragment_id in distinct.tolist()]
    fingerprints = [None if name is None else files[name].fingerprint.text for name in names]
    return tuple(pa.array(texts, pa.string()).take(pa.array(places)) for texts in (names, fingerprints))


def renumbered_ids(ids: NDArray[np.uint64], numbers: Mapping[int, int]) -> NDArray[np.uint64]:
    """`numbers[i]` for each `i` of `ids`."""
    distinct, places = np.unique(ids, return_inverse=True)
    return np.array([numbers[fragment_id] for fragment_id in distinct.tolist()], np.uint64)[places]


def _renumbered_rows(rows: RowSelection, numbers: Mapping[int, int]) -> RowSelection:
    return RowSelection.from_arrays(renumbered_ids(rows.fragment_ids, numbers), rows.starts, rows.stops)
