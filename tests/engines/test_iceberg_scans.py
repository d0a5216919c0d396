"""A pyiceberg table with an index: the rows of a plain scan, from fewer files.

Oracle: pyiceberg's own scan of the same table. Polars reads it too; `test_daft_and_ray.py` has two more.
"""

from __future__ import annotations

import datetime as dt
import random
import uuid
from decimal import Decimal
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo, In
from pyiceberg.table import DataScan, Table

import zonebloom as zb
from tests.depth import some
from tests.iceberg_log import delete_rows
from zonebloom.engines import iceberg
from zonebloom.errors import IndexNotFoundError, StaleWarning
from zonebloom.ground.reasons import ReasonCode

DAY = dt.date(2026, 1, 1)
TYPES = {
    "int": pa.array(range(400), pa.int32()),
    "long": pa.array(range(400), pa.int64()),
    "float": pa.array([i / 10 for i in range(400)], pa.float32()),
    "double": pa.array([i / 10 for i in range(400)]),
    "text": pa.array([f"t {i}" for i in range(400)]),
    "bytes": pa.array([b"b %d" % i for i in range(400)]),
    "fixed": pa.array([b"%016d" % i for i in range(400)], pa.binary(16)),
    "uuid": pa.array([uuid.UUID(int=i).bytes for i in range(400)], pa.uuid()),
    "decimal": pa.array([Decimal(i).scaleb(-2) for i in range(400)], pa.decimal128(20, 2)),
    "date": pa.array([DAY + dt.timedelta(i) for i in range(400)]),
    "time": pa.array(range(400), pa.time64("us")),
    "timestamp": pa.array(range(400), pa.timestamp("us")),
    "instant": pa.array(range(400), pa.timestamp("us", "UTC")),
}


def rows_of(scan: DataScan) -> list[str]:
    return sorted(map(str, scan.to_arrow().to_pylist()))


def files_of(scan: DataScan) -> set[str]:
    return {task.file.file_path.removeprefix("file://") for task in scan.plan_files()}


@pytest.fixture
def table(catalog: SqlCatalog, tmp_path: Path) -> Table:
    """400 rows in random order in four files, all types indexed."""
    rows = pa.table(TYPES)
    table = catalog.create_table("db.events", rows.schema)
    order = random.Random(1).sample(range(400), 400)
    for start in range(0, 400, 100):
        table.append(rows.take(order[start : start + 100]))
    zb.build_index(table, rows.column_names, index=tmp_path / "index", rows_per_zone=10, kind="locator")
    return table


def test_each_type_is_found_in_one_of_four_files(table, tmp_path):
    pruned = iceberg.table(table, index=tmp_path / "index")
    holders = {number: path for path in files_of(table.scan()) for number in pq.read_table(path)["long"].to_pylist()}
    for name, values in some(TYPES.items(), 4):
        numbers = [values[place].as_py() for place in (123, 7)]
        for condition, places in ((EqualTo(name, numbers[0]), {123}), (In(name, numbers), {123, 7})):
            scan = pruned.scan(condition)
            assert files_of(scan) == {holders[place] for place in places}, condition
            if name != "uuid":  # pyiceberg cannot filter rows by it
                assert rows_of(scan) == rows_of(table.scan(condition)), condition
                assert scan.count() == table.scan(condition).count()


@pytest.mark.parametrize(
    ("condition", "most"),
    [
        ("long = 3 and double > 0", 1),
        ("long = 3 or text = 't 5'", 2),
        ("long = 3 or double > 39", 4),
        ("not (long != 3)", 1),
        ("not long = 3", 4),
        ("text like 't 1%'", 4),
        ("long = -1", 0),
        ("text is null", 0),
    ],
)
def test_conditions_prune_what_they_prove(table, tmp_path, condition, most):
    pruned = iceberg.table(table, index=tmp_path / "index")
    scan = pruned.scan().filter(condition).select("long", "text")
    assert rows_of(scan) == rows_of(table.scan(condition, ("long", "text")))
    assert len(list(scan.plan_files())) <= most
    assert (pruned.last_scan is None) == ("long" not in condition and "null" not in condition) or most == 4


