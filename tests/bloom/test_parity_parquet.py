"""The bitsets of zones equal what pyarrow writes into Parquet, at equal size and physical type.

Oracle: pyarrow 26, `write_table(bloom_filter_options=...)`; one row group is one zone. pyarrow folds a filter to the
data, so its size is not asked for but found.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zonebloom as zb
from tests.newer import need

ROWS = 900
RANDOM = np.random.default_rng(3)
NULLS = RANDOM.random(ROWS) < 0.15
INTEGERS = RANDOM.integers(-(2**62), 2**62, ROWS)
FLOATS = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, *RANDOM.normal(size=ROWS - 5)])
TEXTS = ["", "é", "\x00", *(f"{number:x}" * (number % 9) for number in range(ROWS - 3))]
KEYS = [uuid.UUID(int=number * 2**90 + number).bytes for number in range(ROWS)]


SAME_TYPE = {
    "int32": pa.array((INTEGERS >> 32).astype(np.int32)),
    "int64": pa.array(INTEGERS),
    "uint64": pa.array(INTEGERS.astype(np.uint64)),
    "float32": pa.array(FLOATS.astype(np.float32), from_pandas=False),
    "float64": pa.array(FLOATS, from_pandas=False),
    "string": pa.array(TEXTS),
    "large_string": pa.array(TEXTS, pa.large_string()),
    "binary": pa.array([text.encode() for text in TEXTS]),
    "fixed_size_binary": pa.array(KEYS, pa.binary(16)),
    "date32": pa.array((INTEGERS % 100_000).astype(np.int32)).cast(pa.date32()),
    "time32_ms": pa.array((INTEGERS % 86_400_000).astype(np.int32)).cast(pa.time32("ms")),
    "time64_us": pa.array(INTEGERS % 86_400_000_000).cast(pa.time64("us")),
    "timestamp_us": pa.array(INTEGERS % 10**15).cast(pa.timestamp("us")),
    "timestamp_ns_utc": pa.array(INTEGERS % 10**18).cast(pa.timestamp("ns", "UTC")),
    "dictionary": pa.array(TEXTS).dictionary_encode(),
}
"""Columns whose Parquet physical type has the bytes that zonebloom and Lance hash."""


def written_bitset(path: Path, values: pa.Array, **options) -> bytes:
    """The bitset of the one column chunk of a new file."""
    need("parquet_blooms")
    pq.write_table(pa.table({"c": values}), path, row_group_size=ROWS, bloom_filter_options={"c": options})
    return zb.parquet_bloom(path, 0, "c").to_bytes()


def bitset_of(values: pa.Array, num_bytes: int) -> bytes:
    fresh = zb.Sbbf.with_blocks(num_bytes // 32)
    fresh.insert(values)
    return fresh.to_bytes()


@pytest.mark.parametrize("has_nulls", [False, True], ids=["full", "nulls"])
@pytest.mark.parametrize("name", SAME_TYPE)
def test_bitsets_equal_pyarrows(tmp_path, name, has_nulls):
    values = SAME_TYPE[name]
    if has_nulls:
        values = values.take(pa.array(np.arange(ROWS), pa.int64(), mask=NULLS))
    for fpp in (0.1, 0.001):
        theirs = written_bitset(tmp_path / f"{fpp}.parquet", values, ndv=ROWS, fpp=fpp)
        assert any(theirs)
        assert bitset_of(values, len(theirs)) == theirs
