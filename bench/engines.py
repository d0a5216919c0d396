"""What engines gain from the index: DuckDB, Polars, DataFusion and pyarrow over indexed files and over plain ones.

Each plain scan is the engine's own best: its own Parquet reader over the same files. Answers are compared before
anything is timed. The rows where no index can help are in the table too.

    python -m bench.engines [--files 8 24]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

import zonebloom as zb
from bench.data import integers, uuids, write_files
from bench.harness import Result, interleaved, scratch
from zonebloom.engines.datafusion import register as register_in_datafusion
from zonebloom.engines.duckdb import register as register_in_duckdb, relation, semi_join
from zonebloom.engines.polars import scan

FILE_ROWS, GROUP_ROWS = 1_000_000, 125_000
ROUNDS = 3
MS = 1e-3
PLAIN_OF = {
    "pyarrow dataset": "pyarrow, plain",
    "DuckDB, by name": "DuckDB, plain",
    "DuckDB, relation": "DuckDB, plain",
    "Polars, scan": "Polars, plain",
    "DataFusion": "DataFusion, plain",
}
"""Each way in, and the plain scan of the same engine."""


@dataclass(frozen=True, slots=True)
class Question:
    """One condition in each language."""

    name: str
    sql: str
    arrow: pc.Expression
    polars: pl.Expr


def main() -> None:
    """Ask every engine about lakes of several sizes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, nargs="+", default=[8, 24])
    counts = parser.parse_args().files
    about = (
        "Wall time to the rows (columns id, user_id, amount; user_id is indexed) with an open index and open engines, "
        f"over files of {FILE_ROWS:,} rows in row groups of {GROUP_ROWS:,}, in the page cache. Plain scans are each "
        "engine's own Parquet reader over the same files. All cases of a question run interleaved. Answers are equal "
        "(asserted). A gain below 1 is a loss."
    )
    result = Result("engines", about, packages=["duckdb", "polars", "datafusion"])
    for number, num_files in enumerate(counts):
        with scratch() as folder:
            measure(result, folder / "lake", num_files, is_target=number == 0)
    result.save()


def measure(result: Result, lake: Path, num_files: int, *, is_target: bool) -> None:
    """One lake: each question by all engines, and a join with few keys."""
    random = np.random.default_rng(5)
    columns = {"id": integers, "user_id": uuids, "amount": lambda rows, rng: pa.array(rng.random(rows))}
    tables = (pa.table({name: make(FILE_ROWS, random) for name, make in columns.items()}) for _ in range(num_files))
    paths = write_files(lake, tables, row_group_size=GROUP_ROWS, write_page_index=True)
    keys = ds.dataset(paths[-1]).to_table(columns=["user_id"])["user_id"]
    index = zb.build_index(lake, "user_id")
    present, absent = keys[777_777].as_py(), "7f7f7f7f-0000-0000-0000-000000000000"
    questions = [
        Question(name, f"user_id = '{key}'", pc.field("user_id") == key, pl.col("user_id") == key)
        for name, key in (("a present key", present), ("an absent key", absent))
    ]
    few = pc.field("amount") < 0.001
    questions.append(Question("a range, which prunes nothing", "amount < 0.001", few, pl.col("amount") < 0.001))
    rows = [row for question in questions for row in asked(result, index, lake, question, is_target=is_target)]
    rows.append(joined(result, index, lake, keys.slice(0, 10)))
    names = ["question", "engine", "with the index, ms", "plain, ms", "gain", "against index.to_table"]
    result.table(f"Engines over {num_files * FILE_ROWS:,} rows", names, rows)


def asked(result: Result, index: zb.Index, lake: Path, question: Question, *, is_target: bool) -> list[list[Any]]:
    """A row for each way in."""
    cases = ways(index, lake, question)
    expected = sorted(cases["index.to_table"]())
    assert all(sorted(case()) == expected for case in cases.values()), question.name
    rounds = result.note_load(interleaved(cases, rounds=ROUNDS))
    gains = {name: rounds.ratio(plain, name) for name, plain in PLAIN_OF.items()}
    if is_target:
        targets(result, question, gains, {name: rounds.wall(name)["median"] for name in cases})
    return [
        [
            question.name,
            name,
            rounds.wall(name, MS),
            rounds.wall(plain, MS),
            gains[name],
            rounds.ratio(name, "index.to_table"),
        ]
        for name, plain in PLAIN_OF.items()
    ]


