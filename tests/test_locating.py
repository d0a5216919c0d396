"""An index with locators: searches keep the zones that hold a key and no other, through every change of the data.

Expected zones and rows come from all rows of the files, by brute force.
"""

from __future__ import annotations

import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zonebloom as zb
from tests.lives import assert_every_row_is_found, rows_of, write

ROWS_PER_ZONE = 10


def keys_of(seed: int, count: int = 95, distinct: int = 1 << 40) -> list[int]:
    return np.random.default_rng(seed).integers(0, distinct, count).tolist()


@pytest.fixture
def lake(tmp_path):
    """Three files of which each has keys of its own and some of all; the filters are bad, so that chance shows."""
    root = tmp_path / "lake"
    root.mkdir()
    for number in range(3):
        write(root / f"f{number}.parquet", [*keys_of(number), 7, 7, *range(100, 103)])
    return root


def build(lake, **options):
    return zb.build_index(lake, "k", rows_per_zone=ROWS_PER_ZONE, fpp=0.05, **{"locator": True} | options)


def level_of(index):
    [level] = [one for one in index._snapshot.manifest.columns[0].levels if one.name == "locator"]
    return level


def zones_with(lake, keys) -> set[tuple[str, int]]:
    """Path and first row of the zones that hold any of `keys`."""
    wanted, found = set(keys), set()
    for path in sorted(lake.glob("*.parquet")):
        for row, key in enumerate(pq.read_table(path)["k"].to_pylist()):
            if key in wanted:
                found.add((path.name, row // ROWS_PER_ZONE * ROWS_PER_ZONE))
    return found


def zones_kept(found) -> set[tuple[str, int]]:
    rows = found.to_arrow().to_pylist()
    starts = [(one["path"], start) for one in rows for start in range(one["start"], one["stop"], ROWS_PER_ZONE)]
    return {(path, start // ROWS_PER_ZONE * ROWS_PER_ZONE) for path, start in starts}


def assert_only_zones_with_keys_are_kept(lake, index):
    every = rows_of(lake)
    for keys in ([7], [every[0]], [every[-1], every[50]], [101, 10**15], [10**15], every[::3]):
        found = index.search(zb.IsIn("k", keys))
        assert not found.reasons
        assert zones_kept(found) == zones_with(lake, keys)
    exists = index.exists("k", [*every, 10**15, -5, None]).to_pylist()
    assert exists == [*[True] * len(every), False, False, None]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("levels", [("zone",), ("zone", "fragment", "dataset")])
def test_a_search_keeps_the_zones_that_hold_a_key_and_no_other(lake, workers, levels):
    index = build(lake, workers=workers, levels=levels)
    assert [one.name for one in index._snapshot.manifest.columns[0].levels] == [*levels[1:], "locator"]
    assert_only_zones_with_keys_are_kept(lake, index)
    plain = build(lake, locator=False, index=lake.parent / "plain")
    absent = zb.IsIn("k", list(range(10**15, 10**15 + 20_000)))
    num_kept = [one.search(absent).num_zones_kept for one in (index, plain)]
    assert num_kept[0] == 0 < num_kept[1]
    assert_every_row_is_found(lake, index, is_fresh=True)


def test_a_life_with_locators(lake):
    index = build(lake)
    write(lake / "f3.parquet", keys_of(3), 1)
    write(lake / "f1.parquet", keys_of(4, 33), 2)
    (lake / "f0.parquet").unlink()
    assert_every_row_is_found(lake, index)
    index.refresh()
    assert len(level_of(index).segments) >= 2
    assert_only_zones_with_keys_are_kept(lake, index)
    index.optimize()
    [segment] = level_of(index).segments
    assert segment.num_zones == sum(-(-pq.read_metadata(path).num_rows // 10) for path in lake.glob("*.parquet"))
    assert_only_zones_with_keys_are_kept(lake, index)
    assert_every_row_is_found(lake, index, is_fresh=True)
    assert index.optimize().columns == ()


def test_a_step_by_step_build_gives_one_locator(lake):
    stepwise = build(lake, commit_every=50, index=lake.parent / "steps")
    whole = build(lake, workers=1)
    files = [(index.root / level_of(index).segments[0].path).read_bytes() for index in (stepwise, whole)]
    assert len(level_of(stepwise).segments) == 1
    assert files[0] == files[1]


def test_nulls_and_zeros(tmp_path):
    values = [None, 0.0, -0.0, 1.5, float("nan"), 2.5, None, 3.5]
    pq.write_table(pa.table({"x": pa.array(values, pa.float64())}), tmp_path / "x.parquet")
    index = zb.build_index(tmp_path, "x", rows_per_zone=1, locator=True)
    assert index.search("x = 0").row_ranges.num_rows == 2
    assert index.search("x IS NULL").row_ranges.num_rows == 2
    assert index.search("x = 1.5 OR x IS NULL").row_ranges.num_rows == 3
    assert index.search("NOT x = 1.5").row_ranges.num_rows >= 5


@pytest.mark.parametrize("how", ["missing", "tail", "page"])
def test_a_damaged_locator_is_told_and_the_filters_answer(lake, how):
    index = build(lake, workers=1)
    path = index.root / level_of(index).segments[0].path
    data = bytearray(path.read_bytes())
    if how == "missing":
        path.unlink()
    else:
        data[-40 if how == "tail" else 100] ^= 4
        path.write_bytes(data)
    index = zb.open_index(lake)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for key in rows_of(lake)[::10]:
            found = index.search(zb.Equals("k", key))
            assert zones_kept(found) >= zones_with(lake, [key])
            assert [reason.code for reason in found.reasons] == ["SEGMENT_CORRUPT"]
            assert found.num_zones_kept < found.num_zones, "the filters still prune"
        assert all(index.exists("k", rows_of(lake)).to_pylist())
        assert not index.verify(sample=1.0).is_sound
    assert [str(one.message).count("the zones beneath are asked instead") for one in caught] == [1]
    index.refresh(check=True)
    assert not index.search(zb.Equals("k", 7)).reasons


def test_every_level_is_named_in_the_error(lake):
    with pytest.raises(ValueError, match="zone and any of fragment, dataset and locator, got zone, file"):
        build(lake, levels=("zone", "file"))
