"""What Delta tables alone have: partitions by the log, mapped columns, deletion vectors, features and checkpoints.

Oracle: deltalake 1.6 (`DeltaTable.scan`, its DataFusion engine). What tables of each format have is in `test_table`.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, write_deltalake

import zonebloom as zb
from tests import delta_log, tables
from tests.depth import deep_only
from tests.s3 import S3Server
from tests.tables import ROWS_PER_ZONE, assert_same, build, plain, rows, user
from zonebloom.errors import (
    ColumnNotFoundError,
    DataFileError,
    InvalidArgumentError,
    MissingDependencyError,
    StorageError,
    ZoneBloomError,
)
from zonebloom.formats import delta, open_dataset
from zonebloom.formats.parquet import footer as footers
from zonebloom.ground.reasons import ReasonCode

PLAIN = [("id", "long", 0, ""), ("u", "string", 0, "")]


def their_rows(root: Path) -> pa.Table:
    return plain(DeltaTable(root).scan()).sort_by("id")


def assert_agrees(index: zb.Index, root: Path) -> None:
    tables.assert_agrees(index, their_rows(root))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A table of three files, of 40 rows each."""
    for start in (0, 40, 80):
        write_deltalake(tmp_path / "table", rows(start, start + 40), mode="append")
    return tmp_path / "table"


# --- partitions -------------------------------------------------------------------------------------------------------


def test_a_table_partitioned_by_bytes_is_refused(tmp_path):
    """deltalake 1.6 gives the escapes of the log for them."""
    write_deltalake(tmp_path, rows(0, 2, p=[b"a", b"b"]), partition_by=["p"])
    with pytest.raises(DataFileError, match="must not be of bytes, got p; partition it by another column"):
        zb.build_index(tmp_path, "u")


def test_an_empty_text_as_partition_value_is_null_as_the_protocol_says(tmp_path):
    write_deltalake(tmp_path, rows(0, 2, p=["", "x"]), partition_by=["p"])
    index = build(tmp_path)
    assert index.to_table("p IS NULL")["id"].to_pylist() == [0]
    assert index.to_table(user(0))["p"].to_pylist() == [None]


def test_a_partition_value_that_python_does_not_have_is_compared(tmp_path):
    hand_made(tmp_path, [*PLAIN, ("d", "date", 0, "")], partitions=["d"])
    for number, day in enumerate(["2026-01-01", "+20226-01-01"]):
        add_file(tmp_path, f"{number}.parquet", rows(number, number + 1), {"d": day})
    index = build(tmp_path)
    assert index.search("d > DATE '2026-01-01'").files == ["1.parquet"]
    assert index.to_table("d = DATE '2026-01-01'")["id"].to_pylist() == [0]


def test_a_path_that_looks_like_another_partition_is_not_believed(tmp_path):
    write_deltalake(tmp_path, rows(0, 4, day=[1] * 4), partition_by=["day"])
    (add,) = delta_log.actions(tmp_path, "add")
    (tmp_path / "day=9").mkdir()
    (tmp_path / add["path"]).rename(tmp_path / "day=9" / "part.parquet")
    moved = {"remove": {"path": add["path"], "dataChange": True}}, {"add": add | {"path": "day=9/part.parquet"}}
    delta_log.commit(tmp_path, *moved)
    index = build(tmp_path)
    assert index.to_table("day = 1").num_rows == 4
    assert index.search("day = 9").kept.files == 0


def test_a_partition_value_of_the_log_comes_before_that_of_the_file(tmp_path):
    hand_made(tmp_path, [*PLAIN, ("f", "double", 0, "")], partitions=["f"])
    for number, (logged, held) in enumerate([("0.1", 0.5), ("-0.0", 0.0), (None, 1.0), ("0.2", None)]):
        table = rows(4 * number, 4 * number + 4, f=pa.array([held] * 4, pa.float64()))
        add_file(tmp_path, f"{number}.parquet", table, {"f": logged})
    index = build(tmp_path)
    assert_agrees(index, tmp_path)
    assert index.to_table("f = 0.1")["id"].to_pylist() == [0, 1, 2, 3]
    assert index.search("f = 0.5 OR f = 1.0").kept.rows == 0
    assert index.to_table("f = 0.0")["id"].to_pylist() == [4, 5, 6, 7]


def test_a_partition_column_is_not_indexed(tmp_path):
    write_deltalake(tmp_path, rows(0, 4, day=[1] * 4), partition_by=["day"])
    with pytest.raises(ColumnNotFoundError, match="day"):
        build(tmp_path, "day")


def test_another_partitioning_of_the_same_table(tmp_path):
    write_deltalake(tmp_path, rows(0, 8, day=[1, 2] * 4), partition_by=["day"])
    index = build(tmp_path)
    write_deltalake(tmp_path, rows(0, 8, day=[3, 4] * 4), partition_by=["u"], mode="overwrite", schema_mode="overwrite")
    assert_agrees(index, tmp_path)
    assert index.search(user(3)).kept.files == 1
    index.refresh()
    assert_agrees(index, tmp_path)
    keys = [user(3).split("'")[1], "nobody"]  # their column is not in the files any more
    assert index.exists("u", keys).to_pylist() == [True, True]
    assert index.exists("u", keys, exact=True).to_pylist() == [True, False]
    assert index.locate("u", keys, exact=True)["row"].to_pylist() == [0, None]


