"""The arithmetic of split blocks in plain Python and NumPy: the bits of a hash, folding, and false positives.

The high half of a hash chooses a block; the low half, times eight odd salts, chooses one bit in each of its words. The
kernels do the same with vectors (`kernels/blocks.py`), from the same salts.

Spec: specs/sbbf.md
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from zonebloom.ground.errors import InvalidArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

SALTS: Final = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
"""One salt for each word of a block, from the Parquet specification."""
_SALTS: Final = np.array(SALTS, np.uint32)
ROWS_PER_BLOCK: Final = 256
"""Bit rows of a slice segment: one for each bit of a block."""
_FILTERS_AT_ONCE = 64


def block_index(value: int, num_blocks: int) -> int:
    """The block of one hash: ``((hash >> 32) * num_blocks) >> 32``.

    Spec: specs/sbbf.md#block_index
    """
    return ((value >> 32) * num_blocks) >> 32


def block_indexes(hashes: NDArray[np.uint64] | np.uint64, num_blocks: int | NDArray[np.integer]) -> NDArray[np.uint64]:
    """The block of each hash in a filter of `num_blocks`, or in each of several filters.

    Spec: specs/sbbf.md#block_index
    """
    indexes: NDArray[np.uint64] = ((hashes >> np.uint64(32)) * np.asarray(num_blocks, np.uint64)) >> np.uint64(32)
    return indexes


def bits_of_hash(value: int) -> list[int]:
    """For each of the 8 words, the number of the bit that one hash sets."""
    low = value & 0xFFFFFFFF
    return [(low * salt & 0xFFFFFFFF) >> 27 for salt in SALTS]


@lru_cache(1024)
def rows_of_hash(value: int, num_blocks: int) -> tuple[int, ...]:
    """The 8 bit rows to AND: a zone whose bit is set in all of them may hold the hash `value`.

    Spec: specs/slices.md#probe
    """
    first = block_index(value, num_blocks) * ROWS_PER_BLOCK
    return tuple([first + 32 * word + bit for word, bit in enumerate(bits_of_hash(value))])


def bits_in_word(low_halves: NDArray[np.uint32], word: int) -> NDArray[np.uint32]:
    """For the low half of each hash, the number of the bit that the hash sets in word number `word`."""
    bits: NDArray[np.uint32] = (low_halves * _SALTS[word]) >> np.uint32(27)
    return bits


def masks(hashes: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """The mask of each hash, shape `(len(hashes), 8)`: one bit set in each word.

    Spec: specs/sbbf.md#mask
    """
    bits = (hashes.astype(np.uint32)[:, None] * _SALTS) >> np.uint32(27)
    words: NDArray[np.uint32] = np.left_shift(np.uint32(1), bits, dtype=np.uint32)
    return words


def fold(filters: NDArray[np.uint32], factor: int) -> NDArray[np.uint32]:
    """The filters, shape `(..., num_blocks, 8)`, with `factor` times fewer blocks: equal to filters built with them.

    Block i of the smaller filter is the OR of blocks ``i * factor`` to ``(i + 1) * factor`` of the larger.

    Raises
    ------
    InvalidArgumentError
        If `factor` does not divide the number of blocks.

    Spec: specs/sbbf.md#fold
    """
    *lead, num_blocks, words = filters.shape
    if isinstance(factor, bool) or not isinstance(factor, int) or factor < 1 or num_blocks % factor:
        raise InvalidArgumentError(f"factor must divide the {num_blocks} blocks", got=f"{factor!r}")
    grouped = filters.reshape(*lead, num_blocks // factor, factor, words)
    folded: NDArray[np.uint32] = np.bitwise_or.reduce(grouped, axis=-2)
    return folded


def measured_fpp(filters: NDArray[np.uint32]) -> NDArray[np.float64]:
    """The false positive probability of each filter, computed from its bits: exact for a uniform hash.

    It is the mean over the blocks of the product of the shares of set bits in the 8 words. Filters have shape
    `(num_filters, num_blocks, 8)`.

    Cost: about 2 ns a word. Spec: specs/sbbf.md#measured_fpp
    """
    probabilities = np.empty(len(filters), np.float64)
    for first in range(0, len(filters), _FILTERS_AT_ONCE):
        counts = np.bitwise_count(filters[first : first + _FILTERS_AT_ONCE])
        # 32^8 = 2^40 and at most 2^22 blocks: the sum is exact in 64 bits.
        matches = np.multiply.reduce(counts, axis=2, dtype=np.uint64).sum(axis=1)
        probabilities[first : first + _FILTERS_AT_ONCE] = matches / (filters.shape[1] * 32.0**8)
    return probabilities
