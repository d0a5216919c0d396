"""Conditions that reach a data source, as predicates of the library: filters that Spark pushes, and the option `where`.

Spark has cast literals to the column's type before it pushes a filter, and evaluates every filter again on what comes
back. So what has no predicate here only prunes nothing. The text of `where` is read without a session to ask, so only
literals that mean the same under every setting are judged.

Spec: specs/spark.md#filters
"""

from __future__ import annotations

import datetime as dt
import decimal
import re
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)
from pyspark.sql.types import DataType, StringType

from zonebloom.engines.spark.pushdown.sql_text import Joint, Leaf, Part, Word, is_plain, parts_of_text
from zonebloom.engines.spark.pushdown.types import Judge, Target, UnjudgedError
from zonebloom.predicates import And, Equals, IsIn, Or, Predicate
from zonebloom.predicates import IsNull as IsNullPredicate
from zonebloom.predicates import Not as NotPredicate
from zonebloom.reasons import Reason, ReasonCode

__all__ = ["column_of", "conditions_of_text", "predicate_of_filters"]


def column_of(condition: Filter) -> tuple[str, ...]:
    """The column that a filter is about: its name, or the path to a leaf of a struct; () for a kind that is unknown."""
    inner = condition.child if isinstance(condition, Not) else condition
    return tuple(getattr(inner, "attribute", ()))


def predicate_of_filters(filters: Iterable[Filter], judge: Judge) -> tuple[list[Predicate], list[Reason]]:
    """What each of `filters` says of the stored columns, and why some say nothing that could prune."""
    found: list[Predicate] = []
    reasons: list[Reason] = []
    for condition in filters:
        try:
            found.append(_of_filter(condition, judge))
        except UnjudgedError as error:
            reasons.append(error.reason)
    return found, reasons


def _of_filter(condition: Filter, judge: Judge) -> Predicate:
    if isinstance(condition, Not):
        return NotPredicate(_of_filter(condition.child, judge))
    if not isinstance(condition, (EqualTo, EqualNullSafe, In, IsNull, IsNotNull)):
        message = f"no filter can judge {type(condition).__name__} of {'.'.join(column_of(condition))}"
        raise UnjudgedError(ReasonCode.PREDICATE_NOT_SUPPORTED, message)
    target = judge.target(condition.attribute)
    if isinstance(condition, (IsNull, IsNotNull)):
        is_null = IsNullPredicate(target.name)
        return is_null if isinstance(condition, IsNull) else NotPredicate(is_null)
    if isinstance(condition, In):
        return IsIn(target.name, [_fitted(value, target, judge) for value in condition.value])
    value = _fitted(condition.value, target, judge)
    if isinstance(condition, EqualTo):
        return Equals(target.name, value)
    return _null_safe(target, value)


def _null_safe(target: Target, value: Any) -> Predicate:
    return IsNullPredicate(target.name) if value is None else Equals(target.name, value, null_safe=True)


def _fitted(value: Any, target: Target, judge: Judge) -> Any:
    """A pushed literal as a value of the column; Spark has a decimal where Parquet has 64 bits without a sign."""
    if isinstance(value, decimal.Decimal) and pa.types.is_integer(target.arrow) and value == value.to_integral_value():
        value = int(value)
    return judge.fitted(value, target)


def conditions_of_text(
    text: str, judge: Judge, folders: Mapping[str, DataType]
) -> tuple[list[Predicate], list[Filter], list[Reason]]:
    """What the SQL `text` says of stored columns and of partitions, as far as it reads the same under every setting.

    All of it is TRUE in each row in which Spark finds `text` TRUE. What the outermost AND joins is judged by itself.

    Parameters
    ----------
    folders
        The partition columns whose values are in paths, with their types.
    """
    part = parts_of_text(text)
    predicates: list[Predicate] = []
    filters: list[Filter] = []
    reasons: list[Reason] = []
    for one in part.parts if isinstance(part, Joint) and part.kind == "and" else (part,):
        condition = _of_folder(one, folders) if isinstance(one, Leaf) else None
        if condition is not None:
            filters.append(condition)
            continue
        try:
            predicates.append(_of_part(one, judge))
        except UnjudgedError as error:
            reasons.append(error.reason)
    return predicates, filters, reasons


