"""Locator segments give the zones of each key and no other, in any cut and order, and believe nothing unchecked.

Expected zones come from all rows, by the definition: a zone is named where a hash in it has the key's highest 41 bits.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings, strategies as st

from tests.child import run_python
from tests.depth import at_depth
from tests.fuzz.memory import MemoryStore, Objects
from zonebloom.bloom import hashing
from zonebloom.bloom.locator_pages import pair_bounds
from zonebloom.errors import CorruptIndexError, InvalidArgumentError
from zonebloom.storage.locator import build as building, layout as locator_layout, merge as merging
from zonebloom.storage.locator.build import LocatorBuilder, LocatorParts
from zonebloom.storage.locator.merge import merge_locators
from zonebloom.storage.locator.reader import LocatorSegment
from zonebloom.storage.locator.writer import LocatorWriter
from zonebloom.storage.sealed_rows import first_seed
from zonebloom.storage.segment import SegmentEntry, Span, checksum
from zonebloom.storage.slices.layout import ZonePositions
from zonebloom.stores.local import LocalStore

Fragments = dict[int, pa.Array]


@pytest.fixture(params=["a few keys", "many keys"])
def way(request, monkeypatch):
    """Both ways of searching: NumPy and positioned reads, and the kernels."""
    monkeypatch.setattr("zonebloom.storage.locator.reader._FEW_HASHES", 1 << 30 if request.param == "a few keys" else 0)
    return request.param


def build(root: Path, fragments: Fragments, rows_per_zone: int = 10, **options: int) -> list[SegmentEntry]:
    parts = LocatorParts(LocalStore(root), "key", **options)
    builder = LocatorBuilder(parts, rows_per_zone=rows_per_zone)
    for fragment_id, values in fragments.items():
        builder.add(fragment_id, values)
    builder.close()
    parts.close()
    return parts.entries


def opened(root: Path, entries: list[SegmentEntry]) -> list[LocatorSegment]:
    return [LocatorSegment(LocalStore(root), entry) for entry in entries]


def merged(root: Path, entries: list[SegmentEntry]) -> SegmentEntry:
    segments = opened(root, entries)
    return merge_locators(LocalStore(root), "key", segments, [np.ones(len(segment), bool) for segment in segments])


def zones_of_rows(fragments: Fragments, rows_per_zone: int = 10) -> dict[int, list[tuple[int, int]]]:
    """By key, the fragment and first row of each zone that holds it, in order."""
    zones: dict[int, list[tuple[int, int]]] = {}
    for fragment_id, values in sorted(fragments.items()):
        for start in range(0, len(values), rows_per_zone):
            hashes = hashing.hash_array(values.slice(start, rows_per_zone))
            for key in np.unique(hashes >> np.uint64(23)).tolist():
                zones.setdefault(key, []).append((fragment_id, start))
    return zones


def zones_of_segments(segments: list[LocatorSegment], hashes: np.ndarray) -> list[list[tuple[int, int]]]:
    actual: list[list[tuple[int, int]]] = [[] for _ in hashes]
    for segment in segments:
        keys, zones = segment.lookup(hashes)
        for key, zone in zip(keys.tolist(), zones.tolist(), strict=True):
            actual[key].append((int(segment.positions.fragment_ids[zone]), int(segment.positions.zone_starts[zone])))
    return [sorted(pairs) for pairs in actual]


def assert_all_zones_are_named(segments: list[LocatorSegment], fragments: Fragments, rows_per_zone: int = 10) -> None:
    expected = zones_of_rows(fragments, rows_per_zone)
    chosen = list(expected)[:: max(1, len(expected) // 60)]
    random = np.random.default_rng(len(expected))
    present = np.array(chosen, np.uint64) << np.uint64(23)
    hashes = random.permutation(np.concatenate((present, random.integers(0, 2**64, 30, np.uint64))))
    named = zones_of_segments(segments, hashes)
    assert named == [expected.get(int(key_hash) >> 23, []) for key_hash in hashes]
    wanted = {zone for zones in named for zone in zones}
    for segment in segments:
        where = list(zip(segment.positions.fragment_ids.tolist(), segment.positions.zone_starts.tolist(), strict=True))
        assert where == sorted(where)
        candidates = segment.candidates(hashes)
        assert [where[zone] for zone in candidates] == [zone for zone in where if zone in wanted]
        live = random.random(len(segment)) < 0.5
        contained = [bool(set(zones) & {where[i] for i in np.flatnonzero(live)}) for zones in named]
        assert segment.contained(hashes, live).tolist() == contained
        assert segment.contained(hashes).tolist() == [bool(set(zones) & set(where)) for zones in named]
        assert segment.verify()


def integers(*counts: int, distinct: int = 1 << 62, nulls: float = 0.0, seed: int = 0) -> Fragments:
    random = np.random.default_rng([seed, *counts])
    return {
        3 + 2 * number: pa.array(random.integers(0, distinct, count), mask=random.random(count) < nulls)
        for number, count in enumerate(counts)
    }


# --- pairs in, zones out ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("counts", [(0,), (1,), (9,), (10,), (11,), (0, 25, 1, 100), (3000, 7)])
@pytest.mark.parametrize("distinct", [1, 6, 1 << 62])
def test_each_key_names_its_zones(tmp_path, way, counts, distinct):
    fragments = integers(*counts, distinct=distinct, nulls=0.2)
    entries = build(tmp_path, fragments)
    assert len(entries) == (sum(counts) > 0)
    assert_all_zones_are_named(opened(tmp_path, entries), fragments)


def test_nulls_are_said_and_have_no_pairs(tmp_path):
    values = pa.array([None] * 25 + [1] * 10 + [2, None])
    [entry] = build(tmp_path, {4: values})
    [segment] = opened(tmp_path, [entry])
    assert segment.positions.has_null.tolist() == [True, True, True, True]
    assert segment.positions.zone_lengths.tolist() == [10, 10, 10, 7]
    assert segment.layout.num_pairs == 3
    [empty] = opened(tmp_path, build(tmp_path, {4: pa.nulls(25, pa.int64())}))
    assert (len(empty), empty.layout.num_pairs, empty.entry.spans[0].num_bytes) == (3, 0, 0)
    assert not empty.contained(np.arange(2000, dtype=np.uint64)).any()
    assert empty.verify()


@settings(max_examples=at_depth(40), deadline=None)
@given(
    cuts=st.lists(st.integers(0, 400), max_size=6),
    sizes=st.tuples(*map(st.sampled_from, ([1, 7, 10, 64, 1000], [1, 50, 64, 333, 1 << 20], [1, 30, 64, 1 << 18]))),
    distinct=st.sampled_from([1, 5, 100, 1 << 62]),
    seed=st.integers(0, 99),
)
def test_a_locator_does_not_depend_on_batches_and_parts(tmp_path_factory, cuts, sizes, distinct, seed):
    root = tmp_path_factory.mktemp("parts")
    rows_per_zone, part_pairs, run_pairs = sizes
    fragments = integers(400, 0, 150, distinct=distinct, nulls=0.1, seed=seed)
    [whole] = build(root, fragments, rows_per_zone)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(building, "_RUN_PAIRS", run_pairs)
        patch.setattr(building, "_SORTED_PAIRS", run_pairs)
        parts = LocatorParts(LocalStore(root), "key", part_pairs=part_pairs)
        workers = [LocatorBuilder(parts, rows_per_zone=rows_per_zone) for _ in range(2)]
        for number, (fragment_id, values) in enumerate(fragments.items()):
            bounds = sorted({0, len(values), *(min(cut, len(values)) for cut in cuts)})
            for start, stop in pairwise(bounds):
                workers[number % 2].add(fragment_id, values.slice(start, stop - start))
        for worker in workers[::-1]:
            worker.close()
        parts.close()
    assert_all_zones_are_named(opened(root, parts.entries), fragments, rows_per_zone)
    again = merged(root, parts.entries)
    assert without_checksums(root, again) == without_checksums(root, whole)
    assert again.spans == whole.spans


def test_zones_may_come_in_any_order(tmp_path):
    values = integers(40)[3]
    parts = LocatorParts(LocalStore(tmp_path), "key")
    for first_row in (20, 0):
        builder = LocatorBuilder(parts, rows_per_zone=10)
        builder.start_fragment(1, first_row=first_row)
        builder.add(1, values.slice(first_row, 20))
        builder.close()
    parts.close()
    [entry] = parts.entries
    [whole] = build(tmp_path, {1: values})
    assert without_checksums(tmp_path, entry) == without_checksums(tmp_path, whole)


def test_parts_are_of_about_equal_size(tmp_path, monkeypatch):
    monkeypatch.setattr(building, "_RUN_PAIRS", 100)
    entries = build(tmp_path, integers(10_100), num_rows=10_100, part_pairs=5000)
    assert [entry.num_zones for entry in entries] == [340, 340, 330]


def test_keys_that_repeat_take_no_memory(tmp_path):
    """A part holds each pair once: a million rows of three values are one part of 3 pairs a zone."""
    values = pa.array(np.arange(1_000_000) % 3)
    [entry] = build(tmp_path, {0: values}, 8192, num_rows=len(values), part_pairs=1 << 19)
    [segment] = opened(tmp_path, [entry])
    assert segment.layout.num_pairs == 3 * len(segment)


def test_a_build_that_fails_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(building, "_RUN_PAIRS", 50)
    parts = LocatorParts(LocalStore(tmp_path), "key", part_pairs=50)
    builder = LocatorBuilder(parts, rows_per_zone=10)
    builder.add(0, integers(500)[3])
    assert len(list(tmp_path.rglob("*.locator"))) == len(parts.entries) > 1
    with pytest.raises(pa.ArrowInvalid), parts:
        builder.add(0, pa.array(["x"]).cast(pa.int64()))
    assert not list(tmp_path.rglob("*.locator"))


# --- merging ----------------------------------------------------------------------------------------------------------


@settings(max_examples=at_depth(20))
@given(st.data(), st.sampled_from([1, 9, 1 << 62]), st.sampled_from([1, 3, 512]))
def test_merges_in_any_order_give_the_same_bytes(tmp_path_factory, data, distinct, round_pages):
    root = tmp_path_factory.mktemp("merges")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "_ROUND_PAGES", round_pages)
        patch.setattr(merging, "_CHUNK_PAGES", 1)
        fragments = integers(5000, 30, 0, 2500, 1, 700, distinct=distinct, nulls=0.1)
        [whole] = build(root, fragments)
        left = [build(root, {fragment: values})[0] for fragment, values in fragments.items() if len(values)]
        while len(left) > 1:
            chosen = data.draw(st.lists(st.sampled_from(left), min_size=2, unique_by=id))
            left = [segment for segment in left if segment not in chosen] + [merged(root, chosen)]
        assert without_checksums(root, left[0]) == without_checksums(root, whole)


def without_checksums(root: Path, entry: SegmentEntry) -> bytes:
    """The bytes of a locator without the checksums of its pages, which are of its path."""
    data = (root / entry.path).read_bytes()
    pages, rest = np.frombuffer(data[: entry.filter_bytes], np.uint8), data[entry.filter_bytes :]
    return pages.reshape(-1, 4096)[:, :4088].tobytes() + rest


def test_a_merge_leaves_out_zones_that_are_gone(tmp_path):
    fragments = integers(3000, 200, 999)
    segments = opened(tmp_path, [build(tmp_path, {fragment: values})[0] for fragment, values in fragments.items()])
    live = [np.ones(len(segments[0]), bool), np.zeros(len(segments[1]), bool), np.ones(len(segments[2]), bool)]
    live[2][:5] = False
    [rest] = opened(tmp_path, [merge_locators(LocalStore(tmp_path), "key", segments, live)])
    [first, _, last] = fragments.values()
    assert list(rest.entry.fragments) == [(3, 4), (7, 8)]
    expected = zones_of_rows({3: first, 7: last})
    hashes = np.concatenate([hashing.hash_array(values) for values in fragments.values()])[::9]
    gone = {(7, start) for start in range(0, 50, 10)}
    wanted = [[zone for zone in expected.get(key_hash >> 23, []) if zone not in gone] for key_hash in hashes.tolist()]
    assert zones_of_segments([rest], hashes) == wanted


@pytest.mark.parametrize(
    ("spoilt", "message"),
    [(lambda data: data[:5000] + b"x" + data[5001:], "have the checksum"), (None, "exist, got no such file")],
)
def test_a_merge_of_a_segment_that_is_damaged_or_removed_meanwhile_leaves_nothing(tmp_path, spoilt, message):
    """Interleavings from seed 50000431: after a vacuum, an optimize raised a bare FileNotFoundError of the store."""
    entries = [build(tmp_path, {fragment: values})[0] for fragment, values in integers(3000, 2000).items()]
    objects = Objects({entry.path: ((tmp_path / entry.path).read_bytes(), 0.0) for entry in entries})
    store = MemoryStore(objects)
    segments = [LocatorSegment(store, entry) for entry in entries]
    data, when = objects.present.pop(entries[1].path)
    if spoilt:
        objects.present[entries[1].path] = spoilt(data), when
    before = dict(objects.present)
    with pytest.raises(CorruptIndexError, match=f"{entries[1].path}.* must {message}"):
        merge_locators(store, "key", segments, [np.ones(len(segment), bool) for segment in segments])
    assert objects.present == before


def test_a_merge_with_more_zones_than_a_locator_holds_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(merging, "MAX_ZONES", 5)
    with pytest.raises(InvalidArgumentError, match="at most 5 zones, got 10"):
        merged(tmp_path, build(tmp_path, integers(100)))


# --- the file ---------------------------------------------------------------------------------------------------------


def test_a_page_is_that_of_the_spec(tmp_path, monkeypatch):
    monkeypatch.setattr("zonebloom.storage.segment.new_path", lambda *_: "columns/id/a.locator")
    zeros, ones = np.zeros(3, np.uint64), np.ones(3, np.uint64)
    positions = ZonePositions(zeros, np.arange(3, dtype=np.uint64), ones, zeros > 0)
    pairs = np.array([5 << 23, 5 << 23 | 2, (3 << 30 | 7) << 23 | 1], np.uint64)
    with LocatorWriter(LocalStore(tmp_path), "key", positions) as writer:
        writer.write(pairs)
    page = (tmp_path / writer.entry.path).read_bytes()[:4096]
    assert page[:12].hex() == "000000000300000023000000"
    assert page[12:4076] == bytes(4064)
    assert page[4076:4088].hex() == "1d0000001600000014000000"
    assert page[4088:].hex() == "0d4d8912446af991"


class CountingStore(LocalStore):
    """Counts reads, those that wait for another one, and their bytes."""

    num_reads = num_bytes = 0

    def read_ranges(self, path, ranges):
        self.num_reads += 1
        self.num_bytes += sum(length for _, length in ranges)
        return super().read_ranges(path, ranges)


def test_a_key_reads_a_few_pages_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr("zonebloom.storage.locator.reader._FEW_HASHES", 1)
    fragments = integers(1_200_000)
    [entry] = build(tmp_path, fragments, 8192)
    store = CountingStore(tmp_path)
    segment = LocatorSegment(store, entry)
    assert segment.layout.num_directory_pages == 3
    opening = store.num_bytes
    assert opening < 4096
    hashes = hashing.hash_array(fragments[3])[::40_000]
    store.num_reads = store.num_bytes = 0
    for hash_ in hashes:
        assert len(segment.candidates(np.array([hash_]))) == 1
    assert store.num_reads == len(hashes)
    assert store.num_bytes <= 2.5 * 4096 * len(hashes)
    assert entry.num_bytes / 1_200_000 < 4.2


# --- interpolation ----------------------------------------------------------------------------------------------------


@settings(max_examples=at_depth(60), deadline=None)
@given(
    num_pages=st.sampled_from([1, 2, 3, 510, 511, 512, 1022, 1300]),
    zone_bits=st.sampled_from([0, 1, 9, 23]),
    kind=st.sampled_from(["uniform", "clustered", "consecutive", "two ends", "squared"]),
    seed=st.integers(0, 999),
)
def test_interpolation_gives_all_pages_of_a_key(num_pages, zone_bits, kind, seed):
    """Of any first pairs, however unlike hashes."""
    random = np.random.default_rng(seed)
    end = 1 << (41 + zone_bits)
    centres = [int(number) % end for number in random.integers(0, 2**64, 3, np.uint64)]
    drawn = {
        "uniform": [int(number) % end for number in random.integers(0, 2**64, 4 * num_pages, np.uint64)],
        "clustered": [min(centres[number % 3] + number, end - 1) for number in range(4 * num_pages)],
        "consecutive": range(end - 2 * num_pages, end),
        "two ends": [*range(num_pages), *range(end - num_pages, end)],
        "squared": [int(end * share**2) for share in random.random(4 * num_pages)],
    }[kind]
    drawn = sorted({pair for pair in drawn if 0 <= pair < end})
    firsts = sorted(random.permutation(len(drawn))[:num_pages].tolist())
    firsts = [drawn[place] for place in firsts]
    assert len(firsts) == num_pages
    deviations = locator_layout.deviations_of(np.array(firsts, np.uint64), zone_bits)
    layout = locator_layout.LocatorLayout(1 << zone_bits, 1 << 40, num_pages, tuple(firsts[::511]), deviations)
    assert all(least <= 0 <= greatest for least, greatest in deviations)
    near = [first + step for first in firsts for step in (-1, 0, 1)]
    for pair in [0, end - 1, *near, *(int(number) % end for number in random.integers(0, 2**64, 200, np.uint64))]:
        least = max(0, min(pair, end - 1)) >> zone_bits << zone_bits
        greatest = least + (1 << zone_bits) - 1
        begin, stop = layout.window(least, greatest)
        assert 0 <= begin <= locator_layout.last_at_most(firsts, least)
        assert locator_layout.last_at_most(firsts, greatest) < stop <= num_pages


@pytest.mark.parametrize(("distinct", "most"), [(1 << 62, 2.5), (300, 40)])
def test_interpolation_gives_few_pages(tmp_path, distinct, most):
    fragments = integers(1_200_000, distinct=distinct)
    [segment] = opened(tmp_path, build(tmp_path, fragments, 1000))
    layout = segment.layout
    assert layout.num_pages > (300 if distinct == 300 else 1022)
    random = np.random.default_rng(1).integers(0, 2**64, 2000, np.uint64).tolist()
    windows = [layout.window(*pair_bounds(hash_, layout.zone_bits)) for hash_ in random]
    assert np.mean([stop - first for first, stop in windows]) < most


def test_wide_windows_and_old_segments_ask_the_directory(tmp_path):
    """A segment without deviations, and one whose keys are so few that interpolation gives most of its pages."""
    fragments = integers(530_000)
    [entry] = build(tmp_path, fragments, 8192)
    [old] = opened(tmp_path, [rewritten(tmp_path, entry)])
    assert old.layout.deviations == ()
    assert old.layout.num_directory_pages == 2
    assert_all_zones_are_named([old], fragments, 8192)
    fragments = integers(540_000, distinct=3)
    store = CountingStore(tmp_path)
    segment = LocatorSegment(store, build(tmp_path, fragments, 1)[0])
    assert segment.layout.num_directory_pages == 2
    hashes = hashing.hash_array(pa.array([0, 1, 2]))
    store.num_reads = store.num_bytes = 0
    assert len(segment.candidates(hashes)) == 540_000
    assert store.num_reads == 2


def test_a_compiler_is_loaded_once_the_keys_so_far_are_worth_it(tmp_path):
    [entry] = build(tmp_path, integers(1000))
    code = f"""
