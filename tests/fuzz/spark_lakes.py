"""The lives of `lakes` as Spark's users have them: Spark writes files, and each condition is asked through Spark.

Spark 4.3 writes files with its own partitions and timestamps (INT96), beside files of pyarrow. Rows are compared with
those of the source's own reader, by `conditions.truth_of`. One job asks all conditions of an event. Of files, the row
ranges of `search` must have each matching row.

`python -m tests.fuzz.spark_lakes --seconds 600 --seed 1`
"""

from __future__ import annotations

import datetime as dt
import random
import shutil
from dataclasses import replace
from functools import reduce
from pathlib import Path as Folder
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from tests.fuzz import lakes
from tests.fuzz.children import FindingError, main, run_child
from tests.fuzz.columns import Column
from tests.fuzz.conditions import SPARK, Condition, as_sql, as_terms, random_condition, spark_quoted, truth_of
from tests.fuzz.sources import Delta, Files, Iceberg, Row, Source, assert_same
from tests.fuzz.writers import write_pyarrow
from tests.spark import cluster
from zonebloom.engines.spark.scan.types import arrow_schema
from zonebloom.engines.spark.versions import arrow_of, frame_of
from zonebloom.errors import InvalidArgumentError
from zonebloom.spark import ZoneBloom

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UTC = dt.UTC
_TIMESTAMPS = "spark.sql.parquet.outputTimestampType"
_BY_HASHES = ("parquet.filter.dictionary.enabled", "parquet.filter.bloom.enabled")
"""Off: by a file's dictionary or bloom filter Spark itself drops rows of -0.0 where x = 0.0 is asked."""
SEARCHES = 0.2
"""Share of the conditions that are searched too; each search asks Spark for the schema, by a job."""
WAYS = ("auto", "driver", "row_ranges", "files", "plain")


def write_plainly(table: pa.Table, path: Folder, chance: random.Random) -> None:
    write_pyarrow(table, path, chance, ("none", "snappy", "gzip", "zstd"))


class SparkFiles(Files):
    """Files in which Spark finds the same columns, some of them written by Spark."""

    session: SparkSession
    CHANGES = (*Files.CHANGES, "write_by_spark", "write_by_spark")

    def some(self, columns: list[Column] | None = None, *, at_least: int = 1) -> pa.Table:
        """Random rows in the columns' own types: Spark takes the types of one file."""
        return self.rows_of(columns or self.columns, max(self.chance.choice((1, 5, 12, 40)), at_least))

    @staticmethod
    def writers(_columns: list[Column], _num_rows: int) -> list[Any]:
        """Those whose types and codecs Spark reads as they are."""
        return [write_plainly]

    def rows(self) -> list[Any]:
        """INT96 has no zone in Arrow."""
        own = super().rows()
        for _, _, row in own:
            row |= {column.name: as_instant(row[column.name]) for column in self.columns if column.kind == "instant"}
            for column in self.columns:
                times = [name for name, kind in column.fields if kind == "instant"]
                if times and row[column.name]:
                    row[column.name] |= {name: as_instant(row[column.name][name]) for name in times}
        return own

    def _write_by_spark(self) -> None:
        rows, staged = self.some(), self.root.with_name("staged")
        schema = from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)
        frame = frame_of(self.session, rows.cast(arrow_schema(schema)), schema)
        kind = self.chance.choice(("INT96", "TIMESTAMP_MICROS"))
        self.session.conf.set(_TIMESTAMPS, kind)
        frame.coalesce(1).write.parquet(str(staged), compression=self.chance.choice(("snappy", "zstd", "none")))
        self.session.conf.unset(_TIMESTAMPS)
        target = self.root / self._new_path()
        target.parent.mkdir(parents=True, exist_ok=True)
        next(staged.glob("*.parquet")).rename(target)
        shutil.rmtree(staged)
        self._date(target)


def as_instant(value: Any) -> dt.datetime | None:
    """A timestamp of a footer with or without a zone, in UTC."""
    plain = value.to_pydatetime(warn=False) if hasattr(value, "to_pydatetime") else value
    return plain and plain.replace(tzinfo=UTC)


SOURCES: dict[str, type[Source]] = {"files": SparkFiles, "delta": Delta, "iceberg": Iceberg}


_OTHER_KINDS = {"odd double": "double", "uint64": "int64", "time": "instant"}
"""NaN equals itself in Spark, unsigned integers of 64 bits are decimals, and Spark writes timestamps of a zone."""


def _for_spark(column: Column) -> Column:
    fields = tuple((name, _OTHER_KINDS.get(kind, kind)) for name, kind in column.fields)
    return replace(column, kind=_OTHER_KINDS.get(column.kind, column.kind), fields=fields)


