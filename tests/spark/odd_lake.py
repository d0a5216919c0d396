"""A lake of all that is odd, conditions over it, and how its row ranges are planned and read without Spark."""

from __future__ import annotations

import datetime as dt
import decimal
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import zonebloom as zb
from tests.fuzz.conditions import SPARK, as_sql, random_condition
from zonebloom.engines.spark.pushdown.sql_text import predicate_of_text
from zonebloom.engines.spark.pushdown.translate import bound
from zonebloom.engines.spark.pushdown.types import Binder
from zonebloom.engines.spark.scan.layout import Layout
from zonebloom.engines.spark.scan.splits import Reading, Split
from zonebloom.engines.spark.scan.types import arrow_schema
from zonebloom.search.query import Query

ROWS_PER_FILE, ROWS_PER_ZONE = 400, 50
CITIES = ("a%2Fb", "x y", "100%25", "ü [*]", "__HIVE_DEFAULT_PARTITION__")
ODD = "o'dd `na.me`"
INDEXED = ("id", "name", "amount", "small", "price", "born", "seen", "local", "trace", "tiny", "huge", "flag", ODD)


def odd_rows(first: int, rng: np.random.Generator) -> pa.Table:
    """Rows numbered from `first`, with nulls in each column but `n`, NaN and both zeros."""
    num = ROWS_PER_FILE
    numbers = range(first, first + num)
    days = rng.integers(0, 20000, num)
    amounts = np.round(rng.normal(0, 50, num), 1)
    amounts[:4] = np.nan, 0.0, -0.0, np.inf
    rng.shuffle(amounts)
    moments = [dt.datetime.fromisoformat("2020-03-28") + dt.timedelta(minutes=17 * number) for number in numbers]

    prices = [decimal.Decimal(cents).scaleb(-2) for cents in rng.integers(0, 10**6, num).tolist()]
    pairs = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.uint32()))])

    def holed(values: Any, of: pa.DataType) -> pa.Array:
        return pa.array([None if place % 23 == 5 else value for place, value in enumerate(values)], of)

    return pa.table(
        {
            "n": pa.array(numbers, pa.int64()),
            "id": holed(rng.permutation(np.arange(first, first + num)) * 7919, pa.int64()),
            "name": holed([f"u{rng.integers(10**6)}" if number % 11 else "" for number in numbers], pa.string()),
            "amount": holed(amounts, pa.float64()),
            "small": holed((amounts * 4).astype(np.float32).tolist(), pa.float32()),
            "price": holed(prices, pa.decimal128(9, 2)),
            "born": holed([dt.date(1970, 1, 1) + dt.timedelta(int(day)) for day in days], pa.date32()),
            "seen": holed(moments, pa.timestamp("us", "Europe/Paris")),
            "local": holed(moments, pa.timestamp("ms")),
            "trace": holed([rng.bytes(16) for _ in numbers], pa.binary(16)),
            "tiny": holed(rng.integers(0, 256, num).tolist(), pa.uint8()),
            "huge": holed([2**64 - 1 - number for number in numbers], pa.uint64()),
            "flag": holed([number % 2 == 0 for number in numbers], pa.bool_()),
            ODD: holed([f"ü'{number}\\" for number in numbers], pa.string()),
            "pair": pa.array([{"a": number, "b": [number, None]} for number in numbers], pairs),
        }
    )


def write_odd_lake(root: Path) -> Path:
    """Partitions with special values, a file without rows, one without some columns, one not indexed, odd names."""
    rng = np.random.default_rng(5)
    for number, city in enumerate((*CITIES, *CITIES[:2])):
        folder = root / f"day={number % 3 + 9}" / f"city={city}"
        folder.mkdir(parents=True, exist_ok=True)
        rows = odd_rows(number * ROWS_PER_FILE, rng)
        if number == 1:
            rows = rows.drop_columns(["price", "born"])
        pq.write_table(
            rows, folder / f"part {number}% [1]*'.parquet", row_group_size=150, write_page_index=number % 2 == 0
        )
    pq.write_table(rows.slice(0, 0), root / "day=9" / f"city={CITIES[0]}" / "empty.parquet")
    zb.build_index(root, [*INDEXED, "pair.a"], rows_per_zone=ROWS_PER_ZONE)
    pq.write_table(odd_rows(100 * ROWS_PER_FILE, rng), root / "day=9" / f"city={CITIES[0]}" / "late.parquet")
    return root


def conditions(rows: pa.Table, count: int, seed: int) -> list[str]:
    """Random SQL of Spark over the columns of the odd lake, with literals that are there."""
    chance = random.Random(seed)
    columns = {(name,): chance.sample(rows[name].to_pylist(), 20) for name in (*INDEXED, "day", "city", "n")}
    return [as_sql(random_condition(chance, columns, depth=2), SPARK) for _ in range(count)]


@dataclass(frozen=True)
class Plan:
    """The tasks of a read of row ranges."""

    reading: Reading
    tasks: list[tuple[Split, ...]]
    num_total_rows: int

    @property
    def splits(self) -> list[Split]:
        return [split for task in self.tasks for split in task]

    @property
    def num_files(self) -> int:
        return len({split.path for split in self.splits})

    @property
    def num_rows(self) -> int:
        return sum(split.num_rows for split in self.splits)


def plan_of(root: Path, where: str | None = None, columns: list[str] | None = None) -> Plan:
    """The read of the rows that may match `where`, as sqlglot reads it."""
    layout = Layout(zb.open_index(root).view())
    view = layout.view
    binder = Binder(layout.readable, view)
    rows = (
        view.universe
        if where is None
        else Query(view, bound(predicate_of_text(where, binder), binder)).result.row_ranges
    )
    return Plan(*layout.tasks(rows, layout.schema(columns)), view.universe.num_rows)


def rows_of(plan: Plan) -> pa.Table:
    batches = [batch for task in plan.tasks for batch in plan.reading.batches(task)]
    return pa.Table.from_batches(batches, arrow_schema(plan.reading.schema))
