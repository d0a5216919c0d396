"""Lance both ways: what our index costs and gains on a Lance table, beside the bloom filter index of Lance itself.

Both are indexes of the same table, with as many rows a zone and the same probability. Answers are compared with those
of Lance's own index. `python -m bench.lance --zones 65536` takes 9 GB of disk; the default takes 5.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance.indices import IndexConfig

import zonebloom as zb
from bench.harness import Result, compile_sources, interleaved, scratch, spread
from zonebloom.lance import audit_lance

ROWS_PER_ZONE, FPP, DISTINCT = 8192, 0.00057, 1000
ZONES_PER_FRAGMENT = 128
MS, MB = 1e3, 1e-6


def main() -> None:
    """Run both parts."""
    options = argparse.ArgumentParser()
    options.add_argument("--zones", type=int, default=32_768, help="zones of the large table, a multiple of 128")
    result = Result(
        "lance",
        "int64 keys, 8192 rows a zone, fpp 0.00057, fragments of 1,048,576 rows. The files are in the page cache.",
        packages=["pylance"],
    )
    with scratch() as folder:
        sizes(result, folder)
    with scratch() as folder:
        one_key(result, folder, options.parse_args().zones)
    result.save()


def write(root: Path, num_zones: int, distinct: int | None = None) -> list[int]:
    """A table of one column; a key of each fragment."""
    rng = np.random.default_rng(3)
    num_rows, present = ZONES_PER_FRAGMENT * ROWS_PER_ZONE, []
    for number in range(num_zones // ZONES_PER_FRAGMENT):
        keys = rng.integers(-(2**62), 2**62, num_rows, dtype=np.int64)
        if distinct is not None:
            zones = keys.reshape(-1, ROWS_PER_ZONE)
            keys = np.take_along_axis(zones, rng.integers(0, distinct, zones.shape), axis=1).ravel()
        present.append(int(keys[77]))
        lance.write_dataset(
            pa.table({"key": keys}), root, mode="append" if number else "create", max_rows_per_file=num_rows
        )
    return present


def lances_own(root: Path) -> int:
    """Make Lance's own index; the bytes of its filters."""
    parameters = {"number_of_items": ROWS_PER_ZONE, "probability": FPP}
    lance.dataset(root).create_scalar_index("key", IndexConfig("bloomfilter", parameters))
    return audit_lance(root, sample=0.01).indexes[0].filter_bytes


def answers(root: Path, keys: list[int]) -> list[int]:
    """Rows that Lance finds by the index that the table has."""
    scanner = lance.dataset(root).scanner(filter=f"key = {keys[0]}")
    assert "ScalarIndexQuery" in scanner.explain_plan()
    return [lance.dataset(root).count_rows(f"key = {key}") for key in keys]


def sizes(result: Result, folder: Path) -> None:
    """Bytes of exported indexes against Lance's own of the same table, with equal answers."""
    table = []
    for name, distinct in (("distinct keys", None), (f"{DISTINCT} distinct keys a zone", DISTINCT)):
        root = folder / f"t{distinct}.lance"
        keys = [*write(root, 4 * ZONES_PER_FRAGMENT, distinct), *range(40)]
        own = lances_own(root)
        expected = answers(root, keys)
        for sizing in ("power_of_two", "exact", "adaptive"):
            index = zb.build_index(root, "key", sizing=sizing, fpp=FPP, index=folder / f"{distinct}-{sizing}")
            num_bytes = index.export_lance(root, "key", overwrite=True).filter_bytes
            assert answers(root, keys) == expected
            assert audit_lance(root).is_sound
            table.append([name, sizing, num_bytes * MB, own * MB, num_bytes / own])
    columns = ["table", "sizing", "exported, MB", "Lance's own, MB", "share"]
    result.table(
        f"Our index as Lance's own, {4 * ZONES_PER_FRAGMENT} zones", columns, table, "Lance's answers are equal."
    )
    result.target("exported with sizing exact, share of Lance's own bytes", table[1][4], 0.60, "times")
    result.target(f"adaptive at {DISTINCT} distinct values a zone, share", table[5][4], 0.08, "times")


def one_key(result: Result, folder: Path, num_zones: int) -> None:
    """First and later queries for the rows of one key, by our index and by Lance's, of the same table."""
    root = folder / "large.lance"
    present = write(root, num_zones)
    index = zb.build_index(root, "key", fpp=FPP, kind="both")
    index.optimize()
    lances_own(root)
    small = folder / "small.lance"
    lance.write_dataset(pa.table({"key": [1]}), small)
    zb.build_index(small, "key", kind="both")
    question = json.dumps([list(range(100)), present[:50]])
    runs: dict[str, list[Any]] = {"ours": [], "lance": []}

    def run(name: str, code: str) -> None:
        command = [sys.executable, "-c", code, root, question, small]
        runs[name].append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))

    compile_sources()
    cases = {"ours": partial(run, "ours", _OURS), "lance": partial(run, "lance", _LANCE)}
    result.note_load(interleaved(cases, rounds=2))

    def joined(name: str, part: int) -> dict[str, float]:
        return spread([seconds * MS for run in runs[name] for seconds in run[part]])

    names = ("first query of a process", "later, absent key", "later, present key")
    rows = [[text, joined("ours", part), joined("lance", part)] for part, text in enumerate(names)]
    title = f"The rows of one key in a Lance table, {num_zones:,} zones, {num_zones * ROWS_PER_ZONE:,} rows"
    note = "Ours has a locator. Both open the table, after a query of a small one that loads libraries."
    result.table(title, ["", "zonebloom, ms", "Lance's own index, ms"], rows, note)
    ratios = [row[2]["median"] / row[1]["median"] for row in rows]
    for text, ratio, limit in zip(names, ratios, (100, 1, 1), strict=True):
        claim = f"Lance table, {text}, rows fetched, against Lance's, {num_zones:,} zones"
        result.target(claim, ratio, limit, "times", at_most=False)


_LANCE = """
import json, sys, time
import lance
absent, present = json.loads(sys.argv[2])
def run(key):
    began = time.perf_counter()
    rows = data.to_table(filter=f"key = {key}").num_rows
    return time.perf_counter() - began, rows
lance.dataset(sys.argv[3]).to_table(filter="key = 1")
began = time.perf_counter()
data = lance.dataset(sys.argv[1])
run(present[0])
first = time.perf_counter() - began
later, found = [run(key) for key in absent], [run(key) for key in present[1:]]
assert {rows for _, rows in later} == {0} and {rows for _, rows in found} == {1}
print(json.dumps([[first], [one for one, _ in later], [one for one, _ in found]]))
"""

_OURS = """
import json, sys, time
import lance
import zonebloom as zb
import zonebloom.index.index, zonebloom.predicates, zonebloom.search.scan, zonebloom.formats.lance
absent, present = json.loads(sys.argv[2])
def run(key):
    began = time.perf_counter()
    rows = index.to_table(zb.col("key") == key).num_rows
    return time.perf_counter() - began, rows
zb.open_index(sys.argv[3]).to_table("key = 1")
began = time.perf_counter()
index = zb.open_index(sys.argv[1])
run(present[0])
first = time.perf_counter() - began
later, found = [run(key) for key in absent], [run(key) for key in present[1:]]
assert {rows for _, rows in later} == {0} and {rows for _, rows in found} == {1}
print(json.dumps([[first], [one for one, _ in later], [one for one, _ in found]]))
"""

if __name__ == "__main__":
    main()
