"""Transposes in registers: 64 x 64 bits, eight matrices at once, and 8 x 8 words.

Spec: specs/slices.md#slice_zones
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from numba.core import cgutils

from zonebloom.bloom.kernels.vector import I64, I64X8, constant, load, offset, operation, shuffle, store

# The bits that stay in the lower of two rows when blocks of so many bits change places.
_STAYS: Final = {
    32: 0x00000000FFFFFFFF,
    16: 0x0000FFFF0000FFFF,
    8: 0x00FF00FF00FF00FF,
    4: 0x0F0F0F0F0F0F0F0F,
    2: 0x3333333333333333,
    1: 0x5555555555555555,
}


def _swap_blocks(b: Any, rows: dict[int, Any], distance: int, size: int) -> None:
    """The high blocks of `size` bits change places with the low blocks `distance` rows below."""
    for upper in [row for row in rows if not row & distance]:
        above, below = rows[upper], rows[upper + distance]
        difference = b.and_(b.xor(b.lshr(above, constant(size)), below), constant(_STAYS[size]))
        rows[upper] = b.xor(above, b.shl(difference, constant(size)))
        rows[upper + distance] = b.xor(below, difference)


def _swap_within_8_rows(b: Any, first_row: Any, stride: int, sizes: Sequence[int]) -> None:
    rows = {i: load(b, offset(b, first_row, stride * i), I64X8) for i in range(8)}
    for distance, size in zip((4, 2, 1), sizes, strict=True):
        _swap_blocks(b, rows, distance, size)
    for i, row in rows.items():
        store(b, row, offset(b, first_row, stride * i))


@operation()
def transpose_bits(b: Any, matrices: Any) -> None:
    """Transposes eight 64 x 64 bit matrices in place; row k of all eight is the 64 bytes at ``matrices + 64 * k``.

    Bit i of row k becomes bit k of row i. Two passes over eight rows at a time, so that each stays in registers; as
    loops, because LLVM takes a minute over the 128 loads and stores of the straight code.
    """
    with cgutils.for_range(b, constant(8, I64), intp=I64) as loop:
        _swap_within_8_rows(b, b.add(matrices, b.mul(loop.index, constant(64, I64))), 8 * 64, (32, 16, 8))
    with cgutils.for_range(b, constant(8, I64), intp=I64) as loop:
        _swap_within_8_rows(b, b.add(matrices, b.mul(loop.index, constant(8 * 64, I64))), 64, (4, 2, 1))


@operation()
def transpose_words(b: Any, source: Any, source_stride: Any, target: Any, target_stride: Any) -> None:
    """Eight rows of eight 64-bit words, `source_stride` bytes apart, become eight columns, `target_stride` apart."""
    rows = [load(b, b.add(source, b.mul(source_stride, constant(i, I64))), I64X8) for i in range(8)]
    for lanes in (
        ((0, 8, 2, 10, 4, 12, 6, 14), (1, 9, 3, 11, 5, 13, 7, 15), 1),
        ((0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15), 2),
        ((0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15), 4),
    ):
        left_lanes, right_lanes, distance = lanes
        for upper in [i for i in range(8) if not i & distance]:
            above, below = rows[upper], rows[upper + distance]
            rows[upper] = shuffle(b, above, below, left_lanes)
            rows[upper + distance] = shuffle(b, above, below, right_lanes)
    for i, row in enumerate(rows):
        store(b, row, b.add(target, b.mul(target_stride, constant(i, I64))))
