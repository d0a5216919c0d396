"""`concurrently`: work done by threads, with its results in order. `on_deep_stack`: work that recurses deeply."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import TypeVar

from zonebloom.ground.errors import InvalidArgumentError

_STACK_BYTES = 64 << 20
"""Bytes: room for about 250 000 levels of calls of about 250 bytes (pyarrow 26 on x86-64); unused ones cost nothing."""
_CALLS = 100_000
"""Calls of Python's own, some 20 for each level of a condition that sqlglot parses."""
_STACKS = threading.Lock()
"""`threading.stack_size` and `sys.setrecursionlimit` are settings of all threads."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def num_cores() -> int:
    """Cores that this process may use: the default number of workers."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def on_deep_stack(call: Callable[[], Result]) -> Result:
    """The result of `call`, which recurses deeply, from a thread that has room for it."""
    with _STACKS:
        usual_bytes, usual_calls = threading.stack_size(_STACK_BYTES), sys.getrecursionlimit()
        sys.setrecursionlimit(max(usual_calls, _CALLS))
        try:
            with ThreadPoolExecutor(1) as pool:
                return pool.submit(call).result()
        finally:
            sys.setrecursionlimit(usual_calls)
            threading.stack_size(usual_bytes)


def concurrently(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int, *, ahead: int | None = None
) -> Iterator[Result]:
    """The results of `function` for `items`, in order; `workers` calls run at once.

    After an error, or when the iterator is closed, no further call begins, and the iterator waits for running calls.
    A forked child cannot read on: it gets an `InvalidArgumentError`.

    Parameters
    ----------
    workers
        Number of threads. For 0, or a single item, the caller's thread calls `function` when it takes the result.
    ahead
        The most calls whose results may wait; this bounds their memory. By default all calls may wait.
    """
    return _in_threads(function, items, workers, ahead) if workers else map(function, items)


def _in_threads(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int, ahead: int | None
) -> Iterator[Result]:
    waiting = iter(items)
    first = list(islice(waiting, 2))
    if len(first) < 2:  # noqa: PLR2004 - one needs no thread
        yield from map(function, first)
        return
    pool, process = ThreadPoolExecutor(workers, thread_name_prefix="zonebloom"), os.getpid()
    pending: deque[Future[Result]] = deque()
    try:
        for item in chain(first, waiting):
            pending.append(pool.submit(function, item))
            if ahead is not None and len(pending) > ahead:
                yield pending.popleft().result()
                _check_process(process)
        while pending:
            yield pending.popleft().result()
            _check_process(process)
    finally:
        if os.getpid() == process:
            pool.shutdown(wait=True, cancel_futures=True)


def _check_process(process: int) -> None:
    if os.getpid() != process:  # a forked child has no threads, and would wait for ever
        raise InvalidArgumentError(
            "an iterator must be read by the process that began it",
            got="a forked child",
            do="begin it anew in the child",
        )
