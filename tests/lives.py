"""What the tests of an index's life have in common: files with one key and one text a row, and all rows found."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import zonebloom as zb


def write(path: Path, keys, extra: int = 0) -> None:
    """One file, whole from its first moment, with a time that is long past, so that no build waits."""
    staged = path.with_name(f".{path.name}")
    pq.write_table(pa.table({"k": pa.array(keys, pa.int64()), "s": [f"text {key}" for key in keys]}), staged)
    when = 1_700_000_000_000_000_001 + extra
    os.utime(staged, ns=(when, when))
    staged.rename(path)


def lake_of(folder: Path, *files: Iterable[int]) -> Path:
    """A new folder `lake` in `folder`, with a file for the keys of each of `files`."""
    root = folder / "lake"
    root.mkdir()
    for number, keys in enumerate(files):
        write(root / f"f{number}.parquet", keys)
    return root


def hundreds(count: int) -> list[range]:
    """The keys of so many files of a hundred rows."""
    return [range(first, first + 100) for first in range(0, 100 * count, 100)]


def rows_of(root: Path) -> list[int]:
    """The keys of all rows, in order of path and row."""
    files = sorted(path for path in root.iterdir() if path.suffix == ".parquet" and not path.name.startswith("."))
    return [key for path in files for key in pq.read_table(path)["k"].to_pylist()]


def assert_every_row_is_found(root: Path, index: zb.Index, *, is_fresh: bool = False) -> None:
    """Whether or not the index knows a file, its rows are found; if it is fresh, it knows all, and prunes."""
    keys = rows_of(root)
    assert index.to_table(zb.IsIn("k", keys))["k"].to_pylist() == keys
    for key in keys[:: max(1, len(keys) // 3)]:
        assert index.search(zb.Equals("k", key)).row_ranges.num_rows
    for column, values in (("k", keys), ("s", [f"text {key}" for key in keys])):
        if column in index.columns:
            assert all(index.exists(column, values).to_pylist())
    if is_fresh:
        result = index.search(zb.Equals("k", keys[0]), strict=True)
        assert not result.reasons
        assert result.kept.rows < result.total.rows or len(keys) <= 20
        assert index.verify(sample=1.0).is_sound
