"""`Index`: one opened version of an index, with its answers and its upkeep.

Each answer is about the data set at the moment of the call: files are listed afresh, and new and changed files are read
whole. `Searchable` defines search, scan and explain.

Spec: specs/pruning.md, docs/design/refresh.md
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pyarrow as pa

from zonebloom.formats import Dataset, DatasetSnapshot, dataset_from_json, open_dataset
from zonebloom.ground.arrow import schema_without_views
from zonebloom.ground.errors import ConcurrentCommitError, CorruptIndexError, InvalidArgumentError
from zonebloom.ground.reasons import counted
from zonebloom.ground.threads import concurrently
from zonebloom.predicates import Predicate
from zonebloom.search.probe import Probes, probed
from zonebloom.search.query import Query
from zonebloom.search.searchable import Searchable
from zonebloom.search.view import View
from zonebloom.storage.manifest import ColumnEntry, list_versions
from zonebloom.storage.options import COMMIT_EVERY, BuildOptions
from zonebloom.storage.snapshot import Snapshot, load_snapshot, load_trusted
from zonebloom.stores.fingerprint import Fingerprint
from zonebloom.stores.store import Store, Traffic

if TYPE_CHECKING:
    from zonebloom.bloom.sizing import Sizing
    from zonebloom.formats.hive import Partitions
    from zonebloom.ground.rendering import Results
    from zonebloom.indexing.fill import Runner
    from zonebloom.indexing.lance_export import LanceExport
    from zonebloom.indexing.optimize import Optimization
    from zonebloom.indexing.plan import Mode, Paths
    from zonebloom.indexing.progress import Progress
    from zonebloom.indexing.refresh import Refresh
    from zonebloom.indexing.verify import Verification
    from zonebloom.indexing.versions import Vacuum, Version
    from zonebloom.search.arrow_dataset import IndexedDataset
    from zonebloom.search.status import IndexedColumn, Status
    from zonebloom.search.zone_table import ZoneTable
    from zonebloom.storage.options import Kind

_REFRESH_ATTEMPTS = 4
_Answer = TypeVar("_Answer")
_log = logging.getLogger("zonebloom")


class Index(Searchable):
    """One opened version of an index; commits of other writers do not change it.

    Segments and footers are opened once and stay open; each search lists the data set afresh. `refresh`, `optimize` and
    `restore` move this index to the version that they commit.

    Threads may share an index. Methods that read may run at any time; each answer is about one version and one listing.
    Only one thread at a time may call `refresh`, `optimize` or `restore`.

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

    def __init__(self, snapshot: Snapshot, dataset: Dataset | None = None) -> None:
        self._snapshot = snapshot
        self._given = dataset
        super().__init__(self._dataset_of(snapshot))
        self._past_traffic = Traffic()
        """Requests of the data sets that this index opened before the current one."""

    def __repr__(self) -> str:
        columns, size = ", ".join(self.columns), f"{self.num_rows:,} rows of {counted(self.num_fragments, 'file')}"
        return f"Index({self.location!r}, version {self.version}, columns {columns}, {size})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release open segments and footers, and their memory; a later search opens them again."""
        self._view = None
        self._snapshot.close()

    def _repr_html_(self) -> str:
        """The facts of the open version, for notebooks; nothing is listed."""
        from zonebloom.ground.rendering import headed  # noqa: PLC0415 - a plain search shows nothing

        return headed(repr(self), self.indexed_columns()._repr_html_())

    def _dataset_of(self, snapshot: Snapshot) -> Dataset:
        if self._given is not None:
            return self._given
        return dataset_from_json(snapshot.manifest.dataset, snapshot.store)

    @property
    def store(self) -> Store:
        """The store of the index."""
        return self._snapshot.store

    @property
    def location(self) -> str:
        """Location of the index: a local path or a URL."""
        return self.store.location

    @property
    def root(self) -> Path | str:
        """The folder of the index, or its URL as a text."""
        return self.location if self.store.is_remote else Path(self.location)

    @property
    def traffic(self) -> Traffic:
        """Requests and bytes so far, of the object stores of the index and of the data."""
        return self._past_traffic + self.store.traffic + self.data.traffic

    @property
    def version(self) -> int:
        """Number of the version that is open."""
        return self._snapshot.manifest.version

    @property
    def columns(self) -> list[str]:
        """Names of the indexed columns."""
        return [entry.name for entry in self._snapshot.manifest.columns]

    @property
    def schema(self) -> pa.Schema:
        """Schema of the data set, partition columns included."""
        return self._snapshot.schema

    @property
    def num_fragments(self) -> int:
        """Number of data files that the index describes."""
        return len(self._snapshot.fragments)

    @property
    def num_rows(self) -> int:
        """Number of rows of these files."""
        return int(self._snapshot.fragments.num_rows.sum())

    @property
    def dataset_kind(self) -> str:
        """The kind of the data set: parquet, delta, iceberg or lance."""
        return str(self._snapshot.manifest.dataset["kind"])

    def view(self) -> View:
        """The index against the data set as it is now; the last view again if nothing changed."""
        snapshot = self._snapshot
        return self._view_beside(snapshot, dict)[0]

    def query(self, predicate: Predicate) -> Query:
        """`predicate` on the data set as it is now; an index in an object store is asked while the files are listed."""
        snapshot = self._snapshot
        ask: Callable[[], Probes] = partial(probed, predicate, snapshot) if snapshot.store.is_remote else dict
        view, probes = self._view_beside(snapshot, ask)
        return Query(view, predicate, probes)

    def _view_beside(self, snapshot: Snapshot, ask: Callable[[], _Answer]) -> tuple[View, _Answer]:
        """The view of a version, and what `ask` gives, which runs meanwhile if the index is in an object store."""

        def listed() -> tuple[DatasetSnapshot, Mapping[str, Fingerprint]]:
            dataset = self.data.pin()
            return dataset, dataset.list(snapshot.paths_to_list_by)

        parts: tuple[Callable[[], Any], ...] = (listed, ask, snapshot.read_lists)
        at_once = len(parts) if snapshot.store.is_remote else 0
        (dataset, listing), answer, _ = concurrently(lambda part: part(), parts, at_once)
        last = self._view
        if last is not None and last.snapshot is snapshot and (last.listing, last.dataset) == (listing, dataset):
            return last, answer
        view = self._view = View(snapshot, dataset, listing)
        return view, answer

    def dataset(self) -> IndexedDataset:
        """The data set as a pyarrow Dataset, whose scans read only the rows that may match.

        DuckDB, DataFusion, Polars and other engines that accept a pyarrow Dataset then prune by the index.

        Design: docs/design/engines.md#dataset
        """
        from zonebloom.search.arrow_dataset import IndexedDataset  # noqa: PLC0415 - a plain search does without

        declared = self.data.pin().declared
        schema = self.schema if declared is None else declared.schema
        return IndexedDataset(self.query, schema_without_views(schema))

    def _asked_view(self, ask: Callable[[Snapshot], _Answer], *, strict: bool, exact: bool) -> tuple[View, _Answer]:
        """The view for an answer without reasons, and what `ask` gives; new and changed files are a warning."""
        snapshot = self._snapshot
        view, answer = self._view_beside(snapshot, partial(ask, snapshot))
        if strict:
            view.check_known()
        if not exact:
            view.warn_of_unknown()
        return view, answer

    def exists(self, column: str, values: Any, *, exact: bool = False, strict: bool = False) -> pa.BooleanArray:
        """For each of `values`, whether it may be in `column`: false is certain, null stays null.

        Files that are new or changed since the last refresh may hold any value. If there are such files and `exact` is
        false, there is a `StaleWarning`.

        Parameters
        ----------
        values
            A list, a NumPy or Arrow array, a series of pandas or Polars; millions are fine.
        exact
            Read the candidate rows too; then true is also certain.
        strict
            As for `search`.

        Raises
        ------
        ColumnNotFoundError
            The column is not indexed.
        PredicateError
            `values` is not a collection, or a value cannot be compared with the column.

        Spec: specs/pruning.md#exists
        """
        from zonebloom.search.exists import Keys, exists  # noqa: PLC0415 - a plain search does without

        ask = partial(Keys.asked, attrgetter("are_in_zones"), column, values)
        view, keys = self._asked_view(ask, strict=strict, exact=exact)
        return exists(view, column, keys, exact=exact)

    def locate(self, column: str, keys: Any, *, exact: bool = False, strict: bool = False) -> pa.Table:
        """Row ranges that may hold each of `keys`; the rest of the data set certainly does not hold it.

        The result is a table `(key_index, path, fragment_id, start, stop)`, in order of key and address. A key without
        a row range has no line. Lines with a null `key_index` come last: their row ranges may hold any of the keys.
        They belong to files without filters, and to files that are new or changed since the last refresh; new and
        changed files are also a `StaleWarning`. A column of the kind `locator` or `both` answers a million keys in a
        second.

        Parameters
        ----------
        keys
            As the values of `exists`.
        exact
            Read the candidate rows. The table is then `(key_index, path, row)`: a line for every row that equals a key,
            and a line of nulls for each key without a row.
        strict
            As for `search`.

        Raises
        ------
        ColumnNotFoundError, PredicateError
            As `exists`.

        Spec: specs/locator.md#locate
        """
        from zonebloom.search.exists import Keys  # noqa: PLC0415 - a plain search does without
        from zonebloom.search.locate import locate  # noqa: PLC0415 - a plain search does without

        ask = partial(Keys.asked, attrgetter("leaf" if exact else "zones_of_each"), column, keys)
        view, asked = self._asked_view(ask, strict=strict, exact=exact)
        return locate(view, column, asked, exact=exact)

    def files_for(self, column: str, keys: Any, *, strict: bool = False) -> list[str]:
        """Paths of the files that may hold any of `keys`, in order; all others certainly do not.

        The files are those of `search(column=column, values=keys)`. New and changed files are a `StaleWarning`.

        Raises
        ------
        ColumnNotFoundError, PredicateError
            As `exists`.

        Spec: specs/locator.md#locate
        """
        from zonebloom.search.exists import Keys  # noqa: PLC0415 - a plain search does without
        from zonebloom.search.locate import files_for  # noqa: PLC0415 - a plain search does without

        view, asked = self._asked_view(
            partial(Keys.asked, attrgetter("leaf"), column, keys), strict=strict, exact=False
        )
        return files_for(view, column, asked)

    def status(self) -> Status:
        """What the index holds, the files that it covers now, and the files that a search reads whole; print it.

        Reports damage that is visible when a part is opened. `verify` reads every byte.

        Cost: a listing, the footers of new and changed files, and the positions of all zones.

        Spec: specs/pruning.md#status
        """
        from zonebloom.search.status import status  # noqa: PLC0415 - a plain search does without

        return status(self.view())

    def indexed_columns(self) -> Results[IndexedColumn]:
        """Parameters and size of each column; nothing is listed. Print it, or iterate it."""
        from zonebloom.search.status import indexed_columns  # noqa: PLC0415 - a plain search does without

        return indexed_columns(self._snapshot)

    def column_type(self, column: str) -> pa.DataType:
        """Arrow type of an indexed column.

        Raises
        ------
        ColumnNotFoundError
            The column is not indexed.
        """
        return self._column(column).column_type

    def _column(self, name: str) -> ColumnEntry:
        entry = self._snapshot.manifest.column(name)
        if entry is None:
            raise self._snapshot.not_indexed(name)
        return entry

    # --- upkeep -------------------------------------------------------------------------------------------------------

    def report(self, path: str | os.PathLike[str], where: Any = (), *, overwrite: bool = False) -> None:
        """Write one HTML page about the index: a map of the zones read, sizes, measured fpp, coverage, versions.

        The page needs no network. Each condition is searched twice, and the second time is shown.

        Parameters
        ----------
        path
            The file to write.
        where
            A condition as for `search`, or a list of conditions: each is searched, and drawn on the map.
        overwrite
            Replace a file that exists.

        Raises
        ------
        InvalidArgumentError
            The file exists and `overwrite` is false, or the path is in the data set or in the index.
        StorageError
            The file cannot be written; what was there stays.
        """
        from zonebloom.index.report.content import Content  # noqa: PLC0415 - as above
        from zonebloom.index.report.output_path import check_output  # noqa: PLC0415 - a plain search does without
        from zonebloom.index.report.page import page  # noqa: PLC0415 - as above
        from zonebloom.stores.output_file import written_whole  # noqa: PLC0415 - as above

        output = check_output(path, self.data.pin(), self.location, endings=(".html",), overwrite=overwrite)
        conditions = where if isinstance(where, (list, tuple)) else [where]
        for condition in conditions:
            self.search(condition)  # the first search also opens files and loads kernels
        searches = [self.explain(condition) for condition in conditions]
        html = page(Content.of(self.view(), searches))
        with written_whole(output) as staged:
            staged.write_text(html, "utf-8", "backslashreplace")  # names of folders may be no UTF-8

    def verify(self, *, sample: float = 0.1, seed: int = 0) -> Verification:
        """Re-read data and prove that no value is missing from its zone's filter.

        Parameters
        ----------
        sample
            Share of the files to read, in (0, 1]; at least one file is read.

        Raises
        ------
        CorruptIndexError
            The opened version was removed by a vacuum: open the index again.
        """
        from zonebloom.indexing.verify import verify  # noqa: PLC0415 - a plain search does without

        return verify(self.view(), sample=sample, seed=seed)

    def optimize(self) -> Optimization:
        """Merge filters into few slice segments, and locators into one, and commit; answers stay the same.

        A search reads only some rows of a slice segment, and a page of each locator. Zones of removed files are
        dropped. This index moves to the new version; readers of the old version continue. Memory is about 100 MiB for
        an index of any size.

        Raises
        ------
        ConcurrentCommitError
            Another commit came first and changed the same segments. Nothing was changed; open the index again.
        CorruptIndexError
            The version file or a fragment list is damaged.

        Spec: specs/slices.md#optimize
        """
        from zonebloom.indexing.optimize import optimize  # noqa: PLC0415 - a plain search does without
        from zonebloom.storage.commit import newest  # noqa: PLC0415 - as above

        store = self._snapshot.store
        done = optimize(store, newest(store))
        self._move_to(done.version)
        return done

    def _move_to(self, version: int, snapshot: Snapshot | None = None) -> None:
        if version != self.version:
            self._snapshot = snapshot or load_snapshot(self.store, version)
            dataset = self._dataset_of(self._snapshot)
            if dataset is not self.data:
                self._past_traffic += self.data.traffic
            self.data = dataset

    def refresh(
        self,
        mode: Mode = "incremental",
        *,
        paths: Paths | None = None,
        partitions: Partitions | None = None,
        kind: Kind | None = None,
        rows_per_zone: int | None = None,
        fpp: float | None = None,
        sizing: Sizing | None = None,
        check: bool = False,
        workers: int | None = None,
        commit_every: int | None = None,
        progress: bool | Callable[[Progress], None] = False,
        runner: Runner | None = None,
    ) -> Refresh:
        """Update the index to the data set, and commit; this index moves to the new version.

        A refresh starts from the current version, even if this index has an older one open. If other writers commit
        meanwhile, the refresh is applied on top. If nothing changed, there is no new version.

        Parameters
        ----------
        mode
            `incremental` opens and builds new and changed files only. `quick` opens no file; it drops changed and
            deleted files from the index. `full` builds all files again, and replaces the columns in one commit.
        paths
            A file or folder to refresh, or several; nothing else is listed. A path is relative to the data set's root,
            absolute, or a URL.
        partitions
            Hive partitions to refresh: `{"day": 3}`, `"day=3"`, or a list of these; folders of other partitions are not
            listed.
        kind, rows_per_zone, fpp, sizing
            New parameters of all columns, for mode `full`; see `build_index`. By default the parameters do not change.
        check
            Read the whole index first, and rebuild segments that differ from their checksums. Without `check`, a
            refresh repairs only segments that are missing, have a wrong length, or were found damaged by this index.
        workers, commit_every, progress, runner
            As for `build_index`.

        Raises
        ------
        InvalidArgumentError
            A path is outside the data set; a partition names another column, or has no file; or parameters are given
            without a full refresh of all files.
        DataFileError
            The data set's folder is missing. A single unreadable file is a warning, and searches keep it whole.
        UnsupportedFormatError
            A newer zonebloom wrote the current version.
        ConcurrentCommitError
            Other commits changed the same files or columns at each attempt.

        Design: docs/design/refresh.md
        """
        from zonebloom.indexing.plan import listed_paths  # noqa: PLC0415 - a plain search does without
        from zonebloom.indexing.refresh import refresh  # noqa: PLC0415 - as above

        listed = None if paths is None else listed_paths(paths)
        given = {"kind": kind, "rows_per_zone": rows_per_zone, "fpp": fpp, "sizing": sizing}
        wanted = {name: value for name, value in given.items() if value is not None}
        work = BuildOptions(workers, COMMIT_EVERY if commit_every is None else commit_every, progress, runner)
        is_cached = True
        for attempts_left in range(_REFRESH_ATTEMPTS, 0, -1):
            snapshot, is_sound = self._current(is_cached=is_cached)
            dataset = self._dataset_of(snapshot)
            try:
                done, after = refresh(
                    snapshot,
                    dataset.pin(),
                    work,
                    mode=mode,
                    paths=listed,
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
        self._move_to(done.version, after)
        _log.debug("refreshed %s: %s", self.location, done)
        return done

    def _current(self, *, is_cached: bool) -> tuple[Snapshot, bool]:
        """The current version, and whether its file is sound; if not, an older version replaces it."""
        numbers = list_versions(self._snapshot.store)[-1:]
        if is_cached and numbers == [self.version] and not self._snapshot.is_distrusted:
            return self._snapshot, True
        return load_trusted(self.store)

    def versions(self) -> list[Version]:
        """The existing versions, the oldest first; open one with `open_index(path, version=n)`."""
        from zonebloom.indexing.versions import versions  # noqa: PLC0415 - a plain search does without

        return versions(self._snapshot.store)

    def restore(self, version: int) -> int:
        """Commit the content of an older version as a new version, and return its number; this index moves to it.

        Data files do not change. Files that changed since the older version are read whole until the next refresh.

        Raises
        ------
        InvalidArgumentError
            The version does not exist.
        CorruptIndexError
            The version file, or a file that it names, is missing or damaged.
        ConcurrentCommitError
            Another commit came first.

        Design: docs/design/refresh.md#restore
        """
        from zonebloom.indexing.versions import restore  # noqa: PLC0415 - a plain search does without

        self._move_to(restore(self._snapshot.store, version).version)
        return self.version

    def vacuum(self, *, older_than: timedelta | str | float = "7d", dry_run: bool = False) -> Vacuum:
        """Remove versions that were superseded longer ago than `older_than`, and files that no version needs.

        The current version always stays. `older_than` is a timedelta, a number of days, or a text such as 7d, 12h or
        30m. It must exceed the longest time that a reader holds a version, and the longest build or refresh. If it is
        shorter, searches stay correct but may read more, and a writer may fail with a `StorageError`.

        Raises
        ------
        InvalidArgumentError
            `older_than` is negative, or not a time.
        CorruptIndexError, UnsupportedFormatError
            The current version cannot be read; nothing was removed.

        Design: docs/design/refresh.md#vacuum
        """
        from zonebloom.indexing.versions import vacuum  # noqa: PLC0415 - a plain search does without

        return vacuum(self._snapshot.store, older_than=older_than, dry_run=dry_run)

    def zone_table(self, column: str, *, numbered_by_path: bool = False) -> ZoneTable:
        """The zones of `column` over the live fragments, in order of fragment and start.

        The zones describe the column that had this name when it was indexed, and the files of this version.

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
            Rows of a live fragment have no zones of this column: a search of the table would lose them too.
        """
        from zonebloom.indexing import export as exchange  # noqa: PLC0415 - a plain search does without

        table = exchange.zone_table(self._snapshot, self._column(column))
        return exchange.numbered_by_path(self._snapshot, table) if numbered_by_path else table

    def export_lance(
        self, table: Any, column: str, *, per_fragment: bool = False, overwrite: bool = False
    ) -> LanceExport:
        """Commit the zones of `column` to the indexed Lance table as its own index, so that Lance prunes by them.

        Lance loads all filters for a query. With `sizing="exact"` or `"adaptive"` they are smaller than Lance's own.

        Parameters
        ----------
        table
            The table that is indexed: its path or URL, or the `lance.LanceDataset`.
        per_fragment
            Make one segment for each fragment. When Lance compacts fragments, it then drops only their segments.
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
        from zonebloom.indexing.lance_export import export_lance  # noqa: PLC0415 - a plain search does without

        dataset = open_dataset(table, self.store.options).pin()
        if dataset.location != self.data.location:
            raise InvalidArgumentError(f"table must be the indexed one, {self.data.location}", got=dataset.location)
        view = View(self._snapshot, dataset, dataset.list())
        return export_lance(view, self._column(column), per_fragment=per_fragment, overwrite=overwrite)
