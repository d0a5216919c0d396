"""Hash inputs: the bytes of every Arrow type, its buffers, and how columns and probes find them.

Oracle: the xxhash package over bytes spelled out with struct and int.to_bytes.
"""

import datetime as dt
import decimal
import struct
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from tests.reference import hashes_of
from zonebloom.bloom import hashing
from zonebloom.bloom.hashing import values as hashes_of_arrays
from zonebloom.errors import ColumnNotFoundError, InvalidArgumentError, UnsupportedTypeError

D = decimal.Decimal
UUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


def little(number, width):
    return number.to_bytes(width, "little", signed=number < 0)


def same(numbers, width):
    return numbers, [little(number, width) for number in numbers]


def floats(code):
    numbers = np.array([0.0, -0.0, 1.5, float("inf"), float("-inf"), float("nan")], code)
    return list(numbers), [struct.pack(f"<{code}", number) for number in numbers]


TEXTS = ["", "a", "é", "x" * 40, "\0", "a" * 13]
RAW = [text.encode() for text in TEXTS]

# type -> (what pa.array is given, the hash input of each value)
INPUTS = {
    pa.bool_(): ([True, False], [b"\x01", b"\x00"]),
    **{
        getattr(pa, f"int{8 * n}")(): same([-(2 ** (8 * n - 1)), 2 ** (8 * n - 1) - 1, 0, 1, 7], n)
        for n in (1, 2, 4, 8)
    },
    **{getattr(pa, f"uint{8 * n}")(): same([0, 2 ** (8 * n) - 1, 0, 1, 7], n) for n in (1, 2, 4, 8)},
    **{kind: floats(code) for kind, code in ((pa.float16(), "e"), (pa.float32(), "f"), (pa.float64(), "d"))},
    pa.decimal32(7, 2): ([D("1.50"), D("-0.01")], [little(150, 4), little(-1, 4)]),
    pa.decimal64(18, 3): ([D("1.500"), D("-0.001")], [little(1500, 8), little(-1, 8)]),
    pa.decimal128(38, 2): ([D("1.50"), D("-1e30")], [little(150, 16), little(-(10**32), 16)]),
    pa.decimal256(76, 0): ([D(10**75), D(-5)], [little(10**75, 32), little(-5, 32)]),
    pa.date32(): ([dt.date(1970, 1, 2), dt.date(1969, 12, 31)], [little(1, 4), little(-1, 4)]),
    pa.date64(): ([dt.date(1970, 1, 2)], [little(86_400_000, 8)]),
    **{pa.time32(unit): ([dt.time(0, 1)], [little(ticks, 4)]) for unit, ticks in (("s", 60), ("ms", 60_000))},
    **{pa.time64(unit): ([dt.time(0, 0, 1)], [little(ticks, 8)]) for unit, ticks in (("us", 10**6), ("ns", 10**9))},
    pa.timestamp("s"): ([86_400], [little(86_400, 8)]),
    pa.timestamp("us", "Europe/Berlin"): ([dt.datetime(1970, 1, 1, tzinfo=dt.UTC)], [little(0, 8)]),
    pa.timestamp("ns"): ([-(10**9)], [little(-(10**9), 8)]),
    pa.duration("ms"): ([dt.timedelta(seconds=-1)], [little(-1000, 8)]),
    pa.binary(3): ([b"abc", b"\0\0\0"], [b"abc", b"\0\0\0"]),
    pa.binary(16): ([UUID.bytes], [UUID.bytes]),
    pa.binary(40): ([b"q" * 40], [b"q" * 40]),
    pa.uuid(): ([UUID.bytes], [UUID.bytes]),
    **dict.fromkeys((pa.string(), pa.large_string(), pa.string_view()), (TEXTS, RAW)),
    **dict.fromkeys((pa.binary(), pa.large_binary(), pa.binary_view()), (RAW, RAW)),
    pa.dictionary(pa.int8(), pa.string()): (TEXTS, RAW),
    pa.dictionary(pa.uint64(), pa.int16()): same([1, 2, 1], 2),
    pa.run_end_encoded(pa.int32(), pa.int32()): same([1, 1, 2], 4),
}
TYPES = pytest.mark.parametrize("column_type", INPUTS, ids=str)
REFUSED = [
    *(pa.null(), pa.list_(pa.int8()), pa.large_list(pa.int8()), pa.list_view(pa.int8()), pa.list_(pa.int8(), 3)),
    *(pa.map_(pa.string(), pa.int8()), pa.struct([("b", pa.int8())]), pa.struct([]), pa.month_day_nano_interval()),
    *(pa.dense_union([pa.field("x", pa.int8())]), pa.sparse_union([pa.field("x", pa.int8())]), pa.binary(0)),
    *(pa.bool8(), pa.dictionary(pa.int8(), pa.list_(pa.int8())), pa.fixed_shape_tensor(pa.int8(), (2,))),
]


