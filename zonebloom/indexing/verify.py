"""Verification: read data again and check that no value is missing from the filter of its zone.

Spec: specs/index-format.md#verify
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from zonebloom.bloom import hashing
from zonebloom.bloom.sizing import expected_fpp
from zonebloom.bloom.split_block import measured_fpp
from zonebloom.bloom.zones import BlockFilters, ZoneFilters, ZonePositions, ZoneTable
from zonebloom.formats import DatasetSnapshot
from zonebloom.formats.schema_evolution import column_values
from zonebloom.ground.arrow import distinct
from zonebloom.ground.errors import CorruptIndexError, InvalidArgumentError, InvalidZoneTableError
from zonebloom.ground.reasons import counted
from zonebloom.ground.rendering import Result
from zonebloom.search.view import View
from zonebloom.storage.fragments import Fragment
from zonebloom.storage.manifest import ColumnEntry, list_versions
from zonebloom.storage.options import has_bloom

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PROBES, _PROBES_PER_ZONE = 1 << 16, 1 << 10
"""Absent hashes that are looked for in the filters of a file, and in each filter at least."""


@dataclass(frozen=True, slots=True)
class ColumnVerification(Result):
    """The outcome for one column."""

    name: str
    """The column."""
    num_values: int
    """Values read again."""
    num_missing: int
    """Values that their zone's filter or a locator excludes; above 0, searches lose rows."""
    num_wrong_has_null: int
    """Zones whose `has_null` differs from the data; above 0, searches for IS NULL lose rows."""
    num_zones: int
    """Zones that were checked."""
    expected_fpp: float
    """Mean false positive probability of the checked zones, from their sizes and numbers of distinct values."""
    measured_fpp: float
    """Mean false positive probability of the checked zones, from their set bits."""
    measured_false_positives: float
    """Share of random absent hashes that may match the checked zones."""


_NUM_SUMS = len(fields(ColumnVerification)) - 1


@dataclass(frozen=True, slots=True)
class Verification(Result):
    """The outcome of `Index.verify`."""

    _derived = ("is_sound",)

    num_files: int
    """Data files of the data set."""
    num_files_read: int
    """Files that were read again."""
    columns: tuple[ColumnVerification, ...]
    """By column."""
    damage: tuple[str, ...]
    """Parts of the index that differ from their checksum."""

    @property
    def is_sound(self) -> bool:
        """Whether nothing is damaged and no value is missing."""
        wrong = any(column.num_missing or column.num_wrong_has_null for column in self.columns)
        return not self.damage and not wrong

    @property
    def headline(self) -> str:
        """Whether the index is sound, and by how many files."""
        part = f" in the {self.num_files_read:,} of {counted(self.num_files, 'file')} that were read"
        return ("sound" if self.is_sound else "NOT SOUND") + (part if self.num_files_read < self.num_files else "")


def verify(view: View, *, sample: float, seed: int) -> Verification:
    """Check the checksums of all segments, and every value of a random share of the covered files."""
    if not isinstance(sample, (int, float)) or not 0 < sample <= 1:
        raise InvalidArgumentError("sample must be in (0, 1]", got=f"{sample!r}")
    version, store = view.snapshot.manifest.version, view.snapshot.store
    if version not in list_versions(store):  # its files may be gone too, by a vacuum
        raise CorruptIndexError(
            f"version {version} of {store.location} must exist", got="a removed one", do="open the index again"
        )
    covered = view.files.indexed.paths.tolist()
    count = min(len(covered), max(1, round(sample * len(covered))))
    names = random.Random(seed).sample(covered, count)  # noqa: S311 - a sample, not a secret
    chosen = [view.files[name] for name in names]
    columns = []
    impossible: list[str] = []
    damage = [reason.message for reason in view.snapshot.damage]
    for entry in view.snapshot.manifest.columns:
        column = view.snapshot.column(entry)
        column.verify()
        damage += [*(reason.message for reason in column.lost), *column.damage]
        sums = {True: np.zeros(_NUM_SUMS), False: np.zeros(_NUM_SUMS)}  # by whether the segment has filters
        for table in column.filters:
            if table.damage or entry.name in view.replaced:  # filters of a former column are not used
                continue
            for file in chosen:
                try:
                    sums[isinstance(table, BlockFilters)] += _checked(view, file, table, entry)
                except CorruptIndexError as error:
                    impossible.append(str(error))
        columns.append(_outcome(entry.name, sums[has_bloom(entry.kind)], sums[not has_bloom(entry.kind)]))
    view.snapshot.warn_of_damage()
    return Verification(len(view.files), len(chosen), tuple(columns), tuple(dict.fromkeys(damage + impossible)))


