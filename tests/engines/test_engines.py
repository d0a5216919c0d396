"""Each engine gives over an indexed data set just what it gives over the plain files, and reads less.

Other data sets (partitions, changed files, tables), other types and conditions are drawn by `tests/fuzz/engines.py`.

The oracle is the engine itself (DuckDB 2.0, DataFusion 55, Polars 2.1, pyarrow 26): over a plain pyarrow Dataset where
it reads ours as one, over the plain Parquet files where it reads natively or hands its predicate over.
"""

from __future__ import annotations

import datetime as dt
import decimal
import functools
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
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
from tests.engines.takers import TAKERS
from tests.newer import need
from zonebloom.engines.datafusion import register as register_in_datafusion
from zonebloom.engines.duckdb import register as register_in_duckdb, relation, semi_join
from zonebloom.engines.polars import scan
from zonebloom.errors import DataFileError, InvalidArgumentError, MissingDependencyError, UnsupportedTypeError
from zonebloom.formats.parquet.file import DataFile

NUM_ROWS = 1500
ROWS_PER_ZONE = 100
NAN = float("nan")
INDEXED = ["id", "text", "number", "single", "amount", "day", "moment", "key", "raw", "nested.leaf"]


def rows_of(seed: int, num_rows: int = NUM_ROWS) -> pa.Table:
    """Every type that the engines take, with nulls, NaN and both zeros; `row` is unique over all seeds."""
    random = np.random.default_rng(seed)
    row = np.arange(num_rows) + seed * 100_000
    shuffled = random.permutation(row)
    few = np.arange(num_rows) < 10
    floats = shuffled / 4
    floats[:6] = [0.0, -0.0, NAN, NAN, 0.0, -0.0]
    start = dt.datetime(2020, 1, 1)  # noqa: DTZ001 - a local time
    numbers = shuffled.tolist()
    return pa.table(
        {
            "row": row,
            "id": pa.array(shuffled, pa.int64()),
            "text": pa.array([f"text {number}" for number in numbers], mask=few),
            "number": pa.array(floats, pa.float64(), from_pandas=False),
            "single": pa.array(floats.astype(np.float32), pa.float32(), from_pandas=False),
            "amount": pa.array([decimal.Decimal(number) / 4 for number in numbers], pa.decimal128(12, 2)),
            "day": pa.array([start.date() + dt.timedelta(days=number % 20_000) for number in numbers]),
            "moment": pa.array([start + dt.timedelta(seconds=number) for number in numbers], pa.timestamp("us")),
            "key": pa.array([uuid.UUID(int=number).bytes for number in numbers], pa.uuid()),
            "raw": pa.array([b"%08d" % number for number in numbers], pa.binary()),
            "nested": pa.array([{"leaf": number, "other": "x"} for number in numbers]),
            "many": pa.array([[number, 1] for number in numbers]),
        }
    )


@dataclass(frozen=True)
class Lake:
    """An indexed data set, and the same rows for the engines alone."""

    index: zb.Index
    plain: pads.Dataset
    parquet: str
    """A glob of the plain files."""

    @property
    def num_rows(self) -> int:
        return self.plain.count_rows()


def write(folder: Path, name: str, table: pa.Table) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / name, row_group_size=500, write_page_index=True)


def plain_lake(folder: Path) -> Lake:
    for seed in range(2):
        write(folder, f"{seed}.parquet", rows_of(seed))
    index = zb.build_index(folder, INDEXED, rows_per_zone=ROWS_PER_ZONE)
    return Lake(index, pads.dataset(folder), f"{folder}/*.parquet")


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """The lake that all tests but a few only read."""
    return plain_lake(tmp_path_factory.mktemp("engines") / "lake")


# --- conditions -------------------------------------------------------------------------------------------------------


ALL = frozenset({"pyarrow", "duckdb", "relation", "datafusion", "polars", "polars dataset"})
NOBODY: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Condition:
    """One condition in each language; engines of SQL do not have one that is left out."""

    of: Callable[[Callable[..., Any]], Any]
    """The condition by pyarrow, of its `field`, and by Polars, of its `col`."""
    sql: str | None = None
    prunes: frozenset[str] = ALL
    """The engines that hand over enough of it."""
    keys: tuple[str, list[Any]] | None = None
    """For `semi_join`: a column and values that are equivalent."""
    in_polars: pl.Expr | None = None
    """If Polars spells it in another way."""

    @property
    def arrow(self) -> pc.Expression:
        return self.of(pc.field)

    @property
    def polars(self) -> pl.Expr:
        return self.of(pl.col) if self.in_polars is None else self.in_polars


F, C = pc.field, pl.col
SOME = [7, 901, 100_203, 999_999]
LONG = [number * 100_000_000 + 3 for number in range(300)] + [42]
TIME = dt.datetime(2020, 1, 1, 0, 0, 42)  # noqa: DTZ001 - a local time
DAY, CENTS = dt.date(2020, 2, 12), decimal.Decimal("10.50")

