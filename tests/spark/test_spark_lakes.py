"""Short runs of the fuzzer of lakes with Spark as writer and reader; `python -m tests.fuzz.spark_lakes` is a long one.

Oracle: `tests.fuzz.conditions.truth_of` over the rows as pyarrow, deltalake and pyiceberg read them.
"""

from __future__ import annotations

import pytest

from tests.depth import deep_only
from tests.fuzz.spark_lakes import SOURCES, run_case
from tests.newer import need

FIRST = 1_000_002
"""A life of files; those of a Delta table and of an Iceberg table follow. `make fuzz` has more."""


@deep_only
@pytest.mark.filterwarnings("ignore")
def test_no_life_of_a_lake_loses_or_invents_a_row_of_spark(spark, tmp_path):
    need("spark_4")  # Spark 3.5 reads no BYTE_STREAM_SPLIT
    ended = [run_case(spark, tmp_path, seed) for seed in range(FIRST, FIRST + len(SOURCES))]
    assert [line.split(":")[0] for line in ended] == list(SOURCES)
    assert sum(int(line.split()[1]) for line in ended) >= 24 * len(SOURCES), "25 each, but of a table that has no rows"
