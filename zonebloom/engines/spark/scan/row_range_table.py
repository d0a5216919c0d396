"""`ForeignLake`: a Delta or Iceberg table, or Parquet files in an object store, on Spark without a JAR.

Spark's Parquet reader does not see deleted rows, mapped column names or partition values in a log. It opens a store's
files with Hadoop's settings and packages, not with `storage_options`. So it reads none of these files. The driver reads
few rows; tasks read the candidate row ranges. Of a table they read one version, without its deleted rows.

Spec: specs/spark.md#tables
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from zonebloom.engines.spark.scan.plan import Choice, Kept, choose
from zonebloom.engines.spark.scan.row_ranges import read_rows
from zonebloom.engines.spark.scan.schema import Layout
from zonebloom.engines.spark.scan.table import Asked, Lake, Plan, PrunedRead
from zonebloom.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from zonebloom.formats import ParquetDataset
    from zonebloom.index import Index
    from zonebloom.search.view import View

__all__ = ["ForeignLake"]


class ForeignLake(Lake):
    """A data set that only the library reads, with its index; `where` reads the candidate row ranges of that moment.

    Parameters
    ----------
    spark, index, reopen, method
        As for `Lake`; `candidates` means `row_ranges`.
    """

    def __init__(
        self,
        spark: SparkSession,
        index: Index,
        reopen: Callable[[], Index],
        *,
        method: Asked = "auto",
        columns: Sequence[str] | None = None,
    ) -> None:
        super().__init__(spark, index, cast("ParquetDataset", index.data), reopen, method=method, columns=columns)

    def _schema_of(self, view: View) -> StructType:
        """The columns of the index, in the types of Spark's Parquet reader."""
        return Layout(view).schema()

    def _all(self) -> DataFrame:
        view = self._index.view()
        return read_rows(self.spark, Layout(view), view.universe, self.schema)

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

    def _obstacle(self, *_: Any) -> None:
        """None: there is no other way to read."""

    def _choose(self, kept: Kept, asked: Asked) -> Choice:
        if not kept.is_local:  # only Spark's own reader could evaluate it
            message = "a condition on a table, or on files in a store, must be determined by its columns"
            raise InvalidArgumentError(f"{message}, got one that is not; leave out what depends on how a row is read")
        if asked in ("driver", "plain"):
            return choose(kept, asked)
        found = choose(kept, "auto")
        if asked == "auto" and found.method == "driver":
            return found
        return Choice("row_ranges", f"executors read {kept.rows:,} rows of {kept.files} of {kept.of_files} files")

    def _by_spark(self, plan: Plan) -> PrunedRead:
        if plan.choice.method == "row_ranges":
            return self._by_row_ranges(plan)
        view = plan.view
        return self._filtered(
            read_rows(self.spark, Layout(view), view.universe, self._read_schema(plan.condition)), plan
        )
