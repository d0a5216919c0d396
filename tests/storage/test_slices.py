"""Slice segments hold the same bits as zone segments, give the same answers, and believe nothing that was not checked.

Sizes are chosen around the capacities of groups; hashes are drawn at random, so that most bits are read somewhere.
"""

from __future__ import annotations

import ctypes
import mmap
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings, strategies as st

from tests.conftest import flip
from tests.depth import at_depth
from tests.storage.test_locator import CountingStore
from zonebloom.bloom.kernels import slices as kernels
from zonebloom.bloom.split_block import rows_of_hash
from zonebloom.bloom.zones import ZonePositions, ZoneTable, zone_schema
from zonebloom.errors import CorruptIndexError
from zonebloom.storage.segment import SegmentEntry
from zonebloom.storage.slices import layout as slice_layout, zone_runs
from zonebloom.storage.slices.layout import FULL_GROUP, cut_into_groups, stride_for
from zonebloom.storage.slices.reader import FEW_HASHES, SliceSegment
from zonebloom.storage.slices.writer import SliceSegmentWriter
from zonebloom.stores import local as local_store
from zonebloom.stores.local import LocalStore

SCHEMA = zone_schema(10, 0.01, column="key", column_type=pa.int64())
EDGES = sorted({0, 1, 7, 8, 9, 63, 64, 65, 447, 448, 449, 511, 512, 513, 960, 961, 1985})


def random_filters(num_zones: int, num_blocks: int, seed: int = 0) -> np.ndarray:
    """Filters with three bits of four set, so that a key of 8 bits passes one zone of ten."""
    random = np.random.default_rng([seed, num_zones, num_blocks])
    shape = (num_zones, num_blocks, 8)
    return random.integers(0, 2**32, shape, np.uint32) | random.integers(0, 2**32, shape, np.uint32)


def positions_of(num_zones: int, zones_per_fragment: int = 5, seed: int = 0) -> ZonePositions:
    fragment_ids, numbers = np.divmod(np.arange(num_zones, dtype=np.uint64), np.uint64(zones_per_fragment))
    has_null = np.random.default_rng(seed).random(num_zones) < 0.3
    return ZonePositions(fragment_ids, numbers * np.uint64(10), np.full(num_zones, 10, np.uint64), has_null)


def write_slices(root: Path, filters: np.ndarray) -> SegmentEntry:
    num_zones, num_blocks, _ = filters.shape
    with SliceSegmentWriter(LocalStore(root), "key", SCHEMA, num_blocks, positions_of(num_zones)) as writer:
        for first, stop in writer.layout.bodies():
            rows = np.zeros(((stop - first) * 256, writer.layout.stride), np.uint8)
            if num_zones:
                kernels.slice_zones(np.ascontiguousarray(filters[:, first:stop]), rows, 0)
            writer.write(rows)
        return writer.finish()


def expected_zones(filters: np.ndarray, hashes: np.ndarray) -> np.ndarray:
    """May-contain by the definition, in plain integers."""
    bits = np.zeros(len(filters), bool)
    num_blocks = filters.shape[1]
    for value in hashes.tolist():
        matching = np.ones(len(filters), bool)
        for row in rows_of_hash(value, num_blocks):
            block, word, bit = row // 256, row // 32 % 8, row % 32
            matching &= (filters[:, block, word] >> np.uint32(bit)) & np.uint32(1) == 1
        bits |= matching
    return bits


def hashes_of(count: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**64, count, np.uint64)


