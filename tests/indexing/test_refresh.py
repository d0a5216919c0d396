"""A refresh follows the data set in proportion to what changed."""

from __future__ import annotations

import os
import shutil
import warnings
from itertools import product
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zonebloom as zb
from tests.conftest import index_of, make_rows
from zonebloom.errors import ConcurrentCommitError, DataFileError, InvalidArgumentError
from zonebloom.formats import ParquetDataset
from zonebloom.indexing.apply import apply
from zonebloom.indexing.plan import plan_build
from zonebloom.storage.manifest import list_versions, read_version
from zonebloom.storage.options import BuildOptions, IndexOptions
from zonebloom.storage.snapshot import load_snapshot
from zonebloom.stores.local import LocalStore


def settle(path, extra: int = 0) -> None:
    when = 1_700_000_000_000_000_001 + extra
    os.utime(path, ns=(when, when))


def write(path, table, extra: int = 0) -> None:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(table, path, row_group_size=2048)
    settle(path, extra)


def indexed(lake, *columns: str):
    for name in lake.files:
        settle(lake.root / name)
    zb.build_index(lake.root, columns, rows_per_zone=100)
    return lake


@pytest.fixture
def lake(flat_lake):
    return indexed(flat_lake, "user_id", "device_id")


@pytest.fixture
def days(hive_lake):
    return indexed(hive_lake, "user_id")


@pytest.fixture
def index(lake):
    """Its index, and after it one new, one changed and one deleted file."""
    write(lake.root / "new.parquet", make_rows(250, seed=9))
    write(lake.root / lake.files[1], make_rows(1000, seed=8), extra=1)
    (lake.root / lake.files[2]).unlink()
    return zb.open_index(lake.root)


@pytest.fixture
def opened(monkeypatch):
    """Paths of the data files that are opened."""
    paths, genuine = [], ParquetDataset.open
    monkeypatch.setattr(ParquetDataset, "open", lambda *given: paths.append(given[1]) or genuine(*given))
    return paths


def counts(done) -> tuple[int, int, int]:
    return done.num_files_added, done.num_files_dropped, done.num_files_kept


def zones(done) -> tuple[int, int]:
    return done.num_zones_added, done.num_zones


def test_nothing_to_do_is_no_version(lake, opened):
    index = zb.open_index(lake.root)
    for mode in ("incremental", "quick"):
        done = index.refresh(mode)
        assert (done.version, done.mode) == (1, mode)
        assert counts(done) == (0, 0, 3)
        assert zones(done) == (0, 2 * (50 + 30 + 1))
    assert opened == []
    assert list_versions(LocalStore(index.root)) == [1]


def test_an_index_whose_data_set_moved_is_of_the_new_place_after_a_refresh(lake, tmp_path):
    """Also if no file changed, if an older version is restored, and if the index has another name."""
    place, moved = index_of(lake.root).rename(tmp_path / "index"), tmp_path / "moved"
    lake.root.rename(moved)
    opened = zb.open_index(place, dataset=moved)
    with pytest.raises(InvalidArgumentError, match="refreshed from the folder"):
        zb.open_index(place, dataset=next(moved.iterdir())).refresh()
    assert (opened.refresh().num_files_kept, opened.version) == (opened.num_fragments, 2)
    assert (opened.refresh().version, zb.open_index(place).data.location) == (2, str(moved))
    zb.open_index(place).restore(1)
    assert zb.open_index(place).data.location == str(moved)


def test_an_opened_index_does_not_follow_its_index_to_another_data_set(lake, index, tmp_path):
    held = zb.open_index(index.location)
    zb.open_index(index.location, dataset=shutil.copytree(lake.root, tmp_path / "copy")).refresh()
    erased, vacuumed = lambda: zb.erase(held, "user_id", ["no"]), lambda: held.vacuum(older_than=0)
    for change in (held.refresh, held.optimize, lambda: held.restore(1), erased, vacuumed):
        with pytest.raises(ConcurrentCommitError, match=f"must stay the index of {lake.root}, got one of .*copy now"):
            change()
    assert (held.data.location, list_versions(held.store)) == (str(lake.root), [1, 2])


