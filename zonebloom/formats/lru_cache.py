"""`LruCache`: a cache of the values that were used last, limited by their sizes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """The values that were used last, for any number of threads.

    Parameters
    ----------
    limit
        The largest sum of the sizes of all values; the least recently used values are dropped.
    size_of
        The size of a value.
    """

    def __init__(self, limit: int, size_of: Callable[[V], int]) -> None:
        self._limit = limit
        self._size_of = size_of
        self._lock = threading.Lock()
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._total = 0

    def get(self, key: K) -> V | None:
        """The value at `key`, which becomes the most recently used one; None if there is none."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def put(self, key: K, value: V) -> None:
        """Keep `value` at `key`; a value larger than the limit is not kept."""
        size = self._size_of(value)
        if size > self._limit:
            return
        with self._lock:
            self._total += size - self._values.pop(key, (value, 0))[1]
            self._values[key] = value, size
            while self._total > self._limit:
                self._total -= self._values.popitem(last=False)[1][1]

    def clear(self) -> None:
        """Drop all values."""
        with self._lock:
            self._values.clear()
            self._total = 0