# --- columns ----------------------------------------------------------------------------------------------------------


PATHS_OF_ONE_TEXT = {
    "a.b": ({"a": {"b": 7}}, {"a.b": 7}),
    "a.b.c": ({"a": {"b": {"c": 7}}}, {"a": {"b.c": 7}}),
    "a.b.c of a.b": ({"a": {"b.c": 7}}, {"a.b": {"c": 7}}),
    "a.`b`": ({"a": {"`b`": 7}}, {"a.`b`": 7}),
}
"""By name: a row whose leaf is written so, and a row of another column that is written so too."""


@pytest.mark.parametrize("name", PATHS_OF_ONE_TEXT)
def test_a_column_is_not_another_that_is_written_so(tmp_path, name):
    name, (row, other) = name.split(" ")[0], PATHS_OF_ONE_TEXT[name]
    write_deltalake(tmp_path, pa.Table.from_pylist([{"p": 1, **row}, {"p": 2, **row}]), partition_by="p")
    index = build(tmp_path, name)
    how = {"mode": "overwrite", "schema_mode": "overwrite", "predicate": "p = 1"}
    write_deltalake(tmp_path, pa.Table.from_pylist([{"p": 1, **other}]), partition_by="p", **how)
    for refresh in (False, True):
        if refresh:
            index.refresh()
        assert index.to_table(zb.col(name).is_null()).column("p").to_pylist() == [2]


def test_an_added_column_is_null_where_it_is_missing_and_known_before_a_refresh(root):
    DeltaTable(root).alter.add_columns([Field("later", "string")])  # which only the log has
    index = build(root)
    assert index.to_table("later IS NULL").num_rows == 120
    write_deltalake(root, rows(120, 130, extra=["x"] * 10), mode="append", schema_mode="merge")
    assert index.to_table("extra = 'x'").num_rows == 10
    assert index.to_table("extra IS NULL").num_rows == 120
    assert_agrees(index, root)
    index.refresh()
    zb.build_index(root, "extra", rows_per_zone=ROWS_PER_ZONE)
    opened = zb.open_index(root)
    assert opened.columns == ["u", "extra"]
    assert opened.to_table("extra IS NULL").num_rows == 120
    assert opened.search("extra = 'x'").num_rows_kept == 10


@pytest.mark.parametrize(("kind", "zone"), [("timestamp", "UTC"), ("timestamp_ntz", None)])
def test_times_in_int96_are_those_that_spark_wrote_also_beyond_the_range_of_nanoseconds(tmp_path, kind, zone):
    """deltalake has other times then: `9999-12-31`, which often means no end, is in 1816."""
    hand_made(tmp_path, [("id", "long", 0, ""), ("t", kind, 0, "")], features=["timestampNtz"])
    moments = [dt.datetime(year, 12, 31, tzinfo=zone and dt.UTC) for year in (1, 1582, 2024, 9999)]
    table = rows(0, 4).select(["id"]).append_column("t", pa.array(moments, pa.timestamp("us", zone)))
    notes = {"org.apache.spark.version": "3.5.7"} if zone else {}
    add_file(tmp_path, "0.parquet", table, notes=notes, use_deprecated_int96_timestamps=True, store_schema=False)
    index = build(tmp_path, ["id", "t"])
    assert index.to_table("id >= 0") == table
    for number, moment in enumerate(moments):
        assert index.to_table(zb.col("t") == moment)["id"].to_pylist() == [number]
    snapshot = index.view().dataset
    for name in ("t", "other"):  # deltalake has no nanoseconds; Iceberg does, but pyiceberg writes none
        columns = {field.name: field for field in snapshot.declared.schema} | {name: pa.field(name, pa.timestamp("ns"))}
        finer = replace(snapshot, declared=replace(snapshot.declared, schema=pa.schema(columns.values())))
        with finer.open("0.parquet") as file:
            if name == "other":
                assert file.read_rows(0, [0], [4], ["t"])["t"].cast(table["t"].type) == table["t"]
            else:
                with pytest.raises(DataFileError, match="must lie from 1677 to 2262"):
                    file.read_rows(0, [0], [4], ["t"])


@pytest.mark.parametrize("mode", ["none", "name"])
def test_a_file_that_spells_a_column_in_another_case_is_refused(tmp_path, mode):
    """Spark reads the column; deltalake gives nulls."""
    hand_made(tmp_path, [("id", "long", 1, "id"), ("u", "string", 2, "u")], mode=mode)
    add_file(tmp_path, "a.parquet", rows(0, 40))
    add_file(tmp_path, "b.parquet", rows(40, 80).rename_columns(["id", "U"]))
    with pytest.warns(RuntimeWarning, match=r"b\.parquet .*always read whole"):
        index = build(tmp_path)
    assert index.search(user(7)).files == ["a.parquet", "b.parquet"]
    with pytest.raises(DataFileError, match="got U, spelled in another case"):
        index.to_table(user(7))


