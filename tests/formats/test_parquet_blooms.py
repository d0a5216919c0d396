"""Parquet's own bloom filters: read, listed, written, used and adopted.

Oracles: the writers and readers pyarrow 26, DuckDB 2.0 and DataFusion 55; bytes of parquet-java that arrow-rs keeps as
its fixture, and of Spark that parquet2 keeps. The tables are those of Parquet's specification.
"""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

import zonebloom as zb
from tests.conftest import flip
from tests.depth import at_depth
from tests.formats.footers import edited, footer_of, replace_footer
from tests.formats.test_footer import dotted_table, write_encrypted
from tests.formats.test_pages import FLAT_TYPES, VALUES
from tests.fuzz.conditions import as_terms, random_condition, truth_of
from tests.fuzz.writers import by_datafusion, by_duckdb
from tests.newer import need
from zonebloom.cli.bytes_text import text_of
from zonebloom.errors import DataFileError, StorageError
from zonebloom.formats.parquet import thrift

ROWS, GROUP = 4000, 1000
NUMBERS = np.arange(ROWS, dtype=np.int64)
SHUFFLED = NUMBERS * 2654435761 % 2**31
FLOATS = np.where(NUMBERS % GROUP == 7, 0.0, SHUFFLED / 7)

TABLE = pa.table(
    {
        "key": pa.array(SHUFFLED),
        "text": pa.array([f"user {number}" for number in SHUFFLED.tolist()]),
        "tiny": pa.array((NUMBERS // GROUP).astype(np.int8)),
        "short": pa.array((SHUFFLED % 60_000).astype(np.uint16)),
        "word": pa.array(SHUFFLED.astype(np.uint32)),
        "ratio": pa.array(FLOATS),
        "price": pa.array(map(Decimal, (SHUFFLED % 10**7 - 5 * 10**6).tolist()), pa.decimal128(12, 2)),
        "wide": pa.array(SHUFFLED - 2**30).cast(pa.decimal128(25, 3)),
        "cash": pa.array(map(Decimal, (SHUFFLED % 10**6 - 500).tolist()), pa.decimal128(9, 2)),
        "day": pa.array((SHUFFLED % 40_000).astype(np.int32)).cast(pa.date32()),
        "at": pa.array(SHUFFLED * 1000).cast(pa.timestamp("ms")),
        "blob": pa.array([number.to_bytes(12, "big") for number in SHUFFLED.tolist()]),
    }
)


def write_pyarrow(path: Path, table: pa.Table = TABLE, names: Sequence[str] = (), **options) -> None:
    """With filters of these columns, by default of all."""
    need("parquet_blooms")
    blooms = {name: {"ndv": GROUP, "fpp": 0.001} for name in names or table.column_names}
    pq.write_table(table, path, bloom_filter_options=blooms, **{"row_group_size": GROUP, **options})


WRITERS: dict[str, Callable[[Path], None]] = {
    "pyarrow": write_pyarrow,
    "duckdb": lambda path: by_duckdb(
        TABLE, path, row_group_size=2048, dictionary_size_limit=100_000, bloom_filter_false_positive_ratio=0.001
    ),
    "datafusion": lambda path: by_datafusion(TABLE, path, bloom_filter_on_write=True, max_row_group_size=GROUP),
}


def chunks_of(path: Path) -> Iterator[tuple[int, pq.ColumnChunkMetaData]]:
    """Each column chunk, with the number of its row group."""
    metadata = pq.read_metadata(path)
    for group in range(metadata.num_row_groups):
        yield from ((group, metadata.row_group(group).column(leaf)) for leaf in range(metadata.num_columns))


def rows_kept(result: zb.SearchResult) -> list[tuple[int, int]]:
    return [(row_range.start, row_range.stop) for row_range in result.row_ranges]


@pytest.fixture(scope="module", params=WRITERS)
def written(request, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp(request.param) / "a.parquet"
    WRITERS[request.param](path)
    return path


# --- reading ----------------------------------------------------------------------------------------------------------


def test_filters_of_every_writer_hold_every_value_and_few_others_in_the_bits_of_ours(written):
    file, num_filters = pq.ParquetFile(written), 0
    for group in range(file.num_row_groups):
        rows = file.read_row_group(group)
        for name in rows.column_names:
            filter_ = zb.parquet_bloom(written, group, name)
            if filter_ is None:  # DuckDB writes none where there is no dictionary
                continue
            num_filters += 1
            assert filter_.check(rows[name].combine_chunks()).true_count == rows.num_rows
            assert filter_.expected_ndv() == pytest.approx(len(set(rows[name].to_pylist())), rel=0.05, abs=1)
            ours = type(filter_)(np.zeros_like(filter_.blocks), filter_.column_type, filter_.plain_type)
            ours.insert(rows[name])
            assert ours.to_bytes() == filter_.to_bytes(), name
    absent = zb.parquet_bloom(written, 0, "text").check(pa.array([f"none {number}" for number in range(2000)]))
    assert absent.true_count < 0.1 * 2000
    assert num_filters >= 10 * file.num_row_groups


HEADER = bytes.fromhex("15401c1c00001c1c00001c1c000000")
INT64_0_TO_9 = bytes.fromhex("18821808860844060265800a4002264e7201402601c0c2984046002438794000")
TEXT_A0_TO_A9 = bytes.fromhex("c80150144044086d062504439050602008842b21000563410200e02c404e6004")
"""One block each, as parquet-java wrote them for 0 … 9 and for "a0" … "a9"."""


def test_bytes_of_parquet_java_are_read_and_written():
    for bitset, values in ((INT64_0_TO_9, range(10)), (TEXT_A0_TO_A9, [f"a{number}" for number in range(10)])):
        filter_ = zb.Sbbf.from_parquet_bytes(HEADER + bitset)
        assert filter_.check(pa.array(values)).true_count == 10
        fresh = zb.Sbbf.with_blocks(1)
        fresh.insert(pa.array(values))
        assert fresh.to_parquet_bytes() == HEADER + bitset

    for num_blocks in (1, 4, 255, 256, 8191, 1 << 17):  # headers of every length
        filter_ = zb.Sbbf.with_blocks(num_blocks)
        assert zb.Sbbf.from_parquet_bytes(filter_.to_parquet_bytes()) == filter_


def test_a_zero_is_found_by_either_zero_and_nan_by_any(tmp_path):
    for stored in (0.0, -0.0):
        write_pyarrow(tmp_path / "a.parquet", pa.table({"x": [stored, 1.5]}))
        filter_ = zb.parquet_bloom(tmp_path / "a.parquet", 0, "x")
        answers = filter_.check(pa.array([0.0, -0.0, 1.5, -1.5, 2.5, None, np.nan], from_pandas=False))
        assert answers.to_pylist() == [True, True, True, False, False, None, True]


def test_what_has_no_filter_is_none_and_wrong_names_and_values_are_said(tmp_path):
    path = tmp_path / "a.parquet"
    price = pa.array([Decimal(1)], pa.decimal128(5, 2))  # pyarrow casts no int64 to it
    write_pyarrow(path, pa.table({"a": pa.array([1], pa.int8()), "b": [2], "price": price}), ["a", "price"])
    assert zb.parquet_bloom(path, 0, "b") is None
    assert zb.parquet_bloom(tmp_path, 0, "a").check(pa.array([1, 7])).to_pylist() == [True, False]
    assert zb.parquet_bloom(path, 0, "price").check([1, 7]).to_pylist() == [True, False]
    with pytest.raises(zb.ZoneBloomError, match="of the column's type int8"):
        zb.parquet_bloom(path, 0, "a").check(pa.array([300]))
    pq.write_table(pa.table({"a": [1]}), tmp_path / "b.parquet")
    (tmp_path / "empty").mkdir()
    for call, kind, message in (
        (lambda: zb.parquet_bloom(path, 0, "aa"), LookupError, "did you mean a"),
        (lambda: zb.parquet_bloom(path, 1, "a"), ValueError, "row_group must be one of the 1"),
        (lambda: zb.parquet_bloom(tmp_path, 0, "a"), ValueError, "read from one file, got 2"),
        (lambda: zb.parquet_blooms(tmp_path / "empty"), DataFileError, "at least one file"),
        (lambda: zb.parquet_blooms(tmp_path, column="aa"), LookupError, "did you mean a"),
        (lambda: zb.parquet_blooms(tmp_path, value=7), ValueError, "with the column"),
    ):
        with pytest.raises(kind, match=message):
            call()


# --- listing ----------------------------------------------------------------------------------------------------------


def test_the_list_has_every_filter_of_every_file(written):
    need("parquet_blooms")
    listed = zb.parquet_blooms(written.parent).to_pylist()
    expected = {(group, chunk.path_in_schema) for group, chunk in chunks_of(written) if chunk.bloom_filter_offset}
    assert {(entry["row_group"], entry["column"]) for entry in listed} == expected
    assert {(entry["path"], entry["problem"]) for entry in listed} == {("a.parquet", None)}
    (key,) = zb.parquet_blooms(written, column="key").slice(0, 1).to_pylist()
    filter_ = zb.parquet_bloom(written, 0, "key")
    assert (key["num_blocks"], key["num_bytes"], key["fpp"]) == (filter_.num_blocks, filter_.num_bytes, filter_.fpp())
    assert key["expected_fpp"] == pytest.approx(key["fpp"], rel=0.5)


def test_a_value_that_is_there_is_excluded_from_other_row_groups_alone(written):
    file = pq.ParquetFile(written)
    groups = [file.read_row_group(group) for group in range(file.num_row_groups)]
    for name in TABLE.column_names:
        values = [group[name].to_pylist() for group in groups]
        blooms = zb.parquet_blooms(written, column=name, value=values[0][11]).to_pylist()
        assert not any(bloom["excluded"] and values[0][11] in values[bloom["row_group"]] for bloom in blooms), name
        assert values[0][11] in values[1] or name == "wide" or any(bloom["excluded"] for bloom in blooms), name
        assert {bloom["excluded"] for bloom in blooms} <= {True, False}


def test_a_filter_cannot_tell_of_what_is_not_compared_by_bytes(tmp_path):
    path = tmp_path / "a.parquet"
    write_pyarrow(path)
    for column, value in (("ratio", float("nan")), ("key", 0.5), ("key", "x7"), ("text", 7)):
        assert zb.parquet_blooms(path, column=column, value=value)["excluded"].null_count == 4
    assert zb.parquet_blooms(path, column="tiny", value=1000)["excluded"].to_pylist() == [True] * 4
    assert zb.parquet_blooms(path, column="tiny", value=[1, 3])["excluded"].to_pylist() == [True, False, True, False]


def test_a_damaged_filter_is_listed_with_its_problem_keeps_its_row_group_and_is_not_adopted(indexed):
    root, index = indexed
    write_pyarrow(root / "b.parquet")
    flip(root / "b.parquet", pq.read_metadata(root / "b.parquet").row_group(2).column(0).bloom_filter_offset + 4, 0)
    _, first, second, _ = zb.parquet_blooms(root / "b.parquet", column="key", value=-1).to_pylist()
    assert (first["problem"], first["excluded"]) == (None, True)
    assert "uncompressed split-block filter" in second["problem"]
    assert second["excluded"] is second["num_blocks"] is None
    result = index.search(zb.col("key") == -1)
    assert rows_kept(result) == [(2000, 3000)]
    assert [reason.path for reason in result.reasons if reason.code == "FILTER_UNUSABLE"] == ["b.parquet"]
    assert index.to_table(zb.col("key") == -1).num_rows == 0
    index = zb.build_index(root / "b.parquet", ["key", "text"], rows_per_zone=500, adopt="parquet")
    assert [column.num_zones for column in index.indexed_columns()] == [8, 4]
    assert index.verify(sample=1.0).is_sound


def test_the_command_adds_lists_looks_up_and_adopts_filters(tmp_path, run):
    path = tmp_path / "lake" / "a.parquet"
    write_plain(path)
    columns = ("key", "text", "day", "cash", "blob")
    options = [part for column in columns for part in ("-c", column)]
    added = run("add-blooms", path, "-o", tmp_path / "with", *options)
    assert added == (0, f"{tmp_path / 'with' / 'a.parquet'}\n", "")
    assert run("add-blooms", path, "-o", tmp_path / "with", "-c", "key").code == 2
    assert run("add-blooms", path, "-c", "key").code == 2
    listed = run("blooms", tmp_path / "with")
    assert (listed.code, len(listed.out.splitlines())) == (0, 4 * len(columns))
    assert "usable" in listed.err
    for column in columns:
        value = TABLE[column][5].as_py()
        text = text_of(value) if isinstance(value, bytes) else value
        asked = run("blooms", tmp_path / "with", "--column", column, "--value", text, "--format", "json")
        blooms = zb.parquet_blooms(tmp_path / "with", column=column, value=value)
        assert [line["excluded"] for line in asked.document] == blooms["excluded"].to_pylist()
    assert run("blooms", tmp_path / "with", "-c", "key", "--value", "-5").err.endswith("; 4 exclude the value\n")
    refused = run("blooms", tmp_path / "with", "--column", "key", "--value", "seven")
    assert (refused.code, refused.out) == (2, "")
    assert "is no int64" in refused.err
    crashing = run("blooms", tmp_path / "with", "--column", "cash", "--value", "1e-9999999")
    assert (crashing.code, "is no decimal128(9, 2)" in crashing.err) == (2, True)
    assert run("blooms", tmp_path / "with", "--value", "7").code == 2
    without_pages(tmp_path / "with" / "a.parquet")
    done = run("build", tmp_path / "with", "-c", "key", "--from-parquet-blooms", "--format", "json")
    assert done.document["columns"][0]["num_zones"] == 4


# --- tables -----------------------------------------------------------------------------------------------------------


def test_each_type_is_found_in_what_pyarrow_writes(tmp_path):
    columns = {str(kind): pa.array([*map(VALUES[kind], (1, 2)), None], kind) for kind in FLAT_TYPES}
    for options in ({}, {"store_schema": False, "store_decimal_as_integer": True}):
        write_pyarrow(tmp_path / "a.parquet", pa.table(columns), **options)
        stored = pq.ParquetFile(tmp_path / "a.parquet").read()
        for name in columns:
            filter_ = zb.parquet_bloom(tmp_path / "a.parquet", 0, name)
            assert filter_.check(stored[name].combine_chunks()).to_pylist() == [True, True, None], name
            assert filter_.plain_type is not None
    assert zb.parquet_bloom(tmp_path / "a.parquet", 0, "duration[us]").column_type == pa.int64()


def test_types_whose_bytes_are_not_known_are_not_looked_up(tmp_path):
    times, path = pa.table({"x": pa.array([1, 2], pa.timestamp("ns"))}), tmp_path / "a.parquet"
    write_pyarrow(path, times, use_deprecated_int96_timestamps=True)
    filter_ = zb.parquet_bloom(path, 0, "x")
    assert filter_.plain_type is None
    with pytest.raises(TypeError, match="whose stored bytes are known"):
        filter_.check(pa.array([1], pa.timestamp("ns")))


# --- writing ----------------------------------------------------------------------------------------------------------

NAMES = ["key", "text", "tiny", "word", "ratio", "price", "wide", "cash", "day", "at", "blob"]


def write_plain(path: Path, **options) -> None:
    path.parent.mkdir(exist_ok=True)
    options |= {"row_group_size": GROUP, "write_page_index": True, "compression": "zstd"}
    table = TABLE.replace_schema_metadata({"owner": "someone"})
    pq.write_table(table, path, sorting_columns=[pq.SortingColumn(0)], **options)


@pytest.fixture(scope="module")
def copied(tmp_path_factory) -> tuple[Path, Path]:
    """A file, and its copy with filters."""
    folder = tmp_path_factory.mktemp("copies")
    path = folder / "lake" / "a.parquet"
    write_plain(path)
    (copy,) = zb.add_parquet_blooms(folder / "lake", folder / "with", NAMES, fpp=0.001)
    return path, Path(copy)


BLOOM_OFFSET, BLOOM_LENGTH = 14, 15
"""Fields of the metadata of a column chunk."""


def without_lengths(footer: bytes) -> bytes:
    return edited(footer, (4, ..., 1, ..., 3, BLOOM_LENGTH), lambda _: None)


def described(path: Path) -> tuple[object, ...]:
    """All that pyarrow knows of a footer but its size and the filters' places."""
    metadata = pq.read_metadata(path)
    whole = metadata.to_dict() | {"serialized_size": None}
    for chunk in (chunk for group in whole["row_groups"] for chunk in group["columns"]):
        chunk.update(dict.fromkeys(("bloom_filter_offset", "bloom_filter_length")))
    return metadata.schema, metadata.metadata, whole


def test_a_copy_has_the_bytes_of_its_source_and_all_of_its_footer(copied):
    path, copy = copied
    start, _footer = footer_of(path)
    assert copy.read_bytes()[:start] == path.read_bytes()[:start]
    assert described(copy) == described(path)
    assert pq.read_table(copy).equals(pq.read_table(path))
    assert list(copy.parent.iterdir()) == [copy]


def test_fields_that_nobody_knows_stay_in_a_copy(tmp_path):
    path = tmp_path / "lake" / "a.parquet"
    write_plain(path)
    odd = thrift.write_struct({1: (thrift.I64, -7), 2: (thrift.BINARY, b"odd")})
    replace_footer(path, lambda footer: edited(footer, (4, [1], 99), lambda _: (thrift.STRUCT, odd)))
    replace_footer(path, lambda footer: edited(footer, (32767,), lambda _: (thrift.BINARY, b"an extension")))
    (copy,) = zb.add_parquet_blooms(path, tmp_path / "with", "key")
    before, after = (thrift.read_struct(footer_of(Path(file))[1])[0] for file in (path, copy))
    assert (after[32767], after[4][1][99]) == (b"an extension", {1: -7, 2: b"odd"})
    for group in after[4]:
        for place in (BLOOM_OFFSET, BLOOM_LENGTH):
            del group[1][0][3][place]
    assert after == before


def test_datafusion_leaves_out_row_groups_of_a_copy(copied):
    need("datafusion_metrics")
    for path, num_left in ((copied[0], 4), (copied[1], 1)):
        context = datafusion.SessionContext()
        context.register_parquet("rows", str(path))
        for name in ("key", "text", "word"):
            value = TABLE[name][2500].as_py()
            (batch, *_rest) = context.sql(f"EXPLAIN ANALYZE SELECT * FROM rows WHERE {name} = '{value}'").collect()
            plan = " ".join(row["plan"] for row in batch.to_pylist())
            kept = re.search(r"row_groups_pruned_bloom_filter=(\d+) total → (\d+) matched", plan)
            assert kept is not None
            assert int(kept[2]) == min(num_left, int(kept[1]))
            read = context.sql(f"SELECT key FROM rows WHERE {name} = '{value}'").to_arrow_table()
            assert read["key"].to_pylist() == [TABLE["key"][2500].as_py()]


def test_duckdb_leaves_out_row_groups_of_a_copy(copied):
    for path, num_scanned in ((copied[0], 4), (copied[1], 1)):
        with duckdb.connect() as connection:
            for name in ("key", "text", "word"):
                where = f"FROM '{path}' WHERE {name} = '{TABLE[name][2500]}'"
                [(_kind, plan)] = connection.sql(f"EXPLAIN (ANALYZE, FORMAT json) {where}").fetchall()
                assert f'"row_groups_scanned": {num_scanned}' in plan
                assert connection.sql(f"SELECT key {where}").fetchall() == [(TABLE["key"][2500].as_py(),)]


def test_a_zero_is_found_by_other_engines_in_a_copy(tmp_path):
    for name, stored in (("plus", 0.0), ("minus", -0.0)):
        path = tmp_path / name / "a.parquet"
        path.parent.mkdir()
        pq.write_table(pa.table({"x": [stored, 1.0]}), path, write_statistics=False)
        (copy,) = zb.add_parquet_blooms(path, tmp_path / f"{name} with", "x", fpp=1e-6)
        for probed in ("0.0", "-0.0"):
            assert duckdb.sql(f"SELECT count(*) FROM '{copy}' WHERE x = {probed}::DOUBLE").fetchall() == [(1,)]
        assert zb.parquet_blooms(copy, column="x", value=5.0)["excluded"].to_pylist() == [True]


READ_AS_OTHERS = (pa.float16(), pa.decimal256(60, 2))
"""Types that engines read as others, so that they get no filters."""


def test_engines_find_in_a_copy_what_they_find_in_the_original(tmp_path):
    """By `=`, in each type that is copied: a filter of other bytes than those an engine looks up loses rows."""
    need("local_times_in_files")
    kinds = [kind for kind in FLAT_TYPES if kind not in READ_AS_OTHERS]
    table = pa.table({str(kind): pa.array(map(VALUES[kind], range(40)), kind) for kind in kinds})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=10)
    (copy,) = zb.add_parquet_blooms(tmp_path / "a.parquet", tmp_path / "with", table.column_names, fpp=1e-6)
    with duckdb.connect() as connection:
        context = datafusion.SessionContext()
        for path in (tmp_path / "a.parquet", Path(copy)):
            context.register_parquet(path.parent.name, str(path))
        for name in table.column_names:
            for row in (7, 33):
                quoted = f'"{name}"'
                text = f"SELECT {quoted}::VARCHAR, typeof({quoted}) FROM '{tmp_path}/a.parquet' LIMIT 1 OFFSET {row}"
                value, kind = connection.sql(text).fetchall()[0]
                for path in (tmp_path / "a.parquet", copy):
                    query = f"SELECT count(*) FROM '{path}' WHERE {quoted} = '{value}'::{kind}"
                    assert connection.sql(query).fetchall() == [(1,)], (path, name)
                if table[name].type in (pa.duration("us"), pa.uuid()):  # DataFusion has no such literals
                    continue
                is_equal = datafusion.col(f'"{name}"') == datafusion.lit(table[name][row])
                counts = [context.table(where).filter(is_equal).count() for where in (tmp_path.name, "with")]
                assert counts == [1, 1], name


def test_types_that_engines_read_as_others_get_no_filters(tmp_path):
    for kind in READ_AS_OTHERS:
        pq.write_table(pa.table({"x": pa.array([VALUES[kind](1)], kind)}), tmp_path / "a.parquet")
        with pytest.raises(TypeError, match=re.escape(f"got x of {kind}")):
            zb.add_parquet_blooms(tmp_path / "a.parquet", tmp_path / "with", "x")


def test_nothing_is_replaced_and_nothing_is_left_after_an_error(tmp_path, copied):
    path, target = tmp_path / "lake" / "a.parquet", tmp_path / "with"
    write_plain(path)
    before = path.read_bytes()
    (copy,) = zb.add_parquet_blooms(tmp_path / "lake", target, "key")
    pq.write_table(pa.table({"flag": [True]}), tmp_path / "b.parquet")
    again = tmp_path / "again"
    for source, place, columns, options, kind, message in (
        (tmp_path / "lake", target, "text", {}, ValueError, "no file may be there"),
        (tmp_path / "lake", tmp_path / "lake" / "inner", "key", {}, ValueError, "outside of the data set"),
        (copy, again, ["text", "key"], {}, ValueError, "must have no filters yet"),
        (path, again, "kei", {}, LookupError, "did you mean key"),
        (path, again, "key", {"fpp": 1}, ValueError, "fpp"),
        (tmp_path / "b.parquet", again, "flag", {}, TypeError, "stored as BOOLEAN"),
        (path, path / "again", "key", {}, StorageError, "cannot write"),
    ):
        with pytest.raises(kind, match=message):
            zb.add_parquet_blooms(source, place, columns, **options)
    for damaged in (before[:-300] + before[-8:], before[:4] + bytes(19_996) + before[20_000:]):  # footer, then pages
        (tmp_path / "lake" / "b.parquet").write_bytes(damaged)
        with pytest.raises(DataFileError):
            zb.add_parquet_blooms(tmp_path / "lake", again, "key")
    assert path.read_bytes() == before
    assert not [path for path in again.rglob("*") if path.is_file()]


def test_folders_nested_columns_and_files_without_the_column_are_copied(tmp_path):
    root = tmp_path / "lake"
    deep = pa.table({"deep": pa.array([{"x": number, "y": "z"} for number in range(50)])})
    for name, table in (("day=1/a.parquet", deep), ("day=2/b.parquet", pa.table({"other": [1]})), ("c.parquet", deep)):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, root / name)
    copies = zb.add_parquet_blooms(root, tmp_path / "with", "deep.x")
    names = [Path(copy).relative_to(tmp_path / "with").as_posix() for copy in copies]
    assert names == ["c.parquet", "day=1/a.parquet", "day=2/b.parquet"]
    assert zb.parquet_blooms(tmp_path / "with", column="deep.x", value=51)["excluded"].to_pylist() == [True, True]
    assert pq.read_table(tmp_path / "with/day=2/b.parquet", partitioning=None).equals(pa.table({"other": [1]}))


@pytest.mark.parametrize("mode", [0o600, 0o444])
def test_a_copy_has_the_mode_of_its_source(tmp_path, mode):
    source = tmp_path / "source.parquet"
    pq.write_table(pa.table({"id": [1]}), source)
    source.chmod(mode)
    (copy,) = zb.add_parquet_blooms(source, tmp_path / "copies", "id")
    assert Path(copy).stat().st_mode & 0o777 == mode


@pytest.mark.parametrize("has_length", [True, False])
def test_every_damaged_bit_of_a_header_is_no_filter(copied, tmp_path, has_length):
    """parquet-java wrote no lengths before Parquet had the field."""
    need("parquet_blooms")
    path = tmp_path / "a.parquet"
    path.write_bytes(copied[1].read_bytes())
    if not has_length:
        replace_footer(path, without_lengths)
    metadata = pq.read_metadata(path)
    for group, name in ((0, "key"), (3, "blob")):
        chunk = metadata.row_group(group).column(TABLE.column_names.index(name))
        assert (chunk.bloom_filter_length is not None) == has_length
        filter_ = zb.parquet_bloom(path, group, name)
        assert filter_ == zb.parquet_bloom(copied[1], group, name)
        for bit in range(8 * (len(filter_.to_parquet_bytes()) - filter_.num_bytes)):
            flip(path, chunk.bloom_filter_offset + bit // 8, bit % 8)
            with pytest.raises(DataFileError, match="cannot be used"):
                zb.parquet_bloom(path, group, name)
            flip(path, chunk.bloom_filter_offset + bit // 8, bit % 8)


def test_a_filter_without_a_length_may_end_where_a_page_index_begins(tmp_path):
    """As in files of pyarrow, and of arrow-rs before it wrote lengths."""
    path = tmp_path / "a.parquet"
    write_pyarrow(path, TABLE.select(["key", "text"]), write_page_index=True)
    whole = zb.parquet_blooms(path).to_pylist()
    replace_footer(path, without_lengths)
    assert zb.parquet_blooms(path).to_pylist() == whole
    assert {entry["problem"] for entry in whole} == {None}


def test_a_path_that_two_leaves_have_means_neither(tmp_path):
    table = dotted_table(["k", "a.b", "a", "x.list.element", "x"])
    write_pyarrow(tmp_path / "a.parquet", table, ["k", "a.b", "x.list.element"], row_group_size=5)
    lake = zb.open_lake(tmp_path)
    assert lake.search("k = 3").num_rows_kept == 5
    for name in ("a.b", "x.list.element"):
        assert lake.to_table(pc.field(name) == 3).num_rows == 1
        assert lake.search(pc.field(name) == 1003).num_rows_kept == 10
        with pytest.raises(LookupError, match="once"):
            zb.parquet_bloom(tmp_path, 0, name)
    index = zb.build_index(tmp_path, ["k", "x.list.element"], rows_per_zone=2, adopt="parquet")
    assert [column.num_zones for column in index.indexed_columns()] == [2, 5]
    assert index.to_table(pc.field("x.list.element") == 3)["k"].to_pylist() == [3]


# --- searching --------------------------------------------------------------------------------------------------------


@pytest.fixture
def indexed(tmp_path) -> tuple[Path, zb.Index]:
    """A lake of one indexed file of ten rows."""
    pq.write_table(TABLE.slice(0, 10), tmp_path / "a.parquet")
    return tmp_path, zb.build_index(tmp_path, "key")


def test_a_new_file_is_pruned_by_its_own_filters(indexed, written):
    root, index = indexed
    (root / "b.parquet").write_bytes(written.read_bytes())
    both = pa.concat_tables([TABLE.slice(0, 10), pads.dataset(written).to_table().cast(TABLE.schema)])
    for name in ("key", "text", "word", "price", "at", "blob"):
        is_value = zb.col(name) == TABLE[name][3700].as_py()
        result = index.search(is_value)
        assert result.num_rows_kept < ROWS + 10, name
        expected = both.filter(pc.equal(both[name], TABLE[name][3700]))
        assert sorted(index.to_table(is_value)["key"].to_pylist()) == sorted(expected["key"].to_pylist())
        assert index.search(is_value & (zb.col("tiny") == 0)).num_rows_kept <= result.num_rows_kept
    (reason,) = {reason.message for reason in result.reasons if reason.code == "FILE_NOT_INDEXED"}
    assert "filters of its own exclude values from" in reason
    assert "filters of its own" in " ".join(str(index.explain(is_value)).split())


def test_exact_existence_reads_no_row_group_whose_filter_excludes_all_values(indexed):
    root, index = indexed
    write_pyarrow(root / "b.parquet")
    wanted = [TABLE["key"][3].as_py(), TABLE["key"][3700].as_py(), -1]
    assert index.exists("key", wanted, exact=True).to_pylist() == [True, True, False]
    without_pages(root / "b.parquet")
    assert index.exists("key", [-1, -2], exact=True).to_pylist() == [False, False]
    assert index.exists("key", [-1]).to_pylist() == [True]
    with pytest.raises(DataFileError):
        index.exists("key", wanted, exact=True)


@pytest.mark.parametrize("seed", range(at_depth(100, 30)))
def test_own_filters_lose_no_row_of_any_condition(own_lake, seed):
    index, rows = own_lake
    chance = random.Random(seed)
    names = ["key", "text", "tiny", "ratio", "cash", "day"]
    pools = {(name,): [row[name] for row in chance.sample(rows, 9) if row[name] is not None] for name in names}
    condition = random_condition(chance, pools)
    wanted = [row["key"] for row in rows if truth_of(condition, row)]
    assert sorted(index.to_table(as_terms(condition), columns=["key"])["key"].to_pylist()) == sorted(wanted)


@pytest.fixture(scope="module")
def own_lake(tmp_path_factory) -> tuple[zb.Index, list[dict[str, Any]]]:
    """An indexed file, and one that the index does not know, of several small row groups with nulls and zeros."""
    need("parquet_blooms")
    root = tmp_path_factory.mktemp("own")
    whole = TABLE.take(pa.array(NUMBERS[::20]))
    nulls = pa.array(NUMBERS[::20] % 7 == 0)
    whole = whole.set_column(1, "text", pc.if_else(nulls, None, whole["text"]))
    pq.write_table(whole.slice(0, 50), root / "a.parquet")
    index = zb.build_index(root, ["key", "text"], rows_per_zone=16)
    write_pyarrow(root / "b.parquet", whole.slice(50), row_group_size=20)
    return index, whole.to_pylist()


def test_columns_that_folders_hold_and_wider_types_are_compared_as_the_data_set_has_them(tmp_path):
    need("parquet_blooms")
    root = tmp_path / "lake"
    (root / "day=7").mkdir(parents=True)
    pq.write_table(pa.table({"key": pa.array([1, 2], pa.int64())}), root / "day=7" / "a.parquet")
    index = zb.build_index(root, "key")
    narrow = pa.table({"key": pa.array([1, 5], pa.int8()), "day": pa.array([1, 1], pa.int64())})
    write_pyarrow(root / "day=7" / "b.parquet", narrow)
    assert index.to_table("day = 7 AND key = 5")["key"].to_pylist() == [5]
    assert index.search("key = 3").num_rows_kept == 0
    write_pyarrow(root / "day=7" / "c.parquet", pa.table({"key": ["5", "6"]}))
    assert index.search("key = 3").files == ["day=7/c.parquet"]


# --- a lake without an index ------------------------------------------------------------------------------------------


def test_a_lake_without_an_index_is_searched_by_its_own_filters(tmp_path):
    root = tmp_path / "lake"
    for day in (1, 2):
        (root / f"day={day}").mkdir(parents=True)
        write_pyarrow(root / f"day={day}" / "a.parquet", TABLE.drop("day"))
    lake = zb.open_lake(root)
    value = TABLE["key"][2500].as_py()
    result = lake.search(zb.col("key") == value)
    assert set(rows_kept(result)) == {(2000, 3000)}
    assert len(result.files) == 2
    both = lake.to_table(f"key = {value} AND day = 2")
    assert both.select(["key", "day"]).to_pylist() == [{"key": value, "day": 2}]
    assert lake.search(f"key = {value} AND day = 2").num_rows_kept == GROUP
    assert lake.scan(f"key = {value} OR tiny = 0", columns=["key"], limit=3).read_all().num_rows == 3
    assert lake.to_table("day = 2", column="key", values=[value]).equals(both)
    codes = {reason.code for reason in lake.explain(f"key = {value}").result.reasons}
    assert codes == {"COLUMN_NOT_INDEXED"}
    assert sorted(path.name for path in root.iterdir()) == ["day=1", "day=2"]
    with pytest.raises(LookupError, match="did you mean key"):
        lake.search("kei = 1")


def test_a_condition_of_many_levels_is_evaluated_by_own_filters(tmp_path):
    """900 levels, which is more than Python's stack takes with two frames a level."""
    write_pyarrow(tmp_path / "a.parquet")
    value = TABLE["key"][2500].as_py()
    condition = is_value = zb.col("key") == value
    for other in range(450):
        condition = (condition | (zb.col("tiny") == other)) & is_value
    assert zb.open_lake(tmp_path).search(condition).num_rows_kept == GROUP


def test_a_lake_is_listed_anew_at_each_call(tmp_path):
    with pytest.raises(DataFileError, match="at least one file"):
        zb.open_lake(tmp_path)
    write_pyarrow(tmp_path / "a.parquet", TABLE.slice(0, GROUP).select(["key"]))
    lake = zb.open_lake(tmp_path)
    value = TABLE["key"][2500].as_py()
    assert lake.to_table(f"key = {value}").num_rows == 0
    write_pyarrow(tmp_path / "b.parquet", TABLE.slice(2000).select(["key", "text"]))
    (tmp_path / "c.parquet").write_bytes(b"torn")
    assert "text" in lake.schema.names
    assert lake.search(f"key = {value}").files == ["b.parquet", "c.parquet"]
    (tmp_path / "c.parquet").unlink()
    assert lake.to_table(f"key = {value}").num_rows == 1


# --- adopting ---------------------------------------------------------------------------------------------------------

ADOPTED = ["key", "text", "word", "ratio", "day", "at", "blob"]
"""Columns whose hashed bytes are those of an index."""


def without_pages(path: Path) -> None:
    """Overwrite all pages of a file: a read of one fails."""
    raw = bytearray(path.read_bytes())
    for _, chunk in chunks_of(path):
        start = chunk.dictionary_page_offset or chunk.data_page_offset
        raw[start : start + chunk.total_compressed_size] = bytes(chunk.total_compressed_size)
    path.write_bytes(raw)


def test_an_index_is_built_of_filters_alone(written, tmp_path):
    whole, path = written.read_bytes(), tmp_path / "a.parquet"
    path.write_bytes(whole)
    file = pq.ParquetFile(path)
    rows, num_groups = file.read(), file.num_row_groups
    names = [name for name in ADOPTED if zb.parquet_bloom(path, 0, name) is not None]
    assert len(names) >= 5
    without_pages(path)
    index = zb.build_index(tmp_path, names, adopt="parquet")
    assert [column.num_zones for column in index.indexed_columns()] == [num_groups] * len(names)
    for name in names:
        zones = index.zone_table(name)
        for group in range(num_groups):
            assert zb.Sbbf(zones.blocks(group).copy()) == zb.parquet_bloom(path, group, name)
    assert index.search(zb.col("key") == rows["key"][5].as_py()).num_zones_kept < num_groups
    path.write_bytes(whole)
    index.refresh()
    assert index.verify(sample=1.0).is_sound


def test_what_has_no_filter_that_fits_is_built_by_reading(tmp_path):
    nulls = TABLE.set_column(1, "text", pc.if_else(pa.array(NUMBERS < 500), None, TABLE["text"]))
    write_pyarrow(tmp_path / "a.parquet", nulls)
    write_plain(tmp_path / "b.parquet")
    write_pyarrow(tmp_path / "c.parquet", TABLE.set_column(0, "key", TABLE["key"].cast(pa.int32())), ["key"])
    index = zb.build_index(tmp_path, ["key", "text", "tiny", "wide"], rows_per_zone=256, adopt="parquet")
    read = -(-ROWS // 256)
    assert [column.num_zones for column in index.indexed_columns()] == [4 + 2 * read, 4 + 2 * read, 3 * read, 3 * read]
    assert index.verify(sample=1.0).is_sound
    everything = pa.concat_tables([nulls, TABLE, TABLE])
    for name in ("key", "text", "tiny", "wide"):
        value = TABLE[name][2500].as_py()
        expected = everything.filter(pc.equal(everything[name], pa.scalar(value, everything[name].type)))
        assert index.to_table(zb.col(name) == value).num_rows == expected.num_rows
        assert index.search(zb.col(name) == value).num_rows_kept < 3 * ROWS
    assert index.to_table("text IS NULL").num_rows == 500
    assert index.search("text IS NULL").num_rows_kept == GROUP
    write_pyarrow(tmp_path / "d.parquet")
    done = index.refresh()
    assert (done.num_zones_added, done.num_zones) == (4 * read, 8 + 14 * read)
    assert sum(column.num_zones for column in index.indexed_columns()) == done.num_zones
    (tmp_path / "d.parquet").unlink()
    index.refresh("full")
    assert {column.num_zones for column in index.indexed_columns()} == {3 * read}
    assert index.optimize() is not None
    assert index.to_table("text IS NULL").num_rows == 500


def test_adopting_is_refused_where_values_are_needed(tmp_path):
    write_pyarrow(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="with kind bloom, as a locator needs the values"):
        zb.build_index(tmp_path / "a.parquet", "key", adopt="parquet", kind="both")
    with pytest.raises(ValueError, match="adopt must be 'parquet'"):
        zb.build_index(tmp_path / "a.parquet", "key", adopt="orc")
    assert not (tmp_path / "_a.parquet.zonebloom").exists()


# --- encrypted files --------------------------------------------------------------------------------------------------


def write_with_encrypted_keys(path: Path, **options: bool) -> None:
    path.parent.mkdir()
    write_encrypted(path, TABLE.select(["key", "text"]), ["key"], row_group_size=GROUP, **options)


def test_of_a_file_with_an_encrypted_column_the_filters_of_the_others_are_used(tmp_path):
    need("partly_encrypted")
    path = tmp_path / "lake" / "a.parquet"
    write_with_encrypted_keys(path, has_plain_footer=True)
    start, footer = footer_of(path)
    body, signature = path.read_bytes()[:start], footer[-28:]
    for group in range(ROWS // GROUP):
        filter_ = zb.Sbbf.for_ndv(GROUP, 0.001)
        filter_.insert(TABLE["text"].slice(group * GROUP, GROUP))
        written = filter_.to_parquet_bytes()
        for field, number in ((BLOOM_OFFSET, len(body)), (BLOOM_LENGTH, len(written))):
            footer = edited(footer, (4, [group], 1, [1], 3, field), lambda _, number=number: (thrift.I64, number))
        body += written
    footer += signature
    path.write_bytes(body + footer + struct.pack("<I4s", len(footer), b"PAR1"))
    value = TABLE["text"][2500].as_py()
    assert zb.parquet_blooms(path, column="text", value=value)["excluded"].to_pylist() == [True, True, False, True]
    assert set(zb.parquet_blooms(path, column="key", value=-1)["problem"].to_pylist()) == {"its column is encrypted"}
    lake = zb.open_lake(tmp_path / "lake")
    assert rows_kept(lake.search(zb.col("text") == value)) == [(2000, 3000)]
    assert lake.search("key = -1").num_rows_kept == ROWS
    index = zb.build_index(tmp_path / "lake", "text", adopt="parquet")
    assert index.search(zb.col("text") == value).num_zones_kept == 1
    assert index.to_table(zb.col("text") == value, columns=["text"]).num_rows == 1
    refused = "column key of data file .*a.parquet must be readable, got one that is encrypted"
    with pytest.raises(DataFileError, match=refused):
        zb.build_index(tmp_path / "lake", "key", adopt="parquet", index=tmp_path / "other")
    with pytest.raises(DataFileError, match=r"filter of column key in row group 0 .*: its column is encrypted"):
        zb.parquet_bloom(path, 0, "key")


@pytest.mark.parametrize("has_plain_footer", [True, False])
def test_no_filters_are_added_to_encrypted_files(tmp_path, has_plain_footer):
    path = tmp_path / "lake" / "a.parquet"
    write_with_encrypted_keys(path, has_plain_footer=has_plain_footer)
    for name in ("key", "text"):
        with pytest.raises(zb.ZoneBloomError, match="encrypted"):
            zb.add_parquet_blooms(path, tmp_path / "with", name)
    assert not [entry for entry in tmp_path.rglob("*") if entry.is_file() and entry != path]


# --- object stores ----------------------------------------------------------------------------------------------------


def test_a_remote_lake_is_searched_and_indexed_by_its_own_filters(s3, tmp_path):
    write_pyarrow(tmp_path / "a.parquet")
    url = s3.upload(tmp_path, "lake")
    value = TABLE["key"][2500].as_py()
    lake = zb.open_lake(url, storage_options=s3.options)
    before = lake.data.traffic
    assert lake.search(f"key = {value}").num_rows_kept == GROUP
    used = lake.data.traffic - before
    assert used.num_requests <= 3
    assert used.bytes_read < (tmp_path / "a.parquet").stat().st_size / 2
    assert lake.to_table(f"key = {value}")["text"].to_pylist() == [f"user {value}"]
    listed = zb.parquet_blooms(url, column="key", value=value, storage_options=s3.options)
    assert listed["excluded"].to_pylist() == [True, True, False, True]
    index = zb.build_index(url, "key", adopt="parquet", storage_options=s3.options)
    assert index.search(f"key = {value}").num_rows_kept == GROUP


def test_a_file_that_is_rewritten_under_the_same_time_loses_no_row(indexed):
    """Same size, same time, other rows: what a clock of whole seconds makes of two quick writes."""
    root, index = indexed
    path = root / "b.parquet"
    for turn in range(8):
        write_pyarrow(path, pa.table({"x": pa.array([turn], pa.int64())}), compression="none")
        assert zb.open_lake(path).to_table(f"x = {turn}").num_rows == 1
        assert zb.open_lake(path).search(f"x = {turn + 1}").num_rows_kept == 0
    assert index.search("key = -1").files == ["b.parquet"]
