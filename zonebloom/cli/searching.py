"""Commands that search an index: search, scan, exists, locate, explain."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zonebloom.cli import options
from zonebloom.cli.output import print_json, print_list, printable, python_rows, show, write_csv, write_table
from zonebloom.cli.root import app
from zonebloom.ground.errors import Words
from zonebloom.ground.reasons import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from zonebloom.index.index import Index

_limit_option = click.option("--limit", type=options.WHOLE, help="Stop after this number of rows, or row ranges.")


def _on_condition(command: Callable[..., Any]) -> Any:
    """A search of an index. The command gets the index, and the condition as arguments of the library."""

    @wraps(command)
    def run(opened: Index, where: str | None, column: str | None, values: str | None, **given: Any) -> None:
        if values is not None and column is None:
            raise click.UsageError("--values needs --column.")
        keys = None
        if column is not None and values is not None:
            from zonebloom.cli.values import read_values  # noqa: PLC0415 - most searches have no list

            keys = read_values(values, opened, column)
        command(opened, {"predicate": where, "column": column, "values": keys}, **given)

    column = click.option("--column", "-c", help="With --values: the column that holds them.")
    searched = options.together(
        options.where_option, column, options.values_option("look for", required=False), options.strict_option
    )
    return options.on_index(searched(run))


def _on_keys(command: Callable[..., Any]) -> Any:
    """A question about each value of a file, by the index's method of the command's name.

    The command gets the values and the method's answer.
    """

    @wraps(command)
    def run(opened: Index, column: str, values: str, **given: Any) -> None:
        from zonebloom.cli.values import read_values  # noqa: PLC0415 - `--help` must not load Arrow

        opened.column_type(column)  # an error here names the indexed columns
        keys = read_values(values, opened, column)
        with options.busy("asking"):
            answer = getattr(opened, command.__name__)(column, keys, **given)
        if given["exact"]:  # else the library says it
            _say_what_was_read_whole(opened)
        command(_python_values(keys), answer, exact=given["exact"])

    return options.on_index(
        options.together(options.column_option, options.values_option("ask for"), options.strict_option)(run)
    )


@app.command(
    examples=("search events/ --where \"user_id = 'u-1'\"", "search events/ --column user_id --values ids.txt -f json")
)
@_limit_option
@_on_condition
def search(opened: Index, wanted: dict[str, Any], limit: int | None, strict: bool) -> None:
    """Print the row ranges that may match; no other row does.

    A line has path, start and stop, with tabs between them.
    """
    result = opened.search(**wanted, strict=strict)
    document = result.to_dict()
    document["row_ranges"] = document["row_ranges"][:limit]
    if options.is_json():
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
@click.option("--columns", metavar="NAMES", help='Columns to print: user_id,amount; "a,b" in quotes is one name.')
@_limit_option
@options.output_option("Write .csv, .arrow or .parquet instead.")
@options.overwrite_option
@_on_condition
def scan(
    opened: Index,
    wanted: dict[str, Any],
    columns: str | None,
    limit: int | None,
    output: Path | None,
    overwrite: bool,
    strict: bool,
) -> None:
    r"""Print the rows that match, as a full scan finds them.

    CSV, or one JSON object a line. Bytes are printed as DuckDB prints them: \xAA for each that is no printable ASCII.
    """
    if output is not None:
        options.check_output(output, opened, overwrite=overwrite, endings=(".csv", ".arrow", ".parquet"))
    if limit is not None and all(given is None for given in wanted.values()):
        wanted["predicate"] = "TRUE"
    reader = opened.scan(**wanted, columns=options.listed(columns), limit=limit, strict=strict)
    if output is not None:
        with options.busy("scanning"):
            count = write_table(reader, output)
        click.echo(f"wrote {counted(count, 'row')} to {output}", err=True)
    elif options.is_json():
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


@app.command(
    examples=(
        "locate events/ --column user_id --values ids.txt",
        "locate events/ --column user_id --values - --exact < ids.txt",
    )
)
@click.option("--exact", is_flag=True, help="Read the candidates: the rows that hold a value, and no others.")
@_on_keys
def locate(given: list[Any], table: pa.Table, **_: Any) -> None:
    """Print for each value of a file the files and row ranges that can hold it.

    The rest certainly do not. A line has value, path, start and stop, with tabs between them; without a value, the row
    range can hold any. With --exact it has value, path and row, and only the value if no row holds it.
    """
    places = table.column("key_index").to_pylist()
    rows = table.drop_columns("key_index").to_pylist()
    if options.is_json():
        asked = (None if place is None else given[place] for place in places)
        print_list({"value": value, **row} for value, row in zip(asked, rows, strict=True))
        return
    for place, row in zip(places, rows, strict=True):
        value = "" if place is None else str(printable(given[place]))
        cells = (row[name] for name in ("path", "row", "start", "stop") if name in row)
        click.echo("\t".join([value, *("" if cell is None else str(cell) for cell in cells)]))


@app.command(
    examples=(
        "exists events/ --column user_id --values ids.txt",
        "exists events/ --column user_id --values - --exact < ids.txt",
    )
)
@click.option("--exact", is_flag=True, help="Read the candidates: true is certain.")
@_on_keys
def exists(given: list[Any], answers: pa.BooleanArray, *, exact: bool) -> None:
    r"""Print for each value of a file whether the column may hold it.

    False is certain. In a text, \xAA is a byte of a column of bytes.
    """
    rows = zip(given, answers.to_pylist(), strict=True)
    if options.is_json():
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
@_on_condition
def explain(opened: Index, wanted: dict[str, Any], strict: bool) -> None:
    """Print what a search leaves out, and why not more."""
    show(opened.explain(**wanted, strict=strict))
