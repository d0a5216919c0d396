"""`exists`: false is certain, null stays null, and `exact=True` is the truth.

Oracle: Python sets of the values that were written.
"""

from __future__ import annotations

import datetime as dt
import math
import time
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import zonebloom as zb
from tests.depth import some
from tests.newer import has
from zonebloom.errors import ColumnNotFoundError, InvalidArgumentError, PredicateError, StaleIndexError, StaleWarning

VIEW = pa.array(["a"], pa.string_view())


@pytest.fixture
def build(tmp_path):
    def make(values: pa.Array, **parameters) -> zb.Index:
        half = len(values) // 2
        for number, part in enumerate((values.slice(0, half), values.slice(half))):
            pq.write_table(pa.table({"c": part}), tmp_path / f"part-{number}.parquet", row_group_size=50)
        return zb.build_index(tmp_path, "c", **{"rows_per_zone": 16, "fpp": 1e-6, **parameters})

    return make


def test_false_is_certain_and_null_stays_null(build):
    index = build(pa.array([1, 2, None, 4], pa.int64()))
    answer = index.exists("c", [1, 3, None, 4, 5])
    assert answer.type == pa.bool_()
    assert answer.to_pylist() == [True, False, None, True, False]
    assert index.exists("c", [None]).to_pylist() == [None]
    assert index.exists("c", []).to_pylist() == []
    assert index.exists("c", pa.array([None, None], pa.null())).to_pylist() == [None, None]


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(
    ("values", "probes", "expected"),
    [
        (pa.array([1, 300], pa.int64()), [1, 2, 300, 2**70, -(2**70)], [True, False, True, False, False]),
        (pa.array([1, 100], pa.int8()), pa.array([1, 100, 300, -300]), [True, True, False, False]),
        (pa.array([1, 100], pa.uint8()), [1, -1, 256, 100.0, 1.0], [True, False, False, True, True]),
        (pa.array([0.0, 1.5]), [0.0, -0.0, 1.5, 2.5, 1], [True, True, True, False, False]),
        (pa.array(["a", "", "é"]), ["a", "", "é", "b", "e\u0301"], [True, True, True, False, False]),
        (pa.array(["a", "b"]), pa.array(["a", "c", None]).dictionary_encode(), [True, False, None]),
        (pa.array(["a", "b"]), pc.run_end_encode(pa.array(["a", "a", "c", None])), [True, True, False, None]),
    ],
    ids=lambda value: str(getattr(value, "type", ""))[:40] or None,
)
def test_values_of_each_kind(build, values, probes, expected, exact):
    assert build(values).exists("c", probes, exact=exact).to_pylist() == expected


def test_values_of_a_dictionary_are_those_of_its_values(build):
    """One by one too; pyarrow makes arrays of few kinds of them."""
    values = pa.array([dt.datetime(2020, 1, 1)], pa.timestamp("ms"))  # noqa: DTZ001 - local
    keys = pa.array([dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, 0, 0, 0, 1)])  # noqa: DTZ001 - local
    index = build(values)
    for asked in (keys, keys.dictionary_encode(), list(keys), list(keys.dictionary_encode())):
        isin = zb.col("c").isin(asked)
        assert (index.to_table(isin).num_rows, index.to_table(~isin).num_rows) == (1, 0)


@pytest.mark.parametrize("probes", [["\ud800"], pa.RunEndEncodedArray.from_arrays([1], VIEW)])
def test_values_that_arrow_does_not_have_are_refused(build, probes):
    with pytest.raises(PredicateError, match=r"values must be such as pyarrow can decode|got the text '\\ud800'"):
        build(pa.array(["a"])).exists("c", probes)


def test_nan_may_exist_and_is_never_exactly_found(build):
    index = build(pa.array([math.nan, 1.0], from_pandas=False))
    probes = pa.array([math.nan, 1.0, 2.0], from_pandas=False)
    assert index.exists("c", probes).to_pylist() == [True, True, False]
    assert index.exists("c", probes, exact=True).to_pylist() == [False, True, False]


def test_what_does_not_convert_may_exist(build):
    """No proof of absence from a literal that is not of the column's type; reading the rows denies it."""
    index = build(pa.array([1, 2], pa.int64()))
    assert index.exists("c", [1.5, 2.0]).to_pylist() == [True, True]
    assert index.exists("c", [1.5, 2.0], exact=True).to_pylist() == [False, True]


