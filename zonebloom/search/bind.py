"""Binding: a predicate and the filters of its columns become steps for evaluation without further look-ups.

Columns are opened, and literals become hashes of the column's type. Conditions on partition values and on values of
table logs are evaluated here, for whole files. A leaf that no filter can evaluate is bound to a reason.

Spec: specs/pruning.md#bind
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from operator import and_, or_
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from zonebloom.bloom import hashing
from zonebloom.errors import PredicateError, Words
from zonebloom.predicates import And, Condition, Equals, IsIn, IsNull, Not, Or, Predicate
from zonebloom.predicates.coerce import fit_each, fit_values, plain_hash
from zonebloom.predicates.exact_numbers import number_of
from zonebloom.predicates.leaves import OfTerms, Piece, pruned_by
from zonebloom.predicates.literals import collected, is_collection, null_mask
from zonebloom.predicates.selection import Bounds, RowSelection
from zonebloom.predicates.sql_writer import as_sql
from zonebloom.predicates.terms import columns_of
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

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Searched(Protocol):
    """The target of a binding: a view of an index, or a zone table alone."""

    @property
    def universe(self) -> RowSelection:
        """All rows."""

    def column(self, name: str) -> ProbedColumn | None:
        """The filters of a column; None if it has none. Raises an error if the column does not exist."""

    @property
    def constant_columns(self) -> frozenset[str]:
        """Columns without filters and with one value per file; the value is known without opening the file."""

    def constant_bounds(self, predicate: Predicate) -> Bounds:
        """Bounds of a predicate over constant columns only."""


def bind(predicate: Predicate, searched: Searched) -> BoundPredicate:
    """`predicate` as steps in postfix order; the tree may have any depth.

    Raises
    ------
    ColumnNotFoundError
        The predicate has a column that does not exist.
    PredicateError
        The class of a node is not in zonebloom.predicates, or the constant value of a file does not convert.

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
        elif not isinstance(node, Condition):
            steps.append(_bound_leaf(node, searched))
        pending.extend(reversed(pruned_by(node)))
    return BoundPredicate(searched.universe, tuple(steps))


def _constant_nodes(predicate: Predicate, names: frozenset[str]) -> set[int]:
    """The `id`s of nodes that read at least one column, and only constant columns."""
    if not names:
        return set()
    constant: set[int] = set()

    def is_constant(node: Predicate, parts: list[bool | None]) -> bool | None:
        """Whether `node` reads constant columns only; None if it reads no column."""
        own = node.own_columns  # the filter of a pair may read more columns than its tree
        answers = [part for part in parts if part is not None] + ([names.issuperset(own)] if own else [])
        is_evaluable = not isinstance(node, Piece) or node.expression is not None
        if answers and all(answers) and is_evaluable:
            constant.add(id(node))
        return (all(answers) if answers else None) if is_evaluable else False

    predicate.fold(is_constant, pruned_by)
    return constant


def _bound_leaf(node: Predicate, searched: Searched) -> Step:
    if not isinstance(node, (Equals, IsIn, IsNull)) or not isinstance(node.column, str):
        return _unprobed(node, searched)
    column = searched.column(node.column)
    if column is None:
        message = f"column {node.column} has no filters; make them by {Words.BUILD_COLUMN.of(node.column)}"
        return Undecided((Reason(ReasonCode.COLUMN_NOT_INDEXED, message, column=node.column),))
    if isinstance(node, IsNull):
        return HasNull(column)
    values = node.values if isinstance(node, IsIn) else node.value
    hashes = _hashes_to_probe(values, column.column_type, node.column)
    if isinstance(hashes, Reason):
        return Undecided((*column.reasons, hashes))
    return MayEqual(column, hashes)


def _unprobed(node: Predicate, searched: Searched) -> Undecided:
    """The step of a leaf other than equality, IN list or IS NULL of a plain column."""
    columns = node.columns()
    for name in columns:
        searched.column(name)
    if isinstance(node, Piece):
        code = node.code
    elif isinstance(node, OfTerms):
        is_wrapped = any(columns_of(term) for term in node.terms if not isinstance(term, str))
        code = ReasonCode.CAST_ON_COLUMN if is_wrapped else ReasonCode.PREDICATE_NOT_SUPPORTED
    else:
        raise PredicateError("a predicate must be one of zonebloom.predicates", got=type(node).__name__)
    return Undecided((Reason(code, f"no filter can evaluate {as_sql(node)}", column=next(iter(columns), None)),))


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
    """The hashes of `values` in each Lance type that can hold them, because a table without a type is Lance's.

    Spec: specs/pruning.md#untyped-zone-table
    """
    given = collected(values) if is_collection(values) else [values]
    is_null = null_mask(given)
    types = _LANCE_TYPES
    if isinstance(values, (pa.Scalar, pa.Array)) and values.type not in types:
        types = (*types, values.type)
    hashes = [np.array(list(_nearest_floats(given)), np.uint64)]
    is_held = is_null
    for candidate in types:
        if not hashing.is_supported(candidate):
            continue
        fit = fit_each(given, candidate)
        hashes.append(np.asarray(hashing.hash_values(fit.values), np.uint64))
        is_held[fit.slots] = True
    if not is_held.all():
        whole = fit_values(given, pa.float64()).reason
        if whole is not None and whole.code == ReasonCode.NAN_LITERAL:
            return whole.about(column=column)
        message = "the zone table does not say its column's type, and no type of Lance's holds the literal"
        return Reason(ReasonCode.TYPE_MISMATCH, message, column=column)
    return np.unique(np.concatenate(hashes))


def _nearest_floats(values: pa.Array | list[Any]) -> Iterable[int]:
    """The hashes of the floats nearest to `values`: engines may compare float columns with these floats."""
    floats = []
    for value in values:
        number = number_of(value)
        if number is not None:
            with suppress(OverflowError):
                floats.append(float(number))
    with np.errstate(over="ignore"):
        nearest = [np.array(floats, np.float64), np.array(floats, np.float32)]
    return (int(one) for column in nearest for one in hashing.hash_values(pa.array(column)))
