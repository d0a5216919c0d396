"""Lance's own bloom filter indexes: which ones a version of a table has, and their zones.

An index is one or more segments. Each is a file `bloomfilter.lance`, whose rows are a zone table with Lance's fragment
ids, and names the fragments that it covers.

Spec: specs/lance.md#index
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zonebloom.bloom.zones import ZoneTable
from zonebloom.errors import DataFileError, InvalidZoneTableError
from zonebloom.formats.lance import LanceSnapshot, explained

if TYPE_CHECKING:
    import pyarrow as pa

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
    is_elsewhere: bool
    """Whether the file is in the folder of another table, as those of a shallow clone are."""


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
    indexes = [LanceIndex(each.name, tuple(each.field_names), *_kind_and_segments(each, numbers)) for each in described]
    return [index for index in indexes if column is None or column in index.columns]


def _kind_and_segments(described: Any, numbers: set[int]) -> tuple[bool, tuple[LanceSegment, ...]]:
    segments = tuple(
        LanceSegment(
            str(segment.uuid),
            frozenset(segment.fragment_ids) & numbers,
            int(segment.dataset_version_at_last_update),
            segment.base_id is not None,
        )
        for segment in described.segments
    )
    return described.type_url == BLOOM_DETAILS, segments


def segment_location(snapshot: LanceSnapshot, uuid: str) -> str:
    """Where the file of a segment is: a path or URL."""
    return f"{snapshot.location}/_indices/{uuid}/bloomfilter.lance"


def read_segment(snapshot: LanceSnapshot, segment: LanceSegment) -> pa.Table:
    """The rows of a segment, unchecked; all of it is read, as Lance does.

    Raises
    ------
    DataFileError
        The file is missing or cannot be read.
    """
    location = segment_location(snapshot, segment.uuid)
    if segment.is_elsewhere:
        raise DataFileError(
            f"an index of {snapshot.location} must lie in its folder",
            got=f"segment {segment.uuid} elsewhere",
            do="drop the index in Lance and make it anew",
        )
    with explained(location):
        from lance.file import LanceFileReader  # noqa: PLC0415 - an extra

        return LanceFileReader(location, storage_options=snapshot.storage_options or None).read_all().to_table()


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
        raise DataFileError(f"{segment_location(snapshot, segment.uuid)} must hold zones", got=error) from error


def writer_of(snapshot: LanceSnapshot, segment: LanceSegment) -> str | None:
    """The version of Lance that committed a segment, such as `1.0.4`; None if its version of the table is gone.

    Spec: specs/lance.md#audit
    """
    try:
        with explained(snapshot.location):
            table = snapshot.table.checkout_version(segment.version + 1)
            uuids = {str(part.uuid) for index in table.describe_indices() for part in index.segments}
            manifest = bytes(table._ds.serialized_manifest())  # noqa: SLF001 - the one way to the writer's version
    except DataFileError:
        return None
    writer = next((value for number, value in _fields(manifest) if number == _WRITER), b"")
    version = next((value for number, value in _fields(writer) if number == _WRITER_VERSION), None)
    return version.decode() if version is not None and segment.uuid in uuids else None


_WRITER, _WRITER_VERSION = 13, 2
"""Fields of Lance's messages `Manifest` and `Manifest.WriterVersion`."""
_VARINT, _LENGTH = 0, 2


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of the fields of a message of protobuf that have a length."""
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            _, position = _varint(message, position)
            continue
        length, position = _varint(message, position) if kind == _LENGTH else ({1: 8, 5: 4}[kind], position)
        if kind == _LENGTH:
            yield number, message[position : position + length]
        position += length


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:  # noqa: PLR2004 - the bit that says that another byte follows
            return value, position
        shift += 7
