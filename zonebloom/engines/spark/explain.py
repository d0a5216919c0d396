"""Explains pruned reads: the funnel and the reasons, as text and as a DataFrame.

Design: docs/design/spark.md#explain
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession

from zonebloom.engines.spark.catalog import Catalog, Place
from zonebloom.engines.spark.scan.lake import Asked, Lake, Plan
from zonebloom.engines.spark.scan.read import lake_of
from zonebloom.predicates import Predicate
from zonebloom.search.explain import Explanation
from zonebloom.search.explain import explain as explain_search

_SCHEMA = "part string, kept bigint, total bigint, code string, message string, column string, path string"


@dataclass(frozen=True)
class Explained:
    """The parts that one query skips, and the reasons for the parts that it reads."""

    spark: SparkSession
    """Session of `to_df`."""
    plan: Plan
    """How the rows are read."""
    search: Explanation
    """The search."""

    def rows(self) -> list[tuple[Any, ...]]:
        """Funnel rows `(part, kept, total)`, then `(reason, code, message, column, path)`; see `to_df`."""
        kept, total = self.plan.result.kept.to_dict(), self.plan.result.total.to_dict()
        found: list[tuple[Any, ...]] = [(part, kept[part], total[part], None, None, None, None) for part in kept]
        found.append(("method", None, None, self.plan.choice.method, self.plan.choice.why, None, None))
        reasons = self.search.result.reasons
        found += [("reason", None, None, one.code.value, one.message, one.column, one.path) for one in reasons]
        return found

    def to_df(self) -> DataFrame:
        """`part, kept, total, code, message, column, path`: a row for each count, the method, and each reason."""
        return self.spark.createDataFrame(self.rows(), _SCHEMA)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        choice = self.plan.choice
        return {
            **self.search.to_dict(),
            "condition": self.plan.condition.shown,
            "method": choice.method,
            "why": choice.why,
        }

    def __str__(self) -> str:
        choice = self.plan.choice
        return f"{self.search}\n  read by: {choice.method} ({choice.why})"


def explain(
    catalog: Catalog,
    source: Any,
    condition: str | Column | Predicate,
    index: Place = None,
    *,
    method: Asked | None = None,
) -> Explained:
    """The funnel of a read of `source`, and the reasons for the parts that are kept; print it.

    Parameters
    ----------
    source
        A path, a `Lake` or a plain scan.
    method
        As for `read`; by default that of a `Lake`, otherwise `auto`.

    Raises
    ------
    InvalidArgumentError
        `method` cannot read this.

    Design: docs/design/spark.md#explain
    """
    lake = source if isinstance(source, Lake) else lake_of(catalog, source, index)
    plan = lake.plan(condition, method=method)
    return Explained(catalog.spark, plan, explain_search(plan.query))
