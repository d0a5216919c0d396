"""Building and opening an index: what is written does not depend on how, and memory is bounded.

Oracle: `ZoneBuilder` fed with whole files one after another, and plain counting.
"""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

import zonebloom as zb
from tests.child import run_python
from tests.depth import deep_only
from zonebloom import errors
from zonebloom.indexing import fill as building

COLUMNS = ["user_id", "device_id", "trace", "note", "amount"]


def zones_of(root: Path, column: str = "user_id", **parameters) -> pa.Table:
    index = zb.build_index(root, [column], **{"rows_per_zone": 300, **parameters})
    return index.zone_table(column).to_arrow().combine_chunks()


def expected_zones(lake, column: str, **parameters) -> pa.Table:
    builder = zb.ZoneBuilder(lake.table.schema.field(column).type, column=column, **parameters)
    for number, path in enumerate(lake.files):
        builder.add(number, pq.read_table(lake.root / path, columns=[column], partitioning=None)[column])
    return builder.finish().to_arrow().combine_chunks()


@pytest.mark.parametrize("sizing", ["power_of_two", "exact", "adaptive", "parquet"])
def test_a_build_of_several_columns_equals_a_builder_of_each_over_the_files(flat_lake, sizing):
    index = zb.build_index(flat_lake.root, COLUMNS, rows_per_zone=300, sizing=sizing)
    for column in COLUMNS:
        built = index.zone_table(column).to_arrow().combine_chunks()
        assert built.equals(expected_zones(flat_lake, column, rows_per_zone=300, sizing=sizing), check_metadata=True)


def test_zones_do_not_depend_on_workers(make_lake, monkeypatch):
    """Also where one file is cut into many units, which takes a million rows otherwise."""
    monkeypatch.setattr(building, "_MIN_UNIT_ROWS", 500)
    lake = make_lake((5000, 300, 2999), row_group_size=700)
    assert len(building.units_of(list_fragments(lake), 300, 4)) > 5
    alone = zones_of(lake.root, workers=1, index=lake.root.parent / "alone")
    assert alone.equals(expected_zones(lake, "user_id", rows_per_zone=300), check_metadata=True)
    for workers in (2, 3, 8):
        assert zones_of(lake.root, workers=workers, index=lake.root.parent / f"by {workers}").equals(alone)


def list_fragments(lake) -> list:
    index = zb.build_index(lake.root, "user_id", index=lake.root.parent / "fragments")
    return list(index._snapshot.fragments.values())


def test_zones_do_not_depend_on_row_groups(make_lake, monkeypatch):
    monkeypatch.setattr(building, "_MIN_UNIT_ROWS", 500)
    lakes = [make_lake((5000,), row_group_size=size, name=f"by-{size}") for size in (1, 37, 299, 300, 301, 5000)]
    tables = [zones_of(lake.root) for lake in lakes[1:]]
    assert all(table.equals(tables[0]) for table in tables)


def test_zones_do_not_depend_on_the_order_of_files(flat_lake, tmp_path):
    paths = [flat_lake.root / name for name in flat_lake.files]
    forward = zones_of(paths, index=tmp_path / "forward")
    assert zones_of(paths[::-1], index=tmp_path / "backward").equals(forward)
    assert zones_of(flat_lake.root).equals(forward)
    assert zones_of(pads.dataset(flat_lake.root), index=tmp_path / "arrow").equals(forward)


def test_strings_read_as_dictionaries_make_the_same_zones(tmp_path):
    values = pa.table({"c": [f"value {n % 7}" if n % 11 else None for n in range(3000)]})
    tables = []
    for use_dictionary in (True, False):
        root = tmp_path / f"dictionary {use_dictionary}"
        root.mkdir()
        pq.write_table(values, root / "a.parquet", use_dictionary=use_dictionary, row_group_size=800)
        tables.append(zones_of(root, "c"))
    assert tables[0].equals(tables[1])


