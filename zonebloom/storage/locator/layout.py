"""The tail of a locator segment: its counts, the roots of its directory, and the positions of its zones.

Spec: specs/locator.md#tail
"""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa

from zonebloom.bloom.locator_pages import FIRSTS_PER_PAGE, MAX_ZONES, PAGE_BYTES, zone_bits_for
from zonebloom.bloom.zones import ZonePositions
from zonebloom.errors import CorruptIndexError, UnsupportedFormatError
from zonebloom.storage.arrow_file import read_batches, reading
from zonebloom.storage.json_fields import integer
from zonebloom.storage.segment import SegmentEntry
from zonebloom.storage.slices.zone_runs import RUN_SCHEMA, positions_of, runs_of

KIND = "locator"
_KEY, _ROOTS_KEY = b"zonebloom.locator", b"zonebloom.roots"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class LocatorLayout:
    """How many pages a locator segment has, and where its directory begins to be searched."""

    num_zones: int
    """Zones of the segment."""
    num_pairs: int
    """Distinct pairs of a key and a zone."""
    num_pages: int
    """Pages of pairs; the pages of the directory follow them."""
    roots: tuple[int, ...]
    """The first pair of each directory page."""

    @property
    def zone_bits(self) -> int:
        """Bits of a zone number."""
        return zone_bits_for(self.num_zones)

    @property
    def num_directory_pages(self) -> int:
        """Pages of the directory."""
        return -(-self.num_pages // FIRSTS_PER_PAGE)

    def check(self, entry: SegmentEntry) -> None:
        """Raise `CorruptIndexError` unless the pages and the directory are the first two spans of the file."""
        is_sound = (
            0 <= self.num_zones <= MAX_ZONES
            and 0 <= self.num_pages <= self.num_pairs
            and len(self.roots) == self.num_directory_pages
            and entry.spans[0].num_bytes == self.num_pages * PAGE_BYTES
            and entry.spans[1].num_bytes == self.num_directory_pages * PAGE_BYTES
        )
        if not is_sound:
            counts = (self.num_zones, self.num_pairs, self.num_pages, len(self.roots))
            raise CorruptIndexError(
                f"segment {entry.path} must have the zones, pairs, pages and roots that its spans hold", got=counts
            )


def encode_tail(layout: LocatorLayout, positions: ZonePositions) -> pa.Buffer:
    """The tail: an Arrow IPC stream of one batch of zone runs, whose schema carries the layout."""
    described = {"version": _VERSION, **asdict(layout)}
    del described["roots"]  # they are many, and bytes
    metadata = {
        _KEY: json.dumps(described, separators=(",", ":")).encode(),
        _ROOTS_KEY: base64.b64encode(np.array(layout.roots, "<u8").tobytes()),
    }
    runs = runs_of(positions).replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, runs.schema) as writer:
        writer.write_batch(runs)
    return sink.getvalue()


def decode_tail(tail: bytes, where: str) -> tuple[LocatorLayout, ZonePositions]:
    """The layout, and the positions of the zones.

    Raises
    ------
    CorruptIndexError
        It is no tail of a locator segment.
    UnsupportedFormatError
        A newer zonebloom wrote it.
    """
    with reading(f"the tail of segment {where}"):
        (zone_runs,) = read_batches(pa.py_buffer(tail), RUN_SCHEMA)
        metadata = zone_runs.schema.metadata or {}
        described = json.loads(metadata[_KEY])
        if described["version"] > _VERSION:
            raise UnsupportedFormatError(
                f"segment {where} must have layout version <= {_VERSION}",
                got=described["version"],
                do="a newer zonebloom wrote it: upgrade this one",
            )
        roots = np.frombuffer(base64.b64decode(metadata[_ROOTS_KEY], validate=True), "<u8")
        count = integer()
        num_zones, num_pairs, num_pages = (count(described[name]) for name in ("num_zones", "num_pairs", "num_pages"))
        positions = positions_of(zone_runs, num_zones, where)
        return LocatorLayout(num_zones, num_pairs, num_pages, tuple(roots.tolist())), positions
