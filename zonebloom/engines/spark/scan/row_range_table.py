"""`ForeignLake`: a Delta or Iceberg table, or Parquet files in an object store, on Spark without a JAR for any of them.

Spark's Parquet reader knows nothing of deleted rows, of columns that files call otherwise, or of partition values in a
log; and a store's files it opens with Hadoop's settings and packages, not with `storage_options`. So it reads none of
them. The rows come from the driver, where they are few, else from tasks that read the candidate row ranges alone, of a
table those of one version, without its deleted rows.

Spec: specs/spark.md#tables
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, cast

from zonebloom.engines.spark.pushdown.translate import EVERY_ROW, Condition
from zonebloom.engines.spark.scan.fallback import obstacle_of_driver
from zonebloom.engines.spark.scan.folded_rows import local_schema
from zonebloom.engines.spark.scan.plan import Choice, Kept, choose
from zonebloom.engines.spark.scan.row_ranges import read_rows
from zonebloom.engines.spark.scan.scan_plan import filtered
from zonebloom.engines.spark.scan.schema import Layout
from zonebloom.engines.spark.scan.table import Asked, Lake, Plan, PrunedRead
from zonebloom.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from zonebloom.engines.spark.pushdown.translate import Condition
    from zonebloom.engines.spark.pushdown.types import Judge
    from zonebloom.formats import ParquetDataset
    from zonebloom.index import Index
    from zonebloom.predicates import Predicate
    from zonebloom.search.selection import RowSelection
    from zonebloom.search.view import View

__all__ = ["ForeignLake"]


class ForeignLake(Lake):
    """A data set that the library alone reads, with its index; `where` reads the candidate row ranges as of then.

    Parameters
    ----------
    spark, index, reopen, method
        As for `Lake`; `candidates` is taken as `row_ranges`.
    """

    def __init__(self, spark: SparkSession, index: Index, reopen: Callable[[], Index], method: Asked = "auto") -> None:
        super().__init__(spark, index, cast("ParquetDataset", index.data), reopen, method)

    @cached_property
    def schema(self) -> StructType:
        """The columns that the index knows, in the types of Spark's Parquet reader, when it was first asked for."""
        return Layout(self._index.view()).schema()

    def frame(self) -> DataFrame:
        """All rows of the data set as it is now."""
        view = self._index.view()
        return self._rows(view, view.universe)

    def check_plain_scan(self, frame: DataFrame) -> None:
        """Refuse any frame: Spark's own scan cannot be compared with what is read here.

        Raises
        ------
        InvalidArgumentError
            Always.
        """
        names = ", ".join(frame.columns)[:200]
        message = f"a frame to prune must scan Parquet files of this machine, got columns {names} of a table or a store"
        raise InvalidArgumentError(f"{message}; use read(place).where(condition)")

    def _is_seen(self, view: View) -> Callable[[str], bool]:
        return view.listing.__contains__

    def _obstacle(
        self,
        condition: Condition,
        view: View,
        judge: Judge,
        paths: tuple[str, ...],
        *,
        hidden: bool,
    ) -> str | None:
        if Layout(view).is_hive:
            return obstacle_of_driver(condition, self.schema, view, judge, paths, hidden=hidden)
        if paths and judge.names.is_ambiguous:
            return "names of columns differ in case alone"
        if paths and local_schema(self.schema, view.schema) is None:
            return "a column has a type that Spark makes in its own way"
        return None

    def _choose(self, kept: Kept, asked: Asked) -> Choice:
        if not kept.is_local:  # and Spark's own reader, which could evaluate it, reads none of these files
            message = "a condition on a table, or on files in a store, must be determined by its columns"
            raise InvalidArgumentError(f"{message}, got one that is not; leave out what depends on how a row is read")
        if asked in ("driver", "plain"):
            return choose(kept, asked)
        found = choose(kept, "auto")
        if asked == "auto" and found.method == "driver":
            return found
        return Choice("row_ranges", f"executors read {kept.rows:,} rows of {kept.files} of {kept.of_files} files")

    def _obstacle_of_ranges(self, condition: Condition, view: View, judge: Judge, paths: tuple[str, ...]) -> str | None:  # noqa: ARG002 - the only way there is beside the driver
        return None

    def _by_spark(self, plan: Plan) -> PrunedRead:
        view = plan.view
        if plan.choice.method == "plain":
            frame = self._rows(view, view.universe)
        else:
            frame = self._rows(view, plan.result.row_ranges, plan.condition.exact)
        return PrunedRead(filtered(self.spark, frame, plan.condition), plan)

    def _rows(self, view: View, rows: RowSelection, wanted: Predicate = EVERY_ROW) -> DataFrame:
        return read_rows(self.spark, Layout(view), rows, self.schema, wanted)
