"""What `whatif` says: a verdict, and one `Option` for each false positive probability and sizing.

Spec: specs/whatif.md#whatif
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import pyarrow as pa

from zonebloom.build.advise.writer import Growth, Layout
from zonebloom.options import Sizing
from zonebloom.reasons import counted, wrapped


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an index on the column would be of use."""

    code: str
    """USEFUL, or why not: NO_ROWS, UNSUPPORTED_TYPE, CONSTANT, LOW_CARDINALITY, SORTED."""
    message: str
    """The same in words, with numbers."""

    @property
    def is_useful(self) -> bool:
        """Whether the code is USEFUL."""
        return self.code == "USEFUL"


@dataclass(frozen=True, slots=True)
class Option:
    """What one choice of `fpp` and `sizing` would give; zones kept are means, of all zones of the data set."""

    fpp: float
    """Asked for."""
    sizing: Sizing | Literal["locator"]
    """How the number of blocks follows; `locator` where there is a locator instead of filters."""
    blocks_per_zone: float
    """256-bit blocks of a filter; a mean where the sizing is adaptive."""
    filter_bytes: int
    """Bytes of all filters; exact, but for `adaptive` where the sample is not the whole."""
    index_bytes: int
    """Bytes on disk: the filters, and 28 bytes a zone."""
    real_fpp: float
    """Mean false positive probability of a zone's filter with the distinct values that it would hold."""
    build_seconds: float
    """Reading, hashing and inserting at the speed of the sample, on `workers` threads; without writing to disk."""
    absent_kept: float
    """Zones kept for one key that is nowhere."""
    present_kept: float
    """Zones kept for the key of a random row."""
    many_absent_kept: float
    """Zones kept for 1000 keys that are nowhere."""
    many_present_kept: float
    """Zones kept for the keys of 1000 random rows."""


@dataclass(frozen=True, repr=False)
class Forecast:
    """What `whatif` found; print it, or take `to_dict()`."""

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
    sampled: dict[str, float] = field(default_factory=dict)
    """Size of the sample, and its speed in nanoseconds a row on one thread."""
    distinct_per_zone: float = 0.0
    """Mean number of distinct values in a zone."""
    zones_per_key: float = 0.0
    """Mean number of zones that really hold the key of a random row."""
    range_overlap: float | None = None
    """Share of the other row groups whose statistics cannot rule out a value; None where it cannot be told."""
    options: tuple[Option, ...] = ()
    """One for each pair of `fpp` and sizing; none where the verdict rules them out."""
    locator: Option | None = None
    """What a locator would give instead of filters; its `fpp` is the chance of one zone."""
    growth: Growth | None = None
    """What a refresh has to do each day; None where the times of the files do not tell."""
    layout: Layout | None = None
    """How a file is written, and what a match in it has to read."""

    def to_dict(self) -> dict[str, Any]:
        """The object that `zonebloom whatif --format json` prints."""
        found = {name: getattr(self, name) for name in self.__dataclass_fields__}
        found["column_type"] = str(self.column_type)
        found["verdict"] = {**asdict(self.verdict), "is_useful": self.verdict.is_useful}
        found["options"] = [asdict(option) for option in self.options]
        found["locator"] = None if self.locator is None else asdict(self.locator)
        found["growth"] = None if self.growth is None else asdict(self.growth)
        found["layout"] = None if self.layout is None else asdict(self.layout)
        return found

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """For notebooks."""
        from zonebloom.search.html import headed, listed, paragraph, table  # noqa: PLC0415 - only for people

        header = ("fpp", "sizing", "blocks", "index MB", "build s", "absent", "present", "1000 absent", "1000 present")
        parts = [paragraph(self._shape())]
        if self.options:
            parts += [paragraph(self._sample()), paragraph(f"Zones kept of {self.num_zones:,}, for one key or 1000:")]
            parts.append(table(header, [_line(option).split() for option in self.options]))
        said = [] if self.growth is None else [str(self.growth)]
        said += [] if self.layout is None else self.layout.advice()
        return headed(f"{self.verdict.code}: {self.verdict.message}", *parts, listed(said))

    def __str__(self) -> str:
        lines = [self._shape()]
        if self.options:
            options = [*self.options, *([] if self.locator is None else [self.locator])]
            lines += [self._sample(), "", *_header(self.num_zones), *map(_line, options), ""]
        lines += [] if self.growth is None else [str(self.growth)]
        lines += [] if self.layout is None else self.layout.advice()
        return "\n".join(wrapped([*lines, f"{self.verdict.code}: {self.verdict.message}"]))

    def _shape(self) -> str:
        return (
            f"{self.column} {self.column_type}: {counted(self.num_rows, 'row')} of {counted(self.num_files, 'file')}, "
            f"{counted(self.num_zones, 'zone')} of {counted(self.rows_per_zone, 'row')}"
        )

    def _sample(self) -> str:
        some = self.sampled
        return (
            f"sampled {counted(int(some['zones']), 'zone')} of {counted(int(some['files']), 'file')}: distinct values "
            f"a zone {self.distinct_per_zone:,.0f}, zones of a present key {self.zones_per_key:,.1f}; "
            f"read {some['read_ns']:.1f} ns a row, hashed and inserted {some['insert_ns']:.1f}"
        )


def _header(num_zones: int) -> list[str]:
    names = f"{'fpp':<8}{'sizing':<13}{'blocks':>6}{'index MB':>10}{'build s':>9}"
    kept = f"{'absent':>8}{'present':>8}{'absent':>9}{'present':>9}"
    of_keys = f"{'':46}{'of 1 key':>16}{'of 1000 keys':>18}"
    return [f"{'':46}zones kept of {num_zones:,}", of_keys, names + kept]


def _line(option: Option) -> str:
    fpp = "-" if option.sizing == "locator" else f"{option.fpp:g}"
    return (
        f"{fpp:<8}{option.sizing:<13}{option.blocks_per_zone:>6,.0f}{option.index_bytes / 1e6:>10,.2f}"
        f"{option.build_seconds:>9,.2f}{_zones(option.absent_kept):>8}{_zones(option.present_kept):>8}"
        f"{_zones(option.many_absent_kept):>9}{_zones(option.many_present_kept):>9}"
    )


def _zones(mean: float) -> str:
    return f"{mean:,.1f}" if mean >= 1 else f"{mean:.2g}"
