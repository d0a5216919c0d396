"""Making an index: `build_index` from data, `import_index` from zones that were made elsewhere.

Segments are written first and committed last, so a build that fails or dies leaves the index as it was.

Spec: specs/index-format.md#commit
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from zonebloom.bloom import hashing
from zonebloom.bloom.sizing import Sizing, check_fpp, check_rows_per_zone, num_blocks_for
from zonebloom.bloom.zones import ZoneTable, zone_schema
from zonebloom.build.checkpoints import COMMIT_EVERY, Work, check_commit_every, no_levels, reserved_ids
from zonebloom.build.fill import Parameters, Runner, Threads, check_any, default_workers
from zonebloom.build.progress import Progress, reporting
from zonebloom.build.refresh import refresh
from zonebloom.errors import (
    CorruptIndexError,
    DataFileError,
    IndexExistsError,
    InvalidArgumentError,
    InvalidZoneTableError,
    StorageError,
)
from zonebloom.formats import Dataset, open_dataset
from zonebloom.index import Index
from zonebloom.maintain.commit import commit_change
from zonebloom.maintain.optimize import finish
from zonebloom.maintain.transaction import NO_VERSION, Change, ColumnChange
from zonebloom.maintain.verify import check_imported
from zonebloom.search.selection import RowSelection
from zonebloom.search.snapshot import load_snapshot, load_trusted
from zonebloom.search.view import Snapshot
from zonebloom.storage.fragments import Fragment, FragmentTable
from zonebloom.storage.levels import check_levels
from zonebloom.storage.manifest import ColumnEntry, list_versions
from zonebloom.storage.stores.locations import absolute
from zonebloom.storage.stores.open import open_store
from zonebloom.storage.stores.store import Store
from zonebloom.storage.zone_segment import ZoneSegmentWriter

__all__ = ["build_index", "import_index"]


def build_index(
    source: Any,
    columns: str | Sequence[str],
    *,
    rows_per_zone: int = 8192,
    fpp: float = 0.00057,
    sizing: Sizing = "power_of_two",
    index: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    workers: int | None = None,
    overwrite: bool = False,
    optimize: bool = True,
    levels: Sequence[str] = ("zone",),
    locator: bool = False,
    commit_every: int = COMMIT_EVERY,
    progress: bool | Callable[[Progress], None] = False,
    runner: Runner | None = None,
) -> Index:
    """An index over `columns` of `source`, committed and opened; data files are only read.

    Columns are added to an index that is there already. Memory is bounded by one batch of zones (4 MiB) for each
    worker and column, not by the data set.

    Parameters
    ----------
    source
        A folder of Parquet files (hive-partitioned or not), a file, a list of files, or a `pyarrow.dataset.Dataset`.
        Folders and files may be URLs (`s3://`, `gs://`, `az://`, `abfss://`, `file://`).
    columns
        Names of columns; leaves of structs are written `a.b`.
    rows_per_zone
        Rows of a zone, at least 1.
    fpp
        False positive probability of a full zone of distinct values, in (0, 1).
    sizing
        `power_of_two` (Lance's), `exact` (0.59 of the bytes at the defaults), `adaptive` (by the distinct values of
        each zone) or `parquet` (the closed formula, next power of two).
    index
        Folder of the index, or its URL, in another store too. By default `_zonebloom` in the data set's folder, or
        `_<file>.zonebloom` beside one file; a list of files and a pyarrow Dataset need it.
    storage_options
        For URLs, of the data or of the index: credentials, region, endpoint and the like, under the names of the
        object_store library (`aws_region`). What is not given comes from the environment; the index keeps none.
    workers
        Threads; by default as many as there are cores, and at least 8 where the data is in an object store.
    overwrite
        Build columns anew that are indexed already.
    optimize
        Whether columns of more than 4096 zones become slice segments at the end, as `Index.optimize` makes them.
    levels
        `"zone"`, and above it `"fragment"`, one more filter for each file, and `"dataset"`, one for all files, so that
        a value which is nowhere costs one block. specs/levels.md says when each pays.
    locator
        Whether to add the level `"locator"`: 4.2 bytes a row, with which a search keeps hardly any zone by chance, and
        `Index.locate` names the zones of many keys. specs/locator.md.
    commit_every
        Rows after which what is done is committed, so that a build which dies keeps it. The same call then goes on
        where it ended, and merges everything at the end. Columns that are built anew are replaced at once, at the end.
    progress
        True for a bar on stderr, or a function that takes `Progress`.
    runner
        Where the work is done; by default in `workers` threads of this process.

    Raises
    ------
    ColumnNotFoundError, UnsupportedTypeError, InvalidArgumentError
        Before anything is written.
    IndexExistsError
        A column is indexed already.
    DataFileError
        No file can be read. Single files that cannot are warned of and left out, and searches keep them whole.
    ConcurrentCommitError
        Another commit came first.
    """
    names = [columns] if isinstance(columns, str) else list(columns) if isinstance(columns, Iterable) else []
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise InvalidArgumentError(f"columns must be one or more different names, got {columns!r}")
    check_rows_per_zone(rows_per_zone)
    check_fpp(fpp)
    num_blocks_for(rows_per_zone, fpp, sizing)
    levels = check_levels((*((levels,) if isinstance(levels, str) else levels), *(("locator",) if locator else ())))
    if workers is not None and (not isinstance(workers, int) or workers < 1):
        raise InvalidArgumentError(f"workers must be at least 1, got {workers!r}")
    check_commit_every(commit_every)
    given = open_dataset(source, storage_options)
    dataset = given.pin()
    store = _index_store(dataset, index, storage_options)
    base = _current(store)
    workers = workers or default_workers(dataset)
    runner = runner or Threads(workers)
    parameters = Parameters(rows_per_zone, fpp, sizing)
    if base is not None and not overwrite and _is_resumed(base, names, parameters, levels, store):
        refresh(
            base,
            dataset,
            workers=workers,
            commit_every=commit_every,
            progress=progress,
            runner=runner,
            operation="build",
            is_unfinished=optimize,
        )
        runner.run(partial(finish, is_merged=optimize), base.store, names)
    else:
        builder = _Build(dataset, store, base, parameters, workers, runner=runner)
        builder.run(names, progress, optimize=optimize, levels=levels, commit_every=commit_every)
    return Index(load_snapshot(store, None), storage_options, dataset=None if given is dataset else given)


def _is_resumed(
    base: Snapshot, names: Sequence[str], parameters: Parameters, levels: Sequence[str], store: Store
) -> bool:
    """Whether the columns are those of a build that did not come to its end.

    Raises
    ------
    IndexExistsError
        One of them is indexed already, or was begun with other parameters or without the others.
    """
    found = [entry for entry in base.manifest.columns if entry.name in names]
    if not found:
        return False
    wanted = (parameters.rows_per_zone, parameters.fpp, parameters.sizing, tuple(levels))
    for entry in found:
        if not entry.is_unfinished:
            message = f"column {entry.name} must not be indexed yet, got an index of it at {store.location}"
            raise IndexExistsError(f"{message}; refresh it, or build with overwrite=True")
        made = ("zone", *(level.name for level in entry.levels))
        if (entry.rows_per_zone, entry.fpp, entry.sizing, made) != wanted or len(found) < len(names):
            begun = (
                f"{entry.rows_per_zone} rows a zone, fpp {entry.fpp}, sizing {entry.sizing}, levels {', '.join(made)}"
            )
            message = f"a build of {entry.name} that was begun must be ended with the same columns and parameters"
            raise IndexExistsError(f"{message}, got one at {store.location} with {begun}; or build with overwrite=True")
    return True


def import_index(
    source: Any,
    zones: ZoneTable,
    *,
    column: str,
    index: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    check: bool = True,
) -> Index:
    """An index of `source` from zones that were made elsewhere, such as an exported file or Lance's.

    Fragment number i is the i-th file in order of path. The zones of each fragment must tile its file.

    Parameters
    ----------
    check
        Read one zone of each file and prove that its filter holds every value, before anything is committed.

    Raises
    ------
    InvalidZoneTableError
        The zones do not tile the files, or a filter denies a value that the data has: they describe other data.
    """
    given = open_dataset(source, storage_options)
    dataset = given.pin()
    store = _index_store(dataset, index, storage_options)
    if _current(store) is not None:
        raise IndexExistsError(
            f"there must be no index yet to import one, got one at {store.location}; delete it, or set index="
        )
    workers = default_workers(dataset)
    parameters = Parameters(zones.rows_per_zone, zones.fpp)
    builder = _Build(dataset, store, None, parameters, workers, runner=Threads(workers))
    builder.import_zones(zones, column, check=check)
    return Index(load_snapshot(store, None), storage_options, dataset=None if given is dataset else given)


def _index_store(
    dataset: Dataset, index: str | os.PathLike[str] | None, storage_options: Mapping[str, str] | None
) -> Store:
    location = dataset.default_index() if index is None else absolute(index)
    if location is None:
        raise InvalidArgumentError(
            "index must name a folder where the data set is a list, a Dataset or an Iceberg table, got None"
        )
    if index is not None:
        dataset.check_index(location)
    return open_store(location, storage_options)


def _current(store: Store) -> Snapshot | None:
    """The current version; one without content, where no version can be read: all is built anew on top of it."""
    numbers = list_versions(store)
    if not numbers:
        return None
    try:
        return load_trusted(store)[0]
    except CorruptIndexError:
        return Snapshot(store, replace(NO_VERSION, version=numbers[-1]))


class _Build:
    """One build: inspect, check, write segments, commit."""

    def __init__(
        self,
        dataset: Dataset,
        store: Store,
        base: Snapshot | None,
        parameters: Parameters,
        workers: int,
        *,
        runner: Runner,
    ) -> None:
        self.runner = runner
        self.dataset = dataset
        self.store = store
        self.base = base
        self.parameters = parameters
        self.workers = workers
        self.next_fragment_id = 0

    def run(
        self,
        names: Sequence[str],
        progress: bool | Callable[[Progress], None],  # noqa: FBT001 - passed on
        *,
        optimize: bool,
        levels: Sequence[str],
        commit_every: int,
    ) -> None:
        listing = self.dataset.list()
        if not listing:
            raise DataFileError(f"a data set must have at least one file, got none in {self.dataset.location}")
        with self._ids(listing) as ids:
            inspected = check_any(self.runner.read_footers(self.dataset, listing, ids), self.dataset)
            types = {name: hashing.resolve_column(inspected.schema, name).type for name in names}
            for column_type in types.values():
                hashing.hash_plan(column_type)
            made = (self.parameters.rows_per_zone, self.parameters.fpp, self.parameters.sizing)
            columns = [
                ColumnEntry(name, of_type, *made, (), levels=no_levels(levels)) for name, of_type in types.items()
            ]
            work = self._work(listing, inspected.schema, inspected.fragments, columns)
            work.is_sliced = optimize
            is_small = work.num_rows <= commit_every or bool(work.replaced)
            work.is_unfinished = optimize and not is_small
            with reporting(progress, work.num_rows) as on_rows:
                work.run(sys.maxsize if is_small else commit_every, on_rows)
        if not is_small:
            self.runner.run(partial(finish, is_merged=optimize), self.store, names)

    def import_zones(self, zones: ZoneTable, column: str, *, check: bool) -> None:
        """The zones as one segment, after they were set against the files."""
        listing = self.dataset.list()
        with self._ids(listing) as ids:
            self._import(listing, ids, zones, column, check=check)

    def _import(
        self, listing: Mapping[str, Any], ids: Mapping[str, int], zones: ZoneTable, column: str, *, check: bool
    ) -> None:
        first_id = min(ids.values(), default=0)
        inspected = check_any(self.runner.read_footers(self.dataset, listing, ids), self.dataset)
        if inspected.skipped:
            raise DataFileError(
                f"each file must be readable to import zones, got: {next(iter(inspected.skipped.values()))}"
            )
        column_type = hashing.resolve_column(inspected.schema, column).type
        hashing.hash_plan(column_type)
        numbered = [replace(one, fragment_id=one.fragment_id - first_id) for one in inspected.fragments]
        _check_tiling(zones, numbered)
        if check:
            check_imported(self.dataset, numbered, zones, column, column_type)
        schema = zone_schema(zones.rows_per_zone, zones.fpp, column=column, column_type=column_type)
        with ZoneSegmentWriter(self.store, column, schema) as writer:
            for batch in zones.batches():
                fragment_ids = pc.add(batch.column(0), pa.scalar(first_id, pa.uint64()))
                writer.write(pa.RecordBatch.from_arrays([fragment_ids, *batch.columns[1:]], schema=schema))
        assert writer.entry is not None
        entry = ColumnEntry(column, column_type, zones.rows_per_zone, zones.fpp, "imported", (writer.entry,))
        work = self._work(listing, inspected.schema, inspected.fragments, [])
        change = replace(work.first, columns=(ColumnChange(entry, is_rebuilt=True),), added=tuple(work.new))
        commit_change(self.store, work.base, change)

    @contextmanager
    def _ids(self, listing: Mapping[str, Any]) -> Iterator[dict[str, int]]:
        """Ids of the files: those that the index has for them where they are unchanged, else new ones.

        If the block raises, nothing is left of an index that was not there before.
        """
        known = self.base.fragments if self.base else FragmentTable.of([])
        pairs = zip(listing, known.compare(listing).tolist(), strict=True)
        ids = {path: int(known.fragment_ids[position]) for path, position in pairs if position >= 0}
        new = [path for path in listing if path not in ids]
        next_id = self.base.manifest.next_fragment_id if self.base else 0
        try:
            with reserved_ids(self.store, next_id, len(new)) as first:
                self.next_fragment_id = first + len(new) if new else 0
                yield ids | dict(zip(new, count(first)))
        except BaseException:
            with suppress(StorageError):  # the caller's error matters more
                if not self.base and not list_versions(self.store):
                    self.store.prune()
            raise

    def _work(
        self, listing: Iterable[str], schema: pa.Schema, fragments: Sequence[Fragment], columns: Sequence[ColumnEntry]
    ) -> Work:
        base = self.base.manifest if self.base else NO_VERSION
        known = set(self.base.fragments.fragment_ids.tolist()) if self.base else set()
        names = frozenset(entry.name for entry in columns)
        declared = self.dataset.declared()
        change = Change(
            "build",
            removed=frozenset(known - {one.fragment_id for one in fragments}),
            removed_lists=self.base.damaged_lists if self.base else frozenset(),
            schema=schema,
            declared=None if declared is None else declared.schema,
            is_schema_whole=True,
            dataset=self.dataset.to_json(self.store.location),
            unknown_paths=tuple(listing),
            next_fragment_id=self.next_fragment_id,
        )
        return Work(
            self.dataset,
            self.store,
            base,
            change,
            columns,
            new=[one for one in fragments if one.fragment_id not in known],
            known=[(one, names) for one in fragments if one.fragment_id in known],
            runner=self.runner,
            workers=self.workers,
            replaced=frozenset(path for entry in base.columns if entry.name in names for path in entry.files),
            is_rebuild=True,
        )


def _check_tiling(zones: ZoneTable, fragments: Sequence[Fragment]) -> None:
    covered = RowSelection.from_arrays(zones.fragment_ids, zones.zone_starts, zones.zone_starts + zones.zone_lengths)
    files = RowSelection.from_ranges((one.fragment_id, 0, one.num_rows) for one in fragments if one.num_rows)
    if covered != files:
        odd = next(iter((covered - files) | (files - covered)))
        message = "the zones must tile the files in order of path"
        raise InvalidZoneTableError(f"{message}, got a difference at fragment {odd.fragment_id}, row {odd.start}")
