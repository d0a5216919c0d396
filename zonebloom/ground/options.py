"""Options of a build, with each default written once.

`IndexOptions` decide the bytes of the index; `BuildOptions` decide how the work is done, never the bytes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from zonebloom.errors import InvalidArgumentError

Sizing = Literal["power_of_two", "exact", "adaptive", "parquet"]
SIZINGS: Final[tuple[Sizing, ...]] = get_args(Sizing)
Kind = Literal["bloom", "locator", "both"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

ROWS_PER_ZONE: Final = 8192
"""Rows: Lance's default."""
FPP: Final = 0.00057
"""Probability for a full zone of distinct values: Lance's default."""
COMMIT_EVERY: Final = 1_000_000_000
"""Rows: some minutes of work, and a hundred versions for a hundred billion rows."""

_RUNNER: Final = ("read_footers", "admit", "build", "run")
"""Methods of an `indexing.fill.Runner`."""
_MAX_ROWS_PER_ZONE: Final = (1 << 32) - 1


def check_fpp(fpp: float) -> None:
    """Check that `fpp` is in the open interval (0, 1).

    Raises
    ------
    InvalidArgumentError
        `fpp` is outside the interval, NaN, or not a number.
    """
    if isinstance(fpp, bool) or not isinstance(fpp, int | float) or not 0 < fpp < 1:
        raise InvalidArgumentError("fpp must be a number in the open interval (0, 1)", got=f"{fpp!r}")


def check_rows_per_zone(rows_per_zone: int) -> None:
    """Check that `rows_per_zone` is a whole number from 1 to 2^32 - 1.

    Raises
    ------
    InvalidArgumentError
        `rows_per_zone` is another value.
    """
    if not _is_whole(rows_per_zone, _MAX_ROWS_PER_ZONE):
        raise InvalidArgumentError("rows_per_zone must be an integer from 1 to 2^32 - 1", got=f"{rows_per_zone!r}")


def check_sizing(sizing: str) -> None:
    """Check that `sizing` names one of `SIZINGS`.

    Raises
    ------
    InvalidArgumentError
        If it does not.
    """
    if sizing not in SIZINGS:
        raise InvalidArgumentError(f"sizing must be one of {', '.join(SIZINGS)}", got=f"{sizing!r}")


def check_kind(kind: str) -> None:
    """Check that `kind` names one of `KINDS`.

    Raises
    ------
    InvalidArgumentError
        If it does not.
    """
    if kind not in KINDS:
        raise InvalidArgumentError(f"kind must be one of {', '.join(KINDS)}", got=f"{kind!r}")


def has_bloom(kind: str) -> bool:
    """Whether columns of `kind` have bloom filters."""
    return kind != "locator"


def has_locator(kind: str) -> bool:
    """Whether columns of `kind` have locators."""
    return kind != "bloom"


def _is_whole(value: Any, most: float = float("inf")) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """Options for the segments of a column.

    Raises
    ------
    InvalidArgumentError
        A value is outside its range.
    """

    rows_per_zone: int = ROWS_PER_ZONE
    """Rows of a full zone."""
    fpp: float = FPP
    """Requested false positive probability for a full zone of distinct values."""
    sizing: Sizing = "power_of_two"
    """The rule for the number of blocks."""
    kind: Kind = "bloom"
    """The segments to make: bloom filters of zones, locators, or both."""

    def __post_init__(self) -> None:
        check_rows_per_zone(self.rows_per_zone)
        check_fpp(self.fpp)
        check_sizing(self.sizing)
        check_kind(self.kind)


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """Options for the work of a build or refresh.

    Raises
    ------
    InvalidArgumentError
        A value is outside its range.
    """

    workers: int | None = None
    """Threads; by default one for each core, and at least 8 if the data is in an object store."""
    commit_every: int = COMMIT_EVERY
    """Rows between commits."""
    progress: Any = False
    """True for a bar on stderr, or a function that takes `Progress`."""
    runner: Any = None
    """The executor of the work, an `indexing.fill.Runner`; by default threads of this process."""

    def __post_init__(self) -> None:
        if self.workers is not None and not _is_whole(self.workers):
            raise InvalidArgumentError("workers must be at least 1", got=f"{self.workers!r}")
        if not _is_whole(self.commit_every):
            raise InvalidArgumentError(
                "commit_every must be a number of rows, at least 1", got=f"{self.commit_every!r}"
            )
        if not isinstance(self.progress, bool) and not callable(self.progress):
            raise InvalidArgumentError("progress must be True, False or a function", got=f"{self.progress!r:.80}")
        if self.runner is not None and not all(hasattr(self.runner, name) for name in _RUNNER):
            raise InvalidArgumentError("runner must be a Runner, which builds", got=f"{self.runner!r:.80}")


def num_cores() -> int:
    """Cores that this process may use: the default number of workers."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