@deep_only
def test_memory_of_a_build_is_bounded(tmp_path):
    """An index that is 2.5 times as large takes little more memory: file pages, which are not ours, left out."""
    script = """
import sys, threading, time
import zonebloom as zb

def watch():
    while True:
        status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
        peaks.append(int(status["RssAnon"].split()[0]) >> 10)
        time.sleep(0.005)

peaks = []
threading.Thread(target=watch, daemon=True).start()
index = zb.build_index(sys.argv[1], "c", rows_per_zone=64, fpp=1e-9, workers=2, optimize=False)
print(max(peaks), index.indexed_columns()[0].index_bytes >> 20)
"""
    actual = []
    for rows in (2_200_000, 5_500_000):  # both enough for two workers
        root = tmp_path / str(rows)
        root.mkdir()
        values = np.random.default_rng(0).integers(0, 2**62, rows)
        pq.write_table(pa.table({"c": values}), root / "a.parquet", row_group_size=100_000, compression="none")
        actual.append([int(number) for number in run_python(script, root).stdout.split()])
    (small_peak, small_index), (large_peak, large_index) = actual
    assert large_index - small_index > 120
    assert large_peak - small_peak < (large_index - small_index) / 2, actual


# --- where an index lies --------------------------------------------------------------------------------------------


def test_an_index_of_one_file_lies_beside_it(single_file):
    file = single_file.root / single_file.files[0]
    built = zb.build_index(file, "user_id")
    assert built.root == single_file.root / "_part-0.parquet.zonebloom"
    assert zb.open_index(file).num_fragments == 1
    assert zb.open_index(built.root).columns == ["user_id"]


def test_a_list_of_files_needs_a_place(flat_lake):
    with pytest.raises(errors.InvalidArgumentError, match="index must name a folder"):
        zb.build_index([flat_lake.root / flat_lake.files[0]], "user_id")


def test_an_index_is_of_one_data_set_as_long_as_it_lives(make_lake, tmp_path):
    """Searches of the first one would have the rows of the second."""
    lake, other, place = make_lake(name="lake"), make_lake(name="other", seed=9), tmp_path / "index"
    zb.build_index(lake.root, "user_id", index=place)
    files = [lake.root / name for name in lake.files]
    for source in (other.root, files, files[0]):
        with pytest.raises(errors.IndexExistsError, match=f"got that of {lake.root}; set another index=.* or grew, "):
            zb.build_index(source, "device_id", index=place, overwrite=True)
    (tmp_path / "link").symlink_to(lake.root)
    zb.build_index(tmp_path / "link", "device_id", index=place)
    zb.delete_index(place)
    assert zb.build_index(other.root, "user_id", index=place).num_rows == len(other.table)
    assert zb.open_index(place).data.location == str(other.root)


@pytest.mark.parametrize("name", ["columns", "fragments", "ids", "versions"])
def test_an_index_around_its_data_set_has_no_files_in_it(make_lake, tmp_path, name):
    lake = make_lake(name=name)
    with pytest.raises(errors.InvalidArgumentError, match="the data set in a folder of its own"):
        zb.build_index(lake.root, "user_id", index=tmp_path)
    zb.build_index(lake.root, "user_id", index=tmp_path / "index")


def test_an_index_that_is_deleted_takes_no_folder_of_others_with_it(make_lake, tmp_path):
    place, lake = tmp_path / "shared", make_lake(name="lake")
    (place / "empty" / "too").mkdir(parents=True)
    zb.build_index(lake.root, "user_id", index=place)
    zb.delete_index(place)
    assert [path.name for path in sorted(place.rglob("*"))] == ["empty", "too"]


def test_a_relative_path_is_as_good(flat_lake, monkeypatch):
    monkeypatch.chdir(flat_lake.root.parent)
    zb.build_index("lake", "user_id")
    monkeypatch.chdir(flat_lake.root)
    assert zb.open_index(".").data.store.root == flat_lake.root


# --- adding columns -------------------------------------------------------------------------------------------------


