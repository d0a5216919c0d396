"""A file without some of its rows: the others bit by bit, and written as their writer wrote them.

Writers: pyarrow 26, DuckDB 2.0, Polars 2.1, fastparquet; readers that check: pyarrow, DuckDB, Polars, fastparquet.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal
import io
import random

import duckdb
import fastparquet
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zonebloom as zb
from tests.depth import at_depth, some
from tests.formats.test_footer import write_encrypted
from tests.fuzz.columns import random_columns
from tests.fuzz.writers import by_duckdb, is_readable, write_pyarrow, writers_of
from tests.newer import need
from zonebloom.errors import DataFileError
from zonebloom.formats.parquet import without_rows
from zonebloom.formats.parquet.without_rows import write_without_rows
from zonebloom.ground.arrow import plain_array
from zonebloom.stores.local_file import LocalFile

ROWS, GROUP = 3000, 1000


def rows() -> pa.Table:
    """A column of each kind that a writer may get wrong."""
    many = range(ROWS)
    random = np.random.default_rng(0)
    nans = random.integers(0x7FF8 << 48, 0x7FF9 << 48, ROWS).astype("u8").view("f8")
    structs = [[None if k % 3 == 0 else {"x": k, "y": [f"{k}"] * (k % 3)} for k in range(i % 5)] for i in many]
    return pa.table(
        {
            "key": pa.array([f"u{i % 100}" for i in many]),
            "day.hour": pa.array([dt.date(1, 1, 1) + dt.timedelta(1000 * i) for i in many]).cast(pa.timestamp("us")),
            "nan": pa.array(np.where(random.random(ROWS) < 0.5, nans, random.normal(size=ROWS)), from_pandas=False),
            "half": pa.array(np.linspace(-5, 5, ROWS).astype("f2")),
            "wide": pa.array([decimal.Decimal(i - 1500) / 100 for i in many], pa.decimal128(30, 2)),
            "wider": pa.array([decimal.Decimal(i - 1500) for i in many], pa.decimal256(60, 0)),
            "narrow": pa.array([decimal.Decimal(i - 1500) for i in many], pa.decimal128(5, 0)),
            "unsigned": pa.array(np.arange(ROWS, dtype="u4") * 1_400_000),
            "label": pa.array(["a", "b", None] * (ROWS // 3)).dictionary_encode(),
            "structs": pa.array([None if i % 7 == 0 else items for i, items in enumerate(structs)]),
            "map": pa.array([[("a", i), ("b", None)] if i % 3 else [] for i in many], pa.map_(pa.string(), pa.int32())),
            "flag": pa.array([i % 2 == 0 for i in many]),
            "blob": pa.array([b"x" * (i % 5) for i in many], pa.large_binary()),
            "nothing": pa.nulls(ROWS),
            "id": pa.array([i.to_bytes(16, "big") for i in many], pa.uuid()),
        },
        metadata={"origin": "test"},
    )


ERASED = np.array([row for row in range(ROWS) if (row % 100 == 7 and row < GROUP) or row >= 2 * GROUP])
"""Some rows of the first row group, none of the second, all of the third."""


def without(path, erased=ERASED):
    """The copy without `erased` rows."""
    copy = path.with_suffix(".copy.parquet")
    with copy.open("w+b") as file, contextlib.closing(LocalFile(path)) as source:
        left = write_without_rows(source, erased, file)
    assert left == pq.read_metadata(path).num_rows - len(erased)
    return copy


def assert_same_rows(path, copy, erased=ERASED) -> None:
    before, after = pq.read_table(path), pq.read_table(copy)
    kept = np.ones(before.num_rows, np.bool_)
    kept[erased] = False
    expected = before.filter(pa.array(kept))
    assert after.schema.equals(expected.schema, check_metadata=True)
    for name in expected.column_names:
        values, other = (plain_array(values.combine_chunks()) for values in (expected[name], after[name]))
        if pa.types.is_floating(values.type):  # a NaN equals none, but by its bits
            bits = {16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}[values.type.bit_width]
            values, other = values.view(bits), other.view(bits)
        assert other.equals(values) or repr(other.to_pylist()) == repr(values.to_pylist()), name  # NaN in a struct


def shape(chunk) -> tuple:
    """What of a column chunk does not depend on its rows; floats with a NaN lose their bounds."""
    names = ["physical_type", "path_in_schema", "compression", "encodings", "has_dictionary_page", "has_offset_index"]
    names += ["is_stats_set", "has_column_index"] * (chunk.path_in_schema != "nan")
    return tuple(getattr(chunk, name) for name in names)


def assert_same_shape(path, copy) -> None:
    before, after = pq.read_metadata(path), pq.read_metadata(copy)
    for name in ("created_by", "format_version", "metadata", "schema"):
        assert getattr(after, name) == getattr(before, name), name
    assert after.num_row_groups == before.num_row_groups - 1
    for new, old in zip(map(after.row_group, (0, 1)), map(before.row_group, (0, 1)), strict=True):
        for leaf in range(after.num_columns):
            assert shape(new.column(leaf)) == shape(old.column(leaf))
        assert new.sorting_columns == old.sorting_columns


def written_by_pyarrow(path, **options) -> None:
    pq.write_table(rows(), path, row_group_size=GROUP, **options)


ODD = {
    "use_deprecated_int96_timestamps": True,
    "store_decimal_as_integer": True,
    "use_compliant_nested_type": False,
    "write_page_checksum": True,
    "sorting_columns": [pq.SortingColumn(3)],
}


@pytest.mark.parametrize("seed", range(8))
def test_rows_of_pyarrow_stay_bit_by_bit_and_are_written_as_before(tmp_path, seed):
    path, chance = tmp_path / "a.parquet", random.Random(seed)
    odd = {name: value for name, value in ODD.items() if chance.random() < 0.4}
    write_pyarrow(rows(), path, chance, row_group_size=GROUP, **odd)
    copy = without(path)
    assert_same_rows(path, copy)
    assert_same_shape(path, copy)
    pq.ParquetFile(copy, page_checksum_verification=True).read()


def written_by_duckdb(path) -> None:
    names = ["key", "day.hour", "nan", "wide", "unsigned", "structs", "flag", "blob", "id"]
    by_duckdb(rows().select(names), path, row_group_size=GROUP)


def written_by_polars(path) -> None:
    names = ["key", "day.hour", "nan", "wide", "unsigned", "label", "structs", "flag", "blob", "nothing"]
    pl.from_arrow(rows().select(names)).write_parquet(path, row_group_size=GROUP, data_page_size=2000)


def written_by_fastparquet(path) -> None:
    frame = rows().select(["key", "nan", "unsigned", "flag", "blob"]).to_pandas()
    fastparquet.write(str(path), frame, row_group_offsets=GROUP, times="int96", object_encoding="infer")


WRITERS = [written_by_duckdb, written_by_polars, written_by_fastparquet]


@pytest.mark.parametrize("write", WRITERS)
def test_rows_of_other_writers_stay_and_every_reader_agrees(tmp_path, write):
    path = tmp_path / "a.parquet"
    write(path)
    erased = np.array([row for row in range(GROUP) if row % 100 == 7])
    copy = without(path, erased)
    assert_same_rows(path, copy, erased)
    before, after = (pq.read_metadata(file).row_group(0) for file in (path, copy))
    for column in range(before.num_columns):
        old, new = shape(before.column(column)), shape(after.column(column))
        assert new[:3] + new[4:] == old[:3] + old[4:]
        assert set(new[3]) - {"RLE"} == set(old[3]) - {"RLE"}  # the encoding of levels, which some do not list
    assert duckdb.sql(f"select count(*) from (from '{copy}')").fetchall() == [(ROWS - len(erased),)]
    assert pl.read_parquet(copy).height == ROWS - len(erased)
    if write is written_by_fastparquet:
        with copy.open("rb") as file:
            assert len(fastparquet.ParquetFile(file).to_pandas()) == ROWS - len(erased)


@pytest.mark.parametrize("write", [written_by_duckdb, written_by_pyarrow])
def test_bloom_filters_of_a_file_have_the_rows_that_stay_and_no_others(tmp_path, write):
    path = tmp_path / "a.parquet"
    blooms = {"bloom_filter_options": {"key": {"ndv": 1000, "fpp": 0.001}, "wide": True}, "use_dictionary": False}
    if write is written_by_pyarrow:
        need("parquet_blooms")
    write(path, **(blooms if write is written_by_pyarrow else {}))
    copy = without(path, np.arange(7, ROWS, 100))
    old, new = (zb.parquet_blooms(file, value="u7", column="key").to_pylist() for file in (path, copy))
    assert [own["num_blocks"] for own in new] == [own["num_blocks"] for own in old] != []
    assert not any(own["excluded"] for own in old)
    assert all(own["excluded"] for own in new)
    for key in ("u6", "u99"):
        assert not any(own["excluded"] for own in zb.parquet_blooms(copy, value=key, column="key").to_pylist())
    if write is written_by_pyarrow:
        wide = zb.parquet_blooms(copy, value=decimal.Decimal("-14.94"), column="wide").to_pylist()
        assert [own["excluded"] for own in wide] == [False, True, True]


def test_statistics_know_only_the_rows_that_stay(tmp_path):
    path = tmp_path / "a.parquet"
    written_by_pyarrow(path)
    copy = without(path, np.arange(500))
    group = pq.read_metadata(copy).row_group(0)
    columns = {group.column(number).path_in_schema: group.column(number) for number in range(group.num_columns)}
    expected = rows().slice(500, 500)
    for name in ("wide", "narrow", "unsigned"):
        values = expected[name].to_pylist()
        assert (columns[name].statistics.min, columns[name].statistics.max) == (min(values), max(values))
    assert duckdb.sql(f"select count(*) from '{copy}' where unsigned >= {999 * 1_400_000}").fetchall() == [(2001,)]


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
@pytest.mark.parametrize("is_nested", [False, True])
def test_filters_of_duckdb_find_each_nan_that_stays(tmp_path, kind, is_nested):
    """DuckDB trusts bounds in its own files for NaN too, and writes none where there is one."""
    path = tmp_path / "a.parquet"
    floats = pa.array([1.0, float("nan"), 2.0, None, 7.0], kind)
    source = pa.table({"f": pa.array([{"x": each} for each in floats]) if is_nested else floats})  # noqa: F841
    duckdb.sql(f"copy (from source) to '{path}' (format parquet)")
    copy, name = without(path, np.array([4])), "f.x" if is_nested else "f"
    for condition in ("> 2", "= 'nan'", "<> 2", ">= 1"):
        query = f"select count(*) from '{{}}' where {name} {condition} and {name} <> 7"
        assert duckdb.sql(query.format(copy)).fetchall() == duckdb.sql(query.format(path)).fetchall()


@pytest.mark.parametrize("write", some(WRITERS, 1))
def test_a_file_without_rows_keeps_its_schema_for_every_reader(tmp_path, write):
    path = tmp_path / "a.parquet"
    write(path)
    copy = without(path, np.arange(ROWS))
    assert pq.read_table(copy).schema.equals(pq.read_table(path).schema, check_metadata=True)
    assert duckdb.sql(f"select count(*) from (from '{copy}')").fetchall() == [(0,)]
    assert pl.read_parquet(copy).schema == pl.read_parquet(path).schema
    again = without(copy, np.zeros(0, np.int64))
    assert again.read_bytes() == copy.read_bytes()


def test_row_groups_that_lose_no_row_are_the_same_bytes(tmp_path):
    path = tmp_path / "a.parquet"
    written_by_pyarrow(path)
    copy = without(path, np.array([0]))

    def pages(file, leaf: int) -> bytes:
        chunk = pq.read_metadata(file).row_group(2).column(leaf)
        start = chunk.dictionary_page_offset or chunk.data_page_offset
        return file.read_bytes()[start : start + chunk.total_compressed_size]

    for leaf in range(pq.read_metadata(path).num_columns):
        assert pages(copy, leaf) == pages(path, leaf)


class _ShortFile(LocalFile):
    """A file in whose first half a byte is left out of each read."""

    def read_ranges(self, ranges):
        middle, parts = self.fingerprint.size // 2, super().read_ranges(ranges)
        return [
            data[:-1] if offset + length < middle else data
            for (offset, length), data in zip(ranges, parts, strict=True)
        ]


def test_bytes_that_a_store_leaves_out_are_no_copy(tmp_path, monkeypatch):
    """Large chunks are copied in parts. A part that is short is an error before the old file is replaced."""
    path = tmp_path / "a.parquet"
    written_by_pyarrow(path)
    whole = without(path, np.array([0])).read_bytes()
    monkeypatch.setattr(without_rows, "_PART_BYTES", 1000)
    assert without(path, np.array([0])).read_bytes() == whole
    monkeypatch.setattr(without_rows, "_PART_BYTES", 1 << 26)
    with pytest.raises(DataFileError, match="fewer bytes than its footer names"):
        write_without_rows(_ShortFile(path), np.array([0]), io.BytesIO())


def test_required_fields_below_nulls_stay(tmp_path):
    """A null struct has no list, though its list is required; readers give the list a null there."""
    inner = pa.field("list", pa.list_(pa.list_(pa.bool_())), nullable=False)
    kind = pa.struct([pa.field("text", pa.string(), nullable=False), inner])
    lists = [[[True], None, []], None, [], None, [[None]]]
    values = [None if items is None else {"text": "a", "list": items} for items in lists]
    table = pa.table({"key": range(5), "one": pa.array(values, kind), "many": pa.array([values] * 5, pa.list_(kind))})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=3)
    copy = without(tmp_path / "a.parquet", np.array([2]))
    assert pq.read_table(copy).to_pylist() == [row for row in table.to_pylist() if row["key"] != 2]
    assert pl.read_parquet(copy)["one"].to_list() == [values[number] for number in (0, 1, 3, 4)]


def test_ordered_categories_keep_their_order_and_lose_those_without_rows(tmp_path):
    order = ["low", "mid", "high", "top"]
    texts = ["top", "high", "low", "mid", None, "high", "mid", "low", "top"]
    values = pa.array([None if text is None else order.index(text) for text in texts], pa.int8())
    column = pa.DictionaryArray.from_arrays(values, pa.array(order), ordered=True)
    pq.write_table(pa.table({"level": column}), tmp_path / "a.parquet", row_group_size=3)
    copy = without(tmp_path / "a.parquet", np.array([0, 2, 5, 8]))
    levels = pq.read_table(copy)["level"].to_pandas()
    assert levels.dropna().tolist() == ["high", "mid", "mid", "low"]
    assert list(levels.cat.categories) == ["low", "mid", "high"]  # low has a row in the last row group alone
    assert levels.cat.ordered
    with contextlib.closing(pq.ParquetFile(copy, read_dictionary=["level"])) as file:
        dictionaries = [file.read_row_group(group)["level"].chunk(0).dictionary.to_pylist() for group in range(3)]
    assert dictionaries == [["low", "mid", "high"]] * 3  # without the value that was erased


def test_what_arrow_reads_by_the_name_of_the_writer_is_read_back_before_it_counts(tmp_path, monkeypatch):
    """Arrow takes each page of version 2 of parquet-cpp before 2.0 for compressed; pyarrow 26 leaves small ones."""
    path, erased = tmp_path / "a.parquet", np.arange(99)
    pq.write_table(pa.table({"k": [1.5] * 100}), path, data_page_version="2.0", use_dictionary=False)
    data, own = path.read_bytes(), pq.read_metadata(path).created_by.encode()
    old = b"parquet-cpp version 1.5.1".ljust(len(own))
    path.write_bytes(data.replace(own, old))
    assert pq.read_table(without(path, erased)).to_pydict() == {"k": [1.5]}
    settings = without_rows._Copy._settings
    version = {"data_page_version": "2.0"}
    monkeypatch.setattr(without_rows._Copy, "_settings", lambda *args, **named: settings(*args, **named) | version)
    with pytest.raises(DataFileError, match="without some of its rows"):
        without(path, erased)


def test_ordered_categories_in_a_struct_or_list_are_refused(tmp_path):
    level = pa.DictionaryArray.from_arrays(pa.array([1, 0], pa.int8()), pa.array(["low", "high"]), ordered=True)
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pa.StructArray.from_arrays([level], ["level"]))
    pq.write_table(pa.table({"id": [1, 2], "levels": lists}), tmp_path / "a.parquet")
    with pytest.raises(DataFileError, match="ordered categories in levels, whose order a copy would lose"):
        without(tmp_path / "a.parquet", np.array([0]))


def test_an_encrypted_file_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    write_encrypted(path, rows().select(["key", "flag"]), ["flag"])
    with pytest.raises(DataFileError, match="encrypted"):
        without(path, np.array([0]))


@pytest.mark.parametrize("seed", range(at_depth(200, 40)))
def test_rows_of_any_writer_with_any_options_stay(tmp_path, seed):
    """Random columns, values and options of each writer of the fuzzers; small pages and row groups."""
    chance = random.Random(seed)
    columns, num_rows = random_columns(chance), chance.choice((1, 5, 40))
    arrays = [pa.array([column.value(chance, 5) for _ in range(num_rows)], column.type) for column in columns]
    table = pa.table(arrays, names=[column.name for column in columns])
    path = tmp_path / "a.parquet"
    chance.choice(writers_of(columns, num_rows))(table, path, chance)
    erased = np.flatnonzero([chance.random() < chance.choice((0, 0.1, 0.5, 1)) for _ in range(num_rows)])
    if not is_readable(path, num_rows):
        return
    assert_same_rows(path, without(path, erased), erased)


def test_memory_is_of_a_column_chunk_and_not_of_the_file(tmp_path):
    path, num_rows = tmp_path / "a.parquet", 50_000
    values = np.random.default_rng(0).random(20 * num_rows)
    pq.write_table(pa.table({"x": values}), path, row_group_size=num_rows, use_dictionary=False)
    before, allocated = pa.total_allocated_bytes(), []

    class Counting(io.BytesIO):
        def write(self, data) -> int:
            allocated.append(pa.total_allocated_bytes() - before)
            return super().write(data)

    with contextlib.closing(LocalFile(path)) as source:
        write_without_rows(source, np.arange(0, len(values), num_rows // 2), Counting())
    assert path.stat().st_size > 20 * num_rows * 8
    assert max(allocated) < 8 * num_rows * 8
