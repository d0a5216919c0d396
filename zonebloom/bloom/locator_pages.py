"""Locator: which zones hold a key, as one sorted set of integers in pages of 4 KiB; pure arithmetic, without Numba.

The ladder:

- a **key** is the highest 41 bits of a hash;
- a **pair** is a key and the number of a zone that holds the key, as one integer ``key << zone_bits | zone``. A locator
  is the set of all its pairs, in order. In memory ``zone_bits`` is 23 and a pair fills a uint64;
- a pair's **entry** is its lowest 32 bits, its **bucket** the bits above;
- a **page** is 4096 bytes: the first bucket, the number of pairs, one bit a pair and one a bucket, entries, a checksum.

The kernels of `kernels/locator.py` do the same for many; these functions do it for a few keys.

Spec: specs/locator.md
"""

from __future__ import annotations

import math
from struct import Struct
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

KEY_BITS: Final = 41
"""Bits of a hash in a pair: an absent key equals one of n pairs with a probability of n / 2**41."""
WIDE_ZONE_BITS: Final = 64 - KEY_BITS
"""Bits of the zone number of a pair in memory."""
MAX_ZONES: Final = 1 << WIDE_ZONE_BITS
"""Zones of one locator."""
ENTRY_BITS: Final = 32
"""Bits of a pair that a page holds as they are; the bits above are counted in unary."""
PAGE_BYTES: Final = 4096
FIRSTS_PER_PAGE: Final = PAGE_BYTES // 8 - 1
"""First pairs, one for each page, that a page of the directory holds beside its checksum."""
_BITS_START, _BITS_STOP = 8, PAGE_BYTES - 8
MAX_PAIRS: Final = (_BITS_STOP - _BITS_START) * 8 // (ENTRY_BITS + 1)
"""Pairs that fit into a page if all are in one bucket."""
_ENTRY: Final = np.dtype("<u4")
_FIRST: Final = Struct(f"<I{_BITS_STOP - 8}xI")
_ENTRY_MASK = (1 << ENTRY_BITS) - 1
_PAGES_BESIDE = 3
"""Pages that a search may read before and after the one of a key."""
_LAST_ENTRY = _BITS_STOP // 4 - 1


def zone_bits_for(num_zones: int) -> int:
    """Bits of a zone number on the pages of a locator of `num_zones` zones.

    Spec: specs/locator.md#pairs
    """
    return max(0, num_zones - 1).bit_length()


def pair_bounds(hash_: int, zone_bits: int) -> tuple[int, int]:
    """The least and the greatest pair that the key of a hash can have.

    Spec: specs/locator.md#pairs
    """
    least = hash_ >> WIDE_ZONE_BITS << zone_bits
    return least, least | ((1 << zone_bits) - 1)


def zones_in_page(page: bytes, least: int, greatest: int) -> NDArray[np.int64]:
    """The zones of the pairs from `least` to `greatest`, the bounds of one key, in a page whose checksum holds.

    Nothing outside `page` is read, even if its bytes are damaged.

    Cost: about 5 µs if no pair matches, else 15 µs. Spec: specs/locator.md#pages
    """
    words = np.frombuffer(page, _ENTRY)
    count, bucket = min(int(words[1]), MAX_PAIRS), (least >> ENTRY_BITS) - int(words[0])
    low = np.uint32(least & _ENTRY_MASK)
    offsets = (
        words[_LAST_ENTRY - count + 1 : _LAST_ENTRY + 1] - low
    )  # of the last pair first; below low it wraps around
    hits = (offsets <= greatest - least).nonzero()[0]
    if not len(hits):  # so it is for most absent keys, and no bucket need be counted
        return np.zeros(0, np.int64)
    before_entries = np.frombuffer(page, np.uint8)[_BITS_START : _BITS_STOP - 4 * count]
    ends = (np.unpackbits(before_entries, bitorder="little") == 0).nonzero()[0]
    if not 0 <= bucket <= len(ends):
        return np.zeros(0, np.int64)
    start = int(ends[bucket - 1]) + 1 - bucket if bucket else 0
    stop = min(int(ends[bucket]) - bucket, count) if bucket < len(ends) else count
    places = count - 1 - hits[::-1]
    return offsets[hits[::-1]][(places >= start) & (places < stop)].astype(np.int64)


def first_pair(page: bytes) -> int:
    """The first pair of a page.

    Spec: specs/locator.md#directory
    """
    bucket, entry = _FIRST.unpack_from(page)
    first: int = bucket << ENTRY_BITS | entry
    return first


def first_pairs(pages: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """The first pair of each page; `pages` has shape `(num_pages, 4096)`.

    Spec: specs/locator.md#directory
    """
    words = pages.view(np.dtype("<u4"))
    return words[:, 0].astype(np.uint64) << np.uint64(ENTRY_BITS) | words[:, _LAST_ENTRY]


def likely_pages(num_pages: int, hash_: int) -> tuple[int, int]:
    """The first and the last page that a search of one key probably reads, from the number of pages alone.

    Hashes are uniform: the page is within four standard deviations of the key's share of all pages; a search reads some
    pages beside it.

    Spec: specs/locator.md#likely
    """
    share = hash_ / 2**64
    margin = _PAGES_BESIDE + 4 * math.sqrt(num_pages * share * (1 - share) / MAX_PAIRS)
    return max(int(share * num_pages - margin), 0), min(int(share * num_pages + margin), num_pages - 1)
