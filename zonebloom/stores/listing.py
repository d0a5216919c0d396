"""A long listing in parts that are read at once.

An object store lists 1000 keys a request, each page after the page before it. If most of the keys are known, the
listing can be cut at known ones, and the parts read at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, islice
from typing import NamedTuple

from zonebloom.ground.threads import concurrently
from zonebloom.stores.fingerprint import Fingerprint

_AT_ONCE = 128


class KeyRun(NamedTuple):
    """Keys that follow each other in a listing."""

    keys: dict[str, Fingerprint]
    """The keys, in the order of the listing, and their fingerprints."""
    is_last: bool
    """Whether the listing has no key after them."""


Reader = Callable[[str | None, frozenset[str] | None], KeyRun]
"""Reads the keys after a name (None: all) up to the first of some keys, or to the end of the listing. Without such keys
it reads a page."""


def listed_in_parts(cuts: Sequence[str], read: Reader) -> dict[str, Fingerprint]:
    """All keys of a listing that is cut after each of `cuts`, which need not exist or be in order.

    Each part is read until it has the first key of a later part. All keys are found, for any order in which the
    store lists them, if the order is the same in each request: the part that begins last before a key, or at it, has
    the key, as no later part begins between.
    """
    starts = [None, *cuts]
    tasks = [*((start, None) for start in starts[:-1]), (starts[-1], frozenset[str]())]
    parts = list(concurrently(lambda task: read(*task), tasks, _AT_ONCE))
    unfinished: list[tuple[str | None, frozenset[str]]] = []
    ends: frozenset[str] = frozenset()
    for start, part in zip(reversed(starts), reversed(parts), strict=True):
        if not part.is_last and ends.isdisjoint(part.keys):
            unfinished.append((start, ends))
        ends |= frozenset(islice(part.keys, 1))
    parts += concurrently(lambda task: read(*task), unfinished, _AT_ONCE)
    return dict(chain.from_iterable(part.keys.items() for part in parts))
