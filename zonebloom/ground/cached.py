"""`cached_property`: a value that an object computes once, for which no thread waits."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar

Value = TypeVar("Value")


class cached_property(functools.cached_property[Value]):  # noqa: N801 - it takes the place of that of functools
    """As that of Python 3.12: two threads may both compute the value.

    In Python 3.11 a property has one lock for all objects. A search of one index would wait for a search of another,
    and a process that is forked meanwhile would never end.
    """

    def __init__(self, function: Callable[[Any], Value]) -> None:
        super().__init__(function)
        self.lock: Any = nullcontext()
