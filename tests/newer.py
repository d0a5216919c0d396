"""What tests use that the least libraries do not have. Where it is missing, the run says so by name.

A test calls `need("spark_4")` before it uses it. A list of cases asks `has("spark_4")`.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import NamedTuple

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
