"""The row filter: the rows of a table in which a predicate is TRUE.

A predicate becomes a pyarrow Expression that gives TRUE, FALSE or NULL for each row, as SQL does. Equalities, IN lists,
AND and OR, the predicates of most scans, become plain kernels: starting the plan of an Expression takes longer than
comparing a zone. Without NOT, a NULL has the effect of FALSE at every level. `comparisons` has the leaves.

Design: docs/design/conditions.md#to-expression.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from zonebloom.predicates.comparisons import Matcher, leaf_expression, leaf_matcher
from zonebloom.predicates.leaves import Equals, IsIn
from zonebloom.predicates.tree import And, Or, Predicate

if TYPE_CHECKING:
    import pyarrow.compute as pc


def matcher_of(predicate: Predicate, schema: pa.Schema) -> Matcher:
    """The matcher that is true in exactly the rows of a table of `schema` in which `predicate` is TRUE.

    Raises
    ------
    PredicateError, ColumnNotFoundError
        As `to_expression`.
    """
    return plain_matcher(predicate, schema) or _by_expression(to_expression(predicate, schema))


def plain_matcher(predicate: Predicate, schema: pa.Schema) -> Matcher | None:
    """As `matcher_of`, if plain kernels find the rows; else None.

    Leaves other than equalities and IN lists, and literals that do not convert, have no kernels. Raises nothing.
    """
    nodes = list(predicate.walk())
    leaves = [node for node in nodes if isinstance(node, (Equals, IsIn))]
    if len(leaves) + sum(isinstance(node, (And, Or)) for node in nodes) < len(nodes):
        return None
    tests = {id(leaf): test for leaf in leaves if (test := leaf_matcher(leaf, schema)) is not None}
    if len(tests) < len(leaves):
        return None
    return lambda table: predicate.combined(lambda leaf: tests[id(leaf)](table))


def _by_expression(expression: pc.Expression) -> Matcher:
    """The value of `expression` for each row, without the threads of `Table.filter`: they take longer to start."""
    from pyarrow import acero  # noqa: PLC0415 - it loads pandas if installed, and `exists` does not need it

    project = acero.Declaration("project", acero.ProjectNodeOptions([expression], ["is_matching"]))

    def matched(table: pa.Table) -> pa.ChunkedArray:
        source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
        return acero.Declaration.from_sequence([source, project]).to_table(use_threads=False)["is_matching"]

    return matched


def to_expression(predicate: Predicate, schema: pa.Schema) -> pc.Expression:
    """The pyarrow Expression that gives TRUE, FALSE or NULL for the rows of a table of `schema`, as SQL does.

    Literals are cast to their column's type. Floats compare as IEEE 754 says: NaN equals nothing, and both zeros are
    equal.

    Raises
    ------
    PredicateError
        A literal cannot be compared with its column, a function has no kernel for its argument, or the tree is more
        than 1000 levels deep.
    ColumnNotFoundError
        The schema has no such column.

    Design: docs/design/conditions.md#to-expression.
    """
    predicate.check_depth()
    return predicate.combined(lambda leaf: leaf_expression(leaf, schema))
