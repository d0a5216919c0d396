"""Building: data files → zone segments, several columns in one pass, on a few threads.

The data set is cut into **units**: a whole file, or a run of its row groups whose first and last row are rounded to
zones. A worker takes one unit after another, reads the columns, hashes and inserts, and streams the zones into segments
of its own; nothing is ordered, merged or held back, so memory is one batch of zones for each worker and column. Spark's
executors do the same.

Spec: specs/zones.md#build
"""

from __future__ import annotations

import itertools
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from zonebloom.bloom.zones import ZoneBuilder
from zonebloom.errors import DataFileError
from zonebloom.formats import DatasetSnapshot, OpenedFile
from zonebloom.formats.schema_evolution import column_values, columns_of_folders, unified
from zonebloom.formats.source import wait_until_settled
from zonebloom.options import IndexOptions, num_cores
from zonebloom.storage.fragments import Fingerprint, Fragment
from zonebloom.storage.level import LevelEntry
from zonebloom.storage.levels import LevelBuilder, LevelSink
from zonebloom.storage.locator.build import LocatorBuilder
from zonebloom.storage.locator.layout import locator_level
from zonebloom.storage.manifest import ColumnEntry
from zonebloom.storage.segment import SegmentEntry
from zonebloom.storage.stores.store import Store
from zonebloom.storage.zone_segment import ZoneSegmentWriter

__all__ = [
    "BuildPlan",
    "BuiltColumns",
    "Inspected",
    "Runner",
    "Threads",
    "Unit",
    "as_declared",
    "build_segments",
    "build_units",
    "check_any",
    "check_same",
    "collect",
    "default_workers",
    "inspect",
    "units_of",
]

_WAITING_WORKERS = 8
_MIN_UNIT_ROWS = 1 << 20

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Inspected:
    """The data files, opened once for their footers."""

    fragments: list[Fragment]
    """The readable files; `fragment_id` counts from `first_id` in order of path."""
    schema: pa.Schema
    """Their schemas as one."""
    skipped: dict[str, str]
    """Files that cannot be read, and why."""


def check_any(inspected: Inspected, dataset: DatasetSnapshot) -> Inspected:
    """`inspected`, if there is a file that can be read.

    Raises
    ------
    DataFileError
        There is none.
    """
    if not inspected.fragments:
        first = next(iter(inspected.skipped.values()), f"{dataset.location} has no files")
        raise DataFileError(f"a data set must have at least one Parquet file that can be read, got none: {first}")
    return as_declared(inspected, dataset)


def as_declared(inspected: Inspected, dataset: DatasetSnapshot) -> Inspected:
    """`inspected` with the schema that a table says of itself, less its partition columns, which have no zones.

    Warns of each file that cannot be read.

    Spec: specs/tables.md#columns
    """
    for reason in inspected.skipped.values():
        warnings.warn(f"{reason}; it is not indexed, and always read whole", RuntimeWarning, stacklevel=2)
    declared = dataset.declared()
    if declared is None:
        return inspected
    fields = [field for field in declared.schema if field.name not in declared.partition_columns]
    return replace(inspected, schema=pa.schema(fields))


def collect(outcomes: Iterable[tuple[str, tuple[Fragment, pa.Schema] | str]]) -> Inspected:
    """What `inspect` said of each path, in order, as one."""
    fragments: list[Fragment] = []
    schemas: list[pa.Schema] = []
    skipped: dict[str, str] = {}
    for path, outcome in outcomes:
        if isinstance(outcome, str):
            skipped[path] = outcome
            continue
        fragment, schema = outcome
        fragments.append(fragment)
        if schema not in schemas:
            schemas.append(schema)
    return Inspected(fragments, unified(schemas) if schemas else pa.schema([]), skipped)


def default_workers(dataset: DatasetSnapshot) -> int:
    """Threads where nobody says: as many as there are cores, and more where each one waits for an object store."""
    return max(num_cores(), _WAITING_WORKERS) if dataset.is_remote else num_cores()


def inspect(
    dataset: DatasetSnapshot, path: str, fingerprint: Fingerprint, fragment_id: int
) -> tuple[Fragment, pa.Schema] | str:
    """Shape and schema of the file at `path`, or why it cannot be read as it was listed."""
    try:
        with dataset.open(path, fingerprint) as file:
            if file.fingerprint != fingerprint:
                return f"data file {path} must not change during a build, got a new version"
            fragment = Fragment(
                fragment_id,
                path,
                *file.fingerprint,
                file.num_rows,
                file.row_group_rows,
                file.row_group_bytes,
            )
            return fragment, file.named_schema
    except DataFileError as error:
        return str(error)


@dataclass(frozen=True, slots=True)
class Unit:
    """Rows `[start, stop)` of one fragment; `start` begins a zone."""

    fragment: Fragment
    start: int
    stop: int


