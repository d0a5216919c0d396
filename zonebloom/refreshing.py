"""Refreshing: the index follows the data set, in proportion to what changed.

One listing is set against the fragments. New and changed files become new fragments and are built, all columns in one
pass where their parameters agree; fragments of changed and deleted files are dropped; unchanged files are not opened.
What was lost to damage, and files that a column has not seen, are built as well.

Spec: specs/refresh.md
"""

from __future__ import annotations

import os
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, cast, get_args

import numpy as np
import pyarrow as pa

from zonebloom import hashing
from zonebloom.building import BuildPlan, Parameters, Runner, Threads, num_cores
from zonebloom.committing import commit_change, reserve_ids
from zonebloom.coverage import Snapshot
from zonebloom.datasets import Dataset
from zonebloom.datasets.source import Fingerprint
from zonebloom.errors import ColumnNotFoundError, CorruptIndexError, InvalidArgumentError, UnsupportedTypeError
from zonebloom.progress import Progress, reporting
from zonebloom.rebasing import Change, ColumnChange, covered_by
from zonebloom.sizing import Sizing
from zonebloom.storage.fragments import Fragment, FragmentTable, is_in_runs
from zonebloom.storage.level import LevelEntry
from zonebloom.storage.manifest import ColumnEntry
from zonebloom.storage.segment import SegmentEntry, checksum, runs
from zonebloom.storage.slice_segment import SliceSegment
from zonebloom.storage.store import Store
from zonebloom.storage.zone_segment import ZoneSegment

__all__ = ["Mode", "Refresh", "refresh"]

Mode = Literal["incremental", "quick", "full"]


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
    dataset: Dataset,
    *,
    mode: Mode = "incremental",
    paths: Iterable[str | os.PathLike[str]] | None = None,
    check: bool = False,
    workers: int | None = None,
    progress: bool | Callable[[Progress], None] = False,
    is_forced: bool = False,
    runner: Runner | None = None,
) -> Refresh:
    """Bring the current version, `snapshot`, in line with `dataset`, and commit the next one if anything changed.

    Parameters
    ----------
    paths
        Files and folders of the data set to which the refresh is confined.
    check
        Whether to read the index whole and rebuild what differs from its checksum.
    is_forced
        Whether to commit even if nothing changed.
    runner
        Where the work is done; by default in `workers` threads of this process.

    Spec: specs/refresh.md
    """
    if mode not in get_args(Mode):
        raise InvalidArgumentError(f"mode must be one of {', '.join(get_args(Mode))}, got {mode!r}")
    if workers is not None and workers < 1:
        raise InvalidArgumentError(f"workers must be at least 1, got {workers}")
    scope = None if paths is None else [dataset.relative(path) for path in paths]
    plan = _plan(snapshot, dataset, mode, scope, check=check)
    workers = workers or num_cores()
    work = _Work(snapshot, dataset, plan, workers, runner or Threads(workers))
    if mode != "quick":
        work.build(progress)
    version = commit_change(snapshot.store, snapshot.manifest, work.change(is_forced=is_forced)).version
    columns = snapshot.manifest.columns
    return Refresh(
        mode,
        version,
        num_files_added=len(work.added),
        num_files_dropped=len(plan.dropped),
        num_files_kept=len(plan.kept),
        num_zones_added=work.num_zones,
        num_zones_dropped=_num_zones(columns, plan.dropped),
        num_zones_kept=_num_zones(columns, plan.kept),
        unreadable=tuple(sorted(work.unreadable)),
    )


# --- what to do -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Plan:
    """What changed."""

    mode: Mode
    is_whole: bool
    """Whether the whole data set was listed."""
    new: dict[str, Fingerprint]
    """Files to make fragments of."""
    dropped: FragmentTable
    """Fragments that go."""
    kept: FragmentTable
    """Fragments of files that are as they were."""
    gaps: dict[str, list[Fragment]]
    """By column, fragments among `kept` that it has never seen."""
    bad_levels: frozenset[str]
    """Paths of damaged segments of levels."""


