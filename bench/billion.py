"""A real billion rows with locators instead of filters: build, and one, a thousand and a million keys.

`python -m bench.billion [log2 of the rows]`; by default 2^30 random int64 in 64 files, 8.6 GB, 4.5 GB for the index,
and as much again for `optimize`. It takes some minutes and is no part of `make bench`. The build runs in a process of
its own, whose peak memory is what counts; the disk that the index takes is looked at ten times a second.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import zonebloom as zb
from bench.harness import Result, scratch, seconds_of, spread
from zonebloom.search.query import Query

LOG2_ROWS, FILES = 30, 64
ODD = 0x9E3779B97F4A7C1
WARM_UP, ROUNDS = 6, 9
"""A million keys need 63 % of all pages, each of which its first key checks: after six lists 1 page in 400 is left."""
ONES_WARM_UP, ONES_ROUNDS = 100, 101
"""Of single keys: Python's first calls after a long build take four times as long as the hundredth."""
MS = 1e-3

_BUILD = """
import json, sys, threading, time
from pathlib import Path
import zonebloom as zb
lake, ended, used = Path(sys.argv[1]), threading.Event(), [0]
def watch():
    while not ended.wait(0.1):
        try:
            used.append(sum(one.stat().st_size for one in lake.with_name(f"_{lake.name}.zonebloom").rglob("*")))
        except FileNotFoundError:
            pass
watcher = threading.Thread(target=watch)
watcher.start()
began, cpu = time.perf_counter(), time.process_time()
index = zb.build_index(sys.argv[1], "key", kind="locator")
seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
ended.set()
watcher.join()
lines = Path("/proc/self/status").read_text().splitlines()
peak = 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
[column] = index.indexed_columns()
print(json.dumps([seconds, cpu, peak, max(used), column.index_bytes, sum(column.segments.values())]))
"""


