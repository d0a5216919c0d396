"""Literals in a column's type: what fits, what is out of range, what proves nothing.

Oracles: Python's own ``==``, which compares ints, floats and Decimals exactly; and pyarrow's ``equal``, for rows that
an engine would say match.
"""

import datetime as dt
import decimal
import enum
import math
import re
import uuid
import zoneinfo

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, strategies as st

from zonebloom.bloom.hashing import hash_values
from zonebloom.ground.reasons import Reason, ReasonCode
from zonebloom.predicates.coerce import fit_each, fit_values, plain_hash

D = decimal.Decimal
UUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
NOON = dt.datetime(2020, 6, 1, 12, tzinfo=dt.UTC)
NAIVE = NOON.replace(tzinfo=None)
DAY = dt.date(2020, 6, 1)
MIDNIGHT = dt.datetime.combine(DAY, dt.time())
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
INTS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
SHORT_DECIMALS = [pa.decimal32(7, 2), pa.decimal64(7, 2)]
DECIMALS = [pa.decimal128(38, 10), pa.decimal256(76, 40), pa.decimal128(3, -2), *SHORT_DECIMALS]
TEXTS = [pa.string(), pa.large_string(), pa.string_view()]
BINARIES = [pa.binary(), pa.large_binary(), pa.binary_view()]


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


def ns(text):
    return pa.scalar(np.datetime64(text, "ns"))


# --- what fits --------------------------------------------------------------------------------------------------------


def _shown(value) -> str:
    """A test id that does not hold an address: the workers of a parallel run must agree on it."""
    return re.sub(r"( object)? at 0x[0-9a-f]+", "", repr(value))


def cases(literals_of):
    """Each literal with its type."""
    return [(literal, column_type) for column_type, literals in literals_of.items() for literal in literals]


