"""`exists`: for each of many values, whether a column may hold it.

Spec: specs/pruning.md#exists
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zonebloom.arrow import plain_array
from zonebloom.bloom import hashing
from zonebloom.errors import InvalidArgumentError
from zonebloom.predicates import IsIn
from zonebloom.predicates.coerce import fit_values
from zonebloom.predicates.numbers import equal_number, is_number, numbers_of
from zonebloom.search.evaluate import ProbedColumn
from zonebloom.search.scan import scan
from zonebloom.search.view import View

if TYPE_CHECKING:
    from numpy.typing import NDArray


def exists(view: View, column: str, values: Any, *, exact: bool) -> pa.BooleanArray:
    """For each of `values`, whether it may be in `column` of the data set; false is certain.

    Text that spells a value of the column's type is that value. Each value is hashed once and leaves the search at the
    first zone that may hold it.

    Raises
    ------
    ColumnNotFoundError
        The column is not indexed.
    InvalidArgumentError
        `values` is no collection, or one of several types.
    PredicateError
        A value is of a kind that cannot be compared with the column.

    Spec: specs/pruning.md#exists
    """
    probed = view.column(column)
    if probed is None:
        if hashing.is_ambiguous(view.schema, column):
            message = f"a column must have a name of its own, got {column!r}, a column and the path of a struct's field"
            raise InvalidArgumentError(f"{message}; rename one")
        raise view.snapshot.not_indexed(column)
    array = values_array(values)
    assert probed.column_type is not None
    fit = fitted(array, probed.column_type)
    check_comparable(view, column, array, fit)
    maybe = _may_exist(probed, fit, len(array))
    view.snapshot.warn_of_damage()
    if exact:
        maybe = _verified(view, column, array, maybe)
    return pa.array(maybe, mask=pc.is_null(array).to_numpy(zero_copy_only=False))


def values_array(values: Any) -> pa.Array:
    """A caller's values as one array, of a type that an indexed column can have."""
    if isinstance(values, (str, bytes, bytearray, memoryview, Mapping)) or not (
        hasattr(values, "__iter__") or hasattr(values, "__arrow_c_array__") or hasattr(values, "__arrow_c_stream__")
    ):
        raise InvalidArgumentError(f"values must be an array or a list of values, got {values!r:.80}")
    try:
        array = values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(_unmixed(values))
    except InvalidArgumentError:
        raise
    except OverflowError:
        array = _large_integers(list(values))
    except (pa.ArrowException, TypeError, ValueError) as error:
        message = f"values must be of one type, and one that Arrow has, got {type(values).__name__}: {error}"
        raise InvalidArgumentError(message) from error
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if not (pa.types.is_null(array.type) or hashing.is_supported(array.type)):
        raise InvalidArgumentError(f"values must be such as a column can be indexed by, got {array.type}")
    try:
        array = plain_array(array, keeps_uuid=True)  # pyarrow 26 can take neither views nor runs
    except pa.ArrowNotImplementedError as error:
        raise InvalidArgumentError(f"values must be such as pyarrow can decode, got {array.type}") from error
    if pa.types.is_float16(array.type):  # nor sort this, nor the small decimals
        return array.cast(pa.float32())
    if pa.types.is_decimal32(array.type) or pa.types.is_decimal64(array.type):
        return array.cast(pa.decimal128(array.type.precision, array.type.scale))
    return array


def _unmixed(values: Any) -> Any:
    """`values`, unless Arrow would make days of its times, or local times of its instants."""
    if not isinstance(values, (list, tuple, set, frozenset)):
        return values
    kinds = {(type(value), value.tzinfo is None) for value in values if isinstance(value, dt.datetime)}
    if len(kinds) > 1 or (kinds and any(type(value) is dt.date for value in values)):
        raise InvalidArgumentError("values must be of one type, got days and times, or times with a zone and without")
    return list(values)


def _large_integers(values: list[Any]) -> pa.Array:
    """Integers, some beyond 64 bits, as decimals: a literal of a decimal type has the same value."""
    try:
        return pa.array([None if value is None else Decimal(value) for value in values], pa.decimal256(76, 0))
    except (pa.ArrowException, ArithmeticError, TypeError, ValueError) as error:
        raise InvalidArgumentError(f"values must be integers of at most 76 digits, got: {error}") from error


@dataclass(frozen=True, slots=True)
class Fitted:
    """Values set against a column's type."""

    slots: NDArray[np.int64]
    """Slots of the values that convert exactly."""
    values: pa.Array
    """Those values, in the column's type."""
    misfits: NDArray[np.int64]
    """Slots of the values that are not decided; the others are null or beyond the column's range."""


