"""Refreshing a lake of many files after a few came, and opening an index of a hundred thousand.

The lake is real: small Parquet files in folders of a thousand. Beside each refresh stands the listing that it cannot do
without, and `deltalake` and `lance` appending as many files' rows to a table of as many files, as they find their way
to the same point: a new version of metadata. The index of 100 000 fragments has no files; it is opened, set against a
listing that is made up, and searched.

    python -m bench.refresh [--files 10000] [--fragments 100000]
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import zonebloom as zb
from bench.harness import Result, interleaved, scratch, spread
from zonebloom.bloom.zones import ZoneBuilder
from zonebloom.formats import ParquetDataset
from zonebloom.search.view import View
from zonebloom.storage.fragments import Fragment, FragmentTable, write_fragments
from zonebloom.storage.manifest import ColumnEntry, Manifest, commit, version_path
from zonebloom.storage.zone_segment import ZoneSegmentWriter
from zonebloom.stores.fingerprint import Fingerprint
from zonebloom.stores.local import LocalStore

ROWS = 1000
NEW_FILES = 10
ROUNDS = 7
PUBLISHED = (10_000, 100_000)
KB = 1e-3


def write(root: Path, first: int, count: int) -> None:
    """Files of `ROWS` random keys each, whose times are long past."""
    random = np.random.default_rng(first)
    for number in range(first, first + count):
        path = root / f"part={number // 1000:03}" / f"{number:06}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        keys = random.integers(-(2**63), 2**63, ROWS, np.int64)
        pq.write_table(pa.table({"key": keys}), path, compression="none", use_dictionary=False)
        os.utime(path, ns=(1_700_000_000_000_000_001 + number,) * 2)


class Opened:
    """Counts what a refresh opens and lists."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.listings = 0
        self._open, self._list = ParquetDataset.open, ParquetDataset.list

    def __enter__(self) -> Self:
        def noted_open(dataset, path, listed=None):
            self.files.add(path)
            return self._open(dataset, path, listed)

        def noted_list(dataset):
            self.listings += 1
            return self._list(dataset)

        ParquetDataset.open, ParquetDataset.list = noted_open, noted_list
        return self

    def __exit__(self, *_) -> None:
        ParquetDataset.open, ParquetDataset.list = self._open, self._list


def refresh_a_lake(result: Result, root: Path, num_files: int) -> None:
    write(root, 0, num_files)
    zb.build_index(root, "key")
    dataset = ParquetDataset(LocalStore(root), "folder")
    state = {"files": num_files}

    def add() -> None:
        write(root, state["files"], NEW_FILES)
        state["files"] += NEW_FILES

    def refresh() -> None:
        with Opened() as opened:
            done = zb.open_index(root).refresh()
        assert (done.num_files_added, done.num_files_kept) == (NEW_FILES, state["files"] - NEW_FILES)
        assert len(opened.files) == NEW_FILES
        assert opened.listings == 1

    part = f"part={num_files // 1000:03}"
    index = zb.open_index(root)
    rounds = result.note_load(
        interleaved(
            {
                "listing alone": dataset.list,
                f"{NEW_FILES} new files": refresh,
                "nothing new": index.refresh,
                f"{NEW_FILES} new files, one partition": lambda: zb.open_index(root).refresh(partitions=part),
                "quick, nothing new": lambda: index.refresh("quick"),
            },
            rounds=ROUNDS,
            prepare={f"{NEW_FILES} new files": add, f"{NEW_FILES} new files, one partition": add},
        )
    )
    cases = list(rounds.samples)
    rows = [[case, rounds.wall(case)] for case in cases]
    rows += [
        [f"{peer}: append of {NEW_FILES} files", seconds] for peer, seconds in peers(root.parent, num_files).items()
    ]
    result.table(
        f"Refresh of {num_files:,} files of {ROWS:,} rows",
        ["what", "seconds"],
        rows,
        f"Each refresh opens the {NEW_FILES} new files and no other, after one listing; peers are told which are new.",
    )
    listing = rounds.wall("listing alone")["median"]
    beside = max(rounds.wall(f"{NEW_FILES} new files")["median"] - listing, 0.0)
    result.target(f"refresh after {NEW_FILES} new files of {num_files:,}, beside the listing", beside, 2.0, "s")
    note = f"beside the listing, which takes {listing:.2f} s; no other file is opened"
    result.headline.append([f"refresh after {NEW_FILES} new files of {num_files:,}", f"{beside:.2f} s", note])