FITS = [
    *[
        (value, t, 7)
        for t in INTS
        for value in (7, 7.0, D("7.00"), np.uint8(7), np.float32(7), pa.scalar(7, pa.int16()))
    ],
    *[(value, t, 7.0) for t in FLOATS for value in (7, 7.0, D(7), np.float16(7), pa.scalar(7, pa.decimal128(3, 0)))],
    *[(pa.scalar(7, pa.decimal32(3, 0)), t, 7.0) for t in FLOATS],
    *[(value, t, 700) for t in DECIMALS for value in (700, 700.0, D("700.000"), np.int64(700)) if t.precision <= 15],
    *[(value, t, 700) for t in DECIMALS for value in (700, D("700.000"), pa.scalar(D(700), pa.decimal256(50, 9)))],
    *[(value, t, "é") for t in TEXTS for value in ("é", "é".encode(), np.str_("é"), pa.scalar("é", pa.string_view()))],
    *[(value, t, b"\xc3\xa9") for t in BINARIES for value in ("é", b"\xc3\xa9", bytearray(b"\xc3\xa9"))],
    *[(value, pa.binary(3), b"abc") for value in ("abc", memoryview(b"abc"))],
    *[(text, pa.binary(), text.encode()) for text in ("4519b91f242d9e", "4519b91f242d9e4d2")],
    *((Colour.RED, pa.string(), "red"), (Level.HIGH, pa.int8(), 3), (2**63, pa.uint64(), 2**63)),
    *((2.0**53 - 1, pa.int64(), 2**53 - 1), (2**70, pa.decimal128(38, 0), 2**70), (1.5, pa.decimal128(5, 2), D("1.5"))),
    *[(value, pa.float64(), float(value)) for value in (2**60, 2**100, 0.1, D("0.1"), D("1e-400"))],
    *[(text, t, float(t.to_pandas_dtype()(text))) for t in FLOATS for text in ("0.1", "-2e-5", "inf", "-Infinity")],
    *((-0.0, pa.int8(), 0), (math.inf, pa.float16(), math.inf), (D("-Infinity"), pa.float32(), -math.inf)),
    *((True, pa.bool_(), True), (np.bool_(False), pa.bool_(), False)),
    *[(value, pa.date32(), DAY) for value in (DAY, MIDNIGHT, "2020-06-01", np.datetime64("2020-06", "M"))],
    *[(value, pa.date64(), DAY) for value in (DAY, np.datetime64("2020-06-01"))],
    *[(value, pa.timestamp("us"), MIDNIGHT) for value in (DAY, "2020-06-01")],
    *[(value, pa.timestamp("s"), NAIVE) for value in (NAIVE, ns("2020-06-01T12:00"), "2020-06-01T12:00:00")],
    ("2020-06-01 12:00:00.000000", pa.timestamp("s"), NAIVE),
    *((NAIVE, pa.timestamp("ms"), NAIVE), (np.datetime64("2020-06-01T12", "h"), pa.timestamp("us"), NAIVE)),
    *((NOON, pa.timestamp("us", "Europe/Berlin"), NOON), ("2020-06-01T12:00:00.000Z", pa.timestamp("s", "UTC"), NOON)),
    ("2020-06-01T14:00:00+02:00", pa.timestamp("us", "UTC"), NOON),
    (NOON.astimezone(BERLIN), pa.timestamp("s", "America/New_York"), NOON),
    *((value, pa.time32(unit), dt.time(12, 30)) for value, unit in ((dt.time(12, 30), "s"), ("12:30", "ms"))),
    (dt.time(12, 30, 0, 5), pa.time64("us"), dt.time(12, 30, 0, 5)),
    ("12:30:00.500", pa.time64("us"), dt.time(12, 30, 0, 500_000)),
    (dt.timedelta(days=-1), pa.duration("s"), dt.timedelta(days=-1)),
    (np.timedelta64(5, "ms"), pa.duration("us"), dt.timedelta(milliseconds=5)),
    *[(value, pa.uuid(), UUID) for value in (UUID, str(UUID), str(UUID).upper(), UUID.bytes, UUID.hex)],
    (UUID.urn.upper().replace("URN:UUID", "urn:uuid"), pa.uuid(), UUID),
    *[(value, pa.binary(16), UUID.bytes) for value in (UUID, UUID.bytes)],
    *(("x", pa.dictionary(pa.int8(), pa.string()), "x"), (7.0, pa.dictionary(pa.int8(), pa.int8()), 7)),
    *((UUID, pa.dictionary(pa.int8(), pa.uuid()), UUID), (7, pa.run_end_encoded(pa.int32(), pa.int64()), 7)),
    ("{}", pa.json_(pa.string()), "{}"),
]


@pytest.mark.parametrize(("literal", "column_type", "value"), FITS, ids=_shown)
def test_a_literal_that_equals_a_value_becomes_it(literal, column_type, value):
    fit = fit_values(literal, column_type)
    assert (fit.reason, fit.num_out_of_range) == (None, 0)
    assert fit.values.to_pylist() == [value]
    is_encoded = pa.types.is_dictionary(column_type) or pa.types.is_run_end_encoded(column_type)
    assert fit.values.type == (column_type.value_type if is_encoded else column_type)
    fit.values.validate(full=True)


# --- out of range -----------------------------------------------------------------------------------------------------

OUT_OF_RANGE = {
    pa.int8(): [300, 300.5, D("Infinity")],
    pa.uint64(): [-1, 2.0**64 + 2.0**12],
    pa.int64(): [2**70, 1e300, math.inf, D("1e40")],
    pa.uint8(): [-(2**70), pa.scalar(D("300.5"), pa.decimal128(5, 1))],
    pa.float32(): [1e300, "1e39"],
    pa.float16(): [-1e300, 70_000],
    pa.float64(): [2**2000, D("1e400"), D("1e999999")],
    pa.decimal128(5, 2): [1000, 1000.0, D("1000.001")],
    pa.decimal128(30, 2): [math.inf],
    pa.decimal256(76, 75): [2**63 - 1],
    pa.binary(3): [b"abcd", b""],
    pa.uuid(): [b"short"],
    pa.timestamp("ns", "UTC"): [dt.datetime(1, 1, 1, tzinfo=dt.UTC)],
    pa.timestamp("ns"): [dt.date(9999, 1, 1)],
    pa.date32(): [np.datetime64(2**40, "D")],
    pa.duration("ns"): [pa.scalar(2**40, pa.duration("s"))],
    pa.date64(): [pa.scalar(86_400 * 10**12, pa.timestamp("s"))],
}


