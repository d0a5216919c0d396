"""The hash plan of each Arrow type that can be hashed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from zonebloom.bloom.hashing.columns import paths_below
from zonebloom.ground.errors import UnsupportedTypeError


@dataclass(frozen=True, slots=True)
class HashPlan:
    """How the values of one Arrow type become hash inputs."""

    layout: Literal["fixed", "variable", "dictionary"]
    """``fixed``: use `fixed_buffers`; ``variable``: `variable_buffers`; ``hashes``: `to_hashes` and `validity_of`."""
    width: int | None
    """Bytes of each value's hash input for ``fixed``, else None."""


def storage_type(column_type: pa.DataType) -> pa.DataType:
    """The type whose values are hashed: without extension types and run-end encoding, with dictionaries."""
    while True:
        if isinstance(column_type, pa.BaseExtensionType):
            column_type = column_type.storage_type
        elif pa.types.is_run_end_encoded(column_type):
            column_type = column_type.value_type
        else:
            return column_type


def hash_plan(column_type: pa.DataType) -> HashPlan:
    """How values of `column_type` are hashed; a type without a plan has no defined hash input.

    Raises
    ------
    UnsupportedTypeError
        For null, list, map, struct, union and interval types, ``fixed_size_binary(0)``, and ``arrow.bool8``, whose
        true has 255 encodings.

    Spec: specs/hashing.md#hash_plan
    """
    if isinstance(column_type, pa.Bool8Type):
        raise _unsupported(column_type, "cast the column to bool")
    stored = storage_type(column_type)
    if pa.types.is_dictionary(stored):
        hash_plan(stored.value_type)
        return HashPlan("dictionary", None)
    if stored in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()) or is_view(stored):
        return HashPlan("variable", None)
    if pa.types.is_boolean(stored):
        return HashPlan("fixed", 1)
    if pa.types.is_fixed_size_binary(stored) and stored.byte_width:
        return HashPlan("fixed", stored.byte_width)
    if _is_fixed_primitive(stored):
        return HashPlan("fixed", stored.bit_width // 8)
    if pa.types.is_struct(stored):
        leaves = [path for field in stored for path in paths_below(field, field.name)]
        example = f"such as '<column>.{leaves[0]}'" if leaves else "but this one has none"
        raise _unsupported(column_type, f"index a leaf of it, {example}")
    raise _unsupported(column_type, "index a column of values that can be compared by their bytes")


def is_supported(column_type: pa.DataType) -> bool:
    """Whether columns of `column_type` can be indexed: whether `hash_plan` has a plan."""
    try:
        hash_plan(column_type)
    except UnsupportedTypeError:
        return False
    return True


def lance_supports(column_type: pa.DataType) -> bool:
    """Whether Lance builds and queries a bloom filter index on `column_type`; its hashes then equal ours.

    Spec: specs/hashing.md#lance_supports
    """
    types = pa.types
    if types.is_integer(column_type) or types.is_float32(column_type) or types.is_float64(column_type):
        return True
    if types.is_date(column_type) or types.is_time(column_type) or types.is_timestamp(column_type):
        return True
    return column_type in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


def _is_fixed_primitive(stored: pa.DataType) -> bool:
    types = pa.types
    if types.is_integer(stored) or types.is_floating(stored) or types.is_decimal(stored):
        return True
    return bool(
        types.is_date(stored) or types.is_time(stored) or types.is_timestamp(stored) or types.is_duration(stored)
    )


def is_view(stored: pa.DataType) -> bool:
    """Whether values of the type are views, which are not contiguous."""
    return stored in (pa.string_view(), pa.binary_view())


def _unsupported(column_type: pa.DataType, advice: str) -> UnsupportedTypeError:
    return UnsupportedTypeError("an indexed column must be of a type that can be hashed", got=column_type, do=advice)