def _plan(snapshot: Snapshot, dataset: Dataset, mode: Mode, scope: Sequence[str] | None, *, check: bool) -> _Plan:
    listing = dataset.list() if scope is None else dataset.list_under(scope)
    damaged = () if mode == "quick" else covered_by(_damaged(snapshot, check=check))
    known = snapshot.fragments if scope is None else _under(snapshot.fragments, scope)
    positions = known.compare(listing)
    is_kept = np.zeros(len(known), np.bool_)
    is_kept[positions[positions >= 0]] = mode != "full"
    is_kept &= ~is_in_runs(known.fragment_ids, damaged)
    kept, dropped = known.where(is_kept), known.where(~is_kept)
    new = {path: found for path, found in listing.items() if path not in kept}
    bad_levels = frozenset(
        segment.path
        for entry in snapshot.manifest.columns
        for level in entry.levels
        for segment in level.segments
        if mode != "quick" and not _is_sound(snapshot.store, segment, check=check)
    )
    gaps = {} if mode != "incremental" else {entry.name: _unseen(entry, kept) for entry in snapshot.manifest.columns}
    return _Plan(mode, scope is None, new, dropped, kept, gaps, bad_levels)


def _under(fragments: FragmentTable, scope: Sequence[str]) -> FragmentTable:
    """The fragments whose files are one of `scope` or in one of them."""
    found = [any(one in (path, ".") or path.startswith(f"{one}/") for one in scope) for path in fragments]
    return fragments.where(np.array(found, np.bool_))


def _damaged(snapshot: Snapshot, *, check: bool) -> list[SegmentEntry]:
    """Segments that are missing, have the wrong length, or are known to be damaged; all are read with `check`."""
    return [
        segment
        for entry in snapshot.manifest.columns
        for segment in entry.segments
        if segment.path in snapshot.damaged_segments or not _is_sound(snapshot.store, segment, check=check)
    ]


def _is_sound(store: Store, segment: SegmentEntry, *, check: bool) -> bool:
    try:
        if store.size(segment.path) != segment.num_bytes:
            return False
        if check and segment.kind == "zones":
            return not ZoneSegment(store, segment).zones()[1]
        if check and segment.kind == "sbbf":
            data, first = store.read(segment.path), 0
            for span in segment.spans:
                if checksum(data[first : first + span.num_bytes]) != span.checksum:
                    return False
                first += span.num_bytes
        if check and segment.kind == "slices":
            sliced = SliceSegment(store, segment)
            sliced.read_positions()
            return sliced.verify()
    except (CorruptIndexError, FileNotFoundError):
        return False
    return True


def _unseen(entry: ColumnEntry, fragments: FragmentTable) -> list[Fragment]:
    """Fragments with rows that the column has never seen."""
    ids = fragments.fragment_ids
    is_seen = is_in_runs(ids, covered_by(entry.segments)) | is_in_runs(ids, entry.unfit)
    return fragments.where((fragments.num_rows > 0) & ~is_seen).values()