@pytest.mark.parametrize(("literal", "column_type"), cases(OUT_OF_RANGE), ids=_shown)
def test_a_literal_out_of_range_is_dropped_and_counted(literal, column_type):
    fit = fit_values([literal, None], column_type)
    assert (fit.reason, fit.num_out_of_range, len(fit.values)) == (None, 1, 0)
    assert fit.values.type == column_type


# --- misfits ----------------------------------------------------------------------------------------------------------

MISFITS = {
    pa.int64(): [
        *(3.5, D("3.5"), 2.0**53, 2.0**63, "7x", True, [[1]], {"a": 1}),
        *(pa.scalar([7]), pa.array([[7]]), object(), np.longdouble(7)),
    ],
    pa.uint64(): [2.0**64],
    pa.int32(): [np.float32(2**24)],
    pa.int16(): [np.float16(2048)],
    pa.float32(): [0.1, D("0.1"), 3.4028235e38, 16_777_217],
    pa.float64(): [2**53 + 1, 2**100 + 1, "7x", "nan", "1_0", 1j, np.zeros((2, 2))],
    pa.decimal128(10, 2): [0.1],
    pa.decimal128(20, 2): [1.5],
    pa.decimal128(5, 2): [D("1.505"), D("1e-999999"), "7x"],
    pa.decimal128(3, -2): [150],
    pa.bool_(): ["1", 7],
    pa.string(): [7, D(7), 2**70, True, "\ud800", UUID],
    pa.binary(3): ["abcd"],
    pa.binary(16): [str(UUID)],
    pa.binary(): [UUID, "4519b91f242d9e4d", UUID.hex.upper()],
    pa.uuid(): [
        *("not a uuid", UUID.hex[:-1], str(UUID).replace("-", "0", 1), f"{UUID}"[:-1] + " ", f"{UUID}"[:-2] + "é")
    ],
    pa.date32(): [7, NOON, NAIVE, "2020-6-1", np.datetime64("2020-06-01T12", "h")],
    pa.timestamp("s"): [7, "2020-06-01T12:00:00.5"],
    pa.timestamp("us", "UTC"): [NAIVE, DAY, "2020-06-01T12:00:00"],
    pa.timestamp("us"): [NOON, ns("2020-06-01T12:00:00.000000001"), "2020-06-01T12:00:00Z", "1 June 2020"],
    pa.date64(): [NAIVE],
    pa.timestamp("ms"): [NAIVE.replace(microsecond=1)],
    pa.time32("s"): ["noon", "12", "24:00", "12:30:00.5", "12:30Z", dt.time(12, 30, tzinfo=dt.UTC)],
    pa.duration("s"): [dt.timedelta(milliseconds=1), dt.timedelta.max],
    pa.timestamp("ns"): [np.datetime64(1, "as")],
    pa.bool8(): [True],
    pa.list_(pa.string()): ["x"],
}


@pytest.mark.parametrize(("literal", "column_type"), cases(MISFITS), ids=_shown)
def test_a_misfit_keeps_everything_and_says_why(literal, column_type):
    fit = fit_values(literal, column_type)
    assert fit.reason is not None
    assert fit.reason.code is ReasonCode.TYPE_MISMATCH
    assert "got" in fit.reason.message
    assert "\n" not in fit.reason.message
    assert len(fit.values) == 0


