"""Lakes and their lives: what every writer writes, asked through every entrance and in every way to read.

One case is one seed: a lake of awkward names and types, an index of some of its columns, and a life: files come, change
and go; refresh, optimize, vacuum, restore, other levels. After each event random conditions are asked. The oracle is
`conditions.truth_of` over the rows that pyarrow reads of the whole files. pyarrow 26 and DuckDB 2.0, asked over rows in
memory, must agree with it, or the finding is of the oracle.

`python -m tests.fuzz.lakes --seconds 600 --seed 1`
"""

from __future__ import annotations

import datetime as dt
import math
import os
import random
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from pathlib import Path as Folder
from typing import Any
from urllib.parse import quote

import duckdb
import fastparquet
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq

import zonebloom as zb
from tests.fuzz.children import FindingError, main, run_child
from tests.fuzz.conditions import (
    Condition,
    Path,
    as_expression,
    as_polars,
    as_sql,
    as_terms,
    is_nan,
    literals_of,
    random_condition,
    truth_of,
    value_of,
)
from zonebloom.engines import polars as through_polars
from zonebloom.errors import DataFileError

EVENTS = 4
QUESTIONS = 5
NAMES = (
    "k",
    "K",
    "a",
    "b.c",
    "select",
    "x y",
    'q"q',
    "it's",
    "naïve",
    "数",
    "%41",
    "a=b",
    "x.list.element",
    "_x",
    ".y",
    "é",
)
_EVENTS = ("write", "write", "rewrite", "delete", "refresh", "refresh", "optimize", "vacuum", "restore", "levels")
UTC = dt.UTC
_DUCKDB = duckdb.connect(config={"threads": "1"})


# --- columns ----------------------------------------------------------------------------------------------------------


def _text(chance: random.Random) -> str:
    return chance.choice(("", "a", "b", "A", "é", "e\u0301", "it's", "x" * 40, " ", "%", "0", "\\", "数", "NULL"))


KINDS: dict[str, tuple[pa.DataType, Callable[[random.Random], Any]]] = {
    "int64": (pa.int64(), lambda chance: chance.choice((*range(-2, 9), 2**31, 2**53 + 1, -(2**63), 2**63 - 1))),
    "int32": (pa.int32(), lambda chance: chance.choice((*range(-2, 9), 2**31 - 1))),
    "int8": (pa.int8(), lambda chance: chance.randrange(-3, 4)),
    "uint64": (pa.uint64(), lambda chance: chance.choice((*range(6), 2**63, 2**64 - 1))),
    "double": (pa.float64(), lambda chance: chance.choice((-1.5, -0.0, 0.0, 0.5, 1.0, 2.5, 1e300, 0.1))),
    "odd double": (pa.float64(), lambda chance: chance.choice((-0.0, 0.0, 1.0, float("nan"), float("inf")))),
    "float": (pa.float32(), lambda chance: chance.choice((-1.5, -0.0, 0.0, 0.5, 2.5))),
    "text": (pa.string(), _text),
    "large text": (pa.large_string(), _text),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), _text),
    "bytes": (pa.binary(), lambda chance: chance.choice((b"", b"a", b"\xff\x00", b"x" * 30))),
    "bool": (pa.bool_(), lambda chance: chance.random() < 0.5),
    "date": (pa.date32(), lambda chance: dt.date(2024, 1, chance.randrange(1, 9))),
    "time": (pa.timestamp("us"), lambda chance: dt.datetime(2024, 1, 1, 0, 0, 0, chance.choice((0, 1, 500_000)))),  # noqa: DTZ001 - local
    "instant": (pa.timestamp("us", "UTC"), lambda chance: dt.datetime(2024, 1, chance.randrange(1, 5), tzinfo=UTC)),
    "decimal": (pa.decimal128(9, 2), lambda chance: Decimal(chance.choice(("0", "1.5", "-2.25", "1234567.89")))),
}
NARROWER = {"int64": "int32", "int32": "int8", "double": "float"}
"""What an older file may have instead."""


