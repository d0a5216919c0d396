"""`attempts`: repetition of what another process may have done first."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

MOST_ATTEMPTS = 200
_LONGEST_PAUSE = 32
"""The longest pause, in durations of the last attempt; pauses are random, so that losers do not collide again."""


def attempts() -> Iterator[int]:
    """The numbers of up to 200 attempts; there is a pause before each number but the first."""
    for attempt in range(MOST_ATTEMPTS):
        started = time.perf_counter()
        yield attempt
        elapsed = time.perf_counter() - started
        time.sleep(random.uniform(0, elapsed * min(_LONGEST_PAUSE, 2**attempt)))  # noqa: S311 - no secret
