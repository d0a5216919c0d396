"""The doors: build, open, import and delete an index.

An index is a folder beside the data (`_<name>.zonebloom/`), or anywhere else. No door changes a data file.

Spec: specs/index-format.md#locations
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from zonebloom.bloom.sizing import FPP, ROWS_PER_ZONE
from zonebloom.formats import ParquetDataset, dataset_from_json, open_dataset
from zonebloom.formats.hive import partition_values
from zonebloom.formats.identity import are_same, is_described, name_of_data, places_of_data
from zonebloom.formats.index_location import is_index_name, places_of
from zonebloom.formats.table_folders import METADATA_SUFFIX, is_catalog_name
from zonebloom.ground.errors import IndexNotFoundError, InvalidArgumentError, Words
from zonebloom.ground.threads import concurrently
from zonebloom.index.index import Index
from zonebloom.storage.manifest import list_versions
from zonebloom.storage.options import COMMIT_EVERY, BuildOptions, IndexOptions
from zonebloom.storage.snapshot import load_snapshot
from zonebloom.stores.locations import absolute, is_url
from zonebloom.stores.open import open_store

if TYPE_CHECKING:
    from zonebloom.bloom.sizing import Sizing
    from zonebloom.indexing.fill import Runner
    from zonebloom.indexing.progress import Progress
    from zonebloom.indexing.versions import Removal
    from zonebloom.search.zone_table import ZoneTable
    from zonebloom.storage.options import Kind
    from zonebloom.stores.store import Store

_log = logging.getLogger("zonebloom")
_MOST_PLACES = 3
"""Possible places of the index of a URL."""


def opened(source: str | os.PathLike[str] | Index, storage_options: Mapping[str, str] | None) -> Index:
    """The index `source`, or the one at this path."""
    return source if isinstance(source, Index) else open_index(source, storage_options=storage_options)


def open_index(
    path: str | os.PathLike[str],
    *,
    version: int | None = None,
    storage_options: Mapping[str, str] | None = None,
    dataset: Any = None,
) -> Index:
    """Open the index at `path`: the data set's folder, its only data file, or the folder of the index.

    An index of a newer zonebloom opens too: it prunes nothing, and the reasons of each search say so.

    Parameters
    ----------
    path
        A local path, a URL (`s3://`, `gs://`, `az://`, `abfss://`, `file://`), or `iceberg:CATALOG.NAMESPACE.TABLE`.
    version
        An older version; by default the current one.
    storage_options
        For URLs, of the index or of its data: credentials, region, endpoint and the like, under the names of the
        object_store library (`aws_region`). Missing options come from the environment.
    dataset
        The indexed table as a `deltalake.DeltaTable`, a `pyiceberg.table.Table`, a `lance.LanceDataset` or a path, to
        read it at the version of that object; or the new location of a data set that moved. By default it is the data
        set at `path`, or, if that is the folder of the index, the one of the last build; for a table also of a refresh.

    Raises
    ------
    IndexNotFoundError
        There is no index at `path`.
    CorruptIndexError
        No version file of the index can be read.
    InvalidArgumentError
        `dataset` is the folder of one partition of the indexed data set, or a file in it.
    StorageError
        The store cannot be reached, or refuses the request.

    Spec: specs/index-format.md#locations
    """
    of_catalog = open_dataset(path) if is_catalog_name(path) else None
    given = _location(path) if of_catalog is None else of_catalog.location

    def listed(place: str) -> tuple[Store, list[int]]:
        store = open_store(place, storage_options)
        return store, list_versions(store)

    places_at_once = _MOST_PLACES if is_url(given) else 0  # a request takes as long as all of them
    for store, versions in concurrently(listed, _places(given), places_at_once):
        if versions:
            snapshot = load_snapshot(store, version, versions)
            is_beside = of_catalog is None and given != store.location
            if dataset is None and is_beside and not _is_of(given, snapshot.manifest.dataset, store):
                dataset = given
            table = of_catalog if dataset is None else open_dataset(dataset, storage_options)
            if isinstance(table, ParquetDataset):
                _check_whole(table, snapshot.manifest.dataset, store)
            _log.debug("opened %s, version %s of %s", store.location, version or versions[-1], versions)
            return Index(snapshot, table)
    if not is_url(given) and not os.path.exists(given):  # noqa: PTH110 - never raises, whatever the name
        raise IndexNotFoundError(f"no data set and no index at {path}")
    raise IndexNotFoundError(f"no index beside {given} or in it", do=Words.BUILD)


def store_of(index: str | os.PathLike[str] | Index | None, table: Any) -> Store:
    """The store, with its options, of an index of `table`; by default of the one beside it. Raises as `open_index`."""
    if isinstance(index, Index):
        return index.store
    return open_index(open_dataset(table).location if index is None else index, dataset=table).store


def opened_in(store: Store, table: Any) -> Index:
    """The newest version of the index in `store`, for `table` as it has been loaded; raises as `open_index`."""
    return Index(load_snapshot(store, None), open_dataset(table))


def _location(path: str | os.PathLike[str]) -> str:
    if not isinstance(path, (str, os.PathLike)):
        raise InvalidArgumentError(
            "an index must be named by a path or URL, its own or that of its data",
            got=f"a {type(path).__name__}",
            do="open it by its path, and give the table as dataset=: open_index(path, dataset=table)",
        )
    return open_dataset(path).location if is_catalog_name(path) else absolute(path)


def _is_of(given: str, described: Mapping[str, Any], index: Store) -> bool:
    """Whether the data set at `given` is the one that a version file of `index` describes.

    The index beside a table may have been built or refreshed with another branch or another metadata file of it, and
    that beside a folder of one of its files.
    """
    metadata = described.get("metadata")
    if metadata is not None or given.endswith(METADATA_SUFFIX):
        return bool(metadata == given)
    if not isinstance(described.get("root"), str):  # of a newer kind, which is refused when it is opened
        return True
    return are_same(places_of_data(dataset_from_json(dict(described), index)), [given])


def _check_whole(data: ParquetDataset, described: Mapping[str, Any], index: Store) -> None:
    """Refuse a part of a data set, of whose files only the folders around the part say a partition."""
    columns = described.get("partition_columns", [])
    cut = [key for key in partition_values(f"{data.location}/") if key in columns]
    if cut and not is_described(described, index, data):
        raise InvalidArgumentError(
            f"{Words.DATASET} must be a whole data set, with the folders of its partition column {cut[0]}",
            got=name_of_data(data),
            do="name the folder around them, and the partition in the condition",
        )


def is_of_named(index: Index, path: str) -> bool:
    """Whether `path` names the data set of an index, and not the index itself.

    Raises
    ------
    InvalidArgumentError
        It names neither: the index would give the rows of its own data set.
    """
    given = [_location(path)]
    is_index = are_same([index.location], given)
    if not is_index and not are_same(places_of_data(index.data), given):
        raise InvalidArgumentError(
            f"{Words.DATASET} must be the data set of the index {index.location}, which is {name_of_data(index.data)}",
            got=path,
            do=f"name that or the folder of the index, or build an index of {path}",
        )
    return not is_index


def _places(given: str) -> Iterator[str]:
    """Possible folders of the index for a user's path, in the order in which they count."""
    if given.endswith(METADATA_SUFFIX):  # of an Iceberg table
        given = given.rpartition("/")[0].rpartition("/")[0]
    if is_url(given):
        yield from (given, *places_of(given)) if is_index_name(given) else (*places_of(given), given)
        return
    yield from (given, *places_of(given))
    real = os.path.realpath(given)
    if real != given:
        yield from places_of(real)


