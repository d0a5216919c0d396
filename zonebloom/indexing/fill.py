"""Building: data files → zone segments, several columns in one pass, on a few threads.

The data set is cut into **units**: a whole file, or a run of its row groups whose first and last row are rounded to
zones. A worker takes one unit after another, reads the columns, hashes and inserts, and streams the zones into its own
segments. Nothing is ordered or merged, so memory is one batch of zones for each worker and column. Spark's executors do
the same.

Spec: specs/zones.md#build
"""

from __future__ import annotations

import threading
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from zonebloom.bloom.zones import ZoneBuilder
from zonebloom.formats import DatasetSnapshot, OpenedFile
from zonebloom.formats.schema_evolution import column_values, columns_of_folders, unified
from zonebloom.ground.errors import DataFileError
from zonebloom.ground.threads import concurrently, num_cores
from zonebloom.storage.fragments import Fragment
from zonebloom.storage.locator.build import PART_PAIRS, LocatorBuilder, LocatorParts
from zonebloom.storage.manifest import ColumnEntry
from zonebloom.storage.options import IndexOptions, has_bloom, has_locator
from zonebloom.storage.segment import SegmentEntry
from zonebloom.storage.zone_segment import ZoneSegmentWriter
from zonebloom.stores.fingerprint import Fingerprint, wait_until_settled
from zonebloom.stores.store import Store, undoing

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
    """Files that cannot be read, and why, by path."""


def check_any(inspected: Inspected, dataset: DatasetSnapshot) -> Inspected:
    """`inspected`, if there is a readable file; see `as_declared`.

    Raises
    ------
    DataFileError
        There is no readable file.
    """
    if not inspected.fragments:
        first = next(iter(inspected.skipped.values()), f"{dataset.location} has no files")
        raise DataFileError(f"no Parquet file that can be read: {first}")
    return as_declared(inspected, dataset)


def as_declared(inspected: Inspected, dataset: DatasetSnapshot) -> Inspected:
    """`inspected` with the schema of the table's log, without its partition columns, which have no zones.

    Warns of each unreadable file.

    Design: docs/design/tables.md#columns
    """
    for reason in inspected.skipped.values():
        warnings.warn(f"{reason}; it is not indexed, and always read whole", RuntimeWarning, stacklevel=2)
    declared = dataset.declared
    if declared is None:
        return inspected
    fields = [field for field in declared.schema if field.name not in declared.partition_columns]
    return replace(inspected, schema=pa.schema(fields))


def collect(outcomes: Iterable[tuple[str, tuple[Fragment, pa.Schema] | str]]) -> Inspected:
    """The combined outcomes of `inspect` for all paths, in order."""
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
    """The default number of threads: one for each core, and at least 8 for an object store, where threads wait."""
    return max(num_cores(), _WAITING_WORKERS) if dataset.is_remote else num_cores()


def inspect(
    dataset: DatasetSnapshot, path: str, fingerprint: Fingerprint, fragment_id: int
) -> tuple[Fragment, pa.Schema] | str:
    """Fragment and schema of the file at `path`, or why the listed version cannot be read."""
    try:
        with dataset.open(path, fingerprint) as file:
            if file.fingerprint != fingerprint:
                return f"data file {path} must not change during a build, got a new version"
            return Fragment.of(fragment_id, path, file), file.named_schema
    except DataFileError as error:
        return str(error)


@dataclass(frozen=True, slots=True)
class Unit:
    """Rows `[start, stop)` of one fragment; `start` begins a zone."""

    fragment: Fragment
    start: int
    stop: int


def units_of(fragments: Sequence[Fragment], rows_per_zone: int, workers: int) -> list[Unit]:
    """The units of a build; none is much longer than a worker's share / 16. Zones do not depend on the cut.

    A cut is at a row group's first row, rounded up to a zone; the rows before it belong to the unit before.
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
    """The outcome of a build."""

    segments: defaultdict[str, list[SegmentEntry]] = field(default_factory=lambda: defaultdict(list))
    """New segments by column."""
    unfit: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """By column, fragments with values that do not convert to its type; not all of their rows are in zones."""
    failed: dict[int, str] = field(default_factory=dict)
    """Fragments that could not be read to the end, and why."""
    rows: int = 0
    """Rows that were read."""

    @property
    def paths(self) -> list[str]:
        """Paths of all new segments."""
        return [segment.path for segment in chain.from_iterable(self.segments.values())]

    def add(self, other: BuiltColumns) -> None:
        """Add the outcome of another part of the build."""
        for column, segments in other.segments.items():
            self.segments[column] += segments
        for column, ids in other.unfit.items():
            self.unfit[column] |= ids
        self.failed |= other.failed
        self.rows += other.rows


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """The columns to build, their options, and the store for their segments."""

    dataset: DatasetSnapshot
    store: Store
    columns: Mapping[str, pa.DataType]
    """Indexed columns and the types whose bytes are hashed."""
    options: IndexOptions
    workers: int
    on_rows: Callable[[int], None] | None = None
    """Called by the workers with the number of rows done since the last call."""
    part_pairs: int = PART_PAIRS
    """Pairs of a locator's part at most, shared by the columns; 8 bytes of memory each."""


