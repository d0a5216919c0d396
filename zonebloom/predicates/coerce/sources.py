"""Literals of any kind as arrays, each of one type."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from zonebloom.ground.arrow import from_values
from zonebloom.predicates.coerce.reasons import MisfitError
from zonebloom.predicates.literals import from_numpy_array, is_null_literal, listed

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PLAIN = frozenset({int, float, str, bytes, bool, decimal.Decimal, dt.date, uuid.UUID})
"""Types whose values are never null, and always of one kind."""

Number: TypeAlias = int | decimal.Decimal
Source: TypeAlias = pa.Array | list[Number]
"""Literals of one type; exact numbers that Arrow has no common type for are a list."""


def groups(values: pa.Array | list[Any]) -> Iterator[tuple[NDArray[np.int64], pa.Array | list[Any]]]:
    """A list or an Arrow array in groups of one kind, each with the slots of its values; null objects are left out.

    pyarrow's type inference would cut a mixture: a list of a day and a time becomes days.
    """
    if isinstance(values, pa.Array):
        yield np.arange(len(values)), values
        return
    kinds = set(map(type, values))
    if len(kinds) == 1 and kinds <= _PLAIN:
        yield np.arange(len(values)), values
        return
    slots: dict[Any, list[int]] = {}
    values = listed(values)
    for slot, value in enumerate(values):
        kind = type(value)
        if kind in _PLAIN or not is_null_literal(value):
            slots.setdefault(kind if kind in _PLAIN else _kind(value), []).append(slot)
    for own in slots.values():
        yield np.array(own), [values[slot] for slot in own]


def _kind(value: Any) -> Any:
    """The key of literals that are converted together."""
    if isinstance(value, pa.Scalar):
        return str(value.type)  # an extension type of Python has no hash
    if isinstance(value, np.generic):
        return value.dtype
    if isinstance(value, dt.datetime):
        return type(value), value.tzinfo is None
    return type(value)


_ARROW_TYPES = (
    *((bool, pa.bool_()), (float, pa.float64()), (str, pa.large_string()), (bytes, pa.large_binary())),
    *((uuid.UUID, pa.uuid()), (dt.date, pa.date32()), (dt.time, pa.time64("us")), (dt.timedelta, pa.duration("us"))),
)


def source_of(group: pa.Array | list[Any]) -> Source:  # noqa: C901 - one case a kind of literal
    """A group of `groups` as Arrow has it.

    Raises
    ------
    MisfitError
        No column can hold values of this kind.
    """
    if isinstance(group, pa.Array):
        return group
    first = group[0] if group else None
    if isinstance(first, pa.ExtensionScalar):  # pyarrow 23 makes no array of extension scalars
        storage = pa.array([value.value for value in group], first.type.storage_type)
        return pa.ExtensionArray.from_storage(first.type, storage)
    if isinstance(first, (pa.Scalar, np.str_, np.bytes_, np.bool_)):
        return pa.array(group)
    if isinstance(first, np.generic):
        return from_numpy_array(np.array(group))
    if isinstance(first, int) and not isinstance(first, bool):
        try:
            return from_values(group, pa.int64())
        except OverflowError:
            return [int(value) for value in group]
    if isinstance(first, decimal.Decimal):
        return group
    if isinstance(first, dt.datetime):
        return pa.array(group, pa.timestamp("us", None if first.tzinfo is None else "UTC"))
    for kind, arrow_type in _ARROW_TYPES:
        if isinstance(first, kind):
            return from_values(group, arrow_type)
    message = f"a literal must be a value that a column can hold, got one of type {type(first).__name__}"
    raise MisfitError(message, np.ones(len(group), np.bool_))
