"""The forecast's formulas over a sample.

The ladder: a sample of zones → how many zones hold a key (`_zones_of_a_key`) → for each false positive probability and
sizing the bytes, the build time and the zones kept (`_Predictor`) → whether an index is of any use (`_verdict`).

Spec: specs/whatif.md
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from zonebloom.bloom import hashing
from zonebloom.bloom.locator import ENTRY_BITS, KEY_BITS, PAGE_BYTES, zone_bits_for
from zonebloom.bloom.sizing import BLOCK_BYTES, expected_fpp, num_blocks_for
from zonebloom.build.advise.forecast import Forecast, Option, Verdict
from zonebloom.build.advise.sample import Sample, SampledZone, count_zones, take_sample
from zonebloom.build.advise.writer import growth_of, layout_of
from zonebloom.build.fill import Threads, check_any, units_of
from zonebloom.errors import DataFileError, InvalidArgumentError, UnsupportedTypeError
from zonebloom.formats import DatasetSnapshot, open_dataset
from zonebloom.options import FPP, ROWS_PER_ZONE, SIZINGS, Sizing, check_fpp, check_rows_per_zone, num_cores
from zonebloom.storage.fragments import Fragment

if TYPE_CHECKING:
    from numpy.typing import NDArray

FPPS: Final = (FPP, 1e-5, 0.01)
"""The default, one for long lists of keys, and one for the smallest index."""
_MANY: Final = 1000
_BYTES_BESIDE_FILTER: Final = 28.125
"""Of a zone's row: three uint64, one bit, and the offset of the filter."""
_PAGE_BITS: Final = (PAGE_BYTES - 16) * 8
"""Bits of a page of a locator that pairs can take."""
_LOCATOR_BYTES_PER_ZONE: Final = 1
"""Bytes of the tail and the directory, a few for each run of zones and for each page."""
_LOCATOR_SECONDS_PER_ROW: Final = 25e-9
"""Packing, sorting, writing and merging of a row on one core, beyond hashing: 15 and 10 ns (bench/locator.py)."""
_MOST: Final = 0.5
_HARDLY: Final = 0.1


