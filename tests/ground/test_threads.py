"""`concurrently`: order, how far it runs ahead, and what happens to the other calls after an error."""

from __future__ import annotations

import threading

import pytest

from tests.child import run_python
from zonebloom.ground.threads import concurrently

FORK = """
import os, signal, warnings
from zonebloom.errors import InvalidArgumentError
from zonebloom.ground.threads import concurrently
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of such forks
results = concurrently(str, range(1000), 2, ahead=2)
next(results)
if os.fork() == 0:
    signal.alarm(60)
    try:
        list(results)
    except InvalidArgumentError as error:
        print(error, flush=True)
    os._exit(0)
print(os.wait()[1], len(list(results)))
"""


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("ahead", [None, 1, 3])
@pytest.mark.parametrize("num_items", [0, 1, 2, 20])
def test_results_come_in_order(workers, ahead, num_items):
    assert list(concurrently(str, range(num_items), workers, ahead=ahead)) == list(map(str, range(num_items)))


@pytest.mark.parametrize(("workers", "items"), [(0, range(5)), (3, range(1))])
def test_without_threads_the_caller_does_the_work_when_it_takes_the_result(workers, items):
    done = []
    results = concurrently(lambda item: done.append(item) or threading.current_thread(), items, workers)
    assert not done
    assert set(results) == {threading.current_thread()}


def test_calls_run_at_once():
    barrier = threading.Barrier(3)
    assert sorted(concurrently(lambda _: barrier.wait(10), range(3), 3)) == [0, 1, 2]


def test_no_more_items_are_taken_than_may_wait():
    taken = []
    results = concurrently(str, (taken.append(item) or item for item in range(20)), 2, ahead=3)
    for number, _result in enumerate(results):
        assert len(taken) <= number + 1 + 3


def test_an_error_ends_the_work_and_waits_for_what_runs():
    begun, ended, is_failed = [], [], threading.Event()

    def call(item: int) -> None:
        begun.append(item)
        if item == 0:
            is_failed.set()
            raise ValueError("first")
        is_failed.wait(10)
        ended.append(item)

    with pytest.raises(ValueError, match="first"):
        list(concurrently(call, range(1000), 2))
    assert len(ended) == len(begun) - 1 < 999


def test_a_forked_child_cannot_read_on():
    """It has none of the threads, so it never ended; the parent continues."""
    assert run_python(FORK).stdout.splitlines() == [
        "an iterator must be read by the process that began it, got a forked child; begin it anew in the child",
        "0 999",
    ]


def test_a_closed_iterator_begins_nothing_more():
    begun = []
    results = concurrently(begun.append, range(1000), 1, ahead=2)
    next(results)
    results.close()
    assert len(begun) <= 4
