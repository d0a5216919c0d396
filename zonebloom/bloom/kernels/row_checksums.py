"""XXH3-64 of many bit rows, each with its own seed, as slice segments carry them; without the GIL, so on every core.

The long form of XXH3 (more than 240 bytes) keeps eight 64-bit accumulators, one vector: a *stripe* of 64 bytes goes
into them with 64 bytes of the *secret*, at every stripe 8 bytes further on; after 16 stripes the accumulators are
scrambled. A seed changes the secret: it is added to every even word and subtracted from every odd one.

Spec: specs/slices.md#row-checksum
"""
# ruff: noqa: PLR0917 - kernels take no keywords

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types

from zonebloom.bloom.kernels import U, kernel, subroutine
from zonebloom.bloom.kernels.checks import check_array
from zonebloom.bloom.kernels.vector import (
    I64,
    I64X8,
    constant,
    load,
    load_u64,
    offset,
    operation,
    shuffle,
    splat,
    stack_bytes,
    store,
    store_u64,
)
from zonebloom.ground.errors import InvalidArgumentError

MIN_STRIDE: Final = 256
"""Rows of fewer bytes take XXH3's short forms, which are not here."""

_SECRET: Final = np.frombuffer(
    bytes.fromhex(
        "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
        "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
        "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
        "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
        "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
        "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
    ),
    np.uint8,
)
_PRIME32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
_PRIME64 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
_FIRST = (_PRIME32[2], *_PRIME64[:4], _PRIME32[1], _PRIME64[4], _PRIME32[0])
_LENGTH_PRIME = U(_PRIME64[0])
_AVALANCHE = U(0x165667919E3779F9)
_0, _1, _3, _8, _11, _15, _16, _32, _37, _64, _121 = map(U, (0, 1, 3, 8, 11, 15, 16, 32, 37, 64, 121))
_I128 = ir.IntType(128)

_stack_secret = stack_bytes(192)
_stack_sums = stack_bytes(64)


@operation()
def _begin(b: Any, sums: Any) -> None:
    store(b, ir.Constant(I64X8, list(_FIRST)), sums)


@operation()
def _add_stripe(b: Any, sums: Any, data: Any, secret: Any) -> None:
    values = load(b, data, I64X8)
    keyed = b.xor(values, load(b, secret, I64X8))
    product = b.mul(b.and_(keyed, constant(0xFFFFFFFF)), b.lshr(keyed, constant(32)))
    swapped = shuffle(b, values, values, (1, 0, 3, 2, 5, 4, 7, 6))
    store(b, b.add(b.add(load(b, sums, I64X8), swapped), product), sums)


@operation()
def _scramble(b: Any, sums: Any, secret: Any) -> None:
    lanes = load(b, sums, I64X8)
    lanes = b.xor(b.xor(lanes, b.lshr(lanes, constant(47))), load(b, offset(b, secret, 128), I64X8))
    store(b, b.mul(lanes, constant(_PRIME32[0])), sums)


@operation()
def _seed_secret(b: Any, secret: Any, plain: Any, seed: Any) -> None:
    signed = b.mul(splat(b, seed), ir.Constant(I64X8, [1, -1 & (2**64 - 1)] * 4))
    for start in (0, 64, 128):
        store(b, b.add(load(b, offset(b, plain, start), I64X8), signed), offset(b, secret, start))


@operation(types.uint64)
def _fold_product(b: Any, left: Any, right: Any) -> Any:
    """The two halves of the 128-bit product, XORed."""
    product = b.mul(b.zext(left, _I128), b.zext(right, _I128))
    return b.trunc(b.xor(product, b.lshr(product, ir.Constant(_I128, 64))), I64)


@subroutine
def _digest(data: Any, num_bytes: Any, seed: Any, plain: Any, secret: Any, sums: Any) -> Any:
    _seed_secret(secret, plain, seed)
    _begin(sums)
    for index in range((num_bytes - _1) // _64):
        _add_stripe(sums, data + index * _64, secret + index % _16 * _8)
        if index % _16 == _15:
            _scramble(sums, secret)
    _add_stripe(sums, data + num_bytes - _64, secret + _121)
    digest = num_bytes * _LENGTH_PRIME
    merge = secret + _11
    for index in range(_0, _8, U(2)):
        left = load_u64(sums, index) ^ load_u64(merge, index)
        right = load_u64(sums, index + _1) ^ load_u64(merge, index + _1)
        digest += _fold_product(left, right)
    digest = (digest ^ (digest >> _37)) * _AVALANCHE
    return digest ^ (digest >> _32)


@kernel
def _seal_rows(rows: Any, num_rows: Any, stride: Any, first_row: Any, plain: Any) -> None:
    secret, sums = _stack_secret(), _stack_sums()
    for row in range(num_rows):
        data = rows + row * stride
        store_u64(data, (stride >> _3) - _1, _digest(data, stride - _8, first_row + row, plain, secret, sums))


@kernel
def _first_bad_row(rows: Any, stride: Any, first_row: Any, chosen: Any, num_chosen: Any, plain: Any) -> Any:
    secret, sums = _stack_secret(), _stack_sums()
    for index in range(num_chosen):
        row = load_u64(chosen, index)
        data = rows + row * stride
        if _digest(data, stride - _8, first_row + row, plain, secret, sums) != load_u64(data, (stride >> _3) - _1):
            return index
    return num_chosen


def _check_rows(rows: Any, *, writes: bool) -> None:
    check_array("rows", rows, np.uint8, 2, writes=writes)
    if rows.shape[1] < MIN_STRIDE or rows.shape[1] % 8:
        raise InvalidArgumentError(f"rows must have a multiple of 8 bytes, at least {MIN_STRIDE}", got=rows.shape[1])


def seal_rows(rows: npt.NDArray[np.uint8], first_row: int) -> None:
    """Write XXH3-64 of each row, seeded with its number, into its last 8 bytes.

    Parameters
    ----------
    rows : ndarray of uint8, shape (num_rows, stride)
        Their numbers count from `first_row`; the stride is a multiple of 8 and at least 256.

    Raises
    ------
    InvalidArgumentError
        If dtype or shape do not fit.

    Notes
    -----
    Spec: specs/slices.md#row-checksum
    """
    _check_rows(rows, writes=True)
    _seal_rows(rows, len(rows), rows.shape[1], first_row, _SECRET)


def first_bad_row(rows: npt.NDArray[np.uint8], first_row: int, chosen: npt.NDArray[np.uint64]) -> int:
    """The least i for which row `chosen[i]` does not carry its checksum; the number of chosen rows if each does.

    Parameters
    ----------
    rows : ndarray of uint8, shape (num_rows, stride)
        As for `seal_rows`.
    chosen : ndarray of uint64
        Indexes into `rows`.

    Raises
    ------
    InvalidArgumentError
        If a dtype or shape does not fit, or an index lies outside.

    Notes
    -----
    Spec: specs/slices.md#row-checksum
    """
    _check_rows(rows, writes=False)
    check_array("chosen", chosen, np.uint64)
    if len(chosen) and int(chosen.max()) >= len(rows):
        raise InvalidArgumentError(f"chosen must be indexes below {len(rows)}", got=int(chosen.max()))
    count = len(chosen)
    return int(_first_bad_row(rows, rows.shape[1], first_row, chosen, count, _SECRET))
