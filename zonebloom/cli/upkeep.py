"""Commands that look after an index: info, refresh, optimize, versions, restore, vacuum, delete, verify."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, get_args

import click

from zonebloom.cli.options import format_option, index_option, open_it, path_argument, workers_option
from zonebloom.cli.output import print_info, print_json
from zonebloom.cli.root import app
from zonebloom.options import Sizing

if TYPE_CHECKING:
    from zonebloom.build.refresh import Mode

__all__ = ["delete", "info", "optimize", "refresh", "restore", "vacuum", "verify", "versions"]


@app.command()
@path_argument
@index_option
@format_option
def info(path: str, index: str | None, output_format: str) -> None:
    """Print version, counts, and the parameters and size of each column."""
    found = open_it(path, index).info()
    if output_format == "json":
        print_json(found)
        return
    table = [f"{key.replace('_', ' ')} {found[key]}" for key in ("table_version", "snapshot_id") if key in found]
    kind = ", ".join([found["dataset_kind"], *table])
    click.echo(f"index    {found['index']}\ndata set {found['dataset']} ({kind})")
    click.echo(f"version {found['version']}, {found['num_fragments']:,} files, {found['num_rows']:,} rows")
    print_info(found)


@app.command()
@path_argument
@index_option
@format_option
def optimize(path: str, index: str | None, output_format: str) -> None:
    """Merge segments into few slice segments, of which a search reads some rows; answers stay the same."""
    done = open_it(path, index).optimize()
    if output_format == "json":
        print_json(done.to_dict())
        return
    if not done.columns:
        click.echo(f"nothing to do: version {done.version} stays")
        return
    click.echo(f"version {done.version}")
    for column in done.columns:
        click.echo(
            f"  {column.name}: {column.num_zones_rewritten:,} zones rewritten, {column.num_zones_dropped:,} dropped; "
            f"{column.num_segments_before:,} segments became {column.num_segments:,}, "
            f"{column.index_bytes_before:,} bytes became {column.index_bytes:,}"
        )
        for level in column.merged_levels:
            click.echo(f"  {column.name}: filters of the level {level} merged")
        for message in column.damage:
            click.echo(f"  damaged, left as it is: {message}", err=True)


@app.command()
@path_argument
@click.option(
    "--mode",
    type=click.Choice(["incremental", "quick", "full"]),
    default="incremental",
    help="quick reads no data, full builds all anew.",
)
@click.option("--part", multiple=True, help="A file or folder in PATH; may be given again.")
@click.option("--partition", multiple=True, help="A partition, such as day=3; may be given again.")
@click.option("--rows-per-zone", type=int, help="With full: rows of a zone from now on.")
@click.option("--fpp", type=float, help="With full: false positive probability of a zone from now on.")
@click.option("--sizing", type=click.Choice(get_args(Sizing)), help="With full: how large a filter is from now on.")
@click.option("--levels", help="With full: zone, and fragment or dataset above it, separated by commas.")
@click.option("--check", is_flag=True, help="Read the index whole first, and mend it.")
@index_option
@workers_option
@format_option
def refresh(
    path: str,
    mode: Mode,
    part: tuple[str, ...],
    partition: tuple[str, ...],
    rows_per_zone: int | None,
    fpp: float | None,
    sizing: Sizing | None,
    levels: str | None,
    check: bool,
    index: str | None,
    workers: int | None,
    output_format: str,
) -> None:
    """Bring the index in line with files that came, changed or went; work in proportion to the change."""
    opened = open_it(path, index)
    done = opened.refresh(
        mode,
        paths=part or None,
        partitions=partition or None,
        rows_per_zone=rows_per_zone,
        fpp=fpp,
        sizing=sizing,
        levels=[name.strip() for name in levels.split(",")] if levels else None,
        check=check,
        workers=workers,
        progress=sys.stderr.isatty(),
    )
    if output_format == "json":
        print_json(done.to_dict())
        return
    click.echo(
        f"version {done.version}: {done.num_files_added:,} files added, {done.num_files_dropped:,} dropped, "
        f"{done.num_files_kept:,} kept; {done.num_zones_added:,} zones added, {done.num_zones:,} in the index"
    )


@app.command()
@path_argument
@index_option
@format_option
def versions(path: str, index: str | None, output_format: str) -> None:
    """Print the versions that are kept, the oldest first."""
    found = open_it(path, index).versions()
    if output_format == "json":
        print_json([version.to_dict() for version in found])
        return
    for version in found:
        click.echo(
            f"{version.number}\t{version.committed_at:%Y-%m-%d %H:%M:%S}Z\t{version.operation}\t"
            f"{version.num_files:,} files\t{version.index_bytes:,} bytes"
        )


@app.command()
@path_argument
@click.argument("version", type=int)
@index_option
def restore(path: str, version: int, index: str | None) -> None:
    """Make the content of an older version current again, as a new version."""
    click.echo(f"version {open_it(path, index).restore(version)}")


@app.command()
@path_argument
@click.option("--older-than", type=float, default=7.0, help="Days since a version was superseded.")
@click.option("--dry-run", is_flag=True, help="Remove nothing, only say what.")
@index_option
@format_option
def vacuum(path: str, older_than: float, dry_run: bool, index: str | None, output_format: str) -> None:
    """Remove old versions, and files that no kept version needs."""
    from datetime import timedelta  # noqa: PLC0415 - only here

    done = open_it(path, index).vacuum(older_than=timedelta(days=older_than), dry_run=dry_run)
    if output_format == "json":
        print_json(done.to_dict())
        return
    verb = "would remove" if done.is_dry_run else "removed"
    click.echo(f"{verb} {len(done.versions):,} versions and {len(done.files):,} files, {done.num_bytes:,} bytes")


@app.command()
@path_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@index_option
def delete(path: str, yes: bool, index: str | None) -> None:
    """Remove the index, all its versions; data files are not touched."""
    from zonebloom.maintain.versions import delete_index  # noqa: PLC0415 - `--help` must not load Arrow

    store = open_it(path, index).store
    if not yes:
        click.confirm(f"Remove the index {store.location}?", abort=True, err=True)
    click.echo(f"removed {delete_index(store):,} files of {store.location}")


@app.command()
@path_argument
@click.option("--sample", type=float, default=0.1, help="Share of the files to read again, in (0, 1].")
@click.option("--all", "all_files", is_flag=True, help="Read every file.")
@index_option
@format_option
def verify(path: str, sample: float, all_files: bool, index: str | None, output_format: str) -> None:
    """Read data again and prove that no value is missing from the filter of its zone; exit 1 if one is."""
    found = open_it(path, index).verify(sample=1.0 if all_files else sample)
    if output_format == "json":
        print_json(found.to_dict())
    else:
        click.echo(
            f"{'sound' if found.is_sound else 'NOT SOUND'}: read {found.num_files_read} of {found.num_files} files"
        )
        for column in found.columns:
            click.echo(
                f"  {column.name}: {column.num_missing:,} of {column.num_values:,} values missing in "
                f"{column.num_zones:,} zones; fpp expected {column.expected_fpp:.3g}, "
                f"measured {column.measured_fpp:.3g} by bits, {column.measured_false_positives:.3g} by probing"
            )
        for message in found.damage:
            click.echo(f"  damaged: {message}")
    if not found.is_sound:
        raise click.exceptions.Exit(1)
