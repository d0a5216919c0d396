"""`ZonePositions`: the rows of a column's zones, and which zones have nulls.

Spec: specs/zones.md#zone-table
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from zonebloom.ground.arrow import from_numpy, to_numpy
from zonebloom.ground.errors import InvalidZoneTableError

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class ZonePositions:
    """The rows of zones: the first four columns of a zone table, with one element a zone."""

    fragment_ids: NDArray[np.uint64]
    """The fragment of each zone."""
    zone_starts: NDArray[np.uint64]
    """Offset of each zone's first row in its fragment."""
    zone_lengths: NDArray[np.uint64]
    """Rows of each zone."""
    has_null: NDArray[np.bool_]
    """Whether a row of the zone is null."""

    @classmethod
    def concatenated(cls, parts: Sequence[ZonePositions]) -> ZonePositions:
        """The zones of all parts in order."""
        if not parts:
            empty = np.zeros(0, np.uint64)
            return cls(empty, empty, empty, np.zeros(0, np.bool_))
        columns = zip(*(part.columns() for part in parts), strict=True)
        return cls(*map(np.concatenate, columns))

    @classmethod
    def from_batches(cls, batches: Iterable[pa.RecordBatch]) -> ZonePositions:
        """The zones of record batches of a zone table, copied."""
        dtypes = (np.uint64, np.uint64, np.uint64, np.bool_)
        return cls.concatenated(
            [cls(*(to_numpy(batch.column(i), dtype) for i, dtype in enumerate(dtypes))) for batch in batches]
        )

    def to_batch(self, offsets: NDArray[np.int32], bitsets: NDArray[Any], schema: pa.Schema) -> pa.RecordBatch:
        """A record batch of a zone table: zone i has the bytes `[offsets[i], offsets[i + 1])` of `bitsets`."""
        numbers = (from_numpy(column, pa.uint64()) for column in self.columns()[:3])
        data = pa.Array.from_buffers(pa.binary(), len(self), [None, pa.py_buffer(offsets), pa.py_buffer(bitsets)])
        return pa.RecordBatch.from_arrays([*numbers, pa.array(self.has_null), data], schema=schema)

    def columns(self) -> tuple[NDArray[Any], ...]:
        """The four arrays."""
        return self.fragment_ids, self.zone_starts, self.zone_lengths, self.has_null

    def __len__(self) -> int:
        return len(self.fragment_ids)

    def __getitem__(self, chosen: Any) -> ZonePositions:
        return ZonePositions(*(column[chosen] for column in self.columns()))

    @property
    def zone_stops(self) -> NDArray[np.uint64]:
        """Offset past the last row of each zone."""
        return self.zone_starts + self.zone_lengths

    @property
    def addresses(self) -> NDArray[np.uint64]:
        """Address of the first row of each zone."""
        return self.fragment_ids << np.uint64(32) | self.zone_starts

    def check(self) -> None:
        """Raise an `InvalidZoneTableError` unless each zone has rows, and ids and ends are below 2**32."""
        if len(self) and int(self.zone_lengths.min()) == 0:
            zone = int(np.flatnonzero(self.zone_lengths == 0)[0])
            raise InvalidZoneTableError("zone_length must be at least 1", got=f"0 in zone {zone}")
        limit = np.uint64(2**32 - 1)
        stops = self.zone_stops
        outside = np.flatnonzero((self.fragment_ids > limit) | (stops > limit) | (stops < self.zone_starts))
        if len(outside):
            zone = int(outside[0])
            raise InvalidZoneTableError(
                "fragment_id and zone ends must be below 2**32", got=f"zone {zone} of {self._described(zone)}"
            )

    def check_disjoint(self) -> None:
        """Raise an `InvalidZoneTableError` if zones, which are in order, share rows."""
        is_same = self.fragment_ids[1:] == self.fragment_ids[:-1]
        bad = np.flatnonzero(is_same & (self.zone_starts[1:] < self.zone_stops[:-1]))
        if len(bad):
            zone = int(bad[0])
            raise InvalidZoneTableError(
                "zones of a fragment must not overlap", got=f"{self._described(zone)} and {self._described(zone + 1)}"
            )

    def _described(self, zone: int) -> str:
        start, length = int(self.zone_starts[zone]), int(self.zone_lengths[zone])
        return f"fragment {int(self.fragment_ids[zone])} rows [{start}, {start + length})"
