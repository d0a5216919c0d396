"""The steps of XXH64 (seed 0), each written once for one lane and for eight, and the hash of one key made of them.

Spec: specs/xxh64.md#steps
"""

from __future__ import annotations

from typing import Any, Final

from numba import types

from zonebloom.bloom.kernels import U, subroutine
from zonebloom.bloom.kernels.vector import constant, load_u8, load_u32, load_u64, operation, rotate_left

PRIME_1: Final = 11400714785074694791
PRIME_2: Final = 14029467366897019727
PRIME_3: Final = 1609587929392839161
PRIME_4: Final = 9650029242287828579
PRIME_5: Final = 2870177450012600261

START: Final = (PRIME_1 + PRIME_2, PRIME_2, 0, -PRIME_1)
"""The four accumulators before the first stripe, modulo 2^64."""


def _times(b: Any, value: Any, prime: int) -> Any:
    return b.mul(value, constant(prime, value.type))


def round_(b: Any, accumulator: Any, word: Any) -> Any:
    """One accumulator takes one word of a 32-byte stripe."""
    return _times(b, rotate_left(b, b.add(accumulator, _times(b, word, PRIME_2)), 31), PRIME_1)


def _round_of_zero(b: Any, word: Any) -> Any:
    return _times(b, rotate_left(b, _times(b, word, PRIME_2), 31), PRIME_1)


def sum_accumulators(b: Any, first: Any, second: Any, third: Any, fourth: Any) -> Any:
    """The hash after the last stripe, before its accumulators are merged."""
    left = b.add(rotate_left(b, first, 1), rotate_left(b, second, 7))
    return b.add(left, b.add(rotate_left(b, third, 12), rotate_left(b, fourth, 18)))


def merge_accumulator(b: Any, hash_: Any, accumulator: Any) -> Any:
    """The hash takes one accumulator."""
    mixed = _times(b, b.xor(hash_, _round_of_zero(b, accumulator)), PRIME_1)
    return b.add(mixed, constant(PRIME_4, mixed.type))


def mix_u64(b: Any, hash_: Any, word: Any) -> Any:
    """The hash takes eight bytes of the tail."""
    mixed = _times(b, rotate_left(b, b.xor(hash_, _round_of_zero(b, word)), 27), PRIME_1)
    return b.add(mixed, constant(PRIME_4, mixed.type))


def mix_u32(b: Any, hash_: Any, word: Any) -> Any:
    """The hash takes four bytes of the tail."""
    mixed = _times(b, rotate_left(b, b.xor(hash_, _times(b, word, PRIME_1)), 23), PRIME_2)
    return b.add(mixed, constant(PRIME_3, mixed.type))


def mix_u8(b: Any, hash_: Any, byte: Any) -> Any:
    """The hash takes the tail's next byte."""
    return _times(b, rotate_left(b, b.xor(hash_, _times(b, byte, PRIME_5)), 11), PRIME_1)


def avalanche(b: Any, hash_: Any) -> Any:
    """The last step: every bit of the input reaches every bit of the hash."""
    hash_ = b.xor(hash_, b.lshr(hash_, constant(33, hash_.type)))
    hash_ = _times(b, hash_, PRIME_2)
    hash_ = b.xor(hash_, b.lshr(hash_, constant(29, hash_.type)))
    hash_ = _times(b, hash_, PRIME_3)
    return b.xor(hash_, b.lshr(hash_, constant(32, hash_.type)))


@operation(types.uint64)
def hash_u64(b: Any, word: Any) -> Any:
    """The hash of an 8-byte key."""
    return avalanche(b, mix_u64(b, constant(PRIME_5 + 8, word.type), word))


@operation(types.uint64)
def hash_u32(b: Any, word: Any) -> Any:
    """The hash of a 4-byte key, zero-extended to 64 bits."""
    return avalanche(b, mix_u32(b, constant(PRIME_5 + 4, word.type), word))


# --- one key ----------------------------------------------------------------------------------------------------------

_round = operation(types.uint64)(round_)
_sum_accumulators = operation(types.uint64)(sum_accumulators)
_merge_accumulator = operation(types.uint64)(merge_accumulator)
_mix_u64 = operation(types.uint64)(mix_u64)
_mix_u32 = operation(types.uint64)(mix_u32)
_mix_u8 = operation(types.uint64)(mix_u8)
_avalanche = operation(types.uint64)(avalanche)

_START = tuple(U(start % (1 << 64)) for start in START)
_PRIME_5 = U(PRIME_5)
_0, _1, _2, _3, _4, _8, _32 = U(0), U(1), U(2), U(3), U(4), U(8), U(32)


@subroutine
def hash_bytes(address: Any, length: Any) -> Any:
    """XXH64 of `length` bytes at `address`."""
    end = address + length
    if length >= _32:
        first, second, third, fourth = _START
        while address + _32 <= end:
            first = _round(first, load_u64(address, _0))
            second = _round(second, load_u64(address, _1))
            third = _round(third, load_u64(address, _2))
            fourth = _round(fourth, load_u64(address, _3))
            address += _32
        hash_ = _sum_accumulators(first, second, third, fourth)
        hash_ = _merge_accumulator(hash_, first)
        hash_ = _merge_accumulator(hash_, second)
        hash_ = _merge_accumulator(hash_, third)
        hash_ = _merge_accumulator(hash_, fourth)
    else:
        hash_ = _PRIME_5
    hash_ += length
    while address + _8 <= end:
        hash_ = _mix_u64(hash_, load_u64(address, _0))
        address += _8
    if address + _4 <= end:
        hash_ = _mix_u32(hash_, load_u32(address, _0))
        address += _4
    while address < end:
        hash_ = _mix_u8(hash_, load_u8(address, _0))
        address += _1
    return _avalanche(hash_)