class SparkCase(lakes.Case):
    """One life, of which Spark asks."""

    session: SparkSession

    @classmethod
    def of(cls, folder: Folder, seed: int, source: type[Source]) -> Self:
        """A life with names that differ in more than case."""
        lake = super().of(folder, seed, source)
        unique = {column.name.casefold(): column for column in lake.source.columns}
        lake.source.columns = [_for_spark(value) for value in unique.values()]
        if isinstance(lake.source, Files) and lake.source.partition is not None:
            name, values = lake.source.partition  # of `%C3%BC` in a folder's name Spark makes two letters
            lake.source.partition = name, tuple(value for value in values if str(value).isascii())
        return lake

    def ask(self) -> None:
        """Conditions over what is there, by one job."""
        source, chance, zb = self.source, self.chance, ZoneBloom(self.session)
        placed, place = source.rows(), None if source.index is None else str(source.index)
        rows = [row for _, _, row in placed]
        lake = zb.read(source.data, index=place)
        pools, names = self.pools(rows, lake.columns), [name for name in lake.columns if rows and name in rows[0]]
        asked, frames = [], []
        for _ in range(self.questions if names else 0):
            condition = random_condition(chance, pools)
            frames.append(self._frame(zb, lake, condition))
            asked.append(condition)
            if source.is_ordered and chance.random() < SEARCHES:
                given = chance.choice((as_sql(condition, SPARK), as_terms(condition)))
                result = zb.search(source.data, given, index=place)
                kept = {(path, row) for path, start, stop in result for row in range(start, stop)}
                lost = [line for line in placed if line[:2] not in kept and truth_of(condition, line[2])]
                if lost:
                    raise FindingError(f"Spark's search({given}) must keep {lost[:3]}, got {result}")
        tagged = [
            frame.selectExpr(*map(spark_quoted, names), f"{number} AS `asked`") for number, frame in enumerate(frames)
        ]
        if not tagged:
            return
        rows_of_each: list[list[Row]] = [[] for _ in asked]
        for row in arrow_of(reduce(lambda frame, other: frame.unionAll(other), tagged)).to_pylist():
            rows_of_each[row["asked"]].append(row)
        for condition, ours in zip(asked, rows_of_each, strict=True):
            wanted = [row for row in rows if truth_of(condition, row)]
            assert_same(ours, wanted, f"Spark by {condition}", names=names)
            self.num_asked += 1

    def _frame(self, zb: ZoneBloom, lake: Any, condition: Condition) -> Any:
        """The rows of a condition, through one of the entrances."""
        chance, text = self.chance, as_sql(condition, SPARK)
        entrance = chance.choice(("text", "column", "terms", "sql"))
        self.source.log.append(f"Spark by {entrance}: {text}")
        if entrance == "sql":
            name = chance.choice(lake.columns)
            also = _like_a_plan(name) if name.isidentifier() and chance.random() < 0.25 else "TRUE"
            return zb.sql(f"SELECT * FROM {{lake}} WHERE ({text}) AND {also}", lake=lake)
        from pyspark.sql import functions

        given = {"text": text, "terms": as_terms(condition)}.get(entrance, functions.expr(text))
        ways = WAYS if isinstance(self.source, Files) else ("auto", "row_ranges")
        try:
            return lake.where(given, method=chance.choice(ways))
        except InvalidArgumentError as error:
            if "use method auto" not in str(error):
                raise
            return lake.where(given)


def _like_a_plan(name: str) -> str:
    """A condition that is TRUE in each row. Its literal has lines of another condition's plan, of column `name`."""
    lines = ("", "== Optimized Logical Plan ==", f"Filter ({name}#0 = 1)", "+- MapInArrow zonebloom_scan_0(")
    plan = r"\n".join((*lines, "== Physical Plan ==", ""))
    return f"coalesce(CAST({spark_quoted(name)} AS STRING), '') != '{plan}'"


def run_case(session: SparkSession, folder: Folder, seed: int) -> str:
    """One life; in a word how it ended."""
    SparkFiles.session = SparkCase.session = session
    for name in _BY_HASHES:
        session.conf.set(name, "false")
    try:
        return lakes.run_case(folder, seed, SOURCES, kind=SparkCase)
    finally:
        for name in _BY_HASHES:
            session.conf.unset(name)


def run_as_child(folder: Folder, first: int, count: int, _options: list[str]) -> None:
    with cluster.running("local[2]", options={**cluster.SHORT_LIVED, **cluster.INTERPRETED}) as session:
        run_case(session, folder, 0)  # warm
        run_child(first, count, lambda seed: run_case(session, folder, seed))


if __name__ == "__main__":
    main("tests.fuzz.spark_lakes", run_as_child)