import sys, numpy as np
from zonebloom.storage.segment import SegmentEntry, Span, checksum
from zonebloom.storage.locator.reader import LocatorSegment
from zonebloom.stores.local import LocalStore
segment = LocatorSegment(LocalStore({str(tmp_path)!r}), {entry!r})
hashes = np.arange(1024, dtype=np.uint64) << np.uint64(54)
zones = segment.candidates(hashes).tolist()
print("numba" in sys.modules)
for _ in range(20):
    assert segment.candidates(hashes).tolist() == zones
print("numba" in sys.modules)
"""
    assert run_python(code).stdout.split() == ["False", "True"]


def test_pairs_out_of_order_are_refused(tmp_path):
    positions = opened(tmp_path, build(tmp_path, integers(100)))[0].positions
    with LocatorWriter(LocalStore(tmp_path), "key", positions) as writer:
        writer.write(np.array([7], np.uint64))
        with pytest.raises(InvalidArgumentError, match="ascend from call to call, got 5 after 7"):
            writer.write(np.array([5], np.uint64))


# --- damage -----------------------------------------------------------------------------------------------------------


def rewritten(root: Path, entry: SegmentEntry, **changes) -> SegmentEntry:
    """The segment with another layout in a tail whose checksum holds: what a hostile writer would make."""
    path = root / entry.path
    [segment] = opened(root, [entry])
    layout = segment.layout
    fields = {name: getattr(layout, name) for name in ("num_zones", "num_pairs", "num_pages", "roots")} | changes
    positions = fields.pop("positions", segment.positions[: max(fields["num_zones"], 0)])
    tail = locator_layout.encode_tail(locator_layout.LocatorLayout(**fields), positions).to_pybytes()
    path.write_bytes(path.read_bytes()[: -entry.spans[-1].num_bytes] + tail)
    return replace(entry, spans=(*entry.spans[:-1], Span(len(tail), checksum(tail))))


@pytest.mark.parametrize(
    "changes",
    [
        *({"num_pages": 2}, {"num_pages": 1 << 40}, {"num_pages": -1}, {"num_zones": 1 << 24}, {"num_zones": -1}),
        *({"num_pairs": 0}, {"roots": ()}, {"roots": (0,) * 5}, {"deviations": ((0, 0), (0, 0))}),
        *({"deviations": ((1, 2),)}, {"deviations": ((-2, -1),)}),
    ],
    ids=str,
)
def test_a_layout_that_leads_outside_is_rejected(tmp_path, changes):
    [entry] = build(tmp_path, integers(3000))
    hostile = rewritten(tmp_path, entry, **changes)
    message = "must have the zones, pairs, pages and roots that its spans hold|must describe|must be an integer"
    with pytest.raises(CorruptIndexError, match=message):
        LocatorSegment(LocalStore(tmp_path), hostile)


def test_fewer_zones_than_the_pairs_name_are_damage(tmp_path, way):
    fragments = integers(3000)
    [entry] = build(tmp_path, fragments)
    hostile = rewritten(tmp_path, entry, num_zones=257)
    segment = LocatorSegment(LocalStore(tmp_path), hostile)
    hashes = hashing.hash_array(fragments[3])
    assert len(segment.candidates(hashes)) == 257
    (damage,) = segment.damage
    assert damage.startswith(f"segment {entry.path} must name zones below 257, got ")


def test_roots_that_do_not_ascend_read_nothing_outside(tmp_path, way):
    [entry] = build(tmp_path, integers(3000))
    for root in (0, 2**64 - 1):
        segment = LocatorSegment(LocalStore(tmp_path), rewritten(tmp_path, entry, roots=(root,)))
        segment.candidates(np.arange(100, dtype=np.uint64) << np.uint64(57))
        [entry] = build(tmp_path, integers(3000))


def test_zones_out_of_order_are_not_merged(tmp_path):
    [entry, other] = [build(tmp_path, {fragment: values})[0] for fragment, values in integers(3000, 20).items()]
    [segment] = opened(tmp_path, [entry])
    hostile = rewritten(tmp_path, entry, positions=segment.positions[np.arange(len(segment))[::-1].copy()])
    with pytest.raises(CorruptIndexError, match="must have its zones in order of fragment and start"):
        merged(tmp_path, [hostile, other])


def test_pages_out_of_order_are_damage(tmp_path):
    fragments = integers(3000)
    [entry] = build(tmp_path, fragments)
    path = tmp_path / entry.path
    data = bytearray(path.read_bytes())
    start, page = entry.spans[0].num_bytes, entry.spans[0].num_bytes // 4096
    data[start + 8 : start + 16] = bytes(8)
    digest = xxhash.xxh3_64_intdigest(data[start : start + 4088], first_seed(entry.path) + page)
    data[start + 4088 : start + 4096] = digest.to_bytes(8, "little")
    path.write_bytes(data)
    segment = opened(tmp_path, [entry])[0]
    assert len(segment.candidates(hashing.hash_array(fragments[3]))) == 300
    assert segment.damage == (f"segment {entry.path} must have its pages in order",)