@pytest.mark.parametrize("has_field", [True, False])
def test_a_column_of_a_file_that_the_table_does_not_have_is_not_taken_for_a_field(tmp_path, has_field):
    """Nor a field for a column: their dotted names are one."""
    rows = pa.table({"id": range(40), "s": [{"x": f"field {row}", "y": "y"} for row in range(40)]})
    inner = {"type": "struct", "fields": [described("x" if has_field else "y", "string", 3, "", "none")]}
    fields = [("id", "long", 1, "id"), ("s", inner, 2, "s")]
    if has_field:
        rows = rows.append_column("s.x", pa.array([f"column {row}" for row in range(40)]))
    hand_made(tmp_path, fields if has_field else [*fields, ("s.x", "string", 4, "s.x")])
    add_file(tmp_path, "a.parquet", rows)
    index = zb.build_index(tmp_path, "s.x", rows_per_zone=8)
    assert index.exists("s.x", ["field 7", "column 7"]).to_pylist() == [has_field, False]
    assert index.to_table("`s.x` IS NULL").num_rows == 40 * (not has_field)
    assert plain(index.to_table("id >= 0")).equals(their_rows(tmp_path))


def hand_made(root: Path, fields, *, mode="none", partitions=(), features=()) -> None:
    """A table without files whose schema is that of `fields`: name, type, id and physical name."""
    written = [described(*field, mode) for field in fields]
    asked = [*features, *(["columnMapping"] if mode != "none" else [])]
    metadata = {
        "id": "5930095c-7b3a-42fb-b05e-786bb220480b",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": written}),
        "partitionColumns": list(partitions),
        "configuration": {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "99"},
    }
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": asked, "writerFeatures": asked}
    delta_log.commit(root, {"protocol": protocol}, {"metaData": metadata})


def add_file(root: Path, name: str, table: pa.Table, partition=None, how="little", *, notes=(), **options) -> None:
    with pq.ParquetWriter(root / name, table.schema, **options) as writer:
        writer.write_table(table, row_group_size=16)
        writer.add_key_value_metadata(dict(notes))
    size, stats = (root / name).stat().st_size, json.dumps({"numRecords": table.num_rows})
    entry = {"path": spelled(name, how), "partitionValues": partition or {}, "size": size, "modificationTime": 1}
    delta_log.commit(root, {"add": entry | {"dataChange": True, "stats": stats}})


def spelled(path: str, how: str) -> str:
    """A path as a writer may put it into the log: `little` or `much` of it encoded, or `none`."""
    return path if how == "none" else quote(path, safe="/=+:&" if how == "little" else "/")


def with_ids(table: pa.Table, ids: Sequence[int]) -> pa.Table:
    """The columns as the files of a table with mapped columns have them."""
    pairs = zip(ids, table.schema.types, strict=True)
    fields = [pa.field(f"col-{i}", kind, metadata={"PARQUET:field_id": str(i)}) for i, kind in pairs]
    return pa.Table.from_arrays(table.columns, schema=pa.schema(fields))


MAPPED = [("id", "long", 1, "col-1"), ("u", "string", 2, "col-2"), ("v", "string", 3, "col-3")]
OTHER_U = ("u", "string", 7, "col-7")
"""Another column, which took the name."""


@pytest.mark.parametrize("mode", ["incremental", "full"])
def test_a_column_that_was_away_during_a_refresh_is_found_when_it_comes_back(tmp_path, mode):
    """Its name in the files is the name that was indexed, as in a table whose columns were mapped later."""
    with_u, without = ([("id", "long", 1, "id"), ("u" if is_there else "v", "string", 2, "u")] for is_there in (1, 0))
    hand_made(tmp_path, with_u, mode="name")
    add_file(tmp_path, "a.parquet", rows(0, 40))
    index = build(tmp_path)
    hand_made(tmp_path, without, mode="name")
    add_file(tmp_path, "b.parquet", rows(40, 80))
    for _again in range(2):
        index.refresh(mode)
        assert index.to_table("id = 50").num_rows == 1
    before = zb.open_index(index.location, dataset=DeltaTable(tmp_path, version=1))
    assert before.to_table(user(7))["id"].to_pylist() == [7]
    hand_made(tmp_path, with_u, mode="name")
    for _refreshed in range(2):
        assert [index.to_table(user(row))["id"].to_pylist() for row in (7, 50)] == [[7], [50]]
        index.refresh()
    assert index.search(user(50)).num_zones_kept == 1


def test_a_widened_column(tmp_path):
    hand_made(tmp_path, [*PLAIN, ("x", "integer", 0, "")])
    add_file(tmp_path, "a.parquet", rows(0, 40, x=pa.array(range(40), pa.int32())))
    index = build(tmp_path, "x")
    hand_made(tmp_path, [*PLAIN, ("x", "long", 0, "")], features=["typeWidening"])
    add_file(tmp_path, "b.parquet", rows(40, 80, x=pa.array(range(2**40, 2**40 + 40), pa.int64())))
    for _refreshed in range(2):
        assert index.to_table("id IS NOT NULL").schema.field("x").type == pa.int64()
        assert index.to_table("id IS NOT NULL")["x"].to_pylist() == [*range(40), *range(2**40, 2**40 + 40)]
        assert index.to_table("x = 7")["id"].to_pylist() == [7]
        assert index.to_table(f"x = {2**40 + 1}")["id"].to_pylist() == [41]
        assert index.locate("x", [7, 2**40 + 1, 41], exact=True)["path"].to_pylist() == ["a.parquet", "b.parquet", None]
        assert index.files_for("x", [2**40 + 1]) == ["b.parquet"]
        index.refresh()
    index.refresh("full")
    assert index.column_type("x") == pa.int64()
    assert index.search(f"x = {2**40 + 1}").num_zones_kept == 1


