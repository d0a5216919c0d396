"""The bytes that Parquet hashes for its own bloom filters, by the physical type of a column, and such a filter.

`plain_type` and `plain_values` convert a column's values to Parquet's stored values; `ParquetSbbf` looks them up.

Spec: specs/parquet-blooms.md#plain
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from zonebloom.bloom.hashing import hash_values, storage_type
from zonebloom.bloom.sbbf import Sbbf
from zonebloom.ground.arrow import parquet as pq, plain_array
from zonebloom.ground.casts import converted
from zonebloom.ground.errors import InvalidArgumentError, UnsupportedTypeError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SAME_BYTES: Final = {
    "FLOAT": (pa.float32(),),
    "DOUBLE": (pa.float64(),),
    "BYTE_ARRAY": (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()),
}
"""Arrow types whose bytes are stored unchanged, by physical type."""
_UNITS: Final = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}


# --- the bytes that Parquet hashes ------------------------------------------------------------------------------------


def plain_type(column_type: pa.DataType, described: pq.ColumnSchema) -> pa.DataType | None:
    """The Arrow type whose bytes are Parquet's stored bytes of values of `column_type`; None if they are unknown.

    Parameters
    ----------
    column_type
        Type of the column as it is read from the file.
    described
        The leaf in the footer; its physical type determines the hashed bytes.

    Spec: specs/parquet-blooms.md#plain
    """
    stored, physical = value_type(column_type), described.physical_type
    if stored is None or described.max_repetition_level:
        return None
    if pa.types.is_decimal(stored):
        is_fixed = physical == "FIXED_LEN_BYTE_ARRAY"
        plain = pa.binary(described.length) if is_fixed else {"INT32": pa.int32(), "INT64": pa.int64()}.get(physical)
        return plain if described.scale == stored.scale else None
    if physical in ("INT32", "INT64"):
        return _plain_integer(stored, int(physical[3:]), _unit(described))
    if physical == "FIXED_LEN_BYTE_ARRAY":
        is_whole = pa.types.is_fixed_size_binary(stored) or pa.types.is_float16(stored)
        return stored if is_whole and stored.bit_width == 8 * described.length else None
    stored = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}.get(stored, stored)
    return stored if stored in _SAME_BYTES.get(physical, ()) else None


def _plain_integer(stored: pa.DataType, num_bits: int, unit: str | None) -> pa.DataType | None:
    """The type of `num_bits` that stores values of type `stored`; times are stored in `unit`."""
    types = pa.types
    if types.is_integer(stored) and stored.bit_width <= num_bits:
        return stored if stored.bit_width == num_bits else pa.int32() if num_bits == 32 else pa.int64()  # noqa: PLR2004
    if num_bits == 32:  # noqa: PLR2004 - bits
        is_time = types.is_time32(stored) and unit == "ms"
        return pa.date32() if types.is_date(stored) else pa.time32("ms") if is_time else None
    if types.is_timestamp(stored) and unit:
        return pa.timestamp(unit, stored.tz)
    if types.is_time64(stored) and unit in ("us", "ns"):
        return pa.time64(unit)
    return stored if types.is_duration(stored) else None


def value_type(column_type: pa.DataType | None) -> pa.DataType | None:
    """The type of one value, without extension types and dictionaries; None if equal values may differ in bytes."""
    if isinstance(column_type, pa.Bool8Type):
        return None
    stored = storage_type(column_type)
    return value_type(stored.value_type) if pa.types.is_dictionary(stored) else stored


def _unit(described: pq.ColumnSchema) -> str | None:
    try:
        return _UNITS.get(json.loads(described.logical_type.to_json()).get("timeUnit"))
    except ValueError:
        return None


def plain_values(values: pa.Array, plain: pa.DataType) -> pa.Array:
    """The values that are not null, in type `plain`, the result of `plain_type`.

    Raises
    ------
    pa.ArrowInvalid
        A value does not convert exactly.
    """
    values = plain_array(values).drop_null()
    if not pa.types.is_decimal(values.type):
        return values if values.type == plain else values.cast(plain)
    width = values.type.byte_width
    raw = np.frombuffer(values.buffers()[1], np.uint8)[values.offset * width :][: len(values) * width]
    rows = raw.reshape(-1, width)
    if not pa.types.is_fixed_size_binary(plain):
        size = plain.bit_width // 8
        return pa.Array.from_buffers(plain, len(values), [None, pa.py_buffer(_padded(rows, size)[:, :size].tobytes())])
    size = plain.byte_width
    big_endian = _padded(rows, size)[:, :size][:, ::-1]
    return pa.Array.from_buffers(plain, len(values), [None, pa.py_buffer(big_endian.tobytes())])


def _padded(rows: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Little-endian integers of at least `size` bytes each."""
    missing = max(0, size - rows.shape[1])
    signs = np.where(rows[:, -1:] >= 0x80, np.uint8(0xFF), np.uint8(0))  # noqa: PLR2004 - the highest bit
    return np.concatenate([rows, np.repeat(signs, missing, axis=1)], axis=1)


# --- one filter -------------------------------------------------------------------------------------------------------


class ParquetSbbf(Sbbf):
    """A column chunk's own filter, which hashes the bytes that Parquet stores.

    `check` finds a stored zero by either zero, and excludes no NaN. `check_hashes` takes hashes of Parquet's bytes.
    """

    __slots__ = ("column_type", "plain_type")

    def __init__(
        self, blocks: NDArray[np.uint32], column_type: pa.DataType | None = None, plain: pa.DataType | None = None
    ) -> None:
        super().__init__(blocks)
        self.column_type: pa.DataType | None = column_type
        """Type of the column as it is read from the file."""
        self.plain_type: pa.DataType | None = plain
        """Type whose bytes are hashed; None if they are unknown, as for INT96."""

    def _may_have(self, values: pa.Array) -> NDArray[np.bool_]:
        may_match = super()._may_have(values)
        if pa.types.is_floating(values.type):
            floats = values.to_numpy()
            zeros = np.asarray(hash_values(pa.array(np.zeros(1, floats.dtype), values.type)), np.uint64)
            may_match |= ((floats == 0) & self.check_hashes(zeros).any()) | np.isnan(floats)
        return may_match

    def _hashed(self, values: pa.Array) -> pa.Array:
        if self.plain_type is None:
            raise UnsupportedTypeError(
                "a column with a filter must be of a type whose stored bytes are known", got=self.column_type
            )
        wanted = value_type(self.column_type)
        try:
            same = values if values.type == self.column_type else converted(values, wanted)
            return plain_values(same, self.plain_type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidArgumentError(f"values must be of the column's type {self.column_type}", got=error) from error
