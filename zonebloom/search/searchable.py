"""`Searchable`: data files that are searched and scanned by conditions, with an index or by their own filters.

Spec: specs/pruning.md
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from zonebloom.errors import PredicateError
from zonebloom.predicates import And, IsIn, Predicate, parse_predicate
from zonebloom.search.result import SearchResult
from zonebloom.search.view import View
from zonebloom.storage.stores.store import Traffic

if TYPE_CHECKING:
    from zonebloom.search.explain import Explanation

_log = logging.getLogger("zonebloom")
"""Quiet unless a program sets it up: what was opened, searched and committed, at level DEBUG."""


class Searchable(ABC):
    """Data files at each moment, as `view` has them, and conditions on their rows."""

    @abstractmethod
    def view(self) -> View:
        """The data set as it is now, and what is known of it; the last view again where nothing changed."""

    @property
    @abstractmethod
    def traffic(self) -> Traffic:
        """What was asked of object stores so far."""

    def _checked_view(self, *, strict: bool) -> View:
        view = self.view()
        if strict:
            view.check_known()
        return view

    def search(
        self,
        predicate: Predicate | str | Any = None,
        *,
        column: str | None = None,
        values: Any = None,
        strict: bool = False,
    ) -> SearchResult:
        """Rows that may match `predicate`; the rest of the data set certainly do not.

        Text that spells a value of the column's type is that value; a literal that cannot be compared is an error.

        Parameters
        ----------
        predicate
            `col("user_id") == "u-1"`, SQL text (`"user_id = 'u-1' AND day = 3"`), or a pyarrow Expression.
        column, values
            The rows whose `column` equals one of `values`: anything that Arrow takes as an array, of any length. With
            a predicate as well, the rows for which both hold.
        strict
            Refuse to answer where files are new or changed since the last refresh, which are else read whole.

        Raises
        ------
        PredicateError
            It cannot be parsed, or a literal cannot be compared with its column.
        ColumnNotFoundError
            It names a column that the data set does not have.
        StaleIndexError
            `strict`, and a file is new or changed.

        Spec: specs/pruning.md#evaluate
        """
        tree = _condition(predicate, column, values)
        view = self._checked_view(strict=strict)
        found = view.as_numbered(view.answer(tree))
        _log.debug("searched %s: %s, %s reasons", tree, found.kind, len(found.reasons))
        return found

    def scan(
        self,
        predicate: Predicate | str | Any = None,
        *,
        column: str | None = None,
        values: Any = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        strict: bool = False,
    ) -> pa.RecordBatchReader:
        """The rows that match: just what a full scan gives, in order of path and row.

        Parameters
        ----------
        predicate, column, values, strict
            As for `search`.
        columns
            Top-level columns of the result; all by default.
        limit
            Stop after this number of rows.

        Raises
        ------
        DataFileError
            A candidate file cannot be read; raised by the reader.
        StaleIndexError
            `strict`, and a file is new or changed.

        Spec: specs/pruning.md#scan
        """
        from zonebloom.search.scan import scan  # noqa: PLC0415 - a plain search does without

        tree = _condition(predicate, column, values)
        view = self._checked_view(strict=strict)
        return scan(view, tree, view.search(tree, own_filters=True).row_ranges, columns, limit)

    def to_table(
        self,
        predicate: Predicate | str | Any = None,
        *,
        column: str | None = None,
        values: Any = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        strict: bool = False,
    ) -> pa.Table:
        """The rows that match, as a table; see `scan`."""
        reader = self.scan(predicate, column=column, values=values, columns=columns, limit=limit, strict=strict)
        return reader.read_all()

    def explain(
        self,
        predicate: Predicate | str | Any = None,
        *,
        column: str | None = None,
        values: Any = None,
        strict: bool = False,
    ) -> Explanation:
        """The funnel of a search, files to bytes, and a reason for each part that was not pruned; print it."""
        from zonebloom.search.explain import explain  # noqa: PLC0415 - a plain search does without

        tree = _condition(predicate, column, values)
        before, started = self.traffic, time.perf_counter()
        view = self._checked_view(strict=strict)
        listed = time.perf_counter()
        found = view.search(tree, own_filters=True)
        searched = time.perf_counter()
        view.refuse(tree, found)
        traffic = self.traffic - before
        done = explain(view, tree, found)
        return replace(done, traffic=traffic, list_seconds=listed - started, search_seconds=searched - listed)


def _condition(predicate: Any, column: str | None, values: Any) -> Predicate:
    """The predicate, the list of values, or both."""
    if (column is None) != (values is None) or (predicate is None and column is None):
        raise PredicateError("a search must have a predicate, or column= and values=, got neither or a half")
    if column is None:
        return parse_predicate(predicate)
    listed = IsIn(column, values)
    return listed if predicate is None else And((parse_predicate(predicate), listed))
