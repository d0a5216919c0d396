"""Building in steps: what is finished is committed now and then, so that a build which dies keeps it.

A `Work` says which columns of which fragments are to be built, and what its first commit does besides. It is cut into
steps of about so many rows, at whole files; each step is built by the runner and committed. A small build is one step,
and so is one that makes a column anew: until that is whole, the old zones serve.

Spec: specs/refresh.md#steps
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, cast

from zonebloom.bloom.sizing import Sizing
from zonebloom.build.fill import BuildPlan, Parameters, Runner
from zonebloom.errors import DataFileError, InvalidArgumentError, StorageError
from zonebloom.formats import Dataset
from zonebloom.maintain.commit import commit_change, release_ids, reserve_ids
from zonebloom.maintain.optimize import optimize_column
from zonebloom.maintain.transaction import Change, ColumnChange, joined_levels
from zonebloom.storage.fragments import Fragment
from zonebloom.storage.level import LevelEntry
from zonebloom.storage.levels import parts_of_dataset
from zonebloom.storage.manifest import ColumnEntry, Manifest, list_versions
from zonebloom.storage.segment import runs
from zonebloom.storage.stores.store import Store

__all__ = ["COMMIT_EVERY", "Work", "check_commit_every", "no_levels", "reserved_ids", "sizing_of"]

COMMIT_EVERY = 1_000_000_000
"""Rows of a step by default: some minutes of work, and a hundred versions for a hundred billion rows."""
_ZONES_WORTH_SLICING = 4096
"""Up to so many zones a search of the zone layout takes well under a millisecond."""


def check_commit_every(rows: int) -> int:
    """`rows`, if it is a number of rows.

    Raises
    ------
    InvalidArgumentError
        It is none.
    """
    if not isinstance(rows, int) or rows < 1:
        raise InvalidArgumentError(f"commit_every must be a number of rows, at least 1, got {rows!r}")
    return rows


def no_levels(names: Sequence[str]) -> tuple[LevelEntry, ...]:
    """The levels `names` above the zones, without filters yet."""
    return tuple(LevelEntry(name, 0, 0.0, ()) for name in names if name != "zone")


@contextmanager
def reserved_ids(store: Store, next_fragment_id: int, count: int) -> Iterator[int]:
    """The first of `count` fragment ids that are reserved for the block; they are wasted if it raises.

    Only where there is no index yet they are given back, so that nothing stays of it.
    """
    if not count:
        yield next_fragment_id
        return
    first = reserve_ids(store, next_fragment_id, count)
    try:
        yield first
    except BaseException:
        with suppress(StorageError):  # the caller's error matters more
            if not list_versions(store):
                release_ids(store, first)
        raise


@dataclass(slots=True)
class Work:
    """What is to be built and committed.

    - Each fragment of `items` is new, and needs all columns, or is known already, and needs those that are named.
    """

    dataset: Dataset
    store: Store
    base: Manifest
    """The version that the first commit changes."""
    first: Change
    """What the first commit does besides: fragments that go, schema, data set."""
    columns: Sequence[ColumnEntry]
    """The parameters to build with, and the levels to make, by name; their segments do not count."""
    new: Sequence[Fragment]
    """New fragments, which are built for all columns."""
    known: Sequence[tuple[Fragment, frozenset[str]]]
    """Fragments of the base, and the columns that they are built for."""
    runner: Runner
    workers: int
    replaced: frozenset[str] = frozenset()
    """Paths of the segments that go."""
    is_rebuild: bool = False
    """Whether the columns are made anew."""
    is_sliced: bool = False
    """Whether columns of many zones become slice segments in the same step."""
    is_unfinished: bool = False
    """Whether the columns stay marked as unfinished after the last step too."""
    added: list[Fragment] = field(default_factory=list)
    """Filled: the fragments that were committed."""
    failed: dict[int, str] = field(default_factory=dict)
    """Filled: ids of fragments that could not be read, and why."""
    num_zones: int = 0
    """Filled: zones that were built, over all columns."""

    @property
    def num_rows(self) -> int:
        """Rows that will be read."""
        return sum(one.num_rows for one in self.new) + sum(one.num_rows for one, _ in self.known)

    def run(self, commit_every: int, on_rows: Callable[[int], None] | None = None) -> Manifest:
        """Build and commit, step by step; the version that the last step made.

        What a step that fails has written is deleted; those before it stay.
        """
        names = frozenset(entry.name for entry in self.columns)
        items = [*((one, names) for one in self.new), *self.known]
        self.runner.admit((one, [fragment for fragment, needed in items if one.name in needed]) for one in self.columns)
        steps = _cut(items, commit_every)
        new = {one.fragment_id for one in self.new}
        for number, step in enumerate(steps):
            built = self._build(step, on_rows)
            added = [one for one, _ in step if one.fragment_id in new and one.fragment_id not in self.failed]
            if self.base.version == 0 and not added and len(steps) == 1:
                _delete(self.store, _files(built))
                message = f"at least one data file must be readable, got: {next(iter(self.failed.values()))}"
                raise DataFileError(message)
            change = self._change(built, added, is_first=not number, is_last=number + 1 == len(steps))
            self.base = commit_change(self.store, self.base, change)
            self.added += added
        for message in self.failed.values():
            warnings.warn(f"{message}; the file is not indexed, and read whole", RuntimeWarning, stacklevel=4)
        return self.base

    def _build(
        self, step: Sequence[tuple[Fragment, frozenset[str]]], on_rows: Callable[[int], None] | None
    ) -> dict[str, ColumnEntry]:
        """The columns with the segments that `step` adds to them."""
        # a level of which no filter is made, for lack of files or as it would be too small, stays wanted
        wanted = {entry.name: no_levels([one.name for one in entry.levels]) for entry in self.columns}
        built = {entry.name: replace(entry, segments=(), unfit=(), levels=wanted[entry.name]) for entry in self.columns}
        try:
            for entries, fragments in _passes(self.columns, step):
                has_dataset = any(level.name == "dataset" for level in entries[0].levels)
                parts = parts_of_dataset(fragments) if has_dataset else [fragments]
                is_first = self.is_rebuild and not self.added
                room = self.num_rows if is_first else sum(one.num_rows for one in fragments)
                for number, part in enumerate(parts):
                    self._build_together(entries, part, on_rows, built, of_rows=0 if number else room)
            if self.is_sliced:
                live = {one.fragment_id for one, _ in step} - self.failed.keys()
                for name, entry in [one for one in built.items() if _is_worth_slicing(self.store, one[1])]:
                    built[name] = self.runner.run(_sliced, self.store, entry, live)
                    _delete(self.store, sorted({*entry.files}.difference(built[name].files)))
        except BaseException:
            _delete(self.store, _files(built))
            raise
        self.num_zones += sum(entry.num_zones for entry in built.values())
        return built

    def _build_together(
        self,
        entries: Sequence[ColumnEntry],
        fragments: Sequence[Fragment],
        on_rows: Callable[[int], None] | None,
        built: dict[str, ColumnEntry],
        *,
        of_rows: int,
    ) -> None:
        one = entries[0]
        types = {entry.name: entry.column_type for entry in entries}
        parameters = Parameters(one.rows_per_zone, one.fpp, sizing_of(one))
        levels = ("zone", *(level.name for level in one.levels))
        like = {name: max(map(_blocks_of_dataset, (self.base.column(name), built[name]))) for name in types}
        plan = BuildPlan(self.dataset, self.store, types, parameters, self.workers, on_rows, levels, like, of_rows)
        made = self.runner.build(plan, fragments)
        for name in types:
            before = built[name]
            unfit = made.unfit[name].union(*(range(start, stop) for start, stop in before.unfit))
            built[name] = replace(
                before,
                segments=(*before.segments, *made.segments[name]),
                unfit=runs(unfit),
                levels=joined_levels(before.levels, made.levels.get(name, ())),
            )
        self.failed |= made.failed

    def _change(
        self, built: dict[str, ColumnEntry], added: Sequence[Fragment], *, is_first: bool, is_last: bool
    ) -> Change:
        """The change of one step. A known file that could not be read is dropped, so that the next refresh tries."""
        failed = self.failed.keys() & {one.fragment_id for one, _ in self.known}
        done = {one.path for one in (*self.added, *added)}
        plain = Change(self.first.operation, dataset=self.first.dataset, next_fragment_id=self.first.next_fragment_id)
        return replace(
            self.first if is_first else plain,
            columns=tuple(
                ColumnChange(
                    replace(entry, is_unfinished=self.is_unfinished or not is_last),
                    self.replaced if is_first else frozenset(),
                    is_rebuilt=self.is_rebuild and is_first,
                )
                for entry in built.values()
            ),
            added=tuple(added),
            removed=(self.first.removed if is_first else frozenset()) | failed,
            unknown_paths=tuple(path for path in self.first.unknown_paths if path not in done),
        )


def sizing_of(entry: ColumnEntry) -> Sizing:
    """How a build chooses the size of the column's filters."""
    return cast("Sizing", "power_of_two" if entry.sizing == "imported" else entry.sizing)


