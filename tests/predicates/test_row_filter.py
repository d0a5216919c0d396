"""`to_expression` gives SQL's TRUE, FALSE and NULL, on every type.

Oracle: DuckDB 2.0 for random SQL without NaN, and by hand where engines disagree (NaN, empty IN, float32).
"""

from __future__ import annotations

import datetime as dt
import operator
import uuid
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from hypothesis import example, given, settings, strategies as st

from tests.depth import at_depth
from zonebloom.errors import ColumnNotFoundError, PredicateError
from zonebloom.predicates import Equals, IsIn, IsNull, col, parse_predicate
from zonebloom.predicates.coerce import fit_values
from zonebloom.predicates.row_filter import plain_matcher, to_expression

UTC = dt.UTC
NAN = float("nan")
x = col("x")


def outcomes(table, predicate):
    """TRUE, FALSE or None for each row; plain kernels, where there are some, find the same rows."""
    tree = parse_predicate(predicate)
    expression = to_expression(tree, table.schema)
    values = ds.dataset(table).to_table(columns={"outcome": expression})["outcome"].to_pylist()
    matcher = plain_matcher(tree, table.schema)
    if matcher is not None:
        assert [answer is True for answer in matcher(table).to_pylist()] == [answer is True for answer in values]
    return values


def test_equalities_and_and_or_have_plain_kernels():
    table = pa.table({"x": [1, 2, None], "y": ["a", "b", "c"], "z": [0.0, -0.0, NAN]})
    for text in ("x = 1", "x IN (1, 2)", "x = 1 AND (y = 'b' OR z = 0)", "x = NULL"):
        assert plain_matcher(parse_predicate(text), table.schema) is not None
        outcomes(table, text)
    for text in ("x > 1", "NOT x = 1", "x = 1 OR y LIKE 'a%'", "x IS NULL"):
        assert plain_matcher(parse_predicate(text), table.schema) is None


def table_of(values, data_type):
    return pa.table({"x": pa.array(values, data_type)})


@pytest.fixture(scope="module")
def database():
    connection = duckdb.connect()
    connection.register("random_table", RANDOM_TABLE)
    yield connection
    connection.close()


# --- every type -------------------------------------------------------------------------------------------------------

