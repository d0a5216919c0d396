"""What Iceberg tables alone have: specs of partitions, columns by ids, deletes by position, metadata and catalogs.

Oracle: pyiceberg 0.12 (`Table.scan().to_arrow()`), with an SQL catalog.
What tables of each format have is in `test_table`.
"""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import load_file_io
from pyiceberg.manifest import (
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable, Table
from pyiceberg.table.update import SetLocationUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, PrimitiveType, StringType
from pyiceberg.utils.config import Config

import zonebloom as zb
from tests import tables
from tests.child import run_python
from tests.depth import some
from tests.iceberg_log import commit_deletes, delete_rows
from tests.s3 import S3Server
from tests.tables import ROWS_PER_ZONE, assert_same, catalog_in, rows, user
from zonebloom.errors import ColumnNotFoundError, DataFileError, InvalidArgumentError, StorageError, ZoneBloomError
from zonebloom.ground.reasons import ReasonCode


def assert_agrees(index: zb.Index, table: Table) -> None:
    tables.assert_agrees(index, table.scan().to_arrow())


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    """A table of three files, of 40 rows each."""
    events = catalog.create_table("db.events", schema=rows(0, 1).schema)
    for start in (0, 40, 80):
        events.append(rows(start, start + 40))
    return events


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the index is kept."""
    return tmp_path / "index"


def build(table: object, place: Path, columns: object = "u") -> zb.Index:
    return tables.build(table, columns, index=place)


def table_of(catalog: SqlCatalog, data: pa.Table, partition: str | None = None) -> Table:
    """A table of these rows, in partitions by a column if one is named."""
    table = catalog.create_table("db.t", schema=data.schema)
    if partition:
        table.update_spec().add_identity(partition).commit()
    table.append(data)
    return table


def files_of(table: Table) -> list[str]:
    return [task.file.file_path for task in table.scan().plan_files()]


def local(path: str) -> Path:
    return Path(path.removeprefix("file://"))


# --- the files of the snapshot ----------------------------------------------------------------------------------------


def test_a_table_without_snapshots_has_no_rows(catalog, place):
    table = catalog.create_table("db.empty", schema=rows(0, 1).schema)
    with pytest.raises(DataFileError, match="at least one file"):
        build(table, place)
    table.append(rows(0, 10))
    index = build(table, place)
    table.delete("id >= 0")
    assert index.to_table("id IS NOT NULL").num_rows == 0


# --- partitions -------------------------------------------------------------------------------------------------------


def test_a_partition_column_is_indexed_like_any_other(table, place):
    """Filters alone exclude files of the older specification, the log too those of the newer one."""
    table.update_spec().add_identity("u").commit()
    table.append(rows(200, 204))
    index = build(table, place, "u")
    for num_without_value in (3, 4):
        assert index.search(user(50)).num_zones_kept == 1
        assert index.search(user(202)).kept.rows == 1
        assert index.search("u = 'nobody'").kept.rows == 0
        assert index.search(f"NOT {user(202)}").kept.files == num_without_value + 3
        assert index.search("u < 'user 0'").kept.files == num_without_value
        assert_agrees(index, table)
        assert index.exists("u", [user(50)[5:-1], "nobody"], exact=True).to_pylist() == [True, False]
        assert index.verify(sample=1.0).is_sound
        if num_without_value == 3:
            table.update_spec().remove_field("u").commit()
            table.append(rows(300, 340))
            assert index.refresh().num_files_added == 1


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_a_value_of_the_file_comes_before_that_of_the_log(catalog, place, kind):
    """pyiceberg writes doubles into manifests as floats, and both zeros into a file of either."""
    values = pa.array([0.1, 0.2, 0.0, -0.0, 1e-50, None, 2.5], pa.float64()).cast(kind)
    table = table_of(catalog, rows(0, 7, f=values), "f")
    theirs = table.scan().to_arrow().sort_by("id").select(["id", "f"])
    for columns in ("id", ["f", "id"]):
        index = zb.build_index(table, columns, index=place, rows_per_zone=ROWS_PER_ZONE, overwrite=columns != "id")
        assert str(index.to_table("id >= 0", columns=["id", "f"]).sort_by("id")) == str(theirs)
        for value in values.drop_null().to_pylist():
            wanted = theirs.filter(pc.equal(theirs["f"], value))
            assert sorted(index.to_table(zb.col("f") == value)["id"].to_pylist()) == wanted["id"].to_pylist() != []
        assert index.to_table("f IS NULL")["id"].to_pylist() == [5]
        assert sorted(index.to_table("f > 0.05 AND f < 1")["id"].to_pylist()) == [0, 1]


@pytest.mark.parametrize("has_bounds", [True, False])
def test_a_file_was_added_with_a_value_that_not_all_rows_have(catalog, place, tmp_path, has_bounds):
    """pyiceberg takes the value from bounds: it overlooks nulls, and takes null for the value where there are none."""
    values = pa.array([7, 7, None], pa.int32())
    table = catalog.create_table("db.added", schema=rows(0, 3, day=values).schema)
    table.update_spec().add_identity("day").commit()
    pq.write_table(rows(0, 3, day=values), tmp_path / "added.parquet", write_statistics=has_bounds)
    table.add_files([f"file://{tmp_path}/added.parquet"])
    index = build(table, place)
    assert sorted(index.to_table("day = 7")["id"].to_pylist()) == [0, 1]
    assert index.to_table("day IS NULL")["id"].to_pylist() == [2]


def test_a_file_that_a_snapshot_lists_twice_is_refused(table, place):
    index = build(table, place)
    table.add_files(files_of(table)[:1], check_duplicate_files=False)
    assert table.scan().to_arrow().num_rows == 160
    with pytest.raises(DataFileError, match="list each file once"):
        index.search(user(5))
    with pytest.raises(DataFileError, match="list each file once"):
        build(table, place.parent / "other")


def mapping(names: dict[int, list[str]]) -> dict[str, str]:
    """The property that says which columns a file without ids has."""
    fields = [{"field-id": number, "names": aliases} for number, aliases in names.items()]
    return {"schema.name-mapping.default": json.dumps(fields)}


def migrated(catalog: SqlCatalog, kind: PrimitiveType, days: pa.Array) -> Table:
    """A table as of Hive: pyiceberg and Spark take up its files, which lack the partition column, as they are."""
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "u", StringType()), NestedField(3, "day", kind))
    spec = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "day"))
    properties = mapping({1: ["id", "old_id"], 2: ["u"], 3: ["day"]})
    table = catalog.create_table("db.migrated", schema=schema, partition_spec=spec, properties=properties)
    table.append(rows(0, len(days), day=days))
    (first,) = files_of(table)
    bare = rows(0, len(days)).rename_columns(["old_id", "u"])
    pq.write_table(bare, local(first))
    table = catalog.load_table("db.migrated")
    _rewrite(table, FILE_SIZE, local(first).stat().st_size)
    return table


def test_files_of_a_migrated_table_lack_their_partition_column(catalog, place):
    table = migrated(catalog, IntegerType(), pa.array([1] * 20, pa.int32()))
    assert table.scan().to_arrow()["day"].to_pylist() == [1] * 20
    index = build(table, place)
    assert_agrees(index, table)
    assert index.to_table("day = 1").num_rows == 20
    assert index.to_table("day IS NULL").num_rows == 0
    assert index.search(user(7)).num_zones_kept == 1
    by_day = build(table, place.parent / "by_day", "day")
    assert by_day.to_table("day = 1").num_rows == 20
    assert by_day.search("day = 2").kept.rows == 0
    assert by_day.exists("day", [1, 2], exact=True).to_pylist() == [True, False]
    assert by_day.verify(sample=1.0).is_sound


def test_another_name_mapping_makes_another_column(catalog, place):
    """Of files without ids the table's mapping says which columns they have."""
    table = migrated(catalog, IntegerType(), pa.array([1] * 20, pa.int32()))
    index = build(table, place, ["id", "u"])
    with table.transaction() as changes:
        changes.set_properties(mapping({1: ["old_id"], 2: ["no_u"], 3: ["day"]}))
    assert index.to_table(user(7)).num_rows == 0
    assert index.to_table("u IS NULL").num_rows == 20
    assert index.to_table("id = 7").num_rows == 1
    assert index.refresh().num_files_added == 1
    assert index.search("u IS NULL").kept.rows == 20


def test_two_columns_of_a_file_that_the_mapping_has_for_one_are_refused(catalog, place):
    """pyiceberg 0.12 writes such a mapping, and reads the values of the column that was dropped."""
    table = catalog.create_table("db.t", schema=pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    pq.write_table(pa.table({"a": [1], "b": [2]}), place.parent / "a.parquet")
    table.add_files([f"{place.parent}/a.parquet"])
    table.update_schema().delete_column("b").commit()
    table.update_schema().rename_column("a", "b").commit()
    assert table.scan().to_arrow().to_pydict() == {"b": [2]}
    with pytest.raises(DataFileError, match=r"got a and b, both for b; correct the names .* schema.name-mapping"):
        build(table, place, "b")


def test_a_double_of_the_log_is_no_value_of_a_file(catalog, place):
    """pyiceberg 0.12 reads 0.1 in a manifest as 0.10000000149011612."""
    index = build(migrated(catalog, DoubleType(), pa.array([0.1] * 20)), place)
    assert index.to_table(user(7), columns=["id"]).num_rows == 1
    for condition in ("day = 0.1", user(7)):
        with pytest.raises(DataFileError, match="which pyiceberg rounded to a float"):
            index.to_table(condition)


def _rewrite(table: Table, field: int, value: object) -> None:
    """Let the only manifest of the table say something else of its data files."""
    snapshot = table.current_snapshot()
    (manifest,) = snapshot.manifests(table.io)
    entries = manifest.fetch_manifest_entry(table.io)
    output = table.io.new_output(manifest.manifest_path)
    local(manifest.manifest_path).unlink()
    added = {"status": ManifestEntryStatus.ADDED, "snapshot_id": snapshot.snapshot_id}
    with write_manifest(2, table.spec(), table.schema(), output, snapshot.snapshot_id, "null") as writer:
        for entry in entries:
            entry.data_file[field] = value
            writer.add_entry(ManifestEntry.from_args(**added, data_file=entry.data_file))
    local(snapshot.manifest_list).unlink()
    listed = table.io.new_output(snapshot.manifest_list)
    with write_manifest_list(2, listed, snapshot.snapshot_id, None, 1, "null") as manifests:
        manifests.add_manifests([writer.to_manifest_file()])


FILE_FORMAT, FILE_SIZE = 2, 5


# --- columns ----------------------------------------------------------------------------------------------------------


def test_added_and_promoted_columns(catalog, place):
    data = rows(0, 40, x=pa.array(range(40), pa.int32()), f=pa.array([i / 10 for i in range(40)], pa.float32()))
    table = table_of(catalog, data)
    index = build(table, place, ["u", "x", "f"])
    with table.update_schema() as change:
        change.update_column("x", field_type=LongType())
        change.update_column("f", field_type=DoubleType())
        change.add_column("later", StringType())
    for _refreshed in range(2):
        assert_agrees(index, table)
        assert index.to_table("later IS NULL").num_rows >= 40
        assert index.to_table("x = 7")["id"].to_pylist() == [7]
        assert index.to_table("f = 0.5")["id"].to_pylist() == [5]
        more = rows(40, 50, x=[2**40] * 10, f=[1 / 3] * 10, later=["z"] * 10)
        if table.scan().count() == 40:
            table.append(more)
        assert index.to_table(f"x = {2**40}").num_rows == 10
        assert index.to_table("f = 0.3333333333333333").num_rows == 10
        assert_agrees(index, table)
        index.refresh()
    index.refresh("full")
    assert index.search(f"x = {2**40}").num_rows_kept == 10
    assert_agrees(index, table)


def nested(start: int, stop: int) -> pa.Table:
    people = [{"city": f"city {i}", "ages": [{"age": i}]} if i % 5 else None for i in range(start, stop)]
    return rows(start, stop, s=people)


def test_renamed_columns_go_by_their_ids(catalog, place):
    table = table_of(catalog, nested(0, 40))
    with table.update_schema() as change:
        change.rename_column("u", "key")
        change.rename_column("s.city", "town")
        change.rename_column("s.ages.element.age", "years")
    index = build(table, place, ["key", "s.town"])
    assert_same(index.to_table("id IS NOT NULL"), table.scan().to_arrow())
    assert index.search(user(7).replace("u =", "key =")).num_zones_kept == 1
    assert index.search("s.town = 'city 7'").num_zones_kept == 1
    assert index.to_table("s.town = 'city 7'")["id"].to_pylist() == [7]
    with pytest.raises(ColumnNotFoundError):
        index.search(user(7))


def test_fields_of_structs_come_and_go(catalog, place):
    table = table_of(catalog, nested(0, 20))
    index = build(table, place, ["u", "s.city"])
    table.update_schema().add_column(("s", "zip"), StringType()).delete_column("s.ages").commit()
    assert_agrees(index, table)
    table.update_schema().delete_column("s.city").add_column(("s", "ages"), LongType()).commit()
    table.update_schema().add_column(("s", "city"), StringType()).commit()
    people = [{"zip": f"zip {i}", "ages": i, "city": f"city {i}"} for i in range(20, 40)]
    table.append(rows(20, 40, s=people))
    for _refreshed in range(2):
        assert_agrees(index, table)
        assert index.to_table("s.city = 'city 7'").num_rows == 0
        assert index.to_table("s.city = 'city 27'")["id"].to_pylist() == [27]
        assert index.to_table("s.city IS NULL").num_rows == 20
        index.refresh()
    assert index.search("s.city = 'city 27'").num_zones_kept == 1


def swap_names(table: Table) -> None:
    for old, new in (("u", "other"), ("v", "u"), ("other", "v")):
        table.update_schema().rename_column(old, new).commit()


def test_a_refresh_of_the_table_before_names_were_swapped_does_not_mix_with_one_after_it(catalog, place):
    table = table_of(catalog, rows(0, 40, v=[f"v{i}" for i in range(40)]))
    index = build(table, place)
    table.append(rows(100, 140, v=[f"v{i}" for i in range(100, 140)]))
    before = [zb.open_index(index.location, dataset=catalog.load_table("db.t"))]
    before[0].view()
    swap_names(table)

    def refresh_the_other(_: object) -> None:
        if before:
            before.pop().refresh()

    index = zb.open_index(index.location, dataset=table)
    index.refresh(progress=refresh_the_other)
    assert not before
    assert index.verify(sample=1.0).is_sound
    assert [index.search(f"u = 'v{i}'").num_zones_kept for i in (7, 107)] == [1, 1]
    assert_agrees(index, table)


def test_swapped_names_are_read_whole_until_a_refresh_makes_them_anew(catalog, place):
    table = table_of(catalog, rows(0, 40, v=[f"v{i}" for i in range(40)]))
    index = build(table, place, ["u", "v"])
    swap_names(table)
    result = index.search("u = 'v7'")
    assert ReasonCode.COLUMN_NOT_INDEXED in {reason.code for reason in result.reasons}
    assert index.to_table("u = 'v7'")["id"].to_pylist() == [7]
    assert index.locate("u", ["v7"], exact=True)["row"].to_pylist() == [7]
    assert index.verify(sample=1.0).is_sound
    assert_agrees(index, table)
    index.refresh()
    assert index.verify(sample=1.0).is_sound
    assert index.search("u = 'v7'").num_zones_kept == 1
    assert_agrees(index, table)


def test_a_name_that_was_dropped_and_added_again_loses_no_row(table, place):
    index = build(table, place)
    table.update_schema().delete_column("u").commit()
    with pytest.raises(ColumnNotFoundError):
        index.search(user(7))
    assert index.to_table("id = 7").num_rows == 1
    index.refresh()
    table.update_schema().add_column("u", StringType()).commit()
    table.append(rows(200, 210))
    for _refreshed in range(2):
        assert index.to_table("u IS NULL").num_rows == 120
        assert index.to_table(user(7)).num_rows == 0
        assert index.to_table(user(205))["id"].to_pylist() == [205]
        assert_same(index.to_table("id IS NOT NULL"), table.scan().to_arrow())
        index.refresh()
    assert index.search(user(205)).num_zones_kept <= 2


# --- deletes ----------------------------------------------------------------------------------------------------------


def same_file_again(path: Path, first: int) -> str:
    """A file of one name and one size, whatever its values."""
    data = pa.table({"id": pa.array(range(first, first + 40), pa.int64())})
    pq.write_table(data, path, compression="none", use_dictionary=False)
    return path.as_uri()


def made_anew(catalog: SqlCatalog, table: Table, path: Path) -> Table:
    catalog.drop_table("db.t")
    table = catalog.create_table("db.t", schema=pa.schema([("id", pa.int64())]), location=table.location())
    table.add_files([same_file_again(path, 1000)])
    return table


def file_again(_catalog: SqlCatalog, table: Table, path: Path) -> Table:
    table.delete("id >= 0")
    table.add_files([same_file_again(path, 1000)])
    return table


@pytest.mark.parametrize("change", [made_anew, file_again])
def test_other_bytes_under_the_same_name_are_read_whole_until_a_refresh(catalog, place, tmp_path, change):
    path = tmp_path / "part-0.parquet"
    table = catalog.create_table("db.t", schema=pa.schema([("id", pa.int64())]))
    table.add_files([same_file_again(path, 0)])
    size = path.stat().st_size
    index = build(table, place, "id")
    table = change(catalog, table, path)
    assert path.stat().st_size == size
    index = zb.open_index(place, dataset=table)
    assert index.search("id = 1005").num_rows_kept == 40
    for _refreshed in range(2):
        assert index.to_table("id = 1005").num_rows == 1
        assert index.exists("id", [5, 1005], exact=True).to_pylist() == [False, True]
        index.refresh()
    assert index.search("id = 1005").num_rows_kept == ROWS_PER_ZONE
    assert index.search("id = 5").num_rows_kept == 0


def test_files_of_the_same_relative_path_are_told_apart_when_the_location_changes(catalog, place, tmp_path):
    """One snapshot added both, and they are equally large."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    table = catalog.create_table("db.t", schema=pa.schema([("id", pa.int64())]), location=here.as_uri())
    table.add_files([same_file_again(here / "a.parquet", 0), same_file_again(there / "a.parquet", 1000)])
    index = build(table, place, "id")
    with table.transaction() as transaction:
        transaction._apply((SetLocationUpdate(location=there.as_uri()),), ())
    for _refreshed in range(2):
        assert [index.to_table(f"id = {key}").num_rows for key in (5, 1005, 2005)] == [1, 1, 0]
        index.refresh()
    assert index.search("id = 1005").num_rows_kept == ROWS_PER_ZONE


@pytest.mark.parametrize("scheme", ["", "file://"])
@pytest.mark.parametrize("before_dots", ["link", "nothing"])
def test_a_file_with_dots_in_its_location_is_the_one_that_pyiceberg_opens(
    catalog, place, tmp_path, scheme, before_dots
):
    """Without a scheme pyiceberg cuts `link/..` as text; in a URL the system follows the link first."""
    for number, folder in enumerate(["files", "elsewhere/files"]):
        (tmp_path / folder).mkdir(parents=True)
        same_file_again(tmp_path / folder / "a.parquet", 1000 * number)
    (tmp_path / "elsewhere" / "app").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "app")
    table = catalog.create_table("db.t", schema=pa.schema([("id", pa.int64())]))
    location = f"{scheme}{tmp_path}/{before_dots}/../files/a.parquet"
    try:
        table.add_files([location])
    except FileNotFoundError:
        assert (scheme, before_dots) == ("file://", "nothing")
        return
    index = build(table, place, "id")
    for key in (5, 1005):
        assert index.to_table(f"id = {key}").num_rows == len(table.scan(f"id = {key}").to_arrow())


def test_files_that_stay_are_known_though_their_manifests_are_rewritten(table, place):
    build(table, place)
    before = set(files_of(table))
    merging = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}
    table.transaction().set_properties(merging).commit_transaction()
    table.append(rows(120, 130))
    table.delete("id < 40")
    table.append(rows(130, 140))
    assert len(table.current_snapshot().manifests(table.io)) == 1
    assert len(before & set(files_of(table))) == 2
    assert zb.open_index(place, dataset=table).refresh().num_files_kept == 2


def test_positions_outside_of_a_file_delete_nothing_and_those_that_are_there_twice_delete_once(table, place, tmp_path):
    index = build(table, place)
    positions = [-(2**63), -1, 3, 3, 40, 2**32 - 1, 2**32, 2**63 - 1]
    delete_rows(table, tmp_path / "odd.parquet", {files_of(table)[0]: positions})
    assert table.scan().to_arrow().num_rows == 119
    assert_agrees(index, table)


def test_deletes_in_a_partition_of_nan_are_refused(catalog, tmp_path):
    """pyiceberg 0.12 looks them up by the partition, and NaN equals none: the deleted rows would come back."""
    table = catalog.create_table("db.floats", pa.schema([("k", pa.int64()), ("v", pa.float64())]))
    with table.update_spec() as spec:
        spec.add_identity("v")
    table.append(pa.table({"k": [1, 2], "v": [1.5, 1.5]}))
    delete_rows(table, tmp_path / "d.parquet", {files_of(table)[0]: [0]}, partition=Record(float("nan")))
    with pytest.raises(DataFileError, match=r"got deletes in a partition of NaN, .* rewrite its data files"):
        zb.build_index(table, "k", index=tmp_path / "index")


def test_equality_deletes_are_refused_by_name(table, place, tmp_path):
    index = build(table, place)
    pq.write_table(rows(0, 1), tmp_path / "equal.parquet")
    commit_deletes(table, tmp_path / "equal.parquet", DataFileContent.EQUALITY_DELETES)
    with pytest.raises(DataFileError, match="equality deletes"):
        index.search(user(7))


# --- versions ---------------------------------------------------------------------------------------------------------


def test_a_table_by_its_name_is_that_of_the_catalog_now_whatever_its_index_was_built_of(  # noqa: PLR0917 - fixtures
    catalog, table, place, tmp_path, monkeypatch, run
):
    """Of a metadata file, which means that file for ever, or of a table that had the same place."""
    monkeypatch.setenv("PYICEBERG_CATALOG__HERE__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    older, name = table.metadata_location, "iceberg:here.db.events"
    for index in (None, place):
        zb.build_index(older, "u", index=index)
    catalog.register_table("db.copy", older)
    table.append(rows(7000, 7001))
    opened = zb.open_index(name)
    assert_agrees(opened, table)
    table.append(rows(8000, 8001))
    assert opened.to_table("id = 8000").num_rows == 1
    for path, num_rows in ((name, 1), ("iceberg:here.db.copy", 0), (place, 0)):
        code, out, _ = run("scan", path, "-w", "id = 8000", "--index", place)
        assert (code, len(out.splitlines())) == (0, 1 + num_rows)
    assert run("scan", local(table.location()), "-w", "id = 8000", "--index", place).code == 2
    assert zb.open_index(name).refresh().num_files_added == 2


def test_an_index_opened_without_its_table_asks_the_catalog_of_that_name(table, place, tmp_path, monkeypatch):
    build(table, place)
    with pytest.raises(InvalidArgumentError, match="by dataset="):
        zb.open_index(place).search(user(7))
    assert zb.open_index(place, dataset=table).status().table["snapshot_id"] == table.current_snapshot().snapshot_id
    text = (place / "versions" / f"{1:020d}.json").read_text()
    assert "sqlite" not in text
    monkeypatch.setenv("PYICEBERG_CATALOG__HERE__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    zb.build_index("iceberg:here.db.events", "id")
    assert_agrees(zb.open_index("iceberg:here.db.events"), table)
    with pytest.raises(InvalidArgumentError, match=r"iceberg:CATALOG\.NAMESPACE\.TABLE, got events"):
        zb.build_index("iceberg:events", "id")
    code = f"import zonebloom as zb; print(zb.open_index({str(place)!r}).to_table({user(7)!r})['id'].to_pylist())"
    assert run_python(code).stdout == "[7]\n"
    for uri in (f"sqlite:///{tmp_path}/gone/catalog.db", "http://127.0.0.1:9"):
        monkeypatch.setenv("PYICEBERG_CATALOG__HERE__URI", uri)
        monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
        with pytest.raises(StorageError, match="check that the catalog is up"):
            zb.open_index(place).search(user(7))


def test_a_place_is_not_that_of_the_table_that_has_its_name_now(catalog, table, place, tmp_path, monkeypatch):
    build(table, place)
    monkeypatch.setenv("PYICEBERG_CATALOG__HERE__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    catalog.rename_table("db.events", "db.old")
    catalog.create_table("db.events", schema=rows(0, 1).schema, location=f"file://{tmp_path}/elsewhere")
    with pytest.raises(DataFileError, match=r"must be the one at .*, got one at .*elsewhere; name it: iceberg:here"):
        zb.open_index(place).search(user(7))


def test_a_restore_does_not_take_back_which_table_the_index_is_of(table, place):
    build(local(table.metadata_location), place)
    table.append(rows(120, 130))
    zb.open_index(place, dataset=local(table.metadata_location)).refresh()
    zb.open_index(place).restore(1)
    assert_agrees(zb.open_index(place), table)


def test_files_are_read_with_the_access_of_the_table_as_it_is_loaded_now(table, place, tmp_path):
    """A catalog gives credentials anew with each load, and those of before expire."""
    delete_rows(table, tmp_path / "d.parquet", {files_of(table)[0]: [3]})
    index, before = build(table, place), table.io
    assert index.to_table("id = 7").num_rows == 1
    table.io = load_file_io(before.properties, table.metadata_location)
    view = index.view()
    assert view.dataset.opener.args[0] is view.dataset.deletes.args[0] is table.io
    assert index.to_table("id IS NOT NULL").num_rows == 119


def test_a_metadata_file_stands_for_itself(table, place):
    path = local(table.metadata_location)
    index = build(path, place)
    table.append(rows(120, 130))
    assert index.to_table("id IS NOT NULL").num_rows == 120
    assert zb.open_index(place).to_table("id IS NOT NULL").num_rows == 120
    newer = zb.open_index(place, dataset=local(table.metadata_location))
    assert_agrees(newer, table)
    assert newer.refresh().num_files_added == 1
    assert zb.open_index(place).to_table("id IS NOT NULL").num_rows == 130
    static = StaticTable.from_metadata(table.metadata_location)
    for given in (static, table):
        opened = zb.open_index(place, dataset=given)
        assert opened.view().num_unknown == 0
        assert_agrees(opened, table)


def test_an_index_that_is_opened_by_a_metadata_file_stands_for_that_file(catalog, table, run):
    older = build(local(table.metadata_location), None)
    table.append(rows(120, 130))
    for _refreshed in range(2):
        newer = zb.open_index(local(table.metadata_location))
        assert newer.location == older.location
        assert newer.to_table(user(121)).num_rows == 1
        assert run("scan", local(table.metadata_location), "--where", user(121)).out.count("user") == 1
        assert_agrees(newer, table)
        newer.refresh()
    assert "iceberg, snapshot id" in " ".join(run("status", local(table.metadata_location)).out.split())
    assert zb.open_index(older.location).to_table(user(121)).num_rows == 1


def test_metadata_of_format_3(table, place, tmp_path):
    """Written by hand: pyiceberg 0.12 reads it, and writes none. Its deleted rows are deletion vectors."""
    delete_rows(table, tmp_path / "v.puffin", {files_of(table)[0]: [3, 4]})
    path = Path(local(table.metadata_location))
    metadata = json.loads(path.read_text())
    metadata |= {"format-version": 3, "next-row-id": 120}
    for snapshot in metadata["snapshots"]:
        snapshot |= {"first-row-id": 0, "added-rows": 40}
    newer = path.with_name(f"00099-{path.name.split('-', 1)[1]}")
    newer.write_text(json.dumps(metadata))
    table = StaticTable.from_metadata(str(newer))
    assert table.format_version == 3
    index = build(table, place)
    assert_agrees(index, table)
    assert index.to_table("id IS NOT NULL").num_rows == table.scan().to_arrow().num_rows == 118
    assert index.search(user(7)).num_zones_kept == 1


def test_a_damaged_deletion_vector_is_an_error(table, place, tmp_path):
    delete_rows(table, tmp_path / "v.puffin", {files_of(table)[0]: [0, 1, 5, 17]})
    index, sound = build(table, place), (tmp_path / "v.puffin").read_bytes()
    for byte in range(4, sound.index(b"PFA1", 4)):
        (tmp_path / "v.puffin").write_bytes(sound[:byte] + bytes([sound[byte] ^ 1]) + sound[byte + 1 :])
        with pytest.raises(DataFileError, match=r"v.puffin must be readable, got a vector of .* with another checksum"):
            zb.open_index(index.location, dataset=table).to_table("id >= 0")


def test_a_damaged_manifest_is_an_error(table, place):
    """pyiceberg's reader of Avro ends in errors of seven kinds, some of zlib and of C."""
    index = build(table, place)
    for path in Path(local(table.metadata_location)).parent.glob("*.avro"):
        sound = path.read_bytes()
        for byte in range(0, len(sound), len(sound) // 24):
            path.write_bytes(sound[:byte] + bytes([sound[byte] ^ 0x55]) + sound[byte + 1 :])
            with contextlib.suppress(ZoneBloomError):
                zb.open_index(index.location, dataset=table.metadata_location).search(user(7))
        path.write_bytes(sound)
    assert index.search(user(7)).num_zones_kept == 1


def test_a_folder_whose_metadata_a_catalog_names_is_refused(table, place):
    with pytest.raises(InvalidArgumentError, match="name it iceberg:CATALOG"):
        build(local(table.location()), place)


def test_a_folder_without_a_catalog_stands_for_its_highest_version(table, place):
    folder = local(table.location())
    for number, path in enumerate(sorted((folder / "metadata").glob("*.metadata.json"))):
        path.rename(folder / "metadata" / f"v{number + 8}.metadata.json")
    index = build(folder, place)
    assert index.to_table("id IS NOT NULL").num_rows == 120
    (folder / "metadata" / "v11.metadata.json").rename(folder / "later")
    assert index.to_table("id IS NOT NULL").num_rows == 80
    (folder / "later").rename(folder / "metadata" / "v11.metadata.json")
    assert zb.open_index(place).to_table("id IS NOT NULL").num_rows == 120
    (folder / "metadata" / "v12.metadata.json.gz").touch()  # an old name of compressed metadata
    with pytest.raises(InvalidArgumentError, match=r"got v12\.metadata\.json\.gz"):
        index.to_table("id = 1")


# --- what is refused --------------------------------------------------------------------------------------------------


def test_a_file_without_ids_in_a_table_without_a_name_mapping_is_refused(catalog, place):
    table = table_of(catalog, rows(0, 20))
    (path,) = map(local, files_of(table))
    pq.write_table(rows(0, 20), path)
    _rewrite(table, FILE_SIZE, path.stat().st_size)
    with pytest.raises(DataFileError, match="name mapping"):
        build(table, place)


def test_a_file_whose_ids_and_names_say_different_columns_is_refused(catalog, place, tmp_path):
    """If some column has no id, pyiceberg goes by the name mapping; Java goes by ids if a column has one."""
    (path,) = map(local, files_of(table_of(catalog, rows(0, 20))))
    new = pq.ParquetFile(path).read().append_column("new", pa.array(range(20)))  # keeps the ids of the columns
    pq.write_table(new, tmp_path / "a.parquet")
    for number, schema in enumerate((new.schema, pa.schema(list(new.schema)[::-1]))):
        plain = pa.schema([field.remove_metadata() for field in schema])
        table = catalog.create_table(f"db.t{number}", schema=plain)
        table.add_files([str(tmp_path / "a.parquet")])
        if number:
            with pytest.raises(DataFileError, match="field ids for all columns, or for none, got an id of"):
                build(table, tmp_path / "refused")
        else:
            assert_same(build(table, place).to_table("id = 7"), table.scan("id = 7").to_arrow())


def test_a_property_that_is_no_name_mapping_is_an_error(catalog, place):
    table = table_of(catalog, rows(0, 20))
    with table.transaction() as change:
        change.set_properties({"schema.name-mapping.default": "garbage"})
    with pytest.raises(DataFileError, match=r"the name mapping of .* must be one that pyiceberg can read"):
        build(table, place)


def test_a_column_with_an_initial_default_is_refused(table, tmp_path, place):
    metadata = json.loads(local(table.metadata_location).read_text())
    metadata |= {"format-version": 3, "next-row-id": 0}
    metadata["schemas"][-1]["fields"][1]["initial-default"] = "x"
    (tmp_path / "v1.metadata.json").write_text(json.dumps(metadata))
    with pytest.raises(DataFileError, match="initial default"):
        build(tmp_path / "v1.metadata.json", place)


def test_values_of_partitions_that_are_not_of_their_column_are_an_error(catalog, tmp_path, place):
    table = table_of(catalog, rows(0, 20, day=pa.array([1] * 20, pa.int32())), "day")
    metadata = json.loads(local(table.metadata_location).read_text())
    metadata["schemas"][-1]["fields"][2]["type"] = "string"
    (tmp_path / "v1.metadata.json").write_text(json.dumps(metadata))
    with pytest.raises(DataFileError, match=r"the data files of .* must be one that pyiceberg can read"):
        build(tmp_path / "v1.metadata.json", place)


def test_data_files_other_than_parquet_are_refused(catalog, place):
    table = table_of(catalog, rows(0, 20))
    _rewrite(table, FILE_FORMAT, FileFormat.ORC)
    with pytest.raises(DataFileError, match="Parquet, got ORC"):
        build(table, place)


# --- object stores ----------------------------------------------------------------------------------------------------


def test_a_row_of_an_opened_table_takes_two_requests_of_its_file(s3, tmp_path, place):
    remote = tables.Iceberg(tmp_path, s3)
    remote.append(rows(0, 20_000))
    index = build(remote.table, place)
    with s3.server.recorded() as requests:
        assert_same(index.to_table(user(60)), rows(60, 61))
    assert [request.method for request in requests if re.search("/data/.*parquet$", request.path)] == ["HEAD", "GET"]
    remote.close()


def test_storage_options_read_metadata_in_a_bucket_and_s3a_is_s3(s3, tmp_path):
    location = s3.url("t")
    table = catalog_in(s3, tmp_path).create_table("db.t", rows(0, 1).schema, location=f"s3a{location[2:]}")
    table.append(rows(0, 40))
    tables.build(table.metadata_location, storage_options=s3.options)
    index = zb.open_index(table.metadata_location, storage_options=s3.options)
    assert_same(index.to_table(user(7)), rows(7, 8))
    assert index.search(user(7)).files[0].startswith("data/")
    tables.build(table, storage_options=s3.options, overwrite=True)
    with pytest.raises(InvalidArgumentError, match="has no catalog there"):  # and not that it is no table
        zb.open_index(table.location(), storage_options=s3.options).status()


@pytest.mark.parametrize("file_io", some(["pyarrow.PyArrowFileIO", "fsspec.FsspecFileIO"], 2))
def test_a_store_that_is_gone_is_told(tmp_path, place, file_io, monkeypatch):
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")  # botocore waits longer before each attempt
    server = S3Server()
    catalog = catalog_in(server.bucket("bucket"), tmp_path, **{"py-io-impl": f"pyiceberg.io.{file_io}"})
    table = catalog.create_table("db.t", schema=rows(0, 1).schema)
    table.append(rows(0, 40))
    index = build(table, place)
    server.close()
    with pytest.raises(StorageError, match="no answer; check the endpoint"):
        index.refresh("full")
    assert (index.version, index.search(user(5)).num_zones_kept) == (1, 1)
    with pytest.raises(StorageError, match="no answer; check the endpoint"):  # of the manifests, too
        zb.build_index(table, "id", index=place)
    catalog.close()