def fitted(array: pa.Array, column_type: pa.DataType) -> Fitted:
    """Each value of `array` by itself; runs that convert as a whole cost one conversion."""
    valid = np.flatnonzero(pc.is_valid(array).to_numpy(zero_copy_only=False))
    whole = fit_values(array, column_type)
    if whole.reason is None and len(whole.values) == len(valid):  # as nearly always: no sorting, no copies
        return Fitted(valid, whole.values, np.zeros(0, np.int64))
    if pa.types.is_primitive(array.type) or pa.types.is_decimal(array.type):
        order = pc.sort_indices(array).to_numpy()[: len(valid)]  # nulls come last; what is out of range is a run
    else:
        order = valid
    slots: list[NDArray[np.int64]] = []
    values: list[pa.Array] = []
    misfits: list[int] = []
    waiting = [order.astype(np.int64)]
    while waiting:
        run = waiting.pop()
        if not len(run):
            continue
        fit = fit_values(array.take(pa.array(run)), column_type)
        if fit.reason is None and len(fit.values) == len(run):
            slots.append(run)
            values.append(fit.values)
        elif len(run) == 1:
            misfits += run.tolist() if fit.reason is not None else []
        elif fit.reason is not None or len(fit.values):
            middle = len(run) // 2
            waiting += [run[:middle], run[middle:]]
    fitting = pa.concat_arrays(values) if values else fit_values([], column_type).values
    return Fitted(np.concatenate([np.zeros(0, np.int64), *slots]), fitting, np.array(misfits, np.int64))


def check_comparable(view: View, column: str, array: pa.Array, fit: Fitted) -> None:
    """Refuse values that cannot be compared with the column, as a scan does; numbers that are too fine can be.

    Raises
    ------
    PredicateError
        One cannot.
    """
    if len(fit.misfits):
        IsIn(column, array.take(pa.array(fit.misfits))).to_expression(view.plain_schema)


def key_hashes(fit: Fitted) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """The hashes of the keys, and the slot of each; a zero of a float type has two."""
    slots, hashes = fit.slots, hashing.hash_array(fit.values)
    if pa.types.is_floating(fit.values.type):
        floats = fit.values.to_numpy(zero_copy_only=False)
        zeros = np.flatnonzero(floats == 0)
        others = hashing.hash_array(pa.array(-floats[zeros], fit.values.type))
        slots, hashes = np.concatenate((slots, slots[zeros])), np.concatenate((hashes, others))
    return slots, hashes


def _may_exist(probed: ProbedColumn, fit: Fitted, num_values: int) -> NDArray[np.bool_]:
    """For each slot: True if the filters cannot exclude the value; unspecified if it is null."""
    if len(probed.grid.uncovered):
        return np.ones(num_values, np.bool_)
    found = np.zeros(num_values, np.bool_)
    slots, hashes = key_hashes(fit)
    distinct, places = np.unique(hashes, return_inverse=True)  # a locator may give each hash many zones
    found[slots[probed.zones.contained(distinct, probed.live)[places]]] = True
    found[fit.misfits] = True
    return found


def _verified(view: View, column: str, array: pa.Array, maybe: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """`maybe` less the values that reading the candidate rows does not find."""
    slots = np.flatnonzero(maybe & pc.is_valid(array).to_numpy(zero_copy_only=False))
    found = np.zeros(len(maybe), np.bool_)
    if not len(slots):
        return found
    candidates = array.take(pa.array(slots))
    predicate = IsIn(column, candidates)
    top = [name for name in view.schema.names if column == name or column.startswith(f"{name}.")]
    rows = scan(view, predicate, view.search(predicate, own_filters=True).row_ranges, top, None)
    seen = [comparable(hashing.column_array(batch, column)).unique() for batch in rows]
    if not seen:
        return found
    column_type = view.column_type(column)
    own, values = comparable_keys(candidates, fitted(candidates, column_type), column_type)
    found[slots[own]] = pc.is_in(values, pa.chunked_array(seen).unique()).to_numpy(zero_copy_only=False)
    return found


def comparable_keys(
    array: pa.Array, fit: Fitted, column_type: pa.DataType
) -> tuple[NDArray[np.int64], pa.Array | pa.ChunkedArray]:
    """The keys as rows are compared with them, and their slots; a number too fine for the column equals no row."""
    slots, values = fit.slots, comparable(fit.values)
    if not len(fit.misfits) or not is_number(column_type):
        return slots, values
    numbers = numbers_of(array.take(pa.array(fit.misfits))) or []
    equal = [equal_number(number, column_type) for number in numbers]
    others = [(slot, one) for slot, one in zip(fit.misfits.tolist(), equal, strict=False) if one is not None]
    more = comparable(pa.array([one for _, one in others], column_type))
    return np.concatenate((slots, np.array([slot for slot, _ in others], np.int64))), pa.concat_arrays([values, more])


def comparable(values: pa.Array) -> pa.Array:
    """`values` as a type that Arrow's set lookup takes, with one zero."""
    values = plain_array(values)
    if pa.types.is_decimal32(values.type) or pa.types.is_decimal64(values.type):
        values = values.cast(pa.decimal128(values.type.precision, values.type.scale))
    if pa.types.is_floating(values.type):
        values = values.cast(pa.float64())
        return pc.if_else(pc.equal(values, 0.0), 0.0, values)
    return values
