"""The rule that chooses how a query is read.

Spec: specs/spark.md#choice
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from zonebloom.engines.spark.read.exclusion import MAX_EXCLUDED
from zonebloom.errors import InvalidArgumentError

__all__ = ["Choice", "Kept", "Method", "choose"]

Method: TypeAlias = Literal["driver", "row_ranges", "candidates", "exclusion", "plain"]

DRIVER_ROWS = 1 << 18
DRIVER_FILES = 64
DRIVER_BYTES = 512 << 20
CANDIDATE_FILES = 32
MANY_CANDIDATES = 1024
ROW_RANGES_PAY = 8
"""Of the files that may match, the row ranges are read alone if they have this part of the rows at most."""
NARROWED_PAY = 2
"""As above, where executors drop the rows that do not match before they read other columns."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What the index keeps."""

    files: int
    of_files: int
    rows: int
    rows_of_files: int
    """All rows of the files that may match."""
    is_narrowed: bool
    """Whether executors can tell which of the rows match."""
    bytes: int
    """Compressed bytes of the row groups, all columns: an upper bound of what the driver reads."""
    of_bytes: int
    is_local: bool
    """Whether the columns of a row determine the condition."""
    obstacle: str | None
    """Why the driver's rows might differ from Spark's."""
    obstacle_of_ranges: Callable[[], str | None]
    """Why executors cannot read row ranges, or what they read might differ; asked for once, if that would pay."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A way to read, and why."""

    method: Method
    why: str


def choose(kept: Kept, asked: Literal["auto"] | Method) -> Choice:
    """The way to read what is kept.

    Raises
    ------
    InvalidArgumentError
        The driver or row ranges were asked for, and their rows might differ from Spark's.

    Spec: specs/spark.md#choice
    """
    if asked == "driver" and kept.obstacle is not None:
        raise InvalidArgumentError(f"the driver must know what Spark would read, got: {kept.obstacle}; use auto")
    if asked == "row_ranges" and (obstacle := kept.obstacle_of_ranges()) is not None:
        raise InvalidArgumentError(f"executors must read what Spark would read, got: {obstacle}; use auto")
    if not kept.is_local:
        return Choice("plain", str(kept.obstacle))
    if asked == "candidates" and not kept.files:
        return Choice("driver" if kept.obstacle is None else "exclusion", "no file can match")
    if asked != "auto":
        return Choice(asked, "it was asked for")
    return _chosen(kept)


def _chosen(kept: Kept) -> Choice:
    is_little = kept.rows <= DRIVER_ROWS and kept.files <= DRIVER_FILES and kept.bytes <= DRIVER_BYTES
    if kept.obstacle is None and not kept.files:
        return Choice("driver", "no row can match, so that nothing is read")
    if kept.obstacle is None and is_little:
        return Choice("driver", f"{kept.rows:,} rows of {kept.files} files are read sooner than a job starts")
    limits = "" if kept.obstacle is None else f"; not by the driver: {kept.obstacle}"
    part = NARROWED_PAY if kept.is_narrowed else ROW_RANGES_PAY
    if 0 < kept.rows * part <= kept.rows_of_files and kept.obstacle_of_ranges() is None:
        shown = f"{kept.rows:,} of the {kept.rows_of_files:,} rows of {kept.files} files"
        return Choice("row_ranges", f"executors read {shown}{limits}")
    if kept.files >= kept.of_files:
        return Choice("plain", f"every file may match{limits}")
    if 0 < kept.files <= CANDIDATE_FILES:
        return Choice("candidates", f"{kept.files} of {kept.of_files} files may match{limits}")
    if kept.of_files - kept.files > MAX_EXCLUDED and 0 < kept.files <= MANY_CANDIDATES:
        return Choice("candidates", f"more than {MAX_EXCLUDED:,} files would have to be excluded{limits}")
    return Choice("exclusion", f"{kept.of_files - kept.files} of {kept.of_files} files cannot match{limits}")
