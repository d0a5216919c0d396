"""The command `erase`: the only one that changes data files."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from zonebloom.cli.options import busy, common_options, index_option, open_it, path_argument, storage_options
from zonebloom.cli.output import show
from zonebloom.cli.root import app
from zonebloom.cli.values import read_values
from zonebloom.errors import InvalidArgumentError


@app.command(
    examples=(
        "erase events/ -c user_id --values gone.csv --dry-run",
        "erase events/ -c user_id --values gone.csv --record erased.json",
    )
)
@path_argument
@click.option("--column", "-c", required=True, help="The indexed column that holds the values.")
@click.option(
    "--values",
    required=True,
    metavar="FILE[:COLUMN]",
    help="Values to erase; - is stdin. Text with one a line, CSV with a header, Arrow or Parquet.",
)
@click.option(
    "--record",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A new .json for the record. With the same one a call that was stopped goes on.",
)
@click.option("--dry-run", is_flag=True, help="Change nothing, only find the rows.")
@index_option
@common_options
def erase(path: str, column: str, values: str, record: Path | None, dry_run: bool, index: str | None) -> None:
    """Erase all rows of some values from the data files.

    This changes PATH. Files are rewritten without the rows, the rest as it was; old files of a Delta or Iceberg table
    are removed, and its old versions with them. Exit status 1 if rows are left.
    """
    from zonebloom.erasing.erase import erase_by  # noqa: PLC0415 - as above
    from zonebloom.ground.arrow import is_text  # noqa: PLC0415 - `--help` must not load Arrow

    opened = open_it(path, index)
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
    for name, value in (storage_options() or {}).items():
        argument = argument.replace(f"{name}={value}", f"{name}=...")
    return argument
