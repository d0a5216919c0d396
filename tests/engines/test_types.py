"""Each type, and files of two types, through each engine: over the index and over the same rows without it.

The oracle is the engine itself (DuckDB 2.0, DataFusion 55, Polars 2.1, pyarrow 26): DuckDB's own reader where it reads
natively, else the rows in memory.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

import zonebloom as zb
from tests.depth import some
from zonebloom.engines.duckdb import relation, semi_join
from zonebloom.engines.polars import scan
from zonebloom.errors import UnsupportedTypeError

SMALL = [0, 1, 7, 100]
TEXTS = ["0", "1", "é", "a"]
NANOSECONDS = pa.array([1_577_836_800_000_000_000 + 10**9 * second + 500 for second in SMALL])
DAYS = pa.array(SMALL, pa.int32()).cast(pa.date32())
KEYS = [bytes([number] * 16) for number in SMALL]
EXACT = [decimal.Decimal(number) for number in SMALL]
IN_A_LIST = [0, 1, 2, 3, 4]


def times(unit: str, zone: str | None = None) -> pa.Array:
    return NANOSECONDS.cast(pa.timestamp("ns", zone)).cast(pa.timestamp(unit, zone), safe=False)


TYPES: dict[str, pa.Array | str] = {
    **{
        str(kind): pa.array(SMALL).cast(kind) for kind in (pa.int8(), pa.int64(), pa.uint8(), pa.uint32(), pa.float32())
    },
    "uint64": pa.array([0, 1, 2**63, 2**64 - 1], pa.uint64()),
    "float16": pa.array(np.array([0, -0.0, 2.5, 0.1], np.float16)),
    "double": pa.array([0.0, -0.0, 0.1, 2.5]),
    "decimal": pa.array(EXACT, pa.decimal128(9, 2)),
    "wide decimal": pa.array(EXACT, pa.decimal256(30, 2)),
    "wider decimal": pa.array([10**40 + number for number in SMALL], pa.decimal256(50, 0)),
    "wide decimals": pa.ListArray.from_arrays(IN_A_LIST, pa.array(EXACT, pa.decimal256(30, 2))),
    "wide decimal in a struct": pa.StructArray.from_arrays([pa.array(EXACT, pa.decimal256(30, 2))], ["x"]),
    "bool": pa.array([False, True, False, True]),
    "null": pa.nulls(4),
    "text": pa.array(TEXTS),
    "view": pa.array(TEXTS, pa.string_view()),
    "dictionary": pa.array(TEXTS).dictionary_encode(),
    "json": pa.ExtensionArray.from_storage(pa.json_(), pa.array(["0", '"a"', "{}", "[1]"])),
    "bytes": pa.array([text.encode() for text in TEXTS]),
    "fixed": pa.array(KEYS, pa.binary(16)),
    "12 bytes": pa.array([key[:12] for key in KEYS], pa.binary(12)),
    "uuid": pa.array(KEYS, pa.uuid()),
    "uuids": pa.ListArray.from_arrays(IN_A_LIST, pa.array(KEYS, pa.uuid())),
    "pair": pa.array([[number, 1] for number in SMALL], pa.list_(pa.int64(), 2)),
    "struct": pa.array([{"a": number} for number in SMALL]),
    "longer struct": pa.array([{"a": number, "b": "x"} for number in SMALL]),
    "date": DAYS,
    "date64": DAYS.cast(pa.date64()),
    "ms None": times("ms"),
    **{f"us {zone}": times("us", zone) for zone in (None, "UTC", "Asia/Tokyo")},
    **{f"ns {zone}": times("ns", zone) for zone in (None, "UTC")},
    "int96": times("ns"),
    "time32": pa.array(SMALL, pa.time32("ms")),
    "time64": pa.array(SMALL, pa.time64("us")),
    "fine time": pa.array([100_001 * number for number in SMALL], pa.time64("ns")),
    "duration": pa.array(SMALL, pa.duration("us")),
    **{
        f"{name} of DuckDB": f"SELECT unnest({SMALL}) AS x, {of_x} AS c"
        for name, of_x in {
            "interval": "to_days(x::INT)",
            "timetz": "(TIME '10:00:00' + x * INTERVAL 1 MINUTE)::TIMETZ",
            "hugeint": "x::HUGEINT",
            "json": "x::VARCHAR::JSON",
        }.items()
    },
}
PAIRS = [
    *(("int64", newer) for newer in ("int8", "uint64", "double", "decimal", "text", "float16", "duration")),
    *(("text", newer) for newer in ("json", "dictionary", "view", "uuid", "json of DuckDB")),
    *(("bool", "int8"), ("null", "text"), ("decimal", "wide decimal"), ("decimal", "double"), ("float", "double")),
    *(("fixed", "uuid"), ("12 bytes", "interval of DuckDB"), ("time64", "timetz of DuckDB"), ("time32", "fine time")),
    *(("date", "us None"), ("date64", "us UTC"), ("ms None", "us None"), ("us UTC", "us Asia/Tokyo")),
    *(("int96", "ns None"), ("int96", "us None"), ("us None", "us UTC"), ("struct", "longer struct")),
]
LAKES = [*((kind,) for kind in TYPES), *some([*PAIRS, *(pair[::-1] for pair in PAIRS)], 2), ("text", "bytes")]


def write(path: Path, kind: str, first: int) -> None:
    """Rows of a type and a null; DuckDB writes each into a file of its own."""
    values = TYPES[kind]
    if isinstance(values, str):
        rows = duckdb.sql(f"SELECT row_number() OVER () + {first} AS row, c FROM ({values})").order("row")
        for number in range(len(SMALL)):
            rows.limit(1, number).write_parquet(f"{path}-{number}.parquet")
        return
    chunks = pa.chunked_array([values, pa.nulls(1, values.type)]).combine_chunks()
    rows = pa.table({"row": range(first, first + len(chunks)), "c": chunks})
    is_int96 = kind == "int96"
    pq.write_table(rows, f"{path}.parquet", row_group_size=1, use_deprecated_int96_timestamps=is_int96)


def outcome(ask: Callable[[], Iterable[Any]]) -> list[str] | None:
    """The rows as texts, in order; None if the engine refuses."""
    try:
        return sorted(map(repr, ask()))
    except (duckdb.Error, pl.exceptions.PolarsError, pa.ArrowException, TypeError, zb.ZoneBloomError):
        return None
    except Exception as error:
        if type(error) is Exception:  # DataFusion's
            return None
        raise


def in_duckdb(connection: duckdb.DuckDBPyConnection, index: zb.Index, files: str) -> None:
    plain = connection.sql(f"SELECT row, c FROM read_parquet('{files}', union_by_name = true)")
    kind = plain.types[1]
    texts = [text for (text,) in plain.project("c::VARCHAR").distinct().order("ALL").fetchall() if text is not None]
    literals = ["'{}'::{}".format(text.replace("'", "''"), kind) for text in texts]
    wheres = [
        "true",
        "c IS NULL",
        *(f"c = {literal}" for literal in literals),
        *(f"c < {literal}" for literal in literals[:1]),
    ]
    wheres += [f"c IN ({', '.join(literals[:2])})", f"c NOT IN ({', '.join(literals[:2])})"] if literals else []
    for where in wheres:
        shown = f"SELECT row, c::VARCHAR, typeof(c) FROM lake WHERE {where}"
        expected = outcome(plain.query("lake", shown).fetchall)
        if expected is not None:
            assert outcome(relation(connection, index, where).query("lake", shown).fetchall) == expected, where
    if literals and kind.id not in ("list", "struct"):
        keys = connection.sql(f"SELECT unnest([{', '.join(literals[:3])}]) AS k")
        joined = plain.set_alias("lake").join(keys.set_alias("keys"), "lake.c = keys.k", how="semi").project("row")
        expected = outcome(joined.fetchall)
        rows = semi_join(connection, index, "c", keys).project("row")
        assert expected is None or outcome(rows.fetchall) == expected


def in_others(dataset: pads.Dataset, lazy: pl.LazyFrame, values: list[pa.Scalar]) -> dict[str, list[str] | None]:
    """What each engine gives that reads a pyarrow Dataset, and Polars; in numbers of rows for SQL."""
    connection, context, column = duckdb.connect(), datafusion.SessionContext(), pl.col("c")
    outcome(lambda: connection.register("lake", dataset).sql("SELECT 1").fetchall())
    context.register_dataset("lake", dataset)
    wheres = {"true": (pc.scalar(True), pl.lit(True)), "c IS NULL": (pc.field("c").is_null(), column.is_null())}
    for value in values:
        with suppress(ValueError, pa.ArrowException, pl.exceptions.PolarsError):
            literal = value.cast(pa.string()).as_py().replace("'", "''")
            own = pl.lit(pl.from_arrow(pa.array([value]))).first()
            wheres[f"c = '{literal}'"] = pc.field("c") == value, column == own
            wheres[f"c IN ('{literal}')"] = pc.field("c").isin(pa.array([value])), column.is_in(own.implode())
    answers = {}
    for where, (of_arrow, of_polars) in wheres.items():
        sql = f"SELECT row FROM lake WHERE {where}"
        answers[f"DuckDB: {where}"] = outcome(lambda sql=sql: connection.sql(sql).fetchall())
        answers[f"DataFusion: {where}"] = outcome(lambda sql=sql: context.sql(sql).to_pydict().get("row", []))
        answers[f"pyarrow: {where}"] = outcome(lambda of=of_arrow: dataset.to_table(filter=of).to_pylist())
        answers[f"Polars: {where}"] = outcome(lambda of=of_polars: lazy.filter(of).collect().rows())
    return answers


@pytest.mark.parametrize("kinds", LAKES, ids=" then ".join)
def test_no_type_loses_rows_of_an_engine(tmp_path, kinds):
    for number, kind in enumerate(kinds):
        write(tmp_path / "ab"[number], kind, 10 * number)
    try:
        index = zb.build_index(tmp_path, ["row", "c"], rows_per_zone=1)
    except UnsupportedTypeError:
        index = zb.build_index(tmp_path, "row", rows_per_zone=1)
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'Asia/Tokyo'")
    if outcome(connection.sql(f"FROM read_parquet('{tmp_path}/*.parquet', union_by_name = true)").fetchall) is not None:
        in_duckdb(connection, index, f"{tmp_path}/*.parquet")
    dataset = index.dataset()
    try:
        files = [pq.read_table(path).cast(dataset.schema) for path in sorted(tmp_path.glob("*.parquet"))]
        lazy = pl.from_arrow(pa.concat_tables(files)).lazy()
    except (pa.ArrowException, pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return
    plain = pa.concat_tables(files)
    values = [value for value in plain["c"] if value.is_valid][:: 2 * len(kinds)]
    expected = in_others(pads.dataset(plain), lazy, values)
    for name, rows in in_others(dataset, scan(index), values).items():
        assert rows == expected[name] or expected[name] is None or (rows is None and len(kinds) > 1), name
