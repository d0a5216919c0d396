"""Why a part of the data was not pruned: one code of a closed set, and a sentence for people.

A reason is never an error: rows that no filter can exclude are kept, and the reason says why. Programs switch on
`ReasonCode`, whose members are part of the public interface; people read `Reason.message`.

Spec: specs/pruning.md.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

_WIDTH = 80
_LEAST_PERCENT = 0.001


class ReasonCode(enum.StrEnum):
    """The closed set of causes for which rows are kept without proof that they may match."""

    FILE_NOT_INDEXED = "FILE_NOT_INDEXED"
    """No fragment of the index describes the file."""
    FILE_CHANGED = "FILE_CHANGED"
    """The file's fingerprint differs from the one that was indexed."""
    FILE_UNREADABLE = "FILE_UNREADABLE"
    """The file's fingerprint or footer cannot be read."""
    SEGMENT_CORRUPT = "SEGMENT_CORRUPT"
    """A segment of the index differs from its checksum, or cannot be parsed."""
    FORMAT_TOO_NEW = "FORMAT_TOO_NEW"
    """The index was written in a newer format than this version reads."""
    FILTER_UNUSABLE = "FILTER_UNUSABLE"
    """A bloom filter in the data file is damaged, encrypted or of an unknown kind."""
    COLUMN_NOT_INDEXED = "COLUMN_NOT_INDEXED"
    """The column has no filters."""
    PREDICATE_NOT_SUPPORTED = "PREDICATE_NOT_SUPPORTED"
    """No filter can evaluate the condition: a range, a function, a pattern."""
    NEGATED_PREDICATE = "NEGATED_PREDICATE"
    """A filter proves absence only, so it cannot evaluate NOT, != or NOT IN."""
    CAST_ON_COLUMN = "CAST_ON_COLUMN"
    """The condition compares a function or cast of the column, not the column."""
    TYPE_MISMATCH = "TYPE_MISMATCH"
    """A literal does not convert exactly to the column's type."""
    NAN_LITERAL = "NAN_LITERAL"
    """NaN has many bit patterns, and engines disagree on whether NaN equals NaN."""
    PARTITION_COLUMN_IN_FILE = "PARTITION_COLUMN_IN_FILE"
    """The column has no filters. Folder names and files both hold it, and their values may differ."""
    OR_WITH_UNINDEXED_BRANCH = "OR_WITH_UNINDEXED_BRANCH"
    """No filter can evaluate one side of an OR, so the other side prunes nothing."""
    SATURATED_FILTER = "SATURATED_FILTER"
    """Most bits of the filter are set, so nearly every value may match."""
    VALUES_IN_MANY_ZONES = "VALUES_IN_MANY_ZONES"
    """Most zones hold one of the values, so no index can exclude these zones."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One cause for which rows were kept, and its column or file."""

    code: ReasonCode
    """The cause, for programs."""
    message: str
    """The cause in a sentence, for people."""
    column: str | None = None
    """The column concerned, if one is."""
    path: str | None = None
    """The file concerned, relative to the data set's root, if one is."""

    def __repr__(self) -> str:
        return _line([self])

    def about(self, *, column: str | None = None, path: str | None = None) -> Reason:
        """The same reason for `column` and for `path`, if they are given."""
        return replace(self, column=column or self.column, path=path or self.path)

    def to_dict(self) -> dict[str, str]:
        """``code`` and ``message``, then ``column`` and ``path`` if they are known, for JSON."""
        fields = {"code": self.code.value, "message": self.message, "column": self.column, "path": self.path}
        return {key: value for key, value in fields.items() if value is not None}


def counted(count: int, noun: str) -> str:
    """The count and its noun, in the plural unless there is one.

    Examples
    --------
    >>> counted(1, "file"), counted(0, "file"), counted(4096, "zone")
    ('1 file', '0 files', '4,096 zones')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def percent(part: float, whole: float) -> str:
    """The share in percent, to three significant digits.

    Examples
    --------
    >>> percent(2, 28), percent(28, 28), percent(1, 10**9), percent(0, 28), percent(0, 0)
    ('7.14%', '100%', 'below 0.001%', '0%', '-')
    >>> percent(200_000, 200_002)
    'above 99.9%'
    """
    if not whole:
        return "-"
    share = 100 * part / whole
    if 0 < share < _LEAST_PERCENT:
        return f"below {_LEAST_PERCENT:g}%"
    shown = f"{share:.3g}%"
    return shown if shown != "100%" or part == whole else "above 99.9%"


def gone_zones(count: int) -> str:
    """A sentence about zones whose files are gone."""
    are = "zone is" if count == 1 else "zones are"
    return f"{count:,} {are} of files that are gone; optimize removes them"


def summed_up(reasons: Iterable[Reason]) -> list[str]:
    """A line for each code and column, with the number of files and the first file."""
    groups: dict[tuple[ReasonCode, str | None], list[Reason]] = {}
    for reason in reasons:
        groups.setdefault((reason.code, reason.column), []).append(reason)
    return [_line(group) for group in groups.values()]


def _line(group: list[Reason]) -> str:
    first = group[0]
    column = f" ({first.column})" if first.column else ""
    example = f"{first.path}: " if first.path else ""
    count = f" {len(group):,} times, such as" if len(group) > 1 else ""
    return f"{first.code}{column}:{count} {example}{first.message}"


def wrapped(lines: Iterable[str]) -> Iterator[str]:
    """`lines` in 80 columns; continuation lines are indented."""
    from textwrap import wrap  # noqa: PLC0415 - a plain search prints no text of ours

    for line in lines:
        indent = line[: len(line) - len(line.lstrip())]
        yield from wrap(
            line, _WIDTH, subsequent_indent=f"{indent}  ", break_long_words=False, break_on_hyphens=False
        ) or [""]
