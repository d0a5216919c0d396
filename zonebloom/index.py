"""`Index`: build, open, search, scan, exists, explain, verify.

An index is a folder beside the data (`_zonebloom/`), or anywhere else. It never touches a data file, and each of its
answers holds for the data set as it is at the moment of the call: files are listed afresh, and what the index does not
know, or no longer knows, is read whole.

Spec: specs/index-format.md, specs/pruning.md
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from zonebloom import hashing
from zonebloom.building import BuildPlan, Parameters, build_segments, inspect_files
from zonebloom.coverage import Snapshot, View
from zonebloom.datasets import ParquetDataset, open_dataset, partitions
from zonebloom.errors import (
    ColumnNotFoundError,
    CorruptIndexError,
    DataFileError,
    IndexExistsError,
    IndexNotFoundError,
    InvalidArgumentError,
    InvalidZoneTableError,
    UnsupportedFormatError,
    ZoneBloomError,
)
from zonebloom.explaining import Explanation, explain
from zonebloom.membership import exists
from zonebloom.predicates import Predicate, parse_predicate
from zonebloom.progress import Progress, reporting
from zonebloom.pruning import SearchResult
from zonebloom.reasons import Reason, ReasonCode
from zonebloom.scanning import scan
from zonebloom.selection import RowSelection
from zonebloom.sizing import Sizing, check_fpp, check_rows_per_zone, num_blocks_for
from zonebloom.storage.manifest import (
    ColumnEntry,
    Fragment,
    Manifest,
    commit,
    list_versions,
    read_version,
    write_fragments,
)
from zonebloom.storage.store import LocalStore
from zonebloom.storage.zone_segment import ZoneSegmentWriter
from zonebloom.verifying import Verification, check_imported, verify
from zonebloom.zones import ZoneTable, zone_schema

__all__ = ["INDEX_FOLDER", "Index", "build_index", "import_index", "open_index"]

INDEX_FOLDER = "_zonebloom"


def build_index(
    source: Any,
    columns: str | Sequence[str],
    *,
    rows_per_zone: int = 8192,
    fpp: float = 0.00057,
    sizing: Sizing = "power_of_two",
    index: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    overwrite: bool = False,
    progress: bool | Callable[[Progress], None] = False,
) -> Index:
    """An index over `columns` of `source`, committed and opened; data files are only read.

    Columns are added to an index that is there already. Memory is bounded by one batch of zones (32 MiB) for each
    worker and column, not by the data set.

    Parameters
    ----------
    source
        A folder of Parquet files (hive-partitioned or not), a file, a list of files, or a `pyarrow.dataset.Dataset`.
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
        Folder of the index. By default `_zonebloom` in the data set's folder, or `_<file>.zonebloom` beside one file; a
        list of files and a pyarrow Dataset need it.
    workers
        Threads; by default as many as there are cores.
    overwrite
        Build columns anew that are indexed already.
    progress
        True for a bar on stderr, or a function that takes `Progress`.

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
    names = [columns] if isinstance(columns, str) else list(columns)
    if not names or len(set(names)) != len(names):
        raise InvalidArgumentError(f"columns must be one or more different names, got {names!r}")
    check_rows_per_zone(rows_per_zone)
    check_fpp(fpp)
    num_blocks_for(rows_per_zone, fpp, sizing)
    if workers is not None and workers < 1:
        raise InvalidArgumentError(f"workers must be at least 1, got {workers}")
    dataset = open_dataset(source)
    root = _index_root(dataset, index, source)
    base = _current(root)
    if base is not None and not overwrite:
        taken = [name for name in names if base.manifest.column(name)]
        if taken:
            message = f"column {taken[0]} must not be indexed yet, got an index of it at {root}"
            raise IndexExistsError(f"{message}; refresh it, or build with overwrite=True")
    builder = _Build(dataset, root, base, Parameters(rows_per_zone, fpp, sizing), workers or _num_cores())
    return builder.run(names, progress)


def open_index(path: str | os.PathLike[str], *, version: int | None = None) -> Index:
    """The index at `path`: the data set's folder, the one data file, or the folder of the index itself.

    An index that a newer zonebloom wrote is opened too: it prunes nothing, and says so.

    Raises
    ------
    IndexNotFoundError
        There is none.
    CorruptIndexError
        No version file of it can be read.
    """
    given = Path(os.path.abspath(os.fspath(path)))  # noqa: PTH100 - resolve() would follow links out of the root
    places = [given, given / INDEX_FOLDER, _beside_file(given)]
    for root in places:
        if (root / "versions").is_dir():
            snapshot = _load(root, version)
            return Index(root, snapshot, ParquetDataset.from_json(snapshot.manifest.dataset, root))
    raise IndexNotFoundError(f"an index must be at {given} or in its {INDEX_FOLDER}, got none; build it first")


