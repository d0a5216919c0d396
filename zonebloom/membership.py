"""`exists`: for each of many values, whether a column may hold it.

Spec: specs/pruning.md#exists
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zonebloom import hashing
from zonebloom.coverage import View
from zonebloom.errors import ColumnNotFoundError, InvalidArgumentError
from zonebloom.literals import fit_values
from zonebloom.predicates import IsIn
from zonebloom.pruning import ProbedColumn
from zonebloom.scanning import scan

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["exists"]


def exists(view: View, column: str, values: Any, *, exact: bool) -> pa.BooleanArray:
    """For each of `values`, whether it may be in `column` of the data set; false is certain.

    Each value is hashed once and leaves the search at the first zone that may hold it.

    Raises
    ------
    ColumnNotFoundError
        The column is not indexed.
    """
    probed = view.column(column)
    if probed is None:
        names = [entry.name for entry in view.snapshot.manifest.columns]
        raise ColumnNotFoundError.among(column, names, f"the index {view.snapshot.store.root}")
    array = _as_array(values)
    assert probed.column_type is not None
    maybe = _may_exist(probed, array, probed.column_type)
    if exact:
        maybe = _verified(view, column, array, maybe)
    return pa.array(maybe, mask=pc.is_null(array).to_numpy(zero_copy_only=False))


def _as_array(values: Any) -> pa.Array:
    try:
        array = values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        message = f"values must be something that Arrow takes as an array, got {type(values).__name__}: {error}"
        raise InvalidArgumentError(message) from error
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type):  # which pyarrow 26 cannot take
        return array.cast(pa.large_string() if pa.types.is_string_view(array.type) else pa.large_binary())
    return array


def _may_exist(probed: ProbedColumn, array: pa.Array, column_type: pa.DataType) -> NDArray[np.bool_]:
    """Slot by slot; True where the filters cannot deny the value, and anything where it is null."""
    if len(probed.uncovered):
        return np.ones(len(array), np.bool_)
    found = np.zeros(len(array), np.bool_)
    valid = np.flatnonzero(pc.is_valid(array).to_numpy(zero_copy_only=False))
    fit = fit_values(array.take(pa.array(valid)), column_type)
    if fit.reason is None and not fit.num_out_of_range:
        found[valid] = _probe_all(probed, fit.values)
        return found
    for slot in valid.tolist():
        single = fit_values(array.slice(slot, 1), column_type)
        found[slot] = single.reason is not None or (
            len(single.values) > 0 and bool(_probe_all(probed, single.values).any())
        )
    return found


def _probe_all(probed: ProbedColumn, values: pa.Array) -> NDArray[np.bool_]:
    found = _probe_hashes(probed, hashing.hash_array(values))
    if pa.types.is_floating(values.type):
        floats = values.to_numpy(zero_copy_only=False)
        zeros = np.flatnonzero(floats == 0)
        other = pa.array(-floats[zeros], values.type)
        found[zeros] |= _probe_hashes(probed, hashing.hash_array(other))
        found |= np.isnan(floats)
    return found


def _probe_hashes(probed: ProbedColumn, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
    return probed.zones.contained(hashes, probed.live)


def _verified(view: View, column: str, array: pa.Array, maybe: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """`maybe` less the values that reading the candidate rows does not find."""
    slots = np.flatnonzero(maybe & pc.is_valid(array).to_numpy(zero_copy_only=False))
    found = np.zeros(len(maybe), np.bool_)
    if not len(slots):
        return found
    candidates = array.take(pa.array(slots))
    predicate = IsIn(column, candidates)
    top = [name for name in view.schema.names if column == name or column.startswith(f"{name}.")]
    rows = scan(view, predicate, view.search(predicate).row_ranges, top, None)
    seen = [_comparable(hashing.column_array(batch, column)).unique() for batch in rows]
    if not seen:
        return found
    fit = fit_values(candidates, view.column_type(column))
    if fit.reason is None and not fit.num_out_of_range:
        wanted = _comparable(fit.values)
    else:
        singles = [fit_values(candidates.slice(number, 1), view.column_type(column)) for number in range(len(slots))]
        slots = slots[[len(single.values) == 1 for single in singles]]
        wanted = _comparable(pa.concat_arrays([single.values for single in singles]))
    found[slots] = pc.is_in(wanted, pa.chunked_array(seen).unique()).to_numpy(zero_copy_only=False)
    return found


def _comparable(values: pa.Array) -> pa.Array:
    """`values` as a type that Arrow's set lookup takes, with one zero."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    while isinstance(values, pa.ExtensionArray):
        values = values.storage
    if pa.types.is_run_end_encoded(values.type):
        values = pc.run_end_decode(values)
    if pa.types.is_string_view(values.type) or pa.types.is_binary_view(values.type):
        values = values.cast(pa.large_binary())
    if pa.types.is_floating(values.type):
        values = values.cast(pa.float64())
        return pc.if_else(pc.equal(values, 0.0), 0.0, values)
    return values
