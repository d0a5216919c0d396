"""Literals of callers: one value, or a collection of any library, converted without loss.

A value becomes a plain Python value, a NumPy number or an Arrow scalar. A collection becomes an Arrow array, or a list
of such values. Arrow's own conversion would cut many values to microseconds, days or zeros. All entry points take
their values from here: leaves of predicates, `exists`, `locate`, files of ids.

Spec: specs/hashing.md#entrance
"""

from __future__ import annotations

import datetime as dt
import decimal
import numbers
import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from zonebloom.ground.arrow import compute, plain_array
from zonebloom.ground.errors import PredicateError, first_line

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PLAIN = frozenset({int, str, bytes, float, bool, type(None), decimal.Decimal, dt.date, dt.datetime, uuid.UUID})
"""Types whose values are taken as they are."""
_NUMBERS = (int, float, decimal.Decimal, np.number)
_ENCODED = (pa.DictionaryScalar, pa.RunEndEncodedScalar)
_SCALARS = (str, bytes, bytearray, memoryview, Mapping, pa.Scalar, np.generic)
"""Types that can be iterated but are not collections of values."""
_OWN_UNITS = frozenset({"s", "ms", "us", "ns"})
"""Units of NumPy that Arrow has."""


def literal(value: Any) -> Any:
    """One value as a plain Python value, a NumPy number or an Arrow scalar, without loss.

    Missing values of pandas are None. Moments and spans of pandas and NumPy are Arrow scalars of their own unit.

    Raises
    ------
    PredicateError
        A time of day has a zone, a moment of NumPy has a unit that Arrow cannot express, or a number is of a type that
        neither Arrow nor we convert without a loss, such as a Fraction.
    """
    if type(value) in _PLAIN:
        return value
    while isinstance(value, _ENCODED):
        value = value.value
    if _is_missing(value):
        return None
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)  # a predicate is immutable
    if isinstance(value, (dt.datetime, dt.timedelta)) and hasattr(value, "asm8"):  # of pandas
        moment = from_numpy_array(np.array([value.asm8]))
        is_instant = getattr(value, "tzinfo", None) is not None
        return (moment.cast(pa.timestamp(moment.type.unit, "UTC")) if is_instant else moment)[0]
    if isinstance(value, dt.time) and value.tzinfo is not None:
        raise PredicateError("a time of day must have no zone", got=value)
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return from_numpy_array(np.array([value]))[0]
    if isinstance(value, numbers.Number) and not isinstance(value, _NUMBERS):
        raise PredicateError("a number must be an int, a float or a Decimal", got=f"{value!r:.80}")
    return value


def single(value: Any) -> Any:
    """As `literal`, but refuse a collection.

    Raises
    ------
    PredicateError
        It is a collection.
    """
    if type(value) not in _PLAIN and is_collection(value):
        raise PredicateError(
            "a column must be compared with one value", got=f"a {type(value).__name__}", do="use isin() for several"
        )
    return literal(value)


def is_null_literal(value: Any) -> bool:
    """Whether `value` is the null literal: None, an invalid Arrow scalar, NaT of NumPy, NA and NaT of pandas."""
    if value is None:
        return True
    return not value.is_valid if isinstance(value, pa.Scalar) else _is_missing(value)


def _is_missing(value: Any) -> bool:
    """Whether `value` is NaT of NumPy, or NA or NaT of pandas, which is not loaded for this."""
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return bool(np.isnat(value))
    return type(value).__name__ in ("NAType", "NaTType") and _is_of_pandas(value)


