"""Pairs of a key and a zone in memory: packed from a column, sorted, and merged.

A pair is a uint64: 41 bits of hash above, 23 bits of zone number below, so that one sort by value orders keys and the
zones of each.

Sorting is by distribution, as the keys are hashes: runs of pairs are cut by the highest bits into partitions that fit
the L2 cache; each partition of all runs is sorted by a counting sort into buckets of about 2 pairs, and one insertion
sort over what is nearly in order. Runs in order are partitioned already, so they are merged in the same way. Each
wrapper raises `InvalidArgumentError` if a dtype, a shape or a number does not fit.

Spec: specs/locator.md
"""
# ruff: noqa: PLR0917 - kernels take no keywords

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from zonebloom.bloom.kernels import U, kernel, subroutine
from zonebloom.bloom.kernels.checks import address, check_array, check_range, check_room, check_validity
from zonebloom.bloom.kernels.vector import load_u8, load_u32, load_u64, store_u8, store_u32, store_u64, zero_bytes
from zonebloom.bloom.locator_pages import MAX_ZONES
from zonebloom.ground.errors import InvalidArgumentError

Words: TypeAlias = npt.NDArray[np.uint64]
Bounds: TypeAlias = npt.NDArray[np.uint32]

_0, _1, _2, _3, _4, _7, _24, _63, _64 = map(U, (0, 1, 2, 3, 4, 7, 24, 63, 64))
_WIDE_MASK: Final = U(MAX_ZONES - 1)

