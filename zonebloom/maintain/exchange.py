"""Exporting: parts of an index in forms for other readers.

A zone table has the schema and the bytes of Lance's bloom filter index; a filter of the data set is a plain bitset.
Other readers do not compare them with the data, so an incomplete or damaged export is refused.

Spec: specs/zones.md#zone-table, specs/levels.md#dataset-filter
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from zonebloom.arrow import compute as pc
from zonebloom.arrow import from_numpy
from zonebloom.bloom.zones import BlockFilters, zone_schema
from zonebloom.errors import CorruptIndexError, IndexNotFoundError, StaleIndexError
from zonebloom.search.selection import RowSelection
from zonebloom.search.snapshot import Snapshot
from zonebloom.search.zone_table import ZoneTable
from zonebloom.storage.fragments import is_in_runs
from zonebloom.storage.manifest import ColumnEntry

if TYPE_CHECKING:
    from zonebloom.bloom.sbbf import Sbbf


def numbered_by_path(snapshot: Snapshot, table: ZoneTable) -> ZoneTable:
    """The zones in order of path, fragment number i that of the i-th file, as `import_index` wants them.

    The index's own ids grow with each refresh, and have no meaning outside.
    """
    order = np.argsort(snapshot.fragments.paths, kind="stable")
    ids = from_numpy(snapshot.fragments.fragment_ids[order], pa.uint64())
    whole = table.to_arrow()
    places = pc.index_in(whole["fragment_id"], ids).cast(pa.uint64())
    renumbered = whole.set_column(0, whole.schema.field(0), places)
    rows = pc.sort_indices(renumbered, [("fragment_id", "ascending"), ("zone_start", "ascending")])
    if pc.all(pc.equal(rows, pa.array(range(len(rows)), pa.uint64()))).as_py() is not True:
        renumbered = renumbered.take(rows)
    return ZoneTable.from_arrow(renumbered)


def zone_table(snapshot: Snapshot, entry: ColumnEntry) -> ZoneTable:
    """The zones of a column over the live fragments, in order of fragment and start.

    Raises
    ------
    CorruptIndexError
        A segment is damaged: a search of an incomplete table would lose rows.
    IndexNotFoundError
        The column has locators instead of filters.
    StaleIndexError
        Rows of a live fragment have no zones: they would be lost too.
    """
    if not entry.has_filters:
        message = f"column {entry.name} must have filters for a zone table, got locators, which are no filters"
        raise IndexNotFoundError(f"{message}; build it with filters=True")
    loaded = snapshot.column(entry)
    if damage := [*(reason.message for reason in (*loaded.lost, *snapshot.damage)), *loaded.damage]:
        raise CorruptIndexError(f"every segment must be sound for a whole zone table, got: {damage[0]}")
    _check_covered(snapshot, entry, loaded.covered)
    tables = [table.to_arrow() for table in loaded.filters if isinstance(table, BlockFilters)]
    if not tables:
        schema = zone_schema(entry.rows_per_zone, entry.fpp, column=entry.name, column_type=entry.column_type)
        return ZoneTable([], schema)
    whole: pa.Table = pa.concat_tables(tables)
    is_live = pc.is_in(whole["fragment_id"], from_numpy(snapshot.fragments.fragment_ids, pa.uint64()))
    if not pc.all(is_live).as_py():
        whole = whole.filter(is_live)
    return ZoneTable.from_arrow(whole, column=entry.name, column_type=entry.column_type)


def _check_covered(snapshot: Snapshot, entry: ColumnEntry, covered: RowSelection) -> None:
    fragments = snapshot.fragments
    missing = RowSelection.from_arrays(fragments.fragment_ids, 0 * fragments.num_rows, fragments.num_rows) - covered
    if not missing:
        return
    (path, *_) = fragments.paths[fragments.fragment_ids == missing.fragment_ids[0]]
    is_unfit = is_in_runs(missing.fragment_ids[:1], entry.unfit)[0]
    advice = "its values do not convert to the index's type" if is_unfit else "refresh the index"
    message = f"all rows must have filters of {entry.name} for a whole zone table, got {missing.num_rows} without"
    raise StaleIndexError(f"{message}, first of {path}: {advice}")


def dataset_filter(snapshot: Snapshot, entry: ColumnEntry) -> Sbbf:
    """The filter of all values of a column.

    Raises
    ------
    IndexNotFoundError
        There is no filter, or there are several whose union would be useless.
    CorruptIndexError
        The file is damaged.

    Spec: specs/levels.md#dataset-filter
    """
    from zonebloom.bloom.sbbf import Sbbf  # noqa: PLC0415 - as above
    from zonebloom.storage.levels import DatasetFilter, united  # noqa: PLC0415 - a zone table does without

    levels = [level for level in entry.levels if level.name == "dataset" and level.segments]
    if not levels:
        message = f"column {entry.name} must have the level dataset, got none"
        raise IndexNotFoundError(f'{message}; build it with levels=("zone", "dataset")')
    filters = [DatasetFilter(snapshot.store, segment) for segment in levels[0].segments]
    if len(filters) == 1:
        return filters[0].to_sbbf()
    largest = max(one.entry.num_bytes // 32 for one in filters)
    made = united((one.to_sbbf().blocks for one in filters), largest)
    if made is None:
        message = f"one filter of at most 128 MiB must hold column {entry.name}, got {len(filters)} which together hold"
        raise IndexNotFoundError(f"{message} too many values, or are of unlike sizes; load each: specs/levels.md")
    return Sbbf(made[0])