def _is_of_pandas(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "pandas"


def is_collection(values: Any) -> bool:
    """Whether `values` is a collection or a table, of any library."""
    if isinstance(values, _SCALARS):
        return False
    return any(hasattr(values, name) for name in ("__iter__", "__arrow_c_array__", "__arrow_c_stream__"))


def collected(values: Any) -> pa.Array | list[Any]:
    """A collection of any library, in order, as one Arrow array or as a list of results of `literal`.

    NaN of a pandas Series is missing, like in `pyarrow.array`. NaN of a list or of NumPy is a number.

    Raises
    ------
    PredicateError
        `values` is not a collection, or is a table of several columns, or its values are not single values.
    """
    if not is_collection(values):
        raise PredicateError("values must be an array or a list of values", got=f"{values!r:.80}")
    if len(getattr(values, "shape", (0,))) != 1:
        raise PredicateError(
            "values must be one column of values",
            got=f"a {type(values).__name__} of shape {values.shape}",
            do="choose a column, as in table['id']",
        )
    try:
        array = _array_of(values)
    except PredicateError:
        raise
    except (pa.ArrowException, NotImplementedError, TypeError, ValueError) as error:
        if not isinstance(values, Iterable):
            raise PredicateError(
                "values must be such as pyarrow can read", got=f"{type(values).__name__}: {first_line(error)}"
            ) from error
        array = None  # an array of another library that Arrow cannot hold, such as integers of 128 bits
    if array is None:
        return listed(values)
    if pa.types.is_nested(array.type):
        raise PredicateError("values must be one column of single values", got=f"values of type {array.type}")
    return array


def _array_of(values: Any) -> pa.Array | None:
    """`values` as an Arrow array; None if they are a collection of objects."""
    if isinstance(values, (list, tuple, set, frozenset)) or str(getattr(values, "dtype", "")).lower() == "object":
        return None  # Polars exports the addresses of objects
    if isinstance(values, np.ma.MaskedArray):
        return compute.if_else(~np.ma.getmaskarray(values), from_numpy_array(values.data), None)
    if isinstance(values, np.ndarray) or getattr(getattr(values, "dtype", None), "kind", "") == "S":
        return from_numpy_array(np.asarray(values))
    if _is_of_pandas(values) and hasattr(values, "dtype"):
        if hasattr(values.dtype, "categories"):  # pyarrow 24 drops their zone
            categories, codes = _array_of(values.dtype.categories), np.asarray(getattr(values, "cat", values).codes)
            indices = pa.array(codes, mask=codes < 0)
            return None if categories is None else pa.DictionaryArray.from_arrays(indices, categories)
        array = _decoded(pa.array(values))
        return None if _is_of_pandas(array.type) else array  # a period is no integer
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return _decoded(values)
    if hasattr(values, "__arrow_c_stream__"):
        return _decoded(pa.chunked_array(values))
    return _decoded(pa.array(values)) if hasattr(values, "__arrow_c_array__") else None


def _decoded(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """`array` in one piece. Run-end encoding is decoded, and so are dictionaries that hold a null."""
    if isinstance(array, pa.ChunkedArray):
        try:
            array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
        except pa.ArrowNotImplementedError:  # for example run-end encoding
            array = pa.concat_arrays([plain_array(chunk, keeps_uuid=True) for chunk in array.chunks])
    hides_nulls = isinstance(array, pa.DictionaryArray) and array.dictionary.null_count
    if hides_nulls or isinstance(array, pa.RunEndEncodedArray):
        try:
            return plain_array(array, keeps_uuid=True)
        except pa.ArrowNotImplementedError as error:
            raise PredicateError(
                "values must be such as pyarrow can decode", got=f"values of type {array.type}"
            ) from error
    return array


def listed(values: Any) -> list[Any]:
    """The results of `literal` for objects; NaN of pandas is missing."""
    objects = values.tolist() if isinstance(values, np.ndarray) else list(values)
    kinds = set(map(type, objects))
    if not kinds <= _PLAIN:
        objects = list(map(literal, objects))
    if float in kinds and _is_of_pandas(values):
        objects = [None if isinstance(value, float) and value != value else value for value in objects]  # noqa: PLR0124 - NaN
    return objects


def from_numpy_array(values: NDArray[Any]) -> pa.Array:
    """The Arrow array of a NumPy array without objects. Units of time that Arrow does not have are converted exactly.

    Raises
    ------
    PredicateError
        A moment or span is beyond the units of Arrow, or NumPy has dropped zeros at the end of bytes.
    """
    if values.dtype.kind == "S" and (np.char.str_len(values) < values.dtype.itemsize).any():
        raise PredicateError(
            f"values must have {values.dtype.itemsize} bytes each, as NumPy drops zeros at their end",
            got=f"dtype {values.dtype}",
            do="use dtype object",
        )
    if values.dtype.kind not in "mM":
        return pa.array(values, from_pandas=False)
    unit = np.datetime_data(values.dtype)[0]
    scale = np.datetime_data(values.dtype)[1]
    if unit in _OWN_UNITS and scale == 1:
        return pa.array(values, from_pandas=False)
    days = values.astype(np.int64)
    if unit == "D" and scale == 1 and values.dtype.kind == "M":
        is_day = np.isnat(values) | (np.abs(days) < 2**31)
        if is_day.all():  # Arrow wraps the others
            return pa.array(values, from_pandas=False)
    target = "ns" if unit in ("ns", "ps", "fs", "as") else unit if unit in _OWN_UNITS else "s"
    converted = values.astype(f"{values.dtype.kind}8[{target}]")
    has_no_length = values.dtype.kind == "m" and unit in ("Y", "M", "generic")  # NumPy takes 30.4 days for a month
    is_inexact = ~np.isnat(values) & (has_no_length | (converted.astype(values.dtype) != values))
    if is_inexact.any():
        first = values[is_inexact][0]
        raise PredicateError("a moment must be one that Arrow can hold, in units from ns to s", got=f"{first!r}")
    return pa.array(converted, from_pandas=False)


def null_mask(values: pa.Array | list[Any]) -> NDArray[np.bool_]:
    """Whether each value of a result of `collected` is null."""
    if isinstance(values, pa.Array):
        mask: NDArray[np.bool_] = compute.is_null(values).to_numpy(zero_copy_only=False)
        return mask
    is_plain = set(map(type, values)) <= _PLAIN
    return np.fromiter(
        (value is None if is_plain else is_null_literal(value) for value in values), np.bool_, len(values)
    )


def taken(values: pa.Array | list[Any], slots: NDArray[np.int64]) -> pa.Array | list[Any]:
    """The values at `slots` of a result of `collected`."""
    if isinstance(values, pa.Array):
        return plain_array(values, keeps_uuid=True).take(pa.array(slots))
    return [values[slot] for slot in slots.tolist()]
