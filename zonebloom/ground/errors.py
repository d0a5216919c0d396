"""Every exception that zonebloom raises.

There are two kinds, which have different base classes:

- **The caller's mistake** is also a builtin ``ValueError``, ``TypeError`` or ``LookupError``: change the call.
- **The data's or the environment's fault** is none of these: the call was right; the data or the environment was not.

`X(must, got=value, do=advice)` reads ``<what must hold>, got <value>; <what to do>`` and names the path, column or zone
concerned. A `Words` is a phrase that differs between Python and the command.
"""

from __future__ import annotations

import contextlib
import difflib
import enum
import re
from collections.abc import Iterable, Iterator
from typing import ClassVar, Self

_NOTHING = object()
_ARROWS_ERRNO = re.compile(r"\[Errno \d+\] (.*)\. Detail: \[errno \d+\] (.*)")
"""Messages in which pyarrow has the number of the system's error twice."""
_PUBLIC = "zonebloom.errors"
"""The module that users import, which tracebacks name."""


class Words(enum.Enum):
    """Phrases of messages in the words of the called interface: Python or the command.

    Examples
    --------
    >>> f"{Words.OVERWRITE}", Words.BUILD_COLUMN.of("user_id")
    ('overwrite=True', "build_index(path, 'user_id')")
    """

    REFRESH = "refresh the index", "run `zonebloom refresh PATH`"
    REFRESH_TYPES = (
        'refresh the index, with mode="full" if all files have another type now',
        "run `zonebloom refresh PATH`, with --mode full if all files have another type now",
    )
    REFRESH_WHOLE = (
        'a refresh with mode="full" mends it if all files have one type by then',
        "`zonebloom refresh PATH --mode full` mends it if all files have one type by then",
    )
    REFRESH_OR_OVERWRITE = (
        "refresh it, or build with overwrite=True",
        "`zonebloom refresh` brings it up to date; or add --overwrite",
    )
    MOVED_OR_DELETE = (
        "set another index=, or delete_index(index); if it moved or grew, open_index(index, dataset=source).refresh()",
        "name another by --index, or `zonebloom delete` that one first",
    )
    BUILD = "make one with build_index", "make one with `zonebloom build`"
    BUILD_COLUMN = "build_index(path, {!r})", "zonebloom build PATH --column {}"
    ADD_FILTERS = (
        'a refresh with mode="full", kind="both" makes them',
        "`zonebloom refresh PATH --mode full --kind both`",
    )
    ADD_PARQUET_BLOOMS = "add_parquet_blooms writes copies that do", "`zonebloom add-blooms` writes copies that do"
    CONDITION = (
        "give a predicate, or both column= and values=",
        "give --where \"user_id = '…'\", or both --column and --values",
    )
    OVERWRITE = "overwrite=True", "--overwrite"
    OUTPUT = "path", "--output"
    RECORD = "record", "--record"
    INDEX = "index=", "--index FOLDER"
    DATASET = "dataset=", "PATH"
    CATALOG = "open the index with the table, by dataset=", "put it into ~/.pyiceberg.yaml or the environment"
    WRITE_ZONES = "zone_table(column) gives its zones", "--output FILE writes its zones to a file"
    READ_ZONES = "adopt is 'parquet' for Parquet files", "--input FILE takes exported zones"
    OLDER_THAN = "older_than", "--older-than"

    def __str__(self) -> str:
        return str(self.value[_Interface.number])

    def of(self, name: str) -> str:
        """The phrase about `name`; for the command line, `name` is quoted."""
        is_word = re.fullmatch(r"[\w.-]+", name)
        return str(self).format(name if is_word or not _Interface.number else "'{}'".format(name.replace("'", "'\\''")))


class _Interface:
    """The interface that messages are made for: 0 is Python, 1 the command."""

    number: ClassVar[int] = 0


@contextlib.contextmanager
def in_words_of_the_command() -> Iterator[None]:
    """Messages made in this block name options and commands; the command runs in it."""
    _Interface.number = 1
    try:
        yield
    finally:
        _Interface.number = 0


