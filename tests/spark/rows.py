"""Files for Spark, and the rows of its frames, as tests compare them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import zonebloom as zb
from zonebloom.engines.spark.scan.readers import escaped, url_of


def write(path: Path, columns: pa.Table | dict[str, Any], **options: Any) -> None:
    """A Parquet file, in a folder that may be new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), path, **options)


def indexed(root: Path, files: Mapping[Any, Any], columns: str | list[str], **options: Any) -> zb.Index:
    """The index of a folder with a file of each name."""
    for name, held in files.items():
        write(root / f"{name}.parquet", held)
    return zb.build_index(root, columns, **options)


def shown(frame: Any) -> list[str]:
    """All rows as texts, in an order of their own."""
    return sorted(map(repr, frame.collect()))


def union(frames: list[Any]) -> Any:
    """The rows of all frames, which have the same columns. Spark walks each plan that it makes of them."""
    middle = len(frames) // 2
    return union(frames[:middle]).unionAll(union(frames[middle:])) if middle else frames[0]


def rows_of_each(frames: list[Any]) -> list[list[str]]:
    """The rows of each of `frames`, all by one job."""
    texts: list[list[str]] = [[] for _ in frames]
    for row in union([frame.selectExpr("*", f"{number} AS asked") for number, frame in enumerate(frames)]).collect():
        texts[row.asked].append(repr(tuple(row)[:-1]))
    return [sorted(rows) for rows in texts]


def plain_read(session: Any, root: Path | str) -> Any:
    """Spark's own read of a folder on this machine."""
    return session.read.parquet(escaped(url_of(str(root))))


def of_plain_read(plain: Any, conditions: list[str]) -> dict[str, list[str]]:
    """For each condition its rows, all by one job; without those at which Spark fails, as on a text of no number."""
    from pyspark.errors import PySparkException

    texts = [f"({condition}) <=> TRUE AS is_true_{number}" for number, condition in enumerate(conditions)]
    try:
        rows = [tuple(row) for row in plain.selectExpr("*", *texts).collect()]
    except PySparkException:
        middle = len(conditions) // 2
        halves = (conditions[:middle], conditions[middle:]) if middle else ()
        return {condition: rows for half in halves for condition, rows in of_plain_read(plain, half).items()}
    width = len(plain.columns)
    return {
        condition: sorted(repr(row[:width]) for row in rows if row[width + number])
        for number, condition in enumerate(conditions)
    }


def of_lake(lake: Any, conditions: list[str], way: str) -> dict[str, list[str]]:
    """For each condition the rows that the lake gives."""
    rows = rows_of_each([lake.where(condition, method=way) for condition in conditions])
    return dict(zip(conditions, rows, strict=True))


def assert_as_plain(session: Any, root: Path, conditions: list[Any], *ways: str) -> list[list[str]]:
    """On each of `ways` a lake gives the rows of a plain read for each condition; these rows."""
    from zonebloom.spark import ZoneBloom

    lake, plain = ZoneBloom(session).read(str(root)), plain_read(session, root)
    are_texts = all(isinstance(condition, str) for condition in conditions)
    expected = (
        [*of_plain_read(plain, conditions).values()]
        if are_texts
        else rows_of_each([plain.where(c) for c in conditions])
    )
    for way in ways:
        assert rows_of_each([lake.where(condition, method=way) for condition in conditions]) == expected, way
    return expected