SMALL, LARGE = dt.datetime(2020, 1, 1), dt.datetime(2021, 1, 1)  # noqa: DTZ001 -- naive is one of the cases
AWARE = dt.datetime(2020, 1, 1, tzinfo=UTC), dt.datetime(2021, 1, 1, tzinfo=UTC)
UUIDS = uuid.UUID(int=1), uuid.UUID(int=2)
TYPES = [
    (pa.bool_(), False, True),
    *((t, 1, 2) for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
    *((t, 1, 2) for t in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())),
    *((t, 1.5, 2.5) for t in (pa.float16(), pa.float32(), pa.float64())),
    *((t, "a", "b") for t in (pa.string(), pa.large_string(), pa.string_view())),
    *((t, b"a", b"b") for t in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1))),
    *((t(9, 2), Decimal("1.50"), Decimal("2.50")) for t in (pa.decimal32, pa.decimal64, pa.decimal128, pa.decimal256)),
    *((t, SMALL.date(), LARGE.date()) for t in (pa.date32(), pa.date64())),
    *((pa.timestamp(unit), SMALL, LARGE) for unit in ("s", "ms", "us", "ns")),
    *((pa.timestamp(unit, zone), *AWARE) for unit, zone in (("s", "UTC"), ("us", "+02:00"))),
    *((t, dt.time(1), dt.time(2)) for t in (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"))),
    *((pa.duration(unit), dt.timedelta(1), dt.timedelta(2)) for unit in ("s", "ns")),
    (pa.uuid(), UUIDS[0].bytes, UUIDS[1].bytes),
]


def check_comparisons(table, name, small, large):
    """`table` holds small, large, null in column `name`."""
    c = col(name)
    assert outcomes(table, c == small) == [True, False, None]
    assert outcomes(table, c != small) == [False, True, None]
    assert outcomes(table, c.isin([large, large])) == [False, True, None]
    assert outcomes(table, ~c.isin([large])) == [True, False, None]
    assert outcomes(table, c.isin([large, None])) == [None, True, None]
    assert outcomes(table, c.isin([])) == [False, False, False]
    assert outcomes(table, Equals(name, small, null_safe=True)) == [True, False, False]
    assert outcomes(table, IsIn(name, [large, None], null_safe=True)) == [False, True, False]
    assert outcomes(table, c < large) == [True, False, None]
    assert outcomes(table, c >= large) == [False, True, None]
    assert outcomes(table, c.between(small, large)) == [True, True, None]
    assert outcomes(table, c.is_null()) == [False, False, True]
    assert outcomes(table, c.is_not_null()) == [True, True, False]


@pytest.mark.parametrize(("data_type", "small", "large"), TYPES, ids=str)
def test_every_type_is_evaluable_alone_and_inside_a_struct(data_type, small, large):
    leaf, full = pa.array([small, large, None], data_type), pa.array([small, large, large], data_type)
    check_comparisons(pa.table({"x": leaf}), "x", small, large)
    nested = pa.StructArray.from_arrays([leaf], ["y"])
    masked = pa.StructArray.from_arrays([full], ["y"], mask=pa.array([False, False, True]))
    for structs in (nested, masked):
        check_comparisons(pa.table({"s": structs}), "s.y", small, large)


VIEWS = (pa.string_view(), pa.binary_view(), pa.uuid())


@pytest.mark.parametrize(("data_type", "small", "large"), [case for case in TYPES if case[0] not in VIEWS], ids=str)
def test_every_type_is_evaluable_as_a_dictionary(data_type, small, large):
    values = pa.array([large, small, None], data_type)
    for indices, dictionary in (([1, 0, 2], values), ([1, 0, None], values[:2])):
        column = pa.DictionaryArray.from_arrays(pa.array(indices, pa.int8()), dictionary)
        check_comparisons(pa.table({"x": column}), "x", small, large)


# --- numbers out of range and between --------------------------------------------------------------------------------

INTS = [-128, -1, 0, 1, 127, None]
ODD = [float("-inf"), -1.5, -0.0, 0.0, 1.5, float("inf"), None]
NUMBERS = [
    *(0, -0.0, 127, -128, 300, -300, 2**70, -(2**70), 1.5, -1.5, 127.5, Decimal("0.5"), 1e300, 2.0**53, 2.0**53 + 2),
    *(float("inf"), float("-inf")),
]


@pytest.mark.parametrize("number", NUMBERS, ids=str)
@pytest.mark.parametrize(
    ("data_type", "rows"),
    [
        (pa.int8(), INTS),
        (pa.uint8(), [0, 1, 255, None]),
        (pa.int64(), [-(2**63), -(2**53) - 1, -1, 0, 1, 2**53, 2**53 + 1, 2**63 - 1, None]),
        (pa.uint64(), [0, 1, 2**53 + 1, 2**64 - 1, None]),
        (pa.decimal128(4, 1), [Decimal("-999.9"), Decimal("-1.5"), Decimal(0), Decimal("1.5"), Decimal("999.9"), None]),
        *((data_type, ODD) for data_type in (pa.float16(), pa.float32())),
        (pa.float64(), [*ODD, 1e300]),
    ],
    ids=str,
)
def test_numbers_compare_by_value_whatever_their_type(data_type, rows, number):
    table = table_of(rows, data_type)
    for order in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge):
        assert outcomes(table, order(x, number)) == [None if row is None else order(row, number) for row in rows], order
    assert outcomes(table, x.isin([number, 0])) == [None if row is None else row in (number, 0) for row in rows]


def test_a_numeral_means_the_nearest_float_of_the_column():
    """A double literal is compared as it is: float32 has no 0.1."""
    table = table_of([0.1], pa.float32())
    assert outcomes(table, "x = 0.1") == outcomes(table, "x IN (0.1)") == [True]
    assert outcomes(table, x == 0.1) == outcomes(table, x.isin([0.1])) == [False]


