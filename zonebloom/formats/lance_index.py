"""Lance's own bloom filter indexes: which ones a version of a table has, and their zones.

An index is one or more segments. Each is a file `bloomfilter.lance`, whose rows are a zone table with Lance's fragment
ids, and names the fragments that it covers.

Spec: specs/lance.md#index
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from zonebloom.bloom.zones import ZoneTable
from zonebloom.formats.lance import LanceSnapshot, explained
from zonebloom.formats.lance_manifest import writer_version
from zonebloom.ground.errors import DataFileError, InvalidZoneTableError

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset as LanceTable
    from lance.fragment import FragmentMetadata
    from numpy.typing import NDArray

BLOOM_DETAILS = "/lance.index.pb.BloomFilterIndexDetails"
"""The type of the details of an index of bloom filters."""


@dataclass(frozen=True, slots=True)
class LanceSegment:
    """One file of an index."""

    uuid: str
    """Its folder's name."""
    fragment_ids: frozenset[int]
    """The fragments that a query does not scan but by this segment; those of this version alone."""
    version: int
    """The version of the table that was indexed."""
    location: str
    """Path or URL of its file; of a branch or a shallow clone it may be in the folder of another table."""
    overlaid: Mapping[int, NDArray[np.int64]]
    """By fragment, the rows whose values an overlay replaced after that version; a query scans these rows."""


@dataclass(frozen=True, slots=True)
class LanceIndex:
    """A scalar index of a Lance table."""

    name: str
    """Lance's name."""
    columns: tuple[str, ...]
    """The indexed columns."""
    is_bloom: bool
    """Whether it is one of bloom filters."""
    segments: tuple[LanceSegment, ...]
    """Its files."""


def lance_indexes(snapshot: LanceSnapshot, column: str | None = None) -> list[LanceIndex]:
    """The indexes of a version, or those of one column; of any kind."""
    numbers = {snapshot.own_number(path) for path in snapshot.files}
    with explained(snapshot.location, "the indexes of "):
        described = list(snapshot.table.describe_indices())
        fragments = [fragment.metadata for fragment in snapshot.table.get_fragments()]
        names = {field_id: name for name, field_id in snapshot.declared.column_ids.items()}
        roots = {None: snapshot.location} | {key: base.path for key, base in snapshot.table.base_paths().items()}
    indexes = [
        LanceIndex(each.name, _columns(each, names), *_kind_and_segments(each, numbers, roots, fragments))
        for each in described
    ]
    return [index for index in indexes if column is None or column in index.columns]


def _columns(described: Any, names: Mapping[str, str]) -> tuple[str, ...]:
    """The columns of an index, by their ids; a column that the table has no more as Lance writes it."""
    pairs = zip(described.fields, described.field_names, strict=True)
    return tuple(names.get(str(field_id), name) for field_id, name in pairs)


def _kind_and_segments(
    described: Any, numbers: set[int], roots: Mapping[int | None, str], fragments: Sequence[FragmentMetadata]
) -> tuple[bool, tuple[LanceSegment, ...]]:
    segments = tuple(
        LanceSegment(
            str(segment.uuid),
            frozenset(segment.fragment_ids) & numbers,
            int(segment.dataset_version_at_last_update),
            segment_location(roots[segment.base_id], str(segment.uuid)),
            _overlaid(fragments, described.fields, int(segment.dataset_version_at_last_update)),
        )
        for segment in described.segments
    )
    return described.type_url == BLOOM_DETAILS, segments


def _overlaid(
    fragments: Sequence[FragmentMetadata], field_ids: Sequence[int], version: int
) -> dict[int, NDArray[np.int64]]:
    """By fragment, the rows whose values of these fields an overlay replaced after `version`, in order."""
    rows: dict[int, NDArray[np.int64]] = {}
    for fragment in fragments:
        for overlay in fragment.overlays:
            fields, offsets = overlay.data_file.fields, overlay.offsets
            of_each = offsets if isinstance(offsets, list) else [offsets] * len(fields)
            for field_id, replaced in zip(fields, of_each, strict=True):
                if field_id in field_ids and overlay.committed_version > version:
                    new = np.fromiter(replaced, np.int64)
                    rows[fragment.id] = np.union1d(rows.get(fragment.id, new), new)
    return rows


def fragments_as_indexed(snapshot: LanceSnapshot, segment: LanceSegment, column: str) -> frozenset[int]:
    """The fragments of a segment whose values of `column` are those of the version that was indexed, for certain.

    Lance lists in a segment also fragments that were added later, and those whose column was rewritten by a commit that
    does not say so. None is certain if the version is gone.
    """
    field_id = int(snapshot.declared.column_ids[column])
    try:
        with explained(snapshot.location):
            former = _places(snapshot.table.checkout_version(segment.version), field_id)
    except DataFileError:
        return frozenset()
    places = _places(snapshot.table, field_id)
    same = {number for number, paths in places.items() if former.get(number) == paths}
    return segment.fragment_ids & same - segment.overlaid.keys()


def _places(table: LanceTable, field_id: int) -> dict[int, list[str]]:
    """By fragment, the data files that have the values of a field. Lance never writes over a file."""
    fragments = [fragment.metadata for fragment in table.get_fragments()]
    return {each.id: [file.path for file in each.files if field_id in file.fields] for each in fragments}


def segment_location(root: str, uuid: str) -> str:
    """Where the file of a segment of the table at `root` is: a path or URL."""
    return f"{root}/_indices/{uuid}/bloomfilter.lance"


def read_segment(snapshot: LanceSnapshot, segment: LanceSegment) -> pa.Table:
    """The rows of a segment, unchecked; all of it is read, as Lance does.

    Raises
    ------
    DataFileError
        The file is missing or cannot be read.
    """
    with explained(segment.location):
        from lance.file import LanceFileReader  # noqa: PLC0415 - an extra

        return LanceFileReader(segment.location, storage_options=snapshot.storage_options or None).read_all().to_table()


def read_zones(snapshot: LanceSnapshot, segment: LanceSegment) -> ZoneTable:
    """The zones of a segment, by Lance's fragment ids.

    Raises
    ------
    DataFileError
        The file is missing, cannot be read, or holds what zones cannot be: before version 2 Lance wrote such.
    """
    try:
        return ZoneTable.from_arrow(read_segment(snapshot, segment))
    except InvalidZoneTableError as error:
        raise DataFileError(f"{segment.location} must hold zones", got=error) from error


def writer_of(snapshot: LanceSnapshot, segment: LanceSegment) -> str | None:
    """The version of Lance that committed a segment, such as `1.0.4`; None if its version of the table is gone.

    Spec: specs/lance.md#audit
    """
    try:
        with explained(snapshot.location):
            table = snapshot.table.checkout_version(segment.version + 1)
            uuids = {str(part.uuid) for index in table.describe_indices() for part in index.segments}
            return writer_version(table) if segment.uuid in uuids else None
    except DataFileError:
        return None
