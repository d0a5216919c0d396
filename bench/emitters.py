"""What each LLVM emitter of the kernels wins over the plain loop that it replaces.

The peer is an ``@njit`` loop over NumPy arrays, the way the specification's pseudo-code reads; for row checksums it is
`xxhash`, row by row from Python. Both run in the same rounds, on one core, and their answers are compared first. An
emitter that wins less than 1.3 times has no place: the table is the reason why each is still there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import xxhash
from numba import njit

from bench.harness import Result, interleaved
from bench.kernels import SALT, U32, U, plain_hash_bytes, plain_insert
from zonebloom.bloom.kernels.row_checksums import first_bad_row, seal_rows
from zonebloom.bloom.kernels.sbbf import filter_check, filter_insert
from zonebloom.bloom.kernels.slices import slice_zones, unslice_zones
from zonebloom.bloom.kernels.xxh64 import hash_fixed, hash_variable

KEYS = 1 << 16
ZONES, BLOCKS = 4096, 64
NUM_ROWS, STRIDE = BLOCKS * 256, ZONES // 8
REPEATED = 16
"""Calls a sample: one of them is too short to be timed."""
LEAST = 1.3

Pair = tuple[Callable[[], Any], Callable[[], Any]]


def main() -> None:
    """Measure every emitter against its plain loop."""
    result = Result("emitters", "Kernels in LLVM's vectors against plain Numba loops: one core, data in memory.")
    random = np.random.default_rng(0)
    rows = []
    for name, unit, per, (ours, plain) in (*_hashing(random), *_filters(random), *_slices(random), *_checksums(random)):
        assert np.array_equal(ours(), plain()), name
        cases = {"ours": _repeated(ours), "plain": _repeated(plain)}
        rounds = result.note_load(interleaved(cases, rounds=9))
        ratio, scale = rounds.ratio("plain", "ours"), per * REPEATED * 1e-9
        rows.append([name, unit, rounds.wall("ours", scale), rounds.wall("plain", scale), ratio])
        result.target(f"{name}: over the plain loop", ratio["median"], LEAST, "x", at_most=False)
    columns = ["kernel", "ns a", "emitters", "plain loop", "plain / emitters"]
    result.table("Emitters and plain loops", columns, rows)
    result.save()


def _repeated(case: Callable[[], Any]) -> Callable[[], None]:
    def run() -> None:
        for _ in range(REPEATED):
            case()

    return run


# --- hashing: vector, steps, lanes ------------------------------------------------------------------------------------


@njit
def _plain_fixed(data, width, hashes):
    for i in range(len(hashes)):
        hashes[i] = plain_hash_bytes(data, i * width, (i + 1) * width)


@njit
def _plain_variable(data, offsets, hashes):
    for i in range(len(hashes)):
        hashes[i] = plain_hash_bytes(data, offsets[i], offsets[i + 1])


def _hashing(random: np.random.Generator) -> list[tuple[str, str, int, Pair]]:
    fixed = random.integers(0, 256, KEYS * 36, dtype=np.uint8)
    offsets = np.concatenate([[0], np.cumsum(random.integers(5, 25, KEYS))]).astype(np.int32)
    data = random.integers(0, 256, offsets[-1] + 64, dtype=np.uint8)

    def plain(loop: Callable[..., None], *arguments: Any) -> np.ndarray:
        hashes = np.empty(KEYS, np.uint64)
        loop(*arguments, hashes)
        return hashes

    return [
        ("hash 36 bytes", "key", KEYS, (lambda: hash_fixed(fixed, 36), lambda: plain(_plain_fixed, fixed, 36))),
        (
            "hash 5 to 24 bytes",
            "key",
            KEYS,
            (lambda: hash_variable(data, offsets), lambda: plain(_plain_variable, data, offsets)),
        ),
    ]


# --- one filter: blocks -----------------------------------------------------------------------------------------------


@njit
def _plain_insert_all(blocks, hashes):
    for i in range(len(hashes)):
        plain_insert(blocks, hashes[i])


@njit
def _plain_check(blocks, hashes, answers):
    for i in range(len(hashes)):
        block = blocks[((hashes[i] >> U(32)) * U(blocks.shape[0])) >> U(32)]
        is_held = True
        for word in range(8):
            bit = U32(1) << U32(U32(U32(hashes[i]) * SALT[word]) >> U32(27))
            is_held &= (block[word] & bit) != 0
        answers[i] = is_held


def _filters(random: np.random.Generator) -> list[tuple[str, str, int, Pair]]:
    hashes = random.integers(0, 1 << 64, KEYS, dtype=np.uint64)
    zone = random.integers(0, 1 << 32, (1024, 8), dtype=np.uint32)

    def inserted(insert: Callable[..., None]) -> np.ndarray:
        blocks = np.zeros((1024, 8), np.uint32)
        insert(blocks, hashes)
        return blocks

    def checked() -> np.ndarray:
        answers = np.empty(KEYS, np.bool_)
        _plain_check(zone, hashes, answers)
        return answers

    return [
        ("filter_insert", "hash", KEYS, (lambda: inserted(filter_insert), lambda: inserted(_plain_insert_all))),
        ("filter_check", "hash", KEYS, (lambda: filter_check(zone, hashes), checked)),
    ]


# --- bit rows: slices, transposes -------------------------------------------------------------------------------------


@njit
def _plain_slice(filters, rows):
    rows[:] = 0
    for zone in range(filters.shape[0]):
        for block in range(filters.shape[1]):
            for word in range(8):
                held = filters[zone, block, word]
                for bit in range(32):
                    row = block * 256 + word * 32 + bit
                    rows[row, zone >> 3] |= np.uint8(((held >> U32(bit)) & U32(1)) << U32(zone & 7))


@njit
def _plain_unslice(rows, filters):
    filters[:] = 0
    for zone in range(filters.shape[0]):
        for block in range(filters.shape[1]):
            for word in range(8):
                held = U32(0)
                for bit in range(32):
                    row = block * 256 + word * 32 + bit
                    held |= U32((rows[row, zone >> 3] >> (zone & 7)) & 1) << U32(bit)
                filters[zone, block, word] = held


def _slices(random: np.random.Generator) -> list[tuple[str, str, int, Pair]]:
    filters = random.integers(0, 1 << 32, (ZONES, BLOCKS, 8), dtype=np.uint32)
    filters &= random.integers(0, 1 << 32, filters.shape, dtype=np.uint32)
    rows = np.zeros((NUM_ROWS, STRIDE), np.uint8)
    slice_zones(filters, rows)

    def into(shape: Any, dtype: Any, fill: Callable[[np.ndarray], None]) -> np.ndarray:
        out = np.zeros(shape, dtype)
        fill(out)
        return out

    sliced, zones = (NUM_ROWS, STRIDE), (ZONES, BLOCKS, 8)
    blocks = ZONES * BLOCKS
    return [
        (
            "slice_zones",
            "block",
            blocks,
            (
                lambda: into(sliced, np.uint8, lambda out: slice_zones(filters, out)),
                lambda: into(sliced, np.uint8, lambda out: _plain_slice(filters, out)),
            ),
        ),
        (
            "unslice_zones",
            "block",
            blocks,
            (
                lambda: into(zones, np.uint32, lambda out: unslice_zones(rows, out)),
                lambda: into(zones, np.uint32, lambda out: _plain_unslice(rows, out)),
            ),
        ),
    ]


# --- row checksums ----------------------------------------------------------------------------------------------------


def _checksums(random: np.random.Generator) -> list[tuple[str, str, int, Pair]]:
    """Rows of 512 bytes (4096 zones), and of 16 KiB (131 072 zones), sealed, then verified."""
    cases: list[tuple[str, str, int, Pair]] = []
    for stride, num_rows in ((STRIDE + 8, 8192), (16384 + 8, 1024)):
        rows = random.integers(0, 256, (num_rows, stride), dtype=np.uint8)
        seal_rows(rows, 0)
        chosen = np.arange(num_rows, dtype=np.uint64)

        def sealed(rows: np.ndarray = rows) -> np.ndarray:
            seal_rows(rows, 0)
            return rows[:, -8:]

        def sealed_by_xxhash(rows: np.ndarray = rows) -> np.ndarray:
            digests = [xxhash.xxh3_64_intdigest(row[:-8], number) for number, row in enumerate(rows)]
            rows[:, -8:] = np.array(digests, np.uint64).view(np.uint8).reshape(-1, 8)
            return rows[:, -8:]

        def verified(rows: np.ndarray = rows, chosen: np.ndarray = chosen) -> int:
            return first_bad_row(rows, 0, chosen)

        def verified_by_xxhash(rows: np.ndarray = rows, chosen: np.ndarray = chosen) -> int:
            stored = rows[:, -8:].copy().view(np.uint64)[:, 0].tolist()
            for number in chosen.tolist():
                if xxhash.xxh3_64_intdigest(rows[number, :-8], number) != stored[number]:
                    return int(number)
            return len(chosen)

        size = f"{stride - 8} bytes"
        cases += [
            (f"seal_rows of {size}, against xxhash", "row", num_rows, (sealed, sealed_by_xxhash)),
            (f"first_bad_row of {size}, against xxhash", "row", num_rows, (verified, verified_by_xxhash)),
        ]
    return cases


if __name__ == "__main__":
    main()