def _num_zones(columns: Iterable[ColumnEntry], fragments: FragmentTable) -> int:
    """Zones of `fragments` that are in segments."""
    ids, rows = fragments.fragment_ids, fragments.num_rows.astype(np.int64)
    found = 0
    for entry in columns:
        has_zones = is_in_runs(ids, covered_by(entry.segments)) & ~is_in_runs(ids, entry.unfit)
        found += int((-(-rows[has_zones] // entry.rows_per_zone)).sum())
    return found


# --- doing it ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Work:
    """The segments that are built, and the change that they make."""

    snapshot: Snapshot
    dataset: Dataset
    plan: _Plan
    workers: int
    runner: Runner
    added: list[Fragment] = field(default_factory=list)
    schema: pa.Schema | None = None
    next_fragment_id: int = 0
    failed: dict[int, str] = field(default_factory=dict)
    """Fragments that could not be read, and why."""
    unreadable: set[str] = field(default_factory=set)
    segments: defaultdict[str, list[SegmentEntry]] = field(default_factory=lambda: defaultdict(list))
    levels: defaultdict[str, list[LevelEntry]] = field(default_factory=lambda: defaultdict(list))
    unfit: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    columns: list[ColumnEntry] = field(default_factory=list)
    """The columns with the parameters that they are built with."""

    @property
    def num_zones(self) -> int:
        return sum(segment.num_zones for found in self.segments.values() for segment in found)

    @property
    def is_rebuild(self) -> bool:
        return self.plan.mode == "full" and self.plan.is_whole

    def build(self, progress: bool | Callable[[Progress], None]) -> None:  # noqa: FBT001 - passed on
        """Write the segments of all that the plan names."""
        self._read_footers()
        self.columns = [self._rebuilt(entry) for entry in self.snapshot.manifest.columns]
        passes = self._passes()
        total = sum(one.num_rows for _, fragments in passes for one in fragments)
        try:
            with reporting(progress if total else False, total) as on_rows:
                for entries, fragments in passes:
                    self._build(entries, fragments, on_rows)
        except BaseException:
            for segment in (one for found in self.segments.values() for one in found):
                self.snapshot.store.delete(segment.path)
            raise
        for message in self.failed.values():
            warnings.warn(f"{message}; the file is not indexed, and read whole", RuntimeWarning, stacklevel=2)
        kept = self.plan.kept
        is_failed = np.isin(kept.fragment_ids, np.fromiter(self.failed, np.uint64, len(self.failed)))
        self.unreadable |= {*kept.where(is_failed), *(one.path for one in self.added if one.fragment_id in self.failed)}
        self.added = [one for one in self.added if one.fragment_id not in self.failed]

    def _read_footers(self) -> None:
        new = self.plan.new
        if not new:
            return
        store = self.snapshot.store
        first = reserve_ids(store, self.snapshot.manifest.next_fragment_id, len(new))
        self.next_fragment_id = first + len(new)
        ids = dict(zip(new, range(first, self.next_fragment_id), strict=True))
        inspected = self.runner.read_footers(self.dataset, new, ids)
        self.added, self.unreadable = inspected.fragments, set(inspected.skipped)
        self.schema = inspected.schema if inspected.fragments else None

    def _rebuilt(self, entry: ColumnEntry) -> ColumnEntry:
        """The column as it is built: with the type that the files have now, if all are."""
        sizing = "power_of_two" if entry.sizing == "imported" else entry.sizing
        if not self.is_rebuild or self.schema is None:
            return entry
        try:
            column_type = hashing.resolve_column(self.schema, entry.name).type
            hashing.hash_plan(column_type)
        except (ColumnNotFoundError, UnsupportedTypeError):
            column_type = entry.column_type
        return replace(entry, column_type=column_type, sizing=sizing)

    def _passes(self) -> list[tuple[list[ColumnEntry], list[Fragment]]]:
        """Columns that are built together, and the fragments that they are built of."""
        together: defaultdict[Any, tuple[list[ColumnEntry], list[Fragment]]]
        together = defaultdict(lambda: ([], []))
        for entry in self.columns:
            for fragments in (self.added, self.plan.gaps.get(entry.name, [])):
                if fragments:
                    ids = tuple(one.fragment_id for one in fragments)
                    names = tuple(level.name for level in entry.levels)
                    key = (entry.rows_per_zone, entry.fpp, entry.sizing, names, ids)
                    together[key][0].append(entry)
                    together[key][1][:] = fragments
        return list(together.values())

    def _build(
        self, entries: Sequence[ColumnEntry], fragments: Sequence[Fragment], on_rows: Callable[[int], None] | None
    ) -> None:
        first = entries[0]
        sizing = cast("Sizing", "power_of_two" if first.sizing == "imported" else first.sizing)
        types = {entry.name: entry.column_type for entry in entries}
        parameters = Parameters(first.rows_per_zone, first.fpp, sizing)
        levels = ("zone", *(level.name for level in first.levels))
        plan = BuildPlan(self.dataset, self.snapshot.store, types, parameters, self.workers, on_rows, levels)
        built = self.runner.build(plan, fragments)
        for name, found_levels in built.levels.items():
            self.levels[name] += found_levels
        for name, found in built.segments.items():
            self.segments[name] += found
        for name, ids in built.unfit.items():
            self.unfit[name] |= ids
        self.failed |= built.failed

    def change(self, *, is_forced: bool) -> Change:
        """The change to commit. A kept file that could not be read is dropped too, so that the next refresh tries."""
        removed = {*self.plan.dropped.fragment_ids.tolist()}
        removed |= self.failed.keys() & {*self.plan.kept.fragment_ids.tolist()}
        known = {*self.plan.kept, *(one.path for one in self.added)}
        return Change(
            "refresh",
            columns=tuple(self._column_change(entry) for entry in self.columns),
            added=tuple(self.added),
            removed=frozenset(removed),
            removed_lists=self.snapshot.damaged_lists,
            schema=self.schema,
            is_schema_whole=self.is_rebuild and self.schema is not None,
            unknown_paths=tuple(path for path in self.plan.new if path not in known),
            next_fragment_id=self.next_fragment_id,
            is_forced=is_forced,
        )

    def _column_change(self, entry: ColumnEntry) -> ColumnChange:
        segments = tuple(self.segments[entry.name])
        replaced = self.plan.bad_levels
        if self.is_rebuild:
            replaced |= {segment.path for segment in entry.segments}
        levels = tuple(self.levels[entry.name])
        built = replace(entry, segments=segments, unfit=runs(self.unfit[entry.name]), levels=levels)
        return ColumnChange(built, replaced, is_rebuilt=self.is_rebuild)