def described(name: str, kind: str | dict[str, Any], number: int, stored: str, mode: str) -> dict[str, Any]:
    """A field as the log has it."""
    mapping = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": stored} if mode != "none" else {}
    return {"name": name, "type": kind, "nullable": True, "metadata": mapping}


STRUCT = {"type": "struct", "fields": [described("city", "string", 5, "col-5", "id")]}


def mapped(root: Path, mode: str, names=("id", "u", "s", "day")) -> None:
    fields = [("col-1", "long", 1), ("col-2", "string", 2), ("col-4", STRUCT, 4), ("col-3", "date", 3)]
    entries = [(name, kind, number, stored) for name, (stored, kind, number) in zip(names, fields, strict=True)]
    hand_made(root, entries, mode=mode, partitions=[names[3]])


def physical(start: int, stop: int) -> pa.Table:
    inner = pa.field("col-5", pa.string(), metadata={"PARQUET:field_id": "5"})
    cities = pa.array([{"col-5": f"city {i}"} if i % 5 else None for i in range(start, stop)], pa.struct([inner]))
    return with_ids(rows(start, stop, s=cities), [1, 2, 4])


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns_go_by_the_names_of_the_table(tmp_path, mode):
    mapped(tmp_path, mode)
    add_file(tmp_path, "a.parquet", physical(0, 40), {"col-3": "2026-01-02"})
    add_file(tmp_path, "b.parquet", physical(40, 80), {"col-3": None})
    index = zb.build_index(tmp_path, ["u", "s.city"], rows_per_zone=ROWS_PER_ZONE)
    assert_agrees(index, tmp_path)
    assert index.search(user(50)).num_zones_kept == 1
    assert index.search("s.city = 'city 57'").num_zones_kept == 1
    assert index.to_table("s.city = 'city 57'")["id"].to_pylist() == [57]
    assert index.to_table("day = DATE '2026-01-02'").num_rows == 40
    assert index.verify(sample=1.0).is_sound
    with pytest.raises(ColumnNotFoundError):
        index.to_table("\"col-2\" = 'x'")


def test_a_mode_of_mapping_that_the_protocol_does_not_support_maps_nothing(tmp_path):
    """deltalake 1.6 writes such tables: the property, and files with the names of the table."""
    for mode in ("name", "id"):
        root, local = tmp_path / mode, pa.array(range(40), pa.timestamp("us"))
        table = rows(0, 40).append_column("local", local)
        write_deltalake(root, table, configuration={"delta.columnMapping.mode": mode})
        assert "columnMapping" not in DeltaTable(root).protocol().reader_features
        index = build(root)
        assert_same(index.to_table("id IS NOT NULL"), their_rows(root))
        assert index.exists("u", table["u"][:1]).to_pylist() == [True]


@pytest.mark.parametrize("mode", ["name", "id"])
def test_a_renamed_column_is_read_whole_until_a_refresh_makes_it_anew(tmp_path, mode):
    mapped(tmp_path, mode)
    add_file(tmp_path, "a.parquet", physical(0, 40), {"col-3": "2026-01-02"})
    index = build(tmp_path)
    mapped(tmp_path, mode, ("id", "before", "s", "day"))
    with pytest.raises(ColumnNotFoundError):
        index.search(user(7))
    assert index.to_table(user(7).replace("u =", "before ="))["id"].to_pylist() == [7]
    assert_same(index.to_table("id IS NOT NULL"), their_rows(tmp_path))


def test_a_name_that_another_column_took_loses_no_row(tmp_path):
    hand_made(tmp_path, MAPPED[:2], mode="name")
    add_file(tmp_path, "a.parquet", with_ids(rows(0, 40), [1, 2]))
    index = build(tmp_path)
    assert index.search("u IS NULL").num_zones_kept == 0
    hand_made(tmp_path, [MAPPED[0], OTHER_U], mode="name")
    result = index.search("u IS NULL")
    assert ReasonCode.COLUMN_NOT_INDEXED in {reason.code for reason in result.reasons}
    assert index.to_table("u IS NULL").num_rows == 40
    assert index.to_table(user(7)).num_rows == 0
    assert index.exists("u", ["anything"]).to_pylist() == [True]
    with pytest.raises(InvalidArgumentError, match="whole table"):
        index.refresh(paths=["a.parquet"])
    index.refresh("quick")
    assert index.to_table("u IS NULL").num_rows == 40
    index.refresh()
    assert_same(index.to_table("id IS NOT NULL"), their_rows(tmp_path))
    assert index.exists("u", ["anything"]).to_pylist() == [False]
    add_file(tmp_path, "b.parquet", with_ids(rows(40, 80), [1, 7]))
    index.refresh()
    assert index.search(user(50)).num_zones_kept == 1
    assert index.to_table("u IS NULL").num_rows == 40