def _outcome(column: str, sums: NDArray[np.float64], other: NDArray[np.float64]) -> ColumnVerification:
    """The outcome by sums over the zones of two kinds of segments: values count once, a missing one in each place."""
    num_values, num_zones = int(sums[0]), int(sums[3])
    num_missing, num_wrong = (sums + other)[1:3].astype(int).tolist()
    return ColumnVerification(
        column, num_values, num_missing, num_wrong, num_zones, *(sums[4:] / max(num_zones, 1)).tolist()
    )


def _checked(view: View, file: Fragment, table: ZoneFilters, entry: ColumnEntry) -> NDArray[np.float64]:
    """Check the zones of one file. The fields of its `ColumnVerification`, as sums over its zones."""
    mine = np.flatnonzero(table.positions.fragment_ids == file.fragment_id)
    sums = np.zeros(_NUM_SUMS)
    if not len(mine):
        return sums
    positions = table.positions[mine]
    starts, stops = positions.zone_starts, positions.zone_stops
    if int(stops.max()) > file.num_rows or (starts[1:] < stops[:-1]).any():
        raise CorruptIndexError(
            f"zones of column {entry.name} must lie in {file.path} one after another",
            got=f"zones to row {int(stops.max())} of {file.num_rows}",
        )
    num_probes = max(_PROBES // len(mine), _PROBES_PER_ZONE)
    absent = np.random.default_rng(0).integers(0, 2**64, num_probes, dtype=np.uint64)
    values = _zone_values(view.dataset, file, positions, entry.name, entry.column_type)
    for zone, array in zip(mine.tolist(), values, strict=True):
        hashes = hashing.hash_array(array)
        is_held = table.check_zone(zone, hashes)
        is_wrong = bool(array.null_count) != bool(table.positions.has_null[zone])
        expected = measured = passed = table.zone_fpp(zone)
        if isinstance(table, BlockFilters):
            expected = expected_fpp(len(distinct(hashes)), len(table.blocks(zone)))
            measured = float(measured_fpp(table.blocks(zone)[None])[0])
            passed = float(table.check_zone(zone, absent).mean())
        sums += (len(hashes), (~is_held).sum(), is_wrong, 1, expected, measured, passed)
    return sums


def _zone_values(
    dataset: DatasetSnapshot, file: Fragment, positions: ZonePositions, column: str, column_type: pa.DataType
) -> Iterator[pa.ChunkedArray]:
    """The values of some zones of one file; the file is read once."""
    starts, stops = positions.zone_starts.tolist(), positions.zone_stops.tolist()
    held: list[tuple[int, pa.RecordBatch]] = []
    position = starts[0]
    with dataset.open(file.path, file.fingerprint) as data:
        if not file.is_of(data):
            raise CorruptIndexError(f"{file.path} must be the file that was indexed", got="another one")
        batches = data.column_batches([column], position, stops[-1])
        for first, end in zip(starts, stops, strict=True):
            while position < end:
                held.append((position, next(batches)))
                position += held[-1][1].num_rows
            held = [(row, batch) for row, batch in held if row + batch.num_rows > first]
            cut = [batch[max(first - row, 0) : end - row] for row, batch in held]  # other rows need not convert
            values = [column_values(batch, column, column_type) for batch in cut]
            if any(value is None for value in values):
                raise CorruptIndexError(
                    f"column {column} of {file.path} must convert to the type of its zones, {column_type}"
                )
            yield pa.chunked_array(values)


def is_in_zone(
    dataset: DatasetSnapshot,
    fragment: Fragment,
    zones: BlockFilters,
    zone: int,
    *,
    column: str,
    column_type: pa.DataType,
) -> bool:
    """Whether a zone's filter has all values of its rows, deleted ones too, and `has_null` is true if a row is null."""
    try:
        (values,) = _zone_values(dataset, fragment, zones.positions[np.array([zone])], column, column_type)
    except CorruptIndexError:
        return False
    is_told = not values.null_count or bool(zones.positions.has_null[zone])
    return is_told and bool(zones.check_zone(zone, hashing.hash_array(values)).all())


def check_imported(
    dataset: DatasetSnapshot, fragments: Sequence[Fragment], zones: ZoneTable, column: str, column_type: pa.DataType
) -> None:
    """Check one zone of each file that has values: its filter must have every value of the data.

    Raises
    ------
    InvalidZoneTableError
        A value is missing from a filter, or `has_null` is wrong. The zones describe other data or another type.
    """
    for fragment in fragments:
        mine = np.flatnonzero(zones.positions.fragment_ids == fragment.fragment_id)
        if not len(mine):
            continue
        middle = len(mine) // 2
        ordered = [*mine[middle:].tolist(), *mine[:middle].tolist()]
        filled = next((zone for zone in ordered if zones.blocks(zone).any()), None)  # others tell nothing of values
        for zone in ordered if filled is None else [filled]:
            if not is_in_zone(dataset, fragment, zones, zone, column=column, column_type=column_type):
                raise InvalidZoneTableError(
                    f"the filters must hold every value of {column}",
                    got=f"zone {zone}, which excludes a row of it in {fragment.path}: the zones describe other data",
                )
