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
from zonebloom.bloom.sizing import SIZINGS
from zonebloom.formats import Declared, column_id
from zonebloom.ground.errors import ConcurrentCommitError, CorruptIndexError, UnsupportedFormatError
from zonebloom.storage.arrow_file import read_schema, reading
from zonebloom.storage.fragments import FragmentListEntry
from zonebloom.storage.json_fields import (
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
from zonebloom.storage.options import KINDS, IndexOptions, Kind
from zonebloom.storage.segment import Runs, SegmentEntry, Span, checksum, count_zones
from zonebloom.stores.store import Store

FORMAT_VERSION = 2
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
    """Requested false positive probability."""
    sizing: str
    """The rule that gives a filter's number of blocks for `fpp`."""
    segments: tuple[SegmentEntry, ...]
    """The segments of the column."""
    column_id: str = field(kw_only=True)
    """The id of the column that its zones describe; see `column_id`."""
    kind: Kind = "bloom"
    """The segments that are made: bloom filters (`zones` and `slices`), locators, or both."""
    unfit: Runs = ()
    """Ids of fragments without zones, because their values do not convert to the type."""
    is_unfinished: bool = False
    """Whether the build of the column has not ended; the same build call resumes it."""

    @property
    def options(self) -> IndexOptions:
        """The options of further builds; filters that were imported have no rule for their sizes."""
        sizing = self.sizing if self.sizing in SIZINGS else "power_of_two"
        return IndexOptions(self.rows_per_zone, self.fpp, sizing, self.kind)

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of all segments."""
        return tuple(segment.path for segment in self.segments)

    @property
    def num_zones(self) -> int:
        """Zones over all segments, including zones of removed files."""
        return count_zones(self.segments)

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

    def replaced_columns(self, declared: Declared | None) -> frozenset[str]:
        """Indexed columns whose name is now that of another column or of none; their zones describe the former one."""
        return frozenset(entry.name for entry in self.columns if entry.column_id != column_id(entry.name, declared))

    def following(self, operation: str, **changes: Any) -> Manifest:
        """The next version, with `changes`."""
        following: dict[str, Any] = {"version": self.version + 1, "operation": operation, "committed_at": _now()}
        return replace(self, **following | changes)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def version_path(version: int) -> str:
    """Path of a version file in the index directory."""
    return f"versions/{version:020d}.json"


def named_paths(store: Store, version: int) -> set[str]:
    """Every text in a version file that begins like the path of an index file.

    So the result includes paths in entries of a newer format, and a vacuum does not delete files that such entries
    name. It also includes paths of data files in folders with the same names.

    Raises
    ------
    UnsupportedFormatError, CorruptIndexError
        As `read_version`.
    """
    paths: set[str] = set()
    path = version_path(version)
    with reading(path):
        pending: list[Any] = [_document(path, store.read(path))["body"]]
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
    is_table = manifest.dataset["kind"] != "parquet"
    ids = {"column_ids": {column.name: column.column_id for column in manifest.columns}} if is_table else {}
    return {
        **_fields(manifest, "version", "operation", "committed_at", "writer", "next_fragment_id"),
        "dataset": manifest.dataset | ids,
        "schema": _encode_schema(manifest.schema),
        "columns": [
            {
                **_fields(column, "name", "rows_per_zone", "fpp", "sizing", "kind", "unfit"),
                "type": str(column.column_type),
                "arrow_type": _encode_schema(pa.schema([pa.field("", column.column_type)])),
                "unfinished": column.is_unfinished,
                "segments": [_fields(entry, *SegmentEntry.__slots__) for entry in column.segments],
            }
            for column in manifest.columns
        ],
        "fragments": manifest.fragment_lists,
        "dropped": manifest.dropped,
    }


def _fields(part: object, *names: str) -> dict[str, Any]:
    return {name: getattr(part, name) for name in names}


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
    pairs = array(pair(lambda start, stop: (start, stop), _ID, integer(most=MAX_FRAGMENT_ID + 1)))(value)
    edges = [edge for run in pairs for edge in run]
    if edges != sorted(edges) or any(start == stop for start, stop in pairs):
        raise ValueError("must be half-open runs in order, got others")
    return pairs


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
    """The checked description of a data set; an unknown kind of data set is not checked."""
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
_COLUMN = _part(
    name=_TEXT,
    arrow_type=_schema,
    rows_per_zone=integer(1, 2**32 - 1),
    fpp=number(0, 1),
    sizing=one_of(*SIZINGS, "imported"),
    segments=array(_SEGMENT),
    kind=one_of(*KINDS),
    unfit=_runs,
    unfinished=boolean,
)
_LEVELS = _part(
    sizing=_TEXT,
    segments=array(lambda value: value),
    levels=array(_part(name=_TEXT, segments=array(lambda value: value))),
)


def _column_1(value: Any) -> dict[str, Any]:
    """A column of format 1; its locators are in a level, or replace the filters.

    The levels `fragment` and `dataset` are ignored: they only excluded more zones, so no answer is wrong without them.

    Spec: specs/index-format.md#format-1
    """
    former = _LEVELS(value)
    locators = [segment for level in former["levels"] if level["name"] == "locator" for segment in level["segments"]]
    is_alone, has_any = former["sizing"] == "locator", any(level["name"] == "locator" for level in former["levels"])
    kind = "locator" if is_alone else "both" if has_any else "bloom"
    sizing = "power_of_two" if is_alone else former["sizing"]
    return _COLUMN({**value, "kind": kind, "sizing": sizing, "segments": [*former["segments"], *locators]})


_LIST = pair(
    FragmentListEntry, text(rf"fragments/{_FILE}\.arrow", "fragments/<uuid>.arrow"), integer(), integer(), _DIGEST
)
_BODY, _BODY_1 = (
    _part(
        version=integer(1),
        operation=_TEXT,
        committed_at=_moment,
        writer=_TEXT,
        dataset=_dataset,
        schema=_schema,
        next_fragment_id=_ID,
        columns=array(column),
        fragments=array(_LIST),
        dropped=_runs,
    )
    for column in (_COLUMN, _column_1)
)
_FORMAT = _part(format=one_of("zonebloom"), format_version=integer(1))
_DOCUMENT = _part(checksum=_DIGEST, body=_part())


def _column(name: str, arrow_type: pa.Schema, *, unfinished: bool, **entry: Any) -> ColumnEntry:
    return ColumnEntry(name=name, column_type=arrow_type.field(0).type, is_unfinished=unfinished, **entry)


def _manifest(body: Any, format_version: int) -> Manifest:
    """The version of a body. Raises the errors of its parts."""
    parts = (_BODY_1 if format_version == 1 else _BODY)(body)
    ids = parts["dataset"].pop("column_ids", {})
    columns = tuple(
        _column(**column, column_id=ids.get(column["name"], column["name"])) for column in parts.pop("columns")
    )
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

    If the response of the first request is lost, the store repeats the request and finds its own version. That counts
    as a commit.

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
        "commit": uuid.uuid4().hex,  # unique bytes: after a lost response the writer recognises its own version
        "checksum": checksum(_canonical(body)),
        "body": body,
    }
    text = json.dumps(document, indent=1, ensure_ascii=False)
    data = text.encode()
    path = version_path(manifest.version)
    if not store.create(path, data) and not _holds(store, path, data):
        raise ConcurrentCommitError(
            f"version {manifest.version} must be free to commit {manifest.operation}",
            got=f"one that another writer committed first at {path}",
            do="run again on top of it",
        )


def _holds(store: Store, path: str, data: bytes) -> bool:
    try:
        return store.read(path) == data
    except FileNotFoundError:
        return False


def read_version(store: Store, version: int) -> Manifest:
    """Read and check version number `version`.

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
            raise CorruptIndexError(f"{path} must hold version {version}", got=manifest.version)
        return manifest


def _parsed(path: str, data: bytes) -> Manifest:
    """The version in the bytes `data` of the file `path`. Raises the errors of its parts."""
    document = _document(path, data)
    return _manifest(document["body"], document["format_version"])


def _document(path: str, data: bytes) -> dict[str, Any]:
    """The checked object in the bytes `data` of the file `path`. Raises the errors of its parts."""
    document: dict[str, Any] = json.loads(data)
    format_version = _FORMAT(document)["format_version"]
    if format_version > FORMAT_VERSION:
        raise UnsupportedFormatError.newer(f"{path} must have format_version <= {FORMAT_VERSION}", format_version)
    wanted, actual = _DOCUMENT(document)["checksum"], checksum(_canonical(document["body"]))
    if actual != wanted:
        raise CorruptIndexError(f"{path} must have checksum {wanted}", got=actual)
    return document
