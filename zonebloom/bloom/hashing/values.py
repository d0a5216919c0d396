"""Hashes of arrays; dictionaries are hashed once and gathered."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from zonebloom.bloom.hashing.buffers import fixed_buffers, stored_array, validity_of, variable_buffers
from zonebloom.bloom.hashing.types import hash_plan
from zonebloom.bloom.numba_loading import is_worth_loading, kernels_to_read
from zonebloom.ground.arrow import compute as pc, distinct, plain_array
from zonebloom.ground.errors import InvalidArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Hashes: TypeAlias = "NDArray[np.uint64]"

_KERNELS = "zonebloom.bloom.kernels.xxh64"
_FEW_VALUES = 16
"""Values that the xxhash package hashes as fast as a kernel is called."""
_SECONDS_A_VALUE = 5e-7
"""The package's, with the bytes of each value as an object."""

NUM_CACHED_DICTIONARIES = 8
"""Dictionaries that are kept with their hashes; a build usually reads fewer dictionary columns side by side."""


def to_hashes(array: pa.Array) -> Hashes:
    """One hash for each row of any supported type; the hash of a null row is unspecified, see `validity_of`.

    A dictionary's values are hashed once, also if the next arrays share the dictionary.

    Spec: specs/hashing.md#to_hashes
    """
    plan = hash_plan(array.type)
    if plan.layout == "dictionary":
        values, indexes = dictionary_hashes(stored_array(array))
        gathered: Hashes = values.take(indexes)
        return gathered
    kernels = kernels_to_read("xxh64")
    if plan.layout == "fixed":
        fixed = fixed_buffers(array)
        hashes: Hashes = kernels.hash_fixed(fixed.data, fixed.width)
    else:
        variable = variable_buffers(array)
        hashes = kernels.hash_variable(variable.data, variable.offsets)
    return hashes


def hash_array(array: pa.Array | pa.ChunkedArray) -> Hashes:
    """The hashes of the values that are not null, in order.

    Spec: specs/hashing.md#to_hashes
    """
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    hash_plan(array.type)
    hashes = [_valid_hashes(chunk) for chunk in chunks]
    return np.concatenate(hashes) if hashes else np.empty(0, np.uint64)


def hash_values(array: pa.Array) -> list[int] | Hashes:
    """The hashes to probe for the values of `array`: no value is in a zone that has none of the hashes.

    Nulls are dropped. A value that occurs repeatedly has its hash once, as a locator may give each hash many zones. A
    zero of a float type gives the hashes of ``0.0`` and ``-0.0``, which are equal but have different bytes. Hashed
    without Numba, which few values do not load, they are a list of ints. NaN must not be among the values:
    zonebloom.predicates.coerce.fit_values refuses it.

    Spec: specs/hashing.md#hash_values
    """
    hashes = hash_each(_both_zeros(plain_array(array).drop_null()))
    return list(dict.fromkeys(hashes)) if isinstance(hashes, list) else distinct(hashes)


def hash_each(values: pa.Array) -> list[int] | Hashes:
    """The hash of each value of an array without nulls, in order; few values do not load Numba, and are a list."""
    plain = plain_array(values)
    if len(plain) > _FEW_VALUES and is_worth_loading(_KERNELS, len(plain) * _SECONDS_A_VALUE):
        return to_hashes(plain)
    import xxhash  # noqa: PLC0415 - a build never needs it

    return [xxhash.xxh64_intdigest(value) for value in _hash_inputs(plain)]


def _hash_inputs(array: pa.Array) -> Iterator[bytes]:
    """The hash input of each row of an array without nulls."""
    if hash_plan(array.type).layout == "fixed":
        fixed = fixed_buffers(array)
        raw = fixed.data.tobytes()
        return (raw[i : i + fixed.width] for i in range(0, len(raw), fixed.width))
    variable = variable_buffers(array)
    bounds = variable.offsets.tolist()
    return (variable.data[start:stop].tobytes() for start, stop in itertools.pairwise(bounds))


def _both_zeros(values: pa.Array) -> pa.Array:
    if not pa.types.is_floating(values.type):
        return values
    floats: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    if not (floats == 0).any():
        return values
    others = np.array([0.0, -0.0], floats.dtype)
    return pa.array(np.concatenate([floats[floats != 0], others]), values.type)


def _valid_hashes(array: pa.Array) -> Hashes:
    hashes = to_hashes(array)
    validity, offset = validity_of(array)
    if validity is None:
        return hashes
    return hashes[np.unpackbits(validity, count=offset + len(array), bitorder="little")[offset:].view(np.bool_)]


# --- dictionaries -----------------------------------------------------------------------------------------------------


def dictionary_hashes(array: pa.DictionaryArray) -> tuple[Hashes, NDArray[np.uint32]]:
    """The hash of each value of a dictionary, and for each row the place of its value; a null row has any place.

    Raises
    ------
    InvalidArgumentError
        A row names a value that the dictionary does not have.
    """
    if not len(array.dictionary):  # every row is null
        return np.zeros(1, np.uint64), np.zeros(len(array), np.uint32)
    indices = array.indices
    if indices.null_count:  # the index of a null row may be anything
        indices = pc.fill_null(indices, 0)
    places = indices.to_numpy()
    if len(places) and not 0 <= places.min() <= places.max() < len(array.dictionary):
        raise InvalidArgumentError(
            f"rows of a dictionary array must be from 0 to {len(array.dictionary) - 1}",
            got=f"{places.min()} to {places.max()}",
        )
    return _hashes_of_dictionary(_Dictionary.of(array.dictionary)), places.astype(np.uint32, copy=False)


@dataclass(frozen=True, slots=True)
class _Dictionary:
    """A dictionary, equal to one with the same buffers: while it lives, they cannot be given to other data."""

    place: tuple[Any, ...]
    values: pa.Array = field(compare=False)

    @classmethod
    def of(cls, values: pa.Array) -> _Dictionary:
        buffers = tuple((b.address, b.size) if b is not None else None for b in values.buffers())
        return cls((str(values.type), values.offset, len(values), buffers), values)


@lru_cache(NUM_CACHED_DICTIONARIES)
def _hashes_of_dictionary(dictionary: _Dictionary) -> Hashes:
    return to_hashes(dictionary.values)
