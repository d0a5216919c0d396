"""Auditing: the bloom filter indexes of a Lance table, compared with the rows that they cover.

Lance skips the rows that its index excludes. So each live row of a covered fragment must be in a zone whose filter
holds its value, and each null must be among the index's nulls. A Lance query loses rows that fail this check.

Spec: specs/lance.md#audit
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zonebloom.bloom import hashing
from zonebloom.bloom.addresses import MAX_ROWS
from zonebloom.bloom.sbbf import Sbbf
from zonebloom.formats import open_dataset
from zonebloom.formats.lance import LanceSnapshot, explained, fragment_path
from zonebloom.formats.lance_index import LanceIndex, lance_indexes, read_segment, writer_of
from zonebloom.formats.parquet.file import has_column
from zonebloom.formats.schema_evolution import column_values
from zonebloom.ground.errors import ColumnNotFoundError, DataFileError, InvalidArgumentError
from zonebloom.ground.rendering import Result

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MERGED = "__lance_frag_reuse"
"""Lance's index of merged fragments: an older index has their former ids, and Lance finds the zones by both."""
_NAMED_ROWS = 10
_LEGACY = "0.1"
"""The format whose row addresses make pylance 14 panic with an index; its row ids are addresses, unless stable."""


@dataclass(slots=True)
class LanceIndexAudit(Result):
    """The outcome for one index."""

    _derived = ("is_sound",)

    name: str
    """Lance's name of the index."""
    column: str
    """Its column."""
    writers: list[str | None]
    """The Lance versions that committed its segments; None if a version is no longer known."""
    num_zones: int = 0
    """Zones of all segments."""
    filter_bytes: int = 0
    """Bytes of all filters."""
    num_fragments: int = 0
    """Fragments that were read."""
    num_rows: int = 0
    """Live rows that were read."""
    num_lost: int = 0
    """Rows that a query for their value does not find."""
    num_lost_nulls: int = 0
    """Rows that a query for nulls does not find."""
    lost_rows: list[int] = field(default_factory=list)
    """Row addresses of the first lost rows."""
    damage: list[str] = field(default_factory=list)
    """Unreadable segments, a column that is not in the table, and a failed query for nulls."""

    @property
    def is_sound(self) -> bool:
        """Whether none of the rows read is lost."""
        return not (self.num_lost or self.num_lost_nulls or self.damage)


@dataclass(frozen=True, slots=True)
class LanceAudit(Result):
    """The outcome of `audit_lance`."""

    _derived = ("is_sound",)

    table: str
    """The table."""
    table_version: int
    """Its version."""
    indexes: tuple[LanceIndexAudit, ...]
    """By index."""

    @property
    def is_sound(self) -> bool:
        """Whether no index loses a row."""
        return all(index.is_sound for index in self.indexes)

    @property
    def headline(self) -> str:
        """Whether all indexes are sound."""
        return "sound" if self.is_sound else "NOT SOUND"


def audit_lance(
    table: Any,
    *,
    column: str | None = None,
    sample: float = 1.0,
    seed: int = 0,
    storage_options: Mapping[str, str] | None = None,
) -> LanceAudit:
    """Rows that the bloom filter indexes of a Lance table lose; only a share of its fragments is read.

    Parameters
    ----------
    table
        Its path or URL, or a `lance.LanceDataset`.
    column
        The only column to audit; by default all columns with such an index.
    sample
        Share of the fragments to read, in (0, 1]; at least one is read.

    Raises
    ------
    InvalidArgumentError
        `table` is not a Lance table, or a compaction has not renamed the fragments of an index.
    ColumnNotFoundError
        `column` has no such index.

    Spec: specs/lance.md#audit
    """
    if not isinstance(sample, (int, float)) or not 0 < sample <= 1:
        raise InvalidArgumentError("sample must be in (0, 1]", got=f"{sample!r}")
    snapshot = open_dataset(table, storage_options).pin()
    if not isinstance(snapshot, LanceSnapshot):
        raise InvalidArgumentError(f"{snapshot.location} is no Lance table", do="verify its index instead")
    indexes = lance_indexes(snapshot)
    blooms = [index for index in indexes if index.is_bloom and column in (None, *index.columns)]
    if column is not None and not blooms:
        columns = [name for index in indexes if index.is_bloom for name in index.columns]
        raise ColumnNotFoundError.among(column, columns, f"the bloom filter indexes of {snapshot.location}")
    merged = [segment for index in indexes if index.name == _MERGED for segment in index.segments]
    for index in blooms:
        if any(
            own.version < late.version and own.fragment_ids & late.fragment_ids
            for own in index.segments
            for late in merged
        ):
            raise InvalidArgumentError(
                f"index {index.name} must have the fragments of the table's version to be audited",
                got="those before a compaction with defer_index_remap",
                do="create the index again",
            )
    audits = tuple(_audited(snapshot, index, sample, random.Random(seed)) for index in blooms)  # noqa: S311 - a sample
    return LanceAudit(snapshot.location, int(snapshot.table.version), audits)