CONDITIONS = {
    "everything": Condition(lambda _: pc.scalar(True), "true", NOBODY, in_polars=pl.lit(True)),
    "present": Condition(lambda c: c("id") == 42, "id = 42", keys=("id", [42])),
    "absent": Condition(lambda c: c("id") == -1, "id = -1", keys=("id", [-1])),
    "few": Condition(
        lambda c: c("id").isin(SOME), f"id IN {tuple(SOME)}", keys=("id", SOME), in_polars=C("id").is_in(SOME)
    ),
    "many": Condition(
        lambda c: c("id").isin(LONG),
        f"id IN {tuple(LONG)}",
        ALL - {"polars dataset"},
        ("id", LONG),
        C("id").is_in(LONG),
    ),
    "text": Condition(lambda c: c("text") == "text 42", "text = 'text 42'", keys=("text", ["text 42"])),
    "null": Condition(lambda c: c("text").is_null(), "text IS NULL"),
    "zero": Condition(lambda c: c("number") == 0.0, "number = 0", keys=("number", [0.0])),
    "single zero": Condition(
        lambda c: c("single") == pa.scalar(-0.0, pa.float32()), "single = 0", in_polars=C("single") == 0
    ),
    "zeros": Condition(
        lambda c: c("number").isin([0.0, 5.0]),
        "number IN (0, 5)",
        ALL - {"pyarrow", "polars dataset"},
        in_polars=C("number").is_in([0.0, 5.0]),
    ),
    "nan": Condition(lambda c: c("number") == NAN, "number = cast('nan' AS double)", NOBODY),
    "nan among others": Condition(
        lambda c: c("number").isin([NAN, 5.0]), None, NOBODY, ("number", [NAN, 5.0]), C("number").is_in([NAN, 5.0])
    ),
    "float": Condition(
        lambda c: c("single") == pa.scalar(5.25, pa.float32()),
        "single = 5.25",
        ALL - {"datafusion"},
        in_polars=C("single") == 5.25,
    ),
    "no float": Condition(lambda c: c("single") == 0.1, "single = 0.1", ALL - {"pyarrow", "datafusion"}),
    "decimal": Condition(
        lambda c: c("amount") == CENTS, "amount = 10.5", ALL - {"polars dataset"}, ("amount", [CENTS])
    ),
    "day": Condition(lambda c: c("day") == DAY, f"day = date '{DAY}'", keys=("day", [DAY])),
    "time": Condition(lambda c: c("moment") == TIME, f"moment = timestamp '{TIME}'", keys=("moment", [TIME])),
    "bytes": Condition(lambda c: c("raw") == b"00000042", None, ALL - {"polars dataset"}, keys=("raw", [b"00000042"])),
    "leaf": Condition(
        lambda c: c("nested", "leaf") == 42,
        "nested['leaf'] = 42",
        frozenset({"pyarrow", "polars"}),
        in_polars=C("nested").struct.field("leaf") == 42,
    ),
    "and": Condition(lambda c: (c("id") == 42) & (c("number") > 0), "id = 42 AND number > 0"),
    "or": Condition(lambda c: (c("id") == 42) | (c("text") == "text 43"), "id = 42 OR text = 'text 43'"),
    "or unindexed": Condition(lambda c: (c("id") == 42) | (c("row") == 3), "id = 42 OR row = 3", NOBODY),
    "not": Condition(lambda c: ~(c("id") == 42), "NOT id = 42", NOBODY),
    "range": Condition(lambda c: (c("number") < 30) & (c("number") > 20), "number < 30 AND number > 20", NOBODY),
    "function": Condition(
        lambda c: pc.utf8_upper(c("text")) == "TEXT 42",
        "upper(text) = 'TEXT 42'",
        NOBODY,
        in_polars=C("text").str.to_uppercase() == "TEXT 42",
    ),
    "cast": Condition(
        lambda c: c("id").cast(pa.string()) == "42",
        "cast(id AS varchar) = '42'",
        frozenset({"datafusion"}),
        in_polars=C("id").cast(str) == "42",
    ),
}


# --- engines ----------------------------------------------------------------------------------------------------------


def shown(rows: list[dict[str, Any]]) -> list[str]:
    """Rows as texts, in order: so NaN equals NaN, and the zeros differ."""
    return sorted(repr([(name, row[name]) for name in sorted(row)]) for row in rows)


def in_pyarrow(data: pads.Dataset, where: Condition) -> list[dict[str, Any]]:
    return data.to_table(filter=where.arrow).to_pylist()


def in_duckdb(data: pads.Dataset, where: Condition) -> list[dict[str, Any]]:
    connection = duckdb.connect()
    connection.register("lake", data)
    return connection.sql(f"SELECT * FROM lake WHERE {where.sql}").to_arrow_table().to_pylist()


def in_datafusion(data: pads.Dataset, where: Condition) -> list[dict[str, Any]]:
    context = datafusion.SessionContext()
    context.register_dataset("lake", data)
    return context.sql(f"SELECT * FROM lake WHERE {where.sql}").to_arrow_table().to_pylist()


def in_polars_dataset(data: pads.Dataset, where: Condition) -> list[dict[str, Any]]:
    return pl.scan_pyarrow_dataset(data).filter(where.polars).collect().to_dicts()


DATASET_ENGINES: dict[str, Callable[[pads.Dataset, Condition], list[dict[str, Any]]]] = {
    "pyarrow": in_pyarrow,
    "duckdb": in_duckdb,
    "datafusion": in_datafusion,
    "polars dataset": in_polars_dataset,
}


def conditions_for(engine: str) -> dict[str, Condition]:
    """Those that the engine can say."""
    language = {"pyarrow": "arrow", "polars": "polars", "polars dataset": "polars"}.get(engine, "sql")
    return {name: condition for name, condition in CONDITIONS.items() if getattr(condition, language) is not None}


@pytest.fixture
def rows_read(monkeypatch):
    """By file and row group, how many rows were read of some column since it was last cleared."""
    counts: dict[tuple[str, int], int] = {}
    read = DataFile.read_rows

    @functools.wraps(read)
    def spied(self, group, starts, stops, columns, **options):
        num_rows = int((np.asarray(stops) - np.asarray(starts)).sum())
        counts[self._path, group] = max(num_rows, counts.get((self._path, group), 0))
        return read(self, group, starts, stops, columns, **options)

    monkeypatch.setattr(DataFile, "read_rows", spied)
    return counts


