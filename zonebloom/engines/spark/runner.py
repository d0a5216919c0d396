"""Building and refreshing on a cluster: the library's own build, run by executors.

`SparkRunner` replaces the library's threads. The driver lists files, assigns ids, computes coverage and commits.
Executors read the footers of many files, and make segments. They write straight to the index, and return only entries
of the version file.

Design: docs/design/spark.md#build
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from zonebloom.bloom.sizing import num_blocks_for
from zonebloom.engines.spark.executors import Cluster
from zonebloom.formats import DatasetSnapshot
from zonebloom.formats.table import TableSnapshot
from zonebloom.ground.errors import InvalidArgumentError
from zonebloom.indexing.fill import (
    BuildPlan,
    BuiltColumns,
    Inspected,
    Threads,
    Unit,
    build_units,
    collect,
    default_workers,
    inspect,
    units_of,
)
from zonebloom.indexing.optimize import Optimization, optimize
from zonebloom.storage.commit import newest
from zonebloom.storage.fragments import Fragment
from zonebloom.storage.manifest import ColumnEntry
from zonebloom.storage.options import has_bloom, has_locator
from zonebloom.stores.fingerprint import Fingerprint
from zonebloom.stores.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

_FOOTERS_PER_TASK = 256
"""Files. The driver itself reads the footers of up to twice this number, because two tasks take longer to start."""
_PART_PAIRS = 1 << 24
"""Pairs of a locator's part in a task: 128 MiB, as a task has less memory than a machine."""
_ROWS_PER_TASK = 1 << 26
"""Rows that a lost task costs at most: some seconds for each column."""
_ROWS_WORTH_A_TASK = 1 << 25
"""Rows for which a slot gets one more task: an empty task takes 60 ms or more, a row takes some ns."""
_LOCATOR_BYTES_PER_ROW = 4.2
"""Bytes of a full locator page, for each of its pairs."""
_TASKS_PER_SLOT = 3
"""Tasks for each slot at most: three even out slow tasks."""


