"""Arguments and options that commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

__all__ = [
    "column_option",
    "format_option",
    "index_option",
    "open_it",
    "path_argument",
    "strict_option",
    "where_option",
    "workers_option",
]

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Decorator = Callable[[_Command], _Command]

path_argument: _Decorator[Any] = click.argument("path")
"""Folder of Parquet files, one file, or the folder of an index."""
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
    """The index that a command is about."""
    from zonebloom.index import open_index  # noqa: PLC0415 - `--help` must not load Arrow

    return open_index(index or path)
