"""Filters of fragments and of the data set: made in bounded memory, asked from the top down, never losing a row."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import zonebloom as zb
from tests.depth import at_depth
from zonebloom.bloom import hashing
from zonebloom.bloom.sbbf import Sbbf
from zonebloom.bloom.sizing import num_blocks_for
from zonebloom.bloom.zones import ZoneBuilder
from zonebloom.cli import app
from zonebloom.errors import CorruptIndexError, IndexNotFoundError, InvalidArgumentError
from zonebloom.options import check_levels
from zonebloom.storage.fragments import Fragment
from zonebloom.storage.levels import DatasetFilter, LevelBuilder, LeveledZones
from zonebloom.storage.levels.fill import SPAN_BYTES, Filling, write_dataset_filter
from zonebloom.storage.stores.local import LocalStore
from zonebloom.storage.zone_segment import ZoneSegment


def random_hashes(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**64, count, np.uint64)


def fragment(fragment_id: int, num_rows: int) -> Fragment:
    return Fragment(fragment_id, f"{fragment_id}.parquet", 1, 1, None, num_rows, (num_rows,), (1,))


def at_random(num_rows: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    keys = random.integers(0, 400, num_rows)
    return pa.table(
        {
            "key": pa.array(keys, pa.int64(), mask=random.random(num_rows) < 0.1),
            "text": [f"t{key}" for key in keys],
            "real": pa.array(np.where(keys % 50, keys / 4, -0.0), pa.float64()),
        }
    )


# --- filling ----------------------------------------------------------------------------------------------------------


def test_a_counted_filter_has_the_exact_size():
    hashes = random_hashes(5000)
    filling = Filling(20_000, 0.001)
    for part in np.split(np.tile(hashes, 4), 10):
        filling.add(part)
    filled = filling.finish()
    assert (filled.num_values, len(filled.blocks)) == (5000, num_blocks_for(5000, 0.001, "exact"))
    expected = Sbbf.with_blocks(len(filled.blocks))
    expected.insert_hashes(hashes)
    assert np.array_equal(filled.blocks, expected.blocks)


@pytest.mark.parametrize("num_values", [0, 1, 50, 1000, 30_000, 100_000])
def test_a_folded_filter_is_one_that_was_built_so(num_values):
    hashes = random_hashes(num_values)
    filling = Filling(100_000, 0.001, kept_hashes=0)
    filling.add(hashes)
    filled = filling.finish()
    expected = Sbbf.with_blocks(len(filled.blocks))
    expected.insert_hashes(hashes)
    assert np.array_equal(filled.blocks, expected.blocks)
    assert filled.num_values == pytest.approx(num_values, rel=0.02)
    assert filled.fpp <= 0.0011
    assert len(filled.blocks) <= max(2 * num_blocks_for(num_values, 0.001, "exact"), 10)


def test_a_filter_of_any_size_stays_below_128_mib():
    filling = Filling(10**10, 0.00057)
    filling.add(random_hashes(1000))
    assert len(filling.finish().blocks) <= 2 * num_blocks_for(1000, 0.00057, "exact")


def test_levels_must_hold_the_zones():
    assert check_levels(("dataset", "zone")) == ("zone", "dataset")
    for wrong in [("fragment",), ("zone", "file"), ()]:
        with pytest.raises(InvalidArgumentError, match="levels must be zone and any of"):
            check_levels(wrong)


# --- building ---------------------------------------------------------------------------------------------------------


def build(store, parts, *, levels=("zone", "fragment", "dataset"), unfit=(), failed=(), cut=7):
    """Levels of column `key` over fragments 0, 1, … with values `parts`, which come in cut in two units."""
    fragments = [fragment(number, len(part)) for number, part in enumerate(parts)]
    with LevelBuilder(store, {"key": pa.int64()}, levels, 0.001, fragments) as builder:
        for number, part in enumerate(parts):
            for unit in (part[cut:], part[:cut]):  # units end in any order
                builder.add("key", number, pa.array(unit, pa.int64()))
                if number not in failed:
                    builder.end_unit(number, len(unit), {"key"} if number in unfit else ())
    return builder.finish(failed)["key"]


def test_each_whole_fragment_has_a_filter_of_its_own_size(tmp_path):
    store = LocalStore(tmp_path)
    parts = [list(range(100)), [5] * 400 + [None], list(range(1000, 4000))]
    by_fragment, by_dataset = build(store, parts)
    table, damage = ZoneSegment(store, by_fragment.segments[0]).zones()
    assert not damage
    assert table.positions.fragment_ids.tolist() == [0, 1, 2]
    assert table.positions.zone_lengths.tolist() == [100, 401, 3000]
    assert table.positions.has_null.tolist() == [False, True, False]
    assert table.num_blocks.tolist() == [num_blocks_for(ndv, 0.001, "exact") for ndv in (100, 1, 3000)]
    assert (by_fragment.name, by_fragment.num_values, by_fragment.num_filters) == ("fragment", 3101, 3)
    assert (by_dataset.name, by_dataset.num_values) == ("dataset", 3100)
    assert by_dataset.segments[0].fragments == ((0, 3),)


def test_fragments_that_failed_or_do_not_fit_are_not_covered(tmp_path):
    by_fragment, by_dataset = build(LocalStore(tmp_path), [list(range(20))] * 4, unfit=(1,), failed=(3,))
    assert by_fragment.segments[0].fragments == ((0, 1), (2, 3))
    assert by_dataset.segments[0].fragments == ((0, 1), (2, 3))


def test_the_data_set_filter_is_a_plain_bitset(tmp_path):
    (entry,) = build(LocalStore(tmp_path), [list(range(100)), list(range(50, 200))], levels=("zone", "dataset"))
    loaded = Sbbf.from_bytes((tmp_path / entry.segments[0].path).read_bytes())
    assert loaded.check(pa.array(range(200), pa.int64())).true_count == 200
    assert loaded.check(pa.array(range(1000, 9000), pa.int64())).true_count < 30
    assert loaded.fpp() == entry.fpp


def test_nothing_stays_of_a_build_that_dies(tmp_path):
    with (
        pytest.raises(RuntimeError),
        LevelBuilder(LocalStore(tmp_path), {"key": pa.int64()}, ("zone", "fragment"), 0.01, [fragment(0, 1)]),
    ):
        raise RuntimeError
    assert [one for one in tmp_path.rglob("*") if one.is_file()] == []


# --- probing ----------------------------------------------------------------------------------------------------------


def leveled(tmp_path, parts, **options):
    store = LocalStore(tmp_path)
    builder = ZoneBuilder(pa.int64(), rows_per_zone=10, fpp=0.01)
    for number, part in enumerate(parts):
        builder.add(number, pa.array(part, pa.int64()))
    zones = builder.finish()
    entries = {entry.name: entry for entry in build(store, parts, **options)}
    datasets = [DatasetFilter(store, entries["dataset"].segments[0])] if "dataset" in entries else []
    segments = entries["fragment"].segments if "fragment" in entries else ()
    fragments = [ZoneSegment(store, one).zones()[0] for one in segments]
    return zones, LeveledZones(zones, datasets, fragments)


def hash_of(*values: int) -> np.ndarray:
    return hashing.hash_array(pa.array(values, pa.int64()))


@settings(max_examples=at_depth(60), deadline=None)
@given(
    parts=st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=45), min_size=1, max_size=6),
    levels=st.sampled_from([("zone", "fragment"), ("zone", "dataset"), ("zone", "fragment", "dataset")]),
    unfit=st.sets(st.integers(0, 5)),
    keys=st.lists(st.integers(0, 90), min_size=1, max_size=5),
    cut=st.integers(0, 20),
    data=st.data(),
)
def test_levels_keep_every_zone_that_holds_a_key_and_no_more_than_the_zones_do(  # noqa: PLR0917 - hypothesis
    tmp_path_factory, parts, levels, unfit, keys, cut, data
):
    tmp_path = tmp_path_factory.mktemp("levels")
    zones, with_levels = leveled(tmp_path, parts, levels=levels, unfit=unfit, cut=cut)
    truth = np.array(
        [not set(keys).isdisjoint(part[first : first + 10]) for part in parts for first in range(0, len(part), 10)]
    )
    plain, kept = zones.may_contain(hash_of(*keys)), with_levels.may_contain(hash_of(*keys))
    assert not (truth & ~kept).any()
    assert not (kept & ~plain).any()
    live = np.array([data.draw(st.booleans()) for _ in truth])
    found = with_levels.contained(hash_of(*keys), live)
    for number, key in enumerate(keys):
        holds = [key in part[first : first + 10] for part in parts for first in range(0, len(part), 10)]
        assert found[number] or not (np.array(holds) & live).any()


def test_an_absent_key_costs_one_block(tmp_path):
    _, zones = leveled(tmp_path, [list(range(300)), list(range(300, 700))])
    assert not zones.may_contain(hash_of(10**6)).any()
    assert zones.probes == {"dataset": 1}


def test_a_present_key_is_looked_for_in_its_fragments_only(tmp_path):
    zones_alone, zones = leveled(tmp_path, [list(range(300)), list(range(300, 700))])
    assert np.array_equal(zones.may_contain(hash_of(350)), zones_alone.may_contain(hash_of(350)))
    assert zones.probes == {"dataset": 1, "fragment": 2, "zone": 40}


def test_many_values_cost_one_block_each(tmp_path):
    _, zones = leveled(tmp_path, [list(range(300)), list(range(300, 700))])
    found = zones.contained(hash_of(*range(100_000)), None)
    assert found[:700].all()
    assert found[700:].mean() < 0.003
    assert zones.probes == {"dataset": 100_000}


def test_zones_that_no_data_set_filter_covers_are_asked_for_every_key(tmp_path):
    _, zones = leveled(tmp_path, [list(range(300)), [10**6] * 20], levels=("zone", "dataset"), unfit=(1,))
    assert zones.may_contain(hash_of(10**6)).tolist() == [False] * 30 + [True] * 2
    assert zones.contained(hash_of(10**6, 7, 10**7), None).tolist() == [True, True, False]


def test_a_damaged_data_set_filter_is_as_none(tmp_path):
    store = LocalStore(tmp_path)
    (entry,) = build(store, [list(range(500))], levels=("zone", "dataset"))
    path = tmp_path / entry.segments[0].path
    path.write_bytes(bytes(path.stat().st_size))
    zones_alone, zones = leveled(tmp_path, [list(range(500))], levels=("zone", "dataset"))
    again = DatasetFilter(store, entry.segments[0])
    zones = LeveledZones(zones.zones, [again], [])
    assert np.array_equal(zones.may_contain(hash_of(3)), zones_alone.may_contain(hash_of(3)))
    assert zones.contained(hash_of(3, 10**9), None).tolist() == [True, False]
    assert zones.damage == (again.damage,)
    with pytest.raises(CorruptIndexError):
        again.to_sbbf()


@pytest.mark.parametrize("count", [1, 1024, 1025])
def test_however_many_hashes_meet_the_damage_first(tmp_path, count):
    blocks = np.zeros((3 * SPAN_BYTES // 32, 8), np.uint32)
    entry = write_dataset_filter(LocalStore(tmp_path), "key", blocks + np.uint32(2**32 - 1), [0])
    (tmp_path / entry.path).write_bytes(bytes(blocks.nbytes))
    opened = DatasetFilter(LocalStore(tmp_path), entry)
    assert opened.check_hashes(np.random.default_rng(0).integers(0, 2**64, count, np.uint64)).all()
    assert opened.damage is not None


def test_only_the_span_of_a_block_is_checked(tmp_path):
    store = LocalStore(tmp_path)
    blocks = np.zeros((3 * SPAN_BYTES // 32 + 5, 8), np.uint32)
    entry = write_dataset_filter(store, "key", blocks, [0])
    assert [span.num_bytes for span in entry.spans] == [SPAN_BYTES] * 3 + [160]
    path = tmp_path / entry.path
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    opened = DatasetFilter(store, entry)
    assert not opened.check_hashes(np.array([0, 2**62], np.uint64)).any()
    assert opened.damage is None
    assert opened.check_hashes(np.array([2**64 - 1], np.uint64)).all()
    assert "span 3" in str(opened.damage)


@pytest.mark.parametrize("keep", [0, 31, 32])
def test_a_torn_data_set_filter_does_not_open(tmp_path, keep):
    store = LocalStore(tmp_path)
    entry = write_dataset_filter(store, "key", np.zeros((2, 8), np.uint32), [0])
    path = tmp_path / entry.path
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CorruptIndexError, match="must have 64 bytes"):
        DatasetFilter(store, entry)
    path.unlink()
    with pytest.raises(CorruptIndexError, match="must exist"):
        DatasetFilter(store, entry)


# --- whole indexes ----------------------------------------------------------------------------------------------------

ALL_LEVELS = ("zone", "fragment", "dataset")


@pytest.fixture
def lake(tmp_path):
    root = tmp_path / "lake"
    root.mkdir()
    for number, num_rows in enumerate([900, 1, 2500, 0, 700]):
        pq.write_table(at_random(num_rows, number), root / f"{number}.parquet", row_group_size=400)
    return root


def built(lake, tmp_path, levels=ALL_LEVELS, **options):
    options = {"columns": ["key", "text", "real"], "rows_per_zone": 50, "fpp": 0.001, **options}
    return zb.build_index(lake, index=tmp_path / "-".join(levels), levels=levels, **options)


def change_a_file(lake):
    pq.write_table(at_random(300, 9), lake / "2.parquet")


def delete_a_file(lake):
    (lake / "0.parquet").unlink()


def add_a_file(lake):
    pq.write_table(at_random(300, 10), lake / "9.parquet")


CHANGES = {
    "nothing": [],
    "changed": [change_a_file],
    "deleted": [delete_a_file],
    "added": [add_a_file],
    "all": [change_a_file, delete_a_file, add_a_file],
}
PREDICATES = [
    zb.Equals("key", 7),
    zb.Equals("key", 10**6),
    zb.Equals("real", 0.0),
    zb.IsIn("text", ["t3", "t399", "nowhere"]),
    zb.IsIn("key", list(range(10**6, 10**6 + 50))),
    zb.IsNull("key"),
    zb.Or([zb.Equals("key", 10**6), zb.Equals("text", "t5")]),
    zb.Not(zb.Equals("key", 3)),
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("levels", [("zone", "fragment"), ("zone", "dataset"), ALL_LEVELS])
def test_answers_are_the_same_with_levels_and_without(lake, tmp_path, levels, change):
    plain, leveled = built(lake, tmp_path, ("zone",)), built(lake, tmp_path, levels)
    for apply in CHANGES[change]:
        apply(lake)
    everything = pads.dataset(lake, format="parquet", exclude_invalid_files=False).to_table()
    for predicate in PREDICATES:
        expected = everything.filter(predicate.to_expression(everything.schema))
        assert leveled.to_table(predicate).equals(expected)
        without, found = plain.search(predicate), leveled.search(predicate)
        assert len(found.row_ranges - without.row_ranges) == 0
        assert found.kind == without.kind
    values = pa.array([3, 7, None, 10**6, 399, -1], pa.int64())
    lost = pc.and_(pc.is_in(values, everything["key"].combine_chunks()), pc.invert(leveled.exists("key", values)))
    assert not pc.any(lost).as_py()
    assert leveled.exists("key", values, exact=True).equals(plain.exists("key", values, exact=True))


def test_a_key_that_is_nowhere_costs_one_block_of_the_index(lake, tmp_path):
    index = built(lake, tmp_path)
    assert index.search(zb.Equals("key", 10**6)).num_rows_kept == 0
    assert index.view().column("key").zones.probes == {"dataset": 1}


def test_a_million_values_cost_a_block_each(lake, tmp_path):
    index = built(lake, tmp_path)
    values = np.arange(1_000_000)
    found = np.asarray(index.exists("key", pa.array(values)))
    present = np.isin(values, pads.dataset(lake, format="parquet").to_table()["key"].drop_null().to_numpy())
    assert found[present].all()
    assert found[~present].mean() < 0.002
    assert index.view().column("key").zones.probes == {"dataset": 1_000_000}


def test_the_data_set_filter_loads_elsewhere(lake, tmp_path):
    index = built(lake, tmp_path)
    values = pads.dataset(lake, format="parquet").to_table()["text"].combine_chunks().unique()
    assert index.dataset_filter("text").check(values).true_count == len(values)
    assert index.dataset_filter("text").num_blocks == num_blocks_for(len(values), 0.001, "exact")
    with pytest.raises(IndexNotFoundError, match="level dataset"):
        built(lake, tmp_path, ("zone", "fragment")).dataset_filter("text")


def test_info_says_what_each_level_costs(lake, tmp_path):
    index = built(lake, tmp_path)
    by_fragment, by_dataset = index.info()["columns"][1]["levels"]
    texts = [set(pq.read_table(file)["text"].to_pylist()) for file in sorted(lake.glob("*.parquet"))]
    assert (by_fragment["num_filters"], by_fragment["num_values"]) == (4, sum(map(len, texts)))
    assert (by_dataset["num_filters"], by_dataset["num_values"]) == (1, len(set().union(*texts)))
    written = {path.stat().st_size for path in (index.root / "columns" / "text").iterdir()}
    assert {by_fragment["index_bytes"], by_dataset["index_bytes"]} <= written
    assert by_dataset["fpp"] == index.dataset_filter("text").fpp() < 0.0015
    text = CliRunner().invoke(app, ["info", str(index.root)]).stdout
    assert text.count("level fragment: 4 filters of") == text.count("level dataset: 1 filter of") == 3


def test_a_damaged_level_costs_only_its_savings(lake, tmp_path):
    index = built(lake, tmp_path)
    for level in index._snapshot.manifest.column("key").levels:
        path = index.root / level.segments[0].path
        path.write_bytes(bytes(path.stat().st_size))
    opened, plain = zb.open_index(index.root), built(lake, tmp_path, ("zone",))
    with pytest.warns(RuntimeWarning, match="zones beneath are asked"):
        found = opened.search(zb.Equals("key", 7))
    assert found.row_ranges == plain.search(zb.Equals("key", 7)).row_ranges
    assert {reason.code for reason in found.reasons} == {"SEGMENT_CORRUPT"}
    assert opened.exists("key", [7, 10**6]).to_pylist()[0]
    assert len(opened.zone_table("key")) == len(plain.zone_table("key"))


def test_verify_finds_a_damaged_level(lake, tmp_path):
    index = built(lake, tmp_path, columns=["key"])
    assert index.verify(sample=1).is_sound
    path = index.root / index._snapshot.manifest.column("key").levels[1].segments[0].path
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    with pytest.warns(RuntimeWarning, match="zones beneath are asked"):
        found = zb.open_index(index.root).verify()
    assert not found.is_sound
    assert found.damage[0].startswith("span 0 of segment")


def test_levels_live_on_beside_other_columns_and_optimize(lake, tmp_path):
    index = built(lake, tmp_path, columns=["key"])
    zb.build_index(lake, ["text"], index=index.root, rows_per_zone=50)
    again = zb.open_index(index.root)
    again.optimize()
    for opened in (again, zb.open_index(index.root)):
        levels = [(one["name"], [level["name"] for level in one["levels"]]) for one in opened.info()["columns"]]
        assert levels == [("key", ["fragment", "dataset"]), ("text", [])]
        assert opened.search(zb.Equals("key", 10**6)).num_rows_kept == 0
        assert opened.view().column("key").zones.probes == {"dataset": 1}


def test_a_refresh_adds_filters_for_what_came_since(lake, tmp_path):
    index = built(lake, tmp_path, columns=["key"])
    pq.write_table(pa.table({"key": pa.array(range(5000, 5300), pa.int64())}), lake / "8.parquet")
    index.refresh()
    assert [level["num_filters"] for level in index.info()["columns"][0]["levels"]] == [5, 2]
    assert index.search(zb.Equals("key", 10**6)).num_rows_kept == 0
    assert index.view().column("key").zones.probes == {"dataset": 2}
    assert index.exists("key", [5001, 10**6]).to_pylist() == [True, False]
    merged = index.dataset_filter("key")
    assert merged.check(pa.array([*range(5000, 5300), *range(400)], pa.int64())).to_pylist().count(False) == 0
    assert not merged.check(pa.array([10**6], pa.int64()))[0].as_py()


def test_the_command_builds_levels(lake, tmp_path):
    arguments = [
        "build",
        str(lake),
        "-c",
        "key",
        "--levels",
        "zone,dataset",
        "--index",
        str(tmp_path / "i"),
        "-f",
        "json",
    ]
    found = json.loads(CliRunner().invoke(app, arguments).stdout)
    assert [one["name"] for one in found["columns"][0]["levels"]] == ["dataset"]
