"""Generated columns and Parquet files; nothing is downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_GROUPS = ((0, 8, 0), (9, 13, 8), (14, 18, 12), (19, 23, 16), (24, 36, 20))


def uuids(num_rows: int, rng: np.random.Generator) -> pa.Array:
    """Random UUIDs as strings of 36 characters."""
    raw = rng.integers(0, 256, (num_rows, 16), dtype=np.uint8)
    digits = np.empty((num_rows, 32), np.uint8)
    digits[:, 0::2], digits[:, 1::2] = _HEX[raw >> 4], _HEX[raw & 15]
    text = np.full((num_rows, 36), ord("-"), np.uint8)
    for start, stop, first in _GROUPS:
        text[:, start:stop] = digits[:, first : first + stop - start]
    offsets = np.arange(num_rows + 1, dtype=np.int32) * np.int32(36)
    return pa.Array.from_buffers(pa.string(), num_rows, [None, pa.py_buffer(offsets), pa.py_buffer(text)])


def integers(num_rows: int, rng: np.random.Generator) -> pa.Array:
    """Random int64."""
    return pa.array(rng.integers(-(2**62), 2**62, num_rows))


def write_files(folder: Path, tables: Any, **options: Any) -> list[Path]:
    """One Parquet file for each of `tables`, in order of name."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, table in enumerate(tables):
        paths.append(folder / f"part-{number:05}.parquet")
        pq.write_table(table, paths[-1], **options)
    return paths


def bare_read(paths: list[Path], column: str) -> int:
    """Read a column with one thread and drop it: what any index build has to pay at least."""
    return sum(
        batch.num_rows
        for path in paths
        for batch in pq.ParquetFile(path).iter_batches(65_536, columns=[column], use_threads=False)
    )
