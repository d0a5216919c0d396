"""Functions of pyarrow 26, deltalake 1.6, lance 14 and the engines that take data sets or streams, each given ours.

`python -m tests.engines.takers <folder>` prints for each its name, how it ended, and how it must end: a number of rows,
or a part of an error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import datafusion
import deltalake
import duckdb
import lance
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
from pyarrow import acero

import zonebloom as zb
from zonebloom.search.arrow_dataset import IndexedDataset, IndexedFragment, IndexedScanner

NUM_ROWS, NUM_FOUND = 1000, 9
OURS, TYPE = r"pass on scanner\(filter=\.\.\.\)\.to_reader\(\)", "TypeError"


class Ours:
    """One data set, what it gives, and a place for each output."""

    def __init__(self, folder: Path) -> None:
        (folder / "lake").mkdir()
        pq.write_table(pa.table({"id": range(NUM_ROWS)}), folder / "lake" / "a.parquet", row_group_size=10)
        self._outputs = (str(folder / f"output {number}") for number in count())
        self.data: IndexedDataset = zb.build_index(folder / "lake", "id", rows_per_zone=100).dataset()
        self.few: IndexedDataset = self.data.filter(pc.field("id") < NUM_FOUND)

    @property
    def scanner(self) -> IndexedScanner:
        return self.data.scanner(filter=pc.field("id") < NUM_FOUND)

    @property
    def fragment(self) -> IndexedFragment:
        return next(self.data.get_fragments())

    def written(self, data: Any, **options: Any) -> int:
        folder = next(self._outputs)
        pads.write_dataset(data, folder, **{"format": "parquet", **options})
        return int(pads.dataset(folder).count_rows())

    def delta(self, data: Any) -> int:
        folder = next(self._outputs)
        deltalake.write_deltalake(folder, data)
        return int(deltalake.DeltaTable(folder).to_pyarrow_table().num_rows)

    def lance(self, data: Any) -> int:
        return int(lance.write_dataset(data, next(self._outputs)).count_rows())


def _scanned(data: Any) -> int:
    return int(acero.Declaration("scan", acero.ScanNodeOptions(data)).to_table().num_rows)


TAKERS: dict[str, tuple[Callable[[Ours], Any], int | str]] = {
    "write_dataset": (lambda ours: ours.written(ours.data), NUM_ROWS),
    "write_dataset, filtered": (lambda ours: ours.written(ours.few), NUM_FOUND),
    "write_dataset, scanner": (lambda ours: ours.written(ours.scanner), NUM_FOUND),
    "write_dataset, stream": (lambda ours: ours.written(ours.scanner.to_reader()), NUM_FOUND),
    "write_dataset, fragment": (lambda ours: ours.written(ours.fragment), "ValueError"),
    "write_dataset, list": (lambda ours: ours.written([ours.data]), TYPE),
    "Scanner.from_fragment": (lambda ours: pads.Scanner.from_fragment(ours.fragment), TYPE),
    "Scanner.from_dataset": (lambda ours: pads.Scanner.from_dataset(ours.data).to_table().num_rows, OURS),
    "Scanner.from_batches": (lambda ours: pads.Scanner.from_batches(ours.data).to_table().num_rows, NUM_ROWS),
    "FileSystemDataset": (
        lambda ours: pads.FileSystemDataset([ours.fragment], ours.data.schema, pads.ParquetFileFormat()),
        TYPE,
    ),
    "UnionDataset": (lambda ours: pads.dataset([ours.data, ours.data]).to_table().num_rows, OURS),
    "scan node": (lambda ours: _scanned(ours.data), OURS),
    "sort_by": (lambda ours: ours.data.sort_by("id").to_table().num_rows, OURS),
    "join": (lambda ours: ours.data.join(ours.data, "id").to_table().num_rows, OURS),
    "join_asof": (lambda ours: ours.data.join_asof(ours.data, "id", "id", 0).to_table().num_rows, OURS),
    "Table.join": (lambda ours: pa.table({"id": [1]}).join(ours.data, "id").num_rows, OURS),
    "replace_schema": (lambda ours: ours.data.replace_schema(ours.data.schema).to_table().num_rows, OURS),
    "write_table": (lambda ours: pq.write_table(ours.data, "never"), TYPE),
    "pyarrow.table": (lambda ours: pa.table(ours.few).num_rows, NUM_FOUND),
    "deltalake": (lambda ours: ours.delta(ours.few), NUM_FOUND),
    "deltalake, scanner": (lambda ours: ours.delta(ours.scanner), NUM_FOUND),
    "lance": (lambda ours: ours.lance(ours.data), OURS),
    "lance, scanner": (lambda ours: ours.lance(ours.scanner), TYPE),
    "lance, stream": (lambda ours: ours.lance(ours.scanner.to_reader()), NUM_FOUND),
    "Polars": (lambda ours: len(pl.DataFrame(ours.few)), NUM_FOUND),
    "DataFusion": (lambda ours: datafusion.SessionContext().from_arrow(ours.few).count(), NUM_FOUND),
    "DuckDB, scanner": (lambda ours: len(duckdb.from_arrow(ours.scanner).fetchall()), NUM_FOUND),
    "DuckDB, the first of many": (lambda ours: len(duckdb.from_arrow(ours.data).limit(1).fetchall()), 1),
    "the first batch": (lambda ours: next(ours.data.to_batches(columns={"id": pc.field("id")})).num_rows, 10),
}


if __name__ == "__main__":
    mine = Ours(Path(sys.argv[1]))
    for name, (take, expected) in TAKERS.items():
        try:
            outcome: Any = take(mine)
        except Exception as error:  # noqa: BLE001 - the outcome
            outcome = f"{type(error).__name__}: {error}"
        sys.stdout.write(json.dumps([name, outcome, expected]) + "\n")
        sys.stdout.flush()
