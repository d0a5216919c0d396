"""Slices back to filters: the original zones of a slice file, bit for bit.

Spec: specs/slices.md#unslice_zones
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from zonebloom.bloom.numba_loading import kernels_to_read
from zonebloom.storage.slices.layout import ROWS_PER_BLOCK, WORDS_PER_BLOCK
from zonebloom.storage.slices.rows import SliceRows

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ZONES_PER_BATCH = 1024
_BATCH_BYTES = 32 << 20


def unsliced(rows: SliceRows, first_zone: int, num_zones: int, first_block: int, stop_block: int) -> NDArray[np.uint32]:
    """Blocks `[first_block, stop_block)` of the filters of consecutive zones, shape `(num_zones, blocks, 8)`.

    The rows must have been checked. `first_zone` is a multiple of 8.
    """
    kernels = kernels_to_read("slices")
    filters = np.empty((num_zones, stop_block - first_block, WORDS_PER_BLOCK), np.uint32)
    for body, (first, stop) in zip(rows.sealed.bodies, rows.layout.bodies(), strict=True):
        begin, end = max(first, first_block), min(stop, stop_block)
        if begin >= end:
            continue
        part = body[(begin - first) * ROWS_PER_BLOCK : (end - first) * ROWS_PER_BLOCK]
        out = filters if end - begin == filters.shape[1] else np.empty((num_zones, end - begin, 8), np.uint32)
        kernels.unslice_zones(part, out, first_zone)
        if out is not filters:
            filters[:, begin - first_block : end - first_block] = out
    return filters


def zone_batches(rows: SliceRows) -> Iterator[pa.RecordBatch]:
    """The zones as record batches of a zone table, at most 1024 zones and about 32 MiB each.

    Raises
    ------
    CorruptIndexError
        A row is damaged.
    """
    rows.check_all()
    num_zones, num_blocks = rows.layout.num_zones, rows.layout.num_blocks
    zone_bytes = num_blocks * 4 * WORDS_PER_BLOCK
    step = max(8, min(_ZONES_PER_BATCH, _BATCH_BYTES // zone_bytes // 8 * 8))
    for first in range(0, num_zones, step):
        count = min(step, num_zones - first)
        filters = unsliced(rows, first, count, 0, num_blocks)
        offsets = np.arange(count + 1, dtype=np.int32) * np.int32(zone_bytes)
        yield rows.positions[first : first + count].to_batch(offsets, filters, rows.schema)
