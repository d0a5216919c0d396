"""Predicates: conditions on rows, from Python, SQL text or a pyarrow Expression.

===========================  =========================================================================
module                       what lives there
===========================  =========================================================================
``nodes``                    the tree: `Equals`, `IsIn`, `IsNull`, `Opaque`, `And`, `Or`, `Not`
``conditions``               what no filter judges but a re-check evaluates: ranges, functions, casts
``columns``                  `col`, the way to write a predicate in Python
``plain``                    the commonest SQL text, ``column = literal`` → tree, without the parser
``sql, sql_nesting``         SQL text → tree
``expression_tree, arrow``   pyarrow Expression → tree
``merging``                  ORs of equalities → one IN list
``recheck``                  tree → pyarrow Expression with SQL's three-valued semantics
``matching``                 equalities, AND and OR → plain kernels that find the same rows
``bounds``                   tree → ranges that statistics of row groups may deny
``numbers``                  numbers of any kind among the values of a column's type, exactly
===========================  =========================================================================

Spec: specs/pruning.md#predicates.
"""

from __future__ import annotations

from typing import Any

from zonebloom.errors import PredicateError
from zonebloom.predicates.columns import Column, col
from zonebloom.predicates.merging import merged
from zonebloom.predicates.nodes import And, Equals, IsIn, IsNull, Not, Opaque, Or, Predicate
from zonebloom.predicates.plain import plain_equality

__all__ = ["And", "Column", "Equals", "IsIn", "IsNull", "Not", "Opaque", "Or", "Predicate", "col", "parse_predicate"]


def parse_predicate(predicate: Any) -> Predicate:
    """The predicate that is given as itself, as SQL text, or as a pyarrow Expression; ORs of equalities as IN lists.

    Examples
    --------
    >>> parse_predicate("user_id = 'u-1' AND note IS NULL")
    And(Equals('user_id', 'u-1'), IsNull('note'))

    Raises
    ------
    PredicateError
        The text is no condition, or holds what neither filters nor the re-check can evaluate; or the predicate is more
        than 1000 levels of AND, OR and NOT deep.

    Spec: specs/pruning.md#predicates.
    """
    if isinstance(predicate, Predicate):
        predicate.check_depth()
        return merged(predicate)
    if isinstance(predicate, str):
        if (plain := plain_equality(predicate)) is not None:
            return plain
        from zonebloom.predicates.sql import parse_sql  # noqa: PLC0415 -- sqlglot is slow to import

        return parse_predicate(parse_sql(predicate))
    import pyarrow.compute as pc  # noqa: PLC0415 -- slow to import

    if isinstance(predicate, pc.Expression):
        from zonebloom.predicates.arrow import from_expression  # noqa: PLC0415 -- only where it is used

        return from_expression(predicate)
    kind = type(predicate).__name__
    raise PredicateError(f"a predicate must be made with col(), or be SQL text or a pyarrow Expression, got a {kind}")
