"""Committing a change: set it on the current version, and again on top of whoever came first.

A writer states its change (fragments and segments that come and go), not the version that it wants. So one that lost a
race sets the same change on the version that won, as long as the two do not overlap, and nothing is built twice. That
is sound because of one invariant: a fragment id belongs to one version of one file for ever, so the zones of a live
fragment are right in whatever version names them. Ids are reserved by creating a file, before anything is built.

Spec: specs/refresh.md#rebase
"""

from __future__ import annotations

import contextlib
import random
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from zonebloom.building import unified
from zonebloom.datasets import partitions
from zonebloom.errors import ConcurrentCommitError, CorruptIndexError, StorageError
from zonebloom.selection import MAX_FRAGMENT_ID
from zonebloom.storage.level import LevelEntry
from zonebloom.storage.manifest import (
    ColumnEntry,
    Fragment,
    FragmentListEntry,
    Manifest,
    commit,
    list_versions,
    read_fragments,
    read_version,
    write_fragments,
)
from zonebloom.storage.segment import Runs, SegmentEntry, runs
from zonebloom.storage.store import Store

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["NO_VERSION", "Change", "ColumnChange", "commit_change", "covered_by", "reserve_ids"]

_MAX_ATTEMPTS = 200
_LONGEST_PAUSE = 0.2
"""Seconds; the pauses of writers that lost are random, so that they do not meet again."""
_UNKNOWN_RESERVATION = 1 << 16
"""Ids that a reservation is taken to hold if it cannot be read."""
_RESERVATION = re.compile(r"\d{20}")


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """Segments of one column that come and go."""

    entry: ColumnEntry
    """The column's parameters; its `segments`, `unfit` and `levels` are what is added."""
    removed: frozenset[str] = frozenset()
    """Paths of the segments that go, of levels too."""
    is_rebuilt: bool = False
    """Whether the column is made anew: its parameters may differ from the current ones, and all older segments go."""

    @classmethod
    def between(cls, before: ColumnEntry, after: ColumnEntry) -> ColumnChange:
        """What makes `after` of `before`, which has the same parameters."""
        kept = {segment.path for segment in after.segments}
        known = {segment.path for segment in before.segments}
        added = tuple(segment for segment in after.segments if segment.path not in known)
        return cls(replace(after, segments=added, unfit=(), levels=()), frozenset(known - kept))


@dataclass(frozen=True, slots=True)
class Change:
    """What a commit does to the version before it.

    - The zones of `added` are in the added segments, or nowhere.
    """

    operation: str
    """What makes it: build, refresh, optimize."""
    columns: tuple[ColumnChange, ...] = ()
    """By column."""
    added: tuple[Fragment, ...] = ()
    """New fragments."""
    removed: frozenset[int] = frozenset()
    """Ids of fragments that go."""
    removed_lists: frozenset[str] = frozenset()
    """Paths of fragment lists that go with all that is in them."""
    schema: pa.Schema | None = None
    """Schema of the added files, without partition columns."""
    is_schema_whole: bool = False
    """Whether `schema` stands for all files, so that columns which no file has any more go."""
    dataset: Mapping[str, Any] | None = None
    """The description of the data set, where it is another one than before."""
    unknown_paths: tuple[str, ...] = ()
    """Files of the data set that are no fragments; their folders are partition columns too."""
    next_fragment_id: int = 0
    """Least id above all that were reserved for it."""
    is_forced: bool = False
    """Whether to commit even if nothing changes, to leave a damaged version behind."""

    @property
    def written(self) -> list[str]:
        """Paths of the added segments."""
        return [path for column in self.columns for path in column.entry.files]


def covered_by(segments: Iterable[SegmentEntry]) -> Runs:
    """Runs of the ids of the fragments that have zones in `segments`."""
    found: list[tuple[int, int]] = []
    for start, stop in sorted(run for segment in segments for run in segment.fragments):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(stop, found[-1][1]))
        else:
            found.append((start, stop))
    return tuple(found)


NO_VERSION = Manifest(
    version=0,
    operation="",
    dataset={},
    schema=pa.schema([]),
    next_fragment_id=0,
    columns=(),
    fragment_lists=(),
    committed_at="",
)
"""What the first commit changes."""


# --- ids --------------------------------------------------------------------------------------------------------------


