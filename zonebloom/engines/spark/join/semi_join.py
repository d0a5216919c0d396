"""Joins that read and shuffle less: `filter_by_index` drops rows that cannot join.

The filters of the data set (levels.md) exclude keys that are not in the indexed column. They were built with the index.
Files that came since are read here and added (`table_filter`). The check is SQL (`sql_probe`). For larger filters it
is an Arrow UDF; executors load its filters from the index.

Spec: specs/spark.md#filter-by-index
"""

from __future__ import annotations

import os
import pickle
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import or_
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit
from pyspark.sql.types import BooleanType, StructField

from zonebloom.arrow import to_numpy
from zonebloom.bloom.hashing import hash_values, to_hashes
from zonebloom.bloom.sbbf import Sbbf
from zonebloom.engines.spark.catalog import Catalog, check_batch
from zonebloom.engines.spark.executors import reads_by_id, shipped
from zonebloom.engines.spark.join import keys
from zonebloom.engines.spark.join.keys import JoinKey
from zonebloom.engines.spark.join.table_filter import Filter, dataset_filters, warn_once
from zonebloom.engines.spark.pushdown.names import backquoted
from zonebloom.errors import InvalidArgumentError
from zonebloom.index import Index
from zonebloom.storage.levels import DatasetFilter

Way = Literal["auto", "sql", "arrow"]

MAX_SQL_BYTES: Final = 16 << 20
"""Bytes of all filters up to which SQL checks them: each task of the stage unpacks them."""
MAX_NEW_ROWS: Final = 20_000_000
"""Rows of new and changed files up to which the driver reads them for `filter_by_index`."""
_USELESS_FPP = 0.1
_MAX_FOLDING = 4
"""Factor of folding at most: a filter of the default probability, folded by more, is useless."""
_MAX_SQL_FILTERS = 8
"""Filters that SQL checks at most: each is one more expression. A refresh adds one; `optimize` merges them."""
_DROPPING = ("inner", "semi", "leftsemi", "right", "rightouter")
"""Joins `frame.join(indexed, how=…)` whose result has no rows of `frame` without a partner."""
_KEEPING = ("left", "leftouter", "outer", "full", "fullouter", "anti", "leftanti", "cross")