def test_exact_equals_truth_where_the_filters_are_full(build):
    """With filters that let two thirds of everything pass, only reading tells."""
    index = build(pa.array(range(0, 2000, 2)), fpp=0.9, rows_per_zone=500)
    probes = list(range(-100, 2100))
    maybe = index.exists("c", probes).to_pylist()
    assert maybe.count(True) > 1500
    exact = index.exists("c", probes, exact=True).to_pylist()
    assert exact == [0 <= number < 2000 and number % 2 == 0 for number in probes]
    assert all(is_maybe or not other for is_maybe, other in zip(maybe, exact, strict=True))


def test_floats_beyond_exact_integers_are_compared_by_value(build):
    index = build(pa.array([2**60, 2**60 + 1, 7], pa.int64()))
    probes = [2.0**60, 2.0**61, 7.0, 7.5]
    assert index.exists("c", probes).to_pylist() == [True, True, True, True]
    assert index.exists("c", probes, exact=True).to_pylist() == [True, False, True, False]


def test_a_million_values(build):
    """A million values against 30 zones in seconds."""
    values = pa.array(np.arange(30_000, dtype=np.int64) * 7)
    index = build(values, rows_per_zone=1024, fpp=0.001)
    probes = np.arange(1_000_000, dtype=np.int64)
    expected = (probes % 7 == 0) & (probes < 210_000)
    index.exists("c", [1])
    started = time.process_time()
    answers = index.exists("c", probes).to_numpy(zero_copy_only=False)
    assert answers[expected].all()
    assert answers.mean() < 0.3
    assert index.exists("c", probes, exact=True).to_numpy(zero_copy_only=False).tolist() == expected.tolist()
    assert time.process_time() - started < 20


