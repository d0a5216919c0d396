"""`cached_property`: computed once, and by no thread that waits for another object's."""

from __future__ import annotations

import threading

from zonebloom.ground.cached import cached_property
from zonebloom.ground.threads import concurrently


class Slow:
    barrier = threading.Barrier(2)

    @cached_property
    def value(self) -> object:
        self.barrier.wait(10)
        return object()


def test_two_objects_compute_at_once_and_each_once():
    objects = [Slow(), Slow()]
    first, second = concurrently(lambda slow: slow.value, objects, 2)
    assert [slow.value for slow in objects] == [first, second]
