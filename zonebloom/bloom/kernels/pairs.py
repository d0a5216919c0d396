"""Pairs of a key and a zone in memory: packed from a column, sorted, and merged.

A pair is a uint64: 41 bits of hash above, 23 bits of zone number below, so that one sort by value orders keys and the
zones of each.

Sorting is by distribution, as the keys are hashes: a partition by the highest bits into runs that fit the L2 cache, a
counting sort of each run into buckets of about 2 pairs, and one insertion sort over what is nearly in order. Merging
needs no partition, as runs in order are partitioned already. Each wrapper raises `InvalidArgumentError` if a dtype, a
shape or a number does not fit.

Spec: specs/locator.md
"""
# ruff: noqa: PLR0917 - kernels take no keywords

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from zonebloom.bloom.kernels import U, kernel, subroutine
from zonebloom.bloom.kernels.checks import address, check_array, check_range, check_room, check_validity
from zonebloom.bloom.kernels.vector import load_u8, load_u32, load_u64, store_u8, store_u32, store_u64, zero_bytes
from zonebloom.bloom.locator_pages import MAX_ZONES

Words: TypeAlias = npt.NDArray[np.uint64]

_0, _1, _2, _3, _7, _8, _24, _63 = map(U, (0, 1, 2, 3, 7, 8, 24, 63))
_WIDE_MASK: Final = U(MAX_ZONES - 1)

_RUN_PAIRS: Final = 1 << 14
"""Pairs of a partition: 128 KiB, so that the partition, its copy and its counts stay in an L2 cache of 1 MiB."""
_MAX_PARTITION_BITS: Final = 12
_MAX_COUNT_BITS: Final = 16
_BIG_BUCKET: Final = U(32)
_MERGED_BITS: Final = _RUN_PAIRS.bit_length() - 3
"""Bits of the buckets of a partition that is merged: 2**12 buckets of 1 or 2 pairs each."""


# --- packing ----------------------------------------------------------------------------------------------------------


@kernel
def _pack_pairs(
    hashes: Any, num_rows: Any, validity: Any, offset: Any, fill: Any, zone_rows: Any, zone: Any, pairs: Any, nulls: Any
) -> Any:
    row, count = _0, _0
    while row < num_rows:
        stop, before = row + min(zone_rows - fill, num_rows - row), count
        fill += stop - row
        if validity == _0:
            for index in range(row, stop):
                store_u64(pairs, index, (load_u64(hashes, index) & ~_WIDE_MASK) | zone)
            count = stop
        else:
            for index in range(row, stop):
                bit = offset + index
                store_u64(pairs, count, (load_u64(hashes, index) & ~_WIDE_MASK) | zone)
                count += (load_u8(validity, bit >> _3) >> (bit & _7)) & _1
            if count - before < stop - row:
                store_u8(nulls, _0, _1)
        row = stop
        if fill == zone_rows:
            zone += _1
            nulls += _1
            fill = _0
    return count


