"""`fit_values`: literals of one type converted to a column of another, by a table of conversions."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import xxhash

from zonebloom.bloom.hashing import is_supported, storage_type
from zonebloom.ground.arrow import from_values, is_bytes, plain_array
from zonebloom.ground.errors import PredicateError, first_line
from zonebloom.ground.reasons import Reason, ReasonCode
from zonebloom.predicates.coerce import numbers, temporal, texts
from zonebloom.predicates.coerce.reasons import MisfitError, Part, misfit, nan_misfit
from zonebloom.predicates.coerce.sources import Source, groups, source_of
from zonebloom.predicates.exact_numbers import ALL_DIGITS
from zonebloom.predicates.literals import collected, is_collection, literal, null_mask, taken

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Fit:
    """A predicate's literals in a column's type."""

    values: pa.Array
    """The values to probe, of the column's type (of a dictionary or run-end encoded type: its value type), without
    nulls, in no particular order. Empty if `reason` is set. Empty without a reason: no row can match."""
    reason: Reason | None
    """Why these literals prune nothing; None if they can prune."""
    num_out_of_range: int
    """Literals that no value of the type can equal; they are not among `values`."""


def fit_values(values: Any, column_type: pa.DataType) -> Fit:
    """The values of `column_type` that equal any of `values`; no other value of the type does, unless a reason is set.

    `values` is one value, or a collection of any library (literals.collected). Nulls are dropped, since ``= NULL`` is
    never true. No literal and no type raises an error: a literal that does not convert sets the reason.

    Spec: specs/hashing.md#fit_values
    """
    if column_type == pa.int64() and type(values) is list and len(values) == 1 and type(values[0]) is int:
        is_in_range = -(2**63) <= values[0] < 2**63  # a shorter way for the commonest literal
        return Fit(from_values(values if is_in_range else [], column_type), None, int(not is_in_range))
    try:
        is_list = type(values) is list  # `groups` takes one as it is
        listed = values if is_list else collected(values) if is_collection(values) else [literal(values)]
        nothing = [] if is_supported(column_type) else [_fit([], column_type)]  # refused, though all may be null
        parts = [*nothing, *(_fit(group, column_type) for _, group in groups(listed))]
    except (MisfitError, PredicateError) as error:
        code = error.code if isinstance(error, MisfitError) else ReasonCode.TYPE_MISMATCH
        return Fit(_joined([], column_type), Reason(code, str(error)), 0)
    num_out = sum(int((~keep).sum()) for _, keep in parts if keep is not None)
    return Fit(_joined([array for array, _ in parts], column_type), None, num_out)


def value_of(text: str | int | decimal.Decimal, wanted: pa.DataType) -> pa.Scalar:
    """The value of type `wanted` that `text` spells, or that equals a number.

    pyarrow's casts crash on 1e-9999999 for a decimal, text or Decimal, take 0xff for -1 and 16777217 for a close float.

    Raises
    ------
    ValueError
        It spells none, or the type cannot hold all its digits.
    """
    is_numeral = isinstance(text, str) and numbers.NUMERAL.fullmatch(text)
    fit = fit_values([decimal.Decimal(text) if is_numeral else text], wanted)  # a text would be the nearest float
    if not len(fit.values):
        raise ValueError(f"it is no {wanted}")
    return fit.values[0]


@dataclass(frozen=True, slots=True)
class FitOfEach:
    """Each of many literals by itself in a column's type."""

    slots: NDArray[np.int64]
    """Slots of the literals that fit."""
    values: pa.Array
    """Their values, in the column's type."""
    misfits: NDArray[np.int64]
    """Slots of the misfits; the other slots are null, or out of range."""


