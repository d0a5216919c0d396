"""Commands that ask an index: search, scan, exists, locate, explain."""

from __future__ import annotations

from pathlib import Path

import click

from zonebloom.cli.options import (
    column_option,
    format_option,
    index_option,
    open_it,
    path_argument,
    strict_option,
    where_option,
)
from zonebloom.cli.output import print_csv, print_json, printable, python_rows, read_values, write_table
from zonebloom.cli.root import app

__all__ = ["exists", "explain", "locate", "scan", "search"]


@app.command()
@path_argument
@where_option
@strict_option
@index_option
@format_option
def search(path: str, where: str, strict: bool, index: str | None, output_format: str) -> None:
    """Print the files and row ranges that can match; the rest certainly do not."""
    found = open_it(path, index).search(where, strict=strict)
    if output_format == "json":
        print_json(found.to_dict())
        return
    kept, total = found.kept, found.total
    for row in found.to_dict()["row_ranges"]:
        click.echo(f"{row['path']}\t{row['start']}\t{row['stop']}")
    click.echo(
        f"{found.kind}: {kept.files:,} of {total.files:,} files, {kept.zones:,} of {total.zones:,} zones, "
        f"{kept.rows:,} of {total.rows:,} rows, {kept.bytes:,} of {total.bytes:,} bytes",
        err=True,
    )
    for reason in found.reasons:
        click.echo(f"{reason.code}: {reason.message}", err=True)


@app.command()
@path_argument
@where_option
@click.option("--columns", help="Columns to print, separated by commas.")
@click.option("--limit", type=int, help="Stop after so many rows.")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Write .arrow or .parquet instead.")
@strict_option
@index_option
@format_option
def scan(
    path: str,
    where: str,
    columns: str | None,
    limit: int | None,
    output: Path | None,
    strict: bool,
    index: str | None,
    output_format: str,
) -> None:
    r"""Print the rows that match, as a full scan would find them: CSV, or one JSON object a line.

    Bytes are printed as DuckDB prints them: \xAA for each that is no printable ASCII.
    """
    names = columns.split(",") if columns else None
    reader = open_it(path, index).scan(where, columns=names, limit=limit, strict=strict)
    if output is not None:
        write_table(reader.read_all(), output)
        return
    if output_format == "json":
        for batch in reader:
            for row in python_rows(batch):
                print_json(row, indent=None)
        return
    print_csv(reader)


_values_option = click.option(
    "--values",
    type=click.Path(path_type=Path),
    required=True,
    help="Text of UTF-8 (one value a line; empty lines are none), .arrow or .parquet (1st column).",
)


@app.command()
@path_argument
@column_option
@_values_option
@click.option("--exact", is_flag=True, help="Read the candidates: the rows that hold a value, and no others.")
@index_option
@format_option
def locate(path: str, column: str, values: Path, exact: bool, index: str | None, output_format: str) -> None:
    """For each value of a file, print the files and row ranges that can hold it; the rest certainly do not."""
    opened = open_it(path, index)
    wanted = read_values(values, opened, column)
    found = opened.locate(column, wanted, exact=exact)
    names = wanted.take(found.column("key_index")).to_pylist()
    rows = found.drop_columns("key_index").to_pylist()
    if output_format == "json":
        print_json([{"value": value, **row} for value, row in zip(names, rows, strict=True)])
        return
    for value, row in zip(names, rows, strict=True):
        click.echo("\t".join([printable(value), *("" if one is None else str(one) for one in row.values())]))


@app.command()
@path_argument
@column_option
@_values_option
@click.option("--exact", is_flag=True, help="Read the candidates: true is certain.")
@index_option
@format_option
def exists(path: str, column: str, values: Path, exact: bool, index: str | None, output_format: str) -> None:
    r"""For each value of a file, say whether the column may hold it; false is certain.

    In a text, \xAA is a byte of a column of bytes.
    """
    opened = open_it(path, index)
    wanted = read_values(values, opened, column)
    found = opened.exists(column, wanted, exact=exact)
    if output_format == "json":
        rows = zip(wanted.to_pylist(), found.to_pylist(), strict=True)
        print_json([{"value": value, "exists": answer} for value, answer in rows])
        return
    for value, answer in zip(wanted.to_pylist(), found.to_pylist(), strict=True):
        click.echo(f"{printable(value)}\t{str(answer).lower()}")
    click.echo(f"{found.true_count:,} of {len(found):,} may exist", err=True)


@app.command()
@path_argument
@where_option
@index_option
@format_option
def explain(path: str, where: str, index: str | None, output_format: str) -> None:
    """Print the funnel of a search, and a reason for each part that was not pruned."""
    found = open_it(path, index).explain(where)
    if output_format == "json":
        print_json(found.to_dict())
    else:
        click.echo(str(found))
