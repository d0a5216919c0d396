"""What tests use that the least libraries do not have. Where it is missing, the run says so by name.

A test calls `need("spark_4")` before it uses it. A list of cases asks `has("spark_4")`.
"""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec
from typing import NamedTuple

import pytest


class Need(NamedTuple):
    package: str
    since: int
    """Major version."""
    what: str

    @property
    def is_met(self) -> bool:
        """Whether the package is new enough, or is not installed: its tests are not run there."""
        return find_spec(self.package) is None or int(version(self.package).partition(".")[0]) >= self.since

    def __str__(self) -> str:
        return f"{self.package} {version(self.package)} has not yet, but {self.since}: {self.what}"


NEEDS = {
    "datafusion_metrics": Need(
        "datafusion", 55, "counts of the row groups that bloom filters leave out, in EXPLAIN ANALYZE"
    ),
    "local_times_in_files": Need("pyarrow", 22, "times of day that Parquet files do not call UTC"),
    "narrow_decimals_in_files": Need("pyarrow", 22, "Parquet files of decimals of 32 and 64 bits"),
    "null_vectors_in_files": Need("pyarrow", 26, "Parquet files with nulls among lists of a fixed size"),
    "parquet_blooms": Need("pyarrow", 25, "bloom filters that it writes into Parquet files, and tells the place of"),
    "partly_encrypted": Need("pyarrow", 26, "files whose encrypted columns leave the other columns readable"),
    "views_compared": Need("pyarrow", 25, "comparisons of views of text and bytes"),
    "spark_4": Need(
        "pyspark",
        4,
        "Connect, collations, functions in SQL, texts of temporary views, rows without a job, wider integers in files",
    ),
}


def has(name: str) -> bool:
    return NEEDS[name].is_met


def need(name: str) -> None:
    if not has(name):
        pytest.skip(str(NEEDS[name]))
