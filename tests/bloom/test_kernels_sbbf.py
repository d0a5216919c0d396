"""The filter kernels equal tests/reference.py bit for bit, however the rows are cut, with nulls and without."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests import reference
from zonebloom.bloom import kernels_in_numpy, split_block
from zonebloom.bloom.kernels import sbbf, zones
from zonebloom.errors import InvalidArgumentError

RANDOM = np.random.default_rng(20260802)


def random_hashes(count):
    return RANDOM.integers(0, 1 << 64, count, dtype=np.uint64)


def garbage(num_filters, num_blocks):
    """Memory that nobody initialised: the kernels must clear it."""
    return np.full((num_filters, num_blocks, 8), 0xDEADBEEF, np.uint32), np.full(num_filters, 7, np.uint64)


@pytest.mark.parametrize("num_blocks", [1, 2, 3, 604, 1024])
def test_insert_and_check_equal_the_reference(num_blocks):
    hashes, others = random_hashes(3 * num_blocks + 5), random_hashes(500)
    blocks = np.zeros((num_blocks, 8), np.uint32)
    sbbf.filter_insert(blocks, hashes)
    expected = reference.filter_of(hashes.tolist(), num_blocks)
    assert blocks.tolist() == expected
    assert sbbf.filter_check(blocks, hashes).all()
    assert sbbf.filter_check(blocks, others).tolist() == [reference.filter_check(expected, h) for h in others.tolist()]


# --- zones ------------------------------------------------------------------------------------------------------------


def column(layout, num_rows):
    """The arguments that hand a column of random keys to its kernel, and the hashes of all its rows."""
    if layout.startswith("fixed"):
        width = int(layout[5:])
        data = RANDOM.integers(0, 256, num_rows * width, dtype=np.uint8)
        keys = [data[i * width : (i + 1) * width].tobytes() for i in range(num_rows)]
        return lambda start, stop: (data[start * width : stop * width], width), reference.hashes_of(keys)
    if layout == "dictionary":
        hashes, indexes = random_hashes(30), RANDOM.integers(0, 30, num_rows).astype(np.uint32)
        return lambda start, stop: (hashes, indexes[start:stop]), hashes[indexes].tolist()
    lengths = np.full(num_rows, 36) if layout == "uuid32" else RANDOM.integers(0, 50, num_rows)
    dtype = np.int64 if layout.endswith("64") else np.int32
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(dtype)
    data = RANDOM.integers(0, 256, offsets[-1], dtype=np.uint8)
    keys = [data[offsets[i] : offsets[i + 1]].tobytes() for i in range(num_rows)]
    return lambda start, stop: (data, offsets[start : stop + 1]), reference.hashes_of(keys)


def kernel_of(layout):
    return partial(zones.insert_into_zones, {"f": "fixed", "d": "dictionary"}.get(layout[0], "variable"))


LAYOUTS = ["fixed1", "fixed2", "fixed4", "fixed8", "fixed16", "string32", "string64", "uuid32", "dictionary"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("has_nulls", [False, True])
@pytest.mark.parametrize(("num_rows", "rows_per_zone"), [(1, 1), (7, 3), (1000, 1000), (1500, 400), (600, 10_000)])
def test_zones_equal_the_reference(layout, has_nulls, num_rows, rows_per_zone):
    arguments, hashes = column(layout, num_rows)
    is_valid = RANDOM.random(num_rows) < 0.7 if has_nulls else np.ones(num_rows, bool)
    # Three bits of another column before ours: a bitmap need not begin at a byte.
    validity = np.packbits(np.concatenate([[1, 0, 1], is_valid]), bitorder="little") if has_nulls else None
    expected, expected_counts = reference.zones_of(
        [hash_ if valid else None for hash_, valid in zip(hashes, is_valid, strict=True)], rows_per_zone, 5
    )
    filters, valid_counts = garbage(len(expected), 5)
    options = {"num_rows": num_rows, "rows_per_zone": rows_per_zone, "validity_offset": 3 if has_nulls else 0}
    kernel_of(layout)(filters, valid_counts, arguments(0, num_rows), validity=validity, **options)
    assert filters.tolist() == expected
    assert valid_counts.tolist() == expected_counts


def test_no_rows_change_nothing():
    filters, valid_counts = garbage(2, 4)
    before = filters.copy()
    nothing = np.empty(0, np.uint8)
    no_texts, no_values = (nothing, np.zeros(1, np.int32)), (np.empty(0, np.uint64), np.empty(0, np.uint32))
    for layout, keys in (("fixed", (nothing, 8)), ("variable", no_texts), ("dictionary", no_values)):
        kernel_of(layout)(filters, valid_counts, keys, num_rows=0, rows_per_zone=10, first_fill=3)
    assert np.array_equal(filters, before)
    assert valid_counts.tolist() == [7, 7]


# --- checking zones ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_hashes", [0, 1, 2, 50])
def test_checks_of_zones_and_of_hashes_equal_the_reference(num_hashes):
    sizes = [1, 5, 2, 30, 30]
    hashes = [random_hashes(4 * size) for size in sizes]
    filters = [reference.filter_of(inserted.tolist(), size) for inserted, size in zip(hashes, sizes, strict=True)]
    data = np.concatenate([np.array(filter_, np.uint32).view(np.uint8).reshape(-1) for filter_ in filters])
    offsets = np.cumsum([0, *[32 * size for size in sizes]])
    for own in hashes:
        probes = np.concatenate([random_hashes(num_hashes), own[:1][:num_hashes]])
        expected = [[reference.filter_check(filter_, probe) for probe in probes.tolist()] for filter_ in filters]
        assert sbbf.check_zones(data, offsets, probes).tolist() == [any(of_zone) for of_zone in expected]
        for live in (None, np.array([True] * 5), np.array([False, True, False, True, False]), np.zeros(5, np.bool_)):
            chosen = expected if live is None else itertools.compress(expected, live)
            any_of = np.logical_or.reduce([np.zeros(len(probes), np.bool_), *chosen]).tolist()
            for check in (sbbf.check_hashes, kernels_in_numpy.check_hashes):
                assert check(data, offsets, probes, live).tolist() == any_of


def test_no_zones():
    for check, answers in ((sbbf.check_zones, []), (sbbf.check_hashes, [False] * 3)):
        assert check(np.empty(0, np.uint8), np.zeros(1, np.int64), random_hashes(3)).tolist() == answers
    assert split_block.measured_fpp(np.zeros((0, 4, 8), np.uint32)).tolist() == []


@pytest.mark.parametrize("offsets", [[0, 160], [-32, 32], [160, 160], [64, 32], []])
@pytest.mark.parametrize("check", [sbbf.check_zones, sbbf.check_hashes])
def test_no_check_reads_outside_the_data(check, offsets):
    with pytest.raises(InvalidArgumentError, match=r"offsets must rise|num_rows"):
        check(np.zeros(128, np.uint8), np.array(offsets, np.int64), random_hashes(1))


# --- whole filters ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [1, 2, 3, 4, 6, 12])
def test_folded_equals_fresh(factor):
    hashes = random_hashes(100)
    large = np.zeros((2, 12, 8), np.uint32)
    sbbf.filter_insert(large[0], hashes)
    fresh = np.zeros((12 // factor, 8), np.uint32)
    sbbf.filter_insert(fresh, hashes)
    folded = split_block.fold(large, factor)
    assert np.array_equal(folded[0], fresh)
    assert not folded[1].any()
    assert folded[0].tolist() == reference.fold(large[0].tolist(), factor)


def test_measured_fpp_equals_the_reference():
    filters = np.zeros((70, 9, 8), np.uint32)
    for zone, filter_ in enumerate(filters):
        sbbf.filter_insert(filter_, random_hashes(3 * zone))
    filters[69] = 0xFFFFFFFF
    expected = [reference.measured_fpp(filter_) for filter_ in filters.tolist()]
    assert split_block.measured_fpp(filters) == pytest.approx(expected, rel=1e-12)
    assert split_block.measured_fpp(filters)[[0, 69]].tolist() == [0, 1]


def test_measured_fpp_within_binomial_bounds():
    blocks = np.zeros((1, 64, 8), np.uint32)
    sbbf.filter_insert(blocks[0], random_hashes(1600))
    (fpp,) = split_block.measured_fpp(blocks)
    trials = 400_000
    num_positive = sbbf.filter_check(blocks[0], random_hashes(trials)).sum()
    deviation = np.sqrt(trials * fpp * (1 - fpp))
    assert abs(num_positive - trials * fpp) < 5 * deviation


@given(st.lists(st.integers(0, 5) | st.integers((1 << 64) - 5, (1 << 64) - 1), max_size=50), st.booleans())
def test_distinct_hashes_are_counted(few, is_repeated):
    hashes = np.array(few * (500 if is_repeated else 1), np.uint64)
    assert sbbf.count_distinct(hashes) == len(set(few))
    hashes = np.concatenate((hashes, random_hashes(5000)))
    assert sbbf.count_distinct(hashes) == len(np.unique(hashes))
