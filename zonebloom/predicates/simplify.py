"""ORs of equalities of one column, as engines write IN lists, made into one IN list.

Thousands of leaves become one: their values are hashed together, the filters are probed once, and the row filter is one
``is_in``. (pyarrow 26 takes quadratic time for a chain of ORs, and overflows the stack at about 10 000.)

Spec: specs/pruning.md#merging.
"""

from __future__ import annotations

from collections.abc import Hashable
from operator import is_
from typing import Any

import pyarrow as pa

from zonebloom.predicates.tree import And, Equals, IsIn, Not, Or, Predicate, is_null_literal


def merged(predicate: Predicate) -> Predicate:
    """The predicate, with the equalities of one column under an OR made into one `IsIn`.

    The result of every row is the same: only values of one type are joined, so each is compared as before.
    """
    return predicate.fold(_visit)


def _visit(node: Predicate, parts: list[Predicate]) -> Predicate:
    if not parts:
        return node
    if isinstance(node, Or):
        parts = _joined(parts)
        return parts[0] if len(parts) == 1 else _like(node, parts)
    return _like(node, parts)


def _like(node: Predicate, parts: list[Predicate]) -> Predicate:
    """The joint `node` with the children `parts`."""
    if len(parts) == len(node.children) and all(map(is_, parts, node.children)):
        return node
    if isinstance(node, Not):
        return ~parts[0]
    return And(parts) if isinstance(node, And) else Or(parts)


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
    """Column and type, which equalities must share to be joined; None for predicates that are never joined."""
    if not isinstance(child, Equals) or child.null_safe or is_null_literal(child.value):
        return None
    arrow_type = child.value.type if isinstance(child.value, pa.Scalar) else None
    return child.column, type(child.value), arrow_type


def _values(values: list[Any]) -> Any:
    """Arrow scalars of one type as an array of that type; other values as they are."""
    first = values[0]
    if not isinstance(first, pa.Scalar) or isinstance(first.type, pa.BaseExtensionType):
        return values
    try:
        return pa.array([value.as_py() for value in values], first.type)
    except (pa.ArrowException, ValueError, OverflowError):
        return values
