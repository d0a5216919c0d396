"""Pairs of a key and a zone: packed, sorted, laid in pages, read back, and searched for many keys.

In memory a pair is a uint64: 41 bits of hash above, 23 bits of zone number below, so that one sort by value orders keys
and the zones of each. On a page the zone has as many bits as the locator's zones need.

Sorting is by distribution, as the keys are hashes: a partition by the highest bits into runs that fit the L2 cache, a
counting sort of each run into buckets of about 2 pairs, and one insertion sort over what is nearly in order. Pairs that
are many in one bucket, as only equal or contrived hashes are, are sorted by Shell's method first.

Spec: specs/locator.md
"""
# ruff: noqa: PLR0917 - kernels take no keywords

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from zonebloom.bloom.kernels import U, kernel, subroutine
from zonebloom.bloom.kernels.checks import address, check_array, check_range, check_validity
from zonebloom.bloom.kernels.vector import (
    count_ones,
    count_trailing_zeros,
    load_u8,
    load_u32,
    load_u64,
    store_u8,
    store_u32,
    store_u64,
    zero_bytes,
)
from zonebloom.bloom.locator import KEY_BITS, MAX_PAIRS, MAX_ZONES, PAGE_BYTES, WIDE_ZONE_BITS
from zonebloom.errors import InvalidArgumentError

__all__ = [
    "DROPPED",
    "decode_pages",
    "encode_pages",
    "find_pairs",
    "mark_pages",
    "most_pages",
    "pack_pairs",
    "sort_pairs",
]

DROPPED: Final = (1 << 32) - 1
"""New number of a zone that is gone: its pairs are left out."""

_0, _1, _2, _3, _4, _6, _7, _8 = U(0), U(1), U(2), U(3), U(4), U(6), U(7), U(8)
_16, _32, _63, _64 = U(16), U(32), U(63), U(64)
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

_RUN_PAIRS: Final = 1 << 14
"""Pairs of a partition: 128 KiB, so that the partition, its copy and its counts stay in an L2 cache of 1 MiB."""
_MAX_PARTITION_BITS: Final = 12
_MAX_COUNT_BITS: Final = 16
_BIG_BUCKET: Final = U(32)


# --- packing ----------------------------------------------------------------------------------------------------------


@kernel
def _pack_pairs(
    hashes: Any,
    num_rows: Any,
    validity: Any,
    validity_offset: Any,
    first_fill: Any,
    rows_per_zone: Any,
    first_zone: Any,
    pairs: Any,
    has_null: Any,
) -> Any:
    row, fill, zone, count = _0, first_fill, first_zone, _0
    while row < num_rows:
        rows = min(rows_per_zone - fill, num_rows - row)
        if validity == _0:
            for index in range(rows):
                store_u64(pairs, count + index, (load_u64(hashes, row + index) & ~_WIDE_MASK) | zone)
            count += rows
        else:
            num_valid = _0
            for index in range(row, row + rows):
                bit = validity_offset + index
                store_u64(pairs, count + num_valid, (load_u64(hashes, index) & ~_WIDE_MASK) | zone)
                num_valid += (load_u8(validity, bit >> _3) >> (bit & _7)) & _1
            if num_valid < rows:
                store_u8(has_null, zone - first_zone, _1)
            count += num_valid
        row += rows
        fill += rows
        if fill == rows_per_zone:
            zone += _1
            fill = _0
    return count


