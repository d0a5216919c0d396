"""Number literals as values of number columns."""

from __future__ import annotations

import decimal
import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from zonebloom.ground.arrow import to_numpy
from zonebloom.predicates.coerce.reasons import MisfitError, Part, misfit, nan_misfit
from zonebloom.predicates.coerce.sources import Number
from zonebloom.predicates.exact_numbers import equal_number, unit_bounds

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MANTISSA_BITS = {16: 11, 32: 24, 64: 53}
_MAX_DIGITS = 76
_SHOWN_BITS = 1024
_DOUBLE_DIGITS = 15
"""Decimals of up to 15 digits have a double of their own."""
NUMERAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")
"""A text that is a decimal numeral."""
_INFINITE = re.compile("[+-]?inf(?:inity)?", re.IGNORECASE)
_EXACT = decimal.Context(
    prec=2000, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, traps=[decimal.InvalidOperation, decimal.Inexact]
)


def _int_values(source: pa.Array) -> NDArray[Any]:
    return to_numpy(source, source.type.to_pandas_dtype())


def int_to_int(source: pa.Array, stored: pa.DataType) -> Part:
    """Ints of any width and sign; those outside the column's bounds are dropped."""
    (low, high), (source_low, source_high) = unit_bounds(stored), unit_bounds(source.type)
    numbers = _int_values(source)
    keep = (numbers >= max(low, source_low)) & (numbers <= min(high, source_high))
    return _keep(source, keep, stored)


def float_to_int(source: pa.Array, stored: pa.DataType) -> Part:
    """Integral floats below 2**(mantissa bits); above, several ints match in an engine that compares as floats."""
    numbers = source.to_numpy(zero_copy_only=False).astype(np.float64)
    low, high = unit_bounds(stored)
    limit = 2.0 ** _MANTISSA_BITS[source.type.bit_width]
    possible = (numbers >= float(low)) & (numbers <= float(high))
    unsure = (np.trunc(numbers) != numbers) | ((np.abs(numbers) >= limit) & (high >= limit))
    if (possible & unsure).any():
        raise misfit(source, stored, possible & unsure)
    integers = numbers[possible].astype(np.int64 if low else np.uint64)
    return pa.array(integers).cast(stored), possible


def int_to_float(source: pa.Array, stored: pa.DataType) -> Part:
    """Ints that are floats of the column's width without rounding."""
    numbers = _int_values(source)
    limit = 2 ** _MANTISSA_BITS[stored.bit_width]
    source_low, source_high = unit_bounds(source.type)
    small = (numbers >= max(-limit, source_low)) & (numbers <= min(limit, source_high))
    if small.all():
        return pa.array(numbers.astype(stored.to_pandas_dtype()), stored), None
    return fit_numbers(numbers.tolist(), stored)


def float_to_float(source: pa.Array, stored: pa.DataType) -> Part:
    """Floats that the column's width holds exactly; those beyond its range are dropped."""
    numbers = source.to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        floats = numbers.astype(stored.to_pandas_dtype())
    outside = np.isinf(floats) & np.isfinite(numbers)
    inexact = (floats != numbers) & ~outside
    if inexact.any():
        raise misfit(source, stored, inexact)
    return pa.array(floats[~outside], stored), ~outside


def float_to_decimal(source: pa.Array, stored: pa.DataType) -> Part:
    """Exact values, in columns of at most 15 digits, whose decimals all have different doubles."""
    outside = source.to_numpy(zero_copy_only=False).astype(np.float64)
    outside = np.abs(outside) > float(10 ** (stored.precision - stored.scale))
    if stored.precision > _DOUBLE_DIGITS and not outside.all():
        raise misfit(source, stored, ~outside)
    return fit_numbers([decimal.Decimal(number) for number in source.to_pylist()], stored)


def exact_cast(source: pa.Array, stored: pa.DataType) -> Part:
    """Ints or decimals by one cast, else one by one; the cast is reversed to check it, as pyarrow 26 may wrap."""
    is_decimal = pa.types.is_decimal(source.type)
    wide = source.cast(pa.decimal256(_MAX_DIGITS, source.type.scale if is_decimal else 0))
    try:
        fitted = wide.cast(stored)
        exact = fitted if pa.types.is_decimal(stored) else fitted.cast(pa.decimal256(_MAX_DIGITS, 0))
        if exact.cast(wide.type).equals(wide):
            return fitted, None
    except pa.ArrowInvalid:
        pass
    return fit_numbers(source.to_pylist(), stored)


