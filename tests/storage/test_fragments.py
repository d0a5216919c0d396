"""Fragments in columns: what a table of them says equals what a dict of objects says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import zonebloom as zb
from tests.conftest import flip
from tests.lives import write
from zonebloom.errors import CorruptIndexError
from zonebloom.storage.fragments import (
    ABSENT,
    CHANGED,
    Fingerprint,
    Fragment,
    FragmentTable,
    is_in_runs,
    read_fragments,
    write_fragments,
)
from zonebloom.storage.segment import runs
from zonebloom.stores.local import LocalStore

TAGS = st.sampled_from([None, "a", "b"])
GROUPS = st.lists(st.tuples(st.integers(0, 2**30), st.integers(0, 2**50)), max_size=3)
PATHS = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=9), unique=True, max_size=12)


@st.composite
def fragments(draw) -> list[Fragment]:
    drawn = []
    for number, path in enumerate(draw(PATHS)):
        groups = draw(GROUPS)
        rows, sizes = tuple(rows for rows, _ in groups), tuple(size for _, size in groups)
        size, mtime_ns = draw(st.integers(0, 2**62)), draw(st.integers(-(2**60), 2**62))
        drawn.append(Fragment(3 * number + 1, path, size, mtime_ns, draw(TAGS), sum(rows), rows, sizes))
    return drawn


@given(fragments())
def test_a_table_is_a_mapping_of_fragments_by_path(drawn):
    table, expected = FragmentTable.of(drawn), {fragment.path: fragment for fragment in drawn}
    assert table == expected
    assert (len(table), list(table), table.values()) == (len(drawn), list(expected), drawn)
    assert dict(table.items()) == expected
    assert all(path in table and table[path] == value and table.get(path) == value for path, value in expected.items())
    assert "no such \0 path" not in table
    assert table.get("no such \0 path") is None


@given(fragments())
@settings(deadline=None)
def test_a_list_on_disk_gives_back_what_was_written(tmp_path_factory, drawn):
    store = LocalStore(tmp_path_factory.mktemp("store"))
    entry = write_fragments(store, FragmentTable.of(drawn))
    assert read_fragments(store, entry).values() == drawn
    assert (entry.num_fragments, entry.num_bytes) == (len(drawn), store.size(entry.path))
    flip(store.root / entry.path)
    with pytest.raises(CorruptIndexError):
        read_fragments(store, entry)


@given(fragments(), st.data())
def test_parts_and_wholes(drawn, data):
    cut = data.draw(st.integers(0, len(drawn)))
    table = FragmentTable.concatenated([FragmentTable.of(drawn[:cut]), FragmentTable.of(drawn[cut:])])
    assert table.values() == drawn
    chosen = data.draw(st.lists(st.sampled_from(range(len(drawn))), unique=True)) if drawn else []
    assert table.take(np.array(chosen, np.int64)).values() == [drawn[place] for place in chosen]
    mask = np.array([number in chosen for number in range(len(drawn))], np.bool_)
    assert table.where(mask).values() == [fragment for number, fragment in enumerate(drawn) if number in chosen]
    ranges = list(zip(*(column.tolist() for column in table.group_ranges()), strict=True))
    expected = []
    for fragment in drawn:
        starts = np.cumsum([0, *fragment.row_group_rows]).tolist()
        for start, rows, size in zip(starts, fragment.row_group_rows, fragment.row_group_bytes, strict=False):
            expected += [(fragment.fragment_id, start, start + rows, size)] if rows else []
    assert ranges == expected


@given(fragments(), st.data())
def test_a_listing_is_compared_by_path_and_fingerprint(drawn, data):
    table, listing, expected = FragmentTable.of(drawn), {}, []
    kinds = ["same", "size", "mtime", "etag", "gone"]
    changes = data.draw(st.lists(st.sampled_from(kinds), min_size=len(drawn)))
    by = data.draw(st.sampled_from([1, -1]))  # smaller and older too: another version may have been moved there
    for number, (fragment, change) in enumerate(zip(drawn, changes, strict=False)):
        size, mtime_ns, etag = fragment.fingerprint
        if change != "gone":
            etag = etag if change != "etag" else ("other" if by == 1 or etag is None else None)
            size, mtime_ns = size + by * (change == "size"), mtime_ns + by * (change == "mtime")
            listing[fragment.path] = Fingerprint(size, mtime_ns, etag)
            expected.append(number if change == "same" else CHANGED)
    for number in range(data.draw(st.integers(0, 2))):
        listing[f"new \0 {number}"] = Fingerprint(1, 1)
        expected.append(ABSENT)
    order = data.draw(st.permutations(range(len(listing))))
    names = list(listing)
    shuffled = {names[number]: listing[names[number]] for number in order}
    assert table.compare(shuffled).tolist() == [expected[number] for number in order]


@given(st.sets(st.integers(0, 60)), st.lists(st.integers(0, 60)))
def test_ids_are_found_in_runs(inside, asked):
    assert is_in_runs(np.array(asked, np.uint64), runs(inside)).tolist() == [value in inside for value in asked]


def test_many_files_that_are_new_take_linear_time(tmp_path):
    """With a list of reasons that is searched for each reason, this takes a minute."""
    for number in range(2):
        write(tmp_path / f"f{number}.parquet", range(10))
    index = zb.build_index(tmp_path, "k")
    data = (tmp_path / "f0.parquet").read_bytes()
    for number in range(1000):
        (tmp_path / f"g{number:04}.parquet").write_bytes(data)
    result = index.search("k = 3")
    assert len(result.reasons) == 1000
    assert result.kept.rows == 20 + 10_000
    assert index.view().files.num_changed == 0