@pytest.mark.parametrize("engine", DATASET_ENGINES)
def test_a_dataset_gives_just_the_unpruned_rows(lake, engine, rows_read):
    ours, run = lake.index.dataset(), DATASET_ENGINES[engine]
    for name, where in conditions_for(engine).items():
        expected = shown(run(lake.plain, where))
        rows_read.clear()
        assert shown(run(ours, where)) == expected, name
        kept, total = ours.last_scan.kept, ours.last_scan.total
        assert total.rows == lake.num_rows
        assert (kept.rows < total.rows) == (engine in where.prunes), name
        assert sum(rows_read.values()) <= kept.rows, name


@pytest.mark.parametrize("streams", [False, True], ids=["in-memory", "streaming"])
def test_polars_gives_just_what_it_gives_over_plain_files(lake, rows_read, streams):
    engine = "streaming" if streams else "in-memory"
    ours = scan(lake.index)
    plain = pl.from_arrow(lake.plain.to_table()).lazy()
    for name, where in conditions_for("polars").items():
        expected = shown(plain.filter(where.polars).collect().to_dicts())
        rows_read.clear()
        assert shown(ours.filter(where.polars).collect(engine=engine).to_dicts()) == expected, name
        assert "polars" in where.prunes or not rows_read, f"{name}: Polars itself reads where nothing is excluded"
        assert sum(rows_read.values()) < lake.num_rows, name


def in_plain_duckdb(connection: duckdb.DuckDBPyConnection, lake: Lake) -> duckdb.DuckDBPyRelation:
    """The plain rows, as DuckDB's own reader gives them."""
    frame = connection.sql(f"SELECT * FROM read_parquet('{lake.parquet}', union_by_name = true)")
    return frame.select(*lake.index.dataset().schema.names)


def answer(of_duckdb: duckdb.DuckDBPyRelation) -> list[str]:
    return shown(of_duckdb.to_arrow_table().to_pylist())


def row_groups_read(of_duckdb: duckdb.DuckDBPyRelation) -> int:
    """Row groups that DuckDB's own reader scanned."""
    return sum(int(text) for text in re.findall(r"Row Groups Scanned: (\d+) /", of_duckdb.explain("analyze")))


def num_row_groups(lake: Lake) -> int:
    return sum(fragment.num_row_groups for fragment in lake.plain.get_fragments())


def test_a_relation_gives_just_what_duckdb_gives_over_all_rows(lake, rows_read):
    """A table of its own has them: over files DuckDB 2.0 loses those with NaN."""
    connection = duckdb.connect()
    in_plain_duckdb(connection, lake).create("plain")
    plain = connection.table("plain")
    for name, where in conditions_for("relation").items():
        expected = answer(plain.filter(where.sql))
        rows_read.clear()
        ours = relation(connection, lake.index, where.sql)
        assert answer(ours) == expected, name
        if "relation" in where.prunes:
            assert sum(rows_read.values()) < lake.num_rows, name
            assert row_groups_read(ours) < num_row_groups(lake), name


def test_a_semi_join_gives_just_what_duckdb_gives_over_plain_files(lake, rows_read):
    connection = duckdb.connect()
    plain = in_plain_duckdb(connection, lake)
    for name, where in CONDITIONS.items():
        if where.keys is None:
            continue
        column, values = where.keys
        keys = connection.from_arrow(pa.table({"k": [*values, None, values[0]]}))
        expected = answer(plain.set_alias("a").join(keys.set_alias("b"), f"a.{column} = b.k", how="semi"))
        rows_read.clear()
        ours = semi_join(connection, lake.index, column, keys)
        assert answer(ours) == expected, name
        if NAN not in values:
            assert sum(rows_read.values()) < lake.num_rows, name
            assert row_groups_read(ours) < num_row_groups(lake), name


# --- DuckDB -----------------------------------------------------------------------------------------------------------


def test_duckdb_reads_a_dataset_by_name_in_joins_and_in_ctes(lake):
    connection = duckdb.connect()
    events = register_in_duckdb(connection, "events", lake.index)
    local = lake.index.dataset()  # a replacement scan finds it by the name of the variable
    with pytest.raises(ValueError, match="no engine has scanned this data set yet; run a query first"):
        _ = local.last_scan
    joined = "WITH found AS (SELECT * FROM events WHERE id = 42) SELECT e.row FROM events e JOIN found USING (id)"
    alone = connection.sql("SELECT row FROM local WHERE id = 42").fetchall()
    assert connection.sql(joined).fetchall() == alone
    assert local.last_scan.kept.rows == ROWS_PER_ZONE
    assert events.last_scan.total.rows == 2 * NUM_ROWS
    assert connection.sql("SELECT count(*) FROM events WHERE nested.leaf = 42").fetchall() == [(1,)]
    assert events.last_scan.kept.rows == ROWS_PER_ZONE


def test_duckdb_prunes_a_lake_of_views_which_datafusion_writes(tmp_path):
    """DuckDB 2.0 hands no filter at all to a data set that has a column of views."""
    context = datafusion.SessionContext()
    write(tmp_path, "source.parquet", rows_of(0).select(["id", "text"]))
    (tmp_path / "lake").mkdir()
    for number in range(2):
        source = context.read_parquet(str(tmp_path / "source.parquet"))
        source.write_parquet(str(tmp_path / "lake" / f"{number}.parquet"))
    assert pq.read_schema(tmp_path / "lake" / "0.parquet").field("text").type == pa.string_view()
    index = zb.build_index(tmp_path / "lake", ["id", "text"], rows_per_zone=ROWS_PER_ZONE)
    connection = duckdb.connect()
    events = register_in_duckdb(connection, "events", index)
    assert connection.sql("SELECT text FROM events WHERE id = 42").fetchall() == [("text 42",)] * 2
    assert events.last_scan.kept.rows == 2 * ROWS_PER_ZONE
    assert connection.sql("SELECT id FROM events WHERE text = 'text 42'").fetchall() == [(42,)] * 2
    assert events.last_scan.kept.rows == 2 * ROWS_PER_ZONE
    assert relation(connection, index, "text = 'nobody'").fetchall() == []
    assert row_groups_read(relation(connection, index, "text = 'nobody'")) == 0
    assert events.head(3).num_rows == 3
    assert index.to_table("id = 42").field("text").type == pa.string_view()


