"""Parquet files as each writer makes them, with random options."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path as Folder
from typing import Any

import datafusion
import duckdb
import fastparquet
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from tests.fuzz.columns import Column
from tests.newer import has

DUCKDB = duckdb.connect(config={"threads": "1"})


_NULLABLE = {
    pa.int64(): pd.Int64Dtype(),
    pa.int32(): pd.Int32Dtype(),
    pa.int8(): pd.Int8Dtype(),
    pa.bool_(): pd.BooleanDtype(),
}
CODECS = ("none", "snappy", "gzip", "zstd", "lz4", "brotli")


def write_pyarrow(
    table: pa.Table, path: Folder, chance: random.Random, codecs: tuple[str, ...] = CODECS, **more: Any
) -> None:
    """With random options, and `more` in place of those."""
    options: dict[str, Any] = {"use_dictionary": chance.random() < 0.6}
    plain = [field for field in table.schema if "." not in field.name]  # pyarrow takes such a name for a path
    encodings = {
        field.name: chance.choice(encodings_of) for field in plain if (encodings_of := _encodings_of(field.type))
    }
    if not options["use_dictionary"] and encodings and chance.random() < 0.5:
        options["column_encoding"] = encodings
    if encodings and chance.random() < 0.6 and has("parquet_blooms"):
        options["bloom_filter_options"] = {name: {"ndv": 40, "fpp": 0.05} for name in encodings}
    options |= {
        "row_group_size": chance.choice((3, 7, 20, 1000)),
        "data_page_version": chance.choice(("1.0", "2.0")),
        "version": chance.choice(("1.0", "2.4", "2.6")),
        "compression": chance.choice(codecs),
        "data_page_size": chance.choice((1, 64, 1 << 20)),
        "write_batch_size": chance.choice((1, 3, 1024)),
        "write_page_index": chance.random() < 0.4,
        "write_statistics": chance.random() < 0.8,
        "store_schema": chance.random() < 0.7,
    }
    pq.write_table(table, path, **options | more)


def _encodings_of(arrow_type: pa.DataType) -> tuple[str, ...]:
    """Those of Parquet that pyarrow writes such values in, besides plain and dictionaries."""
    if pa.types.is_integer(arrow_type) and arrow_type.bit_width >= 32:
        return "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"
    if pa.types.is_floating(arrow_type):
        return ("BYTE_STREAM_SPLIT",)
    is_bytes = any(is_it(arrow_type) for is_it in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary))
    return ("DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY") if is_bytes else ()


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
    by_duckdb(table, path, codec=codec, parquet_version=version)


def by_duckdb(table: pa.Table, path: Folder, **options: Any) -> None:
    """With these options of COPY."""
    target, spelled = str(path).replace("'", "''"), "".join(f", {name} '{value}'" for name, value in options.items())
    with DUCKDB.cursor() as connection:
        connection.register("given", table)
        connection.execute(f"COPY given TO '{target}' (FORMAT parquet{spelled})")


def by_datafusion(table: pa.Table, path: Folder, **settings: Any) -> None:
    """With these settings of `datafusion.execution.parquet`."""
    context = datafusion.SessionContext()
    for name, value in settings.items():
        context.sql(f"SET datafusion.execution.parquet.{name} = {value}").collect()
    context.register_record_batches("given", [table.to_batches()])
    context.sql(f"COPY given TO '{path}' STORED AS parquet").collect()


def write_fastparquet(table: pa.Table, path: Folder, chance: random.Random) -> None:
    fastparquet.write(
        str(path),
        table.to_pandas(types_mapper=_NULLABLE.get),
        compression=chance.choice(("UNCOMPRESSED", "SNAPPY", "GZIP")),
        row_group_offsets=chance.choice((4, 100)),
        write_index=False,
        stats=True,
    )


def writers_of(columns: list[Column], num_rows: int) -> list[Callable[[pa.Table, Folder, random.Random], None]]:
    """Those that write such a table as it is."""
    kinds = {column.kind for column in columns}
    writers = [write_pyarrow] * 3
    if not kinds & {"dictionary"}:
        writers.append(write_polars)
    if not kinds & {"dictionary", "instant"} and len({column.name.casefold() for column in columns}) == len(columns):
        writers.append(write_duckdb)
    if kinds <= {"int64", "int32", "double", "text", "bool"} and num_rows:
        writers.append(write_fastparquet)
    return writers


def is_readable(path: Folder, num_rows: int) -> bool:
    try:
        return pq.ParquetFile(path).read(use_threads=False).num_rows == num_rows
    except (pa.ArrowException, OSError):
        return False
