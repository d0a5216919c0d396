"""All zone filters of a column in one call: hash a batch, drop its nulls, insert, and cross into the next zone.

A zone's filter is cleared at the zone's first row, so `filters` may be uninitialised memory. The division of rows into
calls changes nothing, as long as each call says how many rows its first zone already has.

Spec: specs/sbbf.md#insert_into_zones
"""
# ruff: noqa: PLR0917 - kernels take no keywords

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from zonebloom.bloom.kernels import U, kernel, subroutine
from zonebloom.bloom.kernels.blocks import filter_insert_batch
from zonebloom.bloom.kernels.checks import check_array, check_filters, check_offsets, check_range, check_validity
from zonebloom.bloom.kernels.vector import load_u8, load_u32, load_u64, stack_bytes, store_u64, zero_bytes
from zonebloom.bloom.kernels.xxh64 import BATCH, hash_fixed_batch, hash_variable_batch
from zonebloom.ground.errors import InvalidArgumentError

_BATCH = U(BATCH)
_0, _1, _3, _7, _8, _32 = U(0), U(1), U(3), U(7), U(8), U(32)

_stack_hashes = stack_bytes(8 * BATCH)


@subroutine
def _gather_batch(data: Any, _data_bytes: Any, indexes: Any, _width: Any, first: Any, count: Any, hashes: Any) -> None:
    for row in range(count):
        store_u64(hashes, row, load_u64(data, U(load_u32(indexes, first + row))))


@subroutine
def _drop_nulls(hashes: Any, count: Any, validity: Any, first_bit: Any) -> Any:
    """Moves the hashes of valid rows to the front and returns how many there are."""
    num_valid = _0
    for index in range(count):
        bit = first_bit + index
        store_u64(hashes, num_valid, load_u64(hashes, index))
        num_valid += (load_u8(validity, bit >> _3) >> (bit & _7)) & _1
    return num_valid


def _zone_kernel(name: str, hash_batch: Callable[..., None]) -> Callable[..., None]:
    """The kernel that inserts a column whose keys `hash_batch` can hash."""

    def insert_into_zones(
        filters: Any,
        num_blocks: Any,
        valid_counts: Any,
        data: Any,
        data_bytes: Any,
        offsets: Any,
        width: Any,
        validity: Any,
        validity_offset: Any,
        num_rows: Any,
        rows_per_zone: Any,
        first_fill: Any,
    ) -> None:
        hashes = _stack_hashes()
        filter_bytes = num_blocks * _32
        row, fill = _0, first_fill
        while row < num_rows:
            if fill == _0:
                zero_bytes(filters, filter_bytes)
                store_u64(valid_counts, _0, _0)
            count = min(_BATCH, num_rows - row, rows_per_zone - fill)
            hash_batch(data, data_bytes, offsets, width, row, count, hashes)
            num_valid = count
            if validity != _0:
                num_valid = _drop_nulls(hashes, count, validity, validity_offset + row)
            filter_insert_batch(filters, num_blocks, hashes, num_valid)
            store_u64(valid_counts, _0, load_u64(valid_counts, _0) + num_valid)
            row += count
            fill += count
            if fill == rows_per_zone:
                filters += filter_bytes
                valid_counts += _8
                fill = _0

    # The name is part of the cache file's, which the kernels would share otherwise.
    insert_into_zones.__name__ = insert_into_zones.__qualname__ = name
    return kernel(insert_into_zones)


def _fixed_keys(num_rows: int, data: npt.NDArray[np.uint8], width: int) -> tuple[Any, ...]:
    check_array("data", data, np.uint8)
    check_range("width", width, 1, 1 << 31)
    check_range("num_rows", num_rows, 0, len(data) // width)
    return data, len(data), 0, width


def _variable_keys(
    num_rows: int, data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int32] | npt.NDArray[np.int64]
) -> tuple[Any, ...]:
    check_array("data", data, np.uint8)
    check_offsets(data, offsets, num_rows)
    return data, len(data), offsets, offsets.itemsize


