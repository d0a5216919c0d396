"""Commands about the command: its kernels, and shell completion and a man page, both generated from click's data."""

from __future__ import annotations

import inspect
import os
from pathlib import Path

import click

from zonebloom.cli.options import PLACE
from zonebloom.cli.root import SECTIONS, app, each_command
from zonebloom.ground.version import __version__

_SHELLS = ("bash", "zsh", "fish")


@app.command(examples=("completion bash >> ~/.bashrc", "completion zsh >> ~/.zshrc"))
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print the script that completes commands and options."""
    from click.shell_completion import get_completion_class  # noqa: PLC0415 - only here

    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(app, {}, "zonebloom", "_ZONEBLOOM_COMPLETE").source())


@app.command(examples=("warm", "warm --folder /opt/kernels"))
@click.option(
    "--folder",
    metavar="FOLDER",
    type=PLACE,
    help="Keep them in FOLDER. Later commands find them if NUMBA_CACHE_DIR is FOLDER.",
)
def warm(folder: str | None) -> None:
    """Compile all kernels now, as for an image that is read-only."""
    if folder is not None:
        os.environ["NUMBA_CACHE_DIR"] = str(Path(folder).absolute())
    from zonebloom.bloom import kernels  # noqa: PLC0415 - Numba reads its environment when it is imported

    count, seconds = kernels.compile_all(), kernels.compile_seconds()
    click.echo(f"{count} kernels are ready; compiled in {seconds:,.1f} s" if seconds else f"{count} kernels were ready")


@app.command(examples=("man > ~/.local/share/man/man1/zonebloom.1",))
@click.pass_context
def man(context: click.Context) -> None:
    """Print the manual as a man page."""
    lines = [f'.TH ZONEBLOOM 1 "" "zonebloom {__version__}"', ".SH NAME"]
    lines += ["zonebloom \\- " + _escaped(app.get_short_help_str(200)), ".SH SYNOPSIS"]
    lines += [
        "zonebloom COMMAND [OPTIONS] PATH",
        ".SH DESCRIPTION",
        _escaped(inspect.cleandoc(app.help or "")),
        ".SH COMMANDS",
    ]
    for name, command in each_command():
        with click.Context(command, info_name=name, parent=context.find_root(), terminal_width=72) as of_command:
            usage = " ".join(command.collect_usage_pieces(of_command))
            text = command.get_help(of_command).partition("\n\n")[2]
            lines += [f".SS zonebloom {name} {_escaped(usage)}", ".nf", _escaped(text), ".fi"]
    lines += [".SH TASKS", *(f"{title}: {', '.join(names)}." for title, names in SECTIONS.items())]
    lines += [".SH EXIT STATUS", _escaped((app.epilog or "").removeprefix("Exit status: "))]
    click.echo("\n".join(lines))


def _escaped(text: str) -> str:
    """`text` with the characters escaped that troff would read as commands."""
    lines = text.replace("\\", "\\e").replace("-", "\\-").splitlines()
    return "\n".join(f"\\&{line}" if line[:1] in (".", "'") else line for line in lines)
