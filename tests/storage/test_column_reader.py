"""Each zone of a column is answered by the cheapest sound segment that covers it, and is lost only where none is sound.

Oracle: the zone tables alone, which hold the values of every zone; damage is what a segment says of itself.
"""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

import zonebloom as zb
from tests.depth import at_depth
from zonebloom.bloom.zones import ZoneFilters
from zonebloom.ground.reasons import Reason, ReasonCode
from zonebloom.storage.column_reader import ColumnReader, OpenedSegment
from zonebloom.storage.segment import SegmentEntry, runs


class Segment(ZoneFilters):
    """A segment that answers as a zone table does, counts how often it is asked, and may be found damaged then."""

    def __init__(self, table, *, is_damaged: bool = False) -> None:
        self.table, self.is_damaged, self.num_asked = table, is_damaged, 0

    @property
    def positions(self):
        return self.table.positions

    @property
    def damage(self):
        return ("damaged",) if self.is_damaged and self.num_asked else ()

    def _asked(self, answer, everything):
        self.num_asked += 1
        return everything if self.is_damaged else answer

    def candidates(self, hashes):
        return self._asked(self.table.candidates(hashes), np.arange(len(self)))

    def contained(self, hashes, live=None):
        return self._asked(self.table.contained(hashes, live), np.ones(len(hashes), np.bool_))

    def zone_fpp(self, zone):
        return self.table.zone_fpp(zone)


def entry_of(filters, kind: str = "zones", number: int = 0) -> SegmentEntry:
    ids = filters.positions.fragment_ids.tolist()
    return SegmentEntry(f"columns/k/{number}.{kind}", kind, len(ids), 0, runs(ids), ())


def reader_of(segments, kinds=None, *, is_remote: bool = False) -> ColumnReader:
    """A column of some segments, each of a kind; by default zone tables."""
    entries = [entry_of(segment, (kinds or ["zones"] * 99)[number], number) for number, segment in enumerate(segments)]
    by_path = dict(zip((entry.path for entry in entries), segments, strict=True))

    def opened(wanted):
        return [OpenedSegment(entry, by_path[entry.path]) for entry in wanted]

    return ColumnReader(entries, opened, is_remote=is_remote)


def table_of(*fragments: int):
    """Zones of 10 rows of fragments of 35 rows, in this order; fragment n has the values from 100 n on."""
    builder = zb.ZoneBuilder(pa.int64(), rows_per_zone=10)
    for fragment in fragments:
        builder.add(fragment, pa.array(range(100 * fragment, 100 * fragment + 35)))
    return builder.finish()


def hashes_of(*values: int) -> np.ndarray:
    return np.asarray(zb.bloom.hashing.hash_values(pa.array(values, pa.int64())), np.uint64)


def addresses(reader, zones) -> list[int]:
    return reader.positions.addresses[zones].tolist()


KINDS = st.sampled_from(["locator", "slices", "zones"])
FRAGMENTS = st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True)


