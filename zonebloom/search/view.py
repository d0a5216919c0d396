"""`View`: a version of the index against the current data set: the covered, stale and unknown rows.

A file that the index has not seen, or that changed since, is kept whole; so are rows whose segment is damaged.

Spec: specs/pruning.md#coverage
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from zonebloom.arrow import without_views
from zonebloom.bloom.hashing import is_ambiguous, leaf_paths, resolve_column
from zonebloom.errors import ColumnNotFoundError, PredicateError, StaleIndexError, first_line
from zonebloom.formats import DatasetSnapshot, Declared, hive
from zonebloom.predicates import Predicate
from zonebloom.reasons import OF_CONDITIONS, Reason, ReasonCode, counted
from zonebloom.search.bind import bind
from zonebloom.search.column_reader import ColumnReader
from zonebloom.search.evaluate import ProbedColumn, evaluate
from zonebloom.search.freshness import Files
from zonebloom.search.result import SearchResult, TouchedRanges
from zonebloom.search.selection import Bounds, RowSelection
from zonebloom.search.snapshot import Snapshot
from zonebloom.search.zone_bitmap import ZoneGrid
from zonebloom.storage.fragments import is_in_runs
from zonebloom.storage.manifest import ColumnEntry, Manifest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from zonebloom.search.own_filters import OwnFilters, OwnSearch


class _Constants(NamedTuple):
    """Values of columns that have one in all rows of a file, by groups of files with the same values."""

    values: pa.Table
    """One row a group; null where a value is not known."""
    is_unknown: NDArray[np.bool_]
    """For each group, whether a value is not known."""
    group_of_file: NDArray[np.intp]
    """For each file of the listing, the number of its group."""


class View:
    """A snapshot of the index against one listing of the data set.

    - `files` has every file of the listing; those that the index does not know have ids that it never used.
    """

    def __init__(self, snapshot: Snapshot, dataset: DatasetSnapshot, listing: Mapping[str, Any]) -> None:
        self.snapshot = snapshot
        self.dataset = dataset
        self.listing = listing
        self.declared = dataset.declared()
        self.replaced = replaced_columns(snapshot.manifest, self.declared)
        """Indexed columns whose name belongs to another column now; they are read whole."""
        self.files = Files.listed(snapshot.fragments, dataset, listing, snapshot.manifest.next_fragment_id)
        self.reasons: list[Reason] = [*snapshot.damage, *self.files.reasons]
        self.num_deleted = self.files.num_deleted
        self.num_unknown = len(self.files.unknown_paths)
        self.universe = self.files.rows()
        self.paths = self.files.paths
        self.row_groups = TouchedRanges(*self.files.table.group_ranges())
        self.live_ids = self.files.known.fragment_ids
        self._probed: dict[str, ProbedColumn] = {}
        self._counted: dict[str, TouchedRanges] = {}
        self._constants: dict[tuple[str, ...], _Constants] = {}
        self._own: OwnFilters | None = None

    @property
    def schema(self) -> pa.Schema:
        """Schema of the data set, partition columns included."""
        return self.snapshot.manifest.schema if self.declared is None else self.declared.schema

    @cached_property
    def plain_schema(self) -> pa.Schema:
        """The schema in the types in which conditions are evaluated."""
        return pa.schema([field.with_type(without_views(field.type)) for field in self.schema])

    @property
    def constant_fields(self) -> list[pa.Field]:
        """The columns that have one value in all rows of a file, which is known without it, for some files at least."""
        own = () if self.declared is None else self.declared.constant_columns
        return [*self.partition_fields, *(self.schema.field(name) for name in own)]

    @property
    def partition_fields(self) -> list[pa.Field]:
        """The partition columns, which are not read from files."""
        names = self.snapshot.manifest.dataset.get("partition_columns", [])
        return [
            self.schema.field(name) for name in (names if self.declared is None else self.declared.partition_columns)
        ]

    def column_type(self, name: str) -> pa.DataType:
        """Arrow type of a column or struct leaf of the data set."""
        return resolve_column(self.schema, name).type

    def column(self, name: str) -> ProbedColumn | None:
        """The filters of a column for the files of this listing; None if it has none.

        Raises
        ------
        ColumnNotFoundError
            The data set has no such column.
        """
        entry = self.snapshot.manifest.column(name)
        is_sure = entry is not None and self.declared is None
        if not is_sure and name not in {*self.schema.names, *leaf_paths(self.schema)}:
            error = ColumnNotFoundError.among(name, leaf_paths(self.schema), f"the data set {self.dataset.location}")
            is_near = "did you mean" in str(error)
            raise error if is_near else ColumnNotFoundError(f"{error}; text goes in single quotes")
        if entry is None:
            return None
        if is_ambiguous(self.schema, name):  # a pyarrow Expression may mean either
            return None
        if name not in self._probed:
            self._probed[name] = self._probe_column(entry)
        return self._probed[name]

    def _probe_column(self, entry: ColumnEntry) -> ProbedColumn:
        loaded = self.snapshot.column(entry)
        if entry.name in self.replaced:
            message = f"{entry.name} is another column than the one that was indexed; it is read whole until a refresh"
            why = (Reason(ReasonCode.COLUMN_NOT_INDEXED, message, entry.name),)
            none_live = np.zeros(len(loaded), np.bool_)
            grid, places = self._grid_of(loaded, self.universe, none_live)
            return ProbedColumn(entry.name, self.column_type(entry.name), self.snapshot.zones(entry), grid, places, why)
        is_live = np.isin(loaded.positions.fragment_ids, self.live_ids)
        live = None if bool(is_live.all()) else is_live
        covered = loaded.covered if live is None else RowSelection.of_zones(loaded.positions[live])
        uncovered = self.universe - covered
        reasons = list(self.reasons)
        reasons += loaded.lost
        reasons = list(dict.fromkeys(reasons))
        if len(uncovered) and not loaded.lost:  # NumPy's set operations load numpy.ma, 8 ms of a first search
            unseen = np.intersect1d(uncovered.fragment_ids, self.live_ids)
            for one, is_unfit in zip(unseen.tolist(), is_in_runs(unseen, entry.unfit).tolist(), strict=True):
                cause = "its values do not convert to the index's type" if is_unfit else "refresh the index"
                message = f"column {entry.name} of this file has no filters: {cause}"
                reasons.append(Reason(ReasonCode.COLUMN_NOT_INDEXED, message, entry.name, self.paths[one]))
        grid, places = self._grid_of(loaded, uncovered, live)
        return ProbedColumn(entry.name, entry.column_type, self.snapshot.zones(entry), grid, places, tuple(reasons))

    def _grid_of(
        self, loaded: ColumnReader, uncovered: RowSelection, live: NDArray[np.bool_] | None
    ) -> tuple[ZoneGrid, NDArray[np.intp] | None]:
        """The grid of a column's zones, and their numbers in it; columns with zones of the same rows share a grid."""
        grid, places = ZoneGrid.of(loaded.positions, uncovered, live)
        others = [one.grid for one in list(self._probed.values())]  # a list at once: other threads may add
        same = next((one for one in others if one.has_rows_of(grid)), grid)
        return same, places

    @cached_property
    def numbers(self) -> dict[int, int] | None:
        """By id of a fragment, what the table itself numbers it; None where its fragments have no numbers."""
        found = {one: self.dataset.own_number(path) for one, path in self.paths.items()}
        numbers = {one: number for one, number in found.items() if number is not None}
        return numbers or None

    def as_numbered(self, found: SearchResult) -> SearchResult:
        """`found` with the numbers that the table itself gives its fragments; those of the index mean nothing there."""
        if self.numbers is None:
            return found
        is_same = all(one == number for one, number in self.numbers.items())
        return replace(found if is_same else found.renumbered(self.numbers), has_addresses=True)

    def search(self, predicate: Predicate, *, own_filters: bool = False) -> SearchResult:
        """Rows of this listing that may match.

        With `own_filters`, row groups of files that the index does not describe are left out by their own filters.
        """
        bounds, reasons = evaluate(bind(predicate, self))
        if reasons:
            self.snapshot.warn_of_damage()
        reasons = tuple(dict.fromkeys((*reasons, *self.reasons)))
        if own_filters and self.num_unknown:
            own = self._own_search()
            bounds = own.narrowed(bounds, predicate)
            reasons = tuple(own.told(reasons))
        is_missing = any(one.code is ReasonCode.COLUMN_NOT_INDEXED for one in reasons)
        named: frozenset[str | None] = self._columns_of_folders() if is_missing else frozenset()
        return SearchResult(
            bounds.kind(self.universe),
            bounds.true_rows,
            tuple(_in_file(one) if one.column in named and one.path is None else one for one in reasons),
            paths=self.paths,
            universe=self.universe,
            zones=self._zones_of(predicate),
            row_groups=self.row_groups,
            unreadable=frozenset(self.files[path].fragment_id for path in self.files.unreadable_paths),
        )

    def answer(self, predicate: Predicate) -> SearchResult:
        """The search for a person: what a scan of the rows would refuse is the same error here.

        Raises
        ------
        PredicateError
            A literal cannot be compared with its column, or the condition cannot be evaluated on a row.
        """
        found = self.search(predicate, own_filters=True)
        self.refuse(predicate, found)
        return found

    def refuse(self, predicate: Predicate, found: SearchResult) -> None:
        """Raise what a scan would, where a part of the predicate met no filter in the search that `found` this."""
        if any(reason.code in OF_CONDITIONS for reason in found.reasons):
            predicate.to_expression(self.plain_schema)

    def check_known(self) -> None:
        """Refuse files that are new or changed since the last refresh.

        Raises
        ------
        StaleIndexError
            There is one.
        """
        unknown = self.files.unknown_paths
        if unknown:
            message = f"every file must be indexed as it is, got {len(unknown)} new or changed, such as {unknown[0]}"
            raise StaleIndexError(f"{message}; refresh the index")

    def __repr__(self) -> str:
        return f"<View of {counted(len(self.files), 'file')}, {self.num_unknown:,} of them new or changed>"

    def _columns_of_folders(self) -> frozenset[str | None]:
        """The columns that `key=value` folders name, though files may hold them too."""
        first = next(iter(self.files), None)
        return frozenset(() if first is None else self.dataset.path_values(first))

    def _own_search(self) -> OwnSearch:
        from zonebloom.search.own_filters import OwnFilters, OwnSearch  # noqa: PLC0415 - most lakes have no such files

        if self._own is None:
            unknown = [self.files[path] for path in self.files.unknown_paths]
            names = {*self.schema.names, *leaf_paths(self.schema)} - {field.name for field in self.constant_fields}
            types = {name: self.column_type(name) for name in names if not is_ambiguous(self.schema, name)}
            self._own = OwnFilters(self.dataset, unknown, types)
        return OwnSearch(self._own, self.universe)

    def _zones_of(self, predicate: Predicate) -> TouchedRanges | None:
        """The zones to count: those of the first indexed column of the predicate, else of the first indexed column."""
        manifest = self.snapshot.manifest
        there = manifest.columns
        if self.declared is not None:
            names = {*self.schema.names, *leaf_paths(self.schema)}
            there = tuple(entry for entry in there if entry.name in names)
        named = [entry for entry in there if entry.name in predicate.columns()]
        if not there:
            return None
        entry = (named or there)[0]
        if entry.name not in self._counted:
            column = self.column(entry.name)
            if column is None:
                return None
            positions = column.zones.positions
            live = positions if column.live is None else positions[column.live]
            self._counted[entry.name] = TouchedRanges.of_zones(live)
        return self._counted[entry.name]

    # --- columns with one value in a file -----------------------------------------------------------------------------

    @cached_property
    def constant_columns(self) -> frozenset[str]:
        """Names of `constant_fields` that no filter describes, or whose value a table's log has."""
        fields, filtered = self.constant_fields, self.snapshot.manifest.column
        return frozenset(one.name for one in fields if self.declared is not None or filtered(one.name) is None)

    def constant_bounds(self, predicate: Predicate) -> Bounds:
        """Bounds of a predicate over columns with one value in a file; exact where each value is known.

        Raises
        ------
        PredicateError
            It cannot be evaluated on a value that is there, such as a cast of bad text.
        """
        import pyarrow.dataset as pads  # noqa: PLC0415 - it imports pandas where there is one, which takes 0.1 s

        constants = self._constants_of(tuple(sorted(predicate.columns())))
        expression = predicate.to_expression(constants.values.schema)
        try:
            found = pads.dataset(constants.values).to_table(columns={"is_true": expression})["is_true"]
        except pa.ArrowException as error:
            message = f"the predicate must hold for the folders of every file, got: {first_line(error)}"
            raise PredicateError(message) from error
        answers = np.array([-1 if one is None else int(one) for one in found.to_pylist()], np.int8)
        of_file = answers[constants.group_of_file]
        is_unknown = constants.is_unknown[constants.group_of_file]
        true_rows, false_rows = (self.files.rows(is_unknown | (of_file == answer)) for answer in (1, 0))
        is_exact = not (is_unknown & (self.files.table.num_rows > 0)).any()
        return Bounds(true_rows, false_rows, exact=is_exact)

    def _constants_of(self, names: tuple[str, ...]) -> _Constants:
        if names not in self._constants:
            fields = [field for field in self.constant_fields if field.name in names]
            self._constants[names] = self._read_constants(fields)
        return self._constants[names]

    def _read_constants(self, fields: list[pa.Field]) -> _Constants:
        """The values of `fields`: a group is a folder; for a table, whose log has the values, a file."""
        if self.declared is not None:
            found = [self.dataset.partition_values(path, fields) for path in self.files]
            values = [row if row is not None and len(row) == len(fields) else None for row in found]
            group_of_file = np.arange(len(values))
        else:
            folders: dict[str, int] = {}
            numbers = [folders.setdefault(path.rpartition("/")[0], len(folders)) for path in self.files]
            values = [hive.typed(f"{folder}/", fields) for folder in folders]
            group_of_file = np.array(numbers, np.intp)
        columns = {
            field.name: pa.array([None if row is None else row[field.name].as_py() for row in values], field.type)
            for field in fields
        }
        return _Constants(pa.table(columns), np.array([row is None for row in values], np.bool_), group_of_file)


def _in_file(reason: Reason) -> Reason:
    if reason.code is not ReasonCode.COLUMN_NOT_INDEXED:
        return reason
    message = f"files hold {reason.column} too, and may say otherwise than their folders"
    message = f"{message}; make filters by build_index(path, '{reason.column}')"
    return Reason(ReasonCode.PARTITION_COLUMN_IN_FILE, message, column=reason.column)


def replaced_columns(manifest: Manifest, declared: Declared | None) -> frozenset[str]:
    """Indexed columns whose name belongs to another column now: their filters describe the former column.

    Spec: specs/tables.md#column-ids
    """
    if declared is None:
        return frozenset()
    known = manifest.dataset.get("column_ids", {})
    names = [entry.name for entry in manifest.columns]
    return frozenset(one for one in names if known.get(one, one) != declared.column_ids.get(one, one))
