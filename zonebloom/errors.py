"""Every exception that zonebloom raises.

Two kinds, told apart by their base class:

- **The caller's mistake** is also a builtin ``ValueError``, ``TypeError`` or ``LookupError``: change the call.
- **The data's or the environment's fault** never is: the call was right, something it met was not.

Messages read ``<what must hold>, got <value>[; <what to do>]`` and name the path, column or zone concerned.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ZoneBloomError(Exception):
    """Base of every exception that zonebloom raises on purpose."""


# --- the caller's mistake ---------------------------------------------------------------------------------------------


class InvalidArgumentError(ZoneBloomError, ValueError):
    """An argument is outside what the function takes."""


class PredicateError(ZoneBloomError, ValueError):
    """A predicate cannot be parsed, or cannot be evaluated against these columns."""


class UnsupportedTypeError(ZoneBloomError, TypeError):
    """A column's Arrow type has no hash input defined in specs/hashing.md."""


class ColumnNotFoundError(ZoneBloomError, LookupError):
    """A column that was named does not exist; the message offers the nearest names."""

    @classmethod
    def among(cls, name: str, names: Iterable[str], where: str) -> ColumnNotFoundError:
        """The error for `name`, which is none of `names` of `where` (a data set, an index, a table)."""
        known = sorted(set(names))
        folded = {one.casefold(): one for one in known}
        near = [folded[one] for one in difflib.get_close_matches(name.casefold(), folded, n=3, cutoff=0.5)]
        hint = f"columns: {', '.join(known[:20]) or 'none'}"
        if near:
            hint = f"did you mean {' or '.join(map(repr, near))}?"
            hint += " Names are case-sensitive" if name.casefold() in folded else ""
        return cls(f"a column must exist in {where}, got {name!r}; {hint}")


class IndexExistsError(ZoneBloomError, ValueError):
    """An index is already there, and the call would have to replace part of it."""


class IndexNotFoundError(ZoneBloomError, LookupError):
    """No index is found where one was asked for."""


class MissingDependencyError(ZoneBloomError, ImportError):
    """An optional dependency is not installed; the message says which extra brings it."""


# --- the data's or the environment's fault ----------------------------------------------------------------------------


class DataFileError(ZoneBloomError):
    """A data file is missing, truncated, or not what its name says."""


class InvalidZoneTableError(ZoneBloomError):
    """A table that came from outside breaks an invariant of specs/zones.md."""


class CorruptIndexError(ZoneBloomError):
    """Bytes of the index differ from their checksum, or cannot be parsed."""


class UnsupportedFormatError(ZoneBloomError):
    """The index was written in a newer format than this version reads."""


class StorageError(ZoneBloomError):
    """The store refused: no permission, no space, no connection."""


class ConcurrentCommitError(ZoneBloomError):
    """Another commit won, and the two changes overlap."""


class StaleIndexError(ZoneBloomError):
    """The data set moved on since the last refresh, and the caller asked for strictness."""


# --- the errors of others ---------------------------------------------------------------------------------------------


def first_line(error: BaseException) -> str:
    """What an error says, in one line; its type where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
