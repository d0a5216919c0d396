"""The size of a filter for a false positive probability, and the inverse.

The ladder: a model of the false positive probability (`putze_fpp`, `expected_fpp`), then four ways to choose a number
of blocks from it (`num_blocks_for`). One block is 256 bits; an insert sets 8 bits of one block.

==================  ==================================================  =========================
sizing              number of blocks                                    also used by
==================  ==================================================  =========================
``power_of_two``    least power of two with `putze_fpp` <= fpp          Lance, bit for bit
``exact``           least number with `expected_fpp` <= fpp             none (0.59 x the bytes)
``adaptive``        ``exact`` for the zone's own number of values       none
``parquet``         closed formula, then the next power of two          arrow-rs
==================  ==================================================  =========================

Spec: specs/sizing.md
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from functools import lru_cache
from typing import Final, Literal, get_args

from zonebloom.ground.errors import InvalidArgumentError

Sizing = Literal["power_of_two", "exact", "adaptive", "parquet"]
SIZINGS: Final[tuple[Sizing, ...]] = get_args(Sizing)

ROWS_PER_ZONE: Final = 8192
"""Rows: Lance's default."""
FPP: Final = 0.00057
"""Probability for a full zone of distinct values: Lance's default."""
LEAST_FPP: Final = 1e-12
"""Takes 418 bytes a value, each tenth of it ten times as many: a block alone distinguishes values by 40 bits."""
BLOCK_BYTES: Final = 32
BLOCK_BITS: Final = 256
MAX_BLOCKS: Final = 1 << 22
"""128 MiB, the largest filter that Lance and Parquet allow."""

_MIN_LOG2_BYTES: Final = 5
_MAX_LOG2_BYTES: Final = 27

# 1 - (31/32)^k: how likely at least one of k inserts set a given bit of its word.
_BIT_SET: Final = tuple(1 - (31 / 32) ** k for k in range(9))
# (1 - x)^8 expanded: the signed coefficients of `_expected_fpp_in_closed_form`.
_SIGNED_BINOMIALS: Final = tuple((-1) ** k * math.comb(8, k) for k in range(9))
# Below this the closed form has lost half of its 16 digits to cancellation.
_CLOSED_FORM_FLOOR: Final = 1e-8


def check_fpp(fpp: float) -> None:
    """Check that `fpp` is from `LEAST_FPP` to below 1.

    Raises
    ------
    InvalidArgumentError
        `fpp` is outside the range, NaN, or not a number.
    """
    if isinstance(fpp, bool) or not isinstance(fpp, int | float) or not LEAST_FPP <= fpp < 1:
        raise InvalidArgumentError(f"fpp must be a number from {LEAST_FPP} to below 1", got=f"{fpp!r}")


def check_rows_per_zone(rows_per_zone: int) -> None:
    """Check that `rows_per_zone` is a whole number from 1 to 2^32 - 1.

    Raises
    ------
    InvalidArgumentError
        `rows_per_zone` is another value.
    """
    is_whole = isinstance(rows_per_zone, int) and not isinstance(rows_per_zone, bool)
    if not is_whole or not 1 <= rows_per_zone < 1 << 32:
        raise InvalidArgumentError("rows_per_zone must be an integer from 1 to 2^32 - 1", got=f"{rows_per_zone!r}")


def num_blocks_for(ndv: int, fpp: float, sizing: str) -> int:
    """The number of 256-bit blocks for `ndv` distinct values at a probability of at most `fpp`, up to `MAX_BLOCKS`.

    ``exact`` and ``adaptive`` are the same function of different arguments: `ndv` is the rows of a zone, or its
    distinct values. Only ``parquet`` may miss `fpp`, as its formula ignores that blocks fill unevenly.

    Parameters
    ----------
    ndv : int
        Distinct values, 0 or more.
    fpp : float
        False positive probability; see `check_fpp`.
    sizing : str
        One of `SIZINGS`.

    Raises
    ------
    InvalidArgumentError
        If an argument is outside its range.

    Notes
    -----
    Cost: about 10 us, or 2 ms for ``power_of_two``, at the first call; results are cached.
    Spec: specs/sizing.md#num_blocks_for

    Examples
    --------
    >>> num_blocks_for(8192, 0.00057, "power_of_two"), num_blocks_for(8192, 0.00057, "exact")
    (1024, 604)
    """
    InvalidArgumentError.unless_among("sizing", sizing, SIZINGS)
    check_fpp(fpp)
    if isinstance(ndv, bool) or not isinstance(ndv, int) or ndv < 0:
        raise InvalidArgumentError("ndv must be an integer of 0 or more", got=f"{ndv!r}")
    if sizing == "power_of_two":
        return _power_of_two_blocks(ndv, fpp)
    if sizing == "parquet":
        return _parquet_blocks(ndv, fpp)
    return _least_blocks(ndv, fpp)


