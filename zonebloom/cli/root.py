"""The root of all commands, and the handling of errors.

click, not typer: typer loads pydantic, which takes longer than all other work of a search for one key.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import click

from zonebloom.ground.errors import ZoneBloomError, in_words_of_the_command
from zonebloom.ground.version import __version__

SECTIONS: dict[str, tuple[str, ...]] = {
    "Make an index": ("whatif", "build", "demo"),
    "Ask it": ("search", "scan", "exists", "locate", "explain"),
    "Change the data": ("erase",),
    "Look after it": ("status", "report", "refresh", "optimize", "verify", "versions", "restore", "vacuum", "delete"),
    "Exchange it": ("lance", "blooms", "add-blooms"),
    "The command": ("completion", "man", "warm"),
}
"""The commands by task, as the help lists them; others follow."""

ARGUMENTS = {
    "path": "Folder of Parquet files, one file, a Delta, Iceberg or Lance table, or an index: a path, a URL, "
    "or iceberg:CATALOG.NAMESPACE.TABLE.",
    "version": "Number of a version that `zonebloom versions` lists.",
    "shell": "The shell that runs the script.",
}
"""Descriptions of the commands' arguments, by name."""

_ADVANCED = {"commit_every", "storage_option", "verbose", "workers"}
"""Names of options that few users need; the help lists them last."""
_FIRST, _LAST = {"path", "where", "column", "values"}, {"strict", "index", "storage_option", "format"}
"""Names of arguments and options that the help lists before and after a command's own."""
_CALLERS_MISTAKES = (ValueError, TypeError, LookupError, ImportError)
_WIDTH = 80
_STOPPED, _PIPE_CLOSED = 130, 141
"""Exit statuses of a shell for the signals INT and PIPE."""


class _State:
    handler: Any = None
    """What prints the log to stderr, with `--verbose`."""


def _be_verbose(_context: click.Context, _option: click.Parameter, is_verbose: bool) -> None:
    if is_verbose and _State.handler is None:
        _State.handler = logging.StreamHandler()
        _State.handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(message)s"))
        logger = logging.getLogger("zonebloom")
        logger.addHandler(_State.handler)
        logger.setLevel(logging.DEBUG)


def _verbose_option() -> click.Option:
    text = "Show what is done, and where an error comes from."
    return click.Option(["--verbose"], is_flag=True, expose_value=False, callback=_be_verbose, help=text)


class Command(click.Command):
    """A command with examples in its help, and with `--verbose`."""

    def __init__(self, *arguments: Any, examples: Sequence[str] = (), **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.examples = examples
        self.params.sort(key=lambda param: (param.name in _LAST, param.name not in _FIRST))
        self.params.append(_verbose_option())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does, but refuse a single option that is given twice: the last would silently win."""
        _, _, given = self.make_parser(ctx).parse_args([*args])
        for option in given:
            if isinstance(option, click.Option) and not (option.multiple or option.is_flag) and given.count(option) > 1:
                raise click.UsageError(f"{option.opts[0]} must be given once.", ctx)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The arguments, the options, and options that few users need."""
        named = [
            (param.human_readable_name, ARGUMENTS[str(param.name)]) for param in self.params if param.name in ARGUMENTS
        ]
        if named:
            with formatter.section("Arguments"):
                formatter.write_dl(named)
        for title, is_advanced in (("Options", False), ("Advanced", True)):
            options = (param for param in self.get_params(ctx) if isinstance(param, click.Option))
            records = [option.get_help_record(ctx) for option in options if (option.name in _ADVANCED) == is_advanced]
            with formatter.section(title):
                formatter.write_dl([record for record in records if record])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """The examples."""
        with formatter.section("Examples"):
            for example in self.examples:
                formatter.write(f"  zonebloom {example}\n")


class Group(click.Group):
    """Commands in the order of their sections."""

    command_class: type[click.Command] | None = Command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does, but `help` is `--help`. Without a command print the help on stderr and exit with 2."""
        if not args and not ctx.resilient_parsing:  # click 8.1 exits with 0; a shell that completes is resilient
            click.echo(ctx.get_help(), err=True)
            ctx.exit(2)
        return super().parse_args(ctx, [*args[1:], "--help"] if args[:1] == ["help"] else args)

    def sections(self) -> dict[str, list[str]]:
        """Titles and names of commands by task; others follow."""
        listed = {title: [name for name in names if name in self.commands] for title, names in SECTIONS.items()}
        more = [name for name in self.commands if not any(name in names for names in SECTIONS.values())]
        return {title: names for title, names in (listed | {"Commands": more}).items() if names}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        """In the order of the help."""
        return [name for names in self.sections().values() for name in names]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """A line for each command."""
        width = max(map(len, self.commands))
        for title, names in self.sections().items():
            with formatter.section(title):
                formatter.write_dl(
                    [(f"{name:<{width}}", self.commands[name].get_short_help_str(_WIDTH)) for name in names]
                )


@click.group(
    cls=Group,
    name="zonebloom",
    epilog="Exit status: 0; 1 if data or environment are at fault, or a check fails; 2 for a mistake in the call; "
    "130 when stopped by Ctrl-C; 141 when the reader of the output leaves.",
    context_settings={"show_default": True, "help_option_names": ["-h", "--help"], "max_content_width": _WIDTH},
)
@click.version_option(__version__, "-V", "--version", message="zonebloom %(version)s", help="Print the version.")
def app() -> None:
    """Find which rows of a data lake can hold a value.

    Start: zonebloom build PATH --column COLUMN
    """


app.params.append(_verbose_option())


def each_command() -> Iterator[tuple[str, Command]]:
    """The commands by task, with their names: `build`, `lance export` and so on."""
    for name in app.list_commands(click.Context(app)):
        command = app.commands[name]
        inner = command.commands.items() if isinstance(command, Group) else [("", command)]
        yield from ((f"{name} {part}".strip(), each) for part, each in inner if isinstance(each, Command))


def _be_quiet() -> None:
    """Undo `--verbose`, for a caller that runs the command in its own process."""
    if _State.handler is not None:
        _State.handler.stream.flush()
        logger = logging.getLogger("zonebloom")
        logger.removeHandler(_State.handler)
        logger.setLevel(logging.NOTSET)
        _State.handler = None


def _show_warning(message: Warning | str, *_: Any) -> None:
    sign = click.style("warning:", fg="yellow", bold=True) if _is_colourful() else "zonebloom: warning:"
    click.echo(f"{sign} {message}", err=True)


def main() -> NoReturn:
    """Run the command as the only work of this process."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy would start threads that spin, and we multiply no matrix
    _use_utf8()
    status = run()
    gc.freeze()  # nothing is freed one by one as Python ends; what is registered to run at the end still runs
    raise SystemExit(status)


def _use_utf8() -> None:
    """Use UTF-8 for names of files and columns in any locale. A missing stream is replaced by the null device."""
    if sys.getfilesystemencoding() != "utf-8" and os.name == "posix":
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - this process once more
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]


