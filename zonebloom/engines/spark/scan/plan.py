"""The rule that chooses how a query is read.

Spec: specs/spark.md#choice
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from zonebloom.errors import InvalidArgumentError

__all__ = ["Choice", "Kept", "Method", "choose"]

Method: TypeAlias = Literal["driver", "row_ranges", "candidates", "plain"]

DRIVER_ROWS = 1 << 18
DRIVER_FILES = 256
"""Files that the driver opens, at about 1 ms each (`bench/spark_files.py`, two cores); a job starts in 0.1 s."""
DRIVER_BYTES = 512 << 20
CANDIDATE_FILES = 1024
"""Files that Spark is given by name: it looks for each; 512 of 2000 took 0.9 s (`bench/spark_choice.py`, two cores)."""
ROW_RANGES_PAY = 8
"""Read only the row ranges when they hold at most 1/8 of the rows of the candidate files."""
SMALL_FILES = 32
"""Files that Spark lists in one scan. Of more files, if small, row ranges are faster (`bench/spark_files.py`)."""
SMALL_FILE_BYTES = 1 << 20
NARROWED_PAY = 2
"""The same for 1/2, if executors drop rows that do not match before they read other columns."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Files, rows and bytes that the index retains."""

    files: int
    of_files: int
    rows: int
    rows_of_files: int
    """All rows of the files that may match."""
    is_narrowed: bool
    """Whether executors can check a part of the condition."""
    bytes: int
    """Compressed bytes of the row groups, all columns: an upper bound of what the driver reads."""
    of_bytes: int
    is_local: bool
    """Whether the columns of a row determine the condition."""
    obstacle: str | None
    """Why rows that the library reads might differ from Spark's."""
    lack: Callable[[], str | None]
    """Gives why executors cannot read; called only if executors would read."""


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
        `asked` is the driver or row ranges, whose rows might differ from Spark's.

    Spec: specs/spark.md#choice
    """
    if asked == "driver" and kept.obstacle is not None:
        raise InvalidArgumentError(f"the driver must read what Spark would read, got: {kept.obstacle}; use method auto")
    if asked == "row_ranges" and (obstacle := kept.obstacle or kept.lack()) is not None:
        raise InvalidArgumentError(f"executors must read what Spark would read, got: {obstacle}; use method auto")
    if not kept.is_local:
        return Choice("plain", str(kept.obstacle))
    if asked in ("auto", "candidates") and not kept.files:
        return Choice("driver", "no row can match, so nothing is read")
    if asked != "auto":
        return Choice(asked, "it was asked for")
    return _chosen(kept)


def _chosen(kept: Kept) -> Choice:
    is_little = kept.rows <= DRIVER_ROWS and kept.files <= DRIVER_FILES and kept.bytes <= DRIVER_BYTES
    if kept.obstacle is None and is_little:
        return Choice("driver", f"the driver reads {kept.rows:,} rows of {kept.files} files before a job would start")
    limits = "" if kept.obstacle is None else f"; Spark must read them: {kept.obstacle}"
    part = NARROWED_PAY if kept.is_narrowed else ROW_RANGES_PAY
    is_part = 0 < kept.rows * part <= kept.rows_of_files
    is_part |= kept.files > CANDIDATE_FILES and kept.bytes * ROW_RANGES_PAY <= kept.of_bytes
    is_part |= kept.files > SMALL_FILES and kept.bytes <= kept.files * SMALL_FILE_BYTES
    if is_part and kept.obstacle is None and kept.lack() is None:
        shown = f"{kept.rows:,} of the {kept.rows_of_files:,} rows of {kept.files} files"
        return Choice("row_ranges", f"executors read {shown}")
    if kept.files >= kept.of_files:
        return Choice("plain", f"every file may match{limits}")
    if kept.files <= CANDIDATE_FILES:
        return Choice("candidates", f"{kept.files} of {kept.of_files} files may match{limits}")
    return Choice("plain", f"{kept.files} of {kept.of_files} files may match, more than {CANDIDATE_FILES}{limits}")