def units_of(fragments: Sequence[Fragment], rows_per_zone: int, workers: int) -> list[Unit]:
    """The work, cut so that no unit is much longer than its share; zones do not depend on the cut.

    A cut falls on a row group's first row, rounded up to a zone: the rows before it belong to the last unit.
    """
    total = sum(fragment.num_rows for fragment in fragments)
    share = max(_MIN_UNIT_ROWS, total // (16 * workers))
    units = []
    for fragment in fragments:
        start = position = 0
        for rows in fragment.row_group_rows:
            cut = -(-position // rows_per_zone) * rows_per_zone
            if cut - start >= share and cut < fragment.num_rows:
                units.append(Unit(fragment, start, cut))
                start = cut
            position += rows
        if start < fragment.num_rows:
            units.append(Unit(fragment, start, fragment.num_rows))
    return units


@dataclass(slots=True)
class BuiltColumns:
    """What a build wrote."""

    segments: dict[str, list[SegmentEntry]]
    """New segments by column."""
    unfit: dict[str, set[int]]
    """By column, fragments some values of which do not convert to its type; their rows are not all in zones."""
    failed: dict[int, str] = field(default_factory=dict)
    """Fragments that could not be read to their end, and why."""
    rows: int = 0
    """Rows that were read."""
    levels: dict[str, tuple[LevelEntry, ...]] = field(default_factory=dict)
    """Filters above the zones by column, where they were asked for."""


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """Which columns of which fragments become zones, and where."""

    dataset: DatasetSnapshot
    store: Store
    columns: Mapping[str, pa.DataType]
    """Indexed columns and the types whose bytes are hashed."""
    options: IndexOptions
    workers: int
    on_rows: Callable[[int], None] | None = None
    """Called with the number of rows that were done since the last call, from the workers."""
    like: Mapping[str, int] = field(default_factory=dict)
    """By column, blocks of the filter of the data set that a new one will be united with."""
    of_rows: int = 0
    """Rows of all parts of a build, where this is the first of several."""


class Runner(Protocol):
    """Where the work of a build is done: in threads here, or on the executors of a cluster."""

    def read_footers(
        self, dataset: DatasetSnapshot, listing: Mapping[str, Fingerprint], ids: Mapping[str, int]
    ) -> Inspected:
        """Open each file of `listing` for its shape and schema; those that are no whole Parquet files are skipped."""
        ...

    def admit(self, columns: Iterable[tuple[ColumnEntry, Sequence[Fragment]]]) -> None:
        """Refuse what is too much, before the first call of `build`: all columns, each with the fragments it needs."""
        ...

    def build(self, plan: BuildPlan, fragments: Sequence[Fragment]) -> BuiltColumns:
        """Write every zone of `fragments` as new segments, and no file if it raises; nothing is committed.

        A fragment that turns out unreadable, or that changes meanwhile, is left out and said in `failed`.
        """
        ...

    def run(self, function: Callable[..., T], store: Store, *arguments: Any) -> T:
        """`function(store, *arguments)`, where the filters are read and written; it may be begun more than once."""
        ...


@dataclass(frozen=True, slots=True)
class Threads:
    """The runner of this process."""

    workers: int
    """Threads."""

    def read_footers(
        self, dataset: DatasetSnapshot, listing: Mapping[str, Fingerprint], ids: Mapping[str, int]
    ) -> Inspected:
        """As `Runner` says, several at a time."""
        with ThreadPoolExecutor(self.workers) as pool:
            found = pool.map(lambda item: inspect(dataset, item[0], item[1], ids[item[0]]), listing.items())
            return collect(zip(listing, found, strict=True))

    def admit(self, columns: Iterable[tuple[ColumnEntry, Sequence[Fragment]]]) -> None:
        """Nothing is too much."""

    def build(self, plan: BuildPlan, fragments: Sequence[Fragment]) -> BuiltColumns:
        """As `Runner` says."""
        return build_segments(plan, fragments)

    def run(self, function: Callable[..., T], store: Store, *arguments: Any) -> T:
        """As `Runner` says: here, and once."""
        return function(store, *arguments)


def build_segments(plan: BuildPlan, fragments: Sequence[Fragment]) -> BuiltColumns:
    """Write the zones of `fragments` as new segments, in threads; see `Runner.build`."""
    units = units_of(fragments, plan.options.rows_per_zone, plan.workers)
    fpp, names = plan.options.fpp, plan.options.levels
    like, of_rows = plan.like, plan.of_rows
    with LevelBuilder(plan.store, plan.columns, names, fpp, fragments, like=like, of_rows=of_rows) as levels:
        has_filters = not {"fragment", "dataset"}.isdisjoint(names)
        built = build_units(plan, units, levels if has_filters else None)
    if has_filters:
        for column, above in levels.finish(built.failed).items():
            built.levels[column] = (*above, *built.levels.get(column, ()))
    return built


def build_units(plan: BuildPlan, units: Sequence[Unit], levels: LevelSink | None = None) -> BuiltColumns:
    """The zones of `units` as segments, in `plan.workers` threads; `levels` takes the same values."""
    built = BuiltColumns({column: [] for column in plan.columns}, {column: set() for column in plan.columns})
    queue = _Queue(units)
    num_workers = max(1, min(plan.workers, len(units)))
    with ThreadPoolExecutor(num_workers, thread_name_prefix="zonebloom-build") as pool:
        futures = [pool.submit(_work, plan, queue, built, levels) for _ in range(num_workers)]
        wait(futures, return_when=FIRST_EXCEPTION)
        queue.stop()
        for future in futures:
            future.result()
    return built


class _Queue:
    """Units for the workers, and the lock that guards what they report."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self._units = iter(units)
        self.lock = threading.Lock()
        self.started = time.monotonic()
        """When the times of the files had been seen already."""

    def stop(self) -> None:
        with self.lock:
            self._units = iter(())

    def __iter__(self) -> Iterator[Unit]:
        while True:
            with self.lock:
                unit = next(self._units, None)
            if unit is None:
                return
            yield unit


def _work(plan: BuildPlan, queue: _Queue, built: BuiltColumns, levels: LevelSink | None) -> None:
    options = plan.options
    with ExitStack() as stack:
        writers: dict[str, ZoneSegmentWriter] = {}
        builders: dict[str, list[_Builder]] = {}
        locators: dict[str, LocatorBuilder] = {}
        for column, column_type in plan.columns.items():
            builders[column] = []
            if "locator" in options.levels:
                locator = LocatorBuilder(plan.store, column, rows_per_zone=options.rows_per_zone)
                locators[column] = stack.enter_context(locator)
                builders[column].append(locator)
            if not options.has_filters:
                continue
            builder = ZoneBuilder(
                column_type,
                column=column,
                rows_per_zone=options.rows_per_zone,
                fpp=options.fpp,
                sizing=options.sizing,
                sink=lambda batch, column=column: writers[column].write(batch),  # type: ignore[misc]
            )
            writers[column] = stack.enter_context(ZoneSegmentWriter(plan.store, column, builder.schema))
            builders[column].append(builder)
        for unit in queue:
            wait_until_settled(unit.fragment.fingerprint, queue.started)
            try:
                unfit = _build_unit(plan, unit, builders, levels)
            except DataFileError as error:
                with queue.lock:
                    built.failed[unit.fragment.fragment_id] = str(error)
                continue
            with queue.lock:
                built.rows += unit.stop - unit.start
                for column in unfit:
                    built.unfit[column].add(unit.fragment.fragment_id)
        ended = {column: _ended(builders[column], writers.get(column)) for column in plan.columns}
    with queue.lock:
        _note_written(plan, built, ended, locators)


def _ended(builders: Iterable[_Builder], writer: ZoneSegmentWriter | None) -> list[SegmentEntry]:
    """The segment of one column; its file is closed here, so few files of many small columns are open at once."""
    for builder in builders:
        builder.close()
    return [] if writer is None else writer.finish()


def _note_written(
    plan: BuildPlan,
    built: BuiltColumns,
    ended: Mapping[str, Sequence[SegmentEntry]],
    locators: Mapping[str, LocatorBuilder],
) -> None:
    """Add the segments of a worker."""
    for column, segments in ended.items():
        built.segments[column] += segments
    for column, locator in locators.items():
        if not plan.options.has_filters:
            built.segments[column] += locator.entries
        elif locator.entries:
            level = locator_level(locator.entries, locator.num_written)
            built.levels[column] = (*built.levels.get(column, ()), level)


class _Builder(Protocol):
    """What takes the rows of a column, fragment by fragment."""

    def start_fragment(self, fragment_id: int, *, first_row: int = 0) -> None: ...

    def add(self, fragment_id: int, values: pa.Array) -> None: ...

    def close(self) -> None: ...


def _build_unit(
    plan: BuildPlan, unit: Unit, builders: Mapping[str, Sequence[_Builder]], levels: LevelSink | None
) -> set[str]:
    """Insert the rows of `unit`; the columns that do not convert."""
    fragment = unit.fragment
    for builder in itertools.chain.from_iterable(builders.values()):
        builder.start_fragment(fragment.fragment_id, first_row=unit.start)
    with plan.dataset.open(fragment.path, fragment.fingerprint) as file:
        check_same(file, fragment)
        unfit = columns_of_folders(file, plan.dataset.path_values(fragment.path), builders)
        for batch in file.column_batches(list(builders), unit.start, unit.stop):
            for column, takers in builders.items():
                if column in unfit:
                    continue
                values = column_values(batch, column, plan.columns[column])
                if values is None:
                    unfit.add(column)
                else:
                    for builder in takers:
                        builder.add(fragment.fragment_id, values)
                    if levels:
                        levels.add(column, fragment.fragment_id, values)
            if plan.on_rows:
                plan.on_rows(batch.num_rows)
        file.check_unchanged()
    if levels:
        levels.end_unit(fragment.fragment_id, unit.stop - unit.start, unfit)
    return unfit


def check_same(file: OpenedFile, fragment: Fragment) -> None:
    """Raise `DataFileError` if the opened file is not the version that `fragment` describes."""
    if tuple(file.fingerprint) != fragment.fingerprint or file.row_group_rows != fragment.row_group_rows:
        raise DataFileError(f"data file {fragment.path} must not change during a build, got a new version; refresh")
