"""Zones as bit rows: slicing the filters of a group of zones, the inverse, and probing without touching a filter.

Every filter of a group has the same number of blocks, and a key asks for the same 8 bits of each. So bit
``block * 256 + word * 32 + bit`` of all filters is laid in one *bit row*: bit i of the row, least significant first,
belongs to zone i. A probe ANDs 8 bit rows and has the answer for every zone of the group; no other byte is read.

The ladder: a *tile* is 512 zones times 8 words (512 bits) of each; it becomes 512 pieces of bit rows, 64 bytes each.
A tile is made of eight 64 x 64 bit transposes a word, then of 8 x 8 word transposes; the inverse goes the other way.

Spec: specs/slices.md
"""
# ruff: noqa: PLR0917 - kernels take no keywords

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from zonebloom.bloom.kernels import U, kernel, subroutine
from zonebloom.bloom.kernels.blocks import block_index
from zonebloom.bloom.kernels.checks import address, check_array, check_filters, check_range
from zonebloom.bloom.kernels.transposes import transpose_bits, transpose_words
from zonebloom.bloom.kernels.vector import copy_bytes, load_u64, stack_bytes, u8_array, zero_bytes
from zonebloom.bloom.split_block import ROWS_PER_BLOCK, SALTS
from zonebloom.ground.errors import InvalidArgumentError

_0, _1, _3, _4, _7, _8 = U(0), U(1), U(3), U(4), U(7), U(8)
_27, _32, _63, _64, _256, _512, _4096 = U(27), U(32), U(63), U(64), U(256), U(512), U(4096)
_LOW = U(0xFFFFFFFF)
_SALTS = tuple(U(salt) for salt in SALTS)
_TILE_BYTES: Final = 8 * 64 * 64

_stack_tile = stack_bytes(_TILE_BYTES)
_stack_piece = stack_bytes(8 * 64)


# --- tiles ------------------------------------------------------------------------------------------------------------
# A tile on the stack: word `column` of zone `64 * i + k` is at `4096 * i + 64 * k + 8 * column`.


@subroutine
def _copy_zones(
    target: Any, target_bytes: Any, source: Any, source_bytes: Any, num_zones: Any, num_columns: Any
) -> None:
    for zone in range(num_zones):
        if num_columns == _8:
            copy_bytes(target + zone * target_bytes, source + zone * source_bytes, _64)
        else:
            copy_bytes(target + zone * target_bytes, source + zone * source_bytes, _32)


