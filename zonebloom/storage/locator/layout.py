"""The tail of a locator segment: its counts, the roots of its directory, and the positions of its zones.

Hashes are uniform, so the page of a key is found by interpolation between two roots. How far interpolation is from any
page of the segment is in the tail, so that the pages which interpolation gives are proved to be all.

Spec: specs/locator.md#tail
"""

from __future__ import annotations

import base64
import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from operator import lt
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from zonebloom.bloom.locator_pages import FIRSTS_PER_PAGE, KEY_BITS, MAX_ZONES, PAGE_BYTES, zone_bits_for
from zonebloom.bloom.zones import ZonePositions
from zonebloom.ground.errors import CorruptIndexError, UnsupportedFormatError
from zonebloom.storage.arrow_file import read_batches, reading
from zonebloom.storage.json_fields import integer
from zonebloom.storage.segment import SegmentEntry
from zonebloom.storage.slices.zone_runs import RUN_SCHEMA, encoded_runs, positions_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

KIND = "locator"
_KEY, _ROOTS_KEY, _DEVIATIONS_KEY = b"zonebloom.locator", b"zonebloom.roots", b"zonebloom.deviations"
_VERSION = 2
_PARTS = 256
"""Parts of a page in which interpolation counts."""


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
    deviations: tuple[tuple[int, int], ...] = ()
    """For each directory page, in 1/256 page, the least and the greatest difference of an interpolated position to the
    real one, over its pages; empty if the writer did not say."""
    version: int = _VERSION
    """Of the format: 1 if the checksums of pages do not know the path."""

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
            and all(map(lt, self.roots, self.roots[1:]))
            and len(self.deviations) in (0, len(self.roots))
            and all(least <= 0 <= greatest for least, greatest in self.deviations)
            and entry.spans[0].num_bytes == self.num_pages * PAGE_BYTES
            and entry.spans[1].num_bytes == self.num_directory_pages * PAGE_BYTES
        )
        if not is_sound:
            counts = (self.num_zones, self.num_pairs, self.num_pages, len(self.roots))
            raise CorruptIndexError(
                f"segment {entry.path} must have the zones, pairs, pages and roots that its spans hold", got=counts
            )

    def place(self, pair: int) -> int:
        """The directory page whose pages can hold `pair`."""
        return last_at_most(self.roots, pair)

    def window(self, least: int, greatest: int) -> tuple[int, int]:
        """The half-open range of the pages that can hold pairs from `least` to `greatest`, by interpolation.

        There must be `deviations`.

        Spec: specs/locator.md#interpolate
        """
        begin = end = self.place(least)
        if end + 1 < len(self.roots) and self.roots[end + 1] <= greatest:
            end = self.place(greatest)
        first = -((self.deviations[begin][1] - self._position(begin, least)) // _PARTS) - 1
        last = (self._position(end, greatest) - self.deviations[end][0]) // _PARTS
        return self._page(begin, first), self._page(end, last) + 1

    def _position(self, number: int, pair: int) -> int:
        """The interpolated position of a pair among the pages of a directory page, in 1/256 page."""
        root = self.roots[number]
        stop = self.roots[number + 1] if number + 1 < len(self.roots) else _greatest_pair(self.zone_bits)
        return (pair - root) // max((stop - root) // (_PARTS * self._num_firsts(number)), 1)

    def _page(self, number: int, place: int) -> int:
        """The page at a place among those of a directory page, or the nearest one."""
        return number * FIRSTS_PER_PAGE + min(max(place, 0), self._num_firsts(number) - 1)

    def _num_firsts(self, number: int) -> int:
        return min(FIRSTS_PER_PAGE, self.num_pages - number * FIRSTS_PER_PAGE)


def last_at_most(firsts: Sequence[int] | memoryview, bound: int) -> int:
    """The place of the last of `firsts` that is at most `bound`; 0 if there is none."""
    return max(bisect_right(firsts, bound) - 1, 0)


def _greatest_pair(zone_bits: int) -> int:
    return (1 << (KEY_BITS + zone_bits)) - 1


def deviations_of(firsts: NDArray[np.uint64], zone_bits: int) -> tuple[tuple[int, int], ...]:
    """The deviations of a locator, from the first pair of each of its pages.

    Spec: specs/locator.md#interpolate
    """
    if not len(firsts):
        return ()
    begins = np.arange(0, len(firsts), FIRSTS_PER_PAGE)
    counts = np.diff(begins, append=len(firsts))
    roots = firsts[begins]
    stops = np.append(roots[1:], np.uint64(_greatest_pair(zone_bits)))
    steps = np.maximum((stops - roots) // (_PARTS * counts).astype(np.uint64), np.uint64(1))
    positions = (firsts - np.repeat(roots, counts)) // np.repeat(steps, counts)
    deviations = positions.astype(np.int64) - _PARTS * (np.arange(len(firsts)) % FIRSTS_PER_PAGE)
    least, greatest = (extreme.reduceat(deviations, begins).tolist() for extreme in (np.minimum, np.maximum))
    return tuple(zip(least, greatest, strict=True))


def encode_tail(layout: LocatorLayout, positions: ZonePositions) -> pa.Buffer:
    """The tail: an Arrow IPC stream of one batch of zone runs, whose schema carries the layout."""
    described = asdict(layout)
    del described["roots"], described["deviations"]  # they are many, and bytes
    metadata = {
        _KEY: json.dumps(described, separators=(",", ":")).encode(),
        _ROOTS_KEY: base64.b64encode(np.array(layout.roots, "<u8").tobytes()),
        _DEVIATIONS_KEY: base64.b64encode(np.array(layout.deviations, "<i4").tobytes()),
    }
    return encoded_runs(positions, metadata)


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
        count = integer()
        version = count(described["version"])
        if version > _VERSION:
            raise UnsupportedFormatError.newer(f"segment {where} must have layout version <= {_VERSION}", version)
        roots = np.frombuffer(base64.b64decode(metadata[_ROOTS_KEY], validate=True), "<u8")
        written = base64.b64decode(metadata.get(_DEVIATIONS_KEY, b""), validate=True)
        deviations = tuple(map(tuple, np.frombuffer(written, "<i4").reshape(-1, 2).tolist()))
        num_zones, num_pairs, num_pages = (count(described[name]) for name in ("num_zones", "num_pairs", "num_pages"))
        positions = positions_of(zone_runs, num_zones, where)
        return LocatorLayout(num_zones, num_pairs, num_pages, tuple(roots.tolist()), deviations, version), positions
