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

from zonebloom.bloom.kernels import U, kernel, subroutine
from zonebloom.bloom.kernels.blocks import block_check, block_index, filter_insert_batch
from zonebloom.bloom.kernels.checks import check_array, check_filters, check_offsets, check_room
from zonebloom.bloom.kernels.vector import load_u8, load_u64, store_u8, store_u64

_0, _1, _5, _32 = U(0), U(1), U(5), U(32)
_GOLDEN = U(0x9E3779B97F4A7C15)


@subroutine
def _place(offsets: Any, filter_: Any) -> Any:
    start = load_u64(offsets, filter_)
    return start, (load_u64(offsets, filter_ + _1) - start) >> _5


@kernel
def _filter_insert(blocks: Any, num_blocks: Any, hashes: Any, count: Any) -> None:
    filter_insert_batch(blocks, num_blocks, hashes, count)


@kernel
def _filter_check(blocks: Any, num_blocks: Any, hashes: Any, count: Any, answers: Any) -> None:
    for index in range(count):
        hash_ = load_u64(hashes, index)
        store_u8(answers, index, U(block_check(blocks + block_index(hash_, num_blocks) * _32, hash_)))


@kernel
def _check_hashes(data: Any, offsets: Any, num_filters: Any, hashes: Any, count: Any, live: Any, answers: Any) -> None:
    for filter_ in range(num_filters):
        if live == _0 or load_u8(live, filter_) != _0:
            start, num_blocks = _place(offsets, filter_)
            for index in range(count):
                if load_u8(answers, index) == _0:
                    hash_ = load_u64(hashes, index)
                    block = data + start + block_index(hash_, num_blocks) * _32
                    store_u8(answers, index, U(block_check(block, hash_)))


@kernel
def _check_zones(data: Any, offsets: Any, num_filters: Any, hashes: Any, count: Any, answers: Any) -> None:
    for filter_ in range(num_filters):
        start, num_blocks = _place(offsets, filter_)
        for index in range(count):
            hash_ = load_u64(hashes, index)
            if block_check(data + start + block_index(hash_, num_blocks) * _32, hash_):
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
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], hashes: npt.NDArray[np.uint64]
) -> npt.NDArray[np.bool_]:
    """For each filter: true if any of `hashes` may be in it, false if certainly none is.

    Hashes sorted by value visit the blocks of a filter in order, which is kinder to memory.

    Parameters
    ----------
    data : ndarray of uint8
        The blocks of filter i are ``data[offsets[i]:offsets[i + 1]]``.
    offsets : ndarray of int64
        One more than filters, each at least 32 above the one before; the first and the last are checked.
    hashes : ndarray of uint64

    Raises
    ------
    InvalidArgumentError
        If a dtype, a shape or a bound does not fit.

    Notes
    -----
    Spec: specs/sbbf.md#check_zones
    """
    num_filters = _num_filters(data, offsets, hashes)
    answers = np.zeros(num_filters, np.bool_)
    _check_zones(data, offsets, num_filters, hashes, len(hashes), answers)
    return answers


def check_hashes(
    data: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int64],
    hashes: npt.NDArray[np.uint64],
    live: npt.NDArray[np.bool_] | None = None,
) -> npt.NDArray[np.bool_]:
    """`check_zones` the other way round. For each hash: true if it may be in any filter, false if certainly in none.

    Parameters
    ----------
    live : ndarray of bool, optional
        For each filter, whether it counts; all if None.
    """
    num_filters = _num_filters(data, offsets, hashes)
    if live is not None:
        check_array("live", live, np.bool_)
        check_room("live", live, num_filters)
    answers = np.zeros(len(hashes), np.bool_)
    _check_hashes(data, offsets, num_filters, hashes, len(hashes), live, answers)
    return answers


def _num_filters(data: Any, offsets: Any, hashes: Any) -> int:
    check_array("data", data, np.uint8)
    check_array("offsets", offsets, np.int64)
    check_array("hashes", hashes, np.uint64)
    check_offsets(data, offsets, len(offsets) - 1)
    return len(offsets) - 1


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
