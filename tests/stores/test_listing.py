"""A listing in parts has every key that a plain listing has, for random keys, cuts and orders."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from zonebloom.errors import DataFileError
from zonebloom.stores.fingerprint import Fingerprint
from zonebloom.stores.listing import KeyRun, listed_in_parts
from zonebloom.stores.open import open_store

ALPHABET = ["", "a", "b", "ab", "A", "-", "/", "=", "0", "é", "雪", "\ue000", "😀", " ", "%2F", "~"]
"""Parts of keys; some sort differently by bytes, by UTF-16, and by folders."""
ORDERS: dict[str, Callable[[str], Any]] = {
    "bytes": str.encode,
    "utf-16": lambda key: key.encode("utf-16-be"),
    "folders": lambda key: key.split("/"),
    "no case": lambda key: (key.lower(), key),
    "backwards": lambda key: [-byte for byte in key.encode()],
    "scrambled": lambda key: (random.Random(key).random(), key),
}


class Bucket:
    """A store that lists its keys in some order, some of them a page."""

    def __init__(self, keys: Sequence[str], order: Callable[[str], Any], page: int) -> None:
        self.keys = sorted(keys, key=order)
        self.page = page
        self.num_pages = 0
        self._order = order
        self._places = list(map(order, self.keys))

    def after(self, start: str | None) -> int:
        """The place of the first key after `start`."""
        return 0 if start is None else bisect_right(self._places, self._order(start))

    def read(self, start: str | None, ends: frozenset[str] | None) -> KeyRun:
        keys: dict[str, Fingerprint] = {}
        for first in range(self.after(start), max(len(self.keys), 1), self.page):
            page = {key: Fingerprint(len(key), 0) for key in self.keys[first : first + self.page]}
            self.num_pages += 1
            keys |= page
            if ends is None or not ends.isdisjoint(page):
                return KeyRun(keys, is_last=False)
        return KeyRun(keys, is_last=True)


class WithoutStarts(Bucket):
    """A store that ignores where a listing is to begin."""

    def after(self, start: str | None) -> int:  # noqa: ARG002 - ignored
        return 0


def some_keys(source: random.Random, count: int) -> list[str]:
    return list({"".join(source.choices(ALPHABET, k=source.randrange(1, 7))) or "x" for _ in range(count)})


@pytest.mark.parametrize("kind", [Bucket, WithoutStarts])
@pytest.mark.parametrize("order", ORDERS)
def test_all_keys_are_listed(order, kind):
    source = random.Random(order)
    for _ in range(300):
        keys = some_keys(source, source.choice([0, 1, 5, 40]))
        gone = set(source.sample(keys, int(len(keys) * source.choice([0, 0.2, 1]))))
        there = [key for key in keys if key not in gone] + some_keys(source, source.choice([0, 3, 60]))
        bucket = kind(list(dict.fromkeys(there)), ORDERS[order], page=source.choice([1, 2, 7]))
        cuts = source.sample(keys, min(len(keys), source.choice([0, 1, 4, 20])))
        entries = listed_in_parts(sorted(cuts) if source.random() < 0.8 else cuts, bucket.read)
        assert entries == {key: Fingerprint(len(key), 0) for key in there}


def test_a_part_is_one_page_where_most_keys_are_known():
    keys = [f"part-{number:05}.parquet" for number in range(2000)]
    bucket = Bucket(keys, str.encode, page=100)
    assert list(listed_in_parts(keys[90::90], bucket.read)) == keys
    assert bucket.num_pages == 23  # of 23 parts


def test_many_new_keys_cost_a_page_each():
    keys = [f"part-{number:05}.parquet" for number in range(2000)]
    bucket = Bucket(keys, str.encode, page=100)
    gone = [f"gone-{number:05}.parquet" for number in range(0, 1000, 90)]
    assert set(listed_in_parts(gone, bucket.read)) == set(keys)
    assert bucket.num_pages == len(gone) + 20


def test_a_folder_that_vanishes_while_it_is_listed_has_no_files(tmp_path):
    """Another process may remove it after its parent was listed; the root must be there."""
    store = open_store(str(tmp_path / "lake"), None)
    (tmp_path / "lake").mkdir()
    assert store.level("p=1/", lambda _name: False) == ([], [])
    (tmp_path / "lake").rmdir()
    with pytest.raises(DataFileError, match="lake must be a readable folder, got No such file"):
        store.level("", lambda _name: False)