def test_adding_a_column_after_files_changed_keeps_the_first_honest(flat_lake):
    """The first column's zones of a file that changed or went are neither searched nor exported."""
    zb.build_index(flat_lake.root, "user_id", rows_per_zone=100)
    lost = flat_lake.table["user_id"][10].as_py()
    fresh = flat_lake.table.slice(0, 400).set_column(0, "user_id", pa.array([f"new {n}" for n in range(400)]))
    pq.write_table(fresh, flat_lake.root / flat_lake.files[0])
    (flat_lake.root / flat_lake.files[2]).unlink()
    index = zb.build_index(flat_lake.root, "device_id", rows_per_zone=100)
    assert index.num_fragments == 2
    result = index.search("user_id = 'new 5'")
    assert index.to_table("user_id = 'new 5'").num_rows == 1
    assert result.kept.files == 1
    assert [reason.code for reason in result.reasons] == ["COLUMN_NOT_INDEXED"]
    assert index.to_table(zb.Equals("user_id", lost)).num_rows == 0
    assert index.exists("user_id", ["new 5"]).to_pylist() == [True]
    live = {fragment.fragment_id for fragment in index._snapshot.fragments.values()}
    assert set(index.zone_table("device_id").positions.fragment_ids.tolist()) == live
    with pytest.raises(errors.StaleIndexError, match=r"400 without, first of part-0\.parquet: refresh"):
        index.zone_table("user_id")
    index.refresh()
    assert set(index.zone_table("user_id").positions.fragment_ids.tolist()) == live


def test_a_column_with_a_file_that_does_not_convert_has_no_whole_zone_table(tmp_path):
    pq.write_table(pa.table({"k": [1, 2]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"k": ["one"]}), tmp_path / "b.parquet")
    index = zb.build_index(tmp_path, "k", rows_per_zone=1)
    assert index.search("k = 5").kept.rows == 1
    with pytest.raises(errors.StaleIndexError, match=r"1 without, first of b\.parquet: its values do not convert"):
        index.zone_table("k")


@pytest.mark.parametrize(
    "name",
    ["a b", "a/b", "../up", "é", "a.b", "%2E", "", ".", "..", "x" * 200, "x" * 201, "é" * 99, "CON", 'q"', "a\nb"],
)
def test_any_name_of_a_column_is_a_folder(tmp_path, name):
    root = tmp_path / "lake"
    root.mkdir()
    pq.write_table(pa.table({name: [1, 2, 3], "other": [1, 2, 3]}), root / "a.parquet")
    index = zb.build_index(root, [name], rows_per_zone=1)
    assert {file.parent.parent.parent for file in tmp_path.rglob("*.zones.arrow")} == {index.root}
    assert zb.open_index(root).zone_table(name).column == name
    if name:
        assert index.to_table(zb.Equals(name, 2)).num_rows == 1
        assert index.search(zb.Equals(name, 2)).num_zones_kept == 1


def test_unknown_columns_offer_the_nearest(flat_lake):
    with pytest.raises(errors.ColumnNotFoundError, match=r"no column user_ids in .*; did you mean user_id\?"):
        zb.build_index(flat_lake.root, "user_ids")
    index = zb.build_index(flat_lake.root, "user_id")
    for call in (
        *(lambda: index.search("userid = 'x'"), lambda: index.search("userid > 'x'")),
        *(lambda: index.search(pc.field("userid") == "x"), lambda: index.exists("userid", ["x"])),
        *(lambda: index.zone_table("userid"), lambda: index.column_type("userid")),
        *(lambda: index.to_table("user_id = 'x'", columns=["userid"]), lambda: index.explain("userid IS NULL")),
    ):
        with pytest.raises(errors.ColumnNotFoundError, match="did you mean user_id"):
            call()
    assert not isinstance(errors.ColumnNotFoundError("x"), ValueError)


def test_progress_counts_every_row_once(flat_lake):
    seen = []
    zb.build_index(flat_lake.root, ["user_id", "note"], progress=seen.append)
    assert seen[-1].rows == seen[-1].total_rows == 8001
    assert [progress.rows for progress in seen] == sorted({progress.rows for progress in seen})


def test_threads_share_an_index_that_moves(tmp_path):
    """Each answer is of one version and one listing, while another thread refreshes the same index."""
    lake = tmp_path / "lake"
    lake.mkdir()
    pq.write_table(pa.table({"k": range(100)}), lake / "0.parquet")
    index = zb.build_index(lake, "k", rows_per_zone=10)
    stop = threading.Event()
    kept: set[int] = set()

    def search() -> None:
        while not stop.is_set():
            kept.add(index.to_table("k = 55").num_rows)

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(1, 6):
        pq.write_table(pa.table({"k": range(100 * number, 100 * number + 100)}), tmp_path / "new.parquet")
        (tmp_path / "new.parquet").rename(lake / f"{number}.parquet")
        index.refresh()
        assert index.search(f"k = {100 * number}", strict=True).num_zones_kept == 1
    stop.set()
    for thread in threads:
        thread.join()
    assert kept == {1}
