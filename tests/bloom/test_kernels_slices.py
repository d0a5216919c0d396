"""Bit rows equal tests/reference.py, convert both ways without loss, and answer like the filters they came from."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests import reference
from tests.depth import at_depth
from zonebloom.bloom.kernels.sbbf import filter_check
from zonebloom.bloom.kernels.slices import find_live_zone, probe_rows, slice_zones, unslice_zones

RANDOM = np.random.default_rng(20260804)


def random_filters(num_zones, num_blocks):
    return RANDOM.integers(0, 1 << 32, (num_zones, num_blocks, 8), dtype=np.uint32)


def answers_of(filters, hashes):
    """For each filter and each hash, whether the hash may be in the filter."""
    return np.array([filter_check(filter_, hashes) for filter_ in filters])


def rows_for(num_blocks, num_zones, spare=0):
    return np.zeros((num_blocks * 256, (num_zones + 7) // 8 + spare), np.uint8)


@pytest.mark.parametrize("num_blocks", [1, 2, 3])
@pytest.mark.parametrize("num_zones", [1, 7, 8, 9, 63, 64, 65, 511, 512, 513, 1030])
def test_rows_equal_the_reference_and_back(num_zones, num_blocks):
    filters = random_filters(num_zones, num_blocks)
    rows = rows_for(num_blocks, num_zones)
    slice_zones(filters, rows)
    assert [row.tobytes() for row in rows] == reference.slice_zones(filters.tolist(), rows.shape[1])
    back = np.zeros_like(filters)
    unslice_zones(rows, back)
    assert np.array_equal(back, filters)


@settings(max_examples=at_depth(30))
@given(st.lists(st.integers(0, 600), max_size=4), st.integers(1, 3))
def test_zones_sliced_in_parts_equal_zones_sliced_at_once(part_sizes, num_blocks):
    starts = np.cumsum([0, *[size // 8 * 8 for size in part_sizes]]).tolist()
    filters = random_filters(starts[-1] + 5, num_blocks)
    whole, parts = rows_for(num_blocks, len(filters)), rows_for(num_blocks, len(filters))
    slice_zones(filters, whole)
    for start, stop in zip(starts, [*starts[1:], len(filters)], strict=True):
        slice_zones(filters[start:stop], parts, start)
    assert np.array_equal(parts, whole)


def test_only_the_bytes_of_the_zones_are_written_and_padding_bits_are_zero():
    rows = np.full((256, 6), 0xAA, np.uint8)
    slice_zones(np.full((11, 1, 8), 0xFFFFFFFF, np.uint32), rows, first_zone=8)
    assert (rows == [0xAA, 0xFF, 0b111, 0xAA, 0xAA, 0xAA]).all()


@pytest.mark.parametrize("num_zones", [1, 8, 60, 100, 512, 1000, 1601])
@pytest.mark.parametrize("num_hashes", [0, 1, 3, 40])
def test_probe_answers_like_the_filters(num_zones, num_hashes):
    filters = random_filters(num_zones, 3) | random_filters(num_zones, 3)
    rows = rows_for(3, num_zones, spare=3)
    slice_zones(filters, rows)
    hashes = np.sort(RANDOM.integers(0, 1 << 64, num_hashes, dtype=np.uint64))
    kept = np.zeros(-(-num_zones // 8), np.uint8)
    probe_rows(rows, hashes, num_zones=num_zones, out=kept)
    expected = reference.probe_rows([row.tobytes() for row in rows[:, : len(kept)]], 3, hashes.tolist())
    assert int.from_bytes(kept.tobytes(), "little") == expected
    bits = np.unpackbits(kept, count=num_zones, bitorder="little").astype(bool)
    assert np.array_equal(bits, answers_of(filters, hashes).any(axis=1))


@pytest.mark.parametrize("num_zones", [1, 63, 511, 512, 513, 1500])
def test_a_live_zone_is_found_where_a_filter_has_the_hash(num_zones):
    filters = random_filters(num_zones, 3) | random_filters(num_zones, 3)
    rows = np.zeros((3 * 256, -(-num_zones // 512) * 64), np.uint8)
    slice_zones(filters, rows)
    hashes = np.sort(RANDOM.integers(0, 1 << 64, 200, dtype=np.uint64))
    is_live = RANDOM.random(num_zones) < 0.3
    live = np.zeros(rows.shape[1], np.uint8)
    live[: -(-num_zones // 8)] = np.packbits(is_live, bitorder="little")
    bits = np.zeros(200, np.bool_)
    find_live_zone(rows, hashes, live=live, out=bits)
    expected = answers_of(filters[is_live], hashes).any(axis=0).tolist() if is_live.any() else [False] * 200
    assert bits.tolist() == expected
    assert any(expected) or num_zones < 20
    find_live_zone(rows, hashes, live=np.zeros_like(live), out=bits)
    assert bits.tolist() == expected, "what was found before stays"


def test_a_probe_adds_to_the_bits_already_set():
    rows = rows_for(1, 16)
    bits = np.array([0b101, 0], np.uint8)
    probe_rows(rows, np.zeros(2, np.uint64), num_zones=16, out=bits)
    assert bits.tolist() == [0b101, 0]


@pytest.mark.parametrize("row_bytes", [0, 4])
def test_no_zones_change_nothing(row_bytes):
    rows = np.full((256, row_bytes), 0xA5, np.uint8)
    slice_zones(np.zeros((0, 1, 8), np.uint32), rows)
    unslice_zones(rows, np.zeros((0, 1, 8), np.uint32))
    probe_rows(rows, np.zeros(1, np.uint64), num_zones=0, out=np.zeros(0, np.uint8))
    assert (rows == 0xA5).all()
