"""Commits written by hand, after the Delta protocol: what deltalake reads but does not write.

Deletion vectors are 64-bit Roaring bitmaps with the magic number of the protocol; inline ones are Z85, files of them
begin with a version byte, and each has its size before it and a CRC-32 behind.
"""

from __future__ import annotations

import json
import struct
import uuid
import zlib
from pathlib import Path
from typing import Any

import pyroaring

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_MAGIC = 1681511377


def z85(data: bytes) -> str:
    """Each 4 bytes as 5 characters."""
    out = ""
    for first in range(0, len(data), 4):
        value, text = int.from_bytes(data[first : first + 4], "big"), ""
        for _digit in range(5):
            text = _Z85[value % 85] + text
            value //= 85
        out += text
    return out


def bitmap(rows: list[int]) -> bytes:
    """Row offsets as the protocol's array of Roaring bitmaps."""
    parts: dict[int, list[int]] = {}
    for row in rows:
        parts.setdefault(row >> 32, []).append(row & 0xFFFFFFFF)
    data = struct.pack("<IQ", _MAGIC, len(parts))
    return data + b"".join(struct.pack("<I", key) + pyroaring.BitMap(parts[key]).serialize() for key in sorted(parts))


def descriptor(root: Path, rows: list[int], kind: str) -> dict[str, Any]:
    """A deletion vector: inline (`i`), in a file of the table (`u`), or in one at an absolute path (`p`)."""
    data = bitmap(rows)
    description: dict[str, Any] = {"storageType": kind, "sizeInBytes": len(data), "cardinality": len(rows)}
    if kind == "i":
        return description | {"pathOrInlineDv": z85(data + b"\0" * (-len(data) % 4))}
    name = uuid.uuid4()
    file = root / "ab" / f"deletion_vector_{name}.bin"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"\x01" + struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data)))
    path = "ab" + z85(name.bytes) if kind == "u" else file.as_uri()
    return description | {"pathOrInlineDv": path, "offset": 1}


def actions(root: Path, kind: str) -> list[dict[str, Any]]:
    """All actions of a kind in the log, the oldest first."""
    lines = [line for file in sorted((root / "_delta_log").glob("*.json")) for line in file.read_text().splitlines()]
    return [action[kind] for action in map(json.loads, lines) if kind in action]


def commit(root: Path, *entries: dict[str, Any]) -> int:
    """Add a version to the log; its number."""
    log = root / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    version = len(list(log.glob("*.json")))
    lines = [*entries, {"commitInfo": {"timestamp": 1, "operation": "BY HAND", "operationParameters": {}}}]
    (log / f"{version:020d}.json").write_text("\n".join(map(json.dumps, lines)))
    return version


def delete_rows(root: Path, add: dict[str, Any], rows: list[int], kind: str = "u") -> dict[str, Any]:
    """Give the file of `add` a deletion vector, in place of the one that it has; its new `add`."""
    old = {key: add[key] for key in ("path", "partitionValues", "size", "deletionVector") if key in add}
    new = add | {"deletionVector": descriptor(root, rows, kind)}
    commit(
        root, {"remove": old | {"deletionTimestamp": 1, "dataChange": True, "extendedFileMetadata": True}}, {"add": new}
    )
    return new
