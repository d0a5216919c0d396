"""The command `zonebloom`.

`options` are the arguments that commands share, `output` reads and writes files and prints; `searching` has the
commands that ask an index, `making` those that make one, `upkeep` those that look after it; `blooms` is about filters
that data files have of their own.

JSON goes to stdout alone, progress and warnings to stderr. Exit status: 0, 1 where data or the environment are at
fault, 2 for the caller's mistake; one line on stderr, a traceback only with `--verbose`.
"""

from __future__ import annotations

from zonebloom.cli import blooms, making, searching, upkeep
from zonebloom.cli.root import app, main, run

__all__ = ["app", "blooms", "main", "making", "run", "searching", "upkeep"]
