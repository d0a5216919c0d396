"""How the cost of one key grows with the index: zone layout, slices and Lance, from 1024 zones to 131 072.

Draws `bench/growth.png` from what it measures. The filters of our indexes come from random keys without data files, as
in `bench.slices`; Lance needs its data, and stops where its index no longer fits the patience of a bench.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import zonebloom as zb
from bench.harness import Result, scratch, spread
from bench.slices import FPP, ROWS_PER_ZONE, keys_without_data
from zonebloom.search.query import Query

ZONES = (1024, 4096, 16_384, 65_536, 131_072)
LANCE_ZONES = (1024, 4096, 16_384)
PAGE_BYTES = 4096
PICTURE = Path(__file__).parent / "growth.png"
KEYS = 60
MS, MB = 1e3, 1e-6


def main() -> None:
    """Measure, print, save and draw."""
    result = Result("growth", "One absent int64 key, page cache warm, literal to answer.", packages=["pylance"])
    rows: list[list[Any]] = []
    for num_zones in ZONES:
        with scratch() as folder:
            rows += _ours(folder / "lake", num_zones)
    for num_zones in LANCE_ZONES:
        with scratch() as folder:
            rows.append(_lance(folder, num_zones))
    rows.sort(key=lambda row: (row[0], row[1]))
    note = (
        "Bytes: what the process read (counted) for slices and the first query of Lance; for the zone layout, "
        "which is mapped, the pages that hold the probed blocks, one a zone. After the first query "
        "Lance keeps its index in memory."
    )
    columns = ["layout", "zones", "rows", "first query, ms", "later queries, ms", "MB read for one key"]
    result.table("One key against the size of the index", columns, rows, note)
    result.save()
    draw(rows)


def _absent(count: int) -> list[int]:
    return np.random.default_rng(11).integers(-(2**63), 2**63, count, dtype=np.int64).tolist()


def _ours(root: Path, num_zones: int) -> list[list[Any]]:
    keys_without_data(root, num_zones)
    index = zb.open_index(root)
    index.optimize()
    for path in root.with_name(f"_{root.name}.zonebloom").rglob("*.arrow"):
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 24):
                pass
    measured = []
    answers = []
    for name, version in (("zones", 1), ("slices", index.version)):
        opened, first = _timed(lambda version=version: zb.open_index(root, version=version))
        view = opened.view()
        answer, more = _timed(lambda view=view: Query(view, zb.col("key") == 17).result)
        before = _read_so_far()
        _ = Query(view, zb.col("key") == 18).result
        num_bytes = _read_so_far() - before if name == "slices" else num_zones * PAGE_BYTES
        later = [
            _timed(lambda key=key, view=view: Query(view, zb.col("key") == key).result)[1] for key in _absent(KEYS)
        ]
        measured.append(_row(name, num_zones, first + more, later, num_bytes))
        answers.append(answer.row_ranges)
    assert answers[0] == answers[1]
    return measured


def _lance(folder: Path, num_zones: int) -> list[Any]:
    import lance
    from lance.indices import IndexConfig

    rng = np.random.default_rng(3)
    for _ in range(num_zones // 1024):
        keys = pa.table({"key": rng.integers(-(2**62), 2**62, 1024 * ROWS_PER_ZONE)})
        lance.write_dataset(keys, folder / "peer", mode="append", max_rows_per_file=len(keys))
    parameters = {"number_of_items": ROWS_PER_ZONE, "probability": FPP}
    data = lance.dataset(folder / "peer")
    data.create_scalar_index("key", IndexConfig(index_type="bloomfilter", parameters=parameters))
    command = [sys.executable, "-c", _LANCE, str(folder / "peer"), json.dumps(_absent(KEYS))]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    first, later, num_bytes = json.loads(output)
    return _row("Lance", num_zones, first, later, num_bytes)


_LANCE = """
import json, sys, time
import lance
def count():
    return int(open("/proc/self/io").read().split()[1])
def run(key):
    began = time.perf_counter()
    assert data.to_table(filter=f"key = {key}").num_rows == 0
    return time.perf_counter() - began
data = lance.dataset(sys.argv[1])
keys = json.loads(sys.argv[2])
before = count()
first = run(keys[0])
print(json.dumps([first, [run(key) for key in keys[1:]], count() - before]))
"""


def _row(name: str, num_zones: int, first: float, later: list[float], num_bytes: int) -> list[Any]:
    times = spread([seconds * MS for seconds in later])
    return [name, num_zones, num_zones * ROWS_PER_ZONE, first * MS, times, num_bytes * MB]


def _timed(case: Any) -> tuple[Any, float]:
    began = time.perf_counter()
    value = case()
    return value, time.perf_counter() - began


def _read_so_far() -> int:
    return int(Path("/proc/self/io").read_text(encoding="ascii").split()[1])


def draw(rows: list[list[Any]]) -> None:
    """Two panels, both logarithmic: later queries, and bytes."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (time_axes, bytes_axes) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for name, colour in (("Lance", "tab:gray"), ("zones", "tab:orange"), ("slices", "tab:blue")):
        mine = [row for row in rows if row[0] == name]
        zones = [row[1] for row in mine]
        time_axes.plot(zones, [row[4]["median"] for row in mine], "o-", color=colour, label=name)
        time_axes.plot(zones, [row[3] for row in mine], "o:", color=colour, alpha=0.5, label=f"{name}, first query")
        bytes_axes.plot(zones, [row[5] for row in mine], "o-", color=colour, label=name)
    time_axes.set(title=f"One key, warm (fpp {FPP})", ylabel="ms")
    bytes_axes.set(title="Bytes for one key", ylabel="MB")
    for axes in (time_axes, bytes_axes):
        axes.set(xscale="log", yscale="log", xlabel=f"zones of {ROWS_PER_ZONE} rows")
        axes.set_xticks(ZONES, [f"{number:,}" for number in ZONES])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8, ncols=3, loc="upper center")
        axes.set_ylim(top=axes.get_ylim()[1] * 20)
    figure.savefig(PICTURE, dpi=110)


if __name__ == "__main__":
    main()
