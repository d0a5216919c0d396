"""Rows of an upsert are written with the values that they have, or refused with the one that does not fit."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from zonebloom.engines.iceberg.rows import as_declared
from zonebloom.errors import InvalidArgumentError

NOON = dt.datetime(2020, 1, 1, 12)  # noqa: DTZ001 - a local time
INSTANT = NOON.replace(tzinfo=dt.UTC)
PAIR = pa.struct([("a", pa.int64()), ("b", pa.string())])
REQUIRED = pa.field("element", pa.int64(), nullable=False)

REFUSED = {
    "a time for a day": (pa.array([NOON]), pa.date32(), "got datetime.datetime(2020, 1, 1, 12, 0) for v, a date32"),
    "a time for a time of day": (pa.array([NOON]), pa.time64("us"), "got for v, a time64"),
    "a double for cents": (pa.array([1.1, 1.105]), pa.decimal128(9, 2), "got 1.105 for v, a decimal128(9, 2)"),
    "a decimal for a float": (pa.array([Decimal(16777217)]), pa.float32(), "got Decimal('16777217') for v, a float"),
    "a decimal finer than a double": (
        pa.array([Decimal("12345678901234567.891")]),
        pa.float64(),
        "got Decimal('12345678901234567.891') for v, a double",
    ),
    "an integer beyond cents": (pa.array([1000]), pa.decimal128(5, 2), "for v, a decimal128(5, 2)"),
    "a number for a truth": (pa.array([1, 5]), pa.bool_(), "got 5 for v, a bool"),
    "a double beyond floats": (pa.array([float("inf"), 1e300]), pa.float32(), "got 1e+300 for v, a float"),
    "a text beyond doubles": (pa.array(["1", "1e400"]), pa.float64(), "got '1e400' for v, a double"),
    "a text beyond floats": (pa.array(["1e300"]), pa.float32(), "got 1e+300 for v, a float"),
    "a text of hex digits": (pa.array(["0xff"]), pa.int32(), "got '0xff' for v, a int32"),
    "a text beyond decimals": (pa.array(["256"]), pa.decimal128(38, 38), "got '256' for v, a decimal128(38, 38)"),
    "a text for a number in a list": (pa.array([["1"]]), pa.list_(pa.int32()), "got list<item: string> for v, a list"),
    "a local time for an instant": (pa.array([NOON]), pa.timestamp("us", "UTC"), "for v, a timestamp[us, tz=UTC]"),
    "an instant for a local time": (pa.array([INSTANT]), pa.timestamp("us"), "for v, a timestamp[us]"),
    "nanoseconds": (pa.array([1], pa.timestamp("ns")), pa.timestamp("us"), "got for v, a timestamp[us]"),
    "a field too many": (
        pa.array([{"a": 1, "b": "x", "c": 2}]),
        PAIR,
        "the fields a, b of v of the table, got a, b, c",
    ),
    "a field too few": (pa.array([{"a": 1}]), PAIR, "the fields a, b of v of the table, got a"),
    "a misspelt field in a list": (pa.array([[{"a": 1, "B": "x"}]]), pa.list_(PAIR), "the fields a, b of v.item"),
    "a time in a struct in a list": (
        pa.array([None, [{"d": None}, {"d": NOON}]]),
        pa.list_(pa.struct([("d", pa.date32())])),
        "got datetime.datetime(2020, 1, 1, 12, 0) for v.item.d, a date32",
    ),
    "a number in a map": (
        pa.array([[("a", 5)]], pa.map_(pa.string(), pa.int64())),
        pa.map_(pa.string(), pa.bool_()),
        "got 5 for v.entries.value, a bool",
    ),
    "null in a list of required": (pa.array([[1, None]]), pa.list_(REQUIRED), "a value of v.element everywhere"),
    "a number for a time": (pa.array([5]), pa.timestamp("us"), "got int64 for v, a timestamp[us]"),
    "an integer's decimal for a fraction": (
        pa.array([Decimal(256)]),
        pa.decimal128(38, 38),
        "got for v, a decimal128(38, 38)",
    ),
    "a list for a number": (pa.array([[1]]), pa.int64(), "got for v, a int64"),
}
TAKEN = {
    "a decimal for the nearest double": (pa.array([Decimal("1.501"), None]), pa.float64(), [1.501, None]),
    "a decimal of a dictionary": (pa.array([Decimal("1.501")]).dictionary_encode(), pa.float64(), [1.501]),
    "a decimal in a struct in a list": (
        pa.array([[{"b": "x", "a": Decimal("1.501")}]]),
        pa.list_(pa.struct([("a", pa.float64()), ("b", pa.string())])),
        [[{"a": 1.501, "b": "x"}]],
    ),
    "an integer for cents": (pa.array([1, -3]), pa.decimal128(5, 2), [1, -3]),
    "text for a number": (pa.array(["01", None]).dictionary_encode(), pa.int64(), [1, None]),
    "text for a float": (pa.array(["0.5"]), pa.float32(), [0.5]),
    "null for a struct with a required field": (
        pa.array([None, [None, {"element": 1}]]),
        pa.list_(pa.struct([REQUIRED])),
        None,
    ),
    "a double that is rounded": (pa.array([0.5, float("nan"), float("inf")]), pa.float32(), None),
    "a double of cents": (pa.array([1.1, None]), pa.decimal128(9, 2), [Decimal("1.10"), None]),
    "midnight for a day": (pa.array([NOON.replace(hour=0)]), pa.date32(), [NOON.date()]),
    "0 and 1 for truths": (pa.array([1, 0, None]), pa.bool_(), [True, False, None]),
    "an instant of another zone": (
        pa.array([INSTANT]).cast(pa.timestamp("us", "America/New_York")),
        pa.timestamp("us", "UTC"),
        [INSTANT],
    ),
    "fields in another order": (pa.array([{"b": "x", "a": 1}, None]), PAIR, [{"a": 1, "b": "x"}, None]),
    "required items": (pa.array([[1], None]), pa.list_(REQUIRED), [[1], None]),
    "texts of a dictionary in a list": (
        pa.array([["x"]], pa.list_(pa.dictionary(pa.int32(), pa.string()))),
        pa.list_(pa.string()),
        [["x"]],
    ),
    "nothing": (pa.nulls(2), PAIR, [None, None]),
}


def converted(given: pa.Array, wanted: pa.DataType) -> list[object]:
    """One at a time, and as a slice of more."""
    schema = pa.schema([("id", pa.int64()), ("v", wanted)])
    chunks = pa.chunked_array([given[:1], given[1:], given[:0]])
    return as_declared(pa.table({"v": chunks, "id": range(len(given))}), schema)["v"].to_pylist()


@pytest.mark.parametrize("case", list(REFUSED))
def test_a_value_that_would_change_is_refused_by_name(case):
    given, wanted, message = REFUSED[case]
    with pytest.raises(InvalidArgumentError) as caught:
        converted(given, wanted)
    assert message in str(caught.value)


@pytest.mark.parametrize("case", list(TAKEN))
def test_a_value_that_stays_the_same_is_converted(case):
    given, wanted, expected = TAKEN[case]
    values = converted(given, wanted)
    assert values == expected or repr(values) == repr(given.to_pylist())


def test_null_in_a_required_column_is_refused():
    schema = pa.schema([pa.field("v", pa.int64(), nullable=False)])
    with pytest.raises(InvalidArgumentError, match="a value of v everywhere"):
        as_declared(pa.table({"v": [1, None]}), schema)
