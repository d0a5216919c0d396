"""The doors (build, open, import and delete an index), and `Index`: refresh, optimize, verify, restore, vacuum, export.

`OpenedIndex` in `search/opened.py` has what an index answers: dataset, exists, locate, status, and as a `Searchable`
search, scan and explain.

An index is a folder beside the data (`_<name>.zonebloom/`), or anywhere else. It never touches a data file, and each
of its answers holds for the data set as it is at the moment of the call: files are listed afresh, and what the index
does not know, or no longer knows, is read whole.

Spec: specs/index-format.md, specs/pruning.md
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from zonebloom.errors import ConcurrentCommitError, CorruptIndexError, IndexNotFoundError, InvalidArgumentError
from zonebloom.formats import open_dataset
from zonebloom.formats.places import is_index_name, places_of
from zonebloom.formats.table_marks import METADATA_SUFFIX
from zonebloom.options import COMMIT_EVERY, FPP, ROWS_PER_ZONE, BuildOptions, IndexOptions
from zonebloom.search.opened import OpenedIndex
from zonebloom.search.snapshot import Snapshot, load_snapshot, load_trusted
from zonebloom.search.view import View
from zonebloom.storage.manifest import list_versions, read_version
from zonebloom.storage.stores.locations import absolute, is_url
from zonebloom.storage.stores.open import open_store

if TYPE_CHECKING:
    from zonebloom.bloom.sbbf import Sbbf
    from zonebloom.build.fill import Runner
    from zonebloom.build.plan import Mode
    from zonebloom.build.progress import Progress
    from zonebloom.build.refresh import Refresh
    from zonebloom.formats.hive import Partitions
    from zonebloom.maintain.lance_export import LanceExport
    from zonebloom.maintain.optimize import Optimization
    from zonebloom.maintain.verify import Verification
    from zonebloom.maintain.versions import Removal, Vacuum, Version
    from zonebloom.options import Sizing
    from zonebloom.search.arrow_dataset import IndexedDataset
    from zonebloom.search.zone_table import ZoneTable

_REFRESH_ATTEMPTS = 4
_log = logging.getLogger("zonebloom")


def open_index(
    path: str | os.PathLike[str],
    *,
    version: int | None = None,
    storage_options: Mapping[str, str] | None = None,
    dataset: Any = None,
) -> Index:
    """The index at `path`: the data set's folder, the one data file, or the folder of the index itself.

    An index that a newer zonebloom wrote is opened too: it prunes nothing, and says so.

    Parameters
    ----------
    path
        A local path or a URL (`s3://`, `gs://`, `az://`, `abfss://`, `file://`).
    version
        An older version; by default the current one.
    storage_options
        For URLs, of the index or of its data: credentials, region, endpoint and the like, under the names of the
        object_store library (`aws_region`). What is not given comes from the environment.
    dataset
        The table that is indexed, as a `deltalake.DeltaTable`, a `pyiceberg.table.Table`, a `lance.LanceDataset` or a
        path, where it is to be read as that stands for it; or a data set that moved. By default it is found as the
        index knows it.

    Raises
    ------
    IndexNotFoundError
        There is none.
    CorruptIndexError
        No version file of it can be read.
    StorageError
        The store cannot be reached or refuses.

    Spec: specs/index-format.md#locations
    """
    given = absolute(path)
    for root in _places(given):
        store = open_store(root, storage_options)
        versions = list_versions(store)
        if versions:
            table = None if dataset is None else open_dataset(dataset, storage_options)
            _log.debug("opened %s, version %s of %s", root, version or versions[-1], versions)
            return Index(load_snapshot(store, version, versions), storage_options, table)
    if not is_url(given) and not os.path.exists(given):  # noqa: PTH110 - never raises, whatever the name
        raise IndexNotFoundError(f"a data set or an index must be at {path}, which does not exist")
    raise IndexNotFoundError(f"an index must be beside {given} or in it, got none; make one with build_index")


def dataset(path: str | os.PathLike[str], *, storage_options: Mapping[str, str] | None = None) -> IndexedDataset:
    """The indexed data set at `path` as a pyarrow Dataset; `open_index(path).dataset()`.

    Raises
    ------
    IndexNotFoundError
        There is no index.

    Spec: specs/engines.md#dataset
    """
    return open_index(path, storage_options=storage_options).dataset()


def _places(given: str) -> Iterator[str]:
    """Where the index of what a user names may be; of a URL each place costs a request, so the likely one is first."""
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
    rows_per_zone: int = ROWS_PER_ZONE,
    fpp: float = FPP,
    sizing: Sizing = "power_of_two",
    index: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    workers: int | None = None,
    overwrite: bool = False,
    optimize: bool = True,
    levels: Sequence[str] = ("zone",),
    commit_every: int = COMMIT_EVERY,
    progress: bool | Callable[[Progress], None] = False,
    runner: Runner | None = None,
    adopt: Literal["parquet", "lance"] | None = None,
    locator: bool = False,
    filters: bool = True,
) -> Index:
    """An index over `columns` of `source`, committed and opened; data files are only read.

    Columns are added to an index that is there already. Memory is bounded by one batch of zones (4 MiB) for each
    worker and column, not by the data set.

    Parameters
    ----------
    source
        A folder of Parquet files (hive-partitioned or not), a file, a list of files, a `pyarrow.dataset.Dataset`, or a
        Delta, Iceberg or Lance table. Folders and files may be URLs (`s3://`, `gs://`, `az://`, `abfss://`, `file://`).
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
        Folder of the index, or its URL, in another store too. By default `_<name>.zonebloom` beside the folder or file,
        `_zonebloom` inside a whole bucket; a list of files and a pyarrow Dataset need it.
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
    commit_every
        Rows after which what is done is committed, so that a build which dies keeps it. The same call then goes on
        where it ended, and merges everything at the end. Columns that are built anew are replaced at once, at the end.
    progress
        True for a bar on stderr, or a function that takes `Progress`.
    runner
        Where the work is done; by default in `workers` threads of this process.
    adopt
        `"parquet"` takes the filters that the files have of their own, so that no data page is read: zones are row
        groups. `"lance"` takes the zones of a Lance table's own bloom index. What has none that fits is built by
        reading. A full refresh makes zones of `rows_per_zone` of all.
    locator
        Whether to add the level `"locator"`: 4.2 bytes a row, with which a search keeps hardly any zone by chance, and
        `Index.locate` names the zones of many keys. specs/locator.md.
    filters
        Whether zones have filters. False makes locators instead of them, which answer all that filters answer, as
        `levels=("locator",)` does in a full refresh; a `zone_table` and an export need filters.

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
    from zonebloom.build.create import build, index_store  # noqa: PLC0415 - a plain search does without

    names = (levels,) if isinstance(levels, str) else tuple(levels)
    if not filters:
        names = tuple(name for name in names if name != "zone")
    if locator or not filters:
        names = (*names, "locator")
    options = IndexOptions(rows_per_zone, fpp, sizing, names)
    work = BuildOptions(workers, commit_every, progress, runner)
    given = open_dataset(source, storage_options)
    dataset = given.pin()
    store = index_store(dataset, index, storage_options)
    build(dataset, store, columns, options, work, overwrite=overwrite, optimize=optimize, adopt=adopt)
    return Index(load_snapshot(store, None), storage_options, given)


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
        The zones do not tile the files, or a filter excludes a value that the data has: they describe other data.
    """
    from zonebloom.build.create import import_zones, index_store  # noqa: PLC0415 - a plain search does without

    given = open_dataset(source, storage_options)
    dataset = given.pin()
    store = index_store(dataset, index, storage_options)
    import_zones(dataset, store, zones, column, check=check)
    return Index(load_snapshot(store, None), storage_options, given)


def delete_index(
    path: str | os.PathLike[str], *, storage_options: Mapping[str, str] | None = None, dry_run: bool = False
) -> Removal:
    """Remove the index of `path` with all its versions, or what a build left that died before its first commit.

    Data files are not touched, and nothing in the index's folder but what zonebloom wrote.

    Parameters
    ----------
    path
        As for `open_index`.
    dry_run
        Remove nothing, only say what.

    Raises
    ------
    IndexNotFoundError
        There is nothing of an index.
    """
    from zonebloom.maintain.versions import remove  # noqa: PLC0415 - a plain search does without

    given = absolute(path)
    stores = [open_store(place, storage_options) for place in _places(given)]
    stores.sort(key=lambda store: not list_versions(store))  # an index before leftovers
    for store in stores:
        found = remove(store, dry_run=dry_run)
        if found.num_files:
            return found
    raise IndexNotFoundError(f"an index must be beside {given} or in it, got none: nothing to remove")


class Index(OpenedIndex):
    """One version of an index, opened; it keeps that version whatever others commit meanwhile.

    Segments and footers are opened once and stay open; each search lists the data set afresh. `refresh`, `optimize` and
    `restore` move this index to the version that they commit.

    Threads may share an index: what reads may run at any time, and each answer is of one version and one listing. Only
    one thread at a time may call what moves it.

    Examples
    --------
    >>> import tempfile, pyarrow as pa, pyarrow.parquet as pq, zonebloom as zb
    >>> folder = tempfile.mkdtemp() + "/events"
    >>> pq.write_to_dataset(pa.table({"id": range(1000), "day": [1, 2] * 500}), folder, partition_cols=["day"])
    >>> with zb.build_index(folder, "id", rows_per_zone=100) as index:
    ...     found = index.search("id = 250")
    ...     print(found.kind, found.num_zones_kept, "of", found.num_zones, "zones")
    ...     print([(start, stop) for path, start, stop in found], index.to_table("id = 250").to_pylist())
    ...     print(index.exists("id", [250, 5000]).to_pylist(), index.status().is_fresh)
    at_most 1 of 10 zones
    [(100, 200)] [{'id': 250, 'day': 1}]
    [True, False] True
    """

    def report(self, path: str | os.PathLike[str], where: Any = (), *, overwrite: bool = False) -> None:
        """Write one HTML page about the index: a map of what is read, sizes, measured fpp, coverage, history.

        The page needs no network. It takes Bokeh (`zonebloom[report]`).

        Parameters
        ----------
        path
            The file to write.
        where
            A condition as for `search`, or a list of them: each is searched, and drawn on the map.
        overwrite
            Replace a file that exists.

        Raises
        ------
        InvalidArgumentError
            The file exists and is not to be replaced, or it would lie in the data set or in the index.
        MissingDependencyError
            Bokeh is not installed.
        """
        from zonebloom.maintain.outputs import check_output  # noqa: PLC0415 - a plain search does without
        from zonebloom.maintain.report.content import Content  # noqa: PLC0415 - as above
        from zonebloom.maintain.report.page import page  # noqa: PLC0415 - as above

        output = check_output(path, self.data.pin(), self.location, endings=(".html",), overwrite=overwrite)
        conditions = where if isinstance(where, (list, tuple)) else [where]
        searches = [self.explain(one) for one in conditions]
        output.write_text(page(Content.of(self.view(), searches)), "utf-8")

    def verify(self, *, sample: float = 0.1, seed: int = 0) -> Verification:
        """Re-read data and prove that no value is missing from its zone's filter.

        Parameters
        ----------
        sample
            Share of the files to read, in (0, 1]; at least one is.
        """
        from zonebloom.maintain.verify import verify  # noqa: PLC0415 - a plain search does without

        return verify(self.view(), sample=sample, seed=seed)

    def optimize(self) -> Optimization:
        """Merge segments into few slice segments, of which a search reads some rows, and commit; answers stay the same.

        Zones of fragments that are gone are dropped. This index then is the new version; readers of the old one are
        not disturbed. Memory is some 100 MiB, whatever the size of the index.

        Raises
        ------
        ConcurrentCommitError
            Another commit came first and changed the same segments, so nothing was done: open the index again.
        CorruptIndexError
            The version file or a fragment list is damaged.

        Spec: specs/slices.md#optimize
        """
        from zonebloom.maintain.optimize import optimize  # noqa: PLC0415 - a plain search does without

        done = optimize(self._snapshot.store, read_version(self._snapshot.store, self.version))
        self._move_to(done.version)
        return done

    def _move_to(self, version: int) -> None:
        if version != self.version:
            self._snapshot = load_snapshot(self.store, version)
            dataset = self._dataset_of(self._snapshot)
            if dataset is not self.data:
                self._past_traffic += self.data.traffic
            self.data = dataset

    def refresh(
        self,
        mode: Mode = "incremental",
        *,
        paths: Iterable[str | os.PathLike[str]] | None = None,
        partitions: Partitions | None = None,
        rows_per_zone: int | None = None,
        fpp: float | None = None,
        sizing: Sizing | None = None,
        levels: Sequence[str] | None = None,
        check: bool = False,
        workers: int | None = None,
        commit_every: int | None = None,
        progress: bool | Callable[[Progress], None] = False,
        runner: Runner | None = None,
    ) -> Refresh:
        """Bring the index in line with the data set, and commit; this index then is the new version.

        It starts from the current version, whichever is open here, and lands on top of what others commit meanwhile.
        Where nothing changed there is no new version.

        Parameters
        ----------
        mode
            `incremental` opens and builds new and changed files only; `quick` opens none, and forgets those that
            changed or are gone; `full` builds all anew, and replaces it at once.
        paths
            Files and folders, relative to the data set's root, to which the refresh is confined; nothing else is even
            listed.
        partitions
            Hive partitions to which the refresh is confined, as `{"day": 3}` or `"day=3"`, or a list of them; no folder
            of another one is listed.
        rows_per_zone, fpp, sizing, levels
            New parameters of all columns, as for `build_index`, for `full`; by default they keep theirs.
        check
            Read the index whole first, and rebuild what differs from its checksum. Without it, damage is repaired that
            shows by a missing file or a wrong length, or that this index has met.
        workers, commit_every, progress, runner
            As for `build_index`.

        Raises
        ------
        InvalidArgumentError
            A path lies outside of the data set, a partition is of no partition column, or there are new parameters
            without a full refresh of all.
        DataFileError
            The data set's folder is gone. Single files that cannot be read are warned of, and searches keep them whole.
        UnsupportedFormatError
            A newer zonebloom wrote the current version.
        ConcurrentCommitError
            Other commits changed the same files or columns, again and again.

        Spec: specs/refresh.md
        """
        from zonebloom.build.refresh import refresh  # noqa: PLC0415 - a plain search does without

        given = {"rows_per_zone": rows_per_zone, "fpp": fpp, "sizing": sizing, "levels": levels}
        wanted = {name: value for name, value in given.items() if value is not None}
        work = BuildOptions(workers, COMMIT_EVERY if commit_every is None else commit_every, progress, runner)
        is_cached = True
        for attempts_left in range(_REFRESH_ATTEMPTS, 0, -1):
            snapshot, is_sound = self._current(is_cached=is_cached)
            dataset = self._dataset_of(snapshot)
            try:
                done = refresh(
                    snapshot,
                    dataset.pin(),
                    work,
                    mode=mode,
                    paths=paths,
                    partitions=partitions,
                    wanted=wanted,
                    check=check,
                    is_forced=not is_sound,
                )
            except (ConcurrentCommitError, CorruptIndexError):  # of others, or of what this index has read long ago
                if attempts_left == 1:
                    raise
                is_cached = False
                continue
            finally:
                if dataset is not self.data:
                    self._past_traffic += dataset.traffic
            break
        self._move_to(done.version)
        _log.debug("refreshed %s: %s", self.location, done)
        return done

    def _current(self, *, is_cached: bool) -> tuple[Snapshot, bool]:
        """The current version, and whether its file is sound; an older one stands in for a damaged file."""
        newest = list_versions(self._snapshot.store)[-1:]
        if is_cached and newest == [self.version] and not self._snapshot.is_distrusted:
            return self._snapshot, True
        return load_trusted(self.store)

    def versions(self) -> list[Version]:
        """The versions that are kept, the oldest first; open one with `open_index(path, version=n)`."""
        from zonebloom.maintain.versions import versions  # noqa: PLC0415 - a plain search does without

        return versions(self._snapshot.store)

    def restore(self, version: int) -> int:
        """Make the content of an older version current, as a new version, whose number it is; this index moves on.

        Data files are not touched: those that changed since are read whole, until the next refresh.

        Raises
        ------
        InvalidArgumentError
            The version is not kept.
        CorruptIndexError
            Its file, or one that it names, is missing or damaged.
        ConcurrentCommitError
            Another commit came first.

        Spec: specs/refresh.md#restore
        """
        from zonebloom.maintain.versions import restore  # noqa: PLC0415 - a plain search does without

        self._move_to(restore(self._snapshot.store, version).version)
        return self.version

    def vacuum(self, *, older_than: timedelta = timedelta(days=7), dry_run: bool = False) -> Vacuum:
        """Remove versions that were superseded longer ago than `older_than`, and files that no version needs.

        The current version always stays. `older_than` must exceed the longest time that a reader holds a version and
        that a build or refresh takes; if it does not, searches stay right, but may read more than they need, and a
        writer may fail with a `StorageError`.

        Raises
        ------
        InvalidArgumentError
            `older_than` is negative.
        CorruptIndexError, UnsupportedFormatError
            The current version cannot be read; nothing was removed.

        Spec: specs/refresh.md#vacuum
        """
        from zonebloom.maintain.versions import vacuum  # noqa: PLC0415 - a plain search does without

        return vacuum(self._snapshot.store, older_than=older_than, dry_run=dry_run)

    def zone_table(self, column: str, *, numbered_by_path: bool = False) -> ZoneTable:
        """The zones of `column` over the live fragments, in order of fragment and start.

        They are of the column that had this name when it was indexed, and of the files of this version.

        Parameters
        ----------
        numbered_by_path
            Number fragments by the order of their paths, as `import_index` reads them, not by the ids of this index.

        Raises
        ------
        ColumnNotFoundError
            The column is not indexed.
        CorruptIndexError
            A segment is damaged: a search of an incomplete table would lose rows.
        StaleIndexError
            Rows of a live fragment have no zones of this column, for the same reason.
        """
        from zonebloom.maintain import exchange  # noqa: PLC0415 - a plain search does without

        found = exchange.zone_table(self._snapshot, self._column(column))
        return exchange.numbered_by_path(self._snapshot, found) if numbered_by_path else found

    def export_lance(
        self, table: Any, column: str, *, per_fragment: bool = False, overwrite: bool = False
    ) -> LanceExport:
        """Commit the zones of `column` to the indexed Lance table as its own index, so that Lance prunes by them.

        Lance loads all filters for a query: `sizing="exact"` or `"adaptive"` makes them smaller than its own.

        Parameters
        ----------
        table
            The table that is indexed: its path or URL, or the `lance.LanceDataset`.
        per_fragment
            Make a segment for each fragment, not one for all: Lance then drops those of fragments that it compacts.
        overwrite
            Replace a bloom filter index of the column, in the same commit.

        Raises
        ------
        InvalidArgumentError
            The index is of another table, or the column is a field of a struct.
        UnsupportedTypeError
            Lance has no bloom filters of the column's type.
        StaleIndexError
            Live rows have no zones: refresh the index.
        IndexExistsError
            The column has a scalar index in Lance, which uses the first one only.
        ConcurrentCommitError
            The table changed meanwhile; nothing was committed.

        Spec: specs/lance.md#export_lance
        """
        from zonebloom.maintain.lance_export import export_lance  # noqa: PLC0415 - a plain search does without

        dataset = open_dataset(table, self._storage_options).pin()
        if dataset.location != self.data.location:
            raise InvalidArgumentError(f"table must be the indexed one, {self.data.location}, got {dataset.location}")
        view = View(self._snapshot, dataset, dataset.list())
        return export_lance(view, self._column(column), per_fragment=per_fragment, overwrite=overwrite)

    def dataset_filter(self, column: str) -> Sbbf:
        """The filter of all values of `column`, which others can load too: its file is the plain bitset.

        It holds the values of the files, and of the column of this name, as they were when they were built; what
        changed or came since is not in it.

        Raises
        ------
        ColumnNotFoundError
            The column is not indexed.
        IndexNotFoundError
            It was built without the level `dataset`, or refreshes added filters that cannot be united usefully.
        CorruptIndexError
            The file is damaged.

        Spec: specs/levels.md#dataset-filter
        """
        from zonebloom.maintain.exchange import dataset_filter  # noqa: PLC0415 - a plain search does without

        return dataset_filter(self._snapshot, self._column(column))