def main(log2_rows: int = LOG2_ROWS) -> None:
    """Write the lake, build, ask."""
    num_rows = 1 << log2_rows
    result = Result("billion", f"{num_rows:,} random int64 in {FILES} files, 8192 rows a zone, kind=locator, warm.")
    with scratch() as folder:
        lake = folder / "lake"
        _write(lake, num_rows)
        command = [sys.executable, "-c", _BUILD, str(lake)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        seconds, cpu, peak, disk, index_bytes, num_parts = json.loads(done.stdout)
        print(
            f"built in {seconds:.1f} s, {cpu:.1f} s CPU, {peak / 2**30:.2f} GiB, {index_bytes / 1e9:.2f} GB", flush=True
        )
        rows = [
            ["build, s", seconds],
            ["build, s CPU", cpu],
            ["peak, GiB", peak / 2**30],
            ["disk, GB", disk / 1e9],
            ["index, GB", index_bytes / 1e9],
            ["parts of the locator", num_parts],
        ]
        index = zb.open_index(lake)
        rows += _asked_in_parts(index, num_rows)
        rows.append(["optimize, s", seconds_of(index.optimize)])
        rows += _asked(result, index, num_rows)
    note = (
        "Each list of keys is new; half of a list of 1000 is present. After `optimize` the locator is one part. Rows"
        " below the lists are of pages that the lists have read."
    )
    result.table("Locators alone", ["", "measured"], rows, note)
    result.target("build with the locator alone", seconds, 30, "s")
    result.target("memory of the build", peak / 2**30, 1.1, "GiB")
    result.target("index", index_bytes / 1e9, 4.5, "GB")
    result.target("disk of the build", disk / 1e9, 4.6, "GB")
    if log2_rows == LOG2_ROWS:
        result.save()


def _write(lake: Path, num_rows: int) -> None:
    lake.mkdir()
    each = num_rows // FILES
    for number in range(FILES):
        keys = np.arange(number * each, (number + 1) * each, dtype=np.int64) * ODD
        options = {"row_group_size": 1 << 20, "use_dictionary": False, "compression": "none", "write_page_index": True}
        pq.write_table(pa.table({"key": keys}), lake / f"part-{number:02}.parquet", **options)


@dataclass(frozen=True, slots=True)
class _Keys:
    """Keys of the lake, and keys that it does not have; each call gives others."""

    num_rows: int
    random: np.random.Generator

    def present(self, count: int) -> list[int]:
        return (self.random.integers(0, self.num_rows, count).astype(np.int64) * ODD).tolist()

    def absent(self, count: int) -> list[int]:
        return ((self.num_rows + self.random.integers(0, 1 << 40, count)).astype(np.int64) * ODD).tolist()

    def mixed(self, count: int) -> pa.Array:
        return pa.array([*self.present(count // 2), *self.absent(count // 2)], pa.int64())


def _asked_in_parts(index: zb.Index, num_rows: int) -> list[list[Any]]:
    """What keys cost before `optimize`: a page of each part."""
    keys, count = _Keys(num_rows, np.random.default_rng(2)), WARM_UP + ROUNDS
    ones = keys.absent(count)
    thousand, many = ([keys.mixed(size) for _ in range(count)] for size in (1000, 1_000_000))
    cases: dict[str, Callable[[], Any]] = {
        "in parts: Equals of an absent key, ms": lambda: index.search(zb.Equals("key", ones.pop())),
        "in parts: exists of 1 M keys, ms": lambda: index.exists("key", many.pop()),
        "in parts: IsIn of 1000 keys, ms": lambda: index.search(column="key", values=thousand.pop()),
    }
    return [[name, spread([seconds_of(case) / MS for _ in range(count)][WARM_UP:])] for name, case in cases.items()]


def _asked(result: Result, index: zb.Index, num_rows: int) -> list[list[Any]]:
    """What keys cost, each new in each round."""
    keys = _Keys(num_rows, np.random.default_rng(1))
    present, absent, mixed = keys.present, keys.absent, keys.mixed

    def found_of(keys: list[int], expected: int) -> Callable[[], None]:
        def ask() -> None:
            assert index.to_table(zb.Equals("key", keys.pop())).num_rows == expected

        return ask

    many = [mixed(1_000_000) for _ in range(ROUNDS + WARM_UP)]
    thousand = [mixed(1000) for _ in range(ROUNDS + WARM_UP)]
    num_ones = ONES_ROUNDS + ONES_WARM_UP
    ones, others, unread, view = absent(num_ones), absent(num_ones), absent(num_ones), index.view()
    unread_ms = [seconds_of(lambda: index.search(zb.Equals("key", unread.pop()))) / MS for _ in range(num_ones)]
    cases: dict[str, tuple[Callable[[], Any], float]] = {
        "exists of 1 M keys, ms": (lambda: index.exists("key", many.pop()), 500),  # loads the kernels for the next
        "IsIn of 1000 keys, ms": (lambda: index.search(column="key", values=thousand.pop()), 5),
        "Equals of an absent key, with the listing, ms": (lambda: index.search(zb.Equals("key", ones.pop())), 0.5),
        "Equals of an absent key, beyond the listing, ms": (
            lambda: Query(view, zb.Equals("key", others.pop())).numbered,
            0.1,
        ),
        "rows of an absent key, ms": (found_of(absent(num_ones), 0), 0.6),
        "rows of a present key, ms": (found_of(present(num_ones), 1), 3),
    }
    rows: list[list[Any]] = [
        ["Equals on pages that nothing has read before, with the listing, ms", spread(unread_ms[ONES_WARM_UP:])]
    ]
    for name, (case, limit) in cases.items():
        warm_up, rounds = (WARM_UP, ROUNDS) if "keys" in name else (ONES_WARM_UP, ONES_ROUNDS)
        times = spread([seconds_of(case) / MS for _ in range(warm_up + rounds)][warm_up:])
        result.target(name.removesuffix(", ms"), times["median"], limit, "ms")
        rows.append([name, times])
    nowhere = pa.array(absent(1_000_000), pa.int64())
    share = index.exists("key", nowhere).true_count / len(nowhere)
    result.target("exists, falsely true", share, 0.003, "of the keys")
    places = index.locate("key", nowhere).num_rows / len(nowhere)
    rows += [["exists, falsely true", share], ["zones of an absent key", places]]
    return rows + _located(result, index, mixed(100_000))


def _located(result: Result, index: zb.Index, keys: pa.Array) -> list[list[Any]]:
    """Half of the keys are present, one zone and one row each."""
    num_present = len(keys) // 2
    few = pa.concat_arrays([keys[:1000], keys[-1000:]])
    seconds = seconds_of(lambda: index.locate("key", keys))
    exact = seconds_of(lambda: index.locate("key", few, exact=True))
    located = index.locate("key", few, exact=True).filter(pc.field("row").is_valid())
    assert located["key_index"].to_pylist() == list(range(1000))
    kept = index.locate("key", keys).num_rows / num_present
    result.target("locate, zones kept of those that hold a key", kept, 1.01, "times")
    return [
        [f"locate of {len(keys):,} keys, ms", seconds / MS],
        ["zones kept of those that hold a key", kept],
        ["locate of 2000 keys with exact=True, ms", exact / MS],
    ]


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