ID = ("id", "long", 1, "id")
A_B = ("a.b", "string", 2, "a.b")
A = ("a", {"type": "struct", "fields": [described("b", "string", 4, "b", "name")]}, 3, "a")
"""A column, and a struct with a field, as in a table whose columns were mapped later."""


def with_both(start: int, stop: int) -> pa.Table:
    fields = pa.array([{"b": f"field {i}"} for i in range(start, stop)])
    return rows(start, stop, a=fields, **{"a.b": [f"column {i}" for i in range(start, stop)]})


def test_a_field_of_a_struct_that_took_the_dotted_name_of_a_column_loses_no_row(tmp_path):
    hand_made(tmp_path, [ID, A_B, ("z", *A[1:])], mode="name")
    add_file(tmp_path, "a.parquet", with_both(0, 40))
    index = build(tmp_path, "a.b")
    hand_made(tmp_path, [ID, A], mode="name")
    for _refreshed in range(2):
        assert index.to_table("a.b = 'field 7'")["id"].to_pylist() == [7]
        index.refresh()
    assert index.search("a.b = 'field 7'").num_zones_kept == 1


def test_a_refresh_while_a_column_has_the_dotted_name_of_a_field_loses_no_row(tmp_path):
    hand_made(tmp_path, [ID, A], mode="name")
    add_file(tmp_path, "a.parquet", rows(0, 40, a=with_both(0, 40)["a"]))
    index = build(tmp_path, "a.b")
    hand_made(tmp_path, [ID, A_B, A], mode="name")
    add_file(tmp_path, "b.parquet", with_both(40, 80))
    index.refresh()
    hand_made(tmp_path, [ID, A], mode="name")
    assert index.to_table("a.b = 'field 50'")["id"].to_pylist() == [50]


def test_another_column_that_is_indexed_later_does_not_vouch_for_the_first(tmp_path):
    hand_made(tmp_path, MAPPED, mode="name")
    add_file(tmp_path, "a.parquet", with_ids(rows(0, 40, v=[f"v{i}" for i in range(40)]), [1, 2, 3]))
    build(tmp_path)
    hand_made(tmp_path, [MAPPED[0], OTHER_U, MAPPED[2]], mode="name")
    index = build(tmp_path, "v")
    assert index.to_table("u IS NULL").num_rows == 40
    assert index.search("v = 'v7'").num_zones_kept == 1
    index.refresh()
    assert index.to_table("u IS NULL").num_rows == 40
    assert index.search("u = 'x'").num_zones_kept == 0


def test_a_column_that_is_indexed_after_the_table_got_mapped_names_stands_beside_one_from_before(tmp_path):
    names = [(name, kind, number, name) for name, kind, number, _stored in MAPPED]
    hand_made(tmp_path, names)
    add_file(tmp_path, "a.parquet", rows(0, 40, v=[f"v{i}" for i in range(40)]))
    build(tmp_path)
    hand_made(tmp_path, names, mode="name")
    index = build(tmp_path, "v")
    assert index.optimize().version == index.refresh().version
    add_file(tmp_path, "b.parquet", rows(40, 80, v=[f"v{i}" for i in range(40, 80)]))
    assert index.refresh().num_files_added == 1
    assert [index.search(where).num_zones_kept for where in (user(7), user(50), "v = 'v50'")] == [1, 1, 1]


def test_a_refresh_that_a_rename_overtakes_starts_again(tmp_path):
    hand_made(tmp_path, MAPPED[:2], mode="name")
    add_file(tmp_path, "a.parquet", with_ids(rows(0, 40), [1, 2]))
    index = build(tmp_path)
    add_file(tmp_path, "b.parquet", with_ids(rows(40, 80), [1, 2]))
    overtaken = []

    def overtake(_progress) -> None:
        if not overtaken:
            overtaken.append(True)
            hand_made(tmp_path, [MAPPED[0], OTHER_U], mode="name")
            zb.open_index(tmp_path).refresh()

    index.refresh(progress=overtake)
    assert overtaken
    assert index.version == 2
    assert index.to_table("u IS NULL").num_rows == 80
    assert zb.open_index(tmp_path).exists("u", ["user 0"]).to_pylist() == [False]
    assert_same(index.to_table("id IS NOT NULL"), their_rows(tmp_path))


# --- deletion vectors -------------------------------------------------------------------------------------------------


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    """A table of one file, of 100 rows, that may have deletion vectors."""
    write_deltalake(tmp_path / "table", rows(0, 100), configuration={"delta.enableDeletionVectors": "true"})
    return tmp_path / "table"


@pytest.mark.parametrize("how", ["little", "much"])
def test_each_deletion_vector_is_of_its_own_file_where_folders_differ_by_encoding_alone(tmp_path, how):
    names = ["a b", "a%20b", "a%2520b", "é", "%C3%A9", "a+b", "a%2Bb", "a#b", "a?b"]
    hand_made(tmp_path, [*PLAIN, ("p", "string", 0, "")], partitions=["p"], features=["deletionVectors"])
    for number, name in enumerate(names):
        (tmp_path / f"p={name}").mkdir()
        add_file(tmp_path, f"p={name}/part-0.parquet", rows(10 * number, 10 * number + 10), {"p": name}, how=how)
    index = build(tmp_path)
    for number, add in enumerate(delta_log.actions(tmp_path, "add")):
        if number != 4:
            delta_log.delete_rows(tmp_path, add, [number], "i")
    left = index.to_table("id IS NOT NULL")["id"].to_pylist()
    assert sorted(set(range(90)) - set(left)) == [11 * number for number in range(9) if number != 4]
    assert_agrees(index, tmp_path)


