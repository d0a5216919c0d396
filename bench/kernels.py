"""Hash and insert a column into zone filters: ours, the best C, and the plain Numba loop, in one interleaved run.

``python bench/kernels.py [--rows 1048576] [--rounds 15]`` prints a table and writes ``bench/results/kernels.json``.
Every contender's filters are bit-identical, or it stops. Without gcc the C columns are left out, and said so.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import platform
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba import njit

from zonebloom.bloom.kernels import HAS_FAST_VECTORS
from zonebloom.bloom.kernels.sbbf import filter_check
from zonebloom.bloom.kernels.xxh64 import hash_variable
from zonebloom.bloom.kernels.zones import insert_into_zones
from zonebloom.bloom.sizing import num_blocks_for
from zonebloom.bloom.split_block import measured_fpp

HERE = Path(__file__).parent
ROWS_PER_ZONE = 8192
FPP = 0.00057
NUM_BLOCKS = num_blocks_for(ROWS_PER_ZONE, FPP, "power_of_two")


@dataclass(frozen=True, slots=True)
class Case:
    """One column, and the ways to build its filters; each fills the array it is given."""

    name: str
    num_distinct: int
    """Values; fewer than rows for a dictionary."""
    contenders: dict[str, Callable[[np.ndarray], None]]


# --- the best C -------------------------------------------------------------------------------------------------------


class Zones(ctypes.Structure):
    _fields_ = (("filters", ctypes.c_void_p), ("num_blocks", ctypes.c_uint64), ("rows_per_zone", ctypes.c_uint64))

    @classmethod
    def of(cls, filters: np.ndarray) -> Zones:
        return cls(filters.ctypes.data, NUM_BLOCKS, ROWS_PER_ZONE)


def compile_c(folder: str) -> ctypes.CDLL | None:
    gcc = shutil.which("gcc")
    if gcc is None:
        print("no gcc: the columns of C are left out")
        return None
    library = Path(folder) / "limit.so"
    flags = ["-O3", "-march=native", "-shared", "-fPIC"]
    subprocess.run([gcc, *flags, HERE / "c" / "limit.c", "-o", library], check=True)
    return ctypes.CDLL(str(library))


def in_c(function: Any, *arguments: np.ndarray | int) -> Callable[[np.ndarray], None]:
    """A call of `function` with the addresses of arrays, and the zones."""
    plain = [ctypes.c_uint64(a) if isinstance(a, int) else ctypes.c_void_p(a.ctypes.data) for a in arguments]
    keep = arguments  # alive as long as the call is

    def call(filters: np.ndarray) -> None:
        assert keep
        function(*plain, Zones.of(filters))

    return call


# --- the plain Numba loop: arrays, no intrinsics, what one writes first -----------------------------------------------

SALT = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], np.uint32
)
U, U32 = np.uint64, np.uint32
P1, P2, P3 = U(0x9E3779B185EBCA87), U(0xC2B2AE3D27D4EB4F), U(0x165667B19E3779F9)
P4, P5 = U(0x85EBCA77C2B2AE63), U(0x27D4EB2F165667C5)


@njit
def rotate(x, bits):
    return (x << U(bits)) | (x >> U(64 - bits))


@njit
def round_64(acc, word):
    return rotate(acc + word * P2, 31) * P1


@njit
def avalanche(h):
    h = (h ^ (h >> U(33))) * P2
    h = (h ^ (h >> U(29))) * P3
    return h ^ (h >> U(32))


@njit
def plain_insert(blocks, h):
    block = blocks[((h >> U(32)) * U(blocks.shape[0])) >> U(32)]
    for i in range(8):
        block[i] |= U32(1) << U32(U32(U32(h) * SALT[i]) >> U32(27))


@njit
def plain_hash_u64(word):
    return avalanche(rotate((P5 + U(8)) ^ round_64(U(0), word), 27) * P1 + P4)


@njit
def word_at(data, at, size):
    word = U(0)
    for i in range(size):
        word |= U(data[at + i]) << U(8 * i)
    return word


@njit
def plain_hash_bytes(data, at, end):
    length = end - at
    h = P5
    if length >= 32:
        a, b, c, d = P1 + P2, P2, U(0), U(0) - P1
        while at + 32 <= end:
            a, b = round_64(a, word_at(data, at, 8)), round_64(b, word_at(data, at + 8, 8))
            c, d = round_64(c, word_at(data, at + 16, 8)), round_64(d, word_at(data, at + 24, 8))
            at += 32
        h = rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18)
        for acc in (a, b, c, d):
            h = (h ^ round_64(U(0), acc)) * P1 + P4
    h += U(length)
    while at + 8 <= end:
        h = rotate(h ^ round_64(U(0), word_at(data, at, 8)), 27) * P1 + P4
        at += 8
    if at + 4 <= end:
        h = rotate(h ^ (word_at(data, at, 4) * P1), 23) * P2 + P3
        at += 4
    while at < end:
        h = rotate(h ^ (U(data[at]) * P5), 11) * P1
        at += 1
    return avalanche(h)


@njit
def plain_int64(keys, filters):
    filters[:] = 0
    for i in range(len(keys)):
        plain_insert(filters[i // ROWS_PER_ZONE], plain_hash_u64(keys[i]))


@njit
def plain_strings(data, offsets, filters):
    filters[:] = 0
    for i in range(len(offsets) - 1):
        plain_insert(filters[i // ROWS_PER_ZONE], plain_hash_bytes(data, offsets[i], offsets[i + 1]))


@njit
def plain_dictionary(data, offsets, indexes, filters):
    filters[:] = 0
    hashes = np.empty(len(offsets) - 1, np.uint64)
    for i in range(len(hashes)):
        hashes[i] = plain_hash_bytes(data, offsets[i], offsets[i + 1])
    for i in range(len(indexes)):
        plain_insert(filters[i // ROWS_PER_ZONE], hashes[indexes[i]])


# --- cases ------------------------------------------------------------------------------------------------------------


def counts(num_rows: int) -> np.ndarray:
    return np.empty(-(-num_rows // ROWS_PER_ZONE), np.uint64)


def int64_case(num_rows: int, random: np.random.Generator, c: Any) -> Case:
    keys = random.integers(0, 1 << 63, num_rows, dtype=np.uint64)
    valid = counts(num_rows)
    contenders = {
        "ours": lambda filters: insert_into_zones(
            "fixed", filters, valid, (keys.view(np.uint8), 8), num_rows=num_rows, rows_per_zone=ROWS_PER_ZONE
        ),
        "plain Numba": lambda filters: plain_int64(keys, filters),
    }
    if c:
        contenders["C"] = in_c(c.insert_int64, keys, num_rows)
    return Case("int64", num_rows, contenders)


def string_case(name: str, lengths: np.ndarray, random: np.random.Generator, c: Any) -> Case:
    num_rows = len(lengths)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    data = np.frombuffer(b"0123456789abcdef", np.uint8)[random.integers(0, 16, offsets[-1] + 64)]
    valid = counts(num_rows)
    contenders = {
        "ours": lambda filters: insert_into_zones(
            "variable", filters, valid, (data, offsets), num_rows=num_rows, rows_per_zone=ROWS_PER_ZONE
        ),
        "plain Numba": lambda filters: plain_strings(data, offsets, filters),
    }
    if c:
        contenders["C"] = in_c(c.insert_strings, data, offsets, num_rows)
    return Case(name, num_rows, contenders)


def dictionary_case(num_rows: int, random: np.random.Generator, c: Any) -> Case:
    num_values = min(10_000, num_rows)
    offsets = np.concatenate([[0], np.cumsum(random.integers(5, 25, num_values))]).astype(np.int32)
    data = random.integers(0, 256, offsets[-1] + 64, dtype=np.uint8)
    indexes = random.integers(0, num_values, num_rows).astype(np.int32)
    valid, values = counts(num_rows), np.empty(num_values, np.uint64)

    def ours(filters: np.ndarray) -> None:
        keys = hash_variable(data, offsets), indexes.view(np.uint32)
        insert_into_zones("dictionary", filters, valid, keys, num_rows=num_rows, rows_per_zone=ROWS_PER_ZONE)

    contenders = {"ours": ours, "plain Numba": lambda filters: plain_dictionary(data, offsets, indexes, filters)}
    if c:
        contenders["C"] = in_c(c.insert_dictionary, data, offsets, num_values, values, indexes, num_rows)
    return Case("dictionary of 10 000 strings", num_values, contenders)


# --- measuring --------------------------------------------------------------------------------------------------------


def measure(case: Case, num_rows: int, num_rounds: int) -> dict[str, Any]:
    """Medians of interleaved rounds, after one that compiles and compares every contender's filters with ours."""
    num_zones = -(-num_rows // ROWS_PER_ZONE)
    filters = np.empty((num_zones, NUM_BLOCKS, 8), np.uint32)
    first_call = time.perf_counter()
    case.contenders["ours"](filters)
    first_call = time.perf_counter() - first_call
    expected = filters.copy()
    for name, build in case.contenders.items():
        filters[:] = 0xDEADBEEF
        build(filters)
        assert np.array_equal(filters, expected), f"{case.name}: the filters of {name} differ from ours"

    times: dict[str, list[float]] = {name: [] for name in case.contenders}
    for _ in range(num_rounds):
        for name, build in case.contenders.items():
            start = time.perf_counter()
            build(filters)
            times[name].append((time.perf_counter() - start) / num_rows * 1e9)

    medians = {name: statistics.median(ns) for name, ns in times.items()}
    absent = np.random.default_rng(1).integers(0, 1 << 64, 200_000, dtype=np.uint64)
    return {
        "case": case.name,
        "rows": num_rows,
        "distinct": case.num_distinct,
        "ns_per_key": {
            name: {"median": round(medians[name], 3), "min": round(min(ns), 3), "max": round(max(ns), 3)}
            for name, ns in times.items()
        },
        "ratio_to_c": round(medians["ours"] / medians["C"], 3) if "C" in medians else None,
        "times_faster_than_plain_numba": round(medians["plain Numba"] / medians["ours"], 2),
        "first_call_seconds": round(first_call, 2),
        "bits_per_key": NUM_BLOCKS * 256 / ROWS_PER_ZONE,
        "fpp_counted": float(measured_fpp(expected).mean()),
        "fpp_measured": float(np.mean([filter_check(blocks, absent).mean() for blocks in expected[:20]])),
    }


def print_table(results: list[dict[str, Any]]) -> None:
    header = ("hash + insert", "ours ns/key", "C", "plain Numba", "ours/C", "plain/ours", "bits/key", "measured FPP")
    rows = [header]
    for result in results:
        nanoseconds = result["ns_per_key"]

        def spread(name: str, nanoseconds: dict[str, Any] = nanoseconds) -> str:
            if name not in nanoseconds:
                return "-"
            return "{median:.2f} ({min:.2f}..{max:.2f})".format(**nanoseconds[name])

        rows.append(
            (
                result["case"],
                spread("ours"),
                spread("C"),
                spread("plain Numba"),
                f"{result['ratio_to_c'] or '-'}",
                f"{result['times_faster_than_plain_numba']}",
                f"{result['bits_per_key']:.0f}",
                f"{result['fpp_measured']:.2e}",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1 << 20)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--output", type=Path, default=HERE / "results" / "kernels.json")
    options = parser.parse_args()
    random, num_rows = np.random.default_rng(0), options.rows

    with tempfile.TemporaryDirectory() as folder:
        c = compile_c(folder)
        cases = [
            int64_case(num_rows, random, c),
            string_case("36-char UUID", np.full(num_rows, 36), random, c),
            string_case("strings of 5-24 bytes", random.integers(5, 25, num_rows), random, c),
            dictionary_case(num_rows, random, c),
        ]
        results = [measure(case, num_rows, options.rounds) for case in cases]

    print_table(results)
    environment = {
        "machine": platform.machine(),
        "python": platform.python_version(),
        "numba": numba.__version__,
        "numpy": np.__version__,
        "fast_vectors": HAS_FAST_VECTORS,
        "rows_per_zone": ROWS_PER_ZONE,
        "rounds": options.rounds,
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps({"environment": environment, "results": results}, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
