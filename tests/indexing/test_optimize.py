"""Optimizing changes where filters lie and nothing else: same zones, same answers, whatever fails on the way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

import zonebloom as zb
from tests.conftest import flip
from tests.depth import at_depth
from zonebloom.bloom.zones import zone_schema
from zonebloom.errors import CorruptIndexError, IndexNotFoundError
from zonebloom.ground.reasons import ReasonCode
from zonebloom.index.index import Index
from zonebloom.indexing.optimize import optimize_column
from zonebloom.storage.manifest import ColumnEntry, commit, read_version
from zonebloom.storage.segment import SegmentEntry
from zonebloom.storage.slices.reader import FEW_HASHES, SliceSegment
from zonebloom.storage.zone_segment import ZoneSegment, ZoneSegmentWriter
from zonebloom.stores.local import LocalStore

# --- columns without data ---------------------------------------------------------------------------------------------


def zone_batch(zones: list[tuple[int, int, int, bool, bytes]]) -> pa.RecordBatch:
    schema = zone_schema(10, 0.01, column="key", column_type=pa.int64())
    return pa.RecordBatch.from_pylist([dict(zip(schema.names, zone, strict=True)) for zone in zones], schema)


def random_zones(num_fragments: int, zones_per_fragment: int, sizes: list[int], seed: int):
    random = np.random.default_rng(seed)
    return [
        (fragment, zone * 10, 10, bool(random.random() < 0.2), random.bytes(32 * int(random.choice(sizes))))
        for fragment in range(num_fragments)
        for zone in range(zones_per_fragment)
    ]


def write_zones(store: LocalStore, zones) -> SegmentEntry:
    schema = zone_schema(10, 0.01, column="key", column_type=pa.int64())
    with ZoneSegmentWriter(store, "key", schema) as writer:
        for first in range(0, len(zones), 100):
            writer.write(zone_batch(zones[first : first + 100]))
        (segment,) = writer.finish()
    return segment


def column_of(segments) -> ColumnEntry:
    return ColumnEntry("key", pa.int64(), 10, 0.01, "adaptive", tuple(segments), column_id="key")


def open_all(store: LocalStore, column: ColumnEntry):
    for segment in column.segments:
        yield SliceSegment(store, segment) if segment.kind == "slices" else ZoneSegment(store, segment).zones()[0]


def rows_of(store: LocalStore, column: ColumnEntry) -> list[tuple]:
    """All zones of a column, in order of address."""
    tables = [table.to_arrow() for table in open_all(store, column)]
    return sorted(tuple(row.values()) for table in tables for row in table.to_pylist())


def answers(store: LocalStore, column: ColumnEntry, hashes: np.ndarray) -> set[tuple[int, int]]:
    """Fragment and start of each zone that may contain any of `hashes`."""
    actual = set()
    for table in open_all(store, column):
        mask = table.may_contain(hashes)
        actual |= set(zip(table.positions.fragment_ids[mask], table.positions.zone_starts[mask], strict=True))
    return actual


@given(
    num_fragments=st.integers(1, 6),
    zones_per_fragment=st.sampled_from([1, 7, 64, 100, 230]),
    sizes=st.sampled_from([[1], [2], [1, 3], [1, 2, 3, 4, 5]]),
    seed=st.integers(0, 2**32),
    data=st.data(),
)
@settings(max_examples=at_depth(40), deadline=None)
def test_merges_of_any_segments_in_any_order_keep_every_bit(  # noqa: PLR0917 - hypothesis passes them by name
    tmp_path_factory, num_fragments, zones_per_fragment, sizes, seed, data
):
    store = LocalStore(tmp_path_factory.mktemp("store"))
    zones = random_zones(num_fragments, zones_per_fragment, sizes, seed)
    order = data.draw(st.permutations(range(num_fragments)))
    column = column_of([])
    live = set(range(num_fragments))
    hashes = np.random.default_rng(seed).integers(0, 2**64, FEW_HASHES + 1, np.uint64)
    for fragment in order:
        mine = [zone for zone in zones if zone[0] == fragment]
        column = column_of([*column.segments, write_zones(store, mine)])
        if data.draw(st.booleans()):
            column, _ = optimize_column(store, column, live, lambda _: None)
    plain = column_of([write_zones(store, zones)])
    assert rows_of(store, column) == rows_of(store, plain)
    gone = data.draw(st.sets(st.sampled_from(range(num_fragments)), max_size=num_fragments))
    column, done = optimize_column(store, column, live - gone, lambda _: None)
    kept = [zone for zone in zones if zone[0] not in gone]
    assert rows_of(store, column) == sorted(kept)
    assert done.damage == ()
    plain = column_of([write_zones(store, kept)] if kept else [])
    for chosen in (hashes[:1], hashes[:2], hashes):
        assert answers(store, column, chosen) == answers(store, plain, chosen)
    again, _ = optimize_column(store, column, live - gone, lambda _: None)
    assert again is column, "a second time there is nothing to do"


def test_a_group_of_many_bodies_keeps_every_bit(tmp_path, monkeypatch):
    """Bodies take turns in two buffers, and the rows of each have checksums by their number in the group."""
    monkeypatch.setattr("zonebloom.storage.slices.layout._BODY_BYTES", 2 * 256 * 128)
    store = LocalStore(tmp_path)
    zones = random_zones(4, 240, [7], 0)
    merged, _ = optimize_column(store, column_of([write_zones(store, zones)]), set(range(4)), lambda _: None)
    (table,) = open_all(store, merged)
    assert isinstance(table, SliceSegment)
    assert len(table.layout.bodies()) == 4
    assert table.verify()
    assert rows_of(store, merged) == sorted(zones)


def test_a_full_group_is_left_alone_and_small_ones_are_merged(tmp_path, monkeypatch):
    monkeypatch.setattr("zonebloom.indexing.optimize.FULL_GROUP", 448)
    store = LocalStore(tmp_path)
    zones = random_zones(4, 448, [1], 0)
    column = column_of([write_zones(store, zones[:448])])
    column, _ = optimize_column(store, column, {0, 1, 2, 3}, lambda _: None)
    full = column.segments[0]
    column = column_of([full, write_zones(store, zones[448:700])])
    column, _ = optimize_column(store, column, {0, 1, 2, 3}, lambda _: None)
    assert column.segments[0] is full
    small = column.segments[1]
    column = column_of([full, small, write_zones(store, zones[700:896])])
    column, _ = optimize_column(store, column, {0, 1, 2, 3}, lambda _: None)
    assert [segment.num_zones for segment in column.segments] == [448, 448]
    assert small not in column.segments
    assert rows_of(store, column) == sorted(zones[:896])


@pytest.mark.parametrize("damaged", [0, 1])
def test_a_damaged_segment_stays_and_is_told(tmp_path, damaged):
    store = LocalStore(tmp_path)
    zones = random_zones(6, 300, [1], 0)
    first, _ = optimize_column(store, column_of([write_zones(store, zones[:300])]), {0}, lambda _: None)
    entries = [*first.segments, write_zones(store, zones[300:])]
    flip(tmp_path / entries[damaged].path)
    column, done = optimize_column(store, column_of(entries), set(range(6)), lambda _: None)
    assert entries[damaged] in column.segments
    assert len(done.damage) == 1
    assert damaged == 1 or len(column.segments) > 1


# --- indexes ----------------------------------------------------------------------------------------------------------

ROWS_PER_ZONE = 18
PREDICATES = (
    *("device_id = 5", "note IS NULL", "note = 'note 7' AND NOT device_id = 3"),
    "user_id = 'absent' OR note = 'note 9'",
)


@pytest.fixture
def flat_lake(make_lake):
    """Three files of 278, 169 and one zone: just one full group of slices."""
    return make_lake((5000, 3042, 1))


def build(lake, **options) -> Index:
    return zb.build_index(lake.root, ["user_id", "note"], rows_per_zone=ROWS_PER_ZONE, optimize=False, **options)


def kinds(index: Index) -> list[dict[str, int]]:
    return [column.segments for column in index.indexed_columns()]


def everything(index: Index, lake) -> list:
    present = lake.table["user_id"][77].as_py()
    many = zb.col("user_id").isin(lake.table["user_id"][:50:1].to_pylist() + [str(i) for i in range(FEW_HASHES)])
    actual = [index.search(predicate).row_ranges for predicate in (*PREDICATES, f"user_id = '{present}'", many)]
    return [*actual, index.exists("user_id", [present, "absent", None]).to_pylist()]


def files_of(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("sizing", ["power_of_two", "exact", "adaptive"])
def test_an_optimized_index_answers_alike(flat_lake, sizing):
    index = build(flat_lake, sizing=sizing)
    before, tables = everything(index, flat_lake), [index.zone_table(name).to_arrow() for name in index.columns]
    done = index.optimize()
    assert done.version == index.version == 2
    assert {column.name for column in done.columns} == {"user_id", "note"}
    assert sizing == "adaptive" or kinds(index) == [{"slices": 1}] * 2
    for opened in (index, zb.open_index(flat_lake.root)):
        assert everything(opened, flat_lake) == before
        assert [opened.zone_table(name).to_arrow() for name in opened.columns] == tables
    assert index.verify().is_sound
    assert index.search(PREDICATES[0]).reasons == zb.open_index(flat_lake.root, version=1).search(PREDICATES[0]).reasons
    assert index.optimize().columns == ()
    assert index.version == 2


def test_an_index_whose_version_another_process_removed_is_optimized(flat_lake):
    index = build(flat_lake, workers=1)  # one segment has zones of the file that goes
    (flat_lake.root / flat_lake.files[0]).unlink()
    other = zb.open_index(flat_lake.root)
    other.refresh()
    other.vacuum(older_than=0)
    assert (index.optimize().version, index.version) == (3, 3)


def test_a_damaged_row_keeps_its_group_whole_and_says_so(flat_lake):
    index = build(flat_lake)
    index.optimize()
    for entry in read_version(LocalStore(index.root), 2).column("user_id").segments:
        path = index.root / entry.path
        data = bytearray(path.read_bytes())
        start = entry.spans[0].num_bytes
        data[start : start + entry.spans[1].num_bytes] = bytes(entry.spans[1].num_bytes)
        path.write_bytes(bytes(data))
    index = zb.open_index(flat_lake.root)
    with pytest.warns(RuntimeWarning, match="bit row"):
        result = index.search("user_id = 'absent'")
    assert result.num_zones_kept == result.num_zones
    assert ReasonCode.SEGMENT_CORRUPT in {reason.code for reason in result.reasons}
    assert index.search("user_id = 'absent'").row_ranges == result.row_ranges
    assert "bit row" in str(index.explain("user_id = 'absent'"))
    assert index.search("user_id = 'absent'").reasons == result.reasons, "warned of once, and a reason each time"
    assert index.search("note = 'absent'").reasons == (), "of another column"
    assert not index.verify().is_sound
    with pytest.raises(CorruptIndexError):
        index.zone_table("user_id")
    present = flat_lake.table["user_id"][3].as_py()
    assert index.to_table(f"user_id = '{present}'").num_rows == 1


def test_a_segment_of_an_unknown_kind_is_read_whole(flat_lake):
    index = build(flat_lake)
    store = LocalStore(index.root)
    manifest = read_version(store, 1)
    column = manifest.columns[0]
    segments = tuple(replace(segment, kind="ribbons") for segment in column.segments)
    changed = replace(column, segments=segments)
    commit(store, manifest.following("test", columns=(changed, *manifest.columns[1:])))
    with pytest.warns(RuntimeWarning, match="kind"):
        result = zb.open_index(flat_lake.root).search("user_id = 'absent'")
    assert result.num_rows_kept == result.num_rows
    assert ReasonCode.FORMAT_TOO_NEW in {reason.code for reason in result.reasons}


def test_a_large_build_ends_with_slices_and_leaves_no_orphan(make_lake):
    lake = make_lake((5000, 3300))
    index = zb.build_index(lake.root, "user_id", rows_per_zone=2)
    assert index.version == 1
    assert kinds(index) == [{"slices": 2}]
    named = {segment.path for column in index._snapshot.manifest.columns for segment in column.segments}
    assert {name for name in files_of(index.root) if name.startswith("columns/")} == named
    assert index.exists("user_id", lake.table["user_id"]).true_count == 8300
    assert index.optimize().columns == ()


def test_an_index_that_was_deleted_says_so(flat_lake):
    index = zb.build_index(flat_lake.root, "user_id")
    zb.delete_index(flat_lake.root)
    with pytest.raises(IndexNotFoundError, match="must have a version"):
        index.optimize()


def test_a_small_build_and_one_that_is_told_so_stay_zones(make_lake):
    lake = make_lake((5000, 3300))
    small = zb.build_index(lake.root, "note", rows_per_zone=16, workers=1)
    assert kinds(small) == [{"zones": 1}]
    told = zb.build_index(lake.root, "note", rows_per_zone=2, optimize=False, overwrite=True, workers=1)
    assert kinds(told) == [{"zones": 1}]
