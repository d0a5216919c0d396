"""A trial: the sampled zones built as a build would build them, in one way, and looked at.

Design: docs/design/whatif.md#trial
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa

from zonebloom.bloom.zones import ZoneBuilder
from zonebloom.options import SIZINGS, Sizing
from zonebloom.storage.locator.build import LocatorBuilder, LocatorParts
from zonebloom.storage.locator.reader import LocatorSegment
from zonebloom.storage.segment import SegmentEntry
from zonebloom.storage.zone_segment import ZoneSegment, ZoneSegmentWriter
from zonebloom.stores.store import Store

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from zonebloom.bloom.zones import ZoneFilters


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a trial."""

    kind: Literal["bloom", "locator"]
    """The kind of the segments."""
    sizing: Sizing | None
    """How large a filter is; None for a locator."""
    bytes_per_zone: float
    """Bytes on disk, a mean."""
    fpps: NDArray[np.float64]
    """For each zone the chance that an absent key keeps it: of a filter by its set bits, of a locator by its pairs."""
    seconds: float
    """Hashing, inserting and writing, on one thread."""


class Trial(ABC):
    """One way to build a column, into a store of its own."""

    kind: Literal["bloom", "locator"]
    sizing: Sizing | None = None
    _builder: ZoneBuilder | LocatorBuilder
    _seconds = 0.0

    def add(self, fragment_id: int, first_row: int, arrays: Sequence[pa.Array]) -> None:
        """The rows of whole zones, in order of fragment and row over all calls."""
        started = time.perf_counter()
        self._builder.start_fragment(fragment_id, first_row=first_row)
        for array in arrays:
            self._builder.add(fragment_id, array)
        self._seconds += time.perf_counter() - started

    def finish(self) -> Outcome:
        """What came of it."""
        started = time.perf_counter()
        self._builder.close()
        entries = self._entries()
        self._seconds += time.perf_counter() - started
        fpps = np.array([zones.zone_fpp(zone) for zones in map(self._zones, entries) for zone in range(len(zones))])
        num_bytes = sum(entry.num_bytes for entry in entries)
        return Outcome(self.kind, self.sizing, num_bytes / max(len(fpps), 1), fpps, self._seconds)

    @abstractmethod
    def _entries(self) -> Sequence[SegmentEntry]:
        """The segments that were written."""

    @abstractmethod
    def _zones(self, entry: SegmentEntry) -> ZoneFilters:
        """The zones of a segment, as a search reads them."""

    @abstractmethod
    def close(self) -> None:
        """Close what is open, also without `finish`."""


class FilterTrial(Trial):
    """Filters of one sizing."""

    kind: Literal["bloom", "locator"] = "bloom"

    def __init__(
        self,
        store: Store,
        column: str,
        column_type: pa.DataType,
        *,
        sizing: Sizing,
        rows_per_zone: int,
        fpp: float,
    ) -> None:
        self.sizing: Sizing | None = sizing
        self._store = store
        self._builder = builder = ZoneBuilder(
            column_type,
            column=column,
            rows_per_zone=rows_per_zone,
            fpp=fpp,
            sizing=sizing,
            sink=self._write,
        )
        self._writer = ZoneSegmentWriter(store, column, builder.schema)

    def _write(self, batch: pa.RecordBatch) -> None:
        self._writer.write(batch)

    def _entries(self) -> Sequence[SegmentEntry]:
        return self._writer.finish()

    def _zones(self, entry: SegmentEntry) -> ZoneFilters:
        return ZoneSegment(self._store, entry).zones()[0]

    def close(self) -> None:
        """As `Trial` says."""
        self._writer.__exit__(None, None, None)


class LocatorTrial(Trial):
    """A locator."""

    kind: Literal["bloom", "locator"] = "locator"

    def __init__(self, store: Store, column: str, *, rows_per_zone: int) -> None:
        self._store = store
        self._parts = LocatorParts(store, column)
        self._builder = LocatorBuilder(self._parts, rows_per_zone=rows_per_zone)

    def _entries(self) -> Sequence[SegmentEntry]:
        self._parts.close()
        return self._parts.entries

    def _zones(self, entry: SegmentEntry) -> ZoneFilters:
        return LocatorSegment(self._store, entry)

    def close(self) -> None:
        """As `Trial` says: each of its files is closed once it is written."""


def trials(store: Store, column: str, column_type: pa.DataType, *, rows_per_zone: int, fpp: float) -> list[Trial]:
    """A trial of each way to build."""
    return [
        *(
            FilterTrial(store, column, column_type, sizing=rule, rows_per_zone=rows_per_zone, fpp=fpp)
            for rule in SIZINGS
        ),
        LocatorTrial(store, column, rows_per_zone=rows_per_zone),
    ]
