"""Literals of any kind as arrays, each of one type."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from zonebloom.arrow import from_values
from zonebloom.predicates.coerce.reasons import MisfitError

Number: TypeAlias = int | decimal.Decimal
_ENCODED = (pa.DictionaryScalar, pa.RunEndEncodedScalar)


def sources(values: Any) -> Iterator[pa.Array | list[Number]]:
    """The literals as arrays, each of one type; exact numbers that Arrow has no common type for as a list."""
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        yield from values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    elif hasattr(values, "__arrow_c_stream__"):
        yield from pa.chunked_array(values).chunks
    elif hasattr(values, "__arrow_c_array__"):
        yield pa.array(values)
    elif isinstance(values, np.ndarray) and values.ndim and values.dtype != np.dtype(object):
        yield pa.array(values, from_pandas=False)
    elif isinstance(values, Iterable) and not isinstance(
        values, (str, bytes, bytearray, memoryview, Mapping, pa.Scalar)
    ):
        yield from _sources_of_objects(list(values))
    else:
        yield from _sources_of_objects([values])


def _sources_of_objects(values: list[Any]) -> Iterator[pa.Array | list[Number]]:
    groups: dict[Any, list[Any]] = {}
    kinds = set(map(type, values))
    if not kinds.isdisjoint(_ENCODED):
        values = list(map(_value_of, values))
        kinds = set(map(type, values))
    if len(kinds) == 1 and kinds <= {int, float, str, bytes}:
        groups[kinds.pop()] = values
    else:
        for value in values:
            if value is not None:
                groups.setdefault(_group(value), []).append(value)
    for group in groups.values():
        yield _source_of_group(group)


def _value_of(value: Any) -> Any:
    """The plain scalar: pyarrow cannot make an array of scalars of dictionaries or runs for every type."""
    while isinstance(value, _ENCODED):
        value = value.value
    return value


def _group(value: Any) -> Any:
    """The key of literals that are converted together: pyarrow's type inference would truncate a mixture."""
    if isinstance(value, pa.Scalar):
        return value.type
    if isinstance(value, np.generic):
        return value.dtype
    if isinstance(value, dt.datetime):
        return type(value), value.tzinfo is None
    return type(value)


def _source_of_group(group: list[Any]) -> pa.Array | list[Number]:  # noqa: C901, PLR0912 - one case a kind of literal
    first = group[0]
    if isinstance(first, (pa.Scalar, np.str_, np.bytes_, np.bool_)):
        return pa.array(group)
    if isinstance(first, np.generic):
        return pa.array(np.array(group), from_pandas=False)
    if isinstance(first, bool):
        return from_values(group, pa.bool_())
    if isinstance(first, int):
        try:
            return from_values(group, pa.int64())
        except OverflowError:
            return [int(value) for value in group]
    if isinstance(first, float):
        return from_values(group, pa.float64())
    if isinstance(first, decimal.Decimal):
        return group
    if isinstance(first, str):
        return from_values(group, pa.large_string())
    if isinstance(first, (bytes, bytearray, memoryview)):
        return from_values([bytes(value) for value in group], pa.large_binary())
    if isinstance(first, uuid.UUID):
        storage = from_values([value.bytes for value in group], pa.binary(16))
        return pa.ExtensionArray.from_storage(pa.uuid(), storage)
    if isinstance(first, dt.datetime):
        _refuse_nanoseconds(group)
        return pa.array(group, pa.timestamp("us", None if first.tzinfo is None else "UTC"))
    if isinstance(first, dt.date):
        return from_values(group, pa.date32())
    if isinstance(first, dt.time):
        zoned = next((value for value in group if value.tzinfo is not None), None)
        if zoned is not None:
            raise MisfitError(f"a time of day must have no zone, got {zoned}")
        return pa.array(group, pa.time64("us"))
    if isinstance(first, dt.timedelta):
        _refuse_nanoseconds(group)
        return pa.array(group, pa.duration("us"))
    raise MisfitError(f"a literal must be a value that a column can hold, got one of type {type(first).__name__}")


def _refuse_nanoseconds(group: list[Any]) -> None:
    """Pandas' subclasses of datetime and timedelta hold nanoseconds, which pyarrow would drop."""
    for value in group:
        if getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0):
            raise MisfitError(f"a literal of nanoseconds must be a numpy or Arrow value, got {value!r}")