NUMBERS = range(30_000)
MOSTLY_MISFITS = {
    "moments of a finer unit": (pa.timestamp("us"), pa.array(NUMBERS, pa.timestamp("ns")), [0, 1000, 2000, 3000, 4000]),
    "NaN": (pa.float64(), np.where(np.arange(30_000) % 5, np.nan, np.arange(30_000) / 5), [0, 5, 10, 15, 20]),
    "floats of a wider type": (pa.float32(), np.arange(30_000) / 1000, [0, 1000, 2000, 3000, 4000]),
    "more digits": (pa.decimal128(9, 2), [Decimal(number) / 1000 for number in NUMBERS], [0, 1000, 2000, 3000, 4000]),
    "out of range": (pa.decimal128(3, 2), [Decimal(n % 2 * 999 + n // 2) for n in NUMBERS], [0, 2, 4, 6, 8]),
}
"""Type of the column, keys, and the places of the keys that equal 0, 1, 2, 3 and 4."""


@pytest.mark.parametrize("kind", some(MOSTLY_MISFITS, 3))
def test_many_misfits_do_not_slow_many_values(build, kind):
    column_type, keys, places = MOSTLY_MISFITS[kind]
    numbers = pa.array(map(Decimal, range(5)), column_type) if "decimal" in str(column_type) else pa.array(range(5))
    index = build(numbers.cast(column_type), rows_per_zone=4)
    started = time.process_time()
    assert index.exists("c", keys)[places[1]].as_py()
    assert index.search(column="c", values=keys).num_rows_kept == 5
    assert time.process_time() - started < 6
    exact = index.exists("c", keys, exact=True).to_numpy(zero_copy_only=False)
    assert np.flatnonzero(exact).tolist() == places


def test_a_million_keys_of_a_wrong_kind_are_refused_at_once(build):
    index = build(pa.array(range(9), pa.timestamp("us", "UTC")))
    started = time.process_time()
    with pytest.raises(PredicateError, match="write an instant with its offset"):
        index.exists("c", pa.array(range(1_000_000), pa.timestamp("us")))
    assert time.process_time() - started < 10


def test_an_answer_that_may_be_loose_warns_of_new_files(build):
    index = build(pa.array(range(10)))
    pq.write_table(pa.table({"c": [77]}), index.data.store.root / "new.parquet")
    for ask in (index.exists, index.locate, index.files_for):
        with pytest.warns(StaleWarning, match=r"1 new or changed file") as caught:
            ask("c", [77])
        assert caught[0].filename == __file__
        with pytest.raises(StaleIndexError):
            ask("c", [77], strict=True)
    index.exists("c", [77], exact=True)
    index.locate("c", [77], exact=True)


def test_a_deleted_file_holds_nothing(build):
    index = build(pa.array(range(10)))
    (index.data.store.root / "part-1.parquet").unlink()
    assert index.exists("c", [1, 9]).to_pylist() == [True, False]


MONTHS = pa.array([(1, 2, 3), (4, 5, 6)], pa.month_day_nano_interval())


@pytest.mark.parametrize("values", ["u-1", b"u-1", 5, None, object(), [object()], [[1]], {"a": 1}, [1, "x"], MONTHS])
def test_values_must_be_an_array_of_what_a_column_holds(build, values):
    with pytest.raises(PredicateError, match=r"values must be an array|column c holds"):
        build(pa.array(["u-1"])).exists("c", values)


def test_moments_that_python_does_not_have_are_no_numbers(build):
    index = build(pa.array([1]))
    for values in (np.array(["20200000"], "M8[Y]"), pa.array([2**62], pa.timestamp("s")), [10**5000, "no number"]):
        with pytest.raises(PredicateError, match="column c holds int64"):
            index.exists("c", values)


def test_integers_that_python_does_not_print_are_told(build):
    index = build(pa.array([True]))
    for ask in (lambda: index.exists("c", [10**5000]), lambda: index.explain(zb.col("c") < 10**5000)):
        with pytest.raises(PredicateError, match=r"holds .*, got 10000"):
            ask()


def test_days_and_moments_of_one_list_are_compared_each_by_itself(build):
    """Arrow would take the day of the moment."""
    index = build(pa.array([dt.datetime(2020, 1, 1, 10), dt.datetime(2020, 1, 2)], pa.timestamp("us")))  # noqa: DTZ001
    values = [dt.date(2020, 1, 1), dt.datetime(2020, 1, 1, 10), dt.date(2020, 1, 2)]  # noqa: DTZ001
    assert index.exists("c", values).to_pylist() == [False, True, True]
    with pytest.raises(PredicateError, match=r"write an instant with its offset|holds .*, got 2020"):
        index.exists("c", [*values, dt.datetime(2020, 1, 1, tzinfo=dt.UTC)])


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1, 1000, None, 300], pa.float32()).cast(pa.float16()),
        pa.array([Decimal(1), Decimal(1000), None, Decimal(300)], pa.decimal32(6, 1)),
        pa.array([Decimal(1), Decimal(1000), None, Decimal(300)], pa.decimal64(12, 1)),
    ],
    ids=lambda values: str(values.type),
)
def test_values_that_arrow_cannot_sort(build, values):
    index = build(pa.array([1, 2], pa.int8()))
    for exact in (False, True):
        assert index.exists("c", values, exact=exact).to_pylist() == [True, False, None, False]


NUMERALS = [Decimal("0.1"), Decimal("0.3"), Decimal("123.45"), Decimal(10) ** 39, Decimal(1)]


@pytest.mark.parametrize(
    "column_type",
    [pa.float16(), pa.float32(), pa.float64(), pa.int64(), *[pa.decimal32(5, 2)] * has("narrow_decimals_in_files")],
    ids=str,
)
def test_exact_finds_what_equality_finds(build, column_type):
    """A decimal numeral means the nearest of a column's floats, which it does not equal by value."""
    rows = [1, 123] if pa.types.is_integer(column_type) else [1.0, 0.1, 123.45]
    index = build(pa.array(rows).cast(column_type, safe=False))
    for numeral in NUMERALS:
        expected = index.to_table(zb.col("c") == numeral).num_rows > 0
        assert index.exists("c", [numeral], exact=True).to_pylist() == [expected], numeral


def test_the_column_must_be_indexed(build):
    index = build(pa.array([1]))
    with pytest.raises(ColumnNotFoundError, match="did you mean c"):
        index.exists("cc", [1])
    for column in (5, b"c", ["c"]):
        for ask in (index.exists, index.locate, index.files_for):
            with pytest.raises(InvalidArgumentError, match="a column must be given by its name, got"):
                ask(column, [1])