def _dictionary_keys(num_rows: int, hashes: npt.NDArray[np.uint64], indexes: npt.NDArray[np.uint32]) -> tuple[Any, ...]:
    check_array("hashes", hashes, np.uint64)
    check_array("indexes", indexes, np.uint32)
    check_range("num_rows", num_rows, 0, len(indexes))
    check_range("the greatest index", int(indexes[:num_rows].max(initial=0)), 0, max(len(hashes) - 1, 0))
    return hashes, 8 * len(hashes), indexes, 4


_LAYOUTS: dict[str, tuple[Callable[..., None], Callable[..., tuple[Any, ...]]]] = {
    "fixed": (_zone_kernel("insert_fixed_into_zones", hash_fixed_batch), _fixed_keys),
    "variable": (_zone_kernel("insert_variable_into_zones", hash_variable_batch), _variable_keys),
    "dictionary": (_zone_kernel("insert_dictionary_into_zones", _gather_batch), _dictionary_keys),
}
"""By layout of the keys, the kernel, and the check that gives its arguments data, data_bytes, offsets and width."""


def insert_into_zones(
    layout: str,
    filters: npt.NDArray[np.uint32],
    valid_counts: npt.NDArray[np.uint64],
    keys: tuple[Any, ...],
    *,
    validity: npt.NDArray[np.uint8] | None = None,
    validity_offset: int = 0,
    num_rows: int,
    rows_per_zone: int,
    first_fill: int = 0,
) -> None:
    """Every valid row of a column may be in its zone's filter from now on.

    Row i belongs to ``filters[(first_fill + i) // rows_per_zone]``. A filter and its count are cleared when the first
    row of their zone is inserted.

    Parameters
    ----------
    layout : str
        What `keys` are, for at least `num_rows` rows.

        - fixed: data, an ndarray of uint8, and the bytes of a key, 1 or more.
        - variable: data, and offsets, an ndarray of int32 or int64: row i is ``data[offsets[i]:offsets[i + 1]]``. There
          are ``num_rows + 1``, never decreasing; the first and the last are checked.
        - dictionary: the hashes of its values, an ndarray of uint64, and indexes, an ndarray of uint32: row i is
          ``hashes[indexes[i]]``, also if it is null.
    filters : ndarray of uint32, shape (num_filters, num_blocks, 8)
        Changed in place; zones not yet begun may hold anything.
    valid_counts : ndarray of uint64, shape (num_filters,)
        Grows by the number of valid rows of each zone.
    validity : ndarray of uint8, optional
        Arrow's bitmap, least significant bit first; row i is valid if bit ``validity_offset + i`` is set.
    validity_offset : int
        In bits.
    num_rows, rows_per_zone : int
        In rows.
    first_fill : int
        Rows that earlier calls inserted into the zone of ``filters[0]``.

    Raises
    ------
    InvalidArgumentError
        If a dtype, a shape or a bound does not fit.

    Notes
    -----
    Cost with AVX-512: about 0.8 ns a row of 8 bytes, 3 ns of 5 to 36 bytes, 1 ns of a dictionary (2.5 without); holds
    no GIL. Spec: specs/sbbf.md#insert_into_zones
    """
    kernel_, checked = _LAYOUTS[layout]
    arguments = checked(num_rows, *keys)
    check_filters("filters", filters, writes=True)
    check_array("valid_counts", valid_counts, np.uint64, writes=True)
    if len(valid_counts) != len(filters):
        raise InvalidArgumentError(f"valid_counts must have {len(filters)} items, one a filter", got=len(valid_counts))
    check_validity(validity, validity_offset, num_rows)
    check_range("rows_per_zone", rows_per_zone, 1, (1 << 32) - 1)
    check_range("first_fill", first_fill, 0, rows_per_zone - 1)
    num_zones = -(-(first_fill + num_rows) // rows_per_zone)
    if num_zones > len(filters):
        raise InvalidArgumentError(f"filters must have a filter for each of {num_zones} zones", got=len(filters))
    if num_rows:
        rows = (validity, validity_offset, num_rows, rows_per_zone, first_fill)
        kernel_(filters, filters.shape[1], valid_counts, *arguments, *rows)