def test_a_change_is_not_applied_to_an_index_that_is_of_another_data_set_by_then(lake, index, tmp_path):
    started, copy = load_snapshot(index.store, None), shutil.copytree(lake.root, tmp_path / "copy")
    zb.open_index(index.location, dataset=copy).refresh()
    plan = plan_build(started, index.data.pin(), ["note"], IndexOptions())
    with pytest.raises(ConcurrentCommitError, match="the data set must not be changed by another commit"):
        apply(plan, BuildOptions())


def test_only_new_and_changed_files_are_opened(lake, index, opened):
    done = index.refresh()
    assert set(opened) == {"new.parquet", lake.files[1]}
    assert counts(done) == (2, 2, 1)
    assert done.num_zones_added == 2 * (3 + 10)
    assert done.num_zones == sum(column.num_zones for column in index.indexed_columns())
    assert index.version == done.version == 2
    assert not index.search("user_id = 'x'", strict=True).reasons
    user = make_rows(250, seed=9)["user_id"][7].as_py()
    assert index.search(zb.Equals("user_id", user)).kept.zones == 1
    assert index.to_table(zb.Equals("user_id", user)).num_rows == 1
    assert index.verify(sample=1.0).is_sound
    assert index.zone_table("device_id").to_arrow().num_rows == 50 + 3 + 10


def write_numbers(path: Path, start: int) -> int:
    """A hundred numbers from `start` on, in a file whose size does not depend on them; returns the size."""
    table = pa.table({"k": pa.array(range(start, start + 100), pa.int64())})
    pq.write_table(table, path, compression="none", use_dictionary=False)
    settle(path)
    return path.stat().st_size


def test_a_file_of_the_same_size_and_time_is_found_by_verify(tmp_path):
    """A disk says nothing else of a file: searches take it for the one before, until a full refresh."""
    size = write_numbers(tmp_path / "a.parquet", 0)
    index = zb.build_index(tmp_path, "k", rows_per_zone=10)
    assert write_numbers(tmp_path / "a.parquet", 1000) == size
    assert index.to_table("k = 1050").num_rows == 0
    assert not index.verify(sample=1.0).is_sound
    index.refresh("full")
    assert index.to_table("k = 1050").num_rows == 1
    assert index.verify(sample=1.0).is_sound


def test_other_row_groups_in_a_file_of_the_same_size_and_time_are_told(tmp_path):
    """Row ranges of the file before would be other rows."""
    path = tmp_path / "a.parquet"
    for rows in (100, 20):
        pq.write_table(pa.table({"k": range(100)}), path, row_group_size=rows)
        data = path.read_bytes()
        start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        path.write_bytes(data[:start] + bytes(9000 - len(data)) + data[start:])
        settle(path)
        index = zb.build_index(tmp_path, "k", rows_per_zone=10) if rows == 100 else zb.open_index(tmp_path)
    with pytest.raises(DataFileError, match="refresh the index in mode full"):
        index.to_table("k = 99")
    assert index.verify().damage == ("a.parquet must be the file that was indexed, got another one",)
    index.refresh("full")
    assert index.to_table("k = 99").num_rows == 1


def test_a_refresh_equals_a_build_afresh(lake, tmp_path):
    write(lake.root / "a.parquet", make_rows(777, seed=3))
    (lake.root / lake.files[0]).unlink()
    refreshed = zb.open_index(lake.root)
    refreshed.refresh()
    fresh = zb.build_index(lake.root, ["user_id", "device_id"], rows_per_zone=100, index=tmp_path / "other")
    for column in ("user_id", "device_id"):
        tables = [index.zone_table(column).to_arrow().drop_columns("fragment_id") for index in (refreshed, fresh)]
        rows = [sorted(map(str, table.to_pylist())) for table in tables]
        assert rows[0] == rows[1]


def test_quick_reads_nothing_and_stays_exact(index, opened):
    done = index.refresh("quick")
    assert opened == []
    assert counts(done) == (0, 2, 1)
    assert index.num_fragments == 1
    codes = [str(reason.code) for reason in index.search("user_id = 'x'").reasons]
    assert codes == ["FILE_NOT_INDEXED", "FILE_NOT_INDEXED"]
    user = make_rows(1000, seed=8)["user_id"][500].as_py()
    assert index.to_table(zb.Equals("user_id", user)).num_rows == 1
    assert counts(index.refresh()) == (2, 0, 1)


