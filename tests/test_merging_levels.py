"""Filters of one level become one again: what any of them held is held, and it is as good as they were together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zonebloom as zb
from tests.depth import at_depth
from tests.lives import assert_every_row_is_found, write
from zonebloom.bloom.sbbf import Sbbf
from zonebloom.bloom.sizing import num_blocks_for
from zonebloom.storage.levels import resized, united
from zonebloom.storage.levels.fill import Filling

LEVELS = ("zone", "fragment", "dataset")


def hashes(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**64, count, np.uint64)


def filled(num_values: int, seed: int, num_blocks: int | None = None) -> Sbbf:
    made = Sbbf.with_blocks(num_blocks or num_blocks_for(num_values, 0.00057, "exact"))
    made.insert_hashes(hashes(num_values, seed))
    return made


def in_plain_integers(blocks: np.ndarray, num_blocks: int) -> np.ndarray:
    """The definition: each block of the result has those that a hash of it may be in."""
    found = np.zeros((num_blocks, 8), np.uint32)
    for block in range(num_blocks):
        least, greatest = -(-block * 2**32 // num_blocks), -(-(block + 1) * 2**32 // num_blocks) - 1
        for other in range(least * len(blocks) >> 32, (greatest * len(blocks) >> 32) + 1):
            found[block] |= blocks[other]
    return found


@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 9))
@settings(deadline=None)
def test_a_resized_filter_is_what_the_spec_says_and_misses_nothing(before, after, seed):
    made = filled(200, seed, before)
    found = resized(made.blocks, after)
    assert (found == in_plain_integers(made.blocks, after)).all()
    assert Sbbf(found).check_hashes(hashes(200, seed)).all()


def test_the_example_of_the_spec():
    one, two, three = ([1 << number] * 8 for number in range(3))
    assert resized(np.array([one, two], np.uint32), 3)[:, 0].tolist() == [1, 3, 2]
    assert resized(np.array([one, two], np.uint32), 4)[:, 0].tolist() == [1, 1, 2, 2]
    assert resized(np.array([one, two, three], np.uint32), 2)[:, 0].tolist() == [3, 6]


@pytest.mark.parametrize("num_blocks", [1, 2, 7, 100, 4096])
def test_a_divisor_folds_and_a_multiple_keeps_the_probability(num_blocks):
    made = filled(num_blocks * 5, 1, num_blocks * 3)
    assert (resized(made.blocks, num_blocks) == made.fold(3).blocks).all()
    assert Sbbf(resized(made.blocks, num_blocks * 15)).fpp() == pytest.approx(made.fpp())


def test_the_last_block_of_the_largest_filter_is_reached():
    most = np.full((1 << 22, 8), 0, np.uint32)
    most[-1] = 1
    assert resized(most, 3)[:, 0].tolist() == [0, 0, 1]
    assert resized(most[-1:], 1 << 22)[-1, 0] == 1


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=4))
@settings(deadline=None, max_examples=at_depth(25))
def test_a_union_misses_nothing_and_is_at_most_so_bad(sizes):
    parts = [filled(size, seed) for seed, size in enumerate(sizes)]
    found = united([one.blocks for one in parts], max(one.num_blocks for one in parts))
    if found is None:
        assert len(parts) > 1
        return
    blocks, fpp = found
    assert all(Sbbf(blocks).check_hashes(hashes(size, seed)).all() for seed, size in enumerate(sizes))
    assert fpp == pytest.approx(Sbbf(blocks).fpp())
    assert fpp <= 0.05
    assert len(blocks) == max(one.num_blocks for one in parts)


def test_a_union_of_one_size_is_the_filter_of_all_values():
    both = filled(800, 0, 100)
    both.insert_hashes(hashes(700, 1))
    assert (united([filled(800, 0, 100).blocks, filled(700, 1, 100).blocks], 100)[0] == both.blocks).all()


@pytest.mark.parametrize("kept_hashes", [10**6, 0])
def test_a_filling_takes_the_size_of_another_if_it_fits(kept_hashes):
    def size(num_values: int, like: int) -> int:
        filling = Filling(num_values, 0.00057, like=like, kept_hashes=kept_hashes)
        filling.add(hashes(num_values, 0))
        return len(filling.finish().blocks)

    assert size(1000, 5040) == 5040
    assert size(40_000, 5040 // 4) > 5040 // 4, "too small"
    assert size(1000, 5040 * 63) < 200, "4 MiB, and far too large"


def test_filters_that_would_hold_nearly_everything_stay_apart():
    assert united([filled(500, seed, 10).blocks for seed in range(8)], 10) is None


@pytest.fixture
def grown(tmp_path):
    """An index of 3 files, to which 4 refreshes added one file each, and dropped one."""
    for number in range(3):
        write(tmp_path / f"f{number}.parquet", range(number * 1000, number * 1000 + 700))
    index = zb.build_index(tmp_path, ["k", "s"], rows_per_zone=50, levels=LEVELS)
    for number in range(4):
        write(tmp_path / f"g{number}.parquet", range(9000 + number * 1000, 9000 + number * 1000 + 100 * (number + 1)))
        (tmp_path / "f1.parquet").unlink(missing_ok=True)
        index.refresh()
    return index


def levels(index, column: str = "k") -> dict:
    return {one.name: one for one in index._snapshot.manifest.column(column).levels}


def test_optimize_leaves_one_filter_of_the_data_set_and_one_segment_of_fragments(grown):
    before = levels(grown)
    assert [len(before[name].segments) for name in LEVELS[1:]] == [5, 5]
    done = grown.optimize()
    assert [column.merged_levels for column in done.columns] == [("fragment", "dataset")] * 2
    after = levels(grown)
    assert [len(after[name].segments) for name in LEVELS[1:]] == [1, 1]
    assert (after["fragment"].num_filters, after["dataset"].num_filters) == (6, 1)
    live = {one.fragment_id for one in grown._snapshot.fragments.values()}
    for level in after.values():
        assert {one for start, stop in level.segments[0].fragments for one in range(start, stop)} == live
    assert after["dataset"].fpp < 0.03
    assert abs(after["dataset"].num_values - 3100) < 400, "those of the dropped file may be in it"
    assert_every_row_is_found(Path(grown.data.location), grown, is_fresh=True)
    assert grown.search("k = -5").kept.zones == 0
    assert grown.optimize().version == done.version, "a second time there is nothing to do"


def test_the_filter_of_the_data_set_is_one_before_and_after(grown):
    keys = pa.array([*range(700), *range(2000, 2700), *range(9000, 9100), *range(12000, 12400)], pa.int64())
    before = grown.dataset_filter("k")
    grown.optimize()
    after = grown.dataset_filter("k")
    assert before.check(keys).true_count == after.check(keys).true_count == len(keys)
    absent = pa.array(range(10**6, 10**6 + 2000), pa.int64())
    assert max(one.check(absent).true_count for one in (before, after)) < 100


def test_a_damaged_filter_stays_apart_until_a_refresh_drops_it(grown):
    for name in LEVELS[1:]:
        path = grown.root / levels(grown)[name].segments[2].path
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    index = zb.open_index(grown.root)
    done = index.optimize()
    assert len(done.columns[0].damage) == 2
    assert [len(levels(index)[name].segments) for name in LEVELS[1:]] == [2, 2]
    with pytest.warns(RuntimeWarning, match="the zones beneath are asked instead"):
        assert_every_row_is_found(Path(index.data.location), index)
    index.refresh(check=True)
    assert [len(levels(index)[name].segments) for name in LEVELS[1:]] == [1, 1]
    assert_every_row_is_found(Path(index.data.location), zb.open_index(index.root), is_fresh=True)


def test_a_refresh_during_the_merging_keeps_its_filters(grown, monkeypatch):
    from zonebloom.maintain.commit import commit_change

    root = Path(grown.data.location)
    write(root / "z.parquet", range(50_000, 50_100))
    other = zb.open_index(root)

    def meddled(store, base, change):
        monkeypatch.undo()
        other.refresh()
        return commit_change(store, base, change)

    monkeypatch.setattr("zonebloom.maintain.optimize.commit_change", meddled)
    grown.optimize()
    assert [len(levels(grown)[name].segments) for name in LEVELS[1:]] == [2, 2]
    assert_every_row_is_found(root, grown, is_fresh=True)
    grown.optimize()
    assert [len(levels(grown)[name].segments) for name in LEVELS[1:]] == [1, 1]
    assert_every_row_is_found(root, grown, is_fresh=True)


def test_levels_of_files_that_are_gone_come_back_with_the_next(tmp_path):
    write(tmp_path / "a.parquet", range(100))
    index = zb.build_index(tmp_path, "k", rows_per_zone=10, levels=LEVELS)
    (tmp_path / "a.parquet").unlink()
    index.refresh()
    assert [level.num_filters for level in levels(index).values()] == [0, 0]
    write(tmp_path / "b.parquet", range(100))
    index.refresh()
    assert [level.num_filters for level in levels(index).values()] == [1, 1]
    assert_every_row_is_found(tmp_path, index, is_fresh=True)
