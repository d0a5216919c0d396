"""Locator segments: bytes a pair, CPU a row of building and merging, and what keys cost to find.

`python -m bench.locator [million rows ...]`; hashes are random, so every row is a pair.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.harness import Result, interleaved, scratch, spread
from zonebloom.bloom import hashing
from zonebloom.bloom.locator_pages import pair_bounds
from zonebloom.storage.locator.build import LocatorBuilder, LocatorParts
from zonebloom.storage.locator.merge import merge_locators
from zonebloom.storage.locator.reader import LocatorSegment
from zonebloom.storage.segment import SegmentEntry
from zonebloom.stores.local import LocalStore

ROWS_PER_ZONE = 8192
BATCH = 1 << 16
PART_PAIRS = 1 << 23
"""So that there is something to merge."""
MILLION_ROWS = (10, 100)
PROBED = 1_000_000
LISTS = {1: 500, 1000: 30, PROBED: 11}
US, MS, NS = 1e-6, 1e-3, 1e-9


def main(millions: list[int]) -> None:
    """Measure each size, and say what is promised of the largest."""
    about = "A locator of random int64, 8192 rows a zone; CPU of one thread, data in memory, files in the page cache."
    result = Result("locator", about)
    rows = []
    for million in millions:
        with scratch() as folder:
            rows.append(_measure(result, folder, million * 1_000_000, is_last=million == millions[-1]))
    columns = ["rows", "zones", "parts", "bytes a pair", "build beyond hashing, ns CPU a row", "merge, ns CPU a row"]
    columns += ["one key, µs", "1000 keys, µs", "1 M keys, ms"]
    columns += ["zones an absent key is given", "keys that ask the directory"]
    note = "Keys are new in each round; half of each list is present. Two cores that other processes use as well."
    result.table("Building, merging and finding", columns, rows, note)
    result.save()


def _measure(result: Result, folder: Path, num_rows: int, *, is_last: bool) -> list[Any]:
    store = LocalStore(folder)
    batches = list(_batches(num_rows))

    def build() -> list[SegmentEntry]:
        parts = LocatorParts(store, "key", num_rows=num_rows, part_pairs=PART_PAIRS)
        builder = LocatorBuilder(parts, rows_per_zone=ROWS_PER_ZONE)
        for batch in batches:
            builder.add(0, batch)
        builder.close()
        parts.close()
        return parts.entries

    def hash_all() -> None:
        for batch in batches:
            hashing.to_hashes(batch)

    parts = build()
    building, hashing_ = [], []
    for _ in range(3):
        hashing_.append(_cpu(hash_all) / num_rows / NS)
        for entry in parts:
            store.delete(entry.path)
        began = time.process_time()
        parts = build()
        building.append((time.process_time() - began) / num_rows / NS - hashing_[-1])
    segments = [LocatorSegment(store, entry) for entry in parts]
    live = [np.ones(len(segment), np.bool_) for segment in segments]
    merging = []
    for _ in range(3):
        began = time.process_time()
        entry = merge_locators(store, "key", segments, live)
        merging.append((time.process_time() - began) / num_rows / NS)
    segment = LocatorSegment(store, entry)
    assert segment.layout.num_pairs == num_rows
    assert segment.verify()  # reads the whole file: it was written past the page cache
    seeds = iter(range(10**6))
    lists = {count: [_keys(num_rows, count, next(seeds)) for _ in range(rounds)] for count, rounds in LISTS.items()}
    for hashes in lists[1000]:  # each page is checked by its first key, and this is not about that
        segment.candidates(hashes)
    single, thousand = ([_wall(partial(segment.candidates, each)) / US for each in lists[n]] for n in (1, 1000))
    many = iter(lists[PROBED])
    rounds = interleaved({"many": lambda: segment.contained(next(many))}, rounds=5)
    result.note_load(rounds)
    absent = _absent(PROBED, 7)
    pairs, _ = segment.lookup(absent)
    bytes_a_pair, false_zones = entry.num_bytes / num_rows, len(pairs) / len(absent)
    if is_last:
        result.target("bytes a distinct pair of key and zone", bytes_a_pair, 4.2, "bytes")
        result.target("build beyond hashing", spread(building)["median"], 15, "ns CPU a row")
        result.target("merge", spread(merging)["median"], 5, "ns CPU a row")
        result.target("false zones of an absent key", false_zones, 0.01, "zones")
        result.target("one key", spread(single)["median"], 60, "µs")
        result.target("1000 keys", spread(thousand)["median"], 1000, "µs")
        result.target("1 M keys", rounds.wall("many", MS)["median"], 600, "ms")
    times = [spread(building), spread(merging), spread(single), spread(thousand), rounds.wall("many", MS)]
    return [num_rows, len(segment), len(parts), bytes_a_pair, *times, false_zones, _asks_directory(segment, absent)]


def _asks_directory(segment: LocatorSegment, hashes: np.ndarray[Any, np.dtype[np.uint64]]) -> float:
    """The share of single keys that read the directory first on a local disk: those of more than 4 pages."""
    bounds = (pair_bounds(value, segment.layout.zone_bits) for value in hashes[:20_000].tolist())
    windows = np.array([segment.layout.window(*pair) for pair in bounds])
    return float((windows[:, 1] - windows[:, 0] > 4).mean())


def _batches(num_rows: int) -> list[pa.Array]:
    """Row i is i times an odd number: all rows differ, and a key's row is known."""
    return [
        pa.array(np.arange(start, min(start + BATCH, num_rows), dtype=np.int64) * 0x9E3779B97F4A7C1)
        for start in range(0, num_rows, BATCH)
    ]


def _keys(num_rows: int, count: int, seed: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Hashes of keys, half of which are present."""
    rows = np.random.default_rng(seed).integers(0, num_rows, -(-count // 2)).astype(np.int64)
    present = hashing.to_hashes(pa.array(rows * 0x9E3779B97F4A7C1))
    return np.concatenate((present, _absent(count // 2, seed)))


def _absent(count: int, seed: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    return np.random.default_rng([seed, 1]).integers(0, 1 << 64, count, dtype=np.uint64)


def _cpu(case: Callable[[], Any]) -> float:
    began = time.process_time()
    case()
    return time.process_time() - began


def _wall(case: Callable[[], Any]) -> float:
    began = time.perf_counter()
    case()
    return time.perf_counter() - began


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]] or list(MILLION_ROWS))
