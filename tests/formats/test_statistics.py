"""Row groups that a scan leaves out because their statistics deny the predicate: never one with a row that matches.

Oracle: the predicate evaluated over all rows in memory.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

import zonebloom as zb
from zonebloom.formats.parquet.file import DataFile
from zonebloom.predicates import parse_predicate
from zonebloom.predicates.row_group_bounds import required
from zonebloom.stores.local_file import LocalFile

DAY = dt.datetime(2020, 1, 1)  # noqa: DTZ001 - a local time is meant
PROVEN = {"tiny": pa.int8(), "small": pa.int32(), "wide": pa.int64(), "day": pa.date32()}
PROVEN |= {unit: pa.timestamp(unit) for unit in ("s", "ms", "us")} | {"ns": pa.timestamp("ns", "UTC")}
TYPES = PROVEN | {"positive": pa.uint32(), "float": pa.float64(), "text": pa.string()}


def value_of(name: str, number: int) -> object:
    """A value of the column's type for a small number, in the same order."""
    kind = TYPES[name]
    if pa.types.is_temporal(kind):
        moment = DAY + dt.timedelta(days=number)
        if pa.types.is_date32(kind):
            return moment.date()
        return moment.replace(tzinfo=dt.UTC if kind.tz else None)
    return f"{number + 50:03}" if name == "text" else number + 50 * (name == "positive")


@pytest.fixture
def groups_read(monkeypatch) -> list[int]:
    """The row groups of which anything is read."""
    seen: list[int] = []
    read = DataFile.read_rows
    monkeypatch.setattr(DataFile, "read_rows", lambda self, *args: seen.append(args[0]) or read(self, *args))
    return seen


@pytest.fixture(scope="module")
def sorted_lake(tmp_path_factory) -> Path:
    """One file of 10 row groups of 10 rows, in which all columns ascend, and `key` is indexed."""
    root = tmp_path_factory.mktemp("sorted")
    columns = {name: pa.array([value_of(name, n) for n in range(-50, 50)], kind) for name, kind in TYPES.items()}
    table = pa.table({"key": [f"{number:x}" for number in range(100)], **columns})
    pq.write_table(table, root / "x.parquet", row_group_size=10)
    zb.build_index(root, "key", rows_per_zone=10)
    return root


@pytest.mark.parametrize("name", TYPES)
def test_a_range_of_a_sorted_column_reads_the_row_groups_that_can_hold_it(sorted_lake, groups_read, name):
    index = zb.open_index(sorted_lake)
    wanted = [value_of(name, number) for number in range(-5, 5)]
    rows = index.to_table(zb.col(name).between(wanted[0], wanted[-1]), columns=[name])
    assert rows[name].to_pylist() == wanted
    assert sorted(set(groups_read)) == ([4, 5] if name in PROVEN else list(range(10)))


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        *(("wide = 7", [5]), ("wide IN (-50, 7, 99)", [0, 5]), ("wide < -40", [0]), ("wide <= -40", [0, 1])),
        *(("wide > 39", [9]), ("wide >= 39", [8, 9]), ("wide > 0 AND small < 10", [5])),
        ("wide > 39 AND text LIKE '09%'", [9]),
        *((text, list(range(10))) for text in ("wide < -40 OR wide > 39", "NOT wide < 40", "wide != 7", "wide > 39.5")),
    ],
)
def test_what_the_parts_of_an_and_need_is_proved(sorted_lake, groups_read, text, groups):
    index = zb.open_index(sorted_lake)
    index.to_table(text, columns=["key"])
    assert sorted(set(groups_read)) == groups


def test_a_pyarrow_expression_is_not_evaluated(sorted_lake, groups_read):
    """pyarrow compares an integer with a double as doubles: 2 ** 53 + 1 is at most 2.0 ** 53."""
    zb.open_index(sorted_lake).to_table(pc.field("wide") > 39)
    assert sorted(set(groups_read)) == list(range(10))


def test_a_file_without_statistics_is_read(tmp_path, groups_read):
    table = pa.table({"key": range(20), "n": [*range(10), *range(10)]})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=10, write_statistics=False)
    index = zb.build_index(tmp_path, "key", rows_per_zone=10)
    assert index.to_table("n > 8").num_rows == 2
    assert sorted(set(groups_read)) == [0, 1]


def test_other_types_than_the_file_has_prove_nothing(sorted_lake):
    """But integers are what they are at any width. Seconds are stored, and read, as milliseconds."""
    with DataFile(LocalFile(sorted_lake / "x.parquet")) as data:
        assert data.integer_range(0, "s", pa.timestamp("s")) is None
        assert data.integer_range(0, "ms", pa.timestamp("us")) is None
        assert data.integer_range(0, "tiny", pa.int64()) == (-50, -41)
        assert data.integer_range(0, "missing", pa.int64()) is None


def test_int96_proves_nothing(tmp_path):
    table = pa.table({"at": pa.array([DAY, DAY], pa.timestamp("ns"))})
    pq.write_table(table, tmp_path / "x.parquet", use_deprecated_int96_timestamps=True)
    with DataFile(LocalFile(tmp_path / "x.parquet")) as data:
        assert data.integer_range(0, "at", pa.timestamp("ns")) is None


# --- random -----------------------------------------------------------------------------------------------------------


@given(least=st.integers(-9, 9), span=st.integers(0, 6), parts=st.lists(st.integers(-9, 9), min_size=1, max_size=4))
def test_a_bound_denies_just_the_ranges_without_its_values(least, span, parts):
    schema = pa.schema([("wide", pa.int64())])
    (bound,) = required(parse_predicate(f"wide IN ({', '.join(map(str, parts))})"), schema, ())
    assert bound.may_hold(least, least + span) == any(least <= part <= least + span for part in parts)
    (bound,) = required(parse_predicate(f"wide < {parts[0]}"), schema, ())
    assert bound.may_hold(least, least + span) == (least < parts[0])
