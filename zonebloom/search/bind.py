"""Binding: a predicate and the filters of its columns become steps for evaluation without further look-ups.

Columns are opened, and filters are probed, unless that is done already. Conditions on partition values and on values of
table logs are evaluated here, for whole files. A leaf that no filter can evaluate is bound to a reason.

Spec: specs/pruning.md#bind
"""

from __future__ import annotations

from operator import and_, or_
from typing import Protocol

from zonebloom.errors import PredicateError, Words
from zonebloom.ground.reasons import Reason, ReasonCode
from zonebloom.predicates import And, Condition, Equals, IsIn, IsNull, Not, Or, Predicate
from zonebloom.predicates.leaves import OfTerms, Piece, pruned_by
from zonebloom.predicates.selection import Bounds, RowSelection
from zonebloom.predicates.sql_writer import as_sql
from zonebloom.predicates.terms import columns_of
from zonebloom.search.evaluate import (
    BoundPredicate,
    Decided,
    InZones,
    Joined,
    Negated,
    ProbedColumn,
    Step,
    Undecided,
)
from zonebloom.search.probe import Probe, Probes, hashes_of


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


def bind(predicate: Predicate, searched: Searched, probes: Probes) -> BoundPredicate:
    """`predicate` as steps in postfix order; the tree may have any depth. Leaves without a probe are probed.

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
            steps.append(_bound_leaf(node, searched, probes))
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


def _bound_leaf(node: Predicate, searched: Searched, probes: Probes) -> Step:
    if not isinstance(node, (Equals, IsIn, IsNull)) or not isinstance(node.column, str):
        return _unprobed(node, searched)
    column = searched.column(node.column)
    if column is None:
        message = f"column {node.column} has no filters; make them by {Words.BUILD_COLUMN.of(node.column)}"
        return Undecided(node, (Reason(ReasonCode.COLUMN_NOT_INDEXED, message, column=node.column),))
    probe = probes.get(id(node))
    if probe is None or probe.zones is not column.zones or probe.column_type != column.column_type:
        probe = Probe.of(column.zones, column.column_type, hashes_of(node, column.column_type))
    if isinstance(probe.numbers, Reason):
        return Undecided(node, (*column.reasons, probe.numbers))
    return InZones(column, probe.numbers)


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
    reason = Reason(code, f"no filter can evaluate {as_sql(node)}", column=next(iter(columns), None))
    return Undecided(node, (reason,))
