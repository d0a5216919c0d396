"""Building and refreshing on a cluster: the library's own build, with its work done by executors.

`SparkRunner` replaces the library's threads. The driver runs the library's listing, ids, coverage and commit. Executors
read the footers of many files, and make zones and levels. They write straight to the index, and return only entries of
the version file.

Spec: specs/spark.md#build
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from zonebloom.bloom.sizing import num_blocks_for
from zonebloom.build.fill import (
    BuildPlan,
    BuiltColumns,
    Inspected,
    Threads,
    Unit,
    collect,
    default_workers,
    units_of,
)
from zonebloom.build.plan import sizing_of
from zonebloom.engines.spark.build import tasks
from zonebloom.engines.spark.build.tasks import Built, Merge, Work
from zonebloom.engines.spark.executors import Cluster
from zonebloom.errors import InvalidArgumentError
from zonebloom.formats import DatasetSnapshot
from zonebloom.formats.table import TableSnapshot
from zonebloom.index import Index
from zonebloom.maintain.optimize import Optimization
from zonebloom.storage.fragments import Fingerprint, Fragment
from zonebloom.storage.level import LevelEntry, joined_levels
from zonebloom.storage.levels import parts_of_dataset
from zonebloom.storage.levels.fill import warn_of_useless
from zonebloom.storage.manifest import ColumnEntry
from zonebloom.storage.stores.store import Store

T = TypeVar("T")

_FOOTERS_PER_TASK = 256
"""Files. The driver reads the footers of up to twice this number itself: two tasks take longer to start."""
_ROWS_PER_TASK = 1 << 26
"""Rows that a lost task costs at most: some seconds for each column."""
_ROWS_WORTH_A_TASK = 1 << 25
"""Rows for which a slot gets one more task: an empty task takes 60 ms or more, a row takes some ns."""
_LOCATOR_BYTES_PER_ROW = 4.2
"""Bytes of a full locator page, for each of its pairs."""
_TASKS_PER_SLOT = 3
"""Tasks for each slot at most: three even out slow tasks."""


def optimize_index(spark: SparkSession, index: Index) -> Optimization:
    """See `ZoneBloom.optimize_index`."""
    return SparkRunner(spark).run(tasks.optimize_newest, index.store)


class SparkRunner:
    """A `building.Runner` whose work is done by the executors of a session.

    Parameters
    ----------
    num_tasks
        Spark tasks of a build; by default one to three for each slot, more where there is much to do.
    max_index_bytes
        Refuse to build if the estimate is larger.
    """

    def __init__(
        self,
        spark: SparkSession,
        *,
        num_tasks: int | None = None,
        max_index_bytes: int | None = None,
    ) -> None:
        if num_tasks is not None and (not isinstance(num_tasks, int) or num_tasks < 1):
            raise InvalidArgumentError(f"tasks must be at least 1, got {num_tasks!r}")
        self._cluster = Cluster(spark)
        self._num_tasks = num_tasks
        self._max_index_bytes = max_index_bytes

    def read_footers(
        self, dataset: DatasetSnapshot, listing: Mapping[str, Fingerprint], ids: Mapping[str, int]
    ) -> Inspected:
        """Shape and schema of each file of `listing`; read by executors where there are many."""
        if len(listing) <= 2 * _FOOTERS_PER_TASK:
            return Threads(default_workers(dataset)).read_footers(dataset, listing, ids)
        files = [(path, fingerprint, ids[path]) for path, fingerprint in listing.items()]
        num_tasks = min(-(-len(files) // _FOOTERS_PER_TASK), self._cluster.slots * _TASKS_PER_SLOT)
        size = -(-len(files) // num_tasks)
        shares = [files[first : first + size] for first in range(0, len(files), size)]
        found = self._cluster.map(tasks.read_footers, sent_dataset(dataset), shares)
        return collect(outcome for share in found for outcome in share)

    def admit(self, columns: Iterable[tuple[ColumnEntry, Sequence[Fragment]]]) -> None:
        """Compare the estimated size of the index with `max_index_bytes`.

        Raises
        ------
        InvalidArgumentError
            It is more.
        """
        if self._max_index_bytes is None:
            return
        estimate = sum(estimated_bytes(column, fragments) for column, fragments in columns)
        if estimate > self._max_index_bytes:
            message = f"the index must need at most {self._max_index_bytes:,} bytes, got an estimate of {estimate:,}"
            raise InvalidArgumentError(f"{message}; allow more, take fewer columns, a larger fpp, or sizing='exact'")

    def build(self, plan: BuildPlan, fragments: Sequence[Fragment]) -> BuiltColumns:
        """Write the zones of `fragments`, and the levels, by executors.

        Segments that tasks wrote before the job failed stay. No version names them, and a vacuum removes them.
        """
        units = units_of(fragments, plan.options.rows_per_zone, self._cluster.slots)
        total = sum(fragment.num_rows for fragment in fragments)
        work = Work(replace(plan, dataset=sent_dataset(plan.dataset), workers=1, on_rows=None), total)
        shares = self._shares(units, total, has_fragment_level="fragment" in plan.options.levels)
        on_rows = plan.on_rows

        def on_result(built: Built) -> None:
            if on_rows is not None:
                on_rows(built.columns.rows)

        results: list[Built] = self._cluster.map(tasks.build, work, shares, on_result if on_rows else None)
        built = _union(plan.columns, [result.columns for result in results])
        if len(plan.options.levels) > 1:
            built.levels = self._levels(plan, work, fragments, built, results)
        return built

    def run(self, function: Callable[..., T], store: Store, *arguments: Any) -> T:
        """`function(store, *arguments)` in one task."""
        found: T = self._cluster.map(tasks.call, store, [(function, arguments)])[0]
        return found

    def _shares(self, units: Sequence[Unit], total: int, *, has_fragment_level: bool) -> list[list[Unit]]:
        """Units for each task, with about equal rows. A fragment with a level of its own has its units in one task,
        unless the fragment is longer than a task.
        """
        slots = self._cluster.slots
        each = min(max(total // (slots * _ROWS_WORTH_A_TASK), 1), _TASKS_PER_SLOT)
        wanted = self._num_tasks or max(slots * each, -(-total // _ROWS_PER_TASK))
        bundles = list(_bundles(units, -(-total // wanted) if has_fragment_level else 0))
        bundles.sort(key=_num_rows, reverse=True)
        shares: list[list[Unit]] = [[] for _ in range(min(wanted, len(bundles)))]
        loads = [0] * len(shares)
        for bundle in bundles:
            least = loads.index(min(loads))
            shares[least] += bundle
            loads[least] += _num_rows(bundle)
        return shares

    def _levels(
        self,
        plan: BuildPlan,
        work: Work,
        fragments: Sequence[Fragment],
        built: BuiltColumns,
        results: Sequence[Built],
    ) -> dict[str, tuple[LevelEntry, ...]]:
        """The levels of each column: those of whole fragments, and those that tasks make from parts."""
        found = defaultdict(list, {column: list(levels) for column, levels in built.levels.items()})
        parts = [part for result in results for part in result.parts]
        merges = []
        for column in plan.columns:
            out = built.failed.keys() | built.unfit[column]
            rows = {one.fragment_id: one.num_rows for one in fragments if one.num_rows and one.fragment_id not in out}
            mine = [part for part in parts if part.column == column]
            split = [part for part in mine if part.fragment_id in rows]
            if split:
                merges.append(Merge(column, "fragment", split, {one: rows[one] for one in _ids(split)}))
            if "dataset" in plan.options.levels:
                merges.append(Merge(column, "dataset", [one for one in mine if one.fragment_id is None], rows))
        for column, entry, num_values, fpp in self._cluster.map(tasks.merge, work, merges):
            if entry is not None:
                found[column].append(entry)
            elif num_values:
                warn_of_useless(column, num_values, fpp)
        for part in parts:
            plan.store.delete(part.path)
        return {column: joined_levels(found[column]) for column in plan.columns}


def sent_dataset(dataset: DatasetSnapshot) -> DatasetSnapshot:
    """The data set as tasks get it. Zones describe all rows, so a table's deleted rows are left out."""
    return replace(dataset, deletes=None, _deleted=None) if isinstance(dataset, TableSnapshot) else dataset


