"""Zone runs: the positions of the zones of a slice segment, one row for consecutive zones of one length.

Spec: specs/slices.md#zone-runs
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from zonebloom.bloom.zones import ZonePositions
from zonebloom.ground.arrow import from_numpy, to_numpy
from zonebloom.ground.errors import CorruptIndexError

if TYPE_CHECKING:
    from numpy.typing import NDArray

RUN_SCHEMA = pa.schema(
    [
        pa.field("fragment_id", pa.uint64(), nullable=False),
        pa.field("zone_start", pa.uint64(), nullable=False),
        pa.field("zone_length", pa.uint64(), nullable=False),
        pa.field("last_length", pa.uint64(), nullable=False),
        pa.field("has_null", pa.list_(pa.field("item", pa.bool_(), nullable=False)), nullable=False),
    ]
)


def runs_of(positions: ZonePositions) -> pa.RecordBatch:
    """Zone runs: one row for consecutive zones of a fragment that have one length, except the last.

    Spec: specs/slices.md#zone-runs
    """
    ids, starts, lengths = positions.fragment_ids, positions.zone_starts, positions.zone_lengths
    begins = np.ones(len(ids), np.bool_)
    begins[1:] = (ids[1:] != ids[:-1]) | (starts[1:] != starts[:-1] + lengths[:-1])
    may_begin = begins.copy()
    may_begin[2:] |= lengths[1:-1] != lengths[:-2]
    firsts: list[int] = []
    for zone in may_begin.nonzero()[0].tolist():
        if begins[zone] or firsts[-1] != zone - 1:  # the zone before, of another length than the run's, ends the run
            firsts.append(zone)
    first = np.array(firsts, np.int64)
    bounds = np.append(first, len(ids)).astype(np.int32)
    return pa.RecordBatch.from_arrays(
        [
            from_numpy(positions.fragment_ids[first], pa.uint64()),
            from_numpy(positions.zone_starts[first], pa.uint64()),
            from_numpy(positions.zone_lengths[first], pa.uint64()),
            from_numpy(positions.zone_lengths[bounds[1:] - 1], pa.uint64()),
            pa.ListArray.from_arrays(from_numpy(bounds, pa.int32()), _booleans(positions.has_null)),
        ],
        schema=RUN_SCHEMA,
    )


def encoded_runs(positions: ZonePositions, metadata: Mapping[bytes, bytes] | None = None) -> pa.Buffer:
    """An Arrow IPC stream of the zone runs of `positions`; its schema has the `metadata`."""
    runs, sink = runs_of(positions).replace_schema_metadata(metadata), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, runs.schema) as writer:
        writer.write_batch(runs)
    return sink.getvalue()


def positions_of(runs: pa.RecordBatch, num_zones: int, where: str) -> ZonePositions:
    """The zones that `runs` describe, checked.

    Raises
    ------
    CorruptIndexError
        They are not `num_zones`.
    InvalidZoneTableError
        A zone has no rows, or ends beyond a fragment's most.
    """
    flags = runs.column(4)
    bounds = to_numpy(flags.offsets, np.int32).astype(np.int64)
    if (num_flags := int(bounds[-1] - bounds[0])) != num_zones:
        raise CorruptIndexError(f"segment {where} must describe {num_zones} zones", got=num_flags)
    ids, firsts, lengths, lasts = (to_numpy(runs.column(index), np.uint64) for index in range(4))
    counts = np.diff(bounds)
    number = np.arange(int(counts.sum())) - np.repeat(bounds[:-1] - bounds[:1], counts)
    zone_lengths = np.repeat(lengths, counts)
    zone_starts = np.repeat(firsts, counts) + number.astype(np.uint64) * zone_lengths
    zone_lengths[np.cumsum(counts)[counts > 0] - 1] = lasts[counts > 0]
    has_null = flags.values.slice(int(bounds[0]), int(bounds[-1] - bounds[0]))
    positions = ZonePositions(np.repeat(ids, counts), zone_starts, zone_lengths, to_numpy(has_null, np.bool_))
    positions.check()
    return positions


def _booleans(values: NDArray[np.bool_]) -> pa.Array:
    bits = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(bits)])