def filter_by_index(
    catalog: Catalog,
    frame: DataFrame,
    index: str | os.PathLike[str] | Index | Sbbf,
    column: str,
    *,
    indexed_column: str | None = None,
    how: str = "inner",
    null_safe: bool = False,
    path: Way = "auto",
    max_sql_bytes: int = MAX_SQL_BYTES,
    max_new_rows: int = MAX_NEW_ROWS,
) -> DataFrame:
    """`frame` without rows whose `column` certainly equals no value of the indexed column; others may stay.

    Make the frame of the indexed side first, then call this, then join. A file that the join reads and this call did
    not list could lose rows. Join the indexed side by the column as its files hold it, not by a derived one.

    Parameters
    ----------
    index
        An index with the level `dataset`, or its place; or an `Sbbf` of values of the column's type.
    indexed_column
        Name of the indexed column, if it differs from `column`.
    how
        The join that follows, as in `frame.join(indexed, on, how)`: `inner`, `left_semi` or `right_outer`. Other joins
        need the rows without a partner.
    null_safe
        Keep rows whose key is null, for `<=>`.
    path
        `sql`: Spark's own code; `arrow`: a Python function over batches of hashes. By default SQL, if the filters have
        or can be folded to `max_sql_bytes`.
    max_new_rows
        Rows of new and changed files. If there are more, they are not read, and nothing is dropped.

    Raises
    ------
    InvalidArgumentError
        `how`, or the types of the two columns, allow to drop no row.
    ColumnNotFoundError, IndexNotFoundError
        The column is not indexed, or has no level `dataset`.

    Spec: specs/spark.md#filter-by-index
    """
    spark = catalog.spark
    _check_options(how, path)
    check_batch(frame)
    value, field = column_of(frame, column)
    filters: Sequence[Filter]
    if isinstance(index, Sbbf):
        indexed, filters = keys.natural_type(field), [index]
    else:
        name = indexed_column or column
        opened = index if isinstance(index, Index) else catalog.open(index)
        indexed = opened.column_type(name)
        keys.check_pair(field, indexed)  # before any data is read
        check_local_times(spark, field)
        found = dataset_filters(opened, name, max_new_rows)
        if reads_by_id(spark):
            found = "files whose columns Spark finds by their ids"
        if isinstance(found, str):
            message = f"the filter of column {name} must hold every file of {opened.data.location}, got {found}"
            warnings.warn(
                f"{message}; no row is dropped, and a refresh helps if files are new or changed",
                RuntimeWarning,
                stacklevel=3,
            )
            return frame
        filters = found
    key = keys.join_key(value, field, indexed)
    if key.kind == "hash" and not keys.hashes_as_the_index(spark):
        message = "Spark's xxhash64 must take the hash of one argument as the seed of the next, got other hashes"
        warnings.warn(f"{message}; no row is dropped", RuntimeWarning, stacklevel=3)
        return frame
    hit = _Lookup(spark, indexed, filters, path, max_sql_bytes).of(key)
    if key.proofs:
        hit = F.expr(" and ".join(key.proofs)) & hit
    exempt = [*key.exempt, *([f"{value} = 0.0"] if key.is_float and _has_zero(filters, indexed) else [])]
    if exempt:
        hit = F.expr(" or ".join(exempt)) | hit
    return frame.where(F.expr(f"{value} is null") | hit if null_safe else F.expr(f"{value} is not null") & hit)


def column_of(frame: DataFrame, name: str) -> tuple[str, StructField]:
    """SQL for column `name` of `frame`, or for the leaf at that dotted path, and its field.

    Raises
    ------
    InvalidArgumentError
        Spark would replace a part of the name before it reads the SQL.
    """
    if "${" in name:
        raise InvalidArgumentError(
            f"column must have no ${{ in its name, which Spark substitutes, got {name}; rename it"
        )
    is_whole = name in frame.columns
    is_quoted = not is_whole and "`" in name
    parts = [name] if is_whole else name.split(".")
    text = name if is_quoted else backquoted(*parts)
    return text, frame.selectExpr(text).schema[0]


def check_local_times(spark: SparkSession, field: StructField) -> None:
    """Refuse a timestamp without a zone if Spark reads the indexed side as timestamps with one.

    Raises
    ------
    InvalidArgumentError
        The key has no zone, and the session reads such columns with one.
    """
    setting = "spark.sql.parquet.inferTimestampNTZ.enabled"
    if field.dataType.simpleString() == "timestamp_ntz" and spark.conf.get(setting, "true") != "true":
        message = f"{setting} must be true for key {field.name} of type timestamp_ntz, got false"
        raise InvalidArgumentError(f"{message}; Spark would shift the values of the indexed side")


def _check_options(how: str, path: str) -> None:
    plain = how.replace("_", "").lower() if isinstance(how, str) else how
    if plain not in _DROPPING:
        wanted = "inner, left_semi or right_outer, which drop rows without a partner"
        message = f"how must be {wanted}, got {how!r}"
        if plain in _KEEPING:
            message += "; that join needs the rows that do not match: join without a filter"
        raise InvalidArgumentError(message)
    if path not in ("auto", "sql", "arrow"):
        raise InvalidArgumentError(f"path must be auto, sql or arrow, got {path!r}")


