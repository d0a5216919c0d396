"""Versions: the segments of an index, and the lists of the data files that they describe.

A **version** is one JSON file, written once and only if absent; the highest number is current. It lists immutable
segments and fragment lists by name and checksum. So a commit adds and drops whole files, a reader keeps its version,
and only one of two writers wins.

Spec: specs/index-format.md#versions
"""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from zonebloom.bloom.addresses import MAX_FRAGMENT_ID
from zonebloom.errors import ConcurrentCommitError, CorruptIndexError, UnsupportedFormatError
from zonebloom.options import LEVELS, SIZINGS
from zonebloom.storage.arrow_file import read_schema, reading
from zonebloom.storage.fragments import FragmentListEntry
from zonebloom.storage.level import LevelEntry
from zonebloom.storage.segment import Runs, SegmentEntry, Span, checksum
from zonebloom.storage.shapes import (
    Shape,
    array,
    boolean,
    integer,
    mapping,
    number,
    one_of,
    optional,
    pair,
    record,
    text,
)
from zonebloom.storage.stores.store import Store

FORMAT_VERSION = 1
_VERSION_NAME = re.compile(r"(\d{20})\.json")


@dataclass(frozen=True, slots=True)
class ColumnEntry:
    """One indexed column."""

    name: str
    """Name of the column; leaves of structs have dots."""
    column_type: pa.DataType
    """Arrow type whose bytes are hashed."""
    rows_per_zone: int
    """Rows of a full zone."""
    fpp: float
    """False positive probability that was asked for."""
    sizing: str
    """The rule that gives a filter's number of blocks for `fpp`; `locator` if there are locators instead of filters."""
    segments: tuple[SegmentEntry, ...]
    """Where the filters are, or the locators that stand for them."""
    unfit: Runs = ()
    """Ids of the fragments that were read and have no zones: their values do not convert to the type."""
    levels: tuple[LevelEntry, ...] = ()
    """Filters above the zones, from the fragments up."""
    is_unfinished: bool = False
    """Whether the build of the column has not ended; the same build call resumes it."""

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of all segments, also of those of the levels."""
        above = (segment for level in self.levels for segment in level.segments)
        return tuple(segment.path for segment in (*self.segments, *above))

    @property
    def has_filters(self) -> bool:
        """Whether each zone has a filter; else `segments` are locators."""
        return self.sizing != "locator"

    @property
    def num_zones(self) -> int:
        """Zones over all segments."""
        return sum(segment.num_zones for segment in self.segments)

    @property
    def index_bytes(self) -> int:
        """Bytes on disk over all segments."""
        return sum(segment.num_bytes for segment in self.segments)


@dataclass(frozen=True, slots=True)
class Manifest:
    """One version of the index."""

    version: int
    """Number of the commit, from 1."""
    operation: str
    """The operation that committed it: build, refresh, optimize, …"""
    dataset: dict[str, Any]
    """Location and layout of the data set, as `formats` wrote them."""
    schema: pa.Schema
    """Schema of the data set, partition columns included."""
    next_fragment_id: int
    """The least fragment id that was never used."""
    columns: tuple[ColumnEntry, ...]
    """The indexed columns."""
    fragment_lists: tuple[FragmentListEntry, ...]
    """The lists of the fragments."""
    dropped: Runs = ()
    """Half-open runs of the ids of dropped fragments."""
    committed_at: str = field(default_factory=lambda: _now())  # noqa: PLW0108 -- defined below
    """Time of the commit, in UTC."""
    writer: str = "zonebloom"
    """The library that wrote it."""

    def column(self, name: str) -> ColumnEntry | None:
        """The entry of column `name`, if it is indexed."""
        return next((entry for entry in self.columns if entry.name == name), None)

    def following(self, operation: str, **changes: Any) -> Manifest:
        """The next version, with `changes`."""
        following: dict[str, Any] = {"version": self.version + 1, "operation": operation, "committed_at": _now()}
        return replace(self, **following | changes)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def version_path(version: int) -> str:
    """Path of a version file in the index directory."""
    return f"versions/{version:020d}.json"


def named_paths(manifest: Manifest) -> set[str]:
    """Every text of the version file that begins like the path of an index file.

    So paths in entries of a newer format are among them, and vacuum does not delete files of a newer writer. Paths of
    data files in folders of the same names are among them too.
    """
    paths: set[str] = set()
    pending: list[Any] = [_body(manifest)]
    while pending:
        value = pending.pop()
        if isinstance(value, (dict, list)):
            pending += value.values() if isinstance(value, dict) else value
        elif isinstance(value, str) and value.startswith(("columns/", "fragments/")):
            paths.add(value)
    return paths


def list_versions(store: Store) -> list[int]:
    """Numbers of all versions, ascending."""
    matches = (_VERSION_NAME.fullmatch(name) for name in store.list("versions"))
    numbers = (int(match[1]) for match in matches if match)
    return sorted(number for number in numbers if number < 2**63)


def _encode_schema(schema: pa.Schema) -> str:
    return str(schema.serialize().to_pybytes().hex())


def _body(manifest: Manifest) -> dict[str, Any]:
    return {
        "version": manifest.version,
        "operation": manifest.operation,
        "committed_at": manifest.committed_at,
        "writer": manifest.writer,
        "dataset": manifest.dataset,
        "schema": _encode_schema(manifest.schema),
        "next_fragment_id": manifest.next_fragment_id,
        "columns": [
            {
                "name": column.name,
                "type": str(column.column_type),
                "arrow_type": _encode_schema(pa.schema([pa.field("", column.column_type)])),
                "rows_per_zone": column.rows_per_zone,
                "fpp": column.fpp,
                "sizing": column.sizing,
                "segments": [segment.to_json() for segment in column.segments],
                "levels": [level.to_json() for level in column.levels],
                "unfit": [list(run) for run in column.unfit],
                "unfinished": column.is_unfinished,
            }
            for column in manifest.columns
        ],
        "fragments": [
            [entry.path, entry.num_fragments, entry.num_bytes, entry.checksum] for entry in manifest.fragment_lists
        ],
        "dropped": [list(run) for run in manifest.dropped],
    }


def _canonical(body: dict[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


# --- from JSON --------------------------------------------------------------------------------------------------------

_ID = integer(most=MAX_FRAGMENT_ID)
_DIGEST = text("[0-9a-f]{16}", "16 hexadecimal digits")
_FILE = "[0-9a-f-]{36}"
_TEXT = text()
_TEXTS = array(_TEXT)


def _part(**fields: Shape[Any]) -> Shape[dict[str, Any]]:
    return record(dict, **fields)


def _runs(value: Any) -> Runs:
    found = array(pair(lambda start, stop: (start, stop), _ID, integer(most=MAX_FRAGMENT_ID + 1)))(value)
    edges = [edge for run in found for edge in run]
    if edges != sorted(edges) or any(start == stop for start, stop in found):
        raise ValueError("must be half-open runs in order, got others")
    return found


def _schema(value: Any) -> pa.Schema:
    return read_schema(text("[0-9a-f]*", "hexadecimal digits")(value))


def _moment(value: Any) -> str:
    if datetime.fromisoformat(_TEXT(value)).tzinfo is None:
        raise ValueError(f"must be a time with its zone, got {value}")
    return str(value)


def _relative(value: Any) -> str:
    """The path of a data file, which must stay below the root of the data set."""
    if any(part in ("", ".", "..") for part in _TEXT(value).split("/")):
        raise ValueError(f"must be a path below the data set, got {value!r}")
    return str(value)


_DATASETS = {
    "parquet": _part(
        root=text(r"\.\.|beside|/[^\0]*|[A-Za-z][\w+.-]*://[^\0]+", ".., beside, an absolute path or a URL"),
        layout=one_of("folder", "file", "files"),
        files=array(_relative),
    ),
    "delta": _part(root=_TEXT),
    "iceberg": _part(root=_TEXT, metadata=optional(_TEXT), catalog=optional(_TEXT), name=optional(_TEXTS)),
}


def _dataset(value: Any) -> dict[str, Any]:
    """The description of a data set, checked; a kind of data set that is unknown here is not checked."""
    kind = _part(kind=_TEXT)(value)["kind"]
    _DATASETS.get(kind, dict)(value)
    if value.get("layout") == "file" and len(value["files"]) != 1:
        raise ValueError(f"must have one file in the layout file, got {len(value['files'])}")
    _TEXTS(value.get("partition_columns", []))
    mapping(_TEXT)(value.get("column_ids", {}))
    return dict(value)


_SEGMENT = record(
    SegmentEntry,
    path=text(rf"columns/[\w ~%-]{{1,300}}/{_FILE}(\.[a-z]+)+", "columns/<column>/<uuid>.<kind>"),
    kind=_TEXT,
    num_zones=integer(),
    filter_bytes=integer(),
    fragments=_runs,
    spans=array(pair(Span, integer(), text("([0-9a-f]{16})?", "16 hexadecimal digits or none")), least=1),
)
_LEVEL = record(LevelEntry, name=one_of(*LEVELS[1:]), num_values=integer(), fpp=number(0, 1), segments=array(_SEGMENT))
_COLUMN = _part(
    name=_TEXT,
    arrow_type=_schema,
    rows_per_zone=integer(1, 2**32 - 1),
    fpp=number(0, 1),
    sizing=one_of(*SIZINGS, "imported", "locator"),
    segments=array(_SEGMENT),
    levels=array(_LEVEL),
    unfit=_runs,
    unfinished=boolean,
)
_LIST = pair(
    FragmentListEntry,
    text(rf"fragments/{_FILE}\.arrow", "fragments/<uuid>.arrow"),
    integer(),
    integer(),
    _DIGEST,
)
_BODY = _part(
    version=integer(1),
    operation=_TEXT,
    committed_at=_moment,
    writer=_TEXT,
    dataset=_dataset,
    schema=_schema,
    next_fragment_id=_ID,
    columns=array(_COLUMN),
    fragments=array(_LIST),
    dropped=_runs,
)
_FORMAT = _part(format=one_of("zonebloom"), format_version=integer(1))
_DOCUMENT = _part(checksum=_DIGEST, body=_part())


def _column(name: str, arrow_type: pa.Schema, *, unfinished: bool, **entry: Any) -> ColumnEntry:
    return ColumnEntry(name=name, column_type=arrow_type.field(0).type, is_unfinished=unfinished, **entry)


def _manifest(body: Any) -> Manifest:
    """The version of a body. Raises the errors of its parts."""
    parts = _BODY(body)
    columns = tuple(_column(**column) for column in parts.pop("columns"))
    manifest = Manifest(columns=columns, fragment_lists=parts.pop("fragments"), **parts)
    files = [path for column in columns for path in column.files] + [entry.path for entry in manifest.fragment_lists]
    names = [column.name for column in columns]
    if len({*files, *names}) != len(files) + len(names):
        raise ValueError("each file and each column must be named once")
    if manifest.dataset["kind"] == "parquet":
        types = [manifest.schema.field(name).type for name in manifest.dataset.get("partition_columns", [])]
        if not {pa.int32(), pa.string()}.issuperset(types):
            raise ValueError(f"partition columns must be of int32 or string, got {types}")
    return manifest


# --- reading and writing ----------------------------------------------------------------------------------------------


def commit(store: Store, manifest: Manifest) -> None:
    """Make `manifest` the current version.

    If the answer of the first request is lost, the store sends it again and finds its own version: that is a commit.

    Raises
    ------
    ConcurrentCommitError
        Another commit took the number first; nothing was changed.

    Spec: specs/index-format.md#commit
    """
    body = _body(manifest)
    document = {
        "format": "zonebloom",
        "format_version": FORMAT_VERSION,
        "commit": uuid.uuid4().hex,  # makes the bytes unique: after a lost answer the writer recognises its own version
        "checksum": checksum(_canonical(body)),
        "body": body,
    }
    text = json.dumps(document, indent=1, ensure_ascii=False)
    data = text.encode()
    path = version_path(manifest.version)
    if not store.create(path, data) and not _holds(store, path, data):
        message = (
            f"version {manifest.version} must be free to commit {manifest.operation}, got one that another writer "
            f"committed first at {path}; run again on top of it"
        )
        raise ConcurrentCommitError(message)


def _holds(store: Store, path: str, data: bytes) -> bool:
    try:
        return store.read(path) == data
    except FileNotFoundError:
        return False


def read_version(store: Store, version: int) -> Manifest:
    """Version number `version`, checked.

    Raises
    ------
    UnsupportedFormatError
        A newer zonebloom wrote it.
    CorruptIndexError
        The version file is missing, or differs from its checksum.
    """
    path = version_path(version)
    with reading(path):
        manifest = _parsed(path, store.read(path))
        if manifest.version != version:
            raise CorruptIndexError(f"{path} must hold version {version}, got {manifest.version}")
        return manifest


def _parsed(path: str, data: bytes) -> Manifest:
    """The version that the file `path` holds, whose bytes are `data`. Raises the errors of its parts."""
    document = json.loads(data)
    format_version = _FORMAT(document)["format_version"]
    if format_version > FORMAT_VERSION:
        message = (
            f"{path} must have format_version <= {FORMAT_VERSION}, got {format_version}; "
            "a newer zonebloom wrote it: upgrade this one"
        )
        raise UnsupportedFormatError(message)
    wanted, found = _DOCUMENT(document)["checksum"], checksum(_canonical(document["body"]))
    if found != wanted:
        raise CorruptIndexError(f"{path} must have checksum {wanted}, got {found}")
    return _manifest(document["body"])
