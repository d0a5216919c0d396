"""What `whatif` says: a verdict, one `Option` for each way to build the column, and the option that it recommends.

Design: docs/design/whatif.md#whatif
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from zonebloom.bloom.sizing import FPP, ROWS_PER_ZONE, Sizing
from zonebloom.ground.reasons import counted
from zonebloom.ground.rendering import Result, Table, Whole, text

MUCH_SMALLER = 1 / 3
"""Filters of this share of a locator's bytes are worth their false zones."""


@dataclass(frozen=True, slots=True)
class Verdict(Result):
    """Whether an index on the column would be of use."""

    _derived = ("is_useful",)

    code: str
    """USEFUL, or why not: NO_ROWS, UNSUPPORTED_TYPE, CONSTANT, LOW_CARDINALITY, SORTED."""
    message: str
    """The same in words, with numbers."""

    @property
    def is_useful(self) -> bool:
        """Whether the code is USEFUL."""
        return self.code == "USEFUL"


@dataclass(frozen=True, slots=True)
class Option(Result):
    """What one way to build the column would give; zones kept are means, of all zones of the data set."""

    kind: Literal["bloom", "locator"]
    """The `kind` of such a build."""
    sizing: Sizing | None
    """How large a filter is; None for a locator."""
    fpp: float | None
    """Requested, of filters; None for a locator."""
    index_bytes: int
    """Bytes on disk: those of the sampled zones, times the zones of the data set for each of these."""
    real_fpp: float
    """Mean chance that an absent key keeps a zone: of filters by their set bits, of a locator by its pairs."""
    build_seconds: float
    """Reading, hashing, inserting and writing at the speed of the sample, on `workers` threads."""
    absent_kept: float
    """Zones kept for one key that is nowhere."""
    present_kept: float
    """Zones kept for the key of a random row."""
    many_absent_kept: float
    """Zones kept for 1000 keys that are nowhere."""
    many_present_kept: float
    """Zones kept for the keys of 1000 random rows."""


@dataclass(frozen=True)
class Forecast(Result):
    """What `whatif` found; print it, or take `to_dict()`."""

    source: str
    """The data set, as it was named."""
    column: str
    """Name of the column."""
    column_type: pa.DataType
    """Its Arrow type."""
    verdict: Verdict
    """Whether an index is of use."""
    num_files: int
    """Readable files of the data set."""
    num_rows: int
    """Their rows."""
    rows_per_zone: int
    """Rows of a zone."""
    num_zones: int
    """Zones that an index would have."""
    workers: int
    """Threads that `build_seconds` assumes."""
    sampled: dict[str, int] = field(default_factory=dict)
    """How many `files`, `zones` and `rows` were sampled."""
    distinct_per_zone: float = 0.0
    """Mean number of distinct values in a zone."""
    zones_per_key: float = 0.0
    """Mean number of zones that really hold the key of a random row."""
    range_overlap: float | None = None
    """Share of the other row groups whose statistics cannot rule out a value; None if unknown."""
    options: tuple[Option, ...] = ()
    """One for each sizing of filters, and one for a locator; none if the verdict excludes them."""

    @property
    def recommended(self) -> Option | None:
        """The option to build; None if no index is of use.

        A locator has hardly a false zone. Filters are recommended if they take a third of its bytes or less.

        Design: docs/design/whatif.md#recommended
        """
        if not self.verdict.is_useful or not self.options:
            return None
        smallest = min(self.options, key=lambda option: option.index_bytes)
        (locator,) = (option for option in self.options if option.kind == "locator")
        return smallest if smallest.index_bytes <= MUCH_SMALLER * locator.index_bytes else locator

    def command(self, option: Option) -> str:
        """The command line that builds the column so."""
        words = ["zonebloom", "build", self.source, "-c", self.column]
        return shlex.join(words + build_options(option.kind, option.sizing, option.fpp, self.rows_per_zone))

    def to_dict(self) -> dict[str, Any]:
        """The object that `zonebloom whatif --format json` prints."""
        best = self.recommended
        recommended = None if best is None else {"command": self.command(best), **best.to_dict()}
        return super().to_dict() | {"recommended": recommended}

    @property
    def headline(self) -> str:
        """The verdict."""
        return f"{self.verdict.code}: {self.verdict.message}"

    def facts(self) -> Iterator[tuple[str, Any]]:
        """Names and values, for people."""
        yield "column", f"{self.column} {self.column_type}"
        yield "rows", f"{counted(self.num_rows, 'row')} of {counted(self.num_files, 'file')}"
        yield "zones", f"{counted(self.num_zones, 'zone')} of {counted(self.rows_per_zone, 'row')}"
        if self.options:
            num_zones, num_files = counted(self.sampled["zones"], "zone"), counted(self.sampled["files"], "file")
            yield "sampled", f"{num_zones} of {num_files}, built in each way"
            yield "distinct values", f"{self.distinct_per_zone:,.0f} a zone"
            yield "a present key", f"is in {self.zones_per_key:,.1f} zones"
            yield "zones kept", "of one key or 1000 keys, absent or present: the last four columns"

    def tables(self) -> Iterator[Table]:
        """The options, each with the zones that it keeps of one key and of 1000."""
        if self.options:
            header = ("kind", "sizing", "index MB", "build s", "absent", "present", "1000 absent", "1000 present")
            yield Table(header, [_cells(option) for option in self.options])

    def notes(self) -> list[str]:
        """The recommendation."""
        best = self.recommended
        if best is None:
            return [f"recommended: no index on {self.column}"]
        default = next(option for option in self.options if option.sizing == "power_of_two")
        share = f"{best.index_bytes / default.index_bytes:.2g} times the bytes of default filters"
        kept, default_kept = text(best.absent_kept), text(default.absent_kept)
        return [
            Whole(f"recommended: {self.command(best)} ({best.index_bytes / 1e6:.3g} MB)"),
            f"{share}; an absent key keeps {kept} zones for nothing, by default filters {default_kept}",
        ]


def build_options(kind: str, sizing: str | None, fpp: float | None, rows_per_zone: int) -> list[str]:
    """The options of `zonebloom build` that are not the defaults; sizing and fpp are those of filters."""
    words = ["--kind", kind]
    if kind == "bloom":
        words += ["--sizing", str(sizing)] if sizing != "power_of_two" else []
        words += ["--fpp", f"{fpp:g}"] if fpp != FPP else []
    return words + (["--rows-per-zone", str(rows_per_zone)] if rows_per_zone != ROWS_PER_ZONE else [])


def _cells(option: Option) -> tuple[Any, ...]:
    kept = (option.absent_kept, option.present_kept, option.many_absent_kept, option.many_present_kept)
    return (option.kind, option.sizing, option.index_bytes / 1e6, option.build_seconds, *kept)