def build_index(
    source: Any,
    columns: str | Sequence[str],
    *,
    kind: Kind = "bloom",
    rows_per_zone: int = ROWS_PER_ZONE,
    fpp: float = FPP,
    sizing: Sizing = "power_of_two",
    index: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    workers: int | None = None,
    overwrite: bool = False,
    optimize: bool = True,
    commit_every: int = COMMIT_EVERY,
    progress: bool | Callable[[Progress], None] = False,
    runner: Runner | None = None,
    adopt: Literal["parquet", "lance"] | None = None,
) -> Index:
    """Build, commit and open an index over `columns` of `source`; data files are only read.

    If an index exists, the columns are added to it. Memory does not depend on the data set: it is one batch of zones
    (4 MiB) for each worker and column; locators take 256 MiB in all if that is more.

    Parameters
    ----------
    source
        A folder of Parquet files (hive-partitioned or not), a file, a list of files, a `pyarrow.dataset.Dataset`, or a
        Delta, Iceberg or Lance table. Folders and files may be URLs (`s3://`, `gs://`, `az://`, `abfss://`, `file://`).
        `iceberg:CATALOG.NAMESPACE.TABLE` is a table of a catalog that pyiceberg's configuration has.
    columns
        Names of columns; leaves of structs are written `a.b`.
    kind
        `bloom` makes a bloom filter for each zone. `locator` makes locators of about 4.2 bytes a row: a search then
        keeps hardly any zone by chance, and `Index.locate` finds the zones of a million keys in a second. `both` makes
        both: locators answer, and filters serve `zone_table` and exports. specs/locator.md.
    rows_per_zone
        Rows of a zone, at least 1.
    fpp
        False positive probability of the filter of a full zone of distinct values, from 1e-12 to below 1.
    sizing
        `power_of_two` (Lance's), `exact` (0.59 of the bytes at the defaults), `adaptive` (by the distinct values of
        each zone) or `parquet` (the closed formula, next power of two).
    index
        Folder or URL of the index; it may be in another store than the data. By default `_<name>.zonebloom` beside the
        folder or file, or `_zonebloom` inside a whole bucket. A list of files and a pyarrow Dataset have no default.
    storage_options
        For URLs, of the data or of the index: credentials, region, endpoint and the like, under the names of the
        object_store library (`aws_region`). Missing options come from the environment. The index does not store them.
    workers
        Threads; by default one for each core, and at least 8 if the data is in an object store.
    overwrite
        Build columns again that are indexed already.
    optimize
        Whether filters of more than 4096 zones become slice segments at the end, as `Index.optimize` makes them, and
        more than 16 locators of a column become one.
    commit_every
        Rows between commits, so that a build that dies retains its commits. The same call then resumes the build.
        With `overwrite`, existing columns are replaced in one commit at the end.
    progress
        True for a bar on stderr, or a function that takes `Progress`.
    runner
        The executor of the work; by default `workers` threads of this process.
    adopt
        `"parquet"` uses the bloom filters inside the Parquet files: zones are row groups, and no data page is read.
        `"lance"` uses the zones of a Lance table's own bloom index. Files without suitable filters are read. A full
        refresh builds zones of `rows_per_zone` for all files.

    Raises
    ------
    ColumnNotFoundError, UnsupportedTypeError, InvalidArgumentError
        An argument is wrong; nothing was written.
    IndexExistsError
        A column is indexed already, or the index is of another data set.
    DataFileError
        No file can be read. A single unreadable file is a warning: the index omits it, and searches keep it whole.
    ConcurrentCommitError
        Another commit came first.
    """
    from zonebloom.indexing.create import build, index_store  # noqa: PLC0415 - a plain search does without

    options = IndexOptions(rows_per_zone, fpp, sizing, kind)
    work = BuildOptions(workers, commit_every, progress, runner)
    given = open_dataset(source, storage_options)
    dataset = given.pin()
    store = index_store(dataset, index, storage_options)
    build(dataset, store, columns, options, work, overwrite=overwrite, optimize=optimize, adopt=adopt)
    return Index(load_snapshot(store, None), given)