def pack_pairs(
    hashes: npt.NDArray[np.uint64],
    pairs: npt.NDArray[np.uint64],
    has_null: npt.NDArray[np.bool_],
    *,
    validity: npt.NDArray[np.uint8] | None = None,
    validity_offset: int = 0,
    rows_per_zone: int,
    first_fill: int = 0,
    first_zone: int = 0,
) -> int:
    """The pair of each valid row, in order; returns how many there are.

    Row i belongs to zone ``first_zone + (first_fill + i) // rows_per_zone``.

    Parameters
    ----------
    hashes : ndarray of uint64, shape (num_rows,)
    pairs : ndarray of uint64
        Room for one pair more than there are rows.
    has_null : ndarray of bool, one item a zone from `first_zone`
        Set where a row of the zone is null.
    validity : ndarray of uint8, optional
        Arrow's validity bitmap; row 0 is bit `validity_offset`.

    Raises
    ------
    InvalidArgumentError
        If a dtype, a shape or a number does not fit.

    Notes
    -----
    Spec: specs/locator.md#pairs
    """
    check_array("hashes", hashes, np.uint64)
    check_array("pairs", pairs, np.uint64, writes=True)
    check_array("has_null", has_null, np.bool_, writes=True)
    check_validity(validity, validity_offset, len(hashes))
    check_range("rows_per_zone", rows_per_zone, 1, (1 << 32) - 1)
    check_range("first_fill", first_fill, 0, rows_per_zone - 1)
    num_zones = -(-(first_fill + len(hashes)) // rows_per_zone)
    check_range("first_zone", first_zone, 0, MAX_ZONES - num_zones)
    if len(pairs) <= len(hashes):
        raise InvalidArgumentError(f"pairs must have room for {len(hashes) + 1} items, got {len(pairs)}")
    if len(has_null) < num_zones:
        raise InvalidArgumentError(f"has_null must have an item for each of {num_zones} zones, got {len(has_null)}")
    return int(
        _pack_pairs(
            address(hashes),
            len(hashes),
            address(validity),
            validity_offset,
            first_fill,
            rows_per_zone,
            first_zone,
            address(pairs),
            address(has_null),
        )
    )


# --- sorting ----------------------------------------------------------------------------------------------------------


@subroutine
def _to_starts(counts: Any, num_counts: Any) -> Any:
    """Counts become the sums of those before them; returns the greatest count."""
    start, most = _0, _0
    for index in range(num_counts):
        count = load_u32(counts, index)
        most = max(most, count)
        store_u32(counts, index, start)
        start += count
    return most


@subroutine
def _distribute(source: Any, target: Any, num_pairs: Any, low: Any, shift: Any, counts: Any, num_counts: Any) -> Any:
    """Pairs to the buckets of `target` that their bits from `shift` up select, in order of arrival.

    Afterwards a count is the end of its bucket. Returns the greatest number of pairs in a bucket. A pair outside the
    bounds goes into some bucket.
    """
    zero_bytes(counts, num_counts << _2)
    last = num_counts - _1
    for index in range(num_pairs):
        bucket = min((load_u64(source, index) - low) >> shift, last)
        store_u32(counts, bucket, load_u32(counts, bucket) + _1)
    most = _to_starts(counts, num_counts)
    for index in range(num_pairs):
        pair = load_u64(source, index)
        bucket = min((pair - low) >> shift, last)
        place = load_u32(counts, bucket)
        store_u64(target, place, pair)
        store_u32(counts, bucket, place + _1)
    return most


@subroutine
def _carry_up(pairs: Any, num_pairs: Any) -> None:
    """One pass that exchanges neighbours without a branch, so that fewer branches are mispredicted after it.

    Measured: 10.9 ns a pair to sort 2**23 with it, 12.6 without.
    """
    carried = load_u64(pairs, _0)
    for index in range(_1, num_pairs):
        pair = load_u64(pairs, index)
        store_u64(pairs, index - _1, min(carried, pair))
        carried = max(carried, pair)
    store_u64(pairs, num_pairs - _1, carried)


@subroutine
def _insertion_sort(pairs: Any, num_pairs: Any, gap: Any) -> None:
    for index in range(gap, num_pairs):
        pair = load_u64(pairs, index)
        place = index
        while place >= gap and load_u64(pairs, place - gap) > pair:
            store_u64(pairs, place, load_u64(pairs, place - gap))
            place -= gap
        store_u64(pairs, place, pair)


@subroutine
def _sort_big_buckets(pairs: Any, ends: Any, num_counts: Any) -> None:
    start = _0
    for index in range(num_counts):
        end = load_u32(ends, index)
        size = end - start
        if size > _BIG_BUCKET:
            gap = _1
            while gap < size:
                gap = gap * _3 + _1
            while gap > _1:
                gap = gap // _3
                _insertion_sort(pairs + (start << _3), size, gap)
        start = end


@subroutine
def _drop_repeated(source: Any, num_pairs: Any, target: Any, end: Any) -> Any:
    """Appends sorted pairs to `end` sorted ones before them in `target`, each once; returns the new end."""
    previous = load_u64(target, end - _1) if end else ~load_u64(source, _0)
    for index in range(num_pairs):
        pair = load_u64(source, index)
        end += U(pair != previous)
        store_u64(target, end - _1, pair)
        previous = pair
    return end


@kernel
def _sort_pairs(
    pairs: Any,
    num_pairs: Any,
    scratch: Any,
    low: Any,
    partition_shift: Any,
    num_partitions: Any,
    ends: Any,
    counts: Any,
    max_count_bits: Any,
) -> Any:
    _distribute(pairs, scratch, num_pairs, low, partition_shift, ends, num_partitions)
    start, end = _0, _0
    for partition in range(num_partitions):
        stop = load_u32(ends, partition)
        size = stop - start
        if size:
            bits = _0
            while bits < max_count_bits and (_2 << bits) < size:
                bits += _1
            shift = partition_shift - bits if partition_shift > bits else _0
            base = low + (partition << partition_shift)
            run = pairs + (start << _3)
            most = _distribute(scratch + (start << _3), run, size, base, shift, counts, _1 << bits)
            if most > _BIG_BUCKET:
                _sort_big_buckets(run, counts, _1 << bits)
            _carry_up(run, size)
            _insertion_sort(run, size, _1)
            end = _drop_repeated(run, size, pairs, end)
        start = stop
    return end


def sort_pairs(
    pairs: npt.NDArray[np.uint64], scratch: npt.NDArray[np.uint64], *, low: int = 0, high: int = (1 << 64) - 1
) -> int:
    """The pairs in order, each once, at the front of `pairs`; returns how many they are.

    Parameters
    ----------
    pairs : ndarray of uint64
        Changed in place.
    scratch : ndarray of uint64
        At least as long, other memory; overwritten.
    low, high
        Bounds of the pairs, both included. The narrower, the better they are distributed; pairs outside are not sorted.

    Raises
    ------
    InvalidArgumentError
        If a dtype, a shape or a number does not fit.

    Notes
    -----
    Spec: specs/locator.md#sort
    """
    check_array("pairs", pairs, np.uint64, writes=True)
    check_array("scratch", scratch, np.uint64, writes=True)
    check_range("the number of pairs", len(pairs), 0, (1 << 32) - 1)
    check_range("low", low, 0, high)
    check_range("high", high, low, (1 << 64) - 1)
    if len(scratch) < len(pairs):
        raise InvalidArgumentError(f"scratch must have room for {len(pairs)} pairs, got {len(scratch)}")
    if not len(pairs):
        return 0
    span = (high - low).bit_length()
    bits = min((len(pairs) // _RUN_PAIRS).bit_length(), _MAX_PARTITION_BITS, span)
    ends = np.empty(1 << bits, np.uint32)
    counts = np.empty(1 << _MAX_COUNT_BITS, np.uint32)
    return int(
        _sort_pairs(
            address(pairs),
            len(pairs),
            address(scratch),
            low,
            min(span - bits, 63),
            1 << bits,
            address(ends),
            address(counts),
            _MAX_COUNT_BITS,
        )
    )


# --- pages ------------------------------------------------------------------------------------------------------------


@subroutine
def _flush_bits(page: Any, index: Any, bits: Any) -> None:
    """Adds bits to word `index` of the page's bit string, whose last word may hold entries as well."""
    if bits:
        store_u64(page + _8, index, load_u64(page + _8, index) | bits)


def most_pages(first: int, last: int, num_pairs: int, zone_bits: int) -> int:
    """Pages that `num_pairs` sorted pairs from `first` to `last` begin at most."""
    shift = WIDE_ZONE_BITS + 32 - zone_bits
    num_bits = 33 * num_pairs + max(0, (last >> shift) - (first >> shift))
    return min(num_pairs, num_bits // (int(_PAGE_BITS) - 33) + 2)


@kernel
def _encode_pages(pairs: Any, num_pairs: Any, zone_bits: Any, pages: Any, num_in_page: Any) -> Any:
    """Returns the number of pages begun, and leaves the number of pairs in the last one there."""
    page, count, first_bucket, index, bits = pages, num_in_page, _0, _0, _0
    if count:
        first_bucket = load_u32(page, _0)
    zone_mask = (_1 << zone_bits) - _1
    for number in range(num_pairs):
        wide = load_u64(pairs, number)
        pair = (wide >> _WIDE << zone_bits) | (wide & zone_mask)
        bucket = pair >> _32
        place = bucket - first_bucket + count
        if count == _0 or place >= _PAGE_BITS or place + _32 * (count + _1) >= _PAGE_BITS:
            if count:
                _flush_bits(page, index, bits)
                store_u32(page, _1, count)
                page += _PAGE
            zero_bytes(page, _PAGE)
            store_u32(page, _0, bucket)
            first_bucket, count, place, index, bits = bucket, _0, _0, _0, _0
        if place >> _6 != index:
            _flush_bits(page, index, bits)
            index, bits = place >> _6, _0
        bits |= _1 << (place & _63)
        store_u32(page, _LAST_ENTRY - count, pair & _LOW)
        count += _1
    if count:
        _flush_bits(page, index, bits)
        store_u32(page, _1, count)
        page += _PAGE
    return (page - pages) // _PAGE


def encode_pages(
    pairs: npt.NDArray[np.uint64], zone_bits: int, pages: npt.NDArray[np.uint8], *, num_in_page: int = 0
) -> int:
    """Append pairs to pages, each of which is filled before the next begins; returns how many pages are begun.

    Checksums are not written.

    Parameters
    ----------
    pairs : ndarray of uint64
        In order, each once, and all above those that are in the page already.
    zone_bits
        Bits of a zone number on the page; zones have no more.
    pages : ndarray of uint8, shape (num_pages, 4096)
        Room for one page a pair, or as few as the pairs and the buckets that they span need.
    num_in_page
        Pairs that the first page holds already.

    Raises
    ------
    InvalidArgumentError
        If a dtype, a shape or a number does not fit.

    Notes
    -----
    Spec: specs/locator.md#encode_pages
    """
    check_array("pairs", pairs, np.uint64)
    check_range("zone_bits", zone_bits, 0, WIDE_ZONE_BITS)
    check_range("num_in_page", num_in_page, 0, MAX_PAIRS)
    _check_pages(pages, writes=True)
    if not len(pairs):
        return int(num_in_page > 0)
    needed = most_pages(int(pairs[0]), int(pairs[-1]), len(pairs), zone_bits) + (num_in_page > 0)
    if len(pages) < needed:
        raise InvalidArgumentError(f"pages must have room for {needed} pages, got {len(pages)}")
    return int(_encode_pages(address(pairs), len(pairs), zone_bits, address(pages), num_in_page))


@kernel
def _decode_pages(
    pages: Any, num_pages: Any, zone_bits: Any, new_numbers: Any, num_zones: Any, pairs: Any, room: Any
) -> Any:
    zone_mask, last_bucket = (_1 << zone_bits) - _1, (_1 << (zone_bits + _BUCKET_BITS)) - _1
    end, previous, is_first = _0, _0, True
    for number in range(num_pages):
        page = pages + number * _PAGE
        bucket, count = load_u32(page, _0), load_u32(page, _1)
        if count > _MAX_PAIRS or end + count > room:
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
                new = load_u32(new_numbers, zone) if new_numbers else zone
                store_u64(pairs, end, (pair >> zone_bits << _WIDE) | (new & _WIDE_MASK))
                end += U(new != _DROPPED)
                done += _1
            index += _1
    return end


def decode_pages(
    pages: npt.NDArray[np.uint8],
    num_zones: int,
    zone_bits: int,
    pairs: npt.NDArray[np.uint64],
    new_numbers: npt.NDArray[np.uint32] | None = None,
) -> int | None:
    """The pairs of some pages in order; returns how many, or None where the pages cannot hold pairs of such zones.

    Parameters
    ----------
    pages : ndarray of uint8, shape (num_pages, 4096)
        Their checksums hold; nothing else is assumed.
    num_zones, zone_bits
        Zones of the locator, and the bits of their numbers.
    pairs : ndarray of uint64
        Room for 989 pairs a page.
    new_numbers : ndarray of uint32, shape (num_zones,), optional
        The number that each zone gets, or `DROPPED`; for pairs in order the numbers rise.

    Raises
    ------
    InvalidArgumentError
        If a dtype, a shape or a number does not fit.

    Notes
    -----
    Spec: specs/locator.md#decode_pages
    """
    _check_pages(pages)
    _check_zones(num_zones, zone_bits)
    check_array("pairs", pairs, np.uint64, writes=True)
    if len(pairs) < len(pages) * MAX_PAIRS:
        raise InvalidArgumentError(f"pairs must have room for {len(pages) * MAX_PAIRS}, got {len(pairs)}")
    if new_numbers is not None:
        check_array("new_numbers", new_numbers, np.uint32)
        if len(new_numbers) != num_zones:
            raise InvalidArgumentError(f"new_numbers must have {num_zones} items, got {len(new_numbers)}")
    found = int(
        _decode_pages(
            address(pages), len(pages), zone_bits, address(new_numbers), num_zones, address(pairs), len(pairs)
        )
    )
    return None if found == _CORRUPT else found


# --- searching --------------------------------------------------------------------------------------------------------


@subroutine
def _last_at_most(firsts: Any, num_pages: Any, begin: Any, bound: Any) -> Any:
    """The last page from `begin` on whose first pair is at most `bound`, or `begin`; in steps that double."""
    step = _1
    while begin + step < num_pages and load_u64(firsts, begin + step) <= bound:
        begin += step
        step += step
    while step:
        if begin + step < num_pages and load_u64(firsts, begin + step) <= bound:
            begin += step
        step >>= _1
    return begin


@kernel
def _mark_pages(firsts: Any, num_pages: Any, hashes: Any, num_hashes: Any, zone_bits: Any, marks: Any) -> None:
    page = _0
    for number in range(num_hashes):
        least = load_u64(hashes, number) >> _WIDE << zone_bits
        page = _last_at_most(firsts, num_pages, page, least)
        last = _last_at_most(firsts, num_pages, page, least | ((_1 << zone_bits) - _1))
        for index in range(page, last + _1):
            store_u8(marks, index, _1)


def mark_pages(
    firsts: npt.NDArray[np.uint64], hashes: npt.NDArray[np.uint64], zone_bits: int, marks: npt.NDArray[np.bool_]
) -> None:
    """Set the mark of each page that can hold a pair of one of `hashes`, which ascend.

    Parameters
    ----------
    firsts : ndarray of uint64, shape (num_pages,)
        The first pair of each page, ascending; at least one.

    Raises
    ------
    InvalidArgumentError
        If a dtype, a shape or a number does not fit.

    Notes
    -----
    Spec: specs/locator.md#probe
    """
    check_array("marks", marks, np.bool_, writes=True)
    _check_search(firsts, hashes, len(marks), zone_bits)
    _mark_pages(address(firsts), len(firsts), address(hashes), len(hashes), zone_bits, address(marks))


@subroutine
def _bucket_start(page: Any, missing: Any) -> Any:
    """Where the bits of a bucket's pairs begin, which is after `missing` zeros, 1 or more; past all bits if nowhere."""
    index = _0
    zeros = ~load_u64(page + _8, _0)
    while count_ones(zeros) < missing:
        missing -= count_ones(zeros)
        index += _1
        if index == _BIT_WORDS:
            return _PAGE_BITS
        zeros = ~load_u64(page + _8, index)
    while missing > _1:
        zeros &= zeros - _1
        missing -= _1
    return (index << _6) + count_trailing_zeros(zeros) + _1


@kernel
def _find_pairs(
    pages: Any,
    firsts: Any,
    num_pages: Any,
    hashes: Any,
    num_hashes: Any,
    zone_bits: Any,
    num_zones: Any,
    keys: Any,
    zones: Any,
    room: Any,
) -> Any:
    zone_mask = (_1 << zone_bits) - _1
    number, found = _0, _0
    for key in range(num_hashes):
        least = load_u64(hashes, key) >> _WIDE << zone_bits
        bucket, low = least >> _32, least & _LOW
        high = low | zone_mask
        number = _last_at_most(firsts, num_pages, number, least)
        current, is_done = number, False
        while not is_done:
            page = pages + current * _PAGE
            count, first_bucket = min(load_u32(page, _1), _MAX_PAIRS), load_u32(page, _0)
            if bucket < first_bucket:
                break
            start = _bucket_start(page, bucket - first_bucket) if bucket > first_bucket else _0
            index = start - min(start, bucket - first_bucket) if start < _PAGE_BITS else count
            while index < count and start < _PAGE_BITS and (load_u8(page + _8, start >> _3) >> (start & _7)) & _1:
                entry = load_u32(page, _LAST_ENTRY - index)
                if entry > high:
                    break
                if entry >= low:
                    zone = entry & zone_mask
                    if zone >= num_zones:
                        return _CORRUPT
                    if found < room:
                        store_u64(keys, found, key)
                        store_u64(zones, found, zone)
                    found += _1
                index += _1
                start += _1
            current += _1
            is_done = index < count or current >= num_pages or load_u64(firsts, current) > (least | zone_mask)
    return found


def find_pairs(
    pages: npt.NDArray[np.uint8],
    firsts: npt.NDArray[np.uint64],
    hashes: npt.NDArray[np.uint64],
    num_zones: int,
    zone_bits: int,
    keys: npt.NDArray[np.uint64],
    zones: npt.NDArray[np.uint64],
) -> int | None:
    """For each hash the zones that hold its key, in order; returns how many, or None where a page is no page.

    If there are more than `keys` has room for, the others are only counted.

    Parameters
    ----------
    pages : ndarray of uint8, shape (num_pages, 4096)
        The checksums of those that `mark_pages` marks hold; others are not looked at.
    firsts : ndarray of uint64, shape (num_pages,)
        The first pair of each.
    hashes : ndarray of uint64
        Ascending.
    keys, zones : ndarray of uint64
        Filled with the index of the hash and the number of the zone.

    Raises
    ------
    InvalidArgumentError
        If a dtype, a shape or a number does not fit.

    Notes
    -----
    Spec: specs/locator.md#probe
    """
    _check_pages(pages)
    _check_zones(num_zones, zone_bits)
    _check_search(firsts, hashes, len(pages), zone_bits)
    check_array("keys", keys, np.uint64, writes=True)
    check_array("zones", zones, np.uint64, writes=True)
    if len(keys) != len(zones):
        raise InvalidArgumentError(f"keys and zones must have as many items, got {len(keys)} and {len(zones)}")
    found = int(
        _find_pairs(
            address(pages),
            address(firsts),
            len(pages),
            address(hashes),
            len(hashes),
            zone_bits,
            num_zones,
            address(keys),
            address(zones),
            len(keys),
        )
    )
    return None if found == _CORRUPT else found


def _check_pages(pages: Any, *, writes: bool = False) -> None:
    check_array("pages", pages, np.uint8, 2, writes=writes)
    if pages.shape[1] != PAGE_BYTES:
        raise InvalidArgumentError(f"pages must have {PAGE_BYTES} bytes each, got {pages.shape[1]}")


def _check_zones(num_zones: int, zone_bits: int) -> None:
    check_range("zone_bits", zone_bits, 0, WIDE_ZONE_BITS)
    check_range("num_zones", num_zones, 0, 1 << zone_bits)


def _check_search(firsts: Any, hashes: Any, num_pages: int, zone_bits: int) -> None:
    check_array("firsts", firsts, np.uint64)
    check_array("hashes", hashes, np.uint64)
    check_range("zone_bits", zone_bits, 0, WIDE_ZONE_BITS)
    if not num_pages or len(firsts) != num_pages:
        raise InvalidArgumentError(f"firsts must have an item for each of 1 or more pages, got {len(firsts)}")
