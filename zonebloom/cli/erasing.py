"""The command `erase`: the only one that changes data files."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zonebloom.cli.options import busy, on_index, storage_options, values_option
from zonebloom.cli.output import show
from zonebloom.cli.root import app
from zonebloom.ground.errors import InvalidArgumentError

if TYPE_CHECKING:
    from zonebloom.index.index import Index


@app.command(
    examples=(
        "erase events/ -c user_id --values gone.csv --dry-run",
        "erase events/ -c user_id --values gone.csv --record erased.json",
    )
)
@click.option("--column", "-c", required=True, help="The indexed column that holds the values.")
@values_option("erase")
@click.option(
    "--record",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A new .json for the record. A stopped call continues if it gets the same file.",
)
@click.option("--dry-run", is_flag=True, help="Change nothing, only find the rows.")
@on_index
def erase(opened: Index, column: str, values: str, record: Path | None, dry_run: bool) -> None:
    """Erase all rows of some values from the data files.

    This changes PATH. Files are rewritten without the rows; other rows do not change. Old files and old versions of a
    Delta or Iceberg table are removed. Exit status 1 if rows are left.
    """
    from zonebloom.cli.values import read_values  # noqa: PLC0415 - as below
    from zonebloom.erasing.erase import erase_by  # noqa: PLC0415 - as below
    from zonebloom.ground.arrow import is_text  # noqa: PLC0415 - `--help` must not load Arrow

    keys, command = read_values(values, opened, column), shlex.join(["zonebloom", *map(_without_secrets, sys.argv[1:])])
    if is_text(keys.type) and "" in keys.to_pylist():
        raise InvalidArgumentError(
            "values must not be empty to be erased",
            got="an empty text, by which CSV spells a missing value too",
            do="leave it out; rows with an empty text are erased by zonebloom.erase in Python",
        )
    with busy("erasing"):
        done = erase_by(opened, column, keys, record=record, dry_run=dry_run, command=command)
    show(done)
    if done.num_rows_left and not dry_run:
        raise click.exceptions.Exit(1)


def _without_secrets(argument: str) -> str:
    """An argument of the command for the record: values of storage options may be secrets."""
    name, _, value = argument.removeprefix("--storage-option=").partition("=")
    is_secret = (storage_options() or {}).get(name) == value
    return f"{argument.removesuffix(value)}..." if is_secret else argument
