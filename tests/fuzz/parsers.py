"""Parsers of bytes that others wrote: SQL text, serialized Expressions, Parquet files from their pages to their footer.

A case is a seed: one of `KINDS`, an example of it, and some changes. What is not understood must be refused by an error
of zonebloom's, in bounded time and memory. `python -m tests.fuzz.parsers --seconds 600`.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import zonebloom as zb
from tests.formats.page_costs import every_page_pays
from tests.fuzz.children import FindingError, check_memory, main, run_child
from tests.fuzz.conditions import as_expression, as_sql, random_condition
from tests.fuzz.index_files import mutated_bytes
from zonebloom.errors import ZoneBloomError
from zonebloom.formats.parquet.column_mapping import StoredName
from zonebloom.formats.parquet.file import DataFile
from zonebloom.predicates import parse_predicate
from zonebloom.predicates.arrow_pickle import UnreadableExpressionError, _metadata as entries_of, take_apart
from zonebloom.predicates.row_filter import to_expression
from zonebloom.stores.local_file import LocalFile

KINDS = (*("sql", "expression") * 2, *("file",) * 14, *("parquet",) * 2)
ROWS = 60
_COLUMNS = {("k",): [0, 1, 2**40], ("text",): ["", "it's"], ("s", "x"): [1.5, 1e300]}
_TYPES = {("k",): pa.int64(), ("text",): pa.string(), ("s", "x"): pa.float64()}
_SCHEMA = pa.schema([("k", pa.int64()), ("text", pa.string()), ("s", pa.struct([("x", pa.float64())]))])
_WORDS = (
    *("NOT", "AND", "OR", "IN", "IS", "NULL", "BETWEEN", "LIKE", "ESCAPE", "CAST", "AS", "(", ")", ",", "::", "<=>"),
    *("'", '"', "`", "\\", "X'0'", "DATE '2024-02-30'", "1e999", "-", "- -", "0x", "k", "s.x", "DECIMAL(99, -1)"),
    *("INTERVAL", "ARRAY[1]", "{}", "?", "@x", ":x", "DISTINCT FROM", "TRUE", "CASE WHEN", "SELECT", ";", "é", "1_0"),
    *("--", "/*", "\0", "\ud800", ".5", "5."),
)


# --- one input of each kind -------------------------------------------------------------------------------------------


def use_sql(text: str) -> str:
    """The condition is parsed and evaluated, or refused."""
    try:
        tree = parse_predicate(text)
        expression = to_expression(tree, _SCHEMA)
        with suppress(pa.ArrowException):  # of values: a scan says so
            pa.table([[1], ["x"], [{"x": 1.0}]], schema=_SCHEMA).filter(expression)
    except ZoneBloomError as error:
        return type(error).__name__
    return "understood"


class _Serialized:
    """What gives bytes as its serialized form."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __reduce__(self) -> Any:
        return None, (self.data,)


_BATCH = pa.record_batch([pa.array([1]), pa.array(["x"]), pa.array([{"x": 1.5, "set": [1]}])], ["0", "1", "2"])
"""Literals and options; damaged Arrow of an Expression would end in pyarrow's own reader, before it is one."""


def use_expression(data: bytes) -> str:
    """An Expression of the calls, fields and literals in `data`, a line each, is taken apart, or refused."""
    entries = [(key, value) for key, _, value in (line.partition(b" ") for line in data.split(b"\n"))]
    batch, sink = _BATCH.replace_schema_metadata(pa.KeyValueMetadata(entries)), pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    try:
        take_apart(_Serialized(sink.getvalue().to_pybytes()))  # type: ignore[arg-type]
    except UnreadableExpressionError:
        return "refused"
    return "understood"


def use_file(target: Path, data: bytes) -> str:
    """Each reader of one file is asked, some twenty times as many files in the time as through an index."""
    target.write_bytes(data)
    try:
        file = DataFile(LocalFile(target))
    except ZoneBloomError:
        return "refused"
    outcome = "read"
    with file:
        for use in (
            lambda: [file.row_group_bytes],
            lambda: [file.own_filters(leaf) for leaf in range(len(file.leaves))],
            lambda: [file.num_nulls(0, leaf) for leaf in range(len(file.leaves))],
            lambda: [(file.column_ranges(name), file.integer_range(0, name, pa.int64())) for name in file.schema.names],
            lambda: [file.read_rows(group, [3], [4], file.schema.names) for group in range(len(file.row_group_rows))],
            lambda: [file.read_rows(0, [0, 11], [2, 12], [name]) for name in file.schema.names],
            lambda: [len(batch) for batch in file.column_batches(file.schema.names, 0, file.num_rows)],
            lambda: check_new_names(target),
        ):
            try:
                use()
            except ZoneBloomError as error:
                check_memory(error)
                outcome = type(error).__name__
    return outcome


def check_new_names(target: Path) -> None:
    """Each name of the footer is replaced, or the footer is refused."""
    with DataFile(LocalFile(target), new_name) as file:
        if not all(name.endswith("_2") for name in file.schema.names):
            raise FindingError(f"all columns must have new names, got {file.schema.names}")


def new_name(stored: StoredName) -> str:
    return f"{stored.path[-1]}_2"


