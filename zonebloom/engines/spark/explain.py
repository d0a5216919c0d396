"""Explains pruned reads: the funnel and the reasons, as text and as a DataFrame.

Design: docs/design/spark.md#explain
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from zonebloom.engines.spark.scan.plan import Plan
from zonebloom.search.explain import Explanation

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

    def to_df(self) -> DataFrame:
        """`part, kept, total, code, message, column, path`: a row for each count, the method, and each reason."""
        kept, total, choice = self.plan.result.kept.to_dict(), self.plan.result.total.to_dict(), self.plan.choice
        rows: list[tuple[Any, ...]] = [(part, kept[part], total[part], None, None, None, None) for part in kept]
        rows.append(("method", None, None, choice.method, choice.why, None, None))
        reasons = self.search.result.reasons
        rows += [
            ("reason", None, None, reason.code.value, reason.message, reason.column, reason.path) for reason in reasons
        ]
        return self.spark.createDataFrame(rows, _SCHEMA)

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