def test_labels_of_an_enum_that_no_row_has_do_not_move_the_others(tmp_path):
    """DuckDB writes the same empty text for each, and pyarrow 26 drops repeated values of a dictionary."""
    duckdb.sql(f"COPY (SELECT 'cc'::ENUM('aa', 'bb', 'cc', 'dd') AS label FROM range(300)) TO '{tmp_path}/a.parquet'")
    index = zb.build_index(tmp_path, "label")
    assert [index.to_table(f"label = '{label}'").num_rows for label in ("bb", "cc", "dd")] == [0, 300, 0]


def test_folders_of_another_type_than_the_open_frame_has_are_told(tmp_path):
    for day in ("01", "02"):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(pa.table({"k": [int(day)]}), tmp_path / f"day={day}" / "f.parquet")
    index = zb.build_index(tmp_path, "k")
    frame = scan(index)
    shutil.copytree(tmp_path / "day=01", tmp_path / "day=x")
    index.refresh()
    with pytest.raises(DataFileError, match=r"must keep .*int32.*, got .*string.*; open it again"):
        frame.collect()


def test_times_that_polars_does_not_have_are_not_read_by_its_own_reader(tmp_path):
    """Of INT96 beyond nanoseconds Polars 2.1 makes the last of them, a day of 2262."""
    for year in (2262, 9999):
        path = tmp_path / str(year) / "a.parquet"
        path.parent.mkdir()
        times = pa.array([dt.datetime(year, 1, 1)], pa.timestamp("us"))  # noqa: DTZ001 - local
        pq.write_table(pa.table({"id": [1], "t": times}), path, use_deprecated_int96_timestamps=True)
        lake = scan(zb.build_index(path.parent, "id"))
        if year == 2262:
            assert lake.collect()["t"].to_list() == times.to_pylist()
        else:
            with pytest.raises(DataFileError, match="times of INT96"):
                lake.collect()


def test_keys_that_duckdb_hands_to_no_dataset_prune_a_semi_join(lake):
    connection = duckdb.connect()
    keys = connection.sql(f"SELECT '{uuid.UUID(int=42)}' AS k")
    rows = semi_join(connection, lake.index, "key", keys)
    assert rows.select("id").fetchall() == [(42,)]
    assert row_groups_read(rows) == 1
    leaves = semi_join(connection, lake.index, "nested.leaf", connection.sql("SELECT 42"))
    assert leaves.select("id").fetchall() == [(42,)]
    assert row_groups_read(leaves) == 1


def test_equal_texts_of_a_collation_are_all_found(lake):
    connection = duckdb.connect()
    connection.execute("SET default_collation = 'NOCASE'")
    keys = connection.sql("SELECT 'TEXT 42' AS k")
    assert semi_join(connection, lake.index, "text", keys).select("id").fetchall() == [(42,)]
    assert relation(connection, lake.index, "text = 'TEXT 42'").select("id").fetchall() == [(42,)]
    register_in_duckdb(connection, "events", lake.index)
    assert connection.sql("SELECT id FROM events WHERE text = 'TEXT 42'").fetchall() == [(42,)]


def test_a_lake_in_an_object_store_is_read_through_the_index(s3, tmp_path):
    pq.write_table(pa.table({"id": range(100)}), tmp_path / "a.parquet")
    index = zb.build_index(s3.upload(tmp_path, "lake"), "id", rows_per_zone=8, storage_options=s3.options)
    connection = duckdb.connect()
    for where, num_rows in (("id = 3", 1), ("id >= 0", 100)):
        assert len(relation(connection, index, where).fetchall()) == num_rows
    assert semi_join(connection, index, "id", connection.sql("SELECT 3")).fetchall() == [(3,)]
    for condition, num_rows in ((C("id") == 3, 1), (C("id") >= 0, 100)):
        assert scan(index).filter(condition).collect().height == num_rows


def test_a_condition_that_duckdb_refuses_is_its_own_error(lake):
    with pytest.raises(duckdb.BinderException, match="nothing"):
        relation(duckdb.connect(), lake.index, "nothing = 3").fetchall()


@pytest.mark.parametrize("name", ["a*b.parquet", "it's.parquet"])
def test_file_names_mean_only_themselves(tmp_path, name):
    write(tmp_path / "lake", name, rows_of(0))
    write(tmp_path / "lake", "aXb.parquet", rows_of(1))
    index = zb.build_index(tmp_path / "lake", "id", rows_per_zone=ROWS_PER_ZONE)
    for key in (42, 100_042):
        assert relation(duckdb.connect(), index, f"id = {key}").select("id").fetchall() == [(key,)]