def _blocks_of_dataset(entry: ColumnEntry | None) -> int:
    """Blocks of the largest filter of the data set that a column has."""
    levels = entry.levels if entry else ()
    return max(
        (one.filter_bytes // 32 for level in levels if level.name == "dataset" for one in level.segments), default=0
    )


def _cut(
    items: Sequence[tuple[Fragment, frozenset[str]]], commit_every: int
) -> list[list[tuple[Fragment, frozenset[str]]]]:
    """`items` in steps of at least `commit_every` rows but the last; one step, if there is nothing to do."""
    steps: list[list[tuple[Fragment, frozenset[str]]]] = [[]]
    num_rows = 0
    for item in items:
        if num_rows >= commit_every:
            steps.append([])
            num_rows = 0
        steps[-1].append(item)
        num_rows += item[0].num_rows
    return steps


def _passes(
    columns: Sequence[ColumnEntry], step: Sequence[tuple[Fragment, frozenset[str]]]
) -> Iterable[tuple[list[ColumnEntry], list[Fragment]]]:
    """Columns that are built together, as their parameters and fragments agree, and those fragments."""
    together: defaultdict[Any, tuple[list[ColumnEntry], list[Fragment]]] = defaultdict(lambda: ([], []))
    for entry in columns:
        wanted: defaultdict[bool, list[Fragment]] = defaultdict(list)
        for fragment, names in step:
            if entry.name in names:
                wanted[len(names) == len(columns)].append(fragment)
        for fragments in wanted.values():
            ids = tuple(one.fragment_id for one in fragments)
            levels = tuple(level.name for level in entry.levels)
            key = (entry.rows_per_zone, entry.fpp, entry.sizing, levels, ids)
            together[key][0].append(entry)
            together[key][1][:] = fragments
    return together.values()


def _is_worth_slicing(store: Store, column: ColumnEntry) -> bool:
    return column.num_zones > (0 if store.is_remote else _ZONES_WORTH_SLICING)  # far away, whole filters cost more


def _sliced(store: Store, column: ColumnEntry, live: set[int]) -> ColumnEntry:
    """A column of many zones with slice segments, which are to replace those that were written just now."""
    written: list[str] = []
    try:
        sliced, _ = optimize_column(store, column, live, written.append)
    except BaseException:
        for path in written:
            store.delete(path)
        raise
    return sliced


def _files(built: dict[str, ColumnEntry]) -> list[str]:
    return [path for entry in built.values() for path in entry.files]


def _delete(store: Store, paths: Iterable[str]) -> None:
    for path in paths:
        with suppress(StorageError):  # what stays is removed by a vacuum
            store.delete(path)
