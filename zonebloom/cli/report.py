"""The command `report`: one HTML page about an index, with pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from zonebloom.cli.options import busy, conditions_option, on_index, overwrite_option
from zonebloom.cli.output import say
from zonebloom.cli.root import app

if TYPE_CHECKING:
    from zonebloom.index.index import Index


@app.command(
    examples=(
        "report events/ -o report.html",
        'report events/ -o report.html -w "user_id = \'u-1\'" -w "day = 3"',
    )
)
@conditions_option
@click.option("--output", "-o", metavar="FILE", type=click.Path(path_type=Path), required=True, help="A page: .html.")
@overwrite_option
@on_index
def report(opened: Index, where: tuple[str, ...], output: Path, overwrite: bool) -> None:
    """Write a page with pictures: what conditions read, sizes, coverage.

    It opens in a browser without a network. Each condition is drawn on a map of files and zones; --where is repeatable.
    """
    with busy("drawing"):
        opened.report(output, list(where), overwrite=overwrite)
    num_bytes = output.stat().st_size
    document = {"output": str(output), "num_bytes": num_bytes, "conditions": list(where)}
    say(document, f"wrote {output}, {num_bytes:,} bytes", err=True)
