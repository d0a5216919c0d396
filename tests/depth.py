"""How deep the suite goes: for each change, or in full where `ZONEBLOOM_DEPTH=deep` (`make test-deep`).

The properties are the same at both depths; only the number of examples, lives, kills and sessions differs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TypeVar

__all__ = ["IS_DEEP", "at_depth", "some"]

T = TypeVar("T")

IS_DEEP = os.environ.get("ZONEBLOOM_DEPTH") == "deep"


def at_depth(full: int, change: int | None = None) -> int:
    """`full` in the deep suite; else `change`, by default a fifth, and at least 5."""
    return full if IS_DEEP else change or max(full // 5, 5)


def some(cases: Iterable[T], each: int) -> Sequence[T]:
    """All `cases` in the deep suite; else the first and every `each`-th after it."""
    return list(islice(cases, 0, None, 1 if IS_DEEP else each))
