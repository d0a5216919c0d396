"""Probes: literals become hashes of their column's type, and filters name the zones that may hold one.

Probes need the index alone. So `probed` asks a version for all leaves of a predicate while the data is being listed,
and `evaluate` takes the answers.

Spec: specs/pruning.md#probe
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from zonebloom.bloom import hashing
from zonebloom.bloom.zones import ZoneFilters
from zonebloom.ground.reasons import Reason, ReasonCode
from zonebloom.ground.threads import concurrently
from zonebloom.predicates import Equals, IsIn, IsNull, Predicate
from zonebloom.predicates.coerce import fit_each, fit_values, plain_hash
from zonebloom.predicates.exact_numbers import number_of
from zonebloom.predicates.leaves import pruned_by
from zonebloom.predicates.literals import collected, is_collection, null_mask
from zonebloom.storage.column_reader import SEGMENTS_AT_ONCE
from zonebloom.storage.manifest import ColumnEntry
from zonebloom.storage.snapshot import Snapshot

if TYPE_CHECKING:
    from numpy.typing import NDArray


Hashes: TypeAlias = "NDArray[np.uint64] | Reason | None"
"""Hashes of the literals of a leaf; the reason if one does not convert to the column's type; None for IS NULL."""


class Probe(NamedTuple):
    """What the filters of a column say about a leaf."""

    zones: ZoneFilters
    """The filters."""
    column_type: pa.DataType | None
    """Type whose bytes were hashed. None if the table does not know the type: each Lance type is then tried."""
    numbers: NDArray[np.intp] | Reason
    """Numbers of the zones in which the leaf may be TRUE, ascending; or why no filter can evaluate it."""

    @classmethod
    def of(cls, zones: ZoneFilters, column_type: pa.DataType | None, hashes: Hashes) -> Probe:
        """The probe of the leaf that has these `hashes`."""
        if hashes is None:
            return cls(zones, column_type, np.flatnonzero(zones.positions.has_null))
        return cls(zones, column_type, hashes if isinstance(hashes, Reason) else zones.candidates(hashes))


Probes: TypeAlias = Mapping[int, Probe]
"""Probes by the `id` of their leaf."""


def probed(predicate: Predicate, snapshot: Snapshot) -> Probes:
    """The probes of all leaves of `predicate` on columns that a version indexes; columns of a remote index at once."""
    leaves: dict[str, list[Equals | IsIn | IsNull]] = {}
    pending = [predicate]
    while pending:
        node = pending.pop()
        pending += pruned_by(node)
        if isinstance(node, (Equals, IsIn, IsNull)) and isinstance(node.column, str):
            leaves.setdefault(node.column, []).append(node)
    entries = [entry for entry in map(snapshot.manifest.column, leaves) if entry is not None]

    def of_column(entry: ColumnEntry) -> list[tuple[int, Probe]]:
        asked = [(id(leaf), hashes_of(leaf, entry.column_type)) for leaf in leaves[entry.name]]
        arrays = [hashes for _, hashes in asked if isinstance(hashes, np.ndarray)]
        zones = snapshot.opened(entry, np.concatenate(arrays) if len(arrays) > 1 else arrays[0] if arrays else None)
        return [(key, Probe.of(zones, entry.column_type, hashes)) for key, hashes in asked]

    columns = concurrently(of_column, entries, SEGMENTS_AT_ONCE if snapshot.store.is_remote else 0)
    return dict(probe for probes in columns for probe in probes)


def hashes_of(leaf: Equals | IsIn | IsNull, column_type: pa.DataType | None) -> Hashes:
    """The hashes of the literals of a leaf on a column of this type."""
    if isinstance(leaf, IsNull):
        return None
    values, name = leaf.values if isinstance(leaf, IsIn) else leaf.value, str(leaf.column)
    if column_type is None:
        return _hashes_of_each_form(values, name)
    only = plain_hash(values, column_type)
    if only is not None:
        return np.array((only,), np.uint64)
    fit = fit_values(values, column_type)
    if fit.reason is not None:
        return fit.reason.about(column=name)
    return np.asarray(hashing.hash_values(fit.values), np.uint64)


_LANCE_TYPES = (
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.date32(), pa.date64()),
    *(pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
    *(pa.timestamp(unit, "UTC") for unit in ("s", "ms", "us", "ns")),
)


def _hashes_of_each_form(values: Any, column: str) -> NDArray[np.uint64] | Reason:
    """The hashes of `values` in each Lance type that can hold them, because a table without a type is Lance's.

    Spec: specs/pruning.md#untyped-zone-table
    """
    given = collected(values) if is_collection(values) else [values]
    is_null = null_mask(given)
    types = _LANCE_TYPES
    if isinstance(values, (pa.Scalar, pa.Array)) and values.type not in types:
        types = (*types, values.type)
    hashes = [np.array(list(_nearest_floats(given)), np.uint64)]
    is_held = is_null
    for candidate in types:
        if not hashing.is_supported(candidate):
            continue
        fit = fit_each(given, candidate)
        hashes.append(np.asarray(hashing.hash_values(fit.values), np.uint64))
        is_held[fit.slots] = True
    if not is_held.all():
        whole = fit_values(given, pa.float64()).reason
        if whole is not None and whole.code == ReasonCode.NAN_LITERAL:
            return whole.about(column=column)
        message = "the zone table does not say its column's type, and no type of Lance's holds the literal"
        return Reason(ReasonCode.TYPE_MISMATCH, message, column=column)
    return np.unique(np.concatenate(hashes))


def _nearest_floats(values: pa.Array | list[Any]) -> Iterable[int]:
    """The hashes of the floats nearest to `values`: engines may compare float columns with these floats."""
    floats = []
    for value in values:
        number = number_of(value)
        if number is not None:
            with suppress(OverflowError):
                floats.append(float(number))
    with np.errstate(over="ignore"):
        nearest = [np.array(floats, np.float64), np.array(floats, np.float32)]
    return (int(hashed) for column in nearest for hashed in hashing.hash_values(pa.array(column)))