@pytest.mark.parametrize(
    "folders",
    [["p=x", r"p=\N", r"p=a\b", "p=a=b", "p=%E9", "p=it's", "p=NULL"], ["x=1/x=2", "x=3"], ["p=1/q=2", "q=3"]],
)
def test_a_relation_has_the_partition_values_of_the_index(tmp_path, folders):
    """DuckDB reads some names of folders otherwise, and refuses others."""
    for number, folder in enumerate(folders):
        write(tmp_path, f"{folder}/a.parquet", pa.table({"id": [2 * number, 2 * number + 1]}))
    write(tmp_path, f"{folders[0]}/b.parquet", pa.table({"id": range(100, 2000)}))
    index, connection = zb.build_index(tmp_path, "id", rows_per_zone=1), duckdb.connect()
    rows = index.to_table("id >= 0")
    *_, key = rows.column_names
    wheres = ["id = 3", "id IN (0, 1999)", "id >= 0", f"{key} IS NULL", *(f"id = {2 * i}" for i in range(len(folders)))]
    texts = {str(value) for value in rows[key].to_pylist() if value is not None}
    wheres += [f"{key} = '{text.replace(chr(39), chr(39) * 2)}'" for text in texts]
    for where in wheres:
        expected = shown(index.to_table(where).to_pylist())
        ours = relation(connection, index, where)
        assert answer(ours) == expected, where
        keys = connection.from_arrow(index.to_table(where).select(["id"]))
        assert answer(semi_join(connection, index, "id", keys)) == expected, where
    assert row_groups_read(relation(connection, index, "id = 3")) == 1


def test_columns_of_a_relation_have_the_types_of_all_files(tmp_path):
    """Also where the files that are read hold narrower ones: 0.1 equals the float 0.1, and not the double of it."""
    narrow = {"id": pa.array([1], pa.int32()), "x": pa.array([0.1], pa.float32()), "s": [{"a": 1}], "n": pa.nulls(1)}
    wide = {"id": [2], "x": [0.1], "s": [{"a": 1, "b": 2}], "n": ["text"], "new": [dt.date(2020, 1, 1)]}
    narrow["bytes"], wide["bytes"] = ["\\x41 é"], [b"\xff"]  # a cast of such a text to bytes has A for \\x41, or fails
    same = {"half": pa.array([np.float16(1.5)]), "took": pa.array([3], pa.duration("us"))}
    same |= {"pair": pa.array([[1, 2]], pa.list_(pa.int64(), 2))}
    for number, columns in enumerate((narrow, wide)):
        pq.write_table(pa.table({**columns, **same}), tmp_path / f"{number}.parquet")
    index = zb.build_index(tmp_path, "id")
    connection = duckdb.connect()
    plain = connection.read_parquet(f"{tmp_path}/*.parquet", union_by_name=True)
    for where in ("id = 1", "id = 2", "id = -1", "id = 1 AND x = 0.1", "id = 1 AND s.b IS NULL", "id IN (1, 2)"):
        ours = relation(connection, index, where)
        assert dict(zip(ours.columns, ours.types, strict=True)) == dict(zip(plain.columns, plain.types, strict=True))
        assert answer(ours) == answer(plain.filter(where)), where
    assert row_groups_read(relation(connection, index, "id = -1")) == 0


def test_more_files_than_are_read_apart(tmp_path):
    for number in range(70):
        rows = pa.table({"id": [7, *range(number * 10, number * 10 + 9)]})
        pq.write_table(rows, tmp_path / f"{number:02}.parquet", row_group_size=5)
    index = zb.build_index(tmp_path, "id", rows_per_zone=5)
    assert relation(duckdb.connect(), index, "id = 7").aggregate("count(*)").fetchall() == [(71,)]


@pytest.mark.parametrize("where", ["isnan(f)", "f > 5", "NOT f <= 1", "row = 1 OR isnan(s.f)", "list_max(fs) > 5"])
def test_a_relation_has_rows_with_nan_that_duckdb_loses_over_plain_files(tmp_path, where):
    """Bounds leave NaN out; where they hold for all files, DuckDB 2.0 takes a condition for false."""
    floats = [0.0, NAN, 1.0]
    for number in range(2):
        structs, lists = [{"f": value} for value in floats], [[value] for value in floats]
        rows = {"row": [0, 1, 2], "f": floats, "s": structs, "fs": lists}
        pq.write_table(pa.table(rows), tmp_path / f"{number}.parquet")
    connection = duckdb.connect()
    found_rows = relation(connection, zb.build_index(tmp_path, "row"), where).project("row").fetchall()
    assert found_rows == [(1,), (1,)]
    keys = connection.sql("SELECT 'nan'::DOUBLE AS k")
    assert semi_join(connection, zb.open_index(tmp_path), "f", keys).project("row").fetchall() == [(1,), (1,)]


def test_a_later_relation_opens_no_file_that_cannot_match(tmp_path):
    for number in range(2):
        pq.write_table(pa.table({"id": [number]}), tmp_path / f"{number}.parquet")
    index, connection = zb.build_index(tmp_path, "id"), duckdb.connect()
    assert relation(connection, index, "id = 0").fetchall() == [(0,)]
    other = tmp_path / "1.parquet"
    before = other.stat()
    other.write_bytes(bytes(before.st_size))
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert relation(connection, index, "id = 0").fetchall() == [(0,)]
    with pytest.raises(duckdb.Error, match="magic bytes"):
        relation(duckdb.connect(), index, "id = 0")


def test_a_semi_join_by_one_of_two_columns_that_differ_in_case(tmp_path):
    pq.write_table(pa.table({"k": [1, 2, 3], "K": [4, 1, 6]}), tmp_path / "a.parquet")
    index, connection = zb.build_index(tmp_path, ["k", "K"]), duckdb.connect()
    for column, expected in (("k", (1, 4)), ("K", (2, 1))):
        assert semi_join(connection, index, column, connection.sql("SELECT 1")).fetchall() == [expected]


def test_a_column_without_a_name(tmp_path):
    pq.write_table(pa.table({"": range(100), "id": range(100)}), tmp_path / "a.parquet")
    index = zb.build_index(tmp_path, "id", index=tmp_path / "_index", rows_per_zone=8)
    connection = duckdb.connect()
    assert relation(connection, index, "id = 3").fetchall() == [(3, 3)]
    assert semi_join(connection, index, "id", connection.sql("SELECT 3")).fetchall() == [(3, 3)]
    assert scan(index).filter(pl.col("") == 3).select("").collect().rows() == [(3,)]


