"""`Erasure`: what was erased, and what still holds it; its JSON is the record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from zonebloom.ground.reasons import counted
from zonebloom.ground.rendering import Result
from zonebloom.stores.fingerprint import Fingerprint


def tag_of(fingerprint: Fingerprint) -> str:
    """What identifies a version of a file beside its size: the store's tag, or the time of its last modification."""
    return fingerprint.etag or f"{np.datetime64(fingerprint.mtime_ns, 'ns')}Z"


@dataclass(frozen=True, slots=True)
class ErasedFile(Result):
    """A data file that held rows of the values."""

    path: str
    """Relative to the data set."""
    num_rows: int
    """Rows of the values."""
    bytes_before: int
    """Size of the file with these rows."""
    tag_before: str = field(repr=False)
    """Tag of the file in its store, or its time of last modification in UTC."""
    bytes_after: int | None = None
    """Size of the file that replaced it; null for the file of a table, which new files replace, and in a dry run."""
    tag_after: str | None = field(default=None, repr=False)
    """As `tag_before`, of the file that replaced it."""


@dataclass(frozen=True, slots=True)
class Erasure(Result):
    """The result of `erase`; its JSON is the record, which names no value but in paths."""

    dataset: str
    """Folder, URL or table; the file, or the files of a list, that the data set is."""
    kind: str
    """`parquet`, `delta` or `iceberg`."""
    column: str
    """The column whose values were erased."""
    num_values: int
    """Distinct values of the request."""
    values_sha256: str
    """SHA-256 of the distinct values as texts, in order, each followed by a line feed."""
    num_rows_erased: int
    """Rows that were erased; of a dry run, rows that would be."""
    num_rows_left: int
    """Rows of the values that the last check found."""
    files: tuple[ErasedFile, ...]
    """The data files that held the rows."""
    removed: tuple[str, ...]
    """Other files that were removed: checksums, summaries, and old files of a table."""
    index_versions: tuple[int, int]
    """The version of the index before, and the only one that is left after."""
    table_versions: tuple[int, int] | None
    """The version of a Delta table, or the snapshot of an Iceberg table, before and after."""
    still_held: tuple[str, ...]
    """What may still hold the rows, and what to do about it."""
    started_at: str
    """Start of the first call, in UTC."""
    finished_at: str
    """End of the last call, in UTC."""
    command: str
    """The call."""
    zonebloom_version: str
    """The version of zonebloom."""
    is_dry_run: bool
    """Whether nothing was changed."""

    @property
    def headline(self) -> str:
        """The outcome in a line."""
        verb = "would be erased" if self.is_dry_run else "erased"
        values, files = counted(self.num_values, "value"), counted(len(self.files), "file")
        left = "" if self.is_dry_run else f"; {counted(self.num_rows_left, 'row')} left"
        return f"{counted(self.num_rows_erased, 'row')} of {values} {verb} from {files}{left}"

    def facts(self) -> Iterator[tuple[str, Any]]:
        """What a reader needs beside the headline."""
        yield from (("data set", self.dataset), ("column", self.column))
        if self.removed:
            yield "other files removed", len(self.removed)

    def notes(self) -> Iterator[str]:
        """What may still hold the rows."""
        yield from (f"still held: {holder}" for holder in self.still_held)
        if not self.is_dry_run:
            yield "not seen: backups, and copies elsewhere"