@pytest.mark.parametrize("spelled", ["./{}", "a/../{}", "%2e/{}", "{root}/./{}", "file:{root}/{}", "file://{root}/{}"])
def test_a_path_in_the_log_is_resolved_as_a_url_and_decoded_once(tmp_path, spelled):
    hand_made(tmp_path, PLAIN, features=["deletionVectors"])
    add_file(tmp_path, "a%20b.parquet", rows(0, 10))
    log = tmp_path / "_delta_log" / f"{1:020d}.json"
    log.write_text(log.read_text().replace("a%2520b.parquet", spelled.format("a%2520b.parquet", root=tmp_path)))
    delta_log.delete_rows(tmp_path, *delta_log.actions(tmp_path, "add"), [1], "i")
    index = build(tmp_path)
    assert_agrees(index, tmp_path)
    assert index.search(user(2)).files == ["a%20b.parquet"]


@pytest.mark.parametrize("time", [-1, 1_790_000_000_000_000, 2**63 - 1])
def test_a_time_of_a_file_in_another_unit_is_no_obstacle(tmp_path, time):
    hand_made(tmp_path, PLAIN)
    add_file(tmp_path, "a.parquet", rows(0, 10))
    delta_log.commit(tmp_path, {"add": delta_log.actions(tmp_path, "add")[0] | {"modificationTime": time}})
    index = build(tmp_path)
    assert index.search(user(2)).num_zones_kept == 1
    assert_agrees(index, tmp_path)


def test_a_deletion_vector_that_is_of_no_file_is_refused(tmp_path):
    """deltalake's URL of a path with a backslash is that of another path."""
    hand_made(tmp_path, PLAIN, features=["deletionVectors"])
    add_file(tmp_path, "a\\b.parquet", rows(0, 10), how="none")
    delta_log.delete_rows(tmp_path, *delta_log.actions(tmp_path, "add"), [1], "i")
    with pytest.raises(DataFileError, match="of one file"):
        build(tmp_path).to_table("id IS NOT NULL")


# --- versions ---------------------------------------------------------------------------------------------------------


def test_nothing_is_read_again_while_the_log_stands_still(root):
    dataset = open_dataset(root)
    first = dataset.pin()
    last = root / "_delta_log" / f"{2:020d}.json"
    os.utime(last, (1, 1))
    second = dataset.pin()
    assert second.list() == first.list()
    assert dataset.pin() is second
    os.utime(last)
    assert dataset.pin() is not second
    write_deltalake(root, rows(120, 130), mode="append")
    assert dataset.pin().declared.state == {"table_version": 3}


def test_a_log_from_a_backup_goes_on_with_other_entries_of_the_same_numbers(tmp_path):
    table = tables.Delta(tmp_path)
    table.append(rows(0, 20))
    shutil.copytree(table.root / "_delta_log", tmp_path / "backup")
    table.hide([1, 2])
    index = build(table.root)
    for seconds in (1, 2):
        os.utime(table.root / "_delta_log" / f"{1:020d}.json", (seconds, seconds))
        assert_agrees(index, table.root)
        pinned = open_dataset(table.root).pin()
        shutil.rmtree(table.root / "_delta_log")
        shutil.copytree(tmp_path / "backup", table.root / "_delta_log")
        table.hide([3])
        (path,) = pinned.list()
        assert pinned.deleted_rows(path).tolist() == ([1, 2] if seconds == 1 else [3])
    assert_agrees(index, table.root)


@pytest.mark.parametrize("is_remote", [False, True])
def test_an_object_that_has_loaded_a_log_from_a_backup_has_its_rows(tmp_path, request, is_remote):
    """A `DeltaTable` keeps its files, and reads deletion vectors when it is asked, as its own scan does."""
    s3 = request.getfixturevalue("s3") if is_remote else None
    table = tables.Delta(tmp_path)
    table.append(rows(0, 20))
    shutil.copytree(table.root / "_delta_log", tmp_path / "backup")
    table.hide([1, 2])
    loaded = DeltaTable(s3.upload(table.root, "t"), storage_options=s3.options) if s3 else DeltaTable(table.root)
    index = zb.build_index(loaded, "u", index=tmp_path / "index")
    for number in (3, 4):
        shutil.rmtree(table.root / "_delta_log")
        shutil.copytree(tmp_path / "backup", table.root / "_delta_log")
        table.hide([number])
        path = table.root / "_delta_log" / f"{1:020d}.json"
        os.utime(path, (number, number))
        if s3:
            s3.upload(table.root, "t")
        loaded.load_as_version(0)
        loaded.load_as_version(1)
        for own in (index, zb.build_index(loaded, "u", index=tmp_path / str(number))):
            tables.assert_agrees(own, plain(loaded.scan()).sort_by("id"))
            assert own.to_table(user(number)).num_rows == 0


