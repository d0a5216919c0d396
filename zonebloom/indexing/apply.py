"""Applying a plan: open the new files, then build and commit, step by step.

The work is cut at whole files into equal steps of about `commit_every` rows. Each step is built and committed, so a
build that dies loses only its last step. A small build is one step. A build that replaces zones is one step too:
searches use the old zones until its commit.

Design: docs/design/refresh.md#steps
"""

from __future__ import annotations

import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate, groupby
from typing import Any

import pyarrow as pa

from zonebloom.bloom import hashing
from zonebloom.formats.identity import is_described
from zonebloom.ground.errors import ColumnNotFoundError, DataFileError, InvalidArgumentError, UnsupportedTypeError
from zonebloom.indexing.fill import BuildPlan, Inspected, Runner, Threads, as_declared, check_any, default_workers
from zonebloom.indexing.optimize import MOST_LOCATORS, optimize_column
from zonebloom.indexing.plan import UNKNOWN_TYPE, Plan
from zonebloom.indexing.progress import reporting
from zonebloom.storage.commit import commit_change
from zonebloom.storage.fragments import Fragment
from zonebloom.storage.manifest import ColumnEntry, Manifest
from zonebloom.storage.options import BuildOptions, has_bloom
from zonebloom.storage.reservation import reserved_ids
from zonebloom.storage.segment import runs
from zonebloom.storage.transaction import Change
from zonebloom.stores.store import Store, delete_all, undoing

_ZONES_WORTH_SLICING = 4096
"""Zones: up to this number, a search of the zone layout takes well under a millisecond."""

Item = tuple[Fragment, frozenset[str]]
"""A fragment, and the columns that it is built for."""


def apply(plan: Plan, options: BuildOptions, *, optimize: bool = False, is_forced: bool = False) -> Steps:
    """Build and commit `plan`; if a step fails, its files are deleted, and earlier steps stay committed.

    Parameters
    ----------
    optimize
        Whether filters of many zones become slice segments in the step that builds them, and many locators one. After a
        build of several steps the columns stay marked as unfinished until the same is done for all steps.
    is_forced
        Whether to commit even if nothing changed.
    """
    runner = runner_for(plan.dataset, options)
    with inspected(plan, runner) as (opened, change):
        columns = [_typed(entry, opened.schema) if plan.is_rebuild else entry for entry in plan.columns]
        new = [fragment for fragment in opened.fragments if fragment.path in plan.new]
        with_gaps = [
            (fragment, plan.gaps[fragment.fragment_id])
            for fragment in (plan.kept.values() if plan.gaps else ())
            if fragment.fragment_id in plan.gaps and fragment.path not in opened.skipped
        ]
        names = frozenset(entry.name for entry in columns)
        items: list[Item] = [*((fragment, names) for fragment in new), *with_gaps]
        num_rows = sum(fragment.num_rows for fragment, _ in items)
        is_one_step = num_rows <= options.commit_every or bool(plan.replaced)
        is_ended = is_one_step and not plan.is_resumed
        steps = Steps(
            plan,
            replace(change, is_forced=is_forced),
            columns,
            frozenset(fragment.fragment_id for fragment in new),
            runner,
            workers=options.workers or default_workers(plan.dataset),
            is_optimized=optimize,
            is_unfinished=not plan.is_whole or (optimize and not is_ended),
            is_ended=is_ended,
            version=plan.snapshot.manifest,
            unreadable=set(opened.skipped),
        )
        with reporting(options.progress if num_rows else False, num_rows) as on_rows:
            steps.run(items, sys.maxsize if is_one_step else options.commit_every, on_rows)
        return steps


def runner_for(dataset: Any, options: BuildOptions) -> Runner:
    """The runner of `options`, or threads of this process."""
    runner: Runner | None = options.runner
    return runner or Threads(options.workers or default_workers(dataset))


@contextmanager
def inspected(plan: Plan, runner: Runner) -> Iterator[tuple[Inspected, Change]]:
    """The opened files of the plan, with reserved ids, and the rest of the first commit.

    If the block raises an error and there was no index before, no file stays.
    """
    base, store = plan.snapshot.manifest, plan.snapshot.store
    new = plan.new if plan.columns else {}
    with reserved_ids(store, base.next_fragment_id, len(new)) as first:
        ids = dict(zip(new, range(first, first + len(new)), strict=True))
        opened = Inspected([], pa.schema([]), {})
        files = dict(sorted({**plan.reopened, **new}.items())) if plan.reopened else new
        if files:
            ids |= {path: plan.kept[path].fragment_id for path in plan.reopened}
            opened = runner.read_footers(plan.dataset, files, ids)
            opened = check_any(opened, plan.dataset) if plan.is_first else as_declared(opened, plan.dataset)
        yield opened, _first_change(plan, opened, first + len(new) if new else 0)


