"""The main job for each type that goes beyond Lance's, through Parquet and back."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import zonebloom as zb

ROWS = 50
COLUMNS = {
    "string_view": pa.array([f"s{i}" for i in range(ROWS)], pa.string_view()),
    "binary_view": pa.array([b"%d" % i for i in range(ROWS)], pa.binary_view()),
    "large_string": pa.array([f"l{i}" for i in range(ROWS)], pa.large_string()),
    "float16": pa.array(np.arange(ROWS, dtype=np.float16)),
    "decimal128": pa.array([decimal.Decimal(i) / 4 for i in range(ROWS)], pa.decimal128(10, 2)),
    "decimal256": pa.array([decimal.Decimal(i) / 4 for i in range(ROWS)], pa.decimal256(60, 2)),
    "bool": pa.array([i % 2 == 0 for i in range(ROWS)]),
    "fixed_size_binary": pa.array([b"%04d" % i for i in range(ROWS)], pa.binary(4)),
    "uuid": pa.array([uuid.UUID(int=i).bytes for i in range(ROWS)], pa.uuid()),
    "duration": pa.array([dt.timedelta(seconds=i) for i in range(ROWS)], pa.duration("us")),
    "time": pa.array([dt.time(0, 0, i) for i in range(ROWS)]),
    "dictionary": pa.array([f"d{i % 5}" for i in range(ROWS)]).dictionary_encode(),
    "zoned": pa.array([1_700_000_000_000_000 + i for i in range(ROWS)], pa.timestamp("us", "Europe/Berlin")),
    "struct": pa.array([{"x": {"y": i}, "z": None if i % 2 else "q"} if i % 3 else None for i in range(ROWS)]),
}
LEAVES = [name for name in COLUMNS if name != "struct"] + ["struct.x.y", "struct.z"]
ALWAYS_PRUNES = set(LEAVES) - {"bool", "dictionary", "struct.z"}


@pytest.fixture(scope="module")
def table():
    return pa.table(COLUMNS)


@pytest.fixture(scope="module")
def index(table, tmp_path_factory):
    lake = tmp_path_factory.mktemp("types")
    pq.write_table(table, lake / "x.parquet", row_group_size=20)
    return zb.build_index(lake, LEAVES, rows_per_zone=8)


def _values(table, name):
    values = table[name.split(".")[0]]
    for field in name.split(".")[1:]:
        values = pc.struct_field(values, field)
    return values.to_pylist()


@pytest.mark.parametrize("name", LEAVES)
def test_each_value_and_null_is_found_by_search_scan_and_exists(table, index, name):
    values = _values(table, name)
    for value in {value for value in values[5:12] if value is not None}:
        expected = values.count(value)
        result = index.search(zb.col(name) == value)
        assert not result.reasons
        assert result.num_zones_kept < result.num_zones or name not in ALWAYS_PRUNES
        assert index.to_table(zb.col(name) == value).num_rows == expected
        assert index.to_table(zb.col(name).isin([value]), columns=["time"]).num_rows == expected
        assert index.exists(name, [value], exact=True).to_pylist() == [True]
        located = index.locate(name, [value], exact=True)["row"].to_pylist()
        assert located == [row for row, other in enumerate(values) if other == value]
    assert index.to_table(zb.col(name).is_null()).num_rows == values.count(None)


def test_a_scan_gives_back_the_types_of_the_files(table, index):
    assert index.to_table("time IS NOT NULL").schema.types == table.schema.types