def test_an_object_that_loads_a_log_from_a_backup_later_has_its_old_rows_until_then(tmp_path):
    root = tmp_path / "t"
    write_deltalake(root, rows(0, 3))
    shutil.copytree(root, tmp_path / "backup")
    write_deltalake(root, rows(3, 5), mode="append")
    loaded = DeltaTable(root)
    shutil.rmtree(root / "_delta_log")
    shutil.copytree(tmp_path / "backup", root, dirs_exist_ok=True)
    write_deltalake(root, rows(40, 42), mode="append")
    index = build(loaded)
    assert [index.to_table(user(number)).num_rows for number in (4, 41)] == [1, 0]
    loaded.load_as_version(0)
    loaded.load_as_version(1)
    assert [index.to_table(user(number)).num_rows for number in (4, 41)] == [0, 1]


def test_an_object_has_its_rows_when_the_log_is_cleaned_and_its_deletion_vectors_are_gone(tmp_path):
    table = tables.Delta(tmp_path)
    table.append(rows(0, 20))
    table.hide([1, 2])
    loaded = table.table()
    index = build(loaded)
    theirs, hidden = table.rows().sort_by("id"), table.hidden()
    table.hide([1, 2, 3])
    table.table().create_checkpoint()
    for path in (*hidden, *sorted((table.root / "_delta_log").glob("*.json"))[:2]):
        path.unlink()
    tables.assert_agrees(index, theirs)