def reserve_ids(store: Store, next_fragment_id: int, count: int) -> int:
    """The first of `count` consecutive fragment ids that no other writer ever gets.

    `ids/<first>` is created if absent, and says where the next reservation begins; a writer that dies wastes its ids.

    Spec: specs/refresh.md#ids
    """
    for attempt in range(_MAX_ATTEMPTS):
        first = max(next_fragment_id, _reserved(store))
        if first + count > MAX_FRAGMENT_ID:
            message = f"fragment ids must stay below {MAX_FRAGMENT_ID}, got {count} more from {first}"
            raise StorageError(f"{message}; build the index anew in another folder")
        if store.create(f"ids/{first:020d}", str(first + count).encode()):
            return first
        _pause(attempt)
    message = f"one of {_MAX_ATTEMPTS} attempts to reserve fragment ids must succeed, got none in {store.location}/ids"
    raise ConcurrentCommitError(f"{message}; run again when fewer writers are busy")


def _reserved(store: Store) -> int:
    names = [name for name in store.list("ids") if _RESERVATION.fullmatch(name)]
    if not names:
        return 0
    try:
        return max(int(store.read(f"ids/{names[-1]}")), int(names[-1]) + 1)
    except (ValueError, FileNotFoundError):
        return int(names[-1]) + _UNKNOWN_RESERVATION


# --- commits ----------------------------------------------------------------------------------------------------------


def commit_change(store: Store, base: Manifest, change: Change) -> Manifest:
    """The version that `change` made, of `base` or of a later version that others made of it.

    The current version comes back where nothing is left to change. What a change that is not committed wrote is
    deleted; where an error leaves that open it stays, until a vacuum.

    Raises
    ------
    ConcurrentCommitError
        Another commit came first, and the two overlap.
    CorruptIndexError
        The current version or one of its fragment lists is damaged.

    Spec: specs/refresh.md#rebase
    """
    lists: dict[str, list[Fragment]] = {}
    current, following = base, None
    try:
        for attempt in range(_MAX_ATTEMPTS):
            for entry in current.fragment_lists:
                if entry.path not in lists and entry.path not in change.removed_lists:
                    lists[entry.path] = read_fragments(store, entry)
            following = _Rebase(store, base, current, change, lists).following()
            if following is None:
                _delete(store, change.written)
                return current
            if _is_committed(store, current, following):
                return following
            following = None
            _pause(attempt)
            current = _newest(store)
        message = f"one of {_MAX_ATTEMPTS} attempts to commit {change.operation} must come first, got none"
        raise ConcurrentCommitError(f"{message}; the last was beaten by {_name(current)}")  # noqa: TRY301 - as others
    except BaseException:
        if following is None or not _may_exist(store, following.version):
            _delete(store, [*change.written, *_new_lists(current, following)])
        raise


def _is_committed(store: Store, current: Manifest, following: Manifest) -> bool:
    try:
        commit(store, following)
    except ConcurrentCommitError:
        _delete(store, _new_lists(current, following))
        return False
    return True


def _new_lists(current: Manifest, following: Manifest | None) -> list[str]:
    known = {entry.path for entry in current.fragment_lists}
    return [entry.path for entry in following.fragment_lists if entry.path not in known] if following else []


def _may_exist(store: Store, version: int) -> bool:
    try:
        return version in list_versions(store)
    except StorageError:
        return True


def _newest(store: Store) -> Manifest:
    while True:
        number = list_versions(store)[-1]
        try:
            return read_version(store, number)
        except CorruptIndexError:
            if list_versions(store)[-1] == number:
                raise  # else a vacuum removed it, for there is a newer one


def _pause(attempt: int) -> None:
    time.sleep(random.uniform(0, min(_LONGEST_PAUSE, 0.002 * 2 ** min(attempt, 10))))  # noqa: S311 - no secret


def _delete(store: Store, paths: Iterable[str]) -> None:
    for path in paths:
        with contextlib.suppress(StorageError):  # what stays is removed by a vacuum; the caller's error matters more
            store.delete(path)


def _name(manifest: Manifest) -> str:
    return f"version {manifest.version} ({manifest.operation}, committed {manifest.committed_at})"


