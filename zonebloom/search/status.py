"""The state of an index against its current data set: the files that it does not cover, and why.

Spec: specs/pruning.md#status
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from zonebloom.ground.reasons import Reason, ReasonCode, counted, gone_zones, percent, summed_up
from zonebloom.ground.rendering import Result, Results, label
from zonebloom.search.view import View
from zonebloom.storage.manifest import ColumnEntry
from zonebloom.storage.options import Kind, has_bloom
from zonebloom.storage.snapshot import Snapshot

_TABLE_VERSIONS = ("table_version", "snapshot_id")
_OF_INDEX = (ReasonCode.SEGMENT_CORRUPT, ReasonCode.FORMAT_TOO_NEW, ReasonCode.COLUMN_NOT_INDEXED)


@dataclass(frozen=True, slots=True)
class IndexedColumn(Result):
    """An indexed column: its parameters and its size."""

    name: str
    """Name of the column."""
    type: str
    """Its Arrow type."""
    kind: Kind
    """The segments that are made: bloom filters, locators, or both."""
    num_zones: int
    """Zones of the files that the index describes."""
    num_gone_zones: int = field(repr=False)
    """Zones of removed files in its segments; `optimize` removes these zones."""
    rows_per_zone: int
    """Rows of a full zone."""
    fpp: float | None
    """Requested false positive probability of filters; None for a locator."""
    sizing: str | None
    """How large a filter is; None for a locator."""
    index_bytes: int
    """Bytes of its segments."""
    bytes_per_row: float
    """The same for each indexed row."""
    segments: Mapping[str, int]
    """Number of segments of each kind: zones, slices, locator."""
    is_unfinished: bool = field(repr=False)
    """Whether its build or refresh did not end."""


@dataclass(frozen=True, slots=True)
class Status(Result):
    """What an index holds, the files that it covers, and those that a search reads whole; `str()` is for people."""

    _derived = ("is_fresh",)

    index: str
    """Location of the index."""
    dataset: str
    """Location of the data set."""
    dataset_kind: str
    """parquet, delta, iceberg or lance."""
    table: Mapping[str, Any]
    """The indexed version of a table: `table_version` or `snapshot_id`."""
    version: int
    """Number of the version."""
    committed_at: datetime
    """Time of its commit, in UTC."""
    index_bytes: int
    """Bytes of its segments."""
    num_gone_zones: int
    """Zones of removed files in its segments; `optimize` removes these zones."""
    num_files: int
    """Current files of the data set."""
    num_rows: int
    """Rows of these files, without unreadable files."""
    num_new: int
    """Files that the index has not seen."""
    num_changed: int
    """Files that changed since they were indexed."""
    num_deleted: int
    """Removed files that the index still describes."""
    num_unreadable: int
    """New or changed files that cannot be read; their numbers of rows are unknown."""
    num_rows_not_indexed: int
    """Rows of new and changed files, without unreadable files."""
    num_skipped: int
    """Parquet files whose names begin with `_` or `.`: zonebloom skips them, some engines read them."""
    columns: tuple[IndexedColumn, ...]
    """The indexed columns."""
    gone_columns: tuple[str, ...]
    """Indexed columns that the table does not have by now: they were renamed or dropped."""
    damage: tuple[Reason, ...]
    """Parts of the index that are damaged or missing, for whole files or columns."""

    @property
    def is_fresh(self) -> bool:
        """Whether the index describes the current data set completely; if not, a refresh is needed."""
        stale = self.num_new or self.num_changed or self.num_deleted or self.num_unreadable
        return not (stale or self.damage or any(column.is_unfinished for column in self.columns))

    @property
    def headline(self) -> str:
        """Whether the index is fresh."""
        return "fresh" if self.is_fresh else "NOT FRESH: what is not indexed is read whole until a refresh"

    def facts(self) -> Iterator[tuple[str, Any]]:
        """Names and values, for people."""
        num_indexed = self.num_files - self.num_new - self.num_changed
        num_known = self.num_rows - self.num_rows_not_indexed
        yield "index", self.index
        table = [f"{label(name)} {value}" for name, value in self.table.items()]
        yield "data set", f"{self.dataset} ({', '.join([self.dataset_kind, *table])})"
        yield "version", f"{self.version}, {_age(self.committed_at)} old, {self.index_bytes:,} bytes"
        yield "files indexed", f"{num_indexed:,} of {self.num_files:,} ({percent(num_indexed, self.num_files)})"
        yield "rows indexed", f"{num_known:,} of {self.num_rows:,} ({percent(num_known, self.num_rows)})"
        yield "files that changed", f"{self.num_new:,} new, {self.num_changed:,} changed, {self.num_deleted:,} deleted"

    def notes(self) -> Iterator[str]:
        """Advice to refresh or `optimize`, damage, and skipped files."""
        if self.num_unreadable:
            yield f"{counted(self.num_unreadable, 'file')} cannot be read: how many rows is unknown"
        if self.num_skipped:
            yield f"skipped: {counted(self.num_skipped, 'Parquet file')} (names that begin with _ or .)"
        if self.num_gone_zones:
            yield gone_zones(self.num_gone_zones)
        unfinished = (column.name for column in self.columns if column.is_unfinished)
        yield from (f"the build of {name} is unfinished; a refresh continues it" for name in unfinished)
        yield from (f"the table has no column {name}: it was renamed or dropped" for name in self.gone_columns)
        yield from (f"damaged: {line}" for line in summed_up(self.damage))


def indexed_columns(snapshot: Snapshot) -> Results[IndexedColumn]:
    """The columns of a version of an index."""
    num_rows = int(snapshot.fragments.num_rows.sum())
    return Results(_indexed_column(snapshot, entry, num_rows) for entry in snapshot.manifest.columns)


def _indexed_column(snapshot: Snapshot, entry: ColumnEntry, num_rows: int) -> IndexedColumn:
    num_zones = snapshot.num_live_zones(entry)
    return IndexedColumn(
        name=entry.name,
        type=str(entry.column_type),
        kind=entry.kind,
        num_zones=num_zones,
        num_gone_zones=entry.num_zones - num_zones,
        rows_per_zone=entry.rows_per_zone,
        fpp=entry.fpp if has_bloom(entry.kind) else None,
        sizing=entry.sizing if has_bloom(entry.kind) else None,
        index_bytes=entry.index_bytes,
        bytes_per_row=round(entry.index_bytes / num_rows, 4) if num_rows else 0.0,
        segments=dict(sorted(Counter(segment.kind for segment in entry.segments).items())),
        is_unfinished=entry.is_unfinished,
    )


def status(view: View) -> Status:
    """The status of a view. Every segment of the index is opened, but not read whole; `verify` reads every byte."""
    manifest = view.snapshot.manifest
    with view.snapshot.quiet():  # damage is in the answer
        columns = [view.snapshot.column(entry) for entry in manifest.columns]
        for column in columns:
            column.open_all()
        probed = [view.column(entry.name) for entry in view.entries]
        indexed = indexed_columns(view.snapshot)
    of_columns = [reason for column in probed if column is not None for reason in (*column.reasons, *column.damage)]
    of_columns += [reason for column in columns for reason in column.lost]
    present = {entry.name for entry in view.entries}
    gone = [entry.name for entry in manifest.columns if entry.name not in present]
    until_refresh = "the column was renamed or dropped since it was indexed; a refresh records it"
    of_columns += [Reason(ReasonCode.COLUMN_NOT_INDEXED, until_refresh, name) for name in gone if name in view.replaced]
    damage = dict.fromkeys(reason for reason in (*view.snapshot.damage, *of_columns) if reason.code in _OF_INDEX)
    files = view.files
    known_rows = int(files.indexed.num_rows.sum())
    num_rows = files.rows().num_rows - sum(files[path].num_rows for path in files.unreadable_paths)
    return Status(
        index=view.snapshot.store.location,
        dataset=view.dataset.location,
        dataset_kind=manifest.dataset["kind"],
        table={name: manifest.dataset[name] for name in _TABLE_VERSIONS if name in manifest.dataset},
        version=manifest.version,
        committed_at=datetime.fromisoformat(manifest.committed_at),
        index_bytes=sum(column.index_bytes for column in indexed),
        num_gone_zones=sum(column.num_gone_zones for column in indexed),
        num_files=len(files),
        num_rows=num_rows,
        num_new=len(files.unknown_paths) - files.num_changed,
        num_changed=files.num_changed,
        num_deleted=files.num_deleted,
        num_unreadable=len(files.unreadable_paths),
        num_rows_not_indexed=num_rows - known_rows,
        num_skipped=view.dataset.num_skipped(),
        columns=tuple(indexed),
        gone_columns=tuple(gone),
        damage=tuple(damage),
    )


def _age(since: datetime) -> str:
    seconds = max(0, int((datetime.now(UTC) - since).total_seconds()))
    for name, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:,} {name}"
    return f"{seconds} s"
