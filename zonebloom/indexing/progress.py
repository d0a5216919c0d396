"""Progress of a long build: rows done of all, as a bar on stderr or to a function."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a build."""

    rows: int
    """Rows done."""
    total_rows: int
    """Rows to do."""


@contextmanager
def reporting(progress: bool | Callable[[Progress], None], total_rows: int) -> Iterator[Callable[[int], None] | None]:  # noqa: FBT001
    """A function that workers call with the number of rows they did; None without progress."""
    if progress is False:
        yield None
        return
    lock = threading.Lock()
    done = 0
    with _listener(progress, total_rows) as listen:

        def on_rows(rows: int) -> None:
            nonlocal done
            with lock:
                done += rows
                listen(Progress(done, total_rows))

        yield on_rows


@contextmanager
def _listener(progress: bool | Callable[[Progress], None], total_rows: int) -> Iterator[Callable[[Progress], None]]:  # noqa: FBT001
    if callable(progress):
        yield progress
        return
    from rich import console as rich_console, progress as bars  # noqa: PLC0415 - loaded only for a bar

    columns = (
        bars.TextColumn("[bold]{task.description}"),
        bars.BarColumn(),
        bars.TaskProgressColumn(),
        bars.TextColumn("{task.completed:,.0f} of {task.total:,.0f} rows, {task.fields[speed]} rows/s"),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=rich_console.Console(stderr=True), transient=True) as bar:
        task = bar.add_task("build", total=total_rows, speed="-")

        def listen(state: Progress) -> None:
            speed = bar.tasks[0].speed
            bar.update(task, completed=state.rows, speed=f"{speed:,.0f}" if speed else "-")

        yield listen
