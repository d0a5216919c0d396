"""A build on a cluster makes the index that the library makes, whatever happens to its tasks.

Oracle: `zonebloom.build_index` over the same files.
"""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from functools import partial

import pyarrow as pa
import pytest

import zonebloom
from tests.conftest import make_rows
from tests.depth import deep_only, some
from tests.spark import faults
from tests.spark.rows import plain_read, write
from tests.storage.test_locator import without_checksums
from zonebloom.engines.spark import runner as building
from zonebloom.engines.spark.executors import is_connect, perform, pickled
from zonebloom.engines.spark.runner import SparkRunner
from zonebloom.errors import (
    ColumnNotFoundError,
    DataFileError,
    IndexExistsError,
    IndexNotFoundError,
    InvalidArgumentError,
    StorageError,
    UnsupportedTypeError,
)
from zonebloom.formats import open_dataset
from zonebloom.indexing.fill import BuildPlan, Unit, inspect
from zonebloom.indexing.optimize import finish
from zonebloom.spark import ZoneBloom
from zonebloom.storage.options import IndexOptions
from zonebloom.stores.local import LocalStore

COLUMNS = ["user_id", "device_id", "amount"]


def files_of(index) -> set[str]:
    """Segments on disk."""
    return {path.name for path in index.glob("columns/*/*")}


def named_files(index) -> set[str]:
    """Segments that the current version names."""
    manifest = zonebloom.open_index(index)._snapshot.manifest
    return {path.rpartition("/")[2] for entry in manifest.columns for path in entry.files}


def assert_same_index(built, wanted, columns=COLUMNS):
    ours, theirs = zonebloom.open_index(built), zonebloom.open_index(wanted)
    for column in columns:
        assert ours.zone_table(column).to_arrow().equals(theirs.zone_table(column).to_arrow())


# --- the same index ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("source", "kind"), some([("path", "both"), ("files", "locator"), ("frame", "bloom")], 2))
def test_an_index_equals_the_librarys(any_spark, make_lake, tmp_path, source, kind):
    """Its locators do once they are merged."""
    lake = make_lake((5000, 3000, 1, 0, 700), partition_by_day=True, row_group_size=1024, name="lake é [1] 100%")
    given = {
        "path": lake.root,
        "files": [lake.root / path for path in lake.files],
        "frame": plain_read(any_spark, lake.root),
    }[source]
    ours, wanted = tmp_path / "made", tmp_path / "wanted"
    options, seen = {"rows_per_zone": 512, "kind": kind}, []
    index = ZoneBloom(any_spark).create_index(given, COLUMNS, index=ours, tasks=5, progress=seen.append, **options)
    zonebloom.build_index(lake.root, COLUMNS, index=wanted, **options)
    assert [progress.rows for progress in seen] == sorted(progress.rows for progress in seen)
    assert seen[-1].rows == seen[-1].total_rows == 8701
    assert len(seen) > 3
    assert index.version == 1
    assert index.search(zonebloom.col("user_id") == lake.table["user_id"][77].as_py()).num_zones_kept < 3
    assert files_of(ours) == named_files(ours)
    if kind != "locator":
        assert_same_index(ours, wanted)
    locators = []
    for place in (ours, wanted):
        index = zonebloom.open_index(place)
        index.optimize()
        segments = [segment for column in index.view().snapshot.manifest.columns for segment in column.segments]
        locators.append([without_checksums(place, entry) for entry in segments if entry.kind == "locator"])
    assert len(locators[0]) == (0 if kind == "bloom" else len(COLUMNS))
    assert locators[0] == locators[1]


def test_a_frame_of_a_whole_folder_means_the_folder(any_spark, flat_lake, tmp_path):
    zb, plain = ZoneBloom(any_spark), plain_read(any_spark, flat_lake.root)
    whole = zb.create_index(plain, "user_id")
    assert whole.data.location == str(flat_lake.root)
    first = plain_read(any_spark, flat_lake.root / flat_lake.files[0])
    assert zb.create_index(first, "user_id", index=tmp_path / "x").num_fragments == 1
    plain.createOrReplaceTempView("scanned")
    for frame in (plain, plain.alias("a"), any_spark.table("scanned")):
        assert zb.refresh_index(frame).num_files_kept == 3
    flat_lake.append("part-9.parquet", make_rows(100, seed=9))
    assert zb.refresh_index(flat_lake.root).num_files_added == 1
    assert zb.refresh_index(tmp_path / "x").num_files_added == 0


