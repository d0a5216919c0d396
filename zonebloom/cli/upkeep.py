"""Commands that look after an index: status, report, refresh, optimize, verify, versions, restore, vacuum, delete."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zonebloom.bloom.sizing import SIZINGS
from zonebloom.cli import options
from zonebloom.cli.output import print_list, say, say_done, show, shown
from zonebloom.cli.root import app
from zonebloom.ground.errors import IndexNotFoundError, Words
from zonebloom.ground.reasons import counted
from zonebloom.ground.rendering import plain
from zonebloom.storage.options import KINDS

if TYPE_CHECKING:
    from zonebloom.index.index import Index
    from zonebloom.indexing.plan import Mode


@app.command(examples=("status events/", "status events/ --check || zonebloom refresh events/"))
@click.option("--check", is_flag=True, help="Exit with 1 if a refresh has work to do.")
@options.on_index
def status(opened: Index, check: bool) -> None:
    """Print what the index holds and covers now, and what is read whole."""
    with options.busy("listing"):
        report = opened.status()
    show(report)
    if check and not report.is_fresh:
        raise click.exceptions.Exit(1)


@app.command(
    examples=("report events/ -o report.html", 'report events/ -o report.html -w "user_id = \'u-1\'" -w "day = 3"')
)
@options.conditions_option
@options.output_option("A page: .html.", required=True)
@options.overwrite_option
@options.on_index
def report(opened: Index, where: tuple[str, ...], output: Path, overwrite: bool) -> None:
    """Write a page with pictures: what conditions read, sizes, coverage.

    It opens in a browser without a network. Each condition is drawn on a map of files and zones; --where is repeatable.
    """
    with options.busy("drawing"):
        opened.report(output, list(where), overwrite=overwrite)
    num_bytes = output.stat().st_size
    document = {"output": str(output), "num_bytes": num_bytes, "conditions": list(where)}
    say(document, f"wrote {output}, {num_bytes:,} bytes", err=True)


@app.command(
    examples=("refresh events/", "refresh events/ --partition day=3", "refresh events/ --mode full --fpp 1e-5")
)
@click.option(
    "--mode",
    type=click.Choice(["incremental", "quick", "full"]),
    default="incremental",
    help="quick reads no data, full builds all anew.",
)
@click.option("--path", "paths", multiple=True, metavar="NAME", help="Only this file or folder in PATH; repeatable.")
@click.option("--partition", multiple=True, metavar="KEY=VALUE", help="Only this partition; repeatable.")
@click.option("--kind", type=click.Choice(KINDS), help="With full: bloom filters, locators or both from now on.")
@click.option("--rows-per-zone", type=options.AT_LEAST_ONE, help="With full: rows of a zone from now on.")
@click.option("--fpp", type=options.PROBABILITY, help="With full: false positive probability of a zone from now on.")
@click.option("--sizing", type=click.Choice(SIZINGS), help="With full: how large a filter is from now on.")
@click.option("--check", is_flag=True, help="Read the whole index first, and rebuild damaged parts.")
@options.work_options
@options.on_index
def refresh(
    opened: Index, mode: Mode, paths: tuple[str, ...], partition: tuple[str, ...], dry_run: bool, **given: Any
) -> None:
    """Index new and changed files, forget deleted ones.

    The work is in proportion to the change.
    """
    if dry_run and (paths or partition or mode != "incremental"):
        raise click.UsageError("--dry-run is for an incremental refresh of all files.")
    started = time.perf_counter()
    if dry_run:
        before = opened.status()
        added, dropped = before.num_new + before.num_changed, before.num_changed + before.num_deleted
        would = f"would add {counted(added, 'file')} of {counted(before.num_rows_not_indexed, 'row')}"
        say(before.to_dict() | {"is_dry_run": True}, f"{would}, and drop {dropped:,}")
        return
    done = opened.refresh(
        mode, paths=paths or None, partitions=partition or None, progress=sys.stderr.isatty(), **given
    )
    say_done(opened, started, done.to_dict(), done.headline)


@app.command(examples=("optimize events/",))
@click.option("--dry-run", is_flag=True, help="Write nothing; print what there is to merge.")
@options.on_index
def optimize(opened: Index, dry_run: bool) -> None:
    """Merge segments, so that a search reads less.

    Answers stay the same.
    """
    started = time.perf_counter()
    if dry_run:
        columns = opened.indexed_columns()
        lines = [f"{column.name}: {counted(sum(column.segments.values()), 'segment')} now" for column in columns]
        say({"columns": plain(columns), "is_dry_run": True}, *lines)
        return
    with options.busy("optimizing"):
        done = opened.optimize()
    say_done(opened, started, done.to_dict(), shown(done))


@app.command(examples=("verify events/ --all", "verify events/ --sample 0.01 -f json"))
@click.option("--sample", type=options.SHARE, default=0.1, help="Share of the files to read again.")
@click.option("--all", "all_files", is_flag=True, help="Read every file, as --sample 1.")
@options.on_index
def verify(opened: Index, sample: float, all_files: bool) -> None:
    """Read data again and prove the index right, or exit with 1."""
    with options.busy("verifying"):
        report = opened.verify(sample=1.0 if all_files else sample)
    num_unknown = len(opened.view().files.unknown_paths)
    unknown = f"not indexed, so not verified: {counted(num_unknown, 'new or changed file')}; {Words.REFRESH}"
    say(report.to_dict() | {"num_not_indexed": num_unknown}, str(report), *([f"  {unknown}"] if num_unknown else []))
    if not report.is_sound:
        raise click.exceptions.Exit(1)


@app.command(examples=("versions events/",))
@options.on_index
def versions(opened: Index) -> None:
    """Print the versions that are kept, the oldest first."""
    listed = opened.versions()
    if options.is_json():
        print_list(version.to_dict() for version in listed)
    else:
        click.echo(listed)


@app.command(examples=("restore events/ 3",))
@click.argument("version", type=int)
@options.on_index
def restore(opened: Index, version: int) -> None:
    """Make an older version current again, as a new version."""
    number = opened.restore(version)
    say({"version": number, "restored": version}, f"version {number}")


@app.command(examples=("vacuum events/ --dry-run", "vacuum events/ --older-than 12h"))
@click.option("--older-than", default="7d", help="Time since a version was superseded: 7d, 12h, 30m.")
@click.option("--dry-run", is_flag=True, help="Remove nothing; print what would be removed.")
@options.index_option
@options.common_options
def vacuum(path: str, older_than: str, dry_run: bool, index: str | None) -> None:
    """Remove old versions, and files that no version needs."""
    try:
        opened = options.open_it(path, index)
    except IndexNotFoundError as error:
        message = str(error).partition("; ")[0]
        raise IndexNotFoundError(f"{message}: nothing to remove") from error
    started = time.perf_counter()
    done = opened.vacuum(older_than=older_than, dry_run=dry_run)
    say_done(opened, started, done.to_dict(), done.headline)


@app.command(examples=("delete events/", "delete events/ --yes"))
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Remove nothing; print what would be removed.")
@options.index_option
@options.common_options
def delete(path: str, yes: bool, dry_run: bool, index: str | None) -> None:
    """Remove the index with all its versions; data stays.

    It also removes the files of a build that was killed before its first commit.
    """
    from zonebloom.index.doors import delete_index  # noqa: PLC0415 - `--help` must not load Arrow

    place = path if index is None else index
    if index is not None:
        with contextlib.suppress(IndexNotFoundError):  # what is left of a build names no data set
            options.open_it(path, index)
    removed = delete_index(place, storage_options=options.storage_options(), dry_run=True)
    if not dry_run:
        if not yes:
            click.confirm(f"Remove the index {removed.location}?", abort=True, err=True)
        removed = delete_index(place, storage_options=options.storage_options())
    say(removed.to_dict(), removed.headline)
