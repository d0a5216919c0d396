"""Where one way to read on Spark becomes faster than another: what the choice of a lake rests on.

One text column holds random keys, and besides them, for each number of files and of zones in each, a key of its own
that stands in just so many: one in a zone, so that each way has the same rows to find. A query is the whole of it: the
listing, the search, the plan and the rows. The answers of all ways are compared first.

The plain read is none of them: it pays where every file may match, and the others are plain reads then.

The first table has files whose pages can be read alone, the second those of which the driver must read whole row
groups, the third many small ones.

    python -m bench.spark_choice [--rounds 5]
"""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import zonebloom
from bench.data import uuids
from bench.harness import Result, cell_text, interleaved, scratch
from tests.spark import cluster
from zonebloom.engines.spark.scan.lake import Lake
from zonebloom.spark import ZoneBloom

ZONE = 8192
WAYS = ("driver", "row_ranges", "files")
FILES, FILE_ROWS = 64, 25 * ZONE
PAGED = ((1, 1), (1, 25), (8, 1), (8, 4), (16, 1), (16, 8), (32, 1), (32, 4), (32, 16), (48, 1), (48, 8))
"""Files, and zones in each, with a row that matches."""
UNPAGED = ((1, 1), (4, 1), (8, 1), (16, 1), (32, 1))
SMALL_FILES, SMALL_ROWS = 2000, 256
MANY = ((8, 1), (32, 1), (128, 1), (512, 1))


def main() -> None:
    """Three tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    result = Result("spark_choice", "Ways to read, local[2], files in the page cache.", packages=["pyspark"])
    with cluster.running("local[2]", options={"spark.driver.memory": "3g"}) as spark:
        for title, shape, cells, options in (
            (f"{FILES} files of {FILE_ROWS:,} rows, page index", (FILES, FILE_ROWS), PAGED, {"write_page_index": True}),
            (f"{FILES} files of {FILE_ROWS:,} rows, no page index", (FILES, FILE_ROWS), UNPAGED, {}),
            (f"{SMALL_FILES} files of {SMALL_ROWS} rows", (SMALL_FILES, SMALL_ROWS), MANY, {}),
        ):
            with scratch() as folder:
                planted = _write(folder / "lake", shape, cells, options)
                zonebloom.build_index(folder / "lake", ["key"]).optimize()
                _compare(result, title, ZoneBloom(spark).read(str(folder / "lake")), planted, rounds)
    result.save()


def _write(
    lake: Path, shape: tuple[int, int], cells: tuple[tuple[int, int], ...], options: Mapping[str, Any]
) -> dict[tuple[int, int], str]:
    """The lake; gives the key of each cell."""
    rng = np.random.default_rng(17)
    planted = {cell: str(uuid.UUID(bytes=rng.bytes(16))) for cell in cells}
    lake.mkdir()
    num_files, num_rows = shape
    for number in range(num_files):
        key = uuids(num_rows, rng).to_pylist()
        for place, ((files, zones), text) in enumerate(planted.items()):
            for zone in range(zones if number < files else 0):
                key[zone * ZONE + place] = text
        columns = {"key": key, "amount": rng.random(num_rows), "n": rng.integers(0, 1 << 20, num_rows)}
        pq.write_table(pa.table(columns), lake / f"{number:05}.parquet", **options)
    return planted


def _compare(result: Result, title: str, lake: Lake, planted: dict[tuple[int, int], str], rounds: int) -> None:
    rows = []
    for (files, zones), key in planted.items():
        condition = f"key = '{key}'"
        cases = {way: _query(lake, condition, way) for way in WAYS}
        assert {case() for case in cases.values()} == {files * zones}
        kept, measured = lake.plan(condition).result.kept, interleaved(cases, rounds=rounds)
        result.note_load(measured)
        times = {way: measured.wall(way, 1e-3) for way in WAYS}
        fastest = min(WAYS, key=lambda way: times[way]["median"])
        numbers = [kept.files, kept.rows, round(kept.bytes / 2**20, 1)]
        rows.append([*numbers, *times.values(), fastest])
        print("  " + " | ".join(map(cell_text, rows[-1])), flush=True)
    columns = ["files kept", "rows kept", "MiB of row groups", *(f"{way}, ms" for way in WAYS), "fastest"]
    result.table(title, columns, rows)


def _query(lake: Lake, condition: str, way: Any) -> Callable[[], int]:
    return lambda: len(lake.where(condition, method=way).collect())


if __name__ == "__main__":
    main()
