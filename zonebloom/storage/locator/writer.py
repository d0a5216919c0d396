"""`LocatorWriter`: pairs in order become the pages of a locator segment, in memory of a few megabytes.

Spec: specs/locator.md#file
"""

from __future__ import annotations

import mmap
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np

from zonebloom.bloom.locator_pages import FIRSTS_PER_PAGE, PAGE_BYTES, first_pairs, zone_bits_for
from zonebloom.bloom.zones import ZonePositions
from zonebloom.ground.errors import InvalidArgumentError
from zonebloom.storage.locator.layout import KIND, LocatorLayout, deviations_of, encode_tail
from zonebloom.storage.sealed_rows import seal_rows
from zonebloom.storage.segment import CheckedFile, SegmentEntry, SegmentWriter, Span, runs
from zonebloom.stores.store import Store

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BUFFER_PAGES = 512


class LocatorWriter(SegmentWriter):
    """Writes one new locator segment, which `entry` describes.

    - `entry` is there once the block has ended without an error.
    - Zones are in order of fragment and start; their numbers are their places in `positions`.
    - `write` takes pairs in order, each once, over all calls.
    """

    entry: SegmentEntry

    def __init__(self, store: Store, column: str, positions: ZonePositions) -> None:
        super().__init__(store, column, "locator")
        self._positions = positions
        self._zone_bits = zone_bits_for(len(positions))
        # Its address is a multiple of the page, as writing past the page cache needs.
        self._pages = np.frombuffer(mmap.mmap(-1, _BUFFER_PAGES * PAGE_BYTES), np.uint8).reshape(-1, PAGE_BYTES)
        self._begun = np.zeros(2, np.uint64)
        """Pages of the buffer that are begun, and pairs in the last of them."""
        self._firsts: list[NDArray[np.uint64]] = []
        self._num_pages = 0
        self.num_pairs: int = 0
        """Pairs that were written."""
        self._last = -1

    def __enter__(self) -> Self:
        self._sink = CheckedFile(self._open())
        return self

    def write(self, pairs: NDArray[np.uint64]) -> None:
        """Append pairs, with 23 bits for the zone; the caller may use their memory again afterwards."""
        from zonebloom.bloom.kernels import locator as kernels  # noqa: PLC0415 - Numba is loaded by the first pairs, not by import

        if not len(pairs):
            return
        if int(pairs[0]) <= self._last:
            raise InvalidArgumentError("pairs must ascend from call to call", got=f"{pairs[0]} after {self._last}")
        self._last = int(pairs[-1])
        self.num_pairs += len(pairs)
        done = 0
        while (done := done + kernels.encode_pages(pairs[done:], self._zone_bits, self._pages, self._begun)) < len(
            pairs
        ):
            self._flush(_BUFFER_PAGES - 1)

    def _flush(self, num_pages: int) -> None:
        """Write the first `num_pages` of the buffer; the one that is left moves to the front."""
        pages = self._pages[:num_pages]
        self._firsts.append(first_pairs(pages))
        self._append(pages)
        self._pages[:1] = self._pages[num_pages : num_pages + 1]
        self._begun[0] -= num_pages

    def _append(self, pages: NDArray[np.uint8]) -> None:
        if len(pages):
            seal_rows(pages, self._num_pages, self._path)
            self._sink.write_unchecked(pages)
            self._num_pages += len(pages)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            super().__exit__(kind, error, traceback)
            return
        with self._file:
            self.entry = self._finished()

    def _finished(self) -> SegmentEntry:
        """The segment, after its directory and its tail are written."""
        self._flush(int(self._begun[0]))
        num_pages = self._num_pages
        firsts = np.concatenate(self._firsts)
        directory = np.zeros((-(-num_pages // FIRSTS_PER_PAGE), PAGE_BYTES // 8), np.uint64)
        for number, row in enumerate(directory):
            held = firsts[number * FIRSTS_PER_PAGE :][:FIRSTS_PER_PAGE]
            row[: len(held)] = held
        self._append(directory.view(np.uint8))
        roots, deviations = tuple(directory[:, 0].tolist()), deviations_of(firsts, self._zone_bits)
        layout = LocatorLayout(len(self._positions), self.num_pairs, num_pages, roots, deviations)
        self._sink.write(encode_tail(layout, self._positions))
        self._sink.end_span()
        return SegmentEntry(
            path=self._path,
            num_zones=len(self._positions),
            filter_bytes=(num_pages + len(directory)) * PAGE_BYTES,
            fragments=runs(self._positions.fragment_ids.tolist()),
            spans=(Span(num_pages * PAGE_BYTES, ""), Span(len(directory) * PAGE_BYTES, ""), *self._sink.spans),
            kind=KIND,
        )
