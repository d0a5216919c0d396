"""`Searchable`: search and scan of data files by conditions, with an index or with the filters inside the files.

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

from zonebloom.formats import Dataset
from zonebloom.ground.errors import PredicateError, Words
from zonebloom.predicates import And, IsIn, Predicate, parse_predicate
from zonebloom.search.query import Query
from zonebloom.search.result import SearchResult
from zonebloom.search.view import View
from zonebloom.stores.store import Traffic

if TYPE_CHECKING:
    from zonebloom.search.explain import Explanation

_log = logging.getLogger("zonebloom")
"""Logs opens, searches and commits at level DEBUG; silent unless a program configures it."""


class Searchable(ABC):
    """The current data files, in a `view`, and conditions on their rows."""

    def __init__(self, data: Dataset) -> None:
        self.data = data
        """Location and layout of the files."""
        self._view: View | None = None

    def __reduce__(self) -> Any:
        raise TypeError(f"{self!r} must be opened where it is used, got a copy of it; send its location instead")

    @abstractmethod
    def view(self) -> View:
        """The index against the current data set; the last view again if nothing changed."""

    @property
    def traffic(self) -> Traffic:
        """Requests to object stores so far, and their bytes."""
        return self.data.traffic

    def query(self, predicate: Predicate) -> Query:
        """`predicate` on the current data files."""
        return Query(self.view(), predicate)

    def _checked_query(self, predicate: Any, column: str | None, values: Any, *, strict: bool) -> Query:
        """The query of the arguments of a search."""
        query = self.query(_condition(predicate, column, values))
        if strict:
            query.view.check_known()
        return query

    def search(
        self,
        predicate: Predicate | str | Any = None,
        *,
        column: str | None = None,
        values: Any = None,
        strict: bool = False,
    ) -> SearchResult:
        """Rows that may match `predicate`; all other rows certainly do not.

        Text that spells a value of the column's type equals that value; a literal that cannot be compared is an error.

        Parameters
        ----------
        predicate
            `col("user_id") == "u-1"`, SQL text (`"user_id = 'u-1' AND day = 3"`), or a pyarrow Expression.
        column, values
            Rows whose `column` equals one of `values`, which Arrow must accept as an array; any length is allowed. If
            there is a predicate too, both must hold.
        strict
            Raise an error if files are new or changed since the last refresh. By default they are read whole.

        Raises
        ------
        PredicateError
            The predicate cannot be parsed, or a literal cannot be compared with its column.
        ColumnNotFoundError
            The predicate names a column that the data set does not have.
        StaleIndexError
            `strict`, and a file is new or changed.

        Spec: specs/pruning.md#evaluate
        """
        query = self._checked_query(predicate, column, values, strict=strict)
        query.check()
        _log.debug("searched %s: %s, %s reasons", query.predicate, query.result.kind, len(query.result.reasons))
        return query.numbered

    def scan(
        self,
        predicate: Predicate | str | Any = None,
        *,
        column: str | None = None,
        values: Any = None,
        columns: str | Sequence[str] | None = None,
        limit: int | None = None,
        strict: bool = False,
    ) -> pa.RecordBatchReader:
        """The rows that match, in order of path and row: the same rows as a full scan.

        Parameters
        ----------
        predicate, column, values, strict
            As for `search`.
        columns
            Top-level columns of the result: one name or several; by default all.
        limit
            Stop after this number of rows.

        Raises
        ------
        DataFileError
            A candidate file cannot be read; the reader raises this.
        StaleIndexError
            `strict`, and a file is new or changed.

        Design: docs/design/scan.md#scan
        """
        from zonebloom.search.scan import scan  # noqa: PLC0415 - a plain search does without

        query = self._checked_query(predicate, column, values, strict=strict)
        return scan(query.view, query.predicate, query.result.row_ranges, columns, limit)

    def to_table(
        self,
        predicate: Predicate | str | Any = None,
        *,
        column: str | None = None,
        values: Any = None,
        columns: str | Sequence[str] | None = None,
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

        before, started = self.traffic, time.perf_counter()
        query = self._checked_query(predicate, column, values, strict=strict)
        listed = time.perf_counter()
        query.check()
        searched = time.perf_counter()
        traffic = self.traffic - before
        done = explain(query)
        return replace(done, traffic=traffic, list_seconds=listed - started, search_seconds=searched - listed)


def _condition(predicate: Any, column: str | None, values: Any) -> Predicate:
    """The predicate of the arguments: a condition, a list of values, or both."""
    if (column is None) != (values is None) or (predicate is None and column is None):
        half = (
            "" if column is values else ": values without a column" if column is None else ": a column without values"
        )
        raise PredicateError(f"no condition to search for{half}", do=Words.CONDITION)
    listed = None if column is None else IsIn(column, values)
    if predicate is None and listed is not None:
        return listed
    tree = parse_predicate(predicate)
    return tree if listed is None else And((tree, listed))
