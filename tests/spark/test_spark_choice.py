"""The rule that chooses how a query is read: counts in, a way to read out; no session."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from zonebloom.engines.spark.scan.choice import Kept, choose
from zonebloom.errors import InvalidArgumentError

MIB = 1 << 20
FEW = Kept(
    files=2,
    of_files=10_000,
    rows=8192,
    of_rows=400_000_000,
    bytes=20 * MIB,
    is_local=True,
    obstacle=None,
    lack=lambda: None,
)
MANY = {"files": 300, "rows": 2_000_000, "bytes": 100 * MIB}


@pytest.mark.parametrize(
    ("changed", "method"),
    [
        ({}, "driver"),
        ({"files": 0, "rows": 0, "obstacle": "INT96"}, "driver"),
        ({"files": 256, "rows": 4096, "bytes": MIB}, "driver"),
        ({"files": 257, "rows": 4096, "bytes": MIB}, "row_ranges"),
        ({"bytes": 513 * MIB}, "row_ranges"),
        ({"driver_lack": "more"}, "row_ranges"),
        (MANY, "row_ranges"),
        ({**MANY, "of_rows": 4_000_000}, "row_ranges"),
        ({**MANY, "of_rows": 3_999_999}, "files"),
        ({**MANY, "obstacle": "INT96"}, "files"),
        ({**MANY, "lack": lambda: "none"}, "files"),
        ({**MANY, "files": 1025, "obstacle": "INT96"}, "plain"),
        ({**MANY, "of_rows": 2_000_000, "of_files": 300}, "plain"),
        ({"is_local": False, "obstacle": "rand()"}, "plain"),
        ({"is_native": False, "files": 64}, "driver"),
        ({"is_native": False, "files": 65}, "row_ranges"),
        ({"is_native": False, **MANY, "of_rows": 2_000_000, "lack": lambda: "none"}, "row_ranges"),
    ],
)
def test_the_way_follows_from_what_is_kept(changed, method):
    assert choose(replace(FEW, **changed), "auto").method == method


def test_what_spark_does_not_read_is_never_left_to_spark():
    foreign = replace(FEW, is_native=False)
    assert choose(foreign, "files").method == "row_ranges"
    for asked in ("auto", "plain"):
        with pytest.raises(InvalidArgumentError, match="must be determined by its columns"):
            choose(replace(foreign, is_local=False, obstacle="rand()"), asked)


def test_a_way_that_cannot_read_is_refused():
    for kept, asked in ((replace(FEW, obstacle="INT96"), "driver"), (replace(FEW, lack=lambda: "none"), "row_ranges")):
        with pytest.raises(InvalidArgumentError, match=r"got (INT96|none); use method auto"):
            choose(kept, asked)
        assert choose(replace(kept, files=0, rows=0), asked).method == "driver", "nothing is read"
    assert choose(FEW, "plain").method == "plain"


RESULTS = Path(__file__).parents[2] / "bench/results"


def test_the_rule_chooses_what_was_the_fastest_and_beyond_its_rows_the_next():
    tables = json.loads((RESULTS / "spark_choice.json").read_text("utf-8"))["tables"]
    cells = [dict(zip(table["columns"], row, strict=True)) for table in tables for row in table["rows"]]
    for cell in cells:
        num_rows = cell["rows kept"]
        kept = replace(FEW, files=cell["files kept"], rows=num_rows, bytes=int(cell["MiB of row groups"] * MIB))
        in_order = sorted(("driver", "row_ranges", "files"), key=lambda way: cell[f"{way}, ms"]["median"])
        assert choose(kept, "auto").method == in_order[num_rows > 1 << 20], cell
    assert len(cells) > 15