def make(values, column_type):
    """pa.array, also for the types that pa.array does not make of Python values."""
    if isinstance(column_type, pa.RunEndEncodedType):
        ends = pa.array(range(1, len(values) + 1), column_type.run_end_type)
        return pa.RunEndEncodedArray.from_arrays(ends, pa.array(values, column_type.value_type))
    return pa.array(values, column_type)


# --- the bytes of each type -------------------------------------------------------------------------------------------


@TYPES
def test_a_value_hashes_as_its_own_bytes_in_slices_in_chunks_and_as_a_probe(column_type):
    values, inputs = INPUTS[column_type]
    array = make([values[0], None, *values, None, None], column_type)
    expected = hashes_of([inputs[0], *inputs])
    for part, hashes in (
        *((array, expected), (array.slice(1), expected[1:]), (array.slice(2, 1), expected[1:2])),
        (array.slice(3).slice(0, len(values) - 1), expected[2:]),
        (pa.chunked_array([array.slice(0, 2), array.slice(2, 0), array.slice(2)]), expected),
    ):
        assert hashing.hash_array(part).tolist() == hashes
    probes = hashing.hash_values(array.slice(2))
    assert isinstance(probes, list)
    assert set(probes) == set(hashes_of(inputs))


@TYPES
def test_empty_and_all_null_arrays_have_no_hashes(column_type):
    empty, nulls = make([], column_type), make([None, None, None], column_type)
    assert len(hashing.to_hashes(empty)) == len(hashing.hash_array(empty)) == len(hashing.hash_values(empty)) == 0
    assert len(hashing.hash_array(nulls)) == len(hashing.hash_values(nulls)) == 0
    assert len(hashing.to_hashes(nulls)) == len(nulls)
    assert len(hashing.hash_array(nulls.slice(1))) == len(hashing.hash_array(pa.chunked_array([], column_type))) == 0


WORKED = {
    "ef46db3751d8e999": pa.array([""]),
    "d24ec4f1a98c6e5b": pa.array(["a"]).dictionary_encode(),
    "17d757dfb8b46f78": pa.array(["é"]),
    "a96c7f0ce858bbb7": pa.array([7], pa.int8()),
    "3cbd0b2678c057bc": pa.array([7], pa.int16()),
    "b7ca480e9b960d0e": pa.array([dt.date(1970, 1, 8)]),
    "0876cd406afde455": pa.array([7], pa.timestamp("s")),
    "34c96acdcadb1bbb": pa.array([0.0]),
    "3f425eacf01544e0": pa.array([-0.0]),
    "8a4127811b21e730": pa.array([True]),
    "11628ab44262ed40": pa.array([D("1.50")], pa.decimal128(5, 2)),
    "13c6635f71500f92": pa.array([UUID.bytes], pa.uuid()),
}


@pytest.mark.parametrize("text", WORKED)
def test_worked_bytes_of_the_spec(text):
    assert f"`{text}`" in (Path(__file__).parents[2] / "specs" / "hashing.md").read_text("utf-8")
    assert [f"{value:016x}" for value in hashing.hash_array(WORKED[text]).tolist()] == [text]


def test_float_bits_are_not_normalised():
    payloads = np.array([0x7FF8000000000000, 0x7FF8000000000001, 0xFFF8000000000000, 0, 1 << 63], np.uint64)
    assert len(set(hashing.hash_array(pa.array(payloads.view(np.float64))).tolist())) == 5


