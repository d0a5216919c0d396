"""`exists` against the filter of a data set: nanoseconds a value, for filters from the cache's size to 128 MiB.

The filters are made from random hashes, and put into a small index; the values are a million int64. `first` includes
opening the filter and checking all of its checksums; the probe alone is of hashes, none of them present, and then all.

    python bench/levels.py [--keys 100000000]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import zonebloom as zb
from zonebloom.levels.filling import Filling, write_dataset_filter
from zonebloom.storage.level import LevelEntry
from zonebloom.storage.local_store import LocalStore
from zonebloom.storage.manifest import commit, read_version

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


def index_with(filled_filter, num_keys: int, folder: Path) -> zb.Index:
    """A small index whose filter of the data set is `filled_filter`."""
    pq.write_table(pa.table({"key": np.arange(10)}), folder / "0.parquet")
    index = zb.build_index(folder, "key", levels=("zone", "dataset"), overwrite=True)
    store = LocalStore(index.root)
    manifest = read_version(store, index.version)
    column = manifest.column("key")
    fragments = [one for start, stop in column.levels[0].segments[0].fragments for one in range(start, stop)]
    segment = write_dataset_filter(store, "key", filled_filter.blocks, fragments)
    level = LevelEntry("dataset", num_keys, filled_filter.fpp, (segment,))
    commit(store, manifest.following("bench", columns=(replace(column, levels=(level,)),)))
    return zb.open_index(folder)


def measure(num_keys: int) -> dict[str, float]:
    filling, present = filled(num_keys, 0)
    done = filling.finish()
    values = pa.array(np.random.default_rng(1).integers(0, 2**63, NUM_VALUES))
    with tempfile.TemporaryDirectory() as folder:
        index = index_with(done, num_keys, Path(folder))
        started = time.perf_counter()
        found = index.exists("key", values)
        first = (time.perf_counter() - started) / NUM_VALUES * 1e9
        assert abs(found.true_count / NUM_VALUES - done.fpp) < 0.1 * done.fpp + 1e-4
        opened = index.view().column("key").zones
        assert opened.contained(present, None).all()
        return {
            "keys": num_keys,
            "bytes": done.blocks.nbytes,
            "fpp": done.fpp,
            "first_ns": first,
            "exists_ns": ns_a_value(lambda: index.exists("key", values)),
            "absent_ns": ns_a_value(lambda: opened.contained(present + np.uint64(1), None)),
            "present_ns": ns_a_value(lambda: opened.contained(present, None)),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=100_000_000)
    most = parser.parse_args().keys
    sizes = [keys for keys in (100_000, 1_000_000, 10_000_000) if keys < most]
    assert measure(10_000)["fpp"] < 0.001  # compiles, too
    print(f"{'':36}   exists, ns a value        probe alone\n{'keys':>12} {'bytes':>12} {'fpp':>9}", end="")
    print(f"{'first':>11} {'later':>8} {'absent':>13} {'present':>8}")
    for keys in [*sizes, most]:
        one = measure(keys)
        print(
            f"{keys:>12,} {one['bytes']:>12,} {one['fpp']:>9.2g} {one['first_ns']:>10.1f} {one['exists_ns']:>8.1f} "
            f"{one['absent_ns']:>13.1f} {one['present_ns']:>8.1f}"
        )
    print(json.dumps(one))
    if most >= 100_000_000 and one["exists_ns"] > 60:
        sys.exit(f"exists must take at most 60 ns a value, got {one['exists_ns']:.1f}")


if __name__ == "__main__":
    main()
