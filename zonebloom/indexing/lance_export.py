"""Exporting to Lance: the zones of a column become the bloom filter index of the Lance table that was indexed.

Lance then prunes by them as by its own. Lance does not check an index: a wrong one makes queries fail or lose rows. So
an export is an error if Lance cannot use the zones, or if the zones do not cover every row of the version.

Spec: specs/lance.md#export_lance
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from zonebloom.bloom.hashing import lance_supports
from zonebloom.bloom.zones import ZONE_FIELDS, ZoneTable
from zonebloom.formats.lance import LanceDataset, LanceSnapshot, explained, fragment_path, lance_library
from zonebloom.formats.lance_index import BLOOM_DETAILS, lance_indexes, segment_location
from zonebloom.ground.arrow import compute as pc, from_numpy
from zonebloom.ground.errors import (
    ConcurrentCommitError,
    DataFileError,
    IndexExistsError,
    InvalidArgumentError,
    StaleIndexError,
    UnsupportedTypeError,
    Words,
    first_line,
)
from zonebloom.ground.rendering import Result
from zonebloom.indexing.export import zone_table
from zonebloom.search.result import renumbered_ids
from zonebloom.search.view import View
from zonebloom.storage.manifest import ColumnEntry
from zonebloom.stores.locations import is_url

_CONFLICT = re.compile(r"commit conflict|[Ii]ncompatible transaction")
"""Text in Lance's error for a commit that conflicts with another."""


@dataclass(frozen=True, slots=True)
class LanceExport(Result):
    """The index that was committed to a Lance table."""

    name: str
    """Lance's name of the index."""
    column: str
    """The column."""
    table_version: int
    """The version of the table that has the index."""
    num_segments: int
    """Files of the index."""
    num_zones: int
    """Zones in all of them."""
    filter_bytes: int
    """Bytes of all filters."""


def export_lance(view: View, entry: ColumnEntry, *, per_fragment: bool = False, overwrite: bool = False) -> LanceExport:
    """Commit the zones of a column as Lance's index, over exactly the fragments of the view's version.

    Raises
    ------
    InvalidArgumentError
        The index is of no Lance table, or of one that was made anew, or the column is a field of a struct.
    UnsupportedTypeError
        Lance has no bloom filters of the column's type; it would fail at each query.
    StaleIndexError
        A live row has no zone; Lance would lose the row.
    IndexExistsError
        The column has a scalar index already; Lance uses the first one only.
    ConcurrentCommitError
        A commit to the table since the view's version conflicts with this one; the table has no new index.
    """
    snapshot = view.dataset
    if not isinstance(snapshot, LanceSnapshot):
        raise InvalidArgumentError(f"{snapshot.location} is no Lance table", do=Words.WRITE_ZONES)
    _check_place(snapshot)
    field_id = _field_id(snapshot, view, entry)
    old = lance_indexes(snapshot, entry.name)
    are_blooms = all(index.is_bloom for index in old)
    if old and not (overwrite and are_blooms):
        advice = f"{Words.OVERWRITE} replaces it" if are_blooms else "drop that one in Lance first"
        raise IndexExistsError(
            f"column {entry.name} of {snapshot.location} must have no scalar index yet",
            got=old[0].name,
            do=f"Lance uses the first one only: {advice}",
        )
    zones = _zones(snapshot, view, entry)
    numbers = sorted(map(snapshot.own_number, snapshot.files))
    parts = [[number] for number in numbers] if per_fragment else [numbers]
    name = old[0].name if old else f"{entry.name}_idx"
    with _written(snapshot, entry.name, zones, parts) as uuids:
        version = _commit(snapshot, name, field_id, dict(zip(uuids, parts, strict=True)), {index.name for index in old})
    filter_bytes = pc.sum(pc.binary_length(zones["bloom_filter_data"])).as_py() or 0
    return LanceExport(name, entry.name, version, len(parts), len(zones), filter_bytes)


def _check_place(snapshot: LanceSnapshot) -> None:
    """Check that the table there has this version: one that was made anew has other fragments of the same ids."""
    version = snapshot.table.version
    with explained(snapshot.location, f"version {version} of "):
        table = lance_library().dataset(
            snapshot.location, version=version, storage_options=dict(snapshot.storage_options) or None
        )
    if LanceDataset.of_table(table).pin().identity != snapshot.identity:
        raise InvalidArgumentError(
            f"an index that Lance takes must be of the table that is at {snapshot.location}",
            got=f"a version {version} of other fragments",
            do="build the index of the table at this path",
        )


def _field_id(snapshot: LanceSnapshot, view: View, entry: ColumnEntry) -> int:
    """Lance's id of the column; an error if Lance cannot search the new index."""
    if view.schema.get_field_index(entry.name) < 0:
        raise InvalidArgumentError("an index that Lance takes must be of a top-level column", got=entry.name)
    stored = view.schema.field(entry.name).type
    if not lance_supports(stored) or stored != entry.column_type:
        raise UnsupportedTypeError(
            f"column {entry.name} must be of a type that Lance's bloom filters know, as it was indexed",
            got=stored,
            do="Lance would fail at each query",
        )
    return int(snapshot.declared.column_ids[entry.name])


