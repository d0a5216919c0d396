"""What a scan refuses, a search, an explanation and a lake without an index refuse too, in the same words.

Oracle: the scan.
"""

from __future__ import annotations

import pyarrow.compute as pc
import pytest

import zonebloom as zb
from tests.conftest import Lake
from zonebloom.errors import PredicateError

CONDITIONS = [
    "amount = 'x'",  # of a column without filters
    "amount IN ('1.5', 'x')",
    "amount > 'x'",
    "NOT (amount = 'x')",
    "user_id = 'u-1' OR amount = 'x'",
    "device_id = 'x'",
    "day = 'x'",  # of folders
    "device_id = 'x' AND day = 1",
    "amount = '1.5'",
    "amount > 5",
    "device_id = 1.5",
    "day = '1'",
    "CAST(user_id AS VARCHAR) = 'u-1'",
    "CAST(note AS BIGINT) = 5",
    pc.field("amount") == pc.scalar("x"),
]
REFUSED = 8
"""So many of them at least, the first ones, are refused."""


def outcome(ask: object) -> str:
    """What was said, if it was refused."""
    try:
        ask()
    except PredicateError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("number", range(len(CONDITIONS)), ids=lambda number: str(CONDITIONS[number]))
def test_a_search_refuses_what_a_scan_refuses(hive_lake: Lake, number: int) -> None:
    condition = CONDITIONS[number]
    index = zb.build_index(hive_lake.root, ["user_id", "device_id"] if number == 5 else "user_id")
    scanned = outcome(lambda: index.scan(condition))
    assert bool(scanned) or number >= REFUSED
    assert outcome(lambda: index.search(condition)) == scanned
    assert outcome(lambda: index.explain(condition)) == scanned
    lake = zb.open_lake(hive_lake.root)
    of_lake = outcome(lambda: lake.scan(condition))
    assert bool(of_lake) == bool(scanned)
    assert outcome(lambda: lake.search(condition)) == of_lake
    assert outcome(lambda: lake.explain(condition)) == of_lake