def test_full_builds_all_anew_with_the_types_of_today(tmp_path):
    write(tmp_path / "a.parquet", pa.table({"k": pa.array(range(100), pa.int32())}))
    index = zb.build_index(tmp_path, "k", rows_per_zone=10, sizing="exact", fpp=0.01)
    write(tmp_path / "b.parquet", pa.table({"k": pa.array([2**40 + n for n in range(100)], pa.int64())}))
    done = index.refresh()
    assert counts(done) == (1, 0, 1)
    assert index.column_type("k") == pa.int32()
    result = index.search(f"k = {2**40 + 5}")
    assert result.kept.rows == 100, "values that do not convert have no zones"
    assert [str(reason.code) for reason in result.reasons] == ["COLUMN_NOT_INDEXED"]
    assert index.refresh().version == done.version, "and are not read again and again"
    done = index.refresh("full")
    assert counts(done) == (2, 2, 0)
    assert index.column_type("k") == pa.int64()
    result = index.search(f"k = {2**40 + 5}", strict=True)
    assert (result.kept.zones, result.total.zones, result.reasons) == (1, 20, ())
    column = index.indexed_columns()[0]
    assert (column.rows_per_zone, column.fpp, column.sizing) == (10, 0.01, "exact")


def test_a_column_of_another_type_in_all_files_is_read_after_a_full_refresh(tmp_path):
    for values in ([1, 2], ["1", "b"]):
        write(tmp_path / "lake" / "a.parquet", pa.table({"k": values}), extra=len(values[0:1] * 3))
        index = zb.build_index(tmp_path / "lake", "k") if values == [1, 2] else zb.open_index(tmp_path / "lake")
    index.refresh()
    with pytest.raises(DataFileError, match='refresh the index, with mode="full" if all files have another type now'):
        index.to_table("k IS NOT NULL")
    index.refresh("full")
    assert index.to_table("k = 'b'")["k"].to_pylist() == ["b"]


def test_paths_confine_a_refresh(days, opened):
    index = zb.open_index(days.root)
    write(days.root / "day=1/new.parquet", make_rows(300, seed=9))
    write(days.root / "day=3/new.parquet", make_rows(200, seed=10))
    (days.root / days.files[0]).unlink()
    (days.root / days.files[2]).unlink()
    done = index.refresh(paths=["day=1", days.root / "day=4/none.parquet"])
    assert opened == ["day=1/new.parquet"] * 2
    assert counts(done) == (1, 1, 1)
    assert index.num_fragments == 5
    assert counts(index.refresh(paths=[days.files[2]])) == (0, 1, 0)
    assert counts(index.refresh(paths=(days.root / "day=3/new.parquet").as_uri())) == (1, 0, 0)
    assert counts(index.refresh(paths=["day=3/new.parquet", "_hidden/x.parquet"])) == (0, 0, 1)
    done = index.refresh()
    assert counts(done) == (0, 0, 5)
    for elsewhere in ("../elsewhere", "s3://lake/day=1/part-0.parquet", "file:///day=1/part-0.parquet"):
        with pytest.raises(InvalidArgumentError, match=f"must lie in the data set .*, got {elsewhere}"):
            index.refresh(paths=[elsewhere])


def test_new_columns_and_partitions_join_the_schema(hive_lake):
    index = zb.build_index(hive_lake.root, "user_id")
    assert "hour" not in index.schema.names
    table = make_rows(100, seed=9).append_column("city", pa.array(["Oslo"] * 100))
    (hive_lake.root / "day=x").mkdir()
    write(hive_lake.root / "day=x/hour=7/new.parquet", table)
    assert "city" not in index.schema.names
    index.refresh()
    assert index.schema.field("city").type == pa.string()
    assert index.schema.field("day").type == pa.string()
    assert index.schema.names[-2:] == ["day", "hour"]
    assert index.to_table("city = 'Oslo' AND day = 'x' AND hour = 7").num_rows == 100
    assert index.to_table("day = '1'").num_rows == 3500


