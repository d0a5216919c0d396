"""Options of a build, with each default written once; those of filters are in `bloom.sizing`.

`IndexOptions` decide the bytes of the index; `BuildOptions` decide how the work is done, never the bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from zonebloom.bloom.sizing import FPP, ROWS_PER_ZONE, SIZINGS, Sizing, check_fpp, check_rows_per_zone
from zonebloom.ground.errors import InvalidArgumentError

Kind = Literal["bloom", "locator", "both"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
COMMIT_EVERY: Final = 1_000_000_000
"""Rows: some minutes of work, and a hundred versions for a hundred billion rows."""

_RUNNER: Final = ("read_footers", "admit", "build", "run")
"""Methods of an `indexing.fill.Runner`."""


def has_bloom(kind: str) -> bool:
    """Whether columns of `kind` have bloom filters."""
    return kind != "locator"


def has_locator(kind: str) -> bool:
    """Whether columns of `kind` have locators."""
    return kind != "bloom"


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


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
        InvalidArgumentError.unless_among("sizing", self.sizing, SIZINGS)
        InvalidArgumentError.unless_among("kind", self.kind, KINDS)


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