class ZoneBloomError(Exception):
    """Base of every exception that zonebloom raises on purpose.

    Parameters
    ----------
    must
        What must hold, or what is wrong.
    got
        The actual value, or a text about it.
    do
        Advice to the caller, as text or `Words`.
    """

    __module__ = _PUBLIC
    got: str | None
    do: str | None

    def __init_subclass__(cls) -> None:
        if cls.__module__ == __name__:
            cls.__module__ = _PUBLIC

    def __init__(self, must: str, *, got: object = _NOTHING, do: str | Words | None = None) -> None:
        super().__init__(must)
        self.got = None if got is _NOTHING else str(got)
        self.do = None if do is None else str(do)

    def __str__(self) -> str:
        said = self.args[0] if self.got is None else f"{self.args[0]}, got {self.got}"
        return said if self.do is None else f"{said}; {self.do}"


# --- the caller's mistake ---------------------------------------------------------------------------------------------


class InvalidArgumentError(ZoneBloomError, ValueError):
    """An argument is not one that the function accepts."""

    @classmethod
    def unless_among(cls, name: str, value: str, choices: Iterable[str]) -> None:
        """Raise the error for the argument `name` if its value is none of `choices`."""
        if value not in choices:
            raise cls(f"{name} must be one of {', '.join(choices)}", got=f"{value!r}")


class PredicateError(ZoneBloomError, ValueError):
    """A predicate cannot be parsed, or cannot be evaluated against these columns."""


class UnsupportedTypeError(ZoneBloomError, TypeError):
    """A column's Arrow type has no hash input defined in specs/hashing.md."""


class ColumnNotFoundError(ZoneBloomError, LookupError):
    """A named column does not exist; the message suggests the nearest names."""

    @classmethod
    def among(cls, name: str, names: Iterable[str], where: str) -> ColumnNotFoundError:
        """The error for `name`, which is none of `names` of `where` (a data set, an index, a table)."""
        columns = sorted(set(names))
        folded = {column.casefold(): column for column in columns}
        asked = str(name).casefold()
        near = [folded[column] for column in difflib.get_close_matches(asked, folded, n=3, cutoff=0.5)]
        hint = f"columns: {', '.join(columns[:20]) or 'none'}"
        if near:
            hint = f"did you mean {' or '.join(near)}?"
            hint += " Names are case-sensitive" if asked in folded else ""
        several = [part.strip() for part in str(name).split(",")]
        if len(several) > 1 and set(several) <= set(columns):
            hint = f"name each column by itself: {' and '.join(several)}"
        return cls(f"no column {name} in {where}", do=hint)


class IndexExistsError(ZoneBloomError, ValueError):
    """An index exists already, and the call would have to replace part of it."""


class IndexNotFoundError(ZoneBloomError, LookupError):
    """There is no index at the given place."""


class MissingDependencyError(ZoneBloomError, ImportError):
    """An optional dependency is not installed; the message names the extra to install."""


# --- the data's or the environment's fault ----------------------------------------------------------------------------


class DataFileError(ZoneBloomError):
    """A data file is missing, truncated, or of another format than its name says."""


class InvalidZoneTableError(ZoneBloomError):
    """An external table breaks an invariant of specs/zones.md."""


class CorruptIndexError(ZoneBloomError):
    """Bytes of the index differ from their checksum, or cannot be parsed."""


class UnsupportedFormatError(ZoneBloomError):
    """The index was written in a newer format than this version reads."""

    @classmethod
    def newer(cls, must: str, got: object) -> Self:
        """The error for a part of an index that only a newer version reads."""
        return cls(must, got=got, do="a newer zonebloom wrote it: upgrade this one")


class StorageError(ZoneBloomError):
    """The store failed: no permission, no space, no connection."""


class ConcurrentCommitError(ZoneBloomError):
    """Another commit won, and the two changes overlap."""


class StaleIndexError(ZoneBloomError):
    """The data set changed since the last refresh, and the call was strict."""


# --- warnings ---------------------------------------------------------------------------------------------------------


class StaleWarning(RuntimeWarning):
    """New or changed files make an answer less certain, and the answer has no reasons to say so."""

    __module__ = _PUBLIC


# --- the errors of others ---------------------------------------------------------------------------------------------


def first_line(error: BaseException) -> str:
    """The message of an error in one line, without a period at its end; its type if the message is empty."""
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return _ARROWS_ERRNO.sub(r"\1: \2", line).rstrip(".")
