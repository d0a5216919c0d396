"""Upserts and deletes by keys in an Iceberg table: the files that hold a key, against pyiceberg's own `upsert`.

`python -m bench.upserts [files] [rows a file] [keys]`; ids are random, so that no statistics exclude a file. Both
tables are equal afterwards. pyiceberg's own way takes minutes, so it runs once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import zonebloom as zb
from bench.harness import Result, scratch, seconds_of
from zonebloom.engines import iceberg

FILES, ROWS_PER_FILE, KEYS = 200, 50_000, 100_000
FILES_WITH_KEYS = 5
ODD = 0x9E3779B97F4A7C1


def main(files: int = FILES, rows_per_file: int = ROWS_PER_FILE, keys: int = KEYS) -> None:
    """Upsert into a table by our way and by pyiceberg's, then delete the same keys by ours."""
    about = f"{keys:,} of {files * rows_per_file:,} rows in {files} files, {FILES_WITH_KEYS} of which hold the keys."
    result = Result("upserts", about, ["pyiceberg"])
    with scratch() as folder:
        catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=(folder / "tables").as_uri())
        catalog.create_namespace("db")
        warm, ours, theirs = (
            _table(catalog, name, *shape)
            for name, shape in (
                ("warm", (2, 2000)),
                ("ours", (files, rows_per_file)),
                ("theirs", (files, rows_per_file)),
            )
        )
        zb.build_index(warm, "id", index=folder / "warm", kind="locator")
        iceberg.upsert(warm, _rows(np.arange(2000), "new"), "id", index=folder / "warm")  # imports, and loads kernels
        built = seconds_of(lambda: zb.build_index(ours, "id", index=folder / "index", kind="locator"))
        chosen = np.concatenate(
            [
                number * rows_per_file + np.arange(keys // FILES_WITH_KEYS) * rows_per_file * FILES_WITH_KEYS // keys
                for number in range(1, files, files // FILES_WITH_KEYS)
            ][:FILES_WITH_KEYS]
        )
        new = _rows(chosen, "new")
        done: list[iceberg.Rewrite] = []
        by_us = seconds_of(lambda: done.append(iceberg.upsert(ours, new, "id", index=folder / "index")))
        by_them = seconds_of(lambda: theirs.upsert(new, join_cols=["id"]))
        assert done[0].num_files == FILES_WITH_KEYS
        assert _sorted(ours).equals(_sorted(theirs))
        refreshed = seconds_of(lambda: zb.open_index(folder / "index", dataset=ours).refresh())
        gone = seconds_of(lambda: iceberg.delete(ours, "id", new["id"], index=folder / "index"))
        assert ours.scan().count() == files * rows_per_file - len(new)
        catalog.close()
    rows: list[list[Any]] = [
        ["build of the locator, once", built],
        ["upsert by keys", by_us],
        ["refresh of the index afterwards", refreshed],
        ["delete by keys", gone],
        ["pyiceberg's upsert", by_them],
    ]
    result.table(
        f"{keys:,} keys, {files} files of {rows_per_file:,} rows",
        ["", "s"],
        rows,
        "One run each, on cores that other processes used as well.",
    )
    result.target("upsert by keys against pyiceberg's", by_them / by_us, 10, "times", at_most=False)
    if (files, rows_per_file, keys) == (FILES, ROWS_PER_FILE, KEYS):
        result.save()


def _table(catalog: SqlCatalog, name: str, files: int, rows_per_file: int) -> Table:
    table = catalog.create_table(f"db.{name}", schema=_rows(np.arange(1), "").schema)
    folder = Path(table.location().removeprefix("file://"), "data")
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        rows = _rows(np.arange(number * rows_per_file, (number + 1) * rows_per_file), "old")
        pq.write_table(rows, folder / f"{number:04}.parquet")
    table.add_files([path.as_uri() for path in sorted(folder.iterdir())])
    return table


def _rows(numbers: np.ndarray[Any, np.dtype[np.int64]], text: str) -> pa.Table:
    ids = numbers.astype(np.int64) * ODD
    texts = pc.binary_join_element_wise(text, pa.array(numbers).cast(pa.string()), "-")
    return pa.table({"id": ids, "amount": numbers * 0.25, "text": texts})


def _sorted(table: Table) -> pa.Table:
    return table.scan().to_arrow().sort_by("id").combine_chunks()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
