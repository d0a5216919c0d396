"""`Index`: an `IndexReader` with upkeep: refresh, optimize, restore, vacuum, and what writes or proves.

Design: docs/design/refresh.md
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from zonebloom.formats import Dataset, dataset_from_json, open_dataset
from zonebloom.formats.identity import are_same, name_of_data, names_in, places_of_data
from zonebloom.ground.errors import ConcurrentCommitError, CorruptIndexError, InvalidArgumentError
from zonebloom.index.reader import IndexReader
from zonebloom.search.view import View
from zonebloom.storage.manifest import list_versions
from zonebloom.storage.options import COMMIT_EVERY, BuildOptions
from zonebloom.storage.snapshot import Snapshot, load_snapshot, load_trusted

if TYPE_CHECKING:
    from zonebloom.bloom.sizing import Sizing
    from zonebloom.formats.hive import Partitions
    from zonebloom.indexing.fill import Runner
    from zonebloom.indexing.lance_export import LanceExport
    from zonebloom.indexing.optimize import Optimization
    from zonebloom.indexing.plan import Mode, Paths
    from zonebloom.indexing.progress import Progress
    from zonebloom.indexing.refresh import Refresh
    from zonebloom.indexing.verify import Verification
    from zonebloom.indexing.versions import Vacuum, Version
    from zonebloom.storage.options import Kind

_REFRESH_ATTEMPTS = 4
_log = logging.getLogger("zonebloom")


class Index(IndexReader):
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

        A search reads only some rows of a slice segment, and a page of each locator. Zones and paths of removed files
        are dropped. This index moves to the new version; readers of the old version continue. Memory is about 100 MiB
        for an index of any size.

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

        self.newest()  # refuses an index of another data set before anything is changed
        store = self._snapshot.store
        done = optimize(store, newest(store))
        self._move_to(done.version)
        return done

    def _move_to(self, version: int, snapshot: Snapshot | None = None) -> None:
        if version != self.version:
            snapshot = snapshot or load_snapshot(self.store, version)
            dataset, self._snapshot = self._dataset_of(snapshot), snapshot
            if dataset is not self.data:
                self._past_traffic += self.data.traffic
            self.data = dataset

    def newest(self) -> Index:
        """The newest version of this index, of the same data set.

        Raises
        ------
        CorruptIndexError
            No version file can be read.
        ConcurrentCommitError
            It is the index of another data set now.
        """
        snapshot = load_snapshot(self.store, None)
        return Index(snapshot, self._dataset_of(snapshot))

    def _dataset_of(self, snapshot: Snapshot) -> Dataset:
        """The data set by another version of the index; raises as `newest`."""
        then, now = self._snapshot.manifest.dataset, snapshot.manifest.dataset
        if names_in(now) == names_in(then):
            return self.data
        dataset = dataset_from_json(now, snapshot.store)
        own = dataset_from_json(then, snapshot.store) if self._given is None else self._given.pin()
        if not are_same(places_of_data(dataset), places_of_data(own)):
            raise ConcurrentCommitError(
                f"{self.location} must stay the index of {name_of_data(self.data)}",
                got=f"one of {name_of_data(dataset)} now",
                do="open it again",
            )
        return self._given or dataset

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

        self.newest()  # as in optimize
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
        ConcurrentCommitError
            It is the index of another data set now; nothing was removed.

        Design: docs/design/refresh.md#vacuum
        """
        from zonebloom.indexing.versions import vacuum  # noqa: PLC0415 - a plain search does without

        self.newest()  # as in optimize
        return vacuum(self._snapshot.store, older_than=older_than, dry_run=dry_run)

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
