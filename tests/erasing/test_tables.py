"""Rows erased from Delta and Iceberg tables, to the proof that no file on the disk holds them.

Oracle: every Parquet file below the table's folder, read by pyarrow, whoever names it.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import shutil
from decimal import Decimal
from functools import partial
from itertools import product
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.table import TableMerger
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import StaticTable
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.table.update.snapshot import ExpireSnapshots
from pyiceberg.types import StringType

import zonebloom as zb
from tests import delta_log
from tests.formats.test_delta import add_file, hand_made
from zonebloom.erasing import iceberg
from zonebloom.erasing.journal import Journal
from zonebloom.errors import DataFileError, InvalidArgumentError

COLUMNS = {
    "text": (pa.string(), lambda row: f"user '{row}'"),
    'we ird"': (pa.int64(), lambda row: row),
    "blob": (pa.binary(), lambda row: row.to_bytes(4, "big")),
}


def rows(first, stop) -> pa.Table:
    values = {name: pa.array(map(of, range(first, stop)), kind) for name, (kind, of) in COLUMNS.items()}
    return pa.table({**values, "x": pa.array(range(first, stop), pa.int64())})


def on_disk(folder) -> list[int]:
    """`x` of each row in all data files, old ones too."""
    files = [path for path in Path(folder).rglob("*.parquet") if "_delta_log" not in path.parts]
    return sorted(x for path in files for x in pq.read_table(path)["x"].to_pylist())


def delta_table(folder, column="text", num_files=1, **configuration) -> Path:
    """A Delta table of files of 100 rows, with an index."""
    root = folder / "table"
    for first in range(0, 100 * num_files, 100):
        write_deltalake(root, rows(first, first + 100), mode="append", configuration=configuration)
    zb.build_index(root, column, rows_per_zone=10)
    return root


@pytest.mark.parametrize("column", COLUMNS)
def test_no_file_of_a_delta_table_holds_erased_rows(tmp_path, column):
    root = delta_table(tmp_path, column, 3)
    DeltaTable(root).delete("x = 250")  # its old file holds 207 too
    of = COLUMNS[column][1]
    done = zb.erase(root, column, [of(7), of(207), of(999)], record=tmp_path / "erased.json")
    assert (done.num_rows_erased, done.num_rows_left, done.kind) == (2, 0, "delta")
    assert done.table_versions[0] == 3 < done.table_versions[1]
    assert on_disk(root) == sorted({*range(300)} - {7, 207, 250})
    assert len(done.files) == 2
    assert len(done.removed) == 3
    assert [holder for holder in done.still_held if "_delta_log" not in holder] == []
    log = "".join(path.read_text() for path in (root / "_delta_log").glob("*.json"))
    assert "user ''7''" not in log
    assert zb.open_index(root).status().is_fresh


@pytest.mark.parametrize(
    ("properties", "until"),
    [
        ({}, "until a checkpoint is written after 30 days"),
        ({"delta.logRetentionDuration": "interval 2 weeks"}, "until a checkpoint is written after 2 weeks"),
        ({"delta.enableExpiredLogCleanup": "false"}, "as delta.enableExpiredLogCleanup = false"),
    ],
)
def test_the_log_of_a_delta_table_is_told_with_the_conditions_of_former_deletes(tmp_path, properties, until):
    root = delta_table(tmp_path, **properties)
    DeltaTable(root).delete("x = 7")
    (holder,) = zb.erase(root, "text", ["user '7'"]).still_held
    assert "x = 7" in (root / "_delta_log" / f"{1:020d}.json").read_text()
    assert holder.startswith(f"{root}/_delta_log: conditions of former deletes")
    assert holder.endswith(until)


def test_a_delta_table_that_is_given_moves_on_with_the_erasure(tmp_path):
    root = delta_table(tmp_path)
    table = DeltaTable(root)
    write_deltalake(root, rows(100, 200), mode="append")
    assert zb.erase(table, "text", ["user '150'", "user '7'"]).num_rows_erased == 2
    assert table.to_pyarrow_table().num_rows == 198
    done = zb.erase(table, "text", ["user '151'"])
    assert done.removed == tuple(file.path for file in done.files)  # without those of the first call


def test_a_given_delta_table_whose_log_came_from_a_backup_is_erased_from_as_it_is_now(tmp_path):
    root = delta_table(tmp_path)
    shutil.copytree(root / "_delta_log", tmp_path / "backup")
    write_deltalake(root, rows(100, 200), mode="append")
    table = DeltaTable(root)
    shutil.rmtree(root / "_delta_log")
    shutil.copytree(tmp_path / "backup", root / "_delta_log")
    write_deltalake(root, rows(7, 8), mode="append")
    assert zb.erase(table, "text", ["user '7'"]).num_rows_erased == 2
    assert DeltaTable(root).to_pyarrow_table().num_rows == table.to_pyarrow_table().num_rows == 99


@pytest.mark.parametrize("is_index", [False, True])
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_rows_that_come_at_the_end_of_an_erasure_from_a_given_table_are_told(
    tmp_path, catalog, meanwhile, kind, is_index
):
    if kind == "delta":
        given, place = DeltaTable(delta_table(tmp_path)), tmp_path / "_table.zonebloom"
        append = partial(write_deltalake, tmp_path / "table", mode="append")
    else:
        given, place = iceberg_table(catalog), tmp_path / "index"
        zb.build_index(given, "text", rows_per_zone=10, index=place)

        def append(added):
            catalog.load_table("db.t").append(added)

    meanwhile(zb.Index, "vacuum", lambda: append(rows(7, 8)))
    source = zb.open_index(place, dataset=given) if is_index else given
    done = zb.erase(source, "text", ["user '7'"], index=None if is_index else place)
    assert (done.num_rows_erased, done.num_rows_left) == (1, 1)


def iceberg_table(catalog):
    table = catalog.create_table("db.t", rows(0, 1).schema)
    for first in (0, 100, 200):
        table.append(rows(first, first + 100))
    return table


@pytest.fixture
def table(tmp_path, catalog):
    """An Iceberg table with an index of `text`."""
    three_files = iceberg_table(catalog)
    zb.build_index(three_files, "text", rows_per_zone=10, index=tmp_path / "index")
    return three_files


def interrupt() -> None:
    raise KeyboardInterrupt


def place_of(table) -> Path:
    return Path(table.location().removeprefix("file://"))


@pytest.mark.parametrize("column", ["text", "blob"])
def test_no_file_of_an_iceberg_table_holds_erased_rows(tmp_path, catalog, column):
    table, of = iceberg_table(catalog), COLUMNS[column][1]
    zb.build_index(table, column, rows_per_zone=10, index=tmp_path / "index")
    table.delete("x = 250")
    stray = place_of(table) / "data" / "stray.parquet"
    pq.write_table(rows(500, 501), stray)
    sketch, old = (place_of(table) / "metadata" / f"{name}.puffin" for name in ("sketch", "old"))
    for path in (sketch, old):
        path.write_bytes(b"hashes of values")
    described = {"statistics-path": old.as_uri(), "file-size-in-bytes": 16, "file-footer-size-in-bytes": 8}
    described |= {"snapshot-id": table.current_snapshot().snapshot_id, "blob-metadata": []}
    with table.update_statistics() as update:
        update.set_statistics(StatisticsFile(**described))
    done = zb.erase(table, column, [of(7), of(207)], index=tmp_path / "index", record=tmp_path / "erased.json")
    assert (done.num_rows_erased, done.num_rows_left, done.kind) == (2, 0, "iceberg")
    does = "the table does not name it; remove it if no other table and no writer does"
    assert done.still_held == (f"{stray}: {does}", f"{sketch}: {does}")
    stray.unlink()
    assert not old.exists()
    assert on_disk(place_of(table)) == sorted({*range(300)} - {7, 207, 250})
    assert len(table.snapshots()) == 1
    manifests = {f"file://{path}" for path in (place_of(table) / "metadata").rglob("*.avro")}
    current = table.current_snapshot()
    named = {current.manifest_list, *(manifest.manifest_path for manifest in current.manifests(table.io))}
    assert manifests == named
    assert not any(manifest.deleted_files_count for manifest in current.manifests(table.io))  # with their values
    assert table.scan().to_arrow().num_rows == 297


@pytest.mark.parametrize("transform", ["identity", "truncate[4]", "bucket[4]"])
def test_paths_that_name_what_was_erased_are_told(tmp_path, catalog, transform):
    table = catalog.create_table("db.t", pa.schema([("text", pa.string())]))
    with table.update_spec() as spec:
        spec.add_field("text", transform)
    table.append(pa.table({"text": ["alice", "bob"]}))
    zb.build_index(table, "text", index=tmp_path / "index")
    done = zb.erase(table, "text", ["alice"], index=tmp_path / "index")
    assert b"=alic" not in b"".join(path.read_bytes() for path in (tmp_path / "index").rglob("*.arrow"))
    assert ("=alic" in done.files[0].path) == ("this record too" in "".join(done.still_held)) == (transform[0] != "b")
    assert f"zonebloom.erase('{place_of(table)}', 'text', ...)" == done.command


def test_no_values_change_nothing(table, tmp_path):
    table.delete("x = 250")
    before = len(table.snapshots())
    done = zb.erase(table, "text", [], index=tmp_path / "index")
    assert (done.num_rows_erased, done.num_rows_left, len(table.refresh().snapshots())) == (0, 0, before)


@pytest.mark.parametrize(
    "stop",
    [
        (iceberg, "delete_at", True),  # the snapshot is there, and no step says so
        (ExpireSnapshots, "commit", True),  # the files that only expired snapshots named are named nowhere now
        (PyArrowFileIO, "delete", True),
        (zb.Index, "vacuum", False),
    ],
    ids=["delete", "expire", "remove", "vacuum"],
)
def test_an_erasure_from_an_iceberg_table_that_is_stopped_goes_on(tmp_path, catalog, meanwhile, table, stop):
    owner, name, is_after = stop
    options = {"index": tmp_path / "index", "record": tmp_path / "erased.json"}
    gone = ["user '7'", "user '207'"]
    meanwhile(owner, name, interrupt, is_after=is_after)
    with pytest.raises(KeyboardInterrupt):
        zb.erase(table, "text", gone, **options)
    done = zb.erase(catalog.load_table("db.t"), "text", gone, **options)
    assert (done.num_rows_erased, done.num_rows_left, len(done.files), done.still_held) == (2, 0, 2, ())
    assert on_disk(place_of(table)) == sorted({*range(300)} - {7, 207})
    assert {path.suffix for path in map(Path, done.removed)} == {".parquet", ".avro"}


@pytest.mark.parametrize(
    ("owner", "name"), [(TableMerger, "execute"), (DeltaTable, "vacuum")], ids=["delete", "vacuum"]
)
def test_an_erasure_from_a_delta_table_that_is_stopped_goes_on(tmp_path, meanwhile, owner, name):
    root, gone = delta_table(tmp_path, num_files=2), ["user '7'", "user '107'"]
    meanwhile(owner, name, interrupt, is_after=True)
    with pytest.raises(KeyboardInterrupt):
        zb.erase(root, "text", gone, record=tmp_path / "erased.json")
    done = zb.erase(root, "text", gone, record=tmp_path / "erased.json")
    assert (done.num_rows_erased, done.num_rows_left, len(done.files), len(done.removed)) == (2, 0, 2, 2)
    assert on_disk(root) == sorted({*range(200)} - {7, 107})


@pytest.mark.parametrize("change", ["moved", "deleted"])
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_rows_that_others_move_or_delete_after_a_stop_are_counted_once_or_not_at_all(
    tmp_path, catalog, meanwhile, kind, change
):
    """The stopped call had deleted nothing, although the files that it noted do not hold the rows any more."""
    gone, options = ["user '7'", "user '107'"], {"index": tmp_path / "index", "record": tmp_path / "erased.json"}
    if kind == "delta":
        given = str(delta_table(tmp_path, num_files=2))
        options["index"] = zb.open_index(given).location
        meanwhile(TableMerger, "execute", interrupt)
    else:
        given = iceberg_table(catalog)
        zb.build_index(given, "text", rows_per_zone=10, index=options["index"])
        meanwhile(iceberg, "delete_at", interrupt)
    with pytest.raises(KeyboardInterrupt):
        zb.erase(given, "text", gone, **options)
    table = DeltaTable(given) if kind == "delta" else catalog.load_table("db.t")
    if change == "deleted":
        table.delete("x = 7 or x = 107")
    elif kind == "delta":
        table.optimize.compact()
    else:
        table.overwrite(table.scan().to_arrow())
    done = zb.erase(given, "text", gone, **options)
    assert (done.num_rows_erased, done.num_rows_left) == (2 if change == "moved" else 0, 0)


@pytest.mark.parametrize("spelled", ["{}/events//data", "{}/link/data", "{}/other/../events/data"])
def test_a_live_file_is_not_told_as_unnamed_however_its_folder_is_spelled(tmp_path, catalog, spelled):
    root, folder = tmp_path / "events", f"file://{spelled.format(tmp_path)}"
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(root)
    texts = rows(0, 100).select(["text"])
    properties = {"write.data.path": folder}
    table = catalog.create_table("db.t", texts.schema, location=root.as_uri(), properties=properties)
    table.append(texts)
    zb.build_index(table, "text", index=tmp_path / "index")
    former = root / "data" / "former.parquet"
    shutil.copy(next(root.rglob("*.parquet")), former)
    done = zb.erase(table, "text", ["user '7'"], index=tmp_path / "index")
    told = {Path(holder.partition(": the table does not name it")[0]).resolve() for holder in done.still_held}
    assert told == {former.resolve()}


def test_a_table_that_shares_its_files_is_refused(tmp_path, catalog):
    texts = rows(0, 100).select(["text"])
    table = catalog.create_table("db.t", texts.schema)
    table.append(texts)
    clone = catalog.create_table("db.clone", texts.schema, properties={"gc.enabled": "false"})
    clone.add_files([task.file.file_path for task in table.scan().plan_files()])
    zb.build_index(clone, "text", rows_per_zone=10, index=tmp_path / "index")
    with pytest.raises(InvalidArgumentError, match=r"gc\.enabled"):
        zb.erase(clone, "text", ["user '7'"], index=tmp_path / "index")
    assert clone.refresh().scan().to_arrow().num_rows == table.scan().to_arrow().num_rows == 100


def test_a_table_that_is_loaded_without_its_old_snapshots_is_refused(tmp_path, catalog, monkeypatch, table):
    """As REST catalogs do with `snapshot-loading-mode=refs`."""
    load, before = catalog.load_table, table.refresh().metadata

    def loaded(name):
        whole = load(name)
        heads = {ref.snapshot_id for ref in whole.metadata.refs.values()}
        kept = [snapshot for snapshot in whole.snapshots() if snapshot.snapshot_id in heads]
        whole.metadata = whole.metadata.model_copy(update={"snapshots": kept})
        return whole

    monkeypatch.setattr(catalog, "load_table", loaded)
    with pytest.raises(InvalidArgumentError, match=r"loaded with all snapshots .* got 2 fewer than its metadata"):
        zb.erase(table, "text", ["user '7'"], index=tmp_path / "index")
    monkeypatch.undo()
    assert table.refresh().metadata == before


@pytest.mark.parametrize("where", ["elsewhere", "in a folder of its properties", "in its folder"])
def test_a_file_of_others_that_was_added_stays_and_is_told(tmp_path, catalog, where):
    """Its folder may be read by itself, or be of another table, too, which has the same `write.data.path`."""
    columns = rows(0, 100).select(["text", "x"])
    shared = {"write.data.path": (tmp_path / "lake").as_uri()} if where == "in a folder of its properties" else {}
    table = catalog.create_table("db.t", columns.schema, properties=shared)
    lake = (place_of(table) if where == "in its folder" else tmp_path) / "lake" / "a.parquet"
    lake.parent.mkdir(parents=True)
    pq.write_table(columns, lake)
    table.add_files([str(lake)])
    zb.build_index(table, "text", rows_per_zone=10, index=tmp_path / "index")
    done = zb.erase(table, "text", ["user '7'"], index=tmp_path / "index")
    assert sorted(table.refresh().scan().to_arrow()["x"].to_pylist()) == sorted({*range(100)} - {7})
    assert pq.read_table(lake)["x"].to_pylist() == [*range(100)]
    why = "outside of the table's folder" if where == "elsewhere" else "of a table with a name mapping"
    assert [holder.partition(f": {why}")[0] for holder in done.still_held] == [str(lake)]
    (lake.parent / "b.parquet").write_bytes(lake.read_bytes())
    others = [] if where == "elsewhere" else [str(lake), str(lake.with_name("b.parquet"))]
    held = zb.erase(table, "text", ["nobody"], index=tmp_path / "index").still_held  # not less than the record before
    assert [holder.partition(": the table does not name it")[0] for holder in held] == others


def test_a_file_that_snapshots_spell_in_two_ways_stays(tmp_path, catalog):
    table = catalog.create_table("db.t", rows(0, 1).schema)
    path = place_of(table) / "added.parquet"
    path.parent.mkdir(exist_ok=True)
    pq.write_table(rows(0, 100), path)
    table.add_files([str(path)])
    table.delete("x >= 0")
    table.add_files([path.as_uri()])
    zb.build_index(table, "text", rows_per_zone=10, index=tmp_path / "index")
    assert zb.erase(table, "text", ["nobody"], index=tmp_path / "index").num_rows_left == 0
    assert table.refresh().scan().to_arrow().num_rows == 100


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_other_names_of_removed_files_are_told(request, tmp_path, kind):
    """As of a backup by `cp -al`."""
    table = delta_table(tmp_path) if kind == "delta" else request.getfixturevalue("table")
    folder = tmp_path / "table" if kind == "delta" else Path(table.location().removeprefix("file://"))
    files = [path for path in folder.rglob("*.parquet") if "_delta_log" not in path.parts]
    held = next(path for path in files if 7 in pq.read_table(path)["x"].to_pylist())
    (tmp_path / "backup.parquet").hardlink_to(held)
    done = zb.erase(table, "text", ["user '7'"], index=None if kind == "delta" else tmp_path / "index")
    assert any(told.startswith(f"{held}: its old content stays") for told in done.still_held)


def test_snapshots_of_tags_are_told_and_stay(tmp_path, table):
    tagged = table.current_snapshot().snapshot_id
    table.manage_snapshots().create_tag(tagged, "audit").commit()
    done = zb.erase(table, "text", ["user '7'"], index=tmp_path / "index")
    assert done.still_held == (f"tag audit of {table.location()}: snapshot {tagged}; erase from it, or drop it",)
    assert 7 in table.scan(snapshot_id=tagged).to_arrow()["x"].to_pylist()


def test_a_snapshot_that_is_still_to_be_published_stays(tmp_path, table):
    """Write, audit, publish: Spark commits with `spark.wap.id` to no branch, until somebody picks the snapshot."""
    for name in ("a", "b"):
        table.append(rows(300, 310), snapshot_properties={"wap.id": name})
        table.manage_snapshots().set_current_snapshot(table.current_snapshot().parent_snapshot_id).commit()
    table.append(rows(300, 310), snapshot_properties={"published-wap-id": "b"})
    waiting = next(snapshot.snapshot_id for snapshot in table.snapshots() if snapshot.summary["wap.id"] == "a")
    done = zb.erase(table, "text", ["user '7'"], index=tmp_path / "index")
    told = f"snapshot {waiting} of {table.location()}, staged by wap.id a: publish or expire it, and erase again"
    assert done.still_held == (told,)
    assert sorted(table.scan(snapshot_id=waiting).to_arrow()["x"].to_pylist()) == [*range(310)]
    assert {snapshot.snapshot_id for snapshot in table.snapshots()} == {waiting, table.metadata.current_snapshot_id}


@pytest.mark.parametrize("when", ["names are read", "snapshots are expired"])
def test_a_branch_that_returns_to_an_old_snapshot_during_an_erasure_stays(tmp_path, catalog, meanwhile, table, when):
    first = table.history()[0].snapshot_id

    def return_to_first():
        catalog.load_table("db.t").manage_snapshots().rollback_to_snapshot(first).commit()

    if when == "names are read":
        meanwhile(Journal, "add", return_to_first, is_after=True, when=lambda _, step, __: step == "unnamed")
    else:
        catalog.rounds = [[], [], [return_to_first]]
    done = zb.erase(catalog.load_table("db.t"), "text", ["user '7'", "user '207'"], index=tmp_path / "index")
    assert done.num_rows_left == 1
    assert catalog.load_table("db.t").scan().to_arrow()["x"].to_pylist() == [*range(100)]


@pytest.mark.parametrize("when", ["the delete", "an append of nothing"])
def test_a_commit_to_another_branch_delays_an_erasure_but_does_not_stop_it(tmp_path, catalog, table, when):
    table.manage_snapshots().create_branch(table.metadata.current_snapshot_id, "others").commit()
    catalog.rounds = [[]] * (when != "the delete")
    catalog.rounds.append([lambda: catalog.load_table("db.t").append(rows(0, 0), branch="others")])
    done = zb.erase(catalog.load_table("db.t"), "text", ["user '7'"], index=tmp_path / "index")
    assert (done.num_rows_erased, done.num_rows_left, catalog.rounds) == (1, 0, [])
    assert [told for told in done.still_held if "branch others" not in told] == []


def test_rows_that_come_while_an_iceberg_table_is_erased_from_are_counted(tmp_path, catalog, table):
    catalog.rounds = [[lambda: catalog.load_table("db.t").append(rows(7, 9))]]
    done = zb.erase(table, "text", ["user '7'"], index=tmp_path / "index")
    assert (done.num_rows_erased, done.num_rows_left, len(done.files)) == (2, 0, 2)
    assert catalog.load_table("db.t").scan().to_arrow().num_rows == 300


def test_rows_of_a_column_whose_name_another_one_takes_are_not_told_as_erased(tmp_path, catalog, meanwhile, table):
    def take_its_name():
        other = catalog.load_table("db.t")
        other.update_schema().rename_column("text", "former").commit()
        other.update_schema().add_column("text", StringType()).commit()

    meanwhile(Journal, "add", take_its_name, is_after=True, when=lambda _, step, __: step == "held")
    done = zb.erase(table, "text", ["user '7'"], index=tmp_path / "index")
    assert (done.num_rows_erased, done.num_rows_left, done.files) == (0, 0, ())
    assert catalog.load_table("db.t").scan().to_arrow().num_rows == 300


@pytest.mark.parametrize("when", ["an append of nothing", "the expiry"])
def test_snapshots_that_another_writer_expires_meanwhile_are_no_error(tmp_path, catalog, table, when):
    def beaten() -> None:
        other = catalog.load_table("db.t")
        other.append(rows(300, 310))
        others = {snapshot.snapshot_id for snapshot in other.snapshots()} - {other.metadata.current_snapshot_id}
        other.maintenance.expire_snapshots().by_ids(list(others)).commit()

    catalog.rounds = [[], [beaten]] if when == "an append of nothing" else [[], [], [beaten]]
    done = zb.erase(catalog.load_table("db.t"), "text", ["user '7'"], index=tmp_path / "index")
    assert (done.num_rows_left, len(catalog.load_table("db.t").snapshots())) == (0, 1)
    is_told = any(".parquet: the table does not name it" in holder for holder in done.still_held)
    assert {*on_disk(place_of(table))} == {*range(310)} - (set() if is_told else {7})


def test_a_table_without_a_catalog_is_refused(tmp_path, catalog):
    table = iceberg_table(catalog)
    zb.build_index(table.metadata_location, "text", rows_per_zone=10)
    before = sorted(tmp_path.rglob("*"))
    index = zb.open_index(table.metadata_location).root
    static_table = StaticTable.from_metadata(table.metadata_location)
    for given, value in product((table.metadata_location, static_table), ("user '7'", "nobody")):
        with pytest.raises(InvalidArgumentError, match="of a catalog, got StaticTable"):
            zb.erase(given, "text", [value], index=index, record=tmp_path / "erased.json")
    assert sorted(tmp_path.rglob("*")) == before


def append_only(root) -> None:
    DeltaTable(root).alter.set_table_properties({"delta.appendOnly": "true"})


def unknown_feature(root) -> None:
    features = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["domainMetadata", "rowTracking"]}
    delta_log.commit(root, {"protocol": features})


def structs(root) -> None:
    write_deltalake(root, pa.table({"s": [{"text": "user '7'"}]}), mode="overwrite", schema_mode="overwrite")
    zb.build_index(root, "s.text", rows_per_zone=10)


@pytest.mark.parametrize(
    ("change", "column", "error", "told"),
    [
        (append_only, "text", InvalidArgumentError, "appendOnly = true; set this property to false"),
        (unknown_feature, "text", DataFileError, "got Unsupported .*; delete with the engine that writes it"),
        (structs, "s.text", InvalidArgumentError, "top-level"),
    ],
)
def test_a_delta_table_that_deltalake_cannot_change_is_refused_with_what_to_do(tmp_path, change, column, error, told):
    """Nothing is left of it: no file of the table, no journal."""
    root = delta_table(tmp_path)
    change(root)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(error, match=told):
        zb.erase(root, column, ["user '7'"], record=tmp_path / "erased.json")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_delta_table_whose_columns_are_mapped_by_id_stays_as_it_is(tmp_path):
    """deltalake 1.6 finds columns by name: of a file with other names it would write nulls for all other rows."""
    hand_made(tmp_path / "t", [("k", "long", 1, "col-1")], mode="id")
    field = pa.field("before", pa.int64(), metadata={"PARQUET:field_id": "1"})
    add_file(tmp_path / "t", "a.parquet", pa.table([[1, 2]], schema=pa.schema([field])))
    index = zb.build_index(tmp_path / "t", "k")
    assert index.to_table("k >= 0")["k"].to_pylist() == [1, 2]
    with pytest.raises(DataFileError, match=r"no column, .* deltalake changes .*by their ids; delete with the"):
        zb.erase(tmp_path / "t", "k", [1])
    assert DeltaTable(tmp_path / "t").version() == 1


@pytest.mark.parametrize(
    ("kind", "spelled"),
    [("decimal(4,2)", "-1.25"), ("string", "__HIVE_DEFAULT_PARTITION__"), ("timestamp", "2020-01-01T00:00:00.000000Z")],
    ids=["decimal", "text", "instant"],
)
def test_a_delta_table_whose_partitions_deltalake_changes_stays_as_it_is(tmp_path, kind, spelled):
    """deltalake 1.6 writes -1.25 as -1.-25, which no reader takes, and a text as null.

    It writes an instant without its zone, which Spark then reads in the zone of the session.
    """
    root = tmp_path / "table"
    write_deltalake(root, pa.table({"k": [1, 2, 3], "p": ["b"] * 3}), partition_by=["p"])
    log = root / "_delta_log" / f"{0:020d}.json"
    text = log.read_text().replace('{"p":"b"}', f'{{"p":"{spelled}"}}').split(r"\"p\",\"type\":\"string", 1)
    log.write_text(rf"\"p\",\"type\":\"{kind}".join(text))
    zb.build_index(root, "k", rows_per_zone=10)
    before = zb.open_index(root).to_table("k = 2").to_pylist()
    with pytest.raises(DataFileError, match=r"or partition that deltalake changes .*; delete with the"):
        zb.erase(root, "k", [1])
    assert DeltaTable(root).version() == 0
    assert zb.open_index(root).to_table("k = 2").to_pylist() == before != []


def put_in_place(root, rows, *, by_spark=False, **options) -> None:
    """Let the only file of a Delta table be one of another writer."""
    (path,) = root.glob("*.parquet")
    with pq.ParquetWriter(path, rows.schema, **options) as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata({"org.apache.spark.version": "3.5.7"} if by_spark else {})
    log = root / "_delta_log" / f"{0:020d}.json"
    log.write_text(re.sub(r'"size":\d+', f'"size":{path.stat().st_size}', log.read_text()))


def maps_of(*fields: str) -> pa.MapType:
    return pa.map_(pa.string(), pa.struct([(name, pa.int64()) for name in fields]))


@pytest.mark.parametrize(
    ("held", "kind"),
    [
        (pa.array([1000, 1500], pa.timestamp("ns", "UTC")), pa.timestamp("us", "UTC")),
        (pa.array([[1000], [1500]], pa.list_(pa.timestamp("ns"))), pa.list_(pa.timestamp("us"))),
        (pa.array([1.0, 2.5]), pa.int32()),
        (pa.array([b"a", b"\xff"]), pa.string()),
        (pa.array([[("m", {"a": 1, "x": 5})]] * 2, maps_of("a", "x")), maps_of("a", "b")),
    ],
    ids=["time", "list", "number", "text", "map"],
)
def test_a_delta_table_whose_values_deltalake_cuts_stays_as_it_is(tmp_path, held, kind):
    """deltalake 1.6 casts what it rewrites: 1500 ns to 1 us, 2.5 to 2. In a map it takes x for b."""
    root, k, record = tmp_path / "table", pa.array([1, 2]), tmp_path / "record.json"
    exact = pa.table({"k": k, "v": pa.array([held[0].as_py()] * 2, kind)})
    write_deltalake(root, exact)
    put_in_place(root, pa.table({"k": k, "v": held}))
    zb.build_index(root, "k", rows_per_zone=10)
    with pytest.raises(DataFileError, match=r"that deltalake changes .*column v of "):
        zb.erase(root, "k", [1], record=record)
    assert DeltaTable(root).version() == 0
    write_deltalake(root, exact, mode="overwrite")  # as another engine rewrites the files
    assert zb.erase(root, "k", [1], record=record).num_rows_erased == 1


def test_a_delta_table_whose_structs_have_got_a_map_is_erased_from(tmp_path):
    for number, fields in enumerate([["a"], ["a", "pairs"]]):
        kind = pa.struct([(name, maps_of("a") if name == "pairs" else pa.int64()) for name in fields])
        values = pa.array([{"a": number}] * 2, kind)
        write_deltalake(tmp_path / "t", pa.table({"k": [1, 2], "v": values}), mode="append", schema_mode="merge")
    zb.build_index(tmp_path / "t", "k", rows_per_zone=10)
    assert zb.erase(tmp_path / "t", "k", [1]).num_rows_erased == 2
    assert [row["a"] for row in DeltaTable(tmp_path / "t").to_pyarrow_table()["v"].to_pylist()] in ([0, 1], [1, 0])


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.float64(), [1.5, float("inf")]),
        (pa.float32(), [1.5, float("nan")]),
        (pa.decimal128(16, 2), [Decimal("99999999999999.99"), Decimal(1)]),
        (pa.decimal128(38, 10), [Decimal("1234567890123456789.01"), Decimal(1)]),
        (pa.struct([("x", pa.decimal128(20, 2))]), [{"x": Decimal("123456789012345678.91")}] * 2),
    ],
    ids=str,
)
def test_rows_that_stay_in_a_delta_table_are_found_by_the_bounds_of_its_log(tmp_path, kind, values):
    """deltalake 1.6 writes wrong bounds for these: decimals as doubles, no infinity and no NaN."""
    root = tmp_path / "table"
    write_deltalake(root, pa.table({"k": [1, 2, 3], "d": [7, 8, 9], "v": pa.array([*values, None], kind)}))
    zb.build_index(root, "k", rows_per_zone=10)
    assert zb.erase(root, "k", [3]).num_rows_erased == 1
    added = delta_log.actions(root, "add")[-1]
    bounds = json.loads(added["stats"])
    assert bounds["minValues"] == {"k": 1, "d": 7}
    assert bounds["maxValues"] == {"k": 2, "d": 8}
    assert bounds["numRecords"] == 2


@pytest.mark.parametrize("by_spark", [False, True])
@pytest.mark.parametrize("year", [2262, 9999])
def test_a_delta_table_with_times_that_deltalake_misreads_stays_as_it_is(tmp_path, year, by_spark):
    """deltalake 1.6 has INT96 in nanoseconds, which end in 2262: it would write 9999-12-31 as a day of 1816."""
    root = tmp_path / "table"
    times = pa.array([dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.datetime(year, 1, 1, tzinfo=dt.UTC)])
    rows = pa.table({"k": [1, 2], "t": times})
    write_deltalake(root, rows)
    put_in_place(root, rows, by_spark=by_spark, use_deprecated_int96_timestamps=True, store_schema=False)
    zb.build_index(root, "k", rows_per_zone=10)
    if year == 9999:
        with pytest.raises(DataFileError, match=r"that deltalake changes .*times of INT96 .*; delete with the"):
            zb.erase(root, "k", [1])
    else:
        assert zb.erase(root, "k", [1]).num_rows_left == 0
    assert zb.open_index(root).to_table("k = 2")["t"].to_pylist() == [times[1].as_py()]


def test_a_delta_table_with_letters_beyond_ascii_in_its_paths_stays_as_it_is(tmp_path):
    """Spark logs them so. deltalake 1.6 removes the path with escapes: the old file would stay beside the new one."""
    root = tmp_path / "table"
    write_deltalake(root, pa.table({"k": [1, 2, 3], "p": ["Zürich"] * 3}), partition_by=["p"])
    (root / "p=Z%C3%BCrich").rename(root / "p=Zürich")
    log = root / "_delta_log" / f"{0:020d}.json"
    log.write_text(log.read_text().replace("p=Z%25C3%25BCrich", "p=Zürich"))
    zb.build_index(root, "k", rows_per_zone=10)
    with pytest.raises(DataFileError, match=r"path .* deltalake changes .*got p=Zürich/part-.*; delete with the"):
        zb.erase(root, "k", [1])
    assert DeltaTable(root).to_pyarrow_table()["k"].to_pylist() == [1, 2, 3]


@pytest.mark.parametrize("key", ["user '7'", "nobody"])
@pytest.mark.parametrize("spelled", ["./{}", "{root}/{}", "file://{root}/{}"])
def test_a_file_of_a_delta_table_that_was_removed_by_another_path_stays(tmp_path, spelled, key):
    """deltalake 1.6 removes it in a vacuum, as it compares paths."""
    root = delta_table(tmp_path, num_files=2)
    add = delta_log.actions(root, "add")[1]
    delta_log.commit(root, {"remove": {"path": add["path"], "dataChange": True, "deletionTimestamp": 1}})
    delta_log.commit(root, {"add": add | {"path": spelled.format(add["path"], root=root)}})
    with pytest.raises(DataFileError, match=r"each file by one path, .*got part-.*; rewrite it"):
        zb.erase(root, "text", [key])
    assert DeltaTable(root).count() == 200 - (key != "nobody")
    assert zb.open_index(root).to_table("x >= 100").num_rows == 100


def test_an_erasure_from_a_delta_table_that_has_lost_a_file_is_told(tmp_path):
    root = delta_table(tmp_path, num_files=2)
    (root / delta_log.actions(root, "add")[1]["path"]).unlink()
    with pytest.raises(DataFileError, match=r"from which deltalake can delete, got .* not found"):
        zb.erase(root, "text", ["user '7'"])


def test_a_delta_table_that_is_restored_before_its_vacuum_keeps_its_files(tmp_path, meanwhile):
    root = delta_table(tmp_path)
    meanwhile(DeltaTable, "vacuum", lambda: DeltaTable(root).restore(0), is_after=True)
    done = zb.erase(root, "text", ["user '7'"])
    assert (done.num_rows_left, on_disk(root)) == (1, [*range(100)])
    assert len(done.removed) == 1
    assert DeltaTable(root).file_uris() == [path.as_posix() for path in root.glob("*.parquet")]


def test_a_delta_table_that_loses_files_before_its_vacuum_is_vacuumed_again(tmp_path, meanwhile):
    root = delta_table(tmp_path)
    meanwhile(
        DeltaTable, "vacuum", lambda: DeltaTable(root).delete("x = 50"), when=lambda _, dry_run, **__: not dry_run
    )
    done = zb.erase(root, "text", ["user '7'"])
    assert (done.num_rows_left, on_disk(root)) == (0, sorted({*range(100)} - {7, 50}))
    assert len(done.removed) == 2


def test_rows_of_a_change_feed_and_of_another_writer_are_told_and_erased(tmp_path, meanwhile):
    """Another commit comes between the plan and the commit of a delete: the rows are found and deleted again."""
    root = delta_table(tmp_path, **{"delta.enableChangeDataFeed": "true"})
    meanwhile(DeltaTable, "merge", lambda: write_deltalake(root, rows(7, 9), mode="append"))
    done = zb.erase(root, "text", ["user '7'"])
    assert (done.num_rows_erased, done.num_rows_left) == (2, 0)
    assert done.still_held[0].startswith(f"{root}/_change_data/")


@pytest.mark.parametrize(
    ("change", "num_files"),
    [
        (lambda other: other.optimize.compact(), 1),
        (lambda other: other.alter.set_table_properties({"delta.logRetentionDuration": "interval 3 days"}), 2),
        (lambda other: other.alter.add_columns([Field("new", "string")]), 2),
    ],
    ids=["compaction", "property", "column"],
)
def test_an_erasure_that_another_writer_overtakes_goes_on_and_counts_rows_once(tmp_path, meanwhile, change, num_files):
    root = delta_table(tmp_path, num_files=2)
    meanwhile(DeltaTable, "merge", lambda: change(DeltaTable(root)), is_after=True)
    done = zb.erase(root, "text", ["user '3'", "user '103'"])
    assert (done.num_rows_erased, done.num_rows_left, len(done.files)) == (2, 0, num_files)


def test_names_of_removed_files_in_the_snapshot_of_a_tag_are_told(tmp_path, table):
    table.delete("x < 100")
    table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "kept").commit()
    _tag, holder = zb.erase(table, "text", ["user '7'"], index=tmp_path / "index").still_held
    assert holder.startswith(f"{table.location()}/metadata: names of removed files, with least and greatest values")
    table.manage_snapshots().remove_tag("kept").commit()
    assert zb.erase(table, "text", ["user '7'"], index=tmp_path / "index").still_held == ()


def test_a_dry_run_changes_no_table(tmp_path):
    root = delta_table(tmp_path)
    assert zb.erase(root, "text", ["user '7'"], dry_run=True).num_rows_erased == 1
    assert (DeltaTable(root).version(), on_disk(root)) == (0, [*range(100)])


def test_a_lance_table_is_refused_with_what_to_run(tmp_path):
    lance.write_dataset(rows(0, 100), tmp_path / "t.lance")
    zb.build_index(tmp_path / "t.lance", "text", rows_per_zone=10)
    with pytest.raises(InvalidArgumentError, match="cleanup_old_versions"):
        zb.erase(tmp_path / "t.lance", "text", ["user '7'"])
