"""What a scan refuses, a search, an explanation and a lake without an index refuse too, in the same words.

Oracle: the scan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow.compute as pc
import pytest

import zonebloom as zb
from tests.conftest import Lake
from zonebloom.errors import PredicateError

CONDITIONS = [
    *("amount = 'x'", "amount IN ('1.5', 'x')", "amount > 'x'", "NOT (amount = 'x')"),  # of a column without filters
    *("user_id = 'u-1' OR amount = 'x'", "device_id = 'x'", "day = 'x'", "device_id = 'x' AND day = 1"),
    *("amount = '1.5'", "amount > 5", "device_id = 1.5", "day = '1'", "CAST(user_id AS VARCHAR) = 'u-1'"),
    *("CAST(note AS BIGINT) = 5", pc.field("amount") == pc.scalar("x")),
]
REFUSED = 8
"""So many of them at least, the first ones, are refused."""


def outcome(ask: Callable[[Any], object], condition: Any) -> str:
    """What was said, if it was refused."""
    try:
        ask(condition)
    except PredicateError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("columns", [["user_id"], ["user_id", "device_id"]], ids=len)
def test_a_search_refuses_what_a_scan_refuses(hive_lake: Lake, columns: list[str]) -> None:
    index, lake = zb.build_index(hive_lake.root, columns), zb.open_lake(hive_lake.root)
    for number, condition in enumerate(CONDITIONS):
        scanned = outcome(index.scan, condition)
        assert bool(scanned) or number >= REFUSED, condition
        assert outcome(index.search, condition) == scanned
        assert outcome(index.explain, condition) == scanned
        of_lake = outcome(lake.scan, condition)
        assert bool(of_lake) == bool(scanned)
        assert outcome(lake.search, condition) == of_lake
        assert outcome(lake.explain, condition) == of_lake
