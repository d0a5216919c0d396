"""Filters that several writers make in parts are those that one writer makes.

Oracle: `LevelBuilder` over all rows.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from zonebloom.storage.fragments import Fragment
from zonebloom.storage.level import LevelEntry, joined_levels
from zonebloom.storage.levels import DatasetFilter, LevelBuilder
from zonebloom.storage.levels.fill import Filling
from zonebloom.storage.levels.partial import PartialLevels, merge_dataset, merge_fragments
from zonebloom.storage.stores.local import LocalStore

COLUMNS, FPP, LEVELS = {"key": pa.int64()}, 0.01, ("zone", "fragment", "dataset")


def fragment(number, num_rows):
    return Fragment(number, f"{number}.parquet", 1, 1, None, num_rows, (num_rows,), (1,))


def fragment_rows(folder, levels):
    (level,) = [one for one in levels if one.name == "fragment"]
    tables = [pa.ipc.open_file(folder / segment.path).read_all() for segment in level.segments]
    return pa.concat_tables(tables).sort_by("fragment_id").combine_chunks()


def dataset_bytes(store, levels):
    (level,) = [one for one in levels if one.name == "dataset"]
    return level, DatasetFilter(store, level.segments[0]).to_sbbf().to_bytes()


def by_one(store, values, fragments):
    with LevelBuilder(store, COLUMNS, LEVELS, FPP, fragments) as builder:
        for one in fragments:
            builder.add("key", one.fragment_id, values[one.fragment_id])
            builder.end_unit(one.fragment_id, one.num_rows, ())
    return builder.finish(())["key"]


def by_writers(store, values, fragments, shares):
    """`shares` is for each writer a list of `(fragment id, start, stop)`."""
    total = sum(one.num_rows for one in fragments)
    rows = {one.fragment_id: one.num_rows for one in fragments}
    found, parts = [], []
    for share in shares:
        here = {}
        for number, start, stop in share:
            here[number] = here.get(number, 0) + stop - start
        mine = [one for one in fragments if one.fragment_id in here]
        with PartialLevels(store, COLUMNS, LEVELS, FPP, mine, rows=here, total_rows=total) as levels:
            for number, start, stop in share:
                levels.add("key", number, values[number].slice(start, stop - start))
                levels.end_unit(number, stop - start, ())
        entries, some = levels.finish(())
        found += entries.get("key", ())
        parts += some
    split = [part for part in parts if part.fragment_id is not None]
    if split:
        found.append(merge_fragments(store, "key", pa.int64(), split, fpp=FPP, rows=rows))
    whole = [part for part in parts if part.fragment_id is None]
    found.append(merge_dataset(store, "key", whole, Filling(total, FPP), covered=rows)[0])
    return joined_levels(found), parts


@pytest.mark.parametrize("size", [2000, 4_300_000])
def test_parts_become_the_filters_of_one_writer(tmp_path, size):
    store = LocalStore(tmp_path)
    random = np.random.default_rng(size)
    keys = [random.integers(0, 2**40, rows) for rows in (size, 700, 900)]
    values = [pa.array(one, mask=one % 5 == 0) for one in keys]
    fragments = [fragment(number, len(one)) for number, one in enumerate(keys)]
    shares = [[(0, 0, 500), (1, 0, 700)], [(0, 500, size - 300)], [(2, 0, 900), (0, size - 300, size)]]
    ours, parts = by_writers(store, values, fragments, shares)
    theirs = by_one(store, values, fragments)
    assert {part.is_hashes for part in parts} == ({True} if size < 4_000_000 else {True, False})
    assert [level.name for level in ours] == ["fragment", "dataset"]
    assert fragment_rows(tmp_path, ours).equals(fragment_rows(tmp_path, theirs))
    assert dataset_bytes(store, ours)[1] == dataset_bytes(store, theirs)[1]
    for made, wanted in zip(ours, theirs, strict=True):
        assert made.num_values == wanted.num_values
        assert made.fpp == pytest.approx(wanted.fpp)


def test_a_part_is_never_larger_than_hashes_or_filter(tmp_path):
    store = LocalStore(tmp_path)
    for rows, least in ((1000, 8000), (5_000_000, 8_000_000)):
        one = fragment(0, 5_000_001)
        with PartialLevels(store, COLUMNS, ("zone", "dataset"), FPP, [one], rows={0: rows}, total_rows=6_000_000) as it:
            it.add("key", 0, pa.array(np.arange(rows)))
        (part,) = it.finish(())[1]
        assert store.size(part.path) <= least


def test_levels_of_one_name_are_joined():
    entries = [
        LevelEntry("dataset", 5, 0.1, ()),
        LevelEntry("fragment", 5, 0.1, ()),
        LevelEntry("fragment", 7, 0.1, ()),
    ]
    assert joined_levels(entries) == (LevelEntry("fragment", 12, 0.0, ()), LevelEntry("dataset", 5, 0.0, ()))
