"""Arguments and options that commands share."""

from __future__ import annotations

import contextlib
import errno
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial, reduce, wraps
from pathlib import Path
from typing import Any

import click

from zonebloom.bloom.sizing import LEAST_FPP
from zonebloom.ground.errors import InvalidArgumentError
from zonebloom.storage.options import COMMIT_EVERY

_Decorator = Callable[[Any], Any]

WHOLE, AT_LEAST_ONE = click.IntRange(0), click.IntRange(1)
SHARE, PROBABILITY = click.FloatRange(0, 1, min_open=True), click.FloatRange(LEAST_FPP, 1, max_open=True)
"""Numbers that options take. click refuses others, and shows the range in the help."""
PLACE = click.Path(readable=False)
"""A path or a URL. Shells complete it as a path; the library checks it."""
_OPTIONS, _FORMAT, _STDIN = "zonebloom.storage_options", "zonebloom.format", "zonebloom.stdin"
_SECONDS_OF_SILENCE = 1.0


def together(*options: _Decorator) -> _Decorator:
    """Arguments and options as one decorator, in their order."""
    return lambda command: reduce(lambda decorated, option: option(decorated), reversed(options), command)


def _keep_storage_options(context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> None:
    pairs = [pair.partition("=") for pair in given]
    bad = [name for name, separator, _ in pairs if not separator or not name]
    if bad:
        raise click.BadParameter(f"{bad[0] or '='} is not KEY=VALUE")
    names = [name for name, _, _ in pairs]
    if len(set(names)) < len(names):
        raise click.BadParameter(f"{max(names, key=names.count)} must be given once")
    context.meta[_OPTIONS] = {name: value for name, _, value in pairs}


def _keep_format(context: click.Context, _option: click.Parameter, given: str) -> None:
    context.meta[_FORMAT] = given


_FORMATS = click.Choice(["text", "json"])
_OF_STORES = "For s3://, gs://, az://, such as aws_region=eu-west-1; repeatable. Better in the environment."
_kept = partial(click.option, expose_value=False)
common_options: _Decorator = together(
    click.argument("path", type=PLACE),
    _kept("--format", "-f", type=_FORMATS, default="text", callback=_keep_format, help="How to print."),
    _kept("--storage-option", multiple=True, metavar="KEY=VALUE", callback=_keep_storage_options, help=_OF_STORES),
)
"""What every command about one PATH takes: folder of Parquet files, one file, a table, or an index; a path or a URL."""


def _written_out(_context: click.Context, _option: click.Parameter, given: Any) -> Any:
    """The conditions as text. `@FILE` is the condition in that file; `@-` is stdin."""
    if isinstance(given, tuple):
        return tuple(map(_condition, given))
    return None if given is None else _condition(given)


def read_input(source: str) -> bytes:
    """The bytes of the file `source`, or of stdin if `source` is `-`.

    Raises
    ------
    OSError
        The file cannot be read, or stdin is closed, or another option reads it.
    """
    if source != "-":
        return Path(source).read_bytes()
    if sys.stdin is None:
        raise OSError(errno.EBADF, "stdin is closed")
    meta = click.get_current_context().meta
    if meta.get(_STDIN):
        raise OSError(errno.EINVAL, "another option reads stdin")
    meta[_STDIN] = True
    return sys.stdin.buffer.read()


def _condition(text: str) -> str:
    if not text.startswith("@"):
        return text
    try:
        return read_input(text[1:]).decode("utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{text} cannot be read as a text file: {error}") from error


_OF_WHERE = "Condition, as in SQL: \"user_id = 'u-1' AND day = 3\"; @FILE reads it."
where_option: _Decorator = click.option("--where", "-w", callback=_written_out, help=_OF_WHERE)
conditions_option: _Decorator = click.option(
    "--where", "-w", multiple=True, callback=_written_out, help=f"{_OF_WHERE} Repeatable."
)
index_option: _Decorator = click.option(
    "--index", metavar="FOLDER", type=PLACE, help="Where the index is, if not beside the data."
)
strict_option: _Decorator = click.option(
    "--strict", is_flag=True, help="Fail if files are new or changed since the last refresh."
)


def output_option(text: str, *, metavar: str = "FILE", required: bool = False) -> _Decorator:
    """A path to write to."""
    kind = click.Path(path_type=Path)
    return click.option("--output", "-o", metavar=metavar, type=kind, required=required, help=text)


overwrite_option: _Decorator = click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
column_option: _Decorator = click.option("--column", "-c", required=True, help="An indexed column.")
work_options: _Decorator = together(
    click.option("--workers", type=AT_LEAST_ONE, help="Threads; by default the number of cores."),
    click.option("--commit-every", type=AT_LEAST_ONE, default=COMMIT_EVERY, help="Rows between two commits."),
    click.option("--dry-run", is_flag=True, help="Write nothing; print what would be done."),
)
"""How a build or refresh works."""


def values_option(verb: str, *, required: bool = True) -> _Decorator:
    """A list of values in a file."""
    text = f"Values to {verb}; - is stdin. Text with one a line, CSV with a header, Arrow or Parquet."
    return click.option("--values", required=required, metavar="FILE[:COLUMN]", type=PLACE, help=text)


def on_index(command: Callable[..., Any]) -> Any:
    """A command about an index, which it gets opened as its first argument."""

    @wraps(command)
    def run(path: str, index: str | None, **given: Any) -> None:
        command(open_it(path, index), **given)

    return index_option(common_options(run))


def storage_options() -> dict[str, str] | None:
    """The store's options of the running command, from `--storage-option`."""
    return click.get_current_context().meta.get(_OPTIONS) or None


def is_json() -> bool:
    """Whether the running command prints JSON."""
    return bool(click.get_current_context().meta[_FORMAT] == "json")


def listed(text: str | None) -> list[str] | None:
    """Names that commas separate, as a line of CSV."""
    if text is None:
        return None
    import csv  # noqa: PLC0415 - only here

    names = [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
    if not names or "" in names:
        raise InvalidArgumentError(f"{text!r} has an empty name", do="write names as in user_id,amount")
    if len(set(names)) < len(names):
        raise InvalidArgumentError(f"{text!r} has a name twice")
    return names


def open_it(path: str, index: str | None) -> Any:
    """Open the index of a command. It must be the index of the data set that the command names."""
    from zonebloom.index.doors import is_of_named, open_index  # noqa: PLC0415 - `--help` must not load Arrow

    place = path if index is None else index
    table = path if index is not None and path.endswith(".metadata.json") else None  # this names a snapshot of Iceberg
    opened = open_index(place, storage_options=storage_options(), dataset=table)
    if index is not None and table is None and is_of_named(opened, path) and opened.dataset_kind == "iceberg":
        return open_index(index, storage_options=storage_options(), dataset=path)  # it may be of an older metadata file
    return opened


def check_output(
    path: Path, opened: Any, *, overwrite: bool, endings: tuple[str, ...] = (".arrow", ".parquet")
) -> None:
    """Refuse, before any work, an output file that exists, or that would be read as data or as part of the index."""
    from zonebloom.index.report import output_path as outputs  # noqa: PLC0415 - `--help` must not load Arrow

    outputs.check_output(path, opened.data.pin(), opened.location, endings=endings, overwrite=overwrite)


@contextlib.contextmanager
def busy(doing: str) -> Iterator[None]:
    """Show activity on a terminal while the block runs, if it takes more than a second."""
    if not sys.stderr.isatty():
        yield
        return
    shown = contextlib.ExitStack()

    def show() -> None:
        from rich import console, progress  # noqa: PLC0415 - only long work loads it

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
