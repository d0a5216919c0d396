"""A sample of a column: some runs of zones, spread over the data set, read and built as in a build.

Up to 32 **places** are spread evenly over the zones of the data set. A place is a run of whole zones at the start of a
row group, so a Parquet reader decodes little more than the run. All places together have about 128 zones. A smaller
data set is sampled whole; its numbers are counted, not estimated.

Design: docs/design/whatif.md#sample
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zonebloom.bloom import hashing
from zonebloom.formats import DatasetSnapshot
from zonebloom.formats.parquet.file import DataFile, has_column
from zonebloom.formats.schema_evolution import column_values
from zonebloom.ground.arrow import unwrapped
from zonebloom.ground.errors import DataFileError
from zonebloom.indexing.whatif.trial import Trial, trials
from zonebloom.storage.fragments import Fragment
from zonebloom.stores.open import open_store

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_PLACES = 32
MAX_ZONES = 128
_MAX_ROWS = 4 << 20
_KEYS_PER_ZONE = 16


@dataclass(frozen=True, slots=True)
class SampledZone:
    """The values of one zone."""

    place: int
    """Which run it belongs to."""
    num_rows: int
    """Rows, nulls included."""
    hashes: NDArray[np.uint64]
    """The distinct values, as hashes, ascending."""
    counts: NDArray[np.int64]
    """Rows of each."""


@dataclass(frozen=True, slots=True)
class _Place:
    fragment: Fragment
    start: int
    stop: int
    zones_nearby: int


def count_zones(fragments: Sequence[Fragment], rows_per_zone: int) -> int:
    """Zones of the data set."""
    return sum(-(-fragment.num_rows // rows_per_zone) for fragment in fragments)


def take_sample(
    dataset: DatasetSnapshot,
    fragments: Sequence[Fragment],
    column: str,
    column_type: pa.DataType,
    *,
    rows_per_zone: int,
    fpp: float,
) -> Sample:
    """Read some zones of `column`, and build them in each way; unreadable files, or of another type, are passed over.

    The segments are written into a temporary folder, which is deleted.

    Raises
    ------
    DataFileError
        There are rows, and not one of the places can be read.

    Design: docs/design/whatif.md#sample
    """
    failure: DataFileError | None = None
    with TemporaryDirectory(prefix="zonebloom-whatif-") as folder, ExitStack() as opened:
        store = open_store(folder)
        begin = partial(trials, opened, store, column, column_type, rows_per_zone=rows_per_zone, fpp=fpp)
        sample = Sample(dataset, column, column_type, rows_per_zone, begin)
        for place in _places(fragments, rows_per_zone):
            try:
                sample.read(place)
            except DataFileError as error:
                failure = failure or error
        if failure is not None and not sample.zones:
            raise failure
        sample.finish()
        return sample


def _places(fragments: Sequence[Fragment], rows_per_zone: int) -> list[_Place]:
    """Runs of whole zones: all of each file where that is little, else runs from the starts of row groups."""
    filled = [fragment for fragment in fragments if fragment.num_rows]
    num_zones = count_zones(filled, rows_per_zone)
    budget = max(1, min(MAX_ZONES, _MAX_ROWS // rows_per_zone))
    if num_zones <= budget:
        return [_Place(file, 0, file.num_rows, count_zones([file], rows_per_zone)) for file in filled]
    groups = list(_row_groups(filled, rows_per_zone))
    ends = np.cumsum([zones for _, _, zones in groups])
    wanted = (np.arange(MAX_PLACES) + 0.5) * (ends[-1] / MAX_PLACES)
    chosen = np.unique(np.searchsorted(ends, wanted, side="right"))
    run_rows = max(1, budget // len(chosen)) * rows_per_zone
    places: list[_Place] = []
    for number in chosen.tolist():
        fragment, start, zones = groups[number]
        if places and places[-1].fragment is fragment:
            start = max(start, places[-1].stop)
        stop = min(start + run_rows, fragment.num_rows)
        if start < stop:
            nearby = max(zones, -(-(stop - start) // rows_per_zone))
            places.append(_Place(fragment, start, stop, nearby))
    return places


def _row_groups(fragments: Sequence[Fragment], rows_per_zone: int) -> Iterator[tuple[Fragment, int, int]]:
    """Each row group that a zone starts in: its file, the row of that start, and how many start there."""
    for fragment in fragments:
        position = 0
        for rows in fragment.row_group_rows:
            first = -(-position // rows_per_zone)
            position += rows
            zones = -(-position // rows_per_zone) - first
            if zones:
                yield fragment, first * rows_per_zone, zones


class Sample:
    """What was read of a column: places, one after another, whose zones are built in each way.

    - Values of `zones` that occur in several zones have the same hash; other values differ in it, for what it matters.
    """

    def __init__(
        self,
        dataset: DatasetSnapshot,
        column: str,
        column_type: pa.DataType,
        rows_per_zone: int,
        begin: Callable[[], list[Trial]],
    ) -> None:
        self.dataset = dataset
        self.column = column
        self.column_type = column_type
        self.rows_per_zone = rows_per_zone
        self.zones: list[SampledZone] = []
        """Zones that were read."""
        self.zones_nearby: list[int] = []
        """For each place, zones of the data set that lie in its row group, or in the run where that is longer."""
        self.files: set[str] = set()
        """Files that the places lie in."""
        self.read_seconds: float = 0.0
        """Reading and decoding the rows, on one thread."""
        self.range_overlap: float | None = None
        """Share of the other row groups whose bounds enclose a value: 0 in a sorted column, 1 in a random one.

        Without statistics it is of zones. None if unknown.
        """
        self.ranges: str = "zones"
        """What `range_overlap` compares: `row groups` or `zones`."""
        self._begin = begin
        self.trials: list[Trial] = begin()
        """Each way to build them."""
        self._keys: list[tuple[int, pa.Array]] = []
        self._zone_ranges: list[tuple[pa.Array, pa.Array]] = []
        self._group_ranges: list[tuple[Any, Any] | None] = []

    def read(self, place: _Place) -> None:
        """One place."""
        arrays = self._values(place)
        if not self.zones_nearby:
            self._warm_up(arrays[0])
        for trial in self.trials:
            trial.add(place.fragment.fragment_id, place.start, arrays)
        values = pa.chunked_array(arrays)
        number = len(self.zones_nearby)
        for first in range(0, len(values), self.rows_per_zone):
            self._add_zone(number, values.slice(first, self.rows_per_zone))
        self.zones_nearby.append(place.zones_nearby)

    def _warm_up(self, values: pa.Array) -> None:
        """Load the kernels, or compile them, which a build does once and not for each row."""
        for trial in self._begin():
            trial.add(0, 0, [values])
            trial.finish()

    def _values(self, place: _Place) -> list[pa.Array]:
        started = time.perf_counter()
        with self.dataset.open(place.fragment.path, place.fragment.fingerprint) as file:
            arrays = []
            for batch in file.column_batches([self.column], place.start, place.stop):
                values = column_values(batch, self.column, self.column_type)
                if values is None:
                    raise DataFileError(f"column {self.column} of {place.fragment.path} must be {self.column_type}")
                arrays.append(values)
            self.read_seconds += time.perf_counter() - started
            if place.fragment.path not in self.files:
                self.files.add(place.fragment.path)
                if has_column(file.schema, self.column):
                    self._group_ranges += file.column_ranges(self.column) if isinstance(file, DataFile) else [None]
        return arrays

    def _add_zone(self, place: int, values: pa.ChunkedArray) -> None:
        hashes, counts = np.unique(hashing.hash_array(values), return_counts=True)
        zone = len(self.zones)
        self.zones.append(SampledZone(place, len(values), hashes, counts))
        plain = _comparable(values)
        if plain is not None and len(plain):
            least_and_greatest = pc.min_max(plain)
            self._zone_ranges.append(
                (pa.array([least_and_greatest["min"]], plain.type), pa.array([least_and_greatest["max"]], plain.type))
            )
            some = np.linspace(0, len(plain) - 1, min(_KEYS_PER_ZONE, len(plain))).astype(np.int64)
            self._keys.append((zone, plain.take(pa.array(some))))

    def finish(self) -> None:
        """End the trials, after the last place."""
        for trial in self.trials:
            trial.finish()
        self.range_overlap, self.ranges = self._overlap()

    @property
    def num_rows(self) -> int:
        """Rows that were read."""
        return sum(zone.num_rows for zone in self.zones)

    def _overlap(self) -> tuple[float | None, str]:
        keys = [key for _, key in self._keys]
        if not keys:
            return None, "zones"
        groups = [pair for pair in self._group_ranges if pair is not None]
        if len(groups) == len(self._group_ranges) > 1:
            try:
                least = pa.array([low for low, _ in groups], keys[0].type)
                greatest = pa.array([high for _, high in groups], keys[0].type)
                return _share_of_others([least], [greatest], keys), "row groups"
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                pass  # statistics of another type than the index's: the zones tell
        least_of_zones = [low for low, _ in self._zone_ranges]
        return _share_of_others(least_of_zones, [high for _, high in self._zone_ranges], keys), "zones"


def _comparable(values: pa.ChunkedArray) -> pa.Array | None:
    """The values that are not null as one array that Arrow can order; None if it cannot order the type."""
    stored = unwrapped(values.type)
    if pa.types.is_string_view(stored):
        stored = pa.string()
    elif pa.types.is_binary_view(stored) or pa.types.is_fixed_size_binary(stored):
        stored = pa.binary()
    elif pa.types.is_duration(stored):
        stored = pa.int64()
    elif pa.types.is_float16(stored):
        stored = pa.float32()
    try:
        return pa.concat_arrays([chunk.cast(stored) for chunk in values.chunks]).drop_null()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _share_of_others(least: list[pa.Array], greatest: list[pa.Array], keys: list[pa.Array]) -> float | None:
    """For a mean key: of the ranges that are not its own, the share that encloses it."""
    num_ranges = sum(map(len, least))
    if num_ranges < 2:  # noqa: PLR2004 - one range has no others
        return None
    ranks = pc.rank(pa.concat_arrays([*least, *greatest, *keys]), tiebreaker="dense").to_numpy()
    low, high, wanted = np.split(ranks, [num_ranges, 2 * num_ranges])
    begun = np.searchsorted(np.sort(low), wanted, side="right")
    ended = np.searchsorted(np.sort(high), wanted, side="left")
    return float(np.clip((begun - ended - 1.0) / (num_ranges - 1), 0, 1).mean())