def whatif(
    source: Any,
    column: str,
    *,
    rows_per_zone: int = ROWS_PER_ZONE,
    fpp: Sequence[float] = FPPS,
    workers: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Forecast:
    """What an index on `column` of `source` would cost and save, at each `fpp` and sizing; nothing is written.

    All footers are read, and the column's values in about 128 zones spread over the data set.

    Parameters
    ----------
    source
        As for `build_index`.
    rows_per_zone
        Rows of a zone, at least 1.
    fpp
        The false positive probabilities to compare, each in (0, 1).
    workers
        Threads of the build; by default as many as there are cores.
    storage_options
        As for `build_index`.

    Raises
    ------
    ColumnNotFoundError
        The data set has no such column.
    DataFileError
        No file can be read.
    InvalidArgumentError
        An argument is outside its range.

    Spec: specs/whatif.md#whatif
    """
    check_rows_per_zone(rows_per_zone)
    for one in fpp:
        check_fpp(one)
    if workers is not None and workers < 1:
        raise InvalidArgumentError(f"workers must be at least 1, got {workers}")
    dataset = open_dataset(source, storage_options).pin()
    listing = dataset.list()
    if not listing:
        raise DataFileError(f"a data set must have at least one file, got none in {dataset.location}")
    num_workers = workers or num_cores()
    ids = {path: number for number, path in enumerate(listing)}
    inspected = check_any(Threads(num_workers).read_footers(dataset, listing, ids), dataset)
    column_type = hashing.resolve_column(inspected.schema, column).type
    return _Predictor(
        dataset, inspected.fragments, column, column_type, rows_per_zone=rows_per_zone, workers=num_workers
    ).forecast(fpp)


@dataclass
class _Predictor:
    """The formulas of specs/whatif.md over one sample."""

    dataset: DatasetSnapshot
    fragments: Sequence[Fragment]
    column: str
    column_type: pa.DataType
    rows_per_zone: int
    workers: int

    def forecast(self, fpps: Sequence[float]) -> Forecast:
        try:
            hashing.hash_plan(self.column_type)
        except UnsupportedTypeError as error:
            return self._forecast(Verdict("UNSUPPORTED_TYPE", str(error)))
        if not self.num_rows:
            return self._forecast(Verdict("NO_ROWS", "the data set has no rows"))
        sample = self.sample
        found = self._forecast(_verdict(sample, self.num_zones, self.holding, self.shares))
        sampled = {
            "files": sample.num_files,
            "places": sample.num_places,
            "zones": len(sample.zones),
            "rows": sample.num_rows,
            "read_ns": sample.read_seconds / sample.num_rows * 1e9,
            "insert_ns": sample.insert_seconds["equal"] / sample.num_rows * 1e9,
        }
        return replace(
            found,
            sampled=sampled,
            distinct_per_zone=float(self.ndvs.mean()),
            zones_per_key=self.holding,
            range_overlap=sample.range_overlap,
            options=tuple(self._option(fpp, sizing) for fpp in fpps for sizing in SIZINGS),
            locator=self._locator(),
            growth=growth_of(self.fragments, self._build_seconds("equal") / self.num_rows),
            layout=layout_of(self.dataset, self.fragments, self.column, self.rows_per_zone),
        )

    def _forecast(self, verdict: Verdict) -> Forecast:
        """The verdict, and what the footers say."""
        return Forecast(
            column=self.column,
            column_type=self.column_type,
            verdict=verdict,
            num_files=len(self.fragments),
            num_rows=self.num_rows,
            rows_per_zone=self.rows_per_zone,
            num_zones=self.num_zones,
            workers=self.workers,
        )

    @cached_property
    def num_rows(self) -> int:
        """Rows of the data set."""
        return sum(fragment.num_rows for fragment in self.fragments)

    @cached_property
    def num_zones(self) -> int:
        """Zones that an index would have."""
        return count_zones(self.fragments, self.rows_per_zone)

    @cached_property
    def sample(self) -> Sample:
        return take_sample(
            self.dataset,
            self.fragments,
            self.column,
            self.column_type,
            rows_per_zone=self.rows_per_zone,
            fpp=FPPS[0],
        )

    @cached_property
    def ndvs(self) -> NDArray[np.int64]:
        """Distinct values of each sampled zone."""
        return np.array([len(zone.hashes) for zone in self.sample.zones])

    @cached_property
    def _zones_of_each(self) -> tuple[float, NDArray[np.float64]]:
        return _zones_of_a_key(self.sample, self.num_zones)

    @property
    def holding(self) -> float:
        """Mean number of zones that hold the key of a random row."""
        return self._zones_of_each[0]

    @property
    def shares(self) -> NDArray[np.float64]:
        """For each distinct key of each sampled zone, the share of the sampled zones that hold it."""
        return self._zones_of_each[1]

    def _option(self, fpp: float, sizing: Sizing) -> Option:
        if sizing == "adaptive":
            blocks = np.array([num_blocks_for(int(ndv), fpp, sizing) for ndv in self.ndvs])
        else:
            blocks = np.full(len(self.ndvs), num_blocks_for(self.rows_per_zone, fpp, sizing))
        known = {pair: expected_fpp(*pair) for pair in {*zip(self.ndvs.tolist(), blocks.tolist(), strict=True)}}
        real = np.array([known[pair] for pair in zip(self.ndvs.tolist(), blocks.tolist(), strict=True)])
        filter_bytes = round(float(blocks.mean()) * self.num_zones * BLOCK_BYTES)
        false_rate = float(real.mean())
        num_zones, holding = self.num_zones, self.holding
        misses_true = (1 - holding / num_zones) ** _MANY
        return Option(
            fpp=fpp,
            sizing=sizing,
            blocks_per_zone=float(blocks.mean()),
            filter_bytes=filter_bytes,
            index_bytes=filter_bytes + round(num_zones * _BYTES_BESIDE_FILTER),
            real_fpp=false_rate,
            build_seconds=self._build_seconds("adaptive" if sizing == "adaptive" else "equal"),
            absent_kept=num_zones * false_rate,
            present_kept=holding + (num_zones - holding) * false_rate,
            many_absent_kept=num_zones * float((1 - (1 - real) ** _MANY).mean()),
            many_present_kept=num_zones * float((1 - misses_true * (1 - real) ** _MANY).mean()),
        )

    def _locator(self) -> Option:
        """What a locator gives: each key names the zones that hold it, and hardly another."""
        num_zones, holding = self.num_zones, self.holding
        num_pairs = float(self.ndvs.mean()) * num_zones
        num_bits = (ENTRY_BITS + 1) * num_pairs + (1 << (zone_bits_for(num_zones) + KEY_BITS - ENTRY_BITS))
        pages = (math.ceil(num_bits / _PAGE_BITS) + 1) * PAGE_BYTES
        false_zones = num_pairs / 2**KEY_BITS
        sorting = self.num_rows * _LOCATOR_SECONDS_PER_ROW / self._threads
        return Option(
            fpp=false_zones / num_zones,
            sizing="locator",
            blocks_per_zone=0,
            filter_bytes=pages,
            index_bytes=pages + num_zones * _LOCATOR_BYTES_PER_ZONE,
            real_fpp=false_zones / num_zones,
            build_seconds=self._build_seconds("equal") + sorting,
            absent_kept=false_zones,
            present_kept=holding + false_zones,
            many_absent_kept=_MANY * false_zones,
            many_present_kept=num_zones * (1 - (1 - holding / num_zones) ** _MANY) + _MANY * false_zones,
        )

    @property
    def _threads(self) -> int:
        return min(self.workers, len(units_of(self.fragments, self.rows_per_zone, self.workers)))

    def _build_seconds(self, kind: str) -> float:
        seconds = self.sample.read_seconds + self.sample.insert_seconds[kind]
        return seconds / self.sample.num_rows * self.num_rows / self._threads


def _zones_of_a_key(sample: Sample, num_zones: int) -> tuple[float, NDArray[np.float64]]:
    """Mean number of zones that hold the key of a random row; and the share of sampled zones for each zone's each key.

    A key of a sampled zone is looked for in the other zones of its place, which stand for the row group around it, and
    in the zones of other places, which stand for the rest of the data set.

    Spec: specs/whatif.md#zones_of_a_key
    """
    zones = sample.zones
    hashes = np.concatenate([zone.hashes for zone in zones])
    if not len(hashes):
        return 0.0, np.zeros(0)
    rows = np.concatenate([zone.counts for zone in zones])
    places = np.repeat(np.array([zone.place for zone in zones]), [len(zone.hashes) for zone in zones])
    _, key, seen = np.unique(hashes, return_inverse=True, return_counts=True)
    _, pair, seen_here = np.unique(key * sample.num_places + places, return_inverse=True, return_counts=True)
    total, near = seen[key], seen_here[pair]
    read = np.bincount([zone.place for zone in zones], minlength=sample.num_places)
    nearby = np.array(sample.zones_nearby)
    near_weight = _ratio(nearby - 1, read - 1)[places]
    far_weight = _ratio(num_zones - nearby, len(zones) - read)[places]
    holding = 1 + (near - 1) * near_weight + (total - near) * far_weight
    mean = float(np.average(np.minimum(holding, num_zones), weights=rows))
    return mean, total / len(zones)


def _ratio(of_all: NDArray[np.int64], read: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.where(read > 0, of_all / np.maximum(read, 1), 0.0)


def _verdict(sample: Sample, num_zones: int, holding: float, shares: NDArray[np.float64]) -> Verdict:
    """Spec: specs/whatif.md#verdict."""
    if not len(shares):
        return Verdict("CONSTANT", "every sampled row is null, so no value is there to be found")
    if _num_distinct(sample.zones) == 1:
        return Verdict(
            "CONSTANT", "every sampled row has one value, which is in every zone; statistics rule out the others"
        )
    typical = float(np.median(shares))
    if typical > _MOST and num_zones > 1:
        message = (
            f"a typical value of a zone is in {typical:.0%} of the zones, so a search for it reads nearly everything; "
            "only values that are nowhere would be pruned"
        )
        return Verdict("LOW_CARDINALITY", message)
    overlap = sample.range_overlap
    # Sorted values that are repeated enclose themselves in their neighbours, no more than a search for them must read.
    if overlap is not None and overlap <= max(_HARDLY, min(1.25 * holding / num_zones, _MOST)):
        message = (
            f"the column is sorted or grows with time: least and greatest value of a mean {overlap:.1%} of the other "
            f"{sample.ranges} enclose a value, so Parquet statistics prune already"
        )
        return Verdict("SORTED", message)
    wide = "" if overlap is None else f" where statistics keep {overlap:.0%} of the {sample.ranges}"
    message = f"the key of a random row is in {holding:,.1f} of {num_zones:,} zones ({holding / num_zones:.2%}){wide}"
    if holding > _MOST * num_zones > _MOST:
        message += f"; frequent keys are nearly everywhere, but half of a zone's keys are in at most {typical:.2%}"
    return Verdict("USEFUL", message)


def _num_distinct(zones: Sequence[SampledZone]) -> int:
    return len(np.unique(np.concatenate([zone.hashes for zone in zones])))