def _beside_file(path: Path) -> Path:
    return path.parent / f"_{path.name}.zonebloom"


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _index_root(dataset: ParquetDataset, index: str | os.PathLike[str] | None, source: Any) -> Path:
    if index is not None:
        return Path(os.path.abspath(os.fspath(index)))  # noqa: PTH100 - as in open_index
    if dataset.layout == "folder":
        return dataset.root / INDEX_FOLDER
    if isinstance(source, (str, os.PathLike)):
        return _beside_file(dataset.root / dataset.files[0])
    raise InvalidArgumentError("index must name a folder where the data set is a list or a Dataset, got None")


def _current(root: Path) -> Snapshot | None:
    if not list_versions(LocalStore(root)):
        return None
    snapshot = _load(root, None)
    newer = [reason for reason in snapshot.damage if reason.code == ReasonCode.FORMAT_TOO_NEW]
    if newer:
        raise UnsupportedFormatError(newer[0].message)
    return snapshot


def _load(root: Path, version: int | None) -> Snapshot:
    """The version asked for, or the highest that is sound; one from the future is loaded without trust."""
    store = LocalStore(root)
    versions = list_versions(store)
    if not versions:
        raise IndexNotFoundError(f"an index must have a version, got none in {root / 'versions'}; build it")
    if version is not None:
        if version not in versions:
            message = f"version must be one of {versions[0]} to {versions[-1]} that is kept, got {version}"
            raise InvalidArgumentError(message)
        return Snapshot(store, read_version(store, version))
    failure: ZoneBloomError | None = None
    for number in reversed(versions):
        try:
            manifest = read_version(store, number)
        except (CorruptIndexError, UnsupportedFormatError) as error:
            failure = failure or error
            continue
        if failure is None:
            return Snapshot(store, manifest)
        warnings.warn(f"{failure}; everything is read whole", RuntimeWarning, stacklevel=3)
        is_new = isinstance(failure, UnsupportedFormatError)
        code = ReasonCode.FORMAT_TOO_NEW if is_new else ReasonCode.SEGMENT_CORRUPT
        last = replace(manifest, version=versions[-1])
        return Snapshot(store, last, distrust=Reason(code, str(failure)))
    assert failure is not None
    raise failure