@subroutine
def _transpose_tile(tile: Any, num_zones: Any) -> None:
    for index in range((num_zones + _63) // _64):
        transpose_bits(tile + index * _4096)


@subroutine
def _store_rows(tile: Any, rows: Any, stride: Any, num_zones: Any, num_columns: Any) -> None:
    piece_bytes = (num_zones + _7) >> _3
    piece = _stack_piece()
    for bit in range(_64):
        first = rows + bit * stride
        if piece_bytes == _64 and num_columns == _8:
            transpose_words(tile + bit * _64, _4096, first, stride * _64)
        else:
            transpose_words(tile + bit * _64, _4096, piece, _64)
            for column in range(num_columns):
                copy_bytes(first + column * stride * _64, piece + column * _64, piece_bytes)


@subroutine
def _load_rows(tile: Any, rows: Any, stride: Any, num_zones: Any, num_columns: Any) -> None:
    piece_bytes = (num_zones + _7) >> _3
    piece = _stack_piece()
    zero_bytes(piece, _512)
    for bit in range(_64):
        first = rows + bit * stride
        if piece_bytes == _64 and num_columns == _8:
            transpose_words(first, stride * _64, tile + bit * _64, _4096)
        else:
            for column in range(num_columns):
                copy_bytes(piece + column * _64, first + column * stride * _64, piece_bytes)
            transpose_words(piece, _64, tile + bit * _64, _4096)


@kernel
def _turn_zones(filters: Any, num_zones: Any, num_blocks: Any, rows: Any, stride: Any, are_rows_written: Any) -> None:
    tile = _stack_tile()
    zone_bytes = num_blocks * _32
    for zone in range(_0, num_zones, _512):
        tile_zones = min(num_zones - zone, _512)
        for column in range(_0, num_blocks * _4, _8):
            num_columns = min(num_blocks * _4 - column, _8)
            words, bits = filters + zone * zone_bytes + column * _8, rows + column * _64 * stride + (zone >> _3)
            if are_rows_written:
                if tile_zones < _512 or num_columns < _8:
                    zero_bytes(tile, _8 * _4096)
                _copy_zones(tile, _64, words, zone_bytes, tile_zones, num_columns)
                _transpose_tile(tile, tile_zones)
                _store_rows(tile, bits, stride, tile_zones, num_columns)
            else:
                _load_rows(tile, bits, stride, tile_zones, num_columns)
                _transpose_tile(tile, tile_zones)
                _copy_zones(words, zone_bytes, tile, _64, tile_zones, num_columns)


# --- probing ----------------------------------------------------------------------------------------------------------


@subroutine
def _row_of_hash(rows: Any, stride: Any, num_bytes: Any, first_row: Any, hash_: Any, word: Any) -> Any:
    """The first bytes of the bit row for the bit that a hash sets in one word."""
    bit = ((hash_ & _LOW) * _SALTS[word] & _LOW) >> _27
    return u8_array(rows + (first_row + _32 * U(word) + bit) * stride, num_bytes)


@subroutine
def _rows_of_hash(rows: Any, stride: Any, num_bytes: Any, num_blocks: Any, hash_: Any) -> Any:
    """The 8 bit rows that a hash asks for."""
    first_row = block_index(hash_, num_blocks) * _256
    return (
        _row_of_hash(rows, stride, num_bytes, first_row, hash_, 0),
        _row_of_hash(rows, stride, num_bytes, first_row, hash_, 1),
        _row_of_hash(rows, stride, num_bytes, first_row, hash_, 2),
        _row_of_hash(rows, stride, num_bytes, first_row, hash_, 3),
        _row_of_hash(rows, stride, num_bytes, first_row, hash_, 4),
        _row_of_hash(rows, stride, num_bytes, first_row, hash_, 5),
        _row_of_hash(rows, stride, num_bytes, first_row, hash_, 6),
        _row_of_hash(rows, stride, num_bytes, first_row, hash_, 7),
    )


@kernel
def _probe_rows(rows: Any, stride: Any, num_bytes: Any, num_blocks: Any, hashes: Any, count: Any, zones: Any) -> None:
    out = u8_array(zones, num_bytes)
    for index in range(count):
        a, b, c, d, e, f, g, h = _rows_of_hash(rows, stride, num_bytes, num_blocks, load_u64(hashes, index))
        for at in range(num_bytes):
            out[at] |= a[at] & b[at] & c[at] & d[at] & e[at] & f[at] & g[at] & h[at]


@kernel
def _find_live_zone(
    rows: Any, stride: Any, num_bytes: Any, num_blocks: Any, hashes: Any, count: Any, live: Any, hits: Any
) -> None:
    lives, out = u8_array(live, num_bytes), u8_array(hits, count)
    for index in range(count):
        a, b, c, d, e, f, g, h = _rows_of_hash(rows, stride, num_bytes, num_blocks, load_u64(hashes, index))
        for start in range(_0, num_bytes, _64):
            seen = np.uint8(0)
            for at in range(start, start + _64):
                seen |= lives[at] & a[at] & b[at] & c[at] & d[at] & e[at] & f[at] & g[at] & h[at]
            if seen:
                out[index] = 1
                break


# --- the checked wrappers ---------------------------------------------------------------------------------------------


def _check_rows(name: str, rows: Any, num_bytes: int, *, writes: bool = False) -> None:
    check_array(name, rows, np.uint8, 2, writes=writes)
    num_rows, stride = rows.shape
    if not num_rows or num_rows % ROWS_PER_BLOCK:
        raise InvalidArgumentError(f"{name} must have 256 bit rows a block", got=num_rows)
    if stride < num_bytes:
        raise InvalidArgumentError(f"{name} must have bit rows of at least {num_bytes} bytes", got=stride)


def _check_group(name: str, rows: Any, filters: Any, first_zone: int, *, writes: bool) -> None:
    if first_zone < 0 or first_zone % 8:
        raise InvalidArgumentError("first_zone must be a multiple of 8", got=first_zone)
    _check_rows(name, rows, (first_zone + len(filters) + 7) // 8, writes=writes)
    if len(rows) != filters.shape[1] * ROWS_PER_BLOCK:
        raise InvalidArgumentError(
            f"{name} must have {filters.shape[1] * ROWS_PER_BLOCK} bit rows, 256 a block of the filters", got=len(rows)
        )


def slice_zones(filters: npt.NDArray[np.uint32], out: npt.NDArray[np.uint8], first_zone: int = 0) -> None:
    """Lays the filters of consecutive zones into bit rows.

    Parameters
    ----------
    filters : ndarray of uint32, shape (num_zones, num_blocks, 8)
    out : ndarray of uint8, shape (num_blocks * 256, row_bytes)
        Row ``block * 256 + word * 32 + bit`` gets that bit of each filter, from bit `first_zone` of the row on, least
        significant bit first. The last byte is filled with zeros; bytes beyond it are left as they are.
    first_zone : int
        A multiple of 8, so that every call owns the bytes it writes.

    Raises
    ------
    InvalidArgumentError
        If a dtype or a shape does not fit, or `first_zone` is no multiple of 8.

    Notes
    -----
    Cost: about 2 us a zone of 604 blocks, in steps of 512 zones; holds no GIL. Spec: specs/slices.md#slice_zones
    """
    check_filters("filters", filters)
    _check_group("out", out, filters, first_zone, writes=True)
    num_zones, num_blocks, _ = filters.shape
    if num_zones:
        _turn_zones(filters, num_zones, num_blocks, address(out) + first_zone // 8, out.shape[1], 1)


def unslice_zones(rows: npt.NDArray[np.uint8], out: npt.NDArray[np.uint32], first_zone: int = 0) -> None:
    """The inverse of `slice_zones`: takes the filters of consecutive zones from bit rows.

    Parameters
    ----------
    rows : ndarray of uint8, shape (num_blocks * 256, row_bytes)
    out : ndarray of uint32, shape (num_zones, num_blocks, 8)
        Overwritten with the filters of zones `first_zone` and on.
    first_zone : int
        A multiple of 8.

    Raises
    ------
    InvalidArgumentError
        If a dtype or a shape does not fit, or `first_zone` is no multiple of 8.

    Notes
    -----
    Cost: as `slice_zones`. Spec: specs/slices.md#unslice_zones
    """
    check_filters("out", out, writes=True)
    _check_group("rows", rows, out, first_zone, writes=False)
    num_zones, num_blocks, _ = out.shape
    if num_zones:
        _turn_zones(out, num_zones, num_blocks, address(rows) + first_zone // 8, rows.shape[1], 0)


def probe_rows(
    rows: npt.NDArray[np.uint8], hashes: npt.NDArray[np.uint64], *, num_zones: int, out: npt.NDArray[np.uint8]
) -> None:
    """Sets the bit of every zone that may hold any of `hashes`; a zone whose bit stays clear certainly holds none.

    Parameters
    ----------
    rows : ndarray of uint8, shape (num_blocks * 256, row_bytes)
        As `slice_zones` fills them, or a memory map of them; only 8 rows a hash are read.
    hashes : ndarray of uint64
        Best sorted: neighbours then share the rows of a block.
    num_zones : int
        Zones in the group.
    out : ndarray of uint8, shape (ceil(num_zones / 8),)
        A bitmap, least significant bit first; bits are added to those already set.

    Raises
    ------
    InvalidArgumentError
        If a dtype or a shape does not fit.

    Notes
    -----
    Cost: 8 reads of ``num_zones / 8`` bytes a hash, 0.8 us for 32 768 zones in memory. Spec: specs/slices.md#probe_rows
    """
    num_bytes = -(-num_zones // 8)
    check_range("num_zones", num_zones, 0, (1 << 32) - 1)
    _check_rows("rows", rows, num_bytes)
    check_array("hashes", hashes, np.uint64)
    check_array("out", out, np.uint8, writes=True)
    if len(out) != num_bytes:
        raise InvalidArgumentError(f"out must have {num_bytes} bytes, a bit a zone", got=len(out))
    if num_zones and len(hashes):
        num_blocks = len(rows) // ROWS_PER_BLOCK
        _probe_rows(rows, rows.shape[1], num_bytes, num_blocks, hashes, len(hashes), out)


def find_live_zone(
    rows: npt.NDArray[np.uint8],
    hashes: npt.NDArray[np.uint64],
    *,
    live: npt.NDArray[np.uint8],
    out: npt.NDArray[np.bool_],
) -> None:
    """Sets the element of every hash that some live zone may hold; if it stays False, certainly none does.

    Parameters
    ----------
    rows : ndarray of uint8, shape (num_blocks * 256, row_bytes)
        As `slice_zones` fills them; `row_bytes` is a multiple of 64. Only 8 rows a hash are read.
    hashes : ndarray of uint64
        Best sorted: neighbours then share the rows of a block.
    live : ndarray of uint8, shape (row_bytes,)
        A bitmap of the zones that count, least significant bit first; other bits of the rows are ignored by it.
    out : ndarray of bool, shape (num_hashes,)
        Elements that are True already stay so.

    Raises
    ------
    InvalidArgumentError
        If a dtype or a shape does not fit.

    Notes
    -----
    Cost: 8 reads of 64 bytes for each 512 zones up to the first live one that may hold the hash.
    Spec: specs/slices.md#find_live_zone
    """
    check_array("live", live, np.uint8)
    _check_rows("rows", rows, len(live))
    check_array("hashes", hashes, np.uint64)
    check_array("out", out, np.bool_, writes=True)
    if rows.shape[1] != len(live) or len(live) % 64:
        raise InvalidArgumentError(f"live must have {rows.shape[1]} bytes, a multiple of 64", got=len(live))
    if len(out) != len(hashes):
        raise InvalidArgumentError(f"out must have {len(hashes)} elements, one a hash", got=len(out))
    if len(hashes):
        num_blocks = len(rows) // ROWS_PER_BLOCK
        stride = rows.shape[1]
        _find_live_zone(rows, stride, len(live), num_blocks, hashes, len(hashes), live, out)
