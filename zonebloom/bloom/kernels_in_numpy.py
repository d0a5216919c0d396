"""What a search needs of the kernels, by NumPy: for a few keys, and for a process without Numba.

Each function has the name and arguments of its kernel. It does not check them.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

import numpy as np
import xxhash

from zonebloom.bloom.split_block import ROWS_PER_BLOCK, block_indexes, masks, rows_of_hash

if TYPE_CHECKING:
    from numpy.typing import NDArray

_CHECKSUM_BYTES: Final = 8
_PAIRS_AT_ONCE: Final = 1 << 14
"""Pairs of a filter and a hash whose blocks are copied, 32 bytes each: they stay in a core's cache."""


def hash_fixed(data: NDArray[np.uint8], width: int) -> NDArray[np.uint64]:
    """As `xxh64.hash_fixed`."""
    raw, digest = data.data, xxhash.xxh64_intdigest
    return np.array([digest(raw[start : start + width]) for start in range(0, len(raw), width)], np.uint64)


def hash_variable(data: NDArray[np.uint8], offsets: NDArray[np.integer]) -> NDArray[np.uint64]:
    """As `xxh64.hash_variable`."""
    raw, digest, bounds = data.data, xxhash.xxh64_intdigest, offsets.tolist()
    pairs = itertools.pairwise(bounds)
    return np.array([digest(raw[start:stop]) for start, stop in pairs], np.uint64)


def filter_check(blocks: NDArray[np.uint32], hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """As `sbbf.filter_check`."""
    wanted = masks(hashes)
    answers: NDArray[np.bool_] = ((blocks[block_indexes(hashes, len(blocks))] & wanted) == wanted).all(axis=1)
    return answers


def check_hashes(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], hashes: NDArray[np.uint64], live: NDArray[np.bool_] | None
) -> NDArray[np.bool_]:
    """As `sbbf.check_hashes`."""
    blocks, wanted, answers = data.view("<u4").reshape(-1, 8), masks(hashes), np.zeros(len(hashes), np.bool_)
    chosen, places = slice(None) if live is None else live, offsets.astype(np.uint64) // 32
    firsts, sizes = places[:-1][chosen], np.diff(places)[chosen]
    step = 1 + _PAIRS_AT_ONCE // (1 + len(hashes))
    for zone in range(0, len(firsts), step):
        zones = slice(zone, zone + step)
        asked = blocks[firsts[zones, None] + block_indexes(hashes, sizes[zones, None])]
        answers |= ((asked & wanted) == wanted).all(axis=2).any(axis=0)
    return answers


def _rows_of(rows: NDArray[np.uint8], value: int) -> NDArray[np.uint8]:
    return rows[list(rows_of_hash(value, len(rows) // ROWS_PER_BLOCK))]


def probe_rows(rows: NDArray[np.uint8], hashes: NDArray[np.uint64], *, num_zones: int, out: NDArray[np.uint8]) -> None:
    """As `slices.probe_rows`."""
    for value in hashes.tolist():
        out |= np.bitwise_and.reduce(_rows_of(rows, value)[:, : -(-num_zones // 8)], axis=0)


def find_live_zone(
    rows: NDArray[np.uint8], hashes: NDArray[np.uint64], *, live: NDArray[np.uint8], out: NDArray[np.bool_]
) -> None:
    """As `slices.find_live_zone`."""
    for key, value in enumerate(hashes.tolist()):
        out[key] |= (np.bitwise_and.reduce(_rows_of(rows, value), axis=0) & live).any()


def unslice_zones(rows: NDArray[np.uint8], out: NDArray[np.uint32], first_zone: int = 0) -> None:
    """As `slices.unslice_zones`."""
    columns = rows[:, first_zone // 8 : first_zone // 8 - (-len(out) // 8)]
    bits = np.unpackbits(columns, axis=1, count=len(out), bitorder="little")
    packed = np.packbits(np.ascontiguousarray(bits.T), axis=1, bitorder="little")
    out[:] = packed.view("<u4").reshape(out.shape)


def first_bad_row(rows: NDArray[np.uint8], first_row: int, chosen: NDArray[np.uint64]) -> int:
    """As `row_checksums.first_bad_row`."""
    stride, digest = rows.shape[1], xxhash.xxh3_64_intdigest
    view, num_hashed = rows.data.cast("B"), stride - _CHECKSUM_BYTES
    checksums = rows.view("<u8")[chosen, -1].tolist()
    for place, (row, checksum) in enumerate(zip(chosen.tolist(), checksums, strict=True)):
        if digest(view[row * stride : row * stride + num_hashed], first_row + row) != checksum:
            return place
    return len(chosen)
