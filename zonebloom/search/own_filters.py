"""Files that no index describes, pruned by the bloom filters that they have of their own.

A predicate is evaluated a second time, over the row groups of such files alone: a leaf that is an equality leaves out
the row groups whose own filters exclude its values. Both evaluations bound the rows, so their intersection does.

Spec: specs/pruning.md#own-filters
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial, reduce
from itertools import accumulate
from operator import and_, or_
from typing import Any

import pyarrow as pa

from zonebloom.errors import DataFileError
from zonebloom.formats import Dataset
from zonebloom.formats.parquet.bloom import Probe
from zonebloom.formats.schema_evolution import conformed
from zonebloom.predicates import And, Equals, IsIn, Not, Or, Predicate
from zonebloom.reasons import Reason, ReasonCode
from zonebloom.search.freshness import File
from zonebloom.search.selection import Bounds, RowSelection

__all__ = ["OwnFilters"]

_OPENERS = 16
"""Threads that read filters; on an object store each one waits."""


class OwnFilters:
    """What some files say by filters of their own."""

    def __init__(
        self, dataset: Dataset, files: Iterable[File], universe: RowSelection, types: Mapping[str, pa.DataType]
    ) -> None:
        self._dataset = dataset
        self._files = list(files)
        self._universe = universe
        """All rows of the data set."""
        self._types = types
        """Types of the columns, without those that folders hold."""
        self._excluded_groups: defaultdict[str, set[int]] = defaultdict(set)
        """Filled by `bounds`: by path, row groups from which filters excluded some values."""
        self._problems: dict[Reason, None] = {}
        """Filled by `bounds`: why filters were of no use."""

    def narrowed(self, bounds: Bounds, predicate: Predicate) -> Bounds:
        """`bounds` of `predicate`, less what the filters exclude."""
        own = self.bounds(predicate)
        true_rows, false_rows = bounds.true_rows & own.true_rows, bounds.false_rows & own.false_rows
        return Bounds(true_rows, false_rows, exact=bounds.exact)

    def told(self, reasons: Iterable[Reason]) -> dict[Reason, None]:
        """`reasons`, with what the filters did for the files that they are about, and why some could not."""
        found: dict[Reason, None] = {}
        for reason in reasons:
            groups = self._excluded_groups.get(reason.path or "")
            if groups and reason.code in (ReasonCode.FILE_NOT_INDEXED, ReasonCode.FILE_CHANGED):
                count = f"{len(groups)} row group{'s' if len(groups) > 1 else ''}"
                text = reason.message.replace("it is read whole", f"filters of its own exclude values from {count}")
                reason = replace(reason, message=text)  # noqa: PLW2901 - the same reason, told better
            found[reason] = None
        return found | self._problems

    def bounds(self, predicate: Predicate) -> Bounds:
        """The rows where `predicate` can be TRUE and those where it can be FALSE."""
        if isinstance(predicate, And):
            return reduce(and_, map(self.bounds, predicate.children))
        if isinstance(predicate, Or):
            return reduce(or_, map(self.bounds, predicate.children))
        if isinstance(predicate, Not):
            return ~self.bounds(predicate.child)
        if isinstance(predicate, (Equals, IsIn)) and predicate.column in self._types:
            values = predicate.values if isinstance(predicate, IsIn) else predicate.value
            excluded = self._excluded(predicate.column, values)
            if len(excluded):
                return Bounds.at_most(self._universe - excluded, self._universe)
        return Bounds.unknown(self._universe)

    def _excluded(self, column: str, values: Any) -> RowSelection:
        """The row groups none of whose rows has one of `values`."""
        ask = partial(self._excluded_of, column, Probe(values))
        if len(self._files) == 1:
            parts = [ask(self._files[0])]
        else:
            with ThreadPoolExecutor(_OPENERS, thread_name_prefix="zonebloom-filters") as pool:
                parts = list(pool.map(ask, self._files))
        ranges = []
        for file, (groups, problems) in zip(self._files, parts, strict=True):
            self._problems |= dict.fromkeys(problems)
            if groups:
                self._excluded_groups[file.path].update(groups)
                ends = list(accumulate(file.row_group_rows, initial=0))
                ranges += [(file.fragment_id, ends[group], ends[group + 1]) for group in groups]
        return RowSelection.from_ranges(ranges)

    def _excluded_of(self, column: str, probe: Probe, file: File) -> tuple[list[int], list[Reason]]:
        """The row groups of one file that have none of the values; and why filters could not tell."""
        groups, problems = [], []
        try:
            with self._dataset.open(file.path) as data:
                if data.fingerprint != file.fingerprint:
                    return [], []
                for one in data.own_filters(column):
                    if one.filter is None:
                        message = f"the filter of row group {one.row_group} cannot be used: {one.problem}"
                        problems.append(Reason(ReasonCode.FILTER_UNUSABLE, message, column, file.path))
                    elif _is_compared(one.filter.column_type, self._types[column]) and probe.is_excluded(one.filter):
                        groups.append(one.row_group)
        except DataFileError:  # the view says so of a file that cannot be opened
            return [], []
        return groups, problems


def _is_compared(stored: pa.DataType | None, column_type: pa.DataType) -> bool:
    """Whether values of the file's type keep their value in the type of the data set, in which rows are compared."""
    return stored is not None and conformed(pa.nulls(0, stored), column_type) is not None
