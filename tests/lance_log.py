"""Commits to Lance tables for which pylance 14 has no method of its own, and which it reads on request."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
from lance.file import LanceFileWriter
from lance.fragment import DataFile

OVERLAYS = "LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES"
"""The variable of the environment by which Lance reads tables with overlays."""


def overlay(table: lance.LanceDataset, fragment_id: int, column: str, values: Mapping[int, Any]) -> lance.LanceDataset:
    """Replace values of a top-level column in rows of a fragment, by offset, without a rewrite of its files."""
    os.environ[OVERLAYS] = "1"
    offsets, field = sorted(values), table.schema.field(column)
    path = Path(table.uri) / "data" / f"{uuid.uuid4().hex}.lance"
    with LanceFileWriter(str(path), pa.schema([field]), version=table.data_storage_version) as writer:
        writer.write_batch(
            pa.table([pa.array([values[row] for row in offsets], field.type)], schema=pa.schema([field]))
        )
    base = table.get_fragment(fragment_id).metadata.files[0]
    field_id = next(each.id() for each in table.lance_schema.fields() if each.name() == column)
    versions = base.file_major_version, base.file_minor_version
    data_file = DataFile(path.name, [field_id], [0], *versions, file_size_bytes=path.stat().st_size)
    replaced = lance.LanceOperation.DataOverlayFile(data_file, offsets)
    operation = lance.LanceOperation.DataOverlay([lance.LanceOperation.DataOverlayGroup(fragment_id, [replaced])])
    return lance.LanceDataset.commit(table, operation, read_version=table.version)