def use_parquet(lake: Path, data: bytes) -> str:
    """The file lies beside one that is indexed, and everything is asked of both."""
    target, output = lake / "b.parquet", lake.with_name("output")
    target.write_bytes(data)
    os.utime(target, ns=(10**18, 10**18 + len(data)))
    index, outcome = zb.open_index(lake), "read"
    for use in (
        lambda: index.to_table("k IN (1, 30)"),
        lambda: index.to_table("s.x >= 0", columns=["text"]),
        lambda: index.exists("k", [3, 10**6], exact=True),
        lambda: zb.parquet_blooms(target, column="k", value=7),
        lambda: zb.parquet_bloom(target, 0, "k"),
        lambda: zb.open_lake(target).search("k IN (7, 8)"),
        lambda: zb.add_parquet_blooms(target, output / "copy", "s.x"),
        lambda: zb.build_index(target, "k", adopt="parquet", index=output / "index", workers=1),
        lambda: index.refresh("full", workers=1),
        lambda: index.to_table(zb.IsIn("text", ["t1", "t40"])),
    ):
        try:
            use()
        except ZoneBloomError as error:
            check_memory(error)
            outcome = type(error).__name__
    shutil.rmtree(output, ignore_errors=True)
    return outcome


# --- examples ---------------------------------------------------------------------------------------------------------


def sql_of(chance: random.Random) -> str:
    """A condition, with words put in, taken out and changed."""
    words = as_sql(random_condition(chance, _COLUMNS)).replace("(", " ( ").replace(")", " ) ").split(" ")
    for _ in range(chance.choice((0, 1, 1, 2, 5))):
        place = chance.randrange(len(words) + 1)
        match chance.randrange(4):
            case 0:
                words.insert(place, chance.choice(_WORDS))
            case 1:
                del words[place : place + chance.choice((1, 2))]
            case 2:
                words[place : place + 1] = [chance.choice(_WORDS)] * chance.choice((1, 1, 3, 200))
            case 3:
                damaged = bytearray(" ".join(words).encode(errors="surrogatepass"))
                words = mutated_bytes(bytes(damaged[:2000]), chance).decode(errors="replace").split(" ")
    return " ".join(words)


def expression_of(chance: random.Random) -> bytes:
    """The lines of a condition's Expression, some of them changed."""
    condition = ("in", ("k",), [None])
    while "None" in str(condition):
        condition = random_condition(chance, _COLUMNS)
    expression: pc.Expression = as_expression(condition, _TYPES)
    schema = pa.ipc.open_file(expression.__reduce__()[1][0]).schema
    lines = [b" ".join(entry) for entry in entries_of(schema)]
    for _ in range(chance.choice((0, 1, 1, 2))):
        place = chance.randrange(len(lines))
        lines[place : place + 1] = chance.choice(
            ([], [lines[place]] * 2, [chance.choice(lines)], [mutated_bytes(lines[place], chance)])
        )
        lines = lines or [b"end "]
    return b"\n".join(lines)


@cache
def parquet_files() -> tuple[bytes, ...]:
    """Files with pages of both versions, indexes and filters."""
    values = {
        "k": range(ROWS),
        "text": [f"t{row}" for row in range(ROWS)],
        "s": [{"x": float(row)} for row in range(ROWS)],
    }
    table, actual = pa.table(values, schema=_SCHEMA), []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.parquet")
        for version in ("1.0", "2.0"):
            for options in ({"write_page_index": True, "use_dictionary": False}, {"compression": "none"}):
                small: dict[str, int] = {"row_group_size": 25, "data_page_size": 1, "write_batch_size": 5}
                pq.write_table(table, path, data_page_version=version, **small, **options)
                actual.append(path.read_bytes())
        pl.from_arrow(table).write_parquet(path, row_group_size=25)
        actual.append(path.read_bytes())
        zb.add_parquet_blooms(path, Path(folder, "with filters"), ["k", "text"])
        actual.append(Path(folder, "with filters", "x.parquet").read_bytes())
    return tuple(actual)


def parquet_of(chance: random.Random) -> bytes:
    """A file with some bytes changed: of its pages, of what lies between pages and footer, or of the footer."""
    data = chance.choice(parquet_files())
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    start, stop = chance.choice(((4, footer), (footer // 2, footer), (footer, len(data) - 8), (footer, len(data) - 8)))
    middle = mutated_bytes(data[start:stop], chance)
    tail = data[stop:]
    if stop > footer:  # the length of the footer is right again
        tail = len(middle).to_bytes(4, "little") + b"PAR1"
    return data[:start] + middle + tail


# --- by seed ----------------------------------------------------------------------------------------------------------


def made_lake(folder: Path) -> Path:
    """A lake of one file, indexed."""
    lake = folder / "lake"
    lake.mkdir()
    (lake / "a.parquet").write_bytes(parquet_files()[0])
    os.utime(lake / "a.parquet", ns=(10**18, 10**18))
    zb.build_index(lake, ["k", "text"], rows_per_zone=5, workers=1)
    return lake


def run_case(lake: Path, seed: int) -> str:
    """One case; kind and how it ended."""
    chance = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == "sql":
            return f"sql: {use_sql(sql_of(chance))}"
        if kind == "expression":
            return f"expression: {use_expression(expression_of(chance))}"
        if kind == "file":
            return f"file: {use_file(lake.with_name('one.parquet'), parquet_of(chance))}"
        return f"parquet: {use_parquet(lake, parquet_of(chance))}"


def run_as_child(folder: Path, first: int, count: int, _options: list[str]) -> None:
    pa.set_cpu_count(1)
    every_page_pays()
    lake = made_lake(folder)
    for seed in range(8):
        run_case(lake, seed)

    def run(seed: int) -> str:
        if seed % 200 == 0:  # versions add up
            shutil.rmtree(zb.open_index(lake).root)
            (lake / "b.parquet").unlink(missing_ok=True)
            zb.build_index(lake, ["k", "text"], rows_per_zone=5, workers=1)
        return run_case(lake, seed)

    run_child(first, count, run, reserved_bytes=3 << 30)  # a page may claim 2 GiB, which pyarrow allocates and leaves


if __name__ == "__main__":
    main("tests.fuzz.parsers", run_as_child)
