"""What docs/how-to/spark.md shows runs as it is printed there. The oracle is the text itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.documents import DOCS, run_page, write_lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_what_the_page_about_spark_shows_runs(spark: SparkSession, tmp_path: Path) -> None:
    write_lake(tmp_path)
    run_page(DOCS / "how-to" / "spark.md", tmp_path, spark=spark)
