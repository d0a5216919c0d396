"""What NumPy does in place of the kernels, and a search in a process without Numba."""

from __future__ import annotations

import numpy as np
import pytest

import zonebloom as zb
from tests.child import run_python
from tests.depth import some
from zonebloom.bloom import kernels_in_numpy as plain
from zonebloom.bloom.kernels import row_checksums, sbbf, slices, xxh64
from zonebloom.index.doors import build_index

NUM_ZONES, NUM_BLOCKS = 40, 6


@pytest.fixture
def random():
    return np.random.default_rng(7)


@pytest.fixture
def hashes(random):
    return random.integers(0, 1 << 64, 500, np.uint64)


@pytest.fixture
def filters(random):
    """Half of all bits are set, so that one key in 256 matches."""
    return random.integers(0, 1 << 32, (NUM_ZONES, NUM_BLOCKS, 8), np.uint32)


@pytest.fixture
def rows(filters):
    rows = np.zeros((NUM_BLOCKS * 256, 64), np.uint8)
    slices.slice_zones(filters, rows)
    return rows


@pytest.mark.parametrize("width", [1, 8, 16, 100])
def test_hashes_of_fixed_values(random, width):
    data = random.integers(0, 256, width * 50, np.uint8)
    assert plain.hash_fixed(data, width).tolist() == xxh64.hash_fixed(data, width).tolist()


def test_hashes_of_variable_values(random):
    offsets = np.sort(random.integers(0, 1000, 50, np.int32))
    data = random.integers(0, 256, 1000, np.uint8)
    assert plain.hash_variable(data, offsets).tolist() == xxh64.hash_variable(data, offsets).tolist()


def test_checks_of_filters(filters, hashes):
    answers = plain.filter_check(filters[0], hashes)
    assert 0 < answers.sum() < len(hashes)
    assert answers.tolist() == sbbf.filter_check(filters[0], hashes).tolist()


def test_probes_of_bit_rows(rows, hashes, filters):
    answers = []
    for kernels in plain, slices:
        bits, is_live = np.zeros(5, np.uint8), np.zeros(len(hashes), np.bool_)
        kernels.probe_rows(rows, hashes[:30], num_zones=NUM_ZONES, out=bits)
        live = np.zeros(64, np.uint8)
        live[:3] = 255
        kernels.find_live_zone(rows, hashes, live=live, out=is_live)
        back = np.empty((24, NUM_BLOCKS, 8), np.uint32)
        kernels.unslice_zones(rows, back, 8)
        assert (back == filters[8:32]).all()
        answers.append((bits.tolist(), is_live.tolist()))
    assert answers[0] == answers[1]
    assert any(answers[0][0])
    assert any(answers[0][1])


def test_damaged_rows(random):
    rows = random.integers(0, 256, (9, 256), np.uint8)
    row_checksums.seal_rows(rows, 1000)
    chosen = np.array([1, 4, 7], np.uint64)
    assert plain.first_bad_row(rows, 1000, chosen) == 3
    rows[4, 10] ^= 1
    assert plain.first_bad_row(rows, 1000, chosen) == row_checksums.first_bad_row(rows, 1000, chosen) == 1


SEARCHES = """
for condition in zb.col("user_id").isin(users), zb.col("user_id") == users[7], zb.col("user_id").is_null():
    print(index.search(condition).num_rows_kept, index.to_table(condition).num_rows)
print(sum(index.exists("user_id", users).to_pylist()), index.locate("user_id", users).num_rows)
print(index.verify().is_sound)
"""
WITHOUT_NUMBA = f"""
import sys
for name in "numba", "llvmlite", "click", "rich", "sqlglot":
    sys.modules[name] = None
import zonebloom as zb
index, users = zb.open_index(sys.argv[1]), sys.stdin.read().split()
{SEARCHES}
try:
    zb.build_index(sys.argv[1], "user_id", overwrite=True)
except zb.ZoneBloomError as error:
    print(error)
"""


@pytest.mark.parametrize(("kind", "optimize"), some([("bloom", True), ("bloom", False), ("locator", False)], 2))
def test_a_search_needs_no_numba(flat_lake, kind, optimize, capsys):
    users = [*flat_lake.table["user_id"].to_pylist()[:3000], "nobody"]
    index = build_index(flat_lake.root, "user_id", kind=kind, rows_per_zone=256, optimize=optimize)
    exec(SEARCHES, {"zb": zb, "index": index, "users": users})
    expected = capsys.readouterr().out
    done = run_python(WITHOUT_NUMBA, flat_lake.root, typed="\n".join(users))
    answers, refusal = done.stdout.split("Numba")
    assert answers == expected
    assert refusal.startswith(" must be installed to change an index")
