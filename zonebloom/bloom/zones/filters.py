"""`ZoneFilters`: the one interface for probing zones.

- `ZoneFilters` can be probed: zone tables, slice segments, locators, the segments of a column together.
- `BlockFilters` have a Split Block Bloom Filter for each zone, whose blocks can be read.

For one zone a probe has one of two outcomes:

- `CANNOT_MATCH`: every probed hash misses at least one bit of the zone's filter. That is a proof.
- `MAY_MATCH`: all other cases, damage included.

Spec: specs/pruning.md#evaluate
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import pyarrow as pa

from zonebloom.bloom.numba_loading import SECONDS_A_PROBE, kernels_to_read
from zonebloom.bloom.split_block import measured_fpp

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from zonebloom.bloom.zones.positions import ZonePositions

ZonesOfEach: TypeAlias = "tuple[NDArray[np.int64], NDArray[np.int64]]"
"""Pairs of the index of a hash and the number of a zone, in any order."""
MAY_MATCH: Final = True
"""A row of the zone may have one of the values."""
CANNOT_MATCH: Final = False
"""No row of the zone has any of the values."""


class ZoneFilters(ABC):
    """Zones that can be probed; hashes are uint64, XXH64 seed 0, and masks have one element a zone."""

    @property
    @abstractmethod
    def positions(self) -> ZonePositions:
        """The rows of the zones."""

    @abstractmethod
    def candidates(self, hashes: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Numbers of the zones that MAY_MATCH any of `hashes`, ascending."""

    @abstractmethod
    def contained(self, hashes: NDArray[np.uint64], live: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
        """For each of `hashes`, whether any zone in the mask `live` (None: all) MAY_MATCH it; False is certain."""

    @abstractmethod
    def zone_fpp(self, zone: int) -> float:
        """The false positive probability of one zone, from its bits."""

    def check_zone(self, zone: int, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """For each of `hashes`, whether zone number `zone` may contain it."""
        keys, zones = self.zones_of_each(hashes)
        may_match = np.zeros(len(hashes), np.bool_)
        may_match[keys[zones == zone]] = True
        return may_match

    def is_worth_thread(self, num_hashes: int) -> bool:
        """Whether a probe of `num_hashes` hashes takes longer than the start of a thread, 0.2 ms."""
        return num_hashes * len(self) > 1 << 20

    @property
    def damage(self) -> tuple[str, ...]:
        """Messages of damage that probes have found; the zones concerned are MAY_MATCH."""
        return ()

    def __len__(self) -> int:
        return len(self.positions)

    def zones_of_each(self, hashes: NDArray[np.uint64]) -> ZonesOfEach:
        """For each of `hashes` the zones that MAY_MATCH it; all others certainly do not."""
        zones_by_key = [self.candidates(hashes[key : key + 1]) for key in range(len(hashes))]
        keys = np.repeat(np.arange(len(zones_by_key)), [len(zones) for zones in zones_by_key])
        return keys, np.concatenate([np.zeros(0, np.int64), *zones_by_key])

    def verify(self) -> bool:
        """Whether all bytes are as they were written; adds to `damage` if not."""
        return not self.damage


class BlockFilters(ZoneFilters):
    """Zones that have a filter of blocks each."""

    @property
    @abstractmethod
    def num_blocks(self) -> NDArray[np.int64]:
        """Blocks of each zone's filter."""

    @abstractmethod
    def blocks(self, zone: int) -> NDArray[np.uint32]:
        """The filter of zone number `zone`, shape `(num_blocks, 8)`."""

    @abstractmethod
    def copy_blocks(self, out: NDArray[np.uint32], first_zone: int, first_block: int) -> None:
        """Copy blocks `first_block` and on of the filters of consecutive zones, which have one size.

        Parameters
        ----------
        out
            Shape `(num_zones, num_blocks, 8)`, filled.
        """

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The schema of the zones as a zone table: five columns, Lance's metadata."""

    @abstractmethod
    def batches(self) -> Iterator[pa.RecordBatch]:
        """The zones as record batches of a zone table, at most 1024 zones each."""

    def to_arrow(self) -> pa.Table:
        """The five columns as an Arrow table; chunks stay below 2 GiB.

        Spec: specs/zones.md#zone-table
        """
        return pa.Table.from_batches(self.batches(), self.schema)

    def check_zone(self, zone: int, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """For each of `hashes`, whether the filter of zone number `zone` may contain it."""
        kernels = kernels_to_read("sbbf", len(hashes) * SECONDS_A_PROBE)
        answers: NDArray[np.bool_] = kernels.filter_check(self.blocks(zone), hashes)
        return answers

    def zone_fpp(self, zone: int) -> float:
        """The exact false positive probability of one zone's filter, from its set bits."""
        return float(measured_fpp(self.blocks(zone)[None])[0])
