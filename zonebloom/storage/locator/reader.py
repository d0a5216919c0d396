"""`LocatorSegment`: which zones hold a key; a key reads about two pages at once, 8 KiB.

The pages of a key are known by interpolation. If these are too many, the directory names them, in one read more. A few
keys are looked up by positioned reads and NumPy; many by a kernel over the memory-mapped file. No page is believed
before its checksum was seen to hold. A damaged page makes every zone MAY_MATCH, for good, and the damage is reported
once.

Spec: specs/locator.md#probe
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from zonebloom.bloom.locator_pages import (
    FIRSTS_PER_PAGE,
    PAGE_BYTES,
    WIDE_ZONE_BITS,
    first_pair,
    pair_bounds,
    zones_in_page,
)
from zonebloom.bloom.numba_loading import is_worth_loading
from zonebloom.bloom.zones import ZoneFilters, ZonePositions, ZonesOfEach
from zonebloom.ground.cached import cached_property
from zonebloom.ground.errors import CorruptIndexError
from zonebloom.storage.arrow_file import reading
from zonebloom.storage.locator.layout import LocatorLayout, decode_tail, last_at_most
from zonebloom.storage.sealed_rows import SealedRows
from zonebloom.storage.segment import SegmentEntry, joined_runs
from zonebloom.stores.store import ROUND_BYTES, Store

if TYPE_CHECKING:
    from numpy.typing import NDArray

_KERNELS = "zonebloom.bloom.kernels.locator"
_FEW_HASHES = 16
"""Hashes that NumPy looks up as fast as a kernel is called."""
_SECONDS_A_HASH = 25e-6
"""NumPy's."""
_PAGES_A_KEY = 4
"""Most pages that a key may read without the directory: of uniform hashes, interpolation gives 1 to 3."""
_FEW_OF_ALL = 10
"""A list with more keys than a tenth of the pages reads most of the file: its directory is little more."""
_PAGES_AT_ONCE = 4096
_MOST_TAIL_BYTES = 64 << 20
"""Bytes that a tail may take of memory; the most zones, in runs of one, take 40 MiB."""


