"""The command `zonebloom`.

`options` has the arguments that commands share, `output` prints and writes files, `values` reads lists of ids.
`building` has the commands that make an index, `searching` those that ask it, `erasing` the one that changes data, and
`upkeep` those that look after it. `exchange` is about the filters of Lance tables and Parquet files, `manual` about the
command itself.

JSON is printed on stdout only; progress and warnings on stderr. Exit status: 0; 1 if data or the environment are at
fault or a check fails; 2 for the caller's mistake; 130 after Ctrl-C; 141 if the reader of the output closed it. An
error is one line on stderr; `--verbose` adds a traceback.
"""

from __future__ import annotations

from zonebloom.cli import building, erasing, exchange, manual, searching, upkeep
from zonebloom.cli.root import app, main, run

__all__ = ["app", "building", "erasing", "exchange", "main", "manual", "run", "searching", "upkeep"]
