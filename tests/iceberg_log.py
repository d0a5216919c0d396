"""Delete files committed by hand, after the Iceberg spec: what pyiceberg reads but does not write; and races."""

from __future__ import annotations

import json
import struct
import uuid
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyroaring
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.typedef import Record

_POSITIONS = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "2147483545"}),
    ]
)


class RacingCatalog(SqlCatalog):
    """A catalog in which others commit after a writer has planned and before its commit lands."""

    rounds: list[list[Callable[[], Any]]]
    """What the others do before the next commit, before the one after it, and so on."""
    instead: Exception | None
    """What the writer gets in place of the answer to the next commit, which lands."""

    def __init__(self, *args: Any, **properties: str) -> None:
        super().__init__(*args, **properties)
        self.rounds, self.instead = [], None

    def commit_table(self, table: Any, requirements: Any, updates: Any) -> Any:
        rounds, self.rounds = self.rounds, []
        for other in rounds[0] if rounds else ():
            other()
        self.rounds = rounds[1:]
        answer = super().commit_table(table, requirements, updates)
        if self.instead is None:
            return answer
        error, self.instead = self.instead, None
        raise error


class _DeleteManifest(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def position_deletes(path: Path, rows: Mapping[str, Iterable[int]]) -> None:
    """A Parquet file of the rows that are deleted from each data file, in order."""
    pairs = sorted((file, row) for file, positions in rows.items() for row in positions)
    columns = [[file for file, _ in pairs], [row for _, row in pairs]]
    pq.write_table(pa.table(columns, schema=_POSITIONS), path)


def puffin(path: Path, rows: Mapping[str, Iterable[int]]) -> None:
    """A Puffin file with a deletion vector for each data file."""
    data, blobs = bytearray(b"PFA1"), []
    for file, positions in rows.items():
        bits = pyroaring.BitMap(positions).serialize()
        body = b"\xd1\xd3\x39\x64" + struct.pack("<QI", 1, 0) + bits
        blob = struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))
        properties = {"referenced-data-file": file, "cardinality": str(len(set(positions)))}
        place = {"offset": len(data), "length": len(blob), "snapshot-id": -1, "sequence-number": -1}
        blobs.append({"type": "deletion-vector-v1", "fields": [2147483645], "properties": properties, **place})
        data += blob
    footer = json.dumps({"blobs": blobs}).encode()
    path.write_bytes(bytes(data) + b"PFA1" + footer + struct.pack("<I", len(footer)) + b"\0\0\0\0PFA1")


def delete_rows(table: Table, path: Path, rows: Mapping[str, Iterable[int]], **place: Any) -> None:
    """Delete rows of data files, by positions in a Parquet file or by vectors in a Puffin file."""
    (puffin if path.suffix == ".puffin" else position_deletes)(path, rows)
    commit_deletes(table, path, DataFileContent.POSITION_DELETES, **place)


def commit_deletes(
    table: Table, path: Path, content: DataFileContent, *, partition: Record | None = None, url: str | None = None
) -> None:
    """Make a delete file a part of the table, as a new snapshot; `url` is where a copy of it is."""
    current = table.current_snapshot()
    assert current is not None
    snapshot_id, sequence_number = uuid.uuid4().int >> 65, table.metadata.last_sequence_number + 1
    folder = f"{table.location()}/metadata"
    file_format = FileFormat.PUFFIN if path.suffix == ".puffin" else FileFormat.PARQUET
    deletes = DataFile.from_args(
        content=content,
        file_path=url or f"file://{path}",  # pyiceberg decodes no location
        file_format=file_format,
        partition=partition or Record(),
        record_count=1,
        file_size_in_bytes=path.stat().st_size,
        equality_ids=[1] if content == DataFileContent.EQUALITY_DELETES else None,
    )
    output = table.io.new_output(f"{folder}/{snapshot_id}-m0.avro")
    with _DeleteManifest(table.spec(), table.schema(), output, snapshot_id, "null") as writer:
        writer.add_entry(
            ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=snapshot_id, data_file=deletes)
        )
    listed = table.io.new_output(f"{folder}/snap-{snapshot_id}.avro")
    with write_manifest_list(2, listed, snapshot_id, current.snapshot_id, sequence_number, "null") as manifests:
        manifests.add_manifests([*current.manifests(table.io), writer.to_manifest_file()])
    snapshot = Snapshot(
        **{
            "snapshot-id": snapshot_id,
            "parent-snapshot-id": current.snapshot_id,
            "sequence-number": sequence_number,
            "manifest-list": listed.location,
            "summary": Summary(Operation.DELETE),
            "schema-id": table.metadata.current_schema_id,
        }
    )
    reference = SetSnapshotRefUpdate(**{"ref-name": "main", "type": "branch", "snapshot-id": snapshot_id})
    table._do_commit((AddSnapshotUpdate(snapshot=snapshot), reference), ())