class SparkRunner:
    """A `fill.Runner` that runs its work on the executors of a session.

    Parameters
    ----------
    num_tasks
        Spark tasks of a build; by default one to three for each slot, and more for large data sets.
    max_index_bytes
        Refuse to build if the estimate is larger.
    """

    def __init__(
        self, spark: SparkSession, *, num_tasks: int | None = None, max_index_bytes: int | None = None
    ) -> None:
        for name, number in (("tasks", num_tasks), ("max_index_bytes", max_index_bytes)):
            if number is not None and (not isinstance(number, int) or number < 1):
                raise InvalidArgumentError(f"{name} must be at least 1", got=f"{number!r}")
        self._cluster = Cluster(spark)
        self._num_tasks = num_tasks
        self._max_index_bytes = max_index_bytes

    def read_footers(
        self, dataset: DatasetSnapshot, listing: Mapping[str, Fingerprint], ids: Mapping[str, int]
    ) -> Inspected:
        """Shape and schema of each file of `listing`. Executors read them if there are many files."""
        if len(listing) <= 2 * _FOOTERS_PER_TASK:
            return Threads(default_workers(dataset)).read_footers(dataset, listing, ids)
        files = [(path, fingerprint, ids[path]) for path, fingerprint in listing.items()]
        num_tasks = min(-(-len(files) // _FOOTERS_PER_TASK), self._cluster.slots * _TASKS_PER_SLOT)
        size = -(-len(files) // num_tasks)
        shares = [files[first : first + size] for first in range(0, len(files), size)]
        outcomes = self._cluster.map(footers_of, sent_dataset(dataset), shares)
        return collect(outcome for share in outcomes for outcome in share)

    def admit(self, columns: Iterable[tuple[ColumnEntry, Sequence[Fragment]]]) -> None:
        """Compare the estimated size of the index with `max_index_bytes`.

        Raises
        ------
        InvalidArgumentError
            The estimate is larger.
        """
        if self._max_index_bytes is None:
            return
        estimate = sum(estimated_bytes(column, fragments) for column, fragments in columns)
        if estimate > self._max_index_bytes:
            raise InvalidArgumentError(
                f"the index must need at most {self._max_index_bytes:,} bytes",
                got=f"an estimate of {estimate:,}",
                do="allow more, take fewer columns, a larger fpp, or sizing='exact'",
            )

    def build(self, plan: BuildPlan, fragments: Sequence[Fragment]) -> BuiltColumns:
        """Write the zones of `fragments` by executors.

        If the job fails, the segments that tasks wrote stay. No version names them, and a vacuum removes them.
        """
        units = units_of(fragments, plan.options.rows_per_zone, self._cluster.slots)
        total = sum(fragment.num_rows for fragment in fragments)
        sent = replace(plan, dataset=sent_dataset(plan.dataset), workers=1, on_rows=None, part_pairs=_PART_PAIRS)
        on_rows = plan.on_rows

        def on_result(built: BuiltColumns) -> None:
            if on_rows is not None:
                on_rows(built.rows)

        whole = BuiltColumns()
        for built in self._cluster.map(build_units, sent, self._shares(units, total), on_result if on_rows else None):
            whole.add(built)
        return whole

    def run(self, function: Callable[..., T], store: Store, *arguments: Any) -> T:
        """`function(store, *arguments)` in one task."""
        result: T = self._cluster.map(call, store, [(function, arguments)])[0]
        return result

    def _shares(self, units: Sequence[Unit], total: int) -> list[list[Unit]]:
        """Units for each task, with about equal rows."""
        slots = self._cluster.slots
        each = min(max(total // (slots * _ROWS_WORTH_A_TASK), 1), _TASKS_PER_SLOT)
        wanted = self._num_tasks or max(slots * each, -(-total // _ROWS_PER_TASK))
        shares: list[list[Unit]] = [[] for _ in range(min(wanted, len(units)))]
        loads = [0] * len(shares)
        for unit in sorted(units, key=_num_rows, reverse=True):
            least = loads.index(min(loads))
            shares[least].append(unit)
            loads[least] += _num_rows(unit)
        return shares


def sent_dataset(dataset: DatasetSnapshot) -> DatasetSnapshot:
    """The data set to send to tasks. Zones describe all rows, so the list of a table's deleted rows is left out."""
    return replace(dataset, deletes=None, _deleted=None) if isinstance(dataset, TableSnapshot) else dataset


def _num_rows(unit: Unit) -> int:
    return unit.stop - unit.start


def estimated_bytes(column: ColumnEntry, fragments: Sequence[Fragment]) -> int:
    """Bytes that the segments of `fragments` need at most: all filters of the largest size, and all values distinct."""
    rows = [fragment.num_rows for fragment in fragments]
    estimate = 0
    if has_bloom(column.kind):
        sizing = column.options.sizing
        zone = num_blocks_for(column.rows_per_zone, column.fpp, "exact" if sizing == "adaptive" else sizing) * 32
        estimate += sum(-(-num_rows // column.rows_per_zone) for num_rows in rows) * zone
    if has_locator(column.kind):
        estimate += math.ceil(_LOCATOR_BYTES_PER_ROW * sum(rows))
    return estimate


# --- on executors -----------------------------------------------------------------------------------------------------


def footers_of(
    dataset: DatasetSnapshot, files: Sequence[tuple[str, Fingerprint, int]]
) -> list[tuple[str, tuple[Fragment, pa.Schema] | str]]:
    """Each of `files` with its fragment and schema, or the reason why it has none. Equal schemas are pickled once."""
    schemas: list[pa.Schema] = []
    outcomes = []
    for path, fingerprint, fragment_id in files:
        outcome = inspect(dataset, path, fingerprint, fragment_id)
        if not isinstance(outcome, str):
            fragment, schema = outcome
            if schema not in schemas:
                schemas.append(schema)
            outcome = fragment, schemas[schemas.index(schema)]
        outcomes.append((path, outcome))
    return outcomes


def optimize_newest(store: Store) -> Optimization:
    """`Index.optimize` of the current version when the task begins. So a second attempt finds the work done."""
    return optimize(store, newest(store))


def call(store: Store, asked: tuple[Callable[..., Any], tuple[Any, ...]]) -> Any:
    """A function of the index's store."""
    function, arguments = asked
    return function(store, *arguments)
