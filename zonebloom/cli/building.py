"""Commands that make or estimate an index: build, whatif, demo."""

from __future__ import annotations

import re
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zonebloom.bloom.numba_loading import compile_seconds
from zonebloom.bloom.sizing import FPP, ROWS_PER_ZONE, SIZINGS
from zonebloom.cli import options
from zonebloom.cli.output import print_json, print_list, say, say_done, shown
from zonebloom.cli.root import app
from zonebloom.ground.reasons import counted, wrapped
from zonebloom.ground.rendering import Results, plain
from zonebloom.storage.options import KINDS

if TYPE_CHECKING:
    from zonebloom.index.index import Index

_NUMBERS = ("int", "uint", "float", "double", "halffloat", "decimal", "bool")
"""Prefixes of the names of types whose values have no quotes in SQL."""


@app.command(
    examples=("build events/ --column user_id", "build events/ -c user_id -c device.ip --index /srv/indexes/events")
)
@click.option("--column", "-c", multiple=True, required=True, help="Column to index; repeatable.")
@click.option("--kind", type=click.Choice(KINDS), default="bloom", help="locator: for lists of keys; 4.2 bytes a row.")
@click.option("--rows-per-zone", type=options.AT_LEAST_ONE, default=ROWS_PER_ZONE, help="Rows of a zone.")
@click.option("--fpp", type=options.PROBABILITY, default=FPP, help="False positive probability of a zone.")
@click.option("--sizing", type=click.Choice(SIZINGS), default="power_of_two", help="How large a filter is.")
@click.option("--overwrite", is_flag=True, help="Build indexed columns anew.")
@click.option("--from-parquet-blooms", is_flag=True, help="Take bloom filters of the files; zones are row groups.")
@options.work_options
@options.index_option
@options.common_options
def build(
    path: str, column: tuple[str, ...], index: str | None, from_parquet_blooms: bool, dry_run: bool, **given: Any
) -> None:
    """Build an index over columns of PATH; data is only read."""
    from zonebloom.index.doors import build_index  # noqa: PLC0415 - `--help` must not load Arrow

    if dry_run:
        _say_what_a_build_does(path, index)
        return
    started, compiled = time.perf_counter(), compile_seconds()
    built = build_index(
        path,
        list(column),
        index=index,
        storage_options=options.storage_options(),
        progress=sys.stderr.isatty(),
        adopt="parquet" if from_parquet_blooms else None,
        **given,
    )
    print_built(built, path, index, started, compile_seconds() - compiled)


def _say_what_a_build_does(path: str, index: str | None) -> None:
    from zonebloom.formats import open_dataset  # noqa: PLC0415 - as above
    from zonebloom.indexing.create import current_of, index_store  # noqa: PLC0415 - `--help` must not load Arrow

    dataset = open_dataset(path, options.storage_options()).pin()
    num_bytes = [int(listed[0]) for listed in dataset.list().values()]
    store = index_store(dataset, index, options.storage_options())
    current_of(dataset, store)  # refuses the index of another data set
    place = store.location
    document = {"index": place, "num_files": len(num_bytes), "data_bytes": sum(num_bytes), "is_dry_run": True}
    say(document, f"would read {counted(len(num_bytes), 'file')} of {sum(num_bytes):,} bytes, and write {place}")


def print_built(built: Index, path: str, index: str | None, started: float, compiling: float) -> None:
    """Print the size, time and place of the new index of PATH, and the next step; `compiling` is shown separately."""
    from zonebloom.indexing.whatif import advice  # noqa: PLC0415 - as above
    from zonebloom.predicates.sql_writer import sql_name  # noqa: PLC0415 - `--help` must not load Arrow

    seconds = time.perf_counter() - started - compiling
    status, advised = built.status(), advice(built.view())
    if options.is_json():
        document = {"compile_seconds": round(compiling, 3), **status.to_dict(), "recommended": plain(advised)}
        say_done(built, started, document)
        return
    once = f"; compiled kernels in {compiling:,.1f} s, once" if compiling else ""
    click.echo(
        f"indexed {counted(built.num_rows, 'row')} of {counted(built.num_fragments, 'file')} "
        f"in {seconds:,.2f} s, {built.num_rows / max(seconds, 1e-9):,.0f} rows/s{once}"
    )
    click.echo("\n".join(f"  {line}" for line in Results(status.columns).table().lines()))
    for note in status.notes():
        click.echo(note, err=True)
    click.echo(f"the index is {status.index}")
    place = shlex.quote(path) if index is None else f"{shlex.quote(path)} --index {shlex.quote(index)}"
    for written in dict.fromkeys(shlex.join(better.build_options) for better in advised):
        columns = [better for better in advised if shlex.join(better.build_options) == written]
        named = " ".join(f"-c {shlex.quote(better.column)}" for better in columns)
        click.echo(f"recommended: zonebloom build {place} {named} {written} --overwrite")
        click.echo("\n".join(wrapped(f"  {better.headline}" for better in columns)))
    first = status.columns[0]
    literal = "…" if first.type.startswith(_NUMBERS) else "X'…'" if "binary" in first.type else "'…'"
    named = re.sub(r'["$`\\]', r"\\\g<0>", sql_name(first.name))  # between double quotes of the shell
    click.echo(f'next: zonebloom search {place} --where "{named} = {literal}"')


@app.command(examples=("whatif events/ --column user_id", "whatif events/ -c user_id -c amount --fpp 1e-5"))
@click.option("--column", "-c", multiple=True, required=True, help="Column to index; repeatable.")
@click.option("--rows-per-zone", type=options.AT_LEAST_ONE, default=ROWS_PER_ZONE, help="Rows of a zone.")
@click.option("--fpp", type=options.PROBABILITY, default=FPP, help="False positive probability of filters.")
@options.common_options
def whatif(path: str, column: tuple[str, ...], **given: Any) -> None:
    """Say what an index would cost and save, and recommend one, from a sample."""
    from zonebloom.indexing import whatif as advise  # noqa: PLC0415 - `--help` must not load Arrow

    reports: list[Any] = []
    for name in column:
        with options.busy(f"sampling {name}"):
            reports.append(advise.whatif(path, name, **given, storage_options=options.storage_options()))
    if not options.is_json():
        click.echo("\n\n".join(map(str, reports)))
    elif len(reports) == 1:
        print_json(reports[0].to_dict())
    else:
        print_list(report.to_dict() for report in reports)
    if any(report.verdict.code == "UNSUPPORTED_TYPE" for report in reports):
        raise click.exceptions.Exit(2)  # like a build


@app.command(examples=("demo", "demo --rows 500000 --keep demo-lake"))
@click.option("--rows", type=options.AT_LEAST_ONE, default=4_000_000, help="Rows to generate.")
@click.option("--files", type=options.AT_LEAST_ONE, default=8, help="Files to generate.")
@click.option("--keep", metavar="FOLDER", type=click.Path(path_type=Path), help="Leave the lake and its index there.")
def demo(rows: int, files: int, keep: Path | None) -> None:
    """Index a generated lake, search it, compare with a full scan."""
    from zonebloom.cli.demo import run_demo  # noqa: PLC0415 - only here

    click.echo(shown(run_demo(rows, files, keep=keep)))