class Runner(Protocol):
    """Does the work of a build: in threads of this process, or on the executors of a cluster."""

    def read_footers(
        self, dataset: DatasetSnapshot, listing: Mapping[str, Fingerprint], ids: Mapping[str, int]
    ) -> Inspected:
        """Open each file of `listing` for its fragment and schema; incomplete Parquet files are skipped."""

    def admit(self, columns: Iterable[tuple[ColumnEntry, Sequence[Fragment]]]) -> None:
        """Raise an error for a build that is too large, before the first `build`; gets all columns and fragments."""

    def build(self, plan: BuildPlan, fragments: Sequence[Fragment]) -> BuiltColumns:
        """Write every zone of `fragments` as new segments, without a commit; after an error no file stays.

        A fragment that is unreadable, or that changes during the build, is omitted and added to `failed`.
        """

    def run(self, function: Callable[..., T], store: Store, *arguments: Any) -> T:
        """Run `function(store, *arguments)` near the store; the function may be started more than once."""


@dataclass(frozen=True, slots=True)
class Threads:
    """The runner of this process."""

    workers: int
    """Threads."""

    def read_footers(
        self, dataset: DatasetSnapshot, listing: Mapping[str, Fingerprint], ids: Mapping[str, int]
    ) -> Inspected:
        """As `Runner` says, in threads."""
        inspected_files = concurrently(
            lambda item: inspect(dataset, *item, ids[item[0]]), listing.items(), self.workers
        )
        return collect(zip(listing, inspected_files, strict=True))

    def admit(self, columns: Iterable[tuple[ColumnEntry, Sequence[Fragment]]]) -> None:
        """Do nothing: no build is too large."""

    def build(self, plan: BuildPlan, fragments: Sequence[Fragment]) -> BuiltColumns:
        """As `Runner` says."""
        return build_units(plan, units_of(fragments, plan.options.rows_per_zone, plan.workers))

    def run(self, function: Callable[..., T], store: Store, *arguments: Any) -> T:
        """As `Runner` says; runs once, in this process."""
        return function(store, *arguments)


def build_units(plan: BuildPlan, units: Sequence[Unit]) -> BuiltColumns:
    """The zones of `units` as segments, in `plan.workers` threads."""
    built = BuiltColumns()
    queue = _Queue(units)
    num_workers = max(1, min(plan.workers, len(units)))
    num_rows = sum(unit.stop - unit.start for unit in units)
    part_pairs = max(plan.part_pairs // len(plan.columns), 1)
    with ExitStack() as stack:
        written = stack.enter_context(undoing(plan.store))
        stack.callback(lambda: written.extend(built.paths))  # files of workers that ended before another worker failed
        locators = {
            column: stack.enter_context(LocatorParts(plan.store, column, num_rows=num_rows, part_pairs=part_pairs))
            for column in (plan.columns if has_locator(plan.options.kind) else ())
        }
        list(concurrently(lambda _: _work(plan, queue, built, locators), range(num_workers), num_workers))
        for column, parts in locators.items():
            parts.close()
            built.segments[column] += parts.entries
    return built


class _Queue:
    """Units for the workers, and the lock for their results."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self._units = iter(units)
        self.lock = threading.Lock()
        self.started = time.monotonic()
        """A time after the files' modification times were read."""

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


def _work(plan: BuildPlan, queue: _Queue, built: BuiltColumns, locators: Mapping[str, LocatorParts]) -> None:
    options, mine = plan.options, BuiltColumns()
    with ExitStack() as stack:
        stack.callback(queue.stop)  # after an error in one worker, the other workers end too
        writers: dict[str, ZoneSegmentWriter] = {}
        builders: dict[str, list[ZoneBuilder | LocatorBuilder]] = {}
        for column, column_type in plan.columns.items():
            builders[column] = []
            if column in locators:
                builders[column].append(LocatorBuilder(locators[column], rows_per_zone=options.rows_per_zone))
            if not has_bloom(options.kind):
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
                unfit = _build_unit(plan, unit, builders)
            except DataFileError as error:
                mine.failed[unit.fragment.fragment_id] = str(error)
                continue
            mine.rows += unit.stop - unit.start
            for column in unfit:
                mine.unfit[column].add(unit.fragment.fragment_id)
        for column in plan.columns:
            mine.segments[column] += _ended(builders[column], writers.get(column))
    with queue.lock:
        built.add(mine)


def _ended(builders: Iterable[ZoneBuilder | LocatorBuilder], writer: ZoneSegmentWriter | None) -> list[SegmentEntry]:
    """The zone segments of one column. They are closed here: a build of many small columns has few open files."""
    for builder in builders:
        builder.close()
    return [] if writer is None else writer.finish()


def _build_unit(
    plan: BuildPlan, unit: Unit, builders: Mapping[str, Sequence[ZoneBuilder | LocatorBuilder]]
) -> set[str]:
    """Insert the rows of `unit`; returns the columns whose values do not convert or are not in the file."""
    fragment = unit.fragment
    for builder in chain.from_iterable(builders.values()):
        builder.start_fragment(fragment.fragment_id, first_row=unit.start)
    with plan.dataset.open(fragment.path, fragment.fingerprint) as file:
        check_same(file, fragment)
        declared = plan.dataset.declared
        unfit = columns_of_folders(file, plan.dataset.path_values(fragment.path), builders)
        unfit |= builders.keys() & set(declared.partition_columns if declared else ())  # their values are in the log
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
            if plan.on_rows:
                plan.on_rows(batch.num_rows)
        file.check_unchanged()
    return unfit


def check_same(file: OpenedFile, fragment: Fragment) -> None:
    """Raise `DataFileError` if the opened file is not the version that `fragment` describes."""
    if not fragment.is_of(file):
        raise DataFileError(
            f"data file {fragment.path} must not change during a build", got="a new version", do="refresh"
        )