def decimal_to_float(source: pa.Array, stored: pa.DataType) -> Part:
    """Integers of scale 0; for other scales pyarrow 26 may compare with the neighbour of the nearest float."""
    if source.type.scale:
        raise misfit(source, stored)
    return fit_numbers([int(number) for number in source.to_pylist()], stored)


def fit_numbers(numbers: list[Number], stored: pa.DataType) -> Part:
    """Exact numbers, one by one: pyarrow 26 crashes on ``Decimal("1e-999999")`` for a decimal column."""
    wrong = np.array([isinstance(number, decimal.Decimal) and number.is_nan() for number in numbers], np.bool_)
    if wrong.any():
        raise nan_misfit(wrong)
    if pa.types.is_integer(stored):
        convert: Callable[[Number, pa.DataType], Any] = _number_to_int
    elif pa.types.is_floating(stored):
        convert = _number_to_float
    elif pa.types.is_decimal(stored):
        convert = _number_to_decimal
    else:
        raise _number_misfit(numbers, stored, ~wrong)
    with np.errstate(over="ignore"):
        fitted = [convert(number, stored) for number in numbers]
    wrong = np.array([value is _INEXACT for value in fitted], np.bool_)
    if wrong.any():
        raise _number_misfit(numbers, stored, wrong)
    keep = np.array([value is not None for value in fitted], np.bool_)
    return pa.array([value for value in fitted if value is not None], stored), keep


def text_to_number(source: pa.Array, stored: pa.DataType) -> Part:
    """Texts that are decimal numerals, by their value: `5`, `-1.50`, `1e3`; for floats the nearest value, and `inf`."""
    texts, is_floating = source.to_pylist(), pa.types.is_floating(stored)
    wrong = np.array([not (NUMERAL.fullmatch(t) or (is_floating and _INFINITE.fullmatch(t))) for t in texts], np.bool_)
    if wrong.any():
        raise misfit(source, stored, wrong)
    spelled: list[Number] = [decimal.Decimal(text) for text in texts]
    if is_floating:  # none is nearest to what is beyond the range
        nearest = [equal_number(number, stored) for number in spelled]
        spelled = [n if near is None else decimal.Decimal(near) for n, near in zip(spelled, nearest, strict=True)]
    return fit_numbers(spelled, stored)


def _number_misfit(numbers: list[Number], stored: pa.DataType, where: NDArray[np.bool_]) -> MisfitError:
    number = numbers[int(np.flatnonzero(where)[0])]
    is_long = isinstance(number, int) and number.bit_length() > _SHOWN_BITS  # Python refuses to show the largest
    shown = f"an integer of {int(number).bit_length()} bits" if is_long else str(number)[:80]
    return MisfitError(f"a literal must convert exactly to {stored}, got {shown}", where)


_INEXACT = object()
"""What a conversion gives for a number that is no value of the type, but within its range; None if it is beyond."""


def _number_to_int(number: Number, stored: pa.DataType) -> Any:
    low, high = unit_bounds(stored)
    if not low <= number <= high:
        return None
    return int(number) if number == int(number) else _INEXACT


def _number_to_float(number: Number, stored: pa.DataType) -> Any:
    """The nearest double of a Decimal, as engines read a numeral; any other pair must be exact."""
    try:
        double = float(number)
    except OverflowError:
        return None
    narrow = stored.to_pandas_dtype()(double)
    if np.isinf(narrow) and -math.inf < number < math.inf:
        return None
    is_numeral = isinstance(number, decimal.Decimal) and pa.types.is_float64(stored)
    return narrow if is_numeral or float(narrow) == number else _INEXACT


def _number_to_decimal(number: Number, stored: pa.DataType) -> Any:
    bound = decimal.Decimal((0, (1,), stored.precision - stored.scale))  # abs() would round to the caller's context
    if not -bound < number < bound:
        return None
    units = decimal.Decimal(number).scaleb(stored.scale, _EXACT)
    if units != int(units):
        return _INEXACT
    return decimal.Decimal(int(units)).scaleb(-stored.scale, _EXACT)


def _keep(source: pa.Array, keep: NDArray[np.bool_], stored: pa.DataType) -> Part:
    """The values of `source` at `keep`, cast."""
    return (source if keep.all() else source.filter(pa.array(keep))).cast(stored), keep
