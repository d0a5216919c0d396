"""Commands about filters that are not the index's own: those of a Lance table, and those of Parquet files.

`lance export`, `lance import`, `lance audit`, `blooms`, `add-blooms`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zonebloom.bloom.numba_loading import compile_seconds
from zonebloom.bloom.sizing import SIZINGS
from zonebloom.cli import options
from zonebloom.cli.building import print_built
from zonebloom.cli.output import print_json, read_table, say, write_table
from zonebloom.cli.root import Group, app
from zonebloom.ground.errors import Words
from zonebloom.ground.reasons import counted

if TYPE_CHECKING:
    from zonebloom.index.index import Index


@app.group(cls=Group)
def lance() -> None:
    """Exchange zones with Lance, and audit its own indexes."""


@lance.command(
    examples=("lance export events.lance --column user_id", "lance export events/ -c user_id -o zones.arrow")
)
@options.column_option
@options.output_option("Write .arrow or .parquet instead.")
@click.option("--per-fragment", is_flag=True, help="A segment for each fragment of the table.")
@click.option("--overwrite", is_flag=True, help="Replace FILE, or the table's index, if it exists.")
@options.on_index
def export(opened: Index, column: str, output: Path | None, per_fragment: bool, overwrite: bool) -> None:
    """Give the zones of a column to the Lance table PATH as its own index.

    Lance prunes by it from then on. With --output the zones of any data set go to a file in Lance's schema; its files
    are numbered in order of path.
    """
    if per_fragment and output is not None:
        raise click.UsageError("--per-fragment is for a Lance table, not for --output.")
    if output is None:
        place = opened.data.location
        with options.busy("exporting"):
            done = opened.export_lance(place, column, per_fragment=per_fragment, overwrite=overwrite)
        parts = f"{counted(done.num_zones, 'zone')} in {counted(done.num_segments, 'segment')}"
        size = f"{parts}, {done.filter_bytes:,} bytes of filters"
        message = f"committed {done.name} to {place}, table version {done.table_version}: {size}"
        say(done.to_dict(), message, err=True)
        return
    options.check_output(output, opened, overwrite=overwrite)
    with options.busy("exporting"):
        count = write_table(opened.zone_table(column, numbered_by_path=True).to_arrow(), output)
    document = {"column": column, "num_zones": count, "output": str(output)}
    say(document, f"wrote {counted(count, 'zone')} to {output}", err=True)


@lance.command(
    "import",
    examples=("lance import events.lance --column user_id", "lance import copy/ -c user_id --input zones.arrow"),
)
@click.option("--column", "-c", required=True, help="The column that the zones describe.")
@click.option(
    "--input", "-i", "source", metavar="FILE", type=options.PLACE, help="Read .arrow or .parquet of an export instead."
)
@click.option("--overwrite", is_flag=True, help="Import an indexed column anew; not with --input.")
@options.index_option
@options.common_options
def import_(path: str, column: str, source: str | None, index: str | None, overwrite: bool) -> None:
    """Make an index of PATH from the Lance table's own index.

    With --input, from a file that `lance export` wrote. Zones are checked against the data first.
    """
    from zonebloom.index.doors import build_index, import_index  # noqa: PLC0415 - `--help` must not load Arrow

    if overwrite and source is not None:
        raise click.UsageError("--overwrite is for the Lance table's own index, not for --input.")
    started, compiled = time.perf_counter(), compile_seconds()
    given: dict[str, Any] = {"index": index, "storage_options": options.storage_options()}
    with options.busy("importing"):
        if source is None:
            imported = build_index(path, column, adopt="lance", overwrite=overwrite, **given)
        else:
            imported = import_index(path, _zones_of(Path(source)), column=column, **given)
    print_built(imported, path, index, started, compile_seconds() - compiled)


def _zones_of(file: Path) -> Any:
    """The zone table in an Arrow or Parquet file."""
    from zonebloom.ground.errors import DataFileError  # noqa: PLC0415 - as above
    from zonebloom.search.zone_table import ZoneTable  # noqa: PLC0415 - `--help` must not load Arrow

    try:
        data = file.read_bytes()
    except OSError as error:
        raise DataFileError(f"{file} must be a readable file", got=error.strerror) from error
    return ZoneTable.from_arrow(read_table(str(file), data))


@lance.command(examples=("lance audit events.lance", "lance audit events.lance --column user_id --replace"))
@click.option("--column", "-c", help="The column to look at; by default all with a bloom filter index.")
@click.option("--sample", type=options.SHARE, default=1.0, help="Share of the fragments to read.")
@click.option("--replace", is_flag=True, help="Put a sound index in the place of each one that loses rows.")
@options.common_options
def audit(path: str, column: str | None, sample: float, replace: bool) -> None:
    """Prove the bloom filter indexes of a Lance table right, or exit with 1.

    It reads the columns. Lance does not find rows that are missing from an index; 1.0.4 and older wrote such indexes.
    """
    from zonebloom.indexing.lance_audit import audit_lance  # noqa: PLC0415 - `--help` must not load Arrow

    with options.busy("auditing"):
        report = audit_lance(path, column=column, sample=sample, storage_options=options.storage_options())
        unsound = [index for index in report.indexes if not index.is_sound]
        replaced = [_replaced(path, index.column) for index in unsound] if replace else []
    if options.is_json():
        print_json({**report.to_dict(), "replaced": replaced})
    else:
        for index in report.indexes:
            _print_index(index)
        if not report.indexes:
            click.echo(f"{report.table} has no bloom filter index")
        for new in replaced:
            click.echo(f"replaced {new['name']}: {new['num_zones']:,} zones, table version {new['table_version']}")
    if unsound and not replace:
        raise click.exceptions.Exit(1)


def _print_index(index: Any) -> None:
    writers = ", ".join(writer or "an unknown version" for writer in index.writers)
    verdict = "sound" if index.is_sound else "NOT SOUND"
    click.echo(f"{verdict}: {index.name} of {index.column}, written by Lance {writers}")
    click.echo(f"  {index.num_zones:,} zones, {index.filter_bytes:,} bytes of filters")
    fragments = counted(index.num_fragments, "fragment")
    click.echo(f"  {index.num_lost + index.num_lost_nulls:,} of {index.num_rows:,} rows lost in {fragments}")
    for address in index.lost_rows:
        click.echo(f"  lost: row {address & 0xFFFF_FFFF:,} of fragment {address >> 32}, _rowaddr {address}")
    for message in index.damage:
        click.echo(f"  damaged: {message}")


def _replaced(path: str, column: str) -> dict[str, Any]:
    """Replace Lance's index of a column; returns a summary of the commit."""
    import tempfile  # noqa: PLC0415 - it loads much

    from zonebloom.index.doors import build_index  # noqa: PLC0415 - as above

    with tempfile.TemporaryDirectory() as folder:
        index = build_index(path, column, index=f"{folder}/index", storage_options=options.storage_options())
        return index.export_lance(path, column, overwrite=True).to_dict()


