"""What a search gains: `Index.search` and `scan` against full scans by pyarrow, DuckDB and Polars over the same files.

Every answer is compared with the others' before anything is timed. The rows where an index of this kind cannot help are
in the table too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

import zonebloom as zb
from bench.data import integers, uuids, write_files
from bench.harness import Result, cell_text, interleaved, scratch

NUM_FILES, FILE_ROWS = 8, 1_000_000
COLUMNS = ["id", "user_id", "amount"]
MS = 1e-3


@dataclass(frozen=True, slots=True)
class Query:
    """One question, in SQL and as a pyarrow Expression."""

    name: str
    sql: str
    expression: Any
    helps: bool = True
    """Whether an index of filters can help at all."""


def main() -> None:
    """Ask every question of every engine over files with large and with small row groups, and one without page index.

    Spark, DataFusion and Polars write a page index by default; pyarrow and DuckDB do not.
    """
    engines = [name for name in ("duckdb", "polars") if find_spec(name)]
    result = Result("search", f"{NUM_FILES} files of {FILE_ROWS:,} rows in the page cache, snappy.", packages=engines)
    rng = np.random.default_rng(5)
    tables = [_table(number * FILE_ROWS, rng) for number in range(NUM_FILES)]
    queries = _queries(tables, rng)
    for group_rows, has_page_index in ((1 << 20, True), (1 << 17, True), (1 << 20, False)):
        with scratch() as folder:
            write_files(folder, tables, row_group_size=group_rows, write_page_index=has_page_index)
            index = zb.build_index(folder, ["user_id", "item", "id", "country"])
            asked = queries if has_page_index else queries[:1]
            title = f"Row groups of {group_rows:,} rows at most, {'with' if has_page_index else 'without'} a page index"
            _ask(result, folder, index, asked, engines=engines, group_rows=group_rows, title=title)
        result.save()


def _table(first: int, rng: np.random.Generator) -> pa.Table:
    countries = pa.array([f"country {number}" for number in range(20)])
    return pa.table(
        {
            "id": pa.array(np.arange(first, first + FILE_ROWS)),
            "user_id": uuids(FILE_ROWS, rng),
            "item": integers(FILE_ROWS, rng),
            "country": countries.take(pa.array(rng.integers(0, 20, FILE_ROWS))),
            "amount": pa.array(rng.random(FILE_ROWS)),
        }
    )


def _queries(tables: list[pa.Table], rng: np.random.Generator) -> list[Query]:
    user, item, country = ds.field("user_id"), ds.field("item"), ds.field("country")
    present = tables[5]["user_id"][123_456].as_py()
    number = tables[2]["item"][7].as_py()
    absent, *many_absent = uuids(101, rng).to_pylist()
    few = [tables[1]["user_id"][row].as_py() for row in (17, 99_999, 500_000)]
    sorted_id = 3 * FILE_ROWS + 4711
    low, high = 2_000_000, 2_000_999
    return [
        Query("one UUID, present", f"user_id = '{present}'", user == present),
        Query("one UUID, absent", f"user_id = '{absent}'", user == absent),
        Query("IN of 3 UUIDs of one file", f"user_id IN ({_listed(few)})", user.isin(few)),
        Query("IN of 100 UUIDs, all absent", f"user_id IN ({_listed(many_absent)})", user.isin(many_absent)),
        Query("one int64, present", f"item = {number}", item == number),
        Query("sorted id: statistics prune already", f"id = {sorted_id}", ds.field("id") == sorted_id, helps=False),
        Query("20 values: in every zone", "country = 'country 7'", country == "country 7", helps=False),
        Query(
            "range over the sorted id",
            f"id BETWEEN {low} AND {high}",
            (ds.field("id") >= low) & (ds.field("id") <= high),
            helps=False,
        ),
        Query("range over random numbers", "item < -4600000000000000000", item < -4600000000000000000, helps=False),
    ]


def _listed(values: list[str]) -> str:
    return ", ".join(f"'{value}'" for value in values)


def _ask(
    result: Result,
    folder: Path,
    index: zb.Index,
    queries: list[Query],
    *,
    engines: list[str],
    group_rows: int,
    title: str,
) -> None:
    rows = []
    for query in queries:
        cases = _cases(folder, index, query, engines)
        answers = {name: case() for name, case in cases.items()}
        expected = answers.pop("pyarrow")
        for name, answer in answers.items():
            assert answer.equals(expected), f"{name} answers {query.name} with {len(answer)} rows, not {len(expected)}"
        selection = index.search(query.sql)
        searches = {"search": lambda query=query: index.search(query.sql)}
        rounds = result.note_load(interleaved(searches | cases, rounds=5 if query.helps else 3))
        fastest = min((name for name in cases if name != "zonebloom"), key=lambda name: rounds.wall(name)["median"])
        gain = rounds.wall(fastest)["median"] / rounds.wall("zonebloom")["median"]
        rows.append(
            [
                query.name + ("" if query.helps else " (not for us)"),
                len(expected),
                f"{selection.num_zones_kept:,} of {selection.num_zones:,}",
                f"{selection.kept.bytes / 2**20:,.1f} of {selection.total.bytes / 2**20:,.0f}",
                rounds.wall("search", MS),
                *(rounds.wall(name, MS) for name in cases),
                f"{cell_text(gain)} x ({fastest})",
            ]
        )
        if group_rows == 1 << 17 and query.name.startswith(("one UUID", "20 values")):
            ours, best = rounds.wall("zonebloom", MS)["median"], rounds.wall(fastest, MS)["median"]
            result.headline.append(
                [
                    f"{query.name}, among {NUM_FILES * FILE_ROWS:,} rows: the rows themselves",
                    f"{cell_text(ours)} ms",
                    f"{fastest} without an index {best:.0f} ms" + ("" if ours < best else ": we lose"),
                ]
            )
    names = ["zonebloom", "pyarrow", *engines]
    columns = ["question", "rows found", "zones kept", "MiB kept (row groups, all columns)", "search alone, ms"]
    columns += [f"{name}, ms" for name in names] + ["gain over the fastest other"]
    note = (
        "Wall time to the rows (columns id, user_id, amount) with an open index and engines; full scans use all cores. "
        "Answers are equal (asserted). A gain below 1 is a loss."
    )
    result.table(title, columns, rows, note)


def _cases(folder: Path, index: zb.Index, query: Query, engines: list[str]) -> dict[str, Callable[[], pa.Table]]:
    dataset = ds.dataset(folder, format="parquet", exclude_invalid_files=False, ignore_prefixes=["_", "."])
    cases: dict[str, Callable[[], pa.Table]] = {
        "zonebloom": lambda: _ordered(index.to_table(query.sql, columns=COLUMNS)),
        "pyarrow": lambda: _ordered(dataset.to_table(columns=COLUMNS, filter=query.expression)),
    }
    if "duckdb" in engines:
        import duckdb

        connection = duckdb.connect()
        text = f"SELECT {', '.join(COLUMNS)} FROM read_parquet('{folder}/*.parquet') WHERE {query.sql}"
        cases["duckdb"] = lambda: _ordered(connection.sql(text).to_arrow_table())
    if "polars" in engines:
        import polars as pl

        frame = pl.scan_parquet(folder / "*.parquet")
        condition = pl.sql_expr(query.sql)
        cases["polars"] = lambda: _ordered(frame.filter(condition).select(COLUMNS).collect().to_arrow())
    return cases


def _ordered(table: pa.Table) -> pa.Table:
    plain = table.cast(pa.schema([("id", pa.int64()), ("user_id", pa.string()), ("amount", pa.float64())]))
    return plain.sort_by("id").combine_chunks()


if __name__ == "__main__":
    main()