def _zones(snapshot: LanceSnapshot, view: View, entry: ColumnEntry) -> pa.Table:
    """All zones of the version's fragments, by Lance's ids, in order."""
    probed = view.column(entry.name)
    assert probed is not None
    uncovered = probed.uncovered
    for file in view.files.of_fragments(np.unique(uncovered.fragment_ids)):
        rows = uncovered.fragment(file.fragment_id).num_rows
        raise StaleIndexError(
            f"all rows must have filters of {entry.name} for Lance's index",
            got=f"{rows} without in {snapshot.absolute(file.path)}",
            do=Words.REFRESH,
        )
    whole = zone_table(view.snapshot, entry).to_arrow()
    whole = whole.filter(pc.is_in(whole["fragment_id"], from_numpy(view.live_ids, pa.uint64())))
    ids = whole["fragment_id"].to_numpy()
    own = ids if view.numbers is None else renumbered_ids(ids, view.numbers)
    whole = whole.set_column(0, ZONE_FIELDS[0], from_numpy(own, pa.uint64()))
    return ZoneTable.from_arrow(whole).to_arrow()


@contextmanager
def _written(snapshot: LanceSnapshot, column: str, zones: pa.Table, parts: list[list[int]]) -> Iterator[list[str]]:
    """Write a segment for the fragments of each of `parts`, and give the names; if the block fails, delete them."""
    uuids = [str(uuid.uuid4()) for _ in parts]
    try:
        for segment_id, numbers in zip(uuids, parts, strict=True):
            is_mine = pc.is_in(zones["fragment_id"], pa.array(numbers, pa.uint64()))
            mine = zones.filter(is_mine) if len(parts) > 1 else zones
            _write(snapshot, segment_location(snapshot.location, segment_id), mine, _nulls(snapshot, column, mine))
        yield uuids
    except BaseException:
        if not is_url(snapshot.location):
            for segment_id in uuids:
                shutil.rmtree(os.path.dirname(segment_location(snapshot.location, segment_id)), ignore_errors=True)  # noqa: PTH120 - text
        raise


def _nulls(snapshot: LanceSnapshot, column: str, zones: pa.Table) -> bytes:
    """The addresses of all live rows with a null, in the form of Lance's index."""
    from lance.dataset import serialize_row_addrs  # noqa: PLC0415 - an extra

    numbers = zones.filter(zones["has_null"])["fragment_id"].unique().to_pylist()
    addresses: list[int] = []
    for number in numbers:
        addresses += [number << 32 | offset for offset in snapshot.null_rows(fragment_path(number), column).tolist()]
    return bytes(serialize_row_addrs(addresses))


def _write(snapshot: LanceSnapshot, location: str, zones: pa.Table, nulls: bytes) -> None:
    with explained(location):
        from lance.file import LanceFileWriter  # noqa: PLC0415 - an extra

        if not is_url(location):
            os.makedirs(os.path.dirname(location))  # noqa: PTH103, PTH120 - text
        options = snapshot.storage_options or None
        schema = pa.schema(ZONE_FIELDS)
        with LanceFileWriter(location, schema, storage_options=options) as writer:
            for batch in zones.to_batches():
                writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
            for key, value in zones.schema.metadata.items():
                writer.add_schema_metadata(key.decode(), value.decode())
            writer.add_schema_metadata("null_bitmap", str(writer.add_global_buffer(nulls)))


@contextmanager
def _conflicts_told(location: str) -> Iterator[None]:
    """Raise Lance's commit conflicts as `ConcurrentCommitError`; Lance itself removes changed fragments."""
    try:
        with explained(location, "a commit to "):
            yield
    except DataFileError as error:
        if _CONFLICT.search(str(error)) is None:
            raise
        raise ConcurrentCommitError(
            f"the table {location} must stay as it was read until it has the index",
            got="another commit",
            do=f"run again: {first_line(error)}",
        ) from error


def _commit(snapshot: LanceSnapshot, name: str, field_id: int, segments: dict[str, list[int]], old: set[str]) -> int:
    """Commit the segments and remove the indexes `old` in one commit; returns the table's new version."""
    library = lance_library()
    operation = library.LanceOperation.CreateIndex
    with _conflicts_told(snapshot.location):
        from lance.dataset import Index  # noqa: PLC0415 - an extra

        def index_of(segment_id: object, name: str, version: int, numbers: Iterable[int]) -> Index:
            details = (BLOOM_DETAILS, b"")
            return Index(str(segment_id), name, [field_id], version, set(numbers), 0, index_details=details)

        new = [index_of(segment_id, name, snapshot.table.version, numbers) for segment_id, numbers in segments.items()]
        removed = [
            index_of(part.uuid, index.name, part.dataset_version_at_last_update, part.fragment_ids)
            for index in snapshot.table.describe_indices()
            if index.name in old
            for part in index.segments
        ]
        table = library.LanceDataset.commit(
            snapshot.location,
            operation(new_indices=new, removed_indices=removed),
            read_version=snapshot.table.version,
            storage_options=snapshot.storage_options or None,
        )
        try:
            _check_place(snapshot)
            is_there = field_id in {field.id() for field in table.lance_schema.fields()}
        except (DataFileError, InvalidArgumentError):
            is_there = False
        if not is_there:
            table.drop_index(name)
            raise ConcurrentCommitError(
                f"table and column must stay at {snapshot.location} until the table has its index",
                got="a column dropped or cast, or another table",
                do="the index is removed again: refresh, and repeat",
            )
        return int(table.version)
