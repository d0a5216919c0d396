"""A trial: the sampled zones built as a build would build them, in one way, and looked at.

Design: docs/design/whatif.md#trial
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa

from zonebloom.bloom.sizing import SIZINGS, Sizing
from zonebloom.bloom.zones import ZoneBuilder, zone_schema
from zonebloom.storage.locator.build import LocatorBuilder, LocatorParts
from zonebloom.storage.locator.reader import LocatorSegment
from zonebloom.storage.segment import SegmentEntry
from zonebloom.storage.zone_segment import ZoneSegment, ZoneSegmentWriter
from zonebloom.stores.store import Store

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from zonebloom.bloom.zones import ZoneFilters


@dataclass(slots=True)
class Trial:
    """One way to build a column, into a store of its own."""

    store: Store
    builder: ZoneBuilder | LocatorBuilder
    entries: Callable[[], Sequence[SegmentEntry]]
    """Ends the writing, and returns the segments."""
    sizing: Sizing | None
    """How large a filter is; None for a locator."""
    seconds: float = 0.0
    """Hashing, inserting and writing, on one thread."""
    fpps: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    """For each zone the chance that an absent key keeps it: of a filter by its bits, of a locator by its pairs."""
    bytes_per_zone: float = 0.0
    """Bytes on disk, a mean."""

    @property
    def kind(self) -> Literal["bloom", "locator"]:
        """The kind of the segments."""
        return "locator" if self.sizing is None else "bloom"

    def add(self, fragment_id: int, first_row: int, arrays: Sequence[pa.Array]) -> None:
        """The rows of whole zones, in order of fragment and row over all calls."""
        started = time.perf_counter()
        self.builder.start_fragment(fragment_id, first_row=first_row)
        for array in arrays:
            self.builder.add(fragment_id, array)
        self.seconds += time.perf_counter() - started

    def finish(self) -> None:
        """End it, and look at what it wrote."""
        started = time.perf_counter()
        self.builder.close()
        entries = self.entries()
        self.seconds += time.perf_counter() - started
        fpps = [zones.zone_fpp(zone) for zones in map(self._zones, entries) for zone in range(len(zones))]
        self.fpps = np.array(fpps)
        self.bytes_per_zone = sum(entry.num_bytes for entry in entries) / max(len(self.fpps), 1)

    def _zones(self, entry: SegmentEntry) -> ZoneFilters:
        """The zones of a segment, as a search reads them."""
        if self.sizing is None:
            return LocatorSegment(self.store, entry)
        return ZoneSegment(self.store, entry).zones()[0]


def trials(
    opened: ExitStack, store: Store, column: str, column_type: pa.DataType, *, rows_per_zone: int, fpp: float
) -> list[Trial]:
    """A trial of each way to build; `opened` closes their files, also those of a trial that is not finished."""

    def of_filters(sizing: Sizing) -> Trial:
        schema = zone_schema(rows_per_zone, fpp, column=column, column_type=column_type)
        writer = opened.enter_context(ZoneSegmentWriter(store, column, schema))
        builder = ZoneBuilder(
            column_type, column=column, rows_per_zone=rows_per_zone, fpp=fpp, sizing=sizing, sink=writer.write
        )
        return Trial(store, builder, writer.finish, sizing)

    def of_locator() -> Trial:
        parts = LocatorParts(store, column)

        def entries() -> list[SegmentEntry]:
            parts.close()
            return parts.entries

        return Trial(store, LocatorBuilder(parts, rows_per_zone=rows_per_zone), entries, None)

    return [*map(of_filters, SIZINGS), of_locator()]