_PARTITION_PAIRS: Final = 1 << 14
"""Pairs of a partition: 128 KiB, so that a partition and its counts stay in an L2 cache; 768 KiB in a largest part."""
_MAX_PARTITION_BITS: Final = 10
"""With 11 a partition takes twice as long, 5 ns a pair, and sorting as long as with 10."""
_MAX_COUNT_BITS: Final = U(16)
_BIG_BUCKET: Final = U(32)


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
        One item a zone from `first_zone`, set if a row of the zone is null.
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

    Buckets that equal or contrived hashes made large are sorted by Shell's method, all others by insertion.
    """
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
def _partition_pairs(pairs: Any, num_pairs: Any, partition_bits: Any, target: Any, bounds: Any) -> Any:
    store_u32(bounds, _0, _0)
    return _distribute(pairs, target, num_pairs, min(_64 - partition_bits, _63), bounds + _4, _1 << partition_bits)


def partition_bits_for(num_pairs: int) -> int:
    """How many of the highest bits cut `num_pairs` pairs into partitions that fit the cache."""
    return min((num_pairs // _PARTITION_PAIRS).bit_length(), _MAX_PARTITION_BITS)


def partition_pairs(pairs: Words, target: Words, partition_bits: int) -> tuple[Bounds, int]:
    """Copy pairs to `target`, in order of their highest bits; those of a partition stay in order of arrival.

    Returns where each partition begins and the last one ends, and the number of pairs of the greatest.

    Notes
    -----
    Spec: specs/locator.md#sort
    """
    check_array("pairs", pairs, np.uint64)
    check_array("target", target, np.uint64, writes=True)
    check_range("the number of pairs", len(pairs), 0, (1 << 32) - 1)
    check_range("partition_bits", partition_bits, 0, _MAX_PARTITION_BITS)
    check_room("target", target, len(pairs))
    bounds = np.empty((1 << partition_bits) + 1, np.uint32)
    most = int(_partition_pairs(pairs, len(pairs), partition_bits, target, bounds))
    return bounds, most


@subroutine
def _partition_size(runs: Any, runs_stop: Any, partition: Any) -> Any:
    size = _0
    for run in range(runs, runs_stop, _24):
        bounds = load_u64(run, _1)
        size += load_u32(bounds, partition + _1) - load_u32(bounds, partition)
    return size


@kernel
def _merge_partitions(
    runs: Any, num_runs: Any, first: Any, stop: Any, least: Any, width: Any, merged: Any, counts: Any
) -> Any:
    """`runs` has three addresses each: of the pairs, the bounds of the partitions, and the new numbers of zones."""
    end, runs_stop = _0, runs + num_runs * _24
    for partition in range(first, stop):
        size, bits = _partition_size(runs, runs_stop, partition), _0
        if size == _0:
            continue
        while bits < min(_MAX_COUNT_BITS, width) and (_2 << bits) < size:
            bits += _1
        shift, mask = min(width - bits, _63), (_1 << bits) - _1
        zero_bytes(counts, _4 << bits)
        for run in range(runs, runs_stop, _24):
            pairs, bounds = load_u64(run, _0), load_u64(run, _1)
            for index in range(load_u32(bounds, partition), load_u32(bounds, partition + _1)):
                bucket = ((load_u64(pairs, index) - least) >> shift) & mask
                store_u32(counts, bucket, load_u32(counts, bucket) + _1)
        most = _sum_counts(counts, _1 << bits)
        target = merged + (end << _3)
        for run in range(runs, runs_stop, _24):
            pairs, bounds, numbers = load_u64(run, _0), load_u64(run, _1), load_u64(run, _2)
            for index in range(load_u32(bounds, partition), load_u32(bounds, partition + _1)):
                pair = load_u64(pairs, index)
                bucket = ((pair - least) >> shift) & mask
                if numbers:
                    pair = (pair & ~_WIDE_MASK) | load_u32(numbers, pair & _WIDE_MASK)
                place = load_u32(counts, bucket)
                store_u64(target, place, pair)
                store_u32(counts, bucket, place + _1)
        _sort_buckets(target, size, most)
        previous = ~load_u64(target, _0)
        for index in range(size):  # each once
            pair = load_u64(target, index)
            end += U(pair != previous)
            store_u64(merged, end - _1, pair)
            previous = pair
    return end


class PartitionedRuns:
    """Runs of pairs that are cut into the same partitions.

    Parameters
    ----------
    bounds
        For each run where each partition begins, and where the last one ends.
    width
        Bits of a pair below those that say its partition: partition i has the pairs from ``least + (i << width)``.
    numbers
        For each run the new numbers of its zones; without them zones keep their numbers.

    Notes
    -----
    Spec: specs/locator.md#sort
    """

    def __init__(
        self,
        runs: Sequence[Words],
        bounds: Sequence[Bounds],
        *,
        width: int,
        least: int = 0,
        numbers: Sequence[npt.NDArray[np.uint32]] = (),
    ) -> None:
        for run, its_bounds in zip(runs, bounds, strict=True):
            check_array("runs", run, np.uint64)
            check_array("bounds", its_bounds, np.uint32)
        for its_numbers in numbers:
            check_array("numbers", its_numbers, np.uint32)
        check_range("width", width, 0, 64)
        self._arrays = runs, np.stack(bounds), numbers  # the kernel has their addresses
        starts = self._arrays[1]
        if (starts[:, 1:] < starts[:, :-1]).any() or (starts[:, -1] > list(map(len, runs))).any():
            raise InvalidArgumentError("bounds must ascend to at most the end of their run")
        self._addresses = np.array(
            [list(map(address, three)) for three in zip_longest(runs, starts, numbers)], np.uint64
        )
        self._least, self._width = least, width
        self.stops: npt.NDArray[np.int64] = starts.sum(axis=0, dtype=np.int64)
        """For each partition, how many pairs are below it; all pairs last."""

    def merge(self, first: int, stop: int, merged: Words) -> int:
        """The pairs of partitions `[first, stop)` in order, each once, at the front of `merged`; how many they are."""
        check_range("first", first, 0, stop)
        check_range("stop", stop, first, len(self.stops) - 1)
        check_array("merged", merged, np.uint64, writes=True)
        check_room("merged", merged, int(self.stops[stop] - self.stops[first]))
        counts = np.empty(1 << _MAX_COUNT_BITS, np.uint32)
        runs, num_runs = self._addresses, len(self._addresses)
        return int(_merge_partitions(runs, num_runs, first, stop, self._least, self._width, merged, counts))


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
    bits = partition_bits_for(len(pairs))
    bounds, _ = partition_pairs(pairs, scratch, bits)
    return PartitionedRuns([scratch], [bounds], width=64 - bits).merge(0, 1 << bits, pairs)


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
    runs = [run for run in runs if len(run)]
    if not runs:
        return 0
    least, greatest = min(int(run[0]) for run in runs), max(int(run[-1]) for run in runs)
    num_pairs = sum(map(len, runs))
    width = min(((greatest - least) * _PARTITION_PAIRS // num_pairs).bit_length(), 63)
    starts = np.arange(1, ((greatest - least) >> width) + 1, dtype=np.uint64) * np.uint64(1 << width) + np.uint64(least)
    bounds = [np.concatenate(([0], run.searchsorted(starts), [len(run)])).astype(np.uint32) for run in runs]
    return PartitionedRuns(runs, bounds, width=width, least=least).merge(0, len(starts) + 1, merged)
