"""What zonebloom exports equals what Lance writes, byte for byte.

Oracle: pylance 14.0.2, `create_scalar_index(IndexConfig("bloomfilter"))`, read back with `LanceFileReader`.
"""

from __future__ import annotations

import math
import struct

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from lance.file import LanceFileReader
from lance.indices import IndexConfig

import zonebloom as zb

FIVE = ["fragment_id", "zone_start", "zone_length", "has_null", "bloom_filter_data"]
FRAGMENT_ROWS = [1000, 1, 257, 640]


def _integers(dtype: str, count: int) -> np.ndarray:
    bounds = np.iinfo(dtype)
    values = np.random.default_rng(1).integers(bounds.min, bounds.max, count, dtype=dtype, endpoint=True)
    values[:2] = bounds.min, bounds.max
    return values


def _floats(dtype: str, count: int) -> np.ndarray:
    values = np.random.default_rng(2).normal(size=count).astype(dtype)
    values[:6] = 0.0, -0.0, math.inf, -math.inf, math.nan, -math.nan
    if dtype == "float64":
        values[6] = struct.unpack("<d", struct.pack("<Q", 0x7FF8_0000_0000_0001))[0]
    return values


def _texts(count: int) -> list[str]:
    rng = np.random.default_rng(3)
    return ["", "é", "\x00", *("x" * int(n) + str(n) for n in rng.integers(0, 200, count - 3))]