@dataclass(frozen=True)
class Column:
    """One top-level column: a kind, or of a struct the kinds of its fields."""

    name: str
    kind: str
    fields: tuple[tuple[str, str], ...] = ()

    @property
    def type(self) -> pa.DataType:
        if self.fields:
            return pa.struct([(name, KINDS[kind][0]) for name, kind in self.fields])
        return pa.list_(pa.int64()) if self.kind == "list" else KINDS[self.kind][0]

    @property
    def leaves(self) -> dict[Path, str]:
        """What can be asked for: path and kind."""
        if self.kind == "list":
            return {}
        return {(self.name, name): kind for name, kind in self.fields} if self.fields else {(self.name,): self.kind}

    def value(self, chance: random.Random, num_values: int) -> Any:
        if chance.random() < 0.15:
            return None
        if self.fields:
            return {name: None if chance.random() < 0.1 else KINDS[kind][1](chance) for name, kind in self.fields}
        if self.kind == "list":
            return [chance.randrange(5) for _ in range(chance.randrange(3))]
        return KINDS[self.kind][1](random.Random(chance.randrange(num_values)))


def random_columns(chance: random.Random) -> list[Column]:
    names = chance.sample(NAMES, chance.randrange(2, 6))
    columns = [Column(name, chance.choice(list(KINDS))) for name in names]
    if chance.random() < 0.4:
        inner = chance.sample(("b", "c", "x y", "element", "D"), 2)
        kinds = chance.choices([one for one in KINDS if one not in ("dictionary", "odd double")], k=2)
        columns.append(Column(chance.choice(("s", "st ruct", "x")), "struct", tuple(zip(inner, kinds, strict=True))))
    if chance.random() < 0.3:
        columns.append(Column(chance.choice(("l", "list")), "list"))
    chance.shuffle(columns)
    return columns


# --- writers ----------------------------------------------------------------------------------------------------------


def write_pyarrow(table: pa.Table, path: Folder, chance: random.Random) -> None:
    codecs = ("none", "snappy", "gzip", "zstd", "lz4", "brotli")
    options: dict[str, Any] = {"use_dictionary": chance.random() < 0.6}
    plain = [one for one in table.schema if pa.types.is_integer(one.type) and one.type.bit_width >= 32]
    if not options["use_dictionary"] and plain and chance.random() < 0.5:
        options["column_encoding"] = {one.name: "DELTA_BINARY_PACKED" for one in plain}
    pq.write_table(
        table,
        path,
        row_group_size=chance.choice((3, 7, 20, 1000)),
        data_page_version=chance.choice(("1.0", "2.0")),
        version=chance.choice(("1.0", "2.4", "2.6")),
        compression=chance.choice(codecs),
        data_page_size=chance.choice((1, 64, 1 << 20)),
        write_batch_size=chance.choice((1, 3, 1024)),
        write_page_index=chance.random() < 0.4,
        write_statistics=chance.random() < 0.8,
        store_schema=chance.random() < 0.7,
        **options,
    )


def write_polars(table: pa.Table, path: Folder, chance: random.Random) -> None:
    pl.from_arrow(table).write_parquet(
        path,
        compression=chance.choice(("uncompressed", "snappy", "zstd", "lz4")),
        row_group_size=chance.choice((3, 20, None)),
        data_page_size=chance.choice((64, None)),
        statistics=chance.choice((True, False, "full")),
    )


def write_duckdb(table: pa.Table, path: Folder, chance: random.Random) -> None:
    codec, version = chance.choice(("uncompressed", "snappy", "zstd")), chance.choice(("V1", "V2"))
    with _DUCKDB.cursor() as connection:
        connection.register("given", table)
        target = str(path).replace("'", "''")
        connection.execute(f"COPY given TO '{target}' (FORMAT parquet, CODEC '{codec}', PARQUET_VERSION {version})")


def write_fastparquet(table: pa.Table, path: Folder, chance: random.Random) -> None:
    fastparquet.write(
        str(path),
        table.to_pandas(types_mapper=_NULLABLE.get),
        compression=chance.choice(("UNCOMPRESSED", "SNAPPY", "GZIP")),
        row_group_offsets=chance.choice((4, 100)),
        write_index=False,
        stats=True,
    )


def _nullable() -> dict[pa.DataType, Any]:
    import pandas as pd

    return {
        pa.int64(): pd.Int64Dtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.int8(): pd.Int8Dtype(),
        pa.bool_(): pd.BooleanDtype(),
    }


_NULLABLE = _nullable()