def _first_change(plan: Plan, opened: Inspected, next_fragment_id: int) -> Change:
    """The first commit without its added fragments and segments."""
    schema = opened.schema if opened.fragments else None
    is_named = plan.is_first or not is_described(plan.snapshot.manifest.dataset, plan.snapshot.store, plan.dataset)
    if plan.dataset.declared is not None:
        is_named |= bool(plan.columns) and bool(plan.new or len(plan.dropped) or plan.gaps)
        schema = plan.dataset.declared.schema if is_named else None
    lost = [plan.kept[path].fragment_id for path in opened.skipped if path in plan.kept]
    return Change(
        plan.operation,
        removed=frozenset([*plan.dropped.fragment_ids.tolist(), *lost]),
        removed_segments=plan.replaced,
        is_rebuilt=plan.is_rebuild,
        removed_lists=plan.snapshot.damaged_lists,
        schema=schema,
        dataset=plan.dataset if is_named else None,
        unknown_paths=(*plan.new, *opened.skipped),
        next_fragment_id=next_fragment_id,
    )


def _typed(entry: ColumnEntry, schema: pa.Schema) -> ColumnEntry:
    """The column with its type in the files, or with its former type if the files have no indexable type."""
    try:
        column_type = hashing.resolve_column(schema, entry.name).type
        hashing.hash_plan(column_type)
    except (ColumnNotFoundError, UnsupportedTypeError):
        if entry.column_type == UNKNOWN_TYPE:
            raise
        return entry
    if entry.column_type == UNKNOWN_TYPE and hashing.is_ambiguous(schema, entry.name):
        raise InvalidArgumentError(
            "an indexed column must have a name of its own",
            got=f"{entry.name!r}, a column and the path of a struct's field",
            do="rename one",
        )
    return replace(entry, column_type=column_type)


