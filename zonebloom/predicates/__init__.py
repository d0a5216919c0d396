"""Predicates: conditions on rows, from Python, SQL text or a pyarrow Expression.

====================  ====================================================================
module                what lives there
====================  ====================================================================
``tree``              `Equals`, `IsIn`, `IsNull`, `Opaque`, `And`, `Or`, `Not`
``terms``             conditions that only the row filter evaluates: ranges, functions, casts
``columns``           `col`, the way to write a predicate in Python
``plain``             the commonest SQL text, ``column = literal``, without the parser
``sql``               SQL text to tree; ``sql_literals`` has its literals, ``sql_nesting`` deep ones
``arrow_expression``  pyarrow Expression to tree; ``arrow_pickle`` decodes its pickle
``simplify``          ORs of equalities to one IN list
``wording``           tree to text for people
``row_filter``        tree to pyarrow Expression with SQL's three-valued semantics
``matching``          equalities, AND and OR to plain kernels that match the same rows
``row_group_bounds``  tree to ranges that statistics of row groups may exclude
``numbers``           numbers of any kind among the values of a column's type, exactly
``coerce/``           a literal to a value of exactly the column's type, or the reason why there is none
====================  ====================================================================

Spec: specs/pruning.md#predicates.
"""

from __future__ import annotations

from typing import Any

from zonebloom.errors import PredicateError
from zonebloom.predicates.columns import Column, col
from zonebloom.predicates.plain import plain_equality
from zonebloom.predicates.simplify import merged
from zonebloom.predicates.tree import And, Equals, IsIn, IsNull, Not, Opaque, Or, Predicate

__all__ = ["And", "Column", "Equals", "IsIn", "IsNull", "Not", "Opaque", "Or", "Predicate", "col", "parse_predicate"]


def parse_predicate(predicate: Any) -> Predicate:
    """`predicate`, a `Predicate`, SQL text or a pyarrow Expression, as a tree with ORs of equalities made IN lists.

    Examples
    --------
    >>> parse_predicate("user_id = 'u-1' AND note IS NULL")
    And(Equals('user_id', 'u-1'), IsNull('note'))

    Raises
    ------
    PredicateError
        The text is no condition, or has a part that neither filters nor the row filter can evaluate. Or the predicate
        is more than 1000 levels of AND, OR and NOT deep.

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
        from zonebloom.predicates.arrow_expression import from_expression  # noqa: PLC0415 -- only where it is used

        return from_expression(predicate)
    kind = type(predicate).__name__
    raise PredicateError(f"a predicate must be made with col(), or be SQL text or a pyarrow Expression, got a {kind}")
