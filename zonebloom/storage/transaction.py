"""Transactions: a change made for one version is applied to another version.

A change has the added and removed fragments and segments. It can be applied to any version because of one invariant: a
fragment id belongs to one version of one file, and is never used again. So the zones of a live fragment are right in
every version. Two changes overlap if together they would lose or duplicate a fragment or a segment.

Design: docs/design/refresh.md#rebase
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from zonebloom.formats import DatasetSnapshot, hive as partitions
from zonebloom.formats.identity import names_in
from zonebloom.formats.schema_evolution import unified
from zonebloom.ground.errors import ConcurrentCommitError
from zonebloom.storage.fragments import Fragment, FragmentListEntry, FragmentTable, is_in_runs, write_fragments
from zonebloom.storage.manifest import ColumnEntry, Manifest
from zonebloom.storage.segment import Runs, covered_by, joined_runs, runs
from zonebloom.stores.store import Store

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Change:
    """The difference between a commit and the version before it.

    - Zones of `added` fragments are only in the added segments.
    """

    operation: str
    """The operation: build, refresh, optimize."""
    columns: tuple[ColumnEntry, ...] = ()
    """The parameters of changed columns; their `segments` and `unfit` are only the added ones."""
    removed_segments: frozenset[str] = frozenset()
    """Paths of removed segments."""
    is_rebuilt: bool = False
    """Whether the columns are rebuilt: their parameters may differ, and all older segments are removed."""
    added: tuple[Fragment, ...] = ()
    """New fragments."""
    removed: frozenset[int] = frozenset()
    """Ids of removed fragments."""
    removed_lists: frozenset[str] = frozenset()
    """Paths of removed fragment lists; all their fragments are removed."""
    schema: pa.Schema | None = None
    """Schema of the added files, without partition columns; the whole schema of a table.

    If the columns are rebuilt, it is the schema of all files: columns that no file has any longer are removed."""
    dataset: DatasetSnapshot | None = None
    """The data set, if its description has changed."""
    unknown_paths: tuple[str, ...] = ()
    """Files of the data set without fragments; their folders give partition columns too."""
    next_fragment_id: int = 0
    """The least id above all ids that were reserved for the change."""
    is_forced: bool = False
    """Whether to commit even if nothing changes, so that a damaged version is no longer the current one."""
    is_cleaning: bool = False
    """Whether to write all lists with dropped fragments anew, without them: they have paths, which may name values."""

    @classmethod
    def between(cls, operation: str, before: Sequence[ColumnEntry], after: Sequence[ColumnEntry]) -> Change:
        """The change of columns from `before` to `after`, which have the same parameters."""
        former, files = ({path for entry in entries for path in entry.files} for entries in (before, after))
        columns = (
            replace(entry, segments=tuple(new for new in entry.segments if new.path not in former), unfit=())
            for entry in after
        )
        return cls(operation, tuple(columns), frozenset(former - files))

    @property
    def written(self) -> list[str]:
        """Paths of the added segments."""
        return [path for entry in self.columns for path in entry.files]


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
"""The version before the first commit."""


@dataclass(slots=True)
class Rebase:
    """One attempt to apply `change`, which was made for `base`, to `current`."""

    store: Store
    base: Manifest
    current: Manifest
    change: Change
    lists: Mapping[str, FragmentTable]
    """By path, the fragments of each remaining list of `current`."""
    live: FragmentTable = field(init=False)
    """The live fragments of the following version that are in remaining lists."""
    added: list[Fragment] = field(init=False)
    """The added fragments of the following version."""

    def following(self) -> Manifest | None:
        """The next version; None if nothing is left to change. A new fragment list is written."""
        current, change = self.current, self.change
        if self.base.version == 0 < current.version:
            raise self._overlap("an index that is made")
        if self.base.version and names_in(self.base.dataset) != names_in(current.dataset):
            raise self._overlap("the data set")
        kept_lists = [entry for entry in current.fragment_lists if entry.path not in change.removed_lists]
        listed = FragmentTable.concatenated([self.lists[entry.path] for entry in kept_lists])
        is_gone = is_in_runs(listed.fragment_ids, current.dropped)
        removed = _ids(change.removed)
        is_removed = ~is_gone & np.isin(listed.fragment_ids, removed)
        is_gone |= is_removed
        self.live = listed.where(~is_gone)
        self.added = self._added(np.concatenate([listed.fragment_ids, removed]))
        columns = self._columns()
        schema, dataset = self._described()
        is_changed = self.added or is_removed.any() or change.is_forced or len(kept_lists) < len(current.fragment_lists)
        is_changed = is_changed or (change.is_cleaning and is_gone.any())
        if not is_changed and (columns, schema, dataset) == (current.columns, current.schema, current.dataset):
            return None
        lists, dropped = self._fragment_lists(kept_lists, listed.fragment_ids[is_gone])
        return current.following(
            change.operation,
            dataset=dataset,
            schema=schema,
            next_fragment_id=max(current.next_fragment_id, change.next_fragment_id),
            columns=columns,
            fragment_lists=lists,
            dropped=dropped,
        )

    def _added(self, used: NDArray[np.uint64]) -> list[Fragment]:
        """The new fragments, without files that the other commit has indexed in the same version."""
        added = []
        ids = _ids(fragment.fragment_id for fragment in self.change.added)
        are_used = np.isin(ids, used) | is_in_runs(ids, self.current.dropped)
        for fragment, is_used in zip(self.change.added, are_used.tolist(), strict=True):
            present = self.live.get(fragment.path)
            if is_used:
                raise self._overlap(f"fragment id {fragment.fragment_id} of {fragment.path}")
            if present is not None and present.fingerprint != fragment.fingerprint:
                raise self._overlap(f"file {fragment.path}")
            if present is None:
                added.append(fragment)
        return added

    def _columns(self) -> tuple[ColumnEntry, ...]:
        changed = {entry.name: entry for entry in self.change.columns}
        entries = [
            self._column(entry, changed.pop(entry.name)) if entry.name in changed else entry
            for entry in self.current.columns
        ]
        for entry in changed.values():
            if self.base.column(entry.name) is not None:
                raise self._overlap(f"column {entry.name}")
            entries.append(entry)
        live = np.sort(np.concatenate([self.live.fragment_ids, _ids(file.fragment_id for file in self.added)]))
        return tuple(_without_dead(entry, live) for entry in entries)

    def _column(self, current: ColumnEntry, new: ColumnEntry) -> ColumnEntry:
        change = self.change
        base = self.base.column(new.name)
        is_same = _parameters(current) == _parameters(new)
        if base is None or not (is_same or change.is_rebuilt):
            raise self._overlap(f"column {new.name}")
        former = set(base.files)
        kept = [segment for segment in current.segments if segment.path not in change.removed_segments]
        added = covered_by(new.segments)
        is_clear = {segment.path: segment.path in former or not _meet(added, segment.fragments) for segment in kept}
        if change.is_rebuilt:
            kept = [segment for segment in kept if segment.path not in former and is_clear[segment.path]]
            if kept and current.column_id != new.column_id:
                raise self._overlap(f"column {new.name} of the table")
            return replace(new, segments=(*(kept if is_same else ()), *new.segments))
        gone = covered_by(segment for segment in current.segments if segment.path in change.removed_segments)
        live = self.live.fragment_ids
        is_lost = is_in_runs(live, gone) & ~is_in_runs(live, covered_by(new.segments))  # a restore made it live again
        if not all(is_clear.values()) or is_lost.any():
            raise self._overlap(f"segments of column {new.name}")
        unfit = joined_runs((*current.unfit, *new.unfit))
        is_unfinished = current.is_unfinished and new.is_unfinished
        return replace(current, segments=(*kept, *new.segments), unfit=unfit, is_unfinished=is_unfinished)

    def _described(self) -> tuple[pa.Schema, dict[str, Any]]:
        """Schema and data set of the following version; its partition columns come from all its files."""
        current, change = self.current, self.change
        dataset = dict(current.dataset)
        if change.dataset is not None:
            dataset |= change.dataset.to_json(self.store.location)
        if dataset["kind"] != "parquet":
            return change.schema or current.schema, dataset
        if change.schema is None and not change.removed and not change.unknown_paths:
            return current.schema, dataset
        keys = current.dataset.get("partition_columns", [])
        data = pa.schema([column for column in current.schema if column.name not in keys])
        schemas = [data] if change.schema is None else [data, change.schema]
        if change.is_rebuilt and change.schema is not None:
            schemas = schemas[::-1] if current is not self.base else schemas[1:]
        schema = unified([part for part in schemas if len(part)]) if any(len(part) for part in schemas) else data
        indexed = {entry.name.split(".")[0] for entry in current.columns} | {entry.name for entry in current.columns}
        for column in data:  # an indexed column that is now in no file can still be searched: it is null
            if column.name in indexed and column.name not in schema.names:
                schema = schema.append(column)
        paths = sorted({*self.live, *(fragment.path for fragment in self.added), *change.unknown_paths})
        if paths:
            schema, dataset["partition_columns"] = partitions.with_keys(schema, paths)
        else:  # an empty data set keeps its partition columns as well
            schema = pa.schema([*schema, *(current.schema.field(key) for key in keys if key not in schema.names)])
        return schema, dataset

    def _fragment_lists(
        self, kept: Sequence[FragmentListEntry], gone: NDArray[np.uint64]
    ) -> tuple[tuple[FragmentListEntry, ...], Runs]:
        """The lists of the following version, and the ids of their dropped fragments.

        The new list absorbs lists of at most twice its length, and lists with most fragments dropped. So there are few
        lists, and each fragment is rewritten few times. A change that cleans absorbs lists with any dropped fragment.
        """
        most = 1 if self.change.is_cleaning else 2  # fragments of a list that stays for each live one
        alive = {e.path: self.lists[e.path].where(~np.isin(self.lists[e.path].fragment_ids, gone)) for e in kept}
        num_alive = {path: len(fragments) for path, fragments in alive.items()}
        stay = [e for e in kept if num_alive[e.path] and most * num_alive[e.path] >= e.num_fragments]
        parts = [FragmentTable.of(self.added), *(alive[entry.path] for entry in kept if entry not in stay)]
        for entry in sorted(stay, key=lambda entry: entry.num_fragments):
            num_new = sum(map(len, parts))
            if not num_new or entry.num_fragments > 2 * num_new:
                break
            parts.append(alive[entry.path])
            stay.remove(entry)
        left = [ids[np.isin(ids, gone)] for ids in (self.lists[entry.path].fragment_ids for entry in stay)]
        dropped = runs(np.concatenate(left).tolist() if left else ())
        if new := FragmentTable.concatenated(parts):
            stay.append(write_fragments(self.store, new.take(np.argsort(new.fragment_ids))))
        return tuple(stay), dropped

    def _overlap(self, what: str) -> ConcurrentCommitError:
        return ConcurrentCommitError(
            f"{what} must not be changed by another commit during {self.change.operation}",
            got=name_of(self.current),
            do="run again on top of it",
        )


def _parameters(entry: ColumnEntry) -> tuple[Any, ...]:
    return (entry.column_id, entry.column_type, entry.rows_per_zone, entry.fpp, entry.sizing, entry.kind)


def _meet(first: Runs, second: Runs) -> bool:
    """Whether two sorted lists of runs have an id in common."""
    stops = [stop for _, stop in first]
    for start, stop in second:
        at = int(np.searchsorted(stops, start, side="right"))
        if at < len(first) and first[at][0] < stop:
            return True
    return False


def _without_dead(entry: ColumnEntry, live: NDArray[np.uint64]) -> ColumnEntry:
    """The column without segments that have no live fragment; ids in `live` ascend."""
    segments = tuple(segment for segment in entry.segments if _num_live(segment.fragments, live))
    unfit = tuple(run for run in entry.unfit if _num_live((run,), live))
    return replace(entry, segments=segments, unfit=unfit)


def _num_live(runs: Runs, live: NDArray[np.uint64]) -> int:
    return sum(int(np.diff(np.searchsorted(live, np.array(run, np.uint64)))[0]) for run in runs)


def _ids(ids: Iterable[int]) -> NDArray[np.uint64]:
    return np.fromiter(ids, np.uint64)


def name_of(manifest: Manifest) -> str:
    """A version in an error message."""
    return f"version {manifest.version} ({manifest.operation}, committed {manifest.committed_at})"