COUNT = sum(FRAGMENT_ROWS)
WITH_NULLS = (np.random.default_rng(4).random(COUNT) < 0.1) & (np.arange(COUNT) > COUNT // 2)
INT32 = _integers("int32", COUNT)
INT64 = _integers("int64", COUNT)
BITS = (8, 16, 32, 64)


def _of_day(kind: pa.DataType, ticks: int) -> pa.Array:
    seconds = np.abs(INT32.astype(np.int64)) % 86_400
    return pa.array((seconds * ticks).astype(f"int{kind.bit_width}")).cast(kind)


COLUMNS = {
    **{name: pa.array(_integers(name, COUNT)) for name in (f"{sign}int{bits}" for sign in ("", "u") for bits in BITS)},
    **{name: pa.array(_floats(name, COUNT)) for name in ("float32", "float64")},
    **{name: pa.array(_texts(COUNT), name) for name in ("utf8", "large_utf8", "binary", "large_binary")},
    "date32": pa.array(INT32 % 100_000, pa.int32()).cast(pa.date32()),
    "date64": pa.array((INT64 % 100_000) * 86_400_000, pa.int64()).cast(pa.date64()),
    **{f"time32_{unit}": _of_day(pa.time32(unit), by) for unit, by in (("s", 1), ("ms", 1000))},
    **{f"time64_{unit}": _of_day(pa.time64(unit), by) for unit, by in (("us", 10**6), ("ns", 10**9))},
    **{f"timestamp_{unit}": pa.array(INT64 % 10**12).cast(pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")},
    "timestamp_us_utc": pa.array(INT64 % 10**12).cast(pa.timestamp("us", "UTC")),
    "nothing": pa.nulls(COUNT, pa.int64()),
    "timestamp_ms_berlin": pa.array(INT64 % 10**12).cast(pa.timestamp("ms", "Europe/Berlin")),
}

LOST_BY_PARQUET = {"date64", "time32_s", "timestamp_s"}
"""Types that a Parquet file gives back as another type (date32, time32[ms], timestamp[ms])."""


def _fragments(values: pa.Array) -> list[pa.Table]:
    starts = np.cumsum([0, *FRAGMENT_ROWS])
    return [pa.table({"c": values.slice(start, rows)}) for start, rows in zip(starts, FRAGMENT_ROWS, strict=False)]


def _lance_index(folder, tables: list[pa.Table], *, rows_per_zone: int, fpp: float) -> pa.Table:
    path = str(folder / "lance")
    for number, table in enumerate(tables):
        lance.write_dataset(table, path, mode="append" if number else "create")
    dataset = lance.dataset(path)
    parameters = {"number_of_items": rows_per_zone, "probability": fpp}
    dataset.create_scalar_index("c", IndexConfig(index_type="bloomfilter", parameters=parameters))
    (file,) = (folder / "lance" / "_indices").glob("*/bloomfilter.lance")
    return LanceFileReader(str(file)).read_all().to_table()


def _our_index(folder, tables: list[pa.Table], **parameters) -> pa.Table:
    (folder / "lake").mkdir()
    for number, table in enumerate(tables):
        pq.write_table(table, folder / "lake" / f"part-{number}.parquet", row_group_size=300)
    return zb.build_index(folder / "lake", "c", **parameters).zone_table("c").to_arrow()


def _our_zones(_, tables: list[pa.Table], **parameters) -> pa.Table:
    builder = zb.ZoneBuilder(tables[0]["c"].type, column="c", **parameters)
    for number, table in enumerate(tables):
        builder.add(number, table["c"])
    return builder.finish().to_arrow()


def _assert_equal(ours: pa.Table, theirs: pa.Table) -> None:
    assert ours.column_names == FIVE
    assert ours.schema.equals(theirs.schema)
    for name in FIVE:
        assert ours[name].to_pylist() == theirs[name].to_pylist(), name
    for key in (b"bloomfilter_item", b"bloomfilter_probability"):
        assert ours.schema.metadata[key] == theirs.schema.metadata[key]


@pytest.mark.parametrize("name", COLUMNS)
def test_five_columns_and_metadata_equal_lance(tmp_path, name):
    values = COLUMNS[name]
    tables = _fragments(pc.if_else(pa.array(WITH_NULLS), pa.scalar(None, values.type), values))
    theirs = _lance_index(tmp_path, tables, rows_per_zone=256, fpp=0.01)
    assert set(theirs["has_null"].to_pylist()) == ({True} if name == "nothing" else {False, True})
    make = _our_zones if name in LOST_BY_PARQUET else _our_index
    ours = make(tmp_path, tables, rows_per_zone=256, fpp=0.01)
    assert theirs.num_rows == 4 + 1 + 2 + 3
    _assert_equal(ours, theirs)


@pytest.mark.parametrize(
    ("rows_per_zone", "fpp"),
    [(8192, 0.00057), (1, 0.5), (7, 0.1), (64, 0.00001), (1000, 0.0000001), (640, 0.25), (257, 0.99)],
)
def test_parameters_size_and_print_as_lance_does(tmp_path, rows_per_zone, fpp):
    tables = _fragments(COLUMNS["int64"])
    theirs = _lance_index(tmp_path, tables, rows_per_zone=rows_per_zone, fpp=fpp)
    ours = _our_index(tmp_path, tables, rows_per_zone=rows_per_zone, fpp=fpp)
    _assert_equal(ours, theirs)


def test_a_table_from_lance_is_searched_without_its_type(tmp_path):
    """Lance's file does not name the column's type: a literal is probed in each form that one of Lance's types has."""
    for name in ("int8", "uint16", "int32", "int64", "float32", "float64", "utf8", "date32", "timestamp_us"):
        folder = tmp_path / name
        folder.mkdir()
        values = COLUMNS[name]
        zones = zb.ZoneTable.from_arrow(_lance_index(folder, _fragments(values), rows_per_zone=256, fpp=0.0001))
        probe = values[FRAGMENT_ROWS[0]].as_py()
        kept = zones.search(zb.Equals("c", probe))
        assert kept.row_ranges.fragment(1).num_rows == 1
        if name in ("int64", "utf8"):
            assert kept.num_zones_kept < kept.num_zones


def test_a_numeral_finds_its_nearest_floats_where_the_type_is_unknown(tmp_path):
    """DataFusion compares float32 with the nearest float32 of 0.1, and doubles with the nearest double of 2^53 + 1."""
    for name, stored, texts in (
        ("float32", 0.1, ("c = 0.1", "c IN (0.1, 0.2)")),
        ("float64", 2.0**53, ("c = 9007199254740993",)),
    ):
        folder = tmp_path / name
        folder.mkdir()
        values = pa.array(np.full(COUNT, stored), name.replace("float64", "double").replace("float32", "float"))
        zones = zb.ZoneTable.from_arrow(_lance_index(folder, _fragments(values), rows_per_zone=256, fpp=0.0001))
        for text in texts:
            kept = zones.search(text)
            assert kept.num_rows_kept == kept.num_rows > 0, text
        assert zones.search("c = 7").num_zones_kept < len(zones)