def test_columns_outlive_their_files(hive_lake):
    index = zb.build_index(hive_lake.root, "user_id")
    for name in hive_lake.files:
        (hive_lake.root / name).unlink()
    index.refresh()
    assert index.schema.names[-1] == "day"
    assert index.to_table("day = 1 AND user_id = 'x'").num_rows == 0
    write(hive_lake.root / "day=1/a.parquet", make_rows(100, seed=3).select(["note"]))
    index.refresh("full")
    assert index.schema.names == ["note", "user_id", "day"]
    assert index.to_table("user_id IS NULL AND day = 1").num_rows == 100
    assert index.search("user_id = 'x'", strict=True).kept.rows == 0


def test_a_file_that_cannot_be_read_is_left_out_and_said(lake):
    (lake.root / "torn.parquet").write_bytes(b"PAR1 but no more")
    index = zb.open_index(lake.root)
    with pytest.warns(RuntimeWarning, match=r"torn.parquet .*read whole"):
        done = index.refresh()
    assert done.unreadable == ("torn.parquet",)
    assert (done.version, *counts(done)) == (1, 0, 0, 3)
    (lake.root / "torn.parquet").unlink()
    assert index.refresh().unreadable == ()


def test_all_files_gone_is_an_empty_index_and_no_folder_an_error(lake):
    index = zb.open_index(lake.root)
    for name in lake.files:
        (lake.root / name).unlink()
    assert counts(index.refresh()) == (0, 3, 0)
    assert index.search("user_id = 'x'").kept.rows == 0
    assert index.to_table("user_id = 'x'").num_rows == 0
    write(lake.root / "a.parquet", make_rows(200, seed=3))
    assert counts(index.refresh()) == (1, 0, 0)
    assert index.search("user_id = 'x'", strict=True).total.zones == 2
    outside = zb.build_index(lake.root, "user_id", index=lake.root.parent / "outside")
    for path in lake.root.rglob("*.*"):
        path.unlink()
    lake.root.rename(lake.root.with_name("elsewhere"))
    with pytest.raises(DataFileError):
        outside.refresh()


@pytest.mark.parametrize("is_folder", [False, True])
def test_one_file_that_is_gone_is_an_error_also_where_a_folder_has_its_name(tmp_path, is_folder):
    file = tmp_path / "one.parquet"
    write(file, make_rows(20, seed=3))
    index = zb.build_index(file, "user_id")
    file.unlink()
    if is_folder:
        write(file / "part-0.parquet", make_rows(20, seed=3))
    for call in (index.refresh, index.status, lambda: index.to_table("user_id = 'x'"), index.dataset().to_table):
        with pytest.raises(DataFileError, match=r"one\.parquet must exist, got no file"):
            call()