def targets(
    result: Result, question: Question, gains: Mapping[str, Mapping[str, float]], walls: Mapping[str, float]
) -> None:
    """What each engine was to reach."""
    if question.name.startswith("a range"):
        for name in ("DuckDB, relation", "Polars, scan"):  # these hand over to the engine's own reader
            result.target(f"{question.name}: {name} against its plain scan", 1 / gains[name]["median"], 1.15, "times")
        return
    asked_gain = 5 if question.name == "a present key" else 20
    for name in PLAIN_OF:
        result.target(
            f"{question.name}: {name} against its plain scan", gains[name]["median"], asked_gain, "times", at_most=False
        )
        if question.name == "a present key":
            beyond = (walls[name] - 1.5 * walls["index.to_table"]) / MS
            result.target(f"{question.name}: {name} beyond 1.5 index.to_table", beyond, 5, "ms")


def ids(rows: pa.Table) -> list[Any]:
    """The ids of what was found; DataFusion gives no columns where it gives no rows."""
    return rows["id"].to_pylist() if rows.num_columns else []


def ways(index: zb.Index, lake: Path, question: Question) -> dict[str, Callable[[], list[Any]]]:
    """By name, what gives the ids of the matching rows; all columns are read."""
    connection, context = duckdb.connect(), datafusion.SessionContext()
    register_in_duckdb(connection, "events", index)
    register_in_datafusion(context, "events", index)
    context.register_parquet("plain", str(lake))
    ours, plain = index.dataset(), ds.dataset(lake)
    lazy = scan(index)
    files = f"{lake}/*.parquet"

    def of_datafusion(table: str) -> list[Any]:
        return ids(context.sql(f"SELECT id, user_id, amount FROM {table} WHERE {question.sql}").to_arrow_table())

    return {
        "index.to_table": lambda: ids(index.to_table(question.arrow)),
        "pyarrow dataset": lambda: ids(ours.to_table(filter=question.arrow)),
        "pyarrow, plain": lambda: ids(plain.to_table(filter=question.arrow)),
        "DuckDB, by name": lambda: ids(connection.sql(f"SELECT * FROM events WHERE {question.sql}").to_arrow_table()),
        "DuckDB, relation": lambda: ids(relation(connection, index, question.sql).to_arrow_table()),
        "DuckDB, plain": lambda: ids(connection.sql(f"SELECT * FROM '{files}' WHERE {question.sql}").to_arrow_table()),
        "Polars, scan": lambda: ids(lazy.filter(question.polars).collect().to_arrow()),
        "Polars, plain": lambda: ids(pl.scan_parquet(files).filter(question.polars).collect().to_arrow()),
        "DataFusion": lambda: of_datafusion("events"),
        "DataFusion, plain": lambda: of_datafusion("plain"),
    }


def joined(result: Result, index: zb.Index, lake: Path, keys: pa.ChunkedArray) -> list[Any]:
    """DuckDB's semi-join with few keys, and the same over plain files."""
    connection = duckdb.connect()
    wanted = connection.from_arrow(pa.table({"k": keys}))
    connection.register("wanted", pa.table({"k": keys}))
    sql = f"SELECT * FROM '{lake}/*.parquet' SEMI JOIN wanted ON user_id = k"
    cases = {
        "ours": lambda: ids(semi_join(connection, index, "user_id", wanted).to_arrow_table()),
        "plain": lambda: ids(connection.sql(sql).to_arrow_table()),
        "index.to_table": lambda: ids(index.to_table(zb.col("user_id").isin(keys))),
    }
    assert sorted(cases["ours"]()) == sorted(cases["plain"]()) == sorted(cases["index.to_table"]())
    rounds = result.note_load(interleaved(cases, rounds=ROUNDS))
    walls = [rounds.wall("ours", MS), rounds.wall("plain", MS)]
    ratios = [rounds.ratio("plain", "ours"), rounds.ratio("ours", "index.to_table")]
    return [f"{len(keys)} keys of one file", "DuckDB, semi_join", *walls, *ratios]


if __name__ == "__main__":
    main()
