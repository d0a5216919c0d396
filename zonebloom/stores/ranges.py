"""Byte ranges of a remote object: the requests that fetch them, and cutting them out of the answers.

Spec: specs/index-format.md#object-stores
"""

from __future__ import annotations

from collections.abc import Sequence

_GAP_BYTES = 1 << 18
"""Bytes: ranges that are nearer to each other are fetched by one request. The 8 bit rows of a key are: neighbours are
at most 63 rows of 4096 bytes apart."""
PART_BYTES = 8 << 20
"""Bytes of a request: a longer range is fetched in parallel parts."""


def coalesced(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Requests that fetch the ranges `(offset, length)`, in order: near ones together, long ones in parts of 8 MiB.

    >>> coalesced([(1_000_000, 10), (0, 100), (50, 200), (200_000, 5)])
    [(0, 200005), (1000000, 10)]
    """
    spans: list[list[int]] = []
    for offset, length in sorted(span for span in ranges if span[1]):
        if spans and offset - spans[-1][1] <= _GAP_BYTES:
            spans[-1][1] = max(spans[-1][1], offset + length)
        else:
            spans.append([offset, offset + length])
    return [(at, min(PART_BYTES, stop - at)) for start, stop in spans for at in range(start, stop, PART_BYTES)]


def cut(pieces: Sequence[tuple[int, memoryview]], offset: int, length: int) -> bytes:
    """Bytes `[offset, offset + length)` of an object from its `pieces`, each with its offset; fewer at the end."""
    parts = []
    for start, data in pieces:
        first, last = max(offset - start, 0), min(offset + length - start, len(data))
        if first < last:
            parts.append(data[first:last])
    return b"".join(parts)
