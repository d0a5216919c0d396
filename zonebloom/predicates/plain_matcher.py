"""Plain kernels instead of a pyarrow Expression, for the predicates of most scans.

A predicate of equalities, IN lists, AND and OR needs no pyarrow Expression: starting the plan of an Expression takes
longer than comparing a zone. Without NOT, a NULL has the effect of FALSE at every level. Other predicates take
`row_filter.to_expression`.

Design: docs/design/conditions.md#to-expression.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from zonebloom.ground.arrow import to_kernel
from zonebloom.predicates.coerce import fit_values
from zonebloom.predicates.comparisons import with_both_zeros
from zonebloom.predicates.leaves import Equals, IsIn
from zonebloom.predicates.operands import kernel_casts
from zonebloom.predicates.tree import And, Or, Predicate

Matcher: TypeAlias = Callable[[pa.Table], pa.ChunkedArray]
"""A table of the schema → for each row: true if it matches, false or null if not."""


def plain_matcher(predicate: Predicate, schema: pa.Schema) -> Matcher | None:
    """The matcher that is true in exactly the rows in which the predicate's expression is true; None if there is none.

    Leaves other than equalities and IN lists have no matcher, nor have literals that do not convert. Raises nothing.
    """
    leaves: list[Equals | IsIn] = []
    for node in predicate.walk():
        if isinstance(node, (Equals, IsIn)):
            leaves.append(node)
        elif not isinstance(node, (And, Or)):
            return None
    tests = {id(leaf): test for leaf in leaves if (test := _membership(leaf, schema)) is not None}
    if len(tests) < len(leaves):
        return None

    def matched(node: Predicate, parts: list[pa.ChunkedArray], table: pa.Table) -> pa.ChunkedArray:
        if not parts:
            return tests[id(node)](table)
        return reduce(pc.and_kleene if isinstance(node, And) else pc.or_kleene, parts)

    return lambda table: predicate.fold(lambda node, parts: matched(node, parts, table))


def _membership(leaf: Equals | IsIn, schema: pa.Schema) -> Matcher | None:
    """The matcher of rows whose column has one of the leaf's values; None if a literal does not convert."""
    name = leaf.column
    if not isinstance(name, str) or schema.get_field_index(name) < 0:
        return None
    column_type = schema.field(name).type
    fit = fit_values([leaf.value] if isinstance(leaf, Equals) else leaf.values, column_type)
    if fit.reason is not None or pa.types.is_null(column_type):
        return None
    values, casts = to_kernel(fit.values), kernel_casts(column_type)
    if len(values) == 1:
        value = values[0]
        return lambda table: pc.equal(reduce(pc.cast, casts, table[name]), value)
    listed = with_both_zeros(values)
    return lambda table: pc.is_in(reduce(pc.cast, casts, table[name]), value_set=listed)
