"""Commands about the command: its kernels, and shell completion and a man page, both generated from click's data."""

from __future__ import annotations

import os
from pathlib import Path

import click

from zonebloom.cli.root import ARGUMENTS, SECTIONS, app, each_command
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
@click.option("--folder", metavar="FOLDER", help="Keep them in FOLDER; give it as NUMBA_CACHE_DIR to all who use them.")
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
    root = context.find_root()
    lines = [f'.TH ZONEBLOOM 1 "" "zonebloom {__version__}"', ".SH NAME"]
    lines += [
        "zonebloom \\- " + _escaped(app.get_short_help_str(200)),
        ".SH SYNOPSIS",
        "zonebloom COMMAND [OPTIONS] PATH",
    ]
    lines += [".SH DESCRIPTION", _escaped(app.help or ""), ".SH COMMANDS"]
    for name, command in each_command():
        with click.Context(command, info_name=name, parent=root) as of_command:
            lines += [f".SS zonebloom {name} " + _escaped(" ".join(command.collect_usage_pieces(of_command)))]
            lines += [_escaped(command.help or "")]
            for param in command.params:
                if param.name in ARGUMENTS:
                    lines += [
                        ".TP",
                        f".B {_escaped(param.human_readable_name)}",
                        _escaped(ARGUMENTS[str(param.name)]),
                    ]
            for option in command.get_params(of_command):
                record = option.get_help_record(of_command)
                if record and record[1]:  # an argument has no description here
                    lines += [".TP", f".B {_escaped(record[0])}", _escaped(record[1])]
            for example in command.examples:
                lines += [".PP", ".EX", _escaped(f"zonebloom {example}"), ".EE"]
    lines += [".SH TASKS", *(f"{title}: {', '.join(names)}." for title, names in SECTIONS.items())]
    lines += [".SH EXIT STATUS", _escaped((app.epilog or "").removeprefix("Exit status: "))]
    click.echo("\n".join(lines))


def _escaped(text: str) -> str:
    """`text` with the characters escaped that troff would read as commands."""
    shown = (
        "\n".join(line.strip() for line in text.replace("\b", "").splitlines()).replace("\\", "\\e").replace("-", "\\-")
    )
    return "\n".join(f"\\&{line}" if line[:1] in (".", "'") else line for line in shown.splitlines())
