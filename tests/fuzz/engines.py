"""The same question to an engine over rows in memory and over an index: by each entrance that an engine has.

A question has a condition, a list of keys, a projection and a limit. The engine itself is the oracle, over rows that no
index has seen; what it refuses there is no question. An engine that reads ours as a pyarrow Dataset reads those as one
too, since it means by some conditions what pyarrow means. DuckDB is not asked of NaN, nor DataFusion of fields of
structs, which it takes from below a null struct in memory.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads

import zonebloom as zb
from tests.fuzz.children import FindingError
from tests.fuzz.conditions import Condition, Path, as_polars, as_sql, is_nan, literals_of, polars_column, quoted
from tests.fuzz.sources import assert_same
from tests.fuzz.writers import DUCKDB
from zonebloom.engines import datafusion as in_datafusion, duckdb as in_duckdb, polars as in_polars

Data = zb.Index | pa.Table


@dataclass(frozen=True)
class Question:
    """What is asked of an engine."""

    condition: Condition
    leaf: Path
    keys: pa.Array
    """Values of `leaf`, without nulls and NaN."""
    names: list[str]
    limit: int

    @property
    def sql(self) -> str:
        return as_sql(self.condition)

    @property
    def column(self) -> str:
        return ".".join(map(quoted, self.leaf))

    @property
    def shown(self) -> str:
        return ", ".join(map(quoted, self.names))


def _rows(frame: Any) -> list[dict[str, Any]]:
    table: pa.Table = frame.to_arrow_table()
    return table.to_pylist()


def _dataset(data: Data) -> pads.Dataset:
    return data.dataset() if isinstance(data, zb.Index) else pads.dataset(data)


def _relation(data: Data, asked: Question) -> list[dict[str, Any]]:
    with DUCKDB.cursor() as connection:
        is_ours = isinstance(data, zb.Index)
        lake = in_duckdb.relation(connection, data, asked.sql) if is_ours else connection.from_arrow(data)
        selected = lake.filter(asked.sql).select(*map(quoted, asked.names))
        rows = _rows(selected)
        if len(selected.limit(asked.limit).fetchall()) != min(asked.limit, len(rows)):
            raise FindingError(f"LIMIT {asked.limit} must give as many of {len(rows)} rows")
        return rows


def _registered(data: Data, asked: Question) -> list[dict[str, Any]]:
    with DUCKDB.cursor() as connection:
        connection.register("lake", _dataset(data))
        connection.register("listed", pa.table({"key": asked.keys}))
        joined = f"lake SEMI JOIN listed ON {asked.column} = listed.key"
        return _rows(connection.sql(f"SELECT {asked.shown} FROM {joined} WHERE {asked.sql}"))


def _semi_join(data: Data, asked: Question) -> list[dict[str, Any]]:
    with DUCKDB.cursor() as connection:
        keys = connection.from_arrow(pa.table({"key": asked.keys}))
        if isinstance(data, zb.Index):
            rows = in_duckdb.semi_join(connection, data, ".".join(asked.leaf), keys)
        else:
            joined = f"lake.{asked.column} = listed.key"
            lake = connection.from_arrow(data).set_alias("lake")
            rows = lake.join(keys.set_alias("listed"), joined, how="semi")
        return _rows(rows.select(*map(quoted, asked.names)))


def _datafusion(data: Data, asked: Question) -> list[dict[str, Any]]:
    context = datafusion.SessionContext()
    if isinstance(data, zb.Index):
        in_datafusion.register(context, "lake", data)
    else:
        context.register_dataset("lake", _dataset(data))
    return _rows(context.sql(f"SELECT {asked.shown} FROM lake WHERE {asked.sql}"))


def _collected(lazy: pl.LazyFrame, asked: Question) -> list[dict[str, Any]]:
    condition = polars_column(asked.leaf).is_in(pl.from_arrow(asked.keys).implode()) | as_polars(asked.condition)
    selected = lazy.filter(condition).select(asked.names)
    rows = selected.collect().to_dicts()
    if len(selected.head(asked.limit).collect()) != min(asked.limit, len(rows)):
        raise FindingError(f"head({asked.limit}) must give as many of {len(rows)} rows")
    return rows


def _polars(data: Data, asked: Question) -> list[dict[str, Any]]:
    return _collected(in_polars.scan(data) if isinstance(data, zb.Index) else pl.from_arrow(data).lazy(), asked)


def _polars_dataset(data: Data, asked: Question) -> list[dict[str, Any]]:
    return _collected(pl.scan_pyarrow_dataset(_dataset(data)), asked)


ENGINES: dict[str, Callable[[Data, Question], list[dict[str, Any]]]] = {
    "relation": _relation,
    "register": _registered,
    "semi_join": _semi_join,
    "DataFusion": _datafusion,
    "Polars": _polars,
    "Polars over a Dataset": _polars_dataset,
}
_OF_DUCKDB = ("relation", "register", "semi_join")
_REFUSALS = (duckdb.Error, pl.exceptions.PolarsError, pa.ArrowException, TypeError)


def ask_engine(chance: random.Random, index: zb.Index, memory: pa.Table, condition: Condition) -> str | None:
    """Ask one engine twice, and compare; its name, or None if it cannot be asked."""
    name = chance.choice(list(ENGINES))
    leaf, _ = chance.choice(literals_of(condition))
    values = [value for other, value in literals_of(condition) if other == leaf and value is not None]
    if any(map(is_nan, values)) or (name in _OF_DUCKDB and "nan" in str((literals_of(condition), memory.to_pydict()))):
        return None
    if name == "DataFusion" and any(len(other) > 1 for other, _ in literals_of(condition)):
        return None
    kind = memory.schema.field(leaf[0]).type
    for inner in leaf[1:]:
        kind = kind.field(inner).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    asked = Question(
        condition,
        leaf,
        pa.array(values, kind),
        chance.sample(memory.column_names, chance.randrange(1, len(memory.column_names) + 1)),
        chance.randrange(4),
    )
    try:
        wanted = ENGINES[name](memory, asked)
    except _REFUSALS:
        return None
    except Exception:
        if name != "DataFusion":  # which raises plain Exceptions
            raise
        return None
    rows = ENGINES[name](index, asked)
    assert_same(rows, wanted, f"{name} of {asked}", names=asked.names)
    return name
