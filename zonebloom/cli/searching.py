"""Commands that search an index: search, scan, exists, locate, explain."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zonebloom.cli.options import (
    busy,
    check_output,
    columns_option,
    common_options,
    index_option,
    is_json,
    limit_option,
    listed,
    open_it,
    output_options,
    path_argument,
    strict_option,
    values_options,
    where_option,
)
from zonebloom.cli.output import (
    print_json,
    print_list,
    printable,
    python_rows,
    show,
    write_csv,
    write_table,
)
from zonebloom.cli.root import app
from zonebloom.cli.values import read_values
from zonebloom.errors import Words
from zonebloom.ground.reasons import counted

if TYPE_CHECKING:
    import pyarrow as pa


def _wanted(opened: Any, where: str | None, column: str | None, values: str | None) -> dict[str, Any]:
    """The condition of a search, as the library's arguments."""
    keys = None if column is None or values is None else read_values(values, opened, column)
    if values is not None and column is None:
        raise click.UsageError("--values needs --column.")
    return {"predicate": where, "column": column, "values": keys}


@app.command(
    examples=(
        "search events/ --where \"user_id = 'u-1'\"",
        "search events/ --column user_id --values ids.txt -f json",
    )
)
@path_argument
@where_option
@values_options
@limit_option
@strict_option
@index_option
@common_options
def search(
    path: str,
    where: str | None,
    column: str | None,
    values: str | None,
    limit: int | None,
    strict: bool,
    index: str | None,
) -> None:
    """Print the row ranges that may match; no other row does.

    A line has path, start and stop, with tabs between them.
    """
    opened = open_it(path, index)
    result = opened.search(**_wanted(opened, where, column, values), strict=strict)
    document = result.to_dict()
    document["row_ranges"] = document["row_ranges"][:limit]
    if is_json():
        print_json(document)
        return
    kept, total = result.kept, result.total
    for row in document["row_ranges"]:
        click.echo(f"{row['path']}\t{row['start']}\t{row['stop']}")
    counts = (
        f"{result.kind}: {kept.files:,} of {counted(total.files, 'file')}, "
        f"{kept.zones:,} of {counted(total.zones, 'zone')}, "
        f"{kept.rows:,} of {counted(total.rows, 'row')}, {kept.bytes:,} of {total.bytes:,} bytes of row groups; "
        f"{result.kind.meaning}"
    )
    click.echo(counts if result.row_ranges else result.headline, err=True)
    for note in result.notes():
        click.echo(note, err=True)


@app.command(
    examples=(
        "scan events/ --where \"user_id = 'u-1'\" --columns user_id,amount",
        "scan events/ --column user_id --values ids.txt -o found.parquet",
    )
)
@path_argument
@where_option
@values_options
@columns_option
@limit_option
@click.option(
    "--output", "-o", metavar="FILE", type=click.Path(path_type=Path), help="Write .csv, .arrow or .parquet instead."
)
@output_options
@strict_option
@index_option
@common_options
def scan(
    path: str,
    where: str | None,
    column: str | None,
    values: str | None,
    columns: str | None,
    limit: int | None,
    output: Path | None,
    overwrite: bool,
    strict: bool,
    index: str | None,
) -> None:
    r"""Print the rows that match, as a full scan finds them.

    CSV, or one JSON object a line. Bytes are printed as DuckDB prints them: \xAA for each that is no printable ASCII.
    """
    opened = open_it(path, index)
    if output is not None:
        check_output(output, opened, overwrite=overwrite, endings=(".csv", ".arrow", ".parquet"))
    is_all = limit is not None and where is column is values is None
    wanted = _wanted(opened, "TRUE" if is_all else where, column, values)
    reader = opened.scan(**wanted, columns=listed(columns), limit=limit, strict=strict)
    if output is not None:
        with busy("scanning"):
            count = write_table(reader, output)
        click.echo(f"wrote {counted(count, 'row')} to {output}", err=True)
    elif is_json():
        for batch in reader:
            for row in python_rows(batch):
                print_json(row)
    else:
        write_csv(reader, sys.stdout)
    _say_what_was_read_whole(opened)


