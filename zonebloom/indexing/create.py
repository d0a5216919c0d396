"""Creating columns: `build` from data, `import_zones` from existing zones.

Segments are written first and committed last, so a build that fails or dies leaves the index unchanged.

Spec: specs/index-format.md#commit
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from zonebloom.bloom import hashing
from zonebloom.bloom.selection import RowSelection
from zonebloom.bloom.zones import ZoneTable, zone_schema
from zonebloom.formats import DatasetSnapshot, ParquetDataset, dataset_from_json
from zonebloom.formats.identity import is_described, name_of_data
from zonebloom.ground.errors import (
    ColumnNotFoundError,
    CorruptIndexError,
    DataFileError,
    IndexExistsError,
    InvalidArgumentError,
    InvalidZoneTableError,
    Words,
)
from zonebloom.indexing.apply import apply, inspected, runner_for
from zonebloom.indexing.fill import Runner
from zonebloom.indexing.optimize import finish
from zonebloom.indexing.plan import Scope, plan_build, plan_refresh
from zonebloom.indexing.verify import check_imported
from zonebloom.indexing.versions import FOLDERS
from zonebloom.storage.commit import commit_change
from zonebloom.storage.fragments import Fragment
from zonebloom.storage.manifest import list_versions
from zonebloom.storage.options import BuildOptions, IndexOptions
from zonebloom.storage.snapshot import Snapshot, load_trusted
from zonebloom.storage.transaction import NO_VERSION
from zonebloom.storage.zone_segment import ZoneSegmentWriter
from zonebloom.stores.locations import absolute, is_url
from zonebloom.stores.open import open_store
from zonebloom.stores.store import Store


def build(
    dataset: DatasetSnapshot,
    store: Store,
    columns: str | Sequence[str],
    options: IndexOptions,
    work: BuildOptions,
    *,
    overwrite: bool = False,
    optimize: bool = True,
    adopt: str | None = None,
) -> None:
    """Build and commit filters of `columns` of the pinned `dataset`; see `build_index`."""
    names = hashing.names_of(columns)
    if not names or len(set(names)) != len(names):
        raise InvalidArgumentError("columns must be one or more different names", got=f"{columns!r}")
    if isinstance(dataset, ParquetDataset):
        dataset.check_above()
    if adopt is not None:
        work = replace(work, runner=_adopting(runner_for(dataset, work), adopt, dataset, options.kind))
    base = current_of(dataset, store)
    if not overwrite and _is_resumed(base, names, options):
        wanted = {entry.name: entry.options for entry in base.manifest.columns}
        plan = plan_refresh(base, dataset, "incremental", Scope(), wanted, is_resumed=True)
    else:
        plan = plan_build(base, dataset, names, options)
    try:
        is_ended = apply(plan, work, optimize=optimize).is_ended
    except ColumnNotFoundError as error:
        raise partition_column_error(dataset, names) or error from None
    if not is_ended:
        runner_for(dataset, work).run(partial(finish, is_merged=optimize), store, names)


def _adopting(runner: Runner, adopt: str, dataset: DatasetSnapshot, kind: str) -> Runner:
    if adopt not in ("parquet", "lance") or kind != "bloom":
        raise InvalidArgumentError(
            "adopt must be 'parquet' or 'lance', with kind bloom, as a locator needs the values",
            got=f"{adopt!r} with kind {kind}",
        )
    from zonebloom.formats.lance import LanceSnapshot  # noqa: PLC0415 - as above
    from zonebloom.indexing.adopt import Adopting, parquet_zones  # noqa: PLC0415 - few builds adopt
    from zonebloom.indexing.adopt_lance import LanceZones  # noqa: PLC0415 - as above

    is_lance = isinstance(dataset, LanceSnapshot)
    if is_lance and adopt != "lance":
        raise InvalidArgumentError(f"{dataset.location} is a Lance table, which has no Parquet files")
    if adopt == "lance" and not is_lance:
        raise InvalidArgumentError(f"{dataset.location} is no Lance table", do=Words.READ_ZONES)
    return Adopting(runner, LanceZones() if adopt == "lance" else parquet_zones)


def partition_column_error(dataset: DatasetSnapshot, names: Sequence[str]) -> ColumnNotFoundError | None:
    """The error if one of `names` is a partition column, because no file has its values."""
    declared = dataset.declared
    keys = {*dataset.path_values(next(iter(dataset.list()), "")), *(declared.partition_columns if declared else ())}
    named = [name for name in names if name in keys]
    return ColumnNotFoundError(f"{named[0]} is a partition column: it prunes without an index") if named else None


def _is_resumed(base: Snapshot, names: Sequence[str], options: IndexOptions) -> bool:
    """Whether this build resumes an unfinished build of the same columns.

    Raises
    ------
    IndexExistsError
        A column is indexed already, or its unfinished build has other parameters or other columns.
    """
    begun = [entry for entry in base.manifest.columns if entry.name in names]
    for entry in begun:
        if not entry.is_unfinished:
            raise IndexExistsError(
                f"column {entry.name} is already indexed at {base.store.location}", do=Words.REFRESH_OR_OVERWRITE
            )
        before = entry.options
        if before != options or len(begun) < len(names):
            text = f"{before.rows_per_zone} rows a zone, fpp {before.fpp}, sizing {before.sizing}"
            message = f"a build of {entry.name} that was begun must be ended with the same columns and parameters"
            raise IndexExistsError(
                message,
                got=f"one at {base.store.location} with {text}, kind {before.kind}",
                do=f"or build with {Words.OVERWRITE}",
            )
    return bool(begun)


def index_store(
    dataset: DatasetSnapshot, index: str | os.PathLike[str] | None, storage_options: Mapping[str, str] | None
) -> Store:
    """The store of the index of `dataset`.

    Raises
    ------
    InvalidArgumentError
        `index` is None, and the data set has no default location; or `index` is a folder of data files.
    """
    if index is not None:
        location = absolute(index)
        dataset.check_index(location)
        _check_beside(dataset.location, location)
        return open_store(location, storage_options)
    stores = [open_store(place, storage_options) for place in dataset.index_places()]
    if not stores:
        raise InvalidArgumentError("index must name a folder if the data set is a list or a Dataset", got="None")
    return next((store for store in stores[1:] if list_versions(store)), stores[0])


def _check_beside(data: str, index: str) -> None:
    """Refuse a data set in a folder that the index uses: readers of the data would take its files for data."""
    data, around = (place if is_url(place) else os.path.realpath(place) for place in (data, index))
    if data.startswith(f"{around}/") and data[len(around) + 1 :].split("/")[0] in FOLDERS:
        raise InvalidArgumentError(
            "an index must not have the data set in a folder of its own", got=f"{index} for {data}", do="name another"
        )


def current_of(dataset: DatasetSnapshot, store: Store) -> Snapshot:
    """The current version of the index of `dataset` in `store`; an empty version if no version is readable.

    Raises
    ------
    IndexExistsError
        The index is of another data set.
    """
    numbers = list_versions(store)
    if not numbers:
        return Snapshot(store, NO_VERSION)
    try:
        current = load_trusted(store)[0]
    except CorruptIndexError:
        return Snapshot(store, replace(NO_VERSION, version=numbers[-1]))
    if not is_described(described := current.manifest.dataset, store, dataset):
        raise IndexExistsError(
            f"{store.location} must be the index of {name_of_data(dataset)}, or none yet",
            got=f"that of {name_of_data(dataset_from_json(described, store))}",
            do=Words.MOVED_OR_DELETE,
        )
    return current


def import_zones(dataset: DatasetSnapshot, store: Store, zones: ZoneTable, column: str, *, check: bool) -> None:
    """Commit `zones` as the one column of a new index of the pinned `dataset`; see `import_index`."""
    if not isinstance(zones, ZoneTable) or not isinstance(column, str):
        raise InvalidArgumentError(
            "an import must be of a ZoneTable and the name of a column", got=f"{type(zones).__name__}, {column!r:.80}"
        )
    base = current_of(dataset, store)
    if base.manifest.version:
        raise IndexExistsError(
            "there must be no index yet to import one",
            got=f"one at {store.location}",
            do=f"delete it, or set {Words.INDEX}",
        )
    plan = plan_build(base, dataset, [column], IndexOptions(zones.rows_per_zone, zones.fpp))
    with inspected(plan, runner_for(dataset, BuildOptions())) as (opened, first):
        if opened.skipped:
            raise DataFileError("each file must be readable to import zones", got=next(iter(opened.skipped.values())))
        first_id = min(file.fragment_id for file in opened.fragments)
        column_type = hashing.resolve_column(opened.schema, column).type
        hashing.hash_plan(column_type)
        numbered = [replace(file, fragment_id=file.fragment_id - first_id) for file in opened.fragments]
        _check_tiling(zones, numbered)
        if check:
            check_imported(dataset, numbered, zones, column, column_type)
        schema = zone_schema(zones.rows_per_zone, zones.fpp, column=column, column_type=column_type)
        with ZoneSegmentWriter(store, column, schema) as writer:
            for batch in zones.batches():
                fragment_ids = pc.add(batch.column(0), pa.scalar(first_id, pa.uint64()))
                writer.write(pa.RecordBatch.from_arrays([fragment_ids, *batch.columns[1:]], schema=schema))
            segments = tuple(writer.finish())
        entry = replace(plan.columns[0], column_type=column_type, sizing="imported", segments=segments)
        change = replace(first, columns=(entry,), is_rebuilt=True, added=tuple(opened.fragments))
        commit_change(store, base.manifest, change)


def _check_tiling(zones: ZoneTable, fragments: Sequence[Fragment]) -> None:
    covered = RowSelection.of_zones(zones.positions)
    files = RowSelection.from_ranges((file.fragment_id, 0, file.num_rows) for file in fragments if file.num_rows)
    if covered != files:
        odd = next(iter((covered - files) | (files - covered)))
        raise InvalidZoneTableError(
            "the zones must tile the files in order of path",
            got=f"a difference at fragment {odd.fragment_id}, row {odd.start}",
        )
