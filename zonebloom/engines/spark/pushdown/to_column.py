"""Predicates made with `zonebloom.col` as Columns of Spark's.

Spec: specs/spark.md#conditions
"""

from __future__ import annotations

from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any

from zonebloom.engines.spark.pushdown.types import Judge, text_of
from zonebloom.errors import PredicateError
from zonebloom.predicates import And, Equals, IsIn, IsNull, Not, Or, Predicate
from zonebloom.predicates.terms import ColumnTerm, Comparison, LiteralTerm

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["MAX_LITERALS", "column_of"]

MAX_LITERALS = 1000
"""Longer IN lists become a join with a local relation: a plan with 5000 literals takes seconds."""


def column_of(node: Predicate, children: list[Column], judge: Judge) -> Column:
    """A predicate as a Column."""
    if isinstance(node, Not):
        return ~children[0]
    if isinstance(node, (And, Or)):
        return reduce(and_ if isinstance(node, And) else or_, children)
    if isinstance(node, IsNull):
        return _named(node.column, judge).isNull()
    if isinstance(node, Equals):
        column = _named(node.column, judge)
        return column.eqNullSafe(_lit(node.value)) if node.null_safe else column == _lit(node.value)
    if isinstance(node, IsIn) and len(node.values) <= MAX_LITERALS and not node.null_safe:
        return _named(node.column, judge).isin(*[_lit(value) for value in node.values])
    if isinstance(node, Comparison) and isinstance(node.left, ColumnTerm) and isinstance(node.right, LiteralTerm):
        column, value = _named(node.left.name, judge), _lit(node.right.value)
        compared = {"<": column.__lt__, "<=": column.__le__, ">": column.__gt__, ">=": column.__ge__}
        if node.operator in compared:
            return compared[node.operator](value)
    message = (
        f"a predicate for Spark must be made of =, <, >, IN and IS NULL of columns and literals, got {node!r:.200}"
    )
    raise PredicateError(
        f"{message}; write the condition as SQL text, and long lists as the only or an AND-ed condition"
    )


def _named(name: str, judge: Judge) -> Column:
    from pyspark.sql import functions  # noqa: PLC0415 - an optional extra

    return functions.col(".".join(f"`{part.replace('`', '``')}`" for part in judge.path(name)))


def _lit(value: Any) -> Column:
    from pyspark.sql import functions  # noqa: PLC0415 - an optional extra

    if hasattr(value, "as_py"):
        value = value.as_py()
    elif hasattr(value, "dtype"):
        value = value.item()
    text = text_of(value)
    return functions.lit(value) if text is None else functions.expr(text)