@pytest.mark.parametrize(
    "literal", [math.nan, D("NaN"), D("sNaN"), np.float32("nan"), [1.0, math.nan], np.array([math.nan])]
)
@pytest.mark.parametrize("column_type", [pa.float64(), pa.float16(), pa.int8(), pa.decimal128(5, 2)], ids=str)
def test_nan_never_prunes(literal, column_type):
    assert fit_values(literal, column_type).reason.code is ReasonCode.NAN_LITERAL


def test_one_misfit_among_many_keeps_everything():
    assert fit_values([1, 2, "3x"], pa.int64()).reason.code is ReasonCode.TYPE_MISMATCH
    assert fit_values([1, True], pa.int64()).reason is not None
    assert fit_values(np.array([1], "m8[M]"), pa.duration("s")).reason is not None  # a month has no fixed length
    assert fit_values([300, 3.5], pa.int8()).reason is not None


def test_years_past_9999_can_be_shown():
    far = pa.array([10**15 + 1], pa.timestamp("us")).view(pa.timestamp("s"))
    assert fit_values(far, pa.date32()).reason is not None
    assert fit_values(pa.array([2**62 + 1], pa.timestamp("s")), pa.string()).reason is not None


# --- collections ------------------------------------------------------------------------------------------------------

COLLECTIONS = [
    *([1, 2, 3], (1, 2, 3), {1, 2, 3}, range(1, 4), iter([1, 2, 3]), {1: "", 2: "", 3: ""}.keys(), [3, 2, 1, 2, 3]),
    *([1, None, 2.0, D(3)], [np.int8(1), np.int64(2), pa.scalar(3, pa.int8()), pa.scalar(None, pa.int8()), None]),
    *(np.array([1, 2, 3]), np.array([1, 2, 3], object), np.array([1.0, 2.0, 3.0], np.float16)),
    *(pl.Series([1, 2, 3, None]), pa.array([1, 2, 3, None]).dictionary_encode(), [1, 2**70, 3, -(2**70), 2]),
    *(pa.array([1, None, 2, 3], pa.int8()), pa.chunked_array([[1], [2, 3]]), pa.array([0, 1, 2, 3])[1:]),
    pa.RunEndEncodedArray.from_arrays([1, 2, 3], pa.array([1, 2, 3])),
]


@pytest.mark.parametrize("literals", COLLECTIONS, ids=lambda c: f"{type(c).__module__}.{type(c).__name__}")
def test_any_collection_is_taken(literals):
    fit = fit_values(literals, pa.int32())
    assert fit.reason is None
    assert set(fit.values.to_pylist()) == {1, 2, 3}
    assert fit.values.type == pa.int32()


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["x", "y", "z"])])
def test_categories_of_polars_are_taken(kind):
    categories = pl.Series(["x", None, "z"], dtype=kind)  # the PyCapsule interface gives a dictionary of views
    for literals in (categories, pa.chunked_array(categories), pa.chunked_array(categories).combine_chunks()):
        fit = fit_values(literals, pa.string())
        assert fit.reason is None
        assert sorted(fit.values.to_pylist()) == ["x", "z"]


