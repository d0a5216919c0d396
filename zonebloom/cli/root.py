"""The root of all commands, and what becomes of an error.

click and not typer, which loads pydantic: a search of one key would spend more time on that than on all the rest.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import re
import sys
import warnings
from collections.abc import Sequence
from typing import Any, ClassVar, NoReturn

import click

import zonebloom
from zonebloom import errors

SECTIONS = {
    "Make an index": ("whatif", "build", "demo"),
    "Ask it": ("search", "scan", "exists", "locate", "explain"),
    "Look after it": (
        "status",
        "info",
        "report",
        "refresh",
        "optimize",
        "verify",
        "versions",
        "restore",
        "vacuum",
        "delete",
    ),
    "Exchange it": ("export", "import", "blooms", "audit"),
    "The command": ("completion", "man"),
}
"""The commands by task, as the help lists them; others follow."""

ARGUMENTS = {
    "path": "Folder of Parquet files, one file, a Delta, Iceberg or Lance table, or an index; a path or a URL.",
    "file": "Zones that were exported: .arrow or .parquet.",
    "version": "Number of a version that `zonebloom versions` lists.",
    "shell": "The shell that runs the script.",
}
"""What the arguments of commands are, by name."""

_CALLERS_MISTAKES = (ValueError, TypeError, LookupError, ImportError)
_WIDTH = 80
_STOPPED, _PIPE_CLOSED = 130, 141
"""Exit statuses of a shell for the signals INT and PIPE."""

_IN_WORDS_OF_THE_COMMAND = [
    (re.compile(pattern), words)
    for pattern, words in (
        (r"refresh it, or build with overwrite=True", "`zonebloom refresh` brings it up to date; or add --overwrite"),
        (r"build_index\(path, '([^']+)'\)", r"zonebloom build PATH --column \1"),
        (r"refresh the index", "run `zonebloom refresh PATH`"),
        (r"\bbuild_index\b", "`zonebloom build`"),
        (r"overwrite=True", "--overwrite"),
        (r"\boutput must", "--output must"),
        (r"\bindex=(?!\w)", "--index FOLDER"),
        (r"\bdataset=(?!\w)", "PATH"),
        (r"column= and values=", "--column and --values"),
        (r"a predicate, or --column", "--where, or --column"),
    )
]


def as_command(message: str) -> str:
    """A message of the library in the words of the command."""
    for pattern, words in _IN_WORDS_OF_THE_COMMAND:
        message = pattern.sub(words, message)
    return message


def _be_verbose(_context: click.Context, _option: click.Parameter, is_verbose: bool) -> None:
    if is_verbose and not _State.verbose:
        _State.verbose = True
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(message)s"))
        _State.handlers.append(handler)
        logger = logging.getLogger("zonebloom")
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)


def _verbose_option() -> click.Option:
    text = "Show what is done, and where an error comes from."
    return click.Option(["--verbose"], is_flag=True, expose_value=False, callback=_be_verbose, help=text)


class Command(click.Command):
    """A command with examples in its help, and with `--verbose`."""

    def __init__(self, *arguments: Any, examples: Sequence[str] = (), **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.examples = examples
        self.params.append(_verbose_option())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does, but an option that counts once must not be given twice: the last would win silently."""
        for option in self.params:
            if isinstance(option, click.Option) and not option.multiple and not option.is_flag:
                names = [one for one in args if one.partition("=")[0] in option.opts]
                if len(names) > 1:
                    raise click.UsageError(f"{names[0].partition('=')[0]} must be given once.", ctx)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The arguments, and then the options, as click does."""
        named = [(one.human_readable_name, ARGUMENTS[str(one.name)]) for one in self.params if one.name in ARGUMENTS]
        if named:
            with formatter.section("Arguments"):
                formatter.write_dl(named)
        super().format_options(ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """The examples."""
        with formatter.section("Examples"):
            for example in self.examples:
                formatter.write(f"  zonebloom {example}\n")


class _Root(click.Group):
    """All commands, in order of task."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        listed = [name for names in SECTIONS.values() for name in names if name in self.commands]
        return listed + [name for name in self.commands if name not in listed]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [*args[1:2], "--help"] if args[:1] == ["help"] else args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.commands))
        more = tuple(self.list_commands(ctx)[sum(map(len, SECTIONS.values())) :])
        for title, names in (*SECTIONS.items(), ("More", more)):
            rows = [(f"{name:<{width}}", self.commands[name].get_short_help_str(_WIDTH)) for name in names]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


