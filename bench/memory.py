"""Resident memory of a build: 100 M int64 rows must stay under 1 GiB.

Each build runs in a process of its own, whose peak is what counts: `VmHWM`, as `ru_maxrss` begins with the peak of the
process that started it. Files that a process maps count while they are mapped; page cache beyond that does not.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.data import integers, uuids, write_files
from bench.harness import Result, scratch

MIB = 1 << 20

_BUILD = """
import json, sys, time
from pathlib import Path
import pyarrow, pyarrow.parquet
def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
imported = peak()
import zonebloom as zb
began = time.perf_counter()
index = zb.build_index(sys.argv[1], ["key"], workers=int(sys.argv[2]))
elapsed = time.perf_counter() - began
[column] = index.indexed_columns()
print(json.dumps([imported, peak(), elapsed, index.num_rows, column.index_bytes]))
"""


def main() -> None:
    """Build over 10, 100 M numbers, and over strings, and write what each needed."""
    result = Result("memory", "Peak resident memory of a process that builds one index and nothing else, 2 workers.")
    rng = np.random.default_rng(3)
    cases = (
        ("int64, 10 files of 1 M rows", lambda: _tables(integers, 10, 1_000_000, rng)),
        ("int64, 10 files of 10 M rows", lambda: _tables(integers, 10, 10_000_000, rng)),
        ("UUID strings, 4 files of 5 M rows", lambda: _tables(uuids, 4, 5_000_000, rng)),
    )
    rows = []
    for name, tables in cases:
        with scratch() as folder:
            write_files(folder, tables())
            imported, peak, elapsed, num_rows, index_bytes = _build(folder)
        rows.append(
            [name, num_rows, round(index_bytes / MIB), round(imported / MIB), round(peak / MIB), round(elapsed, 2)]
        )
        if num_rows == 100_000_000:
            result.target("memory of a build, 100 M int64 rows", peak / MIB, 1024, "MiB")
            text = f"{peak / MIB:.0f} MiB resident"
            result.headline.append(["build the index of 100 M int64", text, f"an index of {index_bytes / MIB:.0f} MiB"])
    columns = ["data", "rows", "index, MiB", "pyarrow imported, MiB", "peak, MiB", "build with start-up, s"]
    note = "One run each. pyarrow's default Parquet settings. Numba and LLVM are part of the peak."
    result.table("Memory of a build", columns, rows, note)
    result.save()


def _tables(
    make: Callable[[int, np.random.Generator], pa.Array], files: int, rows: int, rng: np.random.Generator
) -> Iterator[pa.Table]:
    return (pa.table({"key": make(rows, rng)}) for _ in range(files))


def _build(folder: Path) -> list[float]:
    command = [sys.executable, "-c", _BUILD, str(folder), "2"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


if __name__ == "__main__":
    main()
