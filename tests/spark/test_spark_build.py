"""A build on a cluster makes the index that the library makes, whatever happens to its tasks.

Oracle: `zonebloom.build_index` over the same files.
"""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zonebloom
from tests.conftest import make_rows
from tests.depth import deep_only, some
from tests.spark import faults
from tests.spark.rows import shown
from zonebloom.engines.spark import runner as building
from zonebloom.engines.spark.executors import is_connect
from zonebloom.engines.spark.runner import SparkRunner
from zonebloom.errors import (
    ColumnNotFoundError,
    IndexExistsError,
    IndexNotFoundError,
    InvalidArgumentError,
    StorageError,
    UnsupportedTypeError,
)
from zonebloom.indexing.fill import Unit
from zonebloom.indexing.optimize import finish
from zonebloom.spark import ZoneBloom
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


@pytest.mark.parametrize("source", some(["path", "files", "frame"], 2))
def test_zones_equal_the_librarys(any_spark, make_lake, tmp_path, source):
    lake = make_lake((5000, 3000, 1, 0, 700), partition_by_day=True, row_group_size=1024, name="lake é [1] 100%")
    given = {
        "path": lake.root,
        "files": [lake.root / path for path in lake.files],
        "frame": any_spark.read.parquet(str(lake.root).replace("[", r"\[").replace("]", r"\]")),
    }[source]
    ours, wanted = tmp_path / "made", tmp_path / "wanted"
    options = {"rows_per_zone": 512}
    index = ZoneBloom(any_spark).create_index(given, COLUMNS, index=ours, **options)
    zonebloom.build_index(lake.root, COLUMNS, index=wanted, **options)
    assert_same_index(ours, wanted)
    assert index.version == 1
    assert index.search(zonebloom.col("user_id") == lake.table["user_id"][77].as_py()).num_zones_kept < 3
    assert files_of(ours) == named_files(ours)


@pytest.mark.parametrize("kind", ["both", "locator"])
def test_locators_equal_the_librarys_once_they_are_merged(spark, make_lake, tmp_path, kind):
    lake = make_lake((5000, 3000, 1, 0, 700), row_group_size=1024)
    ours, wanted = tmp_path / "made", tmp_path / "wanted"
    options = {"rows_per_zone": 512, "kind": kind}
    ZoneBloom(spark).create_index(lake.root, "user_id", index=ours, tasks=3, **options)
    zonebloom.build_index(lake.root, "user_id", index=wanted, **options)
    assert files_of(ours) == named_files(ours)
    if kind == "both":
        assert_same_index(ours, wanted, ["user_id"])
    merged = []
    for place in (ours, wanted):
        index = zonebloom.open_index(place)
        index.optimize()
        entry = index._snapshot.manifest.column("user_id")
        merged.append([(place / path).read_bytes() for path in entry.files if path.endswith(".locator")])
    assert len(merged[0]) == 1
    assert merged[0] == merged[1]


def test_a_frame_of_a_whole_folder_means_the_folder(spark, flat_lake, tmp_path):
    zb, plain = ZoneBloom(spark), spark.read.parquet(str(flat_lake.root))
    whole = zb.create_index(plain, "user_id")
    assert whole.data.location == str(flat_lake.root)
    assert shown(spark.read.parquet(str(flat_lake.root))) == shown(plain)
    part = zb.create_index(
        spark.read.parquet(str(flat_lake.root / flat_lake.files[0])), "user_id", index=tmp_path / "x"
    )
    assert part.num_fragments == 1
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


