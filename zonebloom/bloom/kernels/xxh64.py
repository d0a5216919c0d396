"""XXH64 with seed 0 of a column of keys: batches that choose between lanes and one by one, and the checked wrappers.

The ladder: `steps` (the algorithm), `lanes` (many keys at once), then here: a batch of at most `BATCH` keys of a
fixed width (`hash_fixed_batch`) or of any length (`hash_variable_batch`), and whole columns.

Spec: specs/xxh64.md
"""
# ruff: noqa: PLR0917 - kernels take no keywords

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from zonebloom.bloom.kernels import HAS_FAST_VECTORS, U, kernel, subroutine
from zonebloom.bloom.kernels.checks import check_array, check_offsets
from zonebloom.bloom.kernels.lanes import (
    KEYS_OF_ANY_LENGTH,
    KEYS_OF_EQUAL_LENGTH,
    has_other_length_x8,
    hash_keys_of_any_length,
    hash_keys_of_equal_length,
    longest_key,
    widen_u32_x8,
)
from zonebloom.bloom.kernels.steps import hash_bytes, hash_u32, hash_u64
from zonebloom.bloom.kernels.vector import copy_bytes, load_u32, load_u64, stack_bytes, store_u64, u32_array, u64_array
from zonebloom.ground.errors import InvalidArgumentError

BATCH: Final = 1024
"""Keys hashed into a stack buffer before they are inserted.

Each switch between the two restarts the prefetching of the column. 2026-11, EPYC: UUIDs 2.2 ns with 1024, 4.4 with
256 and 4.0 with 64; int64 alike.
"""

_BATCH = U(BATCH)
_EQUAL_KEYS = U(KEYS_OF_EQUAL_LENGTH)
_ANY_KEYS = U(KEYS_OF_ANY_LENGTH)
_0, _1, _4, _8, _32, _63 = U(0), U(1), U(4), U(8), U(32), U(63)

_stack_starts = stack_bytes(8 * (BATCH + 8))


@subroutine
def _hash_equal_keys(source: Any, length: Any, count: Any, hashes: Any) -> None:
    done = _0
    if HAS_FAST_VECTORS:
        while done + _EQUAL_KEYS <= count:
            hash_keys_of_equal_length(source + done * length, length, hashes + done * _8)
            done += _EQUAL_KEYS
    while done < count:
        store_u64(hashes, done, hash_bytes(source + done * length, length))
        done += _1


@subroutine
def hash_fixed_batch(
    data: Any, _data_bytes: Any, _offsets: Any, width: Any, first: Any, count: Any, hashes: Any
) -> None:
    """Hashes keys `first` to `first + count` of the keys of `width` bytes at `data`."""
    source = data + first * width
    is_aligned = source % width == _0
    out = u64_array(hashes, count)
    if width == _8 and is_aligned:
        keys_8 = u64_array(source, count)
        for index in range(count):
            out[index] = hash_u64(keys_8[index])
    elif width == _4 and is_aligned:
        keys_4 = u32_array(source, count)
        for index in range(count):
            out[index] = hash_u32(U(keys_4[index]))
    else:
        _hash_equal_keys(source, width, count, hashes)


@subroutine
def _widen_offsets(offsets: Any, width: Any, first: Any, count: Any, starts: Any) -> None:
    source, done = offsets + first * width, _0
    if width == _8:
        copy_bytes(starts, source, count * _8)
        return
    while done + _8 <= count:
        widen_u32_x8(source + done * _4, starts + done * _8)
        done += _8
    while done < count:
        store_u64(starts, done, load_u32(source, done))
        done += _1


@subroutine
def _have_equal_lengths(starts: Any, count: Any) -> Any:
    length, done = load_u64(starts, _1) - load_u64(starts, _0), _0
    while done + _8 <= count:
        if has_other_length_x8(starts + done * _8, length):
            return False
        done += _8
    while done < count:
        if load_u64(starts, done + _1) - load_u64(starts, done) != length:
            return False
        done += _1
    return True


