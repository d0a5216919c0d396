"""What a query reads, as the system saw it: files that were opened, by whom ever, and bytes of this process and below.

Bytes are those of read calls, caches of the system included, pipes and sockets of Java and Python too. What a process
maps into its memory, such as an index that is read again, is not among them.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

__all__ = ["Traffic", "traffic"]

_IN_OPEN = 0x20
_HEAD = struct.Struct("iIII")


@dataclass(frozen=True, slots=True)
class Traffic:
    """Of one run."""

    files: int
    """Files of the folder that were opened."""
    num_bytes: int
    """Bytes read, of any file."""


def traffic(case: Callable[[], Any], folder: Path) -> Traffic:
    """What one run of `case` reads; `folder` holds the files, none of them in a folder within."""
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if watch < 0 or libc.inotify_add_watch(watch, os.fsencode(folder), _IN_OPEN) < 0:
        raise OSError(ctypes.get_errno(), "inotify must watch the folder")
    try:
        before = _bytes_read()
        case()
        return Traffic(len(_opened(watch)), _bytes_read() - before)
    finally:
        os.close(watch)


def _opened(watch: int) -> set[bytes]:
    names: set[bytes] = set()
    while True:
        try:
            events = os.read(watch, 1 << 20)
        except BlockingIOError:
            return {name for name in names if name.endswith(b".parquet")}
        place = 0
        while place < len(events):
            *_, length = _HEAD.unpack_from(events, place)
            place += _HEAD.size
            names.add(events[place : place + length].rstrip(b"\0"))
            place += length


def _bytes_read() -> int:
    own = psutil.Process(os.getpid())
    return sum(process.io_counters().read_chars for process in (own, *own.children(recursive=True)))
