"""The row checksums of the kernel are those of the xxhash package, for every stride that the kernel takes."""

from __future__ import annotations

import numpy as np
import pytest
import xxhash
from hypothesis import given, strategies as st

from zonebloom.bloom.kernels import row_checksums


def checksums(rows: np.ndarray, first_row: int) -> list[int]:
    return [xxhash.xxh3_64_intdigest(row[:-8].tobytes(), first_row + number) for number, row in enumerate(rows)]


@given(
    stride=st.sampled_from([256, 264, 504, 512, 1024, 1032, 1040, 2048, 4096, 8192]),
    first_row=st.sampled_from([0, 1, 255, 2**31, 2**40]),
    seed=st.integers(0, 2**32),
)
def test_rows_are_sealed_as_xxhash_does(stride, first_row, seed):
    rows = np.random.default_rng(seed).integers(0, 256, (5, stride), np.uint8)
    row_checksums.seal_rows(rows, first_row)
    assert rows.view("<u8")[:, -1].tolist() == checksums(rows, first_row)
    everything = np.arange(5, dtype=np.uint64)
    assert row_checksums.first_bad_row(rows, first_row, everything) == 5
    assert row_checksums.first_bad_row(rows, first_row + 1, everything) == 0


@pytest.mark.parametrize("stride", [256, 512, 4096])
def test_a_flip_of_any_byte_is_found_in_its_row(stride):
    rows = np.random.default_rng(0).integers(0, 256, (8, stride), np.uint8)
    row_checksums.seal_rows(rows, 7)
    chosen = np.array([1, 3, 6], np.uint64)
    for position in range(0, stride, 7):
        rows[3, position] ^= 1 << (position % 8)
        assert row_checksums.first_bad_row(rows, 7, chosen) == 1
        assert row_checksums.first_bad_row(rows, 7, chosen[2:]) == 1
        assert row_checksums.first_bad_row(rows, 7, chosen[[0, 2]]) == 2
        rows[3, position] ^= 1 << (position % 8)


def test_nothing_is_chosen_of_nothing():
    rows = np.zeros((0, 256), np.uint8)
    row_checksums.seal_rows(rows, 0)
    assert row_checksums.first_bad_row(rows, 0, np.zeros(0, np.uint64)) == 0