def test_a_large_file_among_small_ones_is_no_single_task():
    runner = SparkRunner(None, num_tasks=6)
    runner._cluster._slots = 2
    large = [Unit("large", start, start + 300_000) for start in range(0, 3_300_000, 300_000)]
    units = [Unit("small", 0, 500), *large, Unit("other", 0, 500)]
    shares = runner._shares(units, 3_301_000)
    assert sorted(map(repr, (unit for share in shares for unit in share))) == sorted(map(repr, units))
    assert len(shares) == 6
    assert max(sum(unit.stop - unit.start for unit in share) for share in shares) == 600_000


def test_footers_of_many_files_are_read_by_executors(spark, make_lake, tmp_path, monkeypatch):
    monkeypatch.setattr(building, "_FOOTERS_PER_TASK", 1)
    monkeypatch.setattr(building, "Threads", None)
    lake = make_lake((300, 200, 100))
    (lake.root / "part-2.parquet").write_bytes(b"no Parquet")
    with pytest.warns(RuntimeWarning, match=r"part-2\.parquet must be a whole Parquet file"):
        index = ZoneBloom(spark).create_index(lake.root, "user_id")
    assert index.num_fragments == 2
    result = index.search(zonebloom.col("user_id") == "nobody")
    assert [file.rpartition("/")[2] for file in result.files] == ["part-2.parquet"]


def test_what_a_task_gives_back_does_not_grow_with_its_filters(flat_lake, tmp_path):
    dataset = open_dataset(flat_lake.root).pin()
    fragments = [inspect(dataset, path, fingerprint, 7)[0] for path, fingerprint in dataset.list().items()]
    units = [Unit(fragments[0], 0, fragments[0].num_rows)]
    sizes = []
    for fpp in (0.05, 1e-6):
        store, options = LocalStore(tmp_path / str(fpp)), IndexOptions(64, fpp, kind="both")
        plan = BuildPlan(dataset, store, {"user_id": pa.string()}, options, workers=1)
        common = pickled(("zonebloom.indexing.fill", "build_units", plan))
        batch = pa.RecordBatch.from_pydict({"id": [0]})
        sizes.append(sum(batch_out.nbytes for batch_out in perform(common, [pickled(units)], [batch])))
        assert sum(path.stat().st_size for path in (tmp_path / str(fpp)).rglob("*.*")) > 10 * sizes[-1]
    assert sizes[1] < 1.1 * sizes[0]


# --- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", some(["build_twice", "build_at_the_second_attempt", "build_or_die"], 3))
def test_a_task_that_is_run_again_changes_nothing(spark, make_lake, tmp_path, monkeypatch, fault):
    assert_survives(spark, make_lake, tmp_path, monkeypatch, fault)


def assert_survives(spark, make_lake, tmp_path, monkeypatch, fault):
    lake = make_lake((3000, 2500, 2000, 1500, 1000, 500))
    ours, wanted = tmp_path / "made", tmp_path / "wanted"
    monkeypatch.setattr(building, "build_units", getattr(faults, fault))
    ZoneBloom(spark).create_index(lake.root, COLUMNS, index=ours, rows_per_zone=256, tasks=2)
    zonebloom.build_index(lake.root, COLUMNS, index=wanted, rows_per_zone=256)
    assert faults.was_first(ours)
    assert_same_index(ours, wanted)
    orphans = files_of(ours) - named_files(ours)
    assert orphans or fault != "build_twice"  # who dies before the first batch of zones is full has written nothing
    ZoneBloom(spark).vacuum_index(ours, older_than=timedelta(0))
    assert files_of(ours) == named_files(ours)
    assert_same_index(ours, wanted)