def test_a_table_that_goes_on_living_loses_no_row(table, tmp_path):
    pruned = iceberg.table(table, index=zb.open_index(tmp_path / "index", dataset=table))
    old, scan = table.current_snapshot().snapshot_id, pruned.scan("long = 3")
    table.append(pa.table(TYPES).slice(3, 1))
    table.delete("long = 7")
    table.update_schema().rename_column("long", "number").commit()
    table.update_schema().add_column("long", pruned.schema().find_type("text")).commit()
    table.append(pa.table({"number": [3], "long": ["3"]}, pa.schema([("number", pa.int64()), ("long", pa.string())])))
    assert rows_of(pruned.scan("long = 3")) == rows_of(table.scan("number = 3", snapshot_id=old)), "as it was loaded"
    pruned.refresh()
    for condition in ("number = 3", "number = 7", "long = '3'", "text = 't 3'", "number in (3, 399)"):
        assert rows_of(pruned.scan(condition)) == rows_of(table.scan(condition)), condition
        assert ReasonCode.FILE_NOT_INDEXED in {reason.code for reason in pruned.last_scan.reasons}
    assert len(list(pruned.scan("number = -1").plan_files())) < len(list(table.scan().plan_files()))
    assert rows_of(pruned.scan("number = 7", snapshot_id=old)) == rows_of(table.scan("number = 7", snapshot_id=old))
    zb.open_index(tmp_path / "index", dataset=table).refresh()
    assert rows_of(scan) == rows_of(table.scan("number = 3", snapshot_id=old)), "as it was when the scan was made"


def test_a_scan_that_is_made_while_another_thread_refreshes_the_table(table, tmp_path, monkeypatch):
    pruned, scan = iceberg.table(table, index=tmp_path / "index"), Table.scan
    table.update_schema().rename_column("long", "number").commit()
    table.update_schema().add_column("long", pruned.schema().find_type("long")).commit()
    zb.open_index(tmp_path / "index", dataset=table).refresh()
    monkeypatch.setattr(Table, "scan", lambda *given: (scan(*given), pruned.refresh())[0])
    assert pruned.scan("long = 3").to_arrow().num_rows == 1


def test_position_deletes_hold(table, tmp_path):
    [task] = iceberg.table(table, index=tmp_path / "index").scan("long = 42").plan_files()
    delete_rows(table, tmp_path / "deletes.parquet", {task.file.file_path: range(100)})
    pruned = iceberg.table(table.refresh(), index=tmp_path / "index")
    assert rows_of(pruned.scan("long = 42")) == []
    assert rows_of(pruned.scan("long in (1, 42)")) == rows_of(table.scan("long in (1, 42)"))


def test_polars_plans_by_it(table, tmp_path, monkeypatch):
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    pruned = iceberg.table(table, index=tmp_path / "index")
    frame = pl.scan_iceberg(pruned).filter(pl.col("text").is_in(["t 7", "t 9"])).collect()
    assert sorted(frame["long"].to_list()) == [7, 9]
    assert len(pruned.last_scan.files) <= 2


def test_a_table_without_an_index_is_an_error(catalog):
    table = catalog.create_table("db.bare", pa.schema([("id", pa.int64())]))
    with pytest.raises(IndexNotFoundError):
        iceberg.table(table)


def test_a_table_that_only_pyiceberg_reads_is_planned_whole(table, tmp_path):
    pruned = iceberg.table(table, index=tmp_path / "index")
    table.add_files([next(iter(table.scan().plan_files())).file.file_path], check_duplicate_files=False)
    pruned.refresh()
    with pytest.warns(StaleWarning, match="read whole: "):
        assert files_of(pruned.scan("long = -1")) == files_of(table.scan("long = -1"))
