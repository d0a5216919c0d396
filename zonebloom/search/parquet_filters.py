"""Files that no index describes, pruned by the bloom filters inside these files.

A predicate is evaluated a second time, over the row groups of such files only. An equality leaf omits the row groups
whose own filters exclude its values. Both evaluations bound the rows, so their intersection does too.

Spec: specs/pruning.md#own-filters
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from zonebloom.bloom.hashing import hash_values
from zonebloom.bloom.physical_values import ParquetSbbf, plain_values
from zonebloom.bloom.selection import Bounds, RowSelection
from zonebloom.formats import DatasetSnapshot
from zonebloom.formats.parquet.bloom import ChunkFilter
from zonebloom.formats.parquet.file import open_parquet
from zonebloom.formats.schema_evolution import conformed
from zonebloom.ground.errors import DataFileError
from zonebloom.ground.reasons import Reason, ReasonCode
from zonebloom.ground.threads import concurrently
from zonebloom.predicates import Equals, IsIn, Predicate
from zonebloom.predicates.coerce import fit_values
from zonebloom.predicates.leaves import pruned_by
from zonebloom.search.evaluate import joined
from zonebloom.storage.fragments import Fragment
from zonebloom.stores.fingerprint import wait_until_settled

if TYPE_CHECKING:
    from numpy.typing import NDArray

_OPENERS = 16
"""Threads that read filters; on an object store they mostly wait."""
_KEPT_BYTES = 1 << 26
"""Bytes. Most filters retained for one listing: filters of 20 million values take at least 2 bytes a value."""


class OwnProbe:
    """Values that are looked up in many filters; they are converted and hashed once for each type of a column."""

    def __init__(self, values: Any) -> None:
        self._values = values
        self._hashes: dict[tuple[Any, Any], NDArray[np.uint64] | None] = {}

    def is_excluded(self, own: ParquetSbbf) -> bool | None:
        """Whether no value is in the column chunk, for certain; None if the filter cannot say for these values.

        Spec: specs/parquet-blooms.md#use
        """
        key = (own.column_type, own.plain_type)
        if key not in self._hashes:
            self._hashes[key] = self._hashes_of(own)
        hashes = self._hashes[key]
        return None if hashes is None else not own.check_hashes(hashes).any()

    def _hashes_of(self, own: ParquetSbbf) -> NDArray[np.uint64] | None:
        if own.plain_type is None:
            return None
        fit = fit_values(self._values, own.column_type)
        if fit.reason is not None:
            return None
        try:
            return np.asarray(hash_values(plain_values(fit.values, own.plain_type)), np.uint64)
        except pa.ArrowInvalid:  # a time between two units of the file
            return None


class OwnFilters:
    """The filters inside some files of one listing; up to 64 MiB of filters stay in memory."""

    def __init__(self, dataset: DatasetSnapshot, files: Iterable[Fragment], types: Mapping[str, pa.DataType]) -> None:
        self.files: list[Fragment] = list(files)
        self.types = types
        """Types of the columns, without partition columns."""
        self._dataset = dataset
        self._kept: dict[tuple[str, str], list[ChunkFilter]] = {}
        self._kept_bytes = 0
        self._seen = time.monotonic()
        """A time after the fingerprints of the files were read."""

    def of(self, file: Fragment, column: str) -> list[ChunkFilter]:
        """The filters of a column of one file; none if the file changed since the listing."""
        key = (file.path, column)
        if key in self._kept:
            return self._kept[key]
        wait_until_settled(file.fingerprint, self._seen)
        try:
            with open_parquet(self._dataset, file.path, file.fingerprint) as data:
                leaf = data.leaf_of(column) if file.is_of(data) else None
                filters = [] if leaf is None else data.own_filters(leaf)
        except DataFileError:  # the view reports files that cannot be opened; a Lance table has no such filters
            return []
        num_bytes = sum(chunk.filter.num_bytes for chunk in filters if chunk.filter is not None)
        if self._kept_bytes + num_bytes <= _KEPT_BYTES:
            self._kept[key] = filters
            self._kept_bytes += num_bytes
        return filters


class OwnSearch:
    """The evaluation of one predicate by the filters inside files."""

    def __init__(self, own: OwnFilters, universe: RowSelection) -> None:
        self._own = own
        self._universe = universe
        """All rows of the data set."""
        self._excluded_groups: defaultdict[str, set[int]] = defaultdict(set)
        """Filled by `bounds`: by path, the row groups whose filters excluded some values."""
        self._problems: dict[Reason, None] = {}
        """Filled by `bounds`: why filters were of no use."""

    def narrowed(self, bounds: Bounds, predicate: Predicate) -> Bounds:
        """`bounds` of `predicate` without the rows that the filters exclude."""
        own = self.bounds(predicate)
        true_rows, false_rows = bounds.true_rows & own.true_rows, bounds.false_rows & own.false_rows
        return replace(bounds, true_rows=true_rows, false_rows=false_rows)

    def detailed(self, reasons: Iterable[Reason]) -> dict[Reason, None]:
        """`reasons`, with the effect of the filters for the files concerned, and why filters could not be used."""
        all_reasons: dict[Reason, None] = {}
        for reason in reasons:
            groups = self._excluded_groups.get(reason.path or "")
            if groups and reason.code in (ReasonCode.FILE_NOT_INDEXED, ReasonCode.FILE_CHANGED):
                count = f"{len(groups)} row group{'s' if len(groups) > 1 else ''}"
                text = reason.message.replace("it is read whole", f"filters of its own exclude values from {count}")
                reason = replace(reason, message=text)  # noqa: PLW2901 - the same reason with more detail
            all_reasons[reason] = None
        return all_reasons | self._problems

    def bounds(self, predicate: Predicate) -> Bounds:
        """The rows where `predicate` can be TRUE, and those where it can be FALSE."""
        return predicate.fold(self._bounds, pruned_by)

    def _bounds(self, node: Predicate, parts: Sequence[Bounds]) -> Bounds:
        if parts:
            return joined(node, parts)
        if isinstance(node, (Equals, IsIn)) and isinstance(node.column, str) and node.column in self._own.types:
            values = node.values if isinstance(node, IsIn) else node.value
            excluded = self._excluded(node.column, values)
            if len(excluded):
                return Bounds.at_most(self._universe - excluded, self._universe)
        return Bounds.unknown(self._universe)

    def _excluded(self, column: str, values: Any) -> RowSelection:
        """The row groups whose filters exclude all of `values`."""
        files = self._own.files
        filters = concurrently(lambda file: self._own.of(file, column), files, _OPENERS)
        probe, column_type = OwnProbe(values), self._own.types[column]
        ranges = []
        for file, chunks in zip(files, filters, strict=True):
            ends = list(accumulate(file.row_group_rows, initial=0))
            for chunk in chunks:
                group = chunk.row_group
                if chunk.filter is None:
                    message = f"the filter of row group {group} cannot be used: {chunk.problem}"
                    self._problems[Reason(ReasonCode.FILTER_UNUSABLE, message, column, file.path)] = None
                elif _is_compared(chunk.filter.column_type, column_type) and probe.is_excluded(chunk.filter):
                    self._excluded_groups[file.path].add(group)
                    ranges.append((file.fragment_id, ends[group], ends[group + 1]))
        return RowSelection.from_ranges(ranges)


def _is_compared(stored: pa.DataType | None, column_type: pa.DataType) -> bool:
    """Whether a cast from the file's type to the data set's type is exact; rows are compared in the latter."""
    return stored is not None and conformed(pa.nulls(0, stored), column_type) is not None