@pytest.mark.parametrize("column_type", REFUSED, ids=str)
def test_types_without_a_hash_input_are_refused(column_type):
    assert not hashing.is_supported(column_type)
    assert not hashing.lance_supports(column_type)
    with pytest.raises(UnsupportedTypeError, match=r"must be of a type that can be hashed, got .*; "):
        hashing.hash_plan(column_type)


def test_a_struct_is_refused_with_a_leaf_to_use_instead():
    nested = pa.struct([("b", pa.struct([("c", pa.int8())]))])
    with pytest.raises(UnsupportedTypeError, match=r"such as '<column>\.b\.c'"):
        hashing.hash_plan(nested)


# --- buffers ----------------------------------------------------------------------------------------------------------


def test_buffers_are_views_of_the_arrays_own():
    fixed, variable = pa.array([1, None, 3, 4], pa.int64()), pa.array(["a", None, "bcd", "e"])
    assert hashing.fixed_buffers(fixed[1:]).data.ctypes.data == fixed.buffers()[1].address + 8
    assert hashing.validity_of(fixed[1:])[0].ctypes.data == fixed.buffers()[0].address
    assert hashing.variable_buffers(variable[2:]).data.ctypes.data == variable.buffers()[2].address
    assert hashing.variable_buffers(variable[2:]).offsets.ctypes.data == variable.buffers()[1].address + 8
    assert not hashing.fixed_buffers(fixed).data.flags.writeable
    assert hashing.validity_of(fixed[2:]) == (None, 0), "without nulls there is none to look at"


def test_arrays_of_no_rows_may_have_no_buffers():
    empty = pa.py_buffer(b"")
    assert len(hashing.hash_array(pa.Array.from_buffers(pa.string(), 0, [None, empty, empty]))) == 0
    assert len(hashing.hash_array(pa.Array.from_buffers(pa.int64(), 0, [None, None]))) == 0


# --- dictionaries -----------------------------------------------------------------------------------------------------


def test_null_dictionary_values_are_null_rows():
    array = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2, 1, 0]), pa.array(["a", None, "b"]))
    assert hashing.hash_array(array).tolist() == hashes_of([b"a", b"b", b"a"])
    assert hashing.hash_array(array[1:4]).tolist() == hashes_of([b"b"])
    assert list(hashing.hash_values(array)) == hashes_of([b"a", b"b"])


def test_the_index_of_a_null_row_may_point_anywhere():
    validity = pa.py_buffer(b"\x05")
    indices = pa.Array.from_buffers(pa.int8(), 3, [validity, pa.py_buffer(bytes([0, 100, 1]))])
    array = pa.DictionaryArray.from_arrays(indices, pa.array(["a", "b"]), safe=False)
    assert hashing.hash_array(array).tolist() == hashes_of([b"a", b"b"])


@pytest.mark.parametrize("index_type", [np.int8, np.int32, np.int64])
@pytest.mark.parametrize("place", [-1, 2])
def test_a_row_that_names_no_value_of_its_dictionary_is_refused(index_type, place):
    rows = pa.DictionaryArray.from_arrays(pa.array([0, place], pa.from_numpy_dtype(index_type)), ["a", "b"], safe=False)
    with pytest.raises(InvalidArgumentError, match="must be from 0 to 1"):
        hashing.to_hashes(rows)


def test_batches_that_share_a_dictionary_hash_it_once():
    dictionary = pa.array([f"value {i}" for i in range(2000)])
    batches = [pa.DictionaryArray.from_arrays(pa.array([i, i + 1]), dictionary) for i in range(20)]
    dictionaries = [hashes_of_arrays._Dictionary.of(batch.dictionary) for batch in batches]
    first = hashes_of_arrays._hashes_of_dictionary(dictionaries[0])
    assert all(hashes_of_arrays._hashes_of_dictionary(dictionary) is first for dictionary in dictionaries)


def test_the_dictionary_cache_tells_slices_types_and_contents_apart():
    dictionary = pa.array([f"v{i}" for i in range(30)])
    slices, kinds = (dictionary, dictionary[1:], dictionary[:7], dictionary[2:9]), (pa.binary(), pa.large_string())
    views = [*slices, *map(dictionary.cast, kinds)]
    for _ in range(2):
        for values in views:
            array = pa.DictionaryArray.from_arrays(pa.array([0, 5]), values)
            assert hashing.hash_array(array).tolist() == hashing.hash_array(values.take(pa.array([0, 5]))).tolist()


