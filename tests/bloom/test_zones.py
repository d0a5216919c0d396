"""Zones: what a builder makes of rows, and what a zone table must be.

Oracle: `Sbbf` on the values of each zone, and plain counting.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

import zonebloom as zb
from tests.depth import at_depth
from zonebloom.bloom import hashing
from zonebloom.bloom.sizing import num_blocks_for
from zonebloom.bloom.zones import ZONE_FIELDS
from zonebloom.bloom.zones.chunk import FilterChunk
from zonebloom.errors import InvalidArgumentError, InvalidZoneTableError

SIZINGS = ("power_of_two", "exact", "adaptive", "parquet")
ROWS = 1000
RANDOM = np.random.default_rng(11)
NULLS = RANDOM.random(ROWS) < 0.2
TEXTS = [f"text {n}" * int(n % 5) for n in RANDOM.integers(0, 300, ROWS)]
COLUMNS = {
    "int64": pa.array(RANDOM.integers(0, 400, ROWS), pa.int64(), mask=NULLS),
    "int8": pa.array(RANDOM.integers(-128, 128, ROWS), pa.int8(), mask=NULLS),
    "bool": pa.array(RANDOM.random(ROWS) < 0.5, pa.bool_(), mask=NULLS),
    "string": pa.array(TEXTS, pa.string(), mask=NULLS),
    "large_binary": pa.array([text.encode() for text in TEXTS], pa.large_binary(), mask=NULLS),
    "string_view": pa.array(TEXTS, mask=NULLS).cast(pa.string_view()),
    "dictionary": pa.array(TEXTS, pa.string(), mask=NULLS).dictionary_encode(),
    "fixed_16": pa.array([bytes([n % 256]) * 16 for n in range(ROWS)], pa.binary(16), mask=NULLS),
    "decimal": pa.array(RANDOM.integers(0, 99, ROWS)).cast(pa.decimal128(20, 0)),
    "no nulls": pa.array(RANDOM.integers(0, 400, ROWS), pa.int32()),
}


def build(values: pa.Array, cuts: list[int] | None = None, **parameters) -> pa.Table:
    builder = zb.ZoneBuilder(values.type, **parameters)
    bounds = [0, *sorted(cuts or []), len(values)]
    for start, stop in itertools.pairwise(bounds):
        builder.add(0, values.slice(start, stop - start))
    return builder.finish().to_arrow()


@pytest.mark.parametrize("sizing", SIZINGS)
@pytest.mark.parametrize("name", COLUMNS)
@settings(max_examples=at_depth(12), deadline=None)
@given(cuts=st.lists(st.integers(0, ROWS), max_size=8), rows_per_zone=st.sampled_from([1, 7, 64, 100, 999, 1000, 5000]))
def test_zones_do_not_depend_on_batch_boundaries(name, sizing, cuts, rows_per_zone):
    values = COLUMNS[name]
    whole = build(values, rows_per_zone=rows_per_zone, sizing=sizing)
    assert whole.num_rows == math.ceil(ROWS / rows_per_zone)
    assert build(values, cuts, rows_per_zone=rows_per_zone, sizing=sizing).equals(whole, check_metadata=True)


@pytest.mark.parametrize("sizing", SIZINGS)
@pytest.mark.parametrize("name", COLUMNS)
def test_each_zone_is_the_filter_of_its_own_values(name, sizing):
    values = COLUMNS[name]
    for number, row in enumerate(build(values, rows_per_zone=64, fpp=0.01, sizing=sizing).to_pylist()):
        mine = values.slice(64 * number, 64)
        assert (row["fragment_id"], row["zone_start"], row["zone_length"]) == (0, 64 * number, len(mine))
        assert row["has_null"] == bool(mine.null_count)
        hashes = hashing.hash_array(mine)
        ndv = len(np.unique(hashes)) if sizing == "adaptive" else 64
        fresh = zb.Sbbf.with_blocks(num_blocks_for(ndv, 0.01, sizing))
        fresh.insert_hashes(hashes)
        assert row["bloom_filter_data"] == fresh.to_bytes()


def test_zones_never_cross_fragments():
    builder = zb.ZoneBuilder(pa.int64(), rows_per_zone=4)
    for fragment_id, rows in ((3, 6), (4, 0), (5, 1), (9, 8)):
        builder.add(fragment_id, pa.array(range(rows), pa.int64()))
    zones = builder.finish().to_arrow().select(["fragment_id", "zone_start", "zone_length"]).to_pylist()
    assert [tuple(zone.values()) for zone in zones] == [(3, 0, 4), (3, 4, 2), (5, 0, 1), (9, 0, 4), (9, 4, 4)]


@pytest.mark.parametrize("sizing", SIZINGS)
def test_all_null_zones_are_zones_with_empty_filters(sizing):
    values = pa.array([None] * 5 + [1] * 3, pa.int64())
    table = build(values, rows_per_zone=4, sizing=sizing)
    assert table["has_null"].to_pylist() == [True, True]
    first, second = table["bloom_filter_data"].to_pylist()
    assert not any(first)
    assert len(first) > 0
    assert any(second)
    zones = zb.ZoneTable.from_arrow(table)
    assert list(zones.search(zb.IsNull("c")).row_ranges) == [(0, 0, 8)]
    assert list(zones.search(zb.Equals("c", 1)).row_ranges) == [(0, 4, 8)]


def test_batches_hold_at_most_1024_zones_whatever_the_size():
    sizes = []
    for fpp in (0.1, 1e-9):
        builder = zb.ZoneBuilder(pa.int64(), rows_per_zone=1, fpp=fpp, sink=lambda batch: sizes.append(batch.num_rows))
        builder.add(0, pa.array(range(2500), pa.int64()))
        builder.close()
    assert sizes == [1024, 1024, 452] * 2


def test_memory_of_a_builder_is_one_batch():
    """A builder with a sink holds no filters but those of the open batch, however many zones pass through it."""
    builder = zb.ZoneBuilder(pa.int64(), rows_per_zone=8192, sink=len)
    values = pa.array(range(8192), pa.int64())
    builder.add(0, values)
    before = pa.total_allocated_bytes()
    held = {batch_memory(builder)}
    for _ in range(2000):
        builder.add(0, values)
    held.add(batch_memory(builder))
    builder.close()
    assert len(held) == 1
    assert held.pop() <= 4 << 20
    assert pa.total_allocated_bytes() - before < 1 << 20


def batch_memory(builder: zb.ZoneBuilder) -> int:
    return builder._filters._filters.nbytes


@pytest.mark.parametrize(
    ("fragment_id", "values", "message"),
    [
        (0, pa.array([1], pa.int32()), "must be int64, got int32"),
        *((i, pa.array([1]), "fragment_id must be") for i in (-1, 2**32)),
    ],
)
def test_rows_of_another_type_and_of_no_fragment_are_refused(fragment_id, values, message):
    with pytest.raises(InvalidArgumentError, match=message):
        zb.ZoneBuilder(pa.int64()).add(fragment_id, values)


# --- zone tables from outside -----------------------------------------------------------------------------------------


def good_table() -> pa.Table:
    builder = zb.ZoneBuilder(pa.int64(), column="c", rows_per_zone=4)
    builder.add(0, pa.array([1, 2, None, 4, 5, 6], pa.int64()))
    builder.add(2, pa.array([7], pa.int64()))
    return builder.finish().to_arrow()


def test_a_zone_table_survives_arrow():
    table = good_table()
    zones = zb.ZoneTable.from_arrow(table)
    assert (zones.column, zones.column_type, zones.rows_per_zone, zones.fpp) == ("c", pa.int64(), 4, 0.00057)
    assert zones.to_arrow().equals(table, check_metadata=True)


def test_rows_may_come_in_any_order_and_chunks_beside_other_columns():
    table = good_table()
    for order in ([2, 1, 0], [1, 0, 2], [0, 2, 1]):
        shuffled = pa.concat_tables([table.slice(number, 1) for number in order]).append_column("extra", [["x"] * 3])
        assert zb.ZoneTable.from_arrow(shuffled).to_arrow().combine_chunks().equals(table.combine_chunks())


@pytest.mark.parametrize("kind", [pa.large_binary(), pa.binary_view()])
def test_wider_binary_is_taken(kind):
    table = good_table()
    wide = table.set_column(4, pa.field("bloom_filter_data", kind), table[4].cast(kind))
    zones = zb.ZoneTable.from_arrow(wide, column_type=pa.int64())
    assert zones.to_arrow()["bloom_filter_data"].to_pylist() == table["bloom_filter_data"].to_pylist()


@pytest.mark.parametrize("number", range(5))
def test_a_column_that_is_missing_or_of_another_type_or_has_a_null_is_refused(number):
    table, field = good_table(), ZONE_FIELDS[number]
    first, _, last = table[number].to_pylist()
    wrong, holed = pa.array(["x" * 32] * 3), pa.array([first, None, last], field.type)
    for changed, message in (
        (table.remove_column(number), f"must have the column {field.name}"),
        (table.set_column(number, field.name, wrong), f"column {field.name} must be {field.type}, got string"),
        (table.set_column(number, field.with_nullable(True), holed), f"{field.name} must not hold nulls, got 1"),
    ):
        with pytest.raises(InvalidZoneTableError, match=message):
            zb.ZoneTable.from_arrow(changed)


@pytest.mark.parametrize(
    ("starts", "lengths"), [([0, 3, 0], [4, 2, 1]), ([0, 0, 0], [4, 4, 1]), ([4, 0, 0], [2, 5, 1])]
)
def test_overlapping_zones_are_refused(starts, lengths):
    table = good_table().set_column(1, ZONE_FIELDS[1], pa.array(starts, pa.uint64()))
    table = table.set_column(2, ZONE_FIELDS[2], pa.array(lengths, pa.uint64()))
    with pytest.raises(InvalidZoneTableError, match="must not overlap"):
        zb.ZoneTable.from_arrow(table)


@pytest.mark.parametrize(
    ("number", "value", "message"),
    [
        (2, 0, "zone_length must be at least 1"),
        *((number, value, r"below 2\*\*32") for number, value in ((2, 2**64 - 1), (1, 2**32), (0, 2**32))),
        *((4, bytes(size), f"positive multiple of 32 bytes, got {size} bytes") for size in (0, 1, 31, 33, 3000)),
    ],
    ids=str,
)
def test_positions_outside_an_address_and_bitsets_that_are_no_blocks_are_refused(number, value, message):
    field, values = ZONE_FIELDS[number], good_table()[number].to_pylist()
    with pytest.raises(InvalidZoneTableError, match=message):
        zb.ZoneTable.from_arrow(good_table().set_column(number, field, pa.array([*values[:2], value], field.type)))


@pytest.mark.parametrize(
    ("items", "probability"),
    [("many", "0.1"), ("0", "0.1"), ("-5", "0.1"), ("8192", "nan"), ("8192", "1.5"), (b"\xff", "0.1")],
)
def test_metadata_that_is_no_parameter_is_refused(items, probability):
    metadata = {"bloomfilter_item": items, "bloomfilter_probability": probability}
    with pytest.raises(InvalidZoneTableError, match="bloomfilter_item"):
        zb.ZoneTable.from_arrow(good_table().replace_schema_metadata(metadata))


@pytest.mark.parametrize("garbage", [b"zz", b"00", b"", b"\xff", b"abc"])
def test_a_type_that_cannot_be_read_is_refused(garbage):
    table = good_table()
    field = table.schema.field(4).with_metadata({b"zonebloom.type": garbage})
    with pytest.raises(InvalidZoneTableError, match=r"zonebloom\.type"):
        zb.ZoneTable.from_arrow(table.cast(table.schema.set(4, field)))


def test_what_is_no_table_is_refused():
    for value in (None, 5, "zones.arrow", good_table().to_pydict()):
        with pytest.raises(InvalidArgumentError, match="must be a pyarrow Table"):
            zb.ZoneTable.from_arrow(value)


def test_unaligned_buffers_are_searched():
    """Bitsets that some other library put at an odd address."""
    table = good_table()
    bitsets = table[4].to_pylist()
    data = pa.py_buffer(b"x" + b"".join(bitsets))
    offsets = pa.array(np.cumsum([0, *map(len, bitsets)]).astype(np.int32)).buffers()[1]
    shifted = pa.Array.from_buffers(pa.binary(), 3, [None, offsets, data.slice(1)])
    zones = zb.ZoneTable.from_arrow(table.set_column(4, table.schema.field(4), shifted))
    many = [*range(1_000_000, 2_000_000), 7]
    assert list(zones.search(zb.Equals("c", 7)).row_ranges) == [(2, 0, 1)]
    assert zones.search(zb.IsIn("c", many)).row_ranges.fragment(2).num_rows == 1
    assert zones.check_zone(2, hashing.hash_array(pa.array([7]))).tolist() == [True]
    assert zones.measured_fpp().shape == (3,)


def test_two_billion_bytes_of_filters_make_a_table():
    """Arrow's `binary` ends at 2 GiB; here 2.1 GiB are one chunk of 1024 zones, referred to 66 times."""
    builder = zb.ZoneBuilder(pa.int64(), rows_per_zone=8192)
    builder.add(0, pa.array(np.arange(1024, dtype=np.int64)).take(pa.array(np.arange(1024 * 8192) // 8192)))
    chunk = builder.finish().to_arrow()
    assert len(chunk[4][0].as_py()) == 32768
    chunks = [
        chunk.set_column(0, ZONE_FIELDS[0], pa.array(np.full(1024, number, np.uint64)))
        for number in reversed(range(66))
    ]
    zones = zb.ZoneTable.from_arrow(pa.concat_tables(chunks))
    assert zones.filter_bytes == 66 * 1024 * 32768 > 2**31
    result = zones.search(zb.Equals("c", 5))
    assert result.num_zones == 66 * 1024
    assert set(result.row_ranges.fragment_ids.tolist()) == set(range(66))
    assert result.num_zones_kept < 200


def test_many_keys_are_looked_up_by_a_kernel_however_few_zones_a_batch_has(monkeypatch):
    column = pa.array(RANDOM.integers(0, 2**60, 1030))
    builder = zb.ZoneBuilder(column.type, rows_per_zone=1, fpp=0.01)
    builder.add(0, column)
    zones = builder.finish()
    keys = hashing.hash_array(pa.concat_arrays([column.slice(77, 1), pa.array(RANDOM.integers(0, 2**60, 99))]))
    filters = [zb.Sbbf.from_bytes(bits.as_py()) for bits in zones.to_arrow()["bloom_filter_data"]]
    expected = [bool(filter_.check_hashes(keys).any()) for filter_ in filters]
    assert len(zones.measured_fpp()) == len(filters)  # which loads the kernels
    used = []
    for plain in (FilterChunk.may_contain, FilterChunk.may_contain_any):

        def noted(chunk, *args, plain=plain):
            used.append((len(chunk), plain.__name__))
            return plain(chunk, *args)

        monkeypatch.setattr(FilterChunk, plain.__name__, noted)
    assert zones.may_contain(keys).tolist() == expected
    assert zones.may_contain(keys[:3])[77]
    of_each = [(1024, "may_contain"), (6, "may_contain")]
    assert used == [(1024, "may_contain_any"), (6, "may_contain_any"), *of_each, *of_each, *of_each]
