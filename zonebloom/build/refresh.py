"""Refresh: bring the index in line with the data set, at a cost in proportion to the changed files.

Spec: specs/refresh.md
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from zonebloom.build.apply import apply
from zonebloom.build.plan import Mode, Scope, check_mode, options_of, plan_refresh
from zonebloom.errors import InvalidArgumentError
from zonebloom.formats import DatasetSnapshot
from zonebloom.formats.hive import Partitions
from zonebloom.options import BuildOptions
from zonebloom.search.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Refresh:
    """The outcome of a refresh; a changed file counts as dropped and as added."""

    mode: Mode
    """The mode of the call."""
    version: int
    """The version that is current now."""
    num_files_added: int
    """New and changed files that are indexed now."""
    num_files_dropped: int
    """Deleted and changed files whose fragments were dropped."""
    num_files_kept: int
    """Unchanged files, which were not opened."""
    num_zones_added: int
    """Zones that were built, over all columns."""
    num_zones: int
    """Zones in the segments of that version over all columns; also of dropped files, until `optimize`."""
    unreadable: tuple[str, ...]
    """Files that cannot be read, or that changed during the refresh; searches keep them whole."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def refresh(
    snapshot: Snapshot,
    dataset: DatasetSnapshot,
    work: BuildOptions,
    *,
    mode: Mode = "incremental",
    paths: Iterable[str | os.PathLike[str]] | None = None,
    partitions: Partitions | None = None,
    wanted: Mapping[str, Any] | None = None,
    check: bool = False,
    is_forced: bool = False,
) -> Refresh:
    """Bring the current version, `snapshot`, in line with the pinned `dataset`; see `Index.refresh`.

    Parameters
    ----------
    wanted
        Fields of `IndexOptions` that a full refresh gives all columns.
    is_forced
        Whether to commit even if nothing changed.

    Spec: specs/refresh.md
    """
    check_mode(mode)
    scope = Scope.of(dataset, snapshot, paths, partitions)
    if wanted and (mode != "full" or not scope.is_whole):
        raise InvalidArgumentError(f"new parameters must come with a full refresh of all files, got mode {mode!r}")
    columns = snapshot.manifest.columns
    options = {entry.name: replace(options_of(entry), **(wanted or {})) for entry in columns}
    plan = plan_refresh(snapshot, dataset, mode, scope, options, check=check)
    if not (scope.is_whole or plan.new or len(plan.dropped) or len(plan.kept)):
        message = f"paths and partitions must name some file, got {[*(paths or ()), partitions]}"
        warnings.warn(f"{message}, which is neither in the data set nor in the index", RuntimeWarning, stacklevel=3)
    done = apply(plan, work, is_forced=is_forced)
    return Refresh(
        mode,
        done.version.version,
        num_files_added=len(done.added),
        num_files_dropped=len(plan.dropped),
        num_files_kept=len(plan.kept),
        num_zones_added=done.num_zones,
        num_zones=sum(entry.num_zones for entry in done.version.columns),
        unreadable=tuple(sorted(done.unreadable)),
    )
