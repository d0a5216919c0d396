"""The command `zonebloom`.

`options` has the arguments that commands share, `output` prints and writes files, `values` reads lists of ids.
`searching` has the commands that search an index, `building` those that make one, `upkeep` those that maintain it,
`erasing` the one that changes data, and `manual` those about the command itself. `blooms` is about the bloom filters of
Parquet files, `lance` about the index of a Lance table, `report` about pictures.

JSON is printed on stdout only; progress and warnings on stderr. Exit status: 0; 1 if data or the environment are at
fault or a check fails; 2 for the caller's mistake; 130 after Ctrl-C; 141 if the reader of the output closed it. An
error is one line on stderr; `--verbose` adds a traceback.
"""

from __future__ import annotations

from zonebloom.cli import blooms, building, erasing, lance, manual, report, searching, upkeep
from zonebloom.cli.root import app, main, run

__all__ = ["app", "blooms", "building", "erasing", "lance", "main", "manual", "report", "run", "searching", "upkeep"]
