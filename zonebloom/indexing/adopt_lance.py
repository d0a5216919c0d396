"""Building from a Lance table's own bloom filter index: few rows are read.

A fragment is read only if no segment covers it with the values that it has now, if it has deleted rows, or if its zones
do not match its rows. Lance's zones need not have the values of deleted rows, which an older or restored version of the
table still has.

Spec: specs/lance.md#adopt
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from zonebloom.bloom.hashing import lance_supports
from zonebloom.bloom.zones import ZoneTable
from zonebloom.formats import OpenedFile
from zonebloom.formats.lance import LanceSnapshot
from zonebloom.formats.lance_index import fragments_as_indexed, lance_indexes, read_zones
from zonebloom.ground.errors import DataFileError
from zonebloom.indexing.fill import BuildPlan
from zonebloom.indexing.verify import is_in_zone
from zonebloom.storage.fragments import Fragment
from zonebloom.storage.zone_segment import Zone


class LanceZones:
    """The zones of Lance's own index, by fragment; each column's index is read once, when first needed."""

    def __init__(self) -> None:
        self._tables: dict[str, list[tuple[frozenset[int], ZoneTable]]] = {}

    def __call__(self, plan: BuildPlan, _file: OpenedFile, fragment: Fragment, column: str) -> list[Zone] | None:
        """As `OwnZones`; zones tile the fragment, and the first and last zones were compared with its rows."""
        dataset = plan.dataset
        if not isinstance(dataset, LanceSnapshot):
            return None
        if column not in self._tables:
            self._tables[column] = _lance_tables(dataset, column, plan.columns[column])
        number = dataset.own_number(fragment.path)
        zones = next((table for ids, table in self._tables[column] if number in ids), None)
        if zones is None or fragment.path in dataset.with_deletions:
            return None
        mine = np.flatnonzero(zones.positions.fragment_ids == number).tolist()
        ends = _ends(zones, mine, fragment.num_rows)
        same = {"column": column, "column_type": plan.columns[column]}
        if ends is None or not all(is_in_zone(dataset, fragment, zones, zone, **same) for zone in {mine[0], mine[-1]}):
            _warn(f"Lance's index of {column} must hold each row of {dataset.absolute(fragment.path)}, got one without")
            return None
        has_null = zones.positions.has_null[mine].tolist()
        return [
            Zone(fragment.fragment_id, start, stop - start, is_null, zones.blocks(zone).tobytes())
            for zone, start, stop, is_null in zip(mine, ends, ends[1:], has_null, strict=False)
        ]


def _lance_tables(
    dataset: LanceSnapshot, column: str, column_type: pa.DataType
) -> list[tuple[frozenset[int], ZoneTable]]:
    """For each segment of a bloom index of `column`: the fragments as they were indexed, and the zones."""
    tables: list[tuple[frozenset[int], ZoneTable]] = []
    blooms = (
        [index for index in lance_indexes(dataset, column) if index.is_bloom] if lance_supports(column_type) else []
    )
    for segment in [part for index in blooms for part in index.segments]:
        try:
            tables.append((fragments_as_indexed(dataset, segment, column), read_zones(dataset, segment)))
        except DataFileError as error:
            _warn(str(error))
    return tables


def _warn(message: str) -> None:
    warnings.warn(f"{message}; the rows are read instead: run zonebloom lance audit", RuntimeWarning, stacklevel=2)


def _ends(zones: ZoneTable, mine: Sequence[int], num_rows: int) -> list[int] | None:
    """Bounds of the zones `mine` of a fragment; None if they do not tile its rows."""
    starts, stops = zones.positions.zone_starts[mine].tolist(), zones.positions.zone_stops[mine].tolist()
    return [*starts, num_rows] if mine and [0, *stops] == [*starts, num_rows] else None
