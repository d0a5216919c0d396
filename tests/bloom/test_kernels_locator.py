"""Pairs and pages equal tests/reference.py, for many keys and for few, and no page makes a kernel read outside."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests import reference
from tests.depth import at_depth, some
from zonebloom.bloom.kernels.locator import decode_pages, encode_pages, find_pairs
from zonebloom.bloom.kernels.pairs import PartitionedRuns, merge_runs, pack_pairs, partition_pairs, sort_pairs
from zonebloom.bloom.locator_pages import MAX_PAIRS, MAX_ZONES, likely_pages, pair_bounds, zone_bits_for, zones_in_page

RANDOM = np.random.default_rng(20261122)
SIZES = [0, 1, 2, 31, 32, 33, 988, 989, 990, 2000, (1 << 14) + 1, 70_000]


@pytest.mark.parametrize("num_pairs", [1, 100, 5000, 1_000_000])
def test_likely_pages_have_the_key_and_its_neighbours(num_pairs):
    hashes = np.sort(random_hashes(num_pairs))
    num_pages = -(-num_pairs // 980)
    misses = 0
    for place in RANDOM.integers(0, num_pairs, 2000).tolist():
        first, last = likely_pages(num_pages, int(hashes[place]))
        assert 0 <= first <= last < num_pages
        assert last - first < 20
        page = place * num_pages // num_pairs
        misses += not first <= max(page - 2, 0) <= min(page + 2, num_pages - 1) <= last
    assert misses <= 2


def random_hashes(count, *, distinct=None):
    """Hashes, with repetition if only so many are distinct."""
    hashes = RANDOM.integers(0, 1 << 64, distinct or max(count, 1), dtype=np.uint64)
    return hashes[RANDOM.integers(0, len(hashes), count)] if distinct else hashes[:count]


def sorted_pairs(hashes, num_zones):
    zones = RANDOM.integers(0, max(num_zones, 1), len(hashes)).astype(np.uint64)
    pairs = (hashes >> np.uint64(23) << np.uint64(23)) | zones
    return np.unique(pairs)


def narrow(pairs, zone_bits):
    return [int(pair) >> 23 << zone_bits | (int(pair) & (MAX_ZONES - 1)) for pair in pairs]


def encoded(pairs, zone_bits):
    pages, begun = np.full((len(pairs), 4096), 0xAA, np.uint8), np.zeros(2, np.uint64)
    assert encode_pages(pairs, zone_bits, pages, begun) == len(pairs)
    return pages[: begun[0]]


def search(pages, hashes, num_zones, zone_bits):
    """The zones of each hash, by the kernel from all pages: those of other keys have none."""
    begins, ends = np.zeros(len(hashes), np.uint64), np.full(len(hashes), len(pages), np.uint64)
    keys, zones = np.empty(4, np.uint64), np.empty(4, np.uint64)
    while True:
        actual = find_pairs(pages, hashes, begins, ends, zone_bits, keys, zones)
        if actual <= len(keys):
            return list(zip(keys[:actual].tolist(), zones[:actual].tolist(), strict=True))
        keys, zones = np.empty(actual, np.uint64), np.empty(actual, np.uint64)


# --- pairs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_rows", [0, 1, 9, 10, 11, 100])
@pytest.mark.parametrize("first_fill", [0, 3, 9])
@pytest.mark.parametrize("has_validity", [False, True])
def test_pairs_are_those_of_the_valid_rows(num_rows, first_fill, has_validity):
    hashes = random_hashes(num_rows)
    valid = RANDOM.random(num_rows) < 0.7 if has_validity else np.ones(num_rows, bool)
    bits = np.packbits(np.concatenate((np.zeros(5, bool), valid)), bitorder="little") if has_validity else None
    pairs, has_null = np.empty(num_rows + 1, np.uint64), np.zeros(20, bool)
    validity = {"validity": bits, "validity_offset": 5}
    count = pack_pairs(hashes, pairs, has_null, **validity, rows_per_zone=10, first_fill=first_fill, first_zone=1000)
    zones = (np.arange(num_rows) + first_fill) // 10
    rows = zip(hashes.tolist(), zones.tolist(), valid.tolist(), strict=True)
    assert pairs[:count].tolist() == [
        reference.locator_pair(key_hash, 1000 + zone, 23) for key_hash, zone, ok in rows if ok
    ]
    assert np.flatnonzero(has_null).tolist() == np.unique(zones[~valid]).tolist()


@pytest.mark.parametrize("distinct", [None, 1, 7])
def test_sorting_gives_each_pair_once(distinct):
    for num_pairs in SIZES:
        pairs = random_hashes(num_pairs, distinct=distinct)
        expected = np.unique(pairs)
        count = sort_pairs(pairs, np.empty_like(pairs))
        assert np.array_equal(pairs[:count], expected), num_pairs


@pytest.mark.parametrize("distinct", [None, 1, 7])
@pytest.mark.parametrize("num_runs", [1, 2, 33])
def test_merging_gives_all_pairs_in_order(distinct, num_runs):
    for num_pairs, shared_bits in itertools.product(SIZES, (0, 20, 40)):
        zones = RANDOM.permutation(num_pairs).astype(np.uint64)
        pairs = random_hashes(num_pairs, distinct=distinct) >> np.uint64(23 + shared_bits) << np.uint64(23) | zones
        runs = [np.sort(pairs[start::num_runs]) for start in range(num_runs)]
        merged = np.zeros(num_pairs + 1, np.uint64)
        assert merge_runs(runs, merged) == num_pairs
        assert np.array_equal(merged[:num_pairs], np.sort(pairs)), (num_pairs, shared_bits)
        assert merged[num_pairs] == 0


@pytest.mark.parametrize("num_runs", [1, 3])
@pytest.mark.parametrize("partition_bits", [0, 1, 5, 10])
def test_partitions_of_runs_are_merged_with_new_zone_numbers(num_runs, partition_bits):
    runs = [random_hashes(5000 + number, distinct=700) & ~np.uint64(MAX_ZONES - 8) for number in range(num_runs)]
    numbers = [RANDOM.permutation(8).astype(np.uint32) for _ in runs]
    targets = [np.empty_like(run) for run in runs]
    parts = [partition_pairs(run, target, partition_bits) for run, target in zip(runs, targets, strict=True)]
    partitioned = PartitionedRuns(targets, [run for run, _ in parts], width=64 - partition_bits, numbers=numbers)
    cuts = [0, (1 << partition_bits) // 3, 1 << partition_bits]
    merged = np.empty(sum(map(len, runs)), np.uint64)
    actual = [merged[: partitioned.merge(*cut, merged)].copy() for cut in itertools.pairwise(cuts)]
    zone = np.uint64(MAX_ZONES - 1)
    expected = [(run & ~zone) | new[(run & zone).astype(np.intp)] for run, new in zip(runs, numbers, strict=True)]
    assert np.array_equal(np.concatenate(actual), np.unique(np.concatenate(expected)))
    assert [most for _, most in parts] == [int(np.diff(run).max()) for run, _ in parts]


@pytest.mark.parametrize("pattern", ["descending", "one bucket", "few buckets", "ends"])
def test_contrived_hashes_are_sorted_too(pattern):
    count = 40_000
    low = RANDOM.permutation(count).astype(np.uint64)
    pairs = {
        "descending": np.arange(count, 0, -1).astype(np.uint64) << np.uint64(40),
        "one bucket": low,
        "few buckets": (low % np.uint64(3)) << np.uint64(62) | low,
        "ends": np.where(low % np.uint64(2), low, ~low),
    }[pattern]
    expected = np.unique(pairs)
    merged = np.empty_like(expected)
    assert merge_runs([expected[start::3].copy() for start in range(3)], merged) == len(expected)
    assert np.array_equal(merged, expected)
    assert sort_pairs(pairs, np.empty_like(pairs)) == len(expected)
    assert np.array_equal(pairs[: len(expected)], expected)


# --- pages ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_pairs", [1, 2, 988, 989, 990, 2500])
@pytest.mark.parametrize("num_zones", [1, 3, 1000, MAX_ZONES])
def test_pages_equal_the_reference_and_back(num_pairs, num_zones):
    zone_bits = zone_bits_for(num_zones)
    pairs = sorted_pairs(random_hashes(num_pairs), num_zones)
    pages = encoded(pairs, zone_bits)
    expected = reference.locator_pages(narrow(pairs, zone_bits))
    assert [page[:4088].tobytes() for page in pages] == [page[:4088] for page in expected]
    assert [pair for page in expected for pair in reference.pairs_of_locator_page(page)] == narrow(pairs, zone_bits)
    back = np.empty(len(pages) * MAX_PAIRS, np.uint64)
    count = decode_pages(pages, num_zones, zone_bits, back)
    assert np.array_equal(back[:count], pairs)


@settings(max_examples=at_depth(40))
@given(st.lists(st.integers(0, 2500), min_size=1, max_size=5), st.integers(1, 60_000), st.booleans())
def test_pairs_written_in_parts_make_the_same_pages(sizes, num_zones, is_repeated):
    hashes = random_hashes(sum(sizes), distinct=3 if is_repeated else None)
    pairs, zone_bits = sorted_pairs(hashes, num_zones), zone_bits_for(num_zones)
    whole = encoded(pairs, zone_bits)
    parts, begun = np.zeros((len(whole) + 1, 4096), np.uint8), np.zeros(2, np.uint64)
    done = 0
    for size in [*sizes, len(pairs)]:
        done += encode_pages(pairs[done : done + size], zone_bits, parts, begun)
    assert (done, begun[0]) == (len(pairs), len(whole))
    assert np.array_equal(parts[:-1], whole)


@pytest.mark.parametrize("num_pages", [0, 1, 2])
def test_pairs_without_room_are_left(num_pages):
    pairs = sorted_pairs(random_hashes(3000), 100)
    whole, room, begun = encoded(pairs, 7), np.zeros((num_pages, 4096), np.uint8), np.zeros(2, np.uint64)
    done = encode_pages(pairs, 7, room, begun)
    assert np.array_equal(room, whole[:num_pages])
    assert done == sum(int(page.view("<u4")[1]) for page in whole[:num_pages])
    assert encode_pages(pairs[done:], 7, room, begun) == 0
    assert np.array_equal(room, whole[:num_pages])


# --- searching --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_zones", "distinct", "num_pairs"),
    some(itertools.product([1, 3, 700, 1 << 20], [None, 1, 5, 400], [1, 2, 989, 990, 5000]), each=7),
)
def test_found_pairs_are_those_of_the_key(num_pairs, distinct, num_zones):
    stored = random_hashes(num_pairs, distinct=distinct)
    pairs, zone_bits = sorted_pairs(stored, num_zones), zone_bits_for(num_zones)
    pages = encoded(pairs, zone_bits)
    few = at_depth(50, 8)
    hashes = np.sort(np.concatenate((stored[:few], random_hashes(few), np.array([0, 2**64 - 1], np.uint64))))
    zones_of: dict[int, list[int]] = {}
    for pair in pairs.tolist():
        zones_of.setdefault(pair >> 23, []).append(pair & (MAX_ZONES - 1))
    expected = [(i, zone) for i, key_hash in enumerate(hashes.tolist()) for zone in zones_of.get(key_hash >> 23, [])]
    assert search(pages, hashes, num_zones, zone_bits) == expected
    bounds = [pair_bounds(key_hash, zone_bits) for key_hash in hashes.tolist()]
    in_pages = [[zones_in_page(page.tobytes(), *bound).tolist() for page in pages] for bound in bounds]
    assert [(i, zone) for i, page in enumerate(in_pages) for zones in page for zone in zones] == expected


def test_a_bucket_that_ends_with_the_bits_of_its_page_is_found():
    """988 pairs of bucket 0 and one of bucket 3 take all 32 640 bits, so no zero follows the last pair."""
    last = 3 << 32 | 5
    pairs = np.array([*range(988), last], np.uint64)  # zone_bits 23: as they are on the page
    [page] = encoded(pairs, 23)
    assert int(page.view("<u4")[1]) == 989
    for pair in (0, 987, last):
        least, greatest = pair_bounds(pair, 23)
        expected = [pair - least for pair in pairs.tolist() if least <= pair <= greatest]
        assert zones_in_page(page.tobytes(), least, greatest).tolist() == expected
        assert [zone for _, zone in search(page[None], np.array([pair], np.uint64), MAX_ZONES, 23)] == expected
    begun = np.array([1, 989], np.uint64)
    assert encode_pages(np.array([last + 1], np.uint64), 23, np.stack([page] * 2), begun) == 1
    assert begun.tolist() == [2, 1]


def test_an_absent_key_meets_a_pair_as_often_as_41_bits_let_it():
    """2**22 keys cannot meet 2**16 pairs more than a few times: 0.125 are expected."""
    pairs = sorted_pairs(random_hashes(1 << 16), 8)
    result = search(encoded(pairs, 3), np.sort(random_hashes(at_depth(1 << 22, 1 << 18))), 8, 3)
    assert len(result) <= 4


# --- hostile pages ----------------------------------------------------------------------------------------------------


@settings(max_examples=at_depth(200))
@given(st.integers(0, 2**32), st.sampled_from(["flip", "random", "ones", "zeros", "count", "bucket"]))
def test_no_page_makes_a_kernel_read_or_write_outside(seed, how):
    """Guards of 0xAA around what a kernel may write stay as they are, and what it says lies in the bounds."""
    random = np.random.default_rng(seed)
    num_zones, zone_bits = 700, 10
    pages = encoded(sorted_pairs(random_hashes(2500), num_zones), zone_bits).copy()
    words = pages.view("<u4")
    victim = int(random.integers(len(pages)))
    if how == "flip":
        pages[victim, random.integers(4096, size=5)] ^= random.integers(1, 256, 5, np.uint8)
    elif how == "random":
        pages[victim] = random.integers(0, 256, 4096, np.uint8)
    elif how in ("ones", "zeros"):
        pages[victim, 8:4088] = 0xFF if how == "ones" else 0
    else:
        words[victim, 1 if how == "count" else 0] = random.integers(0, 1 << 32, dtype=np.uint32)
    hashes = np.sort(np.concatenate((random_hashes(200), np.array([0, 2**64 - 1], np.uint64))))
    begins, ends = np.zeros(len(hashes), np.uint64), np.full(len(hashes), len(pages), np.uint64)
    keys, zones = (np.full(300, 0xAAAA, np.uint64) for _ in range(2))
    count = min(find_pairs(pages, hashes, begins, ends, zone_bits, keys[:200], zones[:200]), 200)
    assert (keys[200:] == 0xAAAA).all()
    assert (keys[:count] < len(hashes)).all()
    assert (zones[:count] < 1 << zone_bits).all()
    pairs = np.full(len(pages) * MAX_PAIRS + 10, 0xAAAA, np.uint64)
    count = decode_pages(pages, num_zones, zone_bits, pairs[:-10])
    assert (pairs[-10:] == 0xAAAA).all()
    if count is not None:
        decoded = pairs[:count]
        assert (decoded[1:] > decoded[:-1]).all()
        assert ((decoded & np.uint64(MAX_ZONES - 1)) < num_zones).all()
    for key_hash in hashes[::50].tolist():
        assert len(zones_in_page(pages[victim].tobytes(), *pair_bounds(key_hash, zone_bits))) <= MAX_PAIRS