def test_the_dictionary_cache_is_bounded_and_never_confuses_reused_memory():
    for i in range(200):  # each dictionary dies, so the allocator hands its address to the next
        array = pa.DictionaryArray.from_arrays(pa.array([1, 0]), pa.array([f"{i:04}a", f"{i:04}b"]))
        assert hashing.hash_array(array).tolist() == hashes_of([f"{i:04}b".encode(), f"{i:04}a".encode()])
    assert hashes_of_arrays._hashes_of_dictionary.cache_info().currsize <= hashes_of_arrays.NUM_CACHED_DICTIONARIES


def test_threads_share_the_dictionary_cache():
    arrays = [pa.array([f"{i} {j}" for j in range(50)]).dictionary_encode() for i in range(20)]
    expected = [hashing.hash_array(array.dictionary_decode()).tolist() for array in arrays]
    with ThreadPoolExecutor(4) as pool:
        hashes = list(pool.map(hashing.hash_array, arrays * 20))
    assert [array.tolist() for array in hashes] == expected * 20


def test_dictionaries_of_extension_values():
    storage = pa.array([UUID.bytes, bytes(16)], pa.binary(16))
    values = pa.ExtensionArray.from_storage(pa.uuid(), storage)
    array = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1]), values)
    assert hashing.hash_array(array).tolist() == hashes_of([bytes(16), UUID.bytes, bytes(16)])
    assert set(hashing.hash_values(array)) == set(hashes_of([bytes(16), UUID.bytes]))


# --- probes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize("column_type", [pa.float16(), pa.float32(), pa.float64()], ids=str)
def test_a_zero_is_probed_in_both_signs(zero, column_type):
    stored = hashing.hash_array(pa.array(np.array([0.0, -0.0, 1.5], column_type.to_pandas_dtype())))
    assert set(hashing.hash_values(pa.array([1.5, zero, None], column_type))) == set(stored.tolist())


@pytest.mark.parametrize("values", [pa.array(range(3000)), pa.array(map(str, range(3000))), pa.array([-0.0] * 3000)])
def test_many_values_go_through_the_kernels_to_the_same_hashes(values):
    many = hashing.hash_values(values)
    few = [h for start in range(0, 3000, 1000) for h in hashing.hash_values(values[start : start + 1000])]
    assert set(np.asarray(many).tolist()) == set(few)


# --- columns ----------------------------------------------------------------------------------------------------------

LEAVES = pa.struct([("d", pa.string()), pa.field("e", pa.string(), nullable=False)])
ROWS = [{"b": 1, "c": {"d": "x", "e": "u"}}, None, {"b": None, "c": None}, {"b": 4, "c": {"d": None, "e": "v"}}]
NESTED = pa.table(
    {
        "a": pa.array(ROWS, pa.struct([("b", pa.int8()), pa.field("c", LEAVES)])),
        "a.b": [10, 20, 30, 40],
        "plain": [1, 2, 3, 4],
    }
)


def test_a_leaf_is_null_where_any_parent_is():
    assert hashing.column_array(NESTED, "a.c.d").to_pylist() == ["x", None, None, None]
    assert hashing.column_array(NESTED, "a.c.e").to_pylist() == ["u", None, None, "v"]
    batch = NESTED.to_batches()[0].slice(1)
    assert hashing.column_array(batch, "a.c.e").to_pylist() == [None, None, "v"]
    assert hashing.hash_array(hashing.column_array(batch, "a.c.e")).tolist() == hashes_of([b"v"])


def test_a_column_literally_named_like_a_path_wins():
    assert hashing.column_array(NESTED, "a.b").to_pylist() == [10, 20, 30, 40]
    assert hashing.resolve_column(NESTED.schema, "a.b").type == pa.int64()
    without = NESTED.drop_columns(["a.b"])
    assert hashing.column_array(without, "a.b").to_pylist() == [1, None, None, 4]


