"""Exporting: parts of an index for other readers.

A zone table has the schema and the bytes of Lance's bloom filter index. Other readers do not compare it with the data,
so an incomplete or damaged export is an error.

Spec: specs/zones.md#zone-table
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from zonebloom.bloom.selection import RowSelection
from zonebloom.bloom.zones import BlockFilters, zone_schema
from zonebloom.ground.arrow import compute as pc, from_numpy
from zonebloom.ground.errors import CorruptIndexError, IndexNotFoundError, StaleIndexError, Words
from zonebloom.search.zone_table import ZoneTable
from zonebloom.storage.fragments import is_in_runs
from zonebloom.storage.manifest import ColumnEntry
from zonebloom.storage.options import has_bloom
from zonebloom.storage.snapshot import Snapshot


def numbered_by_path(snapshot: Snapshot, table: ZoneTable) -> ZoneTable:
    """The zones in order of path; fragment i is the i-th file, as `import_index` requires.

    The index's own ids grow with each refresh, and have no meaning outside the index.
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
        The column has locators and no bloom filters.
    StaleIndexError
        Rows of a live fragment have no zones: a search of the table would lose them too.
    """
    if not has_bloom(entry.kind):
        raise IndexNotFoundError(
            f"column {entry.name} must have bloom filters for a zone table",
            got=f"kind {entry.kind}",
            do=Words.ADD_FILTERS,
        )
    loaded = snapshot.reader(entry.name, [segment for segment in entry.segments if segment.kind != "locator"])
    if damage := [*(reason.message for reason in (*loaded.lost, *snapshot.damage)), *loaded.damage]:
        raise CorruptIndexError("every segment must be sound for a whole zone table", got=damage[0])
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
    advice = f"its values do not convert to the index's type; {Words.REFRESH_WHOLE}" if is_unfit else Words.REFRESH
    raise StaleIndexError(
        f"all rows must have filters of {entry.name} for a whole zone table",
        got=f"{missing.num_rows} without, first of {path}: {advice}",
    )