KINDS = [
    *((pa.date32(), [SMALL.date(), LARGE.date()]), (pa.timestamp("s"), [SMALL, SMALL.replace(hour=10)])),
    *(
        (pa.timestamp("us", "UTC"), [AWARE[0]]),
        (pa.time32("s"), [dt.time(1)]),
        (pa.duration("s"), [dt.timedelta(0, 1)]),
    ),
    *((pa.int64(), [1, 2**53]), (pa.float16(), [1.0, float("inf")]), (pa.float32(), [1.0, 0.1, *ODD[::5]])),
    *((pa.float64(), [1.0, 0.1, 2.0**53, *ODD[::5]]), (pa.decimal128(5, 2), [Decimal("1.00")])),
    *((pa.decimal128(3, -2), [Decimal(100)]), (pa.bool_(), [True]), (pa.string(), ["1", "a"])),
    *((pa.binary(), [b"1"]), (pa.uuid(), [UUIDS[0].bytes])),
]
MOMENTS = [SMALL.date(), SMALL, SMALL.replace(hour=10), SMALL.replace(microsecond=7), AWARE[0], dt.time(1)]
SPANS = [dt.time(1, 0, 0, 5), dt.timedelta(seconds=1), dt.timedelta(microseconds=5)]
DECIMALS = [Decimal(text) for text in ("0.1", "1.001", "100000", "1e400")]
LITERALS = [
    *(*MOMENTS, *SPANS, *DECIMALS, 1, 2**53 + 1, 10**400, -(10**400), 1.5, 0.1, 1e300),
    *(True, "1", "a", "2020-01-01", b"1", UUIDS[0]),
]


@pytest.mark.parametrize(("data_type", "rows"), KINDS, ids=str)
def test_a_list_finds_what_equality_finds(data_type, rows):
    """pyarrow 26 casts the values of is_in to the column's type: 1 is in [True], and all in a UUID."""
    table = table_of([*rows, None], data_type)
    for literal in LITERALS:
        try:
            equal = outcomes(table, x == literal)
        except PredicateError:
            with pytest.raises(PredicateError):
                outcomes(table, x.isin([literal]))
            continue
        assert outcomes(table, x.isin([literal])) == equal, literal
        for other in LITERALS:
            if fit_values(other, data_type).reason is None:
                both = [None if row is None else bool(row) for row in outcomes(table, (x == literal) | (x == other))]
                assert outcomes(table, x.isin([other, literal])) == both, (literal, other)


@pytest.mark.parametrize("data_type", [pa.float16(), pa.float32(), pa.float64()], ids=str)
def test_a_finite_number_is_never_infinite(data_type):
    rows = [float("-inf"), 0.0, float("inf"), None]
    for number in (10**400, Decimal("1e400"), Decimal(10) ** 39 if data_type == pa.float32() else Decimal("1e310")):
        table = table_of(rows, data_type)
        assert outcomes(table, x == number) == outcomes(table, x.isin([number])) == [False, False, False, None]
        assert outcomes(table, x < number) == outcomes(table, x <= number) == [True, True, False, None]
        assert outcomes(table, x > -number) == outcomes(table, x >= -number) == [False, True, True, None]


def test_values_may_be_views_with_nulls():
    values = pa.array(["a", None], pa.string_view())
    assert outcomes(table_of(["a", "b", None], pa.string()), x.isin(values)) == [True, None, None]


