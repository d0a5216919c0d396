"""Commands that make an index, or something of one: build, import, export, whatif, demo."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import get_args

import click

from zonebloom.cli.options import (
    column_option,
    format_option,
    index_option,
    open_it,
    path_argument,
    storage_options,
    workers_option,
)
from zonebloom.cli.output import print_info, print_json, read_table, write_table
from zonebloom.cli.root import app
from zonebloom.options import COMMIT_EVERY, FPP, ROWS_PER_ZONE, Sizing

__all__ = ["build", "demo", "export", "import_", "whatif"]


@app.command()
@path_argument
@click.option("--column", "-c", multiple=True, required=True, help="Column to index; may be given again.")
@click.option("--rows-per-zone", type=int, default=ROWS_PER_ZONE, help="Rows of a zone.")
@click.option("--fpp", type=float, default=FPP, help="False positive probability of a zone, in (0, 1).")
@click.option("--sizing", type=click.Choice(get_args(Sizing)), default="power_of_two", help="How large a filter is.")
@index_option
@workers_option
@click.option("--levels", default="zone", help="zone, and fragment or dataset above it, separated by commas.")
@click.option("--locator", is_flag=True, help="Also say which zones hold a key: 4.2 bytes a row, hardly a false zone.")
@click.option(
    "--commit-every", type=int, default=COMMIT_EVERY, help="Rows after which a build that dies keeps what it did."
)
@click.option("--overwrite", is_flag=True, help="Build indexed columns anew.")
@click.option("--optimize/--no-optimize", default=True, help="Slice columns of more than 4096 zones at the end.")
@click.option("--from-parquet-blooms", is_flag=True, help="Take bloom filters of the files; zones are row groups.")
@format_option
def build(
    path: str,
    column: tuple[str, ...],
    rows_per_zone: int,
    fpp: float,
    sizing: Sizing,
    index: str | None,
    workers: int | None,
    levels: str,
    locator: bool,
    commit_every: int,
    overwrite: bool,
    optimize: bool,
    from_parquet_blooms: bool,
    output_format: str,
) -> None:
    """Build an index over columns of PATH; data files are only read."""
    from zonebloom.index import build_index  # noqa: PLC0415 - `--help` must not load Arrow

    started = time.perf_counter()
    built = build_index(
        path,
        list(column),
        rows_per_zone=rows_per_zone,
        fpp=fpp,
        sizing=sizing,
        index=index,
        storage_options=storage_options(),
        workers=workers,
        overwrite=overwrite,
        optimize=optimize,
        levels=[name.strip() for name in levels.split(",")],
        locator=locator,
        commit_every=commit_every,
        progress=sys.stderr.isatty(),
        adopt="parquet" if from_parquet_blooms else None,
    )
    info = built.info()
    if output_format == "json":
        print_json(info)
        return
    elapsed = time.perf_counter() - started
    speed = info["num_rows"] / elapsed
    click.echo(f"indexed {info['num_rows']:,} rows of {info['num_fragments']:,} files, {speed:,.0f} rows/s")
    print_info(info)


@app.command()
@path_argument
@column_option
@click.option("--output", "-o", type=click.Path(path_type=Path), required=True, help="FILE.arrow or FILE.parquet.")
@index_option
def export(path: str, column: str, output: Path, index: str | None) -> None:
    """Write the zone table of a column, in Lance's schema, as one Arrow or Parquet file."""
    table = open_it(path, index).zone_table(column).to_arrow()
    write_table(table, output)
    click.echo(f"wrote {table.num_rows:,} zones to {output}", err=True)


@app.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@path_argument
@click.option("--column", "-c", required=True, help="The column that it describes.")
@index_option
def import_(file: Path, path: str, column: str, index: str | None) -> None:
    """Make an index of PATH from a zone table that was made elsewhere; it is checked against the data first."""
    from zonebloom.index import import_index  # noqa: PLC0415 - `--help` must not load Arrow
    from zonebloom.search.zone_table import ZoneTable  # noqa: PLC0415 - as above

    zones = ZoneTable.from_arrow(read_table(file))
    imported = import_index(path, zones, column=column, index=index, storage_options=storage_options())
    print_info(imported.info())


@app.command()
@path_argument
@click.option("--column", "-c", required=True, help="The column to index.")
@click.option("--rows-per-zone", type=int, default=ROWS_PER_ZONE, help="Rows of a zone.")
@click.option("--fpp", type=float, multiple=True, help="Probability to try; may be given again.")
@format_option
def whatif(path: str, column: str, rows_per_zone: int, fpp: tuple[float, ...], output_format: str) -> None:
    """Predict from a sample what an index would cost and save, and whether it is of use; nothing is written."""
    from zonebloom.build import advise as predicting  # noqa: PLC0415 - `--help` must not load Arrow

    probabilities = list(fpp) or predicting.FPPS
    options = storage_options()
    found = predicting.whatif(path, column, rows_per_zone=rows_per_zone, fpp=probabilities, storage_options=options)
    if output_format == "json":
        print_json(found.to_dict())
    else:
        click.echo(str(found))


@app.command()
@click.option("--rows", type=int, default=4_000_000, help="Rows to generate.")
@click.option("--files", type=int, default=8, help="Files to generate.")
def demo(rows: int, files: int) -> None:
    """Generate a lake in a temporary folder, index it, search it, and compare with a full scan."""
    from zonebloom.cli.demo import run_demo  # noqa: PLC0415 - only here

    run_demo(rows=rows, files=files)