# --- the data set by itself -------------------------------------------------------------------------------------------


def test_every_way_to_scan_gives_the_same_rows(lake):
    ours, where = lake.index.dataset(), F("id").isin([42, 100_042])
    expected = lake.plain.to_table(filter=where, columns=["row", "text"])
    scanner = ours.scanner(columns=["row", "text"], filter=where)
    assert scanner.projected_schema == expected.schema
    for _ in range(2):
        assert scanner.to_table() == expected
    assert scanner.to_reader().read_all() == expected
    assert pa.table(scanner) == expected
    assert scanner.head(1) == expected.slice(0, 1)
    assert scanner.head(0).num_rows == 0
    assert scanner.take([1]) == expected.take([1])
    assert scanner.count_rows() == ours.count_rows(filter=where) == 2
    assert ours.filter(where).to_table(columns=["row", "text"]) == expected
    assert ours.filter(F("id") == 42).filter(F("row") < 0).count_rows() == 0
    assert pa.Table.from_batches(ours.to_batches(columns=["row", "text"], filter=where)) == expected
    for columns in (["row", "text"], {"twice": F("row") * 2}, []):
        nothing = {"columns": columns, "filter": F("id") == -1}
        assert pa.Table.from_batches(ours.to_batches(**nothing)) == lake.plain.to_table(**nothing)
    assert ours.to_table(filter=where).to_pandas()["row"].tolist() == expected["row"].to_pylist()
    doubled = {"twice": F("row") * 2}
    assert ours.to_table(columns=doubled, filter=where) == lake.plain.to_table(columns=doubled, filter=where)
    assert ours.to_table(columns={"one": pc.scalar(1)}, filter=where)["one"].to_pylist() == [1, 1]
    fragments = list(ours.get_fragments(filter=where))
    assert [fragment.path for fragment in fragments] == sorted(lake.plain.files) == ours.files
    for options in ({"filter": where}, {}, {"filter": F("number") > 3}):
        for mine, theirs in zip(fragments, lake.plain.get_fragments(), strict=True):
            assert shown(mine.to_table(**options).to_pylist()) == shown(theirs.to_table(**options).to_pylist())
            assert mine.count_rows(**options) == theirs.count_rows(**options)
            assert mine.head(1, **options).num_rows == 1
    row = pa.schema([expected.schema.field("row")])
    assert fragments[0].to_table(row, filter=where) == expected.select(["row"]).slice(0, 1)
    with pytest.raises(InvalidArgumentError, match="types of its data set, got int8 for row, a int64"):
        fragments[0].scanner(pa.schema([pa.field("row", pa.int8())]))


def test_counting_and_the_first_rows_read_no_more_than_they_need(lake, rows_read):
    ours = zb.open_index(lake.index.data.location).dataset()
    assert ours.count_rows() == 2 * NUM_ROWS
    assert not rows_read
    assert shown(ours.head(3).to_pylist()) == shown(lake.plain.head(3).to_pylist())
    assert list(rows_read.values()) == [500]


def test_a_dataset_sees_files_that_come_after_it(tmp_path):
    lake = plain_lake(tmp_path / "lake")
    ours = lake.index.dataset()
    write(tmp_path / "lake", "9.parquet", rows_of(9))
    for run in DATASET_ENGINES.values():
        where = Condition(lambda c: c("id") == 900_042, "id = 900042")
        assert [row["id"] for row in run(ours, where)] == [900_042]
    assert scan(lake.index).filter(C("id") == 900_042).collect().height == 1
    assert relation(duckdb.connect(), lake.index, "id = 900042").select("id").fetchall() == [(900_042,)]


def test_a_required_column_may_have_nulls_in_a_newer_file(tmp_path):
    """DataFusion takes IS NULL for false where a schema says that there are none."""
    required = pa.schema([pa.field("id", pa.int64()), pa.field("k", pa.string(), nullable=False)])
    pq.write_table(pa.table({"id": [1], "k": ["a"]}, schema=required), tmp_path / "a.parquet")
    index = zb.build_index(tmp_path, ["id", "k"])
    ours = index.dataset()
    pq.write_table(pa.table({"id": [2], "k": pa.array([None], pa.string())}), tmp_path / "b.parquet")
    for run in DATASET_ENGINES.values():
        assert [row["id"] for row in run(ours, Condition(lambda c: c("k").is_null(), "k IS NULL"))] == [2]
    pq.write_table(index.to_table("id > 0"), tmp_path / "copy.parquet")


def test_no_function_that_takes_data_sets_ends_the_process(tmp_path):
    """Each gives the rows or says what to pass on; in a child, as pyarrow ends the process where a pointer is null."""
    child = subprocess.run(
        [sys.executable, "-m", "tests.engines.takers", tmp_path], capture_output=True, text=True, check=False
    )
    ended = [json.loads(line) for line in child.stdout.splitlines()]
    assert child.returncode == 0, (child.stderr[-2000:], ended)
    for name, outcome, expected in ended:
        assert outcome == expected or (isinstance(expected, str) and re.search(expected, str(outcome))), name
    assert len(ended) == len(TAKERS)


def test_no_copy_of_a_dataset_is_made(lake):
    ours = lake.index.dataset()
    with pytest.raises(TypeError, match="send the path"):
        pickle.dumps(ours)
    with pytest.raises(TypeError, match="send its path"):
        pickle.dumps(next(ours.get_fragments()))
    with pytest.raises(TypeError, match="send its location"):
        pickle.dumps(lake.index)


