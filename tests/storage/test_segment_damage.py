"""Damage of slice segments and locators is found and said, and loses no zone, whichever way they are asked.

Oracle: the zones that the undamaged segment must name. Damage of zone segments is in test_damage.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests.conftest import flip
from tests.storage.test_locator import build, integers
from tests.storage.test_slices import expected_zones, hashes_of, random_filters, write_slices
from zonebloom.bloom import hashing
from zonebloom.errors import CorruptIndexError, UnsupportedFormatError
from zonebloom.storage.locator import layout as locator_layout
from zonebloom.storage.locator.reader import LocatorSegment
from zonebloom.storage.segment import SegmentEntry
from zonebloom.storage.slices import layout as slice_layout
from zonebloom.storage.slices.reader import FEW_HASHES, SliceSegment
from zonebloom.stores.local import LocalStore


class Subject(NamedTuple):
    """A segment on disk, and the zones of the hashes that it is asked for."""

    entry: SegmentEntry
    path: Path
    open: Callable[[], SliceSegment | LocatorSegment]
    hashes: np.ndarray
    zones: set[int]


def slices(root: Path, count: int) -> Subject:
    filters, hashes = random_filters(20, 2), hashes_of(count)
    entry = write_slices(root, filters)
    zones = set(np.flatnonzero(expected_zones(filters, hashes)).tolist())
    return Subject(entry, root / entry.path, lambda: SliceSegment(LocalStore(root), entry), hashes, zones)


def locator(root: Path, count: int) -> Subject:
    values = integers(3000)[3]
    [entry] = build(root, {3: values})
    rows = np.arange(0, 3000, 3000 // count)[:count]
    hashes = hashing.hash_array(values)[rows]
    zones = set((rows // 10).tolist())
    return Subject(entry, root / entry.path, lambda: LocatorSegment(LocalStore(root), entry), hashes, zones)


@pytest.fixture(params=[(slices, 1), (slices, 2), (slices, FEW_HASHES + 1), (locator, 60), (locator, 61)])
def subject(request, tmp_path, monkeypatch) -> Subject:
    """Each kind of segment, asked for few hashes, in plain Python, and for many, by kernels."""
    make, count = request.param
    monkeypatch.setattr("zonebloom.storage.locator.reader._FEW_HASHES", 60)
    return make(tmp_path, count)


@pytest.mark.parametrize("subject", [(slices, 1), (slices, FEW_HASHES + 1), (locator, 60)], indirect=True)
def test_rows_of_another_segment_are_detected(subject, tmp_path):
    """Of the same column, type, rows and shape: the head or tail says nothing of the values."""
    make = slices if subject.entry.kind == "slices" else locator
    other = make(tmp_path / "other", len(subject.hashes))
    first = subject.entry.spans[0].num_bytes if make is slices else 0
    length = subject.entry.spans[1].num_bytes if make is slices else subject.entry.filter_bytes
    mine, others = subject.path.read_bytes(), other.path.read_bytes()
    subject.path.write_bytes(mine[:first] + others[first : first + length] + mine[first + length :])
    segment = subject.open()
    assert subject.zones <= set(segment.candidates(subject.hashes).tolist())
    assert len(segment.damage) == 1


def test_a_flipped_bit_anywhere_is_detected_and_loses_nothing(subject):
    sound, random = subject.path.read_bytes(), np.random.default_rng(3)
    each = subject.open().contained(subject.hashes)
    head = subject.entry.spans[0].num_bytes
    positions = [0, 4, *range(0, head, 197), *random.integers(0, len(sound), 60).tolist(), len(sound) - 1]
    num_rejected = 0
    for position in positions:
        flip(subject.path, position, int(random.integers(8)))
        try:
            segment = subject.open()
        except CorruptIndexError:
            num_rejected += 1
        else:
            assert subject.zones <= set(segment.candidates(subject.hashes).tolist())
            assert (segment.contained(subject.hashes) >= each).all()
            assert not segment.verify()
            assert len(segment.damage) == 1
            assert len(segment.candidates(~subject.hashes)) == len(segment), "nothing is believed any more"
            with pytest.raises(CorruptIndexError):
                segment.lookup(subject.hashes) if isinstance(segment, LocatorSegment) else segment.to_arrow()
        subject.path.write_bytes(sound)
    assert 0 < num_rejected < len(positions)
    assert subject.open().verify()


def test_every_other_length_is_rejected(subject):
    data = subject.path.read_bytes()
    for size in [*range(0, len(data), 499), *range(len(data) - 100, len(data)), len(data) + 1]:
        subject.path.write_bytes((data + b"x")[:size])
        with pytest.raises(CorruptIndexError):
            subject.open()
    subject.path.unlink()
    with pytest.raises(CorruptIndexError, match="must exist"):
        subject.open()


@pytest.mark.parametrize("subject", [(slices, 1), (locator, 60)], indirect=True)
def test_a_newer_layout_says_so(subject, monkeypatch):
    for layout, name in ((slice_layout, "_LAYOUT_VERSION"), (locator_layout, "_VERSION")):
        monkeypatch.setattr(layout, name, 1)
    with pytest.raises(UnsupportedFormatError, match=r"version <= 1, got 2; .*a newer zonebloom wrote it"):
        subject.open()


@pytest.mark.parametrize("share", [0, 0.3, 0.9])
def test_a_file_that_is_cut_under_a_reader_loses_nothing(subject, share):
    segment, size = subject.open(), subject.path.stat().st_size
    with subject.path.open("r+b") as file:
        file.truncate(int(share * size))
    zones = segment.candidates(subject.hashes)
    assert subject.zones <= set(zones.tolist())
    assert not segment.damage or len(zones) == len(segment)
    assert segment.damage or share


def test_an_opened_segment_loses_nothing_without_its_file(subject):
    segment = subject.open()
    subject.path.unlink()
    zones = set(segment.candidates(subject.hashes).tolist())
    assert zones == subject.zones or (subject.zones < zones and segment.damage)