@subroutine
def _suits_lanes(starts: Any, data_bytes: Any) -> Any:
    """Whether lanes may read beyond the next keys, and are not all waiting for one long key."""
    end = load_u64(starts, _ANY_KEYS)
    if end + _32 > data_bytes:
        return False
    longest = longest_key(starts)
    return longest <= _63 or longest * _ANY_KEYS <= (end - load_u64(starts, _0)) * _4


@subroutine
def hash_variable_batch(
    data: Any, data_bytes: Any, offsets: Any, width: Any, first: Any, count: Any, hashes: Any
) -> None:
    """Hashes keys `first` to `first + count`, at most `BATCH`; their offsets are `width` bytes each."""
    starts = _stack_starts()
    _widen_offsets(offsets, width, first, count + _1, starts)
    if HAS_FAST_VECTORS and _have_equal_lengths(starts, count):
        begin = load_u64(starts, _0)
        _hash_equal_keys(data + begin, load_u64(starts, _1) - begin, count, hashes)
        return
    done = _0
    while done < count:
        here = starts + done * _8
        if HAS_FAST_VECTORS and done + _ANY_KEYS <= count and _suits_lanes(here, data_bytes):
            hash_keys_of_any_length(data, here, hashes + done * _8)
            done += _ANY_KEYS
        else:
            begin = load_u64(here, _0)
            store_u64(hashes, done, hash_bytes(data + begin, load_u64(here, _1) - begin))
            done += _1


@kernel
def _hash_fixed(data: Any, width: Any, num_rows: Any, hashes: Any) -> None:
    hash_fixed_batch(data, _0, _0, width, _0, num_rows, hashes)


@kernel
def _hash_variable(data: Any, data_bytes: Any, offsets: Any, width: Any, num_rows: Any, hashes: Any) -> None:
    first = _0
    while first < num_rows:
        count = min(_BATCH, num_rows - first)
        hash_variable_batch(data, data_bytes, offsets, width, first, count, hashes + first * _8)
        first += count


def hash_fixed(data: npt.NDArray[np.uint8], width: int) -> npt.NDArray[np.uint64]:
    """The XXH64 of each run of `width` bytes, in order.

    Parameters
    ----------
    data : ndarray of uint8, shape (num_rows * width,)
        The keys, little-endian, one after the other.
    width : int
        Bytes of a key, 1 or more.

    Raises
    ------
    InvalidArgumentError
        If a dtype, a shape or the width does not fit.

    Notes
    -----
    Cost: about 0.2 ns a key of 8 bytes, 1.2 ns of 36, with AVX-512. Spec: specs/xxh64.md#hash_fixed
    """
    check_array("data", data, np.uint8)
    if width < 1 or len(data) % width:
        raise InvalidArgumentError(f"data must be a whole number of keys of {width} bytes", got=f"{len(data)} bytes")
    num_rows = len(data) // width
    hashes = np.empty(num_rows, np.uint64)
    if num_rows:
        _hash_fixed(data, width, num_rows, hashes)
    return hashes


def hash_variable(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int32] | npt.NDArray[np.int64]
) -> npt.NDArray[np.uint64]:
    """The XXH64 of each ``data[offsets[i]:offsets[i + 1]]``, in order.

    Parameters
    ----------
    data : ndarray of uint8
        The bytes of all keys.
    offsets : ndarray of int32 or int64, shape (num_rows + 1,)
        Never decreasing; the first and the last are checked, those between are trusted as Arrow's.

    Raises
    ------
    InvalidArgumentError
        If a dtype does not fit, or the offsets lead outside `data`.

    Notes
    -----
    Cost: about 1.6 ns a key of 5 to 36 bytes, with AVX-512; 15 ns without. Spec: specs/xxh64.md#hash_variable
    """
    check_array("data", data, np.uint8)
    num_rows = max(np.size(offsets) - 1, 0)
    check_offsets(data, offsets, num_rows)
    hashes = np.empty(num_rows, np.uint64)
    if num_rows:
        _hash_variable(data, len(data), offsets, offsets.itemsize, num_rows, hashes)
    return hashes