# --- the two layouts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_blocks", [1, 2, 3, 7])
@pytest.mark.parametrize("num_zones", EDGES)
def test_slices_hold_the_same_bits_and_answer_alike(tmp_path, num_zones, num_blocks):
    filters = random_filters(num_zones, num_blocks)
    segment = SliceSegment(LocalStore(tmp_path), write_slices(tmp_path, filters))
    zones = ZoneTable(segment.batches(), segment.schema)
    assert len(segment) == len(zones) == num_zones
    for name in ("fragment_ids", "zone_starts", "zone_lengths", "has_null"):
        assert np.array_equal(getattr(segment.positions, name), getattr(positions_of(num_zones), name))
        assert np.array_equal(getattr(zones.positions, name), getattr(segment.positions, name))
    assert all(np.array_equal(zones.blocks(zone), filters[zone]) for zone in range(num_zones))
    assert zones.schema.equals(SCHEMA, check_metadata=True)
    for count in (1, 2, FEW_HASHES + 1):
        hashes = hashes_of(count)
        assert np.array_equal(segment.may_contain(hashes), zones.may_contain(hashes))
        assert np.array_equal(segment.candidates(hashes), np.flatnonzero(zones.may_contain(hashes)))
        assert np.array_equal(zones.candidates(hashes), np.flatnonzero(zones.may_contain(hashes)))
        assert np.array_equal(segment.contained(hashes), zones.contained(hashes))


@given(
    num_zones=st.sampled_from(EDGES[1:12]),
    num_blocks=st.integers(1, 9),
    count=st.sampled_from([1, 3, FEW_HASHES + 1]),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=at_depth(40), deadline=None)
def test_may_contain_is_the_and_of_the_definition(tmp_path_factory, num_zones, num_blocks, count, seed):
    filters = random_filters(num_zones, num_blocks, seed)
    root = tmp_path_factory.mktemp("slices")
    segment = SliceSegment(LocalStore(root), write_slices(root, filters))
    hashes = hashes_of(count, seed)
    assert np.array_equal(segment.may_contain(hashes), expected_zones(filters, hashes))
    live = np.random.default_rng(seed).random(num_zones) < 0.5
    each = [bool((expected_zones(filters, hashes[[i]]) & live).any()) for i in range(count)]
    assert segment.contained(hashes, live).tolist() == each


def test_a_group_of_several_bodies_answers_alike(tmp_path, monkeypatch):
    monkeypatch.setattr(slice_layout, "_BODY_BYTES", 5 << 20)
    filters = random_filters(5000, 37)
    entry = write_slices(tmp_path, filters)
    segment = SliceSegment(LocalStore(tmp_path), entry)
    assert len(segment.layout.bodies()) == 2
    with pa.ipc.open_file(str(tmp_path / entry.path)) as reader:
        assert [len(chunk) for chunk in reader.read_all()["bit_rows"].chunks] == [20 * 256, 17 * 256]
    for count in (1, FEW_HASHES + 1):
        hashes = hashes_of(count)
        assert np.array_equal(segment.may_contain(hashes), expected_zones(filters, hashes))
    assert np.array_equal(segment.blocks(4999), filters[4999])
    copied = np.empty((30, 10, 8), np.uint32)
    segment.copy_blocks(copied, 1003, 15)
    assert np.array_equal(copied, filters[1003:1033, 15:25])


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(0, 2), st.booleans()), max_size=40))
def test_zone_runs_keep_any_positions(zones):
    position = {}
    rows = []
    for fragment_id, length, gap, has_null in sorted(zones, key=lambda zone: zone[0]):
        start = position.get(fragment_id, 0) + gap
        rows.append((fragment_id, start, length, has_null))
        position[fragment_id] = start + length
    columns = [np.array([row[i] for row in rows], np.uint64) for i in range(3)]
    positions = ZonePositions(*columns, np.array([row[3] for row in rows], bool))
    actual = zone_runs.positions_of(zone_runs.runs_of(positions), len(rows), "s")
    for name in ("fragment_ids", "zone_starts", "zone_lengths", "has_null"):
        assert np.array_equal(getattr(actual, name), getattr(positions, name))