def _of_part(part: Part, judge: Judge) -> Predicate:
    if isinstance(part, Joint):
        children = [_of_part(one, judge) for one in part.parts]
        return NotPredicate(children[0]) if part.kind == "not" else {"and": And, "or": Or}[part.kind](children)
    return _of_leaf(part, judge)


def _of_leaf(leaf: Leaf, judge: Judge) -> Predicate:
    is_read = leaf.kind in ("=", "<=>", "in", "!=", "not in", "null", "not null")
    if not is_read or not all(_is_fixed(word) for word in leaf.words):
        message = f"only a session can say what {leaf.text:.200} means; compare a column with texts or integers"
        raise UnjudgedError(ReasonCode.PREDICATE_NOT_SUPPORTED, message)
    target = judge.target(leaf.name)
    if leaf.kind in ("null", "not null"):
        is_null = IsNullPredicate(target.name)
        return is_null if leaf.kind == "null" else NotPredicate(is_null)
    values = [judge.value(word, target) for word in leaf.words]
    if leaf.kind in ("in", "not in"):
        found: Predicate = IsIn(target.name, values)
    elif leaf.kind == "<=>":
        found = _null_safe(target, values[0])
    else:
        found = Equals(target.name, values[0])
    return NotPredicate(found) if leaf.kind in ("!=", "not in") else found


def _is_fixed(word: Word) -> bool:
    """Whether a literal means the same under every setting of Spark."""
    return is_plain(word) or word.kind in ("hex", "bool", "null", "date")


# --- partitions -------------------------------------------------------------------------------------------------------

_RANGE = re.compile(r"\s*(`[^`]+`|[A-Za-z_]\w*)\s*(<=|>=|<|>)\s*(DATE\s*)?('[^'\\]*'|-?\d{1,18})\s*", re.IGNORECASE)
_ORDERS = {"<": LessThan, "<=": LessThanOrEqual, ">": GreaterThan, ">=": GreaterThanOrEqual}


def _of_folder(leaf: Leaf, folders: Mapping[str, DataType]) -> Filter | None:
    """A leaf over one partition column, if its literals are of the column's type as they are written."""
    found = _RANGE.fullmatch(leaf.text) if leaf.kind == "opaque" else None
    name = found[1].strip("`") if found is not None else ".".join(leaf.name)
    if name not in folders or len(leaf.name) > 1:
        return None
    if found is not None:
        is_text = found[4].startswith("'")
        kind = "date" if found[3] else "string" if is_text else "number"
        word = Word(kind, found[4], found[4].strip("'"))
        value = _folder_value(word, folders[name])
        return None if value is None else _ORDERS[found[2]]((name,), value)
    values = [_folder_value(word, folders[name]) for word in leaf.words]
    if any(value is None and word.kind != "null" for value, word in zip(values, leaf.words, strict=True)):
        return None
    if leaf.kind in ("in", "not in"):
        inner: Filter = In((name,), tuple(values))
    elif leaf.kind in ("=", "!=", "<=>"):
        inner = (EqualNullSafe if leaf.kind == "<=>" else EqualTo)((name,), values[0])
    elif leaf.kind in ("null", "not null"):
        inner = IsNull((name,))
    else:
        return None
    return Not(inner) if leaf.kind.startswith(("not", "!")) else inner


def _folder_value(word: Word, column_type: DataType) -> Any:
    """The literal as a value of the column's type; None where Spark casts it, or is asked for NULL."""
    name = "string" if isinstance(column_type, StringType) else column_type.typeName()
    if name == "string":
        is_same = word.kind == "string" and is_plain(word) and column_type == StringType()
        return word.value if is_same else None
    if name == "date" and (word.kind == "date" or (word.kind == "string" and is_plain(word))):
        return dt.date.fromisoformat(word.value) if _is_date(word.value) else None
    if word.kind == "number" and is_plain(word):
        kind: Any = {"integer": int, "long": int, "decimal": decimal.Decimal, "double": float}.get(name)
        return None if kind is None else kind(int(word.value))
    return None


def _is_date(text: str) -> bool:
    try:
        return dt.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
