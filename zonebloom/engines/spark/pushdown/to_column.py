"""Predicates as Spark Columns: those of callers (`zonebloom.col`), and guesses that Spark compares.

Spec: specs/spark.md#conditions
"""

from __future__ import annotations

from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any

from zonebloom.engines.spark.pushdown.types import Binder, EqualsNull, IsNotNull, Piece, text_of
from zonebloom.errors import PredicateError
from zonebloom.predicates import And, Equals, IsIn, IsNull, Not, Or, Predicate
from zonebloom.predicates.terms import ColumnTerm, Comparison, LiteralTerm, Truth

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["MAX_LITERALS", "column_of"]

MAX_LITERALS = 1000
"""Longer IN lists become a join with a local relation: a plan with 5000 literals takes seconds."""


def column_of(predicate: Predicate, binder: Binder) -> Column:
    """`predicate` as a Column, which names columns by their names.

    Raises
    ------
    PredicateError
        A part of it has no form in Spark.
    """
    return predicate.fold(lambda node, children: _column(node, children, binder))


def _column(node: Predicate, children: list[Column], binder: Binder) -> Column:  # noqa: C901 - one case a kind of node
    from pyspark.sql import functions  # noqa: PLC0415 - an optional extra

    if isinstance(node, Piece):
        return functions.expr(node.sql)
    if isinstance(node, IsNotNull):
        return _named(next(iter(node.columns())), binder).isNotNull()
    if isinstance(node, Not):
        return ~children[0]
    if isinstance(node, Truth) and isinstance(node.term, ColumnTerm):
        return _named(node.term.name, binder)
    if isinstance(node, (And, Or)):
        return reduce(and_ if isinstance(node, And) else or_, children)
    if isinstance(node, IsNull):
        column = _named(node.column, binder)
        return column.eqNullSafe(None) if isinstance(node, EqualsNull) else column.isNull()
    if isinstance(node, Equals):
        column = _named(node.column, binder)
        return column.eqNullSafe(_lit(node.value)) if node.null_safe else column == _lit(node.value)
    if isinstance(node, IsIn) and len(node.values) <= MAX_LITERALS and not node.null_safe:
        return _named(node.column, binder).isin(*[_lit(value) for value in node.values])
    if isinstance(node, Comparison) and isinstance(node.left, ColumnTerm) and isinstance(node.right, LiteralTerm):
        column, value = _named(node.left.name, binder), _lit(node.right.value)
        compared = {"<": column.__lt__, "<=": column.__le__, ">": column.__gt__, ">=": column.__ge__}
        if node.operator in compared:
            return compared[node.operator](value)
    message = (
        f"a predicate for Spark must be made of =, <, >, IN and IS NULL of columns and literals, got {node!r:.200}"
    )
    raise PredicateError(
        f"{message}; write the condition as SQL text, and long lists as the only or an AND-ed condition"
    )


def _named(name: str, binder: Binder) -> Column:
    from pyspark.sql import functions  # noqa: PLC0415 - an optional extra

    return functions.col(".".join(f"`{part.replace('`', '``')}`" for part in binder.path(name)))


def _lit(value: Any) -> Column:
    from pyspark.sql import functions  # noqa: PLC0415 - an optional extra

    if hasattr(value, "as_py"):
        value = value.as_py()
    text = text_of(value)
    if text is None and hasattr(value, "dtype"):
        value = value.item()
    return functions.lit(value) if text is None else functions.expr(text)