@dataclass(slots=True)
class _Rebase:
    """One attempt: `change`, which was made for `base`, on top of `current`."""

    store: Store
    base: Manifest
    current: Manifest
    change: Change
    lists: Mapping[str, list[Fragment]]
    """By path, the fragments of each list of `current` that stays."""
    live: dict[str, Fragment] = field(init=False)
    """By path, the fragments of the following version."""

    def following(self) -> Manifest | None:
        """The next version; None where nothing is left to change. A new fragment list is written."""
        current, change = self.current, self.change
        if self.base.version == 0 < current.version:
            raise self._overlap("an index that is made")
        kept_lists = [entry for entry in current.fragment_lists if entry.path not in change.removed_lists]
        gone = {one for start, stop in current.dropped for one in range(start, stop)}
        ids = {one.fragment_id for entry in kept_lists for one in self.lists[entry.path]}
        removed = change.removed & (ids - gone)
        gone |= removed
        self.live = {
            one.path: one for entry in kept_lists for one in self.lists[entry.path] if one.fragment_id not in gone
        }
        added = self._added(ids | gone)
        self.live.update((one.path, one) for one in added)
        columns = self._columns()
        schema, dataset = self._described()
        is_changed = added or removed or change.is_forced or len(kept_lists) < len(current.fragment_lists)
        if not is_changed and (columns, schema, dataset) == (current.columns, current.schema, current.dataset):
            return None
        lists, dropped = self._fragment_lists(kept_lists, gone, added)
        return current.following(
            change.operation,
            dataset=dataset,
            schema=schema,
            next_fragment_id=max(current.next_fragment_id, change.next_fragment_id),
            columns=columns,
            fragment_lists=lists,
            dropped=dropped,
        )

    def _added(self, used: set[int]) -> list[Fragment]:
        """The new fragments, less those files that the other commit indexed as they are."""
        added = []
        for one in self.change.added:
            there = self.live.get(one.path)
            if one.fragment_id in used:
                raise self._overlap(f"fragment id {one.fragment_id} of {one.path}")
            if there is not None and there.fingerprint != one.fingerprint:
                raise self._overlap(f"file {one.path}")
            if there is None:
                added.append(one)
        return added

    def _columns(self) -> tuple[ColumnEntry, ...]:
        changes = {column.entry.name: column for column in self.change.columns}
        entries = [
            self._column(entry, changes.pop(entry.name)) if entry.name in changes else entry
            for entry in self.current.columns
        ]
        for column in changes.values():
            if self.base.column(column.entry.name) is not None:
                raise self._overlap(f"column {column.entry.name}")
            entries.append(column.entry)
        live = np.sort(np.fromiter((one.fragment_id for one in self.live.values()), np.int64, len(self.live)))
        return tuple(_without_dead(entry, live) for entry in entries)

    def _column(self, current: ColumnEntry, change: ColumnChange) -> ColumnEntry:
        new = change.entry
        base = self.base.column(new.name)
        is_same = _parameters(current) == _parameters(new)
        if base is None or not (is_same or change.is_rebuilt):
            raise self._overlap(f"column {new.name}")
        known = {segment.path for segment in base.segments}
        kept = [segment for segment in current.segments if segment.path not in change.removed]
        added = covered_by(new.segments)
        is_clear = {one.path: one.path in known or not _meet(added, one.fragments) for one in kept}
        if change.is_rebuilt:
            kept = [one for one in kept if is_same and one.path not in known and is_clear[one.path]]
            return replace(new, segments=(*kept, *new.segments))
        if not all(is_clear.values()):
            raise self._overlap(f"segments of column {new.name}")
        unfit = runs(one for start, stop in (*current.unfit, *new.unfit) for one in range(start, stop))
        levels = _joined([_without(level, change.removed) for level in current.levels], new.levels)
        return replace(current, segments=(*kept, *new.segments), unfit=unfit, levels=levels)

    def _described(self) -> tuple[pa.Schema, dict[str, Any]]:
        """Schema and data set of the following version; partition columns are those of all its files."""
        current, change = self.current, self.change
        dataset = {**current.dataset, **(change.dataset or {})}
        if change.schema is None and not change.removed and not change.unknown_paths:
            return current.schema, dataset
        keys = current.dataset.get("partition_columns", [])
        data = pa.schema([one for one in current.schema if one.name not in keys])
        schemas = [data] if change.schema is None else [data, change.schema]
        if change.is_schema_whole:
            schemas = schemas[::-1] if current is not self.base else schemas[1:]
        schema = unified([one for one in schemas if len(one)]) if any(len(one) for one in schemas) else data
        indexed = {entry.name.split(".")[0] for entry in current.columns} | {entry.name for entry in current.columns}
        for one in data:  # an indexed column that no file has any more can still be asked for: it is null
            if one.name in indexed and one.name not in schema.names:
                schema = schema.append(one)
        paths = sorted({*self.live, *change.unknown_paths})
        fields = partitions.infer_fields(paths, schema.names)
        if not paths:  # an empty data set keeps its partition columns as well
            fields = [one for one in current.schema if one.name in keys and one.name not in schema.names]
        dataset["partition_columns"] = [one.name for one in fields]
        return pa.schema([*schema, *fields]), dataset

    def _fragment_lists(
        self, kept: Sequence[FragmentListEntry], gone: set[int], added: Sequence[Fragment]
    ) -> tuple[tuple[FragmentListEntry, ...], Runs]:
        """The lists of the following version and what of them is gone.

        The new list takes up older ones that are not much longer than itself, and those of which most is gone. So there
        are few lists, and each fragment is rewritten few times.
        """
        alive = {e.path: [one for one in self.lists[e.path] if one.fragment_id not in gone] for e in kept}
        new = list(added)
        stay = [entry for entry in kept if 2 * len(alive[entry.path]) >= entry.num_fragments and alive[entry.path]]
        new += chain.from_iterable(alive[entry.path] for entry in kept if entry not in stay)
        for entry in sorted(stay, key=lambda one: one.num_fragments):
            if not new or entry.num_fragments > 2 * len(new):
                break
            new += alive[entry.path]
            stay.remove(entry)
        dropped = runs(one.fragment_id for e in stay for one in self.lists[e.path] if one.fragment_id in gone)
        if new:
            new.sort(key=lambda one: one.fragment_id)
            stay.append(write_fragments(self.store, new))
        return tuple(stay), dropped

    def _overlap(self, what: str) -> ConcurrentCommitError:
        message = f"{what} must not be changed by another commit during {self.change.operation}"
        return ConcurrentCommitError(f"{message}, got {_name(self.current)}; run again on top of it")


