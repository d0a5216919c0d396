"""`Fingerprint`: what identifies one version of a data file.

Spec: specs/index-format.md#fragments
"""

from __future__ import annotations

import time
from typing import NamedTuple

_SETTLED_SECONDS = 0.02
"""Seconds between seeing a young file's modification time and reading the file. A later write gets another time."""
_COARSELY_SETTLED_SECONDS = 2.0
"""The same for file systems that keep whole seconds."""
_OLD_NS = 60_000_000_000
"""Nanoseconds: a file older than this is not young, even if the clock of a file server is ahead or behind."""


class Fingerprint(NamedTuple):
    """Size, time and tag that identify one version of a data file."""

    size: int
    """Bytes."""
    mtime_ns: int
    """Time of last modification, nanoseconds since 1970."""
    etag: str | None = None
    """The object store's tag."""

    @property
    def text(self) -> str:
        """The parts in one text, by which results name the version of a file that they are of."""
        return "-".join(str(part) for part in self if part is not None)


def wait_until_settled(fingerprint: Fingerprint, seen: float) -> None:
    """Wait, if the file is young, until a later write would get another modification time.

    The wait counts from `seen`, when the modification time had been read, not from the modification time itself, which
    may be from another clock.
    """
    has_tag = fingerprint.etag is not None  # a later write gets another tag
    if has_tag or time.time_ns() - fingerprint.mtime_ns > _OLD_NS:
        return
    settled = _SETTLED_SECONDS if fingerprint.mtime_ns % 1_000_000_000 else _COARSELY_SETTLED_SECONDS
    left = seen + settled - time.monotonic()
    if left > 0:
        time.sleep(left)