class LocatorSegment(ZoneFilters):
    """An opened locator segment: a zone that `lookup` does not name certainly does not hold the key.

    Raises
    ------
    CorruptIndexError
        The file is missing, has another length, or its tail is not as it was written.
    """

    layout: LocatorLayout

    def __init__(self, store: Store, entry: SegmentEntry) -> None:
        self.entry = entry
        self._store = store
        if len(entry.spans) != 3:  # noqa: PLR2004 - pages, directory, tail
            raise CorruptIndexError(f"segment {entry.path} must have 3 spans", got=len(entry.spans))
        [tail] = entry.read_spans(store, [2], _MOST_TAIL_BYTES)
        self.layout, self._positions = decode_tail(tail, entry.path)
        self.layout.check(entry)
        num_pages = self.layout.num_pages + self.layout.num_directory_pages
        self.sealed: SealedRows = SealedRows(
            store, entry, "page", PAGE_BYTES, [(0, num_pages)], version=self.layout.version
        )
        """All pages, those of the directory last."""

    @property
    def positions(self) -> ZonePositions:
        """Where the zones lie in the data, in order of fragment and start."""
        return self._positions

    @property
    def damage(self) -> tuple[str, ...]:
        """Damage that probes encountered."""
        return self.sealed.damage

    # --- answers ------------------------------------------------------------------------------------------------------

    def lookup(self, hashes: NDArray[np.uint64]) -> ZonesOfEach:
        """The zones that hold each of `hashes`; all others certainly do not.

        An absent key is given a zone with a probability of `num_pairs` / 2**41.

        Cost: 8 KiB for each of a few hashes; about 0.1 µs for each of many.

        Raises
        ------
        CorruptIndexError
            A page that is needed is damaged, or was before.
        """
        if not len(hashes) or not self.layout.num_pages:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        is_many = len(hashes) > _FEW_HASHES and is_worth_loading(_KERNELS, len(hashes) * _SECONDS_A_HASH)
        pairs = self.sealed.sound(lambda: self._many(hashes) if is_many else self._few(hashes))
        if pairs is None:
            raise CorruptIndexError(self.sealed.damage[0])
        return pairs

    def candidates(self, hashes: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Numbers of the zones that may hold any of `hashes`, ascending; all zones if the segment is damaged."""
        try:
            _, zones = self.lookup(hashes)
        except CorruptIndexError:
            return np.arange(len(self))
        if len(hashes) == 1:
            return zones
        is_found = np.zeros(len(self), np.bool_)
        is_found[zones] = True
        return is_found.nonzero()[0]

    def zones_of_each(self, hashes: NDArray[np.uint64]) -> ZonesOfEach:
        """For each of `hashes` the zones that may hold it; all zones if the segment is damaged."""
        try:
            return self.lookup(hashes)
        except CorruptIndexError:
            return super().zones_of_each(hashes)

    def is_worth_thread(self, num_hashes: int) -> bool:
        """As `ZoneFilters.is_worth_thread`; the time of a probe does not grow with the zones."""
        return num_hashes > 1 << 13

    def zone_fpp(self, zone: int) -> float:  # noqa: ARG002 - the same for all zones
        """The probability that an absent key is given one certain zone."""
        return self.layout.num_pairs / 2**41 / max(len(self), 1)

    def contained(self, hashes: NDArray[np.uint64], live: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
        """For each of `hashes`, whether any zone (in the mask `live`) may contain it; False is certain."""
        may_match = np.zeros(len(hashes), np.bool_)
        if live is not None and not live.any():
            return may_match
        try:
            keys, zones = self.lookup(hashes)
        except CorruptIndexError:
            return np.ones(len(hashes), np.bool_)
        may_match[keys if live is None else keys[live[zones]]] = True
        return may_match

    # --- a few keys ---------------------------------------------------------------------------------------------------

    def _few(self, hashes: NDArray[np.uint64]) -> ZonesOfEach:
        runs = self._windows(hashes)
        if runs is None:
            begins, ends = self._page_ranges(hashes)
            runs = list(zip(begins.tolist(), ends.tolist(), strict=True))
        pages = self._read_runs(runs)
        keys, zones = [], []
        for key, ((begin, end), value) in enumerate(zip(runs, hashes.tolist(), strict=True)):
            least, greatest = pair_bounds(value, self.layout.zone_bits)
            firsts = [first_pair(pages[number]) for number in range(begin, end)]
            for place in range(last_at_most(firsts, least), last_at_most(firsts, greatest) + 1):
                page_zones = zones_in_page(pages[begin + place], least, greatest)
                if len(page_zones):
                    self._check_zone(int(page_zones[-1]))
                    zones.append(page_zones)
                    keys.append(np.full(len(page_zones), key))
        if not zones:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        return np.concatenate(keys), np.concatenate(zones)

    def _read_runs(self, runs: Sequence[tuple[int, int]]) -> dict[int, bytes]:
        """The pages of half-open runs, checked, by number."""
        spans = joined_runs(runs)
        ranges = [(begin * PAGE_BYTES, (stop - begin) * PAGE_BYTES) for begin, stop in spans]
        numbers = [number for span in spans for number in range(*span)]
        return dict(zip(numbers, self.sealed.read(ranges, numbers), strict=True))

    # --- many keys ----------------------------------------------------------------------------------------------------

    def _many(self, hashes: NDArray[np.uint64]) -> ZonesOfEach:
        from zonebloom.bloom.kernels import locator as kernels  # noqa: PLC0415 - a search of a few keys must not load Numba

        layout, room = self.layout, 2 * len(hashes)
        order = np.argsort(hashes)
        ascending = hashes[order]
        begins, ends = self._page_ranges(ascending)
        self._trust(begins, ends)
        while True:
            keys, zones = np.empty(room, np.uint64), np.empty(room, np.uint64)
            pages = self.sealed.bodies[0][: layout.num_pages]
            num_pairs = kernels.find_pairs(pages, ascending, begins, ends, layout.zone_bits, keys, zones)
            if num_pairs <= room:
                break
            room = num_pairs
        self._check_zone(int(zones[:num_pairs].max(initial=0)))
        return order[keys[:num_pairs].view(np.int64)], zones[:num_pairs].view(np.int64)

    # --- pages of a key -----------------------------------------------------------------------------------------------

    def _windows(self, hashes: NDArray[np.uint64]) -> list[tuple[int, int]] | None:
        """As `_page_ranges`, by interpolation, without a read; None if the directory is little beside the pages."""
        layout, is_remote = self.layout, self._store.is_remote
        if not layout.deviations or len(hashes) > max(_FEW_HASHES, is_remote * layout.num_pages // _FEW_OF_ALL):
            return None
        windows = [layout.window(*pair_bounds(value, layout.zone_bits)) for value in hashes.tolist()]
        num_more = sum(end - begin for begin, end in windows) - _PAGES_A_KEY * len(hashes)
        return windows if num_more * PAGE_BYTES <= ROUND_BYTES * is_remote else None

    def _page_ranges(self, hashes: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """For each hash the half-open range of the pages that can hold pairs of its key."""
        windows = self._windows(hashes)
        if windows is not None:
            begins, ends = np.ascontiguousarray(np.array(windows, np.uint64).T)
            return begins, ends
        zone_bits, firsts = np.uint64(self.layout.zone_bits), self.firsts
        least = hashes >> np.uint64(WIDE_ZONE_BITS) << zone_bits
        greatest = least | ((np.uint64(1) << zone_bits) - np.uint64(1))
        begins = np.maximum(firsts.searchsorted(least, "right"), 1) - 1
        ends = begins + 1
        last = len(firsts) - 1
        longer = np.flatnonzero((begins < last) & (firsts[np.minimum(ends, last)] <= greatest))
        ends[longer] = firsts.searchsorted(greatest[longer], "right")
        return begins.astype(np.uint64), ends.astype(np.uint64)

    @cached_property
    def firsts(self) -> NDArray[np.uint64]:
        """The first pair of each page, from the whole directory.

        Raises
        ------
        CorruptIndexError
            A page of the directory is damaged, or they are not in order.
        """
        start = self.layout.num_pages
        with reading(f"segment {self.entry.path}"):
            pages = self._read_runs([(start, start + self.layout.num_directory_pages)])
        words = np.frombuffer(b"".join(pages.values()), "<u8").reshape(len(pages), -1)
        firsts = words[:, :FIRSTS_PER_PAGE].reshape(-1)[:start].astype(np.uint64)
        if (firsts[1:] <= firsts[:-1]).any():
            raise CorruptIndexError(f"segment {self.entry.path} must have its pages in order")
        return firsts

    def _trust(self, begins: NDArray[np.uint64], ends: NDArray[np.uint64]) -> None:
        """Check the pages of these ranges, whose bounds ascend, that were not checked before."""
        stops = ends.view(np.int64)
        lengths = stops - np.maximum(begins.view(np.int64), np.append(0, stops[:-1]))  # without pages of the one before
        pages = np.repeat(stops - np.cumsum(lengths), lengths) + np.arange(lengths.sum())
        self.sealed.check(pages)

    def read_pages(self, begin: int, stop: int) -> NDArray[np.uint8]:
        """The pages `[begin, stop)`, checked, in memory of their own: mapped ones would cost a page fault each.

        Raises
        ------
        CorruptIndexError
            A page differs from its checksum, or a vacuum removed the file.
        """
        num_bytes = (stop - begin) * PAGE_BYTES
        with reading(f"segment {self.entry.path}"):
            [blob] = self._store.read_ranges(self.entry.path, [(begin * PAGE_BYTES, num_bytes)])
            pages = np.frombuffer(blob, np.uint8, num_bytes).reshape(-1, PAGE_BYTES)
            self.sealed.check_in(pages, begin, np.arange(stop - begin))
        return pages

    # --- damage -------------------------------------------------------------------------------------------------------

    def verify(self) -> bool:
        """Whether every byte is as it was written; damage is noted."""

        def check() -> None:
            num_pages = self.layout.num_pages + self.layout.num_directory_pages
            for start in range(0, num_pages, _PAGES_AT_ONCE):
                self.sealed.check(np.arange(start, min(start + _PAGES_AT_ONCE, num_pages)), again=True)

        self.sealed.sound(check)
        return not self.damage

    def _check_zone(self, zone: int) -> None:
        if zone >= len(self):
            raise CorruptIndexError(f"segment {self.entry.path} must name zones below {len(self)}", got=zone)