def pack_pairs(
    hashes: Words,
    pairs: Words,
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
    pairs
        Room for one pair more than there are rows.
    has_null
        One item a zone from `first_zone`, set where a row of the zone is null.
    validity
        Arrow's validity bitmap; row 0 is bit `validity_offset`.

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
    check_room("pairs", pairs, len(hashes) + 1)
    check_room("has_null", has_null, num_zones)
    rows = (hashes, len(hashes), validity, validity_offset)
    return int(_pack_pairs(*rows, first_fill, rows_per_zone, first_zone, pairs, has_null))


# --- sorting ----------------------------------------------------------------------------------------------------------


@subroutine
def _sum_counts(counts: Any, num_counts: Any) -> Any:
    """Makes each count the sum of those before it; returns the greatest one."""
    start, most = _0, _0
    for bucket in range(num_counts):
        count = load_u32(counts, bucket)
        most = max(most, count)
        store_u32(counts, bucket, start)
        start += count
    return most


@subroutine
def _distribute(source: Any, target: Any, num_pairs: Any, shift: Any, counts: Any, num_counts: Any) -> Any:
    """Pairs to the buckets of `target` that their bits from `shift` up select, in order of arrival.

    Afterwards a count is the end of its bucket. Returns the greatest number of pairs in a bucket.
    """
    zero_bytes(counts, num_counts << _2)
    mask = num_counts - _1
    for index in range(num_pairs):
        bucket = (load_u64(source, index) >> shift) & mask
        store_u32(counts, bucket, load_u32(counts, bucket) + _1)
    most = _sum_counts(counts, num_counts)
    for index in range(num_pairs):
        pair = load_u64(source, index)
        bucket = (pair >> shift) & mask
        place = load_u32(counts, bucket)
        store_u64(target, place, pair)
        store_u32(counts, bucket, place + _1)
    return most


@subroutine
def _sort_buckets(pairs: Any, num_pairs: Any, most: Any) -> None:
    """Sorts pairs whose buckets, of at most `most` pairs, are in order.

    One pass exchanges neighbours without a branch, so that fewer branches are mispredicted after it: 10.9 ns a pair to
    sort 2**23 with it, 12.6 without. Buckets that equal or contrived hashes made large are sorted by Shell's method.
    """
    carried = load_u64(pairs, _0)
    for index in range(_1, num_pairs):
        pair = load_u64(pairs, index)
        store_u64(pairs, index - _1, min(carried, pair))
        carried = max(carried, pair)
    store_u64(pairs, num_pairs - _1, carried)
    gap: Any = _1
    while most > _BIG_BUCKET and gap < most:
        gap = gap * _3 + _1
    while gap:
        for index in range(gap, num_pairs):
            pair, place = load_u64(pairs, index), index
            while place >= gap and load_u64(pairs, place - gap) > pair:
                store_u64(pairs, place, load_u64(pairs, place - gap))
                place -= gap
            store_u64(pairs, place, pair)
        gap = gap // _3


@kernel
def _sort_pairs(pairs: Any, num_pairs: Any, scratch: Any, partition_bits: Any, ends: Any, counts: Any) -> Any:
    bits_left = U(64) - partition_bits
    _distribute(pairs, scratch, num_pairs, min(bits_left, _63), ends, _1 << partition_bits)
    start, end, previous = _0, _0, _0
    for partition in range(_1 << partition_bits):
        stop = load_u32(ends, partition)
        size, bits = stop - start, _0
        while bits < U(_MAX_COUNT_BITS) and (_2 << bits) < size:
            bits += _1
        run = pairs + (start << _3)
        if size:
            shift = min(bits_left - bits, _63)
            most = _distribute(scratch + (start << _3), run, size, shift, counts, _1 << bits)
            _sort_buckets(run, size, most)
        for index in range(size):  # each once
            pair = load_u64(run, index)
            end += U(pair != previous or end == _0)
            store_u64(pairs, end - _1, pair)
            previous = pair
        start = stop
    return end


def sort_pairs(pairs: Words, scratch: Words) -> int:
    """The pairs in order, each once, at the front of `pairs`; returns how many they are.

    Parameters
    ----------
    scratch
        At least as long, other memory; overwritten.

    Notes
    -----
    Spec: specs/locator.md#sort
    """
    check_array("pairs", pairs, np.uint64, writes=True)
    check_array("scratch", scratch, np.uint64, writes=True)
    check_range("the number of pairs", len(pairs), 0, (1 << 32) - 1)
    check_room("scratch", scratch, len(pairs))
    if not len(pairs):
        return 0
    bits = min((len(pairs) // _RUN_PAIRS).bit_length(), _MAX_PARTITION_BITS)
    ends, counts = (np.empty(1 << most, np.uint32) for most in (bits, _MAX_COUNT_BITS))
    return int(_sort_pairs(pairs, len(pairs), scratch, bits, ends, counts))


# --- merging ----------------------------------------------------------------------------------------------------------


@kernel
def _merge_runs(
    runs: Any, num_runs: Any, least: Any, shift: Any, num_partitions: Any, merged: Any, counts: Any
) -> None:
    """`runs` has three addresses each: of the first pair that is left, of the next partition's first, and the end."""
    num_counts = _1 << U(_MERGED_BITS)
    mask = num_counts - _1
    for partition in range(num_partitions):
        zero_bytes(counts, num_counts << _2)
        size = _0
        for run in range(runs, runs + num_runs * _24, _24):
            begin, end = load_u64(run, _0), load_u64(run, _2)
            at = begin
            while at < end:
                bucket = (load_u64(at, _0) - least) >> shift
                if bucket >> U(_MERGED_BITS) != partition:
                    break
                store_u32(counts, bucket & mask, load_u32(counts, bucket & mask) + _1)
                at += _8
            store_u64(run, _1, at)
            size += (at - begin) >> _3
        if size == _0:
            continue
        most = _sum_counts(counts, num_counts)
        for run in range(runs, runs + num_runs * _24, _24):
            at, stop = load_u64(run, _0), load_u64(run, _1)
            while at < stop:
                pair = load_u64(at, _0)
                bucket = ((pair - least) >> shift) & mask
                place = load_u32(counts, bucket)
                store_u64(merged, place, pair)
                store_u32(counts, bucket, place + _1)
                at += _8
            store_u64(run, _0, stop)
        _sort_buckets(merged, size, most)
        merged += size << _3


def merge_runs(runs: Sequence[Words], merged: Words) -> int:
    """All pairs of `runs` in order; returns how many they are.

    Parameters
    ----------
    runs
        Each in order; no pair is in two of them.
    merged
        Room for the pairs of all runs.

    Notes
    -----
    Spec: specs/locator.md#merge_locators
    """
    check_array("merged", merged, np.uint64, writes=True)
    for run in runs:
        check_array("runs", run, np.uint64)
    runs = [run for run in runs if len(run)]
    num_pairs = sum(map(len, runs))
    check_room("merged", merged, num_pairs)
    if not runs:
        return 0
    least, greatest = min(int(run[0]) for run in runs), max(int(run[-1]) for run in runs)
    shift = max((2 * (greatest - least) // num_pairs).bit_length() - 1, 0)
    num_partitions = ((greatest - least) >> shift >> _MERGED_BITS) + 1
    bounds = np.array([(address(run), 0, address(run) + 8 * len(run)) for run in runs], np.uint64)
    counts = np.empty(1 << _MERGED_BITS, np.uint32)
    _merge_runs(bounds, len(runs), least, shift, num_partitions, merged, counts)
    return num_pairs