def import_index(
    source: Any,
    zones: ZoneTable,
    *,
    column: str,
    index: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    check: bool = True,
) -> Index:
    """Build an index of `source` from existing zones, such as an exported file or the zones of a Lance index.

    Fragment number i is the i-th file in order of path. The zones of each fragment must tile its file.

    Parameters
    ----------
    check
        Read one zone of each file and prove that its filter holds every value, before anything is committed.

    Raises
    ------
    InvalidZoneTableError
        The zones do not tile the files, or a filter excludes a value in the data: the zones describe other data.
    """
    from zonebloom.indexing.create import import_zones, index_store  # noqa: PLC0415 - a plain search does without

    given = open_dataset(source, storage_options)
    dataset = given.pin()
    store = index_store(dataset, index, storage_options)
    import_zones(dataset, store, zones, column, check=check)
    return Index(load_snapshot(store, None), given)


def delete_index(
    path: str | os.PathLike[str], *, storage_options: Mapping[str, str] | None = None, dry_run: bool = False
) -> Removal:
    """Remove the index of `path` with all its versions, or the files of a build that died before its first commit.

    Only files that zonebloom wrote are removed; data files do not change.

    Parameters
    ----------
    path
        As for `open_index`.
    dry_run
        Remove nothing; only return the files to remove.

    Raises
    ------
    IndexNotFoundError
        There is no file of an index.
    """
    from zonebloom.indexing import versions  # noqa: PLC0415 - a plain search does without

    given = _location(path)
    stores = [open_store(place, storage_options) for place in _places(given)]
    stores.sort(key=lambda store: not list_versions(store))  # an index before leftovers
    for store in stores:
        removed = versions.delete_index(store, dry_run=dry_run)
        if removed.num_files:
            return removed
    raise IndexNotFoundError(f"no index beside {given} or in it: nothing to remove")
