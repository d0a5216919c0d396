"""A build on Spark against the library's own over the same files, and what the driver needs as files grow in number.

Two executors of one core each against two threads. What Spark takes for a lake of the same files with a row each is its
fixed start (jobs, Python workers, commit), and is taken off before the ratio. Starting the session is in neither.

    python -m bench.spark_build [--rows 500000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import zonebloom as zb
from bench.data import integers, uuids, write_files
from bench.harness import Result, interleaved, scratch, spread
from tests.spark import cluster
from zonebloom.spark import ZoneBloom

MIB = 1 << 20
FILES = 40
MASTER = "local-cluster[2,1,2048]"

_BUILD = """
import json, sys
from pathlib import Path
from bench.spark_build import MASTER
from tests.spark import cluster
from zonebloom.spark import ZoneBloom

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))

with cluster.running(MASTER) as spark:
    zonebloom = ZoneBloom(spark)
    zonebloom.create_index(sys.argv[1], ["key"], index=sys.argv[2] + ".first")
    before = peak()
    index = zonebloom.create_index(sys.argv[2], ["key"])
    num_bytes = index.indexed_columns()[0].index_bytes
    print(json.dumps([before, peak(), index.num_fragments, index.num_rows, num_bytes]))
"""


def main() -> None:
    """Both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    result = Result(
        "spark_build",
        f"Builds through PySpark on a cluster of two executors with one core each ({MASTER}), 8192 rows a zone, fpp "
        "0.00057, files in the page cache.",
        packages=["pyspark"],
    )
    with scratch() as folder:
        _speed(result, folder, asked.rows, asked.rounds)
    with scratch() as folder:
        _memory(result, folder, asked.rows // 5)
    result.save()


def _speed(result: Result, folder: Path, num_rows: int, rounds: int) -> None:
    rng = np.random.default_rng(1)
    makers: dict[str, Callable[[int], pa.Array]] = {
        "int64": lambda rows: integers(rows, rng),
        "UUID strings": lambda rows: uuids(rows, rng),
    }
    table = []
    with cluster.running(MASTER) as session:
        spark = ZoneBloom(session)
        for name, files, rows in (
            ("int64", FILES, num_rows),
            ("int64", 4 * FILES, 2 * num_rows),
            ("UUID strings", FILES, num_rows),
        ):
            lake, tiny, make = folder / "lake", folder / "tiny", makers[name]
            write_files(lake, (pa.table({"key": make(rows)}) for _ in range(files)))
            write_files(tiny, (pa.table({"key": make(1)}) for _ in range(files)))
            table.append(_compared(result, spark, name, lake, tiny, num_files=files, num_rows=rows, rounds=rounds))
            shutil.rmtree(lake)
            shutil.rmtree(tiny)
    columns = [
        "column",
        "files",
        "rows",
        "library, 2 threads, s",
        "Spark, s",
        "Spark, start, s",
        "ratio beyond the start",
    ]
    note = (
        "pyarrow's default Parquet settings. The zones of both are compared, byte for byte. The session is running; "
        "the start is the same build over as many files of one row: jobs, Python tasks, commit."
    )
    result.table("Build", columns, table, note)


def _compared(
    result: Result, spark: ZoneBloom, name: str, lake: Path, tiny: Path, *, num_files: int, num_rows: int, rounds: int
) -> list[Any]:
    def by_spark(root: Path) -> None:
        spark.create_index(root, ["key"], index=root / "_spark")

    def by_library() -> None:
        zb.build_index(lake, ["key"], index=lake / "_library", workers=2)

    cases: dict[str, Callable[[], Any]] = {
        "library": by_library,
        "spark": lambda: by_spark(lake),
        "tiny": lambda: by_spark(tiny),
    }

    def delete() -> None:
        for place in (lake / "_library", lake / "_spark", tiny / "_spark"):
            shutil.rmtree(place, ignore_errors=True)

    delete()
    by_library()
    by_spark(lake)
    built, wanted = (zb.open_index(lake / place).zone_table("key").to_arrow() for place in ("_spark", "_library"))
    assert built.equals(wanted)
    measured = result.note_load(interleaved(cases, rounds=rounds, prepare=dict.fromkeys(cases, delete)))
    samples = [[sample.wall for sample in measured.samples[case]] for case in ("library", "spark", "tiny")]
    ratio = spread([(whole - start) / own for own, whole, start in zip(*samples, strict=True)])
    claim = f"build through Spark, {name}, {num_files * num_rows:,} rows, to the library's, beyond the start"
    result.target(claim, ratio["median"], 1.3, "x")
    walls = [measured.wall(case) for case in ("library", "spark", "tiny")]
    return [name, num_files, num_files * num_rows, *walls, ratio]


def _memory(result: Result, folder: Path, num_rows: int) -> None:
    rng = np.random.default_rng(2)
    rows, peaks = [], []
    write_files(folder / "first", (pa.table({"key": integers(1000, rng)}) for _ in range(2)))
    for files in (FILES, 10 * FILES):
        lake = folder / str(files)
        write_files(lake, (pa.table({"key": integers(num_rows, rng)}) for _ in range(files)))
        command = [sys.executable, "-c", _BUILD, str(folder / "first"), str(lake)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        before, peak, num_files, num_all, index_bytes = json.loads(done.stdout)
        rows.append([num_files, num_all, round(index_bytes / MIB), round(before / MIB, 1), round(peak / MIB, 1)])
        peaks.append(peak)
        shutil.rmtree(lake)
    growth = 100 * (peaks[1] / peaks[0] - 1)
    result.target("growth of the driver's peak from 40 to 400 files", growth, 10, "%")
    columns = ["files", "rows", "index, MiB", "before, MiB", "peak, MiB"]
    note = "The driver's Python process, in a process of its own. Before: after a build of two small files."
    result.table("Memory of the driver", columns, rows, note)


if __name__ == "__main__":
    main()