def test_names_with_dots_inside_a_path_resolve():
    table = pa.table({"a.b": [{"c.d": 1}], "a": [{"b": 2}]})
    assert hashing.column_array(table, "a.b.c.d").to_pylist() == [1]


@pytest.mark.parametrize(
    "leaf",
    [
        *(pa.array(["x", "y", "z"]).dictionary_encode(), pa.RunEndEncodedArray.from_arrays([1, 2, 3], ["x", "y", "z"])),
        *(pa.array(["x", "y", "z"], pa.string_view()), pa.array([UUID.bytes] * 3, pa.uuid())),
        pa.array([True, False, True]),
    ],
    ids=lambda leaf: str(leaf.type),
)
def test_leaves_of_every_encoding_take_their_parents_nulls(leaf):
    struct_array = pa.StructArray.from_arrays([leaf], ["b"], mask=pa.array([False, True, False]))
    column = hashing.column_array(pa.RecordBatch.from_arrays([struct_array], ["a"]), "a.b")
    expected = hashing.hash_array(leaf).tolist()
    assert hashing.hash_array(column).tolist() == [expected[0], expected[2]]


def test_the_field_of_a_leaf_has_its_path_and_its_parents_nullability():
    field = hashing.resolve_column(NESTED.schema, "a.c.e")
    assert (field.name, field.type, field.nullable) == ("a.c.e", pa.string(), True)
    strict = pa.schema([pa.field("a", pa.struct([pa.field("b", pa.int8(), nullable=False)]), nullable=False)])
    assert not hashing.resolve_column(strict, "a.b").nullable


def test_leaf_paths_are_in_order_of_the_schema():
    assert hashing.leaf_paths(NESTED.schema) == ["a.b", "a.c.d", "a.c.e", "a.b", "plain"]


@pytest.mark.parametrize(("name", "near"), [("a.c.f", "a.c.d"), ("plane", "plain"), ("a.c.d.e", "a.c.d")])
def test_an_unknown_column_is_refused_with_the_nearest_names(name, near):
    for find, of in ((hashing.resolve_column, NESTED.schema), (hashing.column_array, NESTED)):
        with pytest.raises(ColumnNotFoundError, match=rf"did you mean .*\b{near}\b"):
            find(of, name)


def test_an_ambiguous_name_is_refused():
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"])
    with pytest.raises(InvalidArgumentError, match="2 columns named 'x'"):
        hashing.column_array(table, "x")


# --- properties -------------------------------------------------------------------------------------------------------


SLICED = {
    **dict.fromkeys((pa.binary(), pa.large_binary(), pa.binary_view()), (bytes, bytes)),
    pa.bool_(): (bool, lambda text: little(bool(text), 1)),
    pa.int64(): (len, lambda text: little(len(text), 8)),
}
"""The value that a type has for some bytes, and its hash input."""


@given(st.lists(st.none() | st.binary(max_size=80)), st.data())
def test_any_slice_of_any_values_hashes_value_by_value(texts, data):
    start = data.draw(st.integers(0, len(texts)))
    stop = data.draw(st.integers(start, len(texts)))
    for column_type, (value_of, input_of) in SLICED.items():
        array = pa.array([None if text is None else value_of(text) for text in texts], column_type)[start:stop]
        wanted = hashes_of([input_of(text) for text in texts[start:stop] if text is not None])
        assert hashing.hash_array(array).tolist() == wanted
        assert hashing.hash_array(array.dictionary_encode()).tolist() == wanted
        assert set(hashing.hash_values(array)) == set(wanted)


def test_a_column_is_found_with_as_many_steps_whatever_the_number_of_columns():
    """A build resolves each indexed column: a walk over all of 3000 for each would be 9 million steps."""

    def steps(num_columns):
        leaf = pa.struct([("leaf", pa.int8())])
        schema = pa.schema([pa.field(f"c{i}", leaf if i % 2 else pa.int64()) for i in range(num_columns)])
        counted = []
        sys.setprofile(lambda _frame, event, _argument: counted.append(event))
        try:
            assert hashing.resolve_column(schema, "c4").type == pa.int64()
            assert hashing.resolve_column(schema, "c5.leaf").type == pa.int8()
        finally:
            sys.setprofile(None)
        return len(counted)

    assert steps(3000) == steps(6)
