"""Split Block Bloom Filters: one, and a whole column of them, a filter for each zone.

The ladder: a *word* has 32 bits, a *block* 8 words, a *filter* any number of blocks. The high half of a hash chooses a
block; the low half, times eight odd salts, chooses one bit in each of its words (the mask). `block_insert` sets the
mask's bits, `block_check` asks whether all are set; `filter_insert` and `filter_check` choose the block first.

A property that everything above relies on: inserting only sets bits, so filters can be built in any order and in any
number of calls, their union is their OR, and folding is an OR of neighbours (`split_block.fold`).

Arrays of filters are uint32 of shape (num_filters, num_blocks, 8); one filter is (num_blocks, 8).

Spec: specs/sbbf.md
"""
# ruff: noqa: PLR0917 - kernels take no keywords

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from zonebloom.bloom.kernels import U, kernel
from zonebloom.bloom.kernels.blocks import block_check, block_index, filter_insert_batch
from zonebloom.bloom.kernels.checks import check_array, check_filters
from zonebloom.bloom.kernels.vector import load_u32, load_u64, store_u8, store_u64
from zonebloom.ground.errors import InvalidArgumentError

_0, _1, _32 = U(0), U(1), U(32)
_GOLDEN = U(0x9E3779B97F4A7C15)


@kernel
def _filter_insert(blocks: Any, num_blocks: Any, hashes: Any, count: Any) -> None:
    filter_insert_batch(blocks, num_blocks, hashes, count)


@kernel
def _filter_check(blocks: Any, num_blocks: Any, hashes: Any, count: Any, answers: Any) -> None:
    for index in range(count):
        hash_ = load_u64(hashes, index)
        store_u8(answers, index, U(block_check(blocks + block_index(hash_, num_blocks) * _32, hash_)))


@kernel
def _check_zones(
    data: Any, starts: Any, nums_blocks: Any, num_filters: Any, hashes: Any, count: Any, answers: Any
) -> None:
    for filter_ in range(num_filters):
        blocks, num_blocks = data + load_u64(starts, filter_), load_u32(nums_blocks, filter_)
        for index in range(count):
            hash_ = load_u64(hashes, index)
            if block_check(blocks + block_index(hash_, num_blocks) * _32, hash_):
                store_u8(answers, filter_, _1)
                break


@kernel
def _count_distinct(hashes: Any, count: Any, table: Any, shift: Any, mask: Any) -> Any:
    # An empty slot holds 0, so the hash 0 is counted apart.
    num_distinct, has_zero = _0, _0
    for index in range(count):
        hash_ = load_u64(hashes, index)
        if hash_ == _0:
            has_zero = _1
            continue
        slot = (hash_ * _GOLDEN) >> shift
        held = load_u64(table, slot)
        while held != _0 and held != hash_:  # noqa: PLR1714 - Numba would build a tuple
            slot = (slot + _1) & mask
            held = load_u64(table, slot)
        if held == _0:
            store_u64(table, slot, hash_)
            num_distinct += _1
    return num_distinct + has_zero


def filter_insert(blocks: npt.NDArray[np.uint32], hashes: npt.NDArray[np.uint64]) -> None:
    """Every one of `hashes` may be in the filter `blocks` from now on.

    Parameters
    ----------
    blocks : ndarray of uint32, shape (num_blocks, 8)
        Changed in place.
    hashes : ndarray of uint64

    Raises
    ------
    InvalidArgumentError
        If a dtype or shape does not fit.

    Notes
    -----
    Cost: about 0.7 ns a hash. Spec: specs/sbbf.md#filter_insert
    """
    check_filters("blocks", blocks, num_dimensions=2, writes=True)
    check_array("hashes", hashes, np.uint64)
    if len(hashes):
        _filter_insert(blocks, len(blocks), hashes, len(hashes))


def filter_check(blocks: npt.NDArray[np.uint32], hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """For each hash: true if it may have been inserted, false if it certainly was not.

    Raises
    ------
    InvalidArgumentError
        If a dtype or shape does not fit.

    Notes
    -----
    Spec: specs/sbbf.md#filter_check
    """
    check_filters("blocks", blocks, num_dimensions=2)
    check_array("hashes", hashes, np.uint64)
    answers = np.empty(len(hashes), np.bool_)
    if len(hashes):
        _filter_check(blocks, len(blocks), hashes, len(hashes), answers)
    return answers


def check_zones(
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.uint64],
    num_blocks: npt.NDArray[np.uint32],
    hashes: npt.NDArray[np.uint64],
) -> npt.NDArray[np.bool_]:
    """For each filter: true if any of `hashes` may be in it, false if certainly none is.

    Filter i has `num_blocks[i]` blocks from byte `starts[i]` of `data`. Hashes sorted by value visit the blocks of a
    filter in order, which is kinder to memory.

    Raises
    ------
    InvalidArgumentError
        If a dtype or shape does not fit, a filter has no blocks, or one reaches outside `data`.

    Notes
    -----
    Spec: specs/sbbf.md#check_zones
    """
    check_array("data", data, np.uint8)
    check_array("starts", starts, np.uint64)
    check_array("num_blocks", num_blocks, np.uint32)
    check_array("hashes", hashes, np.uint64)
    if len(starts) != len(num_blocks):
        raise InvalidArgumentError(f"num_blocks must have {len(starts)} items, one a filter", got=len(num_blocks))
    answers = np.zeros(len(starts), np.bool_)
    # Two comparisons instead of a sum: a sum of a hostile start and a size could wrap around.
    num_bytes = num_blocks.astype(np.uint64) * U(32)
    if not num_blocks.all() or (num_bytes > len(data)).any() or (starts > U(len(data)) - num_bytes).any():
        raise InvalidArgumentError(
            "every filter must have blocks and lie inside data", got=f"{len(data)} bytes of data"
        )
    if len(starts) and len(hashes):
        _check_zones(data, starts, num_blocks, len(starts), hashes, len(hashes), answers)
    return answers


def count_distinct(hashes: npt.NDArray[np.uint64]) -> int:
    """How many different hashes there are.

    Raises
    ------
    InvalidArgumentError
        If `hashes` is no contiguous uint64 array.

    Notes
    -----
    Cost: about 5 ns a hash for a zone; 16 to 32 bytes of memory a hash.
    """
    check_array("hashes", hashes, np.uint64)
    if not len(hashes):
        return 0
    log2_slots = max((2 * len(hashes) - 1).bit_length(), 1)
    table = np.zeros(1 << log2_slots, np.uint64)
    shift, mask = 64 - log2_slots, len(table) - 1
    return int(_count_distinct(hashes, len(hashes), table, shift, mask))
