"""What the writer of the files costs the index: how much comes each day, and how much one match has to read.

Spec: specs/whatif.md#writer
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from zonebloom.build.advise.rewrites import Rewrite, measured_rewrites
from zonebloom.errors import DataFileError
from zonebloom.formats import DatasetSnapshot
from zonebloom.formats.parquet.file import DataFile, open_parquet
from zonebloom.storage.fragments import Fragment

_DAYS = 30
_NS_OF_DAY = 86_400 * 10**9
_LARGE_BYTES = 1 << 20
"""Row groups above this are worth a page index: a request to an object store takes as long as a megabyte."""
_REWRITTEN_BYTES = 16 << 20
"""Compressed bytes that are written in each way, so that a forecast takes no second more."""


@dataclass(frozen=True, slots=True)
class Growth:
    """How fast the data set grew in its last 30 days, by the times of its files."""

    days: float
    """Days that were looked at."""
    files_per_day: float
    """Files that were written, or written anew."""
    rows_per_day: float
    """Their rows."""
    seconds_per_day: float
    """Work of a refresh for them, on `Forecast.workers` threads."""

    def __str__(self) -> str:
        return (
            f"upkeep: {self.files_per_day:,.1f} files and {self.rows_per_day:,.0f} rows came a day over "
            f"{self.days:,.0f} days; refreshing them takes {self.seconds_per_day:,.2f} s a day"
        )


@dataclass(frozen=True, slots=True)
class Layout:
    """How the first file is written, and what a match in it has to read."""

    path: str
    """The file."""
    has_page_index: bool
    """Whether every column has an offset index."""
    row_group_rows: int
    """Rows of its largest row group."""
    row_group_bytes: int
    """Compressed bytes of that row group, all columns."""
    num_rows_rewritten: int = 0
    """Rows of it that were written in memory, in each way of `rewrites`."""
    rewrites: tuple[Rewrite, ...] = ()
    """What a match reads of rows of that row group, as it is and written otherwise; none where that gains nothing."""

    def advice(self) -> list[str]:
        """What the writer could do, with what it would save."""
        if not self.rewrites:
            return []
        width = max(len(one.name) for one in self.rewrites)
        lines = [
            f"  {one.name:<{width}} {one.bytes_per_match / 1e6:>9,.2f} MB {one.seconds_per_match * 1e3:>9,.2f} ms"
            for one in self.rewrites
        ]
        head = f"writer: {self.path} has no page index; what a match reads of {self.num_rows_rewritten:,} of its rows,"
        return [f"{head} measured:", *lines]


def growth_of(fragments: Sequence[Fragment], seconds_per_row: float) -> Growth | None:
    """The growth; None where all files are of one day, which says nothing."""
    newest = max(one.mtime_ns for one in fragments)
    oldest = min(one.mtime_ns for one in fragments)
    days = min(_DAYS, (newest - oldest) / _NS_OF_DAY)
    if days < 1:
        return None
    recent = [one for one in fragments if one.mtime_ns > newest - days * _NS_OF_DAY]
    rows = sum(one.num_rows for one in recent) / days
    return Growth(days, len(recent) / days, rows, rows * seconds_per_row)


def layout_of(
    dataset: DatasetSnapshot, fragments: Sequence[Fragment], column: str, rows_per_zone: int
) -> Layout | None:
    """The layout of the first file with rows; None where there is none, or it is gone."""
    for fragment in fragments:
        if not fragment.num_rows:
            continue
        try:
            with open_parquet(dataset, fragment.path, fragment.fingerprint) as file:
                return _layout(file, fragment.path, column, rows_per_zone)
        except DataFileError:
            return None
    return None


def _layout(file: DataFile, path: str, column: str, rows_per_zone: int) -> Layout:
    group = max(range(len(file.row_group_rows)), key=file.row_group_rows.__getitem__)
    num_rows, num_bytes = file.row_group_rows[group], file.row_group_bytes[group]
    found = Layout(path, file.has_page_index(group), num_rows, num_bytes)
    if found.has_page_index or num_bytes < _LARGE_BYTES or num_rows <= rows_per_zone or column not in file.schema.names:
        return found
    some = min(num_rows, max(rows_per_zone, num_rows * _REWRITTEN_BYTES // num_bytes))
    rows = file.read_rows(group, [0], [some], file.schema.names)
    return replace(found, num_rows_rewritten=some, rewrites=measured_rewrites(rows, column, rows_per_zone))