def _ids(parts: Iterable[Any]) -> set[int]:
    return {part.fragment_id for part in parts}


def _num_rows(units: Sequence[Unit]) -> int:
    return sum(unit.stop - unit.start for unit in units)


def _bundles(units: Sequence[Unit], together: int) -> Iterator[list[Unit]]:
    """Units that go to one task: all of a fragment of up to `together` rows, else single ones."""
    bundle: list[Unit] = []
    for unit in units:
        if bundle and (
            bundle[0].fragment.fragment_id != unit.fragment.fragment_id or unit.fragment.num_rows > together
        ):
            yield bundle
            bundle = []
        bundle.append(unit)
    if bundle:
        yield bundle


def _union(columns: Iterable[str], results: Sequence[BuiltColumns]) -> BuiltColumns:
    whole = BuiltColumns({column: [] for column in columns}, {column: set() for column in columns})
    levels: defaultdict[str, list[LevelEntry]] = defaultdict(list)
    for one in results:
        whole.rows += one.rows
        whole.failed |= one.failed
        for column in whole.segments:
            whole.segments[column] += one.segments[column]
            whole.unfit[column] |= one.unfit[column]
            levels[column] += one.levels.get(column, ())
    whole.levels = {column: tuple(found) for column, found in levels.items()}
    return whole


def estimated_bytes(column: ColumnEntry, fragments: Sequence[Fragment]) -> int:
    """Bytes that the filters of `fragments` need: zones at their largest, and levels as if all values differed."""
    rows = [fragment.num_rows for fragment in fragments if fragment.num_rows]
    sizing = sizing_of(column)
    zone = num_blocks_for(column.rows_per_zone, column.fpp, "exact" if sizing == "adaptive" else sizing) * 32
    levels = {level.name for level in column.levels}
    found = sum(-(-one // column.rows_per_zone) for one in rows) * zone if column.has_filters else 0
    if "locator" in levels or not column.has_filters:
        found += math.ceil(_LOCATOR_BYTES_PER_ROW * sum(rows))
    if "fragment" in levels:
        found += sum(num_blocks_for(one, column.fpp, "exact") * 32 for one in rows)
    if "dataset" in levels and rows:
        for part in parts_of_dataset(fragments):
            found += num_blocks_for(sum(one.num_rows for one in part), column.fpp, "exact") * 32
    return found
