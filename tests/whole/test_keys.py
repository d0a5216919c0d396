"""Keys of any type in any container mean the same at every door.

Oracle: the rows as written. The keys are values of some rows, and one value that no row has.
"""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections import deque
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from operator import and_, eq, gt, lt, or_

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import zonebloom as zb
from zonebloom.errors import PredicateError

MOMENT = 1_500_000_000_123_456_789
IDS = [uuid.UUID(int=number << 64 | number + 1) for number in range(1, 6)]
TICKS = [MOMENT + step for step in (0, 1, 1000, 10**6, 10**9 + 1)]


def ticks_of(column_type):
    """Five moments or spans, one tick apart or more."""
    per_tick = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}[column_type.unit]
    is_time = pa.types.is_time(column_type)
    ticks = [(tick % (86_400 * 10**9) if is_time else tick) // per_tick + number for number, tick in enumerate(TICKS)]
    return pa.array(ticks, pa.int32() if column_type.bit_width == 32 else pa.int64()).view(column_type)


COLUMNS = {
    **{str(kind): ticks_of(kind) for kind in map(pa.timestamp, ("ns", "us", "ms"))},
    **{f"{unit} with zone": ticks_of(pa.timestamp(unit, "Europe/Paris")) for unit in ("ns", "us")},
    **{str(kind): ticks_of(kind) for kind in (pa.time64("ns"), pa.time64("us"), pa.time32("ms"))},
    **{str(kind): ticks_of(kind) for kind in map(pa.duration, ("ns", "us", "ms"))},
    **{f"{sign}{bits}": pa.array([1, 2, 3, 100, 127], f"{sign}{bits}") for sign in ("int", "uint") for bits in (8, 64)},
    "uint64 past int64": pa.array([2**63 + number for number in range(5)], pa.uint64()),
    "float32": pa.array([0.5, 1.5, -0.0, 1e30, 3], pa.float32()),
    "double": pa.array([0.1, 1.5, 0.0, 1e300, 3]),
    "date": pa.array([dt.date(2020, 1, day) for day in range(1, 6)]),
    "decimal": pa.array([Decimal(number) / 100 for number in range(5)], pa.decimal128(20, 2)),
    "uuid": pa.array([number.bytes for number in IDS], pa.uuid()),
    "bytes of 16": pa.array([number.bytes for number in IDS], pa.binary(16)),
    "binary": pa.array([b"", b"a\0", b"\xff", b"b", b"long" * 9]),
    "text": pa.array(["", "a", "é", "1", "long" * 9]),
    "large text": pa.array(["", "a", "é", "1", "long" * 9], pa.large_string()),
    "dictionary": pa.array(["", "a", "é", "1", "long" * 9]).dictionary_encode(),
    "views of text": pa.array(["", "a", "é", "1", "long" * 9], pa.string_view()),
    "views of bytes": pa.array([b"", b"a\0", b"\xff", b"b", b"long" * 9], pa.binary_view()),
    "float16": pa.array(np.array([0.5, 1.5, -0.0, 100, 3], np.float16)),
    "decimal256": pa.array([Decimal(number) / 100 for number in range(5)], pa.decimal256(60, 2)),
    "bytes of 4": pa.array([b"%04d" % number for number in range(5)], pa.binary(4)),
    "pair.x.y": pa.array(range(1, 6)),
}
PAIRS = pa.array([{"x": {"y": y}, "z": None if y == 2 else "q"} for y in COLUMNS["pair.x.y"].to_pylist()])
TABLE = pa.table(
    {name: column for name, column in COLUMNS.items() if name != "pair.x.y"}
    | {"row": range(5), "pair": PAIRS, "flag": [None, True, False, True, None]}
)
OF_ARROW_ALONE = [
    COLUMNS[name].type for name in ("uuid", "dictionary", "views of text", "views of bytes", "float16", "decimal256")
]
"""Types that pandas, Polars or runs of equal values do not have."""
AT_EVERY_DOOR = {"array", "scalars", "objects of NumPy", "objects of pandas"}
"""Containers that are taken through each door; all doors take all by one function."""


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    root = tmp_path_factory.mktemp("lake")
    pq.write_table(TABLE.slice(0, 4), root / "a.parquet")
    return zb.build_index(root, [*COLUMNS, "flag", "pair.z"], rows_per_zone=1, fpp=1e-9)


class Exporting:
    """An array by the Arrow PyCapsule interface alone."""

    def __init__(self, array: pa.Array) -> None:
        self.__arrow_c_array__ = array.__arrow_c_array__


def containers(keys: pa.Array):
    """The keys in each container that can hold them without a loss."""
    yield "array", keys
    yield "chunks", pa.chunked_array([keys.slice(0, 1), keys.slice(1)])
    yield "scalars", list(keys)
    yield "an array of another library", Exporting(keys)
    if not pa.types.is_time(keys.type) or keys.type.unit != "ns":  # which Python does not have
        plain = keys.to_pylist()
        yield "list", plain
        yield "tuple", tuple(plain)
        yield "set", dict.fromkeys(plain).keys()
        yield "deque", deque(plain)
        yield "objects of NumPy", np.array([*plain, None], object)[:-1]
        yield "objects of pandas", pd.Series(plain, dtype=object)
        yield "objects of Polars", pl.Series(plain, dtype=pl.Object)
    if keys.type in OF_ARROW_ALONE:
        return
    yield "dictionary", keys.dictionary_encode()
    yield "runs", pc.run_end_encode(keys)
    yield "Arrow in pandas", pd.Series(pd.arrays.ArrowExtensionArray(keys))
    yield "Polars", pl.Series(keys)
    if not pa.types.is_time(keys.type):
        yield "pandas", keys.to_pandas()
        yield "index of pandas", pd.Index(keys.to_pandas())
        yield "category", keys.to_pandas().astype("category")
        if pa.types.is_primitive(keys.type) and getattr(keys.type, "tz", None) is None:
            yield "NumPy", keys.to_numpy(zero_copy_only=False)


def rows_of(index, *condition, **options):
    return index.to_table(*condition, columns=["row"], **options)["row"].to_pylist()


def rows_by_each_door(index, column, given):
    """By name of the door the rows that it finds."""
    c, every = zb.col(column), set(range(4))
    isin = c.isin(given)
    actual = {
        "values": rows_of(index, column=column, values=given),
        "isin": rows_of(index, isin),
        "not in": sorted(every.difference(rows_of(index, ~isin))),
        "explain": [start for _, start, _ in index.explain(isin).result],
        "search": [row for _, start, stop in index.search(isin) for row in range(start, stop)],
        "locate": sorted(row for start, stop in spans(index.locate(column, given)) for row in range(start, stop)),
    }
    if isinstance(given, (list, np.ndarray, pd.Series)):
        actual |= {
            "values of a generator": rows_of(index, column=column, values=(value for value in given)),
            "==": rows_of(index, reduce(or_, (c == value for value in given))),
            "!=": sorted(every.difference(rows_of(index, reduce(and_, (c != value for value in given))))),
        }
    return actual


def spans(located):
    return zip(located["start"].to_pylist(), located["stop"].to_pylist(), strict=True)


@pytest.mark.parametrize("column", COLUMNS)
def test_every_door_gives_the_same_rows(index, column):
    """Of the keys the last is of a row that is not in the lake."""
    keys = pa.concat_arrays([COLUMNS[column][1:2], COLUMNS[column][3:]])
    assert not index.search(zb.col(column).isin(keys)).reasons
    for name, given in containers(keys):
        actual = rows_by_each_door(index, column, given) if name in AT_EVERY_DOOR else {}
        assert all(rows == [1, 3] for rows in actual.values()), (name, actual)
        assert rows_of(index, column=column, values=given) == [1, 3], name
        assert index.exists(column, given).to_pylist() == [True, True, False], name
        assert index.locate(column, given, exact=True)["row"].to_pylist() == [1, 3, None], name
        assert index.files_for(column, given) == ["a.parquet"], name


def test_a_scan_gives_back_the_types_of_the_files_and_finds_what_is_in_many_rows(index):
    assert index.to_table("row IS NOT NULL").schema.types == TABLE.schema.types
    for name, value, rows, missing in (("flag", True, [1, 3], [0, 4]), ("pair.z", "q", [0, 2, 3], [1])):
        assert {*map(tuple, rows_by_each_door(index, name, [value]).values())} >= {tuple(rows)}
        assert index.locate(name, [value], exact=True)["row"].to_pylist() == rows
        assert rows_of(index, zb.col(name).is_null()) == [row for row in missing if row < 4]
        assert index.exists(name, [value, None], exact=True).to_pylist() == [True, None]


def test_every_door_takes_null_as_missing(index):
    """As pyarrow does, also for NaN of pandas; NaN of a list is a number, of which no row is certainly without."""
    moment = COLUMNS["timestamp[us]"].cast(pa.timestamp("ns"), safe=False).to_pandas()
    cases = [
        ("int64", pd.Series([2, None], dtype="Int64")),
        ("int64", pd.Series([2, None], dtype="int64[pyarrow]")),
        ("int64", pd.Series([2, None])),
        ("double", pd.Series([1.5, None])),
        ("text", pd.Series(["a", None]).astype("category")),
        ("text", pd.Series(["a", pd.NA], dtype=object)),
        ("text", np.array(["a", None], object)),
        ("int64", np.ma.array([2, 4], mask=[False, True])),
        ("timestamp[us]", pd.Series([moment[1], pd.NaT])),
        ("timestamp[us]", [moment[1], pd.NaT]),
        ("us with zone", pd.Series([moment[1], pd.NaT]).dt.tz_localize("UTC")),
        ("duration[us]", [COLUMNS["duration[us]"][1], np.timedelta64("NaT", "us")]),
    ]
    for column, given in cases:
        assert rows_of(index, column=column, values=given) == rows_of(index, zb.col(column).isin(given)) == [1]
        assert rows_of(index, ~zb.col(column).isin(given)) == []
        assert (
            index.exists(column, given).to_pylist()
            == index.exists(column, given, exact=True).to_pylist()
            == [True, None]
        )
        assert index.locate(column, given, exact=True)["row"].to_pylist() == [1, None]
    assert index.exists("double", [float("nan"), None]).to_pylist() == [True, None]
    for missing in (None, pd.NA, pd.NaT, np.datetime64("NaT", "us")):
        with pytest.raises(PredicateError, match=r"must have a value, got null; use col\('text'\)\.is_null\(\)"):
            zb.col("text") == missing  # noqa: B015 - it raises


@pytest.mark.parametrize("traps", [[decimal.FloatOperation], [decimal.Inexact, decimal.Rounded]])
def test_the_callers_decimal_context_changes_nothing(index, traps):
    """The trap of floats is what Python's documentation advises to those who want none among their Decimals."""
    conditions = ["decimal = 1e-2", "int64 > 9.3e18", "int8 > -1e300", "double = 1.5", "decimal IN (0.01, 2.5e0)"]
    expected = [rows_of(index, condition) for condition in conditions]
    with decimal.localcontext(decimal.Context(prec=2, traps=traps)):
        assert [rows_of(index, condition) for condition in conditions] == expected


def test_integers_beyond_64_bits_are_compared_by_value(index):
    given = [3, 2**63 + 1, 2**100]
    for values in (given, pl.Series(given, dtype=pl.Int128), pd.Series(given, dtype=object)):
        assert rows_of(index, column="uint64 past int64", values=values) == [1]
        assert index.exists("uint64 past int64", values).to_pylist() == [False, True, False]
        assert index.locate("uint64 past int64", values, exact=True)["row"].to_pylist() == [None, 1, None]


DOORS = {
    "to_table": lambda index, column, values: index.to_table(column=column, values=values),
    "isin": lambda index, column, values: index.to_table(zb.col(column).isin(values)),
    "search": lambda index, column, values: index.search(column=column, values=values),
    "explain": lambda index, column, values: index.explain(column=column, values=values),
    "locate exactly": lambda index, column, values: index.locate(column, values, exact=True),
    "exists": lambda index, *keys: index.exists(*keys),
    "locate": lambda index, *keys: index.locate(*keys),
    "files_for": lambda index, *keys: index.files_for(*keys),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("column", "values", "told"),
    [
        ("int64", pd.DataFrame([[1, 2]]), r"one column of values, got a DataFrame of shape \(1, 2\); choose"),
        ("int64", pl.DataFrame({"a": [1]}), r"one column of values, got a DataFrame of shape \(1, 1\); choose"),
        ("int64", pa.table({"a": [1]}), r"one column of values, got a Table of shape \(1, 1\); choose"),
        ("int64", np.zeros((2, 2)), r"one column of values, got a ndarray of shape \(2, 2\)"),
        ("int64", pa.array([[1]]), "single values, got values of type list"),
        ("int64", "12", "an array or a list of values, got '12'"),
        ("int64", 12, "an array or a list of values, got 12"),
        ("int64", {"a": 1}, "an array or a list of values, got {'a': 1}"),
        ("bytes of 16", np.array([b"a", b"b" * 16]), r"16 bytes each, as NumPy drops zeros .*, got dtype \|S16"),
        ("bytes of 16", pd.array([b"a", b"b" * 16], dtype="S16"), r"16 bytes each, as NumPy drops zeros"),
        ("int64", [Fraction(1)], r"an int, a float or a Decimal, got Fraction\(1, 1\)"),
        ("int64", ["x"], "column int64 holds int64, got the text 'x'"),
        ("int64", pd.Series(pd.period_range("2020", periods=2)), "column int64 holds int64, got"),
        ("int64", pd.Series(pd.period_range("2020", periods=2)).astype("category"), "column int64 holds int64, got"),
        ("timestamp[us]", pd.Categorical(pd.date_range("2020", periods=2, tz="UTC")), r"holds .*, got 2020"),
        ("time64[us]", [dt.time(1, tzinfo=dt.UTC)], r"a time of day must have no zone, got 01:00:00\+00:00"),
        ("us with zone", [dt.datetime(2020, 1, 1)], "write an instant with its offset"),  # noqa: DTZ001 - the mistake
        ("bytes of 16", [IDS[1].hex], r"column bytes of 16 holds 16 bytes, got a text of 32 characters; .* X'0000…'"),
        ("bytes of 16", pa.array(["no hex"]), r"holds 16 bytes, got a text of 6 characters; .* X'4a6f…'"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_every_door_refuses_the_same(index, door, column, values, told):
    with pytest.raises(PredicateError, match=told):
        DOORS[door](index, column, values)


def test_a_comparison_refuses_what_a_list_does(index):
    for compared in ("__eq__", "__ne__", "__lt__"):
        with pytest.raises(PredicateError, match="a time of day must have no zone"):
            getattr(zb.col("time64[us]"), compared)(dt.time(1, tzinfo=dt.UTC))
        with pytest.raises(PredicateError, match="holds 16 bytes, got a text of 32 characters"):
            index.to_table(getattr(zb.col("bytes of 16"), compared)(IDS[1].hex))
        for several in ([1], deque([1]), pd.Series([1]), pl.Series([1]), pa.array([1]), np.array([1])):
            with pytest.raises(PredicateError, match=r"must be compared with one value, got a .*; use isin\(\)"):
                getattr(zb.col("int64"), compared)(several)


@pytest.mark.parametrize("spelt", ["{0}", "{{{0}}}", "urn:uuid:{0}", "{1}", "{{{1}}}", "urn:uuid:{1}"])
def test_a_uuid_is_spelt_as_python_reads_it(index, spelt):
    for form in (str.lower, str.upper):
        text = spelt.format(form(str(IDS[1])), form(IDS[1].hex))
        by_door = rows_by_each_door(index, "uuid", [text])
        assert all(rows == [1] for rows in by_door.values()), by_door
        assert index.exists("uuid", [text]).to_pylist() == [True]
    for wrong in (IDS[1].hex[:-1], IDS[1].hex[:-1] + "g", "0x" + IDS[1].hex[2:], IDS[1].hex[:-2] + "_0", ""):
        with pytest.raises(PredicateError, match=r"holds .*, got"):
            index.exists("uuid", [str(IDS[1]), wrong])


MOMENTS = [name for name, values in COLUMNS.items() if pa.types.is_temporal(values.type) and name != "date"]


@pytest.mark.parametrize("column", MOMENTS)
@pytest.mark.parametrize("form", ["Arrow", "pandas", "NumPy"])
def test_a_key_between_two_ticks_equals_none_and_lies_between_them(index, column, form):
    """The key is finer than the column, or, where the column has nanoseconds, a tick that no row has."""
    own = COLUMNS[column].type
    ticks = COLUMNS[column].view(pa.int32() if own.bit_width == 32 else pa.int64()).to_pylist()[:4]
    per_tick = {"ms": 10**6, "us": 1000, "ns": 1}[own.unit]
    nanoseconds = ticks[1] * per_tick + per_tick // 2 + 1
    finest = pa.timestamp("ns", own.tz) if pa.types.is_timestamp(own) else pa.duration("ns")
    key = pa.array([nanoseconds]).view(pa.time64("ns") if pa.types.is_time(own) else finest)[0]
    if pa.types.is_time(own) or (form == "NumPy" and getattr(own, "tz", None)):
        form = "Arrow"
    given = key.as_py() if form == "pandas" else pa.array([key]).to_numpy()[0] if form == "NumPy" else key
    expected = {
        sign: [row for row, tick in enumerate(ticks) if is_it(tick * per_tick, nanoseconds)]
        for sign, is_it in (("<", lt), (">", gt), ("=", eq))
    }
    c = zb.col(column)
    assert rows_of(index, c < given) == rows_of(index, ~(c >= given)) == expected["<"]
    assert rows_of(index, c > given) == rows_of(index, ~(c <= given)) == expected[">"]
    assert rows_of(index, c == given) == rows_of(index, c.isin([given])) == expected["="]
    assert rows_of(index, c != given) == sorted(expected["<"] + expected[">"])
    assert rows_of(index, c.between(given, given)) == expected["="]
    assert index.exists(column, [given], exact=True).to_pylist() == [bool(expected["="])]
    assert index.locate(column, [given], exact=True)["row"].drop_null().to_pylist() == expected["="]


def test_bytes_are_a_text_that_is_no_utf8(tmp_path):
    """pyarrow reads and compares such texts of a file as they are."""
    text = pa.array([b"\xff", b"ok"]).view(pa.string())
    pq.write_table(pa.table({"s": text}), tmp_path / "a.parquet")
    index, keys = zb.build_index(tmp_path, "s"), [b"\xff", b"no"]
    for condition in ("s = X'ff'", "s IN (X'ff', X'00')", zb.col("s").isin(keys), zb.col("s") == text[0]):
        assert index.to_table(condition)["s"].cast(pa.binary()).to_pylist() == [b"\xff"]
        assert "ff" in f"{condition!r}"
        assert "X'ff'" in str(index.explain(condition))
    assert index.exists("s", keys, exact=True).to_pylist() == [True, False]
    assert index.locate("s", keys, exact=True)["row"].to_pylist() == [0, None]
    assert zb.erase(tmp_path, "s", text[:1]).num_rows_erased == 1
