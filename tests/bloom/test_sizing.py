"""How many blocks: Lance's numbers, arrow-rs's documented table, and the least that meets the probability."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from tests import reference
from zonebloom.bloom.sizing import MAX_BLOCKS, check_fpp, check_rows_per_zone, expected_fpp, num_blocks_for, putze_fpp
from zonebloom.errors import InvalidArgumentError

SPEC = Path(__file__).parents[2] / "specs" / "sizing.md"
PROBABILITIES = [0.5, 0.1, 0.01, 0.001, 0.00057, 1e-5, 1e-8, 1e-12]


def test_lance_default_takes_32768_bytes():
    assert num_blocks_for(8192, 0.00057, "power_of_two") * 32 == 32768
    assert putze_fpp(8192, 32768) == pytest.approx(3.615e-5, rel=1e-3)
    assert putze_fpp(8192, 16384) == pytest.approx(1.316e-3, rel=1e-3)


@pytest.mark.parametrize(("ndv", "fpp"), [(ndv, fpp) for ndv in (1, 100, 8192, 10**6) for fpp in PROBABILITIES])
def test_power_of_two_is_the_least_power_of_two(ndv, fpp):
    num_bytes = 32 * num_blocks_for(ndv, fpp, "power_of_two")
    assert num_bytes.bit_count() == 1
    assert putze_fpp(ndv, num_bytes) <= fpp or num_bytes == 32 * MAX_BLOCKS
    assert num_bytes == 32 or putze_fpp(ndv, num_bytes // 2) > fpp


@given(st.integers(1, 20_000), st.sampled_from(PROBABILITIES))
def test_exact_is_the_least_that_meets_fpp(ndv, fpp):
    num_blocks = num_blocks_for(ndv, fpp, "exact")
    assert expected_fpp(ndv, num_blocks) <= fpp
    assert num_blocks == 1 or expected_fpp(ndv, num_blocks - 1) > fpp


# The 15 rows that arrow-rs documents for its formula.
ARROW_RS = {
    10_000: {0.1: 256, 0.01: 512, 0.001: 1024, 0.0001: 1024},
    100_000: {0.1: 4096, 0.01: 4096, 0.001: 8192, 0.0001: 16384, 0.00001: 16384},
    1_000_000: {0.1: 32768, 0.01: 65536, 0.001: 65536, 0.0001: 131072, 0.00001: 131072, 0.000001: 262144},
}


@pytest.mark.parametrize(
    ("ndv", "fpp", "num_blocks"), [(ndv, fpp, n) for ndv, row in ARROW_RS.items() for fpp, n in row.items()]
)
def test_parquet_gives_the_table_of_arrow_rs(ndv, fpp, num_blocks):
    assert num_blocks_for(ndv, fpp, "parquet") == num_blocks


@given(st.integers(1, 600), st.integers(1, 100))
def test_expected_fpp_is_the_binomial_sum(ndv, num_blocks):
    expected = reference.binomial_fpp(ndv, num_blocks)
    assert expected_fpp(ndv, num_blocks) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("ndv", [100, 8192, 100_000])
@pytest.mark.parametrize("num_blocks", [64, 604, 1024, 4096])
def test_putze_fpp_is_the_poisson_sum(ndv, num_blocks):
    if ndv <= 256 * num_blocks * 2:
        assert putze_fpp(ndv, 32 * num_blocks) == pytest.approx(reference.poisson_fpp(ndv, num_blocks), rel=1e-6)
    assert (putze_fpp(0, 32), putze_fpp(513, 32)) == (0, 1), "of none and of too many"


@pytest.mark.parametrize("sizing", ["power_of_two", "exact", "adaptive", "parquet"])
@pytest.mark.parametrize("fpp", [1e-12, 0.5, 0.9999, math.nextafter(1, 0)])
@pytest.mark.parametrize("ndv", [0, 1, 8192, 10**9])
def test_extremes_stay_within_1_to_max_blocks(sizing, fpp, ndv):
    assert 1 <= num_blocks_for(ndv, fpp, sizing) <= MAX_BLOCKS


@pytest.mark.parametrize("fpp", [0, 1, 0.0, 5e-324, 9.9e-13, 1.0, -0.1, 2, math.nan, math.inf, "0.1", None, True])
def test_fpp_outside_its_range_is_refused(fpp):
    with pytest.raises(InvalidArgumentError, match=r"fpp must be .*, got"):
        check_fpp(fpp)


@pytest.mark.parametrize("rows", [0, -1, 1 << 32, 1.5, "8192", None, True])
def test_rows_per_zone_outside_its_range_is_refused(rows):
    with pytest.raises(InvalidArgumentError, match=r"rows_per_zone must be .*, got"):
        check_rows_per_zone(rows)


def test_unknown_sizing_and_negative_ndv_are_refused():
    with pytest.raises(InvalidArgumentError, match="sizing must be one of power_of_two"):
        num_blocks_for(1, 0.1, "small")
    with pytest.raises(InvalidArgumentError, match="ndv must be"):
        num_blocks_for(-1, 0.1, "exact")


def test_the_vectors_of_the_spec():
    rows = re.findall(r"^\| (\d+) \| ([\d.]+) \| (\d+) \| (\d+) \| (\d+) \|$", SPEC.read_text("utf-8"), re.MULTILINE)
    assert len(rows) == 7
    for ndv, fpp, *expected in rows:
        sizes = [num_blocks_for(int(ndv), float(fpp), sizing) for sizing in ("power_of_two", "exact", "parquet")]
        assert sizes == [int(num_blocks) for num_blocks in expected], (ndv, fpp)
        assert num_blocks_for(int(ndv), float(fpp), "adaptive") == sizes[1]
    assert num_blocks_for(0, 0.00057, "exact") == num_blocks_for(1, 0.00057, "exact") == 1
    assert expected_fpp(8192, 604) == pytest.approx(5.6549e-4, rel=1e-4)
    assert expected_fpp(8192, 603) == pytest.approx(5.7033e-4, rel=1e-4)
    assert expected_fpp(1000, num_blocks_for(1000, 0.00057, "parquet")) == pytest.approx(1.16e-3, rel=1e-2)