@pytest.mark.deep
def test_a_cancelled_build_is_an_error_of_one_line(any_spark, flat_lake, tmp_path, monkeypatch):
    """The same call builds afterwards; a vacuum removes what tasks left; descriptions of the user's jobs return."""
    place, context = tmp_path / "made", None if is_connect(any_spark) else any_spark.sparkContext
    monkeypatch.setattr(building, "build_units", faults.build_for_ever)
    if context is not None:
        context.setJobDescription("of the user")

    def cancel() -> None:
        while not faults.was_first(place):
            time.sleep(0.1)
        (any_spark.interruptTag if context is None else context.cancelJobsWithTag)("zonebloom")

    thread = threading.Thread(target=cancel, daemon=True)
    thread.start()
    with pytest.raises(
        StorageError, match="job 'zonebloom build_for_ever: 1 tasks' must run to its end, got "
    ) as caught:
        ZoneBloom(any_spark).create_index(flat_lake.root, "user_id", index=place, tasks=1)
    thread.join()
    assert "\n" not in str(caught.value)
    assert not list(place.glob("versions/*"))
    monkeypatch.undo()
    index = ZoneBloom(any_spark).create_index(flat_lake.root, "user_id", index=place, tasks=1)
    index.vacuum(older_than=timedelta(0))
    assert files_of(place) == named_files(place)
    if context is not None:
        assert context.getLocalProperty("spark.job.description") == "of the user"
        context.setLocalProperty("spark.job.description", None)


@deep_only
def test_a_build_in_steps_that_fails_goes_on_where_it_ended(spark, make_lake, tmp_path, monkeypatch):
    lake = make_lake((3000, 2500, 2000, 1500))
    built, wanted = tmp_path / "made", tmp_path / "wanted"
    columns = ["user_id", "amount"]
    options = {"rows_per_zone": 2, "commit_every": 4500}
    read = []
    monkeypatch.setattr(building, "build_units", faults.refuse_the_last_file)
    with pytest.raises(StorageError, match="the store must be there"):
        ZoneBloom(spark).create_index(lake.root, columns, index=built, **options)
    assert zonebloom.open_index(built).num_fragments == 2
    monkeypatch.undo()
    index = ZoneBloom(spark).create_index(lake.root, columns, index=built, progress=read.append, **options)
    assert read[-1].total_rows == 3500
    assert index.indexed_columns()[0].segments.keys() == {"slices"}
    once = zonebloom.build_index(lake.root, columns, index=wanted, **options)
    for column in columns:  # the files that were left have other ids
        ours, theirs = (opened.zone_table(column).to_arrow().drop_columns("fragment_id") for opened in (index, once))
        assert ours.equals(theirs)
    with pytest.raises(IndexExistsError):
        ZoneBloom(spark).create_index(lake.root, columns, index=built, **options)


def test_the_end_of_a_build_in_steps_may_run_twice(make_lake, tmp_path):
    lake = make_lake((3000, 2500))
    place = tmp_path / "made"
    version = zonebloom.build_index(lake.root, "user_id", index=place, rows_per_zone=2, commit_every=3000).version
    building.call(LocalStore(place), (partial(finish, is_merged=True), (["user_id"],)))
    assert zonebloom.open_index(place).version == version == 3


def test_bad_input_is_refused_before_anything_is_written(spark, tmp_path):
    for number in range(4):
        rows = make_rows(2250, seed=number).append_column("tags", pa.array([["a"]] * 2250))
        write(tmp_path / f"lake/{number}.parquet", rows)
    create = partial(ZoneBloom(spark).create_index, tmp_path / "lake", index=tmp_path / "index")
    in_steps = {"rows_per_zone": 256, "sizing": "exact", "commit_every": 1000}
    for columns, options, error, message in (
        ("nothing", {}, ColumnNotFoundError, "nothing"),
        ("tags", {}, UnsupportedTypeError, "list"),
        ("user_id", {"fpp": 2}, InvalidArgumentError, "fpp"),
        ("user_id", {"commit_every": 0}, InvalidArgumentError, "commit_every must be a number of rows"),
        ("user_id", {"tasks": 0}, InvalidArgumentError, "tasks must be at least 1, got 0"),
        ("user_id", {"max_index_bytes": "x"}, InvalidArgumentError, "max_index_bytes must be at least 1, got 'x'"),
        ("user_id", {"index": 3}, InvalidArgumentError, "index must be a path or a name, got 3"),
        ("user_id", {"max_index_bytes": 1000}, InvalidArgumentError, "at most 1,000 bytes, got an estimate"),
        (
            "user_id",
            {"max_index_bytes": 10_000, **in_steps},
            InvalidArgumentError,
            "10,000 bytes, got an estimate of 2",
        ),
    ):
        with pytest.raises(error, match=message):
            create(columns, **options)
        assert not files_of(tmp_path / "index")
    assert create("user_id", max_index_bytes=30_000, **in_steps).num_fragments == 4


