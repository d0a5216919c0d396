"""Evaluation of a predicate: the rows that may match, and the reasons for rows that were not excluded.

Each node gives `Bounds`: the rows where it can be TRUE, and the rows where it can be FALSE. Conditions on partition
values and on values of table logs are evaluated for whole files. The bounds of a leaf that no filter can evaluate are
all rows, so no row is lost. A zone is excluded only if its filter says CANNOT_MATCH, which is a proof.

Spec: specs/pruning.md#evaluate
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import and_, or_
from typing import NamedTuple, Protocol

from zonebloom.bloom.selection import Bounds, RowSelection
from zonebloom.ground.errors import PredicateError, Words
from zonebloom.ground.reasons import Reason, ReasonCode
from zonebloom.predicates import And, Equals, IsIn, IsNull, Not, Or, Predicate
from zonebloom.predicates.leaves import OfTerms, Piece, pruned_by
from zonebloom.predicates.sql_writer import as_sql
from zonebloom.predicates.terms import columns_of
from zonebloom.search.probe import Probe, Probes, hashes_of
from zonebloom.search.probed_column import ProbedColumn


class Searched(Protocol):
    """The target of a search: a view of an index, or a zone table alone."""

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


class Evaluation(NamedTuple):
    """A predicate on the rows of a search's target."""

    bounds: Bounds
    reasons: tuple[Reason, ...]
    """Why more rows were not excluded, damage of the probed filters included."""
    undecided: frozenset[int]
    """The `id`s of the leaves that no filter evaluated."""


def evaluate(predicate: Predicate, searched: Searched, probes: Probes) -> Evaluation:
    """The rows where `predicate` can be TRUE, the rows where it can be FALSE, and why other rows were not excluded.

    Columns are opened, and leaves without a probe are probed. The tree may have any depth.

    Raises
    ------
    ColumnNotFoundError
        The predicate has a column that does not exist.
    PredicateError
        The class of a node is not in zonebloom.predicates, or the constant value of a file does not convert.

    Spec: specs/pruning.md#evaluate
    """
    universe, constant = searched.universe, _constant_nodes(predicate, searched.constant_columns)
    reasons: dict[Reason, None] = {}  # there may be one for each file: a list would take quadratic time
    undecided: set[int] = set()
    decided: dict[int, Bounds] = {}

    def is_settled(node: Predicate) -> bool:
        """Whether filters cannot exclude more: they can in files whose constant value is unknown."""
        bounds = decided.get(id(node))
        return bounds is not None and (bounds.exact or not any(map(searched.column, node.columns())))

    def below(node: Predicate) -> Sequence[Predicate]:
        if id(node) in constant:
            decided[id(node)] = searched.constant_bounds(node)
        return () if is_settled(node) else pruned_by(node)

    def visit(node: Predicate, parts: list[Bounds]) -> Bounds:
        if is_settled(node):
            return decided[id(node)]
        if parts:
            bounds = joined(node, parts)
            reasons.update(dict.fromkeys(_reasons_of_joint(node, parts) if len(universe) else ()))
        else:
            rows, why = _leaf(node, searched, probes)
            reasons.update(dict.fromkeys(why))
            if rows is None:
                undecided.add(id(node))
            bounds = Bounds.unknown(universe) if rows is None else Bounds.at_most(rows, universe)
        return decided[id(node)] & bounds if id(node) in decided else bounds

    bounds = predicate.fold(visit, below)
    return Evaluation(bounds, tuple(reasons), frozenset(undecided))


def joined(node: Predicate, parts: Sequence[Bounds]) -> Bounds:
    """The bounds of a node from those of the nodes `pruned_by` gives."""
    if isinstance(node, (And, Or)):
        return reduce(and_ if isinstance(node, And) else or_, parts)
    return ~parts[0] if isinstance(node, Not) else parts[0]


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


def _leaf(node: Predicate, searched: Searched, probes: Probes) -> tuple[RowSelection | None, Iterable[Reason]]:
    """The rows in which a leaf may be TRUE, and why they are not fewer; None if no filter can evaluate it."""
    if not isinstance(node, (Equals, IsIn, IsNull)) or not isinstance(node.column, str):
        return None, [_not_evaluated(node, searched)]
    column = searched.column(node.column)
    if column is None:
        message = f"column {node.column} has no filters; make them by {Words.BUILD_COLUMN.of(node.column)}"
        return None, [Reason(ReasonCode.COLUMN_NOT_INDEXED, message, column=node.column)]
    probe = probes.get(id(node))
    if probe is None or probe.zones is not column.zones or probe.column_type != column.column_type:
        probe = Probe.of(column.zones, column.column_type, hashes_of(node, column.column_type))
    if isinstance(probe.numbers, Reason):
        return None, (*column.reasons, probe.numbers)
    return column.rows_of(probe.numbers), (*column.reasons, *column.damage)


def _not_evaluated(node: Predicate, searched: Searched) -> Reason:
    """The reason for a leaf other than equality, IN list or IS NULL of a plain column."""
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
    return Reason(code, f"no filter can evaluate {as_sql(node)}", column=next(iter(columns), None))


def _reasons_of_joint(node: Predicate, parts: list[Bounds]) -> Iterable[Reason]:
    if isinstance(node, Or) and len({part.is_true_bounded for part in parts}) > 1:
        message = "no filter can evaluate one side of an OR, so the other side prunes nothing"
        yield Reason(ReasonCode.OR_WITH_UNINDEXED_BRANCH, message)
    if isinstance(node, Not) and not parts[0].is_false_bounded:
        message = "a filter proves absence only, so it cannot evaluate a negated condition"
        yield Reason(ReasonCode.NEGATED_PREDICATE, message, column=min(node.columns(), default=None))