def writers_of(columns: list[Column], num_rows: int) -> list[Callable[[pa.Table, Folder, random.Random], None]]:
    """Those that write such a table as it is."""
    kinds = {column.kind for column in columns}
    found = [write_pyarrow] * 3
    if not kinds & {"dictionary"}:
        found.append(write_polars)
    if not kinds & {"dictionary", "instant"} and len({one.name.casefold() for one in columns}) == len(columns):
        found.append(write_duckdb)
    if kinds <= {"int64", "int32", "double", "text", "bool"} and num_rows:
        found.append(write_fastparquet)
    return found


def is_readable(path: Folder, num_rows: int) -> bool:
    try:
        return pq.ParquetFile(path).read(use_threads=False).num_rows == num_rows
    except (pa.ArrowException, OSError):
        return False


# --- a lake and its index ---------------------------------------------------------------------------------------------


@dataclass
class Case:
    """One life."""

    root: Folder
    chance: random.Random
    columns: list[Column]
    partition: tuple[str, tuple[Any, ...]] | None
    num_values: int
    clock: int = 0
    index: Any = None
    log: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, folder: Folder, seed: int) -> Case:
        chance = random.Random(seed)
        partition = None
        if chance.random() < 0.25:
            partition = chance.choice((("day", (1, 2, 30)), ("p q", ("x", "a b", "50%", "ü"))))
        return cls(folder / f"lake {seed}", chance, random_columns(chance), partition, chance.choice((5, 40)))

    # --- files --------------------------------------------------------------------------------------------------------

    def write(self, path: str) -> None:
        """A file of some rows, some columns of which may be narrower or not there."""
        chance, num_rows = self.chance, self.chance.choice((0, 1, 5, 12, 40))
        columns = [
            Column(one.name, NARROWER.get(one.kind, one.kind), one.fields) if chance.random() < 0.1 else one
            for one in self.columns
        ]
        if chance.random() < 0.15 and len(columns) > 1 and self.index is not None:
            columns.remove(chance.choice(columns))
        arrays = {one.name: [one.value(chance, self.num_values) for _ in range(num_rows)] for one in columns}
        table = pa.table({one.name: pa.array(arrays[one.name], one.type) for one in columns})
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        writer = chance.choice(writers_of(columns, num_rows))
        target.unlink(missing_ok=True)
        writer(table, target, chance)
        if not is_readable(target, num_rows):  # pyarrow 26 writes lists in pages of a byte that it cannot read
            pq.write_table(table, target)
        self.clock += 1
        when = 1_700_000_000_000_000_000 + 1001 * self.clock
        os.utime(target, ns=(when, when))
        self.log.append(f"{path}: {num_rows} rows by {writer.__name__}")

    def paths(self) -> list[str]:
        return sorted(path.relative_to(self.root).as_posix() for path in self.root.rglob("*.parquet"))

    def new_path(self) -> str:
        name = self.chance.choice(("a.parquet", "b b.parquet", "c%20.parquet", "ü.parquet", "e=f.parquet"))
        if self.partition is None:
            return name
        key, values = self.partition
        return f"{quote(key, safe=' ')}={quote(str(self.chance.choice(values)), safe=' ')}/{name}"

    def rows(self) -> list[tuple[str, int, dict[str, Any]]]:
        """Path, offset and values of all rows, in order."""
        names = [one.name for one in self.columns]
        found = []
        for path in self.paths():
            rows = pq.ParquetFile(self.root / path).read(use_threads=False).to_pylist()
            constant = {}
            if self.partition is not None:
                value = path.split("/")[0].split("=", 1)[1]
                constant[self.partition[0]] = next(
                    one for one in self.partition[1] if quote(str(one), safe=" ") == value
                )
            found += [(path, at, {name: row.get(name) for name in names} | constant) for at, row in enumerate(rows)]
        return found

    # --- life ---------------------------------------------------------------------------------------------------------

    def build(self) -> None:
        chance = self.chance
        leaves = [leaf for one in self.columns for leaf in one.leaves]
        chosen = chance.sample(leaves, min(len(leaves), chance.randrange(1, 4)))
        options: dict[str, Any] = {
            "rows_per_zone": chance.choice((1, 2, 5, 8)),
            "sizing": chance.choice(("power_of_two", "exact", "adaptive", "parquet")),
            "levels": (
                "zone",
                *chance.sample(("dataset", chance.choice(("fragment", "locator"))), chance.choice((0, 0, 1, 2))),
            ),
            "fpp": chance.choice((0.001, 0.2)),
        }
        self.log.append(f"index of {chosen}: {options}")
        self.index = zb.build_index(self.root, [".".join(one) for one in chosen], workers=1, **options)

    def event(self) -> None:
        """Something that happens to the lake or to the index."""
        chance, index = self.chance, self.index
        paths = self.paths()
        what = chance.choice(
            ("write", "write", "rewrite", "delete", "refresh", "refresh", "optimize", "vacuum", "restore", "levels")
        )
        self.log.append(what)
        if what == "write":
            self.write(self.new_path())
        elif what == "rewrite":
            self.write(chance.choice(paths))
        elif what == "delete" and len(paths) > 1:
            (self.root / chance.choice(paths)).unlink()
        elif what == "refresh":
            mode = chance.choice(("incremental", "incremental", "quick", "full"))
            index.refresh(mode, workers=1, commit_every=chance.choice((5, 10**9)))
        elif what == "optimize":
            index.optimize()
        elif what == "vacuum":
            index.vacuum(older_than=timedelta(0))
        elif what == "restore":
            index.restore(chance.choice(index.versions()).number)
        elif what == "levels":
            levels = ("zone", "locator") if chance.random() < 0.5 else ("zone",)
            index.refresh("full", levels=levels, workers=1)
        if chance.random() < 0.3:
            self.index = zb.open_index(self.root)

    # --- questions ----------------------------------------------------------------------------------------------------

    def ask(self) -> None:
        """Conditions over what is there."""
        placed = self.rows()
        rows = [row for _, _, row in placed]
        kinds = {leaf: kind for one in self.columns for leaf, kind in one.leaves.items()}
        known = set(self.index.schema.names)
        kinds = {leaf: kind for leaf, kind in kinds.items() if leaf[0] in known}
        pools = {leaf: self._pool(leaf, kind, rows) for leaf, kind in kinds.items()}
        types = {leaf: KINDS[kind][0] for leaf, kind in kinds.items()}
        types = {leaf: pa.string() if one == KINDS["dictionary"][0] else one for leaf, one in types.items()}
        if self.partition is not None:
            leaf = (self.partition[0],)
            pools[leaf] = list(self.partition[1])
            types[leaf] = pa.int32() if self.partition[0] == "day" else pa.string()
        for _ in range(QUESTIONS):
            condition = random_condition(self.chance, pools)
            wanted = [one for one in placed if truth_of(condition, one[2])]
            try:
                self._ask(condition, types, rows, wanted)
                self._ask_for_values(condition, rows)
            except DataFileError as error:  # until the refresh that makes the type wider
                if "must convert to the data set's type" not in str(error):
                    raise
            except Exception as error:
                error.add_note(f"condition {condition}")
                raise

    def _pool(self, leaf: Path, kind: str, rows: list[dict[str, Any]]) -> list[Any]:
        there = [value for value in (value_of(row, leaf) for row in rows[:20]) if value is not None]
        return [*there, *(KINDS[kind][1](self.chance) for _ in range(3))]

    def _ask(self, condition: Condition, types: dict[Path, Any], rows: list[Any], placed: list[Any]) -> None:
        chance, index = self.chance, self.index
        wanted = [row for _, _, row in placed]
        names = [name for name in (rows[0] if rows else {}) if name in index.schema.names]
        literals = literals_of(condition)
        values = [value for _, value in literals]
        there = [value_of(row, leaf) for leaf, _ in literals for row in rows]
        has_nan = any(is_nan(value) for value in (*values, *there))
        has_null = "None" in str(values) and "'in'" in str(condition)
        is_textual = not any(isinstance(value, float) and not math.isfinite(value) for value in values)
        entrances: list[Any] = [as_terms(condition)]
        if is_textual:
            entrances.append(as_sql(condition))
        if not has_null:
            entrances.append(as_expression(condition, types))
        entrance = chance.choice(entrances)
        found = index.to_table(entrance, columns=names or None).to_pylist()
        _assert_same(found, wanted, names, f"to_table({entrance})")
        ranges = index.search(entrance).to_arrow().to_pylist()
        kept = {(one["path"], row) for one in ranges for row in range(one["start"], one["stop"])}
        lost = {(path, offset) for path, offset, _ in placed} - kept
        if lost:
            raise FindingError(f"search({entrance}) must keep {sorted(lost)[:5]}")
        way = chance.choice(("", "arrow", "dataset", "polars", "duckdb"))
        if way == "arrow" and not has_null and rows:
            memory = pa.Table.from_pylist(rows, pa.schema([one for one in index.schema if one.name in rows[0]]))
            count = pads.dataset(memory).to_table(filter=as_expression(condition, types)).num_rows
            _assert_count(count, wanted, "pyarrow in memory (then the oracle is wrong)", condition)
        if way == "dataset" and not has_null:
            found = index.dataset().to_table(filter=as_expression(condition, types), columns=names).to_pylist()
            _assert_same(found, wanted, names, f"dataset {condition}")
        if way == "polars" and not has_nan:
            count = len(through_polars.scan(index).filter(as_polars(condition)).collect())
            _assert_count(count, wanted, "Polars", condition)
        is_odd = any(isinstance(value, bytes) or getattr(value, "tzinfo", None) for value in values)
        is_foldable = len({name.casefold() for name in index.schema.names}) == len(index.schema.names)
        if way == "duckdb" and is_textual and is_foldable and not (has_nan or is_odd):
            _assert_count(self._count_by_duckdb(condition, index.dataset()), wanted, "DuckDB", condition)
            memory = index.dataset().to_table()
            _assert_count(self._count_by_duckdb(condition, memory), wanted, "DuckDB in memory", condition)

    def _count_by_duckdb(self, condition: Condition, lake: Any) -> int:
        with _DUCKDB.cursor() as connection:
            connection.register("lake", lake)
            return int(connection.execute(f"SELECT count(*) FROM lake WHERE {as_sql(condition)}").fetchall()[0][0])

    def _ask_for_values(self, condition: Condition, rows: list[dict[str, Any]]) -> None:
        """`exists` and `locate` of the values of a condition, where the column is indexed."""
        for leaf, value in literals_of(condition)[:1]:
            name = ".".join(leaf)
            if value is None or is_nan(value) or name not in self.index.columns:
                continue
            count = sum(value_of(row, leaf) == value for row in rows)
            found = self.index.exists(name, [value], exact=True).to_pylist()
            if found != [bool(count)]:
                raise FindingError(f"exists({name}, {value!r}) must be {bool(count)}, got {found}")
            lines = self.index.locate(name, [value], exact=True).to_pylist()
            if sum(one["path"] is not None for one in lines) != count:
                raise FindingError(f"locate({name}, {value!r}) must find {count} rows, got {lines}")


