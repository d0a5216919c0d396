"""One block and one filter: the Parquet spec's mask, block_insert, block_check, and inserting a batch of hashes.

A block is one ``<8 x i32>``: the eight words are multiplied, shifted and tested together.

Spec: specs/sbbf.md#mask
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from zonebloom.bloom.kernels import U, subroutine
from zonebloom.bloom.kernels.vector import I32, I32X8, I64, constant, load, load_u64, operation, splat, store
from zonebloom.bloom.split_block import SALTS

_32 = U(32)


def mask_bits(b: Any, hash_: Any) -> Any:
    """An emitter: for each of the 8 words, the number of the bit that the mask sets in it."""
    keys = splat(b, b.trunc(hash_, I32))
    return b.lshr(b.mul(keys, ir.Constant(I32X8, list(SALTS))), constant(27, I32X8))


def choose_block(b: Any, hash_: Any, num_blocks: Any) -> Any:
    """An emitter: the block that a hash belongs to, of up to 2^32."""
    high = constant(32, I64)
    return b.lshr(b.mul(b.lshr(hash_, high), num_blocks), high)


def _mask(b: Any, hash_: Any) -> Any:
    return b.shl(constant(1, I32X8), mask_bits(b, hash_))


block_index: Callable[..., Any] = operation(types.uint64)(choose_block)


@operation()
def block_insert(b: Any, block: Any, hash_: Any) -> None:
    """Sets the mask's bits of the block at this address."""
    store(b, b.or_(load(b, block, I32X8), _mask(b, hash_)), block)


@operation(types.boolean)
def block_check(b: Any, block: Any, hash_: Any) -> Any:
    """Whether all of the mask's bits are set in the block at this address."""
    missing = b.and_(_mask(b, hash_), b.not_(load(b, block, I32X8)))
    whole = ir.IntType(256)
    return b.icmp_unsigned("==", b.bitcast(missing, whole), constant(0, whole))


@subroutine
def filter_insert_batch(blocks: Any, num_blocks: Any, hashes: Any, count: Any) -> None:
    """Inserts `count` hashes into one filter."""
    for index in range(count):
        hash_ = load_u64(hashes, index)
        block_insert(blocks + block_index(hash_, num_blocks) * _32, hash_)