def fit_each(values: pa.Array | list[Any], column_type: pa.DataType) -> FitOfEach:
    """The fit of each value of what `literals.collected` gives.

    Cost: as `fit_values`. A list in which pyarrow cannot read a text is halved, until each such text is alone.
    """
    slots: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    misfits: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    fitting: list[pa.Array] = []
    waiting = list(groups(values))
    while waiting:
        own, group = waiting.pop()
        if isinstance(group, pa.Array) and group.null_count:
            is_null = null_mask(group)
            own, group = own[~is_null], taken(group, np.flatnonzero(~is_null))
        try:
            array, keep = _fit(group, column_type)
        except MisfitError as error:
            wrong = np.ones(1, np.bool_) if len(own) == 1 else error.where
            if wrong is None:
                parts = [np.arange(len(own) // 2), np.arange(len(own) // 2, len(own))]
            else:
                misfits.append(own[wrong])
                parts = [] if wrong.all() else [np.flatnonzero(~wrong)]
            waiting += [(own[part], taken(group, part)) for part in parts]
        else:
            slots.append(own if keep is None else own[keep])
            fitting.append(array)
    return FitOfEach(np.concatenate(slots), _joined(fitting, column_type), np.concatenate(misfits))


def _fit(group: pa.Array | list[Any], column_type: pa.DataType) -> Part:
    """The fit of a group of `sources.groups`.

    Raises
    ------
    MisfitError
        A literal does not convert exactly.
    """
    if not is_supported(column_type):
        raise MisfitError(f"the column's type must have a hash input, got {column_type}", np.ones(len(group), np.bool_))
    try:
        with decimal.localcontext(ALL_DIGITS):
            return _fit_source(source_of(group), _value_type(column_type))
    except PredicateError as error:
        raise MisfitError(str(error)) from error
    except (pa.ArrowException, ArithmeticError, UnicodeError) as error:
        raise MisfitError(f"a literal must convert exactly to {column_type}, got {first_line(error)}") from error


def _joined(parts: list[pa.Array], column_type: pa.DataType) -> pa.Array:
    """The storage arrays `parts` as one array of values of the type; of nulls if it has no values."""
    if not is_supported(column_type):
        return pa.nulls(0)
    value_type = _value_type(column_type)
    return _wrap(pa.concat_arrays([pa.nulls(0, storage_type(value_type)), *parts]), value_type)


def _value_type(column_type: pa.DataType) -> pa.DataType:
    """The type of one value: without dictionaries and run-end encoding, with extension types."""
    while pa.types.is_dictionary(column_type) or pa.types.is_run_end_encoded(column_type):
        column_type = column_type.value_type
    if (
        isinstance(column_type, pa.BaseExtensionType)
        and _value_type(column_type.storage_type) != column_type.storage_type
    ):
        return _value_type(column_type.storage_type)
    return column_type


def _wrap(array: pa.Array, value_type: pa.DataType) -> pa.Array:
    """The storage `array` as an array of the (possibly nested) extension type `value_type`."""
    if not isinstance(value_type, pa.BaseExtensionType):
        return array
    return pa.ExtensionArray.from_storage(value_type, _wrap(array, value_type.storage_type))


def _family(value_type: pa.DataType) -> str:
    """The row or column of the table `_CONVERSIONS` that `value_type` belongs to."""
    if isinstance(value_type, pa.UuidType):
        return "uuid"
    stored = storage_type(value_type)
    if stored in (pa.string(), pa.large_string(), pa.string_view()):
        return "text"
    if is_bytes(stored):
        return "bytes"
    families = {
        "bool": pa.types.is_boolean,
        "int": pa.types.is_integer,
        "float": pa.types.is_floating,
        "decimal": pa.types.is_decimal,
        "date": pa.types.is_date,
        "timestamp": pa.types.is_timestamp,
        "time": pa.types.is_time,
        "duration": pa.types.is_duration,
    }
    return next((name for name, belongs in families.items() if belongs(stored)), "none")


def _fit_source(source: Source, value_type: pa.DataType) -> Part:
    """The fit of one array, or of one list of exact numbers."""
    stored = storage_type(value_type)
    if isinstance(source, list):
        return numbers.fit_numbers(source, stored)
    source = plain_array(source, keeps_uuid=True).drop_null()
    if not len(source):
        return pa.nulls(0, stored), None
    source_family = _family(source.type)
    if isinstance(source, pa.ExtensionArray):
        source = source.storage
    if source_family == "float":
        is_nan = np.isnan(source.to_numpy(zero_copy_only=False))
        if is_nan.any():
            raise nan_misfit(is_nan)
    convert = _CONVERSIONS.get((source_family, _family(value_type)))
    if convert is None:
        raise misfit(source, value_type)
    return convert(source, stored)


_CONVERSIONS: dict[tuple[str, str], Callable[[pa.Array, pa.DataType], Part]] = {
    ("bool", "bool"): texts.cast,
    ("int", "int"): numbers.int_to_int,
    ("int", "float"): numbers.int_to_float,
    ("int", "decimal"): numbers.exact_cast,
    ("float", "int"): numbers.float_to_int,
    ("float", "float"): numbers.float_to_float,
    ("float", "decimal"): numbers.float_to_decimal,
    ("decimal", "int"): numbers.exact_cast,
    ("decimal", "float"): numbers.decimal_to_float,
    ("decimal", "decimal"): numbers.exact_cast,
    ("text", "bool"): texts.text_to_bool,
    ("text", "int"): numbers.text_to_number,
    ("text", "float"): numbers.text_to_number,
    ("text", "decimal"): numbers.text_to_number,
    ("text", "text"): texts.cast,
    ("text", "bytes"): texts.text_to_bytes,
    ("text", "uuid"): texts.text_to_uuid,
    ("text", "date"): temporal.text_to_date,
    ("text", "timestamp"): temporal.text_to_timestamp,
    ("text", "time"): temporal.text_to_time,
    ("bytes", "bytes"): texts.bytes_to_bytes,
    ("bytes", "text"): texts.bytes_to_text,
    ("bytes", "uuid"): texts.bytes_to_bytes,
    ("uuid", "uuid"): texts.cast,
    ("uuid", "bytes"): texts.uuid_to_bytes,
    ("date", "date"): temporal.rescale,
    ("date", "timestamp"): temporal.rescale,
    ("timestamp", "timestamp"): temporal.rescale,
    ("timestamp", "date"): temporal.rescale,
    ("time", "time"): temporal.rescale,
    ("duration", "duration"): temporal.rescale,
}
"""(family of the literal, family of the column) → conversion; a pair that is missing is a misfit."""


# --- one common literal -----------------------------------------------------------------------------------------------

_TEXTS: Final = {pa.string().id, pa.large_string().id, pa.string_view().id}
_BYTES: Final = {pa.binary().id, pa.large_binary().id, pa.binary_view().id}


def plain_hash(value: Any, column_type: pa.DataType) -> int | None:
    """The hash to probe for `value`: an int, a text or bytes. None if `fit_values` must convert it.

    A search for one key spends microseconds on its filters, and an Arrow array of one value would take as long.
    """
    kind, column = type(value), column_type.id
    try:
        if kind is int and pa.types.is_integer(column_type):
            is_signed = pa.types.is_signed_integer(column_type)
            data = value.to_bytes(column_type.bit_width // 8, "little", signed=is_signed)
        elif kind is str and column in _TEXTS:
            data = value.encode()
        elif kind is bytes and column in _BYTES:
            data = value
        else:
            return None
    except (OverflowError, UnicodeEncodeError):
        return None
    return xxhash.xxh64_intdigest(data)