def _without(level: LevelEntry, removed: frozenset[str]) -> LevelEntry:
    return replace(level, segments=tuple(segment for segment in level.segments if segment.path not in removed))


def _joined(before: Sequence[LevelEntry], new: Sequence[LevelEntry]) -> tuple[LevelEntry, ...]:
    """The levels of both: each filter speaks only of the fragments that it was built from."""
    added = {level.name: level for level in new}
    found = []
    for level in before:
        more = added.pop(level.name, None)
        if more is None:
            found.append(level)
            continue
        weights = max(level.num_filters, 1), max(more.num_filters, 1)
        fpp = (level.fpp * weights[0] + more.fpp * weights[1]) / sum(weights)
        segments = (*level.segments, *more.segments)
        found.append(LevelEntry(level.name, level.num_values + more.num_values, fpp, segments))
    return (*found, *added.values())


def _parameters(entry: ColumnEntry) -> tuple[Any, ...]:
    return (entry.column_type, entry.rows_per_zone, entry.fpp, entry.sizing)


def _meet(first: Runs, second: Runs) -> bool:
    """Whether two sorted lists of runs have an id in common."""
    stops = [stop for _, stop in first]
    for start, stop in second:
        at = int(np.searchsorted(stops, start, side="right"))
        if at < len(first) and first[at][0] < stop:
            return True
    return False


def _without_dead(entry: ColumnEntry, live: NDArray[np.int64]) -> ColumnEntry:
    """The column without segments that have nothing of a live fragment; ids in `live` ascend."""

    def living(segments: Sequence[SegmentEntry]) -> tuple[SegmentEntry, ...]:
        return tuple(segment for segment in segments if _num_live(segment.fragments, live))

    segments = living(entry.segments)
    levels = tuple(replace(level, segments=living(level.segments)) for level in entry.levels)
    levels = tuple(level for level in levels if level.segments)
    unfit = tuple(run for run in entry.unfit if _num_live((run,), live))
    return replace(entry, segments=segments, unfit=unfit, levels=levels)


def _num_live(found: Runs, live: NDArray[np.int64]) -> int:
    return sum(int(np.diff(np.searchsorted(live, run))[0]) for run in found)