@click.group(
    cls=_Root,
    name="zonebloom",
    no_args_is_help=True,
    context_settings={"show_default": True, "help_option_names": ["-h", "--help"], "max_content_width": _WIDTH},
)
@click.version_option(
    zonebloom.__version__, "-V", "--version", message="zonebloom %(version)s", help="Print the version."
)
def app() -> None:
    """Find which rows of a data lake can hold a value.

    Exit status: 0; 1 where data or environment are at fault, or a check fails; 2 for a mistake in the call; 130 when
    stopped by Ctrl-C; 141 when the reader of the output leaves.
    """


app.params.append(_verbose_option())


class _State:
    verbose = False
    handlers: ClassVar[list[Any]] = []

    @classmethod
    def be_quiet(cls) -> None:
        """As before `--verbose`, for a caller that runs the command in its own process."""
        for handler in cls.handlers:
            handler.stream.flush()
            logging.getLogger("zonebloom").removeHandler(handler)
        cls.verbose, cls.handlers = False, []


def _show_warning(message: Warning | str, *_: Any) -> None:
    click.echo(f"zonebloom: warning: {as_command(str(message))}", err=True)


def main() -> NoReturn:
    """Run the command as all that this process does."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy would start threads that spin, and we multiply no matrix
    _use_utf8()
    status = run()
    gc.freeze()  # nothing is freed one by one as Python ends; what is registered to run at the end still runs
    raise SystemExit(status)


def _use_utf8() -> None:
    """Names of files and columns are UTF-8 in any locale; a stream that is closed takes what it gets."""
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
    with warnings.catch_warnings():
        warnings.simplefilter("always", RuntimeWarning)
        warnings.showwarning = _show_warning  # type: ignore[assignment]
        try:
            status = int(app(prog_name="zonebloom", standalone_mode=False) or 0)
            sys.stdout.flush()
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), err=True)
            status = 2
        except (Exception, KeyboardInterrupt, SystemExit) as error:  # noqa: BLE001 - the last to be told
            cause = BrokenPipeError() if isinstance(error, SystemExit) else error  # so click tells of a closed pipe
            message, status = _told(cause)
            _fail(message)
            if isinstance(cause, OSError):  # what is left must not fail again as Python ends
                with contextlib.suppress(OSError, ValueError):
                    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        finally:
            _State.be_quiet()
    return status


def _told(error: BaseException) -> tuple[str, int]:
    """What to say of an error, and the exit status."""
    if isinstance(error, click.UsageError):
        message = error.format_message().rstrip(".")
        if (
            "unexpected extra argument" in message
            and error.ctx
            and any(p.name == "where" for p in error.ctx.command.params)
        ):
            message += "; put the whole condition in quotes"
        return f"{message}; see {error.ctx.command_path if error.ctx else 'zonebloom'} --help", 2
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        is_key = any(isinstance(one, KeyboardInterrupt) for one in (error, error.__cause__, error.__context__))
        return "stopped" + _left_over(), _STOPPED if is_key else 1
    if isinstance(error, BrokenPipeError):
        return "", _PIPE_CLOSED
    if isinstance(error, errors.ZoneBloomError):
        return as_command(str(error)), 2 if isinstance(error, _CALLERS_MISTAKES) else 1
    if isinstance(error, OSError):
        return f"cannot read or write: {error.strerror or error}", 1
    return f"internal error: {type(error).__name__}: {error}; add --verbose to see where", 1


def _left_over() -> str:
    """What a stopped command leaves behind."""
    is_writer = any(name in sys.argv[1:] for name in ("build", "refresh"))
    return "; what was committed stays, and the same command goes on from there" if is_writer else ""


def _fail(message: str) -> None:
    if _State.verbose:
        import traceback  # noqa: PLC0415 - only here

        traceback.print_exc()
    if message:
        with contextlib.suppress(OSError, ValueError):
            click.echo(f"zonebloom: {' '.join(message.split())}", err=True)