def _say_what_was_read_whole(opened: Any) -> None:
    unknown = opened.view().files.unknown_paths
    if unknown:
        message = f"read whole: {counted(len(unknown), 'new or changed file')}, such as {unknown[0]}"
        click.echo(f"zonebloom: warning: {message}; {Words.REFRESH}", err=True)


def _python_values(values: pa.Array) -> list[Any]:
    import pyarrow as pa  # noqa: PLC0415 - `--help` must not load Arrow

    return [row["value"] for row in python_rows(pa.record_batch([values], ["value"]))]


_column_option = click.option("--column", "-c", required=True, help="An indexed column.")
_values_option = click.option(
    "--values",
    required=True,
    metavar="FILE[:COLUMN]",
    help="Values to ask for; - is stdin. Text with one a line, CSV with a header, Arrow or Parquet.",
)


@app.command(
    examples=(
        "locate events/ --column user_id --values ids.txt",
        "locate events/ --column user_id --values - --exact < ids.txt",
    )
)
@path_argument
@_column_option
@_values_option
@click.option("--exact", is_flag=True, help="Read the candidates: the rows that hold a value, and no others.")
@strict_option
@index_option
@common_options
def locate(path: str, column: str, values: str, exact: bool, strict: bool, index: str | None) -> None:
    """Print for each value of a file the files and row ranges that can hold it.

    The rest certainly do not. A line has value, path, start and stop, with tabs between them; without a value, the row
    range can hold any. With --exact it has value, path and row, and only the value if no row holds it.
    """
    opened = open_it(path, index)
    opened.column_type(column)  # an error here names the indexed columns
    wanted = read_values(values, opened, column)
    with busy("asking"):
        table = opened.locate(column, wanted, exact=exact, strict=strict)
    if exact:  # else the library says it
        _say_what_was_read_whole(opened)
    given = _python_values(wanted)
    places = table.column("key_index").to_pylist()
    rows = table.drop_columns("key_index").to_pylist()
    if is_json():
        asked = (None if place is None else given[place] for place in places)
        print_list({"value": value, **row} for value, row in zip(asked, rows, strict=True))
        return
    for place, row in zip(places, rows, strict=True):
        value = "" if place is None else str(printable(given[place]))
        cells = (cell for name, cell in row.items() if name != "fragment_id")  # a number of the index's own
        click.echo("\t".join([value, *("" if cell is None else str(cell) for cell in cells)]))


@app.command(
    examples=(
        "exists events/ --column user_id --values ids.txt",
        "exists events/ --column user_id --values - --exact < ids.txt",
    )
)
@path_argument
@_column_option
@_values_option
@click.option("--exact", is_flag=True, help="Read the candidates: true is certain.")
@strict_option
@index_option
@common_options
def exists(path: str, column: str, values: str, exact: bool, strict: bool, index: str | None) -> None:
    r"""Print for each value of a file whether the column may hold it.

    False is certain. In a text, \xAA is a byte of a column of bytes.
    """
    opened = open_it(path, index)
    opened.column_type(column)  # an error here names the indexed columns
    wanted = read_values(values, opened, column)
    with busy("asking"):
        answers = opened.exists(column, wanted, exact=exact, strict=strict)
    if exact:  # else the library says it
        _say_what_was_read_whole(opened)
    rows = zip(_python_values(wanted), answers.to_pylist(), strict=True)
    if is_json():
        print_list({"value": value, "exists": answer} for value, answer in rows)
        return
    for value, answer in rows:
        click.echo(f"{printable(value)}\t{str(answer).lower()}")
    click.echo(f"{answers.true_count:,} of {len(answers):,} {'' if exact else 'may '}exist", err=True)


@app.command(
    examples=(
        "explain events/ --where \"user_id = 'u-1' OR amount > 5\"",
        "explain events/ --column user_id --values ids.txt",
    )
)
@path_argument
@where_option
@values_options
@strict_option
@index_option
@common_options
def explain(
    path: str,
    where: str | None,
    column: str | None,
    values: str | None,
    strict: bool,
    index: str | None,
) -> None:
    """Print what a search leaves out, and why not more."""
    opened = open_it(path, index)
    explanation = opened.explain(**_wanted(opened, where, column, values), strict=strict)
    show(explanation)
