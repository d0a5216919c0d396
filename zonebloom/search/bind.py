"""Binding: a predicate and the filters of its columns become steps, which are evaluated without further look-ups.

Columns are opened, and literals become hashes of the column's type. Conditions on values of folders and table logs are
evaluated here, for whole files. A leaf that no filter can evaluate is bound to a reason.

Spec: specs/pruning.md#bind
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from decimal import Decimal
from operator import and_, or_
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from zonebloom.bloom import hashing
from zonebloom.errors import PredicateError
from zonebloom.predicates import And, Equals, IsIn, IsNull, Not, Opaque, Or, Predicate
from zonebloom.predicates.coerce import fit_values, plain_hash
from zonebloom.reasons import Reason, ReasonCode
from zonebloom.search.evaluate import (
    BoundPredicate,
    Decided,
    HasNull,
    Joined,
    MayEqual,
    Negated,
    ProbedColumn,
    Step,
    Undecided,
)
from zonebloom.search.selection import Bounds, RowSelection

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Searched(Protocol):
    """The target of a binding: a view of an index, or a zone table alone."""

    @property
    def universe(self) -> RowSelection:
        """All rows."""

    def column(self, name: str) -> ProbedColumn | None:
        """The filters of a column; None if it has none. Raises for a column that does not exist."""

    @property
    def constant_columns(self) -> frozenset[str]:
        """Columns without filters that have one value in all rows of a file, which is known without the file."""

    def constant_bounds(self, predicate: Predicate) -> Bounds:
        """Bounds of a predicate over constant columns only."""


def bind(predicate: Predicate, searched: Searched) -> BoundPredicate:
    """`predicate` as steps, parts before the step that joins them; the tree may have any depth.

    Raises
    ------
    ColumnNotFoundError
        The predicate has a column that does not exist.
    PredicateError
        A node is of another class than those of zonebloom.predicates, or a constant of a file does not convert.

    Spec: specs/pruning.md#bind
    """
    constant = _constant_nodes(predicate, searched.constant_columns)
    steps: list[Step] = []
    pending: list[Predicate | Step] = [predicate]
    while pending:
        node = pending.pop()
        if not isinstance(node, Predicate):
            steps.append(node)
            continue
        if id(node) in constant:
            bounds = searched.constant_bounds(node)
            steps.append(Decided(bounds))
            if bounds.exact or not any(map(searched.column, node.columns())):
                continue
            pending.append(Joined(and_, 2))  # filters exclude more of the files whose value is unknown
        if isinstance(node, (And, Or)):
            pending.append(Joined(and_ if isinstance(node, And) else or_, len(node.children)))
        elif isinstance(node, Not):
            pending.append(Negated(node))
        else:
            steps.append(_bound_leaf(node, searched))
        pending.extend(reversed(node.children))
    return BoundPredicate(searched.universe, tuple(steps))


def _constant_nodes(predicate: Predicate, names: frozenset[str]) -> set[int]:
    """The `id`s of nodes that read at least one column, and only constant columns."""
    if not names:
        return set()
    known: dict[int, bool | None] = {}
    for node in reversed(list(predicate.walk())):  # children first
        if node.children:
            own = node._leaf_columns()  # noqa: SLF001 -- an Expression may read more than its tree
            parts = [known[id(child)] for child in node.children] + ([names.issuperset(own)] if own else [])
            known[id(node)] = None if not any(one is not None for one in parts) else False not in parts
        else:
            columns = node.columns()
            is_evaluable = not isinstance(node, Opaque) or node.is_evaluable
            known[id(node)] = (columns <= names and is_evaluable) if columns or not is_evaluable else None
    return {one for one, is_constant in known.items() if is_constant}


def _bound_leaf(node: Predicate, searched: Searched) -> Step:
    if isinstance(node, Opaque):
        columns = node.columns()
        for name in columns:
            searched.column(name)
        message = f"no filter can evaluate {node.text}"
        return Undecided((Reason(node.code, message, column=next(iter(columns), None)),))
    if not isinstance(node, (Equals, IsIn, IsNull)):
        raise PredicateError(f"a predicate must be one of zonebloom.predicates, got {type(node).__name__}")
    column = searched.column(node.column)
    if column is None:
        message = f"column {node.column} has no filters; make them by build_index(path, '{node.column}')"
        return Undecided((Reason(ReasonCode.COLUMN_NOT_INDEXED, message, column=node.column),))
    if isinstance(node, IsNull):
        return HasNull(column)
    values = node.values if isinstance(node, IsIn) else node.value
    hashes = _hashes_to_probe(values, column.column_type, node.column)
    if isinstance(hashes, Reason):
        return Undecided((*column.reasons, hashes))
    return MayEqual(column, hashes)


def _hashes_to_probe(values: Any, column_type: pa.DataType | None, column: str) -> NDArray[np.uint64] | Reason:
    if column_type is None:
        return _hashes_of_each_form(values, column)
    one = plain_hash(values, column_type)
    if one is not None:
        return np.array((one,), np.uint64)
    fit = fit_values(values, column_type)
    if fit.reason is not None:
        return fit.reason.about(column=column)
    return np.asarray(hashing.hash_values(fit.values), np.uint64)


_LANCE_TYPES = (
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.date32(), pa.date64()),
    *(pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
    *(pa.timestamp(unit, "UTC") for unit in ("s", "ms", "us", "ns")),
)


def _hashes_of_each_form(values: Any, column: str) -> NDArray[np.uint64] | Reason:
    """The hashes of `values` in each of Lance's types that can hold them: a table without a type is Lance's.

    Spec: specs/pruning.md#untyped-zone-table
    """
    if isinstance(values, (pa.Scalar, pa.Array, pa.ChunkedArray)):
        return _hashes_to_probe(values, values.type, column)
    found: set[int] = set()
    fitted = False
    for candidate in _LANCE_TYPES:
        fit = fit_values(values, candidate)
        if fit.reason is not None and fit.reason.code == ReasonCode.NAN_LITERAL:
            return fit.reason.about(column=column)
        if fit.reason is None:
            fitted = True
            found.update(int(one) for one in hashing.hash_values(fit.values))
    if not fitted:
        message = "the zone table does not say its column's type, and no type of Lance's holds the literal"
        return Reason(ReasonCode.TYPE_MISMATCH, message, column=column)
    found.update(_nearest_floats(values))
    return np.array(sorted(found), np.uint64)


def _nearest_floats(values: Any) -> Iterable[int]:
    """The hashes of the floats nearest to `values`: engines may compare a column of floats with them."""
    given = values if isinstance(values, (list, tuple, set)) else [values]
    floats = []
    for one in given:
        if isinstance(one, (int, float, Decimal)):
            with suppress(OverflowError):
                floats.append(float(one))
    with np.errstate(over="ignore"):
        nearest = [np.array(floats, np.float64), np.array(floats, np.float32)]
    return (int(one) for column in nearest for one in hashing.hash_values(pa.array(column)))
