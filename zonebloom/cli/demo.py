"""The demo: a generated lake, indexed and searched. Every answer is compared with that of a full scan.

Events lie in hive folders, one file a day. `user_id` is a random UUID and `device_id` a random int64. The files are
sorted by neither, so minima and maxima exclude nothing. All files are made in a temporary folder and deleted.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from zonebloom.ground.errors import InvalidArgumentError, ZoneBloomError
from zonebloom.ground.reasons import counted
from zonebloom.ground.rendering import Result, Table
from zonebloom.index.doors import build_index
from zonebloom.index.index import Index
from zonebloom.search.result import Counts

T = TypeVar("T")

_KEYS = ["user_id", "device_id"]
_ROW_GROUP_ROWS = 1 << 17
_REPEATS = 3
_NUM_KEYS_IN_LIST = 20
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_PLACES_OF_DIGITS = [place for place in range(36) if place not in (8, 13, 18, 23)]


@dataclass(frozen=True, slots=True)
class MeasuredSearch:
    """One search, its scan, and the full scan with the same answer; seconds are medians of a few runs in turn."""

    title: str
    """What is searched for."""
    num_matches: int
    """Rows that match."""
    kept: Counts
    """The parts that had to be read."""
    total: Counts
    """All parts of the lake."""
    search_seconds: float
    """The index alone: which rows may match."""
    scan_seconds: float
    """The index, and reading the rows that match."""
    full_scan_seconds: float
    """pyarrow.dataset with the same filter, on all cores."""


@dataclass(frozen=True, slots=True)
class DemoReport(Result):
    """The measurements of the demo."""

    num_rows: int
    """Rows of the lake."""
    num_files: int
    """Files of the lake."""
    data_bytes: int
    index_bytes: int
    start_seconds: float
    """Until the first kernels have run."""
    read_seconds: float
    """Reading the keys on one thread: the least time of any build on one thread."""
    build_seconds: float
    searches: tuple[MeasuredSearch, ...]
    """The searches, in order."""

    @property
    def headline(self) -> str:
        """What the columns of the table are."""
        return "Every answer equals the full scan's. search: the index alone; scan: with the matching rows read."

    def facts(self) -> Iterator[tuple[str, str]]:
        """Sizes and times."""
        total = self.searches[0].total
        counts = (counted(total.rows, "row"), counted(total.files, "file"), counted(total.zones, "zone"))
        yield "data", f"{', '.join(counts)}, {_megabytes(self.data_bytes)}"
        share = f"{self.index_bytes / self.data_bytes:.1%} of the data"
        yield "index", f"{_megabytes(self.index_bytes)} for {counted(len(_KEYS), 'column')}, {share}"
        ratio = f"{self.build_seconds / self.read_seconds:.2f} times only reading both columns on one thread"
        yield "build", f"{self.build_seconds:.2f} s, {ratio}"
        yield "start", f"{self.start_seconds:.2f} s to load or compile the kernels, once a process"

    def tables(self) -> Iterator[Table]:
        """What each search must read, and its time."""
        header = ("search", "matches", "files", "zones", "rows", "MB", "search, ms", "scan", "full scan", "faster")
        yield Table(header, [(search.title, *_cells(search)) for search in self.searches])

    def notes(self) -> Iterator[str]:
        """Why the last search reads everything."""
        yield "A bloom filter cannot evaluate a range: amount > 999.9 reads everything."


def run_demo(rows: int = 4_000_000, files: int = 8, *, keep: Path | None = None) -> DemoReport:
    """Measure how much an index saves on a lake of `rows` events in `files` files. Leaves no files behind.

    Needs about 70 bytes of disk a row, and a minute at the defaults. Says on stderr what it does.

    Parameters
    ----------
    keep
        A new folder where lake and index stay.

    Raises
    ------
    InvalidArgumentError
        `rows` or `files` is below 1, or `files` above `rows`.
    ZoneBloomError
        An answer differs from the full scan's.
    """
    if rows < 1:
        raise InvalidArgumentError(f"--rows {rows} is less than 1")
    if not 1 <= files <= rows:
        raise InvalidArgumentError(f"--files {files} is not from 1 to the {rows} rows")
    if keep is not None and keep.exists():
        raise InvalidArgumentError("keep must be a new folder", got=f"{keep}, which exists")
    with tempfile.TemporaryDirectory(prefix="zonebloom-demo-") as folder:
        click.echo(f"writing {rows:,} events with random keys to {counted(files, 'Parquet file')} ...", err=True)
        lake = (keep or Path(folder)) / "events"
        user_ids, device_ids = _write_lake(lake, rows, files)
        data_bytes = sum(file.stat().st_size for file in lake.rglob("*.parquet"))
        _write_lake(Path(folder) / "warm-up", 100, 1)
        start_seconds = _seconds(lambda: build_index(Path(folder) / "warm-up", _KEYS))[0]
        read_seconds = _seconds(lambda: _read_keys(lake))[0]
        click.echo(f"building an index of {' and '.join(_KEYS)} ...", err=True)
        build_seconds, index = _seconds(lambda: build_index(lake, _KEYS, progress=sys.stderr.isatty()))
        index_bytes = sum(column.index_bytes for column in index.indexed_columns())
        click.echo("searching, and scanning everything to compare ...", err=True)
        searches = tuple(_measure(index, lake, *search) for search in _searches(user_ids, device_ids[-1]))
        if keep is not None:
            click.echo(f"the lake is {lake}, its index {index.location}", err=True)
        seconds = start_seconds, read_seconds, build_seconds
        return DemoReport(rows, files, data_bytes, index_bytes, *seconds, searches)


# --- the lake ---------------------------------------------------------------------------------------------------------


def _write_lake(root: Path, rows: int, files: int) -> tuple[list[str], list[int]]:
    """Write the files; give some keys that are present, spread over the files."""
    random = np.random.default_rng(2026)
    user_ids: list[str] = []
    device_ids: list[int] = []
    num_samples = -(-_NUM_KEYS_IN_LIST // files)
    for number in range(files):
        path = root / f"day={number + 1}" / "part-0.parquet"
        path.parent.mkdir(parents=True)
        num_rows = rows * (number + 1) // files - rows * number // files
        batches = _events(random, num_rows)
        first = next(batches)
        # Plain keys: most writers give up on a dictionary of random values.
        with pq.ParquetWriter(path, first.schema, use_dictionary=["event"]) as writer:
            writer.write_batch(first)
            for batch in batches:
                writer.write_batch(batch)
        sample = first.take(random.integers(0, first.num_rows, num_samples))
        user_ids.extend(sample["user_id"].to_pylist())
        device_ids.extend(sample["device_id"].to_pylist())
    return user_ids, device_ids


def _events(random: np.random.Generator, num_rows: int) -> Iterator[pa.RecordBatch]:
    """Row groups of events."""
    kinds = pa.array(["view", "search", "cart", "order"])
    for start in range(0, num_rows, _ROW_GROUP_ROWS):
        count = min(_ROW_GROUP_ROWS, num_rows - start)
        yield pa.RecordBatch.from_pydict(
            {
                "user_id": _uuids(random, count),
                "device_id": pa.array(random.integers(-(2**63), 2**63, count)),
                "event": kinds.take(pa.array(random.integers(0, len(kinds), count))),
                "amount": pa.array(np.round(random.random(count) * 1000, 4)),
            }
        )


def _uuids(random: np.random.Generator, count: int) -> pa.Array:
    """Random UUIDs of version 4 as text, 36 characters each."""
    keys = np.frombuffer(random.bytes(16 * count), np.uint8).reshape(count, 16).copy()
    keys[:, 6] = keys[:, 6] & 0x0F | 0x40
    keys[:, 8] = keys[:, 8] & 0x3F | 0x80
    digits = np.stack([_HEX[keys >> 4], _HEX[keys & 15]], axis=2).reshape(count, 32)
    texts = np.full((count, 36), ord("-"), np.uint8)
    texts[:, _PLACES_OF_DIGITS] = digits
    offsets = np.arange(0, 36 * count + 1, 36, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(texts)])


def _read_keys(lake: Path) -> None:
    """Read the keys only: the least time of any build on one thread."""
    for file in lake.rglob("*.parquet"):
        with pq.ParquetFile(file) as source:
            for _ in source.iter_batches(columns=_KEYS, use_threads=False):
                pass


# --- the searches -----------------------------------------------------------------------------------------------------


def _searches(user_ids: list[str], device_id: int) -> list[tuple[str, str, pc.Expression]]:
    """Titles, conditions as SQL for zonebloom, and the same for pyarrow."""
    user_id = user_ids[-1]
    half = _NUM_KEYS_IN_LIST // 2
    absent = _uuids(np.random.default_rng(1), half).to_pylist()
    some = user_ids[::2][:half] + absent[:half]
    texts = ", ".join(f"'{text}'" for text in some)
    field = pc.field("user_id")
    return [
        ("user_id = … present", f"user_id = '{user_id}'", field == user_id),
        ("user_id = … absent", f"user_id = '{absent[-1]}'", field == absent[-1]),
        ("device_id = … present", f"device_id = {device_id}", pc.field("device_id") == device_id),
        (f"user_id IN ({counted(len(some), 'key')})", f"user_id IN ({texts})", field.isin(some)),
        ("amount > 999.9", "amount > 999.9", pc.field("amount") > 999.9),  # noqa: PLR2004
    ]


def _measure(index: Index, lake: Path, title: str, where: str, condition: pc.Expression) -> MeasuredSearch:
    """Measure the three ways in turn, under equal conditions. Their answers are compared first."""
    dataset = pads.dataset(lake, format="parquet", partitioning="hive")
    result = index.search(where)
    rows = index.to_table(where)
    _check_equal(rows, dataset.to_table(filter=condition, columns=rows.schema.names), title)
    seconds = [
        (
            _seconds(lambda: index.search(where))[0],
            _seconds(lambda: index.to_table(where))[0],
            _seconds(lambda: dataset.to_table(filter=condition))[0],
        )
        for _ in range(_REPEATS)
    ]
    medians = map(statistics.median, zip(*seconds, strict=True))
    return MeasuredSearch(title, rows.num_rows, result.kept, result.total, *medians)


def _check_equal(rows: pa.Table, expected: pa.Table, title: str) -> None:
    order = [("user_id", "ascending")]
    if rows.sort_by(order) != expected.cast(rows.schema).sort_by(order):
        raise ZoneBloomError(
            "a scan must equal the full scan",
            got=f"{counted(rows.num_rows, 'row')} where the full scan gives {expected.num_rows} for {title}",
            do="please report this",
        )


def _seconds(call: Callable[[], T]) -> tuple[float, T]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def _cells(search: MeasuredSearch) -> Iterator[int | str]:
    yield from (search.num_matches, search.kept.files, search.kept.zones, search.kept.rows)
    yield f"{search.kept.bytes / 1e6:.1f}"
    yield from (f"{seconds * 1e3:,.1f}" for seconds in (search.search_seconds, search.scan_seconds))
    yield from (f"{search.full_scan_seconds * 1e3:,.1f}", f"{search.full_scan_seconds / search.scan_seconds:.1f}x")


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.1f} MB"
