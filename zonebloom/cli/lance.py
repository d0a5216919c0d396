"""Commands for Lance's own index of a table: `audit`, and `export --to-lance`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from zonebloom.cli.options import busy, common_options, is_json, path_argument, storage_options
from zonebloom.cli.output import print_json, say
from zonebloom.cli.root import app
from zonebloom.reasons import counted

if TYPE_CHECKING:
    from zonebloom.index import Index


@app.command(examples=("audit events.lance", "audit events.lance --column user_id --replace"))
@path_argument
@click.option("--column", "-c", help="The column to look at; by default all with a bloom filter index.")
@click.option("--sample", type=float, default=1.0, help="Share of the fragments to read, in (0, 1].")
@click.option("--replace", is_flag=True, help="Put a sound index in the place of each one that loses rows.")
@common_options
def audit(path: str, column: str | None, sample: float, replace: bool) -> None:
    """Read a Lance table and prove its own bloom filter indexes right, or exit with 1.

    Lance does not find rows that are missing from an index; 1.0.4 and older wrote such indexes. PATH is the table.
    """
    from zonebloom.indexing.lance_audit import audit_lance  # noqa: PLC0415 - `--help` must not load Arrow

    with busy("auditing"):
        report = audit_lance(path, column=column, sample=sample, storage_options=storage_options())
        unsound = [index for index in report.indexes if not index.is_sound]
        replaced = [_replaced(path, index.column) for index in unsound] if replace else []
    if is_json():
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

    from zonebloom.doors import build_index  # noqa: PLC0415 - as above

    with tempfile.TemporaryDirectory() as folder:
        index = build_index(path, column, index=f"{folder}/index", storage_options=storage_options())
        return index.export_lance(path, column, overwrite=True).to_dict()


def export_to_lance(index: Index, column: str, *, per_fragment: bool, overwrite: bool) -> None:
    """Run `export --to-lance` and print its result."""
    done = index.export_lance(index.data.location, column, per_fragment=per_fragment, overwrite=overwrite)
    parts = f"{counted(done.num_zones, 'zone')} in {counted(done.num_segments, 'segment')}"
    size = f"{parts}, {done.filter_bytes:,} bytes of filters"
    message = f"committed {done.name} to {index.data.location}, table version {done.table_version}: {size}"
    say(done.to_dict(), message, err=True)