def run() -> int:
    """Run the command, and give its exit status; every error is one line on stderr."""
    with in_words_of_the_command(), warnings.catch_warnings():
        warnings.simplefilter("always", RuntimeWarning)
        warnings.showwarning = _show_warning  # type: ignore[assignment]
        try:
            status = int(app(prog_name="zonebloom", standalone_mode=False) or 0)
            sys.stdout.flush()
        except (Exception, KeyboardInterrupt, SystemExit) as error:  # noqa: BLE001 - the last handler
            cause = BrokenPipeError() if isinstance(error, SystemExit) else error  # click's sign of a closed pipe
            message, status = _told(cause)
            _fail(message)
            if isinstance(cause, OSError):  # the rest of the output must not fail again when Python ends
                with contextlib.suppress(OSError, ValueError):
                    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        finally:
            _be_quiet()
    return status


def _told(error: BaseException) -> tuple[str, int]:
    """The message of an error, and the exit status."""
    if isinstance(error, click.UsageError):
        message = error.format_message().rstrip(".")
        if (
            "unexpected extra argument" in message
            and error.ctx
            and any(p.name == "where" for p in error.ctx.command.params)
        ):
            message += "; put the whole condition in quotes"
        joint = " See" if message.endswith("?") else "; see"
        return f"{message}{joint} {error.ctx.command_path if error.ctx else 'zonebloom'} --help", 2
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        is_key = any(isinstance(raised, KeyboardInterrupt) for raised in (error, error.__cause__, error.__context__))
        return "stopped" + _left_over(), _STOPPED if is_key else 1
    if isinstance(error, BrokenPipeError):
        return "", _PIPE_CLOSED
    if isinstance(error, ZoneBloomError):
        return str(error), 2 if isinstance(error, _CALLERS_MISTAKES) else 1
    if isinstance(error, OSError):
        return f"cannot read or write: {error.strerror or error}", 1
    return f"internal error: {type(error).__name__}: {error}; add --verbose to see where", 1


def _left_over() -> str:
    """The sentence about what a stopped command leaves behind."""
    is_writer = any(name in sys.argv[1:] for name in ("build", "refresh", "erase"))
    return "; what was committed stays, and the same command continues from there" if is_writer else ""


def _fail(message: str) -> None:
    if _State.handler is not None:
        import traceback  # noqa: PLC0415 - only here

        traceback.print_exc()
    if message:
        with contextlib.suppress(OSError, ValueError):
            sign = click.style("error:", fg="red", bold=True) if _is_colourful() else "zonebloom:"
            click.echo(f"{sign} {' '.join(message.split())}", err=True)


def _is_colourful() -> bool:
    """Whether stderr is a terminal and colours are wanted. A log gets the name of the command instead."""
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR")
