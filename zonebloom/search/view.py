"""What the index knows of the data set as it is now: which rows are covered, stale or unknown.

`Snapshot` is one version of the index with what was read of it; `View` sets it against one listing of the data set.
A file that the index has not seen, or that changed since, is kept whole; so are rows whose segment is damaged.

Spec: specs/pruning.md#coverage
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from zonebloom.arrow import without_views
from zonebloom.bloom.hashing import leaf_paths, resolve_column
from zonebloom.bloom.zones import ZoneTable
from zonebloom.errors import (
    ColumnNotFoundError,
    CorruptIndexError,
    PredicateError,
    UnsupportedFormatError,
)
from zonebloom.formats import Dataset, Declared
from zonebloom.formats import hive as partitions
from zonebloom.predicates import Predicate
from zonebloom.reasons import Reason, ReasonCode
from zonebloom.search.column_reader import LoadedColumn, answers
from zonebloom.search.evaluate import Evaluator, ProbedColumn, SearchResult, TouchedRanges
from zonebloom.search.freshness import Files
from zonebloom.search.selection import Bounds, RowSelection
from zonebloom.search.zone_bitmap import ZoneGrid
from zonebloom.storage.fragments import FragmentTable, is_in_runs, read_fragments
from zonebloom.storage.manifest import ColumnEntry, Manifest
from zonebloom.storage.segment import SegmentEntry
from zonebloom.storage.slices.reader import SliceSegment
from zonebloom.storage.stores.store import Store
from zonebloom.storage.zone_segment import ZoneSegment

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from zonebloom.storage.levels import LeveledZones

__all__ = ["Snapshot", "View", "replaced_columns"]

_Asked = TypeVar("_Asked")
_Answer = TypeVar("_Answer")


class Snapshot:
    """One version of the index; segments are opened when a search first needs them, and kept open."""

    def __init__(self, store: Store, manifest: Manifest, *, distrust: Reason | None = None) -> None:
        self.store = store
        self.manifest = manifest
        self.is_distrusted = distrust is not None
        self.damage: list[Reason] = [distrust] if distrust else []
        self.level_damage: list[Reason] = []
        """Levels that are not used; no row is kept for them, as the zones beneath are asked."""
        self._columns: dict[str, LoadedColumn] = {}
        self._leveled: dict[str, LeveledZones] = {}
        self.fragments = FragmentTable.of([])
        self.damaged_lists: frozenset[str] = frozenset()
        """Paths of the fragment lists that could not be read."""
        self.damaged_segments: set[str] = set()
        """Paths of the segments that were found to be damaged so far."""
        if distrust is None:
            self._read_fragments()

    def _read_fragments(self) -> None:
        found = []
        lists = self.manifest.fragment_lists
        for entry, table in zip(lists, self._opened(partial(read_fragments, self.store), lists), strict=True):
            if isinstance(table, Exception):
                self._note_damage(str(table))
                self.damaged_lists |= {entry.path}
                continue
            found.append(table.where(~is_in_runs(table.fragment_ids, self.manifest.dropped)))
        self.fragments = FragmentTable.concatenated(found)

    def _opened(
        self, opener: Callable[[_Asked], _Answer], many: Sequence[_Asked]
    ) -> Iterable[_Answer | CorruptIndexError | UnsupportedFormatError]:
        """For each, in order, what `opener` gives or raises; of a remote index at once."""

        def opened(one: _Asked) -> _Answer | CorruptIndexError | UnsupportedFormatError:
            try:
                return opener(one)
            except (CorruptIndexError, UnsupportedFormatError) as error:
                return error

        return answers(opened, many, is_remote=self.store.is_remote)

    def _note_damage(
        self,
        message: str,
        column: str | None = None,
        code: ReasonCode = ReasonCode.SEGMENT_CORRUPT,
        segment: str | None = None,
    ) -> Reason:
        if segment is not None:
            self.damaged_segments.add(segment)
        reason = Reason(code, message, column=column)
        self.damage.append(reason)
        warnings.warn(f"{message}; rows that it describes are read whole", RuntimeWarning, stacklevel=2)
        return reason

    def column(self, entry: ColumnEntry) -> LoadedColumn:
        """The zones of an indexed column; damaged parts are left out, and noted with one warning."""
        if entry.name not in self._columns:
            tables: list[ZoneTable | SliceSegment] = []
            damage: list[Reason] = []
            opened = self._opened(partial(self._open_segment, column=entry.name), entry.segments)
            for segment, found in zip(entry.segments, opened, strict=True):
                if isinstance(found, UnsupportedFormatError):
                    damage.append(self._note_damage(str(found), entry.name, ReasonCode.FORMAT_TOO_NEW))
                elif isinstance(found, CorruptIndexError):
                    damage.append(self._note_damage(str(found), entry.name, segment=segment.path))
                else:
                    tables.append(found[0])
                    damage += [self._note_damage(text, entry.name, segment=segment.path) for text in found[1]]
            self._columns[entry.name] = LoadedColumn(tables, damage, is_remote=self.store.is_remote)
        return self._columns[entry.name]

    def zones(self, entry: ColumnEntry) -> LoadedColumn | LeveledZones:
        """The zones of an indexed column with the sound levels above them, if it has any."""
        if not entry.levels:
            return self.column(entry)
        if entry.name not in self._leveled:
            note = partial(self._note_damaged_level, entry.name)
            from zonebloom.storage.levels import open_levels  # noqa: PLC0415 - most columns have no levels

            self._leveled[entry.name] = open_levels(self.store, entry.levels, self.column(entry), note)
        return self._leveled[entry.name]

    def _note_damaged_level(self, column: str, message: str) -> None:
        self.level_damage.append(Reason(ReasonCode.SEGMENT_CORRUPT, message, column=column))
        warnings.warn(f"{message}; the zones beneath are asked instead", RuntimeWarning, stacklevel=2)

    def _open_segment(self, entry: SegmentEntry, column: str) -> tuple[ZoneTable | SliceSegment, list[str]]:
        """The zones of a segment, and a message for each part that is left out."""
        if entry.kind == "zones":
            return ZoneSegment(self.store, entry).zones()
        if entry.kind == "slices":
            segment = SliceSegment(
                self.store, entry, on_damage=partial(self._note_damage, column=column, segment=entry.path)
            )
            segment.read_positions()
            return segment, []
        message = f"segment {entry.path} must be of kind zones or slices, got {entry.kind}"
        raise UnsupportedFormatError(f"{message}; a newer zonebloom wrote it: upgrade this one")


class View:
    """A snapshot of the index against one listing of the data set.

    - `files` has every file of the listing; those that the index does not know have ids that it never used.
    """

    def __init__(self, snapshot: Snapshot, dataset: Dataset, listing: Mapping[str, Any]) -> None:
        self.snapshot = snapshot
        self.dataset = dataset
        self.listing = listing
        self.declared = dataset.declared()
        self._replaced = replaced_columns(snapshot.manifest, self.declared)
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

    @property
    def schema(self) -> pa.Schema:
        """Schema of the data set, partition columns included."""
        return self.snapshot.manifest.schema if self.declared is None else self.declared.schema

    @property
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
        """The filters of a column as they apply to this listing; None where it has none.

        Raises
        ------
        ColumnNotFoundError
            The data set has no such column.
        """
        entry = self.snapshot.manifest.column(name)
        is_sure = entry is not None and self.declared is None
        if not is_sure and self.schema.get_field_index(name) < 0 and name not in leaf_paths(self.schema):
            error = ColumnNotFoundError.among(name, leaf_paths(self.schema), f"the data set {self.dataset.location}")
            is_near = "did you mean" in str(error)
            raise error if is_near else ColumnNotFoundError(f"{error}; text goes in single quotes")
        if entry is None:
            return None
        if "." in name and _is_ambiguous(self.schema, name):
            return None
        if name not in self._probed:
            self._probed[name] = self._probe_column(entry)
        return self._probed[name]

    def _probe_column(self, entry: ColumnEntry) -> ProbedColumn:
        loaded = self.snapshot.column(entry)
        if entry.name in self._replaced:
            message = f"{entry.name} is another column than the one that was indexed; it is read whole until a refresh"
            why = (Reason(ReasonCode.COLUMN_NOT_INDEXED, message, entry.name),)
            none_live = np.zeros(len(loaded), np.bool_)
            grid, places = self._grid_of(loaded, self.universe, none_live)
            return ProbedColumn(entry.name, self.column_type(entry.name), self.snapshot.zones(entry), grid, places, why)
        is_live = np.isin(loaded.fragment_ids, self.live_ids)
        live = None if bool(is_live.all()) else is_live
        covered = loaded.covered
        if live is not None:
            stops = loaded.zone_starts + loaded.zone_lengths
            covered = RowSelection.from_arrays(loaded.fragment_ids[live], loaded.zone_starts[live], stops[live])
        uncovered = self.universe - covered
        reasons = list(self.reasons)
        reasons += loaded.damage
        reasons = list(dict.fromkeys(reasons))
        if len(uncovered) and not loaded.damage:  # NumPy's set operations load numpy.ma, 8 ms of a first search
            unseen = np.intersect1d(uncovered.fragment_ids, self.live_ids)
            for one, is_unfit in zip(unseen.tolist(), is_in_runs(unseen, entry.unfit).tolist(), strict=True):
                cause = "its values do not convert to the index's type" if is_unfit else "refresh the index"
                message = f"column {entry.name} of this file has no filters: {cause}"
                reasons.append(Reason(ReasonCode.COLUMN_NOT_INDEXED, message, entry.name, self.paths[one]))
        grid, places = self._grid_of(loaded, uncovered, live)
        return ProbedColumn(entry.name, entry.column_type, self.snapshot.zones(entry), grid, places, tuple(reasons))

    def _grid_of(
        self, loaded: LoadedColumn, uncovered: RowSelection, live: NDArray[np.bool_] | None
    ) -> tuple[ZoneGrid, NDArray[np.intp] | None]:
        """The grid of a column's zones, and their numbers there; columns whose zones have the same rows share one."""
        positions = (loaded.fragment_ids, loaded.zone_starts, loaded.zone_lengths)
        grid, places = ZoneGrid.of(*positions, uncovered, live)
        others = [one.grid for one in list(self._probed.values())]  # a list at once: other threads may add
        same = next((one for one in others if one.has_rows_of(grid)), grid)
        return same, places

    def search(self, predicate: Predicate) -> SearchResult:
        """Rows of this listing that may match."""
        fields = self.constant_fields
        names = frozenset(
            field.name
            for field in fields
            if self.declared is not None or self.snapshot.manifest.column(field.name) is None
        )
        evaluator = Evaluator(self.universe, self.column, names, self._partition_rows)
        try:
            bounds = evaluator.evaluate(predicate)
        except RecursionError as error:
            raise PredicateError("a predicate must be nested less deeply, got one beyond Python's limit") from error
        # a slice may turn out damaged only as it is probed
        reasons = dict.fromkeys((*evaluator.reasons, *self.reasons, *self.snapshot.damage, *self.snapshot.level_damage))
        is_lacking = any(one.code is ReasonCode.COLUMN_NOT_INDEXED for one in reasons)
        named: frozenset[str | None] = self._columns_of_folders() if is_lacking else frozenset()
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

    def _columns_of_folders(self) -> frozenset[str | None]:
        """The columns that `key=value` folders name, though files may hold them too."""
        first = next(iter(self.files), None)
        return frozenset(() if first is None else self.dataset.path_values(first))

    def _zones_of(self, predicate: Predicate) -> TouchedRanges | None:
        """The zones that the counts refer to: those of the first indexed column of the predicate, else of any."""
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
            zones, live = column.zones, slice(None) if column.live is None else column.live
            starts = zones.zone_starts[live]
            self._counted[entry.name] = TouchedRanges(
                zones.fragment_ids[live], starts, starts + zones.zone_lengths[live]
            )
        return self._counted[entry.name]

    def _partition_rows(self, predicate: Predicate) -> Bounds:
        import pyarrow.dataset as pads  # noqa: PLC0415 - it imports pandas where there is one, which takes 0.1 s

        fields = [field for field in self.constant_fields if field.name in predicate.columns()]
        values = self._partition_values(fields)
        strange = [value is None for value in values]
        table = pa.table(
            {
                field.name: pa.array([None if row is None else row[field.name].as_py() for row in values], field.type)
                for field in fields
            }
        )
        expression = predicate.to_expression(table.schema)
        try:
            found = pads.dataset(table).to_table(columns={"is_true": expression})["is_true"].to_pylist()
        except pa.ArrowException as error:
            message = f"the predicate must hold for the folders of every file, got: {str(error).splitlines()[0]}"
            raise PredicateError(message) from error
        is_true = [odd or one is True for one, odd in zip(found, strange, strict=True)]
        is_false = [odd or one is False for one, odd in zip(found, strange, strict=True)]
        true_rows, false_rows = (self.files.rows(np.array(chosen, np.bool_)) for chosen in (is_true, is_false))
        is_exact = not (np.array(strange, np.bool_) & (self.files.table.num_rows > 0)).any()
        return Bounds(true_rows, false_rows, exact=is_exact)

    def _partition_values(self, fields: list[pa.Field]) -> list[dict[str, pa.Scalar] | None]:
        """For each file, the values of `fields`; None where one is not known."""
        if self.declared is not None:
            found = [self.dataset.partition_values(path, fields) for path in self.files]
            return [row if row is not None and len(row) == len(fields) else None for row in found]
        folders = [path.rpartition("/")[0] for path in self.files]
        of_folder = {folder: partitions.typed(f"{folder}/", fields) for folder in dict.fromkeys(folders)}
        return [of_folder[folder] for folder in folders]


