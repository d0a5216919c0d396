"""`Plan`: how the rows of one condition will be read; `PrunedRead`: the frame of a plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame

from zonebloom.engines.spark.pushdown.translate import Condition
from zonebloom.engines.spark.scan.choice import Choice, Method
from zonebloom.search.query import Query
from zonebloom.search.result import SearchResult
from zonebloom.search.view import View


@dataclass(frozen=True)
class Plan:
    """How the rows of one condition will be read, and what is skipped."""

    condition: Condition
    """The condition, with its parts for the index and for Spark."""
    query: Query
    """The search over the data set as it was listed."""
    choice: Choice
    """The way to read, and why."""
    paths: tuple[str, ...]
    """Files that must be read, relative to the root."""
    wider: Callable[[], Choice]
    """Gives the way to read if the rows prove too large for the driver."""

    @property
    def view(self) -> View:
        """The data set as it was listed."""
        return self.query.view

    @property
    def result(self) -> SearchResult:
        """The result of the search: rows, zones and bytes kept of total, and the reasons."""
        return self.query.result


@dataclass(frozen=True)
class PrunedRead:
    """A frame, and what was skipped for it."""

    frame: DataFrame
    """The rows that match, of the files that were listed; use it soon."""
    plan: Plan
    """How the frame is read."""

    @property
    def method(self) -> Method:
        """The way to read."""
        return self.plan.choice.method