# --- floats -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data_type", [pa.float16(), pa.float32(), pa.float64()], ids=str)
def test_nan_equals_nothing(data_type):
    table = table_of([NAN, 1.0, None], data_type)
    assert outcomes(table, x == NAN) == [False, False, None]
    assert outcomes(table, x != NAN) == [True, True, None]
    assert outcomes(table, x.isin([NAN])) == [False, False, None]
    assert outcomes(table, x.isin([NAN, 1.0])) == [False, True, None]
    assert outcomes(table, ~x.isin(pa.array([NAN]))) == [True, True, None]
    assert outcomes(table, x < 2) == [False, True, None]
    assert outcomes(table, x.is_null()) == [False, False, True]
    assert outcomes(table_of([1, None], pa.int8()), x == NAN) == [False, None]
    assert outcomes(table_of([1, None], pa.int8()), x.isin([NAN, 1])) == [True, None]


# --- null, and what has no answer -------------------------------------------------------------------------------------


def test_a_column_of_type_null_is_null_everywhere():
    table = pa.table({"x": pa.nulls(2)})
    for predicate in (x == 1, x != 1, x < 1, x.isin([1])):
        assert outcomes(table, predicate) == [None, None]
    assert outcomes(table, x.is_null()) == [True, True]


def test_null_literals_are_never_true():
    table = table_of([1, None], pa.int8())
    nulls = [Equals("x", null) for null in (None, pa.scalar(None, pa.int64()), np.datetime64("NaT", "ns"))]
    for condition in (*nulls, x.isin([None]), "x < NULL", "x LIKE NULL", "NULL"):
        assert outcomes(table, condition) == [None, None], condition
    assert outcomes(table, IsIn("x", [None], null_safe=True)) == [False, False]


@pytest.mark.parametrize(
    ("data_type", "predicate", "told"),
    [
        (pa.int64(), x == "a", r"column x holds int64, got the text 'a'"),
        (pa.int64(), x.isin(["a"]), r"column x holds int64, got the text 'a'"),
        (pa.int64(), x < "a", r"column x holds int64, got the text 'a'"),
        (pa.int64(), x == True, r"column x holds int64, got True; compare the column"),  # noqa: E712 -- a literal
        (pa.string(), x == 5, r"column x holds string, got 5; write it as text"),
        (pa.string(), x == 10**5000, r"column x holds string, got 1.*; write it as text"),
        (pa.string(), x.isin([5, None]), r"column x holds string, got 5; write it as text"),
        (pa.string(), x.isin([5, "a"]), r"column x holds string, got 5; write it as text"),
        (pa.date32(), x == "soon", r"column x holds date32\[day\], got the text 'soon'"),
        (pa.timestamp("us", "UTC"), x == SMALL, r"timestamp\[us, tz=UTC\], got .*; write an instant with its offset"),
        (pa.uuid(), x == "u-1", r"column x holds uuid, got the text 'u-1'"),
        (pa.int64(), x == pa.scalar("a"), r"column x holds int64, got the text 'a'"),
        (pa.int64(), x == object(), "column x holds int64"),
        (pa.int64(), "lower(x) = 'a'", r"must have a pyarrow kernel for its types, got lower\(x\)"),
        (pa.int64(), "x LIKE 'a'", r"must have a pyarrow kernel for its types, got x LIKE 'a'"),
        (pa.int64(), "abs(x)", r"column abs\(x\) holds int64, got True; compare the column"),
        (pa.int64(), "x", r"column x holds int64, got True"),
        (pa.uuid(), "CAST(x AS VARCHAR) = 'a'", "compared with a UUID's text, uncast"),
        (pa.decimal128(9, 7), "CAST(x AS VARCHAR) = '5e-7'", r"at most 6 decimal places, got .*decimal128\(9, 7\)"),
        (pa.list_(pa.int8()), x == 1, r"column x holds list"),
        (pa.string(), "x LIKE 'a!' ESCAPE '!'", "must not end with its escape"),
    ],
)
def test_what_cannot_be_compared_is_refused(data_type, predicate, told):
    with pytest.raises(PredicateError, match=told):
        to_expression(parse_predicate(predicate), pa.schema([("x", data_type)]))