def _in_file(reason: Reason) -> Reason:
    if reason.code is not ReasonCode.COLUMN_NOT_INDEXED:
        return reason
    message = f"files hold {reason.column} too, and may say otherwise than their folders"
    message = f"{message}; make filters by build_index(path, '{reason.column}')"
    return Reason(ReasonCode.PARTITION_COLUMN_IN_FILE, message, column=reason.column)


def replaced_columns(manifest: Manifest, declared: Declared | None) -> frozenset[str]:
    """Indexed columns whose name is that of another column by now: what their filters say is of the one before.

    Spec: specs/tables.md#column-ids
    """
    if declared is None:
        return frozenset()
    known = manifest.dataset.get("column_ids", {})
    names = [entry.name for entry in manifest.columns]
    return frozenset(one for one in names if known.get(one, one) != declared.column_ids.get(one, one))


def _is_ambiguous(schema: pa.Schema, name: str) -> bool:
    """Whether `name` is a column and a field of a struct as well: a pyarrow Expression may mean either."""
    return _num_meanings(schema, name) > 1


def _num_meanings(fields: Iterable[pa.Field], name: str) -> int:
    found = 0
    for one in fields:
        found += one.name == name
        if pa.types.is_struct(one.type) and name.startswith(f"{one.name}."):
            found += _num_meanings(one.type, name[len(one.name) + 1 :])
    return found
