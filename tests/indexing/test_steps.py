"""A build that commits in steps keeps what it finished, goes on where it died, and ends as if it had never stopped."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zonebloom as zb
from tests.conftest import index_of
from tests.lives import assert_every_row_is_found, hundreds, lake_of, write
from zonebloom import errors
from zonebloom.indexing.fill import Threads
from zonebloom.storage.manifest import list_versions
from zonebloom.stores.local import LocalStore


class DiedError(Exception):
    pass


class DyingThreads(Threads):
    """Builds as ever, and dies in front of a step."""

    left = 0

    def build(self, plan, fragments):
        if not DyingThreads.left:
            raise DiedError
        DyingThreads.left -= 1
        return super().build(plan, fragments)


@pytest.fixture
def lake(tmp_path):
    return lake_of(tmp_path, *hundreds(6))


def build(root, **options):
    return zb.build_index(root, ["k", "s"], rows_per_zone=10, kind="both", workers=1, **options)


def zones_of(index, column):
    rows = index.zone_table(column).to_arrow().to_pylist()
    files = {fragment.fragment_id: fragment.path for fragment in index._snapshot.fragments.values()}
    return sorted((files[row.pop("fragment_id")], *row.values()) for row in rows)


def begun(root, steps: int, **options):
    """A build that died after some steps."""
    DyingThreads.left = steps
    with pytest.raises(DiedError):
        build(root, commit_every=200, runner=DyingThreads(1), **options)


def test_steps_end_with_the_zones_and_filters_of_one_build(lake, tmp_path):
    once = build(lake, index=tmp_path / "once", commit_every=600)
    assert once.version == 1
    steps = build(lake, commit_every=200)
    assert [version.operation for version in steps.versions()] == ["build"] * 3 + ["optimize"]
    for column in ("k", "s"):
        assert zones_of(steps, column) == zones_of(once, column)
    for index, num_locators in ((steps, 3), (once, 1)):
        assert index.indexed_columns()[0].segments == {"locator": num_locators, "zones": 1}
    assert not any(entry.is_unfinished for entry in steps._snapshot.manifest.columns)
    assert_every_row_is_found(lake, steps, is_fresh=True)
    steps.optimize()
    assert steps.indexed_columns()[0].segments == {"locator": 1, "zones": 1}
    assert_every_row_is_found(lake, steps, is_fresh=True)


@pytest.mark.parametrize(("optimize", "num_locators"), [(True, 1), (False, 3)])
def test_a_build_merges_its_locators_only_if_they_are_many(lake, monkeypatch, optimize, num_locators):
    monkeypatch.setattr("zonebloom.indexing.optimize.MOST_LOCATORS", 2)
    index = build(lake, commit_every=200, optimize=optimize)
    assert index.indexed_columns()[0].segments["locator"] == num_locators
    assert_every_row_is_found(lake, index, is_fresh=True)


def test_steps_are_of_about_equal_size(tmp_path):
    index = zb.build_index(lake_of(tmp_path, *hundreds(9)), "k", rows_per_zone=10, kind="locator", commit_every=400)
    assert [entry.num_zones for entry in index._snapshot.manifest.columns[0].segments] == [30, 30, 30]


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_build_that_died_goes_on(lake, tmp_path, steps):
    begun(lake, steps)
    store = LocalStore(index_of(lake))
    assert list_versions(store) == list(range(1, steps + 1))
    if steps:
        index = zb.open_index(lake)
        assert index.num_fragments == 2 * steps
        assert_every_row_is_found(lake, index)
        assert index.search("k = 50").kept.rows == 10 + 600 - 200 * steps, "what is done prunes already"
    read = []
    done = build(lake, commit_every=200, progress=lambda state: read.append(state.total_rows))
    assert set(read) == {600 - 200 * steps}, "what is done is not read again"
    once = build(lake, index=tmp_path / "once")
    for column in ("k", "s"):
        assert zones_of(done, column) == zones_of(once, column)
    assert done.indexed_columns()[0].segments == {"locator": 3, "zones": 1}
    with pytest.raises(errors.IndexExistsError, match="refresh it, or build with overwrite=True"):
        build(lake)


def test_files_that_came_and_went_meanwhile_are_seen(lake):
    begun(lake, 2)
    write(lake / "f0.parquet", range(7000, 7100), extra=1)
    (lake / "f1.parquet").unlink()
    write(lake / "z.parquet", range(8000, 8100))
    assert_every_row_is_found(lake, build(lake), is_fresh=True)


def test_a_refresh_ends_a_build_that_died(lake):
    begun(lake, 1)
    index = zb.open_index(lake)
    assert index.refresh().num_files_added == 4
    assert_every_row_is_found(lake, index, is_fresh=True)
    with pytest.raises(errors.IndexExistsError):
        build(lake)


def test_a_refresh_of_a_part_does_not_end_it(lake):
    begun(lake, 1)
    zb.open_index(lake).refresh(paths=["f5.parquet"])
    zb.open_index(lake).optimize()
    assert_every_row_is_found(lake, build(lake), is_fresh=True)


@pytest.mark.parametrize("options", [{"rows_per_zone": 20}, {"fpp": 0.1}, {"sizing": "exact"}, {"kind": "bloom"}])
def test_a_build_that_died_goes_on_only_as_it_began(lake, options):
    begun(lake, 1)
    same = {"columns": ["k", "s"], "rows_per_zone": 10, "kind": "both"} | options
    told = r"must be ended with the same columns and parameters, got .* 10 rows.* kind both;"
    with pytest.raises(errors.IndexExistsError, match=told):
        zb.build_index(lake, **same)
    assert_every_row_is_found(lake, zb.build_index(lake, **same, overwrite=True))


def test_a_column_is_added_in_steps(lake):
    zb.build_index(lake, "k", rows_per_zone=10)
    write(lake / "z.parquet", range(8000, 8100))
    DyingThreads.left = 2
    with pytest.raises(DiedError):
        zb.build_index(lake, "s", rows_per_zone=10, commit_every=200, runner=DyingThreads(1))
    index = zb.open_index(lake)
    assert index.version == 3
    assert index.search("s = 'text 50'").kept.rows == 10 + 300
    index = zb.build_index(lake, "s", rows_per_zone=10, commit_every=200)
    assert index.search("s = 'text 50'", strict=True).kept.rows == 10
    assert_every_row_is_found(lake, index, is_fresh=True)


def test_a_column_that_is_built_anew_is_replaced_at_once(lake):
    build(lake)
    index = build(lake, overwrite=True, commit_every=100)
    assert index.version == 2
    assert index.refresh("full", commit_every=100).version == 3


def test_a_refresh_that_died_keeps_its_steps(lake):
    index = build(lake)
    for number in range(4):
        write(lake / f"g{number}.parquet", range(9000 + number * 100, 9100 + number * 100))
    (lake / "f0.parquet").unlink()
    DyingThreads.left = 3
    with pytest.raises(DiedError):
        index.refresh(commit_every=100, runner=DyingThreads(1))
    assert_every_row_is_found(lake, zb.open_index(lake))
    done = zb.open_index(lake).refresh(commit_every=100)
    assert (done.num_files_added, done.num_files_dropped, done.num_files_kept) == (1, 0, 8)
    assert_every_row_is_found(lake, zb.open_index(lake), is_fresh=True)


# --- builds that fail -------------------------------------------------------------------------------------------------


def test_a_build_of_an_unsupported_type_leaves_nothing(tmp_path):
    pq.write_table(pa.table({"m": pa.array([[1], [2]])}), tmp_path / "a.parquet")
    with pytest.raises(errors.UnsupportedTypeError):
        zb.build_index(tmp_path, "m")
    with pytest.raises(errors.ColumnNotFoundError):
        zb.build_index(tmp_path, "missing")
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


@pytest.mark.filterwarnings("ignore:data file")
def test_a_build_of_files_that_cannot_be_read_leaves_nothing(tmp_path):
    pq.write_table(pa.table({"k": np.arange(10_000)}), tmp_path / "a.parquet", compression="none")
    data = bytearray((tmp_path / "a.parquet").read_bytes())
    data[10:4000] = bytes(3990)
    (tmp_path / "a.parquet").write_bytes(data)
    with pytest.raises(errors.DataFileError, match="at least one data file must be readable"):
        zb.build_index(tmp_path, "k")
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(errors.DataFileError):
        zb.build_index(tmp_path, "k")
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


@pytest.mark.filterwarnings("ignore:data file")
@pytest.mark.parametrize("columns", ["n", ["k", "n"]])
def test_a_build_of_columns_that_no_file_gives_leaves_an_index_as_it_was(tmp_path, columns):
    """Such as encrypted ones: the zones of the other columns stay."""
    path = tmp_path / "lake" / "a.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({"k": range(100), "n": range(100)}), path, compression="none", use_dictionary=False)
    start = pq.read_metadata(path).row_group(0).column(1).data_page_offset
    path.write_bytes(path.read_bytes()[:start] + bytes(50) + path.read_bytes()[start + 50 :])
    index = zb.build_index(path.parent, "k", rows_per_zone=10)
    with pytest.raises(errors.DataFileError, match="at least one data file must be readable"):
        zb.build_index(path.parent, columns, overwrite=True)
    assert index.newest().version == 1
    assert index.newest().search("k = 7").kept.rows == 10


def test_a_build_that_is_interrupted_leaves_nothing(lake):
    def listen(_) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(lake, progress=listen)
    assert not index_of(lake).exists()


def test_a_build_that_fails_leaves_an_index_as_it_was(lake):
    index = zb.build_index(lake, "k", rows_per_zone=10)
    write(lake / "z.parquet", range(8000, 8100))

    def files() -> list[str]:
        return sorted(str(path) for path in index.root.rglob("*") if path.is_file() and path.parent.name != "ids")

    before = files()
    DyingThreads.left = 0
    with pytest.raises(DiedError):
        zb.build_index(lake, "s", runner=DyingThreads(1))
    with pytest.raises(DiedError):
        index.refresh(runner=DyingThreads(1))
    assert files() == before
    assert index.refresh().version == 2


class TwiceThreads(Threads):
    """Runs what reads and writes filters a second time, as a cluster does that lost the first answer."""

    def run(self, function, store, *arguments):
        function(store, *arguments)
        return function(store, *arguments)


def test_slicing_may_be_tried_again(lake, monkeypatch):
    monkeypatch.setattr("zonebloom.indexing.apply._ZONES_WORTH_SLICING", 0)
    write(lake / "f6.parquet", range(9000, 9330))
    index = zb.build_index(lake, "k", rows_per_zone=1, runner=TwiceThreads(1))
    (column,) = index.indexed_columns()
    assert list(column.segments) == ["slices"]
    written = [path.name.partition(".")[2] for path in (index.root / "columns/k").iterdir()]
    num_segments = column.segments["slices"]
    assert written == ["slices.arrow"] * 2 * num_segments, "those of the first time are left for a vacuum"
    assert_every_row_is_found(lake, index, is_fresh=True)


def test_an_index_of_which_no_version_can_be_read_is_built_anew(lake):
    index = build(lake)
    path = index.root / "versions" / f"{1:020d}.json"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(errors.CorruptIndexError):
        zb.open_index(lake)
    assert build(lake).version == 2
    assert_every_row_is_found(lake, zb.open_index(lake), is_fresh=True)