@dataclass(frozen=True, slots=True)
class _Lookup:
    """How keys are looked up in the filters."""

    spark: SparkSession
    indexed: pa.DataType
    filters: Sequence[Filter]
    path: Way
    max_sql_bytes: int

    def of(self, key: JoinKey) -> Column:
        """Whether any of the filters may hold the key; the answer for null is not used."""
        if not self.filters:
            return F.lit(False)
        if key.kind == "domain":
            assert key.domain is not None
            is_there = _may_be_in(self.filters, to_hashes(key.domain))
            return keys.in_bitmap(key.value, keys.words_of(self.spark, keys.bitmap_words(is_there)), len(is_there))
        if key.kind == "decimal":
            if self.path == "sql":
                message = f"path must be arrow or auto for a key of type {self.indexed}, which Spark hashes otherwise"
                raise InvalidArgumentError(f"{message}, got sql")
            return _arrow_check(tuple(self.filters), self.indexed)(F.expr(key.value))
        return self._of_hashes(keys.hash_of(key.value))

    def _of_hashes(self, hashes: str) -> Column:
        folded = None if self.path == "arrow" else _folded(self.filters, self.max_sql_bytes)
        if folded is not None:
            return reduce(or_, (keys.may_hold(self.spark, hashes, one) for one in folded))
        if self.path == "sql":
            total = sum(one.num_bytes for one in self.filters)
            message = f"filters must be foldable to {self.max_sql_bytes:,} bytes for path sql, got {total:,} bytes"
            raise InvalidArgumentError(f"{message}; raise max_sql_bytes, or take path arrow")
        return _arrow_check(tuple(self.filters), None)(F.expr(hashes))


def _folded(filters: Sequence[Filter], max_bytes: int) -> list[Sbbf] | None:
    """`filters`, folded to `max_bytes` together; None if they would pass too many absent values."""
    total = sum(one.num_bytes for one in filters)
    if total > max_bytes * _MAX_FOLDING or len(filters) > _MAX_SQL_FILTERS:
        return None
    folded: list[Sbbf] = []
    for one in filters:
        loaded = one if isinstance(one, Sbbf) else one.to_sbbf()
        share = max_bytes * one.num_bytes // total if total > max_bytes else loaded.num_bytes
        fitting = keys.fold_to_bytes(loaded, share, _USELESS_FPP)
        if fitting is None:
            return None
        folded.append(fitting)
    return folded


def _may_be_in(filters: Sequence[Filter], hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
    found = np.zeros(len(hashes), np.bool_)
    for one in filters:
        found |= one.check_hashes(hashes)
        if isinstance(one, DatasetFilter) and one.damage is not None:
            warn_once(one.damage)
    return found


def _has_zero(filters: Sequence[Filter], indexed: pa.DataType) -> bool:
    """Whether 0.0 or -0.0 may be indexed; Spark hashes both as 0.0, and they are equal."""
    zeros = np.asarray(hash_values(pa.array([0.0], indexed)), np.uint64)
    return bool(_may_be_in(filters, zeros).any())


def _arrow_check(filters: tuple[Filter, ...], hashed_as: pa.DataType | None) -> Any:
    """A function of Spark: for each hash, or each value hashed as `hashed_as`, whether a filter may hold it."""
    check = shipped(checked, pickle.dumps((filters, hashed_as), protocol=5))
    return F.arrow_udf(check, BooleanType())  # Spark parses a type's text by the session that was made last


@lru_cache(maxsize=4)
def _received(sent: bytes) -> tuple[tuple[Filter, ...], pa.DataType | None]:
    found: tuple[tuple[Filter, ...], pa.DataType | None] = pickle.loads(sent)  # noqa: S301 - of our own driver
    return found


def checked(sent: bytes, values: pa.Array) -> pa.Array:
    """On an executor: for each of `values`, whether any filter may hold it; null for null."""
    filters, hashed_as = _received(sent)
    hashes = to_numpy(values, np.int64).view(np.uint64) if hashed_as is None else to_hashes(values.cast(hashed_as))
    found = pa.array(_may_be_in(filters, hashes))
    return pc.if_else(pc.is_valid(values), found, None) if values.null_count else found
