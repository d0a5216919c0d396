"""The forecast: what was built of a sample, scaled to the data set.

The ladder: a sample of zones, built in each way → how many zones hold a key (`_zones_of_a_key`) → the bytes, the build
time and the zones kept of the whole (`_scaled`) → whether an index is of any use (`_verdict`).

Design: docs/design/whatif.md
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from zonebloom.bloom import hashing
from zonebloom.bloom.sizing import FPP, ROWS_PER_ZONE, check_fpp, check_rows_per_zone
from zonebloom.formats import open_dataset
from zonebloom.ground.errors import ColumnNotFoundError, DataFileError, InvalidArgumentError, UnsupportedTypeError
from zonebloom.ground.reasons import percent
from zonebloom.ground.threads import num_cores
from zonebloom.indexing.create import partition_column_error
from zonebloom.indexing.fill import Threads, check_any, units_of
from zonebloom.indexing.whatif.forecast import Forecast, Option, Verdict
from zonebloom.indexing.whatif.sample import Sample, count_zones, take_sample
from zonebloom.indexing.whatif.trial import Trial
from zonebloom.storage.options import BuildOptions

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MANY: Final = 1000
_MOST_CERTAIN: Final = 1 - 1e-15
"""Below 1, so that its logarithm is finite: a filter with all bits set passes every key."""
_MOST: Final = 0.5
_HARDLY: Final = 0.1


def whatif(
    source: Any,
    column: str,
    *,
    rows_per_zone: int = ROWS_PER_ZONE,
    fpp: float = FPP,
    workers: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Forecast:
    """What an index on `column` of `source` would cost and save; nothing is written beside the data.

    All footers are read, and the column's values in about 128 zones spread over the data set. These zones are built in
    each way, in a temporary folder: their bytes and false positive probabilities are measured, and scaled to all zones.

    Parameters
    ----------
    source
        As for `build_index`.
    column
        One column; call it again for another one.
    rows_per_zone
        Rows of a zone, at least 1.
    fpp
        The false positive probability of filters, from 1e-12 to below 1.
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

    Design: docs/design/whatif.md#whatif
    """
    if not isinstance(column, str):
        raise InvalidArgumentError(
            "column must be the name of one column", got=f"{column!r}", do="call whatif for each column"
        )
    check_rows_per_zone(rows_per_zone)
    check_fpp(fpp)
    BuildOptions(workers)
    dataset = open_dataset(source, storage_options).pin()
    listing = dataset.list()
    if not listing:
        raise DataFileError("a data set must have at least one file", got=f"none in {dataset.location}")
    num_workers = workers or num_cores()
    ids = {path: number for number, path in enumerate(listing)}
    inspected = check_any(Threads(num_workers).read_footers(dataset, listing, ids), dataset)
    fragments = inspected.fragments
    try:
        column_type = hashing.resolve_column(inspected.schema, column).type
    except ColumnNotFoundError as error:
        raise partition_column_error(dataset, [column]) or error from None
    forecast = Forecast(
        source=str(source) if isinstance(source, str | os.PathLike) else dataset.location,
        column=column,
        column_type=column_type,
        verdict=Verdict("NO_ROWS", "the data set has no rows"),
        num_files=len(fragments),
        num_rows=sum(fragment.num_rows for fragment in fragments),
        rows_per_zone=rows_per_zone,
        num_zones=count_zones(fragments, rows_per_zone),
        workers=max(1, min(num_workers, len(units_of(fragments, rows_per_zone, num_workers)))),
    )
    try:
        hashing.hash_plan(column_type)
    except UnsupportedTypeError as error:
        return replace(forecast, verdict=Verdict("UNSUPPORTED_TYPE", str(error)))
    if not forecast.num_rows:
        return forecast
    sample = take_sample(dataset, fragments, column, column_type, rows_per_zone=rows_per_zone, fpp=fpp)
    return _scaled(forecast, sample, fpp)


def _scaled(forecast: Forecast, sample: Sample, fpp: float) -> Forecast:
    """`forecast` with what came of a sample, scaled to the data set."""
    holding, shares = _zones_of_a_key(sample, forecast.num_zones)
    num_sampled = {"files": len(sample.files), "zones": len(sample.zones), "rows": sample.num_rows}
    forecast = replace(
        forecast,
        verdict=_verdict(sample, forecast.num_zones, holding, shares),
        sampled=num_sampled,
        distinct_per_zone=float(np.mean([len(zone.hashes) for zone in sample.zones])),
        zones_per_key=holding,
        range_overlap=sample.range_overlap,
    )
    return replace(forecast, options=tuple(_option(forecast, sample, trial, fpp) for trial in sample.trials))


def _option(forecast: Forecast, sample: Sample, trial: Trial, fpp: float) -> Option:
    num_zones, holding, false = forecast.num_zones, forecast.zones_per_key, trial.fpps
    passes = -np.expm1(_MANY * np.log1p(-np.minimum(false, _MOST_CERTAIN)))
    misses_true = (1 - holding / num_zones) ** _MANY
    seconds_per_row = (sample.read_seconds + trial.seconds) / sample.num_rows
    return Option(
        kind=trial.kind,
        sizing=trial.sizing,
        fpp=fpp if trial.kind == "bloom" else None,
        index_bytes=round(trial.bytes_per_zone * num_zones),
        real_fpp=float(false.mean()),
        build_seconds=seconds_per_row * forecast.num_rows / forecast.workers,
        absent_kept=num_zones * float(false.mean()),
        present_kept=holding + (num_zones - holding) * float(false.mean()),
        many_absent_kept=num_zones * float(passes.mean()),
        many_present_kept=num_zones * float((1 - misses_true * (1 - passes)).mean()),
    )


def _zones_of_a_key(sample: Sample, num_zones: int) -> tuple[float, NDArray[np.float64]]:
    """Mean number of zones that hold the key of a random row; and the share of sampled zones for each zone's each key.

    A key of a sampled zone is looked for in the other zones of its place, which represent the row group around it, and
    in the zones of other places, which represent the rest of the data set.

    Design: docs/design/whatif.md#zones_of_a_key
    """
    zones = sample.zones
    hashes = np.concatenate([zone.hashes for zone in zones])
    if not len(hashes):
        return 0.0, np.zeros(0)
    rows = np.concatenate([zone.counts for zone in zones])
    places = np.repeat(np.array([zone.place for zone in zones]), [len(zone.hashes) for zone in zones])
    _, key, seen = np.unique(hashes, return_inverse=True, return_counts=True)
    _, pair, seen_here = np.unique(key * len(sample.zones_nearby) + places, return_inverse=True, return_counts=True)
    total, near = seen[key], seen_here[pair]
    read = np.bincount([zone.place for zone in zones], minlength=len(sample.zones_nearby))
    nearby = np.array(sample.zones_nearby)
    near_weight = _ratio(nearby - 1, read - 1)[places]
    far_weight = _ratio(num_zones - nearby, len(zones) - read)[places]
    holding = 1 + (near - 1) * near_weight + (total - near) * far_weight
    mean = float(np.average(np.minimum(holding, num_zones), weights=rows))
    return mean, total / len(zones)


def _ratio(of_all: NDArray[np.int64], read: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.where(read > 0, of_all / np.maximum(read, 1), 0.0)


def _verdict(sample: Sample, num_zones: int, holding: float, shares: NDArray[np.float64]) -> Verdict:
    """Design: docs/design/whatif.md#verdict."""
    if not len(shares):
        return Verdict("CONSTANT", "every sampled row is null, so no value is there to be found")
    if len(np.unique(np.concatenate([zone.hashes for zone in sample.zones]))) == 1:
        return Verdict(
            "CONSTANT", "every sampled row has one value, which is in every zone; statistics rule out the others"
        )
    rare = percent(typical := float(np.median(shares)), 1)
    if typical > _MOST and num_zones > 1:
        message = (
            f"a typical value of a zone is in {rare} of the zones, so a search for it reads nearly everything; "
            "only values that are nowhere would be pruned"
        )
        return Verdict("LOW_CARDINALITY", message)
    overlap = sample.range_overlap
    enclosed = None if overlap is None else percent(overlap, 1)
    # Sorted values that are repeated enclose themselves in their neighbours, no more than a search for them must read.
    if overlap is not None and overlap <= max(_HARDLY, min(1.25 * holding / num_zones, _MOST)):
        message = (
            f"the column is sorted or grows with time: least and greatest value of a mean {enclosed} of the other "
            f"{sample.ranges} enclose a value, so Parquet statistics prune already"
        )
        return Verdict("SORTED", message)
    wide = "" if enclosed is None else f" where statistics keep {enclosed} of the {sample.ranges}"
    share = percent(holding, num_zones)
    message = f"the key of a random row is in {holding:,.1f} of {num_zones:,} zones ({share}){wide}"
    if holding > _MOST * num_zones > _MOST:
        message += f"; frequent keys are nearly everywhere, but half of a zone's keys are in at most {rare}"
    return Verdict("USEFUL", message)