def putze_fpp(ndv: int, num_bytes: int, terms: int = 750) -> float:
    """The false positive probability that Lance computes for `ndv` distinct values in `num_bytes`.

    Equation 3 of Putze, Sanders, Singler (2007): the number of values in a block is taken as Poisson-distributed.
    The sum runs from the last term to the first, as in Lance, so that both round alike.

    Spec: specs/sizing.md#putze_fpp
    """
    if ndv == 0:
        return 0.0
    num_bits = 8 * num_bytes
    if ndv / num_bits > 2:  # noqa: PLR2004 - Lance's cut: two values a bit, the filter is full
        return 1.0
    values_per_block = BLOCK_BITS * ndv / num_bits
    log_values_per_block = math.log(values_per_block)
    total = 0.0
    for i in range(terms - 1, 0, -1):  # the term of i = 0 is zero: an empty block matches nothing
        log_poisson = i * log_values_per_block - values_per_block - math.lgamma(i + 1)
        total += math.exp(log_poisson + 8 * math.log(1 - (31 / 32) ** i))
    return total


def expected_fpp(ndv: int, num_blocks: int) -> float:
    """The expected false positive probability of `num_blocks` blocks with `ndv` distinct values.

    For uniform hashes the number of values in a block is binomial; Poisson is its limit for many blocks. `expected_fpp`
    never rises with `num_blocks`.

    Spec: specs/sizing.md#expected_fpp
    """
    if ndv == 0:
        return 0.0
    closed_form = _expected_fpp_in_closed_form(ndv, 1 / num_blocks)
    if closed_form > _CLOSED_FORM_FLOOR:
        return closed_form
    return _expected_fpp_as_sum(ndv, 1 / num_blocks)


def _expected_fpp_in_closed_form(ndv: int, share: float) -> float:
    """E[(1 - (31/32)^i)^8] for i binomial(ndv, share): expand the 8th power, and each term is a moment of i."""
    return math.fsum(
        sign * math.exp(ndv * math.log1p(-share * bit_set))
        for sign, bit_set in zip(_SIGNED_BINOMIALS, _BIT_SET, strict=True)
    )


def _expected_fpp_as_sum(ndv: int, share: float) -> float:
    """The same expectation as a sum of positive terms: slower, but without cancellation."""
    if share == 1:
        return float((1 - (31 / 32) ** ndv) ** 8)
    log_share, log_rest = math.log(share), math.log1p(-share)
    log_choose_all = math.lgamma(ndv + 1)
    total = 0.0
    for i in range(1, ndv + 1):
        log_choose = log_choose_all - math.lgamma(i + 1) - math.lgamma(ndv - i + 1)
        log_binomial = log_choose + i * log_share + (ndv - i) * log_rest
        term = math.exp(log_binomial + 8 * math.log(1 - (31 / 32) ** i))
        total += term
        if i > 8 + ndv * share and term < total * 1e-17:
            break
    return total


@lru_cache(maxsize=1 << 10)
def _power_of_two_blocks(ndv: int, fpp: float) -> int:
    sizes = range(_MAX_LOG2_BYTES)
    log2_bytes = bisect_left(sizes, True, lo=_MIN_LOG2_BYTES, key=lambda log2: putze_fpp(ndv, 1 << log2) <= fpp)
    return (1 << log2_bytes) // BLOCK_BYTES


@lru_cache(maxsize=1 << 10)
def _parquet_blocks(ndv: int, fpp: float) -> int:
    word_miss = 1.0 - fpp ** (1.0 / 8.0)
    if word_miss == 0.0:  # fpp is so near to 1 that rounding leaves nothing to compute with
        return 1
    num_bytes = int(min(-8.0 * ndv / math.log(word_miss), 1 << 40)) // 8
    num_bytes = min(max(num_bytes, BLOCK_BYTES), MAX_BLOCKS * BLOCK_BYTES)
    return (1 << (num_bytes - 1).bit_length()) // BLOCK_BYTES


@lru_cache(maxsize=1 << 16)
def _least_blocks(ndv: int, fpp: float) -> int:
    if expected_fpp(ndv, MAX_BLOCKS) > fpp:
        return MAX_BLOCKS
    # Binomial and Poisson differ by about one block, so the Poisson answer is a few steps from ours.
    num_blocks = min(max(math.ceil(ndv / _values_per_block(fpp)), 1), MAX_BLOCKS)
    while expected_fpp(ndv, num_blocks) > fpp:
        num_blocks += 1
    while num_blocks > 1 and expected_fpp(ndv, num_blocks - 1) <= fpp:
        num_blocks -= 1
    return num_blocks


@lru_cache(maxsize=64)
def _values_per_block(fpp: float) -> float:
    """The mean number of values in a block at `fpp`, for many blocks."""
    # 2^20 blocks stand for infinitely many: binomial and Poisson then agree to 1 part in 10^6.
    num_blocks = 1 << 20
    most = bisect_right(range(1 << 40), fpp, key=lambda num_values: expected_fpp(num_values, num_blocks)) - 1
    return max(most, 1) / num_blocks
