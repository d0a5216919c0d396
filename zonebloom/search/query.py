"""`Query`: a predicate on a view; the rows that may match, and why other rows were not excluded.

Spec: specs/pruning.md#evaluate
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from zonebloom.bloom.selection import Bounds
from zonebloom.ground.cached import cached_property
from zonebloom.ground.errors import Words
from zonebloom.ground.reasons import Reason, ReasonCode
from zonebloom.predicates import Condition, Predicate
from zonebloom.search.evaluate import Evaluation, evaluate
from zonebloom.search.probe import Probes
from zonebloom.search.result import SearchResult
from zonebloom.search.view import View


@dataclass(frozen=True)
class Query:
    """One predicate on one view."""

    view: View
    predicate: Predicate
    probes: Probes = field(default_factory=dict)
    """Answers of filters to leaves of the predicate, as far as they were asked before."""
    own_filters: bool = True
    """Whether to use the filters inside files that the index does not describe."""

    @cached_property
    def _evaluation(self) -> Evaluation:
        return evaluate(self.predicate, self.view, self.probes)

    @cached_property
    def result(self) -> SearchResult:
        """The rows that may match, with the fragment ids of the index."""
        view = self.view
        bounds, reasons, _ = self._evaluation
        if reasons:
            view.snapshot.warn_of_damage()
        bounds, all_reasons = self._narrowed(bounds, dict.fromkeys((*reasons, *view.reasons)))
        return SearchResult(
            bounds.kind(view.universe),
            bounds.true_rows,
            self._located(tuple(all_reasons)),
            paths=view.files.paths,
            files_by_path=view.files,
            universe=view.universe,
            zones=view.zones_to_count(self.predicate.columns()),
            row_groups=view.row_groups,
            unreadable=frozenset(view.files[path].fragment_id for path in view.files.unreadable_paths),
        )

    def _narrowed(self, bounds: Bounds, reasons: Iterable[Reason]) -> tuple[Bounds, Iterable[Reason]]:
        """The bounds without row groups that filters inside files exclude; the reasons say so."""
        if not (self.own_filters and self.view.num_unknown):
            return bounds, reasons
        from zonebloom.search.parquet_filters import OwnSearch  # noqa: PLC0415 - most lakes have no such files

        own = OwnSearch(self.view.own_filters, self.view.universe)
        return own.narrowed(bounds, self.predicate), own.detailed(reasons)

    def _located(self, reasons: tuple[Reason, ...]) -> tuple[Reason, ...]:
        """The reasons; for a column that folder names have too, the reason says that files may differ from folders."""
        if not any(reason.code is ReasonCode.COLUMN_NOT_INDEXED for reason in reasons):
            return reasons
        first = next(iter(self.view.files), None)
        named = () if first is None else self.view.dataset.path_values(first)
        return tuple(
            _in_file(reason) if reason.column in named and reason.path is None else reason for reason in reasons
        )

    @property
    def numbered(self) -> SearchResult:
        """The result with the table's numbers of its fragments; the index's ids have no meaning in the table."""
        numbers = self.view.numbers
        if numbers is None:
            return self.result
        is_same = all(fragment_id == number for fragment_id, number in numbers.items())
        return replace(self.result if is_same else self.result.renumbered(numbers), has_addresses=True)

    def check(self) -> None:
        """Raise the error that a scan would raise for a leaf that no filter evaluated.

        Raises
        ------
        PredicateError
            A literal cannot be compared with its column, or the condition cannot be evaluated on a row.
        """
        if undecided := self._evaluation.undecided:
            from zonebloom.predicates.row_filter import to_expression  # noqa: PLC0415 - filters answer most queries

            for leaf in self.predicate.walk():
                if id(leaf) in undecided or isinstance(leaf, Condition):
                    to_expression(leaf, self.view.plain_schema)


def _in_file(reason: Reason) -> Reason:
    if reason.code is not ReasonCode.COLUMN_NOT_INDEXED:
        return reason
    message = f"column {reason.column} is stored in the files as well as in folder names, and the two may differ"
    message = f"{message}; make filters by {Words.BUILD_COLUMN.of(str(reason.column))}"
    return Reason(ReasonCode.PARTITION_COLUMN_IN_FILE, message, column=reason.column)
