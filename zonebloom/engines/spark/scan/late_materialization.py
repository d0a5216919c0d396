"""On an executor: candidate rows are narrowed to rows that match before any other column is read.

A filter retains whole zones, but a rare key needs one row. Equalities and lists that Arrow evaluates as Spark does are
checked on their own columns first. Other parts of the condition drop no row here: Spark filters all rows later.

Spec: specs/spark.md#row-range-reads
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zonebloom.arrow import to_numpy, without_views
from zonebloom.predicates import And, Predicate
from zonebloom.predicates.matching import Matcher, plain_matcher
from zonebloom.search.scan import rows_at

if TYPE_CHECKING:
    from zonebloom.engines.spark.scan.splits import Split
    from zonebloom.formats import DataFile
    from zonebloom.search.view import View

__all__ = ["Narrowing", "narrowing_of"]


def narrowing_of(view: View, predicate: Predicate) -> Narrowing | None:
    """The parts of `predicate`, an AND, that plain kernels evaluate on stored columns; None if there are none.

    `predicate`, as Arrow evaluates it, must be TRUE in every wanted row.
    """
    elsewhere = {field.name for field in view.partition_fields}
    stored = [field for field in view.schema if field.name not in elsewhere]
    schema = pa.schema([field.with_type(without_views(field.type)) for field in stored])
    parts = predicate.children if type(predicate) is And else (predicate,)
    plain = [part for part in parts if plain_matcher(part, schema) is not None]
    names = sorted({name for part in plain for name in part.columns()})
    return Narrowing(And(plain), pa.schema([schema.field(name) for name in names])) if plain else None


@dataclass(frozen=True)
class Narrowing:
    """A predicate that is TRUE in all wanted rows, and its columns in the types of the data set."""

    predicate: And
    schema: pa.Schema

    @cached_property
    def _matches(self) -> list[Matcher]:
        found = (plain_matcher(part, self.schema) for part in self.predicate.children)
        return [match for match in found if match is not None]

    def narrowed(self, data: DataFile, split: Split) -> Split:
        """`split` without rows that do not match; unchanged if the file has no such column, or another type."""
        names = self.schema.names
        if any(name not in data.schema.names or name in data.int96_columns or name in split.values for name in names):
            return split
        table = data.read_rows(split.group, split.starts, split.stops, names).select(names)
        if [field.type for field in table.schema] != [field.type for field in self.schema]:
            return split
        found = reduce(pc.and_kleene, [match(table) for match in self._matches])
        places = to_numpy(pc.indices_nonzero(found), np.uint64).astype(np.int64)
        starts, stops = rows_at(split.starts, split.stops, places)
        return replace(split, starts=starts, stops=stops)