def test_a_regular_file_is_one_run():
    zone = np.arange(1000, dtype=np.uint64)
    lengths = np.full(1000, 8192, np.uint64)
    lengths[-1] = 17
    positions = ZonePositions(zone // np.uint64(1000), zone * np.uint64(8192), lengths, zone > 1)
    assert zone_runs.runs_of(positions).num_rows == 1


@given(st.integers(0, 200_000))
def test_groups_hold_all_zones_with_little_padding(num_zones):
    sizes = cut_into_groups(num_zones)
    assert sum(sizes) in (0, num_zones)
    assert all(1 <= size <= FULL_GROUP for size in sizes)
    assert len([size for size in sizes if size < FULL_GROUP]) <= 4
    assert sum(8 * stride_for(size) for size in sizes) <= num_zones * 8 / 7
    assert sizes or num_zones < 3584
    remote = cut_into_groups(num_zones, is_remote=True)
    assert sum(remote) in (0, num_zones)
    assert remote == sizes or (not sizes and sum(8 * stride_for(size) for size in remote) <= num_zones * 16 / 7)
    assert remote or num_zones < 224


# --- the file ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("num_zones", "num_blocks"), [(0, 1), (1, 1), (449, 3), (5000, 33), (20_000, 37)])
def test_pyarrow_reads_every_row_and_no_row_straddles_a_page(tmp_path, num_zones, num_blocks):
    filters = random_filters(num_zones, num_blocks)
    entry = write_slices(tmp_path, filters)
    path = tmp_path / entry.path
    layout = SliceSegment(LocalStore(tmp_path), entry).layout
    data = path.read_bytes()
    with pa.ipc.open_file(str(path)) as reader:
        table = reader.read_all()
    assert table.column_names == ["bit_rows"]
    assert table.num_rows == num_blocks * 256
    for row in range(0, 256 * layout.num_blocks, 37):
        offset = layout.offset(row)
        assert offset // 4096 == (offset + layout.stride - 1) // 4096
        assert table["bit_rows"][row].as_py() == data[offset : offset + layout.stride]
    assert all(offset % 4096 == 0 for offset in layout.body_offsets)
    assert sum(span.num_bytes for span in entry.spans) == len(data)


def test_a_row_ends_with_the_checksum_of_the_spec(tmp_path, monkeypatch):
    monkeypatch.setattr("zonebloom.storage.segment.new_path", lambda *_: "columns/id/a.slices.arrow")
    filters = np.zeros((3, 1, 8), np.uint32)
    filters[[0, 2], 0, 0] = 1 << 5
    entry = write_slices(tmp_path, filters)
    layout = SliceSegment(LocalStore(tmp_path), entry).layout
    start = layout.offset(5)
    row = (tmp_path / entry.path).read_bytes()[start : start + 64]
    assert row == b"\x05" + bytes(55) + bytes.fromhex("fa0e2d7df7c3bf92")
    seed = xxhash.xxh3_64_intdigest(entry.path.encode()) // 2 + 5
    assert xxhash.xxh3_64_intdigest(row[:-8], seed) == int.from_bytes(row[-8:], "little")


def test_a_key_reads_8_rows(tmp_path):
    store = CountingStore(tmp_path)
    segment = SliceSegment(store, write_slices(tmp_path, random_filters(1000, 5)))
    before = store.num_bytes
    segment.may_contain(hashes_of(1))
    assert store.num_bytes - before == 8 * segment.layout.stride


def test_threads_share_a_segment(tmp_path):
    filters = random_filters(1000, 50)
    segment = SliceSegment(LocalStore(tmp_path), write_slices(tmp_path, filters))
    keys = [hashes_of(count, seed) for seed in range(20) for count in (1, 2, FEW_HASHES + 1)]
    with ThreadPoolExecutor(4) as pool:
        entries = list(pool.map(segment.may_contain, keys))
    assert all(np.array_equal(answer, expected_zones(filters, key)) for answer, key in zip(entries, keys, strict=True))


# --- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, FEW_HASHES + 1])
def test_values_meet_the_damage_first(tmp_path, count):
    """`contained` believes no row because it was read; nobody else has asked before."""
    entry = write_slices(tmp_path, np.full((1000, 4, 8), 2**32 - 1, np.uint32))
    hashes = hashes_of(count)
    layout = SliceSegment(LocalStore(tmp_path), entry).layout
    path = tmp_path / entry.path
    data = bytearray(path.read_bytes())
    row = layout.offset(rows_of_hash(int(hashes[0]), 4)[3])
    data[row : row + 125] = bytes(125)  # all its bits are cleared, so that no zone seems to hold the hash
    path.write_bytes(bytes(data))
    segment = SliceSegment(LocalStore(tmp_path), entry)
    assert segment.contained(hashes).all()
    assert len(segment.damage) == 1


def test_headers_between_bodies_and_the_tail_are_checked(tmp_path, monkeypatch):
    """They are for Arrow's readers: `verify` finds a flip in a header, opening one in the tail."""
    monkeypatch.setattr(slice_layout, "_BODY_BYTES", 256 * 64)
    filters = random_filters(20, 3)
    entry = write_slices(tmp_path, filters)
    assert [bool(span.checksum) for span in entry.spans] == [True, False, True, False, True, False, True]
    starts = [0, *accumulate(span.num_bytes for span in entry.spans)]
    path = tmp_path / entry.path
    for header in (2, 4):
        flip(path, starts[header] + 5, 0)
        segment = SliceSegment(LocalStore(tmp_path), entry)
        assert np.array_equal(segment.may_contain(hashes_of(5)), expected_zones(filters, hashes_of(5)))
        assert not segment.verify()
        flip(path, starts[header] + 5, 0)
    assert SliceSegment(LocalStore(tmp_path), entry).verify()
    flip(path, starts[6] + 5, 0)
    with pytest.raises(CorruptIndexError, match="span 6"):
        SliceSegment(LocalStore(tmp_path), entry)


@pytest.mark.parametrize("is_finished", [False, True])
def test_nothing_stays_of_a_segment_whose_block_raises(tmp_path, is_finished):
    def write_and_fail():
        with SliceSegmentWriter(LocalStore(tmp_path), "key", SCHEMA, 1, positions_of(3)) as writer:
            writer.write(np.zeros((256, writer.layout.stride), np.uint8))
            if is_finished:
                writer.finish()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_and_fail()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("head", [0, 4096, 100])
@pytest.mark.parametrize("is_aligned", [True, False])
@pytest.mark.parametrize("cached_bytes", [0, 3 << 20, 1 << 30])
def test_large_writes_land_in_their_place(tmp_path, monkeypatch, head, is_aligned, cached_bytes):
    """Past the page cache, through it, or the first through it and the second past it."""
    monkeypatch.setattr(local_store, "_CACHED_BYTES", cached_bytes)
    size = 2 << 20
    data = np.frombuffer(mmap.mmap(-1, size + 4096), np.uint8)[: size + 64][0 if is_aligned else 64 :][:size]
    data[:] = np.random.default_rng(0).integers(0, 256, size, np.uint8)
    with LocalStore(tmp_path).writing("file") as file:
        file.write(b"h" * head)
        file.write_large(data)
        file.write(b"middle")
        file.write_large(data)
        file.write(b"tail")
    whole = data.tobytes()
    assert (tmp_path / "file").read_bytes() == b"h" * head + whole + b"middle" + whole + b"tail"


def test_what_was_just_written_is_in_the_page_cache(tmp_path):
    size = 4 << 20
    with LocalStore(tmp_path).writing("file") as file:
        file.write_large(np.frombuffer(mmap.mmap(-1, size), np.uint8))
    pages = np.zeros(size // mmap.PAGESIZE, np.uint8)
    with (tmp_path / "file").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        address = ctypes.c_void_p(np.frombuffer(mapped, np.uint8).ctypes.data)
        assert ctypes.CDLL(None).mincore(address, ctypes.c_size_t(size), ctypes.c_void_p(pages.ctypes.data)) == 0
    assert (pages & 1).all()


def test_many_open_segments_do_not_exhaust_descriptors(tmp_path, monkeypatch):
    monkeypatch.setattr(local_store, "_MAX_OPEN_FILES", 3)
    entries = [write_slices(tmp_path, random_filters(9, 1, seed)) for seed in range(9)]
    store = LocalStore(tmp_path)
    segments = [SliceSegment(store, entry) for entry in entries]
    for _ in range(2):
        for seed, segment in enumerate(segments):
            expected = expected_zones(random_filters(9, 1, seed), hashes_of(1))
            assert np.array_equal(segment.may_contain(hashes_of(1)), expected)
    assert len(store._open_files) == 3
