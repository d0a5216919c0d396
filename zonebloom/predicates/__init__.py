"""Predicates: conditions on rows, from Python, SQL text or a pyarrow Expression.

====================  ====================================================================
module                what lives there
====================  ====================================================================
``tree``              `Predicate`, `And`, `Or`, `Not`
``terms``             columns, literals, casts and calls: a value for each row
``leaves``            conditions on terms; pieces that only an engine evaluates; `Condition`, a pair for each
``columns``           `col`, the way to write a predicate in Python
``literals``          literals and collections of any library, converted without loss
``sql_equality``      ``column = literal``, the most common SQL text, without the parser
``sql``               SQL text to tree; ``sql_literals`` has its literals
``arrow_expression``  pyarrow Expression to `Condition`; ``arrow_pickle`` decodes its pickle
``simplify``          ORs of equalities to one IN list
``sql_writer``        tree to text for people
``row_filter``        tree to pyarrow Expression with SQL's three-valued semantics, or to plain kernels
``comparisons``       leaf to pyarrow Expression or to plain kernels, exactly, for each type
``row_group_bounds``  tree to ranges that statistics of row groups may exclude
``exact_numbers``     exact comparison of any number with the values of a column's type
``coerce/``           a literal to a value of exactly the column's type, or the reason why there is none
====================  ====================================================================

Spec: specs/pruning.md#predicates.
"""

from __future__ import annotations

from typing import Any

from zonebloom.ground.errors import MissingDependencyError, PredicateError
from zonebloom.predicates.columns import Column, col
from zonebloom.predicates.leaves import Condition, Equals, IsIn, IsNull
from zonebloom.predicates.simplify import merged
from zonebloom.predicates.sql_equality import plain_equality
from zonebloom.predicates.tree import And, Not, Or, Predicate

__all__ = ["And", "Column", "Condition", "Equals", "IsIn", "IsNull", "Not", "Or", "Predicate", "col", "parse_predicate"]


def parse_predicate(predicate: Any) -> Predicate:
    """The tree of `predicate`: a `Predicate`, SQL text or a pyarrow Expression. ORs of equalities become IN lists.

    An Expression becomes a `Condition`: a tree that prunes, and the expression itself, which decides on rows.

    Examples
    --------
    >>> parse_predicate("user_id = 'u-1' AND note IS NULL")
    And(Equals('user_id', 'u-1'), IsNull('note'))

    Raises
    ------
    PredicateError
        The text is not a condition, or it has a part that neither filters nor the row filter can evaluate. Or AND, OR
        and NOT are nested more than 1000 levels deep.
    MissingDependencyError
        sqlglot is not installed; SQL of one comparison needs none.

    Spec: specs/pruning.md#predicates.
    """
    if isinstance(predicate, str):
        if (plain := plain_equality(predicate)) is not None:
            return plain
        try:
            from zonebloom.predicates.sql import parse_sql  # noqa: PLC0415 -- sqlglot is slow to import
        except ImportError as absent:
            raise MissingDependencyError(
                "sqlglot must be installed to read SQL of more than one comparison",
                got=absent,
                do="pip install sqlglot, or write the condition with col()",
            ) from absent

        predicate = parse_sql(predicate)
    if isinstance(predicate, Predicate):
        if not predicate.children:
            return predicate
        predicate.check_depth()
        return merged(predicate)
    import pyarrow.compute as pc  # noqa: PLC0415 -- slow to import

    if isinstance(predicate, pc.Expression):
        from zonebloom.predicates.arrow_expression import from_expression  # noqa: PLC0415 -- only if it is used

        return from_expression(predicate)
    kind = type(predicate).__name__
    raise PredicateError("a predicate must be made with col(), or be SQL text or a pyarrow Expression", got=f"a {kind}")
