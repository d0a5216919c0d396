"""What executors run: footers, units of a build, parts of levels, and single calls. Nothing here imports Spark.

Spec: specs/spark.md#tasks
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from zonebloom.build.fill import BuildPlan, BuiltColumns, Unit, build_units, inspect
from zonebloom.formats import DatasetSnapshot
from zonebloom.index import open_index
from zonebloom.maintain.optimize import Optimization
from zonebloom.options import IndexOptions
from zonebloom.storage.fragments import Fingerprint, Fragment
from zonebloom.storage.level import LevelEntry
from zonebloom.storage.levels.fill import Filling
from zonebloom.storage.levels.partial import Part, PartialLevels, merge_dataset, merge_fragments
from zonebloom.storage.stores.open import open_store
from zonebloom.storage.stores.store import Store


@dataclass(frozen=True, slots=True)
class Place:
    """A store that another process can open."""

    location: str
    """Folder or URL."""
    storage_options: Mapping[str, str] | None
    """Options of the store, as the user gave them."""

    def open(self) -> Store:
        """The store."""
        return open_store(self.location, self.storage_options)


@dataclass(frozen=True, slots=True)
class Work:
    """What all tasks of a build share."""

    place: Place
    """The index."""
    dataset: DatasetSnapshot
    columns: dict[str, pa.DataType]
    options: IndexOptions
    total_rows: int
    like: dict[str, int]
    of_rows: int
    """`total_rows`, `like` and `of_rows` are those of the build plan."""


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
    store = work.place.open()
    plan = BuildPlan(work.dataset, store, work.columns, work.options, workers=1)
    if {"fragment", "dataset"}.isdisjoint(work.options.levels):
        return Built(build_units(plan, units))
    rows: Counter[int] = Counter()
    for unit in units:
        rows[unit.fragment.fragment_id] += unit.stop - unit.start
    fragments = list({unit.fragment.fragment_id: unit.fragment for unit in units}.values())
    fpp = work.options.fpp
    with PartialLevels(
        store,
        work.columns,
        work.options.levels,
        fpp,
        fragments,
        rows=rows,
        total_rows=work.total_rows,
        of_rows=work.of_rows,
    ) as levels:
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
    store, fpp = work.place.open(), work.options.fpp
    if task.level == "fragment":
        column_type = work.columns[task.column]
        entry = merge_fragments(store, task.column, column_type, task.parts, fpp=fpp, rows=task.rows)
        return task.column, entry, 0, 0.0
    filling = Filling(work.total_rows, fpp, like=work.like.get(task.column, 0), of_rows=work.of_rows)
    entry, num_values, found = merge_dataset(store, task.column, task.parts, filling, covered=task.rows)
    return task.column, entry, num_values, found


def optimize(place: Place, _: None) -> Optimization:
    """`Index.optimize` of the index at `place`."""
    return open_index(place.location, storage_options=place.storage_options).optimize()


def call(place: Place, asked: tuple[Callable[..., Any], tuple[Any, ...]]) -> Any:
    """A function of the index's store."""
    function, arguments = asked
    return function(place.open(), *arguments)
