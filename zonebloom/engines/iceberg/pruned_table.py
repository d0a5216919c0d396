"""A pyiceberg `Table` whose scans leave out files that cannot match. Engines that plan by pyiceberg use it unchanged.

Design: docs/design/engines.md#iceberg-scans
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from copy import copy
from typing import Any, Self

import pyarrow as pa
from pyiceberg.expressions import And, BooleanExpression, BoundEqualTo, BoundIn, BoundIsNull, Or, visitors as ice
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, FileScanTask, Table

from zonebloom.formats.iceberg.locations import relative_path
from zonebloom.ground.errors import DataFileError, StaleWarning, first_line
from zonebloom.index.doors import opened_in
from zonebloom.predicates import IsIn, IsNull, Predicate, tree
from zonebloom.search.result import SearchResult
from zonebloom.stores.store import Store


class PrunedTable(Table):  # type: ignore[misc]  # pyiceberg is not read by mypy
    """`Table` with the index in a store; each scan asks its newest version."""

    last_scan: SearchResult | None = None
    """The index's answer to the scan that was planned last; None if there was nothing to ask."""

    def __init__(self, table: Table, store: Store) -> None:
        super().__init__(table.name(), table.metadata, table.metadata_location, table.io, table.catalog, table.config)
        self._store = store

    def scan(self, *arguments: Any, **options: Any) -> PrunedScan:
        """As `Table.scan`."""
        as_loaded = copy(self)  # another thread may refresh this one
        return PrunedScan(**vars(super(PrunedTable, as_loaded).scan(*arguments, **options))).of(self, as_loaded)

    def excluded(self, predicate: Predicate, as_loaded: Table) -> set[str]:
        """Paths of data files, below the table if they are, without a row that matches `predicate`."""
        self.last_scan = None
        try:
            self.last_scan = result = opened_in(self._store, as_loaded).search(predicate)
        except DataFileError as error:  # a kind of table that only pyiceberg reads
            warnings.warn(f"read whole: {first_line(error)}", StaleWarning, stacklevel=3)
            return set()
        return set(result.paths.values()).difference(result.files)


class PrunedScan(DataScan):  # type: ignore[misc]  # as above
    """`DataScan`, planned by an index too."""

    _table: PrunedTable
    _as_loaded: Table
    """The table with the metadata that the scan reads; the names and files of `_table` may change."""

    def of(self, table: PrunedTable, as_loaded: Table) -> Self:
        """Bind the scan to its table."""
        self._table, self._as_loaded = table, as_loaded
        return self

    def update(self, **overrides: Any) -> Self:
        """As `DataScan.update`."""
        updated: Self = super().update(**overrides)
        return updated.of(self._table, self._as_loaded)

    def plan_files(self) -> Iterable[FileScanTask]:
        """The tasks of `DataScan.plan_files`, less those of files that cannot match."""
        tasks, schema = super().plan_files(), self.table_metadata.schema()
        bound = ice.bind(schema, ice.rewrite_not(self.row_filter), self.case_sensitive)
        predicate = necessary(bound, schema)
        excluded = self._table.excluded(predicate, self._as_loaded) if predicate is not None else ()
        location = self.table_metadata.location
        return [task for task in tasks if relative_path(task.file.file_path, location) not in excluded]


def necessary(expression: BooleanExpression, schema: Schema) -> Predicate | None:
    """A predicate that is true in every row in which `expression`, bound and without NOT, is; None if none is known."""
    if isinstance(expression, And | Or):
        sides = [necessary(side, schema) for side in (expression.left, expression.right)]
        evaluated = [side for side in sides if side is not None]
        if isinstance(expression, And):
            return tree.And(evaluated) if evaluated else None
        return tree.Or(evaluated) if len(evaluated) == len(sides) else None
    if not isinstance(expression, BoundEqualTo | BoundIn | BoundIsNull):
        return None
    field = expression.term.ref().field
    name = schema.find_column_name(field.field_id)
    if name is None:
        return None
    if isinstance(expression, BoundIsNull):
        return IsNull(name)
    literals = expression.literals if isinstance(expression, BoundIn) else {expression.literal}
    return IsIn(name, pa.array([literal.value for literal in literals], schema_to_pyarrow(field.field_type)))
