"""Rows read by pages: ten zones of ten million rows, and one key end to end, against readers of Parquet and Lance.

The same rows in a Parquet file with a page index (as Spark, DataFusion and Polars write it), in one without (as pyarrow
and DuckDB do), and in a Lance data set. All answers are compared before anything is timed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import zonebloom as zb
from bench.data import integers, uuids
from bench.harness import Result, interleaved, scratch
from zonebloom.formats import open_dataset

NUM_ROWS, GROUP_ROWS, ROWS_PER_ZONE, NUM_ZONES = 10_000_000, 1_000_000, 8192, 10
NUM_KEYS = 20
MS, MB = 1e-3, 1e-6
_PAGE_ROWS = 20_000
"""Rows at most of a page that pyarrow 26 writes."""
_SNAPPY = "snappy alone, one page of UUIDs"
Ranges = list[tuple[int, int]]


def main() -> None:
    """Both parts, at the sizes that the arguments give."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=NUM_ROWS)
    parser.add_argument("--group-rows", type=int, default=GROUP_ROWS)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    result = Result(
        "pages",
        f"{given.rows:,} rows of 4 columns (int64, UUID as text, 20 texts, double), snappy, row groups of "
        f"{given.group_rows:,} rows, in the page cache.",
        packages=["pylance", "duckdb", "polars"],
    )
    with scratch() as folder:
        table = _table(given.rows)
        _write(folder, table, given.group_rows)
        _zones(result, folder, table, given.rounds)
        _keys(result, folder, table, given.rounds)
    result.save()


def _table(num_rows: int) -> pa.Table:
    rng = np.random.default_rng(17)
    countries = pa.array([f"country {number}" for number in range(20)])
    return pa.table(
        {
            "key": integers(num_rows, rng),
            "user_id": uuids(num_rows, rng),
            "country": countries.take(pa.array(rng.integers(0, 20, num_rows))),
            "amount": pa.array(rng.random(num_rows)),
        }
    )


def _write(folder: Path, table: pa.Table, group_rows: int) -> None:
    import lance
    from lance.indices import IndexConfig

    for name, has_index in (("indexed", True), ("plain", False)):
        (folder / name).mkdir()
        path = folder / name / "part-0.parquet"
        pq.write_table(table, path, row_group_size=group_rows, write_page_index=has_index)
        zb.build_index(folder / name, "key", rows_per_zone=ROWS_PER_ZONE)
    data = lance.write_dataset(table, folder / "peer", max_rows_per_file=table.num_rows)
    parameters = {"number_of_items": ROWS_PER_ZONE, "probability": 0.00057}
    data.create_scalar_index("key", IndexConfig(index_type="bloomfilter", parameters=parameters))


# --- ten zones --------------------------------------------------------------------------------------------------------


