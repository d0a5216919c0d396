"""Arguments and options that commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from zonebloom.errors import InvalidArgumentError
from zonebloom.storage.stores.locations import absolute, is_url

__all__ = [
    "column_option",
    "format_option",
    "index_option",
    "open_it",
    "path_argument",
    "storage_options",
    "strict_option",
    "where_option",
    "workers_option",
]

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Decorator = Callable[[_Command], _Command]

_OPTIONS = "zonebloom.storage_options"


def _keep_storage_options(context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> None:
    pairs = [one.partition("=") for one in given]
    bad = [name for name, separator, _ in pairs if not separator or not name]
    if bad:
        raise click.BadParameter(f"must be KEY=VALUE, got {bad[0]} without a value")
    context.meta[_OPTIONS] = {name: value for name, _, value in pairs}


_storage_option: _Decorator[Any] = click.option(
    "--storage-option",
    multiple=True,
    metavar="KEY=VALUE",
    expose_value=False,
    callback=_keep_storage_options,
    help="For s3://, gs://, az:// and the like, such as aws_region=eu-west-1; may be given again. "
    "Secrets are better in the environment (AWS_SECRET_ACCESS_KEY).",
)


def path_argument(command: _Command) -> _Command:
    """Folder of Parquet files, one file, or the folder of an index; a path or a URL, with options for its store."""
    decorated: _Command = _storage_option(click.argument("path")(command))
    return decorated


def storage_options() -> dict[str, str] | None:
    """What `--storage-option` gave the command that runs."""
    return click.get_current_context().meta.get(_OPTIONS) or None


where_option: _Decorator[Any] = click.option(
    "--where", "-w", required=True, help="Predicate, as in SQL: \"user_id = 'u-1' AND day = 3\"."
)
index_option: _Decorator[Any] = click.option("--index", help="Folder of the index, if not beside the data.")
format_option: _Decorator[Any] = click.option(
    "--format", "-f", "output_format", type=click.Choice(["text", "json"]), default="text", help="How to print."
)
strict_option: _Decorator[Any] = click.option(
    "--strict", is_flag=True, help="Fail where files are new or changed since the last refresh."
)
column_option: _Decorator[Any] = click.option("--column", "-c", required=True, help="An indexed column.")
workers_option: _Decorator[Any] = click.option("--workers", type=int, help="Threads; by default the number of cores.")


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


def _is_in(path: str, place: str) -> bool:
    """Whether `path` is `place` or lies in it, by name or by what links lead to."""
    resolved = (path, place) if is_url(place) else (os.path.realpath(path), os.path.realpath(place))
    return any(f"{inner}/".startswith(f"{outer.rstrip('/')}/") for inner, outer in ((path, place), resolved))
