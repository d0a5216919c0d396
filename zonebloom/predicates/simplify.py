"""Merges ORs of equalities of one column into one IN list; some engines write IN lists as such ORs.

Thousands of leaves become one. Their values are hashed together, the filters are probed once, and the row filter is one
``is_in``. (For a chain of ORs pyarrow 26 takes quadratic time, and overflows the stack at about 10 000.)

Spec: specs/pruning.md#merging.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pyarrow as pa

from zonebloom.predicates.leaves import Equals, IsIn
from zonebloom.predicates.literals import is_null_literal
from zonebloom.predicates.tree import Or, Predicate, rebuilt


def merged(predicate: Predicate) -> Predicate:
    """The predicate with the equalities of one column under an OR merged into one `IsIn`.

    The result for every row is the same: only values of one type are merged, so each is compared as before.
    """
    return predicate.fold(_visit)


def _visit(node: Predicate, parts: list[Predicate]) -> Predicate:
    parts = _joined(parts) if isinstance(node, Or) else parts
    if not parts:
        return node
    return parts[0] if isinstance(node, Or) and len(parts) == 1 else rebuilt(node, parts)


def _joined(children: list[Predicate]) -> list[Predicate]:
    groups: dict[Hashable, list[Equals]] = {}
    for child in children:
        if (key := _key(child)) is not None and isinstance(child, Equals):
            groups.setdefault(key, []).append(child)
    out: list[Predicate] = []
    for child in children:
        equals = groups.get(_key(child), [])
        if len(equals) < 2:  # noqa: PLR2004 -- one equality is no list
            out.append(child)
        elif child is equals[0]:
            out.append(IsIn(equals[0].column, _values([equal.value for equal in equals])))
    return out


def _key(child: Predicate) -> Hashable:
    """Column and type; equalities with the same key are merged. None for a predicate that is never merged."""
    if not isinstance(child, Equals) or not isinstance(child.column, str):
        return None
    if child.null_safe or is_null_literal(child.value):
        return None
    arrow_type = child.value.type if isinstance(child.value, pa.Scalar) else None
    return child.column, type(child.value), arrow_type


def _values(values: list[Any]) -> Any:
    """Arrow scalars of one type as an array of that type; other values as they are."""
    first = values[0]
    if not isinstance(first, pa.Scalar) or isinstance(first.type, pa.BaseExtensionType):
        return values
    try:
        return pa.array(values, first.type)
    except (pa.ArrowException, ValueError, OverflowError):
        return values
