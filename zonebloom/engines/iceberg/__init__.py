"""Iceberg tables: scans by an index, and `delete` and `upsert` by keys.

================  ==============================================================
module            what lives there
================  ==============================================================
``pruned_table``  a table whose scans leave out files that cannot match
``rewrite``       the call: plan on one snapshot, write, commit on that snapshot
``rows``          rows of an upsert in the types of the table
``files``         data files that a rewrite writes, counts, and removes if it fails
================  ==============================================================

Design: docs/design/engines.md#iceberg
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from zonebloom.engines.iceberg.rewrite import Rewrite, delete, upsert
from zonebloom.formats.iceberg.errors import pyiceberg_tables
from zonebloom.ground.errors import InvalidArgumentError
from zonebloom.index.doors import store_of
from zonebloom.index.index import Index

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from zonebloom.engines.iceberg.pruned_table import PrunedTable

__all__ = ["Rewrite", "delete", "table", "upsert"]


def table(table: Table, *, index: str | os.PathLike[str] | Index | None = None) -> PrunedTable:
    """The same table; its scans plan no file that certainly has no matching row, and all other files.

    Engines that plan by pyiceberg take it in place of `table`: Polars, Daft, and what `Table.scan` itself reads.
    `last_scan` is the index's answer to the newest scan. `=`, `IN` and `IS NULL` prune, also within AND and OR. Other
    conditions prune nothing. A file that the index has not seen is planned.

    Parameters
    ----------
    index
        The index of the table, or its place; by default the index beside the table. An index that needs storage
        options is given as an `Index`, which has them.

    Raises
    ------
    InvalidArgumentError
        `table` is no Table of pyiceberg.
    IndexNotFoundError
        There is no index at the place.
    MissingDependencyError
        pyiceberg is not installed.

    Design: docs/design/engines.md#iceberg-scans
    """
    if not isinstance(table, pyiceberg_tables().Table):
        raise InvalidArgumentError(
            "table must be a pyiceberg Table", got=type(table).__name__, do="load it by the load_table of its catalog"
        )
    from zonebloom.engines.iceberg.pruned_table import PrunedTable  # noqa: PLC0415 - needs the extra

    return PrunedTable(table, store_of(index, table))