def test_the_size_of_all_steps_together_is_limited(spark, make_lake, tmp_path):
    lake = make_lake((3000, 2500, 2000, 1500))
    options = {"index": tmp_path / "index", "rows_per_zone": 256, "sizing": "exact", "commit_every": 1000}
    with pytest.raises(InvalidArgumentError, match="at most 10,000 bytes, got an estimate of 2"):
        ZoneBloom(spark).create_index(lake.root, "user_id", max_index_bytes=10_000, **options)
    assert not files_of(tmp_path / "index")
    assert ZoneBloom(spark).create_index(lake.root, "user_id", max_index_bytes=30_000, **options).num_fragments == 4


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
    from zonebloom.engines.spark.executors import perform, pickled
    from zonebloom.formats import open_dataset
    from zonebloom.indexing.fill import BuildPlan, inspect
    from zonebloom.storage.options import IndexOptions

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


def test_progress_reaches_the_number_of_rows(any_spark, make_lake):
    lake = make_lake((1000,) * 9)
    seen = []
    ZoneBloom(any_spark).create_index(lake.root, "user_id", tasks=9, progress=seen.append)
    assert len(seen) > 3
    assert [progress.rows for progress in seen] == sorted(progress.rows for progress in seen)
    assert seen[-1].rows == seen[-1].total_rows == 9000


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


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"columns": "nothing"}, ColumnNotFoundError, "nothing"),
        ({"columns": "tags"}, UnsupportedTypeError, "list"),
        ({"columns": "user_id", "fpp": 2}, InvalidArgumentError, "fpp"),
        ({"columns": "user_id", "commit_every": 0}, InvalidArgumentError, "commit_every must be a number of rows"),
        ({"columns": "user_id", "tasks": 0}, InvalidArgumentError, "tasks must be at least 1, got 0"),
        ({"columns": "user_id", "max_index_bytes": 1000}, InvalidArgumentError, "at most 1,000 bytes, got an estimate"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(spark, tmp_path, options, error, message):
    table = make_rows(100)
    pq.write_table(table.append_column("tags", pa.array([["a"]] * 100)), tmp_path / "a.parquet")
    columns = options.pop("columns")
    with pytest.raises(error, match=message):
        ZoneBloom(spark).create_index(tmp_path / "a.parquet", columns, index=tmp_path / "index", **options)
    assert not files_of(tmp_path / "index")


def test_an_index_is_not_built_twice(spark, flat_lake):
    zb = ZoneBloom(spark)
    zb.create_index(flat_lake.root, "user_id", sizing="exact", max_index_bytes=10_000_000)
    with pytest.raises(IndexExistsError, match="overwrite=True"):
        zb.create_index(flat_lake.root, "user_id")
    assert zb.create_index(flat_lake.root, "user_id", overwrite=True).version == 2


def test_a_frame_that_is_no_plain_scan_is_refused(any_spark, flat_lake):
    plain = any_spark.read.parquet(str(flat_lake.root))
    names = plain.columns
    others = [
        plain.groupBy("user_id").count(),
        plain.union(plain),
        plain.join(plain.select("note"), "note"),
        plain.select("user_id"),
        plain.selectExpr("lower(user_id) AS user_id"),
        plain.where("user_id > 'a'"),
        plain.limit(10),
        plain.withColumnRenamed("note", "other"),
        plain.toDF(*reversed(names)),
        plain.distinct(),
        plain.alias("a").where("a.user_id IS NOT NULL").alias("b"),
    ]
    zb = ZoneBloom(any_spark)
    calls = [
        lambda frame: zb.create_index(frame, "user_id"),
        zb.refresh_index,
        zb.delete_index,
        lambda frame: zb.search(frame, "user_id = 'x'"),
        lambda frame: zb.map_candidates(frame, "user_id = 'x'", lambda batches: batches, plain.schema),
    ]
    for number, frame in enumerate((any_spark.range(3), *others)):
        for call in calls if number == 0 else [calls[number % len(calls)]]:
            with pytest.raises(InvalidArgumentError, match="plain scan of files, got one that"):
                call(frame)
    plain.createOrReplaceTempView("scanned")
    zb.create_index(plain, "user_id")
    for frame in (plain, plain.alias("a"), any_spark.table("scanned")):
        assert zb.refresh_index(frame).num_files_kept == 3
        assert zb.read(frame).where("user_id = 'none'").count() == 0


# --- the life of an index ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["incremental", "full", "quick"])
def test_refresh_makes_what_the_librarys_makes(any_spark, make_lake, tmp_path, mode):
    zb, lake = ZoneBloom(any_spark), make_lake((3000, 2000, 1000))
    places = built, wanted = tmp_path / "made", tmp_path / "wanted"
    for place in places:  # by one thread, as several share the files out by chance, and so the zones of what is dropped
        zonebloom.build_index(lake.root, COLUMNS, index=place, rows_per_zone=256, workers=1)
    pq.write_table(make_rows(700, seed=50), lake.root / lake.files[1])
    (lake.root / lake.files[0]).unlink()
    pq.write_table(make_rows(900, seed=51), lake.root / "part-9.parquet")
    ours, theirs = zb.refresh_index(built, mode), zonebloom.open_index(wanted).refresh(mode)
    assert ours == theirs
    assert ours.num_zones_added == {"incremental": 3 * 7, "full": 3 * 11, "quick": 0}[mode]
    assert_same_index(built, wanted)


def test_a_refresh_is_committed_in_steps(spark, make_lake):
    zb, lake = ZoneBloom(spark), make_lake((1000,))
    zb.create_index(lake.root, "user_id")
    for number in range(4):
        pq.write_table(make_rows(500, seed=number), lake.root / f"new-{number}.parquet")
    assert zb.refresh_index(lake.root, commit_every=1000).version == 3
    assert zb.open_index(lake.root).num_fragments == 5


def test_a_refresh_takes_the_options_of_the_librarys(spark, hive_lake):
    zb = ZoneBloom(spark)
    zb.create_index(hive_lake.root, "user_id", rows_per_zone=256)
    for day in (1, 2, 3):
        pq.write_table(make_rows(10, seed=day), hive_lake.root / f"day={day}/new.parquet")
    assert zb.refresh_index(hive_lake.root, paths=["day=2"]).num_files_added == 1
    assert zb.refresh_index(hive_lake.root, partitions={"day": 3}).num_files_added == 1
    assert zb.refresh_index(hive_lake.root).num_files_added == 1
    wanted = {"rows_per_zone": 512, "fpp": 0.01, "sizing": "exact"}
    with pytest.raises(InvalidArgumentError, match="new parameters must come with a full refresh"):
        zb.refresh_index(hive_lake.root, rows_per_zone=512)
    zb.refresh_index(hive_lake.root, "full", **wanted)
    (column,) = zb.open_index(hive_lake.root).indexed_columns()
    assert {name: getattr(column, name) for name in wanted} == wanted
    assert zb.open_index(hive_lake.root, version=1).indexed_columns()[0].rows_per_zone == 256


def test_versions_are_restored_and_indexes_deleted(any_spark, flat_lake):
    zb = ZoneBloom(any_spark)
    zb.create_index(flat_lake.root, "user_id")
    zb.create_index(flat_lake.root, "device_id")
    assert zb.restore_index(flat_lake.root, 1) == 3
    assert zb.open_index(flat_lake.root).columns == ["user_id"]
    zb.delete_index(flat_lake.root)
    with pytest.raises(IndexNotFoundError):
        zb.open_index(flat_lake.root)


def test_indexes_have_names_in_a_system_path(any_spark, flat_lake, tmp_path):
    zb = ZoneBloom(any_spark, system_path=tmp_path / "indexes")
    frame = any_spark.read.parquet(str(flat_lake.root))
    zb.create_index(frame, "user_id", index="users", rows_per_zone=1024, fpp=0.001)
    zb.create_index(flat_lake.root, ["device_id", "note"], index="devices", kind="both")
    zb.create_index(flat_lake.root, "trace")
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
    assert {row.name for row in zb.indexes().collect()} == {"devices"}


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
