"""Refresh: update the index to the data set, at a cost in proportion to the changed files.

Design: docs/design/refresh.md
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from zonebloom.formats import DatasetSnapshot
from zonebloom.formats.hive import Partitions
from zonebloom.ground.errors import InvalidArgumentError
from zonebloom.ground.reasons import counted, gone_zones
from zonebloom.ground.rendering import Result
from zonebloom.indexing.apply import apply
from zonebloom.indexing.plan import Mode, Scope, plan_refresh
from zonebloom.storage.options import BuildOptions
from zonebloom.storage.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Refresh(Result):
    """The outcome of a refresh; a changed file counts as dropped and as added."""

    mode: Mode
    """The mode of the call."""
    version: int
    """The current version after the call."""
    num_files_added: int
    """New and changed files that were indexed."""
    num_files_dropped: int
    """Deleted and changed files whose fragments were dropped."""
    num_files_kept: int
    """Unchanged files; they were not opened."""
    num_zones_added: int
    """Zones that were built, over all columns."""
    num_zones: int
    """Zones of the files of that version, over all columns."""
    num_gone_zones: int
    """Zones of removed files that its segments still have; `optimize` removes these zones."""
    unreadable: tuple[str, ...]
    """Files that cannot be read, or that changed during the refresh; searches keep them whole."""

    @property
    def headline(self) -> str:
        """The outcome in a line."""
        gone = f"; {gone_zones(self.num_gone_zones)}" if self.num_gone_zones else ""
        return (
            f"version {self.version}: {counted(self.num_files_added, 'file')} added, "
            f"{self.num_files_dropped:,} dropped, {self.num_files_kept:,} kept; "
            f"{counted(self.num_zones_added, 'zone')} added, {self.num_zones:,} in the index{gone}"
        )


def refresh(
    snapshot: Snapshot,
    dataset: DatasetSnapshot,
    work: BuildOptions,
    *,
    mode: Mode = "incremental",
    paths: Sequence[str | os.PathLike[str]] | None = None,
    partitions: Partitions | None = None,
    wanted: Mapping[str, Any] | None = None,
    check: bool = False,
    is_forced: bool = False,
) -> tuple[Refresh, Snapshot]:
    """Update the current version `snapshot` to the pinned `dataset`; returns the outcome and the next version.

    See `Index.refresh`.

    Parameters
    ----------
    wanted
        Fields of `IndexOptions` that a full refresh gives all columns.
    is_forced
        Whether to commit even if nothing changed.

    Design: docs/design/refresh.md
    """
    InvalidArgumentError.unless_among("mode", mode, get_args(Mode))
    scope = Scope.of(dataset, snapshot, paths, partitions)
    if wanted and (mode != "full" or not scope.is_whole):
        raise InvalidArgumentError("new parameters must come with a full refresh of all files", got=f"mode {mode!r}")
    columns = snapshot.manifest.columns
    options = {entry.name: replace(entry.options, **(wanted or {})) for entry in columns}
    plan = plan_refresh(snapshot, dataset, mode, scope, options, check=check)
    if not (scope.is_whole or plan.new or len(plan.dropped) or len(plan.kept)):
        if scope.partitions is not None:
            folders = ("/".join(f"{key}={value}" for key, value in partition.items()) for partition in scope.partitions)
            raise InvalidArgumentError(f"no file has {', '.join(folders) or 'no partition'}")
        files = ", ".join(scope.paths or ()) or "no path"  # an event may name a file again after its removal
        warnings.warn(f"no file is at {files}, neither in the data set nor in the index", RuntimeWarning, stacklevel=3)
    done = apply(plan, work, is_forced=is_forced)
    is_same = done.version.version == snapshot.manifest.version
    after = snapshot if is_same else Snapshot(snapshot.store, done.version)
    num_zones = sum(map(after.num_live_zones, done.version.columns))
    outcome = Refresh(
        mode,
        done.version.version,
        num_files_added=len(done.added),
        num_files_dropped=len(plan.dropped),
        num_files_kept=len(plan.kept),
        num_zones_added=done.num_zones,
        num_zones=num_zones,
        num_gone_zones=sum(entry.num_zones for entry in done.version.columns) - num_zones,
        unreadable=tuple(sorted(done.unreadable)),
    )
    return outcome, after
