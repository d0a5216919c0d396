"""Work done ahead by threads, results in order."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Given = TypeVar("Given")
Made = TypeVar("Made")


def read_ahead(read: Callable[[Given], Made], tasks: Iterable[Given], workers: int) -> Iterator[Made]:
    """The results of `read` for `tasks`, in order; `workers` tasks are read at once."""
    waiting = iter(tasks)
    first = list(itertools.islice(waiting, 2))
    waiting = itertools.chain(first, waiting)
    if len(first) <= 1 or not workers:
        yield from map(read, waiting)
        return
    pool = ThreadPoolExecutor(workers, thread_name_prefix="zonebloom-ahead")
    pending: deque[Future[Made]] = deque()
    try:
        for task in waiting:
            pending.append(pool.submit(read, task))
            if len(pending) > workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
