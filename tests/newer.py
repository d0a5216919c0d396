"""What tests use that the least libraries do not have. Where it is missing, the run says so by name.

A test calls `need("bloom_writer")` before it uses it. A list of cases asks `has("narrow_decimals")`.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import NamedTuple

import pyarrow as pa
import pytest


class Need(NamedTuple):
    library: str
    since: int
    """Major version."""
    what: str

    @property
    def is_met(self) -> bool:
        return int(version(self.library).partition(".")[0]) >= self.since

    def __str__(self) -> str:
        return f"{self.library} {version(self.library)} has not yet, but {self.since}: {self.what}"


NEEDS = {
    "narrow_decimals": Need("pyarrow", 19, "the types decimal32 and decimal64"),
    "json": Need("pyarrow", 19, "the type of texts in JSON"),
    "views_in_parquet": Need("pyarrow", 21, "texts and bytes as views written to Parquet"),
    "bloom_writer": Need("pyarrow", 24, "bloom filters written to Parquet"),
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


NARROW_DECIMALS = {pa.decimal32: 4, pa.decimal64: 8} if has("narrow_decimals") else {}
"""What makes a type, and the bytes of its values."""
WRITTEN_VIEWS = (pa.string_view(), pa.binary_view()) if has("views_in_parquet") else ()