def _assert_count(count: int, wanted: list[Any], engine: str, condition: Condition) -> None:
    if count != len(wanted):
        raise FindingError(f"{engine} must find {len(wanted)} rows of {condition}, got {count}")


def _assert_same(found: list[Any], wanted: list[Any], names: list[str], how: str) -> None:
    mine, other = ([repr([row.get(name) for name in names]) for row in rows] for rows in (found, wanted))
    if mine != other:
        lost, invented = [one for one in other if one not in mine], [one for one in mine if one not in other]
        message = f"{how} must find {len(other)} rows in order, got {len(mine)}"
        raise FindingError(f"{message}; lost {lost[:3]}, invented {invented[:3]}, of {names}")


def run_case(folder: Folder, seed: int) -> str:
    """One life; in a word how it ended."""
    case = Case.of(folder, seed)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            case.root.mkdir()
            for _ in range(case.chance.choice((1, 2, 3))):
                case.write(case.new_path())
            case.build()
            case.ask()
            for _ in range(EVENTS):
                case.event()
                case.ask()
    except Exception as error:
        error.add_note(f"columns {case.columns}, partition {case.partition}; life {case.log}")
        raise
    finally:
        for path in folder.iterdir():
            shutil.rmtree(path, ignore_errors=True)
    return "partitioned" if case.partition else "flat"


def run_as_child(folder: Folder, first: int, count: int, _options: list[str]) -> None:
    pa.set_cpu_count(1)
    for seed in range(3):  # warm
        run_case(folder, seed)
    run_child(first, count, lambda seed: run_case(folder, seed))


if __name__ == "__main__":
    main("tests.fuzz.lakes", run_as_child)
