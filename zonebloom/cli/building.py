"""Commands that make, copy or estimate an index: build, import, export, whatif, demo."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from zonebloom.bloom.numba_loading import compile_seconds
from zonebloom.cli.lance import export_to_lance
from zonebloom.cli.options import (
    busy,
    check_output,
    common_options,
    index_option,
    is_json,
    open_it,
    output_options,
    path_argument,
    storage_options,
    work_options,
)
from zonebloom.cli.output import print_json, print_list, print_skipped, read_table, say, write_table
from zonebloom.cli.root import app
from zonebloom.options import FPP, KINDS, ROWS_PER_ZONE, Kind, Sizing
from zonebloom.reasons import counted

if TYPE_CHECKING:
    from zonebloom.index import Index

_NUMBERS = ("int", "uint", "float", "double", "halffloat", "decimal", "bool")
"""Prefixes of the names of types whose values have no quotes in SQL."""


@app.command(
    examples=(
        "build events/ --column user_id",
        "build events/ -c user_id -c device.ip --index /srv/indexes/events",
    )
)
@path_argument
@click.option("--column", "-c", multiple=True, required=True, help="Column to index; repeatable.")
@click.option("--kind", type=click.Choice(KINDS), default="bloom", help="locator: for lists of keys; 4.2 bytes a row.")
@click.option("--rows-per-zone", type=int, default=ROWS_PER_ZONE, help="Rows of a zone.")
@click.option("--fpp", type=float, default=FPP, help="False positive probability of a zone, in (0, 1).")
@click.option("--sizing", type=click.Choice(get_args(Sizing)), default="power_of_two", help="How large a filter is.")
@click.option("--overwrite", is_flag=True, help="Build indexed columns anew.")
@click.option("--optimize/--no-optimize", default=True, help="Slice columns of more than 4096 zones at the end.")
@click.option("--from-parquet-blooms", is_flag=True, help="Take bloom filters of the files; zones are row groups.")
@click.option("--from-lance-index", is_flag=True, help="Take the zones of the Lance table's own bloom index.")
@work_options
@index_option
@common_options
def build(
    path: str,
    column: tuple[str, ...],
    kind: Kind,
    rows_per_zone: int,
    fpp: float,
    sizing: Sizing,
    overwrite: bool,
    optimize: bool,
    from_parquet_blooms: bool,
    from_lance_index: bool,
    workers: int | None,
    commit_every: int,
    dry_run: bool,
    index: str | None,
) -> None:
    """Build an index over columns of PATH; data is only read."""
    from zonebloom.doors import build_index  # noqa: PLC0415 - `--help` must not load Arrow

    if from_lance_index and from_parquet_blooms:
        raise click.UsageError("--from-lance-index and --from-parquet-blooms exclude each other.")
    if dry_run:
        _say_what_a_build_does(path, index)
        return
    started, compiled = time.perf_counter(), compile_seconds()
    built = build_index(
        path,
        list(column),
        kind=kind,
        rows_per_zone=rows_per_zone,
        fpp=fpp,
        sizing=sizing,
        index=index,
        storage_options=storage_options(),
        workers=workers,
        overwrite=overwrite,
        optimize=optimize,
        commit_every=commit_every,
        progress=sys.stderr.isatty(),
        adopt="lance" if from_lance_index else "parquet" if from_parquet_blooms else None,
    )
    _print_made(built, path, index, time.perf_counter() - started, compile_seconds() - compiled)


def _say_what_a_build_does(path: str, index: str | None) -> None:
    from zonebloom.formats import open_dataset  # noqa: PLC0415 - as above
    from zonebloom.indexing.create import index_store  # noqa: PLC0415 - `--help` must not load Arrow

    dataset = open_dataset(path, storage_options()).pin()
    num_bytes = [int(listed[0]) for listed in dataset.list().values()]
    place = index_store(dataset, index, storage_options()).location
    document = {"index": place, "num_files": len(num_bytes), "data_bytes": sum(num_bytes), "is_dry_run": True}
    say(document, f"would read {counted(len(num_bytes), 'file')} of {sum(num_bytes):,} bytes, and write {place}")


def _print_made(built: Index, path: str, index: str | None, seconds: float, compiling: float) -> None:
    """Print the size, time and place of the new index of PATH, and the next step; `compiling` is shown separately."""
    from zonebloom.predicates.sql_writer import sql_name  # noqa: PLC0415 - `--help` must not load Arrow

    num_skipped, seconds = built.data.pin().num_skipped(), seconds - compiling
    times = {"seconds": round(seconds, 3), "compile_seconds": round(compiling, 3)}
    info = built.info()
    if is_json():
        print_json({**info, "num_skipped_files": num_skipped, **times})
        return
    speed = info["num_rows"] / max(seconds, 1e-9)
    once = f"; compiled kernels in {compiling:,.1f} s, once" if compiling else ""
    click.echo(
        f"indexed {counted(info['num_rows'], 'row')} of {counted(info['num_fragments'], 'file')} "
        f"in {seconds:,.2f} s, {speed:,.0f} rows/s{once}"
    )
    click.echo("\n".join(f"  {line}" for table in info.tables() for line in table.lines()))
    print_skipped(num_skipped)
    click.echo(f"the index is {info['index']}")
    place = shlex.quote(path) if index is None else f"{shlex.quote(path)} --index {shlex.quote(index)}"
    first = info["columns"][0]
    literal = "…" if first["type"].startswith(_NUMBERS) else "'…'"
    named = sql_name(first["name"]).replace('"', '\\"')
    click.echo(f'next: zonebloom search {place} --where "{named} = {literal}"')


@app.command(
    examples=("export events/ --column user_id -o zones.arrow", "export events.lance --column user_id --to-lance")
)
@path_argument
@click.option("--column", "-c", required=True, help="An indexed column.")
@click.option("--output", "-o", metavar="FILE", type=click.Path(path_type=Path), help=".arrow or .parquet.")
@click.option("--to-lance", is_flag=True, help="Commit them to the Lance table PATH as its own index, instead of FILE.")
@click.option("--per-fragment", is_flag=True, help="With --to-lance, a segment for each fragment.")
@output_options
@index_option
@common_options
def export(
    path: str,
    column: str,
    output: Path | None,
    to_lance: bool,
    per_fragment: bool,
    overwrite: bool,
    index: str | None,
) -> None:
    """Write the zones of a column as one file, in Lance's schema.

    Files of the data set are numbered in order of path, as `zonebloom import` reads them. With --to-lance, Lance prunes
    by them from then on.
    """
    if to_lance == (output is not None) or (per_fragment and not to_lance):
        raise click.UsageError("an export goes to --output FILE, or --to-lance, which --per-fragment is for.")
    opened = open_it(path, index)
    if output is None:
        with busy("exporting"):
            export_to_lance(opened, column, per_fragment=per_fragment, overwrite=overwrite)
        return
    check_output(output, opened, overwrite=overwrite)
    with busy("exporting"):
        count = write_table(opened.zone_table(column, numbered_by_path=True).to_arrow(), output)
    document = {"column": column, "num_zones": count, "output": str(output)}
    say(document, f"wrote {counted(count, 'zone')} to {output}", err=True)


@app.command("import", examples=("import zones.arrow copy-of-events/ --column user_id",))
@click.argument("file", type=click.Path(path_type=Path))
@path_argument
@click.option("--column", "-c", required=True, help="The column that FILE describes.")
@index_option
@common_options
def import_(file: Path, path: str, column: str, index: str | None) -> None:
    """Make an index of PATH from exported zones, or Lance's.

    They are checked against the data first. A Lance table's own index: zonebloom build --from-lance-index.
    """
    from zonebloom.doors import import_index  # noqa: PLC0415 - `--help` must not load Arrow
    from zonebloom.errors import DataFileError  # noqa: PLC0415 - as above
    from zonebloom.search.zone_table import ZoneTable  # noqa: PLC0415 - as above

    try:
        data = file.read_bytes()
    except OSError as error:
        raise DataFileError(f"{file} must be a readable file", got=error.strerror) from error
    started, compiled = time.perf_counter(), compile_seconds()
    zones = ZoneTable.from_arrow(read_table(str(file), data))
    with busy("importing"):
        imported = import_index(path, zones, column=column, index=index, storage_options=storage_options())
    _print_made(imported, path, index, time.perf_counter() - started, compile_seconds() - compiled)


@app.command(examples=("whatif events/ --column user_id", "whatif events/ -c user_id -c amount --fpp 1e-5"))
@path_argument
@click.option("--column", "-c", multiple=True, required=True, help="Column to index; repeatable.")
@click.option("--rows-per-zone", type=int, default=ROWS_PER_ZONE, help="Rows of a zone.")
@click.option("--fpp", type=float, default=FPP, help="False positive probability of filters, in (0, 1).")
@common_options
def whatif(path: str, column: tuple[str, ...], rows_per_zone: int, fpp: float) -> None:
    """Say what an index would cost and save, and recommend one, from a sample."""
    from zonebloom.indexing import whatif as advise  # noqa: PLC0415 - `--help` must not load Arrow

    reports: list[Any] = []
    for name in column:
        options: dict[str, Any] = {"rows_per_zone": rows_per_zone, "fpp": fpp, "storage_options": storage_options()}
        with busy(f"sampling {name}"):
            reports.append(advise.whatif(path, name, **options))
    if not is_json():
        click.echo("\n\n".join(map(str, reports)))
    elif len(reports) == 1:
        print_json(reports[0].to_dict())
    else:
        print_list(report.to_dict() for report in reports)
    if any(report.verdict.code == "UNSUPPORTED_TYPE" for report in reports):
        raise click.exceptions.Exit(2)  # like a build


@app.command(examples=("demo", "demo --rows 500000 --keep demo-lake"))
@click.option("--rows", type=int, default=4_000_000, help="Rows to generate.")
@click.option("--files", type=int, default=8, help="Files to generate.")
@click.option("--keep", metavar="FOLDER", type=click.Path(path_type=Path), help="Leave the lake and its index there.")
def demo(rows: int, files: int, keep: Path | None) -> None:
    """Index a generated lake, search it, compare with a full scan."""
    from zonebloom.cli.demo import run_demo  # noqa: PLC0415 - only here

    run_demo(rows=rows, files=files, keep=keep)
