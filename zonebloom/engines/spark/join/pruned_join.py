"""`prune_join`: the keys of the small side choose the rows that are read of the big side.

The keys are collected once, looked up in the index, and the big side is read as for any list of keys.
If nothing can be skipped, the join is Spark's own, and a warning says why.

Design: docs/design/spark.md#prune-join
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from zonebloom.engines.spark.frames import check_batch
from zonebloom.engines.spark.join.keys import check_pair
from zonebloom.engines.spark.pushdown.calendars import has_old
from zonebloom.engines.spark.pushdown.names import named, unlike
from zonebloom.engines.spark.scan.lake import Lake
from zonebloom.engines.spark.versions import arrow_of
from zonebloom.ground.errors import ColumnNotFoundError, InvalidArgumentError, PredicateError
from zonebloom.predicates import And, IsIn, IsNull, Or, Predicate

_MAX_NULL_SAFE_KEYS = 1000
_MOST_KEYS = (1 << 31) - 2
"""The limit of a frame is an int of Java; one more than this is collected."""
_HOW = {
    "inner": "inner",
    "semi": "left_semi",
    "leftsemi": "left_semi",
    "right": "right",
    "rightouter": "right",
    "rightsemi": "right_semi",
    "rightanti": "right_anti",
}
"""Joins whose result has no rows of the big side without a partner."""


def prune_join(lake: Lake, small: DataFrame, on: Any, how: Any, max_keys: int, *, null_safe: bool) -> DataFrame:
    """See `ZoneBloom.prune_join`."""
    names = _names(on)
    kind = _HOW.get(how.replace("_", "").lower()) if isinstance(how, str) else None
    if kind is None:
        raise InvalidArgumentError(
            "how must be inner, left_semi, right_outer, right_semi or right_anti",
            got=f"{how!r}",
            do="other joins need the rows of the big side that do not match",
        )
    check_batch(small)
    if type(max_keys) is not int or not 0 <= max_keys <= _MOST_KEYS:
        raise InvalidArgumentError(f"max_keys must be an int from 0 to {_MOST_KEYS:,}", got=f"{max_keys!r}")
    pruned = _candidates(lake, small, _indexed(lake, small, names), max_keys, null_safe=null_safe)
    if isinstance(pruned, str):
        warnings.warn(f"prune_join reads the big side whole: {pruned}", RuntimeWarning, stacklevel=3)
        pruned = lake.toDF()
    if null_safe:
        return _null_safe_join(pruned, small, names, kind)
    if kind in ("right_semi", "right_anti"):
        return small.join(pruned, names, kind.replace("right", "left"))
    return pruned.join(small, names, kind)


def _names(on: str | Sequence[str]) -> list[str]:
    names = [on] if isinstance(on, str) else list(on) if isinstance(on, (list, tuple)) else []
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise InvalidArgumentError("on must be one or more different names of columns of both sides", got=f"{on!r}")
    return names


def _indexed(lake: Lake, small: DataFrame, names: Sequence[str]) -> list[str]:
    """Those of `names` that are indexed; refused if there is none, or if Spark does not compare one by value."""
    columns = lake.index.columns
    indexed = [name for name in names if name in columns]
    if not indexed:
        raise ColumnNotFoundError.among(names[0], columns, f"the index {lake.index.root}")
    for held, side, wanted in ((lake.columns, "the big side", indexed), (small.columns, "the small side", names)):
        for name in wanted:  # an indexed field of a struct is no column
            if name not in held:
                raise ColumnNotFoundError.among(name, held, side)
    for column in lake.full_schema:
        for name in indexed:
            if name.lower() == column.name.lower():
                check_pair(small.schema[name], column)
    return indexed


def _candidates(
    lake: Lake, small: DataFrame, indexed: Sequence[str], max_keys: int, *, null_safe: bool
) -> DataFrame | str:
    """The rows of the lake that have a key of `small`; or the reason to read all rows, and the advice."""
    keys = arrow_of(small.select(*map(named, indexed)).distinct().limit(max_keys + 1))
    if keys.num_rows > max_keys:
        return f"the small side has more than {max_keys:,} distinct keys; raise max_keys"
    predicates = []
    for name in indexed:
        predicate = _predicate(name, keys[name].combine_chunks(), null_safe=null_safe)
        if isinstance(predicate, str):
            return predicate
        predicates.append(predicate)
    try:
        read = lake.prepare(And(predicates))
    except PredicateError as error:
        return str(error)
    if read.method != "plain":
        return read.frame
    kept, total = read.plan.result.kept, read.plan.result.total
    share = kept.rows / max(total.rows, 1)
    shown = f"{kept.files} of {total.files} files may hold one of {keys.num_rows:,} keys, {share:.0%} of the rows"
    return f"{shown}; an index with a locator is more exact, and a data set sorted by {indexed[0]} is read less"


def _predicate(name: str, values: pa.Array, *, null_safe: bool) -> Predicate | str:
    """A condition that is true in each row of the big side with one of `values`, or the reason why there is none."""
    keys = values.drop_null()
    if pa.types.is_floating(keys.type) and pc.any(pc.or_(pc.is_nan(keys), pc.equal(keys, 0.0))).as_py():
        return f"a zero or a NaN among the keys {name} equals others of other bits; join it apart"
    if has_old(pa.chunked_array([keys])):
        return f"keys {name} before 1901 may be of another calendar in old files; join them apart"
    if not null_safe or not values.null_count:
        return IsIn(name, keys)
    if len(keys) > _MAX_NULL_SAFE_KEYS:
        return f"a null-safe join is pruned for at most {_MAX_NULL_SAFE_KEYS:,} keys {name}; join null apart"
    return Or([IsIn(name, keys), IsNull(name)])


def _null_safe_join(pruned: DataFrame, small: DataFrame, names: Sequence[str], kind: str) -> DataFrame:
    """The join by `<=>`. It has the key columns once, from the side that keeps all its rows."""
    suffix = unlike([*pruned.columns, *small.columns])
    other = {name: name + suffix for name in names}
    same = reduce(and_, (named(name).eqNullSafe(named(renamed)) for name, renamed in other.items()))
    if kind in ("right_semi", "right_anti"):
        return small.join(pruned.withColumnsRenamed(other), same, kind.replace("right", "left"))
    if kind == "right":
        return pruned.withColumnsRenamed(other).join(small, same, kind).drop(*other.values())
    return pruned.join(small.withColumnsRenamed(other), same, kind).drop(*other.values())