def _zones(result: Result, folder: Path, table: pa.Table, rounds: int) -> None:
    numbers = np.random.default_rng(3).choice(table.num_rows // ROWS_PER_ZONE, NUM_ZONES, replace=False)
    ranges = [(number * ROWS_PER_ZONE, (number + 1) * ROWS_PER_ZONE) for number in np.sort(numbers).tolist()]
    expected = pa.concat_tables([table.slice(start, stop - start) for start, stop in ranges]).combine_chunks()
    readers = {name: reader(folder, ranges) for name, reader in READERS.items()}
    for name, read in readers.items():
        read_back = read().cast(expected.schema).combine_chunks()
        assert read_back.equals(expected), f"{name} reads other rows"
    measured = result.note_load(interleaved(readers, rounds=rounds))
    ours = "zonebloom, page index"
    rows = [
        [name, _bytes_read(folder, name, ranges), measured.wall(name, MS), measured.ratio(name, ours)]
        for name in readers
    ]
    note = (
        "Bytes by /proc/self/io in a process of its own, footer included; an engine that maps its file shows none. The "
        "OffsetIndex is known in the timed rounds, as after a first scan."
    )
    title = f"{NUM_ZONES} random zones of {ROWS_PER_ZONE:,} rows, all columns"
    result.table(title, ["", "read, MB", "ms", "times ours with a page index"], rows, note)
    row_groups = measured.ratio("pyarrow, row groups", ours)["median"]
    result.target("zones by pages against pyarrow's row groups", row_groups, 5, "times", at_most=False)


def _zonebloom(folder: Path, ranges: Ranges) -> Callable[[], pa.Table]:
    dataset = open_dataset(folder).pin()

    def read() -> pa.Table:
        tables, position = [], 0
        with dataset.open("part-0.parquet") as data:
            for group, num_rows in enumerate(data.row_group_rows):
                own = [(start - position, stop - position) for start, stop in _within(ranges, position, num_rows)]
                if own:
                    starts, stops = zip(*own, strict=True)
                    tables.append(data.read_rows(group, starts, stops, data.schema.names))
                position += num_rows
        return pa.concat_tables(tables)

    return read


def _within(ranges: Ranges, position: int, num_rows: int) -> Ranges:
    """The parts of `ranges` in rows `[position, position + num_rows)`."""
    cut = [(max(start, position), min(stop, position + num_rows)) for start, stop in ranges]
    return [(start, stop) for start, stop in cut if start < stop]


def _pyarrow(folder: Path, ranges: Ranges) -> Callable[[], pa.Table]:
    file = pq.ParquetFile(folder / "indexed" / "part-0.parquet")

    def read() -> pa.Table:
        tables, position = [], 0
        for group in range(file.num_row_groups):
            num_rows = file.metadata.row_group(group).num_rows
            own = _within(ranges, position, num_rows)
            whole = file.read_row_group(group) if own else None
            tables += [whole.slice(start - position, stop - start) for start, stop in own]
            position += num_rows
        return pa.concat_tables(tables)

    return read


def _polars(folder: Path, ranges: Ranges) -> Callable[[], pa.Table]:
    import polars as pl

    def read() -> pa.Table:
        frame = pl.scan_parquet(folder / "indexed" / "part-0.parquet")
        parts = pl.collect_all([frame.slice(start, stop - start) for start, stop in ranges])
        return pl.concat(parts).to_arrow()

    return read


def _duckdb(folder: Path, ranges: Ranges) -> Callable[[], pa.Table]:
    import duckdb

    connection = duckdb.connect()
    between = " OR ".join(f"file_row_number BETWEEN {start} AND {stop - 1}" for start, stop in ranges)
    source = f"read_parquet('{folder}/indexed/part-0.parquet', file_row_number = true)"
    text = f"SELECT key, user_id, country, amount FROM {source} WHERE {between} ORDER BY file_row_number"
    return lambda: connection.sql(text).to_arrow_table()


def _lance(folder: Path, ranges: Ranges) -> Callable[[], pa.Table]:
    import lance

    data = lance.dataset(folder / "peer")
    rows = np.concatenate([np.arange(start, stop) for start, stop in ranges])
    return lambda: data.take(rows)


READERS: dict[str, Callable[[Path, Ranges], Callable[[], pa.Table]]] = {
    "zonebloom, page index": lambda folder, ranges: _zonebloom(folder / "indexed", ranges),
    "zonebloom, no page index": lambda folder, ranges: _zonebloom(folder / "plain", ranges),
    "pyarrow, row groups": _pyarrow,
    "polars, slices": _polars,
    "duckdb, file_row_number": _duckdb,
    "lance, take": _lance,
}

_COUNT = """
import json, sys
from pathlib import Path
from bench.pages import READERS
folder, name, ranges = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
import duckdb, lance, polars, pyarrow.parquet, zonebloom.formats.parquet.pages
def count():
    return int(open("/proc/self/io").read().split()[1])
idle = -(count() - count())
before = count()
READERS[name](folder, ranges)()
print(count() - before - idle)
"""


def _bytes_read(folder: Path, name: str, ranges: Ranges) -> float | str:
    command = [sys.executable, "-c", _COUNT, str(folder), name, json.dumps(ranges)]
    num_bytes = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return num_bytes * MB if num_bytes > ROWS_PER_ZONE * NUM_ZONES else "mapped"


# --- one key ----------------------------------------------------------------------------------------------------------


def _keys(result: Result, folder: Path, table: pa.Table, rounds: int) -> None:
    places = np.random.default_rng(5).choice(table.num_rows, NUM_KEYS, replace=False)
    keys = table["key"].take(pa.array(places)).to_pylist()
    cases = {name: case(folder) for name, case in CASES.items()}
    for name, find in cases.items():
        for key, place in zip(keys, places.tolist(), strict=True):
            row = find(key).cast(table.schema)
            assert row.combine_chunks().equals(table.slice(place, 1).combine_chunks()), f"{name} finds another row"
    of_two = {name: case(folder) for name, case in TWO_COLUMNS.items()}
    for name, find in of_two.items():
        for key, place in zip(keys, places.tolist(), strict=True):
            assert find(key).to_pylist() == table.select(TWO).slice(place, 1).to_pylist(), f"{name} finds another row"
    cases |= of_two
    timed: dict[str, Callable[[], Any]] = {
        n: lambda find=find: [find(key) for key in keys] for n, find in cases.items()
    }
    pages = [_compressed_page(table, place) for place in places.tolist()]
    timed[_SNAPPY] = lambda: [pa.decompress(page, num_bytes, "snappy") for page, num_bytes in pages]
    slow = {name for name in cases if name in FULL_SCANS}
    measured = result.note_load(interleaved({n: c for n, c in timed.items() if n not in slow}, rounds=rounds))
    full = result.note_load(interleaved({n: timed[n] for n in sorted(slow)}, rounds=3))
    rows: list[list[Any]] = [[name, measured.wall(name, NUM_KEYS * MS)] for name in timed if name not in slow]
    rows += [[name, full.wall(name, NUM_KEYS * MS)] for name in sorted(slow)]
    note = (
        f"An open index or data set; {NUM_KEYS} keys in turn, each there once, from literal to row of 4 columns or of "
        "2 numbers. Snappy alone: one page of UUIDs decompressed, without which no reader of this file has a row."
    )
    result.table("One present key, end to end", ["", "ms"], rows, note)
    ratio = measured.ratio("lance, bloom filter index", "zonebloom, page index")
    result.target("one present key against Lance's, row fetched", ratio["median"], 1, "times", at_most=False)
    ratio = measured.ratio(*reversed(TWO_COLUMNS))
    result.target("one present key against Lance's, two numbers fetched", ratio["median"], 1, "times", at_most=False)


def _compressed_page(table: pa.Table, place: int) -> tuple[pa.Buffer, int]:
    """20 000 UUIDs around a row as a page holds them, each with its length before it; and their bytes."""
    texts = table["user_id"].slice(place // _PAGE_ROWS * _PAGE_ROWS, _PAGE_ROWS).to_pylist()
    values = b"".join(len(text).to_bytes(4, "little") + text.encode() for text in texts)
    return pa.compress(values, "snappy"), len(values)


def _find_by_index(folder: Path, columns: list[str] | None = None) -> Callable[[int], pa.Table]:
    index = zb.open_index(folder)
    return lambda key: index.to_table(zb.col("key") == key, columns=columns)


def _find_by_lance(folder: Path, columns: list[str] | None = None) -> Callable[[int], pa.Table]:
    import lance

    data = lance.dataset(folder / "peer")
    return lambda key: data.to_table(filter=f"key = {key}", columns=columns)


def _find_by_duckdb(folder: Path) -> Callable[[int], pa.Table]:
    import duckdb

    connection = duckdb.connect()
    return lambda key: connection.sql(
        f"SELECT * FROM read_parquet('{folder}/indexed/part-0.parquet') WHERE key = {key}"
    ).to_arrow_table()


def _find_by_polars(folder: Path) -> Callable[[int], pa.Table]:
    import polars as pl

    frame = pl.scan_parquet(folder / "indexed" / "part-0.parquet")
    return lambda key: frame.filter(pl.col("key") == key).collect().to_arrow()


CASES: dict[str, Callable[[Path], Callable[[int], pa.Table]]] = {
    "zonebloom, page index": lambda folder: _find_by_index(folder / "indexed"),
    "zonebloom, no page index": lambda folder: _find_by_index(folder / "plain"),
    "lance, bloom filter index": _find_by_lance,
    "duckdb, full scan": _find_by_duckdb,
    "polars, full scan": _find_by_polars,
}
TWO = ["key", "amount"]
TWO_COLUMNS: dict[str, Callable[[Path], Callable[[int], pa.Table]]] = {
    "zonebloom, page index, two columns": lambda folder: _find_by_index(folder / "indexed", TWO),
    "lance, bloom filter index, two columns": lambda folder: _find_by_lance(folder, TWO),
}
FULL_SCANS: Sequence[str] = ("duckdb, full scan", "polars, full scan")


if __name__ == "__main__":
    main()
