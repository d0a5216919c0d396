"""The rule that chooses how a query is read: counts in, a way to read out; no session."""

from __future__ import annotations

from dataclasses import replace

import pytest

from zonebloom.engines.spark.scan.choice import Kept, choose
from zonebloom.engines.spark.scan.open import ForeignLake
from zonebloom.errors import InvalidArgumentError

MIB = 1 << 20
FEW = Kept(
    files=2,
    of_files=10_000,
    rows=8192,
    rows_of_files=400_000,
    is_narrowed=True,
    bytes=20 * MIB,
    of_bytes=100_000 * MIB,
    is_local=True,
    obstacle=None,
    lack=lambda: None,
)
HALF = {"files": 10, "rows": 1_000_000, "rows_of_files": 2_000_000, "bytes": 100 * MIB}
WHOLE = {**HALF, "rows": 2_000_000}


@pytest.mark.parametrize(
    ("changed", "method"),
    [
        ({}, "driver"),
        ({"files": 0, "rows": 0, "rows_of_files": 0, "bytes": 0, "obstacle": "INT96"}, "driver"),
        ({"files": 256, "rows": 4096, "rows_of_files": 4096, "bytes": MIB}, "driver"),
        ({"files": 257, "rows": 4096, "rows_of_files": 4096, "bytes": MIB}, "row_ranges"),
        ({"files": 9000, "rows": 600_000, "rows_of_files": 600_000, "bytes": 90 * MIB}, "row_ranges"),
        ({"files": 300, "rows": 4096, "rows_of_files": 4096, "bytes": MIB, "obstacle": "INT96"}, "candidates"),
        ({"files": 300, "rows": 4096, "rows_of_files": 4096, "bytes": MIB, "lack": lambda: "none"}, "candidates"),
        ({"bytes": 513 * MIB, "rows_of_files": 8192}, "candidates"),
        (HALF, "row_ranges"),
        ({**HALF, "is_narrowed": False}, "candidates"),
        (WHOLE, "candidates"),
        ({**WHOLE, "files": 2000, "bytes": 12_000 * MIB}, "row_ranges"),
        ({**WHOLE, "files": 2000, "bytes": 20_000 * MIB}, "plain"),
        ({**WHOLE, "files": 2000, "obstacle": "INT96"}, "plain"),
        ({**WHOLE, "of_files": 10}, "plain"),
        ({"is_local": False, "obstacle": "rand()"}, "plain"),
    ],
)
def test_the_way_follows_from_what_is_kept(changed, method):
    assert choose(replace(FEW, **changed), "auto").method == method


@pytest.mark.parametrize(("files", "method"), [(64, "driver"), (65, "row_ranges")])
def test_the_driver_opens_fewer_files_of_a_table_or_a_store(files, method):
    kept = replace(FEW, files=files, rows=files, rows_of_files=4096)
    assert choose(kept, "auto").method == "driver"
    assert ForeignLake._choose(object(), kept, "auto").method == method


def test_a_way_that_cannot_read_is_refused():
    for kept, asked in ((replace(FEW, obstacle="INT96"), "driver"), (replace(FEW, lack=lambda: "none"), "row_ranges")):
        with pytest.raises(InvalidArgumentError, match=r"got: (INT96|none); use method auto"):
            choose(kept, asked)
    assert choose(FEW, "plain").method == "plain"