def test_an_unknown_column_is_told_with_its_neighbours():
    schema = pa.schema([("user_id", pa.int8()), ("s", pa.struct([("leaf", pa.int8())]))])
    for predicate in (Equals("user", 1), IsIn("user", [1]), IsNull("user"), col("user") < 1):
        with pytest.raises(ColumnNotFoundError, match="user_id"):
            to_expression(predicate, schema)
    for predicate in (Equals("s.lea", 1), IsNull("s.lea")):
        with pytest.raises(ColumnNotFoundError, match=r"s\.leaf"):
            to_expression(predicate, schema)


def test_a_name_of_a_column_and_of_a_field_is_refused():
    """SQL's text has lost which dots were quoted."""
    tables = {
        "s.y": pa.table({"s.y": [1, 2], "s": pa.array([{"y": 3}, {"y": 4}])}),
        "a.b.c": pa.table({"a.b": [{"c": 3}], "a": [{"b": {"c": 4}}]}),
    }
    for name, table in tables.items():
        for condition in (col(name) == 3, col(name).isin([3, 4]), col(name).is_null(), f"{name} = 3", f"{name} < 3"):
            with pytest.raises(PredicateError, match=rf"names of their own, got '{name}'.*field\('{name}'\)"):
                outcomes(table, condition)
    assert outcomes(tables["s.y"], pc.field("s", "y") == 3) == [True, False]
    assert outcomes(tables["s.y"], pc.field("s.y") == 1) == [True, False]
    table = pa.table({"a.b": pa.array([{"c": 3}, None]), "a": pa.array([{"b": {"d": 3}}, None])})
    assert outcomes(table, col("a.b.c") == 3) == outcomes(table, col("a.b.d") == 3) == [True, None]


def test_decimals_beside_floats_are_the_nearest_floats():
    """pyarrow 26 multiplies by a power of ten, which gives 99.99000000000001."""
    cents = [Decimal(number).scaleb(-2) for number in range(9_900, 10_000)]
    columns = {"d": pa.array(cents, pa.decimal128(9, 2)), "f": pa.array(map(float, cents)), "n": pa.nulls(100)}
    table = pa.table(columns | {"g": columns["f"].cast(pa.float32()), "n": columns["n"].cast(pa.float64())})
    for condition in ("f = d", "d = f", "g = d", "CAST(d AS DOUBLE) = f", "coalesce(n, d) = f", "NOT f < d"):
        assert all(outcomes(table, condition)), condition
    assert outcomes(table, "coalesce(n, 99.99) = 99.99") == [True] * 100
    assert outcomes(table, "CAST(d AS DOUBLE) = 99.99").count(True) == 1
    half = pa.table({"h": pa.array(np.array([0.5, 2], np.float16)), "d": pa.array([Decimal("0.50"), Decimal("2.01")])})
    assert outcomes(half, "h = d") == [True, False]


