"""Reads and writes at a position of an open file, by several threads at once.

Where the system has no such call (Windows), one thread at a time moves the position of the file.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

_moving = threading.Lock()


def _read_after_seek(number: int, length: int, offset: int, /) -> bytes:
    with _moving:
        os.lseek(number, offset, os.SEEK_SET)
        return os.read(number, length)


def _write_after_seek(number: int, data: bytes | memoryview, offset: int, /) -> int:
    with _moving:
        os.lseek(number, offset, os.SEEK_SET)
        return os.write(number, data)


read_at: Callable[[int, int, int], bytes] = getattr(os, "pread", _read_after_seek)
"""`read_at(number, length, offset)`: bytes of the file descriptor `number`; fewer at the end of the file."""
write_at: Callable[[int, bytes | memoryview, int], int] = getattr(os, "pwrite", _write_after_seek)
"""`write_at(number, data, offset)`: the number of bytes written."""


def read_into(number: int, memory: memoryview, offset: int) -> int:
    """Fill `memory` with bytes of the file descriptor `number`; their number, less at the end of the file."""
    if hasattr(os, "preadv"):
        return os.preadv(number, [memory], offset)
    data = read_at(number, len(memory), offset)
    memory[: len(data)] = data
    return len(data)
