"""`exists` against the filter of a data set: nanoseconds a value, for filters from the cache's size to 128 MiB.

The filters are made from random hashes; the values are int64, none of them present, and then all.

    python bench/levels.py [--keys 100000000]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from zonebloom import hashing
from zonebloom.levels import DatasetFilter
from zonebloom.levels.filling import Filling, write_dataset_filter
from zonebloom.storage.store import LocalStore

NUM_VALUES = 1_000_000
CHUNK = 1 << 20
REPEATS = 7


def filled(num_keys: int, keys_seed: int) -> tuple[Filling, np.ndarray]:
    """A filter of random hashes, and as many of them as are looked for."""
    random = np.random.default_rng(keys_seed)
    filling = Filling(num_keys, 0.00057)
    some = []
    for first in range(0, num_keys, CHUNK):
        hashes = random.integers(0, 2**64, min(CHUNK, num_keys - first), np.uint64)
        filling.add(hashes)
        if len(some) < 64:
            some.append(hashes[: NUM_VALUES // 64 + 1])
    return filling, np.resize(np.concatenate(some), NUM_VALUES)


def ns_a_value(run) -> float:
    seconds = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds) / NUM_VALUES * 1e9


def measure(num_keys: int, folder: Path) -> dict[str, float]:
    import pyarrow as pa

    filling, present = filled(num_keys, 0)
    done = filling.finish()
    store = LocalStore(folder)
    entry = write_dataset_filter(store, "key", done.blocks, [0])
    values = pa.array(np.random.default_rng(1).integers(0, 2**63, NUM_VALUES))
    opened = DatasetFilter(store, entry, sys.exit)
    started = time.perf_counter()
    opened.check(hashing.hash_array(values))
    first = (time.perf_counter() - started) / NUM_VALUES * 1e9
    found = opened.check(present)
    assert found.all()
    store.delete(entry.path)
    return {
        "keys": num_keys,
        "bytes": done.blocks.nbytes,
        "fpp": done.fpp,
        "first_ns": first,
        "absent_ns": ns_a_value(lambda: opened.check(hashing.hash_array(values))),
        "present_ns": ns_a_value(lambda: opened.check(present)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=100_000_000)
    most = parser.parse_args().keys
    sizes = [keys for keys in (100_000, 1_000_000, 10_000_000) if keys < most]
    with tempfile.TemporaryDirectory() as folder:
        warm = measure(10_000, Path(folder))  # compiles
        assert warm["fpp"] < 0.001
        print(f"{'keys':>12} {'bytes':>12} {'fpp':>9}   ns a value: {'first':>6} {'absent':>7} {'present':>8}")
        for keys in [*sizes, most]:
            one = measure(keys, Path(folder))
            print(
                f"{keys:>12,} {one['bytes']:>12,} {one['fpp']:>9.2g} {one['first_ns']:>20.1f} "
                f"{one['absent_ns']:>7.1f} {one['present_ns']:>8.1f}"
            )
    print(json.dumps(one))
    if most >= 100_000_000 and one["absent_ns"] > 60:
        sys.exit(f"exists must take at most 60 ns a value, got {one['absent_ns']:.1f}")


if __name__ == "__main__":
    main()
