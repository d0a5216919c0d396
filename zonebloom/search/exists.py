"""`exists`: for each of many values, whether a column may hold it.

Spec: specs/pruning.md#exists
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zonebloom.bloom import hashing
from zonebloom.bloom.zones import ZoneFilters, ZonesOfEach
from zonebloom.ground.arrow import is_number, plain_array
from zonebloom.ground.cached import cached_property
from zonebloom.ground.errors import InvalidArgumentError
from zonebloom.predicates import IsIn
from zonebloom.predicates.coerce import FitOfEach, fit_each
from zonebloom.predicates.exact_numbers import equal_number, number_of
from zonebloom.predicates.literals import collected, null_mask, taken
from zonebloom.predicates.operands import to_kernel
from zonebloom.predicates.row_filter import to_expression
from zonebloom.search.probe import Probe, Probes, hashes_of
from zonebloom.search.probed_column import ProbedColumn
from zonebloom.search.query import Query
from zonebloom.search.scan import scan, top_level
from zonebloom.search.view import View
from zonebloom.storage.snapshot import Snapshot

if TYPE_CHECKING:
    from numpy.typing import NDArray


def exists(view: View, column: str, values: Keys | Any, *, exact: bool) -> pa.BooleanArray:
    """For each of `values`, asked or not, whether it may be in `column` of the data set; false is certain.

    Text that spells a value of the column's type equals that value. Each value is hashed once. The search for a value
    ends at the first zone that may hold it.

    Raises
    ------
    ColumnNotFoundError
        The column is not indexed.
    InvalidArgumentError
        The data set also has a struct field with the same path.
    PredicateError
        `values` is not a collection, or a value cannot be compared with the column.

    Spec: specs/pruning.md#exists
    """
    if view.column(column) is None and hashing.is_ambiguous(view.schema, column):
        raise InvalidArgumentError(
            "a column must have a name of its own",
            got=f"{column!r}, a column and the path of a struct's field",
            do="rename one",
        )
    keys, probed = Keys.on(view, column, values)
    maybe = _may_exist(keys, probed)
    view.snapshot.warn_of_damage()
    if exact:
        maybe = _verified(view, keys, maybe)
    return pa.array(maybe, mask=keys.is_null)


@dataclass(frozen=True)
class Keys:
    """A caller's values, these values in the type of an indexed column, and what the column's filters say of them."""

    column: str
    """Name of the column."""
    opener: Callable[[NDArray[np.uint64]], ZoneFilters]
    """Opens its filters, for a probe of some hashes."""
    column_type: pa.DataType
    """Type whose bytes were hashed."""
    given: pa.Array | list[Any]
    """The values of the caller."""
    fit: FitOfEach
    """The values that convert exactly to the type."""

    @classmethod
    def of(
        cls, column: str, opener: Callable[[NDArray[np.uint64]], ZoneFilters], column_type: pa.DataType, values: Any
    ) -> Self:
        """The keys of a column. Raises a `PredicateError` if `values` is not a collection."""
        given = collected(values)
        return cls(column, opener, column_type, given, fit_each(given, column_type))

    @classmethod
    def asked(cls, answer: str, column: str, values: Any, snapshot: Snapshot) -> Keys | Any:
        """`values` as keys of a column that a version indexes, with this `answer` of the index read; else `values`."""
        entry = snapshot.manifest.column(column)
        if entry is None:
            return values
        keys = cls.of(column, partial(snapshot.opened, entry), entry.column_type, values)
        getattr(keys, answer)
        return keys

    @classmethod
    def on(cls, view: View, column: str, keys: Keys | Any) -> tuple[Keys, ProbedColumn]:
        """`keys`, asked or not, and their column on a view.

        Raises
        ------
        ColumnNotFoundError
            The column is not indexed.
        PredicateError
            The keys are not a collection, or one cannot be compared with the column.
        """
        probed = view.column(column)
        if probed is None:
            raise view.snapshot.not_indexed(column)
        assert probed.column_type is not None
        is_asked = isinstance(keys, Keys)
        if not is_asked or keys.zones is not probed.zones or keys.column_type != probed.column_type:
            zones = probed.zones
            keys = cls.of(column, lambda _: zones, probed.column_type, keys.given if is_asked else keys)
        misfits = keys.fit.misfits
        if len(misfits):  # a scan refuses them too; numbers of higher precision can be compared
            to_expression(IsIn(column, taken(keys.given, misfits)), view.plain_schema)
        return keys, probed

    @cached_property
    def zones(self) -> ZoneFilters:
        """The filters of the column."""
        return self.opener(self.hashed.hashes)

    @cached_property
    def is_null(self) -> NDArray[np.bool_]:
        """For each value, whether it is null."""
        return null_mask(self.given)

    @cached_property
    def are_in_zones(self) -> NDArray[np.bool_]:
        """For each of the hashes, whether any zone may contain it."""
        return self.zones.contained(self.hashed.hashes)

    @cached_property
    def zones_of_each(self) -> ZonesOfEach:
        """For each of the hashes the zones that may contain it."""
        return self.zones.zones_of_each(self.hashed.hashes)

    @cached_property
    def leaf(self) -> tuple[IsIn, Probes]:
        """The condition that the column equals any key, and its probe."""
        leaf = IsIn(self.column, self.given)
        return leaf, {id(leaf): Probe.of(self.zones, self.column_type, hashes_of(leaf, self.column_type))}

    @cached_property
    def hashed(self) -> HashedKeys:
        """The hashes of the distinct keys that fit: a repeated value is looked up once."""
        values, is_zero = self.fit.values, np.zeros(0, np.bool_)
        if pa.types.is_floating(values.type):
            floats = values.to_numpy(zero_copy_only=False)
            is_zero = floats == 0
            values = pa.array(np.where(is_zero, floats.dtype.type(0), floats), values.type)
        of_each = np.asarray(hashing.hash_each(values), np.uint64)
        order = of_each.argsort()
        ascending = of_each[order]
        is_first = np.ones(len(ascending), np.bool_)
        is_first[1:] = ascending[1:] != ascending[:-1]
        hashes, owners = ascending[is_first], np.arange(np.count_nonzero(is_first))
        bounds = np.append(is_first.nonzero()[0], len(ascending))
        if is_zero.any():  # a zero of a float type has two
            owner = hashes.searchsorted(of_each[is_zero.argmax()])
            negative = np.asarray(hashing.hash_each(pa.array([-0.0], values.type)), np.uint64)
            place = hashes.searchsorted(negative)
            hashes, owners = np.insert(hashes, place, negative), np.insert(owners, place, owner)
        return HashedKeys(hashes, owners, self.fit.slots[order], bounds)


class HashedKeys(NamedTuple):
    """Distinct keys as hashes."""

    hashes: NDArray[np.uint64]
    """The hashes to probe, in order, each once."""
    owners: NDArray[np.int64]
    """For each hash the number of its distinct key."""
    slots: NDArray[np.int64]
    """Slots of the keys that fit, in order of their distinct keys."""
    bounds: NDArray[np.int64]
    """Bounds in `slots`: distinct key n has `slots[bounds[n]:bounds[n + 1]]`."""


def _may_exist(keys: Keys, probed: ProbedColumn) -> NDArray[np.bool_]:
    """For each slot: True if the filters cannot exclude the value; unspecified if it is null."""
    if len(probed.uncovered):
        return np.ones(len(keys.is_null), np.bool_)
    maybe = np.zeros(len(keys.is_null), np.bool_)
    hashed = keys.hashed
    are_in_zones = keys.are_in_zones if probed.live is None else keys.zones.contained(hashed.hashes, probed.live)
    may_be = np.zeros(len(hashed.bounds) - 1, np.bool_)
    may_be[hashed.owners[are_in_zones]] = True
    maybe[hashed.slots] = np.repeat(may_be, np.diff(hashed.bounds))
    maybe[keys.fit.misfits] = True
    return maybe


def _verified(view: View, keys: Keys, maybe: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """`maybe` without the values that are in none of the candidate rows."""
    column, slots = keys.column, np.flatnonzero(maybe & ~keys.is_null)
    exists = np.zeros(len(maybe), np.bool_)
    if not len(slots):
        return exists
    candidates = taken(keys.given, slots)
    predicate = IsIn(column, candidates)
    top = top_level(view.schema, {column})
    rows = scan(view, predicate, Query(view, predicate).result.row_ranges, top, None)
    seen = [comparable(hashing.column_array(batch, column)).unique() for batch in rows]
    if not seen:
        return exists
    own, values = comparable_keys(candidates, view.column_type(column))
    exists[slots[own]] = pc.is_in(values, pa.chunked_array(seen).unique()).to_numpy(zero_copy_only=False)
    return exists


def comparable_keys(
    given: pa.Array | list[Any], column_type: pa.DataType
) -> tuple[NDArray[np.int64], pa.Array | pa.ChunkedArray]:
    """The keys in the form for comparison with rows, and their slots; a number of higher precision equals no row."""
    fit = fit_each(given, column_type)
    values = comparable(fit.values)
    if not len(fit.misfits) or not is_number(column_type):
        return fit.slots, values
    numbers = zip(fit.misfits.tolist(), map(number_of, taken(given, fit.misfits)), strict=True)
    equal = [(slot, None if number is None else equal_number(number, column_type)) for slot, number in numbers]
    more = [(slot, value) for slot, value in equal if value is not None]
    slots = np.array([slot for slot, _ in more], np.int64)
    further = comparable(pa.array([value for _, value in more], column_type))
    return np.concatenate((fit.slots, slots)), pa.concat_arrays([values, further])


def comparable(values: pa.Array) -> pa.Array:
    """`values` in a type that Arrow's set lookup accepts, with one zero."""
    values = to_kernel(plain_array(values))
    is_float = pa.types.is_floating(values.type)
    return pc.if_else(pc.equal(values, 0), pa.scalar(0, values.type), values) if is_float else values