@given(
    segments=st.lists(st.tuples(KINDS, FRAGMENTS, st.booleans()), min_size=1, max_size=5),
    asked=st.lists(st.integers(-20, 620), min_size=1, max_size=6),
)
@settings(max_examples=at_depth(300, 40), deadline=None)
def test_every_zone_has_the_answer_of_its_cheapest_sound_segment(segments, asked):
    opened = [Segment(table_of(*fragments), is_damaged=damaged) for _, fragments, damaged in segments]
    reader = reader_of(opened, [kind for kind, _, _ in segments])
    fragment_ids = sorted({fragment for _, fragments, _ in segments for fragment in fragments})
    sound = {fragment for _, fragments, damaged in segments for fragment in fragments if not damaged}
    whole = table_of(*fragment_ids)
    hashes = hashes_of(*asked)
    is_lost = np.array([fragment not in sound for fragment in whole.positions.fragment_ids.tolist()])
    for _ in range(2):
        candidates = reader.candidates(hashes)
        assert (np.diff(candidates) > 0).all()
        may = np.zeros(len(whole), np.bool_)
        may[whole.candidates(hashes)] = True
        reached = np.isin(whole.positions.addresses, addresses(reader, candidates))
        for value in asked:
            if value // 100 in fragment_ids and value % 100 < 35:
                assert reached[4 * fragment_ids.index(value // 100) + value % 100 // 10]
        assert not (reached & ~may & ~is_lost).any(), "a sound segment excludes it"
        keys, zones = reader.zones_of_each(hashes)
        assert sorted(set(addresses(reader, zones))) == sorted(set(addresses(reader, candidates)))
        assert reader.contained(hashes).tolist() == [key in keys for key in range(len(hashes))]
    assert reader.positions.addresses.tolist() == whole.positions.addresses.tolist(), "in order, each once"


def test_with_a_sound_locator_no_filter_is_asked_nor_opened():
    locator, filters = Segment(table_of(0, 1)), Segment(table_of(1, 0))
    reader = reader_of([filters, locator], ["zones", "locator"])
    assert addresses(reader, reader.candidates(hashes_of(105))) == [1 << 32]
    assert reader.contained(hashes_of(105, 99)).tolist() == [True, False]
    assert filters.num_asked == 0
    assert [segment.entry.kind for segment in reader.segments] == ["locator"]
    reader.open_all()
    assert [segment.entry.kind for segment in reader.segments] == ["locator", "zones"]


def test_all_segments_of_a_remote_column_are_asked_at_once():
    num_segments = 40
    all_asked = threading.Barrier(num_segments, timeout=5)

    class Waiting(Segment):
        def _asked(self, answer, everything):
            all_asked.wait()
            return super()._asked(answer, everything)

        def zones_of_each(self, hashes):
            return self._asked(self.table.zones_of_each(hashes), None)

    segments = [Waiting(table_of(number)) for number in range(num_segments)]
    reader, hashes = reader_of(segments, is_remote=True), hashes_of(5, 3934, 9999)
    assert addresses(reader, reader.candidates(hashes)) == [0, (39 << 32) + 30]
    assert reader.contained(hashes).tolist() == [True, True, False]
    keys, zones = reader.zones_of_each(hashes)
    assert (keys.tolist(), addresses(reader, zones)) == ([0, 1], [0, (39 << 32) + 30])


def test_a_segment_that_is_found_damaged_is_asked_no_more():
    locator, filters = Segment(table_of(0, 1), is_damaged=True), Segment(table_of(0, 1))
    reader = reader_of([filters, locator], ["slices", "locator"])
    for _ in range(3):
        assert addresses(reader, reader.candidates(hashes_of(105))) == [1 << 32]
    assert (locator.num_asked, filters.num_asked) == (1, 3)
    assert reader.is_spared(reader.segments[0])
    assert reader.damage == ("damaged",)


def test_what_cannot_be_opened_leaves_its_zones_to_others_or_uncovered():
    filters = table_of(0)
    lost = (Reason(ReasonCode.SEGMENT_CORRUPT, "gone"),)
    entries = [entry_of(filters), entry_of(table_of(0, 1), "locator")]
    opened = {entries[0].path: (filters,), entries[1].path: (None, lost)}
    reader = ColumnReader(entries, lambda wanted: [OpenedSegment(entry, *opened[entry.path]) for entry in wanted])
    assert reader.candidates(hashes_of(5)).tolist() == [0]
    assert reader.covered.num_rows == 35
    assert reader.lost == list(lost)
    assert not reader.is_spared(reader.segments[0])


def test_a_zone_beyond_the_last_is_refused():
    reader = reader_of([table_of(0)])
    assert 0 < reader.zone_fpp(3) < 1
    with pytest.raises(ValueError, match="zone must be below 4, got 4"):
        reader.zone_fpp(4)


def test_an_index_that_nobody_holds_is_let_go_without_the_collector(tmp_path):
    pq.write_table(pa.table({"key": range(100)}), tmp_path / "a.parquet")
    index = zb.build_index(tmp_path, "key")
    index.search("key = 7")
    parts = [weakref.ref(index), weakref.ref(index.view()), weakref.ref(index._snapshot)]
    gc.collect()
    gc.disable()
    try:
        del index
        assert [part() for part in parts] == [None, None, None]
    finally:
        gc.enable()
