"""What executors run: footers, units of a build, parts of levels, and single calls. Nothing here imports Spark.

Spec: specs/spark.md#tasks
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from zonebloom.build.fill import BuildPlan, BuiltColumns, Unit, build_units, inspect
from zonebloom.formats import DatasetSnapshot
from zonebloom.maintain.optimize import Optimization, optimize
from zonebloom.storage.fragments import Fingerprint, Fragment
from zonebloom.storage.level import LevelEntry
from zonebloom.storage.levels.fill import Filling
from zonebloom.storage.levels.partial import Part, PartialLevels, merge_dataset, merge_fragments
from zonebloom.storage.manifest import list_versions, read_version
from zonebloom.storage.stores.store import Store


@dataclass(frozen=True, slots=True)
class Work:
    """What all tasks of a build share."""

    plan: BuildPlan
    """The build, as one thread of a task does it."""
    total_rows: int
    """Rows of all tasks together."""


@dataclass(frozen=True, slots=True)
class Built:
    """What one task wrote."""

    columns: BuiltColumns
    """Its segments, and the levels of the fragments that it read whole."""
    parts: list[Part] = field(default_factory=list)
    """Scratch objects of the other filters."""


def read_footers(
    dataset: DatasetSnapshot, files: Sequence[tuple[str, Fingerprint, int]]
) -> list[tuple[str, tuple[Fragment, pa.Schema] | str]]:
    """Each of `files` with its fragment and schema, or why there are none; equal schemas are pickled once."""
    schemas: list[pa.Schema] = []
    found = []
    for path, fingerprint, fragment_id in files:
        outcome = inspect(dataset, path, fingerprint, fragment_id)
        if not isinstance(outcome, str):
            fragment, schema = outcome
            if schema not in schemas:
                schemas.append(schema)
            outcome = fragment, schemas[schemas.index(schema)]
        found.append((path, outcome))
    return found


def build(work: Work, units: Sequence[Unit]) -> Built:
    """The zones of `units` as new segments. No version names them until the driver commits."""
    plan = work.plan
    if {"fragment", "dataset"}.isdisjoint(plan.options.levels):
        return Built(build_units(plan, units))
    rows: Counter[int] = Counter()
    for unit in units:
        rows[unit.fragment.fragment_id] += unit.stop - unit.start
    fragments = list({unit.fragment.fragment_id: unit.fragment for unit in units}.values())
    store, names, fpp, total = plan.store, plan.options.levels, plan.options.fpp, work.total_rows
    levels = PartialLevels(
        store, plan.columns, names, fpp, fragments, rows=rows, total_rows=total, of_rows=plan.of_rows
    )
    with levels:
        built = build_units(plan, units, levels)
    above, parts = levels.finish(built.failed)
    for column, filters in above.items():
        built.levels[column] = (*filters, *built.levels.get(column, ()))
    return Built(built, parts)


@dataclass(frozen=True, slots=True)
class Merge:
    """One level of one column, to be made of parts."""

    column: str
    level: str
    parts: list[Part]
    rows: dict[int, int]
    """Rows of the fragments that the level covers, by id."""


def merge(work: Work, task: Merge) -> tuple[str, LevelEntry | None, int, float]:
    """Merge the parts: the column, the level (None if its filter is useless), the number of values, the fpp."""
    plan, store, fpp = work.plan, work.plan.store, work.plan.options.fpp
    if task.level == "fragment":
        column_type = plan.columns[task.column]
        entry = merge_fragments(store, task.column, column_type, task.parts, fpp=fpp, rows=task.rows)
        return task.column, entry, 0, 0.0
    filling = Filling(work.total_rows, fpp, like=plan.like.get(task.column, 0), of_rows=plan.of_rows)
    entry, num_values, found = merge_dataset(store, task.column, task.parts, filling, covered=task.rows)
    return task.column, entry, num_values, found


def optimize_newest(store: Store) -> Optimization:
    """`Index.optimize` of the version that is current when the task begins: a second attempt finds its work done."""
    return optimize(store, read_version(store, list_versions(store)[-1]))


def call(store: Store, asked: tuple[Callable[..., Any], tuple[Any, ...]]) -> Any:
    """A function of the index's store."""
    function, arguments = asked
    return function(store, *arguments)
