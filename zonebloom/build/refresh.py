"""Refreshing: the index follows the data set, in proportion to what changed.

Spec: specs/refresh.md
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from zonebloom.build.apply import apply
from zonebloom.build.plan import Mode, Scope, check_mode, options_of, plan_refresh
from zonebloom.errors import InvalidArgumentError
from zonebloom.formats import DatasetSnapshot
from zonebloom.formats.hive import Partitions
from zonebloom.maintain.transaction import covered_by
from zonebloom.options import BuildOptions
from zonebloom.search.snapshot import Snapshot
from zonebloom.storage.fragments import FragmentTable, is_in_runs
from zonebloom.storage.manifest import ColumnEntry

__all__ = ["Mode", "Refresh", "refresh"]


@dataclass(frozen=True, slots=True)
class Refresh:
    """What a refresh did; a file that changed counts as dropped and as added."""

    mode: Mode
    """As it was called."""
    version: int
    """The version that is current now."""
    num_files_added: int
    """Files that the index knows now as they are."""
    num_files_dropped: int
    """Files that it does not describe any more, as they were."""
    num_files_kept: int
    """Files that it knew already as they are; not opened."""
    num_zones_added: int
    """Zones that were built, over all columns."""
    num_zones_dropped: int
    """Zones of dropped files, over all columns; `optimize` takes them out of the segments."""
    num_zones_kept: int
    """Zones of kept files, over all columns."""
    unreadable: tuple[str, ...]
    """Files that cannot be read, or that changed meanwhile; searches keep them whole."""

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
        num_zones_dropped=_num_zones(columns, plan.dropped),
        num_zones_kept=_num_zones(columns, plan.kept),
        unreadable=tuple(sorted(done.unreadable)),
    )


def _num_zones(columns: Iterable[ColumnEntry], fragments: FragmentTable) -> int:
    """Zones of `fragments` that are in segments."""
    ids, rows = fragments.fragment_ids, fragments.num_rows.astype(np.int64)
    found = 0
    for entry in columns:
        has_zones = is_in_runs(ids, covered_by(entry.segments)) & ~is_in_runs(ids, entry.unfit)
        found += int((-(-rows[has_zones] // entry.rows_per_zone)).sum())
    return found
