"""The rows of Spark's frames, as tests compare them."""

from __future__ import annotations

from typing import Any


def shown(frame: Any) -> list[str]:
    """All rows as texts, in an order of their own."""
    return sorted(map(repr, frame.collect()))