def peers(folder: Path, num_files: int) -> dict[str, Any]:
    """Seconds of an append to tables of as many files, each of one row: what counts is their metadata."""
    import deltalake
    import lance

    rows = pa.table({"key": pa.array(range(ROWS * NEW_FILES), pa.int64())})
    times = {}
    few = [pa.table({"key": pa.array([number], pa.int64())}) for number in range(num_files)]
    table = folder / "lance"
    fragments = [lance.fragment.LanceFragment.create(str(table), row) for row in few]
    lance.LanceDataset.commit(str(table), lance.LanceOperation.Overwrite(few[0].schema, fragments))
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        lance.write_dataset(rows, str(table), mode="append", max_rows_per_file=ROWS)
        seconds.append(time.perf_counter() - started)
    times["lance"] = spread(seconds)
    table = folder / "delta"
    actions = [
        deltalake.transaction.AddAction(f"{number}.parquet", 1000, {}, 0, True, "{}") for number in range(num_files)
    ]
    schema = deltalake.Schema.from_arrow(rows.schema)
    deltalake.transaction.create_table_with_add_actions(str(table), schema, actions, mode="error")
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        deltalake.write_deltalake(str(table), rows, mode="append", target_file_size=ROWS * 8)
        seconds.append(time.perf_counter() - started)
    times["deltalake"] = spread(seconds)
    return times


def open_many(result: Result, root: Path, num_fragments: int) -> None:
    store = LocalStore(root.with_name(f"_{root.name}.zonebloom"))
    names = [f"day={n // 1000:03}/part-{n:06}-{n * 7919 % 65521:04x}-c000.snappy.parquet" for n in range(num_fragments)]
    listing = {
        name: Fingerprint(10**7 + n * 13 % 999, 17 * 10**17 + n * 123_456_789) for n, name in enumerate(sorted(names))
    }
    groups = ((1, 0, 0, 0), (2_500_000,) * 4)
    table = FragmentTable.of([Fragment(n, name, *listing[name], 1, *groups) for n, name in enumerate(listing)])
    builder = ZoneBuilder(
        pa.int64(),
        column="key",
        rows_per_zone=10**6,
        fpp=0.01,
        sizing="adaptive",
        sink=lambda data: writer.write(data),  # noqa: PLW0108 - bound later
    )
    with ZoneSegmentWriter(store, "key", builder.schema) as writer:
        for number in range(num_fragments):
            builder.start_fragment(number)
            builder.add(number, pa.array([number]))
        builder.close()
        segments = writer.finish()
    entry = write_fragments(store, table)
    column = ColumnEntry("key", pa.int64(), 10**6, 0.01, "adaptive", tuple(segments), column_id="key")
    described = {**ParquetDataset(LocalStore(root), "folder").to_json(store.location), "partition_columns": ["day"]}
    schema = pa.schema([("key", pa.int64()), ("day", pa.int32())])
    commit(store, Manifest(1, "build", described, schema, num_fragments, (column,), (entry,)))
    opened: dict[str, Any] = {}

    def open_it() -> None:
        opened["index"] = zb.open_index(root)

    def compare() -> None:
        index = opened["index"]
        opened["view"] = View(index._snapshot, index.data, listing)  # noqa: SLF001 - the listing is made up

    def search() -> None:
        kept = opened["view"].search(zb.col("key") == 77)
        assert kept.files == [list(listing)[77]]

    cases = {"open": open_it, "compare with a listing": compare, "first search": search}
    rounds = result.note_load(interleaved(cases, rounds=ROUNDS))
    version_bytes = store.size(version_path(1))
    result.table(
        f"{num_fragments:,} fragments of 4 row groups",
        ["what", "milliseconds", "bytes", "bytes a fragment"],
        [
            *([case, rounds.wall(case, 1e-3), "", ""] for case in cases),
            ["version file", "", version_bytes, round(version_bytes / num_fragments, 2)],
            ["fragment list", "", entry.num_bytes, round(entry.num_bytes / num_fragments, 2)],
        ],
    )
    result.target(f"open an index of {num_fragments:,} fragments", rounds.wall("open")["median"], 0.3, "s")
    opening = f"{rounds.wall('open', 1e-3)['median']:.0f} ms"
    result.headline.append(
        [f"open an index of {num_fragments:,} files", opening, f"a list of {entry.num_bytes:,} bytes"]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=PUBLISHED[0])
    parser.add_argument("--fragments", type=int, default=PUBLISHED[1])
    given = parser.parse_args()
    about = "What it costs to keep an index fresh, and to open one of very many files."
    result = Result("refresh", about, ["deltalake", "pylance"])
    with scratch() as folder:
        refresh_a_lake(result, folder / "lake", given.files)
    with scratch() as folder:
        open_many(result, folder, given.fragments)
    if (given.files, given.fragments) == PUBLISHED:
        result.save()


if __name__ == "__main__":
    main()
