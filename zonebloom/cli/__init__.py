"""The command `zonebloom`.

`options` are the arguments that commands share, `output` prints and writes files, `values` reads lists of ids;
`searching` has the commands that ask an index, `making` those that make one, `upkeep` those that look after it,
`manual` those about the command itself; `blooms` is about filters that data files have of their own, `lance` about the
index that a Lance table has of its own, `report` about pictures.

JSON goes to stdout alone, progress and warnings to stderr. Exit status: 0, 1 where data or the environment are at fault
or a check fails, 2 for the caller's mistake, 130 after Ctrl-C, 141 where the reader of the output left; one line on
stderr, a traceback besides only with `--verbose`.
"""

from __future__ import annotations

from zonebloom.cli import blooms, lance, making, manual, report, searching, upkeep
from zonebloom.cli.root import app, main, run

__all__ = ["app", "blooms", "lance", "main", "making", "manual", "report", "run", "searching", "upkeep"]
