"""How deep the suite goes: for each change, or in full where `ZONEBLOOM_DEPTH=deep` (`make test-deep`).

The properties are the same at both depths; only the number of examples, lives, kills and sessions differs.
"""

from __future__ import annotations

import os

__all__ = ["IS_DEEP", "at_depth"]

IS_DEEP = os.environ.get("ZONEBLOOM_DEPTH") == "deep"


def at_depth(full: int, change: int | None = None) -> int:
    """`full` in the deep suite; else `change`, by default a fifth, and at least 5."""
    return full if IS_DEEP else change or max(full // 5, 5)