class Index:
    """One version of an index, opened; it keeps that version whatever others commit meanwhile.

    Segments and footers are opened once and stay open; each search lists the data set afresh.
    """

    def __init__(self, root: Path, snapshot: Snapshot, dataset: ParquetDataset) -> None:
        self.root = root
        self.dataset = dataset
        self._snapshot = snapshot
        self._view: View | None = None

    def __repr__(self) -> str:
        columns = ", ".join(self.columns)
        return f"Index({str(self.root)!r}, version {self.version}, columns {columns}, {self.num_fragments} fragments)"

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
        return self._snapshot.manifest.schema

    @property
    def num_fragments(self) -> int:
        """Data files that the index describes."""
        return len(self._snapshot.fragments)

    def view(self) -> View:
        """The index against the data set as it is now; the last view again where nothing changed."""
        listing = self.dataset.list()
        if self._view is None or self._view.listing != listing:
            self._view = View(self._snapshot, self.dataset, listing)
        return self._view

    def search(self, predicate: Predicate | str | Any) -> SearchResult:
        """Rows that may match `predicate`; the rest of the data set certainly do not.

        Parameters
        ----------
        predicate
            `col("user_id") == "u-1"`, SQL text (`"user_id = 'u-1' AND day = 3"`), or a pyarrow Expression.

        Raises
        ------
        PredicateError
            It cannot be parsed.
        ColumnNotFoundError
            It names a column that the data set does not have.

        Spec: specs/pruning.md#evaluate
        """
        return self.view().search(parse_predicate(predicate))

    def scan(
        self, predicate: Predicate | str | Any, *, columns: Sequence[str] | None = None, limit: int | None = None
    ) -> pa.RecordBatchReader:
        """The rows that match: just what a full scan gives, in order of path and row.

        Parameters
        ----------
        columns
            Top-level columns of the result; all by default.
        limit
            Stop after so many rows.

        Raises
        ------
        DataFileError
            A candidate file cannot be read; raised by the reader.

        Spec: specs/pruning.md#scan
        """
        tree = parse_predicate(predicate)
        view = self.view()
        return scan(view, tree, view.search(tree).row_ranges, columns, limit)

    def to_table(
        self, predicate: Predicate | str | Any, *, columns: Sequence[str] | None = None, limit: int | None = None
    ) -> pa.Table:
        """The rows that match, as a table; see `scan`."""
        return self.scan(predicate, columns=columns, limit=limit).read_all()

    def exists(self, column: str, values: Any, *, exact: bool = False) -> pa.BooleanArray:
        """For each of `values`, whether it may be in `column`: false is certain, null stays null.

        Parameters
        ----------
        values
            Anything that Arrow takes as an array; millions are fine.
        exact
            Read the candidate rows as well, so that true is certain too.

        Spec: specs/pruning.md#exists
        """
        return exists(self.view(), column, values, exact=exact)

    def explain(self, predicate: Predicate | str | Any) -> Explanation:
        """The funnel of a search, files to bytes, and a reason for each part that was not pruned; print it."""
        tree = parse_predicate(predicate)
        view = self.view()
        return explain(view, tree, view.search(tree))

    def verify(self, *, sample: float = 0.1, seed: int = 0) -> Verification:
        """Re-read data and prove that no value is missing from its zone's filter.

        Parameters
        ----------
        sample
            Share of the files to read, in (0, 1]; at least one is.
        """
        return verify(self.view(), sample=sample, seed=seed)

    def column_type(self, column: str) -> pa.DataType:
        """Arrow type of an indexed column.

        Raises
        ------
        ColumnNotFoundError
            The column is not indexed.
        """
        return self._column(column).column_type

    def zone_table(self, column: str) -> ZoneTable:
        """The zones of `column` over the live fragments, in order of fragment and start.

        Raises
        ------
        ColumnNotFoundError
            The column is not indexed.
        CorruptIndexError
            A segment is damaged: an incomplete table would lose rows for whoever searches it.
        """
        entry = self._column(column)
        loaded = self._snapshot.column(entry)
        if loaded.damage or self._snapshot.damage:
            message = loaded.damage[0] if loaded.damage else self._snapshot.damage[0].message
            raise CorruptIndexError(f"every segment must be sound for a whole zone table, got: {message}")
        tables = [table.to_arrow() for table in loaded.tables]
        if not tables:
            schema = zone_schema(entry.rows_per_zone, entry.fpp, column=entry.name, column_type=entry.column_type)
            return ZoneTable([], schema)
        whole = pa.concat_tables(tables)
        live = pa.array([one.fragment_id for one in self._snapshot.fragments.values()], pa.uint64())
        if self._snapshot.manifest.dropped:
            whole = whole.filter(pc.is_in(whole["fragment_id"], live))
        return ZoneTable.from_arrow(whole, column=entry.name, column_type=entry.column_type)

    def info(self) -> dict[str, Any]:
        """Version, counts, and parameters and size of each column; the object of `zonebloom info --format json`."""
        manifest = self._snapshot.manifest
        num_rows = sum(one.num_rows for one in self._snapshot.fragments.values())
        columns = [
            {
                "name": entry.name,
                "type": str(entry.column_type),
                "rows_per_zone": entry.rows_per_zone,
                "fpp": entry.fpp,
                "sizing": entry.sizing,
                "num_zones": entry.num_zones,
                "index_bytes": entry.index_bytes,
                "bytes_per_row": round(entry.index_bytes / num_rows, 4) if num_rows else 0.0,
                "segments": len(entry.segments),
            }
            for entry in manifest.columns
        ]
        return {
            "index": str(self.root),
            "dataset": str(self.dataset.root),
            "version": manifest.version,
            "num_fragments": self.num_fragments,
            "num_rows": num_rows,
            "columns": columns,
        }

    def _column(self, name: str) -> ColumnEntry:
        entry = self._snapshot.manifest.column(name)
        if entry is None:
            raise ColumnNotFoundError.among(name, self.columns, f"the index {self.root}")
        return entry


