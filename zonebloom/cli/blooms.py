"""The command `blooms`: the bloom filters that Parquet files have of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import click

from zonebloom.cli.options import common_options, is_json, path_argument, storage_options
from zonebloom.cli.output import print_json, say
from zonebloom.cli.root import app
from zonebloom.cli.values import typed_value
from zonebloom.errors import InvalidArgumentError, Words
from zonebloom.options import Sizing
from zonebloom.reasons import counted


@app.command(
    examples=(
        "blooms events/ --column user_id --value u-1",
        "blooms events/ --add --column user_id --output events-with-blooms/",
    )
)
@path_argument
@click.option(
    "--column", "-c", multiple=True, help="The column to look at; all by default. With --add, one of several."
)
@click.option("--value", help="A value to look up in the column.")
@click.option("--add", is_flag=True, help="Write copies of the files, with a filter for each row group of the columns.")
@click.option(
    "--output", "-o", metavar="FOLDER", type=click.Path(path_type=Path), help="With --add, the folder for the copies."
)
@click.option("--fpp", type=float, default=0.01, help="With --add, the false positive probability of a filter.")
@click.option("--sizing", type=click.Choice(get_args(Sizing)), default="power_of_two", help="With --add, its size.")
@common_options
def blooms(
    path: str,
    column: tuple[str, ...],
    value: str | None,
    add: bool,
    output: Path | None,
    fpp: float,
    sizing: Sizing,
) -> None:
    r"""Print the bloom filters that Parquet files have of their own.

    With --value, say also whether they exclude it; \xAA is a byte of a column of bytes. With --add, PATH stays as it
    is, and engines such as DuckDB, DataFusion and Spark leave out row groups of the copies in FOLDER.
    """
    if add != (output is not None) or (add and (value is not None or not column)):
        raise InvalidArgumentError(
            "--add must come with --output and --column, and with no --value", got="another choice"
        )
    if add and output is not None:
        from zonebloom.formats.parquet.bloom_writer import add_parquet_blooms  # noqa: PLC0415 - as below

        copies = add_parquet_blooms(path, output, list(column), fpp=fpp, sizing=sizing)
        say(copies, *copies)
        return
    if len(column) > 1 or (value is not None and not column):
        raise InvalidArgumentError("--value must come with one --column to look it up in", got=len(column))
    _print_list(path, column[0] if column else None, value)


def _print_list(path: str, column: str | None, value: str | None) -> None:
    from zonebloom.formats.parquet_blooms import parquet_blooms  # noqa: PLC0415 - `--help` must not load Arrow

    wanted = None if value is None or column is None else _literal(path, column, value)
    table = parquet_blooms(path, column=column, value=wanted, storage_options=storage_options())
    rows = table.to_pylist()
    if is_json():
        print_json(rows)
        return
    for row in rows:
        click.echo(f"{row['path']}\t{row['row_group']}\t{row['column']}\t{row['type']}\t{_said(row)}")
    num_usable = sum(row["problem"] is None for row in rows)
    num_bytes = sum(row["num_bytes"] or 0 for row in rows)
    summary = f"{counted(len(rows), 'filter')}, {num_usable:,} usable, {num_bytes:,} bytes"
    if value is not None:
        summary += f"; {sum(row['excluded'] is True for row in rows):,} exclude the value"
    click.echo(summary if rows else f"no file has one; {Words.ADD_PARQUET_BLOOMS}", err=True)


def _literal(path: str, column: str, text: str) -> Any:
    """The value that `text` is in the type of the column."""
    import pyarrow as pa  # noqa: PLC0415 - `--help` must not load Arrow

    from zonebloom.formats import open_dataset  # noqa: PLC0415 - as above
    from zonebloom.formats.parquet.file import open_parquet  # noqa: PLC0415 - as above

    dataset = open_dataset(path, storage_options(), as_files=True).pin()
    for name, listed in dataset.list().items():
        with open_parquet(dataset, name, listed) as file:
            leaf = file.leaf_of(column)
            wanted = pa.null() if leaf is None else file.leaves[leaf][1]
        if not pa.types.is_null(wanted):
            return typed_value(text, wanted, "--value")
    return text


def _said(row: dict[str, Any]) -> str:
    if row["problem"] is not None:
        return f"cannot be used: {row['problem']}"
    text = f"{counted(row['num_blocks'], 'block')}\t{row['expected_ndv']:,.0f} values\tfpp {row['fpp']:.2g}"
    verdicts = {True: "excluded", False: "may be there", None: "cannot tell"}
    return f"{text}\t{verdicts[row['excluded']]}" if "excluded" in row else text