def test_columns_are_named_or_told_by_their_places(lake):
    ours, by_place = lake.index.dataset(), pc.field(0) == 42
    with pytest.raises(zb.ZoneBloomError, match="did you mean text"):
        ours.to_table(columns=["txt"])
    for columns in (["text", 3], {"file": F("__filename")}, {"sum": F("text") + 1}, {"one": 1}):
        with pytest.raises(InvalidArgumentError, match="columns must be"):
            ours.to_table(columns=columns)
    assert ours.to_table(columns="text").num_columns == 1
    assert ours.to_table(filter=by_place) == lake.plain.to_table(filter=by_place)


def test_a_filter_reads_its_columns_where_no_pruning_needs_them(tmp_path):
    """DuckDB writes `small = 300` as `if_else(is_valid(small), false, null)`: pruning looks at `false` alone."""
    rows = pa.table({"id": [1, 2, 3], "small": pa.array([1, 2, None], pa.int8())})
    for part in range(2):
        write(tmp_path, f"part={part}/0.parquet", rows)
    index = zb.build_index(tmp_path, "id", rows_per_zone=1)
    plain, ours = pads.dataset(tmp_path, partitioning="hive"), index.dataset()
    for where in (
        pc.if_else(F("small") == 1, F("id") == 1, pa.scalar(None, pa.bool_())),
        pc.if_else(F("small") == 1, F("part") == 1, pa.scalar(None, pa.bool_())),
        ~pc.if_else(F("small").is_valid(), pa.scalar(False), pa.scalar(None, pa.bool_())) & (F("id") != 1),
    ):
        assert shown(ours.to_table(filter=where).to_pylist()) == shown(plain.to_table(filter=where).to_pylist())
        assert shown(index.to_table(where).to_pylist()) == shown(plain.to_table(filter=where).to_pylist())
    connection = duckdb.connect()
    register_in_duckdb(connection, "events", index)
    frame = connection.sql("SELECT id FROM events WHERE NOT (small = 300) AND id <> 1")
    assert frame.fetchall() == [(2,), (2,)]


# --- Polars and DataFusion --------------------------------------------------------------------------------------------


def test_polars_that_is_missing_is_named(lake, monkeypatch):
    monkeypatch.setitem(sys.modules, "polars.io.plugins", None)
    with pytest.raises(MissingDependencyError, match=r"zonebloom\[polars\]"):
        scan(lake.index)


def test_polars_limits_count_the_rows_before_the_filter(lake):
    ours, plain = scan(lake.index), pl.scan_parquet(lake.parquet)
    for ask in (
        lambda lazy: lazy.head(5).filter(C("id") == 42),
        lambda lazy: lazy.filter(C("id").is_in([42, 100_042])).head(1),
        lambda lazy: lazy.head(700).select("row"),
        lambda lazy: lazy.select(pl.len()),
        lambda lazy: lazy.filter(C("id") < 100).group_by(C("id") % 3).len().sort("id"),
        lambda lazy: lazy.sort("id").head(3).select("id", "text"),
    ):
        for engine in ("in-memory", "streaming"):
            assert ask(ours).collect(engine=engine).rows() == ask(plain).collect(engine=engine).rows()


def test_what_polars_cannot_decode_is_read_on_without_it_and_names_are_no_patterns(tmp_path):
    """Polars 2.1 decodes no delta byte arrays of fixed length; 18 folders are two plans; `*` is all columns."""
    rows = pa.table({"id": range(50), "*": range(50), "^i.*$": range(50), "raw": pa.array([b"ab"] * 50, pa.binary(2))})
    for number in range(18):
        (tmp_path / f"p={number}").mkdir()
        encoding = {"raw": "DELTA_BYTE_ARRAY"} if number == 16 else None
        pq.write_table(rows, tmp_path / f"p={number}" / "a.parquet", use_dictionary=False, column_encoding=encoding)
    index = zb.build_index(tmp_path, "id")
    for engine in ("in-memory", "streaming"):
        frame = scan(index).filter(C("id") > 5).collect(engine=engine)
        assert frame.equals(pl.from_arrow(index.dataset().to_table(filter=F("id") > 5)))


def test_polars_takes_over_null_vectors_of_zones(tmp_path):
    """Polars 2.1 refuses a slice of an Arrow array of a fixed-size list with nulls."""
    need("null_vectors_in_files")
    rows = pa.table({"id": range(4), "v": pa.array([[1, 2], None, [3, 4], None], pa.list_(pa.int64(), 2))})
    pq.write_table(rows, tmp_path / "a.parquet")
    index = zb.build_index(tmp_path, "id", rows_per_zone=1)
    kept = scan(index).filter(C("id").is_in([1, 2])).collect()
    assert kept["v"].to_list() == [None, [3, 4]]
    assert pl.from_arrow(index.to_table("id < 3", limit=2))["v"].to_list() == [[1, 2], None]


def test_what_polars_compares_in_types_that_arrow_lacks_or_in_coarser_units_loses_no_row(tmp_path):
    """Decimals are compared with integers of 128 bits, times in the coarser unit: both rows have that millisecond."""
    times = [dt.datetime(2020, 1, 1, microsecond=number, tzinfo=dt.UTC) for number in (0, 1)]
    frame = pl.DataFrame({"t": times, "d": [decimal.Decimal(1), decimal.Decimal(2)], "s": [{"x": 1}, {"x": 2}]})
    frame.write_parquet(tmp_path / "a.parquet", row_group_size=1)
    ours, plain = scan(zb.build_index(tmp_path, ["t", "d"], rows_per_zone=1)), pl.scan_parquet(tmp_path / "a.parquet")
    for condition, num_rows in (
        (C("d").is_in(pl.Series([1], dtype=pl.Int128).implode()), 1),
        (C("d") == pl.lit(1, pl.Int128), 1),
        (C("d").is_in(pl.lit(pl.Series([[1, 3]], dtype=pl.Array(pl.Decimal(38, 0), 2)))), 1),
        (C("s") == pl.lit({"x": 1}), 1),
        (C("t") == pl.lit(times[0], pl.Datetime("ms", "UTC")), 2),
        (C("t").eq_missing(pl.lit(times[0], pl.Datetime("ms", "UTC"))), 2),
    ):
        assert plain.filter(condition).collect().height == num_rows
        assert ours.filter(condition).collect().equals(plain.filter(condition).collect())


