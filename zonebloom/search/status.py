"""The state of an index against its current data set: the files that it does not cover, and why.

Spec: specs/pruning.md#status
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from zonebloom.reasons import Reason, ReasonCode, counted, summed_up
from zonebloom.search.view import View

_OF_INDEX = (ReasonCode.SEGMENT_CORRUPT, ReasonCode.FORMAT_TOO_NEW, ReasonCode.COLUMN_NOT_INDEXED)


@dataclass(frozen=True, slots=True, repr=False)
class Status:
    """The files that an index covers, and those that a search reads whole; `str()` is for people."""

    index: str
    """Where the index is."""
    dataset: str
    """Where the data set is."""
    version: int
    """Number of the version."""
    committed_at: datetime
    """When it was committed, in UTC."""
    index_bytes: int
    """Bytes of its segments."""
    num_files: int
    """Files of the data set now."""
    num_rows: int
    """Their rows, as far as they can be read."""
    num_new: int
    """Files that the index has not seen."""
    num_changed: int
    """Files that changed since they were indexed."""
    num_deleted: int
    """Files that the index describes and that are gone."""
    num_unreadable: int
    """New or changed files that cannot be read; how many rows they have is unknown."""
    num_rows_not_indexed: int
    """Rows of new and changed files, as far as they can be read."""
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

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        damage = [reason.to_dict() for reason in self.damage]
        return {
            "is_fresh": self.is_fresh,
            **asdict(self),
            "committed_at": self.committed_at.isoformat(),
            "damage": damage,
        }

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """For notebooks, and the report."""
        from zonebloom.search.html import Share, facts, headed, listed  # noqa: PLC0415 - only for people

        num_indexed = self.num_files - self.num_new - self.num_changed
        known_rows = self.num_rows - self.num_rows_not_indexed
        shown = {
            "index": self.index,
            "data set": self.dataset,
            "version": f"{self.version}, {_age(self.committed_at)} old",
            "size": f"{self.index_bytes:,} bytes",
            "files indexed": f"{num_indexed:,} of {self.num_files:,} ({Share(num_indexed, self.num_files)})",
            "rows indexed": f"{known_rows:,} of {self.num_rows:,} ({Share(known_rows, self.num_rows)})",
            "files that changed": f"{self.num_new:,} new, {self.num_changed:,} changed, {self.num_deleted:,} deleted",
            "not readable": counted(self.num_unreadable, "file"),
            "skipped for their names": counted(self.num_skipped, "Parquet file"),
        }
        unfinished = [f"the build of {name} is unfinished; a refresh goes on" for name in self.unfinished]
        return headed(self._verdict(), facts(shown), listed([*unfinished, *summed_up(self.damage)]))

    def _verdict(self) -> str:
        return "fresh" if self.is_fresh else "NOT FRESH: what is not indexed is read whole until a refresh"

    def __str__(self) -> str:
        num_indexed = self.num_files - self.num_new - self.num_changed
        lines = [
            f"index     {self.index}",
            f"data set  {self.dataset}",
            f"version   {self.version}, {_age(self.committed_at)} old, {self.index_bytes:,} bytes",
            f"files     {num_indexed:,} of {self.num_files:,} indexed",
            f"          {self.num_new:,} new, {self.num_changed:,} changed, {self.num_deleted:,} deleted",
            f"rows      {self.num_rows:,}, {self.num_rows_not_indexed:,} of them not indexed",
        ]
        if self.num_unreadable:
            lines.append(f"          {counted(self.num_unreadable, 'file')} cannot be read: how many rows is unknown")
        if self.num_skipped:
            lines.append(f"skipped   {counted(self.num_skipped, 'Parquet file')} (names that begin with _ or .)")
        lines += [f"column    {name}: its build is unfinished; a refresh goes on" for name in self.unfinished]
        lines += [f"damaged   {line}" for line in summed_up(self.damage)]
        return "\n".join([*lines, self._verdict()])


def status(view: View) -> Status:
    """The status of a view; opens every segment of the index, and reads none whole, as `verify` does."""
    manifest = view.snapshot.manifest
    with view.snapshot.quiet():  # damage is in the answer
        probed = [view.column(entry.name) for entry in manifest.columns]
    of_columns = [reason for one in probed if one is not None for reason in (*one.reasons, *one.damage)]
    damage = dict.fromkeys(one for one in (*view.snapshot.damage, *of_columns) if one.code in _OF_INDEX)
    files = view.files
    known_rows = int(files.known.num_rows.sum())
    num_rows = files.rows().num_rows - sum(files[path].num_rows for path in files.unreadable_paths)
    return Status(
        index=view.snapshot.store.location,
        dataset=view.dataset.location,
        version=manifest.version,
        committed_at=datetime.fromisoformat(manifest.committed_at),
        index_bytes=sum(entry.index_bytes for entry in manifest.columns),
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