@pytest.mark.deep
def test_a_frame_that_is_no_plain_scan_is_refused(any_spark, flat_lake):
    from pyspark.sql import functions

    plain, zb = plain_read(any_spark, flat_lake.root), ZoneBloom(any_spark)
    zonebloom.build_index(flat_lake.root, "user_id")
    others = [
        any_spark.range(3),
        plain.groupBy("user_id").count(),
        plain.union(plain),
        plain.join(plain.select("note"), "note"),
        plain.select("user_id"),
        plain.selectExpr("lower(user_id) AS user_id"),
        plain.where("user_id > 'a'"),
        plain.limit(10),
        plain.withColumnRenamed("note", "other"),
        plain.toDF(*reversed(plain.columns)),
        plain.distinct(),
        plain.alias("a").where("a.user_id IS NOT NULL").alias("b"),
        plain.withColumn("note", functions.lit("k")),
    ]
    calls = [
        lambda frame: zb.create_index(frame, "user_id"),
        zb.refresh_index,
        zb.delete_index,
        zb.read,
        lambda frame: zb.search(frame, "user_id = 'x'"),
        lambda frame: zb.map_candidates(frame, "user_id = 'x'", lambda batches: batches, plain.schema),
    ]
    for number, frame in enumerate(others):
        for call in calls if number == 0 else {calls[number % len(calls)], zb.read}:
            with pytest.raises(InvalidArgumentError, match="plain scan of files, got one that"):
                call(frame)


def test_a_frame_whose_files_are_gone_is_to_be_listed_anew(any_spark, tmp_path):
    any_spark.range(3).write.parquet(str(tmp_path / "numbers"))
    frame = any_spark.read.parquet(str(tmp_path / "numbers"))
    assert frame.count() == 3
    for path in (tmp_path / "numbers").glob("*.parquet"):
        path.rename(path.with_stem("renamed"))
    with pytest.raises(DataFileError, match=r"must scan files that are there, got .*, which is none; .*refreshTable"):
        ZoneBloom(any_spark).create_index(frame, "id")


# --- the life of an index ---------------------------------------------------------------------------------------------


def test_refresh_makes_what_the_librarys_makes(any_spark, make_lake, tmp_path):
    zb, lake = ZoneBloom(any_spark), make_lake((3000, 2000, 1000))
    places = built, wanted = tmp_path / "made", tmp_path / "wanted"
    for place in places:  # by one thread, as several share the files out by chance, and so the zones of what is dropped
        zonebloom.build_index(lake.root, COLUMNS, index=place, rows_per_zone=256, workers=1)
    write(lake.root / lake.files[1], make_rows(700, seed=50))
    (lake.root / lake.files[0]).unlink()
    write(lake.root / "part-9.parquet", make_rows(900, seed=51))
    for mode, num_zones in (("quick", 0), ("incremental", 3 * 7), ("full", 3 * 11)):
        ours, theirs = zb.refresh_index(built, mode), zonebloom.open_index(wanted).refresh(mode)
        assert ours == theirs
        assert ours.num_zones_added == num_zones
        assert_same_index(built, wanted)


def test_a_refresh_takes_the_options_of_the_librarys(spark, hive_lake):
    zb, root = ZoneBloom(spark), hive_lake.root
    zonebloom.build_index(root, "user_id", rows_per_zone=256)
    for day in (1, 2, 3):
        write(root / f"day={day}/new.parquet", make_rows(10, seed=day))
    assert zb.refresh_index(root, paths=["day=2"]).num_files_added == 1
    assert zb.refresh_index(root, partitions={"day": 3}).num_files_added == 1
    for number in range(4):
        write(root / f"day=1/more-{number}.parquet", make_rows(500, seed=number))
    in_steps = zb.refresh_index(root, commit_every=1000)
    assert in_steps.num_files_added == 5
    assert in_steps.version > 4
    wanted = {"rows_per_zone": 512, "fpp": 0.01, "sizing": "exact"}
    with pytest.raises(InvalidArgumentError, match="new parameters must come with a full refresh"):
        zb.refresh_index(root, rows_per_zone=512)
    zb.refresh_index(root, "full", **wanted)
    (column,) = zb.open_index(root).indexed_columns()
    assert {name: getattr(column, name) for name in wanted} == wanted
    assert zb.open_index(root, version=1).indexed_columns()[0].rows_per_zone == 256