# --- the filters of Parquet files -----------------------------------------------------------------------------------


@app.command(examples=("blooms events/ --column user_id --value u-1",))
@click.option("--column", "-c", help="The column to look at; all by default.")
@click.option("--value", help="A value to look up in the column.")
@options.common_options
def blooms(path: str, column: str | None, value: str | None) -> None:
    r"""Print the bloom filters that Parquet files have of their own.

    With --value, say also whether they exclude it; \xAA is a byte of a column of bytes.
    """
    if value is not None and column is None:
        raise click.UsageError("--value needs --column.")
    from zonebloom.search.parquet_blooms import parquet_blooms  # noqa: PLC0415 - `--help` must not load Arrow

    wanted = None if value is None or column is None else _literal(path, column, value)
    table = parquet_blooms(path, column=column, value=wanted, storage_options=options.storage_options())
    rows = table.to_pylist()
    if options.is_json():
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
@options.output_option("A new folder.", metavar="FOLDER", required=True)
@click.option("--fpp", type=options.PROBABILITY, default=0.01, help="False positive probability of a filter.")
@click.option("--sizing", type=click.Choice(SIZINGS), default="power_of_two", help="How large a filter is.")
@options.common_options
def add_blooms(path: str, column: tuple[str, ...], output: Path, **given: Any) -> None:
    """Write copies of Parquet files, with a filter for each row group of the columns.

    PATH stays as it is. Engines such as DuckDB, DataFusion and Spark leave out row groups of the copies.
    """
    from zonebloom.formats.parquet.bloom_writer import add_parquet_blooms  # noqa: PLC0415 - as below

    copies = add_parquet_blooms(path, output, list(column), **given)
    say(copies, *copies)


def _literal(path: str, column: str, text: str) -> Any:
    """The value that `text` is in the type of the column."""
    import pyarrow as pa  # noqa: PLC0415 - `--help` must not load Arrow

    from zonebloom.cli.values import typed_value  # noqa: PLC0415 - as above
    from zonebloom.formats import open_dataset  # noqa: PLC0415 - as above
    from zonebloom.formats.parquet.file import open_parquet  # noqa: PLC0415 - as above

    dataset = open_dataset(path, options.storage_options(), as_files=True).pin()
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
