"""What the writer of the files costs the index: how much comes each day, and how much one match has to read.

Spec: specs/whatif.md#writer
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from zonebloom.errors import DataFileError
from zonebloom.formats import DatasetSnapshot
from zonebloom.formats.parquet.file import open_parquet
from zonebloom.storage.fragments import Fragment

__all__ = ["Growth", "Layout", "growth_of", "layout_of"]

_DAYS = 30
_NS_OF_DAY = 86_400 * 10**9
_LARGE_BYTES = 1 << 20
"""Row groups above this are worth a page index: a request to an object store takes as long as a megabyte."""


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
    bytes_per_match: int
    """Bytes of that row group, all columns: what a match reads where there is no page index."""
    bytes_per_zone: int
    """Its share of one zone: what a match reads with a page index and pages of a zone's rows."""

    def advice(self) -> list[str]:
        """What the writer could do, with what it would save."""
        if self.has_page_index or self.bytes_per_match < _LARGE_BYTES or self.bytes_per_zone >= self.bytes_per_match:
            return []
        whole, zone = self.bytes_per_match / 1e6, self.bytes_per_zone / 1e6
        return [
            f"writer: {self.path} has no page index, so a match reads up to {whole:,.1f} MB",
            f"  with a page index, and pages of a zone's rows, {zone:,.2f} MB (pyarrow: write_page_index=True)",
            f"  with row groups a fourth as large {whole / 4:,.1f} MB",
        ]


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


def layout_of(dataset: DatasetSnapshot, fragments: Sequence[Fragment], rows_per_zone: int) -> Layout | None:
    """The layout of the first file with rows; None where there is none, or it is gone."""
    for fragment in fragments:
        if not fragment.num_rows:
            continue
        try:
            with open_parquet(dataset, fragment.path, fragment.fingerprint) as file:
                group = max(range(len(file.row_group_rows)), key=file.row_group_rows.__getitem__)
                is_indexed = file.has_page_index(group)
                rows, num_bytes = file.row_group_rows[group], file.row_group_bytes[group]
        except DataFileError:
            return None
        return Layout(fragment.path, is_indexed, rows, num_bytes, num_bytes * min(rows_per_zone, rows) // rows)
    return None
