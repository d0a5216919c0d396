"""`View`: a version of the index against the current data set: the covered, stale and unknown rows.

New files, changed files, and rows whose segment is damaged are kept whole.

Spec: specs/pruning.md#coverage
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from zonebloom.bloom.hashing import is_ambiguous, leaf_paths, resolve_column
from zonebloom.bloom.selection import Bounds, RowSelection
from zonebloom.formats import DatasetSnapshot, hive
from zonebloom.ground.arrow import from_scalars, schema_without_views
from zonebloom.ground.cached import cached_property
from zonebloom.ground.errors import (
    ColumnNotFoundError,
    InvalidArgumentError,
    PredicateError,
    StaleIndexError,
    StaleWarning,
    Words,
    first_line,
)
from zonebloom.ground.reasons import Reason, ReasonCode, counted
from zonebloom.predicates import Predicate
from zonebloom.search.freshness import Files
from zonebloom.search.probed_column import ProbedColumn
from zonebloom.search.result import TouchedRanges
from zonebloom.storage.fragments import is_in_runs
from zonebloom.storage.manifest import ColumnEntry
from zonebloom.storage.snapshot import Snapshot

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from zonebloom.formats.dataset import Declared
    from zonebloom.search.parquet_filters import OwnFilters


class _Constants(NamedTuple):
    """Values of columns with one value per file, by groups of files with the same values."""

    values: pa.Table
    """One row for each group; null if a value is not known."""
    is_unknown: NDArray[np.bool_]
    """For each group, whether a value is not known."""
    group_of_file: NDArray[np.intp]
    """For each file of the listing, the number of its group."""


class View:
    """A snapshot of the index against one listing of the data set.

    - `files` has every file of the listing; new and changed files have ids that the index never used.
    """

    def __init__(self, snapshot: Snapshot, dataset: DatasetSnapshot, listing: Mapping[str, Any]) -> None:
        self.snapshot = snapshot
        self.dataset = dataset
        self.listing = listing
        self.declared: Declared | None = dataset.declared
        self.replaced: frozenset[str] = snapshot.manifest.replaced_columns(self.declared)
        """Indexed columns whose name now belongs to another column; they are read whole."""
        self.files: Files = Files.listed(snapshot.fragments, dataset, listing, snapshot.manifest.next_fragment_id)
        self.reasons: list[Reason] = [*snapshot.damage, *self.files.reasons]
        self.num_unknown: int = len(self.files.unknown_paths)
        self.universe: RowSelection = self.files.rows()
        self.row_groups: TouchedRanges = TouchedRanges(*self.files.table.group_ranges())
        self.live_ids: NDArray[np.uint64] = self.files.indexed.fragment_ids
        self._probed: dict[str, ProbedColumn] = {}
        self._counted: dict[str, TouchedRanges] = {}
        self._constants: dict[tuple[str, ...], _Constants] = {}

    @property
    def schema(self) -> pa.Schema:
        """Schema of the data set, partition columns included."""
        return self.snapshot.schema if self.declared is None else self.declared.schema

    @cached_property
    def plain_schema(self) -> pa.Schema:
        """The schema in the types in which conditions are evaluated."""
        return schema_without_views(self.schema)

    @property
    def constant_fields(self) -> list[pa.Field]:
        """Columns with one value per file that is known without opening the file (for some files at least)."""
        own = () if self.declared is None else self.declared.constant_columns
        return [*self.partition_fields, *(self.schema.field(name) for name in own)]

    @property
    def partition_fields(self) -> list[pa.Field]:
        """The partition columns; they are not read from files."""
        names = self.snapshot.manifest.dataset.get("partition_columns", [])
        return [
            self.schema.field(name) for name in (names if self.declared is None else self.declared.partition_columns)
        ]

    @cached_property
    def entries(self) -> tuple[ColumnEntry, ...]:
        """The indexed columns that the data set has; a table may have dropped or renamed others."""
        entries = self.snapshot.manifest.columns
        if self.declared is None:
            return entries
        names = {*self.schema.names, *leaf_paths(self.schema)}
        return tuple(entry for entry in entries if entry.name in names)

    def column_type(self, name: str) -> pa.DataType:
        """Arrow type of a column or struct leaf of the data set."""
        return resolve_column(self.schema, name).type

    def column(self, name: str) -> ProbedColumn | None:
        """The filters of a column for the files of this listing; None if it has none.

        Raises
        ------
        ColumnNotFoundError
            The data set has no such column.
        InvalidArgumentError
            The name is not a text.
        """
        if not isinstance(name, str):
            raise InvalidArgumentError("a column must be given by its name", got=f"{name!r:.80}")
        if name in self._probed:
            return self._probed[name]
        entry = self.snapshot.manifest.column(name)
        is_sure = entry is not None and self.declared is None
        if not is_sure:
            try:
                resolve_column(self.schema, name)
            except ColumnNotFoundError:
                where = f"the data set {self.dataset.location}"
                error = ColumnNotFoundError.among(name, leaf_paths(self.schema), where)
                is_near = "did you mean" in str(error)
                raise error if is_near else ColumnNotFoundError(str(error), do="text goes in single quotes") from None
        if entry is None:
            return None
        if is_ambiguous(self.schema, name):  # a pyarrow Expression may refer to either
            return None
        self._probed[name] = self._probe_column(entry)
        return self._probed[name]

    def _probe_column(self, entry: ColumnEntry) -> ProbedColumn:
        loaded = self.snapshot.column(entry)
        if entry.name in self.replaced:
            message = f"{entry.name} is another column than the one that was indexed; it is read whole until a refresh"
            why = (Reason(ReasonCode.COLUMN_NOT_INDEXED, message, entry.name),)
            none_live = np.zeros(len(loaded), np.bool_)
            own_type = self.column_type(entry.name)
            return ProbedColumn.of(entry.name, own_type, loaded, self.universe, live=none_live, reasons=why)
        is_live = np.isin(loaded.positions.fragment_ids, self.live_ids)
        live = None if bool(is_live.all()) else is_live
        covered = loaded.covered if live is None else RowSelection.of_zones(loaded.positions[live])
        uncovered = self.universe - covered
        reasons = list(dict.fromkeys((*self.reasons, *loaded.lost)))
        if len(uncovered) and not loaded.lost:  # NumPy's set operations load numpy.ma, 8 ms of a first search
            unfit = f"its values do not convert to the index's type; {Words.REFRESH_WHOLE}"
            unseen = np.intersect1d(uncovered.fragment_ids, self.live_ids)
            for fragment_id, is_unfit in zip(unseen.tolist(), is_in_runs(unseen, entry.unfit).tolist(), strict=True):
                cause = unfit if is_unfit else Words.REFRESH
                message = f"column {entry.name} of this file has no filters: {cause}"
                reasons.append(
                    Reason(ReasonCode.COLUMN_NOT_INDEXED, message, entry.name, self.files.paths[fragment_id])
                )
        return ProbedColumn.of(entry.name, entry.column_type, loaded, uncovered, live=live, reasons=tuple(reasons))

    @cached_property
    def numbers(self) -> dict[int, int] | None:
        """By fragment id, the table's own number of the fragment; None if the table has no such numbers."""
        own_numbers = {fragment_id: self.dataset.own_number(path) for fragment_id, path in self.files.paths.items()}
        numbers = {fragment_id: number for fragment_id, number in own_numbers.items() if number is not None}
        return numbers or None

    def check_known(self) -> None:
        """Check that no file is new or changed since the last refresh.

        Raises
        ------
        StaleIndexError
            A file is new or changed.
        """
        unknown = self.files.unknown_paths
        if unknown:
            raise StaleIndexError(
                "every file must be indexed as it is",
                got=f"{len(unknown)} new or changed, such as {unknown[0]}",
                do=Words.REFRESH,
            )

    def warn_of_unknown(self) -> None:
        """Warn of new and changed files that make an answer less certain; for answers without reasons."""
        unknown = self.files.unknown_paths
        if unknown:
            message = f"read whole: {counted(len(unknown), 'new or changed file')}, such as {unknown[0]}"
            warnings.warn(f"{message}; {Words.REFRESH}", StaleWarning, stacklevel=4)

    def __repr__(self) -> str:
        return f"<View of {counted(len(self.files), 'file')}, {self.num_unknown:,} of them new or changed>"

    @cached_property
    def own_filters(self) -> OwnFilters:
        """The bloom filters inside the files that the index does not describe."""
        from zonebloom.search.parquet_filters import OwnFilters  # noqa: PLC0415 - most lakes have no such files

        unknown = [self.files[path] for path in self.files.unknown_paths]
        names = {*self.schema.names, *leaf_paths(self.schema)} - {field.name for field in self.constant_fields}
        types = {name: self.column_type(name) for name in names if not is_ambiguous(self.schema, name)}
        return OwnFilters(self.dataset, unknown, types)

    def zones_to_count(self, columns: Collection[str]) -> TouchedRanges | None:
        """The live zones of the first indexed column among `columns`, else of the first indexed column."""
        if not self.entries:
            return None
        name = next((entry.name for entry in self.entries if entry.name in columns), self.entries[0].name)
        if name not in self._counted:
            column = self.column(name)
            if column is None:
                return None
            positions = column.zones.positions
            self._counted[name] = TouchedRanges.of_zones(positions if column.live is None else positions[column.live])
        return self._counted[name]

    @cached_property
    def int96_columns(self) -> frozenset[str]:
        """Columns in nanoseconds that some file has as Parquet's INT96; without such columns no file is opened.

        Raises
        ------
        DataFileError
            A file cannot be read.
        """
        from zonebloom.formats.parquet.file import open_parquet  # noqa: PLC0415 - a plain search opens no file

        fine = {field.name for field in self.schema if "[ns" in str(field.type)}
        columns: set[str] = set()
        for path in self.listing if fine else ():
            with open_parquet(self.dataset, path) as file:
                columns |= file.int96_columns
        return frozenset(columns & fine)

    # --- columns with one value in a file -----------------------------------------------------------------------------

    @cached_property
    def constant_columns(self) -> frozenset[str]:
        """Names of `constant_fields` without filters, or with values in a table's log."""
        fields, filtered = self.constant_fields, self.snapshot.manifest.column
        return frozenset(field.name for field in fields if self.declared is not None or filtered(field.name) is None)

    def constant_bounds(self, predicate: Predicate) -> Bounds:
        """Bounds of a predicate over columns with one value per file; exact for files whose values are known.

        Raises
        ------
        PredicateError
            The predicate cannot be evaluated on a stored value, such as a cast of bad text.
        """
        import pyarrow.dataset as pads  # noqa: PLC0415 - it imports pandas if installed, which takes 0.1 s

        names = tuple(sorted(predicate.columns()))
        if names not in self._constants:
            self._constants[names] = self._read_constants(
                [field for field in self.constant_fields if field.name in names]
            )
        constants = self._constants[names]
        from zonebloom.predicates.row_filter import to_expression  # noqa: PLC0415 - most lakes have no such columns

        expression = to_expression(predicate, constants.values.schema)
        try:
            is_true = pads.dataset(constants.values).to_table(columns={"is_true": expression})["is_true"]
        except pa.ArrowException as error:
            raise PredicateError(
                "the predicate must hold for the folders of every file", got=first_line(error)
            ) from error
        answers = np.array([-1 if answer is None else int(answer) for answer in is_true.to_pylist()], np.int8)
        of_file = answers[constants.group_of_file]
        is_unknown = constants.is_unknown[constants.group_of_file]
        true_rows, false_rows = (self.files.rows(is_unknown | (of_file == answer)) for answer in (1, 0))
        is_exact = not (is_unknown & (self.files.table.num_rows > 0)).any()
        return Bounds(true_rows, false_rows, exact=is_exact)

    def _read_constants(self, fields: list[pa.Field]) -> _Constants:
        """The values of `fields`. A group is a folder; for a table with values in its log, a group is a file."""
        if self.declared is not None:
            rows = [self.dataset.partition_values(path, fields) for path in self.files]
            values = [row if row is not None and len(row) == len(fields) else None for row in rows]
            group_of_file = np.arange(len(values))
        else:
            folders: dict[str, int] = {}
            numbers = [folders.setdefault(path.rpartition("/")[0], len(folders)) for path in self.files]
            values = [hive.typed(f"{folder}/", fields) for folder in folders]
            group_of_file = np.array(numbers, np.intp)
        columns = {
            field.name: from_scalars([None if row is None else row[field.name] for row in values], field.type)
            for field in fields
        }
        return _Constants(pa.table(columns), np.array([row is None for row in values], np.bool_), group_of_file)