class _Build:
    """One build: inspect, check, write segments, commit."""

    def __init__(
        self, dataset: ParquetDataset, root: Path, base: Snapshot | None, parameters: Parameters, workers: int
    ) -> None:
        self.dataset = dataset
        self.store = LocalStore(root)
        self.root = root
        self.base = base
        self.parameters = parameters
        self.workers = workers

    def run(self, names: Sequence[str], progress: bool | Callable[[Progress], None]) -> Index:  # noqa: FBT001 - passed on
        listing = self.dataset.list()
        if not listing:
            raise DataFileError(f"a data set must have at least one file, got none in {self.dataset.root}")
        ids = self._ids(listing)
        inspected = inspect_files(self.dataset, listing, ids, self.workers)
        types = {name: hashing.resolve_column(inspected.schema, name).type for name in names}
        for column_type in types.values():
            hashing.hash_plan(column_type)
        total = sum(fragment.num_rows for fragment in inspected.fragments)
        with reporting(progress, total) as on_rows:
            plan = BuildPlan(self.dataset, self.store, types, self.parameters, self.workers, on_rows)
            built = build_segments(plan, inspected.fragments)
        for message in built.failed.values():
            warnings.warn(f"{message}; the file is not indexed, and always read whole", RuntimeWarning, stacklevel=3)
        fragments = [one for one in inspected.fragments if one.fragment_id not in built.failed]
        if not fragments:
            raise DataFileError(f"at least one data file must be readable, got: {next(iter(built.failed.values()))}")
        columns = [
            ColumnEntry(
                name,
                column_type,
                self.parameters.rows_per_zone,
                self.parameters.fpp,
                self.parameters.sizing,
                tuple(built.segments[name]),
            )
            for name, column_type in types.items()
        ]
        self._commit(ids, inspected.schema, fragments, columns)
        return open_index(self.root)

    def import_zones(self, zones: ZoneTable, column: str, *, check: bool) -> Index:
        """The zones as one segment, after they were set against the files."""
        listing = self.dataset.list()
        ids = {path: number for number, path in enumerate(listing)}
        inspected = inspect_files(self.dataset, listing, ids, self.workers)
        if inspected.skipped:
            raise DataFileError(
                f"each file must be readable to import zones, got: {next(iter(inspected.skipped.values()))}"
            )
        column_type = hashing.resolve_column(inspected.schema, column).type
        hashing.hash_plan(column_type)
        _check_tiling(zones, inspected.fragments)
        if check:
            check_imported(self.dataset, inspected.fragments, zones, column, column_type)
        schema = zone_schema(zones.rows_per_zone, zones.fpp, column=column, column_type=column_type)
        with ZoneSegmentWriter(self.store, column, schema) as writer:
            for batch in zones.batches():
                writer.write(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
        assert writer.entry is not None
        entry = ColumnEntry(column, column_type, zones.rows_per_zone, zones.fpp, "imported", (writer.entry,))
        self._commit(ids, inspected.schema, inspected.fragments, [entry])
        return open_index(self.root)

    def _ids(self, listing: Mapping[str, Any]) -> dict[str, int]:
        """Ids of the files: those that the index has for them where they are unchanged, else new ones."""
        known = self.base.fragments if self.base else {}
        next_id = self.base.manifest.next_fragment_id if self.base else 0
        ids = {}
        for path, fingerprint in listing.items():
            if path in known and known[path].fingerprint == tuple(fingerprint):
                ids[path] = known[path].fragment_id
            else:
                ids[path] = next_id
                next_id += 1
        return ids

    def _commit(
        self, ids: Mapping[str, int], schema: pa.Schema, fragments: list[Fragment], columns: list[ColumnEntry]
    ) -> None:
        fields = partitions.infer_fields(ids, schema.names) if self.dataset.layout == "folder" else []
        described = self.dataset.to_json(self.root)
        described["partition_columns"] = [field.name for field in fields]
        for field in fields:
            schema = schema.append(field)
        listed = write_fragments(self.store, fragments)
        next_id = max(ids.values()) + 1
        if self.base is None:
            manifest = Manifest(
                version=1,
                operation="build",
                dataset=described,
                schema=schema,
                next_fragment_id=next_id,
                columns=tuple(columns),
                fragment_lists=(listed,),
            )
        else:
            before = self.base.manifest
            kept = [entry for entry in before.columns if entry.name not in {one.name for one in columns}]
            manifest = before.following(
                "build",
                dataset=described,
                schema=schema,
                next_fragment_id=max(next_id, before.next_fragment_id),
                columns=(*kept, *columns),
                fragment_lists=(listed,),
                dropped=(),
            )
        commit(self.store, manifest)


def _check_tiling(zones: ZoneTable, fragments: Sequence[Fragment]) -> None:
    covered = RowSelection.from_arrays(zones.fragment_ids, zones.zone_starts, zones.zone_starts + zones.zone_lengths)
    files = RowSelection.from_ranges((one.fragment_id, 0, one.num_rows) for one in fragments if one.num_rows)
    if covered != files:
        odd = next(iter((covered - files) | (files - covered)))
        message = "the zones must tile the files in order of path"
        raise InvalidZoneTableError(f"{message}, got a difference at fragment {odd.fragment_id}, row {odd.start}")


def import_index(
    source: Any,
    zones: ZoneTable,
    *,
    column: str,
    index: str | os.PathLike[str] | None = None,
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
    dataset = open_dataset(source)
    root = _index_root(dataset, index, source)
    if _current(root) is not None:
        raise IndexExistsError(f"there must be no index yet to import one, got one at {root}")
    builder = _Build(dataset, root, None, Parameters(zones.rows_per_zone, zones.fpp), _num_cores())
    return builder.import_zones(zones, column, check=check)