@dataclass(slots=True)
class Steps:
    """The steps of one plan, and the outcome of those that were taken."""

    plan: Plan
    rest: Change
    """The next commit without its added fragments and segments."""
    columns: Sequence[ColumnEntry]
    """The columns with their types."""
    new: frozenset[int]
    """Ids of the new fragments."""
    runner: Runner
    workers: int
    is_optimized: bool
    is_unfinished: bool
    """Whether the columns stay marked as unfinished after the last step."""
    is_ended: bool
    """Whether there is nothing to merge, because there was only one step."""
    version: Manifest
    """The last version that was committed."""
    unreadable: set[str]
    """Paths of files that could not be read, or that changed during the build."""
    added: list[Fragment] = field(default_factory=list)
    """New fragments."""
    failed: dict[int, str] = field(default_factory=dict)
    """Ids of fragments that could not be read, and why."""
    num_zones: int = 0
    """Zones that were built, over all columns."""

    @property
    def store(self) -> Store:
        """The store of the index."""
        return self.plan.snapshot.store

    def run(self, items: Sequence[Item], commit_every: int, on_rows: Callable[[int], None] | None) -> None:
        """Build and commit `items`, step by step."""
        self.runner.admit(
            (column, [fragment for fragment, needed in items if column.name in needed]) for column in self.columns
        )
        ids = {fragment.fragment_id for fragment, _ in items}
        steps = _cut(items, commit_every)
        for number, step in enumerate(steps):
            built = self._build(step, on_rows)
            if self.plan.operation == "build" and ids and ids <= self.failed.keys():
                delete_all(self.store, _files(built))
                raise DataFileError("at least one data file must be readable", got=next(iter(self.failed.values())))
            readable = self.new - self.failed.keys()
            added = [fragment for fragment, _ in step if fragment.fragment_id in readable]
            change = self._change(built, step, added, is_last=number + 1 == len(steps))
            self.version = commit_change(self.store, self.version, change)
            self.added += added
        self.unreadable |= {fragment.path for fragment, _ in items if fragment.fragment_id in self.failed}
        for message in self.failed.values():
            warnings.warn(f"{message}; the file is not indexed, and read whole", RuntimeWarning, stacklevel=4)

    def _build(self, step: Sequence[Item], on_rows: Callable[[int], None] | None) -> dict[str, ColumnEntry]:
        """The columns with the segments that `step` adds to them."""
        built = {entry.name: replace(entry, segments=(), unfit=()) for entry in self.columns}
        try:
            for entries, fragments in _passes(self.columns, step):
                self._build_together(entries, fragments, on_rows, built)
            if self.is_optimized:
                live = {fragment.fragment_id for fragment, _ in step} - self.failed.keys()
                for name, entry in [item for item in built.items() if _is_worth_optimizing(self.store, item[1])]:
                    built[name] = self.runner.run(_optimized, self.store, entry, live)
                    delete_all(self.store, sorted({*entry.files}.difference(built[name].files)))
        except BaseException:
            delete_all(self.store, _files(built))
            raise
        self.num_zones += sum(entry.num_zones for entry in built.values())
        return built

    def _build_together(
        self,
        entries: Sequence[ColumnEntry],
        fragments: Sequence[Fragment],
        on_rows: Callable[[int], None] | None,
        built: dict[str, ColumnEntry],
    ) -> None:
        types = {entry.name: entry.column_type for entry in entries}
        plan = BuildPlan(self.plan.dataset, self.store, types, entries[0].options, self.workers, on_rows)
        result = self.runner.build(plan, fragments)
        for name in types:
            before = built[name]
            unfit = result.unfit[name].union(*(range(start, stop) for start, stop in before.unfit))
            built[name] = replace(before, segments=(*before.segments, *result.segments[name]), unfit=runs(unfit))
        self.failed |= result.failed

    def _change(
        self, built: dict[str, ColumnEntry], step: Sequence[Item], added: Sequence[Fragment], *, is_last: bool
    ) -> Change:
        """The change of one step. A known file that cannot be read is dropped with its zones: some may be of a part."""
        failed = {fragment.fragment_id for fragment, _ in step} & self.failed.keys() - self.new
        done = {fragment.path for fragment in added}
        change = replace(
            self.rest,
            columns=tuple(replace(entry, is_unfinished=self.is_unfinished or not is_last) for entry in built.values()),
            added=tuple(added),
            removed=self.rest.removed | failed,
            unknown_paths=tuple(path for path in self.rest.unknown_paths if path not in done),
        )
        ids_end, unknown = change.next_fragment_id, change.unknown_paths
        self.rest = Change(change.operation, next_fragment_id=ids_end, unknown_paths=unknown)
        return change


def _cut(items: Sequence[Item], commit_every: int) -> list[list[Item]]:
    """`items` in steps of about equal rows, at most `commit_every` and a file; one empty step if there are none."""
    starts = [0, *accumulate(fragment.num_rows for fragment, _ in items)]
    total = max(starts.pop(), 1)
    num_steps = -(-total // commit_every)
    numbered = groupby(zip(starts, items, strict=True), key=lambda place: min(place[0], total - 1) * num_steps // total)
    return [[item for _, item in step] for _, step in numbered] or [[]]


def _passes(columns: Sequence[ColumnEntry], step: Sequence[Item]) -> Iterable[tuple[list[ColumnEntry], list[Fragment]]]:
    """Groups of columns with the same parameters and fragments, which are built together, and their fragments."""
    together: defaultdict[Any, tuple[list[ColumnEntry], list[Fragment]]] = defaultdict(lambda: ([], []))
    for entry in columns:
        wanted: defaultdict[bool, list[Fragment]] = defaultdict(list)
        for fragment, names in step:
            if entry.name in names:
                wanted[len(names) == len(columns)].append(fragment)
        for fragments in wanted.values():
            ids = tuple(fragment.fragment_id for fragment in fragments)
            together[entry.options, ids][0].append(entry)
            together[entry.options, ids][1][:] = fragments
    return together.values()


def _is_worth_optimizing(store: Store, column: ColumnEntry) -> bool:
    if sum(segment.kind == "locator" for segment in column.segments) > MOST_LOCATORS:
        return True
    least = 0 if store.is_remote else _ZONES_WORTH_SLICING  # requests for whole filters cost more
    return has_bloom(column.kind) and column.num_zones > least


def _optimized(store: Store, column: ColumnEntry, live: set[int]) -> ColumnEntry:
    """A column with few segments, which replace those that the step wrote."""
    with undoing(store) as written:
        return optimize_column(store, column, live, written.append, most_locators=MOST_LOCATORS)[0]


def _files(built: dict[str, ColumnEntry]) -> list[str]:
    return [path for entry in built.values() for path in entry.files]