class OwnType(pa.ExtensionType):
    """A type of a user; it has no hash."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "own")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""


def test_scalars_of_an_extension_type_of_python_are_taken():
    own = pa.ExtensionArray.from_storage(OwnType(), pa.array([3, 5]))
    assert fit_values(list(own), OwnType()).values.to_pylist() == [3, 5]


def test_a_mixture_is_not_truncated_to_its_first_type():
    stamps = [DAY, NAIVE]  # pyarrow makes two dates of it
    assert fit_values(stamps, pa.timestamp("us")).values.to_pylist() == [MIDNIGHT, NAIVE]
    assert fit_values([NOON, NAIVE], pa.timestamp("us", "UTC")).reason is not None
    assert fit_values([2**53 + 1, 0.5], pa.int64()).reason is not None  # pyarrow makes two doubles of it
    assert fit_values([2**53 + 1, 4.0], pa.int64()).values.to_pylist() == [2**53 + 1, 4]


@pytest.mark.parametrize(
    "nothing", [None, [], [None, None], pa.nulls(3), pa.array([None], pa.string()), pa.scalar(None)]
)
@pytest.mark.parametrize("column_type", [pa.int64(), pa.uuid(), pa.string(), pa.decimal128(5, 2)], ids=str)
def test_nulls_alone_match_nothing(nothing, column_type):
    fit = fit_values(nothing, column_type)
    assert (fit.reason, fit.num_out_of_range, len(fit.values)) == (None, 0, 0)
    assert fit.values.type == column_type


def test_many_literals_are_converted_with_their_stragglers():
    many = list(range(200_000))
    fit = fit_values([*many, 2**31, -(2**40)], pa.int32())
    assert fit.num_out_of_range == 2
    assert fit.values.to_pylist() == many
    assert fit_values([*map(str, many)], pa.string_view()).values.to_pylist() == [*map(str, many)]
    assert len(fit_values([D(n) / 4 for n in many[:2000]] + [D(10**30)], pa.decimal128(10, 2)).values) == 2000


def test_an_integer_that_python_refuses_to_show_raises_nothing():
    assert fit_values(10**5000, pa.int8()).num_out_of_range == 1
    assert "an integer of 16610 bits" in fit_values(10**5000, pa.string()).reason.message


def test_pyarrows_wrapping_decimal_cast_does_not_fit_values_that_are_none():
    wrapping = pa.array([2**32 - 99_999, 2**32, 5], pa.int64())  # pyarrow 26 casts these to decimal32 as -99999, 0, 5
    fit = fit_values(wrapping, pa.decimal32(7, 2))
    assert (fit.values.to_pylist(), fit.num_out_of_range) == ([D(5)], 2)


def test_a_numeral_is_the_double_that_python_reads_it_as():
    numerals = [D(n).scaleb(-k) for n in (1001, 3, 7, 12345678901234567, 2**53 + 1) for k in range(0, 30, 3)]
    assert fit_values(numerals, pa.float64()).values.to_pylist() == [float(str(n)) for n in numerals]
    array = pa.array(numerals, pa.decimal256(60, 30))
    assert fit_values(array, pa.float64()).reason is not None  # pyarrow's own comparison may find another double


def test_the_callers_decimal_context_changes_nothing():
    long = D("1234567890123456789012345678901234.5678")
    with decimal.localcontext(prec=3):
        assert fit_values(long, pa.decimal128(38, 4)).values.to_pylist() == [long]
        assert fit_values([long, D(10) ** 60], pa.decimal128(38, 4)).values.to_pylist() == [long]
        assert fit_values([long, D(10) ** 60], pa.decimal128(38, 3)).reason is not None


# --- properties -------------------------------------------------------------------------------------------------------

numbers = st.one_of(
    st.integers(-(2**70), 2**70),
    st.integers(-300, 300),
    st.sampled_from([2**k + d for k in (7, 8, 11, 15, 16, 24, 31, 32, 53, 63, 64) for d in (-1, 0, 1)]),
    st.floats(allow_nan=False),
    st.floats(allow_nan=False, width=16),
    st.integers(-(2**66), 2**66).map(float),
    st.decimals(allow_nan=False, places=2, min_value=-(10**12), max_value=10**12),
    st.decimals(allow_nan=False),
)
number_types = st.sampled_from([*INTS, *FLOATS, *DECIMALS])


def members(column_type, number):
    """Values of `column_type` at or beside `number`, in Python."""
    if number in (math.inf, -math.inf):
        return [float(number)] if pa.types.is_floating(column_type) else []
    if pa.types.is_integer(column_type):
        info = np.iinfo(column_type.to_pandas_dtype())
        return [n for n in range(int(number) - 1, int(number) + 2) if info.min <= n <= info.max]
    if pa.types.is_floating(column_type):
        if abs(number) > 1e308:
            return []
        with np.errstate(over="ignore"):
            near = np.array([float(number)]).astype(column_type.to_pandas_dtype())
            return np.concatenate([near, np.nextafter(near, near.dtype.type(np.inf))]).tolist()
    with decimal.localcontext(prec=200, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN):
        if not abs(D(number)) < 10 ** (column_type.precision - column_type.scale):
            return []
        unit = D(1).scaleb(-column_type.scale)
        near = D(number).quantize(unit) if D(number) else D(0).quantize(unit)
        limit = 10**column_type.precision
        return [n for n in (near - unit, near, near + unit) if abs(n.scaleb(column_type.scale)) < limit]


@given(numbers, number_types)
def test_a_fit_is_exactly_the_values_that_equal_the_number(number, column_type):
    fit = fit_values(number, column_type)
    equal = [n for n in members(column_type, number) if n == number]
    if fit.reason is not None:
        assert fit.num_out_of_range == len(fit.values) == 0
        return
    assert len(fit.values) + fit.num_out_of_range == 1
    is_numeral = isinstance(number, D) and column_type == pa.float64()
    if is_numeral:
        assert fit.values.to_pylist() == ([float(number)] if abs(number) <= D(2**1024) or number.is_infinite() else [])
    else:
        assert set(fit.values.to_pylist()) == set(equal)


arrow_numbers = st.sampled_from([*INTS, *FLOATS, pa.decimal128(20, 3), pa.decimal32(9, 0), pa.decimal64(9, 0)])


def assert_each_fits_as_alone(values, column_type) -> None:
    """Each value of a list is a value of the column, null, out of range or a misfit, whatever the others are."""
    each = fit_each(values, column_type)
    fitting = dict(zip(each.slots.tolist(), each.values, strict=True))
    misfits = set(each.misfits.tolist())
    for slot, value in enumerate(values):
        alone = fit_values(value, column_type)
        fit = [fitting[slot]] if slot in fitting else []
        assert (slot in misfits, fit) == (alone.reason is not None and value is not None, list(alone.values))


@given(st.lists(numbers, min_size=1, max_size=6), arrow_numbers, number_types)
def test_arrays_fit_as_their_values_do_one_by_one(values, source_type, column_type):
    pool = [member for number in values for member in members(source_type, number)]
    finite = [member for member in pool if not isinstance(member, float) or math.isfinite(member)]
    source = pa.array([pa.scalar(member, source_type).as_py() for member in finite], source_type)
    whole = fit_values(source, column_type)
    singles = [fit_values(source[i], column_type) for i in range(len(source))]
    assert (whole.reason is None) == all(single.reason is None for single in singles)
    if whole.reason is None:
        assert whole.values.to_pylist() == [v for single in singles for v in single.values.to_pylist()]
        assert whole.num_out_of_range == sum(single.num_out_of_range for single in singles)
    assert_each_fits_as_alone(source, column_type)


@given(numbers, arrow_numbers, number_types)
def test_no_row_that_pyarrow_says_equals_is_missed(number, literal_type, column_type):
    """Engines that widen both sides to one type before they compare must find no row outside the fit."""
    for member in members(literal_type, number):
        literal = pa.scalar(member, literal_type)
        rows = sorted(set(members(column_type, member)))
        if not rows:
            continue
        column = pa.array(rows, column_type)
        try:
            matches = column.filter(pc.equal(column, literal)).to_pylist()
        except pa.ArrowException:  # pyarrow finds no common type for the two, or no room in it
            continue
        fit = fit_values(literal, column_type)
        assert fit.reason is not None or set(matches) <= set(fit.values.to_pylist())


moments = st.datetimes(dt.datetime(1600, 1, 1), dt.datetime(2400, 1, 1))  # noqa: DTZ001 - naive on purpose


@given(moments, st.sampled_from(["s", "ms", "us", "ns"]), st.sampled_from([10**6, 1000, 1]))
def test_a_moment_fits_a_unit_that_can_say_it(moment, unit, coarseness):
    moment = moment.replace(microsecond=moment.microsecond // coarseness * coarseness)
    exact = moment.microsecond % {"s": 10**6, "ms": 1000}.get(unit, 1) == 0
    fit = fit_values(moment, pa.timestamp(unit))
    text = fit_values(moment.isoformat(), pa.timestamp(unit))
    ticks = (moment - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)  # noqa: DTZ001 - naive on purpose
    per_tick = {"s": 10**6, "ms": 1000, "us": 1}.get(unit)
    if not exact:
        assert fit.reason is not None
        assert text.reason is not None
    elif per_tick is None and not -(2**63) <= ticks * 1000 < 2**63:
        assert fit.num_out_of_range == 1
        assert text.num_out_of_range == 1
    else:
        stored = ticks // per_tick if per_tick else ticks * 1000
        assert fit.values.view(pa.int64()).to_pylist() == [stored] == text.values.view(pa.int64()).to_pylist()


anything = st.one_of(
    st.none(), st.booleans(), numbers, st.floats(), st.text(), st.binary(), st.uuids(), moments,
    st.dates(), st.times(), st.timedeltas(), st.decimals(), st.datetimes(timezones=st.just(BERLIN)),
)  # fmt: skip
any_type = st.sampled_from(
    [
        *INTS, *FLOATS, *DECIMALS, *TEXTS, *BINARIES, pa.binary(3), pa.binary(16), pa.uuid(), pa.bool_(), pa.date32(),
        pa.date64(), pa.time32("s"), pa.time64("ns"), pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("us", "UTC"),
        pa.duration("ms"), pa.dictionary(pa.int8(), pa.string()), pa.list_(pa.int8()), pa.null(), pa.bool8(),
    ]
)  # fmt: skip


@given(anything | st.lists(anything), any_type)
def test_no_literal_and_no_type_raises(literal, column_type):
    fit = fit_values(literal, column_type)
    assert isinstance(fit.reason, Reason | None)
    assert fit.values.null_count == 0
    if fit.reason is None:
        literals = literal if isinstance(literal, list) else [literal]
        assert len(fit.values) + fit.num_out_of_range == sum(value is not None for value in literals)
        hash_values(fit.values)
    assert_each_fits_as_alone(literal if isinstance(literal, list) else [literal], column_type)


# --- reasons ----------------------------------------------------------------------------------------------------------


def test_a_reason_says_what_it_concerns():
    reason = Reason(ReasonCode.NAN_LITERAL, "why")
    assert reason.to_dict() == {"code": "NAN_LITERAL", "message": "why"}
    full = reason.about(column="c").about(path="p")
    assert full.to_dict() == {"code": "NAN_LITERAL", "message": "why", "column": "c", "path": "p"}
    assert full.about() == full


# --- the short cut ----------------------------------------------------------------------------------------------------


PLAIN_TYPES = [*INTS, *FLOATS, *TEXTS, *BINARIES, *DECIMALS]
PLAIN_TYPES += [pa.date32(), pa.timestamp("us"), pa.bool_(), pa.uuid(), pa.binary(3)]
plain_values = st.integers(-(2**64), 2**65) | st.text() | st.binary() | st.booleans() | st.floats() | st.none()


@given(plain_values | st.just("\ud800"), st.sampled_from(PLAIN_TYPES))
def test_plain_hash_is_the_hash_that_the_fit_probes(value, column_type):
    actual = plain_hash(value, column_type)
    if actual is not None:
        fit = fit_values(value, column_type)
        assert fit.reason is None
        assert list(hash_values(fit.values)) == [actual]


def test_plain_hash_knows_the_commonest_literals():
    for literal, column_types in ((100, INTS), ("", TEXTS), (b"\0", BINARIES)):
        assert all(plain_hash(literal, column_type) is not None for column_type in column_types)
    assert plain_hash(True, pa.int64()) is plain_hash(300, pa.int8()) is None
