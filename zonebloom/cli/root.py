"""The root of all commands, and what becomes of an error.

click and not typer, which loads pydantic: a search of one key would spend more time on that than on all the rest.
"""

from __future__ import annotations

import gc
import os
import sys
import warnings
from typing import Any, NoReturn

import click

import zonebloom
from zonebloom import errors

__all__ = ["app", "main", "run"]

_CALLERS_MISTAKES = (ValueError, TypeError, LookupError, ImportError)


@click.group(name="zonebloom", no_args_is_help=True, context_settings={"show_default": True})
@click.option("--verbose", is_flag=True, help="Show tracebacks.")
@click.version_option(zonebloom.__version__, message="zonebloom %(version)s", help="Print the version.")
def app(verbose: bool) -> None:
    """Find which rows of a data lake can hold a value."""
    _State.verbose = verbose


class _State:
    verbose = False


def _show_warning(message: Warning | str, *_: Any) -> None:
    click.echo(f"zonebloom: warning: {message}", err=True)


def main() -> NoReturn:
    """Run the command as all that this process does."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy would start threads that spin, and we multiply no matrix
    status = run()
    gc.freeze()  # nothing is freed one by one as Python ends; what is registered to run at the end still runs
    raise SystemExit(status)


def run() -> int:
    """Run the command, and give its exit status; every error is one line on stderr."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", RuntimeWarning)
        warnings.showwarning = _show_warning  # type: ignore[assignment]
        try:
            status = int(app(standalone_mode=False) or 0)
            sys.stdout.flush()
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), err=True)
            status = 2
        except click.UsageError as error:
            command = error.ctx.command_path if error.ctx else "zonebloom"
            _fail(error, f"{error.format_message().rstrip('.')}; see {command} --help")
            status = 2
        except click.Abort:  # a key stopped it, or nobody could answer a question
            click.echo("zonebloom: stopped", err=True)
            status = 1
        except errors.ZoneBloomError as error:
            _fail(error, str(error))
            status = 2 if isinstance(error, _CALLERS_MISTAKES) else 1
        except BrokenPipeError:  # `zonebloom scan … | head`; what is left must not fail again as Python ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            status = 1
    return status


def _fail(error: Exception, message: str) -> None:
    if _State.verbose:
        raise error
    click.echo(f"zonebloom: {' '.join(message.split())}", err=True)
