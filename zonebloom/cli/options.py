"""Arguments and options that commands share."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click

from zonebloom.errors import InvalidArgumentError
from zonebloom.storage.stores.locations import absolute, is_url

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Decorator = Callable[[_Command], _Command]

_OPTIONS, _FORMAT = "zonebloom.storage_options", "zonebloom.format"
_SECONDS_OF_SILENCE = 1.0


def _keep_storage_options(context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> None:
    pairs = [one.partition("=") for one in given]
    bad = [name for name, separator, _ in pairs if not separator or not name]
    if bad:
        raise click.BadParameter(f"must be KEY=VALUE, got {bad[0]} without a value")
    context.meta[_OPTIONS] = {name: value for name, _, value in pairs}


def _keep_format(context: click.Context, _option: click.Parameter, given: str) -> None:
    context.meta[_FORMAT] = given


_format_option: _Decorator[Any] = click.option(
    "--format",
    "-f",
    type=click.Choice(["text", "json"]),
    default="text",
    expose_value=False,
    callback=_keep_format,
    help="How to print.",
)
_storage_option: _Decorator[Any] = click.option(
    "--storage-option",
    multiple=True,
    metavar="KEY=VALUE",
    expose_value=False,
    callback=_keep_storage_options,
    help="For s3://, gs://, az://, such as aws_region=eu-west-1; repeatable. Better in the environment.",
)
path_argument: _Decorator[Any] = click.argument("path")
"""Folder of Parquet files, one file, a table, or the folder of an index; a path or a URL."""


def _written_out(_context: click.Context, _option: click.Parameter, given: Any) -> Any:
    """The conditions as text. `@FILE` is the condition in that file; `@-` is stdin."""
    if isinstance(given, tuple):
        return tuple(map(_condition, given))
    return None if given is None else _condition(given)


def _condition(text: str) -> str:
    if not text.startswith("@"):
        return text
    try:
        with click.open_file(text[1:], "rb") as file:  # as text, line ends inside quotes would change
            data: bytes = file.read()
        return data.decode("utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"@FILE must be a text file that can be read, got {text}: {error}") from error


_OF_WHERE = "Condition, as in SQL: \"user_id = 'u-1' AND day = 3\"; @FILE reads it."
where_option: _Decorator[Any] = click.option("--where", "-w", callback=_written_out, help=_OF_WHERE)
conditions_option: _Decorator[Any] = click.option(
    "--where", "-w", multiple=True, callback=_written_out, help=f"{_OF_WHERE} Repeatable."
)
index_option: _Decorator[Any] = click.option(
    "--index", metavar="FOLDER", help="Where the index is, if not beside the data."
)
strict_option: _Decorator[Any] = click.option(
    "--strict", is_flag=True, help="Fail where files are new or changed since the last refresh."
)
limit_option: _Decorator[Any] = click.option("--limit", type=int, help="Stop after this number of rows, or row ranges.")
columns_option: _Decorator[Any] = click.option(
    "--columns", metavar="NAMES", help='Columns to print: user_id,amount; "a,b" in quotes is one name.'
)


def common_options(command: _Command) -> _Command:
    """What every command has that is about one PATH: how to print, and options for its store."""
    decorated: _Command = _format_option(_storage_option(command))
    return decorated


def values_options(command: _Command) -> _Command:
    """A list of ids in a file."""
    column = click.option("--column", "-c", help="With --values: the column that holds them.")
    values = click.option(
        "--values",
        metavar="FILE",
        help="Values to look for; - is stdin. Text with one a line, CSV with a header, Arrow or Parquet.",
    )
    decorated: _Command = column(values(command))
    return decorated


def output_options(command: _Command) -> _Command:
    """A file to write."""
    overwrite = click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
    decorated: _Command = overwrite(command)
    return decorated


def work_options(command: _Command) -> _Command:
    """How a build or refresh works."""
    from zonebloom.options import COMMIT_EVERY  # noqa: PLC0415 - beside its only use

    workers = click.option("--workers", type=int, help="Threads; by default the number of cores.")
    commit = click.option(
        "--commit-every", type=int, default=COMMIT_EVERY, help="Rows after which what is done is committed."
    )
    dry = click.option("--dry-run", is_flag=True, help="Write nothing, only say what.")
    decorated: _Command = workers(commit(dry(command)))
    return decorated


def storage_options() -> dict[str, str] | None:
    """What `--storage-option` gave the command that runs."""
    return click.get_current_context().meta.get(_OPTIONS) or None


def is_json() -> bool:
    """Whether the command that runs prints JSON."""
    return bool(click.get_current_context().meta[_FORMAT] == "json")


def listed(text: str | None) -> list[str] | None:
    """Names that commas separate, as a line of CSV."""
    if text is None:
        return None
    import csv  # noqa: PLC0415 - only here

    names = [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
    if not names or "" in names:
        raise InvalidArgumentError(f"a list of names must be like user_id,amount, got {text!r}")
    return names


def open_it(path: str, index: str | None) -> Any:
    """The index that a command is about, which must be of the data set that it names."""
    from zonebloom.index import open_index  # noqa: PLC0415 - `--help` must not load Arrow

    table = path if index and path.endswith(".metadata.json") else None  # which snapshot of Iceberg's is meant
    opened = open_index(index or path, storage_options=storage_options(), dataset=table)
    if index and table is None and opened.info()["dataset_kind"] != "iceberg":  # whose place only its catalog knows
        place = opened.data.location
        if not any(_is_in(absolute(path), one) for one in (place, opened.location)):
            message = f"PATH must be the data set of the index {opened.location}, which is {place}, got {path}"
            raise InvalidArgumentError(f"{message}; name that, or build an index of {path}")
    return opened


def check_output(path: Path, opened: Any, *, overwrite: bool) -> None:
    """Refuse a file of rows or zones that would be data or part of the index, or that exists, before any work."""
    from zonebloom.maintain import outputs  # noqa: PLC0415 - `--help` must not load Arrow

    endings = (".arrow", ".parquet")
    outputs.check_output(path, opened.data.pin(), opened.location, endings=endings, overwrite=overwrite)


def _is_in(path: str, place: str) -> bool:
    """Whether `path` is `place` or lies in it, by name or by what links lead to."""
    resolved = (path, place) if is_url(place) else (os.path.realpath(path), os.path.realpath(place))
    return any(f"{inner}/".startswith(f"{outer.rstrip('/')}/") for inner, outer in ((path, place), resolved))


@contextlib.contextmanager
def busy(doing: str) -> Iterator[None]:
    """A sign of life on a terminal while the block runs, if it lasts for over a second."""
    if not sys.stderr.isatty():
        yield
        return
    shown = contextlib.ExitStack()

    def show() -> None:
        from rich import console, progress  # noqa: PLC0415 - only what lasts pays for it

        columns = (progress.SpinnerColumn(), progress.TextColumn("{task.description}"), progress.TimeElapsedColumn())
        bar = progress.Progress(*columns, console=console.Console(stderr=True), transient=True)
        bar.add_task(doing, total=None)
        shown.enter_context(bar)

    timer = threading.Timer(_SECONDS_OF_SILENCE, show)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        shown.close()
