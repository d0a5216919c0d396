"""Refreshing: the index follows the data set, in proportion to what changed.

One listing is set against the fragments. New and changed files become new fragments and are built, all columns in one
pass where their parameters agree; fragments of changed and deleted files are dropped; unchanged files are not opened.
What was lost to damage, and files that a column has not seen, are built as well.

Spec: specs/refresh.md
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa

from zonebloom.bloom import hashing
from zonebloom.bloom.sizing import Sizing, check_fpp, check_rows_per_zone, num_blocks_for
from zonebloom.build.checkpoints import COMMIT_EVERY, Work, check_commit_every, no_levels, reserved_ids
from zonebloom.build.fill import Inspected, Runner, Threads, as_declared, default_workers
from zonebloom.build.progress import Progress, reporting
from zonebloom.errors import ColumnNotFoundError, CorruptIndexError, InvalidArgumentError, UnsupportedTypeError
from zonebloom.formats import Dataset
from zonebloom.formats.hive import Partitions, agrees, wanted_partitions
from zonebloom.formats.source import Fingerprint
from zonebloom.maintain.transaction import Change, covered_by
from zonebloom.search.view import Snapshot, replaced_columns
from zonebloom.storage.fragments import Fragment, FragmentTable, is_in_runs
from zonebloom.storage.levels import check_levels
from zonebloom.storage.locator.reader import LocatorSegment
from zonebloom.storage.manifest import ColumnEntry
from zonebloom.storage.segment import SegmentEntry, checksum, column_folder
from zonebloom.storage.slices.reader import SliceSegment
from zonebloom.storage.stores.store import Store
from zonebloom.storage.zone_segment import ZoneSegment

__all__ = ["UNCHANGED", "Mode", "Refresh", "Wanted", "refresh"]

_ASKED_ALONE = 4
"""Up to so many segments of a column, each is asked for its size."""

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


@dataclass(frozen=True, slots=True)
class Wanted:
    """Parameters that a full refresh gives all columns; None leaves them."""

    rows_per_zone: int | None = None
    fpp: float | None = None
    sizing: Sizing | None = None
    levels: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.rows_per_zone is not None:
            check_rows_per_zone(self.rows_per_zone)
        if self.fpp is not None:
            check_fpp(self.fpp)
        num_blocks_for(self.rows_per_zone or 1, self.fpp or 0.5, self.sizing or "exact")
        if self.levels is not None:
            check_levels(self.levels)


UNCHANGED = Wanted()


def refresh(
    snapshot: Snapshot,
    dataset: Dataset,
    *,
    mode: Mode = "incremental",
    paths: Iterable[str | os.PathLike[str]] | None = None,
    partitions: Partitions | None = None,
    wanted: Wanted = UNCHANGED,
    check: bool = False,
    workers: int | None = None,
    commit_every: int | None = None,
    progress: bool | Callable[[Progress], None] = False,
    is_forced: bool = False,
    runner: Runner | None = None,
    operation: str = "refresh",
    is_unfinished: bool = False,
) -> Refresh:
    """Bring the current version, `snapshot`, in line with `dataset`, and commit the next one if anything changed.

    Parameters
    ----------
    paths, partitions
        Files and folders of the data set, or hive partitions, to which the refresh is confined.
    wanted
        New parameters of all columns.
    check
        Whether to read the index whole and rebuild what differs from its checksum.
    commit_every
        Rows of a step.
    is_forced
        Whether to commit even if nothing changed.
    runner
        Where the work is done; by default in `workers` threads of this process.
    operation
        What the versions say that made them.
    is_unfinished
        Whether the columns of a build that did not come to its end stay marked as such.

    Spec: specs/refresh.md
    """
    if mode not in get_args(Mode):
        raise InvalidArgumentError(f"mode must be one of {', '.join(get_args(Mode))}, got {mode!r}")
    if workers is not None and workers < 1:
        raise InvalidArgumentError(f"workers must be at least 1, got {workers}")
    if paths is not None and partitions is not None:
        raise InvalidArgumentError("a refresh must be confined to paths or to partitions, got both")
    if wanted != UNCHANGED and (mode != "full" or paths is not None or partitions is not None):
        raise InvalidArgumentError(f"new parameters must come with a full refresh of all files, got mode {mode!r}")
    commit_every = check_commit_every(COMMIT_EVERY if commit_every is None else commit_every)
    known_keys = snapshot.manifest.dataset.get("partition_columns", [])
    scope = Scope(
        None if paths is None else [dataset.relative(path) for path in paths],
        None if partitions is None else wanted_partitions(partitions, known_keys),
    )
    plan = _plan(snapshot, dataset, mode, scope, wanted, check=check)
    workers = workers or default_workers(dataset)
    with _work(snapshot, dataset, plan, workers, runner or Threads(workers)) as (work, unreadable):
        work.is_unfinished |= is_unfinished
        work.first = replace(work.first, operation=operation, is_forced=is_forced)
        with reporting(progress if work.num_rows else False, work.num_rows) as on_rows:
            version = work.run(commit_every if not work.is_rebuild else sys.maxsize, on_rows).version
        for one in (*work.new, *(known for known, _ in work.known)):
            if one.fragment_id in work.failed:
                unreadable.add(one.path)
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
        unreadable=tuple(sorted(unreadable)),
    )


@dataclass(frozen=True, slots=True)
class Scope:
    """The part of a data set to which a refresh is confined."""

    paths: Sequence[str] | None = None
    """Files and folders, relative."""
    partitions: Sequence[Mapping[str, str | None]] | None = None
    """Values of partition columns as folders have them; a file agrees with any of them."""

    @property
    def is_whole(self) -> bool:
        """Whether it is all of it."""
        return self.paths is None and self.partitions is None

    def list(self, dataset: Dataset) -> dict[str, Fingerprint]:
        """The files there are now; nothing beside is listed."""
        if self.paths is not None:
            return dataset.list_under(self.paths)
        return dataset.list() if self.partitions is None else dataset.list_partitions(self.partitions)

    def of(self, fragments: FragmentTable) -> FragmentTable:
        """The fragments in it."""
        if self.is_whole:
            return fragments
        if self.partitions is not None:
            found = [agrees(path, self.partitions) for path in fragments]
        else:
            scope = self.paths or ()
            found = [any(one in (path, ".") or path.startswith(f"{one}/") for one in scope) for path in fragments]
        return fragments.where(np.array(found, np.bool_))


# --- what to do -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Plan:
    """What changed."""

    mode: Mode
    wanted: Wanted
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


def _plan(snapshot: Snapshot, dataset: Dataset, mode: Mode, scope: Scope, wanted: Wanted, *, check: bool) -> _Plan:
    listing = scope.list(dataset)
    if replaced_columns(snapshot.manifest, dataset.declared()) and mode != "quick":
        if not scope.is_whole:
            message = "a refresh must be of the whole table after an indexed column became another one"
            raise InvalidArgumentError(f"{message}, got a part of it")
        mode = "full"
    bad = frozenset() if mode == "quick" else _damaged(snapshot, check=check)
    columns = snapshot.manifest.columns
    damaged = covered_by(segment for entry in columns for segment in entry.segments if segment.path in bad)
    known = scope.of(snapshot.fragments)
    positions = known.compare(listing)
    is_kept = np.zeros(len(known), np.bool_)
    is_kept[positions[positions >= 0]] = mode != "full"
    is_kept &= ~is_in_runs(known.fragment_ids, damaged)
    kept, dropped = known.where(is_kept), known.where(~is_kept)
    new = {path: found for path, found in listing.items() if path not in kept}
    bad_levels = bad - {segment.path for entry in columns for segment in entry.segments}
    gaps = {} if mode != "incremental" else {entry.name: _unseen(entry, kept) for entry in columns}
    return _Plan(mode, wanted, scope.is_whole, new, dropped, kept, gaps, bad_levels)


def _damaged(snapshot: Snapshot, *, check: bool) -> frozenset[str]:
    """Paths of segments that are missing, have the wrong length, or are known to be damaged; `check` reads them all."""
    found = set(snapshot.damaged_segments)
    for entry in snapshot.manifest.columns:
        segments = [*entry.segments, *(segment for level in entry.levels for segment in level.segments)]
        sizes = _sizes(snapshot.store, entry.name, segments)
        for segment in segments:
            is_there = sizes.get(segment.path) == segment.num_bytes
            if not is_there or (check and not _is_sound(snapshot.store, segment)):
                found.add(segment.path)
    return frozenset(found)


def _sizes(store: Store, column: str, segments: Sequence[SegmentEntry]) -> dict[str, int]:
    """Bytes of each of `segments` that exists; many are listed, which is a request for a thousand of them."""
    if len(segments) > _ASKED_ALONE:
        return {path: size for path, (size, _) in store.files(column_folder(column)).items()}
    found = {}
    for segment in segments:
        with suppress(FileNotFoundError):
            found[segment.path] = store.size(segment.path)
    return found


def _is_sound(store: Store, segment: SegmentEntry) -> bool:
    """Whether the segment has all its checksums."""
    try:
        if segment.kind == "zones":
            return not ZoneSegment(store, segment).zones()[1]
        if segment.kind == "sbbf":
            data, first = store.read(segment.path), 0
            for span in segment.spans:
                if checksum(data[first : first + span.num_bytes]) != span.checksum:
                    return False
                first += span.num_bytes
        if segment.kind == "slices":
            sliced = SliceSegment(store, segment)
            sliced.read_positions()
            return sliced.verify()
        if segment.kind == "locator":
            return LocatorSegment(store, segment).verify()
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


@contextmanager
def _work(
    snapshot: Snapshot, dataset: Dataset, plan: _Plan, workers: int, runner: Runner
) -> Iterator[tuple[Work, set[str]]]:
    """The work of a refresh, and the files that cannot be read; ids are reserved for the block."""
    base, new = snapshot.manifest, plan.new if plan.mode != "quick" else {}
    with reserved_ids(snapshot.store, base.next_fragment_id, len(new)) as first:
        inspected = Inspected([], pa.schema([]), {})
        if new:
            ids = dict(zip(new, range(first, first + len(new)), strict=True))
            inspected = as_declared(runner.read_footers(dataset, new, ids), dataset)
        schema = inspected.schema if inspected.fragments else None
        is_rebuild = plan.mode == "full" and plan.is_whole
        columns = [_rebuilt(entry, plan.wanted, schema) if is_rebuild else entry for entry in base.columns]
        gaps: defaultdict[Fragment, set[str]] = defaultdict(set)
        for name, fragments in plan.gaps.items():
            for one in fragments:
                gaps[one].add(name)
        declared = dataset.declared()
        is_moved = declared is not None and plan.mode != "quick" and bool(new or len(plan.dropped) or gaps)
        replaced = {path for entry in base.columns for path in entry.files} if is_rebuild else plan.bad_levels
        change = Change(
            "refresh",
            removed=frozenset(plan.dropped.fragment_ids.tolist()),
            removed_lists=snapshot.damaged_lists,
            schema=schema,
            declared=declared.schema if declared is not None and is_moved else None,
            is_schema_whole=is_rebuild and schema is not None,
            dataset=dataset.to_json(snapshot.store.location) if is_moved else None,
            unknown_paths=tuple(plan.new),
            next_fragment_id=first + len(new) if new else 0,
        )
        work = Work(
            dataset,
            snapshot.store,
            base,
            change,
            columns=columns if plan.mode != "quick" else [],
            new=inspected.fragments,
            known=[(one, frozenset(names)) for one, names in gaps.items()],
            runner=runner,
            workers=workers,
            replaced=frozenset(replaced),
            is_rebuild=is_rebuild,
            is_unfinished=not plan.is_whole,
        )
        yield work, set(inspected.skipped)


def _rebuilt(entry: ColumnEntry, wanted: Wanted, schema: pa.Schema | None) -> ColumnEntry:
    """The column as it is built anew: with the type that the files have now, if all are, and what is wanted of it."""
    column_type = entry.column_type
    if schema is not None:
        try:
            found = hashing.resolve_column(schema, entry.name).type
            hashing.hash_plan(found)
            column_type = found
        except (ColumnNotFoundError, UnsupportedTypeError):
            pass
    levels = [level.name for level in entry.levels] if wanted.levels is None else check_levels(wanted.levels)
    sizing = "power_of_two" if entry.sizing == "imported" else entry.sizing
    return replace(
        entry,
        column_type=column_type,
        rows_per_zone=wanted.rows_per_zone or entry.rows_per_zone,
        fpp=wanted.fpp or entry.fpp,
        sizing=wanted.sizing or sizing,
        levels=no_levels(levels),
    )
