"""Checks of an array before a wrapper gives the array's address to a kernel: O(1), no copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from zonebloom.ground.errors import InvalidArgumentError

BLOCK_SHAPE = 8


def address(array: npt.NDArray[Any] | None) -> int:
    """The address of an array's first byte, or 0 for None. Whoever asks keeps the array alive."""
    return 0 if array is None else int(array.__array_interface__["data"][0])


def check_array(
    name: str, array: Any, dtype: type[np.generic], num_dimensions: int = 1, *, writes: bool = False
) -> None:
    """Check that `array` is a C-contiguous NumPy array of `dtype` with `num_dimensions`, writable if `writes`.

    Raises
    ------
    InvalidArgumentError
        If it is not.
    """
    if not isinstance(array, np.ndarray):
        got = type(array).__name__
    elif array.dtype != dtype or array.ndim != num_dimensions:
        got = f"{array.dtype} with {array.ndim}"
    elif not array.flags.c_contiguous:
        got = f"strides {array.strides}"
    elif writes and not array.flags.writeable:
        raise InvalidArgumentError(f"{name} must be writable", got="a read-only array")
    else:
        return
    raise InvalidArgumentError(
        f"{name} must be a C-contiguous NumPy array of {np.dtype(dtype).name} with {num_dimensions} dimension(s)",
        got=got,
    )


def check_range(name: str, value: int, low: int, high: int) -> None:
    """Check that `value` is in `low` .. `high`, both included.

    Raises
    ------
    InvalidArgumentError
        If it does not.
    """
    if not low <= value <= high:
        raise InvalidArgumentError(f"{name} must be from {low} to {high}", got=value)


def check_room(name: str, array: npt.NDArray[Any], num_items: int) -> None:
    """Check that `array` has `num_items` items or more.

    Raises
    ------
    InvalidArgumentError
        If it has fewer.
    """
    if len(array) < num_items:
        raise InvalidArgumentError(f"{name} must have at least {num_items} items", got=len(array))


def check_filters(name: str, filters: Any, *, num_dimensions: int = 3, writes: bool = False) -> None:
    """Check that `filters` is uint32 (num_filters, num_blocks, 8), or (num_blocks, 8) with two dimensions.

    Raises
    ------
    InvalidArgumentError
        If it is not.
    """
    check_array(name, filters, np.uint32, num_dimensions, writes=writes)
    if filters.shape[-1] != BLOCK_SHAPE or not 1 <= filters.shape[-2] < 1 << 32:
        raise InvalidArgumentError(f"{name} must have 1 or more blocks of 8 words", got=f"shape {filters.shape}")


def check_offsets(data: npt.NDArray[np.uint8], offsets: Any, num_rows: int) -> None:
    """Check that `offsets` is int32 or int64 for `num_rows` values, the first and the last inside `data`.

    The offsets between must not decrease; that is Arrow's own invariant, and not looked at here.

    Raises
    ------
    InvalidArgumentError
        If they are not.
    """
    is_wide = isinstance(offsets, np.ndarray) and offsets.dtype == np.int64
    check_array("offsets", offsets, np.int64 if is_wide else np.int32)
    check_range("num_rows", num_rows, 0, max(len(offsets) - 1, 0))
    if num_rows:
        first, last = int(offsets[0]), int(offsets[num_rows])
        if not 0 <= first <= last <= len(data):
            raise InvalidArgumentError(f"offsets must rise from 0 to at most {len(data)}", got=f"{first} .. {last}")


def check_validity(validity: Any, validity_offset: int, num_rows: int) -> None:
    """Check that `validity` is None or a uint8 bitmap that reaches to row `num_rows`.

    Raises
    ------
    InvalidArgumentError
        If it is not.
    """
    if validity is None:
        return
    check_array("validity", validity, np.uint8)
    if validity_offset < 0 or validity_offset + num_rows > 8 * len(validity):
        raise InvalidArgumentError(
            f"validity must hold bits {validity_offset} to {validity_offset + num_rows}",
            got=f"{8 * len(validity)} bits",
        )