def test_indexes_are_replaced_restored_and_deleted(any_spark, flat_lake):
    zb, root = ZoneBloom(any_spark), flat_lake.root
    zb.create_index(root, "user_id", sizing="exact", max_index_bytes=10_000_000)
    with pytest.raises(IndexExistsError, match="overwrite=True"):
        zb.create_index(root, "user_id")
    assert zb.create_index(root, "user_id", overwrite=True).version == 2
    assert zb.create_index(root, "device_id").columns == ["user_id", "device_id"]
    assert zb.restore_index(root, 1) == 4
    assert zb.open_index(root).columns == ["user_id"]
    zb.delete_index(root)
    with pytest.raises(IndexNotFoundError):
        zb.open_index(root)


def test_indexes_have_names_in_a_system_path(any_spark, flat_lake, tmp_path):
    zb = ZoneBloom(any_spark, system_path=tmp_path / "indexes")
    frame = plain_read(any_spark, flat_lake.root)
    zb.create_index(frame, "user_id", index="users", rows_per_zone=1024, fpp=0.001)
    zonebloom.build_index(flat_lake.root, ["device_id", "note"], index=tmp_path / "indexes/devices", kind="both")
    zonebloom.build_index(flat_lake.root, "trace")
    rows = {row.name: row for row in zb.indexes(flat_lake.root).collect()}
    assert rows.keys() == {"users", "devices", None}
    assert rows["devices"].columns == ["device_id", "note"]
    assert {row.dataset for row in rows.values()} == {str(flat_lake.root)}
    assert rows["users"].num_rows == flat_lake.table.num_rows
    assert (tmp_path / "indexes/users/versions").is_dir()
    (column,) = zb.index("users").collect()
    assert (column.name, column.kind, column.rows_per_zone, column.fpp) == ("user_id", "bloom", 1024, 0.001)
    assert column.segments == zb.open_index("users").indexed_columns()[0].segments
    on_disk = sum(path.stat().st_size for path in (tmp_path / "indexes/devices/columns").rglob("*.*"))
    assert rows["devices"].index_bytes == sum(row.index_bytes for row in zb.index("devices").collect()) == on_disk
    zb.delete_index("users")
    (version,) = (tmp_path / "indexes/devices/versions").iterdir()
    (tmp_path / "indexes/broken/versions").mkdir(parents=True)
    (tmp_path / "indexes/broken/versions" / version.name).write_text("{")
    with pytest.warns(RuntimeWarning, match=r"index broken at .* cannot be opened: versions/0.*, got JSONDecodeError"):
        rows = {row.name: row.dataset for row in zb.indexes().collect()}
    assert rows == {"broken": None, "devices": str(flat_lake.root)}
    zb.delete_index("broken")
    assert [row.name for row in zb.indexes().collect()] == ["devices"]


def test_many_zones_are_sliced_by_a_task(any_spark, make_lake, tmp_path):
    lake = make_lake((9000,))
    zb = ZoneBloom(any_spark)
    indexed = zb.create_index(lake.root, "user_id", index=tmp_path / "sliced", rows_per_zone=2)
    assert indexed.indexed_columns()[0].segments.keys() == {"slices"}
    assert files_of(tmp_path / "sliced") == named_files(tmp_path / "sliced")
    plain = zb.create_index(lake.root, "user_id", index=tmp_path / "plain", rows_per_zone=2, optimize=False)
    assert "zones" in plain.indexed_columns()[0].segments
    zb.optimize_index(tmp_path / "plain")
    assert zb.open_index(tmp_path / "plain").indexed_columns()[0].segments.keys() == {"slices"}
    assert_same_index(tmp_path / "sliced", tmp_path / "plain", ["user_id"])
