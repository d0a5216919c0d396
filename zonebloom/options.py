"""What a user may choose for a build, with each default written once.

`IndexOptions` decide the bytes of the index; `BuildOptions` decide how the work is done, never the bytes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from zonebloom.errors import InvalidArgumentError

Sizing = Literal["power_of_two", "exact", "adaptive", "parquet"]
SIZINGS: Final[tuple[Sizing, ...]] = get_args(Sizing)
LEVELS: Final = ("zone", "fragment", "dataset", "locator")

ROWS_PER_ZONE: Final = 8192
"""Rows: Lance's default."""
FPP: Final = 0.00057
"""Probability: Lance's default, of a full zone of distinct values."""
COMMIT_EVERY: Final = 1_000_000_000
"""Rows: some minutes of work, and a hundred versions for a hundred billion rows."""

_MAX_ROWS_PER_ZONE: Final = (1 << 32) - 1


def check_fpp(fpp: float) -> None:
    """Nothing, if `fpp` lies in the open interval (0, 1).

    Raises
    ------
    InvalidArgumentError
        If it does not, or is NaN, or is no number at all.
    """
    if isinstance(fpp, bool) or not isinstance(fpp, int | float) or not 0 < fpp < 1:
        raise InvalidArgumentError(f"fpp must be a number in the open interval (0, 1), got {fpp!r}")


def check_rows_per_zone(rows_per_zone: int) -> None:
    """Nothing, if `rows_per_zone` is a whole number from 1 to 2^32 - 1.

    Raises
    ------
    InvalidArgumentError
        If it is not.
    """
    if not _is_whole(rows_per_zone, _MAX_ROWS_PER_ZONE):
        raise InvalidArgumentError(f"rows_per_zone must be an integer from 1 to 2^32 - 1, got {rows_per_zone!r}")


def check_sizing(sizing: str) -> None:
    """Nothing, if `sizing` names one of `SIZINGS`.

    Raises
    ------
    InvalidArgumentError
        If it does not.
    """
    if sizing not in SIZINGS:
        raise InvalidArgumentError(f"sizing must be one of {', '.join(SIZINGS)}, got {sizing!r}")


def check_levels(levels: Sequence[str]) -> tuple[str, ...]:
    """The levels in order, from the zones up.

    Raises
    ------
    InvalidArgumentError
        They are not "zone" and any of "fragment", "dataset" and "locator", or "locator" alone; or "fragment" is beside
        "locator".
    """
    names = (levels,) if isinstance(levels, str) else tuple(levels)
    if ("zone" not in names and set(names) != {"locator"}) or set(names) - set(LEVELS):
        message = "levels must be zone and any of fragment, dataset and locator, or locator alone"
        raise InvalidArgumentError(f"{message}, got {', '.join(names)}")
    if {"fragment", "locator"} <= set(names):
        message = "levels must have fragment or locator, as a locator answers before the filter of a fragment is asked"
        raise InvalidArgumentError(f"{message}, got {', '.join(names)}")
    return tuple(name for name in LEVELS if name in names)


def _is_whole(value: Any, most: float = float("inf")) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """How the filters of a column are made.

    Raises
    ------
    InvalidArgumentError
        A value is outside its range.
    """

    rows_per_zone: int = ROWS_PER_ZONE
    """Rows of a full zone."""
    fpp: float = FPP
    """False positive probability asked for, of a full zone of distinct values."""
    sizing: Sizing = "power_of_two"
    """How the number of blocks follows."""
    levels: tuple[str, ...] = ("zone",)
    """The filters to make: of zones, and of fragments and the data set above them; or locators alone."""

    def __post_init__(self) -> None:
        check_rows_per_zone(self.rows_per_zone)
        check_fpp(self.fpp)
        check_sizing(self.sizing)
        object.__setattr__(self, "levels", check_levels(self.levels))
        if not self.has_filters:
            object.__setattr__(self, "sizing", "power_of_two")

    @property
    def has_filters(self) -> bool:
        """Whether each zone has a filter; else locators are the segments of the column."""
        return self.levels[0] == "zone"


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How the work of a build or refresh is done.

    Raises
    ------
    InvalidArgumentError
        A value is outside its range.
    """

    workers: int | None = None
    """Threads; by default as many as there are cores, and at least 8 where the data is in an object store."""
    commit_every: int = COMMIT_EVERY
    """Rows after which what is done is committed."""
    progress: Any = False
    """True for a bar on stderr, or a function that takes `Progress`."""
    runner: Any = None
    """A `build.fill.Runner`: where the work is done; by default in threads of this process."""

    def __post_init__(self) -> None:
        if self.workers is not None and not _is_whole(self.workers):
            raise InvalidArgumentError(f"workers must be at least 1, got {self.workers!r}")
        if not _is_whole(self.commit_every):
            message = f"commit_every must be a number of rows, at least 1, got {self.commit_every!r}"
            raise InvalidArgumentError(message)


def num_cores() -> int:
    """Cores that this process may use: the number of workers where nobody says."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