def test_times_of_several_units_are_the_arguments_of_one_call():
    """pyarrow 26 reads the numbers of the other units as if they were of the first."""
    day, hour = dt.date(2020, 1, 31), dt.time(12)
    times = {unit: pa.array([day, None]).cast(pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")}
    times |= {"z": pa.array([None, day]).cast(pa.timestamp("ms", "UTC")), "d": pa.array([day, day], pa.date32())}
    times |= {"t": pa.array([hour, None], pa.time32("s")), "n": pa.array([None, hour], pa.time64("ns"))}
    moments = pa.table(times)
    for terms in ("s, TIMESTAMP '2020-01-31 00:00:00'", "ms, ns, d", "d, us", "ns, TIMESTAMP '2020-01-31 00:00:00'"):
        assert outcomes(moments, f"coalesce({terms}) = TIMESTAMP '2020-01-31 00:00:00'") == [True, True], terms
    zoned = "coalesce(z, TIMESTAMPTZ '2020-01-31 00:00:00Z') = TIMESTAMPTZ '2020-01-31 00:00:00Z'"
    assert outcomes(moments, zoned) == [True, True]
    assert outcomes(moments, "coalesce(t, n, TIME '01:00:00') = TIME '12:00:00'") == [True, True]
    with pytest.raises(PredicateError, match="the times of one call must all have a zone, or none, got"):
        outcomes(moments, "coalesce(z, us) = TIMESTAMP '2020-01-31 00:00:00'")


def test_functions_and_casts_are_evaluated():
    table = pa.table({"s": [" Ab ", "c%", "é", None], "i": [-1, 2, 3, None], "b": [b"xyz", b"", b"\\", None]})
    assert outcomes(table, "lower(s) = ' ab '") == [True, False, False, None]
    assert outcomes(table, "upper(trim(s)) IN ('AB', 'X')") == [True, False, False, None]
    assert outcomes(table, "length(s) = 1") == [False, False, True, None]
    assert outcomes(table, "length(b) > 2") == [True, False, False, None]
    assert outcomes(table, "abs(i) = 1 OR -i = -3") == [True, False, True, None]
    with pytest.raises(pa.ArrowInvalid, match="overflow"):
        outcomes(pa.table({"i": pa.array([-128], pa.int8())}), "abs(i) < 0")
    assert outcomes(table, "coalesce(i, 7) = 7") == [False, False, False, True]
    prices = pa.table({"d": pa.array([Decimal("1.00"), Decimal("2.50"), None], pa.decimal128(5, 2)), "n": pa.nulls(3)})
    assert outcomes(prices, "coalesce(NULL, n, d, 1) = 1") == [True, False, True]
    assert outcomes(prices, "coalesce(d, -100000) < -99999.5") == [False, False, True]
    assert outcomes(table, "CAST(i AS VARCHAR) = '2'") == [False, True, False, None]
    assert outcomes(table, "CAST(i AS DECIMAL(9, 2)) >= 2.00") == [False, True, True, None]
    instants = pa.table({"z": pa.array([1_800_000_000, 84_600_000_000], pa.timestamp("us", "Europe/Paris"))})
    assert outcomes(instants, "CAST(z AS DATE) = DATE '1970-01-01'") == [True, True], "in UTC, as DuckDB by default"
    assert outcomes(table, "i = length(s)") == [False, True, False, None]
    assert outcomes(table, "lower(s) IS NULL") == [False, False, False, True]
    assert outcomes(table, "1 = 1") == [True] * 4
    assert outcomes(table, "TRUE AND s IS NULL") == [False, False, False, True]


@pytest.mark.parametrize(
    ("text", "of_type"),
    [("256", "DECIMAL(38, 38)"), ("34028236692093846346337460743176821145.7", "DECIMAL(9, 2)"), ("0xffff", "SMALLINT")],
)
def test_a_column_of_numerals_that_pyarrow_would_wrap_is_refused(text, of_type):
    table = pa.table({"s": ["0", text]})
    expression = to_expression(parse_predicate(f"CAST(s AS {of_type}) < 1"), table.schema)
    with pytest.raises(pa.ArrowInvalid):
        table.filter(expression)


@pytest.mark.parametrize(
    "pattern",
    [
        *("LIKE 'a%'", "LIKE 'a_b'", "LIKE 'a!%' ESCAPE '!'", "LIKE 'a!_b' ESCAPE '!'", "LIKE 'a\\b'", "LIKE '_'"),
        *("LIKE 'A!%' ESCAPE '!'", "ILIKE 'A!%' ESCAPE '!'", "LIKE ''"),
        *("LIKE 'a\\b%'", "LIKE '%\\b'", "LIKE '%\\%'", "ILIKE 'A\\B_%'", "LIKE '%\\!_%' ESCAPE '!'"),
    ],
)
def test_like_matches_as_in_duckdb(database, pattern):
    table = pa.table({"x": ["a", "ab", "a%", "a_b", "a\nb", "a\\b", "é", "", "ba", None, "a\\b\n", "a\\\\b", "\\_"]})
    database.register("likes", table)
    expected = database.sql(f"SELECT x {pattern} FROM likes").fetchall()
    assert [(outcome,) for outcome in outcomes(table, f"x {pattern}")] == expected


# --- random SQL against DuckDB ----------------------------------------------------------------------------------------

RANDOM_TABLE = pa.table(
    {
        "i": pa.array([0, 1, -1, None, 127, 5, 5, None, 2, 1], pa.int8()),
        "l": pa.array([2**53 + 1, 2**53, None, -(2**63), 0, 1, None, 7, 2**63 - 1, 5], pa.int64()),
        "f": pa.array([0.0, -0.0, None, 1.5, float("inf"), 2.0, None, -1.5, 1e300, 0.5], pa.float64()),
        "d": pa.array([Decimal("1.50"), None, Decimal("-1.50"), *[Decimal(n) for n in range(6)], None]),
        "s": ["a", "b", None, "", "a b", "A", "it's", None, "é", "zz"],
        "b": [True, None, False, True, False, None, True, False, True, None],
        "t": pa.array([*[dt.date(2020, 1, day) for day in range(1, 9)], None, None], pa.date32()),
    }
)
NUMBERS_SQL = ["0", "1", "-1", "5", "127", "1.5", "0.5", "-1.50", "2", "300", "NULL"]
TEXTS_SQL = ["'a'", "'b'", "''", "'it''s'", "'é'", "'A'", "NULL"]
DATES_SQL = ["DATE '2020-01-03'", "DATE '1999-01-01'", "DATE '2020-01-08'"]
literals_of = {
    **dict.fromkeys("ild", st.sampled_from(NUMBERS_SQL)),
    "f": st.sampled_from([*NUMBERS_SQL, "1e300", "-0.0"]),
    "s": st.sampled_from(TEXTS_SQL),
    "b": st.sampled_from(["TRUE", "FALSE", "NULL"]),
    "t": st.sampled_from(DATES_SQL),
}


@st.composite
def conditions(draw):
    """One condition of the language on one column, as SQL that DuckDB reads too."""
    column = draw(st.sampled_from("ilfdsbt"))
    literal = literals_of[column]
    kind = draw(st.sampled_from(["compare", "in", "null", "between", "distinct", "special"]))
    if kind == "compare":
        left, right = column, draw(literal)
        if draw(st.booleans()):
            left, right = right, left
        return f"{left} {draw(st.sampled_from(['=', '<>', '!=', '<', '<=', '>', '>=']))} {right}"
    if kind == "in":
        listed = ", ".join(draw(st.lists(literal, min_size=1, max_size=4)))
        return f"{column} {draw(st.sampled_from(['IN', 'NOT IN']))} ({listed})"
    if kind == "null":
        return f"{column} IS {draw(st.sampled_from(['NULL', 'NOT NULL']))}"
    if kind == "between":
        return f"{column} {draw(st.sampled_from(['BETWEEN', 'NOT BETWEEN']))} {draw(literal)} AND {draw(literal)}"
    if kind == "distinct":
        return f"{column} IS {draw(st.sampled_from(['', 'NOT ']))}DISTINCT FROM {draw(literal)}"
    return draw(
        st.sampled_from(
            [
                *("b", "NOT b", "b IS TRUE", "b IS NOT FALSE", "lower(s) = 'a'", "length(s) = 1", "s LIKE 'a%'"),
                *("s NOT LIKE '%a%'", "coalesce(i, 5) = 5", "CAST(i AS BIGINT) = l", "i < f", "TRUE"),
            ]
        )
    )


random_sql = st.recursive(
    conditions(),
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("(NOT {})".format, inner),
    ),
    max_leaves=6,
)


@settings(max_examples=at_depth(300), deadline=None)
@given(text=random_sql)
@example(text="NOT s IN ('a', NULL)")
@example(text="NOT (i = 300)")
@example(text="(NOT i IN (300, 1.5)) OR f = -0.0")
def test_random_sql_gives_what_duckdb_gives(database, text):
    wanted = database.sql(f"SELECT ({text}) AS outcome FROM random_table").fetchall()
    assert outcomes(RANDOM_TABLE, text) == [outcome for (outcome,) in wanted]
