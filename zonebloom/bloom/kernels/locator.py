"""Pages of a locator: pairs laid in pages, read back, and searched for many keys.

In memory a pair is a uint64 with 23 bits of zone number (`pairs`). On a page the zone has as many bits as the locator's
zones need. Each wrapper raises `InvalidArgumentError` if a dtype, a shape or a number does not fit.

Spec: specs/locator.md
"""
# ruff: noqa: PLR0917 - kernels take no keywords

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from zonebloom.bloom.kernels import U, kernel, subroutine
from zonebloom.bloom.kernels.checks import check_array, check_range, check_room
from zonebloom.bloom.kernels.vector import (
    count_ones,
    count_trailing_zeros,
    load_u32,
    load_u64,
    store_u32,
    store_u64,
    zero_bytes,
)
from zonebloom.bloom.locator_pages import KEY_BITS, MAX_PAIRS, MAX_ZONES, PAGE_BYTES, WIDE_ZONE_BITS
from zonebloom.ground.errors import InvalidArgumentError

Words: TypeAlias = npt.NDArray[np.uint64]
Pages: TypeAlias = npt.NDArray[np.uint8]

DROPPED: Final = (1 << 32) - 1
"""New number of a zone that is gone: its pairs are left out."""

_0, _1, _6, _8, _32, _63 = map(U, (0, 1, 6, 8, 32, 63))
_PAGE: Final = U(PAGE_BYTES)
_MAX_PAIRS: Final = U(MAX_PAIRS)
_WIDE: Final = U(WIDE_ZONE_BITS)
_WIDE_MASK: Final = U(MAX_ZONES - 1)
_LOW: Final = U((1 << 32) - 1)
_CORRUPT: Final = U((1 << 64) - 1)
_DROPPED: Final = U(DROPPED)
_PAGE_BITS: Final = U((PAGE_BYTES - 16) * 8)
_BIT_WORDS: Final = U((PAGE_BYTES - 16) // 8)
_LAST_ENTRY: Final = U(PAGE_BYTES // 4 - 3)
_BUCKET_BITS: Final = U(KEY_BITS - 32)
"""Bits of a bucket's number beside those of a zone's."""


# --- pages ------------------------------------------------------------------------------------------------------------


@subroutine
def _end_page(page: Any, index: Any, bits: Any, count: Any) -> None:
    """Adds the last bits, whose word may hold entries as well, and the number of pairs."""
    store_u64(page + _8, index, load_u64(page + _8, index) | bits)
    store_u32(page, _1, count)


@kernel
def _encode_pages(pairs: Any, num_pairs: Any, zone_bits: Any, pages: Any, num_pages: Any, begun: Any) -> Any:
    number, count, index, bits = load_u64(begun, _0), load_u64(begun, _1), _0, _0
    page = pages + number * _PAGE - _PAGE
    first_bucket = load_u32(page, _0) if number else _0
    zone_mask, done = (_1 << zone_bits) - _1, _0
    while done < num_pairs:
        wide = load_u64(pairs, done)
        pair = (wide >> _WIDE << zone_bits) | (wide & zone_mask)
        place = (pair >> _32) - first_bucket + count
        if number == _0 or place >= _PAGE_BITS or place + _32 * (count + _1) >= _PAGE_BITS:
            if number == num_pages:
                break
            if number:
                _end_page(page, index, bits, count)
            page += _PAGE
            zero_bytes(page, _PAGE)
            first_bucket = pair >> _32
            store_u32(page, _0, first_bucket)
            number, count, place, index, bits = number + _1, _0, _0, _0, _0
        if place >> _6 != index:
            store_u64(page + _8, index, load_u64(page + _8, index) | bits)
            index, bits = place >> _6, _0
        bits |= _1 << (place & _63)
        store_u32(page, _LAST_ENTRY - count, pair & _LOW)
        count += _1
        done += _1
    if number:
        _end_page(page, index, bits, count)
    store_u64(begun, _0, number)
    store_u64(begun, _1, count)
    return done


def encode_pages(pairs: Words, zone_bits: int, pages: Pages, begun: Words) -> int:
    """Append pairs to pages, each of which is filled before the next begins; returns how many fit into `pages`.

    Checksums are not written.

    Parameters
    ----------
    pairs
        In order, each once, and all above those that are in the pages already; zones have `zone_bits` bits at most.
    pages
        Shape (num_pages, 4096).
    begun
        The number of pages that are begun, and of the pairs in the last of them; both grow.

    Notes
    -----
    Spec: specs/locator.md#encode_pages
    """
    check_array("pairs", pairs, np.uint64)
    check_array("begun", begun, np.uint64, writes=True)
    check_range("zone_bits", zone_bits, 0, WIDE_ZONE_BITS)
    _check_pages(pages, writes=True)
    check_room("begun", begun, 2)
    check_range("the number of pages begun", int(begun[0]), 0, len(pages))
    check_range("the number of pairs in the last page", int(begun[1]), 0, MAX_PAIRS)
    return int(_encode_pages(pairs, len(pairs), zone_bits, pages, len(pages), begun))


@kernel
def _decode_pages(pages: Any, num_pages: Any, zone_bits: Any, numbers: Any, num_zones: Any, pairs: Any) -> Any:
    zone_mask, last_bucket = (_1 << zone_bits) - _1, (_1 << (zone_bits + _BUCKET_BITS)) - _1
    end, previous, is_first = _0, _0, True
    for number in range(num_pages):
        page = pages + number * _PAGE
        bucket, count = load_u32(page, _0), load_u32(page, _1)
        if count > _MAX_PAIRS:
            return _CORRUPT
        index, done = _0, _0
        while done < count:
            if index == _BIT_WORDS:
                return _CORRUPT
            bits = load_u64(page + _8, index)
            while bits and done < count:
                place = (index << _6) + count_trailing_zeros(bits)
                bits &= bits - _1
                high = bucket + place - done
                pair = high << _32 | load_u32(page, _LAST_ENTRY - done)
                zone = pair & zone_mask
                if high > last_bucket or zone >= num_zones or (pair <= previous and not is_first):
                    return _CORRUPT
                previous, is_first = pair, False
                new = load_u32(numbers, zone) if numbers else zone
                store_u64(pairs, end, (pair >> zone_bits << _WIDE) | (new & _WIDE_MASK))
                end += U(new != _DROPPED)
                done += _1
            index += _1
    return end


def decode_pages(
    pages: Pages, num_zones: int, zone_bits: int, pairs: Words, new_numbers: npt.NDArray[np.uint32] | None = None
) -> int | None:
    """The pairs of some pages in order; returns how many, or None if the pages cannot hold pairs of such zones.

    Parameters
    ----------
    pages
        Shape (num_pages, 4096). Their checksums hold; nothing else is assumed.
    num_zones, zone_bits
        Zones of the locator, and the bits of their numbers.
    pairs
        Room for 989 pairs a page.
    new_numbers
        The number that each zone gets, or `DROPPED`; for pairs in order the numbers rise.

    Notes
    -----
    Spec: specs/locator.md#decode_pages
    """
    _check_pages(pages)
    _check_zones(num_zones, zone_bits)
    check_array("pairs", pairs, np.uint64, writes=True)
    check_room("pairs", pairs, len(pages) * MAX_PAIRS)
    if new_numbers is not None:
        check_array("new_numbers", new_numbers, np.uint32)
        check_room("new_numbers", new_numbers, num_zones)
    num_pairs = int(_decode_pages(pages, len(pages), zone_bits, new_numbers, num_zones, pairs))
    return None if num_pairs == _CORRUPT else num_pairs


# --- searching --------------------------------------------------------------------------------------------------------


@subroutine
def _after_zeros(page: Any, num_zeros: Any) -> Any:
    """The place after that number of zeros in the page's bits; past all bits if they are fewer."""
    index, zeros = _0, ~load_u64(page + _8, _0)
    while count_ones(zeros) < num_zeros:
        num_zeros -= count_ones(zeros)
        index += _1
        if index == _BIT_WORDS:
            return _PAGE_BITS
        zeros = ~load_u64(page + _8, index)
    for _ in range(_1, num_zeros):
        zeros &= zeros - _1
    return (index << _6) + count_trailing_zeros(zeros) + _1 if num_zeros else _0


@subroutine
def _next_zero(page: Any, place: Any) -> Any:
    """The place of the first zero in the page's bits from `place` on; past all bits if there is none."""
    index = place >> _6
    zeros = ~load_u64(page + _8, index) >> (place & _63) << (place & _63)
    while zeros == _0 and index + _1 < _BIT_WORDS:
        index += _1
        zeros = ~load_u64(page + _8, index)
    return (index << _6) + count_trailing_zeros(zeros)


@kernel
def _find_pairs(
    pages: Any, hashes: Any, num_hashes: Any, begins: Any, ends: Any, zone_bits: Any, keys: Any, zones: Any, room: Any
) -> Any:
    zone_mask, num_pairs = (_1 << zone_bits) - _1, _0
    for key in range(num_hashes):
        least = load_u64(hashes, key) >> _WIDE << zone_bits
        low, high = least & _LOW, (least & _LOW) | zone_mask
        for number in range(load_u64(begins, key), load_u64(ends, key)):
            page = pages + number * _PAGE
            bucket, count = (least >> _32) - load_u32(page, _0), min(load_u32(page, _1), _MAX_PAIRS)
            if bucket > _PAGE_BITS:  # below the page's first, or above all
                continue
            start = _after_zeros(page, bucket)
            if start >= _PAGE_BITS:  # no such bucket
                continue
            for index in range(start - bucket, min(_next_zero(page, start) - bucket, count)):
                entry = load_u32(page, _LAST_ENTRY - index)
                if low <= entry <= high:
                    if num_pairs < room:
                        store_u64(keys, num_pairs, key)
                        store_u64(zones, num_pairs, entry & zone_mask)
                    num_pairs += _1
    return num_pairs


def find_pairs(
    pages: Pages, hashes: Words, begins: Words, ends: Words, zone_bits: int, keys: Words, zones: Words
) -> int:
    """For each hash the zones that hold its key, in order; returns how many.

    If there are more than `keys` has room for, the others are only counted. Zones of a hostile page may be any number
    of `zone_bits` bits.

    Parameters
    ----------
    pages
        Shape (num_pages, 4096). The checksums of those that are asked hold.
    begins, ends
        For each hash the half-open range of the pages that can hold pairs of its key.
    keys, zones
        Filled with the index of the hash and the number of the zone.

    Notes
    -----
    Spec: specs/locator.md#probe
    """
    _check_pages(pages)
    check_range("zone_bits", zone_bits, 0, WIDE_ZONE_BITS)
    for name, words in (("hashes", hashes), ("begins", begins), ("ends", ends), ("keys", keys), ("zones", zones)):
        check_array(name, words, np.uint64, writes=name in ("keys", "zones"))
    for name, words, num_items in (
        ("begins", begins, len(hashes)),
        ("ends", ends, len(hashes)),
        ("zones", zones, len(keys)),
    ):
        check_room(name, words, num_items)
    check_range("the end of a range of pages", int(ends.max(initial=0)), 0, len(pages))
    return int(_find_pairs(pages, hashes, len(hashes), begins, ends, zone_bits, keys, zones, len(keys)))


def _check_pages(pages: Any, *, writes: bool = False) -> None:
    check_array("pages", pages, np.uint8, 2, writes=writes)
    if pages.shape[1] != PAGE_BYTES:
        raise InvalidArgumentError(f"pages must have {PAGE_BYTES} bytes each", got=pages.shape[1])


def _check_zones(num_zones: int, zone_bits: int) -> None:
    check_range("zone_bits", zone_bits, 0, WIDE_ZONE_BITS)
    check_range("num_zones", num_zones, 0, 1 << zone_bits)