def test_an_object_that_moves_while_it_is_copied_is_copied_again(tmp_path, meanwhile):
    table = tables.Delta(tmp_path)
    table.append(rows(0, 20))
    loaded = table.table()
    table.overwrite(rows(20, 40))
    delta_log.delete_rows(table.root, delta_log.actions(table.root, "add")[-1], [3])
    meanwhile(delta, "_files", lambda: table.reload(loaded), is_after=True)
    assert_agrees(build(loaded), table.root)


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("features", "message"),
    [
        *((["sideways"], "sideways"), (["catalogManaged"], "catalog")),
        *(
            (["deletionVectors", beside], f"(?i)deletion vectors .*{beside}")
            for beside in ("typeWidening", "vacuumProtocolCheck", "variantShredding")
        ),
    ],
)
def test_features_that_hide_rows_or_the_log_are_refused_before_a_build(tmp_path, features, message):
    hand_made(tmp_path, PLAIN, features=features)
    add_file(tmp_path, "a.parquet", rows(0, 10))
    with pytest.raises(DataFileError, match=message):
        build(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["_delta_log", "a.parquet"]


def test_a_location_that_deltalake_takes_for_another_is_refused(root, s3):
    r"""It decodes `%20` once more, and so reads the log of `a b` for `a%20b`; and that of `a/b` for `a\b`."""
    for name in ("a b", "a%20b", "a/b", r"a\b"):
        shutil.copytree(root, root.parent / name / "t")
        s3.upload(root, f"{name}/t")
    places = [(f"{root.parent}/{name}/t", None) for name in ("a%20b", r"a\b")]
    for place, options in (*places, (s3.url("a%20b/t"), s3.options)):
        with pytest.raises(InvalidArgumentError, match=r"a(%20|\\)b/t; .* rename it"):
            zb.build_index(place, "u", storage_options=options)
    index = build(s3.url("a b/t"), storage_options=s3.options)
    assert_same(index.to_table("id IS NOT NULL"), their_rows(root))


@pytest.mark.parametrize("name", ["a#b", "a?b", "a%b", "a~b", "é+b", "day=1,(a+b)"])
def test_a_location_in_an_object_store_is_literal(vectors, s3, name):
    """deltalake 1.6 finds no deletion vectors below a location with an escape, such as %3D, which is mended here."""
    if "=" in name:
        delta_log.delete_rows(vectors, *delta_log.actions(vectors, "add"), [0])
    s3.upload(vectors, f"{name}/t")
    index = build(s3.url(f"{name}/t"), storage_options=s3.options)
    assert_same(index.to_table("id IS NOT NULL"), their_rows(vectors))
    assert index.to_table(user(50))["id"].to_pylist() == [50]
    delta_log.delete_rows(vectors, *delta_log.actions(vectors, "add")[-1:], [0])
    s3.upload(vectors, f"{name}/t")
    if "=" not in name:
        with pytest.raises(DataFileError, match=r"File not found.*; in an object store .* rename it"):
            index.to_table(user(50))


def test_a_log_with_a_checkpoint_of_version_2_is_read(root):
    """By hand, as deltalake writes none; the commits before it are gone."""
    log = root / "_delta_log"
    commits = sorted(log.glob("*.json"))
    actions = [json.loads(line) for path in commits for line in path.read_text().splitlines()]
    asked = {"readerFeatures": ["v2Checkpoint"], "writerFeatures": ["v2Checkpoint"]}
    entries: list[dict[str, Any]] = [{"checkpointMetadata": {"version": 2}}]
    entries += [{"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **asked}}]
    entries += [action for action in actions if "metaData" in action or "add" in action]
    name = f"{2:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    (log / name).write_text("\n".join(map(json.dumps, entries)))
    (log / "_last_checkpoint").write_text(json.dumps({"version": 2, "size": len(entries)}))
    (log / f"{3:020d}.json").write_text(json.dumps({"commitInfo": {"timestamp": 0, "operation": "none"}}))
    for path in commits:
        path.unlink()
    index = build(root)
    assert_agrees(index, root)
    assert index.search(user(7)).num_zones_kept == 1


def test_a_folder_that_becomes_a_table_is_not_read_as_files(root):
    log = root / "_delta_log"
    log.rename(root.parent / "log")
    index = build(root)
    (root.parent / "log").rename(log)
    with pytest.raises(DataFileError, match="as what it is"):
        index.to_table("id IS NOT NULL")


@pytest.mark.parametrize(
    ("mark", "message"),
    [("metadata/v1.metadata.json.gz", "must be a table that no catalog keeps"), (".hoodie/x", "Hudi")],
)
def test_the_folder_of_a_table_of_iceberg_with_packed_metadata_and_of_hudi_is_refused(tmp_path, mark, message):
    (tmp_path / mark).parent.mkdir()
    (tmp_path / mark).write_bytes(b"")
    pq.write_table(rows(0, 4), tmp_path / "a.parquet")
    with pytest.raises(ZoneBloomError, match=message):
        zb.build_index(tmp_path, "u")


def test_a_shallow_clone_is_refused(root):
    (root.parent / "clone").mkdir()
    add = delta_log.actions(root, "add")[0]
    entries = [{kind: delta_log.actions(root, kind)[0]} for kind in ("protocol", "metaData")]
    delta_log.commit(root.parent / "clone", *entries, {"add": add | {"path": (root / add["path"]).as_uri()}})
    with pytest.raises(DataFileError, match="cloned"):
        zb.build_index(root.parent / "clone", "u")


def test_partitions_of_a_table_are_not_named_by_folders(tmp_path):
    write_deltalake(tmp_path, rows(0, 4, day=[1] * 4), partition_by=["day"])
    index = build(tmp_path)
    with pytest.raises(InvalidArgumentError, match="by paths"):
        index.refresh(partitions={"day": 1})
    write_deltalake(tmp_path, rows(4, 8, day=[2] * 4), mode="append")
    assert index.refresh(paths=["day=1"]).num_files_added == 0
    assert index.refresh(paths=[(tmp_path / "day=2").as_uri()]).num_files_added == 1


def test_without_deltalake_the_error_says_what_to_install(root, monkeypatch):
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(MissingDependencyError, match=r'pip install "zonebloom\[delta\]"'):
        build(root)


# --- object stores ----------------------------------------------------------------------------------------------------


def test_partitions_in_an_object_store(s3):
    url = s3.url("lake/table")
    for start in (0, 40):
        new = rows(start, start + 40, p=["a b/é%"] * 40)
        write_deltalake(url, new, mode="append", partition_by=["p"], storage_options=s3.options)
    index = build(url, storage_options=s3.options)
    assert index.location == s3.url("lake/_table.zonebloom")
    assert index.to_table(f"p = 'a b/é%' AND {user(50)}")["id"].to_pylist() == [50]
    assert index.data.traffic.num_requests > 0
    with pytest.raises(DataFileError, match="as what it is"):
        build(s3.url("lake"), storage_options=s3.options)
    with pytest.raises(DataFileError, match="as what it is"):
        open_dataset(s3.url("lake"), s3.options).pin().list_under(["table"])


def test_an_absolute_path_in_an_object_store_is_decoded_as_the_protocol_says(tmp_path, s3):
    hand_made(tmp_path, PLAIN)
    add_file(tmp_path, "a b.parquet", rows(0, 4))
    log = tmp_path / "_delta_log" / f"{1:020d}.json"
    log.write_text(log.read_text().replace("a%20b", s3.url("t/a%20b")))
    index = build(s3.upload(tmp_path, "t"), storage_options=s3.options)
    assert index.to_table(user(3))["id"].to_pylist() == [3]


def test_a_row_of_an_opened_table_in_an_object_store_is_one_request_of_its_file(s3):
    """The log has the size of the file, so no request asks for it. The bytes that the log means have this size."""
    url = s3.url("table")
    write_deltalake(url, rows(0, 80), storage_options=s3.options)
    index = build(url, storage_options=s3.options)
    footers._KEPT.clear()
    with s3.server.recorded() as requests:
        assert index.to_table(user(50))["id"].to_pylist() == [50]
    assert [request.method for request in requests if request.path.endswith(".parquet")] == ["GET"]
    [name] = [key for key in s3.keys("table") if key.endswith(".parquet")]
    s3.put(name, s3.get(name) + b"PAR1")
    with pytest.raises(DataFileError, match="must not change"):
        index.to_table(user(50))


@deep_only
def test_a_store_that_throttles_or_is_gone_is_told(vectors, monkeypatch):
    monkeypatch.setitem(delta._RETRIES, "max_retries", "1")  # deltalake waits longer before each
    server = S3Server()
    url = server.bucket("bucket").upload(vectors, "t")
    index = zb.build_index(url, "u", index=vectors.parent / "index", storage_options=server.options)
    with server.misbehaving(lambda *_: "refuse"), pytest.raises(StorageError, match="503"):
        index.search(user(5))
    server.close()
    with pytest.raises(StorageError, match="no answer; check the endpoint"):
        index.search(user(5))
    assert index.version == 1
