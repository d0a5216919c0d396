"""The state of an index against its current data set: the files that it does not cover, and why.

Spec: specs/pruning.md#status
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from zonebloom.reasons import Reason, ReasonCode, counted, gone_zones, percent, summed_up
from zonebloom.rendering import Result, Table, label
from zonebloom.search.view import View

_COUNTS_OF_INFO = {"version": "version", "files": "num_fragments", "rows": "num_rows"}
_SHOWN = ("name", "type", "kind", "num_zones", "rows_per_zone", "fpp", "sizing", "index_bytes", "bytes_per_row")
"""The facts shown for a column."""
_OF_INDEX = (ReasonCode.SEGMENT_CORRUPT, ReasonCode.FORMAT_TOO_NEW, ReasonCode.COLUMN_NOT_INDEXED)


@dataclass(frozen=True, slots=True, repr=False)
class Status(Result):
    """The files that an index covers, and those that a search reads whole; `str()` is for people."""

    _derived = ("is_fresh",)

    index: str
    """Location of the index."""
    dataset: str
    """Location of the data set."""
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
    unfinished: tuple[str, ...]
    """Columns whose build or refresh did not end."""
    damage: tuple[Reason, ...]
    """Parts of the index that are damaged or missing, for whole files or columns."""

    @property
    def is_fresh(self) -> bool:
        """Whether the index describes the current data set completely; if not, a refresh is needed."""
        stale = self.num_new or self.num_changed or self.num_deleted or self.num_unreadable
        return not (stale or self.unfinished or self.damage)

    @property
    def headline(self) -> str:
        """Whether the index is fresh."""
        return "fresh" if self.is_fresh else "NOT FRESH: what is not indexed is read whole until a refresh"

    def facts(self) -> Iterator[tuple[str, Any]]:
        """Names and values, for people."""
        num_indexed = self.num_files - self.num_new - self.num_changed
        num_known = self.num_rows - self.num_rows_not_indexed
        yield "index", self.index
        yield "data set", self.dataset
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
        yield from (f"the build of {name} is unfinished; a refresh goes on" for name in self.unfinished)
        yield from (f"damaged: {line}" for line in summed_up(self.damage))


class Info(dict[str, Any], Result):
    """Version and counts of an index, and parameters and size of each column."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dict(self)

    @property
    def headline(self) -> str:
        """The index in a sentence."""
        return "zonebloom index"

    def facts(self) -> Iterator[tuple[str, Any]]:
        """Names and values, for people."""
        version = [f"{label(key)} {self[key]}" for key in ("table_version", "snapshot_id") if key in self]
        yield "index", self["index"]
        yield "data set", f"{self['dataset']} ({', '.join([self['dataset_kind'], *version])})"
        yield from ((name, self[key]) for name, key in _COUNTS_OF_INFO.items())

    def tables(self) -> Iterator[Table]:
        """The columns."""
        kinds = [[f"{kind} {count}" for kind, count in column["kinds"].items()] for column in self["columns"]]
        rows = [[column[name] for name in _SHOWN] for column in self["columns"]]
        yield Table([*map(label, _SHOWN), "segments"], [[*row, kind] for row, kind in zip(rows, kinds, strict=True)])

    def notes(self) -> Iterator[str]:
        """Advice to refresh or `optimize`."""
        for column in self["columns"]:
            if column["num_gone_zones"]:
                yield f"{column['name']}: {gone_zones(column['num_gone_zones'])}"
            if column["is_unfinished"]:
                yield f"{column['name']}: its build is unfinished; a refresh goes on"


def status(view: View) -> Status:
    """The status of a view. Every segment of the index is opened, but not read whole; `verify` reads every byte."""
    manifest = view.snapshot.manifest
    with view.snapshot.quiet():  # damage is in the answer
        columns = [view.snapshot.column(entry) for entry in manifest.columns]
        for column in columns:
            column.open_all()
        probed = [view.column(entry.name) for entry in manifest.columns]
        num_gone_zones = sum(entry.num_zones - view.snapshot.num_live_zones(entry) for entry in manifest.columns)
    of_columns = [reason for column in probed if column is not None for reason in (*column.reasons, *column.damage)]
    of_columns += [reason for column in columns for reason in column.lost]
    damage = dict.fromkeys(reason for reason in (*view.snapshot.damage, *of_columns) if reason.code in _OF_INDEX)
    files = view.files
    known_rows = int(files.known.num_rows.sum())
    num_rows = files.rows().num_rows - sum(files[path].num_rows for path in files.unreadable_paths)
    return Status(
        index=view.snapshot.store.location,
        dataset=view.dataset.location,
        version=manifest.version,
        committed_at=datetime.fromisoformat(manifest.committed_at),
        index_bytes=sum(entry.index_bytes for entry in manifest.columns),
        num_gone_zones=num_gone_zones,
        num_files=len(files),
        num_rows=num_rows,
        num_new=len(files.unknown_paths) - files.num_changed,
        num_changed=files.num_changed,
        num_deleted=files.num_deleted,
        num_unreadable=len(files.unreadable_paths),
        num_rows_not_indexed=num_rows - known_rows,
        num_skipped=view.dataset.num_skipped(),
        unfinished=tuple(entry.name for entry in manifest.columns if entry.is_unfinished),
        damage=tuple(damage),
    )


def _age(since: datetime) -> str:
    seconds = max(0, int((datetime.now(UTC) - since).total_seconds()))
    for name, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:,} {name}"
    return f"{seconds} seconds"
