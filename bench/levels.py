"""`exists` against the filter of a data set: nanoseconds a value, for filters from the cache's size to 128 MiB.

The filters are made from random hashes, and put into a small index; the values are a million int64. `first` includes
opening the filter and checking all of its checksums; the probe alone is of hashes, none of them present, and then all.

    python -m bench.levels [--keys 100000000]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import zonebloom as zb
from bench.harness import Result, scratch, spread
from zonebloom.storage.level import LevelEntry
from zonebloom.storage.levels.fill import Filling, write_dataset_filter
from zonebloom.storage.manifest import commit, read_version
from zonebloom.storage.stores.local import LocalStore

NUM_VALUES = 1_000_000
CHUNK = 1 << 20
REPEATS = 7
PUBLISHED = 100_000_000
MB = 1e-6


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


def ns_a_value(run: Callable[[], Any]) -> dict[str, float]:
    seconds = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        run()
        seconds.append((time.perf_counter() - started) / NUM_VALUES * 1e9)
    return spread(seconds)


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


def measure(num_keys: int) -> dict[str, Any]:
    filling, present = filled(num_keys, 0)
    done = filling.finish()
    values = pa.array(np.random.default_rng(1).integers(0, 2**63, NUM_VALUES))
    with scratch() as folder:
        index = index_with(done, num_keys, folder)
        started = time.perf_counter()
        found = index.exists("key", values)
        first = (time.perf_counter() - started) / NUM_VALUES * 1e9
        assert abs(found.true_count / NUM_VALUES - done.fpp) < 0.1 * done.fpp + 1e-4
        opened = index.view().column("key").zones
        assert opened.contained(present, None).all()
        return {
            "keys": num_keys,
            "bytes": done.blocks.nbytes * MB,
            "fpp": done.fpp,
            "first": first,
            "later": ns_a_value(lambda: index.exists("key", values)),
            "absent": ns_a_value(lambda: opened.contained(present + np.uint64(1), None)),
            "present": ns_a_value(lambda: opened.contained(present, None)),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=PUBLISHED)
    most = parser.parse_args().keys
    result = Result("levels", "`exists` of a million int64 against the one filter of a data set, fpp 0.00057 asked.")
    assert measure(10_000)["fpp"] < 0.001  # compiles, too
    measured = [measure(keys) for keys in (100_000, 1_000_000, 10_000_000) if keys < most]
    measured.append(measure(most))
    columns = [
        "keys",
        "filter, MB",
        "fpp",
        "exists, first, ns a value",
        "exists, later",
        "probe, absent",
        "probe, present",
    ]
    note = "`first` opens the filter and checks all its checksums; a probe begins with the hashes. 128 MiB is the most."
    result.table("One block a value", columns, [list(one.values()) for one in measured], note)
    if most == PUBLISHED:
        result.target(f"exists of 1 M values, {most:,} keys", measured[-1]["later"]["median"], 60, "ns a value")
        result.save()


if __name__ == "__main__":
    main()
