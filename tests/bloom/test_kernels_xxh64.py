"""The hash kernels equal the xxhash package (4.x), JIT on, at every length and alignment."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings, strategies as st

from tests import reference
from tests.child import run_python
from tests.depth import at_depth
from zonebloom.bloom.kernels.xxh64 import BATCH, hash_fixed, hash_variable

SPEC = Path(__file__).parents[2] / "specs" / "xxh64.md"
RANDOM = np.random.default_rng(20260801)


def random_bytes(num_bytes):
    return RANDOM.integers(0, 256, num_bytes, dtype=np.uint8)


def offsets_of(lengths, dtype=np.int32):
    return np.concatenate([[0], np.cumsum(lengths)]).astype(dtype)


def oracle(data, offsets):
    return [xxhash.xxh64_intdigest(data[start:stop].tobytes()) for start, stop in pairwise(offsets)]


def test_the_vectors_of_the_spec():
    rows = re.findall(r"^\| `([0-9a-f]*)` \| (\d+) \| `([0-9a-f]{16})` \|$", SPEC.read_text("utf-8"), re.MULTILINE)
    assert len(rows) == 7
    keys = [bytes.fromhex(key) for key, _, _ in rows]
    assert [len(key) for key in keys] == [int(length) for _, length, _ in rows]
    hashes = hash_variable(np.frombuffer(b"".join(keys), np.uint8), offsets_of([len(key) for key in keys]))
    assert [f"{hash_:016x}" for hash_ in hashes] == [expected for *_, expected in rows]


def test_fixed_keys_of_every_width():
    for width in range(1, 201):
        data = random_bytes(width * 43)  # 32 in lanes, 11 one by one
        assert hash_fixed(data, width).tolist() == oracle(data, np.arange(44) * width), width


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_variable_keys_of_one_length_and_of_many(dtype):
    one_length = ([length] * 43 for length in range(201))
    mixed = (RANDOM.integers(0, longest + 1, 3 * BATCH + 17) for longest in (1, 3, 7, 8, 16, 31, 32, 33, 64, 100, 200))
    one_is_long = np.where(np.arange(4 * BATCH) % 100, RANDOM.integers(0, 20, 4 * BATCH), 2000)
    for lengths in (*one_length, *mixed, one_is_long):
        offsets = offsets_of(lengths, dtype)
        data = random_bytes(offsets[-1])
        assert hash_variable(data, offsets).tolist() == oracle(data, offsets), max(lengths)


@settings(max_examples=at_depth(50))
@given(st.lists(st.binary(max_size=300), max_size=80), st.integers(0, 3))
def test_any_keys_at_any_alignment(keys, skipped):
    data = np.frombuffer(b"x" * skipped + b"".join(keys), np.uint8)
    offsets = offsets_of([len(key) for key in keys]) + np.int32(skipped)
    assert hash_variable(data, offsets).tolist() == reference.hashes_of(keys)


def test_lanes_read_no_byte_beyond_the_data():
    """The keys end at the end of a page whose successor may not be read: an over-read kills this process."""
    code = """
import ctypes, mmap
import numpy as np, xxhash
from zonebloom.bloom.kernels.xxh64 import hash_variable, hash_fixed
pages = mmap.mmap(-1, 3 * mmap.PAGESIZE)
whole = np.frombuffer(pages, np.uint8)
libc = ctypes.CDLL(None)
last = ctypes.c_void_p(whole.ctypes.data + 2 * mmap.PAGESIZE)
assert libc.mprotect(last, mmap.PAGESIZE, 0) == 0
lengths = np.arange(64) % 40
offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
for spare in (0, 1, 31, 32, 33):
    data = whole[2 * mmap.PAGESIZE - offsets[-1] - spare:2 * mmap.PAGESIZE]
    data[:] = np.arange(len(data)) % 251
    wanted = [xxhash.xxh64_intdigest(data[a:b].tobytes()) for a, b in zip(offsets, offsets[1:])]
    assert hash_variable(data, offsets).tolist() == wanted
for width in range(1, 50):
    hash_fixed(whole[2 * mmap.PAGESIZE - 32 * width:2 * mmap.PAGESIZE], width)
    hash_variable(whole[2 * mmap.PAGESIZE - 32 * width:2 * mmap.PAGESIZE], np.arange(0, 33 * width, width, np.int32))
print("ok")
"""
    assert run_python(code).stdout == "ok\n"


def test_a_plain_cpu_gives_the_same_hashes(tmp_path):
    """Without AVX-512 strings are hashed one by one; NUMBA_CPU_NAME compiles for such a CPU."""
    code = """
import sys, pytest
from zonebloom.bloom.kernels import HAS_FAST_VECTORS
assert not HAS_FAST_VECTORS
sys.exit(pytest.main([sys.argv[1], "-q", "-n", "0", "-p", "no:cacheprovider", "-k", "every_width or int32"]))
"""
    environment = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": str(tmp_path)}
    assert "2 passed" in run_python(code, __file__, **environment).stdout


def test_no_keys():
    assert len(hash_fixed(np.empty(0, np.uint8), 8)) == 0
    assert len(hash_variable(np.empty(0, np.uint8), np.zeros(1, np.int64))) == 0
    assert len(hash_variable(np.empty(0, np.uint8), np.empty(0, np.int32))) == 0