@pytest.mark.parametrize(
    ("kind", "told"), [(pa.timestamp("us", "+05:30"), r".*\+05:30"), (pa.decimal256(40, 2), "precision should be")]
)
def test_a_type_that_polars_does_not_have_is_an_error_of_ours(tmp_path, kind, told):
    pq.write_table(pa.table({"id": [1], "t": pa.array([0]).cast(kind)}), tmp_path / "a.parquet")
    with pytest.raises(UnsupportedTypeError, match=rf"types that Polars has, got {told}"):
        scan(zb.build_index(tmp_path, "id"))


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda numbers: numbers,
        lambda numbers: pa.ListArray.from_arrays(range(len(numbers) + 1), numbers),
        lambda numbers: pa.StructArray.from_arrays([numbers], ["x"]),
    ],
)
@pytest.mark.parametrize("is_new", [True, False])
def test_decimals_of_256_bits_lose_no_row_of_polars(tmp_path, wrapped, is_new):
    """Polars 2.1 panics at those in lists and structs, and ends its batches as if all rows were given."""
    files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    numbers = pa.array(range(5000))
    for path, kind in zip(files, (pa.decimal128(30, 2), pa.decimal256(30, 2)), strict=True):
        pq.write_table(pa.table({"id": numbers, "d": wrapped(numbers.cast(kind))}), path)
        if is_new and path == files[0]:
            zb.build_index(tmp_path, "id")
    ours = scan(tmp_path if is_new else zb.build_index(tmp_path, "id"))
    expected = [tuple(row.values()) for path in files for row in pq.read_table(path).to_pylist()]
    assert ours.collect().rows() == expected
    assert ours.filter(C("id") > 1).collect().rows() == [row for row in expected if row[0] > 1]
    assert ours.filter(C("id") == 7).collect().rows() == [row for row in expected if row[0] == 7]


def test_a_scan_without_a_condition_says_so(lake):
    dataset = lake.index.dataset()
    assert dataset.to_table(columns=["row"]).num_rows == 2 * NUM_ROWS
    (reason,) = dataset.last_scan.reasons
    assert reason.code == "PREDICATE_NOT_SUPPORTED"
    assert reason.message == "no condition was handed over, so every row is read"


LISTS_OF_SQL = (
    "s NOT IN ('a', 'b', 'c', 'd')",
    "NOT (s IN ('a', 'b', 'c', 'd') AND r < 9)",
    "s IN ('a', 'b', 'c', 'd') IS NULL",
    "(s IN ('a', 'b', 'c', 'd') OR r = 0) IS NOT NULL",
    "s NOT IN ('a', 'b', 'c', NULL)",
    "s IN ('a', 'b', 'c', NULL)",
    "(s IN ('a', 'b', 'c', NULL)) IS NULL",
    "x IN (0, 1, 2, 3)",
    "x NOT IN (0, 1, 2, 3)",
)


@pytest.mark.parametrize("where", LISTS_OF_SQL)
def test_datafusion_has_lists_of_sql(tmp_path, where):
    """It hands over four values and more as pyarrow's ``is_in``, which is false for null."""
    columns = {"r": range(5), "s": ["a", "b", None, "e", "b"], "x": [0.0, -0.0, None, 7.0, 1.0]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    context = datafusion.SessionContext()
    events = register_in_datafusion(context, "events", zb.build_index(tmp_path, ["s", "x"]))
    context.register_parquet("plain", str(tmp_path))
    wanted = context.sql(f"SELECT r FROM plain WHERE {where}").to_pydict().get("r", [])
    assert sorted(context.sql(f"SELECT r FROM events WHERE {where}").to_pydict().get("r", [])) == sorted(wanted)
    assert events.filter(pc.field("r") < 9).scanner(filter=pc.scalar(True)).count_rows() == 5


def test_datafusion_finds_a_registered_table(lake):
    context = datafusion.SessionContext()
    events = register_in_datafusion(context, "events", lake.index.data.location)
    assert context.sql("SELECT count(*) AS n FROM events").to_pydict() == {"n": [2 * NUM_ROWS]}
    assert context.sql("SELECT row FROM events WHERE id = -5").to_pydict() in ({}, {"row": []})
    assert events.last_scan.kept.rows == 0


@pytest.mark.parametrize(
    "query",
    [
        "SELECT row FROM events WHERE id = -5 ORDER BY row LIMIT 3",
        "SELECT row, rank() OVER (ORDER BY row) FROM events WHERE id = -5",
        "SELECT count(*) FROM events WHERE id = -5",
        "SELECT a.row FROM events a LEFT JOIN (SELECT * FROM events WHERE id = -5) b ON a.id = b.id WHERE a.id = 5",
    ],
)
def test_datafusion_answers_about_a_key_that_is_nowhere(lake, query):
    """DataFusion 55 fails at a plan that sorts no fragments; it gives FALSE as a scalar, which pyarrow refuses."""
    context, plain = datafusion.SessionContext(), datafusion.SessionContext()
    register_in_datafusion(context, "events", lake.index)
    plain.register_parquet("events", lake.parquet.rpartition("/")[0])
    assert context.sql(query).to_arrow_table().to_pylist() == plain.sql(query).to_arrow_table().to_pylist()