@pytest.mark.parametrize(
    ("what", "how"),
    [*product(("zones", "list"), ("missing", "short", "flipped")), ("slices", "flipped"), ("locator", "flipped")],
)
def test_damage_is_repaired(lake, what, how):
    options = {"kind": "locator" if what == "locator" else "bloom", "rows_per_zone": 2 if what == "slices" else 100}
    index = zb.build_index(lake.root, "user_id", overwrite=True, **options)
    index.optimize()
    version = read_version(LocalStore(index.root), index.version)
    segments = {segment.kind: segment.path for segment in version.columns[0].segments}
    path = index.root / (segments | {"list": version.fragment_lists[0].path})[what]
    data = bytearray(path.read_bytes())
    path.unlink()
    if how != "missing":
        data[len(data) // 2] ^= 1
        path.write_bytes(data[:-8] if how == "short" else data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        done = zb.open_index(lake.root).refresh(check=how == "flipped")
    assert (done.version, done.num_files_added > 0) == (version.version + 1, True)
    index = zb.open_index(lake.root)
    assert not index.search("user_id = 'x' AND device_id = 1", strict=True).reasons
    assert index.exists("user_id", lake.table["user_id"]).true_count == lake.table.num_rows
    assert index.verify(sample=0.1).is_sound
    assert index.refresh().version == done.version


def test_a_damaged_version_is_left_behind(lake):
    write(lake.root / "a.parquet", make_rows(200, seed=3))
    index = zb.open_index(lake.root)
    index.refresh()
    path = index.root / "versions" / f"{2:020d}.json"
    path.write_text(path.read_text().replace('"operation": "refresh"', '"operation": "Refresh"'))
    with pytest.warns(RuntimeWarning, match="everything is read whole"):
        index = zb.open_index(lake.root)
    with pytest.warns(RuntimeWarning, match="everything is read whole"):
        done = index.refresh()
    assert (done.version, *counts(done)) == (3, 1, 0, 3), "the sound version before it still stands for its files"
    assert not zb.open_index(lake.root).search("user_id = 'x'", strict=True).reasons
    ids = [fragment.fragment_id for fragment in index._snapshot.fragments.values()]
    assert sorted(ids) == [0, 1, 2, 4], "id 3 was used by the damaged version"


def test_fragment_lists_stay_few_and_short(tmp_path):
    write(tmp_path / "f000.parquet", pa.table({"k": [0]}))
    index = zb.build_index(tmp_path, "k")
    for number in range(1, 40):
        write(tmp_path / f"f{number:03}.parquet", pa.table({"k": [number]}))
        if number % 3 == 0:
            (tmp_path / f"f{number - 2:03}.parquet").unlink()
        index.refresh()
    manifest = read_version(LocalStore(index.root), index.version)
    assert len(manifest.fragment_lists) <= 5
    dropped = sum(stop - start for start, stop in manifest.dropped)
    assert sum(entry.num_fragments for entry in manifest.fragment_lists) - dropped == index.num_fragments == 27
    assert dropped <= 27
    assert manifest.next_fragment_id == 40
    assert [index.search(f"k = {n}", strict=True).kept.files for n in (0, 1, 2, 37, 38, 39)] == [1, 0, 1, 0, 1, 1]


def test_zones_of_files_that_are_gone_are_told_apart(tmp_path):
    write(tmp_path / "a.parquet", pa.table({"k": range(100)}))
    write(tmp_path / "b.parquet", pa.table({"k": range(1000, 1100)}))
    index = zb.build_index(tmp_path, "k", rows_per_zone=10, kind="both", workers=1)
    assert (index.status().num_gone_zones, index.indexed_columns()[0].num_zones) == (0, 20)
    write(tmp_path / "b.parquet", pa.table({"k": range(2000, 2100)}), extra=1)
    done = index.refresh()
    assert (done.num_zones_added, done.num_zones, done.num_gone_zones) == (10, 20, 10)
    [column] = index.indexed_columns()
    assert (column.num_zones, column.num_gone_zones) == (20, 10)
    assert "10 zones are of files that are gone; optimize removes them" in str(index.status())
    assert (index.refresh().num_zones, index.search("k = 2050").num_zones) == (20, 20)
    assert index.optimize().columns[0].num_zones_dropped == 10
    assert (index.status().num_gone_zones, index.refresh().num_gone_zones) == (0, 0)
    (tmp_path / "a.parquet").unlink()
    (tmp_path / "b.parquet").unlink()
    assert [index.refresh().version for _ in range(3)] == [4, 4, 4]


@pytest.mark.parametrize("kind", ["bloom", "locator", "both"])
def test_the_sizes_that_are_told_are_those_on_disk(tmp_path, kind):
    write(tmp_path / "a.parquet", pa.table({"k": range(100), "s": [f"{number}" for number in range(100)]}))
    index = zb.build_index(tmp_path, ["k", "s"], rows_per_zone=10, kind=kind)
    on_disk = sum(path.stat().st_size for path in (index.root / "columns").rglob("*.*"))
    assert index.status().index_bytes == index.versions()[0].index_bytes == on_disk
    columns = index.indexed_columns()
    assert sum(column.index_bytes for column in columns) == on_disk
    assert all(column.bytes_per_row == pytest.approx(column.index_bytes / 100, abs=1e-4) for column in columns)


# --- partitions -------------------------------------------------------------------------------------------------------


@pytest.fixture
def listed(monkeypatch):
    """Folders that are listed."""
    actual, genuine = [], os.scandir
    monkeypatch.setattr("os.scandir", lambda path: actual.append(Path(path).name) or genuine(path))
    return actual


@pytest.mark.parametrize("partitions", [{"day": 2}, {"day": "02"}, "day=2", ["day=2"], [{"day": 2}, "day=7"]])
def test_a_partition_is_refreshed_and_no_other_is_listed(days, opened, listed, partitions):
    for day in (1, 2):
        write(days.root / f"day={day}" / "new.parquet", make_rows(300, seed=day))
    (days.root / days.files[2]).unlink()
    done = zb.open_index(days.root).refresh(partitions=partitions)
    assert set(opened) == {"day=2/new.parquet"}
    assert {name for name in listed if name.startswith("day=")} == {"day=2"}
    assert counts(done) == (1, 1, 1)
    index = zb.open_index(days.root)
    assert index.view().files.unknown_paths == ["day=1/new.parquet"]
    for day in (1, 2):
        user = make_rows(300, seed=day)["user_id"][5].as_py()
        assert index.to_table(zb.Equals("user_id", user)).num_rows == 1
        assert index.search(zb.Equals("user_id", user)).kept.rows == (300 if day == 1 else 400)


def test_a_new_partition_below_others_is_found(tmp_path, opened):
    for month in (1, 2):
        (tmp_path / f"year=2026/month={month}/day=1").mkdir(parents=True)
        write(tmp_path / f"year=2026/month={month}/day=1/f.parquet", make_rows(50, seed=month))
    index = zb.build_index(tmp_path, "user_id")
    opened.clear()
    for month in (2, 3):
        (tmp_path / f"year=2026/month={month}/day=9").mkdir(parents=True)
        write(tmp_path / f"year=2026/month={month}/day=9/f.parquet", make_rows(50, seed=month + 7))
    assert counts(index.refresh(partitions={"day": 9, "month": 3})) == (1, 0, 0)
    assert counts(index.refresh(partitions="year=2026/day=9")) == (1, 0, 1)
    assert len(set(opened)) == 2


@pytest.mark.parametrize(
    ("partitions", "message"),
    [
        ({"week": 1}, r"partitions must be of the partition columns \(day\), got .*week"),
        ("2", "partition columns"),
        *((none, "a partition must be a dict or a text such as day=3, got 3") for none in ([3], 3)),
    ],
)
def test_partitions_that_are_none_are_refused(days, partitions, message):
    with pytest.raises(InvalidArgumentError, match=message):
        zb.open_index(days.root).refresh(partitions=partitions)


# --- new parameters ---------------------------------------------------------------------------------------------------


def test_a_full_refresh_takes_new_parameters(lake):
    index = zb.open_index(lake.root)
    done = index.refresh("full", rows_per_zone=250, fpp=0.01, sizing="exact", kind="both")
    assert zones(done)[0] == 2 * (20 + 12 + 1)
    for column in index.indexed_columns():
        assert (column.rows_per_zone, column.fpp, column.sizing) == (250, 0.01, "exact")
        assert set(column.segments) == {"locator", "zones"}
    user = lake.table["user_id"][77].as_py()
    assert index.search(zb.Equals("user_id", user), strict=True).kept.zones == 1
    write(lake.root / "new.parquet", make_rows(250, seed=9))
    assert zones(index.refresh())[0] == 2
    assert index.indexed_columns()[0].segments.keys() == {"locator", "zones"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "fast"}, "mode must be one of incremental, quick, full, got 'fast'"),
        ({"workers": 0}, "workers must be at least 1"),
        ({"fpp": 0.01}, "new parameters must come with a full refresh of all files, got mode 'incremental'"),
        ({"mode": "full", "rows_per_zone": 10, "paths": ["part-0.parquet"]}, "new parameters"),
        ({"mode": "full", "rows_per_zone": 0}, "rows_per_zone"),
        ({"mode": "full", "fpp": 2.0}, "fpp"),
        ({"mode": "full", "kind": "file"}, "kind must be one of bloom, locator, both, got 'file'"),
        ({"commit_every": 0}, "commit_every must be a number of rows, at least 1, got 0"),
        ({"paths": ["a"], "partitions": {"day": 1}}, "confined to paths or to partitions, got both"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(lake, options, message):
    with pytest.raises(InvalidArgumentError, match=message):
        zb.open_index(lake.root).refresh(**options)
