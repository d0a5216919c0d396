"""What goes wrong on executors, once: they import this module, for `cluster` puts the repository on their path.

Each function takes the place of `build_units`, and does the same work; the first attempt of one task dies. A file
beside the index says which attempt is first.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from zonebloom.errors import StorageError
from zonebloom.indexing.fill import BuildPlan, build_units


def is_first(plan: BuildPlan) -> bool:
    """True for one caller of all."""
    try:
        os.close(os.open(f"{plan.store.location}.first", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def was_first(index: Path) -> bool:
    """Whether somebody asked for it."""
    return Path(f"{index}.first").exists()


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[1])


@dataclass(frozen=True)
class Deadly:
    """A data set whose second file kills the process that opens it."""

    inner: Any
    kills_executor: bool
    opened: list[str]

    def open(self, path: str, listed: Any = None) -> Any:
        self.opened.append(path)
        if len(self.opened) == 2:
            worker = os.getpid()
            os.kill(parent_of(parent_of(worker)) if self.kills_executor else worker, signal.SIGKILL)
            signal.pause()
        return self.inner.open(path, listed)

    def path_values(self, path: str) -> Any:
        return self.inner.path_values(path)


def deadly(plan, *, kills_executor):
    """The plan, whose data set is deadly to the first caller of all."""
    if not is_first(plan):
        return plan
    return replace(plan, dataset=Deadly(plan.dataset, kills_executor, []))


def build_or_die(plan, units):
    """The Python worker is killed in the middle."""
    return build_units(deadly(plan, kills_executor=False), units)


def build_or_kill_the_executor(plan, units):
    """The executor, with all that runs there, is killed in the middle."""
    return build_units(deadly(plan, kills_executor=True), units)


def build_twice(plan, units):
    """The work is done, and its result is lost."""
    built = build_units(plan, units)
    if is_first(plan):
        os.kill(os.getpid(), signal.SIGKILL)
    return built


def build_at_the_second_attempt(plan, units):
    """The store refuses."""
    if is_first(plan):
        raise StorageError("the store must be there, got none; this one time")
    return build_units(plan, units)


def refuse(plan, units):
    """The store refuses, always."""
    raise StorageError("the store must be there, got none")


def refuse_the_last_file(plan, units):
    """The store refuses a build of the file that is the last in order of path."""
    last = max(plan.dataset.list())
    return refuse(plan, units) if any(unit.fragment.path == last for unit in units) else build_units(plan, units)


def where_zonebloom_is(shared, argument):
    """The file from which this executor imported zonebloom."""
    import zonebloom

    return zonebloom.__file__


def build_for_ever(plan, units):
    """The task ends when Spark kills its worker."""
    is_first(plan)
    signal.pause()
