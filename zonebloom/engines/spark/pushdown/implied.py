"""Proves, by Spark's own optimizer, that a condition is TRUE in each row in which another is TRUE.

Spark drops a filter that repeats the filter below it. So `C` implies `A` if the optimized plan of
`where(C).where(A)` is that of `where(C)`. Classic sessions and Spark Connect give only the texts of plans. The text is
enough because `A` can only add to the text of the filter. Nothing is executed.

Design: docs/design/spark-reads.md#implied
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from zonebloom.engines.spark.executors import changed_setting

_HEADER = re.compile(r"== (?:(?:Parsed|Analyzed|Optimized) Logical|Physical) Plan ==\n")
_HIDDEN = re.compile(r"\(redacted\)|Filter .*\.\.\. \d+ more fields")
_FIELDS = "spark.sql.debug.maxToStringFields"
"""Signs that a plan's text is incomplete: a part of a filter is cut, or the session hides it."""


def implies(base: DataFrame, given: Column, other: Column) -> bool:
    """Whether Spark proves that `other` is TRUE in each row of `base` in which `given` is; false without a proof."""
    filtered = base.where(given)
    plan = optimized_plan(filtered)
    return plan is not None and plan == optimized_plan(filtered.where(other))


def opaque(spark: SparkSession, schema: StructType, label: str = "unread") -> DataFrame:
    """A frame of `schema` with rows that Spark's optimizer cannot see, so it can only simplify filters."""

    def unread(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return batches

    unread.__name__ = label
    return spark.range(1).mapInArrow(unread, schema)


def optimized_plan(frame: DataFrame) -> str | None:
    """The text of the optimized plan, with columns numbered in order of appearance; None if it is incomplete."""
    return plans(frame)[1]


def plans(frame: DataFrame) -> tuple[str, str | None]:
    """The texts of the parsed and the analyzed plan, and `optimized_plan`."""
    whole = explained(frame)
    if "more fields" in whole:
        whole = _explained_whole(frame)
    parsed, analyzed, plan = logical_plans(whole)
    analyzed = f"{parsed}\n{analyzed}"
    if not plan or _HIDDEN.search(plan):
        return analyzed, None
    plan = "\n".join(map(_sorted_filter, plan.splitlines()))
    numbers: dict[str, int] = {}
    return analyzed, re.sub(r"#(\d+)", lambda match: f"#{numbers.setdefault(match[1], len(numbers))}", plan)


def logical_plans(whole: str) -> tuple[str, str, str]:
    """The parsed, the analyzed and the optimized plan in the text of EXPLAIN EXTENDED; empty without a proof.

    Spark prints literals and names as they are, with line breaks. If one contains a header, any section may end early.
    """
    start, *sections = _HEADER.split(whole)
    if start or len(sections) != 4:  # noqa: PLR2004 - the fourth is the physical plan
        return "", "", ""
    return sections[0], sections[1], sections[2]


def _sorted_filter(line: str) -> str:
    """A line of a plan. Conjuncts of a filter are sorted: the optimizer gives them in any order."""
    above, filter_, condition = line.partition("Filter ")
    pieces = sorted(parts_of(condition), key=lambda part: re.sub(r"#\d+", "", part))
    return f"{above}{filter_}{' AND '.join(pieces)}" if filter_ else line


def parts_of(text: str, joint: str = " AND ") -> list[str]:
    """The parts of `text` that `joint` joins, at any depth; `text` itself if brackets in literals make that unclear.

    >>> parts_of("((a AND (b OR c)) AND d)")
    ['a', '(b OR c)', 'd']
    """
    depth, pieces, first = 0, [], 0
    for place, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if depth == 0 and text.startswith(joint, place):
            pieces.append(text[first:place])
            first = place + len(joint)
    if pieces:
        return [part for piece in (*pieces, text[first:]) for part in parts_of(piece, joint)]
    inner = text[1:-1]
    is_wrapped = text.startswith("(") and text.endswith(")") and joint in inner
    return parts_of(inner, joint) if is_wrapped and _is_balanced(inner) else [text]


def _is_balanced(text: str) -> bool:
    depths = list(itertools.accumulate((sign == "(") - (sign == ")") for sign in text))
    return min(depths, default=0) >= 0 and depths[-1:] in ([], [0])


def explained(frame: DataFrame) -> str:
    """The text of EXPLAIN EXTENDED of `frame`, below the nodes of a view that Spark makes and drops, and a filter.

    With the view Spark drops the cache of its plan. The filter `true` makes the plan another than any cached one.
    """
    spark = frame.sparkSession
    return str(spark.sql("EXPLAIN EXTENDED SELECT * FROM {frame}", frame=frame.where("true")).collect()[0][0])


def _explained_whole(frame: DataFrame) -> str:
    """`explained`, without shortened lists. Meanwhile plans of other threads may be longer too."""
    with changed_setting(frame.sparkSession, _FIELDS, str(2**30)):
        return explained(frame)