def _audited(snapshot: LanceSnapshot, index: LanceIndex, sample: float, rng: random.Random) -> LanceIndexAudit:
    (column,) = index.columns
    audit = LanceIndexAudit(
        index.name, column, sorted({writer_of(snapshot, segment) for segment in index.segments}, key=str)
    )
    if not has_column(snapshot.declared.schema, column):
        message = f"index {index.name} must be of a column of the table, got one that was dropped or cast"
        audit.damage.append(f"{message}; each filtered query of Lance fails: drop the index")
        return audit
    covered = sorted(number for segment in index.segments for number in segment.fragment_ids)
    chosen = set(rng.sample(covered, max(1, round(sample * len(covered))))) if covered else set()
    nulls: dict[int, list[int]] = {}
    for segment in index.segments:
        try:
            zones = _Zones(read_segment(snapshot, segment))
            read = {
                number: _lost_rows(snapshot, number, zones, segment.overlaid.get(number), audit)
                for number in sorted(chosen & segment.fragment_ids)
            }
        except (DataFileError, InvalidArgumentError, KeyError) as error:
            audit.damage.append(f"segment {segment.uuid} must hold zones, got: {error}")
            continue
        audit.num_zones += len(zones.filters)
        audit.filter_bytes += zones.num_bytes
        for number, (offsets, null_offsets) in read.items():
            nulls[number] = [number << 32 | offset for offset in null_offsets.tolist()]
            audit.num_fragments += 1
            audit.num_lost += len(offsets)
            named = offsets[: _NAMED_ROWS - len(audit.lost_rows)]
            audit.lost_rows += [number << 32 | offset for offset in named.tolist()]
    if not audit.damage:
        try:
            lost_nulls = _lost_nulls(snapshot, column, nulls)
        except DataFileError as error:
            audit.damage.append(f"Lance must find nulls by its indexes, got: {error}")
            return audit
        audit.num_lost_nulls = len(lost_nulls)
        audit.lost_rows += lost_nulls[: _NAMED_ROWS - len(audit.lost_rows)]
    return audit


class _Zones:
    """The zones of a segment as Lance reads them: they may overlap, or extend beyond their fragment."""

    def __init__(self, table: pa.Table) -> None:
        self.fragment_ids = table["fragment_id"].combine_chunks().to_numpy()
        self.starts = np.minimum(table["zone_start"].combine_chunks().to_numpy(), MAX_ROWS).astype(np.int64)
        lengths = np.minimum(table["zone_length"].combine_chunks().to_numpy(), MAX_ROWS).astype(np.int64)
        self.stops = self.starts + lengths
        self.filters = table["bloom_filter_data"]
        self.num_bytes = int(pc.sum(pc.binary_length(self.filters)).as_py() or 0)

    def of_rows(self, number: int, start: int, stop: int) -> Iterator[tuple[int, int, Sbbf]]:
        """First row, end and filter of each zone of a fragment that overlaps the rows, clipped to them."""
        touched = (self.fragment_ids == number) & (self.starts < stop) & (self.stops > start)
        for zone in np.flatnonzero(touched).tolist():
            data = self.filters[zone].as_py()
            yield max(int(self.starts[zone]), start), min(int(self.stops[zone]), stop), Sbbf.from_bytes(data)


def _lost_rows(
    snapshot: LanceSnapshot, number: int, zones: _Zones, scanned: NDArray[np.int64] | None, audit: LanceIndexAudit
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Offsets of a fragment's live rows whose value is in no filter of their zones, and of rows with a null.

    The rows `scanned` are found without filters.
    """
    path, row = fragment_path(number), 0
    deleted = snapshot.deleted_rows(path)
    lost, nulls = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    column_type = hashing.resolve_column(snapshot.declared.schema, audit.column).type
    with snapshot.open(path) as file:
        for batch in file.column_batches([audit.column], 0, file.num_rows):
            values = column_values(batch, audit.column, column_type)
            assert values is not None  # the table declares one type for all its fragments
            is_lost = np.ones(len(values), np.bool_)
            if deleted is not None:
                low, high = np.searchsorted(deleted, [row, row + len(values)])
                is_lost[deleted[low:high] - row] = False
            audit.num_rows += int(is_lost.sum())
            is_valid = values.is_valid().to_numpy(zero_copy_only=False)
            nulls.append(np.flatnonzero(is_lost & ~is_valid) + row)
            is_lost &= is_valid
            if scanned is not None:
                is_lost[scanned[slice(*np.searchsorted(scanned, [row, row + len(values)]))] - row] = False
            for start, stop, filter_ in zones.of_rows(number, row, row + len(values)):
                part = values.slice(start - row, stop - start)
                places = np.flatnonzero(is_valid[start - row : stop - row]) + (start - row)
                is_lost[places[filter_.check_hashes(hashing.hash_array(part))]] = False
            lost.append(np.flatnonzero(is_lost) + row)
            row += len(values)
    return np.concatenate(lost), np.concatenate(nulls)


def _lost_nulls(snapshot: LanceSnapshot, column: str, nulls: Mapping[int, list[int]]) -> list[int]:
    """The null rows that Lance does not find with its indexes; `nulls` has addresses by fragment."""
    fragments = [snapshot.table.get_fragment(number) for number, addresses in nulls.items() if addresses]
    if not fragments:
        return []
    with explained(snapshot.location, "the nulls of "):
        # as SQL: Lance accepts no unsigned integers and no large texts in an Expression
        path = ".".join(f"`{name}`" for name in hashing.column_path(snapshot.declared.schema, column))
        options: dict[str, Any] = {"columns": [], "fragments": fragments, "filter": f"{path} IS NULL"}
        is_by_id = snapshot.table.data_storage_version == _LEGACY and not snapshot.table.has_stable_row_ids
        scanner = snapshot.table.scanner(**options, with_row_id=is_by_id, with_row_address=not is_by_id)
        null_addresses = set(scanner.to_table()["_rowid" if is_by_id else "_rowaddr"].to_pylist())
    return [address for expected in nulls.values() for address in expected if address not in null_addresses]
