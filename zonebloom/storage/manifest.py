"""Versions: which segments make up the index, and which lists name the data files that they describe.

A **version** is one JSON file, written once and only if absent; the highest number is current. It lists immutable
segments and fragment lists by name and checksum, so a commit adds and drops whole files, a reader keeps what it opened,
and of two writers one wins.

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

from zonebloom.errors import ConcurrentCommitError, CorruptIndexError, UnsupportedFormatError
from zonebloom.storage.fragments import FragmentListEntry
from zonebloom.storage.level import LevelEntry
from zonebloom.storage.segment import Runs, SegmentEntry, checksum
from zonebloom.storage.stores.store import Store

__all__ = ["ColumnEntry", "Manifest", "commit", "list_versions", "named_paths", "read_version", "version_path"]

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
    """Probability that was asked for."""
    sizing: str
    """How the number of blocks follows from it."""
    segments: tuple[SegmentEntry, ...]
    """Where the filters are."""
    unfit: Runs = ()
    """Ids of the fragments that were read and have no zones, for their values do not convert to the type."""
    levels: tuple[LevelEntry, ...] = ()
    """Filters above the zones, from the fragments up."""
    is_unfinished: bool = False
    """Whether the build that made the column has not come to its end; built again, it goes on."""

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of all segments, those of the levels too."""
        above = (segment for level in self.levels for segment in level.segments)
        return tuple(segment.path for segment in (*self.segments, *above))

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
    """What made it: build, refresh, optimize, …"""
    dataset: dict[str, Any]
    """How the data set is found and laid out, as `datasets` wrote it."""
    schema: pa.Schema
    """Schema of the data set, partition columns included."""
    next_fragment_id: int
    """Least id that was never used."""
    columns: tuple[ColumnEntry, ...]
    """The indexed columns."""
    fragment_lists: tuple[FragmentListEntry, ...]
    """Where the fragments are."""
    dropped: Runs = ()
    """Half-open runs of the fragment ids that are gone."""
    committed_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"))
    """When, in UTC."""
    writer: str = "zonebloom"
    """What wrote it."""

    def column(self, name: str) -> ColumnEntry | None:
        """The entry of column `name`, if it is indexed."""
        return next((entry for entry in self.columns if entry.name == name), None)

    def following(self, operation: str, **changes: Any) -> Manifest:
        """The next version, with `changes`."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        following: dict[str, Any] = {"version": self.version + 1, "operation": operation, "committed_at": now}
        return replace(self, **following | changes)


def version_path(version: int) -> str:
    """Path of a version file in the index directory."""
    return f"versions/{version:020d}.json"


def named_paths(manifest: Manifest) -> set[str]:
    """Paths of all files that a version may need: whatever its body says that lies in one of their folders.

    Those of later formats are among them, and data files that happen to be in folders of such names.
    """
    found: set[str] = set()
    pending: list[Any] = [_body(manifest)]
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            pending += one.values()
        elif isinstance(one, list):
            pending += one
        elif isinstance(one, str) and one.startswith(("columns/", "fragments/")):
            found.add(one)
    return found


def list_versions(store: Store) -> list[int]:
    """Numbers of all versions, ascending."""
    matches = (_VERSION_NAME.fullmatch(name) for name in store.list("versions"))
    return sorted(int(match[1]) for match in matches if match)


def _encode_schema(schema: pa.Schema) -> str:
    return str(schema.serialize().to_pybytes().hex())


def _decode_schema(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(text)))


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


def commit(store: Store, manifest: Manifest) -> None:
    """Make `manifest` the current version.

    A store that sent the request twice, as its answer was lost, finds its own version there: then it is committed.

    Raises
    ------
    ConcurrentCommitError
        Another commit took that number first; nothing was changed.

    Spec: specs/index-format.md#commit
    """
    body = _body(manifest)
    document = {
        "format": "zonebloom",
        "format_version": FORMAT_VERSION,
        "commit": uuid.uuid4().hex,  # no other writer has these bytes: a lost answer is no lost race
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
        It is missing, or differs from its checksum.
    """
    path = version_path(version)
    try:
        document = json.loads(store.read(path))
        if document["format"] != "zonebloom":
            raise CorruptIndexError(f"{path} must be a version file of zonebloom, got format {document['format']!r}")
        if document["format_version"] > FORMAT_VERSION:
            message = (
                f"{path} must have format_version <= {FORMAT_VERSION}, got {document['format_version']}; "
                "a newer zonebloom wrote it: upgrade this one"
            )
            raise UnsupportedFormatError(message)
        body = document["body"]
        found = checksum(_canonical(body))
        if found != document["checksum"]:
            raise CorruptIndexError(f"{path} must have checksum {document['checksum']}, got {found}")
        if body["version"] != version:
            raise CorruptIndexError(f"{path} must hold version {version}, got {body['version']}")
        return _manifest(body)
    except FileNotFoundError as error:
        raise CorruptIndexError(f"{path} must exist, got no such file") from error
    except (KeyError, TypeError, ValueError, RecursionError, pa.ArrowException) as error:
        raise CorruptIndexError(f"{path} must be a version file, got {type(error).__name__}: {error}") from error


def _manifest(body: dict[str, Any]) -> Manifest:
    columns = tuple(
        ColumnEntry(
            name=column["name"],
            column_type=_decode_schema(column["arrow_type"]).field(0).type,
            rows_per_zone=column["rows_per_zone"],
            fpp=column["fpp"],
            sizing=column["sizing"],
            segments=tuple(SegmentEntry.from_json(segment) for segment in column["segments"]),
            levels=tuple(LevelEntry.from_json(level) for level in column["levels"]),
            unfit=tuple((start, stop) for start, stop in column["unfit"]),
            is_unfinished=bool(column.get("unfinished", False)),
        )
        for column in body["columns"]
    )
    return Manifest(
        version=body["version"],
        operation=body["operation"],
        committed_at=body["committed_at"],
        writer=body["writer"],
        dataset=body["dataset"],
        schema=_decode_schema(body["schema"]),
        next_fragment_id=body["next_fragment_id"],
        columns=columns,
        fragment_lists=tuple(FragmentListEntry(*entry) for entry in body["fragments"]),
        dropped=tuple((start, stop) for start, stop in body["dropped"]),
    )
