"""Rounds of requests where an engine asks for a key: pyarrow, DuckDB, Polars, DataFusion and Spark's driver.

`python -m bench.doors`. As `bench.rounds`, behind `S3Proxy`. With `--log` the requests are printed round by round, and
nothing is saved.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from bench.harness import Result
from bench.rounds import ABSENT, COSTS, LATENCY, REPEATS, ROWS, ROWS_PER_FILE, Asker, Store, Truth
from bench.s3_proxy import S3Proxy
from bench.s3_subjects import Lake, Subject, Zonebloom
from tests.s3 import S3Server

FILES = 20


class PyArrow(Zonebloom):
    """`Index.dataset`."""

    def rows(self, keys: Sequence[int]) -> list[dict[str, Any]]:
        """As `Zonebloom.rows`."""
        import pyarrow.dataset as ds

        return self.index.dataset().to_table(filter=ds.field("key").isin(keys)).to_pylist()


class DuckDB(Zonebloom):
    """A view of the index."""

    def __init__(self, lake: Lake) -> None:
        import duckdb

        from zonebloom.engines.duckdb import register

        super().__init__(lake)
        self.connection = duckdb.connect()
        register(self.connection, "lake", self.index)

    def rows(self, keys: Sequence[int]) -> list[dict[str, Any]]:
        """As `Zonebloom.rows`."""
        return self.connection.sql(f"SELECT * FROM lake WHERE key = {keys[0]}").to_arrow_table().to_pylist()


class Polars(Zonebloom):
    """A scan of the index."""

    def rows(self, keys: Sequence[int]) -> list[dict[str, Any]]:
        """As `Zonebloom.rows`."""
        import polars as pl

        from zonebloom.engines.polars import scan

        return scan(self.index).filter(pl.col("key") == keys[0]).collect().to_dicts()


class DataFusion(Zonebloom):
    """A table of the index."""

    def __init__(self, lake: Lake) -> None:
        from datafusion import SessionContext

        from zonebloom.engines.datafusion import register

        super().__init__(lake)
        self.context = SessionContext()
        register(self.context, "lake", self.index)

    def rows(self, keys: Sequence[int]) -> list[dict[str, Any]]:
        """As `Zonebloom.rows`."""
        return self.context.sql(f"SELECT * FROM lake WHERE key = {keys[0]}").to_arrow_table().to_pylist()


class Spark:
    """A lake of Spark, whose driver reads few rows."""

    def __init__(self, lake: Lake) -> None:
        from pyspark.sql import SparkSession

        from zonebloom.spark import ZoneBloom

        spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
        self.lake = ZoneBloom(spark, storage_options=dict(lake.options)).read(lake.url)

    def rows(self, keys: Sequence[int]) -> list[dict[str, Any]]:
        """As `Zonebloom.rows`."""
        read = self.lake.prepare(f"key = {keys[0]}")
        assert read.method == "driver"
        return [row.asDict() for row in read.frame.collect()]


DOORS = {
    "zonebloom": Zonebloom,
    "pyarrow, Index.dataset": PyArrow,
    "DuckDB, by name": DuckDB,
    "Polars, scan": Polars,
    "DataFusion": DataFusion,
    "Spark, its driver": Spark,
}


def main() -> None:
    """Fill the bucket, build, ask and save."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    about = f"Behind a proxy that answers each request {LATENCY:g} s late. Medians of {REPEATS} runs. Read the rounds."
    result = Result("doors", about, packages=["moto", "obstore", "duckdb", "polars", "datafusion", "pyspark"])
    is_log = "--log" in sys.argv
    with ExitStack() as stack:
        server = S3Server()
        stack.callback(server.close)
        proxy = stack.enter_context(S3Proxy(server.url, LATENCY))
        store = Store(server.bucket("doors-of-the-bench"), proxy, None, is_log)
        truth = Truth.of(FILES, ROWS_PER_FILE)
        truth.fill(store.bucket, "lake")
        lake = store.indexed("lake", "locator")
        rows = []
        for name, opener in DOORS.items():
            opened = Asker(store, truth).opened(Subject(name, opener, lake), [ROWS, ABSENT])
            rows += [[name, question, *costs] for question, costs in opened.items()]
    note = "The index is open. Spark's driver looks for a new version of the index once a second: one request more."
    result.table(f"One key through engines, {FILES} files of {ROWS_PER_FILE:,} rows", ["", "", *COSTS], rows, note)
    for name, question, rounds, *_ in rows:
        result.target(f"{question}, {name}", rounds, 1 if question == ABSENT else 2, "rounds")
    if not is_log:
        result.save()


if __name__ == "__main__":
    main()
