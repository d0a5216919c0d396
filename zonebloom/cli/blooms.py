"""The commands `blooms` and `add-blooms`: the bloom filters that Parquet files have of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from zonebloom.bloom.sizing import SIZINGS
from zonebloom.cli.options import PROBABILITY, common_options, is_json, storage_options
from zonebloom.cli.output import print_json, say
from zonebloom.cli.root import app
from zonebloom.cli.values import typed_value
from zonebloom.errors import Words
from zonebloom.ground.reasons import counted


@app.command(examples=("blooms events/ --column user_id --value u-1",))
@click.option("--column", "-c", help="The column to look at; all by default.")
@click.option("--value", help="A value to look up in the column.")
@common_options
def blooms(path: str, column: str | None, value: str | None) -> None:
    r"""Print the bloom filters that Parquet files have of their own.

    With --value, say also whether they exclude it; \xAA is a byte of a column of bytes.
    """
    if value is not None and column is None:
        raise click.UsageError("--value needs --column.")
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


@app.command("add-blooms", examples=("add-blooms events/ --column user_id --output events-with-blooms/",))
@click.option("--column", "-c", multiple=True, required=True, help="A column to add filters for; repeatable.")
@click.option("--output", "-o", metavar="FOLDER", type=click.Path(path_type=Path), required=True, help="A new folder.")
@click.option("--fpp", type=PROBABILITY, default=0.01, help="False positive probability of a filter.")
@click.option("--sizing", type=click.Choice(SIZINGS), default="power_of_two", help="How large a filter is.")
@common_options
def add_blooms(path: str, column: tuple[str, ...], output: Path, **options: Any) -> None:
    """Write copies of Parquet files, with a filter for each row group of the columns.

    PATH stays as it is. Engines such as DuckDB, DataFusion and Spark leave out row groups of the copies.
    """
    from zonebloom.formats.parquet.bloom_writer import add_parquet_blooms  # noqa: PLC0415 - as below

    copies = add_parquet_blooms(path, output, list(column), **options)
    say(copies, *copies)


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
